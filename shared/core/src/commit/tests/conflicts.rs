//! The conflict matrix at file level, as a table: what A is, what B did first, and what becomes of A.

use serde_json::{Value, json};

use super::judging::protocol;
use super::kit::{Kit, short};
use crate::delta::testkit::{NOW_MS, TABLE_ID, append_info, creation_of};

/// What a commit does. Files are named by letters: `a` and `b` exist (partitions x and y), others are new.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Blind append of a new file to a partition.
    Insert(&'static str),
    /// INSERT whose source reads the table.
    InsertReading(&'static str),
    /// Copy-on-write rewrite of an existing file; reads the whole table.
    Update(char),
    /// The same with a declared read set: the file's partition.
    UpdateDeclared(char),
    /// DELETE of all rows of a file, declared.
    DeleteDeclared(char),
    /// OPTIMIZE of an existing file.
    Optimize(char),
    Zorder(char),
    /// A property change.
    SetProperty,
    Protocol,
    Txn(&'static str, i64),
    Domain(&'static str),
    /// commitInfo only.
    Nothing,
}

fn partition(file: char) -> &'static str {
    if file == 'a' { "x" } else { "y" }
}

async fn lines(kit: &Kit, does: Does, tag: &str) -> Vec<Value> {
    let info = |operation: &str, more: Value| {
        // Byte-identical commits would count as one that landed already.
        let mut info = json!({"operation": operation, "engineInfo": tag});
        for (name, value) in more.as_object().unwrap() {
            info[name] = value.clone();
        }
        json!({"commitInfo": info})
    };
    let new = async |p: &str| kit.table.data(&format!("p={p}/{tag}.parquet"), Some(p), 3).await;
    let remove = |file: char, data_change: bool| {
        let p = partition(file);
        json!({"remove": {"path": format!("p={p}/{file}.parquet"), "deletionTimestamp": 1, "dataChange": data_change,
            "partitionValues": {"p": p}}})
    };
    let declared =
        |file: char| json!({"readSet": {"v": 1, "predicates": [{"op": "=", "col": ["p"], "value": partition(file)}]}});
    let moved = async |file: char, operation: Value| {
        let mut add = new(partition(file)).await;
        add["add"]["dataChange"] = json!(false);
        vec![remove(file, false), add, operation]
    };
    match does {
        Does::Insert(p) => vec![new(p).await, append_info()],
        Does::InsertReading(p) => {
            vec![
                new(p).await,
                info("WRITE", json!({"isBlindAppend": false, "operationParameters": {"mode": "Append"}})),
            ]
        }
        Does::Update(file) => vec![remove(file, true), new(partition(file)).await, info("UPDATE", json!({}))],
        Does::UpdateDeclared(file) => {
            vec![remove(file, true), new(partition(file)).await, info("UPDATE", declared(file))]
        }
        Does::DeleteDeclared(file) => vec![remove(file, true), info("DELETE", declared(file))],
        Does::Optimize(file) => moved(file, info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": "[]"}}))).await,
        Does::Zorder(file) => {
            moved(file, info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": "[\"id\"]"}}))).await
        }
        Does::SetProperty => {
            let mut metadata = kit.table.creation()[1].clone();
            metadata["metaData"]["configuration"]["delta.logRetentionDuration"] =
                json!(format!("interval {} days", tag.len()));
            vec![metadata, info("SET TBLPROPERTIES", json!({}))]
        }
        Does::Protocol => vec![
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}),
            info("UPGRADE PROTOCOL", json!({})),
        ],
        Does::Txn(app, version) => vec![
            json!({"txn": {"appId": app, "version": version}}),
            new("x").await,
            info("STREAMING UPDATE", json!({"operationParameters": {"outputMode": "Append"}})),
        ],
        Does::Domain(name) => {
            vec![
                json!({"domainMetadata": {"domain": name, "configuration": tag, "removed": false}}),
                info("X", json!({})),
            ]
        }
        Does::Nothing => vec![info("X", json!({"readSet": {"v": 1, "predicates": []}}))],
    }
}

async fn outcome(a: Does, b: Does, isolation: &str, vectors: bool) -> String {
    let kit = Kit::empty().await;
    let mut creation = kit.table.creation();
    creation[1]["metaData"]["configuration"]["delta.isolationLevel"] = json!(isolation);
    if matches!(a, Does::Domain(_)) {
        creation[0] =
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}});
    }
    if vectors {
        creation[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}});
        creation[1]["metaData"]["configuration"]["delta.enableDeletionVectors"] = json!("true");
    }
    creation.push(kit.table.data("p=x/a.parquet", Some("x"), 3).await);
    creation.push(kit.table.data("p=y/b.parquet", Some("y"), 3).await);
    kit.table.log(0, &creation).await;
    let winner = lines(&kit, b, "winner").await;
    let candidate = lines(&kit, a, "candidate").await;
    kit.table.log(1, &winner).await;
    let verdict = kit.propose(1, 1, &candidate).await;
    let text = short(&verdict);
    if !text.starts_with("committed") {
        let winner = verdict.refusal().unwrap().winner.as_ref().unwrap();
        assert_eq!(winner.version, 1, "{a:?} after {b:?}");
        assert_eq!(kit.versions(), [0, 1], "{a:?} after {b:?}");
    }
    text.replace("rejected ", "")
}

const WS: &str = "WriteSerializable";
const S: &str = "Serializable";

#[tokio::test]
async fn the_matrix_at_file_level() {
    let append = "ConcurrentAppendException";
    let read = "ConcurrentDeleteReadException";
    let twice = "ConcurrentDeleteDeleteException";
    let ok = "committed 2";
    use Does::*;
    let cases: Vec<(Does, Does, &str, String)> = vec![
        (Insert("x"), Insert("x"), S, ok.into()),
        (Insert("x"), Update('a'), S, ok.into()),
        (Insert("x"), DeleteDeclared('a'), S, ok.into()),
        (Insert("x"), Optimize('a'), S, ok.into()),
        (Update('a'), Insert("x"), WS, ok.into()),
        (Update('a'), Insert("y"), S, format!("{append} WHOLE_TABLE_READ")),
        (UpdateDeclared('a'), Insert("y"), S, ok.into()),
        (UpdateDeclared('a'), Insert("x"), S, format!("{append} WITH_PARTITION_HINT")),
        (UpdateDeclared('a'), Insert("x"), WS, ok.into()),
        (UpdateDeclared('a'), InsertReading("x"), WS, format!("{append} WITH_PARTITION_HINT")),
        (InsertReading("x"), Insert("x"), WS, ok.into()),
        (InsertReading("x"), Insert("x"), S, format!("{append} WHOLE_TABLE_READ")),
        (InsertReading("x"), DeleteDeclared('b'), WS, format!("{read} WHOLE_TABLE_READ")),
        (Update('a'), Update('b'), WS, format!("{append} WHOLE_TABLE_READ")),
        (UpdateDeclared('a'), UpdateDeclared('b'), S, ok.into()),
        (UpdateDeclared('a'), UpdateDeclared('a'), WS, format!("{append} WITH_PARTITION_HINT")),
        (UpdateDeclared('a'), DeleteDeclared('a'), WS, format!("{read} SAME_FILE")),
        (DeleteDeclared('a'), DeleteDeclared('a'), WS, format!("{read} SAME_FILE")),
        (DeleteDeclared('a'), DeleteDeclared('b'), S, ok.into()),
        (UpdateDeclared('a'), Optimize('a'), WS, format!("{read} SAME_FILE")),
        (UpdateDeclared('a'), Optimize('b'), WS, ok.into()),
        (UpdateDeclared('a'), Zorder('a'), WS, format!("{read} SAME_FILE")),
        (Optimize('a'), Insert("x"), S, ok.into()),
        (Optimize('a'), UpdateDeclared('a'), WS, format!("{read} SAME_FILE")),
        (Optimize('a'), UpdateDeclared('b'), S, ok.into()),
        (Optimize('a'), Optimize('a'), WS, format!("{twice} SAME_FILE")),
        (Optimize('a'), Optimize('b'), WS, ok.into()),
        (Zorder('a'), Optimize('a'), WS, format!("{twice} SAME_FILE")),
        (Zorder('a'), Insert("x"), S, ok.into()),
        (Insert("x"), SetProperty, WS, "MetadataChangedException METADATA_CHANGE".into()),
        (SetProperty, SetProperty, WS, "MetadataChangedException METADATA_CHANGE".into()),
        (SetProperty, Insert("x"), WS, ok.into()),
        (SetProperty, UpdateDeclared('a'), WS, ok.into()),
        (Insert("x"), Protocol, WS, "ProtocolChangedException PROTOCOL_CHANGE".into()),
        (Protocol, Protocol, WS, "ProtocolChangedException PROTOCOL_CHANGE".into()),
        (Protocol, Insert("x"), WS, ok.into()),
        (Txn("s", 4), Txn("s", 3), WS, "ConcurrentTransactionException SAME_APPLICATION".into()),
        (Txn("s", 4), Txn("s", 4), WS, "ConcurrentTransactionException ALREADY_APPLIED".into()),
        (Txn("s", 4), Txn("r", 4), WS, ok.into()),
        (Domain("d"), Domain("d"), WS, "ConcurrentTransactionException METADATA_DOMAIN".into()),
        (Domain("d"), Domain("e"), WS, ok.into()),
        (Nothing, UpdateDeclared('a'), S, ok.into()),
    ];
    for (a, b, isolation, expected) in cases {
        assert_eq!(outcome(a, b, isolation, false).await, expected, "{a:?} after {b:?}, {isolation}");
    }
}

#[tokio::test]
async fn with_deletion_vectors_a_compaction_that_lost_its_input_is_superseded() {
    use Does::*;
    for (a, b, expected) in [
        (Optimize('a'), Optimize('a'), "superseded SAME_FILE"),
        (Optimize('a'), UpdateDeclared('a'), "superseded SAME_FILE"),
        (Optimize('a'), Optimize('b'), "committed 2"),
        (Zorder('a'), Optimize('a'), "ConcurrentDeleteDeleteException SAME_FILE"),
        (Optimize('a'), Zorder('a'), "ConcurrentDeleteDeleteException SAME_FILE"),
        (UpdateDeclared('a'), Optimize('a'), "committed 2"),
    ] {
        assert_eq!(outcome(a, b, WS, true).await, expected, "{a:?} after {b:?}");
    }
}

#[tokio::test]
async fn a_commit_that_would_be_fine_alone_has_rules_of_the_table_to_keep() {
    let kit = Kit::unpartitioned(json!({"delta.appendOnly": "true"})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let info = json!({"commitInfo": {"operation": "X"}});
    let remove = json!({"remove": {"path": "a.parquet", "dataChange": true}});
    let refused = kit.propose(2, 2, &[remove, info.clone()]).await;
    assert_eq!(short(&refused), "rejected InvalidCommitException APPEND_ONLY");
    let unknown = json!({"remove": {"path": "z.parquet", "dataChange": false}});
    let refused = kit.propose(2, 3, &[unknown, info.clone()]).await;
    assert_eq!(short(&refused), "rejected InvalidCommitException REMOVE_OF_UNKNOWN_FILE");
    let refused = kit.propose(2, 4, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&refused), "rejected InvalidCommitException FILE_ALREADY_LIVE");
    let mut moved = kit.file("b.parquet").await;
    moved["add"]["dataChange"] = json!(false);
    let refused = kit.propose(2, 5, &[moved, info.clone()]).await;
    assert_eq!(short(&refused), "rejected InvalidCommitException ROWS_NOT_KEPT");
    let declared = json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[\"id\"]"}}});
    let refused = kit.propose(2, 6, &[kit.file("c.parquet").await, declared]).await;
    assert_eq!(short(&refused), "rejected SchemaMismatchException PARTITIONING");
}

#[tokio::test]
async fn new_columns_may_come_with_the_files_that_have_them() {
    let kit = Kit::unpartitioned(json!({})).await;
    let mut metadata = crate::delta::testkit::creation_of(crate::delta::testkit::TABLE_ID, &[], json!({}))[1].clone();
    let mut schema: Value = serde_json::from_str(metadata["metaData"]["schemaString"].as_str().unwrap()).unwrap();
    schema["fields"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "extra", "type": "date", "nullable": true, "metadata": {}}));
    metadata["metaData"]["schemaString"] = json!(schema.to_string());
    let message = "message m { required int64 id; optional int32 extra (DATE); }";
    let mut add = kit.table.data_of("a.parquet", None, message, &[json!({"id": 1, "extra": 3})]).await;
    add["add"]["partitionValues"] = json!({});
    let refused = kit.propose(1, 1, &[add.clone(), append_info()]).await;
    assert_eq!(short(&refused), "rejected SchemaMismatchException SCHEMA");
    assert_eq!(short(&kit.propose(1, 2, &[metadata, add, append_info()]).await), "committed 1");
}

/// A table that numbers its rows and stamps its commits, at version 0.
async fn numbered_table() -> Kit {
    let kit = Kit::empty().await;
    let properties = json!({"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"});
    let mut creation = creation_of(TABLE_ID, &[], properties);
    creation[0] = protocol(&["domainMetadata", "inCommitTimestamp", "rowTracking"]);
    let mut info = creation.pop().unwrap();
    info["commitInfo"]["inCommitTimestamp"] = json!(NOW_MS + 5_000);
    creation.insert(0, info);
    kit.table.log(0, &creation).await;
    kit
}

async fn published(kit: &Kit, version: i64) -> Vec<Value> {
    let bytes = kit.table.version(version).await.unwrap();
    std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn what_is_published_is_numbered_and_stamped_for_its_version() {
    let kit = numbered_table().await;
    // Both read version 0 and number their three rows from 0.
    for id in 1..=2 {
        let mut add = kit.file(&format!("{id}.parquet")).await;
        add["add"]["baseRowId"] = json!(0);
        add["add"]["defaultRowCommitVersion"] = json!(1);
        add["add"]["tags"] = json!({"odd": "1.50"});
        let mark = json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{\"rowIdHighWaterMark\":2}", "removed": false}});
        let verdict = kit.propose(1, id, &[add, mark, append_info()]).await;
        assert_eq!(short(&verdict), format!("committed {id}"));
    }
    let first = published(&kit, 1).await;
    assert_eq!(first[0]["commitInfo"]["inCommitTimestamp"], json!(NOW_MS + 5_001), "later than the last one");
    assert_eq!((&first[1]["add"]["baseRowId"], first.len()), (&json!(0), 3));
    let second = published(&kit, 2).await;
    assert_eq!(second[0]["commitInfo"]["inCommitTimestamp"], json!(NOW_MS + 5_002));
    let add = &second[1]["add"];
    assert_eq!((&add["baseRowId"], &add["defaultRowCommitVersion"]), (&json!(3), &json!(2)));
    assert_eq!(second[2]["domainMetadata"]["configuration"], json!("{\"rowIdHighWaterMark\":5}"));
    // The head knows the mark: an append without numbers gets them.
    let verdict = kit.propose(3, 3, &[kit.file("3.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "committed 3");
    let third = published(&kit, 3).await;
    assert_eq!(third[1]["add"]["baseRowId"], json!(6));
    assert_eq!(third[2]["domainMetadata"]["configuration"], json!("{\"rowIdHighWaterMark\":8}"));
}

#[tokio::test]
async fn a_commit_may_switch_timestamps_on() {
    let kit = Kit::empty().await;
    let mut creation = creation_of(TABLE_ID, &[], json!({}));
    creation[0] = protocol(&["inCommitTimestamp"]);
    kit.table.log(0, &creation).await;
    assert_eq!(short(&kit.propose(1, 1, &[kit.file("1.parquet").await, append_info()]).await), "committed 1");
    let mut metadata = creation[1].clone();
    metadata["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = json!("true");
    let enable = [metadata, json!({"commitInfo": {"operation": "SET TBLPROPERTIES", "operationParameters": {}}})];
    assert_eq!(short(&kit.propose(1, 2, &enable).await), "committed 2");
    let lines = published(&kit, 2).await;
    let stamp = lines[0]["commitInfo"]["inCommitTimestamp"].as_i64().unwrap();
    let properties = &lines[1]["metaData"]["configuration"];
    assert_eq!(properties["delta.inCommitTimestampEnablementVersion"], json!("2"));
    assert_eq!(properties["delta.inCommitTimestampEnablementTimestamp"], json!(stamp.to_string()));
    // An append that read before that follows with a timestamp of its own.
    assert_eq!(short(&kit.propose(2, 3, &[kit.file("3.parquet").await, append_info()]).await), "committed 3");
    let later = published(&kit, 3).await[0]["commitInfo"]["inCommitTimestamp"].as_i64().unwrap();
    assert!(later > stamp);
}
