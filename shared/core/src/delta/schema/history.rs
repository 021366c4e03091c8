//! `delta.typeChanges`: the types that a column had before it was widened.

use serde_json::Value;

use super::{DataType, Field, Primitive, named_type};

/// Member of a field's metadata: the changes, oldest first.
pub const TYPE_CHANGES: &str = "delta.typeChanges";

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeChange {
    pub from: Primitive,
    pub to: Primitive,
    /// `element`, `key`, `value` and their nestings; empty for the field itself.
    pub path: String,
}

/// The changes of a field; nothing where they are not written as the protocol has them.
pub fn type_changes(field: &Field) -> Option<Vec<TypeChange>> {
    let Some(found) = field.metadata.get(TYPE_CHANGES) else { return Some(Vec::new()) };
    found.as_array()?.iter().map(type_change).collect()
}

fn type_change(entry: &Value) -> Option<TypeChange> {
    let kind = |name: &str| match named_type(entry.get(name)?.as_str()?)? {
        DataType::Primitive(kind) => Some(kind),
        _ => None,
    };
    let path = match entry.get("fieldPath") {
        None | Some(Value::Null) => String::new(),
        Some(path) => path.as_str()?.to_owned(),
    };
    Some(TypeChange { from: kind("fromType")?, to: kind("toType")?, path })
}

/// The history of a part of a field.
#[derive(Clone, Debug, Default)]
pub struct TypeHistory<'a> {
    field: Option<&'a Field>,
    path: Vec<&'static str>,
}

impl<'a> TypeHistory<'a> {
    pub fn of(field: &'a Field) -> TypeHistory<'a> {
        TypeHistory { field: Some(field), path: Vec::new() }
    }

    /// The history of the elements, keys or values.
    pub fn below(&self, step: &'static str) -> TypeHistory<'a> {
        let path = self.path.iter().copied().chain([step]).collect();
        TypeHistory { field: self.field, path }
    }

    /// Types that the part had before, oldest first.
    pub fn before(&self) -> Vec<Primitive> {
        let Some(field) = self.field.filter(|field| field.metadata.contains_key(TYPE_CHANGES)) else {
            return Vec::new();
        };
        let path = self.path.join(".");
        let changes = type_changes(field).unwrap_or_default();
        changes.into_iter().filter(|change| change.path == path).map(|change| change.from).collect()
    }
}
