//! Faster forms of tests that come up often; each gives the answer of its set of values, or none.

use super::domain::{Domain, Scalar, small_integer};
use super::packed::pack;
use super::set::{Cut, Span};
use crate::partition::KeyType;

/// A test of a stored text that need not be read in full.
#[derive(Clone, Debug)]
pub(super) enum Quick {
    None,
    /// Text that is this, or is not.
    Text {
        is: Box<[u8]>,
        is_negated: bool,
    },
    /// The same where it is short.
    Short {
        is: u128,
        is_negated: bool,
    },
    /// Text that is one of these, in order.
    Texts(Box<[Box<[u8]>]>),
    /// The same where all are short.
    Shorts(Box<[u128]>),
    /// Text between two places; short text from one to another, both included.
    TextBetween(Cut<Box<[u8]>>, Cut<Box<[u8]>>, Option<(u128, u128)>),
    /// Small integers from one to another, both included.
    Between(i64, i64),
    /// Small integers in such intervals, disjoint and in order.
    Intervals(Box<[(i64, i64)]>),
}

impl Quick {
    pub(super) fn of(key_type: KeyType, domain: &Domain) -> Self {
        let spans = domain.values.spans();
        match key_type {
            KeyType::Text => texts(spans),
            KeyType::Integer | KeyType::Decimal => {
                let intervals: Option<Vec<(i64, i64)>> = spans.iter().map(interval).collect();
                match intervals.as_deref() {
                    None => Self::None,
                    Some([(low, high)]) => Self::Between(*low, *high),
                    Some(many) => Self::Intervals(many.into()),
                }
            }
            _ => Self::None,
        }
    }

    #[inline]
    pub(super) fn test(&self, text: &str) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Text { is, is_negated } => Some((text.as_bytes() == &**is) != *is_negated),
            // Longer ones are others.
            Self::Short { is, is_negated } => Some((pack(text.as_bytes()) == Some(*is)) != *is_negated),
            Self::Shorts(shorts) => Some(pack(text.as_bytes()).is_some_and(|text| shorts.binary_search(&text).is_ok())),
            Self::Texts(texts) => Some(texts.binary_search_by(|other| (**other).cmp(text.as_bytes())).is_ok()),
            Self::TextBetween(low, high, short) => {
                let text = text.as_bytes();
                if let (Some((low, high)), Some(text)) = (short, pack(text)) {
                    return Some(*low <= text && text <= *high);
                }
                Some(low.is_passed(|other| text.cmp(other)) && !high.is_passed(|other| text.cmp(other)))
            }
            Self::Between(low, high) => small_integer(text).map(|number| *low <= number && number <= *high),
            Self::Intervals(intervals) => small_integer(text).map(|number| {
                let at = intervals.partition_point(|(_, high)| *high < number);
                intervals.get(at).is_some_and(|(low, _)| *low <= number)
            }),
        }
    }
}

fn texts(spans: &[Span<Scalar>]) -> Quick {
    let text = |scalar: &Scalar| if let Scalar::Text(text) = scalar { Some(text.clone()) } else { None };
    if let [Span { low: Cut::Start, high: Cut::Before(end) }, Span { low: Cut::After(start), high: Cut::End }] = spans
        && end == start
    {
        return text(end).map_or(Quick::None, |is| one(is, true));
    }
    if let [span] = spans
        && span.as_point().is_none()
    {
        return match (span.low.map(text), span.high.map(text)) {
            (Some(low), Some(high)) => {
                let short = between(&low, &high);
                Quick::TextBetween(low, high, short)
            }
            _ => Quick::None,
        };
    }
    let points: Option<Vec<Box<[u8]>>> = spans.iter().map(|span| span.as_point().and_then(text)).collect();
    match points {
        None => Quick::None,
        Some(mut points) => match (points.len(), points.pop()) {
            (1, Some(is)) => one(is, false),
            (_, last) => {
                points.extend(last);
                let shorts: Option<Box<[u128]>> = points.iter().map(|point| pack(point)).collect();
                shorts.map_or_else(|| Quick::Texts(points.into()), Quick::Shorts)
            }
        },
    }
}

fn one(is: Box<[u8]>, is_negated: bool) -> Quick {
    match pack(&is) {
        Some(is) => Quick::Short { is, is_negated },
        None => Quick::Text { is, is_negated },
    }
}

/// The short texts between two places, perhaps none; none at all if the places are no short texts.
fn between(low: &Cut<Box<[u8]>>, high: &Cut<Box<[u8]>>) -> Option<(u128, u128)> {
    const NOTHING: (u128, u128) = (1, 0);
    let low = match low {
        Cut::Start => 0,
        Cut::Before(text) => pack(text)?,
        Cut::After(text) => pack(text)?.checked_add(1)?,
        Cut::End => return Some(NOTHING),
    };
    let high = match high {
        Cut::End => u128::MAX,
        Cut::After(text) => pack(text)?,
        Cut::Before(text) => match pack(text)?.checked_sub(1) {
            Some(high) => high,
            None => return Some(NOTHING),
        },
        Cut::Start => return Some(NOTHING),
    };
    Some((low, high))
}

/// The small integers of an interval, perhaps none; none at all if its ends are too far out.
fn interval(span: &Span<Scalar>) -> Option<(i64, i64)> {
    let low = match &span.low {
        Cut::Start => i64::MIN,
        Cut::Before(value) if value.small().is_some() => value.small()?,
        Cut::Before(value) | Cut::After(value) => value.floor()?.checked_add(1)?,
        Cut::End => return None,
    };
    let high = match &span.high {
        Cut::End => i64::MAX,
        Cut::Before(value) if value.small().is_some() => value.small()?.checked_sub(1)?,
        Cut::Before(value) | Cut::After(value) => value.floor()?,
        Cut::Start => return None,
    };
    Some((low, high))
}
