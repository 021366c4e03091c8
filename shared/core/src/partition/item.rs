//! Item of a partition. `partitions`, pk `<table id>#<epoch>#p#<shard>`, sk the encoded values.

use serde_json::{Map, Value as Json};

use super::descriptor::Hash;
use super::index_item::values_of;
use super::key::{encode_key, shard_of};
use super::key_type::KeyType;
use crate::catalog::{
    CatalogError, Owner, PartitionId, Revision, TableId, TableRef, body_size_bytes, decode_body, encode_body,
    store_body,
};
use crate::ports::Ports;
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// What [`stamp`] adds, at most.
const STAMP_BYTES: usize = 256;
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

/// Where the partition with these values is in an epoch, whether or not their number fits the table's keys.
pub(super) fn key_in(table: &TableRef, epoch: Epoch<'_>, values: &[String]) -> Key {
    let pk = place(&table.table_id, epoch.number, Kind::Current, shard_of(values, table.shards));
    Key::new(Table::Partitions, pk, encode_key(epoch.types, values))
}

/// The same in the current epoch.
pub(super) fn key(table: &TableRef, values: &[String]) -> Key {
    key_in(table, current_epoch(table), values)
}

const WHAT: &str = "This partition";

/// Everything that a partition's item says of the partition but which one it is; see [`stamp`].
pub(super) fn template(
    values: &[String],
    columns: Option<Hash>,
    format: Option<Hash>,
    body: &Map<String, Json>,
) -> Result<Item, CatalogError> {
    let values = values.iter().map(|value| Value::from(value.as_str())).collect();
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("values".to_owned(), Value::List(values)),
    ]);
    for (name, hash) in [("columns", columns), ("format", format)] {
        if let Some(Hash(hash)) = hash {
            item.insert(name.to_owned(), Value::Bytes(hash.to_vec()));
        }
    }
    encode_body(&mut item, body, WHAT)?;
    Ok(item)
}

/// Makes a template fit into an item at `key`: a body that is too large goes to S3.
pub(super) async fn make_room(
    ports: &Ports,
    table: &TableId,
    key: &Key,
    template: &mut Item,
) -> Result<(), CatalogError> {
    let room = Value::Bytes(vec![0; STAMP_BYTES + HISTORY_ROOM_BYTES]);
    template.insert("room".to_owned(), room);
    store_body(ports, Owner::Table(table), key, template, WHAT).await?;
    template.remove("room");
    Ok(())
}

/// The item of a partition, made of a template.
pub(super) fn stamp(
    template: &Item,
    partition_id: &PartitionId,
    revision: &Revision,
    created_ms: i64,
    valid_from_ms: i64,
) -> Item {
    let mut item = template.clone();
    item.insert("partition_id".to_owned(), partition_id.into());
    item.insert("revision".to_owned(), revision.into());
    item.insert("created_ms".to_owned(), Value::Int(created_ms));
    item.insert("valid_from_ms".to_owned(), Value::Int(valid_from_ms));
    item
}

/// Makes an item of a new partition one that is created now.
pub(super) fn restamp(item: &mut Item, now_ms: i64) {
    for field in ["created_ms", "valid_from_ms"] {
        item.insert(field.to_owned(), Value::Int(now_ms));
    }
}

/// To be called after `load_body`.
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
    use crate::catalog::load_body;
    use crate::limits::ITEM_MAX_BYTES;
    use crate::partition::history_item;
    use crate::store::item_size_bytes;
    use crate::store::memory::MemoryWorld;

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

    fn encode(partition: &PartitionItem) -> Item {
        let PartitionItem { values, partition_id, revision, created_ms, valid_from_ms, columns, format, body } =
            partition;
        let template = template(values, *columns, *format, body).unwrap();
        stamp(&template, partition_id, revision, *created_ms, *valid_from_ms)
    }

    fn at() -> Key {
        Key::new(Table::Partitions, "t#1#p#0", vec![1])
    }

    #[test]
    fn a_partition_comes_back() {
        assert_eq!(decode(&encode(&partition())).unwrap(), partition());
        let current = Current::read(at(), encode(&partition())).unwrap();
        assert_eq!((current.values, current.revision), (partition().values, partition().revision));
    }

    #[test]
    fn a_usual_partition_and_its_image_in_the_history_are_one_write_unit_each() {
        let current = Current::read(at(), encode(&partition())).unwrap();
        assert!(item_size_bytes(&at(), &current.item) < 1024);
        assert!(item_size_bytes(&at(), &history_item::encode(&current, 1_700_000_000_002, 1)) < 1024);
    }

    #[tokio::test]
    async fn a_large_partition_and_its_image_in_the_history_fit() {
        let world = MemoryWorld::new(0);
        let table = TableId::from_text("t1");
        // Digits of a hash do not compress below a half. Around both limits: of a body, and of the whole item.
        let noise: String = (0..14_000).map(|n| hex::encode(super::super::hash_of_values(&[n.to_string()]))).collect();
        for (values, body_bytes) in [(1, 695_000), (1, 890_000), (100, 695_000), (100, 20), (380, 20), (370, 60_000)] {
            let mut large = partition();
            large.values = (0..values).map(|n| format!("{n:0>1024}")).collect();
            large.body.insert("Parameters".to_owned(), json!({ "a": noise[..body_bytes] }));
            let mut template = template(&large.values, large.columns, large.format, &large.body).unwrap();
            make_room(&world.ports, &table, &at(), &mut template).await.unwrap();
            let item = stamp(&template, &large.partition_id, &large.revision, large.created_ms, large.valid_from_ms);
            let current = Current::read(at(), item.clone()).unwrap();
            let past = history_item::encode(&current, i64::MAX - 1, 1);
            let longest = Key::new(Table::Partitions, "t#1#h#0", vec![1; 1024]);
            assert!(item_size_bytes(&longest, &past) <= ITEM_MAX_BYTES, "{values} {body_bytes}");
            let mut read = item;
            load_body(&world.ports, Owner::Table(&table), &mut read).await.unwrap();
            assert_eq!(decode(&read).unwrap(), large, "{values} {body_bytes}");
        }
    }

    #[tokio::test]
    async fn one_whose_values_alone_are_too_large_is_refused_by_name() {
        let world = MemoryWorld::new(0);
        let values: Vec<String> = (0..100).map(|n| format!("{n:😀>1024}")).collect();
        let mut template = template(&values, None, None, &Map::new()).unwrap();
        let refused = make_room(&world.ports, &TableId::from_text("t1"), &at(), &mut template).await.unwrap_err();
        assert!(refused.to_string().starts_with("This partition"), "{refused}");
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
            let mut item = encode(&partition());
            item.insert(field.to_owned(), value);
            assert!(decode(&item).is_err(), "{field}");
        }
    }
}
