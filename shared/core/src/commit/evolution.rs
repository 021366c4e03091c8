//! A commit that brings metaData or protocol: what it may change of an existing table, what a new table must have.
//!
//! Thin: columns may be added as the last of their struct, nullability may be relaxed, a short list of properties may
//! change. Everything else is refused by name until it can be verified.

use super::verdict::{Exception, Refusal};
use crate::delta::features::{self, UnsupportedTable};
use crate::delta::schema::{DataType, Field, Schema, SchemaError, join};
use crate::delta::{Metadata, Protocol};

/// Ids are UUIDs; the head of the table keeps a copy.
const METADATA_ID_MAX_BYTES: usize = 1_024;

/// Properties whose change needs nothing of the files.
const FREE_PROPERTIES: [&str; 18] = [
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.randomizeFilePrefixes",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
];

/// A table that uses something we cannot verify.
pub fn unsupported(error: &UnsupportedTable) -> Refusal {
    Refusal::new(
        Exception::UnsupportedTableException,
        "UNSUPPORTED_FEATURE",
        error.to_string(),
        match error {
            UnsupportedTable::FeatureMissing { .. } => {
                "bring a protocol action that has the feature, in the same commit"
            }
            _ => "commit to this table without the validator, or switch the feature off",
        },
    )
}

/// A schema string that is not a schema we can enforce.
pub fn bad_schema(error: &SchemaError) -> Refusal {
    match error {
        SchemaError::UnsupportedType { path, .. } => Refusal::new(
            Exception::UnsupportedTableException,
            "UNSUPPORTED_TYPE",
            error.to_string(),
            "commit to this table without the validator, or drop the column",
        )
        .column(path),
        SchemaError::Duplicate { second, .. } => Refusal::new(
            Exception::SchemaMismatchException,
            "DUPLICATE_COLUMNS",
            error.to_string(),
            "rename one of them",
        )
        .class("DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS")
        .column(second),
        SchemaError::Json(_) | SchemaError::Shape { .. } => Refusal::invalid("MALFORMED_SCHEMA", error.to_string()),
    }
}

/// Checks a metaData action by itself: partition columns exist, names can be read back.
pub fn check_new_metadata(metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    if metadata.id.is_empty() || metadata.id.len() > METADATA_ID_MAX_BYTES {
        let text = format!("metaData.id has {} bytes; it must have 1 to {METADATA_ID_MAX_BYTES}", metadata.id.len());
        return Err(Refusal::invalid("METADATA_ID", text));
    }
    for (index, column) in metadata.partition_columns.iter().enumerate() {
        if metadata.partition_columns.iter().take(index).any(|other| other == column) {
            let text = format!("the partition column `{column}` is named twice");
            return Err(Refusal::invalid("PARTITION_COLUMN", text).column(column));
        }
        match schema.column(column) {
            Some(Field { data_type: DataType::Primitive(_), .. }) => {}
            Some(_) => {
                let text = format!("the partition column `{column}` has a nested type");
                return Err(Refusal::invalid("PARTITION_COLUMN", text).column(column));
            }
            None => {
                let text = format!("the partition column `{column}` is not in the schema");
                return Err(Refusal::invalid("PARTITION_COLUMN", text).column(column));
            }
        }
    }
    for (path, field) in schema.walk() {
        if let Some(letter) = field.name.chars().find(|letter| " ,;{}()\n\t=".contains(*letter)) {
            return Err(Refusal::new(
                Exception::SchemaMismatchException,
                "COLUMN_NAME",
                format!(
                    "the column name `{path}` contains {letter:?}, which readers without column mapping cannot take"
                ),
                "rename the column",
            )
            .class("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME")
            .column(&path));
        }
    }
    Ok(())
}

/// Checks what a commit changes of an existing table's metadata.
pub fn check_metadata_change(
    old: &Metadata,
    new: &Metadata,
    old_schema: &Schema,
    new_schema: &Schema,
) -> Result<(), Refusal> {
    if old.id != new.id {
        let text = format!("metaData.id changes from {} to {}", old.id, new.id);
        return Err(Refusal::invalid("METADATA_ID", text));
    }
    if old.partition_columns != new.partition_columns {
        let text = format!("partition columns change from {:?} to {:?}", old.partition_columns, new.partition_columns);
        return Err(Refusal::new(
            Exception::SchemaMismatchException,
            "PARTITIONING",
            text,
            "keep the table's partition columns; changing them is not supported yet",
        )
        .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"));
    }
    check_properties(old, new)?;
    check_struct("", &old_schema.fields, &new_schema.fields)
}

fn check_properties(old: &Metadata, new: &Metadata) -> Result<(), Refusal> {
    let names = old.configuration.keys().chain(new.configuration.keys());
    for name in names.filter(|name| old.property(name) != new.property(name)) {
        let is_free = FREE_PROPERTIES.contains(&name.as_str()) || is_switched_on(name, old, new);
        if name.starts_with("delta.") && !is_free {
            let text = format!("the commit changes the table property `{name}`, whose effects cannot be verified yet");
            return Err(Refusal::new(
                Exception::UnsupportedTableException,
                "PROPERTY_CHANGE",
                text,
                "change this property without the validator",
            ));
        }
    }
    Ok(())
}

/// What may be switched on, but not off: from then on every commit has a timestamp of its own. Since when is set by us.
fn is_switched_on(name: &str, old: &Metadata, new: &Metadata) -> bool {
    match name {
        "delta.enableInCommitTimestamps" => new.is_on(name),
        "delta.inCommitTimestampEnablementVersion" | "delta.inCommitTimestampEnablementTimestamp" => {
            !features::has_in_commit_timestamps_on(old) && features::has_in_commit_timestamps_on(new)
        }
        _ => false,
    }
}

fn check_struct(above: &str, old: &[Field], new: &[Field]) -> Result<(), Refusal> {
    for (index, before) in old.iter().enumerate() {
        let path = join(above, &before.name);
        let Some(after) = new.get(index).filter(|after| after.name == before.name) else {
            let text = format!("column `{path}` is dropped, renamed or moved; new columns come last");
            return Err(schema_change("COLUMN_ORDER", text, &path));
        };
        if before.metadata != after.metadata {
            return Err(schema_change("COLUMN_METADATA", format!("the metadata of column `{path}` changes"), &path));
        }
        if before.nullable && !after.nullable {
            let text = format!("column `{path}` becomes NOT NULL; nullability may only be relaxed");
            return Err(schema_change("NULLABILITY", text, &path));
        }
        check_type(&path, &before.data_type, &after.data_type)?;
    }
    if let Some(added) = new.iter().skip(old.len()).find(|added| !added.nullable) {
        let path = join(above, &added.name);
        let text = format!("the new column `{path}` is NOT NULL, but the files that exist lack it");
        return Err(schema_change("NULLABILITY", text, &path));
    }
    Ok(())
}

fn check_type(path: &str, old: &DataType, new: &DataType) -> Result<(), Refusal> {
    match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => check_struct(path, old, new),
        (
            DataType::Array { element: old, contains_null: before },
            DataType::Array { element: new, contains_null: after },
        ) if !before || *after => check_type(&join(path, "element"), old, new),
        (
            DataType::Map { key: old_key, value: old_value, value_contains_null: before },
            DataType::Map { key, value, value_contains_null: after },
        ) if !before || *after => {
            check_type(&join(path, "key"), old_key, key)?;
            check_type(&join(path, "value"), old_value, value)
        }
        (DataType::Primitive(old), DataType::Primitive(new)) if old == new => Ok(()),
        _ => {
            let text = format!("the type of column `{path}` changes from {old} to {new}");
            Err(schema_change("COLUMN_TYPE", text, path).class("DELTA_MERGE_INCOMPATIBLE_DATATYPE"))
        }
    }
}

fn schema_change(reason: &str, text: String, path: &str) -> Refusal {
    Refusal::new(
        Exception::SchemaMismatchException,
        reason,
        text,
        "add nullable columns at the end only; other schema changes are not supported yet",
    )
    .class("DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED")
    .column(path)
}

/// Checks a protocol action on an existing table: nothing may be taken back.
pub fn check_protocol_change(old: &Protocol, new: &Protocol) -> Result<(), Refusal> {
    let lost = [(&old.reader_features, &new.reader_features), (&old.writer_features, &new.writer_features)]
        .into_iter()
        .flat_map(|(before, after)| {
            let after = after.as_deref().unwrap_or_default();
            before.iter().flatten().filter(move |feature| !after.contains(feature))
        })
        .next();
    if let Some(feature) = lost {
        return Err(downgrade(format!("the commit drops the table feature `{feature}`")));
    }
    if new.min_reader_version < old.min_reader_version || new.min_writer_version < old.min_writer_version {
        return Err(downgrade("the commit lowers the table's protocol versions".to_owned()));
    }
    if !features::is_catalog_managed(old) && features::is_catalog_managed(new) {
        return Err(downgrade("the commit makes the table catalog-managed".to_owned()));
    }
    Ok(())
}

fn downgrade(text: String) -> Refusal {
    Refusal::new(
        Exception::UnsupportedTableException,
        "PROTOCOL_DOWNGRADE",
        text,
        "such a change needs checks over the table's history; make it without the validator",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn schema(fields: &[(&str, Value, bool)]) -> Schema {
        let fields: Vec<Value> = fields
            .iter()
            .map(|(name, kind, nullable)| json!({"name": name, "type": kind, "nullable": nullable}))
            .collect();
        Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap()
    }

    #[test]
    fn new_columns_come_last_and_nothing_else_moves() {
        let nested = |names: &[&str]| {
            let fields: Vec<Value> = names.iter().map(|name| json!({"name": name, "type": "long"})).collect();
            json!({"type": "array", "elementType": {"type": "struct", "fields": fields}, "containsNull": true})
        };
        let old = schema(&[("a", json!("long"), false), ("s", nested(&["x"]), true)]);
        let metadata = Metadata { id: "m".into(), ..Metadata::default() };
        let cases = [
            (vec![("a", json!("long"), false), ("s", nested(&["x"]), true)], ""),
            (vec![("a", json!("long"), true), ("s", nested(&["x", "y"]), true), ("b", json!("date"), true)], ""),
            (vec![("a", json!("long"), false), ("s", nested(&["y", "x"]), true)], "COLUMN_ORDER"),
            (vec![("s", nested(&["x"]), true), ("a", json!("long"), false)], "COLUMN_ORDER"),
            (vec![("a", json!("long"), false)], "COLUMN_ORDER"),
            (vec![("a", json!("integer"), false), ("s", nested(&["x"]), true)], "COLUMN_TYPE"),
            (vec![("a", json!("long"), false), ("s", nested(&["x"]), false)], "NULLABILITY"),
            (
                vec![("a", json!("long"), false), ("s", nested(&["x"]), true), ("b", json!("date"), false)],
                "NULLABILITY",
            ),
        ];
        for (fields, reason) in cases {
            let new = schema(&fields);
            let found = check_metadata_change(&metadata, &metadata, &old, &new).err();
            assert_eq!(found.map_or(String::new(), |refusal| refusal.reason.clone()), reason, "{fields:?}");
        }
    }

    #[test]
    fn ids_partitions_and_properties_are_guarded() {
        let one = schema(&[("a", json!("long"), true)]);
        let old = Metadata { id: "m".into(), partition_columns: vec!["a".into()], ..Metadata::default() };
        let with =
            |name: &str| Metadata { configuration: [(name.to_owned(), Some("1".to_owned()))].into(), ..old.clone() };
        for (new, reason) in [
            (Metadata { id: "n".into(), ..old.clone() }, "METADATA_ID"),
            (Metadata { partition_columns: vec![], ..old.clone() }, "PARTITIONING"),
            (with("delta.columnMapping.mode"), "PROPERTY_CHANGE"),
            (with("delta.constraints.c"), "PROPERTY_CHANGE"),
            (with("delta.appendOnly"), ""),
            (with("delta.enableDeletionVectors"), ""),
            (with("delta.enableRowTracking"), "PROPERTY_CHANGE"),
            (with("delta.enableInCommitTimestamps"), "PROPERTY_CHANGE"),
            (with("delta.inCommitTimestampEnablementVersion"), "PROPERTY_CHANGE"),
            (with("mine"), ""),
        ] {
            let found = check_metadata_change(&old, &new, &one, &one).err();
            assert_eq!(found.map_or(String::new(), |refusal| refusal.reason.clone()), reason, "{new:?}");
        }
        let stamped = |more: &str| Metadata {
            configuration: [("delta.enableInCommitTimestamps", "true"), (more, "7")]
                .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
                .into(),
            ..old.clone()
        };
        let since = stamped("delta.inCommitTimestampEnablementVersion");
        assert_eq!(check_metadata_change(&old, &since, &one, &one), Ok(()));
        let later = stamped("delta.inCommitTimestampEnablementTimestamp");
        assert!(check_metadata_change(&since, &later, &one, &one).is_err());
        let odd = schema(&[("a b", json!("long"), true)]);
        assert_eq!(check_new_metadata(&old, &one), Ok(()));
        let refusal = check_new_metadata(&Metadata { partition_columns: vec![], ..old.clone() }, &odd).unwrap_err();
        assert_eq!(refusal.error_class, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME");
        assert_eq!(check_new_metadata(&old, &odd).unwrap_err().reason, "PARTITION_COLUMN");
    }

    #[test]
    fn protocols_only_grow() {
        let protocol = |writer, features: &[&str]| Protocol {
            min_reader_version: 1,
            min_writer_version: writer,
            reader_features: None,
            writer_features: Some(features.iter().map(|name| (*name).to_owned()).collect()),
        };
        assert_eq!(
            check_protocol_change(&protocol(7, &["appendOnly"]), &protocol(7, &["appendOnly", "invariants"])),
            Ok(())
        );
        assert!(check_protocol_change(&protocol(7, &["appendOnly"]), &protocol(7, &[])).is_err());
        assert!(check_protocol_change(&protocol(7, &[]), &protocol(2, &[])).is_err());
        assert!(check_protocol_change(&protocol(7, &[]), &protocol(7, &["catalogManaged"])).is_err());
    }
}
