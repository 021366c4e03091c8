//! What lifts a guard: backfills and shares, after a dry run, with a name under them. And what explains a decision.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::glue::GlueExceptionName;

/// Files from before the optimizer, all garbage but one.
async fn with_old_files(lake: &Lake, orphans: usize) -> Iceberg {
    let mut table = Iceberg::create(lake, "t", 2).await;
    table.append(&["live.parquet"]).await;
    for number in 0..orphans {
        table.data(&format!("old-{number:04}.parquet")).await;
    }
    advance(&lake.world.clock, 1);
    lake.optimize("t", json!({})).await;
    lake.days(4);
    table
}

async fn refused(lake: &Lake, body: Value) -> String {
    let error = rest::start_in(&lake.app, lake.directory.as_ref(), "db", "t", &body).await.unwrap_err();
    assert!(matches!(error.name, GlueExceptionName::InvalidInput | GlueExceptionName::EntityNotFound), "{body}");
    error.message
}

#[tokio::test]
async fn a_backfill_comes_after_a_dry_run_of_the_same_scope() {
    let lake = Lake::new();
    with_old_files(&lake, 3).await;
    let ordinary = lake.sweep("t", Mode::Ordinary).await;
    assert_eq!((counts(&ordinary).get("creation_gate"), ordinary.totals.deleted.count), (Some(&3), 0));
    let plain = lake.sweep("t", Mode::DryRun).await;
    let audited = |after: &str| {
        json!({"mode": "ordinary", "backfill": true, "sightings": 1,
        "after_dry_run": after, "asked_by": "ana", "why": "old garbage"})
    };
    refused(&lake, json!({"mode": "ordinary", "backfill": true})).await;
    refused(&lake, json!({"mode": "ordinary", "backfill": 1})).await;
    refused(&lake, audited(&plain.run_id)).await;
    refused(&lake, audited("none")).await;
    refused(&lake, audited(&ordinary.run_id)).await;
    let twice = lake.sweep_with("t", json!({"mode": "dry_run", "backfill": true})).await;
    assert_eq!(counts(&twice).get("seen_once"), Some(&3));
    refused(&lake, audited(&twice.run_id)).await;
    let dry = lake.sweep_with("t", json!({"mode": "dry_run", "backfill": true, "sightings": 1})).await;
    assert_eq!((counts(&dry).get("orphan"), dry.totals.deleted.count), (Some(&3), 0));
    for missing in ["asked_by", "why", "after_dry_run"] {
        let mut body = audited(&dry.run_id);
        body[missing] = json!(" ");
        refused(&lake, body).await;
    }
    let run = lake.sweep_with("t", audited(&dry.run_id)).await;
    assert_eq!(run.totals.deleted.count, 3, "{run:?}");
    assert_eq!((run.options.asked_by.as_deref(), run.options.why.as_deref()), (Some("ana"), Some("old garbage")));
    let shown = rest::get_in(&lake.app, lake.directory.as_ref(), "db", "t", &run.run_id).await.unwrap();
    assert_eq!((&shown["options"]["after_dry_run"], &shown["gate_ms"]), (&json!(dry.run_id), &Value::Null));
    lake.days(8);
    assert!(refused(&lake, audited(&dry.run_id)).await.contains("week"));
}

#[tokio::test]
async fn a_backfill_of_another_scope_or_a_shorter_retention_is_refused() {
    for change in [json!({"location": "s3://lake/wh/t/data"}), json!({"orphanFileRetentionPeriodInHours": 24})] {
        let lake = Lake::new();
        with_old_files(&lake, 3).await;
        let dry = lake.sweep_with("t", json!({"mode": "dry_run", "backfill": true})).await;
        lake.configure(change.clone()).await.unwrap();
        let body =
            json!({"mode": "ordinary", "backfill": true, "after_dry_run": dry.run_id, "asked_by": "a", "why": "w"});
        let run = lake.sweep_with("t", body).await;
        assert_eq!((run.reason.as_deref(), run.totals.deleted.count), (Some("backfill_scope"), 0), "{change}");
    }
}

#[tokio::test]
async fn a_share_too_large_deletes_nothing_and_says_how_to_go_on() {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    table.append(&["live.parquet"]).await;
    for number in 0..120 {
        table.data(&format!("orphan-{number:04}.parquet")).await;
    }
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.reason.as_deref(), gone.len()), (Some("fuse"), 0));
    assert!(record.error.unwrap().contains("accept_share"));
    let dry = lake.sweep("t", Mode::DryRun).await;
    assert!(dry.reason.unwrap().starts_with("fuse"));
    // What is seen for the first time counts, too: nothing of it goes, and the warning comes a day earlier.
    let first = lake.scheduled().await;
    assert_eq!((first.reason.as_deref(), counts(&first).get("seen_once")), (Some("fuse"), Some(&120)));
    refused(&lake, json!({"mode": "ordinary", "accept_share": true, "asked_by": "a", "why": "w"})).await;
    let body = json!({"mode": "ordinary", "accept_share": true, "sightings": 1, "after_dry_run": dry.run_id, "asked_by": "a", "why": "w"});
    assert_eq!(lake.sweep_with("t", body).await.totals.deleted.count, 120);
}

#[tokio::test]
async fn explain_says_what_is_wrong_with_a_key() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let explain = async |key: Value| {
        let body = json!({ "key": key });
        rest::explain_in(&lake.app, lake.directory.as_ref(), "db", "t", &body, lake.deadline()).await
    };
    let long = "ä".repeat(513);
    for key in [
        json!(long),
        json!(format!("s3://lake/{long}")),
        json!("s3://lake"),
        json!("s3a://lake/"),
        json!("S3://"),
        json!(""),
        json!(7),
        json!(null),
    ] {
        let error = explain(key.clone()).await.unwrap_err();
        assert_eq!(error.name, crate::glue::GlueExceptionName::InvalidInput, "{key}: {error}");
    }
    // Of the longest there are, there may be one.
    assert_eq!(explain(json!("ä".repeat(512))).await.unwrap()["exists"], false);
}

#[tokio::test]
async fn explain_says_what_the_report_says() {
    let lake = Lake::new();
    let mut table = with_old_files(&lake, 1).await;
    table.data("orphan.parquet").await;
    table.append(&["b.parquet"]).await;
    lake.days(4);
    let dry = lake.sweep("t", Mode::DryRun).await;
    let before = lake.keys();
    let explain = async |key: &str, more: Value| {
        let mut body = json!({ "key": key, "sightings": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rest::explain_in(&lake.app, lake.directory.as_ref(), "db", "t", &body, lake.deadline()).await
    };
    let mut reasons = BTreeSet::new();
    for line in lake.report("t", &dry.run_id).await {
        let key = line["key"].as_str().unwrap();
        let found = explain(key, json!({})).await.unwrap();
        assert_eq!((&found["decision"], &found["reason"]), (&line["decision"], &line["reason"]), "{found}");
        assert_eq!(explain(&format!("s3a://lake/{key}"), json!({})).await.unwrap(), found);
        reasons.insert(line["reason"].as_str().unwrap().to_owned());
    }
    assert_eq!(reasons, ["creation_gate", "orphan", "referenced"].map(str::to_owned).into());
    assert_eq!(lake.keys(), before);
    let old = explain("wh/t/data/old-0000.parquet", json!({"backfill": true})).await.unwrap();
    assert_eq!(old["reason"], "orphan");
    let outside = explain("wh/u/x.parquet", json!({})).await.unwrap();
    assert_eq!(outside["exists"], false);
    assert!(explain("s3://other/x", json!({})).await.is_err());
    assert!(explain("", json!({})).await.is_err());
}

#[tokio::test]
async fn hours_can_be_set_and_short_ones_only_on_purpose() {
    let lake = Lake::new();
    let table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({"orphanFileRetentionPeriodInHours": 2, "allowShortRetention": true})).await;
    for bad in [
        json!({"orphanFileRetentionPeriodInHours": 23}),
        json!({"orphanFileRetentionPeriodInHours": 0, "allowShortRetention": true}),
        json!({"runRateInHours": 2}),
        json!({"sightings": 3}),
        json!({"allowShortRetention": "yes"}),
        json!({"location": "s3://lake/wh/elsewhere"}),
        json!({"location": "/wh/t"}),
        json!({"quarantineInHours": 0}),
    ] {
        assert_eq!(lake.configure(bad.clone()).await.unwrap_err().name, GlueExceptionName::InvalidInput, "{bad}");
    }
    advance(&lake.world.clock, 1);
    table.data("orphan.parquet").await;
    lake.world.clock.advance_ms(2 * 3_600_000);
    assert_eq!(lake.gone().await.1.len(), 0);
    let config = json!({"orphanFileRetentionPeriodInDays": 1, "orphanFileRetentionPeriodInHours": 2,
        "runRateInHours": 24, "allowShortRetention": true, "sweepFolderMarkers": true, "sightings": 1,
        "quarantineInHours": 48});
    lake.configure(config.clone()).await.unwrap();
    lake.put("wh/t/data/day=1/", "").await;
    lake.world.clock.advance_ms(3 * 3_600_000);
    assert_eq!(lake.gone().await.1.len(), 2);
    let target =
        json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion"});
    let found = optimizer::get(&lake.app, lake.directory.as_ref(), target).await.unwrap();
    let shown = "/TableOptimizer/configuration/orphanFileDeletionConfiguration/icebergConfiguration";
    assert_eq!(found.pointer(shown), Some(&config));
}
