//! Whether a checkpoint says what the commits say: all of a table's state, statistics too, since readers skip files by them.

use lakewarden_core::delta::snapshot::Snapshot;
use lakewarden_core::delta::{AddFile, DomainMetadata, Metadata};
use serde_json::Value;

/// What a checkpoint says otherwise than the commits, if anything. It may leave out what changes no answer: statistics, the
/// time of a table's creation.
pub fn difference(checkpoint: &Snapshot, commits: &Snapshot) -> Option<&'static str> {
    let (said, is) = (&checkpoint.metadata, &commits.metadata);
    let wrong = [
        ("protocol", checkpoint.protocol == commits.protocol),
        ("metadata", is_same_metadata(said, is)),
        ("schema", is_same_text(&said.schema_string, &is.schema_string)),
        ("partition columns", said.partition_columns == is.partition_columns),
        ("properties", said.configuration == is.configuration),
        ("transactions", checkpoint.app_ids == commits.app_ids),
        ("domains", domains(checkpoint).eq(domains(commits))),
    ];
    let wrong = wrong.into_iter().find_map(|(what, is_same)| (!is_same).then_some(what));
    wrong.or_else(|| files(checkpoint, commits))
}

fn is_same_metadata(said: &Metadata, is: &Metadata) -> bool {
    let provider = |metadata: &Metadata| metadata.format.as_ref().map(|format| format.get("provider").cloned());
    said.id == is.id
        && said.name == is.name
        && said.description == is.description
        && (said.format.is_none() || is.format.is_none() || provider(said) == provider(is))
        && (said.created_time.is_none() || said.created_time == is.created_time)
}

/// JSON, written this way or that.
fn is_same_text(said: &str, is: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    said == is || parse(said).zip(parse(is)).is_some_and(|(said, is)| said == is)
}

fn domains(snapshot: &Snapshot) -> impl Iterator<Item = (&String, &str)> {
    let live = snapshot.domains.iter().filter(|(_, domain): &(_, &DomainMetadata)| !domain.removed);
    live.map(|(name, domain)| (name, domain.configuration.as_str()))
}

fn files(checkpoint: &Snapshot, commits: &Snapshot) -> Option<&'static str> {
    let is_same_set = checkpoint.covers == commits.covers && checkpoint.live.keys().eq(commits.live.keys());
    if !is_same_set {
        return Some("files");
    }
    let pairs = checkpoint.live.values().zip(commits.live.values());
    pairs.filter_map(|(said, is)| file(said, is)).next()
}

fn file(said: &AddFile, is: &AddFile) -> Option<&'static str> {
    let vector = said.deletion_vector == is.deletion_vector;
    let row_ids =
        said.base_row_id == is.base_row_id && said.default_row_commit_version == is.default_row_commit_version;
    let wrong = [
        ("sizes or times of files", said.size == is.size && said.modification_time == is.modification_time),
        ("partition values", said.partition_values == is.partition_values),
        ("deletion vectors", vector),
        ("row ids", row_ids),
        ("statistics", claims_no_more(said.stats.as_deref(), is.stats.as_deref())),
    ];
    wrong.into_iter().find_map(|(what, is_same)| (!is_same).then_some(what))
}

/// Whether every statistic that a checkpoint has is the commit's own. One that is missing only costs time, but for the one
/// that says how far the others can be believed.
fn claims_no_more(said: Option<&str>, is: Option<&str>) -> bool {
    let parse = |text: Option<&str>| match text {
        None => Some(Value::Null),
        Some(text) => serde_json::from_str::<Value>(text).ok(),
    };
    if said == is {
        return true;
    }
    let Some((said, is)) = parse(said).zip(parse(is)) else { return false };
    let bounds_are_loose = |stats: &Value| stats.get("tightBounds") == Some(&Value::Bool(false));
    let has_bounds =
        |stats: &Value| ["minValues", "maxValues", "nullCount"].iter().any(|name| stats.get(*name).is_some());
    is_part_of(&said, &is) && (!bounds_are_loose(&is) || bounds_are_loose(&said) || !has_bounds(&said))
}

fn is_part_of(said: &Value, is: &Value) -> bool {
    match (said, is) {
        (Value::Null, _) => true,
        (Value::Object(said), is) => {
            said.iter().all(|(name, said)| is_part_of(said, is.get(name).unwrap_or(&Value::Null)))
        }
        (said, is) => said == is || same_leaf(said, is),
    }
}

/// The same number or moment in another spelling.
fn same_leaf(said: &Value, is: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Number(number) => decimal(&number.to_string()),
        Value::String(text) => decimal(text),
        _ => None,
    };
    if let Some((said, is)) = number(said).zip(number(is)) {
        return said == is;
    }
    match (said, is) {
        (Value::Number(said), Value::Number(is)) => said.as_f64().zip(is.as_f64()).is_some_and(|(said, is)| said == is),
        (Value::String(said), Value::String(is)) => moment(said).zip(moment(is)).is_some_and(|(said, is)| said == is),
        _ => false,
    }
}

/// Sign, whole digits and fraction of a plain decimal number, without zeros that say nothing.
fn decimal(text: &str) -> Option<(bool, String, String)> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let is_zero = whole.is_empty() && fraction.is_empty();
    Some((is_negative && !is_zero, whole.to_owned(), fraction.to_owned()))
}

/// A timestamp in UTC, without fractions that say nothing: `2026-01-01T00:00:00`.
fn moment(text: &str) -> Option<String> {
    let text = ["Z", "+00:00", "+0000"].iter().find_map(|zone| text.strip_suffix(zone)).unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let (second, fraction) = time.split_once('.').unwrap_or((time, ""));
    let is_one = date.len() == 10 && second.len() == 8 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| format!("{date}T{second}.{}", fraction.trim_end_matches('0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_may_be_fewer_and_never_other_ones() {
        let is = r#"{"numRecords":3,"minValues":{"a":1,"s":{"t":"2026-01-01T00:00:00Z"},"d":"1.50"},"maxValues":{"a":9},"nullCount":{"a":0}}"#;
        for (said, is_good) in [
            (Some(is), true),
            (None, true),
            (Some("{}"), true),
            (Some(r#"{"numRecords":3}"#), true),
            (Some(r#"{"numRecords":3,"minValues":{"a":1.0,"s":null},"maxValues":null}"#), true),
            (Some(r#"{"minValues":{"s":{"t":"2026-01-01T00:00:00.000+00:00"}}}"#), true),
            (Some(r#"{"minValues":{"d":1.5}}"#), true),
            (Some(r#"{"numRecords":4}"#), false),
            (Some(r#"{"minValues":{"a":2}}"#), false),
            (Some(r#"{"minValues":{"a":"x"}}"#), false),
            (Some(r#"{"minValues":{"b":1}}"#), false),
            (Some(r#"{"minValues":{"s":{"t":"2026-01-01T00:00:01Z"}}}"#), false),
            (Some(r#"{"maxValues":{"a":-9}}"#), false),
            (Some("no json"), false),
        ] {
            assert_eq!(claims_no_more(said, Some(is)), is_good, "{said:?}");
        }
        assert!(!claims_no_more(Some(r#"{"numRecords":3}"#), None), "statistics of nobody");
        let loose = r#"{"numRecords":3,"tightBounds":false,"nullCount":{"a":0}}"#;
        assert!(!claims_no_more(Some(r#"{"numRecords":3,"nullCount":{"a":0}}"#), Some(loose)));
        assert!(claims_no_more(Some(r#"{"numRecords":3}"#), Some(loose)));
    }

    #[test]
    fn numbers_are_the_same_however_they_are_written() {
        for (a, b, is_same) in [
            ("1", "1.0", true),
            ("-0", "0", true),
            ("007", "7", true),
            ("1e3", "1000", false),
            ("0.10", "0.1", true),
            ("1", "-1", false),
        ] {
            assert_eq!(decimal(a).is_some() && decimal(a) == decimal(b), is_same, "{a} {b}");
        }
        assert!(same_leaf(&serde_json::json!(1000.0), &serde_json::json!(1e3)));
    }
}
