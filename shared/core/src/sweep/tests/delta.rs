//! Sweeps of Delta tables, with commits under way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::testkit::*;
use super::super::*;
use crate::commit::context::Context;
use crate::commit::door::judge_one;
use crate::commit::head;
use crate::commit::keys::ProposalId;
use crate::commit::managed::{Asked, Ratification, publish_pending, ratify};
use crate::commit::run::{Outcome, Staged};
use crate::commit::sync::NoCatalog;
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, append_info, creation_of, remove_line};
use crate::delta::{Snapshot, snapshot};
use crate::sweep::items::RunState;

/// A table partitioned by `_p`, its optimizer made at the start.
async fn table(lake: &Lake, configuration: Value) -> TableKit {
    let kit = lake.delta("t", "wh/t", &creation_of(TABLE_ID, &["_p"], configuration)).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    kit
}

/// Writes a file and answers an add action for it; `path` is literal, `uri` what the log says.
async fn file(lake: &Lake, path: &str, uri: &str) -> Value {
    lake.put(&format!("wh/t/{path}"), path.to_owned()).await;
    add_line(uri, path.len())
}

fn now(lake: &Lake) -> i64 {
    lake.world.ports.clock.now_ms()
}

async fn gone_after(lake: &Lake) -> (items::RunRecord, BTreeSet<String>) {
    let before = lake.keys();
    let record = lake.sweep("t", Mode::Ordinary).await;
    let after = lake.keys();
    (record, before.difference(&after).map(|key| key.strip_prefix("wh/t/").unwrap().to_owned()).collect())
}

#[tokio::test]
async fn live_files_tombstones_and_reserved_names_stay() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let adds = [
        file(&lake, "a.parquet", "a.parquet").await,
        file(&lake, "_p=a b/é+.parquet", "_p=a%20b/%C3%A9+.parquet").await,
        // An old writer that did not encode.
        file(&lake, "_p=50%25/raw.parquet", "_p=50%25/raw.parquet").await,
        file(&lake, "old.parquet", "old.parquet").await,
        file(&lake, "recent.parquet", "recent.parquet").await,
        file(&lake, "absolute.parquet", "s3a://lake/wh/t/absolute.parquet").await,
    ];
    kit.log(1, &adds).await;
    kit.log(2, &[remove_line("old.parquet", now(&lake))]).await;
    for path in ["_p=x/orphan.parquet", "orphan.parquet", "_change_data/cdc.parquet", "ab/deletion_vector_1.bin"] {
        file(&lake, path, path).await;
    }
    for path in ["_other/x.parquet", ".hidden.parquet", "note.md", "dir/", "_delta_log/.tmp/x.json"] {
        file(&lake, path, path).await;
    }
    // The longer one of the optimizer's three days and the table's seven.
    lake.days(6);
    kit.log(3, &[remove_line("recent.parquet", now(&lake))]).await;
    assert_eq!(gone_after(&lake).await.1, BTreeSet::new());
    lake.days(2);
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
    let expected = [
        "_change_data/cdc.parquet",
        "_p=x/orphan.parquet",
        "ab/deletion_vector_1.bin",
        "old.parquet",
        "orphan.parquet",
    ];
    assert_eq!(gone, expected.map(str::to_owned).into());
    assert_eq!(record.pointer.as_deref(), Some("s3://lake/wh/t version 3"));
}

#[tokio::test]
async fn the_tables_own_retention_counts_if_it_is_longer() {
    for (setting, days) in [("interval 1 day", 3), ("interval 2 weeks", 14)] {
        let lake = Lake::new();
        table(&lake, json!({"delta.deletedFileRetentionDuration": setting})).await;
        file(&lake, "orphan.parquet", "").await;
        lake.days(days);
        assert_eq!(gone_after(&lake).await.1.len(), 0, "{setting}");
        advance(&lake.world.clock, 1);
        assert_eq!(gone_after(&lake).await.1.len(), 1, "{setting}");
    }
}

#[tokio::test]
async fn a_checkpoint_and_the_commits_after_it() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let first = file(&lake, "first.parquet", "first.parquet").await;
    kit.log(1, &[first]).await;
    let state: Snapshot = snapshot::load(lake.world.objects.as_ref(), &kit.root, None).await.unwrap();
    kit.checkpoint(&state).await;
    kit.delete_log(0).await;
    let second = file(&lake, "second.parquet", "second.parquet").await;
    kit.log(2, &[second]).await;
    file(&lake, "orphan.parquet", "").await;
    lake.days(8);
    assert_eq!(gone_after(&lake).await.1, ["orphan.parquet".to_owned()].into());
}

#[tokio::test]
async fn a_checkpoint_alone() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let first = file(&lake, "first.parquet", "first.parquet").await;
    kit.log(1, &[first]).await;
    let state: Snapshot = snapshot::load(lake.world.objects.as_ref(), &kit.root, None).await.unwrap();
    kit.checkpoint(&state).await;
    for version in 0..2 {
        kit.delete_log(version).await;
    }
    file(&lake, "orphan.parquet", "").await;
    lake.days(8);
    // Another table looks at it, twice: it is what it was.
    for name in ["u", "v"] {
        Iceberg::create(&lake, name, 2).await;
        lake.optimize(name, json!({})).await;
        assert_eq!(lake.sweep(name, Mode::Ordinary).await.state, RunState::Completed);
    }
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(gone, ["orphan.parquet".to_owned()].into(), "{record:?}");
    assert_eq!(record.pointer.as_deref(), Some("s3://lake/wh/t version 1"));
    // What its change feed names is in the commits alone.
    let lake = Lake::new();
    let kit = table(&lake, json!({"delta.enableChangeDataFeed": "true"})).await;
    kit.log(1, &[append_info()]).await;
    let state: Snapshot = snapshot::load(lake.world.objects.as_ref(), &kit.root, None).await.unwrap();
    kit.checkpoint(&state).await;
    kit.delete_log(0).await;
    assert_eq!(gone_after(&lake).await.0.reason.as_deref(), Some("metadata_incomplete"));
    lake.days(8);
    assert_eq!(gone_after(&lake).await.0.state, RunState::Completed, "its first commit is old");
    kit.delete_log(1).await;
    assert_eq!(
        gone_after(&lake).await.0.state,
        RunState::Completed,
        "its checkpoint is old, which is younger than what it holds"
    );
}

#[tokio::test]
async fn staged_commits_protect_their_files_until_their_verdict() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let live = file(&lake, "live.parquet", "live.parquet").await;
    kit.log(1, std::slice::from_ref(&live)).await;
    let pending = file(&lake, "pending.parquet", "pending.parquet").await;
    // Names a column that the table has not: it will be refused. It also names a live file.
    let (key, etag) = kit.stage(2, 7, &[append_info(), pending, remove_line("live.parquet", now(&lake))]).await;
    lake.days(10);
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(gone, BTreeSet::new(), "{record:?}");
    assert_eq!(counts(&record).get("pending_commit"), Some(&2));
    let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
    let outcome = judge_one(ctx, &Staged { key: key.clone(), etag: Some(etag) }).await.unwrap();
    let Outcome::Verdict(verdict) = outcome else { panic!("{outcome:?}") };
    assert_eq!(verdict.status().name(), "rejected");
    // Its writer may try again with the same file, so both stay for one retention.
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(gone, BTreeSet::new(), "{record:?}");
    lake.days(8);
    let (record, gone) = gone_after(&lake).await;
    let staged = key.key().key.strip_prefix("wh/t/").unwrap().to_owned();
    assert_eq!(gone, ["pending.parquet".to_owned(), staged].into(), "{record:?}");
    assert!(lake.keys().contains("wh/t/live.parquet"));
}

#[tokio::test]
async fn change_files_stay_as_long_as_their_commit_is_young() {
    let lake = Lake::new();
    let kit = table(&lake, json!({"delta.enableChangeDataFeed": "true"})).await;
    let change = "_change_data/_p=a b/cdc.parquet";
    file(&lake, change, "").await;
    file(&lake, "_change_data/orphan.parquet", "").await;
    // Decided long after its files had been written.
    lake.days(30);
    let path = "_change_data/_p=a%20b/cdc.parquet";
    let cdc =
        json!({"cdc": {"path": path, "partitionValues": {"_p": "a b"}, "size": change.len(), "dataChange": false}});
    kit.log(1, &[append_info(), cdc]).await;
    assert_eq!(gone_after(&lake).await.1, ["_change_data/orphan.parquet".to_owned()].into());
    lake.days(8);
    assert_eq!(gone_after(&lake).await.1, [change.to_owned()].into());
}

type Change = fn(&mut Vec<Value>);

#[tokio::test]
async fn tables_that_cannot_be_followed_completely_are_refused() {
    let cases: [(RefusalReason, &str, Change); 4] = [
        (RefusalReason::UnsupportedFeature, "catalog", |lines| {
            lines[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}});
        }),
        (RefusalReason::UnsupportedFeature, "somethingNew", |lines| {
            lines[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7,
                "writerFeatures": ["somethingNew"]}});
        }),
        (RefusalReason::UnsupportedFeature, "not understood", |lines| {
            lines[1]["metaData"]["configuration"] = json!({"delta.deletedFileRetentionDuration": "interval 1 month"});
        }),
        (RefusalReason::MetadataIncomplete, "protocol", |lines| lines.truncate(1)),
    ];
    for (reason, text, change) in cases {
        let lake = Lake::new();
        let kit = table(&lake, json!({})).await;
        let mut lines = creation_of(TABLE_ID, &[], json!({}));
        change(&mut lines);
        kit.log(0, &lines).await;
        refused(&lake, reason, text).await;
    }
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let mut add = file(&lake, "a.parquet", "a.parquet").await;
    add["add"]["deletionVector"] =
        json!({"storageType": "z", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 34, "cardinality": 1});
    kit.log(1, &[add]).await;
    refused(&lake, RefusalReason::UnresolvedPath, "storage type").await;
}

async fn refused(lake: &Lake, reason: RefusalReason, text: &str) {
    file(lake, "orphan.parquet", "").await;
    lake.days(10);
    let (record, gone) = gone_after(lake).await;
    assert_eq!(record.reason.as_deref(), Some(reason.as_str()), "{record:?}");
    assert!(record.error.as_ref().is_some_and(|error| error.contains(text)), "{text}: {:?}", record.error);
    assert_eq!(gone, BTreeSet::new());
}

#[tokio::test]
async fn logs_with_gaps_and_commits_that_cannot_be_read() {
    for (reason, text, path) in [
        (RefusalReason::MetadataIncomplete, "missing", "_delta_log/00000000000000000002.json"),
        (RefusalReason::MetadataUnreadable, "line", "_delta_log/00000000000000000001.json"),
        (RefusalReason::MetadataUnreadable, "checkpoint", "_delta_log/00000000000000000000.checkpoint.parquet"),
        (
            RefusalReason::MetadataIncomplete,
            "commit 1 is missing",
            "_delta_log/00000000000000000003.checkpoint.0000000001.0000000002.parquet",
        ),
        (
            RefusalReason::PendingUnreadable,
            "no verdict",
            "_delta_log/_staged_commits/00000000000000000001.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        ),
    ] {
        let lake = Lake::new();
        table(&lake, json!({})).await;
        if text == "commit 1 is missing" {
            lake.put("wh/t/_delta_log/00000000000000000004.json", "{}").await;
        }
        lake.put(&format!("wh/t/{path}"), "{\"add\": {").await;
        refused(&lake, reason, text).await;
    }
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    kit.delete_log(0).await;
    refused(&lake, RefusalReason::MetadataIncomplete, "no commit").await;
}

#[tokio::test]
async fn what_is_ratified_and_not_published_stays_as_what_is_published() {
    let id = "1d1ca986-4d21-43cc-af34-e5017f3a8f1c";
    let info = |version: i64| {
        json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": true,
            "inCommitTimestamp": 1_000 + version, "txnId": format!("txn-{version}")}})
    };
    let configuration = json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": id});
    let mut lines = vec![info(0)];
    lines.extend(creation_of(TABLE_ID, &[], configuration));
    lines[1] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged", "vacuumProtocolCheck"],
        "writerFeatures": ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"]}});
    // Without the commitInfo that others make.
    lines.truncate(3);
    let lake = Lake::new();
    let kit = lake.delta("t", "wh/t", &lines).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let mut late = kit.data("late.parquet", None, 3).await;
    late["add"]["partitionValues"] = json!({});
    let (key, etag) = kit.stage(1, 7, &[info(1), late]).await;
    let size_bytes = crate::store::ReadObjects::head(lake.world.objects.as_ref(), &key.key()).await.unwrap().size_bytes;
    file(&lake, "orphan.parquet", "").await;
    lake.days(10);
    // Until a commit was ratified here, it may be another catalog's.
    assert_eq!(gone_after(&lake).await.0.reason.as_deref(), Some("unsupported_feature"));
    let asked = Asked {
        root: kit.root.clone(),
        table_id: id.to_owned(),
        version: crate::delta::Version(1),
        id: ProposalId(key.id),
        size_bytes,
        modified_ms: 7,
        timestamp_ms: 1_001,
    };
    let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
    let ratified = ratify(ctx, &asked).await.unwrap();
    assert!(matches!(ratified, Ratification::Ratified(_)), "{ratified:?} {etag:?}");
    lake.days(30);
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(gone, ["orphan.parquet".to_owned()].into(), "{record:?}");
    assert_eq!(counts(&record).get("pending_commit"), Some(&2), "the file, and the only copy of its commit");
    let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
    publish_pending(ctx, &kit.root, None).await.unwrap();
    lake.days(30);
    let (record, gone) = gone_after(&lake).await;
    assert_eq!((gone, counts(&record).get("referenced")), (BTreeSet::new(), Some(&1)), "{record:?}");
}

/// Runs a sweep with an action before each of its reads in turn, until one run ends before the action's turn.
async fn with_action_before_each_read<F>(mut check: impl AsyncFnMut(&Lake, &TableKit, i64, &RunOutcome), make: F)
where
    F: Fn(&Lake, &TableKit) -> BoxFuture<'static, ()>,
{
    for calls in 0.. {
        let lake = Lake::new();
        let kit = table(&lake, json!({})).await;
        let live = file(&lake, "live.parquet", "live.parquet").await;
        kit.log(1, &[live]).await;
        kit.data("late.parquet", None, 3).await;
        lake.days(8);
        let request = lake.start("t", Mode::Ordinary).await;
        let action = make(&lake, &kit);
        let hook = Hook::new(calls, Box::new(move || action));
        let outcome = lake.run_hooked(&request, &hook).await;
        let fence = head::load(lake.world.items.as_ref(), &kit.root).await.unwrap().and_then(|head| head.fence);
        assert_eq!(fence, None, "the fence is taken off");
        assert!(lake.keys().contains("wh/t/live.parquet"));
        if !hook.has_fired() {
            assert!(!lake.keys().contains("wh/t/late.parquet"));
            assert!(calls > 10);
            return;
        }
        check(&lake, &kit, calls, &outcome).await;
    }
}

#[tokio::test]
async fn a_commit_of_an_unknown_writer_before_the_last_look_saves_its_files() {
    with_action_before_each_read(
        async |lake, _, calls, outcome| {
            assert!(matches!(outcome, RunOutcome::Finished(_)), "{outcome:?}");
            // The commit itself is read after the last listing of the log only by those who come later.
            assert!(lake.keys().contains("wh/t/late.parquet"), "committed after {calls} calls");
        },
        |_, kit| {
            let kit = kit.clone();
            Box::pin(async move { kit.log(2, &[add_line("late.parquet", 12)]).await })
        },
    )
    .await;
}

#[tokio::test]
async fn a_proposal_staged_at_any_moment_is_committed_with_its_file_or_refused() {
    let committed = Arc::new(Mutex::new([0, 0]));
    let tally = committed.clone();
    with_action_before_each_read(
        async move |lake, kit, calls, _| {
            let key = staged_key(kit);
            let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
            let outcome = judge_one(ctx, &Staged { key, etag: None }).await.unwrap();
            let Outcome::Verdict(verdict) = outcome else { panic!("{outcome:?}") };
            let exists = lake.keys().contains("wh/t/late.parquet");
            let is_committed = verdict.committed_version().is_some();
            assert_eq!(is_committed, exists, "staged before read {calls}: {verdict:?}");
            tally.lock().unwrap()[usize::from(is_committed)] += 1;
        },
        |_, kit| {
            let kit = kit.clone();
            Box::pin(async move {
                let size =
                    crate::store::ReadObjects::head(kit.world.objects.as_ref(), &kit.root.object("late.parquet"))
                        .await
                        .map_or(0, |meta| meta.size_bytes);
                let mut add = add_line("late.parquet", usize::try_from(size).unwrap());
                add["add"]["partitionValues"] = json!({"_p": null});
                kit.stage(2, 9, &[append_info(), add]).await;
            })
        },
    )
    .await;
    let [refused, committed] = *committed.lock().unwrap();
    assert!(committed > 10 && refused <= 2, "{committed} committed, {refused} refused");
}

fn staged_key(kit: &TableKit) -> crate::delta::log::StagedKey {
    crate::delta::log::StagedKey { root: kit.root.clone(), version: crate::delta::Version(2), id: Uuid::from_u128(9) }
}

#[tokio::test]
async fn commits_wait_behind_the_fence() {
    let seen = Arc::new(Mutex::new(0));
    let fenced = seen.clone();
    with_action_before_each_read(
        async |_, _, _, outcome| assert!(matches!(outcome, RunOutcome::Finished(_))),
        move |lake, kit| {
            let (items, root, seen) = (lake.world.items.clone(), kit.root.clone(), seen.clone());
            let now_ms = now(lake);
            Box::pin(async move {
                let head = head::load(items.as_ref(), &root).await.unwrap();
                if head.is_some_and(|head| head.active_fence(now_ms).is_some()) {
                    *seen.lock().unwrap() += 1;
                }
            })
        },
    )
    .await;
    // Looks at the tables around, the table, staged commits and the log happen while commits wait.
    assert!(*fenced.lock().unwrap() >= 4);
}

#[tokio::test]
async fn a_crash_between_any_two_calls_leaves_a_fence_that_runs_out() {
    for calls in 0.. {
        let lake = Lake::new();
        let kit = table(&lake, json!({})).await;
        let live = file(&lake, "live.parquet", "live.parquet").await;
        kit.log(1, &[live]).await;
        file(&lake, "orphan.parquet", "").await;
        lake.days(8);
        let request = lake.start("t", Mode::Ordinary).await;
        lake.world.faults.forget_calls();
        lake.world.faults.crash_after(calls);
        let _ = lake.run(&request).await;
        lake.world.faults.revive();
        let whole = u64::try_from(lake.world.faults.calls().len()).unwrap() <= calls;
        lake.world.clock.advance_ms(items::LEASE_MS);
        let outcome = lake.run(&request).await.unwrap();
        assert!(matches!(outcome, RunOutcome::Finished(_) | RunOutcome::AlreadyFinished), "{calls}: {outcome:?}");
        assert!(lake.keys().contains("wh/t/live.parquet") && !lake.keys().contains("wh/t/orphan.parquet"));
        let head = head::load(lake.world.items.as_ref(), &kit.root).await.unwrap();
        assert!(head.is_none_or(|head| head.active_fence(now(&lake)).is_none()), "after {calls} calls");
        if whole {
            return;
        }
    }
}

#[tokio::test]
async fn a_run_asks_for_no_more_than_it_needs() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let live = file(&lake, "live.parquet", "live.parquet").await;
    kit.log(1, &[live]).await;
    file(&lake, "orphan.parquet", "").await;
    lake.days(8);
    let request = lake.start("t", Mode::Ordinary).await;
    use crate::store::{ReadItems, ReadObjects};
    let (items, objects) = (lake.world.items.item_usage(), lake.world.objects.object_usage());
    lake.run(&request).await.unwrap();
    let items = lake.world.items.item_usage().since(&items);
    let objects = lake.world.objects.object_usage().since(&objects);
    // As with Iceberg, and the head: for open commits twice, before and after the fence; three puts of fences.
    assert_eq!((items.gets, items.puts, items.queries, items.transactions), (11, 12, 6, 0));
    // Earlier sightings, what is remembered of the log, the hint at the last checkpoint and the checksum (none of them is
    // there), two commits; signs above, survey and page; staged commits and their copies (three each) and log when loading,
    // change files; staged commits for what they left, log when judging, both before deleting. Puts: what is remembered,
    // what is to go, and as with Iceberg.
    assert_eq!((objects.gets, objects.lists, objects.heads, objects.batch_deletes, objects.puts), (6, 21, 2, 1, 7));
}
