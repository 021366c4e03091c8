//! Reads wide manifests with the sweep's own Avro reader and with the apache-avro crate, both to the paths that they name: entries
//! a second of processor time (so that it matters little what else the machine does), and how many times as many.
//!
//! `cargo run --release -p lakewarden-core --example read_manifests [-- <entries>]`

use std::error::Error;
use std::time::Duration;

use apache_avro::types::Value;
use apache_avro::{Codec, Reader, Schema, Writer};
use lakewarden_core::iceberg::{ManifestRef, read_manifest};
use lakewarden_core::store::ObjectKey;

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;

/// Processor time of this thread so far; of Linux.
fn processor_time() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split_whitespace().next().ok_or("no time")?.parse()?))
}

/// The fields of Iceberg's format 2 that writers fill, with its ids; no partition fields.
fn schema() -> Outcome<Schema> {
    let map = |name: &str, id: u32, key: u32, value: &str| {
        format!(
            r#"{{"name": "{name}", "field-id": {id}, "type": ["null", {{"type": "array", "logicalType": "map", "items":
              {{"type": "record", "name": "k{key}_v{}", "fields": [{{"name": "key", "type": "int", "field-id": {key}}},
              {{"name": "value", "type": "{value}", "field-id": {}}}]}}}}]}}"#,
            key + 1,
            key + 1
        )
    };
    let file = [
        r#"{"name": "content", "type": "int", "field-id": 134}"#.to_owned(),
        r#"{"name": "file_path", "type": "string", "field-id": 100}"#.to_owned(),
        r#"{"name": "file_format", "type": "string", "field-id": 101}"#.to_owned(),
        r#"{"name": "partition", "field-id": 102, "type": {"type": "record", "name": "r102", "fields": []}}"#
            .to_owned(),
        r#"{"name": "record_count", "type": "long", "field-id": 103}"#.to_owned(),
        r#"{"name": "file_size_in_bytes", "type": "long", "field-id": 104}"#.to_owned(),
        map("column_sizes", 108, 117, "long"),
        map("value_counts", 109, 119, "long"),
        map("null_value_counts", 110, 121, "long"),
        map("lower_bounds", 125, 126, "bytes"),
        map("upper_bounds", 128, 129, "bytes"),
    ];
    let text = format!(
        r#"{{"type": "record", "name": "manifest_entry", "fields": [
          {{"name": "status", "type": "int", "field-id": 0}},
          {{"name": "snapshot_id", "type": ["null", "long"], "field-id": 1}},
          {{"name": "data_file", "field-id": 2, "type": {{"type": "record", "name": "r2", "fields": [{}]}}}}]}}"#,
        file.join(", ")
    );
    Ok(Schema::parse_str(&text)?)
}

/// A number that looks like any other: statistics do not repeat, and do not compress well.
fn scattered(seed: u64) -> u64 {
    seed.wrapping_add(0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9)
        .rotate_left(31)
        .wrapping_mul(0x94D0_49BB_1331_11EB)
}

fn path(entry: u64) -> String {
    let (day, id) = (entry % 28 + 1, scattered(entry));
    format!(
        "s3://lake/warehouse/db/events/data/day=2026-11-{day:02}/{:05}-{entry}-{id:016x}{:016x}-00001.parquet",
        entry % 200,
        !id
    )
}

fn value(entry: u64, columns: u32) -> Value {
    let field = |name: &str, value: Value| (name.to_owned(), value);
    let long = |number: u64| Value::Long(i64::try_from(number).unwrap_or(i64::MAX));
    let some = |value: Value| Value::Union(1, Box::new(value));
    let map = |of: &dyn Fn(u32) -> Value| {
        let pair = |column: u32| {
            let key = Value::Int(i32::try_from(column).unwrap_or_default());
            Value::Record(vec![field("key", key), field("value", of(column))])
        };
        some(Value::Array((1..=columns).map(pair).collect()))
    };
    let at = |column: u32, what: u64| scattered(entry.wrapping_mul(1000).wrapping_add(u64::from(column) * 7 + what));
    let bytes = |number: u64| Value::Bytes(number.to_le_bytes().to_vec());
    let file = Value::Record(vec![
        field("content", Value::Int(0)),
        field("file_path", Value::String(path(entry))),
        field("file_format", Value::String("PARQUET".to_owned())),
        field("partition", Value::Record(Vec::new())),
        field("record_count", long(100_000)),
        field("file_size_in_bytes", long(100_000_000 + scattered(entry) % 50_000_000)),
        field("column_sizes", map(&|column| long(at(column, 1) % 10_000_000))),
        field("value_counts", map(&|_| long(100_000))),
        field("null_value_counts", map(&|column| long(at(column, 2) % 100))),
        field("lower_bounds", map(&|column| bytes(at(column, 3) % 1_000_000))),
        field("upper_bounds", map(&|column| bytes(at(column, 4) % 1_000_000 + 1_000_000))),
    ]);
    Value::Record(vec![
        field("status", Value::Int(1)),
        field("snapshot_id", some(long(scattered(7) >> 1))),
        field("data_file", file),
    ])
}

fn manifest(schema: &Schema, entries: u64, columns: u32, codec: Codec) -> Outcome<Vec<u8>> {
    let mut writer = Writer::builder().schema(schema).writer(Vec::new()).codec(codec).block_size(64 * 1024).build();
    writer.add_user_metadata("format-version".to_owned(), "2")?;
    for entry in 0..entries {
        writer.append(value(entry, columns))?;
    }
    Ok(writer.into_inner()?)
}

/// The paths, as whoever uses the crate would take them out.
fn with_apache_avro(bytes: &[u8]) -> Outcome<Vec<String>> {
    let member = |record: Value, name: &str| match record {
        Value::Record(fields) => fields.into_iter().find(|(field, _)| field == name).map(|(_, value)| value),
        _ => None,
    };
    let mut paths = Vec::new();
    for entry in Reader::new(bytes)? {
        match member(entry?, "data_file").and_then(|file| member(file, "file_path")) {
            Some(Value::String(path)) => paths.push(path),
            _ => return Err("an entry without a path".into()),
        }
    }
    Ok(paths)
}

fn with_ours(bytes: &[u8]) -> Outcome<Vec<String>> {
    let manifest = ManifestRef::bare(ObjectKey::new("lake", "m.avro"));
    Ok(read_manifest(bytes, &manifest)?
        .into_iter()
        .map(|entry| format!("s3://{}/{}", entry.at.bucket, entry.at.key))
        .collect())
}

/// The best of some rounds.
fn best(read: impl Fn() -> Outcome<Vec<String>>) -> Outcome<(Duration, Vec<String>)> {
    let mut best: Option<(Duration, Vec<String>)> = None;
    for _ in 0..ROUNDS {
        let before = processor_time()?;
        let paths = read()?;
        let took = processor_time()?.saturating_sub(before);
        if best.as_ref().is_none_or(|(before, _)| took < *before) {
            best = Some((took, paths));
        }
    }
    best.ok_or_else(|| "no round".into())
}

fn main() -> Outcome<()> {
    let entries: u64 = std::env::args().nth(1).map_or(Ok(10_000), |given| given.parse())?;
    let schema = schema()?;
    println!("{entries} entries, best of {ROUNDS}: entries a second of processor time");
    println!(
        "{:>8} {:>9} {:>12} {:>12} {:>12} {:>7}",
        "columns", "codec", "bytes/entry", "apache-avro", "ours", "ratio"
    );
    for columns in [20, 50, 100] {
        for (name, codec) in [("null", Codec::Null), ("deflate", Codec::Deflate(Default::default()))] {
            let bytes = manifest(&schema, entries, columns, codec)?;
            let (theirs, expected) = best(|| with_apache_avro(&bytes))?;
            let (ours, found) = best(|| with_ours(&bytes))?;
            if found != expected || found.len() as u64 != entries {
                return Err("the readers disagree".into());
            }
            let rate = |took: Duration| entries as f64 / took.as_secs_f64();
            println!(
                "{columns:>8} {name:>9} {:>12} {:>12.0} {:>12.0} {:>6.1}x",
                bytes.len() as u64 / entries.max(1),
                rate(theirs),
                rate(ours),
                theirs.as_secs_f64() / ours.as_secs_f64()
            );
        }
    }
    Ok(())
}
