//! Where references come from: one implementation per table format.

mod iceberg;

use std::collections::HashSet;

use async_trait::async_trait;

pub use iceberg::IcebergSource;

use super::guards::NameRules;
use super::refs::References;
use super::survey::{OwnSigns, Survey};
use super::{Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};
use crate::ports::Ports;
use crate::store::ObjectKey;

/// The files that a table needs, and what its format says about names.
///
/// `load` comes first. An error of any method means that the set is not complete: nothing may be deleted by it.
#[async_trait]
pub trait ReferenceSource: Send + Sync {
    /// Reads the pointer and everything that it leads to.
    async fn load(&mut self, references: &mut References) -> Result<(), SweepError>;

    /// Reads the pointer again and adds what is new since the last call.
    async fn refresh(&mut self, references: &mut References) -> Result<(), SweepError>;

    /// Looks at files that the survey found and that no reference names: answers those that are proved to be this
    /// table's own, of an earlier state. May add pending references.
    async fn examine(&mut self, survey: &Survey, references: &mut References)
    -> Result<HashSet<ObjectKey>, SweepError>;

    /// What was read last: a metadata file or a version.
    fn pointer(&self) -> String;

    fn names(&self) -> NameRules;

    fn own_signs(&self) -> OwnSigns;

    /// Least age of a candidate that the table itself asks for.
    fn retention_ms(&self) -> i64;

    /// Makes commits that touch these files wait, until [`ReferenceSource::clear_fence`] or `expires_at_ms`.
    async fn fence(&mut self, doomed: &[ObjectKey], epoch: i64, expires_at_ms: i64) -> Result<(), SweepError>;

    async fn clear_fence(&mut self) -> Result<(), SweepError>;
}

/// The source for a table, whatever its format.
pub fn source_for<'a>(
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: &TableEntry,
) -> Result<Box<dyn ReferenceSource + 'a>, Refusal> {
    match entry.format()? {
        TableFormat::Iceberg { pointer } => Ok(Box::new(IcebergSource::new(ports, directory, entry, pointer))),
        TableFormat::Delta => Err(Refusal::new(
            RefusalReason::UnsupportedTable,
            format!("{entry} is a Delta table: sweeping those is not built yet"),
        )),
        TableFormat::Other => Err(Refusal::new(
            RefusalReason::UnsupportedTable,
            format!("{entry} is neither an Iceberg nor a Delta table: which files it needs is not recorded anywhere"),
        )),
    }
}
