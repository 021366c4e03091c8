//! Shapes of the API: members in kebab-case, types of columns as in Delta's schemas but for the members of nested ones.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::delta::Protocol;

/// Members of nested types: here, and in Delta's schemas.
const NESTED: [(&str, &str); 5] = [
    ("element-type", "elementType"),
    ("contains-null", "containsNull"),
    ("key-type", "keyType"),
    ("value-type", "valueType"),
    ("value-contains-null", "valueContainsNull"),
];

#[derive(Debug, Deserialize)]
pub(super) struct NewStaging {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct NewTable {
    pub(super) name: String,
    pub(super) location: String,
    pub(super) table_type: String,
    pub(super) comment: Option<String>,
    pub(super) columns: Value,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    pub(super) protocol: WireProtocol,
    pub(super) properties: Map<String, Value>,
    pub(super) uniform: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct WireProtocol {
    min_reader_version: i64,
    min_writer_version: i64,
    reader_features: Option<Vec<String>>,
    writer_features: Option<Vec<String>>,
}

impl From<WireProtocol> for Protocol {
    fn from(wire: WireProtocol) -> Protocol {
        Protocol {
            min_reader_version: wire.min_reader_version,
            min_writer_version: wire.min_writer_version,
            reader_features: wire.reader_features,
            writer_features: wire.writer_features,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateTable {
    pub(super) requirements: Vec<Requirement>,
    pub(super) updates: Vec<Update>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Requirement {
    AssertTableUuid { uuid: String },
    AssertEtag { etag: String },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub(super) enum Update {
    AddCommit {
        commit: WireCommit,
        uniform: Option<Value>,
    },
    SetLatestBackfilledVersion {
        latest_published_version: i64,
    },
    SetProperties {
        updates: Map<String, Value>,
    },
    RemoveProperties {
        removals: Vec<String>,
    },
    SetColumns {
        columns: Value,
    },
    SetTableComment {
        comment: String,
    },
    SetProtocol {
        protocol: WireProtocol,
    },
    SetPartitionColumns {
        partition_columns: Vec<String>,
    },
    SetDomainMetadata {
        updates: Map<String, Value>,
    },
    RemoveDomainMetadata {
        domains: Vec<String>,
    },
    #[serde(rename = "update-metadata-snapshot-version")]
    SnapshotVersion {
        last_commit_version: i64,
    },
}

impl Update {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Update::AddCommit { .. } => "add-commit",
            Update::SetLatestBackfilledVersion { .. } => "set-latest-backfilled-version",
            Update::SetProperties { .. } => "set-properties",
            Update::RemoveProperties { .. } => "remove-properties",
            Update::SetColumns { .. } => "set-columns",
            Update::SetTableComment { .. } => "set-table-comment",
            Update::SetProtocol { .. } => "set-protocol",
            Update::SetPartitionColumns { .. } => "set-partition-columns",
            Update::SetDomainMetadata { .. } => "set-domain-metadata",
            Update::RemoveDomainMetadata { .. } => "remove-domain-metadata",
            Update::SnapshotVersion { .. } => "update-metadata-snapshot-version",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct WireCommit {
    pub(super) version: i64,
    pub(super) timestamp: i64,
    pub(super) file_name: String,
    pub(super) file_size: i64,
    pub(super) file_modification_timestamp: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Metrics {
    pub(super) table_id: String,
}

/// A schema of Delta's log as this API says it.
pub(super) fn to_wire(schema: &Value) -> Value {
    rename(schema, &|name| NESTED.iter().find(|(_, delta)| *delta == name).map(|(wire, _)| *wire))
}

/// A schema of this API as Delta's log has it.
pub(super) fn to_delta(columns: &Value) -> Value {
    rename(columns, &|name| NESTED.iter().find(|(wire, _)| *wire == name).map(|(_, delta)| *delta))
}

/// Renames members of types; what a field's `metadata` holds stays.
fn rename(kind: &Value, renamed: &dyn Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(members) = kind else { return kind.clone() };
    let members = members.iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            ("metadata", value) => value.clone(),
            ("fields", Value::Array(fields)) => fields.iter().map(|field| rename(field, renamed)).collect(),
            (_, value) => rename(value, renamed),
        };
        (renamed(name).map_or_else(|| name.clone(), str::to_owned), value)
    });
    Value::Object(members.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_types_change_their_spelling_and_nothing_else_does() {
        let delta = json!({"type": "struct", "fields": [
            {"name": "elementType", "nullable": true, "metadata": {"containsNull": 1, "comment": "x"}, "type":
                {"type": "array", "containsNull": false, "elementType": {"type": "map", "keyType": "string",
                    "valueType": "decimal(10,2)", "valueContainsNull": true}}}]});
        let wire = json!({"type": "struct", "fields": [
            {"name": "elementType", "nullable": true, "metadata": {"containsNull": 1, "comment": "x"}, "type":
                {"type": "array", "contains-null": false, "element-type": {"type": "map", "key-type": "string",
                    "value-type": "decimal(10,2)", "value-contains-null": true}}}]});
        assert_eq!(to_wire(&delta), wire);
        assert_eq!(to_delta(&wire), delta);
        assert_eq!(to_delta(&delta), delta, "either spelling is read");
    }
}
