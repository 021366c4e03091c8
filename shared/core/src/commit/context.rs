//! What every effect of the commit path shares: the application, the time left, and transactions that survive lost
//! answers.

use std::pin::pin;

use futures::future::{Either, select};

use super::error::CommitError;
use super::head::WorkerId;
use super::sync::PartitionSink;
use crate::ports::{App, Deadline, Ports};
use crate::store::{CancelReason, StoreError, StoreErrorKind, TransactError, Write};

/// Left before the platform's deadline when nothing new is begun.
pub const MARGIN_MS: i64 = 1_500;
/// Left before the deadline when a request that was not answered is given up.
const GIVE_UP_MS: i64 = 500;
/// Needed to claim, publish and record a version once it is begun.
pub const CLAIM_MS: i64 = 4_000;

/// Tries of one request that failed without a clear answer.
const TRIES: u32 = 4;
const FIRST_WAIT_MS: u64 = 25;

/// What becomes of the table's lease when a commit is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Nothing follows: the next worker may begin.
    Release,
    /// More commits of the table are at hand.
    Keep,
}

#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub app: &'a App,
    pub deadline: Deadline,
    pub sink: &'a dyn PartitionSink,
    /// This invocation, among those that may be at work on a table.
    pub worker: WorkerId,
    pub lease_end: LeaseEnd,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    Done,
    /// A condition did not hold; nothing was written. Reasons in the order of the writes.
    Refused(Vec<CancelReason>),
}

impl<'a> Context<'a> {
    pub fn new(app: &'a App, deadline: Deadline, sink: &'a dyn PartitionSink) -> Context<'a> {
        Context { app, deadline, sink, worker: WorkerId(app.ports.ids.uuid()), lease_end: LeaseEnd::Release }
    }

    pub fn ports(&self) -> &'a Ports {
        &self.app.ports
    }

    pub fn now_ms(&self) -> i64 {
        self.app.ports.clock.now_ms()
    }

    pub fn new_revision(&self) -> String {
        self.app.ports.ids.uuid().to_string()
    }

    /// Refuses to begin `step` unless `needed_ms` are left beyond the margin.
    pub fn check_time(&self, step: &'static str, needed_ms: i64) -> Result<(), CommitError> {
        let left_ms = self.deadline.left_ms(&*self.app.ports.clock);
        if left_ms < needed_ms.saturating_add(MARGIN_MS) {
            return Err(CommitError::OutOfTime { step, left_ms });
        }
        Ok(())
    }

    /// Gives a request up shortly before the deadline, when the platform is about to stop this process with whatever it has
    /// under way. The request may still have been carried out, or be carried out later.
    pub async fn before_deadline<T>(
        &self,
        step: &'static str,
        request: impl Future<Output = T> + Send,
    ) -> Result<T, CommitError> {
        let clock = &*self.app.ports.clock;
        let left_ms = self.deadline.left_ms(clock);
        let wait_ms = u64::try_from(left_ms.saturating_sub(GIVE_UP_MS)).unwrap_or(0);
        match select(pin!(request), pin!(clock.sleep_ms(wait_ms))).await {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right(_) => Err(CommitError::OutOfTime { step, left_ms: self.deadline.left_ms(clock) }),
        }
    }

    /// Waits before try `attempt` (from 0) of something.
    pub async fn back_off(&self, attempt: u32) {
        self.app.ports.clock.sleep_ms(FIRST_WAIT_MS.saturating_mul(1 << attempt.min(6))).await;
    }

    /// Carries out a transaction. A lost answer is met with the same request under the same token, and a refusal that
    /// finds our own writes in place counts as done: revisions are never used twice.
    pub async fn transact(&self, writes: &[Write]) -> Result<Transacted, CommitError> {
        let token = self.app.ports.ids.uuid().to_string();
        let mut last = StoreError::new(StoreErrorKind::Unavailable, "transact commits", "not tried");
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.back_off(attempt).await;
            }
            match self.app.ports.items.transact(writes, &token).await {
                Ok(()) => return Ok(Transacted::Done),
                Err(TransactError::Store(error)) if error.is_retryable() => last = error,
                Err(TransactError::Store(error)) => return Err(error.into()),
                Err(TransactError::Cancelled { reasons }) => {
                    if is_ours_already(writes, &reasons) {
                        return Ok(Transacted::Done);
                    }
                    if reasons.iter().any(|reason| matches!(reason, CancelReason::ConditionFailed { .. })) {
                        return Ok(Transacted::Refused(reasons));
                    }
                    let kind = if reasons.contains(&CancelReason::Conflict) {
                        StoreErrorKind::Conflict
                    } else {
                        StoreErrorKind::Invalid
                    };
                    last = StoreError::new(kind, "transact commits", format!("{reasons:?}"));
                    if kind == StoreErrorKind::Invalid {
                        return Err(last.into());
                    }
                }
            }
        }
        Err(last.into())
    }
}

/// Whether one of the conditions failed on exactly the item that we meant to write.
fn is_ours_already(writes: &[Write], reasons: &[CancelReason]) -> bool {
    writes.iter().zip(reasons).any(|(write, reason)| match (write, reason) {
        (Write::Put { item, .. }, CancelReason::ConditionFailed { old: Some(old) }) => old == item,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use crate::commit::error::CommitError;
    use crate::commit::tests::kit::Kit;

    #[tokio::test]
    async fn a_request_without_an_answer_is_given_up_before_the_deadline() {
        let kit = Kit::empty().await;
        let ctx = kit.ctx_for(10_000);
        assert_eq!(ctx.before_deadline("a put", async { 7 }).await, Ok(7));
        assert_eq!(ctx.deadline.left_ms(&*kit.table.world.clock), 10_000, "no time passed");
        let given_up = ctx.before_deadline("a put", std::future::pending::<()>()).await;
        assert_eq!(given_up, Err(CommitError::OutOfTime { step: "a put", left_ms: 500 }));
    }
}
