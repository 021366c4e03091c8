//! Where a verdict says that the trouble is.

use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};

use super::kit::{Kit, short};
use crate::delta::testkit::{TABLE_ID, append_info, creation_of, parquet_pages};

const MESSAGE: &str = "message m { optional int64 id; optional binary name (STRING); optional double price; }";

/// A table whose `id` must not be null, with one constraint.
async fn table(constraint: &str) -> Kit {
    let kit = Kit::empty().await;
    let mut creation = creation_of(TABLE_ID, &[], json!({"delta.constraints.c": constraint}));
    creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}});
    kit.table.log(0, &creation).await;
    kit
}

/// The verdict's place for a file of three row groups of four rows.
async fn place(constraint: &str, rows: Vec<Value>, statistics: EnabledStatistics) -> Value {
    let kit = table(constraint).await;
    let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
    let bytes = parquet_pages(MESSAGE, &rows, 4, properties);
    kit.table.put("f.parquet", &bytes).await;
    let add = json!({"add": {"path": "f.parquet", "partitionValues": {}, "size": bytes.len(), "modificationTime": 1,
        "dataChange": true}});
    let verdict = kit.propose(1, 1, &[add, append_info()]).await;
    assert!(short(&verdict).starts_with("rejected SchemaMismatchException"), "{verdict:?}");
    let place = verdict.to_json()["place"].clone();
    assert_eq!(place["file"], "f.parquet");
    // Stored and read again it is the same.
    let stored = crate::commit::proposals::by_id(&*kit.table.world.items, verdict.proposal.id).await.unwrap();
    assert_eq!(stored, [verdict.proposal]);
    place
}

fn rows(id_at_six: Value, name_at_nine: &str) -> Vec<Value> {
    (0..12)
        .map(|at| {
            let id = if at == 6 { id_at_six.clone() } else { json!(at) };
            let name = if at % 2 == 0 { "a" } else { "z" };
            json!({"id": id, "name": if at == 9 { name_at_nine } else { name }, "price": 1.0})
        })
        .collect()
}

#[tokio::test]
async fn a_broken_rule_names_its_rows() {
    let (all, none) = (EnabledStatistics::Chunk, EnabledStatistics::None);
    // Bounds are rows themselves, but of which row they are, statistics do not tell.
    let found = place("id < 100", rows(json!(100), "n"), all).await;
    assert_eq!((&found["column"], &found["rows"]), (&json!("id"), &json!({"first": 4, "last": 7})));
    let found = place("id < 100", rows(json!(100), "n"), none).await;
    assert_eq!(found["rows"], json!({"first": 6, "last": 6}), "{found}");
    assert_eq!(found["found"], "row 2 of row group 1: 100");
    // Neither bound tells: the column is read.
    let found = place("name <> 'm' OR id < 0", rows(json!(6), "m"), all).await;
    assert_eq!(found["rows"], json!({"first": 9, "last": 9}), "{found}");
    let found = place("id < 100", rows(Value::Null, "n"), none).await;
    assert_eq!((&found["column"], &found["rows"]), (&json!("id"), &json!({"first": 6, "last": 6})));
}
