//! How a page found its rows and what that cost.

use serde_json::{Value as Json, json};

use super::Listing;
use super::source::Reads;
use super::way::Way;
use crate::catalog::TableRef;
use crate::predicate::KeyRange;

/// The way of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// `all`, `values`, `index` or `ranges`.
    pub way: &'static str,
    /// Name of the index.
    pub index: Option<String>,
    /// Of keys, or of entries of the index; each is read in every shard of the segment.
    pub ranges: Vec<KeyRange>,
    /// Where values lie that cannot be read, with the name of their key. Looked at on the first page.
    pub probes: Vec<(KeyRange, String)>,
    /// Whether rows are judged one by one.
    pub has_residual: bool,
    /// Partitions that were got by their values, if the filter says them.
    pub values: usize,
    pub shards: usize,
    pub queries: u64,
    pub items_read: u64,
}

impl Explained {
    pub(super) fn new(table: &TableRef, listing: &Listing, way: &Way, reads: &Reads<'_>) -> Self {
        let plan = way.plan();
        let key = |at: usize| table.keys.get(at).map(|key| key.name.clone()).unwrap_or_default();
        let probes = plan.map(|plan| plan.probes.iter().map(|probe| (probe.range.clone(), key(probe.position))));
        let (name, index, values) = match way {
            Way::All => ("all", None, 0),
            Way::Values { values, .. } => ("values", None, values.len()),
            Way::Index { index, .. } => ("index", Some(index.name.clone()), 0),
            Way::Ranges { .. } => ("ranges", None, 0),
        };
        let ranges = match way {
            Way::Values { .. } => Vec::new(),
            _ => plan.map(|plan| plan.ranges.clone()).unwrap_or_default(),
        };
        Self {
            way: name,
            index,
            ranges,
            probes: probes.into_iter().flatten().collect(),
            // Partitions that the filter says by their values are all asked for, also where its ranges were joined.
            has_residual: !matches!(way, Way::Values { .. }) && plan.is_some_and(|plan| !plan.is_exact),
            values,
            shards: listing.segment.shards(table.shards).len(),
            queries: reads.queries(),
            items_read: reads.items(),
        }
    }

    /// As members; keys in hexadecimal digits, up to but without `High`. `residual` is shown if rows are judged by it.
    pub fn to_json(&self, residual: &str) -> Json {
        let range = |range: &KeyRange| json!({ "Low": hex::encode(&range.low), "High": hex::encode(&range.high) });
        let probe = |(range, key): &(KeyRange, String)| json!({ "Low": hex::encode(&range.low), "High": hex::encode(&range.high), "Key": key });
        json!({
            "Way": self.way,
            "Index": self.index,
            "Ranges": self.ranges.iter().map(range).collect::<Vec<_>>(),
            "Probes": self.probes.iter().map(probe).collect::<Vec<_>>(),
            "Residual": self.has_residual.then_some(residual),
            "Values": self.values,
            "Shards": self.shards,
            "Queries": self.queries,
            "ItemsRead": self.items_read,
        })
    }
}
