//! Files that the table has: their rows were judged when they came, what is said of them anew is not.

use serde_json::{Value, json};

use super::kit::{Kit, short};
use crate::commit::verdict::Verdict;
use crate::delta::deletion_vector::of_old_format;
use crate::delta::testkit::{TABLE_ID, append_info, creation_of, parquet_rows, remove_line};

/// The first two rows of a file, deleted.
fn two_rows() -> Value {
    json!({"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg00031",
        "sizeInBytes": 36, "cardinality": 2})
}

/// A live file with the numbers from 1 to 10 and a column that the table may not have.
async fn live(kit: &Kit, message: &str, stats: Value) -> Value {
    let rows: Vec<Value> = (1..=10).map(|id| json!({"id": id, "extra": 7})).collect();
    let bytes = parquet_rows(&format!("message m {{ {message} }}"), &rows);
    kit.table.put("a.parquet", &bytes).await;
    let add = json!({"add": {"path": "a.parquet", "partitionValues": {}, "size": bytes.len(), "modificationTime": 1,
        "dataChange": true, "stats": stats.to_string()}});
    kit.table.log(1, &[add.clone(), append_info()]).await;
    add
}

fn said(verdict: &Verdict) -> String {
    verdict.refusal().map_or_else(|| verdict.status().name().to_owned(), |refusal| refusal.error_class.clone())
}

const ID: &str = "required int64 id;";

fn whole() -> Value {
    json!({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 10}, "nullCount": {"id": 0}})
}

#[tokio::test]
async fn statistics_under_a_new_deletion_vector_do_not_lie() {
    let lie = "LAKEWARDEN_STATISTICS_MISMATCH";
    for (stats, expected, footers) in [
        (whole(), "committed", 0),
        (json!({"numRecords": 10, "minValues": {"id": 1}}), "committed", 0),
        (json!({"numRecords": 10, "maxValues": {"id": 11}}), "committed", 1),
        (json!({"numRecords": 10, "maxValues": {"id": 4}}), lie, 1),
        (json!({"numRecords": 10, "maxValues": {"id": "4"}}), lie, 1),
        (json!({"numRecords": 10, "maxValues": {"id": "rubbish"}}), lie, 1),
        (json!({"numRecords": 10, "minValues": {"id": 7}}), lie, 1),
        (json!({"numRecords": 10, "nullCount": {"id": 10}}), lie, 1),
    ] {
        let kit = Kit::with_vectors(json!({})).await;
        let mut add = live(&kit, ID, whole()).await;
        let mut wide = stats.clone();
        wide["tightBounds"] = json!(false);
        add["add"]["stats"] = json!(wide.to_string());
        add["add"]["deletionVector"] = two_rows();
        let info = json!({"commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": "[\"id < 3\"]"}}});
        let staged = kit.stage(2, 1, &[remove_line("a.parquet", 1), add, info]).await;
        let before = kit.table.world.ports.objects.object_usage();
        let verdict = kit.judge(&staged).await;
        let used = kit.table.world.ports.objects.object_usage().since(&before);
        assert_eq!(said(&verdict), expected, "{stats}: {:?}", verdict.refusal());
        // The file's footer is read only where the log does not say the same already.
        assert_eq!(used.heads, 1 - footers, "{stats}");
    }
}

#[tokio::test]
async fn statistics_are_refreshed_whatever_the_rows_are_by_now() {
    let now = |stats: Value| json!({"numRecords": 10, "minValues": stats["low"], "maxValues": stats["high"]});
    let lie = "LAKEWARDEN_STATISTICS_MISMATCH";
    // A CHECK that the file breaks, and a column that the table does not have: both came or went after the file did.
    let broken = json!({"delta.constraints.c": "id > 5"});
    for (configuration, message, stats, expected) in [
        (json!({}), ID, json!({"low": {"id": 1}, "high": {"id": 10}}), "committed"),
        (json!({}), ID, json!({"low": {"id": 1}, "high": {"id": 9}}), lie),
        (broken, ID, json!({"low": {"id": 1}, "high": {"id": 10}}), "committed"),
        (json!({}), "required int64 id; optional int64 extra;", json!({"low": {"id": 1}}), "committed"),
        (json!({}), "required int64 id; optional int64 extra;", json!({"low": {"id": 2}}), lie),
    ] {
        let kit = Kit::empty().await;
        let mut creation = creation_of(TABLE_ID, &[], configuration);
        creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}});
        kit.table.log(0, &creation).await;
        let mut add = live(&kit, message, json!({"numRecords": 10})).await;
        add["add"]["stats"] = json!(now(stats.clone()).to_string());
        add["add"]["dataChange"] = json!(false);
        let info = json!({"commitInfo": {"operation": "COMPUTE STATS", "operationParameters": {}}});
        let verdict = kit.propose(2, 1, &[add, info]).await;
        assert_eq!(said(&verdict), expected, "{message} {stats}: {:?}", verdict.refusal());
    }
}

#[tokio::test]
async fn a_file_that_comes_back_under_a_vector_is_not_replaced() {
    let kit = Kit::empty().await;
    let mut creation =
        creation_of(TABLE_ID, &[], json!({"delta.constraints.c": "id > 0", "delta.enableDeletionVectors": "true"}));
    creation[0] = super::judging::protocol(&["deletionVectors", "appendOnly", "invariants", "checkConstraints"]);
    kit.table.log(0, &creation).await;
    let mut add = live(&kit, ID, whole()).await;
    add["add"]["stats"] = json!(json!({"numRecords": 10, "tightBounds": false}).to_string());
    add["add"]["deletionVector"] = two_rows();
    let metadata = creation_of(TABLE_ID, &[], json!({"delta.enableDeletionVectors": "true"}))[1].clone();
    let info = json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}});
    let verdict = kit.propose(2, 1, &[remove_line("a.parquet", 1), add, metadata, info]).await;
    assert_eq!(said(&verdict), "DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED", "{:?}", verdict.refusal());
}

#[tokio::test]
async fn a_footer_without_its_data_is_no_file() {
    let rows: Vec<Value> = (0..2000).map(|id| json!({"id": id * 7919 % 2003})).collect();
    let bytes = parquet_rows("message m { required int64 id; }", &rows);
    let length = bytes.len();
    let footer = u32::from_le_bytes(bytes[length - 8..length - 4].try_into().unwrap()) as usize + 8;
    let foot = &bytes[length - footer..];
    // Where the data ends in the middle, the footer stands where data should be.
    for (data, expected) in [
        (&bytes[..length - footer], "committed"),
        (&bytes[..4], "DELTA_FAILED_READ_FILE_FOOTER"),
        (&bytes[..(length - footer) / 2], "DELTA_FAILED_READ_FILE_FOOTER"),
        (&bytes[..length - footer - 1], "DELTA_FAILED_READ_FILE_FOOTER"),
    ] {
        let kit = Kit::unpartitioned(json!({})).await;
        let cut = [data, foot].concat();
        kit.table.put("a.parquet", &cut).await;
        let add = json!({"add": {"path": "a.parquet", "partitionValues": {}, "size": cut.len(), "modificationTime": 1,
            "dataChange": true, "stats": "{\"numRecords\":2000}"}});
        let verdict = kit.propose(1, 1, &[add, append_info()]).await;
        assert_eq!(said(&verdict), expected, "{} of {length}: {:?}", cut.len(), verdict.refusal());
    }
}

/// What was written in the older format is for its engine to say; what is new is for all.
#[tokio::test]
async fn a_vector_of_the_older_format_may_come_back_and_may_not_be_new() {
    let refused = "rejected InvalidCommitException DELETION_VECTOR_OLD_FORMAT";
    let under = |add: &Value, vector: Value| {
        let mut add = add.clone();
        let mut stats = whole();
        stats["tightBounds"] = json!(false);
        add["add"]["stats"] = json!(stats.to_string());
        add["add"]["deletionVector"] = vector;
        add
    };
    for (operation, expected) in [("RESTORE", "committed 3"), ("DELETE", refused)] {
        let kit = Kit::with_vectors(json!({})).await;
        let add = live(&kit, ID, whole()).await;
        // Somebody deleted rows 0 and 1; the table is taken back to rows 0 and 2.
        let mut gone = remove_line("a.parquet", 1);
        kit.table.log(2, &[gone.clone(), under(&add, two_rows()), append_info()]).await;
        gone["remove"]["deletionVector"] = two_rows();
        let info = json!({"commitInfo": {"operation": operation, "readSet": {"v": 1}}});
        let verdict = kit.propose(3, 1, &[gone, under(&add, json!(of_old_format())), info]).await;
        assert_eq!(short(&verdict), expected, "{operation}");
    }
    // A live file is named once more, as it is.
    let kit = Kit::with_vectors(json!({})).await;
    let add = live(&kit, ID, whole()).await;
    let old = under(&add, json!(of_old_format()));
    kit.table.log(2, &[remove_line("a.parquet", 1), old.clone(), append_info()]).await;
    let mut again = old;
    again["add"]["dataChange"] = json!(false);
    let info = json!({"commitInfo": {"operation": "COMPUTE STATS"}});
    assert_eq!(short(&kit.propose(3, 2, &[again, info]).await), "committed 3");
}
