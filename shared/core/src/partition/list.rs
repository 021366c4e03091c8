//! Listing partitions in key order, across the table's shards and epochs.

use std::collections::VecDeque;

use super::attempts::read;
use super::descriptor::ColumnSchema;
use super::item;
use super::list_older::{Found, read_older};
use super::read::{Partition, complete};
use crate::catalog::{CatalogError, TableRef};
use crate::limits::ANSWER_MAX_BYTES;
use crate::ports::Ports;
use crate::store::{Item, Query, Sort, SortRange, StoreError, Table};

/// Read ahead of an even share per shard, so that one round of queries usually fills a page.
const SLACK: usize = 8;

/// One of several disjoint parts of a table that together are all of it. Shards are dealt out to segments, so a segment
/// reads its own shards only; with more segments than shards some are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub number: u16,
    pub total: u16,
}

impl Segment {
    pub const WHOLE: Segment = Segment { number: 0, total: 1 };

    /// The shards of this part, of a table with so many.
    pub(super) fn shards(self, shards: u16) -> Vec<u16> {
        (0..shards).filter(|shard| shard % self.total.max(1) == self.number).collect()
    }
}

/// What to list.
#[derive(Clone, Debug)]
pub struct Listing {
    pub segment: Segment,
    /// Continue behind this key, which need not exist any more.
    pub after: Option<Vec<u8>>,
    /// At most so many partitions; the page also ends at about [`ANSWER_MAX_BYTES`] of them.
    pub limit: usize,
    pub columns: ColumnSchema,
}

impl Listing {
    /// Items to read from each of so many shards at once: an even share of the page and a little more.
    pub(super) fn share(&self, shards: usize) -> usize {
        (self.limit.div_ceil(shards.max(1)) + SLACK).min(self.limit.saturating_add(1))
    }
}

/// A page of partitions.
#[derive(Clone, Debug)]
pub struct PartitionPage {
    /// Each with its key, behind which a listing can continue.
    pub partitions: Vec<(Vec<u8>, Partition)>,
    /// Whether more follow.
    pub has_more: bool,
}

/// Reading several partition keys of the item store as one, in order of their range keys.
pub(super) struct Merge {
    cursors: Vec<Cursor>,
}

struct Cursor {
    query: Query,
    buffer: VecDeque<(Vec<u8>, Item)>,
    is_done: bool,
}

impl Cursor {
    /// Reads on if there is nothing at hand.
    async fn refill(&mut self, ports: &Ports) -> Result<(), StoreError> {
        while self.buffer.is_empty() && !self.is_done {
            let page = read(ports, || ports.items.query(&self.query)).await?;
            for (key, item) in page.items {
                if let Sort::Bytes(key) = key.sk {
                    self.buffer.push_back((key, item));
                }
            }
            self.is_done = page.next.is_none();
            self.query.start_after = page.next;
        }
        Ok(())
    }
}

impl Merge {
    /// Over these places, from `range` behind `after`, `at_once` items of each at a time.
    pub(super) fn new(places: Vec<String>, range: &SortRange, after: Option<&Vec<u8>>, at_once: Option<usize>) -> Self {
        let cursor = |place: String| {
            let mut query = Query::new(Table::Partitions, place, range.clone());
            query.start_after = after.cloned().map(Sort::Bytes);
            query.limit = at_once;
            Cursor { query, buffer: VecDeque::new(), is_done: false }
        };
        Self { cursors: places.into_iter().map(cursor).collect() }
    }

    /// Makes the next item known to [`Merge::peek`].
    pub(super) async fn fill(&mut self, ports: &Ports) -> Result<(), StoreError> {
        futures::future::try_join_all(self.cursors.iter_mut().map(|cursor| cursor.refill(ports))).await?;
        Ok(())
    }

    fn first(&mut self) -> Option<&mut Cursor> {
        let filled = self.cursors.iter_mut().filter(|cursor| !cursor.buffer.is_empty());
        filled.min_by(|left, right| {
            let key = |cursor: &Cursor| cursor.buffer.front().map(|(key, _)| key.clone());
            key(left).cmp(&key(right))
        })
    }

    /// The next item after [`Merge::fill`].
    pub(super) fn peek(&mut self) -> Option<&(Vec<u8>, Item)> {
        self.first()?.buffer.front()
    }

    pub(super) fn pop(&mut self) -> Option<(Vec<u8>, Item)> {
        self.first()?.buffer.pop_front()
    }
}

/// One page, in key order of the current epoch. A partition that exists throughout a walk is on exactly one of its pages,
/// whatever is created and deleted meanwhile, and also while the worker moves partitions from earlier epochs: those are
/// read first, so one that has gone by then is found in the current epoch.
pub async fn list(ports: &Ports, table: &TableRef, listing: &Listing) -> Result<PartitionPage, CatalogError> {
    let shards = listing.segment.shards(table.shards);
    let mut older = read_older(ports, table, listing, &shards).await?;
    let places = shards.iter().map(|shard| item::place_of_shard(table, *shard)).collect();
    let mut current = Merge::new(places, &SortRange::All, listing.after.as_ref(), Some(listing.share(shards.len())));
    let mut rows: Vec<(Vec<u8>, Item)> = Vec::new();
    let mut size_bytes = 0;
    let has_more = loop {
        current.fill(ports).await?;
        let Some(next) = next_of(&mut older, &mut current) else { break false };
        if rows.len() >= listing.limit || size_bytes >= ANSWER_MAX_BYTES {
            break true;
        }
        let row = match next {
            Next::Older => older.pop_first(),
            Next::Current => current.pop(),
        };
        if let Some((key, item)) = row {
            // Moved between the two reads, or created twice while keys changed: the current epoch is the later word.
            older.remove(&key);
            size_bytes += item::size_bytes(&item);
            rows.push((key, item));
        }
    };
    let (keys, items): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let partitions = complete(ports, &table.table_id, items, listing.columns).await?;
    Ok(PartitionPage { partitions: keys.into_iter().zip(partitions).collect(), has_more })
}

enum Next {
    Older,
    Current,
}

/// Where the next partition is; the current epoch where both have it.
fn next_of(older: &mut Found, current: &mut Merge) -> Option<Next> {
    match (older.first_key_value(), current.peek()) {
        (None, None) => None,
        (Some((old, _)), Some((new, _))) if old < new => Some(Next::Older),
        (_, Some(_)) => Some(Next::Current),
        (Some(_), None) => Some(Next::Older),
    }
}
