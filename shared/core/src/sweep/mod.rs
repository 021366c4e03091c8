//! Orphan files: optimizers, reference sets, guards, runs.
//!
//! A doubt keeps the file; a gap in knowledge stops the run.
//!
//! ```text
//! plan (due tables) -> survey -> load pointer -> reference set -> list page, pointer again, judge -> fuse
//!      -> per batch: lease, fence, neighbours, HEAD, pointer again, judge again, delete if-match -> report -> record
//! ```
//!
//! Not built yet: slices (a run judges its whole scope within one function call or starts again, and gives up by name),
//! writers' leases. What therefore protects less than it will: two sightings (a scheduled run deletes at the first
//! sighting now), quarantine (what is deleted is gone), and references into the scope from tables whose location lies
//! elsewhere, which are not asked at all.

mod catalog;
pub mod directory;
mod error;
pub mod guards;
pub mod items;
pub mod message;
pub mod optimizer;
pub mod plan;
mod refs;
mod report;
pub mod rest;
pub mod run;
mod source;
mod survey;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod tests;

pub use catalog::CatalogDirectory;
pub use directory::{DirectoryError, MemoryDirectory, TableDirectory, TableEntry, TableFormat};
pub use error::{Interruption, Refusal, RefusalReason, SweepError};
pub use guards::Reason;
pub use message::{Mode, SweepRequest};
pub use plan::plan_due;
pub use refs::{Held, References};
pub use run::{RunOutcome, sweep};
