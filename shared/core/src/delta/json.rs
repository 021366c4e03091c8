//! JSON from strangers: duplicate members refused, depth and size bounded; and edits that keep every other byte.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use thiserror::Error;

/// Nesting of objects and arrays that is still read.
pub const JSON_MAX_DEPTH: usize = 64;
/// Values of one text; each takes more memory than its two letters.
pub const JSON_MAX_VALUES: usize = 1_000_000;

/// A text is not JSON that we accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    #[error("not JSON: {0}")]
    Syntax(String),
    #[error("the member `{0}` appears twice in one object; which one counts would depend on the reader")]
    DuplicateMember(String),
    #[error("nested deeper than {JSON_MAX_DEPTH} levels")]
    TooDeep,
    #[error("more than {JSON_MAX_VALUES} values")]
    TooMany,
}

const DUPLICATE: &str = "duplicate member ";
const TOO_DEEP: &str = "nested too deep";
const TOO_MANY: &str = "too many values";

/// Parses one JSON text; refuses duplicate members, nesting beyond [`JSON_MAX_DEPTH`] and more than [`JSON_MAX_VALUES`].
pub fn parse_strict(text: &str) -> Result<Value, JsonError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let values = Cell::new(0);
    let value = Strict { depth: 0, values: &values }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| classify(&error))?;
    Ok(value)
}

fn classify(error: &serde_json::Error) -> JsonError {
    let text = error.to_string();
    if text.starts_with(TOO_DEEP) || text.starts_with("recursion limit exceeded") {
        return JsonError::TooDeep;
    }
    if text.starts_with(TOO_MANY) {
        return JsonError::TooMany;
    }
    match text.strip_prefix(DUPLICATE) {
        // serde_json appends " at line l column c".
        Some(rest) => JsonError::DuplicateMember(rest.rsplit_once(" at line ").map_or(rest, |(name, _)| name).into()),
        None => JsonError::Syntax(text),
    }
}

#[derive(Clone, Copy)]
struct Strict<'c> {
    depth: usize,
    /// Read so far.
    values: &'c Cell<usize>,
}

impl<'c> Strict<'c> {
    fn deeper<E: de::Error>(self) -> Result<Strict<'c>, E> {
        if self.depth >= JSON_MAX_DEPTH {
            Err(E::custom(TOO_DEEP))
        } else {
            Ok(Strict { depth: self.depth + 1, ..self })
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > JSON_MAX_VALUES {
            return Err(de::Error::custom(TOO_MANY));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = access.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(inner)?;
            if map.contains_key(&name) {
                return Err(de::Error::custom(format!("{DUPLICATE}{name}")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// Removes white space between tokens, so that one action fits on one line. Numbers and strings keep their spelling.
pub fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for letter in text.chars() {
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
        } else if !matches!(letter, ' ' | '\t' | '\n' | '\r') {
            out.push(letter);
            in_string = letter == '"';
        }
    }
    out
}

/// Sets one member of the object at `outer` in a one-member line such as `{"commitInfo":{…}}`; all other members keep
/// their spelling (also numbers that do not fit into 64 bits).
pub fn set_member(line: &str, outer: &str, name: &str, value: &Value) -> Result<String, JsonError> {
    set_path(line, &[outer, name], value)
}

/// Sets the member at the end of `path`; objects on the way that are absent or null are made. All other members keep
/// their spelling. Objects on the way that have a member twice are refused.
pub fn set_path(text: &str, path: &[&str], value: &Value) -> Result<String, JsonError> {
    let Some((name, rest)) = path.split_first() else { return Ok(value.to_string()) };
    let mut members: Members = serde_json::from_str(text).map_err(|error| classify(&error))?;
    let inner = members.get(name).map(RawValue::get).filter(|inner| *inner != "null").unwrap_or("{}");
    let inner = set_path(inner, rest, value)?;
    members.set(name, inner).map_err(|error| classify(&error))?;
    Ok(members.to_text())
}

/// The name of the only member of an object; `None` for anything else.
pub fn only_member(text: &str) -> Option<String> {
    let members: Members = serde_json::from_str(text).ok()?;
    match members.0.as_slice() {
        [(name, _)] => Some(name.clone()),
        _ => None,
    }
}

/// The members of an object, in their order, each with its own text.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    fn set(&mut self, name: &str, text: String) -> Result<(), serde_json::Error> {
        let value = RawValue::from_string(text)?;
        match self.0.iter_mut().find(|(found, _)| found == name) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }

    fn to_text(&self) -> String {
        let members: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get())).collect();
        format!("{{{}}}", members.join(","))
    }
}

impl<'de> de::Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = access.next_entry::<String, Box<RawValue>>()? {
                    // An edit of one of two would leave it to the reader which one counts.
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format!("{DUPLICATE}{name}")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_depth_and_rubbish_are_named() {
        assert_eq!(parse_strict(r#"{"a":[1,{"b":null}]}"#).unwrap(), serde_json::json!({"a": [1, {"b": null}]}));
        assert_eq!(parse_strict(r#"{"a":{"b":1,"b":2}}"#), Err(JsonError::DuplicateMember("b".into())));
        let deep = format!("{}{}", "[".repeat(JSON_MAX_DEPTH + 1), "]".repeat(JSON_MAX_DEPTH + 1));
        assert_eq!(parse_strict(&deep), Err(JsonError::TooDeep));
        assert_eq!(parse_strict(&"[".repeat(100_000)), Err(JsonError::TooDeep));
        let many = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        assert_eq!(parse_strict(&many(JSON_MAX_VALUES)), Err(JsonError::TooMany));
        assert!(parse_strict(&many(JSON_MAX_VALUES - 1)).is_ok());
        for bad in ["", "{", "{} {}", "{\"a\":01}", "nul"] {
            assert!(matches!(parse_strict(bad), Err(JsonError::Syntax(_))), "{bad}");
        }
    }

    #[test]
    fn edits_keep_the_spelling_of_everything_else() {
        let line = r#"{"commitInfo":{"z":1.50,"big":123456789012345678901234567890,"t":"a \"b\" { }"}}"#;
        let edited = set_member(line, "commitInfo", "inCommitTimestamp", &Value::from(7)).unwrap();
        assert_eq!(edited, line.replace("}\"}}", "}\",\"inCommitTimestamp\":7}}"));
        let deep = set_path(line, &["commitInfo", "tags", "a.b"], &Value::from("x")).unwrap();
        assert_eq!(deep, line.replace("}\"}}", "}\",\"tags\":{\"a.b\":\"x\"}}}"));
        assert_eq!(
            set_path(r#"{"a":{"b":null}}"#, &["a", "b", "c"], &Value::Null).unwrap(),
            r#"{"a":{"b":{"c":null}}}"#
        );
        assert!(set_path(r#"{"a":1}"#, &["a", "b"], &Value::Null).is_err());
        for twice in [r#"{"a":{"b":1,"b":2}}"#, r#"{"a":{"c":1,"\u0063":2}}"#, r#"{"a":{},"a":{"b":1}}"#] {
            let refused = set_path(twice, &["a", "b"], &Value::Null);
            assert!(matches!(refused, Err(JsonError::DuplicateMember(_))), "{twice}: {refused:?}");
        }
        assert_eq!(
            (only_member(line).as_deref(), only_member("{}"), only_member("1")),
            (Some("commitInfo"), None, None)
        );
        let pretty = "{\n  \"add\" : { \"path\": \"a b\\\" \\\\\", \"size\":\t1 }\r\n}";
        assert_eq!(compact(pretty), r#"{"add":{"path":"a b\" \\","size":1}}"#);
    }
}
