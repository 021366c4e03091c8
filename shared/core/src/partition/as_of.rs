//! The state of a table at a moment in the past.
//!
//! A partition was there at a moment if it is there now and has said what it says since then, or if an image in the history
//! says so. Of several images (a partition that was deleted and created again by machines whose clocks differ) the one that
//! began last counts.
//!
//! Partitions change while they are read, always in one direction: from an earlier epoch to the current one, and from the
//! present into the history. So the present is read first, then the history of the same stretch of keys, and nothing slips
//! through between the two. What was changed meanwhile is in the history as it was at the moment asked for: a change never
//! reaches back by more than the clocks differ.

mod cursor;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};

use super::history_item::{self, Lifetime};
use super::index_item::values_of;
use super::item::{Epoch, current_epoch, older_epochs};
use super::key::encode_key;
use super::listing::source::{Cursor, Latest, Reads, Row, Source, Stretch};
use crate::catalog::{CatalogError, TableRef};
use crate::store::{Direction, Fields, Item, Query, Sort, SortRange, Table};
use cursor::PastCursor;

/// Histories of single partitions that are looked at together.
const LOOKUPS_AT_ONCE: usize = 32;
/// Images of one partition that are read at once, the newest first: usually the first or second is the one.
const IMAGES_AT_ONCE: usize = 4;

/// What was there at `at_ms`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsOf<'a> {
    table: &'a TableRef,
    at_ms: i64,
}

/// Whether an image speaks of this moment, and has not expired by now.
fn holds(lifetime: Lifetime, at_ms: i64, now_ms: i64) -> bool {
    let is_kept = lifetime.expires_s.saturating_mul(1000) > now_ms;
    is_kept && lifetime.valid_from_ms <= at_ms && at_ms < lifetime.valid_to_ms
}

/// Whether a partition that is there now said the same at this moment.
fn was_there(item: &Item, at_ms: i64) -> Result<bool, CatalogError> {
    Ok(item.int("valid_from_ms")? <= at_ms)
}

impl<'a> AsOf<'a> {
    pub(super) fn new(table: &'a TableRef, at_ms: i64) -> Self {
        Self { table, at_ms }
    }

    fn epoch(&self, number: u32) -> Epoch<'a> {
        let mut known = std::iter::once(current_epoch(self.table)).chain(older_epochs(self.table));
        // One that the table does not know has no items.
        known.find(|epoch| epoch.number == number).unwrap_or(Epoch { number, types: &[] })
    }

    /// What the history of an epoch says of the partition with these values.
    async fn find_image(
        &self,
        reads: &Reads<'_>,
        epoch: Epoch<'_>,
        values: &[String],
    ) -> Result<Option<Item>, CatalogError> {
        let Some((first, last)) = history_item::images_until(epoch, values, self.at_ms) else { return Ok(None) };
        let range = SortRange::Between(Sort::Bytes(first), Sort::Bytes(last));
        let mut query = Query::new(Table::Partitions, history_item::place_of(self.table, epoch, values), range);
        query.direction = Direction::Descending;
        query.limit = Some(IMAGES_AT_ONCE);
        let now_ms = reads.ports.clock.now_ms();
        let mut best: Option<(Lifetime, Item)> = None;
        loop {
            let page = reads.query(&query).await?;
            for (_, item) in page.items {
                let lifetime = history_item::lifetime_of(&item)?;
                if best.as_ref().is_some_and(|(best, _)| best.valid_from_ms > lifetime.valid_from_ms) {
                    return Ok(best.map(|(_, item)| item));
                }
                let is_better = best.as_ref().is_none_or(|(best, _)| *best < lifetime);
                if is_better && holds(lifetime, self.at_ms, now_ms) && values_of(&item)? == values {
                    best = Some((lifetime, item));
                }
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                return Ok(best.map(|(_, item)| item));
            }
        }
    }

    /// The same of all epochs: the worker moves the history of earlier ones to the current one meanwhile.
    async fn find_past(&self, reads: &Reads<'_>, values: &[String]) -> Result<Option<Item>, CatalogError> {
        let mut epochs: Vec<Epoch<'_>> = older_epochs(self.table).collect();
        epochs.reverse();
        epochs.push(current_epoch(self.table));
        for epoch in epochs {
            if let Some(item) = self.find_image(reads, epoch, values).await? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Source for AsOf<'_> {
    fn open(&self, stretch: Stretch) -> Box<dyn Cursor> {
        let epoch = self.epoch(stretch.epoch);
        Box::new(PastCursor::new(&self.table.table_id, epoch, self.at_ms, stretch))
    }

    async fn find(&self, reads: &Reads<'_>, values: &[Vec<String>]) -> Result<Vec<Row>, CatalogError> {
        let mut rows = Vec::new();
        let mut open: Vec<Vec<String>> = values.to_vec();
        for row in (Latest { table: self.table }).find(reads, values).await? {
            if was_there(&row.item, self.at_ms)? {
                let found = values_of(&row.item)?;
                open.retain(|values| *values != found);
                rows.push(row);
            }
        }
        let lookups = open.into_iter().map(|values| async move {
            let item = self.find_past(reads, &values).await?;
            Ok::<_, CatalogError>(item.map(|item| Row { key: encode_key(&self.table.epoch_types, &values), item }))
        });
        let found: Vec<Option<Row>> =
            futures::stream::iter(lookups).buffer_unordered(LOOKUPS_AT_ONCE).try_collect().await?;
        rows.extend(found.into_iter().flatten());
        Ok(rows)
    }
}
