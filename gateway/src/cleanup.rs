//! Deleting log files and checkpoints: only what a checkpoint makes superfluous, and only once the checkpoint was seen to
//! say what the commits say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use lakewarden_core::delta::log::{LogEntry, LogListing, LogName, list_log, log_key};
use lakewarden_core::delta::snapshot::{
    Covers, FileKey, Snapshot, SnapshotError, Wanted, load_listed_wanted, read_parsed,
};
use lakewarden_core::delta::{Parsed, Version};
use lakewarden_core::location::Location;
use lakewarden_core::store::{ETag, GetOptions, ObjectError, ReadObjects};
use serde_json::Value;

use crate::same::{difference, parsed_difference};

/// Says where the newest checkpoint is.
pub const HINT: &str = "_last_checkpoint";
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
    files: Vec<(String, ETag)>,
}

/// What somebody wants to take away from a log, together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doomed {
    pub commits: BTreeSet<Version>,
    /// Names of (parts of) checkpoints.
    pub checkpoints: BTreeSet<String>,
}

/// What stays of it, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub commits: BTreeMap<Version, String>,
    pub checkpoints: BTreeMap<String, String>,
}

/// A log as it is, and as it would be without the checkpoints that are to go.
struct Log<'a> {
    objects: &'a dyn ReadObjects,
    root: &'a Location,
    is: LogListing,
    left: LogListing,
}

/// How far a checkpoint is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It says what the commits before it, or another checkpoint and the commits after that one, say.
    Compared,
    /// It can be read, and nothing is left that its state could be made from a second time.
    Readable,
}

#[derive(Debug)]
enum Trouble {
    /// It is no ground to delete anything on.
    Checkpoint(String),
    Store(String),
}

impl Cleanup {
    /// Which of these may not be deleted, and why.
    ///
    /// # Errors
    /// Where S3 cannot be asked; then nothing may be deleted.
    pub async fn keep(&self, objects: &dyn ReadObjects, root: &Location, doomed: &Doomed) -> Result<Kept, String> {
        let is = list_log(objects, root, None).await.map_err(|error| crate::chain(&error))?;
        // What is not there cannot be harmed.
        let going: BTreeMap<String, Version> = is
            .entries
            .iter()
            .filter_map(|entry| Some((entry.name.text()?, entry.name.checkpoint()?)))
            .filter(|(name, _)| doomed.checkpoints.contains(name))
            .collect();
        let mut commits: BTreeSet<Version> =
            is.commits().map(|(version, _)| version).filter(|version| doomed.commits.contains(version)).collect();
        let left = only(&is, |entry| !entry.name.text().is_some_and(|name| going.contains_key(&name)));
        let log = Log { objects, root, is, left };
        let mut kept = Kept { commits: self.keep_commits(&log, &commits).await?, ..Kept::default() };
        commits.retain(|version| !kept.commits.contains_key(version));
        kept.checkpoints = self.keep_checkpoints(&log, &commits, &going).await?;
        Ok(kept)
    }

    async fn keep_commits(
        &self,
        log: &Log<'_>,
        doomed: &BTreeSet<Version>,
    ) -> Result<BTreeMap<Version, String>, String> {
        let Some(first) = doomed.first() else { return Ok(BTreeMap::new()) };
        let why = |text: &str| text.to_owned();
        let found = self.newest(log, |version| version > *first).await?;
        let (version, proof) = match found {
            Ok(found) => found,
            Err(text) => return Ok(doomed.iter().map(|one| (*one, why(&text))).collect()),
        };
        let reached = if proof == Proof::Compared { BTreeSet::new() } else { reached(&log.is, version) };
        let stays = doomed.iter().filter_map(|one| {
            if *one >= version {
                return Some((*one, format!("the latest usable checkpoint is of version {version}")));
            }
            let text = "older versions are made from it, and nothing is left that the checkpoint of version";
            reached.contains(one).then(|| (*one, format!("{text} {version} could be compared with")))
        });
        Ok(stays.collect())
    }

    /// Checkpoints stay that the table, or what can still be read of its past, cannot be read without.
    async fn keep_checkpoints(
        &self,
        log: &Log<'_>,
        gone: &BTreeSet<Version>,
        going: &BTreeMap<String, Version>,
    ) -> Result<BTreeMap<String, String>, String> {
        let commits: BTreeSet<Version> =
            log.is.commits().map(|(version, _)| version).filter(|version| !gone.contains(version)).collect();
        let last = commits.last().map_or(-1, |last| last.0);
        let is_whole = last >= 0 && (0..=last).map(Version).all(|version| commits.contains(&version));
        if is_whole || going.is_empty() {
            return log.beyond(going, Version(last)).await;
        }
        let (base, proof) = match self.newest(log, |_| true).await? {
            Ok(found) => found,
            Err(text) => {
                let text =
                    format!("log files before it are gone, so that the table cannot be read without it ({text})");
                return Ok(going.keys().map(|name| (name.clone(), text.clone())).collect());
            }
        };
        let mut kept = BTreeMap::new();
        for (name, version) in going {
            let why = if *version > base {
                self.told_otherwise(log, base, *version).await?
            } else {
                let leads_on = *version < base && log.is.commits().any(|(found, _)| found == version.next());
                (proof == Proof::Readable && leads_on).then(|| {
                    format!("later versions are made from it that the checkpoint of version {base} could not be compared with")
                })
            };
            if let Some(why) = why {
                kept.insert(name.clone(), why);
            }
        }
        Ok(kept)
    }

    /// Whether what is left tells another state of a version than its checkpoint does, which is to go.
    async fn told_otherwise(&self, log: &Log<'_>, base: Version, version: Version) -> Result<Option<String>, String> {
        let without = only(&log.left, |entry| entry.name.checkpoint().is_none_or(|found| found == base));
        let doomed = only(&log.is, |entry| {
            let is_left = log.left.entries.iter().any(|left| left.name == entry.name);
            entry.name.checkpoint() == Some(version) && !is_left
        });
        let doomed = match log.load(&doomed, version).await {
            Ok(snapshot) => snapshot,
            Err(SnapshotError::Store(error)) => return Err(error.to_string()),
            // Nobody can read it, so that nobody needs it.
            Err(_) => return Ok(None),
        };
        Ok(match log.load(&without, version).await {
            Ok(left) => difference(&left, &doomed)
                .map(|what| format!("what would be left of the log says other {what} than it does")),
            Err(SnapshotError::Store(error)) => return Err(error.to_string()),
            Err(error) => Some(format!("the table cannot be read without it: {error}")),
        })
    }

    /// The newest checkpoint of those left that the table can be read from, or why there is none.
    async fn newest(
        &self,
        log: &Log<'_>,
        is_wanted: impl Fn(Version) -> bool,
    ) -> Result<Result<(Version, Proof), String>, String> {
        let mut versions: BTreeSet<Version> =
            log.left.entries.iter().filter_map(|entry| entry.name.checkpoint()).collect();
        versions.retain(|version| is_wanted(*version));
        let mut why = "no checkpoint of a later version would be in the log".to_owned();
        for version in versions.into_iter().rev().take(CHECKPOINTS_MOST) {
            match self.covers(log, version).await {
                Ok(proof) => return Ok(Ok((version, proof))),
                Err(Trouble::Checkpoint(text)) => why = text,
                Err(Trouble::Store(text)) => return Err(text),
            }
        }
        Ok(Err(why))
    }

    /// Whether the table can be read without the commits before this checkpoint.
    async fn covers(&self, log: &Log<'_>, version: Version) -> Result<Proof, Trouble> {
        let later: BTreeSet<Version> =
            log.left.commits().map(|(found, _)| found).filter(|found| *found >= version).collect();
        if let Some(gap) = (version.0..=log.left.latest().0).map(Version).find(|one| !later.contains(one)) {
            let text = format!("version {gap}, after the checkpoint of version {version}, is missing from the log");
            return Err(Trouble::Checkpoint(text));
        }
        let mut files: Vec<(String, ETag)> = log
            .left
            .entries
            .iter()
            .filter(|entry| entry.name.checkpoint() == Some(version))
            .filter_map(|entry| Some((entry.name.text()?, entry.etag.clone())))
            .collect();
        files.sort();
        let seen = Seen { version, files };
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).get(log.root) == Some(&seen) {
            return Ok(Proof::Compared);
        }
        let proof = log.compare(version).await?;
        if proof == Proof::Compared {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= TABLES_MOST {
                known.clear();
            }
            known.insert(log.root.clone(), seen);
        }
        Ok(proof)
    }
}

/// The version that the log's hint for readers names: some of them look for no other checkpoint.
///
/// # Errors
/// Where S3 cannot be asked.
pub async fn hinted(objects: &dyn ReadObjects, root: &Location) -> Result<Option<Version>, String> {
    let hint = match objects.get(&log_key(root, HINT), &GetOptions::default()).await {
        Ok(hint) => hint.bytes,
        Err(ObjectError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(crate::chain(&error)),
    };
    let hint: Value = serde_json::from_slice(&hint).unwrap_or_default();
    Ok(hint.get("version").and_then(Value::as_i64).map(Version))
}

fn only(listing: &LogListing, keep: impl Fn(&LogEntry) -> bool) -> LogListing {
    LogListing { entries: listing.entries.iter().filter(|entry| keep(entry)).cloned().collect() }
}

/// Commits before `version` that some version can be made from: those that follow on the beginning, or on a checkpoint.
fn reached(log: &LogListing, version: Version) -> BTreeSet<Version> {
    let commits: BTreeSet<Version> = log.commits().map(|(found, _)| found).filter(|found| *found < version).collect();
    let bases = log.entries.iter().filter_map(|entry| entry.name.checkpoint()).filter(|found| *found < version);
    let mut reached = BTreeSet::new();
    for base in bases.map(|base| base.next()).chain([Version(0)]) {
        let mut next = base;
        while commits.contains(&next) && reached.insert(next) {
            next = next.next();
        }
    }
    reached
}

impl Log<'_> {
    async fn load(&self, listing: &LogListing, version: Version) -> Result<Snapshot, SnapshotError> {
        let wanted = Wanted::AtMost(FILES_MOST);
        load_listed_wanted(self.objects, self.root, listing, Some(version), &wanted, None).await
    }

    /// Checkpoints of versions that the log, whole as it is up to `last`, has no commits of.
    async fn beyond(
        &self,
        going: &BTreeMap<String, Version>,
        last: Version,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut kept = BTreeMap::new();
        for (name, version) in going.iter().filter(|(_, version)| **version > last) {
            let alone = only(&self.is, |entry| entry.name.checkpoint() == Some(*version));
            match self.load(&alone, *version).await {
                Ok(_) => {
                    let text = format!("the log has no commit of version {version}: nothing else tells of it");
                    kept.insert(name.clone(), text);
                }
                Err(SnapshotError::Store(error)) => return Err(error.to_string()),
                // Nobody can read it, so that nobody needs it.
                Err(_) => {}
            }
        }
        Ok(kept)
    }

    /// What the checkpoint says otherwise in columns of their own types. Of a table too large to be compared file by file
    /// these are not read either.
    async fn parsed_difference(
        &self,
        alone: &LogListing,
        version: Version,
        is: &Snapshot,
    ) -> Result<Option<&'static str>, Trouble> {
        if is.covers != Covers::All {
            return Ok(None);
        }
        let mut found = None;
        let mut each = |key: FileKey, said: Parsed<'_>| {
            if found.is_none() {
                found = is.live.get(&key).map_or(Some("files"), |is| parsed_difference(&said, is));
            }
        };
        match read_parsed(self.objects, self.root, alone, version, &mut each).await {
            Ok(()) => Ok(found),
            Err(SnapshotError::Store(error)) => Err(Trouble::Store(error.to_string())),
            Err(error) => {
                Err(Trouble::Checkpoint(format!("the checkpoint of version {version} cannot be used: {error}")))
            }
        }
    }

    /// Each checkpoint of this version that is left, with the commits from there on: as one file, in parts, by their own ids.
    /// Readers take one of them, and not all the same one.
    fn forms(&self, version: Version) -> Vec<LogListing> {
        let form = |entry: &LogEntry| match &entry.name {
            LogName::ClassicCheckpoint(found) => (*found == version).then(|| (0, String::new())),
            LogName::MultiPartCheckpoint { version: found, parts, .. } => {
                (*found == version).then(|| (*parts, String::new()))
            }
            LogName::V2Checkpoint { version: found, id, .. } => (*found == version).then(|| (0, id.to_string())),
            LogName::Commit(_) | LogName::Compacted { .. } | LogName::Other => None,
        };
        let forms: BTreeSet<_> = self.left.entries.iter().filter_map(form).collect();
        let with = |one: &(u32, String)| {
            only(&self.left, |entry| match entry.name {
                LogName::Commit(found) => found >= version,
                _ => form(entry).as_ref() == Some(one),
            })
        };
        forms.iter().map(with).collect()
    }

    /// The table at the checkpoint's version, once from it alone, once from everything else that the log has of it. Where
    /// several are of that version, each of them must be good.
    async fn compare(&self, version: Version) -> Result<Proof, Trouble> {
        let is_left = |entry: &LogEntry| self.left.entries.iter().any(|left| left.name == entry.name);
        let others = only(&self.is, |entry| match entry.name {
            LogName::Commit(_) => true,
            // One of this version that is to go tells of it, too.
            _ => entry.name.checkpoint().is_some_and(|found| found < version || (found == version && !is_left(entry))),
        });
        let unusable = |error: &SnapshotError| {
            Trouble::Checkpoint(format!("the checkpoint of version {version} cannot be used: {error}"))
        };
        let from_others = match self.load(&others, version).await {
            Ok(snapshot) => Some(snapshot),
            // Cleaned up before: nothing is left to compare with.
            Err(SnapshotError::LogGap { .. } | SnapshotError::NoTable(_)) => None,
            Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
            Err(error) => return Err(unusable(&error)),
        };
        let mut why = Trouble::Checkpoint(format!("the checkpoint of version {version} is not whole"));
        let mut proof = None;
        for alone in self.forms(version) {
            let from_checkpoint = match self.load(&alone, version).await {
                Ok(snapshot) => snapshot,
                Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
                // Parts of one that was not finished: nobody reads them.
                Err(error @ (SnapshotError::LogGap { .. } | SnapshotError::NoTable(_))) => {
                    why = unusable(&error);
                    continue;
                }
                Err(error) => return Err(unusable(&error)),
            };
            if from_checkpoint.is_ambiguous {
                let text =
                    format!("the checkpoint of version {version} says something twice, and readers choose differently");
                return Err(Trouble::Checkpoint(text));
            }
            let Some(is) = &from_others else {
                proof = Some(Proof::Readable);
                continue;
            };
            let found = match difference(&from_checkpoint, is) {
                None => self.parsed_difference(&alone, version, is).await?,
                found => found,
            };
            if let Some(what) = found {
                let text = format!("the checkpoint of version {version} says other {what} than the commits do");
                return Err(Trouble::Checkpoint(text));
            }
            proof = Some(Proof::Compared);
        }
        proof.ok_or(why)
    }
}

#[cfg(test)]
mod tests;
