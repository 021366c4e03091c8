//! Typed values of columns, in an order that encloses what engines do.
//!
//! Comparison is exact: integers and decimals as numbers of any length, text by code point, instants to the nanosecond.
//! Zeros of either sign may be equal or not ([`Span`]); NaN is no value here. A [`Datum`] is what a file holds, in the
//! order of readers; a [`Value`] is what may be compared with an end of a range that somebody else wrote.

use std::cmp::Ordering;

use super::time::{Instant, NANOS_PER_DAY, parse_day};
use crate::delta::footer::Datum;
use crate::delta::schema::Primitive;
use crate::partition::Number;

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
    /// A value of a file in the place of one of `kind`; nothing for what is not compared (bytes, other kinds).
    pub fn of(datum: &Datum, kind: &Primitive) -> Option<Reading> {
        let value = match (kind, datum) {
            (Primitive::Boolean, Datum::Flag(flag)) => Value::Flag(*flag),
            (Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long, Datum::Int(value)) => {
                Value::Exact(Number::parse_integer(&value.to_string())?)
            }
            (Primitive::Decimal { .. }, Datum::Int(_) | Datum::Decimal { .. }) => {
                Value::Exact(Number::parse_decimal(&datum.to_string())?)
            }
            // Files from before a column was widened hold narrower types.
            (Primitive::Float | Primitive::Double, Datum::Int(_) | Datum::Float(_)) => return float(datum.to_f64()?),
            (Primitive::String, Datum::Text(text)) => Value::Text(text.clone()),
            (Primitive::Date, Datum::Day(day)) => Value::Day(*day),
            (Primitive::Timestamp | Primitive::TimestampNtz, Datum::Instant(nanos)) => Value::Instant(*nanos),
            (Primitive::TimestampNtz, Datum::Day(day)) => Value::Instant(i128::from(*day) * NANOS_PER_DAY),
            _ => return None,
        };
        Some(Reading::Value(value))
    }

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
        Primitive::Date => Value::Day(parse_day(text)?),
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

#[cfg(test)]
mod tests {
    use super::*;

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
