//! Item: entry of a partition index. `partitions`, pk `<table id>#<epoch>#i<index number>#<shard>`, sk the encoded values
//! with the index's keys first, then the others in the table's order.
//!
//! An entry is a pointer: it holds the values of a partition and nothing else, so an update that leaves the values alone
//! leaves it alone too. Its shard is the partition's. Whoever follows it reads the partition itself, so one that points
//! nowhere does no harm.

use super::key::{encode_key, shard_of};
use super::key_type::KeyType;
use crate::catalog::{IndexRef, IndexState, TableId, TableRef};
use crate::store::{self, DecodeError, Fields, Item, Key, LateItem, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// The attribute that holds the values.
pub(super) const VALUES: &str = "values";

pub(super) fn place(table: &TableId, epoch: u32, index: u32, shard: u16) -> String {
    format!("{table}#{epoch}#i{index}#{shard}")
}

/// Partition keys of the item store under which the entries of an index are.
pub(crate) fn places_of(table: &TableId, epoch: u32, index: u32, shards: u16) -> impl Iterator<Item = String> + use<> {
    let table = table.clone();
    (0..shards).map(move |shard| place(&table, epoch, index, shard))
}

/// Positions of the table's keys in the order of the index; none if one of its keys is not a key of the table.
pub(super) fn order(table: &TableRef, index: &IndexRef) -> Option<Vec<usize>> {
    let position = |name: &String| table.keys.iter().position(|key| key.name == *name);
    let mut order: Vec<usize> = index.keys.iter().map(position).collect::<Option<_>>()?;
    let others: Vec<usize> = (0..table.keys.len()).filter(|at| !order.contains(at)).collect();
    order.extend(others);
    Some(order)
}

/// Where the entry of the partition with these values is. None for values of another number than the table has keys: no
/// filter finds such a partition.
pub(crate) fn key(table: &TableRef, index: &IndexRef, values: &[String]) -> Option<Key> {
    if values.len() != table.keys.len() {
        return None;
    }
    let order = order(table, index)?;
    let types: Vec<KeyType> =
        order.iter().map(|at| table.epoch_types.get(*at).copied().unwrap_or(KeyType::Text)).collect();
    let reordered: Vec<String> = order.iter().filter_map(|at| values.get(*at).cloned()).collect();
    let pk = place(&table.table_id, table.epoch, index.number, shard_of(values, table.shards));
    Some(Key::new(Table::Partitions, pk, encode_key(&types, &reordered)))
}

/// Indexes whose entries every write keeps.
pub(crate) fn kept(table: &TableRef) -> impl Iterator<Item = &IndexRef> {
    table.indexes.iter().filter(|index| matches!(index.state, IndexState::Creating | IndexState::Active))
}

/// Keys of all entries that a partition with these values has.
pub(super) fn keys(table: &TableRef, values: &[String]) -> Vec<Key> {
    kept(table).filter_map(|index| key(table, index, values)).collect()
}

/// The entry of a partition with these values (in the table's order).
pub(super) fn encode(values: &[String]) -> Item {
    let values = values.iter().map(|value| Value::from(value.as_str())).collect();
    Item::from([("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)), ("values".to_owned(), Value::List(values))])
}

/// Values of the partition that an entry points to, in the table's order.
pub(super) fn decode(item: &Item) -> Result<Vec<String>, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    values_of(item)
}

/// The attribute `values`, which partitions, their history and index entries have alike.
pub(super) fn values_of(item: &Item) -> Result<Vec<String>, DecodeError> {
    Ok(texts_of(item)?.into_iter().map(str::to_owned).collect())
}

fn no_texts() -> DecodeError {
    DecodeError::WrongType { field: VALUES.to_owned(), expected: "a list of texts" }
}

/// The same of an item that was skimmed for it.
pub(super) fn late_texts_of(item: &LateItem) -> Result<Vec<&str>, DecodeError> {
    item.texts(VALUES).ok_or_else(no_texts)
}

/// The same, for those who only look.
fn texts_of(item: &Item) -> Result<Vec<&str>, DecodeError> {
    store::texts_of(item, VALUES).ok_or_else(no_texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DatabaseId, KeyColumn, Revision};
    use crate::partition::Irregular;

    fn index(number: u32, keys: &[&str], state: IndexState) -> IndexRef {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        IndexRef { number, name: format!("i{number}"), keys, state, is_complete: false, since_ms: 0 }
    }

    fn table() -> TableRef {
        let key = |name: &str, kind: &str| KeyColumn { name: name.to_owned(), type_name: kind.to_owned() };
        TableRef {
            database: "d".to_owned(),
            database_id: DatabaseId::from_text("d"),
            name: "t".to_owned(),
            table_id: TableId::from_text("t1"),
            keys: vec![key("year", "int"), key("region", "string"), key("day", "date")],
            epoch: 3,
            epoch_types: vec![KeyType::Integer, KeyType::Text, KeyType::Date],
            shards: 16,
            irregular: Irregular::ANY,
            older_epochs: Vec::new(),
            indexes: vec![
                index(1, &["day"], IndexState::Active),
                index(2, &["region", "day"], IndexState::Creating),
                index(4, &["day", "year"], IndexState::Deleting),
                index(5, &["day", "region"], IndexState::Removed),
            ],
            next_index: 6,
            has_statistics: false,
            home: None,
            approximate_partitions: 0,
            history: None,
            version: 0,
            revision: Revision::from_text("r"),
            created_ms: 0,
        }
    }

    fn values(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn entries_are_in_the_order_of_the_index() {
        let table = table();
        let day = &table.indexes[0];
        assert_eq!(order(&table, day), Some(vec![2, 0, 1]));
        assert_eq!(order(&table, &table.indexes[1]), Some(vec![1, 2, 0]));
        assert_eq!(order(&table, &index(9, &["gone"], IndexState::Active)), None);
        let at = |values: &[&str]| key(&table, day, &self::values(values)).unwrap();
        let (early, late) = (at(&["2024", "eu", "2024-01-02"]), at(&["1999", "asia", "2024-01-10"]));
        assert!(early.sk < late.sk, "by day first");
        let place = &early.pk;
        assert!(place.starts_with("t1#3#i1#"), "{place}");
        let shard = shard_of(&values(&["2024", "eu", "2024-01-02"]), 16);
        assert!(place.ends_with(&format!("#{shard}")), "the partition's own shard");
    }

    #[test]
    fn writes_keep_the_entries_of_indexes_that_are_or_become_active() {
        let table = table();
        let keys = keys(&table, &values(&["2024", "eu", "2024-01-02"]));
        let indexes: Vec<&str> = keys.iter().map(|key| key.pk.split('#').nth(2).unwrap()).collect();
        assert_eq!(indexes, ["i1", "i2"]);
        assert!(super::keys(&table, &values(&["2024"])).is_empty(), "of another number of values");
    }

    #[test]
    fn an_entry_comes_back_and_a_damaged_one_is_an_error() {
        let given = values(&["2024", "a\0b", "x"]);
        assert_eq!(decode(&encode(&given)).unwrap(), given);
        let mut damaged = encode(&given);
        damaged.insert("values".to_owned(), Value::List(vec![Value::Int(1)]));
        assert!(decode(&damaged).is_err());
    }
}
