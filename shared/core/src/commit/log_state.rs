//! A table's state as its log tells it.

use super::alarm::{self, Alarm, AlarmKind};
use super::context::{CLAIM_MS, Context};
use super::error::CommitError;
use super::head::Head;
use super::path_filter::PathCollector;
use super::verdict::Refusal;
use super::view::{ViewError, snapshot_error};
use crate::delta::log::{LogListing, LogName, list_log};
use crate::delta::snapshot;
use crate::delta::{Snapshot, SnapshotError, Version, Wanted, check_whole, is_whole_between};
use crate::location::Location;
use crate::store::{ObjectError, ObjectKey, ReadObjects};

/// Versions before a known one that a listing shows again: about what writers put between two checkpoints, and far from
/// what a page of a listing holds.
const LOOK_BACK: i64 = 32;

/// What the log has from a version on that is known.
pub(super) struct Behind {
    pub listing: LogListing,
    /// Nothing is gone of what led up to that version, as far as was looked back.
    pub is_whole: bool,
}

/// Lists the log from a version on whose state is known. Whoever has the state does not need the commits before it, but a
/// log must not be extended that nobody else can read any more.
pub(super) async fn list_behind(
    objects: &dyn ReadObjects,
    root: &Location,
    known: Version,
) -> Result<Behind, ObjectError> {
    let from = Version(known.0.saturating_sub(LOOK_BACK).max(0));
    let mut listing = list_log(objects, root, Some(from)).await?;
    let is_whole = is_whole_between(root, &listing, from, known);
    listing.entries.retain(|entry| entry.name.starts_at().is_some_and(|version| version >= known));
    Ok(Behind { listing, is_whole })
}

/// Looks whether the log can still be read from its last checkpoint on; an alarm where it cannot.
pub(super) async fn watch(ctx: Context<'_>, head: &Head) -> Result<(), CommitError> {
    ctx.check_time("looking at the log", CLAIM_MS)?;
    let listing = match snapshot::list_for(&*ctx.ports().objects, &head.root, None).await {
        Ok(listing) => listing,
        Err(SnapshotError::Store(error)) => return Err(error.into()),
        // What the log is like is said where commits are judged.
        Err(_) => return Ok(()),
    };
    let latest = listing.latest();
    let Err(error) = check_whole(&head.root, &listing, latest) else { return Ok(()) };
    alarm::raise(ctx, &head.root, head.generation, gap(head, &error.to_string(), ctx.now_ms())).await
}

/// What is wrong with the log of a table that was fine is somebody's to look at, beyond the proposal that came upon it.
pub(super) async fn alarm_of(ctx: Context<'_>, head: &Head, refusal: &Refusal) -> Result<(), CommitError> {
    let (text, now_ms) = (&refusal.message, ctx.now_ms());
    let judged = |kind| Alarm::new(kind, head.version, "judged", text, now_ms);
    let alarm = match refusal.reason.as_str() {
        "LOG_REWRITTEN" => judged(AlarmKind::VersionRewritten),
        "LOG_BEHIND_HEAD" => judged(AlarmKind::LogBehindHead),
        "LOG_GAP" if head.version > Version::NONE => gap(head, text, now_ms),
        _ => return Ok(()),
    };
    alarm::raise(ctx, &head.root, head.generation, alarm).await
}

/// One alarm, by whoever comes upon the gap.
fn gap(head: &Head, text: &str, now_ms: i64) -> Alarm {
    Alarm::new(AlarmKind::LogGap, head.version, "gone", text, now_ms)
}

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
