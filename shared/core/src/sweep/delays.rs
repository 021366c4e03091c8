//! How long the table's commits take: files wait between their upload and the snapshot that adds them. A table whose
//! commits are slow gets a longer retention than was asked for.

use std::collections::HashMap;

use super::refs::exact_hash;
use crate::store::ObjectKey;

/// Files whose commits are remembered: of the newest snapshots.
const FILES_MAX: usize = 100_000;
/// Commits older than this say nothing about today's.
pub const RECENT_MS: i64 = 30 * 86_400_000;
/// The retention is at least so many hundredths of the delay of all but one in a thousand files.
const PERCENT: i64 = 150;
/// A file that was old when it was added (an import, a restored version) must not stop sweeping for good.
pub const RAISED_MAX_MS: i64 = 30 * 86_400_000;

/// Delays of a table's commits.
#[derive(Debug, Default)]
pub struct Delays {
    committed_ms: HashMap<u64, i64>,
    observed_ms: Vec<i64>,
}

impl Delays {
    /// A commit added a file.
    pub fn expect(&mut self, at: &ObjectKey, committed_ms: i64, now_ms: i64) {
        self.expect_hash(|| exact_hash(at), committed_ms, now_ms);
    }

    /// The same for a file of which its hash is known.
    pub fn expect_hash(&mut self, file: impl FnOnce() -> u64, committed_ms: i64, now_ms: i64) {
        // A date in the future is a clock's fault, not a delay.
        let is_recent = committed_ms > now_ms.saturating_sub(RECENT_MS) && committed_ms <= now_ms;
        if is_recent && self.committed_ms.len() < FILES_MAX {
            self.committed_ms.insert(file(), committed_ms);
        }
    }

    /// Adds what was found elsewhere.
    pub fn absorb(&mut self, other: Delays) {
        for (file, committed_ms) in other.committed_ms {
            if self.committed_ms.len() < FILES_MAX {
                self.committed_ms.insert(file, committed_ms);
            }
        }
        self.observed_ms.extend(other.observed_ms);
    }

    /// A file of a listing.
    pub fn note(&mut self, at: &ObjectKey, last_modified_ms: i64) {
        if self.committed_ms.is_empty() {
            return;
        }
        if let Some(committed_ms) = self.committed_ms.remove(&exact_hash(at)) {
            self.observed_ms.push(committed_ms.saturating_sub(last_modified_ms).max(0));
        }
    }

    /// Files that are expected, the dates of their commits, and the delays so far, to be stored.
    pub fn columns(&self) -> [Vec<u64>; 3] {
        let (files, dates) = self.committed_ms.iter().map(|(file, date)| (*file, date.cast_unsigned())).unzip();
        [files, dates, self.observed_ms.iter().map(|delay| delay.cast_unsigned()).collect()]
    }

    pub fn from_columns(files: &[u64], dates: &[u64], observed: &[u64]) -> Self {
        let committed_ms = files.iter().copied().zip(dates.iter().map(|date| date.cast_signed())).collect();
        Self { committed_ms, observed_ms: observed.iter().map(|delay| delay.cast_signed()).collect() }
    }

    /// The delay that all but one in a thousand files stay below; `None` without any file.
    pub fn usual_ms(&mut self) -> Option<i64> {
        self.observed_ms.sort_unstable();
        let rank = self.observed_ms.len().saturating_mul(999).div_ceil(1000);
        self.observed_ms.get(rank.checked_sub(1)?).copied()
    }

    /// Least retention that suits these commits.
    pub fn retention_ms(usual_ms: i64) -> i64 {
        usual_ms.saturating_mul(PERCENT).div_euclid(100).min(RAISED_MAX_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_in_a_thousand_does_not_count() {
        let at = |number: i64| ObjectKey::new("b", number.to_string());
        let now_ms = RECENT_MS * 2;
        let mut delays = Delays::default();
        assert_eq!(delays.usual_ms(), None);
        for number in 0..2000 {
            delays.expect(&at(number), now_ms - 10_000, now_ms);
            delays.note(&at(number), now_ms - 10_000 - number);
        }
        assert_eq!(delays.usual_ms(), Some(1997));
        delays.expect(&at(-1), now_ms + 1, now_ms);
        delays.expect(&at(-2), 5, now_ms);
        delays.note(&at(-1), 0);
        delays.note(&at(-2), 0);
        delays.note(&at(-3), 0);
        assert_eq!(delays.usual_ms(), Some(1997), "dated ahead, long ago, or not of a commit");
        assert_eq!((Delays::retention_ms(1997), Delays::retention_ms(i64::MAX)), (2995, RAISED_MAX_MS));
    }
}
