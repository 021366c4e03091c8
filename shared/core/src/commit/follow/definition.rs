//! What the catalog's table says of the Delta table: columns, and the version that it shows.

use serde_json::{Map, Value as Json, json};

use crate::catalog::table_update::{Amendment, amend_table};
use crate::catalog::{CatalogError, TableRef};
use crate::delta::schema::{DataType, Field, Primitive, Schema};
use crate::delta::{Metadata, Version};
use crate::ports::Ports;

/// By the names that Delta's own catalog hooks use.
const VERSION: &str = "delta.lastUpdateVersion";
const TIMESTAMP: &str = "delta.lastCommitTimestamp";
/// The service's limit of a comment.
const COMMENT_MAX_CHARS: usize = 255;

/// Whether a version may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Whoever is late changes nothing.
    Forward,
    /// The table may be another one.
    Any,
}

/// Columns, and keys where the table's are others than Delta's, follow the schema. A change is a new version of the table.
/// Answers the table as it is then.
pub(super) async fn follow_schema(
    ports: &Ports,
    table: &TableRef,
    metadata: &Metadata,
) -> Result<TableRef, CatalogError> {
    let Ok(schema) = Schema::parse(&metadata.schema_string) else { return Ok(table.clone()) };
    amend_table(ports, table, |input| {
        let next = with_schema(input, metadata, &schema);
        (next != *input).then_some((next, Amendment::NewVersion))
    })
    .await
}

/// The version, and when it was committed. The table's own version stays: who updates it on a condition is not disturbed.
pub(super) async fn follow_version(
    ports: &Ports,
    table: &TableRef,
    version: Version,
    committed_ms: Option<i64>,
    order: Order,
) -> Result<(), CatalogError> {
    let amended = amend_table(ports, table, |input| {
        let mut next = input.clone();
        let parameters = next.entry("Parameters").or_insert_with(|| json!({})).as_object_mut()?;
        let known = parameters.get(VERSION).and_then(Json::as_str).and_then(|text| text.parse::<i64>().ok());
        if order == Order::Forward && known.is_some_and(|known| known >= version.0) {
            return None;
        }
        parameters.insert(VERSION.to_owned(), Json::String(version.0.to_string()));
        if let Some(committed_ms) = committed_ms {
            parameters.insert(TIMESTAMP.to_owned(), Json::String(committed_ms.to_string()));
        }
        (next != *input).then_some((next, Amendment::InPlace))
    });
    amended.await.map(|_| ())
}

fn with_schema(input: &Map<String, Json>, metadata: &Metadata, schema: &Schema) -> Map<String, Json> {
    let mut next = input.clone();
    let is_key = |field: &Field| metadata.partition_columns.contains(&field.name);
    let keys: Vec<&Field> = metadata.partition_columns.iter().filter_map(|name| schema.column(name)).collect();
    let known_keys = columns_of(input.get("PartitionKeys"));
    let mut names: Vec<String> = keys.iter().map(|field| field.name.to_lowercase()).collect();
    let mut known: Vec<String> = known_keys.iter().map(name_of).collect();
    names.sort();
    known.sort();
    // Where they are the same columns, their order and types are the catalog's business.
    if names != known {
        let columns = keys.iter().map(|field| column(field, &known_keys)).collect();
        next.insert("PartitionKeys".to_owned(), Json::Array(columns));
    }
    let descriptor = next.entry("StorageDescriptor").or_insert_with(|| json!({}));
    if let Some(descriptor) = descriptor.as_object_mut() {
        let known = columns_of(descriptor.get("Columns"));
        let columns = schema.fields.iter().filter(|field| !is_key(field)).map(|field| column(field, &known));
        descriptor.insert("Columns".to_owned(), columns.collect());
    }
    next
}

fn columns_of(columns: Option<&Json>) -> Vec<Json> {
    columns.and_then(Json::as_array).cloned().unwrap_or_default()
}

fn name_of(column: &Json) -> String {
    column.get("Name").and_then(Json::as_str).unwrap_or_default().to_lowercase()
}

/// A column of the catalog: what it says beside name and type stays, unless Delta has a comment of its own.
fn column(field: &Field, known: &[Json]) -> Json {
    let name = field.name.to_lowercase();
    let old = known.iter().find(|column| name_of(column) == name).and_then(Json::as_object);
    let mut column = old.cloned().unwrap_or_default();
    column.insert("Name".to_owned(), Json::String(name));
    column.insert("Type".to_owned(), Json::String(hive_type(&field.data_type)));
    if let Some(comment) = field.metadata.get("comment").and_then(Json::as_str).filter(|text| !text.is_empty()) {
        let comment = comment.chars().take(COMMENT_MAX_CHARS).collect();
        column.insert("Comment".to_owned(), Json::String(comment));
    }
    Json::Object(column)
}

fn hive_type(kind: &DataType) -> String {
    match kind {
        DataType::Primitive(primitive) => match primitive {
            Primitive::String => "string".to_owned(),
            Primitive::Long => "bigint".to_owned(),
            Primitive::Integer => "int".to_owned(),
            Primitive::Short => "smallint".to_owned(),
            Primitive::Byte => "tinyint".to_owned(),
            Primitive::Float => "float".to_owned(),
            Primitive::Double => "double".to_owned(),
            Primitive::Boolean => "boolean".to_owned(),
            Primitive::Binary => "binary".to_owned(),
            Primitive::Date => "date".to_owned(),
            // Engines of the catalog have one type for both.
            Primitive::Timestamp | Primitive::TimestampNtz => "timestamp".to_owned(),
            Primitive::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
        },
        DataType::Struct(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|field| format!("{}:{}", field.name, hive_type(&field.data_type))).collect();
            format!("struct<{}>", fields.join(","))
        }
        DataType::Array { element, .. } => format!("array<{}>", hive_type(element)),
        DataType::Map { key, value, .. } => format!("map<{},{}>", hive_type(key), hive_type(value)),
        DataType::Variant => "variant".to_owned(),
        DataType::Void => "void".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(fields: &Json, keys: &[&str]) -> Metadata {
        let schema = json!({"type": "struct", "fields": fields}).to_string();
        serde_json::from_value(json!({"id": "m", "schemaString": schema, "partitionColumns": keys})).unwrap()
    }

    fn field(name: &str, kind: &Json) -> Json {
        json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
    }

    #[test]
    fn columns_follow_and_keep_what_the_catalog_adds() {
        let deep = json!({"type": "struct", "fields": [field("X", &json!("long")),
            field("m", &json!({"type": "map", "keyType": "string", "valueContainsNull": true,
                "valueType": {"type": "array", "elementType": "short", "containsNull": true}}))]});
        let mut said = field("Said", &json!("decimal(10,2)"));
        said["metadata"] = json!({"comment": "how much"});
        let metadata = metadata(
            &json!([field("Id", &json!("integer")), said, field("deep", &deep), field("day", &json!("date"))]),
            &["day"],
        );
        let schema = Schema::parse(&metadata.schema_string).unwrap();
        let input = json!({"PartitionKeys": [{"Name": "DAY", "Type": "string"}], "StorageDescriptor": {"Location": "l",
            "Columns": [{"Name": "id", "Type": "bigint", "Comment": "mine"}, {"Name": "gone", "Type": "int"}]}});
        let next = with_schema(input.as_object().unwrap(), &metadata, &schema);
        assert_eq!(
            Json::Object(next.clone()),
            json!({"PartitionKeys": [{"Name": "DAY", "Type": "string"}],
            "StorageDescriptor": {"Location": "l", "Columns": [
                {"Name": "id", "Type": "int", "Comment": "mine"},
                {"Name": "said", "Type": "decimal(10,2)", "Comment": "how much"},
                {"Name": "deep", "Type": "struct<X:bigint,m:map<string,array<smallint>>>"}]}})
        );
        assert_eq!(with_schema(&next, &metadata, &schema), next);
    }

    #[test]
    fn keys_become_deltas_where_they_are_other_columns() {
        let fields =
            json!([field("id", &json!("long")), field("a", &json!("timestamp")), field("b", &json!("string"))]);
        let metadata = metadata(&fields, &["b", "a"]);
        let schema = Schema::parse(&metadata.schema_string).unwrap();
        for (keys, expected) in [
            (json!([]), json!([{"Name": "b", "Type": "string"}, {"Name": "a", "Type": "timestamp"}])),
            (
                json!([{"Name": "a", "Type": "date", "Comment": "c"}]),
                json!([{"Name": "b", "Type": "string"}, {"Name": "a", "Type": "timestamp", "Comment": "c"}]),
            ),
            (
                json!([{"Name": "a", "Type": "int"}, {"Name": "B", "Type": "x"}]),
                json!([{"Name": "a", "Type": "int"}, {"Name": "B", "Type": "x"}]),
            ),
        ] {
            let input = json!({"PartitionKeys": keys});
            assert_eq!(with_schema(input.as_object().unwrap(), &metadata, &schema)["PartitionKeys"], expected);
        }
    }
}
