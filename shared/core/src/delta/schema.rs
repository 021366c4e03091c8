//! `metaData.schemaString`: JSON to a tree, with the rules that every Delta schema keeps.

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use super::json::{JsonError, parse_strict};

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
    Array { element: Box<DataType>, contains_null: bool },
    Map { key: Box<DataType>, value: Box<DataType>, value_contains_null: bool },
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
    #[error("the columns `{first}` and `{second}` of `{path}` differ at most by case")]
    Duplicate { path: String, first: String, second: String },
}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        let value = parse_strict(text)?;
        match data_type(&value, "")? {
            DataType::Struct(fields) => Ok(Schema { fields }),
            _ => Err(SchemaError::Shape { path: String::new(), message: "is not a struct" }),
        }
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
        DataType::Struct(fields) => fields.iter().any(|field| holds(&field.data_type, kind)),
        DataType::Array { element, .. } => holds(element, kind),
        DataType::Map { key, value, .. } => holds(key, kind) || holds(value, kind),
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
        DataType::Primitive(_) => {}
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
        return primitive(name)
            .map(DataType::Primitive)
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

fn check_names(fields: &[Field], path: &str) -> Result<(), SchemaError> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for field in fields {
        if let Some(first) = seen.insert(field.name.to_lowercase(), &field.name) {
            return Err(SchemaError::Duplicate {
                path: if path.is_empty() { "the table".to_owned() } else { path.to_owned() },
                first: first.to_owned(),
                second: field.name.clone(),
            });
        }
    }
    Ok(())
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_types_are_read() {
        let text = r#"{"type":"struct","fields":[
            {"name":"id","type":"long","nullable":false,"metadata":{}},
            {"name":"price","type":"decimal(12, 2)","nullable":true,"metadata":{}},
            {"name":"tags","type":{"type":"map","keyType":"string","valueType":{"type":"array","elementType":
                {"type":"struct","fields":[{"name":"x","type":"date"}]},"containsNull":false},"valueContainsNull":true}}]}"#;
        let schema = Schema::parse(text).unwrap();
        assert_eq!(schema.column("tags").unwrap().data_type.to_string(), "map<string,array<struct<x:date>>>");
        assert!(!schema.column("id").unwrap().nullable);
        assert_eq!(schema.walk().last().unwrap().0, "tags.value.element.x");
    }

    #[test]
    fn bad_schemas_are_named() {
        let one = |kind: &str| format!(r#"{{"type":"struct","fields":[{{"name":"a","type":{kind}}}]}}"#);
        for (text, expected) in [
            ("{".to_owned(), "Json"),
            (r#""long""#.to_owned(), "Shape"),
            (r#"{"type":"struct"}"#.to_owned(), "Shape"),
            (one("\"variant\""), "UnsupportedType"),
            (one("\"void\""), "UnsupportedType"),
            (one("\"decimal(39,1)\""), "UnsupportedType"),
            (one(r#"{"type":"array"}"#), "Shape"),
            (
                r#"{"type":"struct","fields":[{"name":"id","type":"long"},{"name":"ID","type":"long"}]}"#.to_owned(),
                "Duplicate",
            ),
        ] {
            let error = Schema::parse(&text).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{text}: {error:?}");
        }
    }

    #[test]
    fn new_schemas_hold_what_readers_need() {
        let field = |kind: &str| format!(r#"{{"name":"a","type":{kind},"nullable":true,"metadata":{{}}}}"#);
        let one = |field: &str| format!(r#"{{"type":"struct","fields":[{field}]}}"#);
        let good = one(&field(
            r#"{"type":"map","keyType":"string","valueType":{"type":"array","elementType":"decimal(5, 2)","containsNull":true},"valueContainsNull":true}"#,
        ));
        assert!(Schema::parse_new(&good).is_ok());
        for bad in [
            one(""),
            one(&field("\"decimal\"")),
            one(&field(r#"{"type":"array","elementType":"long"}"#)),
            one(&field(r#"{"type":"map","keyType":"long","valueType":"long"}"#)),
            one(&field(&one(r#"{"name":"b","type":"long"}"#))),
            one(&field("\"long\"").replace("\"a\"", "\"\"")),
            one(&field("\"long\"").replace("true", "\"yes\"")),
            one(&field("\"long\"").replace("{}", "[]")),
        ] {
            assert!(matches!(Schema::parse_new(&bad), Err(SchemaError::Shape { .. })), "{bad}");
            assert!(Schema::parse(&bad).is_ok(), "logs are read as they are: {bad}");
        }
    }
}
