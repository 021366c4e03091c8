use bytes::Bytes;
use lakewarden_core::store::memory::MemoryWorld;
use lakewarden_core::store::{ObjectKey, Objects, PutOptions};
use serde_json::json;

use super::*;

const FIRST: &str = "11111111-1111-4111-8111-111111111111";
const SECOND: &str = "22222222-2222-4222-8222-222222222222";

struct Table {
    world: MemoryWorld,
    root: Location,
    cleanup: Cleanup,
}

fn stats(version: i64) -> Value {
    json!({"numRecords": 1, "minValues": {"id": version}, "maxValues": {"id": version}, "nullCount": {"id": 0}})
}

fn add(version: i64) -> Value {
    json!({"add": {
        "path": format!("{version}.parquet"), "partitionValues": {}, "size": 1, "modificationTime": 1,
        "dataChange": true, "stats": stats(version).to_string(),
    }})
}

fn head() -> Vec<Value> {
    let schema = r#"{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}"#;
    vec![
        json!({"protocol": {
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["domainMetadata", "v2Checkpoint"],
        }}),
        json!({"metaData": {
            "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [], "configuration": {}, "createdTime": 1,
        }}),
        json!({"domainMetadata": {"domain": "d", "configuration": "one", "removed": false}}),
    ]
}

fn lines(actions: &[Value]) -> Bytes {
    actions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into()
}

fn versions(of: impl IntoIterator<Item = i64>) -> BTreeSet<Version> {
    of.into_iter().map(Version).collect()
}

fn checkpoint_name(version: i64, id: &str) -> String {
    format!("{version:020}.checkpoint.{id}.json")
}

impl Table {
    /// Commits 0 to 5, each with one file.
    async fn new() -> Table {
        let table = Table { world: MemoryWorld::new(1), root: Location::new("lake", "t"), cleanup: Cleanup::default() };
        for version in 0..=5 {
            let head = if version == 0 { head() } else { Vec::new() };
            let actions: Vec<Value> = head.into_iter().chain([add(version)]).collect();
            table.put(&format!("{version:020}.json"), lines(&actions)).await;
        }
        table
    }

    fn key(&self, name: &str) -> ObjectKey {
        self.root.object(&format!("_delta_log/{name}"))
    }

    async fn put(&self, name: &str, bytes: Bytes) {
        self.world.objects.put(&self.key(name), bytes, &PutOptions::default()).await.unwrap();
    }

    async fn checkpoint(&self, version: i64, id: &str, change: impl Fn(&mut Vec<Value>)) {
        let mut rows: Vec<Value> = head().into_iter().chain((0..=version).map(add)).collect();
        change(&mut rows);
        rows.insert(0, json!({"checkpointMetadata": {"version": version}}));
        self.put(&checkpoint_name(version, id), lines(&rows)).await;
    }

    async fn lose(&self, commits: impl IntoIterator<Item = i64>) {
        for version in commits {
            self.world.objects.delete(&self.key(&format!("{version:020}.json")), None).await.unwrap();
        }
    }

    async fn keep(&self, commits: impl IntoIterator<Item = i64>, checkpoints: &[(i64, &str)]) -> Kept {
        let checkpoints = checkpoints.iter().map(|(version, id)| checkpoint_name(*version, id)).collect();
        let doomed = Doomed { commits: versions(commits), checkpoints };
        self.cleanup.keep(&*self.world.objects, &self.root, &doomed).await.unwrap()
    }
}

fn forged(rows: &mut Vec<Value>) {
    rows.pop();
}

fn commits_of(kept: &Kept) -> Vec<i64> {
    kept.commits.keys().map(|version| version.0).collect()
}

#[tokio::test]
async fn a_checkpoint_makes_what_lies_before_it_superfluous() {
    let table = Table::new().await;
    assert_eq!(commits_of(&table.keep(0..=3, &[]).await), [0, 1, 2, 3], "no checkpoint");
    table.checkpoint(3, FIRST, |_| ()).await;
    assert_eq!(commits_of(&table.keep(0..=3, &[]).await), [3]);
    // In the same breath the checkpoint itself: it counts as gone.
    let kept = table.keep(0..=2, &[(3, FIRST)]).await;
    assert_eq!((commits_of(&kept), kept.checkpoints.len()), (vec![0, 1, 2], 0));
}

#[tokio::test]
async fn a_checkpoint_that_says_anything_else_is_no_ground() {
    type Change = fn(&mut Vec<Value>);
    let other_stats: Change = |rows| rows[4]["add"]["stats"] = stats(1000).to_string().into();
    let other_domain: Change = |rows| rows[2]["domainMetadata"]["configuration"] = "two".into();
    let other_name: Change = |rows| rows[1]["metaData"]["name"] = "x".into();
    let other_time: Change = |rows| rows[4]["add"]["modificationTime"] = 2.into();
    let other_rows: Change = |rows| rows[4]["add"]["baseRowId"] = 2.into();
    let no_domain: Change = |rows| drop(rows.remove(2));
    for (what, change) in [
        ("statistics", other_stats),
        ("domains", other_domain),
        ("domains", no_domain),
        ("metadata", other_name),
        ("times", other_time),
        ("row ids", other_rows),
        ("files", forged as Change),
    ] {
        let table = Table::new().await;
        table.checkpoint(3, FIRST, change).await;
        let kept = table.keep([0], &[]).await;
        assert!(kept.commits[&Version(0)].contains(what), "{what}: {kept:?}");
    }
    let fewer_stats: Change = |rows| rows[4]["add"]["stats"] = json!({"numRecords": 1}).to_string().into();
    let no_stats: Change = |rows| drop(rows[4]["add"].as_object_mut().unwrap().remove("stats"));
    for change in [fewer_stats, no_stats] {
        let table = Table::new().await;
        table.checkpoint(3, FIRST, change).await;
        assert_eq!(table.keep([0], &[]).await, Kept::default());
    }
}

#[tokio::test]
async fn the_checkpoint_that_a_log_begins_with_stays() {
    let table = Table::new().await;
    table.checkpoint(3, FIRST, |_| ()).await;
    assert_eq!(table.keep([], &[(3, FIRST)]).await, Kept::default(), "all commits are there");
    table.lose(0..=2).await;
    assert_eq!(table.keep([], &[(3, FIRST)]).await.checkpoints.len(), 1);
    // One that says otherwise does not stand in for it, of a later version or of the same one.
    table.checkpoint(5, FIRST, forged).await;
    assert_eq!(table.keep(3..=4, &[(3, FIRST)]).await.checkpoints.len(), 1);
    table.checkpoint(3, SECOND, forged).await;
    let kept = table.keep([], &[(3, FIRST)]).await;
    assert!(kept.checkpoints.values().all(|why| why.contains("says other files")) && kept.checkpoints.len() == 1);
    // Of two that disagree nobody can tell which one is right: both stay, until somebody else takes one away.
    table.checkpoint(5, FIRST, |_| ()).await;
    assert_eq!(table.keep(3..=4, &[(3, FIRST), (3, SECOND)]).await.checkpoints.len(), 2);
    table.world.objects.delete(&table.key(&checkpoint_name(3, SECOND)), None).await.unwrap();
    // A good one stands in for it, and then the old one goes with what lies between.
    assert_eq!(table.keep(3..=4, &[(3, FIRST)]).await, Kept::default());
}

#[tokio::test]
async fn of_several_checkpoints_of_a_version_each_must_be_good() {
    for bad in [FIRST, SECOND] {
        let table = Table::new().await;
        for id in [FIRST, SECOND] {
            table
                .checkpoint(3, id, |rows| {
                    if id == bad {
                        forged(rows)
                    }
                })
                .await;
        }
        let kept = table.keep(0..=2, &[]).await;
        assert!(kept.commits[&Version(0)].contains("says other files") && kept.commits.len() == 3, "{kept:?}");
        // With the log files there it can be deleted, and then they can.
        assert_eq!(table.keep([], &[(3, bad)]).await, Kept::default());
        table.world.objects.delete(&table.key(&checkpoint_name(3, bad)), None).await.unwrap();
        assert_eq!(table.keep(0..=2, &[]).await, Kept::default());
    }
    // Parts of one that was never finished are none, and of what cannot be read nobody knows who reads it.
    let table = Table::new().await;
    table.checkpoint(3, FIRST, |_| ()).await;
    table.put(&format!("{:020}.checkpoint.{:010}.{:010}.parquet", 3, 1, 2), "PAR1".into()).await;
    assert_eq!(table.keep(0..=2, &[]).await, Kept::default());
    table.put(&format!("{:020}.checkpoint.parquet", 3), "PAR1".into()).await;
    assert_eq!(table.keep(0..=2, &[]).await.commits.len(), 3);
}

#[tokio::test]
async fn tags_of_a_checkpoint_must_be_the_commits_own() {
    let table = Table::new().await;
    table.checkpoint(3, FIRST, |rows| rows[4]["add"]["tags"] = json!({"a": "b"})).await;
    assert!(table.keep([0], &[]).await.commits[&Version(0)].contains("other tags"));
}

#[tokio::test]
async fn what_would_be_left_must_say_the_same() {
    let table = Table::new().await;
    table.checkpoint(5, FIRST, |_| ()).await;
    table.lose(0..=2).await;
    table.checkpoint(3, FIRST, forged).await;
    let kept = table.keep([], &[(5, FIRST)]).await;
    assert!(kept.checkpoints.values().all(|why| why.contains("says other files")) && kept.checkpoints.len() == 1);
    table.checkpoint(3, FIRST, |_| ()).await;
    assert_eq!(table.keep([], &[(5, FIRST)]).await, Kept::default());
}

#[tokio::test]
async fn where_nothing_is_left_to_compare_with_only_remains_go() {
    let table = Table::new().await;
    table.checkpoint(3, FIRST, |_| ()).await;
    table.checkpoint(5, FIRST, |_| ()).await;
    table.lose([2, 4]).await;
    // From 0 and 1 versions can be made; 3 leads nowhere, and neither does its checkpoint.
    let kept = table.keep([0, 1, 3], &[(3, FIRST)]).await;
    assert_eq!((commits_of(&kept), kept.checkpoints.len()), (vec![0, 1], 0));
    table.lose([0]).await;
    assert_eq!(table.keep([1], &[]).await, Kept::default(), "the rest of a cleanup that was broken off");
    let table = Table::new().await;
    table.checkpoint(2, FIRST, |_| ()).await;
    table.checkpoint(5, FIRST, |_| ()).await;
    table.lose([0, 1, 4]).await;
    let kept = table.keep([], &[(2, FIRST)]).await;
    assert!(kept.checkpoints.values().all(|why| why.contains("compared")) && kept.checkpoints.len() == 1);
}

#[tokio::test]
async fn the_hint_is_read_whatever_it_holds() {
    let table = Table::new().await;
    for (hint, version) in [
        (None, None),
        (Some(r#"{"version":3,"size":4}"#), Some(Version(3))),
        (Some("{}"), None),
        (Some("no json"), None),
    ] {
        if let Some(hint) = hint {
            table.put(HINT, hint.into()).await;
        }
        assert_eq!(hinted(&*table.world.objects, &table.root).await, Ok(version), "{hint:?}");
    }
}

#[tokio::test]
async fn checkpoints_beyond_the_log_go_if_nobody_can_read_them() {
    let table = Table::new().await;
    table.put(&checkpoint_name(9, FIRST), "no checkpoint".into()).await;
    assert_eq!(table.keep([], &[(9, FIRST)]).await, Kept::default());
    table.checkpoint(9, FIRST, |_| ()).await;
    assert_eq!(table.keep([], &[(9, FIRST)]).await.checkpoints.len(), 1);
    assert_eq!(table.keep([], &[(8, SECOND)]).await, Kept::default(), "what is not there");
}
