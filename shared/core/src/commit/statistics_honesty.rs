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
use crate::delta::footer::{Bound, Datum, FileField, FileIndex, Kind, LeafFacts, Node, facts_of_file};
use crate::delta::json::parse_strict;
use crate::delta::schema::{DataType, Field, MappingMode, Primitive, Schema, join};

const NANOS_PER_MILLI: i128 = 1_000_000;
/// Writers of Parquet cut longer texts; a shorter one is some row's value whether or not the file says so.
const CUT_TEXT_MIN_BYTES: usize = 16;
/// Decimals go through floats of 64 bits.
const DECIMAL_ERROR: f64 = 1e-14;

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
                (DataType::Primitive(_), None | Some(Node::Leaf { .. })) => {
                    self.null_count(&path, name, Some(self.rows), said)
                }
                _ => None,
            }
        })
    }

    fn column(&self, path: &str, name: &str, kind: &Primitive, facts: &LeafFacts, said: Said<'_>) -> Option<Lie> {
        if let Some(lie) = self.null_count(path, name, facts.nulls, said) {
            return Some(lie);
        }
        let lie = |part, said: &Value, real: &Bound| {
            Some(Lie { part, column: path.to_owned(), said: said.to_string(), real: real.value.to_string() })
        };
        if let (Some(value), Some(real)) = (said.low.and_then(|map| map.get(name)), &facts.low)
            && stated(value, kind).is_some_and(|stated| is_too_high(&stated, real, kind))
        {
            return lie("minValues", value, real);
        }
        if let (Some(value), Some(real)) = (said.high.and_then(|map| map.get(name)), &facts.high)
            && stated(value, kind).is_some_and(|stated| is_too_low(&stated, real, kind))
        {
            return lie("maxValues", value, real);
        }
        None
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

/// What the commit says, as a value; none where it says nothing that can be compared.
fn stated(value: &Value, kind: &Primitive) -> Option<Datum> {
    match (kind, value) {
        (Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long, Value::Number(number)) => {
            number.as_i64().map(|value| Datum::Int(value.into()))
        }
        (Primitive::Float, Value::Number(number)) => number.as_f64().map(|value| Datum::Float(f64::from(value as f32))),
        (Primitive::Double, Value::Number(number)) => number.as_f64().map(Datum::Float),
        (Primitive::Decimal { .. }, Value::Number(number)) => number.as_f64().map(Datum::Float),
        (Primitive::Decimal { .. }, Value::String(text)) => text.parse().ok().map(Datum::Float),
        (Primitive::String, Value::String(text)) => Some(Datum::Text(text.clone())),
        (Primitive::Boolean, Value::Bool(flag)) => Some(Datum::Flag(*flag)),
        (Primitive::Date, Value::String(text)) => parse_day(text).map(Datum::Day),
        (Primitive::Timestamp | Primitive::TimestampNtz, Value::String(text)) => {
            parse_instant(text).map(Datum::Instant)
        }
        _ => None,
    }
}

/// Whether a row surely lies below the stated minimum.
fn is_too_high(stated: &Datum, real: &Bound, kind: &Primitive) -> bool {
    let is_below = real.value.compare(stated) == Some(Ordering::Less);
    match (&real.value, stated) {
        // A cut text stands for all that begin with it.
        (Datum::Text(real_text), Datum::Text(stated)) => {
            is_below && (is_value_of_a_row(real) || !stated.starts_with(real_text.as_str()))
        }
        (_, Datum::Float(stated)) if matches!(kind, Primitive::Decimal { .. }) => {
            is_below && !is_near(&real.value, *stated)
        }
        _ => is_below,
    }
}

/// Whether a row surely lies above the stated maximum.
fn is_too_low(stated: &Datum, real: &Bound, kind: &Primitive) -> bool {
    let is_above = real.value.compare(stated) == Some(Ordering::Greater);
    match (&real.value, stated) {
        (Datum::Text(_), Datum::Text(_)) => is_above && is_value_of_a_row(real),
        (Datum::Instant(real), Datum::Instant(stated)) => {
            real.div_euclid(NANOS_PER_MILLI) > stated.div_euclid(NANOS_PER_MILLI)
        }
        (_, Datum::Float(stated)) if matches!(kind, Primitive::Decimal { .. }) => {
            is_above && !is_near(&real.value, *stated)
        }
        _ => is_above,
    }
}

fn is_near(real: &Datum, stated: f64) -> bool {
    real.to_f64().is_some_and(|real| (real - stated).abs() <= DECIMAL_ERROR * real.abs().max(stated.abs()))
}
