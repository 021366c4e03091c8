//! Item: which table has an id of Unity Catalog's. `catalog`, pk `unity#<id>`, sk `table`. Made before the table, which
//! says the id in its parameters: only then the id is one.

use uuid::Uuid;

use crate::location::Location;
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// A table that has an id, or will have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub(super) id: Uuid,
    pub(super) database: String,
    pub(super) table: String,
    pub(super) location: Location,
    pub(super) created_ms: i64,
}

pub(super) fn key(id: Uuid) -> Key {
    Key::new(Table::Catalog, format!("unity#{id}"), "table")
}

/// The catalog's own ids in the form of a UUID; as it is, where it is none.
pub(super) fn as_uuid(id: &str) -> String {
    Uuid::try_parse(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

pub(super) fn encode(entry: &TableEntry) -> Item {
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("id".to_owned(), entry.id.to_string().into()),
        ("database".to_owned(), entry.database.as_str().into()),
        ("table".to_owned(), entry.table.as_str().into()),
        ("location".to_owned(), entry.location.to_string().into()),
        ("created_ms".to_owned(), Value::Int(entry.created_ms)),
    ])
}

pub(super) fn decode(item: &Item) -> Result<TableEntry, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let invalid = |field: &str, message: String| DecodeError::Invalid { field: field.into(), message };
    Ok(TableEntry {
        id: Uuid::try_parse(item.text("id")?).map_err(|error| invalid("id", error.to_string()))?,
        database: item.text("database")?.to_owned(),
        table: item.text("table")?.to_owned(),
        location: Location::parse(item.text("location")?).map_err(|error| invalid("location", error.to_string()))?,
        created_ms: item.int("created_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let entry = TableEntry {
            id: Uuid::from_u128(7),
            database: "d".into(),
            table: "t".into(),
            location: Location::new("b", "a/b"),
            created_ms: 5,
        };
        assert_eq!(decode(&encode(&entry)).unwrap(), entry);
        assert_eq!(as_uuid("80a083e870264e7981be64bd76c43a11"), "80a083e8-7026-4e79-81be-64bd76c43a11");
    }
}
