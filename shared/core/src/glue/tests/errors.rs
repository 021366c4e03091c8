//! Names and texts of exceptions, which clients compare.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, table_input};
use crate::glue::answer;

type Case<'a> = (&'a str, Value, &'a str, &'a str);

const MISSING: &str = "EntityNotFoundException";
const EXISTS: &str = "AlreadyExistsException";
const INVALID: &str = "InvalidInputException";

async fn check(cases: Vec<Case<'_>>) {
    let wire = Wire::with_table(&[("year", "int")]).await;
    wire.create(&["2024"]).await;
    for (operation, input, name, text) in cases {
        let (found_name, found_text) = wire.fails(operation, input.clone()).await;
        assert_eq!((found_name.as_str(), found_text.as_str()), (name, text), "{operation} {input}");
    }
}

#[tokio::test]
async fn texts_of_databases_and_tables() {
    let table = |database: &str, name: &str| json!({ "DatabaseName": database, "Name": name });
    let create = |name: &str| json!({ "DatabaseName": "d", "TableInput": table_input(name, &[]) });
    let renamed = json!({ "DatabaseName": "d", "Name": "other", "TableInput": table_input("t", &[]) });
    let rename = "Name and TableInput.Name differ: a table cannot be renamed.";
    let foreign = json!({ "DatabaseName": "d", "Name": "t", "CatalogId": "999999999999" });
    check(vec![
        ("GetDatabase", json!({ "Name": "Nope" }), MISSING, "Database Nope not found."),
        ("DeleteDatabase", json!({ "Name": "nope" }), MISSING, "Database nope not found."),
        ("CreateDatabase", json!({ "DatabaseInput": { "Name": "D" } }), EXISTS, "Database already exists."),
        ("GetTables", json!({ "DatabaseName": "nope" }), MISSING, "Database nope not found."),
        ("GetTable", table("d", "Nope"), MISSING, "Table Nope not found."),
        ("GetTable", table("x", "t"), MISSING, "Database x not found."),
        ("GetTable", foreign, MISSING, "Catalog 999999999999 not found."),
        ("DeleteTable", table("d", "nope"), MISSING, "Table nope not found."),
        ("CreateTable", create("T"), EXISTS, "Table already exists."),
        ("CreateTable", json!({ "DatabaseName": "d" }), INVALID, "TableInput is required."),
        ("UpdateTable", create("nope"), MISSING, "Table nope not found."),
        ("UpdateTable", renamed, INVALID, rename),
    ])
    .await;
    let update = |version: &str| {
        let mut input = create("t");
        input["VersionId"] = json!(version);
        input
    };
    let text = "Update table failed due to concurrent modifications.";
    check(
        ["1", "00", "x", "-0"]
            .map(|version| ("UpdateTable", update(version), "ConcurrentModificationException", text))
            .into(),
    )
    .await;
}

#[tokio::test]
async fn texts_of_partitions() {
    let create = |input: Value| in_table(json!({ "PartitionInput": input }));
    let at = |values: Value| in_table(json!({ "PartitionValues": values }));
    let mismatch = "The number of partition keys do not match the number of partition values";
    let nowhere = |more: &str| json!({ "DatabaseName": "d", "TableName": "nope", more: [] });
    let segment = in_table(json!({ "Segment": { "SegmentNumber": 2, "TotalSegments": 2 } }));
    let past = in_table(json!({ "TransactionId": "a", "QueryAsOfTime": 1 }));
    let token = "The NextToken is not one of this listing. Start again without a token.";
    check(vec![
        ("CreatePartition", create(partition_input(&["2024"])), EXISTS, "Partition already exists."),
        ("CreatePartition", create(partition_input(&[])), INVALID, mismatch),
        ("CreatePartition", create(json!({})), INVALID, mismatch),
        ("CreatePartition", create(partition_input(&["2024", "1"])), INVALID, mismatch),
        ("GetPartition", at(json!(["1999"])), MISSING, "Cannot find partition."),
        ("GetPartition", at(json!([])), MISSING, "Cannot find partition."),
        ("DeletePartition", at(json!(["1999"])), MISSING, "Cannot find partition."),
        ("GetPartitionIndexes", nowhere("x"), MISSING, "Table nope not found."),
        ("BatchCreatePartition", nowhere("PartitionInputList"), MISSING, "Table nope not found."),
        ("BatchGetPartition", nowhere("PartitionsToGet"), MISSING, "Table nope not found."),
        ("BatchDeletePartition", nowhere("PartitionsToDelete"), MISSING, "Table nope not found."),
        ("GetPartitions", segment, INVALID, "SegmentNumber must be less than TotalSegments."),
        ("GetPartitions", past, INVALID, "TransactionId and QueryAsOfTime cannot be combined."),
        ("GetPartitions", in_table(json!({ "NextToken": "nonsense" })), INVALID, token),
    ])
    .await;
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_name() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    let table = |extra: Value| {
        let mut input = json!({ "DatabaseName": "d", "TableInput": table_input("new", &[]) });
        for (name, value) in extra.as_object().unwrap() {
            input[name] = value.clone();
        }
        input
    };
    let cases = [
        ("GetTables", json!({ "DatabaseName": "d", "QueryAsOfTime": 1 }), "QueryAsOfTime"),
        ("GetTables", json!({ "DatabaseName": "d", "TransactionId": "x" }), "TransactionId"),
        ("DeleteTable", json!({ "DatabaseName": "d", "Name": "t", "TransactionId": "x" }), "TransactionId"),
        (
            "CreateTable",
            table(json!({ "TableInput": { "Name": "link", "TargetTable": { "DatabaseName": "d", "Name": "t" } } })),
            "TargetTable",
        ),
        (
            "CreateTable",
            table(json!({ "OpenTableFormatInput": { "IcebergInput": { "MetadataOperation": "CREATE",
                "CreateIcebergTableInput": { "Location": "s3://b/x", "Schema": { "Fields": [] } } } } })),
            "CreateIcebergTableInput",
        ),
        (
            "UpdateTable",
            table(json!({ "UpdateOpenTableFormatInput": { "UpdateIcebergInput": { "UpdateIcebergTableInput": {
                "Updates": [{ "Schema": { "Fields": [] }, "Location": "s3://b/x" }] } } } })),
            "UpdateOpenTableFormatInput",
        ),
        ("UpdateTable", table(json!({ "ViewUpdateAction": "REPLACE" })), "ViewUpdateAction"),
        (
            "BatchDeleteTable",
            json!({ "DatabaseName": "d", "TablesToDelete": ["t"], "TransactionId": "x" }),
            "TransactionId",
        ),
        (
            "CreateDatabase",
            json!({ "DatabaseInput": { "Name": "x", "TargetDatabase": { "DatabaseName": "d" } } }),
            "TargetDatabase",
        ),
    ];
    for (operation, input, member) in cases {
        let (name, text) = wire.fails(operation, input.clone()).await;
        assert_eq!(name, "UnsupportedOperationException", "{operation} {input}");
        assert!(text.contains(member), "{text}");
    }
    // Nothing of it was created, and blank filters are none.
    assert_eq!(wire.ok("GetDatabases", json!({})).await["DatabaseList"].as_array().unwrap().len(), 1);
    for blank in ["", "  \n"] {
        wire.ok("GetPartitions", in_table(json!({ "Expression": blank }))).await;
    }
}

#[tokio::test]
async fn an_unknown_operation_is_told_what_exists() {
    let wire = Wire::new();
    for target in
        [None, Some("AWSGlue.Nope"), Some("AWSGlue."), Some("CreateTable"), Some("DynamoDB_20120810.GetItem"), Some("")]
    {
        let answer = answer(&wire.app, target, b"{}", None, "r-1").await;
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, body["__type"].as_str()), (400, Some("UnknownOperationException")), "{target:?}");
        let text = body["Message"].as_str().unwrap();
        assert!(text.contains("CreatePartition") && text.contains("GetPartitions"), "{text}");
    }
}

#[tokio::test]
async fn failures_inside_say_nothing_of_the_inside() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    wire.create(&["2024"]).await;
    let mut items = wire.world.items.dump();
    let (key, mut item) = items.pop_last().unwrap();
    item.insert("body".to_owned(), crate::store::Value::Bytes(b"secret".to_vec()));
    wire.app.ports.items.put(&key, item, crate::store::Condition::Always).await.unwrap();
    let (status, body) = wire.send("GetPartition", in_table(json!({ "PartitionValues": ["2024"] }))).await;
    assert_eq!((status, &body["__type"]), (500, &json!("InternalServiceException")));
    assert!(!body.to_string().contains("secret") && !body.to_string().contains("body"), "{body}");
}
