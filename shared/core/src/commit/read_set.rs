//! What a commit read: declared as `commitInfo.readSet`, or inferred; and predicates on partition values.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table_facts::{FileValues, TableFacts};
use crate::delta::schema::{DataType, Primitive, Schema};
use crate::delta::{Actions, Metadata};

/// Nesting of predicates that is looked into; deeper ones count as TRUE.
const PREDICATE_MAX_DEPTH: usize = 32;

/// `commitInfo.readSet`, as declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeclaredReadSet {
    pub v: Option<i64>,
    pub whole_table: bool,
    pub predicates: Vec<Value>,
    pub files: Vec<DeclaredFile>,
    pub app_ids: Vec<String>,
    pub matched_equals_written: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredFile {
    pub path: String,
    #[serde(default)]
    pub dv_id: Option<String>,
}

/// What a commit read of its table, as far as we know; never less than it did.
#[derive(Clone, Debug, PartialEq)]
pub enum Reads {
    /// A blind append.
    Nothing,
    WholeTable,
    /// The rows that satisfy one of the predicates, and these files (keys of objects are resolved by the caller).
    Some {
        predicates: Vec<Value>,
        files: Vec<String>,
    },
}

/// Reads the declaration. A malformed one is an error text: guessing could only admit too much.
pub fn declared(actions: &Actions) -> Result<Option<DeclaredReadSet>, String> {
    let Some(value) = actions.commit_info.as_ref().and_then(|info| info.0.get("readSet")) else { return Ok(None) };
    // Serde would take an array for a struct as well.
    if !value.is_object() {
        return Err("commitInfo.readSet is not an object".to_owned());
    }
    let set: DeclaredReadSet =
        serde_json::from_value(value.clone()).map_err(|error| format!("commitInfo.readSet: {error}"))?;
    match set.v {
        None | Some(1) => Ok(Some(set)),
        Some(other) => Err(format!("commitInfo.readSet: version {other} is not known; 1 is")),
    }
}

/// Whether the actions are those of a commit that read nothing: the flag counts only where the actions agree.
pub fn is_blind_append(actions: &Actions, declared: Option<&DeclaredReadSet>) -> bool {
    let only_adds = !actions.adds.is_empty()
        && actions.removes.is_empty()
        && actions.cdc.is_empty()
        && actions.adds.iter().all(|add| add.data_change);
    if !only_adds {
        return false;
    }
    if let Some(set) = declared {
        return !set.whole_table && set.predicates.is_empty() && set.files.is_empty();
    }
    let Some(info) = &actions.commit_info else { return false };
    if let Some(flag) = info.flag("isBlindAppend") {
        return flag;
    }
    let appends = match info.text("operation") {
        Some("WRITE") => info.parameter("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("append")),
        Some("STREAMING UPDATE") => info.parameter("outputMode").is_none_or(|mode| mode.eq_ignore_ascii_case("append")),
        _ => false,
    };
    appends && info.parameter("predicate").is_none()
}

/// Whether no file action changes data: compaction and the like read only what they rewrite.
pub fn is_rearrangement(actions: &Actions) -> bool {
    let has_files = !(actions.adds.is_empty() && actions.removes.is_empty());
    has_files
        && actions.cdc.is_empty()
        && actions.adds.iter().all(|add| !add.data_change)
        && actions.removes.iter().all(|remove| !remove.data_change)
}

/// What the commit read. Without a declaration everything but blind appends and rearrangements is widened to the
/// whole table: operation parameters are SQL text, which is not evaluated yet.
pub fn reads_of(actions: &Actions, declared: Option<&DeclaredReadSet>) -> Reads {
    if is_blind_append(actions, declared) {
        return Reads::Nothing;
    }
    match declared {
        Some(set) if set.whole_table => Reads::WholeTable,
        Some(set) => Reads::Some {
            predicates: set.predicates.clone(),
            files: set.files.iter().map(|file| file.path.clone()).collect(),
        },
        None if is_rearrangement(actions) => Reads::Some { predicates: Vec::new(), files: Vec::new() },
        // Neither files nor a declaration: a property change, a bare transaction.
        None if actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty() => {
            Reads::Some { predicates: Vec::new(), files: Vec::new() }
        }
        None => Reads::WholeTable,
    }
}

impl Reads {
    /// Why a file may hold rows that were read, as a reason code; none: it surely holds none. Files that were read by
    /// name are not looked at.
    pub fn touches(&self, table: TableFacts<'_>, file: FileValues<'_>) -> Option<&'static str> {
        match self {
            Reads::Nothing => None,
            Reads::WholeTable => Some("WHOLE_TABLE_READ"),
            Reads::Some { predicates, .. } => predicates.iter().find_map(|predicate| {
                let truth = match file.partition_values {
                    Some(values) => evaluate(predicate, table.metadata, table.schema, values),
                    None => Truth::Unknown,
                };
                match truth {
                    Truth::False => None,
                    Truth::True => Some("WITH_PARTITION_HINT"),
                    Truth::Unknown => Some("WITHOUT_HINT"),
                }
            }),
        }
    }
}

/// Whether a predicate can hold for a row of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    fn negated(self) -> Truth {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            Truth::Unknown => Truth::Unknown,
        }
    }
}

/// Evaluates a predicate on partition values. What is not understood, and every data column, is Unknown; only False
/// excludes a file.
pub fn evaluate(
    predicate: &Value,
    metadata: &Metadata,
    schema: &Schema,
    values: &std::collections::BTreeMap<String, Option<String>>,
) -> Truth {
    Evaluation { metadata, schema, values }.truth(predicate, 0)
}

struct Evaluation<'a> {
    metadata: &'a Metadata,
    schema: &'a Schema,
    values: &'a std::collections::BTreeMap<String, Option<String>>,
}

impl Evaluation<'_> {
    fn truth(&self, predicate: &Value, depth: usize) -> Truth {
        if depth > PREDICATE_MAX_DEPTH {
            return Truth::Unknown;
        }
        let args = || predicate.get("args").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let truths = || args().iter().map(|arg| self.truth(arg, depth + 1)).collect::<Vec<_>>();
        match predicate.get("op").and_then(Value::as_str) {
            Some("and") => match truths() {
                truths if truths.contains(&Truth::False) => Truth::False,
                truths if !truths.is_empty() && truths.iter().all(|truth| *truth == Truth::True) => Truth::True,
                _ => Truth::Unknown,
            },
            Some("or") => match truths() {
                truths if truths.contains(&Truth::True) => Truth::True,
                truths if !truths.is_empty() && truths.iter().all(|truth| *truth == Truth::False) => Truth::False,
                _ => Truth::Unknown,
            },
            Some("not") => match truths().as_slice() {
                [one] => one.negated(),
                _ => Truth::Unknown,
            },
            Some("=") => self.equals(predicate, predicate.get("value")),
            Some("<>") => self.equals(predicate, predicate.get("value")).negated(),
            Some("in") => {
                let options = predicate.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let truths: Vec<Truth> = options.iter().map(|option| self.equals(predicate, Some(option))).collect();
                if truths.contains(&Truth::True) {
                    Truth::True
                } else if !truths.is_empty() && truths.iter().all(|truth| *truth == Truth::False) {
                    Truth::False
                } else {
                    Truth::Unknown
                }
            }
            Some("isNull") => match self.value_of(predicate) {
                Some((_, None)) => Truth::True,
                Some((_, Some(_))) => Truth::False,
                None => Truth::Unknown,
            },
            _ => Truth::Unknown,
        }
    }

    /// The type and value of the partition column that a comparison names; an empty text is null.
    fn value_of(&self, predicate: &Value) -> Option<(&Primitive, Option<&str>)> {
        let name = match predicate.get("col")? {
            Value::String(name) => name.as_str(),
            Value::Array(steps) => match steps.as_slice() {
                [one] => one.as_str()?,
                _ => return None,
            },
            _ => return None,
        };
        if !self.metadata.partition_columns.iter().any(|column| column == name) {
            return None;
        }
        let DataType::Primitive(kind) = &self.schema.column(name)?.data_type else { return None };
        Some((kind, self.values.get(name)?.as_deref().filter(|value| !value.is_empty())))
    }

    /// Comparisons with null are Unknown rather than False, so that NOT stays on the safe side.
    fn equals(&self, predicate: &Value, literal: Option<&Value>) -> Truth {
        let (Some((kind, Some(found))), Some(literal)) = (self.value_of(predicate), literal) else {
            return Truth::Unknown;
        };
        let same = match kind {
            Primitive::String | Primitive::Date => literal.as_str().map(|text| text == found),
            Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long => {
                let wanted = literal.as_i64().or_else(|| literal.as_str().and_then(|text| text.parse().ok()));
                wanted.and_then(|wanted| found.parse::<i64>().ok().map(|found| found == wanted))
            }
            Primitive::Boolean => {
                let wanted = literal.as_bool().or_else(|| literal.as_str().and_then(|text| text.parse().ok()));
                wanted.and_then(|wanted| found.to_lowercase().parse::<bool>().ok().map(|found| found == wanted))
            }
            // Two spellings of one timestamp, decimal or double are equal values.
            _ => None,
        };
        match same {
            Some(true) => Truth::True,
            Some(false) => Truth::False,
            None => Truth::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{Strictness, parse_commit};
    use serde_json::json;

    #[test]
    fn predicates_exclude_only_what_they_surely_exclude() {
        let fields: Vec<Value> = [("p", "string"), ("n", "integer"), ("t", "timestamp"), ("d", "long")]
            .iter()
            .map(|(name, kind)| json!({"name": name, "type": kind}))
            .collect();
        let schema = Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap();
        let metadata = Metadata { partition_columns: vec!["p".into(), "n".into(), "t".into()], ..Metadata::default() };
        let values = [("p", Some("x")), ("n", Some("07")), ("t", None)]
            .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
            .into();
        let eq = |col: &str, value: Value| json!({"op": "=", "col": [col], "value": value});
        for (predicate, expected) in [
            (eq("p", json!("x")), Truth::True),
            (eq("p", json!("y")), Truth::False),
            (eq("p", json!(1)), Truth::Unknown),
            (eq("n", json!(7)), Truth::True),
            (eq("n", json!("8")), Truth::False),
            (eq("t", json!("2020")), Truth::Unknown),
            (eq("d", json!(1)), Truth::Unknown),
            (eq("zz", json!(1)), Truth::Unknown),
            (json!({"op": "isNull", "col": ["t"]}), Truth::True),
            (json!({"op": "isNull", "col": ["p"]}), Truth::False),
            (json!({"op": "in", "col": "p", "values": ["a", "x"]}), Truth::True),
            (json!({"op": "in", "col": "p", "values": ["a", "b"]}), Truth::False),
            (json!({"op": "in", "col": "p", "values": []}), Truth::Unknown),
            (json!({"op": "<>", "col": ["p"], "value": "x"}), Truth::False),
            (json!({"op": "and", "args": [eq("p", json!("y")), eq("d", json!(1))]}), Truth::False),
            (json!({"op": "or", "args": [eq("p", json!("y")), eq("d", json!(1))]}), Truth::Unknown),
            (json!({"op": "not", "args": [eq("d", json!(1))]}), Truth::Unknown),
            (json!({"op": "not", "args": [eq("t", json!("x"))]}), Truth::Unknown),
            (json!({"op": "rand"}), Truth::Unknown),
            (json!({"op": "and", "args": []}), Truth::Unknown),
            (json!(true), Truth::Unknown),
        ] {
            assert_eq!(evaluate(&predicate, &metadata, &schema, &values), expected, "{predicate}");
        }
    }

    #[test]
    fn blindness_is_inferred_and_a_contradicted_flag_is_ignored() {
        let add = r#"{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}"#;
        let moved = r#"{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":false}}"#;
        let remove = r#"{"remove":{"path":"b","dataChange":true}}"#;
        let info = |inner: &str| format!(r#"{{"commitInfo":{{{inner}}}}}"#);
        let append = info(r#""operation":"WRITE","operationParameters":{"mode":"Append"}"#);
        let flagged = info(r#""isBlindAppend":true"#);
        for (lines, blind) in [
            (vec![add, &append], true),
            (vec![add, &flagged], true),
            (
                vec![
                    add,
                    &info(r#""isBlindAppend":false,"operation":"WRITE","operationParameters":{"mode":"Append"}"#),
                ],
                false,
            ),
            (vec![add, remove, &flagged], false),
            (vec![moved, &flagged], false),
            (vec![&flagged], false),
            (vec![add], false),
            (vec![add, &info(r#""operation":"MERGE""#)], false),
            (vec![add, &info(r#""operation":"WRITE","operationParameters":{"mode":"Overwrite"}"#)], false),
            (
                vec![add, &info(r#""operation":"WRITE","operationParameters":{"mode":"Append","predicate":"p = 1"}"#)],
                false,
            ),
            (vec![add, &info(r#""readSet":{"v":1}"#)], true),
            (vec![add, &info(r#""isBlindAppend":true,"readSet":{"v":1,"wholeTable":true}"#)], false),
            (vec![add, &info(r#""operation":"STREAMING UPDATE","operationParameters":{"outputMode":"Append"}"#)], true),
        ] {
            let actions = parse_commit(lines.join("\n").as_bytes(), Strictness::Proposal).unwrap();
            let declared = declared(&actions).unwrap();
            assert_eq!(is_blind_append(&actions, declared.as_ref()), blind, "{lines:?}");
        }
    }

    #[test]
    fn a_malformed_declaration_is_refused() {
        for inner in [r#""readSet":7"#, r#""readSet":{"v":2}"#, r#""readSet":{"files":[{}]}"#] {
            let line = format!(r#"{{"commitInfo":{{{inner}}}}}"#);
            let actions = parse_commit(line.as_bytes(), Strictness::Proposal).unwrap();
            assert!(declared(&actions).is_err(), "{inner}");
        }
    }
}
