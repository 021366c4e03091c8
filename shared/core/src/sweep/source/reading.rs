use std::collections::{BTreeMap, HashMap};

use super::Role;
use super::packed::Pack;
use crate::iceberg::{ManifestEntry, ManifestRef, Visit};
use crate::location::Location;
use crate::store::{ObjectKey, ObjectMeta};
use crate::sweep::delays::{Delays, RECENT_MS};
use crate::sweep::refs::{References, exact_hash};
use crate::sweep::survey::state_hash;

/// Takes in what a walk finds.
pub(super) struct Reading<'v> {
    pub(super) references: &'v mut References,
    pub(super) delays: &'v mut Delays,
    pub(super) pack: Option<&'v mut Pack>,
    pub(super) home: Option<&'v Location>,
    pub(super) role: Role,
    pub(super) committed_ms: &'v BTreeMap<i64, i64>,
    pub(super) now_ms: i64,
    /// Lists that were read, each with a hash of the object that it was.
    pub(super) lists: BTreeMap<ObjectKey, (u64, Vec<ManifestRef>)>,
    /// What was not read since an earlier run had: hashes of keys and of the objects that were read.
    pub(super) believed: &'v mut HashMap<u64, u64>,
}

impl Reading<'_> {
    /// Adds what the pack has of a manifest; answers the state of the object that it was read from.
    fn add_packed(&mut self, manifest: &ManifestRef) -> Option<u64> {
        let (state, packed) = self.pack.as_ref().and_then(|pack| pack.manifest(manifest))?;
        self.references.add_packed(&packed);
        if let Some(committed_ms) = packed.added_by.and_then(|id| self.committed_ms.get(&id)) {
            packed.added.iter().for_each(|file| self.delays.expect_hash(|| *file, *committed_ms, self.now_ms));
        }
        Some(state)
    }
}

impl Visit for Reading<'_> {
    fn metadata(&mut self, at: &ObjectKey) {
        self.references.add(at);
    }

    fn manifest(&mut self, manifest: &ManifestRef, named: &[ManifestEntry], read: &ObjectMeta) {
        let recent_ms = self.now_ms.saturating_sub(RECENT_MS);
        if let (Some(pack), Some(home)) = (&mut self.pack, self.home) {
            let is_recent = |id: i64| self.committed_ms.get(&id).is_some_and(|committed_ms| *committed_ms > recent_ms);
            let state = state_hash(&read.etag, read.size_bytes);
            if pack.add(manifest, state, named, home, is_recent) && self.add_packed(manifest).is_some() {
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

    fn list(&mut self, at: &ObjectKey, manifests: &[ManifestRef], read: &ObjectMeta) {
        if self.pack.is_some() {
            self.lists.insert(at.clone(), (state_hash(&read.etag, read.size_bytes), manifests.to_vec()));
        }
    }

    fn known_list(&mut self, at: &ObjectKey) -> Option<Vec<ManifestRef>> {
        let (state, manifests) = self.pack.as_ref()?.list(at)?;
        self.believed.insert(exact_hash(at), state);
        Some(manifests)
    }

    fn is_known(&mut self, manifest: &ManifestRef) -> bool {
        let Some(state) = self.add_packed(manifest) else { return false };
        self.believed.insert(exact_hash(&manifest.at), state);
        true
    }
}
