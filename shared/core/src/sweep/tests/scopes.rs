//! Sweeps of a folder inside a table: what protects its files may lie above it or beside it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::sweep::items::RunState;

/// A table whose optimizer sweeps `scope`, a second before anything is written.
async fn with_scope(lake: &Lake, scope: &str) -> Iceberg {
    let table = Iceberg::create(lake, "t", 2).await;
    lake.optimize("t", json!({ "location": format!("s3://lake/{scope}") })).await;
    advance(&lake.world.clock, 1);
    table
}

async fn gone_after(lake: &Lake) -> (items::RunRecord, BTreeSet<String>) {
    let before = lake.keys();
    let record = lake.sweep("t", Mode::Ordinary).await;
    let after = lake.keys();
    (record, before.difference(&after).cloned().collect())
}

#[tokio::test]
async fn an_unknown_table_whose_root_lies_above_the_scope_keeps_its_files() {
    for sign in ["_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"] {
        let lake = Lake::new();
        let table = with_scope(&lake, "wh/t/data/inner/p=1").await;
        lake.put(&format!("wh/t/data/inner/{sign}"), "{}").await;
        table.data("inner/p=1/x.parquet").await;
        lake.days(4);
        let (record, gone) = gone_after(&lake).await;
        assert_eq!(gone, BTreeSet::new(), "{sign}");
        assert_eq!(counts(&record), [("foreign_root_found", 1)].into(), "{sign}");
    }
}

#[tokio::test]
async fn metadata_beside_the_scope_is_looked_at() {
    let lake = Lake::new();
    let mut table = with_scope(&lake, "wh/t/data").await;
    let late = table.data("late.parquet").await;
    let orphan = table.data("orphan.parquet").await;
    lake.days(4);
    // Written, not yet known to the catalog.
    table.prepare(&[(1, 0, late)]).await;
    let (record, gone) = gone_after(&lake).await;
    assert_eq!(gone, [orphan].into());
    assert_eq!(counts(&record), [("orphan", 1), ("pending_commit", 1)].into());
    let mut foreign = table.metadata.clone();
    foreign["table-uuid"] = "another".into();
    lake.put("wh/t/metadata/00000-x.metadata.json", foreign.to_string()).await;
    let (record, _) = gone_after(&lake).await;
    assert_eq!(record.reason.as_deref(), Some("foreign_table_uuid"));
}

/// The next state of the table, with some members changed, as a file that only the catalog of somebody else knows.
async fn with_change(lake: &Lake, change: Value) -> (Iceberg, String) {
    let mut table = with_scope(lake, "wh/t").await;
    let late = table.data("late.parquet").await;
    table.append(&["live.parquet"]).await;
    lake.days(4);
    let mut next = table.clone();
    next.prepare(&[(1, 0, late.clone())]).await;
    next.metadata.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    next.write_metadata().await;
    (next, late)
}

#[tokio::test]
async fn a_later_state_is_known_by_its_number_or_its_date() {
    for change in [json!({}), json!({"last-updated-ms": 1}), json!({"last-sequence-number": 0})] {
        let lake = Lake::new();
        let (_, late) = with_change(&lake, change.clone()).await;
        assert_eq!(gone_after(&lake).await.1, BTreeSet::new(), "{change}");
        assert!(lake.keys().contains(&late));
    }
    let lake = Lake::new();
    let (_, late) = with_change(&lake, json!({"last-updated-ms": 1, "last-sequence-number": 0})).await;
    // An earlier state, as far as anybody can tell; but its manifests are young, and what they name is of their family.
    assert_eq!(gone_after(&lake).await.1, BTreeSet::new());
    lake.days(4);
    assert!(gone_after(&lake).await.1.contains(&late));
}

#[tokio::test]
async fn a_state_is_read_up_to_a_size_and_an_empty_one_is_no_state() {
    let lake = Lake::new();
    let mut table = with_scope(&lake, "wh/t").await;
    lake.put("wh/t/metadata/00000-empty.metadata.json", "").await;
    advance(&lake.world.clock, 1);
    table.append(&["live.parquet"]).await;
    lake.days(4);
    let (record, gone) = gone_after(&lake).await;
    assert_eq!((record.state, gone), (RunState::Completed, BTreeSet::new()), "{:?}", record.error);
    lake.put("wh/t/metadata/00009-empty.metadata.json", "").await;
    let (record, _) = gone_after(&lake).await;
    assert_eq!(record.reason.as_deref(), Some("metadata_unreadable"), "perhaps a commit under way");
}
