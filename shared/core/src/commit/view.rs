//! A table as one run sees it: head, latest version of the log, cached state, commits that were read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claim::{Between, Completed};
use super::context::{Context, Transacted};
use super::error::CommitError;
use super::head::{Head, Sight};
use super::keys::{self, Generation, ProposalId};
pub(super) use super::log_state::read_state;
use super::log_state::{Behind, list_behind};
use super::lookup::Lookup;
use super::managed::overlay;
use super::path_filter::PathCollector;
use super::proposal::{Proposal, Status};
use super::recover;
use super::table_state::{TableState, timestamp_of};
use super::verdict::{Exception, Refusal};
use super::version_record::VersionRecord;
use super::warm::WarmTables;
use crate::delta::log::{LogListing, list_log};
use crate::delta::snapshot::{self, LoggedCommit};
use crate::delta::{Covers, Snapshot, SnapshotError, Version, Wanted, features};
use crate::location::Location;
use crate::store::{Condition, Consistency, ETag, Item, Key, Query, SortRange, Table, Write, get_every};

/// Times a claim of somebody else is finished before we give up for now.
const RECOVERIES_MAX: u32 = 8;
/// Commits since the read version that are still judged.
pub const WINNERS_MAX: i64 = 1_000;

/// Live and removed files up to which a table is held whole, to judge many commits against it.
pub(super) const SMALL_FILES: usize = 20_000;
/// A file of a table that is held, about.
const FILE_BYTES: usize = 600;
/// Commits read at once.
const COMMITS_AT_ONCE: usize = 64;
/// Commits that the head does not know, beyond which a checkpoint is read instead.
const FAR_BEHIND: usize = 100;
/// Commits that are held, as they lie in the log. (What is parsed of them takes a few times that.)
const COMMITS_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Of these, what is remembered for later runs.
const REMEMBERED_COMMITS_MAX_BYTES: usize = 1024 * 1024;

/// What one run knows of a table.
#[derive(Clone, Debug)]
pub struct View {
    pub root: Location,
    pub head: Head,
    /// The revision of the head since which nobody but this run has written to it: what was seen under that one, no sweep
    /// can have deleted since.
    pub unbroken_since: String,
    pub latest: Version,
    /// ETag of the latest commit.
    pub latest_etag: Option<ETag>,
    /// The table at `latest`; `None` where there is no table.
    pub state: Option<TableState>,
    pub(super) held: Held,
    /// Where the table is remembered after a commit of ours.
    warm: Option<WarmTables>,
}

/// What of a table's log was read and is kept, because the next commit will likely need it.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// At the latest version or before; covers all files of a small table, the ones asked about of a large one.
    pub base: Option<Arc<Snapshot>>,
    pub commits: BTreeMap<Version, Arc<LoggedCommit>>,
    /// The table has more files than are held.
    pub is_large: bool,
    /// The filter of paths was made anew, or cannot be.
    pub has_tried_paths: bool,
    /// Commits from here on are not in the log yet: they are never let go.
    pub pinned_from: Option<Version>,
}

impl Held {
    fn commits_bytes(&self) -> usize {
        self.commits.values().map(|commit| commit.bytes.len()).sum()
    }

    /// Lets the oldest commits go, but for those of `keep`.
    fn shrink(&mut self, most_bytes: usize, keep: std::ops::RangeInclusive<Version>) {
        let mut bytes = self.commits_bytes();
        let is_pinned = |version: &Version| self.pinned_from.is_some_and(|from| *version >= from);
        let outside = self.commits.keys().copied().filter(|version| !keep.contains(version) && !is_pinned(version));
        let outside: Vec<Version> = outside.collect();
        for version in outside {
            if bytes <= most_bytes {
                break;
            }
            bytes = bytes.saturating_sub(self.commits.remove(&version).map_or(0, |commit| commit.bytes.len()));
        }
    }
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
///
/// A table that this process remembers costs the listing only. The look-up is taken for empty then: whatever is written
/// for the proposal demands that it is new, and is refused where it is not; the next look finds it.
pub async fn load(ctx: Context<'_>, root: &Location, id: ProposalId) -> Result<(View, Option<Lookup>), ViewError> {
    if let Some(view) = ctx.app.warm.take(root)
        && let Some(view) = refresh(ctx, view).await?
    {
        return Ok((view, None));
    }
    for _ in 0..RECOVERIES_MAX {
        ctx.check_time("reading the table", 0)?;
        let keys = [keys::head(root), keys::lookup(root, id)];
        let ports = ctx.ports();
        let found =
            get_every(&*ports.items, &*ports.clock, &keys, Consistency::Strong).await.map_err(CommitError::from)?;
        let item = found.get(&keys::head(root));
        let head = item.map_or_else(|| Ok(Head::fresh(root)), Head::decode)?;
        let lookup = match found.get(&keys::lookup(root, id)) {
            Some(item) => Some(Lookup::decode(item)?),
            None => None,
        };
        if let Some(claim) = &head.claim {
            recover::finish(ctx, &head, claim).await?;
            continue;
        }
        match open_view(ctx, root, head, item).await? {
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

/// The table as it was at a version that is in the log, at or before the latest one.
pub(super) async fn as_of(ctx: Context<'_>, head: &Head, at: Version) -> Result<View, ViewError> {
    let (objects, root) = (&*ctx.ports().objects, &head.root);
    let cut = |mut listing: LogListing| {
        listing.entries.retain(|entry| entry.name.version().is_some_and(|version| version <= at));
        listing
    };
    if head.version > Version::NONE && head.version <= at {
        let item = ctx.ports().items.get(&keys::head(root), Consistency::Strong).await.map_err(CommitError::from)?;
        let known = match item {
            Some(item) if Head::decode(&item)?.revision == head.revision => {
                TableState::load(ctx.ports(), root, &item).await?
            }
            _ => None,
        };
        if let Some(state) = known {
            let listing = cut(list_log(objects, root, Some(head.version)).await.map_err(CommitError::from)?);
            if has_known_commit(head, &listing) && !is_far_behind(head, &listing) {
                return catch_up(ctx, root, head.clone(), state, Held::default(), &listing).await;
            }
        }
    }
    let listing = if at == Version::NONE {
        LogListing::default()
    } else {
        cut(snapshot::list_for(objects, root, Some(at)).await.map_err(snapshot_error)?)
    };
    // What the head knows is of later versions, or of another log.
    let unknowing =
        Head { version: Version::NONE, metadata_id: None, log_etag: None, state: None, claim: None, ..head.clone() };
    let view = read_log(ctx, root, unknowing, &listing).await?;
    view.ok_or_else(|| CommitError::Contended { attempts: 1 }.into())
}

/// A remembered table as it is now; `None` if the log is not the one that is remembered.
async fn refresh(ctx: Context<'_>, view: View) -> Result<Option<View>, ViewError> {
    let View { root, head, state: Some(state), held, .. } = view else { return Ok(None) };
    if head.version == Version::NONE || head.active_fence(ctx.now_ms()).is_some() {
        return Ok(None);
    }
    let behind = list_behind(&*ctx.ports().objects, &root, head.version).await.map_err(CommitError::from)?;
    if !goes_on_from(&head, &behind) {
        return Ok(None);
    }
    catch_up(ctx, &root, head, state, held, &behind.listing).await.map(Some)
}

/// Whether reading the log from its last checkpoint on is less work than reading what the head does not know, or all that
/// is left of it.
fn is_far_behind(head: &Head, listing: &LogListing) -> bool {
    if listing.latest() > listing.latest_commit() {
        return true;
    }
    let unknown = listing.commits().filter(|(version, _)| *version > head.version).count();
    unknown > FAR_BEHIND && listing.entries.iter().any(|entry| entry.name.is_checkpoint_after(head.version))
}

/// Whether what the head knows can be gone on from. Where something is gone of what led up to it, the whole log tells whether
/// it can still be read.
fn goes_on_from(head: &Head, behind: &Behind) -> bool {
    has_known_commit(head, &behind.listing) && behind.is_whole && !is_far_behind(head, &behind.listing)
}

/// What is listed now is what there was: whatever of it is dated later has been written over.
fn note_sight(head: &mut Head, listing: &LogListing) {
    let Some(written_ms) = listing.commits().map(|(_, entry)| entry.last_modified_ms).max() else { return };
    let before_ms = head.sight.map_or(written_ms, |sight| sight.written_ms);
    head.sight = Some(Sight { version: listing.latest(), written_ms: written_ms.max(before_ms) });
}

/// Whether the log still has the commit that the head names.
fn has_known_commit(head: &Head, listing: &LogListing) -> bool {
    listing.commit(head.version).is_some_and(|entry| Some(&entry.etag) == head.log_etag.as_ref())
}

async fn open_view(
    ctx: Context<'_>,
    root: &Location,
    head: Head,
    item: Option<&Item>,
) -> Result<Option<View>, ViewError> {
    let objects = &*ctx.ports().objects;
    if let Some(managed) = head.managed.clone() {
        return overlay::open(ctx, head, &managed, item).await.map(Some);
    }
    if let (Some(item), true) = (item, head.version > Version::NONE)
        && let Some(state) = TableState::load(ctx.ports(), root, item).await?
    {
        let behind = list_behind(objects, root, head.version).await.map_err(CommitError::from)?;
        if goes_on_from(&head, &behind) {
            return catch_up(ctx, root, head, state, Held::default(), &behind.listing).await.map(Some);
        }
    }
    let mut listing = snapshot::list_for(objects, root, None).await.map_err(snapshot_error)?;
    if head.version > Version::NONE && listing.commit(head.version).is_none() {
        // The listing may begin at a checkpoint.
        listing = list_log(objects, root, None).await.map_err(CommitError::from)?;
    }
    read_log(ctx, root, head, &listing).await
}

/// The head knows the table: only what others committed since is read.
async fn catch_up(
    ctx: Context<'_>,
    root: &Location,
    mut head: Head,
    mut state: TableState,
    mut held: Held,
    listing: &LogListing,
) -> Result<View, ViewError> {
    let latest = listing.latest();
    note_sight(&mut head, listing);
    let mut expected = head.version.next();
    let mut foreign = Vec::new();
    for (version, _) in listing.commits().filter(|(version, _)| *version > head.version) {
        if version != expected {
            return Err(damaged(&SnapshotError::LogGap { missing: expected, wanted: latest }));
        }
        foreign.push(version);
        expected = expected.next();
    }
    for part in foreign.chunks(COMMITS_AT_ONCE) {
        for commit in read_commits(ctx, root, part.to_vec()).await? {
            let path = |error| damaged(&SnapshotError::Path { version: commit.version, error });
            state.apply(root, &commit).map_err(path)?;
            held.commits.insert(commit.version, Arc::new(commit));
        }
        held.shrink(COMMITS_MAX_BYTES, latest..=latest);
    }
    state.spill(ctx.ports(), root).await?;
    let latest_etag = listing.commit(latest).map(|entry| entry.etag.clone());
    let warm = Some(ctx.app.warm.clone());
    Ok(View {
        root: root.clone(),
        unbroken_since: head.revision.clone(),
        head,
        latest,
        latest_etag,
        state: Some(state),
        held,
        warm,
    })
}

/// The head does not know the table, or not this one: the log is read, and compared with what the head says.
async fn read_log(
    ctx: Context<'_>,
    root: &Location,
    mut head: Head,
    listing: &LogListing,
) -> Result<Option<View>, ViewError> {
    let latest = listing.latest();
    let latest_etag = listing.commit(latest).map(|entry| entry.etag.clone());
    let (mut held, warm) = (Held::default(), Some(ctx.app.warm.clone()));
    if latest == Version::NONE {
        return Ok(Some(View {
            root: root.clone(),
            unbroken_since: head.revision.clone(),
            head,
            latest,
            latest_etag,
            state: None,
            held,
            warm,
        }));
    }
    let mut paths = PathCollector::default();
    let snapshot = read_state(ctx, root, listing, latest, &Wanted::AtMost(SMALL_FILES), Some(&mut paths)).await?;
    // A writer may give the id of a table that goes on to another one; then the commit that we know is still there.
    let goes_on = has_known_commit(&head, listing);
    if !goes_on && head.metadata_id.as_ref().is_some_and(|id| *id != snapshot.metadata.id) {
        let born_ms = listing.commits().map(|(_, entry)| entry.last_modified_ms).min().unwrap_or(0);
        open_generation(ctx, &head, born_ms).await?;
        return Ok(None);
    }
    check_history(ctx, &head, listing).await?;
    if head.version == Version::NONE && head.born_ms == 0 {
        // What is dated before that was staged for a table that nobody here has seen.
        head.born_ms = listing.commit(Version(0)).map_or(0, |entry| entry.last_modified_ms);
    }
    note_sight(&mut head, listing);
    let mut in_commit_timestamp_ms = None;
    if features::has_in_commit_timestamps_on(&snapshot.metadata) {
        let commit = snapshot::read_commit(&*ctx.ports().objects, root, latest).await.map_err(snapshot_error)?;
        in_commit_timestamp_ms = timestamp_of(&commit).or(Some(commit.last_modified_ms));
        held.commits.insert(latest, Arc::new(commit));
    }
    let mut state = TableState::of_log(&snapshot, paths, in_commit_timestamp_ms);
    state.spill(ctx.ports(), root).await?;
    held.has_tried_paths = true;
    held.is_large = snapshot.covers != Covers::All;
    held.base = (!held.is_large).then(|| Arc::new(snapshot));
    Ok(Some(View {
        root: root.clone(),
        unbroken_since: head.revision.clone(),
        head,
        latest,
        latest_etag,
        state: Some(state),
        held,
        warm,
    }))
}

/// The log must still hold what the head says was published.
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
    if record.sha256.is_some_and(|sha256| keys::content_hash(&commit.bytes) == sha256) {
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

/// Another table stands at the root: the head starts over, open proposals of the old table end.
pub async fn open_generation(ctx: Context<'_>, head: &Head, born_ms: i64) -> Result<(), CommitError> {
    tracing::warn!(root = %head.root, generation = head.generation.0 + 1, "another table stands here; a new generation opens");
    let next = Head {
        generation: Generation(head.generation.0.saturating_add(1)),
        born_ms,
        // A sweep that is under way keeps its fence, and other writers keep their log store.
        fence: head.fence.clone(),
        log_store: head.log_store,
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

/// The verdict on proposals of which nobody can tell whether they were made for the table that is gone.
pub fn perhaps_replaced() -> Refusal {
    Refusal::new(
        Exception::TableReplacedException,
        "TABLE_REPLACED",
        "the table was written anew in the second in which this commit was staged, and the commit may have been made for \
         the table before",
        "if it was made for the new table, stage it again under a new id; a commit that says in commitInfo.readTableId \
         which table (metaData.id) it read is not in doubt",
    )
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
    /// A catalog-managed table: `commits` are ratified and not published yet. Such a view is not remembered.
    pub(super) fn of_managed(head: Head, state: TableState, commits: Vec<LoggedCommit>) -> View {
        let pinned_from = commits.first().map(|commit| commit.version);
        let commits = commits.into_iter().map(|commit| (commit.version, Arc::new(commit))).collect();
        View {
            root: head.root.clone(),
            unbroken_since: head.revision.clone(),
            latest: head.version,
            latest_etag: head.log_etag.clone(),
            state: Some(state),
            held: Held { commits, pinned_from, ..Held::default() },
            head,
            warm: None,
        }
    }

    /// The latest version that is in the log.
    pub(super) fn in_log(&self) -> Version {
        self.head.managed.as_ref().map_or(self.latest, |managed| managed.published)
    }

    /// Commits `from..=to`, from the cache where possible.
    pub async fn winners(
        &mut self,
        ctx: Context<'_>,
        from: Version,
        to: Version,
    ) -> Result<Vec<Arc<LoggedCommit>>, ViewError> {
        let wanted: Vec<Version> = (from.0..=to.0).map(Version).collect();
        let missing: Vec<Version> =
            wanted.iter().copied().filter(|version| !self.held.commits.contains_key(version)).collect();
        for commit in read_commits(ctx, &self.root, missing).await? {
            self.held.commits.insert(commit.version, Arc::new(commit));
        }
        self.held.shrink(COMMITS_MAX_BYTES, from..=to);
        Ok(wanted.iter().filter_map(|version| self.held.commits.get(version).cloned()).collect())
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

    /// Goes on from a commit of our own, without reading anything, and has the table remembered.
    pub fn advance(&mut self, completed: Completed) {
        if completed.between == Between::Others {
            self.unbroken_since.clone_from(&completed.head.revision);
        }
        self.latest = completed.head.version;
        self.latest_etag.clone_from(&completed.head.log_etag);
        self.state.clone_from(&completed.head.state);
        self.head = completed.head;
        self.held.commits.insert(completed.commit.version, Arc::new(completed.commit));
        self.held.shrink(COMMITS_MAX_BYTES, self.latest..=self.latest);
        if let Some(warm) = &self.warm {
            warm.put(self);
        }
    }

    /// What is remembered of the table for later runs.
    pub(super) fn lean(&self) -> View {
        let mut lean = View { warm: None, ..self.clone() };
        lean.held.shrink(REMEMBERED_COMMITS_MAX_BYTES, Version::NONE..=Version::NONE);
        // The state is beside it.
        lean.head.state = None;
        lean
    }

    /// Bytes in memory, about.
    pub(super) fn weight_bytes(&self) -> usize {
        let base = self.held.base.as_ref().map_or(0, |base| base.live.len().saturating_add(base.tombstones.len()));
        base.saturating_mul(FILE_BYTES)
            .saturating_add(self.held.commits_bytes().saturating_mul(4))
            .saturating_add(self.state.as_ref().map_or(0, TableState::weight_bytes))
    }
}
