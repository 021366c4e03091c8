//! What a snapshot's summary counts, held against what its manifests name: a list that is cut off behind its header, or
//! that has lost a manifest, would be a good one otherwise.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::manifest::{EntryStatus, ManifestContent};
use super::{IcebergError, ManifestEntry, ManifestRef};
use crate::store::{ObjectKey, ObjectMeta};

/// Files, and rows in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Count {
    pub files: u64,
    pub rows: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.rows = self.rows.saturating_add(other.rows);
    }

    fn max(self, other: Self) -> Self {
        Self { files: self.files.max(other.files), rows: self.rows.max(other.rows) }
    }

    fn reaches(self, least: Self) -> bool {
        self.files >= least.files && self.rows >= least.rows
    }
}

/// What the manifests of a snapshot must name at least, files that it removed not counted. Zero: its summary does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least {
    pub data: Count,
    pub deletes: u64,
    /// Files of either kind.
    pub any: u64,
    /// Of what the snapshot itself added. Entries that are carried over from earlier ones do not make up for it.
    pub added_data: Count,
    pub added_deletes: u64,
}

impl Least {
    /// Whether nothing is said.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Both demands as one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            data: self.data.max(other.data),
            deletes: self.deletes.max(other.deletes),
            any: self.any.max(other.any),
            added_data: self.added_data.max(other.added_data),
            added_deletes: self.added_deletes.max(other.added_deletes),
        }
    }

    /// Whether a list says of a manifest all that this is held against.
    fn is_told_by(&self, manifest: &ManifestRef) -> bool {
        let is_data = manifest.content == ManifestContent::Data;
        let added = if is_data { self.added_data.files } else { self.added_deletes };
        let (rows, added_rows) = if is_data { (self.data.rows, self.added_data.rows) } else { (0, 0) };
        let tells_rows = (rows == 0 || manifest.live_rows.is_some())
            && (added_rows == 0 || (manifest.added_rows.is_some() && manifest.snapshot.is_some()));
        let tells_added = added == 0 || (manifest.added.is_some() && manifest.snapshot.is_some());
        manifest.live.is_some() && tells_rows && tells_added
    }
}

/// What was counted in a manifest that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counted {
    /// Files that are there.
    pub live: Count,
    /// Files that each snapshot added, in order of snapshots; none where an entry does not say which.
    pub added: Vec<(Option<i64>, Count)>,
}

impl Counted {
    pub(super) fn of(named: &[ManifestEntry]) -> Self {
        let mut counted = Self::default();
        for entry in named.iter().filter(|entry| entry.status != EntryStatus::Deleted) {
            counted.live.add(entry.count);
            if entry.status != EntryStatus::Added {
                continue;
            }
            match counted.added.binary_search_by_key(&entry.added_by, |(snapshot, _)| *snapshot) {
                Ok(place) => {
                    if let Some((_, added)) = counted.added.get_mut(place) {
                        added.add(entry.count);
                    }
                }
                Err(place) => counted.added.insert(place, (entry.added_by, entry.count)),
            }
        }
        counted
    }

    fn added_by(&self, snapshots: &BTreeSet<i64>) -> Count {
        let mut sum = Count::default();
        // Whoever says nothing may mean the snapshot that is looked at.
        let ours = self.added.iter().filter(|(id, _)| id.is_none_or(|id| snapshots.contains(&id)));
        ours.for_each(|(_, count)| sum.add(*count));
        sum
    }
}

/// A list that was read: its manifests, and the object that it was.
pub(super) type ReadList = (ObjectKey, Vec<ManifestRef>, ObjectMeta);

/// What a snapshot demands, and which ones share a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    pub(super) snapshots: BTreeSet<i64>,
    pub(super) least: Least,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    data: Count,
    deletes: u64,
    added_data: Count,
    added_deletes: u64,
}

impl Sums {
    fn add(&mut self, content: ManifestContent, live: Count, added: Count) {
        match content {
            ManifestContent::Data => {
                self.data.add(live);
                self.added_data.add(added);
            }
            ManifestContent::Deletes => {
                self.deletes = self.deletes.saturating_add(live.files);
                self.added_deletes = self.added_deletes.saturating_add(added.files);
            }
        }
    }

    fn reach(&self, least: &Least) -> bool {
        self.data.reaches(least.data)
            && self.deletes >= least.deletes
            && self.data.files.saturating_add(self.deletes) >= least.any
            && self.added_data.reaches(least.added_data)
            && self.added_deletes >= least.added_deletes
    }
}

/// What one snapshot must name and what its manifests say that they do.
pub(super) struct Tally {
    /// The list, or the metadata that names manifests in place.
    what: &'static str,
    at: ObjectKey,
    demand: Demand,
    told: Sums,
    /// Manifests that have to be read to know how many files they name.
    pub(super) uncounted: Vec<(ObjectKey, ManifestContent)>,
    /// To be told of as soon as it is known to be whole.
    pub(super) list: Option<ReadList>,
}

impl Tally {
    pub(super) fn of(what: &'static str, at: &ObjectKey, demand: Demand, manifests: &[ManifestRef]) -> Self {
        let (mut told, mut uncounted) = (Sums::default(), Vec::new());
        for manifest in manifests.iter().filter(|_| !demand.least.is_nothing()) {
            if !demand.least.is_told_by(manifest) {
                uncounted.push((manifest.at.clone(), manifest.content));
                continue;
            }
            let count = |files: Option<u64>, rows: Option<u64>| Count {
                files: files.unwrap_or_default(),
                rows: rows.unwrap_or_default(),
            };
            let is_own = manifest.snapshot.is_none_or(|id| demand.snapshots.contains(&id));
            let added = if is_own { count(manifest.added, manifest.added_rows) } else { Count::default() };
            told.add(manifest.content, count(manifest.live, manifest.live_rows), added);
        }
        Self { what, at: at.clone(), demand, told, uncounted, list: None }
    }

    /// Holds what was read against what must be there.
    pub(super) fn check(&self, counted: &HashMap<ObjectKey, Counted>) -> Result<(), IcebergError> {
        let mut sums = self.told;
        for (at, content) in &self.uncounted {
            if let Some(counted) = counted.get(at) {
                sums.add(*content, counted.live, counted.added_by(&self.demand.snapshots));
            }
        }
        let least = &self.demand.least;
        if sums.reach(least) {
            return Ok(());
        }
        let message = format!(
            "its manifests name {} data files and {} delete files (the snapshot's own: {} and {}), fewer files or rows than              the summary of its snapshot counts: {} data files and {} delete files (its own: {} and {}), {} rows (its own: {}),              {} files of any kind",
            sums.data.files,
            sums.deletes,
            sums.added_data.files,
            sums.added_deletes,
            least.data.files,
            least.deletes,
            least.added_data.files,
            least.added_deletes,
            least.data.rows,
            least.added_data.rows,
            least.any,
        );
        Err(IcebergError::unreadable(self.what, &self.at, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data manifest of `snapshot` with files (added, existing) of 10 rows, as its list describes it.
    fn told(snapshot: Option<i64>, added: u64, existing: u64) -> ManifestRef {
        ManifestRef {
            live: Some(added + existing),
            live_rows: Some(10 * (added + existing)),
            added: Some(added),
            added_rows: Some(10 * added),
            snapshot,
            ..ManifestRef::bare(ObjectKey::new("b", "m.avro"))
        }
    }

    fn check(least: Least, snapshots: &[i64], manifests: &[ManifestRef]) -> Option<bool> {
        let demand = Demand { snapshots: snapshots.iter().copied().collect(), least };
        let tally = Tally::of("a manifest list", &ObjectKey::new("b", "snap.avro"), demand, manifests);
        tally.uncounted.is_empty().then(|| tally.check(&HashMap::new()).is_ok())
    }

    #[test]
    fn a_list_that_counts_is_held_against_the_summary() {
        let files = |files| Least { added_data: Count { files, rows: 0 }, ..Least::default() };
        let rows = |rows| Least { added_data: Count { files: 0, rows }, ..Least::default() };
        let all_rows = |rows| Least { data: Count { files: 0, rows }, ..Least::default() };
        let (own, carried) = (told(Some(2), 3, 1), told(Some(1), 5, 0));
        let both = [own.clone(), carried.clone()];
        // Another snapshot names the same list: whose the entries are does not matter.
        let cases: [(Least, &[i64], &[ManifestRef], Option<bool>); 14] = [
            (files(3), &[2], &both, Some(true)),
            (files(4), &[2], &both, Some(false)),
            (files(8), &[1, 2], &both, Some(true)),
            (files(1), &[2], &both[1..], Some(false)),
            (files(3), &[2], &[told(None, 3, 0)], None),
            (rows(30), &[2], &both, Some(true)),
            (rows(31), &[2], &both, Some(false)),
            (rows(30), &[2], &[ManifestRef { added_rows: None, ..own.clone() }], None),
            (all_rows(90), &[2], &both, Some(true)),
            (all_rows(91), &[2], &both, Some(false)),
            (all_rows(1), &[2], &[ManifestRef { live_rows: None, ..own.clone() }], None),
            (files(1), &[2], &[ManifestRef { added: None, ..own.clone() }], None),
            (files(1), &[2], &[ManifestRef { content: ManifestContent::Deletes, ..own.clone() }], Some(false)),
            (Least::default(), &[2], &[], Some(true)),
        ];
        for (least, snapshots, manifests, expected) in cases {
            assert_eq!(check(least, snapshots, manifests), expected, "{least:?} {snapshots:?} {manifests:?}");
        }
    }

    #[test]
    fn entries_that_do_not_say_whose_they_are_count_for_everybody() {
        let entry = |status, added_by| ManifestEntry {
            at: ObjectKey::new("b", "f"),
            added_by,
            status,
            count: Count { files: 1, rows: 4 },
        };
        let counted = Counted::of(&[
            entry(EntryStatus::Added, Some(2)),
            entry(EntryStatus::Added, None),
            entry(EntryStatus::Added, Some(1)),
            entry(EntryStatus::Added, Some(2)),
            entry(EntryStatus::Existing, None),
            entry(EntryStatus::Deleted, None),
        ]);
        assert_eq!(counted.live, Count { files: 5, rows: 20 });
        assert_eq!(counted.added_by(&[2].into()), Count { files: 3, rows: 12 });
        assert_eq!(counted.added_by(&[3].into()), Count { files: 1, rows: 4 });
        assert_eq!(serde_json::from_value::<Counted>(serde_json::json!(counted)).unwrap(), counted);
    }
}
