//! Item: something was dropped and what hung below it is still to be removed. `catalog`, pk `dropped`, sk
//! `database#<id>` or `table#<id>`. Written in the transaction that drops, removed when nothing is left, so that a
//! message lost on the way loses no work.

use super::{DatabaseId, TableId};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// Partition key of all of them.
pub(super) const DROPPED: &str = "dropped";

/// What was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    Database {
        database_id: DatabaseId,
        /// Folded; its tables' heads are kept under the name.
        name: String,
    },
    Table {
        table_id: TableId,
        /// Latest epoch; earlier ones may hold partitions too.
        epoch: u32,
        shards: u16,
        /// Number that the next index would have had.
        next_index: u32,
    },
}

/// When and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub dropped: Dropped,
    pub dropped_ms: i64,
}

pub(super) fn database_key(id: &DatabaseId) -> Key {
    Key::new(Table::Catalog, DROPPED, format!("database#{id}"))
}

pub(super) fn table_key(id: &TableId) -> Key {
    Key::new(Table::Catalog, DROPPED, format!("table#{id}"))
}

impl Tombstone {
    pub(super) fn key(&self) -> Key {
        match &self.dropped {
            Dropped::Database { database_id, .. } => database_key(database_id),
            Dropped::Table { table_id, .. } => table_key(table_id),
        }
    }
}

pub(super) fn encode(tombstone: &Tombstone) -> Item {
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("dropped_ms".to_owned(), Value::Int(tombstone.dropped_ms)),
    ]);
    match &tombstone.dropped {
        Dropped::Database { database_id, name } => {
            item.insert("database_id".to_owned(), database_id.into());
            item.insert("name".to_owned(), name.as_str().into());
        }
        Dropped::Table { table_id, epoch, shards, next_index } => {
            item.insert("table_id".to_owned(), table_id.into());
            item.insert("epoch".to_owned(), Value::Int(i64::from(*epoch)));
            item.insert("shards".to_owned(), Value::Int(i64::from(*shards)));
            item.insert("next_index".to_owned(), Value::Int(i64::from(*next_index)));
        }
    }
    item
}

pub(super) fn decode(item: &Item) -> Result<Tombstone, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let out_of_range =
        |field: &str| DecodeError::Invalid { field: field.to_owned(), message: "out of range".to_owned() };
    let dropped = match item.opt_text("table_id")? {
        Some(table_id) => Dropped::Table {
            table_id: TableId::from_text(table_id),
            epoch: u32::try_from(item.int("epoch")?).map_err(|_| out_of_range("epoch"))?,
            shards: u16::try_from(item.int("shards")?).map_err(|_| out_of_range("shards"))?,
            next_index: u32::try_from(item.opt_int("next_index")?.unwrap_or(0))
                .map_err(|_| out_of_range("next_index"))?,
        },
        None => Dropped::Database {
            database_id: DatabaseId::from_text(item.text("database_id")?),
            name: item.text("name")?.to_owned(),
        },
    };
    Ok(Tombstone { dropped, dropped_ms: item.int("dropped_ms")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_come_back() {
        let database = Dropped::Database { database_id: DatabaseId::from_text("d1"), name: "sales".to_owned() };
        let table = Dropped::Table { table_id: TableId::from_text("t1"), epoch: 3, shards: 64, next_index: 5 };
        for dropped in [database, table] {
            let tombstone = Tombstone { dropped, dropped_ms: 9 };
            assert_eq!(decode(&encode(&tombstone)).unwrap(), tombstone);
        }
    }
}
