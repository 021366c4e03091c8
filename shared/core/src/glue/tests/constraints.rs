//! Every constraint of the model, at every place of every operation's input: one valid input of each operation, and one
//! that breaks it for each constraint, derived from the model itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::glue::model::{Kind, Model, Pattern, Shape, model};
use crate::glue::validate::check_input;

/// Structures contain each other; below this the rest has been seen at another place.
const DEPTH_MAX: usize = 7;

/// A broken constraint: where, and in which words.
struct Case {
    path: String,
    text: String,
    broken: Value,
}

fn text_of(pattern: Option<&Pattern>, values: &[String], length: usize) -> String {
    match (values.first(), pattern) {
        (Some(value), _) => value.clone(),
        (None, Some(Pattern::Regex { source, .. })) if source.starts_with("arn:aws(-(cn") => {
            "arn:aws:glue:r:1:x".into()
        }
        (None, Some(Pattern::Regex { source, .. })) if source.starts_with("arn") => {
            "arn:aws:iam::123456789012:role/x".into()
        }
        (None, Some(Pattern::Regex { source, .. })) if source.starts_with("[a-f0-9]{8}") => {
            "01234567-89ab-cdef-0123-456789abcdef".into()
        }
        _ => "x".repeat(length.max(1)),
    }
}

/// The smallest value that the shape allows.
fn valid(model: &Model, shape: &Shape, depth: usize) -> Value {
    let least = usize::try_from(shape.min.unwrap_or(0)).unwrap_or(0);
    match &shape.kind {
        Kind::Text { pattern, values } => Value::from(text_of(pattern.as_ref(), values, least)),
        Kind::Integer | Kind::Long => json!(shape.min.unwrap_or(0).max(1)),
        Kind::Double => json!(shape.min.unwrap_or(0) as f64),
        Kind::Boolean => json!(true),
        Kind::Timestamp => json!(1.5),
        Kind::Blob => json!("AQ=="),
        Kind::Document => json!("any"),
        Kind::List(member) => {
            let member = model.shape(*member).unwrap();
            (0..least.max(1)).map(|_| valid(model, member, depth + 1)).collect()
        }
        Kind::Map { key, value } => {
            let (key, value) = (model.shape(*key).unwrap(), model.shape(*value).unwrap());
            let Value::String(name) = valid(model, key, depth) else { unreachable!() };
            Value::Object(Map::from_iter([(name, valid(model, value, depth))]))
        }
        Kind::Structure(members) => {
            let kept = members.iter().filter(|member| member.required || depth < 1);
            kept.map(|member| (member.name.clone(), valid(model, model.shape(member.shape).unwrap(), depth + 1)))
                .collect()
        }
    }
}

fn lower(name: &str) -> String {
    name[..1].to_lowercase() + &name[1..]
}

/// One value for each constraint of the shape itself that breaks it.
fn breaks(shape: &Shape, value: &Value) -> Vec<(Value, String)> {
    let mut broken = Vec::new();
    let wrong_type = |kind: &str| (json!({ "no": [] }), format!("Member must be {kind}"));
    let is_counted = matches!(shape.kind, Kind::Text { .. } | Kind::List(_) | Kind::Map { .. });
    if let Some(max) = shape.max.filter(|_| is_counted) {
        let count = usize::try_from(max).unwrap() + 1;
        let long = match value {
            Value::String(_) => Value::from("x".repeat(count)),
            Value::Array(entries) => (0..count).map(|_| entries[0].clone()).collect(),
            Value::Object(entries) => {
                let held = entries.values().next().unwrap();
                (0..count).map(|n| (format!("k{n}"), held.clone())).collect()
            }
            _ => unreachable!(),
        };
        broken.push((long, format!("Member must have length less than or equal to {max}")));
    }
    if let Some(min) = shape.min.filter(|min| is_counted && *min > 0) {
        let short = match value {
            Value::String(_) => json!(""),
            Value::Array(_) => json!([]),
            _ => json!({}),
        };
        broken.push((short, format!("Member must have length greater than or equal to {min}")));
    }
    match &shape.kind {
        Kind::Text { pattern, values } => {
            broken.push(wrong_type("a string"));
            if let Some(pattern) = pattern {
                let text = json!("\u{1} \u{fffe}");
                broken.push((text, format!("Member must satisfy regular expression pattern: {}", pattern.source())));
            }
            if !values.is_empty() {
                let text = format!("Member must satisfy enum value set: [{}]", values.join(", "));
                broken.push((json!("NO_SUCH_VALUE"), text));
            }
        }
        Kind::Integer | Kind::Long => {
            let (kind, least, most) = match shape.kind {
                Kind::Integer => ("an integer", i64::from(i32::MIN), i64::from(i32::MAX)),
                _ => ("a long", i64::MIN, i64::MAX),
            };
            broken.push(wrong_type(kind));
            broken.push((json!(1.5), format!("Member must be {kind}")));
            let (min, max) = (shape.min.unwrap_or(least), shape.max.unwrap_or(most));
            if let Some(below) = min.checked_sub(1) {
                broken.push((json!(below), format!("Member must have value greater than or equal to {min}")));
            }
            if let Some(above) = max.checked_add(1) {
                broken.push((json!(above), format!("Member must have value less than or equal to {max}")));
            }
        }
        Kind::Double => {
            broken.push(wrong_type("a double"));
            if shape.min == Some(0) {
                broken.push((json!(-0.5), "Member must have value greater than or equal to 0".into()));
            }
        }
        Kind::Boolean => broken.push((json!("true"), "Member must be a boolean".into())),
        Kind::Timestamp => {
            broken.push((json!("2024-01-01"), "Member must be a timestamp".into()));
            broken.push((json!(1e300), "Member must be a timestamp of the years 1 to 9999".into()));
        }
        Kind::Blob => broken.push((json!("\u{1}"), "Member must be a blob (base64 text)".into())),
        Kind::List(_) => broken.push((json!("x"), "Member must be a list".into())),
        Kind::Map { .. } => broken.push((json!("x"), "Member must be a map".into())),
        Kind::Structure(_) => broken.push((json!("x"), "Member must be a structure".into())),
        Kind::Document => {}
    }
    broken
}

/// Puts every broken form of the shape into the hole that `place` fills.
fn collect(
    model: &Model,
    shape: &Shape,
    path: &str,
    depth: usize,
    place: &dyn Fn(Value) -> Value,
    cases: &mut Vec<Case>,
) {
    let whole = valid(model, shape, depth);
    for (broken, text) in breaks(shape, &whole) {
        cases.push(Case { path: path.to_owned(), text, broken: place(broken) });
    }
    if depth >= DEPTH_MAX {
        return;
    }
    match &shape.kind {
        Kind::Structure(members) => {
            for member in members {
                let inner = format!("{path}.{}", lower(&member.name));
                let with = |value: Option<Value>| {
                    let mut whole = whole.clone();
                    match value {
                        Some(value) => _ = whole.as_object_mut().unwrap().insert(member.name.clone(), value),
                        None => _ = whole.as_object_mut().unwrap().remove(&member.name),
                    }
                    place(whole)
                };
                if member.required {
                    let text = "Member must not be null".to_owned();
                    cases.push(Case { path: inner.clone(), text, broken: with(None) });
                }
                let shape = model.shape(member.shape).unwrap();
                collect(model, shape, &inner, depth + 1, &|value| with(Some(value)), cases);
            }
        }
        Kind::List(member) => {
            let inner = format!("{path}.1.member");
            let text = "Member must not be null".to_owned();
            cases.push(Case { path: inner.clone(), text, broken: place(json!([null])) });
            let shape = model.shape(*member).unwrap();
            collect(model, shape, &inner, depth + 1, &|value| place(json!([value])), cases);
        }
        Kind::Map { key, value } => {
            let name = valid(model, model.shape(*key).unwrap(), depth);
            let inner = format!("{path}.{}.value", name.as_str().unwrap());
            let name = name.as_str().unwrap().to_owned();
            let with = |value: Value| place(Value::Object(Map::from_iter([(name.clone(), value)])));
            collect(model, model.shape(*value).unwrap(), &inner, depth + 1, &with, cases);
            let key = model.shape(*key).unwrap();
            let held = valid(model, model.shape(*value).unwrap(), depth);
            for (broken, text) in breaks(key, &json!("x")) {
                let Value::String(broken) = broken else { continue };
                let broken = place(Value::Object(Map::from_iter([(broken, held.clone())])));
                cases.push(Case { path: format!("{path}.key"), text, broken });
            }
        }
        _ => {}
    }
}

#[test]
fn every_constraint_of_every_operation_is_checked_where_it_stands() {
    let model = model().unwrap();
    let mut counts = BTreeMap::new();
    for operation in model.operations() {
        let shape = model.input(operation).unwrap();
        let whole = valid(model, shape, 0);
        let checked = check_input(operation, whole.as_object().unwrap());
        assert!(checked.is_ok(), "{operation}: {whole} {checked:?}");
        let mut cases = Vec::new();
        collect(model, shape, "", 0, &|value| value, &mut cases);
        for case in &cases {
            // The request itself is an object by then.
            let Value::Object(input) = &case.broken else { continue };
            if case.path.is_empty() {
                continue;
            }
            let refused = check_input(operation, input);
            let text = refused.map(|_| ()).expect_err(&format!("{operation} {} {}", case.path, case.text)).message;
            let expected = format!("at '{}' failed to satisfy constraint: {}", &case.path[1..], case.text);
            assert!(text.contains(&expected), "{operation}: {expected}\n{text}");
        }
        counts.insert(operation, cases.len());
    }
    assert_eq!(counts.len(), 51, "operations of the model");
    assert!(counts.values().sum::<usize>() > 2_500, "{counts:?}");
}
