//! What a process may remember between requests: things that never change while they are there. One cache per item
//! store, so that two stores in one process (tests, the laptop) never see each other's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::TableId;
use super::page_token::TokenKeys;
use crate::partition::DescriptorCache;
use crate::store::Items;

/// The cache of one item store.
#[derive(Debug, Default)]
pub struct ProcessCache {
    pub(super) token_keys: Mutex<Option<TokenKeys>>,
    pub(crate) descriptors: Mutex<DescriptorCache>,
    /// Partitions created (less those deleted) that no batch has counted yet.
    pub(crate) uncounted: Mutex<HashMap<TableId, i64>>,
    /// Buckets in which tables are noted to have partitions outside their location.
    pub(crate) use_buckets: Mutex<HashSet<(TableId, String)>>,
}

type Entry = (Weak<dyn Items>, Arc<ProcessCache>);

static CACHES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// A poisoned lock only means that another thread panicked; the data is plain.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cache that belongs to `items`. A weak reference keeps the address from being used again.
pub fn cache_of(items: &Arc<dyn Items>) -> Arc<ProcessCache> {
    let mut caches = lock(&CACHES);
    caches.retain(|(store, _)| store.strong_count() > 0);
    let wanted = Arc::as_ptr(items).cast::<()>();
    if let Some((_, cache)) = caches.iter().find(|(store, _)| store.as_ptr().cast::<()>() == wanted) {
        return cache.clone();
    }
    let cache = Arc::new(ProcessCache::default());
    caches.push((Arc::downgrade(items), cache.clone()));
    cache
}
