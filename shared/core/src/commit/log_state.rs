//! A table's state as its log tells it.

use super::context::Context;
use super::error::CommitError;
use super::path_filter::PathCollector;
use super::view::{ViewError, snapshot_error};
use crate::delta::log::{LogListing, LogName, list_log};
use crate::delta::snapshot;
use crate::delta::{Snapshot, SnapshotError, Version, Wanted};
use crate::location::Location;
use crate::store::{ObjectKey, ReadObjects};

/// The state at a version, from a listing. Where what sums the log up (a checkpoint, a compaction) is damaged and every commit
/// is there, it is read from these; tells `paths` of every file that may be live.
pub(super) async fn read_state(
    ctx: Context<'_>,
    root: &Location,
    listing: &LogListing,
    at: Version,
    wanted: &Wanted,
    mut paths: Option<&mut PathCollector>,
) -> Result<Snapshot, ViewError> {
    ctx.check_time("reading the log", 0)?;
    let objects = &*ctx.ports().objects;
    let error = match load(objects, root, listing, at, wanted, paths.as_deref_mut()).await {
        Err(
            error @ (SnapshotError::Damaged { .. } | SnapshotError::TooLarge { .. } | SnapshotError::NoMetadata(_)),
        ) => error,
        other => return other.map_err(snapshot_error),
    };
    let Some(commits) = commits_alone(ctx, root).await? else { return Err(snapshot_error(error)) };
    // A path too many does no harm: what was told before a file turned out to be damaged may stay.
    match load(objects, root, &commits, at, wanted, paths).await {
        Ok(state) => {
            tracing::warn!(root = %root, version = %at, %error, "the log was read from its first commit on");
            Ok(state)
        }
        Err(failed @ SnapshotError::Store(_)) => Err(snapshot_error(failed)),
        // Not every commit is there: what is damaged is needed.
        Err(_) => Err(snapshot_error(error)),
    }
}

/// The log without checkpoints and compactions, which only repeat what its commits say. `None`: there are none of these, or
/// the first commit is gone.
async fn commits_alone(ctx: Context<'_>, root: &Location) -> Result<Option<LogListing>, ViewError> {
    let mut listing = list_log(&*ctx.ports().objects, root, None).await.map_err(CommitError::from)?;
    let count = listing.entries.len();
    listing.entries.retain(|entry| matches!(entry.name, LogName::Commit(_)));
    Ok((listing.entries.len() < count && listing.commit(Version(0)).is_some()).then_some(listing))
}

async fn load(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    at: Version,
    wanted: &Wanted,
    paths: Option<&mut PathCollector>,
) -> Result<Snapshot, SnapshotError> {
    match paths {
        None => snapshot::load_listed_wanted(objects, root, listing, Some(at), wanted, None).await,
        Some(paths) => {
            let mut observer = |at: &ObjectKey| paths.add(at);
            snapshot::load_listed_wanted(objects, root, listing, Some(at), wanted, Some(&mut observer)).await
        }
    }
}
