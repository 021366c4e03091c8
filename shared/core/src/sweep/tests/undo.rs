//! What a run takes away comes back, and only that.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::memory::Fault;
use crate::store::*;
use crate::sweep::items::{LEASE_MS, RunRecord, RunState};

/// A lake whose deletes can be undone for a week.
fn lake(versioning: Versioning) -> Lake {
    let mut lake = Lake::new();
    lake.app.settings.undo.hours = 168;
    lake.world.objects.set_versioning(BUCKET, versioning);
    lake
}

impl Lake {
    async fn restore(&self, ask: serde_json::Value) -> RunRecord {
        rest::restore_in(&self.app, self.directory.as_ref(), "db", "t", &ask).await.unwrap();
        let request = SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        match sweep(&self.app, self.directory.as_ref(), &request, self.deadline()).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// What became of each key, by the outcome lines of a run.
    async fn outcomes(&self, run: &RunRecord) -> Vec<(String, String)> {
        let text = |line: &serde_json::Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
        let lines = self.report("t", &run.run_id).await;
        let told = lines.iter().filter(|line| line.get("outcome").is_some());
        told.map(|line| (text(line, "key"), text(line, "outcome"))).collect()
    }
}

fn quarantined(lake: &Lake) -> Vec<String> {
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
async fn a_late_commit_gets_its_metadata_back_and_all_that_only_that_names() {
    for versioning in [Versioning::Off, Versioning::Enabled, Versioning::Suspended] {
        let lake = lake(versioning);
        let (mut table, _) = with_orphan(&lake).await;
        let late = table.data("late.parquet").await;
        table.prepare(&[(1, 0, late.clone())]).await;
        let metadata = table.metadata_key();
        let bytes = lake.world.objects.get(&at(&metadata), &GetOptions::default()).await.unwrap().bytes;
        lake.world.objects.delete(&at(&metadata), None).await.unwrap();
        lake.days(4);
        let run = lake.sweep("t", Mode::Ordinary).await;
        let (list, manifest) = ("wh/t/metadata/snap-20.avro".to_owned(), "wh/t/metadata/c2-m0.avro".to_owned());
        for key in [&late, &list, &manifest] {
            assert!(!lake.keys().contains(key), "{key}: {:?}", run.totals);
        }
        // The writer wakes up, writes its metadata file and commits.
        lake.put(&metadata, bytes).await;
        table.point();
        let dry = lake.sweep("t", Mode::DryRun).await;
        assert_eq!((dry.state, dry.reason.as_deref()), (RunState::Failed, Some("metadata_incomplete")));
        assert!(!lake.keys().contains(&list), "a dry run changes nothing");
        let run = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!((run.state, run.error.clone()), (RunState::Completed, None), "{versioning:?}");
        assert_eq!(run.facts.restored.map(|tally| tally.count), Some(3), "{versioning:?}");
        for key in [&late, &list, &manifest] {
            assert!(lake.keys().contains(key), "{key} {versioning:?}");
            assert!(run.facts.findings.iter().any(|finding| finding.contains(key.as_str())), "{key}");
        }
    }
}

#[tokio::test]
async fn metadata_that_no_run_took_is_missing_as_before() {
    let lake = lake(Versioning::Off);
    let (_, _) = with_old_orphan(&lake).await;
    lake.world.objects.delete(&at("wh/t/metadata/snap-10.avro"), None).await.unwrap();
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((run.state, run.reason.as_deref()), (RunState::Failed, Some("metadata_incomplete")));
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_reported_with_where_its_files_are() {
    for versioning in [Versioning::Enabled, Versioning::Off, Versioning::Suspended] {
        let lake = lake(versioning);
        let (_, orphan) = with_old_orphan(&lake).await;
        lake.world.faults.inject("delete_batch", 0, Fault::After(StoreErrorKind::Unavailable));
        let run = lake.sweep("t", Mode::Ordinary).await;
        let said = if versioning == Versioning::Enabled { "deleted" } else { "quarantined" };
        assert_eq!(lake.outcomes(&run).await, [(orphan.clone(), said.into())], "{versioning:?}");
        assert_eq!((run.totals.deleted.count, run.totals.spared.len()), (1, 0), "{versioning:?}");
        assert!(!lake.keys().contains(&orphan));
        let back = lake.restore(json!({ "run": run.run_id })).await;
        assert_eq!(lake.outcomes(&back).await, [(orphan.clone(), "restored".into())], "{versioning:?}");
        assert!(lake.keys().contains(&orphan));
    }
}

#[tokio::test]
async fn somebody_elses_marker_is_not_taken_for_the_runs() {
    let lake = lake(Versioning::Enabled);
    let (_, orphan) = with_old_orphan(&lake).await;
    lake.world.faults.inject("delete_batch", 0, Fault::Before(StoreErrorKind::Unavailable));
    let request = lake.start("t", Mode::Ordinary).await;
    // Written and deleted by others between the two tries: another version is what the marker hides.
    struct Meddler(std::sync::Arc<memory::MemoryObjects>, String, std::sync::atomic::AtomicBool);
    #[async_trait::async_trait]
    impl Watch for Meddler {
        fn objects(&self) -> &memory::MemoryObjects {
            &self.0
        }

        async fn batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
            let result = self.0.delete_batch(bucket, doomed).await;
            if !self.2.swap(true, std::sync::atomic::Ordering::SeqCst) {
                self.0.put(&at(&self.1), "other".into(), &PutOptions::default()).await?;
                self.0.delete(&at(&self.1), None).await?;
            }
            result
        }
    }
    let mut app = lake.app.clone();
    let objects = lake.world.objects.clone();
    app.ports.objects = std::sync::Arc::new(Meddler(objects, orphan.clone(), false.into()));
    let RunOutcome::Finished(run) = sweep(&app, lake.directory.as_ref(), &request, lake.deadline()).await.unwrap()
    else {
        panic!("not finished")
    };
    assert_eq!(lake.outcomes(&run).await, [(orphan, "already_gone".into())]);
}

#[tokio::test]
async fn a_copy_made_before_is_used_by_the_next_try() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    // Its copy has another tag.
    let etag = lake.world.objects.mark_as_parts(&at(&orphan)).unwrap();
    assert!(etag.0.ends_with("-2"));
    // Its date says when its upload began: it is old when it was seen first long ago.
    lake.sweep("t", Mode::Ordinary).await;
    lake.days(4);
    for fault in ["create_copy", "delete_batch"] {
        let kind = StoreErrorKind::Unavailable;
        let fault_is = if fault == "create_copy" { Fault::After(kind) } else { Fault::Before(kind) };
        lake.world.faults.inject(fault, 0, fault_is);
    }
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(lake.outcomes(&run).await, [(orphan.clone(), "quarantined".into())], "{:?}", run.totals);
    let back = lake.restore(json!({ "key": orphan })).await;
    assert_eq!(lake.outcomes(&back).await, [(orphan, "restored".into())]);
}

#[tokio::test]
async fn a_run_that_starts_over_still_says_what_it_did() {
    let lake = lake(Versioning::Enabled);
    let (mut table, orphan) = with_old_orphan(&lake).await;
    let request = lake.start("t", Mode::Ordinary).await;
    // Everything is done but the page when the worker dies.
    struct Dies(std::sync::Arc<memory::MemoryObjects>, std::sync::Arc<memory::Faults>);
    #[async_trait::async_trait]
    impl Watch for Dies {
        fn objects(&self) -> &memory::MemoryObjects {
            &self.0
        }

        async fn batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
            let result = self.0.delete_batch(bucket, doomed).await;
            self.1.fail_all("list", StoreErrorKind::Unavailable);
            result
        }
    }
    let mut app = lake.app.clone();
    app.ports.objects = std::sync::Arc::new(Dies(lake.world.objects.clone(), lake.world.faults.clone()));
    assert!(sweep(&app, lake.directory.as_ref(), &request, lake.deadline()).await.is_err());
    lake.world.faults.mend();
    lake.world.clock.advance_ms(LEASE_MS);
    let RunOutcome::Finished(run) = lake.run(&request).await.unwrap() else { panic!("not finished") };
    assert_eq!((run.totals.deleted.count, run.facts.undo.as_deref()), (1, Some("delete_markers")));
    table.commit(&[(1, 0, orphan.clone())]).await;
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.facts.restored.unwrap().count, 1);
    assert!(lake.keys().contains(&orphan));
}

#[tokio::test]
async fn a_copy_of_a_file_that_is_there_expires_as_well() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    let live = "wh/t/data/live.parquet";
    let etag = lake.world.objects.head(&at(live)).await.unwrap().etag;
    let place = at(&format!("lakewarden-quarantine/{live}/id-t/{}", run.run_id));
    lake.world.objects.create_copy(&at(live), &etag, &place).await.unwrap();
    let waits = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(waits.totals.by_reason["quarantined_and_needed"].count, 1);
    assert_eq!(quarantined(&lake).len(), 2);
    lake.days(8);
    let over = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(over.facts.expired.map(|tally| tally.count), Some(2), "{:?}", over.totals);
    assert!(over.facts.restored.is_none() && lake.keys().contains(live) && !lake.keys().contains(&orphan));
    assert_eq!(quarantined(&lake), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_is_counted_once() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(run.totals.by_reason["orphan"].count, 1);
    assert!(!run.totals.by_reason.contains_key("quarantined"), "{:?}", run.totals);
    // Put back by hand, and taken again: two copies and two reports.
    lake.put(&orphan, "again").await;
    lake.days(4);
    let second = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((second.totals.deleted.count, quarantined(&lake).len()), (1, 2));
    let back = lake.restore(json!({ "prefix": "wh/t/" })).await;
    assert_eq!(lake.outcomes(&back).await, [(orphan.clone(), "restored".into())]);
    assert_eq!((back.facts.restored.unwrap().count, back.totals.spared.len()), (1, 0));
    let body = lake.world.objects.get(&at(&orphan), &GetOptions::default()).await.unwrap().bytes;
    assert_eq!(body, "again", "the newest");
}

#[tokio::test]
async fn a_key_that_no_run_took_is_not_found() {
    for versioning in [Versioning::Off, Versioning::Enabled] {
        let lake = lake(versioning);
        with_old_orphan(&lake).await;
        lake.sweep("t", Mode::Ordinary).await;
        for (key, expected) in [("wh/t/data/never.parquet", "not_found"), ("wh/t/data/live.parquet", "exists")] {
            let run = lake.restore(json!({ "key": key })).await;
            assert_eq!(lake.outcomes(&run).await, [(key.to_owned(), expected.to_owned())]);
            assert_eq!(run.totals.spared[expected].count, 1);
        }
    }
}

#[tokio::test]
async fn a_staged_commit_stays_where_it_was_put() {
    let lake = lake(Versioning::Off);
    let (_, orphan) = with_old_orphan(&lake).await;
    let run = lake.sweep("t", Mode::Ordinary).await;
    let staged = "wh/t/_delta_log/_staged_commits/00000000000000000001.x.json";
    lake.put(staged, "{}").await;
    let etag = lake.world.objects.head(&at(staged)).await.unwrap().etag;
    let place = format!("lakewarden-quarantine/{staged}/id-t/{}", run.run_id);
    lake.world.objects.create_copy(&at(staged), &etag, &at(&place)).await.unwrap();
    lake.world.objects.delete(&at(staged), None).await.unwrap();
    for ask in [json!({ "key": staged }), json!({ "prefix": "wh/t/_delta_log/" }), json!({ "run": run.run_id })] {
        let back = lake.restore(ask).await;
        let told = lake.outcomes(&back).await;
        assert!(told.contains(&(staged.to_owned(), "staged_commit_not_restored".to_owned())), "{told:?}");
        let lines = lake.report("t", &back.run_id).await;
        assert!(lines.iter().any(|line| line["quarantine"] == place.as_str()), "{lines:?}");
        assert!(!lake.keys().contains(staged) && lake.keys().contains(&place));
    }
    assert!(lake.keys().contains(&orphan), "the others of the run are back");
}

#[tokio::test]
async fn a_file_that_was_taken_away_is_explained() {
    for versioning in [Versioning::Off, Versioning::Enabled] {
        let lake = lake(versioning);
        let (_, orphan) = with_old_orphan(&lake).await;
        let run = lake.sweep("t", Mode::Ordinary).await;
        let explain = async |key: &str| {
            let entry = lake.directory.table("db", "t").await.unwrap().unwrap();
            let options = items::RunOptions::default();
            run::explain_key(&lake.app, lake.directory.as_ref(), entry, key, &options, lake.deadline()).await.unwrap()
        };
        let told = explain(&orphan).await;
        assert_eq!((&told["exists"], &told["kept"]["run_id"]), (&json!(false), &json!(run.run_id)), "{told}");
        let kept = if versioning == Versioning::Off { "quarantine" } else { "delete_marker" };
        assert_eq!(told["kept"]["in"], kept);
        assert_eq!(explain("wh/t/data/never.parquet").await["kept"], json!(null));
    }
}

#[tokio::test]
async fn what_the_store_never_does_slows_nothing_down() {
    let lake = lake(Versioning::Off);
    let (table, _) = with_orphan(&lake).await;
    for number in 0..20 {
        table.data(&format!("o-{number:02}.parquet")).await;
    }
    lake.days(4);
    lake.world.faults.fail_all("create_copy", StoreErrorKind::Invalid);
    let before_ms = lake.world.clock.now_ms();
    let run = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((run.totals.spared["failed"].count, run.totals.deleted.count), (21, 0));
    assert_eq!(lake.world.clock.now_ms(), before_ms, "no wait");
}
