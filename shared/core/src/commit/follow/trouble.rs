//! Why following a log does not go on.

use thiserror::Error;

use crate::catalog::CatalogError;
use crate::commit::error::CommitError;
use crate::commit::sync::SyncError;
use crate::delta::{PathError, SnapshotError};
use crate::store::{DecodeError, StoreError};

#[derive(Clone, Debug, PartialEq, Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Log(#[from] SnapshotError),
    #[error("a path of the log: {0}")]
    Path(#[from] PathError),
    /// What somebody has to correct.
    #[error("{0}")]
    Table(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Commit(error.into())
    }
}

impl From<DecodeError> for Trouble {
    fn from(error: DecodeError) -> Self {
        Trouble::Commit(error.into())
    }
}

impl Trouble {
    /// The log does not have what was asked for (any more).
    pub fn is_gap(&self) -> bool {
        matches!(self, Trouble::Log(SnapshotError::LogGap { .. } | SnapshotError::NoTable(_)))
    }
}

impl From<Trouble> for SyncError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Commit(error) if error.is_slowness() => SyncError::Slow(error),
            Trouble::Catalog(CatalogError::OutOfTime | CatalogError::Contended(_)) => {
                SyncError::Slow(CommitError::Contended { attempts: 1 })
            }
            other => SyncError::Failed(other.to_string()),
        }
    }
}
