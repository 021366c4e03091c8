//! `commitInfo.readSet`: what a writer says that it read.
//!
//! ```text
//! {"v": 1, "wholeTable": bool, "predicates": [P…], "files": [{"path": …, "dvId": …}], "appIds": [text…],
//!  "matchedEqualsWritten": bool}
//! P = {"op": "and|or", "args": [P…]} | {"op": "not", "args": [P]} | {"op": "=|<>|<|<=|>|>=", "col": C, "value": V}
//!   | {"op": "in", "col": C, "values": [V…]} | {"op": "isNull", "col": C}      C = text | [text…]    V = JSON scalar
//! ```
//!
//! Known shapes are held to, and members that are not known are refused: a misspelt one would narrow what was read. An `op`
//! that is not known is TRUE, so that later versions can say more.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::predicate::{Column, Literal, Origin, Predicate, ReadPredicate, Zone};
use crate::commit::sql::Comparison;
use crate::delta::Actions;

/// Nesting of predicates that is looked into; deeper ones are unknown.
const PREDICATE_MAX_DEPTH: usize = 24;
/// Operators and constants of a read set. Larger ones are unknown as a whole.
const PREDICATE_MAX_PARTS: usize = 20_000;

/// `commitInfo.readSet`, as declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredReadSet {
    pub whole_table: bool,
    pub predicates: Vec<ReadPredicate>,
    pub files: Vec<DeclaredFile>,
    pub app_ids: Vec<String>,
    /// Whether the writer changed every row that its condition matched, if it says so.
    pub matched_equals_written: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredFile {
    /// As in the log.
    pub path: String,
    #[serde(default)]
    pub dv_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Raw {
    v: Option<i64>,
    whole_table: bool,
    predicates: Vec<Value>,
    files: Vec<DeclaredFile>,
    app_ids: Vec<String>,
    matched_equals_written: Option<bool>,
}

/// Reads the declaration. A malformed one is an error text: guessing could only admit too much.
pub fn declared(actions: &Actions) -> Result<Option<DeclaredReadSet>, String> {
    let Some(value) = actions.commit_info.as_ref().and_then(|info| info.0.get("readSet")) else { return Ok(None) };
    // Serde would take an array for a struct as well.
    if !value.is_object() {
        return Err("commitInfo.readSet is not an object".to_owned());
    }
    let raw: Raw = Raw::deserialize(value).map_err(|error| format!("commitInfo.readSet: {error}"))?;
    if let Some(other) = raw.v.filter(|version| *version != 1) {
        return Err(format!("commitInfo.readSet: version {other} is not known; 1 is"));
    }
    let mut reader = Reader { parts: 0 };
    let mut predicates = Vec::new();
    for (index, value) in raw.predicates.iter().enumerate() {
        let predicate = reader
            .predicate(value, 0)
            .map_err(|problem| format!("commitInfo.readSet: predicate {}: {problem}", index + 1))?;
        predicates.push(ReadPredicate { predicate, origin: Origin::Declared });
    }
    if reader.parts > PREDICATE_MAX_PARTS {
        predicates = vec![ReadPredicate { predicate: Predicate::Unknown, origin: Origin::Declared }];
    }
    Ok(Some(DeclaredReadSet {
        whole_table: raw.whole_table,
        predicates,
        files: raw.files,
        app_ids: raw.app_ids,
        matched_equals_written: raw.matched_equals_written,
    }))
}

struct Reader {
    parts: usize,
}

impl Reader {
    fn predicate(&mut self, value: &Value, depth: usize) -> Result<Predicate, String> {
        let Some(members) = value.as_object() else { return Err(format!("{} is not an object", shown(value))) };
        let Some(op) = members.get("op").and_then(Value::as_str) else { return Err("`op` is missing".to_owned()) };
        self.parts += 1;
        if depth >= PREDICATE_MAX_DEPTH || self.parts > PREDICATE_MAX_PARTS {
            return Ok(Predicate::Unknown);
        }
        let known: &[&str] = match op {
            "and" | "or" | "not" => &["op", "args"],
            "isNull" => &["op", "col"],
            "in" => &["op", "col", "values"],
            "=" | "<>" | "<" | "<=" | ">" | ">=" => &["op", "col", "value"],
            _ => return Ok(Predicate::Unknown),
        };
        if let Some(other) = members.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("`{op}` has no member `{}`", other.chars().take(60).collect::<String>()));
        }
        let comparison = match op {
            "and" => return Ok(Predicate::And(self.args(op, members, depth)?)),
            "or" => return Ok(Predicate::Or(self.args(op, members, depth)?)),
            "not" => {
                let mut args = self.args(op, members, depth)?;
                return match (args.pop(), args.len()) {
                    (Some(part), 0) => Ok(Predicate::Not(Box::new(part))),
                    _ => Err("`not` takes one argument".to_owned()),
                };
            }
            "isNull" => return Ok(Predicate::IsNull(column(op, members)?)),
            "in" => {
                let column = column(op, members)?;
                let values = members.get("values").and_then(Value::as_array);
                let Some(values) = values else { return Err("`in` needs a list `values`".to_owned()) };
                self.parts += values.len();
                let literals = values.iter().map(|value| literal(op, value)).collect::<Result<Vec<_>, _>>()?;
                return Ok(Predicate::In(column, literals));
            }
            "=" => Comparison::Equal,
            "<>" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Ok(Predicate::Unknown),
        };
        let Some(value) = members.get("value") else { return Err(format!("`{op}` needs a `value`")) };
        Ok(Predicate::Compare(comparison, column(op, members)?, literal(op, value)?))
    }

    fn args(&mut self, op: &str, members: &Map<String, Value>, depth: usize) -> Result<Vec<Predicate>, String> {
        match members.get("args").and_then(Value::as_array) {
            Some(args) if !args.is_empty() => args.iter().map(|arg| self.predicate(arg, depth + 1)).collect(),
            _ => Err(format!("`{op}` needs a list `args` that is not empty")),
        }
    }
}

fn column(op: &str, members: &Map<String, Value>) -> Result<Column, String> {
    let path = match members.get("col") {
        Some(Value::String(name)) => Some(vec![name.clone()]),
        Some(Value::Array(steps)) if !steps.is_empty() => {
            steps.iter().map(|step| step.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        }
        _ => None,
    };
    path.map(Column::exactly).ok_or_else(|| format!("`{op}` needs `col`: a name, or a list of names"))
}

fn literal(op: &str, value: &Value) -> Result<Literal, String> {
    match value {
        Value::Null => Ok(Literal::Null),
        Value::Bool(flag) => Ok(Literal::Flag(*flag)),
        Value::Number(number) => Ok(Literal::Number(number.to_string())),
        Value::String(text) => Ok(Literal::Text(text.clone(), Zone::Utc)),
        Value::Array(_) | Value::Object(_) => Err(format!("`{op}`: {} is no scalar", shown(value))),
    }
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
