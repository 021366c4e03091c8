//! Which way a page takes to its rows; pure.

use super::guide::{Piece, pieces_of};
use super::position::Indexes;
use super::source::View;
use super::{Listing, Segment};
use crate::catalog::{IndexRef, IndexState, TableRef};
use crate::partition::index_item;
use crate::partition::key::beginning::beginning_len;
use crate::partition::{Irregular, KeyType};
use crate::predicate::{Compiled, Completeness, KeyRange, Layout, Plan, plan};

/// Ranges and probes of a page in all shards together, about.
const PAGE_RANGES: usize = 256;

/// How rows are found.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Every row.
    All,
    /// By their values, which the filter says.
    Values { plan: Plan, values: Vec<Vec<String>> },
    /// By the entries of an index.
    Index { plan: Plan, index: IndexRef },
    /// In ranges of keys.
    Ranges { plan: Plan },
}

impl Way {
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Self::All => None,
            Self::Values { plan, .. } | Self::Index { plan, .. } | Self::Ranges { plan } => Some(plan),
        }
    }

    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.plan().map_or_else(|| vec![Piece::whole()], pieces_of)
    }
}

/// Ranges for each shard, so that all together stay within what one page asks for.
fn ranges_max(table: &TableRef, segment: Segment) -> usize {
    let shards = segment.shards(table.shards).len().max(1);
    (PAGE_RANGES / shards).max(1)
}

/// Which irregular values rows may have. What the head says is of the current epoch. While there are earlier ones, a row
/// may come from there between the reading of both, so anything is possible; later everything has been noted, and as
/// images in the history are noted as well, that holds for every moment in the past.
fn irregular_in(table: &TableRef) -> Irregular {
    if table.older_epochs.is_empty() { table.irregular } else { Irregular::ANY }
}

/// How the keys of the table's rows are made.
pub(super) fn layout_of(table: &TableRef) -> Layout {
    Layout::of_table(&table.epoch_types, table.keys.len()).with_at_most(irregular_in(table))
}

/// The way through the rows themselves.
pub(super) fn plan_ranges(table: &TableRef, segment: Segment, filter: &Compiled) -> Plan {
    plan(filter, &layout_of(table), ranges_max(table, segment))
}

/// The best way. Values and indexes know the current epoch only, and an index the latest state only.
pub(super) fn plan_way(table: &TableRef, listing: &Listing) -> Way {
    let Some(filter) = &listing.filter else { return Way::All };
    let plan = plan_ranges(table, listing.segment, filter);
    if !table.older_epochs.is_empty() {
        return Way::Ranges { plan };
    }
    // Rows of an uncertain probe have to be gone through.
    let is_told = plan.probes.iter().all(|probe| probe.is_certain);
    match &plan.keys {
        Some(keys) if is_told && keys.completeness == Completeness::Every => {
            let values = keys.values.clone();
            return Way::Values { plan, values };
        }
        _ => {}
    }
    if listing.view != View::Latest || listing.indexes == Indexes::GivenUp {
        return Way::Ranges { plan };
    }
    match plan_index(table, listing.segment, filter, &plan) {
        Some((index, plan)) => Way::Index { plan, index },
        None => Way::Ranges { plan },
    }
}

/// The index that narrows more than the order of the keys does.
fn plan_index(table: &TableRef, segment: Segment, filter: &Compiled, keys: &Plan) -> Option<(IndexRef, Plan)> {
    let of_keys = narrowness(keys, &types_in(table, &(0..table.keys.len()).collect::<Vec<_>>()));
    let usable = table.indexes.iter().filter(|index| index.state == IndexState::Active && index.is_complete);
    let plans = usable.filter_map(|index| {
        let order = index_item::order(table, index)?;
        let layout = Layout::reordered(&table.epoch_types, &order).with_at_most(irregular_in(table));
        let plan = plan(filter, &layout, ranges_max(table, segment));
        let narrowness = narrowness(&plan, &types_in(table, &order));
        (narrowness > of_keys).then_some((narrowness, index, plan))
    });
    // Of equals the first.
    let best = plans.reduce(|best, other| if other.0 > best.0 { other } else { best })?;
    Some((best.1.clone(), best.2))
}

fn types_in(table: &TableRef, order: &[usize]) -> Vec<KeyType> {
    order.iter().map(|at| table.epoch_types.get(*at).copied().unwrap_or(KeyType::Text)).collect()
}

/// Twice the number of leading keys that are down to single values in every range, and one more if the next is narrowed.
fn narrowness(plan: &Plan, types: &[KeyType]) -> usize {
    let of_range = |range: &KeyRange| {
        let mut points = 0;
        let mut beginning = 1;
        for positions in 1..=types.len() {
            let length = beginning_len(types, &range.low, positions);
            let prefix = range.low.get(..length).unwrap_or_default();
            if length <= beginning || range.high > KeyRange::with_prefix(prefix.to_vec()).high {
                break;
            }
            (points, beginning) = (positions, length);
        }
        let prefix = range.low.get(..beginning).unwrap_or_default();
        2 * points + usize::from(*range != KeyRange::with_prefix(prefix.to_vec()))
    };
    plan.ranges.iter().map(of_range).min().unwrap_or(usize::MAX)
}
