//! A run that brings back what earlier ones took away: by run, by prefix or by key. It works in slices like the others,
//! and doing a part of it twice changes nothing.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;

use super::attempt::Attempt;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::store::{Condition, ListRequest, ObjectKey, StoreError, VersionId, VersionMark, Versioning, WriteError};
use crate::sweep::items::{RestoreAsk, RestoreCursor, RunRecord, Tally, WriterLease};
use crate::sweep::refs::exact_hash;
use crate::sweep::report::{Kind, ReportWriter, restored_line};
use crate::sweep::undo::{self, Kept, Quarantine, Removal, Undone, is_staged};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry};

/// A removal, the run that made it, and what became of undoing it.
type Attempted = (String, Removal, Result<Undone, StoreError>);

/// What says that a file was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedBy {
    Report,
    /// It lies in quarantine, or hides behind a marker that no report names.
    Store,
}

/// Files that are brought back before it is written down how far the run is.
const BATCH: usize = 200;
/// At the same time.
const CONCURRENCY: usize = 16;

impl RestoreAsk {
    fn wants(&self, key: &str) -> bool {
        self.key.as_deref().is_none_or(|wanted| wanted == key)
            && self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
    }
}

impl<'a> Attempt<'a> {
    /// The whole of it: first what the reports of runs name, then what lies in quarantine and no report names, since the
    /// worker that moved it ended before it could say so.
    pub(super) async fn restore_all(&mut self, entry: Option<TableEntry>) -> Result<(), SweepError> {
        let (_, table) = self.check_entry(entry)?;
        let ask = self.record.options.restore.clone().unwrap_or_default();
        self.record.facts.scope = Some(table.to_string());
        let bucket = table.bucket.clone();
        let mut cursor = self.record.progress.restoring.clone().unwrap_or_default();
        if !cursor.are_reports_done {
            self.restore_reported(&ask, &bucket, &mut cursor).await?;
        }
        let quarantine = Quarantine::of(&self.app.settings, &bucket);
        let wanted = ask.key.clone().or_else(|| ask.prefix.clone()).unwrap_or_else(|| table.key_prefix());
        while !cursor.is_quarantine_done {
            self.check_restore().await?;
            let request = ListRequest {
                bucket: bucket.clone(),
                prefix: quarantine.prefix(&wanted),
                start_after: cursor.listed.clone(),
                max_keys: LIST_PAGE_MAX_KEYS,
            };
            let page = self.app.ports.objects.list(&request).await?;
            let last = page.objects.last().map(|copy| copy.key.clone());
            let mut found = Vec::new();
            for copy in page.objects {
                let Some(from) = quarantine.origin(&copy.key) else { continue };
                let is_of_run = ask.run.as_ref().is_none_or(|run| *run == from.run_id);
                if is_of_run && from.table_id == self.record.table_id && ask.wants(&from.at.key) {
                    let kept = Kept::Quarantine { place: copy.key, etag: copy.etag };
                    let removal = Removal { key: from.at.key, size_bytes: copy.size_bytes, kept };
                    found.push((from.run_id, removal));
                }
            }
            // Of one file the newest copy comes first: run ids begin with their time.
            found.sort_by(|(left_run, left), (right_run, right)| (&left.key, right_run).cmp(&(&right.key, left_run)));
            self.restore_some(&bucket, found, NamedBy::Store).await?;
            cursor.listed = last.or(cursor.listed);
            cursor.is_quarantine_done = !page.truncated;
            self.save_cursor(&cursor).await?;
        }
        self.restore_unreported(&ask, &table, &wanted, &mut cursor).await?;
        match &ask.key {
            Some(key) if self.record.report.outcomes == 0 => {
                self.tell_unknown(&ObjectKey::new(bucket, key.clone())).await
            }
            _ => Ok(()),
        }
    }

    /// No run took the one file that was asked for.
    async fn tell_unknown(&mut self, at: &ObjectKey) -> Result<(), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        let undone = if undo::exists(objects, at).await? { Undone::Exists } else { Undone::NotFound };
        self.record.totals.spared.entry(undone.as_str().to_owned()).or_default().add(0);
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        writer.line(&json!({ "key": at.key, "size_bytes": 0, "outcome": undone.as_str() }));
        writer.flush(objects, &mut self.record.report).await
    }

    /// Files behind delete markers that no report names ([`undo::unreported`]).
    async fn restore_unreported(
        &mut self,
        ask: &RestoreAsk,
        table: &Location,
        wanted: &str,
        cursor: &mut RestoreCursor,
    ) -> Result<(), SweepError> {
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let runs = RunRecord::load_all(app.ports.items.as_ref(), &self.record.table_id).await?;
        let mut cut = undo::cut_short(&runs, app.ports.clock.now_ms());
        cut.retain(|run| ask.run.as_ref().is_none_or(|wanted| *wanted == run.run_id));
        if cut.is_empty() || objects.versioning(&table.bucket).await? == Versioning::Off {
            return Ok(());
        }
        loop {
            self.check_restore().await?;
            let after = cursor.version.clone().map(|(key, id)| VersionMark { key, id: id.map(VersionId) });
            let (mut found, next) = undo::unreported(objects, &table.bucket, wanted, after, &cut).await?;
            found.retain(|(_, removal)| {
                let at = ObjectKey::new(table.bucket.clone(), removal.key.clone());
                ask.wants(&removal.key) && table.relative(&at).is_some()
            });
            for batch in found.chunks(BATCH) {
                self.check_restore().await?;
                self.restore_some(&table.bucket, batch.to_vec(), NamedBy::Store).await?;
            }
            let Some(next) = next else { return Ok(()) };
            cursor.version = Some((next.key, next.id.map(|id| id.0)));
            self.save_cursor(cursor).await?;
        }
    }

    /// A file that comes back from behind a marker is as old as it was, and an orphan still: it is announced as a writer
    /// would, so that no run takes it for one retention.
    async fn announce(&self, bucket: &str, some: &[(String, Removal)]) -> Result<(), SweepError> {
        let is_old = |kept: &Kept| matches!(kept, Kept::Marker { .. } | Kept::Unreported { .. });
        let old = some.iter().filter(|(_, removal)| is_old(&removal.kept));
        let keys: Vec<ObjectKey> = old.map(|(_, removal)| ObjectKey::new(bucket, removal.key.clone())).collect();
        let (ids, now_ms) = (self.app.ports.ids.as_ref(), self.app.ports.clock.now_ms());
        for keys in keys.chunks(BATCH) {
            let lease = WriterLease {
                table_id: self.record.table_id.clone(),
                lease_id: format!("restored-{}", ids.uuid().simple()),
                holder: Some(format!("restored by run {}", self.record.run_id)),
                prefixes: Vec::new(),
                keys: keys.to_vec(),
                granted_ms: now_ms,
                // What has run out protects for one more retention, and is forgotten by itself.
                expires_at_ms: now_ms,
                revision: ids.uuid().simple().to_string(),
            };
            let key = WriterLease::key(&lease.table_id, &lease.lease_id);
            match self.app.ports.items.put(&key, lease.encode(), Condition::Absent).await {
                Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
                Err(WriteError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn check_restore(&mut self) -> Result<(), SweepError> {
        self.check_time()?;
        self.keep_lease().await?;
        self.check_cancelled().await
    }

    async fn save_cursor(&mut self, cursor: &RestoreCursor) -> Result<(), SweepError> {
        self.record.progress.restoring = Some(cursor.clone());
        self.has_advanced = true;
        self.note_advance();
        self.save_record().await
    }

    /// Runs from the newest to the oldest, so that of a file that went twice the newest comes back.
    async fn restore_reported(
        &mut self,
        ask: &RestoreAsk,
        bucket: &str,
        cursor: &mut RestoreCursor,
    ) -> Result<(), SweepError> {
        let items = self.app.ports.items.as_ref();
        let runs = match &ask.run {
            Some(run) => RunRecord::load(items, &self.record.table_id, run).await?.into_iter().collect(),
            None => RunRecord::load_all(items, &self.record.table_id).await?,
        };
        // What is known of a dropped table's runs may be gone; its files in quarantine say themselves which one took them.
        if ask.run.is_some() && runs.is_empty() && self.dropped.is_none() {
            let detail = format!("there is no run {}", ask.run.clone().unwrap_or_default());
            return Err(Refusal::new(RefusalReason::ProgressLost, detail).into());
        }
        for run in runs.iter().filter(|run| undo::has_removed(run)) {
            if cursor.run.as_ref().is_some_and(|at| *at < run.run_id) {
                continue;
            }
            if cursor.run.as_ref() != Some(&run.run_id) {
                *cursor = RestoreCursor { run: Some(run.run_id.clone()), ..RestoreCursor::default() };
            }
            while cursor.part < run.report.outcomes {
                self.check_restore().await?;
                let removals = undo::removals(self.app, run, cursor.part).await?;
                let wanted: Vec<_> = removals.into_iter().filter(|removal| ask.wants(&removal.key)).collect();
                let done = usize::try_from(cursor.lines).unwrap_or(usize::MAX);
                for batch in wanted.get(done..).unwrap_or_default().chunks(BATCH) {
                    self.check_restore().await?;
                    let batch = batch.iter().map(|removal| (run.run_id.clone(), removal.clone())).collect();
                    cursor.lines =
                        cursor.lines.saturating_add(self.restore_some(bucket, batch, NamedBy::Report).await?);
                    self.save_cursor(cursor).await?;
                }
                (cursor.part, cursor.lines) = (cursor.part.saturating_add(1), 0);
            }
        }
        *cursor = RestoreCursor { are_reports_done: true, ..RestoreCursor::default() };
        self.save_cursor(cursor).await
    }

    /// Brings files back and says what became of each. Answers how many there were.
    async fn restore_some(
        &mut self,
        bucket: &str,
        some: Vec<(String, Removal)>,
        by: NamedBy,
    ) -> Result<i64, SweepError> {
        let count = i64::try_from(some.len()).unwrap_or(i64::MAX);
        self.announce(bucket, &some).await?;
        // Where a file is meant twice, the first is the one that comes back.
        let (mut keys, mut again) = (HashSet::new(), Vec::new());
        let mut first = Vec::new();
        for (run_id, removal) in some {
            if keys.insert(removal.key.clone()) { first.push((run_id, removal)) } else { again.push((run_id, removal)) }
        }
        self.restore_each(bucket, first, by).await?;
        for one in again {
            self.restore_each(bucket, vec![one], by).await?;
        }
        Ok(count)
    }

    async fn restore_each(
        &mut self,
        bucket: &str,
        some: Vec<(String, Removal)>,
        by: NamedBy,
    ) -> Result<(), SweepError> {
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let mut asked: Vec<BoxFuture<'_, Attempted>> = Vec::new();
        for (run_id, removal) in some {
            asked.push(
                async move {
                    let undone = match is_staged(&removal.key) {
                        true => Ok(Undone::Staged),
                        false => undo::restore(objects, bucket, &removal).await,
                    };
                    (run_id, removal, undone)
                }
                .boxed(),
            );
        }
        let done: Vec<_> = stream::iter(asked).buffered(CONCURRENCY).collect().await;
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        let mut interrupted = None;
        for (run_id, removal, undone) in done {
            let undone = match undone {
                Ok(undone) => undone,
                Err(error) => {
                    interrupted = interrupted.or(Some(error));
                    continue;
                }
            };
            // Of a copy that nobody needs its run's report has told already, or its file was never taken away.
            if by == NamedBy::Store && matches!(undone, Undone::Exists | Undone::Gone) {
                continue;
            }
            // A file has one line, by what was taken last; another only where an older copy is what came back.
            let is_first = self.told.insert(exact_hash(&ObjectKey::new(bucket, removal.key.clone())));
            if !is_first && undone != Undone::Restored {
                continue;
            }
            let mut line = restored_line(&removal.key, removal.size_bytes, &run_id, &undone);
            if let (Undone::Staged, Some(line)) = (&undone, line.as_object_mut()) {
                match &removal.kept {
                    Kept::Quarantine { place, .. } => line.insert("quarantine".to_owned(), place.as_str().into()),
                    Kept::Marker { id, .. } | Kept::Unreported { id } => {
                        line.insert("marker".to_owned(), id.0.as_str().into())
                    }
                    Kept::Nowhere => None,
                };
            }
            writer.line(&line);
            match undone {
                Undone::Restored => {
                    self.record.facts.restored.get_or_insert_with(Tally::default).add(removal.size_bytes);
                }
                other => {
                    let spared = &mut self.record.totals.spared;
                    spared.entry(other.as_str().to_owned()).or_default().add(removal.size_bytes);
                }
            }
        }
        writer.flush(objects, &mut self.record.report).await?;
        interrupted.map_or(Ok(()), |error| Err(error.into()))
    }
}
