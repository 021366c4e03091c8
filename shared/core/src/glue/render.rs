//! Answers in the shapes of the service model.

use serde_json::{Map, Value as Json, json};

use super::GlueException;
use crate::catalog::functions::Function;
use crate::catalog::{CatalogError, Database, TableDefinition, TableRef, escaped_json_len};
use crate::limits::ANSWER_MAX_BYTES;
use crate::partition::{ColumnSchema, Partition, fill_defaults};

/// What an answer holds besides its entries: names of members, the token.
const ENVELOPE_BYTES: usize = 8 * 1024;

/// Seconds since the epoch, with milliseconds as a fraction.
pub(super) fn seconds(ms: i64) -> Json {
    if ms % 1000 == 0 { Json::from(ms / 1000) } else { Json::from(ms as f64 / 1000.0) }
}

/// Members of `from` that a shape of the answer has in common with the input.
fn take(from: &Map<String, Json>, names: &[&str], into: &mut Map<String, Json>) {
    for name in names {
        if let Some(value) = from.get(*name) {
            into.insert((*name).to_owned(), value.clone());
        }
    }
}

fn insert(into: &mut Map<String, Json>, name: &str, value: impl Into<Json>) {
    into.insert(name.to_owned(), value.into());
}

pub(super) fn database(database: &Database, catalog_id: &str) -> Json {
    let mut shown = Map::new();
    insert(&mut shown, "Name", database.name.as_str());
    let names = ["Description", "LocationUri", "Parameters", "CreateTableDefaultPermissions"];
    take(&database.input, &names, &mut shown);
    insert(&mut shown, "CreateTime", seconds(database.head.created_ms));
    insert(&mut shown, "CatalogId", catalog_id);
    Json::Object(shown)
}

pub(super) fn table(table: &TableRef, definition: &TableDefinition, catalog_id: &str) -> Json {
    let mut shown = Map::new();
    insert(&mut shown, "Name", table.name.as_str());
    insert(&mut shown, "DatabaseName", table.database.as_str());
    take(&definition.input, &["Description", "Owner"], &mut shown);
    insert(&mut shown, "CreateTime", seconds(table.created_ms));
    insert(&mut shown, "UpdateTime", seconds(definition.updated_ms));
    take(&definition.input, &["LastAccessTime", "LastAnalyzedTime", "Retention"], &mut shown);
    shown.entry("Retention").or_insert(json!(0));
    let mut descriptor = definition.storage_descriptor().cloned().unwrap_or_default();
    fill_defaults(&mut descriptor, ColumnSchema::Include);
    insert(&mut shown, "StorageDescriptor", descriptor);
    take(
        &definition.input,
        &["PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters"],
        &mut shown,
    );
    shown.entry("PartitionKeys").or_insert(json!([]));
    shown.entry("Parameters").or_insert(json!({}));
    insert(&mut shown, "IsRegisteredWithLakeFormation", false);
    insert(&mut shown, "CatalogId", catalog_id);
    // The definition's own: the head may have been read before an update.
    insert(&mut shown, "VersionId", definition.version.to_string());
    Json::Object(shown)
}

pub(super) fn function(function: Function, catalog_id: &str) -> Json {
    let mut shown = Map::new();
    insert(&mut shown, "FunctionName", function.name);
    insert(&mut shown, "DatabaseName", function.database);
    shown.extend(function.input.into_iter().filter(|(name, _)| name != "FunctionName"));
    insert(&mut shown, "CreateTime", seconds(function.created_ms));
    insert(&mut shown, "CatalogId", catalog_id);
    Json::Object(shown)
}

pub(super) fn partition(table: &TableRef, partition: Partition, catalog_id: &str) -> Json {
    let mut shown = Map::new();
    insert(&mut shown, "Values", partition.values().to_vec());
    insert(&mut shown, "DatabaseName", table.database.as_str());
    insert(&mut shown, "TableName", table.name.as_str());
    insert(&mut shown, "CreationTime", seconds(partition.created_ms()));
    // Not of the service: what an update or delete can state to have read.
    insert(&mut shown, "Revision", partition.revision().as_str());
    shown.extend(partition.into_members());
    insert(&mut shown, "CatalogId", catalog_id);
    Json::Object(shown)
}

/// An entry of a batch that failed, under the member's name for the values.
pub(super) fn partition_error(values_member: &str, values: &[String], error: CatalogError) -> Json {
    json!({ values_member: values, "ErrorDetail": error_detail(error, None) })
}

/// Why an entry of a batch failed, in other words if there are some.
pub(super) fn error_detail(error: impl Into<GlueException>, text: Option<String>) -> Json {
    let error: GlueException = error.into();
    if let Some(cause) = &error.cause {
        // The answer names no cause, and no later layer sees this failure.
        tracing::error!(%cause, exception = error.name.as_str(), "an entry of a batch failed");
    }
    json!({ "ErrorCode": error.name.as_str(), "ErrorMessage": text.unwrap_or(error.message) })
}

/// Entries of an answer, up to the size that may be sent.
#[derive(Debug, Default)]
pub(super) struct Sized {
    entries: Vec<Json>,
    size_bytes: usize,
}

impl Sized {
    /// Beside something else of this size.
    pub(super) fn beside(size_bytes: usize) -> Self {
        Self { entries: Vec::new(), size_bytes }
    }

    /// Takes an entry if it still fits. The first always does: one definition is limited when it is stored.
    pub(super) fn push(&mut self, entry: Json) -> bool {
        let size_bytes = escaped_json_len(&entry) + 1;
        if !self.entries.is_empty() && self.size_bytes + size_bytes > ANSWER_MAX_BYTES - ENVELOPE_BYTES {
            return false;
        }
        self.size_bytes += size_bytes;
        self.entries.push(entry);
        true
    }

    pub(super) fn into_entries(self) -> Vec<Json> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_milliseconds() {
        assert_eq!(seconds(1_708_699_485_000).to_string(), "1708699485");
        assert_eq!(seconds(1_708_699_485_123).to_string(), "1708699485.123");
        assert_eq!(seconds(-86_400_000).to_string(), "-86400");
    }

    #[test]
    fn an_answer_ends_before_its_limit() {
        let entry = |length: usize| Json::String("x".repeat(length));
        let mut sized = Sized::default();
        assert!(sized.push(entry(ANSWER_MAX_BYTES)), "the first always fits");
        assert!(!sized.push(entry(1)));
        let mut sized = Sized::default();
        // Two quotes, escaped, and a comma: five bytes.
        assert!(sized.push(entry(1)));
        let left = ANSWER_MAX_BYTES - ENVELOPE_BYTES - 6 - 5;
        assert!(!sized.push(entry(left + 1)));
        assert!(sized.push(entry(left)));
        assert_eq!(sized.into_entries().len(), 2);
    }
}
