//! Manifest lists that say little of their manifests: what is read is held against what the snapshot counts.

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::iceberg::{IcebergError, Reachable, TableMetadata, Visit};
use crate::store::{ObjectKey, ReadObjects};
use crate::sweep::items::RunState;

const FIRST: &str = "wh/t/metadata/c1-m0.avro";
const SECOND: &str = "wh/t/metadata/c2-m0.avro";
const LIST: &str = "wh/t/metadata/snap-20.avro";

/// A table with two manifests, of which only its last snapshot's list without counts says anything.
async fn table(second: &[(i32, i32, String)], summary: Value) -> Iceberg {
    let mut table = with_orphan(&Lake::new()).await.0;
    for (_, _, key) in second {
        table.lake.put(key, "data").await;
    }
    table.prepare(second).await;
    let last = table.metadata["snapshots"][1].clone();
    table.metadata["snapshots"] = json!([last]);
    table.metadata["snapshots"][0]["summary"] = summary;
    table.lake.put(LIST, uncounted_list(&[(FIRST, 0), (SECOND, 0)])).await;
    table.write_metadata().await;
    table.point();
    table.lake.days(4);
    table
}

fn file(status: i32, name: &str) -> (i32, i32, String) {
    (status, 0, format!("wh/t/data/{name}"))
}

async fn outcome(table: &Iceberg) -> (RunState, Option<String>) {
    let record = table.lake.sweep("t", Mode::Ordinary).await;
    (record.state, record.reason)
}

#[tokio::test]
async fn a_list_without_counts_that_lost_a_manifest_is_not_believed() {
    let counted = json!({"operation": "append", "total-data-files": "2", "total-delete-files": "0"});
    let table = table(&[file(1, "more.parquet")], counted).await;
    table.lake.put(LIST, uncounted_list(&[(FIRST, 0)])).await;
    let before = table.lake.keys();
    let refused = (RunState::Failed, Some(RefusalReason::MetadataUnreadable.as_str().to_owned()));
    assert_eq!(outcome(&table).await, refused);
    assert_eq!(table.lake.keys(), before);
    // Whole again, only the orphan goes.
    table.lake.put(LIST, uncounted_list(&[(FIRST, 0), (SECOND, 0)])).await;
    assert_eq!(outcome(&table).await, (RunState::Completed, None));
    let gone: Vec<String> = before.difference(&table.lake.keys()).cloned().collect();
    // And the list of the snapshot that was expired to make the table.
    assert_eq!(gone, ["wh/t/data/orphan.parquet", "wh/t/metadata/snap-10.avro"]);
}

#[tokio::test]
async fn only_less_than_was_counted_is_a_contradiction() {
    let cases = [
        // More is there than the writer thought, or it did not count.
        (json!({"operation": "append", "total-data-files": "1"}), true),
        (json!({"operation": "append"}), true),
        (json!({"operation": "append", "total-data-files": "many"}), true),
        (json!({"operation": "append", "total-data-files": "3"}), false),
        // Data files do not make up for delete files.
        (json!({"operation": "append", "total-data-files": "1", "total-delete-files": "1"}), false),
    ];
    for (summary, is_whole) in cases {
        let table = table(&[file(1, "more.parquet")], summary.clone()).await;
        assert_eq!(outcome(&table).await.0 == RunState::Completed, is_whole, "{summary}");
    }
    // Delete files, in a manifest of deletes.
    let counted = json!({"operation": "overwrite", "total-data-files": "1", "total-delete-files": "1"});
    let deletes = table(&[(1, 1, "wh/t/data/more-deletes.parquet".to_owned())], counted).await;
    deletes.lake.put(LIST, uncounted_list(&[(FIRST, 0), (SECOND, 1)])).await;
    assert_eq!(outcome(&deletes).await, (RunState::Completed, None));
}

#[tokio::test]
async fn files_that_were_removed_make_up_for_none() {
    let counted = json!({"operation": "append", "total-data-files": "2"});
    let removed = [file(0, "more.parquet"), file(2, "old.parquet")];
    let table = table(&removed, counted.clone()).await;
    assert_eq!(outcome(&table).await, (RunState::Completed, None));
    table.lake.put(LIST, uncounted_list(&[(SECOND, 0)])).await;
    assert_eq!(outcome(&table).await.0, RunState::Failed);
    // Nor where the list counts.
    let mut counting = with_orphan(&Lake::new()).await.0;
    counting.append(&["more.parquet"]).await;
    let both = vec![file(0, "more.parquet"), file(2, "old.parquet")];
    let bytes = manifest(&both);
    counting.lake.put(SECOND, bytes.clone()).await;
    counting.metadata["snapshots"][1]["summary"] = counted;
    counting.write_metadata().await;
    counting.lake.put(LIST, removing_list(SECOND, bytes.len(), [0, 1, 1])).await;
    counting.lake.days(4);
    assert_eq!(outcome(&counting).await.0, RunState::Failed);
}

#[tokio::test]
async fn manifests_in_place_are_counted_as_well() {
    let mut table = Iceberg::create(&Lake::new(), "t", 1).await;
    table.lake.optimize("t", json!({})).await;
    table.append(&["a.parquet", "b.parquet"]).await;
    for (total, is_whole) in [("2", true), ("1", true), ("3", false)] {
        table.metadata["snapshots"][0]["summary"] = json!({"operation": "append", "total-data-files": total});
        table.write_metadata().await;
        table.lake.days(1);
        assert_eq!(outcome(&table).await.0 == RunState::Completed, is_whole, "{total}");
    }
}

#[tokio::test]
async fn what_earlier_runs_remember_takes_part() {
    let counted = json!({"operation": "append", "total-data-files": "2"});
    let mut table = table(&[file(1, "more.parquet")], counted).await;
    assert_eq!(outcome(&table).await, (RunState::Completed, None));
    // The list is known, and so are its manifests.
    let before = table.lake.world.objects.object_usage().gets;
    assert_eq!(outcome(&table).await, (RunState::Completed, None));
    let usual = table.lake.world.objects.object_usage().gets - before;
    assert!(usual <= 4, "{usual}");
    // The next list has lost one of the manifests that everybody knows.
    table.append(&["third.parquet"]).await;
    table.metadata["snapshots"][1]["summary"] = json!({"operation": "append", "total-data-files": "3"});
    table.write_metadata().await;
    let (next, third) = ("wh/t/metadata/snap-30.avro", "wh/t/metadata/c3-m0.avro");
    for (manifests, is_whole) in [([FIRST, third], false), ([FIRST, FIRST], false), ([SECOND, third], false)] {
        table.lake.put(next, uncounted_list(&manifests.map(|key| (key, 0)))).await;
        assert_eq!(outcome(&table).await.0 == RunState::Completed, is_whole, "{manifests:?}");
    }
    table.lake.put(next, uncounted_list(&[(FIRST, 0), (SECOND, 0), (third, 0)])).await;
    assert_eq!(outcome(&table).await, (RunState::Completed, None));
}

/// The first manifest is of snapshot 10, the second of snapshot 20; each file has 3 rows.
async fn without_totals(second: &[(i32, i32, String)], summary: Value) -> Iceberg {
    let table = table(second, summary).await;
    let first = [file(1, "live.parquet")];
    table.lake.put(FIRST, manifest_by(Some(10), &first)).await;
    table.lake.put(SECOND, manifest_by(Some(20), second)).await;
    table
}

#[tokio::test]
async fn where_totals_are_missing_what_the_snapshot_added_must_be_there() {
    let (one, none) = ([file(1, "more.parquet")], []);
    let merged = [file(0, "old.parquet"), file(1, "more.parquet"), file(2, "gone.parquet")];
    let deletes = [(1, 1, "wh/t/data/more-deletes.parquet".to_owned())];
    // What the second manifest names, the summary, and whether that fits.
    let cases: [(&[(i32, i32, String)], Value, bool); 18] = [
        (&one, json!({"added-data-files": "1"}), true),
        (&one, json!({"added-data-files": "2"}), false),
        // What the first manifest added was added by another snapshot.
        (&none, json!({"added-data-files": "1"}), false),
        (&merged, json!({"added-data-files": "1"}), true),
        (&merged, json!({"added-data-files": "2"}), false),
        // Totals count everything, and say more.
        (&one, json!({"added-data-files": "2", "total-data-files": "2"}), true),
        (&none, json!({"added-data-files": "1", "total-data-files": "1"}), true),
        (&one, json!({"total-records": "6"}), true),
        (&one, json!({"total-records": "7"}), false),
        (&one, json!({"total-records": "7", "total-data-files": "2"}), true),
        (&one, json!({"added-records": "3"}), true),
        (&one, json!({"added-records": "4"}), false),
        (&none, json!({"added-records": "1"}), false),
        (&deletes, json!({"added-delete-files": "1"}), true),
        (&deletes, json!({"added-delete-files": "2"}), false),
        (&deletes, json!({"added-delete-files": "1", "total-data-files": "1"}), true),
        (&one, json!({"added-delete-files": "1", "added-data-files": "1"}), false),
        // A commit that only removes, or that rewrites manifests, adds nothing.
        (&none, json!({"operation": "delete", "deleted-data-files": "4", "removed-files-size": "9"}), true),
    ];
    for (second, summary, is_whole) in cases {
        let table = without_totals(second, summary.clone()).await;
        let content = second.first().map_or(0, |(_, content, _)| *content);
        table.lake.put(LIST, uncounted_list(&[(FIRST, 0), (SECOND, content)])).await;
        let before = table.lake.keys();
        let expected = match is_whole {
            true => (RunState::Completed, None),
            false => (RunState::Failed, Some(RefusalReason::MetadataUnreadable.as_str().to_owned())),
        };
        assert_eq!(outcome(&table).await, expected, "{second:?} {summary}");
        assert_eq!(table.lake.keys() == before, !is_whole, "{second:?} {summary}");
    }
}

#[tokio::test]
async fn a_manifest_of_the_snapshot_that_is_lost_is_missed_without_totals() {
    for count in ["added-data-files", "added-records"] {
        let table = without_totals(&[file(1, "more.parquet")], json!({"operation": "append", count: "1"})).await;
        table.lake.put(LIST, uncounted_list(&[(FIRST, 0)])).await;
        let before = table.lake.keys();
        assert_eq!(outcome(&table).await.0, RunState::Failed, "{count}");
        assert_eq!(table.lake.keys(), before, "{count}");
        table.lake.put(LIST, uncounted_list(&[(FIRST, 0), (SECOND, 0)])).await;
        assert_eq!(outcome(&table).await, (RunState::Completed, None), "{count}");
    }
}

struct Nobody;

impl Visit for Nobody {
    fn metadata(&mut self, _: &ObjectKey) {}

    fn manifest(
        &mut self,
        _: &crate::iceberg::ManifestRef,
        _: &[crate::iceberg::ManifestEntry],
        _: &crate::store::ObjectMeta,
    ) {
    }
}

#[tokio::test]
async fn a_walk_in_parts_counts_over_all_of_them() {
    for (total, is_whole) in [(130, true), (131, false)] {
        let lake = Lake::new();
        let keys: Vec<String> = (0..130).map(|number| format!("wh/t/metadata/m{number:03}.avro")).collect();
        for (number, key) in keys.iter().enumerate() {
            lake.put(key, manifest(&[file(1, &format!("{number}.parquet"))])).await;
        }
        let named: Vec<(&str, i32)> = keys.iter().map(|key| (key.as_str(), 0)).collect();
        lake.put(LIST, uncounted_list(&named)).await;
        let metadata = json!({"format-version": 1, "location": "s3://lake/wh/t", "snapshots": [{"snapshot-id": 1,
            "manifest-list": Iceberg::uri(LIST), "summary": {"total-data-files": total.to_string()}}]});
        let pointer = at("wh/t/metadata/v1.metadata.json");
        let metadata = TableMetadata::parse(metadata.to_string().as_bytes(), &pointer).unwrap();
        let objects = lake.world.objects.as_ref();
        let (mut reachable, mut parts) = (Reachable::default(), 0);
        let walked = loop {
            parts += 1;
            match reachable.walk_while(objects, &pointer, &metadata, &mut Nobody, &|| false).await {
                Ok(false) => {}
                other => break other,
            }
            // Another worker goes on.
            reachable = Reachable::having_walked(reachable.walked(), reachable.counted());
        };
        assert_eq!(parts, 3);
        match walked {
            Ok(_) => assert!(is_whole),
            Err(error) => assert!(!is_whole && matches!(error, IcebergError::Unreadable { .. }), "{error}"),
        }
    }
}
