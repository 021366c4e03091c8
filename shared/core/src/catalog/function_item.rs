//! Item: a user-defined function. `catalog`, pk `functions#<database id>`, sk `<name>`.

use serde_json::{Map, Value as Json};

use super::body::{decode_body, encode_body};
use super::{CatalogError, DatabaseId, Revision};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// What a function is called in refusals.
pub(super) const WHAT: &str = "This function";

/// A function as stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FunctionItem {
    pub(super) created_ms: i64,
    pub(super) revision: Revision,
    /// A `UserDefinedFunctionInput` of the service model, its name folded.
    pub(super) input: Map<String, Json>,
}

pub(super) fn functions_of(database: &DatabaseId) -> String {
    format!("functions#{database}")
}

pub(super) fn key(database: &DatabaseId, folded_name: &str) -> Key {
    Key::new(Table::Catalog, functions_of(database), folded_name)
}

/// To be put after `store_body`.
pub(super) fn encode(function: &FunctionItem) -> Result<Item, CatalogError> {
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("created_ms".to_owned(), Value::Int(function.created_ms)),
        ("revision".to_owned(), (&function.revision).into()),
    ]);
    encode_body(&mut item, &function.input, WHAT)?;
    Ok(item)
}

pub(super) fn decode(item: &Item) -> Result<FunctionItem, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(FunctionItem {
        created_ms: item.int("created_ms")?,
        revision: Revision::from_text(item.text("revision")?),
        input: decode_body(item)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_function_comes_back() {
        let input = json!({ "FunctionName": "f", "ResourceUris": [{ "ResourceType": "JAR", "Uri": "s3://b/x.jar" }] });
        let input = input.as_object().unwrap().clone();
        let function = FunctionItem { created_ms: 3, revision: Revision::from_text("r"), input };
        assert_eq!(decode(&encode(&function).unwrap()).unwrap(), function);
    }
}
