//! Crashes between any two calls, lost answers, races, duplicates.

use serde_json::{Value, json};

use super::engine::{Engine, Statement};
use super::kit::{Kit, short};
use crate::commit::door::judge_one;
use crate::commit::keys::{ProposalId, content_hash};
use crate::commit::run::{Outcome, Staged};
use crate::commit::verdict::Verdict;
use crate::commit::{head, proposals, recover};
use crate::delta::Version;
use crate::delta::testkit::{append_info, creation_of, text};
use crate::store::memory::Fault;
use crate::store::{Objects, QueueName, StoreErrorKind};
use uuid::Uuid;

/// Redelivers an event until it has a verdict, as a queue would.
async fn until_verdict(kit: &Kit, staged: &Staged) -> Verdict {
    for _ in 0..10 {
        if let Ok(Outcome::Verdict(verdict)) = judge_one(kit.ctx(), staged).await
            && verdict.is_final()
        {
            return *verdict;
        }
    }
    panic!("no verdict after ten deliveries");
}

/// A crash after every number of calls, until one run needs no more calls than that.
async fn crash_everywhere(make: impl AsyncFn() -> (Kit, i64, Vec<Value>), expected: &str) {
    let mut after = 0;
    loop {
        let (kit, version, lines) = make().await;
        let staged = kit.stage(version, 42, &lines).await;
        let versions_before = kit.versions();
        kit.table.world.faults.crash_after(after);
        let first = judge_one(kit.ctx(), &staged).await;
        kit.table.world.faults.revive();
        let verdict = until_verdict(&kit, &staged).await;
        assert_eq!(short(&verdict), expected, "crash after {after} calls");
        let again = kit.judge(&staged).await;
        assert_eq!(again, verdict, "crash after {after} calls");
        let versions = kit.versions();
        if let Some(committed) = verdict.committed_version() {
            assert_eq!(versions.len(), versions_before.len() + 1, "crash after {after} calls");
            assert_eq!(versions, (0..=committed.0).collect::<Vec<_>>(), "the log has no gap");
            assert_eq!(kit.table.version(committed.0).await.unwrap(), text(&lines), "crash after {after} calls");
        } else {
            assert_eq!(versions, versions_before, "crash after {after} calls");
        }
        let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap();
        assert!(head.is_none_or(|head| head.claim.is_none()), "no claim is left behind");
        let open = proposals::open(
            &*kit.table.world.items,
            &*kit.table.world.objects,
            &*kit.table.world.ports.clock,
            &kit.table.root,
        );
        assert_eq!(open.await.unwrap(), [], "crash after {after} calls");
        super::log_store::assert_complete(&kit).await;
        if first.is_ok() {
            assert!(after > 4, "the crash came too late to mean anything");
            return;
        }
        after += 1;
    }
}

#[tokio::test]
async fn a_crash_between_any_two_calls_of_an_append_loses_and_doubles_nothing() {
    let make = async || {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let lines = vec![kit.file("b.parquet").await, kit.file("c.parquet").await, append_info()];
        (kit, 2, lines)
    };
    crash_everywhere(make, "committed 2").await;
}

#[tokio::test]
async fn a_crash_between_any_two_calls_of_a_first_commit_through_us() {
    let make = async || {
        let kit = Kit::partitioned().await;
        let lines = vec![kit.table.data("p=x/a.parquet", Some("x"), 2).await, append_info()];
        (kit, 1, lines)
    };
    crash_everywhere(make, "committed 1").await;
}

#[tokio::test]
async fn a_crash_between_any_two_calls_of_a_creation() {
    let make = async || {
        let kit = Kit::empty().await;
        let mut lines = creation_of("66666666-6666-4666-8666-666666666666", &[], json!({}));
        lines.push(kit.file("a.parquet").await);
        (kit, 0, lines)
    };
    crash_everywhere(make, "committed 0").await;
}

/// The commit that is published is not the one that was staged, and a file of vectors comes before the claim.
#[tokio::test]
async fn a_crash_between_any_two_calls_of_a_merged_commit_loses_and_doubles_nothing() {
    let mut after = 0;
    loop {
        let engine = Engine { kit: Kit::with_vectors(json!({})).await };
        let lines = engine.execute(&Statement::Append((0..6).collect()), &[], "a").await;
        engine.kit.propose(1, 1, &lines).await;
        let files = engine.read(1).await;
        let first = engine.execute(&Statement::Delete(1, 1), &files, "b").await;
        let second = engine.execute(&Statement::Update(3, 4), &files, "c").await;
        assert_eq!(short(&engine.kit.propose(2, 2, &first).await), "committed 2");
        let staged = engine.kit.stage(2, 3, &second).await;
        engine.kit.table.world.faults.crash_after(after);
        let ended = judge_one(engine.kit.ctx(), &staged).await;
        engine.kit.table.world.faults.revive();
        let verdict = until_verdict(&engine.kit, &staged).await;
        assert_eq!(short(&verdict), "committed 3", "crash after {after} calls");
        assert_eq!(engine.kit.judge(&staged).await, verdict);
        let expected = [(0, 1), (2, 1), (3, 4), (4, 3), (5, 1)].into_iter().collect();
        assert_eq!(engine.rows().await, expected, "crash after {after} calls");
        assert_eq!(engine.kit.versions(), [0, 1, 2, 3]);
        // Under an id of its own it is known by what the commit says of its proposal.
        let twin = engine.kit.propose(2, 4, &second).await;
        assert_eq!(short(&twin), "committed 3", "crash after {after} calls");
        if ended.is_ok() {
            assert!(after > 4, "the crash came too late to mean anything");
            return;
        }
        after += 1;
    }
}

#[tokio::test]
async fn a_crash_between_any_two_calls_on_a_table_with_a_log_store() {
    let make = async || {
        let kit = Kit::unpartitioned(json!({"lakewarden.logStore": "dynamodb"})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let lines = vec![kit.file("b.parquet").await, append_info()];
        (kit, 2, lines)
    };
    crash_everywhere(make, "committed 2").await;
}

#[tokio::test]
async fn a_crash_between_any_two_calls_of_finishing_another_writers_commit() {
    let make = async || {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let foreign = [kit.file("spark.parquet").await, append_info()];
        super::log_store::leave_incomplete(&kit, 2, &foreign).await;
        kit.table.log(2, &foreign).await;
        let lines = vec![kit.file("b.parquet").await, append_info()];
        (kit, 3, lines)
    };
    crash_everywhere(make, "committed 3").await;
}

#[tokio::test]
async fn a_crash_between_any_two_calls_of_a_refusal() {
    let make = async || {
        let kit = Kit::unpartitioned(json!({})).await;
        let mut lines = vec![kit.file("a.parquet").await, append_info()];
        lines[0]["add"]["size"] = json!(1);
        (kit, 1, lines)
    };
    crash_everywhere(make, "rejected InvalidCommitException FILE_SIZE").await;
}

#[tokio::test]
async fn another_proposal_finishes_the_claim_of_a_crashed_one() {
    // The claim of the first run stands (the crash is at its put); another table's writer comes next.
    for after in 0..12 {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let first = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
        let second = kit.stage(2, 3, &[kit.file("c.parquet").await, append_info()]).await;
        kit.table.world.faults.crash_after(after);
        let _ = judge_one(kit.ctx(), &first).await;
        kit.table.world.faults.revive();
        let second = until_verdict(&kit, &second).await;
        let first = until_verdict(&kit, &first).await;
        let mut versions = [first.committed_version().unwrap().0, second.committed_version().unwrap().0];
        versions.sort_unstable();
        assert_eq!(versions, [2, 3], "crash after {after} calls");
        assert_eq!(kit.versions(), [0, 1, 2, 3]);
    }
}

#[tokio::test]
async fn lost_answers_are_no_losses() {
    for operation in ["transact commits", "put s3://lake/wh/t/_delta_log/0"] {
        for skip in 0..2 {
            for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Throttled] {
                let kit = Kit::unpartitioned(json!({})).await;
                let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
                kit.table.world.faults.inject(operation, skip, Fault::After(kind));
                let verdict = kit.judge(&staged).await;
                assert_eq!(short(&verdict), "committed 1", "{operation} {skip}");
                assert_eq!(verdict.proposal.attempts, 1);
                assert_eq!(kit.versions(), [0, 1]);
            }
        }
    }
}

#[tokio::test]
async fn refused_requests_are_tried_again() {
    for operation in ["batch_get", "get s3", "list", "transact commits", "put s3://lake/wh/t/_delta_log/0"] {
        let kit = Kit::unpartitioned(json!({})).await;
        let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        kit.table.world.faults.inject(operation, 0, Fault::Before(StoreErrorKind::Throttled));
        let verdict = until_verdict(&kit, &staged).await;
        assert_eq!(short(&verdict), "committed 1", "{operation}");
    }
}

#[tokio::test]
async fn a_conditional_request_under_way_is_waited_for() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    for skip in 0..3 {
        let at = "put s3://lake/wh/t/_delta_log/0";
        kit.table.world.faults.inject(at, skip, Fault::Before(StoreErrorKind::Conflict));
    }
    let verdict = kit.judge(&staged).await;
    assert_eq!((short(&verdict).as_str(), verdict.proposal.attempts), ("committed 1", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_appends_all_land_each_on_a_version_of_its_own() {
    let kit = Kit::unpartitioned(json!({})).await;
    let mut tasks = Vec::new();
    for id in 0..8_u128 {
        let staged = kit.stage(1, id + 1, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await;
        let kit = kit.clone();
        tasks.push(tokio::spawn(async move { until_verdict(&kit, &staged).await }));
    }
    let mut versions = Vec::new();
    for task in tasks {
        versions.push(task.await.unwrap().committed_version().unwrap().0);
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
    assert_eq!(kit.versions(), (0..=8).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_rewrites_of_one_file_have_one_winner() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let mut tasks = Vec::new();
    for id in 0..6_u128 {
        let lines = [
            json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}}),
            kit.file(&format!("new-{id}.parquet")).await,
            json!({"commitInfo": {"operation": "UPDATE", "operationParameters": {"predicate": "id = 1"}}}),
        ];
        let staged = kit.stage(2, id + 10, &lines).await;
        let kit = kit.clone();
        tasks.push(tokio::spawn(async move { short(&until_verdict(&kit, &staged).await) }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes.sort();
    assert_eq!(outcomes[0], "committed 2");
    assert!(outcomes[1..].iter().all(|one| one == "rejected ConcurrentAppendException WITHOUT_HINT"), "{outcomes:?}");
    assert_eq!(kit.versions(), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn duplicate_events_at_the_same_time_have_one_verdict() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (kit, staged) = (kit.clone(), staged.clone());
            tokio::spawn(async move { until_verdict(&kit, &staged).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(short(&task.await.unwrap()), "committed 1");
    }
    assert_eq!(kit.versions(), [0, 1]);
}

/// Makes a claim as a run would that died right behind it.
async fn claim_and_die(kit: &Kit, staged: &Staged) {
    let bytes = kit.table.get(&staged.key.key()).await.unwrap();
    // Far enough to have claimed, not far enough to have published.
    kit.table.world.faults.inject("put s3://lake/wh/t/_delta_log/0", 0, Fault::Before(StoreErrorKind::AccessDenied));
    let died = judge_one(kit.ctx(), staged).await;
    assert!(died.is_err(), "{died:?}");
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!(head.claim.unwrap().sha256, content_hash(&bytes));
}

#[tokio::test]
async fn a_claim_that_another_run_recorded_meanwhile_is_no_fault() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    claim_and_die(&kit, &staged).await;
    // What a run knows that has read the head and not yet the proposal.
    let stale = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    let claim = stale.claim.clone().unwrap();
    assert_eq!(short(&kit.judge(&staged).await), "committed 1");
    recover::finish(kit.ctx(), &stale, &claim).await.unwrap();
    assert_eq!(short(&kit.judge(&staged).await), "committed 1");
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn a_claim_whose_bytes_are_gone_frees_its_version() {
    let kit = Kit::unpartitioned(json!({})).await;
    let first = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    claim_and_die(&kit, &first).await;
    kit.table.world.objects.delete(&first.key.key(), None).await.unwrap();
    let second = kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&second), "committed 1");
    // The lost one got a message of its own, and is not refused behind its back: it stays open.
    assert!(kit.table.world.queue.take(QueueName::Commits).unwrap().contains("00000000-0000-0000-0000-000000000001"));
    let stored = proposals::by_id(&*kit.table.world.items, ProposalId(Uuid::from_u128(1))).await.unwrap();
    assert_eq!(stored[0].status.name(), "lost");
    // Its slow publisher may still have won the version: then its content is found in the log.
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn a_foreign_commit_at_a_dead_claims_version_wins() {
    let kit = Kit::unpartitioned(json!({})).await;
    let first = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    claim_and_die(&kit, &first).await;
    kit.table.log(1, &[kit.file("foreign.parquet").await, append_info()]).await;
    let second = kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&second), "committed 2");
    assert_eq!(short(&kit.judge(&first).await), "committed 3");
}

#[tokio::test]
async fn content_that_landed_earlier_is_found_again() {
    let kit = Kit::unpartitioned(json!({})).await;
    let lines = [kit.file("a.parquet").await, append_info()];
    // A publisher that was given up wakes up and publishes; others follow.
    kit.table.log(1, &lines).await;
    kit.table.log(2, &[kit.file("b.parquet").await, append_info()]).await;
    let verdict = kit.propose(1, 1, &lines).await;
    assert_eq!(short(&verdict), "committed 1");
    assert!(verdict.proposal.warnings[0].contains("had become version 1"));
    // Another proposal with the same transaction id.
    let with_txn = |name: &str| json!({"commitInfo": {"operation": name, "txnId": "t-1"}});
    kit.propose(3, 2, &[with_txn("A")]).await;
    assert_eq!(short(&kit.propose(3, 3, &[with_txn("B")]).await), "committed 3");
    assert_eq!(kit.versions(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_fence_between_claim_and_completion_does_not_hold_it_up() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    claim_and_die(&kit, &staged).await;
    let (items, ids) = (&*kit.table.world.items, &*kit.table.world.ports.ids);
    let read = head::load(items, &kit.table.root).await.unwrap();
    let now_ms = kit.table.world.ports.clock.now_ms();
    let fence = head::Fence { run: "sweep".into(), expires_ms: now_ms + 60_000 };
    head::set_fence(items, ids, &kit.table.root, read.as_ref(), fence.clone(), now_ms).await.unwrap();
    // The claim was made before the fence, so its files are known to the sweep; it is finished, and the fence stays.
    assert_eq!(short(&kit.judge(&staged).await), "committed 1");
    let head = head::load(items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!((head.version, head.fence), (Version(1), Some(fence)));
}

#[tokio::test]
async fn a_dead_claim_never_reaches_the_log_of_another_table() {
    for kind in ["written anew", "dropped"] {
        let kit = Kit::unpartitioned(json!({})).await;
        let old = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        claim_and_die(&kit, &old).await;
        kit.table.world.clock.advance_ms(5_000);
        kit.table.delete_log(0).await;
        let creation = creation_of("77777777-7777-4777-8777-777777777777", &[], json!({}));
        if kind == "dropped" {
            assert_eq!(short(&kit.propose(0, 2, &creation).await), "committed 0");
        } else {
            kit.table.log(0, &creation).await;
        }
        kit.table.world.clock.advance_ms(1_000);
        assert_eq!(short(&kit.propose(1, 3, &[kit.file("c.parquet").await, append_info()]).await), "committed 1");
        assert_eq!(short(&kit.judge(&old).await), "rejected TableReplacedException TABLE_REPLACED", "{kind}");
        assert_eq!(kit.versions(), [0, 1]);
        assert!(!kit.table.version(1).await.unwrap().windows(9).any(|window| window == b"a.parquet"));
    }
}
