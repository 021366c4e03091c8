use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde::Deserialize;
use serde_json::Value;

use super::tally::{Count, Least};
use super::{IcebergError, ManifestRef};
use crate::location::split_uri;
use crate::store::ObjectKey;

/// Table metadata after decompression. Hundreds of snapshots make a few megabytes.
const METADATA_MAX_BYTES: u64 = 512 * 1024 * 1024;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const WHAT: &str = "table metadata";

/// A snapshot: where it names its manifests, and what its writer said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub id: i64,
    pub timestamp_ms: i64,
    pub list: Option<ObjectKey>,
    /// Format 1 may name manifests in place, instead of a list or beside one.
    pub inline: Vec<ObjectKey>,
    /// What its manifests must name at least, by its summary.
    pub least: Least,
    pub flink: Option<FlinkCommit>,
}

impl Snapshot {
    /// Manifests that metadata names in place. No writer names an empty one where there are files.
    pub fn inline_manifests(&self) -> impl Iterator<Item = ManifestRef> {
        let entries = (!self.least.is_nothing()).then_some(1);
        self.inline.iter().map(move |at| ManifestRef { entries, ..ManifestRef::bare(at.clone()) })
    }
}

/// What Flink's sink says in the summary of its commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlinkCommit {
    pub job: String,
    /// Newer sinks only.
    pub operator: Option<String>,
    /// Everything up to this checkpoint is committed.
    pub checkpoint: i64,
}

/// What a sweep needs of a table's metadata file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMetadata {
    pub format_version: u8,
    /// Optional in format 1.
    pub table_uuid: Option<String>,
    /// As written; not resolved.
    pub location: String,
    pub last_updated_ms: i64,
    pub last_sequence_number: i64,
    /// Every snapshot of the list, whether or not a branch or tag refers to it: staged ones have none.
    pub snapshots: Vec<Snapshot>,
    /// Older metadata files, statistics and partition statistics.
    pub files: Vec<ObjectKey>,
    pub properties: BTreeMap<String, String>,
    /// Names of the partition fields of all specs.
    pub partition_names: BTreeSet<String>,
}

/// Whether an object's name is that of a table metadata file.
pub fn is_metadata_name(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

impl TableMetadata {
    /// Reads a metadata file (gzip is recognised by its first bytes). `at` is where the bytes were read.
    pub fn parse(bytes: &[u8], at: &ObjectKey) -> Result<Self, IcebergError> {
        let plain;
        let json = if bytes.starts_with(GZIP_MAGIC) {
            plain = gunzip(bytes, at)?;
            plain.as_slice()
        } else {
            bytes
        };
        let version = check_version(json, at)?;
        let raw: Raw = serde_json::from_slice(json).map_err(|error| IcebergError::unreadable(WHAT, at, error))?;
        raw.check_readable(at)?;
        let snapshots = raw.snapshots(at)?;
        raw.check_snapshots(&snapshots, at)?;
        Ok(Self {
            format_version: version,
            snapshots,
            files: raw.files(at)?,
            partition_names: raw.partition_names(),
            table_uuid: raw.table_uuid,
            location: raw.location.ok_or_else(|| IcebergError::unreadable(WHAT, at, "it has no location"))?,
            last_updated_ms: raw.last_updated_ms.unwrap_or_default(),
            last_sequence_number: raw.last_sequence_number.unwrap_or_default(),
            properties: raw.properties.unwrap_or_default(),
        })
    }

    /// Refuses tables that must not be cleaned. Java's rule: anything but `true` switches collection off.
    pub fn check_gc_enabled(&self) -> Result<(), IcebergError> {
        match self.properties.get("gc.enabled") {
            Some(value) if !value.eq_ignore_ascii_case("true") => Err(IcebergError::GcDisabled(value.clone())),
            _ => Ok(()),
        }
    }
}

/// The object behind a path of the metadata, byte for byte. Old writers left out scheme and bucket: such a path is taken
/// if it lies in the folder of the table whose metadata names it, whose bucket is known. Others without scheme, and those
/// of other stores, are refused: they must never count as naming nothing.
pub(super) fn resolve(path: &str, named_by: &ObjectKey) -> Result<ObjectKey, IcebergError> {
    match split_uri(path) {
        Ok((bucket, key)) if !key.is_empty() => Ok(ObjectKey::new(bucket, key)),
        Err(_) if is_at_home(path, named_by) => {
            Ok(ObjectKey::new(named_by.bucket.clone(), path.trim_start_matches('/')))
        }
        _ => Err(IcebergError::UnresolvedPath { path: path.chars().take(200).collect(), named_by: named_by.clone() }),
    }
}

/// Whether a path without scheme and bucket lies where the folder of a metadata file lies itself.
fn is_at_home(path: &str, named_by: &ObjectKey) -> bool {
    let named_by = named_by.collapsed().unwrap_or_else(|| named_by.clone());
    let folder = named_by.key.rsplit_once('/').map(|(folder, _)| folder);
    let Some((root, _)) = folder.and_then(|folder| folder.rsplit_once('/')) else { return false };
    let Some(inside) = path.strip_prefix('/').and_then(|path| path.strip_prefix(root)) else { return false };
    // What some reader would resolve to another place is not taken.
    let is_plain = !inside.split('/').any(|step| matches!(step, "." | ".."));
    inside.starts_with('/') && !inside.ends_with('/') && is_plain
}

fn gunzip(bytes: &[u8], at: &ObjectKey) -> Result<Vec<u8>, IcebergError> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .take(METADATA_MAX_BYTES + 1)
        .read_to_end(&mut plain)
        .map_err(|error| IcebergError::unreadable(WHAT, at, error))?;
    if plain.len() as u64 > METADATA_MAX_BYTES {
        return Err(IcebergError::unreadable(WHAT, at, format!("more than {METADATA_MAX_BYTES} bytes")));
    }
    Ok(plain)
}

/// Looks at the version before anything else, since a newer one may differ anywhere.
fn check_version(json: &[u8], at: &ObjectKey) -> Result<u8, IcebergError> {
    #[derive(Deserialize)]
    struct Peek {
        #[serde(rename = "format-version")]
        format_version: Option<Value>,
    }
    let peek: Peek = serde_json::from_slice(json).map_err(|error| IcebergError::unreadable(WHAT, at, error))?;
    let Some(version) = peek.format_version else {
        return Err(IcebergError::unreadable(WHAT, at, "it has no format-version"));
    };
    match version.as_u64() {
        Some(1) => Ok(1),
        Some(2) => Ok(2),
        Some(3) => Ok(3),
        _ => Err(IcebergError::UnknownVersion { at: at.clone(), version: version.to_string() }),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    table_uuid: Option<String>,
    location: Option<String>,
    last_updated_ms: Option<i64>,
    last_sequence_number: Option<i64>,
    current_snapshot_id: Option<i64>,
    snapshots: Option<Vec<RawSnapshot>>,
    refs: Option<BTreeMap<String, RawRef>>,
    metadata_log: Option<Vec<RawLogEntry>>,
    statistics: Option<Vec<RawStatistics>>,
    partition_statistics: Option<Vec<RawStatistics>>,
    properties: Option<BTreeMap<String, String>>,
    encryption_keys: Option<Vec<Value>>,
    partition_spec: Option<Vec<RawField>>,
    partition_specs: Option<Vec<RawSpec>>,
    view_uuid: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawSnapshot {
    snapshot_id: i64,
    timestamp_ms: Option<i64>,
    manifest_list: Option<String>,
    manifests: Option<Vec<String>>,
    summary: Option<BTreeMap<String, Value>>,
    key_id: Option<Value>,
}

impl RawSnapshot {
    fn said(&self, name: &str) -> Option<&str> {
        self.summary.as_ref()?.get(name)?.as_str()
    }

    fn counted(&self, name: &str) -> Option<u64> {
        self.said(name)?.parse().ok()
    }

    /// Totals tell; where they are missing, what the snapshot added must be there, and as many rows as it counts; else
    /// whatever implies that there are some files; and where nothing is counted at all, an operation that adds files.
    fn least(&self) -> Least {
        let totals = [self.counted("total-data-files"), self.counted("total-delete-files")];
        let others = ["total-records", "added-data-files", "added-delete-files", "added-records", "added-files-size"];
        let [rows, data, deletes, added_rows, size] = others.map(|name| self.counted(name));
        let is_untold = totals.iter().chain(&[rows, data, deletes, added_rows, size]).all(Option::is_none);
        let adds = matches!(self.said("operation"), Some("append" | "overwrite" | "replace"));
        let implies = [rows, data, deletes, added_rows, size].iter().flatten().any(|count| *count > 0);
        // Writers carry totals on from snapshot to snapshot: once lost, they stay lost. Where there are none of a kind, each
        // weaker count is taken where the stronger one is missing.
        let [has_data, has_deletes] = totals.map(|total| total.is_some());
        let weaker = |count: Option<u64>, is_told: bool| count.filter(|_| !is_told).unwrap_or_default();
        let [total_data, total_deletes] = totals.map(Option::unwrap_or_default);
        Least {
            data: Count { files: total_data, rows: weaker(rows, has_data) },
            deletes: total_deletes,
            any: u64::from((is_untold && adds) || implies),
            added_data: Count { files: weaker(data, has_data), rows: weaker(added_rows, has_data) },
            added_deletes: weaker(deletes, has_deletes),
        }
    }

    fn flink(&self) -> Option<FlinkCommit> {
        Some(FlinkCommit {
            job: self.said("flink.job-id")?.to_ascii_lowercase(),
            operator: self.said("flink.operator-id").map(str::to_ascii_lowercase),
            checkpoint: self.said("flink.max-committed-checkpoint-id")?.parse().ok()?,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawRef {
    snapshot_id: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawLogEntry {
    metadata_file: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawStatistics {
    statistics_path: String,
}

#[derive(Debug, Deserialize)]
struct RawSpec {
    fields: Option<Vec<RawField>>,
}

#[derive(Debug, Deserialize)]
struct RawField {
    name: Option<String>,
}

impl Raw {
    fn check_readable(&self, at: &ObjectKey) -> Result<(), IcebergError> {
        if self.view_uuid.is_some() {
            return Err(IcebergError::unreadable(WHAT, at, "it describes a view"));
        }
        let encrypted = |what| Err(IcebergError::Encrypted { at: at.clone(), what });
        if self.encryption_keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            return encrypted("encryption-keys");
        }
        if self.snapshots.iter().flatten().any(|snapshot| snapshot.key_id.as_ref().is_some_and(|id| !id.is_null())) {
            return encrypted("key-id of a snapshot");
        }
        if self.properties.iter().flatten().any(|(name, _)| name == "encryption.key-id") {
            return encrypted("property encryption.key-id");
        }
        Ok(())
    }

    fn snapshots(&self, at: &ObjectKey) -> Result<Vec<Snapshot>, IcebergError> {
        let mut snapshots = Vec::new();
        for snapshot in self.snapshots.iter().flatten() {
            if snapshot.manifest_list.is_none() && snapshot.manifests.is_none() {
                let message = format!("snapshot {} names no manifests", snapshot.snapshot_id);
                return Err(IcebergError::unreadable(WHAT, at, message));
            }
            let inline = snapshot.manifests.iter().flatten().map(|path| resolve(path, at));
            snapshots.push(Snapshot {
                id: snapshot.snapshot_id,
                timestamp_ms: snapshot.timestamp_ms.unwrap_or_default(),
                list: snapshot.manifest_list.as_ref().map(|list| resolve(list, at)).transpose()?,
                inline: inline.collect::<Result<_, _>>()?,
                least: snapshot.least(),
                flink: snapshot.flink(),
            });
        }
        Ok(snapshots)
    }

    /// What is current, or named by a branch or tag, must be in the list; -1 stands for no snapshot.
    fn check_snapshots(&self, snapshots: &[Snapshot], at: &ObjectKey) -> Result<(), IcebergError> {
        let known: BTreeSet<i64> = snapshots.iter().map(|snapshot| snapshot.id).collect();
        let current = self.current_snapshot_id.filter(|id| *id != -1);
        let named = self.refs.iter().flatten().map(|(_, reference)| reference.snapshot_id);
        match current.into_iter().chain(named).find(|id| !known.contains(id)) {
            None => Ok(()),
            Some(id) => Err(IcebergError::unreadable(WHAT, at, format!("snapshot {id} is not in the list"))),
        }
    }

    fn files(&self, at: &ObjectKey) -> Result<Vec<ObjectKey>, IcebergError> {
        let log = self.metadata_log.iter().flatten().map(|entry| &entry.metadata_file);
        let statistics = self.statistics.iter().chain(&self.partition_statistics).flatten();
        log.chain(statistics.map(|entry| &entry.statistics_path)).map(|path| resolve(path, at)).collect()
    }

    fn partition_names(&self) -> BTreeSet<String> {
        let specs = self.partition_specs.iter().flatten().filter_map(|spec| spec.fields.as_ref());
        specs.chain(&self.partition_spec).flatten().filter_map(|field| field.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn at() -> ObjectKey {
        ObjectKey::new("lake", "t/metadata/v1.metadata.json")
    }

    fn parse(json: &Value) -> Result<TableMetadata, IcebergError> {
        TableMetadata::parse(json.to_string().as_bytes(), &at())
    }

    fn valid() -> Value {
        json!({
            "format-version": 2, "table-uuid": "u", "location": "s3://lake/t", "last-updated-ms": 7,
            "last-sequence-number": 3, "current-snapshot-id": 2,
            "snapshots": [
                {"snapshot-id": 1, "manifest-list": "s3://lake/t/metadata/snap-1.avro"},
                {"snapshot-id": 2, "manifest-list": "s3a://lake/t/metadata/snap-2.avro", "summary": {"operation": "append"}},
            ],
            "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
            "metadata-log": [{"timestamp-ms": 1, "metadata-file": "s3://lake/t/metadata/v0.metadata.json"}],
            "statistics": [{"snapshot-id": 2, "statistics-path": "s3://lake/t/metadata/a.stats", "blob-metadata": []}],
            "partition-statistics": [{"snapshot-id": 2, "statistics-path": "s3://lake/t/metadata/p.parquet"}],
            "partition-specs": [{"spec-id": 0, "fields": [{"name": "_day", "field-id": 1000}]}],
            "properties": {"owner": "x"},
            "something-new": {"a": [1]}
        })
    }

    #[test]
    fn everything_that_names_a_file_is_found() {
        let metadata = parse(&valid()).unwrap();
        assert_eq!(metadata.snapshots.len(), 2);
        let keys: Vec<&str> = metadata.files.iter().map(|at| at.key.as_str()).collect();
        assert_eq!(keys, ["t/metadata/v0.metadata.json", "t/metadata/a.stats", "t/metadata/p.parquet"]);
        assert_eq!(metadata.partition_names.iter().collect::<Vec<_>>(), ["_day"]);
        metadata.check_gc_enabled().unwrap();
    }

    #[test]
    fn gzip_is_recognised_by_its_bytes() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(valid().to_string().as_bytes()).unwrap();
        let packed = gzip.finish().unwrap();
        assert_eq!(TableMetadata::parse(&packed, &at()).unwrap(), parse(&valid()).unwrap());
        let cut = packed.get(..packed.len() / 2).unwrap();
        assert!(matches!(TableMetadata::parse(cut, &at()), Err(IcebergError::Unreadable { .. })));
    }

    #[test]
    fn format_1_may_name_manifests_in_place() {
        let metadata = parse(&json!({
            "format-version": 1, "location": "s3://lake/t", "current-snapshot-id": 1,
            "snapshots": [{"snapshot-id": 1, "manifests": ["s3://lake/t/metadata/m0.avro"]}],
            "partition-spec": [{"name": "day"}]
        }))
        .unwrap();
        let manifest = ObjectKey::new("lake", "t/metadata/m0.avro");
        assert_eq!((&metadata.snapshots[0].list, &metadata.snapshots[0].inline), (&None, &vec![manifest]));
        assert!(metadata.partition_names.contains("day"));
    }

    type Change = fn(&mut Value);

    #[test]
    fn what_cannot_be_read_completely_is_refused() {
        let cases: [(&str, Change); 13] = [
            ("UnknownVersion", |m| m["format-version"] = json!(4)),
            ("UnknownVersion", |m| m["format-version"] = json!("2")),
            ("Unreadable", |m| m["format-version"] = Value::Null),
            ("Encrypted", |m| m["encryption-keys"] = json!([{"key-id": "k"}])),
            ("Encrypted", |m| m["snapshots"][0]["key-id"] = json!("k")),
            ("Encrypted", |m| m["properties"]["encryption.key-id"] = json!("k")),
            ("UnresolvedPath", |m| m["metadata-log"][0]["metadata-file"] = json!("metadata/v0.metadata.json")),
            ("UnresolvedPath", |m| m["snapshots"][0]["manifest-list"] = json!("hdfs://nn/t/snap.avro")),
            ("Unreadable", |m| m["snapshots"][0]["manifest-list"] = Value::Null),
            ("Unreadable", |m| m["current-snapshot-id"] = json!(9)),
            ("Unreadable", |m| m["refs"]["tag"] = json!({"snapshot-id": 9, "type": "tag"})),
            ("Unreadable", |m| m["location"] = Value::Null),
            ("Unreadable", |m| m["view-uuid"] = json!("v")),
        ];
        for (expected, change) in cases {
            let mut metadata = valid();
            change(&mut metadata);
            let error = format!("{:?}", parse(&metadata).unwrap_err());
            assert!(error.starts_with(expected), "{expected}: {error}");
        }
        assert!(matches!(TableMetadata::parse(b"{\"format-version\":2", &at()), Err(IcebergError::Unreadable { .. })));
        assert!(matches!(TableMetadata::parse(b"", &at()), Err(IcebergError::Unreadable { .. })));
    }

    #[test]
    fn paths_without_scheme_are_of_the_tables_own_folder_or_refused() {
        let named_by = ObjectKey::new("lake", "wh/old/metadata/m0.avro");
        for named_by in [&named_by, &ObjectKey::new("lake", "wh//old/metadata/m0.avro")] {
            let found = resolve("/wh/old/data/x%20y.parquet", named_by).unwrap();
            assert_eq!(found, ObjectKey::new("lake", "wh/old/data/x%20y.parquet"));
        }
        let others = [
            "/wh/older/data/x",
            "/wh/old",
            "/wh/old/",
            "/elsewhere/x",
            "wh/old/data/x",
            "//wh/old/data/x",
            "/wh/old/../new/x",
            "/wh/old/./x",
            "file:/wh/old/data/x",
            "",
            "/",
        ];
        for path in others {
            assert!(matches!(resolve(path, &named_by), Err(IcebergError::UnresolvedPath { .. })), "{path}");
        }
        // There is no folder that would tell.
        for key in ["m0.avro", "metadata/m0.avro"] {
            assert!(resolve("/data/x", &ObjectKey::new("lake", key)).is_err(), "{key}");
        }
    }

    #[test]
    fn only_true_leaves_collection_on() {
        for (value, allowed) in [("true", true), ("TRUE", true), ("false", false), ("no", false), ("", false)] {
            let mut metadata = valid();
            metadata["properties"]["gc.enabled"] = json!(value);
            assert_eq!(parse(&metadata).unwrap().check_gc_enabled().is_ok(), allowed, "{value}");
        }
    }

    #[test]
    fn names_of_metadata_files() {
        for name in ["v3.metadata.json", "00001-u.metadata.json", "v3.gz.metadata.json", "v3.metadata.json.gz"] {
            assert!(is_metadata_name(name), "{name}");
        }
        assert!(!is_metadata_name("metadata.json.tmp"));
    }
}
