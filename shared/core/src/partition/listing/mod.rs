//! Listings: which partitions, in key order, page by page, across the table's shards and epochs.
//!
//! [`way`] decides how a page finds its rows: by the values that a filter says, by an index, or in ranges of keys, which
//! [`lane`] goes through in every shard. Whatever the way, a walk answers the same partitions in the same order, or the
//! same failure.

mod by_index;
mod choice;
mod explain;
mod groups;
mod guide;
mod lane;
mod older;
mod pace;
mod position;
pub(in crate::partition) mod source;
mod way;

pub use explain::Explained;
pub use position::{Continuation, Indexes, Position};
pub use source::{ScanBudget, View};

use by_index::{list_by_index, list_by_values, list_merged};
use choice::cheapest;
use guide::{Guide, check_probes};
use lane::{Lane, Merge};
use older::{Found, read_older};
use pace::Pace;
use source::{Reads, Row, Source, source_of};
use way::{Contest, Entries, Planned, Way, layout_of, plan_ranges, plan_way};

use super::descriptor::ColumnSchema;
use super::item;
use super::key::shard_of;
use super::read::{Partition, complete};
use crate::catalog::{CatalogError, TableRef};
use crate::limits::ANSWER_MAX_BYTES;
use crate::ports::Ports;
use crate::predicate::Compiled;
use crate::store::Item;

/// Read ahead of an even share per shard at most, so that one round of queries usually fills a page.
const SLACK_MAX: usize = 8;

/// One of several disjoint parts of a table that together are all of it. Shards are dealt out to segments, so a segment
/// reads its own shards only; with more segments than shards some are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub number: u16,
    pub total: u16,
}

impl Segment {
    pub const WHOLE: Segment = Segment { number: 0, total: 1 };

    fn has(self, shard: u16) -> bool {
        shard % self.total.max(1) == self.number
    }

    /// The shards of this part, of a table with so many.
    fn shards(self, shards: u16) -> Vec<u16> {
        (0..shards).filter(|shard| self.has(*shard)).collect()
    }
}

/// What to list.
#[derive(Clone, Debug)]
pub struct Listing {
    pub segment: Segment,
    /// Only partitions that it asks for, compiled for the table's keys as they are now.
    pub filter: Option<Compiled>,
    pub view: View,
    pub start: Position,
    pub indexes: Indexes,
    /// At most so many partitions; the page also ends at about [`ANSWER_MAX_BYTES`] of them.
    pub limit: usize,
    pub columns: ColumnSchema,
    pub budget: ScanBudget,
}

impl Listing {
    /// Everything from the beginning.
    pub fn of_all(limit: usize) -> Self {
        Self {
            segment: Segment::WHOLE,
            filter: None,
            view: View::Latest,
            start: Position::BEGINNING,
            indexes: Indexes::Try,
            limit,
            columns: ColumnSchema::Include,
            budget: ScanBudget::default(),
        }
    }
}

/// Items to read from each of so many shards at once for the rest of a page of `limit` rows: an even share and a little
/// more. Rows are dealt out at random, so shards differ by about the root of their share of the page. A page of one row
/// needs the first of each.
fn share(rows: usize, limit: usize, shards: usize) -> usize {
    let spread = (limit / shards.max(1)).isqrt() + usize::from(limit > 1);
    (rows.div_ceil(shards.max(1)) + spread.min(SLACK_MAX)).min(rows.saturating_add(1))
}

/// A page of partitions.
#[derive(Clone, Debug)]
pub struct PartitionPage {
    /// Each with its key, behind which a listing can continue.
    pub partitions: Vec<(Vec<u8>, Partition)>,
    /// Where the next page begins; none after the last. Lies behind `start`, also when there are no partitions because
    /// the budget was spent.
    pub next: Option<Position>,
    /// For the next page.
    pub indexes: Indexes,
    pub explained: Explained,
}

/// A page of rows.
struct RowPage {
    rows: Vec<(Vec<u8>, Item)>,
    next: Option<Position>,
}

/// A page that is being filled.
struct Filling {
    rows: Vec<(Vec<u8>, Item)>,
    limit: usize,
    size_bytes: usize,
}

impl Filling {
    fn new(limit: usize) -> Self {
        Self { rows: Vec::new(), limit, size_bytes: 0 }
    }

    /// Rows that still fit, if they are small.
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.rows.len())
    }

    fn is_full(&self) -> bool {
        self.left() == 0 || self.size_bytes >= ANSWER_MAX_BYTES
    }

    /// Takes a row that comes behind the others, if there is room for it.
    fn take(&mut self, key: Vec<u8>, item: Item) -> bool {
        let has_room = !self.is_full();
        if has_room {
            self.size_bytes += item::size_bytes(&item);
            self.rows.push((key, item));
        }
        has_room
    }

    /// Takes rows that come behind the others; where the next page begins if they do not all fit.
    fn take_all(&mut self, mut found: Vec<Row>) -> Option<Position> {
        found.sort_by(|left, right| left.key.cmp(&right.key));
        for Row { key, item } in found {
            if self.is_full() {
                return Some(Position::From(key));
            }
            self.take(key, item);
        }
        None
    }

    fn until(self, next: Option<Position>) -> RowPage {
        RowPage { rows: self.rows, next }
    }
}

/// One page, in key order of the current epoch. A partition that exists throughout a walk is on exactly one of its pages,
/// whatever is created and deleted meanwhile, and also while the worker moves partitions from earlier epochs: those are
/// read first, so one that has gone by then is found in the current epoch.
///
/// # Errors
/// [`CatalogError::StoredValue`] if the answer of the filter for some row of the segment hangs on a value that its key's
/// type cannot read: on the first page where the filter narrows that key, where the walk meets the row at the latest.
/// [`CatalogError::OutOfTime`] while the types of keys change, if there is no part of the answer that can be told in time.
pub async fn list(ports: &Ports, table: &TableRef, listing: &Listing) -> Result<PartitionPage, CatalogError> {
    let source = source_of(table, listing.view)?;
    let source = source.as_ref();
    let reads = Reads::within(ports, listing.budget);
    let mut indexes = listing.indexes;
    let mut way = match (plan_way(table, listing), &listing.filter) {
        (Planned::Contest(contest), Some(filter)) => {
            let way = cheapest(&reads, table, listing, filter, contest).await?;
            // For the whole walk.
            indexes = match &way {
                Way::Index { index, .. } => Indexes::Use(index.number),
                _ => Indexes::GivenUp,
            };
            way
        }
        (Planned::Contest(Contest { keys, .. }), None) => Way::Ranges { plan: keys },
        (Planned::Way(way), _) => way,
    };
    let mut found = None;
    if let (Way::Index { plan, index, entries }, Some(filter)) = (&way, &listing.filter) {
        let by = (index, plan, filter);
        found = match entries {
            Entries::Merged => Some(list_merged(&reads, source, table, listing, by).await?),
            Entries::Sorted => list_by_index(&reads, source, table, listing, by).await?,
        };
        if found.is_none() {
            indexes = Indexes::GivenUp;
            way = Way::Ranges { plan: plan_ranges(table, listing.segment, filter) };
        }
    }
    let page = match found {
        Some(page) => page,
        None => list_in_order(&reads, source, table, listing, &way).await?,
    };
    let explained = Explained::new(table, listing, &way, &reads);
    let (keys, items): (Vec<_>, Vec<_>) = page.rows.into_iter().unzip();
    let partitions = complete(ports, &table.table_id, items, listing.columns).await?;
    let partitions = keys.into_iter().zip(partitions).collect();
    Ok(PartitionPage { partitions, next: page.next, indexes, explained })
}

/// The page without an index.
async fn list_in_order(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    way: &Way,
) -> Result<RowPage, CatalogError> {
    let shards = listing.segment.shards(table.shards);
    if let (Some(plan), Some(filter), true) = (way.plan(), &listing.filter, listing.start == Position::BEGINNING) {
        check_probes(reads, source, filter, (table.epoch, &shards), &plan.probes).await?;
    }
    if let Way::Values { values, .. } = way {
        let own = values.iter().filter(|values| listing.segment.has(shard_of(values, table.shards)));
        return list_by_values(reads, source, table, listing, own.cloned()).await;
    }
    let guide = listing.filter.as_ref().map(|filter| Guide { filter, layout: layout_of(table) });
    let (pieces, pace) = (way.pieces(), Pace::new(shards.len()));
    let (older, older_horizon) = read_older(reads, source, table, listing, &shards).await?;
    let lane = |shard: &u16| {
        let at = (table.epoch, *shard);
        Lane::new(source, guide.as_ref(), &pace, at, pieces.iter().cloned(), &listing.start)
    };
    let current = Merge::new(shards.iter().map(lane).collect());
    fill_page(reads, listing, shards.len(), (older, older_horizon), current).await
}

async fn fill_page(
    reads: &Reads<'_>,
    listing: &Listing,
    shards: usize,
    (mut older, older_horizon): (Found, Option<Position>),
    mut current: Merge<'_>,
) -> Result<RowPage, CatalogError> {
    let mut page = Filling::new(listing.limit);
    let mut is_first = true;
    loop {
        // What is at hand comes behind what is on the page, so what is next need not be read to be told.
        if page.is_full()
            && let Some((key, _)) = next_of(&older, &current)
        {
            let next = [horizon_of(&current, older_horizon.as_ref()), Some(Position::From(key))];
            return Ok(page.until(next.into_iter().flatten().min()));
        }
        if is_first || !reads.is_spent() {
            current.fill(reads, share(page.left().max(1), listing.limit, shards)).await?;
        }
        is_first = false;
        let horizon = horizon_of(&current, older_horizon.as_ref());
        let Some((key, epoch)) = next_of(&older, &current) else { return Ok(page.until(horizon)) };
        if let Some(horizon) = horizon.filter(|horizon| horizon.admits(&key)) {
            return Ok(page.until(Some(horizon)));
        }
        if page.is_full() {
            return Ok(page.until(Some(Position::From(key))));
        }
        let found = older.remove(&key);
        let row = match epoch {
            Epoch::Older => found,
            // Moved between the two reads, or created twice while keys changed: the current epoch is the later word.
            Epoch::Current => current.pop().map(|Row { item, .. }| item),
        };
        if let Some(row) = row {
            page.take(key, row);
        }
    }
}

/// Up to where it is known which rows there are.
fn horizon_of(current: &Merge<'_>, older: Option<&Position>) -> Option<Position> {
    [current.horizon(), older].into_iter().flatten().min().cloned()
}

enum Epoch {
    Older,
    Current,
}

/// The next key and where it is; the current epoch where both have it.
fn next_of(older: &Found, current: &Merge<'_>) -> Option<(Vec<u8>, Epoch)> {
    match (older.first_key_value(), current.peek()) {
        (None, None) => None,
        (Some((old, _)), Some(new)) if *old < new.key => Some((old.clone(), Epoch::Older)),
        (_, Some(new)) => Some((new.key.clone(), Epoch::Current)),
        (Some((old, _)), None) => Some((old.clone(), Epoch::Older)),
    }
}
