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
        (one("\"geometry\""), "UnsupportedType"),
        (one("\"interval day\""), "UnsupportedType"),
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

#[test]
fn what_goes_in_comes_out() {
    let text = r#"{"fields":[{"metadata":{"delta.columnMapping.id":7,"x":{"b":[1.5,null],"a":1}},"name":"a b","doc":"?","type":"decimal(5, 2)","nullable":true},{"name":"s","type":{"z":1,"type":"map","valueContainsNull":false,"keyType":"void","valueType":{"type":"array","elementType":{"type":"struct","fields":[{"name":"v","type":"variant"}]}}},"nullable":false,"metadata":{}}],"type":"struct","extra":[]}"#;
    let schema = Schema::parse(text).unwrap();
    assert_eq!(schema.to_json().to_string(), text);
    assert_eq!(schema.variant().as_deref(), Some("s.value.element.v"));
    let mut changed = schema.clone();
    changed.fields[0].data_type = DataType::Primitive(Primitive::Decimal { precision: 6, scale: 2 });
    changed.fields.swap(0, 1);
    changed.fields[0].nullable = true;
    let out = changed.to_json().to_string();
    assert!(out.contains(r#""doc":"?","type":"decimal(6,2)""#), "{out}");
    assert_eq!(Schema::parse(&out).unwrap().fields, changed.fields);
}
