//! What a sweep took away is found, told and brought back, whoever else is at it and whatever answer was lost.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use super::undo::{lake, quarantined};
use crate::store::memory::Fault;
use crate::store::*;
use crate::sweep::items::{LEASE_MS, RunRecord, RunState};

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

/// Between the deletion of what is expired and the record that says so lie the end of the fence, the lines of the report and
/// nothing else.
#[tokio::test]
async fn a_worker_that_dies_later_in_the_run_does_not_forget_what_expired() {
    let begin = async || {
        let lake = lake(Versioning::Off);
        with_old_orphan(&lake).await;
        lake.sweep("t", Mode::Ordinary).await;
        lake.days(8);
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        (lake, request)
    };
    let (alone, request) = begin().await;
    let RunOutcome::Finished(record) = alone.run(&request).await.unwrap() else { panic!("not finished") };
    assert_eq!(record.facts.expired.map(|tally| tally.count), Some(1));
    let calls = alone.world.faults.calls();
    let deletion = calls.iter().position(|call| call.starts_with("delete_batch")).unwrap();
    let mut forgotten = Vec::new();
    for call in 0..calls.len() {
        let (lake, request) = begin().await;
        lake.world.faults.crash_after(call as u64);
        let mut outcome = lake.run(&request).await;
        if outcome.is_err() {
            lake.world.faults.revive();
            lake.world.clock.advance_ms(LEASE_MS);
            outcome = lake.run(&request).await;
        }
        let record = match outcome.unwrap() {
            RunOutcome::Finished(record) => *record,
            _ => RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap(),
        };
        assert_eq!((record.state, quarantined(&lake)), (RunState::Completed, Vec::new()), "call {call}");
        if record.facts.expired.map(|tally| tally.count) != Some(1) {
            forgotten.push(call);
        }
    }
    assert_eq!(forgotten, (deletion + 1..=deletion + 5).collect::<Vec<_>>(), "{calls:?}");
}
