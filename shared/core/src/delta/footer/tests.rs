use serde_json::{Value, json};

use super::*;
use crate::delta::schema::Schema;
use crate::delta::testkit::{TableKit, parquet_rows};

fn schema_of(fields: &[(&str, Value, bool)]) -> Schema {
    let fields: Vec<Value> = fields
        .iter()
        .map(|(name, kind, nullable)| json!({"name": name, "type": kind, "nullable": nullable, "metadata": {}}))
        .collect();
    Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap()
}

async fn check(message: &str, rows: &[Value], schema: &Schema) -> FooterCheck {
    let kit = TableKit::new().await;
    let bytes = parquet_rows(message, rows);
    kit.put("a.parquet", &bytes).await;
    let footer = read_footer(&*kit.world.objects, &kit.root.object("a.parquet"), bytes.len() as u64).await.unwrap();
    check_footer(&footer.metadata, schema, &["p".to_owned()], &["_row_id"])
}

#[tokio::test]
async fn every_primitive_type_has_its_mapping() {
    let cases = [
        ("byte", "int32 c (INTEGER(8,true))", "equal"),
        ("byte", "int32 c", "mismatch"),
        ("short", "int32 c (INTEGER(16,true))", "equal"),
        ("short", "int32 c (INTEGER(8,true))", "warning"),
        ("integer", "int32 c", "equal"),
        ("integer", "int32 c (INTEGER(16,true))", "warning"),
        ("integer", "int32 c (INTEGER(32,false))", "mismatch"),
        ("integer", "int64 c", "mismatch"),
        ("long", "int64 c", "equal"),
        ("long", "int32 c", "mismatch"),
        ("float", "float c", "equal"),
        ("double", "float c", "mismatch"),
        ("double", "double c", "equal"),
        ("boolean", "boolean c", "equal"),
        ("string", "binary c (STRING)", "equal"),
        ("string", "binary c", "warning"),
        ("binary", "binary c", "equal"),
        ("binary", "binary c (STRING)", "mismatch"),
        ("string", "binary c (JSON)", "mismatch"),
        ("date", "int32 c (DATE)", "equal"),
        ("date", "int32 c", "mismatch"),
        ("timestamp", "int64 c (TIMESTAMP(MICROS,true))", "equal"),
        ("timestamp", "int64 c (TIMESTAMP(MILLIS,true))", "warning"),
        ("timestamp", "int64 c (TIMESTAMP(NANOS,true))", "mismatch"),
        ("timestamp", "int64 c (TIMESTAMP(MICROS,false))", "mismatch"),
        ("timestamp", "int96 c", "equal"),
        ("timestamp_ntz", "int64 c (TIMESTAMP(MICROS,false))", "equal"),
        ("timestamp_ntz", "int64 c (TIMESTAMP(MICROS,true))", "mismatch"),
        ("decimal(9,2)", "int32 c (DECIMAL(9,2))", "equal"),
        ("decimal(9,2)", "int32 c (DECIMAL(9,3))", "mismatch"),
        ("decimal(20,2)", "fixed_len_byte_array (9) c (DECIMAL(20,2))", "equal"),
        ("string", "fixed_len_byte_array (16) c (UUID)", "mismatch"),
        ("long", "int64 c (TIME(MICROS,true))", "mismatch"),
    ];
    for (column, leaf, expected) in cases {
        let schema = schema_of(&[("c", json!(column), true)]);
        let found = check(&format!("message m {{ optional {leaf}; }}"), &[json!({"c": null})], &schema).await;
        let verdict = match (found.problems.is_empty(), found.warnings.is_empty()) {
            (true, true) => "equal",
            (true, false) => "warning",
            (false, _) => "mismatch",
        };
        assert_eq!(verdict, expected, "{column} against {leaf}: {found:?}");
    }
}

#[tokio::test]
async fn nested_columns_are_compared_to_the_leaf() {
    let kind = json!({"type": "struct", "fields": [
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": true}, "nullable": true},
        {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": true}, "nullable": true},
    ]});
    let schema = schema_of(&[("s", kind, true)]);
    let message = |leaf: &str, key: &str| {
        format!(
            "message m {{ optional group s {{
                optional group tags (LIST) {{ repeated group list {{ optional {leaf} element; }} }}
                optional group m (MAP) {{ repeated group key_value {{ required {key} key (STRING); optional int64 value; }} }}
            }} }}"
        )
    };
    let rows = [json!({"s": {"tags": ["a", null], "m": {"k": 1}}}), json!({"s": null})];
    let good = message("binary", "binary").replace("optional binary element", "optional binary element (STRING)");
    assert_eq!(check(&good, &rows, &schema).await, FooterCheck::default());
    let rows = [json!({"s": {"tags": [1], "m": {"k": 1}}})];
    let found = check(&message("int64", "binary"), &rows, &schema).await;
    assert_eq!(found.problems[0].column, "s.tags.element");
    assert_eq!(found.problems[0].class, "DELTA_MERGE_INCOMPATIBLE_DATATYPE");
    let two_levels =
        "message m { optional group s { optional group tags (LIST) { repeated binary array (STRING); } } }";
    assert_eq!(check(two_levels, &[json!({"s": {}})], &schema).await, FooterCheck::default());
    let flat = check("message m { optional binary s (STRING); }", &[], &schema).await;
    assert_eq!(flat.problems[0].column, "s");
}

#[tokio::test]
async fn names_and_nulls() {
    let schema =
        schema_of(&[("id", json!("long"), false), ("Name", json!("string"), true), ("p", json!("string"), false)]);
    let class = |found: &FooterCheck| found.problems.first().map_or("", |problem| problem.class);
    let one = [json!({"id": 1})];
    let ok = check("message m { required int64 id; }", &one, &schema).await;
    assert_eq!(ok, FooterCheck::default(), "a nullable column and a partition column may be missing");
    let ok = check("message m { optional int64 id; optional binary p (STRING); }", &one, &schema).await;
    assert_eq!(ok, FooterCheck::default());
    let null = check("message m { optional int64 id; }", &[json!({"id": null}), json!({"id": 4})], &schema).await;
    assert_eq!(class(&null), "DELTA_NOT_NULL_CONSTRAINT_VIOLATED");
    assert!(null.problems[0].message.contains("has 1 nulls"), "{null:?}");
    let missing = check("message m { optional binary Name (STRING); }", &[json!({})], &schema).await;
    assert_eq!(class(&missing), "DELTA_MISSING_NOT_NULL_COLUMN_VALUE");
    let extra = check("message m { required int64 id; optional int32 zz; }", &one, &schema).await;
    assert_eq!((class(&extra), extra.problems[0].column.as_str()), ("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH", "zz"));
    let case = check("message m { required int64 id; optional binary name (STRING); }", &one, &schema).await;
    assert_eq!(class(&case), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH");
    assert!(case.problems[0].message.contains("spells `name` where the table has `Name`"), "{case:?}");
    let twice = check("message m { required int64 id; optional int64 ID; }", &one, &schema).await;
    assert_eq!(class(&twice), "DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS");
}

#[tokio::test]
async fn nested_not_null_needs_a_proof() {
    let kind = json!({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": false}]});
    let schema = schema_of(&[("s", kind, true)]);
    let message = "message m { optional group s { optional int64 a; } }";
    assert_eq!(check(message, &[json!({"s": {"a": 1}})], &schema).await, FooterCheck::default());
    // The null may be the parent's or the field's own: not proved.
    let found = check(message, &[json!({"s": null})], &schema).await;
    assert!(found.problems[0].message.contains("does not prove it"), "{found:?}");
    let required = "message m { optional group s { required int64 a; } }";
    assert_eq!(check(required, &[json!({"s": null})], &schema).await, FooterCheck::default());
}

#[tokio::test]
async fn what_is_no_parquet_file_is_named() {
    let kit = TableKit::new().await;
    let at = kit.root.object("x");
    let objects = &*kit.world.objects;
    assert_eq!(read_footer(objects, &at, 1).await.unwrap_err(), FooterError::Missing);
    for (bytes, expected) in [
        (&b""[..], "NotParquet"),
        (b"PAR1", "NotParquet"),
        (b"xxxx\x04\0\0\0PAR1", "NotParquet"),
        (b"xxxx\x04\0\0\0PARE", "Encrypted"),
        (b"xxxx\xff\xff\xff\x7fPAR1", "NotParquet"),
        (b"hello, this is text", "NotParquet"),
    ] {
        kit.put("x", bytes).await;
        let error = read_footer(objects, &at, bytes.len() as u64).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{bytes:?}: {error:?}");
    }
    kit.put("x", b"PAR1").await;
    let error = read_footer(objects, &at, 5).await.unwrap_err();
    assert_eq!(error, FooterError::Size { expected_bytes: 5, found_bytes: 4 });
}

#[tokio::test]
async fn one_request_for_a_small_footer_two_for_a_large_one() {
    let kit = TableKit::new().await;
    let columns: String = (0..3000).map(|index| format!("optional int64 column_number_{index};")).collect();
    for (name, message, gets) in
        [("small", "message m { optional int64 c; }".to_owned(), 1), ("large", format!("message m {{ {columns} }}"), 2)]
    {
        let bytes = parquet_rows(&message, &[json!({"c": 1})]);
        kit.put(name, &bytes).await;
        let before = kit.world.ports.objects.object_usage();
        read_footer(&*kit.world.objects, &kit.root.object(name), bytes.len() as u64).await.unwrap();
        assert_eq!(kit.world.ports.objects.object_usage().since(&before).gets, gets, "{name}");
    }
}

#[tokio::test]
async fn extra_columns_are_long_where_they_hold_row_ids() {
    let schema = schema_of(&[("id", json!("long"), false)]);
    for (column, fits) in [
        ("optional int64 _row_id;", true),
        ("optional int32 _row_id;", false),
        ("optional binary _row_id (STRING);", false),
        ("optional int64 _row_version;", false),
    ] {
        let message = format!("message m {{ required int64 id; {column} }}");
        let check = check(&message, &[json!({"id": 1})], &schema).await;
        assert_eq!(check.problems.is_empty(), fits, "{column}: {:?}", check.problems);
    }
}
