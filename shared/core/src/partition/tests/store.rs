//! The in-memory store, with calls that take turns at random and fail at random. Everything repeats with the seed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use crate::store::memory::MemoryItems;
use crate::store::{
    BatchGet, CancelReason, Condition, Consistency, Item, ItemUsage, Items, Key, Page, Query, ReadItems, StoreError,
    StoreErrorKind, TransactError, Write, WriteError,
};

/// Numbers that look random.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    /// No effect.
    Fails(StoreErrorKind),
    /// An effect, and no answer.
    Lost,
}

pub(crate) struct Unsteady {
    inner: Arc<MemoryItems>,
    dice: Mutex<Dice>,
    /// So many of a hundred writes go wrong, and half as many reads.
    trouble_percent: u64,
}

impl Unsteady {
    pub(crate) fn new(inner: Arc<MemoryItems>, seed: u64, trouble_percent: u64) -> Self {
        Self { inner, dice: Mutex::new(Dice::new(seed)), trouble_percent }
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().unwrap().roll(sides)
    }

    async fn turn(&self) {
        for _ in 0..self.roll(4) {
            tokio::task::yield_now().await;
        }
    }

    async fn begin(&self, writes: bool) -> Fate {
        self.turn().await;
        if self.roll(if writes { 100 } else { 200 }) >= self.trouble_percent {
            return Fate::Fine;
        }
        match self.roll(4) {
            0 => Fate::Fails(StoreErrorKind::Throttled),
            1 if writes => Fate::Fails(StoreErrorKind::Conflict),
            2 => Fate::Fails(StoreErrorKind::Unavailable),
            _ => Fate::Lost,
        }
    }

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "unsteady", "at random")
    }

    async fn end<T, E: From<StoreError>>(&self, fate: Fate, answer: Result<T, E>) -> Result<T, E> {
        self.turn().await;
        match answer {
            Ok(_) if fate == Fate::Lost => Err(Self::error(StoreErrorKind::Unavailable).into()),
            answer => answer,
        }
    }
}

/// The body of every call: its turn, its fate, the call, its fate again.
macro_rules! unsteady {
    ($self:ident, $writes:expr, $call:expr) => {{
        let fate = $self.begin($writes).await;
        if let Fate::Fails(kind) = fate {
            return Err(Unsteady::error(kind).into());
        }
        let answer = $call.await;
        $self.end(fate, answer).await
    }};
}

#[async_trait]
impl ReadItems for Unsteady {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError> {
        unsteady!(self, false, self.inner.get(key, consistency))
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError> {
        unsteady!(self, false, self.inner.batch_get(keys, consistency))
    }

    async fn query(&self, query: &Query) -> Result<Page, StoreError> {
        // A listing that fails as a whole tells nothing.
        self.turn().await;
        self.inner.query(query).await
    }

    fn item_usage(&self) -> ItemUsage {
        self.inner.item_usage()
    }
}

#[async_trait]
impl Items for Unsteady {
    async fn put(&self, key: &Key, item: Item, condition: Condition) -> Result<(), WriteError> {
        unsteady!(self, true, self.inner.put(key, item, condition))
    }

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError> {
        unsteady!(self, true, self.inner.delete(key, condition))
    }

    async fn batch_delete(&self, keys: &[Key]) -> Result<Vec<Key>, StoreError> {
        unsteady!(self, true, self.inner.batch_delete(keys))
    }

    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        if self.roll(100) < self.trouble_percent {
            // As DynamoDB says it when another transaction holds one of the items.
            let mut reasons = vec![CancelReason::None; writes.len()];
            reasons[0] = CancelReason::Conflict;
            return Err(TransactError::Cancelled { reasons });
        }
        unsteady!(self, true, self.inner.transact(writes, token))
    }
}
