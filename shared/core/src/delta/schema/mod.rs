//! `metaData.schemaString`: JSON to a tree and back, with the rules that every Delta schema keeps.
//!
//! The tree loses nothing: members that are not known here, and the order of all members, come out as they went in.

mod history;
mod mapping;
mod write;

pub use history::{TYPE_CHANGES, TypeChange, TypeHistory, type_changes};
pub use mapping::{COLUMN_ID, MappingMode, PHYSICAL_NAME, physical_names};

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::delta::json::{JsonError, parse_strict};

/// Types without parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    String,
    Long,
    Integer,
    Short,
    Byte,
    Float,
    Double,
    Boolean,
    Binary,
    Date,
    Timestamp,
    TimestampNtz,
    Decimal { precision: u8, scale: u8 },
}

/// The type of a column or of a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum DataType {
    Primitive(Primitive),
    Struct(Vec<Field>),
    Array {
        element: Box<DataType>,
        contains_null: bool,
    },
    Map {
        key: Box<DataType>,
        value: Box<DataType>,
        value_contains_null: bool,
    },
    /// Semi-structured; in files a group of two binaries.
    Variant,
    /// Always null; has no values in files.
    Void,
}

/// A column, or a field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub metadata: Map<String, Value>,
}

/// A table's schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub fields: Vec<Field>,
    /// The JSON that was read, for the members that the tree does not have.
    written: Value,
}

/// A schema string is not a schema that we can enforce.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    #[error("the schema string: {0}")]
    Json(#[from] JsonError),
    #[error("the schema string: `{path}` {message}")]
    Shape { path: String, message: &'static str },
    #[error("column `{path}` has the type `{found}`, which this version cannot enforce")]
    UnsupportedType { path: String, found: String },
    #[error("the columns `{first}` and `{second}` of {} differ at most by case", struct_name(.above))]
    Duplicate { above: String, first: String, second: String },
}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        let value = parse_strict(text)?;
        match data_type(&value, "")? {
            DataType::Struct(fields) => Ok(Schema { fields, written: value }),
            _ => Err(SchemaError::Shape { path: String::new(), message: "is not a struct" }),
        }
    }

    /// A schema of these columns.
    pub fn of(fields: Vec<Field>) -> Schema {
        Schema { fields, written: Value::Null }
    }

    /// The schema as JSON; what was parsed comes out as it was, changed fields with their changes.
    pub fn to_json(&self) -> Value {
        write::struct_type(&self.fields, Some(&self.written))
    }

    /// A top-level column, by exact name.
    pub fn column(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Reads a schema that a commit brings: whatever readers need is there, although logs are read without it.
    pub fn parse_new(text: &str) -> Result<Schema, SchemaError> {
        check_new(&parse_strict(text)?, "")?;
        let schema = Schema::parse(text)?;
        if schema.fields.is_empty() {
            return Err(SchemaError::Shape { path: "the table".to_owned(), message: "has no columns" });
        }
        Ok(schema)
    }

    /// Path of a column that has this type, or holds it.
    pub fn leaf_of(&self, kind: &Primitive) -> Option<String> {
        self.walk().into_iter().find(|(_, field)| holds(&field.data_type, kind)).map(|(path, _)| path)
    }

    /// Path of a variant column.
    pub fn variant(&self) -> Option<String> {
        let is_variant = |data_type: &DataType| any_part(data_type, &|part| *part == DataType::Variant);
        self.walk().into_iter().find(|(_, field)| is_variant(&field.data_type)).map(|(path, _)| path)
    }

    /// Path of an array or a map that holds void, also below its structs.
    pub fn void_in_collection(&self) -> Option<String> {
        self.fields.iter().find_map(|field| void_below(&field.name, &field.data_type, false))
    }

    /// All fields at any depth, with their dotted paths.
    pub fn walk(&self) -> Vec<(String, &Field)> {
        let mut found = Vec::new();
        for field in &self.fields {
            walk_field("", field, &mut found);
        }
        found
    }
}

fn holds(data_type: &DataType, kind: &Primitive) -> bool {
    match data_type {
        DataType::Primitive(found) => found == kind,
        DataType::Variant | DataType::Void => false,
        DataType::Struct(fields) => fields.iter().any(|field| holds(&field.data_type, kind)),
        DataType::Array { element, .. } => holds(element, kind),
        DataType::Map { key, value, .. } => holds(key, kind) || holds(value, kind),
    }
}

/// Whether a type or a part of it (not below the fields of structs, which [`Schema::walk`] reaches) is such.
fn any_part(data_type: &DataType, is_such: &dyn Fn(&DataType) -> bool) -> bool {
    is_such(data_type)
        || match data_type {
            DataType::Array { element, .. } => any_part(element, is_such),
            DataType::Map { key, value, .. } => any_part(key, is_such) || any_part(value, is_such),
            _ => false,
        }
}

fn void_below(path: &str, data_type: &DataType, is_inside: bool) -> Option<String> {
    match data_type {
        DataType::Void => is_inside.then(|| path.to_owned()),
        DataType::Struct(fields) => {
            fields.iter().find_map(|field| void_below(&join(path, &field.name), &field.data_type, is_inside))
        }
        DataType::Array { element, .. } => void_below(&join(path, "element"), element, true),
        DataType::Map { key, value, .. } => {
            void_below(&join(path, "key"), key, true).or_else(|| void_below(&join(path, "value"), value, true))
        }
        DataType::Primitive(_) | DataType::Variant => None,
    }
}

/// Members that the protocol demands of every field and type, and that [`Schema::parse`] has defaults for.
fn check_new(data_type: &Value, path: &str) -> Result<(), SchemaError> {
    let shape = |message| Err(SchemaError::Shape { path: path.to_owned(), message });
    let is_flag = |name: &str| data_type.get(name).is_some_and(Value::is_boolean);
    match data_type.get("type").and_then(Value::as_str) {
        Some("array") if !is_flag("containsNull") => return shape("lacks containsNull (true or false)"),
        Some("map") if !is_flag("valueContainsNull") => return shape("lacks valueContainsNull (true or false)"),
        _ if data_type.as_str() == Some("decimal") => return shape("is a decimal without precision and scale"),
        _ => {}
    }
    for (part, step) in [("elementType", "element"), ("keyType", "key"), ("valueType", "value")] {
        if let Some(inner) = data_type.get(part) {
            check_new(inner, &join(path, step))?;
        }
    }
    for field in data_type.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
        let inner = join(path, name);
        let shape = |message| Err(SchemaError::Shape { path: inner.clone(), message });
        if name.is_empty() {
            return shape("has a field with an empty name");
        }
        if !field.get("nullable").is_some_and(Value::is_boolean) {
            return shape("lacks nullable (true or false)");
        }
        if !field.get("metadata").is_some_and(Value::is_object) {
            return shape("lacks metadata (an object)");
        }
        check_new(field.get("type").unwrap_or(&Value::Null), &inner)?;
    }
    Ok(())
}

fn walk_field<'a>(above: &str, field: &'a Field, found: &mut Vec<(String, &'a Field)>) {
    let path = join(above, &field.name);
    found.push((path.clone(), field));
    walk_type(&path, &field.data_type, found);
}

fn walk_type<'a>(path: &str, data_type: &'a DataType, found: &mut Vec<(String, &'a Field)>) {
    match data_type {
        DataType::Primitive(_) | DataType::Variant | DataType::Void => {}
        DataType::Struct(fields) => fields.iter().for_each(|field| walk_field(path, field, found)),
        DataType::Array { element, .. } => walk_type(&join(path, "element"), element, found),
        DataType::Map { key, value, .. } => {
            walk_type(&join(path, "key"), key, found);
            walk_type(&join(path, "value"), value, found);
        }
    }
}

/// `a.b`
pub fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn data_type(value: &Value, path: &str) -> Result<DataType, SchemaError> {
    let shape = |message| SchemaError::Shape { path: path.to_owned(), message };
    if let Some(name) = value.as_str() {
        return named_type(name)
            .ok_or_else(|| SchemaError::UnsupportedType { path: path.to_owned(), found: name.to_owned() });
    }
    let object = value.as_object().ok_or_else(|| shape("has neither a name nor an object as its type"))?;
    let part = |name: &str, step: &str| {
        let inner = object.get(name).ok_or_else(|| shape("lacks a part of its type"))?;
        data_type(inner, &join(path, step)).map(Box::new)
    };
    let flag = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or(true);
    match object.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let fields =
                object.get("fields").and_then(Value::as_array).ok_or_else(|| shape("has no list of fields"))?;
            let fields = fields.iter().map(|one| field(one, path)).collect::<Result<Vec<_>, _>>()?;
            check_names(&fields, path)?;
            Ok(DataType::Struct(fields))
        }
        Some("array") => {
            Ok(DataType::Array { element: part("elementType", "element")?, contains_null: flag("containsNull") })
        }
        Some("map") => Ok(DataType::Map {
            key: part("keyType", "key")?,
            value: part("valueType", "value")?,
            value_contains_null: flag("valueContainsNull"),
        }),
        Some(other) => Err(SchemaError::UnsupportedType { path: path.to_owned(), found: other.to_owned() }),
        None => Err(shape("has a type without a name")),
    }
}

fn field(value: &Value, above: &str) -> Result<Field, SchemaError> {
    let shape = |message| SchemaError::Shape { path: above.to_owned(), message };
    let name = value.get("name").and_then(Value::as_str).ok_or_else(|| shape("has a field without a name"))?;
    let path = join(above, name);
    let inner = value.get("type").ok_or_else(|| shape("has a field without a type"))?;
    Ok(Field {
        name: name.to_owned(),
        data_type: data_type(inner, &path)?,
        nullable: value.get("nullable").and_then(Value::as_bool).unwrap_or(true),
        metadata: value.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
    })
}

/// What columns stand in, by its path.
fn struct_name(path: &str) -> String {
    if path.is_empty() { "the table".to_owned() } else { format!("`{path}`") }
}

fn check_names(fields: &[Field], path: &str) -> Result<(), SchemaError> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for field in fields {
        if let Some(first) = seen.insert(field.name.to_lowercase(), &field.name) {
            return Err(SchemaError::Duplicate {
                above: path.to_owned(),
                first: first.to_owned(),
                second: field.name.clone(),
            });
        }
    }
    Ok(())
}

/// The type of this name.
pub(crate) fn named_type(name: &str) -> Option<DataType> {
    match name {
        "variant" => Some(DataType::Variant),
        "void" | "null" => Some(DataType::Void),
        _ => primitive(name).map(DataType::Primitive),
    }
}

fn primitive(name: &str) -> Option<Primitive> {
    Some(match name {
        "string" => Primitive::String,
        "long" => Primitive::Long,
        "integer" => Primitive::Integer,
        "short" => Primitive::Short,
        "byte" => Primitive::Byte,
        "float" => Primitive::Float,
        "double" => Primitive::Double,
        "boolean" => Primitive::Boolean,
        "binary" => Primitive::Binary,
        "date" => Primitive::Date,
        "timestamp" => Primitive::Timestamp,
        "timestamp_ntz" => Primitive::TimestampNtz,
        "decimal" => Primitive::Decimal { precision: 10, scale: 0 },
        _ => {
            let inner = name.strip_prefix("decimal(")?.strip_suffix(')')?;
            let (precision, scale) = inner.split_once(',')?;
            let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            if precision == 0 || precision > 38 || scale > precision {
                return None;
            }
            Primitive::Decimal { precision, scale }
        }
    })
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Primitive::String => "string",
            Primitive::Long => "long",
            Primitive::Integer => "integer",
            Primitive::Short => "short",
            Primitive::Byte => "byte",
            Primitive::Float => "float",
            Primitive::Double => "double",
            Primitive::Boolean => "boolean",
            Primitive::Binary => "binary",
            Primitive::Date => "date",
            Primitive::Timestamp => "timestamp",
            Primitive::TimestampNtz => "timestamp_ntz",
            Primitive::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
        };
        f.write_str(name)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Primitive(primitive) => primitive.fmt(f),
            DataType::Struct(fields) => {
                f.write_str("struct<")?;
                for (index, field) in fields.iter().enumerate() {
                    write!(f, "{}{}:{}", if index == 0 { "" } else { "," }, field.name, field.data_type)?;
                }
                f.write_str(">")
            }
            DataType::Array { element, .. } => write!(f, "array<{element}>"),
            DataType::Map { key, value, .. } => write!(f, "map<{key},{value}>"),
            DataType::Variant => f.write_str("variant"),
            DataType::Void => f.write_str("void"),
        }
    }
}

#[cfg(test)]
mod tests;
