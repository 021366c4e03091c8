//! `add.stats` beside the file's own statistics. Readers skip files by what the commit says: bounds that do not enclose
//! the values, or null counts that are wrong, hide rows that are there.
//!
//! What either side does not tell is fine, and so is what writers do to values: texts are cut, timestamps are cut to
//! milliseconds, floats of 32 bits and decimals are written as decimal fractions.

use std::cmp::Ordering;

use parquet::file::metadata::ParquetMetaData;
use serde_json::{Map, Value};

use super::sql::{parse_day, parse_instant};
use super::verdict::{Exception, Refusal, clip};
use crate::delta::AddFile;
use crate::delta::footer::{
    Bound, Datum, FileField, FileIndex, Kind, LeafFacts, Node, civil, day_of, facts_of_file, nulls_of_file,
};
use crate::delta::json::parse_strict;
use crate::delta::schema::{DataType, Field, MappingMode, Primitive, Schema, join};

const NANOS_PER_MILLI: i128 = 1_000_000;
/// Writers of Parquet cut longer texts; a shorter one is some row's value whether or not the file says so.
const CUT_TEXT_MIN_BYTES: usize = 16;
/// Decimals go through floats of 64 bits: they are rounded at most twice, and so is what they are compared with.
const DECIMAL_ERROR: f64 = 2.0 * f64::EPSILON;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// Whether a bound is a value of some row, also where the writer left that open.
pub fn is_value_of_a_row(bound: &Bound) -> bool {
    match &bound.value {
        Datum::Text(text) => bound.is_exact || text.len() < CUT_TEXT_MIN_BYTES,
        Datum::Bytes(bytes) => bound.is_exact || bytes.len() < CUT_TEXT_MIN_BYTES,
        _ => bound.is_exact,
    }
}

/// Refuses statistics that would make readers skip rows.
pub fn check_statistics(
    add: &AddFile,
    metadata: &ParquetMetaData,
    fields: &[FileField],
    schema: &Schema,
    mode: MappingMode,
) -> Result<(), Refusal> {
    let Some(stats) = add.stats.as_deref().and_then(|text| parse_strict(text).ok()) else { return Ok(()) };
    let part = |name: &str| stats.get(name).and_then(Value::as_object);
    let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    let is_wide = stats.get("tightBounds").and_then(Value::as_bool) == Some(false);
    let check = Check { metadata, mode, rows, is_wide };
    let said = Said { nulls: part("nullCount"), low: part("minValues"), high: part("maxValues") };
    match check.fields("", &schema.fields, Some(fields), said) {
        None => Ok(()),
        Some(lie) => {
            let text =
                format!("stats.{} of column `{}` would make readers skip rows of the file", lie.part, lie.column);
            let mut refusal = Refusal::new(
                Exception::InvalidCommitException,
                "STATISTICS",
                text,
                "write the file's real statistics, or none",
            )
            .class("LAKEWARDEN_STATISTICS_MISMATCH")
            .file(&add.path)
            .column(&lie.column);
            (refusal.place.expected, refusal.place.found) = (Some(clip(&lie.real)), Some(clip(&lie.said)));
            Err(refusal)
        }
    }
}

/// What the commit says of the fields of a struct.
#[derive(Clone, Copy)]
struct Said<'a> {
    nulls: Option<&'a Map<String, Value>>,
    low: Option<&'a Map<String, Value>>,
    high: Option<&'a Map<String, Value>>,
}

impl<'a> Said<'a> {
    fn below(self, name: &str) -> Said<'a> {
        let part = |map: Option<&'a Map<String, Value>>| map.and_then(|map| map.get(name)).and_then(Value::as_object);
        Said { nulls: part(self.nulls), low: part(self.low), high: part(self.high) }
    }

    fn is_nothing(self) -> bool {
        self.nulls.is_none() && self.low.is_none() && self.high.is_none()
    }
}

struct Lie {
    part: &'static str,
    column: String,
    said: String,
    real: String,
}

struct Check<'a> {
    metadata: &'a ParquetMetaData,
    mode: MappingMode,
    rows: u64,
    /// Bounds may be wide, and null counts tell only of none and all.
    is_wide: bool,
}

impl Check<'_> {
    fn fields(&self, above: &str, expected: &[Field], found: Option<&[FileField]>, said: Said<'_>) -> Option<Lie> {
        if said.is_nothing() {
            return None;
        }
        let index = found.map(|found| FileIndex::of(found, self.mode));
        expected.iter().find_map(|field| {
            let path = join(above, &field.name);
            let name = field.physical_name(self.mode);
            let file = index.as_ref().and_then(|index| index.find(field));
            match (&field.data_type, file.map(|file| &file.node)) {
                (DataType::Struct(inner), Some(Node::Struct(group))) => {
                    self.fields(&path, inner, Some(group), said.below(name))
                }
                (DataType::Struct(inner), None) => self.fields(&path, inner, None, said.below(name)),
                (DataType::Primitive(kind), Some(Node::Leaf { kind: found, leaf })) if *found != Kind::Null => {
                    let facts = facts_of_file(self.metadata, *leaf, found);
                    self.column(&path, name, kind, &facts, said)
                }
                // A column that the file lacks is null in every row.
                (_, None) | (DataType::Primitive(_), Some(Node::Leaf { .. })) => {
                    self.null_count(&path, name, Some(self.rows), said)
                }
                (DataType::Array { .. } | DataType::Map { .. } | DataType::Variant, Some(_)) => {
                    self.nested_nulls(&path, name, file?, said)
                }
                _ => None,
            }
        })
    }

    fn column(&self, path: &str, name: &str, kind: &Primitive, facts: &LeafFacts, said: Said<'_>) -> Option<Lie> {
        if let Some(lie) = self.null_count(path, name, facts.nulls, said) {
            return Some(lie);
        }
        if *kind == Primitive::Binary {
            // No reader skips by them.
            return None;
        }
        let lie = |part, said: &Value, ends: [&Option<Bound>; 2]| {
            let real = ends.into_iter().flatten().next().map(|real| real.value.to_string());
            let real = real.unwrap_or_else(|| format!("a value of type {kind}"));
            Some(Lie { part, column: path.to_owned(), said: said.to_string(), real })
        };
        let stated = |map: Option<&Map<String, Value>>| {
            let value = map.and_then(|map| map.get(name)).filter(|value| !value.is_null())?.clone();
            let stated = read_bound(&value, kind);
            Some((value, stated))
        };
        if let Some((value, stated)) = stated(said.low)
            && stated.is_none_or(|stated| is_too_high(&stated, facts, kind))
        {
            return lie("minValues", &value, [&facts.low, &facts.high]);
        }
        if let Some((value, stated)) = stated(said.high)
            && stated.is_none_or(|stated| is_too_low(&stated, facts, kind))
        {
            return lie("maxValues", &value, [&facts.high, &facts.low]);
        }
        None
    }

    /// Entries without a value stand for nulls on each level and for what is empty: there are no more nulls than these.
    fn nested_nulls(&self, path: &str, name: &str, file: &FileField, said: Said<'_>) -> Option<Lie> {
        let stated = said.nulls.and_then(|map| map.get(name)).and_then(Value::as_u64)?;
        let most = file.leaves().into_iter().filter_map(|leaf| nulls_of_file(self.metadata, leaf)).min()?;
        let is_lie = if self.is_wide { stated == self.rows && most < self.rows } else { stated > most };
        is_lie.then(|| Lie {
            part: "nullCount",
            column: path.to_owned(),
            said: stated.to_string(),
            real: format!("at most {most}"),
        })
    }

    fn null_count(&self, path: &str, name: &str, real: Option<u64>, said: Said<'_>) -> Option<Lie> {
        let value = said.nulls.and_then(|map| map.get(name)).filter(|value| !value.is_null())?;
        let (real, stated) = (real?, value.as_u64());
        let is_lie = match stated {
            Some(stated) if self.is_wide => (stated == 0 && real > 0) || (stated == self.rows && real < self.rows),
            Some(stated) => stated != real,
            // An object where the column is none, or rubbish: readers cannot use it.
            None => false,
        };
        is_lie.then(|| Lie {
            part: "nullCount",
            column: path.to_owned(),
            said: value.to_string(),
            real: real.to_string(),
        })
    }
}

/// A bound of a column of this type, as a value; none where it does not read as one. Numbers may be written as texts.
pub fn read_bound(value: &Value, kind: &Primitive) -> Option<Datum> {
    match (kind, value) {
        (Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long, Value::Number(number)) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            whole.map(Datum::Int).or_else(|| number.as_f64().map(Datum::Float))
        }
        (Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long, Value::String(text)) => {
            text.parse().ok().map(Datum::Int)
        }
        (Primitive::Float, Value::Number(number)) => number.as_f64().map(|value| Datum::Float(f64::from(value as f32))),
        (Primitive::Float, Value::String(text)) => text.parse::<f32>().ok().map(|value| Datum::Float(value.into())),
        (Primitive::Double | Primitive::Decimal { .. }, Value::Number(number)) => number.as_f64().map(Datum::Float),
        (Primitive::Double, Value::String(text)) => text.parse().ok().map(Datum::Float),
        (Primitive::Decimal { .. }, Value::String(text)) => read_decimal(text),
        (Primitive::String, Value::String(text)) => Some(Datum::Text(text.clone())),
        (Primitive::Boolean, Value::Bool(flag)) => Some(Datum::Flag(*flag)),
        (Primitive::Date, Value::String(text)) => {
            parse_day(text).or_else(|| far(text, 10).map(|(day, _)| day)).map(Datum::Day)
        }
        (Primitive::Timestamp | Primitive::TimestampNtz, Value::String(text)) => parse_instant(text)
            .or_else(|| far(text, usize::MAX).map(|(day, nanos)| i128::from(day) * NANOS_PER_DAY + nanos))
            .map(Datum::Instant),
        _ => None,
    }
}

/// Digits as they stand; with an exponent only about that number.
fn read_decimal(text: &str) -> Option<Datum> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, part) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if unsigned.is_empty() || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|value: &f64| value.is_finite()).map(Datum::Float);
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let part = part.trim_end_matches('0');
    let unscaled = format!("{sign}{whole}{part}").parse().ok()?;
    Some(Datum::Decimal { unscaled, scale: u32::try_from(part.len()).ok()? })
}

/// Day, and nanoseconds after its midnight, of a time with a sign before its year or more digits in it than four. What
/// follows the year is read as of a leap year, and the day must exist in the year that is said.
fn far(text: &str, chars_max: usize) -> Option<(i64, i128)> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (year, rest) = unsigned.split_at_checked(unsigned.find('-')?)?;
    if !(4..=6).contains(&year.len()) || !year.bytes().all(|byte| byte.is_ascii_digit()) || rest.len() + 4 > chars_max {
        return None;
    }
    let near = parse_instant(&format!("2000{rest}"))?;
    let (near_day, nanos) = (i64::try_from(near.div_euclid(NANOS_PER_DAY)).ok()?, near.rem_euclid(NANOS_PER_DAY));
    let (near_year, month, day) = civil(near_day);
    let year = year.parse::<i64>().ok()? * sign + (near_year - 2000);
    Some((day_of(year, month, day)?, nanos))
}

/// Whether a row surely lies below the stated minimum.
pub fn is_too_high(stated: &Datum, facts: &LeafFacts, kind: &Primitive) -> bool {
    let is_below = |real: &Datum| is_apart(real, stated, kind) && real.compare(stated) == Some(Ordering::Less);
    let low = facts.low.as_ref().is_some_and(|low| match (&low.value, stated) {
        // A cut text stands for all that begin with it.
        (Datum::Text(real), Datum::Text(text)) if !is_value_of_a_row(low) => {
            is_below(&low.value) && !text.starts_with(real.as_str())
        }
        (real, _) => is_below(real),
    });
    low || facts.high.as_ref().is_some_and(|high| is_below(&high.value))
}

/// Whether a row surely lies above the stated maximum.
pub fn is_too_low(stated: &Datum, facts: &LeafFacts, kind: &Primitive) -> bool {
    let is_above = |real: &Datum| match (real, stated) {
        (Datum::Instant(real), Datum::Instant(stated)) => {
            real.div_euclid(NANOS_PER_MILLI) > stated.div_euclid(NANOS_PER_MILLI)
        }
        _ => is_apart(real, stated, kind) && real.compare(stated) == Some(Ordering::Greater),
    };
    facts.high.as_ref().is_some_and(|high| is_above(&reached(high)))
        || facts.low.as_ref().is_some_and(|low| is_above(&low.value))
}

/// A value that some row reaches: where an upper bound was cut, its last character was raised.
fn reached(high: &Bound) -> Datum {
    match &high.value {
        Datum::Text(text) if !is_value_of_a_row(high) => {
            let mut text = text.clone();
            text.pop();
            Datum::Text(text)
        }
        value => value.clone(),
    }
}

/// Not the same number but for how decimals are rounded.
fn is_apart(real: &Datum, stated: &Datum, kind: &Primitive) -> bool {
    match (stated, kind) {
        (Datum::Float(stated), Primitive::Decimal { .. }) => {
            real.to_f64().is_none_or(|real| (real - stated).abs() > DECIMAL_ERROR * real.abs().max(stated.abs()))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(low: Datum, high: Datum, is_exact: bool) -> LeafFacts {
        let bound = |value| Some(Bound { value, is_exact });
        LeafFacts { rows: 2, nulls: Some(0), low: bound(low), high: bound(high), may_be_nan: false }
    }

    #[test]
    fn bounds_are_read_as_the_columns_types() {
        let decimal = Primitive::Decimal { precision: 18, scale: 2 };
        for (value, kind, expected) in [
            (json!("6.0"), Primitive::Double, Some(Datum::Float(6.0))),
            (json!("-Infinity"), Primitive::Float, Some(Datum::Float(f64::NEG_INFINITY))),
            (json!("rubbish"), Primitive::Double, None),
            (json!("4"), Primitive::Long, Some(Datum::Int(4))),
            (json!(u64::MAX), Primitive::Long, Some(Datum::Int(u64::MAX.into()))),
            (json!("-1.50"), decimal.clone(), Some(Datum::Decimal { unscaled: -15, scale: 1 })),
            (json!("1e3"), decimal.clone(), Some(Datum::Float(1000.0))),
            (json!("inf"), decimal, None),
            (json!("1970-01-02"), Primitive::Date, Some(Datum::Day(1))),
            (json!("+12000-02-29"), Primitive::Date, day_of(12_000, 2, 29).map(Datum::Day)),
            (json!("-0001-02-29"), Primitive::Date, None),
            (json!("2024-01-01T00:00:00Z"), Primitive::Date, None),
            (json!("+12000-01-01T00:00:01.000Z"), Primitive::Timestamp, {
                let day = day_of(12_000, 1, 1).unwrap();
                Some(Datum::Instant(i128::from(day) * NANOS_PER_DAY + 1_000_000_000))
            }),
            (json!("rubbish"), Primitive::Timestamp, None),
        ] {
            assert_eq!(read_bound(&value, &kind), expected, "{value} {kind}");
        }
    }

    #[test]
    fn cut_texts_still_tell() {
        let text = |text: &str| Datum::Text(text.to_owned());
        let long = |first: &str, last: &str| text(&format!("{}{last}", first.repeat(63)));
        let file = facts(long("a", "a"), long("z", "{"), false);
        for (low, high, is_lie) in [
            ("a", "zz", [false, true]),
            ("b", "b", [true, true]),
            ("a", "a", [false, true]),
            ("a", "{", [false, false]),
            ("|", "{", [true, false]),
        ] {
            let found = [
                is_too_high(&text(low), &file, &Primitive::String),
                is_too_low(&text(high), &file, &Primitive::String),
            ];
            assert_eq!(found, is_lie, "{low} {high}");
        }
        // What the file itself says is fine, as well as what is cut and raised elsewhere.
        assert!(!is_too_low(&long("z", "{"), &file, &Primitive::String));
        assert!(!is_too_low(&text(&format!("{}{{", "z".repeat(31))), &file, &Primitive::String));
        assert!(!is_too_high(&long("a", "ab"), &file, &Primitive::String));
    }

    #[test]
    fn decimals_are_apart_beyond_their_rounding() {
        let kind = Primitive::Decimal { precision: 20, scale: 2 };
        let decimal = |unscaled| Datum::Decimal { unscaled, scale: 2 };
        let real = decimal(100_000_000_000_000_000);
        let file = facts(real.clone(), real, true);
        let is_lie = |value: Value| is_too_low(&read_bound(&value, &kind).unwrap(), &file, &kind);
        for (value, expected) in [
            (json!("999999999999999.99"), true),
            (json!("1000000000000000.00"), false),
            (json!("1e15"), false),
            (json!(1e15_f64.next_down()), false),
            (json!(999_999_999_999_999_i64), true),
            (json!(999_999_999_999_995_i64), true),
        ] {
            assert_eq!(is_lie(value.clone()), expected, "{value}");
        }
    }
}
