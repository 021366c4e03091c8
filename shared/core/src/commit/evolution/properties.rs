//! Which table properties a commit may change.

use super::mode::Mode;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::{Metadata, features};

/// Prefix of the properties that are CHECK constraints.
pub const CONSTRAINTS: &str = "delta.constraints.";

/// Properties whose change needs nothing of the files.
const FREE_PROPERTIES: [&str; 21] = [
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    // Its changes have rules of their own.
    "delta.columnMapping.maxColumnId",
    "delta.columnMapping.mode",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableTypeWidening",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.randomizeFilePrefixes",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
];

/// What the verdict says of constraints that are new.
pub fn check_properties(old: &Metadata, new: &Metadata, mode: Mode) -> Result<Vec<String>, Refusal> {
    let mut notes = Vec::new();
    let names =
        old.configuration.keys().chain(new.configuration.keys().filter(|name| !old.configuration.contains_key(*name)));
    for name in names.filter(|name| old.property(name) != new.property(name)) {
        if let Some(constraint) = name.strip_prefix(CONSTRAINTS) {
            notes.extend(constraint_change(constraint, old.property(name), new.property(name), mode)?);
        } else if name.starts_with("delta.") && !is_free(name, old, new) {
            let text = format!("the commit changes the table property `{name}`, whose effects cannot be verified yet");
            return Err(Refusal::new(
                Exception::UnsupportedTableException,
                "PROPERTY_CHANGE",
                text,
                "change this property without the validator",
            ));
        }
    }
    Ok(notes)
}

/// Whether a CHECK constraint comes, goes or changes.
pub fn changes_constraints(old: &Metadata, new: &Metadata) -> bool {
    let names = old.configuration.keys().chain(new.configuration.keys());
    names.filter(|name| name.starts_with(CONSTRAINTS)).any(|name| old.property(name) != new.property(name))
}

fn is_free(name: &str, old: &Metadata, new: &Metadata) -> bool {
    FREE_PROPERTIES.contains(&name) || is_switched_on(name, old, new)
}

/// What may be switched on, but not off: from then on every commit has a timestamp of its own. Since when is set by us.
fn is_switched_on(name: &str, old: &Metadata, new: &Metadata) -> bool {
    match name {
        "delta.enableInCommitTimestamps" => new.is_on(name),
        "delta.inCommitTimestampEnablementVersion" | "delta.inCommitTimestampEnablementTimestamp" => {
            !features::has_in_commit_timestamps_on(old) && features::has_in_commit_timestamps_on(new)
        }
        _ => false,
    }
}

/// Constraints change by statements about the table alone, or with the whole table ([`changes_constraints`]).
fn constraint_change(name: &str, old: Option<&str>, new: Option<&str>, mode: Mode) -> Result<Option<String>, Refusal> {
    match (mode, new) {
        (Mode::Merge, _) => {
            let text = format!("the commit writes data and changes the constraint `{name}`");
            let mut refusal = super::refuse("CONSTRAINT_CHANGE", text, "change constraints by a commit of their own")
                .class("DELTA_CONSTRAINT_ALREADY_EXISTS");
            (refusal.place.expected, refusal.place.found) = (old.map(str::to_owned), new.map(str::to_owned));
            Err(refusal)
        }
        (Mode::Alter { .. }, Some(expression)) => Ok(Some(format!(
            "the constraint `{name}` ({expression}) is new: rows that are in the table already were not checked against it"
        ))),
        _ => Ok(None),
    }
}
