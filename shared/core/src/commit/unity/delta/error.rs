use serde_json::json;

use super::super::{Answer, UnityError};
use crate::catalog::CatalogError;
use crate::commit::error::CommitError;

/// A call was not carried out; status and type as the API's specification has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct DeltaError {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl DeltaError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> DeltaError {
        DeltaError { status, kind, message: message.into() }
    }

    /// What was sent cannot be read, or says nothing that can be done.
    pub(super) fn bad_request(message: impl Into<String>) -> DeltaError {
        DeltaError::new(400, "BadRequestException", message)
    }

    /// It can be read, and is wrong.
    pub(super) fn invalid(message: impl Into<String>) -> DeltaError {
        DeltaError::new(400, "InvalidParameterValueException", message)
    }

    pub(super) fn other_format(message: impl Into<String>) -> DeltaError {
        DeltaError::new(400, "UnsupportedTableFormatException", message)
    }

    pub(super) fn no_catalog(message: impl Into<String>) -> DeltaError {
        DeltaError::new(404, "NoSuchCatalogException", message)
    }

    pub(super) fn no_table(message: impl Into<String>) -> DeltaError {
        DeltaError::new(404, "NoSuchTableException", message)
    }

    pub(super) fn version_conflict(message: impl Into<String>) -> DeltaError {
        DeltaError::new(409, "CommitVersionConflictException", message)
    }

    pub(super) fn requirement(message: impl Into<String>) -> DeltaError {
        DeltaError::new(409, "UpdateRequirementConflictException", message)
    }

    pub(super) fn exhausted(message: impl Into<String>) -> DeltaError {
        DeltaError::new(429, "ResourceExhaustedException", message)
    }

    /// Whether a commit was made is open.
    pub(super) fn unknown(message: impl Into<String>) -> DeltaError {
        DeltaError::new(500, "CommitStateUnknownException", message)
    }

    pub(super) fn not_implemented(message: impl Into<String>) -> DeltaError {
        DeltaError::new(501, "NotImplementedException", message)
    }

    pub(super) fn answer(self) -> Answer {
        let error = json!({"message": self.message, "type": self.kind, "code": self.status});
        Answer { status: self.status, body: json!({"error": error}) }
    }
}

/// What the older calls say with a code.
impl From<UnityError> for DeltaError {
    fn from(error: UnityError) -> DeltaError {
        let kind = match error.code {
            "INVALID_ARGUMENT" | "FAILED_PRECONDITION" => "InvalidParameterValueException",
            "NOT_FOUND" => "NotFoundException",
            "ALREADY_EXISTS" => "AlreadyExistsException",
            "RESOURCE_EXHAUSTED" => "ResourceExhaustedException",
            "PERMISSION_DENIED" => "PermissionDeniedException",
            "UNIMPLEMENTED" => "NotImplementedException",
            _ => "InternalServerErrorException",
        };
        DeltaError::new(error.status, kind, error.message)
    }
}

impl From<CatalogError> for DeltaError {
    fn from(error: CatalogError) -> DeltaError {
        let message = error.to_string();
        match error {
            CatalogError::DatabaseNotFound(_) => DeltaError::new(404, "NoSuchSchemaException", message),
            CatalogError::TableNotFound(_) => DeltaError::no_table(message),
            other => UnityError::from(other).into(),
        }
    }
}

impl From<CommitError> for DeltaError {
    fn from(error: CommitError) -> DeltaError {
        UnityError::from(error).into()
    }
}
