//! Recorded histories of many clients on few partitions, checked as a whole; and what listings saw meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Map, json};

use super::checker::{Answer, Event, Operation, State, is_linearizable};
use super::store::{Dice, Unsteady};
use crate::catalog::{self, CatalogError, IndexRef, IndexState, OlderEpoch, Revision, TableRef};
use crate::partition::{self, KeyType, Listing, PartitionInput, PartitionUpdate, Position, history_item};
use crate::ports::{Ports, Settings};
use crate::store::memory::MemoryWorld;
use crate::store::{Item, Key, Query, SortRange};

/// Partitions that come and go.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Partitions that are there all the time and are updated.
const STABLE: [&str; 6] = ["A", "B", "aa", "bb", "cc", "z"];
const CLIENTS: u64 = 5;
const OPERATIONS: u64 = 7;

/// Which kind of table.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Indexed,
    /// Half of its partitions are still in an older epoch.
    Rekeyed,
    /// The same, and the worker moves them meanwhile; with an index.
    Moving,
}

#[derive(Clone)]
struct Run {
    ports: Ports,
    settings: Settings,
    table: TableRef,
    now: Arc<AtomicU64>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn values(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

fn input(name: Option<&str>, mark: u64) -> PartitionInput {
    let rest = Map::from_iter([("Parameters".to_owned(), json!({ "mark": mark.to_string() }))]);
    PartitionInput { values: name.map(values).unwrap_or_default(), storage_descriptor: None, rest }
}

fn answer_of(result: Result<(), CatalogError>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(CatalogError::PartitionNotFound) => Answer::NotFound,
        Err(CatalogError::PartitionExists) => Answer::Exists,
        Err(CatalogError::PartitionChanged) => Answer::Changed,
        Err(CatalogError::Store(_)) => Answer::Unknown,
        Err(other) => panic!("{other:?}"),
    }
}

impl Run {
    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst)
    }

    fn record(&self, called: u64, operation: Operation, answer: Answer) {
        let event = Event { operation, answer, called, answered: self.tick() };
        self.events.lock().unwrap().push(event);
    }

    async fn get(&self, name: &'static str) -> Option<(u64, Revision)> {
        let called = self.tick();
        let found = partition::get(&self.ports, &self.table, &values(name)).await;
        let (answer, read) = match found {
            Ok(partition) => {
                let revision = partition.revision().clone();
                let mark: u64 = partition.into_members()["Parameters"]["mark"].as_str().unwrap().parse().unwrap();
                (Answer::Found(mark), Some((mark, revision)))
            }
            Err(error) => (answer_of(Err(error)), None),
        };
        self.record(called, Operation::Get { name }, answer);
        read
    }

    /// One operation at random. `read` is what this client read last of every partition.
    async fn step(&self, dice: &mut Dice, read: &mut BTreeMap<&'static str, (u64, Revision)>, mark: u64) {
        let (ports, settings, table) = (&self.ports, &self.settings, &self.table);
        let name = NAMES[dice.roll(3) as usize];
        let expected = if dice.roll(2) == 0 { read.get(name).cloned() } else { None };
        let revision = expected.as_ref().map(|(_, revision)| revision);
        let expected_mark = expected.as_ref().map(|(mark, _)| *mark);
        let called = self.tick();
        let (operation, result) = match dice.roll(8) {
            0 | 1 => {
                let created = partition::create(ports, settings, table, input(Some(name), mark)).await;
                (Operation::Create { name, mark }, created)
            }
            2 => {
                let update = PartitionUpdate { values: values(name), input: input(None, mark) };
                let updated = partition::update(ports, settings, table, update, revision).await;
                (Operation::Update { name, mark, expected: expected_mark }, updated)
            }
            3 | 4 => {
                let to = NAMES[dice.roll(3) as usize];
                let update = PartitionUpdate { values: values(name), input: input(Some(to), mark) };
                let moved = partition::update(ports, settings, table, update, None).await;
                let operation = match to == name {
                    true => Operation::Update { name, mark, expected: None },
                    false => Operation::Move { name, to, mark },
                };
                (operation, moved)
            }
            5 => {
                let deleted = partition::delete(ports, settings, table, &values(name), revision).await;
                (Operation::Delete { name, expected: expected_mark }, deleted)
            }
            6 => return self.step_in_batch(dice, mark).await,
            _ => {
                if let Some(found) = self.get(name).await {
                    read.insert(name, found);
                }
                return;
            }
        };
        self.record(called, operation, answer_of(result));
    }

    /// The entries of a batch are operations of their own.
    async fn step_in_batch(&self, dice: &mut Dice, mark: u64) {
        let (ports, settings, table) = (&self.ports, &self.settings, &self.table);
        let (first, second) = (NAMES[dice.roll(3) as usize], STABLE[dice.roll(6) as usize]);
        let names = [first, second];
        let called = self.tick();
        if dice.roll(2) == 0 {
            let update = |name: &&'static str| PartitionUpdate { values: values(name), input: input(None, mark) };
            let update = |name| (update(name), None);
            let answers = partition::update_many(ports, settings, table, names.iter().map(update).collect()).await;
            for (name, answer) in names.into_iter().zip(answers) {
                self.record(called, Operation::Update { name, mark, expected: None }, answer_of(answer));
            }
        } else {
            let answers = partition::delete_many(ports, settings, table, vec![(values(first), None)]).await;
            for answer in answers {
                self.record(called, Operation::Delete { name: first, expected: None }, answer_of(answer));
            }
        }
    }

    /// The worker, as often as it takes: whatever it did not get through is met again.
    async fn move_all(&self, mut dice: Dice) {
        loop {
            let mut left = 0;
            for epoch in &self.table.older_epochs {
                for (place, pk) in partition::places_of(&self.table.table_id, epoch.epoch, self.table.shards) {
                    let mut query = Query::new(place, pk, SortRange::All);
                    query.limit = Some(1 + dice.roll(2) as usize);
                    let Ok(page) = self.ports.items.query(&query).await else {
                        left += 1;
                        continue;
                    };
                    left += page.items.len();
                    let _ = partition::rekey_page(&self.ports, &self.table, partition::Rows::Current, page.items).await;
                }
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Walks through all pages, again and again, until the clients are done.
    async fn list(&self, is_done: Arc<AtomicU64>, mut dice: Dice) -> Vec<Walk> {
        let mut walks = Vec::new();
        while is_done.load(Ordering::SeqCst) < CLIENTS {
            let (called, mut start, mut seen) = (self.tick(), Position::BEGINNING, Vec::new());
            loop {
                let limit = 1 + dice.roll(4) as usize;
                let listing = Listing { start, ..Listing::of_all(limit) };
                let page = partition::list(&self.ports, &self.table, &listing).await.unwrap();
                seen.extend(page.partitions.iter().map(|(_, partition)| partition.values().join("/")));
                let Some(next) = page.next else { break };
                // Both ways to continue.
                let last = page.partitions.last().map(|(key, _)| Position::After(key.clone()));
                start = if dice.roll(2) == 0 { next } else { last.unwrap_or(next) };
            }
            walks.push(Walk { called, answered: self.tick(), seen });
        }
        walks
    }
}

struct Walk {
    called: u64,
    answered: u64,
    seen: Vec<String>,
}

fn index() -> IndexRef {
    IndexRef {
        number: 1,
        name: "by_k".to_owned(),
        keys: vec!["k".to_owned()],
        state: IndexState::Active,
        is_complete: true,
        since_ms: 0,
    }
}

async fn table_of(world: &MemoryWorld, kind: Kind) -> TableRef {
    let object = |value: serde_json::Value| value.as_object().unwrap().clone();
    catalog::create_database(&world.ports, object(json!({ "Name": "d" }))).await.unwrap();
    let given = object(json!({ "Name": "t", "PartitionKeys": [{ "Name": "k", "Type": "string" }] }));
    let mut table = catalog::tables::create_table(&world.ports, "d", given).await.unwrap();
    match kind {
        Kind::Plain => {}
        Kind::Indexed => table.indexes.push(index()),
        Kind::Rekeyed | Kind::Moving => {
            table.older_epochs = vec![OlderEpoch { epoch: table.epoch, types: vec![KeyType::Date], replaced_ms: 0 }];
            table.epoch += 1;
        }
    }
    table
}

/// The partitions that a history begins with; on a table with an older epoch, every other one lies there.
async fn prepare(world: &MemoryWorld, settings: &Settings, table: &TableRef) -> State {
    let mut state = State::new();
    for (at, name) in STABLE.into_iter().chain(["a"]).enumerate() {
        let mut table = table.clone();
        if let Some(older) = table.older_epochs.pop().filter(|_| at % 2 == 0) {
            (table.epoch, table.epoch_types) = (older.epoch, older.types);
        }
        let mark = 1_000 + at as u64;
        partition::create(&world.ports, settings, &table, input(Some(name), mark)).await.unwrap();
        state.insert(name, mark);
    }
    state
}

/// What is stored at the end.
async fn read_all(world: &MemoryWorld, table: &TableRef) -> State {
    let mut state = State::new();
    for name in STABLE.into_iter().chain(NAMES) {
        if let Ok(found) = partition::get(&world.ports, table, &values(name)).await {
            state.insert(name, found.into_members()["Parameters"]["mark"].as_str().unwrap().parse().unwrap());
        }
    }
    state
}

async fn run(kind: Kind, seed: u64, trouble_percent: u64) {
    let world = MemoryWorld::new(1_700_000_000_000);
    let settings = Settings::default();
    let table = table_of(&world, kind).await;
    let first = prepare(&world, &settings, &table).await;
    let ports =
        Ports { items: Arc::new(Unsteady::new(world.items.clone(), seed, trouble_percent)), ..world.ports.clone() };
    let mut table = table;
    if let Kind::Moving = kind {
        // From here on: earlier partitions get their entries on the way.
        table.indexes.push(index());
    }
    let run = Run { ports, settings, table: table.clone(), now: Arc::default(), events: Arc::default() };
    let is_done = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (run, is_done, mut dice) = (run.clone(), is_done.clone(), Dice::new(seed * 100 + client + 1));
        clients.push(tokio::spawn(async move {
            let mut read = BTreeMap::new();
            for step in 0..OPERATIONS {
                run.step(&mut dice, &mut read, 1 + client * OPERATIONS + step).await;
            }
            is_done.fetch_add(1, Ordering::SeqCst);
        }));
    }
    if let Kind::Moving = kind {
        let (run, dice) = (run.clone(), Dice::new(seed + 13));
        clients.push(tokio::spawn(async move { run.move_all(dice).await }));
    }
    let walks = run.list(is_done, Dice::new(seed + 7)).await;
    for client in clients {
        client.await.unwrap();
    }
    let events = run.events.lock().unwrap().clone();
    let last = read_all(&world, &table).await;
    assert!(is_linearizable(&events, &first, &last), "{kind:?} seed {seed}: {events:#?}\n{first:?} -> {last:?}");
    for walk in &walks {
        check_walk(walk, &events, &first).unwrap_or_else(|problem| panic!("{kind:?} seed {seed}: {problem}"));
    }
    check_items(&world, &table, &last);
}

/// A partition that was there throughout is listed once, one that was not there is not, all others at most once.
fn check_walk(walk: &Walk, events: &[Event], first: &State) -> Result<(), String> {
    let count = |name: &str| walk.seen.iter().filter(|seen| *seen == name).count();
    for name in STABLE {
        if count(name) != 1 {
            return Err(format!("{name} was listed {} times", count(name)));
        }
    }
    for name in NAMES {
        let appears = |event: &&Event| match &event.operation {
            Operation::Create { name: other, .. } | Operation::Move { to: other, .. } => *other == name,
            _ => false,
        };
        let goes = |event: &&Event| match &event.operation {
            Operation::Delete { name: other, .. } | Operation::Move { name: other, .. } => *other == name,
            _ => false,
        };
        let takes_effect = |event: &&Event| matches!(event.answer, Answer::Done | Answer::Unknown);
        // Since when it certainly was there, if it ever was.
        let made = events.iter().filter(appears).filter(|event| event.answer == Answer::Done);
        let made = made.filter(|event| event.answered < walk.called).map(|event| event.called);
        let since = made.max().or_else(|| first.contains_key(name).then_some(0));
        let went = |event: &Event| {
            event.called < walk.answered
                && since.is_none_or(|since| event.answer == Answer::Unknown || event.answered > since)
        };
        let was_there = since.is_some() && !events.iter().filter(goes).filter(takes_effect).any(went);
        let may_be = first.contains_key(name)
            || events.iter().filter(appears).filter(takes_effect).any(|event| event.called < walk.answered);
        match count(name) {
            0 if was_there => return Err(format!("{name} was there and was not listed: {:?}", walk.seen)),
            1 if !may_be => return Err(format!("{name} was not there and was listed")),
            0 | 1 => {}
            more => return Err(format!("{name} was listed {more} times")),
        }
    }
    Ok(())
}

/// Entries of indexes point to what is there; the images of a partition follow each other without a gap.
fn check_items(world: &MemoryWorld, table: &TableRef, last: &State) {
    let dump = world.items.dump();
    let of_kind = |kind: &str| -> Vec<(&Key, &Item)> {
        let place = |key: &Key| key.pk.split('#').nth(2).map(str::to_owned);
        dump.iter().filter(|(key, _)| place(key).as_deref() == Some(kind)).collect()
    };
    if !table.indexes.is_empty() {
        let entries: BTreeSet<String> = of_kind("i1")
            .into_iter()
            .map(|(_, item)| partition::index_item::values_of(item).unwrap().join("/"))
            .filter(|name| NAMES.contains(&name.as_str()))
            .collect();
        let there: BTreeSet<String> =
            last.keys().filter(|name| NAMES.contains(name)).map(|name| (*name).to_owned()).collect();
        assert_eq!(entries, there);
    }
    let mut images: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for (_, item) in of_kind("h") {
        let past = history_item::lifetime_of(item).unwrap();
        let id = partition::item::decode(item).unwrap().partition_id.to_string();
        images.entry(id).or_default().push((past.valid_from_ms, past.valid_to_ms));
    }
    for (_, item) in of_kind("p") {
        let current = partition::item::decode(item).unwrap();
        images.entry(current.partition_id.to_string()).or_default().push((current.valid_from_ms, i64::MAX));
    }
    for (id, mut images) in images {
        images.sort_unstable();
        assert!(images.windows(2).all(|pair| pair[0].1 == pair[1].0), "{id}: {images:?}");
    }
}

#[tokio::test]
async fn operations_on_partitions_are_linearizable() {
    for seed in 1..=30 {
        for kind in [Kind::Plain, Kind::Indexed, Kind::Rekeyed, Kind::Moving] {
            run(kind, seed, 0).await;
        }
    }
}

#[tokio::test]
async fn and_stay_so_when_answers_are_lost_and_transactions_collide() {
    for seed in 100..=130 {
        for kind in [Kind::Plain, Kind::Indexed, Kind::Rekeyed, Kind::Moving] {
            run(kind, seed, 15).await;
        }
    }
}
