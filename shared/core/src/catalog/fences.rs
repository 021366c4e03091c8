//! Sweeps and the places of tables: what appears in the location index is seen by a sweep before it deletes a batch, or
//! appears after the batch.
//!
//! A sweep raises a fence, then reads the index, then deletes. A table appears in a transaction that demands that there is
//! no fence around its place; a partition outside its table is noted in the index first, and written once there is no
//! fence around its place. Whoever would come too late waits for the end of the batch, which takes seconds.
//!
//! What a sweep deletes of a table is fenced beside, by the table's id: the fence that holds back writers' leases. An
//! Iceberg commit that arrives as an update of the table's pointer demands in its transaction that there is none.

use std::collections::BTreeMap;

use super::scope_fence_item::{self, EXPIRES_AT_MS, ONLY_RUN, ScopeFences, decode, encode};
use super::table_head_item::TableRef;
use super::{CatalogError, Revision};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Item, Write, WriteError};
use crate::sweep::items::LeaseFence;

pub use super::scope_fence_item::ScopeFence;

/// How long something waits for batches to end.
const WAIT_MAX_MS: i64 = 10_000;
const PAUSE_MS: u64 = 25;
/// Tries at an item that other sweeps of the bucket write as well.
const TRIES: u32 = 20;
/// Sweeps of one bucket that are at a batch at the same time: an item holds so many of the longest places.
const FENCES_MAX: usize = 200;

/// Raises the fence of a run. One that it has already in this bucket is replaced.
///
/// # Errors
/// [`CatalogError::Contended`] while too many sweeps are at work in the bucket.
pub async fn raise(ports: &Ports, fence: &ScopeFence) -> Result<(), CatalogError> {
    let bucket = fence.scope.bucket.as_str();
    let now_ms = ports.clock.now_ms();
    let mut fences = vec![fence.clone()];
    let mut condition = Condition::AbsentOrAtMost { field: EXPIRES_AT_MS, value: now_ms };
    for _ in 0..TRIES {
        let Some(old) = write(ports, bucket, fences, condition).await? else { return Ok(()) };
        (fences, condition) = match old {
            None => (Vec::new(), Condition::Absent),
            Some(old) => (others(&old, &fence.run_id, now_ms), unchanged(&old)),
        };
        fences.push(fence.clone());
        if fences.len() > FENCES_MAX {
            break;
        }
    }
    Err(contended(bucket))
}

/// Takes the fence of a run away, if it is there.
///
/// # Errors
/// [`CatalogError::Contended`]: it stays until it runs out.
pub async fn lower(ports: &Ports, bucket: &str, run_id: &str) -> Result<(), CatalogError> {
    let key = scope_fence_item::key(bucket);
    let mut condition = Condition::equals(ONLY_RUN, run_id);
    let mut left = Vec::new();
    for _ in 0..TRIES {
        let old = if left.is_empty() {
            match ports.items.delete(&key, condition).await {
                Ok(()) => return Ok(()),
                Err(WriteError::ConditionFailed { old }) => old.map(|old| decode(bucket, &old)).transpose()?,
                Err(WriteError::Store(error)) => return Err(error.into()),
            }
        } else {
            let Some(old) = write(ports, bucket, left, condition).await? else { return Ok(()) };
            old
        };
        let Some(old) = old.filter(|old| old.fences.iter().any(|fence| fence.run_id == run_id)) else { return Ok(()) };
        (left, condition) = (others(&old, run_id, ports.clock.now_ms()), unchanged(&old));
    }
    Err(contended(bucket))
}

fn contended(bucket: &str) -> CatalogError {
    CatalogError::Contended(format!("What sweeps are deleting in bucket {bucket}"))
}

/// The fences of others that count.
fn others(all: &ScopeFences, run_id: &str, now_ms: i64) -> Vec<ScopeFence> {
    let counts = |fence: &&ScopeFence| fence.run_id != run_id && fence.expires_at_ms > now_ms;
    all.fences.iter().filter(counts).cloned().collect()
}

fn unchanged(all: &ScopeFences) -> Condition {
    Condition::equals("revision", all.revision.as_str())
}

/// Nothing if it was written; else what is there instead.
async fn write(
    ports: &Ports,
    bucket: &str,
    fences: Vec<ScopeFence>,
    condition: Condition,
) -> Result<Option<Option<ScopeFences>>, CatalogError> {
    let all = ScopeFences { fences, revision: Revision::fresh(ports.ids.as_ref()) };
    let item: Item = encode(&all).map_err(|error| CatalogError::Broken(error.to_string()))?;
    match ports.items.put(&scope_fence_item::key(bucket), item, condition).await {
        Ok(()) => Ok(None),
        Err(WriteError::ConditionFailed { old }) => Ok(Some(old.map(|old| decode(bucket, &old)).transpose()?)),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// Lets a table appear at a place when no sweep is deleting there.
#[derive(Debug, Default)]
pub(super) struct Gate {
    has_asked: bool,
    has_asked_of_table: bool,
    /// Since when it waits.
    since_ms: Option<i64>,
}

impl Gate {
    /// The parts of a transaction that demand that no sweep deletes a batch around these places. Asked for anew when the
    /// transaction was refused, it waits for the end of the batch; the first time it costs no read.
    ///
    /// # Errors
    /// [`CatalogError::NotReady`] when a batch took too long.
    pub(super) async fn check(&mut self, ports: &Ports, places: &[Location]) -> Result<Vec<Write>, CatalogError> {
        let has_asked = std::mem::replace(&mut self.has_asked, true);
        let mut checks = Vec::new();
        for (bucket, places) in by_bucket(places) {
            let seen = if has_asked { self.wait(ports, &bucket, &places).await? } else { None };
            let condition = match seen {
                None => Condition::AbsentOrAtMost { field: EXPIRES_AT_MS, value: ports.clock.now_ms() },
                Some(seen) => unchanged(&seen),
            };
            checks.push(Write::Check { key: scope_fence_item::key(&bucket), condition });
        }
        Ok(checks)
    }

    /// The part of a transaction that demands that no sweep deletes a batch of what this table could name. The first time it
    /// costs no read; asked for anew when the transaction was refused, it waits for the end of the batch.
    ///
    /// # Errors
    /// [`CatalogError::Contended`] when a batch took too long, which clients of Iceberg take for a lost commit: they look at
    /// the table again and try anew.
    pub(super) async fn check_commit(&mut self, ports: &Ports, table: &TableRef) -> Result<Write, CatalogError> {
        let id = table.table_id.as_str();
        if std::mem::replace(&mut self.has_asked_of_table, true) {
            while LeaseFence::expires_at_ms(ports.items.as_ref(), id).await? > Some(ports.clock.now_ms()) {
                let now_ms = ports.clock.now_ms();
                if now_ms.saturating_sub(*self.since_ms.get_or_insert(now_ms)) >= WAIT_MAX_MS {
                    let text = format!("What a sweep deletes of table {} right now", table.name);
                    return Err(CatalogError::Contended(text));
                }
                ports.clock.sleep_ms(PAUSE_MS).await;
            }
        }
        Ok(LeaseFence::none(id, ports.clock.now_ms()))
    }

    /// Until nothing around these places of a bucket is deleted; answers what is deleted elsewhere in it. One strong get if
    /// nothing is.
    async fn wait(
        &mut self,
        ports: &Ports,
        bucket: &str,
        places: &[Location],
    ) -> Result<Option<ScopeFences>, CatalogError> {
        loop {
            let item = ports.items.get(&scope_fence_item::key(bucket), Consistency::Strong).await?;
            let Some(item) = item else { return Ok(None) };
            let all = decode(bucket, &item)?;
            let now_ms = ports.clock.now_ms();
            let Some(place) = first_concerned(&all, places, now_ms) else { return Ok(Some(all)) };
            if now_ms.saturating_sub(*self.since_ms.get_or_insert(now_ms)) >= WAIT_MAX_MS {
                let text = format!("A sweep is deleting files at {place} right now: try again in a few seconds.");
                return Err(CatalogError::NotReady(text));
            }
            ports.clock.sleep_ms(PAUSE_MS).await;
        }
    }
}

/// The first place around which a fence counts.
fn first_concerned(all: &ScopeFences, places: &[Location], now_ms: i64) -> Option<Location> {
    let live = all.fences.iter().filter(|fence| fence.expires_at_ms > now_ms);
    live.flat_map(|fence| places.iter().filter(|place| fence.concerns(place))).next().cloned()
}

/// Owned, since the compiler cannot see of borrowed ones that the whole is `Send`.
fn by_bucket(places: &[Location]) -> BTreeMap<String, Vec<Location>> {
    let mut found: BTreeMap<String, Vec<Location>> = BTreeMap::new();
    for place in places {
        found.entry(place.bucket.clone()).or_default().push(place.clone());
    }
    found
}

/// Waits until no sweep deletes a batch around places that are in the index already: one strong get for each bucket if none
/// does.
///
/// # Errors
/// [`CatalogError::NotReady`] when a batch took too long.
pub(crate) async fn wait_out(ports: &Ports, places: &[Location]) -> Result<(), CatalogError> {
    let mut gate = Gate::default();
    for (bucket, places) in by_bucket(places) {
        gate.wait(ports, &bucket, &places).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;

    fn fence(prefix: &str, run_id: &str, expires_at_ms: i64) -> ScopeFence {
        ScopeFence { scope: Location::new("b", prefix), run_id: run_id.to_owned(), expires_at_ms }
    }

    async fn raised(ports: &Ports) -> Vec<String> {
        let item = ports.items.get(&scope_fence_item::key("b"), Consistency::Strong).await.unwrap();
        item.map_or(Vec::new(), |item| decode("b", &item).unwrap().fences.into_iter().map(|one| one.run_id).collect())
    }

    async fn check(ports: &Ports, gate: &mut Gate, prefix: &str) -> Result<bool, CatalogError> {
        let checks = gate.check(ports, &[Location::new("b", prefix)]).await?;
        Ok(ports.items.transact(&checks, &ports.ids.uuid().to_string()).await.is_ok())
    }

    #[tokio::test]
    async fn sweeps_of_one_bucket_share_the_item() {
        let world = MemoryWorld::new(1_000);
        let ports = &world.ports;
        raise(ports, &fence("a", "r1", 2_000)).await.unwrap();
        raise(ports, &fence("a", "r1", 3_000)).await.unwrap();
        assert_eq!(raised(ports).await, ["r1"]);
        raise(ports, &fence("c", "r2", 5_000)).await.unwrap();
        assert_eq!(raised(ports).await, ["r1", "r2"]);
        lower(ports, "b", "r3").await.unwrap();
        lower(ports, "b", "r1").await.unwrap();
        assert_eq!(raised(ports).await, ["r2"]);
        lower(ports, "b", "r2").await.unwrap();
        lower(ports, "b", "r2").await.unwrap();
        assert!(ports.items.get(&scope_fence_item::key("b"), Consistency::Strong).await.unwrap().is_none());
        // What a dead worker left behind runs out.
        raise(ports, &fence("a", "dead", 2_000)).await.unwrap();
        world.clock.advance_ms(5_000);
        raise(ports, &fence("a", "next", 9_000)).await.unwrap();
        assert_eq!(raised(ports).await, ["next"]);
    }

    #[tokio::test]
    async fn a_table_appears_where_nothing_is_deleted() {
        let world = MemoryWorld::new(1_000);
        let ports = &world.ports;
        let before = ports.items.item_usage();
        assert!(check(ports, &mut Gate::default(), "a/x").await.unwrap());
        assert_eq!(ports.items.item_usage().since(&before).gets, 0, "no read");
        raise(ports, &fence("a", "r1", 100_000)).await.unwrap();
        // Elsewhere, after one look.
        let mut gate = Gate::default();
        assert!(!check(ports, &mut gate, "c").await.unwrap());
        assert!(check(ports, &mut gate, "c").await.unwrap());
        // Inside and around: not as long as the batch is on its way.
        for prefix in ["a", "a/x", ""] {
            let mut gate = Gate::default();
            assert!(!check(ports, &mut gate, prefix).await.unwrap());
            assert!(matches!(check(ports, &mut gate, prefix).await, Err(CatalogError::NotReady(_))), "{prefix}");
        }
        let error = wait_out(ports, &[Location::new("b", "c"), Location::new("b", "a/x")]).await.unwrap_err();
        assert!(matches!(error, CatalogError::NotReady(_)));
        lower(ports, "b", "r1").await.unwrap();
        assert!(check(ports, &mut Gate::default(), "a/x").await.unwrap());
        let before = ports.items.item_usage();
        wait_out(ports, &[Location::new("b", "c"), Location::new("b", "a/x")]).await.unwrap();
        assert_eq!(ports.items.item_usage().since(&before).gets, 1);
    }
}
