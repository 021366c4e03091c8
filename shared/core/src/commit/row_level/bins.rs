//! Which inputs and outputs of a rearrangement belong together.
//!
//! Rows never change their partition, and a row of an input cannot be in an output whose bounds it does not fit. What is
//! left is a graph; its connected parts are bins, if in each the outputs have as many rows as the inputs. That is proof, as
//! far as statistics can be trusted: nothing is guessed from sizes or from the order of lines.

use crate::commit::read_set::{Domain, Stats, physical_name};
use crate::commit::table_facts::TableFacts;
use crate::delta::schema::{DataType, Primitive};
use crate::delta::{AddFile, PartitionValues};

/// Pairs of inputs and outputs that are compared.
const PAIRS_MAX: usize = 250_000;

/// Places of inputs and of outputs that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

struct File {
    /// An empty text is null.
    partition: PartitionValues,
    /// Not deleted ones.
    rows: u64,
    domains: Vec<Domain>,
}

/// The bins; nothing where they cannot be proved.
pub fn bins(table: TableFacts<'_>, inputs: &[AddFile], outputs: &[AddFile]) -> Option<Vec<Bin>> {
    if inputs.is_empty() || inputs.len().saturating_mul(outputs.len()) > PAIRS_MAX {
        return None;
    }
    let columns = plain_columns(table);
    let looked = |files: &[AddFile]| files.iter().map(|file| look(file, &columns)).collect::<Option<Vec<File>>>();
    let (inputs, outputs) = (looked(inputs)?, looked(outputs)?);
    // Inputs first, then outputs.
    let mut parents: Vec<usize> = (0..inputs.len() + outputs.len()).collect();
    for (at, input) in inputs.iter().enumerate() {
        for (place, output) in outputs.iter().enumerate() {
            if may_share_rows(input, output) {
                join(&mut parents, at, inputs.len() + place);
            }
        }
    }
    let mut found: std::collections::BTreeMap<usize, Bin> = std::collections::BTreeMap::new();
    for at in 0..parents.len() {
        let bin = found.entry(root(&parents, at)).or_default();
        match at.checked_sub(inputs.len()) {
            None => bin.inputs.push(at),
            Some(place) => bin.outputs.push(place),
        }
    }
    let sum = |files: &[File], places: &[usize]| -> u64 {
        places.iter().filter_map(|place| files.get(*place)).map(|file| file.rows).sum()
    };
    let bins: Vec<Bin> = found.into_values().collect();
    bins.iter().all(|bin| sum(&inputs, &bin.inputs) == sum(&outputs, &bin.outputs)).then_some(bins)
}

fn root(parents: &[usize], mut at: usize) -> usize {
    while let Some(above) = parents.get(at).copied().filter(|above| *above != at) {
        at = above;
    }
    at
}

fn join(parents: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parents, a), root(parents, b));
    if let Some(parent) = parents.get_mut(a.max(b)) {
        *parent = a.min(b);
    }
}

fn plain_columns(table: TableFacts<'_>) -> Vec<(Vec<String>, Primitive)> {
    let fields = table.schema.fields.iter().filter(|field| !table.metadata.partition_columns.contains(&field.name));
    fields
        .filter_map(|field| match &field.data_type {
            DataType::Primitive(kind) => Some((vec![physical_name(table.metadata, field).to_owned()], kind.clone())),
            _ => None,
        })
        .collect()
}

fn look(file: &AddFile, columns: &[(Vec<String>, Primitive)]) -> Option<File> {
    let stats = file.stats.as_deref().and_then(Stats::parse);
    let deleted = file.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
    let rows = stats.as_ref()?.rows?.checked_sub(u64::try_from(deleted).ok()?)?;
    let domains = columns.iter().map(|(path, kind)| Domain::of_stats(stats.as_ref(), path, kind)).collect();
    let told = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let partition = file.partition_values.iter().map(|(name, value)| (name.clone(), told(value))).collect();
    Some(File { partition, rows, domains })
}

fn may_share_rows(a: &File, b: &File) -> bool {
    if a.partition != b.partition || a.rows == 0 || b.rows == 0 {
        return false;
    }
    a.domains.iter().zip(&b.domains).all(|(a, b)| may_share_values(a, b))
}

/// Whether some value, null or NaN may be in both.
fn may_share_values(a: &Domain, b: &Domain) -> bool {
    if (a.may_be_null && b.may_be_null) || (a.may_be_nan && b.may_be_nan) {
        return true;
    }
    if !a.may_be_value || !b.may_be_value {
        return false;
    }
    let lies_below = |a: &Domain, b: &Domain| match (&a.high, &b.low) {
        (Some(high), Some(low)) => high.compare(low).is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    };
    !lies_below(a, b) && !lies_below(b, a)
}
