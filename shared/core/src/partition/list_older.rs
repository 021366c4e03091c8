//! Reading partitions that still lie in earlier epochs, in the order of the current one.
//!
//! An earlier epoch is in its own order. Both orders begin alike as far as the types of the leading keys are the same, so
//! a page starts at that beginning of its position and stops where the beginnings have passed what it holds. Where the
//! first keys already differ, the epoch is read as a whole, and only as much as the page needs is kept.

use std::collections::BTreeMap;

use super::index_item::values_of;
use super::item::{self, Kind};
use super::key::beginning::{beginning_len, encode_beginning, leading_alike};
use super::key::encode_key;
use super::list::{Listing, Merge};
use crate::catalog::{CatalogError, OlderEpoch, TableRef};
use crate::limits::ANSWER_MAX_BYTES;
use crate::ports::Ports;
use crate::store::{Item, Sort, SortRange};

/// Partitions by their key in the current epoch.
pub(super) type Found = BTreeMap<Vec<u8>, Item>;

/// The first partitions of a page among those in earlier epochs, with one more than fits so that it is known whether
/// there are more. Oldest epoch first: partitions move the other way.
pub(super) async fn read_older(
    ports: &Ports,
    table: &TableRef,
    listing: &Listing,
    shards: &[u16],
) -> Result<Found, CatalogError> {
    let mut kept = Kept { found: Found::new(), size_bytes: 0, limit: listing.limit.saturating_add(1) };
    for older in table.older_epochs.iter().rev() {
        read_epoch(ports, table, older, listing, shards, &mut kept).await?;
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
    ports: &Ports,
    table: &TableRef,
    older: &OlderEpoch,
    listing: &Listing,
    shards: &[u16],
    kept: &mut Kept,
) -> Result<(), CatalogError> {
    let after = listing.after.as_deref().unwrap_or_default();
    let (alike, is_same_order) = leading_alike(&older.types, &table.epoch_types);
    let start = after.get(..beginning_len(&table.epoch_types, after, alike)).unwrap_or_default();
    let range = if start.is_empty() { SortRange::All } else { SortRange::AtLeast(Sort::Bytes(start.to_vec())) };
    let places = shards.iter().map(|shard| item::place(&table.table_id, older.epoch, Kind::Current, *shard)).collect();
    let at_once = is_same_order.then(|| listing.share(shards.len()));
    let mut rows = Merge::new(places, &range, None, at_once);
    loop {
        rows.fill(ports).await?;
        let Some((_, item)) = rows.peek() else { return Ok(()) };
        let values = values_of(item)?;
        if kept.is_past(&encode_beginning(&older.types, &values, alike)) {
            return Ok(());
        }
        let key = encode_key(&table.epoch_types, &values);
        if let Some((_, item)) = rows.pop()
            && key.as_slice() > after
        {
            kept.insert(key, item);
        }
    }
}
