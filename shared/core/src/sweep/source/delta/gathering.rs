//! Who is told what a log says.

use std::collections::{BTreeMap, HashSet};

use super::extras::DELAY_COMMITS;
use super::packed::{CommitFacts, Gathered, Names};
use crate::delta::log::LogEntry;
use crate::delta::outline::{FileId, Listener, UNRESOLVED};
use crate::delta::{Actions, AddFile, DeletionVector, RemoveFile, SnapshotError, Version};
use crate::location::Location;
use crate::store::ObjectKey;
use crate::sweep::delays::RECENT_MS;
use crate::sweep::refs::{NameHashes, References};
use crate::sweep::source::Role;
use crate::sweep::source::staged::{files_of_actions, files_of_path};
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// Operations whose files are older than their commits, and rightly so.
const RE_ADDING: [&str; 3] = ["RESTORE", "CLONE", "CONVERT"];
/// Files of one commit whose ages are looked at.
const ADDED_MAX: usize = 10_000;

/// A path in the log that leads nowhere is told from a log that cannot be read.
pub(super) fn refused(root: &Location, error: SnapshotError) -> SweepError {
    match error {
        SnapshotError::Damaged { message, .. } if message.starts_with(UNRESOLVED) => {
            let why = message.trim_start_matches(UNRESOLVED);
            Refusal::new(RefusalReason::UnresolvedPath, format!("the log of {root}: {why}")).into()
        }
        other => other.into(),
    }
}

fn files_at(root: &Location, path: &str, vector: Option<&DeletionVector>) -> Result<Vec<ObjectKey>, String> {
    files_of_path(root, path, vector).map_err(|why| format!("{UNRESOLVED}{why}"))
}

/// Everything that a log says, for the references and for later runs.
pub(super) struct Gathering<'g> {
    root: &'g Location,
    references: &'g mut References,
    gathered: Gathered,
    facts: Option<Facts<'g>>,
}

impl<'g> Gathering<'g> {
    pub(super) fn new(
        root: &'g Location,
        now_ms: i64,
        role: Role,
        keeps: bool,
        references: &'g mut References,
    ) -> Self {
        let is_own = role == Role::Own;
        let facts = is_own.then(|| Facts::new(root, now_ms, DELAY_COMMITS));
        Self { root, references, gathered: Gathered::new(is_own && keeps), facts }
    }

    pub(super) fn or_refused<T>(&self, read: Result<T, SnapshotError>) -> Result<T, SweepError> {
        read.map_err(|error| refused(self.root, error))
    }

    pub(super) fn finish(self) -> (Gathered, BTreeMap<Version, CommitFacts>) {
        (self.gathered, self.facts.map(Facts::finish).unwrap_or_default())
    }
}

impl Listener for Gathering<'_> {
    fn live(&mut self, id: FileId, add: &AddFile) -> Result<(), String> {
        let files = files_at(self.root, &add.path, add.deletion_vector.as_ref())?;
        let mut names = Names::default();
        files.iter().for_each(|at| names.note(&self.references.add_content(at)));
        self.gathered.note_live(id, &files, &names, self.root);
        Ok(())
    }

    fn removed(&mut self, id: FileId, remove: &RemoveFile) -> Result<(), String> {
        let files = files_at(self.root, &remove.path, remove.deletion_vector.as_ref())?;
        // Whether it counts is not known yet. Where it lies is looked at now, by whoever looks.
        let are_seen = files.iter().filter(|at| self.references.is_seen(at)).count() > 0;
        if !are_seen {
            return Ok(());
        }
        self.gathered.note_dead(remove.deletion_timestamp.unwrap_or(0), id, &files, self.root);
        Ok(())
    }

    fn commit(&mut self, entry: &LogEntry, actions: &Actions) -> Result<(), String> {
        self.facts.as_mut().map_or(Ok(()), |facts| facts.commit(entry, actions))
    }

    fn committed(&mut self, version: Version) {
        if let Some(facts) = &mut self.facts {
            facts.committed(version);
        }
    }
}

/// What single commits say beside the files that are live.
pub(super) struct Facts<'g> {
    root: &'g Location,
    now_ms: i64,
    /// Commits whose files are looked at still.
    measured: usize,
    found: BTreeMap<Version, CommitFacts>,
    reading: CommitFacts,
    /// Paths and names of files that the commit adds, and paths that it removes.
    added: Vec<(u64, u64)>,
    removed: HashSet<u64>,
    is_re_adding: bool,
    is_recent: bool,
}

impl<'g> Facts<'g> {
    pub(super) fn new(root: &'g Location, now_ms: i64, measured: usize) -> Self {
        Self {
            root,
            now_ms,
            measured,
            found: BTreeMap::new(),
            reading: CommitFacts::default(),
            added: Vec::new(),
            removed: HashSet::new(),
            is_re_adding: false,
            is_recent: false,
        }
    }

    pub(super) fn or_refused<T>(&self, read: Result<T, SnapshotError>) -> Result<T, SweepError> {
        read.map_err(|error| refused(self.root, error))
    }

    pub(super) fn finish(self) -> BTreeMap<Version, CommitFacts> {
        self.found
    }
}

/// What tells paths of one commit apart.
fn path_hash(path: &str) -> u64 {
    crate::sweep::blob::hash64(&[path.as_bytes()])
}

impl Listener for Facts<'_> {
    fn live(&mut self, _: FileId, _: &AddFile) -> Result<(), String> {
        Ok(())
    }

    fn removed(&mut self, _: FileId, _: &RemoveFile) -> Result<(), String> {
        Ok(())
    }

    fn commit(&mut self, entry: &LogEntry, actions: &Actions) -> Result<(), String> {
        self.reading.etag.clone_from(&entry.etag.0);
        for cdc in &actions.cdc {
            let names = Names::of(&files_at(self.root, &cdc.path, None)?, &self.root.bucket);
            let [exact, loose] = &mut self.reading.changes;
            exact.extend(names.exact);
            loose.extend(names.loose);
        }
        self.is_recent = entry.last_modified_ms >= self.now_ms.saturating_sub(RECENT_MS);
        // They add files that were committed before, here or elsewhere.
        self.is_re_adding |= actions.operation().is_some_and(|operation| RE_ADDING.contains(&operation));
        if self.measured == 0 || !self.is_recent {
            return Ok(());
        }
        self.removed.extend(actions.removes.iter().map(|remove| path_hash(&remove.path)));
        for add in actions.adds.iter().filter(|add| add.data_change) {
            if self.added.len() >= ADDED_MAX {
                break;
            }
            // What leads nowhere is refused where references are added.
            for at in files_of_path(self.root, &add.path, None).unwrap_or_default() {
                self.added.push((path_hash(&add.path), NameHashes::of(&at, Some(&self.root.bucket)).exact));
            }
        }
        Ok(())
    }

    fn committed(&mut self, version: Version) {
        let mut facts = std::mem::take(&mut self.reading);
        let (added, removed) = (std::mem::take(&mut self.added), std::mem::take(&mut self.removed));
        if self.measured > 0 && self.is_recent {
            self.measured = self.measured.saturating_sub(1);
            // What was there before has another vector now; its age says nothing.
            let is_new = |(path, _): &(u64, u64)| !removed.contains(path);
            let new = added.into_iter().filter(|one| !self.is_re_adding && is_new(one)).map(|(_, name)| name);
            facts.added = Some(new.collect());
        }
        (self.is_re_adding, self.is_recent) = (false, false);
        self.found.insert(version, facts);
    }
}

/// Commits that came since the references were read: what they name is added, whatever they do with it.
pub(super) struct Additions<'g> {
    pub(super) root: &'g Location,
    pub(super) references: &'g mut References,
    /// Whether one changed the protocol or the metadata.
    pub(super) is_changed: bool,
}

impl Listener for Additions<'_> {
    fn live(&mut self, _: FileId, _: &AddFile) -> Result<(), String> {
        Ok(())
    }

    fn removed(&mut self, _: FileId, _: &RemoveFile) -> Result<(), String> {
        Ok(())
    }

    fn commit(&mut self, _: &LogEntry, actions: &Actions) -> Result<(), String> {
        self.is_changed |= actions.protocol.is_some() || actions.metadata.is_some();
        // What was removed just now was live before or within the retention: it is held already, or here.
        let files = files_of_actions(self.root, actions).map_err(|why| format!("{UNRESOLVED}{why}"))?;
        files.iter().for_each(|at| self.references.add(at));
        Ok(())
    }
}

/// Files of the change feed of a table that is not swept.
pub(super) struct ChangeFiles<'g> {
    pub(super) root: &'g Location,
    pub(super) references: &'g mut References,
    /// Whether some lie outside the table's own location.
    pub(super) leaves_home: bool,
}

impl Listener for ChangeFiles<'_> {
    fn live(&mut self, _: FileId, _: &AddFile) -> Result<(), String> {
        Ok(())
    }

    fn removed(&mut self, _: FileId, _: &RemoveFile) -> Result<(), String> {
        Ok(())
    }

    fn commit(&mut self, _: &LogEntry, actions: &Actions) -> Result<(), String> {
        for cdc in &actions.cdc {
            for at in files_at(self.root, &cdc.path, None)? {
                self.references.add(&at);
                self.leaves_home |= self.root.relative(&at).is_none();
            }
        }
        Ok(())
    }
}
