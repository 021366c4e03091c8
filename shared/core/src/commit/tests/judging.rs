//! A scene for the judge alone: a table, what won, and what is proposed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::commit::candidate::Candidate;
use crate::commit::conflict::{Before, Conflict, FoldInputs, fold};
use crate::commit::facts::FileFacts;
use crate::commit::isolation::Isolation;
use crate::commit::judge::{Admission, Inputs, Judgement, judge};
use crate::commit::read_set::Domain;
use crate::commit::row_level::{Loss, Match, RowFacts, RowNeeds};
use crate::commit::table_facts::TableFacts;
use crate::commit::table_state::TableState;
use crate::commit::verdict::Refusal;
use crate::commit::version_record::Blindness;
use crate::delta::deletion_vector::{self, RowSet};
use crate::delta::footer::Datum;
use crate::delta::schema::Schema;
use crate::delta::snapshot::{self, LoggedCommit, key_of_remove};
use crate::delta::testkit::{TABLE_ID, TableKit, creation_of, text};
use crate::delta::{DeletionVector, Snapshot, Version, features};
use crate::location::Location;
use crate::ports::{IdentityWriters, IsolationLevel};

#[derive(Clone, Debug, Default)]
pub struct Scene {
    pub creation: Vec<Value>,
    /// Versions 1, 2, …
    pub winners: Vec<Vec<Value>>,
    /// Read version 0.
    pub candidate: Vec<Value>,
    pub isolation: IsolationLevel,
    pub identity: IdentityWriters,
    pub blindness: BTreeMap<Version, Blindness>,
    /// Whether rows of files satisfy what the candidate read, by keys; of others one does.
    pub matches: BTreeMap<String, Match>,
    /// Vectors that are not inline, by what they are known by.
    pub held: BTreeMap<String, RowSet>,
    /// Ids of the rows of files, by keys; of others they go up from the least one, one by one.
    pub ids: BTreeMap<String, Vec<i64>>,
    /// Sets the file for merged vectors apart from those of other judgements on the table.
    pub vectors: u128,
}

struct Loaded {
    root: Location,
    latest: Version,
    at_read: Snapshot,
    at_latest: Snapshot,
    winners: Vec<LoggedCommit>,
    state: TableState,
    candidate: Result<Candidate, Refusal>,
}

impl Loaded {
    fn table<'a>(&'a self, schema: &'a Schema) -> TableFacts<'a> {
        let (root, metadata) = (&self.root, &self.state.metadata);
        let has_deletion_vectors = features::has_deletion_vectors_on(&self.state.protocol, metadata);
        TableFacts { root, metadata, schema, has_deletion_vectors }
    }
}

impl Scene {
    /// A table partitioned by `p`, or not at all, with properties; and the features of a protocol 3/7, if any.
    pub fn table(columns: &[&str], features: &[&str], properties: Value) -> Scene {
        let mut creation = creation_of(TABLE_ID, columns, properties);
        if !features.is_empty() {
            creation[0] = protocol(features);
        }
        Scene { creation, ..Scene::default() }
    }

    pub fn with_files(mut self, adds: impl IntoIterator<Item = Value>) -> Scene {
        self.creation.extend(adds);
        self
    }

    pub fn won_by(mut self, lines: Vec<Value>) -> Scene {
        self.winners.push(lines);
        self
    }

    pub fn candidate(mut self, lines: Vec<Value>) -> Scene {
        self.candidate = lines;
        self
    }

    pub fn under(mut self, isolation: IsolationLevel) -> Scene {
        self.isolation = isolation;
        self
    }

    /// Everything that a judgement hangs on, read from a log.
    async fn loaded(&self) -> Loaded {
        let kit = TableKit::new().await;
        kit.log(0, &self.creation).await;
        for (index, lines) in self.winners.iter().enumerate() {
            kit.log(i64::try_from(index).unwrap() + 1, lines).await;
        }
        let latest = Version(i64::try_from(self.winners.len()).unwrap());
        let objects = &*kit.world.ports.objects;
        let at_read = snapshot::load(objects, &kit.root, Some(Version(0))).await.unwrap();
        let at_latest = snapshot::load(objects, &kit.root, Some(latest)).await.unwrap();
        let versions = (1..=latest.0).map(Version).collect();
        let winners = snapshot::read_commits(objects, &kit.root, versions).await.unwrap();
        let last = snapshot::read_commit(objects, &kit.root, latest).await.unwrap();
        let stamp_ms = last.actions.commit_info.and_then(|info| info.number("inCommitTimestamp"));
        let state = TableState::of_snapshot(&at_latest, stamp_ms);
        let candidate = Candidate::parse(&kit.root, Version(1), text(&self.candidate).into());
        Loaded { root: kit.root, latest, at_read, at_latest, winners, state, candidate }
    }

    pub async fn judge(&self) -> Judgement {
        let loaded = self.loaded().await;
        let candidate = match &loaded.candidate {
            Ok(candidate) => candidate,
            Err(refusal) => return Judgement::Refuse(refusal.clone()),
        };
        let winners: Vec<_> = loaded.winners.iter().cloned().map(Arc::new).collect();
        let mut wanted = BTreeSet::new();
        let mut files: Option<FileFacts> = None;
        let mut rows: Option<RowFacts> = None;
        for _ in 0..8 {
            let judgement = judge(Inputs {
                root: &loaded.root,
                candidate,
                latest: loaded.latest,
                state: Some(&loaded.state),
                winners: &winners,
                files: files.as_ref(),
                rows: rows.as_ref(),
                default_isolation: self.isolation,
                identity_writers: self.identity,
                blindness: &self.blindness,
            });
            match judgement {
                Judgement::NeedsFiles(more) => {
                    wanted.extend(more);
                    files = Some(FileFacts::of_snapshots(wanted.clone(), Some(&loaded.at_read), &loaded.at_latest));
                }
                Judgement::NeedsRows(needs) => self.read_rows(&loaded, candidate, &needs, &mut rows),
                decided => return decided,
            }
        }
        panic!("the judge asks without end: {wanted:?}");
    }

    /// What was asked about rows: inline vectors are read, rows of files are as the scene says.
    fn read_rows(&self, loaded: &Loaded, candidate: &Candidate, needs: &RowNeeds, rows: &mut Option<RowFacts>) {
        let facts = rows.get_or_insert_with(|| RowFacts::new(Uuid::from_u128(7 + self.vectors), 1));
        for (key, vector) in &needs.vectors {
            let held = self.held.get(key).cloned();
            let rows = held.map_or_else(|| deletion_vector::read_held(vector, &[]), Ok);
            facts.vectors.insert(key.clone(), rows);
        }
        for key in needs.files.keys() {
            let found = self.matches.get(&key.key).cloned().unwrap_or_else(|| Match::Row(0, String::new()));
            facts.matches.insert(key.clone(), found);
        }
        for (at, loss) in &needs.losses {
            facts.losses.insert(at.clone(), self.look(loaded, candidate, &at.0.key, loss));
        }
    }

    /// Whether the candidate read one of the rows, by their ids and the file's partition.
    fn look(&self, loaded: &Loaded, candidate: &Candidate, key: &str, loss: &Loss) -> Match {
        let stats: Value = serde_json::from_str(loss.add.stats.as_deref().unwrap()).unwrap();
        let (first, count) = (stats["minValues"]["id"].as_i64().unwrap(), stats["numRecords"].as_i64().unwrap());
        let ids = self.ids.get(key).cloned().unwrap_or_else(|| (first..first + count).collect());
        let schema = Schema::parse(&loaded.state.metadata.schema_string).unwrap();
        let reads = candidate.reads.bind(loaded.table(&schema));
        let lost = (0_u64..).zip(ids).filter(|(row, _)| loss.rows.contains(*row));
        let read = |id: i64| {
            let slots: Vec<Domain> = reads
                .columns()
                .iter()
                .map(|column| match column.path[0].as_str() {
                    "id" => Domain::of_row(Some(&Datum::Int(id.into())), &column.kind),
                    "p" => Domain::of_partition(Some(&loss.add.partition_values), "p", &column.kind),
                    _ => Domain::any(&column.kind),
                })
                .collect();
            reads.may_match(&slots)
        };
        lost.filter(|(_, id)| read(*id))
            .map(|(row, id)| Match::Row(row, format!("id={id}")))
            .next()
            .unwrap_or(Match::No)
    }

    /// Only the fold, under a level of isolation that is given, knowing everything.
    pub async fn fold(&self, isolation: Isolation) -> Result<(), Conflict> {
        let loaded = self.loaded().await;
        let candidate = loaded.candidate.clone().map_err(Conflict::Refused)?;
        let keys = loaded.at_read.live.keys().chain(loaded.at_latest.live.keys()).map(|key| key.at.clone());
        let removed = loaded.winners.iter().flat_map(|winner| &winner.actions.removes);
        let removed = removed.map(|remove| key_of_remove(&loaded.root, remove).unwrap().at);
        let wanted = keys.chain(removed).collect();
        let files = FileFacts::of_snapshots(wanted, Some(&loaded.at_read), &loaded.at_latest);
        let schema = Schema::parse(&loaded.state.metadata.schema_string).unwrap();
        let inputs = FoldInputs {
            candidate: &candidate,
            isolation,
            table: loaded.table(&schema),
            app_ids: &loaded.state.app_ids,
            files: Some(&files),
            rows: None,
            blindness: &self.blindness,
            identity_writers: self.identity,
        };
        let before = Before::Known(Box::new(files.table_at_read().unwrap().clone()));
        let mut rows = None;
        for _ in 0..8 {
            let folded = fold(FoldInputs { rows: rows.as_ref(), ..inputs }, before.clone(), &loaded.winners)?;
            if folded.rows.needs.is_empty() {
                return Ok(());
            }
            self.read_rows(&loaded, &candidate, &folded.rows.needs, &mut rows);
        }
        panic!("the fold asks without end");
    }

    pub async fn outcome(&self) -> String {
        outcome(&self.judge().await)
    }

    pub async fn admission(&self) -> Admission {
        match self.judge().await {
            Judgement::Admit(admission) => *admission,
            other => panic!("{}: {other:?}", outcome(&other)),
        }
    }
}

/// `admitted`, or `ConcurrentAppendException WHOLE_TABLE_READ`, or `superseded …`.
pub fn outcome(judgement: &Judgement) -> String {
    match judgement {
        Judgement::Admit(_) => "admitted".to_owned(),
        Judgement::Refuse(refusal) => format!("{:?} {}", refusal.exception, refusal.reason),
        Judgement::Supersede(refusal) => format!("superseded {}", refusal.reason),
        Judgement::Landed { version } => format!("landed {version}"),
        Judgement::NeedsFiles(_) => "needs files".to_owned(),
        Judgement::NeedsRows(_) => "needs rows".to_owned(),
    }
}

pub fn protocol(features: &[&str]) -> Value {
    const READERS: [&str; 5] = ["deletionVectors", "timestampNtz", "v2Checkpoint", "columnMapping", "catalogManaged"];
    let readers: Vec<&&str> = features.iter().filter(|name| READERS.contains(name)).collect();
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": features}})
}

/// An add of a file with three rows whose ids are `first`, `first + 1` and `first + 2`.
pub fn add(path: &str, first: i64) -> Value {
    let stats =
        json!({"numRecords": 3, "minValues": {"id": first}, "maxValues": {"id": first + 2}, "nullCount": {"id": 0}});
    let values = match path.split_once('/').and_then(|(folder, _)| folder.strip_prefix("p=")) {
        Some(p) => json!({ "p": p }),
        None => json!({}),
    };
    json!({"add": {"path": path, "partitionValues": values, "size": 10, "modificationTime": 1, "dataChange": true,
        "stats": stats.to_string()}})
}

pub fn remove(path: &str) -> Value {
    let values = match path.split_once('/').and_then(|(folder, _)| folder.strip_prefix("p=")) {
        Some(p) => json!({ "p": p }),
        None => json!({}),
    };
    json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true, "partitionValues": values}})
}

/// The same action, changing no data.
pub fn moved(mut line: Value) -> Value {
    for action in ["add", "remove"] {
        if !line[action].is_null() {
            line[action]["dataChange"] = json!(false);
        }
    }
    line
}

/// The same action, under a deletion vector.
pub fn under(mut line: Value, vector: &str, cardinality: i64) -> Value {
    for action in ["add", "remove"] {
        if !line[action].is_null() {
            line[action]["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": vector, "offset": 1,
                "sizeInBytes": 34, "cardinality": cardinality});
        }
    }
    if let Some(stats) = line["add"]["stats"].as_str() {
        let mut stats: Value = serde_json::from_str(stats).unwrap();
        stats["tightBounds"] = json!(false);
        line["add"]["stats"] = json!(stats.to_string());
    }
    line
}

/// The same action, under an inline vector of these rows.
pub fn deleted(line: Value, rows: impl IntoIterator<Item = u64>) -> Value {
    deleted_by(line, &deletion_vector::inline(&rows.into_iter().collect::<RowSet>()))
}

/// The same action, under a vector.
pub fn deleted_by(mut line: Value, vector: &DeletionVector) -> Value {
    for action in ["add", "remove"] {
        if !line[action].is_null() {
            line[action]["deletionVector"] = serde_json::to_value(vector).unwrap();
        }
    }
    if let Some(stats) = line["add"]["stats"].as_str() {
        let mut stats: Value = serde_json::from_str(stats).unwrap();
        stats["tightBounds"] = json!(false);
        line["add"]["stats"] = json!(stats.to_string());
    }
    line
}

/// `more` is merged into the commitInfo.
pub fn info(operation: &str, more: Value) -> Value {
    let mut info = json!({"timestamp": 1, "operation": operation, "operationParameters": {}});
    for (name, value) in more.as_object().unwrap() {
        info[name] = value.clone();
    }
    json!({"commitInfo": info})
}

pub fn append(tag: &str) -> Value {
    info("WRITE", json!({"operationParameters": {"mode": "Append"}, "engineInfo": tag}))
}

/// A declared read of the rows whose `column` is `value`.
pub fn reads(column: &str, value: Value) -> Value {
    json!({"readSet": {"v": 1, "predicates": [{"op": "=", "col": [column], "value": value}]}})
}

pub fn txn(app_id: &str, version: i64) -> Value {
    json!({"txn": {"appId": app_id, "version": version}})
}

pub fn domain(name: &str, configuration: &str) -> Value {
    json!({"domainMetadata": {"domain": name, "configuration": configuration, "removed": false}})
}

/// The metaData of a scene's table with other properties.
pub fn metadata(scene: &Scene, properties: Value) -> Value {
    let mut line = scene.creation.iter().find(|line| !line["metaData"].is_null()).unwrap().clone();
    for (name, value) in properties.as_object().unwrap() {
        line["metaData"]["configuration"][name] = value.clone();
    }
    line
}
