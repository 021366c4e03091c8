use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard::{Unsafe, look_through};
use crate::store::{ByteRange, ETag, GetOptions, Object, ObjectError, ObjectKey, ReadObjects, StoreError};

/// Read from the end of every file at first; nearly all footers fit.
const FIRST_READ_BYTES: u64 = 64 * 1024;
/// Largest footer that is read.
pub const FOOTER_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Length and magic at the very end.
const TAIL_BYTES: u64 = 8;

/// A parsed footer and what the store says of the object.
#[derive(Clone, Debug)]
pub struct Footer {
    pub metadata: ParquetMetaData,
    pub size_bytes: u64,
    /// Where the footer begins, and data ends.
    pub data_end: u64,
    pub etag: ETag,
}

/// A footer cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FooterError {
    #[error("there is no such object")]
    Missing,
    #[error("the object has {found_bytes} bytes, the commit says {expected_bytes}")]
    Size { expected_bytes: u64, found_bytes: u64 },
    #[error("not a Parquet file: {0}")]
    NotParquet(String),
    #[error("the Parquet file is encrypted, so its footer cannot be checked")]
    Encrypted,
    #[error("the Parquet file cannot be read by every reader of Delta: {0}")]
    Codec(String),
    #[error("the footer is not decoded: {0}")]
    Bomb(String),
    #[error("the footer has {0} bytes; at most {FOOTER_MAX_BYTES} are read")]
    TooLarge(u64),
    #[error("the object changed while it was read")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Unsafe> for FooterError {
    fn from(reason: Unsafe) -> Self {
        match reason {
            Unsafe::Encrypted => FooterError::Encrypted,
            Unsafe::Codec(_) => FooterError::Codec(reason.to_string()),
            Unsafe::TooMany { .. } => FooterError::Bomb(reason.to_string()),
            Unsafe::Malformed => FooterError::NotParquet(format!("its footer is damaged: {reason}")),
        }
    }
}

/// Reads the footer of `at` with one ranged request, a second only if it is larger than 64 KiB.
pub async fn read_footer(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    expected_bytes: u64,
) -> Result<Footer, FooterError> {
    read_footer_and_tail(objects, at, expected_bytes, FIRST_READ_BYTES).await.map(|(footer, _)| footer)
}

/// The same, with the end of the file as it was read at first: `first_bytes` of it, or all of a smaller file.
pub async fn read_footer_and_tail(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    expected_bytes: u64,
    first_bytes: u64,
) -> Result<(Footer, Bytes), FooterError> {
    let first = read_end(objects, at, expected_bytes, first_bytes).await?;
    let tail = first.bytes.clone();
    Ok((first.footer(objects, at).await?, tail))
}

/// The same for one of many files that are read at the same time: footers that need a second read hold the one permit of
/// `large` for as long as the caller keeps what comes with them, so that their memory is bounded.
pub async fn read_footer_of_many(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    expected_bytes: u64,
    large: &Arc<Semaphore>,
) -> Result<(Footer, Option<OwnedSemaphorePermit>), FooterError> {
    let first = read_end(objects, at, expected_bytes, FIRST_READ_BYTES).await?;
    // A semaphore that was closed bounds nothing; nobody closes it.
    let permit = if first.is_whole() { None } else { large.clone().acquire_owned().await.ok() };
    Ok((first.footer(objects, at).await?, permit))
}

/// The end of a file, and how much of it is footer.
struct End {
    bytes: Bytes,
    /// Footer, length and magic.
    needed_bytes: u64,
    size_bytes: u64,
    etag: ETag,
}

async fn read_end(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    expected_bytes: u64,
    first_bytes: u64,
) -> Result<End, FooterError> {
    let first = get(objects, at, ByteRange::Suffix { length: first_bytes }, None).await?;
    let size_bytes = first.meta.size_bytes;
    if size_bytes != expected_bytes {
        return Err(FooterError::Size { expected_bytes, found_bytes: size_bytes });
    }
    let tail: [u8; 8] = last_bytes(&first.bytes)
        .ok_or_else(|| FooterError::NotParquet(format!("{size_bytes} bytes are too few for a footer")))?;
    let tail = FooterTail::try_new(&tail).map_err(|error| FooterError::NotParquet(error.to_string()))?;
    if tail.is_encrypted_footer() {
        return Err(FooterError::Encrypted);
    }
    let footer_bytes = u64::try_from(tail.metadata_length()).unwrap_or(u64::MAX);
    let needed_bytes = footer_bytes.saturating_add(TAIL_BYTES);
    if needed_bytes > size_bytes {
        return Err(FooterError::NotParquet(format!(
            "the footer should have {footer_bytes} bytes, the file has fewer"
        )));
    }
    if footer_bytes > FOOTER_MAX_BYTES {
        return Err(FooterError::TooLarge(footer_bytes));
    }
    Ok(End { bytes: first.bytes, needed_bytes, size_bytes, etag: first.meta.etag })
}

impl End {
    fn is_whole(&self) -> bool {
        u64::try_from(self.bytes.len()).unwrap_or(0) >= self.needed_bytes
    }

    async fn footer(self, objects: &dyn ReadObjects, at: &ObjectKey) -> Result<Footer, FooterError> {
        let end = if self.is_whole() {
            self.bytes
        } else {
            get(objects, at, ByteRange::Suffix { length: self.needed_bytes }, Some(&self.etag)).await?.bytes
        };
        let length = usize::try_from(self.needed_bytes).unwrap_or(usize::MAX);
        let start = end.len().saturating_sub(length);
        let stop = end.len().saturating_sub(8);
        let encoded = end.get(start..stop).unwrap_or_default();
        let metadata = decode(encoded)?;
        let data_end = self.size_bytes.saturating_sub(self.needed_bytes);
        Ok(Footer { metadata, size_bytes: self.size_bytes, data_end, etag: self.etag })
    }
}

/// Decodes a footer (without length and magic), after a look at what it announces.
pub(super) fn decode(encoded: &[u8]) -> Result<ParquetMetaData, FooterError> {
    look_through(encoded)?;
    ParquetMetaDataReader::decode_metadata(encoded).map_err(|error| FooterError::NotParquet(error.to_string()))
}

fn last_bytes(bytes: &[u8]) -> Option<[u8; 8]> {
    bytes.get(bytes.len().checked_sub(8)?..)?.try_into().ok()
}

async fn get(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    range: ByteRange,
    if_match: Option<&ETag>,
) -> Result<Object, FooterError> {
    match objects.get(at, &GetOptions { range: Some(range), if_match: if_match.cloned() }).await {
        Ok(object) => Ok(object),
        Err(ObjectError::NotFound(_)) => Err(FooterError::Missing),
        Err(ObjectError::PreconditionFailed(_) | ObjectError::ConditionalConflict(_)) => Err(FooterError::Changed),
        Err(ObjectError::InvalidRange(_)) => Err(FooterError::NotParquet("the object is empty".into())),
        Err(ObjectError::Store(error)) => Err(error.into()),
    }
}
