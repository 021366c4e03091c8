use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::json::{JsonError, parse_strict};

/// Largest commit file that is read, from the log or as a proposal.
pub const COMMIT_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Actions of one commit.
pub const COMMIT_MAX_ACTIONS: usize = 500_000;

/// A commit file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ActionError {
    #[error("not UTF-8")]
    NotUtf8,
    #[error("more than {COMMIT_MAX_ACTIONS} actions")]
    TooMany,
    #[error("line {line}: {error}")]
    Json { line: usize, error: JsonError },
    #[error("line {line} is not an object with exactly one action")]
    NotOneAction { line: usize },
    #[error("line {line}: the action `{name}` is not known, or does not belong into a commit")]
    UnknownAction { line: usize, name: String },
    #[error("line {line}: `{action}`: {message}")]
    Shape { line: usize, action: String, message: String },
    #[error("{count} actions `{action}`; at most one is allowed")]
    Repeated { action: &'static str, count: usize },
    #[error("no action at all")]
    Empty,
}

/// How odd lines are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A proposal: anything odd refuses it, also what only other readers would stumble over.
    Proposal,
    /// A log as it is: unknown actions are counted, not refused.
    Log,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    pub min_reader_version: i64,
    pub min_writer_version: i64,
    #[serde(default)]
    pub reader_features: Option<Vec<String>>,
    #[serde(default)]
    pub writer_features: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub format: Option<Value>,
    pub schema_string: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub partition_columns: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub configuration: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub created_time: Option<i64>,
}

impl Metadata {
    /// A table property; a null counts as absent.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.configuration.get(name).and_then(|value| value.as_deref())
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.property(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// Where a file's deletion vector is; what identifies a logical file beside its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionVector {
    pub storage_type: String,
    pub path_or_inline_dv: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    pub size_in_bytes: i64,
    pub cardinality: i64,
}

impl DeletionVector {
    /// Absent offset and offset 0 are different ids.
    pub fn id(&self) -> String {
        match self.offset {
            Some(offset) => format!("{}{}@{offset}", self.storage_type, self.path_or_inline_dv),
            None => format!("{}{}", self.storage_type, self.path_or_inline_dv),
        }
    }
}

pub type PartitionValues = BTreeMap<String, Option<String>>;

/// Members of a file in checkpoints that say in columns of their own types what others say in JSON.
pub(super) const PARSED: [&str; 2] = ["stats_parsed", "partitionValues_parsed"];

/// Members of a file's action that nothing here looks at: tags, the clustering provider, whatever only other writers know.
/// They stay with the file. Kept as JSON text, since a large table has many of them.
#[derive(Clone, Debug, Default)]
pub struct OtherMembers(Option<Box<str>>);

impl PartialEq for OtherMembers {
    /// In any order.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.members() == other.members()
    }
}

impl Eq for OtherMembers {}

impl OtherMembers {
    /// A null counts as absent, and so do other forms of members that are known, which belong into checkpoints only.
    pub fn new(mut members: Map<String, Value>) -> Self {
        members.retain(|name, value| !value.is_null() && !PARSED.contains(&name.as_str()));
        Self((!members.is_empty()).then(|| Value::Object(members).to_string().into_boxed_str()))
    }

    pub fn members(&self) -> Map<String, Value> {
        self.0.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for OtherMembers {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(Self::new)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddFile {
    /// As written: percent-encoded, see [`super::path::resolve`].
    pub path: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub partition_values: PartitionValues,
    pub size: i64,
    #[serde(default)]
    pub modification_time: i64,
    /// Checkpoints may leave it out.
    #[serde(default = "yes")]
    pub data_change: bool,
    /// JSON text.
    #[serde(default)]
    pub stats: Option<String>,
    #[serde(default)]
    pub deletion_vector: Option<DeletionVector>,
    #[serde(default)]
    pub base_row_id: Option<i64>,
    #[serde(default)]
    pub default_row_commit_version: Option<i64>,
    #[serde(flatten)]
    pub others: OtherMembers,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveFile {
    pub path: String,
    #[serde(default)]
    pub deletion_timestamp: Option<i64>,
    #[serde(default = "yes")]
    pub data_change: bool,
    #[serde(default)]
    pub partition_values: Option<PartitionValues>,
    #[serde(default)]
    pub size: Option<i64>,
    #[serde(default)]
    pub stats: Option<String>,
    #[serde(default)]
    pub deletion_vector: Option<DeletionVector>,
    #[serde(default)]
    pub base_row_id: Option<i64>,
    #[serde(default)]
    pub default_row_commit_version: Option<i64>,
}

/// A file of the change feed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CdcFile {
    pub path: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub partition_values: PartitionValues,
    pub size: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    pub app_id: String,
    pub version: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainMetadata {
    pub domain: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub configuration: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub removed: bool,
}

/// Provenance, free-form by the protocol; what we look at is found by name and type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommitInfo(pub Map<String, Value>);

impl CommitInfo {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A number, or a number in a string.
    pub fn number(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        let value = self.0.get(name)?;
        value.as_bool().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
    }

    /// A member of `operationParameters`, as text.
    pub fn parameter(&self, name: &str) -> Option<String> {
        match self.0.get("operationParameters")?.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

fn yes() -> bool {
    true
}

/// Writers and checkpoints spell "nothing" as null as well.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// The actions of one commit, by kind, in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Actions {
    pub commit_info: Option<CommitInfo>,
    /// Whether `commitInfo` is the first line, which in-commit timestamps demand.
    pub commit_info_first: bool,
    pub protocol: Option<Protocol>,
    pub metadata: Option<Metadata>,
    pub adds: Vec<AddFile>,
    pub removes: Vec<RemoveFile>,
    pub cdc: Vec<CdcFile>,
    pub txns: Vec<Txn>,
    pub domains: Vec<DomainMetadata>,
    /// Names of actions that we do not know ([`Strictness::Log`] only).
    pub unknown: Vec<String>,
}

impl Actions {
    pub fn operation(&self) -> Option<&str> {
        self.commit_info.as_ref().and_then(|info| info.text("operation"))
    }

    /// Whether two commits do the same to a table, whatever they say of themselves.
    pub fn same_but_for_info(&self, other: &Actions) -> bool {
        let Actions {
            commit_info: _,
            commit_info_first: _,
            protocol,
            metadata,
            adds,
            removes,
            cdc,
            txns,
            domains,
            unknown,
        } = self;
        *protocol == other.protocol
            && *metadata == other.metadata
            && *adds == other.adds
            && *removes == other.removes
            && *cdc == other.cdc
            && *txns == other.txns
            && *domains == other.domains
            && *unknown == other.unknown
    }
}

/// Parses a commit file: one action a line, empty lines ignored, unknown members ignored.
pub fn parse_commit(bytes: &[u8], strictness: Strictness) -> Result<Actions, ActionError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ActionError::NotUtf8)?;
    let mut builder = Builder { strictness, ..Builder::default() };
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let line_number = index + 1;
        let value = parse_strict(line).map_err(|error| ActionError::Json { line: line_number, error })?;
        builder.take_line(line_number, value)?;
    }
    builder.finish()
}

#[derive(Debug)]
pub(super) struct Builder {
    pub(super) actions: Actions,
    pub(super) strictness: Strictness,
    count: usize,
    protocols: usize,
    metadatas: usize,
    infos: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            actions: Actions::default(),
            strictness: Strictness::Log,
            count: 0,
            protocols: 0,
            metadatas: 0,
            infos: 0,
        }
    }
}

impl Builder {
    fn take_line(&mut self, line: usize, value: Value) -> Result<(), ActionError> {
        let Value::Object(members) = value else { return Err(ActionError::NotOneAction { line }) };
        if self.strictness == Strictness::Proposal && members.len() != 1 {
            return Err(ActionError::NotOneAction { line });
        }
        for (name, value) in members {
            self.take(line, &name, value)?;
        }
        Ok(())
    }

    /// Takes one action; nulls (other columns of a checkpoint's row) are no actions.
    pub(super) fn take(&mut self, line: usize, name: &str, value: Value) -> Result<(), ActionError> {
        if value.is_null() && self.strictness == Strictness::Log {
            return Ok(());
        }
        self.count += 1;
        if self.count > COMMIT_MAX_ACTIONS && self.strictness == Strictness::Proposal {
            return Err(ActionError::TooMany);
        }
        if self.strictness == Strictness::Proposal {
            super::shape::check(name, &value).map_err(|message| ActionError::Shape {
                line,
                action: name.to_owned(),
                message,
            })?;
        }
        match name {
            "add" => self.actions.adds.push(shape(line, name, value)?),
            "remove" => self.actions.removes.push(shape(line, name, value)?),
            "cdc" => self.actions.cdc.push(shape(line, name, value)?),
            "txn" => self.actions.txns.push(shape(line, name, value)?),
            "domainMetadata" => self.actions.domains.push(shape(line, name, value)?),
            "protocol" => {
                self.protocols += 1;
                self.actions.protocol = Some(shape(line, name, value)?);
            }
            "metaData" => {
                self.metadatas += 1;
                self.actions.metadata = Some(shape(line, name, value)?);
            }
            "commitInfo" => {
                self.infos += 1;
                let Value::Object(members) = value else {
                    return Err(ActionError::Shape { line, action: name.into(), message: "not an object".into() });
                };
                self.actions.commit_info_first = self.count == 1;
                self.actions.commit_info = Some(CommitInfo(members));
            }
            _ if self.strictness == Strictness::Proposal => {
                return Err(ActionError::UnknownAction { line, name: name.to_owned() });
            }
            _ => self.actions.unknown.push(name.to_owned()),
        }
        Ok(())
    }

    fn finish(self) -> Result<Actions, ActionError> {
        if self.strictness == Strictness::Proposal {
            if self.count == 0 {
                return Err(ActionError::Empty);
            }
            for (action, count) in
                [("protocol", self.protocols), ("metaData", self.metadatas), ("commitInfo", self.infos)]
            {
                if count > 1 {
                    return Err(ActionError::Repeated { action, count });
                }
            }
        }
        Ok(self.actions)
    }
}

fn shape<T: DeserializeOwned>(line: usize, action: &str, value: Value) -> Result<T, ActionError> {
    serde_json::from_value(value).map_err(|error| ActionError::Shape {
        line,
        action: action.to_owned(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(text: &str) -> Result<Actions, ActionError> {
        parse_commit(text.as_bytes(), Strictness::Proposal)
    }

    #[test]
    fn a_commit_as_deltalake_writes_it() {
        let text = concat!(
            r#"{"add":{"path":"p=1/a.parquet","partitionValues":{"p":"1","q":null},"size":3,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":1}","tags":null,"baseRowId":null}}"#,
            "\r\n\n",
            r#"{"commitInfo":{"operation":"WRITE","operationParameters":{"mode":"Append","partitionBy":"[]"},"readVersion":4,"isBlindAppend":true}}"#,
            "\n"
        );
        let actions = proposal(text).unwrap();
        assert_eq!(actions.adds[0].partition_values.get("q"), Some(&None));
        assert_eq!(actions.adds[0].others, OtherMembers::default(), "a null is nothing");
        assert!(!actions.commit_info_first);
        let info = actions.commit_info.unwrap();
        assert_eq!(info.number("readVersion"), Some(4));
        assert_eq!(info.flag("isBlindAppend"), Some(true));
        assert_eq!(info.parameter("mode").as_deref(), Some("Append"));
    }

    #[test]
    fn what_nobody_here_knows_stays_with_the_file() {
        let text = r#"{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"tags":{"k":"v","n":null},"clusteringProvider":"liquid","new":[1,{"x":1.50}],"stats_parsed":{}}}"#;
        let actions = parse_commit(text.as_bytes(), Strictness::Log).unwrap();
        let expected =
            serde_json::json!({"tags": {"k": "v", "n": null}, "clusteringProvider": "liquid", "new": [1, {"x": 1.50}]});
        assert_eq!(Value::Object(actions.adds[0].others.members()), expected);
    }

    #[test]
    fn hostile_lines_have_names() {
        let cases = [
            ("", "Empty"),
            ("[]", "NotOneAction"),
            ("{}", "NotOneAction"),
            (r#"{"txn":{"appId":"a","version":1},"add":null}"#, "NotOneAction"),
            (r#"{"add":{"path":"a","path":"b","size":1}}"#, "Json"),
            (r#"{"add":{"size":1}}"#, "Shape"),
            (r#"{"add":{"path":"a","partitionValues":{},"size":1,"dataChange":true}}"#, "Shape"),
            (r#"{"add":{"path":"a","size":1.5}}"#, "Shape"),
            (r#"{"add":null}"#, "Shape"),
            (r#"{"commitInfo":[]}"#, "Shape"),
            (r#"{"sidecar":{"path":"x"}}"#, "UnknownAction"),
            ("{\"commitInfo\":{}}\n{\"commitInfo\":{}}", "Repeated"),
        ];
        for (text, expected) in cases {
            let error = proposal(text).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{text}: {error:?}");
        }
        assert_eq!(parse_commit(&[0xff], Strictness::Proposal), Err(ActionError::NotUtf8));
    }

    #[test]
    fn logs_are_read_as_they_are() {
        let actions = parse_commit(b"{\"newThing\":{},\"add\":null}\n", Strictness::Log).unwrap();
        assert_eq!(actions.unknown, ["newThing"]);
    }

    #[test]
    fn offset_zero_is_another_vector() {
        let dv = DeletionVector {
            storage_type: "u".into(),
            path_or_inline_dv: "x".into(),
            offset: None,
            size_in_bytes: 1,
            cardinality: 1,
        };
        assert_ne!(dv.id(), DeletionVector { offset: Some(0), ..dv.clone() }.id());
    }
}
