//! Where listings get their rows from.
//!
//! A [`Source`] is a state of a table: the latest, or the one of a moment in the past. Listings know it by cursors over
//! stretches of single shards and by looking up values, and do the rest (shards, filters, pages) alike for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::catalog::{CatalogError, TableRef};
use crate::limits::BATCH_GET_MAX_KEYS;
use crate::partition::as_of::AsOf;
use crate::partition::attempts::{find, read};
use crate::partition::index_item::{VALUES, late_texts_of};
use crate::partition::item::{self, Kind};
use crate::partition::key::encode_key;
use crate::partition::read::read_every;
use crate::ports::Ports;
use crate::predicate::KeyRange;
use crate::store::{Item, LateItem, LatePage, Page, Query, Sort, SortRange, Table};

/// Which state of a table is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Latest,
    /// What was there at this moment.
    AsOf { at_ms: i64 },
}

/// A partition as stored, with its key in the epoch that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::partition) struct Row {
    pub key: Vec<u8>,
    pub item: Item,
}

/// The same as it comes from a cursor: most rows are judged by their values and not kept.
#[derive(Clone, Debug)]
pub(in crate::partition) struct LateRow {
    pub key: Vec<u8>,
    pub item: LateItem,
}

impl LateRow {
    /// The values of its partition.
    pub fn values(&self) -> Result<Vec<&str>, CatalogError> {
        Ok(late_texts_of(&self.item)?)
    }

    pub fn decode(self) -> Result<Row, CatalogError> {
        Ok(Row { key: self.key, item: self.item.decode()? })
    }
}

/// The part of one shard that a cursor goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::partition) struct Stretch {
    pub epoch: u32,
    pub shard: u16,
    /// None: all of it.
    pub range: Option<KeyRange>,
    /// Only what lies behind this key, which need not exist.
    pub after: Option<Vec<u8>>,
}

impl Stretch {
    /// The keys as a query takes them.
    pub fn sort_range(&self) -> SortRange {
        self.range.as_ref().map_or(SortRange::All, KeyRange::to_sort_range)
    }
}

/// How far a cursor has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::partition) enum Reached {
    /// No row up to this key, itself included, is still to come.
    Key(Vec<u8>),
    End,
}

/// Some rows in order of their keys, and how far that takes.
#[derive(Clone, Debug)]
pub(in crate::partition) struct Batch {
    pub rows: Vec<LateRow>,
    /// At least the last row's key. Gets on with every batch, also with one without rows.
    pub reached: Reached,
}

/// Goes through a stretch once, in order of the keys.
#[async_trait]
pub(in crate::partition) trait Cursor: Send {
    /// Reads on by about so many items, at least one, with a bounded number of requests: a batch without rows is no end.
    /// Not to be called after [`Reached::End`].
    async fn read_on(&mut self, reads: &Reads<'_>, at_once: usize) -> Result<Batch, CatalogError>;
}

/// A state of a table.
#[async_trait]
pub(in crate::partition) trait Source: Send + Sync {
    fn open(&self, stretch: Stretch) -> Box<dyn Cursor>;

    /// Those of up to [`BATCH_GET_MAX_KEYS`] distinct partitions that exist, in any order, wherever they are, with their
    /// keys in the table's current epoch.
    async fn find(&self, reads: &Reads<'_>, values: &[Vec<String>]) -> Result<Vec<Row>, CatalogError>;
}

/// The state of `table` that `view` asks for.
pub(in crate::partition) fn source_of(table: &TableRef, view: View) -> Result<Box<dyn Source + '_>, CatalogError> {
    match view {
        View::Latest => Ok(Box::new(Latest { table })),
        View::AsOf { at_ms } => Ok(Box::new(AsOf::new(table, at_ms))),
    }
}

/// What one page may read before it is answered as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBudget {
    pub items: u64,
    pub time_ms: i64,
}

impl Default for ScanBudget {
    /// Well within the half minute that a gateway waits.
    fn default() -> Self {
        Self { items: 100_000, time_ms: 12_000 }
    }
}

/// Reading for one page, with a count of it.
pub(in crate::partition) struct Reads<'a> {
    pub ports: &'a Ports,
    queries: AtomicU64,
    items: AtomicU64,
    max_items: u64,
    ends_ms: i64,
    overdue_ms: i64,
}

impl<'a> Reads<'a> {
    /// Without a budget.
    pub fn new(ports: &'a Ports) -> Self {
        let (queries, items) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { ports, queries, items, max_items: u64::MAX, ends_ms: i64::MAX, overdue_ms: i64::MAX }
    }

    pub fn within(ports: &'a Ports, budget: ScanBudget) -> Self {
        let ends_ms = ports.clock.now_ms().saturating_add(budget.time_ms);
        let overdue_ms = ends_ms.saturating_add(budget.time_ms);
        Self { max_items: budget.items, ends_ms, overdue_ms, ..Self::new(ports) }
    }

    /// Whether the page should be answered as it is.
    pub fn is_spent(&self) -> bool {
        self.items() >= self.max_items || self.ports.clock.now_ms() >= self.ends_ms
    }

    /// Whether twice the time of the budget has passed.
    pub fn is_overdue(&self) -> bool {
        self.ports.clock.now_ms() >= self.overdue_ms
    }

    /// A page of a query, asked for again while the store is busy.
    pub async fn query(&self, query: &Query) -> Result<Page, CatalogError> {
        let page = read(self.ports, || self.ports.items.query(query)).await?;
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.count_items(page.items.len());
        Ok(page)
    }

    /// The same, skimming the values of partitions.
    pub async fn skim(&self, query: &Query) -> Result<LatePage, CatalogError> {
        let page = read(self.ports, || self.ports.items.skim(query, VALUES)).await?;
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.count_items(page.items.len());
        Ok(page)
    }

    /// Counts items that were read otherwise than by queries.
    pub fn count_items(&self, items: usize) {
        self.items.fetch_add(u64::try_from(items).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }
}

/// The latest state.
pub(in crate::partition) struct Latest<'a> {
    pub table: &'a TableRef,
}

#[async_trait]
impl Source for Latest<'_> {
    fn open(&self, stretch: Stretch) -> Box<dyn Cursor> {
        let place = item::place(&self.table.table_id, stretch.epoch, Kind::Current, stretch.shard);
        Box::new(PlaceCursor::new(place, &stretch))
    }

    async fn find(&self, reads: &Reads<'_>, values: &[Vec<String>]) -> Result<Vec<Row>, CatalogError> {
        let row = |values: &[String], item: Item| Row { key: encode_key(&self.table.epoch_types, values), item };
        if let [values] = values {
            let found = find(reads.ports, self.table, values).await?;
            reads.count_items(usize::from(found.is_some()));
            return Ok(found.map(|found| row(values, found.item)).into_iter().collect());
        }
        let mut rows = Vec::new();
        for values in values.chunks(BATCH_GET_MAX_KEYS) {
            let found = read_every(reads.ports, self.table, values).await?;
            reads.count_items(found.len());
            rows.extend(found.into_iter().map(|(values, item)| row(&values, item)));
        }
        Ok(rows)
    }
}

/// Goes through the items under one partition key of the item store.
pub(in crate::partition) struct PlaceCursor {
    query: Query,
    is_done: bool,
}

impl PlaceCursor {
    pub fn new(place: String, stretch: &Stretch) -> Self {
        let mut query = Query::new(Table::Partitions, place, stretch.sort_range());
        query.start_after = stretch.after.clone().map(Sort::Bytes);
        Self { query, is_done: false }
    }
}

#[async_trait]
impl Cursor for PlaceCursor {
    async fn read_on(&mut self, reads: &Reads<'_>, at_once: usize) -> Result<Batch, CatalogError> {
        if self.is_done {
            return Ok(Batch { rows: Vec::new(), reached: Reached::End });
        }
        self.query.limit = Some(at_once.max(1));
        let page = reads.skim(&self.query).await?;
        let mut rows = Vec::with_capacity(page.items.len());
        for (key, item) in page.items {
            if let Sort::Bytes(key) = key {
                rows.push(LateRow { key, item });
            }
        }
        let reached = match &page.next {
            Some(Sort::Bytes(key)) => Reached::Key(key.clone()),
            _ => Reached::End,
        };
        self.is_done = reached == Reached::End;
        self.query.start_after = page.next;
        Ok(Batch { rows, reached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;
    use crate::store::{Condition, Key};

    async fn walk(world: &MemoryWorld, stretch: &Stretch) -> Vec<u8> {
        let reads = Reads::new(&world.ports);
        let mut cursor = PlaceCursor::new("p".to_owned(), stretch);
        let mut seen = Vec::new();
        loop {
            let batch = cursor.read_on(&reads, 2).await.unwrap();
            seen.extend(batch.rows.iter().map(|row| row.key[0]));
            if batch.reached == Reached::End {
                return seen;
            }
        }
    }

    #[tokio::test]
    async fn a_place_is_gone_through_in_order() {
        let world = MemoryWorld::new(0);
        for key in 1..=9 {
            let at = Key::new(Table::Partitions, "p", vec![key]);
            world.ports.items.put(&at, Item::new(), Condition::Always).await.unwrap();
        }
        let whole = Stretch { epoch: 0, shard: 0, range: None, after: None };
        assert_eq!(walk(&world, &whole).await, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let part = Stretch { range: Some(KeyRange { low: vec![3], high: vec![8] }), ..whole.clone() };
        assert_eq!(walk(&world, &part).await, [3, 4, 5, 6, 7]);
        let behind = Stretch { after: Some(vec![5]), ..part.clone() };
        assert_eq!(walk(&world, &behind).await, [6, 7]);
        assert!(walk(&world, &Stretch { after: Some(vec![8]), ..part }).await.is_empty());
    }
}
