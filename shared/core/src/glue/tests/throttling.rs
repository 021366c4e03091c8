//! A store that is throttled, busy or silent: every entry of a batch is asked again, then reported.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, values_of};
use crate::store::StoreErrorKind;
use crate::store::memory::Fault;

fn trouble(wire: &Wire, operation: &str, kind: StoreErrorKind, times: usize) {
    for _ in 0..times {
        wire.world.faults.inject(operation, 0, Fault::Before(kind));
    }
}

fn codes(answer: &Value) -> Vec<&str> {
    let errors = answer["Errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().map(|error| error["ErrorDetail"]["ErrorCode"].as_str().unwrap()).collect()
}

fn wanted(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({ "Values": [n.to_string()] })).collect()
}

async fn with_partitions(count: usize) -> Wire {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for batch in wanted(count).chunks(100) {
        wire.ok("BatchCreatePartition", in_table(json!({ "PartitionInputList": batch }))).await;
    }
    wire
}

#[tokio::test]
async fn every_entry_of_a_batch_is_asked_again_and_then_reported() {
    let wire = with_partitions(1).await;
    let throttled = StoreErrorKind::Throttled;
    // Each of ten writes meets some of these and gets through.
    for (operation, input) in [
        (
            "BatchCreatePartition",
            json!({ "PartitionInputList": (1..11).map(|n| json!({ "Values": [n.to_string()] })).collect::<Vec<_>>() }),
        ),
        (
            "BatchUpdatePartition",
            json!({ "Entries": (1..11).map(|n| json!({ "PartitionValueList": [n.to_string()], "PartitionInput": {} })).collect::<Vec<_>>() }),
        ),
        ("BatchDeletePartition", json!({ "PartitionsToDelete": &wanted(11)[1..] })),
    ] {
        let store = if operation == "BatchCreatePartition" { "put partitions" } else { "transact partitions" };
        trouble(&wire, store, throttled, 20);
        let answer = wire.ok(operation, in_table(input)).await;
        assert!(codes(&answer).is_empty(), "{operation}: {answer}");
    }
    // One entry alone has no more patience than five attempts.
    let create = in_table(json!({ "PartitionInputList": [{ "Values": ["x"] }] }));
    trouble(&wire, "put partitions", throttled, 5);
    let answer = wire.ok("BatchCreatePartition", create.clone()).await;
    assert_eq!(
        answer["Errors"][0]["ErrorDetail"],
        json!({ "ErrorCode": "ThrottlingException", "ErrorMessage": "Rate exceeded" })
    );
    assert_eq!(wire.ok("BatchCreatePartition", create).await, json!({ "Errors": [] }));
    let update = in_table(json!({ "Entries": [{ "PartitionValueList": ["x"], "PartitionInput": {} }] }));
    trouble(&wire, "transact partitions", throttled, 5);
    assert_eq!(codes(&wire.ok("BatchUpdatePartition", update).await), ["ThrottlingException"]);
    let delete = in_table(json!({ "PartitionsToDelete": [{ "Values": ["x"] }] }));
    trouble(&wire, "transact partitions", throttled, 5);
    assert_eq!(codes(&wire.ok("BatchDeletePartition", delete.clone()).await), ["ThrottlingException"]);
    assert_eq!(wire.ok("BatchDeletePartition", delete).await, json!({}));
}

#[tokio::test]
async fn a_batch_whose_partitions_cannot_be_read_at_once_reads_them_one_by_one() {
    let wire = with_partitions(3).await;
    // The heads of database and table first.
    wire.world.faults.inject("batch_get partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    trouble(&wire, "get partitions", StoreErrorKind::Throttled, 2);
    let delete = in_table(json!({ "PartitionsToDelete": wanted(3) }));
    assert_eq!(wire.ok("BatchDeletePartition", delete).await, json!({}));
    assert!(wire.list(10).await.is_empty());
}

#[tokio::test]
async fn conflicts_without_an_expected_revision_are_never_told_as_such() {
    let wire = with_partitions(1).await;
    let update = in_table(json!({ "PartitionValueList": ["0"], "PartitionInput": partition_input(&["0"]) }));
    trouble(&wire, "transact partitions", StoreErrorKind::Conflict, 20);
    wire.ok("UpdatePartition", update.clone()).await;
    trouble(&wire, "transact partitions", StoreErrorKind::Conflict, 24);
    let (name, text) = wire.fails("UpdatePartition", update.clone()).await;
    assert!(name == "OperationTimeoutException" && text.contains("Nothing was written"), "{name}: {text}");
    trouble(&wire, "put partitions", StoreErrorKind::Conflict, 20);
    wire.create(&["1"]).await;
    wire.ok("UpdatePartition", update).await;
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_happens_once() {
    let wire = with_partitions(2).await;
    let lost = Fault::After(StoreErrorKind::Unavailable);
    wire.world.faults.inject("transact partitions", 0, lost);
    let moves = in_table(json!({ "PartitionValueList": ["0"], "PartitionInput": { "Values": ["5"] } }));
    wire.ok("UpdatePartition", moves).await;
    wire.world.faults.inject("transact partitions", 0, lost);
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["1"] }))).await;
    assert_eq!(wire.list(10).await, [["5"]]);
    let images = wire.world.items.dump().into_keys().filter(|key| key.pk.contains("#h#")).count();
    assert_eq!(images, 2);
}

#[tokio::test]
async fn without_history_a_create_whose_answer_is_lost_says_so() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.app.settings.history_retention_ms = 0;
    wire.world.faults.inject("put partitions", 0, Fault::After(StoreErrorKind::Unavailable));
    let (status, body) = wire.send("CreatePartition", in_table(json!({ "PartitionInput": { "Values": ["1"] } }))).await;
    assert_eq!((status, &body["__type"]), (500, &json!("InternalServiceException")));
    assert_eq!(wire.list(10).await, [["1"]]);
}

#[tokio::test]
async fn a_batch_get_always_gets_on() {
    let wire = with_partitions(250).await;
    // Three requests; one of them never gets through.
    let throttled = StoreErrorKind::Throttled;
    let mut asked = wanted(260);
    let mut seen = Vec::new();
    let mut rounds = 0;
    while !asked.is_empty() {
        if rounds == 0 {
            trouble(&wire, "batch_get partitions", throttled, 5);
        }
        let answer = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": asked }))).await;
        let found = values_of(&answer["Partitions"]);
        assert!(!found.is_empty(), "progress in every round");
        seen.extend(found);
        asked = answer["UnprocessedKeys"].as_array().unwrap().clone();
        rounds += 1;
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 250);
    assert!(rounds <= 2, "{rounds}");

    // Nothing can be read: that is no answer with keys and without partitions.
    trouble(&wire, "batch_get partitions", throttled, 5);
    let one = in_table(json!({ "PartitionsToGet": wanted(3) }));
    let refused = wire.fails("BatchGetPartition", one.clone()).await;
    assert_eq!(refused, ("ThrottlingException".to_owned(), "Rate exceeded".to_owned()));
    assert_eq!(wire.ok("BatchGetPartition", one).await["UnprocessedKeys"], json!([]));
    let none = in_table(json!({ "PartitionsToGet": [{ "Values": ["900"] }, { "Values": ["901", "x"] }] }));
    assert_eq!(wire.ok("BatchGetPartition", none).await, json!({ "Partitions": [], "UnprocessedKeys": [] }));
    let long = "x".repeat(1024);
    let large: Vec<Value> = (0..1000).map(|n| json!({ "Values": [format!("{n}{}", &long[..1000]), long] })).collect();
    let refused = wire.fails("BatchGetPartition", in_table(json!({ "PartitionsToGet": large }))).await;
    assert!(refused.0 == "InvalidInputException" && refused.1.contains("ask for fewer"), "{refused:?}");
}
