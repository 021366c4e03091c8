//! Walks over many partitions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, values_of};

async fn with_numbers(count: usize) -> Wire {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let all: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    for batch in all.chunks(100) {
        let inputs: Vec<Value> = batch.iter().map(|value| partition_input(&[value])).collect();
        let answer = wire.ok("BatchCreatePartition", in_table(json!({ "PartitionInputList": inputs }))).await;
        assert_eq!(answer, json!({ "Errors": [] }));
    }
    wire
}

#[tokio::test]
async fn every_partition_is_on_one_page_in_order() {
    let wire = with_numbers(90).await;
    let expected: Vec<Vec<String>> = (0..90).map(|n| vec![n.to_string()]).collect();
    for page in [1, 16, 89, 90, 91, 1000] {
        assert_eq!(wire.list(page).await, expected, "{page}");
    }
}

#[tokio::test]
async fn the_last_page_has_no_token_and_pages_are_full() {
    let wire = with_numbers(40).await;
    let first = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 20 }))).await;
    assert_eq!(first["Partitions"].as_array().unwrap().len(), 20);
    let second = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 20, "NextToken": first["NextToken"] }))).await;
    assert_eq!(second["Partitions"].as_array().unwrap().len(), 20);
    assert!(second.get("NextToken").is_none());
    let empty = Wire::with_table(&[("n", "int")]).await.ok("GetPartitions", in_table(json!({}))).await;
    assert_eq!(empty, json!({ "Partitions": [] }));
}

#[tokio::test]
async fn tokens_change_on_every_page() {
    let wire = with_numbers(30).await;
    let mut tokens = BTreeSet::new();
    let mut token = Value::Null;
    loop {
        let page = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 3, "NextToken": token }))).await;
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
        assert!(tokens.insert(token.to_string()));
    }
    assert_eq!(tokens.len(), 9);
}

#[tokio::test]
async fn a_walk_survives_deletes_and_inserts() {
    let wire = with_numbers(50).await;
    let mut seen = Vec::new();
    let mut token = Value::Null;
    let mut round = 0;
    loop {
        let page = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 7, "NextToken": token }))).await;
        let values = values_of(&page["Partitions"]).concat();
        // As overwriting clients do: delete what the page showed, among it the last one; insert before and after.
        for value in &values {
            wire.ok("DeletePartition", in_table(json!({ "PartitionValues": [value] }))).await;
        }
        wire.create(&[&format!("-{round}1")]).await;
        wire.create(&[&format!("{}", 1000 + round)]).await;
        seen.extend(values);
        round += 1;
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    let lasting: Vec<String> = seen.iter().filter(|value| value.parse::<i64>().unwrap() < 1000).cloned().collect();
    assert_eq!(lasting, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
}

#[tokio::test]
async fn segments_are_disjoint_and_complete() {
    let wire = with_numbers(60).await;
    for total in [1, 2, 3, 5, 10] {
        let mut all = Vec::new();
        for number in 0..total {
            let mut token = Value::Null;
            let mut part: Vec<i64> = Vec::new();
            loop {
                let segment = json!({ "SegmentNumber": number, "TotalSegments": total });
                let input = json!({ "Segment": segment, "MaxResults": 10, "NextToken": token });
                let page = wire.ok("GetPartitions", in_table(input)).await;
                part.extend(values_of(&page["Partitions"]).concat().iter().map(|value| value.parse::<i64>().unwrap()));
                token = page["NextToken"].clone();
                if token.is_null() {
                    break;
                }
            }
            assert!(part.is_sorted());
            all.extend(part);
        }
        all.sort_unstable();
        assert_eq!(all, (0..60).collect::<Vec<i64>>(), "{total}");
    }
}

#[tokio::test]
async fn a_token_works_for_its_own_listing_only() {
    let wire = with_numbers(10).await;
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": super::table_input("u", &[("n", "int")]) }))
        .await;
    let page = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 3 }))).await;
    let token = page["NextToken"].as_str().unwrap();
    let other = json!({ "DatabaseName": "d", "TableName": "u", "NextToken": token });
    let segment = in_table(json!({ "NextToken": token, "Segment": { "SegmentNumber": 0, "TotalSegments": 2 } }));
    let cut = in_table(json!({ "NextToken": token[1..] }));
    for input in [other, segment, cut] {
        assert_eq!(wire.fails("GetPartitions", input).await.0, "InvalidInputException");
    }
    let (name, _) = wire.fails("GetTables", json!({ "DatabaseName": "d", "NextToken": token })).await;
    assert_eq!(name, "InvalidInputException");
    // The page's size and columns may change between pages.
    let on = in_table(json!({ "NextToken": token, "MaxResults": 100, "ExcludeColumnSchema": true }));
    assert_eq!(wire.ok("GetPartitions", on).await["Partitions"].as_array().unwrap().len(), 7);
    // A table dropped and created again is another one.
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": super::table_input("t", &[("n", "int")]) }))
        .await;
    assert_eq!(wire.fails("GetPartitions", in_table(json!({ "NextToken": token }))).await.0, "InvalidInputException");
}

#[tokio::test]
async fn pages_end_at_the_answers_limit() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    // 130 KB of columns, shared, and shown with each.
    let columns: Vec<Value> =
        (0..20).map(|n| json!({ "Name": format!("column_{n}"), "Type": "x".repeat(6_500) })).collect();
    for n in 0..40 {
        let input = json!({ "Values": [n.to_string()], "StorageDescriptor": { "Columns": columns } });
        wire.ok("CreatePartition", in_table(json!({ "PartitionInput": input }))).await;
    }
    let mut seen = Vec::new();
    let mut token = Value::Null;
    let mut pages = 0;
    loop {
        let page = wire.ok("GetPartitions", in_table(json!({ "NextToken": token }))).await;
        assert!(crate::catalog::escaped_len(&page.to_string()) <= crate::limits::ANSWER_MAX_BYTES);
        seen.extend(values_of(&page["Partitions"]).concat());
        pages += 1;
        token = page["NextToken"].clone();
        if token.is_null() {
            break;
        }
    }
    assert_eq!(seen, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(pages, 2);
    // Without the columns it is one page.
    let bare = wire.ok("GetPartitions", in_table(json!({ "ExcludeColumnSchema": true }))).await;
    assert!(bare.get("NextToken").is_none());
}
