//! Entries of an index in the order of the table's keys.
//!
//! Where every range of a plan has all keys of the index down to one value, what is left of its entries is in the order of
//! the other keys, which is the table's. So such a range is a sorted stream in every shard, and a page merges them from its
//! position on: a walk reads each entry once, and of each stream and page a little ahead. Keys that are cut, and values that
//! are written otherwise, are in that order up to their beginnings, so a stream tells up to where its beginnings are
//! through.
//!
//! Ranges that differ in a leading key of the table do not mix: those of one [`Wave`] are read before the next is begun.

use std::collections::{BTreeMap, VecDeque};

use super::position::Position;
use super::source::{Cursor, Reached, Reads, Source};
use super::{Filling, Listing, RowPage, share};
use crate::catalog::{CatalogError, IndexRef, TableRef};
use crate::limits::BATCH_GET_MAX_KEYS;
use crate::partition::KeyType;
use crate::partition::index_item;
use crate::partition::key::beginning::{PLAIN_MAX_BYTES, beginning_len, encode_beginning};
use crate::partition::key::encode_key;
use crate::predicate::{Compiled, KeyRange, Plan};

/// Items of one step where most entries are not wanted.
const STEP_MAX_ITEMS: usize = 2000;

/// How the keys of an index lie in those of its table.
#[derive(Clone, Debug)]
pub(super) struct Order<'a> {
    /// Of the table, by position.
    types: &'a [KeyType],
    /// Positions in the table, in the order of the index.
    positions: Vec<usize>,
    index_types: Vec<KeyType>,
    /// How many of them are keys of the index.
    bound: usize,
}

/// The bytes of the index's keys in the entries of a range, by their position in the table.
type Bound = BTreeMap<usize, Vec<u8>>;

impl<'a> Order<'a> {
    /// None if a key of the index is no key of the table.
    pub(super) fn new(table: &'a TableRef, index: &IndexRef) -> Option<Self> {
        let positions = index_item::order(table, index)?;
        let type_of = |at: &usize| table.epoch_types.get(*at).copied().unwrap_or(KeyType::Text);
        let index_types = positions.iter().map(type_of).collect();
        Some(Self { types: &table.epoch_types, positions, index_types, bound: index.keys.len() })
    }

    /// The index's keys in all entries of this range; none if they are not single values.
    fn bound_of(&self, range: &KeyRange) -> Option<(Vec<u8>, Bound)> {
        let mut bound = Bound::new();
        let mut from = 1;
        for (at, position) in self.positions.iter().take(self.bound).enumerate() {
            let end = beginning_len(&self.index_types, &range.low, at + 1);
            let bytes = range.low.get(from..end).filter(|bytes| !bytes.is_empty())?;
            bound.insert(*position, bytes.to_vec());
            from = end;
        }
        let group = range.low.get(..from)?.to_vec();
        let is_one = range.high <= KeyRange::with_prefix(group.clone()).high;
        is_one.then_some((group, bound))
    }

    /// Whether a page can be made of these ranges in order.
    pub(super) fn fits(&self, plan: &Plan) -> bool {
        plan.probes.is_empty() && plan.ranges.iter().all(|range| self.bound_of(range).is_some())
    }

    /// Where entries with these keys of the index begin whose partitions lie at `from` or behind, about: none that does is
    /// before. None if there are none.
    fn start_of(&self, group: &[u8], bound: &Bound, from: &[u8]) -> Option<Vec<u8>> {
        let mut start = group.to_vec();
        let plain = from.get(..from.len().min(PLAIN_MAX_BYTES)).unwrap_or_default();
        match plain.first().cmp(&group.first()) {
            std::cmp::Ordering::Less => return Some(start),
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Equal => {}
        }
        let mut at = 1;
        for position in 0..self.positions.len() {
            let end = beginning_len(self.types, plain, position + 1).max(at);
            let is_whole = end > at;
            let bytes = plain.get(at..if is_whole { end } else { plain.len() }).unwrap_or_default();
            at = end;
            match bound.get(&position) {
                None => start.extend_from_slice(bytes),
                Some(own) if own.as_slice() > bytes => break,
                Some(own) if own.as_slice() == bytes => {}
                // What begins like this lies before.
                Some(_) if start.len() == group.len() => return None,
                Some(_) if start.len() > PLAIN_MAX_BYTES => break,
                Some(_) => return Some(KeyRange::with_prefix(start).high),
            }
            if !is_whole {
                break;
            }
        }
        start.truncate(PLAIN_MAX_BYTES.max(group.len()));
        Some(start)
    }

    /// Which leading keys of the table all entries of a range have.
    fn leading_of(&self, group: &[u8], bound: &Bound) -> Vec<u8> {
        let mut leading = group.get(..1).unwrap_or_default().to_vec();
        for position in 0..self.positions.len() {
            let Some(bytes) = bound.get(&position) else { break };
            leading.extend_from_slice(bytes);
        }
        leading
    }

    /// No partition of an entry behind the one of these values has a lesser key.
    fn reached(&self, values: &[String]) -> Vec<u8> {
        let reordered: Vec<String> = self.positions.iter().filter_map(|at| values.get(*at).cloned()).collect();
        let length = |positions| encode_beginning(&self.index_types, &reordered, positions).len();
        if length(values.len()) < PLAIN_MAX_BYTES {
            return encode_beginning(self.types, values, values.len());
        }
        let is_whole = |position: &usize| {
            let at = self.positions.iter().position(|other| other == position);
            at.is_some_and(|at| length(at + 1) < PLAIN_MAX_BYTES)
        };
        let whole = (0..values.len()).take_while(is_whole).count();
        encode_beginning(self.types, values, whole)
    }
}

/// The entries of one range in one shard.
struct Stream {
    cursor: Option<Box<dyn Cursor>>,
    /// Where it is; see [`Order::reached`].
    reached: Vec<u8>,
}

/// Streams whose partitions may mix.
struct Wave {
    streams: Vec<Stream>,
    /// Partitions that the entries say, by key.
    found: BTreeMap<Vec<u8>, Vec<String>>,
}

impl Wave {
    /// Up to here all are found; none if everything is.
    fn horizon(&self) -> Option<&Vec<u8>> {
        self.streams.iter().filter(|stream| stream.cursor.is_some()).map(|stream| &stream.reached).min()
    }

    /// How many of those found are certainly the next ones, up to `max`.
    fn certain(&self, max: usize) -> usize {
        match self.horizon() {
            None => self.found.len().min(max),
            Some(horizon) => self.found.keys().take(max).take_while(|key| *key <= horizon).count(),
        }
    }
}

/// How many entries were judged, and wanted.
#[derive(Clone, Copy, Default)]
struct Tally {
    judged: usize,
    wanted: usize,
}

/// Merges the entries of an index into pages.
pub(super) struct Groups<'a> {
    reads: &'a Reads<'a>,
    table: &'a TableRef,
    listing: &'a Listing,
    order: Order<'a>,
    filter: &'a Compiled,
    is_exact: bool,
    waves: VecDeque<Wave>,
    tally: Tally,
}

impl<'a> Groups<'a> {
    /// `entries` has the entries of the index as its rows.
    pub(super) fn new(
        reads: &'a Reads<'a>,
        entries: &dyn Source,
        (table, listing): (&'a TableRef, &'a Listing),
        order: Order<'a>,
        (plan, filter): (&Plan, &'a Compiled),
    ) -> Self {
        let shards = listing.segment.shards(table.shards);
        let mut waves: BTreeMap<Vec<u8>, Vec<Stream>> = BTreeMap::new();
        for range in &plan.ranges {
            let Some((group, bound)) = order.bound_of(range) else { continue };
            let Some(start) = order.start_of(&group, &bound, listing.start.key()) else { continue };
            let start = Position::From(start);
            let leading = order.leading_of(&group, &bound);
            let open = |shard: &u16| {
                let stretch = start.rest(table.epoch, *shard, range)?;
                Some(Stream { cursor: Some(entries.open(stretch)), reached: leading.clone() })
            };
            let streams = shards.iter().filter_map(open);
            waves.entry(leading.clone()).or_default().extend(streams);
        }
        let waves = waves.into_values().map(|streams| Wave { streams, found: BTreeMap::new() }).collect();
        Self { reads, table, listing, order, filter, is_exact: plan.is_exact, waves, tally: Tally::default() }
    }

    /// The page.
    pub(super) async fn page(mut self, source: &dyn Source) -> Result<RowPage, CatalogError> {
        let mut page = Filling::new(self.listing.limit);
        while let Some(mut wave) = self.waves.pop_front() {
            loop {
                let wanted = page.left().saturating_add(1);
                let spent = self.fill(source, &mut wave, wanted).await?;
                let count = wave.certain(wanted.min(BATCH_GET_MAX_KEYS));
                if count == 0 {
                    if let Some(position) = spent {
                        return Ok(page.until(Some(position)));
                    }
                    break;
                }
                let rest = wave.found.keys().nth(count).cloned();
                let later = rest.map(|key| wave.found.split_off(&key)).unwrap_or_default();
                let next: Vec<Vec<String>> = std::mem::replace(&mut wave.found, later).into_values().collect();
                let next = page.take_all(source.find(self.reads, &next).await?);
                if next.is_some() {
                    return Ok(page.until(next));
                }
            }
        }
        Ok(page.until(None))
    }

    /// Reads until so many are certain, or everything is read, or the budget is spent; then it says up to where everything
    /// is found, which is behind the start of the page.
    async fn fill(
        &mut self,
        source: &dyn Source,
        wave: &mut Wave,
        wanted: usize,
    ) -> Result<Option<Position>, CatalogError> {
        loop {
            if wave.certain(wanted) >= wanted {
                return Ok(None);
            }
            let Some(horizon) = wave.horizon().cloned() else { return Ok(None) };
            let spent = Position::After(horizon);
            if self.reads.is_spent() && spent > self.listing.start {
                return Ok(Some(spent));
            }
            self.step(source, wave, wanted).await?;
        }
    }

    /// One step of each stream that may have some of those wanted.
    async fn step(&mut self, source: &dyn Source, wave: &mut Wave, wanted: usize) -> Result<(), CatalogError> {
        let last = wave.found.keys().nth(wanted.saturating_sub(1)).cloned();
        let missing = wanted.saturating_sub(wave.found.len()).max(1);
        let may_have =
            |stream: &&mut Stream| stream.cursor.is_some() && last.as_ref().is_none_or(|last| stream.reached < *last);
        let streams: Vec<&mut Stream> = wave.streams.iter_mut().filter(may_have).collect();
        let (reads, at_once) = (self.reads, self.at_once(missing, streams.len()));
        let read = streams.into_iter().map(|stream| async move {
            let batch = match &mut stream.cursor {
                Some(cursor) => cursor.read_on(reads, at_once).await?,
                None => return Ok(None),
            };
            let mut values = Vec::with_capacity(batch.rows.len());
            for row in batch.rows {
                values.push(index_item::decode(&row.decode()?.item)?);
            }
            Ok::<_, CatalogError>(Some((stream, batch.reached, values)))
        });
        let read = futures::future::try_join_all(read).await?;
        for (stream, reached, entries) in read.into_iter().flatten() {
            match (reached, entries.last()) {
                (Reached::End, _) => stream.cursor = None,
                (Reached::Key(_), Some(last)) => stream.reached = self.order.reached(last),
                (Reached::Key(_), None) => {}
            }
            for values in entries {
                let key = encode_key(&self.table.epoch_types, &values);
                if self.listing.start.admits(&key) && self.is_wanted(source, &values).await? {
                    wave.found.insert(key, values);
                }
            }
        }
        Ok(())
    }

    /// Items that one of so many streams reads at once for the rows that are missing.
    fn at_once(&self, missing: usize, streams: usize) -> usize {
        let even = share(missing, self.listing.limit, streams);
        let Tally { judged, wanted } = self.tally;
        let streams = streams.max(1);
        let at_once = match wanted {
            _ if self.is_exact => even,
            0 => even.saturating_mul(2).max(judged / streams),
            _ => missing.saturating_mul(judged).div_ceil(wanted).div_ceil(streams).saturating_add(1),
        };
        at_once.clamp(1, STEP_MAX_ITEMS.max(even))
    }

    async fn is_wanted(&mut self, source: &dyn Source, values: &[String]) -> Result<bool, CatalogError> {
        if self.is_exact {
            return Ok(true);
        }
        self.tally.judged += 1;
        match self.filter.evaluate(values) {
            Ok(is_wanted) => {
                self.tally.wanted += usize::from(is_wanted);
                Ok(is_wanted)
            }
            // An entry may point nowhere.
            Err(error) if source.find(self.reads, &[values.to_vec()]).await?.is_empty() => {
                drop(error);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::partition::tests::table_with;
    use crate::predicate::{Layout, Mode, compile, plan};

    const KEYS: [(&str, &str); 3] = [("a", "int"), ("b", "string"), ("c", "int")];

    fn ranges(table: &TableRef, expression: &str) -> Vec<KeyRange> {
        let filter = compile(expression, &table.keys, Mode::Lenient).unwrap();
        let order = index_item::order(table, &table.indexes[0]).unwrap();
        plan(&filter, &Layout::reordered(&table.epoch_types, &order), 16).ranges
    }

    #[test]
    fn ranges_with_single_values_of_the_index_are_in_order() {
        for (index, expression, fits) in [
            (&["b"][..], "b = 'x'", true),
            (&["b"], "b in ('x', 'y', 'z')", true),
            (&["b"], "b = 'x' and a > 3", true),
            (&["b"], "b = 'x' and a = 3 and c between 1 and 5", true),
            (&["b"], "b > 'x'", false),
            (&["b"], "b like 'x%'", false),
            (&["b", "c"], "b = 'x'", false),
            (&["b", "c"], "b = 'x' and c > 3", false),
            (&["b", "c"], "b = 'x' and c >= 3 and c <= 3", true),
            (&["c"], "c in (1, 2) and b = 'x'", true),
            (&["c"], "c = 1 or a = 1", false),
        ] {
            let table = table_with(&KEYS, &[], &[index]);
            let order = Order::new(&table, &table.indexes[0]).unwrap();
            let all = ranges(&table, expression).iter().all(|range| order.bound_of(range).is_some());
            assert_eq!(all, fits, "{index:?} {expression}");
        }
    }

    fn values() -> impl Strategy<Value = Vec<String>> {
        let number = || {
            prop::sample::select(vec!["1", "01", "2", "-3", "10", "x", "__HIVE_DEFAULT_PARTITION__"])
                .prop_map(str::to_owned)
        };
        let text = prop_oneof![
            4 => prop::sample::select(vec!["", "x", "x\0", "xy", "y"]).prop_map(str::to_owned),
            1 => (985_usize..1000, prop::sample::select(vec!["a", "b", ""])).prop_map(|(length, end)| "x".repeat(length) + end)
        ];
        (number(), text, number()).prop_map(|(a, b, c)| vec![a, b, c])
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        /// Nothing that lies at a position or behind has its entry before the start, and nothing behind an entry lies before
        /// what the entry says.
        #[test]
        fn starts_and_ends_leave_nothing_out(
            entry in values(),
            other in values(),
            from in values(),
            length in 0_usize..1100,
            index in prop::sample::select(vec![&["b"][..], &["c"], &["c", "a"], &["b", "c"], &["a"]]),
        ) {
            let table = table_with(&KEYS, &[], &[index]);
            let index = &table.indexes[0];
            let order = Order::new(&table, index).unwrap();
            let sort_key = |values: &[String]| match index_item::key(&table, index, values).unwrap().sk {
                crate::store::Sort::Bytes(bytes) => bytes,
                _ => unreachable!(),
            };
            let reordered: Vec<String> = order.positions.iter().map(|at| entry[*at].clone()).collect();
            let group = encode_beginning(&order.index_types, &reordered, order.bound);
            let range = KeyRange::with_prefix(group.clone());
            let Some((group, bound)) = order.bound_of(&range) else { return Ok(()) };
            let key = |values: &[String]| encode_key(&table.epoch_types, values);
            let mut from = key(&from);
            from.truncate(length);
            if key(&entry) >= from {
                let start = order.start_of(&group, &bound, &from);
                prop_assert!(start.as_ref().is_some_and(|start| *start <= sort_key(&entry)), "{start:?}");
            }
            let is_of_group = order.positions.iter().take(order.bound).all(|at| {
                let bytes = |values: &[String]| {
                    let mut bytes = Vec::new();
                    crate::partition::key::encode_position(table.epoch_types[*at], &values[*at], &mut bytes);
                    bytes
                };
                bytes(&entry) == bytes(&other)
            });
            if is_of_group && sort_key(&other) > sort_key(&entry) {
                prop_assert!(key(&other) >= order.reached(&entry));
            }
            prop_assert!(key(&entry) >= order.leading_of(&group, &bound));
        }
    }
}
