//! `add.partitionValues`: checked against the table, and turned into partitions for the catalog.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use super::verdict::{Exception, Refusal};
use crate::delta::schema::{DataType, Primitive, Schema};
use crate::delta::{Metadata, PartitionValues};
use crate::location::Location;
use crate::store::ObjectKey;

/// What Hive and Glue write for a null partition value.
pub const HIVE_DEFAULT_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// A partition that a commit added files to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TouchedPartition {
    /// In the order of the table's partition columns; null as [`HIVE_DEFAULT_PARTITION`].
    pub values: Vec<String>,
    /// The hive-style folder of its files; `None` where the files do not lie in one.
    pub location: Option<Location>,
}

/// Exactly the partition columns, each value readable as its type, no null where none may be.
pub fn check_values(path: &str, values: &PartitionValues, metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    let unknown = values.keys().find(|name| !metadata.partition_columns.contains(name));
    let missing = metadata.partition_columns.iter().find(|name| !values.contains_key(*name));
    if let Some(name) = unknown.or(missing) {
        let columns = metadata.partition_columns.join(", ");
        let text = format!("partitionValues must name exactly the partition columns ({columns}); `{name}` differs");
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
    for (name, value) in values {
        let Some(field) = schema.column(name) else { continue };
        match value.as_deref().filter(|value| !value.is_empty()) {
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
    let DataType::Primitive(kind) = data_type else { return false };
    match kind {
        Primitive::String | Primitive::Binary => true,
        Primitive::Byte => value.parse::<i8>().is_ok(),
        Primitive::Short => value.parse::<i16>().is_ok(),
        Primitive::Integer => value.parse::<i32>().is_ok(),
        Primitive::Long => value.parse::<i64>().is_ok(),
        Primitive::Float | Primitive::Double => value.parse::<f64>().is_ok(),
        Primitive::Boolean => matches!(value.to_ascii_lowercase().as_str(), "true" | "false"),
        Primitive::Date => is_date(value),
        Primitive::Timestamp | Primitive::TimestampNtz => is_timestamp(value),
        Primitive::Decimal { precision, scale } => is_decimal(value, *precision, *scale),
    }
}

/// `yyyy-MM-dd`, the day within its month.
fn is_date(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return false;
    }
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(year), number(month), number(day));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    };
    (1..=last).contains(&day)
}

/// `yyyy-MM-dd HH:mm:ss[.fraction]`, or ISO 8601 with `T` and an optional `Z`.
fn is_timestamp(value: &str) -> bool {
    let Some((date, rest)) = value.split_once([' ', 'T']) else { return false };
    let time = rest.strip_suffix('Z').unwrap_or(rest);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let fields: Vec<u32> = clock.split(':').map(|part| part.parse().unwrap_or(99)).collect();
    let clock_ok = matches!(fields.as_slice(), [hour, minute, second] if *hour < 24 && *minute < 60 && *second < 60);
    is_date(date) && clock_ok && !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_decimal(value: &str, precision: u8, scale: u8) -> bool {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole_digits = whole.trim_start_matches('0').len();
    numeric(whole)
        && numeric(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && fraction.trim_end_matches('0').len() <= usize::from(scale)
        && whole_digits <= usize::from(precision.saturating_sub(scale))
}

/// The distinct partitions of some added files, in order of their values.
pub fn touched_partitions<'a>(
    root: &Location,
    partition_columns: &[String],
    files: impl Iterator<Item = (&'a ObjectKey, &'a PartitionValues)>,
) -> Vec<TouchedPartition> {
    if partition_columns.is_empty() {
        return Vec::new();
    }
    let mut found: BTreeMap<Vec<String>, Option<Location>> = BTreeMap::new();
    for (key, values) in files {
        let in_order: Vec<Option<&str>> = partition_columns
            .iter()
            .map(|column| values.get(column).and_then(|value| value.as_deref()).filter(|value| !value.is_empty()))
            .collect();
        let texts = in_order.iter().map(|value| value.unwrap_or(HIVE_DEFAULT_PARTITION).to_owned()).collect();
        let folder = hive_folder(root, partition_columns, &in_order, key);
        found
            .entry(texts)
            // Files of one partition in two places have no common folder.
            .and_modify(|known| {
                if *known != folder {
                    *known = None;
                }
            })
            .or_insert_with(|| folder.clone());
    }
    found.into_iter().map(|(values, location)| TouchedPartition { values, location }).collect()
}

/// The folder `root/a=1/b=2` of a file, if its path spells the partition that way (values percent-escaped as Hive does).
fn hive_folder(root: &Location, columns: &[String], values: &[Option<&str>], at: &ObjectKey) -> Option<Location> {
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
        let values = |a: Option<&str>, d: &str| -> PartitionValues {
            [("a".to_owned(), a.map(str::to_owned)), ("d".to_owned(), Some(d.to_owned()))].into()
        };
        let files = [
            ("t/a=1/d=x%2Fy/f1", values(Some("1"), "x/y")),
            ("t/a=1/d=x%2Fy/f2", values(Some("1"), "x/y")),
            ("t/a=__HIVE_DEFAULT_PARTITION__/d=z/f", values(None, "z")),
            ("t/q7/f", values(Some("2"), "z")),
            ("t/a=3/d=w/f", values(Some("4"), "w")),
        ];
        let keys: Vec<ObjectKey> = files.iter().map(|(key, _)| ObjectKey::new("b", *key)).collect();
        let found = touched_partitions(&root, &columns, keys.iter().zip(files.iter().map(|(_, values)| values)));
        let texts: Vec<(String, Option<String>)> =
            found.iter().map(|one| (one.values.join("|"), one.location.as_ref().map(Location::to_string))).collect();
        assert_eq!(
            texts,
            [
                ("1|x/y".to_owned(), Some("s3://b/t/a=1/d=x%2Fy".to_owned())),
                ("2|z".to_owned(), None),
                ("4|w".to_owned(), None),
                (
                    "__HIVE_DEFAULT_PARTITION__|z".to_owned(),
                    Some("s3://b/t/a=__HIVE_DEFAULT_PARTITION__/d=z".to_owned())
                ),
            ]
        );
    }
}
