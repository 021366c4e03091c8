//! Gaps in knowledge stop the whole run, and nothing is deleted.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::sweep::items::RunState;

async fn refused(table: &Iceberg, reason: RefusalReason) {
    let before = table.lake.keys();
    let record = table.lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.state, RunState::Failed, "{reason:?}: {record:?}");
    assert_eq!(record.reason.as_deref(), Some(reason.as_str()), "{:?}", record.error);
    assert_eq!(table.lake.keys(), before, "{reason:?}");
    assert_eq!(record.totals.deleted.count, 0);
    assert!(record.error.is_some_and(|error| error.len() > 20));
}

type Change = fn(&mut serde_json::Value);

#[tokio::test]
async fn metadata_that_forbids_or_hides() {
    let cases: [(RefusalReason, Change); 9] = [
        (RefusalReason::LocationMismatch, |m| m["location"] = json!("s3://lake/wh/elsewhere")),
        (RefusalReason::UnresolvedPath, |m| m["location"] = json!("/wh/t")),
        (RefusalReason::GcDisabled, |m| m["properties"]["gc.enabled"] = json!("false")),
        (RefusalReason::UnknownVersion, |m| m["format-version"] = json!(4)),
        (RefusalReason::Encrypted, |m| m["encryption-keys"] = json!([{"key-id": "k"}])),
        (RefusalReason::UnresolvedPath, |m| m["metadata-log"][0]["metadata-file"] = json!("metadata/x.metadata.json")),
        (RefusalReason::MetadataIncomplete, |m| {
            m["snapshots"][0]["manifest-list"] = json!("s3://lake/wh/t/metadata/snap-none.avro");
        }),
        (RefusalReason::MetadataUnreadable, |m| {
            m["snapshots"][0]["manifest-list"] = json!("s3://lake/wh/t/data/live.parquet");
        }),
        (RefusalReason::MetadataUnreadable, |m| m["refs"]["gone"] = json!({"snapshot-id": 99})),
    ];
    for (reason, change) in cases {
        let mut table = with_old_orphan(&Lake::new()).await.0;
        change(&mut table.metadata);
        table.write_metadata().await;
        refused(&table, reason).await;
    }
}

#[tokio::test]
async fn missing_files() {
    for key in ["wh/t/metadata/c1-m0.avro", "wh/t/metadata/snap-10.avro", "wh/t/metadata/00001-u.metadata.json"] {
        let table = with_old_orphan(&Lake::new()).await.0;
        crate::store::Objects::delete(table.lake.world.objects.as_ref(), &at(key), None).await.unwrap();
        refused(&table, RefusalReason::MetadataIncomplete).await;
    }
}

#[tokio::test]
async fn a_shorter_manifest() {
    let table = with_old_orphan(&Lake::new()).await.0;
    table.lake.put("wh/t/metadata/c1-m0.avro", manifest(&[])).await;
    refused(&table, RefusalReason::MetadataUnreadable).await;
}

#[tokio::test]
async fn another_tables_metadata_in_our_folder() {
    let table = with_old_orphan(&Lake::new()).await.0;
    let mut foreign = table.metadata.clone();
    foreign["table-uuid"] = json!("another");
    table.lake.put("wh/t/metadata/00009-x.metadata.json", foreign.to_string()).await;
    refused(&table, RefusalReason::ForeignTableUuid).await;
}

#[tokio::test]
async fn an_unreadable_stray_that_is_newer_than_the_pointer() {
    let table = with_old_orphan(&Lake::new()).await.0;
    table.lake.put("wh/t/metadata/00009-x.metadata.json", "{\"format-version\": 4}").await;
    refused(&table, RefusalReason::UnknownVersion).await;
}

#[tokio::test]
async fn the_fuse() {
    let table = with_old_orphan(&Lake::new()).await.0;
    for number in 0..99 {
        table.data(&format!("x{number}.parquet")).await;
    }
    table.lake.days(4);
    refused(&table, RefusalReason::Fuse).await;
    let dry = table.lake.sweep("t", Mode::DryRun).await;
    assert_eq!(dry.state, RunState::Completed);
    assert!(dry.reason.as_ref().is_some_and(|reason| reason.starts_with("fuse")));
    assert_eq!(counts(&dry).get("orphan"), Some(&100));
}

#[tokio::test]
async fn tables_that_are_gone_or_others_now() {
    let table = with_old_orphan(&Lake::new()).await.0;
    let lake = &table.lake;
    let request = lake.start("t", Mode::Ordinary).await;
    lake.directory.remove("db", "t");
    let RunOutcome::Finished(record) = lake.run(&request).await.unwrap() else { panic!() };
    assert_eq!(record.reason.as_deref(), Some("table_unknown"));
    let by_hand = SweepRequest { table_id: None, ..request.clone() };
    assert!(matches!(lake.run(&by_hand).await.unwrap(), RunOutcome::Dropped(_)));
    // Created again under the old name.
    table.point();
    let mut entry = lake.directory.table("db", "t").await.unwrap().unwrap();
    entry.id = "new".into();
    lake.directory.put(entry);
    let again = SweepRequest { run_id: "2".into(), ..request };
    let RunOutcome::Finished(record) = lake.run(&again).await.unwrap() else { panic!() };
    assert_eq!(record.reason.as_deref(), Some("table_unknown"));
}

#[tokio::test]
async fn optimizers_that_are_gone_or_rest() {
    let table = with_old_orphan(&Lake::new()).await.0;
    let lake = &table.lake;
    let ordinary = lake.start("t", Mode::Ordinary).await;
    let update = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
        "Type": "orphan_file_deletion", "TableOptimizerConfiguration": {"enabled": false}});
    optimizer::update(&lake.app, lake.directory.as_ref(), update).await.unwrap();
    let scheduled = SweepRequest { run_id: "s".into(), mode: Mode::Scheduled, ..ordinary.clone() };
    let RunOutcome::Finished(record) = lake.run(&scheduled).await.unwrap() else { panic!() };
    assert_eq!(record.reason.as_deref(), Some("optimizer_paused"));
    let target =
        json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion"});
    optimizer::delete(&lake.app, lake.directory.as_ref(), target).await.unwrap();
    let RunOutcome::Finished(record) = lake.run(&ordinary).await.unwrap() else { panic!() };
    assert_eq!(record.reason.as_deref(), Some("optimizer_missing"));
}

#[tokio::test]
async fn a_scope_that_is_outside_by_now() {
    let table = with_old_orphan(&Lake::new()).await.0;
    let lake = &table.lake;
    let request = lake.start("t", Mode::Ordinary).await;
    let mut item = items::OptimizerItem::load(lake.world.items.as_ref(), "id-t").await.unwrap().unwrap();
    item.config.location = Some("s3://lake/wh".into());
    let key = items::OptimizerItem::key("id-t");
    crate::store::Items::put(lake.world.items.as_ref(), &key, item.encode(), crate::store::Condition::Always)
        .await
        .unwrap();
    let RunOutcome::Finished(record) = lake.run(&request).await.unwrap() else { panic!() };
    assert_eq!(record.reason.as_deref(), Some("location_outside_table"));
}

#[tokio::test]
async fn tables_of_other_kinds() {
    let table = with_old_orphan(&Lake::new()).await.0;
    for (parameters, reason) in [
        (vec![("classification", "parquet")], RefusalReason::UnsupportedTable),
        (vec![("table_type", "ICEBERG")], RefusalReason::MetadataIncomplete),
    ] {
        table.lake.register("t", "wh/t", &parameters);
        refused(&table, reason).await;
    }
}

#[tokio::test]
async fn a_list_or_an_inline_manifest_that_contradicts_the_summary() {
    let contradictions = [
        json!({"operation": "append"}),
        json!({"operation": "delete", "total-records": "3", "total-data-files": "0"}),
        json!({"operation": "delete", "total-delete-files": "1"}),
        json!({"operation": "append", "added-data-files": "1"}),
        json!({"operation": "append", "total-data-files": "1"}),
    ];
    for summary in contradictions {
        let mut table = with_old_orphan(&Lake::new()).await.0;
        table.metadata["snapshots"][0]["summary"] = summary;
        table.write_metadata().await;
        table.lake.put("wh/t/metadata/snap-10.avro", manifest_list(&[])).await;
        refused(&table, RefusalReason::MetadataUnreadable).await;
    }
    // One of two manifests.
    let mut table = with_orphan(&Lake::new()).await.0;
    table.append(&["more.parquet"]).await;
    table.lake.days(4);
    table.metadata["snapshots"][1]["summary"] = json!({"operation": "append", "total-data-files": "2"});
    table.write_metadata().await;
    assert_eq!(table.lake.sweep("t", Mode::DryRun).await.state, RunState::Completed);
    let one = manifest(&[(1, 0, "wh/t/data/live.parquet".to_owned())]).len();
    table.lake.put("wh/t/metadata/snap-20.avro", manifest_list(&[("wh/t/metadata/c1-m0.avro".into(), one, 1)])).await;
    refused(&table, RefusalReason::MetadataUnreadable).await;
    // A snapshot of nothing has an empty list.
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    lake.put("wh/t/metadata/snap-1.avro", manifest_list(&[])).await;
    table.metadata["snapshots"] = json!([{"snapshot-id": 1, "manifest-list": "s3://lake/wh/t/metadata/snap-1.avro",
        "summary": {"operation": "append", "total-data-files": "0", "total-records": "0"}}]);
    table.write_metadata().await;
    lake.days(4);
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.state, RunState::Completed);
    // Named in place.
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 1).await;
    lake.optimize("t", json!({})).await;
    table.append(&["a.parquet"]).await;
    table.metadata["snapshots"][0]["summary"] = json!({"operation": "append", "total-data-files": "1"});
    table.write_metadata().await;
    lake.days(4);
    assert_eq!(lake.sweep("t", Mode::DryRun).await.state, RunState::Completed);
    lake.put("wh/t/metadata/c1-m0.avro", manifest(&[])).await;
    refused(&table, RefusalReason::MetadataUnreadable).await;
}
