//! A run that breaks at any of its calls comes to what one does that is left alone, and says of every file what became of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::delta::testkit::{add_line, creation_of};
use crate::ports::Deadline;
use crate::store::StoreErrorKind::{Throttled, Unavailable};
use crate::store::memory::Fault;
use crate::sweep::items::{LEASE_MS, RunRecord, RunState};

/// Small enough to be broken at every single call.
async fn small(lake: &Lake, format: &str) {
    if format == "delta" {
        let kit = lake.delta("t", "wh/t", &creation_of("u", &[], json!({}))).await;
        lake.optimize("t", json!({})).await;
        advance(&lake.world.clock, 1);
        kit.log(1, &[add_line("data/live.parquet", 4)]).await;
    } else {
        let mut table = Iceberg::create(lake, "t", 2).await;
        lake.optimize("t", json!({})).await;
        advance(&lake.world.clock, 1);
        table.append(&["live.parquet"]).await;
        table.append(&["more.parquet"]).await;
    }
    for name in ["live", "orphan-1", "orphan-2", "orphan-3"] {
        lake.put(&format!("wh/t/data/{name}.parquet"), "data").await;
    }
    lake.put("wh/t/note.txt", "x").await;
    lake.days(10);
}

/// Workers that take turns until one comes to the end; none of them knows of the others. `between` is what happens before
/// each of the later ones.
async fn in_turns(lake: &Lake, request: &SweepRequest, between: impl Fn(&Lake)) -> RunRecord {
    for _ in 0..200 {
        match sweep(&lake.app, lake.directory.as_ref(), request, Deadline::in_ms(lake.world.clock.as_ref(), 900_000))
            .await
        {
            Ok(RunOutcome::Finished(record)) => return *record,
            Ok(RunOutcome::AlreadyFinished) => {
                return RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap();
            }
            Ok(RunOutcome::Postponed(_)) => {}
            Ok(other) => panic!("{other:?}"),
            // The message comes again, to another worker.
            Err(_) => lake.world.faults.revive(),
        }
        between(lake);
        lake.world.clock.advance_ms(LEASE_MS);
    }
    panic!("no end")
}

/// Decisions and outcomes by key.
type Told = (BTreeMap<String, (String, String)>, BTreeSet<String>);

async fn told(lake: &Lake, run_id: &str) -> Told {
    let (mut judged, mut gone) = (BTreeMap::new(), BTreeSet::new());
    for line in lake.report("t", run_id).await {
        let text = |member: &str| line[member].as_str().unwrap_or_default().to_owned();
        if line["outcome"].is_string() {
            // Deleted by a worker that died before it could say so: found to be gone.
            assert!(matches!(text("outcome").as_str(), "deleted" | "already_gone"), "{line}");
            gone.insert(text("key"));
        } else {
            judged.insert(text("key"), (text("decision"), text("reason")));
        }
    }
    (judged, gone)
}

#[tokio::test]
async fn whatever_breaks_at_any_call_the_end_is_that_of_a_run_that_is_left_alone() {
    for (format, mode, every) in
        [("iceberg", Mode::Ordinary, 1), ("delta", Mode::Ordinary, 1), ("iceberg", Mode::DryRun, 5)]
    {
        let alone = Lake::new();
        small(&alone, format).await;
        let request = alone.start("t", mode).await;
        alone.world.faults.forget_calls();
        let record = in_turns(&alone, &request, |_| {}).await;
        let calls = alone.world.faults.calls().len() as u64;
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        let expected = (told(&alone, &request.run_id).await, alone.keys());
        for way in 0..4 {
            // Every call is one after which a worker dies; the other ways at some of them.
            for call in (0..calls).step_by(if way == 0 { every } else { 8 }) {
                let lake = Lake::new();
                small(&lake, format).await;
                let request = lake.start("t", mode).await;
                lake.world.faults.forget_calls();
                match way {
                    0 => lake.world.faults.crash_after(call),
                    1 => lake.world.faults.inject("", call, Fault::After(Unavailable)),
                    2 => lake.world.faults.inject("", call, Fault::Before(Throttled)),
                    _ => {
                        lake.world.faults.crash_after(call);
                        lake.world.faults.inject("", calls + call / 2, Fault::After(Unavailable));
                    }
                }
                let record = in_turns(&lake, &request, |_| {}).await;
                let what = format!("{format} {mode:?}, way {way}, call {call} of {calls}");
                assert_eq!(record.state, RunState::Completed, "{what}: {:?}", record.error);
                lake.world.faults.mend();
                lake.world.faults.revive();
                let (judged, gone) = told(&lake, &request.run_id).await;
                assert_eq!((&gone, lake.keys()), (&expected.0.1, expected.1.clone()), "{what}");
                // One that takes over may judge everything anew, and does not find what is gone.
                for (key, decision) in &expected.0.0 {
                    assert!(judged.get(key).map_or(gone.contains(key), |found| found == decision), "{what}: {key}");
                }
                assert!(judged.len() <= expected.0.0.len(), "{what}");
            }
        }
    }
}

/// The worker that takes over cannot go on from what is stored, since a table appeared: it gathers everything anew, and no
/// listing shows it what the dead one had deleted.
#[tokio::test]
async fn what_a_worker_deleted_before_it_died_is_named_by_one_that_begins_anew() {
    let mut restarted = 0;
    for call in 0.. {
        let lake = Lake::new();
        small(&lake, "iceberg").await;
        let before = lake.keys();
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(call);
        let record = in_turns(&lake, &request, |lake| lake.register("inside", "wh/t/data/inside", &[])).await;
        let is_whole = (lake.world.faults.calls().len() as u64) <= call;
        lake.world.faults.revive();
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        let gone: BTreeSet<String> = before.difference(&lake.keys()).cloned().collect();
        assert_eq!(gone.len(), 3, "after {call} calls");
        let (_, named) = told(&lake, &request.run_id).await;
        assert_eq!(named, gone, "after {call} calls");
        restarted += i64::from(record.totals.spared.contains_key("already_gone"));
        if is_whole {
            break;
        }
    }
    assert!(restarted > 0);
}
