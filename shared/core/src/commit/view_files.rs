//! Facts about files, from a table's view: what was read of the log once serves all commits of a batch.
//!
//! A small table is read whole, at the oldest version that one of the commits read, and the commits after it are folded
//! as far as each question goes. Of a large one only the files that are asked about are kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::Context;
use super::facts::{AtVersion, FileFacts};
use super::path_filter::PathCollector;
use super::view::{SMALL_FILES, View, ViewError, read_state, snapshot_error};
use crate::delta::snapshot::{self, key_of_add};
use crate::delta::{Covers, Snapshot, SnapshotError, Version, Wanted};
use crate::store::ObjectKey;

/// Commits that are folded at once.
const PART: i64 = 64;

impl View {
    /// Facts about files, at the latest version and at the one that was read. Where the log no longer tells what was
    /// there at the version that was read, that part is unknown.
    pub async fn files(
        &mut self,
        ctx: Context<'_>,
        wanted: &BTreeSet<ObjectKey>,
        read_version: Version,
    ) -> Result<FileFacts, ViewError> {
        if self.latest == Version::NONE {
            return Ok(FileFacts::of_versions(wanted.clone(), Some(AtVersion::default()), AtVersion::default()));
        }
        let at_read = if read_version > Version::NONE { self.base(ctx, wanted, read_version).await? } else { None };
        let Some(base) = at_read else {
            let base = self.base(ctx, wanted, self.latest).await?;
            let gap = || SnapshotError::LogGap { missing: Version(0), wanted: self.latest };
            let base = base.ok_or_else(|| snapshot_error(gap()))?;
            let mut state = AtVersion::of_base(wanted, &base);
            self.fold(ctx, wanted, &mut state, (base.version.next(), self.latest)).await?;
            // Before the first version there was nothing.
            let at_read = (read_version == Version::NONE).then(AtVersion::default);
            return Ok(FileFacts::of_versions(wanted.clone(), at_read, state));
        };
        let mut state = AtVersion::of_base(wanted, &base);
        self.fold(ctx, wanted, &mut state, (base.version.next(), read_version)).await?;
        let at_read = state.clone();
        self.fold(ctx, wanted, &mut state, (read_version.next(), self.latest)).await?;
        Ok(FileFacts::of_versions(wanted.clone(), Some(at_read), state))
    }

    async fn fold(
        &mut self,
        ctx: Context<'_>,
        wanted: &BTreeSet<ObjectKey>,
        state: &mut AtVersion,
        (from, to): (Version, Version),
    ) -> Result<(), ViewError> {
        let mut next = from;
        while next <= to {
            let last = Version(next.0.saturating_add(PART - 1)).min(to);
            for commit in self.winners(ctx, next, last).await? {
                let version = commit.version;
                state
                    .apply(&self.root, wanted, &commit)
                    .map_err(|error| snapshot_error(SnapshotError::Path { version, error }))?;
            }
            next = last.next();
        }
        Ok(())
    }

    /// A snapshot at `at` or before that tells about the files; `None` where the log no longer reaches back that far.
    async fn base(
        &mut self,
        ctx: Context<'_>,
        wanted: &BTreeSet<ObjectKey>,
        at: Version,
    ) -> Result<Option<Arc<Snapshot>>, ViewError> {
        // What is not published yet comes upon it.
        let at = at.min(self.in_log());
        let lacks_paths = !self.held.has_tried_paths && self.state.as_ref().is_some_and(|state| state.paths.is_none());
        let is_enough = |base: &&Arc<Snapshot>| {
            base.version <= at && wanted.iter().all(|file| base.covers.covers(file)) && !lacks_paths
        };
        if let Some(base) = self.held.base.as_ref().filter(is_enough) {
            return Ok(Some(base.clone()));
        }
        let listing = snapshot::list_for(&*ctx.ports().objects, &self.root, Some(at)).await.map_err(snapshot_error)?;
        let count = self.state.as_ref().and_then(|state| state.paths.as_ref()).map_or(0, |paths| paths.count());
        let mut paths = lacks_paths.then(PathCollector::default);
        let only = Wanted::Only(wanted.clone());
        let all = Wanted::AtMost(SMALL_FILES);
        let is_large = self.held.is_large || count > SMALL_FILES;
        let first = if is_large { &only } else { &all };
        let loaded = read_state(ctx, &self.root, &listing, at, first, paths.as_mut()).await;
        let mut base = match loaded {
            // Cleaned up since then.
            Err(ViewError::Refused(refusal)) if refusal.reason == "LOG_GAP" => return Ok(None),
            other => other?,
        };
        if base.covers != Covers::All && !is_large {
            self.held.is_large = true;
            if !wanted.is_empty() {
                base = read_state(ctx, &self.root, &listing, at, &only, None).await?;
            }
        }
        let base = Arc::new(base);
        self.held.base = Some(base.clone());
        if let Some(paths) = paths {
            self.renew_paths(ctx, paths, at.next()).await?;
        }
        Ok(Some(base))
    }

    /// Gives the state the filter that it lacks: of the paths that were told of up to `from`, and those that were added
    /// from there on.
    async fn renew_paths(
        &mut self,
        ctx: Context<'_>,
        mut paths: PathCollector,
        from: Version,
    ) -> Result<(), ViewError> {
        self.held.has_tried_paths = true;
        let mut next = from;
        while next <= self.latest {
            let last = Version(next.0.saturating_add(PART - 1)).min(self.latest);
            for commit in self.winners(ctx, next, last).await? {
                for add in &commit.actions.adds {
                    let key = key_of_add(&self.root, add);
                    let path = |error| snapshot_error(SnapshotError::Path { version: commit.version, error });
                    paths.add(&key.map_err(path)?.at);
                }
            }
            next = last.next();
        }
        if let Some(state) = &mut self.state {
            state.paths = paths.build();
            state.spill(ctx.ports(), &self.root).await?;
        }
        Ok(())
    }
}
