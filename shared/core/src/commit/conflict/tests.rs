use serde_json::{Value, json};

use crate::commit::judge::Judgement;
use crate::commit::tests::judging::{Scene, add, append, domain, info, metadata, moved, protocol, reads, remove, txn};
use crate::commit::version_record::Blindness;
use crate::delta::Version;
use crate::ports::IdentityWriters;
use crate::ports::IsolationLevel::{Serializable, WriteSerializable};

const FEATURES: [&str; 4] = ["appendOnly", "invariants", "domainMetadata", "rowTracking"];

/// Files `p=x/a` (ids 0 to 2) and `p=y/b` (ids 10 to 12).
fn table() -> Scene {
    Scene::table(&["p"], &FEATURES, json!({})).with_files(numbered())
}

/// The files, with the row ids that a table of these features has, and the mark.
fn numbered() -> Vec<Value> {
    let file = |path: &str, first: i64, id: i64| {
        let mut line = add(path, first);
        line["add"]["baseRowId"] = json!(id);
        line["add"]["defaultRowCommitVersion"] = json!(0);
        line
    };
    vec![file("p=x/a", 0, 0), file("p=y/b", 10, 3), domain("delta.rowTracking", r#"{"rowIdHighWaterMark":5}"#)]
}

/// A table that does not number its rows.
fn plain(columns: &[&str], properties: Value) -> Scene {
    let path = |name: &str| if columns.is_empty() { name.replace('/', "_") } else { name.to_owned() };
    Scene::table(columns, &[], properties).with_files([add(&path("p=x/a"), 0), add(&path("p=y/b"), 10)])
}

fn new(tag: &str) -> Vec<Value> {
    vec![add(&format!("p=x/{tag}"), 20), append(tag)]
}

fn features_line(more: &[&str], without: &str) -> Value {
    let all: Vec<&str> = FEATURES.iter().chain(more).copied().filter(|name| *name != without).collect();
    protocol(&all)
}

#[tokio::test]
async fn protocols_may_grow_by_what_is_harmless() {
    let upgrade = |line: Value| vec![line, info("UPGRADE PROTOCOL", json!({}))];
    for (winner, expected) in [
        (upgrade(features_line(&["deletionVectors"], "")), "admitted"),
        (
            upgrade(features_line(&["changeDataFeed", "timestampNtz", "v2Checkpoint", "inCommitTimestamp"], "")),
            "admitted",
        ),
        (upgrade(features_line(&["checkConstraints"], "")), "ProtocolChangedException PROTOCOL_CHANGE"),
        (upgrade(features_line(&[], "invariants")), "ProtocolChangedException PROTOCOL_CHANGE"),
        (upgrade(features_line(&["somethingNew"], "")), "UnsupportedTableException UNSUPPORTED_FEATURE"),
        (upgrade(features_line(&["catalogManaged"], "")), "UnsupportedTableException CATALOG_MANAGED"),
        (
            vec![features_line(&["deletionVectors"], ""), info("REORG TABLE UPGRADE UNIFORM", json!({}))],
            "ProtocolChangedException PROTOCOL_CHANGE",
        ),
        (
            upgrade(json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})),
            "ProtocolChangedException PROTOCOL_CHANGE",
        ),
    ] {
        let scene = table().won_by(winner.clone()).candidate(new("c"));
        assert_eq!(scene.outcome().await, expected, "{winner:?}");
    }
}

#[tokio::test]
async fn older_writer_versions_imply_features() {
    let legacy = |writer: i64| json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": writer}});
    let upgrade = |line: Value| vec![line, info("UPGRADE PROTOCOL", json!({}))];
    let listed = |features: &[&str]| json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}});
    for (winner, expected) in [
        (legacy(3), "ProtocolChangedException PROTOCOL_CHANGE"),
        (legacy(4), "ProtocolChangedException PROTOCOL_CHANGE"),
        (listed(&["appendOnly", "invariants"]), "admitted"),
        (listed(&["appendOnly", "invariants", "changeDataFeed"]), "admitted"),
        (listed(&["appendOnly"]), "ProtocolChangedException PROTOCOL_CHANGE"),
    ] {
        let scene = plain(&["p"], json!({})).won_by(upgrade(winner.clone())).candidate(new("c"));
        assert_eq!(scene.outcome().await, expected, "{winner}");
    }
}

#[tokio::test]
async fn two_changes_of_the_protocol_and_an_upgrading_reorg_conflict() {
    let upgrade = vec![features_line(&["deletionVectors"], ""), info("UPGRADE PROTOCOL", json!({}))];
    let scene = table()
        .won_by(upgrade.clone())
        .candidate(vec![features_line(&["changeDataFeed"], ""), info("UPGRADE PROTOCOL", json!({}))]);
    assert_eq!(scene.outcome().await, "ProtocolChangedException PROTOCOL_CHANGE");
    assert_eq!(table().won_by(new("w")).candidate(upgrade.clone()).outcome().await, "admitted");
    let reorg = vec![upgrade[0].clone(), info("REORG", json!({}))];
    let scene = table().won_by(new("w")).candidate(reorg.clone());
    assert_eq!(scene.outcome().await, "ProtocolChangedException PROTOCOL_CHANGE");
    assert_eq!(table().candidate(reorg).outcome().await, "admitted");
}

#[tokio::test]
async fn the_candidate_adopts_harmless_metadata_and_is_compared_with_it() {
    let set = |properties: Value| vec![metadata(&table(), properties), info("SET TBLPROPERTIES", json!({}))];
    let vectors = json!({"delta.enableDeletionVectors": "true"});
    let both = json!({"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"});
    let upgrade = || vec![features_line(&["deletionVectors", "v2Checkpoint"], ""), info("UPGRADE PROTOCOL", json!({}))];
    let conflict = "MetadataChangedException METADATA_CHANGE";
    for (winners, expected) in [
        (vec![upgrade(), set(vectors.clone())], "admitted"),
        (vec![upgrade(), set(vectors.clone()), set(both.clone())], "admitted"),
        // Compared with what was adopted, the vectors are switched off again.
        (vec![upgrade(), set(both.clone()), set(json!({}))], conflict),
        (vec![upgrade(), set(both), set(json!({"delta.enableDeletionVectors": "true"}))], conflict),
        (vec![set(json!({"delta.appendOnly": "true"}))], conflict),
        (vec![set(json!({"mine": "1"}))], conflict),
        // The same once more.
        (vec![set(json!({}))], "admitted"),
    ] {
        let mut scene = table().candidate(new("c"));
        scene.winners = winners.clone();
        assert_eq!(scene.outcome().await, expected, "{winners:?}");
    }
    let mine = vec![metadata(&table(), json!({"mine": "1"})), info("SET TBLPROPERTIES", json!({}))];
    assert_eq!(table().won_by(set(json!({}))).candidate(mine.clone()).outcome().await, conflict);
    assert_eq!(table().won_by(new("w")).candidate(mine).outcome().await, "admitted");
}

#[tokio::test]
async fn a_table_with_an_identity_column_has_no_concurrent_writers() {
    let identity = |mark: i64| {
        let mut scene = plain(&["p"], json!({}));
        scene.creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}});
        let text = scene.creation[1]["metaData"]["schemaString"].as_str().unwrap();
        let column = format!(
            r#""metadata":{{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.highWaterMark":{mark}}}"#
        );
        scene.creation[1]["metaData"]["schemaString"] = json!(text.replacen(r#""metadata":{}"#, &column, 1));
        scene
    };
    let conflict = "MetadataChangedException IDENTITY_COLUMN";
    let scene = identity(0).candidate(new("c"));
    assert_eq!(scene.clone().won_by(new("w")).outcome().await, conflict);
    assert_eq!(scene.clone().won_by(vec![txn("a", 1)]).outcome().await, conflict);
    assert_eq!(scene.outcome().await, "admitted");
    // What inserts do: they move the mark.
    let inserts = |tag: &str, info_more: Value| {
        let mut lines = vec![identity(7).creation[1].clone(), add(&format!("p=x/{tag}"), 20)];
        lines.push(info(
            "WRITE",
            json!({"operationParameters": {"mode": "Append"}, "engineInfo": tag, "tags": info_more}),
        ));
        lines
    };
    let tagged = json!({"delta.identity.schemaUpdate": "true"});
    assert_eq!(identity(0).candidate(inserts("c", json!({}))).outcome().await, "admitted");
    let metadata_change = "MetadataChangedException METADATA_CHANGE";
    for (winner, candidate, by_setting) in [
        (inserts("w", tagged.clone()), new("c"), "admitted"),
        (inserts("w", json!({})), new("c"), metadata_change),
        (inserts("w", json!({"delta.identity.schemaUpdate": "false"})), new("c"), metadata_change),
        (inserts("w", tagged.clone()), inserts("c", tagged), metadata_change),
        (new("w"), new("c"), "admitted"),
    ] {
        let mut scene = identity(0).won_by(winner).candidate(candidate);
        assert_eq!(scene.outcome().await, conflict);
        scene.identity = IdentityWriters::HighWaterMark;
        assert_eq!(scene.outcome().await, by_setting);
    }
    // A mark that goes back.
    let mut back = identity(8).candidate(inserts("c", json!({})));
    assert_eq!(back.outcome().await, "SchemaMismatchException IDENTITY_MARK");
    back.candidate[0] = identity(9).creation[1].clone();
    assert_eq!(back.outcome().await, "admitted");
}

#[tokio::test]
async fn domains_meet_by_name_and_a_replaced_table_loses_those_of_others() {
    let writes =
        |name: &str, text: &str| vec![domain(name, text), info("X", json!({"engineInfo": format!("{name}{text}")}))];
    for (mine, theirs, expected) in [
        ("a", "b", "admitted"),
        ("a", "a", "ConcurrentTransactionException METADATA_DOMAIN"),
        ("delta.rowTracking", "delta.rowTracking", "admitted"),
    ] {
        let text = r#"{"rowIdHighWaterMark":5}"#;
        let mut candidate = writes(mine, text);
        // Byte-identical commits would count as one that landed already.
        candidate[1]["commitInfo"]["engineInfo"] = json!("candidate");
        let scene = table().won_by(writes(theirs, text)).candidate(candidate);
        assert_eq!(scene.outcome().await, expected, "{mine} {theirs}");
    }
    let replace = |operation: &str| vec![metadata(&table(), json!({})), info(operation, json!({"readSet": {"v": 1}}))];
    let scene =
        table().won_by(writes("b", "{\"x\":1}")).won_by(writes("c", "")).candidate(replace("CREATE OR REPLACE TABLE"));
    let rebase = scene.admission().await.rebase;
    let tombstone = |name: &str, text: &str| {
        json!({"domainMetadata": {"domain": name, "configuration": text, "removed": true}}).to_string()
    };
    assert_eq!(rebase.appended, [tombstone("b", "{\"x\":1}"), tombstone("c", "")]);
    let mut gone = domain("b", "");
    gone["domainMetadata"]["removed"] = json!(true);
    let scene = scene.won_by(vec![gone, info("X", json!({}))]);
    assert_eq!(scene.admission().await.rebase.appended, [tombstone("c", "")]);
    let scene = scene.candidate(replace("SET TBLPROPERTIES"));
    assert!(scene.admission().await.rebase.is_empty());
}

#[tokio::test]
async fn applications_that_were_read_or_written_conflict() {
    let with = |line: Value, tag: &str| vec![line, add(&format!("p=x/{tag}"), 20), append(tag)];
    let reads_app = |app: &str| vec![add("p=x/c", 20), info("WRITE", json!({"readSet": {"v": 1, "appIds": [app]}}))];
    for (candidate, expected) in [
        (with(txn("s", 4), "c"), "ConcurrentTransactionException SAME_APPLICATION"),
        (with(txn("s", 2), "c"), "ConcurrentTransactionException SAME_APPLICATION"),
        (with(txn("s", 3), "c"), "ConcurrentTransactionException ALREADY_APPLIED"),
        (with(txn("r", 3), "c"), "admitted"),
        (reads_app("s"), "ConcurrentTransactionException SAME_APPLICATION"),
        (reads_app("r"), "admitted"),
    ] {
        let scene = table().won_by(new("w")).won_by(with(txn("s", 3), "w2")).candidate(candidate.clone());
        assert_eq!(scene.outcome().await, expected, "{candidate:?}");
    }
}

/// Whichever winner brought it, and the advice is not to do it once more.
#[tokio::test]
async fn a_batch_that_a_later_winner_brought_is_called_applied() {
    let with = |version: i64, tag: &str| vec![txn("s", version), add(&format!("p=x/{tag}"), 20), append(tag)];
    let scene = table().won_by(with(4, "w1")).won_by(with(5, "w2")).candidate(with(5, "c"));
    let Judgement::Refuse(refusal) = scene.judge().await else { panic!("it is there already") };
    assert_eq!((refusal.reason.as_str(), refusal.advice.as_str()), ("ALREADY_APPLIED", "nothing: it is in the table"));
}

/// What the table holds already is no winner, and yet it is the same batch.
#[tokio::test]
async fn a_transaction_that_the_table_holds_already_is_refused() {
    let with = |line: Value| vec![line, add("p=x/c", 20), append("c")];
    for (candidate, expected) in [
        (txn("s", 2), "ConcurrentTransactionException SAME_APPLICATION"),
        (txn("s", 3), "ConcurrentTransactionException ALREADY_APPLIED"),
        (txn("s", 4), "admitted"),
        (txn("r", 3), "admitted"),
    ] {
        let scene = table().with_files([txn("s", 3)]);
        assert_eq!(scene.clone().candidate(with(candidate.clone())).outcome().await, expected, "{candidate}");
        let scene = scene.won_by(new("w"));
        assert_eq!(scene.candidate(with(candidate.clone())).outcome().await, expected, "{candidate}");
    }
}

#[tokio::test]
async fn a_statement_about_the_table_reads_rows_only_for_rules_that_are_new() {
    let rule = json!({"delta.constraints.pos": "id > 0"});
    let constrained = Scene::table(&["p"], &["appendOnly", "checkConstraints"], rule.clone());
    let mut more = rule.clone();
    more["owner"] = json!("us");
    let mut other = more.clone();
    other["delta.constraints.small"] = json!("id < 100");
    for (configuration, expected) in [
        (more, "admitted"),
        (json!({"owner": "us"}), "admitted"),
        (other, "ConcurrentAppendException WHOLE_TABLE_READ"),
    ] {
        let statement = vec![metadata(&constrained, configuration.clone()), info("SET TBLPROPERTIES", json!({}))];
        let scene = constrained.clone().won_by(new("w")).candidate(statement);
        assert_eq!(scene.outcome().await, expected, "{configuration}");
    }
}

#[tokio::test]
async fn added_files_count_where_rows_are_new_and_may_have_been_read() {
    let declared = |value: &str| vec![remove("p=y/b"), add("p=y/c", 10), info("UPDATE", reads("p", json!(value)))];
    let reading = |path: &str| {
        vec![add(path, 20), info("WRITE", json!({"isBlindAppend": false, "operationParameters": {"mode": "Append"}}))]
    };
    let optimized = |from: &str, to: &str| vec![moved(remove(from)), moved(add(to, 0)), info("OPTIMIZE", json!({}))];
    let append = "ConcurrentAppendException WITH_PARTITION_HINT";
    for (winner, candidate, level, expected) in [
        (new("w"), declared("x"), Serializable, append),
        (new("w"), declared("y"), Serializable, "admitted"),
        (new("w"), declared("x"), WriteSerializable, "admitted"),
        (reading("p=x/w"), declared("x"), WriteSerializable, append),
        (reading("p=x/w"), declared("y"), WriteSerializable, "admitted"),
        // Moved rows are no new ones.
        (
            optimized("p=x/a", "p=x/w"),
            reading("p=x/c"),
            WriteSerializable,
            "ConcurrentDeleteReadException WHOLE_TABLE_READ",
        ),
        (optimized("p=x/a", "p=x/w"), declared("y"), Serializable, "admitted"),
        // A rearrangement does not care.
        (new("w"), optimized("p=x/a", "p=x/c"), Serializable, "admitted"),
        // Nor does one who read nothing.
        (reading("p=x/w"), new("c"), Serializable, "admitted"),
        (
            new("same"),
            {
                let mut same = new("same");
                same.push(txn("s", 1));
                same
            },
            Serializable,
            "ConcurrentWriteException FILE_ALREADY_ADDED",
        ),
    ] {
        let scene = plain(&["p"], json!({})).won_by(winner.clone()).candidate(candidate.clone()).under(level);
        assert_eq!(scene.outcome().await, expected, "{candidate:?} after {winner:?} under {level:?}");
    }
}

#[tokio::test]
async fn a_commit_that_brings_metadata_waits_for_blind_appends_too() {
    let scene = plain(&["p"], json!({}));
    let candidate = vec![
        metadata(&scene, json!({"mine": "1"})),
        info("REPLACE TABLE", json!({"readSet": {"v": 1, "wholeTable": true}})),
    ];
    let scene = scene.won_by(new("w")).candidate(candidate).under(WriteSerializable);
    assert_eq!(scene.outcome().await, "ConcurrentAppendException WHOLE_TABLE_READ");
}

#[tokio::test]
async fn recorded_blindness_counts_unless_the_actions_contradict_it() {
    let whole = vec![add("p=x/c", 30), info("MERGE", json!({}))];
    let unmarked = vec![add("p=x/w", 20), info("COPY", json!({}))];
    let update = vec![remove("p=x/a"), add("p=x/w", 0), info("UPDATE", json!({}))];
    let conflict = "ConcurrentAppendException WHOLE_TABLE_READ";
    for (winner, recorded, expected) in [
        (unmarked.clone(), None, conflict),
        (unmarked.clone(), Some(Blindness::Blind), "admitted"),
        (unmarked, Some(Blindness::Reading), conflict),
        (new("w"), None, "admitted"),
        (new("w"), Some(Blindness::Reading), conflict),
        (update, Some(Blindness::Blind), conflict),
    ] {
        let mut scene = plain(&["p"], json!({})).won_by(winner.clone()).candidate(whole.clone());
        scene.blindness = recorded.map(|recorded| (Version(1), recorded)).into_iter().collect();
        assert_eq!(scene.outcome().await, expected, "{winner:?} {recorded:?}");
    }
}

#[tokio::test]
async fn removed_files_conflict_with_who_read_them() {
    let count = std::cell::Cell::new(0);
    let delete = |path: &str, mut declared: Value| {
        // Byte-identical commits would count as one that landed already.
        count.set(count.get() + 1);
        declared["engineInfo"] = json!(count.get().to_string());
        vec![remove(path), info("DELETE", declared)]
    };
    let read = |reason: &str| format!("ConcurrentDeleteReadException {reason}");
    for (winner, candidate, expected) in [
        (delete("p=x/a", reads("p", json!("x"))), delete("p=x/a", reads("p", json!("x"))), read("SAME_FILE")),
        (delete("p=x/a", json!({})), delete("p=y/b", json!({})), read("WHOLE_TABLE_READ")),
        (delete("p=x/a", json!({})), delete("p=y/b", reads("p", json!("y"))), "admitted".into()),
        (
            delete("p=x/a", json!({})),
            vec![add("p=y/c", 1), info("MERGE", reads("p", json!("x")))],
            read("WITH_PARTITION_HINT"),
        ),
        (delete("p=x/a", json!({})), new("c"), "admitted".into()),
        (
            delete("p=x/a", json!({})),
            vec![add("p=y/c", 1), info("MERGE", json!({"readSet": {"v": 1, "files": [{"path": "p=x/a"}]}}))],
            read("SAME_FILE"),
        ),
    ] {
        let scene = plain(&["p"], json!({})).won_by(winner.clone()).candidate(candidate.clone());
        assert_eq!(scene.outcome().await, expected, "{candidate:?} after {winner:?}");
    }
}

#[tokio::test]
async fn what_winners_brought_and_took_away_again_was_never_read() {
    let update = |from: &str, to: &str| vec![remove(from), add(to, 20), info("UPDATE", json!({}))];
    let delete = |path: &str| vec![remove(path), info("DELETE", json!({}))];
    let whole = vec![add("p=y/c", 1), info("MERGE", json!({}))];
    let scene = plain(&["p"], json!({})).candidate(whole);
    assert_eq!(scene.clone().won_by(new("w")).won_by(delete("p=x/w")).outcome().await, "admitted");
    let scene_2 = scene.clone().won_by(new("w")).won_by(update("p=x/w", "p=x/w2"));
    assert_eq!(scene_2.outcome().await, "ConcurrentAppendException WHOLE_TABLE_READ");
    // Refreshed statistics make no new file of an old one.
    let refresh = vec![moved(add("p=x/a", 0)), info("COMPUTE STATS", json!({}))];
    let scene = scene.won_by(refresh).won_by(delete("p=x/a"));
    assert_eq!(scene.outcome().await, "ConcurrentDeleteReadException WHOLE_TABLE_READ");
}

#[tokio::test]
async fn rearrangements_meet_in_what_they_remove() {
    let optimize = |from: &str, to: &str, by: &str| {
        vec![moved(remove(from)), moved(add(to, 0)), info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": by}}))]
    };
    let delete = vec![remove("p=x/a"), info("DELETE", json!({}))];
    let (read, twice) = ("ConcurrentDeleteReadException SAME_FILE", "ConcurrentDeleteDeleteException SAME_FILE");
    let superseded = "superseded SAME_FILE";
    let vectors = || {
        Scene::table(&["p"], &["deletionVectors"], json!({"delta.enableDeletionVectors": "true"}))
            .with_files([add("p=x/a", 0), add("p=y/b", 10)])
    };
    for (scene, winner, candidate, expected) in [
        (plain(&["p"], json!({})), optimize("p=x/a", "p=x/w", "[]"), optimize("p=x/a", "p=x/c", "[]"), twice),
        (plain(&["p"], json!({})), optimize("p=y/b", "p=y/w", "[]"), optimize("p=x/a", "p=x/c", "[]"), "admitted"),
        (plain(&["p"], json!({})), delete.clone(), optimize("p=x/a", "p=x/c", "[]"), read),
        (vectors(), optimize("p=x/a", "p=x/w", "[]"), optimize("p=x/a", "p=x/c", "[]"), superseded),
        (vectors(), delete.clone(), optimize("p=x/a", "p=x/c", "[]"), superseded),
        (vectors(), delete.clone(), optimize("p=y/b", "p=y/c", "[]"), "admitted"),
        (vectors(), optimize("p=x/a", "p=x/w", "[\"id\"]"), optimize("p=x/a", "p=x/c", "[]"), twice),
        (vectors(), optimize("p=x/a", "p=x/w", "[]"), optimize("p=x/a", "p=x/c", "[\"id\"]"), twice),
        (vectors(), delete, optimize("p=x/a", "p=x/c", "[\"id\"]"), read),
    ] {
        let scene = scene.won_by(winner.clone()).candidate(candidate.clone());
        assert_eq!(scene.outcome().await, expected, "{candidate:?} after {winner:?}");
    }
}

#[tokio::test]
async fn a_refusal_names_who_won_and_what_to_do() {
    let scene = plain(&["p"], json!({}))
        .won_by(new("w"))
        .won_by(vec![remove("p=x/a"), info("DELETE", json!({}))])
        .candidate(vec![remove("p=x/a"), info("DELETE", json!({"engineInfo": "another"}))]);
    let Judgement::Refuse(refusal) = scene.judge().await else { panic!("{}", scene.outcome().await) };
    let winner = refusal.winner.as_ref().unwrap();
    assert_eq!((winner.version, winner.operation.as_deref()), (2, Some("DELETE")));
    assert_eq!(refusal.place.file.as_deref(), Some("p=x/a"));
    assert_eq!(refusal.error_class, "DELTA_CONCURRENT_DELETE_READ");
    assert!(refusal.advice.contains("read the table again"), "{}", refusal.advice);
    assert!(refusal.message.contains("version 2"), "{}", refusal.message);
}

#[tokio::test]
async fn our_own_commit_is_found_wherever_it_landed() {
    let mut mine = new("c");
    mine[1]["commitInfo"]["txnId"] = json!("t");
    let scene = plain(&["p"], json!({})).won_by(new("w")).won_by(mine.clone()).won_by(new("w2"));
    assert_eq!(scene.clone().candidate(mine.clone()).outcome().await, "landed 2");
    // The same transaction, written by somebody who stamped it.
    let mut stamped = mine.clone();
    stamped[1]["commitInfo"]["inCommitTimestamp"] = json!(7);
    assert_eq!(scene.clone().candidate(stamped).outcome().await, "landed 2");
    // And by somebody who numbered its rows.
    let mut numbered = mine.clone();
    numbered[0]["add"]["baseRowId"] = json!(7);
    numbered.push(domain("delta.rowTracking", "{}"));
    assert_eq!(scene.clone().candidate(numbered).outcome().await, "landed 2");
    // At another time.
    let mut later = mine.clone();
    later[0]["add"]["modificationTime"] = json!(77);
    assert_eq!(scene.clone().candidate(later).outcome().await, "landed 2");
    let removing = |ms: i64| {
        let mut lines = vec![remove("p=x/a"), info("DELETE", json!({"txnId": "r", "timestamp": ms}))];
        lines[0]["remove"]["deletionTimestamp"] = json!(ms);
        lines
    };
    let removed = plain(&["p"], json!({})).won_by(removing(1)).candidate(removing(2));
    assert_eq!(removed.outcome().await, "landed 1");
    let mut other = new("other");
    other[1]["commitInfo"]["txnId"] = json!("t");
    assert_eq!(scene.candidate(other).outcome().await, "ConcurrentTransactionException TXN_ID_REUSED");
}

#[tokio::test]
async fn rows_that_were_read_are_watched_where_they_went() {
    let vectors = Scene::table(&["p"], &["deletionVectors"], json!({"delta.enableDeletionVectors": "true"}))
        .with_files([add("p=x/a", 0), add("p=y/b", 10)]);
    let moves = |from: &str, to: &str| vec![moved(remove(from)), moved(add(to, 0)), info("OPTIMIZE", json!({}))];
    let delete = |path: &str| vec![remove(path), info("DELETE", json!({}))];
    let reader = |p: &str| vec![add("p=y/c", 30), info("MERGE", reads("p", json!(p)))];
    let once = vectors.clone().won_by(moves("p=x/a", "p=x/w"));
    let twice = once.clone().won_by(moves("p=x/w", "p=x/w2"));
    let conflict = "ConcurrentDeleteReadException SAME_FILE";
    for (scene, p, expected, carries_over) in [
        (once.clone(), "x", "admitted", true),
        (once.clone(), "y", "admitted", false),
        (twice.clone(), "x", "admitted", true),
        (once.clone().won_by(delete("p=x/w")), "x", conflict, false),
        (twice.won_by(delete("p=x/w2")), "x", conflict, false),
        (once.won_by(delete("p=x/w")), "y", "admitted", false),
    ] {
        let scene = scene.candidate(reader(p));
        assert_eq!(scene.outcome().await, expected, "{:?}", scene.winners);
        if let Judgement::Admit(admission) = scene.judge().await {
            assert_eq!(admission.carries_over, carries_over, "{:?}", scene.winners);
        }
    }
}

#[tokio::test]
async fn what_later_winners_are_compared_with_is_said() {
    let property = vec![metadata(&table(), json!({})), info("SET TBLPROPERTIES", json!({}))];
    let plain = plain(&["p"], json!({}));
    for (scene, carries_over) in [
        (table().won_by(property), true),
        // Its rows are numbered anew.
        (table().won_by(new("w")), true),
        (plain.clone().won_by(new("w")), false),
        (plain, false),
    ] {
        assert_eq!(scene.candidate(new("c")).admission().await.carries_over, carries_over);
    }
}

/// What a new constraint says of all rows, the statement that adds it must have read of all rows.
#[tokio::test]
async fn a_constraint_does_not_follow_rows_that_it_was_not_held_against() {
    let table =
        || Scene::table(&[], &["checkConstraints", "appendOnly", "invariants"], json!({})).with_files([add("a", 0)]);
    let constraint = || {
        let line = metadata(&table(), json!({"delta.constraints.pos": "id > 0"}));
        vec![line, info("ADD CONSTRAINT", json!({"operationParameters": {"name": "pos", "expr": "id > 0"}}))]
    };
    let append = || vec![add("w", -5), append("w")];
    let update = || vec![remove("a"), add("w", -9), info("UPDATE", json!({}))];
    let conflict = "ConcurrentAppendException WHOLE_TABLE_READ";
    for level in [Serializable, WriteSerializable] {
        for winner in [append(), update()] {
            let scene = table().under(level).won_by(winner.clone()).candidate(constraint());
            assert_eq!(scene.outcome().await, conflict, "{level:?} {winner:?}");
        }
        let property = vec![metadata(&table(), json!({"mine": "1"})), info("SET TBLPROPERTIES", json!({}))];
        let scene = table().under(level).won_by(append()).candidate(property);
        assert_eq!(scene.outcome().await, "admitted", "{level:?}");
        assert_eq!(table().under(level).candidate(constraint()).outcome().await, "admitted");
    }
    // What nobody knows may have read everything.
    let unknown = vec![txn("a", 1), info("SOMETHING UNKNOWN", json!({}))];
    let scene = table().under(Serializable).won_by(append()).candidate(unknown);
    assert_eq!(scene.outcome().await, conflict);
}

/// A winner whose declaration nobody understands may have read anything.
#[tokio::test]
async fn a_winner_with_a_declaration_that_is_not_understood_is_not_blind() {
    let table = || Scene::table(&[], &[], json!({})).with_files([add("a", 0)]).under(WriteSerializable);
    let delete = || vec![remove("a"), info("DELETE", json!({}))];
    for (set, expected) in [
        (json!({"v": 1}), "admitted"),
        (json!({"v": 1, "whole_table": true}), "ConcurrentAppendException WHOLE_TABLE_READ"),
        (json!({"v": 2}), "ConcurrentAppendException WHOLE_TABLE_READ"),
    ] {
        let winner = vec![add("w", 5), info("WRITE", json!({"isBlindAppend": true, "readSet": set}))];
        assert_eq!(table().won_by(winner).candidate(delete()).outcome().await, expected, "{set}");
    }
}
