//! Change feeds of tables elsewhere, whose logs are too short to tell which files they named.

use serde_json::{Value, json};

use super::super::testkit::*;
use crate::delta::snapshot;
use crate::delta::testkit::{TableKit, add_line, append_info, creation_of};
use crate::location::Location;
use crate::sweep::items::RunState;

/// A table with a feed whose first commits have just gone behind a checkpoint; its last commit has these lines.
async fn short_log(lake: &Lake, prefix: &str, lines: &[Value]) -> TableKit {
    let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, prefix) };
    let configuration = json!({"delta.enableChangeDataFeed": "true", "delta.logRetentionDuration": "interval 1 hours"});
    kit.log(0, &creation_of("feed", &[], configuration)).await;
    kit.log(1, &[append_info(), add_line("own.parquet", 1)]).await;
    let state = snapshot::load(lake.world.objects.as_ref(), &kit.root, Some(crate::delta::Version(1))).await.unwrap();
    kit.checkpoint(&state).await;
    kit.delete_log(0).await;
    kit.delete_log(1).await;
    let mut last = vec![append_info()];
    last.extend_from_slice(lines);
    kit.log(2, &last).await;
    lake.register("f", prefix, &DELTA);
    kit
}

fn change(path: &str) -> Value {
    json!({"cdc": {"path": path, "partitionValues": {}, "size": 1, "dataChange": false}})
}

#[tokio::test]
async fn only_a_feed_that_could_lie_here_stops_the_run() {
    let stops = Some("other_table_unreadable");
    let cases: [(&str, Vec<Value>, Option<&str>); 8] = [
        ("dev/f", vec![], None),
        ("dev/f", vec![change("_change_data/c.parquet")], None),
        ("dev/f", vec![change("s3://lake/dev/f/_change_data/c.parquet")], None),
        // A clone of a third table: its feed is its own.
        ("dev/f", vec![add_line("s3://lake/third/a.parquet", 1)], None),
        // Inside: everything there is its own anyway.
        ("wh/t/inside", vec![], None),
        // It has files here, so those that nothing tells of may be here as well.
        ("dev/f", vec![add_line("s3://lake/wh/t/data/live.parquet", 1)], stops),
        ("dev/f", vec![change("s3://lake/wh/t/_change_data/c.parquet")], stops),
        // Its feed leaves its place: it may lie anywhere.
        ("dev/f", vec![change("s3://lake/third/_change_data/c.parquet")], stops),
    ];
    for (prefix, lines, reason) in cases {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        short_log(&lake, prefix, &lines).await;
        let (record, gone) = lake.gone().await;
        assert_eq!(record.reason.as_deref(), reason, "{prefix} {lines:?}: {:?}", record.error);
        assert_eq!(gone.contains(&orphan), reason.is_none(), "{prefix} {lines:?}");
        assert!(reason.is_none() || gone.is_empty(), "{prefix} {lines:?}");
    }
}

#[tokio::test]
async fn a_feed_around_the_table_stops_the_run() {
    let lake = Lake::new();
    let kit = lake.delta("t", "wh/t", &creation_of("own", &[], json!({}))).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    lake.put("wh/t/orphan.parquet", "x").await;
    lake.days(9);
    // At the same place, by another entry of the catalog.
    kit.delete_log(0).await;
    short_log(&lake, "wh/t", &[]).await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.reason.as_deref(), gone.len()), (Some("metadata_incomplete"), 0), "{:?}", record.error);
}

#[tokio::test]
async fn a_table_that_begins_to_reach_here_is_seen() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let kit = short_log(&lake, "dev/f", &[]).await;
    kit.log(3, &[append_info(), add_line(&format!("s3://lake/{orphan}"), 1)]).await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.reason.as_deref(), gone.len()), (Some("other_table_unreadable"), 0), "{:?}", record.error);
    // As soon as the log tells everything again, the run goes on.
    lake.days(9);
    kit.log(4, &[append_info()]).await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{:?}", record.error);
}
