//! Delta tables made by hand, for tests.

mod checkpoints;
mod shred;

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::log::{StagedKey, Version, commit_key};
use super::snapshot::Snapshot;
use crate::location::Location;
use crate::store::memory::MemoryWorld;
use crate::store::{ETag, GetOptions, ObjectKey, Objects, PutOptions, ReadObjects};

pub(crate) use checkpoints::{Form, action_lines};
pub(crate) use shred::{parquet_pages, parquet_rows};

/// 2026-01-01.
pub(crate) const NOW_MS: i64 = 1_767_225_600_000;
pub(crate) const TABLE_ID: &str = "11111111-1111-4111-8111-111111111111";
/// A file that fits [`TableKit::creation`].
pub(crate) const MESSAGE: &str =
    "message spark_schema { required int64 id; optional binary name (STRING); optional double price; }";

/// A world with one table's root.
#[derive(Clone)]
pub(crate) struct TableKit {
    pub world: MemoryWorld,
    pub root: Location,
}

impl TableKit {
    pub async fn new() -> Self {
        Self { world: MemoryWorld::new(NOW_MS), root: Location::new("lake", "wh/t") }
    }

    pub async fn put(&self, relative: &str, bytes: &[u8]) -> ETag {
        let at = self.root.object(relative);
        self.world.objects.put(&at, Bytes::copy_from_slice(bytes), &PutOptions::default()).await.unwrap()
    }

    pub async fn get(&self, at: &ObjectKey) -> Option<Bytes> {
        self.world.objects.get(at, &GetOptions::default()).await.ok().map(|object| object.bytes)
    }

    /// Actions of a commit that creates the table: id (not null), name, price, and the partition column `p`.
    pub fn creation(&self) -> Vec<Value> {
        creation_of(TABLE_ID, &["p"], json!({}))
    }

    pub async fn log(&self, version: i64, lines: &[Value]) {
        let at = commit_key(&self.root, Version(version));
        self.world.objects.put(&at, text(lines).into(), &PutOptions::default()).await.unwrap();
    }

    pub async fn delete_log(&self, version: i64) {
        self.world.objects.delete(&commit_key(&self.root, Version(version)), None).await.unwrap();
    }

    pub async fn version(&self, version: i64) -> Option<Bytes> {
        self.get(&commit_key(&self.root, Version(version))).await
    }

    /// Stages a proposal; its key and the ETag that an event would carry.
    pub async fn stage(&self, version: i64, id: u128, lines: &[Value]) -> (StagedKey, ETag) {
        let key = StagedKey { root: self.root.clone(), version: Version(version), id: Uuid::from_u128(id) };
        let etag = self.world.objects.put(&key.key(), text(lines).into(), &PutOptions::default()).await.unwrap();
        (key, etag)
    }

    /// Writes a data file that fits [`creation_of`] and answers its add action. `path` is stored literally.
    pub async fn data(&self, path: &str, partition: Option<&str>, rows: i64) -> Value {
        let rows: Vec<Value> = (0..rows).map(|id| json!({"id": id, "name": "n", "price": null})).collect();
        self.data_of(path, partition, MESSAGE, &rows).await
    }

    pub async fn data_of(&self, path: &str, partition: Option<&str>, message: &str, rows: &[Value]) -> Value {
        let bytes = parquet_rows(message, rows);
        self.put(path, &bytes).await;
        let mut add = add_line(&path.replace('%', "%25").replace(' ', "%20"), bytes.len());
        add["add"]["partitionValues"] = json!({ "p": partition });
        add["add"]["stats"] = json!(json!({ "numRecords": rows.len() }).to_string());
        add
    }

    pub async fn checkpoint(&self, snapshot: &Snapshot) {
        self.checkpoint_as(snapshot, Form::Classic).await;
    }
}

/// Lines as a commit file has them.
pub(crate) fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub(crate) fn creation_of(id: &str, partition_columns: &[&str], configuration: Value) -> Vec<Value> {
    let mut fields = vec![
        json!({"name": "id", "type": "long", "nullable": false, "metadata": {}}),
        json!({"name": "name", "type": "string", "nullable": true, "metadata": {}}),
        json!({"name": "price", "type": "double", "nullable": true, "metadata": {}}),
    ];
    for column in partition_columns {
        fields.push(json!({"name": column, "type": "string", "nullable": true, "metadata": {}}));
    }
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    vec![
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": partition_columns, "configuration": configuration, "createdTime": 1}}),
        json!({"commitInfo": {"operation": "CREATE TABLE", "operationParameters": {}}}),
    ]
}

pub(crate) fn add_line(path: &str, size: usize) -> Value {
    json!({"add": {"path": path, "partitionValues": {"p": "x"}, "size": size, "modificationTime": 1, "dataChange": true}})
}

pub(crate) fn remove_line(path: &str, deletion_timestamp: i64) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": deletion_timestamp, "dataChange": true}})
}

/// A commitInfo as deltalake writes it for an append.
pub(crate) fn append_info() -> Value {
    json!({"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}}})
}
