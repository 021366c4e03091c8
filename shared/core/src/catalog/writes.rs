//! Conditional writes whose answer may be lost. Every item that is written this way carries a `revision` that no other
//! write has, so a condition that fails on our own write is recognised as success.

use crate::ports::Ports;
use crate::store::{
    CancelReason, Condition, Fields, Item, Key, StoreError, StoreErrorKind, TransactError, Write, WriteError,
};

/// How often one write is sent.
const ATTEMPTS: u32 = 5;
const FIRST_WAIT_MS: u64 = 25;

/// A conditional write that did not happen because its condition does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What was there instead.
    Condition(Option<Item>),
    Store(StoreError),
}

fn same_revision(old: Option<&Item>, new: &Item) -> bool {
    let revision = |item: &Item| item.opt_text("revision").ok().flatten().map(str::to_owned);
    old.and_then(revision).is_some_and(|old| Some(old) == revision(new))
}

/// What is told of several attempts that all failed: the last one, unless an earlier one leaves open whether the write
/// happened. A caller that is told of a conflict may rely on it that nothing did.
#[derive(Default)]
struct Attempts {
    count: u32,
    open: Option<StoreError>,
}

impl Attempts {
    /// Whether another attempt is worth it; else what to tell.
    fn failed(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.count += 1;
        if error.kind == StoreErrorKind::Unavailable {
            self.open.get_or_insert_with(|| error.clone());
        }
        if error.is_retryable() && self.count < ATTEMPTS { Ok(()) } else { Err(self.open.take().unwrap_or(error)) }
    }

    async fn pause(&self, ports: &Ports) {
        pause(ports, self.count.saturating_sub(1)).await;
    }
}

async fn pause(ports: &Ports, attempt: u32) {
    ports.clock.sleep_ms(FIRST_WAIT_MS << attempt.min(6)).await;
}

/// Puts an item with a fresh `revision`, again and again while the store is busy or silent.
pub async fn put(ports: &Ports, key: &Key, item: &Item, condition: &Condition) -> Result<(), Refused> {
    let mut attempts = Attempts::default();
    loop {
        match ports.items.put(key, item.clone(), condition.clone()).await {
            Ok(()) => return Ok(()),
            Err(WriteError::ConditionFailed { old }) if same_revision(old.as_ref(), item) => return Ok(()),
            Err(WriteError::ConditionFailed { old }) => return Err(Refused::Condition(old)),
            Err(WriteError::Store(error)) => attempts.failed(error).map_err(Refused::Store)?,
        }
        attempts.pause(ports).await;
    }
}

/// A transaction that did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Some condition did not hold: read again and decide anew.
    Conditions,
    Store(StoreError),
}

/// Carries out a transaction, again while the store is busy, silent, or another transaction is at the same items.
pub async fn transact(ports: &Ports, writes: &[Write]) -> Result<(), Cancelled> {
    let token = ports.ids.uuid().simple().to_string();
    let mut attempts = Attempts::default();
    loop {
        let error = match ports.items.transact(writes, &token).await {
            Ok(()) => return Ok(()),
            Err(TransactError::Cancelled { reasons }) => match judge(writes, &reasons) {
                Judged::Done => return Ok(()),
                Judged::Refused => return Err(Cancelled::Conditions),
                Judged::Busy(message) => StoreError::new(StoreErrorKind::Conflict, "transact catalog", message),
            },
            Err(TransactError::Store(error)) => error,
        };
        attempts.failed(error).map_err(Cancelled::Store)?;
        attempts.pause(ports).await;
    }
}

enum Judged {
    /// It is our own earlier attempt that stands in the way.
    Done,
    Refused,
    Busy(String),
}

fn judge(writes: &[Write], reasons: &[CancelReason]) -> Judged {
    let ours = writes.iter().zip(reasons).any(|(write, reason)| match (write, reason) {
        (Write::Put { item, .. }, CancelReason::ConditionFailed { old }) => same_revision(old.as_ref(), item),
        _ => false,
    });
    if ours {
        return Judged::Done;
    }
    if reasons.iter().any(|reason| matches!(reason, CancelReason::ConditionFailed { .. })) {
        return Judged::Refused;
    }
    // Never the items themselves: they are the callers' data.
    let busy = reasons.iter().filter(|reason| **reason != CancelReason::None).count();
    Judged::Busy(format!("other transactions are at work on {busy} of {} items", writes.len()))
}
