//! One case for every rule, and the nearest commit that keeps it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    check_added_files, check_append_only, check_deletion_vectors, check_features, check_live_files, needed_files,
};
use crate::commit::candidate::Candidate;
use crate::commit::facts::FileFacts;
use crate::commit::verdict::Refusal;
use crate::delta::schema::Schema;
use crate::delta::snapshot::{FileKey, Snapshot};
use crate::delta::testkit::text;
use crate::delta::{Metadata, Protocol, Version, parse_commit};
use crate::location::Location;
use crate::store::ObjectKey;

fn root() -> Location {
    Location::new("b", "t")
}

fn metadata() -> Metadata {
    let field = |name: &str, kind: Value, nullable: bool| {
        json!({"name": name, "type": kind, "nullable": nullable,
            "metadata": {"delta.columnMapping.physicalName": format!("c-{name}")}})
    };
    let nested = json!({"type": "struct", "fields": [field("x", json!("long"), true)]});
    let schema = json!({"type": "struct", "fields": [
        field("id", json!("long"), false),
        field("name", json!("string"), true),
        field("at", json!("timestamp"), true),
        field("s", nested, true),
        field("list", json!({"type": "array", "elementType": "long", "containsNull": true}), true),
        field("p", json!("date"), false),
        field("q", json!("integer"), true),
    ]});
    Metadata {
        id: "m".into(),
        schema_string: schema.to_string(),
        partition_columns: vec!["p".into(), "q".into()],
        ..Metadata::default()
    }
}

fn add(path: &str) -> Value {
    json!({"add": {"path": path, "partitionValues": {"p": "2024-01-01", "q": "7"}, "size": 10, "modificationTime": 1,
        "dataChange": true, "stats": "{\"numRecords\":5}"}})
}

fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "dataChange": true, "deletionTimestamp": 1}})
}

fn vector(id: &str, cardinality: i64) -> Value {
    json!({"storageType": "u", "pathOrInlineDv": id, "offset": 1, "sizeInBytes": 40, "cardinality": cardinality})
}

/// Sets a member of the one action of a line.
fn with(mut line: Value, member: &str, value: Value) -> Value {
    for action in line.as_object_mut().unwrap().values_mut() {
        action[member] = value.clone();
    }
    line
}

fn with_stats(line: Value, stats: Value) -> Value {
    with(line, "stats", json!(stats.to_string()))
}

fn under(line: Value, id: &str, cardinality: i64) -> Value {
    let line =
        if line.get("add").is_some() { with_stats(line, json!({"numRecords": 5, "tightBounds": false})) } else { line };
    with(line, "deletionVector", vector(id, cardinality))
}

fn moved(line: Value) -> Value {
    with(line, "dataChange", json!(false))
}

fn snapshot(lines: &[Value]) -> Snapshot {
    let actions = parse_commit(text(lines).as_bytes(), crate::delta::Strictness::Log).unwrap();
    let live = actions
        .adds
        .into_iter()
        .map(|add| {
            let dv_id = add.deletion_vector.as_ref().map(crate::delta::DeletionVector::id);
            (FileKey { at: root().object(&add.path), dv_id }, add)
        })
        .collect();
    Snapshot {
        covers: crate::delta::Covers::All,
        version: Version(4),
        protocol: Protocol::default(),
        metadata: metadata(),
        app_ids: Default::default(),
        domains: Default::default(),
        live,
        tombstones: Default::default(),
        is_ambiguous: false,
    }
}

/// What was live: `old` without a vector, `cut` under one.
fn live() -> Vec<Value> {
    vec![add("old"), under(add("cut"), "v1", 2)]
}

fn judge(lines: &[Value], metadata: &Metadata, vectors_on: bool, log: &[Value]) -> Result<(), Refusal> {
    let candidate = Candidate::parse(&root(), Version(5), text(lines).into())?;
    let schema = Schema::parse(&metadata.schema_string).unwrap();
    check_append_only(&candidate, metadata)?;
    check_added_files(&candidate, metadata, &schema)?;
    let snapshot = snapshot(log);
    let wanted: BTreeSet<ObjectKey> = needed_files(&candidate, None);
    let files = FileFacts::of_snapshots(wanted, Some(&snapshot), &snapshot);
    check_live_files(&candidate, &files, &Default::default())?;
    check_deletion_vectors(&candidate, vectors_on, Some(&files))
}

fn reason(lines: &[Value]) -> String {
    let found = judge(lines, &metadata(), true, &live());
    found.err().map_or("fine".to_owned(), |refusal| refusal.reason.clone())
}

#[test]
fn actions_are_unique() {
    let txn = |version: i64| json!({"txn": {"appId": "a", "version": version}});
    let domain = |text: &str| json!({"domainMetadata": {"domain": "d", "configuration": text, "removed": false}});
    let protocol = || json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
    let listing = |readers: &[&str], writers: &[&str]| json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}});
    let table = || {
        json!({"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}",
            "partitionColumns": [], "configuration": {}}})
    };
    for (lines, expected) in [
        (vec![protocol(), protocol()], "REPEATED_ACTION"),
        (vec![table(), table()], "REPEATED_ACTION"),
        (vec![json!({"commitInfo": {}}), json!({"commitInfo": {}})], "REPEATED_ACTION"),
        (vec![listing(&["deletionVectors"], &["deletionVectors"])], "fine"),
        (vec![listing(&["deletionVectors", "deletionVectors"], &["deletionVectors"])], "DUPLICATE_FEATURE"),
        (vec![listing(&[], &["appendOnly", "invariants", "appendOnly"])], "DUPLICATE_FEATURE"),
        (vec![add("a"), add("a")], "DUPLICATE_ACTIONS"),
        (vec![add("a"), under(add("a"), "x", 1)], "DUPLICATE_ACTIONS"),
        (vec![remove("old"), remove("old")], "DUPLICATE_ACTIONS"),
        (vec![remove("old"), under(remove("old"), "x", 1)], "DUPLICATE_ACTIONS"),
        (vec![add("old"), remove("old")], "DUPLICATE_ACTIONS"),
        (vec![under(add("cut"), "v1", 2), under(remove("cut"), "v1", 2)], "DUPLICATE_ACTIONS"),
        (vec![under(add("cut"), "v2", 3), under(remove("cut"), "v1", 2)], "fine"),
        (vec![txn(1), txn(2)], "DUPLICATE_TXN"),
        (vec![txn(1)], "fine"),
        (vec![domain("a"), domain("b")], "DUPLICATE_DOMAIN"),
        (vec![domain("a")], "fine"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
}

#[test]
fn files_are_where_and_what_they_should_be() {
    let cdc = |path: &str, size: i64| json!({"cdc": {"path": path, "partitionValues": {"p": "2024-01-01", "q": null}, "size": size, "dataChange": false}});
    for (lines, expected) in [
        (vec![add("p=1/a%20b")], "fine"),
        (vec![add("../a")], "FILE_PATH"),
        (vec![add("a/%2e%2e/b")], "FILE_PATH"),
        (vec![add("s3://b/t/a")], "FILE_PATH"),
        (vec![add("s3://other/t/a")], "FILE_PATH"),
        (vec![remove("s3://other/t/old")], "FILE_PATH"),
        (vec![add("/a")], "FILE_PATH"),
        (vec![add("_delta_log/a")], "FILE_PATH"),
        (vec![add("a%00b")], "FILE_PATH"),
        (vec![add("a\u{0}b")], "FILE_PATH"),
        (vec![add("a%ffb")], "FILE_PATH"),
        (vec![add("")], "FILE_PATH"),
        (vec![add(&"x".repeat(1_022))], "fine"),
        (vec![add(&"x".repeat(1_023))], "FILE_PATH"),
        (vec![with(add("a"), "size", json!(0))], "FILE_SIZE"),
        (vec![with(add("a"), "size", json!(-1))], "FILE_SIZE"),
        (vec![add("a"), cdc("_change_data/c", 0)], "FILE_SIZE"),
        (vec![add("a"), cdc("_change_data/c", 1)], "fine"),
        (vec![add("a"), cdc("_change_data/p=1/c", 1)], "fine"),
        (vec![add("_change_data/c"), cdc("_change_data/c", 1)], "DUPLICATE_ACTIONS"),
        (vec![cdc("_change_data/c", 1), cdc("_change_data/%63", 1)], "DUPLICATE_ACTIONS"),
        (vec![add("a"), cdc("c", 1)], "CDC_PATH"),
        (vec![add("a"), cdc("_change_data", 1)], "CDC_PATH"),
        (vec![add("a"), cdc("x/_change_data/c", 1)], "CDC_PATH"),
        (vec![add("a"), cdc("_change_data/../c", 1)], "FILE_PATH"),
        (vec![add("a"), moved(add("b"))], "MIXED_DATA_CHANGE"),
        (vec![add("a"), moved(remove("old"))], "MIXED_DATA_CHANGE"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
}

#[test]
fn partition_values_fit_the_table() {
    let values = |values: Value| vec![with(add("a"), "partitionValues", values)];
    for (lines, expected) in [
        (values(json!({"p": "2024-02-29", "q": null})), "fine"),
        (values(json!({"p": "2024-02-29", "q": ""})), "fine"),
        (values(json!({"p": "2024-02-29"})), "PARTITION_VALUES"),
        (values(json!({"p": "2024-02-29", "q": "1", "id": "1"})), "PARTITION_VALUES"),
        (values(json!({"p": "2024-02-29", "Q": "1"})), "PARTITION_VALUES"),
        (values(json!({"p": "2024-02-30", "q": "1"})), "PARTITION_VALUE_TYPE"),
        (values(json!({"p": "2024-02-29", "q": "2147483648"})), "PARTITION_VALUE_TYPE"),
        (values(json!({"p": null, "q": "1"})), "PARTITION_NULL"),
        (values(json!({"p": "", "q": "1"})), "PARTITION_NULL"),
        (
            vec![
                add("a"),
                json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"partitionBy": "[\"q\",\"p\"]"}}}),
            ],
            "PARTITIONING",
        ),
        (
            vec![
                add("a"),
                json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"partitionBy": "[\"p\",\"q\"]"}}}),
            ],
            "fine",
        ),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
    let mut mapped = metadata();
    mapped.configuration.insert("delta.columnMapping.mode".into(), Some("name".into()));
    let physical = values(json!({"c-p": "2024-01-01", "c-q": "1"}));
    assert_eq!(judge(&physical, &mapped, true, &[]), Ok(()));
    assert_eq!(judge(&[add("a")], &mapped, true, &[]).unwrap_err().reason, "PARTITION_VALUES");
}

#[test]
fn statistics_are_honest_on_their_face() {
    let stats = |stats: Value| vec![with_stats(add("a"), stats)];
    let bounds = |min: Value, max: Value| stats(json!({"minValues": min, "maxValues": max}));
    for (lines, expected) in [
        (vec![with(add("a"), "stats", json!(null))], "fine"),
        (vec![with(add("a"), "stats", json!(""))], "STATS"),
        (vec![with(add("a"), "stats", json!(" "))], "STATS"),
        (vec![with(add("a"), "stats", json!("{"))], "STATS"),
        (vec![with(add("a"), "stats", json!("[]"))], "STATS"),
        (vec![with(add("a"), "stats", json!("{\"numRecords\":1,\"numRecords\":2}"))], "STATS"),
        (stats(json!({"numRecords": -1})), "STATS"),
        (stats(json!({"numRecords": 1.5})), "STATS"),
        (stats(json!({"tightBounds": "yes"})), "STATS"),
        (stats(json!({"minValues": []})), "STATS"),
        (bounds(json!({"id": 1, "name": "a", "s": {"x": 2}}), json!({"id": 1, "name": "b", "s": {"x": 3}})), "fine"),
        (bounds(json!({"nope": 1}), json!({})), "STATS_COLUMN"),
        (bounds(json!({"ID": 1}), json!({})), "STATS_COLUMN"),
        (bounds(json!({}), json!({"s": {"y": 1}})), "STATS_COLUMN"),
        (stats(json!({"nullCount": {"nope": 0}})), "STATS_COLUMN"),
        (stats(json!({"numRecords": 5, "nullCount": {"list": 5, "q": 0}})), "fine"),
        (bounds(json!({"id": 2}), json!({"id": 1})), "STATS_BOUNDS"),
        (bounds(json!({"name": "b"}), json!({"name": "a"})), "STATS_BOUNDS"),
        (bounds(json!({"s": {"x": 3}}), json!({"s": {"x": 2}})), "STATS_BOUNDS"),
        (bounds(json!({"at": "2024-01-01T00:00:01.000Z"}), json!({"at": "2024-01-01T00:00:00.000Z"})), "STATS_BOUNDS"),
        (bounds(json!({"id": "b"}), json!({"id": "a"})), "STATS_TYPE"),
        (bounds(json!({"id": 1.5}), json!({})), "STATS_TYPE"),
        (bounds(json!({"id": {"x": 1}}), json!({})), "STATS_TYPE"),
        (bounds(json!({}), json!({"name": 7})), "STATS_TYPE"),
        (bounds(json!({"at": 1_700_000_000}), json!({})), "STATS_TYPE"),
        (bounds(json!({"p": false}), json!({})), "STATS_TYPE"),
        (bounds(json!({"s": 1}), json!({})), "STATS_TYPE"),
        (bounds(json!({"s": {"x": "1"}}), json!({})), "STATS_TYPE"),
        (bounds(json!({"id": null, "s": null, "at": "2024-01-01 00:00:00"}), json!({"s": {"x": null}})), "fine"),
        (stats(json!({"nullCount": {"id": "0"}})), "STATS_TYPE"),
        (stats(json!({"nullCount": {"id": {"x": 0}}})), "STATS_TYPE"),
        (stats(json!({"nullCount": {"s": 0}})), "STATS_TYPE"),
        (stats(json!({"nullCount": {"s": {"x": [0]}}})), "STATS_TYPE"),
        (stats(json!({"nullCount": {"list": {"element": 0}}})), "STATS_TYPE"),
        (stats(json!({"nullCount": 0})), "STATS"),
        (stats(json!({"maxValues": "x"})), "STATS"),
        (stats(json!({"numRecords": "5"})), "STATS"),
        (stats(json!({"numRecords": 5, "nullCount": {"id": 6}})), "STATS_NULL_COUNT"),
        (stats(json!({"numRecords": 5, "nullCount": {"s": {"x": 6}}})), "STATS_NULL_COUNT"),
        (stats(json!({"nullCount": {"id": -1}})), "STATS_NULL_COUNT"),
        (stats(json!({"nullCount": {"id": 0.5}})), "STATS_NULL_COUNT"),
        (stats(json!({"numRecords": 5, "nullCount": {"id": 5}})), "fine"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
    // A file that was there before may have statistics of a column that was dropped.
    let old = with_stats(add("old"), json!({"numRecords": 5, "tightBounds": false, "minValues": {"gone": 1}}));
    assert_eq!(reason(&[remove("old"), with(old, "deletionVector", vector("v", 1))]), "fine");
}

#[test]
fn append_only_tables_lose_no_rows() {
    let mut only = metadata();
    only.configuration.insert("delta.appendOnly".into(), Some("true".into()));
    let judge = |lines: &[Value]| judge(lines, &only, true, &live()).err().map(|refusal| refusal.reason.clone());
    assert_eq!(judge(&[add("a")]), None);
    assert_eq!(judge(&[remove("old")]).as_deref(), Some("APPEND_ONLY"));
    assert_eq!(judge(&[moved(remove("old")), moved(add("new"))]), None);
    assert_eq!(judge(&[remove("old"), under(add("old"), "v", 1)]).as_deref(), Some("APPEND_ONLY"));
}

#[test]
fn features_are_there_for_what_needs_them() {
    let domain = json!({"domainMetadata": {"domain": "d", "configuration": "", "removed": false}});
    let numbered = with(add("a"), "baseRowId", json!(0));
    let dated = with(add("a"), "defaultRowCommitVersion", json!(0));
    let cdc = json!({"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": false}});
    let clustered = with(add("a"), "clusteringProvider", json!("liquid"));
    let system = |name: &str, removed: bool| json!({"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}});
    let protocol = |features: &[&str]| Protocol {
        min_reader_version: 1,
        min_writer_version: 7,
        reader_features: None,
        writer_features: Some(features.iter().map(|name| (*name).to_owned()).collect()),
    };
    for (line, features, expected) in [
        (add("a"), &[][..], None),
        (domain.clone(), &[][..], Some("FEATURE_MISSING")),
        (domain, &["domainMetadata"][..], None),
        (numbered.clone(), &["domainMetadata"][..], Some("FEATURE_MISSING")),
        (numbered, &["rowTracking"][..], None),
        (dated.clone(), &["domainMetadata"][..], Some("FEATURE_MISSING")),
        (dated, &["rowTracking"][..], None),
        (cdc.clone(), &[][..], Some("FEATURE_MISSING")),
        (cdc, &["changeDataFeed"][..], None),
        (clustered.clone(), &["domainMetadata"][..], Some("FEATURE_MISSING")),
        (clustered, &["clustering"][..], None),
        (with(add("a"), "clusteringProvider", Value::Null), &[][..], None),
        (system("delta.clustering", false), &["domainMetadata"][..], Some("FEATURE_MISSING")),
        (system("delta.clustering", false), &["domainMetadata", "clustering"][..], None),
        (system("delta.clustering", true), &["domainMetadata"][..], None),
        (system("delta.rowTracking", false), &["domainMetadata"][..], Some("FEATURE_MISSING")),
        (system("delta.rowTracking", false), &["domainMetadata", "rowTracking"][..], None),
        (system("delta.rowTracking", true), &["domainMetadata"][..], None),
    ] {
        let candidate = Candidate::parse(&root(), Version(5), text(&[line]).into()).unwrap();
        let found = check_features(&candidate, &protocol(features)).err().map(|refusal| refusal.reason.clone());
        assert_eq!(found.as_deref(), expected, "{features:?}");
    }
}

#[test]
fn removes_name_logical_files_that_were_live() {
    let values = |line: Value, q: Value| with(line, "partitionValues", json!({"p": "2024-01-01", "q": q}));
    for (lines, expected) in [
        (vec![remove("old")], "fine"),
        (vec![remove("new")], "REMOVE_OF_UNKNOWN_FILE"),
        (vec![remove("cut")], "REMOVE_OF_OTHER_VECTOR"),
        (vec![under(remove("cut"), "v1", 2)], "fine"),
        (vec![under(remove("cut"), "v2", 2)], "REMOVE_OF_OTHER_VECTOR"),
        (vec![under(remove("old"), "v1", 2)], "REMOVE_OF_OTHER_VECTOR"),
        (vec![remove("ol%64")], "REMOVE_SPELLING"),
        (vec![values(remove("old"), json!("7"))], "fine"),
        (vec![values(remove("old"), json!("8"))], "REMOVE_PARTITION"),
        (vec![values(remove("old"), json!(null))], "REMOVE_PARTITION"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
    // An absent offset is not offset 0, nor 1.
    let mut without = under(remove("cut"), "v1", 2);
    without["remove"]["deletionVector"].as_object_mut().unwrap().remove("offset");
    assert_eq!(reason(&[without]), "REMOVE_OF_OTHER_VECTOR");
}

#[test]
fn what_a_winner_added_or_removed_since_is_not_there() {
    let (before, after) = (snapshot(&[add("old")]), snapshot(&[add("new")]));
    let judge = |lines: &[Value]| {
        let candidate = Candidate::parse(&root(), Version(5), text(lines).into()).unwrap();
        let files = FileFacts::of_snapshots(needed_files(&candidate, None), Some(&before), &after);
        check_live_files(&candidate, &files, &Default::default()).err().map(|refusal| refusal.reason.clone())
    };
    assert_eq!(judge(&[remove("old")]).as_deref(), Some("REMOVE_OF_UNKNOWN_FILE"));
    assert_eq!(judge(&[remove("new")]).as_deref(), Some("REMOVE_OF_UNKNOWN_FILE"));
    assert_eq!(judge(&[add("new")]).as_deref(), Some("FILE_ALREADY_LIVE"));
    // Where the log no longer tells what was read, the latest version counts.
    let candidate = Candidate::parse(&root(), Version(5), text(&[remove("new")]).into()).unwrap();
    let files = FileFacts::of_snapshots(needed_files(&candidate, None), None, &after);
    assert_eq!(check_live_files(&candidate, &files, &Default::default()), Ok(()));
}

#[test]
fn adds_of_live_files_repeat_them_or_replace_their_vector() {
    let again = |line: Value| moved(with(line, "tags", json!({"a": "b"})));
    for (lines, expected) in [
        (vec![add("old")], "FILE_ALREADY_LIVE"),
        (vec![under(add("cut"), "v1", 2)], "FILE_ALREADY_LIVE"),
        (vec![again(add("old"))], "fine"),
        (vec![again(under(add("cut"), "v1", 2))], "fine"),
        (vec![under(add("old"), "v", 1)], "ADD_WITHOUT_REMOVE"),
        (vec![add("cut")], "ADD_WITHOUT_REMOVE"),
        (vec![under(add("cut"), "v2", 3)], "ADD_WITHOUT_REMOVE"),
        (vec![remove("old"), under(add("old"), "v", 1)], "fine"),
        (vec![under(remove("cut"), "v1", 2), add("cut")], "fine"),
        (vec![again(with(add("old"), "size", json!(11)))], "FILE_CHANGED"),
        (vec![again(with(add("old"), "partitionValues", json!({"p": "2024-01-01", "q": "8"})))], "FILE_CHANGED"),
        (vec![again(with_stats(add("old"), json!({"numRecords": 6})))], "FILE_CHANGED"),
        (vec![remove("old"), with(under(add("old"), "v", 1), "size", json!(11))], "FILE_CHANGED"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
}

#[test]
fn commits_that_change_no_data_keep_the_rows() {
    let rows = |path: &str, rows: i64| moved(with_stats(add(path), json!({"numRecords": rows})));
    let both = || vec![moved(remove("old")), moved(under(remove("cut"), "v1", 2))];
    let with_both = |line: Value| {
        let mut lines = both();
        lines.push(line);
        lines
    };
    for (lines, expected) in [
        // 5 rows, and 5 of which 2 are deleted.
        (with_both(rows("new", 8)), "fine"),
        (with_both(rows("new", 10)), "ROWS_NOT_KEPT"),
        (with_both(moved(with(add("new"), "stats", json!(null)))), "fine"),
        (both(), "ROWS_NOT_KEPT"),
        (vec![rows("new", 5)], "ROWS_NOT_KEPT"),
        (vec![moved(add("old"))], "fine"),
        (vec![moved(add("old")), rows("new", 5)], "ROWS_NOT_KEPT"),
        (vec![moved(remove("old")), moved(under(add("old"), "v", 1))], "ROWS_NOT_KEPT"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
}

#[test]
fn deletion_vectors_are_checked_as_far_as_they_can_be_unread() {
    let pair = |stats: Value, vector: Value| {
        vec![remove("old"), with(with_stats(add("old"), stats), "deletionVector", vector)]
    };
    let wide = |rows: i64| json!({"numRecords": rows, "tightBounds": false});
    let bad = |member: &str, value: Value| {
        let mut vector = vector("v", 1);
        vector[member] = value;
        pair(wide(5), vector)
    };
    for (lines, expected) in [
        (pair(wide(5), vector("v", 1)), "fine"),
        (pair(wide(5), vector("v", 5)), "fine"),
        (pair(wide(5), vector("v", 6)), "DELETION_VECTOR_CARDINALITY"),
        (pair(json!({"tightBounds": false}), vector("v", 1)), "DELETION_VECTOR_NUM_RECORDS"),
        (pair(json!({"numRecords": 5}), vector("v", 1)), "DELETION_VECTOR_TIGHT_BOUNDS"),
        (pair(json!({"numRecords": 5, "tightBounds": true}), vector("v", 1)), "DELETION_VECTOR_TIGHT_BOUNDS"),
        (bad("storageType", json!("r")), "DELETION_VECTOR_DESCRIPTOR"),
        (bad("storageType", json!("x")), "DELETION_VECTOR_DESCRIPTOR"),
        (bad("sizeInBytes", json!(0)), "DELETION_VECTOR_DESCRIPTOR"),
        (bad("cardinality", json!(-1)), "DELETION_VECTOR_DESCRIPTOR"),
        (bad("cardinality", json!("1")), "MALFORMED_COMMIT"),
        (bad("sizeInBytes", json!(1.5)), "MALFORMED_COMMIT"),
    ] {
        assert_eq!(reason(&lines), expected, "{lines:?}");
    }
    let off = |lines: &[Value]| judge(lines, &metadata(), false, &live()).err().map(|refusal| refusal.reason.clone());
    assert_eq!(off(&pair(wide(5), vector("v", 1))).as_deref(), Some("DELETION_VECTORS_DISALLOWED"));
    // What is there already may be named again, and removed.
    assert_eq!(off(&[moved(under(add("cut"), "v1", 2))]), None);
    assert_eq!(off(&[under(remove("cut"), "v1", 2)]), None);
    // The creator of a table has no log to look into.
    let candidate = Candidate::parse(&root(), Version(0), text(&[under(add("a"), "v", 1)]).into()).unwrap();
    assert!(check_deletion_vectors(&candidate, true, None).is_ok());
    assert_eq!(check_deletion_vectors(&candidate, false, None).unwrap_err().reason, "DELETION_VECTORS_DISALLOWED");
}

#[test]
fn void_is_no_part_of_arrays_and_maps() {
    let table = |kind: Value| {
        let schema =
            json!({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": true, "metadata": {}}]});
        json!({"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}}})
    };
    let inside = |kind: &str| json!({"type": "struct", "fields": [{"name": "b", "type": kind}]});
    for (kind, expected) in [
        (json!("void"), "fine"),
        (inside("void"), "fine"),
        (json!({"type": "array", "elementType": "void", "containsNull": true}), "VOID_PLACEMENT"),
        (json!({"type": "map", "keyType": "string", "valueType": "void", "valueContainsNull": true}), "VOID_PLACEMENT"),
        (
            json!({"type": "array", "elementType": {"type": "map", "keyType": "void", "valueType": "long"}}),
            "VOID_PLACEMENT",
        ),
        (json!({"type": "array", "elementType": inside("long"), "containsNull": true}), "fine"),
    ] {
        assert_eq!(reason(&[table(kind.clone())]), expected, "{kind}");
    }
}
