//! Rules of the table that a commit's actions must keep, whoever won (11.1).

use std::collections::BTreeSet;

use super::candidate::Candidate;
use super::facts::FileFacts;
use super::partition_values::check_values;
use super::verdict::{Exception, Refusal};
use crate::delta::features;
use crate::delta::json::parse_strict;
use crate::delta::schema::Schema;
use crate::delta::{AddFile, Metadata};
use crate::store::ObjectKey;

/// Append-only tables lose no rows.
pub fn check_append_only(candidate: &Candidate, metadata: &Metadata) -> Result<(), Refusal> {
    let removes = candidate.actions.removes.iter().find(|remove| remove.data_change);
    match removes.filter(|_| features::is_append_only(metadata)) {
        None => Ok(()),
        Some(remove) => Err(Refusal::new(
            Exception::InvalidCommitException,
            "APPEND_ONLY",
            "the table is append-only (delta.appendOnly), and the commit removes rows",
            "append only, or unset delta.appendOnly first",
        )
        .class("DELTA_CANNOT_MODIFY_APPEND_ONLY")
        .file(&remove.path)),
    }
}

/// Declared partitioning, partition values and statistics of every added file.
pub fn check_added_files(candidate: &Candidate, metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    check_declared_partitioning(candidate, metadata)?;
    for add in &candidate.actions.adds {
        check_values(&add.path, &add.partition_values, metadata, schema)?;
        row_count(add)?;
    }
    for cdc in &candidate.actions.cdc {
        check_values(&cdc.path, &cdc.partition_values, metadata, schema)?;
    }
    Ok(())
}

/// `operationParameters.partitionBy` must be the table's list; absent and `[]` mean "not declared".
fn check_declared_partitioning(candidate: &Candidate, metadata: &Metadata) -> Result<(), Refusal> {
    let info = candidate.actions.commit_info.as_ref().filter(|info| info.text("operation") == Some("WRITE"));
    let Some(text) = info.and_then(|info| info.parameter("partitionBy")) else { return Ok(()) };
    let Ok(declared) = serde_json::from_str::<Vec<String>>(&text) else { return Ok(()) };
    if declared.is_empty() || declared == metadata.partition_columns {
        return Ok(());
    }
    let text =
        format!("the commit declares the partitioning {declared:?}, the table has {:?}", metadata.partition_columns);
    Err(Refusal::new(
        Exception::SchemaMismatchException,
        "PARTITIONING",
        text,
        "declare the table's partition columns in their order, or none",
    )
    .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"))
}

/// `stats.numRecords`; statistics that are no object are refused, absent ones are fine.
pub fn row_count(add: &AddFile) -> Result<Option<u64>, Refusal> {
    let Some(text) = add.stats.as_deref().filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let wrong = |what: String| Refusal::invalid("STATS", what).file(&add.path);
    let stats = parse_strict(text).map_err(|error| wrong(format!("add.stats: {error}")))?;
    let Some(members) = stats.as_object() else { return Err(wrong("add.stats is not an object".into())) };
    match members.get("numRecords") {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(count) => match count.as_u64() {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(format!("stats.numRecords is {count}"))),
        },
    }
}

/// Files of which must be known whether they are live.
pub fn needed_files(candidate: &Candidate, paths: Option<&super::path_filter::PathFilter>) -> BTreeSet<ObjectKey> {
    let added = candidate
        .add_keys
        .iter()
        .filter(|key| candidate.is_rearrangement() || paths.is_none_or(|paths| paths.may_contain(&key.to_string())));
    candidate.remove_keys.iter().chain(added).cloned().collect()
}

/// Removes name live files, adds name new ones, and rearrangements keep the number of rows.
pub fn check_live_files(candidate: &Candidate, files: &FileFacts) -> Result<(), Refusal> {
    for (remove, key) in candidate.actions.removes.iter().zip(&candidate.remove_keys) {
        let found = live(files, key);
        // Readers match removes with adds by their spelling: under another one the file would stay.
        if let Some(add) = found.filter(|add| add.path != remove.path) {
            let text = format!("the log names this file `{}`, the remove spells it differently", add.path);
            return Err(Refusal::invalid("REMOVE_SPELLING", text).file(&remove.path));
        }
        if found.is_none() {
            let text = if files.live(key).is_empty() {
                "the file to remove is not in the table"
            } else {
                "the file to remove is live with a deletion vector, which the remove does not name"
            };
            return Err(Refusal::invalid("REMOVE_OF_UNKNOWN_FILE", text).file(&remove.path));
        }
    }
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        if !files.live(key).is_empty() {
            let text = "the file to add is in the table already";
            return Err(Refusal::invalid("FILE_ALREADY_LIVE", text)
                .class("DELTA_DUPLICATE_ACTIONS_FOUND")
                .file(&add.path));
        }
    }
    if candidate.is_rearrangement() { check_rows_kept(candidate, files) } else { Ok(()) }
}

fn check_rows_kept(candidate: &Candidate, files: &FileFacts) -> Result<(), Refusal> {
    let mut added = Some(0_u64);
    for add in &candidate.actions.adds {
        added = sum(added, row_count(add)?);
    }
    let mut removed = Some(0_u64);
    for key in &candidate.remove_keys {
        removed = sum(removed, live(files, key).and_then(|add| row_count(add).ok().flatten()));
    }
    match (added, removed) {
        (Some(added), Some(removed)) if added != removed => {
            let text = format!("the commit says that it changes no data, but adds {added} rows and removes {removed}");
            Err(Refusal::invalid("ROWS_NOT_KEPT", text))
        }
        _ => Ok(()),
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_add(b?)
}

/// The file without a deletion vector.
fn live<'a>(files: &'a FileFacts, key: &ObjectKey) -> Option<&'a AddFile> {
    files.live(key).into_iter().find(|(key, _)| key.dv_id.is_none()).map(|(_, add)| add)
}
