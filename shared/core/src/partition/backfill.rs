//! Writing the entries of an index for partitions that were there before it.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};

use super::index_item::{self, values_of};
use super::rekey::MOVES_AT_ONCE;
use crate::catalog::{Cancelled, CatalogError, TableRef, transact};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Item, Key, Write, get_every};

/// Writes the entries of index `number` that partitions of one page lack; answers how many were missing. One batch get
/// for each hundred partitions and one transaction for each missing entry, which is written only while its partition
/// exists.
pub(crate) async fn backfill_page(
    ports: &Ports,
    table: &TableRef,
    number: u32,
    items: Vec<(Key, Item)>,
) -> Result<usize, CatalogError> {
    let Some(index) = table.indexes.iter().find(|index| index.number == number) else { return Ok(0) };
    let mut wanted: BTreeMap<Key, (Key, Vec<String>)> = BTreeMap::new();
    for (row, item) in items {
        let values = values_of(&item)?;
        if let Some(entry) = index_item::key(table, index, &values) {
            wanted.insert(entry, (row, values));
        }
    }
    let keys: Vec<Key> = wanted.keys().cloned().collect();
    let found = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await?;
    wanted.retain(|entry, _| !found.contains_key(entry));
    let count = wanted.len();
    let writes = wanted.into_iter().map(|(entry, (row, values))| enter(ports, entry, row, values));
    futures::stream::iter(writes).buffer_unordered(MOVES_AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(count)
}

async fn enter(ports: &Ports, entry: Key, row: Key, values: Vec<String>) -> Result<(), CatalogError> {
    let writes = [
        Write::Check { key: row, condition: Condition::Present },
        Write::Put { key: entry, item: index_item::encode(&values), condition: Condition::Always },
    ];
    match transact(ports, &writes).await {
        // Deleted meanwhile, or moved with an entry of its own.
        Ok(()) | Err(Cancelled::Conditions) => Ok(()),
        Err(Cancelled::Store(error)) => Err(error.into()),
    }
}
