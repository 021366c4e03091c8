//! How many partitions a table has, about: for the limit on their number. An exact count would cost every create another
//! write. Instead, a batch writes the count down with a chance of its size in `step`, and then adds `step`; single
//! requests leave their share to the next batch of their process.

use sha2::{Digest, Sha256};

use crate::catalog::{CatalogError, TableRef, add_to_estimate, cache_of, lock};
use crate::ports::Ports;

/// Of how many steps the limit is made. The error of the estimate is about the root of the steps counted: 2 in 100 at
/// the limit.
const STEPS: u64 = 2_000;
const LARGEST_STEP: u64 = 10_000;
/// Tables whose share is kept at most; above it all are forgotten.
const MAX_TABLES: usize = 10_000;

/// How many partitions a table may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(pub(super) u64);

impl Limit {
    /// Whether the table has reached it.
    pub(super) fn is_reached(self, table: &TableRef) -> bool {
        u64::try_from(table.approximate_partitions).is_ok_and(|estimate| estimate >= self.0)
    }

    pub(super) fn refusal(self) -> CatalogError {
        CatalogError::LimitExceeded(format!("Number of PARTITION resources exceeds the limit {} per TABLE", self.0))
    }

    fn step(self) -> u64 {
        (self.0 / STEPS).clamp(1, LARGEST_STEP)
    }
}

/// Counts partitions created (or, negative, deleted) by a request that writes nothing down.
pub(super) fn count_later(ports: &Ports, table: &TableRef, change: i64) {
    let cache = cache_of(&ports.items);
    let mut uncounted = lock(&cache.uncounted);
    if uncounted.len() >= MAX_TABLES {
        uncounted.clear();
    }
    let count = uncounted.entry(table.table_id.clone()).or_insert(0);
    *count = count.saturating_add(change);
}

/// Counts partitions that a batch created (or, negative, deleted), and what single requests left. Never fails: what
/// cannot be written down is left to the next batch.
pub(super) async fn count_batch(ports: &Ports, limit: Limit, table: &TableRef, change: i64) {
    let left = lock(&cache_of(&ports.items).uncounted).remove(&table.table_id).unwrap_or(0);
    let rounded = round(change.saturating_add(left), limit.step(), random(ports));
    if rounded == 0 {
        return;
    }
    match add_to_estimate(ports, table, rounded).await {
        Ok(true) => {}
        Ok(false) => count_later(ports, table, rounded),
        // A table that is gone needs no estimate.
        Err(CatalogError::TableNotFound(_)) => {}
        Err(error) => {
            tracing::warn!(%error, "the estimate of a table's partitions could not be written; the next batch does it");
            count_later(ports, table, rounded);
        }
    }
}

fn random(ports: &Ports) -> u64 {
    Sha256::digest(ports.ids.uuid().as_bytes()).iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte))
}

/// A multiple of `step` that is `count` on average.
fn round(count: i64, step: u64, random: u64) -> i64 {
    let size = count.unsigned_abs();
    let up = random % step < size % step;
    let rounded = i64::try_from((size / step).saturating_add(u64::from(up)).saturating_mul(step)).unwrap_or(i64::MAX);
    if count < 0 { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_right_on_average() {
        for (count, step) in [(0, 10), (3, 10), (-3, 10), (10, 10), (25, 10), (100, 10_000), (7, 1), (-7, 1)] {
            let sum: i64 = (0..step).map(|random| round(count, step, random)).sum();
            assert_eq!(sum, count * i64::try_from(step).unwrap(), "{count} {step}");
        }
    }

    #[test]
    fn steps_grow_with_the_limit() {
        let steps = [1, 1_999, 20_000, 20_000_000, u64::MAX].map(|limit| Limit(limit).step());
        assert_eq!(steps, [1, 1, 10, 10_000, LARGEST_STEP]);
    }
}
