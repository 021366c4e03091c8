//! Laws of the key codec, over values of every kind and keys around the limit.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::beginning::{beginning_len, encode_beginning, leading_alike};
use super::*;

const TYPES: [KeyType; 6] =
    [KeyType::Text, KeyType::Integer, KeyType::Decimal, KeyType::Date, KeyType::Timestamp, KeyType::Other];

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// One value, of the length that makes the key (arity, value, terminator) this long; the last bytes are `end`.
fn value_for(key_bytes: usize, end: &str) -> String {
    let escapes = end.bytes().filter(|byte| *byte == 0).count();
    format!("{}{end}", "x".repeat(key_bytes - 3 - end.len() - escapes))
}

#[test]
fn keys_of_1023_1024_and_1025_bytes() {
    for end in ["y", "\0", "😀", "\u{10ffff}\0"] {
        for (length, is_cut) in [(1023, false), (1024, false), (1025, true), (1026, true)] {
            let value = value_for(length, end);
            let key = encode_key(&[KeyType::Text], std::slice::from_ref(&value));
            assert_eq!(key.len(), length.min(SORT_KEY_MAX_BYTES), "{length} {end:?}");
            assert_eq!(key.last() == Some(&CUT_MARK), is_cut, "{length} {end:?}");
            let neighbours = [value_for(length, "z"), format!("{value}z"), value_for(length - 1, end)];
            for other in neighbours.iter().filter(|other| **other != value) {
                assert_ne!(encode_key(&[KeyType::Text], std::slice::from_ref(other)), key, "{length} {end:?}");
            }
        }
    }
}

#[test]
fn cut_keys_are_told_apart_by_every_value() {
    let long = "é".repeat(1024);
    let mut keys = BTreeSet::new();
    for tail in ["", "a", "b", "\0", "😀"] {
        for types in [&[][..], &[KeyType::Text, KeyType::Integer]] {
            keys.insert((types.len(), encode_key(types, &[long.clone(), tail.to_owned()])));
        }
    }
    assert_eq!(keys.len(), 10);
    assert!(keys.iter().all(|(_, key)| key.len() == SORT_KEY_MAX_BYTES));
}

#[test]
fn a_hundred_keys_of_every_type() {
    let types: Vec<KeyType> = (0..100).map(|at| TYPES[at % TYPES.len()]).collect();
    let value = |key_type: KeyType, n: usize| match key_type {
        KeyType::Text | KeyType::Other => format!("v{n}"),
        KeyType::Integer => n.to_string(),
        KeyType::Decimal => format!("{n}.5"),
        KeyType::Date => format!("2024-01-{:02}", 1 + n % 28),
        KeyType::Timestamp => format!("2024-01-01 00:00:{:02}", n % 60),
    };
    let row = |changed: usize| -> Vec<String> {
        types.iter().enumerate().map(|(at, key_type)| value(*key_type, 1 + usize::from(at == changed))).collect()
    };
    let base = encode_key(&types, &row(100));
    let mut keys = BTreeSet::from([base.clone()]);
    for changed in 0..100 {
        let key = encode_key(&types, &row(changed));
        assert!(key > base, "position {changed}");
        assert!(keys.insert(key));
    }
    // Of the longest values, cut.
    let longest: Vec<String> = (0..100).map(|_| "😀".repeat(1024)).collect();
    assert_eq!(encode_key(&types, &longest).len(), SORT_KEY_MAX_BYTES);
    let mut other = longest.clone();
    other[99].push('x');
    assert_ne!(encode_key(&types, &longest), encode_key(&types, &other));
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ab\\x00\\x01\\x02\u{7f}\u{80}\u{7ff}\u{ffff}\u{10000}\u{10FFFF}]{0,4}",
        3 => "[+-]?0{0,2}[0-9]{1,4}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{1,2})?",
        2 => "(0000|19[0-9]{2}|9999)-(0[1-9]|1[0-2])-[0-3][0-9]( [0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?)?",
        1 => Just(HIVE_DEFAULT_PARTITION.to_owned()),
        1 => "[a-z😀\\x00]{250,1024}",
        1 => "-?[1-9][0-9]{600,1023}",
    ]
}

fn any_types() -> impl Strategy<Value = Vec<KeyType>> {
    prop::collection::vec(prop::sample::select(TYPES.to_vec()), 0..5)
}

fn any_row() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        8 => prop::collection::vec(any_value(), 0..5),
        1 => prop::collection::vec("[a-c]{0,1}", 95..105),
        1 => prop::collection::vec("[a-b]{0,1}", 250..260),
    ]
}

/// The order of two values by the type: parsed ones, then NULL, then those that do not parse.
fn compare(key_type: KeyType, left: &str, right: &str) -> Ordering {
    fn by<T: Ord>(read: impl Fn(&str) -> Option<T>, left: &str, right: &str) -> Ordering {
        let rank = |text: &str, read: &Option<T>| match read {
            _ if text == HIVE_DEFAULT_PARTITION => 1,
            Some(_) => 0,
            None => 2,
        };
        let (l, r) = (read(left), read(right));
        let ranks = rank(left, &l).cmp(&rank(right, &r));
        ranks.then_with(|| match (l, r) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => left.cmp(right),
        })
    }
    match key_type {
        KeyType::Text | KeyType::Other => left.cmp(right),
        KeyType::Integer => by(Number::parse_integer, left, right),
        KeyType::Decimal => by(Number::parse_decimal, left, right),
        KeyType::Date => by(Date::parse, left, right),
        KeyType::Timestamp => by(Timestamp::parse, left, right),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_are_injective_and_bounded(types in any_types(), left in any_row(), right in any_row()) {
        let (a, b) = (encode_key(&types, &left), encode_key(&types, &right));
        prop_assert_eq!(a == b, left == right);
        prop_assert!(!a.is_empty() && a.len() <= SORT_KEY_MAX_BYTES);
        prop_assert_eq!(&a, &encode_key(&types, &left));
    }

    #[test]
    fn rows_that_differ_in_one_value_have_two_keys(
        types in any_types(),
        row in prop::collection::vec(any_value(), 1..5),
        at in any::<prop::sample::Index>(),
        value in any_value(),
    ) {
        let mut other = row.clone();
        let at = at.index(row.len());
        other[at] = value;
        prop_assert_eq!(encode_key(&types, &row) == encode_key(&types, &other), row == other);
    }

    #[test]
    fn order_of_keys_is_order_of_values(
        types in any_types(),
        left in prop::collection::vec(any_value(), 3),
        right in prop::collection::vec(any_value(), 3),
    ) {
        let (a, b) = (encode_key(&types, &left), encode_key(&types, &right));
        prop_assume!(a.last() != Some(&CUT_MARK) && b.last() != Some(&CUT_MARK));
        let at = |position: usize| types.get(position).copied().unwrap_or(KeyType::Text);
        let order = (0..3).fold(Ordering::Equal, |order, position| {
            order.then_with(|| compare(at(position), &left[position], &right[position]))
        });
        if order != Ordering::Equal {
            prop_assert_eq!(a.cmp(&b), order);
        }
    }

    #[test]
    fn numbers_are_ordered_like_machine_numbers(left in any::<i64>(), right in any::<i64>()) {
        let [a, b] = [left, right].map(|number| encode_key(&[KeyType::Integer], &[number.to_string()]));
        prop_assert_eq!(a.cmp(&b), left.cmp(&right));
    }

    #[test]
    fn fewer_values_come_first(types in any_types(), short in any_row(), long in any_row()) {
        prop_assume!(short.len() < long.len() && long.len() < 255);
        prop_assert!(encode_key(&types, &short) < encode_key(&types, &long));
    }

    #[test]
    fn a_beginning_begins_the_key_and_is_found_in_it(types in any_types(), row in any_row(), positions in 0_usize..5) {
        let key = encode_key(&types, &row);
        let beginning = encode_beginning(&types, &row, positions);
        prop_assert!(key.starts_with(&beginning));
        let length = beginning_len(&types, &key, positions);
        prop_assert!(length <= beginning.len());
        if beginning.len() < SORT_KEY_MAX_BYTES - HASH_BYTES - 1 {
            prop_assert_eq!(length, beginning.len());
        }
    }

    #[test]
    fn epochs_agree_on_the_beginnings_that_are_alike(old in any_types(), new in any_types(), row in any_row()) {
        let (alike, is_same) = leading_alike(&old, &new);
        prop_assert_eq!(encode_beginning(&old, &row, alike), encode_beginning(&new, &row, alike));
        if is_same {
            prop_assert_eq!(encode_key(&old, &row), encode_key(&new, &row));
        }
    }
}

#[test]
fn numbers_of_one_value_and_another_spelling_are_neighbours() {
    let types = [KeyType::Decimal];
    let spellings = ["1", "1.0", "01", "+1", "1e0", "10e-1"];
    let keys: BTreeSet<Vec<u8>> = spellings.iter().map(|text| encode_key(&types, &texts(&[text]))).collect();
    assert_eq!(keys.len(), spellings.len());
    let (below, above) = (encode_key(&types, &texts(&["0.999"])), encode_key(&types, &texts(&["1.001"])));
    assert!(keys.iter().all(|key| below < *key && *key < above));
}
