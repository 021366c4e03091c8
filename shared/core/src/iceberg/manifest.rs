use super::IcebergError;
use super::avro::{AvroError, AvroLimits, Captured, Container};
use super::error::RecordError;
use super::metadata::resolve;
use crate::store::ObjectKey;

const MANIFEST_PATH: i32 = 500;
const MANIFEST_LENGTH: i32 = 501;
const ADDED_FILES: i32 = 504;
const EXISTING_FILES: i32 = 505;
const DELETED_FILES: i32 = 506;
const KEY_METADATA: i32 = 519;
const STATUS: i32 = 0;
const FILE_PATH: i32 = 100;

const LIST: &str = "a manifest list";
const MANIFEST: &str = "a manifest";

/// A manifest as its list describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRef {
    pub at: ObjectKey,
    /// Size of the manifest file; unknown for manifests that metadata names in place.
    pub length_bytes: Option<u64>,
    /// Entries it must have, where the list says so.
    pub entries: Option<u64>,
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
        None | Some(b"1" | b"2") => Ok(container),
        Some(other) => {
            let version = String::from_utf8_lossy(other).chars().take(20).collect();
            Err(IcebergError::UnknownVersion { at: at.clone(), version })
        }
    }
}

fn field<'a>(fields: &[Captured<'a>], index: usize) -> Captured<'a> {
    fields.get(index).copied().unwrap_or_default()
}

/// Manifests of a snapshot, data and delete manifests alike.
pub fn read_manifest_list(bytes: &[u8], at: &ObjectKey) -> Result<Vec<ManifestRef>, IcebergError> {
    let wanted = [MANIFEST_PATH, MANIFEST_LENGTH, KEY_METADATA, ADDED_FILES, EXISTING_FILES, DELETED_FILES];
    let container = open(bytes, &wanted, LIST, at)?;
    container.check_has(0, MANIFEST_PATH).map_err(|error| RecordError::from(error).at(LIST, at))?;
    let mut manifests = Vec::new();
    let read = container.for_each(|fields| -> Result<(), RecordError> {
        let path =
            field(fields, 0).text().ok_or_else(|| AvroError::Corrupt("an entry without manifest_path".to_owned()))?;
        if matches!(field(fields, 2), Captured::Bytes(key) if !key.is_empty()) {
            return Err(IcebergError::Encrypted { at: at.clone(), what: "key_metadata of a manifest" }.into());
        }
        let counts: Option<Vec<u64>> =
            (3..6).map(|index| field(fields, index).int().and_then(|count| u64::try_from(count).ok())).collect();
        manifests.push(ManifestRef {
            at: resolve(path, at)?,
            length_bytes: field(fields, 1).int().and_then(|length| u64::try_from(length).ok()),
            entries: counts.map(|counts| counts.into_iter().fold(0, u64::saturating_add)),
        });
        Ok(())
    });
    read.map_err(|error| error.at(LIST, at))?;
    Ok(manifests)
}

/// Files that a manifest names. Entries marked deleted count as well: until the manifest itself goes, keeping their
/// files is the cautious reading.
pub fn read_manifest(bytes: &[u8], manifest: &ManifestRef) -> Result<Vec<ObjectKey>, IcebergError> {
    let at = &manifest.at;
    if let Some(length) = manifest.length_bytes
        && (bytes.len() as u64) < length
    {
        let message = format!("{} bytes instead of the {length} that its list states", bytes.len());
        return Err(IcebergError::unreadable(MANIFEST, at, message));
    }
    let container = open(bytes, &[STATUS, FILE_PATH], MANIFEST, at)?;
    for (index, id) in [STATUS, FILE_PATH].into_iter().enumerate() {
        container.check_has(index, id).map_err(|error| RecordError::from(error).at(MANIFEST, at))?;
    }
    let mut files = Vec::new();
    let read = container.for_each(|fields| -> Result<(), RecordError> {
        if !matches!(field(fields, 0).int(), Some(0..=2)) {
            return Err(AvroError::Corrupt(format!("an entry with status {:?}", field(fields, 0))).into());
        }
        let path =
            field(fields, 1).text().ok_or_else(|| AvroError::Corrupt("an entry without file_path".to_owned()))?;
        files.push(resolve(path, at)?);
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
