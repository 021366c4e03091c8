//! What can be told of a commit from its own lines.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::commit::candidate::Candidate;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::path::check_spelling;
use crate::delta::{ActionError, DeletionVector};

/// Keys of objects are no longer.
const KEY_MAX_BYTES: usize = 1_024;
/// Where files of the change feed lie.
const CHANGE_FOLDER: &str = "_change_data/";

/// A staged object that is no commit.
pub fn malformed(error: &ActionError) -> Refusal {
    let reason = match error {
        ActionError::Repeated { .. } => "REPEATED_ACTION",
        _ => "MALFORMED_COMMIT",
    };
    Refusal::invalid(reason, error.to_string())
}

/// Every rule that needs neither the table nor its log.
pub fn check_actions(candidate: &Candidate) -> Result<(), Refusal> {
    check_new_paths(candidate)?;
    check_paths(candidate)?;
    check_sizes(candidate)?;
    check_data_change(candidate)?;
    check_names(candidate)?;
    check_features_once(candidate)?;
    check_void(candidate)
}

/// Files that exist may be spelled oddly in the log, and are named by that spelling; new ones may not.
fn check_new_paths(candidate: &Candidate) -> Result<(), Refusal> {
    let removed: BTreeSet<&str> = candidate.actions.removes.iter().map(|remove| remove.path.as_str()).collect();
    let adds = candidate.actions.adds.iter().map(|add| add.path.as_str()).filter(|path| !removed.contains(path));
    let cdc = candidate.actions.cdc.iter().map(|cdc| cdc.path.as_str());
    for path in adds.chain(cdc) {
        check_spelling(path).map_err(|error| Refusal::invalid("FILE_PATH", error.to_string()).file(path))?;
    }
    if let Some(cdc) = candidate.actions.cdc.iter().find(|cdc| !cdc.path.starts_with(CHANGE_FOLDER)) {
        // Elsewhere, readers of the folders would take the rows for the table's, and nothing would clean them up.
        let text = format!("change-feed files lie below `{CHANGE_FOLDER}`, this one does not");
        return Err(Refusal::invalid("CDC_PATH", text).file(&cdc.path));
    }
    match candidate.add_keys.iter().chain(&candidate.cdc_keys).find(|key| key.key.len() > KEY_MAX_BYTES) {
        None => Ok(()),
        Some(key) => {
            let text = format!("the path names a key of {} bytes; keys have at most {KEY_MAX_BYTES}", key.key.len());
            Err(Refusal::invalid("FILE_PATH", text).file(&key.key))
        }
    }
}

/// One add and one remove of a path at most; both only if they differ in their deletion vectors.
fn check_paths(candidate: &Candidate) -> Result<(), Refusal> {
    let duplicate = |path: &str, what: &str| {
        Refusal::invalid("DUPLICATE_ACTIONS", format!("the commit names one file twice ({what})"))
            .class("DELTA_DUPLICATE_ACTIONS_FOUND")
            .file(path)
    };
    let id = |vector: &Option<DeletionVector>| vector.as_ref().map(DeletionVector::id);
    let mut added = BTreeMap::new();
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        if added.insert(key, id(&add.deletion_vector)).is_some() {
            return Err(duplicate(&add.path, "two adds"));
        }
    }
    let mut removed = BTreeSet::new();
    for (remove, key) in candidate.actions.removes.iter().zip(&candidate.remove_keys) {
        if !removed.insert(key) {
            return Err(duplicate(&remove.path, "two removes"));
        }
        if added.get(key).is_some_and(|added| *added == id(&remove.deletion_vector)) {
            return Err(duplicate(&remove.path, "an add and a remove of one logical file"));
        }
    }
    let mut fed = BTreeSet::new();
    for (cdc, key) in candidate.actions.cdc.iter().zip(&candidate.cdc_keys) {
        if !fed.insert(key) || added.contains_key(key) {
            return Err(duplicate(&cdc.path, "a change-feed file and something else"));
        }
    }
    Ok(())
}

fn check_sizes(candidate: &Candidate) -> Result<(), Refusal> {
    let adds = candidate.actions.adds.iter().map(|add| ("add", &add.path, add.size));
    let cdc = candidate.actions.cdc.iter().map(|cdc| ("cdc", &cdc.path, cdc.size));
    match adds.chain(cdc).find(|(_, _, size)| *size <= 0) {
        Some((action, path, size)) => Err(Refusal::invalid("FILE_SIZE", format!("{action}.size is {size}")).file(path)),
        None => Ok(()),
    }
}

fn check_data_change(candidate: &Candidate) -> Result<(), Refusal> {
    let adds = candidate.actions.adds.iter().map(|add| add.data_change);
    let flags: BTreeSet<bool> = adds.chain(candidate.actions.removes.iter().map(|remove| remove.data_change)).collect();
    if flags.len() > 1 {
        let text = "some file actions change data and others do not; that is two commits";
        return Err(Refusal::invalid("MIXED_DATA_CHANGE", text));
    }
    Ok(())
}

fn check_names(candidate: &Candidate) -> Result<(), Refusal> {
    let mut applications = BTreeSet::new();
    for txn in &candidate.actions.txns {
        if !applications.insert(&txn.app_id) {
            let text = format!("two txn actions of the application `{}`", txn.app_id);
            return Err(Refusal::invalid("DUPLICATE_TXN", text).class("DELTA_DUPLICATE_ACTIONS_FOUND"));
        }
    }
    let mut domains = BTreeSet::new();
    for domain in &candidate.actions.domains {
        if !domains.insert(domain.domain.as_str()) {
            let text = format!("two domainMetadata actions of the domain `{}`", domain.domain);
            return Err(Refusal::invalid("DUPLICATE_DOMAIN", text).class("DELTA_DUPLICATE_ACTIONS_FOUND"));
        }
    }
    Ok(())
}

/// Lists of features are sets.
fn check_features_once(candidate: &Candidate) -> Result<(), Refusal> {
    let Some(protocol) = &candidate.actions.protocol else { return Ok(()) };
    for features in [&protocol.reader_features, &protocol.writer_features].into_iter().flatten() {
        let mut found = BTreeSet::new();
        if let Some(twice) = features.iter().find(|feature| !found.insert(feature.as_str())) {
            let text = format!("the protocol lists the table feature `{twice}` twice");
            return Err(Refusal::invalid("DUPLICATE_FEATURE", text));
        }
    }
    Ok(())
}

/// Columns without a type yet can become any type; elements and values cannot.
fn check_void(candidate: &Candidate) -> Result<(), Refusal> {
    let Some(metadata) = &candidate.actions.metadata else { return Ok(()) };
    // A text that is no schema is refused where it is read.
    let Ok(schema) = crate::delta::json::parse_strict(&metadata.schema_string) else { return Ok(()) };
    match void_part(&schema, "") {
        None => Ok(()),
        Some(path) => Err(Refusal::new(
            Exception::SchemaMismatchException,
            "VOID_PLACEMENT",
            format!("`{path}` has the type void, which elements of arrays and parts of maps cannot have"),
            "give it a type",
        )
        .class("DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE")
        .column(&path)),
    }
}

/// Path of an element, key or value that is void. Recursion is bounded by the nesting of JSON.
fn void_part(data_type: &Value, path: &str) -> Option<String> {
    let fields = data_type.get("fields").and_then(Value::as_array).into_iter().flatten();
    let inside = fields.filter_map(|field| {
        let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
        void_part(field.get("type")?, &crate::delta::schema::join(path, name))
    });
    let parts = ["elementType", "keyType", "valueType"].into_iter().filter_map(|part| {
        let inner = data_type.get(part)?;
        let path = crate::delta::schema::join(path, part.trim_end_matches("Type"));
        let is_void = matches!(inner.as_str(), Some("void" | "null"));
        if is_void { Some(path) } else { void_part(inner, &path) }
    });
    inside.chain(parts).next()
}
