//! Carrying out what was planned, again while the store is busy or silent. Whatever is repeated is safe to repeat:
//! transactions by their token, reads by nature.

use std::collections::{HashMap, HashSet};
use std::future::Future;

use sha2::{Digest, Sha256};

use super::change::{Next, plan_change};
use super::history_item::{self, Retention};
use super::irregular::{note_values, note_writes};
use super::item::{self, Current, current_epoch, key, key_in, older_epochs};
use crate::catalog::{CatalogError, PartitionId, Revision, TableRef};
use crate::limits::{ANSWER_MAX_BYTES, BATCH_WRITE_MAX_KEYS};
use crate::ports::Ports;
use crate::store::{
    CancelReason, Condition, Consistency, Fields, Item, Key, Query, SortRange, StoreError, StoreErrorKind, Table,
    TransactError, Write, WriteError, item_size_bytes,
};

/// How often one request is sent to a store that is throttled or does not answer.
const ATTEMPTS: u32 = 5;
/// How often one is sent while others are at work on the same items. With the pauses, about ten seconds.
const ATTEMPTS_IN_CONFLICT: u32 = 24;
/// How often a change is planned anew because others were faster.
const ROUNDS: u32 = 100;
const FIRST_PAUSE_MS: u64 = 25;
const LONGEST_PAUSE_MS: u64 = 800;
/// What is written says since when it holds. Sent in vain for so long, it is planned anew, with the time it is then: reads of
/// the past rely on it that a few seconds later nothing appears that was true before.
const STALE_AFTER_MS: i64 = 2_000;

/// Waits, longer with every attempt, and not as long as others who began at the same moment.
async fn pause(ports: &Ports, attempt: u32) {
    let longest_ms = (FIRST_PAUSE_MS << attempt.min(16)).min(LONGEST_PAUSE_MS);
    let random =
        Sha256::digest(ports.ids.uuid().as_bytes()).iter().take(4).fold(0, |all, byte| all * 256 + u64::from(*byte));
    ports.clock.sleep_ms(longest_ms / 2 + random % (longest_ms / 2 + 1)).await;
}

/// Counts what went wrong with one request.
#[derive(Debug, Default)]
struct Patience {
    conflicts: u32,
    others: u32,
    /// The first answer that was lost: it leaves open whether the request was carried out.
    open: Option<StoreError>,
}

/// How old a plan is.
struct Age {
    planned_ms: i64,
}

impl Age {
    fn new(ports: &Ports) -> Self {
        Self { planned_ms: ports.clock.now_ms() }
    }

    /// Whether to plan anew. Not while an answer is open: the plan may have been carried out.
    fn is_stale(&self, ports: &Ports, patience: &Patience) -> bool {
        patience.open.is_none() && ports.clock.now_ms().saturating_sub(self.planned_ms) >= STALE_AFTER_MS
    }
}

impl Patience {
    /// Waits for the next attempt, or says what to tell if there should be none. A caller that is told of a conflict may
    /// rely on it that nothing was written.
    async fn after(&mut self, ports: &Ports, error: StoreError) -> Result<(), StoreError> {
        if error.kind == StoreErrorKind::Unavailable {
            self.open.get_or_insert_with(|| error.clone());
        }
        let (count, most) = match error.kind {
            StoreErrorKind::Conflict => (&mut self.conflicts, ATTEMPTS_IN_CONFLICT),
            _ => (&mut self.others, ATTEMPTS),
        };
        *count += 1;
        if !error.is_retryable() || *count >= most {
            return Err(self.open.take().unwrap_or(error));
        }
        let attempt = *count - 1;
        pause(ports, attempt).await;
        Ok(())
    }
}

/// Reads, again while the store is busy or silent.
pub(super) async fn read<T, F>(ports: &Ports, mut request: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut patience = Patience::default();
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(error) => patience.after(ports, error).await?,
        }
    }
}

/// A transaction that did not happen.
enum Refusal {
    /// Some condition did not hold; one reason per write.
    Conditions(Vec<CancelReason>),
    Store(StoreError),
    /// It certainly was not carried out, and is too old by now.
    Stale,
}

async fn transact(ports: &Ports, writes: &[Write], patience: &mut Patience) -> Result<(), Refusal> {
    let token = ports.ids.uuid().simple().to_string();
    let age = Age::new(ports);
    loop {
        let error = match ports.items.transact(writes, &token).await {
            Ok(()) => return Ok(()),
            Err(TransactError::Cancelled { reasons }) => {
                if writes.iter().zip(&reasons).any(|(write, reason)| is_ours(write, reason)) {
                    return Ok(());
                }
                if reasons.iter().any(|reason| matches!(reason, CancelReason::ConditionFailed { .. })) {
                    return Err(Refusal::Conditions(reasons));
                }
                // Never the items themselves: they are the callers' data.
                let busy = reasons.iter().filter(|reason| **reason != CancelReason::None).count();
                let message = format!("other transactions are at work on {busy} of {} items", writes.len());
                StoreError::new(StoreErrorKind::Conflict, "transact partitions", message)
            }
            Err(TransactError::Store(error)) => error,
        };
        patience.after(ports, error).await.map_err(Refusal::Store)?;
        if age.is_stale(ports, patience) {
            return Err(Refusal::Stale);
        }
    }
}

/// Whether it is our own earlier attempt that stands in the way. Revisions are never used twice.
fn is_ours(write: &Write, reason: &CancelReason) -> bool {
    match (write, reason) {
        (Write::Put { item, .. }, CancelReason::ConditionFailed { old: Some(old) }) => {
            let revision = |item: &Item| item.opt_text("revision").ok().flatten().map(str::to_owned);
            revision(item).is_some() && revision(old) == revision(item)
        }
        _ => false,
    }
}

/// What was read of a batch.
#[derive(Default)]
pub(super) struct ReadBatch {
    pub(super) found: HashMap<Key, Item>,
    /// Not looked at.
    pub(super) left: HashSet<Key>,
    /// Why some are left, unless what was found is more than an answer can hold.
    pub(super) trouble: Option<StoreError>,
}

/// Reads up to 100 items, again while some are left; gives up those that stay left. Reads no more once it has as much as
/// an answer can hold, so that a batch of the largest items needs no more memory than two pages of them.
pub(super) async fn get_patiently(ports: &Ports, keys: Vec<Key>) -> Result<ReadBatch, StoreError> {
    let mut read = ReadBatch { left: keys.into_iter().collect(), ..ReadBatch::default() };
    let mut size_bytes = 0;
    let mut patience = Patience::default();
    while !read.left.is_empty() && size_bytes < ANSWER_MAX_BYTES {
        let keys: Vec<Key> = read.left.iter().cloned().collect();
        let error = match ports.items.batch_get(&keys, Consistency::Strong).await {
            Ok(answer) if answer.unprocessed.len() < keys.len() => {
                size_bytes += answer.found.iter().map(|(key, item)| item_size_bytes(key, item)).sum::<usize>();
                read.found.extend(answer.found);
                read.left = answer.unprocessed.into_iter().collect();
                continue;
            }
            Ok(_) => StoreError::new(StoreErrorKind::Throttled, "batch_get partitions", "nothing was read"),
            Err(error) => error,
        };
        match patience.after(ports, error).await {
            Ok(()) => {}
            Err(error) if error.is_retryable() => {
                read.trouble = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Puts an item whatever is there.
pub(super) async fn upsert(ports: &Ports, key: &Key, item: &Item) -> Result<(), StoreError> {
    let mut patience = Patience::default();
    loop {
        match ports.items.put(key, item.clone(), Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => return Ok(()),
            Err(WriteError::Store(error)) => patience.after(ports, error).await?,
        }
    }
}

/// Deletes an item, if it is there.
pub(super) async fn remove(ports: &Ports, key: &Key) -> Result<(), StoreError> {
    let mut patience = Patience::default();
    loop {
        match ports.items.delete(key, Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => return Ok(()),
            Err(WriteError::Store(error)) => patience.after(ports, error).await?,
        }
    }
}

/// Deletes many items, if they are there.
pub(super) async fn remove_many(ports: &Ports, keys: Vec<Key>) -> Result<(), StoreError> {
    for batch in keys.chunks(BATCH_WRITE_MAX_KEYS) {
        let mut left = batch.to_vec();
        let mut patience = Patience::default();
        while !left.is_empty() {
            let error = match ports.items.batch_delete(&left).await {
                Ok(rest) if rest.len() < left.len() => {
                    left = rest;
                    continue;
                }
                Ok(_) => StoreError::new(StoreErrorKind::Throttled, "batch_delete partitions", "nothing was deleted"),
                Err(error) => error,
            };
            patience.after(ports, error).await?;
        }
    }
    Ok(())
}

/// The partition with these values, wherever it is; one strong get for a table whose keys never changed.
pub(super) async fn find(ports: &Ports, table: &TableRef, values: &[String]) -> Result<Option<Current>, CatalogError> {
    let at = key(table, values);
    let mut keys = vec![at.clone()];
    let older: Vec<Key> = older_epochs(table).map(|epoch| key_in(table, epoch, values)).collect();
    if !older.is_empty() {
        // The worker may move it meanwhile, always to a later epoch: oldest first and the current one last meets it.
        keys.extend(older.into_iter().rev());
        keys.push(at);
    }
    for key in keys {
        if let Some(item) = read(ports, || ports.items.get(&key, Consistency::Strong)).await? {
            return Ok(Some(Current::read(key, item)?));
        }
    }
    Ok(None)
}

/// A partition that should appear.
pub(super) struct New<'a> {
    pub(super) next: Next<'a>,
    pub(super) partition_id: &'a PartitionId,
}

/// Creates a partition: alone by one conditional put, with others by one transaction.
///
/// # Errors
/// [`CatalogError::PartitionExists`].
pub(super) async fn create(
    ports: &Ports,
    table: &TableRef,
    new: &New<'_>,
    retention: Retention,
) -> Result<(), CatalogError> {
    note_values(ports, table, [new.next.values]).await?;
    let mut next = new.next.clone();
    let mut patience = Patience::default();
    loop {
        let writes = plan_change(table, None, Some(&next), 0, retention);
        if let [Write::Put { key, item, condition }] = writes.as_slice() {
            return put(ports, table, new, retention, (key, item, condition)).await;
        }
        match transact(ports, &writes, &mut patience).await {
            Ok(()) => return Ok(()),
            Err(Refusal::Conditions(_)) => return Err(CatalogError::PartitionExists),
            Err(Refusal::Store(error)) => return Err(told(error)),
            Err(Refusal::Stale) => item::restamp(&mut next.item, ports.clock.now_ms()),
        }
    }
}

/// A put has no token. One whose answer was lost may have created the partition, and somebody may have deleted or moved
/// it since: then the history knows it, and it must not be created twice. Without history nobody knows.
async fn put(
    ports: &Ports,
    table: &TableRef,
    new: &New<'_>,
    retention: Retention,
    (key, item, condition): (&Key, &Item, &Condition),
) -> Result<(), CatalogError> {
    let (mut item, mut age) = (item.clone(), Age::new(ports));
    let mut patience = Patience::default();
    loop {
        if age.is_stale(ports, &patience) {
            item::restamp(&mut item, ports.clock.now_ms());
            age = Age::new(ports);
        }
        let error = match ports.items.put(key, item.clone(), condition.clone()).await {
            Ok(()) => return Ok(()),
            Err(WriteError::ConditionFailed { old: Some(old) })
                if old.opt_text("partition_id")? == Some(new.partition_id.as_str()) =>
            {
                return Ok(());
            }
            Err(WriteError::ConditionFailed { .. }) => return Err(CatalogError::PartitionExists),
            Err(WriteError::Store(error)) => error,
        };
        let is_open = error.kind == StoreErrorKind::Unavailable;
        if is_open && retention == Retention::Nothing {
            return Err(error.into());
        }
        patience.after(ports, error).await.map_err(told)?;
        if is_open && (is_there(ports, key, new).await? || has_been(ports, table, new).await?) {
            return Ok(());
        }
    }
}

/// Whether a new partition is here already. To be asked before [`has_been`]: it goes from here to there.
async fn is_there(ports: &Ports, key: &Key, new: &New<'_>) -> Result<bool, CatalogError> {
    let found = read(ports, || ports.items.get(key, Consistency::Strong)).await?;
    let found = found.map(|item| Current::read(key.clone(), item)).transpose()?;
    Ok(found.is_some_and(|found| found.partition_id == *new.partition_id))
}

/// Whether a new partition was here and is history.
async fn has_been(ports: &Ports, table: &TableRef, new: &New<'_>) -> Result<bool, CatalogError> {
    let (values, partition_id) = (new.next.values, new.partition_id);
    let epoch = current_epoch(table);
    let range = SortRange::Prefix(history_item::prefix(epoch, values).into());
    let mut query = Query::new(Table::Partitions, history_item::place_of(table, epoch, values), range);
    loop {
        let page = read(ports, || ports.items.query(&query)).await?;
        for (_, item) in &page.items {
            if item.opt_text("partition_id")? == Some(partition_id.as_str()) {
                return Ok(true);
            }
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(false);
        }
    }
}

/// Changes the partition with these values; answers what it was. Without an expected revision it plans anew until nobody
/// else is faster.
///
/// `known` is what was read of it a moment ago.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`]; [`CatalogError::PartitionChanged`] when it has not the expected revision;
/// [`CatalogError::PartitionExists`] when a move finds its target taken; [`CatalogError::OutOfTime`].
pub(super) async fn change(
    ports: &Ports,
    table: &TableRef,
    values: &[String],
    mut known: Option<Current>,
    expected: Option<&Revision>,
    plan: impl Fn(&Current) -> Vec<Write>,
) -> Result<Current, CatalogError> {
    let mut patience = Patience::default();
    for round in 0..ROUNDS {
        let old = match known.take() {
            Some(known) => known,
            None => find(ports, table, values).await?.ok_or(CatalogError::PartitionNotFound)?,
        };
        if expected.is_some_and(|expected| *expected != old.revision) {
            return Err(CatalogError::PartitionChanged);
        }
        let writes = plan(&old);
        note_writes(ports, table, &writes).await?;
        match transact(ports, &writes, &mut patience).await {
            Ok(()) => return Ok(old),
            Err(Refusal::Conditions(reasons)) => {
                known = judge(table, &old.key, &writes, reasons)?;
                patience = Patience::default();
            }
            Err(Refusal::Store(error)) => return Err(told(error)),
            Err(Refusal::Stale) => continue,
        }
        // Somebody else got on, so the first rounds need no pause.
        if let Some(attempt) = round.checked_sub(3) {
            pause(ports, attempt).await;
        }
    }
    Err(CatalogError::OutOfTime)
}

/// Why a change was refused, by what was there at that very moment: the partition as it was then, nothing if it has to
/// be looked for.
fn judge(
    table: &TableRef,
    source: &Key,
    writes: &[Write],
    reasons: Vec<CancelReason>,
) -> Result<Option<Current>, CatalogError> {
    let of_source = writes.iter().zip(reasons).find(|(write, _)| write.key() == source).map(|(_, reason)| reason);
    match of_source {
        Some(CancelReason::ConditionFailed { old: Some(item) }) => Ok(Some(Current::read(source.clone(), item)?)),
        Some(CancelReason::ConditionFailed { old: None }) if table.older_epochs.is_empty() => {
            Err(CatalogError::PartitionNotFound)
        }
        Some(CancelReason::ConditionFailed { old: None } | CancelReason::Conflict | CancelReason::Other(_)) => Ok(None),
        // It was as expected, so it is the target that is taken.
        Some(CancelReason::None) | None => Err(CatalogError::PartitionExists),
    }
}

/// A conflict that did not end in all attempts wrote nothing: it is a matter of time, not of revisions.
fn told(error: StoreError) -> CatalogError {
    if error.kind == StoreErrorKind::Conflict { CatalogError::OutOfTime } else { error.into() }
}
