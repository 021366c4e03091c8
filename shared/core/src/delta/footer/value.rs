//! Single values of columns, as statistics and pages have them.

use std::cmp::Ordering;
use std::fmt;

use parquet::data_type::Int96;

use super::kind::{Kind, Unit};

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
/// Julian day of 1970-01-01.
const JULIAN_EPOCH_DAY: i64 = 2_440_588;

/// A value that is not null.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Flag(bool),
    Int(i128),
    Decimal {
        unscaled: i128,
        scale: u32,
    },
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Days since 1970-01-01.
    Day(i64),
    /// Nanoseconds since 1970-01-01T00:00:00, in UTC or without a zone.
    Instant(i128),
}

/// A value as Parquet stores it.
#[derive(Clone, Copy, Debug)]
pub(in crate::delta) enum Raw<'a> {
    Flag(bool),
    Int32(i32),
    Int64(i64),
    Int96(&'a Int96),
    Float(f32),
    Double(f64),
    Bytes(&'a [u8]),
}

impl Datum {
    /// As readers order values: numbers by value whatever their type, NaN above all others, text by its bytes. Nothing
    /// for values that cannot be compared.
    pub fn compare(&self, other: &Datum) -> Option<Ordering> {
        match (self, other) {
            (Datum::Flag(a), Datum::Flag(b)) => Some(a.cmp(b)),
            (Datum::Text(a), Datum::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Datum::Bytes(a), Datum::Bytes(b)) => Some(a.cmp(b)),
            (Datum::Day(a), Datum::Day(b)) => Some(a.cmp(b)),
            (Datum::Instant(a), Datum::Instant(b)) => Some(a.cmp(b)),
            (Datum::Day(a), Datum::Instant(b)) => Some((i128::from(*a) * NANOS_PER_DAY).cmp(b)),
            (Datum::Instant(a), Datum::Day(b)) => Some(a.cmp(&(i128::from(*b) * NANOS_PER_DAY))),
            (Datum::Float(a), Datum::Float(b)) => Some(compare_floats(*a, *b)),
            (Datum::Float(a), b) => Some(compare_floats(*a, b.to_f64()?)),
            (a, Datum::Float(b)) => Some(compare_floats(a.to_f64()?, *b)),
            (a, b) => compare_exact(a.exact()?, b.exact()?),
        }
    }

    /// Unscaled number and scale.
    pub fn exact(&self) -> Option<(i128, u32)> {
        match self {
            Datum::Int(value) => Some((*value, 0)),
            Datum::Decimal { unscaled, scale } => Some((*unscaled, *scale)),
            _ => None,
        }
    }

    /// The number, perhaps rounded.
    pub fn to_f64(&self) -> Option<f64> {
        match self {
            Datum::Float(value) => Some(*value),
            _ => {
                let (unscaled, scale) = self.exact()?;
                // The parser rounds once; dividing would round twice.
                format!("{unscaled}e-{scale}").parse().ok()
            }
        }
    }

    pub fn is_nan(&self) -> bool {
        matches!(self, Datum::Float(value) if value.is_nan())
    }

    /// A value of a leaf; nothing where it is not one of its type.
    pub(in crate::delta) fn decode(kind: &Kind, raw: Raw<'_>) -> Option<Datum> {
        Some(match (kind, raw) {
            (Kind::Boolean, Raw::Flag(value)) => Datum::Flag(value),
            (Kind::Integer { signed: true, .. }, Raw::Int32(value)) => Datum::Int(value.into()),
            (Kind::Integer { signed: true, .. }, Raw::Int64(value)) => Datum::Int(value.into()),
            (Kind::Float, Raw::Float(value)) => Datum::Float(value.into()),
            (Kind::Double, Raw::Double(value)) => Datum::Float(value),
            (Kind::Date, Raw::Int32(value)) => Datum::Day(value.into()),
            (Kind::Timestamp { unit, .. }, Raw::Int64(value)) => {
                let nanos = match unit {
                    Unit::Millis => 1_000_000,
                    Unit::Micros => 1_000,
                    Unit::Nanos => 1,
                };
                Datum::Instant(i128::from(value) * nanos)
            }
            (Kind::Int96, Raw::Int96(value)) => int96(value)?,
            (Kind::Text, Raw::Bytes(bytes)) => Datum::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
            (Kind::Bytes, Raw::Bytes(bytes)) => Datum::Bytes(bytes.to_vec()),
            (Kind::Decimal { scale, .. }, raw) => {
                let unscaled = match raw {
                    Raw::Int32(value) => value.into(),
                    Raw::Int64(value) => value.into(),
                    Raw::Bytes(bytes) => big_endian(bytes)?,
                    _ => return None,
                };
                Datum::Decimal { unscaled, scale: u32::try_from(*scale).ok()? }
            }
            _ => return None,
        })
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// By whole parts first, then by fractions of the same length.
fn compare_exact(a: (i128, u32), b: (i128, u32)) -> Option<Ordering> {
    let split = |(unscaled, scale): (i128, u32)| {
        let unit = 10_i128.checked_pow(scale)?;
        Some((unscaled.div_euclid(unit), unscaled.rem_euclid(unit)))
    };
    let ((whole_a, part_a), (whole_b, part_b)) = (split(a)?, split(b)?);
    if whole_a != whole_b {
        return Some(whole_a.cmp(&whole_b));
    }
    let scale = a.1.max(b.1);
    let widen = |part: i128, from: u32| part.checked_mul(10_i128.checked_pow(scale - from)?);
    Some(widen(part_a, a.1)?.cmp(&widen(part_b, b.1)?))
}

/// Nanoseconds of the day and a Julian day.
fn int96(value: &Int96) -> Option<Datum> {
    let [low, high, day] = value.data() else { return None };
    let nanos = (u64::from(*high) << 32) | u64::from(*low);
    let days = i64::from(*day) - JULIAN_EPOCH_DAY;
    Some(Datum::Instant(i128::from(days) * NANOS_PER_DAY + i128::from(nanos)))
}

/// A two's complement number of at most 16 bytes, or with nothing but its sign before them.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let start = bytes.len().saturating_sub(16);
    let (extra, tail) = bytes.split_at_checked(start)?;
    let is_sign_kept = tail.first().is_none_or(|byte| (*byte >= 0x80) == (fill == 0xff));
    if extra.iter().any(|byte| *byte != fill) || !is_sign_kept {
        return None;
    }
    let mut whole = [fill; 16];
    whole.get_mut(16 - tail.len()..)?.copy_from_slice(tail);
    Some(i128::from_be_bytes(whole))
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Flag(value) => value.fmt(f),
            Datum::Int(value) => value.fmt(f),
            Datum::Decimal { unscaled, scale } => {
                let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = *scale as usize + 1);
                let (whole, part) = digits.split_at_checked(digits.len() - *scale as usize).unwrap_or((&digits, ""));
                let sign = if *unscaled < 0 { "-" } else { "" };
                if part.is_empty() { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{part}") }
            }
            Datum::Float(value) => value.fmt(f),
            Datum::Text(value) => value.fmt(f),
            Datum::Bytes(value) => write!(f, "0x{}", hex::encode(value)),
            Datum::Day(days) => f.write_str(&text_of_day(*days)),
            Datum::Instant(nanos) => {
                let (day, rest) = (nanos.div_euclid(NANOS_PER_DAY), nanos.rem_euclid(NANOS_PER_DAY));
                let (seconds, nanos) = (rest / 1_000_000_000, rest % 1_000_000_000);
                let day = text_of_day(i64::try_from(day).unwrap_or(0));
                write!(f, "{day} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
                match nanos {
                    0 => Ok(()),
                    nanos if nanos % 1_000 == 0 => write!(f, ".{:06}", nanos / 1_000),
                    nanos => write!(f, ".{nanos:09}"),
                }
            }
        }
    }
}

/// Year, month and day of days since 1970-01-01, proleptic Gregorian.
pub fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01; years that begin in March end with the leap day.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

/// `yyyy-MM-dd`
pub fn text_of_day(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Days since 1970-01-01 of a date that exists.
pub fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(-1_000_000..=1_000_000).contains(&year) {
        return None;
    }
    let (shifted, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    let days = shifted * 365 + leaps + (153 * from_march + 2) / 5 + day - 1 - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for (text, (year, month, day), days) in [
            ("1970-01-01", (1970, 1, 1), 0),
            ("1969-12-31", (1969, 12, 31), -1),
            ("2000-02-29", (2000, 2, 29), 11_016),
            ("0000-01-01", (0, 1, 1), -719_528),
            ("9999-12-31", (9999, 12, 31), 2_932_896),
        ] {
            assert_eq!(text_of_day(days), text);
            assert_eq!(day_of(year, month, day), Some(days));
        }
        assert_eq!(day_of(2023, 2, 29), None);
    }

    #[test]
    fn values_compare_as_numbers_and_print_as_people_write_them() {
        let decimal = |unscaled, scale| Datum::Decimal { unscaled, scale };
        for (a, b, expected) in [
            (decimal(150, 2), decimal(15, 1), Some(Ordering::Equal)),
            (decimal(-150, 2), Datum::Int(-1), Some(Ordering::Less)),
            (decimal(i128::MAX, 0), decimal(1, 38), Some(Ordering::Greater)),
            (Datum::Float(f64::NAN), Datum::Float(f64::INFINITY), Some(Ordering::Greater)),
            (Datum::Float(-0.0), Datum::Float(0.0), Some(Ordering::Equal)),
            (Datum::Int(1), Datum::Float(1.5), Some(Ordering::Less)),
            (Datum::Int(1), Datum::Text("1".into()), None),
            (Datum::Day(1), Datum::Instant(NANOS_PER_DAY), Some(Ordering::Equal)),
        ] {
            assert_eq!(a.compare(&b), expected, "{a} {b}");
            assert_eq!(b.compare(&a), expected.map(Ordering::reverse), "{b} {a}");
        }
        assert_eq!(decimal(-5, 2).to_string(), "-0.05");
        assert_eq!(Datum::Instant(-1_000).to_string(), "1969-12-31 23:59:59.999999");
        assert_eq!(big_endian(&[0xff, 0x38]), Some(-200));
        assert_eq!(big_endian(&[0; 20]), Some(0));
        assert_eq!(big_endian(&[1; 20]), None);
    }
}
