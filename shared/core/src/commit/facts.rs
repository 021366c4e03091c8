//! What the log says of the files that a judgement hangs on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::delta::Covers;
use crate::delta::snapshot::{FileKey, LoggedCommit, key_of_add, key_of_remove};
use crate::delta::{AddFile, DomainMetadata, Metadata, PathError, Protocol, Snapshot};
use crate::location::Location;
use crate::store::ObjectKey;

/// A file at the version that a candidate read.
#[derive(Clone, Debug, PartialEq)]
pub enum AtRead<'a> {
    /// Live; more than once if under several deletion vectors, which no sound log has.
    Live(Vec<&'a AddFile>),
    Absent,
    /// The log no longer tells.
    Unknown,
}

/// The table at the version that a candidate read, but for its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAtRead {
    pub protocol: Protocol,
    pub metadata: Metadata,
    pub domains: BTreeMap<String, DomainMetadata>,
}

/// Whether and how the files that were asked about are live, at the version that was read and at the latest.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    wanted: BTreeSet<ObjectKey>,
    /// None: the log no longer tells.
    at_read: Option<AtVersion>,
    at_latest: BTreeMap<FileKey, AddFile>,
    whole: Option<Whole>,
}

/// Some files of a table, and the table, at one version; commits fold into it.
#[derive(Clone, Debug, Default)]
pub(super) struct AtVersion {
    files: BTreeMap<FileKey, AddFile>,
    table: TableAtRead,
    /// Where all live files are known.
    whole: Option<Whole>,
}

/// All files of a table: those of a snapshot, and what came and went since.
#[derive(Clone, Debug)]
struct Whole {
    base: Arc<Snapshot>,
    /// True: live from then on.
    moves: Vec<(FileKey, bool)>,
}

impl Whole {
    fn live_count(&self) -> usize {
        let last: BTreeMap<&FileKey, bool> = self.moves.iter().map(|(key, is_live)| (key, *is_live)).collect();
        let (came, went) = last.into_iter().fold((0, 0), |(came, went), (key, is_live)| {
            match (self.base.live.contains_key(key), is_live) {
                (false, true) => (came + 1, went),
                (true, false) => (came, went + 1),
                _ => (came, went),
            }
        });
        (self.base.live.len() + came).saturating_sub(went)
    }
}

impl AtVersion {
    pub fn of_snapshot(wanted: &BTreeSet<ObjectKey>, snapshot: &Snapshot) -> AtVersion {
        let files = wanted.iter().flat_map(|key| snapshot.live_at(key)).map(|(key, add)| (key.clone(), add.clone()));
        let table = TableAtRead {
            protocol: snapshot.protocol.clone(),
            metadata: snapshot.metadata.clone(),
            domains: snapshot.domains.clone(),
        };
        AtVersion { files: files.collect(), table, whole: None }
    }

    /// The same, with the number of all live files where the snapshot has them all.
    pub fn of_base(wanted: &BTreeSet<ObjectKey>, base: &Arc<Snapshot>) -> AtVersion {
        let whole = (base.covers == Covers::All).then(|| Whole { base: base.clone(), moves: Vec::new() });
        AtVersion { whole, ..AtVersion::of_snapshot(wanted, base) }
    }

    /// One commit later.
    pub fn apply(
        &mut self,
        root: &Location,
        wanted: &BTreeSet<ObjectKey>,
        commit: &LoggedCommit,
    ) -> Result<(), PathError> {
        let actions = &commit.actions;
        if let Some(protocol) = &actions.protocol {
            self.table.protocol = protocol.clone();
        }
        if let Some(metadata) = &actions.metadata {
            self.table.metadata = metadata.clone();
        }
        for domain in &actions.domains {
            if domain.removed {
                self.table.domains.remove(&domain.domain);
            } else {
                self.table.domains.insert(domain.domain.clone(), domain.clone());
            }
        }
        if let Some(whole) = &mut self.whole {
            for remove in &actions.removes {
                whole.moves.push((key_of_remove(root, remove)?, false));
            }
            for add in &actions.adds {
                whole.moves.push((key_of_add(root, add)?, true));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        // Removes first: a commit may replace one vector of a file by another.
        for remove in &actions.removes {
            self.files.remove(&key_of_remove(root, remove)?);
        }
        for add in &actions.adds {
            let key = key_of_add(root, add)?;
            if wanted.contains(&key.at) {
                self.files.insert(key, add.clone());
            }
        }
        Ok(())
    }
}

impl FileFacts {
    /// Facts about `wanted` from the states at both versions.
    pub fn of_snapshots(wanted: BTreeSet<ObjectKey>, at_read: Option<&Snapshot>, at_latest: &Snapshot) -> FileFacts {
        let at_read = at_read.map(|snapshot| AtVersion::of_snapshot(&wanted, snapshot));
        let at_latest = AtVersion::of_base(&wanted, &Arc::new(at_latest.clone()));
        FileFacts::of_versions(wanted, at_read, at_latest)
    }

    pub(super) fn of_versions(
        wanted: BTreeSet<ObjectKey>,
        at_read: Option<AtVersion>,
        at_latest: AtVersion,
    ) -> FileFacts {
        FileFacts { wanted, at_read, at_latest: at_latest.files, whole: at_latest.whole }
    }

    /// The table at the version that was read; `None`: the log no longer tells.
    pub fn table_at_read(&self) -> Option<&TableAtRead> {
        self.at_read.as_ref().map(|state| &state.table)
    }

    /// Whether the file was asked about.
    pub fn knows(&self, key: &ObjectKey) -> bool {
        self.wanted.contains(key)
    }

    pub fn at_read(&self, key: &ObjectKey) -> AtRead<'_> {
        let Some(files) = self.at_read.as_ref().filter(|_| self.knows(key)) else { return AtRead::Unknown };
        let live: Vec<_> = range_of(&files.files, key).map(|(_, add)| add).collect();
        if live.is_empty() { AtRead::Absent } else { AtRead::Live(live) }
    }

    /// Live files of the whole table at the latest version, whatever was asked about; `None` where a table has so many
    /// that only some were looked at.
    pub fn live_count(&self) -> Option<usize> {
        self.whole.as_ref().map(Whole::live_count)
    }

    /// At the latest version.
    pub fn live(&self, key: &ObjectKey) -> Vec<(&FileKey, &AddFile)> {
        range_of(&self.at_latest, key).collect()
    }
}

fn range_of<'a>(
    files: &'a BTreeMap<FileKey, AddFile>,
    key: &ObjectKey,
) -> impl Iterator<Item = (&'a FileKey, &'a AddFile)> + use<'a> {
    let (from, key) = (FileKey { at: key.clone(), dv_id: None }, key.clone());
    files.range(from..).take_while(move |(found, _)| found.at == key)
}
