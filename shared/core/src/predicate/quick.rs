//! Faster forms of tests that come up often; each gives the answer of its set of values, or none.

use super::domain::{Domain, Scalar, small_integer};
use super::packed::{day_digits, pack, second_digits};
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
    /// Text between two places, or what is not; short text from one to another, both included.
    TextBetween {
        low: Cut<Box<[u8]>>,
        high: Cut<Box<[u8]>>,
        short: Option<(u128, u128)>,
        is_negated: bool,
    },
    /// Digits from one number to another, both included.
    Between(Digits, i64, i64),
    /// Digits in such intervals, disjoint and in order.
    Intervals(Digits, Box<[(i64, i64)]>),
}

/// How the most usual stored values of a type are read as numbers that are in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Digits {
    /// Small integers.
    Number,
    /// Most days.
    Day,
    /// Whole seconds of most days.
    Second,
}

impl Digits {
    #[inline]
    fn of(self, text: &str) -> Option<i64> {
        match self {
            Self::Number => small_integer(text),
            Self::Day => day_digits(text.as_bytes()).map(i64::from),
            Self::Second => second_digits(text.as_bytes()),
        }
    }
}

impl Quick {
    pub(super) fn of(key_type: KeyType, domain: &Domain) -> Self {
        let spans = domain.values.spans();
        let digits = match key_type {
            KeyType::Text => return texts(spans),
            KeyType::Integer | KeyType::Decimal => Digits::Number,
            KeyType::Date => Digits::Day,
            KeyType::Timestamp => Digits::Second,
            KeyType::Other => return Self::None,
        };
        let intervals: Option<Vec<(i64, i64)>> = spans.iter().map(interval).collect();
        match intervals.as_deref() {
            None => Self::None,
            Some([(low, high)]) => Self::Between(digits, *low, *high),
            Some(many) => Self::Intervals(digits, many.into()),
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
            Self::TextBetween { low, high, short, is_negated } => {
                let text = text.as_bytes();
                if let (Some((low, high)), Some(text)) = (short, pack(text)) {
                    return Some((*low <= text && text <= *high) != *is_negated);
                }
                let is_between = low.is_passed(|other| text.cmp(other)) && !high.is_passed(|other| text.cmp(other));
                Some(is_between != *is_negated)
            }
            Self::Between(digits, low, high) => digits.of(text).map(|number| *low <= number && number <= *high),
            Self::Intervals(digits, intervals) => digits.of(text).map(|number| {
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
        return text_between(span.low.map(text), span.high.map(text), false);
    }
    if let [Span { low: Cut::Start, high }, Span { low, high: Cut::End }] = spans {
        return text_between(high.map(text), low.map(text), true);
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

fn text_between(low: Option<Cut<Box<[u8]>>>, high: Option<Cut<Box<[u8]>>>, is_negated: bool) -> Quick {
    match (low, high) {
        (Some(low), Some(high)) => {
            let short = between(&low, &high);
            Quick::TextBetween { low, high, short, is_negated }
        }
        _ => Quick::None,
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

/// The numbers of an interval, perhaps none; none at all if its ends are too far out.
fn interval(span: &Span<Scalar>) -> Option<(i64, i64)> {
    let low = match &span.low {
        Cut::Start => i64::MIN,
        Cut::Before(value) => match value.digits()? {
            (number, true) => number,
            (number, false) => number.checked_add(1)?,
        },
        Cut::After(value) => value.digits()?.0.checked_add(1)?,
        Cut::End => return None,
    };
    let high = match &span.high {
        Cut::End => i64::MAX,
        Cut::Before(value) => match value.digits()? {
            (number, true) => number.checked_sub(1)?,
            (number, false) => number,
        },
        Cut::After(value) => value.digits()?.0,
        Cut::Start => return None,
    };
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::compiled::{Leaf, Node};
    use super::super::{Compiled, KeyColumn, Mode, compile};
    use super::*;

    /// The leaves of what an expression on a key of this type comes to.
    fn leaves(key_type: &str, expression: &str) -> Vec<Leaf> {
        fn collect(node: Node, leaves: &mut Vec<Leaf>) {
            match node {
                Node::Constant(_) => {}
                Node::Leaf(leaf) => leaves.push(leaf),
                Node::All(nodes) | Node::Any(nodes) => nodes.into_iter().for_each(|node| collect(node, leaves)),
            }
        }
        let keys = [KeyColumn { name: "k".to_owned(), type_name: key_type.to_owned() }];
        let Compiled { root, .. } = compile(expression, &keys, Mode::Lenient).unwrap();
        let mut all = Vec::new();
        collect(root, &mut all);
        all
    }

    fn is_none(quick: &Quick) -> bool {
        matches!(quick, Quick::None)
    }

    #[test]
    fn comparisons_of_every_type_have_a_fast_form_and_common_values_need_no_other() {
        for (key_type, one, other, value) in [
            ("string", "'a'", "'c'", "b"),
            ("int", "1", "3", "2"),
            ("decimal(10,2)", "1.5", "3.25", "2"),
            ("date", "'2024-01-01'", "'2024-03-01'", "2024-02-01"),
            ("timestamp", "'2024-01-01 00:00:00'", "'2024-03-01 00:00:00.5'", "2024-02-01 10:20:30"),
        ] {
            for (expression, is_true) in [
                (format!("k = {one}"), false),
                (format!("k <> {one}"), true),
                (format!("k < {other}"), true),
                (format!("k <= {one}"), false),
                (format!("k > {one}"), true),
                (format!("k >= {other}"), false),
                (format!("k between {one} and {other}"), true),
                (format!("k not between {one} and {other}"), false),
                (format!("k in ({one}, {other})"), false),
            ] {
                let all = leaves(key_type, &expression);
                assert_eq!(all.len(), 1, "{expression}");
                assert_eq!(all[0].quick.test(value), Some(is_true), "{key_type}: {expression}");
            }
        }
    }

    fn day() -> impl Strategy<Value = String> {
        let year = prop::sample::select(vec![0, 1999, 2000, 2023, 2024, 9999]);
        let month = prop::sample::select(vec![0, 1, 2, 3, 4, 11, 12, 13]);
        let day = prop::sample::select(vec![0, 1, 2, 28, 29, 30, 31, 32]);
        (year, month, day).prop_map(|(year, month, day)| format!("{year:04}-{month:02}-{day:02}"))
    }

    fn second() -> impl Strategy<Value = String> {
        let time = prop::sample::select(vec![
            "00:00:00", "00:00:01", "00:00:59", "00:00:60", "00:59:59", "00:60:00", "01:00:00", "23:59:59", "24:00:00",
        ]);
        let fraction = prop::sample::select(vec!["", "", "", ".0", ".5", ".50", ".999999999", ".000000001", "."]);
        (day(), time, fraction).prop_map(|(day, time, fraction)| format!("{day} {time}{fraction}"))
    }

    fn number() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "0",
            "-0",
            "1",
            "01",
            "+1",
            "2",
            "-1",
            "1.0",
            "1.5",
            "-1.5",
            "-2",
            "99999999",
            "100000000",
            "999999999999999999",
            "1000000000000000000",
            "-999999999999999999",
            "99999999999999999999",
            "0.5",
        ])
        .prop_map(str::to_owned)
    }

    fn other() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "a", "2024", "2024-1-01", "2024-01-01T00:00:00", " 2024-01-01", "20240101"])
            .prop_map(str::to_owned)
    }

    fn typed() -> impl Strategy<Value = (&'static str, Vec<String>, Vec<String>)> {
        let all = |values: BoxedStrategy<String>| {
            let stored = prop_oneof![9 => values.clone(), 1 => other(), 1 => second(), 1 => day()];
            (prop::collection::vec(values, 1..6), prop::collection::vec(stored, 1..24))
        };
        let of = |name: &'static str, values: BoxedStrategy<String>| {
            all(values).prop_map(move |(literals, stored)| (name, literals, stored)).boxed()
        };
        prop_oneof![
            of("date", day().boxed()),
            of("timestamp", second().boxed()),
            of("int", number().boxed()),
            of("decimal(38,10)", number().boxed()),
            of("string", prop_oneof![number(), day()].boxed()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        /// Whatever a fast form says, the slow one says.
        #[test]
        fn fast_and_slow_forms_agree((key_type, literals, stored) in typed(), form in 0_usize..9) {
            let keys = [KeyColumn { name: "k".to_owned(), type_name: key_type.to_owned() }];
            let can_read = |text: &String| compile(&format!("k = '{text}'"), &keys, Mode::Lenient).is_ok();
            let literals: Vec<String> =
                literals.into_iter().filter(can_read).map(|text| format!("'{text}'")).collect();
            let (Some(first), Some(last)) = (literals.first(), literals.last()) else { return Ok(()) };
            let expression = match form {
                0 => format!("k = {first}"),
                1 => format!("k <> {first}"),
                2 => format!("k < {first}"),
                3 => format!("k <= {first}"),
                4 => format!("k > {first}"),
                5 => format!("k >= {first}"),
                6 => format!("k between {first} and {last}"),
                7 => format!("k not between {first} and {last}"),
                _ => format!("k in ({})", literals.join(", ")),
            };
            for leaf in leaves(key_type, &expression) {
                for text in stored.iter().map(String::as_str).chain(literals.iter().map(|text| text.trim_matches('\''))) {
                    let slow = Leaf { quick: Quick::None, ..leaf.clone() };
                    prop_assert_eq!(leaf.answer(Mode::Lenient, text), slow.answer(Mode::Lenient, text), "{}: {}", expression, text);
                }
                let is_odd = key_type.starts_with("decimal") || key_type == "int";
                prop_assert!(is_odd || !is_none(&leaf.quick), "{}", expression);
            }
        }
    }
}
