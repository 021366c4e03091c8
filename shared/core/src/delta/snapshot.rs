//! The state of a table at a version: a checkpoint of any kind, log compactions, and the commits after them.
//!
//! Memory holds what is kept: all files ([`Wanted::All`]), or those that were asked about.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use thiserror::Error;

use super::actions::{
    ActionError, Actions, AddFile, COMMIT_MAX_BYTES, DomainMetadata, Metadata, Protocol, RemoveFile, Strictness,
    parse_commit,
};
use super::checkpoint::{self, CheckpointError, CheckpointFile, Parsed};
use super::counts::read_last_checkpoint;
use super::log::{LogListing, Version, commit_key, list_log, list_log_page};
use super::path::{PathError, Reach, resolve};
use super::plan::{Step, newest_checkpoint, plan_replay};
use super::replay::{PathObserver, Replay};
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
    /// Of which files `live` and `tombstones` tell.
    pub covers: Covers,
    /// Whether the checkpoint tells something of these twice, which the protocol forbids: two metadata or protocols, a file
    /// again, or as live and removed. Readers take one or the other.
    pub is_ambiguous: bool,
}

/// Which files a snapshot is to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    All,
    /// All, unless live and removed ones are more than this: then none.
    AtMost(usize),
    Only(BTreeSet<ObjectKey>),
}

/// Which files a snapshot tells about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covers {
    All,
    Only(BTreeSet<ObjectKey>),
}

impl Covers {
    pub fn covers(&self, at: &ObjectKey) -> bool {
        match self {
            Covers::All => true,
            Covers::Only(files) => files.contains(at),
        }
    }
}

impl Snapshot {
    /// The logical files at an object.
    pub fn live_at(&self, at: &ObjectKey) -> impl Iterator<Item = (&FileKey, &AddFile)> {
        let from = FileKey { at: at.clone(), dv_id: None };
        let at = at.clone();
        self.live.range(from..).take_while(move |(key, _)| key.at == at)
    }
}

/// A table's log cannot be turned into a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    #[error("there is no Delta table at {0}: `_delta_log/` has no commit and no checkpoint")]
    NoTable(String),
    #[error("commit {missing} is missing from the log, so version {wanted} cannot be rebuilt")]
    LogGap { missing: Version, wanted: Version },
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

/// The state at `at`, or at the latest version, with all its files.
pub async fn load(objects: &dyn ReadObjects, root: &Location, at: Option<Version>) -> Result<Snapshot, SnapshotError> {
    load_wanted(objects, root, at, &Wanted::All).await
}

/// The state at `at`, or at the latest version, with the files that are wanted.
pub async fn load_wanted(
    objects: &dyn ReadObjects,
    root: &Location,
    at: Option<Version>,
    wanted: &Wanted,
) -> Result<Snapshot, SnapshotError> {
    let listing = list_for(objects, root, at).await?;
    load_listed_wanted(objects, root, &listing, at, wanted, None).await
}

/// What was found in the checkpoint that a state was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointCounts {
    pub version: Version,
    /// Actions of all kinds, those of sidecars included.
    pub actions: u64,
    pub adds: u64,
}

/// Gives what each file has in columns of their own types (`stats_parsed`, `partitionValues_parsed`) in the checkpoint that the
/// state at `at` is built from; nothing where it is built from none. A checkpoint in JSON must not have such members.
pub async fn read_parsed(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    at: Version,
    each: &mut (dyn FnMut(FileKey, Parsed<'_>) + Send),
) -> Result<(), SnapshotError> {
    let plan = plan_replay(root, listing, at)?;
    for file in plan.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files) {
        let read = checkpoint::read_parsed(objects, root, file, &mut *each).await;
        read.map_err(|error| checkpoint_error(file, error))?;
    }
    Ok(())
}

/// As [`load_wanted`], from a listing that reaches back to a checkpoint or to the beginning. `observer` is told of every
/// file that is live, or was since the checkpoint.
pub async fn load_listed_wanted(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    at: Option<Version>,
    wanted: &Wanted,
    observer: Option<PathObserver<'_>>,
) -> Result<Snapshot, SnapshotError> {
    let latest = listing.latest();
    if latest == Version::NONE {
        return Err(SnapshotError::NoTable(root.to_string()));
    }
    let version = at.unwrap_or(latest);
    let plan = plan_replay(root, listing, version)?;
    let mut replay = Replay::new(root, wanted, observer);
    for file in plan.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files) {
        let read = checkpoint::read_file(objects, root, file, &mut replay).await;
        read.map_err(|error| checkpoint_error(file, error))?;
    }
    let mut commits = Vec::new();
    for step in plan.steps {
        match step {
            Step::Commit(version) => commits.push(version),
            Step::Compacted { to, file } => {
                apply_commits(objects, root, std::mem::take(&mut commits), &mut replay).await?;
                apply_compaction(objects, &file, to, &mut replay).await?;
            }
        }
    }
    apply_commits(objects, root, commits, &mut replay).await?;
    replay.finish(version)
}

async fn apply_commits(
    objects: &dyn ReadObjects,
    root: &Location,
    versions: Vec<Version>,
    replay: &mut Replay<'_, '_>,
) -> Result<(), SnapshotError> {
    let mut commits = stream_commits(objects, root, versions);
    while let Some(commit) = commits.next().await {
        let commit = commit?;
        replay.apply(commit.version, commit.actions)?;
    }
    Ok(())
}

async fn apply_compaction(
    objects: &dyn ReadObjects,
    file: &CheckpointFile,
    to: Version,
    replay: &mut Replay<'_, '_>,
) -> Result<(), SnapshotError> {
    let read = checkpoint::read_compaction(objects, file, |actions| {
        replay.apply(to, actions).map_err(|error| CheckpointError::Damaged(error.to_string()))
    });
    read.await.map_err(|error| checkpoint_error(file, error))
}

pub(super) fn checkpoint_error(file: &CheckpointFile, error: CheckpointError) -> SnapshotError {
    match error {
        CheckpointError::Store(error) => error.into(),
        CheckpointError::Elsewhere { at, message } => SnapshotError::Damaged { at, message },
        CheckpointError::Damaged(message) => SnapshotError::Damaged { at: file.at.clone(), message },
    }
}

/// A listing that tells the state at `at`: the whole log where one page holds it, else from the checkpoint on that
/// `_last_checkpoint` names, if that is any good.
pub async fn list_for(
    objects: &dyn ReadObjects,
    root: &Location,
    at: Option<Version>,
) -> Result<LogListing, SnapshotError> {
    let (first, is_whole) = list_log_page(objects, root).await.map_err(object_error)?;
    if is_whole {
        return Ok(first);
    }
    let hint = read_last_checkpoint(objects, root).await?.map(|hint| hint.version);
    if let Some(hint) = hint.filter(|hint| at.is_none_or(|at| *hint <= at)) {
        let listing = list_log(objects, root, Some(hint)).await.map_err(object_error)?;
        if newest_checkpoint(root, &listing, at.unwrap_or(listing.latest())).is_some() {
            return Ok(listing);
        }
    }
    list_log(objects, root, None).await.map_err(object_error)
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

pub(super) enum ReadError {
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
pub(super) async fn read_bounded(
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
