//! Partitions under many clients at once, on a store that loses answers.

mod as_of;
mod bounded;
mod checker;
mod filters;
mod linearizability;
mod listing_counts;
mod skewed;
pub(crate) mod store;

use serde_json::Map;

use super::item::{self, Epoch, key_in};
use super::{Irregular, KeyType, index_item};
use crate::catalog::{
    DatabaseId, IndexRef, IndexState, KeyColumn, OlderEpoch, PartitionId, Revision, TableId, TableRef,
};
use crate::store::memory::MemoryWorld;
use crate::store::{Condition, Item};

/// A table with these keys, which is known to nobody.
pub(in crate::partition) fn table_with(keys: &[(&str, &str)], older: &[&[KeyType]], indexes: &[&[&str]]) -> TableRef {
    let column = |(name, kind): &(&str, &str)| KeyColumn { name: (*name).to_owned(), type_name: (*kind).to_owned() };
    let index = |(at, keys): (usize, &&[&str])| IndexRef {
        number: u32::try_from(at).unwrap() + 1,
        name: format!("by_{}", keys.join("_")),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        state: IndexState::Active,
        is_complete: true,
        since_ms: 0,
    };
    let epoch = 1 + u32::try_from(older.len()).unwrap();
    let earlier = |(at, types): (usize, &&[KeyType])| OlderEpoch {
        epoch: epoch - 1 - u32::try_from(at).unwrap(),
        types: types.to_vec(),
        replaced_ms: 0,
    };
    TableRef {
        database: "d".to_owned(),
        database_id: DatabaseId::from_text("d"),
        name: "t".to_owned(),
        table_id: TableId::from_text("t1"),
        keys: keys.iter().map(column).collect(),
        epoch,
        epoch_types: keys.iter().map(|(_, kind)| KeyType::of(kind)).collect(),
        shards: 16,
        irregular: Irregular::ANY,
        older_epochs: older.iter().enumerate().map(earlier).collect(),
        indexes: indexes.iter().enumerate().map(index).collect(),
        next_index: 9,
        has_statistics: false,
        home: None,
        approximate_partitions: 0,
        history: None,
        version: 0,
        revision: Revision::from_text("r"),
        created_ms: 0,
    }
}

fn item_of(values: &[String]) -> Item {
    let template = item::template(values, None, None, &Map::new()).unwrap();
    item::stamp(&template, &PartitionId::from_text("p"), &Revision::from_text("r"), 0, 0)
}

/// Puts a partition with its index entries; in an earlier epoch without.
async fn put(world: &MemoryWorld, table: &TableRef, older: Option<&OlderEpoch>, values: &[String]) {
    let items = &world.ports.items;
    let epoch = match older {
        Some(older) => Epoch { number: older.epoch, types: &older.types },
        None => item::current_epoch(table),
    };
    items.put(&key_in(table, epoch, values), item_of(values), Condition::Always).await.unwrap();
    if older.is_none() {
        for entry in index_item::keys(table, values) {
            items.put(&entry, index_item::encode(values), Condition::Always).await.unwrap();
        }
    }
}

async fn remove(world: &MemoryWorld, table: &TableRef, values: &[String]) {
    world.ports.items.delete(&item::key(table, values), Condition::Always).await.unwrap();
    for entry in index_item::keys(table, values) {
        world.ports.items.delete(&entry, Condition::Always).await.unwrap();
    }
}
