//! Malformed input of every kind is the caller's fault, never ours.

use serde_json::{Value, json};

use super::{Wire, partition_input, table_input};
use crate::glue::answer;
use crate::glue::operations::OPERATIONS;

#[tokio::test]
async fn bodies_that_are_no_json_objects() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let bodies: [&[u8]; 9] =
        [b"{", b"[]", b"null", b"3", b"\"text\"", b"{\"a\": \"\\ud800\"}", b"\xff\xfe", b"{} {}", deep.as_bytes()];
    for operation in OPERATIONS {
        let target = format!("AWSGlue.{}", operation.name);
        for body in bodies {
            let answer = answer(&wire.app, Some(&target), body, None, "r-1").await;
            assert_eq!(answer.status, 400, "{} {body:?}", operation.name);
            assert!(answer.body.contains("SerializationException"), "{}", answer.body);
        }
        // No body is an empty object, as for other services of the protocol.
        let answer = answer(&wire.app, Some(&target), b"", None, "r-1").await;
        assert!(answer.status == 200 || answer.body.contains("ValidationException"), "{}", answer.body);
    }
}

/// A valid input for each operation, rich in members.
fn sample(operation: &str) -> Value {
    let names = json!({ "CatalogId": "000000000000", "DatabaseName": "d", "TableName": "t", "Name": "t" });
    let mut input = names;
    let more = match operation {
        "CreateDatabase" => {
            json!({ "DatabaseInput": { "Name": "d2", "Parameters": { "a": "b" }, "LocationUri": "s3://x" } })
        }
        "GetDatabase" | "DeleteDatabase" => json!({ "Name": "d" }),
        "GetDatabases" => json!({ "MaxResults": 5, "NextToken": "", "ResourceShareType": "ALL" }),
        "CreateTable" | "UpdateTable" => {
            json!({ "TableInput": table_input("t", &[("year", "int")]), "VersionId": "0" })
        }
        "GetTables" => json!({ "Expression": "*", "MaxResults": 5, "AttributesToGet": ["NAME"] }),
        "CreatePartition" => json!({ "PartitionInput": partition_input(&["1"]) }),
        "BatchCreatePartition" => json!({ "PartitionInputList": [partition_input(&["1"])] }),
        "GetPartitions" => json!({ "Segment": { "SegmentNumber": 0, "TotalSegments": 2 }, "ExcludeColumnSchema": true,
            "MaxResults": 10, "QueryAsOfTime": 1.5, "Expression": "", "NextToken": "" }),
        "BatchGetPartition" => json!({ "PartitionsToGet": [{ "Values": ["1"] }] }),
        "BatchDeletePartition" => json!({ "PartitionsToDelete": [{ "Values": ["1"] }] }),
        _ => json!({ "PartitionValues": ["1"] }),
    };
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

/// Pointers to every member and entry of a document.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                into.push(at.clone());
                places(member, &at, into);
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let at = format!("{at}/{index}");
                into.push(at.clone());
                places(entry, &at, into);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn any_member_of_any_type() {
    let long = "x".repeat(3000);
    let replacements = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("a\u{0}\n😀"),
        json!(long),
        json!([]),
        json!([null]),
        json!([[]]),
        json!(["", 1, {}]),
        json!({}),
        json!({ "": null, "Values": 1 }),
        json!({ "Name": {} }),
    ];
    for operation in OPERATIONS {
        let sample = sample(operation.name);
        let mut spots = Vec::new();
        places(&sample, "", &mut spots);
        for spot in spots {
            let wire = Wire::with_table(&[("year", "int")]).await;
            for replacement in &replacements {
                let mut input = sample.clone();
                *input.pointer_mut(&spot).unwrap() = replacement.clone();
                let (status, body) = wire.send(operation.name, input).await;
                assert!(status == 200 || status == 400, "{} {spot} {replacement}: {body}", operation.name);
            }
        }
    }
}

#[tokio::test]
async fn odd_locations_and_values_are_kept_or_refused() {
    let wire = Wire::with_table(&[("k", "string")]).await;
    for (location, status) in [
        ("", 200),
        ("s3://", 400),
        ("s3://b", 200),
        ("S3A://b//x//", 200),
        ("s3://b/../x", 400),
        ("hdfs://n/x", 200),
        ("x", 200),
        (&format!("s3://{}/x", "b".repeat(2040)), 400),
        (&format!("s3://b/{}", "ü/".repeat(1000)), 200),
    ] {
        let name = format!("t{}", wire.world.items.dump().len());
        let input = json!({ "Name": name, "StorageDescriptor": { "Location": location } });
        let (found, body) = wire.send("CreateTable", json!({ "DatabaseName": "d", "TableInput": input })).await;
        assert_eq!(found, status, "{location} {body}");
    }
    for value in ["\0", "\u{1}\u{2}", " ", "a/b:%#=", "\n", "😀".repeat(1024).as_str(), "__HIVE_DEFAULT_PARTITION__"]
    {
        wire.ok("CreatePartition", super::in_table(json!({ "PartitionInput": { "Values": [value] } }))).await;
    }
    assert_eq!(wire.list(3).await.len(), 7);
}
