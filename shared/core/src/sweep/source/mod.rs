//! Where references come from: one implementation per table format.

mod delta;
mod dropped;
mod features;
mod iceberg;
mod interval;
mod marks;
mod packed;
mod reading;
mod staged;
mod unregistered;
mod vectors;

use std::collections::{BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use serde_json::Value;

pub use delta::DeltaSource;
pub(super) use dropped::{DroppedSource, entry_of};
pub use iceberg::{DECLARED_PATHS, IcebergSource};
use unregistered::UnregisteredIceberg;

#[cfg(test)]
pub(in crate::sweep) use staged::files_of_path;

use super::delays::Delays;
use super::directory::Unregistered;
use super::guards::NameRules;
use super::refs::References;
use super::survey::{OwnSigns, Survey};
use super::{Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::ObjectKey;

/// Why a source is to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A page was listed: what the table says now.
    Judging,
    /// A batch is about to be deleted: everything that could protect a file.
    Deleting,
}

/// How far a load came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    Whole,
    /// Time was up: the next call goes on.
    Part,
}

/// The files that a table needs, and what its format says about names.
///
/// `load` comes first. An error of any method means that the set is not complete: nothing may be deleted by it.
#[async_trait]
pub trait ReferenceSource: Send + Sync {
    /// Reads the pointer and everything that it leads to; from `until_ms` on it may stop in between.
    async fn load(&mut self, references: &mut References, until_ms: i64) -> Result<Loaded, SweepError>;

    /// What has to be stored beside the references, so that a later worker can go on from them.
    fn save(&self) -> Value;

    /// Takes over what [`ReferenceSource::save`] gave, with the references of that moment; the next call is `load`, if
    /// that had stopped in between, or `refresh`. `false`: it cannot be gone on from.
    fn restore(&mut self, saved: &Value) -> bool;

    /// Reads the pointer again and adds what is new since the last call.
    async fn refresh(&mut self, moment: Moment, references: &mut References) -> Result<(), SweepError>;

    /// Looks at files that the survey found and that no reference names: answers those that are proved to be this
    /// table's own, of an earlier state. May add pending references.
    async fn examine(&mut self, survey: &Survey, references: &mut References)
    -> Result<HashSet<ObjectKey>, SweepError>;

    /// What was read last: a metadata file or a version.
    fn pointer(&self) -> String;

    /// What was read last, such that [`ReferenceSource::is_still`] can tell whether it is so still.
    fn mark(&self) -> String;

    /// Whether the table names what it named when it had this mark, as far as one look can tell. Needs no `load`.
    async fn is_still(&self, mark: &str) -> Result<bool, SweepError>;

    /// Where the table says that it writes, or has said so.
    fn declared(&self) -> BTreeSet<Location>;

    /// Where earlier states of the table said that it writes, as far as the current one names them and they are there:
    /// those after the state of this mark, or all of them. `more` are further metadata files of its own.
    async fn declared_before(&self, since: Option<&str>, more: &[ObjectKey]) -> Result<BTreeSet<Location>, SweepError>;

    /// When the newest commits added files; of the swept table only.
    fn take_delays(&mut self) -> Delays;

    /// What the last loads did not read since an earlier run had, of the swept table only: hashes of keys, and of the
    /// objects that were read then. Whoever finds other objects there has it read again.
    fn take_believed(&mut self) -> HashMap<u64, u64> {
        HashMap::new()
    }

    /// Reads what was believed wrongly, by the hashes of its keys, and adds what it names. What it was taken for stays a
    /// reference as well.
    async fn read_again(&mut self, _doubted: &HashSet<u64>, _references: &mut References) -> Result<(), SweepError> {
        Ok(())
    }

    /// What the table's own record does not tell any more, though it may have named files that count still; of tables that
    /// are not swept themselves, which are refused for it. Whoever may hold such files must not be swept.
    fn untold(&self) -> Option<&Untold> {
        None
    }

    /// Where the table itself says that it lies.
    fn home(&self) -> Result<Location, Refusal>;

    fn names(&self) -> NameRules;

    fn own_signs(&self) -> OwnSigns;

    /// Least age of a candidate that the table itself asks for.
    fn retention_ms(&self) -> i64;

    /// Makes the table's commits wait, as far as they pass through this product, until
    /// [`ReferenceSource::clear_fence`] or `expires_at_ms`.
    async fn fence(&mut self, epoch: i64, expires_at_ms: i64) -> Result<(), SweepError>;

    async fn clear_fence(&mut self) -> Result<(), SweepError>;
}

/// Files that a table may have named, and of which nothing tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untold {
    pub why: Refusal,
    pub place: UntoldPlace,
}

/// Where they may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntoldPlace {
    /// Below the table's own location, or where other files of it do.
    Known,
    /// Files of the same kind lie outside the table's location, so these may lie anywhere.
    Anywhere,
}

/// Whose references are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Of the table that is swept.
    Own,
    /// Of another one that may need files here: whether it may be cleaned itself does not matter.
    Other,
}

/// What sources need to know of the run.
#[derive(Clone, Copy, Debug)]
pub struct SourceContext<'r> {
    pub role: Role,
    pub run_id: &'r str,
    /// Where reports lie, and beside them what was read of the table's manifests.
    pub reports: &'r Location,
    /// Whether what is read is kept for later runs.
    pub keeps: bool,
    /// The optimizer's retention.
    pub retention_ms: i64,
    /// Whether staged commits that nobody decided on may be given up: runs that delete do.
    pub gives_up: bool,
    /// No retention is shorter, whatever a table says.
    pub least_retention_ms: i64,
    /// Ages are counted to this moment.
    pub now_ms: i64,
}

/// The source for a table, whatever its format.
pub fn source_for<'a>(
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: &TableEntry,
    context: SourceContext<'_>,
) -> Result<Box<dyn ReferenceSource + 'a>, Refusal> {
    match entry.found_as() {
        Some(Unregistered::Delta) => return Ok(Box::new(DeltaSource::new(ports, directory, entry, context)?)),
        Some(Unregistered::IcebergMetadata) => return Ok(Box::new(UnregisteredIceberg::new(ports, entry)?)),
        None => {}
    }
    match entry.format()? {
        TableFormat::Iceberg { pointer } => Ok(Box::new(IcebergSource::new(ports, directory, entry, pointer, context))),
        TableFormat::Delta => Ok(Box::new(DeltaSource::new(ports, directory, entry, context)?)),
        TableFormat::Other => Err(Refusal::new(
            RefusalReason::UnsupportedTable,
            format!("{entry} is neither an Iceberg nor a Delta table: which files it needs is not recorded anywhere"),
        )),
    }
}
