//! The conflict matrix: every row of `matrix.json`, for every isolation level, with and without partitions and deletion
//! vectors, with file sets and predicates that meet and that do not.
//!
//! A cell says what becomes of A after B won. `when`: A works on the file `a` and the rows that its predicate selects; B
//! works on the same rows (`meet`), on other rows that file-level knowledge cannot tell from them (`near`), or on the file
//! `b` (`apart`).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::judging::{Scene, add, deleted, info, metadata, moved, outcome, protocol, remove, txn};
use super::kit::{Kit, short};
use crate::commit::judge::Judgement;
use crate::commit::row_level::Match;
use crate::ports::IsolationLevel;

const FEATURES: [&str; 4] = ["appendOnly", "deletionVectors", "domainMetadata", "invariants"];

#[derive(Deserialize)]
struct Matrix {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    row: String,
    text: String,
    a: Vec<String>,
    b: Vec<String>,
    levels: Vec<String>,
    vectors: Vec<String>,
    partitioned: Vec<String>,
    cells: Vec<Cell>,
}

/// Absent filters fit anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    when: Option<Vec<String>>,
    b: Option<Vec<String>>,
    levels: Option<Vec<String>>,
    vectors: Option<Vec<String>>,
    outcome: String,
    exception: Option<String>,
    reason: Option<String>,
}

/// One combination.
#[derive(Clone, Debug)]
struct Case {
    a: String,
    b: String,
    level: String,
    vectors: String,
    partitioned: String,
    when: String,
}

impl Cell {
    fn fits(&self, case: &Case) -> bool {
        let has =
            |filter: &Option<Vec<String>>, value: &String| filter.as_ref().is_none_or(|list| list.contains(value));
        has(&self.when, &case.when)
            && has(&self.b, &case.b)
            && has(&self.levels, &case.level)
            && has(&self.vectors, &case.vectors)
    }

    fn expected(&self, case: &Case) -> String {
        let reason = match self.reason.as_deref() {
            Some("HINT") if case.partitioned == "yes" => "WITH_PARTITION_HINT",
            Some("HINT") => "WITHOUT_HINT",
            Some(reason) => reason,
            None => return self.outcome.clone(),
        };
        match &self.exception {
            Some(exception) => format!("{} {exception} {reason}", self.outcome),
            None => format!("{} {reason}", self.outcome),
        }
    }
}

fn matrix() -> Matrix {
    serde_json::from_str(include_str!("../matrix.json")).unwrap()
}

impl Row {
    /// Instances that the row tells apart; both extremes where it does not.
    fn instances(&self) -> BTreeSet<&str> {
        let named: BTreeSet<&str> =
            self.cells.iter().filter_map(|cell| cell.when.as_ref()).flatten().map(String::as_str).collect();
        if named.is_empty() { ["meet", "apart"].into() } else { named }
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for a in &self.a {
            for b in &self.b {
                for level in &self.levels {
                    for vectors in &self.vectors {
                        for partitioned in &self.partitioned {
                            for when in self.instances() {
                                cases.push(Case {
                                    a: a.clone(),
                                    b: b.clone(),
                                    level: level.clone(),
                                    vectors: vectors.clone(),
                                    partitioned: partitioned.clone(),
                                    when: when.to_owned(),
                                });
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    fn cell(&self, case: &Case) -> &Cell {
        let fitting: Vec<&Cell> = self.cells.iter().filter(|cell| cell.fits(case)).collect();
        match fitting.as_slice() {
            [one] => one,
            other => panic!("row {} ({}): {} cells fit {case:?}", self.row, self.text, other.len()),
        }
    }
}

/// Where an operation works.
struct Target {
    folder: &'static str,
    file: &'static str,
    /// Ids of the file's rows.
    ids: (i64, i64),
    /// The id that the operation is about.
    id: i64,
    /// Ids that a new file may hold, by its statistics.
    new_ids: (i64, i64),
}

fn target(when: &str) -> Target {
    match when {
        "meet" => Target { folder: "p=x/", file: "a", ids: (0, 9), id: 4, new_ids: (4, 4) },
        "near" => Target { folder: "p=x/", file: "a", ids: (0, 9), id: 6, new_ids: (0, 9) },
        _ => Target { folder: "p=y/", file: "b", ids: (10, 19), id: 14, new_ids: (14, 14) },
    }
}

impl Case {
    fn has_vectors(&self) -> bool {
        self.vectors == "on"
    }

    fn is_partitioned(&self) -> bool {
        self.partitioned == "yes"
    }

    fn path(&self, target: &Target, name: &str) -> String {
        if self.is_partitioned() { format!("{}{name}", target.folder) } else { name.to_owned() }
    }

    /// An add of a file with ten rows, or one for each id.
    fn file(&self, target: &Target, name: &str, ids: (i64, i64), rows: i64) -> Value {
        let mut line = add(&self.path(target, name), 0);
        let stats =
            json!({"numRecords": rows, "minValues": {"id": ids.0}, "maxValues": {"id": ids.1}, "nullCount": {"id": 0}});
        line["add"]["stats"] = json!(stats.to_string());
        line
    }

    fn existing(&self, target: &Target) -> Value {
        self.file(target, target.file, target.ids, 10)
    }

    fn scene(&self, identity: bool) -> Scene {
        let columns: &[&str] = if self.is_partitioned() { &["p"] } else { &[] };
        let mut properties = json!({"delta.isolationLevel": self.level});
        if self.has_vectors() {
            properties["delta.enableDeletionVectors"] = json!("true");
        }
        let mut scene = Scene::table(columns, &FEATURES, properties);
        if identity {
            let text = scene.creation[1]["metaData"]["schemaString"].as_str().unwrap();
            let text = text.replacen(r#""metadata":{}"#, r#""metadata":{"delta.identity.start":1}"#, 1);
            scene.creation[1]["metaData"]["schemaString"] = json!(text);
        }
        let other = match self.level.as_str() {
            "Serializable" => IsolationLevel::WriteSerializable,
            _ => IsolationLevel::Serializable,
        };
        // The property decides, so the default must not.
        scene.under(other).with_files([self.existing(&target("meet")), self.existing(&target("apart"))])
    }

    /// The predicate that selects the operation's rows.
    fn reads(&self, target: &Target, more: Option<Value>) -> Value {
        let (column, value) = if self.is_partitioned() {
            ("p", json!(target.folder.trim_end_matches('/').trim_start_matches("p=")))
        } else {
            ("id", json!(target.id))
        };
        let own = json!({"op": "=", "col": [column], "value": value});
        let predicate = match more {
            None => own,
            Some(more) => json!({"op": "and", "args": [own, more]}),
        };
        json!({"v": 1, "predicates": [predicate]})
    }

    fn lines(&self, operation: &str, when: &str, tag: &str, scene: &Scene) -> Vec<Value> {
        let target = target(when);
        let info = |name: &str, mut more: Value| {
            more["engineInfo"] = json!(tag);
            info(name, more)
        };
        match operation {
            "INSERT" => vec![
                self.file(&target, tag, target.new_ids, 2),
                info("WRITE", json!({"operationParameters": {"mode": "Append"}})),
            ],
            "INSERT FROM SELF" => vec![
                self.file(&target, tag, target.new_ids, 2),
                info(
                    "WRITE",
                    json!({"isBlindAppend": false, "operationParameters": {"mode": "Append"}, "readSet": self.reads(&target, None)}),
                ),
            ],
            "UPDATE" | "DELETE" | "MERGE" => {
                let mut reads = self.reads(&target, None);
                // Of the others the operation says it.
                if operation == "MERGE" {
                    reads["matchedEqualsWritten"] = json!(true);
                }
                self.change(operation, &target, tag, info(operation, json!({ "readSet": reads })))
            }
            "RANDOM" => {
                let reads = self.reads(&target, Some(json!({"op": "rand"})));
                self.change("UPDATE", &target, tag, info("UPDATE", json!({ "readSet": reads })))
            }
            "OPTIMIZE" => {
                self.moves(&target, tag, info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": "[]"}})))
            }
            "ZORDER" => {
                self.moves(&target, tag, info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": "[\"id\"]"}})))
            }
            "STREAM" => {
                let (app, version) = match (when, tag) {
                    ("apart", "winner") => ("other", 4),
                    ("near", "winner") => ("stream", 3),
                    _ => ("stream", 4),
                };
                let file = self.file(&target, tag, target.new_ids, 2);
                vec![
                    txn(app, version),
                    file,
                    info("STREAMING UPDATE", json!({"operationParameters": {"outputMode": "Append"}})),
                ]
            }
            "SET PROPERTY" => vec![
                metadata(scene, json!({"delta.logRetentionDuration": format!("interval {} days", tag.len())})),
                info("SET TBLPROPERTIES", json!({})),
            ],
            "SET HARMLESS PROPERTY" => vec![
                metadata(scene, json!({"delta.enableDeletionVectors": "true"})),
                info("SET TBLPROPERTIES", json!({})),
            ],
            "ADD COLUMN" => vec![self.wider(scene), info("ADD COLUMNS", json!({}))],
            "SAFE UPGRADE" => vec![self.upgrade(&["changeDataFeed"]), info("UPGRADE PROTOCOL", json!({}))],
            "UPGRADE" => vec![self.upgrade(&["checkConstraints"]), info("UPGRADE PROTOCOL", json!({}))],
            "REORG UPGRADE" => vec![self.upgrade(&["changeDataFeed"]), info("REORG", json!({}))],
            "CREATE" => scene.creation[..3].to_vec(),
            other => panic!("{other}"),
        }
    }

    /// Copy on write, or with a deletion vector and a file of the new images.
    fn change(&self, operation: &str, target: &Target, tag: &str, info: Value) -> Vec<Value> {
        let old = self.existing(target);
        let path = self.path(target, target.file);
        let mut lines = vec![remove(&path)];
        if self.has_vectors() {
            let row = u64::try_from(target.id - target.ids.0).unwrap();
            lines.push(deleted(old, [row]));
            if operation != "DELETE" {
                lines.push(self.file(target, tag, (target.id, target.id), 1));
            }
        } else if operation != "DELETE" {
            lines.push(self.file(target, tag, target.ids, 10));
        }
        lines.push(info);
        lines
    }

    fn moves(&self, target: &Target, tag: &str, info: Value) -> Vec<Value> {
        let path = self.path(target, target.file);
        vec![moved(remove(&path)), moved(self.file(target, tag, target.ids, 10)), info]
    }

    fn upgrade(&self, more: &[&str]) -> Value {
        let all: Vec<&str> = FEATURES.iter().chain(more).copied().collect();
        protocol(&all)
    }

    fn wider(&self, scene: &Scene) -> Value {
        let mut line = metadata(scene, json!({}));
        let mut schema: Value = serde_json::from_str(line["metaData"]["schemaString"].as_str().unwrap()).unwrap();
        let column = json!({"name": "extra", "type": "date", "nullable": true, "metadata": {}});
        schema["fields"].as_array_mut().unwrap().push(column);
        line["metaData"]["schemaString"] = json!(schema.to_string());
        line
    }

    /// Table, winner and candidate.
    fn staged(&self, row: &str) -> Scene {
        let scene = self.scene(row == "22");
        let winner = self.lines(&self.b, &self.when, "winner", &scene);
        let candidate = self.lines(&self.a, "meet", "candidate", &scene);
        let mut scene = scene.won_by(winner).candidate(candidate);
        if self.when == "near" {
            // None of the rows that the statistics span is the one that the candidate looked for.
            let file = self.path(&target("near"), "winner");
            scene.matches.insert(format!("wh/t/{file}"), Match::No);
        }
        scene
    }
}

#[tokio::test]
async fn every_row_of_the_matrix_is_answered_as_it_says() {
    let mut seen = BTreeSet::new();
    let (mut cases, mut wrong) = (0, Vec::new());
    for row in &matrix().rows {
        seen.insert(row.row.clone());
        for case in row.cases().into_iter().filter(|case| case.a != "CREATE") {
            let expected = row.cell(&case).expected(&case);
            let judgement = case.staged(&row.row).judge().await;
            cases += 1;
            if outcome(&judgement) != expected {
                wrong.push(format!("row {} {case:?}: {}, expected {expected}", row.row, outcome(&judgement)));
            }
            if let Judgement::Refuse(refusal) | Judgement::Supersede(refusal) = &judgement {
                let winner = refusal.winner.as_ref().map(|winner| (winner.version, winner.operation.is_some()));
                assert_eq!(winner, Some((1, true)), "row {} {case:?}", row.row);
                assert!(!refusal.advice.is_empty() && refusal.message.contains("version 1"), "{}", refusal.message);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    let rows = (1..=26).map(|row| row.to_string()).filter(|row| row != "20");
    let rows: BTreeSet<String> = rows.chain(["20a", "20b", "20c"].map(str::to_owned)).collect();
    assert_eq!(seen, rows);
    assert!(cases > 900, "{cases}");
}

/// The first operations of each row, from a staged object to a verdict, on real files.
#[tokio::test]
async fn a_sample_of_the_matrix_through_the_whole_run() {
    let mut runs = 0;
    for row in &matrix().rows {
        let (a, b) = (&row.a[0], &row.b[0]);
        let mut vectors: Vec<&String> = row.vectors.iter().collect();
        vectors.truncate(1);
        for case in row.cases().into_iter().filter(|case| {
            case.a == *a && case.b == *b && vectors.contains(&&case.vectors) && case.level == row.levels[0]
        }) {
            // A vector names a file that is read: see the tests of deletion vectors.
            let writes_vectors = |operation: &str| ["UPDATE", "DELETE", "MERGE", "RANDOM"].contains(&operation);
            if case.has_vectors() && (writes_vectors(a) || writes_vectors(b)) {
                continue;
            }
            let kit = Kit::empty().await;
            let scene = case.staged(&row.row);
            let (mut creation, mut winner, mut candidate) = (scene.creation, scene.winners[0].clone(), scene.candidate);
            for line in creation.iter_mut().chain(&mut winner).chain(&mut candidate) {
                write_file(&kit, line).await;
            }
            let verdict = if case.a == "CREATE" {
                kit.table.log(0, &winner).await;
                candidate[2]["commitInfo"]["engineInfo"] = json!("candidate");
                kit.propose(0, 1, &candidate).await
            } else {
                kit.table.log(0, &creation).await;
                kit.table.log(1, &winner).await;
                kit.propose(1, 1, &candidate).await
            };
            let expected = match row.cell(&case).expected(&case) {
                text if text == "admitted" => "committed 2".to_owned(),
                text if text.starts_with("superseded") => text,
                text => format!("rejected {text}"),
            };
            assert_eq!(short(&verdict), expected, "row {} {case:?}", row.row);
            runs += 1;
        }
    }
    assert!(runs > 60, "{runs}");
}

/// Writes the file that an add names, with as many rows as its statistics say.
async fn write_file(kit: &Kit, line: &mut Value) {
    let Some(path) = line["add"]["path"].as_str().map(str::to_owned) else { return };
    let stats: Value = serde_json::from_str(line["add"]["stats"].as_str().unwrap()).unwrap();
    let (rows, first) = (stats["numRecords"].as_i64().unwrap(), stats["minValues"]["id"].as_i64().unwrap());
    let last = stats["maxValues"]["id"].as_i64().unwrap();
    let rows: Vec<Value> =
        (0..rows).map(|row| json!({"id": if row == 0 { first } else { last }, "name": "n", "price": null})).collect();
    let written = kit.table.data_of(&path, None, crate::delta::testkit::MESSAGE, &rows).await;
    line["add"]["size"] = written["add"]["size"].clone();
}
