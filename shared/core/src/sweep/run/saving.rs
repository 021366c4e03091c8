//! How far a run is: shown to whoever looks, and stored for whoever goes on.

use super::attempt::{Attempt, Began};
use super::knowledge::Knowledge;
use crate::sweep::guards::Reason;
use crate::sweep::items::{Cancellation, Live, Stage};
use crate::sweep::{Refusal, RefusalReason, SweepError};

/// How long an attempt works before it stores how far it has come. A worker that dies loses this much.
const CHECKPOINT_MS: i64 = 30_000;
/// How often a run says how far it is.
const SHOW_MS: i64 = 2_000;

impl<'a> Attempt<'a> {
    /// Whether somebody wants the run to end.
    pub(super) async fn check_cancelled(&self) -> Result<(), SweepError> {
        let record = &self.record;
        let items = self.app.ports.items.as_ref();
        if self.began != Began::Look && Cancellation::is_asked(items, &record.table_id, &record.run_id).await? {
            let detail = "the run was cancelled: what it deleted until then is gone, everything else is as it was";
            return Err(Refusal::new(RefusalReason::Cancelled, detail).into());
        }
        Ok(())
    }

    /// Lets everybody see how far the run is, every few seconds, and looks whether it is wanted still.
    pub(super) async fn show(&mut self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let now_ms = self.app.ports.clock.now_ms();
        if self.began == Began::Look || now_ms.saturating_sub(self.shown_ms) < SHOW_MS {
            return Ok(());
        }
        self.check_cancelled().await?;
        self.shown_ms = now_ms;
        self.record.facts.live = Some(self.live(known));
        self.save_record().await
    }

    pub(super) fn live(&self, known: &Knowledge<'a>) -> Live {
        let judging = &self.judging;
        let count = |name: &str| judging.by_reason.get(name).map_or(0, |tally| tally.count.cast_unsigned());
        let totals = &self.record.totals;
        let gone = totals.spared.values().fold(totals.deleted.count, |sum, tally| sum.saturating_add(tally.count));
        let (done, total) = match self.stage {
            Stage::Loading => (0, None),
            Stage::Surveying => (self.surveyed, None),
            // Of a folder nobody knows before how much of the table it holds.
            Stage::Judging => (judging.listed, (known.scope == known.table).then_some(self.surveyed)),
            Stage::Deleting => (gone.cast_unsigned(), Some(count(Reason::Orphan.as_str()))),
        };
        Live {
            stage: self.stage,
            at_ms: self.app.ports.clock.now_ms(),
            done,
            total,
            listed: judging.listed,
            referenced: count(Reason::Referenced.as_str()),
            candidates: judging.found,
            candidates_bytes: judging.found_bytes,
        }
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.app.ports.clock.now_ms().saturating_sub(self.saved_ms) >= CHECKPOINT_MS
    }

    /// Stores everything that the next attempt needs, and then says so in the record. What the run has come to is known by
    /// the record alone: a worker that dies in between has written objects that nobody reads.
    pub(super) async fn checkpoint(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let is_worth_it = self.has_advanced || self.stage > Stage::Loading;
        if self.began == Began::Look || !is_worth_it {
            return Ok(());
        }
        self.keep_lease().await?;
        if !self.is_filter_stored {
            self.record.progress.filter = Some(self.store_filter(known).await?);
            self.is_filter_stored = true;
        }
        if known.has_news {
            self.record.progress.notes = Some(self.store_notes(known).await?);
            known.has_news = false;
        }
        self.spill_orphans().await?;
        let seen = match self.stage {
            Stage::Judging => {
                let seen = std::mem::take(&mut self.judging.seen);
                let name = self.store_seen(&seen).await?;
                self.judging.seen = seen;
                Some(name)
            }
            _ => None,
        };
        let folders = serde_json::to_vec(&self.judging.by_folder).unwrap_or_default();
        self.record.progress.folders = Some(self.put_work("folders", folders.into()).await?);
        self.take_over();
        let progress = &mut self.record.progress;
        (progress.stage, progress.began_ms, progress.surveyed_ms) = (self.stage, self.started_ms, self.surveyed_ms);
        (progress.seen, progress.ranges) = (seen, self.ranges.clone());
        (progress.listed, progress.found, progress.surveyed) = (self.judging.listed, self.judging.found, self.surveyed);
        progress.found_bytes = self.judging.found_bytes;
        progress.orphans = self.judging.orphan_parts.clone();
        (progress.parts_done, progress.lines_done) = (self.parts_done, self.lines_done);
        progress.tended = self.tended.clone();
        progress.intended = None;
        self.note_advance();
        self.saved_ms = self.app.ports.clock.now_ms();
        self.save_record().await
    }

    /// A run that gets further is not given up.
    pub(super) fn note_advance(&mut self) {
        if std::mem::take(&mut self.has_advanced) {
            self.record.idle_attempts = 0;
        }
    }
}
