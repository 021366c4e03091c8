//! Column statistics of partitions and tables.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input};
use crate::store::StoreErrorKind;
use crate::store::memory::Fault;

fn entry(column: &str, data: Value) -> Value {
    json!({ "ColumnName": column, "ColumnType": "t", "AnalyzedTime": 1_700_000_000.5, "StatisticsData": data })
}

fn long(distinct: i64) -> Value {
    json!({ "Type": "LONG", "LongColumnStatisticsData": { "NumberOfNulls": 0, "NumberOfDistinctValues": distinct } })
}

fn of_partition(value: &str, mut input: Value) -> Value {
    input["PartitionValues"] = json!([value]);
    in_table(input)
}

fn set(value: &str, entries: Vec<Value>) -> Value {
    of_partition(value, json!({ "ColumnStatisticsList": entries }))
}

fn wanted(value: &str, columns: &[&str]) -> Value {
    of_partition(value, json!({ "ColumnNames": columns }))
}

fn missing(column: &str) -> Value {
    let error =
        json!({ "ErrorCode": "EntityNotFoundException", "ErrorMessage": "Statistics do not exist for this column" });
    json!({ "ColumnName": column, "Error": error })
}

/// One of each kind, as clients send them.
fn every_kind() -> Vec<Value> {
    let nulls = json!({ "NumberOfNulls": 1, "NumberOfDistinctValues": 2 });
    let with = |mut data: Value, more: Value| {
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    };
    let decimal = |text: &str, scale: i64| json!({ "UnscaledValue": text, "Scale": scale });
    let kind =
        |name: &str, member: &str, data: Value| entry(&name.to_lowercase(), json!({ "Type": name, member: data }));
    vec![
        kind(
            "BOOLEAN",
            "BooleanColumnStatisticsData",
            json!({ "NumberOfTrues": 1, "NumberOfFalses": 2, "NumberOfNulls": 3 }),
        ),
        kind(
            "DATE",
            "DateColumnStatisticsData",
            with(nulls.clone(), json!({ "MinimumValue": -86_400, "MaximumValue": 1_704_164_645.678_901 })),
        ),
        kind(
            "DECIMAL",
            "DecimalColumnStatisticsData",
            with(
                nulls.clone(),
                json!({ "MinimumValue": decimal("/w==", 2), "MaximumValue": decimal("AQIDBAUGBwg=", -3) }),
            ),
        ),
        kind(
            "DOUBLE",
            "DoubleColumnStatisticsData",
            with(nulls.clone(), json!({ "MinimumValue": "-Infinity", "MaximumValue": "NaN" })),
        ),
        kind(
            "LONG",
            "LongColumnStatisticsData",
            with(nulls.clone(), json!({ "MinimumValue": i64::MIN, "MaximumValue": i64::MAX })),
        ),
        kind("STRING", "StringColumnStatisticsData", with(nulls, json!({ "MaximumLength": 7, "AverageLength": 2.5 }))),
        kind(
            "BINARY",
            "BinaryColumnStatisticsData",
            json!({ "MaximumLength": 7, "AverageLength": 2.5, "NumberOfNulls": 0 }),
        ),
    ]
}

#[tokio::test]
async fn every_kind_comes_back_and_what_was_absent_stays_absent() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let bare: Vec<Value> = [("DATE", "Date"), ("DECIMAL", "Decimal"), ("DOUBLE", "Double"), ("LONG", "Long")]
        .map(|(kind, name)| {
            let data = json!({ "NumberOfNulls": 0, "NumberOfDistinctValues": 0 });
            entry(
                &format!("bare_{}", kind.to_lowercase()),
                json!({ "Type": kind, format!("{name}ColumnStatisticsData"): data }),
            )
        })
        .to_vec();
    let all = [every_kind(), bare].concat();
    let names: Vec<&str> = all.iter().map(|entry| entry["ColumnName"].as_str().unwrap()).collect();
    let expected = json!({ "ColumnStatisticsList": all, "Errors": [] });
    assert_eq!(wire.ok("UpdateColumnStatisticsForPartition", set("1", all.clone())).await, json!({ "Errors": [] }));
    assert_eq!(wire.ok("GetColumnStatisticsForPartition", wanted("1", &names)).await, expected);
    let own = in_table(json!({ "ColumnNames": names }));
    let none = wire.ok("GetColumnStatisticsForTable", own.clone()).await;
    assert_eq!(none["Errors"].as_array().unwrap().len(), names.len(), "a table's own are its own");
    let update = in_table(json!({ "ColumnStatisticsList": all }));
    assert_eq!(wire.ok("UpdateColumnStatisticsForTable", update).await, json!({ "Errors": [] }));
    assert_eq!(wire.ok("GetColumnStatisticsForTable", own).await, expected);
}

#[tokio::test]
async fn columns_without_statistics_are_named_one_by_one() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    // No column need exist in the schema; names are folded.
    let none = wire.ok("GetColumnStatisticsForPartition", wanted("1", &["x", "Y"])).await;
    assert_eq!(none, json!({ "ColumnStatisticsList": [], "Errors": [missing("x"), missing("Y")] }));
    wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![entry("Amount", long(1)), entry("AMOUNT", long(2))]))
        .await;
    let found = wire.ok("GetColumnStatisticsForPartition", wanted("1", &["aMount", "x", "amount"])).await;
    assert_eq!(found, json!({ "ColumnStatisticsList": [entry("amount", long(2))], "Errors": [missing("x")] }));
    for name in ["Amount", "amount", "never"] {
        let delete = of_partition("1", json!({ "ColumnName": name }));
        assert_eq!(wire.ok("DeleteColumnStatisticsForPartition", delete).await, json!({}));
    }
    let gone = wire.ok("GetColumnStatisticsForPartition", wanted("1", &["amount"])).await;
    assert_eq!(gone["Errors"], json!([missing("amount")]));
    assert_eq!(wire.ok("DeleteColumnStatisticsForTable", in_table(json!({ "ColumnName": "a" }))).await, json!({}));
}

#[tokio::test]
async fn a_bad_entry_is_reported_and_the_rest_is_applied() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let mut mixed = long(1);
    mixed["Type"] = json!("STRING");
    let bad = entry("bad", mixed);
    let answer =
        wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![bad.clone(), entry("good", long(1))])).await;
    let errors = answer["Errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["ColumnStatistics"]), (1, &bad));
    assert_eq!(errors[0]["Error"]["ErrorCode"], "InvalidInputException");
    let found = wire.ok("GetColumnStatisticsForPartition", wanted("1", &["good", "bad"])).await;
    assert_eq!(found["ColumnStatisticsList"], json!([entry("good", long(1))]));

    let many = |count: usize| (0..count).map(|n| entry(&format!("c{n}"), long(1))).collect::<Vec<_>>();
    wire.ok("UpdateColumnStatisticsForPartition", set("1", many(25))).await;
    assert_eq!(wire.fails("UpdateColumnStatisticsForPartition", set("1", many(26))).await.0, "ValidationException");
    let names: Vec<String> = (0..101).map(|n| format!("c{n}")).collect();
    let ask = |count: usize| wanted("1", &names[..count].iter().map(String::as_str).collect::<Vec<_>>());
    let hundred = wire.ok("GetColumnStatisticsForPartition", ask(100)).await;
    assert_eq!(hundred["ColumnStatisticsList"].as_array().unwrap().len(), 25);
    assert_eq!(hundred["Errors"].as_array().unwrap().len(), 75);
    assert_eq!(wire.fails("GetColumnStatisticsForPartition", ask(101)).await.0, "ValidationException");
    let mut incomplete = entry("x", long(1));
    incomplete["StatisticsData"]["LongColumnStatisticsData"] = json!({ "NumberOfNulls": -1 });
    let refused = wire.fails("UpdateColumnStatisticsForPartition", set("1", vec![incomplete])).await;
    assert!(refused.0 == "ValidationException" && refused.1.starts_with("2 validation errors detected"), "{refused:?}");
}

#[tokio::test]
async fn statistics_go_with_the_partition_and_nowhere_else() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for value in ["1", "2"] {
        wire.create(&[value]).await;
        wire.ok("UpdateColumnStatisticsForPartition", set(value, vec![entry("a", long(7)), entry("b", long(8))])).await;
    }
    let revision =
        wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["1"] }))).await["Partition"]["Revision"].clone();
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert_eq!(table["Table"]["VersionId"], "0", "they change no version");
    wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![entry("a", long(9))])).await;
    let after = wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!(after["Partition"]["Revision"], revision);

    let update = in_table(json!({ "PartitionValueList": ["1"], "PartitionInput": partition_input(&["1"]) }));
    wire.ok("UpdatePartition", update).await;
    let moves = in_table(json!({ "PartitionValueList": ["1"], "PartitionInput": partition_input(&["3"]) }));
    wire.ok("UpdatePartition", moves).await;
    let kept = wire.ok("GetColumnStatisticsForPartition", wanted("3", &["a", "b"])).await;
    assert_eq!(kept["ColumnStatisticsList"], json!([entry("a", long(9)), entry("b", long(8))]));
    for (operation, more) in [
        ("GetColumnStatisticsForPartition", json!({ "ColumnNames": ["a"] })),
        ("UpdateColumnStatisticsForPartition", json!({ "ColumnStatisticsList": [entry("a", long(1))] })),
        ("DeleteColumnStatisticsForPartition", json!({ "ColumnName": "a" })),
    ] {
        let gone = wire.fails(operation, of_partition("1", more)).await;
        assert_eq!(gone, ("EntityNotFoundException".to_owned(), "Cannot find partition.".to_owned()));
    }
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["3"] }))).await;
    let left = wire.world.items.dump().into_keys().filter(|key| key.pk.contains("#s#")).count();
    assert_eq!(left, 2, "those of the other partition");
    wire.create(&["3"]).await;
    let fresh = wire.ok("GetColumnStatisticsForPartition", wanted("3", &["a"])).await;
    assert_eq!(fresh["Errors"], json!([missing("a")]));
}

#[tokio::test]
async fn a_throttled_column_is_asked_again_and_then_reported() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![entry("a", long(0))])).await;
    for _ in 0..2 {
        wire.world.faults.inject("put partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    }
    let answer = wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![entry("a", long(1))])).await;
    assert_eq!(answer, json!({ "Errors": [] }));
    for _ in 0..5 {
        wire.world.faults.inject("put partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    }
    let answer = wire.ok("UpdateColumnStatisticsForPartition", set("1", vec![entry("a", long(2))])).await;
    assert_eq!(
        answer["Errors"][0]["Error"],
        json!({ "ErrorCode": "ThrottlingException", "ErrorMessage": "Rate exceeded" })
    );
    // The partition is gone even if its statistics cannot be removed now.
    for _ in 0..5 {
        wire.world.faults.inject("query partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    }
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    wire.create(&["1"]).await;
    let fresh = wire.ok("GetColumnStatisticsForPartition", wanted("1", &["a"])).await;
    assert_eq!(fresh["Errors"], json!([missing("a")]));
}
