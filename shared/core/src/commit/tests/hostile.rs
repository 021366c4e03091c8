//! Commits that are well-formed and still would harm: the table, its readers, or the next proposal.

use serde_json::json;

use super::kit::{Kit, short};
use crate::commit::run::Staged;
use crate::delta::Version;
use crate::delta::log::StagedKey;
use crate::delta::testkit::{append_info, creation_of, parquet_rows, remove_line, text};
use crate::store::{Objects, PutOptions};
use uuid::Uuid;

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

/// Stages bytes that need be no commit.
async fn stage_bytes(kit: &Kit, version: i64, id: u128, bytes: Vec<u8>) -> Staged {
    let key = StagedKey { root: kit.table.root.clone(), version: Version(version), id: Uuid::from_u128(id) };
    let etag = kit.table.world.objects.put(&key.key(), bytes.into(), &PutOptions::default()).await.unwrap();
    Staged { key, etag: Some(etag) }
}

#[tokio::test]
async fn whatever_is_staged_gets_a_named_refusal_and_the_table_stays() {
    let kit = Kit::unpartitioned(json!({})).await;
    let good = text(&[kit.file("a.parquet").await, append_info()]).into_bytes();
    let torn = good[..good.len() / 3].to_vec();
    let with_stats = |stats: String| {
        let mut add = crate::delta::testkit::add_line("a.parquet", 1);
        add["add"]["partitionValues"] = json!({});
        add["add"]["stats"] = json!(stats);
        text(&[add, append_info()]).into_bytes()
    };
    let info = |inner: &str| format!("{{\"commitInfo\":{{{inner}}}}}").into_bytes();
    let nested = |open: &str, close: &str| {
        let deep = format!("{}1{}", open.repeat(5_000), close.repeat(5_000));
        info(&format!("\"x\":{deep}"))
    };
    let wide = info(&format!("\"x\":[{}0]", "0,".repeat(2_000_000)));
    let add = |path: &str, size: &str| {
        let rest = "\"partitionValues\":{},\"modificationTime\":1,\"dataChange\":true";
        format!("{{\"add\":{{\"path\":{path},\"size\":{size},{rest}}}}}").into_bytes()
    };
    let path = |path: &str| add(path, "1");
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "MALFORMED_COMMIT"),
        ("blank", b" \n\r\n\n".to_vec(), "MALFORMED_COMMIT"),
        ("torn", torn, "MALFORMED_COMMIT"),
        ("binary", (0..=255).cycle().take(100_000).collect(), "MALFORMED_COMMIT"),
        ("Parquet", b"PAR1\x15\x04\x15\x00PAR1".to_vec(), "MALFORMED_COMMIT"),
        ("NULs", vec![0; 4_096], "MALFORMED_COMMIT"),
        ("a byte order mark", [b"\xef\xbb\xbf", good.as_slice()].concat(), "MALFORMED_COMMIT"),
        ("not UTF-8", [good.as_slice(), b"\xff\xfe"].concat(), "MALFORMED_COMMIT"),
        ("half a surrogate", info("\"x\":\"\\ud800\""), "MALFORMED_COMMIT"),
        ("a member twice", info("\"a\":1,\"a\":2"), "MALFORMED_COMMIT"),
        ("a member twice, escaped", info("\"a\":1,\"\\u0061\":2"), "MALFORMED_COMMIT"),
        ("an action twice on a line", b"{\"commitInfo\":{},\"commitInfo\":{}}".to_vec(), "MALFORMED_COMMIT"),
        (
            "two actions on a line",
            b"{\"commitInfo\":{},\"txn\":{\"appId\":\"a\",\"version\":1}}".to_vec(),
            "MALFORMED_COMMIT",
        ),
        ("an array", b"[{\"commitInfo\":{}}]".to_vec(), "MALFORMED_COMMIT"),
        ("deep arrays", nested("[", "]"), "MALFORMED_COMMIT"),
        ("deep objects", nested("{\"a\":", "}"), "MALFORMED_COMMIT"),
        ("millions of values", wide, "MALFORMED_COMMIT"),
        ("a size out of range", add("\"a\"", "9223372036854775808"), "MALFORMED_COMMIT"),
        ("a size that is huge", add("\"a\"", "1e999"), "MALFORMED_COMMIT"),
        ("a size that is no integer", add("\"a\"", "1.0"), "MALFORMED_COMMIT"),
        ("a read version out of range", info("\"readVersion\":-9223372036854775808"), "READ_VERSION"),
        ("a path with a NUL", path("\"a\\u0000b\""), "FILE_PATH"),
        ("a path with an escaped NUL", path("\"a%00b\""), "FILE_PATH"),
        ("a path out of the table", path("\"../../other/t/a\""), "FILE_PATH"),
        ("a path out of the table, escaped", path("\"%2e%2e/%2e%2e/a\""), "FILE_PATH"),
        ("an absolute path", path("\"/wh/t/a\""), "FILE_PATH"),
        ("another table's file", path("\"s3://lake/wh/u/a\""), "FILE_PATH"),
        ("another bucket's file", path("\"s3://other/wh/t/a\""), "FILE_PATH"),
        ("a file of the machine", path("\"file:///etc/passwd\""), "FILE_PATH"),
        ("a file of the log", path("\"_delta_log/00000000000000000000.json\""), "FILE_PATH"),
        ("statistics that are deep", with_stats("[".repeat(100_000)), "STATS"),
        ("statistics that are torn", with_stats("{\"numRecords\":".into()), "STATS"),
        ("statistics twice", with_stats("{\"numRecords\":1,\"numRecords\":2}".into()), "STATS"),
        ("statistics out of range", with_stats("{\"numRecords\":18446744073709551616}".into()), "STATS"),
        (
            "a read set that is deep",
            info(&format!("\"readSet\":{{\"predicates\":[{}1{}]}}", "[".repeat(60), "]".repeat(60))),
            "MALFORMED_READ_SET",
        ),
        ("a file of the read set elsewhere", info("\"readSet\":{\"files\":[{\"path\":\"../x\"}]}"), "FILE_PATH"),
    ];
    for (index, (what, bytes, reason)) in cases.into_iter().enumerate() {
        let staged = stage_bytes(&kit, 1, 100 + index as u128, bytes).await;
        let verdict = kit.judge(&staged).await;
        assert_eq!(short(&verdict), format!("rejected InvalidCommitException {reason}"), "{what}");
        let refusal = verdict.refusal().unwrap();
        assert!(refusal.message.len() < 3_000 && !refusal.advice.is_empty(), "{what}");
    }
    assert_eq!(kit.versions(), [0]);
    assert_eq!(short(&kit.judge(&stage_bytes(&kit, 1, 1, good).await).await), "committed 1");
}

#[tokio::test]
async fn a_staged_object_that_is_too_large_is_not_read_to_its_end() {
    let kit = Kit::unpartitioned(json!({})).await;
    let size = usize::try_from(crate::commit::content::STAGED_MAX_BYTES).unwrap() + 1;
    let staged = stage_bytes(&kit, 1, 1, vec![b' '; size]).await;
    assert_eq!(short(&kit.judge(&staged).await), "rejected InvalidCommitException TOO_LARGE");
}
