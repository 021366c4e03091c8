//! A schema's tree as JSON, on top of the JSON that it was read from.

use serde_json::{Map, Value};

use super::{DataType, Field, named_type};

/// `template` is the JSON that the struct was read from, if it was.
pub(super) fn struct_type(fields: &[Field], template: Option<&Value>) -> Value {
    let before = template.and_then(|value| value.get("fields")).and_then(Value::as_array);
    let written = fields.iter().enumerate().map(|(index, field)| {
        let is_twin = |one: &&Value| one.get("name").and_then(Value::as_str) == Some(field.name.as_str());
        let list = before.map(Vec::as_slice).unwrap_or_default();
        let twin = list.get(index).filter(is_twin).or_else(|| list.iter().find(is_twin));
        field_of(field, twin)
    });
    let fields = written.collect();
    object(template, vec![("type", "struct".into()), ("fields", Value::Array(fields))], &[])
}

fn field_of(field: &Field, template: Option<&Value>) -> Value {
    let members = vec![
        ("name", field.name.as_str().into()),
        ("type", data_type(&field.data_type, template.and_then(|value| value.get("type")))),
        ("nullable", field.nullable.into()),
        ("metadata", Value::Object(field.metadata.clone())),
    ];
    let defaults = [("nullable", field.nullable), ("metadata", field.metadata.is_empty())];
    object(template, members, &defaults)
}

fn data_type(data_type: &DataType, template: Option<&Value>) -> Value {
    let part = |name: &str| template.and_then(|value| value.get(name));
    match data_type {
        DataType::Struct(fields) => struct_type(fields, template),
        DataType::Array { element, contains_null } => {
            let element = self::data_type(element, part("elementType"));
            let members =
                vec![("type", "array".into()), ("elementType", element), ("containsNull", (*contains_null).into())];
            object(template, members, &[("containsNull", *contains_null)])
        }
        DataType::Map { key, value, value_contains_null } => {
            let members = vec![
                ("type", "map".into()),
                ("keyType", self::data_type(key, part("keyType"))),
                ("valueType", self::data_type(value, part("valueType"))),
                ("valueContainsNull", (*value_contains_null).into()),
            ];
            object(template, members, &[("valueContainsNull", *value_contains_null)])
        }
        DataType::Primitive(_) | DataType::Variant | DataType::Void => {
            // One type has several spellings.
            match template.filter(|value| value.as_str().and_then(named_type).as_ref() == Some(data_type)) {
                Some(as_written) => as_written.clone(),
                None => data_type.to_string().into(),
            }
        }
    }
}

/// Members in the order of the template, its unknown ones among them; new ones come last. `defaults` names members that
/// may stay away where the template has none and they say nothing.
fn object(template: Option<&Value>, members: Vec<(&str, Value)>, defaults: &[(&str, bool)]) -> Value {
    let mut out = match template {
        Some(Value::Object(found)) => found.clone(),
        _ => Map::new(),
    };
    let is_new = out.is_empty();
    for (name, value) in members {
        let may_stay_away = defaults.contains(&(name, true));
        if is_new || !may_stay_away || out.contains_key(name) {
            out.insert(name.to_owned(), value);
        }
    }
    Value::Object(out)
}
