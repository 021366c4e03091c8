use std::collections::BTreeMap;

use super::attempt::Attempt;
use super::knowledge::Knowledge;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::store::Listed;
use crate::sweep::guards::{Reason, is_fuse_blown};
use crate::sweep::items::{Folder, ReportParts, Segments, Stage, Tally};
use crate::sweep::page::OTHER_FOLDERS;
use crate::sweep::ranges::{are_done, cut, next_pages};
use crate::sweep::report::{Kind, ReportWriter};
use crate::sweep::sightings::Sightings;
use crate::sweep::source::Moment;
use crate::sweep::{Mode, Refusal, RefusalReason, SweepError};

/// Pages of the survey that make a range.
const PAGES_PER_RANGE: usize = 4;
/// Orphans that are held in memory; more of them wait on S3.
const TAIL_MAX: usize = 10_000;

/// What judging has come to. The run's record takes it over when what is in memory is stored as well, so that the two
/// always agree.
#[derive(Debug, Default)]
pub(super) struct Judging {
    pub(super) by_reason: BTreeMap<String, Tally>,
    pub(super) report: ReportParts,
    pub(super) seen: Sightings,
    /// The newest orphans.
    pub(super) orphans: Vec<Listed>,
    /// Those before them.
    pub(super) orphan_parts: Segments,
    pub(super) listed: u64,
    pub(super) found: u64,
    pub(super) found_bytes: u64,
    pub(super) by_folder: BTreeMap<String, Folder>,
}

/// Folders that are told apart on the page of a run; what lies in others is counted together.
const FOLDERS_MAX: usize = 200;

/// Up to two folders below the scope.
fn folder_of<'k>(prefix: &str, key: &'k str) -> &'k str {
    let relative = key.strip_prefix(prefix).unwrap_or(key);
    let second = relative.match_indices('/').nth(1).or_else(|| relative.match_indices('/').next());
    second.and_then(|(end, _)| relative.get(..=end)).unwrap_or("./")
}

impl Judging {
    fn note_folder(&mut self, prefix: &str, object: &Listed, is_needed: bool) {
        let name = folder_of(prefix, &object.key);
        let is_new = !self.by_folder.contains_key(name) && self.by_folder.len() >= FOLDERS_MAX;
        let folder = self.by_folder.entry(if is_new { OTHER_FOLDERS } else { name }.to_owned()).or_default();
        let tally = if is_needed { &mut folder.kept } else { &mut folder.not_needed };
        tally.add(object.size_bytes);
    }
}

impl<'a> Attempt<'a> {
    /// Judges every object under the scope, page by page: each page is listed before the pointers are read again.
    pub(super) async fn judge_all(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let mut writer = ReportWriter::new(Kind::Judged, &self.app.settings.reports, &self.record);
        let result = self.judge_pages(known, &mut writer).await;
        // Lines of pages that were judged belong to what is stored of them.
        let objects = self.app.ports.objects.as_ref();
        let flushed = writer.flush(objects, &mut self.judging.report).await;
        result.and(flushed)?;
        if known.has_late {
            known.examine().await?;
            (known.has_late, known.has_news, self.is_filter_stored) = (false, true, false);
        }
        self.take_over();
        self.record.facts.listed = self.judging.listed;
        self.report_roots(known);
        if self.record.mode != Mode::DryRun {
            self.store_sightings(known).await?;
        }
        self.check_fuse(self.judging.found, self.judging.listed)?;
        (self.stage, self.ranges) = (Stage::Deleting, Vec::new());
        if self.record.progress.is_stored() || self.judging.orphan_parts.total() > 0 {
            self.checkpoint(known).await?;
        } else if !self.judging.orphans.is_empty() {
            self.store_intended().await?;
        }
        Ok(())
    }

    async fn judge_pages(&mut self, known: &mut Knowledge<'a>, writer: &mut ReportWriter) -> Result<(), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        if self.ranges.is_empty() {
            let parts = known.survey.pages.len().div_euclid(PAGES_PER_RANGE);
            self.ranges = cut(&known.scope.key_prefix(), known.survey.pages.clone(), parts);
        }
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let mut ranges = self.ranges.clone();
            let pages = next_pages(objects, &known.scope, &mut ranges).await?;
            known.refresh(Moment::Judging).await?;
            for page in &pages {
                self.check_unused(page)?;
                known.note_signs(page)?;
                known.note_late(page, self.surveyed_ms);
            }
            self.add_strangers(known).await?;
            for page in pages {
                self.judge_page(known, page, writer)?;
                writer.flush_if_full(objects, &mut self.judging.report).await?;
            }
            (self.ranges, self.has_advanced) = (ranges, true);
            if self.judging.orphans.len() >= TAIL_MAX {
                self.spill_orphans().await?;
            }
            if are_done(&self.ranges) {
                return Ok(());
            }
            self.show(known).await?;
            if self.is_checkpoint_due() {
                writer.flush(objects, &mut self.judging.report).await?;
                self.checkpoint(known).await?;
            }
        }
    }

    fn judge_page(
        &mut self,
        known: &Knowledge<'a>,
        objects: Vec<Listed>,
        writer: &mut ReportWriter,
    ) -> Result<(), SweepError> {
        let prefix = known.scope.key_prefix();
        let judging = &mut self.judging;
        judging.listed = judging.listed.saturating_add(objects.len() as u64);
        for object in objects {
            let reason = known.judge(&object);
            // A dry run leaves nothing of what it saw.
            if self.record.mode != Mode::DryRun {
                known.remember(&object, reason, &mut judging.seen);
            }
            writer.judged(&object, reason)?;
            judging.by_reason.entry(reason.as_str().to_owned()).or_default().add(object.size_bytes);
            let is_needed = !matches!(reason, Reason::SeenOnce | Reason::Orphan);
            judging.note_folder(&prefix, &object, is_needed);
            if !is_needed {
                judging.found = judging.found.saturating_add(1);
                judging.found_bytes = judging.found_bytes.saturating_add(object.size_bytes);
            }
            if !reason.is_kept() && self.record.mode != Mode::DryRun {
                judging.orphans.push(object);
            }
        }
        Ok(())
    }

    /// The record says what was judged.
    pub(super) fn take_over(&mut self) {
        self.record.totals.by_reason = self.judging.by_reason.clone();
        self.record.report.judged = self.judging.report.judged.clone();
    }

    async fn store_sightings(&mut self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let seen = std::mem::take(&mut self.judging.seen).sealed();
        if seen == known.sightings {
            return Ok(());
        }
        self.keep_lease().await?;
        seen.store(self.app.ports.objects.as_ref(), &self.app.settings.reports, &self.record.table_id).await
    }

    fn check_fuse(&mut self, orphans: u64, listed: u64) -> Result<(), Refusal> {
        // All of a dropped table is to go.
        if self.dropped.is_some() {
            return Ok(());
        }
        if !is_fuse_blown(orphans, listed) || (self.record.options.accept_share && self.record.mode != Mode::DryRun) {
            return Ok(());
        }
        let detail = format!(
            "{orphans} of {listed} files look like orphans, which rather means that references are missing; nothing \
             was deleted: look at the report of a dry run, and if it is right start an ordinary run with accept_share, \
             after_dry_run, asked_by and why"
        );
        let refusal = Refusal::new(RefusalReason::Fuse, detail);
        if self.record.mode == Mode::DryRun {
            self.record.reason = Some(format!("{} (a run that deletes would be refused)", refusal.reason.as_str()));
            return Ok(());
        }
        Err(refusal)
    }
}

/// A page of S3 is the unit of judging; the batches of deleting are smaller.
const _: () = assert!(LIST_PAGE_MAX_KEYS == 1000);
