use std::collections::{BTreeMap, HashSet};

use super::IDLE_ATTEMPTS_MAX;
use super::knowledge::{Knowledge, Neighbours, Policy, Sourced, Standing};
use super::others::sorted;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::ports::{App, Deadline};
use crate::store::Listed;
use crate::sweep::delays::Delays;
use crate::sweep::families::Families;
use crate::sweep::guards::{NameRules, Reason, is_fuse_blown};
use crate::sweep::items::{LEASE_MS, Lease, OptimizerItem, RunFacts, RunRecord, RunState, TablePlaces};
use crate::sweep::leases::Leased;
use crate::sweep::refs::{Lens, References};
use crate::sweep::report::{Kind, ReportWriter, judged_line};
use crate::sweep::sightings::Sightings;
use crate::sweep::source::{Moment, ReferenceSource, Role, SourceContext, source_for};
use crate::sweep::survey::{ForeignRoots, Survey, list_request};
use crate::sweep::{Interruption, Mode, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};

/// An attempt ends in good order when less time than this is left.
const STOP_MARGIN_MS: i64 = 20_000;
/// Orphans that one run deletes; the next one finds the others.
const CANDIDATES_MAX: usize = 1_000_000;

/// One worker's go at a run.
pub(super) struct Attempt<'a> {
    pub(super) app: &'a App,
    pub(super) directory: &'a dyn TableDirectory,
    deadline: Deadline,
    stop_margin_ms: i64,
    pub(super) record: RunRecord,
    pub(super) lease: Lease,
    /// Ages are counted to this moment: waiting makes no file older.
    pub(super) started_ms: i64,
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
        Self { app, directory, deadline, stop_margin_ms: STOP_MARGIN_MS, record, lease, started_ms }
    }

    /// Ends when less time than this is left.
    pub(super) fn stopping_before(self, stop_margin_ms: i64) -> Self {
        Self { stop_margin_ms, ..self }
    }

    pub(super) async fn save_record(&mut self) -> Result<(), SweepError> {
        self.record.save(self.app.ports.items.as_ref(), self.app.ports.ids.as_ref()).await
    }

    pub(super) fn fail(&mut self, refusal: &Refusal, now_ms: i64) {
        self.record.state = RunState::Failed;
        self.record.ended_ms = Some(now_ms);
        self.record.reason = Some(refusal.reason.as_str().to_owned());
        self.record.error = Some(refusal.to_string());
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.record.idle_attempts >= IDLE_ATTEMPTS_MAX
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

    /// The whole attempt: learn, judge, delete.
    pub(super) async fn work(&mut self, entry: Option<TableEntry>) -> Result<(), SweepError> {
        self.check_time()?;
        let mut known = self.learn(entry).await?;
        self.record.pointer = Some(known.own()?.pointer());
        let orphans = self.judge_all(&mut known).await?;
        if self.record.mode == Mode::DryRun || orphans.is_empty() {
            return Ok(());
        }
        self.delete_all(&mut known, orphans).await
    }

    /// Everything that is read before the first object is judged. The pages that are judged are listed later, each
    /// before the pointers are read again.
    pub(super) async fn learn(&mut self, entry: Option<TableEntry>) -> Result<Knowledge<'a>, SweepError> {
        let optimizer = self.load_optimizer().await?;
        let (entry, table) = self.check_entry(entry)?;
        let scope = check_scope(&optimizer, &table)?;
        self.record.facts = RunFacts { scope: Some(scope.to_string()), ..RunFacts::default() };
        let mut known = self.begin(optimizer, &entry, table, scope).await?;
        self.load_own(&mut known, &entry).await?;
        for sharing in known.sources.iter_mut().skip(1) {
            known.references.raise(Lens::new(&known.table, Vec::new()));
            let loaded = sharing.source.load(&mut known.references).await;
            known.references.lower();
            loaded?;
        }
        self.load_others(&mut known).await?;
        // Tables that share the place may write here as well: the longest of their retentions.
        let here = known.sources.iter().filter(|sourced| sourced.standing != Standing::Reaching);
        known.retention_ms = here.map(|sourced| sourced.source.retention_ms()).fold(known.policy.asked_ms, i64::max);
        self.check_backfill(&known).await?;
        self.survey(&mut known).await?;
        self.load_leases(&mut known).await?;
        known.examine().await?;
        self.record.facts.gate_ms = known.policy.gate_ms;
        self.record.facts.retention_ms = Some(known.retention_ms);
        self.report_roots(&known);
        Ok(known)
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
        let policy = Policy::of(&optimizer, &self.record);
        let context = self.source_context(Role::Own, &policy);
        let own = source_for(&self.app.ports, self.directory, entry, context)?;
        let mut sources = vec![Sourced { table_id: entry.id.clone(), source: own, standing: Standing::Itself }];
        for other in &neighbours.sharing {
            let source = self.source_of_neighbour(entry, other, &policy)?;
            sources.push(Sourced { table_id: other.id.clone(), source, standing: Standing::Sharing });
        }
        let (reports, bodies) = (&self.app.settings.reports, &self.app.settings.bodies);
        let mut protected = neighbours.inside.clone();
        protected.extend([reports.clone(), bodies.clone()]);
        let places = TablePlaces::load_all(self.app.ports.items.as_ref()).await?;
        let objects = self.app.ports.objects.as_ref();
        Ok(Knowledge {
            scope,
            table,
            retention_ms: policy.asked_ms,
            optimizer,
            policy,
            neighbours,
            sources,
            places: places.into_iter().map(|places| (places.table_id.clone(), places)).collect::<BTreeMap<_, _>>(),
            references: References::default(),
            survey: Survey::default(),
            foreign: ForeignRoots::default(),
            names: NameRules::nothing(),
            protected,
            leased: Leased::default(),
            proved_stale: HashSet::new(),
            families: Families::default(),
            sightings: Sightings::load(objects, reports, &entry.id).await?,
            started_ms: self.started_ms,
        })
    }

    /// Lists everything below the table's location once, and looks above it.
    async fn survey(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        let mut delays = known.sources.first_mut().map_or_else(Delays::default, |own| own.source.take_delays());
        let around: Vec<Location> =
            known.neighbours.sharing.iter().filter_map(|sharing| sharing.location.clone()).collect();
        known.survey.look_above(objects, &known.table, &around).await?;
        let mut request = list_request(&known.table);
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let page = objects.list(&request).await?;
            known.note(&page.objects, &mut delays);
            request.start_after = page.objects.last().map(|object| object.key.clone());
            if !page.truncated || request.start_after.is_none() {
                break;
            }
        }
        self.keep_lease().await?;
        if let Some(usual_ms) = delays.usual_ms() {
            self.record.facts.usual_delay_ms = Some(usual_ms);
            known.retention_ms = known.retention_ms.max(Delays::retention_ms(usual_ms));
        }
        Ok(())
    }

    /// Reads what writers have announced; a run that deletes forgets what has run out long ago.
    pub(super) async fn load_leases(&self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let items = self.app.ports.items.as_ref();
        let now_ms = self.app.ports.clock.now_ms();
        let (leased, over) = Leased::load(items, &known.lease_owners(), known.retention_ms, now_ms).await?;
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

    fn report_roots(&mut self, known: &Knowledge<'a>) {
        for root in known.foreign.iter() {
            let root = Location { bucket: known.table.bucket.clone(), prefix: root.to_owned() };
            let finding = format!("a table that the catalog does not know lies at {root}: everything below it is kept");
            self.record.facts.find(finding);
        }
    }

    pub(super) fn source_context(&self, role: Role, policy: &Policy) -> SourceContext<'_> {
        SourceContext {
            role,
            run_id: &self.record.run_id,
            gives_up: role == Role::Own && self.record.mode != Mode::DryRun,
            retention_ms: policy.asked_ms,
            least_retention_ms: policy.least_retention_ms,
            now_ms: self.started_ms,
        }
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

    fn check_entry(&self, entry: Option<TableEntry>) -> Result<(TableEntry, Location), Refusal> {
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
            _ => {
                let context = self.source_context(Role::Other, policy);
                source_for(&self.app.ports, self.directory, other, context).map_err(|refusal| refusal.detail)
            }
        };
        source.map_err(|why| {
            let place = other.location.as_ref().map(Location::to_string).unwrap_or_default();
            let detail = format!("{other} at {place} shares the location of {entry}: {why}");
            Refusal::new(RefusalReason::SharedLocation, detail)
        })
    }

    /// Judges every object under the scope, page by page: each page is listed before the pointers are read again.
    async fn judge_all(&mut self, known: &mut Knowledge<'a>) -> Result<Vec<Listed>, SweepError> {
        let objects = self.app.ports.objects.as_ref();
        let mut writer = ReportWriter::new(Kind::Judged);
        let mut request = list_request(&known.scope);
        let mut orphans = Vec::new();
        let mut seen = Sightings::default();
        let (mut listed, mut found): (u64, u64) = (0, 0);
        self.record.totals.by_reason.clear();
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let page = objects.list(&request).await?;
            known.refresh(Moment::Judging).await?;
            known.note_signs(&page.objects)?;
            request.start_after = page.objects.last().map(|object| object.key.clone());
            listed = listed.saturating_add(page.objects.len() as u64);
            for object in page.objects {
                let reason = known.judge(&object);
                known.remember(&object, reason, &mut seen);
                writer.line(&judged_line(&object, reason));
                let tally = self.record.totals.by_reason.entry(reason.as_str().to_owned()).or_default();
                tally.add(object.size_bytes);
                if matches!(reason, Reason::SeenOnce | Reason::Orphan) {
                    found = found.saturating_add(1);
                }
                if !reason.is_kept() && orphans.len() < CANDIDATES_MAX {
                    orphans.push(object);
                }
            }
            writer.flush_if_full(objects, &self.app.settings.reports, &mut self.record).await?;
            if !page.truncated || request.start_after.is_none() {
                break;
            }
        }
        writer.flush(objects, &self.app.settings.reports, &mut self.record).await?;
        self.record.facts.listed = listed;
        self.report_roots(known);
        if self.record.mode != Mode::DryRun {
            self.store_sightings(known, seen.sealed()).await?;
        }
        self.check_fuse(found, listed)?;
        Ok(orphans)
    }

    async fn store_sightings(&mut self, known: &Knowledge<'a>, seen: Sightings) -> Result<(), SweepError> {
        if seen == known.sightings {
            return Ok(());
        }
        self.keep_lease().await?;
        seen.store(self.app.ports.objects.as_ref(), &self.app.settings.reports, &self.record.table_id).await
    }

    fn check_fuse(&mut self, orphans: u64, listed: u64) -> Result<(), Refusal> {
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
        let entry = around.iter().find(own).cloned().ok_or(Interruption::Changed("the table's location"))?;
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

/// A page of S3 is the unit of judging; the batches of deleting are smaller.
const _: () = assert!(LIST_PAGE_MAX_KEYS == 1000);
