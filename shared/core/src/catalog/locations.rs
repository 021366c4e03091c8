//! Which tables lie where. Answers name live tables only, all of them, across pages of the index.

use futures::StreamExt;

use super::CatalogError;
use super::database_item::{self, decode_head};
use super::location_item::{self, LocationEntry, locations_in, range_at, range_within};
use super::table_head_item::{self, TableRef};
use crate::location::Location;
use crate::store::{Clock, Consistency, Query, ReadItems, SortRange, Table, get_every};

/// Queries at once when the folders above a location are looked at.
const ANCESTORS_AT_ONCE: usize = 16;

/// A live table and the location it was last seen to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub table: TableRef,
    pub location: Location,
}

/// The table at this very location; of several, the one created first (then by id).
pub async fn table_at(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Option<TableRef>, CatalogError> {
    let mut tables = tables_at(items, clock, location).await?;
    tables.sort_by(|left, right| {
        (left.table.created_ms, &left.table.table_id).cmp(&(right.table.created_ms, &right.table.table_id))
    });
    Ok(tables.into_iter().next().map(|located| located.table))
}

/// All tables at this very location.
pub async fn tables_at(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Located>, CatalogError> {
    let mut entries = read_entries(items, &location.bucket, range_at(location)).await?;
    entries.retain(|entry| entry.location == *location);
    live(items, clock, entries).await
}

/// All tables at this location and below it; the root of a bucket gives all of the bucket.
pub async fn tables_within(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Located>, CatalogError> {
    let mut entries = read_entries(items, &location.bucket, range_within(location)).await?;
    entries.retain(|entry| location.contains(&entry.location));
    live(items, clock, entries).await
}

/// All tables at this location and at folders above it, up to the root of the bucket.
pub async fn tables_containing(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Located>, CatalogError> {
    let mut folders = vec![Location::new(location.bucket.clone(), "")];
    let ends = location.prefix.match_indices('/').map(|(end, _)| end).chain([location.prefix.len()]);
    for end in ends {
        let prefix = location.prefix.get(..end).unwrap_or_default();
        // Not `Location::new`: it trims slashes, and `a//b` lies in `a/`, which is not `a`.
        let folder = Location { bucket: location.bucket.clone(), prefix: prefix.to_owned() };
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let reads = folders.into_iter().map(|folder| async move {
        let mut entries = read_entries(items, &folder.bucket, range_at(&folder)).await?;
        entries.retain(|entry| entry.location == folder);
        Ok::<_, CatalogError>(entries)
    });
    let mut entries = Vec::new();
    let mut answers = futures::stream::iter(reads).buffered(ANCESTORS_AT_ONCE);
    while let Some(answer) = answers.next().await {
        entries.extend(answer?);
    }
    live(items, clock, entries).await
}

async fn read_entries(
    items: &dyn ReadItems,
    bucket: &str,
    range: SortRange,
) -> Result<Vec<LocationEntry>, CatalogError> {
    let mut query = Query::new(Table::Catalog, locations_in(bucket), range);
    let mut entries = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            entries.push(location_item::decode(item)?);
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(entries);
        }
    }
}

/// Keeps the entries whose table is there, under its database.
async fn live(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    entries: Vec<LocationEntry>,
) -> Result<Vec<Located>, CatalogError> {
    let at = |entry: &LocationEntry| {
        (database_item::head_key(&entry.database), table_head_item::key(&entry.database, &entry.table))
    };
    let keys: Vec<_> = entries.iter().flat_map(|entry| <[_; 2]>::from(at(entry))).collect();
    let found = get_every(items, clock, &keys, Consistency::Strong).await?;
    let mut tables = Vec::new();
    for entry in entries {
        let (at_database, at_table) = at(&entry);
        let (Some(database), Some(head)) = (found.get(&at_database), found.get(&at_table)) else { continue };
        let table = table_head_item::decode(&entry.database, &entry.table, head)?;
        if table.table_id == entry.table_id && table.database_id == decode_head(database)?.database_id {
            tables.push(Located { table, location: entry.location });
        }
    }
    Ok(tables)
}
