use thiserror::Error;

use crate::location::LocationError;
use crate::predicate::StoredValueError;
use crate::store::{DecodeError, StoreError};

/// Why an operation on databases, tables or partitions did not happen. The texts are the service's own where it is
/// known to have one (names as the caller sent them); clients compare them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogError {
    #[error("Database {0} not found.")]
    DatabaseNotFound(String),
    #[error("Table {0} not found.")]
    TableNotFound(String),
    #[error("Cannot find partition.")]
    PartitionNotFound,
    #[error("Database already exists.")]
    DatabaseExists,
    #[error("Table already exists.")]
    TableExists,
    #[error("Partition already exists.")]
    PartitionExists,
    /// UpdateTable named a version that is not the current one: somebody else was faster.
    #[error("Update table failed due to concurrent modifications.")]
    TableChanged,
    /// The caller read another revision than there is now.
    #[error("The partition was changed since the expected revision was read. Read it again and decide anew.")]
    PartitionChanged,
    /// Others were at the same thing all the time that there was; nothing was written.
    #[error("Others were changing the same thing all the time. Nothing was written: try again.")]
    OutOfTime,
    /// A limit on numbers of things; the text says which.
    #[error("{0}")]
    LimitExceeded(String),
    /// Others changed the same thing again and again while we tried.
    #[error("{0} is being changed by others at this moment. Try again.")]
    Contended(String),
    /// Something of the kind is there already; the text says what.
    #[error("{0}")]
    Exists(String),
    /// Something of the kind is not there; the text says what.
    #[error("{0}")]
    NotFound(String),
    /// Possible, but not before earlier work has been done.
    #[error("{0}")]
    NotReady(String),
    #[error("The number of partition keys do not match the number of partition values")]
    ValuesMismatch,
    #[error("{what} takes {size_bytes} bytes; more than {max_bytes} cannot be stored")]
    TooLarge { what: String, size_bytes: usize, max_bytes: usize },
    /// A part of it that is kept elsewhere is gone already.
    #[error("This was dropped while it was being read.")]
    DroppedMeanwhile,
    #[error("{0}")]
    Location(#[from] LocationError),
    /// The answer of a filter hangs on a value that cannot be read.
    #[error(transparent)]
    StoredValue(#[from] StoredValueError),
    #[error("The NextToken is not one of this listing. Start again without a token.")]
    ForeignToken,
    /// The request contradicts itself or the state of things; the text says how.
    #[error("{0}")]
    Invalid(String),
    /// The service does it and Lakewarden does not yet.
    #[error("{0}")]
    Unsupported(String),
    /// Items contradict each other: a defect.
    #[error("the catalog's items contradict each other: {0}")]
    Broken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}
