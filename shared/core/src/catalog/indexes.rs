//! Partition indexes of a table: create, delete, list.
//!
//! An index never decides what an answer says, only what it costs. It is part of the table's head, so every write knows
//! it; entries of partitions that were there before are the worker's business. Texts and the order of checks are those
//! recorded of the service.

use super::rounds::{Rounds, lost_to_others};
use super::tables::find_table;
use super::work::{self, CatalogWork};
use super::writes::transact;
use super::{CatalogError, IndexRef, IndexState, Revision, TableRef, fold, table_head_item, work_item};
use crate::ports::Ports;
use crate::store::{Condition, Write};

/// Indexes of one table.
pub const INDEXES_MAX: usize = 3;

/// What a caller says of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    pub name: String,
    pub keys: Vec<String>,
}

/// Indexes that callers see, in order of name.
pub fn shown(table: &TableRef) -> Vec<&IndexRef> {
    let mut shown: Vec<&IndexRef> = table.indexes.iter().filter(|index| index.state != IndexState::Removed).collect();
    shown.sort_by(|left, right| left.name.cmp(&right.name));
    shown
}

/// Refuses an index whose keys are not some of the table's, each once.
fn check_keys(table: &TableRef, new: &NewIndex) -> Result<Vec<String>, CatalogError> {
    let keys: Vec<String> = new.keys.iter().map(|key| fold(key)).collect();
    for (at, key) in keys.iter().enumerate() {
        if !table.keys.iter().any(|column| column.name == *key) {
            let sent = new.keys.get(at).unwrap_or(key);
            return Err(CatalogError::Invalid(format!(
                "IndexKeys not a part of PartitionColumns. Verify the indexKeys : [{sent}]"
            )));
        }
        if keys.iter().take(at).any(|earlier| earlier == key) {
            return Err(CatalogError::Invalid(format!("An index names each of its keys once: {key} is there twice.")));
        }
    }
    if keys.is_empty() {
        return Err(CatalogError::Invalid("An index has at least one key.".to_owned()));
    }
    Ok(keys)
}

/// Only one index of a table is created or deleted at a time.
fn check_idle(table: &TableRef) -> Result<(), CatalogError> {
    match table.indexes.iter().find(|index| matches!(index.state, IndexState::Creating | IndexState::Deleting)) {
        None => Ok(()),
        Some(IndexRef { name, state, .. }) => Err(CatalogError::LimitExceeded(format!(
            "Index {name} is in {} state. Only 1 index can be created or deleted simultaneously per table.",
            state.as_str()
        ))),
    }
}

/// The table with one more index in this state.
fn plan_add(table: &TableRef, new: &NewIndex, state: IndexState, now_ms: i64) -> Result<TableRef, CatalogError> {
    let keys = check_keys(table, new)?;
    check_idle(table)?;
    let others = shown(table);
    if others.len() >= INDEXES_MAX {
        let text = format!("Partition index limit exceeded. Maximum: {INDEXES_MAX}");
        return Err(CatalogError::LimitExceeded(text));
    }
    let name = fold(&new.name);
    if others.iter().any(|other| other.name == name) {
        let text = format!("Partition Index {} already exists with the same name.", new.name);
        return Err(CatalogError::Exists(text));
    }
    if let Some(other) = others.iter().find(|other| other.keys == keys) {
        let text = format!("Partition Index {} already exists with the same keys.", other.name);
        return Err(CatalogError::Exists(text));
    }
    let number = table.next_index.max(1);
    let is_complete = state == IndexState::Active;
    let mut next = TableRef { next_index: number.saturating_add(1), ..table.clone() };
    next.indexes.push(IndexRef { number, name, keys, state, is_complete, since_ms: now_ms });
    Ok(next)
}

/// A table that is about to be created, with these indexes. They have nothing to catch up with: no request knows the
/// table without them.
///
/// # Errors
/// As [`create_index`].
pub(super) fn plan_first(table: TableRef, indexes: &[NewIndex]) -> Result<TableRef, CatalogError> {
    let now_ms = table.created_ms;
    indexes.iter().try_fold(table, |table, new| plan_add(&table, new, IndexState::Active, now_ms))
}

fn plan_delete(table: &TableRef, sent_name: &str, now_ms: i64) -> Result<TableRef, CatalogError> {
    let name = fold(sent_name);
    // One that is being created or deleted cannot be addressed, as on the service.
    let at = table.indexes.iter().position(|index| index.state == IndexState::Active && index.name == name);
    let missing = || CatalogError::NotFound(format!("Index with the given indexName : {sent_name} does not exist."));
    let at = at.ok_or_else(missing)?;
    check_idle(table)?;
    let mut next = table.clone();
    let index = next.indexes.get_mut(at).ok_or_else(missing)?;
    *index = IndexRef { state: IndexState::Deleting, is_complete: false, since_ms: now_ms, ..index.clone() };
    Ok(next)
}

/// Changes a table's head as `plan` says and records the work that this makes, in one transaction.
async fn change(
    ports: &Ports,
    database: &str,
    table: &str,
    plan: impl Fn(&TableRef, i64) -> Result<TableRef, CatalogError>,
) -> Result<(), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let current = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?;
        let now_ms = ports.clock.now_ms();
        let next = TableRef { revision: Revision::fresh(ports.ids.as_ref()), ..plan(&current, now_ms)? };
        let head = table_head_item::encode(&next);
        let key = table_head_item::key(&next.database, &next.name);
        super::body::check_item_size(&key, &head, "The list of this table's indexes")?;
        let condition = Condition::equals("revision", current.revision.as_str());
        let writes = [Write::Put { key, item: head, condition }, work_item::open(ports, &next)];
        match transact(ports, &writes).await {
            Ok(()) => {
                work::request(ports, &CatalogWork::SettleTable(next.table_id)).await;
                return Ok(());
            }
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::OutOfTime);
        }
    }
}

/// Creates an index. Every write keeps its entries from now on; the worker adds those of older partitions. One batch get
/// and one transaction.
///
/// # Errors
/// [`CatalogError::Invalid`] for keys that the table does not have; [`CatalogError::Exists`] for the name or the keys of
/// another index; [`CatalogError::LimitExceeded`] for a fourth one, and while another is being created or deleted.
pub async fn create_index(ports: &Ports, database: &str, table: &str, new: &NewIndex) -> Result<(), CatalogError> {
    change(ports, database, table, |table, now_ms| plan_add(table, new, IndexState::Creating, now_ms)).await
}

/// Deletes an index: no write keeps its entries and no read uses it from now on; the worker removes them.
///
/// # Errors
/// [`CatalogError::NotFound`], also for one that is being created or deleted; [`CatalogError::LimitExceeded`] while
/// another is.
pub async fn delete_index(ports: &Ports, database: &str, table: &str, name: &str) -> Result<(), CatalogError> {
    change(ports, database, table, |table, now_ms| plan_delete(table, name, now_ms)).await
}
