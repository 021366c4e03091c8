//! Classic single-file checkpoints, read row by row with the Parquet crate's record API.

use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::Type;

use super::actions::{ActionError, Builder};

/// Largest checkpoint that is read into memory.
pub(super) const CHECKPOINT_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Columns that we read. Parsed statistics repeat what `stats` says and are left out.
const COLUMNS: [&str; 7] = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata", "sidecar"];

/// All actions of a checkpoint. Text errors are worded for [`super::SnapshotError::Damaged`].
pub(super) fn read(bytes: Bytes) -> Result<Builder, String> {
    let reader = SerializedFileReader::new(bytes).map_err(|error| error.to_string())?;
    let schema = reader.metadata().file_metadata().schema();
    let projection = project(schema).map_err(|error| error.to_string())?;
    let rows = reader.get_row_iter(Some(projection)).map_err(|error| error.to_string())?;
    let mut builder = Builder::default();
    for (index, row) in rows.enumerate() {
        let row = row.map_err(|error| error.to_string())?;
        let serde_json::Value::Object(members) = row.to_json_value() else { continue };
        for (name, value) in members {
            builder.take(index + 1, &name, value).map_err(|error: ActionError| error.to_string())?;
        }
    }
    Ok(builder)
}

fn project(schema: &Type) -> parquet::errors::Result<Type> {
    let mut columns = Vec::new();
    for field in schema.get_fields().iter().filter(|field| COLUMNS.contains(&field.name())) {
        columns.push(Arc::new(without_parsed(field)?));
    }
    Type::group_type_builder(schema.name()).with_fields(columns).build()
}

fn without_parsed(group: &Type) -> parquet::errors::Result<Type> {
    if group.is_primitive() {
        return Ok(group.clone());
    }
    let fields =
        group.get_fields().iter().filter(|field| !field.name().ends_with("_parsed")).cloned().collect::<Vec<_>>();
    let info = group.get_basic_info();
    let mut builder = Type::group_type_builder(group.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_fields(fields);
    if info.has_id() {
        builder = builder.with_id(Some(info.id()));
    }
    builder.build()
}
