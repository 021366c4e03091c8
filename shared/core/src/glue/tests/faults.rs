//! Lost answers, busy stores, crashes.

use serde_json::json;

use super::{Wire, in_table, partition_input, table_input};
use crate::store::StoreErrorKind;
use crate::store::memory::Fault;

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_a_success() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["0"]).await;
    wire.world.faults.inject("put partitions", 0, Fault::After(StoreErrorKind::Unavailable));
    wire.create(&["1"]).await;
    wire.world.faults.inject("delete partitions", 0, Fault::After(StoreErrorKind::Unavailable));
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    wire.world.faults.inject("transact catalog", 0, Fault::After(StoreErrorKind::Unavailable));
    let commit = json!({ "DatabaseName": "d", "TableInput": table_input("t", &[]), "VersionId": "0" });
    wire.ok("UpdateTable", commit).await;
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert_eq!(table["Table"]["VersionId"], "1");
}

#[tokio::test]
async fn a_busy_store_is_asked_again_and_then_named() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for kind in [StoreErrorKind::Throttled, StoreErrorKind::Conflict, StoreErrorKind::Unavailable] {
        wire.world.faults.inject("put partitions", 0, Fault::Before(kind));
    }
    wire.create(&["1"]).await;
    for _ in 0..5 {
        wire.world.faults.inject("put partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    }
    let input = in_table(json!({ "PartitionInput": partition_input(&["2"]) }));
    let (name, text) = wire.fails("CreatePartition", input.clone()).await;
    assert_eq!((name.as_str(), text.as_str()), ("ThrottlingException", "Rate exceeded"));
    for _ in 0..5 {
        wire.world.faults.inject("put partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    }
    let batch = in_table(json!({ "PartitionInputList": [partition_input(&["3"])] }));
    let answer = wire.ok("BatchCreatePartition", batch).await;
    assert_eq!(answer["Errors"][0]["ErrorDetail"]["ErrorCode"], "ThrottlingException");
    wire.ok("CreatePartition", input).await;
}

#[tokio::test]
async fn conflicts_to_the_end_are_named_unless_something_may_have_been_written() {
    let wire = Wire::with_table(&[]).await;
    let commit = json!({ "DatabaseName": "d", "TableInput": table_input("t", &[]), "VersionId": "0" });
    let conflicts = |first: StoreErrorKind, count: usize| {
        for kind in [first].into_iter().chain(std::iter::repeat_n(StoreErrorKind::Conflict, count - 1)) {
            wire.world.faults.inject("transact catalog", 0, Fault::Before(kind));
        }
    };
    // 64 rounds of five attempts each.
    conflicts(StoreErrorKind::Conflict, 64 * 5);
    assert_eq!(wire.fails("UpdateTable", commit.clone()).await.0, "ConcurrentModificationException");
    conflicts(StoreErrorKind::Unavailable, 5);
    let (status, body) = wire.send("UpdateTable", commit.clone()).await;
    assert_eq!((status, &body["__type"]), (500, &json!("InternalServiceException")));
    // A while of conflicts is waited out.
    conflicts(StoreErrorKind::Conflict, 63 * 5);
    wire.ok("UpdateTable", commit).await;
}

#[tokio::test]
async fn stale_reads_change_nothing() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.world.faults.set_stale_reads(true);
    wire.create(&["1"]).await;
    assert_eq!(wire.list(10).await, [["1"]]);
    wire.ok("GetPartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", &[("n", "int")]) })).await;
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert_eq!(table["Table"]["VersionId"], "1");
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert!(wire.list(10).await.is_empty());
}

#[tokio::test]
async fn a_crash_between_any_two_calls_leaves_a_table_or_none() {
    for calls in 0..4 {
        let wire = Wire::with_table(&[]).await;
        let input = json!({ "DatabaseName": "d", "TableInput": table_input("new", &[("n", "int")]) });
        wire.world.faults.crash_after(calls);
        let crashed = wire.send("CreateTable", input.clone()).await.0 != 200;
        wire.world.faults.revive();
        let (status, body) = wire.send("CreateTable", input).await;
        assert_eq!(status, if crashed { 200 } else { 400 }, "{calls} {body}");
        wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "new" })).await;
        for dying in 0..4 {
            wire.world.faults.crash_after(dying);
            let _ = wire.send("DeleteTable", json!({ "DatabaseName": "d", "Name": "new" })).await;
            wire.world.faults.revive();
        }
        assert_eq!(
            wire.fails("GetTable", json!({ "DatabaseName": "d", "Name": "new" })).await.1,
            "Table new not found."
        );
    }
}
