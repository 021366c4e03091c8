//! Files that a run takes out of the table without deleting them for good, and what becomes of those that earlier runs
//! took: they wait, come back when something names them again, or expire, under the guards that deleting has.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::attempt::Attempt;
use super::delete::Failed;
use super::knowledge::Knowledge;
use super::unsure::is_copy_of;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::store::{
    Deleted, Doomed, ETag, ListRequest, Listed, ObjectError, ObjectKey, StoreError, StoreErrorKind, Versioning,
};
use crate::sweep::items::{RunRecord, Tally};
use crate::sweep::recover::{Recovered, recover};
use crate::sweep::refs::Held;
use crate::sweep::report::{Kind, ReportWriter, quarantine_line, restored_line};
use crate::sweep::source::Moment;
use crate::sweep::undo::{self, Kept, Origin, Quarantine, Undone, Way};
use crate::sweep::{Mode, Refusal, RefusalReason, SweepError};

const HOUR_MS: i64 = 3_600_000;
/// Copies at the same time.
const COPY_CONCURRENCY: usize = 16;
/// Copies that expire under one fence.
const EXPIRY_BATCH_KEYS: usize = 250;

/// What a run decides on a file in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Its time has not passed, or something keeps it.
    Waits,
    /// The table, a commit under way or a table elsewhere names it.
    Needed,
    Expired,
}

impl Stay {
    fn as_str(self) -> &'static str {
        match self {
            Stay::Waits => "quarantined",
            Stay::Needed => "quarantined_and_needed",
            Stay::Expired => "quarantine_expired",
        }
    }
}

/// What is judged of a file in quarantine, with the copy that it is.
struct Copy {
    origin: Origin,
    copy: Listed,
    /// The file is at its place: whoever names it does not need this copy.
    is_spare: bool,
}

impl Knowledge<'_> {
    /// Asks everything that could speak for the file at the place that it came from.
    fn stay(&self, one: &Copy, keep_ms: i64) -> Stay {
        let at = &one.origin.at;
        if self.references.held(at) != Held::No && !one.is_spare {
            return Stay::Needed;
        }
        let is_doubtful = self.table.relative(at).is_none()
            || self.leased.covers(at)
            || self.foreign.covers(&at.key)
            || self.protected.iter().any(|location| location.may_hold(at));
        if self.is_over(&one.copy, keep_ms) && !is_doubtful { Stay::Expired } else { Stay::Waits }
    }

    fn is_over(&self, copy: &Listed, keep_ms: i64) -> bool {
        let kept_ms = self.started_ms.saturating_sub(copy.last_modified_ms);
        copy.last_modified_ms > 0 && kept_ms > keep_ms.max(self.retention_ms)
    }
}

impl<'a> Attempt<'a> {
    /// How long what is deleted can come back; 0: not at all.
    fn keep_ms(&self, known: &Knowledge<'a>) -> i64 {
        let hours = known.optimizer.config.undo_hours.unwrap_or(self.app.settings.undo.hours);
        hours.max(0).saturating_mul(HOUR_MS)
    }

    /// How long what is in quarantine waits. A dropped table puts nothing there any more; what it has there from before waits
    /// as long as that of tables that say nothing, and goes with its other files.
    fn tended_ms(&self, known: &Knowledge<'a>) -> i64 {
        match self.dropped {
            Some(_) => self.app.settings.undo.hours.max(0).saturating_mul(HOUR_MS),
            None => self.keep_ms(known),
        }
    }

    pub(super) fn quarantine(&self, known: &Knowledge<'a>) -> Quarantine {
        Quarantine::of(&self.app.settings, &known.scope.bucket)
    }

    /// Decides how what is about to be deleted can come back.
    pub(super) async fn choose_way(&mut self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let keep_ms = self.keep_ms(known);
        let versioning = match self.app.ports.objects.versioning(&known.scope.bucket).await {
            Ok(versioning) => versioning,
            Err(ObjectError::Store(error)) if error.is_retryable() => return Err(error.into()),
            // Who may not ask does not rely on it.
            Err(error) => {
                self.record.facts.find(format!("whether the bucket keeps versions cannot be told: {error}"));
                Versioning::Off
            }
        };
        self.way = match versioning {
            Versioning::Enabled => Way::Markers,
            _ if keep_ms == 0 => Way::Never,
            _ => Way::Quarantine { keep_ms },
        };
        self.record.facts.undo = Some(self.way.as_str().to_owned());
        if let Way::Quarantine { .. } = self.way {
            self.check_quarantine(known).await?;
        }
        Ok(())
    }

    /// What is moved aside must not look like some table's file.
    async fn check_quarantine(&self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let root = self.quarantine(known).root;
        let around = self.directory.tables_around(&root).await?;
        let Some(other) = around.first() else { return Ok(()) };
        let place = other.location.as_ref().map(ToString::to_string).unwrap_or_default();
        let fills_bucket = other.location.as_ref().is_some_and(|location| location.prefix.is_empty());
        // A copy has to be in the same bucket, or nobody finds the file again by its key.
        let ways = match fills_bucket {
            true => "no folder of the bucket is outside it, so let the bucket keep versions (then nothing is moved)",
            false => "name another folder (LAKEWARDEN_SWEEPS_QUARANTINE_FOLDER), let the bucket keep versions",
        };
        let detail = format!(
            "the quarantine {root} is not apart from table {other} at {place}: {ways}, or delete for good, after a look at a \
             dry run (undoInHours 0 in the optimizer)"
        );
        Err(Refusal::new(RefusalReason::QuarantineOverlap, detail).into())
    }

    /// Copies files into quarantine. Answers those whose copies are there, with the copies' tags; the others stay where
    /// they are.
    pub(super) async fn set_aside<'o>(
        &mut self,
        known: &Knowledge<'a>,
        batch: Vec<&'o Listed>,
        failed: &mut Failed<'o>,
        writer: &mut ReportWriter,
    ) -> Vec<(&'o Listed, Option<ETag>)> {
        let Way::Quarantine { .. } = self.way else { return batch.into_iter().map(|object| (object, None)).collect() };
        let mut asked: Vec<BoxFuture<'_, (&'o Listed, Result<ETag, ObjectError>)>> = Vec::new();
        let (app, quarantine) = (self.app, self.quarantine(known));
        for object in batch {
            let place = quarantine.place(&object.key, &self.record.table_id, &self.record.run_id);
            let from = ObjectKey::new(known.scope.bucket.clone(), object.key.clone());
            let answered = self.unsure.copies.get(&object.key).cloned();
            let objects = app.ports.objects.as_ref();
            let copy = async move {
                match objects.create_copy(&from, &object.etag, &place).await {
                    // An earlier try of this run copied it: it must be the same file.
                    Err(ObjectError::PreconditionFailed(at)) => match objects.head(&place).await {
                        Ok(meta) if is_copy_of(&meta, object, answered.as_ref()) => Ok(meta.etag),
                        Ok(_) => Err(ObjectError::PreconditionFailed(at)),
                        Err(ObjectError::NotFound(_)) => Err(ObjectError::NotFound(from)),
                        Err(error) => Err(error),
                    },
                    other => other,
                }
            };
            asked.push(async move { (object, copy.await) }.boxed());
        }
        let copies: Vec<_> = stream::iter(asked).buffered(COPY_CONCURRENCY).collect().await;
        let mut copied = Vec::new();
        for (object, copy) in copies {
            match copy {
                Ok(etag) => {
                    self.unsure.copies.insert(object.key.clone(), etag.clone());
                    copied.push((object, Some(etag)));
                }
                Err(ObjectError::NotFound(_)) => self.spare_changed(object, writer),
                Err(ObjectError::Store(error)) => failed.push((object, error)),
                Err(ObjectError::ConditionalConflict(_)) => failed.push((object, unsure(&object.key))),
                Err(error) => {
                    let error = StoreError::new(
                        StoreErrorKind::Invalid,
                        format!("quarantine {}", object.key),
                        error.to_string(),
                    );
                    failed.push((object, error));
                }
            }
        }
        copied
    }

    /// Looks at everything that earlier runs took out of the scope, from where an earlier slice stopped.
    pub(super) async fn tend(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let keep_ms = self.tended_ms(known);
        if keep_ms == 0 && self.dropped.is_none() {
            return Ok(());
        }
        let parts = self.record.report.outcomes;
        let restored = self.record.facts.restored.map(|tally| tally.count);
        self.unhide(known, keep_ms).await?;
        let mut judged = ReportWriter::new(Kind::Judged, &self.app.settings.reports, &self.record);
        let mut outcomes = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            self.check_cancelled().await?;
            let result = self.tend_page(known, keep_ms, &mut judged, &mut outcomes).await;
            // What was done is reported, however the rest went.
            let objects = self.app.ports.objects.as_ref();
            let flushed = outcomes.flush(objects, &mut self.record.report).await;
            let is_last = result?;
            flushed?;
            judged.flush(objects, &mut self.judging.report).await?;
            self.take_over();
            if is_last {
                // What came back or went for good is known to nobody else, should this worker die now.
                let has_acted = self.record.report.outcomes != parts
                    || self.record.facts.restored.map(|tally| tally.count) != restored;
                return if has_acted { self.save_record().await } else { Ok(()) };
            }
            self.has_advanced = true;
            if self.record.progress.is_stored() {
                self.record.progress.tended = self.tended.clone();
                self.note_advance();
                self.save_record().await?;
            }
        }
    }

    /// One page of the quarantine; whether it was the last.
    async fn tend_page(
        &mut self,
        known: &mut Knowledge<'a>,
        keep_ms: i64,
        judged: &mut ReportWriter,
        outcomes: &mut ReportWriter,
    ) -> Result<bool, SweepError> {
        let quarantine = self.quarantine(known);
        let request = ListRequest {
            bucket: known.scope.bucket.clone(),
            prefix: quarantine.prefix(&known.scope.key_prefix()),
            start_after: self.tended.clone(),
            max_keys: LIST_PAGE_MAX_KEYS,
        };
        let page = self.app.ports.objects.list(&request).await?;
        let last = page.objects.last().map(|copy| copy.key.clone());
        let own = |copy: Listed| {
            let origin = quarantine.origin(&copy.key)?;
            // What this run has put there is among its orphans already.
            let is_meant = origin.table_id == known.entry.id && origin.run_id != self.record.run_id;
            is_meant.then_some(Copy { origin, copy, is_spare: false })
        };
        let mut copies: Vec<Copy> = page.objects.into_iter().filter_map(own).collect();
        if !copies.is_empty() {
            known.refresh(Moment::Judging).await?;
        }
        for one in &mut copies {
            if known.stay(one, keep_ms) == Stay::Needed && known.is_over(&one.copy, keep_ms) {
                one.is_spare = undo::exists(self.app.ports.objects.as_ref(), &one.origin.at).await?;
            }
        }
        let (mut needed, mut expired) = (Vec::new(), Vec::new());
        for one in copies {
            let stay = known.stay(&one, keep_ms);
            judged.line(&quarantine_line(&one.copy, &one.origin.at.key, stay == Stay::Expired, stay.as_str()));
            self.judging.by_reason.entry(stay.as_str().to_owned()).or_default().add(one.copy.size_bytes);
            match stay {
                Stay::Waits => {}
                Stay::Needed => needed.push(one),
                Stay::Expired => expired.push(one),
            }
        }
        if self.record.mode != Mode::DryRun {
            for one in needed {
                let place = ObjectKey::new(known.scope.bucket.clone(), one.copy.key.clone());
                let objects = self.app.ports.objects.as_ref();
                let undone = undo::restore_copy(objects, &place, &one.copy.etag, &one.origin.at).await?;
                self.note_return(&one.origin.at.key, one.copy.size_bytes, &one.origin.run_id, &undone, outcomes);
            }
            for batch in expired.chunks(EXPIRY_BATCH_KEYS) {
                self.expire(known, batch, keep_ms, outcomes).await?;
            }
        }
        self.tended = last.or_else(|| self.tended.take());
        Ok(!page.truncated)
    }

    /// A file that something names was taken away by an earlier run, and is back, or not.
    fn note_return(&mut self, key: &str, size_bytes: u64, run_id: &str, undone: &Undone, writer: &mut ReportWriter) {
        if *undone == Undone::Exists {
            return;
        }
        if *undone == Undone::Restored {
            self.record.facts.restored.get_or_insert_with(Tally::default).add(size_bytes);
        }
        writer.line(&restored_line(key, size_bytes, run_id, undone));
        let what = undone.as_str();
        self.record.facts.find(format!("{key} is needed, and run {run_id} had taken it away: {what}"));
    }

    /// Metadata that loading did not find and that a run took away: whether it is back, and loading may go on. A run that
    /// deletes nothing changes nothing here either.
    pub(super) async fn bring_back_metadata(&mut self, error: &SweepError) -> Result<bool, SweepError> {
        let SweepError::Refused(Refusal { missing: Some(at), .. }) = error else { return Ok(false) };
        if !self.record.mode.deletes() || self.dropped.is_some() || !self.brought.insert(at.as_ref().clone()) {
            return Ok(false);
        }
        // Hadoop's client writes `a//b` as `a/b`, and names it as it was told.
        let wanted: Vec<ObjectKey> = [Some(at.as_ref().clone()), at.collapsed()].into_iter().flatten().collect();
        let tables = std::slice::from_ref(&self.record.table_id);
        let found = match recover(self.app, tables, &wanted, self.deadline).await {
            Ok(found) => found,
            // What is missing is the better reason.
            Err(error) if error.refusal().is_some() => return Ok(false),
            Err(error) => return Err(error),
        };
        let objects = self.app.ports.objects.clone();
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        let mut is_back = false;
        for Recovered { at, undone, run_id } in found {
            is_back |= matches!(undone, Undone::Restored | Undone::Exists);
            let size_bytes = match undone {
                Undone::Restored => objects.head(&at).await?.size_bytes,
                _ => 0,
            };
            self.note_return(&at.key, size_bytes, &run_id.unwrap_or_default(), &undone, &mut writer);
        }
        writer.flush(objects.as_ref(), &mut self.record.report).await?;
        Ok(is_back)
    }

    /// Files that something names by now and that runs of this time hid behind delete markers.
    async fn unhide(&mut self, known: &Knowledge<'a>, keep_ms: i64) -> Result<(), SweepError> {
        if self.record.mode == Mode::DryRun || self.tended.is_some() || self.dropped.is_some() {
            return Ok(());
        }
        let items = self.app.ports.items.as_ref();
        let all = RunRecord::load_all(items, &self.record.table_id).await?;
        let since_ms = self.started_ms.saturating_sub(keep_ms.max(known.retention_ms));
        let marked = |run: &&RunRecord| {
            undo::has_removed(run)
                && run.created_ms >= since_ms
                && run.run_id != self.record.run_id
                && run.facts.undo.as_deref().is_none_or(|way| way == Way::Markers.as_str())
        };
        let runs: Vec<RunRecord> = all.iter().filter(marked).cloned().collect();
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        for run in &runs {
            for number in 0..run.report.outcomes {
                self.check_time()?;
                self.keep_lease().await?;
                for removal in undo::removals(self.app, run, number).await? {
                    let at = ObjectKey::new(known.scope.bucket.clone(), removal.key.clone());
                    let is_hidden = matches!(removal.kept, Kept::Marker { .. });
                    if !is_hidden || known.references.held(&at) == Held::No {
                        continue;
                    }
                    let objects = self.app.ports.objects.as_ref();
                    let undone = undo::restore(objects, &at.bucket, &removal).await?;
                    if undone != Undone::Gone {
                        self.note_return(&at.key, removal.size_bytes, &run.run_id, &undone, &mut writer);
                    }
                }
                writer.flush(self.app.ports.objects.as_ref(), &mut self.record.report).await?;
            }
        }
        self.unhide_unreported(known, since_ms, &all, &mut writer).await
    }

    /// The same of files that a worker hid which died before it could report them: one LIST per 1,000 versions, in a bucket
    /// with versions and after such a death.
    async fn unhide_unreported(
        &mut self,
        known: &Knowledge<'a>,
        since_ms: i64,
        runs: &[RunRecord],
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let recent: Vec<RunRecord> = runs.iter().filter(|run| run.created_ms >= since_ms).cloned().collect();
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let mut cut = undo::cut_short(&recent, app.ports.clock.now_ms());
        // What this very run is at is no death.
        cut.retain(|run| run.run_id != self.record.run_id || self.record.lost_attempts > 0);
        let bucket = known.scope.bucket.as_str();
        if cut.is_empty() || objects.versioning(bucket).await? != Versioning::Enabled {
            return Ok(());
        }
        let mut after = None;
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let (found, next) = undo::unreported(objects, bucket, &known.scope.key_prefix(), after, &cut).await?;
            for (run_id, removal) in found {
                let at = ObjectKey::new(bucket, removal.key.clone());
                if known.references.held(&at) == Held::No {
                    continue;
                }
                let undone = undo::restore(objects, bucket, &removal).await?;
                if undone != Undone::Gone {
                    self.note_return(&at.key, removal.size_bytes, &run_id, &undone, writer);
                }
            }
            writer.flush(objects, &mut self.record.report).await?;
            let Some(next) = next else { return Ok(()) };
            after = Some(next);
        }
    }

    /// Makes everybody wait, asks everything once more, and deletes what still nothing speaks for.
    async fn expire(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[Copy],
        keep_ms: i64,
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        self.check_time()?;
        self.check_clock().await?;
        self.ask_others(known).await?;
        self.check_cancelled().await?;
        self.lease.renew(self.app.ports.items.as_ref(), self.app.ports.clock.now_ms()).await?;
        let result = match self.put_fences(known).await {
            Ok(()) => self.expire_fenced(known, batch, keep_ms, writer).await,
            Err(error) => Err(error),
        };
        let cleared = self.clear_fences(known).await;
        result.and(cleared)
    }

    async fn expire_fenced(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[Copy],
        keep_ms: i64,
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        self.check_unchanged(known).await?;
        self.load_leases(known).await?;
        known.refresh(Moment::Deleting).await?;
        let mut still: Vec<&Copy> = Vec::new();
        for one in batch.iter().filter(|one| known.stay(one, keep_ms) == Stay::Expired) {
            if !one.is_spare || undo::exists(self.app.ports.objects.as_ref(), &one.origin.at).await? {
                still.push(one);
            }
        }
        // The rest is looked at again by the next run.
        if still.is_empty() || !self.lease.has_margin(self.app.ports.clock.now_ms()) {
            return Ok(());
        }
        let doomed = |one: &&Copy| Doomed { key: one.copy.key.clone(), if_match: Some(one.copy.etag.clone()) };
        let doomed: Vec<Doomed> = still.iter().map(doomed).collect();
        let results = self.app.ports.objects.delete_batch(&known.scope.bucket, &doomed).await?;
        for (one, result) in still.into_iter().zip(results) {
            let said = match result {
                Deleted::Gone | Deleted::Marked(_) => {
                    self.record.facts.expired.get_or_insert_with(Tally::default).add(one.copy.size_bytes);
                    "expired"
                }
                // Somebody took it back.
                Deleted::Changed => continue,
                Deleted::Failed(_) => "failed",
            };
            let mut line = quarantine_line(&one.copy, &one.origin.at.key, true, Stay::Expired.as_str());
            if let Some(line) = line.as_object_mut() {
                line.remove("decision");
                line.insert("outcome".to_owned(), said.into());
            }
            writer.line(&line);
        }
        Ok(())
    }
}

fn unsure(key: &str) -> StoreError {
    let message = "another conditional request was under way";
    StoreError::new(StoreErrorKind::Unavailable, format!("quarantine {key}"), message)
}
