//! Column mapping: ids and physical names of columns, by themselves and when a schema changes.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::Successors;
use super::refuse;
use crate::commit::verdict::Refusal;
use crate::delta::Metadata;
use crate::delta::schema::{COLUMN_ID, DataType, Field, MappingMode, PHYSICAL_NAME, Schema, join};

const MODE: &str = "delta.columnMapping.mode";
const MAX_COLUMN_ID: &str = "delta.columnMapping.maxColumnId";

/// The mode of a table; an unknown one is refused.
pub fn mode_of(metadata: &Metadata) -> Result<MappingMode, Refusal> {
    MappingMode::of(metadata).ok_or_else(|| {
        let mode = metadata.property(MODE).unwrap_or_default();
        broken("", format!("{MODE} is `{mode}`; it must be none, name or id"))
    })
}

/// Whether ids, names and partition columns are governed as before.
pub fn is_as_before(old: &Metadata, new: &Metadata) -> bool {
    let same = |name: &str| old.property(name) == new.property(name);
    same(MODE) && same(MAX_COLUMN_ID) && old.partition_columns == new.partition_columns
}

/// Every field has an id of its own, at most the maximum, and a physical name of its own.
pub fn check_assignments(metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    if mode_of(metadata)? == MappingMode::None {
        return Ok(());
    }
    let max = max_column_id(metadata)?;
    let mut ids: BTreeMap<i64, String> = BTreeMap::new();
    for (path, field) in schema.walk() {
        let Some(id) = field.column_id() else {
            return Err(broken(&path, format!("column `{path}` has no column id ({COLUMN_ID})")));
        };
        if id > max || id < 0 {
            return Err(broken(&path, format!("column `{path}` has the id {id}; {MAX_COLUMN_ID} is {max}")));
        }
        if let Some(other) = ids.insert(id, path.clone()) {
            let text = format!("the columns `{other}` and `{path}` have the same id {id}");
            return Err(broken(&path, text).class("DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS"));
        }
        if !field.metadata.get(PHYSICAL_NAME).is_some_and(serde_json::Value::is_string) {
            return Err(broken(&path, format!("column `{path}` has no physical name ({PHYSICAL_NAME})")));
        }
    }
    check_names("", &schema.fields)
}

/// Physical names differ within a struct.
fn check_names(above: &str, fields: &[Field]) -> Result<(), Refusal> {
    let mut names = BTreeSet::new();
    for field in fields {
        let path = join(above, &field.name);
        let name = field.physical_name(MappingMode::Name);
        // Readers that do not tell cases apart would mix them up.
        if !names.insert(name.to_lowercase()) {
            let text =
                format!("the physical name `{name}` of column `{path}` is another column's, too, but for its case");
            return Err(broken(&path, text).class("DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS"));
        }
        check_parts(&path, &field.data_type)?;
    }
    Ok(())
}

fn check_parts(path: &str, data_type: &DataType) -> Result<(), Refusal> {
    match data_type {
        DataType::Struct(fields) => check_names(path, fields),
        DataType::Array { element, .. } => check_parts(&join(path, "element"), element),
        DataType::Map { key, value, .. } => {
            check_parts(&join(path, "key"), key)?;
            check_parts(&join(path, "value"), value)
        }
        _ => Ok(()),
    }
}

/// A change of mode, ids and physical names of columns that stay, and ids of new ones.
pub fn check_change(
    (old, old_schema): (&Metadata, &Schema),
    (new, new_schema): (&Metadata, &Schema),
) -> Result<(), Refusal> {
    let (before, after) = (mode_of(old)?, mode_of(new)?);
    match (before, after) {
        (MappingMode::None, MappingMode::None) => return Ok(()),
        (MappingMode::None, MappingMode::Name) => return check_switch_on(old_schema, new_schema),
        (before, after) if before != after => {
            let text = format!("the column mapping mode changes from {} to {}", name_of(before), name_of(after));
            return Err(refuse("COLUMN_MAPPING", text, "only none can be changed, to name")
                .class("DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"));
        }
        _ => {}
    }
    let (max_before, max_after) = (max_column_id(old)?, max_column_id(new)?);
    if max_after < max_before {
        return Err(broken("", format!("{MAX_COLUMN_ID} falls from {max_before} to {max_after}")));
    }
    let mut kept = Vec::new();
    pairs("", &old_schema.fields, &new_schema.fields, &mut kept);
    for (path, before, after) in &kept {
        if (before.column_id(), before.metadata.get(PHYSICAL_NAME))
            != (after.column_id(), after.metadata.get(PHYSICAL_NAME))
        {
            let text = format!("column `{path}` gets another id or physical name: readers would lose its values");
            return Err(broken(path, text));
        }
    }
    let old_ids: BTreeSet<i64> = old_schema.walk().iter().filter_map(|(_, field)| field.column_id()).collect();
    for (path, field) in new_schema.walk() {
        let id = field.column_id().unwrap_or(-1);
        if !old_ids.contains(&id) && id <= max_before {
            let text =
                format!("the new column `{path}` has the id {id}, which was given away before (up to {max_before})");
            return Err(broken(&path, text));
        }
    }
    Ok(())
}

/// From none to name: files have the columns by their names, so these become the physical ones.
fn check_switch_on(old: &Schema, new: &Schema) -> Result<(), Refusal> {
    let mut kept = Vec::new();
    pairs("", &old.fields, &new.fields, &mut kept);
    match kept.iter().find(|(_, before, after)| after.physical_name(MappingMode::Name) != before.name) {
        Some((path, before, _)) => {
            let text =
                format!("column `{path}` must have the physical name `{}`, under which files have it", before.name);
            Err(broken(path, text))
        }
        None => Ok(()),
    }
}

/// Fields that stay, at any depth.
fn pairs<'a>(above: &str, old: &'a [Field], new: &'a [Field], out: &mut Vec<(String, &'a Field, &'a Field)>) {
    let successors = Successors::of(new);
    for before in old {
        let Some((_, after)) = successors.find(before) else { continue };
        let path = join(above, &after.name);
        out.push((path.clone(), before, after));
        pairs_of_types(&path, &before.data_type, &after.data_type, out);
    }
}

fn pairs_of_types<'a>(path: &str, old: &'a DataType, new: &'a DataType, out: &mut Vec<(String, &'a Field, &'a Field)>) {
    match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => pairs(path, old, new, out),
        (DataType::Array { element: old, .. }, DataType::Array { element: new, .. }) => {
            pairs_of_types(&join(path, "element"), old, new, out);
        }
        (DataType::Map { key: old_key, value: old_value, .. }, DataType::Map { key, value, .. }) => {
            pairs_of_types(&join(path, "key"), old_key, key, out);
            pairs_of_types(&join(path, "value"), old_value, value, out);
        }
        _ => {}
    }
}

/// Fields of both schemas that are the same, at any depth, by the paths of the new one.
pub fn kept_fields<'a>(old: &'a Schema, new: &'a Schema) -> Vec<(String, &'a Field, &'a Field)> {
    let mut out = Vec::new();
    pairs("", &old.fields, &new.fields, &mut out);
    out
}

fn name_of(mode: MappingMode) -> &'static str {
    match mode {
        MappingMode::None => "none",
        MappingMode::Name => "name",
        MappingMode::Id => "id",
    }
}

fn max_column_id(metadata: &Metadata) -> Result<i64, Refusal> {
    let found = metadata.property(MAX_COLUMN_ID);
    found
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| broken("", format!("{MAX_COLUMN_ID} is {}; it must be a number", found.unwrap_or("missing"))))
}

fn broken(path: &str, text: String) -> Refusal {
    let refusal = refuse(
        "COLUMN_MAPPING",
        text,
        "give every field a fresh id and a physical name, and raise delta.columnMapping.maxColumnId with them",
    )
    .class("LAKEWARDEN_INVALID_COLUMN_MAPPING");
    if path.is_empty() { refusal } else { refusal.column(path) }
}
