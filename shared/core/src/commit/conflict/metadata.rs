//! Winners that changed the table's metadata: a short list of changes is harmless to a commit that did not know of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Before, Check, Conflict};
use crate::commit::identity;
use crate::commit::verdict::Exception;
use crate::delta::schema::{DataType, Field, Schema, join};
use crate::delta::{Metadata, Protocol, features};
use crate::ports::IdentityWriters;

const ROW_TRACKING: &str = "delta.enableRowTracking";
const MATERIALIZED_COLUMNS: [&str; 2] =
    ["delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"];
const MAPPING_MODE: &str = "delta.columnMapping.mode";
const MAPPING_PREFIX: &str = "delta.columnMapping.";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
/// The catalog's id of the table, in both spellings.
const CATALOG_IDS: [&str; 2] = ["io.unitycatalog.tableId", "ucTableId"];

/// What makes a change one that the candidate should have known of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offence {
    what: String,
    column: Option<String>,
}

impl Offence {
    fn of(what: impl Into<String>) -> Offence {
        Offence { what: what.into(), column: None }
    }

    fn at(column: &str, what: &str) -> Offence {
        Offence { what: format!("{what} of column `{column}`"), column: Some(column.to_owned()) }
    }
}

impl Check<'_> {
    /// A harmless change is adopted; anything else, and any change where the candidate brings metadata itself, conflicts.
    pub(super) fn metadata(&mut self) -> Result<(), Conflict> {
        self.identity_columns()?;
        let Some(theirs) = &self.winner.commit.actions.metadata else { return Ok(()) };
        let version = self.version();
        if self.inputs.candidate.actions.metadata.is_some() {
            let text = format!("version {version} changed the table's metadata, and so does this commit");
            return self.refuse(Exception::MetadataChangedException, "METADATA_CHANGE", text);
        }
        self.folded.adopted = true;
        let found = match &self.folded.before {
            Before::NotLoaded => {
                self.folded.needs_table = true;
                return Ok(());
            }
            Before::Unknown => Err(Offence::of("the log no longer tells what it was before")),
            Before::Known(table) => {
                let info = self.winner.commit.actions.commit_info.as_ref();
                let marks = if identity::says_marks_only(info, self.inputs.identity_writers) {
                    Marks::MayMove
                } else {
                    Marks::Stay
                };
                check_change(&table.metadata, theirs, &table.protocol, marks)
            }
        };
        if let Err(offence) = found {
            let text = format!("version {version} changed the table's metadata: {}", offence.what);
            let mut refusal = self.refusal(Exception::MetadataChangedException, "METADATA_CHANGE", text);
            refusal.place.column = offence.column;
            return Err(refusal.into());
        }
        if let Before::Known(table) = &mut self.folded.before {
            self.folded.ids_not_preserved |= !table.metadata.is_on(ROW_TRACKING) && theirs.is_on(ROW_TRACKING);
            table.metadata = theirs.clone();
        }
        Ok(())
    }

    /// The next value of an identity column is part of the schema: every insert moves it, so nobody may write beside
    /// anybody.
    fn identity_columns(&self) -> Result<(), Conflict> {
        if self.inputs.identity_writers == IdentityWriters::HighWaterMark {
            return Ok(());
        }
        match identity::first_column(self.inputs.table.schema) {
            None => Ok(()),
            Some(column) => {
                let text = format!(
                    "the table has the identity column `{column}`, and version {} was written meanwhile; such tables have no concurrent writers",
                    self.version()
                );
                let refusal = self.refusal(Exception::MetadataChangedException, "IDENTITY_COLUMN", text);
                Err(refusal.column(&column).into())
            }
        }
    }
}

/// Whether a winner may have moved the marks of identity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Stay,
    MayMove,
}

fn check_change(before: &Metadata, after: &Metadata, protocol: &Protocol, marks: Marks) -> Result<(), Offence> {
    for (differs, what) in [
        (before.id != after.id, "its id"),
        (before.name != after.name, "the table's name"),
        (before.description != after.description, "the table's description"),
        (before.partition_columns != after.partition_columns, "the partition columns"),
        (before.format != after.format, "the format of its files"),
        (before.created_time != after.created_time, "the time of its creation"),
    ] {
        if differs {
            return Err(Offence::of(what));
        }
    }
    check_properties(before, after, protocol)?;
    check_schema(before, after, marks)
}

fn check_properties(before: &Metadata, after: &Metadata, protocol: &Protocol) -> Result<(), Offence> {
    let names: BTreeSet<&String> = before.configuration.keys().chain(after.configuration.keys()).collect();
    for name in names {
        let (old, new) = (before.property(name), after.property(name));
        let is_harmless = match new {
            _ if old == new => true,
            // Nothing may disappear.
            None => false,
            Some(value) => is_harmless(name, old, value, &Change { before, after, protocol }),
        };
        if !is_harmless {
            return Err(Offence::of(format!("the property `{name}`")));
        }
    }
    Ok(())
}

struct Change<'a> {
    before: &'a Metadata,
    after: &'a Metadata,
    protocol: &'a Protocol,
}

impl Change<'_> {
    fn enables(&self, name: &str) -> bool {
        !self.before.is_on(name) && self.after.is_on(name)
    }
}

/// Whether a writer that does not know of a property's new value may go on.
fn is_harmless(name: &str, old: Option<&str>, new: &str, change: &Change<'_>) -> bool {
    let is_true = new.eq_ignore_ascii_case("true");
    match name {
        ROW_TRACKING => is_true && features::lists(change.protocol, "rowTracking"),
        name if MATERIALIZED_COLUMNS.contains(&name) => change.enables(ROW_TRACKING),
        MAPPING_MODE => old.unwrap_or("none") == "none" && new == "name",
        "delta.columnMapping.maxColumnId" | "delta.enableDeletionVectors" | "delta.enableInCommitTimestamps" => {
            is_true || name == "delta.columnMapping.maxColumnId"
        }
        "delta.checkpointPolicy" => new == "v2",
        "delta.inCommitTimestampEnablementVersion" | "delta.inCommitTimestampEnablementTimestamp" => old.is_none(),
        name if CATALOG_IDS.contains(&name) => old.is_none() && features::lists(change.protocol, "catalogManaged"),
        _ => false,
    }
}

/// Columns may only have got ids and physical names, by which the files that exist are still found; and other marks, where
/// those may move.
fn check_schema(before: &Metadata, after: &Metadata, marks: Marks) -> Result<(), Offence> {
    if before.schema_string == after.schema_string {
        return Ok(());
    }
    let unreadable = |_| Offence::of("a schema that cannot be read");
    let mut old = Schema::parse(&before.schema_string).map_err(unreadable)?;
    let mut new = Schema::parse(&after.schema_string).map_err(unreadable)?;
    if marks == Marks::MayMove {
        for field in old.fields.iter_mut().chain(&mut new.fields) {
            field.metadata.remove(identity::HIGH_WATER_MARK);
        }
    }
    if old == new {
        return Ok(());
    }
    let mode = |metadata: &Metadata| metadata.property(MAPPING_MODE).unwrap_or("none").to_owned();
    let gets_mapping = mode(before) == "none" && mode(after) == "name";
    check_fields("", &old.fields, &new.fields, gets_mapping)
}

fn check_fields(above: &str, old: &[Field], new: &[Field], gets_mapping: bool) -> Result<(), Offence> {
    if old.len() != new.len() {
        let where_ = if above.is_empty() { "the table" } else { above };
        return Err(Offence::of(format!("the columns of {where_}")));
    }
    for (old, new) in old.iter().zip(new) {
        let path = join(above, &old.name);
        if old.name != new.name {
            return Err(Offence::at(&path, "the name or place"));
        }
        if old.nullable != new.nullable {
            return Err(Offence::at(&path, "the nullability"));
        }
        if !metadata_fits(old, new, gets_mapping) {
            return Err(Offence::at(&path, "the metadata"));
        }
        check_type(&path, &old.data_type, &new.data_type, gets_mapping)?;
    }
    Ok(())
}

fn check_type(path: &str, old: &DataType, new: &DataType, gets_mapping: bool) -> Result<(), Offence> {
    match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => check_fields(path, old, new, gets_mapping),
        (
            DataType::Array { element: old, contains_null: before },
            DataType::Array { element: new, contains_null: after },
        ) if before == after => check_type(&join(path, "element"), old, new, gets_mapping),
        (
            DataType::Map { key: old_key, value: old_value, value_contains_null: before },
            DataType::Map { key, value, value_contains_null: after },
        ) if before == after => {
            check_type(&join(path, "key"), old_key, key, gets_mapping)?;
            check_type(&join(path, "value"), old_value, value, gets_mapping)
        }
        (DataType::Primitive(old), DataType::Primitive(new)) if old == new => Ok(()),
        _ => Err(Offence::at(path, "the type")),
    }
}

fn metadata_fits(old: &Field, new: &Field, gets_mapping: bool) -> bool {
    if old.metadata == new.metadata {
        return true;
    }
    let others = |metadata: &Map<String, Value>| -> Map<String, Value> {
        let others = metadata.iter().filter(|(name, _)| !name.starts_with(MAPPING_PREFIX));
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let physical = new.metadata.get(PHYSICAL_NAME);
    gets_mapping
        && others(&old.metadata) == others(&new.metadata)
        && physical.is_none_or(|name| name.as_str() == Some(&new.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata(schema: &Value, properties: &[(&str, &str)]) -> Metadata {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
        Metadata {
            id: "m".into(),
            schema_string: schema.to_string(),
            configuration: properties.collect(),
            ..Metadata::default()
        }
    }

    fn column(name: &str, kind: Value, metadata: Value) -> Value {
        json!({"name": name, "type": kind, "nullable": true, "metadata": metadata})
    }

    fn schema(fields: Vec<Value>) -> Value {
        json!({"type": "struct", "fields": fields})
    }

    fn protocol(features: &[&str]) -> Protocol {
        let names: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(vec![]),
            writer_features: Some(names),
        }
    }

    #[test]
    fn each_property_has_its_rule() {
        let plain = schema(vec![column("a", json!("long"), json!({}))]);
        let id = "delta.rowTracking.materializedRowIdColumnName";
        let since = "delta.inCommitTimestampEnablementVersion";
        type Properties = Vec<(&'static str, &'static str)>;
        let cases: Vec<(Properties, Properties, &[&str], bool)> = vec![
            (vec![], vec![], &[], true),
            (vec![(ROW_TRACKING, "false")], vec![(ROW_TRACKING, "true")], &["rowTracking"], true),
            (vec![], vec![(ROW_TRACKING, "true")], &[], false),
            (vec![(ROW_TRACKING, "true")], vec![(ROW_TRACKING, "false")], &["rowTracking"], false),
            (vec![], vec![(ROW_TRACKING, "true"), (id, "x")], &["rowTracking"], true),
            (vec![], vec![(id, "x")], &["rowTracking"], false),
            (vec![(ROW_TRACKING, "true")], vec![(ROW_TRACKING, "true"), (id, "x")], &["rowTracking"], false),
            (vec![], vec![(MAPPING_MODE, "name")], &[], true),
            (vec![(MAPPING_MODE, "none")], vec![(MAPPING_MODE, "name")], &[], true),
            (vec![], vec![(MAPPING_MODE, "id")], &[], false),
            (vec![(MAPPING_MODE, "id")], vec![(MAPPING_MODE, "name")], &[], false),
            (vec![], vec![("delta.columnMapping.maxColumnId", "4")], &[], true),
            (vec![], vec![("delta.enableDeletionVectors", "true")], &[], true),
            (vec![("delta.enableDeletionVectors", "true")], vec![("delta.enableDeletionVectors", "false")], &[], false),
            (vec![], vec![("delta.checkpointPolicy", "v2")], &[], true),
            (vec![("delta.checkpointPolicy", "v2")], vec![("delta.checkpointPolicy", "classic")], &[], false),
            (vec![], vec![("delta.enableInCommitTimestamps", "true"), (since, "3")], &[], true),
            (vec![(since, "3")], vec![(since, "4")], &[], false),
            (vec![], vec![("delta.enableInCommitTimestamps", "false")], &[], false),
            (vec![], vec![("io.unitycatalog.tableId", "x")], &["catalogManaged"], true),
            (vec![], vec![("io.unitycatalog.tableId", "x")], &[], false),
            (vec![("ucTableId", "x")], vec![("ucTableId", "y")], &["catalogManaged"], false),
            (vec![], vec![("delta.appendOnly", "true")], &[], false),
            (vec![], vec![("mine", "1")], &[], false),
            (vec![("mine", "1")], vec![], &[], false),
            (vec![("delta.checkpointPolicy", "v2")], vec![], &[], false),
        ];
        for (old, new, features, fits) in cases {
            let found =
                check_change(&metadata(&plain, &old), &metadata(&plain, &new), &protocol(features), Marks::Stay);
            assert_eq!(found.is_ok(), fits, "{old:?} {new:?}: {found:?}");
        }
    }

    #[test]
    fn nothing_else_of_the_metadata_may_differ() {
        let old = metadata(&schema(vec![column("a", json!("long"), json!({}))]), &[]);
        for (new, what) in [
            (Metadata { id: "n".into(), ..old.clone() }, "its id"),
            (Metadata { name: Some("n".into()), ..old.clone() }, "the table's name"),
            (Metadata { description: Some("n".into()), ..old.clone() }, "the table's description"),
            (Metadata { partition_columns: vec!["a".into()], ..old.clone() }, "the partition columns"),
            (Metadata { created_time: Some(1), ..old.clone() }, "the time of its creation"),
        ] {
            assert_eq!(check_change(&old, &new, &protocol(&[]), Marks::Stay).unwrap_err().what, what);
        }
    }

    #[test]
    fn marks_may_move_where_they_may() {
        let with = |mark: i64, comment: &str| {
            let identity = json!({"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": mark, "c": comment});
            metadata(&schema(vec![column("a", json!("long"), identity)]), &[])
        };
        for (new, marks, fits) in [
            (with(2, ""), Marks::MayMove, true),
            (with(2, ""), Marks::Stay, false),
            (with(1, ""), Marks::Stay, true),
            (with(2, "x"), Marks::MayMove, false),
            (Metadata { name: Some("n".into()), ..with(2, "") }, Marks::MayMove, false),
        ] {
            assert_eq!(check_change(&with(1, ""), &new, &protocol(&[]), marks).is_ok(), fits, "{new:?} {marks:?}");
        }
    }

    #[test]
    fn columns_may_get_ids_and_their_own_names() {
        let nested = |metadata: Value| json!({"type": "array", "elementType": schema(vec![column("x", json!("long"), metadata)]), "containsNull": true});
        let old = schema(vec![column("a", json!("long"), json!({"c": 1})), column("s", nested(json!({})), json!({}))]);
        let mapped = |name: &str| json!({"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": name});
        let mut with_comment = mapped("a");
        with_comment["c"] = json!(1);
        let mapped_a = column("a", json!("long"), with_comment);
        let cases = [
            (schema(vec![mapped_a.clone(), column("s", nested(mapped("x")), mapped("s"))]), ""),
            (schema(vec![mapped_a.clone(), column("s", nested(mapped("y")), mapped("s"))]), "s.element.x"),
            (schema(vec![column("a", json!("long"), mapped("a")), column("s", nested(json!({})), json!({}))]), "a"),
            (schema(vec![column("b", json!("long"), json!({})), column("s", nested(json!({})), json!({}))]), "a"),
            (
                schema(vec![column("a", json!("integer"), json!({"c": 1})), column("s", nested(json!({})), json!({}))]),
                "a",
            ),
        ];
        for (new, column) in cases {
            let found = check_change(
                &metadata(&old, &[]),
                &metadata(&new, &[(MAPPING_MODE, "name")]),
                &protocol(&[]),
                Marks::Stay,
            )
            .err();
            assert_eq!(found.and_then(|offence| offence.column).unwrap_or_default(), column, "{new}");
        }
        let (plain, new) = (metadata(&old, &[]), metadata(&schema(vec![mapped_a]), &[]));
        assert!(check_change(&plain, &new, &protocol(&[]), Marks::Stay).is_err(), "one column less");
        let spaced = Metadata { schema_string: old.to_string().replace(':', " : "), ..plain.clone() };
        assert_eq!(check_change(&plain, &spaced, &protocol(&[]), Marks::Stay), Ok(()));
    }
}
