//! Items of a database. Its head: `catalog`, pk `databases`, sk `<name>`; small, since every operation reads it. Its
//! definition: pk `database#<database id>`, sk `definition`.

use serde_json::{Map, Value as Json};

use super::body::{decode_body, encode_body};
use super::{CatalogError, DatabaseId, Revision};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// Partition key under which all heads of databases are, in order of name.
pub(super) const DATABASES: &str = "databases";

/// What every operation needs to know of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHead {
    pub database_id: DatabaseId,
    pub revision: Revision,
    pub created_ms: i64,
}

pub(super) fn head_key(folded_name: &str) -> Key {
    Key::new(Table::Catalog, DATABASES, folded_name)
}

pub(super) fn encode_head(head: &DatabaseHead) -> Item {
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("database_id".to_owned(), (&head.database_id).into()),
        ("revision".to_owned(), (&head.revision).into()),
        ("created_ms".to_owned(), Value::Int(head.created_ms)),
    ])
}

pub(super) fn decode_head(item: &Item) -> Result<DatabaseHead, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(DatabaseHead {
        database_id: DatabaseId::from_text(item.text("database_id")?),
        revision: Revision::from_text(item.text("revision")?),
        created_ms: item.int("created_ms")?,
    })
}

/// Partition key of everything that hangs on a database's id, its functions aside.
pub(super) fn items_of(id: &DatabaseId) -> String {
    format!("database#{id}")
}

pub(super) fn definition_key(id: &DatabaseId) -> Key {
    Key::new(Table::Catalog, items_of(id), "definition")
}

/// What a definition is called in refusals.
pub(super) const DEFINITION: &str = "The definition of this database";

/// The definition is a `DatabaseInput` of the service model. To be put after `store_body`.
pub(super) fn encode_definition(input: &Map<String, Json>) -> Result<Item, CatalogError> {
    let mut item = Item::from([("schema_version".to_owned(), Value::Int(SCHEMA_VERSION))]);
    encode_body(&mut item, input, DEFINITION)?;
    Ok(item)
}

pub(super) fn decode_definition(item: &Item) -> Result<Map<String, Json>, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    decode_body(item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn heads_and_definitions_come_back() {
        let head = DatabaseHead {
            database_id: DatabaseId::from_text("d1"),
            revision: Revision::from_text("r1"),
            created_ms: -5,
        };
        assert_eq!(decode_head(&encode_head(&head)).unwrap(), head);
        let input = json!({ "Name": "sales", "Parameters": { "a": "ü" } }).as_object().unwrap().clone();
        let item = encode_definition(&input).unwrap();
        assert_eq!(decode_definition(&item).unwrap(), input);
    }

    #[test]
    fn another_layout_is_refused() {
        let mut item = Item::from([("schema_version".to_owned(), Value::Int(2))]);
        assert!(matches!(decode_head(&item), Err(DecodeError::Layout { found: 2, expected: 1 })));
        item.clear();
        assert!(matches!(decode_definition(&item), Err(DecodeError::Layout { found: 0, expected: 1 })));
    }
}
