//! Items of the sweep, all in table `catalog`; one file per type.

mod kept_optimizer;
mod lease;
mod optimizer;
mod run;

pub use kept_optimizer::KeptOptimizer;
pub use lease::{LEASE_MARGIN_MS, LEASE_MS, Lease};
pub use optimizer::{OPTIMIZER_SHARDS, OptimizerConfig, OptimizerItem, OptimizerReadError, PendingRun};
pub use run::{ReportParts, RunRecord, RunState, Tally, Totals, is_run_id, new_run_id};

/// Partition keys of what hangs on a table, its optimizer of orphan files aside.
pub fn places_of(table_id: &str) -> [String; 3] {
    [RunRecord::partition(table_id), Lease::partition(table_id), KeptOptimizer::partition(table_id)]
}
