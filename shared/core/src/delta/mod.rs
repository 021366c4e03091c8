//! Delta tables: the log and its actions, the state of a table at a version, schemas, and what Parquet footers say.
//!
//! Everything here reads; nothing writes. What is not understood is refused by name ([`features`], [`SnapshotError`]).

mod actions;
mod checkpoint;
pub mod counts;
pub mod deletion_vector;
pub mod features;
#[cfg(test)]
mod fixture_tests;
pub mod footer;
pub mod json;
pub mod log;
pub mod outline;
pub mod path;
mod plan;
mod replay;
pub mod schema;
mod shape;
pub mod snapshot;
#[cfg(test)]
mod snapshot_forms_tests;
#[cfg(test)]
pub(crate) mod testkit;

pub use actions::{
    ActionError, Actions, AddFile, CdcFile, CommitInfo, DeletionVector, DomainMetadata, Metadata, PartitionValues,
    Protocol, RemoveFile, Strictness, Txn, parse_commit,
};
pub use checkpoint::{Parsed, ParsedValue};
pub use log::Version;
pub use path::PathError;
pub use plan::{check_whole, is_whole_between};
pub use snapshot::{Covers, FileKey, Snapshot, SnapshotError, Wanted};
