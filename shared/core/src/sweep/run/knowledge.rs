use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::catalog::dropped::DroppedTable;
use crate::location::Location;
use crate::store::{Listed, ObjectKey};
use crate::sweep::delays::{Delays, RAISED_MAX_MS};
use crate::sweep::families::Families;
use crate::sweep::guards::{Judge, Markers, NameRules, Reason};
use crate::sweep::items::{OptimizerConfig, OptimizerItem, RunRecord, TablePlaces};
use crate::sweep::leases::Leased;
use crate::sweep::refs::{Held, Lens, References};
use crate::sweep::sightings::{Sightings, is_multipart};
use crate::sweep::source::{Moment, ReferenceSource};
use crate::sweep::survey::{ForeignRoots, ForeignSign, OwnSigns, Survey};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry, TableUse};

const HOUR_MS: i64 = 3_600_000;
/// Retention that holds unless the optimizer says in so many words that less is wanted.
const RETENTION_MIN_MS: i64 = 24 * HOUR_MS;

/// How far the store's clock and ours may be apart for a file to count as one from before the survey.
const CLOCKS_APART_MS: i64 = 300_000;

/// What the optimizer and the request ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) gate_ms: Option<i64>,
    /// The optimizer's retention; the table's and its commits' may be longer.
    pub(super) asked_ms: i64,
    pub(super) least_retention_ms: i64,
    pub(super) quarantine_ms: Option<i64>,
    pub(super) markers: Markers,
}

impl Policy {
    pub(super) fn of(optimizer: &OptimizerItem, record: &RunRecord) -> Self {
        let config: &OptimizerConfig = &optimizer.config;
        let least_retention_ms = if config.allow_short_retention { 0 } else { RETENTION_MIN_MS };
        let quarantine_ms = config.quarantine_hours.max(1).saturating_mul(HOUR_MS);
        Self {
            gate_ms: (!record.options.backfill).then_some(optimizer.created_at_ms),
            asked_ms: config.retention_hours.max(1).saturating_mul(HOUR_MS).max(least_retention_ms),
            least_retention_ms,
            quarantine_ms: (record.options.sightings.unwrap_or(config.sightings) > 1).then_some(quarantine_ms),
            markers: if config.sweep_folder_markers { Markers::Sweep } else { Markers::Keep },
        }
    }
}

/// Tables in, at and around a table's location.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbours {
    pub(super) inside: Vec<Location>,
    pub(super) sharing: Vec<TableEntry>,
    /// Ids and locations of all of them, to see changes.
    pub(super) fingerprint: Vec<(String, Location)>,
    /// What tables that do not lie here use here, in order.
    pub(super) uses: Vec<TableUse>,
}

impl Neighbours {
    pub(super) fn sort_out(entry: &TableEntry, table: &Location, around: Vec<TableEntry>) -> Self {
        let mut neighbours = Self::default();
        for other in around {
            let Some(location) = other.location.clone().filter(|_| other.id != entry.id) else { continue };
            neighbours.fingerprint.push((other.id.clone(), location.clone()));
            if location.may_contain(table) {
                neighbours.sharing.push(other);
            } else if table.may_contain(&location) {
                neighbours.inside.push(location);
            }
        }
        neighbours.fingerprint.sort();
        neighbours
    }
}

/// A table whose references count.
pub(super) struct Sourced<'a> {
    pub(super) table_id: String,
    pub(super) source: Box<dyn ReferenceSource + 'a>,
    pub(super) standing: Standing,
}

/// How a table stands to the one that is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Itself,
    /// Lies at the same place, or around it.
    Sharing,
    /// Lies elsewhere and may have files here.
    Reaching,
}

/// What an attempt knows once the references are read.
pub(super) struct Knowledge<'a> {
    pub(super) entry: TableEntry,
    pub(super) scope: Location,
    pub(super) table: Location,
    pub(super) optimizer: OptimizerItem,
    pub(super) policy: Policy,
    pub(super) neighbours: Neighbours,
    /// The table's own source first.
    pub(super) sources: Vec<Sourced<'a>>,
    pub(super) places: BTreeMap<String, TablePlaces>,
    pub(super) references: References,
    pub(super) survey: Survey,
    pub(super) foreign: ForeignRoots,
    pub(super) foreign_signs: Vec<ForeignSign>,
    /// Tables that lay here, and were dropped.
    pub(super) dropped: Vec<DroppedTable>,
    /// Every table of the catalog.
    pub(super) catalog: Vec<TableEntry>,
    pub(super) names: NameRules,
    pub(super) protected: Vec<Location>,
    pub(super) leased: Leased,
    pub(super) proved_stale: HashSet<ObjectKey>,
    pub(super) families: Families,
    pub(super) delays: Delays,
    /// Where the table's own files lie, while its references are being read.
    pub(super) partial: Option<Lens>,
    /// Whether the survey knows more than was stored.
    pub(super) has_news: bool,
    /// Whether files came since the survey that say what a commit under way names.
    pub(super) has_late: bool,
    pub(super) sightings: Sightings,
    pub(super) retention_ms: i64,
    /// Ages are counted to this moment: waiting makes no file older.
    pub(super) started_ms: i64,
}

impl Knowledge<'_> {
    /// The table's own source.
    pub(super) fn own(&self) -> Result<&dyn ReferenceSource, Refusal> {
        let missing = || Refusal::new(RefusalReason::MetadataIncomplete, "the table's references were not read");
        self.sources.first().map(|own| &*own.source as &dyn ReferenceSource).ok_or_else(missing)
    }

    /// Dropped tables whose leases count still: their writers may go on under another name of the same place.
    pub(super) fn dropped_owners(&self) -> impl Iterator<Item = String> {
        self.dropped.iter().map(|table| table.table_id.as_str().to_owned()).filter(|id| *id != self.entry.id)
    }

    /// Tables whose leases count.
    pub(super) fn lease_owners(&self) -> Vec<String> {
        let here = self.sources.iter().filter(|sourced| sourced.standing != Standing::Reaching);
        here.map(|sourced| sourced.table_id.clone()).collect()
    }

    /// Notes a page of the first listing.
    pub(super) fn note(&mut self, objects: &[Listed]) {
        self.has_news = true;
        self.survey.note_page(objects);
        let recent_ms = self.started_ms.saturating_sub(self.retention_ms.max(RAISED_MAX_MS));
        for object in objects {
            self.survey.note(&self.table.bucket, object);
            let at = ObjectKey::new(self.table.bucket.clone(), object.key.clone());
            self.delays.note(&at, object.last_modified_ms);
            if object.last_modified_ms >= recent_ms && self.references.held(&at) == Held::No {
                self.families.note(&object.key, object.last_modified_ms);
                self.survey.note_unreferenced(&at.bucket, object);
            }
        }
    }

    /// Folders inside the table's location where the metadata of a commit under way would lie.
    pub(super) fn metadata_folders(&self) -> Vec<Location> {
        match &self.names {
            NameRules::Iceberg { metadata_folders, .. } => {
                metadata_folders.iter().filter(|folder| self.table.contains(folder)).cloned().collect()
            }
            // What is staged is looked at before each batch; to a dropped table nobody commits.
            NameRules::Delta { .. } | NameRules::Dropped { .. } => Vec::new(),
        }
    }

    /// Notes what came since the survey, of a page that is about to be judged: the first listing may be a while ago.
    pub(super) fn note_late(&mut self, objects: &[Listed], surveyed_ms: i64) {
        let late_ms = surveyed_ms.saturating_sub(CLOCKS_APART_MS);
        for object in objects.iter().filter(|object| object.last_modified_ms >= late_ms) {
            let at = ObjectKey::new(self.table.bucket.clone(), object.key.clone());
            if self.references.held(&at) == Held::No {
                self.families.note(&object.key, object.last_modified_ms);
                self.has_late |= self.survey.note_late(&at.bucket, object);
                self.has_news = true;
            }
        }
    }

    /// Reads what the listing did not show as it was when an earlier run read it: removed since, torn, or written anew.
    pub(super) async fn check_believed(&mut self) -> Result<(), SweepError> {
        let doubted = self.survey.doubted();
        if let Some(own) = self.sources.first_mut().filter(|_| !doubted.is_empty()) {
            own.source.read_again(&doubted, &mut self.references).await?;
            self.delays.absorb(own.source.take_delays());
        }
        self.survey.unconfirmed.clear();
        Ok(())
    }

    /// Looks at strays and at signs of unknown tables.
    pub(super) async fn examine(&mut self) -> Result<(), SweepError> {
        self.survey.young_since_ms = self.started_ms.saturating_sub(self.retention_ms);
        for sourced in &mut self.sources {
            let is_own = sourced.standing == Standing::Itself;
            if !is_own {
                self.references.raise(Lens::new(&self.table, Vec::new()));
            }
            let examined = sourced.source.examine(&self.survey, &mut self.references).await;
            self.references.lower();
            let proved = examined?;
            if is_own {
                self.proved_stale = proved;
            }
        }
        self.update()
    }

    /// Reads every pointer again and adds what is new.
    pub(super) async fn refresh(&mut self, moment: Moment) -> Result<(), SweepError> {
        for sourced in &mut self.sources {
            if sourced.standing != Standing::Itself {
                self.references.raise(Lens::new(&self.table, Vec::new()));
            }
            let refreshed = sourced.source.refresh(moment, &mut self.references).await;
            self.references.lower();
            refreshed?;
        }
        self.update()
    }

    pub(super) fn note_signs(&mut self, objects: &[Listed]) -> Result<(), SweepError> {
        let before = self.survey.signs.len();
        objects.iter().for_each(|object| self.survey.note_signs(object));
        if self.survey.signs.len() == before {
            return Ok(());
        }
        self.has_news = true;
        self.update()
    }

    /// Takes over what the sources know by now.
    pub(super) fn update(&mut self) -> Result<(), SweepError> {
        let own = self.own()?;
        // Files at a place that the table does not call its own are somebody else's.
        let home = own.home()?;
        if home != self.table {
            let detail = format!("the catalog says that the table lies at {}, its metadata says {home}", self.table);
            return Err(Refusal::new(RefusalReason::LocationMismatch, detail).into());
        }
        let names = own.names();
        let mut signs = OwnSigns::default();
        for sourced in self.sources.iter().filter(|sourced| sourced.standing != Standing::Reaching) {
            signs.extend(sourced.source.own_signs());
        }
        self.names = names;
        self.foreign_signs = self.survey.foreign_signs(&signs);
        self.foreign = ForeignRoots::of(&self.foreign_signs);
        Ok(())
    }

    pub(super) fn judge(&self, object: &Listed) -> Reason {
        self.judging().judge(object)
    }

    fn judging(&self) -> Judge<'_> {
        Judge {
            scope: &self.scope,
            table: &self.table,
            gate_ms: self.policy.gate_ms,
            now_ms: self.started_ms,
            retention_ms: self.retention_ms,
            quarantine_ms: self.policy.quarantine_ms,
            references: &self.references,
            protected: &self.protected,
            leased: &self.leased,
            foreign: &self.foreign,
            names: &self.names,
            markers: self.policy.markers,
            proved_stale: &self.proved_stale,
            families: &self.families,
            sightings: &self.sightings,
        }
    }

    /// Puts down for later runs that an object was seen, and as what.
    pub(super) fn remember(&self, object: &Listed, reason: Reason, next: &mut Sightings) {
        let at = ObjectKey::new(self.scope.bucket.clone(), object.key.clone());
        let first_ms = || Some(self.sightings.first_seen_ms(&at, object).unwrap_or(self.started_ms));
        match reason {
            Reason::SeenOnce | Reason::Orphan => {
                let since_ms = self.sightings.candidate_since_ms(&at, object).unwrap_or(self.started_ms);
                next.see(&at, object, first_ms(), Some(since_ms));
            }
            // Whatever keeps it now, its age counts from the first time that it was seen.
            Reason::TooYoung
            | Reason::MultipartAge
            | Reason::FamilyTooYoung
            | Reason::PendingCommit
            | Reason::Lease
                if is_multipart(&object.etag) =>
            {
                next.see(&at, object, first_ms(), None);
            }
            _ => {}
        }
    }

    /// Declared folders of another table that lie inside ours belong to it: the longest prefix owns.
    pub(super) fn protect(&mut self, folders: &BTreeSet<Location>) {
        for folder in folders {
            if *folder != self.table && self.table.may_contain(folder) && !self.protected.contains(folder) {
                self.protected.push(folder.clone());
            }
        }
    }
}
