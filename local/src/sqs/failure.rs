use std::path::PathBuf;

use lakewarden_core::store::{StoreError, StoreErrorKind};
use thiserror::Error;

use crate::exclusive::LockError;

/// The queues could not be opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot open {}: {source}", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{} has schema version {found}, this program knows {known}; use the program that wrote it or another data folder", path.display())]
    SchemaVersion { path: PathBuf, found: String, known: u32 },
    #[error("{} is a SQLite file of something else; choose another data folder", path.display())]
    Foreign { path: PathBuf },
}

/// An operation on a queue did not happen.
#[derive(Debug, Error)]
pub enum QueueFailure {
    #[error("there is no queue {0}")]
    NoSuchQueue(String),
    #[error("the message has {size_bytes} bytes, more than {max_bytes}")]
    TooLarge { size_bytes: usize, max_bytes: usize },
    #[error(
        "the message is empty or has characters other than #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD and above"
    )]
    InvalidContents,
    #[error("{what} must be at most {max_ms} ms, not {given_ms}")]
    TooLong { what: &'static str, given_ms: u64, max_ms: u64 },
    #[error("the message is not in flight under this receipt: it was deleted, received again, or is a dead letter")]
    NotInFlight,
    #[error("queue database: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("what is stored about a message cannot be read: {0}")]
    Stored(#[from] serde_json::Error),
    #[error("a worker thread ended early: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl QueueFailure {
    /// In the terms of the port.
    pub(super) fn into_store_error(self, operation: String) -> StoreError {
        let kind = match self {
            QueueFailure::NoSuchQueue(_) => StoreErrorKind::Missing,
            QueueFailure::TooLarge { .. } => StoreErrorKind::TooLarge,
            QueueFailure::InvalidContents | QueueFailure::TooLong { .. } | QueueFailure::NotInFlight => {
                StoreErrorKind::Invalid
            }
            QueueFailure::Database(_) | QueueFailure::Stored(_) | QueueFailure::Worker(_) => {
                StoreErrorKind::Unavailable
            }
        };
        StoreError::new(kind, operation, self.to_string())
    }
}
