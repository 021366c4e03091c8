//! The members that Delta's actions have by the protocol, and their types.
//!
//! Readers decode a whole log with these types: one member that is missing or of another type makes the table unreadable
//! for them, whatever it means. So a proposal is held to all of them, also to those that nothing here looks at.

use serde_json::{Map, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Flag,
    Object,
    Texts,
    /// Text to text or null.
    TextMap,
    /// `{"provider": "parquet", …}`
    Format,
    /// A level that readers know.
    Isolation,
}

impl Kind {
    fn expected(self) -> &'static str {
        match self {
            Kind::Text => "a string",
            Kind::Integer => "an integer of 64 bits",
            Kind::Flag => "true or false",
            Kind::Object => "an object",
            Kind::Texts => "a list of strings",
            Kind::TextMap => "an object of strings",
            Kind::Format => "an object whose provider is `parquet`, its options strings",
            Kind::Isolation => "`Serializable`, `WriteSerializable` or `SnapshotIsolation`",
        }
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.is_string(),
            Kind::Integer => value.is_i64(),
            Kind::Flag => value.is_boolean(),
            Kind::Object => value.is_object(),
            Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            Kind::TextMap => {
                value.as_object().is_some_and(|map| map.values().all(|inner| inner.is_string() || inner.is_null()))
            }
            Kind::Format => {
                value.get("provider").and_then(Value::as_str) == Some("parquet")
                    && value.get("options").is_none_or(|options| options.is_null() || Kind::TextMap.fits(options))
            }
            Kind::Isolation => {
                matches!(value.as_str(), Some("Serializable" | "WriteSerializable" | "SnapshotIsolation"))
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    /// May be absent or null.
    Optional,
}

type Member = (&'static str, Kind, Presence);

use Kind::{Flag, Format, Integer, Isolation, Object, Text, TextMap, Texts};
use Presence::{Optional, Required};

const ADD: &[Member] = &[
    ("path", Text, Required),
    ("partitionValues", TextMap, Required),
    ("size", Integer, Required),
    ("modificationTime", Integer, Required),
    ("dataChange", Flag, Required),
    ("stats", Text, Optional),
    ("tags", TextMap, Optional),
    ("deletionVector", Object, Optional),
    ("baseRowId", Integer, Optional),
    ("defaultRowCommitVersion", Integer, Optional),
    ("clusteringProvider", Text, Optional),
];

const REMOVE: &[Member] = &[
    ("path", Text, Required),
    ("dataChange", Flag, Required),
    ("deletionTimestamp", Integer, Optional),
    ("extendedFileMetadata", Flag, Optional),
    ("partitionValues", TextMap, Optional),
    ("size", Integer, Optional),
    ("stats", Text, Optional),
    ("tags", TextMap, Optional),
    ("deletionVector", Object, Optional),
    ("baseRowId", Integer, Optional),
    ("defaultRowCommitVersion", Integer, Optional),
];

const CDC: &[Member] = &[
    ("path", Text, Required),
    ("partitionValues", TextMap, Required),
    ("size", Integer, Required),
    ("dataChange", Flag, Required),
    ("tags", TextMap, Optional),
];

const TXN: &[Member] = &[("appId", Text, Required), ("version", Integer, Required), ("lastUpdated", Integer, Optional)];

const DOMAIN: &[Member] = &[("domain", Text, Required), ("configuration", Text, Required), ("removed", Flag, Required)];

const PROTOCOL: &[Member] = &[
    ("minReaderVersion", Integer, Required),
    ("minWriterVersion", Integer, Required),
    ("readerFeatures", Texts, Optional),
    ("writerFeatures", Texts, Optional),
];

const METADATA: &[Member] = &[
    ("id", Text, Required),
    ("name", Text, Optional),
    ("description", Text, Optional),
    ("format", Format, Required),
    ("schemaString", Text, Required),
    ("partitionColumns", Texts, Required),
    ("configuration", TextMap, Required),
    ("createdTime", Integer, Optional),
];

/// Free-form by the protocol, but readers have types for what writers commonly put there.
const COMMIT_INFO: &[Member] = &[
    ("timestamp", Integer, Optional),
    ("inCommitTimestamp", Integer, Optional),
    ("userId", Text, Optional),
    ("userName", Text, Optional),
    ("operation", Text, Optional),
    ("operationParameters", Object, Optional),
    ("readVersion", Integer, Optional),
    ("isolationLevel", Isolation, Optional),
    ("isBlindAppend", Flag, Optional),
    ("engineInfo", Text, Optional),
    ("userMetadata", Text, Optional),
    ("txnId", Text, Optional),
];

/// Checks one action; an action of another name has no members that are known.
pub(super) fn check(action: &str, value: &Value) -> Result<(), String> {
    let members = match action {
        "add" => ADD,
        "remove" => REMOVE,
        "cdc" => CDC,
        "txn" => TXN,
        "domainMetadata" => DOMAIN,
        "protocol" => PROTOCOL,
        "metaData" => METADATA,
        "commitInfo" => COMMIT_INFO,
        _ => return Ok(()),
    };
    let object = value.as_object().ok_or("not an object")?;
    for (name, kind, presence) in members {
        match object.get(*name) {
            None | Some(Value::Null) if *presence == Optional => {}
            None | Some(Value::Null) => return Err(format!("`{name}` is missing")),
            Some(found) if !kind.fits(found) => return Err(format!("`{name}` must be {}", kind.expected())),
            Some(_) => {}
        }
    }
    if action == "protocol" { check_features(object) } else { Ok(()) }
}

/// Lists of features belong to exactly reader version 3 and writer version 7; readers refuse anything else.
fn check_features(protocol: &Map<String, Value>) -> Result<(), String> {
    let version = |name: &str| protocol.get(name).and_then(Value::as_i64);
    let has = |name: &str| protocol.get(name).is_some_and(|list| !list.is_null());
    let (reader, writer) = (version("minReaderVersion"), version("minWriterVersion"));
    if has("readerFeatures") != (reader == Some(3)) {
        return Err("`readerFeatures` must be given with minReaderVersion 3, and only then".to_owned());
    }
    if has("writerFeatures") != (writer == Some(7)) {
        return Err("`writerFeatures` must be given with minWriterVersion 7, and only then".to_owned());
    }
    if reader == Some(3) && writer != Some(7) {
        return Err("minReaderVersion 3 needs minWriterVersion 7".to_owned());
    }
    let names = |name: &str| protocol.get(name).and_then(Value::as_array).into_iter().flatten();
    match names("readerFeatures").find(|feature| !names("writerFeatures").any(|other| other == *feature)) {
        Some(feature) => Err(format!("the reader feature {feature} is not among the writer features")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An action of each kind that readers take.
    fn good(action: &str) -> Value {
        match action {
            "add" => {
                json!({"path": "a", "partitionValues": {"p": null}, "size": 1, "modificationTime": 1, "dataChange": true})
            }
            "remove" => json!({"path": "a", "dataChange": true}),
            "cdc" => json!({"path": "a", "partitionValues": {}, "size": 1, "dataChange": false}),
            "txn" => json!({"appId": "a", "version": 1}),
            "domainMetadata" => json!({"domain": "d", "configuration": "", "removed": false}),
            "protocol" => json!({"minReaderVersion": 1, "minWriterVersion": 2}),
            "metaData" => json!({"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": "",
                "partitionColumns": [], "configuration": {}}),
            _ => json!({}),
        }
    }

    #[test]
    fn every_member_is_held_to_its_type_and_null_is_no_required_value() {
        for (action, members) in [
            ("add", ADD),
            ("remove", REMOVE),
            ("cdc", CDC),
            ("txn", TXN),
            ("domainMetadata", DOMAIN),
            ("protocol", PROTOCOL),
            ("metaData", METADATA),
            ("commitInfo", COMMIT_INFO),
        ] {
            assert_eq!(check(action, &good(action)), Ok(()), "{action}");
            for (name, kind, presence) in members {
                let with = |value: Value| {
                    let mut changed = good(action);
                    changed[*name] = value;
                    check(action, &changed)
                };
                assert_eq!(with(Value::Null).is_ok(), *presence == Optional, "{action}.{name}: null");
                let mut without = good(action);
                without.as_object_mut().unwrap().remove(*name);
                assert_eq!(check(action, &without).is_ok(), *presence == Optional, "{action}.{name}: absent");
                for wrong in [json!(1.5), json!([1]), json!({"a": {"b": 1}})] {
                    if !kind.fits(&wrong) {
                        assert!(with(wrong.clone()).is_err(), "{action}.{name}: {wrong}");
                    }
                }
            }
        }
    }

    #[test]
    fn odd_values_are_named() {
        for (action, member, value) in [
            ("add", "tags", json!({"a": 1})),
            ("add", "size", json!("5")),
            ("add", "size", json!(9_223_372_036_854_775_808_u64)),
            ("metaData", "format", json!({"provider": "orc", "options": {}})),
            ("metaData", "format", json!({"provider": "parquet", "options": {"a": 1}})),
            ("metaData", "createdTime", json!("now")),
            ("commitInfo", "isolationLevel", json!("Bogus")),
            ("commitInfo", "readVersion", json!("4")),
            ("commitInfo", "isBlindAppend", json!("true")),
        ] {
            let mut changed = good(action);
            changed[member] = value;
            let text = check(action, &changed).unwrap_err();
            assert!(text.contains(&format!("`{member}` must be")), "{text}");
        }
        assert_eq!(check("somethingElse", &json!(1)), Ok(()));
    }

    #[test]
    fn features_are_listed_exactly_where_the_versions_say_so() {
        for (protocol, fits) in [
            (json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}), true),
            (json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}), true),
            (json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [], "readerFeatures": null}), true),
            (json!({"minReaderVersion": 3, "minWriterVersion": 7}), false),
            (json!({"minReaderVersion": 1, "minWriterVersion": 7}), false),
            (json!({"minReaderVersion": 1, "minWriterVersion": 2, "writerFeatures": []}), false),
            (json!({"minReaderVersion": 3, "minWriterVersion": 2, "readerFeatures": []}), false),
            (
                json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"], "writerFeatures": []}),
                false,
            ),
        ] {
            assert_eq!(check("protocol", &protocol).is_ok(), fits, "{protocol}");
        }
    }
}
