use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::attempt::{Attempt, Knowledge};
use crate::store::{Deleted, Doomed, Listed, ObjectError, ObjectKey, ObjectMeta};
use crate::sweep::report::{Kind, ReportWriter, outcome_line};
use crate::sweep::source::Moment;
use crate::sweep::{Interruption, SweepError};

/// Keys of one delete request. S3 counts each against the prefix's rate, and a throttled request comes back as a whole.
const BATCH_KEYS: usize = 250;
/// HEAD requests at the same time.
const HEAD_CONCURRENCY: usize = 16;

/// Outcomes of orphans, as the report and the record name them.
const DELETED: &str = "deleted";
const CHANGED: &str = "changed";
const GONE: &str = "already_gone";
const FAILED: &str = "failed";

impl<'a> Attempt<'a> {
    /// Deletes orphans batch by batch; each batch is proved again right before.
    pub(super) async fn delete_all(
        &mut self,
        known: &mut Knowledge<'a>,
        orphans: Vec<Listed>,
    ) -> Result<(), SweepError> {
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
        for batch in orphans.chunks(BATCH_KEYS) {
            self.check_time()?;
            self.lease.renew(self.app.ports.items.as_ref(), self.app.ports.clock.now_ms()).await?;
            let mut result = Ok(());
            for source in &mut known.sources {
                if result.is_ok() {
                    result = source.fence(self.lease.epoch, self.lease.expires_at_ms).await;
                }
            }
            if result.is_ok() {
                result = self.delete_fenced(known, batch, writer).await;
            }
            for source in &mut known.sources {
                // A fence that cannot be cleared runs out with the lease; the first error is the one to tell.
                let cleared = source.clear_fence().await;
                result = result.and(cleared);
            }
            result?;
            // Lines and counts are stored together, so that they agree whenever this worker ends.
            let objects = self.app.ports.objects.as_ref();
            writer.flush(objects, &self.app.settings.reports, &mut self.record).await?;
            self.save_record().await?;
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
