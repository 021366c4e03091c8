//! Item: definition of a table. `catalog`, pk `table#<table id>`, sk `definition`. While it is there, the table lives. It
//! says its own version, so that one read gives both.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::body::{decode_body, encode_body};
use super::names::fold;
use super::{CatalogError, KeyColumn, TableId};
use crate::location::{Location, LocationError};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

/// What a `Location` of Spark has in its name that is none.
const PLACEHOLDER: &str = "__PLACEHOLDER__";
const SCHEMA_VERSION: i64 = 1;
/// The longest bucket names that S3 ever allowed.
const BUCKET_MAX_BYTES: usize = 255;
/// No type that partitions can be filtered by is nearly as long; a structure may be.
const KEY_TYPE_MAX_CHARS: usize = 1024;

/// What a table's creator or last updater said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableDefinition {
    /// A `TableInput` of the service model: known members only, column names folded.
    pub input: Map<String, Json>,
    pub updated_ms: i64,
    /// `VersionId` of the service.
    pub version: i64,
    /// How many earlier versions were kept since the table's creation, deleted ones included.
    pub(super) archived: i64,
}

impl TableDefinition {
    /// Takes a checked `TableInput` and folds the names in it. The first version.
    pub(super) fn new(mut input: Map<String, Json>, updated_ms: i64) -> Self {
        fold_member(&mut input, "Name");
        if let Some(Json::Array(keys)) = input.get_mut("PartitionKeys") {
            fold_columns(keys);
        }
        if let Some(Json::Object(descriptor)) = input.get_mut("StorageDescriptor")
            && let Some(Json::Array(columns)) = descriptor.get_mut("Columns")
        {
            fold_columns(columns);
        }
        Self { input, updated_ms, version: 0, archived: 0 }
    }

    /// The table's `Parameters` that are text, which the wire guarantees for all.
    pub fn parameters(&self) -> BTreeMap<&str, &str> {
        let Some(Json::Object(parameters)) = self.input.get("Parameters") else { return BTreeMap::new() };
        parameters.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect()
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.input.get("Parameters")?.get(name)?.as_str()
    }

    pub fn storage_descriptor(&self) -> Option<&Map<String, Json>> {
        self.input.get("StorageDescriptor")?.as_object()
    }

    /// `StorageDescriptor.Location` as it was given.
    pub fn location_uri(&self) -> Option<&str> {
        self.storage_descriptor()?.get("Location")?.as_str()
    }

    /// Where its files are. Spark writes a place that is none into `Location`, and the real one beside it.
    fn place_uri(&self) -> Option<&str> {
        let path = || self.storage_descriptor()?.get("SerdeInfo")?.get("Parameters")?.get("path")?.as_str();
        match self.location_uri() {
            Some(uri) if uri.contains(PLACEHOLDER) => path().or(Some(uri)),
            None => path(),
            uri => uri,
        }
    }

    /// The metadata file of an Iceberg table.
    pub fn pointer(&self) -> Option<&str> {
        self.input.get("Parameters")?.get("metadata_location")?.as_str()
    }

    /// `StorageDescriptor.AdditionalLocations` on S3, outside where the table lies.
    pub fn additional_locations(&self) -> Vec<Location> {
        let home = self.location().ok().flatten();
        let list = self.storage_descriptor().and_then(|descriptor| descriptor.get("AdditionalLocations")?.as_array());
        let uris = list.into_iter().flatten().filter_map(Json::as_str);
        let mut places: Vec<Location> = uris.filter_map(|uri| Location::parse(uri).ok()).collect();
        places.retain(|place| home.as_ref().is_none_or(|home| !home.contains(place)));
        places.sort();
        places.dedup();
        places
    }

    /// Where the table lies on S3; none when it names no location or one elsewhere.
    ///
    /// # Errors
    /// An S3 location that names no bucket or has dot segments: such a table could not be protected.
    pub fn location(&self) -> Result<Option<Location>, CatalogError> {
        match self.place_uri().map(Location::parse) {
            None | Some(Err(LocationError::NotS3(_))) => Ok(None),
            Some(Ok(location)) if location.bucket.len() > BUCKET_MAX_BYTES => {
                let bytes = location.bucket.len();
                Err(CatalogError::Invalid(format!("The table's Location has a bucket name of {bytes} bytes.")))
            }
            Some(Ok(location)) => Ok(Some(location)),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Names and types of the partition keys as a head keeps them; very long types are cut (the definition says all).
    pub fn partition_keys(&self) -> Vec<KeyColumn> {
        let Some(Json::Array(keys)) = self.input.get("PartitionKeys") else { return Vec::new() };
        let text = |key: &Json, member: &str| key.get(member).and_then(Json::as_str).unwrap_or_default().to_owned();
        let cut = |text: String| text.chars().take(KEY_TYPE_MAX_CHARS).collect();
        keys.iter().map(|key| KeyColumn { name: text(key, "Name"), type_name: cut(text(key, "Type")) }).collect()
    }
}

fn fold_member(object: &mut Map<String, Json>, member: &str) {
    if let Some(Json::String(name)) = object.get_mut(member) {
        *name = fold(name);
    }
}

fn fold_columns(columns: &mut [Json]) {
    for column in columns.iter_mut().filter_map(Json::as_object_mut) {
        fold_member(column, "Name");
    }
}

/// Partition key of everything that hangs on a table's id, the partitions and descriptors aside.
pub(super) fn items_of(table: &TableId) -> String {
    format!("table#{table}")
}

pub(super) fn key(table: &TableId) -> Key {
    Key::new(Table::Catalog, items_of(table), "definition")
}

/// What a definition is called in refusals.
pub(super) const DEFINITION: &str = "The definition of this table";

/// To be put after `store_body`.
pub(super) fn encode(definition: &TableDefinition) -> Result<Item, CatalogError> {
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("updated_ms".to_owned(), Value::Int(definition.updated_ms)),
    ]);
    number(&mut item, definition.version, definition.archived);
    encode_body(&mut item, &definition.input, DEFINITION)?;
    Ok(item)
}

/// Says which version it is; the rest of an item does not depend on it.
pub(super) fn number(item: &mut Item, version: i64, archived: i64) {
    item.insert("version".to_owned(), Value::Int(version));
    item.insert("archived".to_owned(), Value::Int(archived));
}

pub(super) fn decode(item: &Item) -> Result<TableDefinition, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(TableDefinition {
        input: decode_body(item)?,
        updated_ms: item.int("updated_ms")?,
        version: item.int("version")?,
        archived: item.int("archived")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(input: Json) -> TableDefinition {
        TableDefinition::new(input.as_object().unwrap().clone(), 7)
    }

    #[test]
    fn a_definition_comes_back_with_folded_names() {
        let definition = definition(json!({
            "Name": "Orders", "Parameters": { "Table_Type": "ICEBERG" },
            "PartitionKeys": [{ "Name": "Day", "Type": "date" }],
            "StorageDescriptor": { "Location": "s3://B/Wh/Orders/", "Columns": [{ "Name": "Id", "Type": "struct<A:int>" }] },
        }));
        let read = decode(&encode(&definition).unwrap()).unwrap();
        assert_eq!(read, definition);
        assert_eq!(read.input["Name"], "orders");
        assert_eq!(read.partition_keys(), [KeyColumn { name: "day".to_owned(), type_name: "date".to_owned() }]);
        assert_eq!(read.storage_descriptor().unwrap()["Columns"], json!([{ "Name": "id", "Type": "struct<A:int>" }]));
        assert_eq!(read.parameter("Table_Type"), Some("ICEBERG"));
        assert_eq!(read.location().unwrap(), Some(Location::new("B", "Wh/Orders")));
    }

    #[test]
    fn only_locations_on_s3_count_and_odd_ones_are_refused() {
        let at = |location: &str| definition(json!({ "StorageDescriptor": { "Location": location } })).location();
        assert_eq!(at("hdfs://x/y"), Ok(None));
        assert_eq!(at(""), Ok(None));
        assert!(at("s3://b/a/../c").is_err());
        assert_eq!(definition(json!({})).location(), Ok(None));
    }
}
