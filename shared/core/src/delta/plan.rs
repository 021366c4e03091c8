//! Which objects of a log tell the state at a version.

use super::actions::COMMIT_MAX_BYTES;
use super::checkpoint::CheckpointFile;
use super::log::{LogEntry, LogListing, LogName, MainFile, Version, log_key};
use super::snapshot::SnapshotError;
use crate::location::Location;

/// What to read for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplayPlan {
    pub checkpoint: Option<Checkpoint>,
    /// After the checkpoint, in order.
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub version: Version,
    pub files: Vec<CheckpointFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Commit(Version),
    /// Stands for several commits, the last of which is `to`.
    Compacted {
        to: Version,
        file: CheckpointFile,
    },
}

/// Plans the replay up to `wanted` from the newest complete checkpoint at or before it.
pub(super) fn plan_replay(root: &Location, listing: &LogListing, wanted: Version) -> Result<ReplayPlan, SnapshotError> {
    let checkpoint = newest_checkpoint(root, listing, wanted);
    let mut expected = checkpoint.as_ref().map_or(Version(0), |checkpoint| checkpoint.version.next());
    let mut steps = Vec::new();
    let commits: Vec<Version> = listing.commits().map(|(version, _)| version).collect();
    while expected <= wanted {
        if let Some((to, file)) = longest_compaction(root, listing, expected, wanted) {
            steps.push(Step::Compacted { to, file });
            expected = to.next();
        } else if commits.binary_search(&expected).is_ok() {
            steps.push(Step::Commit(expected));
            expected = expected.next();
        } else {
            return Err(SnapshotError::LogGap { missing: expected, wanted });
        }
    }
    Ok(ReplayPlan { checkpoint, steps })
}

/// Whether the listing tells the state at a version; names the first version that is gone where it does not.
pub fn check_whole(root: &Location, listing: &LogListing, at: Version) -> Result<(), SnapshotError> {
    plan_replay(root, listing, at).map(drop)
}

/// Whether nothing is gone of the versions `from..=to`: each is there, or in a compaction, or a complete checkpoint stands
/// for it.
pub fn is_whole_between(root: &Location, listing: &LogListing, from: Version, to: Version) -> bool {
    let checkpoint = newest_checkpoint(root, listing, Version(i64::MAX));
    let mut expected = checkpoint.map_or(from, |checkpoint| checkpoint.version.next().max(from));
    for (version, _) in listing.commits().filter(|(version, _)| *version <= to) {
        while expected < version
            && let Some((end, _)) = longest_compaction(root, listing, expected, to)
        {
            expected = end.next();
        }
        if version > expected {
            return false;
        }
        expected = expected.max(version.next());
    }
    while expected <= to
        && let Some((end, _)) = longest_compaction(root, listing, expected, to)
    {
        expected = end.next();
    }
    expected > to
}

/// The newest checkpoint of at most `wanted` that is complete. Of one version the single file comes first.
pub(super) fn newest_checkpoint(root: &Location, listing: &LogListing, wanted: Version) -> Option<Checkpoint> {
    let mut versions: Vec<Version> = listing
        .entries
        .iter()
        .filter_map(|entry| entry.name.checkpoint())
        .filter(|version| *version <= wanted)
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions.into_iter().rev().find_map(|version| {
        let files = files_of(root, listing, version)?;
        Some(Checkpoint { version, files })
    })
}

fn files_of(root: &Location, listing: &LogListing, version: Version) -> Option<Vec<CheckpointFile>> {
    let classic = listing.entries.iter().find(|entry| entry.name == LogName::ClassicCheckpoint(version));
    if let Some(entry) = classic {
        return Some(vec![file_of(root, entry)?]);
    }
    if let Some(files) = parts_of(root, listing, version) {
        return Some(files);
    }
    let v2 = listing
        .entries
        .iter()
        .rev()
        .find(|entry| matches!(entry.name, LogName::V2Checkpoint { version: found, .. } if found == version));
    Some(vec![file_of(root, v2?)?])
}

/// All parts of a multi-part checkpoint; there may be several, split differently.
fn parts_of(root: &Location, listing: &LogListing, version: Version) -> Option<Vec<CheckpointFile>> {
    let parts_of = |entry: &LogEntry| match entry.name {
        LogName::MultiPartCheckpoint { version: found, part, parts } if found == version => Some((part, parts)),
        _ => None,
    };
    let totals: std::collections::BTreeSet<u32> =
        listing.entries.iter().filter_map(parts_of).map(|(_, parts)| parts).collect();
    totals.into_iter().find_map(|total| {
        let mut found: Vec<(u32, &LogEntry)> = listing
            .entries
            .iter()
            .filter_map(|entry| parts_of(entry).filter(|(_, parts)| *parts == total).map(|(part, _)| (part, entry)))
            .collect();
        found.sort_by_key(|(part, _)| *part);
        let is_complete = found.len() == usize::try_from(total).ok()?
            && found.iter().zip(1_u32..).all(|((part, _), expected)| *part == expected);
        if !is_complete {
            return None;
        }
        found.into_iter().map(|(_, entry)| file_of(root, entry)).collect()
    })
}

/// The compaction that begins at `from` and goes furthest.
fn longest_compaction(
    root: &Location,
    listing: &LogListing,
    from: Version,
    wanted: Version,
) -> Option<(Version, CheckpointFile)> {
    let (to, entry) = listing
        .entries
        .iter()
        .filter_map(|entry| match entry.name {
            LogName::Compacted { from: found, to } if found == from && to > from && to <= wanted => Some((to, entry)),
            _ => None,
        })
        // Larger ones save nothing: their commits are read side by side.
        .filter(|(_, entry)| entry.size_bytes <= COMMIT_MAX_BYTES)
        .max_by_key(|(to, _)| *to)?;
    Some((to, file_of(root, entry)?))
}

fn file_of(root: &Location, entry: &LogEntry) -> Option<CheckpointFile> {
    let is_json =
        matches!(entry.name, LogName::Compacted { .. } | LogName::V2Checkpoint { format: MainFile::Json, .. });
    Some(CheckpointFile {
        at: log_key(root, &entry.name.text()?),
        etag: entry.etag.clone(),
        size_bytes: entry.size_bytes,
        is_json,
    })
}
