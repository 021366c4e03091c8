//! Reading partitions that still lie in earlier epochs, in the order of the current one.
//!
//! An earlier epoch is in its own order. Both orders begin alike as far as the types of the leading keys are the same, so
//! a page starts at that beginning of its position and stops where the beginnings have passed what it holds. Where the
//! first keys already differ, the epoch is read as a whole, and only as much as the page needs is kept.

use std::collections::BTreeMap;

use super::guide::Piece;
use super::lane::{Lane, Merge};
use super::pace::Pace;
use super::position::Position;
use super::source::{Reads, Source};
use super::{Listing, share};
use crate::catalog::{CatalogError, OlderEpoch, TableRef};
use crate::limits::ANSWER_MAX_BYTES;
use crate::partition::index_item::values_of;
use crate::partition::item;
use crate::partition::key::beginning::{beginning_len, encode_beginning, leading_alike};
use crate::partition::key::encode_key;
use crate::predicate::KeyRange;
use crate::store::Item;

/// Items of a step through an epoch in another order.
const STEP_ITEMS: usize = 2000;

/// Partitions by their key in the current epoch.
pub(super) type Found = BTreeMap<Vec<u8>, Item>;

/// The first wanted partitions of a page among those in earlier epochs, with one more than fits so that it is known
/// whether there are more. Oldest epoch first: partitions move the other way.
pub(super) async fn read_older(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    shards: &[u16],
) -> Result<Found, CatalogError> {
    let mut kept = Kept { found: Found::new(), size_bytes: 0, limit: listing.limit.saturating_add(1) };
    for older in table.older_epochs.iter().rev() {
        // Another order has no place to stop at, so there is no budget.
        let unbounded = Reads::new(reads.ports);
        read_epoch(&unbounded, source, table, older, listing, shards, &mut kept).await?;
        reads.add(&unbounded);
    }
    Ok(kept.found)
}

/// The partitions with the smallest keys, as many as a page can show.
struct Kept {
    found: Found,
    size_bytes: usize,
    limit: usize,
}

impl Kept {
    fn insert(&mut self, key: Vec<u8>, item: Item) {
        self.size_bytes += item::size_bytes(&item);
        if let Some(replaced) = self.found.insert(key, item) {
            self.size_bytes -= item::size_bytes(&replaced);
        }
        while self.found.len() > self.limit || self.size_without_last(2) >= ANSWER_MAX_BYTES {
            let Some((_, surplus)) = self.found.pop_last() else { return };
            self.size_bytes -= item::size_bytes(&surplus);
        }
    }

    fn size_without_last(&self, count: usize) -> usize {
        let last: usize = self.found.values().rev().take(count).map(item::size_bytes).sum();
        self.size_bytes.saturating_sub(last)
    }

    /// Whether nothing that begins with `beginning`, or comes later, can belong to the page.
    fn is_past(&self, beginning: &[u8]) -> bool {
        // The last one only says that there are more.
        let is_full = self.found.len() >= self.limit || self.size_without_last(1) >= ANSWER_MAX_BYTES;
        is_full && self.found.last_key_value().is_some_and(|(last, _)| beginning > last.as_slice())
    }
}

async fn read_epoch(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    older: &OlderEpoch,
    listing: &Listing,
    shards: &[u16],
    kept: &mut Kept,
) -> Result<(), CatalogError> {
    let from = listing.start.key();
    let (alike, is_same_order) = leading_alike(&older.types, &table.epoch_types);
    let start = from.get(..beginning_len(&table.epoch_types, from, alike)).unwrap_or_default();
    let range = KeyRange { low: start.to_vec(), ..KeyRange::all() };
    let pace = Pace::new(shards.len());
    let lane = |shard: &u16| {
        let piece = Piece { range: range.clone(), ..Piece::whole() };
        Lane::new(source, None, &pace, (older.epoch, *shard), [piece], &Position::BEGINNING)
    };
    let mut rows = Merge::new(shards.iter().map(lane).collect());
    let at_once = if is_same_order { share(listing.limit, listing.limit, shards.len()) } else { STEP_ITEMS };
    loop {
        rows.fill(reads, at_once).await?;
        let Some(row) = rows.peek() else { return Ok(()) };
        let values = values_of(&row.item)?;
        if kept.is_past(&encode_beginning(&older.types, &values, alike)) {
            return Ok(());
        }
        let key = encode_key(&table.epoch_types, &values);
        let Some(row) = rows.pop() else { return Ok(()) };
        if !listing.start.admits(&key) {
            continue;
        }
        let is_wanted = listing.filter.as_ref().map_or(Ok(true), |filter| filter.evaluate(&values))?;
        if is_wanted {
            kept.insert(key, row.item);
        }
    }
}
