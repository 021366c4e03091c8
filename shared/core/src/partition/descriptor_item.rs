//! Item: a shared part of storage descriptors. `catalog`, pk `descriptors#<table id>`, sk `columns#<hash>` or
//! `format#<hash>`.

use serde_json::{Map, Value as Json};

use super::descriptor::{Part, PartId};
use crate::catalog::{CatalogError, TableId, decode_body, encode_body};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// Partition key of all descriptors of a table.
pub(crate) fn descriptors_of(table: &TableId) -> String {
    format!("descriptors#{table}")
}

pub(super) fn key((table, part, hash): &PartId) -> Key {
    let kind = match part {
        Part::Columns => "columns",
        Part::Format => "format",
    };
    Key::new(Table::Catalog, descriptors_of(table), format!("{kind}#{}", hex::encode(hash.0)))
}

/// What a part is called in refusals.
pub(super) const WHAT: &str = "The column list or format of this partition";

/// To be put after `store_body`.
pub(super) fn encode(content: &Map<String, Json>) -> Result<Item, CatalogError> {
    let mut item = Item::from([("schema_version".to_owned(), Value::Int(SCHEMA_VERSION))]);
    encode_body(&mut item, content, WHAT)?;
    Ok(item)
}

pub(super) fn decode(item: &Item) -> Result<Map<String, Json>, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    decode_body(item)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::partition::descriptor::Hash;

    #[test]
    fn a_part_comes_back() {
        let content = json!({ "Columns": [{ "Name": "a" }] }).as_object().unwrap().clone();
        let key = key(&(TableId::from_text("t1"), Part::Columns, Hash([0xab; 32])));
        assert_eq!(key.pk, "descriptors#t1");
        assert_eq!(decode(&encode(&content).unwrap()).unwrap(), content);
    }
}
