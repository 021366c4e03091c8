//! Model constraints: every violation of a request, in one `ValidationException`; and the request without the members
//! that the model does not know.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::model::{Kind, Member, Model, Shape, model};
use super::{GlueException, GlueExceptionName};

/// How many violations are spelled out; the count in the text names them all.
const SHOWN_VIOLATIONS: usize = 50;
/// Timestamps that clients can read, in seconds since 1970: the years 1 to 9999. A listing with another one in it is
/// lost to them as a whole.
const TIMESTAMPS_S: std::ops::Range<f64> = -62_135_596_800.0..253_402_300_800.0;
/// How much of an offending value is repeated.
const SHOWN_VALUE_CHARS: usize = 512;

/// Checks `input` against the model and answers it without unknown members and without nulls (null and absent are the
/// same on this wire). An operation that the model does not know passes as it is.
///
/// # Errors
/// `ValidationException` with all violations, in the words of the service.
pub(super) fn check_input(operation: &str, input: &Map<String, Value>) -> Result<Map<String, Value>, GlueException> {
    let model = model().map_err(GlueException::internal)?;
    let Some(Shape { kind: Kind::Structure(members), .. }) = model.input(operation) else {
        return Ok(input.clone());
    };
    let mut check = Check { model, path: Vec::new(), violations: Vec::new(), count: 0 };
    check.members(members, input);
    if check.count > 0 {
        return Err(refusal(&check));
    }
    Ok(project_members(model, members, input))
}

fn refusal(check: &Check<'_>) -> GlueException {
    let noun = if check.count == 1 { "error" } else { "errors" };
    let mut text = format!("{} validation {noun} detected: {}", check.count, check.violations.join("; "));
    if check.count > check.violations.len() {
        text.push_str("; …");
    }
    GlueException::new(GlueExceptionName::Validation, text)
}

struct Check<'m> {
    model: &'m Model,
    path: Vec<String>,
    violations: Vec<String>,
    count: usize,
}

impl Check<'_> {
    fn violation(&mut self, value: &Value, constraint: impl AsRef<str>) {
        self.count += 1;
        if self.violations.len() < SHOWN_VIOLATIONS {
            let shown = show(value);
            let path = self.path.join(".");
            let constraint = constraint.as_ref();
            self.violations.push(format!("Value {shown} at '{path}' failed to satisfy constraint: {constraint}"));
        }
    }

    fn members(&mut self, members: &[Member], input: &Map<String, Value>) {
        for member in members {
            self.path.push(lower_camel(&member.name));
            match input.get(&member.name) {
                None | Some(Value::Null) if member.required => self.violation(&Value::Null, "Member must not be null"),
                None | Some(Value::Null) => {}
                Some(value) => {
                    if let Some(shape) = self.model.shape(member.shape) {
                        self.value(shape, value);
                    }
                }
            }
            self.path.pop();
        }
    }

    fn value(&mut self, shape: &Shape, value: &Value) {
        match (&shape.kind, value) {
            (Kind::Document, _) | (Kind::Boolean, Value::Bool(_)) => {}
            (Kind::Blob, Value::String(text)) => {
                if STANDARD.decode(text).is_err() {
                    self.violation(value, format!("Member must be {}", name_of(&shape.kind)));
                }
            }
            (Kind::Timestamp, Value::Number(seconds)) => {
                if !seconds.as_f64().is_some_and(|seconds| TIMESTAMPS_S.contains(&seconds)) {
                    self.violation(value, "Member must be a timestamp of the years 1 to 9999");
                }
            }
            (Kind::Text { pattern, values }, Value::String(text)) => {
                self.length(shape, value, text.chars().count());
                if let Some(pattern) = pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
                    self.violation(
                        value,
                        format!("Member must satisfy regular expression pattern: {}", pattern.source()),
                    );
                }
                if !values.is_empty() && !values.contains(text) {
                    self.violation(value, format!("Member must satisfy enum value set: [{}]", values.join(", ")));
                }
            }
            (Kind::Integer, Value::Number(_)) => self.integer(shape, value, i64::from(i32::MIN), i64::from(i32::MAX)),
            (Kind::Long, Value::Number(_)) => self.integer(shape, value, i64::MIN, i64::MAX),
            (Kind::Double, Value::Number(number)) => {
                if shape.min == Some(0) && number.as_f64().is_some_and(|number| number < 0.0) {
                    self.violation(value, "Member must have value greater than or equal to 0");
                }
            }
            (Kind::Double, Value::String(text)) if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => {}
            (Kind::List(member), Value::Array(entries)) => {
                self.length(shape, value, entries.len());
                let Some(member) = self.model.shape(*member) else { return };
                for (at, entry) in entries.iter().enumerate() {
                    self.path.push(format!("{}.member", at + 1));
                    if entry.is_null() {
                        self.violation(entry, "Member must not be null");
                    } else {
                        self.value(member, entry);
                    }
                    self.path.pop();
                }
            }
            (Kind::Map { key, value: held }, Value::Object(entries)) => {
                self.length(shape, value, entries.len());
                let (Some(key), Some(held)) = (self.model.shape(*key), self.model.shape(*held)) else { return };
                for (name, entry) in entries {
                    self.path.push("key".to_owned());
                    self.value(key, &Value::String(name.clone()));
                    self.path.pop();
                    self.path.push(format!("{}.value", cut(name, 64)));
                    if !entry.is_null() {
                        self.value(held, entry);
                    }
                    self.path.pop();
                }
            }
            (Kind::Structure(members), Value::Object(entries)) => self.members(members, entries),
            (kind, _) => self.violation(value, format!("Member must be {}", name_of(kind))),
        }
    }

    fn integer(&mut self, shape: &Shape, value: &Value, type_min: i64, type_max: i64) {
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 9.0e15).then_some(number as i64);
        let Some(number) = value.as_i64().or_else(|| value.as_f64().and_then(whole)) else {
            return self.violation(value, format!("Member must be {}", name_of(&shape.kind)));
        };
        let (min, max) = (shape.min.unwrap_or(type_min), shape.max.unwrap_or(type_max));
        if number < min {
            self.violation(value, format!("Member must have value greater than or equal to {min}"));
        }
        if number > max {
            self.violation(value, format!("Member must have value less than or equal to {max}"));
        }
    }

    fn length(&mut self, shape: &Shape, value: &Value, length: usize) {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        if let Some(max) = shape.max.filter(|max| length > *max) {
            self.violation(value, format!("Member must have length less than or equal to {max}"));
        }
        if let Some(min) = shape.min.filter(|min| length < *min) {
            self.violation(value, format!("Member must have length greater than or equal to {min}"));
        }
    }
}

fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Text { .. } => "a string",
        Kind::Integer => "an integer",
        Kind::Long => "a long",
        Kind::Double => "a double",
        Kind::Boolean => "a boolean",
        Kind::Timestamp => "a timestamp (a number of seconds since the epoch)",
        Kind::Blob => "a blob (base64 text)",
        Kind::List(_) => "a list",
        Kind::Map { .. } => "a map",
        Kind::Structure(_) => "a structure",
        Kind::Document => "a document",
    }
}

/// `null`, or the value in single quotes; lists as `[a, b]`.
fn show(value: &Value) -> String {
    fn plain(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Array(entries) => {
                // Enough for the cut below; a long list is not spelled out for nothing.
                let shown: Vec<String> = entries.iter().take(SHOWN_VALUE_CHARS / 2).map(plain).collect();
                format!("[{}]", shown.join(", "))
            }
            other => other.to_string(),
        }
    }
    if value.is_null() { "null".to_owned() } else { format!("'{}'", cut(&plain(value), SHOWN_VALUE_CHARS)) }
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
    }
}

fn lower_camel(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn project_members(model: &Model, members: &[Member], input: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for member in members {
        if let Some(value) = input.get(&member.name).filter(|value| !value.is_null()) {
            let value = model.shape(member.shape).map_or_else(|| value.clone(), |shape| project(model, shape, value));
            kept.insert(member.name.clone(), value);
        }
    }
    kept
}

fn project(model: &Model, shape: &Shape, value: &Value) -> Value {
    match (&shape.kind, value) {
        (Kind::Structure(members), Value::Object(entries)) => Value::Object(project_members(model, members, entries)),
        (Kind::List(member), Value::Array(entries)) => match model.shape(*member) {
            Some(member) => Value::Array(entries.iter().map(|entry| project(model, member, entry)).collect()),
            None => value.clone(),
        },
        (Kind::Map { .. }, Value::Object(entries)) => {
            let kept = entries.iter().filter(|(_, entry)| !entry.is_null());
            Value::Object(kept.map(|(name, entry)| (name.clone(), entry.clone())).collect())
        }
        // 3.0 is 3 where the model says integer.
        (Kind::Integer | Kind::Long, Value::Number(number)) if number.is_f64() => {
            number.as_f64().map_or_else(|| value.clone(), |number| Value::from(number as i64))
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(operation: &str, input: Value) -> String {
        let error = check_input(operation, input.as_object().unwrap()).unwrap_err();
        assert_eq!(error.name, GlueExceptionName::Validation);
        error.message
    }

    #[test]
    fn every_kind_of_violation_has_its_text() {
        let names = json!({ "DatabaseName": "d", "TableName": "t" });
        let with = |name: &str, value: Value| {
            let mut input = names.clone();
            input[name] = value;
            input
        };
        let entries: Vec<Value> = (0..26).map(|n| json!({ "Values": [n.to_string()] })).collect();
        let long = "x".repeat(2049);
        let cases = [
            ("GetPartitions", json!({ "TableName": "t" }), "1 validation error detected: Value null at 'databaseName' failed to satisfy constraint: Member must not be null".to_owned()),
            ("BatchDeletePartition", with("PartitionsToDelete", Value::from(entries)), "at 'partitionsToDelete' failed to satisfy constraint: Member must have length less than or equal to 25".to_owned()),
            ("GetPartitions", with("MaxResults", json!(1001)), "1 validation error detected: Value '1001' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to 1000".to_owned()),
            ("GetPartitions", with("MaxResults", json!(0)), "Value '0' at 'maxResults' failed to satisfy constraint: Member must have value greater than or equal to 1".to_owned()),
            ("GetPartitions", with("MaxResults", json!("5")), "Value '5' at 'maxResults' failed to satisfy constraint: Member must be an integer".to_owned()),
            ("GetPartitions", with("Expression", json!(long)), "at 'expression' failed to satisfy constraint: Member must have length less than or equal to 2048".to_owned()),
            ("GetPartitions", with("Segment", json!({ "SegmentNumber": 0, "TotalSegments": 11 })), "Value '11' at 'segment.totalSegments' failed to satisfy constraint: Member must have value less than or equal to 10".to_owned()),
            ("GetPartition", with("PartitionValues", json!([""])), "Value '' at 'partitionValues.1.member' failed to satisfy constraint: Member must have length greater than or equal to 1".to_owned()),
            ("GetPartition", with("PartitionValues", json!([null])), "Value null at 'partitionValues.1.member' failed to satisfy constraint: Member must not be null".to_owned()),
            ("GetPartition", json!({ "DatabaseName": "a\nb", "TableName": "t", "PartitionValues": [] }), "at 'databaseName' failed to satisfy constraint: Member must satisfy regular expression pattern:".to_owned()),
            ("GetTables", json!({ "DatabaseName": "d", "AttributesToGet": ["NOPE"] }), "Member must satisfy enum value set: [NAME, TABLE_TYPE, DEFAULT, LATEST_ICEBERG_METADATA]".to_owned()),
            ("GetPartitions", with("QueryAsOfTime", json!(1e300)), "Value '1e+300' at 'queryAsOfTime' failed to satisfy constraint: Member must be a timestamp of the years 1 to 9999".to_owned()),
            ("GetPartitions", with("QueryAsOfTime", json!(253_402_300_800_i64)), "Member must be a timestamp of the years 1 to 9999".to_owned()),
            ("GetPartitions", with("QueryAsOfTime", json!(-62_135_596_801_i64)), "Member must be a timestamp of the years 1 to 9999".to_owned()),
            ("GetPartitions", with("QueryAsOfTime", json!("now")), "at 'queryAsOfTime' failed to satisfy constraint: Member must be a timestamp".to_owned()),
        ];
        for (operation, input, expected) in cases {
            let text = message(operation, input);
            assert!(text.contains(&expected), "{operation}: {text}");
        }
    }

    #[test]
    fn all_violations_come_in_one_message() {
        let text = message("GetPartitions", json!({ "MaxResults": 0 }));
        assert!(text.starts_with("3 validation errors detected: "), "{text}");
        assert_eq!(text.matches("; ").count(), 2, "{text}");
    }

    #[test]
    fn a_flood_of_violations_stays_a_short_text() {
        let values: Vec<Value> = (0..10_000).map(|_| json!("")).collect();
        let text = message("GetPartition", json!({ "DatabaseName": "d", "TableName": "t", "PartitionValues": values }));
        assert!(text.starts_with("10000 validation errors detected: "));
        assert!(text.len() < 20_000, "{}", text.len());
    }

    #[test]
    fn limits_count_characters_and_values_may_hold_anything() {
        let value = "\u{1F600}\n\0/:%#".repeat(146);
        assert_eq!(value.chars().count(), 1022);
        let input = json!({ "DatabaseName": "ü".repeat(255), "TableName": "t", "PartitionValues": [value] });
        assert!(check_input("GetPartition", input.as_object().unwrap()).is_ok());
    }

    #[test]
    fn timestamps_that_clients_can_read_pass() {
        for seconds in [json!(-62_135_596_800_i64), json!(0), json!(1.5), json!(253_402_300_799.999)] {
            let input = json!({ "DatabaseName": "d", "TableName": "t", "QueryAsOfTime": seconds });
            assert!(check_input("GetPartitions", input.as_object().unwrap()).is_ok(), "{seconds}");
        }
    }

    #[test]
    fn unknown_members_and_nulls_are_dropped_at_every_depth() {
        let input = json!({
            "DatabaseName": "d", "Novelty": 1, "CatalogId": null,
            "TableInput": { "Name": "t", "Owner": null, "Else": {}, "Parameters": { "a": "1", "b": null },
                "StorageDescriptor": { "Columns": [{ "Name": "c", "New": 1 }], "NumberOfBuckets": 3.0 } },
        });
        let kept = check_input("CreateTable", input.as_object().unwrap()).unwrap();
        let expected = json!({ "DatabaseName": "d", "TableInput": { "Name": "t",
            "StorageDescriptor": { "Columns": [{ "Name": "c" }], "NumberOfBuckets": 3 }, "Parameters": { "a": "1" } } });
        assert_eq!(Value::Object(kept), expected);
    }
}
