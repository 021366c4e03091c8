//! A protocol that takes a feature away: admitted only where the head shows that nothing of the feature is left.
//!
//! What only writers need to know leaves its traces in properties, columns and domains, which the head holds. What readers
//! need to know, too, may be in versions that are still in the log, and what files hold is not known without reading them
//! all: such features are not dropped here.

use std::collections::BTreeMap;

use super::refuse_downgrade;
use crate::commit::conflict::features_of;
use crate::commit::verdict::Refusal;
use crate::delta::schema::Schema;
use crate::delta::{DomainMetadata, Metadata, Protocol, features};

/// Since when a table without earlier timestamps has them.
const TIMESTAMPS_SINCE: &str = "delta.inCommitTimestampEnablement";
const CHECKPOINTS_PROTECTED: &str = "delta.requireCheckpointProtectionBeforeVersion";

/// The table as the commit leaves it.
#[derive(Clone, Copy, Debug)]
pub struct TableAfter<'a> {
    pub metadata: &'a Metadata,
    pub schema: &'a Schema,
    pub domains: &'a BTreeMap<String, DomainMetadata>,
}

/// Checks a protocol action on an existing table. A feature may be listed or implied by the versions; none may go while
/// something of it may be left.
pub fn check_protocol_change(old: &Protocol, new: &Protocol, after: TableAfter<'_>) -> Result<(), Refusal> {
    if !features::is_catalog_managed(old) && features::is_catalog_managed(new) {
        let text = "the commit makes the table catalog-managed".to_owned();
        return Err(refuse_downgrade(text, "such a change is the catalog's; make it there"));
    }
    check_readers(old, new)?;
    let kept = features_of(new);
    match features_of(old).into_iter().filter(|feature| !kept.contains(feature)).find_map(|lost| left_of(lost, after)) {
        None => Ok(()),
        Some((feature, left)) => {
            let text = format!("the commit drops the table feature `{feature}`, and {}", left.text());
            Err(refuse_downgrade(text, left.advice()))
        }
    }
}

/// What readers of the table must know may be in any version that is still in the log.
fn check_readers(old: &Protocol, new: &Protocol) -> Result<(), Refusal> {
    let mut before = old.reader_features.iter().flatten();
    let lost = before.find(|feature| !new.reader_features.iter().flatten().any(|kept| kept == *feature));
    let has_mapping = |protocol: &Protocol| features::has(protocol, "columnMapping");
    let lost = lost.map(String::as_str).or((has_mapping(old) && !has_mapping(new)).then_some("columnMapping"));
    if let Some(feature) = lost {
        let text = format!(
            "the commit drops the table feature `{feature}`, which readers need for the versions before it that are still in the log"
        );
        return Err(refuse_downgrade(text, Left::InFiles.advice()));
    }
    let has_features = old.reader_features.as_ref().is_some_and(|features| !features.is_empty());
    let is_lowered = new.min_reader_version < old.min_reader_version;
    if is_lowered && (has_features || old.min_reader_version < 3) {
        let text = "the commit lowers the table's reader version".to_owned();
        return Err(refuse_downgrade(text, "leave the reader version as it is"));
    }
    Ok(())
}

/// What may be left of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Left {
    /// In this place.
    Here(String),
    /// In files, which the head does not know.
    InFiles,
    /// Of a feature that nobody here can tell the traces of.
    Unknown,
}

impl Left {
    fn text(&self) -> String {
        match self {
            Left::Here(place) => format!("it is still in use: {place}"),
            Left::InFiles => "files of the table may still hold what belongs to it".to_owned(),
            Left::Unknown => "what it leaves behind is not known here".to_owned(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Left::Here(_) => "take that away first, then drop the feature",
            Left::InFiles | Left::Unknown => {
                "such a change needs checks over the table's files and history; make it without the validator"
            }
        }
    }
}

/// The feature, if something of it may be left.
fn left_of<'f>(feature: &'f str, after: TableAfter<'_>) -> Option<(&'f str, Left)> {
    let metadata = after.metadata;
    let switched_on = |name: &str| metadata.is_on(name).then(|| Left::Here(format!("{name} is true")));
    let property = |start: &str| {
        let name = metadata.configuration.keys().find(|name| name.starts_with(start));
        name.map(|name| Left::Here(format!("the property {name}")))
    };
    let column = |start: &str| {
        let marked = |(path, field): (String, &crate::delta::schema::Field)| {
            field.metadata.keys().any(|name| name.starts_with(start)).then_some(path)
        };
        after.schema.walk().into_iter().find_map(marked).map(|path| Left::Here(format!("the column `{path}`")))
    };
    let left = match feature {
        "appendOnly" => switched_on("delta.appendOnly"),
        "invariants" => column("delta.invariants"),
        "checkConstraints" => property("delta.constraints."),
        "changeDataFeed" => switched_on("delta.enableChangeDataFeed"),
        "generatedColumns" => column("delta.generationExpression"),
        "allowColumnDefaults" => column("CURRENT_DEFAULT"),
        "identityColumns" => column("delta.identity."),
        "domainMetadata" => after.domains.keys().next().map(|name| Left::Here(format!("the domain `{name}`"))),
        "inCommitTimestamp" => switched_on("delta.enableInCommitTimestamps").or_else(|| property(TIMESTAMPS_SINCE)),
        "checkpointProtection" => property(CHECKPOINTS_PROTECTED),
        // Implied by a writer version, and never bound a reader: `check_readers` has seen to that.
        "columnMapping" => property("delta.columnMapping.").or_else(|| column("delta.columnMapping.")),
        "rowTracking" | "clustering" => Some(Left::InFiles),
        _ => Some(Left::Unknown),
    };
    left.map(|left| (feature, left))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn protocol(versions: (i64, i64), readers: &[&str], writers: &[&str]) -> Protocol {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        Protocol {
            min_reader_version: versions.0,
            min_writer_version: versions.1,
            reader_features: (versions.0 == 3).then(|| names(readers)),
            writer_features: (versions.1 == 7).then(|| names(&[writers, readers].concat())),
        }
    }

    fn check(old: &Protocol, new: &Protocol, properties: Value, column: Value, domain: Option<&str>) -> String {
        let text =
            json!({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": true, "metadata": column}]});
        let schema = Schema::parse(&text.to_string()).unwrap();
        let configuration = serde_json::from_value(properties).unwrap();
        let metadata = Metadata { configuration, ..Metadata::default() };
        let removed = false;
        let named = |name: &str| DomainMetadata { domain: name.to_owned(), configuration: "{}".to_owned(), removed };
        let domains = domain.into_iter().map(|name| (name.to_owned(), named(name))).collect();
        let after = TableAfter { metadata: &metadata, schema: &schema, domains: &domains };
        match check_protocol_change(old, new, after) {
            Ok(()) => "fine".to_owned(),
            Err(refusal) => {
                assert_eq!(refusal.reason, "PROTOCOL_DOWNGRADE");
                refusal.message.clone()
            }
        }
    }

    const WRITERS: [&str; 13] = [
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "somethingNew",
    ];

    #[test]
    fn a_feature_goes_where_nothing_of_it_is_left() {
        let none = || json!({});
        let use_of = |feature: &str| match feature {
            "allowColumnDefaults" => (none(), json!({"CURRENT_DEFAULT": "5"}), None),
            "appendOnly" => (json!({"delta.appendOnly": "true"}), none(), None),
            "changeDataFeed" => (json!({"delta.enableChangeDataFeed": "true"}), none(), None),
            "checkConstraints" => (json!({"delta.constraints.c": "a > 0"}), none(), None),
            "checkpointProtection" => (json!({"delta.requireCheckpointProtectionBeforeVersion": "7"}), none(), None),
            "domainMetadata" => (none(), none(), Some("mine")),
            "generatedColumns" => (none(), json!({"delta.generationExpression": "b"}), None),
            "identityColumns" => (none(), json!({"delta.identity.start": 1}), None),
            "inCommitTimestamp" => (json!({"delta.inCommitTimestampEnablementVersion": "3"}), none(), None),
            "invariants" => (none(), json!({"delta.invariants": "x"}), None),
            _ => (none(), none(), None),
        };
        let old = protocol((1, 7), &[], &WRITERS);
        for feature in WRITERS {
            let rest: Vec<&str> = WRITERS.into_iter().filter(|name| *name != feature).collect();
            let new = protocol((1, 7), &[], &rest);
            let unused = check(&old, &new, none(), none(), None);
            match feature {
                "rowTracking" | "clustering" => assert!(unused.contains("files of the table may"), "{unused}"),
                "somethingNew" => assert!(unused.contains("not known here"), "{unused}"),
                _ => {
                    assert_eq!(unused, "fine", "{feature}");
                    let (properties, column, domain) = use_of(feature);
                    let used = check(&old, &new, properties.clone(), column.clone(), domain);
                    assert!(used.contains(&format!("`{feature}`")) && used.contains("still in use"), "{used}");
                    // What is in use may stay while another feature goes.
                    assert_eq!(check(&old, &old, properties, column, domain), "fine");
                }
            }
        }
    }

    #[test]
    fn what_binds_readers_stays() {
        let readers = ["deletionVectors", "columnMapping", "v2Checkpoint", "typeWidening", "somethingNew"];
        for feature in readers {
            let old = protocol((3, 7), &readers, &["appendOnly"]);
            let rest: Vec<&str> = readers.into_iter().filter(|name| *name != feature).collect();
            let found = check(&old, &protocol((3, 7), &rest, &["appendOnly"]), json!({}), json!({}), None);
            assert!(found.contains(&format!("`{feature}`, which readers need")), "{found}");
            // Kept among the features of writers alone.
            let mut halved = protocol((3, 7), &rest, &["appendOnly"]);
            halved.writer_features.as_mut().unwrap().push(feature.to_owned());
            assert_ne!(check(&old, &halved, json!({}), json!({}), None), "fine", "{feature}");
        }
        let managed = protocol((3, 7), &["catalogManaged"], &[]);
        assert!(check(&protocol((1, 2), &[], &[]), &managed, json!({}), json!({}), None).contains("catalog-managed"));
    }

    #[test]
    fn versions_fall_only_with_what_they_imply() {
        let on = || json!({"delta.appendOnly": "true"});
        let constrained = || json!({"delta.constraints.c": "a > 0"});
        for (old, new, properties, expected) in [
            // To features that say the same.
            (((1, 2), vec![]), ((1, 7), vec!["appendOnly", "invariants"]), on(), "fine"),
            (((1, 7), vec!["appendOnly", "invariants"]), ((1, 2), vec![]), on(), "fine"),
            (((3, 7), vec!["appendOnly", "invariants"]), ((1, 2), vec![]), on(), "fine"),
            // What was implied is dropped as well.
            (((1, 2), vec![]), ((1, 7), vec!["invariants"]), on(), "`appendOnly`"),
            (((1, 2), vec![]), ((1, 7), vec!["invariants"]), json!({}), "fine"),
            (((1, 3), vec![]), ((1, 2), vec![]), constrained(), "`checkConstraints`"),
            (((1, 3), vec![]), ((1, 2), vec![]), json!({}), "fine"),
            (((1, 2), vec![]), ((1, 1), vec![]), on(), "`appendOnly`"),
            (((2, 5), vec![]), ((1, 5), vec![]), json!({}), "`columnMapping`, which readers need"),
            (((2, 5), vec![]), ((2, 4), vec![]), json!({}), "`columnMapping`, which readers need"),
            (((2, 2), vec![]), ((1, 2), vec![]), json!({}), "reader version"),
            (((1, 6), vec![]), ((1, 4), vec![]), json!({"delta.columnMapping.mode": "name"}), "`columnMapping`"),
            (((1, 6), vec![]), ((1, 4), vec![]), json!({}), "fine"),
        ] {
            let (from, to) = (protocol(old.0, &[], &old.1), protocol(new.0, &[], &new.1));
            let found = check(&from, &to, properties, json!({}), None);
            assert!(found.contains(expected), "{old:?} {new:?}: {found}");
        }
    }
}
