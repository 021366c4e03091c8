//! What a table's manifests name, kept from one run to the next: manifests never change, so only new ones are read.
//!
//! One object per table beside its reports (`<reports>/<table id>/manifests.bin`): which lists name which manifests, and
//! of each manifest the hashes of what it names. A manifest counts as known only if a list that the table's metadata
//! names now leads to it, so files of snapshots that have expired are not kept by what is remembered of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::iceberg::{ManifestEntry, ManifestRef};
use crate::location::Location;
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey, Objects, PutOptions, ReadObjects};
use crate::sweep::blob::{decode_blob, encode_blob};
use crate::sweep::refs::{NameHashes, Packed};
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// Another layout, or another way to hash names, is not read.
const LAYOUT: u64 = 1;
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
    lists: Vec<(String, String, Vec<usize>)>,
    manifests: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    bucket: String,
    key: String,
    length_bytes: Option<u64>,
    entries: Option<u64>,
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
    lists: BTreeMap<ObjectKey, Vec<usize>>,
    numbers: Vec<u64>,
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
        let (head, columns) = decode_blob::<Head>(bytes, 1)?;
        if head.layout != LAYOUT || head.home != (home.bucket.clone(), home.prefix.clone()) {
            return None;
        }
        let numbers = columns.into_iter().next()?;
        let mut pack = Self { numbers, ..Self::default() };
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
        for (bucket, key, named) in head.lists {
            if named.iter().any(|index| *index >= pack.manifests.len()) {
                return None;
            }
            pack.lists.insert(ObjectKey { bucket, key }, named);
        }
        Some(pack)
    }

    /// The manifests that a list is known to name.
    pub(super) fn list(&self, at: &ObjectKey) -> Option<Vec<ManifestRef>> {
        let named = self.lists.get(at)?;
        named.iter().map(|index| self.manifests.get(*index).map(|known| manifest_ref(&known.entry))).collect()
    }

    /// What a manifest names, if it is known and is the one that its list describes.
    pub(super) fn manifest(&self, manifest: &ManifestRef) -> Option<Packed<'_>> {
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
        Some(Packed {
            exact,
            loose,
            folders,
            added,
            added_by: known.entry.added_by,
            elsewhere: &known.entry.elsewhere,
            is_anywhere: known.entry.is_anywhere,
            sample: &known.entry.sample,
        })
    }

    /// Remembers what a manifest names; `is_recent` tells the snapshots whose files' ages count.
    pub(super) fn add(
        &mut self,
        manifest: &ManifestRef,
        named: &[ManifestEntry],
        home: &Location,
        is_recent: impl Fn(i64) -> bool,
    ) {
        let mut columns: [Vec<u64>; 4] = Default::default();
        let (mut folders, mut elsewhere, mut added_by) = (HashSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut sample: Vec<(u64, String)> = Vec::new();
        for one in named {
            let hashes = NameHashes::of(&one.at);
            let [exact, loose, _, added] = &mut columns;
            exact.push(hashes.exact);
            loose.extend([Some(hashes.loose), hashes.cut].into_iter().flatten());
            folders.extend(hashes.folder);
            if let Some(id) = one.added_by.filter(|id| is_recent(*id)) {
                added.push(hashes.exact);
                added_by.insert(id);
            }
            if home.relative(&one.at).is_none() {
                elsewhere.insert(folder_of(&one.at));
            }
            sample.push((hashes.exact, one.at.key.clone()));
            if sample.len() > 2 * SAMPLE {
                sample.sort_unstable();
                sample.truncate(SAMPLE);
            }
        }
        columns[2] = folders.into_iter().collect();
        let count = columns.iter().map(Vec::len).sum::<usize>();
        // Files of several snapshots: whose age each one tells is not kept, so the manifest is read again.
        if added_by.len() > 1 || self.numbers.len().saturating_add(count) > NUMBERS_MAX {
            return;
        }
        sample.sort_unstable();
        sample.truncate(SAMPLE);
        let is_anywhere = elsewhere.len() > ELSEWHERE_MAX;
        let entry = Entry {
            bucket: manifest.at.bucket.clone(),
            key: manifest.at.key.clone(),
            length_bytes: manifest.length_bytes,
            entries: manifest.entries,
            snapshot: manifest.snapshot,
            counts: [columns[0].len(), columns[1].len(), columns[2].len(), columns[3].len()],
            added_by: added_by.into_iter().next(),
            elsewhere: elsewhere.into_iter().take(ELSEWHERE_MAX).collect(),
            is_anywhere,
            sample,
        };
        let start = self.numbers.len();
        columns.iter().for_each(|column| self.numbers.extend_from_slice(column));
        self.by_key.insert(manifest.at.clone(), self.manifests.len());
        self.manifests.push(Known { entry, start });
        self.is_changed = true;
    }

    /// Remembers what a list names, as soon as all of its manifests are known.
    fn learn_list(&mut self, at: &ObjectKey, manifests: &[ManifestRef]) {
        let named: Option<Vec<usize>> = manifests.iter().map(|one| self.by_key.get(&one.at).copied()).collect();
        if let Some(named) = named
            && !self.lists.contains_key(at)
        {
            self.lists.insert(at.clone(), named);
            self.is_changed = true;
        }
    }

    /// Writes what the lists that are named now lead to, if anything is new.
    pub(super) async fn store(
        &mut self,
        objects: &dyn Objects,
        (reports, table_id, home): (&Location, &str, &Location),
        read: &BTreeMap<ObjectKey, Vec<ManifestRef>>,
        named_now: &HashSet<&ObjectKey>,
    ) -> Result<(), SweepError> {
        read.iter().for_each(|(at, manifests)| self.learn_list(at, manifests));
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        let (mut head, mut numbers) = (
            Head {
                layout: LAYOUT,
                home: (home.bucket.clone(), home.prefix.clone()),
                lists: Vec::new(),
                manifests: Vec::new(),
            },
            Vec::new(),
        );
        let (mut places, mut count) = (HashMap::new(), 0_usize);
        for (at, named) in self.lists.iter().filter(|(at, _)| named_now.contains(at)) {
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
            head.lists.push((at.bucket.clone(), at.key.clone(), indices));
        }
        let bytes = encode_blob(&head, &[&numbers])
            .map_err(|error| Refusal::new(RefusalReason::MetadataUnreadable, error.to_string()))?;
        objects.put(&object_key(reports, table_id), bytes, &PutOptions::default()).await?;
        Ok(())
    }
}

fn manifest_ref(entry: &Entry) -> ManifestRef {
    ManifestRef {
        at: ObjectKey::new(entry.bucket.clone(), entry.key.clone()),
        length_bytes: entry.length_bytes,
        entries: entry.entries,
        snapshot: entry.snapshot,
    }
}

fn folder_of(at: &ObjectKey) -> (String, String) {
    let folder = at.key.rsplit_once('/').map_or("", |(folder, _)| folder);
    (at.bucket.clone(), folder.trim_matches('/').to_owned())
}
