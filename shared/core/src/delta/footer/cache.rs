//! Footers that were read lately. Data files never change, so a footer is good for as long as its object has the same
//! ETag; whether it still has is one HEAD, which the caller makes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::read::Footer;
use crate::store::{ObjectKey, Objects};

/// Memory that the footers of one store take.
const CACHE_MAX_BYTES: usize = 32 * 1024 * 1024;
/// A footer that takes more is not kept.
const FOOTER_KEPT_MAX_BYTES: usize = 1024 * 1024;

/// Footers by object, the oldest leaving first.
#[derive(Debug, Default)]
pub struct FooterCache {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    footers: HashMap<ObjectKey, (Arc<Footer>, usize)>,
    order: VecDeque<ObjectKey>,
    bytes: usize,
}

impl FooterCache {
    pub fn get(&self, at: &ObjectKey) -> Option<Arc<Footer>> {
        self.lock().footers.get(at).map(|(footer, _)| footer.clone())
    }

    pub fn put(&self, at: &ObjectKey, footer: &Arc<Footer>) {
        let bytes = footer.metadata.memory_size();
        if bytes > FOOTER_KEPT_MAX_BYTES {
            return;
        }
        let mut held = self.lock();
        held.remove(at);
        held.bytes = held.bytes.saturating_add(bytes);
        held.footers.insert(at.clone(), (footer.clone(), bytes));
        held.order.push_back(at.clone());
        while held.bytes > CACHE_MAX_BYTES {
            let Some(oldest) = held.order.pop_front() else { break };
            if let Some((_, bytes)) = held.footers.remove(&oldest) {
                held.bytes = held.bytes.saturating_sub(bytes);
            }
        }
    }

    pub fn forget(&self, at: &ObjectKey) {
        self.lock().remove(at);
    }

    /// Footers held, and the memory they take.
    pub fn size(&self) -> (usize, usize) {
        let held = self.lock();
        (held.footers.len(), held.bytes)
    }

    /// A panic elsewhere leaves at worst a footer too few.
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn remove(&mut self, at: &ObjectKey) {
        if let Some((_, bytes)) = self.footers.remove(at) {
            self.bytes = self.bytes.saturating_sub(bytes);
            self.order.retain(|other| other != at);
        }
    }
}

type Known = Vec<(Weak<dyn Objects>, Arc<FooterCache>)>;

static CACHES: Mutex<Known> = Mutex::new(Vec::new());

/// The cache of a store, one in the process for each; it goes with its store.
pub fn cache_of(objects: &Arc<dyn Objects>) -> Arc<FooterCache> {
    let mut known = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(store, _)| store.strong_count() > 0);
    let wanted = Arc::downgrade(objects);
    if let Some((_, cache)) = known.iter().find(|(store, _)| store.ptr_eq(&wanted)) {
        return cache.clone();
    }
    let cache = Arc::<FooterCache>::default();
    known.push((wanted, cache.clone()));
    cache
}
