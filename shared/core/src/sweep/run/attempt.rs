use std::collections::{BTreeMap, HashSet};

use super::IDLE_ATTEMPTS_MAX;
use super::judge::Judging;
use super::knowledge::{Knowledge, Neighbours, Policy, Sourced, Standing};
use super::others::sorted;
use super::pace::Pace;
use super::stored::KNOWLEDGE_MAX_AGE_MS;
use super::unsure::Unsure;
use crate::catalog::dropped::{self, DroppedTable};
use crate::location::Location;
use crate::ports::{App, Deadline};
use crate::store::{ObjectKey, list_every};
use crate::sweep::delays::Delays;
use crate::sweep::families::Families;
use crate::sweep::guards::NameRules;
use crate::sweep::items::{
    LEASE_MS, Lease, OptimizerItem, Progress, RunFacts, RunRecord, Segments, Stage, TablePlaces,
};
use crate::sweep::leases::Leased;
use crate::sweep::ranges::{KeyRange, are_done, cut, next_pages};
use crate::sweep::refs::{Lens, References};
use crate::sweep::sightings::Sightings;
use crate::sweep::source::{DroppedSource, Moment, ReferenceSource, Role, SourceContext, source_for};
use crate::sweep::survey::{ForeignRoots, Survey};
use crate::sweep::undo::{Quarantine, Way};
use crate::sweep::{
    DirectoryError, Interruption, Mode, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat,
};

/// An attempt ends in good order when less time than this is left.
const STOP_MARGIN_MS: i64 = 20_000;
/// A range has at least so many of the table's own files.
const KEYS_PER_RANGE: u64 = 4_000;
/// How long references are read before the lease is looked at.
const LOAD_SLICE_MS: i64 = 30_000;

/// One worker's go at a run.
pub(super) struct Attempt<'a> {
    pub(super) app: &'a App,
    pub(super) directory: &'a dyn TableDirectory,
    pub(super) deadline: Deadline,
    stop_margin_ms: i64,
    pub(super) record: RunRecord,
    pub(super) lease: Lease,
    /// Ages are counted to this moment: waiting makes no file older.
    pub(super) started_ms: i64,
    pub(super) began: Began,
    pub(super) stage: Stage,
    /// What this stage has listed; empty before its first page.
    pub(super) ranges: Vec<KeyRange>,
    pub(super) surveyed_ms: i64,
    pub(super) judging: Judging,
    /// Parts of orphans that are done with, and lines of the next one.
    pub(super) parts_done: i64,
    pub(super) lines_done: i64,
    /// When tables elsewhere were last asked what they need here.
    pub(super) asked_ms: i64,
    pub(super) pace: Pace,
    pub(super) saved_ms: i64,
    pub(super) shown_ms: i64,
    /// Objects of the first listing.
    pub(super) surveyed: u64,
    /// Whether the run got further since the record was saved.
    pub(super) has_advanced: bool,
    pub(super) is_filter_stored: bool,
    /// Objects stored for later attempts.
    pub(super) blobs: u32,
    /// Whether workers that are gone may have stored some.
    pub(super) has_work_of_others: bool,
    /// How what is deleted can come back.
    pub(super) way: Way,
    /// The last key of the quarantine that was looked at.
    pub(super) tended: Option<String>,
    /// Files that this attempt, if it restores, has said what became of.
    pub(super) told: HashSet<u64>,
    /// Metadata that was missing and was brought back: once each.
    pub(super) brought: HashSet<ObjectKey>,
    /// Of the batch that is being deleted.
    pub(super) unsure: Unsure,
    /// The table, if it was dropped and its files are to go.
    pub(super) dropped: Option<DroppedTable>,
}

/// Whether an attempt leaves anything to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Began {
    Run {
        at_ms: i64,
    },
    /// A look that nothing is kept of.
    Look,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        app: &'a App,
        directory: &'a dyn TableDirectory,
        deadline: Deadline,
        record: RunRecord,
        lease: Lease,
        started_ms: i64,
    ) -> Self {
        Self {
            app,
            directory,
            deadline,
            stop_margin_ms: STOP_MARGIN_MS,
            record,
            lease,
            started_ms,
            began: Began::Run { at_ms: started_ms },
            stage: Stage::Loading,
            ranges: Vec::new(),
            surveyed_ms: started_ms,
            judging: Judging::default(),
            parts_done: 0,
            lines_done: 0,
            asked_ms: i64::MIN,
            pace: Pace::default(),
            saved_ms: started_ms,
            shown_ms: started_ms,
            surveyed: 0,
            has_advanced: false,
            is_filter_stored: false,
            blobs: 0,
            has_work_of_others: false,
            way: Way::Never,
            tended: None,
            told: HashSet::new(),
            brought: HashSet::new(),
            unsure: Unsure::default(),
            dropped: None,
        }
    }

    /// Keeps nothing for later, and ends when less time than this is left.
    pub(super) fn looking(self, stop_margin_ms: i64) -> Self {
        Self { stop_margin_ms, began: Began::Look, ..self }
    }

    pub(super) async fn save_record(&mut self) -> Result<(), SweepError> {
        self.record.save(self.app.ports.items.as_ref(), self.app.ports.ids.as_ref()).await
    }

    pub(super) fn fail(&mut self, refusal: &Refusal, now_ms: i64) {
        self.record.fail(refusal, now_ms);
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.record.idle_attempts >= IDLE_ATTEMPTS_MAX || self.record.progress.restarts >= IDLE_ATTEMPTS_MAX
    }

    pub(super) fn check_time(&self) -> Result<(), SweepError> {
        if self.deadline.left_ms(self.app.ports.clock.as_ref()) < self.stop_margin_ms {
            return Err(Interruption::TimeLimit.into());
        }
        Ok(())
    }

    /// Renews the lease when half of it has passed.
    pub(super) async fn keep_lease(&mut self) -> Result<(), SweepError> {
        let now_ms = self.app.ports.clock.now_ms();
        if self.lease.expires_at_ms.saturating_sub(now_ms) < LEASE_MS / 2 {
            self.lease.renew(self.app.ports.items.as_ref(), now_ms).await?;
        }
        Ok(())
    }

    /// The whole attempt: learn, judge, delete, from where the last one stopped.
    pub(super) async fn work(&mut self, entry: Option<TableEntry>) -> Result<(), SweepError> {
        self.check_time()?;
        let mut known = self.prepare(entry).await?;
        self.check_cancelled().await?;
        let result = self.go_on(&mut known).await;
        if matches!(result, Err(SweepError::Interrupted(Interruption::TimeLimit))) {
            self.checkpoint(&mut known).await?;
        }
        result
    }

    async fn go_on(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        self.gather(known).await?;
        self.record.pointer = Some(known.own()?.pointer());
        if self.stage < Stage::Deleting {
            self.judge_all(known).await?;
        }
        let is_empty = self.judging.orphans.is_empty() && self.judging.orphan_parts.total() == 0;
        if self.record.mode != Mode::DryRun && !is_empty {
            self.delete_all(known).await?;
        }
        self.tend(known).await
    }

    /// Nothing of what earlier attempts found counts any more, but what they deleted.
    pub(super) fn start_over(&mut self) {
        let restarts = self.record.progress.restarts;
        let was_stored = i64::from(self.record.progress.is_stored());
        self.record.progress = Progress { restarts: restarts.saturating_add(was_stored), ..Progress::default() };
        self.record.totals.by_reason.clear();
        self.record.report.judged = Segments::default();
        (self.stage, self.ranges, self.judging) = (Stage::Loading, Vec::new(), Judging::default());
        (self.parts_done, self.lines_done, self.is_filter_stored, self.surveyed) = (0, 0, false, 0);
        self.tended = None;
        if let Began::Run { at_ms } = self.began {
            self.started_ms = at_ms;
        }
    }

    /// Everything that is read before the first object is judged, for a look at one object.
    pub(super) async fn learn(&mut self, entry: Option<TableEntry>) -> Result<Knowledge<'a>, SweepError> {
        let mut known = self.prepare(entry).await?;
        self.gather(&mut known).await?;
        Ok(known)
    }

    /// Who is to be asked, and what earlier attempts have stored of their answers.
    async fn prepare(&mut self, entry: Option<TableEntry>) -> Result<Knowledge<'a>, SweepError> {
        let optimizer = self.load_optimizer().await?;
        let (entry, table) = self.check_entry(entry)?;
        let scope = check_scope(&optimizer, &table)?;
        let now_ms = self.app.ports.clock.now_ms();
        let oldest_ms = now_ms.saturating_sub(KNOWLEDGE_MAX_AGE_MS);
        let progress = &self.record.progress;
        if progress.is_stored() && progress.surveyed_ms >= oldest_ms {
            self.started_ms = progress.began_ms;
            let mut known = self.begin(optimizer.clone(), &entry, table.clone(), scope.clone()).await?;
            if self.restore(&mut known).await? {
                return Ok(known);
            }
        }
        self.report_unrecorded(&scope).await?;
        self.start_over();
        self.record.facts = RunFacts { scope: Some(scope.to_string()), ..self.record.facts.of_what_was_done() };
        self.begin(optimizer, &entry, table, scope).await
    }

    /// Reads what the tables need and surveys the table's location, or goes on with that. The pages that are judged are
    /// listed later, each before the pointers are read again.
    async fn gather(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        if self.stage == Stage::Loading {
            self.load_all(known).await?;
        } else {
            // The filter says what was so when it was stored: everybody is asked what is new.
            self.load_others(known).await?;
            known.refresh(Moment::Deleting).await?;
            self.check_backfill(known).await?;
        }
        if self.stage == Stage::Deleting {
            self.look_for_late(known).await?;
        }
        if self.stage == Stage::Surveying {
            self.survey(known).await?;
            known.check_believed().await?;
            self.load_leases(known).await?;
            known.examine().await?;
            (self.stage, self.ranges) = (Stage::Judging, Vec::new());
            (self.is_filter_stored, known.has_news) = (false, true);
        } else {
            self.load_leases(known).await?;
            known.update()?;
        }
        self.add_strangers(known).await?;
        self.record.facts.gate_ms = known.policy.gate_ms;
        self.record.facts.retention_ms = Some(known.retention_ms);
        self.report_roots(known);
        Ok(())
    }

    async fn load_all(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        self.load_own(known).await?;
        // Apart for the moment, since what they name goes into the same knowledge.
        let sharing = known.sources.split_off(1.min(known.sources.len()));
        for mut one in sharing {
            let lens = Lens::new(&known.table, Vec::new());
            self.load_whole(one.source.as_mut(), known, lens).await?;
            if let Some(untold) = one.source.untold() {
                return Err(untold.why.clone().into());
            }
            known.sources.push(one);
        }
        self.load_others(known).await?;
        // Tables that share the place may write here as well: the longest of their retentions.
        let here = known.sources.iter().filter(|sourced| sourced.standing != Standing::Reaching);
        let here = here.map(|sourced| sourced.source.retention_ms());
        known.retention_ms = here.fold(known.policy.asked_ms, i64::max);
        self.check_backfill(known).await?;
        (self.stage, self.ranges) = (Stage::Surveying, Vec::new());
        (self.is_filter_stored, known.has_news) = (false, true);
        self.surveyed_ms = self.app.ports.clock.now_ms();
        if self.is_checkpoint_due() { self.checkpoint(known).await } else { Ok(()) }
    }

    /// Between two slices somebody may have begun a commit: what its metadata names was not there to be seen.
    async fn look_for_late(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        for folder in known.metadata_folders() {
            let objects = self.app.ports.objects.as_ref();
            let found = list_every(objects, &folder.bucket, &folder.key_prefix()).await?;
            known.note_signs(&found)?;
            known.note_late(&found, self.surveyed_ms);
        }
        if known.has_late {
            known.examine().await?;
            (known.has_late, known.has_news, self.is_filter_stored) = (false, true, false);
        }
        Ok(())
    }

    /// References are read until then before the lease and the time are looked at.
    pub(super) fn load_until_ms(&self) -> i64 {
        let latest_ms = self.deadline.0.saturating_sub(self.stop_margin_ms);
        self.app.ports.clock.now_ms().saturating_add(LOAD_SLICE_MS).min(latest_ms)
    }

    /// Who is to be asked.
    async fn begin(
        &self,
        optimizer: OptimizerItem,
        entry: &TableEntry,
        table: Location,
        scope: Location,
    ) -> Result<Knowledge<'a>, SweepError> {
        let neighbours = self.load_neighbours(entry, &table).await?;
        let dropped = dropped::around(self.app.ports.items.as_ref(), &table).await.map_err(DirectoryError::from)?;
        self.check_left_alone(&neighbours, &dropped)?;
        let policy = Policy::of(&optimizer, &self.record);
        let context = self.source_context(Role::Own, &policy);
        let own: Box<dyn ReferenceSource + 'a> = match &self.dropped {
            Some(dropped) => Box::new(DroppedSource::new(&self.app.ports, self.directory, dropped)?),
            None => source_for(&self.app.ports, self.directory, entry, context)?,
        };
        let mut sources = vec![Sourced { table_id: entry.id.clone(), source: own, standing: Standing::Itself }];
        for other in &neighbours.sharing {
            let source = self.source_of_neighbour(entry, other, &policy)?;
            sources.push(Sourced { table_id: other.id.clone(), source, standing: Standing::Sharing });
        }
        let (reports, bodies) = (&self.app.settings.reports, &self.app.settings.bodies);
        let mut protected = neighbours.inside.clone();
        let quarantine = Quarantine::of(&self.app.settings, &table.bucket).root;
        protected.extend([reports.clone(), bodies.clone(), quarantine]);
        let places = TablePlaces::load_all(self.app.ports.items.as_ref()).await?;
        let objects = self.app.ports.objects.as_ref();
        Ok(Knowledge {
            entry: entry.clone(),
            scope,
            references: References::of(&table.bucket),
            table,
            retention_ms: policy.asked_ms,
            optimizer,
            policy,
            neighbours,
            sources,
            places: places.into_iter().map(|places| (places.table_id.clone(), places)).collect::<BTreeMap<_, _>>(),
            survey: Survey::default(),
            foreign: ForeignRoots::default(),
            foreign_signs: Vec::new(),
            dropped,
            catalog: Vec::new(),
            names: NameRules::nothing(),
            protected,
            leased: Leased::default(),
            proved_stale: HashSet::new(),
            families: Families::default(),
            delays: Delays::default(),
            partial: None,
            has_news: true,
            has_late: false,
            sightings: Sightings::load(objects, reports, &entry.id).await?,
            started_ms: self.started_ms,
        })
    }

    /// Lists everything below the table's location once, and looks above it.
    async fn survey(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        let around: Vec<Location> =
            known.neighbours.sharing.iter().filter_map(|sharing| sharing.location.clone()).collect();
        known.survey.look_above(objects, &known.table, &around).await?;
        if self.ranges.is_empty() {
            let sample = known.references.sample();
            let parts = usize::try_from(sample.seen() / KEYS_PER_RANGE).unwrap_or(usize::MAX);
            self.ranges = cut(&known.table.key_prefix(), sample.keys(), parts);
        }
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let pages = next_pages(objects, &known.table, &mut self.ranges).await?;
            for page in &pages {
                self.check_unused(page)?;
                known.note(page);
                self.surveyed = self.surveyed.saturating_add(page.len() as u64);
            }
            self.has_advanced = true;
            if are_done(&self.ranges) {
                break;
            }
            self.show(known).await?;
            if self.is_checkpoint_due() {
                self.checkpoint(known).await?;
            }
        }
        self.keep_lease().await?;
        if let Some(usual_ms) = known.delays.usual_ms() {
            self.record.facts.usual_delay_ms = Some(usual_ms);
            known.retention_ms = known.retention_ms.max(Delays::retention_ms(usual_ms));
        }
        Ok(())
    }

    /// Reads what writers have announced; a run that deletes forgets what has run out long ago.
    pub(super) async fn load_leases(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let items = self.app.ports.items.as_ref();
        let now_ms = self.app.ports.clock.now_ms();
        let mut owners = known.lease_owners();
        owners.extend(known.dropped_owners());
        let (leased, over) = Leased::load(items, &owners, known.retention_ms, now_ms).await?;
        known.leased = leased;
        if self.record.mode != Mode::DryRun {
            for lease in over {
                lease.forget(items).await?;
            }
        }
        Ok(())
    }

    /// A backfill goes no further than the dry run that was looked at.
    async fn check_backfill(&self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let options = &self.record.options;
        if !options.backfill || self.record.mode == Mode::DryRun {
            return Ok(());
        }
        let bad = |detail: String| Refusal::new(RefusalReason::BackfillScope, detail);
        let run_id = options.after_dry_run.clone().ok_or_else(|| bad("it names no dry run".to_owned()))?;
        let dry_run = RunRecord::load(self.app.ports.items.as_ref(), &self.record.table_id, &run_id).await?;
        let seen = dry_run.ok_or_else(|| bad(format!("there is no run {run_id}")))?.facts;
        if seen.scope != self.record.facts.scope || seen.retention_ms > Some(known.retention_ms) {
            let scope = seen.scope.unwrap_or_default();
            let detail = format!("dry run {run_id} looked at {scope} with a retention of {:?} ms", seen.retention_ms);
            return Err(bad(detail).into());
        }
        Ok(())
    }

    pub(super) fn source_context(&self, role: Role, policy: &Policy) -> SourceContext<'_> {
        SourceContext {
            role,
            run_id: &self.record.run_id,
            reports: &self.app.settings.reports,
            keeps: self.began != Began::Look,
            gives_up: role == Role::Own && self.record.mode != Mode::DryRun,
            retention_ms: policy.asked_ms,
            least_retention_ms: policy.least_retention_ms,
            now_ms: self.started_ms,
        }
    }

    /// Another table, whatever may become of its own files.
    pub(super) fn source_of_other(
        &self,
        other: &TableEntry,
        policy: &Policy,
    ) -> Result<Box<dyn ReferenceSource + 'a>, Refusal> {
        source_for(&self.app.ports, self.directory, other, self.source_context(Role::Other, policy))
    }

    async fn load_optimizer(&self) -> Result<OptimizerItem, SweepError> {
        let found = OptimizerItem::load(self.app.ports.items.as_ref(), &self.record.table_id).await?;
        let optimizer = found.ok_or_else(|| {
            let detail = "the table has no orphan_file_deletion optimizer (any more): create one first";
            Refusal::new(RefusalReason::OptimizerMissing, detail)
        })?;
        if self.record.mode == Mode::Scheduled && !optimizer.config.enabled {
            let detail = "the optimizer is not enabled, so scheduled runs rest";
            return Err(Refusal::new(RefusalReason::OptimizerPaused, detail).into());
        }
        Ok(optimizer)
    }

    pub(super) fn check_entry(&self, entry: Option<TableEntry>) -> Result<(TableEntry, Location), Refusal> {
        let named = format!("{}.{}", self.record.database, self.record.table);
        let entry = entry.filter(|entry| entry.id == self.record.table_id).ok_or_else(|| {
            let detail = format!("table {named} is gone, or was dropped and created again");
            Refusal::new(RefusalReason::TableUnknown, detail)
        })?;
        match entry.location.clone() {
            Some(location) => Ok((entry, location)),
            None => Err(Refusal::new(RefusalReason::UnsupportedTable, format!("{entry} has no location"))),
        }
    }

    async fn load_neighbours(&self, entry: &TableEntry, table: &Location) -> Result<Neighbours, SweepError> {
        let around = self.directory.tables_around(table).await?;
        Ok(Neighbours::sort_out(entry, table, around))
    }

    /// A table at our place, or around it: its files must be known, or nothing is deleted.
    fn source_of_neighbour(
        &self,
        entry: &TableEntry,
        other: &TableEntry,
        policy: &Policy,
    ) -> Result<Box<dyn ReferenceSource + 'a>, Refusal> {
        let source = match other.format() {
            Ok(TableFormat::Other) => Err("which files it needs is not recorded anywhere".to_owned()),
            _ => self.source_of_other(other, policy).map_err(|refusal| refusal.detail),
        };
        source.map_err(|why| {
            let place = other.location.as_ref().map(Location::to_string).unwrap_or_default();
            let detail = format!("{other} at {place} shares the location of {entry}: {why}");
            Refusal::new(RefusalReason::SharedLocation, detail)
        })
    }

    /// Stops when what the judgement rested on is not so any more.
    pub(super) async fn check_unchanged(&self, known: &Knowledge<'a>) -> Result<(), SweepError> {
        let optimizer = self.load_optimizer().await?;
        let is_same = optimizer.created_at_ms == known.optimizer.created_at_ms
            && optimizer.config.location == known.optimizer.config.location
            && Policy::of(&optimizer, &self.record) == known.policy;
        if !is_same {
            return Err(Interruption::Changed("the optimizer").into());
        }
        let around = self.directory.tables_around(&known.table).await?;
        let own = |entry: &&TableEntry| entry.id == self.record.table_id;
        let entry = match &self.dropped {
            // Whether it is so still is asked by its source.
            Some(_) => known.entry.clone(),
            None => around.iter().find(own).cloned().ok_or(Interruption::Changed("the table's location"))?,
        };
        if Neighbours::sort_out(&entry, &known.table, around).fingerprint != known.neighbours.fingerprint {
            return Err(Interruption::Changed("the tables around").into());
        }
        if sorted(self.directory.uses_around(&known.table).await?) != known.neighbours.uses {
            return Err(Interruption::Changed("partitions that lie here").into());
        }
        Ok(())
    }
}

fn check_scope(optimizer: &OptimizerItem, table: &Location) -> Result<Location, Refusal> {
    let outside = |detail: String| Refusal::new(RefusalReason::LocationOutsideTable, detail);
    let Some(uri) = &optimizer.config.location else { return Ok(table.clone()) };
    let scope = Location::parse(uri).map_err(|error| outside(error.to_string()))?;
    if table.contains(&scope) { Ok(scope) } else { Err(outside(format!("{scope} is not inside {table}"))) }
}
