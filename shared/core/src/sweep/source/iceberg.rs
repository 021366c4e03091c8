mod pending;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::marks::{Marks, StateMark};
use super::packed::Pack;
use super::reading::Reading;
use super::{Loaded, Moment, ReferenceSource, Role, SourceContext};
use crate::iceberg::{
    Counted, IcebergError, ManifestRef, Named, Reachable, TableMetadata, head_named, load_metadata_object,
};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{ObjectKey, ObjectMeta};
use crate::sweep::delays::Delays;
use crate::sweep::guards::NameRules;
use crate::sweep::items::LeaseFence;
use crate::sweep::refs::{Held, References, exact_hash};
use crate::sweep::survey::{MetadataFile, OwnSigns, Survey, list_below};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};

/// Metadata files without reference that are opened in one run, newest first. The others are kept.
const STRAYS_MAX: usize = 1000;
/// Young manifests without a snapshot that are opened in one run.
const ATTEMPTS_MAX: usize = 5000;
/// Times that a load starts again because the pointer moved under it.
const LOADS_MAX: usize = 4;
/// How far apart the clocks of two writers may be: Iceberg lets a commit be dated this much before the one it follows.
const CLOCK_SKEW_MS: i64 = 60_000;
/// Properties that say where data lies; the later ones are deprecated names.
const DATA_PATHS: [&str; 3] = ["write.data.path", "write.object-storage.path", "write.folder-storage.path"];
const METADATA_PATH: &str = "write.metadata.path";
/// Where Flink's sink keeps manifests of checkpoints, if not in the metadata folder.
const FLINK_PATH: &str = "flink.manifests.location";
/// Every property by which a table says where it writes.
pub const DECLARED_PATHS: [&str; 5] = [DATA_PATHS[0], DATA_PATHS[1], DATA_PATHS[2], METADATA_PATH, FLINK_PATH];
/// Older metadata files that are looked through at most, newest first: Iceberg keeps this many.
const OLDER_MAX: usize = 200;

/// References of an Iceberg table, from the catalog's pointer.
pub struct IcebergSource<'a> {
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: TableEntry,
    role: Role,
    run_id: String,
    now_ms: i64,
    pointer: ObjectKey,
    metadata: Option<TableMetadata>,
    /// The state that was read last, also by an earlier worker.
    before: Option<StateMark>,
    reachable: Reachable,
    reports: Location,
    keeps: bool,
    /// Until everything was read once: what earlier runs have read.
    is_loading: bool,
    pack: Option<Pack>,
    /// The same once everything was read, to be stored again with what is learnt later. Nothing is taken from it.
    spare: Option<Pack>,
    marks: Mutex<Marks>,
    /// What was taken from there, until somebody asks.
    believed: HashMap<u64, u64>,
    delays: Delays,
    data_folders: BTreeSet<Location>,
    metadata_folders: BTreeSet<Location>,
    partition_names: BTreeSet<String>,
}

impl std::fmt::Debug for IcebergSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IcebergSource").field("entry", &self.entry).field("pointer", &self.pointer).finish()
    }
}

impl<'a> IcebergSource<'a> {
    pub fn new(
        ports: &'a Ports,
        directory: &'a dyn TableDirectory,
        entry: &TableEntry,
        pointer: ObjectKey,
        context: SourceContext<'_>,
    ) -> Self {
        Self {
            ports,
            directory,
            entry: entry.clone(),
            role: context.role,
            run_id: context.run_id.to_owned(),
            now_ms: context.now_ms,
            pointer,
            metadata: None,
            before: None,
            reachable: Reachable::default(),
            reports: context.reports.clone(),
            keeps: context.keeps,
            is_loading: true,
            pack: None,
            spare: None,
            marks: Mutex::default(),
            believed: HashMap::new(),
            delays: Delays::default(),
            data_folders: BTreeSet::new(),
            metadata_folders: BTreeSet::new(),
            partition_names: BTreeSet::new(),
        }
    }

    async fn read_pointer(&self) -> Result<ObjectKey, SweepError> {
        let unknown = |detail: String| Refusal::new(RefusalReason::TableUnknown, detail);
        let entry = self.directory.table(&self.entry.database, &self.entry.name).await?;
        let entry = entry.ok_or_else(|| unknown(format!("{} is gone", self.entry)))?;
        if entry.id != self.entry.id {
            return Err(unknown(format!("{} was dropped and created again", self.entry)).into());
        }
        if entry.location != self.entry.location {
            return Err(unknown(format!("the location of {} changed", self.entry)).into());
        }
        match entry.format()? {
            TableFormat::Iceberg { pointer } => Ok(pointer),
            _ => Err(unknown(format!("{} is no Iceberg table any more", self.entry)).into()),
        }
    }

    fn lease_fence(&self, expires_at_ms: i64) -> LeaseFence {
        LeaseFence { table_id: self.entry.id.clone(), expires_at_ms, run_id: self.run_id.clone() }
    }

    /// Reads the state at `pointer` and adds what it names.
    async fn add_state(
        &mut self,
        pointer: ObjectKey,
        references: &mut References,
        until_ms: i64,
    ) -> Result<Loaded, SweepError> {
        let objects = self.ports.objects.as_ref();
        let (metadata, read) = load_metadata_object(objects, &pointer).await?;
        if self.role == Role::Own {
            metadata.check_gc_enabled()?;
        }
        let mark = StateMark::of(&metadata);
        if let Some(before) = &self.before {
            check_successor(before, &mark, &pointer)?;
        }
        self.load_pack().await?;
        self.learn(&pointer, &read, &metadata);
        let committed_ms: BTreeMap<i64, i64> =
            metadata.snapshots.iter().map(|snapshot| (snapshot.id, snapshot.timestamp_ms)).collect();
        let mut reading = Reading {
            references,
            delays: &mut self.delays,
            pack: self.pack.as_mut(),
            home: self.entry.location.as_ref(),
            role: self.role,
            committed_ms: &committed_ms,
            now_ms: self.now_ms,
            lists: BTreeMap::new(),
            believed: &mut self.believed,
        };
        let clock = self.ports.clock.as_ref();
        let may_go_on = || clock.now_ms() < until_ms;
        let is_whole = self.reachable.walk_while(objects, &pointer, &metadata, &mut reading, &may_go_on).await?;
        let lists = reading.lists;
        self.store_pack(&metadata, &lists).await?;
        references.seal();
        self.learn_folders(&pointer, &metadata);
        self.before = Some(mark);
        if !is_whole {
            return Ok(Loaded::Part);
        }
        self.metadata = Some(metadata);
        self.pointer = pointer;
        (self.is_loading, self.spare) = (false, self.pack.take());
        Ok(Loaded::Whole)
    }

    /// Of the swept table only: what others name is seen through a lens.
    async fn load_pack(&mut self) -> Result<(), SweepError> {
        if self.role == Role::Own
            && self.is_loading
            && self.pack.is_none()
            && let Some(home) = &self.entry.location
        {
            let objects = self.ports.objects.as_ref();
            let pack = Pack::load(objects, &self.reports, &self.entry.id, home).await?;
            self.with_marks(|marks| {
                let (tables, known) = pack.marks();
                marks.restore(tables, known);
            });
            (self.pack, self.spare) = (Some(pack), None);
        }
        Ok(())
    }

    fn with_marks<T>(&self, action: impl FnOnce(&mut Marks) -> T) -> T {
        action(&mut self.marks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers what a metadata file says, for later runs over the same table.
    fn learn(&self, at: &ObjectKey, read: &ObjectMeta, metadata: &TableMetadata) {
        if self.role == Role::Own {
            self.with_marks(|marks| marks.learn(at, read, metadata));
        }
    }

    /// Stores what was read of metadata files since the pack was stored; those that are gone are forgotten.
    async fn store_marks(&mut self, listed: &HashSet<u64>) -> Result<(), SweepError> {
        let spare = self.spare.take();
        let (Some(home), true, true) = (self.entry.location.clone(), self.role == Role::Own, self.keeps) else {
            return Ok(());
        };
        self.with_marks(|marks| marks.retain(listed));
        if !self.with_marks(Marks::take_changed) {
            return Ok(());
        }
        let objects = self.ports.objects.as_ref();
        self.pack = match spare {
            Some(pack) => Some(pack),
            None => Some(Pack::load(objects, &self.reports, &self.entry.id, &home).await?),
        };
        let stored = match &self.metadata {
            Some(metadata) => self.store_pack(&metadata.clone(), &BTreeMap::new()).await,
            None => Ok(()),
        };
        self.pack = None;
        stored
    }

    async fn store_pack(
        &mut self,
        metadata: &TableMetadata,
        lists: &BTreeMap<ObjectKey, (u64, Vec<ManifestRef>)>,
    ) -> Result<(), SweepError> {
        let saved = self.with_marks(|marks| {
            marks.take_changed();
            marks.saved()
        });
        let (Some(pack), Some(home), true) = (&mut self.pack, &self.entry.location, self.keeps) else { return Ok(()) };
        pack.set_marks(saved);
        let named_now = metadata.snapshots.iter().filter_map(|snapshot| snapshot.list.as_ref()).collect();
        let place = (&self.reports, self.entry.id.as_str(), home);
        pack.store(self.ports.objects.as_ref(), place, lists, &named_now).await
    }

    /// Folders only ever grow in number during a run.
    fn learn_folders(&mut self, pointer: &ObjectKey, metadata: &TableMetadata) {
        let homes = [self.entry.location.clone(), Location::parse(&metadata.location).ok()];
        for home in homes.into_iter().flatten() {
            let inside = |folder: &str| Location::new(home.bucket.clone(), &format!("{}{folder}", home.key_prefix()));
            self.data_folders.insert(inside("data"));
            self.metadata_folders.insert(inside("metadata"));
        }
        let property = |name: &str| metadata.properties.get(name).and_then(|uri| Location::parse(uri).ok());
        self.data_folders.extend(DATA_PATHS.iter().filter_map(|name| property(name)));
        self.metadata_folders.extend(property(METADATA_PATH));
        self.metadata_folders.extend(folder_of(pointer));
        self.metadata_folders.extend(pointer.collapsed().as_ref().and_then(folder_of));
        self.metadata_folders.extend(metadata.files.iter().filter(|at| is_metadata(at)).filter_map(folder_of));
        self.partition_names.extend(metadata.partition_names.iter().cloned());
    }

    /// A metadata file that nothing references: of another table, of a commit that is not finished, or left over.
    async fn examine_one(&mut self, stray: &MetadataFile, references: &mut References) -> Result<bool, SweepError> {
        let Some(current) = &self.metadata else { return Ok(false) };
        let objects = self.ports.objects.as_ref();
        let (ours, known) = (StateMark::of(current), self.with_marks(|marks| marks.of(stray).cloned()));
        // Read by an earlier run: over then, and over now.
        if known.is_some_and(|known| !is_foreign(&ours, &known) && !is_newer(&known, &ours)) {
            return Ok(true);
        }
        let metadata = match load_metadata_object(objects, &stray.at).await {
            Ok((metadata, read)) => {
                self.learn(&stray.at, &read, &metadata);
                metadata
            }
            Err(error @ IcebergError::Store(_)) => return Err(error.into()),
            // Gone since the listing.
            Err(IcebergError::Missing { .. }) => return Ok(false),
            Err(error) => {
                let age = head_named(objects, &self.pointer).await?.last_modified_ms;
                // An unreadable file from before the current state is kept and harms nobody. A newer one may be a
                // commit under way.
                return if stray.last_modified_ms < age { Ok(false) } else { Err(error.into()) };
            }
        };
        let is_foreign = is_foreign(&ours, &StateMark::of(&metadata));
        if is_foreign && self.role == Role::Other {
            // Of the table that is swept, or of one more: they answer for themselves.
            return Ok(false);
        }
        if is_foreign {
            let detail = format!(
                "{} belongs to table uuid {} and this table is {}: two tables share one metadata folder",
                stray.at,
                metadata.table_uuid.as_deref().unwrap_or("unknown"),
                current.table_uuid.as_deref().unwrap_or("unknown"),
            );
            return Err(Refusal::new(RefusalReason::ForeignTableUuid, detail).into());
        }
        if !is_newer(&StateMark::of(&metadata), &ours) {
            return Ok(true);
        }
        // A commit between its metadata file and the catalog, or a second registration: a root of its own.
        let mut sink = |named: Named<'_>| references.add_pending(named.at());
        self.reachable.walk(objects, &stray.at, &metadata, &mut sink).await?;
        references.seal();
        Ok(false)
    }
}

impl IcebergSource<'_> {
    fn in_ours(&self, at: &ObjectKey) -> bool {
        folder_of(at).is_some_and(|folder| self.metadata_folders.contains(&folder))
    }

    /// Files in metadata folders that the survey of the swept location has not seen: outside the location, and all of
    /// another table.
    async fn list_beside(&self) -> Result<Vec<MetadataFile>, SweepError> {
        let home = self.entry.location.as_ref().filter(|_| self.role == Role::Own);
        let folders = self.metadata_folders.iter().filter(|folder| !home.is_some_and(|home| home.contains(folder)));
        let folders: Vec<Location> = folders.cloned().collect();
        let mut found = Vec::new();
        for folder in folders {
            for object in list_below(self.ports.objects.as_ref(), &folder).await? {
                found.push(MetadataFile::of(&folder.bucket, &object));
            }
        }
        Ok(found)
    }
}

fn is_metadata(at: &ObjectKey) -> bool {
    at.key.rsplit('/').next().is_some_and(crate::iceberg::is_metadata_name)
}

fn folder_of(at: &ObjectKey) -> Option<Location> {
    at.key.rsplit_once('/').map(|(folder, _)| Location::new(at.bucket.clone(), folder))
}

/// Clocks of writers differ, sequence numbers stand still in format 1: either may show what comes later.
fn is_newer(one: &StateMark, other: &StateMark) -> bool {
    one.last_updated_ms > other.last_updated_ms || one.last_sequence_number > other.last_sequence_number
}

/// What is stored of a source: bucket and key, or prefix, of each place.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    is_loading: bool,
    before: Option<StateMark>,
    walked: Vec<(String, String)>,
    #[serde(default)]
    counted: Vec<(String, String, Counted)>,
    data_folders: Vec<(String, String)>,
    metadata_folders: Vec<(String, String)>,
    partition_names: BTreeSet<String>,
}

fn pairs(folders: &BTreeSet<Location>) -> Vec<(String, String)> {
    folders.iter().map(|folder| (folder.bucket.clone(), folder.prefix.clone())).collect()
}

fn folders(pairs: Vec<(String, String)>) -> BTreeSet<Location> {
    pairs.into_iter().map(|(bucket, prefix)| Location { bucket, prefix }).collect()
}

/// Format 1 may lack the uuid; then the location decides.
fn is_foreign(ours: &StateMark, other: &StateMark) -> bool {
    match (&ours.table_uuid, &other.table_uuid) {
        (Some(ours), Some(other)) => !ours.eq_ignore_ascii_case(other),
        _ => ours.location != other.location,
    }
}

/// The next state of a table is of the same table and not older.
fn check_successor(before: &StateMark, after: &StateMark, pointer: &ObjectKey) -> Result<(), Refusal> {
    if is_foreign(before, after) {
        let detail = format!("{pointer} is the state of another table than before");
        return Err(Refusal::new(RefusalReason::ForeignTableUuid, detail));
    }
    let is_dated_back = after.last_updated_ms < before.last_updated_ms.saturating_sub(CLOCK_SKEW_MS);
    if is_dated_back || after.last_sequence_number < before.last_sequence_number {
        let detail = format!("{pointer} is older than the state that the catalog named before");
        return Err(Refusal::new(RefusalReason::PointerMovedBackwards, detail));
    }
    Ok(())
}

#[async_trait]
impl ReferenceSource for IcebergSource<'_> {
    async fn load(&mut self, references: &mut References, until_ms: i64) -> Result<Loaded, SweepError> {
        let mut pointer = self.read_pointer().await?;
        for _ in 1..LOADS_MAX {
            match self.add_state(pointer.clone(), references, until_ms).await {
                // Files of an older state may go as soon as the pointer has moved on.
                Err(SweepError::Refused(refusal)) if refusal.reason == RefusalReason::MetadataIncomplete => {
                    let now = self.read_pointer().await?;
                    if now == pointer {
                        return Err(refusal.into());
                    }
                    pointer = now;
                }
                other => return other,
            }
        }
        self.add_state(pointer, references, until_ms).await
    }

    fn save(&self) -> Value {
        let walked = self.reachable.walked().into_iter().map(|at| (at.bucket, at.key)).collect();
        json!(Saved {
            is_loading: self.is_loading,
            before: self.before.clone(),
            walked,
            counted: self.reachable.counted().into_iter().map(|(at, counted)| (at.bucket, at.key, counted)).collect(),
            data_folders: pairs(&self.data_folders),
            metadata_folders: pairs(&self.metadata_folders),
            partition_names: self.partition_names.clone(),
        })
    }

    /// Without the metadata itself: it is read again, and with it the manifests that were not walked.
    fn restore(&mut self, saved: &Value) -> bool {
        let Ok(saved) = Saved::deserialize(saved) else { return false };
        (self.is_loading, self.before) = (saved.is_loading, saved.before);
        self.reachable = Reachable::having_walked(
            saved.walked.into_iter().map(|(bucket, key)| ObjectKey { bucket, key }),
            saved.counted.into_iter().map(|(bucket, key, counted)| (ObjectKey { bucket, key }, counted)),
        );
        self.data_folders = folders(saved.data_folders);
        self.metadata_folders = folders(saved.metadata_folders);
        self.partition_names = saved.partition_names;
        self.metadata = None;
        true
    }

    async fn refresh(&mut self, _: Moment, references: &mut References) -> Result<(), SweepError> {
        if self.metadata.is_some() && self.read_pointer().await? == self.pointer {
            return Ok(());
        }
        self.load(references, i64::MAX).await.map(|_| ())
    }

    async fn examine(
        &mut self,
        survey: &Survey,
        references: &mut References,
    ) -> Result<HashSet<ObjectKey>, SweepError> {
        let beside = self.list_beside().await?;
        let is_named = |at: &ObjectKey| {
            *at == self.pointer || self.metadata.as_ref().is_some_and(|metadata| metadata.files.contains(at))
        };
        let surveyed = survey.metadata_files.iter().filter(|file| self.in_ours(&file.at));
        let found = surveyed.chain(beside.iter().filter(|file| is_metadata(&file.at)));
        let found: Vec<&MetadataFile> = found.collect();
        let listed: HashSet<u64> = found.iter().map(|file| exact_hash(&file.at)).collect();
        let mut strays: Vec<MetadataFile> = found
            .into_iter()
            .filter(|file| references.held(&file.at) == Held::No && !is_named(&file.at))
            .cloned()
            .collect();
        strays.sort_by(|one, other| one.at.cmp(&other.at));
        strays.dedup_by(|one, other| one.at == other.at);
        strays.sort_by_key(|stray| std::cmp::Reverse(stray.last_modified_ms));
        self.examine_flink(survey, &beside, references).await?;
        self.examine_attempts(survey, &beside, references).await?;
        let mut proved = HashSet::new();
        for stray in strays.into_iter().take(STRAYS_MAX) {
            if self.examine_one(&stray, references).await? {
                proved.insert(stray.at);
            }
        }
        self.store_marks(&listed).await?;
        Ok(proved)
    }

    fn pointer(&self) -> String {
        self.pointer.to_string()
    }

    fn mark(&self) -> String {
        self.pointer.to_string()
    }

    async fn is_still(&self, mark: &str) -> Result<bool, SweepError> {
        Ok(self.pointer.to_string() == mark)
    }

    fn declared(&self) -> BTreeSet<Location> {
        let flink = self.metadata.as_ref().and_then(|metadata| metadata.properties.get(FLINK_PATH));
        let flink = flink.and_then(|uri| Location::parse(uri).ok());
        self.data_folders.union(&self.metadata_folders).cloned().chain(flink).collect()
    }

    async fn declared_before(&self, since: Option<&str>, more: &[ObjectKey]) -> Result<BTreeSet<Location>, SweepError> {
        let log = self.metadata.iter().flat_map(|metadata| metadata.files.iter().rev().filter(|at| is_metadata(at)));
        let is_new = |at: &&ObjectKey| since.is_none_or(|since| at.to_string() != since);
        // Nothing came after the state that is there still, which its own log does not name.
        let is_same = since.is_some_and(|since| since == self.pointer.to_string());
        let mut older: Vec<&ObjectKey> = if is_same { Vec::new() } else { log.take_while(is_new).collect() };
        for at in more {
            if !older.contains(&at) && *at != self.pointer {
                older.push(at);
            }
        }
        let mut found = BTreeSet::new();
        for at in older.into_iter().take(OLDER_MAX) {
            match load_metadata_object(self.ports.objects.as_ref(), at).await {
                Ok((metadata, read)) => {
                    self.learn(at, &read, &metadata);
                    found.extend(Location::parse(&metadata.location).ok());
                    let said = DECLARED_PATHS.iter().filter_map(|name| metadata.properties.get(*name));
                    found.extend(said.filter_map(|uri| Location::parse(uri).ok()));
                    found.extend(folder_of(at));
                }
                Err(error @ IcebergError::Store(_)) => return Err(error.into()),
                // Gone, or nobody can read it: it tells nothing, and what it named is not lost by that.
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn take_delays(&mut self) -> Delays {
        std::mem::take(&mut self.delays)
    }

    fn take_believed(&mut self) -> HashMap<u64, u64> {
        std::mem::take(&mut self.believed)
    }

    async fn read_again(&mut self, doubted: &HashSet<u64>, references: &mut References) -> Result<(), SweepError> {
        // Manifests are found through their lists: those that are confirmed are known still.
        let snapshots = self.metadata.iter().flat_map(|metadata| &metadata.snapshots);
        let lists: HashSet<&ObjectKey> = snapshots.filter_map(|snapshot| snapshot.list.as_ref()).collect();
        self.reachable.forget(|at| lists.contains(at) || doubted.contains(&exact_hash(at)));
        self.is_loading = true;
        self.load_pack().await?;
        if let Some(pack) = &mut self.pack {
            pack.doubt(doubted);
        }
        self.load(references, i64::MAX).await?;
        // Confirmed before, or read just now.
        self.believed.clear();
        Ok(())
    }

    fn home(&self) -> Result<Location, Refusal> {
        let location = self.metadata.as_ref().map(|metadata| metadata.location.as_str()).unwrap_or_default();
        Location::parse(location).map_err(|error| Refusal::new(RefusalReason::UnresolvedPath, error.to_string()))
    }

    fn names(&self) -> NameRules {
        NameRules::Iceberg {
            data_folders: self.data_folders.iter().cloned().collect(),
            metadata_folders: self.metadata_folders.iter().cloned().collect(),
            partition_names: self.partition_names.clone(),
        }
    }

    fn own_signs(&self) -> OwnSigns {
        let folders = self.metadata_folders.iter().map(|folder| folder.prefix.clone()).collect();
        OwnSigns { metadata_folders: folders, ..OwnSigns::default() }
    }

    fn retention_ms(&self) -> i64 {
        0
    }

    /// Iceberg commits do not pass through this product, so there is nobody who would wait: the pointer read after the
    /// fence, and If-Match, are what protects.
    /// Commits wait for the fence of leases, which the run puts for tables of its place. This is for the others.
    async fn fence(&mut self, _epoch: i64, expires_at_ms: i64) -> Result<(), SweepError> {
        if self.role == Role::Own {
            return Ok(());
        }
        self.lease_fence(expires_at_ms).put(self.ports.items.as_ref(), self.ports.clock.now_ms()).await
    }

    async fn clear_fence(&mut self) -> Result<(), SweepError> {
        if self.role == Role::Own {
            return Ok(());
        }
        self.lease_fence(0).clear(self.ports.items.as_ref()).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_successor_is_of_the_same_table_and_not_older_than_clocks_differ() {
        let at = ObjectKey::new("b", "t/metadata/v1.metadata.json");
        let state = |uuid: &str, updated_ms: i64, number: i64| {
            let metadata = json!({"format-version": 2, "location": "s3://b/t", "table-uuid": uuid,
                "last-updated-ms": updated_ms, "last-sequence-number": number});
            StateMark::of(&TableMetadata::parse(metadata.to_string().as_bytes(), &at).unwrap())
        };
        let before = state("u", 100_000, 5);
        let cases = [
            ("U", 100_000, 5, None),
            ("u", 40_000, 5, None),
            ("u", 39_999, 6, Some(RefusalReason::PointerMovedBackwards)),
            ("u", 200_000, 4, Some(RefusalReason::PointerMovedBackwards)),
            ("v", 200_000, 6, Some(RefusalReason::ForeignTableUuid)),
        ];
        for (uuid, updated_ms, number, expected) in cases {
            let found = check_successor(&before, &state(uuid, updated_ms, number), &at);
            assert_eq!(found.err().map(|refusal| refusal.reason), expected, "{uuid} {updated_ms} {number}");
        }
    }
}
