//! Item: head of a table. `catalog`, pk `tables#<database name>`, sk `<table name>`; small, since every operation reads
//! it. It belongs to the database whose id it names: under another database of the same name it is not there.

use super::{DatabaseId, Revision, TableId};
use crate::partition::KeyType;
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// A partition key: name in lower case and type as the table says them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    pub type_name: String,
}

/// A live table: identity, and what its partitions' items depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRef {
    /// Name of its database, folded.
    pub database: String,
    pub database_id: DatabaseId,
    /// Its own name, folded.
    pub name: String,
    pub table_id: TableId,
    /// Partition keys as they are now, in order.
    pub keys: Vec<KeyColumn>,
    /// Generation of key encoding.
    pub epoch: u32,
    /// How values are encoded, by position; fixed for the epoch.
    pub epoch_types: Vec<KeyType>,
    /// Over how many partition keys of the item store the table's partitions are spread; fixed for the epoch.
    pub shards: u16,
    /// `VersionId` of the service: 0, and one more with every update.
    pub version: i64,
    pub revision: Revision,
    pub created_ms: i64,
}

pub(super) fn heads_of(folded_database: &str) -> String {
    format!("tables#{folded_database}")
}

pub(super) fn key(folded_database: &str, folded_name: &str) -> Key {
    Key::new(Table::Catalog, heads_of(folded_database), folded_name)
}

pub(super) fn encode(table: &TableRef) -> Item {
    let column = |key: &KeyColumn| Value::List(vec![key.name.as_str().into(), key.type_name.as_str().into()]);
    let types = table.epoch_types.iter().map(|key_type| Value::from(key_type.as_str())).collect();
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("database_id".to_owned(), (&table.database_id).into()),
        ("table_id".to_owned(), (&table.table_id).into()),
        ("keys".to_owned(), Value::List(table.keys.iter().map(column).collect())),
        ("epoch".to_owned(), Value::Int(i64::from(table.epoch))),
        ("epoch_types".to_owned(), Value::List(types)),
        ("shards".to_owned(), Value::Int(i64::from(table.shards))),
        ("version".to_owned(), Value::Int(table.version)),
        ("revision".to_owned(), (&table.revision).into()),
        ("created_ms".to_owned(), Value::Int(table.created_ms)),
    ])
}

fn list<'a>(item: &'a Item, field: &str) -> Result<&'a [Value], DecodeError> {
    match item.get(field) {
        Some(Value::List(values)) => Ok(values),
        _ => Err(DecodeError::WrongType { field: field.to_owned(), expected: "a list" }),
    }
}

fn number<T: TryFrom<i64>>(item: &Item, field: &str) -> Result<T, DecodeError> {
    let found = item.int(field)?;
    let message = || format!("{found} is out of range");
    T::try_from(found).map_err(|_| DecodeError::Invalid { field: field.to_owned(), message: message() })
}

pub(super) fn decode(folded_database: &str, folded_name: &str, item: &Item) -> Result<TableRef, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let invalid = |field: &str| DecodeError::Invalid { field: field.to_owned(), message: "not as written".to_owned() };
    let column = |value: &Value| match value {
        Value::List(parts) => match parts.as_slice() {
            [Value::Text(name), Value::Text(type_name)] => {
                Some(KeyColumn { name: name.clone(), type_name: type_name.clone() })
            }
            _ => None,
        },
        _ => None,
    };
    let key_type = |value: &Value| match value {
        Value::Text(text) => KeyType::from_stored(text),
        _ => None,
    };
    let keys: Option<Vec<KeyColumn>> = list(item, "keys")?.iter().map(column).collect();
    let epoch_types: Option<Vec<KeyType>> = list(item, "epoch_types")?.iter().map(key_type).collect();
    Ok(TableRef {
        database: folded_database.to_owned(),
        database_id: DatabaseId::from_text(item.text("database_id")?),
        name: folded_name.to_owned(),
        table_id: TableId::from_text(item.text("table_id")?),
        keys: keys.ok_or_else(|| invalid("keys"))?,
        epoch: number(item, "epoch")?,
        epoch_types: epoch_types.ok_or_else(|| invalid("epoch_types"))?,
        shards: number::<u16>(item, "shards")?.max(1),
        version: item.int("version")?,
        revision: Revision::from_text(item.text("revision")?),
        created_ms: item.int("created_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::item_size_bytes;

    fn table() -> TableRef {
        let key = |name: &str, type_name: &str| KeyColumn { name: name.to_owned(), type_name: type_name.to_owned() };
        TableRef {
            database: "sales".to_owned(),
            database_id: DatabaseId::from_text("d".repeat(32)),
            name: "orders".to_owned(),
            table_id: TableId::from_text("t".repeat(32)),
            keys: vec![key("year", "int"), key("region", "string"), key("day", "date"), key("price", "decimal(10,2)")],
            epoch: 1,
            epoch_types: vec![KeyType::Integer, KeyType::Text, KeyType::Date, KeyType::Decimal],
            shards: 16,
            version: 41,
            revision: Revision::from_text("r".repeat(32)),
            created_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn a_head_comes_back() {
        let item = encode(&table());
        assert_eq!(decode("sales", "orders", &item).unwrap(), table());
    }

    #[test]
    fn a_usual_head_is_small() {
        assert!(item_size_bytes(&key("sales", "orders"), &encode(&table())) < 512);
    }

    #[test]
    fn a_damaged_head_is_an_error() {
        for (field, value) in [
            ("shards", Value::Int(70_000)),
            ("epoch_types", Value::List(vec!["quaternion".into()])),
            ("keys", Value::List(vec!["x".into()])),
            ("table_id", Value::Int(1)),
        ] {
            let mut item = encode(&table());
            item.insert(field.to_owned(), value);
            assert!(decode("sales", "orders", &item).is_err(), "{field}");
        }
    }
}
