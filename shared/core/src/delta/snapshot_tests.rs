use super::*;
use crate::delta::testkit::{TableKit, add_line, remove_line};
use serde_json::json;

#[tokio::test]
async fn commits_fold_into_live_files_and_tombstones() {
    let kit = TableKit::new().await;
    let root = kit.root.clone();
    kit.log(0, &kit.creation()).await;
    kit.log(1, &[add_line("a.parquet", 10), json!({"txn": {"appId": "s", "version": 3}})]).await;
    kit.log(2, &[add_line("b%20c.parquet", 10), remove_line("a.parquet", 77)]).await;
    let snapshot = load(&*kit.world.objects, &root, None).await.unwrap();
    assert_eq!(snapshot.version, Version(2));
    assert_eq!(snapshot.app_ids.get("s"), Some(&3));
    let live: Vec<&str> = snapshot.live.keys().map(|key| key.at.key.as_str()).collect();
    assert_eq!(live, ["wh/t/b c.parquet"]);
    let tombstone = snapshot.tombstones.values().next().unwrap();
    assert_eq!(tombstone.deletion_timestamp, Some(77));
    let earlier = load(&*kit.world.objects, &root, Some(Version(1))).await.unwrap();
    assert_eq!(earlier.live.len(), 1);
    assert!(earlier.tombstones.is_empty());
}

#[tokio::test]
async fn a_checkpoint_stands_for_the_commits_before_it() {
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    kit.log(1, &[add_line("a.parquet", 10)]).await;
    kit.log(2, &[add_line("b.parquet", 20), remove_line("a.parquet", 5)]).await;
    let plain = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    kit.checkpoint(&plain).await;
    kit.log(3, &[add_line("c.parquet", 30)]).await;
    let before = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    for version in 0..3 {
        kit.delete_log(version).await;
    }
    let after = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(after.live.len(), 2);
    assert_eq!(after.metadata.schema_string, plain.metadata.schema_string);
}

#[tokio::test]
async fn gaps_and_unread_checkpoints_are_named() {
    let kit = TableKit::new().await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::NoTable(_))));
    kit.log(0, &kit.creation()).await;
    kit.log(2, &[add_line("a.parquet", 10)]).await;
    let error = load(&*kit.world.objects, &kit.root, None).await.unwrap_err();
    assert_eq!(error, SnapshotError::LogGap { missing: Version(1), wanted: Version(2) });
    kit.put("_delta_log/00000000000000000001.checkpoint.0000000001.0000000002.parquet", b"x").await;
    let error = load(&*kit.world.objects, &kit.root, None).await.unwrap_err();
    assert!(matches!(error, SnapshotError::UnsupportedCheckpoint { kind: "multi-part", .. }), "{error}");
    kit.put("_delta_log/00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", b"x").await;
    let error = load(&*kit.world.objects, &kit.root, None).await.unwrap_err();
    assert!(matches!(error, SnapshotError::UnsupportedCheckpoint { kind: "V2", .. }), "{error}");
    kit.put("_delta_log/00000000000000000002.checkpoint.parquet", b"PAR1 not parquet").await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::Damaged { .. })));
}

#[tokio::test]
async fn an_empty_or_broken_commit_is_damage() {
    let kit = TableKit::new().await;
    kit.put("_delta_log/00000000000000000000.json", b"").await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::Damaged { .. })));
    kit.put("_delta_log/00000000000000000000.json", b"{\"add\":").await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::Damaged { .. })));
    kit.log(0, &[json!({"commitInfo": {}})]).await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::NoMetadata(_))));
}
