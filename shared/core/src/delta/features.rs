//! Which tables we may read and write: reader and writer versions, table features, and what is switched on.

use thiserror::Error;

use super::actions::{Metadata, Protocol};
use super::schema::{MappingMode, Primitive, Schema};

/// Features that need nothing of a judge, or whose rules are held where their use shows: in properties, fields, actions
/// and data files.
const KNOWN_FEATURES: [&str; 23] = [
    "allowColumnDefaults",
    "appendOnly",
    "catalogManaged",
    "changeDataFeed",
    "checkConstraints",
    "clustering",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
    "vacuumProtocolCheck",
    "checkpointProtection",
    "catalogOwned-preview",
];

/// A table uses something that this version cannot verify; no commit of it is judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnsupportedTable {
    #[error("the table needs reader version {reader} and writer version {writer}")]
    Versions { reader: i64, writer: i64 },
    #[error("the table feature `{0}` is not supported")]
    Feature(String),
    /// Other readers and writers would refuse the table, or not keep the rule.
    #[error("{place} needs the table feature `{feature}`, which the protocol does not have")]
    FeatureMissing { feature: &'static str, place: String },
    #[error("`{feature}` is in use ({place}) and cannot be verified")]
    InUse { feature: &'static str, place: String },
}

/// Whether the protocol lists a feature.
pub fn lists(protocol: &Protocol, feature: &str) -> bool {
    [&protocol.reader_features, &protocol.writer_features]
        .into_iter()
        .flatten()
        .any(|features| features.iter().any(|found| found == feature))
}

/// Commits of such a table are ratified by its catalog alone.
pub fn is_catalog_managed(protocol: &Protocol) -> bool {
    lists(protocol, "catalogManaged") || lists(protocol, "catalogOwned-preview")
}

pub fn has_deletion_vectors_on(protocol: &Protocol, metadata: &Metadata) -> bool {
    lists(protocol, "deletionVectors") && metadata.is_on("delta.enableDeletionVectors")
}

pub fn has_in_commit_timestamps_on(metadata: &Metadata) -> bool {
    metadata.is_on("delta.enableInCommitTimestamps")
}

pub fn has_type_widening_on(protocol: &Protocol, metadata: &Metadata) -> bool {
    has(protocol, "typeWidening") && metadata.is_on("delta.enableTypeWidening")
}

/// Whether files have row ids; writers assign them even where `delta.enableRowTracking` is off.
pub fn is_row_tracking_supported(protocol: &Protocol) -> bool {
    lists(protocol, "rowTracking")
}

/// The columns of data files in which rows that were rewritten keep their ids and commit versions.
pub fn row_tracking_columns(metadata: &Metadata) -> Vec<&str> {
    ["delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"]
        .into_iter()
        .filter_map(|name| metadata.property(name))
        .collect()
}

pub fn is_append_only(metadata: &Metadata) -> bool {
    metadata.is_on("delta.appendOnly")
}

/// Refuses a protocol that we do not fully understand.
pub fn check_protocol(protocol: &Protocol) -> Result<(), UnsupportedTable> {
    let (reader, writer) = (protocol.min_reader_version, protocol.min_writer_version);
    if !(1..=3).contains(&reader) || !(1..=7).contains(&writer) {
        return Err(UnsupportedTable::Versions { reader, writer });
    }
    let listed = [&protocol.reader_features, &protocol.writer_features].into_iter().flatten().flatten();
    match listed.into_iter().find(|feature| !KNOWN_FEATURES.contains(&feature.as_str())) {
        Some(feature) => Err(UnsupportedTable::Feature(feature.clone())),
        None => Ok(()),
    }
}

/// Properties that only work with a feature; the feature is needed when the property has the value.
const PROPERTIES_OF_FEATURES: [(&str, &str, &str); 7] = [
    ("delta.appendOnly", "true", "appendOnly"),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    ("delta.enableChangeDataFeed", "true", "changeDataFeed"),
    ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ("delta.enableInCommitTimestamps", "true", "inCommitTimestamp"),
    ("delta.enableRowTracking", "true", "rowTracking"),
    ("delta.enableTypeWidening", "true", "typeWidening"),
];

/// Whether tables of this protocol have a feature, listed or by an older writer version that implies it.
pub fn has(protocol: &Protocol, feature: &str) -> bool {
    if matches!(feature, "timestampNtz" | "deletionVectors" | "v2Checkpoint" | "typeWidening" | "variantType") {
        // These bind readers, too.
        let is_it = |found: &String| found == feature || found.strip_suffix("-preview") == Some(feature);
        return protocol.reader_features.iter().flatten().any(is_it);
    }
    if feature == "columnMapping" {
        let is_listed = protocol.reader_features.iter().flatten().any(|found| found == feature);
        let is_implied = protocol.min_reader_version == 2 && protocol.min_writer_version >= 5;
        return is_listed || is_implied;
    }
    let implied_from = match feature {
        "appendOnly" | "invariants" => 2,
        "checkConstraints" => 3,
        "changeDataFeed" | "generatedColumns" => 4,
        "identityColumns" => 6,
        _ => i64::MAX,
    };
    lists(protocol, feature) || (implied_from..7).contains(&protocol.min_writer_version)
}

/// Refuses new metadata or a new protocol where one needs what the other does not have.
pub fn check_features_of(protocol: &Protocol, metadata: &Metadata, schema: &Schema) -> Result<(), UnsupportedTable> {
    let missing = |feature, place: String| Err(UnsupportedTable::FeatureMissing { feature, place });
    if is_row_tracking_supported(protocol) && !lists(protocol, "domainMetadata") {
        return missing("domainMetadata", "the table feature rowTracking".to_owned());
    }
    for (name, value, feature) in PROPERTIES_OF_FEATURES {
        let is_set = metadata.property(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        if is_set && !has(protocol, feature) {
            return missing(feature, format!("the property {name} = {value}"));
        }
    }
    if let Some(name) = metadata.configuration.keys().find(|name| name.starts_with("delta.constraints."))
        && !has(protocol, "checkConstraints")
    {
        return missing("checkConstraints", format!("the property {name}"));
    }
    let is_mapped =
        metadata.property("delta.columnMapping.mode").is_some_and(|mode| !mode.eq_ignore_ascii_case("none"));
    if is_mapped && !has(protocol, "columnMapping") {
        return missing("columnMapping", "the property delta.columnMapping.mode".to_owned());
    }
    for (path, field) in schema.walk() {
        for (member, feature) in MEMBERS_OF_FEATURES {
            if field.metadata.contains_key(member) && !has(protocol, feature) {
                return missing(feature, format!("the column {path}"));
            }
        }
    }
    let typed = [("timestampNtz", schema.leaf_of(&Primitive::TimestampNtz)), ("variantType", schema.variant())];
    for (feature, path) in typed {
        if let Some(path) = path.filter(|_| !has(protocol, feature)) {
            return missing(feature, format!("the column {path}"));
        }
    }
    Ok(())
}

/// Members of a field's metadata that only work with a feature.
const MEMBERS_OF_FEATURES: [(&str, &str); 4] = [
    ("delta.generationExpression", "generatedColumns"),
    ("delta.identity.start", "identityColumns"),
    ("delta.invariants", "invariants"),
    ("delta.typeChanges", "typeWidening"),
];

/// Refuses a table that uses what cannot be verified: a mode of column mapping that is not known.
pub fn check_in_use(metadata: &Metadata) -> Result<(), UnsupportedTable> {
    if MappingMode::of(metadata).is_none() {
        let mode = metadata.property("delta.columnMapping.mode").unwrap_or_default();
        let place = format!("delta.columnMapping.mode = {mode}");
        return Err(UnsupportedTable::InUse { feature: "columnMapping", place });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(reader: i64, writer: i64, features: &[&str]) -> Protocol {
        let names: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        Protocol {
            min_reader_version: reader,
            min_writer_version: writer,
            reader_features: None,
            writer_features: Some(names),
        }
    }

    #[test]
    fn unknown_protocols_are_refused() {
        assert_eq!(check_protocol(&protocol(1, 2, &[])), Ok(()));
        assert_eq!(check_protocol(&protocol(3, 7, &["deletionVectors", "appendOnly"])), Ok(()));
        for (candidate, expected) in [
            (protocol(4, 7, &[]), "Versions"),
            (protocol(1, 8, &[]), "Versions"),
            (protocol(0, 2, &[]), "Versions"),
            (protocol(3, 7, &["variantShredding-preview"]), "Feature"),
            (protocol(3, 7, &["somethingNew"]), "Feature"),
        ] {
            assert!(format!("{:?}", check_protocol(&candidate).unwrap_err()).starts_with(expected));
        }
    }

    #[test]
    fn what_cannot_be_verified_is_refused_where_it_is_in_use() {
        let with = |value: &str| Metadata {
            configuration: [("delta.columnMapping.mode".to_owned(), Some(value.to_owned()))].into(),
            ..Metadata::default()
        };
        for (mode, fits) in [("none", true), ("name", true), ("id", true), ("sideways", false)] {
            assert_eq!(check_in_use(&with(mode)).is_ok(), fits, "{mode}");
        }
    }

    #[test]
    fn properties_and_types_need_their_features() {
        let schema = |kind: &str| {
            let inner = format!(r#"{{"type":"array","elementType":"{kind}","containsNull":true}}"#);
            Schema::parse(&format!(r#"{{"type":"struct","fields":[{{"name":"a","type":{inner}}}]}}"#)).unwrap()
        };
        let with = |name: &str, value: &str| Metadata {
            configuration: [(name.to_owned(), Some(value.to_owned()))].into(),
            ..Metadata::default()
        };
        let both = |features: &[&str]| {
            let listed = protocol(3, 7, features);
            Protocol { reader_features: listed.writer_features.clone(), ..listed }
        };
        for (protocol, metadata, kind, fits) in [
            (protocol(1, 2, &[]), Metadata::default(), "long", true),
            (protocol(1, 2, &[]), Metadata::default(), "timestamp_ntz", false),
            (protocol(1, 7, &["timestampNtz"]), Metadata::default(), "timestamp_ntz", false),
            (both(&["timestampNtz"]), Metadata::default(), "timestamp_ntz", true),
            (protocol(1, 2, &[]), with("delta.appendOnly", "true"), "long", true),
            (protocol(1, 7, &[]), with("delta.appendOnly", "true"), "long", false),
            (protocol(1, 7, &[]), with("delta.appendOnly", "false"), "long", true),
            (protocol(1, 2, &[]), with("delta.enableChangeDataFeed", "true"), "long", false),
            (protocol(1, 4, &[]), with("delta.enableChangeDataFeed", "true"), "long", true),
            (protocol(1, 2, &[]), with("delta.enableDeletionVectors", "true"), "long", false),
            (both(&["deletionVectors"]), with("delta.enableDeletionVectors", "true"), "long", true),
            (protocol(1, 7, &["inCommitTimestamp"]), with("delta.enableInCommitTimestamps", "true"), "long", true),
            (protocol(1, 2, &[]), with("delta.constraints.c", "a > 0"), "long", false),
            (protocol(1, 3, &[]), with("delta.constraints.c", "a > 0"), "long", true),
            (protocol(2, 5, &[]), with("delta.columnMapping.mode", "name"), "long", true),
            (protocol(1, 5, &[]), with("delta.columnMapping.mode", "name"), "long", false),
            (both(&["columnMapping"]), with("delta.columnMapping.mode", "id"), "long", true),
            (protocol(1, 2, &[]), Metadata::default(), "variant", false),
            (both(&["variantType-preview"]), Metadata::default(), "variant", true),
            (protocol(1, 7, &[]), with("delta.enableRowTracking", "true"), "long", false),
            (protocol(1, 7, &["rowTracking"]), with("delta.enableRowTracking", "true"), "long", false),
            (protocol(1, 7, &["rowTracking", "domainMetadata"]), with("delta.enableRowTracking", "true"), "long", true),
        ] {
            let found = check_features_of(&protocol, &metadata, &schema(kind));
            assert_eq!(found.is_ok(), fits, "{protocol:?} {metadata:?} {kind}: {found:?}");
        }
    }
}
