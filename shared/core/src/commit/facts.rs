//! What the log says of the files that a judgement hangs on.

use std::collections::{BTreeMap, BTreeSet};

use crate::delta::snapshot::FileKey;
use crate::delta::{AddFile, Snapshot};
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

/// Whether and how the files that were asked about are live, at the version that was read and at the latest.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    wanted: BTreeSet<ObjectKey>,
    /// None: the log no longer tells.
    at_read: Option<BTreeMap<FileKey, AddFile>>,
    at_latest: BTreeMap<FileKey, AddFile>,
    live_count: usize,
}

impl FileFacts {
    /// Facts about `wanted` from the states at both versions.
    pub fn of_snapshots(wanted: BTreeSet<ObjectKey>, at_read: Option<&Snapshot>, at_latest: &Snapshot) -> FileFacts {
        let pick = |snapshot: &Snapshot| {
            wanted
                .iter()
                .flat_map(|key| range_of(&snapshot.live, key))
                .map(|(key, add)| (key.clone(), add.clone()))
                .collect()
        };
        let at_latest_all = at_latest.live.len();
        let (at_read, at_latest) = (at_read.map(pick), pick(at_latest));
        FileFacts { wanted, at_read, at_latest, live_count: at_latest_all }
    }

    /// Whether the file was asked about.
    pub fn knows(&self, key: &ObjectKey) -> bool {
        self.wanted.contains(key)
    }

    /// Live files of the whole table at the latest version, whatever was asked about.
    pub fn live_count(&self) -> usize {
        self.live_count
    }

    pub fn at_read(&self, key: &ObjectKey) -> AtRead<'_> {
        let Some(files) = self.at_read.as_ref().filter(|_| self.knows(key)) else { return AtRead::Unknown };
        let live: Vec<_> = range_of(files, key).map(|(_, add)| add).collect();
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
