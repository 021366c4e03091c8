use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Source of identities and revisions. Nothing else in the product asks for randomness.
pub trait Ids: Send + Sync {
    fn uuid(&self) -> Uuid;
}

/// Random (version 4) ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    #[allow(clippy::disallowed_methods, reason = "this is the port")]
    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// Counting ids, so that tests and simulations repeat.
#[derive(Debug, Default)]
pub struct SequentialIds(AtomicU64);

impl Ids for SequentialIds {
    fn uuid(&self) -> Uuid {
        Uuid::from_u64_pair(0x4000, 0x8000_0000_0000_0000 | self.0.fetch_add(1, Ordering::Relaxed))
    }
}
