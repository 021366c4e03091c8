//! Partition columns that are in the file as well: each row must have the value that the commit says.

use std::cmp::Ordering;

use parquet::file::metadata::ParquetMetaData;

use super::FileJudge;
use crate::commit::constraints::partition_datum;
use crate::commit::statistics_honesty::is_value_of_a_row;
use crate::commit::verdict::{Exception, Refusal, clip};
use crate::delta::AddFile;
use crate::delta::footer::{Bound, FileField, LeafFacts, Node, facts_of_file, find};
use crate::delta::schema::DataType;

/// Warns of values about which the file's statistics do not tell.
pub(super) fn check_partition_values(
    add: &AddFile,
    metadata: &ParquetMetaData,
    fields: &[FileField],
    judge: &FileJudge<'_>,
) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
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
        match agrees(expected.as_ref(), &facts) {
            Some(true) => {}
            None => {
                warnings.push(format!("column {}: not proved to have the partition value in every row", field.name))
            }
            Some(false) => {
                let said = expected.map_or_else(|| "null".to_owned(), |value| value.to_string());
                let text =
                    format!("partition column `{}` is {said} in the commit, the file has other values", field.name);
                let advice =
                    "leave partition columns out of data files, or write each partition's rows to its own files";
                let mut refusal = Refusal::new(Exception::SchemaMismatchException, "PARTITION_VALUES", text, advice)
                    .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH")
                    .file(&add.path)
                    .column(&field.name);
                refusal.place.expected = Some(clip(&said));
                refusal.place.found = Some(clip(&describe(&facts)));
                return Err(refusal);
            }
        }
    }
    Ok(warnings)
}

/// Whether every row has the value; none: the statistics do not tell.
fn agrees(expected: Option<&crate::delta::footer::Datum>, facts: &LeafFacts) -> Option<bool> {
    let Some(expected) = expected else { return facts.nulls.map(|nulls| nulls == facts.rows) };
    if facts.nulls.is_some_and(|nulls| nulls > 0) {
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
