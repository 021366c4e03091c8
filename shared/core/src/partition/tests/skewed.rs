//! Filters that leave leading keys free, on tables whose groups differ in size: few large ones among many tiny ones, groups
//! that only some shards have.

use std::collections::{BTreeMap, BTreeSet};

use super::{item_of, table_with};
use crate::catalog::TableRef;
use crate::partition::item::key;
use crate::partition::{self, Irregular, Listing, Segment, encode_key, shard_of};
use crate::predicate::{Compiled, Mode, compile};
use crate::store::ItemUsage;
use crate::store::memory::MemoryWorld;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

struct Sample {
    world: MemoryWorld,
    table: TableRef,
    rows: BTreeMap<Vec<u8>, Vec<String>>,
}

impl Sample {
    /// Groups of so many parts; rows of some groups only where `keeps` says.
    fn new(random: &mut Random, shards: u16, sizes: &[u64], is_local: bool) -> Self {
        let mut table = table_with(&[("a", "int"), ("b", "int"), ("c", "string")], &[], &[]);
        (table.irregular, table.shards) = (Irregular::NONE, shards);
        let world = MemoryWorld::new(0);
        let mut rows = BTreeMap::new();
        for (a, size) in sizes.iter().enumerate() {
            let only =
                (is_local && random.below(2) == 0).then(|| u16::try_from(random.below(u64::from(shards))).unwrap());
            for n in 0..*size {
                let values = (0_u32..)
                    .map(|salt| vec![a.to_string(), (n / 3).to_string(), format!("{}-{salt}", n % 3)])
                    .find(|values| only.is_none_or(|only| shard_of(values, shards) == only))
                    .unwrap();
                world.items.load([(key(&table, &values), item_of(&values))]);
                rows.insert(encode_key(&table.epoch_types, &values), values);
            }
        }
        Self { world, table, rows }
    }

    fn wanted(&self, filter: &Compiled, segment: Segment) -> Vec<Vec<String>> {
        let is_own = |row: &&Vec<String>| shard_of(row, self.table.shards) % segment.total == segment.number;
        self.rows.values().filter(is_own).filter(|row| filter.evaluate(row).unwrap()).cloned().collect()
    }

    async fn walk(&self, filter: &Compiled, segment: Segment, limit: usize) -> (Vec<Vec<String>>, ItemUsage) {
        let before = self.world.ports.items.item_usage();
        let mut listing = Listing { filter: Some(filter.clone()), segment, ..Listing::of_all(limit) };
        let mut seen = Vec::new();
        loop {
            let page = partition::list(&self.world.ports, &self.table, &listing).await.unwrap();
            assert!(page.next.is_none() || page.partitions.len() == limit, "a page that is not full");
            seen.extend(page.partitions.into_iter().map(|(_, partition)| partition.values().to_vec()));
            match page.next {
                Some(next) => (listing.start, listing.indexes) = (next, page.indexes),
                None => return (seen, self.world.ports.items.item_usage().since(&before)),
            }
        }
    }

    /// What a page of everything takes at best, reading on or jumping.
    fn best(&self, filter: &Compiled) -> u64 {
        let mut lanes: BTreeMap<u16, Lane<'_>> = BTreeMap::new();
        for row in self.rows.values() {
            let (rows, wanted, groups) = lanes.entry(shard_of(row, self.table.shards)).or_default();
            *rows += 1;
            *wanted += u64::from(filter.evaluate(row).unwrap());
            groups.insert(row[0].as_str());
        }
        let sum = |of: &dyn Fn(&Lane<'_>) -> u64| lanes.values().map(of).sum::<u64>();
        let reading = sum(&|(rows, ..)| rows * 10 / 1000 + rows.div_ceil(2000));
        let jumping = sum(&|(_, wanted, groups)| 2 * groups.len() as u64 + wanted / 100);
        reading.min(jumping)
    }
}

/// Of one shard: its rows, those that are wanted, and its groups.
type Lane<'a> = (u64, u64, BTreeSet<&'a str>);

/// Small groups, and large ones every now and then.
fn sizes(random: &mut Random) -> Vec<u64> {
    let (groups, large) = (random.one(&[3, 30, 60]), random.one(&[300, 1000, 3000]));
    let (of, small) = (random.one(&[1, 2, 3, 5, 20]), random.one(&[1, 4, 40]));
    let is_regular = random.below(2) == 0;
    let sizes = (0..groups).map(|at| {
        let is_large = if is_regular { at % of == 0 } else { random.below(of) == 0 };
        if is_large { large } else { 1 + random.below(small) }
    });
    let mut left = 10_000_u64;
    sizes
        .take_while(|size| {
            left = left.saturating_sub(*size);
            left > 0
        })
        .collect()
}

#[tokio::test]
async fn groups_of_any_sizes() {
    let mut random = Random(88_172_645_463_325_252);
    for round in 0..12 {
        let shards = random.one(&[1, 4, 16]);
        let sizes = sizes(&mut random);
        let is_local = random.below(3) == 0;
        let sample = Sample::new(&mut random, shards, &sizes, is_local);
        for _ in 0..4 {
            let (n, m) = (random.below(40), random.below(1500));
            let expression = match random.below(8) {
                0 => format!("b = {n}"),
                1 => format!("b in ({n}, {m}, -1)"),
                2 => "b = -1".to_owned(),
                3 => format!("b >= {m}"),
                4 => format!("b between {n} and {m} and c like '1%'"),
                5 => "c = '1-0'".to_owned(),
                6 => format!("a <> 1 and b = {m}"),
                _ => format!("b = {n} or (a = 2 and c > '1')"),
            };
            let filter = compile(&expression, &sample.table.keys, Mode::Lenient).unwrap();
            let wanted = sample.wanted(&filter, Segment::WHOLE);
            let (found, usage) = sample.walk(&filter, Segment::WHOLE, 100_000).await;
            assert!(found == wanted, "{round} {expression}");
            let paid = usage.queries + usage.items_read / 100;
            let best = sample.best(&filter);
            assert!(
                paid <= 2 * best + 8 * u64::from(shards),
                "{round} {expression} {shards}: {paid} instead of {best}, {sizes:?}"
            );
            let limit = random.one(&[1, 7, 50, 333]);
            if wanted.len() / limit < 30 {
                let total = random.one(&[1, 3, 10]);
                for number in 0..total {
                    let segment = Segment { number, total };
                    let (found, _) = sample.walk(&filter, segment, limit).await;
                    assert!(found == sample.wanted(&filter, segment), "{round} {expression} {limit} {number} {total}");
                }
            }
        }
    }
}
