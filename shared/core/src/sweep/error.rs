use std::fmt;

use thiserror::Error;

use super::DirectoryError;
use crate::iceberg::IcebergError;
use crate::store::{DecodeError, ObjectError, StoreError, StoreErrorKind, WriteError};

/// Why a whole run is refused. The name goes into the run's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    GcDisabled,
    MetadataIncomplete,
    MetadataUnreadable,
    UnknownVersion,
    UnsupportedFeature,
    UnsupportedTable,
    Encrypted,
    UnresolvedPath,
    /// Another table's metadata lies in this table's metadata folder.
    ForeignTableUuid,
    PointerMovedBackwards,
    /// Another table at the same place, or around it, whose files cannot be told.
    SharedLocation,
    /// A staged commit without verdict that cannot be read.
    PendingUnreadable,
    LocationOutsideTable,
    /// The catalog and the table's own metadata disagree on where it lies.
    LocationMismatch,
    /// Another table that may need files here cannot be read.
    OtherTableUnreadable,
    /// A backfill is not of the scope that its dry run looked at.
    BackfillScope,
    /// A table was dropped so lately that it may be created again.
    GracePeriod,
    /// The clock here and that of the store are too far apart to tell how old a file is.
    ClockSkew,
    /// More orphans than a healthy table has.
    Fuse,
    TableUnknown,
    OptimizerMissing,
    OptimizerPaused,
    /// What a run had stored of its orphans is gone.
    ProgressLost,
    /// Somebody asked for its end.
    Cancelled,
    /// The time limit was met again and again without progress.
    GaveUp,
}

impl RefusalReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GcDisabled => "gc_disabled",
            Self::MetadataIncomplete => "metadata_incomplete",
            Self::MetadataUnreadable => "metadata_unreadable",
            Self::UnknownVersion => "unknown_version",
            Self::UnsupportedFeature => "unsupported_feature",
            Self::UnsupportedTable => "unsupported_table",
            Self::Encrypted => "encrypted",
            Self::UnresolvedPath => "unresolved_path",
            Self::ForeignTableUuid => "foreign_table_uuid",
            Self::PointerMovedBackwards => "pointer_moved_backwards",
            Self::SharedLocation => "shared_location",
            Self::PendingUnreadable => "pending_unreadable",
            Self::LocationOutsideTable => "location_outside_table",
            Self::LocationMismatch => "location_mismatch",
            Self::OtherTableUnreadable => "other_table_unreadable",
            Self::BackfillScope => "backfill_scope",
            Self::GracePeriod => "grace_period",
            Self::ClockSkew => "clock_skew",
            Self::Fuse => "fuse",
            Self::TableUnknown => "table_unknown",
            Self::OptimizerMissing => "optimizer_missing",
            Self::OptimizerPaused => "optimizer_paused",
            Self::ProgressLost => "progress_lost",
            Self::Cancelled => "cancelled",
            Self::GaveUp => "gave_up",
        }
    }
}

/// A run ends here; nothing was deleted that was not proved before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusalReason,
    pub detail: String,
}

impl Refusal {
    pub fn new(reason: RefusalReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
    }
}

/// Why an attempt stops although the run goes on: the message is to be delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    TimeLimit,
    /// Another worker sweeps this table until then.
    LeaseHeld {
        until_ms: i64,
    },
    /// Another worker has taken over.
    LeaseLost,
    /// The tables around, or the optimizer, changed while the run was under way: judge again from the start.
    Changed(&'static str),
    /// A commit or another writer is at work on an item that the run needs.
    Contended(&'static str),
}

impl Interruption {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::TimeLimit => "time_limit",
            Self::LeaseHeld { .. } => "lease_held",
            Self::LeaseLost => "lease_lost",
            Self::Changed(_) => "changed",
            Self::Contended(_) => "contended",
        }
    }
}

impl Interruption {
    /// How long to wait before the next attempt makes sense.
    pub fn wait_ms(&self, now_ms: i64) -> u64 {
        match self {
            Self::TimeLimit => 0,
            Self::LeaseHeld { until_ms } => u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(0),
            Self::LeaseLost | Self::Changed(_) | Self::Contended(_) => 30_000,
        }
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(what) | Self::Contended(what) => write!(f, "{}: {what}", self.as_str()),
            Self::LeaseHeld { until_ms } => write!(f, "{} until {until_ms}", self.as_str()),
            _ => f.write_str(self.as_str()),
        }
    }
}

/// An attempt did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    #[error("{0}")]
    Refused(Refusal),
    #[error("{0}")]
    Interrupted(Interruption),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an item of the sweep cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("a message of the sweep queue cannot be read: {0}")]
    Message(String),
}

impl From<Refusal> for SweepError {
    fn from(refusal: Refusal) -> Self {
        SweepError::Refused(refusal)
    }
}

impl From<Interruption> for SweepError {
    fn from(interruption: Interruption) -> Self {
        SweepError::Interrupted(interruption)
    }
}

impl From<DirectoryError> for SweepError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Store(error) => error.into(),
            DirectoryError::Unreadable(detail) => Refusal::new(RefusalReason::MetadataUnreadable, detail).into(),
        }
    }
}

impl From<IcebergError> for SweepError {
    fn from(error: IcebergError) -> Self {
        let reason = match &error {
            IcebergError::Missing { .. } => RefusalReason::MetadataIncomplete,
            IcebergError::Unreadable { .. } => RefusalReason::MetadataUnreadable,
            IcebergError::UnknownVersion { .. } => RefusalReason::UnknownVersion,
            IcebergError::GcDisabled(_) => RefusalReason::GcDisabled,
            IcebergError::Encrypted { .. } => RefusalReason::Encrypted,
            IcebergError::UnresolvedPath { .. } => RefusalReason::UnresolvedPath,
            IcebergError::Store(error) => return error.clone().into(),
        };
        Refusal::new(reason, error.to_string()).into()
    }
}

/// A conditional request on our own items or reports lost: somebody else is at work.
impl From<WriteError> for SweepError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConditionFailed { .. } => Interruption::LeaseLost.into(),
            WriteError::Store(error) => error.into(),
        }
    }
}

impl From<ObjectError> for SweepError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => error.into(),
            other => StoreError::new(StoreErrorKind::Invalid, "object request of a sweep", other.to_string()).into(),
        }
    }
}
