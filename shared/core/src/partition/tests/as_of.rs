//! The past against a recorded log of what was done, at every instant, also while partitions change and move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, json};

use super::store::{Dice, Unsteady};
use crate::catalog::{self, CatalogError, OlderEpoch, TableRef};
use crate::partition::listing::source::{Reached, Reads, Source, Stretch, source_of};
use crate::partition::{self, KeyType, Listing, PartitionInput, PartitionUpdate, Segment, View, encode_key, item};
use crate::ports::{Ports, Settings};
use crate::predicate::{self, KeyRange, Mode};
use crate::store::memory::{Fault, MemoryWorld};
use crate::store::{Item, Query, SortRange, StoreErrorKind};

const NOW_MS: i64 = 1_700_000_000_000;
const SHARDS: u16 = 2;
const RETENTION_MS: i64 = 2_000;

/// So many of [`names`] are numbers, and come first.
const NUMBERS: u64 = 6;

/// Values that are written alike, and some whose keys are cut, in the history or everywhere, where they are still alike.
fn names() -> Vec<String> {
    let mut names: Vec<String> = ["1", "01", "001", "2", "9", "10", "a", "ab", "b"].map(str::to_owned).to_vec();
    for (length, end) in [(980, "x"), (980, "y"), (1003, ""), (1004, ""), (1015, "a"), (1100, "a"), (1100, "b")] {
        names.push(format!("{}{end}", "l".repeat(length)));
    }
    names
}

fn values(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn input(name: Option<&str>, mark: u64) -> PartitionInput {
    let rest = Map::from_iter([("Parameters".to_owned(), json!({ "mark": mark.to_string() }))]);
    PartitionInput { values: name.map(values).unwrap_or_default(), storage_descriptor: None, rest }
}

/// Marks of the partitions that were there, by value. More than one where it cannot be told which.
type Seen = BTreeMap<String, BTreeSet<u64>>;

/// What was done, as the times that each mark was there.
#[derive(Clone, Default)]
struct Log {
    now: BTreeMap<String, (i64, u64)>,
    past: Vec<(String, i64, i64, u64)>,
}

impl Log {
    fn end(&mut self, name: &str, now_ms: i64) -> Option<i64> {
        let (from_ms, mark) = self.now.remove(name)?;
        let to_ms = now_ms.max(from_ms + 1);
        self.past.push((name.to_owned(), from_ms, to_ms, mark));
        Some(to_ms)
    }

    fn at(&self, at_ms: i64) -> Seen {
        let mut seen: BTreeMap<&str, ((i64, i64), BTreeSet<u64>)> = BTreeMap::new();
        let now = self.now.iter().map(|(name, (from_ms, mark))| (name, *from_ms, i64::MAX, *mark));
        let past = self.past.iter().map(|(name, from_ms, to_ms, mark)| (name, *from_ms, *to_ms, *mark));
        for (name, from_ms, to_ms, mark) in now.chain(past).filter(|(_, from, to, _)| (*from..*to).contains(&at_ms)) {
            // What is there now counts before everything, then the image that began last.
            let rank = if to_ms == i64::MAX { (i64::MAX, 0) } else { (from_ms, to_ms) };
            let best = seen.entry(name).or_insert((rank, BTreeSet::new()));
            if rank > best.0 {
                *best = (rank, BTreeSet::new());
            }
            if rank == best.0 {
                best.1.insert(mark);
            }
        }
        seen.into_iter().map(|(name, (_, marks))| (name.to_owned(), marks)).collect()
    }

    /// Moments around which something happened.
    fn instants(&self) -> BTreeSet<i64> {
        let past = self.past.iter().flat_map(|(_, from_ms, to_ms, _)| [*from_ms, *to_ms]);
        let all = past.chain(self.now.values().map(|(from_ms, _)| *from_ms));
        all.flat_map(|ms| [ms - 1, ms, ms + 1]).collect()
    }
}

/// A table whose key is a number; with an earlier epoch in which it was text.
struct Lake {
    /// The first so many of [`names`] occur.
    names: u64,
    world: MemoryWorld,
    settings: Settings,
    table: TableRef,
}

impl Lake {
    async fn new() -> Self {
        let world = MemoryWorld::new(NOW_MS);
        let object = |value: serde_json::Value| value.as_object().unwrap().clone();
        catalog::create_database(&world.ports, object(json!({ "Name": "d" }))).await.unwrap();
        let given = object(json!({ "Name": "t", "PartitionKeys": [{ "Name": "k", "Type": "int" }] }));
        let mut table = catalog::tables::create_table(&world.ports, "d", given).await.unwrap();
        table.shards = SHARDS;
        table.older_epochs = vec![OlderEpoch { epoch: table.epoch, types: vec![KeyType::Text], replaced_ms: 0 }];
        table.epoch += 1;
        let settings = Settings { history_retention_ms: RETENTION_MS, ..Settings::default() };
        Self { names: names().len() as u64, world, settings, table }
    }

    /// With every other seed one that has numbers only, so that filters can answer.
    async fn of_seed(seed: u64) -> Self {
        let lake = Self::new().await;
        Self { names: if seed.is_multiple_of(2) { NUMBERS } else { lake.names }, ..lake }
    }

    /// The table as one that knows only its earlier epoch has it.
    fn earlier(&self) -> TableRef {
        let mut table = self.table.clone();
        let older = table.older_epochs.pop().unwrap();
        (table.epoch, table.epoch_types) = (older.epoch, older.types);
        table
    }

    fn now_ms(&self) -> i64 {
        self.world.ports.clock.now_ms()
    }

    /// One operation at random on `table`, entered into the log.
    async fn step(&self, ports: &Ports, table: &TableRef, dice: &mut Dice, mark: u64, log: &mut Log) {
        let (names, now_ms) = (names(), ports.clock.now_ms());
        let name = names[dice.roll(self.names) as usize].as_str();
        match dice.roll(6) {
            0..=2 => {
                if partition::create(ports, &self.settings, table, input(Some(name), mark)).await.is_ok() {
                    log.now.insert(name.to_owned(), (now_ms, mark));
                }
            }
            3 => {
                let deleted = partition::delete(ports, &self.settings, table, &values(name), None).await;
                if deleted.is_ok() {
                    log.end(name, now_ms);
                }
            }
            roll => {
                let to = if roll == 4 { name } else { &names[dice.roll(self.names) as usize] };
                let update = PartitionUpdate { values: values(name), input: input(Some(to), mark) };
                let updated = partition::update(ports, &self.settings, table, update, None).await;
                if updated.is_ok()
                    && let Some(from_ms) = log.end(name, now_ms)
                {
                    log.now.insert(to.to_owned(), (from_ms, mark));
                }
            }
        }
    }

    /// The worker, one page of every shard. Answers whether it found anything.
    async fn rekey(&self, ports: &Ports, dice: &mut Dice) -> bool {
        let mut found = 0;
        let older = &self.table.older_epochs[0];
        let current = partition::places_of(&self.table.table_id, older.epoch, SHARDS);
        let past = partition::history_places_of(&self.table.table_id, older.epoch, SHARDS);
        let places = current.map(|place| (partition::Rows::Current, place));
        for (rows, (place, pk)) in places.chain(past.map(|place| (partition::Rows::History, place))) {
            let mut query = Query::new(place, pk, SortRange::All);
            query.limit = Some(1 + dice.roll(3) as usize);
            let page = ports.items.query(&query).await.unwrap();
            found += partition::rekey_page(ports, &self.table, rows, page.items).await.unwrap();
        }
        found > 0
    }
}

fn mark_of(item: &Item) -> (String, u64) {
    let stored = item::decode(item).unwrap();
    let mark = stored.body["PartitionParameters"]["mark"].as_str().unwrap().parse().unwrap();
    (stored.values.join("/"), mark)
}

/// Everything in an epoch and shard, in pieces, with new cursors and jumps here and there. Jumped over: from, to.
async fn walk_shard(
    reads: &Reads<'_>,
    source: &dyn Source,
    (epoch, types): (u32, &[KeyType]),
    shard: u16,
    dice: &mut Dice,
    jumps: bool,
) -> (Vec<(String, u64)>, Vec<(Vec<u8>, Vec<u8>)>) {
    let names = names();
    let some_key = |dice: &mut Dice| {
        let mut key = encode_key(types, &values(&names[dice.roll(names.len() as u64) as usize]));
        if dice.roll(3) == 0 {
            key.truncate(1 + dice.roll(key.len() as u64) as usize);
        }
        key
    };
    let mut bounds: BTreeSet<Vec<u8>> = (0..dice.roll(3)).map(|_| some_key(dice)).collect();
    bounds.extend([Vec::new(), vec![u8::MAX]]);
    let bounds: Vec<Vec<u8>> = bounds.into_iter().collect();
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for piece in bounds.windows(2) {
        let range = KeyRange { low: piece[0].clone(), high: piece[1].clone() };
        let is_whole = bounds.len() == 2 && dice.roll(2) == 0;
        let stretch = Stretch { epoch, shard, range: (!is_whole).then(|| range.clone()), after: None };
        let mut cursor = source.open(stretch.clone());
        let mut last: Option<Vec<u8>> = None;
        loop {
            let batch = cursor.read_on(reads, 1 + dice.roll(4) as usize).await.unwrap();
            for row in batch.rows {
                let row = row.decode().unwrap();
                assert!(range.contains(&row.key) && last.as_ref().is_none_or(|last| *last < row.key));
                assert_eq!(encode_key(types, &item::decode(&row.item).unwrap().values), row.key);
                rows.push(mark_of(&row.item));
                last = Some(row.key);
            }
            let Reached::Key(reached) = batch.reached else { break };
            assert!(last.as_ref().is_none_or(|last| *last <= reached), "gets on");
            last = Some(reached.clone());
            let to = some_key(dice);
            if jumps && dice.roll(3) == 0 && to > reached {
                skipped.push((reached, to.clone().min(range.high.clone())));
                if to >= range.high {
                    break;
                }
                // As a lane does it: with a new cursor for what is left.
                let left = KeyRange { low: to, high: range.high.clone() };
                cursor = source.open(Stretch { epoch, shard, range: Some(left), after: None });
            } else if dice.roll(3) == 0 {
                cursor = source.open(Stretch { after: Some(reached), ..stretch.clone() });
            }
        }
    }
    (rows, skipped)
}

/// The state at a moment, walked through.
async fn walk(ports: &Ports, table: &TableRef, at_ms: i64, dice: &mut Dice) -> BTreeMap<String, u64> {
    let source = source_of(table, View::AsOf { at_ms }).unwrap();
    let reads = Reads::new(ports);
    let mut seen = BTreeMap::new();
    let older = table.older_epochs.iter().map(|older| (older.epoch, older.types.as_slice()));
    let epochs: Vec<_> = older.chain([(table.epoch, table.epoch_types.as_slice())]).collect();
    for epoch in epochs {
        for shard in 0..SHARDS {
            let (rows, _) = walk_shard(&reads, source.as_ref(), epoch, shard, dice, false).await;
            seen.extend(rows);
        }
    }
    seen
}

/// The state at a moment, looked up.
async fn look_up(ports: &Ports, table: &TableRef, at_ms: i64) -> BTreeMap<String, u64> {
    let source = source_of(table, View::AsOf { at_ms }).unwrap();
    let wanted: Vec<Vec<String>> = names().iter().map(|name| values(name)).collect();
    let rows = source.find(&Reads::new(ports), &wanted).await.unwrap();
    rows.iter()
        .map(|row| {
            let (name, mark) = mark_of(&row.item);
            assert_eq!(row.key, encode_key(&table.epoch_types, &values(&name)));
            (name, mark)
        })
        .collect()
}

type Filter = (&'static str, fn(i64) -> bool);

const FILTERS: [Filter; 4] = [
    ("k = 1", |k| k == 1),
    ("k >= 2", |k| k >= 2),
    ("k in (1, 10)", |k| k == 1 || k == 10),
    ("not k between 2 and 9", |k| !(2..=9).contains(&k)),
];

/// All pages of a listing of all segments; none if the filter meets a value that is no number.
async fn list(
    ports: &Ports,
    table: &TableRef,
    at_ms: i64,
    filter: Option<&str>,
    dice: &mut Dice,
) -> Option<BTreeMap<String, u64>> {
    let filter = filter.map(|text| predicate::compile(text, &table.keys, Mode::Lenient).unwrap());
    let (mut seen, total) = (BTreeMap::new(), 1 + dice.roll(3) as u16);
    for number in 0..total {
        let mut listing = Listing {
            segment: Segment { number, total },
            filter: filter.clone(),
            view: View::AsOf { at_ms },
            ..Listing::of_all(0)
        };
        let mut last: Option<Vec<u8>> = None;
        loop {
            listing.limit = 1 + dice.roll(4) as usize;
            let page = match partition::list(ports, table, &listing).await {
                Ok(page) => page,
                Err(CatalogError::StoredValue(_)) => return None,
                Err(other) => panic!("{other:?}"),
            };
            for (key, partition) in page.partitions {
                assert!(last.as_ref().is_none_or(|last| *last < key));
                let name = partition.values().join("/");
                let mark = partition.into_members()["Parameters"]["mark"].as_str().unwrap().parse().unwrap();
                assert!(seen.insert(name, mark).is_none());
                last = Some(key);
            }
            match page.next {
                Some(next) => listing.start = next,
                None => break,
            }
        }
    }
    Some(seen)
}

/// Listings with and without a filter against what is expected without one.
async fn check_lists(ports: &Ports, table: &TableRef, at_ms: i64, expected: &Seen, dice: &mut Dice, what: &str) {
    check(&list(ports, table, at_ms, None, dice).await.unwrap(), expected, what);
    let (text, accepts) = FILTERS[dice.roll(FILTERS.len() as u64) as usize];
    let what = format!("{what}: {text}");
    match list(ports, table, at_ms, Some(text), dice).await {
        None => assert!(expected.keys().any(|name| name.parse::<i64>().is_err()), "{what}"),
        Some(found) => {
            let mut expected = expected.clone();
            expected.retain(|name, _| accepts(name.parse().expect("a filter fails where it meets no number")));
            check(&found, &expected, &what);
        }
    }
}

#[track_caller]
fn check(found: &BTreeMap<String, u64>, expected: &Seen, what: &str) {
    let names: Vec<&String> = found.keys().collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{what}");
    assert!(found.iter().all(|(name, mark)| expected[name].contains(mark)), "{what}: {found:?} {expected:?}");
}

/// A log of so many operations, the first ones in the earlier epoch.
async fn record(lake: &Lake, dice: &mut Dice, operations: u64) -> Log {
    let (earlier, mut log) = (lake.earlier(), Log::default());
    for mark in 1..=operations {
        let table = if mark * 2 < operations { &earlier } else { &lake.table };
        lake.step(&lake.world.ports, table, dice, mark, &mut log).await;
        if dice.roll(8) == 0 && mark * 2 > operations {
            lake.rekey(&lake.world.ports, dice).await;
        }
        lake.world.clock.advance_ms([0, 0, 1, 2, 40][dice.roll(5) as usize]);
    }
    log
}

#[tokio::test]
async fn the_past_is_what_the_log_says_at_every_instant_that_is_kept() {
    for seed in 1..=5 {
        let (lake, mut dice) = (Lake::of_seed(seed).await, Dice::new(seed));
        let log = record(&lake, &mut dice, 260).await;
        assert!(lake.now_ms() > NOW_MS + RETENTION_MS, "some of it has expired");
        lake.world.clock.advance_ms(dice.roll(500) as i64);
        let (kept_from_ms, now_ms) = (lake.now_ms() - RETENTION_MS, lake.now_ms());
        for at_ms in log.instants().into_iter().filter(|at_ms| (kept_from_ms..=now_ms).contains(at_ms)) {
            if dice.roll(10) > 0 {
                continue;
            }
            let what = format!("seed {seed} at {at_ms}");
            check(&walk(&lake.world.ports, &lake.table, at_ms, &mut dice).await, &log.at(at_ms), &what);
            check(&look_up(&lake.world.ports, &lake.table, at_ms).await, &log.at(at_ms), &what);
            check_lists(&lake.world.ports, &lake.table, at_ms, &log.at(at_ms), &mut dice, &what).await;
        }
    }
}

#[tokio::test]
async fn jumps_leave_out_what_they_jump_over_and_nothing_else() {
    for seed in 1..=15 {
        let (lake, mut dice) = (Lake::of_seed(seed).await, Dice::new(seed));
        let mut log = Log::default();
        for mark in 1..150 {
            lake.step(&lake.world.ports, &lake.table, &mut dice, mark, &mut log).await;
            lake.world.clock.advance_ms(dice.roll(3) as i64);
        }
        let at_ms = NOW_MS + dice.roll((lake.now_ms() - NOW_MS) as u64) as i64;
        let source = source_of(&lake.table, View::AsOf { at_ms }).unwrap();
        let (reads, types) = (Reads::new(&lake.world.ports), lake.table.epoch_types.as_slice());
        for shard in 0..SHARDS {
            let epoch = (lake.table.epoch, types);
            let (rows, skipped) = walk_shard(&reads, source.as_ref(), epoch, shard, &mut dice, true).await;
            let is_expected = |name: &String| {
                let key = encode_key(types, &values(name));
                let is_skipped = skipped.iter().any(|(from, to)| *from < key && key < *to);
                partition::shard_of(&values(name), SHARDS) == shard && !is_skipped
            };
            let mut expected = log.at(at_ms);
            expected.retain(|name, _| is_expected(name));
            check(&rows.into_iter().collect(), &expected, &format!("seed {seed}: {skipped:?}"));
        }
    }
}

/// The history of a part of the stretch goes on a little behind it, with values that are the same but for how they are written.
#[tokio::test]
async fn a_part_ends_where_its_present_does() {
    let mut lake = Lake::new().await;
    lake.table.older_epochs.clear();
    lake.table.shards = 1;
    let (ports, settings, table) = (&lake.world.ports, &lake.settings, &lake.table);
    for name in ["0", "1", "001", "01"] {
        partition::create(ports, settings, table, input(Some(name), 1)).await.unwrap();
    }
    let at_ms = lake.now_ms();
    for mark in 2..6 {
        lake.world.clock.advance_ms(1);
        let update = PartitionUpdate { values: values("01"), input: input(None, mark) };
        partition::update(ports, settings, table, update, None).await.unwrap();
    }
    let source = source_of(table, View::AsOf { at_ms }).unwrap();
    let mut cursor = source.open(Stretch { epoch: table.epoch, shard: 0, range: None, after: None });
    let (reads, mut names, mut last) = (Reads::new(ports), Vec::new(), Vec::new());
    loop {
        let batch = cursor.read_on(&reads, 2).await.unwrap();
        assert!(batch.rows.iter().all(|row| row.key > last), "nothing is behind what was reached");
        names.extend(batch.rows.into_iter().map(|row| mark_of(&row.decode().unwrap().item)));
        let Reached::Key(reached) = batch.reached else { break };
        last = reached;
    }
    assert_eq!(names, ["0", "1", "001", "01"].map(|name| (name.to_owned(), 1)));
}

#[tokio::test]
async fn the_past_stays_what_it_was_while_everything_changes() {
    for seed in 1..=6 {
        let (mut lake, mut dice) = (Lake::of_seed(seed).await, Dice::new(seed));
        lake.settings.history_retention_ms = 1_000_000;
        let log = record(&lake, &mut dice, 80).await;
        let instants: Vec<i64> = log.instants().into_iter().collect();
        lake.world.clock.advance_ms(5_000);
        let items = Arc::new(Unsteady::new(lake.world.items.clone(), seed, 0));
        let ports = Ports { items, ..lake.world.ports.clone() };
        let (lake, is_done) = (Arc::new(lake), Arc::new(AtomicBool::new(false)));
        let mut others = Vec::new();
        for client in 0..3 {
            let (lake, ports, is_done) = (lake.clone(), ports.clone(), is_done.clone());
            let mut dice = Dice::new(seed * 10 + client);
            others.push(tokio::spawn(async move {
                let mut mark = 1_000_000 * (client + 1);
                while !is_done.load(Ordering::SeqCst) {
                    mark += 1;
                    lake.step(&ports, &lake.table, &mut dice, mark, &mut Log::default()).await;
                    lake.world.clock.advance_ms(1);
                }
            }));
        }
        let (worker, its_ports, mut its_dice) = (lake.clone(), ports.clone(), Dice::new(seed + 77));
        others.push(tokio::spawn(async move { while worker.rekey(&its_ports, &mut its_dice).await {} }));
        for _ in 0..16 {
            let at_ms = instants[dice.roll(instants.len() as u64) as usize];
            let what = format!("seed {seed} at {at_ms}");
            check(&walk(&ports, &lake.table, at_ms, &mut dice).await, &log.at(at_ms), &what);
            check(&look_up(&ports, &lake.table, at_ms).await, &log.at(at_ms), &what);
            check_lists(&ports, &lake.table, at_ms, &log.at(at_ms), &mut dice, &what).await;
        }
        is_done.store(true, Ordering::SeqCst);
        for other in others {
            other.await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_sent_in_vain_for_long_holds_since_it_was_planned_anew() {
    let mut lake = Lake::new().await;
    lake.table.older_epochs.clear();
    let (ports, settings, table) = (&lake.world.ports, &lake.settings, &lake.table);
    let conflicts = |operation: &str| {
        for _ in 0..16 {
            lake.world.faults.inject(operation, 0, Fault::Before(StoreErrorKind::Conflict));
        }
    };
    let valid_from_ms = async || partition::get(ports, table, &values("1")).await.unwrap().stored.valid_from_ms;
    conflicts("put partitions");
    partition::create(ports, settings, table, input(Some("1"), 1)).await.unwrap();
    assert!(lake.now_ms() - NOW_MS > 5_000);
    assert!(lake.now_ms() - valid_from_ms().await < 3_000);
    conflicts("transact partitions");
    let (update, before_ms) = (PartitionUpdate { values: values("1"), input: input(None, 2) }, lake.now_ms());
    partition::update(ports, settings, table, update, None).await.unwrap();
    assert!(lake.now_ms() - before_ms > 5_000);
    assert!(lake.now_ms() - valid_from_ms().await < 3_000);
    // A create that is a transaction.
    let table = Lake::new().await.table;
    conflicts("transact partitions");
    let before_ms = lake.now_ms();
    partition::create(ports, settings, &table, input(Some("2"), 3)).await.unwrap();
    let made = partition::get(ports, &table, &values("2")).await.unwrap();
    assert!(lake.now_ms() - before_ms > 5_000);
    assert!(lake.now_ms() - made.stored.valid_from_ms < 3_000);
    assert_eq!(made.created_ms(), made.stored.valid_from_ms);
}
