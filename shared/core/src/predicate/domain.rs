//! Values of keys: as literals, as stored texts, and how they compare.

use std::cmp::Ordering;

use super::Mode;
use super::packed::few_digits;
use super::set::Set;
use crate::partition::{Date, HIVE_DEFAULT_PARTITION, KeyType, Number, NumberText, Timestamp, encode_text, region};

/// Integers of up to so many characters are read as machine numbers.
const SMALL_MAX_CHARS: usize = 18;

/// A number, also as a machine number if it is a small integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numeric {
    number: Number,
    small: Option<i64>,
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A value that an expression names. Those of one key are all of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scalar {
    /// UTF-8, or the end of all texts with a prefix, which need not be.
    Text(Box<[u8]>),
    Number(Numeric),
    Date(Date),
    Timestamp(Timestamp),
}

impl Scalar {
    /// Reads a literal; none if the type cannot.
    pub(super) fn read(key_type: KeyType, text: &str) -> Option<Self> {
        let numeric = |number: Number| {
            let small = number.canonical().and_then(|canonical| small_integer(&canonical));
            Self::Number(Numeric { number, small })
        };
        match key_type {
            KeyType::Text | KeyType::Other => Some(Self::Text(text.as_bytes().into())),
            KeyType::Integer => Number::parse_integer(text).map(numeric),
            KeyType::Decimal => Number::parse_decimal(text).map(numeric),
            KeyType::Date => Date::parse(text).map(Self::Date),
            KeyType::Timestamp => Timestamp::parse(text).map(Self::Timestamp),
        }
    }

    /// Its bytes in the key of a partition, with the region of a typed position.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        if !matches!(self, Self::Text(_)) {
            into.push(region::PARSED);
        }
        match self {
            Self::Text(text) => encode_text(text, into),
            Self::Number(numeric) => numeric.number.encode(into),
            Self::Date(date) => date.encode(into),
            Self::Timestamp(timestamp) => timestamp.encode(into),
        }
    }

    /// The shortest way to write it; none where that is no text or too long.
    pub(super) fn canonical(&self) -> Option<String> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok().map(str::to_owned),
            Self::Number(numeric) => numeric.number.canonical(),
            Self::Date(date) => Some(date.to_string()),
            Self::Timestamp(timestamp) => Some(timestamp.to_string()),
        }
    }

    /// As a machine number, if it is a small integer.
    fn small(&self) -> Option<i64> {
        if let Self::Number(numeric) = self { numeric.small } else { None }
    }

    /// The number of its digits, as [`super::packed`] reads stored values in whole, and whether that is all of it: the
    /// value may lie a little above. Numbers are in order. None if that is no small integer.
    pub(super) fn digits(&self) -> Option<(i64, bool)> {
        match self {
            Self::Text(_) => None,
            Self::Number(_) => self.small().map_or_else(|| Some((self.floor()?, false)), |small| Some((small, true))),
            Self::Date(date) => Some((date.digits(), true)),
            Self::Timestamp(timestamp) => Some(timestamp.digits()),
        }
    }

    /// The largest integer that is not above it, if that is a small one.
    fn floor(&self) -> Option<i64> {
        let Self::Number(numeric) = self else { return None };
        if let Some(small) = numeric.small {
            return Some(small);
        }
        let text = numeric.number.canonical()?;
        let (whole, _) = text.split_once('.')?;
        let toward_zero = small_integer(whole)?;
        Some(if text.starts_with('-') { toward_zero - 1 } else { toward_zero })
    }
}

/// Values of one key that a predicate accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    pub values: Set<Scalar>,
    pub has_null: bool,
}

impl Domain {
    pub(super) fn none() -> Self {
        Self { values: Set::none(), has_null: false }
    }

    pub(super) fn union(domains: Vec<Self>) -> Self {
        let has_null = domains.iter().any(|domain| domain.has_null);
        Self { values: Set::union(domains.into_iter().map(|domain| domain.values)), has_null }
    }

    pub(super) fn intersection(domains: Vec<Self>) -> Self {
        let has_null = domains.iter().all(|domain| domain.has_null);
        Self { values: Set::intersection(domains.into_iter().map(|domain| domain.values)), has_null }
    }
}

/// A stored value as its key's type reads it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading<'a> {
    Text(&'a [u8]),
    /// With its text, for comparisons with what is no small integer.
    Small(i64, &'a str),
    Number(NumberText<'a>),
    Date(Date),
    Timestamp(Timestamp),
    Null,
    Unreadable,
}

impl<'a> Reading<'a> {
    pub(super) fn of(key_type: KeyType, mode: Mode, text: &'a str) -> Self {
        let read = match key_type {
            KeyType::Text | KeyType::Other => return Self::Text(text.as_bytes()),
            KeyType::Integer => match small_integer(text) {
                Some(small) => return Self::Small(small, text),
                None => NumberText::integer(text).map(Self::Number),
            },
            KeyType::Decimal => match small_integer(text) {
                Some(small) => return Self::Small(small, text),
                None => NumberText::decimal(text).map(Self::Number),
            },
            KeyType::Date => Date::parse(text).map(Self::Date),
            KeyType::Timestamp => Timestamp::parse(text).map(Self::Timestamp),
        };
        match read {
            Some(reading) => reading,
            None if mode == Mode::Lenient && text == HIVE_DEFAULT_PARTITION => Self::Null,
            None => Self::Unreadable,
        }
    }

    /// How it compares with a value of its key. What is no value compares with none; callers look first.
    pub(super) fn compare(&self, other: &Scalar) -> Ordering {
        match (self, other) {
            (Self::Text(text), Scalar::Text(other)) => (*text).cmp(other),
            (Self::Small(small, text), Scalar::Number(other)) => match other.small {
                Some(other) => small.cmp(&other),
                None => NumberText::integer(text).map_or(Ordering::Less, |number| number.compare(&other.number)),
            },
            (Self::Number(number), Scalar::Number(other)) => number.compare(&other.number),
            (Self::Date(date), Scalar::Date(other)) => date.cmp(other),
            (Self::Timestamp(timestamp), Scalar::Timestamp(other)) => timestamp.cmp(other),
            _ => Ordering::Less,
        }
    }
}

/// Digits with an optional sign, as a machine number if they are few.
#[inline]
pub(super) fn small_integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if let Some(number) = few_digits(bytes) {
        return Some(i64::from(number));
    }
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > SMALL_MAX_CHARS {
        return None;
    }
    let mut number = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_compare_alike_however_they_are_read() {
        let texts = [
            "-99999999999999999999",
            "-1000000000000000000",
            "-999999999999999999",
            "-2.5",
            "-2",
            "-02",
            "0",
            "-0",
            "+1",
            "1",
            "1.0",
            "1e0",
            "1.5",
            "2",
            "999999999999999999",
            "1000000000000000000",
            "9223372036854775808",
        ];
        for left in texts {
            for right in texts {
                let expected = Number::parse_decimal(left).unwrap().cmp(&Number::parse_decimal(right).unwrap());
                let literal = Scalar::read(KeyType::Decimal, right).unwrap();
                let stored = Reading::of(KeyType::Decimal, Mode::Lenient, left);
                assert_eq!(stored.compare(&literal), expected, "{left} {right}");
                if let (Some(literal), Some(_)) = (Scalar::read(KeyType::Integer, right), Number::parse_integer(left)) {
                    let stored = Reading::of(KeyType::Integer, Mode::Lenient, left);
                    assert_eq!(stored.compare(&literal), expected, "{left} {right}");
                }
            }
        }
    }

    #[test]
    fn the_marker_is_null_where_types_are_and_unreadable_in_strict_mode() {
        for key_type in [KeyType::Integer, KeyType::Decimal, KeyType::Date, KeyType::Timestamp] {
            let read = |mode| Reading::of(key_type, mode, HIVE_DEFAULT_PARTITION);
            assert!(matches!(read(Mode::Lenient), Reading::Null) && matches!(read(Mode::Strict), Reading::Unreadable));
            assert!(matches!(Reading::of(key_type, Mode::Lenient, "null"), Reading::Unreadable));
        }
        let text = Reading::of(KeyType::Text, Mode::Lenient, HIVE_DEFAULT_PARTITION);
        assert!(matches!(text, Reading::Text(_)));
    }
}
