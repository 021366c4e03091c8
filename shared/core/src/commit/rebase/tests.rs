use serde_json::{Value, json};

use super::{FileEdit, Rebase, RowIds};
use crate::commit::judge::Judgement;
use crate::commit::tests::judging::{Scene, add, append, domain, info, metadata, moved, protocol, remove, under};

const FEATURES: [&str; 3] = ["appendOnly", "domainMetadata", "rowTracking"];

fn numbered(path: &str, base: i64, version: i64) -> Value {
    let mut line = add(path, 0);
    line["add"]["baseRowId"] = json!(base);
    line["add"]["defaultRowCommitVersion"] = json!(version);
    line
}

fn mark(mark: i64) -> Value {
    domain("delta.rowTracking", &json!({ "rowIdHighWaterMark": mark }).to_string())
}

/// A table whose files `a` and `b` have the rows 0 to 5.
fn table(properties: Value) -> Scene {
    Scene::table(&[], &FEATURES, properties).with_files([numbered("a", 0, 0), numbered("b", 3, 0), mark(5)])
}

fn set(base_row_id: impl Into<Option<i64>>, version: impl Into<Option<i64>>) -> FileEdit {
    FileEdit::Set(RowIds { base_row_id: base_row_id.into(), default_row_commit_version: version.into() })
}

async fn rebase(scene: Scene) -> Rebase {
    scene.admission().await.rebase
}

#[tokio::test]
async fn what_was_numbered_rightly_stays_as_it_is() {
    let candidate = vec![numbered("c", 6, 1), mark(8), append("c")];
    assert!(rebase(table(json!({})).candidate(candidate)).await.is_empty());
    // In another order, and with room to spare.
    let candidate = vec![numbered("c", 20, 1), numbered("d", 6, 1), mark(30), append("c")];
    assert!(rebase(table(json!({})).candidate(candidate)).await.is_empty());
    // No row ids without the feature.
    let plain = Scene::table(&[], &[], json!({})).with_files([add("a", 0)]);
    assert!(rebase(plain.candidate(vec![add("c", 0), append("c")])).await.is_empty());
    let suspended = table(json!({"delta.rowTrackingSuspended": "true"}));
    assert!(rebase(suspended.candidate(vec![add("c", 0), append("c")])).await.is_empty());
}

#[tokio::test]
async fn new_rows_are_numbered_from_the_winners_mark() {
    let winner = vec![numbered("w", 6, 1), mark(8), append("w")];
    let candidate = vec![numbered("c", 6, 1), numbered("d", 9, 1), mark(11), append("c")];
    let found = rebase(table(json!({})).won_by(winner.clone()).candidate(candidate.clone())).await;
    assert_eq!(found.adds, [(0, set(9, 2)), (1, set(12, 2))].into());
    assert_eq!(found.domains, [(0, json!({"rowIdHighWaterMark": 14}).to_string())].into());
    assert!(found.appended.is_empty() && found.removes.is_empty() && found.tags.is_empty());
    // A winner that numbered nothing moves the version alone.
    let property = vec![info("X", json!({}))];
    let found = rebase(table(json!({})).won_by(property).candidate(candidate.clone())).await;
    assert_eq!(found, Rebase { adds: [(0, set(None, 2)), (1, set(None, 2))].into(), ..Rebase::default() });
    // Two winners.
    let second = vec![numbered("w2", 9, 2), mark(11), append("w2")];
    let found = rebase(table(json!({})).won_by(winner).won_by(second).candidate(candidate)).await;
    assert_eq!(found.adds, [(0, set(12, 3)), (1, set(15, 3))].into());
}

#[tokio::test]
async fn what_the_writer_left_out_is_supplied() {
    let found = rebase(table(json!({})).candidate(vec![add("c", 0), append("c")])).await;
    assert_eq!(found.adds, [(0, set(6, 1))].into());
    assert_eq!(found.appended, [mark(8).to_string()]);
    // Ids that overlap, or a mark below them, are given anew.
    for candidate in [
        vec![numbered("c", 6, 1), numbered("d", 7, 1), mark(20), append("c")],
        vec![numbered("c", 6, 1), numbered("d", 9, 1), mark(10), append("c")],
    ] {
        let found = rebase(table(json!({})).candidate(candidate)).await;
        assert_eq!(found.domains, [(0, json!({"rowIdHighWaterMark": 11}).to_string())].into());
    }
    let mut unknown = add("c", 0);
    unknown["add"]["stats"] = Value::Null;
    let outcome = table(json!({})).candidate(vec![unknown, append("c")]).outcome().await;
    assert_eq!(outcome, "InvalidCommitException ROW_IDS_NEED_ROW_COUNT");
    let outcome = table(json!({})).candidate(vec![numbered("c", 6, 7), mark(8), append("c")]).outcome().await;
    assert_eq!(outcome, "InvalidCommitException ROW_COMMIT_VERSION");
}

#[tokio::test]
async fn files_that_come_back_keep_their_ids() {
    // A restored file, and one whose rows only moved.
    let winner = vec![numbered("w", 6, 1), mark(8), append("w")];
    let candidate = vec![remove("b"), numbered("old", 1, 0), mark(5), info("RESTORE", json!({"readSet": {"v": 1}}))];
    let found = rebase(table(json!({})).won_by(winner).candidate(candidate)).await;
    assert!(found.adds.is_empty(), "{found:?}");
    // The mark never falls.
    assert_eq!(found.domains, [(0, json!({"rowIdHighWaterMark": 8}).to_string())].into());
}

#[tokio::test]
async fn the_mark_stays_while_rows_are_numbered() {
    for configuration in ["", r#"{"rowIdHighWaterMark":500}"#] {
        let mut gone = domain("delta.rowTracking", configuration);
        gone["domainMetadata"]["removed"] = json!(true);
        for candidate in [vec![add("c", 0), append("c"), gone.clone()], vec![info("X", json!({})), gone.clone()]] {
            let outcome = table(json!({})).candidate(candidate.clone()).outcome().await;
            assert_eq!(outcome, "InvalidCommitException ROW_ID_MARK_REMOVED", "{candidate:?}");
            // Where rows are not numbered any more nobody needs it.
            let suspended = table(json!({"delta.rowTrackingSuspended": "true"}));
            assert_eq!(suspended.candidate(candidate).outcome().await, "admitted");
        }
    }
}

#[tokio::test]
async fn ids_and_versions_below_nought_are_refused() {
    for (base, version, reason) in
        [(-7, 0, "ROW_ID"), (-1, 1, "ROW_ID"), (6, -3, "ROW_COMMIT_VERSION"), (0, -3, "ROW_COMMIT_VERSION")]
    {
        let outcome = table(json!({})).candidate(vec![numbered("c", base, version), append("c")]).outcome().await;
        assert_eq!(outcome, format!("InvalidCommitException {reason}"), "{base} {version}");
    }
}

#[tokio::test]
async fn a_commit_version_that_is_missing_is_supplied_to_files_of_any_age() {
    let mut old = numbered("old", 1, 0);
    old["add"].as_object_mut().unwrap().remove("defaultRowCommitVersion");
    let restore = vec![remove("b"), old.clone(), info("RESTORE", json!({"readSet": {"v": 1}}))];
    assert_eq!(rebase(table(json!({})).candidate(restore.clone())).await.adds, [(0, set(None, 1))].into());
    let winner = vec![numbered("w", 6, 1), mark(8), append("w")];
    assert_eq!(rebase(table(json!({})).won_by(winner).candidate(restore)).await.adds, [(0, set(None, 2))].into());
    // Of a file that the log has without one.
    let features = ["appendOnly", "deletionVectors", "domainMetadata", "rowTracking"];
    let table = Scene::table(&[], &features, json!({"delta.enableDeletionVectors": "true"})).with_files([old, mark(5)]);
    let again = vec![remove("old"), under(add("old", 0), "vector", 1), info("DELETE", json!({}))];
    assert_eq!(rebase(table.candidate(again)).await.adds, [(0, set(1, 1))].into());
}

#[tokio::test]
async fn row_ids_end_somewhere() {
    for last in [i64::MAX, i64::MAX - 2] {
        let full = Scene::table(&[], &FEATURES, json!({})).with_files([mark(last)]);
        let outcome = full.candidate(vec![add("c", 0), append("c")]).outcome().await;
        assert_eq!(outcome, "InvalidCommitException ROW_IDS_EXHAUSTED", "{last}");
    }
    let room = Scene::table(&[], &FEATURES, json!({})).with_files([mark(i64::MAX - 3)]);
    let found = rebase(room.candidate(vec![add("c", 0), append("c")])).await;
    assert_eq!(found.appended, [mark(i64::MAX).to_string()]);
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_is_no_mark() {
    let broken = Scene::table(&[], &FEATURES, json!({})).with_files([domain("delta.rowTracking", "{}")]);
    let outcome = broken.candidate(vec![add("c", 0), append("c")]).outcome().await;
    assert_eq!(outcome, "DamagedLogException ROW_ID_HIGH_WATER_MARK");
    let none = Scene::table(&[], &FEATURES, json!({}));
    let found = rebase(none.candidate(vec![add("c", 0), append("c")])).await;
    assert_eq!((found.adds, found.appended), ([(0, set(0, 1))].into(), vec![mark(2).to_string()]));
}

/// What a client says of the mark may be anything; what is published can be read by every later commit.
#[tokio::test]
async fn a_mark_of_the_commit_that_cannot_be_read_is_written_anew() {
    let nested = format!(r#"{{"rowIdHighWaterMark":8,"x":{}{}}}"#, "[".repeat(70), "]".repeat(70));
    let odd = [
        r#"{"rowIdHighWaterMark":8,"rowIdHighWaterMark":"X"}"#,
        r#"{"rowIdHighWaterMark":8,"rowIdHighWaterMark":8}"#,
        r#"{"rowIdHighWaterMark":8,"\u0072owIdHighWaterMark":9}"#,
        r#"{"rowIdHighWaterMark":8,"other":{"a":1,"a":2}}"#,
        r#"{"rowIdHighWaterMark":1e30}"#,
        r#"{"rowIdHighWaterMark":8"#,
        "[8]",
        "null",
        "",
        &nested,
    ];
    let written = json!({"rowIdHighWaterMark": 8}).to_string();
    for text in odd {
        for first in [numbered("c", 6, 1), add("c", 0)] {
            let candidate = vec![first, domain("delta.rowTracking", text), append("c")];
            let found = rebase(table(json!({})).candidate(candidate)).await;
            assert_eq!(found.domains, [(0, written.clone())].into(), "{text}");
        }
        // Without a file, where nothing was numbered yet.
        let none = Scene::table(&[], &FEATURES, json!({}));
        let candidate = vec![domain("delta.rowTracking", text), info("X", json!({}))];
        let found = rebase(none.candidate(candidate)).await;
        assert_eq!(found.domains, [(0, json!({"rowIdHighWaterMark": -1}).to_string())].into(), "{text}");
        // Where rows are not numbered it is not ours to write.
        for table in [
            Scene::table(&[], &["appendOnly", "domainMetadata"], json!({})),
            table(json!({"delta.rowTrackingSuspended": "true"})),
        ] {
            let candidate = vec![domain("delta.rowTracking", text), info("X", json!({}))];
            let outcome = table.candidate(candidate).outcome().await;
            assert_eq!(outcome, "InvalidCommitException ROW_ID_HIGH_WATER_MARK", "{text}");
        }
    }
    // What else the writer keeps there stays.
    let candidate = vec![add("c", 0), domain("delta.rowTracking", r#"{"a":1.50,"rowIdHighWaterMark":2}"#), append("c")];
    let found = rebase(table(json!({})).candidate(candidate)).await;
    assert_eq!(found.domains, [(0, r#"{"a":1.50,"rowIdHighWaterMark":8}"#.to_owned())].into());
}

#[tokio::test]
async fn a_commit_does_not_use_up_the_row_ids() {
    let far = i64::MAX - 10;
    for (base, said) in [(6, i64::MAX), (6, 1 << 50), (far, far + 2)] {
        let candidate = vec![numbered("c", base, 1), mark(said), append("c")];
        let found = rebase(table(json!({})).candidate(candidate)).await;
        assert_eq!(found.domains, [(0, json!({"rowIdHighWaterMark": 8}).to_string())].into(), "{base} {said}");
    }
    let suspended = || table(json!({"delta.rowTrackingSuspended": "true"}));
    for (said, outcome) in [(5, "admitted"), (9, "admitted"), (4, "InvalidCommitException ROW_ID_HIGH_WATER_MARK")] {
        assert_eq!(suspended().candidate(vec![mark(said), info("X", json!({}))]).outcome().await, outcome, "{said}");
    }
}

#[tokio::test]
async fn a_winner_that_switches_row_tracking_on_is_followed() {
    let plain = Scene::table(&[], &["appendOnly"], json!({})).with_files([add("a", 0)]);
    let upgrade = vec![protocol(&FEATURES), info("UPGRADE PROTOCOL", json!({}))];
    let mut backfilled = moved(add("a", 0));
    backfilled["add"]["baseRowId"] = json!(0);
    backfilled["add"]["defaultRowCommitVersion"] = json!(2);
    let backfill = vec![backfilled, mark(2), info("ROW TRACKING BACKFILL", json!({}))];
    let enable = vec![
        metadata(
            &plain,
            json!({"delta.enableRowTracking": "true", "delta.rowTracking.materializedRowIdColumnName": "x"}),
        ),
        info("SET TBLPROPERTIES", json!({})),
    ];
    let candidate = vec![remove("a"), add("c", 0), info("UPDATE", json!({}))];
    let scene = plain.won_by(upgrade).won_by(backfill).won_by(enable).candidate(candidate);
    let found = rebase(scene).await;
    assert_eq!(found.removes, [(0, set(0, 2))].into());
    assert_eq!(found.adds, [(0, set(3, 4))].into());
    assert_eq!(found.appended, [mark(5).to_string()]);
    assert_eq!(found.tags, [("delta.rowTracking.preserved".to_owned(), "false".to_owned())].into());
}

#[tokio::test]
async fn backfills_leave_alone_what_winners_touched() {
    let table = Scene::table(&[], &FEATURES, json!({})).with_files([add("a", 0), add("b", 0)]);
    let again = |path: &str, base: i64| moved(numbered(path, base, 1));
    let backfill = vec![again("a", 0), again("b", 3), mark(5), info("ROW TRACKING BACKFILL", json!({}))];
    let update = vec![remove("a"), numbered("w", 0, 1), mark(2), info("UPDATE", json!({}))];
    let found = rebase(table.clone().won_by(update.clone()).candidate(backfill.clone())).await;
    assert_eq!(found.adds, [(0, FileEdit::Drop), (1, set(None, 2))].into());
    assert!(found.domains.is_empty(), "the mark is 5 again: {found:?}");
    // Two backfills at once.
    let mut other = backfill.clone();
    other[3] = info("ROW TRACKING BACKFILL", json!({"engineInfo": "other"}));
    let found = rebase(table.clone().won_by(other).candidate(backfill.clone())).await;
    assert_eq!(found.adds, [(0, FileEdit::Drop), (1, FileEdit::Drop)].into());
    // An unbackfill strips what came meanwhile, and cannot follow a backfill.
    let stripped = |path: &str| moved(add(path, 0));
    let suspended = Scene { creation: table.clone().with_files([]).creation, ..table.clone() };
    let unbackfill = vec![stripped("a"), stripped("b"), info("ROW TRACKING UNBACKFILL", json!({}))];
    let conflict = suspended.clone().won_by(backfill).candidate(unbackfill.clone()).outcome().await;
    assert_eq!(conflict, "ConcurrentWriteException ROW_TRACKING_BACKFILL");
    let mut suspended = suspended;
    suspended.creation[1]["metaData"]["configuration"]["delta.rowTrackingSuspended"] = json!("true");
    let found = rebase(suspended.won_by(update).candidate(unbackfill)).await;
    assert_eq!(found.adds, [(0, FileEdit::Drop)].into());
    let line: Value = serde_json::from_str(&found.appended[0]).unwrap();
    assert_eq!((&line["add"]["path"], &line["add"]["baseRowId"]), (&json!("w"), &Value::Null));
    assert_eq!((found.appended.len(), &line["add"]["dataChange"]), (1, &json!(false)));
}

#[tokio::test]
async fn timestamps_follow_the_last_commit() {
    let stamped = |scene: &mut Scene, ms: i64| {
        let info = scene.creation.iter_mut().find(|line| !line["commitInfo"].is_null()).unwrap();
        info["commitInfo"]["inCommitTimestamp"] = json!(ms);
    };
    let features = ["inCommitTimestamp"];
    let mut on = Scene::table(&[], &features, json!({"delta.enableInCommitTimestamps": "true"}));
    stamped(&mut on, 41);
    let admission = on.clone().candidate(vec![add("c", 0), append("c")]).admission().await;
    assert_eq!((admission.timestamp_after_ms, admission.rebase.timestamps_start_at), (Some(41), None));
    let winner = vec![info("X", json!({"inCommitTimestamp": 52}))];
    let admission = on.clone().won_by(winner).candidate(vec![add("c", 0), append("c")]).admission().await;
    assert_eq!(admission.timestamp_after_ms, Some(52));
    assert_eq!(on.candidate(vec![add("c", 0)]).outcome().await, "InvalidCommitException IN_COMMIT_TIMESTAMP");

    let off = Scene::table(&[], &features, json!({}));
    let enable =
        vec![metadata(&off, json!({"delta.enableInCommitTimestamps": "true"})), info("SET TBLPROPERTIES", json!({}))];
    let admission = off.clone().candidate(enable.clone()).admission().await;
    assert_eq!(admission.rebase.timestamps_start_at, Some(crate::delta::Version(1)));
    assert!(admission.timestamp_after_ms.is_some());
    let Judgement::Admit(admission) = off.won_by(vec![add("w", 0), append("w")]).candidate(enable).judge().await else {
        panic!("not admitted")
    };
    assert_eq!(admission.rebase.timestamps_start_at, Some(crate::delta::Version(2)));
}
