//! Orphan files: optimizers, reference sets, guards, runs.
//!
//! A doubt keeps the file; a gap in knowledge stops the run.
//!
//! ```text
//! plan (due tables) -> load pointer -> reference set -> what other tables need here -> survey -> unknown tables
//!      -> per page: list, pointer again, judge -> fuse
//!      -> per batch: lease, fence, neighbours, HEAD, pointer again, judge again, delete if-match -> report -> record
//! ```
//!
//! Two things protect a file that nobody can know of: a scheduled run deletes only what an earlier one has seen as an
//! orphan a day before, and its age is that of the youngest file of its operation. Everything else is knowledge: what the
//! table and every other table name, what is staged, what writers have announced.
//!
//! A run works within the time that its function has. How far it came is in its record, what it knows beside its report
//! (`run/stored`): a reference filter with what each table said that it was built from, what the first listing showed,
//! and the orphans that wait. The next slice asks every table what is new since, and goes on; a worker that dies is
//! followed by one that goes on from the last record.
//!
//! What a run takes away can come back (`undo`): from behind the delete markers of a bucket with versions, or from the
//! bucket's quarantine, until it expires there under the same guards; `recover` finds what somebody needs.

mod blob;
mod catalog;
mod delays;
pub mod directory;
pub mod dropped;
mod error;
mod families;
mod flink;
pub mod guards;
pub mod items;
pub mod leases;
pub mod message;
pub mod optimizer;
mod page;
pub mod plan;
mod ranges;
pub mod recover;
mod refs;
pub mod report;
pub mod rest;
pub mod run;
mod sightings;
mod source;
mod survey;
#[cfg(test)]
pub(crate) mod testkit;
#[cfg(test)]
mod tests;
pub mod undo;

pub use catalog::CatalogDirectory;
pub use directory::{DirectoryError, MemoryDirectory, Past, TableDirectory, TableEntry, TableFormat, TableUse};
pub use error::{Interruption, Refusal, RefusalReason, SweepError};
pub use guards::Reason;
pub use message::{Mode, SweepRequest};
pub use plan::{plan_due, work_pending};
pub use refs::{Held, References};
pub use run::{RunOutcome, give_up, sweep};
