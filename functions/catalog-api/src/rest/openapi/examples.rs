//! Examples of requests: a table `orders` of the database `shop`, partitioned by day and hour.

use serde_json::{Value, json};

pub(super) fn path(parameter: &str) -> &'static str {
    match parameter {
        "database" => "shop",
        "table" => "orders",
        "version" => "0",
        "index" => "by_day",
        "type" => "orphan_file_deletion",
        "function" => "clean",
        "lease" => "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
        "dropped_table" => "1a2b3c4d5e6f70819203a4b5c6d7e8f9",
        "catalog" => "000000000000",
        _ => "0",
    }
}

pub(super) fn query(parameter: &str) -> Option<Value> {
    Some(match parameter {
        "value" => json!(["2026-11-01", "7"]),
        "column" => json!("amount"),
        "pattern" => json!(".*"),
        "arn" => json!("arn:aws:glue:us-east-1:000000000000:database/shop"),
        "key" => json!(["team"]),
        _ => return None,
    })
}

fn descriptor(location: &str) -> Value {
    json!({ "Columns": [{ "Name": "id", "Type": "bigint" }, { "Name": "amount", "Type": "double" }], "Location": location })
}

fn partition(day: &str) -> Value {
    json!({ "Values": [day, "7"], "StorageDescriptor": descriptor(&format!("s3://lake/orders/day={day}/hour=7")) })
}

fn statistics() -> Value {
    json!({ "ColumnStatisticsList": [{ "ColumnName": "amount", "ColumnType": "double", "AnalyzedTime": 1_793_500_000,
        "StatisticsData": { "Type": "DOUBLE", "DoubleColumnStatisticsData": { "MinimumValue": 0.5, "MaximumValue": 99.5,
            "NumberOfNulls": 0, "NumberOfDistinctValues": 120 } } }] })
}

fn table() -> Value {
    json!({ "TableInput": { "Name": "orders", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": descriptor("s3://lake/orders"),
        "PartitionKeys": [{ "Name": "day", "Type": "date" }, { "Name": "hour", "Type": "int" }] } })
}

fn optimizer() -> Value {
    json!({ "roleArn": "arn:aws:iam::000000000000:role/sweeper", "enabled": true,
        "orphanFileDeletionConfiguration": { "icebergConfiguration": { "orphanFileRetentionPeriodInDays": 3 } } })
}

pub(super) fn body(name: &str) -> Option<Value> {
    let function = json!({ "FunctionInput": { "FunctionName": "clean", "ClassName": "com.example.Clean" } });
    let wanted = json!([{ "Values": ["2026-11-01", "7"] }, { "Values": ["2026-11-04", "7"] }]);
    Some(match name {
        "CreateDatabase" => json!({ "DatabaseInput": { "Name": "shop" }, "Tags": { "team": "web" } }),
        "UpdateDatabase" => json!({ "DatabaseInput": { "Name": "shop", "Description": "orders and customers" } }),
        "CreateTable" | "UpdateTable" => table(),
        "BatchDeleteTable" => json!({ "TablesToDelete": ["customers"] }),
        "SearchTables" => json!({ "SearchText": "orders" }),
        "BatchDeleteTableVersion" => json!({ "VersionIds": ["0"] }),
        "UpdateColumnStatisticsForTable" | "UpdateColumnStatisticsForPartition" => statistics(),
        "CreatePartitionIndex" => json!({ "PartitionIndex": { "IndexName": "by_day", "Keys": ["day"] } }),
        "CreatePartition" => json!({ "PartitionInput": partition("2026-11-02") }),
        "UpdatePartition" => json!({ "PartitionInput": partition("2026-11-01") }),
        "BatchCreatePartition" => json!({ "PartitionInputList": [partition("2026-11-02"), partition("2026-11-03")] }),
        "BatchGetPartition" => json!({ "PartitionsToGet": wanted }),
        "BatchUpdatePartition" => json!({ "Entries": [{ "PartitionValueList": ["2026-11-01", "7"],
            "PartitionInput": partition("2026-11-01"), "ExpectedRevision": "4f0a6c1e2b7d4c0b9a3f5e8d7c6b5a49" }] }),
        "BatchDeletePartition" => json!({ "PartitionsToDelete": [{ "Values": ["2026-11-03", "7"] }] }),
        "CreateTableOptimizer" => {
            json!({ "Type": "orphan_file_deletion", "TableOptimizerConfiguration": optimizer() })
        }
        "UpdateTableOptimizer" => json!({ "TableOptimizerConfiguration": optimizer() }),
        "BatchGetTableOptimizer" => json!({ "Entries": [{ "catalogId": "000000000000", "databaseName": "shop",
            "tableName": "orders", "type": "orphan_file_deletion" }] }),
        "RestoreSweep" => json!({ "prefix": "s3://lake/orders/data/day=2026-11-02/", "why": "a commit was late" }),
        "StartSweep" | "StartDroppedTableSweep" => json!({ "mode": "dry_run" }),
        "ExplainSweep" => json!({ "key": "s3://lake/orders/data/00000-0-left-over.parquet" }),
        "GrantLease" => {
            json!({ "prefixes": ["s3://lake/orders/data/day=2026-11-02/"], "ttl_seconds": 900, "holder": "nightly" })
        }
        "RenewLease" => json!({ "ttl_seconds": 900 }),
        "CreateUserDefinedFunction" | "UpdateUserDefinedFunction" => function,
        "TagResource" => json!({ "TagsToAdd": { "team": "web" } }),
        _ => return None,
    })
}
