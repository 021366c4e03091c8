//! Updates, moves, revisions, history.

use serde_json::{Value, json};

use super::{Wire, descriptor, in_table, partition_input};
use crate::glue::{IF_REVISION_HEADER, REVISION_HEADER, answer};
use crate::ports::PartitionMoves;
use crate::store::{Item, Value as Stored};

fn update(values: &[&str], input: Value) -> Value {
    in_table(json!({ "PartitionValueList": values, "PartitionInput": input }))
}

fn at(values: &[&str]) -> Value {
    in_table(json!({ "PartitionValues": values }))
}

impl Wire {
    async fn partition(&self, values: &[&str]) -> Value {
        self.ok("GetPartition", at(values)).await["Partition"].clone()
    }

    /// Sends a request with the revision that the caller read; answers the exception's name, if any.
    async fn send_if(&self, operation: &str, input: Value, revision: &str) -> Option<String> {
        let target = format!("AWSGlue.{operation}");
        let answer = answer(&self.app, Some(&target), input.to_string().as_bytes(), Some(revision), "r-1").await;
        serde_json::from_str::<Value>(&answer.body).unwrap()["__type"].as_str().map(str::to_owned)
    }

    /// Items of the history, in order of key.
    fn history(&self) -> Vec<Item> {
        let dump = self.world.items.dump();
        dump.into_iter().filter(|(key, _)| key.pk.split('#').nth(2) == Some("h")).map(|(_, item)| item).collect()
    }
}

#[tokio::test]
async fn an_update_replaces_everything_but_identity() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let before = wire.partition(&["1"]).await;
    wire.world.clock.advance_ms(60_000);
    let input = json!({ "Values": ["1"], "Parameters": { "new": "yes" }, "LastAccessTime": 5 });
    assert_eq!(wire.ok("UpdatePartition", update(&["1"], input)).await, json!({}));
    let after = wire.partition(&["1"]).await;
    assert_eq!(after["Parameters"], json!({ "new": "yes" }), "nothing is merged");
    assert_eq!(after["StorageDescriptor"]["Columns"], json!([]));
    assert_eq!(after["CreationTime"], before["CreationTime"]);
    assert_ne!(after["Revision"], before["Revision"]);
    // Values may be left out.
    wire.ok("UpdatePartition", update(&["1"], json!({ "StorageDescriptor": descriptor("x") }))).await;
    wire.ok("UpdatePartition", update(&["1"], json!({ "Values": [], "StorageDescriptor": descriptor("y") }))).await;
    let last = wire.partition(&["1"]).await;
    assert_eq!((&last["Values"], &last["Parameters"]), (&json!(["1"]), &json!({})));
    assert_eq!(last["StorageDescriptor"]["Location"], "s3://lake/d/t/y");
}

#[tokio::test]
async fn what_cannot_be_updated_is_named() {
    let wire = Wire::with_table(&[("n", "int"), ("m", "int")]).await;
    wire.create(&["1", "1"]).await;
    let missing = ("EntityNotFoundException".to_owned(), "Cannot find partition.".to_owned());
    assert_eq!(wire.fails("UpdatePartition", update(&["2", "2"], json!({}))).await, missing);
    assert_eq!(wire.fails("UpdatePartition", update(&["1"], json!({}))).await, missing);
    assert_eq!(wire.fails("UpdatePartition", update(&[], json!({}))).await, missing);
    let mismatch = "The number of partition keys do not match the number of partition values";
    for values in [json!(["1"]), json!(["1", "2", "3"])] {
        // Before it matters whether the partition exists.
        for old in [["1", "1"], ["9", "9"]] {
            let refused = wire.fails("UpdatePartition", update(&old, json!({ "Values": values }))).await;
            assert_eq!(refused, ("InvalidInputException".to_owned(), mismatch.to_owned()));
        }
    }
    let mut elsewhere = update(&["1", "1"], json!({}));
    elsewhere["TableName"] = json!("nowhere");
    assert_eq!(wire.fails("UpdatePartition", elsewhere).await.1, "Table nowhere not found.");
}

#[tokio::test]
async fn other_values_move_a_partition() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.create(&["3"]).await;
    let before = wire.partition(&["1"]).await;
    wire.ok("UpdatePartition", update(&["1"], partition_input(&["2"]))).await;
    let missing = wire.fails("GetPartition", at(&["1"])).await;
    assert_eq!(missing.1, "Cannot find partition.");
    let after = wire.partition(&["2"]).await;
    assert_eq!(after["CreationTime"], before["CreationTime"]);
    assert_eq!(after["StorageDescriptor"]["Location"], "s3://lake/d/t/2");
    let taken = wire.fails("UpdatePartition", update(&["2"], partition_input(&["3"]))).await;
    assert_eq!(taken, ("AlreadyExistsException".to_owned(), "Partition already exists.".to_owned()));
    let gone = wire.fails("UpdatePartition", update(&["1"], partition_input(&["3"]))).await;
    assert_eq!(gone.0, "EntityNotFoundException", "before it matters whether the target is free");
    assert_eq!(wire.list(10).await, [["2"], ["3"]]);
    // A text of its own is a partition of its own.
    wire.ok("UpdatePartition", update(&["2"], partition_input(&["02"]))).await;
    assert_eq!(wire.list(10).await, [["02"], ["3"]]);
}

#[tokio::test]
async fn a_strict_deployment_refuses_moves() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.app.settings.partition_moves = PartitionMoves::Refuse;
    wire.create(&["1"]).await;
    let refused = wire.fails("UpdatePartition", update(&["1"], partition_input(&["2"]))).await;
    assert!(refused.0 == "InvalidInputException" && refused.1.contains("cannot be changed"), "{refused:?}");
    wire.ok("UpdatePartition", update(&["1"], partition_input(&["1"]))).await;
    let entries = json!([{ "PartitionValueList": ["1"], "PartitionInput": partition_input(&["2"]) }]);
    let answer = wire.ok("BatchUpdatePartition", in_table(json!({ "Entries": entries }))).await;
    assert_eq!(answer["Errors"][0]["ErrorDetail"]["ErrorCode"], "InvalidInputException");
    assert_eq!(wire.list(10).await, [["1"]]);
}

#[tokio::test]
async fn entries_of_a_batch_update_stand_for_themselves_and_follow_each_other() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for value in ["1", "2", "3"] {
        wire.create(&[value]).await;
    }
    let entry = |old: &str, new: &str, mark: &str| json!({ "PartitionValueList": [old], "PartitionInput": { "Values": [new], "Parameters": { "mark": mark } } });
    let entries = [
        entry("1", "1", "first"),
        entry("9", "9", "nowhere"),
        entry("1", "4", "moved"),
        entry("4", "4", "behind the move"),
        entry("2", "3", "taken"),
        entry("1", "1", "gone by now"),
        json!({ "PartitionValueList": ["3"], "PartitionInput": { "Values": ["3", "3"] } }),
    ];
    let answer = wire.ok("BatchUpdatePartition", in_table(json!({ "Entries": entries }))).await;
    let error = |value: &str, code: &str, text: &str| json!({ "PartitionValueList": [value], "ErrorDetail": { "ErrorCode": code, "ErrorMessage": text } });
    let mismatch = "The number of partition keys do not match the number of partition values";
    let expected = json!({ "Errors": [
        error("9", "EntityNotFoundException", "Cannot find partition."),
        error("2", "AlreadyExistsException", "Partition already exists."),
        error("1", "EntityNotFoundException", "Cannot find partition."),
        error("3", "InvalidInputException", mismatch),
    ] });
    assert_eq!(answer, expected);
    assert_eq!(wire.list(10).await, [["2"], ["3"], ["4"]]);
    assert_eq!(wire.partition(&["4"]).await["Parameters"], json!({ "mark": "behind the move" }));
    let all_fine = in_table(json!({ "Entries": [entry("2", "2", "x"), entry("2", "2", "y")] }));
    assert_eq!(wire.ok("BatchUpdatePartition", all_fine).await, json!({ "Errors": [] }));
    assert_eq!(wire.partition(&["2"]).await["Parameters"], json!({ "mark": "y" }), "in order");
    let none = wire.fails("BatchUpdatePartition", in_table(json!({ "Entries": [] }))).await;
    assert_eq!(none.0, "ValidationException");
}

#[tokio::test]
async fn an_expected_revision_must_be_the_present_one() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let revision = wire.partition(&["1"]).await["Revision"].as_str().unwrap().to_owned();
    let input = || update(&["1"], partition_input(&["1"]));
    assert_eq!(wire.send_if("UpdatePartition", input(), &revision).await, None);
    let stale = Some("ConcurrentModificationException".to_owned());
    assert_eq!(wire.send_if("UpdatePartition", input(), &revision).await, stale);
    assert_eq!(wire.send_if("UpdatePartition", update(&["1"], partition_input(&["2"])), &revision).await, stale);
    assert_eq!(wire.send_if("DeletePartition", at(&["1"]), &revision).await, stale);
    assert_eq!(wire.send_if("DeletePartition", at(&["1"]), "").await, stale);
    // Also when a partition of the same values was created since.
    let fresh = wire.partition(&["1"]).await["Revision"].as_str().unwrap().to_owned();
    wire.ok("DeletePartition", at(&["1"])).await;
    let gone = Some("EntityNotFoundException".to_owned());
    assert_eq!(wire.send_if("DeletePartition", at(&["1"]), &fresh).await, gone);
    wire.create(&["1"]).await;
    assert_eq!(wire.send_if("DeletePartition", at(&["1"]), &fresh).await, stale);
    let target = "AWSGlue.GetPartition";
    let got = answer(&wire.app, Some(target), at(&["1"]).to_string().as_bytes(), None, "r-1").await;
    let (_, now) = got.headers.iter().find(|(name, _)| *name == REVISION_HEADER).unwrap();
    assert_eq!(wire.send_if("DeletePartition", at(&["1"]), now).await, None);
    assert_eq!(IF_REVISION_HEADER, "x-lakewarden-if-revision");
}

#[tokio::test]
async fn the_past_is_kept_as_long_as_the_settings_say() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.ok("UpdatePartition", update(&["1"], partition_input(&["1"]))).await;
    wire.world.clock.advance_ms(1_000);
    wire.ok("UpdatePartition", update(&["1"], partition_input(&["2"]))).await;
    wire.ok("DeletePartition", at(&["2"])).await;
    let images = wire.history();
    let times: Vec<(i64, i64)> = images
        .iter()
        .map(|item| match (&item["valid_from_ms"], &item["valid_to_ms"]) {
            (Stored::Int(from), Stored::Int(to)) => (*from - super::NOW_MS, *to - super::NOW_MS),
            other => panic!("{other:?}"),
        })
        .collect();
    // Updated in the millisecond of its creation, moved a second later, deleted at once: never two states at one time.
    let mut sorted = times.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(0, 1), (1, 1_000), (1_000, 1_001)]);
    let week_s = 7 * 24 * 60 * 60;
    let expires = (super::NOW_MS + 1) / 1000 + week_s + 1;
    assert!(images.iter().any(|item| item["ttl"] == Stored::Int(expires)), "seconds, as DynamoDB wants them");

    wire.app.settings.history_retention_ms = 0;
    wire.create(&["5"]).await;
    wire.ok("UpdatePartition", update(&["5"], partition_input(&["6"]))).await;
    wire.ok("DeletePartition", at(&["6"])).await;
    assert_eq!(wire.history().len(), images.len());
}

#[tokio::test]
async fn a_table_has_about_as_many_partitions_as_the_settings_allow() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.app.settings.max_partitions_per_table = 150;
    let batch = |from: usize, count: usize| {
        let inputs: Vec<Value> = (from..from + count).map(|n| json!({ "Values": [n.to_string()] })).collect();
        in_table(json!({ "PartitionInputList": inputs }))
    };
    for from in [0, 100] {
        assert_eq!(wire.ok("BatchCreatePartition", batch(from, 100)).await, json!({ "Errors": [] }));
    }
    let text = "Number of PARTITION resources exceeds the limit 150 per TABLE";
    let refused = ("ResourceNumberLimitExceededException".to_owned(), text.to_owned());
    let create = |value: &str| in_table(json!({ "PartitionInput": { "Values": [value] } }));
    assert_eq!(wire.fails("CreatePartition", create("500")).await, refused);
    assert_eq!(wire.fails("CreatePartition", create("7")).await.0, "AlreadyExistsException", "the more useful answer");
    let answer = wire.ok("BatchCreatePartition", batch(199, 2)).await;
    let codes: Vec<&Value> =
        answer["Errors"].as_array().unwrap().iter().map(|error| &error["ErrorDetail"]["ErrorCode"]).collect();
    assert_eq!(codes, ["AlreadyExistsException", "ResourceNumberLimitExceededException"]);
    for from in [0, 25, 50] {
        let keys: Vec<Value> = (from..from + 25).map(|n| json!({ "Values": [n.to_string()] })).collect();
        wire.ok("BatchDeletePartition", in_table(json!({ "PartitionsToDelete": keys }))).await;
    }
    wire.ok("CreatePartition", create("500")).await;
}

#[tokio::test]
async fn single_requests_are_counted_by_the_next_batch() {
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    wire.app.settings.max_partitions_per_table = 20;
    let create = |value: usize| in_table(json!({ "PartitionInput": { "Values": [value.to_string()] } }));
    for value in 0..30 {
        wire.ok("CreatePartition", create(value)).await;
    }
    wire.ok("BatchCreatePartition", in_table(json!({ "PartitionInputList": [{ "Values": ["100"] }] }))).await;
    assert_eq!(wire.fails("CreatePartition", create(200)).await.0, "ResourceNumberLimitExceededException");
    // The estimate stands in nobody's way.
    let commit =
        json!({ "DatabaseName": "d", "TableInput": super::table_input("t", &[("n", "int")]), "VersionId": "0" });
    wire.ok("UpdateTable", commit).await;
    assert_eq!(wire.fails("CreatePartition", create(200)).await.0, "ResourceNumberLimitExceededException");
}

#[tokio::test]
async fn the_largest_partitions_are_kept_updated_and_moved() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    // The longest value of a parameter, of letters that do not compress.
    let noise = |seed: usize| -> String {
        let hash = |n: usize| crate::partition::hash_of_values(&[n.to_string()]).map(|byte| (b'!' + byte % 90) as char);
        (seed..seed + 16_000).flat_map(hash).filter(|c| !matches!(c, '"' | '\\')).take(500_000).collect()
    };
    let noises = [noise(0), noise(1), noise(2)];
    let input =
        |value: &str, at: usize| json!({ "Values": [value], "Parameters": { "a": noises[at], "b": noises[0] } });
    wire.ok("CreatePartition", in_table(json!({ "PartitionInput": input("1", 0) }))).await;
    assert_eq!(wire.partition(&["1"]).await["Parameters"], input("1", 0)["Parameters"]);
    wire.ok("UpdatePartition", update(&["1"], input("1", 1))).await;
    wire.ok("UpdatePartition", update(&["1"], input("2", 2))).await;
    let listed = wire.ok("GetPartitions", in_table(json!({}))).await;
    assert_eq!(listed["Partitions"][0]["Parameters"], input("2", 2)["Parameters"]);
    let keys = json!([{ "Values": ["2"] }, { "Values": ["1"] }]);
    let read = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": keys }))).await;
    assert_eq!(read["Partitions"][0]["Parameters"], input("2", 2)["Parameters"]);
    wire.ok("DeletePartition", at(&["2"])).await;
    assert_eq!(wire.history().len(), 3, "images share the bodies");
}
