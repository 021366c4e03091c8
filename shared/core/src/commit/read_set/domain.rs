//! What a file's action says of the values of one column: its partition value, or bounds from its statistics.
//!
//! Bounds only ever enclose the values. Statistics are hints of strangers: texts are cut (and their upper ends rounded up,
//! or not), timestamps are cut to milliseconds, floats of 32 bits are written in decimals, decimals go through floats, NaN
//! is left out, columns beyond the indexed ones are missing, and anything may be garbage. What is absent, of another type
//! or contradicts itself is unknown. Under deletion vectors bounds are wide, which changes nothing here.

use serde_json::{Map, Value as Json};

use crate::commit::partition_values::HIVE_DEFAULT_PARTITION;
use crate::commit::sql::value::{self, Reading, Span, Value};
use crate::commit::sql::{Instant, parse_day};
use crate::delta::PartitionValues;
use crate::delta::footer::{Bound, Datum, LeafFacts};
use crate::delta::json::parse_strict;
use crate::delta::schema::Primitive;
use crate::partition::Number;

/// Writers cut texts at 32 characters or 64 bytes; one that is so long may be cut.
const CUT_TEXT_MIN_CHARS: usize = 16;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Decimals of so many digits survive a float.
pub const FLOAT_DIGITS: u8 = 15;

/// The values that a column may have in the rows of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    pub low: Option<Value>,
    pub high: Option<Value>,
    pub may_be_null: bool,
    /// Some row may have a value, or NaN.
    pub may_be_value: bool,
    pub may_be_nan: bool,
}

impl Domain {
    /// Nothing is known.
    pub fn any(kind: &Primitive) -> Domain {
        Domain { low: None, high: None, may_be_null: true, may_be_value: true, may_be_nan: is_float(kind) }
    }

    /// One row of a file. What is not compared with a column of this type may be anything but null.
    pub fn of_row(value: Option<&Datum>, kind: &Primitive) -> Domain {
        let Some(datum) = value else {
            return Domain { low: None, high: None, may_be_null: true, may_be_value: false, may_be_nan: false };
        };
        let known = Domain { may_be_null: false, ..Domain::any(kind) };
        match Value::of(datum, kind) {
            Some(Reading::Value(value)) => Domain { may_be_nan: false, ..known }.between(Span::at(value)),
            // Above all numbers, where it is compared at all.
            Some(Reading::NaN) => known.between(Span::at(Value::Float(f64::INFINITY))),
            None => known,
        }
    }

    /// The rows that a footer's statistics speak of.
    pub fn of_facts(facts: &LeafFacts, kind: &Primitive) -> Domain {
        let end = |bound: &Option<Bound>| match Value::of(&bound.as_ref()?.value, kind)? {
            Reading::Value(value) => Some(Span::at(value)),
            Reading::NaN => None,
        };
        Domain {
            low: end(&facts.low).map(|span| span.low),
            high: end(&facts.high).map(|span| span.high),
            may_be_null: facts.nulls != Some(0),
            may_be_value: facts.nulls.is_none_or(|nulls| nulls < facts.rows),
            may_be_nan: facts.may_be_nan && is_float(kind),
        }
    }

    fn between(self, span: Span) -> Domain {
        Domain { low: Some(span.low), high: Some(span.high), ..self }
    }

    /// A partition column: one value for all rows. An empty text is null.
    pub fn of_partition(values: Option<&PartitionValues>, name: &str, kind: &Primitive) -> Domain {
        let Some(found) = values.and_then(|values| values.get(name)) else { return Domain::any(kind) };
        let Some(text) = found.as_deref().filter(|text| !text.is_empty()) else {
            return Domain { low: None, high: None, may_be_null: true, may_be_value: false, may_be_nan: false };
        };
        let known = Domain { may_be_null: false, ..Domain::any(kind) };
        match value::read(text, kind) {
            _ if *kind == Primitive::Binary => known,
            // Some writers meant null.
            _ if text == HIVE_DEFAULT_PARTITION => Domain::any(kind),
            Some(Reading::Value(value)) => {
                let span = Span::at(value);
                Domain { low: Some(span.low), high: Some(span.high), may_be_nan: false, ..known }
            }
            Some(Reading::NaN) => known,
            None => Domain::any(kind),
        }
    }

    /// A data column.
    pub fn of_stats(stats: Option<&Stats>, path: &[String], kind: &Primitive) -> Domain {
        let Some(stats) = stats else { return Domain::any(kind) };
        let mut domain = Domain::any(kind);
        if let Some(nulls) = stats.null_count(path) {
            match stats.rows {
                Some(rows) if nulls > rows => return domain,
                Some(rows) if nulls == rows && rows > 0 => domain.may_be_value = false,
                _ => {}
            }
            domain.may_be_null = nulls > 0;
        }
        domain.low = find(&stats.min, path).and_then(|found| bound(found, kind)).map(|span| lowest(span.low));
        domain.high = find(&stats.max, path).and_then(|found| bound(found, kind)).and_then(|span| highest(span.high));
        let is_upside_down = match (&domain.low, &domain.high) {
            (Some(low), Some(high)) => low.compare(high).is_none_or(std::cmp::Ordering::is_gt),
            _ => false,
        };
        if is_upside_down {
            (domain.low, domain.high) = (None, None);
        }
        domain
    }
}

pub fn is_float(kind: &Primitive) -> bool {
    matches!(kind, Primitive::Float | Primitive::Double)
}

/// `add.stats`, parsed.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub rows: Option<u64>,
    pub min: Map<String, Json>,
    pub max: Map<String, Json>,
    pub nulls: Map<String, Json>,
}

impl Stats {
    /// Nothing for a text that is no object.
    pub fn parse(text: &str) -> Option<Stats> {
        let Json::Object(mut members) = parse_strict(text).ok()? else { return None };
        let mut take = |name: &str| match members.remove(name) {
            Some(Json::Object(inner)) => inner,
            _ => Map::new(),
        };
        let (min, max, nulls) = (take("minValues"), take("maxValues"), take("nullCount"));
        Some(Stats { rows: members.get("numRecords").and_then(Json::as_u64), min, max, nulls })
    }

    pub fn null_count(&self, path: &[String]) -> Option<u64> {
        find(&self.nulls, path)?.as_u64()
    }
}

/// The leaf at a path of names.
pub fn find<'a>(members: &'a Map<String, Json>, path: &[String]) -> Option<&'a Json> {
    let (last, above) = path.split_last()?;
    let mut members = members;
    for step in above {
        members = members.get(step)?.as_object()?;
    }
    members.get(last).filter(|found| !found.is_null() && !found.is_object())
}

/// Where the true bound lies that a statistic tells; nothing if it does not fit the type.
pub fn bound(found: &Json, kind: &Primitive) -> Option<Span> {
    let text = match found {
        Json::String(text) => text.clone(),
        Json::Number(_) if *kind == Primitive::String => return None,
        Json::Number(number) => number.to_string(),
        Json::Bool(flag) => flag.to_string(),
        _ => return None,
    };
    match kind {
        Primitive::Binary => None,
        Primitive::Date => parse_day(&text).map(|day| Span::at(Value::Day(day))),
        Primitive::Timestamp | Primitive::TimestampNtz => {
            let instant = Instant::parse(&text)?;
            // Without a zone where there should be one, it is anybody's.
            let is_zoned = instant.offset_seconds.is_some();
            let fits = is_zoned == (*kind == Primitive::Timestamp);
            fits.then(|| Span::at(Value::Instant(instant.utc_nanos())))
        }
        Primitive::Float | Primitive::Double => match found {
            Json::Number(number) => float_bound(number.as_f64()?, kind),
            _ => float_bound(text.parse().ok()?, kind),
        },
        Primitive::Decimal { precision, .. } => decimal_bound(&text, *precision),
        Primitive::String => Some(Span::at(Value::Text(text))),
        _ => match value::read(&text, kind)? {
            Reading::Value(value) => Some(Span::at(value)),
            Reading::NaN => None,
        },
    }
}

fn float_bound(found: f64, kind: &Primitive) -> Option<Span> {
    if found.is_nan() {
        return None;
    }
    if *kind == Primitive::Double {
        return Some(Span::at(Value::Float(found)));
    }
    // Shortest decimals of 32 bits are not those of 64 bits: the value is the nearest of 32 bits.
    #[allow(clippy::cast_possible_truncation, reason = "rounding to the column's type is the point")]
    let near = found as f32;
    let around = [near.next_down(), near.next_up()].map(f64::from);
    let [low, high] = around;
    Some(Span { low: Value::Float(low.min(found)), high: Value::Float(high.max(found)) })
}

/// Long decimals may have been written through a float.
pub fn decimal_bound(text: &str, precision: u8) -> Option<Span> {
    let exact = Number::parse_decimal(text)?;
    let is_exact = precision <= FLOAT_DIGITS || !text.contains(['.', 'e', 'E']);
    if is_exact {
        return Some(Span::at(Value::Exact(exact)));
    }
    let near: f64 = text.parse().ok()?;
    let error = near.abs() * 4.0 * f64::EPSILON;
    let number = |at: f64| Number::parse_decimal(&format!("{at:e}")).map(Value::Exact);
    Some(Span { low: number((near - error).next_down())?, high: number((near + error).next_up())? })
}

/// The least value that a lower bound allows.
fn lowest(low: Value) -> Value {
    match low {
        // Some writers round towards zero.
        Value::Instant(nanos) if nanos < 0 && nanos % NANOS_PER_MILLI == 0 => {
            Value::Instant(nanos - (NANOS_PER_MILLI - 1))
        }
        Value::Text(text) if may_be_cut(&text) => Value::Text(text.trim_end_matches('\u{fffd}').to_owned()),
        low => low,
    }
}

/// The greatest value that an upper bound allows; nothing if any.
fn highest(high: Value) -> Option<Value> {
    match high {
        Value::Instant(nanos) if nanos % NANOS_PER_MILLI == 0 => Some(Value::Instant(nanos + NANOS_PER_MILLI - 1)),
        Value::Text(text) if may_be_cut(&text) => {
            // Half a character may have become a question mark.
            after_prefix(text.trim_end_matches(['\u{fffd}', '?'])).map(Value::Text)
        }
        high => Some(high),
    }
}

fn may_be_cut(text: &str) -> bool {
    text.chars().nth(CUT_TEXT_MIN_CHARS - 1).is_some()
}

/// A text above all that begin with `prefix`.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut kept: Vec<char> = prefix.chars().collect();
    while let Some(last) = kept.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            kept.push(next);
            return Some(kept.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn domain(stats: &Json, kind: &Primitive) -> Domain {
        let stats = Stats::parse(&stats.to_string());
        Domain::of_stats(stats.as_ref(), &["c".to_owned()], kind)
    }

    fn bounds(min: Json, max: Json, kind: &Primitive) -> (Option<Value>, Option<Value>) {
        let found = domain(&json!({"minValues": {"c": min}, "maxValues": {"c": max}}), kind);
        (found.low, found.high)
    }

    #[test]
    fn texts_may_be_cut() {
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        assert_eq!(bounds(json!("a"), json!("b"), &Primitive::String), (text("a"), text("b")));
        let long = "x".repeat(20);
        let (low, high) = bounds(json!(long), json!(long), &Primitive::String);
        assert_eq!(low, text(&long));
        assert_eq!(high, text(&format!("{}y", "x".repeat(19))));
        let top = "\u{10ffff}".repeat(20);
        assert_eq!(bounds(json!("a"), json!(top), &Primitive::String).1, None);
        let broken = format!("{}?", "x".repeat(31));
        assert_eq!(bounds(json!("a"), json!(broken), &Primitive::String).1, text(&format!("{}y", "x".repeat(30))));
    }

    #[test]
    fn timestamps_are_cut_to_milliseconds() {
        let nanos = |text: &str| Instant::parse(text).unwrap().utc_nanos();
        let (low, high) =
            bounds(json!("2024-01-01T00:00:00.123Z"), json!("2024-01-01T00:00:00.123Z"), &Primitive::Timestamp);
        assert_eq!(low, Some(Value::Instant(nanos("2024-01-01T00:00:00.123"))));
        assert_eq!(high, Some(Value::Instant(nanos("2024-01-01T00:00:00.123999999"))));
        let early = json!("1960-01-01T00:00:00.123Z");
        let (low, _) = bounds(early.clone(), early, &Primitive::Timestamp);
        assert_eq!(low, Some(Value::Instant(nanos("1960-01-01T00:00:00.122000001"))));
        let zoneless = json!("2024-01-01 00:00:00.123");
        assert_eq!(bounds(zoneless.clone(), zoneless.clone(), &Primitive::Timestamp), (None, None));
        assert!(bounds(zoneless.clone(), zoneless, &Primitive::TimestampNtz).0.is_some());
    }

    #[test]
    fn garbage_is_unknown() {
        for (min, max, kind) in [
            (json!(5), json!(1), Primitive::Long),
            (json!("x"), json!("y"), Primitive::Long),
            (json!(1.5), json!(2.5), Primitive::Long),
            (json!(1), json!(300), Primitive::Byte),
            (json!({"a": 1}), json!([1]), Primitive::Long),
            (json!(1), json!(2), Primitive::String),
            (json!("NaN"), json!("NaN"), Primitive::Double),
            (json!("x"), json!("y"), Primitive::Binary),
        ] {
            let (low, high) = bounds(min.clone(), max, &kind);
            assert!(low.is_none() || high.is_none(), "{min} {kind}");
        }
        assert_eq!(Stats::parse("[]").map(|_| ()), None);
        assert_eq!(Stats::parse("{\"a\":1,\"a\":1}").map(|_| ()), None);
        assert!(bounds(json!("3"), json!("7"), &Primitive::Long).0.is_some());
        assert!(bounds(json!("-Infinity"), json!("Infinity"), &Primitive::Double).1.is_some());
    }

    #[test]
    fn nulls_are_counted() {
        let with = |rows: Json, nulls: Json| {
            let found = domain(&json!({"numRecords": rows, "nullCount": {"c": nulls}}), &Primitive::Long);
            (found.may_be_null, found.may_be_value)
        };
        assert_eq!(with(json!(3), json!(0)), (false, true));
        assert_eq!(with(json!(3), json!(1)), (true, true));
        assert_eq!(with(json!(3), json!(3)), (true, false));
        assert_eq!(with(json!(3), json!(4)), (true, true));
        assert_eq!(with(json!(null), json!(0)), (false, true));
        assert_eq!(with(json!(3), json!(-1)), (true, true));
        assert_eq!(with(json!(3), json!(null)), (true, true));
    }

    #[test]
    fn decimals_and_floats_keep_their_distance() {
        let long = Primitive::Decimal { precision: 38, scale: 10 };
        let (low, high) = bounds(json!(1_234_567_890_123_456.7), json!(1_234_567_890_123_456.7), &long);
        assert!(low.unwrap().compare(&high.unwrap()).unwrap().is_lt());
        let short = Primitive::Decimal { precision: 12, scale: 2 };
        let (low, high) = bounds(json!(6.6), json!(6.6), &short);
        assert_eq!(low, high);
        let (low, high) = bounds(json!(0.1), json!(0.1), &Primitive::Float);
        let narrow = Value::Float(f64::from(0.1_f32));
        assert!(low.unwrap().compare(&narrow).unwrap().is_le() && high.unwrap().compare(&narrow).unwrap().is_ge());
    }
}
