use std::collections::BTreeMap;

use super::Role;
use super::packed::Pack;
use crate::iceberg::{ManifestEntry, ManifestRef, Visit};
use crate::location::Location;
use crate::store::ObjectKey;
use crate::sweep::delays::{Delays, RECENT_MS};
use crate::sweep::refs::References;

/// Takes in what a walk finds.
pub(super) struct Reading<'v> {
    pub(super) references: &'v mut References,
    pub(super) delays: &'v mut Delays,
    pub(super) pack: Option<&'v mut Pack>,
    pub(super) home: Option<&'v Location>,
    pub(super) role: Role,
    pub(super) committed_ms: &'v BTreeMap<i64, i64>,
    pub(super) now_ms: i64,
    /// Lists that were read.
    pub(super) lists: BTreeMap<ObjectKey, Vec<ManifestRef>>,
}

impl Visit for Reading<'_> {
    fn metadata(&mut self, at: &ObjectKey) {
        self.references.add(at);
    }

    fn manifest(&mut self, manifest: &ManifestRef, named: &[ManifestEntry]) {
        let recent_ms = self.now_ms.saturating_sub(RECENT_MS);
        if let (Some(pack), Some(home)) = (&mut self.pack, self.home) {
            let is_recent = |id: i64| self.committed_ms.get(&id).is_some_and(|committed_ms| *committed_ms > recent_ms);
            pack.add(manifest, named, home, is_recent);
            if self.is_known(manifest) {
                return;
            }
        }
        for entry in named {
            self.references.add_content(&entry.at);
            if self.role == Role::Own
                && let Some(committed_ms) = entry.added_by.and_then(|id| self.committed_ms.get(&id))
            {
                self.delays.expect(&entry.at, *committed_ms, self.now_ms);
            }
        }
    }

    fn list(&mut self, at: &ObjectKey, manifests: &[ManifestRef]) {
        if self.pack.is_some() {
            self.lists.insert(at.clone(), manifests.to_vec());
        }
    }

    fn known_list(&mut self, at: &ObjectKey) -> Option<Vec<ManifestRef>> {
        self.pack.as_ref()?.list(at)
    }

    fn is_known(&mut self, manifest: &ManifestRef) -> bool {
        let Some(packed) = self.pack.as_ref().and_then(|pack| pack.manifest(manifest)) else { return false };
        self.references.add_packed(&packed);
        if let Some(committed_ms) = packed.added_by.and_then(|id| self.committed_ms.get(&id)) {
            packed.added.iter().for_each(|file| self.delays.expect_hash(|| *file, *committed_ms, self.now_ms));
        }
        true
    }
}
