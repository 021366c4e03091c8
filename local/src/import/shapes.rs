//! From what a catalog answers to what a catalog is given.

use serde_json::{Map, Value, json};

const DATABASE_MEMBERS: &[&str] = &[
    "Name",
    "Description",
    "LocationUri",
    "Parameters",
    "CreateTableDefaultPermissions",
    "TargetDatabase",
    "FederatedDatabase",
];
const TABLE_MEMBERS: &[&str] = &[
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
    "ViewDefinition",
];
const PARTITION_MEMBERS: &[&str] = &["Values", "LastAccessTime", "StorageDescriptor", "Parameters", "LastAnalyzedTime"];

fn take(from: &Value, members: &[&str]) -> Value {
    let held =
        |name: &&str| from.get(*name).filter(|value| !value.is_null()).map(|value| ((*name).to_owned(), value.clone()));
    Value::Object(members.iter().filter_map(held).collect())
}

/// A database as CreateDatabase takes it.
pub(super) fn database_input(database: &Value) -> Value {
    take(database, DATABASE_MEMBERS)
}

/// A table as CreateTable takes it.
pub(super) fn table_input(table: &Value) -> Value {
    take(table, TABLE_MEMBERS)
}

/// A partition as CreatePartition takes it.
pub(super) fn partition_input(partition: &Value) -> Value {
    take(partition, PARTITION_MEMBERS)
}

/// One spelling for definitions that mean the same: what a catalog fills in where nothing was said is left out, numbers
/// are compared as numbers, and names and types as catalogs fold them. Parameters are nobody's to fold.
pub(super) fn canonical(definition: &Value) -> Value {
    match definition {
        Value::Object(members) => {
            let mut kept: Vec<(String, Value)> = members
                .iter()
                .map(|(name, value)| (name.clone(), canonical_member(name, value)))
                .filter(|(_, value)| !says_nothing(value))
                .collect();
            kept.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(kept.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(values) => Value::Array(values.iter().map(canonical).collect()),
        Value::Number(number) => number.as_f64().map_or_else(|| definition.clone(), |number| json!(number)),
        other => other.clone(),
    }
}

fn canonical_member(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("Name" | "Type", Value::String(text)) => text.to_lowercase().into(),
        ("Parameters", parameters) => parameters.clone(),
        (_, value) => canonical(value),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_inputs() {
        let table = json!({ "Name": "t", "DatabaseName": "d", "CatalogId": "1", "VersionId": "3", "CreateTime": 1.5,
            "Owner": null, "PartitionKeys": [], "Parameters": { "a": "b" } });
        assert_eq!(table_input(&table), json!({ "Name": "t", "PartitionKeys": [], "Parameters": { "a": "b" } }));
        let partition = json!({ "Values": ["1"], "Revision": "x", "CreationTime": 1, "TableName": "t" });
        assert_eq!(partition_input(&partition), json!({ "Values": ["1"] }));
        assert_eq!(database_input(&json!({ "Name": "d", "CreateTime": 1, "CatalogId": "1" })), json!({ "Name": "d" }));
    }

    #[test]
    fn defaults_make_no_difference() {
        let given = json!({ "Name": "t", "StorageDescriptor": { "Columns": [{ "Type": "int", "Name": "a" }] } });
        let answered = json!({ "StorageDescriptor": { "Columns": [{ "Name": "a", "Type": "int" }], "Compressed": false,
            "NumberOfBuckets": 0, "SortColumns": [], "Parameters": {} }, "Name": "t", "Retention": 0, "PartitionKeys": [] });
        assert_eq!(canonical(&given), canonical(&answered));
        assert_eq!(canonical(&json!({ "a": 1 })), canonical(&json!({ "a": 1.0 })));
        assert_ne!(canonical(&given), canonical(&json!({ "Name": "u" })));
        let table = |name: &str, key: &str, type_name: &str, parameter: &str| json!({ "Name": name, "PartitionKeys": [{ "Name": key, "Type": type_name }], "Parameters": { "Name": parameter } });
        assert_eq!(canonical(&table("Big", "K", "String", "x")), canonical(&table("big", "k", "string", "x")));
        assert_ne!(canonical(&table("big", "k", "string", "X")), canonical(&table("big", "k", "string", "x")));
    }
}
