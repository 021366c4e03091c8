//! Databases and tables.

use serde_json::{Value, json};

use super::{NOW_MS, Wire, table_input};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["Name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_database_comes_back() {
    let wire = Wire::new();
    let input = json!({ "Name": "Sales", "Description": "x", "Parameters": { "A": "b" }, "LocationUri": "s3://b/s" });
    assert_eq!(
        wire.ok("CreateDatabase", json!({ "DatabaseInput": input, "CatalogId": "000000000000" })).await,
        json!({})
    );
    let expected = json!({ "Database": { "Name": "sales", "Description": "x", "LocationUri": "s3://b/s",
        "Parameters": { "A": "b" }, "CreateTime": 1_700_000_000.123, "CatalogId": "000000000000" } });
    assert_eq!(wire.ok("GetDatabase", json!({ "Name": "SALES" })).await, expected);
    wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": "bare" } })).await;
    let bare = wire.ok("GetDatabase", json!({ "Name": "bare" })).await;
    assert!(bare["Database"].get("Description").is_none() && bare["Database"].get("Parameters").is_none());
}

#[tokio::test]
async fn a_table_comes_back_with_defaults_and_folded_names() {
    let wire = Wire::with_table(&[]).await;
    let input = json!({
        "Name": "Orders", "Owner": "me", "LastAccessTime": 1_704_164_645.678_901, "Retention": 3,
        "PartitionKeys": [{ "Name": "Day", "Type": "date", "Parameters": { "x": "y" } }],
        "StorageDescriptor": { "Columns": [{ "Name": "ID", "Type": "int", "Parameters": { "iceberg.field.id": "1" } }], "Location": "s3://lake/orders" },
        "ViewOriginalText": "text", "TableType": "EXTERNAL_TABLE", "Parameters": { "K": "V" },
    });
    wire.ok("CreateTable", json!({ "DatabaseName": "D", "TableInput": input })).await;
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "ORDERS" })).await;
    let expected = json!({ "Table": {
        "Name": "orders", "DatabaseName": "d", "Owner": "me", "CreateTime": NOW_MS as f64 / 1000.0, "UpdateTime": NOW_MS as f64 / 1000.0,
        "LastAccessTime": 1_704_164_645.678_901, "Retention": 3,
        "StorageDescriptor": {
            "Columns": [{ "Name": "id", "Type": "int", "Parameters": { "iceberg.field.id": "1" } }], "Location": "s3://lake/orders",
            "Compressed": false, "NumberOfBuckets": 0, "BucketColumns": [], "SortColumns": [], "StoredAsSubDirectories": false, "Parameters": {},
        },
        "PartitionKeys": [{ "Name": "day", "Type": "date", "Parameters": { "x": "y" } }],
        "ViewOriginalText": "text", "TableType": "EXTERNAL_TABLE", "Parameters": { "K": "V" },
        "IsRegisteredWithLakeFormation": false, "CatalogId": "000000000000", "VersionId": "0",
    } });
    assert_eq!(table, expected);
    let indexes = wire.ok("GetPartitionIndexes", json!({ "DatabaseName": "d", "TableName": "orders" })).await;
    assert_eq!(indexes, json!({ "PartitionIndexDescriptorList": [] }));
}

#[tokio::test]
async fn an_iceberg_commit_is_a_conditional_write() {
    let wire = Wire::with_table(&[]).await;
    let at = |n: u32| {
        let mut input = table_input("t", &[]);
        input["Parameters"] =
            json!({ "table_type": "ICEBERG", "metadata_location": format!("s3://lake/d/t/{n}.json") });
        input
    };
    let commit = |n: u32, version: &str| json!({ "DatabaseName": "d", "TableInput": at(n), "SkipArchive": true, "VersionId": version });
    wire.world.clock.advance_ms(1000);
    wire.ok("UpdateTable", commit(1, "0")).await;
    wire.ok("UpdateTable", commit(2, "1")).await;
    let (name, text) = wire.fails("UpdateTable", commit(3, "1")).await;
    assert_eq!(name, "ConcurrentModificationException");
    assert_eq!(text, "Update table failed due to concurrent modifications.");
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await["Table"].clone();
    assert_eq!(table["VersionId"], "2");
    assert_eq!(table["Parameters"]["metadata_location"], "s3://lake/d/t/2.json");
    assert_eq!(table["CreateTime"], json!(1_700_000_000.123));
    assert_eq!(table["UpdateTime"], json!(1_700_000_001.123));
    // Without a version the last writer wins.
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "Name": "T", "TableInput": at(9) })).await;
    assert_eq!(wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await["Table"]["VersionId"], "3");
}

#[tokio::test]
async fn an_update_replaces_everything_and_may_change_the_keys() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    wire.create(&["2024"]).await;
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": { "Name": "t", "PartitionKeys": [{ "Name": "a" }, { "Name": "b" }] } })).await;
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await["Table"].clone();
    assert_eq!(table["Parameters"], json!({}));
    assert_eq!(table["StorageDescriptor"]["Columns"], json!([]));
    assert!(table.get("TableType").is_none());
    // The old partition can be read and deleted by its values; new ones have two.
    let old = super::in_table(json!({ "PartitionValues": ["2024"] }));
    wire.ok("GetPartition", old.clone()).await;
    wire.create(&["x", "y"]).await;
    assert_eq!(wire.list(10).await.len(), 2);
    wire.ok("DeletePartition", old).await;
    assert_eq!(wire.list(10).await, [["x", "y"]]);
}

#[tokio::test]
async fn open_table_format_input_marks_the_table() {
    let wire = Wire::with_table(&[]).await;
    let open = json!({ "IcebergInput": { "MetadataOperation": "CREATE", "Version": "2" } });
    let input = json!({ "DatabaseName": "d", "TableInput": { "Name": "ice" }, "OpenTableFormatInput": open });
    wire.ok("CreateTable", input).await;
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "ice" })).await;
    assert_eq!(table["Table"]["Parameters"], json!({ "table_type": "ICEBERG" }));
}

#[tokio::test]
async fn tables_are_listed_by_name_and_pattern_in_pages() {
    let wire = Wire::with_table(&[]).await;
    for name in ["orders_a", "orders_b", "events", "zorders"] {
        wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": { "Name": name } })).await;
    }
    let all = wire.ok("GetTables", json!({ "DatabaseName": "D" })).await;
    assert_eq!(names(&all["TableList"]), ["events", "orders_a", "orders_b", "t", "zorders"]);
    assert!(all.get("NextToken").is_none());
    let first = wire.ok("GetTables", json!({ "DatabaseName": "d", "Expression": "*orders*", "MaxResults": 2 })).await;
    assert_eq!(names(&first["TableList"]), ["orders_a", "orders_b"]);
    let token = &first["NextToken"];
    let second = json!({ "DatabaseName": "d", "Expression": "*orders*", "MaxResults": 2, "NextToken": token });
    let second = wire.ok("GetTables", second).await;
    assert_eq!((names(&second["TableList"]), second.get("NextToken")), (vec!["zorders"], None));
    let (name, _) =
        wire.fails("GetTables", json!({ "DatabaseName": "d", "Expression": "*", "NextToken": token })).await;
    assert_eq!(name, "InvalidInputException", "a token of another pattern");
    let (name, _) = wire.fails("GetTables", json!({ "DatabaseName": "d", "Expression": "(" })).await;
    assert_eq!(name, "InvalidInputException");
    let bare =
        wire.ok("GetTables", json!({ "DatabaseName": "d", "Expression": "events", "AttributesToGet": ["NAME"] })).await;
    assert_eq!(bare["TableList"], json!([{ "Name": "events" }]));
}

#[tokio::test]
async fn a_page_of_large_tables_ends_at_the_answers_limit() {
    let wire = Wire::with_table(&[]).await;
    for n in 0..5 {
        let input =
            json!({ "Name": format!("big{n}"), "Parameters": { "p": "x".repeat(500_000), "q": "y".repeat(500_000) } });
        wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": input })).await;
    }
    let mut seen = Vec::new();
    let mut token = Value::Null;
    loop {
        let page = wire.ok("GetTables", json!({ "DatabaseName": "d", "NextToken": token })).await;
        assert!(crate::catalog::escaped_len(&page.to_string()) <= crate::limits::ANSWER_MAX_BYTES);
        seen.extend(names(&page["TableList"]).into_iter().map(str::to_owned));
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    assert_eq!(seen, ["big0", "big1", "big2", "big3", "big4", "t"]);
}
