//! Columns in three spellings: Delta's schema, Unity Catalog's ColumnInfo, and the catalog's own (Hive's).

use serde_json::{Map, Value, json};

/// Unity Catalog's name of a type, and how the catalog spells it.
fn primitive(delta: &str) -> Option<(&'static str, &'static str)> {
    Some(match delta {
        "boolean" => ("BOOLEAN", "boolean"),
        "byte" => ("BYTE", "tinyint"),
        "short" => ("SHORT", "smallint"),
        "integer" => ("INT", "int"),
        "long" => ("LONG", "bigint"),
        "float" => ("FLOAT", "float"),
        "double" => ("DOUBLE", "double"),
        "date" => ("DATE", "date"),
        "timestamp" => ("TIMESTAMP", "timestamp"),
        "timestamp_ntz" => ("TIMESTAMP_NTZ", "timestamp"),
        "string" => ("STRING", "string"),
        "binary" => ("BINARY", "binary"),
        _ => return None,
    })
}

/// Hive's spelling of one of Delta's types; of one that Hive does not have, its name.
pub(super) fn hive_type(delta: &Value) -> String {
    match delta {
        Value::String(name) => match primitive(name) {
            Some((_, hive)) => hive.to_owned(),
            None => name.replace(' ', ""),
        },
        Value::Object(nested) => nested_hive_type(nested),
        _ => "string".to_owned(),
    }
}

fn nested_hive_type(nested: &Map<String, Value>) -> String {
    let part = |name: &str| nested.get(name).map_or_else(|| "string".to_owned(), hive_type);
    match nested.get("type").and_then(Value::as_str) {
        Some("array") => format!("array<{}>", part("elementType")),
        Some("map") => format!("map<{},{}>", part("keyType"), part("valueType")),
        Some("struct") => {
            let fields = nested.get("fields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let fields: Vec<String> = fields
                .iter()
                .map(|field| {
                    let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
                    format!("{name}:{}", field.get("type").map_or_else(|| "string".to_owned(), hive_type))
                })
                .collect();
            format!("struct<{}>", fields.join(","))
        }
        _ => "string".to_owned(),
    }
}

fn type_name(delta: &Value) -> String {
    match delta {
        Value::String(name) => match primitive(name) {
            Some((unity, _)) => unity.to_owned(),
            None if name.starts_with("decimal") => "DECIMAL".to_owned(),
            None => name.to_uppercase(),
        },
        Value::Object(nested) => nested.get("type").and_then(Value::as_str).unwrap_or("struct").to_uppercase(),
        _ => "STRING".to_owned(),
    }
}

/// Precision and scale of `decimal(p,s)`.
fn decimal(delta: &Value) -> Option<(i64, i64)> {
    let inner = delta.as_str()?.strip_prefix("decimal(")?.strip_suffix(')')?;
    let (precision, scale) = inner.split_once(',')?;
    Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))
}

/// ColumnInfo of a field of a Delta schema.
fn column_info(field: &Value, position: usize, partition_columns: &[String]) -> Value {
    let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
    let delta = field.get("type").cloned().unwrap_or_default();
    let mut info = json!({
        "name": name,
        "type_text": hive_type(&delta),
        "type_name": type_name(&delta),
        "type_json": field.to_string(),
        "position": position,
        "nullable": field.get("nullable").and_then(Value::as_bool).unwrap_or(true),
    });
    let Some(members) = info.as_object_mut() else { return info };
    if let Some((precision, scale)) = decimal(&delta) {
        members.insert("type_precision".into(), precision.into());
        members.insert("type_scale".into(), scale.into());
    }
    if let Some(index) = partition_columns.iter().position(|column| column.eq_ignore_ascii_case(name)) {
        members.insert("partition_index".into(), index.into());
    }
    if let Some(comment) = field.pointer("/metadata/comment").filter(|comment| comment.is_string()) {
        members.insert("comment".into(), comment.clone());
    }
    info
}

/// The columns that a Delta table has by its log.
pub(super) fn of_schema(schema_string: &str, partition_columns: &[String]) -> Option<Vec<Value>> {
    let schema: Value = serde_json::from_str(schema_string).ok()?;
    let fields = schema.get("fields")?.as_array()?;
    let infos = fields.iter().enumerate().map(|(at, field)| column_info(field, at, partition_columns));
    Some(infos.collect())
}

/// The columns of a table that only the catalog describes.
pub(super) fn of_catalog(columns: &[&Value], keys: &[&Value]) -> Vec<Value> {
    let text = |column: &Value, member: &str| column.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key_names: Vec<String> = keys.iter().map(|key| text(key, "Name")).collect();
    let fields = columns.iter().chain(keys).map(|column| {
        let metadata = column.get("Comment").map_or_else(|| json!({}), |comment| json!({"comment": comment}));
        json!({"name": text(column, "Name"), "type": delta_type(&text(column, "Type")), "nullable": true, "metadata": metadata})
    });
    fields.enumerate().map(|(at, field)| column_info(&field, at, &key_names)).collect()
}

/// Delta's name of one of Hive's simple types; others as they are.
fn delta_type(hive: &str) -> Value {
    let lower = hive.trim().to_lowercase();
    Value::String(match lower.as_str() {
        "tinyint" => "byte".to_owned(),
        "smallint" => "short".to_owned(),
        "int" => "integer".to_owned(),
        "bigint" => "long".to_owned(),
        text if text.starts_with("varchar") || text.starts_with("char") => "string".to_owned(),
        _ => lower,
    })
}

/// A column of a call as Delta's field: its `type_json` is one, or only the type of one.
fn field_of(column: &Value) -> Value {
    let json =
        column.get("type_json").and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
    match json {
        Some(field) if field.get("name").is_some() && field.get("type").is_some() => field,
        Some(delta) => json!({"name": column.get("name"), "type": delta}),
        None => {
            let hive = column.get("type_text").and_then(Value::as_str).unwrap_or("string");
            json!({"name": column.get("name"), "type": delta_type(hive)})
        }
    }
}

/// Fields of a Delta schema and its partition columns, from ColumnInfos.
pub(super) fn to_schema(columns: &[Value]) -> (Vec<Value>, Vec<String>) {
    let mut keys: Vec<(i64, String)> = Vec::new();
    let mut fields = Vec::new();
    for column in columns {
        let name = column.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(index) = column.get("partition_index").and_then(Value::as_i64) {
            keys.push((index, name.to_owned()));
        }
        let mut field = field_of(column);
        if let Some(field) = field.as_object_mut() {
            let nullable = column.get("nullable").and_then(Value::as_bool).unwrap_or(true);
            field.entry("nullable").or_insert(nullable.into());
            field.entry("metadata").or_insert_with(|| json!({}));
        }
        fields.push(field);
    }
    keys.sort();
    (fields, keys.into_iter().map(|(_, name)| name).collect())
}

/// Columns and partition keys for the catalog, from the columns of a call.
pub(super) fn to_catalog(columns: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let (mut plain, mut keys) = (Vec::new(), Vec::new());
    for column in columns {
        let field = field_of(column);
        let name = column.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut entry = json!({"Name": name, "Type": hive_type(field.get("type").unwrap_or(&Value::Null))});
        if let (Some(comment), Some(entry)) =
            (column.get("comment").filter(|text| text.is_string()), entry.as_object_mut())
        {
            entry.insert("Comment".into(), comment.clone());
        }
        match column.get("partition_index").and_then(Value::as_i64) {
            Some(index) => keys.push((index, entry)),
            None => plain.push(entry),
        }
    }
    keys.sort_by_key(|(index, _)| *index);
    (plain, keys.into_iter().map(|(_, entry)| entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_three_spellings() {
        let nested = json!({"type": "struct", "fields": [
            {"name": "a", "type": {"type": "array", "elementType": "long"}},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "decimal(10, 2)"}},
        ]});
        assert_eq!(hive_type(&nested), "struct<a:array<bigint>,m:map<string,decimal(10,2)>>");
        for (delta, hive, unity) in [
            ("byte", "tinyint", "BYTE"),
            ("integer", "int", "INT"),
            ("decimal(5,2)", "decimal(5,2)", "DECIMAL"),
            ("timestamp_ntz", "timestamp", "TIMESTAMP_NTZ"),
            ("variant", "variant", "VARIANT"),
        ] {
            assert_eq!((hive_type(&json!(delta)).as_str(), type_name(&json!(delta)).as_str()), (hive, unity));
        }
    }

    #[test]
    fn columns_go_to_the_catalog_and_come_from_the_log() {
        let schema = r#"{"type":"struct","fields":[{"name":"Id","type":"long","nullable":false,"metadata":{"comment":"c"}},
            {"name":"p","type":"decimal(5,2)","nullable":true,"metadata":{}}]}"#;
        let infos = of_schema(schema, &["p".to_owned()]).unwrap();
        assert_eq!(
            (&infos[0]["name"], &infos[0]["nullable"], &infos[0]["comment"]),
            (&json!("Id"), &json!(false), &json!("c"))
        );
        assert_eq!((&infos[1]["partition_index"], &infos[1]["type_precision"]), (&json!(0), &json!(5)));
        let (plain, keys) = to_catalog(&infos);
        assert_eq!(plain, [json!({"Name": "Id", "Type": "bigint", "Comment": "c"})]);
        assert_eq!(keys, [json!({"Name": "p", "Type": "decimal(5,2)"})]);
        let back = of_catalog(&plain.iter().collect::<Vec<_>>(), &keys.iter().collect::<Vec<_>>());
        assert_eq!((&back[0]["type_name"], &back[1]["partition_index"]), (&json!("LONG"), &json!(0)));
        assert_eq!(of_schema("x", &[]), None);
    }
}
