//! Column mapping: what a column is called in files, partition values and statistics.

use serde_json::Value;

use super::{Field, Schema};
use crate::delta::Metadata;

/// Member of a field's metadata: the column's id.
pub const COLUMN_ID: &str = "delta.columnMapping.id";
/// Member of a field's metadata: the column's name in files.
pub const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// How a table's columns are found in its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MappingMode {
    /// By their names.
    #[default]
    None,
    /// By their physical names.
    Name,
    /// By Parquet's field ids.
    Id,
}

impl MappingMode {
    /// `delta.columnMapping.mode`; nothing for a value that is no mode.
    pub fn of(metadata: &Metadata) -> Option<MappingMode> {
        match metadata.property("delta.columnMapping.mode") {
            None => Some(MappingMode::None),
            Some(mode) if mode.eq_ignore_ascii_case("none") => Some(MappingMode::None),
            Some(mode) if mode.eq_ignore_ascii_case("name") => Some(MappingMode::Name),
            Some(mode) if mode.eq_ignore_ascii_case("id") => Some(MappingMode::Id),
            Some(_) => None,
        }
    }
}

impl Field {
    /// The column's id under column mapping.
    pub fn column_id(&self) -> Option<i64> {
        self.metadata.get(COLUMN_ID).and_then(Value::as_i64)
    }

    /// What the column is called in partition values, statistics and (but in mode `id`) files. A field without a
    /// physical name goes by its own.
    pub fn physical_name(&self, mode: MappingMode) -> &str {
        match mode {
            MappingMode::None => &self.name,
            MappingMode::Name | MappingMode::Id => {
                self.metadata.get(PHYSICAL_NAME).and_then(Value::as_str).unwrap_or(&self.name)
            }
        }
    }
}

/// The table's partition columns as partition values name them.
pub fn physical_names(metadata: &Metadata, schema: &Schema) -> Vec<String> {
    let mode = MappingMode::of(metadata).unwrap_or_default();
    let columns = metadata.partition_columns.iter();
    columns
        .map(|name| schema.column(name).map_or(name.as_str(), |field| field.physical_name(mode)).to_owned())
        .collect()
}
