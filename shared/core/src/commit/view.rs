//! A table as one run sees it: head, latest version of the log, cached state, commits that were read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claim::Completed;
use super::context::{Context, Transacted};
use super::error::CommitError;
use super::facts::FileFacts;
use super::head::Head;
use super::keys::{self, Generation, ProposalId};
use super::lookup::Lookup;
use super::proposal::{Proposal, Status};
use super::recover;
use super::table_state::TableState;
use super::verdict::{Exception, Refusal};
use super::version_record::VersionRecord;
use crate::delta::log::{LogListing, list_log};
use crate::delta::snapshot::{self, LoggedCommit};
use crate::delta::{Snapshot, SnapshotError, Version, features};
use crate::location::Location;
use crate::store::{Condition, Consistency, ETag, Key, ObjectKey, Query, SortRange, Table, Write, get_every};

/// Times a claim of somebody else is finished before we give up for now.
const RECOVERIES_MAX: u32 = 8;
/// Commits since the read version that are still judged.
pub const WINNERS_MAX: i64 = 1_000;

/// What one run knows of a table.
#[derive(Clone, Debug)]
pub struct View {
    pub root: Location,
    pub head: Head,
    pub latest: Version,
    /// ETag of the latest commit.
    pub latest_etag: Option<ETag>,
    /// The table at `latest`; `None` where there is no table.
    pub state: Option<TableState>,
    snapshot: Option<Arc<Snapshot>>,
    commits: BTreeMap<Version, Arc<LoggedCommit>>,
}

/// No view: the run failed, or the log is such that no commit of the table can be judged.
#[derive(Debug)]
pub enum ViewError {
    Failed(CommitError),
    Refused(Refusal),
}

impl<E: Into<CommitError>> From<E> for ViewError {
    fn from(error: E) -> Self {
        ViewError::Failed(error.into())
    }
}

/// Loads a table and looks a proposal up, with one batch get and one listing where the head knows the table. Claims
/// that others left behind are finished first.
pub async fn load(ctx: Context<'_>, root: &Location, id: ProposalId) -> Result<(View, Option<Lookup>), ViewError> {
    for _ in 0..RECOVERIES_MAX {
        ctx.check_time("reading the table", 0)?;
        let keys = [keys::head(root), keys::lookup(root, id)];
        let ports = ctx.ports();
        let found =
            get_every(&*ports.items, &*ports.clock, &keys, Consistency::Strong).await.map_err(CommitError::from)?;
        let head = match found.get(&keys::head(root)) {
            Some(item) => Head::decode(item)?,
            None => Head::fresh(root),
        };
        let lookup = match found.get(&keys::lookup(root, id)) {
            Some(item) => Some(Lookup::decode(item)?),
            None => None,
        };
        if let Some(claim) = &head.claim {
            recover::finish(ctx, &head, claim).await?;
            continue;
        }
        match open_view(ctx, root, head).await? {
            Some(view) => return Ok((view, lookup)),
            // A new generation was opened: read its head.
            None => continue,
        }
    }
    Err(CommitError::Contended { attempts: RECOVERIES_MAX }.into())
}

/// Reads only the look-up of a proposal, where the view is at hand.
pub async fn load_lookup(ctx: Context<'_>, root: &Location, id: ProposalId) -> Result<Option<Lookup>, CommitError> {
    match ctx.ports().items.get(&keys::lookup(root, id), Consistency::Strong).await? {
        Some(item) => Ok(Some(Lookup::decode(&item)?)),
        None => Ok(None),
    }
}

async fn open_view(ctx: Context<'_>, root: &Location, head: Head) -> Result<Option<View>, ViewError> {
    let objects = &*ctx.ports().objects;
    if let (Some(state), true) = (&head.state, head.version > Version::NONE) {
        let listing = list_log(objects, root, Some(head.version)).await.map_err(CommitError::from)?;
        let entry = listing.commit(head.version);
        if entry.is_some_and(|entry| Some(&entry.etag) == head.log_etag.as_ref()) {
            let state = state.clone();
            return catch_up(ctx, root, head, state, &listing).await.map(Some);
        }
    }
    let listing = list_log(objects, root, None).await.map_err(CommitError::from)?;
    read_log(ctx, root, head, &listing).await
}

/// The head knows the table: only what others committed since is read.
async fn catch_up(
    ctx: Context<'_>,
    root: &Location,
    head: Head,
    mut state: TableState,
    listing: &LogListing,
) -> Result<View, ViewError> {
    let latest = listing.latest();
    let mut expected = head.version.next();
    let mut foreign = Vec::new();
    for (version, _) in listing.commits().filter(|(version, _)| *version > head.version) {
        if version != expected {
            return Err(damaged(&SnapshotError::LogGap { missing: expected, wanted: latest }));
        }
        foreign.push(version);
        expected = expected.next();
    }
    let mut commits = BTreeMap::new();
    for commit in read_commits(ctx, root, foreign).await? {
        state.apply(root, &commit).map_err(|error| damaged(&SnapshotError::Path { version: commit.version, error }))?;
        commits.insert(commit.version, Arc::new(commit));
    }
    let latest_etag = listing.commit(latest).map(|entry| entry.etag.clone());
    Ok(View { root: root.clone(), head, latest, latest_etag, state: Some(state), snapshot: None, commits })
}

/// The head does not know the table, or not this one: the log is replayed, and compared with what the head says.
async fn read_log(
    ctx: Context<'_>,
    root: &Location,
    head: Head,
    listing: &LogListing,
) -> Result<Option<View>, ViewError> {
    let latest = listing.latest();
    if latest == Version::NONE {
        return Ok(Some(View {
            root: root.clone(),
            head,
            latest,
            latest_etag: None,
            state: None,
            snapshot: None,
            commits: BTreeMap::new(),
        }));
    }
    let snapshot = snapshot::load_listed(&*ctx.ports().objects, root, listing, None).await.map_err(snapshot_error)?;
    // A writer may give the id of a table that goes on to another one; then the commit that we know is still there.
    let goes_on = listing.commit(head.version).is_some_and(|entry| Some(&entry.etag) == head.log_etag.as_ref());
    if !goes_on && head.metadata_id.as_ref().is_some_and(|id| *id != snapshot.metadata.id) {
        let born_ms = listing.commits().map(|(_, entry)| entry.last_modified_ms).min().unwrap_or(0);
        open_generation(ctx, &head, born_ms).await?;
        return Ok(None);
    }
    check_history(ctx, &head, listing).await?;
    let mut commits = BTreeMap::new();
    let mut in_commit_timestamp_ms = None;
    if features::has_in_commit_timestamps_on(&snapshot.metadata) {
        let commit = snapshot::read_commit(&*ctx.ports().objects, root, latest).await.map_err(snapshot_error)?;
        in_commit_timestamp_ms = commit.actions.commit_info.as_ref().and_then(|info| info.number("inCommitTimestamp"));
        commits.insert(latest, Arc::new(commit));
    }
    let latest_etag = listing.commit(latest).map(|entry| entry.etag.clone());
    let state = TableState::of_snapshot(&snapshot, in_commit_timestamp_ms);
    Ok(Some(View {
        root: root.clone(),
        head,
        latest,
        latest_etag,
        state: Some(state),
        snapshot: Some(Arc::new(snapshot)),
        commits,
    }))
}

/// The log must still hold what the head says was published (K5).
async fn check_history(ctx: Context<'_>, head: &Head, listing: &LogListing) -> Result<(), ViewError> {
    if head.version == Version::NONE {
        return Ok(());
    }
    if listing.latest() < head.version {
        let text = format!("the log ends at version {}, but version {} was published", listing.latest(), head.version);
        return Err(log_refusal("LOG_BEHIND_HEAD", text));
    }
    let Some(entry) = listing.commit(head.version) else { return Ok(()) };
    if Some(&entry.etag) == head.log_etag.as_ref() {
        return Ok(());
    }
    let key = keys::version(&head.root, head.generation, head.version);
    let Some(item) = ctx.ports().items.get(&key, Consistency::Strong).await? else { return Ok(()) };
    let record = VersionRecord::decode(&item)?;
    let commit =
        snapshot::read_commit(&*ctx.ports().objects, &head.root, head.version).await.map_err(snapshot_error)?;
    if keys::content_hash(&commit.bytes) == record.sha256 {
        return Ok(());
    }
    tracing::error!(root = %head.root, version = %head.version, "a published version holds other content than was published");
    let text = format!("version {} holds other content than was published", head.version);
    Err(log_refusal("LOG_REWRITTEN", text))
}

fn log_refusal(reason: &str, text: String) -> ViewError {
    ViewError::Refused(Refusal::new(
        Exception::DamagedLogException,
        reason,
        text,
        "somebody changed the table's log by other means: restore it, or write the table anew with another metaData id",
    ))
}

/// A log that cannot be read: refused where that will not change by itself, failed where the store was the trouble.
pub fn snapshot_error(error: SnapshotError) -> ViewError {
    match error {
        SnapshotError::Store(error) => ViewError::Failed(error.into()),
        other => damaged(&other),
    }
}

fn damaged(error: &SnapshotError) -> ViewError {
    let (exception, reason) = match error {
        SnapshotError::LogGap { .. } => (Exception::DamagedLogException, "LOG_GAP"),
        _ => (Exception::DamagedLogException, "UNREADABLE_LOG"),
    };
    let advice = "the table's log must be complete: every commit since a checkpoint, and all files of that checkpoint";
    ViewError::Refused(Refusal::new(exception, reason, error.to_string(), advice))
}

async fn read_commits(
    ctx: Context<'_>,
    root: &Location,
    versions: Vec<Version>,
) -> Result<Vec<LoggedCommit>, ViewError> {
    snapshot::read_commits(&*ctx.ports().objects, root, versions).await.map_err(snapshot_error)
}

/// Another table stands at the root: the head starts over, open proposals of the old table end (K6).
pub async fn open_generation(ctx: Context<'_>, head: &Head, born_ms: i64) -> Result<(), CommitError> {
    tracing::warn!(root = %head.root, generation = head.generation.0 + 1, "another table stands here; a new generation opens");
    let next = Head {
        generation: Generation(head.generation.0.saturating_add(1)),
        born_ms,
        // A sweep that is under way keeps its fence.
        fence: head.fence.clone(),
        revision: ctx.new_revision(),
        ..Head::fresh(&head.root)
    };
    let write = Write::Put { key: keys::head(&head.root), item: next.encode()?, condition: head.unchanged() };
    if matches!(ctx.transact(&[write]).await?, Transacted::Refused(_)) {
        // Somebody else changed the head, likely to the same end.
        return Ok(());
    }
    close_open_proposals(ctx, &head.root, head.generation).await
}

async fn close_open_proposals(ctx: Context<'_>, root: &Location, generation: Generation) -> Result<(), CommitError> {
    let prefix = SortRange::Prefix(keys::PROPOSAL_PREFIX.into());
    let mut query = Query::new(Table::Commits, keys::table_pk(root, generation), prefix);
    loop {
        let page = ctx.ports().items.query(&query).await?;
        for (key, item) in page.items {
            let proposal = Proposal::decode(&item)?;
            if !proposal.status.is_final() {
                close_replaced(ctx, &key, &proposal).await?;
            }
        }
        match page.next {
            Some(next) => query.start_after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Ends a proposal of an older generation. Answers it as it is stored then.
pub async fn close_replaced(ctx: Context<'_>, key: &Key, proposal: &Proposal) -> Result<Proposal, CommitError> {
    let mut next = Proposal {
        refusal: Some(table_replaced()),
        updated_ms: ctx.now_ms(),
        revision: ctx.new_revision(),
        ..proposal.clone()
    };
    if let Status::Claimed { version, attempt } = next.status {
        next.advance(Status::Lost { version, attempt })?;
    }
    next.advance(Status::Rejected)?;
    let condition: Condition = proposal.unchanged();
    let write = Write::Put { key: key.clone(), item: next.encode()?, condition };
    match ctx.transact(&[write]).await? {
        Transacted::Done => Ok(next),
        Transacted::Refused(_) => match ctx.ports().items.get(key, Consistency::Strong).await? {
            Some(item) => Ok(Proposal::decode(&item)?),
            None => Ok(next),
        },
    }
}

/// The verdict on proposals for a table that is gone.
pub fn table_replaced() -> Refusal {
    Refusal::new(
        Exception::TableReplacedException,
        "TABLE_REPLACED",
        "the table that this commit was made for was replaced by another one at the same place",
        "read the new table and propose the commit anew, if it still makes sense",
    )
}

impl View {
    /// Commits `from..=to`, from the cache where possible.
    pub async fn winners(
        &mut self,
        ctx: Context<'_>,
        from: Version,
        to: Version,
    ) -> Result<Vec<Arc<LoggedCommit>>, ViewError> {
        let wanted: Vec<Version> = (from.0..=to.0).map(Version).collect();
        let missing: Vec<Version> =
            wanted.iter().copied().filter(|version| !self.commits.contains_key(version)).collect();
        for commit in read_commits(ctx, &self.root, missing).await? {
            self.commits.insert(commit.version, Arc::new(commit));
        }
        Ok(wanted.iter().filter_map(|version| self.commits.get(version).cloned()).collect())
    }

    /// Facts about files, at the latest version and at the one that was read.
    pub async fn files(
        &mut self,
        ctx: Context<'_>,
        wanted: &BTreeSet<ObjectKey>,
        read_version: Version,
    ) -> Result<FileFacts, ViewError> {
        if self.snapshot.as_ref().is_none_or(|snapshot| snapshot.version != self.latest) {
            self.load_snapshot(ctx).await?;
        }
        let Some(latest) = self.snapshot.clone() else { return Ok(FileFacts::default()) };
        let at_read = (read_version == latest.version).then_some(&*latest);
        Ok(FileFacts::of_snapshots(wanted.clone(), at_read, &latest))
    }

    /// Replays the log up to `latest`, and gives the state a new filter of paths.
    async fn load_snapshot(&mut self, ctx: Context<'_>) -> Result<(), ViewError> {
        ctx.check_time("replaying the log", 0)?;
        let snapshot =
            snapshot::load(&*ctx.ports().objects, &self.root, Some(self.latest)).await.map_err(snapshot_error)?;
        let timestamp_ms = self.state.as_ref().and_then(|state| state.in_commit_timestamp_ms);
        self.state = Some(TableState::of_snapshot(&snapshot, timestamp_ms));
        self.snapshot = Some(Arc::new(snapshot));
        Ok(())
    }

    /// The head as a claim starts from it: settled at `latest`, with the state there.
    pub fn settled_head(&self) -> Head {
        Head {
            version: self.latest,
            log_etag: self.latest_etag.clone(),
            metadata_id: self
                .state
                .as_ref()
                .map(|state| state.metadata.id.clone())
                .or_else(|| self.head.metadata_id.clone()),
            state: self.state.clone(),
            ..self.head.clone()
        }
    }

    /// Goes on from a commit of our own, without reading anything.
    pub fn advance(&mut self, completed: Completed) {
        self.latest = completed.head.version;
        self.latest_etag.clone_from(&completed.head.log_etag);
        self.state.clone_from(&completed.head.state);
        self.head = completed.head;
        self.commits.insert(completed.commit.version, Arc::new(completed.commit));
    }
}
