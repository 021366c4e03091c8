//! Iceberg metadata: which files a table needs.
//!
//! Only what decides about files is read: paths, entry status, and what makes a table unreadable for us. Formats 1 to 3
//! are read; a newer one is refused by name. Whatever cannot be read completely is an error, never an empty answer: the
//! sweep deletes what this module does not name.

pub mod avro;
mod error;
mod manifest;
mod metadata;
mod reachable;
mod tally;
#[cfg(test)]
mod tests;

pub use error::IcebergError;
pub use manifest::{EntryStatus, ManifestContent, ManifestEntry, ManifestRef, read_manifest, read_manifest_list};
pub use metadata::{FlinkCommit, Snapshot, TableMetadata, is_metadata_name};
pub use reachable::{
    MANIFEST_CONCURRENCY, Named, Reachable, Visit, head_named, load_attempt, load_manifest, load_metadata,
    load_metadata_object,
};
pub use tally::{Count, Counted, Least};
