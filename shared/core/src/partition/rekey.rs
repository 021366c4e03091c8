//! Moving partitions and their history from an earlier epoch of key encoding to the current one.
//!
//! A partition is moved as it is (identity, revision, `valid_from`) in one transaction with its index entries, so it is
//! at one place at every moment. Done again, or by two workers at once, nothing changes any more.

use futures::{StreamExt, TryStreamExt};

use super::history_item;
use super::index_item::{self, values_of};
use super::irregular::note_values;
use super::item::{self, current_epoch};
use crate::catalog::{Cancelled, CatalogError, TableRef, transact};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, DecodeError, Fields, Item, Key, StoreErrorKind, Write, WriteError};

pub(super) const MOVES_AT_ONCE: usize = 32;
const ROUNDS: u32 = 8;

/// Which items are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Partitions as they are now.
    Current,
    /// What they were before.
    History,
}

/// Moves the items of one page of an earlier epoch; answers how many it found.
pub(crate) async fn rekey_page(
    ports: &Ports,
    table: &TableRef,
    rows: Rows,
    items: Vec<(Key, Item)>,
) -> Result<usize, CatalogError> {
    let count = items.len();
    let values = items.iter().map(|(_, item)| values_of(item)).collect::<Result<Vec<_>, _>>()?;
    note_values(ports, table, values.iter().map(Vec::as_slice)).await?;
    let moves = items.into_iter().map(|(key, item)| async move {
        match rows {
            Rows::Current => move_partition(ports, table, key, item).await,
            Rows::History => move_history(ports, table, key, item).await,
        }
    });
    futures::stream::iter(moves).buffer_unordered(MOVES_AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(count)
}

/// What a move of a partition does: never anything if it changed meanwhile.
fn plan_move(table: &TableRef, from: &Key, item: &Item) -> Result<Vec<Write>, DecodeError> {
    let values = values_of(item)?;
    let unchanged = Condition::equals("revision", item.text("revision")?);
    let mut writes = vec![
        Write::Put { key: item::key(table, &values), item: item.clone(), condition: Condition::Absent },
        Write::Delete { key: from.clone(), condition: unchanged },
    ];
    let entries = index_item::keys(table, &values).into_iter();
    let entry = index_item::encode(&values);
    writes.extend(entries.map(|key| Write::Put { key, item: entry.clone(), condition: Condition::Always }));
    Ok(writes)
}

async fn move_partition(ports: &Ports, table: &TableRef, from: Key, mut item: Item) -> Result<(), CatalogError> {
    for _ in 0..ROUNDS {
        match transact(ports, &plan_move(table, &from, &item)?).await {
            Ok(()) => return Ok(()),
            // Others are at it all the time. It counts as found, so there is another pass.
            Err(Cancelled::Store(error)) if error.kind == StoreErrorKind::Conflict => return Ok(()),
            Err(Cancelled::Store(error)) => return Err(error.into()),
            Err(Cancelled::Conditions) => {}
        }
        let Some(now) = ports.items.get(&from, Consistency::Strong).await? else { return Ok(()) };
        let to = item::key(table, &values_of(&now)?);
        if ports.items.get(&to, Consistency::Strong).await?.is_some() {
            return drop_double(ports, table, &from, &now).await;
        }
        item = now;
    }
    Err(CatalogError::Contended("A partition".to_owned()))
}

/// A request that knew only the earlier epoch created what another had created in the current one. Both were told so;
/// readers have seen the current one all along, so that one stays.
async fn drop_double(ports: &Ports, table: &TableRef, at: &Key, item: &Item) -> Result<(), CatalogError> {
    match ports.items.delete(at, Condition::equals("revision", item.text("revision")?)).await {
        Ok(()) => {
            tracing::warn!(table_id = %table.table_id, "a partition was created twice while keys changed; the later one stays");
            Ok(())
        }
        // Changed or gone meanwhile: the next pass looks again.
        Err(WriteError::ConditionFailed { .. }) => Ok(()),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

async fn move_history(ports: &Ports, table: &TableRef, from: Key, item: Item) -> Result<(), CatalogError> {
    let (values, valid_from_ms) = (values_of(&item)?, item.int("valid_from_ms")?);
    let to = history_item::key(table, current_epoch(table), &values, valid_from_ms, item.text("revision")?);
    let writes = [
        Write::Put { key: to, item, condition: Condition::Always },
        // One that has expired meanwhile is gone, and stays so.
        Write::Delete { key: from, condition: Condition::Present },
    ];
    match transact(ports, &writes).await {
        Ok(()) | Err(Cancelled::Conditions) => Ok(()),
        Err(Cancelled::Store(error)) => Err(error.into()),
    }
}
