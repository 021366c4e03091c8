use async_trait::async_trait;

use super::{StoreError, StoreErrorKind};
use crate::limits;

/// The queues of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueName {
    /// Staged commits to judge, and what else a writer waits for.
    Commits,
    /// What others put into logs, and what is due for them from time to time: nobody waits for it.
    LogWork,
    /// Tables, or slices of tables, to sweep.
    Sweeps,
    /// Background work of the catalog.
    CatalogWork,
}

impl QueueName {
    pub const ALL: [QueueName; 4] = [QueueName::Commits, QueueName::LogWork, QueueName::Sweeps, QueueName::CatalogWork];

    pub fn as_str(self) -> &'static str {
        match self {
            QueueName::Commits => "commits",
            QueueName::LogWork => "log-work",
            QueueName::Sweeps => "sweeps",
            QueueName::CatalogWork => "catalog-work",
        }
    }
}

/// Sending only: receiving is the platform's business (SQS event source, or the laptop's dispatcher).
#[async_trait]
pub trait Queue: Send + Sync {
    /// Sends one message (JSON text, at most 256 KiB). Delivery is at least once and unordered.
    /// `delay_ms` is rounded up to whole seconds, at most 15 minutes.
    async fn send(&self, queue: QueueName, body: String, delay_ms: u64) -> Result<(), StoreError>;
}

/// Refuses a message that SQS refuses.
pub fn check_message(body: &str, delay_ms: u64, operation: &str) -> Result<(), StoreError> {
    if body.len() > limits::MESSAGE_MAX_BYTES {
        let message = format!("message of {} bytes; at most {} are allowed", body.len(), limits::MESSAGE_MAX_BYTES);
        return Err(StoreError::new(StoreErrorKind::TooLarge, operation, message));
    }
    if body.is_empty() || delay_ms > limits::MESSAGE_MAX_DELAY_MS {
        let message = "a message has at least one byte and waits 15 minutes at most";
        return Err(StoreError::new(StoreErrorKind::Invalid, operation, message));
    }
    Ok(())
}
