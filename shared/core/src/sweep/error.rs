use std::fmt;

use thiserror::Error;

use super::DirectoryError;
use crate::iceberg::IcebergError;
use crate::store::{DecodeError, ObjectError, ObjectKey, StoreError, StoreErrorKind, WriteError};

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
    /// The quarantine is not apart from every table.
    QuarantineOverlap,
    /// What a run had stored of its orphans is gone.
    ProgressLost,
    /// Somebody asked for its end.
    Cancelled,
    /// The store lets nobody of ours look, or write.
    AccessDenied,
    /// There is no such bucket, and none can have that name.
    BucketMissing,
    /// The store refuses a request, however often it is made.
    StoreRefused,
    /// The store did not do what was asked at any of the tries.
    StoreUnavailable,
    /// An item of the sweep's own has a layout that is not known.
    ItemUnreadable,
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
            Self::QuarantineOverlap => "quarantine_overlap",
            Self::ProgressLost => "progress_lost",
            Self::Cancelled => "cancelled",
            Self::AccessDenied => "access_denied",
            Self::BucketMissing => "bucket_missing",
            Self::StoreRefused => "store_refused",
            Self::StoreUnavailable => "store_unavailable",
            Self::ItemUnreadable => "item_unreadable",
            Self::GaveUp => "gave_up",
        }
    }

    /// How a run ends that meets such a failure of a store; `None`: trying again may help.
    pub fn of_store(kind: StoreErrorKind) -> Option<Self> {
        match kind {
            StoreErrorKind::Throttled | StoreErrorKind::Unavailable | StoreErrorKind::Conflict => None,
            StoreErrorKind::AccessDenied => Some(Self::AccessDenied),
            StoreErrorKind::Missing => Some(Self::BucketMissing),
            StoreErrorKind::TooLarge | StoreErrorKind::Invalid => Some(Self::StoreRefused),
        }
    }
}

fn refusal_of(error: &StoreError) -> Option<Refusal> {
    RefusalReason::of_store(error.kind).map(|reason| Refusal::new(reason, error.to_string()))
}

/// A run ends here; nothing was deleted that was not proved before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusalReason,
    pub detail: String,
    /// The object that is not there, where that is the reason: it may come back.
    pub missing: Option<Box<ObjectKey>>,
}

impl Refusal {
    pub fn new(reason: RefusalReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), missing: None }
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

impl SweepError {
    /// A failure of the store of objects. What no further try can help is a refusal, of the table whose object it was.
    pub(super) fn of_objects(error: StoreError) -> Self {
        refusal_of(&error).map_or_else(|| error.into(), Self::Refused)
    }

    /// How a run ends that meets this; `None`: trying again may help.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            SweepError::Refused(refusal) => Some(refusal.clone()),
            SweepError::Store(error) => refusal_of(error),
            SweepError::Decode(_) => Some(Refusal::new(RefusalReason::ItemUnreadable, self.to_string())),
            SweepError::Interrupted(_) | SweepError::Message(_) => None,
        }
    }
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
            IcebergError::Store(error) => return Self::of_objects(error.clone()),
        };
        let mut refusal = Refusal::new(reason, error.to_string());
        if let IcebergError::Missing { at, .. } = error {
            refusal.missing = Some(Box::new(at));
        }
        refusal.into()
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
        let failed = |kind, error: ObjectError| StoreError::new(kind, "object request of a sweep", error.to_string());
        match error {
            ObjectError::Store(error) => Self::of_objects(error),
            ObjectError::NotFound(_) => Interruption::Changed("an object that was there a moment ago").into(),
            error @ (ObjectError::PreconditionFailed(_) | ObjectError::ConditionalConflict(_)) => {
                failed(StoreErrorKind::Conflict, error).into()
            }
            error @ ObjectError::InvalidRange(_) => Self::of_objects(failed(StoreErrorKind::Invalid, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_stores_are_tried_again_or_end_the_run() {
        let cases = [
            (StoreErrorKind::Throttled, None),
            (StoreErrorKind::Unavailable, None),
            (StoreErrorKind::Conflict, None),
            (StoreErrorKind::TooLarge, Some(RefusalReason::StoreRefused)),
            (StoreErrorKind::AccessDenied, Some(RefusalReason::AccessDenied)),
            (StoreErrorKind::Missing, Some(RefusalReason::BucketMissing)),
            (StoreErrorKind::Invalid, Some(RefusalReason::StoreRefused)),
        ];
        for (kind, expected) in cases {
            let error = StoreError::new(kind, "get s3://b/k", "why");
            assert_eq!(error.is_retryable(), expected.is_none(), "{kind:?}");
            // Of the catalog's items: a refusal for a run only, since whoever asks over HTTP has asked nothing wrong.
            let of_items = SweepError::from(error.clone());
            assert_eq!(of_items, SweepError::Store(error.clone()));
            assert_eq!(of_items.refusal().map(|refusal| refusal.reason), expected, "{kind:?}");
            // Of objects, by whichever way they come.
            let ways: [SweepError; 3] = [
                ObjectError::Store(error.clone()).into(),
                IcebergError::Store(error.clone()).into(),
                crate::delta::SnapshotError::Store(error.clone()).into(),
            ];
            for found in ways {
                match (expected, &found) {
                    (None, SweepError::Store(same)) => assert_eq!(same, &error),
                    (Some(reason), SweepError::Refused(refusal)) => {
                        assert_eq!(refusal.reason, reason);
                        assert!(refusal.detail.contains("get s3://b/k"), "{refusal}");
                    }
                    _ => panic!("{kind:?}: {found:?}"),
                }
            }
        }
    }

    #[test]
    fn other_answers_of_stores_are_sorted_as_well() {
        let at = || ObjectKey::new("b", "k");
        let reason = |error: ObjectError| SweepError::from(error).refusal().map(|refusal| refusal.reason);
        assert_eq!(reason(ObjectError::NotFound(at())), None);
        assert_eq!(reason(ObjectError::PreconditionFailed(at())), None);
        assert_eq!(reason(ObjectError::ConditionalConflict(at())), None);
        assert_eq!(reason(ObjectError::InvalidRange(at())), Some(RefusalReason::StoreRefused));
        let torn = SweepError::Decode(DecodeError::Missing("x".to_owned()));
        assert_eq!(torn.refusal().map(|refusal| refusal.reason), Some(RefusalReason::ItemUnreadable));
    }
}
