//! Many callers at once.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, table_input};

const CALLERS: usize = 32;

async fn all_at_once(wire: &Wire, operation: &'static str, input: impl Fn(usize) -> Value) -> Vec<(u16, Value)> {
    let mut tasks = Vec::new();
    for caller in 0..CALLERS {
        let (wire, input) = (wire.clone(), input(caller));
        tasks.push(tokio::spawn(async move {
            tokio::task::yield_now().await;
            wire.send(operation, input).await
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_create_wins() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for n in 0..8 {
        let value = n.to_string();
        let input = in_table(json!({ "PartitionInput": partition_input(&[&value]) }));
        let answers = all_at_once(&wire, "CreatePartition", |_| input.clone()).await;
        assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1);
        assert!(answers.iter().all(|(status, body)| *status == 200 || body["Message"] == "Partition already exists."));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overlapping_batches_create_each_partition_once() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let batch = |caller: usize| {
        let inputs: Vec<Value> = (0..40).map(|n| partition_input(&[&((n + caller) % 40).to_string()])).collect();
        in_table(json!({ "PartitionInputList": inputs }))
    };
    let answers = all_at_once(&wire, "BatchCreatePartition", batch).await;
    let refused: usize = answers.iter().map(|(_, body)| body["Errors"].as_array().unwrap().len()).sum();
    assert_eq!(CALLERS * 40 - refused, 40);
    assert_eq!(wire.list(1000).await.len(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_delete_and_one_commit_win() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let delete = in_table(json!({ "PartitionValues": ["1"] }));
    let answers = all_at_once(&wire, "DeletePartition", |_| delete.clone()).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1);

    let commit = |caller: usize| {
        let mut input = table_input("t", &[]);
        input["Parameters"] = json!({ "metadata_location": caller.to_string() });
        json!({ "DatabaseName": "d", "TableInput": input, "VersionId": "0", "SkipArchive": true })
    };
    let answers = all_at_once(&wire, "UpdateTable", commit).await;
    let winners: Vec<usize> = (0..CALLERS).filter(|caller| answers[*caller].0 == 200).collect();
    assert_eq!(winners.len(), 1);
    assert!(answers.iter().all(|(status, body)| *status == 200 || body["__type"] == "ConcurrentModificationException"));
    let table = wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert_eq!(table["Table"]["Parameters"]["metadata_location"], json!(winners[0].to_string()));
    assert_eq!(table["Table"]["VersionId"], "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_table_and_database_are_created() {
    let wire = Wire::with_table(&[]).await;
    let table = json!({ "DatabaseName": "d", "TableInput": table_input("new", &[]) });
    let answers = all_at_once(&wire, "CreateTable", |_| table.clone()).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1);
    let answers = all_at_once(&wire, "CreateDatabase", |_| json!({ "DatabaseInput": { "Name": "e" } })).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1);
}
