//! One run of one table: from the message to the record.

mod attempt;
mod delete;
mod explain;
mod judge;
mod knowledge;
mod left;
mod others;
mod pace;
mod quarantine;
mod restore;
mod saving;
mod signs;
mod stored;
mod strangers;
mod unsure;

use super::items::{Cancellation, Lease, OptimizerItem, Progress, RunRecord, RunState};
use super::source::entry_of;
use super::{Interruption, Mode, Refusal, RefusalReason, SweepError, SweepRequest, TableDirectory};
use crate::ports::{App, Deadline};
use crate::store::{Consistency, Direction, Query, SortRange, Table};

use attempt::Attempt;
pub use explain::explain_key;
pub(super) use left::forget as forget_dropped;
use stored::forget_work_of;

/// Attempts in a row that may end without having got any further.
const IDLE_ATTEMPTS_MAX: i64 = 20;
/// A run that was begun, and of which nothing was heard for so long, has no worker and no message: attempts take minutes.
const STALE_MS: i64 = 24 * 3_600_000;
/// One that was not begun may wait in the queue, which keeps messages for so long.
const UNBEGUN_MS: i64 = 14 * 24 * 3_600_000;
/// Newest runs among which such are looked for.
const STALE_LOOK: usize = 25;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Completed, or refused for good: the record says which.
    Finished(Box<RunRecord>),
    /// An earlier delivery finished it.
    AlreadyFinished,
    /// To be delivered again.
    Postponed(Interruption),
    /// There is no such table, nor a record to say so in.
    Dropped(Refusal),
}

/// Works on a run until it is done, refused, or out of time. Delivering the same message again continues it; doing so
/// while another worker is at it, or after its end, changes nothing.
///
/// # Errors
/// A store that does not answer, or an item that cannot be read: deliver the message again.
pub async fn sweep(
    app: &App,
    directory: &dyn TableDirectory,
    request: &SweepRequest,
    deadline: Deadline,
) -> Result<RunOutcome, SweepError> {
    let items = app.ports.items.as_ref();
    let (entry, unread) = match directory.table(&request.database, &request.table).await {
        Ok(entry) => (entry, None),
        // The run says so, if it is known which one that is.
        Err(error) if request.table_id.is_some() => (None, Some(SweepError::from(error))),
        Err(error) => return Err(error.into()),
    };
    let Some(table_id) = request.table_id.clone().or_else(|| entry.as_ref().map(|entry| entry.id.clone())) else {
        let detail = format!("there is no table {}.{}", request.database, request.table);
        return Ok(RunOutcome::Dropped(Refusal::new(RefusalReason::TableUnknown, detail)));
    };
    let mut record = match open_record(app, request, &table_id).await {
        Err(SweepError::Interrupted(why)) => return Ok(RunOutcome::Postponed(why)),
        other => other?,
    };
    if record.state.is_final() {
        // The worker that ended it may have ended itself before it had tidied up.
        forget_work_of(app, &record).await?;
        return Ok(RunOutcome::AlreadyFinished);
    }
    // Only where a run was asked for in so many words: that a table is gone ends any other.
    let dropped = match record.options.dropped {
        true => left::find(app, &table_id).await,
        false => Ok(None),
    };
    let dropped = match dropped {
        Ok(dropped) => dropped,
        Err(error) => return end_unbegun(app, record, error).await,
    };
    let entry = dropped.as_ref().map(entry_of).or(entry);
    let now_ms = app.ports.clock.now_ms();
    let lease = match Lease::acquire(items, &table_id, &record.run_id, now_ms).await {
        Ok(lease) => lease,
        Err(SweepError::Interrupted(why)) => return Ok(RunOutcome::Postponed(why)),
        Err(error) => return end_unbegun(app, record, error).await,
    };
    // Whoever stops in good order says why.
    if record.state == RunState::Running && record.reason.is_none() {
        record.lost_attempts = record.lost_attempts.saturating_add(1);
    }
    record.state = RunState::Running;
    record.attempts = record.attempts.saturating_add(1);
    record.idle_attempts = record.idle_attempts.saturating_add(1);
    record.epoch = lease.epoch;
    record.started_ms = record.started_ms.or(Some(now_ms));
    record.reason = None;
    let mut attempt = Attempt::new(app, directory, deadline, record, lease, now_ms);
    attempt.dropped = dropped;
    let result = match (attempt.save_record().await, unread) {
        (Ok(()), None) if attempt.record.mode == Mode::Restore => attempt.restore_all(entry).await,
        (Ok(()), None) => attempt.work(entry).await,
        (Ok(()), Some(error)) | (Err(error), _) => Err(error),
    };
    settle(attempt, result).await
}

/// Ends a run whose message is not delivered any more, because each delivery failed, the last one by `error`: nobody would
/// work on it again. Answers whether there was such a run.
///
/// # Errors
/// As [`sweep`]; another worker that is at the table counts as well.
pub async fn give_up(
    app: &App,
    directory: &dyn TableDirectory,
    request: &SweepRequest,
    error: &SweepError,
) -> Result<bool, SweepError> {
    let items = app.ports.items.as_ref();
    let Some(table_id) = &request.table_id else { return Ok(false) };
    let Some(record) = RunRecord::load(items, table_id, &request.run_id).await? else { return Ok(false) };
    if record.state.is_final() {
        return Ok(true);
    }
    let now_ms = app.ports.clock.now_ms();
    let lease = Lease::acquire(items, table_id, &record.run_id, now_ms).await?;
    let mut attempt = Attempt::new(app, directory, Deadline(i64::MAX), record, lease, now_ms);
    attempt.has_work_of_others = true;
    let detail = format!("the store failed at every try; the last one ended by: {error}");
    settle(attempt, Err(Refusal::new(RefusalReason::StoreUnavailable, detail).into())).await.map(|_| true)
}

/// Ends the runs of a table that nobody gets on with any more: their messages were lost, or are dead letters. Those
/// that wait with the optimizer are not lost.
pub(super) async fn end_stale(app: &App, optimizer: &OptimizerItem) -> Result<(), SweepError> {
    let (ports, table_id) = (&app.ports, optimizer.table_id.as_str());
    let query = Query {
        direction: Direction::Descending,
        limit: Some(STALE_LOOK),
        consistency: Consistency::Strong,
        ..Query::new(Table::Catalog, RunRecord::partition(table_id), SortRange::All)
    };
    let now_ms = ports.clock.now_ms();
    for (key, item) in &ports.items.query(&query).await?.items {
        let run_id = String::from_utf8_lossy(key.sk.as_bytes()).into_owned();
        if optimizer.pending.iter().any(|run| run.run_id == run_id) {
            continue;
        }
        // One that cannot be read is shown to whoever lists the runs, and harms no other.
        let Ok(mut record) = RunRecord::decode(table_id, &run_id, item) else { continue };
        let patience_ms = if record.state == RunState::Queued { UNBEGUN_MS } else { STALE_MS };
        if record.state.is_final() || now_ms.saturating_sub(record.heard_ms()) < patience_ms {
            continue;
        }
        let known = record.reason.as_deref().unwrap_or("nothing is known of why");
        let detail = format!("no worker has got on with it for long ({known}): its message was lost or given up");
        record.fail(&Refusal::new(RefusalReason::GaveUp, detail), now_ms);
        record.progress = Progress::default();
        match record.save(ports.items.as_ref(), ports.ids.as_ref()).await {
            // No worker lives for so long: what slices have stored is for nobody.
            Ok(()) if record.started_ms.is_some() => forget_work_of(app, &record).await?,
            // Somebody has got on with it this very moment.
            Ok(()) | Err(SweepError::Interrupted(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a run that cannot begin, for a reason that stays.
async fn end_unbegun(app: &App, mut record: RunRecord, error: SweepError) -> Result<RunOutcome, SweepError> {
    let Some(refusal) = error.refusal() else { return Err(error) };
    record.fail(&refusal, app.ports.clock.now_ms());
    record.save(app.ports.items.as_ref(), app.ports.ids.as_ref()).await?;
    Ok(RunOutcome::Finished(Box::new(record)))
}

async fn open_record(app: &App, request: &SweepRequest, table_id: &str) -> Result<RunRecord, SweepError> {
    let items = app.ports.items.as_ref();
    if let Some(record) = RunRecord::load(items, table_id, &request.run_id).await? {
        return Ok(record);
    }
    // A message that somebody wrote by hand.
    let revision = app.ports.ids.uuid().simple().to_string();
    let record = RunRecord::queued(request, table_id, app.ports.clock.now_ms(), revision);
    if record.create(items).await? {
        return Ok(record);
    }
    Err(Interruption::Contended("the record of the run").into())
}

/// Writes down how an attempt ended and gives the lease back.
async fn settle(mut attempt: Attempt<'_>, result: Result<(), SweepError>) -> Result<RunOutcome, SweepError> {
    let now_ms = attempt.app.ports.clock.now_ms();
    let outcome = match result {
        Ok(()) => {
            attempt.record.state = RunState::Completed;
            attempt.record.ended_ms = Some(now_ms);
            finish(&mut attempt).await
        }
        Err(SweepError::Refused(refusal)) => {
            attempt.fail(&refusal, now_ms);
            finish(&mut attempt).await
        }
        Err(SweepError::Interrupted(why)) if attempt.has_given_up() => {
            let detail = format!("{IDLE_ATTEMPTS_MAX} attempts made no progress; the last one ended by: {why}");
            attempt.fail(&Refusal::new(RefusalReason::GaveUp, detail), now_ms);
            finish(&mut attempt).await
        }
        // The record belongs to somebody else by now.
        Err(SweepError::Interrupted(Interruption::LeaseLost)) => Ok(RunOutcome::Postponed(Interruption::LeaseLost)),
        Err(SweepError::Interrupted(why)) => {
            // What was judged rested on what is not so any more.
            if matches!(why, Interruption::Changed(_)) {
                attempt.start_over();
            }
            attempt.record.reason = Some(why.as_str().to_owned());
            attempt.save_record().await.map(|()| RunOutcome::Postponed(why))
        }
        Err(error) => match error.refusal() {
            Some(refusal) => {
                attempt.fail(&refusal, now_ms);
                finish(&mut attempt).await
            }
            None if attempt.has_given_up() => {
                let detail = format!("{IDLE_ATTEMPTS_MAX} attempts made no progress; the last one ended by: {error}");
                attempt.fail(&Refusal::new(RefusalReason::StoreUnavailable, detail), now_ms);
                finish(&mut attempt).await
            }
            None => Err(error),
        },
    };
    let released = attempt.lease.release(attempt.app.ports.items.as_ref()).await;
    match outcome {
        // What is written stands; an unreleased lease runs out by itself.
        Ok(outcome) => Ok(outcome),
        Err(SweepError::Interrupted(why)) => released.map(|()| RunOutcome::Postponed(why)),
        Err(error) => Err(error),
    }
}

/// Ends the run, and then removes what only its slices needed.
async fn finish(attempt: &mut Attempt<'_>) -> Result<RunOutcome, SweepError> {
    // A worker that died may have stored what no record names.
    let has_work = attempt.blobs > 0 || attempt.record.attempts > 1 || attempt.has_work_of_others;
    let has_work = has_work || attempt.record.progress.is_stored();
    attempt.record.progress = Progress::default();
    attempt.record.facts.live = None;
    if let Err(error) = attempt.put_page().await {
        // The record says how it ended, also where nothing can be written beside it.
        let Some(refusal) = error.refusal() else { return Err(error) };
        attempt.record.facts.find(format!("the page of this run could not be written: {refusal}"));
    }
    attempt.save_record().await?;
    if attempt.record.reason.as_deref() == Some(RefusalReason::Cancelled.as_str()) {
        let record = &attempt.record;
        Cancellation::forget(attempt.app.ports.items.as_ref(), &record.table_id, &record.run_id).await?;
    }
    if has_work {
        attempt.forget_work().await?;
    }
    if let Some(dropped) = &attempt.dropped {
        left::forget_if_gone(attempt.app, dropped, &attempt.record).await?;
    }
    Ok(RunOutcome::Finished(Box::new(attempt.record.clone())))
}
