//! What a Delta table keeps beside its snapshot: files of the change feed, metadata of UniForm, and how long its commits
//! take.

use std::collections::HashSet;

use super::gathering::{self, ChangeFiles, Facts};
use super::packed::CommitFacts;
use super::{DeltaSource, UNIFORM_DIR};
use crate::delta::Version;
use crate::delta::log::{LogEntry, LogListing};
use crate::delta::outline::{Outline, read_each};
use crate::iceberg::{IcebergError, load_metadata};
use crate::store::ObjectKey;
use crate::sweep::delays::RECENT_MS;
use crate::sweep::refs::{Held, References};
use crate::sweep::source::{Role, Untold, UntoldPlace};
use crate::sweep::survey::{Survey, first_page};
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// Where files of the change feed lie.
const CHANGE_DIR: &str = "_change_data";
/// Newest commits whose files' ages show how long commits take.
pub(super) const DELAY_COMMITS: usize = 16;
/// Metadata files of UniForm that are opened once it is switched off; with more than these nothing there goes.
const UNIFORM_MAX: usize = 200;
/// What UniForm writes into every metadata file.
const UNIFORM_MARK: &str = "delta-version";

impl DeltaSource<'_> {
    /// How old files were when the newest commits added them.
    pub(super) async fn measure(&mut self, listing: &LogListing) -> Result<(), SweepError> {
        if self.role == Role::Other {
            return Ok(());
        }
        let recent_ms = self.now_ms.saturating_sub(RECENT_MS);
        let recent = listing.commits().filter(|(_, entry)| entry.last_modified_ms >= recent_ms);
        let mut recent: Vec<Version> = recent.map(|(version, _)| version).collect();
        let newest = recent.split_off(recent.len().saturating_sub(DELAY_COMMITS));
        let is_measured = |facts: &CommitFacts| facts.added.is_some();
        self.learn(listing, newest.iter().copied(), is_measured).await?;
        for version in newest {
            let Some(entry) = listing.commit(version) else { continue };
            let added = self.facts.get(&version).and_then(|facts| facts.added.as_ref());
            for file in added.into_iter().flatten() {
                self.delays.expect_hash(|| *file, entry.last_modified_ms, self.now_ms);
            }
        }
        // Of older ones nobody asks again.
        let oldest = listing.latest().0.saturating_sub(2 * DELAY_COMMITS as i64);
        self.facts.iter_mut().filter(|(version, _)| version.0 < oldest).for_each(|(_, facts)| facts.added = None);
        Ok(())
    }

    /// Reads commits of which not enough is known.
    async fn learn(
        &mut self,
        listing: &LogListing,
        versions: impl Iterator<Item = Version>,
        is_enough: impl Fn(&CommitFacts) -> bool,
    ) -> Result<(), SweepError> {
        let wanted: Vec<Version> =
            versions.filter(|version| !self.facts.get(version).is_some_and(&is_enough)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut facts = Facts::new(&self.root, self.now_ms, DELAY_COMMITS);
        let read = read_each(self.ports.objects.as_ref(), &self.root, listing, wanted, &mut facts).await;
        facts.or_refused(read)?;
        self.facts.extend(facts.finish());
        Ok(())
    }

    async fn has_change_files(&self) -> Result<bool, SweepError> {
        Ok(!first_page(self.ports.objects.as_ref(), &self.root, CHANGE_DIR, 1).await?.is_empty())
    }

    /// Files of the change feed are in no snapshot. Those of commits within the retention stay, also where a commit was
    /// decided long after its files had been written.
    ///
    /// Writers keep them below the table's location. So of a table elsewhere, what is missing matters only to those that lie
    /// where it does or that it reaches, unless its feed was seen to leave its location.
    pub(super) async fn add_change_files(
        &mut self,
        listing: &LogListing,
        snapshot: &Outline,
        retention_ms: i64,
        references: &mut References,
    ) -> Result<(), SweepError> {
        self.untold = None;
        // Switched off, what was written before can be read still.
        if !snapshot.metadata.is_on("delta.enableChangeDataFeed") && !self.has_change_files().await? {
            return Ok(());
        }
        let cut_off_ms = self.now_ms.saturating_sub(retention_ms.max(self.asked_retention_ms));
        let is_recent = |entry: &LogEntry| entry.last_modified_ms >= cut_off_ms;
        let first = listing.commits().next();
        let gone_below = first.map_or(listing.latest().next(), |(version, _)| version);
        // A checkpoint is younger than the commits that it holds.
        let are_old = listing.entries.iter().any(|entry| {
            entry.name.checkpoint().is_some_and(|version| version.next() >= gone_below) && !is_recent(entry)
        });
        let are_all_there = first.is_some_and(|(version, entry)| version <= Version(0) || !is_recent(entry));
        if !are_all_there && !are_old {
            let detail = format!(
                "commits that may be younger than the retention are gone from the log of {}, so which files of its change \
                 feed they name is not known",
                self.entry
            );
            let why = Refusal::new(RefusalReason::MetadataIncomplete, detail);
            match self.role {
                Role::Own => return Err(why.into()),
                Role::Other => self.untold = Some(Untold { why, place: UntoldPlace::Known }),
            }
        }
        let mut leaves_home = false;
        let recent = listing.commits().filter(|(_, entry)| is_recent(entry));
        let recent: Vec<Version> = recent.map(|(version, _)| version).collect();
        if self.role == Role::Other {
            let mut changes = ChangeFiles { root: &self.root, references, leaves_home: false };
            let read = read_each(self.ports.objects.as_ref(), &self.root, listing, recent, &mut changes).await;
            read.map_err(|error| gathering::refused(&self.root, error))?;
            leaves_home = changes.leaves_home;
        } else {
            self.learn(listing, recent.iter().copied(), |_| true).await?;
            for facts in recent.iter().filter_map(|version| self.facts.get(version)) {
                let [exact, loose] = &facts.changes;
                references.add_hashed(exact, loose);
            }
        }
        if let Some(untold) = self.untold.as_mut().filter(|_| leaves_home) {
            untold.place = UntoldPlace::Anywhere;
        }
        references.seal();
        Ok(())
    }

    /// Metadata files of a UniForm that was switched off: when all of them are such, what lies beside them is ours.
    pub(super) async fn examine_uniform(
        &mut self,
        survey: &Survey,
        references: &References,
    ) -> Result<HashSet<ObjectKey>, SweepError> {
        let folder = format!("{}{UNIFORM_DIR}", self.root.key_prefix());
        let in_folder = |at: &ObjectKey| at.key.rsplit_once('/').is_some_and(|(parent, _)| parent == folder);
        let files: Vec<&ObjectKey> =
            survey.metadata_files.iter().map(|file| &file.at).filter(|at| in_folder(at)).collect();
        if files.is_empty() || files.len() > UNIFORM_MAX {
            return Ok(HashSet::new());
        }
        let mut proved = HashSet::new();
        for at in files {
            match load_metadata(self.ports.objects.as_ref(), at).await {
                Ok(metadata) if metadata.properties.contains_key(UNIFORM_MARK) => {
                    if references.held(at) == Held::No {
                        proved.insert(at.clone());
                    }
                }
                Err(error @ IcebergError::Store(_)) => return Err(error.into()),
                // Somebody else's, or nobody can tell: a root of its own.
                Ok(_) | Err(_) => return Ok(HashSet::new()),
            }
        }
        self.has_old_uniform = true;
        Ok(proved)
    }
}
