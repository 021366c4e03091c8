//! A run that brings back what earlier ones took away: by run, by prefix or by key. It works in slices like the others,
//! and doing a part of it twice changes nothing.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::attempt::Attempt;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::store::{ListRequest, StoreError};
use crate::sweep::items::{RestoreAsk, RestoreCursor, RunRecord, Tally};
use crate::sweep::report::{Kind, ReportWriter, restored_line};
use crate::sweep::undo::{self, Kept, Quarantine, Removal, Undone};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry};

/// A removal, the run that made it, and what became of undoing it.
type Attempted = (String, Removal, Result<Undone, StoreError>);

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
        loop {
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
            self.restore_some(&bucket, found).await?;
            cursor.listed = last.or(cursor.listed);
            self.save_cursor(&cursor).await?;
            if !page.truncated {
                return Ok(());
            }
        }
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
        if ask.run.is_some() && runs.is_empty() {
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
                    cursor.lines = cursor.lines.saturating_add(self.restore_some(bucket, batch).await?);
                    self.save_cursor(cursor).await?;
                }
                (cursor.part, cursor.lines) = (cursor.part.saturating_add(1), 0);
            }
        }
        *cursor = RestoreCursor { are_reports_done: true, ..RestoreCursor::default() };
        self.save_cursor(cursor).await
    }

    /// Brings files back and says what became of each. Answers how many there were.
    async fn restore_some(&mut self, bucket: &str, some: Vec<(String, Removal)>) -> Result<i64, SweepError> {
        let count = i64::try_from(some.len()).unwrap_or(i64::MAX);
        // Where a file is meant twice, the first is the one that comes back.
        let (mut keys, mut again) = (HashSet::new(), Vec::new());
        let mut first = Vec::new();
        for (run_id, removal) in some {
            if keys.insert(removal.key.clone()) { first.push((run_id, removal)) } else { again.push((run_id, removal)) }
        }
        self.restore_each(bucket, first).await?;
        for one in again {
            self.restore_each(bucket, vec![one]).await?;
        }
        Ok(count)
    }

    async fn restore_each(&mut self, bucket: &str, some: Vec<(String, Removal)>) -> Result<(), SweepError> {
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let mut asked: Vec<BoxFuture<'_, Attempted>> = Vec::new();
        for (run_id, removal) in some {
            asked.push(
                async move {
                    let undone = undo::restore(objects, bucket, &removal).await;
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
            writer.line(&restored_line(&removal.key, removal.size_bytes, &run_id, &undone));
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
