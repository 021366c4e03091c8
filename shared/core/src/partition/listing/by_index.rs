//! Finding rows by the entries of an index.
//!
//! Entries are in the order of the index, answers are in the order of the keys. Where the filter says single values of the
//! index's keys, entries are merged ([`super::groups`]). In all other cases a page reads all entries that fit the filter,
//! which say all values of their partitions, and shows the first of them behind its position; a walk that would read them too
//! often goes by keys instead. A walk therefore does not depend on the index: it goes on when the index is deleted, or made,
//! between two pages.

use super::groups::{Groups, Order};
use super::guide::{MANY_RANGES, ROWS_PER_RANGE};
use super::position::Position;
use super::source::{Cursor, PlaceCursor, Reached, Reads, Row, Source, Stretch, View};
use super::{Filling, Listing, RowPage, Segment};
use crate::catalog::{CatalogError, IndexRef, TableRef};
use crate::limits::BATCH_GET_MAX_KEYS;
use crate::partition::index_item;
use crate::partition::key::encode_key;
use crate::predicate::{Compiled, KeyRange, Plan};

/// Entries that one page reads. With more the order of the keys is the better way.
pub(super) const ENTRIES_MAX: u64 = 10_000;
const STEP_ITEMS: usize = 2000;
/// Partitions that are looked up in vain before it is seen whether there are only few rows: in the past each costs a query.
const ABSENT_UNTIL_LOOK: usize = 200;
const ABSENT_IN_PAST_UNTIL_LOOK: usize = 40;
/// And so many times more before that is tried again.
const LOOKS_FACTOR: usize = 4;
/// Few rows, in each shard, and steps to see that: the past of a few rows may take a second one.
const LOOK_ITEMS: usize = 50;
const LOOK_STEPS: usize = 2;

/// Entries and stretches of an index, as rows of the table would be.
pub(super) struct Entries<'a> {
    pub table: &'a TableRef,
    pub index: u32,
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

/// The page by entries that can be merged.
pub(super) async fn list_merged(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    (index, plan, filter): (&IndexRef, &Plan, &Compiled),
) -> Result<RowPage, CatalogError> {
    let order = Order::new(table, index)
        .ok_or_else(|| CatalogError::Broken("a key of an index is no key of its table".to_owned()))?;
    let entries = Entries { table, index: index.number };
    Groups::new(reads, &entries, (table, listing), order, (plan, filter)).page(source).await
}

/// How often a walk of such pages reads its entries, at most, in all: as often as the table has partitions.
fn walk_max(table: &TableRef, segment: Segment) -> u64 {
    let partitions = u64::try_from(table.approximate_partitions).unwrap_or(0);
    (partitions / u64::from(segment.total.max(1))).max(ENTRIES_MAX)
}

/// The page, or none if there are too many entries for it, or for the pages to come.
pub(super) async fn list_by_index(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    (index, plan, filter): (&IndexRef, &Plan, &Compiled),
) -> Result<Option<RowPage>, CatalogError> {
    let shards = listing.segment.shards(table.shards);
    let entries = Entries { table, index: index.number };
    let mut ranges: Vec<&KeyRange> = plan.ranges.iter().chain(plan.probes.iter().map(|probe| &probe.range)).collect();
    ranges.sort_unstable_by(|left, right| left.low.cmp(&right.low));
    let max = reads.items() + ENTRIES_MAX;
    let read_shard = |shard: &u16| {
        let (shard, entries, ranges) = (*shard, &entries, &ranges);
        async move {
            let mut found = Vec::new();
            let mut from = Position::BEGINNING;
            // There may be more ranges than entries.
            let all = ranges.first().zip(ranges.last()).filter(|_| ranges.len() >= MANY_RANGES);
            let first = all.map(|(first, last)| (KeyRange { low: first.low.clone(), high: last.high.clone() }, true));
            for (range, is_look) in first.into_iter().chain(ranges.iter().map(|range| ((*range).clone(), false))) {
                let Some(stretch) = from.rest(table.epoch, shard, &range) else { continue };
                let mut cursor = entries.open(stretch);
                loop {
                    let batch = cursor.read_on(reads, if is_look { ROWS_PER_RANGE } else { STEP_ITEMS }).await?;
                    for row in batch.rows {
                        let values = index_item::decode(&row.decode()?.item)?;
                        match filter.evaluate(&values) {
                            Ok(false) => {}
                            Ok(true) => found.push(values),
                            // An entry may point nowhere.
                            Err(error) if source.find(reads, &[values]).await?.is_empty() => drop(error),
                            Err(error) => return Err(error.into()),
                        }
                    }
                    match batch.reached {
                        Reached::End if is_look => return Ok(found),
                        Reached::Key(key) if is_look => {
                            from = Position::After(key);
                            break;
                        }
                        Reached::End => break,
                        Reached::Key(_) if reads.items() > max => break,
                        Reached::Key(_) => {}
                    }
                }
            }
            Ok::<_, CatalogError>(found)
        }
    };
    let found = futures::future::try_join_all(shards.iter().map(read_shard)).await?;
    let behind = found.iter().flatten().filter(|values| listing.start.admits(&encode_key(&table.epoch_types, values)));
    let pages = u64::try_from(behind.count().div_ceil(listing.limit.max(1))).unwrap_or(u64::MAX);
    let entries = (reads.items() + ENTRIES_MAX).saturating_sub(max);
    let is_often = pages > 1 && entries.saturating_mul(pages) > walk_max(table, listing.segment);
    if reads.items() > max || is_often {
        return Ok(None);
    }
    list_by_values(reads, source, table, listing, found.into_iter().flatten()).await.map(Some)
}

/// The page of those of these partitions that exist.
///
/// A filter may say more values than there are rows. So when many of them were looked up in vain, the rows between the
/// rest are read, if they are few.
pub(super) async fn list_by_values(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    listing: &Listing,
    values: impl Iterator<Item = Vec<String>>,
) -> Result<RowPage, CatalogError> {
    let keyed = values.map(|values| (encode_key(&table.epoch_types, &values), values));
    let mut left: Vec<(Vec<u8>, Vec<String>)> = keyed.filter(|(key, _)| listing.start.admits(key)).collect();
    left.sort_unstable_by(|left, right| right.cmp(left));
    left.dedup();
    let mut page = Filling::new(listing.limit);
    let until_look = match listing.view {
        View::Latest => ABSENT_UNTIL_LOOK,
        View::AsOf { .. } => ABSENT_IN_PAST_UNTIL_LOOK,
    };
    let (mut asked, mut absent, mut next_look) = (0, 0, until_look);
    while let Some((next, _)) = left.last() {
        if asked > 0 && reads.is_spent() {
            let next = Position::From(next.clone());
            return Ok(page.until(Some(next)));
        }
        let mut found = None;
        if absent >= next_look && left.len() >= until_look {
            next_look = absent.saturating_mul(LOOKS_FACTOR);
            found = read_between(reads, source, table, listing.segment, &left).await?;
        }
        let found = match found {
            Some(found) => {
                left.clear();
                found
            }
            None => {
                // As many as fill the page, going by those that were found so far.
                let is_found = asked - absent + 1;
                let count = (page.left() + 1).saturating_mul(asked + 1).div_ceil(is_found).min(BATCH_GET_MAX_KEYS);
                let some = left.split_off(left.len().saturating_sub(count));
                let some: Vec<Vec<String>> = some.into_iter().map(|(_, values)| values).collect();
                let found = source.find(reads, &some).await?;
                asked += some.len();
                absent += some.len().saturating_sub(found.len());
                found
            }
        };
        let next = page.take_all(found);
        if next.is_some() {
            return Ok(page.until(next));
        }
    }
    Ok(page.until(None))
}

/// Those of the partitions `wanted`, which are in falling order, that exist, if there are only few rows where they would
/// be.
async fn read_between(
    reads: &Reads<'_>,
    source: &dyn Source,
    table: &TableRef,
    segment: Segment,
    wanted: &[(Vec<u8>, Vec<String>)],
) -> Result<Option<Vec<Row>>, CatalogError> {
    let (Some((last, _)), Some((first, _))) = (wanted.first(), wanted.last()) else { return Ok(None) };
    let range = KeyRange { low: first.clone(), high: KeyRange::with_prefix(last.clone()).high };
    let read_shard = |shard: &u16| {
        let cursor = Position::BEGINNING.rest(table.epoch, *shard, &range).map(|stretch| source.open(stretch));
        async move {
            let Some(mut cursor) = cursor else { return Ok(Some(Vec::new())) };
            let mut rows = Vec::new();
            for _ in 0..LOOK_STEPS {
                let batch = cursor.read_on(reads, LOOK_ITEMS).await?;
                for row in batch.rows {
                    rows.push(row.decode()?);
                }
                if batch.reached == Reached::End {
                    return Ok(Some(rows));
                }
            }
            Ok::<Option<Vec<Row>>, CatalogError>(None)
        }
    };
    let shards = futures::future::try_join_all(segment.shards(table.shards).iter().map(read_shard)).await?;
    let rows = shards.into_iter().collect::<Option<Vec<Vec<Row>>>>();
    let is_wanted = |row: &Row| wanted.binary_search_by(|(key, _)| row.key.cmp(key)).is_ok();
    Ok(rows.map(|rows| rows.into_iter().flatten().filter(is_wanted).collect()))
}
