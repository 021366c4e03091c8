//! The ports in memory: for unit tests, simulation and the contract suite. Faults can be injected into every call.

mod clock;
mod faults;
mod items;
mod objects;
mod queue;

pub use clock::ManualClock;
pub use faults::{Fault, Faults};
pub use items::MemoryItems;
pub use objects::MemoryObjects;
pub use queue::MemoryQueue;

use std::sync::Arc;

use super::SequentialIds;
use crate::ports::{Ports, Settings};

/// Every port in memory, with handles to look inside.
#[derive(Clone)]
pub struct MemoryWorld {
    pub items: Arc<MemoryItems>,
    pub objects: Arc<MemoryObjects>,
    pub queue: Arc<MemoryQueue>,
    pub clock: Arc<ManualClock>,
    pub faults: Arc<Faults>,
    pub ports: Ports,
}

impl std::fmt::Debug for MemoryWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryWorld")
    }
}

impl MemoryWorld {
    /// An empty world at `now_ms`, with one fault plan for all its ports.
    pub fn new(now_ms: i64) -> Self {
        let faults = Arc::new(Faults::default());
        let clock = Arc::new(ManualClock::new(now_ms));
        let items = Arc::new(MemoryItems::new(faults.clone()));
        let objects = Arc::new(MemoryObjects::new(clock.clone(), faults.clone()));
        let queue = Arc::new(MemoryQueue::new(faults.clone()));
        let ports = Ports {
            items: items.clone(),
            objects: objects.clone(),
            queue: queue.clone(),
            clock: clock.clone(),
            ids: Arc::new(SequentialIds::default()),
            bodies: Settings::default().bodies,
        };
        Self { items, objects, queue, clock, faults, ports }
    }
}

/// A poisoned lock only means that a test panicked elsewhere; the data is plain.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
