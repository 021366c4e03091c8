//! What a Delta table's log says, kept from one run to the next: a later run reads only the commits that came since.
//!
//! One object per table beside its reports (`<reports>/<table id>/log.bin`): the version that it tells of with the mark of
//! its commit, two numbers for each live file, three for each tombstone, and what single commits say of the change feed and
//! of the files that they added. It counts only while the log still has that commit and every one after it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::delta::outline::{Base, FileId, Outline};
use crate::delta::{Metadata, Protocol, Version};
use crate::location::Location;
use crate::store::{ByteRange, ETag, GetOptions, ObjectError, ObjectKey, Objects, PutOptions, ReadObjects};
use crate::sweep::blob::{Numbers, encode_blob, open_blob};
use crate::sweep::ranges::KeySample;
use crate::sweep::refs::{NameHashes, Packed, References};
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// Another layout, or another way to hash names, is not read.
const LAYOUT: u64 = 1;
/// Numbers of one object, 32 MiB: two million files. Of larger tables the checkpoint is read by every run.
const NUMBERS_MAX: usize = 4 * 1024 * 1024;
/// Tombstones are kept for so much longer than they count, so that a retention that grows finds them.
const TOMBSTONES_MS: i64 = 30 * 86_400_000;
/// Newest commits whose files are remembered one by one.
const COMMITS_MAX: usize = 4096;
/// Folders outside the table's location that are remembered; with more, its files lie anywhere.
const ELSEWHERE_MAX: usize = 100;

/// What one commit says beside the files that are live after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommitFacts {
    pub(super) etag: String,
    /// Names of change files, and the loose ones among them.
    pub(super) changes: [Vec<u64>; 2],
    /// Names of files that it added and that were not there before; `None`: nobody has looked.
    pub(super) added: Option<Vec<u64>>,
}

#[derive(Serialize, Deserialize)]
struct SavedFacts {
    version: i64,
    etag: String,
    counts: [usize; 3],
    is_measured: bool,
}

#[derive(Serialize, Deserialize)]
struct Head {
    layout: u64,
    root: (String, String),
    version: i64,
    etag: String,
    protocol: Protocol,
    metadata: Metadata,
    bytes: Option<i64>,
    /// Tombstones from before are not among these.
    since_ms: i64,
    sample: KeySample,
    elsewhere: Vec<(String, String)>,
    is_anywhere: bool,
    commits: Vec<SavedFacts>,
}

/// The hashes of the objects that an action names.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) exact: Vec<u64>,
    pub(super) loose: Vec<u64>,
}

impl Names {
    pub(super) fn of(files: &[ObjectKey], bucket: &str) -> Self {
        let mut names = Self::default();
        files.iter().for_each(|at| names.note(&NameHashes::of(at, Some(bucket))));
        names
    }

    pub(super) fn note(&mut self, hashes: &NameHashes) {
        self.exact.push(hashes.exact);
        self.loose.extend([hashes.loose, hashes.cut].into_iter().flatten());
    }

    /// Whether its id tells its name.
    fn are_plain(&self, id: FileId) -> bool {
        self.loose.is_empty() && self.exact == [halves(id)[0]]
    }
}

fn halves(id: FileId) -> [u64; 2] {
    [u64::try_from(id.0 >> 64).unwrap_or_default(), u64::try_from(id.0 & u128::from(u64::MAX)).unwrap_or_default()]
}

fn whole([high, low]: [u64; 2]) -> FileId {
    FileId(u128::from(high) << 64 | u128::from(low))
}

/// Files of which an id and a name are known, in numbers: usual ones as their ids, odd ones with all their names.
#[derive(Debug, Default)]
struct Files {
    plain: Vec<u64>,
    odd: Vec<u64>,
}

impl Files {
    /// `date` is that of a tombstone.
    fn add(&mut self, date: Option<u64>, id: FileId, exact: &[u64], loose: &[u64], are_plain: bool) {
        let into = if are_plain { &mut self.plain } else { &mut self.odd };
        into.extend(date);
        into.extend(halves(id));
        if !are_plain {
            into.extend([exact.len() as u64, loose.len() as u64]);
            into.extend_from_slice(exact);
            into.extend_from_slice(loose);
        }
    }

    fn len(&self) -> usize {
        self.plain.len().saturating_add(self.odd.len())
    }
}

/// Is given a file: the date of its removal, its id, the hashes of its names, the loose ones, and whether it is a usual one.
type EachFile<'e> = dyn FnMut(Option<u64>, FileId, &[u64], &[u64], bool) + 'e;

/// Gives every file of two columns to `each`; false: they are damaged.
fn each_file(plain: Numbers<'_>, odd: Numbers<'_>, has_dates: bool, each: &mut EachFile<'_>) -> bool {
    let head = |numbers: &mut dyn Iterator<Item = u64>| {
        let date = if has_dates { Some(numbers.next()?) } else { None };
        Some((date, whole([numbers.next()?, numbers.next()?])))
    };
    let (mut plain, mut odd) = (plain.iter().peekable(), odd.iter().peekable());
    while plain.peek().is_some() {
        let Some((date, id)) = head(&mut plain) else { return false };
        each(date, id, &[halves(id)[0]], &[], true);
    }
    while odd.peek().is_some() {
        let Some((date, id)) = head(&mut odd) else { return false };
        let (Some(exact), Some(loose)) = (odd.next(), odd.next()) else { return false };
        let mut take = |count: u64| -> Option<Vec<u64>> {
            let count = usize::try_from(count).ok().filter(|count| *count <= NUMBERS_MAX)?;
            let some: Vec<u64> = odd.by_ref().take(count).collect();
            (some.len() == count).then_some(some)
        };
        let (Some(exact), Some(loose)) = (take(exact), take(loose)) else { return false };
        each(date, id, &exact, &loose, false);
    }
    true
}

/// What an earlier run knew.
pub(super) struct LogPack {
    head: Head,
    bytes: bytes::Bytes,
}

/// Columns of the object: live files, tombstones, folders, and what the commits say.
const COLUMNS: usize = 6;

fn object_key(reports: &Location, table_id: &str) -> ObjectKey {
    reports.object(&format!("{table_id}/log.bin"))
}

impl LogPack {
    /// What earlier runs left. None that can be read is no harm: everything is read again.
    pub(super) async fn load(
        objects: &dyn ReadObjects,
        reports: &Location,
        table_id: &str,
        root: &Location,
    ) -> Result<Option<Self>, SweepError> {
        let most = (NUMBERS_MAX as u64).saturating_mul(16);
        let range = Some(ByteRange::From { start: 0, length: most });
        let at = object_key(reports, table_id);
        let bytes = match objects.get(&at, &GetOptions { range, if_match: None }).await {
            Ok(object) => object.bytes,
            Err(ObjectError::NotFound(_) | ObjectError::InvalidRange(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some((head, _)) = open_blob::<Head, COLUMNS>(&bytes) else { return Ok(None) };
        let is_ours = head.layout == LAYOUT && head.root == (root.bucket.clone(), root.prefix.clone());
        Ok(is_ours.then_some(Self { head, bytes }))
    }

    pub(super) fn base(&self) -> (Base, &str) {
        let Head { version, protocol, metadata, .. } = &self.head;
        let base = Base { version: Version(*version), protocol: protocol.clone(), metadata: metadata.clone() };
        (base, &self.head.etag)
    }

    /// Whether every tombstone of that date and later is among those that are known.
    pub(super) fn has_tombstones_since(&self, since_ms: i64) -> bool {
        self.head.since_ms <= since_ms
    }

    /// What single commits say, by their versions.
    pub(super) fn facts(&self) -> Option<BTreeMap<Version, CommitFacts>> {
        let (_, columns) = open_blob::<Head, COLUMNS>(&self.bytes)?;
        let [.., numbers] = columns;
        let mut numbers = numbers.iter();
        let mut found = BTreeMap::new();
        for saved in &self.head.commits {
            let mut take = |count: usize| -> Option<Vec<u64>> {
                let some: Vec<u64> = numbers.by_ref().take(count.min(NUMBERS_MAX)).collect();
                (some.len() == count).then_some(some)
            };
            let [changes, loose, added] = saved.counts;
            let changes = [take(changes)?, take(loose)?];
            let added = take(added)?;
            let facts = CommitFacts { etag: saved.etag.clone(), changes, added: saved.is_measured.then_some(added) };
            found.insert(Version(saved.version), facts);
        }
        Some(found)
    }

    /// Adds what is live still, and hands on all of it; the outline counts it. False: it is damaged.
    pub(super) fn add(&self, outline: &mut Outline, references: &mut References, next: &mut Gathered) -> bool {
        let Some((_, columns)) = open_blob::<Head, COLUMNS>(&self.bytes) else { return false };
        let [plain, odd, dead_plain, dead_odd, folders, _] = columns;
        outline.bytes = outline.bytes.zip(self.head.bytes).map(|(new, old)| new.saturating_add(old));
        let mut count = 0_u64;
        let is_whole = each_file(plain, odd, false, &mut |_, id, exact, loose, are_plain| {
            if outline.count_of_base(id) {
                count = count.saturating_add(1);
                references.add_hashed(exact, loose);
                next.add_live(id, exact, loose, are_plain);
            }
        });
        let is_whole = is_whole
            && each_file(dead_plain, dead_odd, true, &mut |date, id, exact, loose, are_plain| {
                next.dead.add(date, id, exact, loose, are_plain);
            });
        let folders: Vec<u64> = folders.iter().collect();
        references.add_packed(&Packed {
            exact: &[],
            loose: &[],
            folders: &folders,
            added: &[],
            added_by: None,
            elsewhere: &self.head.elsewhere,
            is_anywhere: self.head.is_anywhere,
            sample: &[],
        });
        references.add_sample(count, &self.head.sample);
        next.since_ms = self.head.since_ms;
        next.elsewhere.extend(self.head.elsewhere.iter().cloned());
        next.is_anywhere |= self.head.is_anywhere;
        is_whole
    }
}

/// What a load has found, for this run and for the next ones.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Live files; `None`: too many, or nobody keeps them.
    live: Option<Files>,
    /// Files that were removed: which of them count is known when the metadata is.
    dead: Files,
    /// Tombstones from before may be missing.
    since_ms: i64,
    elsewhere: BTreeSet<(String, String)>,
    is_anywhere: bool,
}

impl Gathered {
    pub(super) fn new(keeps: bool) -> Self {
        Self { live: keeps.then(Files::default), ..Self::default() }
    }

    fn add_live(&mut self, id: FileId, exact: &[u64], loose: &[u64], are_plain: bool) {
        if let Some(live) = &mut self.live {
            live.add(None, id, exact, loose, are_plain);
            if live.len() > NUMBERS_MAX {
                self.live = None;
            }
        }
    }

    fn note_places(&mut self, files: &[ObjectKey], root: &Location) {
        for at in files.iter().filter(|at| self.live.is_some() && root.relative(at).is_none()) {
            let folder = at.key.rsplit_once('/').map_or("", |(folder, _)| folder).trim_matches('/');
            self.elsewhere.insert((at.bucket.clone(), folder.to_owned()));
        }
        if self.elsewhere.len() > ELSEWHERE_MAX {
            self.is_anywhere = true;
            self.elsewhere.pop_last();
        }
    }

    /// A live file, by the objects that it may be.
    pub(super) fn note_live(&mut self, id: FileId, files: &[ObjectKey], names: &Names, root: &Location) {
        self.note_places(files, root);
        self.add_live(id, &names.exact, &names.loose, names.are_plain(id));
    }

    pub(super) fn note_dead(&mut self, removed_ms: i64, id: FileId, files: &[ObjectKey], root: &Location) {
        self.note_places(files, root);
        let names = Names::of(files, &root.bucket);
        let are_plain = names.are_plain(id);
        self.dead.add(Some(removed_ms.max(0).cast_unsigned()), id, &names.exact, &names.loose, are_plain);
    }

    /// Gives the names of what was removed at that moment or later.
    pub(super) fn removed_since(&self, since_ms: i64, each: &mut dyn FnMut(&[u64], &[u64])) {
        let since = since_ms.max(0).cast_unsigned();
        let (plain, odd) = (Numbers::Held(&self.dead.plain), Numbers::Held(&self.dead.odd));
        each_file(plain, odd, true, &mut |date, _, exact, loose, _| {
            if date.is_some_and(|date| date >= since) {
                each(exact, loose);
            }
        });
    }

    /// Leaves it for later runs.
    pub(super) async fn store(
        self,
        objects: &dyn Objects,
        (reports, table_id, root): (&Location, &str, &Location),
        (outline, etag, references): (&Outline, &ETag, &References),
        facts: &BTreeMap<Version, CommitFacts>,
        oldest_ms: i64,
    ) -> Result<(), SweepError> {
        let Some(live) = self.live else { return Ok(()) };
        let since_ms = oldest_ms.saturating_sub(TOMBSTONES_MS).max(self.since_ms).max(0);
        let mut dead = Files::default();
        let (plain, odd) = (Numbers::Held(&self.dead.plain), Numbers::Held(&self.dead.odd));
        each_file(plain, odd, true, &mut |date, id, exact, loose, are_plain| {
            if date.is_some_and(|date| date >= since_ms.cast_unsigned()) {
                dead.add(date, id, exact, loose, are_plain);
            }
        });
        let (mut commits, mut numbers) = (Vec::new(), Vec::new());
        for (version, facts) in facts.iter().rev().take(COMMITS_MAX) {
            let added = facts.added.as_deref().unwrap_or_default();
            let [changes, loose] = &facts.changes;
            [changes, loose, added].iter().for_each(|some| numbers.extend_from_slice(some));
            commits.push(SavedFacts {
                version: version.0,
                etag: facts.etag.clone(),
                counts: [changes.len(), loose.len(), added.len()],
                is_measured: facts.added.is_some(),
            });
        }
        let (_, folders) = references.columns();
        let columns: [&[u64]; COLUMNS] = [&live.plain, &live.odd, &dead.plain, &dead.odd, &folders, &numbers];
        if columns.iter().map(|column| column.len()).sum::<usize>() > NUMBERS_MAX + NUMBERS_MAX / 2 {
            return Ok(());
        }
        let head = Head {
            layout: LAYOUT,
            root: (root.bucket.clone(), root.prefix.clone()),
            version: outline.version.0,
            etag: etag.0.clone(),
            protocol: outline.protocol.clone(),
            metadata: outline.metadata.clone(),
            bytes: outline.bytes,
            since_ms,
            sample: references.sample().clone(),
            elsewhere: self.elsewhere.into_iter().collect(),
            is_anywhere: self.is_anywhere,
            commits,
        };
        let bytes = encode_blob(&head, &columns)
            .map_err(|error| Refusal::new(RefusalReason::MetadataUnreadable, error.to_string()))?;
        objects.put(&object_key(reports, table_id), bytes, &PutOptions::default()).await?;
        Ok(())
    }
}
