//! Actions fold into a state: commits oldest first, a checkpoint before them.

use std::collections::{BTreeMap, BTreeSet};

use super::actions::{Actions, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile};
use super::checkpoint::{Action, CheckpointError, Interest, Target};
use super::log::Version;
use super::path::{PathError, Reach, resolve};
use super::snapshot::{Covers, FileKey, Snapshot, SnapshotError, Wanted, key_of_add, key_of_remove};
use crate::location::Location;
use crate::store::ObjectKey;

/// Is told every file that becomes live, whether it is kept or not; files may be told several times.
pub type PathObserver<'a> = &'a mut (dyn FnMut(&ObjectKey) + Send);

/// Folds actions, oldest first. Memory holds the files that are kept.
pub(super) struct Replay<'a, 'o> {
    root: &'a Location,
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    app_ids: BTreeMap<String, i64>,
    domains: BTreeMap<String, DomainMetadata>,
    live: BTreeMap<FileKey, AddFile>,
    tombstones: BTreeMap<FileKey, RemoveFile>,
    covers: Covers,
    /// Files beyond which none is kept.
    most: usize,
    observer: Option<PathObserver<'o>>,
    is_ambiguous: bool,
}

impl<'a, 'o> Replay<'a, 'o> {
    pub fn new(root: &'a Location, wanted: &Wanted, observer: Option<PathObserver<'o>>) -> Self {
        let (covers, most) = match wanted {
            Wanted::All => (Covers::All, usize::MAX),
            Wanted::AtMost(most) => (Covers::All, *most),
            Wanted::Only(files) => (Covers::Only(files.clone()), usize::MAX),
        };
        Self {
            root,
            protocol: None,
            metadata: None,
            app_ids: BTreeMap::new(),
            domains: BTreeMap::new(),
            live: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            covers,
            most,
            observer,
            is_ambiguous: false,
        }
    }

    /// Folds a commit, or a log compaction.
    pub fn apply(&mut self, version: Version, actions: Actions) -> Result<(), SnapshotError> {
        let path = |error| SnapshotError::Path { version, error };
        self.protocol = actions.protocol.or(self.protocol.take());
        self.metadata = actions.metadata.or(self.metadata.take());
        self.app_ids.extend(actions.txns.into_iter().map(|txn| (txn.app_id, txn.version)));
        actions.domains.into_iter().for_each(|domain| self.set_domain(domain));
        // A commit may replace (path, old vector) by (path, new vector): removes first, whatever the order of lines.
        for remove in actions.removes {
            let key = key_of_remove(self.root, &remove).map_err(path)?;
            if self.covers.covers(&key.at) {
                self.live.remove(&key);
                self.tombstones.insert(key, remove);
            }
        }
        for add in actions.adds {
            let key = key_of_add(self.root, &add).map_err(path)?;
            self.observe(&key.at);
            if self.covers.covers(&key.at) {
                self.tombstones.remove(&key);
                self.live.insert(key, add);
            }
        }
        self.limit();
        Ok(())
    }

    fn set_domain(&mut self, domain: DomainMetadata) {
        if domain.removed {
            self.domains.remove(&domain.domain);
        } else {
            self.domains.insert(domain.domain.clone(), domain);
        }
    }

    fn observe(&mut self, at: &ObjectKey) {
        if let Some(observer) = &mut self.observer {
            observer(at);
        }
    }

    fn limit(&mut self) {
        if self.live.len().saturating_add(self.tombstones.len()) > self.most {
            self.live.clear();
            self.tombstones.clear();
            self.covers = Covers::Only(BTreeSet::new());
        }
    }

    fn resolve(&self, path: &str) -> Result<ObjectKey, CheckpointError> {
        resolve(self.root, path, Reach::Anywhere).map_err(|error| CheckpointError::Damaged(error.to_string()))
    }

    pub fn finish(self, version: Version) -> Result<Snapshot, SnapshotError> {
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
            covers: self.covers,
            is_ambiguous: self.is_ambiguous,
        })
    }
}

fn damaged(error: &PathError) -> CheckpointError {
    CheckpointError::Damaged(error.to_string())
}

impl Target for Replay<'_, '_> {
    fn interest(&self) -> Interest {
        match &self.covers {
            Covers::All => Interest::All,
            Covers::Only(files) if files.is_empty() && self.observer.is_none() => Interest::None,
            Covers::Only(_) => Interest::Some,
        }
    }

    fn live_path(&mut self, path: &str) -> Result<bool, CheckpointError> {
        let at = self.resolve(path)?;
        self.observe(&at);
        Ok(self.covers.covers(&at))
    }

    fn removed_path(&mut self, path: &str) -> Result<bool, CheckpointError> {
        if matches!(&self.covers, Covers::Only(files) if files.is_empty()) {
            return Ok(false);
        }
        Ok(self.covers.covers(&self.resolve(path)?))
    }

    /// In a checkpoint a logical file is live or removed. Where one is both, it is live, as for readers that look at the
    /// adds only.
    fn take(&mut self, action: Action) -> Result<(), CheckpointError> {
        self.is_ambiguous |= match action {
            Action::Protocol(protocol) => self.protocol.replace(protocol).is_some(),
            Action::Metadata(metadata) => self.metadata.replace(metadata).is_some(),
            Action::Txn(txn) => self.app_ids.insert(txn.app_id, txn.version).is_some(),
            Action::Domain(domain) => {
                let is_known = self.domains.contains_key(&domain.domain);
                self.set_domain(domain);
                is_known
            }
            Action::Add(add) => {
                let key = key_of_add(self.root, &add).map_err(|error| damaged(&error))?;
                let was_removed = self.tombstones.remove(&key).is_some();
                let was_live = self.live.insert(key, add).is_some();
                self.limit();
                was_removed || was_live
            }
            Action::Remove(remove) => {
                let key = key_of_remove(self.root, &remove).map_err(|error| damaged(&error))?;
                let is_told = self.live.contains_key(&key) || self.tombstones.contains_key(&key);
                if !self.live.contains_key(&key) {
                    self.tombstones.insert(key, remove);
                    self.limit();
                }
                is_told
            }
        };
        Ok(())
    }
}
