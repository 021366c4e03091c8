//! Deleting log files and checkpoints: only what a checkpoint makes superfluous, and only once the checkpoint was seen to
//! say what the commits say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use lakewarden_core::delta::Version;
use lakewarden_core::delta::log::{LogEntry, LogListing, LogName, list_log, log_key};
use lakewarden_core::delta::snapshot::{Snapshot, SnapshotError, Wanted, load_listed_wanted};
use lakewarden_core::location::Location;
use lakewarden_core::store::{ETag, GetOptions, ObjectError, ReadObjects};
use serde_json::Value;

use crate::same::difference;

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

    /// The table at the checkpoint's version, once from it alone, once from everything else that the log has of it.
    async fn compare(&self, version: Version) -> Result<Proof, Trouble> {
        let is_its_own = |entry: &LogEntry| {
            entry.name.checkpoint() == Some(version) && self.left.entries.iter().any(|left| left.name == entry.name)
        };
        let alone = only(&self.is, |entry| match entry.name {
            LogName::Commit(found) => found >= version,
            _ => is_its_own(entry),
        });
        let others = only(&self.is, |entry| match entry.name {
            LogName::Commit(_) => true,
            _ => entry.name.checkpoint().is_some_and(|found| found <= version) && !is_its_own(entry),
        });
        let unusable = |error: &SnapshotError| {
            Trouble::Checkpoint(format!("the checkpoint of version {version} cannot be used: {error}"))
        };
        let from_checkpoint = match self.load(&alone, version).await {
            Ok(snapshot) => snapshot,
            Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
            Err(error) => return Err(unusable(&error)),
        };
        if from_checkpoint.is_ambiguous {
            let text =
                format!("the checkpoint of version {version} says something twice, and readers choose differently");
            return Err(Trouble::Checkpoint(text));
        }
        let from_others = match self.load(&others, version).await {
            Ok(snapshot) => snapshot,
            // Cleaned up before: nothing is left to compare with.
            Err(SnapshotError::LogGap { .. }) => return Ok(Proof::Readable),
            Err(SnapshotError::Store(error)) => return Err(Trouble::Store(error.to_string())),
            Err(error) => return Err(unusable(&error)),
        };
        match difference(&from_checkpoint, &from_others) {
            None => Ok(Proof::Compared),
            Some(what) => {
                let text = format!("the checkpoint of version {version} says other {what} than the commits do");
                Err(Trouble::Checkpoint(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lakewarden_core::store::memory::MemoryWorld;
    use lakewarden_core::store::{ObjectKey, Objects, PutOptions};
    use serde_json::json;

    use super::*;

    const FIRST: &str = "11111111-1111-4111-8111-111111111111";
    const SECOND: &str = "22222222-2222-4222-8222-222222222222";

    struct Table {
        world: MemoryWorld,
        root: Location,
        cleanup: Cleanup,
    }

    fn stats(version: i64) -> Value {
        json!({"numRecords": 1, "minValues": {"id": version}, "maxValues": {"id": version}, "nullCount": {"id": 0}})
    }

    fn add(version: i64) -> Value {
        json!({"add": {
            "path": format!("{version}.parquet"), "partitionValues": {}, "size": 1, "modificationTime": 1,
            "dataChange": true, "stats": stats(version).to_string(),
        }})
    }

    fn head() -> Vec<Value> {
        let schema = r#"{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}"#;
        vec![
            json!({"protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["domainMetadata", "v2Checkpoint"],
            }}),
            json!({"metaData": {
                "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                "partitionColumns": [], "configuration": {}, "createdTime": 1,
            }}),
            json!({"domainMetadata": {"domain": "d", "configuration": "one", "removed": false}}),
        ]
    }

    fn lines(actions: &[Value]) -> Bytes {
        actions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into()
    }

    fn versions(of: impl IntoIterator<Item = i64>) -> BTreeSet<Version> {
        of.into_iter().map(Version).collect()
    }

    fn checkpoint_name(version: i64, id: &str) -> String {
        format!("{version:020}.checkpoint.{id}.json")
    }

    impl Table {
        /// Commits 0 to 5, each with one file.
        async fn new() -> Table {
            let table =
                Table { world: MemoryWorld::new(1), root: Location::new("lake", "t"), cleanup: Cleanup::default() };
            for version in 0..=5 {
                let head = if version == 0 { head() } else { Vec::new() };
                let actions: Vec<Value> = head.into_iter().chain([add(version)]).collect();
                table.put(&format!("{version:020}.json"), lines(&actions)).await;
            }
            table
        }

        fn key(&self, name: &str) -> ObjectKey {
            self.root.object(&format!("_delta_log/{name}"))
        }

        async fn put(&self, name: &str, bytes: Bytes) {
            self.world.objects.put(&self.key(name), bytes, &PutOptions::default()).await.unwrap();
        }

        async fn checkpoint(&self, version: i64, id: &str, change: impl Fn(&mut Vec<Value>)) {
            let mut rows: Vec<Value> = head().into_iter().chain((0..=version).map(add)).collect();
            change(&mut rows);
            rows.insert(0, json!({"checkpointMetadata": {"version": version}}));
            self.put(&checkpoint_name(version, id), lines(&rows)).await;
        }

        async fn lose(&self, commits: impl IntoIterator<Item = i64>) {
            for version in commits {
                self.world.objects.delete(&self.key(&format!("{version:020}.json")), None).await.unwrap();
            }
        }

        async fn keep(&self, commits: impl IntoIterator<Item = i64>, checkpoints: &[(i64, &str)]) -> Kept {
            let checkpoints = checkpoints.iter().map(|(version, id)| checkpoint_name(*version, id)).collect();
            let doomed = Doomed { commits: versions(commits), checkpoints };
            self.cleanup.keep(&*self.world.objects, &self.root, &doomed).await.unwrap()
        }
    }

    fn forged(rows: &mut Vec<Value>) {
        rows.pop();
    }

    fn commits_of(kept: &Kept) -> Vec<i64> {
        kept.commits.keys().map(|version| version.0).collect()
    }

    #[tokio::test]
    async fn a_checkpoint_makes_what_lies_before_it_superfluous() {
        let table = Table::new().await;
        assert_eq!(commits_of(&table.keep(0..=3, &[]).await), [0, 1, 2, 3], "no checkpoint");
        table.checkpoint(3, FIRST, |_| ()).await;
        assert_eq!(commits_of(&table.keep(0..=3, &[]).await), [3]);
        // In the same breath the checkpoint itself: it counts as gone.
        let kept = table.keep(0..=2, &[(3, FIRST)]).await;
        assert_eq!((commits_of(&kept), kept.checkpoints.len()), (vec![0, 1, 2], 0));
    }

    #[tokio::test]
    async fn a_checkpoint_that_says_anything_else_is_no_ground() {
        type Change = fn(&mut Vec<Value>);
        let other_stats: Change = |rows| rows[4]["add"]["stats"] = stats(1000).to_string().into();
        let other_domain: Change = |rows| rows[2]["domainMetadata"]["configuration"] = "two".into();
        let other_name: Change = |rows| rows[1]["metaData"]["name"] = "x".into();
        let other_time: Change = |rows| rows[4]["add"]["modificationTime"] = 2.into();
        let other_rows: Change = |rows| rows[4]["add"]["baseRowId"] = 2.into();
        let no_domain: Change = |rows| drop(rows.remove(2));
        for (what, change) in [
            ("statistics", other_stats),
            ("domains", other_domain),
            ("domains", no_domain),
            ("metadata", other_name),
            ("times", other_time),
            ("row ids", other_rows),
            ("files", forged as Change),
        ] {
            let table = Table::new().await;
            table.checkpoint(3, FIRST, change).await;
            let kept = table.keep([0], &[]).await;
            assert!(kept.commits[&Version(0)].contains(what), "{what}: {kept:?}");
        }
        let fewer_stats: Change = |rows| rows[4]["add"]["stats"] = json!({"numRecords": 1}).to_string().into();
        let no_stats: Change = |rows| drop(rows[4]["add"].as_object_mut().unwrap().remove("stats"));
        for change in [fewer_stats, no_stats] {
            let table = Table::new().await;
            table.checkpoint(3, FIRST, change).await;
            assert_eq!(table.keep([0], &[]).await, Kept::default());
        }
    }

    #[tokio::test]
    async fn the_checkpoint_that_a_log_begins_with_stays() {
        let table = Table::new().await;
        table.checkpoint(3, FIRST, |_| ()).await;
        assert_eq!(table.keep([], &[(3, FIRST)]).await, Kept::default(), "all commits are there");
        table.lose(0..=2).await;
        assert_eq!(table.keep([], &[(3, FIRST)]).await.checkpoints.len(), 1);
        // One that says otherwise does not stand in for it, of a later version or of the same one.
        table.checkpoint(5, FIRST, forged).await;
        assert_eq!(table.keep(3..=4, &[(3, FIRST)]).await.checkpoints.len(), 1);
        table.checkpoint(3, SECOND, forged).await;
        let kept = table.keep([], &[(3, FIRST)]).await;
        assert!(kept.checkpoints.values().all(|why| why.contains("says other files")) && kept.checkpoints.len() == 1);
        // Of two that disagree nobody can tell which one is right: both stay, until somebody else takes one away.
        table.checkpoint(5, FIRST, |_| ()).await;
        assert_eq!(table.keep(3..=4, &[(3, FIRST), (3, SECOND)]).await.checkpoints.len(), 2);
        table.world.objects.delete(&table.key(&checkpoint_name(3, SECOND)), None).await.unwrap();
        // A good one stands in for it, and then the old one goes with what lies between.
        assert_eq!(table.keep(3..=4, &[(3, FIRST)]).await, Kept::default());
    }

    #[tokio::test]
    async fn what_would_be_left_must_say_the_same() {
        let table = Table::new().await;
        table.checkpoint(5, FIRST, |_| ()).await;
        table.lose(0..=2).await;
        table.checkpoint(3, FIRST, forged).await;
        let kept = table.keep([], &[(5, FIRST)]).await;
        assert!(kept.checkpoints.values().all(|why| why.contains("says other files")) && kept.checkpoints.len() == 1);
        table.checkpoint(3, FIRST, |_| ()).await;
        assert_eq!(table.keep([], &[(5, FIRST)]).await, Kept::default());
    }

    #[tokio::test]
    async fn where_nothing_is_left_to_compare_with_only_remains_go() {
        let table = Table::new().await;
        table.checkpoint(3, FIRST, |_| ()).await;
        table.checkpoint(5, FIRST, |_| ()).await;
        table.lose([2, 4]).await;
        // From 0 and 1 versions can be made; 3 leads nowhere, and neither does its checkpoint.
        let kept = table.keep([0, 1, 3], &[(3, FIRST)]).await;
        assert_eq!((commits_of(&kept), kept.checkpoints.len()), (vec![0, 1], 0));
        table.lose([0]).await;
        assert_eq!(table.keep([1], &[]).await, Kept::default(), "the rest of a cleanup that was broken off");
        let table = Table::new().await;
        table.checkpoint(2, FIRST, |_| ()).await;
        table.checkpoint(5, FIRST, |_| ()).await;
        table.lose([0, 1, 4]).await;
        let kept = table.keep([], &[(2, FIRST)]).await;
        assert!(kept.checkpoints.values().all(|why| why.contains("compared")) && kept.checkpoints.len() == 1);
    }

    #[tokio::test]
    async fn the_hint_is_read_whatever_it_holds() {
        let table = Table::new().await;
        for (hint, version) in [
            (None, None),
            (Some(r#"{"version":3,"size":4}"#), Some(Version(3))),
            (Some("{}"), None),
            (Some("no json"), None),
        ] {
            if let Some(hint) = hint {
                table.put(HINT, hint.into()).await;
            }
            assert_eq!(hinted(&*table.world.objects, &table.root).await, Ok(version), "{hint:?}");
        }
    }

    #[tokio::test]
    async fn checkpoints_beyond_the_log_go_if_nobody_can_read_them() {
        let table = Table::new().await;
        table.put(&checkpoint_name(9, FIRST), "no checkpoint".into()).await;
        assert_eq!(table.keep([], &[(9, FIRST)]).await, Kept::default());
        table.checkpoint(9, FIRST, |_| ()).await;
        assert_eq!(table.keep([], &[(9, FIRST)]).await.checkpoints.len(), 1);
        assert_eq!(table.keep([], &[(8, SECOND)]).await, Kept::default(), "what is not there");
    }
}
