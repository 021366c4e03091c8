use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock;
use crate::store::{StoreError, StoreErrorKind};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call has no effect and fails.
    Before(StoreErrorKind),
    /// The call has its effect, but its answer is lost.
    After(StoreErrorKind),
}

#[derive(Debug)]
struct Rule {
    operation: String,
    skip: u64,
    fault: Fault,
}

/// A plan of faults, shared by the ports of one world. Operations are named `<verb> <table, object or queue>`:
/// `get catalog`, `transact commits`, `put s3://bucket/key`, `send sweeps`.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    calls: Mutex<Vec<String>>,
    crash_at: AtomicU64,
    count: AtomicU64,
    stale_reads: AtomicBool,
}

impl Faults {
    /// The call after `skip` more calls whose name starts with `operation` meets `fault`, once.
    pub fn inject(&self, operation: &str, skip: u64, fault: Fault) {
        lock(&self.rules).push(Rule { operation: operation.to_owned(), skip, fault });
    }

    /// The process dies after `calls` more calls: every later call fails until [`Faults::revive`].
    pub fn crash_after(&self, calls: u64) {
        self.crash_at.store(self.count.load(Ordering::SeqCst) + calls + 1, Ordering::SeqCst);
    }

    /// A new process starts.
    pub fn revive(&self) {
        self.crash_at.store(0, Ordering::SeqCst);
    }

    /// Eventually consistent reads answer what was there before the last write.
    pub fn set_stale_reads(&self, stale: bool) {
        self.stale_reads.store(stale, Ordering::SeqCst);
    }

    pub fn stale_reads(&self) -> bool {
        self.stale_reads.load(Ordering::SeqCst)
    }

    /// Names of all calls so far, in order.
    pub fn calls(&self) -> Vec<String> {
        lock(&self.calls).clone()
    }

    pub fn forget_calls(&self) {
        lock(&self.calls).clear();
    }

    /// Registers a call and answers its fate.
    pub(crate) fn enter(&self, operation: &str) -> Result<Option<StoreError>, StoreError> {
        lock(&self.calls).push(operation.to_owned());
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let crash_at = self.crash_at.load(Ordering::SeqCst);
        if crash_at != 0 && count >= crash_at {
            return Err(StoreError::new(StoreErrorKind::Unavailable, operation, "the process has crashed (injected)"));
        }
        let mut rules = lock(&self.rules);
        let mut hit = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            if !operation.starts_with(&rule.operation) {
                continue;
            }
            if rule.skip == 0 && hit.is_none() {
                hit = Some(index);
            } else {
                rule.skip = rule.skip.saturating_sub(1);
            }
        }
        match hit.map(|index| rules.remove(index).fault) {
            None => Ok(None),
            Some(Fault::Before(kind)) => Err(StoreError::new(kind, operation, "injected before the call")),
            Some(Fault::After(kind)) => Ok(Some(StoreError::new(kind, operation, "injected after the call"))),
        }
    }
}
