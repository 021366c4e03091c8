//! Which way a page takes to its rows; pure.

use super::groups::Order;
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
    Index { plan: Plan, index: IndexRef, entries: Entries },
    /// In ranges of keys.
    Ranges { plan: Plan },
}

/// How the entries of an index are turned into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    /// They are in order but for what can be merged.
    Merged,
    /// All are read and sorted.
    Sorted,
}

/// Ways of which nobody can tell by the filter which is the best.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    pub keys: Plan,
    /// Whether the order of the keys narrows nothing.
    pub are_keys_open: bool,
    pub indexes: Vec<(IndexRef, Plan)>,
}

#[derive(Clone, Debug)]
pub(super) enum Planned {
    Way(Way),
    Contest(Contest),
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

/// The best way, as far as the filter tells. Values and indexes know the current epoch only, and an index the latest state
/// only.
pub(super) fn plan_way(table: &TableRef, listing: &Listing) -> Planned {
    let Some(filter) = &listing.filter else { return Planned::Way(Way::All) };
    let plan = plan_ranges(table, listing.segment, filter);
    if !table.older_epochs.is_empty() {
        return Planned::Way(Way::Ranges { plan });
    }
    // Rows of an uncertain probe have to be gone through.
    let is_told = plan.probes.iter().all(|probe| probe.is_certain);
    match &plan.keys {
        Some(keys) if is_told && keys.completeness == Completeness::Every => {
            let values = keys.values.clone();
            return Planned::Way(Way::Values { plan, values });
        }
        _ => {}
    }
    // Where every row in the ranges is asked for, nothing reads less.
    let needs_none = plan.is_exact && plan.probes.is_empty();
    if listing.view != View::Latest || listing.indexes == Indexes::GivenUp || needs_none {
        return Planned::Way(Way::Ranges { plan });
    }
    let mut indexes = plan_indexes(table, listing.segment, filter);
    if let Indexes::Use(number) = listing.indexes
        && let Some(at) = indexes.iter().position(|(index, _)| index.number == number)
    {
        let (index, plan) = indexes.swap_remove(at);
        return Planned::Way(index_way(table, index, plan));
    }
    let are_keys_open = narrowness(&plan, &types_in(table, &(0..table.keys.len()).collect::<Vec<_>>())) == 0;
    match (indexes.len(), are_keys_open) {
        (0, _) => Planned::Way(Way::Ranges { plan }),
        (1, true) => match indexes.pop() {
            Some((index, plan)) => Planned::Way(index_way(table, index, plan)),
            None => Planned::Way(Way::Ranges { plan }),
        },
        _ => Planned::Contest(Contest { keys: plan, are_keys_open, indexes }),
    }
}

/// The way by the entries of this index.
pub(super) fn index_way(table: &TableRef, index: IndexRef, plan: Plan) -> Way {
    let is_merged = Order::new(table, &index).is_some_and(|order| order.fits(&plan));
    let entries = if is_merged { Entries::Merged } else { Entries::Sorted };
    Way::Index { plan, index, entries }
}

/// Indexes whose order the filter narrows and that are not the order of the keys; those that it narrows most come first.
fn plan_indexes(table: &TableRef, segment: Segment, filter: &Compiled) -> Vec<(IndexRef, Plan)> {
    let usable = table.indexes.iter().filter(|index| index.state == IndexState::Active && index.is_complete);
    let plans = usable.filter_map(|index| {
        let order = index_item::order(table, index).filter(|order| !order.is_sorted())?;
        let layout = Layout::reordered(&table.epoch_types, &order).with_at_most(irregular_in(table));
        let plan = plan(filter, &layout, ranges_max(table, segment));
        let narrowness = narrowness(&plan, &types_in(table, &order));
        (narrowness > 0).then_some((narrowness, index, plan))
    });
    let mut plans: Vec<_> = plans.collect();
    plans.sort_by_key(|(narrowness, index, _)| (std::cmp::Reverse(*narrowness), index.number));
    plans.into_iter().map(|(_, index, plan)| (index.clone(), plan)).collect()
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
