use thiserror::Error;

use super::avro::AvroError;
use crate::store::{ObjectKey, StoreError};

/// A table's files cannot all be named. Each of these ends a sweep before anything is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IcebergError {
    #[error("{what} at {at} does not exist, though the table's metadata names it")]
    Missing { what: &'static str, at: ObjectKey },
    #[error("{what} at {at} cannot be read: {message}")]
    Unreadable { what: &'static str, at: ObjectKey, message: String },
    #[error("{at} is of format version {version}; versions 1 to 3 are read")]
    UnknownVersion { at: ObjectKey, version: String },
    #[error("the table sets gc.enabled to `{0}`: its files may belong to other tables as well")]
    GcDisabled(String),
    #[error("{at} is encrypted ({what}): which files it names cannot be read")]
    Encrypted { at: ObjectKey, what: &'static str },
    #[error("`{path}`, named by {named_by}, is no S3 address: what it means cannot be told")]
    UnresolvedPath { path: String, named_by: ObjectKey },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IcebergError {
    pub(super) fn unreadable(what: &'static str, at: &ObjectKey, message: impl std::fmt::Display) -> Self {
        Self::Unreadable { what, at: at.clone(), message: message.to_string() }
    }
}

/// Carries an Avro failure or a domain failure out of the record loop.
#[derive(Debug)]
pub(super) enum RecordError {
    Avro(AvroError),
    Iceberg(IcebergError),
}

impl From<AvroError> for RecordError {
    fn from(error: AvroError) -> Self {
        RecordError::Avro(error)
    }
}

impl From<IcebergError> for RecordError {
    fn from(error: IcebergError) -> Self {
        RecordError::Iceberg(error)
    }
}

impl RecordError {
    pub(super) fn at(self, what: &'static str, at: &ObjectKey) -> IcebergError {
        match self {
            RecordError::Avro(error) => IcebergError::unreadable(what, at, error),
            RecordError::Iceberg(error) => error,
        }
    }
}
