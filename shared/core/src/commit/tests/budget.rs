//! Time: leases, slices, what is broken off and gone on with, and what is given up.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use uuid::Uuid;

use super::kit::{Kit, short};
use crate::commit::door::{Arrival, CONTINUATIONS_MAX, give_up, go_on_later, judge_batch, judge_one};
use crate::commit::error::CommitError;
use crate::commit::head::{self, LEASE_MS};
use crate::commit::keys::ProposalId;
use crate::commit::proposal::Proposal;
use crate::commit::proposals;
use crate::commit::run::Staged;
use crate::commit::verdict::Verdict;
use crate::delta::Version;
use crate::delta::testkit::append_info;
use crate::store::memory::{Fault, MemoryWorld};
use crate::store::{
    Deleted, Doomed, ETag, GetOptions, ListPage, ListRequest, Object, ObjectError, ObjectKey, ObjectMeta, ObjectUsage,
    Objects, PutCondition, PutOptions, QueueName, ReadItems, ReadObjects, StoreErrorKind,
};

async fn stored(kit: &Kit, id: u128) -> Proposal {
    proposals::by_id(&*kit.table.world.items, ProposalId(Uuid::from_u128(id))).await.unwrap().remove(0)
}

/// A claim whose run is stuck in its put.
async fn claim_and_stall(kit: &Kit, version: i64, id: u128) -> Staged {
    let staged = kit.stage(version, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await;
    kit.table.world.faults.inject("put s3://lake/wh/t/_delta_log/0", 0, Fault::Before(StoreErrorKind::AccessDenied));
    assert!(judge_one(kit.ctx(), &staged).await.is_err());
    staged
}

#[tokio::test]
async fn a_batch_leaves_a_table_to_the_worker_that_has_it() {
    let kit = Kit::unpartitioned(json!({})).await;
    let first = claim_and_stall(&kit, 1, 1).await;
    let second = kit.stage(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    let third = kit.stage(1, 3, &[kit.file("c.parquet").await, append_info()]).await;
    let before = kit.table.world.items.item_usage();
    let outcomes = kit.judge_all(vec![second.clone(), third]).await;
    let is_leased = |(_, outcome): &(_, Result<_, CommitError>)| matches!(outcome, Err(CommitError::Leased { .. }));
    assert!(outcomes.iter().all(is_leased), "{outcomes:?}");
    // At the table, and at what of the batch was proposed before.
    assert_eq!(kit.table.world.items.item_usage().since(&before).batch_gets, 2, "one look for the whole table");
    let error = CommitError::Leased { until_ms: 0 };
    go_on_later(kit.ctx(), &Arrival::new(second.clone(), String::new()), &error).await.unwrap();
    let message = kit.table.world.queue.take(QueueName::Commits).unwrap();
    assert!(message.contains("\"continuations\":0") && message.contains(&second.key.key().key));
    // The other worker is dead: after its lease anybody goes on.
    kit.table.world.clock.advance_ms(LEASE_MS);
    let outcomes = kit.judge_all(vec![second]).await;
    assert!(outcomes[0].1.is_ok());
    assert_eq!(short(&kit.judge(&first).await), "committed 1");
    assert_eq!(kit.versions(), [0, 1, 2]);
}

#[tokio::test]
async fn a_lease_ends_with_the_last_commit_of_a_batch() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = vec![
        kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await,
        kit.stage(1, 2, &[kit.file("b.parquet").await, append_info()]).await,
    ];
    kit.judge_all(staged).await;
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    assert_eq!((head.version, head.lease), (Version(2), None));
}

#[tokio::test]
async fn a_caller_that_waits_waits_for_the_lease() {
    let kit = Kit::unpartitioned(json!({})).await;
    claim_and_stall(&kit, 1, 1).await;
    let before = kit.table.world.ports.clock.now_ms();
    let verdict = kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "committed 2");
    assert!(kit.table.world.ports.clock.now_ms() - before >= LEASE_MS);
    let third = claim_and_stall(&kit, 3, 3).await;
    let outcome = judge_one(kit.ctx_for(6_000), &third).await;
    assert!(outcome.as_ref().is_err_and(CommitError::is_slowness), "{outcome:?}");
}

/// Reads of the log take their time.
#[derive(Clone)]
struct SlowLog {
    world: MemoryWorld,
    get_ms: i64,
}

#[async_trait]
impl ReadObjects for SlowLog {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        if at.key.starts_with("wh/t/_delta_log/0") {
            self.world.clock.advance_ms(self.get_ms);
        }
        self.world.objects.get(at, options).await
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        self.world.objects.head(at).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        self.world.objects.list(request).await
    }

    fn object_usage(&self) -> ObjectUsage {
        self.world.objects.object_usage()
    }
}

#[async_trait]
impl Objects for SlowLog {
    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError> {
        self.world.objects.put(at, bytes, options).await
    }

    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError> {
        self.world.objects.copy(from, to, condition).await
    }

    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        self.world.objects.delete(at, if_match).await
    }

    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        self.world.objects.delete_batch(bucket, doomed).await
    }
}

#[tokio::test]
async fn judging_goes_on_from_where_time_ran_out() {
    let mut kit = Kit::unpartitioned(json!({})).await;
    for version in 1..=200 {
        kit.table.log(version, &[append_info()]).await;
    }
    assert_eq!(short(&kit.propose(201, 9, &[kit.file("new.parquet").await, append_info()]).await), "committed 201");
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let world = kit.table.world.clone();
    kit.app.ports.objects = Arc::new(SlowLog { world: world.clone(), get_ms: 50 });
    // Two parts of 64 winners take 6.4 s, and what is left then is too little for a claim.
    world.faults.forget_calls();
    let outcome = judge_one(kit.ctx_for(9_000), &staged).await;
    assert!(matches!(outcome, Err(CommitError::OutOfTime { .. })), "{outcome:?}");
    let proposal = stored(&kit, 1).await;
    assert_eq!((proposal.status.name(), proposal.folded), ("received", Some(Version(128))));
    let verdict = Verdict { proposal }.to_json();
    assert_eq!((&verdict["final"], &verdict["judged_up_to"]), (&json!(false), &json!(128)));
    world.faults.forget_calls();
    assert_eq!(short(&kit.judge(&staged).await), "committed 202");
    let reads = world.faults.calls().iter().filter(|call| call.starts_with("get s3://lake/wh/t/_delta_log/0")).count();
    assert_eq!(reads, 201 - 128, "what was judged is not read again");
    assert_eq!(kit.versions().len(), 203);
}

#[tokio::test]
async fn a_proposal_that_is_broken_off_too_often_gets_its_verdict() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let slow = CommitError::OutOfTime { step: "reading", left_ms: 5 };
    let mut arrival = Arrival::new(staged.clone(), String::new());
    for count in 0..CONTINUATIONS_MAX {
        arrival.continuations = count;
        go_on_later(kit.ctx(), &arrival, &slow).await.unwrap();
        let message = kit.table.world.queue.take(QueueName::Commits).unwrap();
        assert!(message.contains(&format!("\"continuations\":{}", count + 1)));
    }
    arrival.continuations = CONTINUATIONS_MAX;
    go_on_later(kit.ctx(), &arrival, &slow).await.unwrap();
    assert_eq!(kit.table.world.queue.take(QueueName::Commits), None);
    let verdict = kit.judge(&staged).await;
    assert_eq!(short(&verdict), "rejected ConcurrentWriteException ALLOTTED_TIME_EXCEEDED");
}

#[tokio::test]
async fn every_table_of_a_batch_gets_its_share_of_the_time() {
    let kit = Kit::unpartitioned(json!({})).await;
    let mut arrivals = Vec::new();
    for id in 1..=3_u128 {
        let staged = kit.stage(1, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await;
        arrivals.push(Arrival::new(staged, String::new()));
    }
    let mut elsewhere = arrivals[0].clone();
    elsewhere.staged.key.root = crate::location::Location::new("lake", "wh/u");
    arrivals.push(elsewhere);
    // A fence on the first table: its first commit waits until its slice is used up.
    let world = &kit.table.world;
    let (items, ids, now_ms) = (&*world.items, &*world.ports.ids, world.ports.clock.now_ms());
    let fence = head::Fence { run: "sweep".into(), expires_ms: now_ms + 600_000 };
    head::set_fence(items, ids, &kit.table.root, None, fence, now_ms).await.unwrap();
    let outcomes = judge_batch(kit.ctx_for(24_000), arrivals).await;
    let errors: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.as_ref().err()).collect();
    assert!(errors[..3].iter().all(|error| error.is_some_and(CommitError::is_slowness)), "{errors:?}");
    assert!(errors[3].is_none(), "the other table is judged: {errors:?}");
}

#[tokio::test]
async fn a_dead_letter_is_noted_on_its_proposal_and_judged_once_it_is_sent_again() {
    for known in [false, true] {
        let kit = Kit::unpartitioned(json!({})).await;
        let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        let arrival = Arrival::new(
            Staged { etag: known.then(|| staged.etag.clone()).flatten(), ..staged.clone() },
            String::new(),
        );
        give_up(kit.ctx(), &arrival, "the store was away").await.unwrap();
        let proposal = stored(&kit, 1).await;
        assert_eq!(proposal.status.name(), "undecided");
        assert!(proposal.refusal.unwrap().message.contains("the store was away"));
        let open = proposals::open(
            &*kit.table.world.items,
            &*kit.table.world.objects,
            &*kit.table.world.ports.clock,
            &kit.table.root,
        );
        assert_eq!(open.await.unwrap().len(), 1, "it still protects its files");
        let verdict = kit.judge(&staged).await;
        assert_eq!(short(&verdict), "committed 1");
        assert_eq!(verdict.refusal(), None);
        give_up(kit.ctx(), &arrival, "again").await.unwrap();
        assert_eq!(short(&kit.judge(&staged).await), "committed 1", "a verdict stays");
    }
}
