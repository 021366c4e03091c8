//! The largest things that the model allows, incompressible, and one byte more than can be kept.

use serde_json::{Value, json};

use super::{Wire, in_table, noise, table_input};
use crate::catalog::{BODY_MAX_BYTES, escaped_len};
use crate::limits::ANSWER_MAX_BYTES;

async fn comes_back(wire: &Wire, input: &Value) -> Value {
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": input })).await;
    let answer = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert!(escaped_len(&answer.to_string()) <= ANSWER_MAX_BYTES);
    answer["Table"].clone()
}

#[tokio::test]
async fn the_models_largest_tables_are_stored_and_read_back() {
    let wire = Wire::with_table(&[]).await;
    let mut input = table_input("t", &[]);
    input["Parameters"] = json!({ "p": noise(512_000, 1), "q": noise(512_000, 2) });
    input["ViewOriginalText"] = json!(noise(409_600, 3));
    input["ViewExpandedText"] = json!(noise(409_600, 4));
    input["StorageDescriptor"]["Columns"] = json!([{ "Name": "c", "Type": noise(131_072, 5) }]);
    input["PartitionKeys"] = json!([{ "Name": "k", "Type": noise(131_072, 6) }]);
    input["Description"] = json!("x".repeat(2048));
    let table = comes_back(&wire, &input).await;
    for member in ["Parameters", "ViewOriginalText", "ViewExpandedText", "PartitionKeys", "Description"] {
        assert_eq!(table[member], input[member], "{member}");
    }
    assert_eq!(table["StorageDescriptor"]["Columns"], input["StorageDescriptor"]["Columns"]);
    // Characters of four bytes each.
    let mut wide = table_input("t", &[]);
    wide["ViewOriginalText"] = json!("\u{1F600}".repeat(409_600));
    wide["Parameters"] = json!({ "p": "\u{1F600}".repeat(512_000) });
    assert_eq!(comes_back(&wire, &wide).await["Parameters"], wide["Parameters"]);
    // Listed, versioned, searched.
    let tables = wire.ok("GetTables", json!({ "DatabaseName": "d" })).await;
    assert_eq!(tables["TableList"][0]["ViewOriginalText"], wide["ViewOriginalText"]);
    let versions = wire.ok("GetTableVersions", json!({ "DatabaseName": "d", "TableName": "t" })).await;
    assert!(escaped_len(&versions.to_string()) <= ANSWER_MAX_BYTES);
    assert!(versions["NextToken"].is_string());
    let found = wire.ok("SearchTables", json!({ "SearchText": "t" })).await;
    assert_eq!(found["TableList"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_definition_is_refused_above_its_limit_and_kept_up_to_it() {
    let wire = Wire::with_table(&[]).await;
    let table = |length: usize| {
        let mut input = table_input("t", &[]);
        let parameters: serde_json::Map<String, Value> =
            (0..8).map(|n| (format!("p{n}"), json!("x".repeat(if n == 0 { length } else { 500_000 })))).collect();
        input["Parameters"] = Value::Object(parameters);
        input
    };
    let stored = |input: &Value| {
        let mut input = input.clone();
        // Keys of the definition as it is stored are the same.
        input["Name"] = json!("t");
        escaped_len(&input.to_string())
    };
    let rest = stored(&table(0));
    let longest = BODY_MAX_BYTES - rest;
    comes_back(&wire, &table(longest - 1)).await;
    comes_back(&wire, &table(longest)).await;
    let (name, text) =
        wire.fails("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table(longest + 1) })).await;
    assert_eq!(name, "UnsupportedOperationException");
    assert_eq!(text, "The definition of this table takes 4000001 bytes; more than 4000000 cannot be stored");
}

#[tokio::test]
async fn large_partitions_come_back_in_every_answer_and_too_large_ones_are_refused() {
    let wire = Wire::with_table(&[("k", "string")]).await;
    let input = |value: &str, seed: usize| {
        json!({ "Values": [value], "Parameters": { "p": noise(512_000, seed) },
            "StorageDescriptor": { "Columns": [{ "Name": "c", "Type": noise(131_072, seed) },
                { "Name": "d", "Type": noise(131_072, seed + 100) }, { "Name": "e", "Type": noise(131_072, seed + 200) },
                { "Name": "f", "Type": noise(131_072, seed + 300) }, { "Name": "g", "Type": noise(131_072, seed + 400) },
                { "Name": "h", "Type": noise(131_072, seed + 500) }] } })
    };
    let values: Vec<String> = (0..6).map(|n| format!("v{n}")).collect();
    for (n, value) in values.iter().enumerate() {
        wire.ok("CreatePartition", in_table(json!({ "PartitionInput": input(value, n) }))).await;
    }
    let found = wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["v3"] }))).await["Partition"].clone();
    let sent = input("v3", 3);
    assert_eq!(found["Parameters"], sent["Parameters"]);
    assert_eq!(found["StorageDescriptor"]["Columns"], sent["StorageDescriptor"]["Columns"]);
    assert_eq!(wire.list(1000).await.len(), 6);
    let keys: Vec<Value> = values.iter().map(|value| json!({ "Values": [value] })).collect();
    let answer = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": keys }))).await;
    assert!(escaped_len(&answer.to_string()) <= ANSWER_MAX_BYTES);
    let (read, unread) = (answer["Partitions"].as_array().unwrap(), answer["UnprocessedKeys"].as_array().unwrap());
    assert!(!read.is_empty() && read.len() + unread.len() == 6);
    let mut large = input("w", 1);
    large["Parameters"] = (0..7).map(|n| (format!("p{n}"), json!("y".repeat(512_000)))).collect();
    let (name, text) = wire.fails("CreatePartition", in_table(json!({ "PartitionInput": large }))).await;
    assert_eq!(name, "UnsupportedOperationException");
    assert!(text.starts_with("This partition with its columns takes "), "{text}");
}
