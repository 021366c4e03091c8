//! Removing what hung below dropped databases and tables; the worker's way in to all its work.
//!
//! A request that started before the drop may still write below the old id, so one pass that finds nothing is enough
//! only when it starts after the longest time a function can run; until then the work is put back into the queue.

use futures::StreamExt;

use super::database_item;
use super::function_item;
use super::location_item;
use super::locations::{is_use_of, use_buckets};
use super::settle::settle_table;
use super::spill::{Owner, remove_bodies};
use super::table_definition_item;
use super::table_head_item;
use super::tables::drop_found;
use super::tombstone_item::{self, DROPPED, Dropped, Tombstone};
use super::work::CatalogWork;
use super::work_item::{self, OPEN_WORK};
use super::{CatalogError, DatabaseId, TableId};
use crate::limits::BATCH_WRITE_MAX_KEYS;
use crate::partition;
use crate::ports::{Deadline, Ports};
use crate::store::{
    Clock, Condition, Consistency, Fields, Item, Key, Query, QueueName, ReadItems, Sort, SortRange, Table, Value,
    WriteError,
};
use crate::sweep::items::{Lease, OptimizerItem, RunRecord};

/// Longest time a function may run (Lambda's limit): writers that began before a drop have ended after it.
pub const LONGEST_FUNCTION_MS: i64 = 15 * 60 * 1000;
/// Longest time that a function may run which creates partitions by a table's head: the validator, that follows logs (the
/// doors have half of it). `template.yaml` says so, and the laptop gives them the same.
pub const LONGEST_WRITER_MS: i64 = 60 * 1000;
/// For clocks that differ, and for the last request of a function that has ended.
pub const SETTLED_MS: i64 = 15 * 1000;
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
    /// Somebody else is at it, or has recorded more work: that has a message of its own.
    TakenOver,
}

/// Does one piece of work.
///
/// # Errors
/// [`CatalogError::Invalid`] for an id that is still live: nothing of it is touched.
pub async fn carry_out(ports: &Ports, work: &CatalogWork, deadline: Deadline) -> Result<Outcome, CatalogError> {
    match work {
        CatalogWork::PurgeTable(id) => purge_table(ports, id, deadline).await,
        CatalogWork::PurgeDatabase(id) => purge_database(ports, id, deadline).await,
        CatalogWork::SettleTable(id) => settle_table(ports, id, deadline).await,
    }
}

/// Work that items ask for; for the scheduled run, which finds what lost messages left: all tombstones, and open work
/// whose message or worker is overdue.
pub async fn list_work(items: &dyn ReadItems, clock: &dyn Clock) -> Result<Vec<CatalogWork>, CatalogError> {
    let mut work = Vec::new();
    for item in read_all(items, DROPPED).await? {
        work.push(match tombstone_item::decode(&item)?.dropped {
            Dropped::Table { table_id, .. } => CatalogWork::PurgeTable(table_id),
            Dropped::Database { database_id, .. } => CatalogWork::PurgeDatabase(database_id),
        });
    }
    for item in read_all(items, OPEN_WORK).await? {
        let open = work_item::decode(&item)?;
        if open.expected_ms < clock.now_ms() {
            work.push(CatalogWork::SettleTable(open.table_id));
        }
    }
    Ok(work)
}

async fn read_all(items: &dyn ReadItems, pk: &str) -> Result<Vec<Item>, CatalogError> {
    let mut query = Query::new(Table::Catalog, pk, SortRange::All);
    let mut all = Vec::new();
    loop {
        let page = items.query(&query).await?;
        all.extend(page.items.into_iter().map(|(_, item)| item));
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(all);
        }
    }
}

async fn read_tombstone(ports: &Ports, key: &Key) -> Result<Option<Tombstone>, CatalogError> {
    let item = ports.items.get(key, Consistency::Strong).await?;
    Ok(item.map(|item| tombstone_item::decode(&item)).transpose()?)
}

pub(super) fn is_short(deadline: Deadline, clock: &dyn Clock) -> bool {
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
    if !matches!(tombstone.dropped, Dropped::Table { .. }) {
        return Err(CatalogError::Broken(format!("the tombstone of table {id} is one of a database")));
    }
    let started_ms = ports.clock.now_ms();
    let work = CatalogWork::PurgeTable(id.clone());
    // Its optimizer first: the planner starts runs of tables that are gone as long as there is one. One that came since
    // stands for a run over the files that the table has left, which nobody else starts.
    let optimizer = ports.items.get(&OptimizerItem::key(id.as_str()), Consistency::Strong).await?;
    let created_ms = optimizer.as_ref().and_then(|item| time_of(item, "created_at_ms"));
    let is_later = created_ms >= Some(tombstone.dropped_ms);
    let optimizer = (!is_later).then(|| OptimizerItem::key(id.as_str()));
    for key in optimizer.into_iter().chain([work_item::key(id)]) {
        match ports.items.delete(&key, Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
            Err(WriteError::Store(error)) => return Err(error.into()),
        }
    }
    let mut removed = 0_usize;
    let kept = kept_of_sweeps(ports, id, tombstone.dropped_ms).await?;
    for (table, pk) in places_of(id, &tombstone.dropped) {
        let swept = remove_all(ports, table, &pk, &kept, deadline).await?;
        removed += swept.removed;
        if swept.stopped_early {
            return send_on(ports, &work, 0).await;
        }
    }
    let uses = remove_uses(ports, id, deadline).await?;
    if uses.stopped_early {
        return send_on(ports, &work, 0).await;
    }
    let bodies = remove_bodies(ports, Owner::Table(id), deadline).await?;
    if bodies.stopped_early {
        return send_on(ports, &work, 0).await;
    }
    finish(ports, &work, &tombstone, started_ms, removed + uses.removed + bodies.removed).await
}

/// What stays of a table's sweeps: as long as the table is listed as dropped, the runs that could be undone; whatever began
/// after the drop, which are runs over what the table has left, and their lock.
async fn kept_of_sweeps(ports: &Ports, id: &TableId, dropped_ms: i64) -> Result<Kept, CatalogError> {
    let runs = RunRecord::partition(id.as_str());
    let lock = Lease::partition(id.as_str());
    let is_listed = super::dropped::find(ports.items.as_ref(), id.as_str()).await?.is_some();
    Ok(Kept { runs, lock, runs_since_ms: if is_listed { i64::MIN } else { dropped_ms }, now_ms: ports.clock.now_ms() })
}

struct Kept {
    runs: String,
    lock: String,
    runs_since_ms: i64,
    now_ms: i64,
}

impl Kept {
    /// Everything goes.
    fn nothing() -> Self {
        Self { runs: String::new(), lock: String::new(), runs_since_ms: i64::MAX, now_ms: i64::MAX }
    }

    fn holds(&self, pk: &str, item: &Item) -> bool {
        let is_run = pk == self.runs && time_of(item, "created_ms") >= Some(self.runs_since_ms);
        is_run || (pk == self.lock && time_of(item, "expires_at_ms") > Some(self.now_ms))
    }
}

/// What is no time counts as long ago.
fn time_of(item: &Item, name: &str) -> Option<i64> {
    match item.get(name) {
        Some(Value::Int(at_ms)) => Some(*at_ms),
        _ => None,
    }
}

/// Removes what the index of locations says of places where the table did not lie. In which buckets to look stays noted
/// until the last pass: a request that is still under way may add some.
async fn remove_uses(ports: &Ports, id: &TableId, deadline: Deadline) -> Result<Swept, CatalogError> {
    let mut removed = 0;
    for bucket in use_buckets(ports.items.as_ref(), id).await? {
        let mut query = Query::new(Table::Catalog, location_item::uses_in(&bucket), SortRange::All);
        loop {
            if is_short(deadline, ports.clock.as_ref()) {
                return Ok(Swept { removed, stopped_early: true });
            }
            let page = ports.items.query(&query).await?;
            let mut own = Vec::new();
            for (key, item) in page.items {
                if is_use_of(id, &item)? {
                    own.push((key, item));
                }
            }
            removed += remove_page(ports, own).await?;
            query.start_after = page.next;
            if query.start_after.is_none() {
                break;
            }
        }
    }
    Ok(Swept { removed, stopped_early: false })
}

/// Everything that hangs on the id of a table, by partition key of the item store.
fn places_of(id: &TableId, dropped: &Dropped) -> Vec<(Table, String)> {
    let mut places: Vec<(Table, String)> =
        vec![(Table::Catalog, table_definition_item::items_of(id)), (Table::Catalog, partition::descriptors_of(id))];
    places.extend(crate::sweep::items::places_of(id.as_str()).map(|pk| (Table::Catalog, pk)));
    if let Dropped::Table { epoch, shards, next_index, .. } = dropped {
        places.extend(partition::statistics_places_of(id, *shards));
        places.extend(crate::commit::follow::places_of(id, *shards));
        for epoch in 1..=*epoch {
            places.extend(partition::places_of(id, epoch, *shards));
            places.extend(partition::history_places_of(id, epoch, *shards));
            for index in 1..*next_index {
                let entries = partition::index_places_of(id, epoch, index, *shards);
                places.extend(entries.map(|pk| (Table::Partitions, pk)));
            }
        }
    }
    places
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
    if let Dropped::Table { table_id, .. } = &tombstone.dropped {
        for buckets in use_buckets(ports.items.as_ref(), table_id).await?.chunks(BATCH_WRITE_MAX_KEYS) {
            let keys = buckets.iter().map(|bucket| location_item::bucket_key(table_id, bucket)).collect();
            delete_batch(ports, keys).await?;
        }
    }
    match ports.items.delete(&tombstone.key(), Condition::Always).await {
        Ok(()) => Ok(Outcome::Done),
        Err(WriteError::Store(error)) => Err(error.into()),
        Err(WriteError::ConditionFailed { .. }) => Ok(Outcome::Done),
    }
}

pub(super) async fn send_on(ports: &Ports, work: &CatalogWork, delay_ms: u64) -> Result<Outcome, CatalogError> {
    let longest_ms = u64::try_from(LONGEST_FUNCTION_MS).unwrap_or(0);
    ports.queue.send(QueueName::CatalogWork, work.to_message(), delay_ms.min(longest_ms)).await?;
    Ok(Outcome::Continued)
}

struct Swept {
    removed: usize,
    stopped_early: bool,
}

/// Deletes everything under one partition key of the item store.
async fn remove_all(
    ports: &Ports,
    table: Table,
    pk: &str,
    kept: &Kept,
    deadline: Deadline,
) -> Result<Swept, CatalogError> {
    let mut query = Query::new(table, pk, SortRange::All);
    let mut removed = 0;
    loop {
        if is_short(deadline, ports.clock.as_ref()) {
            return Ok(Swept { removed, stopped_early: true });
        }
        let page = ports.items.query(&query).await?;
        let doomed = page.items.into_iter().filter(|(_, item)| !kept.holds(pk, item)).collect();
        removed += remove_page(ports, doomed).await?;
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(Swept { removed, stopped_early: false });
        }
    }
}

/// Deletes these items, whatever they say by now; answers how many.
pub(super) async fn remove_page(ports: &Ports, items: Vec<(Key, Item)>) -> Result<usize, CatalogError> {
    let keys: Vec<Key> = items.into_iter().map(|(key, _)| key).collect();
    let batches: Vec<Vec<Key>> = keys.chunks(BATCH_WRITE_MAX_KEYS).map(<[Key]>::to_vec).collect();
    let deletes = batches.into_iter().map(|batch| delete_batch(ports, batch));
    let mut answers = futures::stream::iter(deletes).buffer_unordered(BATCHES_AT_ONCE);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(keys.len())
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
        let swept = remove_all(ports, Table::Catalog, &pk, &Kept::nothing(), deadline).await?;
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
