//! Replacing the definition of a table.

use serde_json::{Map, Value as Json};

use super::body::check_item_size;
use super::epochs::plan_keys;
use super::fences::Gate;
use super::location_item;
use super::locations::{Use, put_uses};
use super::rounds::{Rounds, lost_to_others};
use super::spill::{Owner, load_body};
use super::table_definition_item::{self, TableDefinition};
use super::table_head_item::{self, TableRef};
use super::tables::{find_table, put, put_location, stored_definition, uses_of};
use super::version_item;
use super::work::{self, CatalogWork};
use super::work_item;
use super::writes::transact;
use super::{CatalogError, Revision, TableId};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Item, Write};

/// Versions of one table that are kept, the current one included (a limit of the service).
pub const VERSIONS_MAX: i64 = 100_000;

/// What becomes of the version that an update replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    Keep,
    /// `SkipArchive`
    Skip,
}

/// The definition that is replaced: as it is stored, and what it says.
struct Old {
    item: Item,
    definition: TableDefinition,
}

impl Old {
    fn home(&self) -> Option<Location> {
        self.definition.location().ok().flatten()
    }
}

/// The definition that a head speaks of; nothing if somebody was here between the two reads.
async fn read_old(ports: &Ports, table: &TableRef) -> Result<Option<Old>, CatalogError> {
    let Some(item) = ports.items.get(&table_definition_item::key(&table.table_id), Consistency::Strong).await? else {
        return Ok(None);
    };
    let mut loaded = item.clone();
    match load_body(ports, Owner::Table(&table.table_id), &mut loaded).await {
        Ok(()) => {
            let definition = table_definition_item::decode(&loaded)?;
            Ok(Some(Old { item, definition }).filter(|old| old.definition.version == table.version))
        }
        Err(CatalogError::DroppedMeanwhile) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The head after an update. Identity and everything that hangs on the table stay; other keys may open a new epoch.
fn plan_head(
    current: &TableRef,
    definition: &TableDefinition,
    revision: Revision,
    now_ms: i64,
) -> Result<TableRef, CatalogError> {
    let next = plan_keys(current, definition.partition_keys(), now_ms)?;
    let home = definition.location()?;
    Ok(TableRef { version: current.version.saturating_add(1), revision, home, ..next })
}

/// Replaces the definition of a table; its version grows by one, and the replaced one is kept in the same transaction
/// unless `archive` says otherwise. Creation time, partitions, indexes and statistics stay.
///
/// With `expected_version`, only if that is the current version (compared as text). This is the commit lock of Iceberg's
/// clients: a conditional write. Without it the last writer wins.
///
/// # Errors
/// [`CatalogError::TableChanged`] when `expected_version` is not the current one, and without it when others were faster
/// again and again; [`CatalogError::LimitExceeded`] when too many versions are kept; [`CatalogError::NotReady`] when the
/// partition keys changed too often in a short time, or while a sweep deletes a batch of files around a new location;
/// [`CatalogError::Contended`] while one deletes a batch of files that new Iceberg metadata might name. Nothing is written
/// then.
pub async fn update_table(
    ports: &Ports,
    database: &str,
    input: Map<String, Json>,
    expected_version: Option<&str>,
    archive: Archive,
) -> Result<TableRef, CatalogError> {
    let sent_name = input.get("Name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let definition = TableDefinition::new(input, ports.clock.now_ms());
    definition.location()?;
    let mut prepared: Option<(TableId, Item)> = None;
    let (mut rounds, mut gate) = (Rounds::default(), Gate::default());
    loop {
        let current = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, &sent_name).await?;
        if expected_version.is_some_and(|expected| expected != current.version.to_string()) {
            return Err(CatalogError::TableChanged);
        }
        if let Some(old) = read_old(ports, &current).await? {
            let item = match prepared.take() {
                Some((table, item)) if table == current.table_id => item,
                _ => stored_definition(ports, &current.table_id, &definition).await?,
            };
            let change = Change { definition: &definition, item: item.clone(), numbering: Numbering::Next, archive };
            if let Some(next) = replace(ports, &current, &old, change, &mut gate).await? {
                return Ok(next);
            }
            prepared = Some((current.table_id, item));
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::TableChanged);
        }
    }
}

/// How much of a change an amendment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// The version stays: nobody who updates the table on condition of its version is disturbed.
    InPlace,
    /// The replaced version is kept.
    NewVersion,
}

/// Changes what a table says, by what it says: `amend` answers nothing where nothing is to be done, and may be asked again.
/// Answers the table as it is then.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if this very table is gone; [`CatalogError::Contended`] when others were faster again and
/// again; those of [`update_table`].
pub async fn amend_table(
    ports: &Ports,
    table: &TableRef,
    amend: impl Fn(&Map<String, Json>) -> Option<(Map<String, Json>, Amendment)>,
) -> Result<TableRef, CatalogError> {
    let (mut rounds, mut gate) = (Rounds::default(), Gate::default());
    loop {
        let current = find_table(ports.items.as_ref(), ports.clock.as_ref(), &table.database, &table.name).await?;
        if current.table_id != table.table_id {
            return Err(CatalogError::TableNotFound(table.name.clone()));
        }
        if let Some(old) = read_old(ports, &current).await? {
            let Some((input, amendment)) = amend(&old.definition.input) else { return Ok(current) };
            let definition = TableDefinition::new(input, ports.clock.now_ms());
            let item = stored_definition(ports, &current.table_id, &definition).await?;
            let (numbering, archive) = match amendment {
                Amendment::InPlace => (Numbering::Same, Archive::Skip),
                Amendment::NewVersion => (Numbering::Next, Archive::Keep),
            };
            let change = Change { definition: &definition, item, numbering, archive };
            if let Some(next) = replace(ports, &current, &old, change, &mut gate).await? {
                return Ok(next);
            }
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Table {}", table.name)));
        }
    }
}

/// What becomes of a table's version number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    Same,
    Next,
}

/// A definition in the place of the one that was read.
struct Change<'a> {
    definition: &'a TableDefinition,
    /// As it is stored.
    item: Item,
    numbering: Numbering,
    archive: Archive,
}

/// Carries a change out; nothing if others were faster.
async fn replace(
    ports: &Ports,
    current: &TableRef,
    old: &Old,
    change: Change<'_>,
    gate: &mut Gate,
) -> Result<Option<TableRef>, CatalogError> {
    let revision = Revision::fresh(ports.ids.as_ref());
    let mut next = plan_head(current, change.definition, revision, ports.clock.now_ms())?;
    if change.numbering == Numbering::Same {
        next.version = current.version;
    }
    let mut places: Vec<Location> =
        next.home.iter().filter(|home| old.home().as_ref() != Some(*home)).cloned().collect();
    let known = uses_of(&old.definition);
    let more: Vec<(Location, Use)> =
        uses_of(change.definition).into_iter().filter(|one| !known.contains(one)).collect();
    places.extend(more.iter().map(|(place, _)| place.clone()));
    let is_commit = change.definition.pointer().is_some_and(|pointer| old.definition.pointer() != Some(pointer));
    let mut writes = plan_writes(ports, current, &next, old, change, more).await?;
    writes.extend(gate.check(ports, &places).await?);
    if is_commit {
        writes.push(gate.check_commit(ports, current).await?);
    }
    let opens_epoch = next.epoch != current.epoch;
    writes.extend(opens_epoch.then(|| work_item::open(ports, &next)));
    match transact(ports, &writes).await {
        Ok(()) => {
            if opens_epoch {
                work::request(ports, &CatalogWork::SettleTable(next.table_id.clone())).await;
            }
            Ok(Some(next))
        }
        Err(cancelled) => {
            lost_to_others(cancelled)?;
            Ok(None)
        }
    }
}

async fn plan_writes(
    ports: &Ports,
    current: &TableRef,
    next: &TableRef,
    old: &Old,
    change: Change<'_>,
    mut uses: Vec<(Location, Use)>,
) -> Result<Vec<Write>, CatalogError> {
    let Change { mut item, archive, .. } = change;
    let head = table_head_item::encode(next);
    let at_head = table_head_item::key(&next.database, &next.name);
    check_item_size(&at_head, &head, "The list of this table's partition keys")?;
    let mut writes = vec![put(at_head, head, Condition::equals("revision", current.revision.as_str()))];
    let mut archived = old.definition.archived;
    if archive == Archive::Keep {
        check_versions(ports, next, archived).await?;
        archived = archived.saturating_add(1);
        let at_version = version_item::key(&next.table_id, old.definition.version);
        writes.push(put(at_version, old.item.clone(), Condition::Absent));
    }
    table_definition_item::number(&mut item, next.version, archived);
    writes.push(put(table_definition_item::key(&next.table_id), item, Condition::Present));
    let (home, old_home) = (next.home.clone(), old.home());
    if old_home != home {
        writes.extend(home.map(|home| put_location(next, home)));
        if let Some(old) = old_home {
            let key = location_item::key(&old, &next.table_id);
            writes.push(Write::Delete { key, condition: Condition::Always });
            // Its partitions may lie there still, and so may files that only an earlier version names.
            uses.push((old, Use::Past));
        }
    }
    writes.extend(put_uses(next, &uses)?);
    Ok(writes)
}

/// Whether one more version can be kept. Deleted ones are looked up only when it matters.
async fn check_versions(ports: &Ports, table: &TableRef, archived: i64) -> Result<(), CatalogError> {
    // The one that is archived now, and the new current one.
    let with_both = archived.saturating_add(2);
    if with_both <= VERSIONS_MAX {
        return Ok(());
    }
    let item = ports.items.get(&version_item::deleted_key(&table.table_id), Consistency::Strong).await?;
    let deleted = item.map(|item| version_item::decode_deleted(&item)).transpose()?.map_or(0, |deleted| deleted.count);
    if with_both.saturating_sub(deleted) <= VERSIONS_MAX {
        return Ok(());
    }
    Err(CatalogError::LimitExceeded(format!(
        "Number of TABLE_VERSION resources exceeds the limit {VERSIONS_MAX} per TABLE"
    )))
}
