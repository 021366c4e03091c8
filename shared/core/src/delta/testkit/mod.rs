//! Delta tables made by hand, for tests.

mod shred;

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::log::{StagedKey, Version, checkpoint_key, commit_key};
use super::snapshot::Snapshot;
use crate::location::Location;
use crate::store::memory::MemoryWorld;
use crate::store::{ETag, GetOptions, ObjectKey, Objects, PutOptions, ReadObjects};

pub(crate) use shred::{parquet_rows, parquet_with};

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
        let bytes = parquet_rows(CHECKPOINT, &checkpoint_rows(snapshot));
        let at = checkpoint_key(&self.root, snapshot.version);
        self.world.objects.put(&at, bytes.into(), &PutOptions::default()).await.unwrap();
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

const CHECKPOINT: &str = "message spark_schema {
    optional group txn { optional binary appId (STRING); optional int64 version; }
    optional group add { optional binary path (STRING);
        optional group partitionValues (MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } }
        optional int64 size; optional int64 modificationTime; optional boolean dataChange; optional binary stats (STRING);
        optional group stats_parsed { optional int64 numRecords; } }
    optional group remove { optional binary path (STRING); optional int64 deletionTimestamp; optional boolean dataChange; }
    optional group metaData { optional binary id (STRING); optional binary schemaString (STRING);
        optional group partitionColumns (LIST) { repeated group list { optional binary element (STRING); } }
        optional group configuration (MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } } }
    optional group protocol { optional int32 minReaderVersion; optional int32 minWriterVersion; }
}";

fn checkpoint_rows(snapshot: &Snapshot) -> Vec<Value> {
    let mut rows = vec![
        json!({"protocol": {"minReaderVersion": snapshot.protocol.min_reader_version, "minWriterVersion": snapshot.protocol.min_writer_version}}),
        json!({"metaData": {"id": snapshot.metadata.id, "schemaString": snapshot.metadata.schema_string,
            "partitionColumns": snapshot.metadata.partition_columns, "configuration": snapshot.metadata.configuration}}),
    ];
    rows.extend(snapshot.app_ids.iter().map(|(app_id, version)| json!({"txn": {"appId": app_id, "version": version}})));
    for add in snapshot.live.values() {
        rows.push(json!({"add": {"path": add.path, "partitionValues": add.partition_values, "size": add.size,
            "modificationTime": add.modification_time, "dataChange": add.data_change, "stats": add.stats,
            "stats_parsed": {"numRecords": 1}}}));
    }
    for remove in snapshot.tombstones.values() {
        rows.push(json!({"remove": {"path": remove.path, "deletionTimestamp": remove.deletion_timestamp,
            "dataChange": remove.data_change}}));
    }
    rows
}
