//! One run of one table: from the message to the record.

mod attempt;
mod delete;
mod explain;
mod judge;
mod knowledge;
mod left;
mod others;
mod pace;
mod saving;
mod signs;
mod stored;
mod strangers;

use super::items::{Cancellation, Lease, Progress, RunRecord, RunState};
use super::source::entry_of;
use super::{Interruption, Refusal, RefusalReason, SweepError, SweepRequest, TableDirectory};
use crate::ports::{App, Deadline};

use attempt::Attempt;
pub use explain::explain_key;
pub(super) use left::forget as forget_dropped;

/// Attempts in a row that may end without having got any further.
const IDLE_ATTEMPTS_MAX: i64 = 20;

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
    let entry = directory.table(&request.database, &request.table).await?;
    let Some(table_id) = request.table_id.clone().or_else(|| entry.as_ref().map(|entry| entry.id.clone())) else {
        let detail = format!("there is no table {}.{}", request.database, request.table);
        return Ok(RunOutcome::Dropped(Refusal::new(RefusalReason::TableUnknown, detail)));
    };
    let mut record = match open_record(app, request, &table_id).await {
        Err(SweepError::Interrupted(why)) => return Ok(RunOutcome::Postponed(why)),
        other => other?,
    };
    if record.state.is_final() {
        return Ok(RunOutcome::AlreadyFinished);
    }
    // Only where a run was asked for in so many words: that a table is gone ends any other.
    let dropped = if record.options.dropped { left::find(app, &table_id).await? } else { None };
    let entry = dropped.as_ref().map(entry_of).or(entry);
    let now_ms = app.ports.clock.now_ms();
    let lease = match Lease::acquire(items, &table_id, &record.run_id, now_ms).await {
        Ok(lease) => lease,
        Err(SweepError::Interrupted(why)) => return Ok(RunOutcome::Postponed(why)),
        Err(error) => return Err(error),
    };
    record.state = RunState::Running;
    record.attempts = record.attempts.saturating_add(1);
    record.idle_attempts = record.idle_attempts.saturating_add(1);
    record.epoch = lease.epoch;
    record.started_ms = record.started_ms.or(Some(now_ms));
    record.reason = None;
    let mut attempt = Attempt::new(app, directory, deadline, record, lease, now_ms);
    attempt.dropped = dropped;
    let result = match attempt.save_record().await {
        Ok(()) => attempt.work(entry).await,
        Err(error) => Err(error),
    };
    settle(attempt, result).await
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
        Err(error) => Err(error),
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
    let has_work = attempt.blobs > 0 || attempt.record.progress.is_stored();
    attempt.record.progress = Progress::default();
    attempt.record.facts.live = None;
    attempt.put_page().await?;
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
