//! What the log says of the files that a judgement hangs on.

use std::collections::{BTreeMap, BTreeSet};

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
}

/// Some files of a table, and the table, at one version; commits fold into it.
#[derive(Clone, Debug, Default)]
pub(super) struct AtVersion {
    files: BTreeMap<FileKey, AddFile>,
    table: TableAtRead,
}

impl AtVersion {
    pub fn of_snapshot(wanted: &BTreeSet<ObjectKey>, snapshot: &Snapshot) -> AtVersion {
        let files = wanted.iter().flat_map(|key| snapshot.live_at(key)).map(|(key, add)| (key.clone(), add.clone()));
        let table = TableAtRead {
            protocol: snapshot.protocol.clone(),
            metadata: snapshot.metadata.clone(),
            domains: snapshot.domains.clone(),
        };
        AtVersion { files: files.collect(), table }
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
        let at_latest = AtVersion::of_snapshot(&wanted, at_latest);
        FileFacts::of_versions(wanted, at_read, at_latest)
    }

    pub(super) fn of_versions(
        wanted: BTreeSet<ObjectKey>,
        at_read: Option<AtVersion>,
        at_latest: AtVersion,
    ) -> FileFacts {
        FileFacts { wanted, at_read, at_latest: at_latest.files }
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
