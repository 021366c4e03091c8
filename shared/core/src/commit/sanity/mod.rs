//! Rules that a commit must keep, whoever won: by itself, for its table, and for the files it names. One reason code each.
//!
//! | reason | rule |
//! |---|---|
//! | REPEATED_ACTION | one protocol, metaData and commitInfo at most |
//! | DUPLICATE_FEATURE | a protocol lists a feature once among those of readers, and once among those of writers |
//! | DUPLICATE_ACTIONS | one add and one remove of a path at most; not both of one logical file (path, deletion vector) |
//! | DUPLICATE_TXN, DUPLICATE_DOMAIN | one txn of an application, one domainMetadata of a domain |
//! | FILE_PATH | relative, spelled so that all readers find the same object, inside the table, no longer than a key |
//! | CDC_PATH | change-feed files lie in `_change_data` |
//! | FILE_SIZE | files have bytes |
//! | MIXED_DATA_CHANGE | file actions agree on dataChange (change-feed files do not count) |
//! | VOID_PLACEMENT | no void in arrays and maps |
//! | PARTITIONING | declared partitioning is the table's |
//! | PARTITION_VALUES, PARTITION_VALUE_TYPE, PARTITION_NULL | exactly the partition columns, readable, null only where allowed |
//! | STATS, STATS_COLUMN | statistics are an object with known members, of columns that exist |
//! | STATS_TYPE, STATS_BOUNDS, STATS_NULL_COUNT | bounds have the column's type and order, null counts are numbers, and no more than rows |
//! | APPEND_ONLY | append-only tables lose no rows |
//! | FEATURE_MISSING | actions and members of a table feature only where the protocol has it |
//! | DELETION_VECTORS_DISALLOWED | new deletion vectors only where they are supported and switched on |
//! | DELETION_VECTOR_DESCRIPTOR, _NUM_RECORDS, _CARDINALITY, _TIGHT_BOUNDS | what can be told of a vector without reading it |
//! | REMOVE_OF_UNKNOWN_FILE, REMOVE_OF_OTHER_VECTOR, REMOVE_SPELLING, REMOVE_PARTITION | removes name logical files that were live when the table was read |
//! | FILE_ALREADY_LIVE, ADD_WITHOUT_REMOVE, FILE_CHANGED | adds of a file that is live: as it is, or with its remove |
//! | ROWS_NOT_KEPT | a commit that changes no data keeps the number of rows |
//!
//! What a metaData action itself must keep (schema, names, properties, features) is in [`super::evolution`] and
//! [`crate::delta::features`]. `commitInfo` need not be the first line where in-commit timestamps are on: publishing puts it
//! there, with the timestamp.

mod actions;
mod live;
mod stats;
mod vectors;

#[cfg(test)]
mod tests;

pub use actions::{check_actions, malformed};
pub use live::{check_live_files, needed_files};
pub use stats::row_count;
pub use vectors::check_deletion_vectors;

use super::candidate::Candidate;
use super::isolation::ROW_TRACKING_DOMAIN;
use super::partition_values::check_values;
use super::verdict::{Exception, Refusal, clip};
use crate::delta::features;
use crate::delta::schema::Schema;
use crate::delta::{Metadata, Protocol};

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

/// What belongs to a table feature needs the feature: writers without it would not keep it up.
pub fn check_features(candidate: &Candidate, protocol: &Protocol) -> Result<(), Refusal> {
    let actions = &candidate.actions;
    let domain = actions.domains.first().map(|domain| format!("the metadata domain `{}`", domain.domain));
    let row_id =
        actions.adds.iter().find(|add| add.base_row_id.is_some()).map(|add| format!("baseRowId of {}", add.path));
    let row_version = actions.adds.iter().find(|add| add.default_row_commit_version.is_some());
    let row_version = row_version.map(|add| format!("defaultRowCommitVersion of {}", add.path));
    let clustered = actions.adds.iter().find(|add| add.others.members().contains_key("clusteringProvider"));
    let clustered = clustered.map(|add| format!("clusteringProvider of {}", add.path));
    let has_domain = |name: &str| {
        let found = actions.domains.iter().any(|domain| domain.domain == name && !domain.removed);
        found.then(|| format!("the metadata domain `{name}`"))
    };
    let cdc = actions.cdc.first().map(|cdc| format!("the change-feed file {}", cdc.path));
    for (feature, found, class) in [
        ("changeDataFeed", cdc, "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
        ("domainMetadata", domain, "DELTA_DOMAIN_METADATA_NOT_SUPPORTED"),
        (
            "rowTracking",
            row_id.or(row_version).or_else(|| has_domain(ROW_TRACKING_DOMAIN)),
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        ),
        ("clustering", clustered.or_else(|| has_domain("delta.clustering")), "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
    ] {
        if let Some(found) = found.filter(|_| !features::has(protocol, feature)) {
            return Err(Refusal::new(
                Exception::InvalidCommitException,
                "FEATURE_MISSING",
                format!("{found} needs the table feature `{feature}`, which the protocol does not have"),
                "bring a protocol action that has the feature first, or leave it out",
            )
            .class(class));
        }
    }
    Ok(())
}

/// Declared partitioning, partition values and statistics of every added file.
pub fn check_added_files(candidate: &Candidate, metadata: &Metadata, schema: &Schema) -> Result<(), Refusal> {
    check_declared_partitioning(candidate, metadata)?;
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        check_values(&add.path, &add.partition_values, metadata, schema)?;
        // Files that exist may have statistics of columns that do not any more.
        let is_new = add.data_change && add.deletion_vector.is_none() && !candidate.removed.contains(key);
        stats::check(add, metadata, schema, if is_new { stats::Columns::Known } else { stats::Columns::Any })?;
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
    let list = |columns: &[String]| if columns.is_empty() { "none".to_owned() } else { columns.join(", ") };
    let (expected, found) = (list(&metadata.partition_columns), list(&declared));
    let text = format!("the commit declares the partitioning {found}, the table has {expected}");
    let mut refusal = Refusal::new(
        Exception::SchemaMismatchException,
        "PARTITIONING",
        text,
        "declare the table's partition columns in their order, or none",
    )
    .class("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH");
    (refusal.place.expected, refusal.place.found) = (Some(clip(&expected)), Some(clip(&found)));
    Err(refusal)
}
