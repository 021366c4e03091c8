//! What a log says of a table without holding its files: each is told once to whoever wants to know, the newest first.
//!
//! Memory holds a window of each column of the checkpoint that is read, some lines of a commit, and which files the commits
//! since the checkpoint added and removed, in numbers.

use std::collections::{HashMap, HashSet};

use futures::{FutureExt, StreamExt, stream};
use sha2::{Digest, Sha256};

use super::actions::{Actions, AddFile, COMMIT_MAX_BYTES, Metadata, Protocol, RemoveFile, Strictness, parse_commit};
use super::checkpoint::{self, Action, CheckpointError, CheckpointFile, Interest, Target};
use super::log::{LogEntry, LogListing, Version, commit_key};
use super::path::PathError;
use super::plan::{Step, plan_replay};
use super::snapshot::{CheckpointCounts, SnapshotError, checkpoint_error, key_of_add, key_of_remove};
use crate::location::Location;
use crate::store::{GetOptions, ObjectError, ReadObjects};

/// Larger commits are read in pieces, one at a time.
const SMALL_BYTES: u64 = 512 * 1024;
/// Small commits that are read at the same time.
const CONCURRENT_READS: usize = 16;

/// How it begins what is said of a path that leads nowhere, also by listeners.
pub const UNRESOLVED: &str = "a path leads nowhere: ";

/// What tells a logical file (an object with a deletion vector, or none) from any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u128);

impl FileId {
    fn of(key: &super::FileKey) -> Self {
        let mut digest = Sha256::new();
        digest.update(key.at.bucket.as_bytes());
        digest.update(b"\0");
        digest.update(key.at.key.as_bytes());
        if let Some(vector) = &key.dv_id {
            digest.update(b"\0");
            digest.update(vector.as_bytes());
        }
        Self(digest.finalize().first_chunk::<16>().map_or(0, |bytes| u128::from_be_bytes(*bytes)))
    }

    /// Enough to count by.
    fn short(self) -> u64 {
        u64::try_from(self.0 >> 64).unwrap_or_default()
    }
}

/// Who is told what the log says. An error, in words, ends the reading.
pub trait Listener: Send {
    /// A file that is live. One that was added again may be told again.
    fn live(&mut self, id: FileId, add: &AddFile) -> Result<(), String>;

    /// A file that was removed, or removed and added again.
    fn removed(&mut self, id: FileId, remove: &RemoveFile) -> Result<(), String>;

    /// Some actions of a commit that is read, or all of them. Newer commits come first.
    fn commit(&mut self, entry: &LogEntry, actions: &Actions) -> Result<(), String>;

    /// Nothing more of this commit.
    fn committed(&mut self, _version: Version) {}
}

/// The state at an earlier version, as somebody knows it still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub version: Version,
    pub protocol: Protocol,
    pub metadata: Metadata,
}

/// A table at its latest version, but for its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    pub version: Version,
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Files that commits and checkpoint say are live.
    pub files: u64,
    /// Their bytes; `None`: those of some are not known.
    pub bytes: Option<i64>,
    pub checkpoint: Option<CheckpointCounts>,
    /// What the commits that were read removed, with its size if they say so.
    gone: HashMap<FileId, Option<i64>>,
    /// What they added, by the first half of its id.
    again: HashSet<u64>,
}

impl Outline {
    /// Counts a file of the [`Base`], unless the commits after it tell of it: whether it is live by what the base says.
    pub fn count_of_base(&mut self, id: FileId) -> bool {
        if let Some(size) = self.gone.get(&id) {
            self.bytes = self.bytes.zip(*size).map(|(bytes, size)| bytes.saturating_sub(size));
            return false;
        }
        if self.again.contains(&id.short()) {
            // Counted already; whether its size is what it was nobody knows.
            self.bytes = None;
            return true;
        }
        self.files = self.files.saturating_add(1);
        true
    }

    /// Whether the commits after the [`Base`] removed a file.
    pub fn is_gone(&self, id: FileId) -> bool {
        self.gone.contains_key(&id)
    }
}

/// Reads what a complete listing of a log names: from its newest checkpoint on, or from `base`, of which the log must have
/// every later commit.
pub async fn read_outline(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    base: Option<&Base>,
    listener: &mut dyn Listener,
) -> Result<Outline, SnapshotError> {
    let version = listing.latest();
    if version == Version::NONE {
        return Err(SnapshotError::NoTable(root.to_string()));
    }
    let (steps, files, at) = match base {
        Some(base) => (steps_after(listing, base.version)?, Vec::new(), None),
        None => {
            let plan = plan_replay(root, listing, version)?;
            let at = plan.checkpoint.as_ref().map(|checkpoint| checkpoint.version);
            (plan.steps, plan.checkpoint.map(|checkpoint| checkpoint.files).unwrap_or_default(), at)
        }
    };
    let mut fold = Fold::new(root, listener, base);
    read_steps(objects, root, listing, steps, &mut fold).await?;
    for file in &files {
        let read = checkpoint::read_file(objects, root, file, &mut fold).await;
        read.map_err(|error| checkpoint_error(file, error))?;
    }
    fold.finish(version, at)
}

/// Reads some commits of a listing, newest first, and tells of each what it says, not whether that is so still.
pub async fn read_each(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    versions: Vec<Version>,
    listener: &mut dyn Listener,
) -> Result<(), SnapshotError> {
    let mut fold = Fold::new(root, listener, None);
    read_steps(objects, root, listing, versions.into_iter().map(Step::Commit).collect(), &mut fold).await
}

/// The commits after a version, all of them.
fn steps_after(listing: &LogListing, known: Version) -> Result<Vec<Step>, SnapshotError> {
    let wanted = listing.latest();
    let mut expected = known.next();
    let mut steps = Vec::new();
    for (version, _) in listing.commits().filter(|(version, _)| *version > known) {
        if version != expected {
            break;
        }
        steps.push(Step::Commit(version));
        expected = expected.next();
    }
    if expected <= wanted {
        return Err(SnapshotError::LogGap { missing: expected, wanted });
    }
    Ok(steps)
}

async fn read_steps(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    steps: Vec<Step>,
    fold: &mut Fold<'_>,
) -> Result<(), SnapshotError> {
    let mut small: Vec<&LogEntry> = Vec::new();
    for step in steps.into_iter().rev() {
        match step {
            Step::Commit(version) => {
                let gap = SnapshotError::LogGap { missing: version, wanted: listing.latest() };
                let entry = listing.commit(version).ok_or(gap)?;
                if entry.size_bytes <= SMALL_BYTES {
                    small.push(entry);
                } else {
                    read_small(objects, root, std::mem::take(&mut small), fold).await?;
                    read_large(objects, root, (version, entry), fold).await?;
                }
            }
            Step::Compacted { file, .. } => {
                read_small(objects, root, std::mem::take(&mut small), fold).await?;
                let read = checkpoint::read_compaction(objects, &file, |actions| fold.piece(None, actions)).await;
                read.map_err(|error| checkpoint_error(&file, error))?;
                fold.end_of_commit(None);
            }
        }
    }
    read_small(objects, root, small, fold).await
}

/// Commits that are small enough to be in memory with others, in this order.
async fn read_small(
    objects: &dyn ReadObjects,
    root: &Location,
    entries: Vec<&LogEntry>,
    fold: &mut Fold<'_>,
) -> Result<(), SnapshotError> {
    // Boxed, since the compiler cannot see through closures that the whole is `Send`.
    let mut reads = Vec::with_capacity(entries.len());
    for entry in entries {
        reads.push(async move { (entry, read_whole(objects, root, entry).await) }.boxed());
    }
    let mut reads = stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some((entry, actions)) = reads.next().await {
        let version = entry.name.version().unwrap_or(Version::NONE);
        let damaged = |error: CheckpointError| SnapshotError::Damaged {
            at: commit_key(root, version),
            message: error.to_string(),
        };
        fold.piece(Some(entry), actions?).map_err(damaged)?;
        fold.end_of_commit(Some(version));
    }
    Ok(())
}

async fn read_whole(objects: &dyn ReadObjects, root: &Location, entry: &LogEntry) -> Result<Actions, SnapshotError> {
    let version = entry.name.version().unwrap_or(Version::NONE);
    let at = commit_key(root, version);
    let damaged = |message: String| SnapshotError::Damaged { at: at.clone(), message };
    let options = GetOptions { range: None, if_match: Some(entry.etag.clone()) };
    let bytes = match objects.get(&at, &options).await {
        Ok(object) => object.bytes,
        Err(ObjectError::NotFound(_)) => {
            return Err(SnapshotError::LogGap { missing: version, wanted: version });
        }
        Err(ObjectError::Store(error)) => return Err(error.into()),
        Err(error) => return Err(damaged(format!("changed while it was read: {error}"))),
    };
    parse_commit(&bytes, Strictness::Log).map_err(|error| damaged(error.to_string()))
}

async fn read_large(
    objects: &dyn ReadObjects,
    root: &Location,
    (version, entry): (Version, &LogEntry),
    fold: &mut Fold<'_>,
) -> Result<(), SnapshotError> {
    let at = commit_key(root, version);
    if entry.size_bytes > COMMIT_MAX_BYTES {
        return Err(SnapshotError::TooLarge { at, size_bytes: entry.size_bytes, limit_bytes: COMMIT_MAX_BYTES });
    }
    let file = CheckpointFile { at, etag: entry.etag.clone(), size_bytes: entry.size_bytes, is_json: true };
    let read = checkpoint::read_compaction(objects, &file, |actions| fold.piece(Some(entry), actions)).await;
    read.map_err(|error| checkpoint_error(&file, error))?;
    fold.end_of_commit(Some(version));
    Ok(())
}

/// Folds actions, newest first.
struct Fold<'a> {
    root: &'a Location,
    listener: &'a mut dyn Listener,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    /// What the checkpoint, or the base, says of both.
    before: (Option<Protocol>, Option<Metadata>),
    /// In the whole id, since a file that is taken for another one here would be taken for removed.
    gone: HashMap<FileId, Option<i64>>,
    /// By the commit that is being read: one that adds a file as well has added it last.
    gone_here: Vec<(FileId, Option<i64>)>,
    again: HashSet<u64>,
    bytes: i64,
    /// Of the checkpoint: live files that no later commit tells of, all of them, and actions.
    fresh: u64,
    adds: u64,
    taken: u64,
}

fn damaged(error: &PathError) -> CheckpointError {
    CheckpointError::Damaged(format!("{UNRESOLVED}{error}"))
}

impl<'a> Fold<'a> {
    fn new(root: &'a Location, listener: &'a mut dyn Listener, base: Option<&Base>) -> Self {
        let before = base.map(|base| (base.protocol.clone(), base.metadata.clone())).unzip();
        Self {
            root,
            listener,
            protocol: None,
            metadata: None,
            before,
            gone: HashMap::new(),
            gone_here: Vec::new(),
            again: HashSet::new(),
            bytes: 0,
            fresh: 0,
            adds: 0,
            taken: 0,
        }
    }

    /// Some actions of a commit, or of a log compaction.
    fn piece(&mut self, entry: Option<&LogEntry>, mut actions: Actions) -> Result<(), CheckpointError> {
        if let Some(entry) = entry {
            self.listener.commit(entry, &actions).map_err(CheckpointError::Damaged)?;
        }
        self.protocol = self.protocol.take().or(actions.protocol.take());
        self.metadata = self.metadata.take().or(actions.metadata.take());
        for remove in &actions.removes {
            let key = key_of_remove(self.root, remove).map_err(|error| damaged(&error))?;
            let id = FileId::of(&key);
            if !self.gone.contains_key(&id) {
                self.listener.removed(id, remove).map_err(CheckpointError::Damaged)?;
                self.gone_here.push((id, remove.size));
            }
        }
        for add in &actions.adds {
            let key = key_of_add(self.root, add).map_err(|error| damaged(&error))?;
            let id = FileId::of(&key);
            if self.gone.contains_key(&id) {
                continue;
            }
            self.listener.live(id, add).map_err(CheckpointError::Damaged)?;
            if self.again.insert(id.short()) {
                self.bytes = self.bytes.saturating_add(add.size);
            }
        }
        Ok(())
    }

    fn end_of_commit(&mut self, version: Option<Version>) {
        self.gone.extend(self.gone_here.drain(..));
        if let Some(version) = version {
            self.listener.committed(version);
        }
    }

    fn finish(self, version: Version, checkpoint: Option<Version>) -> Result<Outline, SnapshotError> {
        let (protocol, metadata) = (self.protocol.or(self.before.0), self.metadata.or(self.before.1));
        let (Some(protocol), Some(metadata)) = (protocol, metadata) else {
            return Err(SnapshotError::NoMetadata(version));
        };
        let counts = checkpoint.map(|version| CheckpointCounts { version, actions: self.taken, adds: self.adds });
        Ok(Outline {
            version,
            protocol,
            metadata,
            files: self.fresh.saturating_add(self.again.len() as u64),
            bytes: Some(self.bytes),
            checkpoint: counts,
            gone: self.gone,
            again: self.again,
        })
    }
}

impl Target for Fold<'_> {
    fn interest(&self) -> Interest {
        Interest::Outline
    }

    fn live_path(&mut self, _: &str) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn removed_path(&mut self, _: &str) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn take(&mut self, action: Action) -> Result<(), CheckpointError> {
        self.taken = self.taken.saturating_add(1);
        match action {
            // Of what a checkpoint says twice the last one counts.
            Action::Protocol(protocol) => self.before.0 = Some(protocol),
            Action::Metadata(metadata) => self.before.1 = Some(metadata),
            Action::Txn(_) | Action::Domain(_) => {}
            Action::Add(add) => {
                let key = key_of_add(self.root, &add).map_err(|error| damaged(&error))?;
                let id = FileId::of(&key);
                let is_gone = self.gone.contains_key(&id);
                if !is_gone {
                    self.listener.live(id, &add).map_err(CheckpointError::Damaged)?;
                }
                self.adds = self.adds.saturating_add(1);
                if !is_gone && !self.again.contains(&id.short()) {
                    self.fresh = self.fresh.saturating_add(1);
                    self.bytes = self.bytes.saturating_add(add.size);
                }
            }
            Action::Remove(remove) => {
                let key = key_of_remove(self.root, &remove).map_err(|error| damaged(&error))?;
                let id = FileId::of(&key);
                if !self.gone.contains_key(&id) {
                    self.listener.removed(id, &remove).map_err(CheckpointError::Damaged)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "outline_tests.rs"]
mod tests;
