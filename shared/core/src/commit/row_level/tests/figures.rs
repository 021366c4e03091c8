//! Figures, for `bench/run row_level`: a fixed trace through file-level rules and through rows, beside what rows allow at
//! best; and the cost of one merge.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::commit::row_level::merge::{Meeting, meet, new_rows};
use crate::commit::tests::engine::{Engine, removed};
use crate::commit::tests::judging::{deleted_by, info};
use crate::commit::tests::kit::{Kit, short};
use crate::delta::deletion_vector::{self, RowSet};
use crate::delta::{AddFile, Strictness, parse_commit};

const FILES: u64 = 8;
const FILE_ROWS: u64 = 100_000;
/// Fewer rows, so that statements that read twice what they write often meet.
const SKEW_FILE_ROWS: u64 = 2_500;
const CLIENTS: usize = 64;
const ROUNDS: usize = 8;
const ROWS: usize = 10;
const LAG_MAX: u64 = 16;
const SEED: u64 = 20_260_101;

/// The same numbers everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// One statement: how many statements before it its client had not seen, and the rows that it changes.
struct Turn {
    lag: usize,
    rows: BTreeSet<u64>,
}

/// Clients take turns; each changes rows anywhere in the table, among so many that lie evenly in it.
fn trace(file_rows: u64, among: u64) -> Vec<Turn> {
    let mut random = Random(SEED);
    (0..CLIENTS * ROUNDS)
        .map(|_| {
            let lag = usize::try_from(random.next(LAG_MAX) + 1).unwrap();
            let mut rows = BTreeSet::new();
            while rows.len() < ROWS {
                rows.insert(random.next(among) * (FILES * file_rows / among));
            }
            Turn { lag, rows }
        })
        .collect()
}

/// How many of the turns can be admitted if nothing but rows counts: none that read a row which a turn that it did not see
/// changed. Rows that it saw changed it leaves alone.
fn optimum(trace: &[Turn], reads: Reads) -> usize {
    let mut admitted: Vec<BTreeSet<u64>> = Vec::new();
    for (at, turn) in trace.iter().enumerate() {
        let seen = at.saturating_sub(turn.lag);
        let left: BTreeSet<u64> =
            turn.rows.iter().copied().filter(|row| !admitted[..seen].iter().any(|rows| rows.contains(row))).collect();
        let read = reads.of(turn);
        let meets = admitted[seen..].iter().any(|rows| !rows.is_disjoint(&read));
        // What changes nothing is nobody's conflict, and is one of the admitted.
        let mark = if left.is_empty() { [u64::MAX - at as u64].into() } else { left };
        admitted.push(if meets { BTreeSet::new() } else { mark });
    }
    admitted.iter().filter(|rows| !rows.is_empty()).count()
}

/// What statements read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// What they write.
    Same,
    /// Twice the rows that they write: to admit more than its optimum would be write skew.
    More,
    /// All rows, and they write some: whatever is admitted beside another one is write skew.
    All,
}

impl Reads {
    fn of(self, turn: &Turn) -> BTreeSet<u64> {
        match self {
            Reads::Same => turn.rows.clone(),
            Reads::More => turn.rows.iter().flat_map(|row| [*row, *row + 1]).collect(),
            Reads::All => panic!("these are not told one by one"),
        }
    }

    fn predicate(self, turn: &Turn, all: u64) -> Value {
        match self {
            Reads::All => json!({"op": "<", "col": ["id"], "value": all}),
            _ => json!({"op": "in", "col": ["id"], "values": self.of(turn)}),
        }
    }
}

/// A trace's statements, and what their writers say of them: nothing, or that they wrote all that they matched, or not.
#[derive(Clone, Copy, Debug)]
struct Says {
    reads: Reads,
    flag: Option<bool>,
}

impl From<Reads> for Says {
    fn from(reads: Reads) -> Self {
        Says { reads, flag: None }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    admitted: usize,
    written_bytes: u64,
    wasted_bytes: u64,
    ms: u128,
}

/// The base files of a version, without their rows.
type State = Vec<(AddFile, RowSet)>;

async fn replay(trace: &[Turn], file_rows: u64, setting: &str, says: impl Into<Says>) -> Outcome {
    let says = says.into();
    let properties = json!({"lakewarden.rowLevelConcurrency": setting, "delta.isolationLevel": "Serializable"});
    let engine = Engine { kit: Kit::with_vectors(properties).await };
    let mut state: State = Vec::new();
    let mut base = Vec::new();
    for file in 0..FILES {
        let rows: Vec<(i64, i64)> = (0..file_rows).map(|row| ((file * file_rows + row) as i64, 0)).collect();
        base.push(engine.write(&format!("base{file}.parquet"), &rows).await);
    }
    base.push(info("WRITE", json!({"operationParameters": {"mode": "Append"}})));
    assert_eq!(short(&engine.kit.propose(1, 1, &base).await), "committed 1");
    for line in &base[..base.len() - 1] {
        state.push((serde_json::from_value(line["add"].clone()).unwrap(), RowSet::new()));
    }
    // What a client sees that reads after so many turns: the version, and the files.
    let mut after: Vec<(i64, State)> = vec![(1, state)];
    let mut outcome = Outcome::default();
    for (at, turn) in trace.iter().enumerate() {
        let (version, seen) = after[at.saturating_sub(turn.lag)].clone();
        let before = engine.kit.table.world.ports.objects.object_usage();
        let (lines, written) = update(&engine, (&seen, file_rows), (turn, at), says).await;
        let staged = engine.kit.stage(version + 1, at as u128 + 10, &lines).await;
        let client_bytes = engine.kit.table.world.ports.objects.object_usage().since(&before).bytes_written;
        let clock = Instant::now();
        let verdict = engine.kit.judge(&staged).await;
        outcome.ms += clock.elapsed().as_millis();
        outcome.written_bytes += client_bytes;
        let (latest, mut next) = after[at].clone();
        match verdict.committed_version() {
            Some(committed) => {
                outcome.admitted += 1;
                assert_eq!(committed.0, latest + 1);
                let bytes = engine.kit.table.version(committed.0).await.unwrap();
                for add in parse_commit(&bytes, Strictness::Log).unwrap().adds {
                    let file = next.iter_mut().find(|(base, _)| base.path == add.path);
                    if let (Some(file), Some(rows)) = (file, written.iter().find(|(path, _)| *path == add.path)) {
                        file.1 = file.1.union(&rows.1);
                        file.0 = add;
                    }
                }
                after.push((committed.0, next));
            }
            None => {
                outcome.wasted_bytes += client_bytes;
                after.push((latest, std::mem::take(&mut next)));
            }
        }
    }
    check(&engine, &after.last().unwrap().1).await;
    outcome
}

/// What the vectors of the last version say is what all admitted turns deleted.
async fn check(engine: &Engine, state: &State) {
    for (add, rows) in state {
        let Some(vector) = &add.deletion_vector else { continue };
        let objects = &*engine.kit.table.world.ports.objects;
        let found = deletion_vector::read(objects, &engine.kit.table.root, vector).await.unwrap();
        assert_eq!(found, *rows, "{}", add.path);
    }
}

/// An UPDATE of the turn's rows as a client makes it from what it saw.
async fn update(
    engine: &Engine,
    (seen, file_rows): (&State, u64),
    (turn, at): (&Turn, usize),
    says: Says,
) -> (Vec<Value>, Vec<(String, RowSet)>) {
    let mut lines = Vec::new();
    let mut sets = Vec::new();
    let mut changed = Vec::new();
    for (file, (add, hidden)) in (0_u64..).zip(seen) {
        let own: RowSet = turn.rows.iter().filter(|row| *row / file_rows == file).map(|row| row % file_rows).collect();
        // What was updated before lies in another file by now; the trace leaves those alone.
        let own = own.difference(hidden);
        if !own.is_empty() {
            changed.extend(own.iter().map(|row| (file * file_rows + row) as i64));
            sets.push((add, own.clone(), hidden.union(&own)));
        }
    }
    let objects = &*engine.kit.table.world.objects;
    let id = Uuid::from_u128(0xabc0_0000 + at as u128);
    let all: Vec<&RowSet> = sets.iter().map(|(_, _, rows)| rows).collect();
    let vectors = deletion_vector::write(objects, &engine.kit.table.root, id, &all).await.unwrap();
    for ((add, _, _), vector) in sets.iter().zip(&vectors) {
        lines.push(removed(add));
        let line = json!({"add": {"path": add.path, "partitionValues": {}, "size": add.size, "modificationTime": 1,
            "dataChange": true, "stats": add.stats}});
        lines.push(deleted_by(line, vector));
    }
    if !changed.is_empty() {
        let rows: Vec<(i64, i64)> = changed.iter().map(|id| (*id, 1)).collect();
        lines.push(engine.write(&format!("image{at}.parquet"), &rows).await);
    }
    let predicate = says.reads.predicate(turn, FILES * file_rows);
    let read_set = json!({"v": 1, "matchedEqualsWritten": says.flag, "predicates": [predicate]});
    lines.push(info("UPDATE", json!({"readSet": read_set, "engineInfo": at.to_string()})));
    (lines, sets.into_iter().map(|(add, own, _)| (add.path.clone(), own)).collect())
}

fn show(name: &str, outcome: &Outcome, optimum: usize, count: usize) {
    println!(
        "{name:<24} admitted {:>4} of {count} (rows allow {optimum}), wasted {:>9} of {:>9} bytes, {} ms",
        outcome.admitted, outcome.wasted_bytes, outcome.written_bytes, outcome.ms
    );
}

/// Run by `bench/run row_level`.
#[tokio::test]
#[ignore = "figures"]
async fn figures() {
    for (name, rows) in [("8 files, 10 random rows", FILES * FILE_ROWS), ("the same among 2,000 rows", 2_000)] {
        let trace = trace(FILE_ROWS, rows);
        let best = optimum(&trace, Reads::Same);
        println!("{name}: {CLIENTS} clients, {ROUNDS} statements each, read lag 1 to {LAG_MAX}");
        let by_file = replay(&trace, FILE_ROWS, "off", Reads::Same).await;
        show("  file-level rules", &by_file, best, trace.len());
        let by_row = replay(&trace, FILE_ROWS, "", Reads::Same).await;
        show("  rows", &by_row, best, trace.len());
        println!(
            "  {:.1} times as many, {:.1} % of what rows allow",
            by_row.admitted as f64 / by_file.admitted as f64,
            by_row.admitted as f64 * 100.0 / best as f64
        );
    }
    println!("write skew: the same clients, files of {SKEW_FILE_ROWS} rows");
    skew(&trace(SKEW_FILE_ROWS, FILES * SKEW_FILE_ROWS), SKEW_FILE_ROWS).await;
    cost_of_a_merge();
}

/// Statements that read more than they write, whatever they say of themselves: rows admit what is no write skew, and of
/// statements that read everything not one more than file-level rules do.
async fn skew(trace: &[Turn], file_rows: u64) {
    let by_file = replay(trace, file_rows, "off", Reads::All).await.admitted;
    let more = optimum(trace, Reads::More);
    println!(
        "  write skew: {by_file} by file-level rules where all is read; {more} allowed where twice as much is read"
    );
    for flag in [None, Some(true), Some(false)] {
        let all = replay(trace, file_rows, "", Says { reads: Reads::All, flag }).await.admitted;
        assert_eq!(all, by_file, "rows admit write skew: {flag:?}");
        let found = replay(trace, file_rows, "", Says { reads: Reads::More, flag }).await.admitted;
        println!("    said {flag:?}: {all} and {found} with rows");
        match flag {
            Some(false) => {
                let by_file = replay(trace, file_rows, "off", Says { reads: Reads::More, flag }).await.admitted;
                assert_eq!(found, by_file, "who says that matches were left is judged by files");
            }
            _ => assert_eq!(found, more, "{flag:?}"),
        }
    }
}

fn cost_of_a_merge() {
    const COUNT: u64 = 10_000_000;
    let mut random = Random(SEED);
    let mut pick = |parity: u64| -> RowSet {
        let mut rows = RowSet::new();
        while rows.len() < 100_000 {
            rows.insert(random.next(COUNT / 2) * 2 + parity);
        }
        rows
    };
    let (own, theirs) = (pick(0), pick(1));
    let id = Uuid::from_u128(1);
    let (own_file, vector) = deletion_vector::encode_file(id, &[&own]);
    let (their_file, their_vector) = deletion_vector::encode_file(id, &[&theirs]);
    let clock = Instant::now();
    let current = deletion_vector::read_held(&vector[0], &own_file).unwrap();
    let won = deletion_vector::read_held(&their_vector[0], &their_file).unwrap();
    let nothing = RowSet::new();
    let new = new_rows(&nothing, &current).unwrap();
    let Meeting::Apart(merged) = meet(&new, &current, &nothing, &won) else { panic!("they have rows in common") };
    let (file, _) = deletion_vector::encode_file(id, &[&merged]);
    let ms = clock.elapsed().as_secs_f64() * 1_000.0;
    println!(
        "one merge, {COUNT} rows, 100,000 deleted on each side: {ms:.1} ms; {} bytes read, {} written",
        own_file.len() + their_file.len(),
        file.len()
    );
    assert_eq!(merged.len(), 200_000);
}

/// The trace at a size that every run of the tests has time for.
#[tokio::test]
async fn rows_admit_what_rows_allow() {
    const SMALL: u64 = 250;
    let trace: Vec<Turn> = trace(SMALL, FILES * SMALL).into_iter().take(40).collect();
    let by_row = replay(&trace, SMALL, "", Reads::Same).await;
    let by_file = replay(&trace, SMALL, "off", Reads::Same).await;
    assert_eq!(by_row.admitted, optimum(&trace, Reads::Same));
    assert!(by_file.admitted * 3 < by_row.admitted, "{by_file:?} {by_row:?}");
    skew(&trace, SMALL).await;
}
