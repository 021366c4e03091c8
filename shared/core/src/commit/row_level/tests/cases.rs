//! One case of each rule, from a staged commit to the rows of the table.

use serde_json::{Value, json};

use crate::commit::judge::Judgement;
use crate::commit::rebase::render;
use crate::commit::row_level::Match;
use crate::commit::tests::engine::{Engine, Statement, removed};
use crate::commit::tests::judging::{Scene, add, deleted, domain, info, moved, outcome, protocol, reads, remove};
use crate::commit::tests::kit::{Kit, short};
use crate::delta::AddFile;
use crate::delta::testkit::text;
use crate::ports::IsolationLevel::{self, Serializable, WriteSerializable};
use crate::store::{ObjectKey, Objects, ReadObjects};

/// Ids 0 to 7 in one file, at version 1.
async fn one_file() -> Engine {
    let engine = Engine { kit: Kit::with_vectors(json!({"delta.isolationLevel": "Serializable"})).await };
    let lines = engine.execute(&Statement::Append((0..8).collect()), &[], "base").await;
    assert_eq!(short(&engine.kit.propose(1, 1, &lines).await), "committed 1");
    engine
}

/// Stages what each statement makes of version 1, one after the other.
async fn propose_all(engine: &Engine, statements: &[Statement]) -> Vec<String> {
    let files = engine.read(1).await;
    let mut answers = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        let lines = engine.execute(statement, &files, &format!("s{index}")).await;
        let verdict = engine.kit.propose(2, index as u128 + 2, &lines).await;
        answers.push(short(&verdict));
    }
    answers
}

async fn logged(engine: &Engine, version: i64) -> Vec<Value> {
    let bytes = engine.kit.table.version(version).await.unwrap();
    std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn find<'a>(lines: &'a [Value], action: &str, path: &str) -> &'a Value {
    lines.iter().map(|line| &line[action]).find(|found| found["path"] == path).unwrap()
}

#[tokio::test]
async fn the_winners_entry_is_removed_and_both_sides_rows_are_deleted() {
    let engine = one_file().await;
    let files = engine.read(1).await;
    let first = engine.execute(&Statement::Delete(1, 2), &files, "b").await;
    let second = engine.execute(&Statement::Update(4, 4), &files, "c").await;
    engine.kit.propose(2, 2, &first).await;
    let staged = engine.kit.stage(2, 3, &second).await;
    let before = engine.kit.table.world.objects.object_usage();
    let verdict = engine.kit.judge(&staged).await;
    assert_eq!(short(&verdict), "committed 3");
    let usage = engine.kit.table.world.objects.object_usage().since(&before);
    // Staged object, the footer of the new image, the winner's vector, its own vector twice: to merge it, and as every new
    // vector is held against what is said of it; the ids of the rows that the winner deleted (the footer is remembered).
    assert_eq!((usage.gets, usage.lists, usage.heads), (6, 1, 1), "{usage:?}");
    // The vectors, the changed commit, the version.
    assert_eq!(usage.puts, 3, "{usage:?}");
    let (winner, published) = (logged(&engine, 2).await, logged(&engine, 3).await);
    let (gone, new) = (find(&published, "remove", "base.parquet"), find(&published, "add", "base.parquet"));
    assert_eq!(gone["deletionVector"], find(&winner, "add", "base.parquet")["deletionVector"]);
    assert_eq!((&gone["size"], &gone["dataChange"]), (&new["size"], &json!(true)));
    assert!(gone["deletionTimestamp"].as_i64().unwrap() > 1);
    assert_eq!(new["deletionVector"]["cardinality"], 3);
    let stats: Value = serde_json::from_str(new["stats"].as_str().unwrap()).unwrap();
    assert_eq!((&stats["numRecords"], &stats["tightBounds"]), (&json!(8), &json!(false)));
    let tags = &published.last().unwrap()["commitInfo"]["tags"];
    assert_eq!(tags["lakewarden.readVersion"], "1");
    assert!(tags["lakewarden.mergedFiles"].as_str().unwrap().contains("base.parquet"), "{tags}");
    let expected = [(0, 1), (3, 1), (4, 3), (5, 1), (6, 1), (7, 1)].into_iter().collect();
    assert_eq!(engine.rows().await, expected);
}

/// It is published with other rows than it was proposed with; whoever did not hear of it proposes the same once more, at
/// another time.
#[tokio::test]
async fn a_retry_of_a_merged_commit_is_told_that_it_landed() {
    let engine = one_file().await;
    let files = engine.read(1).await;
    let first = engine.execute(&Statement::Delete(1, 2), &files, "b").await;
    let mut second = engine.execute(&Statement::Update(4, 4), &files, "c").await;
    second.last_mut().unwrap()["commitInfo"]["txnId"] = json!("t");
    assert_eq!(short(&engine.kit.propose(2, 2, &first).await), "committed 2");
    assert_eq!(short(&engine.kit.propose(2, 3, &second).await), "committed 3");
    let rows = engine.rows().await;
    let mut again = second.clone();
    for line in &mut again {
        for (action, member) in
            [("commitInfo", "timestamp"), ("remove", "deletionTimestamp"), ("add", "modificationTime")]
        {
            if !line[action].is_null() {
                line[action][member] = json!(77);
            }
        }
    }
    again.reverse();
    assert_eq!(short(&engine.kit.propose(2, 4, &again).await), "committed 3");
    assert_eq!(engine.rows().await, rows);
    // The same transaction with another vector is another one.
    let mut other = engine.execute(&Statement::Update(5, 5), &files, "e").await;
    other.last_mut().unwrap()["commitInfo"]["txnId"] = json!("t");
    let verdict = engine.kit.propose(2, 5, &other).await;
    assert_eq!(short(&verdict), "rejected ConcurrentTransactionException TXN_ID_REUSED");
    // Nothing is said where nobody can ask for it.
    let plain = engine.execute(&Statement::Delete(7, 7), &files, "d").await;
    assert_eq!(short(&engine.kit.propose(2, 6, &plain).await), "committed 4");
    for (version, is_said) in [(3, true), (4, false)] {
        let lines = logged(&engine, version).await;
        let tags = &lines.last().unwrap()["commitInfo"]["tags"];
        assert_eq!(tags.get("lakewarden.actions").is_some(), is_said, "{tags}");
    }
}

#[tokio::test]
async fn rows_that_both_changed_are_counted_and_named() {
    let engine = one_file().await;
    let files = engine.read(1).await;
    for (index, won) in [Statement::Delete(1, 3), Statement::Update(4, 5)].into_iter().enumerate() {
        let read = engine.kit.versions().len() as i64 - 1;
        let files_now = engine.read(read).await;
        let tag = format!("w{index}");
        let winner = engine.execute(&won, &files_now, &tag).await;
        engine.kit.propose(read + 1, 10 + index as u128, &winner).await;
    }
    for (id, statement, exception, count, sample) in [
        (20, Statement::Update(2, 3), "ConcurrentDeleteReadException", 2, json!([2, 3])),
        (21, Statement::Delete(5, 6), "ConcurrentAppendException", 1, json!([5])),
    ] {
        let lines = engine.execute(&statement, &files, &format!("c{id}")).await;
        let verdict = engine.kit.propose(2, id, &lines).await;
        assert_eq!(short(&verdict), format!("rejected {exception} ROW_LEVEL_CHANGES"), "{statement:?}");
        let json = verdict.to_json();
        let rows = &json["same_rows"][0];
        assert_eq!((&rows["file"], &rows["count"]), (&json!("base.parquet"), &json!(count)), "{json}");
        assert_eq!(rows["sample"], sample);
    }
}

#[tokio::test]
async fn winners_are_merged_one_by_one_and_each_is_held_against_the_original_rows() {
    let engine = one_file().await;
    let statements = [
        Statement::Delete(0, 0),
        Statement::Update(2, 2),
        Statement::Delete(4, 5),
        Statement::Delete(7, 7),
        // The first winner's row.
        Statement::Update(0, 1),
    ];
    let answers = propose_all(&engine, &statements).await;
    assert_eq!(answers[..4], ["committed 2", "committed 3", "committed 4", "committed 5"]);
    assert_eq!(answers[4], "rejected ConcurrentDeleteReadException ROW_LEVEL_CHANGES");
    let expected = [(1, 1), (2, 3), (3, 1), (6, 1)].into_iter().collect();
    assert_eq!(engine.rows().await, expected);
}

#[tokio::test]
async fn a_file_of_which_nothing_is_left_is_only_removed() {
    let engine = one_file().await;
    let answers = propose_all(&engine, &[Statement::Delete(0, 3), Statement::Delete(4, 7)]).await;
    assert_eq!(answers, ["committed 2", "committed 3"]);
    assert!(logged(&engine, 3).await.iter().all(|line| line["add"].is_null()));
    assert!(engine.rows().await.is_empty());
}

/// Two statements that read each other's rows and write their own: neither may follow the other.
#[tokio::test]
async fn write_skew_is_refused_under_every_level() {
    for level in [Serializable, WriteSerializable] {
        // Everybody off duty but one: each of two reads both rows and takes out one. What the writer says of itself, or
        // does not say, changes nothing.
        for flag in [Value::Null, json!(true), json!(false)] {
            for operation in ["DELETE", "UPDATE", "MERGE", "REFRESH"] {
                let both = json!({"readSet": {"v": 1, "matchedEqualsWritten": flag,
                    "predicates": [{"op": "in", "col": ["id"], "values": [0, 1]}]}});
                let lines = |row: u64| vec![remove("a"), deleted(add("a", 0), [row]), info(operation, both.clone())];
                let skew = vectors().under(level).won_by(lines(0)).candidate(lines(1));
                let expected = "ConcurrentDeleteReadException SAME_FILE";
                assert_eq!(skew.outcome().await, expected, "{level:?} {operation} {flag}");
            }
            // The rows lie in two files.
            let both = json!({"readSet": {"v": 1, "matchedEqualsWritten": flag,
                "predicates": [{"op": "in", "col": ["id"], "values": [0, 4]}]}});
            let lines = |path: &str, first: i64| {
                vec![remove(path), deleted(add(path, first), [0]), info("UPDATE", both.clone())]
            };
            let scene = || vectors().with_files([add("b", 4)]).under(level).candidate(lines("b", 4));
            let found = scene().won_by(lines("a", 0)).outcome().await;
            assert_eq!(found, "ConcurrentDeleteReadException WITHOUT_HINT", "{level:?} {flag}");
            // The winner rewrites or drops the other file.
            for lost in
                [vec![remove("a"), info("DELETE", json!({}))], vec![remove("a"), add("w", 1), info("X", json!({}))]]
            {
                let mut scene = scene().won_by(lost);
                scene.matches.insert("wh/t/w".to_owned(), Match::No);
                let found = scene.outcome().await;
                assert_eq!(found, "ConcurrentDeleteReadException WITHOUT_HINT", "{level:?} {flag}");
            }
        }
        // Black becomes white while white becomes black: the new images are what the other one looked for.
        let mut exchange = vectors()
            .under(level)
            .won_by(vec![remove("a"), deleted(add("a", 0), [0]), add("w", 1), info("UPDATE", reads("id", json!(0)))])
            .candidate(vec![
                remove("a"),
                deleted(add("a", 0), [1]),
                add("c", 0),
                info("UPDATE", reads("id", json!(1))),
            ]);
        exchange.matches.insert("wh/t/w".to_owned(), Match::Row(0, "id=1".to_owned()));
        assert_eq!(exchange.outcome().await, "ConcurrentAppendException WITHOUT_HINT", "{level:?}");
        // Both insert what they did not find.
        let absent = json!({"readSet": {"v": 1, "matchedEqualsWritten": true,
            "predicates": [{"op": "=", "col": ["id"], "value": 9}]}});
        let mut twice = vectors()
            .under(level)
            .won_by(vec![add("w", 9), info("MERGE", absent.clone())])
            .candidate(vec![add("c", 9), info("MERGE", absent)]);
        twice.matches.insert("wh/t/w".to_owned(), Match::Row(0, "id=9".to_owned()));
        assert_eq!(twice.outcome().await, "ConcurrentAppendException WITHOUT_HINT", "{level:?}");
    }
}

/// Engines record the condition alone: whether they wrote what it selects is asked of the rows that others took.
#[tokio::test]
async fn a_recorded_condition_that_selects_more_than_was_written_is_found_out() {
    for (predicate, expected) in [
        ("id < 9", "rejected ConcurrentDeleteReadException SAME_FILE"),
        ("id = 4", "committed 3"),
        // Between what the winner took: bounds do not tell, the rows do.
        ("id > 1 AND id < 6", "committed 3"),
    ] {
        let engine = one_file().await;
        let files = engine.read(1).await;
        let first = engine.execute(&Statement::Delete(0, 1), &files, "b").await;
        let mut second = engine.execute(&Statement::Update(4, 4), &files, "c").await;
        let info = &mut second.last_mut().unwrap()["commitInfo"];
        info.as_object_mut().unwrap().remove("readSet");
        info["operationParameters"] = json!({ "predicate": predicate });
        assert_eq!(short(&engine.kit.propose(2, 2, &first).await), "committed 2");
        let verdict = engine.kit.propose(2, 3, &second).await;
        assert_eq!(short(&verdict), expected, "{predicate}");
        if let Some(refusal) = verdict.refusal() {
            let why = refusal.more.join(" ");
            assert!(why.contains("version 2 took row 0 (id=0) of base.parquet"), "{why}");
        }
    }
}

/// Bounds need only hold for rows that are left: those of the winner say nothing of what it deleted.
#[tokio::test]
async fn bounds_that_the_winner_narrowed_hide_no_row_that_it_took() {
    let narrow = |path: &str, first: i64| {
        let mut line = deleted(add(path, first), [0]);
        let stats = json!({"numRecords": 3, "minValues": {"id": first + 1}, "maxValues": {"id": first + 2},
            "nullCount": {"id": 0}, "tightBounds": false});
        line["add"]["stats"] = json!(stats.to_string());
        line
    };
    let both = || json!({"readSet": {"v": 1, "predicates": [{"op": "in", "col": ["id"], "values": [0, 4]}]}});
    let mut scene =
        vectors().with_files([add("b", 4)]).won_by(vec![remove("a"), narrow("a", 0), info("DELETE", both())]);
    scene.ids.insert("wh/t/a".to_owned(), vec![0, 1, 2]);
    for (path, first, row, reason) in [("a", 0, 1, "SAME_FILE"), ("b", 4, 0, "WITHOUT_HINT")] {
        let lines = vec![remove(path), deleted(add(path, first), [row]), info("DELETE", both())];
        let found = scene.clone().candidate(lines).outcome().await;
        assert_eq!(found, format!("ConcurrentDeleteReadException {reason}"), "{path}");
    }
}

/// Where the file that a winner took rows of cannot be read, or not within the budget, nobody knows what was read of it.
#[tokio::test]
async fn rows_that_cannot_be_looked_at_are_not_taken_for_unread() {
    let engine = one_file().await;
    let files = engine.read(1).await;
    let first = engine.execute(&Statement::Delete(0, 1), &files, "b").await;
    let second = engine.execute(&Statement::Delete(4, 4), &files, "c").await;
    assert_eq!(short(&engine.kit.propose(2, 2, &first).await), "committed 2");
    let at = ObjectKey::new("lake", "wh/t/base.parquet");
    let size = engine.kit.table.get(&at).await.unwrap().len();
    engine.kit.table.world.objects.put(&at, vec![0; size].into(), &Default::default()).await.unwrap();
    let verdict = engine.kit.propose(2, 3, &second).await;
    assert_eq!(short(&verdict), "rejected ConcurrentDeleteReadException SAME_FILE");
    assert!(verdict.refusal().unwrap().more[0].contains("cannot be told"), "{verdict:?}");
}

/// File `a` with ids 0 to 2.
fn vectors() -> Scene {
    let properties = json!({"delta.enableDeletionVectors": "true"});
    Scene::table(&[], &["deletionVectors", "appendOnly", "invariants"], properties).with_files([add("a", 0)])
}

fn pair(operation: &str, rows: &[u64], more: Value) -> Vec<Value> {
    vec![remove("a"), deleted(add("a", 0), rows.iter().copied()), info(operation, more)]
}

async fn judged(winner: Vec<Value>, candidate: Vec<Value>, level: IsolationLevel) -> String {
    vectors().under(level).won_by(winner).candidate(candidate).outcome().await
}

#[tokio::test]
async fn statements_that_rows_say_nothing_of_are_judged_by_files() {
    let declared = |predicate: Value| json!({"readSet": {"v": 1, "predicates": [predicate]}});
    let by_id = || reads("id", json!(0));
    let merge = |flag: Value, clauses: Value| {
        json!({"readSet": {"v": 1, "matchedEqualsWritten": flag, "predicates": [{"op": "=", "col": ["id"], "value": 0}]},
            "operationParameters": clauses})
    };
    let by_file = "ConcurrentDeleteReadException SAME_FILE";
    for (operation, more, expected) in [
        ("DELETE", by_id(), "admitted"),
        ("UPDATE", by_id(), "admitted"),
        // Of an operation that is not known nothing is assumed, unless the writer says it.
        ("REFRESH", by_id(), by_file),
        ("REFRESH", merge(json!(true), json!({})), "admitted"),
        ("UPDATE", merge(json!(false), json!({})), by_file),
        ("MERGE", merge(json!(true), json!({})), "admitted"),
        ("MERGE", merge(json!(false), json!({})), by_file),
        ("MERGE", by_id(), by_file),
        // A clause takes every match.
        ("MERGE", merge(Value::Null, json!({"matchedPredicates": "[{\"actionType\":\"delete\"}]"})), "admitted"),
        (
            "MERGE",
            merge(Value::Null, json!({"matchedPredicates": "[{\"predicate\":\"x\",\"actionType\":\"delete\"}]"})),
            by_file,
        ),
        // No plain function of the row's own columns.
        ("DELETE", declared(json!({"op": "rand"})), by_file),
        ("DELETE", declared(json!({"op": "=", "col": ["nope"], "value": 1})), by_file),
        ("DELETE", json!({"readSet": {"v": 1, "wholeTable": true}}), by_file),
        ("DELETE", json!({}), by_file),
        ("DELETE", json!({"operationParameters": {"predicate": "id = (SELECT max(id) FROM t)"}}), by_file),
        ("DELETE", json!({"operationParameters": {"predicate": "id = 0"}}), "admitted"),
    ] {
        let winner = pair("DELETE", &[1], reads("id", json!(1)));
        let found = judged(winner, pair(operation, &[0], more.clone()), Serializable).await;
        assert_eq!(found, expected, "{operation} {more}");
    }
}

#[tokio::test]
async fn the_table_says_whether_rows_count() {
    for (setting, columns, expected) in [
        ("off", vec![], "ConcurrentDeleteReadException SAME_FILE"),
        ("", vec!["p"], "ConcurrentDeleteReadException SAME_FILE"),
        ("partitioned", vec!["p"], "admitted"),
        ("partitioned", vec![], "admitted"),
    ] {
        let properties = json!({"delta.enableDeletionVectors": "true", "lakewarden.rowLevelConcurrency": setting});
        let path = if columns.is_empty() { "a" } else { "p=x/a" };
        let lines =
            |row: u64| vec![remove(path), deleted(add(path, 0), [row]), info("DELETE", reads("id", json!(row)))];
        let scene = Scene::table(&columns, &["deletionVectors"], properties)
            .with_files([add(path, 0)])
            .won_by(lines(0))
            .candidate(lines(1));
        assert_eq!(scene.outcome().await, expected, "{setting} {columns:?}");
    }
}

#[tokio::test]
async fn files_that_were_merely_scanned_do_not_matter_to_what_wrote_all_that_it_matched() {
    let scene = || vectors().with_files([add("b", 0)]);
    let named = |flag: Value| {
        json!({"readSet": {"v": 1, "matchedEqualsWritten": flag, "files": [{"path": "b"}],
            "predicates": [{"op": "=", "col": ["id"], "value": 0}]}})
    };
    let winner = || vec![remove("b"), deleted(add("b", 0), [1]), info("DELETE", reads("id", json!(1)))];
    let inserts = json!({"readSet": reads("id", json!(0))["readSet"], "operationParameters": {
        "matchedPredicates": "[{\"actionType\":\"delete\"}]", "notMatchedPredicates": "[{\"actionType\":\"insert\"}]",
        "notMatchedBySourcePredicates": "[]"}});
    let deletes = json!({"readSet": reads("id", json!(0))["readSet"], "operationParameters": {
        "matchedPredicates": "[{\"actionType\":\"delete\"}]", "notMatchedPredicates": "[]",
        "notMatchedBySourcePredicates": "[]"}});
    for (operation, more, expected) in [
        ("DELETE", reads("id", json!(0)), "admitted"),
        ("DELETE", named(json!(true)), "admitted"),
        ("DELETE", named(Value::Null), "admitted"),
        ("UPDATE", named(json!(false)), "ConcurrentDeleteReadException SAME_FILE"),
        ("MERGE", deletes, "admitted"),
        // Absence was read as well.
        ("MERGE", inserts, "ConcurrentDeleteReadException WITHOUT_HINT"),
    ] {
        let scene = scene().under(Serializable).won_by(winner()).candidate(pair(operation, &[0], more.clone()));
        assert_eq!(scene.outcome().await, expected, "{operation} {more}");
    }
    // Rows came back: what is there now may match.
    let restores = vec![deleted(remove("b"), [0, 1]), deleted(add("b", 0), [1]), info("RESTORE", json!({}))];
    let scene = scene()
        .won_by(vec![remove("b"), deleted(add("b", 0), [0, 1]), info("DELETE", reads("id", json!(1)))])
        .won_by(restores)
        .candidate(pair("DELETE", &[0], reads("id", json!(0))));
    assert_eq!(scene.outcome().await, "ConcurrentDeleteReadException WITHOUT_HINT");
}

#[tokio::test]
async fn winners_of_other_shapes_conflict() {
    let candidate = || pair("DELETE", &[0], reads("id", json!(0)));
    for (winner, expected) in [
        // Fully deleted.
        (vec![remove("a"), info("DELETE", json!({}))], "ConcurrentDeleteReadException SAME_FILE"),
        // Rewritten; its rows do not match.
        (vec![remove("a"), add("w", 1), info("UPDATE", json!({}))], "ConcurrentDeleteReadException SAME_FILE"),
        // The same logical file with other statistics.
        (vec![moved(add("a", 0)), info("COMPUTE STATS", json!({}))], "admitted"),
    ] {
        let mut scene = vectors().under(Serializable).won_by(winner.clone()).candidate(candidate());
        scene.matches.insert("wh/t/w".to_owned(), Match::No);
        assert_eq!(scene.outcome().await, expected, "{winner:?}");
    }
    // The candidate rewrites what the winner deleted rows of.
    let rewrite = vec![remove("a"), add("c", 0), info("UPDATE", reads("id", json!(0)))];
    let found = judged(pair("DELETE", &[1], reads("id", json!(1))), rewrite, Serializable).await;
    assert_eq!(found, "ConcurrentDeleteReadException SAME_FILE");
    // It takes deleted rows back.
    let shrunk = vectors().won_by(pair("DELETE", &[1], reads("id", json!(1)))).candidate(vec![
        deleted(remove("a"), [2]),
        add("a", 0),
        info("DELETE", reads("id", json!(0))),
    ]);
    assert!(shrunk.outcome().await.starts_with("ConcurrentDeleteReadException"));
}

#[tokio::test]
async fn other_statistics_and_tags_of_a_winner_are_taken_over() {
    let mut refreshed = moved(add("a", 0));
    refreshed["add"]["tags"] = json!({"colour": "blue"});
    refreshed["add"]["clusteringProvider"] = json!("liquid");
    let stats =
        json!({"numRecords": 3, "minValues": {"id": 0}, "maxValues": {"id": 2}, "nullCount": {"id": 0, "name": 1}});
    refreshed["add"]["stats"] = json!(stats.to_string());
    let scene = vectors().won_by(vec![refreshed, info("COMPUTE STATS", json!({}))]).candidate(pair(
        "DELETE",
        &[0],
        reads("id", json!(0)),
    ));
    let admission = scene.admission().await;
    let changes = &admission.rebase.changed_adds[&0];
    let of = |name: &str| changes.iter().find(|(found, _)| *found == name).map(|(_, value)| value.clone()).unwrap();
    assert_eq!((of("tags"), of("clusteringProvider")), (json!({"colour": "blue"}), json!("liquid")));
    let stats: Value = serde_json::from_str(of("stats").as_str().unwrap()).unwrap();
    assert_eq!((&stats["nullCount"]["name"], &stats["tightBounds"]), (&json!(1), &json!(false)));
    assert!(admission.rebase.changed_removes.is_empty() && admission.publication.vectors.is_none());
}

/// A file keeps its row ids, whoever gives it another vector; new files are numbered from where the winner left off.
#[tokio::test]
async fn row_ids_stay_with_the_file() {
    let numbered = |mut line: Value| {
        line["add"]["baseRowId"] = json!(0);
        line["add"]["defaultRowCommitVersion"] = json!(0);
        line
    };
    let mark = |mark: i64| domain("delta.rowTracking", &format!("{{\"rowIdHighWaterMark\":{mark}}}"));
    let properties = json!({"delta.enableDeletionVectors": "true"});
    let features = ["deletionVectors", "domainMetadata", "rowTracking"];
    let mut image = add("w", 50);
    image["add"]["baseRowId"] = json!(3);
    image["add"]["defaultRowCommitVersion"] = json!(1);
    let winner =
        vec![remove("a"), numbered(deleted(add("a", 0), [1])), image, mark(5), info("UPDATE", reads("id", json!(1)))];
    let candidate =
        vec![remove("a"), deleted(add("a", 0), [0]), add("c", 60), mark(5), info("UPDATE", reads("id", json!(0)))];
    let scene = Scene::table(&[], &features, properties)
        .with_files([numbered(add("a", 0)), mark(2)])
        .won_by(winner)
        .candidate(candidate.clone());
    let admission = scene.admission().await;
    let bytes = render(&text(&candidate).into(), &admission.rebase, None);
    let lines: Vec<Value> =
        std::str::from_utf8(&bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (pair, new) = (find(&lines, "add", "a"), find(&lines, "add", "c"));
    assert_eq!((&pair["baseRowId"], &pair["defaultRowCommitVersion"]), (&json!(0), &json!(0)), "{pair}");
    assert_eq!((&new["baseRowId"], &new["defaultRowCommitVersion"]), (&json!(6), &json!(2)), "{new}");
    assert_eq!(find(&lines, "remove", "a")["baseRowId"], 0);
    let domains = lines.iter().find(|line| !line["domainMetadata"].is_null()).unwrap();
    assert_eq!(domains["domainMetadata"]["configuration"], "{\"rowIdHighWaterMark\":8}");
}

#[tokio::test]
async fn what_statistics_leave_open_is_looked_at() {
    let candidate = || pair("DELETE", &[0], reads("id", json!(0)));
    for (found, expected) in [
        (Match::No, "admitted"),
        (Match::Row(3, "id=0".into()), "ConcurrentAppendException WITHOUT_HINT"),
        (Match::Unknown("gone".into()), "ConcurrentAppendException WITHOUT_HINT"),
        (Match::TooMuch("much".into()), "ConcurrentAppendException ALLOTTED_TIME_EXCEEDED"),
    ] {
        let winner = vec![add("w", 0), info("WRITE", json!({"operationParameters": {"mode": "Append"}}))];
        let mut scene = vectors().under(Serializable).won_by(winner.clone()).candidate(candidate());
        scene.matches.insert("wh/t/w".to_owned(), found.clone());
        assert_eq!(scene.outcome().await, expected, "{found:?}");
        let blind = vectors().under(WriteSerializable).won_by(winner).candidate(candidate());
        assert_eq!(blind.outcome().await, "admitted");
    }
    let upgrade =
        vec![protocol(&["deletionVectors", "appendOnly", "invariants", "changeDataFeed"]), info("UPGRADE", json!({}))];
    assert_eq!(judged(upgrade, candidate(), Serializable).await, "admitted");
}

/// What was deleted stays deleted, with and without a winner: only RESTORE takes rows back.
#[tokio::test]
async fn a_vector_that_shrinks_is_refused_unless_the_table_is_restored() {
    for (operation, kept, expected) in [
        ("DELETE", Some(vec![1]), "rejected InvalidCommitException DELETION_VECTOR_SHRINKS"),
        ("UPDATE", Some(vec![2, 3, 4]), "rejected InvalidCommitException DELETION_VECTOR_SHRINKS"),
        ("ANYTHING", None, "rejected InvalidCommitException DELETION_VECTOR_SHRINKS"),
        ("DELETE", Some(vec![1, 5, 6]), "committed 3"),
        ("RESTORE", Some(vec![1]), "committed 3"),
        ("RESTORE", None, "committed 3"),
    ] {
        let engine = one_file().await;
        let files = engine.read(1).await;
        let base = vec![
            removed(&files[0].add),
            deleted(engine_add(&files[0].add), [1, 5]),
            info("DELETE", reads("id", json!(1))),
        ];
        assert_eq!(short(&engine.kit.propose(2, 2, &base).await), "committed 2");
        let live = engine.read(2).await;
        let add = engine_add(&files[0].add);
        let add = kept.clone().map_or(add.clone(), |rows| deleted(add, rows));
        let lines = vec![removed(&live[0].add), add, info(operation, reads("id", json!(6)))];
        let verdict = engine.kit.propose(3, 3, &lines).await;
        assert_eq!(short(&verdict), expected, "{operation} {kept:?}: {verdict:?}");
    }
}

/// The add of a file without a vector.
fn engine_add(add: &AddFile) -> Value {
    json!({"add": {"path": add.path, "partitionValues": {}, "size": add.size, "modificationTime": 1, "dataChange": true,
        "stats": add.stats}})
}

#[tokio::test]
async fn broken_vectors_are_named_and_nothing_is_merged() {
    for (broken, expected) in [
        ("b", "rejected ConcurrentDeleteReadException SAME_FILE"),
        ("c", "rejected InvalidCommitException DELETION_VECTOR_CHECKSUM"),
    ] {
        let engine = one_file().await;
        let files = engine.read(1).await;
        let first = engine.execute(&Statement::Delete(1, 2), &files, "b").await;
        assert_eq!(short(&engine.kit.propose(2, 2, &first).await), "committed 2");
        let before = engine.kit.table.world.objects.keys("lake");
        let second = engine.execute(&Statement::Delete(4, 4), &files, "c").await;
        let is_new = |key: &String| !before.contains(key);
        let all = engine.kit.table.world.objects.keys("lake");
        let vector = all.iter().find(|key| key.ends_with(".bin") && (broken == "c") == is_new(key)).unwrap();
        let at = ObjectKey::new("lake", vector.clone());
        let mut bytes = engine.kit.table.get(&at).await.unwrap().to_vec();
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
        engine.kit.table.world.objects.put(&at, bytes.into(), &Default::default()).await.unwrap();
        let verdict = engine.kit.propose(2, 3, &second).await;
        assert_eq!(short(&verdict), expected);
        if broken == "b" {
            assert!(verdict.refusal().unwrap().more[0].contains("CRC-32"), "{verdict:?}");
        }
    }
}

#[test]
fn outcomes_have_names() {
    assert_eq!(outcome(&Judgement::NeedsRows(Default::default())), "needs rows");
}
