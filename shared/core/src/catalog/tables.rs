//! Create, read, update and drop tables.

use serde_json::{Map, Value as Json};

use super::database_item::{self, DatabaseHead, decode_head};
use super::dropped_table_item::DroppedTable;
use super::fences::Gate;
use super::indexes::{NewIndex, plan_first};
use super::location_item::{self, LocationEntry, Use};
use super::locations::put_uses;
use super::names::{can_exist, fold};
use super::rounds::{Rounds, lost_to_others};
use super::spill::{Owner, forget_body, load_body, store_body};
use super::table_definition_item::{self, TableDefinition};
use super::table_head_item::{self, HistoryKept, TableRef};
use super::tombstone_item::{self, Dropped, Tombstone};
use super::work::{self, CatalogWork};
use super::writes::transact;
use super::{CatalogError, Revision, TableId};
use crate::location::Location;
use crate::partition::{Irregular, KeyType};
use crate::ports::Ports;
use crate::store::{Clock, Condition, Consistency, Item, Key, ReadItems, Write, get_every};

pub use super::table_listing::{NamePattern, TablePage, list_tables};
pub use super::table_update::{Archive, VERSIONS_MAX, update_table};
pub use super::versions::{VersionPage, delete_versions, get_version, get_version_at, list_versions};

const FIRST_EPOCH: u32 = 1;
/// Shards of a new table: 16 lift the write ceiling of one key sixteen-fold and still make small listings cheap.
const DEFAULT_SHARDS: u16 = 16;

/// Heads of a database and of a table of that name.
struct Heads {
    database: DatabaseHead,
    /// Belongs to the database only if it names its id; else it is left over from an earlier one.
    table: Option<TableRef>,
}

impl Heads {
    fn live(self) -> Option<TableRef> {
        let id = self.database.database_id;
        self.table.filter(|table| table.database_id == id)
    }
}

/// Both heads in one strong batch get.
async fn read_heads(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    database: &str,
    table: &str,
) -> Result<Heads, CatalogError> {
    let (folded_database, folded_table) = (fold(database), fold(table));
    if !can_exist(&folded_database) {
        return Err(CatalogError::DatabaseNotFound(database.to_owned()));
    }
    if !can_exist(&folded_table) {
        return Err(CatalogError::TableNotFound(table.to_owned()));
    }
    let at_database = database_item::head_key(&folded_database);
    let at_table = table_head_item::key(&folded_database, &folded_table);
    let mut found = get_every(items, clock, &[at_database.clone(), at_table.clone()], Consistency::Strong).await?;
    let item = found.remove(&at_database).ok_or_else(|| CatalogError::DatabaseNotFound(database.to_owned()))?;
    let head = found.remove(&at_table);
    let table = head.map(|item| table_head_item::decode(&folded_database, &folded_table, &item)).transpose()?;
    Ok(Heads { database: decode_head(&item)?, table })
}

/// The live table of this name; one strong batch get.
///
/// # Errors
/// [`CatalogError::DatabaseNotFound`], [`CatalogError::TableNotFound`] with the names as given.
pub async fn find_table(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    database: &str,
    table: &str,
) -> Result<TableRef, CatalogError> {
    let heads = read_heads(items, clock, database, table).await?;
    heads.live().ok_or_else(|| CatalogError::TableNotFound(table.to_owned()))
}

/// The definition of a table; none if it was dropped meanwhile. One strong get.
pub async fn read_definition(ports: &Ports, table: &TableId) -> Result<Option<TableDefinition>, CatalogError> {
    let Some(mut item) = ports.items.get(&table_definition_item::key(table), Consistency::Strong).await? else {
        return Ok(None);
    };
    match load_body(ports, Owner::Table(table), &mut item).await {
        Ok(()) => Ok(Some(table_definition_item::decode(&item)?)),
        Err(CatalogError::DroppedMeanwhile) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The live table of this name with its definition; a strong batch get and a strong get. Of an update that happens in
/// between, the definition may say more than the head: its version is the one to show.
pub async fn get_table(
    ports: &Ports,
    database: &str,
    table: &str,
) -> Result<(TableRef, TableDefinition), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let found = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?;
        if let Some(definition) = read_definition(ports, &found.table_id).await? {
            return Ok((found, definition));
        }
        // Dropped, perhaps created again, between the two reads.
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Table {table}")));
        }
    }
}

pub(super) fn put(key: Key, item: Item, condition: Condition) -> Write {
    Write::Put { key, item, condition }
}

pub(super) fn put_location(table: &TableRef, location: Location) -> Write {
    let entry = LocationEntry {
        location,
        database: table.database.clone(),
        table: table.name.clone(),
        table_id: table.table_id.clone(),
    };
    let key = location_item::key(&entry.location, &table.table_id);
    put(key, location_item::encode(&entry), Condition::Always)
}

/// What must go with a table's head. The tombstone comes first.
fn writes_to_forget(table: &TableRef, definition: Option<&TableDefinition>, now_ms: i64) -> Vec<Write> {
    let dropped = Dropped::Table {
        table_id: table.table_id.clone(),
        epoch: table.epoch,
        shards: table.shards,
        next_index: table.next_index,
    };
    let tombstone = Tombstone { dropped, dropped_ms: now_ms };
    let mut writes = vec![
        put(tombstone.key(), tombstone_item::encode(&tombstone), Condition::Always),
        Write::Delete { key: table_definition_item::key(&table.table_id), condition: Condition::Always },
    ];
    if let Some(Ok(Some(location))) = definition.map(TableDefinition::location) {
        let key = location_item::key(&location, &table.table_id);
        writes.push(Write::Delete { key, condition: Condition::Always });
    }
    let names = (table.database.as_str(), table.name.as_str());
    let left = definition.and_then(|definition| DroppedTable::of(&table.table_id, names, definition, now_ms));
    writes.extend(left.map(|left| put(left.key(), left.encode(), Condition::Always)));
    writes
}

/// Creates a table from a checked `TableInput`.
///
/// # Errors
/// [`CatalogError::TableExists`], [`CatalogError::DatabaseNotFound`], [`CatalogError::NotReady`] while a sweep deletes a batch
/// of files around its location, and locations or definitions that cannot be kept.
pub async fn create_table(ports: &Ports, database: &str, input: Map<String, Json>) -> Result<TableRef, CatalogError> {
    create_indexed_table(ports, database, input, &[], None).await
}

/// The same with partition indexes, and with a note of how long changes of partitions are kept (milliseconds).
///
/// # Errors
/// Those of [`create_table`] and of [`super::indexes::create_index`].
pub async fn create_indexed_table(
    ports: &Ports,
    database: &str,
    input: Map<String, Json>,
    indexes: &[NewIndex],
    kept_ms: Option<i64>,
) -> Result<TableRef, CatalogError> {
    let now_ms = ports.clock.now_ms();
    let definition = TableDefinition::new(input, now_ms);
    let table_id = TableId::fresh(ports.ids.as_ref());
    let mut stored = None;
    let outcome = create_as(ports, database, (&definition, indexes, kept_ms), &table_id, &mut stored).await;
    if let (Err(error), Some(item)) = (&outcome, &stored)
        // Whether a silent store did the write is not known.
        && !matches!(error, CatalogError::Store(_))
    {
        forget_body(ports, Owner::Table(&table_id), item).await;
    }
    outcome
}

async fn create_as(
    ports: &Ports,
    database: &str,
    (definition, indexes, kept_ms): (&TableDefinition, &[NewIndex], Option<i64>),
    table_id: &TableId,
    stored: &mut Option<Item>,
) -> Result<TableRef, CatalogError> {
    let now_ms = definition.updated_ms;
    let location = definition.location()?;
    let name = definition.input.get("Name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let keys = definition.partition_keys();
    let more: Vec<(Location, Use)> = uses_of(definition);
    let places: Vec<Location> = location.iter().chain(more.iter().map(|(place, _)| place)).cloned().collect();
    let (mut rounds, mut gate) = (Rounds::default(), Gate::default());
    loop {
        let heads = read_heads(ports.items.as_ref(), ports.clock.as_ref(), database, &name).await?;
        let database_id = heads.database.database_id;
        let leftover = match heads.table {
            Some(table) if table.database_id == database_id => return Err(CatalogError::TableExists),
            other => other,
        };
        let table = TableRef {
            database: fold(database),
            database_id: database_id.clone(),
            name: name.clone(),
            table_id: table_id.clone(),
            epoch_types: keys.iter().map(|key| KeyType::of(&key.type_name)).collect(),
            keys: keys.clone(),
            epoch: FIRST_EPOCH,
            shards: DEFAULT_SHARDS,
            irregular: Irregular::NONE,
            older_epochs: Vec::new(),
            indexes: Vec::new(),
            next_index: 0,
            has_statistics: false,
            home: location.clone(),
            approximate_partitions: 0,
            history: kept_ms.map(|kept_ms| HistoryKept::since_creation(kept_ms, now_ms)),
            version: 0,
            revision: Revision::fresh(ports.ids.as_ref()),
            created_ms: now_ms,
        };
        let table = plan_first(table, indexes)?;
        let item = match &stored {
            Some(item) => item,
            None => stored.insert(stored_definition(ports, table_id, definition).await?),
        };
        let mut writes = writes_to_create(&table, item.clone(), location.clone(), leftover.as_ref())?;
        writes.extend(put_uses(&table, &more)?);
        writes.extend(gate.check(ports, &places).await?);
        if let Some(leftover) = &leftover {
            let old = read_definition(ports, &leftover.table_id).await?;
            writes.extend(writes_to_forget(leftover, old.as_ref(), now_ms));
        }
        match transact(ports, &writes).await {
            Ok(()) => {
                if let Some(leftover) = leftover {
                    work::request(ports, &CatalogWork::PurgeTable(leftover.table_id)).await;
                }
                return Ok(table);
            }
            // Somebody was faster, the database is gone, or a sweep deletes around the place: look again.
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Table {name}")));
        }
    }
}

/// Places outside its location that a table says it uses.
pub(super) fn uses_of(definition: &TableDefinition) -> Vec<(Location, Use)> {
    definition.additional_locations().into_iter().map(|place| (place, Use::Additional)).collect()
}

/// The definition's item, ready to be put.
pub(super) async fn stored_definition(
    ports: &Ports,
    table: &TableId,
    definition: &TableDefinition,
) -> Result<Item, CatalogError> {
    let key = table_definition_item::key(table);
    let mut item = table_definition_item::encode(definition)?;
    store_body(ports, Owner::Table(table), &key, &mut item, table_definition_item::DEFINITION).await?;
    Ok(item)
}

fn writes_to_create(
    table: &TableRef,
    definition: Item,
    location: Option<Location>,
    leftover: Option<&TableRef>,
) -> Result<Vec<Write>, CatalogError> {
    let free = match leftover {
        None => Condition::Absent,
        Some(leftover) => Condition::equals("revision", leftover.revision.as_str()),
    };
    let head = table_head_item::encode(table);
    let at_head = table_head_item::key(&table.database, &table.name);
    super::body::check_item_size(&at_head, &head, "The list of this table's partition keys")?;
    let mut writes = vec![
        Write::Check {
            key: database_item::head_key(&table.database),
            condition: Condition::equals("database_id", table.database_id.as_str()),
        },
        put(at_head, head, free),
        put(table_definition_item::key(&table.table_id), definition, Condition::Absent),
    ];
    writes.extend(location.map(|location| put_location(table, location)));
    Ok(writes)
}

/// Drops a table: head, definition and location entry in one transaction, so that it and its partitions are unreachable
/// at once. The worker removes the partitions.
pub async fn drop_table(ports: &Ports, database: &str, table: &str) -> Result<(), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let found = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?;
        if drop_found(ports, &found).await? {
            return Ok(());
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Table {table}")));
        }
    }
}

/// Drops this very table; `false` if it changed or went meanwhile.
pub(super) async fn drop_found(ports: &Ports, table: &TableRef) -> Result<bool, CatalogError> {
    let definition = read_definition(ports, &table.table_id).await?;
    let mut writes = vec![Write::Delete {
        key: table_head_item::key(&table.database, &table.name),
        condition: Condition::equals("revision", table.revision.as_str()),
    }];
    writes.extend(writes_to_forget(table, definition.as_ref(), ports.clock.now_ms()));
    match transact(ports, &writes).await {
        Ok(()) => {
            work::request(ports, &CatalogWork::PurgeTable(table.table_id.clone())).await;
            Ok(true)
        }
        Err(cancelled) => {
            lost_to_others(cancelled)?;
            Ok(false)
        }
    }
}
