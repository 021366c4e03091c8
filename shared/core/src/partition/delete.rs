//! Deleting partitions.

use futures::StreamExt;

use super::create::WRITES_AT_ONCE;
use super::item;
use crate::catalog::{CatalogError, TableRef, delete_present};
use crate::ports::Ports;

/// Deletes the partition with these values; their number need not fit the table's keys, which may have changed.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`].
pub async fn delete(ports: &Ports, table: &TableRef, values: &[String]) -> Result<(), CatalogError> {
    if delete_present(ports, &item::key(table, values)).await? { Ok(()) } else { Err(CatalogError::PartitionNotFound) }
}

/// Deletes many partitions, each for itself; one answer per entry, in order. Of several entries with the same values one
/// succeeds.
pub async fn delete_many(ports: &Ports, table: &TableRef, entries: Vec<Vec<String>>) -> Vec<Result<(), CatalogError>> {
    let deletes = entries.into_iter().map(|values| async move { delete(ports, table, &values).await });
    futures::stream::iter(deletes).buffered(WRITES_AT_ONCE).collect().await
}
