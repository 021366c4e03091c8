//! Deleting log files: only what a checkpoint makes superfluous, and only once the checkpoint was seen to say what the
//! commits say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use lakewarden_core::delta::log::{LogEntry, LogListing, LogName, list_log};
use lakewarden_core::delta::snapshot::{Snapshot, SnapshotError, Wanted, load_listed_wanted};
use lakewarden_core::delta::{AddFile, Version};
use lakewarden_core::location::Location;
use lakewarden_core::store::{ETag, ReadObjects};

/// Files of a table that are compared; of larger tables only the rest of the state.
const FILES_MOST: usize = 500_000;
/// Checkpoints that are tried, newest first: an unfinished one is no reason to keep everything.
const CHECKPOINTS_MOST: usize = 3;
/// Tables whose checkpoints are remembered as good.
const TABLES_MOST: usize = 1_000;

/// Checkpoints that were found good.
#[derive(Debug, Default)]
pub struct Cleanup(Mutex<HashMap<Location, Seen>>);

/// The files of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    version: Version,
    files: Vec<(LogName, ETag)>,
}

/// Why files stay.
pub type Kept = BTreeMap<Version, String>;

impl Cleanup {
    /// Which of these versions may not be deleted, and why.
    ///
    /// # Errors
    /// Where S3 cannot be asked; then nothing may be deleted.
    pub async fn keep(
        &self,
        objects: &dyn ReadObjects,
        root: &Location,
        doomed: &BTreeSet<Version>,
    ) -> Result<Kept, String> {
        let listing = list_log(objects, root, None).await.map_err(|error| crate::chain(&error))?;
        // What is not there cannot be harmed.
        let doomed: BTreeSet<Version> =
            listing.commits().map(|(version, _)| version).filter(|version| doomed.contains(version)).collect();
        let Some(first) = doomed.first().copied() else { return Ok(Kept::new()) };
        let mut versions: BTreeSet<Version> = listing.entries.iter().filter_map(checkpoint_version).collect();
        versions.retain(|version| *version > first);
        let mut why = "no checkpoint of a later version is in the log".to_owned();
        for version in versions.into_iter().rev().take(CHECKPOINTS_MOST) {
            match self.covers(objects, root, &listing, version).await {
                Ok(()) => {
                    let text = format!("the latest usable checkpoint is of version {version}");
                    return Ok(doomed
                        .into_iter()
                        .filter(|one| *one >= version)
                        .map(|one| (one, text.clone()))
                        .collect());
                }
                Err(Trouble::Checkpoint(text)) => why = text,
                Err(Trouble::Store(text)) => return Err(text),
            }
        }
        Ok(doomed.into_iter().map(|one| (one, why.clone())).collect())
    }

    /// Whether the table can be read without the commits before this checkpoint.
    async fn covers(
        &self,
        objects: &dyn ReadObjects,
        root: &Location,
        listing: &LogListing,
        version: Version,
    ) -> Result<(), Trouble> {
        let later: BTreeSet<Version> =
            listing.commits().map(|(found, _)| found).filter(|found| *found >= version).collect();
        if let Some(gap) = (version.0..=listing.latest().0).map(Version).find(|one| !later.contains(one)) {
            let text = format!("version {gap}, after the checkpoint of version {version}, is missing from the log");
            return Err(Trouble::Checkpoint(text));
        }
        let mut files: Vec<(LogName, ETag)> = listing
            .entries
            .iter()
            .filter(|entry| checkpoint_version(entry) == Some(version))
            .map(|entry| (entry.name, entry.etag.clone()))
            .collect();
        files.sort_by_key(|(name, _)| name.text());
        let seen = Seen { version, files };
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).get(root) == Some(&seen) {
            return Ok(());
        }
        compare(objects, root, listing, version).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TABLES_MOST {
            known.clear();
        }
        known.insert(root.clone(), seen);
        Ok(())
    }
}

#[derive(Debug)]
enum Trouble {
    /// It is no ground to delete anything on.
    Checkpoint(String),
    Store(String),
}

fn checkpoint_version(entry: &LogEntry) -> Option<Version> {
    match entry.name {
        LogName::ClassicCheckpoint(version)
        | LogName::MultiPartCheckpoint { version, .. }
        | LogName::V2Checkpoint { version, .. } => Some(version),
        LogName::Commit(_) | LogName::Compacted { .. } | LogName::Other => None,
    }
}

/// The table at the checkpoint's version, once from it alone, once from the commits and what is older.
async fn compare(
    objects: &dyn ReadObjects,
    root: &Location,
    listing: &LogListing,
    version: Version,
) -> Result<(), Trouble> {
    let only = |keep: &dyn Fn(&LogEntry) -> bool| LogListing {
        entries: listing.entries.iter().filter(|entry| keep(entry)).cloned().collect(),
    };
    let without = only(&|entry| match entry.name {
        LogName::Commit(found) => found >= version,
        _ => checkpoint_version(entry) == Some(version),
    });
    let commits = only(&|entry| match entry.name {
        LogName::Commit(_) => true,
        _ => checkpoint_version(entry).is_some_and(|found| found < version),
    });
    let load = async |listing: &LogListing| {
        load_listed_wanted(objects, root, listing, Some(version), &Wanted::AtMost(FILES_MOST), None).await
    };
    let unusable = |error: &SnapshotError| {
        Trouble::Checkpoint(format!("the checkpoint of version {version} cannot be used: {error}"))
    };
    let from_checkpoint = match load(&without).await {
        Ok(snapshot) => snapshot,
        Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
        Err(error) => return Err(unusable(&error)),
    };
    let from_commits = match load(&commits).await {
        Ok(snapshot) => snapshot,
        // Cleaned up before: nothing is left to compare with.
        Err(SnapshotError::LogGap { .. }) => return Ok(()),
        Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
        Err(error) => return Err(unusable(&error)),
    };
    match difference(&from_checkpoint, &from_commits) {
        None => Ok(()),
        Some(what) => {
            let text = format!("the checkpoint of version {version} says other {what} than the commits do");
            Err(Trouble::Checkpoint(text))
        }
    }
}

fn difference(checkpoint: &Snapshot, commits: &Snapshot) -> Option<&'static str> {
    let files = |snapshot: &Snapshot| -> Vec<_> {
        snapshot
            .live
            .iter()
            .map(|(key, add): (_, &AddFile)| (key.clone(), add.size, add.partition_values.clone()))
            .collect()
    };
    let removed = |snapshot: &Snapshot| snapshot.domains.iter().filter(|(_, domain)| domain.removed).count();
    let domains = |snapshot: &Snapshot| snapshot.domains.len() - removed(snapshot);
    [
        ("protocol", checkpoint.protocol == commits.protocol),
        ("metadata", checkpoint.metadata.id == commits.metadata.id),
        ("schema", checkpoint.metadata.schema_string == commits.metadata.schema_string),
        ("partition columns", checkpoint.metadata.partition_columns == commits.metadata.partition_columns),
        ("properties", checkpoint.metadata.configuration == commits.metadata.configuration),
        ("transactions", checkpoint.app_ids == commits.app_ids),
        ("domains", domains(checkpoint) == domains(commits)),
        ("files", checkpoint.covers == commits.covers && files(checkpoint) == files(commits)),
    ]
    .into_iter()
    .find_map(|(what, is_same)| (!is_same).then_some(what))
}
