use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;

use super::{StoreError, StoreErrorKind};
use crate::limits;

/// A bucket and a key, decoded: exactly the bytes that S3 stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub bucket: String,
    pub key: String,
}

impl ObjectKey {
    pub fn new(bucket: impl Into<String>, key: impl Into<String>) -> Self {
        Self { bucket: bucket.into(), key: key.into() }
    }

    /// What Hadoop's clients write for this name: several slashes are one, and none come first. `None`: just this name.
    pub fn collapsed(&self) -> Option<Self> {
        let has_more = self.key.contains("//") || self.key.starts_with('/');
        let folders = || self.key.split('/').filter(|folder| !folder.is_empty()).collect::<Vec<_>>();
        has_more.then(|| Self::new(self.bucket.clone(), folders().join("/")))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

/// An entity tag without its quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ETag(pub String);

/// What HEAD tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    pub etag: ETag,
    pub size_bytes: u64,
    /// Whole seconds, given in milliseconds since the epoch.
    pub last_modified_ms: i64,
    /// User metadata (`x-amz-meta-`), names in lower case.
    pub metadata: BTreeMap<String, String>,
}

/// An object, or a range of it. `meta.size_bytes` is the whole object's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub meta: ObjectMeta,
    pub bytes: Bytes,
}

/// Part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `length` bytes from `start`, fewer at the end of the object. `length` is not 0.
    From { start: u64, length: u64 },
    /// The last `length` bytes, or all if there are fewer. `length` is not 0.
    Suffix { length: u64 },
}

impl ByteRange {
    /// Whether the range asks for nothing, which HTTP cannot say: answered as [`ObjectError::InvalidRange`].
    pub fn is_empty(self) -> bool {
        matches!(self, ByteRange::From { length: 0, .. } | ByteRange::Suffix { length: 0 })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    pub range: Option<ByteRange>,
    pub if_match: Option<ETag>,
}

/// A put that whoever knows it may carry out, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresignedPut {
    pub url: String,
    /// Must be sent as they are.
    pub headers: Vec<(String, String)>,
}

/// What must hold for a put or copy to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PutCondition {
    #[default]
    Always,
    /// If-None-Match: `*`
    Absent,
    /// If-Match
    Matches(ETag),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    pub condition: PutCondition,
    pub metadata: BTreeMap<String, String>,
    pub content_type: Option<String>,
}

/// One page of a listing, in byte order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    pub bucket: String,
    pub prefix: String,
    /// Keys behind this one only.
    pub start_after: Option<String>,
    /// At most 1,000.
    pub max_keys: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub etag: ETag,
    pub size_bytes: u64,
    pub last_modified_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    pub objects: Vec<Listed>,
    /// Whether keys follow; continue with `start_after` = the last key.
    pub truncated: bool,
}

/// Id of a version of an object, or of a delete marker. `null` is what was written while the bucket kept no versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionId(pub String);

/// Whether a bucket keeps what is overwritten or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioning {
    /// It never has.
    Off,
    Enabled,
    /// Versions from before are kept; what is written or deleted now replaces the version `null`.
    Suspended,
}

/// A place in a listing of versions; continue behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionMark {
    pub key: String,
    /// `None`: behind every version of the key.
    pub id: Option<VersionId>,
}

/// One page of versions and delete markers, in byte order of the keys, the newest of a key first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRequest {
    pub bucket: String,
    pub prefix: String,
    pub after: Option<VersionMark>,
    /// At most 1,000.
    pub max_keys: usize,
}

/// What a version is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionState {
    Object { etag: ETag, size_bytes: u64 },
    DeleteMarker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub key: String,
    pub id: VersionId,
    /// What a read without a version finds.
    pub is_latest: bool,
    pub last_modified_ms: i64,
    pub state: VersionState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPage {
    pub versions: Vec<ListedVersion>,
    /// Where to continue, if more follow.
    pub next: Option<VersionMark>,
}

/// An object to delete in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    pub key: String,
    pub if_match: Option<ETag>,
}

/// What became of one object of a batch delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Gone now (or, without a condition, was not there).
    Gone,
    /// Hidden behind a delete marker with this id: the bucket keeps versions.
    Marked(VersionId),
    /// Another object has that key by now, or none (with a condition).
    Changed,
    Failed(StoreError),
}

/// An object request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    #[error("no object at {0}")]
    NotFound(ObjectKey),
    /// 412: the object is not (or no longer) what the condition says.
    #[error("the condition on {0} did not hold")]
    PreconditionFailed(ObjectKey),
    /// 409: another conditional request on the key was under way; nothing is known, try again.
    #[error("another conditional request on {0} was under way")]
    ConditionalConflict(ObjectKey),
    #[error("the range asked of {0} lies outside the object")]
    InvalidRange(ObjectKey),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the object store has been asked so far. Integers, so that tests can pin them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectUsage {
    pub gets: u64,
    pub heads: u64,
    pub lists: u64,
    pub puts: u64,
    pub copies: u64,
    pub deletes: u64,
    pub batch_deletes: u64,
    /// Questions for a bucket's versioning.
    pub versionings: u64,
    pub version_lists: u64,
    pub version_deletes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl ObjectUsage {
    pub fn since(&self, earlier: &ObjectUsage) -> ObjectUsage {
        ObjectUsage {
            gets: self.gets - earlier.gets,
            heads: self.heads - earlier.heads,
            lists: self.lists - earlier.lists,
            puts: self.puts - earlier.puts,
            copies: self.copies - earlier.copies,
            deletes: self.deletes - earlier.deletes,
            batch_deletes: self.batch_deletes - earlier.batch_deletes,
            versionings: self.versionings - earlier.versionings,
            version_lists: self.version_lists - earlier.version_lists,
            version_deletes: self.version_deletes - earlier.version_deletes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

/// Reading objects.
#[async_trait]
pub trait ReadObjects: Send + Sync {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError>;

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError>;

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError>;

    fn object_usage(&self) -> ObjectUsage;
}

/// Reading and writing objects.
#[async_trait]
pub trait Objects: ReadObjects {
    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError>;

    /// Server-side, metadata included. `NotFound` names the source; with [`PutCondition::Matches`] S3 does not tell
    /// which of the two is missing, and the destination is named.
    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError>;

    /// Server-side, metadata included: exactly the object with this entity tag, and only where nothing has the other key.
    /// `NotFound` names the source. `PreconditionFailed` names the destination and is said of both: the source is
    /// another object by now, or there is one at the destination.
    async fn create_copy(&self, from: &ObjectKey, etag: &ETag, to: &ObjectKey) -> Result<ETag, ObjectError> {
        let _ = (etag, to);
        Err(unable(&format!("create_copy {from}")))
    }

    /// Without a condition, deleting what is not there succeeds; with one it is `NotFound`.
    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError>;

    /// An address that takes one object for `at` within `valid_ms`, where there is none yet. Makes no request.
    async fn presign_put(&self, at: &ObjectKey, valid_ms: u64) -> Result<PresignedPut, ObjectError> {
        let text = format!("this store has no addresses for others; {valid_ms} ms were asked for");
        Err(StoreError::new(StoreErrorKind::Invalid, format!("presign {at}"), text).into())
    }

    /// Up to 1,000 distinct keys of one bucket; one result for each, in order.
    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError>;

    async fn versioning(&self, bucket: &str) -> Result<Versioning, ObjectError> {
        Err(unable(&format!("versioning s3://{bucket}")))
    }

    /// Versions and delete markers. A bucket that keeps none lists its objects, as versions `null`.
    async fn list_versions(&self, request: &VersionRequest) -> Result<VersionPage, ObjectError> {
        Err(unable(&format!("list_versions s3://{}/{}", request.bucket, request.prefix)))
    }

    /// Removes one version or delete marker for good. What is not there is removed already. What is the newest then is
    /// what reads find.
    async fn delete_version(&self, at: &ObjectKey, id: &VersionId) -> Result<(), ObjectError> {
        let _ = id;
        Err(unable(&format!("delete_version {at}")))
    }
}

/// Stores that only stand before another one for one purpose do not know everything.
fn unable(operation: &str) -> ObjectError {
    StoreError::new(StoreErrorKind::Invalid, operation, "this store does not know the operation").into()
}

/// Lists everything below a prefix, page by page.
pub async fn list_every(objects: &dyn ReadObjects, bucket: &str, prefix: &str) -> Result<Vec<Listed>, ObjectError> {
    let mut request = ListRequest {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        start_after: None,
        max_keys: limits::LIST_PAGE_MAX_KEYS,
    };
    let mut all = Vec::new();
    loop {
        let page = objects.list(&request).await?;
        request.start_after = page.objects.last().map(|object| object.key.clone());
        all.extend(page.objects);
        if !page.truncated || request.start_after.is_none() {
            return Ok(all);
        }
    }
}

/// Refuses a key that S3 refuses.
pub fn check_object_key(at: &ObjectKey, operation: &str) -> Result<(), StoreError> {
    let most = limits::OBJECT_KEY_MAX_BYTES;
    if at.key.is_empty() || at.key.len() > most {
        let message = format!("keys have 1 to {most} bytes, this one has {}", at.key.len());
        return Err(StoreError::new(StoreErrorKind::Invalid, operation, message));
    }
    Ok(())
}

/// Refuses a batch delete that is empty, too large, or names a key twice.
pub fn check_delete_batch(bucket: &str, doomed: &[Doomed], operation: &str) -> Result<(), StoreError> {
    let most = limits::DELETE_BATCH_MAX_KEYS;
    let mut keys: Vec<&str> = doomed.iter().map(|one| one.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    if doomed.len() > most {
        let message = format!("at most {most} keys are allowed, {} given", doomed.len());
        return Err(StoreError::new(StoreErrorKind::TooLarge, operation, message));
    }
    if doomed.is_empty() || keys.len() != doomed.len() {
        let message = "at least one key is needed, and none of them twice";
        return Err(StoreError::new(StoreErrorKind::Invalid, operation, message));
    }
    doomed.iter().try_for_each(|one| check_object_key(&ObjectKey::new(bucket, one.key.clone()), operation))
}
