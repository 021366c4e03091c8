//! Partitions one by one and in batches.

use serde_json::{Value, json};

use super::{Wire, descriptor, in_table, partition_input, values_of};

#[tokio::test]
async fn a_partition_comes_back_as_it_was_given() {
    let wire = Wire::with_table(&[("year", "int"), ("region", "string")]).await;
    let mut input = partition_input(&["2024", "eu"]);
    input["LastAccessTime"] = json!(-86_400);
    input["LastAnalyzedTime"] = json!(1_704_164_645.5);
    input["StorageDescriptor"]["Parameters"] = json!({ "of": "descriptor" });
    wire.ok("CreatePartition", in_table(json!({ "PartitionInput": input }))).await;
    let mut answer = wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["2024", "eu"] }))).await;
    let revision = answer["Partition"].as_object_mut().unwrap().remove("Revision").unwrap();
    assert_eq!(revision.as_str().unwrap().len(), 32);
    let mut stored = descriptor("2024/eu");
    for (name, value) in [
        ("Compressed", json!(false)),
        ("NumberOfBuckets", json!(0)),
        ("BucketColumns", json!([])),
        ("SortColumns", json!([])),
        ("StoredAsSubDirectories", json!(false)),
        ("Parameters", json!({ "of": "descriptor" })),
    ] {
        stored[name] = value;
    }
    let expected = json!({ "Partition": {
        "Values": ["2024", "eu"], "DatabaseName": "d", "TableName": "t", "CreationTime": 1_700_000_000.123,
        "LastAccessTime": -86_400, "LastAnalyzedTime": 1_704_164_645.5, "StorageDescriptor": stored,
        "Parameters": { "rows": "1" }, "CatalogId": "000000000000",
    } });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_partition_without_a_descriptor_answers_one() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    wire.ok("CreatePartition", in_table(json!({ "PartitionInput": { "Values": ["1"] } }))).await;
    let answer = wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!(answer["Partition"]["StorageDescriptor"]["Columns"], json!([]));
    assert_eq!(answer["Partition"]["Parameters"], json!({}));
}

#[tokio::test]
async fn values_are_never_folded_trimmed_or_checked() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let distinct = ["1", "01", "+1", " 1", "A", "a", "a ", "abc", "__HIVE_DEFAULT_PARTITION__"];
    for value in distinct {
        wire.create(&[value]).await;
    }
    for value in distinct {
        let answer = wire.ok("GetPartition", in_table(json!({ "PartitionValues": [value] }))).await;
        assert_eq!(answer["Partition"]["Values"], json!([value]));
    }
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["01"] }))).await;
    wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!(wire.list(2).await.len(), distinct.len() - 1);
}

#[tokio::test]
async fn entries_of_a_batch_stand_for_themselves() {
    let wire = Wire::with_table(&[("year", "int")]).await;
    let create = |values: &[&[&str]]| {
        let inputs: Vec<Value> = values.iter().map(|values| partition_input(values)).collect();
        in_table(json!({ "PartitionInputList": inputs }))
    };
    assert_eq!(wire.ok("BatchCreatePartition", create(&[&["1"], &["2"]])).await, json!({ "Errors": [] }));
    let answer = wire.ok("BatchCreatePartition", create(&[&["2"], &["3"], &["4", "5"], &["3"], &[]])).await;
    let error = |values: Value, code: &str, message: &str| json!({ "PartitionValues": values, "ErrorDetail": { "ErrorCode": code, "ErrorMessage": message } });
    let exists = |value: &str| error(json!([value]), "AlreadyExistsException", "Partition already exists.");
    let mismatch = "The number of partition keys do not match the number of partition values";
    assert_eq!(
        answer["Errors"],
        json!([
            exists("2"),
            error(json!(["4", "5"]), "InvalidInputException", mismatch),
            exists("3"),
            error(json!([]), "InvalidInputException", mismatch),
        ])
    );
    assert_eq!(wire.list(10).await, [["1"], ["2"], ["3"]]);

    let delete = |values: &[&str]| {
        let entries: Vec<Value> = values.iter().map(|value| json!({ "Values": [value] })).collect();
        in_table(json!({ "PartitionsToDelete": entries }))
    };
    assert_eq!(wire.ok("BatchDeletePartition", delete(&["1"])).await, json!({}));
    let answer = wire.ok("BatchDeletePartition", delete(&["1", "2", "2", "9"])).await;
    let missing = |value: &str| error(json!([value]), "EntityNotFoundException", "Cannot find partition.");
    assert_eq!(answer, json!({ "Errors": [missing("1"), missing("2"), missing("9")] }));
    assert_eq!(wire.list(10).await, [["3"]]);
}

#[tokio::test]
async fn a_batch_get_keeps_the_order_and_leaves_out_what_is_not_there() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let inputs: Vec<Value> = (0..100).map(|n| json!({ "Values": [n.to_string()] })).collect();
    wire.ok("BatchCreatePartition", in_table(json!({ "PartitionInputList": inputs }))).await;
    let wanted: Vec<Value> = (0..250).rev().chain([7]).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let answer = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": wanted }))).await;
    let expected: Vec<Vec<String>> = (0..100).rev().map(|n| vec![n.to_string()]).collect();
    assert_eq!(values_of(&answer["Partitions"]), expected);
    assert_eq!(answer["UnprocessedKeys"], json!([]));
}

#[tokio::test]
async fn a_batch_get_that_is_too_large_says_what_to_ask_again() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for n in 0..6 {
        let mut input = partition_input(&[&n.to_string()]);
        input["Parameters"] = json!({ "p": "x".repeat(500_000), "q": "y".repeat(500_000) });
        wire.ok("CreatePartition", in_table(json!({ "PartitionInput": input }))).await;
    }
    let mut wanted: Value = (0..6).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let mut seen = Vec::new();
    while wanted != json!([]) {
        let answer = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": wanted }))).await;
        assert!(crate::catalog::escaped_len(&answer.to_string()) <= crate::limits::ANSWER_MAX_BYTES);
        assert!(!answer["Partitions"].as_array().unwrap().is_empty(), "progress in every round");
        seen.extend(values_of(&answer["Partitions"]));
        wanted = answer["UnprocessedKeys"].clone();
    }
    assert_eq!(seen.concat(), ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn column_schemas_can_be_left_out() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let with = wire.ok("GetPartitions", in_table(json!({}))).await;
    assert_eq!(with["Partitions"][0]["StorageDescriptor"]["Columns"][0]["Name"], "id");
    let without = wire.ok("GetPartitions", in_table(json!({ "ExcludeColumnSchema": true }))).await;
    assert!(without["Partitions"][0]["StorageDescriptor"].get("Columns").is_none());
    assert_eq!(without["Partitions"][0]["StorageDescriptor"]["Location"], "s3://lake/d/t/1");
}

#[tokio::test]
async fn revisions_are_never_seen_twice() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        wire.create(&["1"]).await;
        let at = in_table(json!({ "PartitionValues": ["1"] }));
        let answer = wire.ok("GetPartition", at.clone()).await;
        assert!(seen.insert(answer["Partition"]["Revision"].to_string()));
        wire.ok("DeletePartition", at).await;
    }
}
