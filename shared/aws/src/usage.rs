use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters behind a lock. A poisoned lock only means that a caller panicked elsewhere; the data is plain.
#[derive(Debug, Default)]
pub(crate) struct Meter<T>(Mutex<T>);

impl<T: Copy> Meter<T> {
    pub(crate) fn count(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
    }

    pub(crate) fn read(&self) -> T {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
