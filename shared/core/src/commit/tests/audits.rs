//! What others do to a log after the fact, and what comes late.

use serde_json::json;
use uuid::Uuid;

use super::kit::{Kit, short};
use crate::commit::alarm::{self, AlarmKind};
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::door::judge_one;
use crate::commit::head;
use crate::commit::keys::ProposalId;
use crate::commit::proposals;
use crate::commit::run::{Outcome, Staged};
use crate::delta::Version;
use crate::delta::log::commit_key;
use crate::delta::testkit::{append_info, creation_of, text};
use crate::store::memory::Fault;
use crate::store::{Objects, PutCondition, PutOptions, ReadItems, ReadObjects, StoreErrorKind};

async fn see(kit: &Kit, version: i64, file: LogFile) -> Audited {
    let mut logged = Logged { root: kit.table.root.clone(), version: Version(version), file, etag: None };
    logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
    audit(kit.ctx(), &[logged]).await.remove(0).unwrap()
}

async fn seen(kit: &Kit) -> Vec<(AlarmKind, i64, i64)> {
    let page = alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    page.alarms.into_iter().map(|alarm| (alarm.kind, alarm.version.0, alarm.seen)).collect()
}

#[tokio::test]
async fn a_version_that_changes_is_alarmed_and_counted() {
    let kit = Kit::unpartitioned(json!({})).await;
    assert_eq!(see(&kit, 0, LogFile::Commit).await, Audited::Unknown, "nobody proposed anything yet");
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.log(2, &[kit.file("foreign.parquet").await, append_info()]).await;
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::AsRecorded);
    assert!(matches!(see(&kit, 2, LogFile::Commit).await, Audited::Judged(_)));
    assert_eq!(see(&kit, 2, LogFile::Commit).await, Audited::AsRecorded);
    kit.propose(3, 2, &[kit.file("b.parquet").await, append_info()]).await;
    // Somebody overwrites ours, and another writer's.
    for version in [1, 2] {
        kit.table.log(version, &[kit.file("late.parquet").await, append_info()]).await;
        for _ in 0..2 {
            assert_eq!(see(&kit, version, LogFile::Commit).await, Audited::Alarmed(AlarmKind::VersionRewritten));
        }
    }
    assert_eq!(seen(&kit).await, [(AlarmKind::VersionRewritten, 2, 2), (AlarmKind::VersionRewritten, 1, 2)]);
    // An event that comes late, for what stood there before, is none.
    let stale = Logged {
        root: kit.table.root.clone(),
        version: Version(3),
        file: LogFile::Commit,
        etag: Some(crate::store::ETag("older".into())),
    };
    assert_eq!(audit(kit.ctx(), &[stale]).await.remove(0).unwrap(), Audited::AsRecorded);
}

#[tokio::test]
async fn what_others_put_into_the_log_is_judged_after_the_fact_and_the_head_follows() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let mut broken = kit.file("broken.parquet").await;
    broken["add"]["size"] = json!(1);
    kit.table.log(2, &[kit.file("good.parquet").await, append_info()]).await;
    kit.table.log(3, &[broken, append_info()]).await;
    // The events come in any order, and more than once.
    for version in [3, 2] {
        assert!(matches!(see(&kit, version, LogFile::Commit).await, Audited::Judged(_)));
        assert_eq!(see(&kit, version, LogFile::Commit).await, Audited::AsRecorded);
    }
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!((head.version, head.state.is_some()), (Version(3), true));
    let page = proposals::of_table(&*kit.table.world.items, &*kit.table.world.clock, &kit.table.root, 10, None);
    let mut found: Vec<_> =
        page.await.unwrap().proposals.into_iter().filter(|one| one.status.name() == "already_visible").collect();
    found.sort_by_key(|one| one.status.version());
    let told: Vec<_> = found
        .iter()
        .map(|one| (one.status.version(), one.refusal.as_ref().map(|refusal| refusal.reason.as_str())))
        .collect();
    assert_eq!(told, [(Some(Version(2)), None), (Some(Version(3)), Some("FILE_SIZE"))]);
    assert!(found.iter().all(|one| one.warnings[0].contains("visible before it was judged")));
    assert_eq!(proposals::by_id(&*kit.table.world.items, found[0].id).await.unwrap(), [found[0].clone()]);
    assert_eq!(seen(&kit).await, [(AlarmKind::VisibleViolation, 3, 1)]);
    // The next commit stands upon them.
    assert_eq!(short(&kit.propose(4, 4, &[kit.file("b.parquet").await, append_info()]).await), "committed 4");
    // One whose event comes after a commit of ours is judged as it stood then.
    kit.table.log(5, &[kit.file("late.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.propose(6, 6, &[kit.file("c.parquet").await, append_info()]).await), "committed 6");
    let Audited::Judged(id) = see(&kit, 5, LogFile::Commit).await else { panic!("not judged") };
    let late = proposals::by_id(&*kit.table.world.items, id).await.unwrap();
    assert_eq!((late[0].status.version(), &late[0].refusal), (Some(Version(5)), &None));
}

#[tokio::test]
async fn a_table_of_the_catalog_is_watched_though_nobody_proposed_to_it() {
    let kit = Kit::unpartitioned(json!({})).await;
    assert_eq!(see(&kit, 0, LogFile::Commit).await, Audited::Unknown);
    let ports = &kit.table.world.ports;
    let members = |value: serde_json::Value| value.as_object().cloned().unwrap();
    crate::catalog::create_database(ports, members(json!({"Name": "d"}))).await.unwrap();
    let table = json!({"Name": "t", "StorageDescriptor": {"Location": kit.table.root.to_string()}});
    crate::catalog::tables::create_table(ports, "d", members(table)).await.unwrap();
    kit.table.log(1, &[kit.file("a.parquet").await, append_info()]).await;
    for version in [1, 0] {
        assert!(matches!(see(&kit, version, LogFile::Commit).await, Audited::Judged(_)), "{version}");
    }
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!(head.version, Version(1));
    assert_eq!(seen(&kit).await, []);
    assert_eq!(short(&kit.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await), "committed 2");
}

#[tokio::test]
async fn an_audit_that_dies_is_made_again() {
    for at in 0..12u64 {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        kit.table.log(2, &[kit.file("b.parquet").await, append_info()]).await;
        let mut logged =
            Logged { root: kit.table.root.clone(), version: Version(2), file: LogFile::Commit, etag: None };
        logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
        kit.table.world.faults.inject("", at, Fault::After(StoreErrorKind::AccessDenied));
        let _ = audit(kit.ctx(), std::slice::from_ref(&logged)).await;
        let again = audit(kit.cold().ctx(), &[logged]).await.remove(0).unwrap();
        assert!(matches!(again, Audited::Judged(_) | Audited::AsRecorded), "{at}: {again:?}");
        assert_eq!(
            short(&kit.cold().propose(3, 3, &[kit.file("c.parquet").await, append_info()]).await),
            "committed 3"
        );
        let page = proposals::of_table(&*kit.table.world.items, &*kit.table.world.clock, &kit.table.root, 10, None);
        assert_eq!(page.await.unwrap().proposals.len(), 3, "{at}");
    }
}

#[tokio::test]
async fn a_put_that_wakes_up_after_the_log_was_cleaned_is_alarmed() {
    let kit = Kit::unpartitioned(json!({})).await;
    for id in 1..=3 {
        kit.propose(id, id as u128, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await;
    }
    kit.table.delete_log(1).await;
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::AsRecorded);
    let late = text(&[kit.file("late.parquet").await, append_info()]);
    let options = PutOptions { condition: PutCondition::Absent, ..PutOptions::default() };
    let at = commit_key(&kit.table.root, Version(1));
    kit.table.world.objects.put(&at, late.into(), &options).await.unwrap();
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::Alarmed(AlarmKind::VersionRewritten));
}

/// Claims, and dies before it publishes.
async fn claim_and_die(kit: &Kit, staged: &Staged) {
    kit.table.world.faults.inject("put s3://lake/wh/t/_delta_log/0", 0, Fault::Before(StoreErrorKind::AccessDenied));
    assert!(judge_one(kit.ctx(), staged).await.is_err());
}

#[tokio::test]
async fn a_lost_claim_whose_put_went_through_late_ends_committed() {
    for staged_gone in [false, true] {
        // In-commit timestamps change the bytes, so that only what was recorded recognises them.
        let kit = Kit::empty().await;
        let mut creation = creation_of("m", &[], json!({"delta.enableInCommitTimestamps": "true"}));
        creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}});
        creation[2]["commitInfo"]["inCommitTimestamp"] = json!(5);
        kit.table.log(0, &[creation[2].clone(), creation[0].clone(), creation[1].clone()]).await;
        let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        claim_and_die(&kit, &staged).await;
        let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
        let copy = crate::store::ObjectKey::new("lake", head.claim.unwrap().bytes_key);
        let bytes = kit.table.get(&copy).await.unwrap();
        // Its bytes are lost, the next proposal has the version; but the dead run's put arrives first.
        kit.table.world.objects.delete(&copy, None).await.unwrap();
        let other = kit.stage(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
        claim_and_die(&kit, &other).await;
        let late = commit_key(&kit.table.root, Version(1));
        kit.table.world.objects.put(&late, bytes, &PutOptions::default()).await.unwrap();
        assert_eq!(short(&kit.judge(&other).await), "committed 2");
        if staged_gone {
            kit.table.world.objects.delete(&staged.key.key(), None).await.unwrap();
        }
        assert_eq!(short(&kit.judge(&staged).await), "committed 1", "{staged_gone}");
        assert_eq!(kit.versions(), [0, 1, 2]);
    }
}

#[tokio::test]
async fn a_proposal_whose_object_was_deleted_before_its_verdict_is_refused() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    claim_and_die(&kit, &staged).await;
    kit.table.world.objects.delete(&staged.key.key(), None).await.unwrap();
    assert_eq!(short(&kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await), "committed 1");
    assert_eq!(short(&kit.judge(&staged).await), "rejected InvalidCommitException STAGED_OBJECT_GONE");
    let unknown = kit.stage(2, 9, &[append_info()]).await;
    kit.table.world.objects.delete(&unknown.key.key(), None).await.unwrap();
    assert!(matches!(judge_one(kit.ctx(), &unknown).await.unwrap(), Outcome::NotJudged { .. }));
}

#[tokio::test]
async fn the_publication_of_a_ratified_commit_is_recognised() {
    let kit = Kit::empty().await;
    let mut creation = creation_of("m", &[], json!({}));
    creation[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}});
    kit.table.log(0, &creation).await;
    let lines = [kit.file("a.parquet").await, append_info()];
    let ratified = kit.stage(1, 1, &lines).await;
    assert_eq!(short(&kit.judge(&ratified).await), "received");
    let beaten = kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&beaten), "received");
    kit.table.log(1, &lines).await;
    let id = ProposalId(Uuid::from_u128(1));
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::Published(id));
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::AsRecorded);
    let stored = proposals::by_id(&*kit.table.world.items, id).await.unwrap();
    assert_eq!(stored[0].status.name(), "committed");
    assert_eq!(short(&kit.judge(&ratified).await), "committed 1");
    kit.table.log(1, &[append_info()]).await;
    assert_eq!(see(&kit, 1, LogFile::Commit).await, Audited::Alarmed(AlarmKind::VersionRewritten));
    let kept = kit.table.world.items.item_usage().puts;
    assert_eq!(see(&kit, 0, LogFile::Commit).await, Audited::Unknown);
    assert_eq!(kit.table.world.items.item_usage().puts, kept);
}

#[tokio::test]
async fn a_checksum_of_a_commit_that_moved_is_deleted() {
    let kit = Kit::unpartitioned(json!({})).await;
    let crc = async |version: i64, text: &str| {
        kit.table.put(&format!("_delta_log/{version:020}.crc"), text.as_bytes()).await;
        see(&kit, version, LogFile::Checksum).await
    };
    kit.table.log(1, &[kit.file("foreign.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await), "committed 2");
    // Its writer takes version 1 for its own.
    assert_eq!(crc(1, "{\"numFiles\":1}").await, Audited::ChecksumDeleted);
    assert_eq!(short(&kit.propose(3, 2, &[kit.file("b.parquet").await, append_info()]).await), "committed 3");
    assert_eq!(crc(3, "{\"numFiles\":3}").await, Audited::AsRecorded, "published as it was staged");
    assert_eq!(crc(3, "{\"txnId\":\"x\"}").await, Audited::ChecksumDeleted);
    assert_eq!(crc(9, "{}").await, Audited::ChecksumDeleted, "of no version at all");
    kit.table.log(4, &[append_info()]).await;
    assert_eq!(crc(4, "{\"numFiles\":3}").await, Audited::AsRecorded, "another writer's own");
}

#[tokio::test]
async fn a_version_of_before_the_first_proposal_that_is_put_again_is_an_alarm() {
    let kit = Kit::unpartitioned(json!({})).await;
    for version in 1..=3 {
        kit.table.log(version, &[kit.file(&format!("{version}.parquet")).await, append_info()]).await;
    }
    let propose = async |version: i64, id: u128| {
        let staged = kit.stage(version, id, &[kit.file(&format!("ours-{id}.parquet")).await, append_info()]).await;
        short(&kit.cold().judge(&staged).await)
    };
    assert_eq!(propose(4, 1).await, "committed 4");
    kit.table.world.clock.advance_ms(1_000);
    assert!(matches!(see(&kit, 1, LogFile::Commit).await, Audited::Judged(_)), "an event that was late");
    kit.table.log(2, &[kit.file("other.parquet").await, append_info()]).await;
    assert_eq!(see(&kit, 2, LogFile::Commit).await, Audited::Alarmed(AlarmKind::VersionRewritten));
    assert_eq!(see(&kit, 2, LogFile::Commit).await, Audited::AsRecorded, "once");
    // A new version of another writer is none, and from the next look on it is one of those that were there.
    kit.table.log(5, &[kit.file("5.parquet").await, append_info()]).await;
    assert_eq!(propose(6, 2).await, "committed 6");
    kit.table.world.clock.advance_ms(1_000);
    kit.table.log(5, &[kit.file("five.parquet").await, append_info()]).await;
    assert_eq!(see(&kit, 5, LogFile::Commit).await, Audited::Alarmed(AlarmKind::VersionRewritten));
    kit.table.log(7, &[kit.file("7.parquet").await, append_info()]).await;
    assert!(matches!(see(&kit, 7, LogFile::Commit).await, Audited::Judged(_)));
}
