//! Commits that name files which a sweep took away.

use serde_json::{Value, json};

use super::kit::{Kit, short};
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::proposals;
use crate::delta::Version;
use crate::delta::testkit::append_info;
use crate::store::ObjectKey;
use crate::store::memory::Fault;
use crate::store::{Deleted, Doomed, GetOptions, Objects, PutOptions, ReadObjects, StoreErrorKind, Versioning};
use crate::sweep::items::{RunRecord, RunState};
use crate::sweep::report::{Part, part_key};
use crate::sweep::undo::Quarantine;
use crate::sweep::{Mode, SweepRequest};

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
    let request = SweepRequest {
        run_id: "0000000000001-r".into(),
        table_id: Some(table_id.into()),
        database: "d".into(),
        table: "t".into(),
        mode: Mode::Scheduled,
    };
    let mut run = RunRecord::queued(&request, table_id, 1, "r".into());
    (run.state, run.report.outcomes) = (RunState::Completed, 1);
    assert!(run.create(&*kit.table.world.items).await.unwrap());
    let at = part_key(&kit.app.settings.reports, &run, Part::Outcomes { number: 0 });
    kit.table.world.objects.put(&at, format!("{line}\n").into(), &PutOptions::default()).await.unwrap();
}

#[tokio::test]
async fn only_what_a_run_deleted_comes_back_from_behind_its_marker() {
    let kit = Kit::unpartitioned(json!({})).await;
    let objects = &kit.table.world.objects;
    objects.set_versioning("lake", Versioning::Enabled);
    let members = |value: Value| value.as_object().cloned().unwrap();
    let ports = &kit.table.world.ports;
    crate::catalog::create_database(ports, members(json!({"Name": "d"}))).await.unwrap();
    let table = json!({"Name": "t", "StorageDescriptor": {"Location": kit.table.root.to_string()}});
    crate::catalog::tables::create_table(ports, "d", members(table)).await.unwrap();
    let tables = crate::catalog::locations::tables_at(&*ports.items, &*ports.clock, &kit.table.root).await.unwrap();
    let table_id = tables[0].table.table_id.to_string();
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
