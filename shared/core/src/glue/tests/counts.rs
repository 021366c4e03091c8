//! What operations cost, in requests.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input};
use crate::store::{ItemUsage, ReadItems};

async fn cost(wire: &Wire, operation: &str, input: Value) -> ItemUsage {
    let before = wire.world.items.item_usage();
    wire.ok(operation, input).await;
    wire.world.items.item_usage().since(&before)
}

fn requests(usage: ItemUsage) -> [u64; 6] {
    [usage.batch_gets, usage.gets, usage.queries, usage.puts, usage.deletes, usage.transactions]
}

fn inputs(from: usize, count: usize) -> Value {
    let inputs: Vec<Value> = (from..from + count).map(|n| partition_input(&[&n.to_string()])).collect();
    in_table(json!({ "PartitionInputList": inputs }))
}

/// The same data seen by a process that has just started.
fn restarted(wire: &Wire) -> Wire {
    let cache = crate::catalog::cache_of(&wire.app.ports.items);
    *crate::catalog::lock(&cache.descriptors) = crate::partition::DescriptorCache::default();
    wire.clone()
}

#[tokio::test]
async fn partitions_cost_what_they_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let create = |value: &str| in_table(json!({ "PartitionInput": partition_input(&[value]) }));
    // Heads in one batch get; columns, format, partition.
    assert_eq!(requests(cost(&wire, "CreatePartition", create("1")).await), [1, 0, 0, 3, 0, 0]);
    let usage = cost(&wire, "CreatePartition", create("2")).await;
    assert_eq!(requests(usage), [1, 0, 0, 1, 0, 0], "descriptors known");
    assert_eq!((usage.read_half_units, usage.write_units), (4, 1));
    assert_eq!(requests(cost(&wire, "BatchCreatePartition", inputs(100, 100)).await), [1, 0, 0, 100, 0, 0]);
    // All there already: the normal path of an append job.
    assert_eq!(requests(cost(&wire, "BatchCreatePartition", inputs(100, 100)).await), [1, 0, 0, 100, 0, 0]);
    let cold = restarted(&wire);
    assert_eq!(requests(cost(&cold, "BatchCreatePartition", inputs(300, 100)).await), [1, 0, 0, 102, 0, 0]);

    let get = in_table(json!({ "PartitionValues": ["1"] }));
    assert_eq!(requests(cost(&wire, "GetPartition", get.clone()).await), [1, 1, 0, 0, 0, 0]);
    assert_eq!(requests(cost(&restarted(&wire), "GetPartition", get.clone()).await), [2, 1, 0, 0, 0, 0]);
    let keys: Vec<Value> = (100..350).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let batch = in_table(json!({ "PartitionsToGet": keys }));
    assert_eq!(requests(cost(&wire, "BatchGetPartition", batch).await), [1 + 3, 0, 0, 0, 0, 0]);
    let update = in_table(json!({ "PartitionValueList": ["1"], "PartitionInput": partition_input(&["1"]) }));
    let usage = cost(&wire, "UpdatePartition", update).await;
    assert_eq!(requests(usage), [1, 1, 0, 0, 0, 1]);
    assert_eq!((usage.read_half_units, usage.write_units), (4 + 2, 2 * 2), "partition and history");
    let usage = cost(&wire, "DeletePartition", get).await;
    assert_eq!(requests(usage), [1, 1, 0, 0, 0, 1]);
    assert_eq!((usage.read_half_units, usage.write_units), (4 + 2, 2 * 2));
    let doomed: Vec<Value> = (100..125).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let delete = in_table(json!({ "PartitionsToDelete": doomed }));
    assert_eq!(requests(cost(&wire, "BatchDeletePartition", delete).await), [1 + 1, 0, 0, 0, 0, 25]);
    let entry = |n: usize| json!({ "PartitionValueList": [n.to_string()], "PartitionInput": partition_input(&[&n.to_string()]) });
    let entries: Vec<Value> = (125..200).map(entry).collect();
    let update = in_table(json!({ "Entries": entries }));
    assert_eq!(requests(cost(&wire, "BatchUpdatePartition", update).await), [1 + 1, 0, 0, 0, 0, 75]);
}

#[tokio::test]
async fn listings_cost_what_they_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for from in [0, 100, 200, 300] {
        wire.ok("BatchCreatePartition", inputs(from, 100)).await;
    }
    // One query for each of 16 shards; all fit.
    assert_eq!(requests(cost(&wire, "GetPartitions", in_table(json!({}))).await), [1, 0, 16, 0, 0, 0]);
    let segment = in_table(json!({ "Segment": { "SegmentNumber": 0, "TotalSegments": 4 } }));
    assert_eq!(requests(cost(&wire, "GetPartitions", segment).await), [1, 0, 4, 0, 0, 0]);
    let bare = in_table(json!({ "ExcludeColumnSchema": true }));
    // The format alone is read by a process that has just started.
    assert_eq!(requests(cost(&restarted(&wire), "GetPartitions", bare).await), [2, 0, 16, 0, 0, 0]);
    wire.list(1000).await;
    let first = cost(&wire, "GetPartitions", in_table(json!({ "MaxResults": 50 }))).await;
    assert_eq!([first.batch_gets, first.gets, first.puts], [1, 1, 1], "the key of page tokens, once");
    assert!(first.queries < 32, "{}", first.queries);
}

#[tokio::test]
async fn tables_cost_what_they_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let at = json!({ "DatabaseName": "d", "Name": "t" });
    assert_eq!(requests(cost(&wire, "GetTable", at.clone()).await), [1, 1, 0, 0, 0, 0]);
    let input = |name: &str| json!({ "DatabaseName": "d", "TableInput": super::table_input(name, &[]) });
    assert_eq!(requests(cost(&wire, "CreateTable", input("u")).await), [1, 0, 0, 0, 0, 1]);
    assert_eq!(requests(cost(&wire, "UpdateTable", input("t")).await), [1, 1, 0, 0, 0, 1]);
    assert_eq!(requests(cost(&wire, "GetTables", json!({ "DatabaseName": "d" })).await), [1, 1, 1, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "DeleteTable", at).await), [1, 1, 0, 0, 0, 1]);
    assert_eq!(requests(cost(&wire, "GetDatabase", json!({ "Name": "d" })).await), [0, 2, 0, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "GetDatabases", json!({})).await), [1, 0, 1, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "DeleteDatabase", json!({ "Name": "d" })).await), [0, 1, 0, 0, 0, 1]);
}
