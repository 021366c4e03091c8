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

/// Read capacity in half units, and write capacity.
fn units(usage: ItemUsage) -> (u64, u64) {
    (usage.read_half_units, usage.write_units)
}

/// Both heads, strongly.
const HEADS: u64 = 2 * 2;

#[tokio::test]
async fn creating_partitions_costs_what_it_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let create = |value: &str| in_table(json!({ "PartitionInput": partition_input(&[value]) }));
    // Heads in one batch get; columns, format, partition.
    assert_eq!(requests(cost(&wire, "CreatePartition", create("1")).await), [1, 0, 0, 3, 0, 0]);
    let usage = cost(&wire, "CreatePartition", create("2")).await;
    assert_eq!(requests(usage), [1, 0, 0, 1, 0, 0], "descriptors known");
    assert_eq!(units(usage), (HEADS, 1));
    for round in ["new", "there already: the normal path of an append job"] {
        let usage = cost(&wire, "BatchCreatePartition", inputs(100, 100)).await;
        assert_eq!(requests(usage), [1, 0, 0, 100, 0, 0], "{round}");
        assert_eq!(units(usage), (HEADS, 100), "{round}");
    }
    let usage = cost(&restarted(&wire), "BatchCreatePartition", inputs(300, 100)).await;
    assert_eq!(requests(usage), [1, 0, 0, 102, 0, 0]);
    assert_eq!(units(usage), (HEADS, 102));
    let mut others = inputs(400, 100);
    for (at, input) in others["PartitionInputList"].as_array_mut().unwrap().iter_mut().enumerate() {
        input["StorageDescriptor"]["OutputFormat"] = json!((at % 3).to_string());
        input["StorageDescriptor"]["Columns"][0]["Name"] = json!((at % 5).to_string());
    }
    let usage = cost(&wire, "BatchCreatePartition", others).await;
    assert_eq!(requests(usage), [1, 0, 0, 100 + 3 + 5, 0, 0], "each new part of a descriptor once");
}

#[tokio::test]
async fn reading_partitions_costs_what_it_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for from in [0, 100, 200] {
        wire.ok("BatchCreatePartition", inputs(from, 100)).await;
    }
    let get = in_table(json!({ "PartitionValues": ["1"] }));
    let usage = cost(&wire, "GetPartition", get.clone()).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 0], (HEADS + 2, 0)));
    let usage = cost(&restarted(&wire), "GetPartition", get).await;
    assert_eq!((requests(usage), units(usage)), ([2, 1, 0, 0, 0, 0], (HEADS + 2 + 2 * 2, 0)), "and both descriptors");
    let keys: Vec<Value> = (0..250).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let usage = cost(&wire, "BatchGetPartition", in_table(json!({ "PartitionsToGet": keys }))).await;
    assert_eq!((requests(usage), units(usage)), ([1 + 3, 0, 0, 0, 0, 0], (HEADS + 250 * 2, 0)));
}

fn update(from: &str, to: &str) -> Value {
    json!({ "PartitionValueList": [from], "PartitionInput": partition_input(&[to]) })
}

#[tokio::test]
async fn changing_partitions_costs_what_it_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for from in [0, 100] {
        wire.ok("BatchCreatePartition", inputs(from, 100)).await;
    }
    // The partition and its history.
    let usage = cost(&wire, "UpdatePartition", in_table(update("1", "1"))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2 * 2)));
    let usage = cost(&wire, "UpdatePartition", in_table(update("1", "1000"))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2 * 3)), "new, old, history");
    let usage = cost(&wire, "DeletePartition", in_table(json!({ "PartitionValues": ["2"] }))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2 * 2)));
    let missing = wire.world.items.item_usage();
    wire.fails("DeletePartition", in_table(json!({ "PartitionValues": ["2"] }))).await;
    assert_eq!(requests(wire.world.items.item_usage().since(&missing)), [1, 1, 0, 0, 0, 0]);
    let entries: Vec<Value> = (100..200).map(|n| update(&n.to_string(), &n.to_string())).collect();
    let usage = cost(&wire, "BatchUpdatePartition", in_table(json!({ "Entries": entries }))).await;
    assert_eq!((requests(usage), units(usage)), ([1 + 1, 0, 0, 0, 0, 100], (HEADS + 100 * 2, 100 * 4)));
    let doomed: Vec<Value> = (100..125).map(|n| json!({ "Values": [n.to_string()] })).collect();
    let usage = cost(&wire, "BatchDeletePartition", in_table(json!({ "PartitionsToDelete": doomed }))).await;
    assert_eq!((requests(usage), units(usage)), ([1 + 1, 0, 0, 0, 0, 25], (HEADS + 25 * 2, 25 * 4)));
}

#[tokio::test]
async fn without_history_a_change_writes_the_partition_alone() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.app.settings.history_retention_ms = 0;
    wire.create(&["1"]).await;
    // The first change under another setting notes that on the table's head.
    let usage = cost(&wire, "UpdatePartition", in_table(update("1", "1"))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 1, 0, 1], (HEADS + 2, 3)));
    let usage = cost(&wire, "UpdatePartition", in_table(update("1", "1"))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2)));
    let usage = cost(&wire, "DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2)));
}

#[tokio::test]
async fn indexes_cost_an_entry_where_values_change() {
    let wire = Wire::with_table(&[("n", "int"), ("m", "int"), ("o", "int")]).await;
    wire.create(&["0", "0", "0"]).await;
    for (n, key) in [(1, "m"), (2, "o")] {
        wire.create_index(&format!("by_{key}"), &[key]).await;
        wire.settle().await;
        let value = n.to_string();
        let values = [value.as_str(), "0", "0"];
        let usage =
            cost(&wire, "CreatePartition", in_table(json!({ "PartitionInput": partition_input(&values) }))).await;
        assert_eq!((requests(usage), units(usage)), ([1, 0, 0, 0, 0, 1], (HEADS, 2 * (1 + n))), "1 + {n} indexes");
        let moved = ["9", value.as_str(), "0"];
        for (to, writes) in [(values, 2), (moved, 3 + 2 * n)] {
            let input = json!({ "PartitionValueList": values, "PartitionInput": partition_input(&to) });
            let usage = cost(&wire, "UpdatePartition", in_table(input)).await;
            assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2 * writes)), "{to:?}");
        }
        let usage = cost(&wire, "DeletePartition", in_table(json!({ "PartitionValues": moved }))).await;
        assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 0, 0, 1], (HEADS + 2, 2 * (2 + n))));
    }
}

#[tokio::test]
async fn statistics_cost_what_they_should() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let entry = |n: usize| {
        let data = json!({ "NumberOfNulls": 0, "NumberOfDistinctValues": 1 });
        json!({ "ColumnName": format!("c{n}"), "ColumnType": "int", "AnalyzedTime": 0,
            "StatisticsData": { "Type": "LONG", "LongColumnStatisticsData": data } })
    };
    let set =
        in_table(json!({ "PartitionValues": ["1"], "ColumnStatisticsList": (0..25).map(entry).collect::<Vec<_>>() }));
    let names: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
    let get = in_table(json!({ "PartitionValues": ["1"], "ColumnNames": names }));
    let usage = cost(&wire, "GetColumnStatisticsForPartition", get.clone()).await;
    assert_eq!(requests(usage), [1, 1, 0, 0, 0, 0], "a table that never had any");
    let usage = cost(&wire, "DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!(requests(usage), [1, 1, 0, 0, 0, 1]);
    wire.create(&["1"]).await;
    let usage = cost(&wire, "UpdateColumnStatisticsForPartition", set.clone()).await;
    assert_eq!(
        (requests(usage), units(usage)),
        ([1, 1, 0, 25 + 1, 0, 0], (HEADS + 2, 25 + 1)),
        "and the table's head, once"
    );
    let usage = cost(&wire, "UpdateColumnStatisticsForPartition", set).await;
    assert_eq!((requests(usage), units(usage)), ([1, 1, 0, 25, 0, 0], (HEADS + 2, 25)));
    let usage = cost(&wire, "GetColumnStatisticsForPartition", get).await;
    assert_eq!((requests(usage), units(usage)), ([2, 1, 0, 0, 0, 0], (HEADS + 2 + 100 * 2, 0)));
    let usage = cost(&wire, "DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!((requests(usage), usage.batch_deletes), ([1, 1, 1, 0, 0, 1], 1), "its statistics go as well");
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
    // One transaction, whether the version is kept or not.
    let mut skip = input("t");
    skip["SkipArchive"] = json!(true);
    assert_eq!(requests(cost(&wire, "UpdateTable", skip).await), [1, 1, 0, 0, 0, 1]);
    let version = |id: &str| json!({ "DatabaseName": "d", "TableName": "t", "VersionId": id });
    assert_eq!(requests(cost(&wire, "GetTableVersion", version("2")).await), [1, 1, 0, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "GetTableVersion", version("0")).await), [1, 2, 0, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "GetTableVersions", version("0")).await), [1, 1, 1, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "DeleteTableVersion", version("0")).await), [2, 0, 0, 0, 0, 1]);
    assert_eq!(requests(cost(&wire, "SearchTables", json!({})).await), [1, 1, 2, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "GetTables", json!({ "DatabaseName": "d" })).await), [1, 1, 1, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "DeleteTable", at).await), [1, 1, 0, 0, 0, 1]);
    assert_eq!(requests(cost(&wire, "GetDatabase", json!({ "Name": "d" })).await), [0, 2, 0, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "GetDatabases", json!({})).await), [1, 0, 1, 0, 0, 0]);
    assert_eq!(requests(cost(&wire, "DeleteDatabase", json!({ "Name": "d" })).await), [0, 1, 0, 0, 0, 1]);
}

#[tokio::test]
async fn large_definitions_cost_one_object_more() {
    let wire = Wire::with_table(&[]).await;
    let mut large = super::table_input("t", &[]);
    large["Parameters"] = json!({ "a": super::noise(500_000, 1), "b": super::noise(500_000, 2) });
    let update = json!({ "DatabaseName": "d", "TableInput": large });
    let objects = || wire.world.ports.objects.object_usage();
    assert_eq!(requests(cost(&wire, "UpdateTable", update.clone()).await), [1, 1, 0, 0, 0, 1]);
    assert_eq!((objects().puts, objects().gets), (1, 0));
    assert_eq!(
        requests(cost(&wire, "GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await),
        [1, 1, 0, 0, 0, 0]
    );
    assert_eq!((objects().puts, objects().gets), (1, 1));
    // The same again: the old definition is read for its place, the version that is kept shares the object.
    wire.ok("UpdateTable", update).await;
    assert_eq!((objects().puts, objects().gets), (2, 2));
    assert_eq!(wire.world.objects.keys("lakewarden-reports").len(), 1);
}
