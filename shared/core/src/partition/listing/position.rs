//! Where a listing continues, and what its next page must know besides.

use super::source::{Stretch, View};
use crate::predicate::KeyRange;

/// A place between keys: everything before it has been dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before this key, which need not exist.
    From(Vec<u8>),
    /// Behind this key, which need not exist any more.
    After(Vec<u8>),
}

impl Position {
    pub const BEGINNING: Position = Position::From(Vec::new());

    pub fn key(&self) -> &[u8] {
        match self {
            Self::From(key) | Self::After(key) => key,
        }
    }

    fn order(&self) -> (&[u8], bool) {
        (self.key(), matches!(self, Self::After(_)))
    }

    /// Whether a key lies behind it.
    pub(super) fn admits(&self, key: &[u8]) -> bool {
        match self {
            Self::From(from) => from.as_slice() <= key,
            Self::After(after) => after.as_slice() < key,
        }
    }

    /// What is left of a range behind it; none if nothing is.
    pub(super) fn rest(&self, epoch: u32, shard: u16, range: &KeyRange) -> Option<Stretch> {
        if self.key() >= range.high.as_slice() {
            return None;
        }
        let (range, after) = match self {
            Self::From(key) if *key > range.low => (KeyRange { low: key.clone(), high: range.high.clone() }, None),
            Self::After(key) if *key >= range.low => (range.clone(), Some(key.clone())),
            _ => (range.clone(), None),
        };
        let is_all = range == KeyRange::all();
        Some(Stretch { epoch, shard, range: (!is_all).then_some(range), after })
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// Whether indexes are worth a try for the pages of one walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexes {
    #[default]
    Try,
    /// One was tried, and the order of the keys is the better way.
    GivenUp,
    /// The one with this number was found to be the best way.
    Use(u32),
}

/// What a page token says: where the walk continues, and what its first page has decided for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    pub position: Position,
    pub view: View,
    pub indexes: Indexes,
}

const AFTER: u8 = 1;
const AS_OF: u8 = 2;
const INDEXES_GIVEN_UP: u8 = 4;
const INDEX_CHOSEN: u8 = 8;

impl Continuation {
    /// A byte of flags, the moment of a state in the past (8 bytes, big endian), the number of an index (4 bytes), the key.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        if let Position::After(_) = self.position {
            flags |= AFTER;
        }
        let mut rest = Vec::new();
        if let View::AsOf { at_ms } = self.view {
            flags |= AS_OF;
            rest.extend_from_slice(&at_ms.to_be_bytes());
        }
        match self.indexes {
            Indexes::Try => {}
            Indexes::GivenUp => flags |= INDEXES_GIVEN_UP,
            Indexes::Use(number) => {
                flags |= INDEX_CHOSEN;
                rest.extend_from_slice(&number.to_be_bytes());
            }
        }
        let mut bytes = vec![flags];
        bytes.append(&mut rest);
        bytes.extend_from_slice(self.position.key());
        bytes
    }

    /// None for bytes that were not written by [`Continuation::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, mut rest) = bytes.split_first()?;
        if *flags > AFTER | AS_OF | INDEXES_GIVEN_UP | INDEX_CHOSEN {
            return None;
        }
        let mut view = View::Latest;
        if flags & AS_OF != 0 {
            let (at_ms, key) = rest.split_first_chunk()?;
            view = View::AsOf { at_ms: i64::from_be_bytes(*at_ms) };
            rest = key;
        }
        let mut indexes = Indexes::Try;
        match (flags & INDEXES_GIVEN_UP != 0, flags & INDEX_CHOSEN != 0) {
            (false, false) => {}
            (true, false) => indexes = Indexes::GivenUp,
            (false, true) => {
                let (number, key) = rest.split_first_chunk()?;
                indexes = Indexes::Use(u32::from_be_bytes(*number));
                rest = key;
            }
            (true, true) => return None,
        }
        let key = rest.to_vec();
        Some(Self {
            position: if flags & AFTER != 0 { Position::After(key) } else { Position::From(key) },
            view,
            indexes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn continuations_come_back() {
        for position in [Position::BEGINNING, Position::From(vec![1, 2]), Position::After(vec![0xff; 1024])] {
            for view in [View::Latest, View::AsOf { at_ms: -7 }, View::AsOf { at_ms: i64::MAX }] {
                for indexes in [Indexes::Try, Indexes::GivenUp, Indexes::Use(0), Indexes::Use(u32::MAX)] {
                    let continuation = Continuation { position: position.clone(), view, indexes };
                    assert_eq!(Continuation::decode(&continuation.encode()), Some(continuation));
                }
            }
        }
        for wrong in [&[][..], &[16, 1], &[2, 1, 2, 3], &[8, 1, 2, 3], &[12, 0, 0, 0, 1, 1]] {
            assert_eq!(Continuation::decode(wrong), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is read means something, and one thing only.
        #[test]
        fn bytes_are_one_continuation_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40), flags in 0_u8..32) {
            for bytes in [bytes.clone(), [vec![flags], bytes].concat()] {
                if let Some(read) = Continuation::decode(&bytes) {
                    prop_assert_eq!(read.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn what_is_left_of_a_range() {
        let range = KeyRange { low: vec![3], high: vec![7] };
        let rest = |position: Position| {
            let stretch = position.rest(1, 2, &range)?;
            Some((stretch.range.unwrap().low, stretch.after))
        };
        assert_eq!(rest(Position::BEGINNING), Some((vec![3], None)));
        assert_eq!(rest(Position::From(vec![3])), Some((vec![3], None)));
        assert_eq!(rest(Position::From(vec![5])), Some((vec![5], None)));
        assert_eq!(rest(Position::After(vec![2])), Some((vec![3], None)));
        assert_eq!(rest(Position::After(vec![3])), Some((vec![3], Some(vec![3]))));
        assert_eq!(rest(Position::From(vec![7])), None);
        assert_eq!(rest(Position::After(vec![7])), None);
        let all = Position::BEGINNING.rest(1, 2, &KeyRange::all()).unwrap();
        assert_eq!((all.range, all.after), (None, None));
        assert!(
            Position::From(vec![1]) < Position::After(vec![1]) && Position::After(vec![1]) < Position::From(vec![1, 0])
        );
    }
}
