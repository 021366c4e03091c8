//! Tables that share places, unknown tables, commits under way.

use super::super::testkit::*;
use super::super::*;
use crate::sweep::items::RunState;

#[tokio::test]
async fn a_table_inside_keeps_its_files() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    lake.put("wh/t/data/inner/x.parquet", "x").await;
    lake.register("inner", "wh/t/data/inner", &[("classification", "parquet")]);
    lake.days(4);
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(counts(&record).get("other_table_prefix"), Some(&1));
    assert_eq!(record.totals.deleted.count, 1);
}

#[tokio::test]
async fn tables_at_one_place_protect_each_other() {
    for place in ["wh/t", "wh"] {
        let lake = Lake::new();
        with_orphan(&lake).await;
        // Its metadata lies elsewhere, its data among ours.
        let mut second = Iceberg::create_at(&lake, "u", "other/u", 2).await;
        second.prefix = "wh/t".into();
        let shared = second.data("shared.parquet").await;
        second.prefix = "other/u".into();
        second.prepare(&[(1, 0, shared.clone())]).await;
        let pointer = Iceberg::uri(&second.metadata_key());
        lake.register("u", place, &[("table_type", "ICEBERG"), ("metadata_location", &pointer)]);
        lake.days(4);
        let record = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        assert_eq!(record.totals.deleted.count, 1);
        assert!(lake.keys().contains(&shared));
        // A table whose files nobody can tell stops the run.
        lake.register("u", place, &[("classification", "parquet")]);
        let record = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(record.reason.as_deref(), Some("shared_location"));
        // As does one whose metadata cannot be read.
        let gone = [("table_type", "ICEBERG"), ("metadata_location", "s3://lake/none.metadata.json")];
        lake.register("u", place, &gone);
        let record = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(record.reason.as_deref(), Some("metadata_incomplete"));
    }
}

#[tokio::test]
async fn unknown_tables_below_are_kept_and_named() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    for key in ["wh/t/data/d/_delta_log/0.json", "wh/t/data/d/A.parquet", "wh/t/data/i/metadata/v1.metadata.json"] {
        lake.put(key, "{}").await;
    }
    lake.put("wh/t/data/i/data/x.parquet", "x").await;
    lake.days(4);
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 1);
    assert_eq!(counts(&record).get("foreign_root_found"), Some(&4));
}

#[tokio::test]
async fn a_commit_that_the_catalog_does_not_know_yet_is_pending() {
    let lake = Lake::new();
    let mut table = with_orphan(&lake).await.0;
    let orphan = "wh/t/data/orphan.parquet".to_owned();
    lake.days(4);
    // Metadata is written, the pointer not moved yet.
    table.prepare(&[(1, 0, orphan.clone())]).await;
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 0, "{record:?}");
    assert_eq!(counts(&record).get("pending_commit"), Some(&4));
    table.point();
    let record = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 0);
    assert_eq!(counts(&record).get("pending_commit"), None);
}

#[tokio::test]
async fn an_object_written_anew_since_the_listing_stays() {
    let mut outcomes = Vec::new();
    for calls in 0.. {
        let lake = Lake::new();
        with_orphan(&lake).await;
        lake.days(4);
        let request = lake.start("t", Mode::Ordinary).await;
        // The same bytes are uploaded again: same ETag, other date.
        let again = lake.clone();
        let upload = move || -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move { again.put("wh/t/data/orphan.parquet", "orphan.parquet").await })
        };
        let hook = Hook::new(calls, Box::new(upload));
        let outcome = lake.run_hooked(&request, &hook).await;
        assert!(matches!(outcome, RunOutcome::Finished(_)));
        if !hook.has_fired() {
            break;
        }
        outcomes.push(lake.keys().contains("wh/t/data/orphan.parquet"));
    }
    // After its HEAD come three looks at the catalog; an upload of equal bytes in between is what If-Match cannot see.
    let kept = outcomes.iter().filter(|kept| **kept).count();
    assert_eq!(outcomes.len() - kept, 3, "{outcomes:?}");
    assert!(outcomes[..kept].iter().all(|kept| *kept), "{outcomes:?}");
}
