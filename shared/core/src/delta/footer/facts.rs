//! What row-group statistics say of a leaf: never more than they do.

use std::cmp::Ordering;

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::kind::Kind;
use super::value::{Datum, Raw};

/// An end of the range of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    pub value: Datum,
    /// Some row has this very value; texts may be cut, or rounded up.
    pub is_exact: bool,
}

/// What is known of a leaf in some rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeafFacts {
    /// Values and nulls.
    pub rows: u64,
    pub nulls: Option<u64>,
    /// At or below all values but NaN.
    pub low: Option<Bound>,
    /// At or above all values but NaN.
    pub high: Option<Bound>,
    pub may_be_nan: bool,
}

/// Facts about a leaf in one row group.
pub fn facts_of_group(group: &RowGroupMetaData, leaf: usize, kind: &Kind) -> LeafFacts {
    let may_be_nan = matches!(kind, Kind::Float | Kind::Double);
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    let mut facts = LeafFacts { rows, may_be_nan, ..LeafFacts::default() };
    let Some(statistics) = group.columns().get(leaf).and_then(|column| column.statistics()) else { return facts };
    facts.nulls = statistics.null_count_opt().filter(|nulls| *nulls <= rows);
    if statistics.nan_count_opt() == Some(0) {
        facts.may_be_nan = false;
    }
    // The old fields order bytes in a way that depends on the writer.
    let is_numeric = !matches!(statistics, Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_));
    if statistics.is_min_max_deprecated() && !is_numeric {
        return facts;
    }
    let (low, high) = bounds(statistics, kind);
    let is_odd = |end: &Option<Datum>| end.as_ref().is_some_and(Datum::is_nan);
    let is_upside_down = match (&low, &high) {
        (Some(low), Some(high)) => low.compare(high) == Some(Ordering::Greater),
        _ => false,
    };
    if is_odd(&low) || is_odd(&high) || is_upside_down {
        return facts;
    }
    // Numbers are never cut, whatever the flags say or leave out.
    let is_whole = |value: &Datum| !matches!(value, Datum::Text(_) | Datum::Bytes(_));
    facts.low = low.map(|value| Bound { is_exact: is_whole(&value) || statistics.min_is_exact(), value });
    facts.high = high.map(|value| Bound { is_exact: is_whole(&value) || statistics.max_is_exact(), value });
    facts
}

/// Facts about a leaf in a whole file. A bound is there only if every row group with values has it.
pub fn facts_of_file(metadata: &ParquetMetaData, leaf: usize, kind: &Kind) -> LeafFacts {
    let mut sum = LeafFacts { nulls: Some(0), ..LeafFacts::default() };
    let (mut low, mut high): (Option<Option<Bound>>, Option<Option<Bound>>) = (None, None);
    for group in metadata.row_groups().iter().filter(|group| group.num_rows() > 0) {
        let facts = facts_of_group(group, leaf, kind);
        sum.rows = sum.rows.saturating_add(facts.rows);
        sum.nulls = sum.nulls.zip(facts.nulls).and_then(|(a, b)| a.checked_add(b));
        if facts.nulls == Some(facts.rows) {
            continue;
        }
        sum.may_be_nan |= facts.may_be_nan;
        low = Some(outer(low, facts.low, Ordering::Less));
        high = Some(outer(high, facts.high, Ordering::Greater));
    }
    LeafFacts { low: low.flatten(), high: high.flatten(), ..sum }
}

/// Entries of a leaf in a whole file that have no value; nothing where a row group does not tell.
pub fn nulls_of_file(metadata: &ParquetMetaData, leaf: usize) -> Option<u64> {
    let groups = metadata.row_groups().iter().filter(|group| group.num_rows() > 0);
    groups
        .into_iter()
        .try_fold(0_u64, |sum, group| sum.checked_add(group.columns().get(leaf)?.statistics()?.null_count_opt()?))
}

/// The bound further out; none where one of them is unknown.
fn outer(sum: Option<Option<Bound>>, next: Option<Bound>, wanted: Ordering) -> Option<Bound> {
    let Some(sum) = sum else { return next };
    let (sum, next) = (sum?, next?);
    let ordering = next.value.compare(&sum.value)?;
    Some(if ordering == wanted { next } else { sum })
}

/// The ends of one kind of statistics; the crate's value types cannot be named in a generic function.
macro_rules! ends {
    ($values:expr, $kind:expr, $raw:expr) => {{
        let decode = |end: Option<_>| end.and_then(|value| Datum::decode($kind, $raw(value)));
        (decode($values.min_opt()), decode($values.max_opt()))
    }};
}

fn bounds(statistics: &Statistics, kind: &Kind) -> (Option<Datum>, Option<Datum>) {
    match statistics {
        Statistics::Boolean(values) => ends!(values, kind, |value: &bool| Raw::Flag(*value)),
        Statistics::Int32(values) => ends!(values, kind, |value: &i32| Raw::Int32(*value)),
        Statistics::Int64(values) => ends!(values, kind, |value: &i64| Raw::Int64(*value)),
        // Writers disagree on how to order them.
        Statistics::Int96(_) => (None, None),
        Statistics::Float(values) => ends!(values, kind, |value: &f32| Raw::Float(*value)),
        Statistics::Double(values) => ends!(values, kind, |value: &f64| Raw::Double(*value)),
        Statistics::ByteArray(values) => byte_ends((values.min_bytes_opt(), values.max_bytes_opt()), kind),
        Statistics::FixedLenByteArray(values) => byte_ends((values.min_bytes_opt(), values.max_bytes_opt()), kind),
    }
}

/// Ends that are bytes.
fn byte_ends(ends: (Option<&[u8]>, Option<&[u8]>), kind: &Kind) -> (Option<Datum>, Option<Datum>) {
    let decode = |end: Option<&[u8]>| end.and_then(|bytes| Datum::decode(kind, Raw::Bytes(bytes)));
    (decode(ends.0), decode(ends.1))
}
