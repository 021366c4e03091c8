//! Tables that this process has committed to lately, with their state decoded: the next commit needs no read of the head.
//!
//! What is remembered is never believed. A listing must show that the log still has the commit that the head names, and
//! the claim (or whatever else is written) demands the head's revision and that the proposal is new; where one of these
//! fails, everything is read. So a remembered table saves a read or costs one, and is never wrong. It is taken out when it
//! is used and put back after a commit of ours, so that a stale one is used once at most.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::view::View;
use crate::location::Location;

/// Tables remembered.
const TABLES_MAX: usize = 32;
/// All of them together, about.
const WEIGHT_MAX_BYTES: usize = 64 * 1024 * 1024;
/// A heavier table is not remembered.
const TABLE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Shared by all clones.
#[derive(Clone, Default)]
pub struct WarmTables(Arc<Mutex<VecDeque<Remembered>>>);

struct Remembered {
    view: View,
    weight_bytes: usize,
}

impl fmt::Debug for WarmTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarmTables")
    }
}

impl WarmTables {
    /// The table at `root`, which is forgotten hereby.
    pub fn take(&self, root: &Location) -> Option<View> {
        self.with(|tables| {
            let at = tables.iter().position(|known| known.view.root == *root)?;
            tables.remove(at).map(|known| known.view)
        })
    }

    /// Remembers a table whose head is settled, with what it takes to judge an append.
    pub fn put(&self, view: &View) {
        let view = view.lean();
        let weight_bytes = view.weight_bytes();
        self.with(|tables| {
            tables.retain(|known| known.view.root != view.root);
            if weight_bytes > TABLE_MAX_BYTES || view.head.claim.is_some() || view.head.managed.is_some() {
                return;
            }
            tables.push_back(Remembered { view, weight_bytes });
            let mut weight: usize = tables.iter().map(|known| known.weight_bytes).sum();
            while tables.len() > TABLES_MAX || weight > WEIGHT_MAX_BYTES {
                let Some(oldest) = tables.pop_front() else { break };
                weight = weight.saturating_sub(oldest.weight_bytes);
            }
        });
    }

    fn with<T>(&self, action: impl FnOnce(&mut VecDeque<Remembered>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
