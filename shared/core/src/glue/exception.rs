use std::fmt;

use serde_json::{Value, json};

use crate::store::{DecodeError, StoreError, StoreErrorKind};

/// Exceptions of the service model that Lakewarden raises, and the two generic ones of the JSON protocol
/// (`ValidationException`, `UnknownOperationException`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GlueExceptionName {
    AccessDenied,
    AlreadyExists,
    ConcurrentModification,
    EntityNotFound,
    GlueEncryption,
    InternalService,
    InvalidInput,
    InvalidState,
    OperationTimeout,
    ResourceNotReady,
    ResourceNumberLimitExceeded,
    Serialization,
    Throttling,
    UnknownOperation,
    /// Something that the service does and Lakewarden does not (yet); never answered wrongly instead.
    UnsupportedOperation,
    Validation,
}

impl GlueExceptionName {
    /// The name as it goes into `__type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDeniedException",
            Self::AlreadyExists => "AlreadyExistsException",
            Self::ConcurrentModification => "ConcurrentModificationException",
            Self::EntityNotFound => "EntityNotFoundException",
            Self::GlueEncryption => "GlueEncryptionException",
            Self::InternalService => "InternalServiceException",
            Self::InvalidInput => "InvalidInputException",
            Self::InvalidState => "InvalidStateException",
            Self::OperationTimeout => "OperationTimeoutException",
            Self::ResourceNotReady => "ResourceNotReadyException",
            Self::ResourceNumberLimitExceeded => "ResourceNumberLimitExceededException",
            Self::Serialization => "SerializationException",
            Self::Throttling => "ThrottlingException",
            Self::UnknownOperation => "UnknownOperationException",
            Self::UnsupportedOperation => "UnsupportedOperationException",
            Self::Validation => "ValidationException",
        }
    }

    /// Status on the Glue wire: 400 for everything that is the caller's fault (also not-found), 500 for ours.
    pub fn glue_status(self) -> u16 {
        if self == Self::InternalService { 500 } else { 400 }
    }

    /// Status on REST.
    pub fn rest_status(self) -> u16 {
        match self {
            Self::AccessDenied => 403,
            Self::EntityNotFound => 404,
            Self::AlreadyExists | Self::InvalidState | Self::ResourceNotReady => 409,
            Self::ConcurrentModification => 412,
            Self::InvalidInput | Self::Validation | Self::ResourceNumberLimitExceeded | Self::GlueEncryption => 422,
            Self::Serialization => 400,
            Self::UnknownOperation => 404,
            Self::Throttling => 429,
            Self::InternalService => 500,
            Self::UnsupportedOperation => 501,
            Self::OperationTimeout => 504,
        }
    }
}

/// A failure as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlueException {
    pub name: GlueExceptionName,
    pub message: String,
    /// What helps a person but may not stand in the message, because clients compare all of that.
    pub hint: Option<String>,
    /// What went wrong inside, for the log only.
    pub cause: Option<String>,
}

impl GlueException {
    pub fn new(name: GlueExceptionName, message: impl Into<String>) -> Self {
        Self { name, message: message.into(), hint: None, cause: None }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(GlueExceptionName::EntityNotFound, message)
    }

    pub fn already_exists(message: impl Into<String>) -> Self {
        Self::new(GlueExceptionName::AlreadyExists, message)
    }

    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(GlueExceptionName::InvalidInput, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(GlueExceptionName::UnsupportedOperation, message)
    }

    /// Anything unforeseen: the text says nothing of the inside, the cause goes to the log.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self {
            name: GlueExceptionName::InternalService,
            message: "Internal error; the request id finds it in the log.".to_owned(),
            hint: None,
            cause: Some(cause.to_string()),
        }
    }

    /// Body of the answer. The name must be in `__type`; clients read `Message` or `message` and ignore `Hint`.
    pub fn body(&self) -> Value {
        match &self.hint {
            None => json!({ "__type": self.name.as_str(), "Message": self.message }),
            Some(hint) => json!({ "__type": self.name.as_str(), "Message": self.message, "Hint": hint }),
        }
    }
}

impl fmt::Display for GlueException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name.as_str(), self.message)
    }
}

impl std::error::Error for GlueException {}

impl From<StoreError> for GlueException {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Throttled => Self {
                name: GlueExceptionName::Throttling,
                message: "Rate exceeded".to_owned(),
                hint: None,
                cause: Some(error.to_string()),
            },
            _ => Self::internal(error),
        }
    }
}

impl From<DecodeError> for GlueException {
    fn from(error: DecodeError) -> Self {
        match &error {
            DecodeError::Layout { .. } => Self {
                name: GlueExceptionName::InternalService,
                message: error.to_string(),
                hint: None,
                cause: Some(error.to_string()),
            },
            _ => Self::internal(error),
        }
    }
}
