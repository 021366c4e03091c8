//! A Bloom filter of the paths that a table has ever added: tells appends apart that surely add new files.
//!
//! Removed paths stay in it, so a positive may be wrong and only costs a replay of the log. A negative is right.

use sha2::{Digest, Sha256};

/// Bits kept for each path; with seven probes about one wrong positive in a hundred.
const BITS_PER_PATH: usize = 10;
const PROBES: u64 = 7;
/// Smallest and largest number of paths that a filter is made for: 640 bytes to 32 KiB.
const PATHS_MIN: usize = 512;
const PATHS_MAX: usize = 26_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFilter {
    bits: Vec<u8>,
    count: usize,
}

impl PathFilter {
    /// A filter with room for as many paths again; `None` where the table has too many.
    pub fn build<'a>(paths: impl ExactSizeIterator<Item = &'a str>) -> Option<PathFilter> {
        if paths.len() > PATHS_MAX {
            return None;
        }
        let room = (paths.len() * 2).clamp(PATHS_MIN, PATHS_MAX);
        let mut filter = PathFilter { bits: vec![0; (room * BITS_PER_PATH).div_ceil(8)], count: 0 };
        for path in paths {
            filter.insert(path);
        }
        Some(filter)
    }

    /// From a stored filter.
    pub fn from_parts(bits: Vec<u8>, count: usize) -> PathFilter {
        PathFilter { bits, count }
    }

    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether more paths would make wrong positives common; it is built anew by the next replay then.
    pub fn is_full(&self) -> bool {
        self.count * BITS_PER_PATH >= self.bits.len() * 8
    }

    pub fn insert(&mut self, path: &str) {
        for (byte, mask) in self.probes(path) {
            if let Some(slot) = self.bits.get_mut(byte) {
                *slot |= mask;
            }
        }
        self.count += 1;
    }

    /// False: the path was surely never added.
    pub fn may_contain(&self, path: &str) -> bool {
        self.probes(path).into_iter().all(|(byte, mask)| self.bits.get(byte).is_none_or(|slot| slot & mask != 0))
    }

    fn probes(&self, path: &str) -> Vec<(usize, u8)> {
        let digest = Sha256::digest(path.as_bytes());
        let word =
            |from: usize| digest.iter().skip(from).take(8).fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
        let (first, second) = (word(0), word(8) | 1);
        let size = (self.bits.len() as u64).saturating_mul(8).max(1);
        (0..PROBES)
            .map(|probe| {
                let bit = first.wrapping_add(probe.wrapping_mul(second)) % size;
                (usize::try_from(bit / 8).unwrap_or(0), 1_u8 << (bit % 8))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_went_in_is_never_missed() {
        let paths: Vec<String> = (0..2_000).map(|index| format!("p={}/part-{index}.parquet", index % 7)).collect();
        let filter = PathFilter::build(paths.iter().map(String::as_str)).unwrap();
        assert!(paths.iter().all(|path| filter.may_contain(path)));
        let wrong = (0..2_000).filter(|index| filter.may_contain(&format!("other-{index}"))).count();
        assert!(wrong < 60, "{wrong} of 2,000");
        assert!(!filter.is_full());
        assert_eq!(PathFilter::from_parts(filter.bits().to_vec(), filter.count()), filter);
    }

    #[test]
    fn it_fills_up_and_gives_up_on_giants() {
        let mut filter = PathFilter::build(std::iter::empty::<&str>()).unwrap();
        for index in 0..PATHS_MIN {
            assert!(!filter.is_full());
            filter.insert(&index.to_string());
        }
        assert!(filter.is_full());
        let many = vec!["x"; PATHS_MAX + 1];
        assert_eq!(PathFilter::build(many.into_iter()), None);
        assert!(PathFilter::from_parts(Vec::new(), 0).may_contain("anything"), "an empty filter excludes nothing");
    }
}
