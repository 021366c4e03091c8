//! A small engine for tests: tables of an id and a number, in real Parquet files with real deletion vectors. What it writes
//! it writes as an engine would that reads a version, works, and stages a commit; what it reads it reads from objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::judging::{deleted_by, info, moved};
use super::kit::Kit;
use crate::delta::deletion_vector::{self, RowSet};
use crate::delta::footer::{Datum, Node, chunk_range, file_fields, read_footer, read_leaf};
use crate::delta::path::{Reach, resolve};
use crate::delta::testkit::MESSAGE;
use crate::delta::{AddFile, Version, snapshot};
use crate::store::{ByteRange, GetOptions};

/// Numbers by ids.
pub type Rows = BTreeMap<i64, i64>;

/// What a writer means to do; a function of the rows alone.
#[derive(Clone, Debug)]
pub enum Statement {
    /// Rows with these ids and the number 1.
    Append(Vec<i64>),
    /// Of the ids between.
    Delete(i64, i64),
    Update(i64, i64),
    /// Changes the row of this id, or inserts it.
    Merge(i64),
    /// All files into one.
    Optimize,
}

impl Statement {
    pub fn run(&self, rows: &mut Rows) {
        match self {
            Statement::Append(ids) => rows.extend(ids.iter().map(|id| (*id, 1))),
            Statement::Delete(from, to) => rows.retain(|id, _| !(*from..=*to).contains(id)),
            Statement::Update(from, to) => {
                for (id, number) in rows.range_mut(*from..=*to) {
                    *number = *number * 3 + id % 2;
                }
            }
            Statement::Merge(id) => {
                let number = rows.entry(*id).or_insert(1);
                *number = *number * 5 + 2;
            }
            Statement::Optimize => {}
        }
    }

    /// Ids between these are read.
    fn range(&self) -> Option<(i64, i64)> {
        match self {
            Statement::Delete(from, to) | Statement::Update(from, to) => Some((*from, *to)),
            Statement::Merge(id) => Some((*id, *id)),
            Statement::Append(_) | Statement::Optimize => None,
        }
    }
}

/// A live file, as it was read.
#[derive(Clone, Debug)]
pub struct Held {
    pub add: AddFile,
    /// By position.
    pub rows: Vec<(i64, i64)>,
    pub hidden: RowSet,
}

impl Held {
    fn visible(&self) -> impl Iterator<Item = (u64, (i64, i64))> {
        let places = self.rows.iter().enumerate().map(|(at, row)| (u64::try_from(at).unwrap(), *row));
        places.filter(|(at, _)| !self.hidden.contains(*at))
    }
}

#[derive(Clone)]
pub struct Engine {
    pub kit: Kit,
}

impl Engine {
    /// The files of a version.
    pub async fn read(&self, version: i64) -> Vec<Held> {
        let objects = &*self.kit.table.world.ports.objects;
        let root = &self.kit.table.root;
        let snapshot = snapshot::load(objects, root, Some(Version(version))).await.unwrap();
        let mut files = Vec::new();
        for add in snapshot.live.values() {
            let hidden = match &add.deletion_vector {
                Some(vector) => deletion_vector::read(objects, root, vector).await.unwrap(),
                None => RowSet::new(),
            };
            files.push(Held { add: add.clone(), rows: self.rows_of(add).await, hidden });
        }
        let mut paths: Vec<&str> = files.iter().map(|file| file.add.path.as_str()).collect();
        paths.dedup();
        assert_eq!(paths.len(), files.len(), "a file is live under two vectors: {paths:?}");
        files
    }

    /// All rows of the latest version.
    pub async fn rows(&self) -> Rows {
        let latest = self.kit.versions().last().copied().unwrap();
        let files = self.read(latest).await;
        let count: usize = files.iter().map(|file| file.visible().count()).sum();
        let rows: Rows = files.iter().flat_map(Held::visible).map(|(_, row)| row).collect();
        assert_eq!(rows.len(), count, "an id is there twice");
        rows
    }

    async fn rows_of(&self, add: &AddFile) -> Vec<(i64, i64)> {
        let objects = &*self.kit.table.world.ports.objects;
        let at = resolve(&self.kit.table.root, &add.path, Reach::Inside).unwrap();
        let footer = read_footer(objects, &at, u64::try_from(add.size).unwrap()).await.unwrap();
        let mut columns: Vec<Vec<Option<Datum>>> = vec![Vec::new(), Vec::new()];
        for (column, name) in columns.iter_mut().zip(["id", "price"]) {
            let fields = file_fields(&footer.metadata);
            let field = fields.iter().find(|field| field.name == name).unwrap();
            let Node::Leaf { kind, leaf } = &field.node else { panic!("{field:?}") };
            for group in footer.metadata.row_groups() {
                let chunk = group.column(*leaf);
                let (start, length) = chunk_range(chunk, footer.size_bytes).unwrap();
                let range = Some(ByteRange::From { start, length });
                let bytes = objects.get(&at, &GetOptions { range, if_match: None }).await.unwrap().bytes;
                let rows = u64::try_from(group.num_rows()).unwrap();
                read_leaf(&bytes, chunk, kind, rows, &mut |_, value| column.push(value)).unwrap();
            }
        }
        let number = |value: &Option<Datum>| match value {
            Some(Datum::Int(number)) => i64::try_from(*number).unwrap(),
            Some(Datum::Float(number)) => *number as i64,
            other => panic!("{other:?}"),
        };
        columns[0].iter().zip(&columns[1]).map(|(id, price)| (number(id), number(price))).collect()
    }

    /// A new file; its add action.
    pub async fn write(&self, name: &str, rows: &[(i64, i64)]) -> Value {
        let values: Vec<Value> =
            rows.iter().map(|(id, number)| json!({"id": id, "name": "n", "price": *number as f64})).collect();
        let mut line = self.kit.table.data_of(name, None, MESSAGE, &values).await;
        let ids = rows.iter().map(|(id, _)| *id);
        let stats = json!({"numRecords": rows.len(), "minValues": {"id": ids.clone().min()},
            "maxValues": {"id": ids.max()}, "nullCount": {"id": 0}});
        line["add"]["partitionValues"] = json!({});
        line["add"]["stats"] = json!(stats.to_string());
        line
    }

    /// The lines of a commit that read `files`. `tag` keeps names apart.
    pub async fn execute(&self, statement: &Statement, files: &[Held], tag: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        let commit_info = match statement {
            Statement::Append(ids) => {
                let rows: Vec<(i64, i64)> = ids.iter().map(|id| (*id, 1)).collect();
                lines.push(self.write(&format!("{tag}.parquet"), &rows).await);
                info("WRITE", json!({"operationParameters": {"mode": "Append"}, "isBlindAppend": true}))
            }
            Statement::Optimize => {
                let rows: Vec<(i64, i64)> = files.iter().flat_map(Held::visible).map(|(_, row)| row).collect();
                lines.extend(files.iter().map(|file| moved(removed(&file.add))));
                if !rows.is_empty() {
                    lines.push(moved(self.write(&format!("{tag}.parquet"), &rows).await));
                }
                info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": "[]"}}))
            }
            Statement::Delete(..) | Statement::Update(..) | Statement::Merge(_) => {
                let (from, to) = statement.range().unwrap();
                self.change(statement, files, tag, &mut lines).await;
                let compare = |op: &str, value: i64| json!({"op": op, "col": ["id"], "value": value});
                let predicate = json!({"op": "and", "args": [compare(">=", from), compare("<=", to)]});
                let mut reads = json!({"v": 1, "predicates": [predicate]});
                let operation = match statement {
                    Statement::Delete(..) => "DELETE",
                    Statement::Update(..) => "UPDATE",
                    _ => {
                        reads["matchedEqualsWritten"] = json!(true);
                        "MERGE"
                    }
                };
                info(operation, json!({ "readSet": reads }))
            }
        };
        lines.push(commit_info);
        let last = lines.last_mut().unwrap();
        last["commitInfo"]["engineInfo"] = json!(tag);
        lines
    }

    /// Hides the rows that are selected, and writes their new images.
    async fn change(&self, statement: &Statement, files: &[Held], tag: &str, lines: &mut Vec<Value>) {
        let (from, to) = statement.range().unwrap();
        let mut images = Rows::new();
        for file in files {
            let selected: BTreeMap<u64, (i64, i64)> =
                file.visible().filter(|(_, (id, _))| (from..=to).contains(id)).collect();
            if selected.is_empty() {
                continue;
            }
            let hidden = file.hidden.union(&selected.keys().copied().collect());
            lines.push(removed(&file.add));
            if hidden.len() < u64::try_from(file.rows.len()).unwrap() {
                let objects = &*self.kit.table.world.objects;
                let id = Uuid::from_u128(u128::from(hash(&format!("{tag} {}", file.add.path))));
                let vectors = deletion_vector::write(objects, &self.kit.table.root, id, &[&hidden]).await.unwrap();
                let mut line = added(&file.add);
                line["add"]["dataChange"] = json!(true);
                lines.push(deleted_by(line, &vectors[0]));
            }
            images.extend(selected.into_values());
        }
        statement.run(&mut images);
        if !images.is_empty() {
            let rows: Vec<(i64, i64)> = images.into_iter().collect();
            lines.push(self.write(&format!("{tag}.parquet"), &rows).await);
        }
    }
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The action that removes a live file as it is.
pub fn removed(add: &AddFile) -> Value {
    let mut line = json!({"remove": {"path": add.path, "deletionTimestamp": 1, "dataChange": true,
        "extendedFileMetadata": true, "partitionValues": {}, "size": add.size}});
    if let Some(vector) = &add.deletion_vector {
        line["remove"]["deletionVector"] = json!(vector);
    }
    line
}

fn added(add: &AddFile) -> Value {
    json!({"add": {"path": add.path, "partitionValues": {}, "size": add.size, "modificationTime": add.modification_time,
        "stats": add.stats}})
}
