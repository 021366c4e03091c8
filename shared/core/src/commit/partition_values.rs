//! `add.partitionValues`: checked against the table, and turned into partitions for the catalog.

use percent_encoding::percent_decode_str;

use super::read_set::physical_name;
use super::sql::value::read;
use super::verdict::{Exception, Refusal};
use crate::delta::schema::{DataType, Schema};
use crate::delta::{Metadata, PartitionValues};
use crate::location::Location;
use crate::store::ObjectKey;

/// What Hive and Glue write for a null partition value.
pub const HIVE_DEFAULT_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Exactly the partition columns, each value readable as its type, no null where none may be.
pub fn check_values(path: &str, values: &PartitionValues, metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    let columns: Vec<_> = metadata
        .partition_columns
        .iter()
        .map(|name| (name, schema.column(name)))
        .map(|(name, field)| (field.map_or(name.as_str(), |field| physical_name(metadata, field)), name, field))
        .collect();
    let unknown = values.keys().find(|name| !columns.iter().any(|(key, ..)| key == name)).map(String::as_str);
    let missing = columns.iter().map(|(key, ..)| *key).find(|key| !values.contains_key(*key));
    if let Some(name) = unknown.or(missing) {
        let keys: Vec<&str> = columns.iter().map(|(key, ..)| *key).collect();
        let keys = keys.join(", ");
        let text = format!("partitionValues must name exactly the partition columns ({keys}); `{name}` differs");
        return Err(Refusal::new(
            Exception::SchemaMismatchException,
            "PARTITION_VALUES",
            text,
            "write the files with the table's partition columns",
        )
        .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH")
        .file(path)
        .column(name));
    }
    for (key, name, field) in columns {
        let Some(field) = field else { continue };
        let value = values.get(key).and_then(|value| value.as_deref());
        match value.filter(|value| !value.is_empty()) {
            None if !field.nullable => {
                return Err(Refusal::new(
                    Exception::SchemaMismatchException,
                    "PARTITION_NULL",
                    format!("the partition column `{name}` must not be null"),
                    "write the rows with a value",
                )
                .class("DELTA_NOT_NULL_CONSTRAINT_VIOLATED")
                .file(path)
                .column(name));
            }
            Some(value) if !parses(value, &field.data_type) => {
                let mut refusal = Refusal::new(
                    Exception::SchemaMismatchException,
                    "PARTITION_VALUE_TYPE",
                    format!("the value of the partition column `{name}` does not read as {}", field.data_type),
                    "write the value as the Delta protocol serialises this type",
                )
                .class("DELTA_MERGE_INCOMPATIBLE_DATATYPE")
                .file(path)
                .column(name);
                refusal.place.expected = Some(field.data_type.to_string());
                refusal.place.found = Some(value.chars().take(200).collect());
                return Err(refusal);
            }
            _ => {}
        }
    }
    Ok(())
}

fn parses(value: &str, data_type: &DataType) -> bool {
    matches!(data_type, DataType::Primitive(kind) if read(value, kind).is_some())
}

/// The folder `root/a=1/b=2` of a file, if its path spells the partition that way (values percent-escaped as Hive does).
pub fn folder_of(root: &Location, columns: &[String], values: &[Option<&str>], at: &ObjectKey) -> Option<Location> {
    let relative = root.relative(at)?;
    let (folder, _) = relative.rsplit_once('/')?;
    let segments: Vec<&str> = folder.split('/').collect();
    if segments.len() != columns.len() {
        return None;
    }
    for ((segment, column), value) in segments.iter().zip(columns).zip(values) {
        let (name, text) = segment.split_once('=')?;
        let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
        if decode(name)? != *column {
            return None;
        }
        let matches = match value {
            None => text == HIVE_DEFAULT_PARTITION,
            Some(value) => text == *value || decode(text)? == *value,
        };
        if !matches {
            return None;
        }
    }
    Some(Location::new(root.bucket.clone(), &format!("{}{folder}", root.key_prefix())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_their_types() {
        let kind = |text: &str| {
            let schema = format!(r#"{{"type":"struct","fields":[{{"name":"c","type":"{text}"}}]}}"#);
            Schema::parse(&schema).unwrap().fields[0].data_type.clone()
        };
        for (name, good, bad) in [
            ("byte", vec!["-128", "7"], vec!["128", "x", "1.0"]),
            ("long", vec!["9223372036854775807"], vec!["9223372036854775808"]),
            ("boolean", vec!["true", "False"], vec!["1"]),
            ("date", vec!["2024-02-29"], vec!["2023-02-29", "2024-2-9", "2024-13-01", "x"]),
            (
                "timestamp",
                vec!["2024-01-02 03:04:05", "2024-01-02 03:04:05.123456", "2024-01-02T03:04:05.000000Z"],
                vec!["2024-01-02", "2024-01-02 25:00:00", "2024-01-02 03:04:05."],
            ),
            ("decimal(4,2)", vec!["12.34", "-0.5", "12", "012.300"], vec!["123.4", "1.234", "x", "."]),
            ("double", vec!["1e3", "NaN"], vec!["one"]),
            ("string", vec!["anything"], vec![]),
        ] {
            for value in good {
                assert!(parses(value, &kind(name)), "{name}: {value}");
            }
            for value in bad {
                assert!(!parses(value, &kind(name)), "{name}: {value}");
            }
        }
    }

    #[test]
    fn folders_are_derived_where_they_are_hive_style() {
        let root = Location::new("b", "t");
        let columns = ["a".to_owned(), "d".to_owned()];
        for (key, values, expected) in [
            ("t/a=1/d=x%2Fy/f1", (Some("1"), "x/y"), Some("s3://b/t/a=1/d=x%2Fy")),
            ("t/a=__HIVE_DEFAULT_PARTITION__/d=z/f", (None, "z"), Some("s3://b/t/a=__HIVE_DEFAULT_PARTITION__/d=z")),
            ("t/q7/f", (Some("2"), "z"), None),
            ("t/a=3/d=w/f", (Some("4"), "w"), None),
            ("t/f", (Some("4"), "w"), None),
        ] {
            let found = folder_of(&root, &columns, &[values.0, Some(values.1)], &ObjectKey::new("b", key));
            assert_eq!(found.map(|folder| folder.to_string()).as_deref(), expected, "{key}");
        }
    }
}
