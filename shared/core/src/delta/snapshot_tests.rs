use super::*;
use crate::delta::log::{MainFile, log_key};
use crate::delta::testkit::{Form, TableKit, action_lines, add_line, remove_line, text};
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
async fn gaps_and_damage_are_named() {
    let kit = TableKit::new().await;
    assert!(matches!(load(&*kit.world.objects, &kit.root, None).await, Err(SnapshotError::NoTable(_))));
    kit.log(0, &kit.creation()).await;
    kit.log(2, &[add_line("a.parquet", 10)]).await;
    let gap = SnapshotError::LogGap { missing: Version(1), wanted: Version(2) };
    assert_eq!(load(&*kit.world.objects, &kit.root, None).await.unwrap_err(), gap);
    // A part is missing: the checkpoint does not count.
    kit.put("_delta_log/00000000000000000001.checkpoint.0000000001.0000000002.parquet", b"x").await;
    assert_eq!(load(&*kit.world.objects, &kit.root, None).await.unwrap_err(), gap);
    for name in [
        "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
        "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a12.json",
        "00000000000000000002.checkpoint.parquet",
    ] {
        kit.put(&format!("_delta_log/{name}"), b"PAR1 neither Parquet nor JSON").await;
        let error = load(&*kit.world.objects, &kit.root, None).await.unwrap_err();
        assert!(matches!(&error, SnapshotError::Damaged { at, .. } if at.key.ends_with(name)), "{error}");
    }
}

#[tokio::test]
async fn sidecars_are_found_or_missed() {
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    kit.log(1, &[add_line("a.parquet", 10)]).await;
    let plain = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    let main = |path: &str, size: usize| {
        let (mut lines, _) = action_lines(&plain);
        lines.push(json!({"sidecar": {"path": path, "sizeInBytes": size, "modificationTime": 1}}));
        text(&lines)
    };
    kit.checkpoint_as(&plain, Form::Sidecars(MainFile::Json, 1)).await;
    let name = "00000000-0000-0000-0000-000000000000.parquet";
    let bytes = kit.get(&log_key(&kit.root, &format!("_sidecars/{name}"))).await.unwrap();
    let at = format!("_delta_log/00000000000000000001.checkpoint.{}.json", uuid::Uuid::from_u128(77));
    for (path, size, expected) in [
        (name.to_owned(), bytes.len(), ""),
        (format!("s3://lake/wh/t/_delta_log/_sidecars/{name}"), bytes.len(), ""),
        (name.to_owned(), bytes.len() + 1, "the object has"),
        ("other.parquet".to_owned(), 10, "gone"),
        ("../x.parquet".to_owned(), 10, "segment"),
        ("s3://lake/wh/u/_delta_log/_sidecars/x.parquet".to_owned(), 10, "outside"),
    ] {
        kit.put(&at, main(&path, size).as_bytes()).await;
        match load(&*kit.world.objects, &kit.root, None).await {
            Ok(found) => assert_eq!((found, expected), (plain.clone(), ""), "{path}"),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{path}: {error}"),
        }
    }
}

#[tokio::test]
async fn the_hint_saves_listings_and_is_not_believed() {
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    for version in 1..1_100 {
        kit.log(version, &[json!({"txn": {"appId": "a", "version": version}})]).await;
    }
    let objects = &*kit.world.objects;
    let whole = load(objects, &kit.root, None).await.unwrap();
    let early = load(objects, &kit.root, Some(Version(1_050))).await.unwrap();
    kit.checkpoint(&early).await;
    for (hint, at, gets) in [
        ("{\"version\":1050}", None, 1 + 1 + 49),
        ("{\"version\":1050}", Some(Version(1_060)), 1 + 1 + 10),
        // Stale, absurd, or of no use.
        ("{\"version\":1090}", None, 1 + 1 + 49),
        ("{\"version\":-4}", None, 1 + 1 + 49),
        ("[", None, 1 + 1 + 49),
        ("{\"version\":1050}", Some(Version(7)), 1 + 8),
    ] {
        kit.put("_delta_log/_last_checkpoint", hint.as_bytes()).await;
        let before = objects.object_usage();
        let found = load(objects, &kit.root, at).await.unwrap();
        let used = objects.object_usage().since(&before);
        assert_eq!(used.gets, gets, "{hint} {at:?}");
        assert!((2..=4).contains(&used.lists), "{hint} {at:?}: {}", used.lists);
        assert_eq!(found.app_ids.get("a"), Some(&at.unwrap_or(whole.version).0));
    }
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
