//! Flink's checkpoints, and staged commits with everything they may name.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::Mode;
use super::super::testkit::*;
use crate::commit::context::Context;
use crate::commit::door::judge_one;
use crate::commit::run::Staged;
use crate::commit::sync::NoCatalog;
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, append_info, creation_of, remove_line};
use crate::sweep::items::RunState;

const JOB: &str = "0123456789abcdef0123456789abcdef";
const OPERATOR: &str = "cafebabecafebabecafebabecafebabe";

/// An Iceberg table, the temporary manifest of checkpoint 8, and the file that it names.
async fn with_checkpoint(lake: &Lake) -> (Iceberg, String, String) {
    let mut table = Iceberg::create(lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    table.append(&["live.parquet"]).await;
    let data = table.data("checkpoint.parquet").await;
    let manifest_key = format!("wh/t/metadata/{JOB}-{OPERATOR}-00000-0-8-00001.avro");
    lake.put(&manifest_key, manifest(&[(1, 0, data.clone())])).await;
    lake.days(20);
    (table, manifest_key, data)
}

async fn committed(table: &mut Iceberg, checkpoint: &str) {
    let summary = json!({"operation": "append", "flink.job-id": JOB, "flink.operator-id": OPERATOR,
        "flink.max-committed-checkpoint-id": checkpoint});
    table.metadata["snapshots"][0]["summary"] = summary;
    table.append(&[&format!("of-{checkpoint}.parquet")]).await;
}

#[tokio::test]
async fn a_checkpoint_that_flink_may_still_commit_keeps_what_it_names() {
    let lake = Lake::new();
    let (mut table, of_checkpoint, data) = with_checkpoint(&lake).await;
    committed(&mut table, "7").await;
    let (record, gone) = lake.gone().await;
    assert_eq!((counts(&record).get("pending_commit"), gone.len()), (Some(&2), 0), "{record:?}");
    lake.put(&of_checkpoint, "torn").await;
    let (record, _) = lake.gone().await;
    assert_eq!(record.reason.as_deref(), Some("pending_unreadable"));
    lake.put(&of_checkpoint, manifest(&[(1, 0, data.clone())])).await;
    lake.days(20);
    committed(&mut table, "8").await;
    assert_eq!(lake.gone().await.1, [of_checkpoint, data].into());
}

#[tokio::test]
async fn checkpoints_of_an_unknown_job_are_kept_for_two_weeks() {
    let lake = Lake::new();
    let (_, of_checkpoint, data) = with_checkpoint(&lake).await;
    assert_eq!(lake.gone().await.1, [of_checkpoint.clone(), data.clone()].into());
    lake.put(&data, "x").await;
    lake.put(&of_checkpoint, manifest(&[(1, 0, data)])).await;
    lake.days(13);
    assert_eq!(lake.gone().await.1, BTreeSet::new());
}

#[tokio::test]
async fn manifests_that_flink_keeps_elsewhere_are_found() {
    let lake = Lake::new();
    let (mut table, of_checkpoint, data) = with_checkpoint(&lake).await;
    let elsewhere = of_checkpoint.replace("wh/t/metadata", "flink/manifests");
    lake.put(&elsewhere, manifest(&[(1, 0, data.clone())])).await;
    table.metadata["properties"] = json!({"flink.manifests.location": "s3://lake/flink/manifests"});
    crate::store::Objects::delete(lake.world.objects.as_ref(), &at(&of_checkpoint), None).await.unwrap();
    committed(&mut table, "7").await;
    assert_eq!(lake.gone().await.1, BTreeSet::new());
}

/// Two files that a job wrote long ago, and the manifest and list of an attempt to commit them that lost today.
async fn with_lost_attempt(lake: &Lake) -> (Iceberg, BTreeSet<String>, BTreeSet<String>) {
    let (table, orphan) = with_orphan(lake).await;
    let old = [table.data("old-1.parquet").await, table.data("old-2.parquet").await];
    lake.days(30);
    let id = "80a083e8-7026-4e79-81be-64bd76c43a11";
    let manifest_key = format!("wh/t/metadata/{id}-m0.avro");
    let bytes = manifest(&old.clone().map(|key| (1, 0, key)));
    let list_key = format!("wh/t/metadata/snap-77-1-{id}.avro");
    lake.put(&list_key, manifest_list(&[(manifest_key.clone(), bytes.len(), 2)])).await;
    lake.put(&manifest_key, bytes).await;
    let family = old.into_iter().chain([manifest_key, list_key]).collect();
    (table, family, [orphan].into())
}

#[tokio::test]
async fn an_attempt_that_lost_today_keeps_what_it_wrote_long_ago() {
    let lake = Lake::new();
    let (_, family, orphan) = with_lost_attempt(&lake).await;
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, orphan, "{record:?}");
    assert_eq!(counts(&record).get("pending_commit"), Some(&3), "two files and the manifest; the list itself is young");
    lake.days(3);
    assert_eq!(lake.gone().await.1, BTreeSet::new());
    // Nobody has tried again for a whole retention.
    advance(&lake.world.clock, 1);
    assert_eq!(lake.gone().await.1, family);
}

#[tokio::test]
async fn attempts_without_their_list_beside_data_that_is_no_manifest() {
    for (torn, expected) in [("no Avro at all", None), ("Obj\u{1}torn", Some("pending_unreadable"))] {
        let lake = Lake::new();
        let (_, family, orphan) = with_lost_attempt(&lake).await;
        let list = family.iter().find(|key| key.contains("/snap-")).unwrap();
        crate::store::Objects::delete(lake.world.objects.as_ref(), &at(list), None).await.unwrap();
        let (_, gone) = lake.gone().await;
        assert_eq!(gone, orphan, "the manifest alone tells as much");
        lake.put("wh/t/metadata/snap-78-1-80a083e8-7026-4e79-81be-64bd76c43a12.avro", torn).await;
        let (record, gone) = lake.gone().await;
        assert_eq!((record.reason.as_deref(), gone.len()), (expected, 0), "{torn}: {record:?}");
    }
    // A list whose manifest its writer has cleaned up already names nothing more.
    let lake = Lake::new();
    let (_, family, _) = with_lost_attempt(&lake).await;
    let manifest = family.iter().find(|key| key.ends_with("-m0.avro")).unwrap();
    crate::store::Objects::delete(lake.world.objects.as_ref(), &at(manifest), None).await.unwrap();
    assert_eq!(lake.gone().await.1.len(), 3);
}

#[tokio::test]
async fn attempts_in_a_metadata_folder_outside_the_table_are_found() {
    let lake = Lake::new();
    let (mut table, family, orphan) = with_lost_attempt(&lake).await;
    table.metadata["properties"] = json!({"write.metadata.path": "s3://lake/meta/t"});
    let manifest_key = family.iter().find(|key| key.ends_with("-m0.avro")).unwrap();
    let bytes =
        crate::store::ReadObjects::get(lake.world.objects.as_ref(), &at(manifest_key), &Default::default()).await;
    lake.put("meta/t/80a083e8-7026-4e79-81be-64bd76c43a11-m0.avro", bytes.unwrap().bytes).await;
    for key in family.iter().filter(|key| key.ends_with(".avro")) {
        crate::store::Objects::delete(lake.world.objects.as_ref(), &at(key), None).await.unwrap();
    }
    table.append(&["b.parquet"]).await;
    assert_eq!(lake.gone().await.1, orphan);
}

async fn delta(lake: &Lake, mut lines: Vec<Value>) -> TableKit {
    if lines.is_empty() {
        lines = creation_of(TABLE_ID, &[], json!({}));
    }
    let kit = lake.delta("t", "wh/t", &lines).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    kit
}

/// With the protocol of deletion vectors and more.
fn modern(features: &[&str], configuration: Value) -> Vec<Value> {
    let mut lines = creation_of(TABLE_ID, &[], configuration);
    let mut readers = vec!["deletionVectors", "columnMapping"];
    readers.retain(|feature| features.contains(feature));
    lines[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": readers, "writerFeatures": features}});
    lines
}

const VECTOR: &str = "ab^-aqEH.-t@S}K{vb[*k^";
const VECTOR_FILE: &str = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";

fn with_vector(mut line: Value, kind: &str, storage_type: &str, text: &str) -> Value {
    line[kind]["deletionVector"] = json!({"storageType": storage_type, "pathOrInlineDv": text, "offset": 1,
        "sizeInBytes": 34, "cardinality": 1});
    line
}

#[tokio::test]
async fn vectors_of_live_files_and_tombstones_stay() {
    let lake = Lake::new();
    let kit = delta(&lake, modern(&["deletionVectors"], json!({}))).await;
    let absolute = "x/deletion_vector_00000000-0000-4000-8000-000000000001.bin";
    let orphan = "deletion_vector_00000000-0000-4000-8000-000000000002.bin";
    for path in ["a.parquet", "b.parquet", "c.parquet", VECTOR_FILE, absolute, orphan] {
        lake.put(&format!("wh/t/{path}"), "x").await;
    }
    let uri = format!("s3a://lake/wh/t/{absolute}");
    let adds = [
        with_vector(add_line("a.parquet", 1), "add", "u", VECTOR),
        with_vector(add_line("b.parquet", 1), "add", "p", &uri),
        with_vector(add_line("c.parquet", 1), "add", "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"),
    ];
    kit.log(1, &adds).await;
    lake.days(10);
    assert_eq!(lake.gone().await.1, [format!("wh/t/{orphan}")].into());
    let now_ms = lake.world.ports.clock.now_ms();
    let removes = [
        with_vector(remove_line("a.parquet", now_ms), "remove", "u", VECTOR),
        with_vector(remove_line("b.parquet", now_ms), "remove", "p", &uri),
    ];
    kit.log(2, &removes).await;
    lake.days(6);
    assert_eq!(lake.gone().await.1, BTreeSet::new());
    lake.days(2);
    let expected = ["a.parquet", "b.parquet", VECTOR_FILE, absolute].map(|path| format!("wh/t/{path}"));
    assert_eq!(lake.gone().await.1, expected.into());
}

#[tokio::test]
async fn a_staged_commit_keeps_the_vectors_it_names() {
    let lake = Lake::new();
    let kit = delta(&lake, modern(&["deletionVectors"], json!({}))).await;
    for path in ["a.parquet", VECTOR_FILE, "orphan.parquet"] {
        lake.put(&format!("wh/t/{path}"), "x").await;
    }
    let add = with_vector(add_line("a.parquet", 1), "add", "u", VECTOR);
    kit.stage(1, 5, &[append_info(), add]).await;
    lake.days(30);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, ["wh/t/orphan.parquet".to_owned()].into(), "{record:?}");
    assert_eq!(counts(&record).get("pending_commit"), Some(&3));
}

#[tokio::test]
async fn a_rejected_commit_that_names_live_files_takes_none_of_them_along() {
    let lake = Lake::new();
    let kit = delta(&lake, Vec::new()).await;
    let live = kit.data("live.parquet", None, 3).await;
    kit.log(1, std::slice::from_ref(&live)).await;
    let fresh = kit.data("fresh.parquet", None, 3).await;
    let (key, etag) = kit.stage(2, 7, &[append_info(), live, fresh, remove_line("live.parquet", 1)]).await;
    let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
    judge_one(ctx, &Staged { key: key.clone(), etag: Some(etag) }).await.unwrap();
    lake.days(8);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, ["wh/t/fresh.parquet".to_owned(), key.key().key].into(), "{record:?}");
    // Staged once more under the same name, it is another commit without a verdict.
    kit.data("again.parquet", None, 3).await;
    kit.stage(2, 7, &[append_info(), add_line("again.parquet", 1)]).await;
    lake.days(30);
    assert_eq!(lake.gone().await.1, BTreeSet::new());
}

#[tokio::test]
async fn what_nobody_decided_on_is_given_up_and_goes_one_retention_later() {
    for torn in [false, true] {
        let lake = Lake::new();
        let kit = delta(&lake, Vec::new()).await;
        let late = kit.data("late.parquet", None, 3).await;
        let (key, _) = kit.stage(1, 7, &[append_info(), late]).await;
        if torn {
            lake.put(&key.key().key, "{\"add\"").await;
        }
        lake.days(14);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.reason.is_some(), gone.len()), (torn, 0), "{record:?}");
        advance(&lake.world.clock, 1);
        // A dry run gives nothing up.
        lake.sweep("t", Mode::DryRun).await;
        assert_eq!(verdict(&lake, &key).await, None);
        let (record, gone) = lake.gone().await;
        assert_eq!(record.state, RunState::Completed, "{record:?}");
        assert_eq!(verdict(&lake, &key).await.as_deref(), Some("expired"));
        // What it names cannot be told when it is torn.
        let named = "wh/t/late.parquet".to_owned();
        assert_eq!(gone, if torn { [named.clone()].into() } else { BTreeSet::new() });
        let ctx = Context::new(&lake.app, lake.deadline(), &NoCatalog);
        judge_one(ctx, &Staged { key: key.clone(), etag: None }).await.unwrap();
        assert_eq!(verdict(&lake, &key).await.as_deref(), Some("expired"), "an event that comes after all");
        lake.days(8);
        let expected = if torn { vec![key.key().key] } else { vec![named, key.key().key] };
        assert_eq!(lake.gone().await.1, expected.into_iter().collect());
    }
}

async fn verdict(lake: &Lake, key: &crate::delta::log::StagedKey) -> Option<String> {
    let id = crate::commit::keys::ProposalId(key.id);
    let found = crate::commit::proposals::by_id(lake.world.items.as_ref(), id).await.unwrap();
    found.first().map(|proposal| proposal.status.name().to_owned())
}

#[tokio::test]
async fn tombstones_follow_the_tables_own_retention_down_to_a_day() {
    for (setting, hours) in [("interval 2 days", 48), ("interval 1 hour", 24)] {
        let lake = Lake::new();
        let lines = creation_of(TABLE_ID, &[], json!({"delta.deletedFileRetentionDuration": setting}));
        let kit = delta(&lake, lines).await;
        lake.put("wh/t/a.parquet", "x").await;
        kit.log(1, &[add_line("a.parquet", 1)]).await;
        lake.days(10);
        kit.log(2, &[remove_line("a.parquet", lake.world.ports.clock.now_ms())]).await;
        lake.world.clock.advance_ms(hours * 3_600_000);
        assert_eq!(lake.gone().await.1.len(), 0, "{setting}");
        advance(&lake.world.clock, 1);
        assert_eq!(lake.gone().await.1.len(), 1, "{setting}");
    }
}

#[tokio::test]
async fn the_iceberg_side_of_a_delta_table_stays_while_it_is_on_and_goes_when_it_is_off() {
    let features = ["columnMapping", "icebergCompatV2"];
    let on = json!({"delta.universalFormat.enabledFormats": "iceberg"});
    let lake = Lake::new();
    let kit = delta(&lake, modern(&features, on)).await;
    let mark = json!({"format-version": 2, "table-uuid": "u", "location": "s3://lake/wh/t", "snapshots": [],
        "properties": {"delta-version": "1"}});
    lake.put("wh/t/metadata/00001-u.metadata.json", mark.to_string()).await;
    lake.put("wh/t/metadata/u-m0.avro", "x").await;
    lake.put("wh/t/orphan.parquet", "x").await;
    lake.days(8);
    assert_eq!(lake.gone().await.1, ["wh/t/orphan.parquet".to_owned()].into());
    kit.log(1, &[modern(&features, json!({}))[1].clone()]).await;
    let expected = ["wh/t/metadata/00001-u.metadata.json", "wh/t/metadata/u-m0.avro"].map(str::to_owned);
    assert_eq!(lake.gone().await.1, expected.into());
    // A table of somebody else at the same place keeps all.
    let theirs = json!({"format-version": 2, "table-uuid": "u", "location": "s3://lake/wh/t", "snapshots": []});
    lake.put("wh/t/metadata/00002-u.metadata.json", theirs.to_string()).await;
    lake.put("wh/t/orphan.parquet", "x").await;
    lake.days(8);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0));
    assert!(counts(&record).contains_key("foreign_root_found"));
}
