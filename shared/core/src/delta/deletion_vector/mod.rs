//! Deletion vectors: which rows of a file are deleted. Where their bytes are, what they say, and whether they are what an
//! action claims of them.
//!
//! A file of vectors holds a version byte (1) and then, for each vector, the length of its payload (big-endian), the
//! payload, and its CRC-32 (big-endian). A descriptor's `offset` points at the length, `sizeInBytes` is that length.

mod rows;
mod z85;

use bytes::Bytes;
use thiserror::Error;
use uuid::Uuid;

pub use rows::{CONTAINERS_MAX, RowSet, RowsError};

use super::DeletionVector;
use super::path::{PathError, Reach, resolve, resolve_plain};
use crate::location::Location;
use crate::store::{
    ByteRange, GetOptions, ObjectError, ObjectKey, Objects, PutCondition, PutOptions, ReadObjects, StoreError,
};

/// Largest payload that is read: half a billion rows deleted without any order.
pub const PAYLOAD_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Files begin with this byte.
const FILE_VERSION: u8 = 1;
/// Where the first vector of a file lies; also that of a descriptor without an offset.
const FIRST_OFFSET: u64 = 1;
/// Length before the payload, checksum behind it.
const FRAME_BYTES: u64 = 8;
/// Vectors that end before this are read from the beginning of their file, so that its version comes along.
const NEAR_BYTES: u64 = 64 * 1024;
/// Z85 letters of the 16 bytes of a UUID.
const UUID_LETTERS: usize = 20;

/// A vector is not what its descriptor says, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VectorError {
    #[error("the storage type `{0}` is not known (u, p, i and r are)")]
    StorageType(String),
    #[error("the descriptor is malformed: {0}")]
    Descriptor(String),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("statistics with numRecords are needed beside a deletion vector")]
    MissingNumRecords,
    #[error("there is no such object: {0}")]
    Missing(ObjectKey),
    #[error("sizeInBytes is {0}; at most {PAYLOAD_MAX_BYTES} are read")]
    TooLarge(u64),
    #[error("sizeInBytes is {expected}, the vector has {found}")]
    Size { expected: u64, found: u64 },
    #[error("the CRC-32 of the vector is {found:08x}, the file says {expected:08x}")]
    Checksum { expected: u32, found: u32 },
    #[error("the file of the vector begins with the byte {0}; {FILE_VERSION} is the version that is known")]
    FileVersion(u8),
    #[error("the vector is of the older format, which few engines read")]
    OldFormat,
    #[error("the vector is malformed: {0}")]
    Rows(#[from] RowsError),
    #[error("cardinality is {expected}, the vector deletes {found} rows")]
    Cardinality { expected: i64, found: u64 },
    #[error("the vector deletes row {row} of a file that has {num_records} rows")]
    RowIndex { row: u64, num_records: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VectorError {
    /// Delta's error class, or one of ours where Delta has none.
    pub fn class(&self) -> &'static str {
        match self {
            VectorError::MissingNumRecords => "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS",
            VectorError::Size { .. } => "DELTA_DELETION_VECTOR_SIZE_MISMATCH",
            VectorError::Checksum { .. } => "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH",
            VectorError::Cardinality { .. } => "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH",
            VectorError::RowIndex { .. } => "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX",
            VectorError::Missing(_) => "DELTA_FILE_NOT_FOUND_DETAILED",
            VectorError::StorageType(_) | VectorError::Descriptor(_) | VectorError::Path(_) => {
                "LAKEWARDEN_DELETION_VECTOR_DESCRIPTOR"
            }
            VectorError::TooLarge(_)
            | VectorError::FileVersion(_)
            | VectorError::OldFormat
            | VectorError::Rows(_)
            | VectorError::Store(_) => "LAKEWARDEN_DELETION_VECTOR_UNREADABLE",
        }
    }

    /// Reason code of a refusal.
    pub fn reason(&self) -> &'static str {
        match self {
            VectorError::MissingNumRecords => "DELETION_VECTOR_NUM_RECORDS",
            VectorError::Size { .. } => "DELETION_VECTOR_SIZE",
            VectorError::Checksum { .. } => "DELETION_VECTOR_CHECKSUM",
            VectorError::Cardinality { .. } => "DELETION_VECTOR_CARDINALITY",
            VectorError::RowIndex { .. } => "DELETION_VECTOR_ROW_INDEX",
            VectorError::Missing(_) => "DELETION_VECTOR_MISSING",
            VectorError::StorageType(_) | VectorError::Descriptor(_) | VectorError::Path(_) => {
                "DELETION_VECTOR_DESCRIPTOR"
            }
            VectorError::TooLarge(_) => "DELETION_VECTOR_TOO_LARGE",
            VectorError::FileVersion(_) => "DELETION_VECTOR_FILE_VERSION",
            VectorError::OldFormat => "DELETION_VECTOR_OLD_FORMAT",
            VectorError::Rows(_) | VectorError::Store(_) => "DELETION_VECTOR_UNREADABLE",
        }
    }
}

/// Where a vector's payload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Inline(Bytes),
    /// In a file, framed; `offset` is that of the length before it.
    File {
        at: ObjectKey,
        offset: u64,
    },
}

/// Where a descriptor says that its vector is. Reads nothing.
pub fn locate(root: &Location, vector: &DeletionVector, reach: Reach) -> Result<Place, VectorError> {
    let size_bytes = size_of(vector)?;
    let text = vector.path_or_inline_dv.as_str();
    let at = match vector.storage_type.as_str() {
        "i" => return inline_payload(text, size_bytes).map(Place::Inline),
        "u" => resolve_plain(root, &relative_path(text)?, reach)?,
        "p" if !text.contains(':') => {
            return Err(VectorError::Descriptor(format!("`{text}` is no absolute path, as storage type p demands")));
        }
        "p" | "r" => resolve(root, text, reach)?,
        other => return Err(VectorError::StorageType(other.to_owned())),
    };
    let offset = match vector.offset {
        None => FIRST_OFFSET,
        Some(offset) => u64::try_from(offset)
            .ok()
            .filter(|offset| *offset >= FIRST_OFFSET)
            .ok_or_else(|| VectorError::Descriptor(format!("offset is {offset}")))?,
    };
    Ok(Place::File { at, offset })
}

fn size_of(vector: &DeletionVector) -> Result<u64, VectorError> {
    match u64::try_from(vector.size_in_bytes) {
        Ok(size) if (1..=PAYLOAD_MAX_BYTES).contains(&size) => Ok(size),
        Ok(0) | Err(_) => Err(VectorError::Descriptor(format!("sizeInBytes is {}", vector.size_in_bytes))),
        Ok(size) => Err(VectorError::TooLarge(size)),
    }
}

/// `deletion_vector_<uuid>.bin`, below the folder that stands before the last 20 letters.
fn relative_path(text: &str) -> Result<String, VectorError> {
    let wrong = || VectorError::Descriptor(format!("`{text}` does not end with the Z85 of a UUID"));
    let at = text.len().checked_sub(UUID_LETTERS).ok_or_else(wrong)?;
    let (prefix, encoded) = text.split_at_checked(at).ok_or_else(wrong)?;
    let bytes: [u8; 16] = z85::decode(encoded).and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?;
    Ok(path_of(prefix, Uuid::from_bytes(bytes)))
}

fn path_of(prefix: &str, id: Uuid) -> String {
    let slash = if prefix.is_empty() { "" } else { "/" };
    format!("{prefix}{slash}deletion_vector_{id}.bin")
}

fn inline_payload(text: &str, size_bytes: u64) -> Result<Bytes, VectorError> {
    let mut bytes =
        z85::decode(text).ok_or_else(|| VectorError::Descriptor("the inline vector is not Z85".to_owned()))?;
    let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    // Zeros fill the last word up.
    if size_bytes.div_ceil(4).saturating_mul(4) != found {
        return Err(VectorError::Size { expected: size_bytes, found });
    }
    bytes.truncate(usize::try_from(size_bytes).unwrap_or(usize::MAX));
    Ok(bytes.into())
}

/// Reads a vector wherever the log says it is: nothing for inline ones, else one ranged request of `sizeInBytes` + 8
/// bytes and of what lies before them in the first 64 KiB of the file; one more, of one byte, for vectors that end later and
/// are not the first of their file. The file's version, size, checksum and cardinality are compared.
pub async fn read(objects: &dyn ReadObjects, root: &Location, vector: &DeletionVector) -> Result<RowSet, VectorError> {
    decode(vector, &payload_of(objects, root, vector, Reach::Anywhere).await?)
}

/// Whether a table has, or had, a vector before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It must be written so that every engine reads it: absolute paths begin with `s3://`, inline vectors have no offset, and
    /// the format is the one of the protocol.
    New,
    /// How it was written was for its writer to say.
    Known,
}

/// Reads a vector of a commit that is not in the log yet, and compares it with all that is claimed of it. It must lie
/// below the table's root.
///
/// `num_records`: rows of the file, deleted ones included.
pub async fn check(
    objects: &dyn ReadObjects,
    root: &Location,
    vector: &DeletionVector,
    num_records: Option<u64>,
    age: Age,
) -> Result<RowSet, VectorError> {
    let num_records = num_records.ok_or(VectorError::MissingNumRecords)?;
    if age == Age::New {
        check_spelling(vector)?;
    }
    let payload = payload_of(objects, root, vector, Reach::Inside).await?;
    let rows = decode(vector, &payload)?;
    if age == Age::New && !rows::is_portable(&payload) {
        return Err(VectorError::OldFormat);
    }
    match rows.max() {
        Some(row) if row >= num_records => Err(VectorError::RowIndex { row, num_records }),
        _ => Ok(rows),
    }
}

/// Rows 0 and 2, inline, as the older format has them.
#[cfg(test)]
pub(crate) fn of_old_format() -> DeletionVector {
    let mut native = rows::MAGIC_NATIVE.to_le_bytes().to_vec();
    let bitmap = hex::decode("3a30000001000000000001001000000000000200").unwrap();
    native.extend(1_u32.to_le_bytes());
    native.extend(u32::try_from(bitmap.len()).unwrap().to_le_bytes());
    native.extend(&bitmap);
    DeletionVector {
        storage_type: "i".to_owned(),
        path_or_inline_dv: z85::encode(&native),
        offset: None,
        size_in_bytes: i64::try_from(native.len()).unwrap(),
        cardinality: 2,
    }
}

/// What a vector says that is inline, or lies in a file of these bytes.
#[cfg(test)]
pub(crate) fn read_held(vector: &DeletionVector, file: &[u8]) -> Result<RowSet, VectorError> {
    match locate(&Location::new("b", ""), vector, Reach::Anywhere)? {
        Place::Inline(payload) => Ok(rows::decode(&payload)?),
        Place::File { at, offset } => {
            let from = usize::try_from(offset + 4).unwrap();
            let size = usize::try_from(vector.size_in_bytes).unwrap();
            let payload = file.get(from..from + size).ok_or(VectorError::Missing(at))?;
            Ok(rows::decode(payload)?)
        }
    }
}

/// What the protocol allows and engines do not read.
fn check_spelling(vector: &DeletionVector) -> Result<(), VectorError> {
    let text = &vector.path_or_inline_dv;
    match (vector.storage_type.as_str(), vector.offset) {
        ("i", Some(offset)) => Err(VectorError::Descriptor(format!("an inline vector has no offset; it is {offset}"))),
        ("p", _) if !text.starts_with("s3://") => {
            let text: String = text.chars().take(200).collect();
            Err(VectorError::Descriptor(format!("an absolute path begins with s3://, not so `{text}`")))
        }
        _ => Ok(()),
    }
}

async fn payload_of(
    objects: &dyn ReadObjects,
    root: &Location,
    vector: &DeletionVector,
    reach: Reach,
) -> Result<Bytes, VectorError> {
    match locate(root, vector, reach)? {
        Place::Inline(payload) => Ok(payload),
        Place::File { at, offset } => read_payload(objects, &at, offset, size_of(vector)?).await,
    }
}

fn decode(vector: &DeletionVector, payload: &[u8]) -> Result<RowSet, VectorError> {
    let rows = rows::decode(payload)?;
    if u64::try_from(vector.cardinality) != Ok(rows.len()) {
        return Err(VectorError::Cardinality { expected: vector.cardinality, found: rows.len() });
    }
    Ok(rows)
}

async fn read_payload(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    offset: u64,
    size_bytes: u64,
) -> Result<Bytes, VectorError> {
    let end = offset.saturating_add(size_bytes).saturating_add(FRAME_BYTES);
    let start = if offset == FIRST_OFFSET || end <= NEAR_BYTES { 0 } else { offset };
    // The file ends before the vector begins.
    let short = || VectorError::Size { expected: size_bytes, found: 0 };
    let read = read_range(objects, at, start, end.saturating_sub(start)).await?.ok_or_else(short)?;
    let first = if start == 0 { read.clone() } else { read_range(objects, at, 0, 1).await?.ok_or_else(short)? };
    match first.first() {
        Some(version) if *version != FILE_VERSION => return Err(VectorError::FileVersion(*version)),
        _ => {}
    }
    let from = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
    let bytes = if from <= read.len() { read.slice(from..) } else { Bytes::new() };
    let word = |from: usize| bytes.get(from..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
    let length = word(0).map_or(0, u64::from);
    if length != size_bytes {
        return Err(VectorError::Size { expected: size_bytes, found: length });
    }
    let end = usize::try_from(size_bytes).unwrap_or(usize::MAX).saturating_add(4);
    let Some(expected) = word(end) else {
        let held = u64::try_from(bytes.len()).unwrap_or(0).saturating_sub(FRAME_BYTES);
        return Err(VectorError::Size { expected: size_bytes, found: held });
    };
    let payload = bytes.slice(4..end);
    let found = crc32(&payload);
    if found != expected {
        return Err(VectorError::Checksum { expected, found });
    }
    Ok(payload)
}

/// Part of a file; nothing where it ends before.
async fn read_range(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    start: u64,
    length: u64,
) -> Result<Option<Bytes>, VectorError> {
    let range = Some(ByteRange::From { start, length });
    match objects.get(at, &GetOptions { range, if_match: None }).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(ObjectError::NotFound(at)) => Err(VectorError::Missing(at)),
        Err(ObjectError::InvalidRange(_)) => Ok(None),
        Err(ObjectError::Store(error)) => Err(error.into()),
        Err(error) => Err(StoreError::new(crate::store::StoreErrorKind::Invalid, "get", error.to_string()).into()),
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The descriptor of a set, with the set in it.
pub fn inline(rows: &RowSet) -> DeletionVector {
    let payload = rows::encode(rows);
    DeletionVector {
        storage_type: "i".to_owned(),
        path_or_inline_dv: z85::encode(&payload),
        offset: None,
        size_in_bytes: i64::try_from(payload.len()).unwrap_or(i64::MAX),
        cardinality: i64::try_from(rows.len()).unwrap_or(i64::MAX),
    }
}

/// A file of vectors and their descriptors, in the order of `sets`.
pub fn encode_file(id: Uuid, sets: &[&RowSet]) -> (Vec<u8>, Vec<DeletionVector>) {
    let mut file = vec![FILE_VERSION];
    let mut vectors = Vec::with_capacity(sets.len());
    for rows in sets {
        let payload = rows::encode(rows);
        vectors.push(DeletionVector {
            storage_type: "u".to_owned(),
            path_or_inline_dv: z85::encode(id.as_bytes()),
            offset: Some(i64::try_from(file.len()).unwrap_or(i64::MAX)),
            size_in_bytes: i64::try_from(payload.len()).unwrap_or(i64::MAX),
            cardinality: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        });
        file.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
        file.extend_from_slice(&payload);
        file.extend_from_slice(&crc32(&payload).to_be_bytes());
    }
    (file, vectors)
}

/// Writes `deletion_vector_<id>.bin` with all sets: one put, which demands that there is no such file.
pub async fn write(
    objects: &dyn Objects,
    root: &Location,
    id: Uuid,
    sets: &[&RowSet],
) -> Result<Vec<DeletionVector>, ObjectError> {
    let (file, vectors) = encode_file(id, sets);
    write_file(objects, root, id, file.into()).await?;
    Ok(vectors)
}

/// Puts the bytes of a file of vectors where their descriptors say; demands that there is no such file.
pub async fn write_file(objects: &dyn Objects, root: &Location, id: Uuid, bytes: Bytes) -> Result<(), ObjectError> {
    let options = PutOptions { condition: PutCondition::Absent, ..PutOptions::default() };
    objects.put(&root.object(&path_of("", id)), bytes, &options).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
