//! Removing what hung below dropped databases and tables.
//!
//! A request that started before the drop may still write below the old id, so one pass that finds nothing is enough
//! only when it starts after the longest time a function can run; until then the work is put back into the queue.

use futures::StreamExt;

use super::database_item;
use super::function_item;
use super::spill::{Owner, remove_bodies};
use super::table_definition_item;
use super::table_head_item;
use super::tables::drop_found;
use super::tombstone_item::{self, DROPPED, Dropped, Tombstone};
use super::work::CatalogWork;
use super::{CatalogError, DatabaseId, TableId};
use crate::limits::BATCH_WRITE_MAX_KEYS;
use crate::partition;
use crate::ports::{Deadline, Ports};
use crate::store::{
    Clock, Condition, Consistency, Fields, Key, Query, QueueName, ReadItems, Sort, SortRange, Table, WriteError,
};
use crate::sweep::items::OptimizerItem;

/// Longest time a function may run (Lambda's limit): writers that began before a drop have ended after it.
pub const LONGEST_FUNCTION_MS: i64 = 15 * 60 * 1000;
/// Time left below which a pass stops and goes on in a new message.
const STOP_BEFORE_END_MS: i64 = 5_000;
const BATCHES_AT_ONCE: usize = 8;

/// How a piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left; the tombstone is gone.
    Done,
    /// No tombstone: done earlier, or never dropped by us.
    NothingToDo,
    /// Goes on by a message that was sent.
    Continued,
}

/// Does one piece of work.
///
/// # Errors
/// [`CatalogError::Invalid`] for an id that is still live: nothing of it is touched.
pub async fn carry_out(ports: &Ports, work: &CatalogWork, deadline: Deadline) -> Result<Outcome, CatalogError> {
    match work {
        CatalogWork::PurgeTable(id) => purge_table(ports, id, deadline).await,
        CatalogWork::PurgeDatabase(id) => purge_database(ports, id, deadline).await,
    }
}

/// Work that tombstones ask for, oldest ids first; for the scheduled run, which finds what lost messages left.
pub async fn list_work(items: &dyn ReadItems) -> Result<Vec<CatalogWork>, CatalogError> {
    let mut query = Query::new(Table::Catalog, DROPPED, SortRange::All);
    let mut work = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            work.push(match tombstone_item::decode(item)?.dropped {
                Dropped::Table { table_id, .. } => CatalogWork::PurgeTable(table_id),
                Dropped::Database { database_id, .. } => CatalogWork::PurgeDatabase(database_id),
            });
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(work);
        }
    }
}

async fn read_tombstone(ports: &Ports, key: &Key) -> Result<Option<Tombstone>, CatalogError> {
    let item = ports.items.get(key, Consistency::Strong).await?;
    Ok(item.map(|item| tombstone_item::decode(&item)).transpose()?)
}

fn is_short(deadline: Deadline, clock: &dyn Clock) -> bool {
    deadline.left_ms(clock) < STOP_BEFORE_END_MS
}

async fn purge_table(ports: &Ports, id: &TableId, deadline: Deadline) -> Result<Outcome, CatalogError> {
    let alive = ports.items.get(&table_definition_item::key(id), Consistency::Strong).await?;
    if alive.is_some() {
        return Err(CatalogError::Invalid(format!("Table id {id} is live: drop the table before purging it.")));
    }
    let Some(tombstone) = read_tombstone(ports, &tombstone_item::table_key(id)).await? else {
        return Ok(Outcome::NothingToDo);
    };
    let Dropped::Table { epoch, shards, .. } = tombstone.dropped else {
        return Err(CatalogError::Broken(format!("the tombstone of table {id} is one of a database")));
    };
    let started_ms = ports.clock.now_ms();
    let mut places: Vec<(Table, String)> =
        vec![(Table::Catalog, table_definition_item::items_of(id)), (Table::Catalog, partition::descriptors_of(id))];
    places.extend((0..=epoch).flat_map(|epoch| partition::places_of(id, epoch, shards)));
    // Its optimizer first: the planner starts runs of tables that are gone as long as there is one.
    match ports.items.delete(&OptimizerItem::key(id.as_str()), Condition::Always).await {
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
        Err(WriteError::Store(error)) => return Err(error.into()),
    }
    places.extend(crate::sweep::items::places_of(id.as_str()).map(|pk| (Table::Catalog, pk)));
    let mut removed = 0_usize;
    for (table, pk) in places {
        let swept = remove_all(ports, table, &pk, deadline).await?;
        removed += swept.removed;
        if swept.stopped_early {
            return send_on(ports, &CatalogWork::PurgeTable(id.clone()), 0).await;
        }
    }
    // Last, since items name them.
    let bodies = remove_bodies(ports, Owner::Table(id), deadline).await?;
    if bodies.stopped_early {
        return send_on(ports, &CatalogWork::PurgeTable(id.clone()), 0).await;
    }
    removed += bodies.removed;
    finish(ports, &CatalogWork::PurgeTable(id.clone()), &tombstone, started_ms, removed).await
}

/// The last step of a pass: forget the tombstone if this pass found nothing late enough, else ask for another pass.
async fn finish(
    ports: &Ports,
    work: &CatalogWork,
    tombstone: &Tombstone,
    started_ms: i64,
    removed: usize,
) -> Result<Outcome, CatalogError> {
    let safe_ms = tombstone.dropped_ms.saturating_add(LONGEST_FUNCTION_MS);
    if removed > 0 || started_ms < safe_ms {
        let wait_ms = u64::try_from(safe_ms.saturating_sub(ports.clock.now_ms())).unwrap_or(0);
        return send_on(ports, work, wait_ms).await;
    }
    match ports.items.delete(&tombstone.key(), Condition::Always).await {
        Ok(()) => Ok(Outcome::Done),
        Err(WriteError::Store(error)) => Err(error.into()),
        Err(WriteError::ConditionFailed { .. }) => Ok(Outcome::Done),
    }
}

async fn send_on(ports: &Ports, work: &CatalogWork, delay_ms: u64) -> Result<Outcome, CatalogError> {
    let longest_ms = u64::try_from(LONGEST_FUNCTION_MS).unwrap_or(0);
    ports.queue.send(QueueName::CatalogWork, work.to_message(), delay_ms.min(longest_ms)).await?;
    Ok(Outcome::Continued)
}

struct Swept {
    removed: usize,
    stopped_early: bool,
}

/// Deletes everything under one partition key of the item store.
async fn remove_all(ports: &Ports, table: Table, pk: &str, deadline: Deadline) -> Result<Swept, CatalogError> {
    let mut query = Query::new(table, pk, SortRange::All);
    let mut removed = 0;
    loop {
        if is_short(deadline, ports.clock.as_ref()) {
            return Ok(Swept { removed, stopped_early: true });
        }
        let page = ports.items.query(&query).await?;
        let keys: Vec<Key> = page.items.into_iter().map(|(key, _)| key).collect();
        removed += keys.len();
        let batches: Vec<Vec<Key>> = keys.chunks(BATCH_WRITE_MAX_KEYS).map(<[Key]>::to_vec).collect();
        let deletes = batches.into_iter().map(|batch| delete_batch(ports, batch));
        let mut answers = futures::stream::iter(deletes).buffer_unordered(BATCHES_AT_ONCE);
        while let Some(answer) = answers.next().await {
            answer?;
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(Swept { removed, stopped_early: false });
        }
    }
}

async fn delete_batch(ports: &Ports, mut keys: Vec<Key>) -> Result<(), CatalogError> {
    let mut wait_ms = 25;
    while !keys.is_empty() {
        let left = ports.items.batch_delete(&keys).await?;
        if left.len() == keys.len() {
            if wait_ms > 5_000 {
                return Err(CatalogError::Contended("The partitions table".to_owned()));
            }
            ports.clock.sleep_ms(wait_ms).await;
            wait_ms *= 2;
        }
        keys = left;
    }
    Ok(())
}

async fn purge_database(ports: &Ports, id: &DatabaseId, deadline: Deadline) -> Result<Outcome, CatalogError> {
    let alive = ports.items.get(&database_item::definition_key(id), Consistency::Strong).await?;
    if alive.is_some() {
        return Err(CatalogError::Invalid(format!("Database id {id} is live: drop the database before purging it.")));
    }
    let Some(tombstone) = read_tombstone(ports, &tombstone_item::database_key(id)).await? else {
        return Ok(Outcome::NothingToDo);
    };
    let Dropped::Database { name, .. } = &tombstone.dropped else {
        return Err(CatalogError::Broken(format!("the tombstone of database {id} is one of a table")));
    };
    let started_ms = ports.clock.now_ms();
    let work = CatalogWork::PurgeDatabase(id.clone());
    let mut query = Query::new(Table::Catalog, table_head_item::heads_of(name), SortRange::All);
    let mut dropped = 0;
    loop {
        let page = ports.items.query(&query).await?;
        for (key, item) in page.items {
            // A database created again under the name has its own tables here.
            let Sort::Text(table_name) = key.sk else { continue };
            if item.text("database_id")? != id.as_str() {
                continue;
            }
            if is_short(deadline, ports.clock.as_ref()) {
                return send_on(ports, &work, 0).await;
            }
            dropped += 1;
            // One that changed meanwhile was replaced by a new database's table, which left its own tombstone.
            drop_found(ports, &table_head_item::decode(name, &table_name, &item)?).await?;
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            break;
        }
    }
    let mut removed = dropped;
    for pk in [database_item::items_of(id), function_item::functions_of(id)] {
        let swept = remove_all(ports, Table::Catalog, &pk, deadline).await?;
        removed += swept.removed;
        if swept.stopped_early {
            return send_on(ports, &work, 0).await;
        }
    }
    let bodies = remove_bodies(ports, Owner::Database(id), deadline).await?;
    if bodies.stopped_early {
        return send_on(ports, &work, 0).await;
    }
    removed += bodies.removed;
    finish(ports, &work, &tombstone, started_ms, removed).await
}
