//! Checkpoints of all kinds and log compactions, streamed: what they hold in memory is a window of each column that is
//! read and the rows that the caller keeps, not the file.
//!
//! A caller that wants only some files gets their rows in a second pass over those row groups that have one; the first
//! pass reads of files nothing but their paths.

mod columns;
mod file;
mod lines;
mod pages;
mod rows;
mod sound;

use std::fmt::Display;

use thiserror::Error;

use lines::LineReader;
use pages::{Portions, Source};
use rows::{Field, Pass, Row, Sidecar};

pub use rows::ParsedValue;

use super::actions::{Actions, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn};
use super::log::{LOG_DIR, log_key};
use super::path::{Reach, resolve};
use super::snapshot::FileKey;
use crate::location::Location;
use crate::store::{ObjectError, ObjectKey, ReadObjects, StoreError};

/// Folder of the files that V2 checkpoints name, below the log.
pub(super) const SIDECAR_DIR: &str = "_sidecars";

/// A file of a checkpoint cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum CheckpointError {
    /// What is wrong with it, in words.
    #[error("{0}")]
    Damaged(String),
    /// Another file, named by this one, is.
    #[error("{at}: {message}")]
    Elsewhere { at: ObjectKey, message: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CheckpointError {
    fn damaged(what: impl Display) -> CheckpointError {
        CheckpointError::Damaged(what.to_string())
    }

    fn at(self, at: &ObjectKey) -> CheckpointError {
        match self {
            CheckpointError::Damaged(message) => CheckpointError::Elsewhere { at: at.clone(), message },
            other => other,
        }
    }
}

impl From<ObjectError> for CheckpointError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => CheckpointError::Store(error),
            ObjectError::NotFound(_) => CheckpointError::damaged("listed or named, but gone when it was read"),
            ObjectError::InvalidRange(_) => CheckpointError::damaged("shorter than its footer or its listing says"),
            other => CheckpointError::damaged(format!("changed while it was read: {other}")),
        }
    }
}

/// An action of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Protocol(Protocol),
    Metadata(Metadata),
    Txn(Txn),
    Domain(DomainMetadata),
    Add(AddFile),
    Remove(RemoveFile),
}

/// Which files of a checkpoint matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    All,
    /// Only some are kept, so that it pays to look at paths first.
    Some,
    /// Not even their paths.
    None,
    /// Of all of them what they are, and not what is in them.
    Outline,
    /// What they have in columns of their own types, and nothing else.
    Parsed,
}

/// Who takes the actions of a checkpoint.
pub(super) trait Target: Send {
    fn interest(&self) -> Interest;

    /// Is told the path of every file that is live in the checkpoint. True if the file is to be kept.
    fn live_path(&mut self, path: &str) -> Result<bool, CheckpointError>;

    /// True if the tombstone of this file is to be kept.
    fn removed_path(&mut self, path: &str) -> Result<bool, CheckpointError>;

    fn take(&mut self, action: Action) -> Result<(), CheckpointError>;
}

/// A row goes to the target in the way of its pass.
trait Sink: Send {
    fn interest(&self) -> Interest;

    /// True if the row has a file that is kept.
    fn row(&mut self, row: &Row, pass: Pass) -> Result<bool, CheckpointError>;
}

struct Sorter<'a> {
    target: &'a mut dyn Target,
    sidecars: Vec<Sidecar>,
}

impl Sorter<'_> {
    fn others(&mut self, row: &Row) -> Result<(), CheckpointError> {
        if let Some(txn) = row.txn()? {
            self.target.take(Action::Txn(txn))?;
        }
        if let Some(domain) = row.domain()? {
            self.target.take(Action::Domain(domain))?;
        }
        if let Some(metadata) = row.metadata()? {
            self.target.take(Action::Metadata(metadata))?;
        }
        if let Some(protocol) = row.protocol()? {
            self.target.take(Action::Protocol(protocol))?;
        }
        if let Some(sidecar) = row.sidecar()? {
            self.sidecars.push(sidecar);
        }
        Ok(())
    }

    fn actions(&mut self, actions: Actions) -> Result<(), CheckpointError> {
        if let Some(protocol) = actions.protocol {
            self.target.take(Action::Protocol(protocol))?;
        }
        if let Some(metadata) = actions.metadata {
            self.target.take(Action::Metadata(metadata))?;
        }
        actions.txns.into_iter().try_for_each(|txn| self.target.take(Action::Txn(txn)))?;
        actions.domains.into_iter().try_for_each(|domain| self.target.take(Action::Domain(domain)))?;
        for remove in actions.removes {
            if self.target.removed_path(&remove.path)? {
                self.target.take(Action::Remove(remove))?;
            }
        }
        for add in actions.adds {
            if self.target.live_path(&add.path)? {
                self.target.take(Action::Add(add))?;
            }
        }
        Ok(())
    }
}

impl Sink for Sorter<'_> {
    fn interest(&self) -> Interest {
        self.target.interest()
    }

    fn row(&mut self, row: &Row, pass: Pass) -> Result<bool, CheckpointError> {
        let mut has_wanted = false;
        if let Some(path) = row.text(Field::AddPath)? {
            // The first pass has told the target of it.
            let is_wanted = match pass {
                Pass::Files => self.target.removed_path(path)?,
                Pass::Whole | Pass::Paths | Pass::Others | Pass::Parsed | Pass::Outline => {
                    self.target.live_path(path)?
                }
            };
            has_wanted |= is_wanted;
            if is_wanted && pass != Pass::Paths {
                row.add()?.map_or(Ok(()), |add| self.target.take(Action::Add(add)))?;
            }
        }
        if let Some(path) = row.text(Field::RemovePath)?
            && self.target.removed_path(path)?
        {
            has_wanted = true;
            if pass != Pass::Paths {
                row.remove()?.map_or(Ok(()), |remove| self.target.take(Action::Remove(remove)))?;
            }
        }
        if pass != Pass::Files {
            self.others(row)?;
        }
        Ok(has_wanted)
    }
}

/// A file of a checkpoint, as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckpointFile {
    pub at: ObjectKey,
    pub etag: crate::store::ETag,
    pub size_bytes: u64,
    pub is_json: bool,
}

/// Gives the actions of one file of a checkpoint to the target, and those of the sidecars that it names.
pub(super) async fn read_file(
    objects: &dyn ReadObjects,
    root: &Location,
    file: &CheckpointFile,
    target: &mut dyn Target,
) -> Result<(), CheckpointError> {
    read_in_portions(objects, root, file, Portions::default(), target).await
}

async fn read_in_portions(
    objects: &dyn ReadObjects,
    root: &Location,
    file: &CheckpointFile,
    portions: Portions,
    target: &mut dyn Target,
) -> Result<(), CheckpointError> {
    let mut sorter = Sorter { target, sidecars: Vec::new() };
    if file.is_json {
        read_lines(objects, file, portions, &mut sorter).await?;
    } else {
        file::read(objects, &file.at, file.size_bytes, portions, &mut sorter).await?;
    }
    if sorter.interest() == Interest::None {
        return Ok(());
    }
    for sidecar in std::mem::take(&mut sorter.sidecars) {
        let at = sidecar_key(root, &sidecar)?;
        let read = file::read(objects, &at, sidecar.size_bytes, portions, &mut sorter).await;
        read.map_err(|error| error.at(&at))?;
        if !sorter.sidecars.is_empty() {
            return Err(CheckpointError::damaged("a sidecar names a sidecar").at(&at));
        }
    }
    Ok(())
}

async fn read_lines(
    objects: &dyn ReadObjects,
    file: &CheckpointFile,
    portions: Portions,
    sorter: &mut Sorter<'_>,
) -> Result<(), CheckpointError> {
    let source = Source { objects, at: &file.at, etag: &file.etag, portions };
    let mut reader = LineReader::new(file.size_bytes);
    while let Some(lines) = reader.next(source).await? {
        sorter.sidecars.extend(lines.sidecars);
        sorter.actions(lines.actions)?;
    }
    Ok(())
}

/// What a file of a checkpoint has in columns of their own, by their paths from the group on (`stats_parsed`, …).
pub type Parsed<'a> = Vec<(&'a [String], ParsedValue)>;

struct ParsedSink<'a> {
    root: &'a Location,
    each: &'a mut (dyn FnMut(FileKey, Parsed<'_>) + Send),
    sidecars: Vec<Sidecar>,
}

impl Sink for ParsedSink<'_> {
    fn interest(&self) -> Interest {
        Interest::Parsed
    }

    fn row(&mut self, row: &Row, _: Pass) -> Result<bool, CheckpointError> {
        if let Some(path) = row.text(Field::AddPath)? {
            let at = resolve(self.root, path, Reach::Anywhere).map_err(CheckpointError::damaged)?;
            let key = FileKey { at, dv_id: row.add_vector()?.map(|vector| vector.id()) };
            (self.each)(key, row.parsed().collect());
        }
        self.sidecars.extend(row.sidecar()?);
        Ok(false)
    }
}

/// Gives what each live file of one file of a checkpoint has in columns of their own, those of its sidecars included. Lines of
/// JSON have no types: where they have such a member it is damaged, as far as anybody is concerned who wants to know.
pub(super) async fn read_parsed(
    objects: &dyn ReadObjects,
    root: &Location,
    file: &CheckpointFile,
    each: &mut (dyn FnMut(FileKey, Parsed<'_>) + Send),
) -> Result<(), CheckpointError> {
    let portions = Portions::default();
    let mut sink = ParsedSink { root, each, sidecars: Vec::new() };
    if file.is_json {
        let source = Source { objects, at: &file.at, etag: &file.etag, portions };
        let mut reader = LineReader::new(file.size_bytes);
        while let Some(lines) = reader.next(source).await? {
            if lines.has_parsed {
                return Err(CheckpointError::damaged("parsed statistics or partition values in JSON"));
            }
            sink.sidecars.extend(lines.sidecars);
        }
    } else {
        file::read(objects, &file.at, file.size_bytes, portions, &mut sink).await?;
    }
    for sidecar in std::mem::take(&mut sink.sidecars) {
        let at = sidecar_key(root, &sidecar)?;
        file::read(objects, &at, sidecar.size_bytes, portions, &mut sink).await.map_err(|error| error.at(&at))?;
    }
    Ok(())
}

/// Sidecars lie in one folder; writers give their name only, or a whole URI.
fn sidecar_key(root: &Location, sidecar: &Sidecar) -> Result<ObjectKey, CheckpointError> {
    let folder = log_key(root, SIDECAR_DIR);
    let at = if sidecar.path.contains('/') {
        resolve(root, &sidecar.path, Reach::Anywhere)
    } else {
        resolve(root, &format!("{LOG_DIR}/{SIDECAR_DIR}/{}", sidecar.path), Reach::Anywhere)
    };
    let at = at.map_err(CheckpointError::damaged)?;
    let name = at.key.strip_prefix(&folder.key).and_then(|rest| rest.strip_prefix('/'));
    if at.bucket != folder.bucket || name.is_none_or(|name| name.is_empty() || name.contains('/')) {
        return Err(CheckpointError::damaged(format!("the sidecar `{}` lies outside {SIDECAR_DIR}/", sidecar.path)));
    }
    Ok(at)
}

/// Gives the actions of a log compaction to `each`, some at a time.
pub(super) async fn read_compaction(
    objects: &dyn ReadObjects,
    file: &CheckpointFile,
    mut each: impl FnMut(Actions) -> Result<(), CheckpointError> + Send,
) -> Result<(), CheckpointError> {
    let source = Source { objects, at: &file.at, etag: &file.etag, portions: Portions::default() };
    let mut reader = LineReader::new(file.size_bytes);
    while let Some(lines) = reader.next(source).await? {
        each(lines.actions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
