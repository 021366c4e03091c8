//! Generated schemas, written as real Parquet files: what is legal passes, what is broken on purpose is named.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::commit::evolution::{Mode, TableChange, check_metadata_change, check_new_metadata};
use crate::delta::footer::{FooterCheck, TableColumns, check_footer, table_schema};
use crate::delta::schema::{DataType, Field, MappingMode, Primitive, Schema, join};
use crate::delta::testkit::parquet_rows;
use crate::delta::{Metadata, Protocol};

fn primitive() -> impl Strategy<Value = Primitive> {
    prop_oneof![
        Just(Primitive::Boolean),
        Just(Primitive::Byte),
        Just(Primitive::Short),
        Just(Primitive::Integer),
        Just(Primitive::Long),
        Just(Primitive::Float),
        Just(Primitive::Double),
        Just(Primitive::String),
        Just(Primitive::Binary),
        Just(Primitive::Date),
        Just(Primitive::Timestamp),
        Just(Primitive::TimestampNtz),
        (1_u8..=38)
            .prop_flat_map(|precision| (Just(precision), 0..=precision))
            .prop_map(|(precision, scale)| Primitive::Decimal { precision, scale }),
    ]
}

fn data_type() -> impl Strategy<Value = DataType> {
    primitive().prop_map(DataType::Primitive).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(DataType::Struct),
            (inner.clone(), any::<bool>())
                .prop_map(|(element, contains_null)| DataType::Array { element: Box::new(element), contains_null }),
            (primitive(), inner, any::<bool>()).prop_map(|(key, value, value_contains_null)| DataType::Map {
                key: Box::new(DataType::Primitive(key)),
                value: Box::new(value),
                value_contains_null,
            }),
        ]
    })
}

/// Names that differ also without case.
fn fields(inner: impl Strategy<Value = DataType>) -> impl Strategy<Value = Vec<Field>> {
    prop::collection::vec((inner, any::<bool>()), 1..4).prop_map(|list| {
        let one = |(index, (data_type, nullable))| Field {
            name: format!("f{index}"),
            data_type,
            nullable,
            metadata: Map::new(),
        };
        list.into_iter().enumerate().map(one).collect()
    })
}

fn schema() -> impl Strategy<Value = Schema> {
    fields(data_type()).prop_map(Schema::of)
}

/// A field as Parquet's message language has it.
fn parquet_field(name: &str, data_type: &DataType, nullable: bool) -> String {
    let repetition = if nullable { "optional" } else { "required" };
    match data_type {
        DataType::Primitive(kind) => format!("{repetition} {};", leaf(name, kind)),
        DataType::Struct(fields) => format!("{repetition} group {name} {{ {} }}", parquet_fields(fields)),
        DataType::Array { element, contains_null } => {
            let element = parquet_field("element", element, *contains_null);
            format!("{repetition} group {name} (LIST) {{ repeated group list {{ {element} }} }}")
        }
        DataType::Map { key, value, value_contains_null } => {
            let parts =
                [parquet_field("key", key, false), parquet_field("value", value, *value_contains_null)].concat();
            format!("{repetition} group {name} (MAP) {{ repeated group key_value {{ {parts} }} }}")
        }
        DataType::Variant | DataType::Void => unreachable!("not generated"),
    }
}

fn parquet_fields(fields: &[Field]) -> String {
    fields
        .iter()
        .map(|field| parquet_field(&field.name, &field.data_type, field.nullable))
        .collect::<Vec<_>>()
        .join(" ")
}

fn leaf(name: &str, kind: &Primitive) -> String {
    match kind {
        Primitive::Boolean => format!("boolean {name}"),
        Primitive::Byte => format!("int32 {name} (INTEGER(8,true))"),
        Primitive::Short => format!("int32 {name} (INTEGER(16,true))"),
        Primitive::Integer => format!("int32 {name}"),
        Primitive::Long => format!("int64 {name}"),
        Primitive::Float => format!("float {name}"),
        Primitive::Double => format!("double {name}"),
        Primitive::String => format!("binary {name} (STRING)"),
        Primitive::Binary => format!("binary {name}"),
        Primitive::Date => format!("int32 {name} (DATE)"),
        Primitive::Timestamp => format!("int64 {name} (TIMESTAMP(MICROS,true))"),
        Primitive::TimestampNtz => format!("int64 {name} (TIMESTAMP(MICROS,false))"),
        Primitive::Decimal { precision, scale } if *precision <= 9 => {
            format!("int32 {name} (DECIMAL({precision},{scale}))")
        }
        Primitive::Decimal { precision, scale } if *precision <= 18 => {
            format!("int64 {name} (DECIMAL({precision},{scale}))")
        }
        Primitive::Decimal { precision, scale } => {
            format!("fixed_len_byte_array(16) {name} (DECIMAL({precision},{scale}))")
        }
    }
}

/// A value that fits.
fn value(data_type: &DataType) -> Value {
    match data_type {
        DataType::Primitive(Primitive::Boolean) => json!(true),
        DataType::Primitive(Primitive::Float | Primitive::Double) => json!(1.5),
        DataType::Primitive(Primitive::String | Primitive::Binary) => json!("text"),
        DataType::Primitive(_) => json!(1),
        DataType::Struct(fields) => row(fields),
        DataType::Array { element, .. } => json!([value(element)]),
        // The writer of the tests takes objects for maps, whose keys are texts.
        DataType::Map { .. } => json!({}),
        DataType::Variant | DataType::Void => Value::Null,
    }
}

fn row(fields: &[Field]) -> Value {
    Value::Object(fields.iter().map(|field| (field.name.clone(), value(&field.data_type))).collect())
}

fn file_of(schema: &Schema) -> Vec<u8> {
    let message = format!("message m {{ {} }}", parquet_fields(&schema.fields));
    parquet_rows(&message, &[row(&schema.fields), row(&schema.fields)])
}

fn metadata_of(bytes: &[u8]) -> parquet::file::metadata::ParquetMetaData {
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let footer = &bytes[bytes.len() - 8 - length..bytes.len() - 8];
    parquet::file::metadata::ParquetMetaDataReader::decode_metadata(footer).unwrap()
}

fn compare(file: &Schema, table: &Schema) -> FooterCheck {
    let metadata = metadata_of(&file_of(file));
    let columns = TableColumns {
        schema: table,
        mode: MappingMode::None,
        partition_columns: &[],
        has_change_feed: false,
        row_tracking: &[],
    };
    check_footer(&metadata, columns)
}

/// Structs of a schema, as paths of steps to their lists of fields.
fn structs(fields: &[Field]) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new()];
    for (index, field) in fields.iter().enumerate() {
        if let DataType::Struct(inner) = &field.data_type {
            found.extend(structs(inner).into_iter().map(|rest| [vec![index], rest].concat()));
        }
    }
    found
}

/// The fields of one struct, and its dotted path.
fn at<'a>(fields: &'a mut Vec<Field>, steps: &[usize], path: String) -> (&'a mut Vec<Field>, String) {
    match steps.split_first() {
        None => (fields, path),
        Some((first, rest)) => {
            let field = &mut fields[*first];
            let path = join(&path, &field.name);
            match &mut field.data_type {
                DataType::Struct(inner) => at(inner, rest, path),
                other => unreachable!("{other}"),
            }
        }
    }
}

fn change(old: &Schema, new: &Schema, mode: Mode) -> Result<bool, String> {
    let metadata = Metadata { id: "m".into(), ..Metadata::default() };
    check_new_metadata(&metadata, new, Some((&metadata, old))).map_err(|refusal| refusal.message.clone())?;
    let protocol = Protocol::default();
    let change = TableChange { old: (&metadata, old), new: (&metadata, new), protocol: &protocol, mode };
    let found = check_metadata_change(change, None);
    found.map(|evolution| evolution.needs_full_overwrite).map_err(|refusal| {
        assert!(refusal.error_class.starts_with("DELTA_"), "{refusal:?}");
        refusal.place.column.clone().unwrap_or_default()
    })
}

#[derive(Clone, Copy, Debug)]
enum Break {
    Case,
    Extra,
    Missing,
    Type,
    Null,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_schema_survives_its_json_and_its_file(schema in schema()) {
        let text = schema.to_json().to_string();
        let again = Schema::parse(&text).unwrap();
        prop_assert_eq!(&again.fields, &schema.fields);
        prop_assert_eq!(again.to_json().to_string(), text);
        let from_file = table_schema(&metadata_of(&file_of(&schema))).unwrap();
        prop_assert_eq!(&from_file.fields, &schema.fields);
        prop_assert_eq!(compare(&schema, &schema), FooterCheck::default());
    }

    #[test]
    fn what_is_broken_is_named(schema in schema(), place in any::<prop::sample::Index>(), which in any::<prop::sample::Index>(),
        how in prop::sample::select(vec![Break::Case, Break::Extra, Break::Missing, Break::Type, Break::Null])) {
        let all = structs(&schema.fields);
        let steps = &all[place.index(all.len())];
        let (mut file, mut table) = (schema.clone(), schema.clone());
        let (fields, path) = at(&mut file.fields, steps, String::new());
        let index = which.index(fields.len());
        let name = join(&path, &fields[index].name);
        let (expected, class) = match how {
            Break::Case => {
                fields[index].name = fields[index].name.to_uppercase();
                (join(&path, &fields[index].name), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH")
            }
            Break::Extra => {
                let data_type = DataType::Primitive(Primitive::Long);
                fields.push(Field { name: "extra".into(), data_type, nullable: true, metadata: Map::new() });
                (join(&path, "extra"), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH")
            }
            Break::Missing => {
                let (expected, _) = at(&mut table.fields, steps, String::new());
                expected[index].nullable = false;
                fields.remove(index);
                if fields.is_empty() {
                    return Ok(());
                }
                (name, "DELTA_MISSING_NOT_NULL_COLUMN_VALUE")
            }
            Break::Type => {
                let wrong = match &fields[index].data_type {
                    DataType::Primitive(Primitive::Boolean) => Primitive::Double,
                    _ => Primitive::Boolean,
                };
                fields[index].data_type = DataType::Primitive(wrong);
                (name, "DELTA_MERGE_INCOMPATIBLE_DATATYPE")
            }
            Break::Null => {
                // All parents there, the field itself null, and a leaf, so that its null count is conclusive.
                let (expected, _) = at(&mut table.fields, steps, String::new());
                expected[index].nullable = false;
                if !steps.is_empty() {
                    return Ok(());
                }
                let field = &mut fields[index];
                (field.data_type, field.nullable) = (DataType::Primitive(Primitive::Long), true);
                expected[index].data_type = field.data_type.clone();
                let (column, message) = (field.name.clone(), format!("message m {{ {} }}", parquet_fields(&file.fields)));
                let mut one = row(&file.fields);
                one[&column] = Value::Null;
                let metadata = metadata_of(&parquet_rows(&message, &[row(&file.fields), one]));
                let columns = TableColumns { schema: &table, mode: MappingMode::None, partition_columns: &[],
                    has_change_feed: false, row_tracking: &[] };
                let found = check_footer(&metadata, columns);
                prop_assert_eq!(found.problems[0].class, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED");
                prop_assert_eq!(&found.problems[0].column, &column);
                return Ok(());
            }
        };
        let found = compare(&file, &table);
        prop_assert!(!found.problems.is_empty(), "{:?}", how);
        prop_assert!(found.problems.iter().any(|problem| problem.column == expected && problem.class == class), "{:?} {:?}: {:?}", how, expected, found);
    }

    #[test]
    fn schemas_evolve_by_growing(schema in schema(), place in any::<prop::sample::Index>(), data_type in data_type(), first in any::<bool>()) {
        let all = structs(&schema.fields);
        let steps = &all[place.index(all.len())];
        let mut grown = schema.clone();
        let (fields, path) = at(&mut grown.fields, steps, String::new());
        let new = Field { name: "new".into(), data_type, nullable: true, metadata: Map::new() };
        let column = join(&path, "new");
        if first { fields.insert(0, new) } else { fields.push(new) }
        // Files of both schemas fit the new one, those of the new one do not fit the old.
        prop_assert_eq!(compare(&grown, &grown), FooterCheck::default());
        prop_assert_eq!(compare(&schema, &grown), FooterCheck::default());
        let found = compare(&grown, &schema);
        prop_assert!(found.problems.iter().any(|problem| problem.column == column), "{:?}", found);
        let expected = if first { Err(column.clone()) } else { Ok(false) };
        prop_assert_eq!(change(&schema, &grown, Mode::Merge), expected);
        prop_assert_eq!(change(&schema, &grown, Mode::Alter { is_positioned: true }), Ok(false));
        prop_assert_eq!(change(&grown, &schema, Mode::Merge), Err(column));
        prop_assert_eq!(change(&grown, &schema, Mode::Replace), Ok(true));
        prop_assert_eq!(change(&schema, &schema, Mode::Merge), Ok(false));
    }
}
