//! The constraints of the service model, read once from `model.json`.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde::Deserialize;
use serde_json::Map;

/// Position of a shape in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShapeId(usize);

/// Which characters a text may hold.
#[derive(Debug)]
pub(super) enum Pattern {
    /// No control characters but the tab.
    SingleLine,
    /// The same, and line ends.
    MultiLine,
    /// Neither blanks nor symbols nor control characters.
    LettersNumbersPunctuation,
    Regex {
        source: String,
        compiled: Regex,
    },
}

impl Pattern {
    /// The expression as violations name it.
    pub(super) fn source(&self) -> &str {
        match self {
            Pattern::SingleLine => r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*",
            Pattern::MultiLine => r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*",
            Pattern::LettersNumbersPunctuation => r"[\p{L}\p{N}\p{P}]*",
            Pattern::Regex { source, .. } => source,
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let printable = |c: char| c == '\t' || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
        match self {
            Pattern::SingleLine => text.chars().all(printable),
            Pattern::MultiLine => text.chars().all(|c| printable(c) || c == '\r' || c == '\n'),
            Pattern::LettersNumbersPunctuation => text.chars().all(|c| c.is_alphanumeric() || is_punctuation(c)),
            Pattern::Regex { compiled, .. } => compiled.is_match(text),
        }
    }
}

/// Punctuation (not symbols) of ASCII, Latin-1, the general block and the CJK block, which is all that ids are made of.
fn is_punctuation(c: char) -> bool {
    match c {
        '$' | '+' | '<'..='>' | '^' | '`' | '|' | '~' | '\u{2044}' | '\u{2052}' => false,
        '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}' => true,
        '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' => true,
        c => c.is_ascii_punctuation(),
    }
}

/// A member of a structure.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) shape: ShapeId,
    pub(super) required: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Text {
        pattern: Option<Pattern>,
        values: Vec<String>,
    },
    Integer,
    Long,
    Double,
    Boolean,
    Timestamp,
    Blob,
    List(ShapeId),
    Map {
        key: ShapeId,
        value: ShapeId,
    },
    Structure(Vec<Member>),
    /// Anything at all.
    Document,
}

/// A type of the model. The limits mean characters, values or entries, by kind.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
}

/// Operations and shapes by name.
#[derive(Debug)]
pub(super) struct Model {
    shapes: Vec<Shape>,
    operations: HashMap<String, Shape>,
}

impl Model {
    /// Names of all operations.
    #[cfg(test)]
    pub(super) fn operations(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.operations.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn shape(&self, id: ShapeId) -> Option<&Shape> {
        self.shapes.get(id.0)
    }

    /// The input of an operation, a structure.
    pub(super) fn input(&self, operation: &str) -> Option<&Shape> {
        self.operations.get(operation)
    }
}

/// The model, or why the embedded file cannot be read (which a test rules out).
pub(super) fn model() -> Result<&'static Model, &'static str> {
    static MODEL: LazyLock<Result<Model, String>> = LazyLock::new(|| parse(include_str!("model.json")));
    MODEL.as_ref().map_err(String::as_str)
}

#[derive(Deserialize)]
struct RawModel {
    operations: HashMap<String, RawShape>,
    shapes: HashMap<String, RawShape>,
}

#[derive(Deserialize)]
struct RawShape {
    #[serde(rename = "type")]
    kind: String,
    min: Option<i64>,
    max: Option<i64>,
    pattern: Option<String>,
    regex: Option<String>,
    #[serde(default, rename = "enum")]
    values: Vec<String>,
    member: Option<String>,
    key: Option<String>,
    value: Option<String>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    members: Map<String, serde_json::Value>,
}

fn parse(text: &str) -> Result<Model, String> {
    let raw: RawModel = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut names: Vec<&String> = raw.shapes.keys().collect();
    names.sort();
    let ids: HashMap<&str, ShapeId> = names.iter().enumerate().map(|(at, name)| (name.as_str(), ShapeId(at))).collect();
    let mut shapes = Vec::with_capacity(names.len());
    for name in &names {
        let shape = raw.shapes.get(*name).ok_or_else(|| format!("{name}: gone"))?;
        shapes.push(build(shape, &ids).map_err(|error| format!("{name}: {error}"))?);
    }
    let mut operations = HashMap::new();
    for (name, shape) in &raw.operations {
        operations.insert(name.clone(), build(shape, &ids).map_err(|error| format!("{name}: {error}"))?);
    }
    Ok(Model { shapes, operations })
}

fn build(raw: &RawShape, ids: &HashMap<&str, ShapeId>) -> Result<Shape, String> {
    let find = |name: Option<&str>| {
        let name = name.ok_or("a reference is missing")?;
        ids.get(name).copied().ok_or_else(|| format!("no shape `{name}`"))
    };
    let kind = match raw.kind.as_str() {
        "string" => Kind::Text { pattern: pattern(raw)?, values: raw.values.clone() },
        "integer" => Kind::Integer,
        "long" => Kind::Long,
        "double" => Kind::Double,
        "boolean" => Kind::Boolean,
        "timestamp" => Kind::Timestamp,
        "blob" => Kind::Blob,
        "document" => Kind::Document,
        "list" => Kind::List(find(raw.member.as_deref())?),
        "map" => Kind::Map { key: find(raw.key.as_deref())?, value: find(raw.value.as_deref())? },
        "structure" => {
            let mut members = Vec::with_capacity(raw.members.len());
            for (name, shape) in &raw.members {
                members.push(Member {
                    name: name.clone(),
                    shape: find(shape.as_str())?,
                    required: raw.required.contains(name),
                });
            }
            Kind::Structure(members)
        }
        other => return Err(format!("unknown type `{other}`")),
    };
    Ok(Shape { kind, min: raw.min, max: raw.max })
}

fn pattern(raw: &RawShape) -> Result<Option<Pattern>, String> {
    Ok(match (raw.pattern.as_deref(), &raw.regex) {
        (None, _) => None,
        (Some("single_line"), _) => Some(Pattern::SingleLine),
        (Some("multi_line"), _) => Some(Pattern::MultiLine),
        (Some("letters_numbers_punctuation"), _) => Some(Pattern::LettersNumbersPunctuation),
        (Some("regex"), Some(source)) => {
            let compiled = Regex::new(&format!("^(?:{source})$")).map_err(|error| error.to_string())?;
            Some(Pattern::Regex { source: source.clone(), compiled })
        }
        (Some(other), _) => return Err(format!("unknown pattern `{other}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_model_can_be_read() {
        let model = model().unwrap();
        assert!(model.input("CreatePartition").is_some());
        assert!(model.input("CreateTableOptimizer").is_some());
        assert!(model.input("NoSuchOperation").is_none());
    }
}
