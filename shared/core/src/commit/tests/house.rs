//! What is done from time to time.

use serde_json::json;
use uuid::Uuid;

use super::kit::{Kit, short};
use crate::commit::door::judge_one;
use crate::commit::housekeeping::{Report, keep_house};
use crate::commit::keys::ProposalId;
use crate::commit::{head, proposals, table_list};
use crate::delta::testkit::{append_info, creation_of};
use crate::store::memory::Fault;
use crate::store::{QueueName, StoreErrorKind};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

async fn house(kit: &Kit) -> Report {
    keep_house(kit.ctx(), &kit.table.root).await.unwrap()
}

async fn is_known(kit: &Kit, id: u128) -> bool {
    !proposals::by_id(&*kit.table.world.items, ProposalId(Uuid::from_u128(id))).await.unwrap().is_empty()
}

async fn listed(kit: &Kit) -> usize {
    let ports = &kit.table.world.ports;
    proposals::of_table(&*ports.items, &*ports.clock, &kit.table.root, 10, None).await.unwrap().proposals.len()
}

#[tokio::test]
async fn old_verdicts_go_with_their_staged_objects_and_not_before() {
    let kit = Kit::unpartitioned(json!({})).await;
    let old = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.judge(&old).await;
    let mut bad = kit.file("b.parquet").await;
    bad["add"]["size"] = json!(1);
    let refused = kit.stage(2, 2, &[bad, append_info()]).await;
    kit.judge(&refused).await;
    kit.table.world.clock.advance_ms(20 * DAY_MS);
    let young = kit.stage(2, 3, &[kit.file("c.parquet").await, append_info()]).await;
    kit.judge(&young).await;
    assert_eq!(house(&kit).await, Report::default());
    kit.table.world.clock.advance_ms(11 * DAY_MS);
    // The objects cannot be deleted: then the verdicts stay, too.
    kit.table.world.faults.inject(
        "delete s3://lake/wh/t/_delta_log/_staged",
        0,
        Fault::Before(StoreErrorKind::AccessDenied),
    );
    assert!(keep_house(kit.ctx(), &kit.table.root).await.is_err());
    assert!(is_known(&kit, 1).await && is_known(&kit, 2).await);
    assert_eq!(house(&kit).await, Report { forgotten: 2, ..Report::default() });
    assert!(kit.table.get(&old.key.key()).await.is_none() && kit.table.get(&refused.key.key()).await.is_none());
    assert!(!is_known(&kit, 1).await && !is_known(&kit, 2).await && is_known(&kit, 3).await);
    assert_eq!(listed(&kit).await, 1);
    assert!(kit.table.get(&young.key.key()).await.is_some());
    assert_eq!(kit.versions(), [0, 1, 2]);
}

#[tokio::test]
async fn what_has_no_verdict_is_sent_again_and_expires_in_the_end() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    // Its event never came.
    let lost = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(house(&kit).await, Report::default(), "it may be on its way");
    kit.table.world.clock.advance_ms(60 * 60 * 1000);
    assert_eq!(house(&kit).await, Report { resent: 1, ..Report::default() });
    assert!(kit.table.world.queue.take(QueueName::Commits).unwrap().contains(&lost.key.key().key));
    kit.table.world.clock.advance_ms(31 * DAY_MS);
    let report = house(&kit).await;
    assert_eq!((report.expired, report.forgotten), (1, 1));
    assert_eq!(short(&kit.judge(&lost).await), "expired", "its id has a verdict");
    assert!(kit.table.get(&lost.key.key()).await.is_some(), "it says which files are spared for a while");
    kit.table.world.clock.advance_ms(31 * DAY_MS);
    assert_eq!(house(&kit).await, Report { forgotten: 1, ..Report::default() });
    assert!(!is_known(&kit, 2).await && kit.table.get(&lost.key.key()).await.is_none());
}

/// However short verdicts are kept, nobody is given up before sweeps give him up.
#[tokio::test]
async fn nothing_without_a_verdict_expires_before_two_weeks() {
    let mut kit = Kit::unpartitioned(json!({})).await;
    kit.app.settings.verdict_retention_ms = DAY_MS;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let slow = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    for _ in 0..2 {
        kit.table.world.clock.advance_ms(7 * DAY_MS);
        assert_eq!(house(&kit).await.expired, 0);
    }
    assert!(kit.table.get(&slow.key.key()).await.is_some());
    kit.table.world.clock.advance_ms(1);
    assert_eq!(house(&kit).await.expired, 1);
    kit.table.world.clock.advance_ms(DAY_MS + 1);
    house(&kit).await;
    assert!(kit.table.get(&slow.key.key()).await.is_none());
}

#[tokio::test]
async fn a_claim_that_a_crash_left_is_finished_and_copies_go() {
    let kit = Kit::unpartitioned(json!({"lakewarden.logStore": "dynamodb"})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.world.faults.inject("put s3://lake/wh/t/_delta_log/0", 0, Fault::Before(StoreErrorKind::AccessDenied));
    assert!(judge_one(kit.ctx(), &staged).await.is_err());
    assert_eq!(house(&kit).await, Report::default(), "its worker may be at it");
    kit.table.put("_delta_log/.tmp/00000000000000000001.json.7b1d2a36-92a2-4a54-9a2f-0f2c4c1e9b11", b"spark").await;
    kit.table.world.clock.advance_ms(60_000);
    house(&kit).await;
    assert_eq!(kit.versions(), [0, 1]);
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!(head.claim, None);
    kit.table.world.clock.advance_ms(2 * DAY_MS);
    assert_eq!(house(&kit).await.copies_deleted, 1);
    let left: Vec<_> = kit.objects().await.into_iter().filter(|(key, _)| key.contains("/.tmp/")).collect();
    assert_eq!(left.len(), 1, "another writer's copy is not ours to delete");
}

#[tokio::test]
async fn staged_commits_of_catalog_managed_tables_are_left_alone() {
    let kit = Kit::empty().await;
    let mut creation = creation_of("m", &[], json!({}));
    creation[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}});
    kit.table.log(0, &creation).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.judge(&staged).await;
    kit.table.world.clock.advance_ms(100 * DAY_MS);
    house(&kit).await;
    assert!(kit.table.get(&staged.key.key()).await.is_some());
}

#[tokio::test]
async fn every_table_with_a_proposal_is_listed() {
    let kit = Kit::unpartitioned(json!({})).await;
    assert_eq!(table_list::every(&*kit.table.world.items).await.unwrap(), []);
    kit.propose(7, 1, &[append_info()]).await;
    assert_eq!(table_list::every(&*kit.table.world.items).await.unwrap(), std::slice::from_ref(&kit.table.root));
}
