//! Which tables lie where. Answers name live tables only, all of them, across pages of the index.

use std::collections::BTreeSet;

use futures::StreamExt;

use super::database_item::{self, decode_head};
pub use super::location_item::Use;
use super::location_item::{self, LocationEntry, locations_in, range_at, range_within, single_slashes, uses_in};
use super::table_head_item::{self, TableRef};
use super::{CatalogError, TableId};
use crate::location::Location;
use crate::store::{Clock, Condition, Consistency, Item, Key, Query, ReadItems, SortRange, Table, Write, get_every};

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

/// All tables at this location and below it, in any spelling of slashes; the root of a bucket gives all of the bucket.
pub async fn tables_within(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Located>, CatalogError> {
    let mut entries = read_entries(items, &location.bucket, range_within(location)).await?;
    entries.retain(|entry| location.may_contain(&entry.location));
    live(items, clock, entries).await
}

/// A place where a live table does not lie, and has or had files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub table: TableRef,
    pub location: Location,
    pub what: Use,
}

/// The item that notes a use, to be put before what it speaks of.
pub(crate) fn use_item(table: &TableRef, location: Location, what: Use) -> (Key, Item) {
    let entry = LocationEntry {
        location,
        database: table.database.clone(),
        table: table.name.clone(),
        table_id: table.table_id.clone(),
    };
    (location_item::use_key(&entry.location, &table.table_id, what), location_item::encode_use(&entry, what))
}

/// The item that notes that a table has uses in a bucket, to be put before the first of them.
pub(crate) fn use_bucket_item(table: &TableRef, bucket: &str) -> (Key, Item) {
    (location_item::bucket_key(&table.table_id, bucket), location_item::encode_bucket(bucket))
}

/// Places of a table outside its location that one transaction has room for.
const USES_MAX: usize = 40;

/// Notes of uses, for one transaction.
pub(super) fn put_uses(table: &TableRef, uses: &[(Location, Use)]) -> Result<Vec<Write>, CatalogError> {
    if uses.len() > USES_MAX {
        let text = format!("A table has at most {USES_MAX} AdditionalLocations outside its Location.");
        return Err(CatalogError::LimitExceeded(text));
    }
    let buckets: BTreeSet<&str> = uses.iter().map(|(place, _)| place.bucket.as_str()).collect();
    let notes = buckets.into_iter().map(|bucket| use_bucket_item(table, bucket));
    let items = notes.chain(uses.iter().map(|(place, what)| use_item(table, place.clone(), *what)));
    Ok(items.map(|(key, item)| Write::Put { key, item, condition: Condition::Always }).collect())
}

/// Buckets in which a table has uses, or had.
pub(super) async fn use_buckets(items: &dyn ReadItems, table: &TableId) -> Result<Vec<String>, CatalogError> {
    let mut query = Query::new(Table::Catalog, location_item::buckets_of(table), SortRange::All);
    let mut buckets = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            buckets.push(location_item::decode_bucket(item)?);
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(buckets);
        }
    }
}

/// Whether an item of [`location_item::uses_in`] is a table's.
pub(super) fn is_use_of(table: &TableId, item: &Item) -> Result<bool, CatalogError> {
    Ok(location_item::decode_use(item)?.0.table_id == *table)
}

/// What live tables use inside a location, at it and around it, beside where they lie. A use that is over may be among
/// them.
pub async fn uses_around(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Used>, CatalogError> {
    let mut found = read_uses(items, &location.bucket, range_within(location)).await?;
    found.retain(|(entry, _)| location.may_contain(&entry.location));
    for folder in folders_above(location) {
        let mut at = read_uses(items, &folder.bucket, range_at(&folder)).await?;
        at.retain(|(entry, _)| is_same(&entry.location, &folder) && !is_same(&folder, location));
        found.extend(at);
    }
    let (entries, whats): (Vec<LocationEntry>, Vec<Use>) = found.into_iter().unzip();
    let tables = live_each(items, clock, &entries).await?;
    let uses = tables.into_iter().zip(entries).zip(whats);
    Ok(uses
        .filter_map(|((table, entry), what)| table.map(|table| Used { table, location: entry.location, what }))
        .collect())
}

async fn read_uses(
    items: &dyn ReadItems,
    bucket: &str,
    range: SortRange,
) -> Result<Vec<(LocationEntry, Use)>, CatalogError> {
    let mut query = Query::new(Table::Catalog, uses_in(bucket), range);
    let mut found = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            found.push(location_item::decode_use(item)?);
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(found);
        }
    }
}

/// Whether two places are one to some tool.
pub(super) fn is_same(one: &Location, other: &Location) -> bool {
    one.may_contain(other) && other.may_contain(one)
}

/// The location and all folders above it, the root of the bucket first. Of several spellings with more slashes than one
/// the index knows one.
pub(super) fn folders_above(location: &Location) -> Vec<Location> {
    let location = &Location { prefix: single_slashes(&location.prefix), ..location.clone() };
    let mut folders = vec![Location::new(location.bucket.clone(), "")];
    let ends = location.prefix.match_indices('/').map(|(end, _)| end).chain([location.prefix.len()]);
    for end in ends {
        let prefix = location.prefix.get(..end).unwrap_or_default();
        let folder = Location { bucket: location.bucket.clone(), prefix: prefix.to_owned() };
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// All tables at this location and at folders above it, up to the root of the bucket.
pub async fn tables_containing(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    location: &Location,
) -> Result<Vec<Located>, CatalogError> {
    let reads = folders_above(location).into_iter().map(|folder| async move {
        let mut entries = read_entries(items, &folder.bucket, range_at(&folder)).await?;
        entries.retain(|entry| is_same(&entry.location, &folder));
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
    let tables = live_each(items, clock, &entries).await?;
    let located = tables.into_iter().zip(entries);
    Ok(located.filter_map(|(table, entry)| table.map(|table| Located { table, location: entry.location })).collect())
}

/// The table of each entry, if it is there.
async fn live_each(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    entries: &[LocationEntry],
) -> Result<Vec<Option<TableRef>>, CatalogError> {
    let at = |entry: &LocationEntry| {
        (database_item::head_key(&entry.database), table_head_item::key(&entry.database, &entry.table))
    };
    let keys: BTreeSet<Key> = entries.iter().flat_map(|entry| <[_; 2]>::from(at(entry))).collect();
    let keys: Vec<Key> = keys.into_iter().collect();
    let found = get_every(items, clock, &keys, Consistency::Strong).await?;
    let mut tables = Vec::with_capacity(entries.len());
    for entry in entries {
        let (at_database, at_table) = at(entry);
        let (Some(database), Some(head)) = (found.get(&at_database), found.get(&at_table)) else {
            tables.push(None);
            continue;
        };
        let table = table_head_item::decode(&entry.database, &entry.table, head)?;
        let is_there = table.table_id == entry.table_id && table.database_id == decode_head(database)?.database_id;
        tables.push(is_there.then_some(table));
    }
    Ok(tables)
}
