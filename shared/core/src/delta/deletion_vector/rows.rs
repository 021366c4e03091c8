//! Sets of row indexes, and their two spellings in bytes.

use std::ops::{BitAnd, BitOr, Sub};

use roaring::{RoaringBitmap, RoaringTreemap};

/// The format that the protocol describes: a map of 32-bit bitmaps by their high word.
pub const MAGIC_PORTABLE: u32 = 1_681_511_377;
/// The older one, read only: an array of bitmaps whose position is their high word.
pub const MAGIC_NATIVE: u32 = 1_681_511_376;

/// Containers (of 65,536 rows each) of one set, so that a small hostile text cannot become a large set: room for a
/// billion rows, and at most 128 MiB.
pub const CONTAINERS_MAX: usize = 16_384;

const COOKIE_PLAIN: u32 = 12_346;
const COOKIE_WITH_RUNS: u32 = 12_347;
/// With runs, fewer containers than this have no table of offsets.
const OFFSETS_FROM: usize = 4;
/// Values up to this count stand as an array, more as a bitmap of 8 KiB.
const ARRAY_MAX: u64 = 4_096;
const BITMAP_BYTES: usize = 8_192;

/// Rows of one file, by their position in it from 0 on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSet(RoaringTreemap);

impl RowSet {
    pub fn new() -> RowSet {
        RowSet::default()
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, row: u64) -> bool {
        self.0.contains(row)
    }

    /// True if the row was not in the set.
    pub fn insert(&mut self, row: u64) -> bool {
        self.0.insert(row)
    }

    /// The highest row.
    pub fn max(&self) -> Option<u64> {
        self.0.max()
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter()
    }

    #[must_use]
    pub fn union(&self, other: &RowSet) -> RowSet {
        RowSet((&self.0).bitor(&other.0))
    }

    #[must_use]
    pub fn intersection(&self, other: &RowSet) -> RowSet {
        RowSet((&self.0).bitand(&other.0))
    }

    /// The rows that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &RowSet) -> RowSet {
        RowSet((&self.0).sub(&other.0))
    }

    pub fn is_subset(&self, other: &RowSet) -> bool {
        self.0.is_subset(&other.0)
    }

    pub fn is_disjoint(&self, other: &RowSet) -> bool {
        self.0.is_disjoint(&other.0)
    }
}

impl FromIterator<u64> for RowSet {
    fn from_iter<I: IntoIterator<Item = u64>>(rows: I) -> Self {
        RowSet(rows.into_iter().collect())
    }
}

/// What is wrong with the bytes of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    #[error("the bytes end within {0}")]
    Short(&'static str),
    #[error("the magic number is {0}; {MAGIC_PORTABLE} and {MAGIC_NATIVE} are known")]
    Magic(u32),
    #[error("{0}")]
    Malformed(&'static str),
    #[error("more than {CONTAINERS_MAX} ranges of 65,536 rows")]
    TooMany,
}

/// Writes a set as the protocol describes it, magic number first.
pub fn encode(rows: &RowSet) -> Vec<u8> {
    let mut packed = rows.0.clone();
    packed.optimize();
    let mut bytes = MAGIC_PORTABLE.to_le_bytes().to_vec();
    let bitmaps: Vec<(u32, &RoaringBitmap)> = packed.bitmaps().filter(|(_, bitmap)| !bitmap.is_empty()).collect();
    bytes.extend_from_slice(&(bitmaps.len() as u64).to_le_bytes());
    for (key, bitmap) in bitmaps {
        bytes.extend_from_slice(&key.to_le_bytes());
        // Writing to a vector cannot fail.
        let _infallible = bitmap.serialize_into(&mut bytes);
    }
    bytes
}

/// Whether the bytes say that they are in the format that the protocol describes.
pub fn is_portable(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC_PORTABLE.to_le_bytes())
}

/// Reads a set of either magic number. Everything is looked over before anything is built, so that what the bytes claim
/// costs no memory until it proved true.
pub fn decode(bytes: &[u8]) -> Result<RowSet, RowsError> {
    let mut from = Reader(bytes);
    let mut containers = 0;
    let mut spans: Vec<(u32, &[u8])> = Vec::new();
    match from.u32("the magic number")? {
        MAGIC_PORTABLE => {
            let count = from.u64("the number of bitmaps")?;
            for _ in 0..count {
                let key = from.u32("the key of a bitmap")?;
                if spans.last().is_some_and(|(last, _)| *last >= key) {
                    return Err(RowsError::Malformed("the keys of the bitmaps do not ascend"));
                }
                spans.push((key, from.bitmap(&mut containers)?));
            }
        }
        MAGIC_NATIVE => {
            let count = from.u32("the number of bitmaps")?;
            for key in 0..count {
                let length = from.u32("the length of a bitmap")?;
                let mut inner = Reader(from.take(usize::try_from(length).unwrap_or(usize::MAX), "a bitmap")?);
                let span = inner.bitmap(&mut containers)?;
                inner.end()?;
                spans.push((key, span));
            }
        }
        other => return Err(RowsError::Magic(other)),
    }
    from.end()?;
    let mut bitmaps = Vec::with_capacity(spans.len());
    for (key, span) in spans {
        if key >> 31 != 0 {
            return Err(RowsError::Malformed("a row index has more than 63 bits"));
        }
        let bitmap =
            RoaringBitmap::deserialize_from(span).map_err(|_| RowsError::Malformed("a bitmap is not well-formed"))?;
        if !bitmap.is_empty() {
            bitmaps.push((key, bitmap));
        }
    }
    Ok(RowSet(RoaringTreemap::from_bitmaps(bitmaps)))
}

/// Bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], RowsError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(RowsError::Short(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RowsError> {
        self.take(N, what)?.try_into().map_err(|_| RowsError::Short(what))
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, RowsError> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, RowsError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, RowsError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn end(&self) -> Result<(), RowsError> {
        if self.0.is_empty() { Ok(()) } else { Err(RowsError::Malformed("bytes follow the last bitmap")) }
    }

    /// Looks one 32-bit bitmap over and answers its bytes. `containers` counts those of the whole set.
    fn bitmap(&mut self, containers: &mut usize) -> Result<&'a [u8], RowsError> {
        let whole = self.0;
        let cookie = self.u32("the head of a bitmap")?;
        let (count, runs) = if cookie == COOKIE_PLAIN {
            (usize::try_from(self.u32("the head of a bitmap")?).unwrap_or(usize::MAX), None)
        } else if cookie & 0xffff == COOKIE_WITH_RUNS {
            let count = usize::try_from(cookie >> 16).unwrap_or(usize::MAX).saturating_add(1);
            (count, Some(self.take(count.div_ceil(8), "the head of a bitmap")?))
        } else {
            return Err(RowsError::Malformed("a bitmap begins with an unknown cookie"));
        };
        *containers = containers.saturating_add(count);
        if *containers > CONTAINERS_MAX {
            return Err(RowsError::TooMany);
        }
        let mut heads = Reader(self.take(count.saturating_mul(4), "the head of a bitmap")?);
        if runs.is_none() || count >= OFFSETS_FROM {
            self.take(count.saturating_mul(4), "the head of a bitmap")?;
        }
        let mut last = None;
        for index in 0..count {
            let key = heads.u16("the head of a bitmap")?;
            let cardinality = u64::from(heads.u16("the head of a bitmap")?) + 1;
            if last.replace(key).is_some_and(|last| last >= key) {
                return Err(RowsError::Malformed("the containers of a bitmap do not ascend"));
            }
            let is_run =
                runs.is_some_and(|flags| flags.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1));
            if self.container(is_run, cardinality)? != cardinality {
                return Err(RowsError::Malformed("a container holds another number of rows than its head says"));
            }
        }
        let used = whole.len() - self.0.len();
        Ok(whole.get(..used).unwrap_or_default())
    }

    /// Looks one container over and counts its rows.
    fn container(&mut self, is_run: bool, cardinality: u64) -> Result<u64, RowsError> {
        if is_run {
            return self.runs();
        }
        if cardinality <= ARRAY_MAX {
            let mut last = None;
            for _ in 0..cardinality {
                let value = self.u16("an array of rows")?;
                if last.replace(value).is_some_and(|last| last >= value) {
                    return Err(RowsError::Malformed("the rows of a container do not ascend"));
                }
            }
            return Ok(cardinality);
        }
        let bits = self.take(BITMAP_BYTES, "a bitmap of rows")?;
        Ok(bits.iter().map(|byte| u64::from(byte.count_ones())).sum())
    }

    fn runs(&mut self) -> Result<u64, RowsError> {
        let count = self.u16("a container of runs")?;
        let (mut rows, mut next) = (0, 0_u32);
        for index in 0..count {
            let (start, more) = (u32::from(self.u16("a run of rows")?), u32::from(self.u16("a run of rows")?));
            let end = start + more;
            if (index > 0 && start <= next) || end > u32::from(u16::MAX) {
                return Err(RowsError::Malformed("the runs of a container overlap, touch or leave it"));
            }
            next = end + 1;
            rows += u64::from(more) + 1;
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Clusters, lone rows and far-off rows, so that all kinds of containers and several bitmaps appear.
    fn rows() -> impl Strategy<Value = BTreeSet<u64>> {
        let run = (0_u64..400_000, 1_u64..9_000, 1_u64..4)
            .prop_map(|(start, count, step)| (0..count).map(|index| start + index * step).collect::<Vec<_>>());
        let lone = (0_u64..1 << 36).prop_map(|row| vec![row]);
        proptest::collection::vec(prop_oneof![run, lone], 0..6).prop_map(|parts| parts.into_iter().flatten().collect())
    }

    /// As old writers did it.
    fn native(rows: &BTreeSet<u64>) -> Vec<u8> {
        let high = rows.last().map_or(0, |row| row >> 32) + u64::from(!rows.is_empty());
        let mut bytes = MAGIC_NATIVE.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(high as u32).to_le_bytes());
        for key in 0..high {
            let bitmap: RoaringBitmap = rows.iter().filter(|row| **row >> 32 == key).map(|row| *row as u32).collect();
            bytes.extend_from_slice(&(bitmap.serialized_size() as u32).to_le_bytes());
            bitmap.serialize_into(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn lies_cost_nothing() {
        let mut many = MAGIC_PORTABLE.to_le_bytes().to_vec();
        many.extend_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(decode(&many), Err(RowsError::Short("the key of a bitmap")));
        let mut wide = MAGIC_PORTABLE.to_le_bytes().to_vec();
        wide.extend_from_slice(&1_u64.to_le_bytes());
        wide.extend_from_slice(&0_u32.to_le_bytes());
        wide.extend_from_slice(&COOKIE_PLAIN.to_le_bytes());
        wide.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&wide), Err(RowsError::TooMany));
        let high: RowSet = [1_u64 << 62].into_iter().collect();
        let mut bytes = encode(&high);
        bytes[15] = 0x80;
        assert_eq!(decode(&bytes), Err(RowsError::Malformed("a row index has more than 63 bits")));
        assert_eq!(decode(b"abcdefgh"), Err(RowsError::Magic(u32::from_le_bytes(*b"abcd"))));
    }

    #[test]
    fn sets_that_other_writers_would_not_write_are_refused() {
        let good = encode(&[1_u64, 5, 70_000].into_iter().collect());
        let run = encode(&(0_u64..5_000).collect());
        for (at, value) in [(24, 0), (30, 9), (good.len() - 1, 0xff), (16, 1)] {
            let mut bytes = good.clone();
            bytes[at] ^= value;
            let changed = decode(&bytes);
            assert!(value == 0 || changed != decode(&good), "{at}");
        }
        // One row fewer than the runs hold.
        let mut bytes = run.clone();
        bytes[23] = 0;
        assert!(matches!(decode(&bytes), Err(RowsError::Malformed(_))), "{bytes:?}");
        let mut longer = good;
        longer.push(0);
        assert_eq!(decode(&longer), Err(RowsError::Malformed("bytes follow the last bitmap")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn both_spellings_come_back(rows in rows()) {
            let set: RowSet = rows.iter().copied().collect();
            prop_assert_eq!(set.len(), rows.len() as u64);
            let read = decode(&encode(&set)).unwrap();
            prop_assert!(read.iter().eq(rows.iter().copied()));
            prop_assert_eq!(&read, &set);
            let near: BTreeSet<u64> = rows.iter().map(|row| row % (3 << 32)).collect();
            prop_assert!(decode(&native(&near)).unwrap().iter().eq(near.iter().copied()));
        }

        #[test]
        fn sets_are_sets(a in rows(), b in rows()) {
            let (left, right): (RowSet, RowSet) = (a.iter().copied().collect(), decode(&encode(&b.iter().copied().collect())).unwrap());
            prop_assert!(left.union(&right).iter().eq(a.union(&b).copied()));
            prop_assert!(left.intersection(&right).iter().eq(a.intersection(&b).copied()));
            prop_assert!(left.difference(&right).iter().eq(a.difference(&b).copied()));
            prop_assert!(right.difference(&left).iter().eq(b.difference(&a).copied()));
            prop_assert_eq!(left.is_disjoint(&right), a.is_disjoint(&b));
            prop_assert!(left.is_subset(&left.union(&right)));
            prop_assert_eq!(left.max(), a.last().copied());
        }

        #[test]
        fn broken_bytes_never_panic(rows in rows(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = encode(&rows.iter().copied().collect());
            let index = at.index(bytes.len().min(200));
            bytes[index] = value;
            let _ = decode(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), is_native in any::<bool>()) {
            let magic = if is_native { MAGIC_NATIVE } else { MAGIC_PORTABLE };
            let _ = decode(&[&magic.to_le_bytes()[..], &bytes].concat());
            let _ = decode(&bytes);
        }
    }
}
