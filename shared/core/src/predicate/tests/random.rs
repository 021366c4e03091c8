//! Laws of evaluation and planning, on random tables and predicates.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::partition::{Date, HIVE_DEFAULT_PARTITION, Irregular, Number, Timestamp};

const TYPES: [&str; 6] = ["string", "int", "decimal(10,3)", "date", "timestamp", "float"];

/// Values that any type may come across.
fn any_value() -> impl Strategy<Value = String> {
    let fixed = [
        "a",
        "ab",
        "abc",
        "b",
        "a%",
        "a_",
        "a\0",
        "a\0b",
        "\0",
        "é",
        "😀",
        "\u{ffff}",
        "o'x",
        "1",
        "01",
        "+1",
        "-1",
        "-0",
        "0",
        "2",
        "10",
        "1.0",
        "1.5",
        "1.50",
        "1e0",
        "15e-1",
        "99999999999999999999",
        "2024-01-01",
        "2024-01-02",
        "2024-02-30",
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00.0",
        "2024-01-01 00:00:00.5",
        "2024-01-01 00:00:00.50",
        "null",
        HIVE_DEFAULT_PARTITION,
    ];
    let long = |length: usize, end: &'static str| Just(format!("{}{end}", "x".repeat(length)));
    prop_oneof![
        12 => prop::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(vec![980_usize, 985, 988, 989, 990, 1010, 1019, 1024]).prop_flat_map(move |length| {
            prop_oneof![long(length, ""), long(length, "y"), long(length, "z")]
        }),
    ]
}

/// A predicate as the definition has it: keys by position, literals as texts.
#[derive(Clone, Debug)]
enum Sample {
    Compare(usize, &'static str, String),
    In(usize, Vec<String>, bool),
    Between(usize, String, String, bool),
    Like(usize, String, bool),
    IsNull(usize, bool),
    Not(Box<Sample>),
    All(Vec<Sample>),
    Any(Vec<Sample>),
}

/// Texts that a key of this type takes as a literal.
fn any_literal(key_type: KeyType, mode: Mode) -> BoxedStrategy<String> {
    any_value()
        .prop_filter("a literal of the type", move |text| !matches!(stored(key_type, text, mode), Stored::Unreadable))
        .boxed()
}

fn any_leaf(key: usize, key_type: KeyType, mode: Mode) -> BoxedStrategy<Sample> {
    let operator = prop::sample::select(vec!["=", "=", "=", "<>", "<", "<=", ">", ">="]);
    let literal = || any_literal(key_type, mode);
    prop_oneof![
        5 => (operator, literal()).prop_map(move |(operator, value)| Sample::Compare(key, operator, value)),
        2 => (prop::collection::vec(literal(), 1..4), any::<bool>())
            .prop_map(move |(list, negated)| Sample::In(key, list, negated)),
        2 => (literal(), literal(), any::<bool>())
            .prop_map(move |(low, high, negated)| Sample::Between(key, low, high, negated)),
        2 => ("[a%_x1\\x00]{0,3}%?", any::<bool>()).prop_map(move |(pattern, negated)| match key_type {
            KeyType::Text => Sample::Like(key, pattern, negated),
            _ => Sample::IsNull(key, negated),
        }),
        1 => any::<bool>().prop_map(move |negated| Sample::IsNull(key, negated)),
    ]
    .boxed()
}

fn any_sample(types: &[KeyType], mode: Mode) -> BoxedStrategy<Sample> {
    let keys = types.iter().enumerate().filter(|(_, key_type)| **key_type != KeyType::Other);
    let leaves = keys.map(|(key, key_type)| any_leaf(key, *key_type, mode));
    prop::strategy::Union::new(leaves)
        .prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                1 => inner.clone().prop_map(|inner| Sample::Not(Box::new(inner))),
                3 => prop::collection::vec(inner.clone(), 2..4).prop_map(Sample::All),
                2 => prop::collection::vec(inner, 2..4).prop_map(Sample::Any),
            ]
        })
        .boxed()
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Sample {
    fn write(&self) -> String {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        let join = |operands: &[Sample], connective: &str| {
            let operands: Vec<String> = operands.iter().map(|operand| format!("({})", operand.write())).collect();
            operands.join(connective)
        };
        match self {
            Self::Compare(key, operator, value) => format!("k{key} {operator} {}", quote(value)),
            Self::In(key, list, negated) => {
                let list: Vec<String> = list.iter().map(|value| quote(value)).collect();
                format!("k{key} {}IN ({})", not(negated), list.join(", "))
            }
            Self::Between(key, low, high, negated) => {
                format!("k{key} {}BETWEEN {} AND {}", not(negated), quote(low), quote(high))
            }
            Self::Like(key, pattern, negated) => format!("k{key} {}LIKE {} ESCAPE '!'", not(negated), quote(pattern)),
            Self::IsNull(key, negated) => format!("k{key} IS {}NULL", not(negated)),
            Self::Not(inner) => format!("NOT ({})", inner.write()),
            Self::All(operands) => join(operands, " AND "),
            Self::Any(operands) => join(operands, " OR "),
        }
    }

    /// True, false or NULL; an unreadable value takes the truth that it is given here.
    fn truth(&self, types: &[KeyType], row: &[String], mode: Mode, unreadable: Option<bool>) -> Option<bool> {
        let not = |truth: Option<bool>, negated: bool| truth.map(|truth| truth != negated);
        let on = |key: usize, test: &dyn Fn(&str) -> Option<bool>| match stored(types[key], &row[key], mode) {
            Stored::Unreadable => unreadable,
            _ => test(&row[key]),
        };
        match self {
            Self::Compare(key, operator, value) => on(*key, &|text| compared(types[*key], text, operator, value, mode)),
            Self::In(key, list, negated) => on(*key, &|text| {
                let each = list.iter().map(|value| compared(types[*key], text, "=", value, mode));
                not(kleene_any(each), *negated)
            }),
            Self::Between(key, low, high, negated) => on(*key, &|text| {
                let [low, high] = [(">=", low), ("<=", high)]
                    .map(|(operator, value)| compared(types[*key], text, operator, value, mode));
                not(kleene_all([low, high].into_iter()), *negated)
            }),
            Self::Like(key, pattern, negated) => on(*key, &|text| {
                let fits = like::Pattern::new(pattern, Some('!')).unwrap().matches(text);
                Some(fits != *negated)
            }),
            Self::IsNull(key, negated) => {
                on(*key, &|text| Some(matches!(stored(types[*key], text, mode), Stored::Null) != *negated))
            }
            // An unreadable value is given its truth from outside all NOTs.
            Self::Not(inner) => not(inner.truth(types, row, mode, unreadable.map(|truth| !truth)), true),
            Self::All(operands) => {
                kleene_all(operands.iter().map(|operand| operand.truth(types, row, mode, unreadable)))
            }
            Self::Any(operands) => {
                kleene_any(operands.iter().map(|operand| operand.truth(types, row, mode, unreadable)))
            }
        }
    }
}

fn kleene_all(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let truths: Vec<_> = truths.collect();
    if truths.contains(&Some(false)) {
        Some(false)
    } else {
        truths.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
    }
}

fn kleene_any(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    kleene_all(truths.map(|truth| truth.map(|truth| !truth))).map(|none| !none)
}

enum Stored {
    Value,
    Null,
    Unreadable,
}

fn order(key_type: KeyType, left: &str, right: &str) -> Option<Ordering> {
    Some(match key_type {
        KeyType::Text | KeyType::Other => left.cmp(right),
        KeyType::Integer => Number::parse_integer(left)?.cmp(&Number::parse_integer(right)?),
        KeyType::Decimal => Number::parse_decimal(left)?.cmp(&Number::parse_decimal(right)?),
        KeyType::Date => Date::parse(left)?.cmp(&Date::parse(right)?),
        KeyType::Timestamp => Timestamp::parse(left)?.cmp(&Timestamp::parse(right)?),
    })
}

fn stored(key_type: KeyType, text: &str, mode: Mode) -> Stored {
    match order(key_type, text, text) {
        Some(_) => Stored::Value,
        None if text == HIVE_DEFAULT_PARTITION && mode == Mode::Lenient => Stored::Null,
        None => Stored::Unreadable,
    }
}

/// The marker as a literal asks for NULL when compared for equality.
fn compared(key_type: KeyType, text: &str, operator: &str, value: &str, mode: Mode) -> Option<bool> {
    let (is_null, asks_null) =
        (matches!(stored(key_type, text, mode), Stored::Null), matches!(stored(key_type, value, mode), Stored::Null));
    match operator {
        "=" if asks_null => return Some(is_null),
        "<>" if asks_null => return Some(!is_null),
        _ if is_null || asks_null => return None,
        _ => {}
    }
    let order = order(key_type, text, value).unwrap();
    Some(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// What the row's answer is: none where it hangs on a value that cannot be read.
fn expected(sample: &Sample, types: &[KeyType], row: &[String], mode: Mode) -> Option<bool> {
    let truths = [false, true].map(|unreadable| sample.truth(types, row, mode, Some(unreadable)) == Some(true));
    (truths[0] == truths[1]).then_some(truths[0])
}

/// Types, rows, an order of the keys, and a predicate that fits.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) type_names: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) order: Vec<usize>,
    pub(crate) mode: Mode,
    sample: Sample,
}

impl World {
    pub(crate) fn expression(&self) -> String {
        self.sample.write()
    }
}

pub(crate) fn any_world() -> impl Strategy<Value = World> {
    let filtered = prop::sample::select(TYPES[..5].to_vec());
    let others = prop::collection::vec(prop::sample::select(TYPES.to_vec()), 3);
    let mode = prop::sample::select(vec![Mode::Lenient, Mode::Lenient, Mode::Strict]);
    (filtered, others, mode).prop_flat_map(|(first, mut type_names, mode)| {
        type_names.push(first);
        let types: Vec<KeyType> = type_names.iter().map(|name| KeyType::of(name)).collect();
        (
            Just(type_names),
            prop::collection::vec(prop::collection::vec(any_value(), 4), 1..30),
            Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
            any_sample(&types, mode),
        )
            .prop_map(move |(type_names, rows, order, sample)| World { type_names, rows, order, mode, sample })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Evaluation is the definition's; every row that is asked for is in a range, every row that is an error in a range or
    /// a probe; exact plans read nothing in vain; lists of keys are complete. In any order of the keys.
    #[test]
    fn plans_find_what_evaluation_selects(
        World { type_names, rows, order, mode, sample } in any_world(),
        max in prop::sample::select(vec![1_usize, 2, 5, 64]),
        is_told in any::<bool>(),
    ) {
        let names = ["k0", "k1", "k2", "k3"];
        let keys = columns(&names.into_iter().zip(type_names).collect::<Vec<_>>());
        let types = types(&keys);
        let text = sample.write();
        let limits = Limits { length: 100_000, depth: 300 };
        let compiled = compile_within(&text, &keys, mode, limits).unwrap();
        let mut layout = Layout::reordered(&types, &order);
        if is_told {
            let kinds = rows.iter().map(|row| Irregular::of(&types, row));
            layout = layout.with_at_most(kinds.fold(Irregular::NONE, Irregular::union));
        }
        let plan = plan(&compiled, &layout, max);
        check_shape(&plan, max);
        for row in &rows {
            let answer = compiled.evaluate(row).ok();
            prop_assert_eq!(answer, expected(&sample, &types, row, mode), "{}: {:?}", text, row);
            let key = key_of(&types, &order, row);
            check_row(&plan, &key, answer, &text);
            if let Some(list) = &plan.keys {
                let is_listed = list.values.contains(row);
                prop_assert!(!is_listed || answer == Some(true));
                prop_assert!(answer != Some(true) || is_listed || list.completeness == Completeness::Canonical);
            }
            // One key known, the others planned: the same rows within that part.
            let leading = row[order[0]].as_str();
            let within = plan_within(&compiled, &layout, &[leading], max);
            check_shape(&within, max);
            check_row(&within, &key, answer, &text);
            if let Some(part) = layout.range_of(4, &[leading]) {
                prop_assert!(part.contains(&key));
                prop_assert!(within.ranges.iter().all(|range| part.low <= range.low && range.high <= part.high));
            }
        }
    }
}

fn check_shape(plan: &Plan, max: usize) {
    let mut pieces: Vec<_> = plan.ranges.iter().chain(plan.probes.iter().map(|probe| &probe.range)).collect();
    pieces.sort_by(|left, right| left.low.cmp(&right.low));
    assert!(pieces.len() <= max && pieces.iter().all(|piece| piece.low < piece.high));
    assert!(pieces.windows(2).all(|pair| pair[0].high <= pair[1].low));
    assert!(plan.ranges.is_sorted_by(|left, right| left.high <= right.low));
}

fn check_row(plan: &Plan, key: &[u8], answer: Option<bool>, text: &str) {
    let is_read = plan.ranges.iter().any(|range| range.contains(key));
    let probe = plan.probes.iter().find(|probe| probe.range.contains(key));
    match answer {
        Some(true) => assert!(is_read, "{text}"),
        Some(false) => {
            assert!(!is_read || !plan.is_exact, "{text}");
            assert!(probe.is_none_or(|probe| !probe.is_certain), "{text}");
        }
        None => assert!((is_read && !plan.is_exact) || probe.is_some(), "{text}"),
    }
}
