//! Finding rows by the entries of an index.
//!
//! Entries are in the order of the index, answers are in the order of the keys. So a page reads all entries that fit the
//! filter, which say all values of their partitions, and shows the first of them behind its position. A walk therefore
//! does not depend on the index: it goes on when the index is deleted, or made, between two pages.

use super::position::Position;
use super::source::{Cursor, PlaceCursor, Reached, Reads, Row, Source, Stretch};
use super::{Listing, Room, RowPage};
use crate::catalog::{CatalogError, IndexRef, TableRef};
use crate::limits::BATCH_GET_MAX_KEYS;
use crate::partition::index_item;
use crate::partition::key::encode_key;
use crate::predicate::{Compiled, KeyRange, Plan};
use crate::store::Item;

/// Entries that one page reads. With more the order of the keys is the better way.
pub(super) const ENTRIES_MAX: u64 = 10_000;
const STEP_ITEMS: usize = 2000;

/// Entries and stretches of an index, as rows of the table would be.
struct Entries<'a> {
    table: &'a TableRef,
    index: u32,
}

#[async_trait::async_trait]
impl Source for Entries<'_> {
    fn open(&self, stretch: Stretch) -> Box<dyn Cursor> {
        let place = index_item::place(&self.table.table_id, stretch.epoch, self.index, stretch.shard);
        Box::new(PlaceCursor::new(place, &stretch))
    }

    async fn find(&self, _: &Reads<'_>, _: &[Vec<String>]) -> Result<Vec<Row>, CatalogError> {
        Err(CatalogError::Broken("entries of an index are not looked up".to_owned()))
    }
}

/// The page, or none if there are too many entries.
pub(super) async fn list_by_index(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    (index, plan, filter): (&IndexRef, &Plan, &Compiled),
) -> Result<Option<RowPage>, CatalogError> {
    let shards = listing.segment.shards(table.shards);
    let entries = Entries { table, index: index.number };
    let ranges: Vec<&KeyRange> = plan.ranges.iter().chain(plan.probes.iter().map(|probe| &probe.range)).collect();
    let max = reads.items() + ENTRIES_MAX;
    let read_shard = |shard: &u16| {
        let stretches: Vec<Stretch> =
            ranges.iter().filter_map(|range| Position::BEGINNING.rest(table.epoch, *shard, range)).collect();
        let entries = &entries;
        async move {
            let mut found = Vec::new();
            for stretch in stretches {
                let mut cursor = entries.open(stretch);
                loop {
                    let batch = cursor.read_on(reads, STEP_ITEMS).await?;
                    for row in &batch.rows {
                        let values = index_item::decode(&row.item)?;
                        match filter.evaluate(&values) {
                            Ok(false) => {}
                            Ok(true) => found.push(values),
                            // An entry may point nowhere.
                            Err(error) if source.find(reads, &[values]).await?.is_empty() => drop(error),
                            Err(error) => return Err(error.into()),
                        }
                    }
                    if batch.reached == Reached::End || reads.items() > max {
                        break;
                    }
                }
            }
            Ok::<_, CatalogError>(found)
        }
    };
    let found = futures::future::try_join_all(shards.iter().map(read_shard)).await?;
    if reads.items() > max {
        return Ok(None);
    }
    list_by_values(reads, source, table, listing, found.into_iter().flatten()).await.map(Some)
}

/// The page of those of these partitions that exist.
pub(super) async fn list_by_values(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    values: impl Iterator<Item = Vec<String>>,
) -> Result<RowPage, CatalogError> {
    let keyed = values.map(|values| (encode_key(&table.epoch_types, &values), values));
    let mut wanted: Vec<(Vec<u8>, Vec<String>)> = keyed.filter(|(key, _)| listing.start.admits(key)).collect();
    wanted.sort();
    wanted.dedup();
    let mut room = Room::new(listing.limit);
    let mut rows: Vec<(Vec<u8>, Item)> = Vec::new();
    let mut left = wanted.into_iter().peekable();
    while left.peek().is_some() {
        let some: Vec<Vec<String>> =
            left.by_ref().take(BATCH_GET_MAX_KEYS.min(room.left() + 1)).map(|(_, values)| values).collect();
        let mut found = source.find(reads, &some).await?;
        found.sort_by(|left, right| left.key.cmp(&right.key));
        for row in found {
            if !room.take(&row.item) {
                return Ok(RowPage { rows, next: Some(Position::From(row.key)) });
            }
            rows.push((row.key, row.item));
        }
    }
    Ok(RowPage { rows, next: None })
}
