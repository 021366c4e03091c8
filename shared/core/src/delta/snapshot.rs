//! The state of a table at a version: a classic checkpoint and the commits after it.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use thiserror::Error;

use super::actions::{
    ActionError, Actions, AddFile, COMMIT_MAX_BYTES, DomainMetadata, Metadata, Protocol, RemoveFile, Strictness,
    parse_commit,
};
use super::checkpoint;
use super::log::{LogListing, LogName, Version, checkpoint_key, commit_key, list_log};
use super::path::{PathError, Reach, resolve};
use crate::location::Location;
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey, ReadObjects, StoreError};

/// Commits fetched at the same time.
const CONCURRENT_READS: usize = 16;

/// What identifies a logical file: the object, and the id of its deletion vector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    pub at: ObjectKey,
    pub dv_id: Option<String>,
}

/// A table at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub version: Version,
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Last version of each application's transactions.
    pub app_ids: BTreeMap<String, i64>,
    pub domains: BTreeMap<String, DomainMetadata>,
    pub live: BTreeMap<FileKey, AddFile>,
    /// Removed files that the log still remembers, with their `deletionTimestamp`.
    pub tombstones: BTreeMap<FileKey, RemoveFile>,
}

/// A table's log cannot be turned into a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    #[error("there is no Delta table at {0}: `_delta_log/` has no commit")]
    NoTable(String),
    #[error("commit {missing} is missing from the log, so version {wanted} cannot be rebuilt")]
    LogGap { missing: Version, wanted: Version },
    #[error("version {wanted} needs a {kind} checkpoint (of version {at}), which this version does not read")]
    UnsupportedCheckpoint { kind: &'static str, at: Version, wanted: Version },
    #[error("{at}: {message}")]
    Damaged { at: ObjectKey, message: String },
    #[error("{at} has {size_bytes} bytes; at most {limit_bytes} are read")]
    TooLarge { at: ObjectKey, size_bytes: u64, limit_bytes: u64 },
    #[error("version {0} has no protocol or no metadata action")]
    NoMetadata(Version),
    #[error("version {version}: {error}")]
    Path { version: Version, error: PathError },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A commit of the log: its actions, and its bytes (to tell commits apart by content).
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedCommit {
    pub version: Version,
    pub actions: Actions,
    pub bytes: bytes::Bytes,
    pub last_modified_ms: i64,
}

/// Reads commit `version`.
pub async fn read_commit(
    objects: &dyn ReadObjects,
    root: &Location,
    version: Version,
) -> Result<LoggedCommit, SnapshotError> {
    let at = commit_key(root, version);
    let object = match read_bounded(objects, &at, COMMIT_MAX_BYTES).await {
        Err(ReadError::NotFound) => return Err(SnapshotError::LogGap { missing: version, wanted: version }),
        other => other?,
    };
    let actions = parse_commit(&object.bytes, Strictness::Log)
        .map_err(|error: ActionError| SnapshotError::Damaged { at, message: error.to_string() })?;
    Ok(LoggedCommit { version, actions, bytes: object.bytes, last_modified_ms: object.meta.last_modified_ms })
}

/// Reads several commits at once; the order of the answer is that of `versions`.
pub async fn read_commits(
    objects: &dyn ReadObjects,
    root: &Location,
    versions: Vec<Version>,
) -> Result<Vec<LoggedCommit>, SnapshotError> {
    stream_commits(objects, root, versions).try_collect().await
}

/// Boxed, since the compiler cannot see through closures that the whole is `Send`.
fn stream_commits<'a>(
    objects: &'a dyn ReadObjects,
    root: &'a Location,
    versions: Vec<Version>,
) -> BoxStream<'a, Result<LoggedCommit, SnapshotError>> {
    let reads = versions.into_iter().map(move |version| read_commit(objects, root, version).boxed());
    futures::stream::iter(reads).buffered(CONCURRENT_READS).boxed()
}

/// The state at `at`, or at the latest version.
pub async fn load(objects: &dyn ReadObjects, root: &Location, at: Option<Version>) -> Result<Snapshot, SnapshotError> {
    let listing = list_log(objects, root, None).await.map_err(object_error)?;
    load_listed(objects, root, &listing, at).await
}

/// As [`load`], from a complete listing of the log.
pub async fn load_listed(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    at: Option<Version>,
) -> Result<Snapshot, SnapshotError> {
    let latest = listing.latest();
    if latest == Version::NONE {
        return Err(SnapshotError::NoTable(root.to_string()));
    }
    let wanted = at.unwrap_or(latest);
    let plan = plan_replay(listing, wanted)?;
    let mut replay = Replay::new(root);
    if let Some(version) = plan.checkpoint {
        let key = checkpoint_key(root, version);
        let object = match read_bounded(objects, &key, checkpoint::CHECKPOINT_MAX_BYTES).await {
            Err(ReadError::NotFound) => {
                return Err(SnapshotError::Damaged { at: key, message: "listed, but gone when it was read".into() });
            }
            other => other?,
        };
        let builder =
            checkpoint::read(object.bytes).map_err(|message| SnapshotError::Damaged { at: key.clone(), message })?;
        if builder.actions.unknown.iter().any(|name| name == "sidecar") {
            return Err(SnapshotError::UnsupportedCheckpoint { kind: "V2", at: version, wanted });
        }
        replay.apply(version, builder.actions)?;
    }
    let mut commits = stream_commits(objects, root, plan.commits);
    while let Some(commit) = commits.next().await {
        let commit = commit?;
        replay.apply(commit.version, commit.actions)?;
    }
    replay.finish(wanted)
}

/// What to read for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplayPlan {
    checkpoint: Option<Version>,
    commits: Vec<Version>,
}

fn plan_replay(listing: &LogListing, wanted: Version) -> Result<ReplayPlan, SnapshotError> {
    let upto = |version: &Version| *version <= wanted;
    let checkpoint = listing
        .entries
        .iter()
        .filter_map(|entry| match entry.name {
            LogName::ClassicCheckpoint(version) => Some(version),
            _ => None,
        })
        .filter(upto)
        .max();
    let first = checkpoint.map_or(Version(0), Version::next);
    let mut expected = first;
    let mut commits = Vec::new();
    let present = listing.commits().map(|(version, _)| version).filter(|version| *version >= first).filter(upto);
    for version in present {
        if version != expected {
            return Err(gap(listing, expected, wanted));
        }
        commits.push(version);
        expected = expected.next();
    }
    if expected != wanted.next() {
        return Err(gap(listing, expected, wanted));
    }
    Ok(ReplayPlan { checkpoint, commits })
}

/// Names the better reason: a checkpoint that would have helped, if we could read it.
fn gap(listing: &LogListing, missing: Version, wanted: Version) -> SnapshotError {
    let unread = listing.entries.iter().rev().find_map(|entry| match entry.name {
        LogName::MultiPartCheckpoint(at) if at >= missing && at <= wanted => Some(("multi-part", at)),
        LogName::V2Checkpoint(at) if at >= missing && at <= wanted => Some(("V2", at)),
        _ => None,
    });
    match unread {
        Some((kind, at)) => SnapshotError::UnsupportedCheckpoint { kind, at, wanted },
        None => SnapshotError::LogGap { missing, wanted },
    }
}

/// Folds actions, oldest first.
struct Replay<'a> {
    root: &'a Location,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    app_ids: BTreeMap<String, i64>,
    domains: BTreeMap<String, DomainMetadata>,
    live: BTreeMap<FileKey, AddFile>,
    tombstones: BTreeMap<FileKey, RemoveFile>,
}

impl<'a> Replay<'a> {
    fn new(root: &'a Location) -> Self {
        Self {
            root,
            protocol: None,
            metadata: None,
            app_ids: BTreeMap::new(),
            domains: BTreeMap::new(),
            live: BTreeMap::new(),
            tombstones: BTreeMap::new(),
        }
    }

    fn apply(&mut self, version: Version, actions: Actions) -> Result<(), SnapshotError> {
        let path = |error| SnapshotError::Path { version, error };
        self.protocol = actions.protocol.or(self.protocol.take());
        self.metadata = actions.metadata.or(self.metadata.take());
        self.app_ids.extend(actions.txns.into_iter().map(|txn| (txn.app_id, txn.version)));
        for domain in actions.domains {
            if domain.removed {
                self.domains.remove(&domain.domain);
            } else {
                self.domains.insert(domain.domain.clone(), domain);
            }
        }
        // A commit may replace (path, old vector) by (path, new vector): removes first, whatever the order of lines.
        for remove in actions.removes {
            let key = key_of_remove(self.root, &remove).map_err(path)?;
            self.live.remove(&key);
            self.tombstones.insert(key, remove);
        }
        for add in actions.adds {
            let key = key_of_add(self.root, &add).map_err(path)?;
            self.tombstones.remove(&key);
            self.live.insert(key, add);
        }
        Ok(())
    }

    fn finish(self, version: Version) -> Result<Snapshot, SnapshotError> {
        let (Some(protocol), Some(metadata)) = (self.protocol, self.metadata) else {
            return Err(SnapshotError::NoMetadata(version));
        };
        Ok(Snapshot {
            version,
            protocol,
            metadata,
            app_ids: self.app_ids,
            domains: self.domains,
            live: self.live,
            tombstones: self.tombstones,
        })
    }
}

/// The logical file that an add names.
pub fn key_of_add(root: &Location, add: &AddFile) -> Result<FileKey, PathError> {
    let at = resolve(root, &add.path, Reach::Anywhere)?;
    Ok(FileKey { at, dv_id: add.deletion_vector.as_ref().map(super::DeletionVector::id) })
}

/// The logical file that a remove names.
pub fn key_of_remove(root: &Location, remove: &RemoveFile) -> Result<FileKey, PathError> {
    let at = resolve(root, &remove.path, Reach::Anywhere)?;
    Ok(FileKey { at, dv_id: remove.deletion_vector.as_ref().map(super::DeletionVector::id) })
}

enum ReadError {
    NotFound,
    Other(SnapshotError),
}

impl From<ReadError> for SnapshotError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Other(error) => error,
            ReadError::NotFound => {
                StoreError::new(crate::store::StoreErrorKind::Missing, "read the log", "object not found").into()
            }
        }
    }
}

/// Reads an object whole unless it is larger than `limit_bytes`: the range keeps a giant out of memory.
async fn read_bounded(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    limit_bytes: u64,
) -> Result<crate::store::Object, ReadError> {
    let range = Some(ByteRange::From { start: 0, length: limit_bytes });
    let object = match objects.get(at, &GetOptions { range, if_match: None }).await {
        Ok(object) => object,
        Err(ObjectError::NotFound(_)) => return Err(ReadError::NotFound),
        // An empty object has no first byte.
        Err(ObjectError::InvalidRange(at)) => {
            return Err(ReadError::Other(SnapshotError::Damaged { at, message: "the object is empty".into() }));
        }
        Err(error) => return Err(ReadError::Other(object_error(error))),
    };
    if object.meta.size_bytes > limit_bytes {
        let size_bytes = object.meta.size_bytes;
        return Err(ReadError::Other(SnapshotError::TooLarge { at: at.clone(), size_bytes, limit_bytes }));
    }
    Ok(object)
}

/// An object error that is no statement about the log.
pub(crate) fn object_error(error: ObjectError) -> SnapshotError {
    match error {
        ObjectError::Store(error) => error.into(),
        other => StoreError::new(crate::store::StoreErrorKind::Invalid, "read the log", other.to_string()).into(),
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
