//! Listing partitions in key order, across the table's shards.

use std::collections::VecDeque;

use super::descriptor::ColumnSchema;
use super::item::{self, PartitionItem, place_of_shard};
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

/// A page of partitions.
#[derive(Clone, Debug)]
pub struct PartitionPage {
    /// Each with its key, behind which a listing can continue.
    pub partitions: Vec<(Vec<u8>, Partition)>,
    /// Whether more follow.
    pub has_more: bool,
}

/// Reading one shard.
struct Cursor {
    query: Query,
    buffer: VecDeque<(Vec<u8>, Item)>,
    is_done: bool,
}

impl Cursor {
    fn new(table: &TableRef, shard: u16, after: Option<&Vec<u8>>, limit: usize) -> Self {
        let mut query = Query::new(Table::Partitions, place_of_shard(table, shard), SortRange::All);
        query.start_after = after.cloned().map(Sort::Bytes);
        query.limit = Some(limit);
        Self { query, buffer: VecDeque::new(), is_done: false }
    }

    /// Reads on if there is nothing at hand.
    async fn refill(&mut self, ports: &Ports) -> Result<(), StoreError> {
        while self.buffer.is_empty() && !self.is_done {
            let page = ports.items.query(&self.query).await?;
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

/// One page, in key order. A partition that exists throughout a walk is on exactly one of its pages, whatever is created
/// and deleted meanwhile.
pub async fn list(ports: &Ports, table: &TableRef, listing: &Listing) -> Result<PartitionPage, CatalogError> {
    let total = listing.segment.total.max(1);
    let shards: Vec<u16> = (0..table.shards).filter(|shard| shard % total == listing.segment.number).collect();
    let share = listing.limit.div_ceil(shards.len().max(1)) + SLACK;
    let limit = share.min(listing.limit.saturating_add(1));
    let mut cursors: Vec<Cursor> =
        shards.iter().map(|shard| Cursor::new(table, *shard, listing.after.as_ref(), limit)).collect();
    let mut rows: Vec<(Vec<u8>, PartitionItem)> = Vec::new();
    let mut size_bytes = 0;
    let has_more = loop {
        futures::future::try_join_all(cursors.iter_mut().map(|cursor| cursor.refill(ports))).await?;
        let key_of = |cursor: &Cursor| cursor.buffer.front().map(|(key, _)| key.clone());
        let first = cursors.iter_mut().filter(|cursor| !cursor.buffer.is_empty()).min_by_key(|cursor| key_of(cursor));
        let Some(first) = first else { break false };
        if rows.len() >= listing.limit || size_bytes >= ANSWER_MAX_BYTES {
            break true;
        }
        if let Some((key, item)) = first.buffer.pop_front() {
            size_bytes += item::size_bytes(&item);
            rows.push((key, item::decode(&item)?));
        }
    };
    let (keys, items): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let partitions = complete(ports, &table.table_id, items, listing.columns).await?;
    Ok(PartitionPage { partitions: keys.into_iter().zip(partitions).collect(), has_more })
}
