//! Item: a table was dropped and its files may be there still. `catalog`, pk `dropped-tables`, sk `<bucket>/<prefix>/` NUL
//! `<table id>` (as in the index of locations), so that one query reads what lay below a folder. Written in the transaction
//! that drops, removed when its files are, or when nobody wants them removed.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::location_item::{self, range_at, range_within};
use super::{TableDefinition, TableId};
use crate::location::Location;
use crate::store::{DecodeError, Fields, Item, Key, SortRange, Value};

const SCHEMA_VERSION: i64 = 1;
/// Partition key of all of them.
pub(super) const DROPPED_TABLES: &str = "dropped-tables";
/// Longer parameters say nothing of a table's format.
const PARAMETER_MAX_BYTES: usize = 2048;
/// What a table's format, and who may use its files, is read from.
const KEPT_PARAMETERS: [&str; 8] = [
    "table_type",
    "spark.sql.sources.provider",
    "classification",
    "metadata_location",
    "EXTERNAL",
    "external.table.purge",
    "write.data.path",
    "write.metadata.path",
];

/// A table that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedTable {
    pub table_id: TableId,
    /// Names, folded.
    pub database: String,
    pub name: String,
    pub location: Location,
    /// Marks of its format, as its parameters had them.
    pub parameters: BTreeMap<String, String>,
    /// `Owner` of the table, as it was given.
    pub owner: Option<String>,
    pub dropped_ms: i64,
}

impl DroppedTable {
    pub(super) fn of(
        table_id: &TableId,
        (database, name): (&str, &str),
        definition: &TableDefinition,
        dropped_ms: i64,
    ) -> Option<Self> {
        let parameter = |name: &&str| {
            let value = definition.parameter(name).filter(|value| value.len() <= PARAMETER_MAX_BYTES)?;
            Some(((*name).to_owned(), value.to_owned()))
        };
        let owner = definition.input.get("Owner").and_then(Json::as_str);
        Some(Self {
            table_id: table_id.clone(),
            database: database.to_owned(),
            name: name.to_owned(),
            location: definition.location().ok().flatten()?,
            parameters: KEPT_PARAMETERS.iter().filter_map(parameter).collect(),
            owner: owner.filter(|owner| owner.len() <= PARAMETER_MAX_BYTES).map(str::to_owned),
            dropped_ms,
        })
    }

    pub(super) fn key(&self) -> Key {
        let item = location_item::key(&in_one(&self.location), &self.table_id);
        Key { pk: DROPPED_TABLES.to_owned(), ..item }
    }

    pub(super) fn encode(&self) -> Item {
        let parameters = Json::from_iter(self.parameters.clone());
        Item::from([
            ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
            ("table_id".to_owned(), (&self.table_id).into()),
            ("database".to_owned(), self.database.as_str().into()),
            ("name".to_owned(), self.name.as_str().into()),
            ("bucket".to_owned(), self.location.bucket.as_str().into()),
            ("prefix".to_owned(), self.location.prefix.as_str().into()),
            ("parameters".to_owned(), parameters.to_string().into()),
            ("owner".to_owned(), self.owner.as_deref().map_or(Value::Null, Value::from)),
            ("dropped_ms".to_owned(), Value::Int(self.dropped_ms)),
        ])
    }

    pub(super) fn decode(item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        let parameters = serde_json::from_str(item.text("parameters")?)
            .map_err(|error| DecodeError::Invalid { field: "parameters".to_owned(), message: error.to_string() })?;
        Ok(Self {
            table_id: TableId::from_text(item.text("table_id")?),
            database: item.text("database")?.to_owned(),
            name: item.text("name")?.to_owned(),
            location: Location { bucket: item.text("bucket")?.to_owned(), prefix: item.text("prefix")?.to_owned() },
            parameters,
            owner: item.opt_text("owner")?.map(str::to_owned),
            dropped_ms: item.int("dropped_ms")?,
        })
    }
}

/// All buckets are folders of one index.
fn in_one(location: &Location) -> Location {
    let prefix = format!("{}/{}", location.bucket, location.prefix);
    Location { bucket: String::new(), prefix: prefix.trim_end_matches('/').to_owned() }
}

pub(super) fn at(location: &Location) -> SortRange {
    range_at(&in_one(location))
}

pub(super) fn within(location: &Location) -> SortRange {
    range_within(&in_one(location))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(bucket: &str, prefix: &str, id: &str) -> DroppedTable {
        DroppedTable {
            table_id: TableId::from_text(id),
            database: "db".into(),
            name: "t".into(),
            location: Location { bucket: bucket.into(), prefix: prefix.into() },
            parameters: BTreeMap::from([("table_type".into(), "ICEBERG".into())]),
            owner: Some("ü".into()),
            dropped_ms: 9,
        }
    }

    #[test]
    fn it_comes_back() {
        for table in [dropped("b", "wh/t", "1"), DroppedTable { owner: None, ..dropped("b", "", "1") }] {
            assert_eq!(DroppedTable::decode(&table.encode()).unwrap(), table);
        }
    }

    #[test]
    fn keys_are_found_by_place_and_stay_within_the_limit() {
        let long = "ä".repeat(500);
        for prefix in ["", "wh", "wh/t", long.as_str()] {
            let table = dropped("bucket-of-a-length-that-is-the-longest-that-s3-allows-for-buckets", prefix, "1");
            let key = table.key();
            assert!(at(&table.location).contains(&key.sk) && within(&table.location).contains(&key.sk), "{prefix}");
            assert!(within(&Location::new(table.location.bucket.clone(), "")).contains(&key.sk), "{prefix}");
            assert!(key.sk.as_bytes().len() <= crate::limits::SORT_KEY_MAX_BYTES, "{prefix}");
        }
        let table = dropped("b", "wh/t", "1");
        for other in [Location::new("b", "wh/t2"), Location::new("b2", ""), Location::new("b", "wh/t/x")] {
            assert!(!within(&other).contains(&table.key().sk), "{other}");
        }
    }
}
