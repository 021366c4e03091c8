//! Reading partitions that still lie in earlier epochs, in the order of the current one.
//!
//! An earlier epoch is in its own order. Both orders begin alike as far as the types of the leading keys are the same, so
//! a page starts at that beginning of its position and stops where the beginnings have passed what it holds. Where the
//! first keys already differ, the epoch is read as a whole, and only as much as the page needs is kept.
//!
//! When the budget of the page is spent, it ends where the beginnings have passed everything. Where they have passed nothing
//! yet, reading goes on, and gives up with an error when the time of a second page has passed as well: there is no
//! place in between from which another page could go on.

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
/// whether there are more. Oldest epoch first: partitions move the other way. With the place up to which that is all of
/// them, where the budget ended before.
///
/// # Errors
/// [`CatalogError::OutOfTime`] if the time of two pages is not enough to find the first of them.
pub(super) async fn read_older(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    shards: &[u16],
) -> Result<(Found, Option<Position>), CatalogError> {
    let mut kept = Kept { found: Found::new(), size_bytes: 0, limit: listing.limit.saturating_add(1) };
    let mut horizon: Option<Position> = None;
    for older in table.older_epochs.iter().rev() {
        let reached = read_epoch(reads, source, table, older, listing, shards, &mut kept).await?;
        horizon = [horizon, reached].into_iter().flatten().min();
    }
    Ok((kept.found, horizon))
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
) -> Result<Option<Position>, CatalogError> {
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
    // Where the last row begins that was met: all that begin with less have been.
    let mut met = listing.start.clone();
    let mut is_first = true;
    loop {
        if rows.horizon().is_some() {
            if !is_first && reads.is_spent() {
                if met > listing.start {
                    return Ok(Some(met));
                }
                if reads.is_overdue() {
                    return Err(CatalogError::OutOfTime);
                }
            }
            is_first = false;
            rows.fill(reads, at_once).await?;
            continue;
        }
        let Some(row) = rows.peek() else { return Ok(None) };
        let values = values_of(&row.item)?;
        let beginning = encode_beginning(&older.types, &values, alike);
        if kept.is_past(&beginning) {
            return Ok(None);
        }
        met = Position::From(beginning);
        let key = encode_key(&table.epoch_types, &values);
        let Some(row) = rows.pop() else { return Ok(None) };
        if !listing.start.admits(&key) {
            continue;
        }
        let is_wanted = listing.filter.as_ref().map_or(Ok(true), |filter| filter.evaluate(&values))?;
        if is_wanted {
            kept.insert(key, row.item);
        }
    }
}
