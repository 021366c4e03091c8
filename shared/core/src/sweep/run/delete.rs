use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::attempt::Attempt;
use super::knowledge::Knowledge;
use crate::catalog::CatalogError;
use crate::catalog::fences::{self, ScopeFence};
use crate::store::{Deleted, Doomed, Listed, ObjectError, ObjectKey, ObjectMeta, PutOptions};
use crate::sweep::items::LeaseFence;
use crate::sweep::report::{Kind, ReportWriter, outcome_line};
use crate::sweep::source::Moment;
use crate::sweep::{DirectoryError, Interruption, Refusal, RefusalReason, SweepError};

/// Keys of one delete request. S3 counts each against the prefix's rate, and a throttled request comes back as a whole.
const BATCH_KEYS: usize = 250;
/// HEAD requests at the same time.
const HEAD_CONCURRENCY: usize = 16;

/// Tables elsewhere are asked again what they need here when the last time was longer ago.
const OTHERS_MAX_AGE_MS: i64 = 60_000;

/// How far ahead of the store's clock ours may be.
const CLOCK_AHEAD_MAX_MS: i64 = 300_000;

/// Outcomes of orphans, as the report and the record name them.
const DELETED: &str = "deleted";
const CHANGED: &str = "changed";
const GONE: &str = "already_gone";
const FAILED: &str = "failed";

/// Other sweeps are at the bucket's fences.
fn not_fenced(error: CatalogError) -> SweepError {
    match error {
        CatalogError::Contended(_) => Interruption::Contended("the fences of the bucket").into(),
        other => DirectoryError::from(other).into(),
    }
}

impl<'a> Attempt<'a> {
    /// Deletes orphans batch by batch; each batch is proved again right before.
    pub(super) async fn delete_all(
        &mut self,
        known: &mut Knowledge<'a>,
        orphans: Vec<Listed>,
    ) -> Result<(), SweepError> {
        self.check_clock().await?;
        let mut writer = ReportWriter::new(Kind::Outcomes);
        let result = self.delete_batches(known, &orphans, &mut writer).await;
        // What was deleted is reported, however the rest went.
        let objects = self.app.ports.objects.as_ref();
        let flushed = writer.flush(objects, &self.app.settings.reports, &mut self.record).await;
        result.and(flushed)
    }

    async fn delete_batches(
        &mut self,
        known: &mut Knowledge<'a>,
        orphans: &[Listed],
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let mut asked_ms = i64::MIN;
        for batch in orphans.chunks(BATCH_KEYS) {
            self.check_time()?;
            // Tables that changed, or appeared, while everything was judged, or earlier batches went.
            let now_ms = self.app.ports.clock.now_ms();
            if asked_ms.saturating_add(OTHERS_MAX_AGE_MS) < now_ms {
                self.load_others(known).await?;
                asked_ms = now_ms;
            }
            self.lease.renew(self.app.ports.items.as_ref(), self.app.ports.clock.now_ms()).await?;
            let result = match self.put_fences(known).await {
                Ok(()) => self.delete_fenced(known, batch, writer).await,
                Err(error) => Err(error),
            };
            // A fence that cannot be cleared runs out with the lease; the first error is the one to tell.
            let result = result.and(self.clear_fences(known).await);
            result?;
            // Lines and counts are stored together, so that they agree whenever this worker ends.
            let objects = self.app.ports.objects.as_ref();
            writer.flush(objects, &self.app.settings.reports, &mut self.record).await?;
            self.save_record().await?;
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
    async fn put_fences(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
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

    async fn clear_fences(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
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
    async fn check_clock(&self) -> Result<(), SweepError> {
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

    /// Proves a batch once more and deletes what is left of it.
    async fn delete_fenced(
        &mut self,
        known: &mut Knowledge<'a>,
        batch: &[Listed],
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let still_there = self.check_heads(known, batch, writer).await?;
        self.check_unchanged(known).await?;
        self.load_leases(known).await?;
        known.refresh(Moment::Deleting).await?;
        let mut doomed = Vec::new();
        for object in still_there {
            let reason = known.judge(object);
            if reason.is_kept() { self.spare(object, reason.as_str(), writer) } else { doomed.push(object) }
        }
        if doomed.is_empty() {
            return Ok(());
        }
        if !self.lease.has_margin(self.app.ports.clock.now_ms()) {
            return Err(Interruption::Changed("the lease ran low while a batch was checked").into());
        }
        let request: Vec<Doomed> = doomed
            .iter()
            .map(|object| Doomed { key: object.key.clone(), if_match: Some(object.etag.clone()) })
            .collect();
        let results = self.app.ports.objects.delete_batch(&known.scope.bucket, &request).await?;
        for (object, result) in doomed.into_iter().zip(results) {
            match result {
                Deleted::Gone => {
                    self.record.totals.deleted.add(object.size_bytes);
                    self.record.idle_attempts = 0;
                    writer.line(&outcome_line(object, DELETED));
                }
                Deleted::Changed => self.spare(object, CHANGED, writer),
                Deleted::Failed(_) => self.spare(object, FAILED, writer),
            }
        }
        Ok(())
    }

    fn spare(&mut self, object: &Listed, outcome: &str, writer: &mut ReportWriter) {
        self.record.totals.spared.entry(outcome.to_owned()).or_default().add(object.size_bytes);
        writer.line(&outcome_line(object, outcome));
    }

    /// If-Match proves the same bytes, not the same upload: a file written anew with equal content has another date.
    async fn check_heads<'o>(
        &mut self,
        known: &Knowledge<'a>,
        batch: &'o [Listed],
        writer: &mut ReportWriter,
    ) -> Result<Vec<&'o Listed>, SweepError> {
        let objects = self.app.ports.objects.as_ref();
        // Boxed, since the compiler cannot see through closures that the whole is `Send`.
        let mut asked: Vec<BoxFuture<'_, (&'o Listed, Result<ObjectMeta, ObjectError>)>> = Vec::new();
        for object in batch {
            let at = ObjectKey::new(known.scope.bucket.clone(), object.key.clone());
            asked.push(async move { (object, objects.head(&at).await) }.boxed());
        }
        let heads: Vec<_> = stream::iter(asked).buffered(HEAD_CONCURRENCY).collect().await;
        let mut same = Vec::new();
        for (object, head) in heads {
            match head {
                Ok(meta) if meta.etag == object.etag && meta.last_modified_ms == object.last_modified_ms => {
                    same.push(object);
                }
                Ok(_) => self.spare(object, CHANGED, writer),
                Err(ObjectError::NotFound(_)) => self.spare(object, GONE, writer),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(same)
    }
}
