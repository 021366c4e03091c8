//! Item: statistics of one column of a partition or of a table. `partitions`, pk `<table id>#s#<shard>`, the shard by a
//! hash of the owner's id; sk the owner's id, then the SHA-256 of the column's name.
//!
//! They hang on the id, so a partition that moves keeps them, and one that is created again begins without. One item per
//! column: clients write the columns of one owner from several threads.

use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::key::shard_of;
use crate::catalog::{CatalogError, PartitionId, Revision, TableId, decode_body, encode_body};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// Whose statistics they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatisticsOwner {
    Table(TableId),
    Partition(PartitionId),
}

impl StatisticsOwner {
    fn id(&self) -> &str {
        match self {
            Self::Table(id) => id.as_str(),
            Self::Partition(id) => id.as_str(),
        }
    }
}

fn place(table: &TableId, shard: u16) -> String {
    format!("{table}#s#{shard}")
}

/// Partition keys under which all statistics of a table and its partitions are.
pub(crate) fn places_of(table: &TableId, shards: u16) -> impl Iterator<Item = (Table, String)> + use<> {
    let table = table.clone();
    (0..shards).map(move |shard| (Table::Partitions, place(&table, shard)))
}

/// Partition key of the item store under which the statistics of one owner are, and what their range keys begin with.
pub(super) fn place_of(table: &TableId, shards: u16, owner: &StatisticsOwner) -> (String, Vec<u8>) {
    let shard = shard_of(&[owner.id().to_owned()], shards);
    (place(table, shard), owner.id().as_bytes().to_vec())
}

pub(super) fn key(table: &TableId, shards: u16, owner: &StatisticsOwner, folded_column: &str) -> Key {
    let (pk, mut sort) = place_of(table, shards, owner);
    sort.extend_from_slice(&Sha256::digest(folded_column.as_bytes()));
    Key::new(Table::Partitions, pk, sort)
}

/// What it is in a refusal.
pub(super) const WHAT: &str = "The statistics of this column";

/// `statistics` is a `ColumnStatistics` of the service model. To be put after `store_body`.
pub(super) fn encode(revision: &Revision, statistics: &Map<String, Json>) -> Result<Item, CatalogError> {
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("revision".to_owned(), revision.into()),
    ]);
    encode_body(&mut item, statistics, WHAT)?;
    Ok(item)
}

/// To be called after `load_body`.
pub(super) fn decode(item: &Item) -> Result<Map<String, Json>, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    decode_body(item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_come_back_and_each_column_has_its_place() {
        let (table, partition) = (TableId::from_text("t1"), StatisticsOwner::Partition(PartitionId::from_text("p1")));
        let at = |owner: &StatisticsOwner, column: &str| key(&table, 16, owner, column);
        let given = json!({ "ColumnName": "a", "StatisticsData": { "Type": "LONG" } }).as_object().unwrap().clone();
        let revision = Revision::from_text("r");
        assert_eq!(decode(&encode(&revision, &given).unwrap()).unwrap(), given);
        let own = StatisticsOwner::Table(table.clone());
        assert_ne!(at(&partition, "a"), at(&partition, "b"));
        assert_ne!(at(&partition, "a"), at(&own, "a"));
        let (pk, prefix) = place_of(&table, 16, &partition);
        assert!(at(&partition, "a").pk == pk && at(&partition, "a").sk.as_bytes().starts_with(&prefix));
        assert!(places_of(&table, 16).any(|(_, place)| place == pk));
    }
}
