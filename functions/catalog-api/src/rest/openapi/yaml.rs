//! JSON as YAML that people can read: what fits on a line is on one line.

use serde_json::Value;

/// Characters of a line up to which a collection stays on it.
const LINE_MAX_CHARS: usize = 120;

pub(super) fn write(document: &Value) -> String {
    let mut text = String::new();
    block(document, 0, &mut text);
    text
}

/// Lines of a mapping or sequence, each indented.
fn block(value: &Value, indent: usize, text: &mut String) {
    let spaces = " ".repeat(indent);
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                entry(&format!("{spaces}{}:", scalar(name)), value, indent + 2, text);
            }
        }
        Value::Array(values) => {
            for value in values {
                entry(&format!("{spaces}-"), value, indent + 2, text);
            }
        }
        other => text.push_str(&format!("{spaces}{}\n", flow(other))),
    }
}

fn entry(head: &str, value: &Value, indent: usize, text: &mut String) {
    let line = flow(value);
    let is_lines = value.as_str().is_some_and(|value| value.contains('\n'));
    let is_leaf = !value.is_object() && !value.is_array();
    if is_lines {
        text.push_str(&format!("{head} |\n"));
        for line in value.as_str().unwrap_or_default().lines() {
            let spaces = if line.is_empty() { String::new() } else { " ".repeat(indent) };
            text.push_str(&format!("{spaces}{line}\n"));
        }
    } else if is_leaf || (depth(value) <= 3 && head.len() + line.chars().count() < LINE_MAX_CHARS) {
        text.push_str(&format!("{head} {line}\n"));
    } else {
        text.push_str(&format!("{head}\n"));
        block(value, indent, text);
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{}: {}", scalar(name), flow(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Plain where no reader could take it for something else, else as JSON has it.
fn scalar(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'));
    let is_special =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    if is_word && !is_special { text.to_owned() } else { Value::from(text).to_string() }
}
