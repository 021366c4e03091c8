//! The Glue operations on table optimizers, shape by shape.

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::glue::GlueExceptionName::{self, *};

fn target() -> Value {
    json!({"CatalogId": "000000000000", "DatabaseName": "DB", "TableName": "T", "Type": "orphan_file_deletion"})
}

fn with(config: Value) -> Value {
    let mut input = target();
    input["TableOptimizerConfiguration"] = config;
    input
}

fn full() -> Value {
    json!({
        "roleArn": "arn:aws:iam::000000000000:role/sweeper", "enabled": true,
        "vpcConfiguration": {"glueConnectionName": "c"},
        "orphanFileDeletionConfiguration": {"icebergConfiguration": {
            "orphanFileRetentionPeriodInDays": 5, "location": "s3://lake/wh/t/data", "runRateInHours": 12}},
        "unknownMember": 1
    })
}

async fn lake() -> Lake {
    let lake = Lake::new();
    Iceberg::create(&lake, "t", 2).await;
    lake.register("plain", "wh/plain", &[("classification", "parquet")]);
    lake
}

#[tokio::test]
async fn create_get_update_delete() {
    let lake = lake().await;
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    assert_eq!(optimizer::create(app, directory, with(full())).await.unwrap(), json!({}));
    let mut expected = full();
    expected.as_object_mut().unwrap().remove("unknownMember");
    assert_eq!(
        optimizer::get(app, directory, target()).await.unwrap(),
        json!({"CatalogId": "000000000000", "DatabaseName": "DB", "TableName": "T", "TableOptimizer": {
            "type": "orphan_file_deletion", "configuration": expected, "configurationSource": "table"}})
    );
    let again = optimizer::create(app, directory, with(full())).await.unwrap_err();
    assert_eq!(again.name, AlreadyExists);
    let created_ms = items::OptimizerItem::load(app.ports.items.as_ref(), "id-t").await.unwrap().unwrap().created_at_ms;
    lake.days(1);
    let defaults = json!({"enabled": false, "orphanFileDeletionConfiguration": {}});
    optimizer::update(app, directory, with(defaults)).await.unwrap();
    let item = items::OptimizerItem::load(app.ports.items.as_ref(), "id-t").await.unwrap().unwrap();
    assert_eq!(item.created_at_ms, created_ms);
    assert_eq!((item.config.retention_hours, item.config.run_rate_hours, item.config.location), (72, 24, None));
    assert!(!item.config.enabled);
    optimizer::delete(app, directory, target()).await.unwrap();
    for result in [
        optimizer::get(app, directory, target()).await,
        optimizer::delete(app, directory, target()).await,
        optimizer::update(app, directory, with(full())).await,
        optimizer::list_runs(app, directory, target()).await,
    ] {
        assert_eq!(result.unwrap_err().name, EntityNotFound);
    }
}

#[tokio::test]
async fn inputs_that_are_refused() {
    let lake = lake().await;
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    let iceberg = |block: Value| with(json!({"orphanFileDeletionConfiguration": {"icebergConfiguration": block}}));
    let changed = |member: &str, value: Value| {
        let mut input = with(full());
        input[member] = value;
        input
    };
    let cases: Vec<(GlueExceptionName, Value)> = vec![
        (Validation, json!({})),
        (Validation, changed("CatalogId", Value::Null)),
        (Validation, changed("DatabaseName", json!(""))),
        (Validation, changed("TableName", json!("x".repeat(256)))),
        (Validation, changed("Type", json!("vacuum"))),
        (Validation, target()),
        (Validation, with(json!({"roleArn": "short", "orphanFileDeletionConfiguration": {}}))),
        (EntityNotFound, changed("CatalogId", json!("111111111111"))),
        (EntityNotFound, changed("TableName", json!("none"))),
        // A configuration of another type.
        (InvalidInput, changed("Type", json!("compaction"))),
        (InvalidInput, changed("Type", json!("retention"))),
        (InvalidInput, changed("TableName", json!("plain"))),
        (InvalidInput, with(json!({"enabled": true}))),
        (InvalidInput, with(json!({"compactionConfiguration": {}, "orphanFileDeletionConfiguration": {}}))),
        (InvalidInput, with(json!({"retentionConfiguration": {}, "orphanFileDeletionConfiguration": {}}))),
        (InvalidInput, iceberg(json!({"orphanFileRetentionPeriodInDays": 0}))),
        (InvalidInput, iceberg(json!({"orphanFileRetentionPeriodInDays": 1.5}))),
        (InvalidInput, iceberg(json!({"orphanFileRetentionPeriodInDays": i64::MAX}))),
        (InvalidInput, iceberg(json!({"orphanFileRetentionPeriodInDays": 3, "orphanFileRetentionPeriodInHours": 24}))),
        (InvalidInput, iceberg(json!({"orphanFileRetentionPeriodInDays": 3, "orphanFileRetentionPeriodInHours": 73}))),
        (InvalidInput, iceberg(json!({"runRateInHours": 2}))),
        (InvalidInput, iceberg(json!({"runRateInHours": 169}))),
        (InvalidInput, iceberg(json!({"location": "s3://lake/wh"}))),
        (InvalidInput, iceberg(json!({"location": "s3://lake/wh/t2"}))),
        (InvalidInput, iceberg(json!({"location": "s3://other/wh/t"}))),
        (InvalidInput, iceberg(json!({"location": "wh/t"}))),
        (InvalidInput, iceberg(json!({"location": 7}))),
        (InvalidInput, with(json!({"enabled": "yes", "orphanFileDeletionConfiguration": {}}))),
    ];
    for (name, input) in cases {
        let error = optimizer::create(app, directory, input.clone()).await.unwrap_err();
        assert_eq!(error.name, name, "{input}: {error}");
    }
    let several = optimizer::create(app, directory, json!({})).await.unwrap_err();
    assert!(several.message.starts_with("4 validation errors detected: "), "{several}");
}

#[tokio::test]
async fn batch_get_tells_misses_one_by_one() {
    let lake = lake().await;
    lake.optimize("t", json!({})).await;
    let entry = |table: &str, kind: &str| json!({"catalogId": "000000000000", "databaseName": "db", "tableName": table, "type": kind});
    let input = json!({"Entries": [entry("t", "orphan_file_deletion"), entry("none", "orphan_file_deletion"),
        entry("t", "compaction"), {"databaseName": "db"}]});
    let answer = optimizer::batch_get(&lake.app, lake.directory.as_ref(), input).await.unwrap();
    assert_eq!(answer["TableOptimizers"][0]["tableOptimizer"]["type"], "orphan_file_deletion");
    assert_eq!(answer["TableOptimizers"][0]["tableName"], "t");
    let codes: Vec<&str> =
        answer["Failures"].as_array().unwrap().iter().map(|f| f["error"]["ErrorCode"].as_str().unwrap()).collect();
    assert_eq!(codes, ["EntityNotFoundException", "EntityNotFoundException", "InvalidInputException"]);
    assert_eq!(answer["Failures"][1]["type"], "compaction");
}

#[tokio::test]
async fn runs_in_the_services_shape() {
    let lake = lake().await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    lake.put("wh/t/data/orphan.parquet", "x").await;
    lake.days(4);
    lake.sweep("t", Mode::DryRun).await;
    lake.sweep("t", Mode::Ordinary).await;
    advance(&lake.world.clock, 1);
    let failed = lake.start("t", Mode::Ordinary).await;
    lake.register("t", "wh/t", &[("table_type", "ICEBERG"), ("metadata_location", "s3://lake/none.metadata.json")]);
    lake.run(&failed).await.unwrap();
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    let answer = optimizer::list_runs(app, directory, target()).await.unwrap();
    let runs = answer["TableOptimizerRuns"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["eventType"], "failed");
    assert!(runs[0]["error"].as_str().unwrap().starts_with("metadata_incomplete: "));
    assert_eq!(runs[1]["eventType"], "completed");
    assert_eq!(runs[1]["orphanFileDeletionMetrics"]["IcebergMetrics"]["NumberOfOrphanFilesDeleted"], 1);
    assert!(runs[1]["startTimestamp"].as_f64().unwrap() > 1e9);
    let got = optimizer::get(app, directory, target()).await.unwrap();
    assert_eq!(got["TableOptimizer"]["lastRun"], runs[0]);
    // Paged; REST shows dry runs as well.
    let mut page = target();
    page["MaxResults"] = json!(1);
    let mut seen = 0;
    for _ in 0..9 {
        let answer = optimizer::list_runs(app, directory, page.clone()).await.unwrap();
        seen += answer["TableOptimizerRuns"].as_array().unwrap().len();
        page["NextToken"] = answer["NextToken"].clone();
        if page["NextToken"].is_null() {
            break;
        }
    }
    assert_eq!(seen, 2);
    page["NextToken"] = json!("§");
    assert_eq!(optimizer::list_runs(app, directory, page).await.unwrap_err().name, InvalidInput);
    let all = rest::list_in(app, directory, "db", "t", None).await.unwrap();
    assert_eq!(all["runs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn starting_by_hand() {
    let lake = lake().await;
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    let start =
        |table: &'static str, body: Value| async move { rest::start_in(app, directory, "db", table, &body).await };
    let dry = json!({"mode": "dry_run"});
    assert_eq!(start("t", dry.clone()).await.unwrap_err().name, EntityNotFound);
    assert_eq!(start("none", dry.clone()).await.unwrap_err().name, EntityNotFound);
    lake.optimize("t", json!({})).await;
    for bad in [json!({}), json!({"mode": "scheduled"}), json!({"mode": 1})] {
        assert_eq!(start("t", bad).await.unwrap_err().name, InvalidInput);
    }
    let run = start("t", dry).await.unwrap();
    assert_eq!((&run["state"], &run["mode"]), (&json!("queued"), &json!("dry_run")));
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(rest::get_in(app, directory, "db", "T", id).await.unwrap()["run_id"], run["run_id"]);
    for none in ["none", "", "a b", &"9".repeat(2_000)] {
        assert_eq!(rest::get_in(app, directory, "db", "t", none).await.unwrap_err().name, EntityNotFound);
    }
    assert_eq!(rest::report_in(app, directory, "db", "t", id, None).await.unwrap(), json!({"lines": []}));
    for token in ["-1", "0x", "7"] {
        assert!(rest::report_in(app, directory, "db", "t", id, Some(token)).await.is_err());
    }
}

#[tokio::test]
async fn the_last_run_is_the_last_in_time_whatever_its_id() {
    let lake = Lake::new();
    Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    let by_hand = SweepRequest { run_id: "by-hand".into(), ..lake.start("t", Mode::Ordinary).await };
    lake.run(&by_hand).await.unwrap();
    lake.days(1);
    let later = lake.sweep("t", Mode::Ordinary).await;
    let names = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
        "Type": "orphan_file_deletion"});
    let got = optimizer::get(&lake.app, lake.directory.as_ref(), names).await.unwrap();
    let started = later.started_ms.unwrap() as f64 / 1000.0;
    assert_eq!(got["TableOptimizer"]["lastRun"]["startTimestamp"], json!(started));
}

fn of(kind: &str) -> Value {
    let mut input = target();
    input["Type"] = json!(kind);
    input
}

fn of_with(kind: &str, config: Value) -> Value {
    let mut input = of(kind);
    input["TableOptimizerConfiguration"] = config;
    input
}

#[tokio::test]
async fn other_types_are_kept_and_have_no_runs() {
    let lake = lake().await;
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    let role = "arn:aws:iam::000000000000:role/keeper";
    optimizer::create(app, directory, of_with("compaction", json!({"roleArn": role, "enabled": true}))).await.unwrap();
    let retention = json!({"retentionConfiguration": {"icebergConfiguration": {"snapshotRetentionPeriodInDays": 7}}});
    optimizer::create(app, directory, of_with("retention", retention)).await.unwrap();
    let again = optimizer::create(app, directory, of_with("compaction", json!({}))).await.unwrap_err();
    assert_eq!(again.name, AlreadyExists);
    let found = optimizer::get(app, directory, of("compaction")).await.unwrap();
    let iceberg = json!({"strategy": "binpack", "minInputFiles": 100, "deleteFileThreshold": 1});
    assert_eq!(
        found["TableOptimizer"],
        json!({"type": "compaction", "configurationSource": "table", "configuration": {
            "roleArn": role, "enabled": true, "compactionConfiguration": {"icebergConfiguration": iceberg}}})
    );
    let found = optimizer::get(app, directory, of("retention")).await.unwrap();
    assert_eq!(
        found["TableOptimizer"]["configuration"]["retentionConfiguration"]["icebergConfiguration"],
        json!({"snapshotRetentionPeriodInDays": 7, "numberOfSnapshotsToRetain": 1, "cleanExpiredFiles": false,
            "runRateInHours": 24})
    );
    // Paused alone: the rest stays.
    optimizer::update(app, directory, of_with("compaction", json!({"enabled": false}))).await.unwrap();
    let found = optimizer::get(app, directory, of("compaction")).await.unwrap();
    let configuration = &found["TableOptimizer"]["configuration"];
    assert_eq!((&configuration["enabled"], &configuration["roleArn"]), (&json!(false), &json!(role)));
    assert_eq!(configuration["compactionConfiguration"]["icebergConfiguration"], iceberg);
    let runs = optimizer::list_runs(app, directory, of("retention")).await.unwrap();
    assert_eq!(runs["TableOptimizerRuns"], json!([]));
    let entry = |kind: &str| json!({"databaseName": "db", "tableName": "t", "type": kind});
    let batch = json!({"Entries": [entry("compaction"), entry("orphan_file_deletion")]});
    let batch = optimizer::batch_get(app, directory, batch).await.unwrap();
    assert_eq!(batch["TableOptimizers"][0]["tableOptimizer"]["type"], "compaction");
    assert_eq!(batch["Failures"][0]["type"], "orphan_file_deletion");
    optimizer::delete(app, directory, of("compaction")).await.unwrap();
    for gone in [
        optimizer::get(app, directory, of("compaction")).await,
        optimizer::delete(app, directory, of("compaction")).await,
        optimizer::update(app, directory, of_with("compaction", json!({}))).await,
        optimizer::list_runs(app, directory, of("compaction")).await,
    ] {
        assert_eq!(gone.unwrap_err().name, EntityNotFound);
    }
    optimizer::get(app, directory, of("retention")).await.unwrap();
    // The planner never sees them.
    assert_eq!(plan_due(app, crate::ports::Deadline(i64::MAX)).await.unwrap().optimizers, 0);
}

#[tokio::test]
async fn configurations_of_other_types_have_to_match() {
    let lake = lake().await;
    let (app, directory) = (&lake.app, lake.directory.as_ref());
    let iceberg = |block: Value| json!({"retentionConfiguration": {"icebergConfiguration": block}});
    for (kind, config) in [
        ("retention", json!({})),
        ("retention", json!({"compactionConfiguration": {}, "retentionConfiguration": {}})),
        ("retention", json!({"orphanFileDeletionConfiguration": {}})),
        ("compaction", json!({"retentionConfiguration": {}})),
        ("compaction", json!({"orphanFileDeletionConfiguration": {}})),
        ("compaction", json!({"compactionConfiguration": {"icebergConfiguration": {"minInputFiles": 0}}})),
        ("retention", iceberg(json!({"runRateInHours": 2}))),
        ("retention", iceberg(json!({"snapshotRetentionPeriodInDays": 0}))),
    ] {
        let error = optimizer::create(app, directory, of_with(kind, config.clone())).await.unwrap_err();
        assert_eq!(error.name, InvalidInput, "{kind} {config}: {error}");
    }
    let mut plain = of_with("compaction", json!({}));
    plain["TableName"] = json!("plain");
    assert_eq!(optimizer::create(app, directory, plain).await.unwrap_err().name, InvalidInput);
}
