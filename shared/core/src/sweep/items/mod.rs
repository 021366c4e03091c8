//! Items of the sweep, all in table `catalog`; one file per type.

mod cancel;
mod fence;
mod kept_optimizer;
mod lease;
mod optimizer;
mod places;
mod progress;
mod run;
mod writer_lease;

pub use cancel::Cancellation;
pub use fence::LeaseFence;
pub use kept_optimizer::KeptOptimizer;
pub use lease::{LEASE_MARGIN_MS, LEASE_MS, Lease};
pub use optimizer::{
    OPTIMIZER_SHARDS, OptimizerConfig, OptimizerItem, OptimizerReadError, PendingRun, QUARANTINE_DEFAULT_HOURS,
    SIGHTINGS_DEFAULT,
};
pub use places::{PLACES_MAX, PartitionsNoted, TablePlaces};
pub use progress::{Folder, Live, Progress, RestoreCursor, Segment, Segments, Stage};
pub use run::{
    ReportParts, RestoreAsk, RunFacts, RunOptions, RunRecord, RunState, Tally, Totals, is_run_id, new_run_id,
};
pub use writer_lease::WriterLease;

/// Partition keys of what goes with a table that is dropped, its optimizer of orphan files aside. What writers have announced
/// stays: another table may lie at the same place.
pub fn places_of(table_id: &str) -> [String; 3] {
    [RunRecord::partition(table_id), Lease::partition(table_id), KeptOptimizer::partition(table_id)]
}
