//! JSON rows to Parquet, without arrow: every row is shredded into levels and values by the schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use serde_json::{Value, json};

#[derive(Default)]
struct Leaf {
    defs: Vec<i16>,
    reps: Vec<i16>,
    values: Vec<Value>,
}

type Leaves = BTreeMap<String, Leaf>;

/// A Parquet file of `rows`. LIST groups take arrays, MAP groups objects.
pub(crate) fn parquet_rows(message: &str, rows: &[Value]) -> Vec<u8> {
    parquet_pages(message, rows, usize::MAX, WriterProperties::default())
}

/// The same, in row groups of `group_rows`.
pub(crate) fn parquet_pages(message: &str, rows: &[Value], group_rows: usize, properties: WriterProperties) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema.clone(), Arc::new(properties)).unwrap();
    let no_rows: [&[Value]; 1] = [&[]];
    let chunks: Vec<&[Value]> = if rows.is_empty() { no_rows.to_vec() } else { rows.chunks(group_rows).collect() };
    for rows in chunks {
        let mut leaves = Leaves::new();
        for row in rows {
            for field in schema.get_fields() {
                shred(field, row.get(field.name()).unwrap_or(&Value::Null), (0, 0, 0), "", &mut leaves);
            }
        }
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let path = match column.untyped() {
                ColumnWriter::BoolColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::Int32ColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::Int64ColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::Int96ColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::FloatColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::DoubleColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::ByteArrayColumnWriter(w) => w.get_descriptor().path().string(),
                ColumnWriter::FixedLenByteArrayColumnWriter(w) => w.get_descriptor().path().string(),
            };
            write(column.untyped(), leaves.get(&path).unwrap_or(&Leaf::default()));
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    out
}

/// `at` is (definition level, repetition level, depth of repetition).
fn shred(node: &Type, value: &Value, at: (i16, i16, i16), above: &str, leaves: &mut Leaves) {
    let path = if above.is_empty() { node.name().to_owned() } else { format!("{above}.{}", node.name()) };
    let (def, rep, depth) = at;
    match node.get_basic_info().repetition() {
        Repetition::REQUIRED => shred_inner(node, value, at, &path, leaves),
        Repetition::OPTIONAL if value.is_null() => shred_null(node, def, rep, &path, leaves),
        Repetition::OPTIONAL => shred_inner(node, value, (def + 1, rep, depth), &path, leaves),
        Repetition::REPEATED => {
            let items = value.as_array().cloned().unwrap_or_default();
            if items.is_empty() {
                shred_null(node, def, rep, &path, leaves);
            }
            for (index, item) in items.iter().enumerate() {
                let rep = if index == 0 { rep } else { depth + 1 };
                shred_inner(node, item, (def + 1, rep, depth + 1), &path, leaves);
            }
        }
    }
}

fn shred_inner(node: &Type, value: &Value, at: (i16, i16, i16), path: &str, leaves: &mut Leaves) {
    if node.is_primitive() {
        let leaf = leaves.entry(path.to_owned()).or_default();
        leaf.defs.push(at.0);
        leaf.reps.push(at.1);
        leaf.values.push(value.clone());
        return;
    }
    let converted = node.get_basic_info().converted_type();
    for field in node.get_fields() {
        let inner = match (converted, value) {
            (ConvertedType::LIST, Value::Array(items)) => items.iter().map(|item| json!({"element": item})).collect(),
            (ConvertedType::MAP, Value::Object(entries)) => {
                entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
            }
            _ => value.get(field.name()).cloned().unwrap_or(Value::Null),
        };
        shred(field, &inner, at, path, leaves);
    }
}

fn shred_null(node: &Type, def: i16, rep: i16, path: &str, leaves: &mut Leaves) {
    if node.is_primitive() {
        let leaf = leaves.entry(path.to_owned()).or_default();
        leaf.defs.push(def);
        leaf.reps.push(rep);
        return;
    }
    for field in node.get_fields() {
        shred_null(field, def, rep, &format!("{path}.{}", field.name()), leaves);
    }
}

fn write(writer: &mut ColumnWriter<'_>, leaf: &Leaf) {
    let (defs, reps) = (Some(leaf.defs.as_slice()), Some(leaf.reps.as_slice()));
    let ints = || leaf.values.iter().map(|value| value.as_i64().unwrap_or(0));
    let floats = || leaf.values.iter().map(|value| value.as_f64().unwrap_or(0.0));
    let texts = || leaf.values.iter().map(|value| ByteArray::from(value.as_str().unwrap_or("")));
    match writer {
        ColumnWriter::BoolColumnWriter(w) => {
            let values: Vec<bool> = leaf.values.iter().map(|value| value.as_bool().unwrap_or(false)).collect();
            w.write_batch(&values, defs, reps)
        }
        ColumnWriter::Int32ColumnWriter(w) => {
            w.write_batch(&ints().map(|value| i32::try_from(value).unwrap()).collect::<Vec<_>>(), defs, reps)
        }
        ColumnWriter::Int64ColumnWriter(w) => w.write_batch(&ints().collect::<Vec<_>>(), defs, reps),
        ColumnWriter::Int96ColumnWriter(w) => {
            w.write_batch(&ints().map(|_| Int96::new()).collect::<Vec<_>>(), defs, reps)
        }
        ColumnWriter::FloatColumnWriter(w) => {
            w.write_batch(&floats().map(|value| value as f32).collect::<Vec<_>>(), defs, reps)
        }
        ColumnWriter::DoubleColumnWriter(w) => w.write_batch(&floats().collect::<Vec<_>>(), defs, reps),
        ColumnWriter::ByteArrayColumnWriter(w) => w.write_batch(&texts().collect::<Vec<_>>(), defs, reps),
        ColumnWriter::FixedLenByteArrayColumnWriter(w) => {
            let length = usize::try_from(w.get_descriptor().type_length()).unwrap();
            let values: Vec<FixedLenByteArray> =
                leaf.values.iter().map(|_| ByteArray::from(vec![0; length]).into()).collect();
            w.write_batch(&values, defs, reps)
        }
    }
    .unwrap();
}
