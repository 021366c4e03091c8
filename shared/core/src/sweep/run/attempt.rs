use std::collections::HashSet;

use super::IDLE_ATTEMPTS_MAX;
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::ports::{App, Deadline};
use crate::store::{Listed, ObjectKey};
use crate::sweep::guards::{Judge, NameRules, Reason, is_fuse_blown};
use crate::sweep::items::{LEASE_MS, Lease, OptimizerItem, RunRecord, RunState};
use crate::sweep::refs::References;
use crate::sweep::report::{Kind, ReportWriter, judged_line};
use crate::sweep::source::{Moment, ReferenceSource, SourceContext, source_for};
use crate::sweep::survey::{ForeignRoots, Survey, list_request};
use crate::sweep::{Interruption, Mode, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};

/// An attempt ends in good order when less time than this is left.
const STOP_MARGIN_MS: i64 = 20_000;
/// Orphans that one run deletes; the next one finds the others.
const CANDIDATES_MAX: usize = 1_000_000;
const DAY_MS: i64 = 86_400_000;

/// One worker's go at a run.
pub(super) struct Attempt<'a> {
    pub(super) app: &'a App,
    pub(super) directory: &'a dyn TableDirectory,
    deadline: Deadline,
    pub(super) record: RunRecord,
    pub(super) lease: Lease,
    /// Ages are counted to this moment: waiting makes no file older.
    started_ms: i64,
}

/// What an attempt knows once the references are read.
pub(super) struct Knowledge<'a> {
    pub(super) scope: Location,
    table: Location,
    optimizer: OptimizerItem,
    neighbours: Neighbours,
    /// The table's own source first, then those of tables that share its place.
    pub(super) sources: Vec<Box<dyn ReferenceSource + 'a>>,
    references: References,
    survey: Survey,
    foreign: ForeignRoots,
    names: NameRules,
    protected: Vec<Location>,
    proved_stale: HashSet<ObjectKey>,
    retention_ms: i64,
    started_ms: i64,
}

/// Tables in, at and around a table's location.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbours {
    inside: Vec<Location>,
    sharing: Vec<TableEntry>,
    /// Ids and locations of all of them, to see changes.
    fingerprint: Vec<(String, Location)>,
}

impl Neighbours {
    fn sort_out(entry: &TableEntry, table: &Location, around: Vec<TableEntry>) -> Self {
        let mut neighbours = Self::default();
        for other in around {
            let Some(location) = other.location.clone().filter(|_| other.id != entry.id) else { continue };
            neighbours.fingerprint.push((other.id.clone(), location.clone()));
            if location.contains(table) {
                neighbours.sharing.push(other);
            } else if table.contains(&location) {
                neighbours.inside.push(location);
            }
        }
        neighbours.fingerprint.sort();
        neighbours
    }
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
        Self { app, directory, deadline, record, lease, started_ms }
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
        if self.deadline.left_ms(self.app.ports.clock.as_ref()) < STOP_MARGIN_MS {
            return Err(Interruption::TimeLimit.into());
        }
        Ok(())
    }

    /// Renews the lease when half of it has passed.
    async fn keep_lease(&mut self) -> Result<(), SweepError> {
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
        self.record.pointer = known.sources.first().map(|source| source.pointer());
        let orphans = self.judge_all(&mut known).await?;
        if self.record.mode == Mode::DryRun {
            return Ok(());
        }
        self.delete_all(&mut known, orphans).await
    }

    /// Everything that is read before the first object is judged. The listing comes first, then the pointers.
    async fn learn(&mut self, entry: Option<TableEntry>) -> Result<Knowledge<'a>, SweepError> {
        let optimizer = self.load_optimizer().await?;
        let (entry, table) = self.check_entry(entry)?;
        let scope = check_scope(&optimizer, &table)?;
        let neighbours = self.load_neighbours(&entry, &table).await?;
        let asked_ms = optimizer.config.retention_days.max(1).saturating_mul(DAY_MS);
        let mut sources = vec![source_for(&self.app.ports, self.directory, &entry, self.source_context(asked_ms))?];
        for other in &neighbours.sharing {
            sources.push(self.source_of_neighbour(&entry, other, asked_ms)?);
        }
        let survey = self.survey(&table).await?;
        let mut references = References::default();
        for source in &mut sources {
            source.load(&mut references).await?;
        }
        let mut protected = neighbours.inside.clone();
        protected.push(self.app.settings.reports.clone());
        protected.push(self.app.settings.bodies.clone());
        let mut known = Knowledge {
            names: first(&sources)?.names(),
            // Tables that share the place may write here as well: the longest of their retentions.
            retention_ms: sources.iter().map(|source| source.retention_ms()).fold(asked_ms, i64::max),
            foreign: ForeignRoots::default(),
            proved_stale: HashSet::new(),
            started_ms: self.started_ms,
            scope,
            table,
            optimizer,
            neighbours,
            sources,
            references,
            survey,
            protected,
        };
        known.examine().await?;
        Ok(known)
    }

    /// Lists everything below the table's location once.
    async fn survey(&mut self, table: &Location) -> Result<Survey, SweepError> {
        let mut survey = Survey::default();
        let mut request = list_request(table);
        loop {
            self.check_time()?;
            self.keep_lease().await?;
            let page = self.app.ports.objects.list(&request).await?;
            page.objects.iter().for_each(|object| survey.note(&table.bucket, object));
            request.start_after = page.objects.last().map(|object| object.key.clone());
            if !page.truncated || request.start_after.is_none() {
                self.keep_lease().await?;
                return Ok(survey);
            }
        }
    }

    fn source_context(&self, retention_ms: i64) -> SourceContext<'_> {
        SourceContext { run_id: &self.record.run_id, retention_ms, now_ms: self.started_ms }
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
        retention_ms: i64,
    ) -> Result<Box<dyn ReferenceSource + 'a>, Refusal> {
        let source = match other.format() {
            Ok(TableFormat::Other) => Err("which files it needs is not recorded anywhere".to_owned()),
            _ => {
                let context = self.source_context(retention_ms);
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
                writer.line(&judged_line(&object, reason));
                let tally = self.record.totals.by_reason.entry(reason.as_str().to_owned()).or_default();
                tally.add(object.size_bytes);
                if !reason.is_kept() {
                    found = found.saturating_add(1);
                    if orphans.len() < CANDIDATES_MAX {
                        orphans.push(object);
                    }
                }
            }
            writer.flush_if_full(objects, &self.app.settings.reports, &mut self.record).await?;
            if !page.truncated || request.start_after.is_none() {
                break;
            }
        }
        writer.flush(objects, &self.app.settings.reports, &mut self.record).await?;
        self.check_fuse(found, listed)?;
        Ok(orphans)
    }

    fn check_fuse(&mut self, orphans: u64, listed: u64) -> Result<(), Refusal> {
        if !is_fuse_blown(orphans, listed) {
            return Ok(());
        }
        let detail = format!(
            "{orphans} of {listed} files would be deleted, which rather means that references are missing; \
             look at the report of a dry run"
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
        let same = (optimizer.created_at_ms, &optimizer.config.location, optimizer.config.retention_days)
            == (known.optimizer.created_at_ms, &known.optimizer.config.location, known.optimizer.config.retention_days);
        if !same {
            return Err(Interruption::Changed("the optimizer").into());
        }
        let around = self.directory.tables_around(&known.table).await?;
        let own = |entry: &&TableEntry| entry.id == self.record.table_id;
        let entry = around.iter().find(own).cloned().ok_or(Interruption::Changed("the table's location"))?;
        if Neighbours::sort_out(&entry, &known.table, around).fingerprint != known.neighbours.fingerprint {
            return Err(Interruption::Changed("the tables around").into());
        }
        Ok(())
    }
}

fn first<'s, 'a>(sources: &'s [Box<dyn ReferenceSource + 'a>]) -> Result<&'s (dyn ReferenceSource + 'a), Refusal> {
    let missing = || Refusal::new(RefusalReason::MetadataIncomplete, "the table's references were not read");
    sources.first().map(AsRef::as_ref).ok_or_else(missing)
}

fn check_scope(optimizer: &OptimizerItem, table: &Location) -> Result<Location, Refusal> {
    let outside = |detail: String| Refusal::new(RefusalReason::LocationOutsideTable, detail);
    let Some(uri) = &optimizer.config.location else { return Ok(table.clone()) };
    let scope = Location::parse(uri).map_err(|error| outside(error.to_string()))?;
    if table.contains(&scope) { Ok(scope) } else { Err(outside(format!("{scope} is not inside {table}"))) }
}

impl Knowledge<'_> {
    /// Looks at strays and at signs of unknown tables.
    async fn examine(&mut self) -> Result<(), SweepError> {
        if let Some(own) = self.sources.first_mut() {
            self.proved_stale = own.examine(&self.survey, &mut self.references).await?;
        }
        self.update()
    }

    /// Reads every pointer again and adds what is new.
    pub(super) async fn refresh(&mut self, moment: Moment) -> Result<(), SweepError> {
        for source in &mut self.sources {
            source.refresh(moment, &mut self.references).await?;
        }
        self.update()
    }

    fn note_signs(&mut self, objects: &[Listed]) -> Result<(), SweepError> {
        let before = self.survey.signs.len();
        objects.iter().for_each(|object| self.survey.note_signs(object));
        if self.survey.signs.len() == before { Ok(()) } else { self.update() }
    }

    /// Takes over what the table's own source knows by now.
    fn update(&mut self) -> Result<(), SweepError> {
        let own = first(&self.sources)?;
        // Files at a place that the table does not call its own are somebody else's.
        let home = own.home()?;
        if home != self.table {
            let detail = format!("the catalog says that the table lies at {}, its metadata says {home}", self.table);
            return Err(Refusal::new(RefusalReason::LocationMismatch, detail).into());
        }
        let (names, signs) = (own.names(), own.own_signs());
        self.names = names;
        self.foreign = self.survey.foreign_roots(&signs);
        Ok(())
    }

    pub(super) fn judge(&self, object: &Listed) -> Reason {
        let judge = Judge {
            scope: &self.scope,
            table: &self.table,
            gate_ms: self.optimizer.created_at_ms,
            now_ms: self.started_ms,
            retention_ms: self.retention_ms,
            references: &self.references,
            protected: &self.protected,
            leased: &[],
            foreign: &self.foreign,
            names: &self.names,
            proved_stale: &self.proved_stale,
        };
        judge.judge(object)
    }
}

/// A page of S3 is the unit of judging; the batches of deleting are smaller.
const _: () = assert!(LIST_PAGE_MAX_KEYS == 1000);
