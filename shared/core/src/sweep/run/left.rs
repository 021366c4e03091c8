//! What is asked before files of a dropped table go, beside all that is asked of every file.

use super::attempt::Attempt;
use super::knowledge::Neighbours;
use crate::catalog::dropped::{self, DroppedTable};
use crate::ports::App;
use crate::store::{Condition, Listed, WriteError};
use crate::sweep::items::{OptimizerItem, RunRecord, RunState, WriterLease};
use crate::sweep::{DirectoryError, Mode, Refusal, RefusalReason, SweepError};

/// How far the clocks of the store and of the catalog may be apart.
const CLOCKS_APART_MS: i64 = 300_000;

impl Attempt<'_> {
    /// Files of a dropped table go only where no other table can have meant them.
    /// `around` are the dropped tables at the place, inside it and around it: each may be created again for as long.
    pub(super) fn check_left_alone(&self, neighbours: &Neighbours, around: &[DroppedTable]) -> Result<(), Refusal> {
        let Some(dropped) = &self.dropped else { return Ok(()) };
        if let Some(other) = neighbours.sharing.first() {
            let detail = format!(
                "{other} lies at {} or around it: sweep that table, whose files these may be by now",
                dropped.location
            );
            return Err(Refusal::new(RefusalReason::SharedLocation, detail));
        }
        let now_ms = self.app.ports.clock.now_ms();
        if self.record.mode == Mode::DryRun {
            return Ok(());
        }
        for table in around.iter().chain([dropped]) {
            let from_ms = table.dropped_ms.saturating_add(self.app.settings.dropped_grace_ms);
            if now_ms < from_ms {
                let left_hours = from_ms.saturating_sub(now_ms).saturating_add(3_599_999).div_euclid(3_600_000);
                let detail = format!(
                    "what {}.{} left at {} may go in {left_hours} hours: so long a dropped table can be created again",
                    table.database, table.name, table.location
                );
                return Err(Refusal::new(RefusalReason::GracePeriod, detail));
            }
        }
        Ok(())
    }

    /// Whoever writes there since the drop has the table under another name, or in another catalog.
    pub(super) fn check_unused(&self, objects: &[Listed]) -> Result<(), Refusal> {
        let Some(dropped) = &self.dropped else { return Ok(()) };
        let last_ms = dropped.dropped_ms.saturating_add(CLOCKS_APART_MS);
        let Some(new) = objects.iter().find(|object| object.last_modified_ms > last_ms) else { return Ok(()) };
        let detail =
            format!("{} was written after the table had been dropped: somebody uses {}", new.key, dropped.location);
        Err(Refusal::new(RefusalReason::SharedLocation, detail))
    }
}

/// The dropped table of an id, if there is one.
pub(super) async fn find(app: &App, table_id: &str) -> Result<Option<DroppedTable>, SweepError> {
    Ok(dropped::find(app.ports.items.as_ref(), table_id).await.map_err(DirectoryError::from)?)
}

/// Forgets a dropped table of which a run has left nothing.
pub(super) async fn forget_if_gone(app: &App, table: &DroppedTable, record: &RunRecord) -> Result<(), SweepError> {
    let total = record.totals.by_reason.values().fold(0_i64, |sum, tally| sum.saturating_add(tally.count));
    let is_done = record.state == RunState::Completed && record.mode.deletes();
    if is_done && record.totals.deleted.count >= total {
        forget(app, table).await?;
    }
    Ok(())
}

/// Forgets a dropped table, whatever is left of it: its optimizer, what writers had announced, and itself.
pub(in crate::sweep) async fn forget(app: &App, table: &DroppedTable) -> Result<(), SweepError> {
    let items = app.ports.items.as_ref();
    for lease in WriterLease::load_all(items, table.table_id.as_str()).await? {
        lease.forget(items).await?;
    }
    // Of the time when it was a table; nothing of them can be undone any more. The others tell what became of its files.
    for run in RunRecord::load_all(items, table.table_id.as_str()).await? {
        if run.created_ms < table.dropped_ms {
            match items.delete(&RunRecord::key(&run.table_id, &run.run_id), Condition::Always).await {
                Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
                Err(WriteError::Store(error)) => return Err(error.into()),
            }
        }
    }
    match items.delete(&OptimizerItem::key(table.table_id.as_str()), Condition::Always).await {
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
        Err(WriteError::Store(error)) => return Err(error.into()),
    }
    Ok(dropped::forget(items, table).await.map_err(DirectoryError::from)?)
}
