//! Checkpoints of every kind, and log compactions, of a given state.

use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{TableKit, parquet_pages, text};
use crate::delta::log::{LogName, MainFile, log_key};
use crate::delta::{AddFile, DeletionVector, RemoveFile, Snapshot};
use crate::store::{Objects, PutOptions};

/// Kinds of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Classic,
    /// As a classic one, in row groups of so many rows and pages of so many.
    Grouped(usize, usize),
    Parts(u32),
    /// Everything in the main file.
    V2(MainFile),
    /// So many sidecars.
    Sidecars(MainFile, usize),
}

const VECTOR: &str = "optional group deletionVector { optional binary storageType (STRING);
    optional binary pathOrInlineDv (STRING); optional int32 offset; optional int32 sizeInBytes; optional int64 cardinality; }";
const STRINGS: &str = "(LIST) { repeated group list { optional binary element (STRING); } }";
const MAP: &str =
    "(MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } }";

fn message() -> String {
    format!(
        "message spark_schema {{
    optional group txn {{ optional binary appId (STRING); optional int64 version; }}
    optional group add {{ optional binary path (STRING); optional group partitionValues {MAP}
        optional int64 size; optional int64 modificationTime; optional boolean dataChange; optional binary stats (STRING);
        optional group tags {MAP} {VECTOR} optional int64 baseRowId; optional int64 defaultRowCommitVersion;
        optional binary clusteringProvider (STRING);
        optional group stats_parsed {{ optional int64 numRecords; }} }}
    optional group remove {{ optional binary path (STRING); optional int64 deletionTimestamp; optional boolean dataChange;
        optional group partitionValues {MAP} optional int64 size; optional binary stats (STRING); {VECTOR}
        optional int64 baseRowId; optional int64 defaultRowCommitVersion; }}
    optional group metaData {{ optional binary id (STRING); optional binary name (STRING);
        optional group format {{ optional binary provider (STRING); optional group options {MAP} }}
        optional binary schemaString (STRING); optional group partitionColumns {STRINGS}
        optional group configuration {MAP} optional int64 createdTime; }}
    optional group protocol {{ optional int32 minReaderVersion; optional int32 minWriterVersion;
        optional group readerFeatures {STRINGS} optional group writerFeatures {STRINGS} }}
    optional group domainMetadata {{ optional binary domain (STRING); optional binary configuration (STRING); optional boolean removed; }}
    optional group sidecar {{ optional binary path (STRING); optional int64 sizeInBytes; optional int64 modificationTime; }}
    optional group checkpointMetadata {{ optional int64 version; }}
}}"
    )
}

fn vector(vector: &Option<DeletionVector>) -> Value {
    serde_json::to_value(vector).unwrap()
}

fn add_line(add: &AddFile) -> Value {
    let mut line = json!({"add": {"path": add.path, "partitionValues": add.partition_values, "size": add.size,
        "modificationTime": add.modification_time, "dataChange": add.data_change, "stats": add.stats,
        "deletionVector": vector(&add.deletion_vector), "baseRowId": add.base_row_id,
        "defaultRowCommitVersion": add.default_row_commit_version,
        "stats_parsed": add.stats.as_ref().map(|_| json!({"numRecords": 1}))}});
    line["add"].as_object_mut().unwrap().extend(add.others.members());
    line
}

fn remove_line(remove: &RemoveFile) -> Value {
    json!({"remove": {"path": remove.path, "deletionTimestamp": remove.deletion_timestamp,
        "dataChange": remove.data_change, "partitionValues": remove.partition_values, "size": remove.size,
        "stats": remove.stats, "deletionVector": vector(&remove.deletion_vector), "baseRowId": remove.base_row_id,
        "defaultRowCommitVersion": remove.default_row_commit_version}})
}

/// The state as actions: first those that are no files, then files.
pub(crate) fn action_lines(snapshot: &Snapshot) -> (Vec<Value>, Vec<Value>) {
    let mut others = vec![
        json!({"protocol": serde_json::to_value(&snapshot.protocol).unwrap()}),
        json!({"metaData": serde_json::to_value(&snapshot.metadata).unwrap()}),
    ];
    others
        .extend(snapshot.app_ids.iter().map(|(app_id, version)| json!({"txn": {"appId": app_id, "version": version}})));
    others.extend(snapshot.domains.values().map(|domain| json!({"domainMetadata": domain})));
    let mut files: Vec<Value> = snapshot.live.values().map(add_line).collect();
    // Mixed, so that no order is relied on.
    for (index, remove) in snapshot.tombstones.values().enumerate() {
        files.insert((index * 2).min(files.len()), remove_line(remove));
    }
    (others, files)
}

impl TableKit {
    async fn put_log(&self, name: &str, bytes: Vec<u8>) {
        self.world.objects.put(&log_key(&self.root, name), bytes.into(), &PutOptions::default()).await.unwrap();
    }

    pub async fn checkpoint_as(&self, snapshot: &Snapshot, form: Form) {
        let version = snapshot.version;
        let (others, files) = action_lines(snapshot);
        let all: Vec<Value> = others.iter().chain(&files).cloned().collect();
        let parquet = |rows: &[Value]| parquet_pages(&message(), rows, usize::MAX, WriterProperties::default());
        match form {
            Form::Classic => {
                self.put_log(&LogName::ClassicCheckpoint(version).text().unwrap(), parquet(&all)).await;
            }
            Form::Grouped(group_rows, page_rows) => {
                let properties = WriterProperties::builder()
                    .set_data_page_row_count_limit(page_rows)
                    .set_write_batch_size(page_rows)
                    .set_dictionary_enabled(page_rows.is_multiple_of(2))
                    .build();
                let bytes = parquet_pages(&message(), &all, group_rows, properties);
                self.put_log(&LogName::ClassicCheckpoint(version).text().unwrap(), bytes).await;
            }
            Form::Parts(parts) => {
                for part in 1..=parts {
                    let rows: Vec<Value> =
                        all.iter().skip(part as usize - 1).step_by(parts as usize).cloned().collect();
                    let name = LogName::MultiPartCheckpoint { version, part, parts }.text().unwrap();
                    self.put_log(&name, parquet(&rows)).await;
                }
            }
            Form::V2(format) => self.main_file(snapshot, format, all).await,
            Form::Sidecars(format, count) => {
                let mut main = others;
                for index in 0..count {
                    let rows: Vec<Value> = files.iter().skip(index).step_by(count).cloned().collect();
                    let name = format!("{}.parquet", Uuid::from_u128(index as u128));
                    let bytes = parquet(&rows);
                    main.push(json!({"sidecar": {"path": name, "sizeInBytes": bytes.len(), "modificationTime": 1}}));
                    self.put_log(&format!("_sidecars/{name}"), bytes).await;
                }
                self.main_file(snapshot, format, main).await;
            }
        }
    }

    async fn main_file(&self, snapshot: &Snapshot, format: MainFile, mut rows: Vec<Value>) {
        let version = snapshot.version;
        rows.insert(0, json!({"checkpointMetadata": {"version": version.0}}));
        let bytes = match format {
            MainFile::Json => text(&rows).into_bytes(),
            MainFile::Parquet => parquet_pages(&message(), &rows, usize::MAX, WriterProperties::default()),
        };
        let name = LogName::V2Checkpoint { version, id: Uuid::from_u128(77), format }.text().unwrap();
        self.put_log(&name, bytes).await;
    }
}
