//! What a run takes away comes back, and only that.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::memory::Fault;
use crate::store::*;
use crate::sweep::items::{RunRecord, RunState};

/// A lake whose deletes can be undone for a week.
pub(super) fn lake(versioning: Versioning) -> Lake {
    let mut lake = Lake::new();
    lake.app.settings.undo.hours = 168;
    lake.world.objects.set_versioning(BUCKET, versioning);
    lake
}

impl Lake {
    pub(super) async fn restore(&self, ask: serde_json::Value) -> RunRecord {
        rest::restore_in(&self.app, self.directory.as_ref(), "db", "t", &ask).await.unwrap();
        let request = SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        match sweep(&self.app, self.directory.as_ref(), &request, self.deadline()).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// What became of each key, by the outcome lines of a run.
    pub(super) async fn outcomes(&self, run: &RunRecord) -> Vec<(String, String)> {
        let text = |line: &serde_json::Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
        let lines = self.report("t", &run.run_id).await;
        let told = lines.iter().filter(|line| line.get("outcome").is_some());
        told.map(|line| (text(line, "key"), text(line, "outcome"))).collect()
    }
}

pub(super) fn quarantined(lake: &Lake) -> Vec<String> {
    lake.keys().into_iter().filter(|key| key.starts_with("lakewarden-quarantine/")).collect()
}

#[tokio::test]
async fn a_run_is_undone_where_the_bucket_keeps_versions() {
    let lake = lake(Versioning::Enabled);
    let (_, orphan) = with_old_orphan(&lake).await;
    let before = lake.world.objects.head(&at(&orphan)).await.unwrap();
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(run.facts.undo.as_deref(), Some("delete_markers"));
    assert!(!lake.keys().contains(&orphan) && quarantined(&lake).is_empty());
    let mark = lake.world.objects.object_usage();
    let restored = lake.restore(json!({ "run": run.run_id })).await;
    let used = lake.world.objects.object_usage().since(&mark);
    assert_eq!((used.version_lists, used.version_deletes, used.copies, used.heads), (1, 1, 0, 0), "per key");
    assert_eq!((restored.state, restored.facts.restored.unwrap().count), (RunState::Completed, 1));
    assert_eq!(lake.outcomes(&restored).await, [(orphan.clone(), "restored".into())]);
    assert_eq!(lake.world.objects.head(&at(&orphan)).await, Ok(before), "the same object, with its date");
    let again = lake.restore(json!({ "run": run.run_id })).await;
    assert_eq!(lake.outcomes(&again).await, [(orphan, "exists".into())]);
}

#[tokio::test]
async fn only_the_marker_of_the_run_goes_and_nothing_that_came_since() {
    let lake = lake(Versioning::Enabled);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    lake.put(&orphan, "written anew").await;
    let exists = lake.restore(json!({ "run": run.run_id })).await;
    assert_eq!(lake.outcomes(&exists).await, [(orphan.clone(), "exists".into())]);
    // Somebody deletes it: that is not the run's marker.
    lake.world.objects.delete(&at(&orphan), None).await.unwrap();
    let request = VersionRequest { bucket: BUCKET.into(), prefix: orphan.clone(), after: None, max_keys: 10 };
    let before = lake.world.objects.list_versions(&request).await.unwrap();
    let gone = lake.restore(json!({ "key": format!("s3://{BUCKET}/{orphan}") })).await;
    assert_eq!(lake.outcomes(&gone).await, [(orphan.clone(), "gone".into())]);
    assert_eq!(lake.world.objects.list_versions(&request).await.unwrap(), before);
    assert_eq!(before.versions.len(), 4);
}

#[tokio::test]
async fn without_versions_files_go_to_quarantine_and_come_back() {
    for versioning in [Versioning::Off, Versioning::Suspended] {
        let lake = lake(versioning);
        let (_, orphan) = with_old_orphan(&lake).await;
        let body = lake.world.objects.get(&at(&orphan), &GetOptions::default()).await.unwrap().bytes;
        let before = lake.world.objects.object_usage();
        let run = lake.sweep("t", Mode::Ordinary).await;
        let used = lake.world.objects.object_usage().since(&before);
        assert_eq!((used.copies, used.batch_deletes, used.heads, used.versionings), (1, 1, 2, 1), "one COPY per key");
        assert_eq!((run.facts.undo.as_deref(), run.totals.deleted.count), (Some("quarantine"), 1));
        assert_eq!(lake.outcomes(&run).await, [(orphan.clone(), "quarantined".into())]);
        assert_eq!(quarantined(&lake), [format!("lakewarden-quarantine/{orphan}/id-t/{}", run.run_id)]);
        let before = lake.world.objects.object_usage();
        let restored = lake.restore(json!({ "prefix": "wh/t/" })).await;
        let used = lake.world.objects.object_usage().since(&before);
        assert_eq!((used.copies, used.deletes, used.version_lists), (1, 1, 0), "per restored key");
        assert_eq!(lake.outcomes(&restored).await, [(orphan.clone(), "restored".into())]);
        let after = lake.world.objects.get(&at(&orphan), &GetOptions::default()).await.unwrap().bytes;
        assert_eq!((after, quarantined(&lake)), (body, Vec::new()));
        let again = lake.restore(json!({ "run": run.run_id })).await;
        assert_eq!(lake.outcomes(&again).await, [(orphan, "exists".into())]);
    }
}

#[tokio::test]
async fn what_was_written_since_is_left_alone() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    lake.put(&orphan, "written anew").await;
    let restored = lake.restore(json!({ "run": run.run_id })).await;
    assert_eq!(lake.outcomes(&restored).await, [(orphan.clone(), "exists".to_owned())], "one line for a file");
    assert_eq!(restored.totals.spared["exists"].count, 1);
    let found = lake.world.objects.get(&at(&orphan), &GetOptions::default()).await.unwrap().bytes;
    assert_eq!((found, quarantined(&lake).len()), ("written anew".into(), 1));
}

#[tokio::test]
async fn what_was_deleted_for_good_is_said_to_be() {
    let mut lake = lake(Versioning::Off);
    lake.app.settings.undo.hours = 0;
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(run.facts.undo.as_deref(), Some("none"));
    let restored = lake.restore(json!({ "run": run.run_id })).await;
    assert_eq!(lake.outcomes(&restored).await, [(orphan, "not_recoverable".into())]);
}

#[tokio::test]
async fn a_copy_that_fails_leaves_the_file_where_it_was() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    lake.world.faults.inject("create_copy", 0, Fault::Before(StoreErrorKind::Invalid));
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((run.totals.deleted.count, run.totals.spared["failed"].count), (0, 1));
    assert!(lake.keys().contains(&orphan) && quarantined(&lake).is_empty());
}

#[tokio::test]
async fn the_time_in_quarantine_ends_under_the_guards() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    let place = format!("lakewarden-quarantine/{orphan}/id-t/{}", run.run_id);
    let reason = async |mode: Mode| {
        let run = lake.sweep("t", mode).await;
        let why = lake.decisions(&run).await.get(&place).cloned();
        (why, run.facts.expired.map(|tally| tally.count))
    };
    let waits = Some(("keep".to_owned(), "quarantined".to_owned()));
    let is_over = Some(("delete".to_owned(), "quarantine_expired".to_owned()));
    assert_eq!(reason(Mode::DryRun).await, (waits.clone(), None));
    assert_eq!(reason(Mode::Ordinary).await, (waits, None));
    assert_eq!(quarantined(&lake), std::slice::from_ref(&place));
    lake.days(8);
    assert_eq!(reason(Mode::DryRun).await, (is_over.clone(), None));
    assert_eq!(quarantined(&lake), std::slice::from_ref(&place), "a dry run deletes nothing");
    assert_eq!(reason(Mode::Ordinary).await, (is_over, Some(1)));
    assert_eq!(quarantined(&lake), Vec::<String>::new());
    let restored = lake.restore(json!({ "run": run.run_id })).await;
    assert_eq!(lake.outcomes(&restored).await, [(orphan, "gone".into())]);
}

#[tokio::test]
async fn a_file_that_is_named_late_comes_back_by_itself() {
    for versioning in [Versioning::Off, Versioning::Enabled] {
        let lake = lake(versioning);
        let (mut table, orphan) = with_old_orphan(&lake).await;
        lake.sweep("t", Mode::Ordinary).await;
        assert!(!lake.keys().contains(&orphan));
        // A commit that took longer than every bound.
        table.commit(&[(1, 0, orphan.clone())]).await;
        lake.days(if versioning == Versioning::Off { 8 } else { 6 });
        let dry = lake.sweep("t", Mode::DryRun).await;
        assert!(dry.facts.restored.is_none() && !lake.keys().contains(&orphan));
        let run = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(run.facts.restored.unwrap().count, 1, "{versioning:?}");
        assert!(lake.keys().contains(&orphan) && quarantined(&lake).is_empty());
        assert_eq!(lake.outcomes(&run).await, [(orphan.clone(), "restored".into())]);
        assert!(run.facts.findings.iter().any(|finding| finding.contains(&orphan)), "{:?}", run.facts.findings);
    }
}

#[tokio::test]
async fn a_quarantine_inside_a_table_is_refused() {
    let mut lake = lake(Versioning::Off);
    lake.app.settings.undo.folder = "wh/u/aside".into();
    let (_, orphan) = with_old_orphan(&lake).await;
    lake.register("u", "wh/u", &[]);
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(run.reason.as_deref(), Some("quarantine_overlap"));
    assert!(lake.keys().contains(&orphan));
}

#[tokio::test]
async fn a_restore_in_slices_is_a_restore_in_one() {
    let lake = lake(Versioning::Off);
    let (mut table, _) = with_orphan(&lake).await;
    let live: Vec<String> = (0..1300).map(|number| format!("live-{number}.parquet")).collect();
    table.append(&live.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for number in 0..500 {
        table.data(&format!("orphan-{number:05}.parquet")).await;
    }
    lake.days(4);
    let before: Vec<String> = lake.keys().into_iter().filter(|key| key.starts_with("wh/t/data/")).collect();
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((run.totals.deleted.count, quarantined(&lake).len()), (501, 501));
    rest::restore_in(&lake.app, lake.directory.as_ref(), "db", "t", &json!({ "run": run.run_id })).await.unwrap();
    let request = SweepRequest::decode(&lake.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
    let mut slices = 0;
    let record = loop {
        slices += 1;
        let mut app = lake.app.clone();
        let objects = lake.world.objects.clone();
        app.ports.objects =
            std::sync::Arc::new(Slow { objects, clock: lake.world.clock.clone(), step_ms: 15_000, head_ms: 0 });
        let deadline = crate::ports::Deadline::in_ms(lake.world.clock.as_ref(), 60_000);
        match sweep(&app, lake.directory.as_ref(), &request, deadline).await.unwrap() {
            RunOutcome::Finished(record) => break record,
            RunOutcome::Postponed(_) => assert!(slices < 20),
            other => panic!("{other:?}"),
        }
    };
    assert!(slices > 1, "{slices}");
    assert_eq!((record.state, record.facts.restored.unwrap().count), (RunState::Completed, 501));
    let after: Vec<String> = lake.keys().into_iter().filter(|key| key.starts_with("wh/t/data/")).collect();
    assert_eq!((after, quarantined(&lake)), (before, Vec::new()));
}

#[tokio::test]
async fn what_comes_back_from_behind_a_marker_is_left_for_one_retention() {
    let lake = lake(Versioning::Enabled);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    lake.restore(json!({ "run": run.run_id })).await;
    for days in [0, 2] {
        lake.days(days);
        let next = lake.sweep("t", Mode::Ordinary).await;
        assert!(lake.keys().contains(&orphan), "after {days} days");
        assert_eq!(lake.decisions(&next).await[&orphan].0, "keep");
    }
    // Nobody has named it since; what announced it is forgotten.
    lake.days(2);
    lake.sweep("t", Mode::Ordinary).await;
    assert!(!lake.keys().contains(&orphan));
    let leases = crate::sweep::items::WriterLease::load_all(lake.world.items.as_ref(), "id-t").await.unwrap();
    assert_eq!(leases, Vec::new());
}

#[tokio::test]
async fn whatever_a_worker_deleted_before_it_died_can_come_back() {
    let (mut deleted, mut unreported) = (0, 0);
    for calls in 0.. {
        let lake = lake(Versioning::Enabled);
        let (_, orphan) = with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(calls);
        let _ = lake.run(&request).await;
        lake.world.faults.revive();
        let is_whole = u64::try_from(lake.world.faults.calls().len()).unwrap() <= calls;
        let was_deleted = !lake.keys().contains(&orphan);
        lake.world.clock.advance_ms(crate::sweep::items::LEASE_MS);
        // Another worker ends the run, or nobody does.
        if calls % 2 == 0 {
            lake.run(&request).await.unwrap();
            assert!(!lake.keys().contains(&orphan));
        }
        if !lake.keys().contains(&orphan) {
            let run = RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap();
            let ask = if calls % 3 == 0 { json!({ "key": orphan }) } else { json!({ "prefix": "wh/t/data/" }) };
            let told = run.state.is_final() && lake.outcomes(&run).await.iter().any(|(key, _)| *key == orphan);
            let restored = lake.restore(ask).await;
            assert_eq!(restored.state, RunState::Completed, "{:?}", restored.error);
            assert!(lake.keys().contains(&orphan), "after {calls} calls: {:?}", lake.outcomes(&restored).await);
            deleted += i32::from(was_deleted);
            unreported += i32::from(was_deleted && !told);
        }
        if is_whole {
            break;
        }
    }
    assert!(deleted >= 3 && unreported >= 1, "{deleted} {unreported}");
}

/// The marker of somebody else, made when no run was at work, stays.
#[tokio::test]
async fn markers_that_no_run_can_have_made_stay() {
    let lake = lake(Versioning::Enabled);
    let (table, orphan) = with_old_orphan(&lake).await;
    let other = table.data("deleted-by-hand.parquet").await;
    lake.world.objects.delete(&at(&other), None).await.unwrap();
    lake.days(1);
    let request = lake.start("t", Mode::Ordinary).await;
    lake.world.faults.forget_calls();
    lake.world.faults.crash_after(20);
    let _ = lake.run(&request).await;
    lake.world.faults.revive();
    lake.world.clock.advance_ms(crate::sweep::items::LEASE_MS);
    lake.run(&request).await.unwrap();
    let before = lake.world.objects.object_usage();
    let restored = lake.restore(json!({ "prefix": "wh/t/" })).await;
    let used = lake.world.objects.object_usage().since(&before);
    assert_eq!(lake.outcomes(&restored).await, [(orphan.clone(), "restored".into())]);
    assert!(!lake.keys().contains(&other) && lake.keys().contains(&orphan));
    // One for the file that the report names; one page, since a worker of the run had died.
    assert_eq!((used.version_lists, used.version_deletes), (2, 1));
}

#[tokio::test]
async fn files_come_back_without_an_optimizer() {
    for versioning in [Versioning::Off, Versioning::Enabled] {
        let mut lake = lake(versioning);
        let (_, orphan) = with_old_orphan(&lake).await;
        let run = lake.sweep("t", Mode::Ordinary).await;
        let input = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
            "Type": "orphan_file_deletion"});
        optimizer::delete(&lake.app, lake.directory.as_ref(), input).await.unwrap();
        let restored = lake.restore(json!({ "run": run.run_id })).await;
        assert_eq!((restored.state, lake.keys().contains(&orphan)), (RunState::Completed, true), "{versioning:?}");
        // Nobody can be told of a run that waits nowhere: it is not entered.
        lake.app.settings.sweep_dispatch = crate::ports::SweepDispatch::Inline;
        let ask = json!({ "key": orphan });
        let error = rest::restore_in(&lake.app, lake.directory.as_ref(), "db", "t", &ask).await.unwrap_err();
        assert!(error.message.contains("create one first"), "{error}");
        lake.app.settings.sweep_dispatch = crate::ports::SweepDispatch::Queue;
        lake.world.faults.inject("send", 0, Fault::Before(StoreErrorKind::Unavailable));
        let runs = RunRecord::load_all(lake.world.items.as_ref(), "id-t").await.unwrap().len();
        assert!(rest::restore_in(&lake.app, lake.directory.as_ref(), "db", "t", &ask).await.is_err());
        assert_eq!(RunRecord::load_all(lake.world.items.as_ref(), "id-t").await.unwrap().len(), runs);
    }
}

#[tokio::test]
async fn a_table_that_fills_its_bucket_is_told_what_to_do() {
    let lake = lake(Versioning::Off);
    lake.delta("t", "", &crate::delta::testkit::creation_of("root", &[], json!({}))).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    lake.put("orphan.parquet", "x").await;
    lake.days(9);
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(run.reason.as_deref(), Some("quarantine_overlap"), "{:?}", run.error);
    let error = run.error.unwrap();
    assert!(error.contains("no folder of the bucket is outside it") && error.contains("keep versions"), "{error}");
    assert!(!error.contains("QUARANTINE_FOLDER"), "{error}");
    // Both ways that it names are ways through.
    lake.world.objects.set_versioning(BUCKET, Versioning::Enabled);
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.totals.deleted.count, 1);
    lake.world.objects.set_versioning(BUCKET, Versioning::Suspended);
    lake.put("another.parquet", "x").await;
    lake.days(9);
    lake.configure(json!({"undoInHours": 0})).await.unwrap();
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((run.reason.as_deref(), run.totals.deleted.count), (None, 1), "{:?}", run.error);
}

/// By a run that finds it referenced, and by whoever asks for the files of a commit.
#[tokio::test]
async fn a_file_that_no_report_names_comes_back_by_itself() {
    let (mut by_run, mut by_commit) = (0, 0);
    for calls in 20.. {
        let lake = lake(Versioning::Enabled);
        let (mut table, orphan) = with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(calls);
        let _ = lake.run(&request).await;
        lake.world.faults.revive();
        let is_whole = u64::try_from(lake.world.faults.calls().len()).unwrap() <= calls;
        let was_deleted = !lake.keys().contains(&orphan);
        lake.world.clock.advance_ms(crate::sweep::items::LEASE_MS);
        if was_deleted && calls % 2 == 0 {
            let tables = ["id-t".to_owned()];
            let found = recover::recover(&lake.app, &tables, &[at(&orphan)], lake.deadline()).await.unwrap();
            assert_eq!((found.len(), &found[0].undone), (1, &undo::Undone::Restored), "after {calls} calls");
            by_commit += 1;
        } else if was_deleted {
            lake.run(&request).await.unwrap();
            table.commit(&[(1, 0, orphan.clone())]).await;
            lake.days(1);
            let run = lake.sweep("t", Mode::Ordinary).await;
            assert_eq!(run.state, RunState::Completed, "{:?}", run.error);
            assert!(lake.keys().contains(&orphan), "after {calls} calls: {:?}", run.facts.findings);
            by_run += 1;
        }
        if is_whole {
            break;
        }
    }
    assert!(by_run >= 1 && by_commit >= 1, "{by_run} {by_commit}");
}
