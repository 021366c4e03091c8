//! Partition columns that are in the file as well: each row must have the value that the commit says.

use std::cmp::Ordering;

use parquet::file::metadata::ParquetMetaData;

use super::FileJudge;
use crate::commit::constraints::partition_datum;
use crate::commit::statistics_honesty::{is_too_high, is_too_low, is_value_of_a_row};
use crate::commit::verdict::{Exception, Refusal, clip};
use crate::delta::AddFile;
use crate::delta::footer::{Bound, Datum, FileField, Kind, LeafFacts, Node, facts_of_file, find};
use crate::delta::schema::{DataType, Primitive};

/// A partition column in a file of which the statistics do not tell whether every row has the partition's value.
pub(super) struct Unsaid {
    pub column: String,
    pub leaf: usize,
    pub kind: Kind,
    pub expected: Option<Datum>,
}

/// Refuses other values than the partition's; answers those that are to be looked at.
pub(super) fn check_partition_values(
    add: &AddFile,
    metadata: &ParquetMetaData,
    fields: &[FileField],
    judge: &FileJudge<'_>,
) -> Result<Vec<Unsaid>, Refusal> {
    let mut unsaid = Vec::new();
    for field in &judge.admission.schema.fields {
        let name = field.physical_name(judge.mode);
        let (Some(value), DataType::Primitive(kind)) = (add.partition_values.get(name), &field.data_type) else {
            continue;
        };
        let Some(FileField { node: Node::Leaf { kind: found, leaf }, .. }) = find(fields, field, judge.mode) else {
            continue;
        };
        let Some(expected) = partition_datum(value.as_deref(), kind) else { continue };
        let facts = facts_of_file(metadata, *leaf, found);
        if facts.rows == 0 {
            continue;
        }
        let column = field.name.clone();
        let one = Unsaid { column, leaf: *leaf, kind: found.clone(), expected };
        match agrees(one.expected.as_ref(), &facts) {
            Some(true) => {}
            None => unsaid.push(one),
            Some(false) => return Err(one.refusal(&add.path, &describe(&facts))),
        }
    }
    Ok(unsaid)
}

impl Unsaid {
    pub fn said(&self) -> String {
        self.expected.as_ref().map_or_else(|| "null".to_owned(), Datum::to_string)
    }

    /// Whether a row's value is the partition's.
    pub fn is_same(&self, found: Option<&Datum>) -> bool {
        match (&self.expected, found) {
            (None, found) => found.is_none(),
            (Some(expected), Some(found)) => expected.compare(found) == Some(Ordering::Equal),
            (Some(_), None) => false,
        }
    }

    pub fn refusal(&self, path: &str, found: &str) -> Refusal {
        let (column, said) = (&self.column, self.said());
        let text = format!("partition column `{column}` is {said} in the commit, the file has other values");
        let advice = "leave partition columns out of data files, or write each partition's rows to its own files";
        let mut refusal = Refusal::new(Exception::SchemaMismatchException, "PARTITION_VALUES", text, advice)
            .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH")
            .file(path)
            .column(column);
        (refusal.place.expected, refusal.place.found) = (Some(clip(&said)), Some(clip(found)));
        refusal
    }
}

/// Whether every row has the value; none: the statistics do not tell.
fn agrees(expected: Option<&Datum>, facts: &LeafFacts) -> Option<bool> {
    let Some(expected) = expected else { return facts.nulls.map(|nulls| nulls == facts.rows) };
    if facts.nulls.is_some_and(|nulls| nulls > 0) {
        return Some(false);
    }
    let is_text = matches!(expected, Datum::Text(_));
    if is_text && (is_too_high(expected, facts, &Primitive::String) || is_too_low(expected, facts, &Primitive::String))
    {
        return Some(false);
    }
    let (low, high) = (facts.low.as_ref()?, facts.high.as_ref()?);
    let (below, above) = (low.value.compare(expected)?, high.value.compare(expected)?);
    if below == Ordering::Greater || above == Ordering::Less {
        return Some(false);
    }
    if [(low, below), (high, above)].iter().any(|(end, found)| *found != Ordering::Equal && is_value_of_a_row(end)) {
        return Some(false);
    }
    (below == Ordering::Equal && above == Ordering::Equal && facts.nulls == Some(0)).then_some(true)
}

/// Statistics in words.
pub(super) fn describe(facts: &LeafFacts) -> String {
    let end = |bound: &Option<Bound>| bound.as_ref().map_or_else(|| "?".to_owned(), |bound| bound.value.to_string());
    let nulls = facts.nulls.map_or_else(|| "an unknown number of".to_owned(), |nulls| nulls.to_string());
    format!("{} to {}, {nulls} nulls", end(&facts.low), end(&facts.high))
}
