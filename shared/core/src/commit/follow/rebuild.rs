//! All partitions of a table, made from the whole log.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::cursor::{Cursor, Others, Rebuild, shard_place};
use super::tally::{Kept, Layout, Part, Parts};
use super::trouble::Trouble;
use super::writing::{Goal, Meaning, Stepped};
use super::{Counts, Follower, Order, behind, columns_of, committed_ms, is_on, load, table_named};
use crate::catalog::TableDefinition;
use crate::catalog::tables::read_definition;
use crate::catalog::{CatalogError, TableRef};
use crate::commit::context::{CLAIM_MS, Context, Transacted};
use crate::commit::error::CommitError;
use crate::delta::snapshot;
use crate::delta::{SnapshotError, Version};
use crate::location::Location;
use crate::partition::{self, ColumnSchema, Listing};
use crate::ports::{App, Deadline, Ports};
use crate::store::{Query, QueueName, SortRange, Table};

/// Partitions that are read at once where those are looked for that the log does not have.
const PAGE: usize = 1_000;

impl Follower<'_> {
    pub(super) async fn begin_rebuild(&mut self, cursor: &mut Cursor, others: Others) -> Result<(), Trouble> {
        let now_ms = self.ctx.now_ms();
        let rebuild = Rebuild { version: Version::NONE, others, after: None, started_ms: now_ms };
        let next = Cursor {
            generation: cursor.generation.max(self.target.generation),
            progress: None,
            rebuild: Some(rebuild),
            updated_ms: now_ms,
            revision: self.ctx.new_revision(),
            ..cursor.clone()
        };
        self.store(cursor, next).await
    }

    /// Somebody else's write is no failure: the caller finds out with the next one.
    async fn store(&self, cursor: &mut Cursor, next: Cursor) -> Result<(), Trouble> {
        let write = cursor.write(&self.table.table_id, &next);
        match self.ctx.transact(&[write]).await? {
            Transacted::Done => *cursor = next,
            Transacted::Refused(_) => {
                *cursor = load(self.ctx.ports(), &self.table.table_id).await?.unwrap_or_else(Cursor::fresh);
            }
        }
        Ok(())
    }

    /// Goes on with a rebuild, to its end.
    pub(super) async fn rebuild(&mut self, cursor: &mut Cursor, counts: &mut Counts) -> Result<Stepped, Trouble> {
        let Some(rebuild) = cursor.rebuild.clone() else { return Ok(Stepped::Done) };
        self.ctx.check_time("reading the whole log", CLAIM_MS)?;
        let objects = self.ctx.ports().objects.clone();
        let at = (rebuild.version > Version::NONE).then_some(rebuild.version);
        let snapshot = match snapshot::load(&*objects, self.root, at).await {
            // Cleaned up, or written anew, since the rebuild began.
            Err(SnapshotError::LogGap { .. } | SnapshotError::NoTable(_)) if at.is_some() => {
                let rebuild = Rebuild { version: Version::NONE, after: None, ..rebuild };
                let revision = self.ctx.new_revision();
                let next = Cursor { rebuild: Some(rebuild), revision, ..cursor.clone() };
                self.store(cursor, next).await?;
                return Ok(Stepped::Moved);
            }
            // Nothing to make partitions from: they stay as they are.
            Err(SnapshotError::NoTable(_)) => {
                let (updated_ms, revision) = (self.ctx.now_ms(), self.ctx.new_revision());
                let next = Cursor { rebuild: None, progress: None, updated_ms, revision, ..cursor.clone() };
                self.store(cursor, next).await?;
                self.is_rebuilt = true;
                return Ok(Stepped::Done);
            }
            other => other?,
        };
        self.adopt_schema(&snapshot.metadata).await?;
        let columns = columns_of(&snapshot.metadata);
        let order = self.order_of(&columns)?;
        let keys: Vec<String> = self.table.keys.iter().map(|key| key.name.clone()).collect();
        if at.is_none() || cursor.keys != keys || cursor.columns != columns {
            // From the beginning: what was written goes by another order.
            let rebuild = Rebuild { version: snapshot.version, after: None, ..rebuild.clone() };
            let revision = self.ctx.new_revision();
            let next = Cursor { rebuild: Some(rebuild), keys, columns: columns.clone(), revision, ..cursor.clone() };
            let expected = next.revision.clone();
            self.store(cursor, next).await?;
            if cursor.revision != expected {
                return Ok(Stepped::Moved);
            }
        }
        let layout = Layout { root: self.root, columns: &columns, order: &order };
        let parts = if columns.is_empty() { Parts::new() } else { layout.all(snapshot.live.iter()) };
        let after = cursor.rebuild.as_ref().and_then(|rebuild| rebuild.after.clone());
        let rest = behind(parts.clone(), after.as_ref());
        let none = Map::new();
        let stepped = {
            let writing = self.writing(&none);
            writing.carry_out(cursor, &rest, Meaning::Whole, &Goal::Rebuild, counts).await?
        };
        if stepped != Stepped::Done {
            return Ok(stepped);
        }
        let wanted: BTreeSet<&Vec<String>> = parts.keys().collect();
        let stepped = self.take_away(cursor, &wanted, rebuild.others, counts).await?;
        if stepped != Stepped::Done {
            return Ok(stepped);
        }
        self.finish_rebuild(cursor, &snapshot, counts).await
    }

    /// Partitions that the log does not have.
    async fn take_away(
        &self,
        cursor: &mut Cursor,
        wanted: &BTreeSet<&Vec<String>>,
        others: Others,
        counts: &mut Counts,
    ) -> Result<Stepped, Trouble> {
        let mut gone = Parts::new();
        for values in self.kept_values().await? {
            if !wanted.contains(&values) {
                gone.insert(values, Part::default());
            }
        }
        if others == Others::Go {
            for values in self.listed_values().await? {
                if !wanted.contains(&values) {
                    gone.insert(values, Part::default());
                }
            }
        }
        if gone.is_empty() {
            return Ok(Stepped::Done);
        }
        let none = Map::new();
        let writing = self.writing(&none);
        writing.carry_out(cursor, &gone, Meaning::Whole, &Goal::Removal, counts).await
    }

    /// Of partitions whose numbers are kept: those that the follower made or took over.
    async fn kept_values(&self) -> Result<Vec<Vec<String>>, Trouble> {
        let mut found = Vec::new();
        for shard in 0..self.table.shards {
            let pk = shard_place(&self.table.table_id, shard);
            let mut query = Query::new(Table::Partitions, pk, SortRange::All);
            loop {
                let page = self.ctx.ports().items.query(&query).await?;
                for (_, item) in &page.items {
                    found.push(Kept::decode(item)?.values);
                }
                query.start_after = page.next;
                if query.start_after.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Of all partitions that the catalog has.
    async fn listed_values(&self) -> Result<Vec<Vec<String>>, Trouble> {
        let mut found = Vec::new();
        let mut listing = Listing { columns: ColumnSchema::Exclude, ..Listing::of_all(PAGE) };
        loop {
            let page = partition::list(self.ctx.ports(), &self.table, &listing).await?;
            found.extend(page.partitions.iter().map(|(_, partition)| partition.values().to_vec()));
            match page.next {
                Some(next) => listing.start = next,
                None => return Ok(found),
            }
        }
    }

    async fn finish_rebuild(
        &mut self,
        cursor: &mut Cursor,
        snapshot: &crate::delta::Snapshot,
        counts: &mut Counts,
    ) -> Result<Stepped, Trouble> {
        // Without the commit itself (cleaned up after its checkpoint) later events of it find nothing to compare.
        let commit = match snapshot::read_commit(&*self.ctx.ports().objects, self.root, snapshot.version).await {
            Ok(commit) => Some(commit),
            Err(SnapshotError::LogGap { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let next = Cursor {
            metadata_id: Some(snapshot.metadata.id.clone()),
            version: snapshot.version,
            sha256: commit.as_ref().map(|commit| super::content_hash(&commit.bytes)),
            progress: None,
            rebuild: None,
            rebuilt_ms: Some(self.ctx.now_ms()),
            ..cursor.clone()
        };
        let goal = Goal::Version(Box::new(next));
        let none = Map::new();
        let stepped = {
            let writing = self.writing(&none);
            writing.carry_out(cursor, &Parts::new(), Meaning::Whole, &goal, counts).await?
        };
        if stepped == Stepped::Done {
            self.moved = true;
            self.is_rebuilt = true;
            self.order = Order::Any;
            self.committed_ms = commit.as_ref().map(committed_ms);
        }
        Ok(stepped)
    }
}

/// How far a table follows its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub location: String,
    pub is_on: bool,
    pub cursor: Option<Cursor>,
}

impl Progress {
    pub fn to_json(&self) -> serde_json::Value {
        let cursor = self.cursor.as_ref();
        let rebuild = cursor.and_then(|cursor| cursor.rebuild.as_ref());
        json!({
            "location": self.location,
            "sync": if self.is_on { "on" } else { "off" },
            "status": if rebuild.is_some() { "rebuilding" } else if cursor.is_some() { "following" } else { "never" },
            "version": cursor.map(|cursor| cursor.version.0).filter(|version| *version >= 0),
            "rebuilding_version": rebuild.map(|rebuild| rebuild.version.0).filter(|version| *version >= 0),
            "written_up_to": rebuild.and_then(|rebuild| rebuild.after.clone()),
            "rebuilt_ms": cursor.and_then(|cursor| cursor.rebuilt_ms),
            "updated_ms": cursor.map(|cursor| cursor.updated_ms),
        })
    }
}

/// Why a rebuild cannot be begun, or its progress not be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the catalog has no table {0}")]
    NoTable(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Failed(#[from] CommitError),
}

impl From<Trouble> for RequestError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Catalog(CatalogError::TableNotFound(name) | CatalogError::DatabaseNotFound(name)) => {
                RequestError::NoTable(name)
            }
            Trouble::Commit(error) => RequestError::Failed(error),
            Trouble::Catalog(CatalogError::Store(error)) => RequestError::Failed(error.into()),
            other => RequestError::Refused(other.to_string()),
        }
    }
}

async fn located(
    ports: &Ports,
    database: &str,
    table: &str,
) -> Result<(TableRef, TableDefinition, Location), RequestError> {
    let table = table_named(ports, database, table).await?;
    let gone = || RequestError::NoTable(table.name.clone());
    let definition = read_definition(ports, &table.table_id).await.map_err(Trouble::from)?.ok_or_else(gone)?;
    let root = definition.location().map_err(Trouble::from)?;
    let root = root.ok_or_else(|| RequestError::Refused("the table has no location on S3".to_owned()))?;
    Ok((table, definition, root))
}

/// How far a table of the catalog follows its log.
///
/// # Errors
/// No such table; the store's.
pub async fn progress_of(app: &App, database: &str, table: &str) -> Result<Progress, RequestError> {
    let (table, definition, root) = located(&app.ports, database, table).await?;
    let cursor = load(&app.ports, &table.table_id).await?;
    Ok(Progress { location: root.to_string(), is_on: is_on(&definition), cursor })
}

/// Has the partitions of a table made from the whole log, by a worker. Where that is under way it goes on, with the
/// stricter of both wishes for partitions that the log does not have.
///
/// # Errors
/// No such table; its setting says no; the store's.
pub async fn request(
    app: &App,
    deadline: Deadline,
    database: &str,
    table: &str,
    others: Others,
) -> Result<Progress, RequestError> {
    let (table, definition, root) = located(&app.ports, database, table).await?;
    if !is_on(&definition) {
        let text =
            format!("the table's parameter {} is off: switch it on, or leave its partitions alone", super::SETTING);
        return Err(RequestError::Refused(text));
    }
    let listing = snapshot::list_for(&*app.ports.objects, &root, None).await.map_err(Trouble::from)?;
    if listing.latest() == Version::NONE {
        return Err(RequestError::Refused(format!(
            "there is no Delta log at {root}: there is nothing to make partitions from"
        )));
    }
    let sink = crate::commit::wiring::partition_sink(app);
    let ctx = Context::new(app, deadline, &*sink);
    for attempt in 0..super::ROUNDS {
        let cursor = load(&app.ports, &table.table_id).await?.unwrap_or_else(Cursor::fresh);
        let now_ms = ctx.now_ms();
        let running = cursor.rebuild.clone();
        let others = match (&running, others) {
            (Some(running), _) if running.others == Others::Go => Others::Go,
            (_, others) => others,
        };
        let begun = Rebuild { version: Version::NONE, others, after: None, started_ms: now_ms };
        let rebuild = running.map_or(begun, |running| Rebuild { others, ..running });
        let revision = ctx.new_revision();
        let next = Cursor { rebuild: Some(rebuild), progress: None, updated_ms: now_ms, revision, ..cursor.clone() };
        if ctx.transact(&[cursor.write(&table.table_id, &next)]).await? == Transacted::Done {
            app.ports.queue.send(QueueName::LogWork, message(&root), 0).await.map_err(CommitError::from)?;
            return Ok(Progress { location: root.to_string(), is_on: true, cursor: Some(next) });
        }
        ctx.back_off(attempt.min(3)).await;
    }
    Err(RequestError::Failed(CommitError::Contended { attempts: super::ROUNDS }))
}

/// A message of the queue for work on logs that lets the catalog's tables at a location follow the log.
pub fn message(root: &Location) -> String {
    json!({"schema_version": 1, "kind": "follow", "location": root.to_string()}).to_string()
}
