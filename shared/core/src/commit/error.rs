use thiserror::Error;

use crate::location::LocationError;
use crate::store::{DecodeError, ObjectError, ObjectKey, StoreError, StoreErrorKind};

/// The commit path could not come to a verdict. Nothing is lost: the proposal stays staged and may be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Item(#[from] DecodeError),
    #[error(
        "ALLOTTED_TIME_EXCEEDED: {left_ms} ms are left, too few for {step}; the proposal stays staged and can be retried"
    )]
    OutOfTime { step: &'static str, left_ms: i64 },
    #[error("other commits won {attempts} times in a row; the proposal stays staged and can be retried")]
    Contended { attempts: u32 },
    #[error("a sweep (run {run}) holds the table's fence; the proposal stays staged and can be retried")]
    Fenced { run: String },
    /// Only saves work: nothing is wrong, and the same call goes through once the lease is over.
    #[error("another worker has the table until {until_ms}; the proposal stays staged and is tried again")]
    Leased { until_ms: i64 },
    #[error("there is no staged object at {0}")]
    StagedMissing(ObjectKey),
    #[error("{0} was replaced after the event; its own event will be judged")]
    StagedChanged(ObjectKey),
    #[error("a proposal cannot go from {from} to {to}")]
    IllegalEdge { from: &'static str, to: &'static str },
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("the catalog could not say where the table lies: {0}")]
    Catalog(String),
    #[error("the catalog does not follow the log: {0}")]
    Follow(String),
}

impl CommitError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            CommitError::Store(error) => error.is_retryable(),
            other => other.is_slowness(),
        }
    }

    /// Nothing failed: there was too little time, or others were at work. A new message goes on with it.
    pub fn is_slowness(&self) -> bool {
        matches!(
            self,
            CommitError::OutOfTime { .. }
                | CommitError::Contended { .. }
                | CommitError::Fenced { .. }
                | CommitError::Leased { .. }
        )
    }
}

impl From<ObjectError> for CommitError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => error.into(),
            ObjectError::ConditionalConflict(at) => {
                StoreError::new(StoreErrorKind::Conflict, format!("write {at}"), "another request was under way").into()
            }
            other => StoreError::new(StoreErrorKind::Invalid, "object request", other.to_string()).into(),
        }
    }
}
