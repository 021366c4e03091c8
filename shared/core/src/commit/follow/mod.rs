//! The catalog follows the log: after each version the catalog's tables at its place have the partitions that the version
//! has, with the numbers of live files, rows and bytes, and say its schema.
//!
//! A cursor for each table says how far it is. Versions are carried out in order, each partition of each version exactly
//! once, since cursor and partitions are written in one transaction. So it does not matter who brings the news, how often, in which
//! order, or who dies over it: who comes next goes on from the cursor. Where the log does not tell the way from the cursor to the
//! version (the first time, after a long gap, another table at the place, other keys), the partitions are made from the
//! whole log, which goes on where it was broken off as well.

mod cursor;
mod definition;
mod rebuild;
mod standing;
mod tally;
mod trouble;
mod writing;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Map;

use super::aftermath::audit_id;
use super::context::Context;
use super::error::CommitError;
use super::keys::{self, Generation, content_hash};
use super::proposal::Proposal;
use super::sync::{SyncError, SyncReport};
use super::version_record::VersionRecord;
use crate::catalog::TableDefinition;
use crate::catalog::locations::tables_at;
use crate::catalog::tables::{find_table, read_definition};
use crate::catalog::{TableId, TableRef};
use crate::delta::schema::{DataType, Primitive, Schema, physical_names};
use crate::delta::snapshot::{self, LoggedCommit};
use crate::delta::{Metadata, SnapshotError, Version, Wanted};
use crate::location::Location;
use crate::partition::Effect;
use crate::ports::Ports;
use crate::store::Consistency;

pub(crate) use cursor::places_of;
pub use cursor::{Column, Cursor, Others, Rebuild, decode_synced, key, synced_key};
pub use rebuild::{Progress, RequestError, message, progress_of, request};
pub use standing::look_up;

use definition::{Order, follow_schema, follow_version};
use tally::{Layout, asked_of};
use trouble::Trouble;
use writing::{Goal, Meaning, Stepped, Writing};

/// Parameter of a catalog table: `off` leaves its partitions, columns and parameters alone.
pub const SETTING: &str = "lakewarden.partitionSync";
/// Versions that are carried out one by one; behind a longer gap the whole log is quicker.
const GAP_MAX: i64 = 200;
/// How often a step is planned anew because others were faster.
const ROUNDS: u32 = 64;

/// What there is to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub generation: Generation,
    pub version: Version,
    pub source: Source,
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The head says so.
    Head,
    /// An event: it may be late, and of a table that is gone. Where it tells nothing new, the log is looked at.
    Event,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub created: u64,
    pub changed: u64,
    pub removed: u64,
}

impl Counts {
    fn count(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Created => self.created += 1,
                Effect::Changed => self.changed += 1,
                Effect::Removed(_) => self.removed += 1,
                Effect::Nothing => {}
            }
        }
    }
}

/// Whether a table follows its log.
pub(crate) fn is_on(definition: &TableDefinition) -> bool {
    definition.parameter(SETTING).is_none_or(|setting| !setting.eq_ignore_ascii_case("off"))
}

/// Lets every table of the catalog at this very location follow the log up to a version.
///
/// # Errors
/// [`SyncError::Slow`] where time ran out or others were at work: a later call goes on.
pub async fn follow(ctx: Context<'_>, root: &Location, target: Target) -> Result<SyncReport, SyncError> {
    let ports = ctx.ports();
    let tables = tables_at(ports.items.as_ref(), ports.clock.as_ref(), root).await.map_err(Trouble::from)?;
    if tables.is_empty() {
        return Ok(SyncReport::UnknownTable);
    }
    let (mut counts, mut is_any_on, mut is_waiting, mut failed) = (Counts::default(), false, false, None);
    for located in tables {
        // One that cannot follow does not hold up the others.
        match follow_table(ctx, root, located.table, target, &mut counts).await {
            Ok(Followed::All) => is_any_on = true,
            Ok(Followed::Waiting) => is_waiting = true,
            Ok(Followed::SwitchedOff) => {}
            Err(trouble) => failed = Some(SyncError::from(trouble)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None if is_waiting => Ok(SyncReport::Waiting),
        None if is_any_on => Ok(SyncReport::Followed(counts)),
        None => Ok(SyncReport::SwitchedOff),
    }
}

/// How far a table followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    All,
    /// The log does not have the version yet.
    Waiting,
    /// The table's setting says no.
    SwitchedOff,
}

async fn follow_table(
    ctx: Context<'_>,
    root: &Location,
    table: TableRef,
    target: Target,
    counts: &mut Counts,
) -> Result<Followed, Trouble> {
    let mut follower = Follower::new(ctx, root, table, target);
    for attempt in 0..ROUNDS {
        // Read once more where somebody was faster: it may have been renamed, got other keys, or been dropped.
        if attempt > 0 && !follower.reload().await? {
            return Ok(Followed::All);
        }
        let Some(definition) = read_definition(ctx.ports(), &follower.table.table_id).await? else {
            return Ok(Followed::All);
        };
        if !is_on(&definition) || definition.location()?.as_ref() != Some(root) {
            return Ok(Followed::SwitchedOff);
        }
        follower.definition = definition;
        let mut cursor = load(ctx.ports(), &follower.table.table_id).await?.unwrap_or_else(Cursor::fresh);
        match follower.go_on(&mut cursor, counts).await? {
            Stepped::Done => {
                follower.tell_version(&cursor).await?;
                return Ok(if follower.is_waiting { Followed::Waiting } else { Followed::All });
            }
            Stepped::Moved => ctx.back_off(attempt.min(3)).await,
            Stepped::Inconsistent => follower.begin_rebuild(&mut cursor, Others::Stay).await?,
        }
    }
    Err(crate::commit::error::CommitError::Contended { attempts: ROUNDS }.into())
}

/// How far a catalog table follows its log; `None`: it never did.
///
/// # Errors
/// The store's.
pub async fn load(ports: &Ports, table: &TableId) -> Result<Option<Cursor>, super::error::CommitError> {
    match ports.items.get(&key(table), Consistency::Strong).await? {
        Some(item) => Ok(Some(Cursor::decode(&item)?)),
        None => Ok(None),
    }
}

struct Follower<'a> {
    ctx: Context<'a>,
    root: &'a Location,
    table: TableRef,
    definition: TableDefinition,
    target: Target,
    order: Order,
    /// When the last version that was carried out was committed.
    committed_ms: Option<i64>,
    /// Whether anything was carried out.
    moved: bool,
    /// Whether the whole log was looked at: it is as it is.
    is_rebuilt: bool,
    /// Whether the log does not have the version yet.
    is_waiting: bool,
}

impl<'a> Follower<'a> {
    fn new(ctx: Context<'a>, root: &'a Location, table: TableRef, target: Target) -> Follower<'a> {
        Follower {
            ctx,
            root,
            table,
            definition: TableDefinition::default(),
            target,
            order: Order::Forward,
            committed_ms: None,
            moved: false,
            is_rebuilt: false,
            is_waiting: false,
        }
    }

    /// The catalog's table takes on Delta's schema, and partitions that appear from here on with it.
    async fn adopt_schema(&mut self, metadata: &Metadata) -> Result<(), Trouble> {
        let next = follow_schema(self.ctx.ports(), &self.table, metadata).await?;
        if next.version != self.table.version
            && let Some(definition) = read_definition(self.ctx.ports(), &next.table_id).await?
        {
            self.definition = definition;
        }
        self.table = next;
        Ok(())
    }

    async fn reload(&mut self) -> Result<bool, Trouble> {
        let ports = self.ctx.ports();
        let located = tables_at(ports.items.as_ref(), ports.clock.as_ref(), self.root).await?;
        let found = located.into_iter().find(|located| located.table.table_id == self.table.table_id);
        match found {
            Some(located) => self.table = located.table,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Step by step until the target is there.
    async fn go_on(&mut self, cursor: &mut Cursor, counts: &mut Counts) -> Result<Stepped, Trouble> {
        loop {
            if cursor.rebuild.is_some() {
                match self.rebuild(cursor, counts).await? {
                    Stepped::Done => continue,
                    other => return Ok(other),
                }
            }
            if !self.is_followable(cursor).await? {
                self.begin_rebuild(cursor, Others::Stay).await?;
                continue;
            }
            if cursor.version >= self.target.version || self.target.generation < cursor.generation {
                return Ok(Stepped::Done);
            }
            match self.carry_out_next(cursor, counts).await {
                Ok(Stepped::Done) => {}
                Ok(other) => return Ok(other),
                // News of a version that the log does not have (any more).
                Err(trouble) if trouble.is_gap() && self.is_rebuilt => return Ok(Stepped::Done),
                // Ratified, and not published: its event will tell.
                Err(trouble) if trouble.is_gap() && self.is_end_of_log(cursor).await? => {
                    self.is_waiting = true;
                    return Ok(Stepped::Done);
                }
                Err(trouble) if trouble.is_gap() => self.begin_rebuild(cursor, Others::Stay).await?,
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Whether the versions after the cursor's lead to the target.
    async fn is_followable(&self, cursor: &Cursor) -> Result<bool, Trouble> {
        let target = self.target;
        let is_new = cursor.revision.is_empty();
        if is_new {
            return Ok(target.version <= Version(0));
        }
        if target.generation > cursor.generation {
            return Ok(false);
        }
        let keys: Vec<&str> = self.table.keys.iter().map(|key| key.name.as_str()).collect();
        if cursor.version > Version::NONE && cursor.keys != keys {
            return Ok(false);
        }
        if target.version.0.saturating_sub(cursor.version.0) > GAP_MAX {
            return Ok(false);
        }
        if target.source == Source::Event && target.version <= cursor.version && cursor.progress.is_none() {
            return self.is_same_log(cursor).await;
        }
        Ok(true)
    }

    async fn is_end_of_log(&self, cursor: &Cursor) -> Result<bool, Trouble> {
        let listing = snapshot::list_for(&*self.ctx.ports().objects, self.root, None).await?;
        Ok(cursor.version > Version::NONE && listing.latest() == cursor.version)
    }

    /// An event for a version that was followed already: late, or of another table at the place.
    async fn is_same_log(&self, cursor: &Cursor) -> Result<bool, Trouble> {
        match snapshot::read_commit(&*self.ctx.ports().objects, self.root, cursor.version).await {
            Ok(commit) => Ok(cursor.sha256.as_deref() == Some(content_hash(&commit.bytes).as_str())),
            Err(SnapshotError::LogGap { .. }) => {
                // Cleaned up, or gone: a table without a log is left as it is.
                let listing = snapshot::list_for(&*self.ctx.ports().objects, self.root, None).await?;
                Ok(listing.latest() == Version::NONE || listing.latest() > cursor.version)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out_next(&mut self, cursor: &mut Cursor, counts: &mut Counts) -> Result<Stepped, Trouble> {
        let objects = &*self.ctx.ports().objects;
        let version = cursor.version.next();
        let commit = snapshot::read_commit(objects, self.root, version).await?;
        let mut columns = cursor.columns.clone();
        if let Some(metadata) = &commit.actions.metadata {
            columns = columns_of(metadata);
            if cursor.version > Version::NONE && columns != cursor.columns {
                return Ok(Stepped::Inconsistent);
            }
            self.adopt_schema(metadata).await?;
        } else if cursor.version == Version::NONE {
            return Ok(Stepped::Inconsistent);
        }
        let order = self.order_of(&columns)?;
        let layout = Layout { root: self.root, columns: &columns, order: &order };
        let parts = if columns.is_empty() {
            tally::Parts::new()
        } else {
            // Before the first version there was nothing.
            let is_new = cursor.version == Version::NONE
                || (tally::only_adds_new(&commit.actions) && self.is_sound(&commit).await?);
            let asked = if is_new { BTreeSet::new() } else { asked_of(self.root, &commit.actions)? };
            let before = if asked.is_empty() {
                BTreeMap::new()
            } else {
                let wanted = Wanted::Only(asked);
                snapshot::load_wanted(objects, self.root, Some(cursor.version), &wanted).await?.live
            };
            layout.changes(&commit.actions, &before)?
        };
        let rest = behind(parts, cursor.progress.as_ref());
        let next = self.at_version(cursor, &commit, columns.clone());
        let goal = Goal::Version(Box::new(next));
        let none = Map::new();
        let stepped = self.writing(&none).carry_out(cursor, &rest, Meaning::Change, &goal, counts).await?;
        if stepped == Stepped::Done {
            self.moved = true;
            self.committed_ms = Some(committed_ms(&commit));
        }
        Ok(stepped)
    }

    /// Whether a commit was judged, and found to be what it says: here before it was published, or by the audit afterwards. Other
    /// writers may add a file again that the table has.
    async fn is_sound(&self, commit: &LoggedCommit) -> Result<bool, Trouble> {
        if commit.actions.adds.is_empty() {
            return Ok(true);
        }
        let items = &self.ctx.ports().items;
        let generation = self.target.generation;
        let key = keys::version(self.root, generation, commit.version);
        let Some(item) = items.get(&key, Consistency::Strong).await? else { return Ok(false) };
        let record = VersionRecord::decode(&item).map_err(CommitError::from)?;
        if record.proposal.is_some() {
            return Ok(true);
        }
        let id = audit_id(self.root, generation, commit.version, &content_hash(&commit.bytes));
        let Some(item) = items.get(&keys::proposal(self.root, generation, id), Consistency::Strong).await? else {
            return Ok(false);
        };
        Ok(Proposal::decode(&item).map_err(CommitError::from)?.refusal.is_none())
    }

    fn writing<'w>(&'w self, none: &'w Map<String, serde_json::Value>) -> Writing<'w> {
        let descriptor = self.definition.storage_descriptor().unwrap_or(none);
        Writing { ctx: self.ctx, root: self.root, table: &self.table, descriptor }
    }

    fn at_version(&self, cursor: &Cursor, commit: &LoggedCommit, columns: Vec<Column>) -> Cursor {
        let metadata_id = commit.actions.metadata.as_ref().map(|metadata| metadata.id.clone());
        Cursor {
            generation: cursor.generation.max(self.target.generation),
            metadata_id: metadata_id.or_else(|| cursor.metadata_id.clone()),
            version: commit.version,
            sha256: Some(content_hash(&commit.bytes)),
            columns,
            keys: self.table.keys.iter().map(|key| key.name.clone()).collect(),
            progress: None,
            rebuild: None,
            ..cursor.clone()
        }
    }

    /// For each of the catalog's keys its place among Delta's columns. Names differ in case at most: the catalog folds them.
    fn order_of(&self, columns: &[Column]) -> Result<Vec<usize>, Trouble> {
        let place = |name: &str| columns.iter().position(|column| column.name.to_lowercase() == name.to_lowercase());
        let order: Option<Vec<usize>> = self.table.keys.iter().map(|key| place(&key.name)).collect();
        order.filter(|order| order.len() == columns.len()).ok_or_else(|| {
            let keys: Vec<&str> = self.table.keys.iter().map(|key| key.name.as_str()).collect();
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            Trouble::Table(format!(
                "{}.{} has the partition keys [{}] in the catalog and the partition columns [{}] in Delta",
                self.table.database,
                self.table.name,
                keys.join(", "),
                names.join(", "),
            ))
        })
    }

    async fn tell_version(&self, cursor: &Cursor) -> Result<(), Trouble> {
        if self.moved && cursor.version > Version::NONE {
            follow_version(self.ctx.ports(), &self.table, cursor.version, self.committed_ms, self.order).await?;
        }
        Ok(())
    }
}

fn behind(mut parts: tally::Parts, last: Option<&Vec<String>>) -> tally::Parts {
    if let Some(last) = last {
        parts.retain(|values, _| values > last);
    }
    parts
}

fn committed_ms(commit: &LoggedCommit) -> i64 {
    let info = commit.actions.commit_info.as_ref();
    let said = info.and_then(|info| info.number("inCommitTimestamp").or_else(|| info.number("timestamp")));
    said.unwrap_or(commit.last_modified_ms)
}

fn columns_of(metadata: &Metadata) -> Vec<Column> {
    let Ok(schema) = Schema::parse(&metadata.schema_string) else {
        let plain = |name: &String| Column { name: name.clone(), physical: name.clone(), is_timestamp: false };
        return metadata.partition_columns.iter().map(plain).collect();
    };
    let physical = physical_names(metadata, &schema);
    let columns = metadata.partition_columns.iter().zip(physical).map(|(name, physical)| {
        let kind = schema.column(name).map(|field| &field.data_type);
        let is_timestamp = matches!(kind, Some(DataType::Primitive(Primitive::Timestamp | Primitive::TimestampNtz)));
        Column { name: name.clone(), physical, is_timestamp }
    });
    columns.collect()
}

/// The table of the catalog with its database's and its own name.
async fn table_named(ports: &Ports, database: &str, table: &str) -> Result<TableRef, Trouble> {
    Ok(find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?)
}
