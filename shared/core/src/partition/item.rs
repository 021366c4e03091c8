//! Item of a partition. `partitions`, pk `<table id>#<epoch>#p#<shard>`, sk the encoded values.

use serde_json::{Map, Value as Json};

use super::descriptor::Hash;
use super::index_item::values_of;
use super::key::{encode_key, shard_of};
use super::key_type::KeyType;
use crate::catalog::{
    CatalogError, PartitionId, Revision, TableId, TableRef, body_size_bytes, check_item_size, decode_body, encode_body,
};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// Left free in every item, so that its image in the history, which says a little more, fits as well.
const HISTORY_ROOM_BYTES: usize = 256;

/// What is kept of partitions under partition keys of their own, so that listings read partitions only. Index entries
/// and statistics have theirs in their own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Partitions as they are now.
    Current,
    History,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Current => "p",
            Self::History => "h",
        }
    }
}

/// A generation of key encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch<'a> {
    pub(super) number: u32,
    pub(super) types: &'a [KeyType],
}

/// The epoch that a table's partitions are written to.
pub(super) fn current_epoch(table: &TableRef) -> Epoch<'_> {
    Epoch { number: table.epoch, types: &table.epoch_types }
}

/// The epochs that may still hold partitions, newest first.
pub(super) fn older_epochs(table: &TableRef) -> impl Iterator<Item = Epoch<'_>> {
    table.older_epochs.iter().map(|older| Epoch { number: older.epoch, types: &older.types })
}

/// A partition as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionItem {
    pub values: Vec<String>,
    pub partition_id: PartitionId,
    pub revision: Revision,
    pub created_ms: i64,
    /// Since when it says what it says.
    pub valid_from_ms: i64,
    pub(super) columns: Option<Hash>,
    pub(super) format: Option<Hash>,
    /// What the partition's input said, its descriptor's shared parts aside.
    pub(super) body: Map<String, Json>,
}

/// A stored partition as a writer needs it: where it is and which state it is in. What it says stays unread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Current {
    pub(super) key: Key,
    pub(super) item: Item,
    pub(super) values: Vec<String>,
    pub(super) partition_id: PartitionId,
    pub(super) revision: Revision,
    pub(super) created_ms: i64,
    pub(super) valid_from_ms: i64,
}

impl Current {
    pub(super) fn read(key: Key, item: Item) -> Result<Self, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(Self {
            values: values_of(&item)?,
            partition_id: PartitionId::from_text(item.text("partition_id")?),
            revision: Revision::from_text(item.text("revision")?),
            created_ms: item.int("created_ms")?,
            valid_from_ms: item.int("valid_from_ms")?,
            key,
            item,
        })
    }
}

pub(super) fn place(table: &TableId, epoch: u32, kind: Kind, shard: u16) -> String {
    format!("{table}#{epoch}#{}#{shard}", kind.as_str())
}

/// Partition keys under which partitions of one epoch are.
pub(crate) fn places_of(table: &TableId, epoch: u32, shards: u16) -> impl Iterator<Item = (Table, String)> + use<> {
    let table = table.clone();
    (0..shards).map(move |shard| (Table::Partitions, place(&table, epoch, Kind::Current, shard)))
}

pub(super) fn place_of_shard(table: &TableRef, shard: u16) -> String {
    place(&table.table_id, table.epoch, Kind::Current, shard)
}

/// Where the partition with these values is in an epoch, whether or not their number fits the table's keys.
pub(super) fn key_in(table: &TableRef, epoch: Epoch<'_>, values: &[String]) -> Key {
    let pk = place(&table.table_id, epoch.number, Kind::Current, shard_of(values, table.shards));
    Key::new(Table::Partitions, pk, encode_key(epoch.types, values))
}

/// The same in the current epoch.
pub(super) fn key(table: &TableRef, values: &[String]) -> Key {
    key_in(table, current_epoch(table), values)
}

pub(super) fn encode(key: &Key, partition: &PartitionItem) -> Result<Item, CatalogError> {
    let values = partition.values.iter().map(|value| Value::from(value.as_str())).collect();
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("values".to_owned(), Value::List(values)),
        ("partition_id".to_owned(), (&partition.partition_id).into()),
        ("revision".to_owned(), (&partition.revision).into()),
        ("created_ms".to_owned(), Value::Int(partition.created_ms)),
        ("valid_from_ms".to_owned(), Value::Int(partition.valid_from_ms)),
    ]);
    for (name, hash) in [("columns", partition.columns), ("format", partition.format)] {
        if let Some(Hash(hash)) = hash {
            item.insert(name.to_owned(), Value::Bytes(hash.to_vec()));
        }
    }
    encode_body(&mut item, &partition.body, "This partition")?;
    let room = Value::Bytes(vec![0; HISTORY_ROOM_BYTES]);
    item.insert("room".to_owned(), room);
    let checked = check_item_size(key, &item, "This partition");
    item.remove("room");
    checked.map(|()| item)
}

pub(super) fn decode(item: &Item) -> Result<PartitionItem, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let wrong = |field: &str, expected| DecodeError::WrongType { field: field.to_owned(), expected };
    let hash = |field: &str| match item.get(field) {
        None => Ok(None),
        Some(Value::Bytes(bytes)) => {
            bytes.as_slice().try_into().map(|hash| Some(Hash(hash))).map_err(|_| wrong(field, "32 bytes"))
        }
        Some(_) => Err(wrong(field, "32 bytes")),
    };
    Ok(PartitionItem {
        values: values_of(item)?,
        partition_id: PartitionId::from_text(item.text("partition_id")?),
        revision: Revision::from_text(item.text("revision")?),
        created_ms: item.int("created_ms")?,
        valid_from_ms: item.int("valid_from_ms")?,
        columns: hash("columns")?,
        format: hash("format")?,
        body: decode_body(item)?,
    })
}

/// Length of the partition's own JSON, without reading it.
pub(super) fn size_bytes(item: &Item) -> usize {
    body_size_bytes(item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::item_size_bytes;

    fn partition() -> PartitionItem {
        PartitionItem {
            values: vec!["2024".to_owned(), "a\0😀".to_owned()],
            partition_id: PartitionId::from_text("p".repeat(32)),
            revision: Revision::from_text("r".repeat(32)),
            created_ms: 1_700_000_000_000,
            valid_from_ms: 1_700_000_000_001,
            columns: Some(Hash([1; 32])),
            format: None,
            body: json!({ "Location": "s3://b/t/year=2024/x=1", "LastAccessTime": 1.5 }).as_object().unwrap().clone(),
        }
    }

    fn at() -> Key {
        Key::new(Table::Partitions, "t#1#p#0", vec![1])
    }

    #[test]
    fn a_partition_comes_back() {
        assert_eq!(decode(&encode(&at(), &partition()).unwrap()).unwrap(), partition());
    }

    #[test]
    fn a_usual_partition_is_one_write_unit() {
        assert!(item_size_bytes(&at(), &encode(&at(), &partition()).unwrap()) < 1024);
    }

    #[test]
    fn one_that_is_too_large_is_refused_by_name() {
        let mut large = partition();
        // Digits of a hash do not compress.
        let noise: String = (0..8_000).map(|n| hex::encode(super::super::hash_of_values(&[n.to_string()]))).collect();
        large.body.insert("Parameters".to_owned(), json!({ "a": noise, "b": noise.chars().rev().collect::<String>() }));
        let error = encode(&at(), &large).unwrap_err().to_string();
        assert!(error.starts_with("This partition, compressed, takes "), "{error}");
    }

    #[test]
    fn a_damaged_item_is_an_error() {
        for (field, value) in [
            ("values", Value::Int(1)),
            ("values", Value::List(vec![Value::Int(1)])),
            ("columns", Value::Bytes(vec![1])),
            ("body", Value::Bytes(b"{".to_vec())),
            ("schema_version", Value::Int(7)),
        ] {
            let mut item = encode(&at(), &partition()).unwrap();
            item.insert(field.to_owned(), value);
            assert!(decode(&item).is_err(), "{field}");
        }
    }
}
