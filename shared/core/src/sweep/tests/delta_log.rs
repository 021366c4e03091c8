//! What lies in and beside a Delta log: counts that writers left, objects where commits are staged, odd paths.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::delta::snapshot;
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, append_info, creation_of, remove_line, text};
use crate::store::Objects;
use crate::sweep::items::RunState;

const ORPHAN: &str = "wh/t/orphan.parquet";
const STAGED: &str = "wh/t/_delta_log/_staged_commits";
const TEMP: &str = "wh/t/_delta_log/.tmp";
const RATIFIED: &str = "wh/t/_delta_log/_commits";
const ID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

/// Three versions with a live file each but the first, and an orphan, eight days ago.
async fn table(lake: &Lake, configuration: Value) -> TableKit {
    let kit = lake.delta("t", "wh/t", &creation_of(TABLE_ID, &[], configuration)).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for (version, name) in [(1, "a.parquet"), (2, "b.parquet")] {
        lake.put(&format!("wh/t/{name}"), "x").await;
        let mut info = append_info();
        info["commitInfo"]["txnId"] = json!(format!("txn-{version}"));
        kit.log(version, &[info, add_line(name, 10)]).await;
    }
    lake.put(ORPHAN, "x").await;
    lake.days(8);
    kit
}

async fn outcome(lake: &Lake) -> (Option<String>, BTreeSet<String>) {
    let (record, gone) = lake.gone().await;
    (record.reason, gone)
}

fn orphan() -> (Option<String>, BTreeSet<String>) {
    (None, [ORPHAN.to_owned()].into())
}

fn refused(reason: RefusalReason) -> (Option<String>, BTreeSet<String>) {
    (Some(reason.as_str().to_owned()), BTreeSet::new())
}

#[tokio::test]
async fn a_checksum_that_contradicts_the_log_stops_the_run() {
    let cases = [
        (json!({"numFiles": 2, "tableSizeBytes": 20}), true),
        (json!({"numFiles": 2}), true),
        (json!({"tableSizeBytes": 20, "numFiles": null}), true),
        (json!({"protocol": {}}), true),
        (json!("torn"), true),
        (json!({"numFiles": 3, "tableSizeBytes": 30}), false),
        (json!({"numFiles": 1}), false),
        (json!({"tableSizeBytes": 21}), false),
        (json!({"numFiles": 3, "txnId": "txn-2"}), false),
        // Of a writer whose version became another one.
        (json!({"numFiles": 3, "txnId": "of-another-commit"}), true),
    ];
    for (checksum, agrees) in cases {
        let lake = Lake::new();
        table(&lake, json!({})).await;
        lake.put("wh/t/_delta_log/00000000000000000002.crc", checksum.to_string()).await;
        // Of an earlier version: whatever it says, that is over.
        lake.put("wh/t/_delta_log/00000000000000000001.crc", json!({"numFiles": 77}).to_string()).await;
        let expected = if agrees { orphan() } else { refused(RefusalReason::MetadataIncomplete) };
        assert_eq!(outcome(&lake).await, expected, "{checksum}");
    }
}

#[tokio::test]
async fn the_hint_at_the_last_checkpoint_is_held_against_it() {
    let cases = [
        (json!({"version": 1, "size": 3, "numOfAddFiles": 1}), true),
        (json!({"version": 1, "size": 3}), true),
        (json!({"version": 1}), true),
        (json!({"size": 99}), true),
        // Stale: there is a newer one.
        (json!({"version": 0, "size": 99, "numOfAddFiles": 99}), true),
        (json!({"version": 1, "numOfAddFiles": 2}), false),
        (json!({"version": 1, "numOfAddFiles": 0}), false),
        (json!({"version": 1, "size": 4}), false),
        // The log has lost its end.
        (json!({"version": 3}), false),
    ];
    for (hint, agrees) in cases {
        let lake = Lake::new();
        let kit = table(&lake, json!({})).await;
        let objects = lake.world.objects.as_ref();
        let state = snapshot::load(objects, &kit.root, Some(crate::delta::Version(1))).await.unwrap();
        kit.checkpoint(&state).await;
        kit.delete_log(0).await;
        lake.put("wh/t/_delta_log/_last_checkpoint", hint.to_string()).await;
        let expected = if agrees { orphan() } else { refused(RefusalReason::MetadataIncomplete) };
        assert_eq!(outcome(&lake).await, expected, "{hint}");
    }
}

#[tokio::test]
async fn what_is_staged_under_an_odd_name_keeps_what_it_names() {
    let names = [
        format!("{STAGED}/3.{ID}.json"),
        format!("{STAGED}/00000000000000000003.{}.json", ID.to_uppercase()),
        format!("{STAGED}/00000000000000000003.{ID}.json.tmp"),
        format!("{STAGED}/sub/00000000000000000003.{ID}.json"),
        format!("{STAGED}/00000000000000000003.json"),
        format!("{TEMP}/00000000000000000003.{ID}.json"),
        // What the DynamoDB log store copies to the log when its entry is there.
        format!("{TEMP}/00000000000000000003.json.{ID}"),
        // What deltalake copies.
        format!("wh/t/_delta_log/_commit_{ID}.json.tmp"),
        // What another catalog has ratified, or may yet.
        format!("{RATIFIED}/00000000000000000003.{ID}.json"),
        format!("{RATIFIED}/3.json"),
    ];
    for name in &names {
        let lake = Lake::new();
        table(&lake, json!({})).await;
        lake.put(name, text(&[append_info(), add_line("orphan.parquet", 1)])).await;
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{name}: {:?}", record.error);
        assert!(counts(&record).get("pending_commit").is_some_and(|count| *count >= 1), "{name}: {record:?}");
        // Torn, it may name any file, until it is so old that nobody can mean it any more.
        lake.put(name, "{\"add\"").await;
        let stops = !name.ends_with(&format!(".tmp/00000000000000000003.{ID}.json"));
        let expected = if stops { refused(RefusalReason::PendingUnreadable) } else { orphan() };
        assert_eq!(outcome(&lake).await, expected, "{name}");
        lake.days(15);
        let expected = if stops { orphan().1 } else { BTreeSet::new() };
        assert_eq!(outcome(&lake).await, (None, expected), "{name}");
    }
}

#[tokio::test]
async fn copies_of_commits_that_the_log_has_keep_nothing() {
    let lake = Lake::new();
    table(&lake, json!({})).await;
    let lines = text(&[append_info(), add_line("orphan.parquet", 1)]);
    lake.put(&format!("{TEMP}/00000000000000000002.json.{ID}"), lines.clone()).await;
    lake.put(&format!("{TEMP}/00000000000000000002.{ID}.{ID}.json"), lines).await;
    lake.put(&format!("{STAGED}/"), "").await;
    assert_eq!(outcome(&lake).await, orphan());
}

#[tokio::test]
async fn change_files_stay_also_when_the_feed_was_switched_off() {
    let lake = Lake::new();
    let kit = table(&lake, json!({"delta.enableChangeDataFeed": "true"})).await;
    let (change, stray) = ("wh/t/_change_data/c.parquet", "wh/t/_change_data/stray.parquet");
    lake.put(change, "x").await;
    lake.put(stray, "x").await;
    lake.days(8);
    let cdc = json!({"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": false}});
    kit.log(3, &[append_info(), cdc]).await;
    kit.log(4, &[creation_of(TABLE_ID, &[], json!({}))[1].clone()]).await;
    assert_eq!(outcome(&lake).await, (None, [ORPHAN, stray].map(str::to_owned).into()));
    lake.days(8);
    assert_eq!(outcome(&lake).await, (None, [change.to_owned()].into()));
}

#[tokio::test]
async fn an_old_checkpoint_shows_that_no_young_commit_is_gone() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    let change = "wh/t/_change_data/c.parquet";
    lake.put(change, "x").await;
    let snapshot = snapshot::load(&*lake.world.ports.objects, &kit.root, None).await.unwrap();
    kit.checkpoint(&snapshot).await;
    let commits = lake.keys().into_iter().filter(|key| key.contains("_delta_log/") && key.ends_with(".json"));
    for key in commits.collect::<Vec<_>>() {
        crate::store::Objects::delete(lake.world.objects.as_ref(), &at(&key), None).await.unwrap();
    }
    assert_eq!(outcome(&lake).await, refused(RefusalReason::MetadataIncomplete));
    lake.days(8);
    assert_eq!(outcome(&lake).await, (None, [ORPHAN, change].map(str::to_owned).into()));
}

#[tokio::test]
async fn doubled_slashes_are_one_key_for_some_and_another_for_others() {
    let lake = Lake::new();
    let kit = table(&lake, json!({})).await;
    for path in ["p//live.parquet", "p/live.parquet", "p//orphan.parquet", "q//old.parquet", "q/old.parquet"] {
        lake.put(&format!("wh/t/{path}"), "x").await;
    }
    kit.log(3, &[add_line("p//live.parquet", 1), add_line("q//old.parquet", 1)]).await;
    kit.log(4, &[remove_line("q//old.parquet", lake.world.ports.clock.now_ms())]).await;
    lake.days(8);
    let (record, gone) = lake.gone().await;
    let expected = [ORPHAN, "wh/t/p//orphan.parquet", "wh/t/q//old.parquet", "wh/t/q/old.parquet"];
    assert_eq!(gone, expected.map(str::to_owned).into(), "{:?}", record.error);
    assert_eq!(counts(&record).get("spelled_differently"), Some(&1));
}

#[tokio::test]
async fn what_another_catalog_ratified_and_published_is_kept_for_one_retention() {
    let lake = Lake::new();
    table(&lake, json!({})).await;
    let (published, next) =
        (format!("{RATIFIED}/00000000000000000002.{ID}.json"), format!("{RATIFIED}/{:020}.{ID}.json", 3));
    lake.put(&published, text(&[append_info(), add_line("orphan.parquet", 1)])).await;
    let bytes = text(&[append_info(), add_line("s3://lake/wh/t/other.parquet", 1)]);
    lake.put("wh/t/other.parquet", "x").await;
    lake.put(&next, bytes).await;
    assert_eq!(outcome(&lake).await, (None, BTreeSet::new()));
    lake.days(9);
    assert_eq!(outcome(&lake).await, orphan());
    // What is not published is kept as long as it lies there, and nobody but its catalog takes it away.
    lake.days(60);
    assert_eq!(outcome(&lake).await, (None, BTreeSet::new()));
    lake.world.objects.delete(&at(&next), None).await.unwrap();
    assert_eq!(outcome(&lake).await, (None, ["wh/t/other.parquet".to_owned()].into()));
    assert!(lake.keys().contains(&published));
}

#[tokio::test]
async fn what_a_table_elsewhere_has_not_published_is_kept_here() {
    let lake = Lake::new();
    table(&lake, json!({})).await;
    let other = lake.delta("c", "dev/c", &creation_of("clone", &[], json!({}))).await;
    let staged = format!("dev/c/_delta_log/_commits/00000000000000000001.{ID}.json");
    let lines = [append_info(), add_line("s3://lake/wh/t/orphan.parquet", 1)];
    lake.put(&staged, text(&lines)).await;
    assert_eq!(outcome(&lake).await, (None, BTreeSet::new()));
    // Published, it is in the log.
    other.log(1, &lines).await;
    lake.days(9);
    assert_eq!(outcome(&lake).await, (None, BTreeSet::new()));
    lake.directory.remove("db", "c");
    assert_eq!(outcome(&lake).await, orphan());
}
