//! Whether a checkpoint says what the commits say: all of a table's state, statistics too, since readers skip files by them.

use lakewarden_core::delta::footer::{Datum, day_of, text_of_day};
use lakewarden_core::delta::snapshot::Snapshot;
use lakewarden_core::delta::{AddFile, DomainMetadata, Metadata, ParsedValue};
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
        ("tags", is_same_member(said, is, "tags")),
        ("clustering providers", is_same_member(said, is, "clusteringProvider")),
    ];
    wrong.into_iter().find_map(|(what, is_same)| (!is_same).then_some(what))
}

/// Whether of `name` both say the same, or the checkpoint nothing. Entries without a value say nothing.
fn is_same_member(said: &AddFile, is: &AddFile, name: &str) -> bool {
    let member = |add: &AddFile| match add.others.members().remove(name) {
        Some(Value::Object(mut entries)) => {
            entries.retain(|_, value| !value.is_null());
            (!entries.is_empty()).then_some(Value::Object(entries))
        }
        other => other,
    };
    match (member(said), member(is)) {
        (None, _) => true,
        (said, is) => said == is,
    }
}

/// What a checkpoint says of a file otherwise than the commits, in columns that are not JSON: readers may believe these
/// rather than the other ones.
pub fn parsed_difference(said: &[(&[String], ParsedValue)], is: &AddFile) -> Option<&'static str> {
    let stats = is.stats.as_deref().map_or(Some(Value::Null), |text| serde_json::from_str::<Value>(text).ok());
    let Some(stats) = stats else { return Some("parsed statistics") };
    let mut has_bounds = false;
    let mut are_loose = false;
    for (path, value) in said {
        match path {
            [group, column] if group == "partitionValues_parsed" => {
                let is = is.partition_values.get(column).and_then(Option::as_deref).filter(|text| !text.is_empty());
                let is = is.map_or(Value::Null, Value::from);
                if *value == ParsedValue::Null && !is.is_null() || !is_value(value, &is) {
                    return Some("parsed partition values");
                }
            }
            [group, members @ ..] if group == "stats_parsed" => {
                let is = members.iter().try_fold(&stats, |is, name| is.get(name)).unwrap_or(&Value::Null);
                if !is_value(value, is) {
                    return Some("parsed statistics");
                }
                let is_bound = matches!(members, [first, _, ..] if first != "tightBounds");
                has_bounds |= is_bound && *value != ParsedValue::Null;
                are_loose |= matches!(members, [only] if only == "tightBounds")
                    && *value == ParsedValue::Value(Datum::Flag(false));
            }
            _ => return Some("parsed members"),
        }
    }
    // How far the bounds can be believed belongs to them.
    let is_loose = stats.get("tightBounds") == Some(&Value::Bool(false));
    (is_loose && has_bounds && !are_loose).then_some("parsed statistics")
}

/// Whether a column's value is what the log says in JSON, or nothing.
fn is_value(said: &ParsedValue, is: &Value) -> bool {
    let said = match said {
        ParsedValue::Null => return true,
        ParsedValue::Unreadable => return false,
        // The log may have it in its own digits, or in those of the same number in eight bytes.
        ParsedValue::Single(said) => {
            #[allow(clippy::cast_possible_truncation, reason = "a statistic of four bytes is compared in four")]
            let number = is.as_f64().map(|is| is as f32).or_else(|| is.as_str()?.parse().ok());
            return number == Some(*said) || is_odd(f64::from(*said), is);
        }
        ParsedValue::Value(said) => said,
    };
    let text = || is.as_str().unwrap_or_default();
    match said {
        Datum::Flag(said) => is.as_bool() == Some(*said) || text() == said.to_string(),
        Datum::Int(_) | Datum::Decimal { .. } => same_leaf(&Value::String(said.to_string()), is),
        Datum::Float(said) => {
            let is_same =
                is.as_f64().is_some_and(|is| is == *said) || text().parse::<f64>().is_ok_and(|is| is == *said);
            is_same || is_odd(*said, is)
        }
        Datum::Text(said) => is.as_str() == Some(said),
        Datum::Day(said) => text() == text_of_day(*said),
        Datum::Instant(said) => moment(text()) == Some(*said),
        Datum::Bytes(_) => false,
    }
}

/// Numbers that JSON has none for are written as texts.
fn is_odd(said: f64, is: &Value) -> bool {
    match is.as_str() {
        Some("NaN") => said.is_nan(),
        Some("Infinity") => said == f64::INFINITY,
        Some("-Infinity") => said == f64::NEG_INFINITY,
        _ => false,
    }
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

/// Nanoseconds since 1970 of a timestamp: `2026-01-01T00:00:00.000Z`, with a blank for the `T`, another zone, or none, which
/// counts as UTC.
fn moment(text: &str) -> Option<i128> {
    let (text, zone_seconds) = zone(text)?;
    let (date, time) = text.split_once(['T', ' '])?;
    let (second, fraction) = time.split_once('.').unwrap_or((time, ""));
    if date.len() != 10 || second.len() != 8 || fraction.len() > 9 {
        return None;
    }
    let number = |text: &str| -> Option<i64> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    let three = |text: &str, by: char| {
        let mut parts = text.split(by).map(number);
        let found = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(found)
    };
    let [year, month, day] = three(date, '-')?;
    let [hours, minutes, seconds] = three(second, ':')?;
    let nanos = number(&format!("{fraction:0<9}"))?;
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let seconds = day_of(year, month, day)? * 86_400 + hours * 3_600 + minutes * 60 + seconds - zone_seconds;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// A timestamp without its zone, and how many seconds this one is ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(text) = text.strip_suffix('Z') {
        return Some((text, 0));
    }
    let sign = text.rfind(['+', '-']).filter(|at| *at > 10);
    let Some((text, zone)) = sign.and_then(|at| text.split_at_checked(at)) else { return Some((text, 0)) };
    let digits: String = zone.chars().skip(1).filter(|c| *c != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { "0" } else { minutes };
    let seconds = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
    Some((text, if zone.starts_with('-') { -seconds } else { seconds }))
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

    fn parsed(path: &str, value: ParsedValue) -> (Vec<String>, ParsedValue) {
        (path.split('/').map(str::to_owned).collect(), value)
    }

    fn told(of: &[(Vec<String>, ParsedValue)], is: &AddFile) -> Option<&'static str> {
        let said: Vec<(&[String], ParsedValue)> =
            of.iter().map(|(path, value)| (path.as_slice(), value.clone())).collect();
        parsed_difference(&said, is)
    }

    fn add(members: Value) -> AddFile {
        let mut add = serde_json::json!({"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1});
        add.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(add).unwrap()
    }

    #[test]
    fn columns_say_what_the_log_says_in_json() {
        use ParsedValue::{Null, Single, Unreadable};
        let value = |datum| ParsedValue::Value(datum);
        let decimal = |unscaled, scale| value(Datum::Decimal { unscaled, scale });
        let hour = 3_600_000_000_000_i128;
        let stats = serde_json::json!({
            "numRecords": 3, "tightBounds": true,
            "minValues": {
                "i": -4, "d": 1.50, "f": 1.1, "g": 1.1, "b": true, "t": "x", "day": "2026-01-01", "nan": "NaN",
                "at": "1970-01-01T01:00:00.000Z", "zone": "1970-01-01T01:00:00.000+02:00", "local": "1970-01-01 01:00:00", "s": {"n": 7},
            },
            "nullCount": {"i": 0},
        });
        let is = add(serde_json::json!({"stats": stats.to_string()}));
        for (path, said, is_good) in [
            ("numRecords", value(Datum::Int(3)), true),
            ("numRecords", value(Datum::Int(4)), false),
            ("numRecords", Null, true),
            ("tightBounds", value(Datum::Flag(true)), true),
            ("tightBounds", value(Datum::Flag(false)), false),
            ("minValues/i", value(Datum::Int(-4)), true),
            ("minValues/i", value(Datum::Int(4)), false),
            ("minValues/d", decimal(150, 2), true),
            ("minValues/d", decimal(15, 1), true),
            ("minValues/d", decimal(151, 2), false),
            ("minValues/f", Single(1.1), true),
            ("minValues/f", Single(1.2), false),
            ("minValues/g", value(Datum::Float(1.1)), true),
            ("minValues/g", value(Datum::Float(f64::from(1.1_f32))), false),
            ("minValues/b", value(Datum::Flag(true)), true),
            ("minValues/b", value(Datum::Flag(false)), false),
            ("minValues/t", value(Datum::Text("x".into())), true),
            ("minValues/t", value(Datum::Text("y".into())), false),
            ("minValues/day", value(Datum::Day(20_454)), true),
            ("minValues/day", value(Datum::Day(20_455)), false),
            ("minValues/nan", value(Datum::Float(f64::NAN)), true),
            ("minValues/nan", Single(f32::NAN), true),
            ("minValues/nan", Single(f32::INFINITY), false),
            ("minValues/at", value(Datum::Instant(hour)), true),
            ("minValues/at", value(Datum::Instant(hour + 1)), false),
            ("minValues/zone", value(Datum::Instant(-hour)), true),
            ("minValues/zone", value(Datum::Instant(hour)), false),
            ("minValues/local", value(Datum::Instant(hour)), true),
            ("minValues/s/n", value(Datum::Int(7)), true),
            ("minValues/s/n", value(Datum::Int(8)), false),
            ("minValues/t", Unreadable, false),
            ("minValues/t", value(Datum::Bytes(b"x".to_vec())), false),
            ("minValues/none", value(Datum::Int(1)), false),
            ("minValues/none", Null, true),
            ("maxValues/i", value(Datum::Int(1)), false),
            ("nullCount/i", value(Datum::Int(0)), true),
            ("nullCount/i", value(Datum::Int(1)), false),
        ] {
            let found = told(&[parsed(&format!("stats_parsed/{path}"), said.clone())], &is);
            assert_eq!(found, (!is_good).then_some("parsed statistics"), "{path} {said:?}");
        }
        let bare = add(serde_json::json!({}));
        assert!(told(&[parsed("stats_parsed/numRecords", value(Datum::Int(3)))], &bare).is_some());
        assert_eq!(told(&[parsed("stats_parsed/numRecords", Null)], &bare), None);
        assert!(told(&[parsed("other/x", Null)], &bare).is_some());
        // Bounds that are only bounds must not look exact.
        let loose = add(serde_json::json!({"stats": r#"{"tightBounds":false,"minValues":{"i":1}}"#}));
        let bound = parsed("stats_parsed/minValues/i", value(Datum::Int(1)));
        assert!(told(std::slice::from_ref(&bound), &loose).is_some());
        assert_eq!(told(&[bound, parsed("stats_parsed/tightBounds", value(Datum::Flag(false)))], &loose), None);
    }

    #[test]
    fn partition_values_in_columns_are_those_of_the_log() {
        use ParsedValue::Null;
        let is = add(serde_json::json!({"partitionValues": {
            "i": "7", "d": "1.5", "day": "2026-01-01", "at": "1970-01-01 00:00:01", "t": "x", "b": "true", "f": "2.5",
            "null": null, "empty": "",
        }}));
        for (name, said, is_good) in [
            ("i", ParsedValue::Value(Datum::Int(7)), true),
            ("i", ParsedValue::Value(Datum::Int(8)), false),
            ("i", Null, false),
            ("d", ParsedValue::Value(Datum::Decimal { unscaled: 150, scale: 2 }), true),
            ("day", ParsedValue::Value(Datum::Day(20_454)), true),
            ("at", ParsedValue::Value(Datum::Instant(1_000_000_000)), true),
            ("t", ParsedValue::Value(Datum::Text("x".into())), true),
            ("b", ParsedValue::Value(Datum::Flag(true)), true),
            ("b", ParsedValue::Value(Datum::Flag(false)), false),
            ("f", ParsedValue::Value(Datum::Float(2.5)), true),
            ("f", ParsedValue::Single(2.5), true),
            ("null", Null, true),
            ("null", ParsedValue::Value(Datum::Int(0)), false),
            ("empty", Null, true),
            ("missing", Null, true),
            ("missing", ParsedValue::Value(Datum::Int(0)), false),
        ] {
            let found = told(&[parsed(&format!("partitionValues_parsed/{name}"), said.clone())], &is);
            assert_eq!(found, (!is_good).then_some("parsed partition values"), "{name} {said:?}");
        }
    }

    #[test]
    fn tags_are_the_commits_own_where_a_checkpoint_has_some() {
        let tagged = |tags: Value| add(serde_json::json!({"tags": tags}));
        let is = tagged(serde_json::json!({"a": "1", "n": null}));
        for (said, is_good) in [
            (serde_json::json!({"a": "1", "n": null}), true),
            (serde_json::json!({"a": "1"}), true),
            (Value::Null, true),
            (serde_json::json!({}), true),
            (serde_json::json!({"a": "2"}), false),
            (serde_json::json!({"a": "1", "b": "2"}), false),
            (serde_json::json!({"n": "1"}), false),
        ] {
            assert_eq!(file(&tagged(said.clone()), &is), (!is_good).then_some("tags"), "{said}");
        }
        assert_eq!(file(&tagged(serde_json::json!({"a": "1"})), &add(serde_json::json!({}))), Some("tags"));
        let clustered = |by: Option<&str>| add(serde_json::json!({"clusteringProvider": by}));
        assert_eq!(file(&clustered(None), &clustered(Some("liquid"))), None);
        assert_eq!(file(&clustered(Some("x")), &clustered(Some("liquid"))), Some("clustering providers"));
    }

    #[test]
    fn moments_are_the_same_in_every_zone() {
        let second = |count: i128| Some(count * 1_000_000_000);
        for (text, found) in [
            ("1970-01-01T00:00:01Z", second(1)),
            ("1970-01-01 00:00:01.000", second(1)),
            ("1970-01-01T01:00:01+0100", second(1)),
            ("1969-12-31T16:00:01.0-08:00", second(1)),
            ("1970-01-01T01:00:00+01", second(0)),
            ("1970-01-01T00:00:00.000000001Z", Some(1)),
            ("1970-01-01T00:00:00.0000000001Z", None),
            ("1970-01-01", None),
            ("1970-02-30T00:00:00Z", None),
            ("1970-01-01T24:00:00Z", None),
            ("1970-01-01T00:00:00Zx", None),
            ("x", None),
            ("ü", None),
            ("", None),
        ] {
            assert_eq!(moment(text), found, "{text}");
        }
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
