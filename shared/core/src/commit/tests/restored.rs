//! Commits that name files which a sweep took away.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::kit::{Kit, short};
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::proposals;
use crate::delta::Version;
use crate::delta::testkit::append_info;
use crate::store::ObjectKey;
use crate::store::memory::{Fault, MemoryObjects};
use crate::store::{
    Deleted, Doomed, GetOptions, Objects, PutOptions, ReadObjects, StoreErrorKind, VersionRequest, Versioning,
};
use crate::sweep::items::{RunRecord, RunState};
use crate::sweep::recover::recover;
use crate::sweep::report::{Part, part_key};
use crate::sweep::testkit::{Hook, Watch};
use crate::sweep::undo::{self, Quarantine, Undone};
use crate::sweep::{Interruption, Mode, SweepError, SweepRequest};

const KEY: &str = "wh/t/late.parquet";

fn late() -> ObjectKey {
    ObjectKey::new("lake", KEY)
}

/// Moves the file as a run does.
async fn quarantine(kit: &Kit) -> ObjectKey {
    let objects = &kit.table.world.objects;
    let place = Quarantine::of(&kit.app.settings, "lake").place(KEY, "table", "run");
    let etag = objects.head(&late()).await.unwrap().etag;
    objects.create_copy(&late(), &etag, &place).await.unwrap();
    objects.delete(&late(), Some(&etag)).await.unwrap();
    place
}

async fn is_there(kit: &Kit, at: &ObjectKey) -> bool {
    kit.table.world.objects.head(at).await.is_ok()
}

#[tokio::test]
async fn a_staged_commit_brings_its_file_back_before_it_is_published() {
    let kit = Kit::unpartitioned(json!({})).await;
    let add = kit.file("late.parquet").await;
    let place = quarantine(&kit).await;
    let before = kit.table.world.objects.object_usage();
    let verdict = kit.propose(1, 1, &[add, append_info()]).await;
    let used = kit.table.world.objects.object_usage().since(&before);
    assert_eq!(short(&verdict), "committed 1");
    let said = verdict.to_json()["warnings"].to_string();
    assert!(said.contains("was restored"), "{said}");
    assert_eq!((used.copies, used.deletes), (1, 1), "one COPY and one DELETE for the file");
    assert!(is_there(&kit, &late()).await && !is_there(&kit, &place).await);
    let calls = kit.table.world.faults.calls();
    let at = |what: &str| calls.iter().position(|call| call.starts_with(what)).unwrap();
    assert!(at("create_copy s3://lake/wh/t/late") < at("put s3://lake/wh/t/_delta_log/00000000000000000001.json"));
}

#[tokio::test]
async fn what_is_in_no_quarantine_is_missing_as_before() {
    let kit = Kit::unpartitioned(json!({})).await;
    let add = kit.file("late.parquet").await;
    kit.table.world.objects.delete(&late(), None).await.unwrap();
    let verdict = kit.propose(1, 1, &[add.clone(), append_info()]).await;
    assert_eq!(short(&verdict), "rejected InvalidCommitException FILE_MISSING");
    // The store does not do it: the refusal says why.
    let add = kit.file("late.parquet").await;
    quarantine(&kit).await;
    kit.table.world.faults.inject("create_copy", 0, Fault::Before(StoreErrorKind::Invalid));
    let verdict = kit.propose(1, 2, &[add, append_info()]).await;
    assert_eq!(short(&verdict), "rejected InvalidCommitException FILE_MISSING");
    assert!(verdict.refusal().unwrap().message.contains("cannot be restored"), "{verdict:?}");
}

#[tokio::test]
async fn a_commit_that_is_visible_gets_its_file_back_whatever_is_wrong_with_it() {
    for broken in [false, true] {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let mut add = kit.file("late.parquet").await;
        if broken {
            add["add"]["size"] = json!(1);
        }
        kit.table.log(2, &[add, append_info()]).await;
        quarantine(&kit).await;
        let mut logged =
            Logged { root: kit.table.root.clone(), version: Version(2), file: LogFile::Commit, etag: None };
        logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
        let Audited::Judged(id) = audit(kit.ctx(), &[logged]).await.remove(0).unwrap() else { panic!("not judged") };
        assert!(is_there(&kit, &late()).await);
        let found = proposals::by_id(&*kit.table.world.items, id).await.unwrap().remove(0);
        assert_eq!(found.refusal.as_ref().map(|refusal| refusal.reason.as_str()), broken.then_some("FILE_SIZE"));
        if !broken {
            assert!(found.warnings.iter().any(|warning| warning.contains("was restored")), "{:?}", found.warnings);
        }
    }
}

/// The report of a run that deleted the file behind this marker.
async fn report(kit: &Kit, table_id: &str, line: &Value) {
    report_of(kit, table_id, "0000000000001-r", line).await;
}

async fn report_of(kit: &Kit, table_id: &str, run_id: &str, line: &Value) {
    let request = SweepRequest {
        run_id: run_id.into(),
        table_id: Some(table_id.into()),
        database: "d".into(),
        table: "t".into(),
        mode: Mode::Scheduled,
    };
    let now_ms = kit.table.world.ports.clock.now_ms();
    let mut run = RunRecord::queued(&request, table_id, now_ms, "r".into());
    (run.state, run.report.outcomes, run.ended_ms) = (RunState::Completed, 1, Some(now_ms));
    assert!(run.create(&*kit.table.world.items).await.unwrap());
    let at = part_key(&kit.app.settings.reports, &run, Part::Outcomes { number: 0 });
    kit.table.world.objects.put(&at, format!("{line}\n").into(), &PutOptions::default()).await.unwrap();
}

/// Puts the table into the catalog, and answers its id.
async fn in_catalog(kit: &Kit) -> String {
    let members = |value: Value| value.as_object().cloned().unwrap();
    let ports = &kit.table.world.ports;
    crate::catalog::create_database(ports, members(json!({"Name": "d"}))).await.unwrap();
    let table = json!({"Name": "t", "StorageDescriptor": {"Location": kit.table.root.to_string()}});
    crate::catalog::tables::create_table(ports, "d", members(table)).await.unwrap();
    let tables = crate::catalog::locations::tables_at(&*ports.items, &*ports.clock, &kit.table.root).await.unwrap();
    tables[0].table.table_id.to_string()
}

#[tokio::test]
async fn only_what_a_run_deleted_comes_back_from_behind_its_marker() {
    let kit = Kit::unpartitioned(json!({})).await;
    let objects = &kit.table.world.objects;
    objects.set_versioning("lake", Versioning::Enabled);
    let table_id = in_catalog(&kit).await;
    let add = kit.file("late.parquet").await;
    let etag = objects.head(&late()).await.unwrap().etag;
    let doomed = [Doomed { key: KEY.into(), if_match: Some(etag.clone()) }];
    let Deleted::Marked(marker) = objects.delete_batch("lake", &doomed).await.unwrap().remove(0) else { panic!() };
    let verdict = kit.propose(1, 1, &[add.clone(), append_info()]).await;
    assert_eq!(short(&verdict), "rejected InvalidCommitException FILE_MISSING", "somebody else's marker stays");
    report(&kit, &table_id, &json!({"key": KEY, "outcome": "deleted", "etag": etag.0, "marker": marker.0})).await;
    let verdict = kit.propose(1, 2, &[add, append_info()]).await;
    assert_eq!(short(&verdict), "committed 1");
    assert!(objects.get(&late(), &GetOptions::default()).await.is_ok());
}

/// Objects with something before each read.
struct Racing {
    objects: Arc<MemoryObjects>,
    hook: Arc<Hook>,
}

#[async_trait::async_trait]
impl Watch for Racing {
    fn objects(&self) -> &MemoryObjects {
        &self.objects
    }

    async fn before(&self, request: &'static str) {
        if matches!(request, "get" | "head" | "list" | "create_copy") {
            self.hook.tick(request).await;
        }
    }
}

#[tokio::test]
async fn whoever_brings_a_file_back_the_commit_is_not_refused_for_it() {
    let mut fired = 0;
    for calls in 0.. {
        let kit = Kit::unpartitioned(json!({})).await;
        let staged = kit.stage(1, 1, &[kit.file("late.parquet").await, append_info()]).await;
        let place = quarantine(&kit).await;
        // Another judge of the same commit, or a run that restores, is at the file at the same time.
        let (objects, from) = (kit.table.world.objects.clone(), place.clone());
        let faster = move || -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move {
                if let Ok(meta) = objects.head(&from).await {
                    undo::restore_copy(objects.as_ref(), &from, &meta.etag, &late()).await.unwrap();
                }
            })
        };
        let hook = Hook::new(calls, Box::new(faster));
        let mut racing = kit.cold();
        racing.app.ports.objects = Arc::new(Racing { objects: kit.table.world.objects.clone(), hook: hook.clone() });
        let verdict = racing.judge(&staged).await;
        assert_eq!(short(&verdict), "committed 1", "after {calls} calls");
        assert!(is_there(&kit, &late()).await);
        if !hook.has_fired() {
            break;
        }
        fired += 1;
    }
    assert!(fired > 5, "{fired}");
}

#[tokio::test]
async fn a_file_that_is_back_by_another_is_worth_a_warning() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("late.parquet").await, append_info()]).await;
    let place = quarantine(&kit).await;
    let etag = kit.table.world.objects.head(&place).await.unwrap().etag;
    // The other has copied it, and has not removed the copy yet.
    let objects = kit.table.world.objects.clone();
    let faster = move || -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move {
            objects.create_copy(&place, &etag, &late()).await.unwrap();
        })
    };
    let listings =
        Arc::new(OnCopy { objects: kit.table.world.objects.clone(), action: Mutex::new(Some(Box::new(faster))) });
    let mut racing = kit.cold();
    racing.app.ports.objects = listings;
    let verdict = racing.judge(&staged).await;
    assert_eq!(short(&verdict), "committed 1");
    let said = verdict.to_json()["warnings"].to_string();
    assert!(said.contains("is there again"), "{said}");
}

type Action = Box<dyn FnOnce() -> futures::future::BoxFuture<'static, ()> + Send>;

/// Carries out an action right before a file is copied.
struct OnCopy {
    objects: Arc<MemoryObjects>,
    action: Mutex<Option<Action>>,
}

#[async_trait::async_trait]
impl Watch for OnCopy {
    fn objects(&self) -> &MemoryObjects {
        &self.objects
    }

    async fn before(&self, request: &'static str) {
        if request == "create_copy" {
            let action = self.action.lock().unwrap().take();
            if let Some(action) = action {
                action().await;
            }
        }
    }
}

#[tokio::test]
async fn a_missing_file_costs_no_search_unless_it_hides_behind_a_marker() {
    let kit = Kit::unpartitioned(json!({})).await;
    let objects = &kit.table.world.objects;
    let table_id = in_catalog(&kit).await;
    objects.set_versioning("lake", Versioning::Enabled);
    kit.file("late.parquet").await;
    let missing = [late(), ObjectKey::new("lake", "wh/t/never.parquet")];
    let search = async || {
        let before = objects.object_usage();
        let deadline = crate::ports::Deadline::in_ms(&*kit.table.world.clock, 60_000);
        let found = recover(&kit.app, std::slice::from_ref(&table_id), &missing, deadline).await;
        (found, objects.object_usage().since(&before))
    };
    // Reports of many runs, none of which made a marker.
    for number in 0..50 {
        let line = json!({"key": format!("wh/t/o-{number}"), "outcome": "deleted", "etag": "e", "marker": "m"});
        report_of(&kit, &table_id, &format!("{number:013}-r"), &line).await;
        kit.table.world.clock.advance_ms(86_400_000);
    }
    let all = objects.list_versions(&versions_of(&late())).await.unwrap().versions;
    objects.delete_version(&late(), &all[0].id).await.unwrap();
    let (found, used) = search().await;
    assert_eq!(found.unwrap(), Vec::new());
    assert_eq!((used.version_lists, used.lists, used.gets, used.heads), (2, 2, 0, 2), "per missing file");
    // One of them hid it.
    kit.file("late.parquet").await;
    let etag = objects.head(&late()).await.unwrap().etag;
    let doomed = [Doomed { key: KEY.into(), if_match: Some(etag.clone()) }];
    let Deleted::Marked(marker) = objects.delete_batch("lake", &doomed).await.unwrap().remove(0) else { panic!() };
    let line = json!({"key": KEY, "outcome": "deleted", "etag": etag.0, "marker": marker.0});
    report_of(&kit, &table_id, "0000000000099-r", &line).await;
    // Suspended since: the markers are there still.
    objects.set_versioning("lake", Versioning::Suspended);
    let (found, used) = search().await;
    let found = found.unwrap();
    assert_eq!(
        (found.len(), &found[0].undone, found[0].run_id.as_deref()),
        (1, &Undone::Restored, Some("0000000000099-r"))
    );
    assert_eq!((used.version_lists, used.version_deletes, used.lists, used.gets), (3, 1, 3, 1));
    assert!(is_there(&kit, &late()).await);
    // Too little time is no answer.
    let late_by = crate::ports::Deadline::in_ms(&*kit.table.world.clock, 1_000);
    let error = recover(&kit.app, &[], &missing, late_by).await.unwrap_err();
    assert_eq!(error, SweepError::Interrupted(Interruption::TimeLimit));
}

fn versions_of(at: &ObjectKey) -> VersionRequest {
    VersionRequest { bucket: at.bucket.clone(), prefix: at.key.clone(), after: None, max_keys: 10 }
}

#[tokio::test]
async fn a_search_that_would_be_too_long_is_said_to_be() {
    let kit = Kit::unpartitioned(json!({})).await;
    let objects = &kit.table.world.objects;
    let table_id = in_catalog(&kit).await;
    objects.set_versioning("lake", Versioning::Enabled);
    let add = kit.file("late.parquet").await;
    report_of(&kit, &table_id, "0000000000001-r", &json!({"key": "wh/t/o-0", "outcome": "deleted"})).await;
    let run = RunRecord::load(&*kit.table.world.items, &table_id, "0000000000001-r").await.unwrap().unwrap();
    for number in 1..100 {
        let at = part_key(&kit.app.settings.reports, &run, Part::Outcomes { number });
        objects.put(&at, "{}\n".into(), &PutOptions::default()).await.unwrap();
    }
    // Somebody's, and it takes all parts to say so.
    objects.delete(&late(), None).await.unwrap();
    let before = objects.object_usage();
    let verdict = kit.propose(1, 1, &[add, append_info()]).await;
    let used = objects.object_usage().since(&before);
    assert_eq!(short(&verdict), "rejected InvalidCommitException FILE_MISSING");
    assert!(verdict.refusal().unwrap().message.contains("restore --key"), "{verdict:?}");
    assert!(used.gets < 80, "{}", used.gets);
}
