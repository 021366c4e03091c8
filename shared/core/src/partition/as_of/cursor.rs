//! Going through a stretch of the past.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{holds, was_there};
use crate::catalog::{CatalogError, TableId};
use crate::partition::KeyType;
use crate::partition::history_item::{self, Lifetime};
use crate::partition::index_item::values_of;
use crate::partition::item::{Epoch, Kind, place};
use crate::partition::key::encode_key;
use crate::partition::listing::source::{Batch, Cursor, LateRow, PlaceCursor, Reached, Reads, Stretch};
use crate::predicate::{KeyRange, last_below};
use crate::store::{Item, LateItem, Query, Sort, SortRange, Table};

/// Reads the present of a stretch part by part, and behind each part its history.
pub(super) struct PastCursor {
    types: Vec<KeyType>,
    at_ms: i64,
    present: PlaceCursor,
    /// Where the history of the stretch is.
    place: String,
    range: Option<KeyRange>,
    /// The last key of the stretch; none if it has no end.
    last: Option<Vec<u8>>,
    /// The first key that is still wanted.
    low: Vec<u8>,
    part: Option<Part>,
}

/// A part of the stretch whose present has been read, and whose history has not.
struct Part {
    /// How far it goes.
    to: Reached,
    /// The rest of its history; none if there is none.
    history: Option<Query>,
    /// What was there. Without a lifetime: and still is.
    rows: BTreeMap<Vec<u8>, (Option<Lifetime>, Item)>,
}

/// The first key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

impl PastCursor {
    pub(super) fn new(table: &TableId, epoch: Epoch<'_>, at_ms: i64, stretch: Stretch) -> Self {
        let last = match stretch.sort_range() {
            SortRange::Between(_, Sort::Bytes(last)) | SortRange::Prefix(Sort::Bytes(last)) => Some(last),
            _ => None,
        };
        let low = stretch.range.as_ref().map(|range| range.low.clone()).unwrap_or_default();
        let low = low.max(stretch.after.as_deref().map(behind).unwrap_or_default());
        Self {
            types: epoch.types.to_vec(),
            at_ms,
            present: PlaceCursor::new(place(table, epoch.number, Kind::Current, stretch.shard), &stretch),
            place: place(table, epoch.number, Kind::History, stretch.shard),
            range: stretch.range,
            last,
            low,
            part: None,
        }
    }

    /// The history from here to there.
    fn history_to(&self, to: &Reached) -> Option<Query> {
        let high = match (to, &self.last) {
            (Reached::Key(key), Some(last)) => Some(key.min(last)),
            (Reached::Key(key), None) => Some(key),
            (Reached::End, last) => last.as_ref(),
        };
        let range = history_item::images_between(&self.low, high.map(Vec::as_slice));
        if let SortRange::Between(low, high) = &range
            && low > high
        {
            return None;
        }
        Some(Query::new(Table::Partitions, self.place.clone(), range))
    }

    async fn next_part(&mut self, reads: &Reads<'_>, at_once: usize) -> Result<Part, CatalogError> {
        let batch = self.present.read_on(reads, at_once).await?;
        let mut rows = BTreeMap::new();
        for row in batch.rows {
            let row = row.decode()?;
            if was_there(&row.item, self.at_ms)? {
                rows.insert(row.key, (None, row.item));
            }
        }
        Ok(Part { history: self.history_to(&batch.reached), to: batch.reached, rows })
    }

    fn is_wanted(&self, key: &[u8], to: &Reached) -> bool {
        let is_in_part = match to {
            Reached::Key(to) => key <= to.as_slice(),
            Reached::End => self.range.as_ref().is_none_or(|range| range.contains(key)),
        };
        is_in_part && key >= self.low.as_slice()
    }

    /// Reads a page of the part's history; answers how far that takes.
    async fn read_history(
        &self,
        reads: &Reads<'_>,
        part: &mut Part,
        limit: Option<usize>,
    ) -> Result<Reached, CatalogError> {
        let Some(query) = &mut part.history else { return Ok(part.to.clone()) };
        query.limit = limit;
        let page = reads.query(query).await?;
        let now_ms = reads.ports.clock.now_ms();
        for (_, item) in page.items {
            let lifetime = history_item::lifetime_of(&item)?;
            if !holds(lifetime, self.at_ms, now_ms) {
                continue;
            }
            let key = encode_key(&self.types, &values_of(&item)?);
            let is_better = match part.rows.get(&key) {
                None => self.is_wanted(&key, &part.to),
                Some((found, _)) => found.is_some_and(|found| found < lifetime),
            };
            if is_better {
                part.rows.insert(key, (Some(lifetime), item));
            }
        }
        if let Some(Sort::Bytes(image)) = &page.next {
            let settled = last_below(history_item::beginning_of(image).to_vec());
            if !matches!(&part.to, Reached::Key(to) if settled >= *to) {
                query.start_after = page.next;
                return Ok(Reached::Key(settled));
            }
        }
        part.history = None;
        Ok(part.to.clone())
    }
}

fn late_row((key, (_, item)): (Vec<u8>, (Option<Lifetime>, Item))) -> LateRow {
    LateRow { key, item: LateItem::Decoded(item) }
}

#[async_trait]
impl Cursor for PastCursor {
    async fn read_on(&mut self, reads: &Reads<'_>, at_once: usize) -> Result<Batch, CatalogError> {
        let mut part = match self.part.take() {
            Some(part) => part,
            None => self.next_part(reads, at_once).await?,
        };
        let mut limit = Some(at_once.max(1));
        loop {
            let reached = self.read_history(reads, &mut part, limit).await?;
            let key = match &reached {
                Reached::End => {
                    let rows = part.rows.into_iter().map(late_row).collect();
                    return Ok(Batch { rows, reached });
                }
                Reached::Key(key) => key.clone(),
            };
            if key >= self.low || part.history.is_none() {
                self.low = behind(&key).max(std::mem::take(&mut self.low));
                let rest = part.rows.split_off(&self.low);
                let settled = std::mem::replace(&mut part.rows, rest);
                if part.history.is_some() {
                    self.part = Some(part);
                }
                let rows = settled.into_iter().map(late_row).collect();
                return Ok(Batch { rows, reached });
            }
            // Many images of one partition, or of several whose keys were cut: to the end of them.
            limit = None;
        }
    }
}
