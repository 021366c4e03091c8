use std::collections::VecDeque;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::attempt::{Attempt, Began};
use super::knowledge::Knowledge;
use super::pace::BATCH_MAX_KEYS;
use crate::catalog::CatalogError;
use crate::catalog::fences::{self, ScopeFence};
use crate::location::Location;
use crate::store::{Deleted, Doomed, Listed, ObjectError, ObjectKey, ObjectMeta, PutOptions, StoreError};
use crate::sweep::items::LeaseFence;
use crate::sweep::report::{Kind, ReportWriter, failed_line, marked_line, outcome_line, quarantined_line};
use crate::sweep::source::Moment;
use crate::sweep::undo::DELETED;
use crate::sweep::{DirectoryError, Interruption, Refusal, RefusalReason, SweepError};

/// Times that an object is tried before it is left to the next run.
const DELETE_TRIES: u32 = 6;
/// HEAD requests at the same time.
const HEAD_CONCURRENCY: usize = 16;

/// Tables elsewhere are asked again what they need here when the last time was longer ago.
const OTHERS_MAX_AGE_MS: i64 = 60_000;

/// How far ahead of the store's clock ours may be.
const CLOCK_AHEAD_MAX_MS: i64 = 300_000;

/// Outcomes of orphans, as the report and the record name them.
const CHANGED: &str = "changed";
const GONE: &str = "already_gone";
const FAILED: &str = "failed";

/// Objects that the store could not look at, or not delete.
pub(super) type Failed<'o> = Vec<(&'o Listed, StoreError)>;

/// Other sweeps are at the bucket's fences.
fn not_fenced(error: CatalogError) -> SweepError {
    match error {
        CatalogError::Contended(_) => Interruption::Contended("the fences of the bucket").into(),
        other => DirectoryError::from(other).into(),
    }
}

impl<'a> Attempt<'a> {
    /// Deletes orphans batch by batch; each batch is proved again right before.
    pub(super) async fn delete_all(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        self.check_clock().await?;
        self.choose_way(known).await?;
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        let result = self.delete_parts(known, &mut writer).await;
        // What was deleted is reported, however the rest went.
        let flushed = writer.flush(self.app.ports.objects.as_ref(), &mut self.record.report).await;
        result.and(flushed)
    }

    /// Before everything is gathered anew: names the orphans of the batch that a worker may have been at when it died, as
    /// far as they are gone. No listing shows them any more.
    pub(super) async fn report_unrecorded(&mut self, scope: &Location) -> Result<(), SweepError> {
        if self.began == Began::Look {
            return Ok(());
        }
        // What cannot be read any more cannot be named; what is left of it is judged anew.
        let orphans = match self.load_unrecorded().await {
            Err(SweepError::Refused(_)) => return Ok(()),
            orphans => orphans?,
        };
        let mut writer = ReportWriter::new(Kind::Outcomes, &self.app.settings.reports, &self.record);
        for object in orphans.iter().take(BATCH_MAX_KEYS) {
            let at = ObjectKey::new(scope.bucket.clone(), object.key.clone());
            match self.app.ports.objects.head(&at).await {
                Err(ObjectError::NotFound(_)) => self.spare(object, GONE, &mut writer),
                Err(ObjectError::Store(error)) => return Err(error.into()),
                Ok(_) | Err(_) => {}
            }
        }
        writer.flush(self.app.ports.objects.as_ref(), &mut self.record.report).await
    }

    /// First the orphans that wait on S3, then those in memory.
    async fn delete_parts(&mut self, known: &mut Knowledge<'a>, writer: &mut ReportWriter) -> Result<(), SweepError> {
        while let Some((attempt, number)) = self.judging.orphan_parts.find(self.parts_done) {
            self.check_time()?;
            let part = self.load_orphans(attempt, number).await?;
            let done = usize::try_from(self.lines_done).unwrap_or(usize::MAX);
            self.delete_batches(known, part.get(done..).unwrap_or_default(), writer).await?;
            (self.parts_done, self.lines_done) = (self.parts_done.saturating_add(1), 0);
        }
        let mut rest = std::mem::take(&mut self.judging.orphans);
        let result = self.delete_batches(known, &rest, writer).await;
        // What is left is stored when the time is up, as a part of its own.
        let done = usize::try_from(std::mem::take(&mut self.lines_done)).unwrap_or(usize::MAX);
        self.judging.orphans = rest.split_off(done.min(rest.len()));
        result
    }

    async fn delete_batches(
        &mut self,
        known: &mut Knowledge<'a>,
        orphans: &[Listed],
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let mut rest = orphans;
        while !rest.is_empty() {
            self.check_time()?;
            let (batch, behind) = rest.split_at(self.pace.batch_keys().min(rest.len()));
            rest = behind;
            self.delete_batch(known, batch, writer).await?;
            // Lines, counts and the cursor are stored together, so that they agree whenever this worker ends.
            writer.flush(self.app.ports.objects.as_ref(), &mut self.record.report).await?;
            self.lines_done = self.lines_done.saturating_add(i64::try_from(batch.len()).unwrap_or(i64::MAX));
            if self.record.progress.is_stored() || self.record.progress.intended.is_some() {
                let progress = &mut self.record.progress;
                (progress.parts_done, progress.lines_done) = (self.parts_done, self.lines_done);
                progress.restarts = 0;
            }
            self.has_advanced = true;
            self.record.facts.live = Some(self.live(known));
            self.note_advance();
            self.save_record().await?;
        }
        Ok(())
    }

    /// Deletes a batch; what the store did not get to goes through everything again, in smaller batches and after a
    /// wait.
    async fn delete_batch(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[Listed],
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let mut queue: VecDeque<(&Listed, u32)> = batch.iter().map(|object| (object, 0)).collect();
        self.unsure.clear();
        while !queue.is_empty() {
            let clock = self.app.ports.clock.as_ref();
            clock.sleep_ms(self.pace.wait_ms(clock.now_ms())).await;
            let some: Vec<(&Listed, u32)> = queue.drain(..self.pace.batch_keys().min(queue.len())).collect();
            let asked: Vec<&Listed> = some.iter().map(|(object, _)| *object).collect();
            let failed = self.prove_and_delete(known, &asked, writer).await?;
            let now_ms = self.app.ports.clock.now_ms();
            // What the store never does says nothing of how busy it is.
            match failed.iter().any(|(_, error)| error.is_retryable()) {
                true => self.pace.slow_down(now_ms, self.app.ports.ids.uuid().as_u64_pair().1),
                false => self.pace.went_well(asked.len(), now_ms),
            }
            let is_over = self.check_time().is_err();
            for (object, error) in failed {
                let tries = some.iter().find(|(one, _)| one.key == object.key).map_or(0, |(_, tries)| *tries);
                if is_over || !error.is_retryable() || tries.saturating_add(1) >= DELETE_TRIES {
                    self.record.totals.spared.entry(FAILED.to_owned()).or_default().add(object.size_bytes);
                    writer.line(&failed_line(object, FAILED, &error.to_string()));
                } else {
                    queue.push_back((object, tries.saturating_add(1)));
                }
            }
        }
        Ok(())
    }

    /// Makes everybody wait, proves the objects once more and deletes what is left of them. Answers those that the store
    /// could not look at, or not delete.
    async fn prove_and_delete<'o>(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[&'o Listed],
        writer: &mut ReportWriter,
    ) -> Result<Failed<'o>, SweepError> {
        self.ask_others(known).await?;
        self.check_cancelled().await?;
        self.lease.renew(self.app.ports.items.as_ref(), self.app.ports.clock.now_ms()).await?;
        let result = match self.put_fences(known).await {
            Ok(()) => self.delete_fenced(known, batch, writer).await,
            Err(error) => Err(error),
        };
        // A fence that cannot be cleared runs out with the lease; the first error is the one to tell.
        let cleared = self.clear_fences(known).await;
        result.and_then(|failed| cleared.map(|()| failed))
    }

    /// Tables that changed, or appeared, while everything was judged, or earlier batches went.
    pub(super) async fn ask_others(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let now_ms = self.app.ports.clock.now_ms();
        if self.asked_ms.saturating_add(OTHERS_MAX_AGE_MS) < now_ms {
            self.load_others(known).await?;
            self.asked_ms = now_ms;
        }
        Ok(())
    }

    fn lease_fence(&self, table_id: &str) -> LeaseFence {
        LeaseFence {
            table_id: table_id.to_owned(),
            expires_at_ms: self.lease.expires_at_ms,
            run_id: self.record.run_id.clone(),
        }
    }

    /// Makes commits, leases, and tables and partitions that would appear here wait, as far as they pass through this
    /// product.
    pub(super) async fn put_fences(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let fence = ScopeFence {
            scope: known.scope.clone(),
            run_id: self.record.run_id.clone(),
            expires_at_ms: self.lease.expires_at_ms,
        };
        fences::raise(&self.app.ports, &fence).await.map_err(not_fenced)?;
        for sourced in &mut known.sources {
            sourced.source.fence(self.lease.epoch, self.lease.expires_at_ms).await?;
        }
        for table_id in known.lease_owners() {
            let now_ms = self.app.ports.clock.now_ms();
            self.lease_fence(&table_id).put(self.app.ports.items.as_ref(), now_ms).await?;
        }
        Ok(())
    }

    pub(super) async fn clear_fences(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let mut result = Ok(());
        for sourced in &mut known.sources {
            let cleared = sourced.source.clear_fence().await;
            result = result.and(cleared);
        }
        for table_id in known.lease_owners() {
            let cleared = self.lease_fence(&table_id).clear(self.app.ports.items.as_ref()).await;
            result = result.and(cleared);
        }
        let lowered = fences::lower(&self.app.ports, &known.scope.bucket, &self.record.run_id).await;
        result.and(lowered.map_err(not_fenced))
    }

    /// Ages are only as good as our clock: what the run has just written shows the store's.
    pub(super) async fn check_clock(&self) -> Result<(), SweepError> {
        let asked_ms = self.app.ports.clock.now_ms();
        let at = self.app.settings.reports.object(&format!("{}/clock", self.record.table_id));
        let objects = self.app.ports.objects.as_ref();
        objects.put(&at, bytes::Bytes::new(), &PutOptions::default()).await?;
        let theirs_ms = objects.head(&at).await?.last_modified_ms;
        if asked_ms.saturating_sub(theirs_ms) > CLOCK_AHEAD_MAX_MS {
            let detail = format!(
                "the clock here is {} s ahead of the store's, so files look older than they are",
                asked_ms.saturating_sub(theirs_ms) / 1000
            );
            return Err(Refusal::new(RefusalReason::ClockSkew, detail).into());
        }
        Ok(())
    }

    /// Proves a batch once more and deletes what is left of it. Answers those that are to be tried again.
    async fn delete_fenced<'o>(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[&'o Listed],
        writer: &mut ReportWriter,
    ) -> Result<Failed<'o>, SweepError> {
        let (still_there, mut failed) = self.check_heads(known, batch, writer).await?;
        // Before everything is asked once more, so that nothing lies between that and the deletion.
        let still_there = self.set_aside(known, still_there, &mut failed, writer).await;
        self.check_unchanged(known).await?;
        self.load_leases(known).await?;
        known.refresh(Moment::Deleting).await?;
        let mut doomed = Vec::new();
        for (object, copy) in still_there {
            let reason = known.judge(object);
            if reason.is_kept() { self.spare(object, reason.as_str(), writer) } else { doomed.push((object, copy)) }
        }
        if doomed.is_empty() {
            return Ok(failed);
        }
        if !self.lease.has_margin(self.app.ports.clock.now_ms()) {
            self.pace.slow_down(self.app.ports.clock.now_ms(), 0);
            return Err(Interruption::Contended("time: the lease ran low while a batch was checked").into());
        }
        let request: Vec<Doomed> = doomed
            .iter()
            .map(|(object, _)| Doomed { key: object.key.clone(), if_match: Some(object.etag.clone()) })
            .collect();
        let results = match self.app.ports.objects.delete_batch(&known.scope.bucket, &request).await {
            Ok(results) => results,
            // None of them, or nobody knows: those that are gone are found to be so.
            Err(ObjectError::Store(error)) if error.is_retryable() => {
                doomed.iter().map(|_| Deleted::Failed(error.clone())).collect()
            }
            Err(error) => return Err(error.into()),
        };
        for ((object, copy), result) in doomed.into_iter().zip(results) {
            match result {
                Deleted::Gone | Deleted::Marked(_) if copy.is_some() => {
                    self.record.totals.deleted.add(object.size_bytes);
                    let place = self.quarantine(known).place(&object.key, &self.record.table_id, &self.record.run_id);
                    writer.line(&quarantined_line(object, &place, copy.as_ref()));
                }
                Deleted::Gone => {
                    self.record.totals.deleted.add(object.size_bytes);
                    writer.line(&outcome_line(object, DELETED));
                }
                Deleted::Marked(marker) => {
                    self.record.totals.deleted.add(object.size_bytes);
                    writer.line(&marked_line(object, DELETED, &marker));
                }
                Deleted::Changed => self.spare(object, CHANGED, writer),
                Deleted::Failed(error) => {
                    if error.is_retryable() {
                        self.unsure.deletions.insert(object.key.clone(), copy);
                    }
                    failed.push((object, error));
                }
            }
        }
        Ok(failed)
    }

    pub(super) fn spare_changed(&mut self, object: &Listed, writer: &mut ReportWriter) {
        self.spare(object, CHANGED, writer);
    }

    pub(super) fn spare_gone(&mut self, object: &Listed, writer: &mut ReportWriter) {
        self.spare(object, GONE, writer);
    }

    fn spare(&mut self, object: &Listed, outcome: &str, writer: &mut ReportWriter) {
        self.record.totals.spared.entry(outcome.to_owned()).or_default().add(object.size_bytes);
        writer.line(&outcome_line(object, outcome));
    }

    /// If-Match proves the same bytes, not the same upload: a file written anew with equal content has another date.
    /// Answers those that are as they were, and those that could not be looked at.
    async fn check_heads<'o>(
        &mut self,
        known: &Knowledge<'a>,
        batch: &[&'o Listed],
        writer: &mut ReportWriter,
    ) -> Result<(Vec<&'o Listed>, Failed<'o>), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        // Boxed, since the compiler cannot see through closures that the whole is `Send`.
        let mut asked: Vec<BoxFuture<'_, (&'o Listed, Result<ObjectMeta, ObjectError>)>> = Vec::new();
        for object in batch.iter().copied() {
            let at = ObjectKey::new(known.scope.bucket.clone(), object.key.clone());
            asked.push(async move { (object, objects.head(&at).await) }.boxed());
        }
        let heads: Vec<_> = stream::iter(asked).buffered(HEAD_CONCURRENCY).collect().await;
        let (mut same, mut failed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (object, head) in heads {
            match head {
                Ok(meta) if meta.etag == object.etag && meta.last_modified_ms == object.last_modified_ms => {
                    same.push(object);
                }
                Ok(_) => self.spare(object, CHANGED, writer),
                Err(ObjectError::NotFound(_)) => gone.push(object),
                Err(ObjectError::Store(error)) if error.is_retryable() => failed.push((object, error)),
                Err(error) => return Err(error.into()),
            }
        }
        failed.extend(self.note_gone(known, gone, writer).await?);
        Ok((same, failed))
    }
}
