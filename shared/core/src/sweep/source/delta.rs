mod extras;
mod gathering;
mod packed;
mod replaying;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::features::{Ratifier, check_table, is_in_format};
use super::staged::{NamedFiles, StagedCommit, Standing, expire, named_files, staged_commits};
use super::{Loaded, Moment, ReferenceSource, Role, SourceContext, Untold, interval};
use crate::commit::error::CommitError;
use crate::commit::head::{self, Fence, HeadError};
use crate::delta::counts::{read_checksum, read_last_checkpoint};
use crate::delta::features::is_catalog_managed;
use crate::delta::log::{LogListing, list_log};
use crate::delta::outline::{Outline, read_each};
use crate::delta::{Metadata, SnapshotError, Version};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{ETag, ObjectKey};
use crate::sweep::delays::Delays;
use crate::sweep::guards::NameRules;
use crate::sweep::refs::References;
use crate::sweep::survey::{OwnSigns, Survey};
use crate::sweep::{Interruption, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};

use gathering::Additions;
use packed::CommitFacts;

const DAY_MS: i64 = 86_400_000;
const RETENTION: &str = "delta.deletedFileRetentionDuration";
/// Longer than there have been clocks: a hundred years.
const FOREVER_MS: i64 = 36_525 * 86_400_000;
/// Of tables that do not set it.
const DEFAULT_RETENTION_MS: i64 = 7 * DAY_MS;
const LOG_RETENTION: &str = "delta.logRetentionDuration";
const DEFAULT_LOG_RETENTION_MS: i64 = 30 * DAY_MS;
/// Tries at the head's item, which commits write as well.
const FENCE_TRIES: u32 = 5;
/// Where UniForm keeps the Iceberg side of a table.
const UNIFORM_DIR: &str = "metadata";

/// References of a Delta table: live files, tombstones within the retention, vectors, and what commits name that are not
/// decided, or were not long ago.
pub struct DeltaSource<'a> {
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: TableEntry,
    role: Role,
    root: Location,
    run_id: String,
    /// The optimizer's retention.
    asked_retention_ms: i64,
    /// Least retention of tombstones.
    least_retention_ms: i64,
    now_ms: i64,
    gives_up: bool,
    state: Option<State>,
    /// Staged commits whose files are among the references.
    added: HashSet<(ObjectKey, ETag)>,
    delays: Delays,
    /// Where reports lie, and beside them what was read of the log.
    reports: Location,
    keeps: bool,
    /// What single commits say.
    facts: BTreeMap<Version, CommitFacts>,
    /// Whether `metadata/` holds what UniForm left, and nothing else.
    has_old_uniform: bool,
    /// Name under which a fence was put.
    fence: Option<String>,
    /// What the log is too short to tell.
    untold: Option<Untold>,
}

/// What was read last.
#[derive(Debug)]
struct State {
    version: Version,
    /// What [`LogListing::mark`] says of that version: whether the log is still the same one.
    etag: ETag,
    retention_ms: i64,
    log_retention_ms: i64,
    /// Version of the newest checkpoint.
    checkpoint: Version,
    has_iceberg: bool,
    has_hudi: bool,
    partition_names: BTreeSet<String>,
}

/// What is stored of a source.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    version: i64,
    etag: String,
    retention_ms: i64,
    log_retention_ms: i64,
    checkpoint: i64,
    has_iceberg: bool,
    has_hudi: bool,
    partition_names: BTreeSet<String>,
    has_old_uniform: bool,
}

impl std::fmt::Debug for DeltaSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaSource").field("root", &self.root).field("state", &self.state).finish_non_exhaustive()
    }
}

fn unsupported(detail: impl Into<String>) -> Refusal {
    Refusal::new(RefusalReason::UnsupportedFeature, detail)
}

impl From<SnapshotError> for SweepError {
    fn from(error: SnapshotError) -> Self {
        let reason = match &error {
            SnapshotError::NoTable(_) | SnapshotError::LogGap { .. } | SnapshotError::NoMetadata(_) => {
                RefusalReason::MetadataIncomplete
            }
            SnapshotError::Damaged { .. } | SnapshotError::TooLarge { .. } => RefusalReason::MetadataUnreadable,
            SnapshotError::Path { .. } => RefusalReason::UnresolvedPath,
            SnapshotError::Store(error) => return Self::of_objects(error.clone()),
        };
        Refusal::new(reason, error.to_string()).into()
    }
}

impl From<CommitError> for SweepError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => Self::of_objects(error),
            CommitError::Item(error) => error.into(),
            other if other.is_retryable() => Interruption::Contended("the commits of the table").into(),
            other => Refusal::new(RefusalReason::MetadataUnreadable, other.to_string()).into(),
        }
    }
}

impl From<HeadError> for SweepError {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Item(error) => error.into(),
            HeadError::Store(error) => error.into(),
            HeadError::Changed(_) => Interruption::Contended("the head of the table").into(),
            HeadError::Fenced { .. } => Interruption::Contended("the fence of another run").into(),
        }
    }
}

impl<'a> DeltaSource<'a> {
    pub fn new(
        ports: &'a Ports,
        directory: &'a dyn TableDirectory,
        entry: &TableEntry,
        context: SourceContext<'_>,
    ) -> Result<Self, Refusal> {
        let root = entry
            .location
            .clone()
            .ok_or_else(|| Refusal::new(RefusalReason::UnsupportedTable, format!("{entry} has no location")))?;
        Ok(Self {
            ports,
            directory,
            entry: entry.clone(),
            role: context.role,
            root,
            run_id: context.run_id.to_owned(),
            asked_retention_ms: context.retention_ms,
            least_retention_ms: context.least_retention_ms,
            now_ms: context.now_ms,
            gives_up: context.gives_up,
            state: None,
            added: HashSet::new(),
            delays: Delays::default(),
            reports: context.reports.clone(),
            keeps: context.keeps,
            facts: BTreeMap::new(),
            has_old_uniform: false,
            fence: None,
            untold: None,
        })
    }

    async fn check_entry(&self) -> Result<(), SweepError> {
        // Of one that no catalog has told of, its log is all there is.
        if self.entry.found_as().is_some() {
            return Ok(());
        }
        let found = self.directory.table(&self.entry.database, &self.entry.name).await?;
        let same = found.filter(|entry| entry.id == self.entry.id && entry.location == self.entry.location);
        match same.map(|entry| entry.format()).transpose()? {
            Some(TableFormat::Delta) => Ok(()),
            _ => {
                let detail = format!("{} is gone, lies elsewhere or is no Delta table any more", self.entry);
                Err(Refusal::new(RefusalReason::TableUnknown, detail).into())
            }
        }
    }

    /// Files of commits that are not decided. Read before the log: what is decided in between is then found there.
    async fn add_pending(&mut self, references: &mut References) -> Result<Vec<StagedCommit>, SweepError> {
        let staged = staged_commits(self.ports, &self.root).await?;
        for one in staged.iter().filter(|one| one.standing == Standing::Open) {
            let named = self.add_staged(one, references).await?;
            // It is given its final verdict before anything is deleted, and then nothing that it names matters.
            if one.is_abandoned(self.now_ms, self.longest_retention_ms())
                || one.is_forgotten(self.now_ms, self.longest_retention_ms())
            {
                continue;
            }
            if let Err(why) = named {
                let detail = format!(
                    "the staged commit {} has no verdict and cannot be read ({why}): it may name any file; let it be \
                     judged, or remove it",
                    one.at
                );
                return Err(Refusal::new(RefusalReason::PendingUnreadable, detail).into());
            }
        }
        references.seal();
        Ok(staged)
    }

    /// Adds a staged commit and the files that it names, once; the inner error says why they cannot be told.
    async fn add_staged(
        &mut self,
        one: &StagedCommit,
        references: &mut References,
    ) -> Result<Result<(), String>, SweepError> {
        references.add_pending(&one.at);
        let mark = (one.at.clone(), one.etag.clone());
        if self.added.contains(&mark) {
            return Ok(Ok(()));
        }
        match named_files(self.ports, &self.root, &one.at).await? {
            NamedFiles::Unknown(why) => Ok(Err(why)),
            NamedFiles::Known(files) => {
                files.iter().for_each(|at| references.add_pending(at));
                self.added.insert(mark);
                Ok(Ok(()))
            }
        }
    }

    fn longest_retention_ms(&self) -> i64 {
        self.retention_ms().max(self.asked_retention_ms)
    }

    /// Ends what nobody decided on. One that somebody decides on at this very moment stops the run if it cannot be read:
    /// the next one knows its verdict.
    async fn end_abandoned(&self, staged: &[StagedCommit]) -> Result<(), SweepError> {
        let abandoned = staged.iter().filter(|one| one.is_abandoned(self.now_ms, self.longest_retention_ms()));
        for one in abandoned {
            if self.gives_up && !expire(self.ports, &self.root, one).await? {
                return Err(Interruption::Contended("a staged commit").into());
            }
        }
        Ok(())
    }

    /// A writer whose commit was refused may try again with the same files, so they stay one retention longer.
    async fn add_refused(&mut self, staged: &[StagedCommit], references: &mut References) -> Result<(), SweepError> {
        let retention_ms = self.longest_retention_ms();
        for one in staged {
            let Standing::Over { since_ms } = one.standing else { continue };
            if since_ms >= self.now_ms.saturating_sub(retention_ms) {
                // What cannot be read was refused for that; its files are as old as they are.
                let _unreadable = self.add_staged(one, references).await?;
            }
        }
        references.seal();
        Ok(())
    }

    /// Staged objects that nobody needs any more: refused one retention ago, or published and below a checkpoint since
    /// longer than the log is kept.
    fn is_left_over(&self, one: &StagedCommit) -> bool {
        let Some(state) = &self.state else { return false };
        // Another catalog clears up what it has ratified.
        if one.is_of_another_catalog() {
            return false;
        }
        let is_older = |since_ms: i64, age_ms: i64| since_ms < self.now_ms.saturating_sub(age_ms);
        match one.standing {
            Standing::Open => false,
            Standing::Over { since_ms } => is_older(since_ms, state.retention_ms.max(self.asked_retention_ms)),
            Standing::Committed { version, since_ms } => {
                version <= state.version && version <= state.checkpoint && is_older(since_ms, state.log_retention_ms)
            }
        }
    }

    async fn list(&self, from: Option<Version>) -> Result<LogListing, SweepError> {
        Ok(list_log(self.ports.objects.as_ref(), &self.root, from).await?)
    }

    fn duration_ms(&self, metadata: &Metadata, property: &str, default_ms: i64) -> Result<i64, Refusal> {
        match metadata.property(property) {
            None => Ok(default_ms),
            Some(text) => match (interval::parse_ms(text), self.role) {
                (Some(ms), _) => Ok(ms),
                // Of a table that is not swept everything may count that it ever named.
                (None, Role::Other) => Ok(FOREVER_MS),
                (None, Role::Own) => Err(unsupported(format!("{property} = `{text}` is not understood"))),
            },
        }
    }

    /// For a catalog-managed table: whether its commits are ratified here. What is ratified and not published is found among
    /// the staged commits, which are read before the log.
    async fn ratifier(&self, snapshot: &Outline) -> Result<Ratifier, SweepError> {
        if !is_catalog_managed(&snapshot.protocol) {
            return Ok(Ratifier::Unknown);
        }
        let head = head::load(self.ports.items.as_ref(), &self.root).await?;
        match head.and_then(|head| head.managed) {
            None => Ok(Ratifier::Unknown),
            Some(managed) if managed.published <= snapshot.version => Ok(Ratifier::Us),
            // Published since the log was listed, or the log has lost it.
            Some(_) => Err(Interruption::Changed("the table's log").into()),
        }
    }

    fn check_agrees(&self, contradiction: Option<String>) -> Result<(), Refusal> {
        let Some(contradiction) = contradiction else { return Ok(()) };
        let detail = format!(
            "the log of {} contradicts itself: {contradiction}. A file of the log may be lost; if what was counted is wrong, \
             remove the file that says so",
            self.entry
        );
        Err(Refusal::new(RefusalReason::MetadataIncomplete, detail))
    }

    /// What the version's writer has counted. One that lost its version may have left the file of another commit.
    async fn check_checksum(&self, snapshot: &Outline) -> Result<(), SweepError> {
        let objects = self.ports.objects.as_ref();
        let Some(checksum) = read_checksum(objects, &self.root, snapshot.version).await? else { return Ok(()) };
        let contradiction = checksum.contradiction(snapshot.version, snapshot.files, snapshot.bytes);
        if contradiction.is_some() && checksum.is_of_another_commit(objects, &self.root, snapshot.version).await? {
            return Ok(());
        }
        Ok(self.check_agrees(contradiction)?)
    }

    fn check_snapshot(&self, snapshot: &Outline, listing: &LogListing, ratifier: Ratifier) -> Result<State, Refusal> {
        check_table(&snapshot.protocol, ratifier)?;
        let etag = listing.mark(snapshot.version).cloned().ok_or_else(|| {
            let detail = format!("version {} is missing from the log of {}", snapshot.version, self.entry);
            Refusal::new(RefusalReason::MetadataIncomplete, detail)
        })?;
        let checkpoint = listing.entries.iter().filter_map(|entry| entry.name.checkpoint());
        let metadata = &snapshot.metadata;
        Ok(State {
            version: snapshot.version,
            etag,
            retention_ms: self.retention_of(metadata)?,
            log_retention_ms: self.duration_ms(metadata, LOG_RETENTION, DEFAULT_LOG_RETENTION_MS)?,
            checkpoint: checkpoint.max().unwrap_or(Version::NONE),
            has_iceberg: is_in_format(metadata, "iceberg"),
            has_hudi: is_in_format(metadata, "hudi"),
            partition_names: metadata.partition_columns.iter().cloned().collect(),
        })
    }

    fn retention_of(&self, metadata: &Metadata) -> Result<i64, Refusal> {
        let retention_ms = self.duration_ms(metadata, RETENTION, DEFAULT_RETENTION_MS)?;
        Ok(retention_ms.max(self.least_retention_ms))
    }

    /// Adds the commits after the known version.
    async fn add_new_commits(&mut self, references: &mut References) -> Result<(), SweepError> {
        let Some(state) = &self.state else { return Err(Interruption::Changed("the table's log").into()) };
        let known = state.version;
        let listing = self.list(Some(known)).await?;
        if listing.mark(known) != Some(&state.etag) {
            return Err(Interruption::Changed("the table's log").into());
        }
        let news: Vec<(Version, ETag)> = listing
            .commits()
            .filter(|(version, _)| *version > known)
            .map(|(version, entry)| (version, entry.etag.clone()))
            .collect();
        let mut expected = known.next();
        for (version, _) in &news {
            if *version != expected {
                return Err(SnapshotError::LogGap { missing: expected, wanted: *version }.into());
            }
            expected = expected.next();
        }
        if listing.latest() >= expected {
            // Commits are gone that a checkpoint stands for.
            return Err(Interruption::Changed("the table's log").into());
        }
        let Some((version, etag)) = news.last().cloned() else { return Ok(()) };
        let versions = news.into_iter().map(|(version, _)| version).collect();
        let mut additions = Additions { root: &self.root, references, is_changed: false };
        let read = read_each(self.ports.objects.as_ref(), &self.root, &listing, versions, &mut additions).await;
        if additions.is_changed {
            return Err(Interruption::Changed("the table's metadata").into());
        }
        read.map_err(|error| gathering::refused(&self.root, error))?;
        references.seal();
        if let Some(state) = &mut self.state {
            (state.version, state.etag) = (version, etag);
        }
        Ok(())
    }
}

#[async_trait]
impl ReferenceSource for DeltaSource<'_> {
    /// The log is replayed as a whole: it does not stop in between.
    async fn load(&mut self, references: &mut References, _: i64) -> Result<Loaded, SweepError> {
        self.check_entry().await?;
        let staged = self.add_pending(references).await?;
        let objects = self.ports.objects.as_ref();
        // Before the listing, which then has whatever it speaks of.
        let last_checkpoint = read_last_checkpoint(objects, &self.root).await?;
        let listing = self.list(None).await?;
        let state = self.read_log(&listing, last_checkpoint.as_ref(), references).await?;
        self.state = Some(state);
        self.end_abandoned(&staged).await?;
        self.add_refused(&staged, references).await?;
        Ok(Loaded::Whole)
    }

    fn save(&self) -> Value {
        let Some(state) = &self.state else { return Value::Null };
        json!(Saved {
            version: state.version.0,
            etag: state.etag.0.clone(),
            retention_ms: state.retention_ms,
            log_retention_ms: state.log_retention_ms,
            checkpoint: state.checkpoint.0,
            has_iceberg: state.has_iceberg,
            has_hudi: state.has_hudi,
            partition_names: state.partition_names.clone(),
            has_old_uniform: self.has_old_uniform,
        })
    }

    /// What was staged is looked at again, whatever was known of it.
    fn restore(&mut self, saved: &Value) -> bool {
        let Ok(saved) = Saved::deserialize(saved) else { return false };
        self.state = Some(State {
            version: Version(saved.version),
            etag: ETag(saved.etag),
            retention_ms: saved.retention_ms,
            log_retention_ms: saved.log_retention_ms,
            checkpoint: Version(saved.checkpoint),
            has_iceberg: saved.has_iceberg,
            has_hudi: saved.has_hudi,
            partition_names: saved.partition_names,
        });
        self.has_old_uniform = saved.has_old_uniform;
        true
    }

    async fn refresh(&mut self, moment: Moment, references: &mut References) -> Result<(), SweepError> {
        if moment == Moment::Deleting {
            self.check_entry().await?;
            let staged = self.add_pending(references).await?;
            self.add_refused(&staged, references).await?;
        }
        self.add_new_commits(references).await
    }

    /// Everything in `_delta_log` is reserved but what staged commits leave behind.
    async fn examine(
        &mut self,
        survey: &Survey,
        references: &mut References,
    ) -> Result<HashSet<ObjectKey>, SweepError> {
        let mut proved = HashSet::new();
        for one in staged_commits(self.ports, &self.root).await? {
            if self.is_left_over(&one) {
                proved.insert(one.at);
            }
        }
        if self.state.as_ref().is_some_and(|state| !state.has_iceberg) {
            proved.extend(self.examine_uniform(survey, references).await?);
        }
        Ok(proved)
    }

    fn pointer(&self) -> String {
        let version = self.state.as_ref().map_or(Version::NONE, |state| state.version);
        format!("{} version {version}", self.root)
    }

    fn mark(&self) -> String {
        self.state.as_ref().map_or(String::new(), |state| format!("{} {}", state.version.0, state.etag.0))
    }

    async fn is_still(&self, mark: &str) -> Result<bool, SweepError> {
        let Some((version, etag)) = mark.split_once(' ') else { return Ok(false) };
        let Ok(version) = version.parse().map(Version) else { return Ok(false) };
        // A proposal may name files long before it is in the log.
        let staged = staged_commits(self.ports, &self.root).await?;
        if staged.iter().any(|one| one.standing == Standing::Open) {
            return Ok(false);
        }
        let listing = self.list(Some(version)).await?;
        Ok(listing.latest() == version && listing.mark(version).is_some_and(|found| found.0 == etag))
    }

    fn declared(&self) -> BTreeSet<Location> {
        BTreeSet::new()
    }

    /// No property of a Delta table says where it writes: what lies elsewhere is named, path by path.
    async fn declared_before(&self, _: Option<&str>, _: &[ObjectKey]) -> Result<BTreeSet<Location>, SweepError> {
        Ok(BTreeSet::new())
    }

    fn take_delays(&mut self) -> Delays {
        std::mem::take(&mut self.delays)
    }

    fn untold(&self) -> Option<&Untold> {
        self.untold.as_ref()
    }

    fn home(&self) -> Result<Location, Refusal> {
        Ok(self.root.clone())
    }

    fn names(&self) -> NameRules {
        let state = self.state.as_ref();
        NameRules::Delta {
            root: self.root.clone(),
            partition_names: state.map(|state| state.partition_names.clone()).unwrap_or_default(),
            kept_folder: state.filter(|state| state.has_iceberg).map(|_| UNIFORM_DIR),
            swept_folder: self.has_old_uniform.then_some(UNIFORM_DIR),
        }
    }

    fn own_signs(&self) -> OwnSigns {
        let root = BTreeSet::from([self.root.prefix.clone()]);
        let has = |test: fn(&State) -> bool| self.state.as_ref().is_some_and(test);
        let mut signs = OwnSigns { delta_roots: root.clone(), ..OwnSigns::default() };
        if self.has_old_uniform || has(|state| state.has_iceberg) {
            signs.metadata_folders.insert(format!("{}{UNIFORM_DIR}", self.root.key_prefix()));
        }
        if has(|state| state.has_hudi) {
            signs.hoodie_roots = root;
        }
        signs
    }

    fn retention_ms(&self) -> i64 {
        self.state.as_ref().map_or(DEFAULT_RETENTION_MS, |state| state.retention_ms)
    }

    async fn fence(&mut self, epoch: i64, expires_at_ms: i64) -> Result<(), SweepError> {
        let (items, ids) = (self.ports.items.as_ref(), self.ports.ids.as_ref());
        let run = format!("{}#{epoch}", self.run_id);
        // Named before it is put: an answer may be lost, and clearing what is not there does no harm.
        self.fence = Some(run.clone());
        for _ in 1..FENCE_TRIES {
            let head = head::load(items, &self.root).await?;
            // Nobody commits through this product to a table that it has never seen.
            if head.is_none() && self.entry.found_as().is_some() {
                return Ok(());
            }
            let fence = Fence { run: run.clone(), expires_ms: expires_at_ms };
            let now_ms = self.ports.clock.now_ms();
            match head::set_fence(items, ids, &self.root, head.as_ref(), fence, now_ms).await {
                Err(HeadError::Changed(_)) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
        Err(Interruption::Contended("the head of the table").into())
    }

    async fn clear_fence(&mut self) -> Result<(), SweepError> {
        if let Some(run) = self.fence.take() {
            head::clear_fence(self.ports.items.as_ref(), self.ports.ids.as_ref(), &self.root, &run).await?;
        }
        Ok(())
    }
}
