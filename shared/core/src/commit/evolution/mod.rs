//! A commit that brings metaData or protocol: what it may change of an existing table, what a new table must have.
//!
//! `diff` finds what changes, `mode` how the commit means it, `rules` what is allowed then; `mapping` and
//! `widening` keep the bookkeeping of column ids and types, `properties` the table's properties; `downgrade` says when a
//! feature may go.

pub mod diff;
mod downgrade;
mod mapping;
pub mod mode;
mod properties;
mod rules;
mod widening;

use std::collections::BTreeSet;

use super::constraints;
use super::isolation;
use super::verdict::{Exception, Refusal, clip};
use crate::delta::Metadata;
use crate::delta::features::UnsupportedTable;
use crate::delta::schema::{DataType, Field, MappingMode, Schema, SchemaError, join};

pub use downgrade::{TableAfter, check_protocol_change};
pub use mode::{Mode, mode_of};
pub use rules::{Evolution, TableChange, check_metadata_change};

/// Ids are UUIDs; the head of the table keeps a copy.
const METADATA_ID_MAX_BYTES: usize = 1_024;

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
        SchemaError::Duplicate { above, second, .. } => Refusal::new(
            Exception::SchemaMismatchException,
            "DUPLICATE_COLUMNS",
            error.to_string(),
            "rename one of them",
        )
        .class("DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS")
        .column(&join(above, second)),
        SchemaError::Json(_) | SchemaError::Shape { .. } => Refusal::invalid("MALFORMED_SCHEMA", error.to_string()),
    }
}

/// Checks a metaData action by itself: partition columns exist, names can be read back, ids and histories are whole.
/// What the table has `old` is not held against a commit that leaves it as it is.
pub fn check_new_metadata(
    metadata: &Metadata,
    schema: &Schema,
    old: Option<(&Metadata, &Schema)>,
) -> Result<(), Refusal> {
    if metadata.id.is_empty() || metadata.id.len() > METADATA_ID_MAX_BYTES {
        let text = format!("metaData.id has {} bytes; it must have 1 to {METADATA_ID_MAX_BYTES}", metadata.id.len());
        return Err(Refusal::invalid("METADATA_ID", text));
    }
    constraints::check_policy(metadata)?;
    isolation::check_level(old.map(|(before, _)| before), metadata)?;
    if old.is_some_and(|(before, old)| old == schema && mapping::is_as_before(before, metadata)) {
        return Ok(());
    }
    check_partition_columns(metadata, schema)?;
    if mapping::mode_of(metadata)? == MappingMode::None {
        check_letters(schema, old.map(|(_, schema)| schema))?;
    }
    mapping::check_assignments(metadata, schema)?;
    widening::check_histories(schema)?;
    if old.is_none() {
        widening::check_lossless(schema)?;
    }
    check_void(schema)
}

fn check_partition_columns(metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    for (index, column) in metadata.partition_columns.iter().enumerate() {
        let wrong = |text: String, found: String| {
            let mut refusal = Refusal::invalid("PARTITION_COLUMN", text).column(column);
            refusal.place.expected = Some("a column of the schema, named once, of a type without parts".to_owned());
            refusal.place.found = Some(clip(&found));
            Err(refusal)
        };
        if metadata.partition_columns.iter().take(index).any(|other| other == column) {
            let text = format!("the partition column `{column}` is named twice");
            return wrong(text, metadata.partition_columns.join(", "));
        }
        match schema.column(column) {
            Some(Field { data_type: DataType::Primitive(_), .. }) => {}
            Some(Field { data_type, .. }) => {
                let text = format!("the partition column `{column}` has a nested type");
                return wrong(text, data_type.to_string());
            }
            None => {
                let text = format!("the partition column `{column}` is not in the schema");
                return wrong(text, "no such column".to_owned());
            }
        }
    }
    Ok(())
}

/// Letters that readers find columns by name with cannot take.
fn check_letters(schema: &Schema, old: Option<&Schema>) -> Result<(), Refusal> {
    let known: BTreeSet<String> = old.into_iter().flat_map(|old| old.walk()).map(|(path, _)| path).collect();
    for (path, field) in schema.walk().into_iter().filter(|(path, _)| !known.contains(path)) {
        if let Some(letter) = field.name.chars().find(|letter| " ,;{}()\n\t=".contains(*letter)) {
            let text = format!(
                "the column name `{path}` contains {letter:?}, which readers without column mapping cannot take"
            );
            return Err(refuse("COLUMN_NAME", text, "rename the column, or turn column mapping on")
                .class("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME")
                .column(&path));
        }
    }
    Ok(())
}

/// Columns of no type may stand anywhere but in arrays and maps.
fn check_void(schema: &Schema) -> Result<(), Refusal> {
    match schema.void_in_collection() {
        None => Ok(()),
        Some(path) => {
            let text = format!("`{path}` has the type void, which arrays and maps cannot hold");
            Err(refuse("VOID_TYPE", text, "give the elements a type")
                .class("DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE")
                .column(&path))
        }
    }
}

fn refuse(reason: &str, text: String, advice: &str) -> Refusal {
    Refusal::new(Exception::SchemaMismatchException, reason, text, advice)
}

fn refuse_downgrade(text: String, advice: &str) -> Refusal {
    Refusal::new(Exception::UnsupportedTableException, "PROTOCOL_DOWNGRADE", text, advice)
}

#[cfg(test)]
mod tests;
