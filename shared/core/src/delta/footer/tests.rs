use serde_json::{Value, json};

use super::*;
use crate::delta::schema::{DataType, MappingMode, Schema};
use crate::delta::testkit::{TableKit, parquet_rows};

fn schema_of(fields: &[(&str, Value, bool)]) -> Schema {
    let fields: Vec<Value> = fields
        .iter()
        .map(|(name, kind, nullable)| json!({"name": name, "type": kind, "nullable": nullable, "metadata": {}}))
        .collect();
    Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap()
}

fn decoded(bytes: &[u8]) -> parquet::file::metadata::ParquetMetaData {
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    super::read::decode(&bytes[bytes.len() - 8 - length..bytes.len() - 8]).unwrap()
}

async fn check(message: &str, rows: &[Value], schema: &Schema) -> FooterCheck {
    check_mapped(message, rows, schema, MappingMode::None)
}

fn check_mapped(message: &str, rows: &[Value], schema: &Schema, mode: MappingMode) -> FooterCheck {
    let metadata = decoded(&parquet_rows(message, rows));
    let partition_columns = ["p".to_owned()];
    let row_tracking = ["_row_id".to_owned()];
    let table = TableColumns {
        schema,
        mode,
        partition_columns: &partition_columns,
        has_change_feed: false,
        row_tracking: &row_tracking,
    };
    check_footer(&metadata, table)
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
    assert_eq!((found.problems.len(), found.unproved[0].steps.join(".")), (0, "s.a".to_owned()), "{found:?}");
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
        (b"xxxx\x15\x02\x19\xf9\x04\0\0\0PAR1", "NotParquet"),
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
async fn what_a_footer_announces_is_bounded_before_it_is_decoded() {
    // FileMetaData { 2: list of structs }
    let list = |field: u8, size: &[u8]| [&[field << 4 | 9, 0xfc][..], size].concat();
    let node = |children: u8| vec![0x48, 1, b'a', 0x15, children << 1, 0];
    let deep: Vec<u8> = [list(2, &[0x80, 0x01]), (0..128).flat_map(|_| node(1)).collect()].concat();
    let wide: Vec<u8> = [list(2, &[0xc0, 0x9a, 0x0c]), vec![0; 200_000], vec![0]].concat();
    for (bytes, expected) in [
        (list(2, &[0xff, 0xff, 0xff, 0xff, 0x07]), "NotParquet"),
        (list(5, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), "NotParquet"),
        (deep, "Bomb"),
        (wide, "Bomb"),
        ([vec![0x2b; 40], vec![0x1b; 40]].concat(), "NotParquet"),
        (vec![0x1c; 100], "Bomb"),
        (vec![0x8c, 0, 0], "Encrypted"),
    ] {
        let error = super::read::decode(&bytes).unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{:?}: {error:?}", &bytes[..bytes.len().min(20)]);
    }
}

/// Deterministic noise.
fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn damaged_files_are_errors_and_no_panics() {
    let message = "message m { required int64 id; optional group s { optional binary t (STRING); }
        optional group l (LIST) { repeated group list { optional double element; } } optional int32 d (DECIMAL(5,2)); }";
    let rows: Vec<Value> =
        (0..50).map(|id| json!({"id": id, "s": {"t": format!("text {id}")}, "l": [0.5, null], "d": id})).collect();
    let good = parquet_rows(message, &rows);
    let schema = table_schema(&decoded(&good)).unwrap();
    let length = u32::from_le_bytes(good[good.len() - 8..good.len() - 4].try_into().unwrap()) as usize;
    let start = good.len() - 8 - length;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut decoded_footers = 0;
    for round in 0..4_000 {
        let mut bytes = good[start..good.len() - 8].to_vec();
        for _ in 0..=round % 4 {
            let at = noise(&mut state) as usize % bytes.len();
            match noise(&mut state) % 3 {
                0 => bytes[at] = noise(&mut state) as u8,
                1 => bytes[at] ^= 1 << (noise(&mut state) % 8),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let Ok(metadata) = super::read::decode(&bytes) else { continue };
        decoded_footers += 1;
        let table = TableColumns {
            schema: &schema,
            mode: MappingMode::None,
            partition_columns: &[],
            has_change_feed: false,
            row_tracking: &[],
        };
        check_footer(&metadata, table);
        for leaf in 0..metadata.file_metadata().schema_descr().num_columns() {
            facts_of_file(&metadata, leaf, &Kind::Text);
            for group in metadata.row_groups() {
                let Some(chunk) = group.columns().get(leaf) else { continue };
                let Some((from, length)) = chunk_range(chunk, good.len() as u64) else { continue };
                let part = good[from as usize..(from + length) as usize].to_vec();
                let kind = &Kind::Integer { bits: 64, signed: true };
                let _ = read_leaf(&part.into(), chunk, kind, 50, &mut |_, _| {});
            }
        }
    }
    assert!(decoded_footers > 100, "{decoded_footers}");
}

#[test]
fn damaged_pages_are_errors() {
    let message = "message m { required int64 id; optional binary t (STRING); }";
    let rows: Vec<Value> =
        (0..200).map(|id| json!({"id": id, "t": if id % 3 == 0 { json!(null) } else { json!("abc") }})).collect();
    let good = parquet_rows(message, &rows);
    let metadata = decoded(&good);
    let mut state = 42;
    for leaf in 0..2 {
        let chunk = metadata.row_group(0).column(leaf);
        let kind = [Kind::Integer { bits: 64, signed: true }, Kind::Text][leaf].clone();
        let (from, length) = chunk_range(chunk, good.len() as u64).unwrap();
        let whole = good[from as usize..(from + length) as usize].to_vec();
        let mut found = Vec::new();
        read_leaf(&whole.clone().into(), chunk, &kind, 200, &mut |_, value| found.push(value)).unwrap();
        assert_eq!(found.len(), 200);
        assert_eq!(found[4], Some(if leaf == 0 { Datum::Int(4) } else { Datum::Text("abc".into()) }));
        assert_eq!(found[3].is_none(), leaf == 1);
        for _ in 0..1_000 {
            let mut bytes = whole.clone();
            let at = noise(&mut state) as usize % bytes.len();
            bytes[at] = noise(&mut state) as u8;
            let _ = read_leaf(&bytes.into(), chunk, &kind, 200, &mut |_, _| {});
        }
    }
}

#[tokio::test]
async fn columns_are_mapped_by_physical_name_or_by_id() {
    let field = |name: &str, id: i64, kind: Value| {
        json!({"name": name, "type": kind, "nullable": true, "metadata":
            {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")}})
    };
    let inner = json!({"type": "struct", "fields": [field("x y", 3, json!("string"))]});
    let list = json!({"type": "array", "elementType": inner, "containsNull": true});
    let columns = [field("a b", 1, json!("long")), field("l", 2, list)];
    let schema = Schema::parse(&json!({"type": "struct", "fields": columns}).to_string()).unwrap();
    let message = |a: &str, l: &str, x: &str| {
        format!(
            "message m {{ optional int64 {a}; optional group {l} (LIST) {{ repeated group list {{ optional group element {{ optional binary {x}; }} }} }} }}"
        )
    };
    let text = |name: &str| format!("{name} (STRING)");
    let by_name = message("col-1 = 1", "col-2", &text("col-3")).replace("col-2 (LIST)", "col-2 (LIST) = 2");
    let by_name = by_name.replace("col-3 (STRING)", "col-3 (STRING) = 3");
    let found = check_mapped(&by_name, &[], &schema, MappingMode::Name);
    assert_eq!(found, FooterCheck::default());
    let found = check_mapped(&by_name.replace("= 3", ""), &[], &schema, MappingMode::Name);
    assert_eq!((found.problems.len(), found.warnings.len()), (0, 1), "{found:?}");
    let found = check_mapped(&by_name.replace("= 3", "= 4"), &[], &schema, MappingMode::Name);
    assert_eq!(found.problems[0].found.as_deref(), Some("field id 4"));
    assert_eq!(found.problems[0].column, "l.element.x y", "logical names: {found:?}");
    let found = check_mapped(&by_name.replace("col-1", "l"), &[], &schema, MappingMode::Name);
    assert!(found.problems[0].message.contains("physical name"), "{found:?}");
    let any_name = by_name.replace("col-1", "whatever").replace("col-3", "z");
    assert_eq!(check_mapped(&any_name, &[], &schema, MappingMode::Id), FooterCheck::default());
    let found = check_mapped(&any_name.replace("= 3", "= 9"), &[], &schema, MappingMode::Id);
    assert!(found.problems[0].message.contains("no column with the id 9"), "{found:?}");
    let found = check_mapped(&any_name.replace("= 3", ""), &[], &schema, MappingMode::Id);
    assert!(found.problems[0].message.contains("has no field id"), "{found:?}");
}

#[tokio::test]
async fn widened_columns_take_the_types_they_had() {
    let metadata = json!({"delta.typeChanges": [{"fromType": "short", "toType": "integer"},
        {"fromType": "integer", "toType": "long"}, {"fromType": "float", "toType": "double", "fieldPath": "element"}]});
    let one = |kind: Value| json!({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": true, "metadata": metadata}]});
    let schema = |kind: Value| Schema::parse(&one(kind).to_string()).unwrap();
    let long = schema(json!("long"));
    for (leaf, fits) in [
        ("int64 c", true),
        ("int32 c", true),
        ("int32 c (INTEGER(16,true))", true),
        ("int32 c (INTEGER(8,true))", false),
    ] {
        let found = check(&format!("message m {{ optional {leaf}; }}"), &[], &long).await;
        assert_eq!(found.problems.is_empty(), fits, "{leaf}: {found:?}");
    }
    let list = schema(json!({"type": "array", "elementType": "double", "containsNull": true}));
    let message = "message m { optional group c (LIST) { repeated group list { optional float element; } } }";
    let found = check(message, &[], &list).await;
    assert_eq!((found.problems.len(), found.warnings.len()), (0, 1), "{found:?}");
}

#[tokio::test]
async fn odd_columns_have_their_rules() {
    let inner = json!({"type": "struct", "fields": [{"name": "a", "type": "string", "nullable": true}]});
    let list = json!({"type": "array", "elementType": "string", "containsNull": true});
    let schema =
        schema_of(&[("v", json!("variant"), true), ("s", inner, true), ("l", list, true), ("x", json!("void"), true)]);
    for (message, problem) in [
        ("optional group v { required binary metadata; required binary value; }", ""),
        ("optional group v { required binary value; required binary metadata; optional int64 typed_value; }", "v"),
        ("optional binary v (STRING);", "v"),
        ("optional group s { optional int32 a (UNKNOWN); }", ""),
        ("optional group l (LIST) { repeated group list { optional int32 element (UNKNOWN); } }", "l.element"),
        ("optional int32 x (UNKNOWN);", ""),
        ("optional int32 x;", "x"),
        ("optional group s { optional binary A (STRING); }", "s.A"),
        ("optional group s { optional binary a (STRING); optional binary b (STRING); }", "s.b"),
        ("optional int64 _row_id;", ""),
        ("optional int32 _row_id;", "_row_id"),
        ("optional int64 _change_type;", "_change_type"),
        ("repeated binary l (STRING);", "l"),
    ] {
        let found = check(&format!("message m {{ {message} }}"), &[], &schema).await;
        assert_eq!(found.problems.first().map_or("", |problem| &problem.column), problem, "{message}: {found:?}");
    }
}

#[test]
fn a_file_has_the_schema_of_a_table() {
    let message = "message m { required int64 id = 1; optional group s { optional int32 d (DATE); }
        optional group l (LIST) { repeated group list { optional double element; } }
        optional group old (LIST) { repeated int32 array; }
        optional group pairs (LIST) { repeated group pairs_tuple { required int32 a; } }
        optional group m (MAP) { repeated group key_value { required binary key (STRING); optional int64 value (TIMESTAMP(MICROS,true)); } }
        optional group hive (LIST) { repeated group bag { optional int32 array_element; } }
        optional int96 t; optional int64 n (TIMESTAMP(MICROS,false)); optional fixed_len_byte_array(9) d (DECIMAL(20,3)); }";
    let schema = table_schema(&decoded(&parquet_rows(message, &[]))).unwrap();
    let text = DataType::Struct(schema.fields.clone()).to_string();
    let expected = "struct<id:long,s:struct<d:date>,l:array<double>,old:array<integer>,pairs:array<struct<a:integer>>,\
        m:map<string,timestamp>,hive:array<integer>,t:timestamp,n:timestamp_ntz,d:decimal(20,3)>";
    assert_eq!(text, expected);
    assert_eq!(schema.fields[0].metadata.get(PARQUET_FIELD_ID), Some(&json!(1)));
    assert!(!schema.fields[0].nullable);
    let odd = "message m { optional group s { optional int64 n (TIMESTAMP(NANOS,true)); } }";
    assert!(table_schema(&decoded(&parquet_rows(odd, &[]))).unwrap_err().starts_with("s.n"));
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

#[tokio::test]
async fn very_many_columns_are_compared_once_each() {
    let names: Vec<String> = (0..3_000).map(|index| format!("c{index}")).collect();
    let columns: Vec<(&str, Value, bool)> = names.iter().map(|name| (name.as_str(), json!("long"), true)).collect();
    let schema = schema_of(&columns);
    let message = |letter: &str| {
        let columns: String = (0..3_000).map(|index| format!("optional int64 {letter}{index};")).collect();
        format!("message m {{ {columns} }}")
    };
    assert_eq!(check(&message("c"), &[json!({"c0": 1})], &schema).await, FooterCheck::default());
    assert_eq!(check(&message("C"), &[], &schema).await.problems.len(), 20, "enough is enough");
    assert_eq!(check(&message("x"), &[], &schema).await.problems.len(), 20);
}
