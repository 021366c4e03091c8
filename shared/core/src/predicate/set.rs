//! Sets of values of one key: unions of intervals.

use std::cmp::Ordering;

/// A place between values, where an interval begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut<T> {
    /// Before every value.
    Start,
    Before(T),
    After(T),
    /// Behind every value.
    End,
}

impl<T: Ord> Ord for Cut<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Cut::Start, Cut::Start) | (Cut::End, Cut::End) => Ordering::Equal,
            (Cut::Start, _) | (_, Cut::End) => Ordering::Less,
            (_, Cut::Start) | (Cut::End, _) => Ordering::Greater,
            (Cut::Before(left), Cut::Before(right)) | (Cut::After(left), Cut::After(right)) => left.cmp(right),
            (Cut::Before(left), Cut::After(right)) => left.cmp(right).then(Ordering::Less),
            (Cut::After(left), Cut::Before(right)) => left.cmp(right).then(Ordering::Greater),
        }
    }
}

impl<T: Ord> PartialOrd for Cut<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Cut<T> {
    pub(super) fn map<U>(&self, value: impl FnOnce(&T) -> Option<U>) -> Option<Cut<U>> {
        Some(match self {
            Cut::Start => Cut::Start,
            Cut::Before(at) => Cut::Before(value(at)?),
            Cut::After(at) => Cut::After(value(at)?),
            Cut::End => Cut::End,
        })
    }

    /// Whether a value lies behind this place; `compare` says how it compares.
    #[inline]
    pub(super) fn is_passed(&self, compare: impl Fn(&T) -> Ordering) -> bool {
        match self {
            Cut::Start => true,
            Cut::Before(at) => compare(at) != Ordering::Less,
            Cut::After(at) => compare(at) == Ordering::Greater,
            Cut::End => false,
        }
    }
}

/// Everything between two places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span<T> {
    pub low: Cut<T>,
    pub high: Cut<T>,
}

impl<T: Eq> Span<T> {
    /// The one value in it, if it is one.
    pub(super) fn as_point(&self) -> Option<&T> {
        match (&self.low, &self.high) {
            (Cut::Before(low), Cut::After(high)) if low == high => Some(low),
            _ => None,
        }
    }
}

/// How a set and an interval lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    None,
    Partial,
    Whole,
}

/// Disjoint intervals in order, none empty, none adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set<T> {
    spans: Vec<Span<T>>,
}

impl<T: Ord + Clone> Set<T> {
    pub(super) fn none() -> Self {
        Self { spans: Vec::new() }
    }

    pub(super) fn all() -> Self {
        Self::between(Cut::Start, Cut::End)
    }

    pub(super) fn point(value: T) -> Self {
        Self::between(Cut::Before(value.clone()), Cut::After(value))
    }

    /// Empty if `high` is not behind `low`.
    pub(super) fn between(low: Cut<T>, high: Cut<T>) -> Self {
        if low < high { Self { spans: vec![Span { low, high }] } } else { Self::none() }
    }

    pub(super) fn spans(&self) -> &[Span<T>] {
        &self.spans
    }

    pub(super) fn is_all(&self) -> bool {
        matches!(self.spans.as_slice(), [Span { low: Cut::Start, high: Cut::End }])
    }

    pub(super) fn is_none(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn union(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut pieces: Vec<Span<T>> = sets.into_iter().flat_map(|set| set.spans).collect();
        pieces.sort_by(|left, right| left.low.cmp(&right.low));
        let mut spans: Vec<Span<T>> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match spans.last_mut() {
                Some(last) if piece.low <= last.high => {
                    if piece.high > last.high {
                        last.high = piece.high;
                    }
                }
                _ => spans.push(piece),
            }
        }
        Self { spans }
    }

    pub(super) fn complement(self) -> Self {
        let mut spans = Vec::with_capacity(self.spans.len() + 1);
        let mut low = Cut::Start;
        for span in self.spans {
            if low < span.low {
                spans.push(Span { low, high: span.low });
            }
            low = span.high;
        }
        if low < Cut::End {
            spans.push(Span { low, high: Cut::End });
        }
        Self { spans }
    }

    pub(super) fn intersection(sets: impl IntoIterator<Item = Self>) -> Self {
        Self::union(sets.into_iter().map(Self::complement)).complement()
    }

    /// Whether a value is in the set; `compare` says how it compares with one that the set was made of.
    pub(super) fn contains(&self, compare: impl Fn(&T) -> Ordering) -> bool {
        if let [only] = self.spans.as_slice() {
            return match only.as_point() {
                Some(point) => compare(point) == Ordering::Equal,
                None => only.low.is_passed(&compare) && !only.high.is_passed(&compare),
            };
        }
        let at = self.spans.partition_point(|span| span.high.is_passed(&compare));
        self.spans.get(at).is_some_and(|span| span.low.is_passed(&compare))
    }

    /// How much of `span` is in the set.
    pub(super) fn overlap(&self, span: &Span<T>) -> Overlap {
        let at = self.spans.partition_point(|own| own.high <= span.low);
        match self.spans.get(at) {
            Some(own) if own.low >= span.high => Overlap::None,
            Some(own) if own.low <= span.low && own.high >= span.high => Overlap::Whole,
            Some(_) => Overlap::Partial,
            None => Overlap::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = Set<u8>> {
        let cut = || {
            prop_oneof![
                1 => Just(Cut::Start),
                4 => (0_u8..12).prop_map(Cut::Before),
                4 => (0_u8..12).prop_map(Cut::After),
                1 => Just(Cut::End)
            ]
        };
        let piece = prop_oneof![
            (cut(), cut()).prop_map(|(low, high)| Set::between(low, high)),
            (0_u8..12).prop_map(Set::point)
        ];
        prop::collection::vec(piece, 0..5).prop_map(Set::union)
    }

    fn members(set: &Set<u8>) -> Vec<u8> {
        (0..13).filter(|value| set.contains(|other| value.cmp(other))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn operations_are_those_of_sets(left in set(), right in set()) {
            let (a, b) = (members(&left), members(&right));
            let both: Vec<u8> = (0..13).filter(|value| a.contains(value) && b.contains(value)).collect();
            let either: Vec<u8> = (0..13).filter(|value| a.contains(value) || b.contains(value)).collect();
            let neither: Vec<u8> = (0..13).filter(|value| !a.contains(value)).collect();
            prop_assert_eq!(members(&Set::intersection([left.clone(), right.clone()])), both);
            prop_assert_eq!(members(&Set::union([left.clone(), right.clone()])), either);
            prop_assert_eq!(members(&left.clone().complement()), neither);
            for span in right.spans() {
                let inside = Set { spans: vec![span.clone()] };
                let shared = Set::intersection([left.clone(), inside.clone()]);
                let expected = match () {
                    () if shared.is_none() => Overlap::None,
                    () if shared == inside => Overlap::Whole,
                    () => Overlap::Partial,
                };
                prop_assert_eq!(left.overlap(span), expected);
            }
            let ordered = left.spans().windows(2).all(|pair| pair[0].high < pair[1].low);
            prop_assert!(ordered, "{:?}", left);
        }
    }
}
