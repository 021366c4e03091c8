//! The view of a catalog-managed table: the published log, and upon it what is ratified and not published yet.

use bytes::Bytes;

use super::refusals;
use super::state::{Managed, Ratified};
use crate::commit::alarm::{self, Alarm, AlarmKind};
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::head::Head;
use crate::commit::keys::{self, content_hash};
use crate::commit::log_state::list_behind;
use crate::commit::path_filter::PathCollector;
use crate::commit::table_state::{TableState, timestamp_of};
use crate::commit::version_record::VersionRecord;
use crate::commit::view::{self, SMALL_FILES, View, ViewError, snapshot_error};
use crate::delta::log::{LogListing, commit_key};
use crate::delta::snapshot::{self, LoggedCommit};
use crate::delta::{SnapshotError, Strictness, Version, Wanted, check_whole, features, parse_commit};
use crate::location::Location;
use crate::store::{Consistency, GetOptions, Item, ObjectError, ObjectKey, StoreError, StoreErrorKind};

/// The table as its head says it was ratified.
pub(in crate::commit) async fn open(
    ctx: Context<'_>,
    head: Head,
    managed: &Managed,
    item: Option<&Item>,
) -> Result<View, ViewError> {
    let root = head.root.clone();
    let objects = &*ctx.ports().objects;
    let behind = list_behind(objects, &root, managed.published).await.map_err(CommitError::from)?;
    check_published(ctx, &head, managed, &behind.listing).await?;
    if !behind.is_whole {
        let listing = snapshot::list_for(objects, &root, Some(managed.published)).await.map_err(snapshot_error)?;
        check_whole(&root, &listing, managed.published).map_err(snapshot_error)?;
    }
    let mut commits = Vec::with_capacity(managed.ratified.len());
    for ratified in &managed.ratified {
        commits.push(ratified_commit(ctx, &head, ratified).await?);
    }
    let stored = match item {
        Some(item) => TableState::load(ctx.ports(), &root, item).await?,
        None => None,
    };
    let state = match stored {
        Some(state) => state,
        None => read_state(ctx, &root, managed, &commits).await?,
    };
    Ok(View::of_managed(head, state, commits))
}

/// The log must still hold what was published last.
async fn check_published(
    ctx: Context<'_>,
    head: &Head,
    managed: &Managed,
    listing: &LogListing,
) -> Result<(), ViewError> {
    let Some(entry) = listing.commit(managed.published) else {
        return Err(ViewError::Refused(refusals::log_behind(managed.published)));
    };
    if Some(&entry.etag) == head.log_etag.as_ref() {
        return Ok(());
    }
    let key = keys::version(&head.root, head.generation, managed.published);
    let item = ctx.ports().items.get(&key, Consistency::Strong).await?;
    let sha256 = item.map(|item| VersionRecord::decode(&item)).transpose()?.and_then(|record| record.sha256);
    let at = commit_key(&head.root, managed.published);
    let found = ctx.ports().objects.get(&at, &GetOptions::default()).await.map_err(CommitError::from)?;
    // The same bytes put again have the same content, whatever their ETag.
    if sha256.is_some_and(|sha256| sha256 == content_hash(&found.bytes)) {
        return Ok(());
    }
    Err(ViewError::Refused(refusals::log_rewritten(managed.published)))
}

async fn ratified_commit(ctx: Context<'_>, head: &Head, ratified: &Ratified) -> Result<LoggedCommit, ViewError> {
    let Some(bytes) = bytes_of(ctx, &head.root, ratified).await? else {
        raise_missing(ctx, head, ratified).await?;
        return Err(ViewError::Refused(refusals::bytes_missing(ratified)));
    };
    logged(&head.root, ratified.version, bytes, ratified.timestamp_ms).map_err(ViewError::from)
}

/// A ratified commit as if it were in the log.
pub(super) fn logged(
    root: &Location,
    version: Version,
    bytes: Bytes,
    last_modified_ms: i64,
) -> Result<LoggedCommit, CommitError> {
    let actions = parse_commit(&bytes, Strictness::Log).map_err(|error| {
        let what = format!("read the ratified {}", commit_key(root, version));
        StoreError::new(StoreErrorKind::Invalid, what, error.to_string())
    })?;
    Ok(LoggedCommit { version, actions, bytes, last_modified_ms })
}

/// Tells that a ratified commit is lost.
pub(super) async fn raise_missing(ctx: Context<'_>, head: &Head, ratified: &Ratified) -> Result<(), CommitError> {
    let refusal = refusals::bytes_missing(ratified);
    let alarm =
        Alarm::new(AlarmKind::RatifiedBytesMissing, ratified.version, "missing", &refusal.message, ctx.now_ms());
    alarm::raise(ctx, &head.root, head.generation, alarm.about(ratified.id)).await
}

/// The bytes that were ratified: as they were staged, or as they were published. `None` where both are gone or differ.
pub(super) async fn bytes_of(
    ctx: Context<'_>,
    root: &Location,
    ratified: &Ratified,
) -> Result<Option<Bytes>, CommitError> {
    let staged = ratified.staged_key(root).key();
    for at in [staged, commit_key(root, ratified.version)] {
        if let Some(bytes) = read(ctx, &at).await?
            && content_hash(&bytes) == ratified.sha256
        {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

async fn read(ctx: Context<'_>, at: &ObjectKey) -> Result<Option<Bytes>, CommitError> {
    match ctx.ports().objects.get(at, &GetOptions::default()).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(ObjectError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The state where the head has none: from the log, and what is ratified upon it.
async fn read_state(
    ctx: Context<'_>,
    root: &Location,
    managed: &Managed,
    commits: &[LoggedCommit],
) -> Result<TableState, ViewError> {
    let objects = &*ctx.ports().objects;
    let at = managed.published;
    let listing = snapshot::list_for(objects, root, Some(at)).await.map_err(snapshot_error)?;
    let mut paths = PathCollector::default();
    let wanted = Wanted::AtMost(SMALL_FILES);
    let snapshot = view::read_state(ctx, root, &listing, at, &wanted, Some(&mut paths)).await?;
    let mut timestamp_ms = None;
    if features::has_in_commit_timestamps_on(&snapshot.metadata) {
        let last = snapshot::read_commit(objects, root, at).await.map_err(snapshot_error)?;
        timestamp_ms = timestamp_of(&last).or(Some(last.last_modified_ms));
    }
    let mut state = TableState::of_log(&snapshot, paths, timestamp_ms);
    for commit in commits {
        let version = commit.version;
        state.apply(root, commit).map_err(|error| snapshot_error(SnapshotError::Path { version, error }))?;
    }
    state.spill(ctx.ports(), root).await?;
    Ok(state)
}
