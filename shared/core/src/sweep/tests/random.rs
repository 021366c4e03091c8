//! Random tables and random garbage: exactly what nothing needs and what is past all gates goes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::delta::testkit::{TableKit, add_line, creation_of, remove_line};
use crate::location::Location;
use crate::sweep::items::RunState;

/// One step of somebody's work on a table.
#[derive(Clone, Debug)]
enum Step {
    /// A commit that adds files; a part of them waits uncommitted for that many hours before.
    Commit {
        files: u8,
        waited_hours: u8,
    },
    /// A commit that only says that a file was deleted.
    MarkDeleted,
    Statistics,
    /// Written, and the catalog never told.
    Unfinished,
    /// Files that nothing will ever name.
    Garbage {
        kind: u8,
    },
    Hours(u8),
    Optimizer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u8..4, 0u8..4).prop_map(|(files, waited_hours)| Step::Commit { files, waited_hours }),
        1 => Just(Step::MarkDeleted),
        1 => Just(Step::Statistics),
        1 => Just(Step::Unfinished),
        6 => (0u8..8).prop_map(|kind| Step::Garbage { kind }),
        4 => (1u8..60).prop_map(Step::Hours),
        1 => Just(Step::Optimizer),
    ]
}

const HOUR_MS: i64 = 3_600_000;

/// What the test knows of each object, by its own book-keeping.
#[derive(Default)]
struct Book {
    made_ms: BTreeMap<String, i64>,
    garbage: BTreeSet<String>,
    /// When files were removed from the table that readers of older versions still need.
    tombstones: BTreeMap<String, i64>,
    gate_ms: i64,
}

impl Book {
    /// What an ordinary run must remove.
    fn due(&self, now_ms: i64, retention_ms: i64) -> BTreeSet<String> {
        let is_due = |key: &&String| {
            let made_ms = self.made_ms[*key];
            made_ms > self.gate_ms && made_ms < now_ms - retention_ms
        };
        let over = self.tombstones.iter().filter(|(_, removed_ms)| **removed_ms < now_ms - retention_ms);
        self.garbage.iter().chain(over.map(|(key, _)| key)).filter(is_due).cloned().collect()
    }
}

fn garbage_key(kind: u8, number: usize) -> (String, bool) {
    match kind {
        0 => (format!("wh/t/data/day={number}/g{number}.parquet"), true),
        1 => (format!("wh/t/metadata/g{number}-m0.avro"), true),
        2 => (format!("wh/t/data/a b+%é{number}.orc"), true),
        3 => (format!("wh/t/metadata/g{number}.stats"), true),
        4 => (format!("wh/t/data/note{number}.txt"), false),
        5 => (format!("wh/t/data/_tmp/g{number}.parquet"), false),
        6 => (format!("wh/t_other/data/g{number}.parquet"), false),
        _ => (format!("wh/t/data/day={number}/"), false),
    }
}

async fn play_iceberg(steps: Vec<Step>, format: i64) -> (Lake, Book) {
    let lake = Lake::new();
    let mut book = Book::default();
    let mut table = Iceberg::create(&lake, "t", format).await;
    lake.optimize("t", json!({})).await;
    book.gate_ms = lake.world.ports.clock.now_ms();
    let (mut unfinished, mut statistics) = (false, None);
    for (number, step) in steps.into_iter().enumerate() {
        advance(&lake.world.clock, 1);
        match step {
            // A state that was never told would be another table's future otherwise.
            Step::Commit { .. } | Step::MarkDeleted | Step::Unfinished | Step::Statistics if unfinished => {}
            Step::Commit { files, waited_hours } => {
                let mut entries = Vec::new();
                for file in 0..files {
                    entries.push((1, 0, table.data(&format!("f{number}-{file}.parquet")).await));
                }
                lake.world.clock.advance_ms(i64::from(waited_hours) * HOUR_MS);
                table.commit(&entries).await;
            }
            Step::MarkDeleted => {
                let key = table.data(&format!("d{number}.parquet")).await;
                table.commit(&[(2, 0, key)]).await;
            }
            Step::Statistics => {
                let key = format!("wh/t/metadata/s{number}.stats");
                lake.put(&key, "x").await;
                book.made_ms.insert(key.clone(), lake.world.ports.clock.now_ms());
                book.garbage.extend(statistics.replace(key.clone()));
                table.metadata["statistics"] = json!([{"statistics-path": Iceberg::uri(&key)}]);
                let key = table.data(&format!("e{number}.parquet")).await;
                table.commit(&[(1, 2, key)]).await;
            }
            Step::Unfinished => {
                let key = table.data(&format!("u{number}.parquet")).await;
                table.clone().prepare(&[(1, 0, key)]).await;
                unfinished = true;
            }
            Step::Garbage { kind } => {
                let (key, is_garbage) = garbage_key(kind, number);
                lake.put(&key, if kind == 7 { "" } else { "x" }).await;
                book.made_ms.insert(key.clone(), lake.world.ports.clock.now_ms());
                if is_garbage {
                    book.garbage.insert(key);
                }
            }
            Step::Hours(hours) => lake.world.clock.advance_ms(i64::from(hours) * HOUR_MS),
            Step::Optimizer => {
                let target = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
                    "Type": "orphan_file_deletion"});
                optimizer::delete(&lake.app, lake.directory.as_ref(), target).await.unwrap();
                lake.optimize("t", json!({})).await;
                book.gate_ms = lake.world.ports.clock.now_ms();
            }
        }
    }
    (lake, book)
}

async fn play_delta(steps: Vec<Step>) -> (Lake, Book) {
    let lake = Lake::new();
    let mut book = Book::default();
    let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/t") };
    kit.log(0, &creation_of("t", &["_p"], json!({"delta.deletedFileRetentionDuration": "interval 3 days"}))).await;
    lake.register("t", "wh/t", &[("spark.sql.sources.provider", "delta")]);
    lake.optimize("t", json!({})).await;
    book.gate_ms = lake.world.ports.clock.now_ms();
    let (mut version, mut live) = (0, Vec::new());
    for (number, step) in steps.into_iter().enumerate() {
        advance(&lake.world.clock, 1);
        let now_ms = lake.world.ports.clock.now_ms();
        match step {
            Step::Commit { files, .. } => {
                let mut lines = Vec::new();
                for file in 0..files {
                    let name = format!("_p=a b/f{number}-{file}%.parquet");
                    lake.put(&format!("wh/t/{name}"), "x").await;
                    book.made_ms.insert(format!("wh/t/{name}"), now_ms);
                    let path = name.replace('%', "%25").replace(' ', "%20");
                    lines.push(add_line(&path, 1));
                    live.push((name, path));
                }
                version += 1;
                kit.log(version, &lines).await;
            }
            Step::MarkDeleted | Step::Statistics => {
                let Some((name, path)) = live.pop() else { continue };
                // Removed long ago, by the log's own word.
                let removed_ms = if matches!(step, Step::MarkDeleted) { now_ms } else { 0 };
                version += 1;
                kit.log(version, &[remove_line(&path, removed_ms)]).await;
                book.tombstones.insert(format!("wh/t/{name}"), removed_ms);
            }
            Step::Unfinished => {
                let name = format!("s{number}.parquet");
                lake.put(&format!("wh/t/{name}"), "x").await;
                kit.stage(version + 1, number as u128, &[add_line(&name, 1)]).await;
            }
            Step::Garbage { kind } => {
                let (key, is_garbage) = garbage_key(kind, number);
                lake.put(&key, "x").await;
                book.made_ms.insert(key.clone(), now_ms);
                if is_garbage && key.ends_with(".parquet") {
                    book.garbage.insert(key);
                }
            }
            Step::Hours(hours) => lake.world.clock.advance_ms(i64::from(hours) * HOUR_MS),
            Step::Optimizer => {}
        }
    }
    (lake, book)
}

/// A dry run and a real one say and do what the book says, and a second real one finds nothing more.
async fn check(lake: &Lake, book: &Book) {
    let now_ms = lake.world.ports.clock.now_ms();
    let expected = book.due(now_ms, 3 * DAY_MS);
    let dry = lake.sweep("t", Mode::DryRun).await;
    assert_eq!(dry.state, RunState::Completed, "{:?}", dry.error);
    let announced: BTreeSet<String> = lake
        .report("t", &dry.run_id)
        .await
        .into_iter()
        .filter(|line| line["decision"] == "delete")
        .map(|line| line["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(announced, expected);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone), (RunState::Completed, expected), "{:?}", record.error);
    assert_eq!(lake.gone().await.1, BTreeSet::new());
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn of_iceberg(steps in prop::collection::vec(step(), 1..24), format in 1i64..4, days in 0i64..9) {
        block_on(async {
            let (lake, book) = play_iceberg(steps, format).await;
            lake.days(days);
            check(&lake, &book).await;
        });
    }

    #[test]
    fn of_delta(steps in prop::collection::vec(step(), 1..24), days in 0i64..9) {
        block_on(async {
            let (lake, book) = play_delta(steps).await;
            lake.days(days);
            check(&lake, &book).await;
        });
    }
}
