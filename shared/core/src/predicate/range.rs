//! Ranges of encoded keys.

use crate::limits::SORT_KEY_MAX_BYTES;
use crate::store::{Sort, SortRange};

/// Keys from `low` up to, but without, `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { low: Vec::new(), high: vec![u8::MAX; SORT_KEY_MAX_BYTES] }
    }

    /// Keys that begin with `prefix`.
    pub fn with_prefix(prefix: Vec<u8>) -> Self {
        let high = successor(prefix.clone());
        Self { low: prefix, high }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && key < self.high.as_slice()
    }

    /// The same for a query, whose ranges include both ends.
    pub fn to_sort_range(&self) -> SortRange {
        if successor(self.low.clone()) == self.high {
            return SortRange::Prefix(Sort::Bytes(self.low.clone()));
        }
        SortRange::Between(Sort::Bytes(self.low.clone()), Sort::Bytes(last_below(self.high.clone())))
    }
}

/// The first text of bytes behind all that begin with `prefix`. There is one: keys begin with their arity, which is no 0xff.
pub(super) fn successor(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return prefix;
        }
    }
    vec![u8::MAX; SORT_KEY_MAX_BYTES]
}

/// The last key before `bound`.
pub(crate) fn last_below(mut bound: Vec<u8>) -> Vec<u8> {
    match bound.pop() {
        None | Some(0) => bound,
        Some(last) => {
            bound.push(last - 1);
            bound.resize(SORT_KEY_MAX_BYTES.max(bound.len()), u8::MAX);
            bound
        }
    }
}

/// A range to visit, of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub range: KeyRange,
    pub kind: PieceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// Rows that may be asked for. Exact: every one is.
    Read { is_exact: bool },
    /// Rows whose value of this key is unreadable. Certain: each of them is an error.
    Probe { position: usize, is_certain: bool },
}

/// Joins neighbours until at most `max` are left, first those that have the longest beginning in common: there is least
/// between them. `pieces` are in order.
pub(super) fn join_neighbours(pieces: Vec<Piece>, max: usize) -> Vec<Piece> {
    let excess = pieces.len().saturating_sub(max.max(1));
    if excess == 0 {
        return pieces;
    }
    let in_common = |left: &Piece, right: &Piece| {
        left.range.low.iter().zip(&right.range.low).take_while(|(left, right)| left == right).count()
    };
    let mut gaps: Vec<(usize, usize)> = pieces
        .iter()
        .zip(pieces.iter().skip(1))
        .enumerate()
        .map(|(at, (left, right))| (usize::MAX - in_common(left, right), at + 1))
        .collect();
    gaps.sort_unstable();
    gaps.truncate(excess);
    let mut closed = vec![false; pieces.len()];
    for (_, right) in gaps {
        if let Some(closed) = closed.get_mut(right) {
            *closed = true;
        }
    }
    let mut joined: Vec<Piece> = Vec::with_capacity(max);
    for (piece, is_joined) in pieces.into_iter().zip(closed) {
        match joined.last_mut() {
            Some(last) if is_joined => {
                last.range.high = piece.range.high;
                last.kind = PieceKind::Read { is_exact: false };
            }
            _ => joined.push(piece),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn successors_and_predecessors() {
        assert_eq!(successor(vec![1, 2]), [1, 3]);
        assert_eq!(successor(vec![1, 0xff, 0xff]), [2]);
        assert_eq!(last_below(vec![1, 0]), [1]);
        let before = last_below(vec![1, 2]);
        assert_eq!((before.len(), &before[..3]), (SORT_KEY_MAX_BYTES, &[1, 1, 0xff][..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_query_has_the_keys_of_its_range(
            low in prop::collection::vec(0_u8..4, 1..4),
            high in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 0xff]), 1..4),
            key in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 0xff]), 1..5),
        ) {
            prop_assume!(low < high);
            let range = KeyRange { low, high };
            let sort = Sort::Bytes(key.clone());
            prop_assert_eq!(range.to_sort_range().contains(&sort), range.contains(&key));
        }

        #[test]
        fn joined_pieces_have_what_their_parts_have(
            bounds in prop::collection::btree_set(prop::collection::vec(0_u8..4, 1..4), 2..20),
            max in 0_usize..6,
        ) {
            let bounds: Vec<_> = bounds.into_iter().collect();
            let kind = PieceKind::Read { is_exact: true };
            let pieces: Vec<Piece> = bounds
                .chunks_exact(2)
                .map(|pair| Piece { range: KeyRange { low: pair[0].clone(), high: pair[1].clone() }, kind })
                .collect();
            let joined = join_neighbours(pieces.clone(), max);
            prop_assert!(joined.len() <= max.max(1));
            prop_assert!(joined.windows(2).all(|pair| pair[0].range.high <= pair[1].range.low));
            for piece in &pieces {
                let whole = |other: &Piece| other.range.low <= piece.range.low && piece.range.high <= other.range.high;
                prop_assert!(joined.iter().any(whole));
            }
        }
    }
}
