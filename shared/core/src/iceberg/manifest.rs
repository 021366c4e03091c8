use super::IcebergError;
use super::avro::{AvroError, AvroLimits, Captured, Container};
use super::error::RecordError;
use super::metadata::resolve;
use super::tally::Count;
use crate::store::ObjectKey;

const MANIFEST_PATH: i32 = 500;
const MANIFEST_LENGTH: i32 = 501;
const ADDED_FILES: i32 = 504;
const EXISTING_FILES: i32 = 505;
const DELETED_FILES: i32 = 506;
const ADDED_ROWS: i32 = 512;
const EXISTING_ROWS: i32 = 513;
const CONTENT: i32 = 517;
const KEY_METADATA: i32 = 519;
const ADDED_SNAPSHOT: i32 = 503;
const STATUS: i32 = 0;
const SNAPSHOT: i32 = 1;
const FILE_PATH: i32 = 100;
const RECORD_COUNT: i32 = 103;

const LIST: &str = "a manifest list";
const MANIFEST: &str = "a manifest";

/// What the files are that a manifest names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManifestContent {
    /// Of manifests that say nothing as well: format 1 has no others.
    #[default]
    Data,
    Deletes,
}

/// A manifest as its list describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRef {
    pub at: ObjectKey,
    /// Size of the manifest file; unknown for manifests that metadata names in place.
    pub length_bytes: Option<u64>,
    /// Entries it must have at least, where the list says so.
    pub entries: Option<u64>,
    /// Entries whose files are there (not those that say that a file was removed), where the list says so.
    pub live: Option<u64>,
    /// Rows of those, where the list says so.
    pub live_rows: Option<u64>,
    /// Of the files that `snapshot` added, where the list says so.
    pub added: Option<u64>,
    pub added_rows: Option<u64>,
    pub content: ManifestContent,
    /// The snapshot that wrote it.
    pub snapshot: Option<i64>,
}

impl ManifestRef {
    /// A manifest of which nothing is known but where it lies.
    pub fn bare(at: ObjectKey) -> Self {
        Self {
            at,
            length_bytes: None,
            entries: None,
            live: None,
            live_rows: None,
            added: None,
            added_rows: None,
            content: ManifestContent::Data,
            snapshot: None,
        }
    }
}

/// What an entry says of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryStatus {
    Existing,
    Added,
    Deleted,
}

/// A file that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    pub at: ObjectKey,
    /// The snapshot that added the file, of entries that say so.
    pub added_by: Option<i64>,
    pub status: EntryStatus,
    /// Itself, and its rows.
    pub count: Count,
}

fn open<'a>(
    bytes: &'a [u8],
    wanted: &[i32],
    what: &'static str,
    at: &ObjectKey,
) -> Result<Container<'a>, IcebergError> {
    let container =
        Container::open(bytes, wanted, AvroLimits::default()).map_err(|error| RecordError::from(error).at(what, at))?;
    match container.metadata("format-version") {
        None | Some(b"1" | b"2" | b"3") => Ok(container),
        Some(other) => {
            let version = String::from_utf8_lossy(other).chars().take(20).collect();
            Err(IcebergError::UnknownVersion { at: at.clone(), version })
        }
    }
}

/// What an Avro file of a metadata folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AvroKind {
    List,
    Manifest,
    Other,
}

/// Whether bytes begin as an Avro container does.
pub(super) fn is_avro(bytes: &[u8]) -> bool {
    bytes.starts_with(b"Obj\x01")
}

/// By its schema.
pub(super) fn kind_of(bytes: &[u8], at: &ObjectKey) -> Result<AvroKind, IcebergError> {
    let container = open(bytes, &[MANIFEST_PATH, FILE_PATH], MANIFEST, at)?;
    Ok(match (container.check_has(0, MANIFEST_PATH), container.check_has(1, FILE_PATH)) {
        (Ok(()), _) => AvroKind::List,
        (Err(_), Ok(())) => AvroKind::Manifest,
        (Err(_), Err(_)) => AvroKind::Other,
    })
}

fn field<'a>(fields: &[Captured<'a>], index: usize) -> Captured<'a> {
    fields.get(index).copied().unwrap_or_default()
}

/// Manifests of a snapshot, data and delete manifests alike.
pub fn read_manifest_list(bytes: &[u8], at: &ObjectKey) -> Result<Vec<ManifestRef>, IcebergError> {
    let wanted = [
        MANIFEST_PATH,
        MANIFEST_LENGTH,
        KEY_METADATA,
        ADDED_FILES,
        EXISTING_FILES,
        DELETED_FILES,
        ADDED_SNAPSHOT,
        CONTENT,
        ADDED_ROWS,
        EXISTING_ROWS,
    ];
    let container = open(bytes, &wanted, LIST, at)?;
    container.check_has(0, MANIFEST_PATH).map_err(|error| RecordError::from(error).at(LIST, at))?;
    let mut manifests = Vec::new();
    let read = container.for_each(|fields| -> Result<(), RecordError> {
        let path =
            field(fields, 0).text().ok_or_else(|| AvroError::Corrupt("an entry without manifest_path".to_owned()))?;
        if matches!(field(fields, 2), Captured::Bytes(key) if !key.is_empty()) {
            return Err(IcebergError::Encrypted { at: at.clone(), what: "key_metadata of a manifest" }.into());
        }
        let counted = |index| field(fields, index).int().and_then(|count| u64::try_from(count).ok());
        let (added, existing, deleted) = (counted(3), counted(4), counted(5));
        let stated: Vec<u64> = [added, existing, deleted].into_iter().flatten().collect();
        manifests.push(ManifestRef {
            at: resolve(path, at)?,
            length_bytes: field(fields, 1).int().and_then(|length| u64::try_from(length).ok()),
            // What is counted at all must be there.
            entries: (!stated.is_empty()).then(|| stated.into_iter().fold(0, u64::saturating_add)),
            live: added.zip(existing).map(|(added, existing)| added.saturating_add(existing)),
            live_rows: counted(8).zip(counted(9)).map(|(added, existing)| added.saturating_add(existing)),
            added,
            added_rows: counted(8),
            content: if field(fields, 7).int() == Some(1) { ManifestContent::Deletes } else { ManifestContent::Data },
            snapshot: field(fields, 6).int(),
        });
        Ok(())
    });
    read.map_err(|error| error.at(LIST, at))?;
    Ok(manifests)
}

/// Files that a manifest names. Entries marked deleted count as well: until the manifest itself goes, keeping their
/// files is the cautious reading.
///
/// Deletion vectors lie in Puffin files that the same field names; the data file that a vector refers to is live in a
/// manifest of its own.
pub fn read_manifest(bytes: &[u8], manifest: &ManifestRef) -> Result<Vec<ManifestEntry>, IcebergError> {
    let at = &manifest.at;
    if let Some(length) = manifest.length_bytes
        && (bytes.len() as u64) < length
    {
        let message = format!("{} bytes instead of the {length} that its list states", bytes.len());
        return Err(IcebergError::unreadable(MANIFEST, at, message));
    }
    let container = open(bytes, &[STATUS, FILE_PATH, SNAPSHOT, RECORD_COUNT], MANIFEST, at)?;
    for (index, id) in [STATUS, FILE_PATH].into_iter().enumerate() {
        container.check_has(index, id).map_err(|error| RecordError::from(error).at(MANIFEST, at))?;
    }
    let mut files = Vec::new();
    let read = container.for_each(|fields| -> Result<(), RecordError> {
        let status = match field(fields, 0).int() {
            Some(0) => EntryStatus::Existing,
            Some(1) => EntryStatus::Added,
            Some(2) => EntryStatus::Deleted,
            _ => return Err(AvroError::Corrupt(format!("an entry with status {:?}", field(fields, 0))).into()),
        };
        let path =
            field(fields, 1).text().ok_or_else(|| AvroError::Corrupt("an entry without file_path".to_owned()))?;
        let added_by = field(fields, 2).int().or(manifest.snapshot).filter(|_| status == EntryStatus::Added);
        // Where nobody has counted rows, there may be any number.
        let rows = field(fields, 3).int().and_then(|rows| u64::try_from(rows).ok()).unwrap_or(u64::MAX);
        files.push(ManifestEntry { at: resolve(path, at)?, added_by, status, count: Count { files: 1, rows } });
        Ok(())
    });
    let entries = read.map_err(|error| error.at(MANIFEST, at))?;
    match manifest.entries {
        Some(stated) if entries < stated => {
            let message = format!("{entries} entries instead of the {stated} that its list states");
            Err(IcebergError::unreadable(MANIFEST, at, message))
        }
        _ => Ok(files),
    }
}
