//! What differs between two schemas, field by field.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::delta::schema::{COLUMN_ID, DataType, Field, PHYSICAL_NAME, Primitive, Schema, TYPE_CHANGES, join};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaChange {
    /// Dotted path, by the new names; that of a dropped field by the old ones.
    pub path: String,
    /// Path by the old names, where there was something.
    pub old_path: Option<String>,
    pub kind: ChangeKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    Added {
        data_type: String,
        nullable: bool,
        /// No field that was there before follows it in its struct.
        is_last: bool,
    },
    Dropped {
        data_type: String,
    },
    Renamed {
        from: String,
        to: String,
    },
    Moved,
    /// Between two types without parts, of which one may be void.
    Retyped {
        from: DataType,
        to: DataType,
    },
    /// Between types of other shapes.
    Reshaped {
        from: String,
        to: String,
    },
    /// May be null from now on.
    Relaxed,
    Tightened,
    /// Members of the field's metadata; those of column mapping and type changes have rules of their own.
    Metadata {
        members: Vec<String>,
    },
}

impl SchemaChange {
    pub fn explain(&self) -> String {
        let path = &self.path;
        match &self.kind {
            ChangeKind::Added { data_type, nullable, is_last } => {
                let null = if *nullable { "" } else { " NOT NULL" };
                let place = if *is_last { "" } else { ", before fields that were there" };
                format!("column `{path}` is added as {data_type}{null}{place}")
            }
            ChangeKind::Dropped { data_type } => format!("column `{path}` ({data_type}) is dropped"),
            ChangeKind::Renamed { from, to } => format!("column `{from}` is renamed to `{to}`"),
            ChangeKind::Moved => format!("column `{path}` moves to another place"),
            ChangeKind::Retyped { from, to } => format!("the type of column `{path}` changes from {from} to {to}"),
            ChangeKind::Reshaped { from, to } => format!("the type of column `{path}` changes from {from} to {to}"),
            ChangeKind::Relaxed => format!("column `{path}` may be null from now on"),
            ChangeKind::Tightened => format!("column `{path}` becomes NOT NULL"),
            ChangeKind::Metadata { members } => {
                format!("the metadata of column `{path}` changes: {}", members.join(", "))
            }
        }
    }

    /// What was there, and what is to be.
    pub fn sides(&self) -> (Option<String>, Option<String>) {
        match &self.kind {
            ChangeKind::Added { data_type, .. } => (None, Some(data_type.clone())),
            ChangeKind::Dropped { data_type } => (Some(data_type.clone()), None),
            ChangeKind::Renamed { from, to } => (Some(from.clone()), Some(to.clone())),
            ChangeKind::Retyped { from, to } => (Some(from.to_string()), Some(to.to_string())),
            ChangeKind::Reshaped { from, to } => (Some(from.clone()), Some(to.clone())),
            ChangeKind::Relaxed => (Some("NOT NULL".to_owned()), Some("nullable".to_owned())),
            ChangeKind::Tightened => (Some("nullable".to_owned()), Some("NOT NULL".to_owned())),
            ChangeKind::Moved | ChangeKind::Metadata { .. } => (None, None),
        }
    }
}

/// All differences, in the order of the schemas. Fields are the same by their column ids where both have some, else by
/// their exact names.
pub fn diff(old: &Schema, new: &Schema) -> Vec<SchemaChange> {
    let mut out = Vec::new();
    fields("", "", &old.fields, &new.fields, &mut out);
    out
}

/// The field that `before` has become.
pub fn successor<'n>(before: &Field, new: &'n [Field]) -> Option<&'n Field> {
    Successors::of(new).find(before).map(|(_, field)| field)
}

/// Fields of a struct, by what their predecessors are known by.
#[derive(Debug)]
pub struct Successors<'n> {
    by_id: HashMap<i64, (usize, &'n Field)>,
    by_name: HashMap<&'n str, (usize, &'n Field)>,
}

impl<'n> Successors<'n> {
    pub fn of(new: &'n [Field]) -> Successors<'n> {
        let places = new.iter().enumerate();
        Successors {
            by_id: places.clone().filter_map(|(at, field)| Some((field.column_id()?, (at, field)))).collect(),
            by_name: places.map(|(at, field)| (field.name.as_str(), (at, field))).collect(),
        }
    }

    /// The field, and its place.
    pub fn find(&self, before: &Field) -> Option<(usize, &'n Field)> {
        let by_name = self.by_name.get(before.name.as_str()).copied();
        match before.column_id() {
            Some(id) => {
                let by_id = self.by_id.get(&id).copied();
                by_id.or(by_name.filter(|(_, field)| field.column_id().is_none()))
            }
            None => by_name,
        }
    }
}

fn fields(old_above: &str, above: &str, old: &[Field], new: &[Field], out: &mut Vec<SchemaChange>) {
    let successors = Successors::of(new);
    let pairs: Vec<(&Field, Option<(usize, &Field)>)> =
        old.iter().map(|before| (before, successors.find(before))).collect();
    let mut furthest = None;
    for (before, at) in &pairs {
        let old_path = join(old_above, &before.name);
        let Some((index, after)) = *at else {
            let kind = ChangeKind::Dropped { data_type: before.data_type.to_string() };
            out.push(SchemaChange { path: old_path.clone(), old_path: Some(old_path), kind });
            continue;
        };
        let path = join(above, &after.name);
        let mut push = |kind| out.push(SchemaChange { path: path.clone(), old_path: Some(old_path.clone()), kind });
        if before.name != after.name {
            push(ChangeKind::Renamed { from: before.name.clone(), to: after.name.clone() });
        }
        if furthest.is_some_and(|furthest| index < furthest) {
            push(ChangeKind::Moved);
        }
        furthest = furthest.max(Some(index));
        match (before.nullable, after.nullable) {
            (true, false) => push(ChangeKind::Tightened),
            (false, true) => push(ChangeKind::Relaxed),
            _ => {}
        }
        let members = changed_members(&before.metadata, &after.metadata);
        if !members.is_empty() {
            push(ChangeKind::Metadata { members });
        }
        types(&old_path, &path, &before.data_type, &after.data_type, out);
    }
    let kept: HashSet<usize> = pairs.iter().filter_map(|(_, at)| at.map(|(index, _)| index)).collect();
    for (index, after) in new.iter().enumerate() {
        if kept.contains(&index) {
            continue;
        }
        let kind = ChangeKind::Added {
            data_type: after.data_type.to_string(),
            nullable: after.nullable,
            is_last: furthest.is_none_or(|furthest| index > furthest),
        };
        out.push(SchemaChange { path: join(above, &after.name), old_path: None, kind });
    }
}

fn types(old_path: &str, path: &str, old: &DataType, new: &DataType, out: &mut Vec<SchemaChange>) {
    let mut push = |path: String, kind| {
        out.push(SchemaChange { path, old_path: Some(old_path.to_owned()), kind });
    };
    match (old, new) {
        (DataType::Struct(old), DataType::Struct(new)) => fields(old_path, path, old, new, out),
        (
            DataType::Array { element: old, contains_null: before },
            DataType::Array { element: new, contains_null: after },
        ) => {
            let inner = join(path, "element");
            nullability(inner.clone(), *before, *after, &mut push);
            types(&join(old_path, "element"), &inner, old, new, out);
        }
        (
            DataType::Map { key: old_key, value: old_value, value_contains_null: before },
            DataType::Map { key, value, value_contains_null: after },
        ) => {
            let inner = join(path, "value");
            nullability(inner.clone(), *before, *after, &mut push);
            types(&join(old_path, "key"), &join(path, "key"), old_key, key, out);
            types(&join(old_path, "value"), &inner, old_value, value, out);
        }
        (old, new) if old == new => {}
        (DataType::Primitive(_) | DataType::Void, DataType::Primitive(_)) | (DataType::Void, _) => {
            push(path.to_owned(), ChangeKind::Retyped { from: old.clone(), to: new.clone() });
        }
        (old, new) => push(path.to_owned(), ChangeKind::Reshaped { from: old.to_string(), to: new.to_string() }),
    }
}

fn nullability(path: String, before: bool, after: bool, push: &mut dyn FnMut(String, ChangeKind)) {
    match (before, after) {
        (true, false) => push(path, ChangeKind::Tightened),
        (false, true) => push(path, ChangeKind::Relaxed),
        _ => {}
    }
}

fn changed_members(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    names
        .filter(|name| ![COLUMN_ID, PHYSICAL_NAME, TYPE_CHANGES].contains(&name.as_str()))
        .filter(|name| old.get(*name) != new.get(*name))
        .cloned()
        .collect()
}

/// Both types of a change between primitives.
pub fn primitives(kind: &ChangeKind) -> Option<(&Primitive, &Primitive)> {
    match kind {
        ChangeKind::Retyped { from: DataType::Primitive(from), to: DataType::Primitive(to) } => Some((from, to)),
        _ => None,
    }
}
