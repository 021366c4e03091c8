use std::io;
use std::path::PathBuf;

use s3s::{S3Error, S3ErrorCode};
use thiserror::Error;

use crate::exclusive::LockError;

/// A data folder could not be opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot open {}: {source}", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{} has schema version {found}, this program knows {known}; use the program that wrote it or another data folder", path.display())]
    SchemaVersion { path: PathBuf, found: String, known: u32 },
    #[error("{} is a SQLite file of something else; choose another data folder", path.display())]
    Foreign { path: PathBuf },
}

/// An operation did not happen: refused, or the machine let us down.
#[derive(Debug, Error)]
pub enum Failure {
    /// An answer of the S3 protocol.
    #[error("{}: {}", .0.code().as_str(), .0.message().unwrap_or("refused"))]
    Refused(#[from] S3Error),
    #[error("metadata database: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("what is stored about an object cannot be read: {0}")]
    Stored(#[from] serde_json::Error),
    #[error("a worker thread ended early: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl Failure {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Failure {
        let path = path.into();
        move |source| Failure::File { path, source }
    }
}

impl From<Failure> for S3Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refused) => refused,
            other => S3Error::with_message(S3ErrorCode::InternalError, other.to_string()),
        }
    }
}
