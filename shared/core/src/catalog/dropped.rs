//! Tables that were dropped, and whose files may be there still.

use super::CatalogError;
pub use super::dropped_table_item::DroppedTable;
use super::dropped_table_item::{DROPPED_TABLES, at, within};
use super::locations::{folders_above, is_same};
use crate::location::Location;
use crate::store::{Condition, Items, Query, ReadItems, Sort, SortRange, Table, WriteError};

async fn read(items: &dyn ReadItems, range: SortRange) -> Result<Vec<DroppedTable>, CatalogError> {
    let mut query = Query::new(Table::Catalog, DROPPED_TABLES, range);
    let mut found = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            found.push(DroppedTable::decode(item)?);
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(found);
        }
    }
}

/// Where a dropped table stands among all of them, to go on behind it.
pub fn position(table: &DroppedTable) -> String {
    String::from_utf8_lossy(table.key().sk.as_bytes()).into_owned()
}

/// Dropped tables by place, from the one behind `after` on, and whether there are more.
pub async fn page(
    items: &dyn ReadItems,
    limit: usize,
    after: Option<&str>,
) -> Result<(Vec<DroppedTable>, bool), CatalogError> {
    let mut query = Query::new(Table::Catalog, DROPPED_TABLES, SortRange::All);
    query.limit = Some(limit);
    query.start_after = after.map(|after| Sort::Text(after.to_owned()));
    let page = items.query(&query).await?;
    let found = page.items.iter().map(|(_, item)| DroppedTable::decode(item)).collect::<Result<_, _>>()?;
    Ok((found, page.next.is_some()))
}

/// A dropped table by its id. Reads all of them.
pub async fn find(items: &dyn ReadItems, table_id: &str) -> Result<Option<DroppedTable>, CatalogError> {
    Ok(read(items, SortRange::All).await?.into_iter().find(|table| table.table_id.as_str() == table_id))
}

/// Dropped tables that lay inside a location, at it or around it. One query for each folder above.
pub async fn around(items: &dyn ReadItems, location: &Location) -> Result<Vec<DroppedTable>, CatalogError> {
    let mut found = read(items, within(location)).await?;
    found.retain(|table| location.may_contain(&table.location));
    for folder in folders_above(location).iter().filter(|folder| !is_same(folder, location)) {
        let above = read(items, at(folder)).await?;
        found.extend(above.into_iter().filter(|table| is_same(&table.location, folder)));
    }
    Ok(found)
}

/// Forgets that there was such a table.
pub async fn forget(items: &dyn Items, table: &DroppedTable) -> Result<(), CatalogError> {
    match items.delete(&table.key(), Condition::Always).await {
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}
