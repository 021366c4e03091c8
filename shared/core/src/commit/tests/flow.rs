//! From a staged object to a verdict.

use serde_json::json;

use super::kit::{Kit, short, verdict};
use crate::commit::door::judge_one;
use crate::commit::error::CommitError;
use crate::commit::head::{self, Fence};
use crate::commit::keys::ProposalId;
use crate::commit::proposal::SyncState;
use crate::commit::proposals;
use crate::commit::run::{Outcome, Staged};
use crate::delta::testkit::{append_info, creation_of, text};
use crate::delta::{Snapshot, Version, snapshot};
use crate::location::Location;
use crate::store::memory::Fault;
use crate::store::{ETag, Objects, ReadItems, ReadObjects, StoreErrorKind};
use uuid::Uuid;

async fn snapshot_of(kit: &Kit) -> Snapshot {
    snapshot::load(&*kit.table.world.objects, &kit.table.root, None).await.unwrap()
}

#[tokio::test]
async fn a_staged_append_becomes_the_next_version_byte_for_byte() {
    let kit = Kit::unpartitioned(json!({})).await;
    let lines = [kit.file("a.parquet").await, append_info()];
    let verdict = kit.propose(1, 7, &lines).await;
    assert_eq!(short(&verdict), "committed 1");
    assert_eq!(kit.table.version(1).await.unwrap(), text(&lines));
    assert_eq!(snapshot_of(&kit).await.live.len(), 1);
    let answer = verdict.to_json();
    assert_eq!(answer["proposal_id"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(
        (&answer["status"], &answer["version"], &answer["read_version"]),
        (&json!("committed"), &json!(1), &json!(0))
    );
    let stored = proposals::by_id(&*kit.table.world.items, ProposalId(Uuid::from_u128(7))).await.unwrap();
    assert_eq!(stored, [verdict.proposal]);
}

#[tokio::test]
async fn an_append_to_a_known_table_costs_what_it_must() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let files = [kit.file("b.parquet").await, kit.file("c.parquet").await, append_info()];
    let staged = kit.stage(2, 2, &files).await;
    let kit = kit.cold();
    let (items, objects) = (kit.table.world.items.item_usage(), kit.table.world.objects.object_usage());
    assert_eq!(short(&kit.judge(&staged).await), "committed 2");
    let items = kit.table.world.items.item_usage().since(&items);
    let objects = kit.table.world.objects.object_usage().since(&objects);
    // S3: the staged object, one listing, one ranged read for each file, one put. No HEAD.
    assert_eq!((objects.gets, objects.lists, objects.puts, objects.heads), (3, 1, 1, 0));
    assert_eq!((objects.copies, objects.deletes), (0, 0));
    // DynamoDB: head and look-up in one batch get, the claim, the completion.
    assert_eq!((items.batch_gets, items.transactions), (1, 2));
    assert_eq!((items.gets, items.queries, items.puts, items.deletes), (0, 0, 0, 0));
    // Five and three items at two units each, and the two of Delta's log store that must not be there; the claimed head,
    // with its filter of 640 bytes, is above 1 KB.
    assert_eq!(items.write_units, 18 + 4);
}

#[tokio::test]
async fn a_refused_commit_leaves_the_table_as_it_was() {
    let kit = Kit::unpartitioned(json!({})).await;
    let bad = "message m { required int64 id; optional int32 name; }";
    let mut add = kit.table.data_of("a.parquet", None, bad, &[json!({"id": 1, "name": 2})]).await;
    add["add"]["partitionValues"] = json!({});
    let staged = kit.stage(1, 7, &[add, append_info()]).await;
    let before = kit.objects().await;
    let verdict = kit.judge(&staged).await;
    assert_eq!(short(&verdict), "rejected SchemaMismatchException SCHEMA");
    let answer = verdict.to_json();
    assert_eq!(answer["error_class"], "DELTA_MERGE_INCOMPATIBLE_DATATYPE");
    assert_eq!(
        answer["place"],
        json!({"file": "a.parquet", "column": "name", "expected": "string", "found": "integer"})
    );
    assert_eq!(kit.objects().await, before);
}

#[tokio::test]
async fn files_must_be_what_the_commit_says() {
    let kit = Kit::unpartitioned(json!({})).await;
    let good = kit.file("a.parquet").await;
    let with = |member: &str, value: serde_json::Value| {
        let mut add = good.clone();
        add["add"][member] = value;
        add
    };
    kit.table.put("text.parquet", b"this is no parquet file").await;
    let mut text_file = with("path", json!("text.parquet"));
    text_file["add"]["size"] = json!(23);
    let cases = [
        (with("path", json!("missing.parquet")), "FILE_MISSING"),
        (with("size", json!(5)), "FILE_SIZE"),
        (with("stats", json!("{\"numRecords\":4}")), "ROW_COUNT"),
        (with("stats", json!("[]")), "STATS"),
        (with("partitionValues", json!({"p": "1"})), "PARTITION_VALUES"),
        (text_file, "NOT_PARQUET"),
    ];
    for (id, (add, reason)) in cases.into_iter().enumerate() {
        let verdict = kit.propose(1, id as u128 + 10, &[add, append_info()]).await;
        assert_eq!(verdict.refusal().map(|refusal| refusal.reason.as_str()), Some(reason));
    }
    assert_eq!(kit.versions(), [0]);
}

#[tokio::test]
async fn a_table_can_be_created_and_only_once() {
    let kit = Kit::empty().await;
    let creation = creation_of("22222222-2222-4222-8222-222222222222", &[], json!({}));
    let orphan = kit.propose(0, 9, &[kit.file("x.parquet").await, append_info()]).await;
    assert_eq!(short(&orphan), "rejected InvalidCommitException NO_TABLE");
    let first = kit.propose(0, 1, &creation).await;
    assert_eq!(short(&first), "committed 0");
    let mut other = creation_of("33333333-3333-4333-8333-333333333333", &[], json!({}));
    other.push(kit.file("a.parquet").await);
    let second = kit.propose(0, 2, &other).await;
    assert_eq!(short(&second), "rejected ProtocolChangedException TABLE_EXISTS");
    let append = kit.propose(1, 3, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&append), "committed 1");
}

#[tokio::test]
async fn a_redelivered_event_gets_the_first_verdict() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 7, &[kit.file("a.parquet").await, append_info()]).await;
    let first = kit.judge(&staged).await;
    let objects = kit.table.world.objects.object_usage();
    assert_eq!(kit.judge(&staged).await, first);
    assert_eq!(kit.table.world.objects.object_usage().since(&objects).puts, 0);
    // Its object may be gone by then.
    kit.table.world.objects.delete(&staged.key.key(), None).await.unwrap();
    assert_eq!(kit.judge(&staged).await, first);
    let unnamed = Staged { etag: None, ..staged };
    assert_eq!(kit.judge(&unnamed).await, first);
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn one_id_stands_for_one_content() {
    let kit = Kit::unpartitioned(json!({})).await;
    let first = kit.stage(1, 7, &[kit.file("a.parquet").await, append_info()]).await;
    // Replaced before it was judged: the old event says nothing, the new one counts.
    let second = kit.stage(1, 7, &[kit.file("b.parquet").await, append_info()]).await;
    assert!(matches!(judge_one(kit.ctx(), &first).await.unwrap(), Outcome::NotJudged { .. }));
    assert_eq!(short(&kit.judge(&second).await), "committed 1");
    // Replaced afterwards: refused, and the first verdict stands.
    let third = kit.stage(1, 7, &[kit.file("c.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.judge(&third).await), "rejected ProposalReusedException PROPOSAL_REUSED");
    assert_eq!(short(&kit.judge(&second).await), "committed 1");
    // The same id under another version is another content, too.
    let fourth = kit.stage(2, 7, &[kit.file("d.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.judge(&fourth).await), "rejected ProposalReusedException PROPOSAL_REUSED");
    let gone = Staged {
        etag: Some(ETag("x".into())),
        key: crate::delta::log::StagedKey { id: Uuid::from_u128(99), ..third.key },
    };
    assert!(matches!(judge_one(kit.ctx(), &gone).await.unwrap(), Outcome::NotJudged { .. }));
}

#[tokio::test]
async fn a_batch_is_judged_in_order_against_state_loaded_once() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let mut staged = Vec::new();
    for (version, id) in [(3, 3), (2, 2), (2, 4)] {
        staged.push(kit.stage(version, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await);
    }
    let before = kit.table.world.objects.object_usage();
    let outcomes = kit.judge_all(staged).await;
    let shorts: Vec<String> = outcomes.into_iter().map(|(_, outcome)| short(&verdict(outcome))).collect();
    assert_eq!(shorts, ["committed 2", "committed 3", "committed 4"]);
    let used = kit.table.world.objects.object_usage().since(&before);
    // Footers are read ahead for all; those that come later are asked for again at their turn.
    assert_eq!((used.lists, used.puts, used.heads), (1, 3, 2));
    assert_eq!(kit.versions(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn foreign_commits_are_winners_like_any_other() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.log(2, &[kit.file("foreign.parquet").await, append_info()]).await;
    let append = kit.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&append), "committed 3");
    let again = kit.propose(4, 3, &[kit.file("foreign.parquet").await, append_info()]).await;
    assert_eq!(short(&again), "rejected InvalidCommitException FILE_ALREADY_LIVE");
}

#[tokio::test]
async fn winners_of_others_are_read_once_in_a_batch() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    for version in [2, 3] {
        kit.table.log(version, &[kit.file(&format!("foreign-{version}.parquet")).await, append_info()]).await;
    }
    let mut staged = Vec::new();
    for id in 2..=4_u128 {
        staged.push(kit.stage(2, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await);
    }
    let before = kit.table.world.objects.object_usage();
    let verdicts: Vec<String> =
        kit.judge_all(staged).await.into_iter().map(|(_, outcome)| short(&verdict(outcome))).collect();
    assert_eq!(verdicts, ["committed 4", "committed 5", "committed 6"]);
    let used = kit.table.world.objects.object_usage().since(&before);
    // Three staged objects, three footers, two winners; a second look at the files of the two that come later.
    assert_eq!((used.gets, used.lists, used.puts, used.heads), (3 + 3 + 2, 1, 3, 2));
}

#[tokio::test]
async fn a_foreign_writer_may_take_the_version_that_was_claimed() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    // The foreign commit appears after our listing: the put meets a 412.
    kit.table.world.faults.inject(
        "put s3://lake/wh/t/_delta_log/00000000000000000001.json",
        0,
        Fault::Before(StoreErrorKind::Unavailable),
    );
    kit.table.world.faults.crash_after(1_000);
    let foreign = [kit.file("foreign.parquet").await, append_info()];
    let (outcome, ()) = tokio::join!(judge_one(kit.ctx(), &staged), async {
        // The first put fails and backs off; that is when the other writer is faster.
        kit.table.log(1, &foreign).await;
    });
    assert_eq!(short(&verdict(outcome)), "committed 2");
    assert_eq!(kit.table.version(1).await.unwrap(), text(&foreign));
    assert_eq!(kit.versions(), [0, 1, 2]);
    let stored = proposals::by_id(&*kit.table.world.items, ProposalId(Uuid::from_u128(1))).await.unwrap();
    assert_eq!(stored[0].attempts, 2);
}

#[tokio::test]
async fn read_versions_are_checked() {
    let kit = Kit::unpartitioned(json!({})).await;
    let ahead = kit.propose(5, 1, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&ahead), "rejected InvalidCommitException READ_VERSION_AHEAD");
    for version in 1..4 {
        kit.table.log(version, &[append_info()]).await;
    }
    kit.table.checkpoint(&snapshot_of(&kit).await).await;
    kit.table.delete_log(1).await;
    kit.table.delete_log(2).await;
    let old = kit.propose(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&old), "rejected ConcurrentWriteException READ_VERSION_TOO_OLD");
    let recent = kit.propose(4, 3, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&recent), "committed 4");
}

#[tokio::test]
async fn unsupported_tables_are_refused_by_name() {
    for (configuration, reason) in [(json!({"delta.columnMapping.mode": "guess"}), "UNSUPPORTED_FEATURE")] {
        let kit = Kit::unpartitioned(configuration).await;
        let verdict = kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        assert_eq!(short(&verdict), format!("rejected UnsupportedTableException {reason}"));
    }
    let kit = Kit::unpartitioned(json!({})).await;
    kit.table.log(2, &[append_info()]).await;
    let verdict = kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException LOG_GAP");
    kit.table.put("_delta_log/00000000000000000002.checkpoint.0000000001.0000000001.parquet", b"x").await;
    let verdict = kit.propose(1, 2, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException UNREADABLE_LOG");
}

#[tokio::test]
async fn catalog_managed_tables_are_only_recorded() {
    let kit = Kit::empty().await;
    let mut creation = creation_of("m", &[], json!({}));
    creation[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}});
    let refused = kit.propose(0, 1, &creation).await;
    assert_eq!(short(&refused), "rejected UnsupportedTableException CATALOG_MANAGED");
    kit.table.log(0, &creation).await;
    let recorded = kit.propose(1, 2, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&recorded), "received");
    assert_eq!(kit.versions(), [0]);
}

/// A table with in-commit timestamps whose version 0 has this one.
async fn timestamped(ms: i64) -> Kit {
    let kit = Kit::empty().await;
    let mut creation = creation_of("m", &[], json!({"delta.enableInCommitTimestamps": "true"}));
    creation[0] =
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}});
    creation[2]["commitInfo"]["inCommitTimestamp"] = json!(ms);
    kit.table.log(0, &[creation[2].clone(), creation[0].clone(), creation[1].clone()]).await;
    kit
}

async fn timestamp(kit: &Kit, version: i64) -> i64 {
    let published = kit.table.version(version).await.unwrap();
    let first: serde_json::Value =
        serde_json::from_slice(published.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    first["commitInfo"]["inCommitTimestamp"].as_i64().unwrap()
}

#[tokio::test]
async fn a_version_without_timestamp_counts_by_its_files_time() {
    const AHEAD: i64 = 99_999_999_999_999;
    for process in ["warm", "cold"] {
        for start in [5, AHEAD] {
            let kit = timestamped(start).await;
            assert_eq!(short(&kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await), "committed 1");
            kit.table.world.clock.advance_ms(10_000);
            // Of a writer that does not know the feature.
            kit.table.log(2, &[kit.file("foreign.parquet").await, append_info()]).await;
            let at = crate::delta::log::commit_key(&kit.table.root, Version(2));
            let written_ms = kit.table.world.objects.head(&at).await.unwrap().last_modified_ms;
            let again = if process == "warm" { kit.clone() } else { kit.cold() };
            let stale = again.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
            assert_eq!(short(&stale), "committed 3", "{process}");
            let fresh = again.propose(4, 3, &[kit.file("c.parquet").await, append_info()]).await;
            assert_eq!(short(&fresh), "committed 4", "{process}");
            assert!(timestamp(&kit, 3).await > written_ms);
            assert!(timestamp(&kit, 4).await > timestamp(&kit, 3).await);
            if start == AHEAD {
                assert_eq!(
                    timestamp(&kit, 3).await,
                    AHEAD + 2,
                    "what came before the version without one still counts"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_table_that_is_seen_for_the_first_time_may_lack_a_timestamp() {
    let kit = timestamped(5).await;
    kit.table.log(1, &[kit.file("foreign.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.propose(2, 1, &[kit.file("a.parquet").await, append_info()]).await), "committed 2");
    let at = crate::delta::log::commit_key(&kit.table.root, Version(1));
    assert!(timestamp(&kit, 2).await > kit.table.world.objects.head(&at).await.unwrap().last_modified_ms);
}

#[tokio::test]
async fn after_the_last_timestamp_there_is_none() {
    let kit = timestamped(i64::MAX).await;
    let verdict = kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException IN_COMMIT_TIMESTAMP");
    let kit = timestamped(i64::MAX - 1).await;
    assert_eq!(short(&kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await), "committed 1");
    assert_eq!(timestamp(&kit, 1).await, i64::MAX);
    let verdict = kit.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException IN_COMMIT_TIMESTAMP");
}

#[tokio::test]
async fn in_commit_timestamps_are_set_at_claim_time() {
    let kit = timestamped(99_999_999_999_999).await;
    let lines = [kit.file("a.parquet").await, append_info()];
    assert_eq!(short(&kit.propose(1, 1, &lines).await), "committed 1");
    let published = kit.table.version(1).await.unwrap();
    // The creator's clock was ahead; ours follows it by one.
    assert_eq!(timestamp(&kit, 1).await, 100_000_000_000_000);
    assert!(std::str::from_utf8(&published).unwrap().contains(&lines[0].to_string()));
    assert_eq!(short(&kit.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await), "committed 2");
    let without = kit.propose(3, 3, &[kit.file("c.parquet").await]).await;
    assert_eq!(short(&without), "rejected InvalidCommitException IN_COMMIT_TIMESTAMP");
}

#[tokio::test]
async fn the_catalog_is_told_of_every_version_once() {
    let kit = Kit::partitioned().await;
    let staged = kit.stage(1, 1, &[kit.table.data("p=x/a.parquet", Some("x"), 1).await, append_info()]).await;
    let verdict = kit.judge(&staged).await;
    assert_eq!(verdict.proposal.sync, SyncState::Done("2 partitions created, 0 changed, 0 removed".into()));
    assert_eq!(verdict.proposal.synced_ms, Some(verdict.proposal.updated_ms));
    assert_eq!(kit.judge(&staged).await, verdict);
    let told = kit.sink.told.lock().unwrap().clone();
    let versions: Vec<(Location, i64)> = told.into_iter().map(|(root, target)| (root, target.version.0)).collect();
    assert_eq!(versions, [(kit.table.root.clone(), 1)]);
    let kit = Kit::unpartitioned(json!({})).await;
    let verdict = kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!((verdict.proposal.sync, kit.sink.told.lock().unwrap().len()), (SyncState::None, 1));
}

#[tokio::test]
async fn a_failed_sync_is_kept_and_tried_again() {
    let kit = Kit::partitioned().await;
    *kit.sink.fails.lock().unwrap() = true;
    let staged = kit.stage(1, 1, &[kit.table.data("p=x/a.parquet", Some("x"), 1).await, append_info()]).await;
    let verdict = kit.judge(&staged).await;
    assert_eq!(short(&verdict), "committed 1");
    assert_eq!(verdict.proposal.sync, SyncState::Failed("the catalog is away".into()));
    assert_eq!(verdict.proposal.synced_ms, None);
    *kit.sink.fails.lock().unwrap() = false;
    let again = kit.judge(&staged).await;
    assert!(matches!(again.proposal.sync, SyncState::Done(_)));
    assert_eq!(again.proposal.synced_ms, Some(again.proposal.updated_ms));
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn a_fence_makes_a_claim_wait_and_look_again() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let world = &kit.table.world;
    let now_ms = world.ports.clock.now_ms();
    let read = head::load(&*world.items, &kit.table.root).await.unwrap();
    let fence = |expires_ms| Fence { run: "sweep".into(), expires_ms };
    let set = head::set_fence(
        &*world.items,
        &*world.ports.ids,
        &kit.table.root,
        read.as_ref(),
        fence(now_ms + 1_000),
        now_ms,
    )
    .await;
    assert!(set.is_ok());
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    // Waiting moves the clock of this world: the fence expires and the claim goes through.
    let before = world.objects.object_usage();
    assert_eq!(short(&kit.judge(&staged).await), "committed 2");
    assert!(world.objects.object_usage().since(&before).lists > 1, "the table was read again");
    // A fence that outlasts the patience hands the proposal back, without a verdict.
    let read = head::load(&*world.items, &kit.table.root).await.unwrap();
    let now_ms = world.ports.clock.now_ms();
    head::set_fence(&*world.items, &*world.ports.ids, &kit.table.root, read.as_ref(), fence(now_ms + 600_000), now_ms)
        .await
        .unwrap();
    let staged = kit.stage(3, 3, &[kit.file("c.parquet").await, append_info()]).await;
    let outcome = judge_one(kit.ctx(), &staged).await;
    assert_eq!(outcome, Err(CommitError::Fenced { run: "sweep".into() }));
    head::clear_fence(&*world.items, &*world.ports.ids, &kit.table.root, "sweep").await.unwrap();
    assert_eq!(short(&kit.judge(&staged).await), "committed 3");
}

#[tokio::test]
async fn a_file_swept_between_footer_and_claim_is_noticed() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let world = kit.table.world.clone();
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    // The claim's first try does not reach the store; while it backs off, a sweep fences, deletes and clears.
    world.faults.inject("transact commits", 0, Fault::Before(StoreErrorKind::Unavailable));
    let sweep = async {
        let read = head::load(&*world.items, &kit.table.root).await.unwrap();
        let now_ms = world.ports.clock.now_ms();
        let fence = Fence { run: "sweep".into(), expires_ms: now_ms + 10_000 };
        head::set_fence(&*world.items, &*world.ports.ids, &kit.table.root, read.as_ref(), fence, now_ms).await.unwrap();
        world.objects.delete(&kit.table.root.object("b.parquet"), None).await.unwrap();
        head::clear_fence(&*world.items, &*world.ports.ids, &kit.table.root, "sweep").await.unwrap();
    };
    let (outcome, ()) = tokio::join!(judge_one(kit.ctx(), &staged), sweep);
    assert_eq!(short(&verdict(outcome)), "rejected InvalidCommitException FILE_MISSING");
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn too_little_time_hands_the_proposal_back() {
    let kit = Kit::unpartitioned(json!({})).await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let outcome = judge_one(kit.ctx_for(2_000), &staged).await;
    assert!(matches!(outcome, Err(CommitError::OutOfTime { .. })), "{outcome:?}");
    assert!(outcome.unwrap_err().to_string().starts_with("ALLOTTED_TIME_EXCEEDED"));
    assert_eq!(short(&kit.judge(&staged).await), "committed 1");
}

#[tokio::test]
async fn a_table_written_anew_opens_a_new_generation() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let left_over = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    kit.table.world.clock.advance_ms(5_000);
    // Somebody drops the table and writes another one.
    kit.table.delete_log(0).await;
    kit.table.delete_log(1).await;
    kit.table.log(0, &creation_of("44444444-4444-4444-8444-444444444444", &[], json!({}))).await;
    kit.table.world.clock.advance_ms(1_000);
    let append = kit.propose(1, 3, &[kit.file("c.parquet").await, append_info()]).await;
    assert_eq!(short(&append), "committed 1");
    assert_eq!(append.proposal.generation.0, 1);
    assert_eq!(short(&kit.judge(&left_over).await), "rejected TableReplacedException TABLE_REPLACED");
    // Dropped again, created through us.
    kit.table.delete_log(0).await;
    kit.table.delete_log(1).await;
    let lost = kit.propose(2, 4, &[kit.file("d.parquet").await, append_info()]).await;
    assert_eq!(short(&lost), "rejected DamagedLogException LOG_MISSING");
    let creation = creation_of("55555555-5555-4555-8555-555555555555", &[], json!({}));
    let created = kit.propose(0, 5, &creation).await;
    assert_eq!((short(&created).as_str(), created.proposal.generation.0), ("committed 0", 2));
}

fn append_to(table_id: &str) -> serde_json::Value {
    let mut info = append_info();
    info["commitInfo"]["readTableId"] = json!(table_id);
    info
}

#[tokio::test]
async fn in_the_second_of_its_birth_a_table_takes_what_is_surely_meant_for_it() {
    let (old, new) = (crate::delta::testkit::TABLE_ID, "44444444-4444-4444-8444-444444444444");
    for by_us in [true, false] {
        let kit = Kit::unpartitioned(json!({})).await;
        kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
        kit.table.world.clock.advance_ms(5_000);
        let left_over = kit.stage(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
        kit.table.world.clock.advance_ms(10);
        kit.table.delete_log(0).await;
        kit.table.delete_log(1).await;
        let creation = creation_of(new, &[], json!({}));
        if by_us {
            assert_eq!(short(&kit.propose(0, 3, &creation).await), "committed 0");
        } else {
            kit.table.log(0, &creation).await;
        }
        let honest = kit.stage(1, 4, &[kit.file("c.parquet").await, append_info()]).await;
        for staged in [&left_over, &honest] {
            let verdict = kit.judge(staged).await;
            assert_eq!(short(&verdict), "rejected TableReplacedException TABLE_REPLACED", "{by_us}");
            assert!(verdict.refusal().unwrap().advice.contains("stage it again"), "{verdict:?}");
        }
        let named = |id: &'static str| append_to(id);
        let wrong = kit.propose(1, 5, &[kit.file("d.parquet").await, named(old)]).await;
        assert_eq!(short(&wrong), "rejected TableReplacedException TABLE_REPLACED");
        let sure = kit.propose(1, 6, &[kit.file("e.parquet").await, named(new)]).await;
        assert_eq!(short(&sure), "committed 1");
        kit.table.world.clock.advance_ms(1_000);
        let again = kit.propose(2, 7, &[kit.file("c.parquet").await, append_info()]).await;
        assert_eq!(short(&again), "committed 2");
        // Whoever says that it read another table is not believed later, either.
        let stale = kit.propose(3, 8, &[kit.file("f.parquet").await, named(old)]).await;
        assert_eq!(short(&stale), "rejected TableReplacedException TABLE_REPLACED");
        assert_eq!(kit.versions(), [0, 1, 2]);
    }
}

#[tokio::test]
async fn what_was_staged_before_the_first_table_that_was_seen_is_not_for_it() {
    let kit = Kit::empty().await;
    // The files of the table before went with it.
    let mut lost = kit.file("gone.parquet").await;
    lost["add"]["path"] = json!("swept.parquet");
    let early = kit.stage(1, 1, &[lost, append_info()]).await;
    let late = kit.stage(1, 2, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.world.clock.advance_ms(1_000);
    kit.table.log(0, &creation_of(crate::delta::testkit::TABLE_ID, &[], json!({}))).await;
    assert_eq!(short(&kit.judge(&early).await), "rejected TableReplacedException TABLE_REPLACED");
    assert_eq!(short(&kit.propose(1, 3, &[kit.file("b.parquet").await, append_info()]).await), "committed 1");
    // The head remembers it.
    assert_eq!(short(&kit.cold().judge(&late).await), "rejected TableReplacedException TABLE_REPLACED");
}

#[tokio::test]
async fn a_rewritten_history_is_an_alarm() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.log(1, &[kit.file("other.parquet").await, append_info()]).await;
    let verdict = kit.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException LOG_REWRITTEN");
    kit.table.delete_log(1).await;
    let verdict = kit.propose(1, 3, &[kit.file("c.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "rejected DamagedLogException LOG_BEHIND_HEAD");
}

#[tokio::test]
async fn open_proposals_are_found_with_their_files() {
    let kit = Kit::unpartitioned(json!({})).await;
    let world = &kit.table.world;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    kit.table
        .put("_delta_log/_staged_commits/00000000000000000002.00000000-0000-0000-0000-000000000003.json", b"{")
        .await;
    let open = proposals::open(&*world.items, &*world.objects, &*world.ports.clock, &kit.table.root).await.unwrap();
    assert_eq!(open.len(), 2);
    let files = [kit.table.root.object("b.parquet")].into();
    assert_eq!(open[0].files, proposals::NamedFiles::Known(files));
    assert!(matches!(open[1].files, proposals::NamedFiles::Unknown { .. }));
}

#[tokio::test]
async fn proposals_are_listed_newest_first() {
    let kit = Kit::unpartitioned(json!({})).await;
    for id in 1..=5_i64 {
        kit.table.world.clock.advance_ms(1_000);
        kit.propose(id, id as u128, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await;
    }
    let (items, clock) = (&*kit.table.world.items, &*kit.table.world.ports.clock);
    let mut after = None;
    let mut versions = Vec::new();
    loop {
        let page = proposals::of_table(items, clock, &kit.table.root, 2, after.as_deref()).await.unwrap();
        versions.extend(page.proposals.iter().filter_map(|one| one.status.version()).map(|version| version.0));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(versions, [5, 4, 3, 2, 1]);
}
