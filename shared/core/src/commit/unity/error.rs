use serde_json::json;

use super::Answer;
use crate::catalog::CatalogError;
use crate::commit::error::CommitError;
use crate::store::StoreErrorKind;

/// A call was not carried out; status and code as Unity Catalog's clients know them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnityError {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
}

impl UnityError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> UnityError {
        UnityError { status, code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> UnityError {
        UnityError::new(400, "INVALID_ARGUMENT", message)
    }

    /// What is asked for is right by itself, and something else has to happen first.
    pub(super) fn precondition(message: impl Into<String>) -> UnityError {
        UnityError::new(400, "FAILED_PRECONDITION", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> UnityError {
        UnityError::new(404, "NOT_FOUND", message)
    }

    pub(super) fn exists(message: impl Into<String>) -> UnityError {
        UnityError::new(409, "ALREADY_EXISTS", message)
    }

    pub(super) fn exhausted(message: impl Into<String>) -> UnityError {
        UnityError::new(429, "RESOURCE_EXHAUSTED", message)
    }

    pub(super) fn unimplemented(message: impl Into<String>) -> UnityError {
        UnityError::new(501, "UNIMPLEMENTED", message)
    }

    pub(super) fn answer(self) -> Answer {
        Answer { status: self.status, body: json!({"error_code": self.code, "message": self.message, "details": []}) }
    }
}

impl From<CatalogError> for UnityError {
    fn from(error: CatalogError) -> UnityError {
        let message = error.to_string();
        match error {
            CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_) | CatalogError::NotFound(_) => {
                UnityError::not_found(message)
            }
            CatalogError::DatabaseExists | CatalogError::TableExists | CatalogError::Exists(_) => {
                UnityError::exists(message)
            }
            CatalogError::Contended(_) | CatalogError::OutOfTime | CatalogError::TableChanged => {
                UnityError::new(503, "UNAVAILABLE", message)
            }
            CatalogError::Store(error) => CommitError::from(error).into(),
            CatalogError::LimitExceeded(_) => UnityError::exhausted(message),
            CatalogError::Broken(_) | CatalogError::Decode(_) => UnityError::new(500, "INTERNAL", message),
            _ => UnityError::invalid(message),
        }
    }
}

impl From<CommitError> for UnityError {
    fn from(error: CommitError) -> UnityError {
        let message = error.to_string();
        match &error {
            error if error.is_retryable() => {
                UnityError::new(503, "UNAVAILABLE", format!("{message}; the same call again is carried out once"))
            }
            CommitError::Store(store) if store.kind == StoreErrorKind::AccessDenied => {
                UnityError::new(403, "PERMISSION_DENIED", message)
            }
            CommitError::Store(store) if store.kind == StoreErrorKind::Missing => UnityError::not_found(message),
            _ => UnityError::new(500, "INTERNAL", message),
        }
    }
}
