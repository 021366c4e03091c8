//! Which of several ways to the same rows is the cheapest, by what one shard has of each. Partitions are dealt to shards by
//! a hash, so one tells about all of them.
//!
//! All ways are followed alike, further and further, until one has come to its end and no other can be cheaper. So the look
//! costs a few requests, and items of one shard of the order of the best way's.

use std::collections::VecDeque;

use super::Listing;
use super::by_index::Entries;
use super::pace::REQUEST_ITEMS;
use super::position::Position;
use super::source::{Cursor, Latest, Reached, Reads, Source};
use super::way::{Contest, Way, index_way};
use crate::catalog::{CatalogError, TableRef};
use crate::predicate::{Compiled, KeyRange, Plan};

/// What a partition costs that is got by its key, beside one that a query has: a unit is for 4 KB, and at least one is paid.
const FOUND_ITEMS: usize = 8;
/// Items of each way before it is seen whether that is enough to tell.
const LOOKS: [usize; 3] = [32, 256, 2048];

/// One way, in one shard.
struct Contender<'a> {
    source: Box<dyn Source + 'a>,
    ranges: VecDeque<KeyRange>,
    requests: usize,
    cursor: Option<Box<dyn Cursor>>,
    items: usize,
    matches: usize,
    /// Of an index: what matches is got as well.
    has_entries: bool,
    is_through: bool,
}

impl<'a> Contender<'a> {
    fn new(source: Box<dyn Source + 'a>, plan: &Plan, has_entries: bool) -> Self {
        let probes = plan.probes.iter().map(|probe| &probe.range);
        let ranges: VecDeque<KeyRange> = plan.ranges.iter().chain(probes).cloned().collect();
        let requests = ranges.len();
        Self { source, ranges, requests, cursor: None, items: 0, matches: 0, has_entries, is_through: false }
    }

    /// In items; of what was seen so far.
    fn cost(&self) -> usize {
        self.requests * REQUEST_ITEMS + self.items + if self.has_entries { self.matches * FOUND_ITEMS } else { 0 }
    }

    async fn go_on(
        &mut self,
        reads: &Reads<'_>,
        filter: &Compiled,
        (epoch, shard): (u32, u16),
        max: usize,
    ) -> Result<(), CatalogError> {
        while !self.is_through && self.items < max {
            let Some(cursor) = &mut self.cursor else {
                match self.ranges.pop_front() {
                    Some(range) => {
                        let stretch = Position::BEGINNING.rest(epoch, shard, &range);
                        self.cursor = stretch.map(|stretch| self.source.open(stretch));
                    }
                    None => self.is_through = true,
                }
                continue;
            };
            let batch = cursor.read_on(reads, max - self.items).await?;
            self.items += batch.rows.len();
            for row in &batch.rows {
                // Whether it can be told is not the matter here.
                self.matches += usize::from(filter.evaluate(&row.values()?).unwrap_or(true));
            }
            if batch.reached == Reached::End {
                self.cursor = None;
            }
        }
        Ok(())
    }
}

/// The cheapest of these ways. Of equals, and if none can be followed to its end, the first: by keys, unless those leave
/// everything open. Where only some can, the cheapest of them: what is left of the others may be anything.
pub(super) async fn cheapest(
    reads: &Reads<'_>,
    table: &TableRef,
    listing: &Listing,
    filter: &Compiled,
    contest: Contest,
) -> Result<Way, CatalogError> {
    let Contest { keys, are_keys_open, indexes } = contest;
    let mut contenders = Vec::with_capacity(indexes.len() + 1);
    if !are_keys_open {
        contenders.push(Contender::new(Box::new(Latest { table }), &keys, false));
    }
    for (index, plan) in &indexes {
        contenders.push(Contender::new(Box::new(Entries { table, index: index.number }), plan, true));
    }
    let mut best = None;
    if let Some(shard) = listing.segment.shards(table.shards).first().copied() {
        for max in LOOKS {
            let looks = contenders.iter_mut().map(|one| one.go_on(reads, filter, (table.epoch, shard), max));
            futures::future::try_join_all(looks).await?;
            best = cheapest_through(&contenders);
            if best.is_some_and(|(_, cost)| contenders.iter().all(|other| other.cost() >= cost)) {
                break;
            }
        }
    }
    let best = best.map_or(0, |(at, _)| at);
    let index = if are_keys_open { Some(best) } else { best.checked_sub(1) };
    Ok(match index.and_then(|at| indexes.into_iter().nth(at)) {
        Some((index, plan)) => index_way(table, index, plan),
        None => Way::Ranges { plan: keys },
    })
}

/// Of those that are through, with its cost.
fn cheapest_through(contenders: &[Contender<'_>]) -> Option<(usize, usize)> {
    let through = contenders.iter().enumerate().filter(|(_, one)| one.is_through);
    through.map(|(at, one)| (at, one.cost())).min_by_key(|(_, cost)| *cost)
}
