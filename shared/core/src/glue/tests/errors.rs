//! Names and texts of exceptions, which clients compare.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, table_input};
use crate::glue::answer;

#[tokio::test]
async fn texts_of_the_service() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    wire.create(&["2024"]).await;
    let update = |name: &str, version: &str| json!({ "DatabaseName": "d", "TableInput": table_input(name, &[]), "VersionId": version });
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("GetDatabase", json!({ "Name": "Nope" }), "EntityNotFoundException", "Database Nope not found."),
        ("DeleteDatabase", json!({ "Name": "nope" }), "EntityNotFoundException", "Database nope not found."),
        (
            "CreateDatabase",
            json!({ "DatabaseInput": { "Name": "D" } }),
            "AlreadyExistsException",
            "Database already exists.",
        ),
        ("GetTables", json!({ "DatabaseName": "nope" }), "EntityNotFoundException", "Database nope not found."),
        (
            "GetTable",
            json!({ "DatabaseName": "d", "Name": "Nope" }),
            "EntityNotFoundException",
            "Table Nope not found.",
        ),
        ("GetTable", json!({ "DatabaseName": "x", "Name": "t" }), "EntityNotFoundException", "Database x not found."),
        (
            "DeleteTable",
            json!({ "DatabaseName": "d", "Name": "nope" }),
            "EntityNotFoundException",
            "Table nope not found.",
        ),
        (
            "CreateTable",
            json!({ "DatabaseName": "d", "TableInput": table_input("T", &[]) }),
            "AlreadyExistsException",
            "Table already exists.",
        ),
        ("UpdateTable", update("nope", "0"), "EntityNotFoundException", "Table nope not found."),
        (
            "UpdateTable",
            update("t", "1"),
            "ConcurrentModificationException",
            "Update table failed due to concurrent modifications.",
        ),
        (
            "UpdateTable",
            update("t", "00"),
            "ConcurrentModificationException",
            "Update table failed due to concurrent modifications.",
        ),
        (
            "UpdateTable",
            update("t", "x"),
            "ConcurrentModificationException",
            "Update table failed due to concurrent modifications.",
        ),
        (
            "CreatePartition",
            in_table(json!({ "PartitionInput": partition_input(&["2024"]) })),
            "AlreadyExistsException",
            "Partition already exists.",
        ),
        (
            "CreatePartition",
            in_table(json!({ "PartitionInput": partition_input(&[]) })),
            "InvalidInputException",
            "The number of partition keys do not match the number of partition values",
        ),
        (
            "CreatePartition",
            in_table(json!({ "PartitionInput": {} })),
            "InvalidInputException",
            "The number of partition keys do not match the number of partition values",
        ),
        (
            "CreatePartition",
            in_table(json!({ "PartitionInput": partition_input(&["2024", "1"]) })),
            "InvalidInputException",
            "The number of partition keys do not match the number of partition values",
        ),
        (
            "GetPartition",
            in_table(json!({ "PartitionValues": ["1999"] })),
            "EntityNotFoundException",
            "Cannot find partition.",
        ),
        (
            "GetPartition",
            in_table(json!({ "PartitionValues": [] })),
            "EntityNotFoundException",
            "Cannot find partition.",
        ),
        (
            "DeletePartition",
            in_table(json!({ "PartitionValues": ["1999"] })),
            "EntityNotFoundException",
            "Cannot find partition.",
        ),
        (
            "GetPartitionIndexes",
            json!({ "DatabaseName": "d", "TableName": "nope" }),
            "EntityNotFoundException",
            "Table nope not found.",
        ),
        (
            "BatchCreatePartition",
            json!({ "DatabaseName": "d", "TableName": "nope", "PartitionInputList": [] }),
            "EntityNotFoundException",
            "Table nope not found.",
        ),
        (
            "GetPartitions",
            in_table(json!({ "Segment": { "SegmentNumber": 2, "TotalSegments": 2 } })),
            "InvalidInputException",
            "SegmentNumber must be less than TotalSegments.",
        ),
        (
            "GetPartitions",
            in_table(json!({ "TransactionId": "a", "QueryAsOfTime": 1 })),
            "InvalidInputException",
            "TransactionId and QueryAsOfTime cannot be combined.",
        ),
        (
            "GetPartitions",
            in_table(json!({ "NextToken": "nonsense" })),
            "InvalidInputException",
            "The NextToken is not one of this listing. Start again without a token.",
        ),
        (
            "GetTable",
            json!({ "DatabaseName": "d", "Name": "t", "CatalogId": "999999999999" }),
            "EntityNotFoundException",
            "Catalog 999999999999 not found.",
        ),
        ("CreateTable", json!({ "DatabaseName": "d" }), "InvalidInputException", "TableInput is required."),
        (
            "UpdateTable",
            json!({ "DatabaseName": "d", "Name": "other", "TableInput": table_input("t", &[]) }),
            "InvalidInputException",
            "Name and TableInput.Name differ: a table cannot be renamed.",
        ),
    ];
    for (operation, input, name, text) in cases {
        let (found_name, found_text) = wire.fails(operation, input.clone()).await;
        assert_eq!((found_name.as_str(), found_text.as_str()), (name, text), "{operation} {input}");
    }
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
        ("GetPartitions", in_table(json!({ "Expression": "year = 2024" })), "Expression"),
        ("GetPartitions", in_table(json!({ "QueryAsOfTime": 1.5 })), "QueryAsOfTime"),
        ("GetPartitions", in_table(json!({ "TransactionId": "abc" })), "TransactionId"),
        ("GetTable", json!({ "DatabaseName": "d", "Name": "t", "QueryAsOfTime": 1 }), "QueryAsOfTime"),
        ("GetTables", json!({ "DatabaseName": "d", "TransactionId": "x" }), "TransactionId"),
        ("DeleteTable", json!({ "DatabaseName": "d", "Name": "t", "TransactionId": "x" }), "TransactionId"),
        (
            "CreateTable",
            table(json!({ "PartitionIndexes": [{ "Keys": ["a"], "IndexName": "i" }] })),
            "PartitionIndexes",
        ),
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
        ("CreateDatabase", json!({ "DatabaseInput": { "Name": "x" }, "Tags": { "a": "b" } }), "Tags"),
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
        let answer = answer(&wire.app, target, b"{}", "r-1").await;
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
