//! What a proposal's author is told.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::proposal::{Proposal, Status, SyncState};
use super::row_level::merge::SameRows;
use crate::delta::Version;

/// Longest text of a message; commits can carry paths of any length.
const TEXT_MAX_CHARS: usize = 2_000;

/// The exception that a Delta writer would raise for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exception {
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentDeleteDeleteException,
    MetadataChangedException,
    ProtocolChangedException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    /// The data does not fit the table's schema.
    SchemaMismatchException,
    /// The commit itself is malformed or breaks a rule of the table.
    InvalidCommitException,
    /// The table needs something that this version cannot verify.
    UnsupportedTableException,
    /// The same id was used for other content.
    ProposalReusedException,
    /// The table at this place is another one by now.
    TableReplacedException,
    /// The log cannot be read.
    DamagedLogException,
}

/// What kind of refusal it is; decides the status of an HTTP answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Somebody else's commit is in the way: read the table again and retry.
    Conflict,
    /// The commit is wrong by itself.
    Invalid,
}

impl Exception {
    pub fn kind(self) -> RefusalKind {
        match self {
            Exception::ConcurrentAppendException
            | Exception::ConcurrentDeleteReadException
            | Exception::ConcurrentDeleteDeleteException
            | Exception::MetadataChangedException
            | Exception::ProtocolChangedException
            | Exception::ConcurrentTransactionException
            | Exception::ConcurrentWriteException
            | Exception::ProposalReusedException
            | Exception::TableReplacedException => RefusalKind::Conflict,
            Exception::SchemaMismatchException
            | Exception::InvalidCommitException
            | Exception::UnsupportedTableException
            | Exception::DamagedLogException => RefusalKind::Invalid,
        }
    }

    /// Delta's error class, where a refusal does not name a finer one.
    pub fn error_class(self) -> &'static str {
        match self {
            Exception::ConcurrentAppendException => "DELTA_CONCURRENT_APPEND",
            Exception::ConcurrentDeleteReadException => "DELTA_CONCURRENT_DELETE_READ",
            Exception::ConcurrentDeleteDeleteException => "DELTA_CONCURRENT_DELETE_DELETE",
            Exception::MetadataChangedException => "DELTA_METADATA_CHANGED",
            Exception::ProtocolChangedException => "DELTA_PROTOCOL_CHANGED",
            Exception::ConcurrentTransactionException => "DELTA_CONCURRENT_TRANSACTION",
            Exception::ConcurrentWriteException => "DELTA_CONCURRENT_WRITE",
            Exception::SchemaMismatchException => "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH",
            Exception::InvalidCommitException => "LAKEWARDEN_INVALID_COMMIT",
            Exception::UnsupportedTableException => "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            Exception::ProposalReusedException => "LAKEWARDEN_PROPOSAL_REUSED",
            Exception::TableReplacedException => "LAKEWARDEN_TABLE_REPLACED",
            Exception::DamagedLogException => "DELTA_TXN_LOG_FAILED_INTEGRITY",
        }
    }
}

/// The commit that is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Winner {
    pub version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// Where in the commit the trouble is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Where rows are the trouble and it is known which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowRange>,
}

/// Rows of a file, counted from 0; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRange {
    pub first: u64,
    pub last: u64,
}

/// Why a proposal was not committed. One pointer wide, since it travels in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refusal(Box<RefusalText>);

impl Deref for Refusal {
    type Target = RefusalText;

    fn deref(&self) -> &RefusalText {
        &self.0
    }
}

impl DerefMut for Refusal {
    fn deref_mut(&mut self) -> &mut RefusalText {
        &mut self.0
    }
}

/// What a refusal says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalText {
    pub exception: Exception,
    pub error_class: String,
    /// One of a fixed list of names in capitals.
    pub reason: String,
    pub message: String,
    /// What to do now.
    pub advice: String,
    pub place: Place,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<Winner>,
    /// Rows that a winner changed, too; the first files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_rows: Vec<SameRows>,
    /// Further problems of the same kind, one text each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
}

impl Refusal {
    pub fn new(exception: Exception, reason: &str, message: impl Into<String>, advice: &str) -> Refusal {
        Refusal(Box::new(RefusalText {
            exception,
            error_class: exception.error_class().to_owned(),
            reason: reason.to_owned(),
            message: clip(&message.into()),
            advice: advice.to_owned(),
            place: Place::default(),
            winner: None,
            same_rows: Vec::new(),
            more: Vec::new(),
        }))
    }

    /// A malformed commit, with advice that says to fix and stage it anew.
    pub fn invalid(reason: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(
            Exception::InvalidCommitException,
            reason,
            message,
            "correct the commit and stage it under a new id",
        )
    }

    pub fn class(mut self, class: &str) -> Refusal {
        self.error_class = class.to_owned();
        self
    }

    pub fn file(mut self, path: &str) -> Refusal {
        self.place.file = Some(clip(path));
        self
    }

    pub fn column(mut self, column: &str) -> Refusal {
        self.place.column = Some(clip(column));
        self
    }

    pub fn won_by(mut self, version: Version, operation: Option<&str>) -> Refusal {
        self.winner = Some(Winner { version: version.0, operation: operation.map(clip) });
        self
    }
}

/// Bounds a text of a stranger that goes into an item.
pub(super) fn clip(text: &str) -> String {
    let clipped: String = text.chars().take(TEXT_MAX_CHARS).collect();
    if clipped.len() < text.len() { format!("{clipped}…") } else { clipped }
}

/// The verdict on a proposal, or how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub proposal: Proposal,
}

impl Verdict {
    pub fn is_final(&self) -> bool {
        self.proposal.status.is_final()
    }

    pub fn status(&self) -> Status {
        self.proposal.status
    }

    /// The version that the proposal became.
    pub fn committed_version(&self) -> Option<Version> {
        match self.proposal.status {
            Status::Committed { version } => Some(version),
            _ => None,
        }
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        self.proposal.refusal.as_ref()
    }

    /// JSON as HTTP and the event handler answer it.
    pub fn to_json(&self) -> Value {
        let proposal = &self.proposal;
        let (sync, sync_text) = match &proposal.sync {
            SyncState::None => (None, None),
            SyncState::Pending => (Some("pending"), None),
            SyncState::Failed(error) => (Some("failed"), Some(error.as_str())),
            SyncState::Queued(summary) => (Some("queued"), Some(summary.as_str())),
            SyncState::Done(summary) => (Some("done"), Some(summary.as_str())),
        };
        let mut verdict = json!(VerdictJson {
            proposal_id: proposal.id.to_string(),
            location: proposal.root.to_string(),
            status: proposal.status.name(),
            is_final: proposal.status.is_final(),
            version: proposal.status.version().map(|version| version.0),
            read_version: proposal.read_version.0,
            operation: proposal.operation.as_deref(),
            refusal: proposal.refusal.as_deref(),
            warnings: &proposal.warnings,
            partition_sync: sync.map(|status| SyncJson { status, text: sync_text }),
            synced_ms: proposal.synced_ms,
            judged_up_to: proposal.folded.filter(|_| !proposal.status.is_final()).map(|version| version.0),
            received_ms: proposal.received_ms,
            updated_ms: proposal.updated_ms,
        });
        // It did not fail: there is nothing for a client to raise.
        if proposal.status == Status::Superseded
            && let Some(members) = verdict.as_object_mut()
        {
            members.shift_remove("exception");
            members.shift_remove("error_class");
        }
        verdict
    }
}

#[derive(Serialize)]
struct VerdictJson<'a> {
    proposal_id: String,
    location: String,
    status: &'static str,
    #[serde(rename = "final")]
    is_final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    read_version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(flatten)]
    refusal: Option<&'a RefusalText>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_sync: Option<SyncJson<'a>>,
    /// Since when the catalog shows the commit's partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    synced_ms: Option<i64>,
    /// Winners up to this version are no conflict; judging goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    judged_up_to: Option<i64>,
    received_ms: i64,
    updated_ms: i64,
}

#[derive(Serialize)]
struct SyncJson<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}
