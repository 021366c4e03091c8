//! Filters of the paths that a table has ever added: tell appends apart that surely add new files.
//!
//! Removed paths stay in, so a positive may be wrong and only costs a look into the log. A negative is right.
//!
//! A small table has one filter, in its head's item. A large one has a second below it that is not written with every
//! commit: `base` lies on S3 and holds what was live when the log was read last; the item holds what came since.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::store::ObjectKey;

/// Bits kept for each path; with seven probes about one wrong positive in a hundred.
const BITS_PER_PATH: usize = 10;
const PROBES: u64 = 7;
/// Smallest and largest number of paths that a filter inside the item is made for: 640 bytes to 32 KiB.
const PATHS_MIN: usize = 512;
const INLINE_MAX: usize = 26_000;
/// Paths that are added to a large table before its log is read anew (8 KiB in the item).
const RECENT_PATHS: usize = 6_500;
/// Paths beyond which no filter is kept: 1.3 MB on S3, and 16 bytes each while it is made.
pub const PATHS_MAX: usize = 1_000_000;

/// A path, as the probes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark(u64, u64);

impl Mark {
    fn of(path: &str) -> Mark {
        let digest = Sha256::digest(path.as_bytes());
        let word =
            |from: usize| digest.iter().skip(from).take(8).fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
        Mark(word(0), word(8) | 1)
    }
}

/// A Bloom filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom {
    bits: Vec<u8>,
    count: usize,
}

impl Bloom {
    fn with_room(paths: usize) -> Bloom {
        Bloom { bits: vec![0; (paths * BITS_PER_PATH).div_ceil(8)], count: 0 }
    }

    /// From a stored filter.
    pub fn from_parts(bits: Vec<u8>, count: usize) -> Bloom {
        Bloom { bits, count }
    }

    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    pub fn count(&self) -> usize {
        self.count
    }

    fn is_full(&self) -> bool {
        self.count * BITS_PER_PATH >= self.bits.len() * 8
    }

    fn insert(&mut self, mark: Mark) {
        for (byte, mask) in self.probes(mark) {
            if let Some(slot) = self.bits.get_mut(byte) {
                *slot |= mask;
            }
        }
        self.count += 1;
    }

    fn may_contain(&self, mark: Mark) -> bool {
        self.probes(mark).all(|(byte, mask)| self.bits.get(byte).is_none_or(|slot| slot & mask != 0))
    }

    fn probes(&self, mark: Mark) -> impl Iterator<Item = (usize, u8)> + use<> {
        let size = (self.bits.len() as u64).saturating_mul(8).max(1);
        (0..PROBES).map(move |probe| {
            let bit = mark.0.wrapping_add(probe.wrapping_mul(mark.1)) % size;
            (usize::try_from(bit / 8).unwrap_or(0), 1_u8 << (bit % 8))
        })
    }
}

/// The part of a large table's filter that lies on S3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// `None`: not loaded, so that every path counts as possible.
    pub bloom: Option<Arc<Bloom>>,
    pub count: usize,
    /// Where it lies, once it was stored.
    pub stored_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFilter {
    base: Option<Base>,
    recent: Bloom,
}

impl PathFilter {
    /// A filter with room for as many paths again; `None` where the table has too many.
    pub fn build<'a>(paths: impl ExactSizeIterator<Item = &'a str>) -> Option<PathFilter> {
        let mut collector = PathCollector::default();
        paths.for_each(|path| collector.add_text(path));
        collector.build()
    }

    /// From a stored filter.
    pub fn from_parts(base: Option<Base>, recent: Bloom) -> PathFilter {
        PathFilter { base, recent }
    }

    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    pub fn base_mut(&mut self) -> Option<&mut Base> {
        self.base.as_mut()
    }

    /// What was added since the base was made, or everything.
    pub fn recent(&self) -> &Bloom {
        &self.recent
    }

    /// Paths that went in; some may have gone in several times.
    pub fn count(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.count).saturating_add(self.recent.count)
    }

    /// Whether more paths would make wrong positives common; it is built anew from the log then.
    pub fn is_full(&self) -> bool {
        self.recent.is_full()
    }

    pub fn insert(&mut self, path: &str) {
        self.recent.insert(Mark::of(path));
    }

    /// False: the path was surely never added.
    pub fn may_contain(&self, path: &str) -> bool {
        let mark = Mark::of(path);
        let in_base = |base: &Base| base.bloom.as_ref().is_none_or(|bloom| bloom.may_contain(mark));
        self.recent.may_contain(mark) || self.base.as_ref().is_some_and(in_base)
    }
}

/// Takes the paths of a log that is read, and makes a filter of them.
#[derive(Clone, Debug, Default)]
pub struct PathCollector {
    marks: Vec<Mark>,
    is_too_large: bool,
}

impl PathCollector {
    pub fn add(&mut self, at: &ObjectKey) {
        self.add_text(&at.to_string());
    }

    fn add_text(&mut self, path: &str) {
        if self.is_too_large {
            return;
        }
        // Paths may be told several times.
        if self.marks.len() >= PATHS_MAX {
            self.marks.sort_unstable();
            self.marks.dedup();
        }
        if self.marks.len() >= PATHS_MAX {
            (self.marks, self.is_too_large) = (Vec::new(), true);
            return;
        }
        self.marks.push(Mark::of(path));
    }

    pub fn build(mut self) -> Option<PathFilter> {
        if self.is_too_large {
            return None;
        }
        self.marks.sort_unstable();
        self.marks.dedup();
        let paths = self.marks.len();
        if paths <= INLINE_MAX {
            let mut recent = Bloom::with_room((paths * 2).clamp(PATHS_MIN, INLINE_MAX));
            self.marks.into_iter().for_each(|mark| recent.insert(mark));
            return Some(PathFilter { base: None, recent });
        }
        let mut bloom = Bloom::with_room(paths);
        self.marks.into_iter().for_each(|mark| bloom.insert(mark));
        let base = Base { bloom: Some(Arc::new(bloom)), count: paths, stored_at: None };
        Some(PathFilter { base: Some(base), recent: Bloom::with_room(RECENT_PATHS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("p={}/part-{index}.parquet", index % 7)).collect()
    }

    #[test]
    fn a_path_that_went_in_is_never_missed() {
        for count in [0, 2_000, 30_000] {
            let paths = paths(count);
            let filter = PathFilter::build(paths.iter().map(String::as_str)).unwrap();
            assert!(paths.iter().all(|path| filter.may_contain(path)));
            let wrong = (0..2_000).filter(|index| filter.may_contain(&format!("other-{index}"))).count();
            assert!(wrong < 60, "{wrong} of 2,000");
            assert!(!filter.is_full());
            assert_eq!(filter.base().is_some(), count > INLINE_MAX);
            assert_eq!(filter.count(), count);
            assert!(filter.recent().bits().len() <= 32 * 1024 + 512);
        }
    }

    #[test]
    fn a_large_filter_takes_more_paths_and_says_yes_where_it_is_not_loaded() {
        let paths = paths(30_000);
        let mut filter = PathFilter::build(paths.iter().map(String::as_str)).unwrap();
        assert!(!filter.may_contain("new"));
        filter.insert("new");
        assert!(filter.may_contain("new"));
        filter.base_mut().unwrap().bloom = None;
        assert!(filter.may_contain("anything"));
        for index in 0..RECENT_PATHS {
            filter.insert(&index.to_string());
        }
        assert!(filter.is_full());
    }

    #[test]
    fn it_fills_up_and_gives_up_on_giants() {
        let mut filter = PathFilter::build(std::iter::empty::<&str>()).unwrap();
        for index in 0..PATHS_MIN {
            assert!(!filter.is_full());
            filter.insert(&index.to_string());
        }
        assert!(filter.is_full());
        assert!(Bloom::from_parts(Vec::new(), 0).may_contain(Mark(1, 2)), "an empty filter excludes nothing");
        let marks = (0..PATHS_MAX as u64).map(|mark| Mark(mark, 1)).collect();
        let mut collector = PathCollector { marks, is_too_large: false };
        let mut same = collector.clone();
        same.marks.push(Mark(5, 1));
        collector.add_text("one more");
        assert!(collector.build().is_none());
        same.marks.truncate(PATHS_MAX);
        same.marks[0] = Mark(1, 1);
        same.add_text("there is room for this one");
        assert_eq!(same.build().unwrap().count(), PATHS_MAX);
    }
}
