//! How failures of the catalog look on the wire.

use super::{GlueException, GlueExceptionName};
use crate::catalog::CatalogError;
use crate::store::{StoreError, StoreErrorKind};

/// Other transactions were at the same items in every attempt, and nothing was written.
fn busy(error: &StoreError) -> GlueException {
    GlueException {
        name: GlueExceptionName::ConcurrentModification,
        message: "This is being changed by others at this moment. Try again.".to_owned(),
        hint: None,
        cause: Some(error.to_string()),
    }
}

impl From<CatalogError> for GlueException {
    fn from(error: CatalogError) -> Self {
        use CatalogError as E;
        use GlueExceptionName as Name;
        let name = match &error {
            E::DatabaseNotFound(_)
            | E::TableNotFound(_)
            | E::PartitionNotFound
            | E::NotFound(_)
            | E::DroppedMeanwhile => Name::EntityNotFound,
            E::DatabaseExists | E::TableExists | E::PartitionExists | E::Exists(_) => Name::AlreadyExists,
            E::TableChanged | E::PartitionChanged | E::Contended(_) => Name::ConcurrentModification,
            E::ValuesMismatch | E::ForeignToken | E::Invalid(_) | E::Location(_) => Name::InvalidInput,
            E::StoredValue(error) => return error.clone().into(),
            E::OutOfTime => Name::OperationTimeout,
            E::LimitExceeded(_) => Name::ResourceNumberLimitExceeded,
            E::NotReady(_) => Name::ResourceNotReady,
            E::TooLarge { .. } | E::Unsupported(_) => Name::UnsupportedOperation,
            E::Broken(_) => return GlueException::internal(error),
            E::Store(error) if error.kind == StoreErrorKind::Conflict => return busy(error),
            E::Store(error) => return error.clone().into(),
            E::Decode(error) => return error.clone().into(),
        };
        GlueException::new(name, error.to_string())
    }
}
