//! How fast orphans are deleted: S3 counts every key against the rate of its prefix, and everybody who works on the table
//! shares it.

/// Keys of one delete request at most: a throttled request comes back as a whole.
pub(super) const BATCH_MAX_KEYS: usize = 250;
/// Under pressure batches shrink to this.
const BATCH_MIN_KEYS: usize = 10;
/// Keys per second of one table, whose location is taken for one prefix: S3 allows 3,500, and the table's writers need
/// some of them.
const KEYS_PER_SECOND: i64 = 2_500;
const FIRST_WAIT_MS: u64 = 200;
const LONGEST_WAIT_MS: u64 = 8_000;

/// What the store's answers have taught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    batch_keys: usize,
    /// Throttled answers in a row.
    slow_downs: u32,
    /// No request before.
    next_ms: i64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { batch_keys: BATCH_MAX_KEYS, slow_downs: 0, next_ms: i64::MIN }
    }
}

impl Pace {
    pub(super) fn batch_keys(&self) -> usize {
        self.batch_keys
    }

    /// How long to wait before the next request.
    pub(super) fn wait_ms(&self, now_ms: i64) -> u64 {
        u64::try_from(self.next_ms.saturating_sub(now_ms)).unwrap_or(0)
    }

    /// A request with so many keys was answered. Batches grow slowly.
    pub(super) fn went_well(&mut self, keys: usize, now_ms: i64) {
        let spent_ms = i64::try_from(keys).unwrap_or(i64::MAX).saturating_mul(1000).div_euclid(KEYS_PER_SECOND);
        self.next_ms = now_ms.saturating_add(spent_ms);
        self.slow_downs = 0;
        self.batch_keys = self.batch_keys.saturating_add(self.batch_keys / 4 + 1).min(BATCH_MAX_KEYS);
    }

    /// The store asked for less. Half as much, and after a wait that doubles each time, of which half is left to chance
    /// so that several workers do not come back at once.
    pub(super) fn slow_down(&mut self, now_ms: i64, random: u64) {
        self.batch_keys = (self.batch_keys / 2).max(BATCH_MIN_KEYS);
        let longest_ms = (FIRST_WAIT_MS << self.slow_downs.min(10)).min(LONGEST_WAIT_MS);
        self.slow_downs = self.slow_downs.saturating_add(1);
        let wait_ms = longest_ms / 2 + random % (longest_ms / 2 + 1);
        self.next_ms = now_ms.saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_halves_and_ease_restores() {
        let mut pace = Pace::default();
        assert_eq!((pace.batch_keys(), pace.wait_ms(0)), (250, 0));
        pace.went_well(250, 1000);
        assert_eq!((pace.batch_keys(), pace.wait_ms(1000), pace.wait_ms(1100)), (250, 100, 0));
        let mut waits = Vec::new();
        for expected in [125, 62, 31, 15, 10, 10, 10] {
            pace.slow_down(0, u64::MAX);
            assert_eq!(pace.batch_keys(), expected);
            waits.push(pace.wait_ms(0));
        }
        assert!(
            waits
                .iter()
                .zip([200, 400, 800, 1600, 3200, 6400, 8000])
                .all(|(wait, most)| { (most / 2..=most).contains(wait) }),
            "{waits:?}"
        );
        let mut rounds = 0;
        while pace.batch_keys() < 250 {
            pace.went_well(pace.batch_keys(), 0);
            rounds += 1;
        }
        assert!((10..20).contains(&rounds), "{rounds}");
        pace.slow_down(0, 0);
        assert_eq!(pace.wait_ms(0), 100, "the waits begin anew");
    }
}
