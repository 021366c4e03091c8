use std::fmt;

/// What kind of trouble a store had; decides whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The service asked us to slow down.
    Throttled,
    /// No answer, or an answer that says nothing about whether the write happened.
    Unavailable,
    /// Another transaction touched the same item at the same moment.
    Conflict,
    /// A limit of the service was passed (item, transaction, batch size).
    TooLarge,
    AccessDenied,
    /// A table, bucket or queue that should be there is not.
    Missing,
    /// The request itself was refused; a defect on our side or a wrong setting.
    Invalid,
}

/// A store did not do what was asked. `Unavailable` leaves open whether a write happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    pub kind: StoreErrorKind,
    /// What was asked, with the name of the table, bucket or queue: `put catalog`, `get s3://b/k`.
    pub operation: String,
    pub message: String,
}

impl StoreError {
    pub fn new(kind: StoreErrorKind, operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, operation: operation.into(), message: message.into() }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Throttled | StoreErrorKind::Unavailable | StoreErrorKind::Conflict)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed ({:?}): {}", self.operation, self.kind, self.message)
    }
}

impl std::error::Error for StoreError {}
