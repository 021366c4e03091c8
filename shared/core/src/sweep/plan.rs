//! Which sweeps are due, and how runs get into the queue.

use super::items::{OPTIMIZER_SHARDS, OptimizerItem, PendingRun, RunOptions, RunRecord, new_run_id};
use super::run::end_stale;
use super::{
    Interruption, Mode, Refusal, RefusalReason, RunOutcome, SweepError, SweepRequest, TableDirectory, TableEntry, sweep,
};
use crate::ports::{App, Deadline, SweepDispatch};
use crate::store::{Condition, Query, QueueName, SortRange, Table, TransactError, Write, WriteError};

const HOUR_MS: i64 = 3_600_000;
/// The planner stops when less time than this is left; what is due stays due.
const STOP_MARGIN_MS: i64 = 5_000;
/// Tries at an item that others write as well.
const TRIES: u32 = 4;

/// Without a queue no slice of a run is begun with less time than this.
const SLICE_MIN_MS: i64 = 60_000;

/// Whether a scheduled run is to be started. The first one is due at once: it deletes nothing, since nothing is younger
/// than the optimizer and older than the retention, and shows that the table can be read.
pub fn is_due(optimizer: &OptimizerItem, now_ms: i64) -> bool {
    let rate_ms = optimizer.config.run_rate_hours.saturating_mul(HOUR_MS);
    let due_ms = optimizer.last_planned_ms.map_or(i64::MIN, |last| last.saturating_add(rate_ms));
    optimizer.config.enabled && due_ms <= now_ms
}

/// What a pass of the planner did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanReport {
    pub optimizers: u64,
    pub started: u64,
    /// Messages sent for runs that an earlier pass, or a request, entered and then died.
    pub sent_again: u64,
    /// Another planner was faster.
    pub contended: u64,
    /// Stopped by the time limit; the next pass goes on.
    pub is_partial: bool,
}

/// Starts a run for every table that is due, and sends the messages that were left over.
///
/// # Errors
/// A store that does not answer; or, after all others have been planned, an optimizer that cannot be read.
pub async fn plan_due(app: &App, deadline: Deadline) -> Result<PlanReport, SweepError> {
    let mut report = PlanReport::default();
    let mut unreadable = None;
    for shard in 0..OPTIMIZER_SHARDS {
        let mut query = Query::new(Table::Catalog, OptimizerItem::partition(shard), SortRange::All);
        loop {
            let page = app.ports.items.query(&query).await?;
            for (_, item) in &page.items {
                if deadline.left_ms(app.ports.clock.as_ref()) < STOP_MARGIN_MS {
                    report.is_partial = true;
                    return Ok(report);
                }
                // One item that cannot be read must not keep the others from being swept.
                match OptimizerItem::decode(item) {
                    Ok(optimizer) => plan_one(app, optimizer, &mut report).await?,
                    Err(error) => unreadable = Some(error),
                }
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                break;
            }
        }
    }
    match unreadable {
        None => Ok(report),
        Some(error) => Err(error.into()),
    }
}

async fn plan_one(app: &App, optimizer: OptimizerItem, report: &mut PlanReport) -> Result<(), SweepError> {
    report.optimizers = report.optimizers.saturating_add(1);
    if !optimizer.pending.is_empty() && app.settings.sweep_dispatch == SweepDispatch::Queue {
        report.sent_again = report.sent_again.saturating_add(optimizer.pending.len() as u64);
        send_pending(app, &optimizer).await?;
    }
    if !is_due(&optimizer, app.ports.clock.now_ms()) {
        return Ok(());
    }
    match start_run(app, &optimizer.table_id, Mode::Scheduled, &RunOptions::default()).await {
        Ok(Some(_)) => report.started = report.started.saturating_add(1),
        Ok(None) => report.contended = report.contended.saturating_add(1),
        Err(SweepError::Interrupted(_)) => report.contended = report.contended.saturating_add(1),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Enters a run and sends its message. The record and the optimizer's outbox are written in one transaction; a crash
/// before the message is sent is made good by the next planner. `None`: the table has no optimizer, or its scheduled run
/// is not due any more.
pub async fn start_run(
    app: &App,
    table_id: &str,
    mode: Mode,
    options: &RunOptions,
) -> Result<Option<RunRecord>, SweepError> {
    let ports = &app.ports;
    for attempt in 0..TRIES {
        let Some(mut optimizer) = OptimizerItem::load(ports.items.as_ref(), table_id).await? else { return Ok(None) };
        let now_ms = ports.clock.now_ms();
        if mode == Mode::Scheduled {
            if !is_due(&optimizer, now_ms) {
                return Ok(None);
            }
            optimizer.last_planned_ms = Some(now_ms);
        }
        if attempt == 0 {
            end_stale(app, &optimizer).await?;
        }
        let condition = optimizer.unchanged();
        let request = SweepRequest {
            run_id: new_run_id(ports.ids.as_ref(), now_ms),
            table_id: Some(table_id.to_owned()),
            database: optimizer.database.clone(),
            table: optimizer.table.clone(),
            mode,
        };
        optimizer.pending.push(PendingRun { run_id: request.run_id.clone(), mode });
        optimizer.revision = ports.ids.uuid().simple().to_string();
        let revision = ports.ids.uuid().simple().to_string();
        let record = RunRecord { options: options.clone(), ..RunRecord::queued(&request, table_id, now_ms, revision) };
        let writes = [
            Write::Put {
                key: RunRecord::key(table_id, &record.run_id),
                item: record.encode(),
                condition: Condition::Absent,
            },
            Write::Put { key: OptimizerItem::key(table_id), item: optimizer.encode(), condition },
        ];
        match ports.items.transact(&writes, &optimizer.revision).await {
            Ok(()) => {
                send_pending(app, &optimizer).await?;
                return Ok(Some(record));
            }
            Err(TransactError::Cancelled { .. }) => {}
            Err(TransactError::Store(error)) => return Err(error.into()),
        }
    }
    Err(Interruption::Contended("the optimizer").into())
}

/// Enters a run of a table that has no optimizer, and sends its message. Only for runs that delete nothing: what protects
/// older files is the optimizer's date. If the message cannot be sent, the run is not entered.
///
/// # Errors
/// A store that does not answer. Without a queue such a run has no place to wait.
pub async fn start_bare(
    app: &App,
    entry: &TableEntry,
    mode: Mode,
    options: &RunOptions,
) -> Result<RunRecord, SweepError> {
    if app.settings.sweep_dispatch == SweepDispatch::Inline {
        let detail = "without a queue, runs wait with the table's optimizer, and the table has none: create one first";
        return Err(Refusal::new(RefusalReason::OptimizerMissing, detail).into());
    }
    let (ports, now_ms) = (&app.ports, app.ports.clock.now_ms());
    let request = SweepRequest {
        run_id: new_run_id(ports.ids.as_ref(), now_ms),
        table_id: Some(entry.id.clone()),
        database: entry.database.clone(),
        table: entry.name.clone(),
        mode,
    };
    let revision = ports.ids.uuid().simple().to_string();
    let record = RunRecord { options: options.clone(), ..RunRecord::queued(&request, &entry.id, now_ms, revision) };
    if !record.create(ports.items.as_ref()).await? {
        return Err(Interruption::Contended("the record of the run").into());
    }
    match ports.queue.send(QueueName::Sweeps, request.encode(), 0).await {
        Ok(()) => Ok(record),
        Err(error) => {
            // Nobody would ever work on it.
            match ports.items.delete(&RunRecord::key(&entry.id, &record.run_id), Condition::Always).await {
                Ok(()) | Err(WriteError::ConditionFailed { .. }) => Err(error.into()),
                Err(WriteError::Store(error)) => Err(error.into()),
            }
        }
    }
}

fn request_of(optimizer: &OptimizerItem, run: &PendingRun) -> SweepRequest {
    SweepRequest {
        run_id: run.run_id.clone(),
        table_id: Some(optimizer.table_id.clone()),
        database: optimizer.database.clone(),
        table: optimizer.table.clone(),
        mode: run.mode,
    }
}

/// What the planner did without a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineReport {
    /// Runs that came to their end.
    pub finished: u64,
    /// Runs that wait for the next time.
    pub waiting: u64,
}

/// Without a queue: works on the runs that wait, one after the other, in the time that is left. What does not get to its
/// end goes on the next time, from where it was.
///
/// # Errors
/// A store that does not answer, or an item that cannot be read; after all others have had their turn.
pub async fn work_pending(
    app: &App,
    directory: &dyn TableDirectory,
    deadline: Deadline,
) -> Result<InlineReport, SweepError> {
    let mut report = InlineReport::default();
    if app.settings.sweep_dispatch != SweepDispatch::Inline {
        return Ok(report);
    }
    let mut failed = None;
    for shard in 0..OPTIMIZER_SHARDS {
        let mut query = Query::new(Table::Catalog, OptimizerItem::partition(shard), SortRange::All);
        loop {
            let page = app.ports.items.query(&query).await?;
            for (_, item) in &page.items {
                let Ok(optimizer) = OptimizerItem::decode(item) else { continue };
                for run in &optimizer.pending {
                    match work_on(app, directory, &request_of(&optimizer, run), deadline).await {
                        Ok(true) => report.finished = report.finished.saturating_add(1),
                        Ok(false) => report.waiting = report.waiting.saturating_add(1),
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                break;
            }
        }
    }
    failed.map_or(Ok(report), Err)
}

/// One slice of a run; whether that was its end.
async fn work_on(
    app: &App,
    directory: &dyn TableDirectory,
    request: &SweepRequest,
    deadline: Deadline,
) -> Result<bool, SweepError> {
    if deadline.left_ms(app.ports.clock.as_ref()) < SLICE_MIN_MS {
        return Ok(false);
    }
    if let RunOutcome::Postponed(_) = sweep(app, directory, request, deadline).await? {
        return Ok(false);
    }
    let items = app.ports.items.as_ref();
    let table_id = request.table_id.as_deref().unwrap_or_default();
    for _ in 0..TRIES {
        let Some(optimizer) = OptimizerItem::load(items, table_id).await? else { return Ok(true) };
        let mut without = OptimizerItem { revision: app.ports.ids.uuid().simple().to_string(), ..optimizer.clone() };
        without.pending.retain(|run| run.run_id != request.run_id);
        match items.put(&OptimizerItem::key(table_id), without.encode(), optimizer.unchanged()).await {
            Ok(()) => return Ok(true),
            Err(WriteError::ConditionFailed { .. }) => {}
            Err(WriteError::Store(error)) => return Err(error.into()),
        }
    }
    // It has ended; the next pass finds it so and takes it out.
    Ok(true)
}

/// Sends the messages of an outbox and takes them out. Sending twice is harmless: a run is worked on once. Without a
/// queue they stay, for [`work_pending`].
async fn send_pending(app: &App, optimizer: &OptimizerItem) -> Result<(), SweepError> {
    if app.settings.sweep_dispatch == SweepDispatch::Inline {
        return Ok(());
    }
    for run in &optimizer.pending {
        app.ports.queue.send(QueueName::Sweeps, request_of(optimizer, run).encode(), 0).await?;
    }
    let mut emptied = OptimizerItem { pending: Vec::new(), ..optimizer.clone() };
    emptied.revision = app.ports.ids.uuid().simple().to_string();
    let key = OptimizerItem::key(&optimizer.table_id);
    match app.ports.items.put(&key, emptied.encode(), optimizer.unchanged()).await {
        // Somebody wrote in between: the next planner sends once more and takes them out.
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}
