//! What a table's manifests name, kept from one run to the next: writers never change manifests, so only new ones are
//! read.
//!
//! One object per table beside its reports (`<reports>/<table id>/manifests.bin`): which lists name which manifests, and
//! of each manifest the hashes of what it names. A manifest counts as known only if a list that the table's metadata
//! names now leads to it, so files of snapshots that have expired are not kept by what is remembered of them.
//!
//! Of every list and manifest the state of the object that was read is kept. What a run believes without reading it, its
//! listing has to show in that state: what was removed, torn or written anew since is read, or refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::marks::{SavedMark, SavedTable};
use crate::iceberg::{ManifestContent, ManifestEntry, ManifestRef};
use crate::location::Location;
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey, Objects, PutOptions, ReadObjects};
use crate::sweep::blob::{decode_blob, encode_blob};
use crate::sweep::refs::{NameHashes, Packed, exact_hash};
use crate::sweep::survey::has_avro_name;
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// Another layout, or another way to hash names, is not read. Nor is what was believed under laxer rules: lists of which
/// a manifest may be missing.
const LAYOUT: u64 = 4;
/// Numbers of one object, 64 MiB. Manifests beyond that are read by every run.
const NUMBERS_MAX: usize = 8 * 1024 * 1024;
/// Manifests that lists name, all together.
const NAMED_MAX: usize = 1_000_000;
/// Keys of a manifest that are kept to cut listings by.
const SAMPLE: usize = 4;
/// Folders outside the table's location that are remembered of a manifest; with more, its files lie anywhere.
const ELSEWHERE_MAX: usize = 100;

#[derive(Serialize, Deserialize)]
struct Head {
    layout: u64,
    /// The location that `elsewhere` is meant from.
    home: (String, String),
    lists: Vec<(String, String, u64, Vec<usize>)>,
    manifests: Vec<Entry>,
    /// Of metadata files.
    #[serde(default)]
    tables: Vec<SavedTable>,
    #[serde(default)]
    marks: Vec<SavedMark>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    bucket: String,
    key: String,
    /// Of the object that was read.
    state: u64,
    length_bytes: Option<u64>,
    entries: Option<u64>,
    live: Option<u64>,
    is_deletes: bool,
    snapshot: Option<i64>,
    /// Numbers of each kind: names, loose names, folders, names of files that `added_by` added.
    counts: [usize; 4],
    added_by: Option<i64>,
    elsewhere: Vec<(String, String)>,
    is_anywhere: bool,
    sample: Vec<(u64, String)>,
}

/// Of one manifest.
#[derive(Clone, Debug)]
struct Known {
    entry: Entry,
    start: usize,
}

/// Everything that is remembered of a table's manifests.
#[derive(Debug, Default)]
pub(super) struct Pack {
    manifests: Vec<Known>,
    by_key: HashMap<ObjectKey, usize>,
    lists: BTreeMap<ObjectKey, (u64, Vec<usize>)>,
    numbers: Vec<u64>,
    /// Keys of what is not believed until it was read again.
    doubted: HashSet<u64>,
    marks: (Vec<SavedTable>, Vec<SavedMark>),
    is_changed: bool,
}

fn object_key(reports: &Location, table_id: &str) -> ObjectKey {
    reports.object(&format!("{table_id}/manifests.bin"))
}

impl Pack {
    /// What earlier runs left. None that can be read is no harm: every manifest is read again.
    pub(super) async fn load(
        objects: &dyn ReadObjects,
        reports: &Location,
        table_id: &str,
        home: &Location,
    ) -> Result<Self, SweepError> {
        let at = object_key(reports, table_id);
        let most = (NUMBERS_MAX as u64).saturating_mul(16);
        let range = Some(ByteRange::From { start: 0, length: most });
        let bytes = match objects.get(&at, &GetOptions { range, if_match: None }).await {
            Ok(object) => object.bytes,
            Err(ObjectError::NotFound(_) | ObjectError::InvalidRange(_)) => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        Ok(Self::decode(&bytes, home).unwrap_or_default())
    }

    fn decode(bytes: &[u8], home: &Location) -> Option<Self> {
        let (head, [numbers]) = decode_blob::<Head, 1>(bytes)?;
        if head.layout != LAYOUT || head.home != (home.bucket.clone(), home.prefix.clone()) {
            return None;
        }
        let mut pack = Self { numbers, marks: (head.tables, head.marks), ..Self::default() };
        let mut start = 0_usize;
        for entry in head.manifests {
            let count = entry.counts.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
            let at = ObjectKey::new(entry.bucket.clone(), entry.key.clone());
            pack.by_key.insert(at, pack.manifests.len());
            pack.manifests.push(Known { entry, start });
            start = start.checked_add(count)?;
        }
        if start != pack.numbers.len() {
            return None;
        }
        for (bucket, key, state, named) in head.lists {
            if named.iter().any(|index| *index >= pack.manifests.len()) {
                return None;
            }
            pack.lists.insert(ObjectKey { bucket, key }, (state, named));
        }
        Some(pack)
    }

    /// What earlier runs have read in metadata files.
    pub(super) fn marks(&self) -> (&[SavedTable], &[SavedMark]) {
        (&self.marks.0, &self.marks.1)
    }

    pub(super) fn set_marks(&mut self, marks: (Vec<SavedTable>, Vec<SavedMark>)) {
        self.is_changed |= self.marks != marks;
        self.marks = marks;
    }

    /// No longer believes what it has of these keys.
    pub(super) fn doubt(&mut self, keys: &HashSet<u64>) {
        self.doubted.extend(keys);
    }

    fn is_doubted(&self, at: &ObjectKey) -> bool {
        !self.doubted.is_empty() && self.doubted.contains(&exact_hash(at))
    }

    /// The manifests that a list is known to name, and the state of the object that said so.
    pub(super) fn list(&self, at: &ObjectKey) -> Option<(u64, Vec<ManifestRef>)> {
        let (state, named) = self.lists.get(at).filter(|_| !self.is_doubted(at))?;
        let refs: Option<Vec<ManifestRef>> =
            named.iter().map(|index| self.manifests.get(*index).map(|known| manifest_ref(&known.entry))).collect();
        Some((*state, refs?))
    }

    /// What a manifest names, and the state of the object that said so, if it is known and is the one that its list
    /// describes.
    pub(super) fn manifest(&self, manifest: &ManifestRef) -> Option<(u64, Packed<'_>)> {
        if self.is_doubted(&manifest.at) {
            return None;
        }
        let known = self.manifests.get(*self.by_key.get(&manifest.at)?)?;
        let is_same = |ours: Option<u64>, theirs: Option<u64>| theirs.is_none() || ours == theirs;
        if !is_same(known.entry.length_bytes, manifest.length_bytes) || !is_same(known.entry.entries, manifest.entries)
        {
            return None;
        }
        let mut rest = self.numbers.get(known.start..)?;
        let mut columns = [[].as_slice(); 4];
        for (column, count) in columns.iter_mut().zip(known.entry.counts) {
            (*column, rest) = rest.split_at_checked(count)?;
        }
        let [exact, loose, folders, added] = columns;
        let packed = Packed {
            exact,
            loose,
            folders,
            added,
            added_by: known.entry.added_by,
            elsewhere: &known.entry.elsewhere,
            is_anywhere: known.entry.is_anywhere,
            sample: &known.entry.sample,
        };
        Some((known.entry.state, packed))
    }

    /// Remembers what a manifest names, read from an object of this state; `is_recent` tells the snapshots whose files'
    /// ages count. Whether it is remembered.
    pub(super) fn add(
        &mut self,
        manifest: &ManifestRef,
        state: u64,
        named: &[ManifestEntry],
        home: &Location,
        is_recent: impl Fn(i64) -> bool,
    ) -> bool {
        // No listing shows what lies elsewhere, so nobody could tell that it is the same still.
        if !is_listed(&manifest.at, home) {
            return false;
        }
        let mut found = Columns::of(named, home, is_recent);
        let count = found.columns.iter().map(Vec::len).sum::<usize>();
        // Files of several snapshots: whose age each one tells is not kept, so the manifest is read again.
        if found.added_by.len() > 1 || self.numbers.len().saturating_add(count) > NUMBERS_MAX {
            return false;
        }
        found.sample.sort_unstable();
        found.sample.truncate(SAMPLE);
        let is_anywhere = found.elsewhere.len() > ELSEWHERE_MAX;
        let entry = Entry {
            bucket: manifest.at.bucket.clone(),
            key: manifest.at.key.clone(),
            state,
            length_bytes: manifest.length_bytes,
            entries: manifest.entries,
            live: manifest.live,
            is_deletes: manifest.content == ManifestContent::Deletes,
            snapshot: manifest.snapshot,
            counts: found.columns.each_ref().map(Vec::len),
            added_by: found.added_by.into_iter().next(),
            elsewhere: found.elsewhere.into_iter().take(ELSEWHERE_MAX).collect(),
            is_anywhere,
            sample: found.sample,
        };
        let known = Known { entry, start: self.numbers.len() };
        found.columns.iter().for_each(|column| self.numbers.extend_from_slice(column));
        self.doubted.remove(&exact_hash(&manifest.at));
        let before = self.by_key.get(&manifest.at).and_then(|index| self.manifests.get_mut(*index));
        // In the same place: lists that name it go by that.
        if let Some(before) = before {
            *before = known;
        } else {
            self.by_key.insert(manifest.at.clone(), self.manifests.len());
            self.manifests.push(known);
        }
        self.is_changed = true;
        true
    }

    /// Remembers what a list names, as soon as all of its manifests are known.
    fn learn_list(&mut self, at: &ObjectKey, state: u64, manifests: &[ManifestRef], home: &Location) {
        let named: Option<Vec<usize>> = manifests.iter().map(|one| self.by_key.get(&one.at).copied()).collect();
        if let Some(named) = named.filter(|_| is_listed(at, home))
            && self.lists.get(at).is_none_or(|(before, _)| *before != state)
        {
            self.doubted.remove(&exact_hash(at));
            self.lists.insert(at.clone(), (state, named));
            self.is_changed = true;
        }
    }

    /// Writes what the lists that are named now lead to, if anything is new.
    pub(super) async fn store(
        &mut self,
        objects: &dyn Objects,
        (reports, table_id, home): (&Location, &str, &Location),
        read: &BTreeMap<ObjectKey, (u64, Vec<ManifestRef>)>,
        named_now: &HashSet<&ObjectKey>,
    ) -> Result<(), SweepError> {
        read.iter().for_each(|(at, (state, manifests))| self.learn_list(at, *state, manifests, home));
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        let (mut head, mut numbers) = (
            Head {
                layout: LAYOUT,
                home: (home.bucket.clone(), home.prefix.clone()),
                lists: Vec::new(),
                manifests: Vec::new(),
                tables: self.marks.0.clone(),
                marks: self.marks.1.clone(),
            },
            Vec::new(),
        );
        let (mut places, mut count) = (HashMap::new(), 0_usize);
        for (at, (state, named)) in self.lists.iter().filter(|(at, _)| named_now.contains(at)) {
            count = count.saturating_add(named.len());
            if count > NAMED_MAX {
                break;
            }
            let mut indices = Vec::with_capacity(named.len());
            for index in named {
                let next = head.manifests.len();
                let place = *places.entry(*index).or_insert(next);
                if place == next
                    && let Some(known) = self.manifests.get(*index)
                {
                    let length = known.entry.counts.iter().sum::<usize>();
                    let end = known.start.saturating_add(length);
                    numbers.extend_from_slice(self.numbers.get(known.start..end).unwrap_or_default());
                    head.manifests.push(known.entry.clone());
                }
                indices.push(place);
            }
            head.lists.push((at.bucket.clone(), at.key.clone(), *state, indices));
        }
        let bytes = encode_blob(&head, &[&numbers])
            .map_err(|error| Refusal::new(RefusalReason::MetadataUnreadable, error.to_string()))?;
        objects.put(&object_key(reports, table_id), bytes, &PutOptions::default()).await?;
        Ok(())
    }
}

/// What is kept of the files that a manifest names.
#[derive(Default)]
struct Columns {
    columns: [Vec<u64>; 4],
    added_by: BTreeSet<i64>,
    elsewhere: BTreeSet<(String, String)>,
    /// Sorted and cut to its length by whoever keeps it.
    sample: Vec<(u64, String)>,
}

impl Columns {
    fn of(named: &[ManifestEntry], home: &Location, is_recent: impl Fn(i64) -> bool) -> Self {
        let mut found = Self::default();
        let mut inside = HashSet::new();
        let [exact, loose, folders, added] = &mut found.columns;
        for one in named {
            let hashes = NameHashes::of(&one.at, Some(&home.bucket));
            exact.push(hashes.exact);
            loose.extend([hashes.loose, hashes.cut].into_iter().flatten());
            inside.extend(hashes.folder);
            if let Some(id) = one.added_by.filter(|id| is_recent(*id)) {
                added.push(hashes.exact);
                found.added_by.insert(id);
            }
            if home.relative(&one.at).is_none() {
                found.elsewhere.insert(folder_of(&one.at));
            }
            found.sample.push((hashes.exact, one.at.key.clone()));
            if found.sample.len() > 2 * SAMPLE {
                found.sample.sort_unstable();
                found.sample.truncate(SAMPLE);
            }
        }
        folders.extend(inside);
        found
    }
}

/// Whether the listing of the table's location shows an object, and it is looked for there.
fn is_listed(at: &ObjectKey, home: &Location) -> bool {
    home.relative(at).is_some() && has_avro_name(&at.key)
}

fn manifest_ref(entry: &Entry) -> ManifestRef {
    ManifestRef {
        at: ObjectKey::new(entry.bucket.clone(), entry.key.clone()),
        length_bytes: entry.length_bytes,
        entries: entry.entries,
        live: entry.live,
        // A list that is known was held against what its snapshot counts.
        live_rows: None,
        added: None,
        added_rows: None,
        content: if entry.is_deletes { ManifestContent::Deletes } else { ManifestContent::Data },
        snapshot: entry.snapshot,
    }
}

fn folder_of(at: &ObjectKey) -> (String, String) {
    let folder = at.key.rsplit_once('/').map_or("", |(folder, _)| folder);
    (at.bucket.clone(), folder.trim_matches('/').to_owned())
}
