//! Which Delta tables a sweep can follow. It needs to know of every file, and of nothing else: many features that a judge
//! of commits has to understand leave the set of files as it is.

use crate::delta::features::is_catalog_managed;
use crate::delta::{Metadata, Protocol};
use crate::sweep::{Refusal, RefusalReason};

/// Highest versions whose files are known; from these on features are listed.
const READER_VERSION_MAX: i64 = 3;
const WRITER_VERSION_MAX: i64 = 7;

/// Features that name no files but in the actions that are read, of readers and writers alike.
const FOLLOWED: [&str; 31] = [
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "collations-preview",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "geospatial",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "icebergWriterCompatV3",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "materializePartitionColumns",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
];

fn unsupported(detail: String) -> Refusal {
    Refusal::new(RefusalReason::UnsupportedFeature, detail)
}

/// Who decides what a catalog-managed table's commits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ratifier {
    /// This product: what is ratified and not published yet is known.
    Us,
    Unknown,
}

/// Names of the feature by which a catalog ratifies commits.
const CATALOG_MANAGED: [&str; 2] = ["catalogManaged", "catalogOwned-preview"];

/// Refuses what this version cannot follow completely; reader and writer features both count.
pub(super) fn check_table(protocol: &Protocol, ratifier: Ratifier) -> Result<(), Refusal> {
    if is_catalog_managed(protocol) && ratifier == Ratifier::Unknown {
        let detail = "commits of the table are ratified by another catalog, so the log alone does not tell";
        return Err(unsupported(detail.to_owned()));
    }
    let (reader, writer) = (protocol.min_reader_version, protocol.min_writer_version);
    if reader > READER_VERSION_MAX || writer > WRITER_VERSION_MAX {
        return Err(unsupported(format!("the table needs reader version {reader} and writer version {writer}")));
    }
    let listed = [&protocol.reader_features, &protocol.writer_features].into_iter().flatten().flatten();
    let is_followed = |feature: &str| FOLLOWED.contains(&feature) || CATALOG_MANAGED.contains(&feature);
    match listed.into_iter().find(|feature| !is_followed(feature)) {
        Some(feature) => Err(unsupported(format!("the table feature `{feature}` is not known: it may name files"))),
        None => Ok(()),
    }
}

/// Whether the table is also written in another format (UniForm).
pub(super) fn is_in_format(metadata: &Metadata, format: &str) -> bool {
    let formats = metadata.property("delta.universalFormat.enabledFormats").unwrap_or_default();
    formats.split(',').any(|enabled| enabled.trim().eq_ignore_ascii_case(format))
}
