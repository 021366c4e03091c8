//! Runs that are cut into slices: what they find and delete is what one long run does, whatever happens in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::ports::{App, Deadline};
use crate::store::ReadObjects;
use crate::sweep::items::{LEASE_MS, RunRecord, RunState, Stage};

/// Commits of the table, each with a manifest of its own.
const COMMITS: usize = 80;
const LIVE: usize = 10;
const ORPHANS: usize = 301;
const SLICE_MS: i64 = 60_000;
/// Of each request, and of each HEAD.
const STEPS_MS: (i64, i64) = (300, 150);
const DELTA_STEPS_MS: (i64, i64) = (1_000, 250);

/// An Iceberg table whose metadata, listing and orphans each take longer than a slice.
async fn iceberg(lake: &Lake) -> (Iceberg, Vec<String>) {
    let mut table = Iceberg::create(lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let mut live = Vec::new();
    for commit in 0..COMMITS {
        let names: Vec<String> = (0..LIVE).map(|number| format!("live-{commit:03}-{number:02}.parquet")).collect();
        live.extend(table.append(&names.iter().map(String::as_str).collect::<Vec<_>>()).await);
    }
    for number in 0..ORPHANS {
        table.data(&format!("p={}/orphan-{number:04}.parquet", number % 7)).await;
    }
    lake.put("wh/t/data/_keep/x", "x").await;
    lake.put("wh/t/note.txt", "x").await;
    lake.days(4);
    table.data("young.parquet").await;
    (table, live)
}

async fn delta(lake: &Lake) -> Vec<String> {
    let metadata = json!({"metaData": {"id": "u", "format": {"provider": "parquet"}, "partitionColumns": [],
        "schemaString": "{\"type\":\"struct\",\"fields\":[]}", "configuration": {}}});
    let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
    let kit = lake.delta("t", "wh/t", &[protocol, metadata]).await;
    lake.optimize("t", json!({"orphanFileRetentionPeriodInDays": 1})).await;
    advance(&lake.world.clock, 1);
    let mut live = Vec::new();
    for version in 1..=20 {
        let mut lines = Vec::new();
        for number in 0..40 {
            let path = format!("live-{version:02}-{number:02}.parquet");
            lake.put(&format!("wh/t/{path}"), "x").await;
            live.push(format!("wh/t/{path}"));
            lines.push(json!({"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1,
                "dataChange": true}}));
        }
        kit.log(version, &lines).await;
    }
    for number in 0..ORPHANS {
        lake.put(&format!("wh/t/orphan-{number:04}.parquet"), "x").await;
    }
    lake.days(9);
    live
}

fn slow(lake: &Lake) -> App {
    let is_delta = lake.keys().iter().any(|key| key.contains("_delta_log"));
    let (step_ms, head_ms) = if is_delta { DELTA_STEPS_MS } else { STEPS_MS };
    let mut app = lake.app.clone();
    let (objects, clock) = (lake.world.objects.clone(), lake.world.clock.clone());
    app.ports.objects = Arc::new(Slow { objects, clock, step_ms, head_ms });
    app
}

async fn slice(lake: &Lake, request: &SweepRequest, length_ms: i64) -> Result<RunOutcome, SweepError> {
    let deadline = Deadline::in_ms(lake.world.clock.as_ref(), length_ms);
    sweep(&slow(lake), lake.directory.as_ref(), request, deadline).await
}

/// Works in slices to the end.
async fn sliced(lake: &Lake, request: &SweepRequest) -> RunRecord {
    for _ in 0..100 {
        match slice(lake, request, SLICE_MS).await.unwrap() {
            RunOutcome::Finished(record) => return *record,
            RunOutcome::Postponed(Interruption::TimeLimit) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no end")
}

/// Lines of the report by key: each object is judged once; what became of orphans.
async fn lines(lake: &Lake, run_id: &str) -> (BTreeMap<String, Value>, BTreeMap<String, Vec<String>>) {
    let (mut judged, mut outcomes) = (BTreeMap::new(), BTreeMap::<String, Vec<String>>::new());
    for line in lake.report("t", run_id).await {
        let key = line["key"].as_str().unwrap().to_owned();
        match line["outcome"].as_str() {
            Some(outcome) => outcomes.entry(key).or_default().push(outcome.to_owned()),
            None => assert!(judged.insert(key.clone(), line).is_none(), "{key} twice"),
        }
    }
    (judged, outcomes)
}

fn work_left(lake: &Lake) -> Vec<String> {
    let reports = lake.world.objects.keys(&lake.app.settings.reports.bucket);
    reports.into_iter().filter(|key| key.contains("/work/")).collect()
}

#[tokio::test]
async fn slices_of_a_minute_find_and_delete_what_one_run_does() {
    for format in ["iceberg", "delta"] {
        for mode in [Mode::DryRun, Mode::Ordinary] {
            let mut found = Vec::new();
            for is_sliced in [false, true] {
                let lake = Lake::new();
                if format == "delta" {
                    delta(&lake).await;
                } else {
                    iceberg(&lake).await;
                }
                let request = lake.start("t", mode).await;
                let record = if is_sliced {
                    sliced(&lake, &request).await
                } else {
                    match slice(&lake, &request, 100 * 900_000).await.unwrap() {
                        RunOutcome::Finished(record) => *record,
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
                let deleted = if mode == Mode::DryRun { 0 } else { ORPHANS as i64 };
                assert_eq!((record.totals.deleted.count, record.totals.spared.len()), (deleted, 0));
                assert_eq!(record.attempts > 1, is_sliced, "{format} {mode:?} {}", record.attempts);
                assert_eq!(work_left(&lake), Vec::<String>::new());
                let facts = items::RunFacts { findings: Vec::new(), ..record.facts.clone() };
                found.push((record.totals.clone(), facts, lines(&lake, &record.run_id).await, lake.keys()));
            }
            assert!(found[0] == found[1], "{format} {mode:?}: {:?} {:?}", found[0].0, found[1].0);
        }
    }
}

#[tokio::test]
async fn a_worker_that_dies_anywhere_loses_nothing_and_the_next_goes_on() {
    let mut ends = 0;
    for calls in (0..).step_by(97) {
        let lake = Lake::new();
        let (_, live) = iceberg(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(calls);
        let mut is_whole = false;
        for _ in 0..100 {
            match slice(&lake, &request, SLICE_MS).await {
                Ok(RunOutcome::Postponed(Interruption::TimeLimit)) => {}
                Ok(RunOutcome::Finished(_)) => is_whole = true,
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            }
            if is_whole || u64::try_from(lake.world.faults.calls().len()).unwrap() > calls {
                break;
            }
        }
        lake.world.faults.revive();
        lake.world.clock.advance_ms(LEASE_MS);
        let record = match slice(&lake, &request, SLICE_MS).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            RunOutcome::AlreadyFinished => {
                RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap()
            }
            RunOutcome::Postponed(_) => sliced(&lake, &request).await,
            other => panic!("after {calls} calls: {other:?}"),
        };
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        let keys = lake.keys();
        assert!(live.iter().all(|key| keys.contains(key)), "after {calls} calls");
        assert!(!keys.iter().any(|key| key.contains("orphan")), "after {calls} calls");
        let (judged, outcomes) = lines(&lake, &record.run_id).await;
        assert!(judged.len() >= live.len(), "after {calls} calls");
        let told: BTreeSet<_> = outcomes.keys().collect();
        let orphans = judged.values().filter(|line| line["decision"] == "delete").count();
        assert!(told.len() >= orphans, "after {calls} calls");
        if is_whole {
            ends += 1;
            break;
        }
    }
    assert_eq!(ends, 1);
}

/// Between the moment at which a slice believes what an earlier run has read, and the end of the listing that is to show
/// it, a manifest goes or is written anew.
#[tokio::test]
async fn what_a_slice_believed_and_the_next_ones_do_not_find_is_read_or_refused() {
    let (mut seen, mut refused) = (BTreeSet::new(), 0);
    for requests in 0.. {
        let mut is_whole = false;
        for is_torn in [false, true] {
            let lake = Lake::new();
            let mut table = Iceberg::create(&lake, "t", 2).await;
            lake.optimize("t", json!({})).await;
            advance(&lake.world.clock, 1);
            let mut live = Vec::new();
            for commit in 0..6 {
                live.extend(table.append(&[&format!("live-{commit}.parquet")]).await);
            }
            for number in 0..9 {
                table.data(&format!("orphan-{number}.parquet")).await;
            }
            lake.days(4);
            // Everything is known from now on.
            lake.sweep("t", Mode::DryRun).await;
            let request = lake.start("t", Mode::Ordinary).await;
            // So many requests, and the margin in which nothing is begun.
            let first = slice(&lake, &request, 20_000 + requests * STEPS_MS.0).await.unwrap();
            is_whole |= matches!(first, RunOutcome::Finished(_));
            let record = RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap();
            let stage = record.progress.stage;
            let manifest = "wh/t/metadata/c5-m0.avro";
            crate::store::Objects::delete(lake.world.objects.as_ref(), &at(manifest), None).await.unwrap();
            if is_torn {
                lake.put(manifest, "torn").await;
            }
            let record = if is_whole { record } else { sliced(&lake, &request).await };
            let keys = lake.keys();
            let what = format!("after {requests} requests, at {stage:?}");
            assert!(live.iter().all(|key| keys.contains(key)), "{what}");
            if record.state == RunState::Failed {
                assert_eq!(record.totals.deleted.count, 0, "{what}");
                let reason = if is_torn { "metadata_unreadable" } else { "metadata_incomplete" };
                assert_eq!(record.reason.as_deref(), Some(reason), "{what}");
                seen.insert(stage);
                refused += 1;
            } else {
                assert!(stage > Stage::Loading || is_whole, "{what}: {record:?}");
            }
        }
        if is_whole {
            break;
        }
    }
    assert!(seen.contains(&Stage::Loading) && seen.contains(&Stage::Surveying) && refused > 4, "{seen:?} {refused}");
}

#[tokio::test]
async fn a_commit_between_any_two_slices_saves_its_files() {
    let mut whole = false;
    for before in 1..100 {
        let lake = Lake::new();
        let (mut table, live) = iceberg(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let mut postponed = 0;
        for _ in 0..before {
            match slice(&lake, &request, SLICE_MS).await.unwrap() {
                RunOutcome::Postponed(_) => postponed += 1,
                _ => break,
            }
        }
        whole = postponed < before;
        // What is there still is committed now.
        let saved: Vec<String> = lake.keys().into_iter().filter(|key| key.contains("orphan")).collect();
        let entries: Vec<(i32, i32, String)> = saved.iter().map(|key| (1, 0, key.clone())).collect();
        table.commit(&entries).await;
        if !whole {
            assert_eq!(sliced(&lake, &request).await.state, RunState::Completed);
        }
        let keys = lake.keys();
        assert!(saved.iter().chain(&live).all(|key| keys.contains(key)), "after {before} slices");
        if whole {
            break;
        }
    }
    assert!(whole);
}

/// A commit whose manifest is written between two slices, and whose pointer moves long after.
#[tokio::test]
async fn a_manifest_of_a_commit_that_begins_between_two_slices_protects_what_it_names() {
    let mut seen = BTreeSet::new();
    for before in 1..100 {
        let lake = Lake::new();
        let (mut table, _) = iceberg(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let mut is_whole = false;
        for _ in 0..before {
            is_whole = !matches!(slice(&lake, &request, SLICE_MS).await.unwrap(), RunOutcome::Postponed(_));
        }
        if is_whole {
            break;
        }
        let record = RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap();
        seen.insert(record.progress.stage);
        let saved: Vec<String> = lake.keys().into_iter().filter(|key| key.contains("orphan")).collect();
        let entries: Vec<(i32, i32, String)> = saved.iter().map(|key| (1, 0, key.clone())).collect();
        // Without its metadata file, which the catalog does not name either.
        table.prepare(&entries).await;
        let objects = lake.world.objects.as_ref();
        crate::store::Objects::delete(objects, &at(&table.metadata_key()), None).await.unwrap();
        assert_eq!(sliced(&lake, &request).await.state, RunState::Completed);
        let keys = lake.keys();
        assert!(saved.iter().all(|key| keys.contains(key)), "after {before} slices: {:?}", record.progress.stage);
    }
    assert!(seen.contains(&Stage::Loading) && seen.contains(&Stage::Deleting), "{seen:?}");
}

#[tokio::test]
async fn what_is_stored_counts_only_while_everything_is_as_it_was() {
    type Change = fn(&Lake, &RunRecord) -> futures::future::BoxFuture<'static, ()>;
    let changes: [(&str, Change); 4] = [
        ("nothing", |_, _| Box::pin(async {})),
        ("a damaged filter", |lake, record| {
            let (lake, record) = (lake.clone(), record.clone());
            Box::pin(async move {
                let name = format!("work/{}", record.progress.filter.clone().unwrap());
                let at = report::run_folder(&lake.app.settings.reports, &record).object(&name);
                let mut bytes = lake.world.objects.get(&at, &Default::default()).await.unwrap().bytes.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                crate::store::Objects::put(lake.world.objects.as_ref(), &at, bytes.into(), &Default::default())
                    .await
                    .unwrap();
            })
        }),
        ("a table inside", |lake, _| {
            lake.register("inside", "wh/t/data/p=1", &[("classification", "parquet")]);
            Box::pin(async {})
        }),
        ("a shorter retention", |lake, _| {
            let lake = lake.clone();
            Box::pin(async move {
                lake.configure(json!({"orphanFileRetentionPeriodInDays": 2})).await.unwrap();
            })
        }),
    ];
    for (name, change) in changes {
        let lake = Lake::new();
        iceberg(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let load =
            || async { RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap() };
        while !load().await.progress.is_stored() {
            assert!(matches!(slice(&lake, &request, SLICE_MS).await.unwrap(), RunOutcome::Postponed(_)));
        }
        let before = load().await;
        change(&lake, &before).await;
        slice(&lake, &request, SLICE_MS).await.unwrap();
        let after = load().await;
        let went_on = after.progress.began_ms == before.progress.began_ms && after.progress.is_stored();
        assert_eq!(went_on, name == "nothing", "{name}: {:?}", after.progress);
        let record = sliced(&lake, &request).await;
        assert_eq!(record.state, RunState::Completed, "{name}: {:?}", record.error);
        let kept = lake.keys().into_iter().filter(|key| key.contains("orphan")).count();
        assert_eq!(kept, if name == "a table inside" { ORPHANS / 7 } else { 0 }, "{name}");
    }
}

#[tokio::test]
async fn two_workers_and_a_message_that_comes_twice_do_the_work_once() {
    let lake = Lake::new();
    let (_, live) = iceberg(&lake).await;
    let request = lake.start("t", Mode::Ordinary).await;
    let mut ends = 0;
    for _ in 0..200 {
        let (one, other) = tokio::join!(slice(&lake, &request, SLICE_MS), slice(&lake, &request, SLICE_MS));
        for outcome in [one.unwrap(), other.unwrap()] {
            match outcome {
                RunOutcome::Finished(record) => {
                    ends += 1;
                    assert_eq!((record.state, record.totals.deleted.count), (RunState::Completed, ORPHANS as i64));
                    assert!(record.totals.spared.is_empty(), "{:?}", record.totals);
                }
                RunOutcome::Postponed(_) | RunOutcome::AlreadyFinished => {}
                other => panic!("{other:?}"),
            }
        }
        if ends > 0 {
            break;
        }
    }
    assert_eq!(ends, 1);
    assert_eq!(slice(&lake, &request, SLICE_MS).await.unwrap(), RunOutcome::AlreadyFinished);
    let keys = lake.keys();
    assert!(live.iter().all(|key| keys.contains(key)) && !keys.iter().any(|key| key.contains("orphan")));
}
