//! Typed values of columns, in the order that engines compare them.
//!
//! Comparison is exact: integers and decimals as numbers of any length, text by code point, instants to the nanosecond.
//! Zeros of either sign may be equal or not ([`Span`]); NaN is no value here (see [`super::domain`]).

use std::cmp::Ordering;

use crate::delta::schema::Primitive;
use crate::partition::Number;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i128 = 86_400;

/// A value that is not null.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Flag(bool),
    /// Integers and decimals.
    Exact(Number),
    /// Never NaN; compared with [`f64::total_cmp`], so zeros have to be widened to both ([`Span`]).
    Float(f64),
    Text(String),
    /// Days since 1970-01-01.
    Day(i64),
    /// Nanoseconds since 1970-01-01T00:00:00, in UTC or without a zone.
    Instant(i128),
}

impl Value {
    /// Nothing for values of different kinds.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Flag(a), Value::Flag(b)) => Some(a.cmp(b)),
            (Value::Exact(a), Value::Exact(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::Day(a), Value::Day(b)) => Some(a.cmp(b)),
            (Value::Instant(a), Value::Instant(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// Where a value lies that is not known exactly; both ends belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub low: Value,
    pub high: Value,
}

impl Span {
    /// A value that is known; zeros of floats are both zeros.
    pub fn at(value: Value) -> Span {
        match value {
            Value::Float(0.0) => Span { low: Value::Float(-0.0), high: Value::Float(0.0) },
            value => Span { low: value.clone(), high: value },
        }
    }

    /// Exactly one value. Zero of floats is none: for some engines its two signs differ.
    pub fn is_point(&self) -> bool {
        self.low.compare(&self.high) == Some(Ordering::Equal)
    }
}

/// What a text says as a value of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    Value(Value),
    NaN,
}

/// Reads a partition value as the protocol serialises it; nothing if the type cannot read it. An empty text is null
/// and the caller's business. Timestamps without a zone are UTC.
pub fn read(text: &str, kind: &Primitive) -> Option<Reading> {
    let value = match kind {
        Primitive::String => Value::Text(text.to_owned()),
        Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long => {
            if !fits(text, kind) {
                return None;
            }
            Value::Exact(Number::parse_integer(text)?)
        }
        Primitive::Float => return float(f64::from(text.parse::<f32>().ok()?)),
        Primitive::Double => return float(text.parse().ok()?),
        Primitive::Boolean => Value::Flag(flag(text)?),
        Primitive::Date => Value::Day(day(text)?),
        Primitive::Timestamp | Primitive::TimestampNtz => {
            let instant = Instant::parse(text)?;
            let may_have_zone = *kind == Primitive::Timestamp || instant.offset_seconds == Some(0);
            (instant.has_time && may_have_zone).then(|| Value::Instant(instant.utc_nanos()))?
        }
        Primitive::Decimal { precision, scale } => decimal(text, *precision, *scale)?,
        // Every text is one, but writers do not agree on which bytes it stands for.
        Primitive::Binary => Value::Text(text.to_owned()),
    };
    Some(Reading::Value(value))
}

fn fits(text: &str, kind: &Primitive) -> bool {
    match kind {
        Primitive::Byte => text.parse::<i8>().is_ok(),
        Primitive::Short => text.parse::<i16>().is_ok(),
        Primitive::Integer => text.parse::<i32>().is_ok(),
        _ => text.parse::<i64>().is_ok(),
    }
}

fn float(value: f64) -> Option<Reading> {
    Some(if value.is_nan() { Reading::NaN } else { Reading::Value(Value::Float(value)) })
}

pub fn flag(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// Plain digits that fit into precision and scale.
fn decimal(text: &str, precision: u8, scale: u8) -> Option<Value> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let fits = fraction.trim_end_matches('0').len() <= usize::from(scale)
        && whole.trim_start_matches('0').len() <= usize::from(precision.saturating_sub(scale));
    if is_plain && fits { Number::parse_decimal(text).map(Value::Exact) } else { None }
}

/// `yyyy-MM-dd` to days since 1970-01-01, proleptic Gregorian.
pub fn day(text: &str) -> Option<i64> {
    let (days, rest) = leading_day(text)?;
    rest.is_empty().then_some(days)
}

fn leading_day(text: &str) -> Option<(i64, &str)> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years that begin in March end with the leap day.
    let (shifted, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leaps = shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    Some((shifted * 365 + leaps + day_of_year - 719_468, rest))
}

/// Exactly `count` digits at the start.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let (head, tail) = text.split_at_checked(count)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, tail))
}

/// A timestamp as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    local_nanos: i128,
    pub offset_seconds: Option<i64>,
    /// False: only a day was given.
    pub has_time: bool,
}

impl Instant {
    /// `yyyy-MM-dd[( |T)HH:mm[:ss[.f{1,9}]]][Z|±HH[[:]mm]]`
    pub fn parse(text: &str) -> Option<Instant> {
        let (days, rest) = leading_day(text)?;
        let midnight = i128::from(days) * SECONDS_PER_DAY * NANOS_PER_SECOND;
        if rest.is_empty() {
            return Some(Instant { local_nanos: midnight, offset_seconds: None, has_time: false });
        }
        let (hour, rest) = digits(rest.strip_prefix([' ', 'T'])?, 2)?;
        let (minute, mut rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (mut second, mut nanos) = (0, 0);
        if let Some(tail) = rest.strip_prefix(':') {
            (second, rest) = digits(tail, 2)?;
        }
        if let Some(tail) = rest.strip_prefix('.') {
            let length = tail.bytes().take_while(u8::is_ascii_digit).count();
            if !(1..=9).contains(&length) {
                return None;
            }
            let (fraction, tail) = digits(tail, length)?;
            nanos = fraction * 10_i64.pow(9 - u32::try_from(length).ok()?);
            rest = tail;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = i128::from(hour * 3_600 + minute * 60 + second);
        let local_nanos = midnight + seconds * NANOS_PER_SECOND + i128::from(nanos);
        Some(Instant { local_nanos, offset_seconds: offset(rest)?, has_time: true })
    }

    /// Without a zone: as if it were UTC.
    pub fn utc_nanos(&self) -> i128 {
        self.local_nanos - i128::from(self.offset_seconds.unwrap_or(0)) * NANOS_PER_SECOND
    }
}

/// Nothing: not an offset; `None` inside: there is none.
fn offset(text: &str) -> Option<Option<i64>> {
    match text {
        "" => return Some(None),
        "Z" | "z" => return Some(Some(0)),
        _ => {}
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = digits(rest, 2)?;
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" => 0,
        rest => digits(rest, 2).filter(|(_, rest)| rest.is_empty())?.0,
    };
    (hours <= 18 && minutes <= 59).then_some(Some(sign * (hours * 3_600 + minutes * 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<i128> {
        Instant::parse(text).map(|instant| instant.utc_nanos())
    }

    #[test]
    fn days_count_from_1970() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-03-01", 59),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2024-01-02", 19_724),
            ("0000-01-01", -719_528),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(day(text), Some(days), "{text}");
        }
        for text in
            ["2023-02-29", "1900-02-29", "2024-13-01", "2024-1-1", "2024-01-01 ", "", "2024-01-0ü", "-001-01-01"]
        {
            assert_eq!(day(text), None, "{text}");
        }
    }

    #[test]
    fn two_spellings_of_an_instant_are_one_value() {
        let base = at("2024-01-02 03:04:05.123456");
        assert!(base.is_some());
        for text in [
            "2024-01-02T03:04:05.123456",
            "2024-01-02T03:04:05.123456Z",
            "2024-01-02T03:04:05.123456000Z",
            "2024-01-02T05:34:05.123456+02:30",
            "2024-01-01T19:04:05.123456-0800",
            "2024-01-02 04:04:05.123456+01",
        ] {
            assert_eq!(at(text), base, "{text}");
        }
        assert_eq!(at("2024-01-02"), at("2024-01-02 00:00"));
        assert_eq!(at("1969-12-31 23:59:59.999999999"), Some(-1));
        for text in [
            "2024-01-02 25:00:00",
            "2024-01-02 03:04:05.",
            "2024-01-02 03:04:05.1234567890",
            "2024-01-02 03:04:05 UTC",
            "2024-01-02 03:04:05+99",
            "2024-01-02x03:04:05",
            "2024-01-02 3:04:05",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn zeros_are_one_value_and_numbers_are_exact() {
        let zero = Span::at(Value::Float(0.0));
        assert_eq!(Span::at(Value::Float(-0.0)), zero);
        assert!(!zero.is_point() && Span::at(Value::Float(1.0)).is_point());
        let number = |text: &str| Value::Exact(Number::parse_decimal(text).unwrap());
        assert_eq!(number("9007199254740993").compare(&number("9007199254740992")), Some(Ordering::Greater));
        assert_eq!(number("2.20").compare(&number("2.2")), Some(Ordering::Equal));
        assert_eq!(number("1").compare(&Value::Float(1.0)), None);
    }
}
