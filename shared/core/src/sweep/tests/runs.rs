//! Planted orphans are found exactly; everything else stays.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::ReadObjects;
use crate::sweep::items::RunState;

/// A table with all that metadata can name, and orphans that were made after the optimizer. Answers the orphans.
async fn planted(lake: &Lake, format: i64) -> (Iceberg, BTreeSet<String>) {
    let mut table = Iceberg::create(lake, "t", format).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 10);
    table.append(&["a.parquet", "_day=1/b.parquet"]).await;
    let deletes = table.data("deletes.parquet").await;
    let removed = table.data("removed.parquet").await;
    table.commit(&[(1, 1, deletes), (2, 0, removed)]).await;
    for (member, name) in [("statistics", "s.stats"), ("partition-statistics", "p.parquet")] {
        let key = format!("wh/t/metadata/{name}");
        lake.put(&key, "x").await;
        table.metadata[member] = json!([{"statistics-path": Iceberg::uri(&key)}]);
    }
    // A staged snapshot without any branch is current nowhere.
    table.append(&["staged.parquet"]).await;
    table.append(&["c.parquet"]).await;
    for key in ["wh/t/metadata/version-hint.text", "wh/t/data/_SUCCESS", "wh/t/data/note.txt", "wh/t2/data/x.parquet"] {
        lake.put(key, "x").await;
    }
    let orphans = [
        "wh/t/data/orphan.parquet",
        "wh/t/data/_day=1/orphan 2+é%.parquet",
        "wh/t/metadata/orphan-m0.avro",
        "wh/t/metadata/00000-old.metadata.json",
    ];
    for key in &orphans[..3] {
        lake.put(key, "orphan").await;
    }
    let mut stale = table.metadata.clone();
    stale["last-updated-ms"] = (START_MS - 5).into();
    lake.put(orphans[3], stale.to_string()).await;
    (table, orphans.into_iter().map(str::to_owned).collect())
}

#[tokio::test]
async fn planted_orphans_are_found_exactly() {
    for format in [1, 2, 3] {
        let lake = Lake::new();
        let (_, orphans) = planted(&lake, format).await;
        lake.days(4);
        let before = lake.keys();
        let dry = lake.sweep("t", Mode::DryRun).await;
        assert_eq!((dry.state, dry.reason.as_deref()), (RunState::Completed, None), "{:?}", dry.error);
        assert_eq!(lake.keys(), before);
        let record = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(record.state, RunState::Completed);
        assert_eq!(record.totals.deleted.count, 4);
        assert!(record.totals.spared.is_empty());
        let gone: BTreeSet<String> = before.difference(&lake.keys()).cloned().collect();
        assert_eq!(gone, orphans, "format {format}");
        // The table's very first metadata file is older than the optimizer, and referenced.
        let listed = counts(&dry);
        let expected = [("no_ownership_evidence", 1), ("orphan", 4), ("reserved_name", 2)];
        for (reason, count) in expected {
            assert_eq!(listed.get(reason), Some(&count), "{reason}: {listed:?}");
        }
        assert_eq!(listed.len(), 4, "{listed:?}");
    }
}

#[tokio::test]
async fn the_report_has_a_line_for_every_object() {
    let lake = Lake::new();
    let (_, orphans) = planted(&lake, 2).await;
    lake.days(4);
    let under_scope: BTreeSet<String> = lake.keys().into_iter().filter(|key| key.starts_with("wh/t/")).collect();
    let dry = lake.sweep("t", Mode::DryRun).await;
    let lines = lake.report("t", &dry.run_id).await;
    let keys: BTreeSet<String> = lines.iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, under_scope);
    for line in &lines {
        let doomed = orphans.contains(line["key"].as_str().unwrap());
        assert_eq!(line["decision"], if doomed { "delete" } else { "keep" }, "{line}");
        assert!(line["size_bytes"].is_u64() && line["last_modified_ms"].is_i64() && line["reason"].is_string());
    }
    let real = lake.sweep("t", Mode::Ordinary).await;
    let outcomes: Vec<_> =
        lake.report("t", &real.run_id).await.into_iter().filter(|line| line["outcome"] == "deleted").collect();
    assert_eq!(outcomes.len(), 4);
}

#[tokio::test]
async fn the_gate_and_the_retention_hold() {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    table.data("before.parquet").await;
    advance(&lake.world.clock, 5);
    lake.optimize("t", json!({"orphanFileRetentionPeriodInDays": 2})).await;
    table.data("with.parquet").await;
    advance(&lake.world.clock, 1);
    table.data("after.parquet").await;
    table.append(&["live.parquet"]).await;
    lake.days(2);
    let early = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(early.totals.deleted.count, 0);
    assert_eq!(counts(&early).get("too_young"), Some(&1));
    assert_eq!(counts(&early).get("creation_gate"), Some(&2));
    advance(&lake.world.clock, 1);
    let later = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(later.totals.deleted.count, 1);
    assert!(!lake.keys().contains("wh/t/data/after.parquet"));
    // Created again, the optimizer has a new gate.
    table.data("again.parquet").await;
    lake.days(1);
    let target =
        json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion"});
    optimizer::delete(&lake.app, lake.directory.as_ref(), target).await.unwrap();
    lake.optimize("t", json!({})).await;
    lake.days(400);
    let after_all = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(after_all.totals.deleted.count, 0);
    assert_eq!(counts(&after_all).get("creation_gate"), Some(&3));
}

#[tokio::test]
async fn a_sub_location_is_swept_alone() {
    let lake = Lake::new();
    let table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({"location": "s3a://lake/wh/t/data/day=1/"})).await;
    advance(&lake.world.clock, 1);
    table.data("day=1/x.parquet").await;
    table.data("day=10/x.parquet").await;
    lake.days(4);
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 1);
    assert!(lake.keys().contains("wh/t/data/day=10/x.parquet"));
}

#[tokio::test]
async fn more_than_a_page_and_more_than_a_batch() {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let live: Vec<String> = (0..1500).map(|number| format!("live-{number:05}.parquet")).collect();
    table.append(&live.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for number in 0..600 {
        table.data(&format!("orphan-{number:05}.parquet")).await;
    }
    lake.days(4);
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 600);
    assert_eq!(counts(&record).get("referenced"), Some(&1504));
    let lines = lake.report("t", &record.run_id).await;
    assert_eq!(lines.len(), 1504 + 600 + 600);
}

#[tokio::test]
async fn a_run_asks_for_no_more_than_it_needs() {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    table.append(&["a.parquet"]).await;
    table.append(&["b.parquet"]).await;
    table.data("orphan.parquet").await;
    lake.days(4);
    let request = lake.start("t", Mode::Ordinary).await;
    let (items, objects) = (lake.world.ports.items.item_usage(), lake.world.objects.object_usage());
    lake.run(&request).await.unwrap();
    let items = lake.world.ports.items.item_usage().since(&items);
    let objects = lake.world.objects.object_usage().since(&objects);
    // Record, lock, optimizer twice, twice whether the run is wanted still; lock taken, renewed and given back, record
    // begun, before and after the batch, ended; where the table has files; two fences. Places of all tables; tables that lay
    // here, and in the two folders above, and were dropped; leases before and after the fence.
    assert_eq!((items.gets, items.puts, items.queries, items.transactions), (6, 10, 6, 0));
    // Earlier sightings, what is known of manifests, one metadata file, two lists, two manifests, and for places of the
    // past the two metadata files before; signs above, survey and pages; one HEAD per orphan and one for the clock; two
    // report parts and the page, what is to go, sightings, manifests and once more with those metadata files, clock.
    assert_eq!((objects.gets, objects.lists, objects.heads, objects.batch_deletes, objects.puts), (9, 8, 2, 1, 8));
}

#[tokio::test]
async fn a_table_of_pyiceberg_keeps_all_its_files() {
    let lake = Lake::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/iceberg/fixtures/pyiceberg-0.12.0");
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    let pointer = index["pointer"].as_str().unwrap();
    lake.register("events", "wh/ns/events", &[("table_type", "ICEBERG"), ("metadata_location", pointer)]);
    lake.optimize("events", json!({})).await;
    advance(&lake.world.clock, 1);
    for object in index["objects"].as_array().unwrap() {
        let key = object["key"].as_str().unwrap();
        let name = key.rsplit('/').next().unwrap();
        let bytes = std::fs::read(folder.join(name)).unwrap_or_else(|_| vec![0]);
        lake.put(key, bytes).await;
    }
    let whole = lake.keys();
    lake.put("wh/ns/events/data/day=2026-11-01/00000-0-orphan.parquet", "x").await;
    lake.put("wh/ns/events/metadata/orphan-m0.avro", "x").await;
    lake.days(4);
    let record = lake.sweep("events", Mode::Ordinary).await;
    assert_eq!((record.state, record.totals.deleted.count), (RunState::Completed, 2), "{:?}", record.error);
    assert_eq!(lake.keys().into_iter().filter(|key| key.starts_with("wh/")).collect::<BTreeSet<_>>(), whole);
}

/// Whoever ends a run takes away what its slices have stored for each other, and nothing else.
#[tokio::test]
async fn what_slices_have_stored_goes_with_the_run() {
    use crate::ports::Deadline;
    use crate::store::{Objects, PutOptions};
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Stale,
        SecondAttempt,
        Again,
        GivenUp,
    }
    for end in [End::Stale, End::SecondAttempt, End::Again, End::GivenUp] {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let place = |name: &str| lake.app.settings.reports.object(&format!("id-t/{}/{name}", request.run_id));
        let (work, beside) = (place("work/001-filter-x"), place("work.txt"));
        let objects = lake.world.objects.as_ref();
        let short = || Deadline::in_ms(lake.world.clock.as_ref(), 10_000);
        if end == End::Again {
            lake.run(&request).await.unwrap();
        } else {
            let outcome = sweep(&lake.app, lake.directory.as_ref(), &request, short()).await.unwrap();
            assert_eq!(outcome, RunOutcome::Postponed(Interruption::TimeLimit));
        }
        // A worker that died had stored this, and nothing names it.
        for at in [&work, &beside] {
            objects.put(at, "x".into(), &PutOptions::default()).await.unwrap();
        }
        let before = objects.object_usage();
        match end {
            End::Stale => {
                lake.days(2);
                lake.start("t", Mode::DryRun).await;
            }
            End::Again => assert_eq!(lake.run(&request).await.unwrap(), RunOutcome::AlreadyFinished),
            End::SecondAttempt => _ = lake.run(&request).await.unwrap(),
            End::GivenUp => {
                let error = SweepError::from(crate::store::StoreError::new(
                    crate::store::StoreErrorKind::Unavailable,
                    "get",
                    "no answer",
                ));
                assert!(give_up(&lake.app, lake.directory.as_ref(), &request, &error).await.unwrap());
            }
        }
        assert!(objects.head(&work).await.is_err(), "{end:?}");
        assert!(objects.head(&beside).await.is_ok(), "{end:?}");
        if matches!(end, End::Stale | End::Again) {
            let used = objects.object_usage().since(&before);
            assert_eq!((used.lists, used.batch_deletes), (1, 1), "{end:?}");
            let before = objects.object_usage();
            let again = lake.run(&request).await.unwrap();
            assert_eq!(again, RunOutcome::AlreadyFinished);
            let used = objects.object_usage().since(&before);
            assert_eq!((used.lists, used.batch_deletes), (1, 0), "{end:?}");
        }
    }
    // One that was never begun has stored nothing, and is not looked at.
    let lake = Lake::new();
    with_orphan(&lake).await;
    lake.start("t", Mode::Ordinary).await;
    lake.days(15);
    let before = lake.world.objects.object_usage();
    lake.start("t", Mode::Ordinary).await;
    assert_eq!(lake.world.objects.object_usage().since(&before).lists, 0);
}
