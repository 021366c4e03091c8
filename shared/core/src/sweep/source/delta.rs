use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;

use super::{Moment, ReferenceSource, interval};
use crate::commit::error::CommitError;
use crate::commit::head::{self, Fence, HeadError};
use crate::commit::proposals::{self, NamedFiles};
use crate::delta::features::{check_protocol, has_deletion_vectors_on, is_catalog_managed};
use crate::delta::log::{LogListing, list_log};
use crate::delta::path::{Reach, resolve};
use crate::delta::snapshot::{load_listed, read_commits};
use crate::delta::{Actions, DeletionVector, Metadata, Protocol, Snapshot, SnapshotError, Version};
use crate::location::{Location, split_uri};
use crate::ports::Ports;
use crate::store::{ETag, ObjectKey};
use crate::sweep::guards::NameRules;
use crate::sweep::refs::References;
use crate::sweep::survey::{OwnSigns, Survey};
use crate::sweep::{Interruption, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};

/// `delta.deletedFileRetentionDuration` of tables that do not set it.
const DEFAULT_RETENTION_MS: i64 = 7 * 86_400_000;
const RETENTION: &str = "delta.deletedFileRetentionDuration";
/// Tries at the head's item, which commits write as well.
const FENCE_TRIES: u32 = 5;
/// Commits held in memory when change files are looked for.
const COMMITS_AT_ONCE: usize = 64;

/// References of a Delta table: live files, tombstones within the retention, and what undecided commits name.
pub struct DeltaSource<'a> {
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: TableEntry,
    root: Location,
    run_id: String,
    /// The optimizer's retention; tombstones are kept for the longer one.
    asked_retention_ms: i64,
    now_ms: i64,
    state: Option<State>,
    /// Name under which a fence was put.
    fence: Option<String>,
}

/// What was read last.
#[derive(Debug)]
struct State {
    version: Version,
    /// ETag of that version's commit file: whether the log is still the same one.
    etag: ETag,
    retention_ms: i64,
    partition_names: BTreeSet<String>,
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
            SnapshotError::Store(error) => return error.clone().into(),
        };
        Refusal::new(reason, error.to_string()).into()
    }
}

impl From<CommitError> for SweepError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
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
        run_id: &str,
        asked_retention_ms: i64,
        now_ms: i64,
    ) -> Result<Self, Refusal> {
        let root = entry
            .location
            .clone()
            .ok_or_else(|| Refusal::new(RefusalReason::UnsupportedTable, format!("{entry} has no location")))?;
        Ok(Self {
            ports,
            directory,
            entry: entry.clone(),
            root,
            run_id: run_id.to_owned(),
            asked_retention_ms,
            now_ms,
            state: None,
            fence: None,
        })
    }

    async fn check_entry(&self) -> Result<(), SweepError> {
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
    async fn add_pending(&self, references: &mut References) -> Result<(), SweepError> {
        let (items, objects) = (self.ports.items.as_ref(), self.ports.objects.as_ref());
        let open = proposals::open(items, objects, self.ports.clock.as_ref(), &self.root).await?;
        for proposal in open {
            references.add_pending(&proposal.bytes_at);
            match proposal.files {
                NamedFiles::Known(files) => files.iter().for_each(|at| references.add_pending(at)),
                NamedFiles::Unknown { reason } => {
                    let detail = format!(
                        "the staged commit {} has no verdict and cannot be read ({reason}): it may name any file",
                        proposal.bytes_at
                    );
                    return Err(Refusal::new(RefusalReason::PendingUnreadable, detail).into());
                }
            }
        }
        references.seal();
        Ok(())
    }

    async fn list(&self, from: Option<Version>) -> Result<LogListing, SweepError> {
        Ok(list_log(self.ports.objects.as_ref(), &self.root, from).await?)
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<i64, Refusal> {
        check_table(&snapshot.protocol, &snapshot.metadata)?;
        let vectors = snapshot.live.values().map(|add| &add.deletion_vector);
        let removed = snapshot.tombstones.values().map(|remove| &remove.deletion_vector);
        check_no_vectors(vectors.chain(removed))?;
        match snapshot.metadata.property(RETENTION) {
            None => Ok(DEFAULT_RETENTION_MS),
            Some(text) => {
                interval::parse_ms(text).ok_or_else(|| unsupported(format!("{RETENTION} = `{text}` is not understood")))
            }
        }
    }

    fn add_snapshot(&self, snapshot: &Snapshot, retention_ms: i64, references: &mut References) {
        for (key, add) in &snapshot.live {
            add_path(&self.root, &key.at, &add.path, references);
        }
        let cut_off_ms = self.now_ms.saturating_sub(retention_ms.max(self.asked_retention_ms));
        for (key, remove) in &snapshot.tombstones {
            // Without a date it counts as long expired, as for every reader of the log.
            if remove.deletion_timestamp.unwrap_or(0) >= cut_off_ms {
                add_path(&self.root, &key.at, &remove.path, references);
            }
        }
        references.seal();
    }

    /// Files of the change feed are in no snapshot. Those of commits within the retention stay, also where a commit was
    /// decided long after its files had been written.
    async fn add_change_files(
        &self,
        listing: &LogListing,
        snapshot: &Snapshot,
        retention_ms: i64,
        references: &mut References,
    ) -> Result<(), SweepError> {
        if !snapshot.metadata.is_on("delta.enableChangeDataFeed") {
            return Ok(());
        }
        let cut_off_ms = self.now_ms.saturating_sub(retention_ms.max(self.asked_retention_ms));
        let recent = listing.commits().filter(|(_, entry)| entry.last_modified_ms >= cut_off_ms);
        let recent: Vec<Version> = recent.map(|(version, _)| version).collect();
        for versions in recent.chunks(COMMITS_AT_ONCE) {
            for commit in read_commits(self.ports.objects.as_ref(), &self.root, versions.to_vec()).await? {
                self.add_cdc(commit.version, &commit.actions, references)?;
            }
        }
        references.seal();
        Ok(())
    }

    fn add_cdc(&self, version: Version, actions: &Actions, references: &mut References) -> Result<(), SweepError> {
        for cdc in &actions.cdc {
            let at = resolve(&self.root, &cdc.path, Reach::Anywhere);
            let at = at.map_err(|error| SnapshotError::Path { version, error })?;
            add_path(&self.root, &at, &cdc.path, references);
        }
        Ok(())
    }

    /// Adds the commits after the known version.
    async fn add_new_commits(&mut self, references: &mut References) -> Result<(), SweepError> {
        let Some(state) = &self.state else { return Err(Interruption::Changed("the table's log").into()) };
        let known = state.version;
        let listing = self.list(Some(known)).await?;
        if listing.commit(known).map(|entry| &entry.etag) != Some(&state.etag) {
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
        let Some((version, etag)) = news.last().cloned() else { return Ok(()) };
        let versions = news.into_iter().map(|(version, _)| version).collect();
        for commit in read_commits(self.ports.objects.as_ref(), &self.root, versions).await? {
            self.add_commit(commit.version, &commit.actions, references)?;
        }
        references.seal();
        if let Some(state) = &mut self.state {
            (state.version, state.etag) = (version, etag);
        }
        Ok(())
    }

    fn add_commit(&self, version: Version, actions: &Actions, references: &mut References) -> Result<(), SweepError> {
        if actions.protocol.is_some() || actions.metadata.is_some() {
            return Err(Interruption::Changed("the table's metadata").into());
        }
        check_no_vectors(actions.adds.iter().map(|add| &add.deletion_vector))?;
        let path = |error| SnapshotError::Path { version, error };
        for add in &actions.adds {
            let key = crate::delta::snapshot::key_of_add(&self.root, add).map_err(path)?;
            add_path(&self.root, &key.at, &add.path, references);
        }
        // What was removed just now was live before or within the retention: it is held already, or here.
        for remove in &actions.removes {
            let key = crate::delta::snapshot::key_of_remove(&self.root, remove).map_err(path)?;
            add_path(&self.root, &key.at, &remove.path, references);
        }
        self.add_cdc(version, actions, references)
    }
}

/// Refuses what this version cannot follow completely; reader and writer features both count.
fn check_table(protocol: &Protocol, metadata: &Metadata) -> Result<(), Refusal> {
    check_protocol(protocol).map_err(|error| unsupported(error.to_string()))?;
    if is_catalog_managed(protocol) {
        return Err(unsupported("commits of the table are ratified by its catalog, so the log alone does not tell"));
    }
    if has_deletion_vectors_on(protocol, metadata) {
        return Err(unsupported("the table writes deletion vectors, whose files are not followed yet"));
    }
    let formats = metadata.property("delta.universalFormat.enabledFormats").unwrap_or_default();
    if !formats.trim().is_empty() {
        return Err(unsupported(format!("the table is also written as {formats} (UniForm)")));
    }
    Ok(())
}

fn check_no_vectors<'v>(mut vectors: impl Iterator<Item = &'v Option<DeletionVector>>) -> Result<(), Refusal> {
    match vectors.find_map(Option::as_ref) {
        None => Ok(()),
        Some(vector) => Err(unsupported(format!(
            "a file has a deletion vector ({}{}), and files of vectors are not followed yet",
            vector.storage_type, vector.path_or_inline_dv
        ))),
    }
}

/// A path is decoded exactly once; some old writers did not encode, so the raw reading counts as well.
fn add_path(root: &Location, decoded: &ObjectKey, path: &str, references: &mut References) {
    references.add(decoded);
    let raw = match split_uri(path) {
        Ok((bucket, key)) => ObjectKey::new(bucket, key),
        Err(_) => root.object(path),
    };
    if raw != *decoded {
        references.add(&raw);
    }
}

#[async_trait]
impl ReferenceSource for DeltaSource<'_> {
    async fn load(&mut self, references: &mut References) -> Result<(), SweepError> {
        self.check_entry().await?;
        self.add_pending(references).await?;
        let listing = self.list(None).await?;
        let snapshot = load_listed(self.ports.objects.as_ref(), &self.root, &listing, None).await?;
        let retention_ms = self.check_snapshot(&snapshot)?;
        self.add_snapshot(&snapshot, retention_ms, references);
        self.add_change_files(&listing, &snapshot, retention_ms, references).await?;
        let etag = listing.commit(snapshot.version).map(|entry| entry.etag.clone()).ok_or_else(|| {
            let detail = format!("commit {} is missing from the log of {}", snapshot.version, self.entry);
            Refusal::new(RefusalReason::MetadataIncomplete, detail)
        })?;
        let partition_names = snapshot.metadata.partition_columns.iter().cloned().collect();
        self.state = Some(State { version: snapshot.version, etag, retention_ms, partition_names });
        Ok(())
    }

    async fn refresh(&mut self, moment: Moment, references: &mut References) -> Result<(), SweepError> {
        if moment == Moment::Deleting {
            self.check_entry().await?;
            self.add_pending(references).await?;
        }
        self.add_new_commits(references).await
    }

    /// Everything in `_delta_log` is reserved, so there are no strays to look at.
    async fn examine(&mut self, _: &Survey, _: &mut References) -> Result<HashSet<ObjectKey>, SweepError> {
        Ok(HashSet::new())
    }

    fn pointer(&self) -> String {
        let version = self.state.as_ref().map_or(Version::NONE, |state| state.version);
        format!("{} version {version}", self.root)
    }

    fn home(&self) -> Result<Location, Refusal> {
        Ok(self.root.clone())
    }

    fn names(&self) -> NameRules {
        NameRules::Delta {
            root: self.root.clone(),
            partition_names: self.state.as_ref().map(|state| state.partition_names.clone()).unwrap_or_default(),
        }
    }

    fn own_signs(&self) -> OwnSigns {
        OwnSigns { delta_root: Some(self.root.prefix.clone()), metadata_folders: BTreeSet::new() }
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
