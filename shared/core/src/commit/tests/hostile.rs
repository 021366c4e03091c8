//! Commits that are well-formed and still would harm: the table, its readers, or the next proposal.

use serde_json::json;

use super::kit::{Kit, short};
use crate::delta::testkit::{append_info, creation_of, parquet_rows, remove_line};

#[tokio::test]
async fn texts_of_any_length_leave_nothing_stuck() {
    // An item holds 400 KB; what cannot be recorded after it was published would block the table for good.
    let huge = "x".repeat(500_000);
    let kit = Kit::unpartitioned(json!({"delta.isolationLevel": huge})).await;
    let named = kit.propose(1, 1, &[json!({"commitInfo": {"operation": huge}})]).await;
    assert_eq!(short(&named), "committed 1");
    assert!(named.proposal.warnings.iter().all(|warning| warning.len() < 3_000));
    let column = format!("message m {{ required int64 id; optional int64 {huge}; optional int64 {huge}b; }}");
    let bytes = parquet_rows(&column, &[json!({"id": 1})]);
    let mut wide = kit.file("wide.parquet").await;
    wide["add"]["size"] = json!(bytes.len());
    wide["add"]["stats"] = json!(null);
    kit.table.put("wide.parquet", &bytes).await;
    let refused = kit.propose(2, 2, &[wide, append_info()]).await;
    assert_eq!(short(&refused), "rejected SchemaMismatchException SCHEMA");
    let loser = kit.propose(1, 3, &[json!({"commitInfo": {"operation": huge, "readSet": {"appIds": [huge]}}})]).await;
    assert_eq!(short(&loser), "committed 2");
    assert_eq!(short(&kit.propose(3, 4, &[kit.file("a.parquet").await, append_info()]).await), "committed 3");

    let kit = Kit::empty().await;
    let refused = kit.propose(0, 1, &creation_of(&huge, &[], json!({}))).await;
    assert_eq!(short(&refused), "rejected InvalidCommitException METADATA_ID");
}

#[tokio::test]
async fn a_remove_is_spelled_as_the_log_spells_the_file() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("ab.parquet").await, append_info()]).await;
    let remove = |path: &str| {
        let mut line = remove_line(path, 1);
        line["remove"]["partitionValues"] = json!({});
        [line, json!({"commitInfo": {"operation": "DELETE"}})]
    };
    for (id, path) in [(2, "a%62.parquet"), (3, "s3://lake/wh/t/ab.parquet"), (4, "s3a://lake/wh/t/ab.parquet")] {
        let verdict = kit.propose(2, id, &remove(path)).await;
        assert_eq!(short(&verdict), "rejected InvalidCommitException REMOVE_SPELLING", "{path}");
    }
    assert_eq!(short(&kit.propose(2, 5, &remove("ab.parquet")).await), "committed 2");
    // What others wrote is removed as they wrote it.
    let mut odd = kit.file("o d.parquet").await;
    odd["add"]["path"] = json!("s3://lake/wh/t/o d.parquet");
    kit.table.log(3, &[odd, append_info()]).await;
    assert_eq!(short(&kit.propose(4, 6, &remove("s3://lake/wh/t/o d.parquet")).await), "committed 4");
}

#[tokio::test]
async fn a_transaction_id_with_other_actions_is_no_proof_that_they_landed() {
    let kit = Kit::unpartitioned(json!({})).await;
    let info = json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "txnId": "t-1"}});
    let first = [kit.file("a.parquet").await, info.clone()];
    assert_eq!(short(&kit.propose(1, 1, &first).await), "committed 1");
    let again = [first[0].clone(), json!({"commitInfo": {"operation": "WRITE", "txnId": "t-1", "timestamp": 7}})];
    assert_eq!(short(&kit.propose(1, 2, &again).await), "committed 1");
    let other = kit.propose(1, 3, &[kit.file("b.parquet").await, info]).await;
    assert_eq!(short(&other), "rejected ConcurrentTransactionException TXN_ID_REUSED");
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn what_was_staged_for_a_dropped_table_does_not_reach_the_one_created_through_us() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let left_over = kit.stage(1, 2, &[kit.file("b.parquet").await, append_info()]).await;
    kit.table.delete_log(0).await;
    kit.table.delete_log(1).await;
    kit.table.world.clock.advance_ms(5_000);
    let creation = creation_of("55555555-5555-4555-8555-555555555555", &[], json!({}));
    assert_eq!(short(&kit.propose(0, 3, &creation).await), "committed 0");
    assert_eq!(short(&kit.judge(&left_over).await), "rejected TableReplacedException TABLE_REPLACED");
    assert_eq!(kit.versions(), [0]);
}

#[tokio::test]
async fn a_commit_that_readers_could_not_decode_is_refused() {
    let kit = Kit::unpartitioned(json!({})).await;
    let good = kit.file("a.parquet").await;
    for (id, member, value) in [
        (1, "partitionValues", json!(null)),
        (2, "tags", json!({"a": 1})),
        (3, "modificationTime", json!("1")),
        (4, "clusteringProvider", json!(5)),
        (5, "dataChange", json!(null)),
    ] {
        let mut bad = good.clone();
        bad["add"][member] = value;
        let verdict = kit.propose(1, id, &[bad, append_info()]).await;
        assert_eq!(short(&verdict), "rejected InvalidCommitException MALFORMED_COMMIT", "{member}");
    }
    assert_eq!(kit.versions(), [0]);
}
