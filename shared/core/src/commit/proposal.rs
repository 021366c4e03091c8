//! Item: a proposal, from its arrival to its verdict. Its actions stay on S3.

use super::error::CommitError;
use super::head::{decode_id, decode_root};
use super::keys::{self, Generation, ProposalId};
use super::verdict::Refusal;
use crate::delta::Version;
use crate::location::Location;
use crate::store::{Condition, DecodeError, ETag, Fields, Item, Key, Value, Write};

pub const SCHEMA_VERSION: i64 = 1;

/// How far a proposal is. Which change may follow which is [`Status::may_become`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Seen, not judged.
    Received,
    /// Judged and found good; nothing is claimed yet.
    Judged,
    /// `version` is this proposal's, its bytes are durable, they may or may not be published.
    Claimed { version: Version, attempt: i64 },
    /// `<version>.json` was seen to hold its bytes.
    Published { version: Version },
    /// Final: it is in the log.
    Committed { version: Version },
    /// Final: refused.
    Rejected,
    /// Final: not needed any more; no new version, no failure.
    Superseded,
    /// Somebody else holds the version it had claimed; judged again.
    Lost { version: Version, attempt: i64 },
    /// Given up by the machinery (dead-lettered); still protects its files.
    Undecided,
    /// Final: its staged object was deleted for age.
    Expired,
    /// Final: its writer put it into the log itself, and it was judged after the fact. A refusal says what would have been
    /// said.
    AlreadyVisible { version: Version },
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Received => "received",
            Status::Judged => "judged",
            Status::Claimed { .. } => "claimed",
            Status::Published { .. } => "published",
            Status::Committed { .. } => "committed",
            Status::Rejected => "rejected",
            Status::Superseded => "superseded",
            Status::Lost { .. } => "lost",
            Status::Undecided => "undecided",
            Status::Expired => "expired",
            Status::AlreadyVisible { .. } => "already_visible",
        }
    }

    /// A verdict that is never changed.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Status::Committed { .. }
                | Status::Rejected
                | Status::Superseded
                | Status::Expired
                | Status::AlreadyVisible { .. }
        )
    }

    pub fn version(self) -> Option<Version> {
        match self {
            Status::Claimed { version, .. }
            | Status::Published { version }
            | Status::Committed { version }
            | Status::AlreadyVisible { version }
            | Status::Lost { version, .. } => Some(version),
            _ => None,
        }
    }

    /// The version of the log that holds it, whoever put it there.
    pub fn version_in_log(self) -> Option<Version> {
        match self {
            Status::Committed { version } | Status::AlreadyVisible { version } => Some(version),
            _ => None,
        }
    }

    /// Which status may follow which. A claim may only move on at its own version.
    pub fn may_become(self, next: Status) -> bool {
        match (self, next) {
            (Status::Received | Status::Lost { .. } | Status::Undecided, Status::Judged) => true,
            (Status::Judged, Status::Claimed { .. } | Status::Rejected | Status::Superseded) => true,
            // Found in the log already: an earlier attempt of the same content landed.
            (Status::Judged, Status::Published { .. }) => true,
            (Status::Claimed { version, .. }, Status::Published { version: published }) => version == published,
            (Status::Claimed { version, attempt }, Status::Lost { version: lost, attempt: of }) => {
                version == lost && attempt == of
            }
            (Status::Published { version }, Status::Committed { version: committed }) => version == committed,
            // Refused without being looked into: unreadable, or its table is gone.
            (Status::Received | Status::Lost { .. } | Status::Undecided, Status::Rejected) => true,
            (Status::Claimed { .. }, Status::Rejected) => false,
            (Status::Received | Status::Judged | Status::Lost { .. }, Status::Undecided | Status::Expired)
            | (Status::Undecided, Status::Expired) => true,
            _ => false,
        }
    }
}

/// Whether the catalog knows the commit's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// Nothing to tell.
    None,
    Pending,
    /// Tried in vain; tried again with the next message of the proposal.
    Failed(String),
    /// A worker was asked to go on with it, without this proposal.
    Queued(String),
    Done(String),
}

/// Lost claims that are remembered; a run gives up before it makes as many.
const LOST_MAX: usize = 32;

/// A claim that was lost: the version, and the bytes that might still turn up there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub version: Version,
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub id: ProposalId,
    pub root: Location,
    pub generation: Generation,
    /// Key of the staged object, in the table's bucket.
    pub staged_key: String,
    pub staged_etag: ETag,
    pub read_version: Version,
    pub status: Status,
    /// Claims so far.
    pub attempts: i64,
    /// The latest of the claims that were lost.
    pub lost: Vec<Attempt>,
    /// Winners up to here are no conflict; kept where judging had to be broken off.
    pub folded: Option<Version>,
    pub operation: Option<String>,
    pub refusal: Option<Refusal>,
    pub warnings: Vec<String>,
    pub sync: SyncState,
    /// When the last of its partitions was in the catalog; of a commit with nothing to tell, when it was committed. Reads
    /// of the catalog as this commit left it are reads of this moment. None if the catalog never takes them.
    pub synced_ms: Option<i64>,
    pub received_ms: i64,
    pub updated_ms: i64,
    /// Empty until it is stored.
    pub revision: String,
}

impl Proposal {
    /// A proposal that was seen just now and is not stored yet.
    pub fn received(
        root: &Location,
        generation: Generation,
        id: ProposalId,
        staged: (String, ETag),
        now_ms: i64,
    ) -> Self {
        Proposal {
            id,
            root: root.clone(),
            generation,
            staged_key: staged.0,
            staged_etag: staged.1,
            read_version: Version::NONE,
            status: Status::Received,
            attempts: 0,
            lost: Vec::new(),
            folded: None,
            operation: None,
            refusal: None,
            warnings: Vec::new(),
            sync: SyncState::None,
            synced_ms: None,
            received_ms: now_ms,
            updated_ms: now_ms,
            revision: String::new(),
        }
    }

    /// Remembers a lost claim.
    pub fn remember_lost(&mut self, attempt: Attempt) {
        self.lost.push(attempt);
        let too_many = self.lost.len().saturating_sub(LOST_MAX);
        self.lost.drain(..too_many);
    }

    /// Whether these bytes, at this version, are a claim of this proposal that was taken for lost.
    pub fn is_lost_attempt(&self, version: Version, sha256: &str) -> bool {
        self.lost.iter().any(|attempt| attempt.version == version && attempt.sha256 == sha256)
    }

    pub fn key(&self) -> Key {
        keys::proposal(&self.root, self.generation, self.id)
    }

    /// Moves along one edge; anything else is a defect, refused before it is stored.
    pub fn advance(&mut self, next: Status) -> Result<(), CommitError> {
        if !self.status.may_become(next) {
            return Err(CommitError::IllegalEdge { from: self.status.name(), to: next.name() });
        }
        self.status = next;
        Ok(())
    }

    /// What a write of the proposal demands: the revision that was read, or that there is none.
    pub fn unchanged(&self) -> Condition {
        if self.revision.is_empty() { Condition::Absent } else { Condition::equals("revision", self.revision.as_str()) }
    }

    /// Stores `next` in place of `self`.
    pub fn write(&self, next: &Proposal) -> Result<Write, DecodeError> {
        Ok(Write::Put { key: self.key(), item: next.encode()?, condition: self.unchanged() })
    }

    pub fn encode(&self) -> Result<Item, DecodeError> {
        let mut item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("id".into(), self.id.to_string().into()),
            ("root".into(), self.root.to_string().into()),
            ("generation".into(), Value::Int(self.generation.0)),
            ("staged_key".into(), self.staged_key.as_str().into()),
            ("staged_etag".into(), self.staged_etag.0.as_str().into()),
            ("read_version".into(), Value::Int(self.read_version.0)),
            ("status".into(), self.status.name().into()),
            ("attempts".into(), Value::Int(self.attempts)),
            ("warnings".into(), Value::List(self.warnings.iter().map(|text| text.as_str().into()).collect())),
            ("received_ms".into(), Value::Int(self.received_ms)),
            ("updated_ms".into(), Value::Int(self.updated_ms)),
            ("revision".into(), self.revision.as_str().into()),
        ]);
        if let Some(version) = self.status.version() {
            item.insert("version".into(), Value::Int(version.0));
        }
        if let Status::Claimed { attempt, .. } | Status::Lost { attempt, .. } = self.status {
            item.insert("attempt".into(), Value::Int(attempt));
        }
        if !self.lost.is_empty() {
            let attempts = self.lost.iter().map(|attempt| {
                Value::Map(Item::from([
                    ("version".into(), Value::Int(attempt.version.0)),
                    ("sha256".into(), attempt.sha256.as_str().into()),
                ]))
            });
            item.insert("lost".into(), Value::List(attempts.collect()));
        }
        if let Some(folded) = self.folded {
            item.insert("folded".into(), Value::Int(folded.0));
        }
        if let Some(operation) = &self.operation {
            item.insert("operation".into(), operation.as_str().into());
        }
        if let Some(refusal) = &self.refusal {
            let text = serde_json::to_string(refusal)
                .map_err(|error| DecodeError::Invalid { field: "refusal".into(), message: error.to_string() })?;
            item.insert("refusal".into(), text.into());
        }
        if let Some(synced_ms) = self.synced_ms {
            item.insert("synced_ms".into(), Value::Int(synced_ms));
        }
        match &self.sync {
            SyncState::None => {}
            SyncState::Pending => drop(item.insert("sync".into(), "pending".into())),
            SyncState::Failed(error) => {
                item.insert("sync".into(), "failed".into());
                item.insert("sync_text".into(), error.as_str().into());
            }
            SyncState::Queued(summary) => {
                item.insert("sync".into(), "queued".into());
                item.insert("sync_text".into(), summary.as_str().into());
            }
            SyncState::Done(summary) => {
                item.insert("sync".into(), "done".into());
                item.insert("sync_text".into(), summary.as_str().into());
            }
        }
        Ok(item)
    }

    pub fn decode(item: &Item) -> Result<Proposal, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        let refusal = match item.opt_text("refusal")? {
            None => None,
            Some(text) => Some(
                serde_json::from_str(text)
                    .map_err(|error| DecodeError::Invalid { field: "refusal".into(), message: error.to_string() })?,
            ),
        };
        Ok(Proposal {
            id: decode_id(item, "id")?,
            root: decode_root(item)?,
            generation: Generation(item.int("generation")?),
            staged_key: item.text("staged_key")?.to_owned(),
            staged_etag: ETag(item.text("staged_etag")?.to_owned()),
            read_version: Version(item.int("read_version")?),
            status: decode_status(item)?,
            attempts: item.int("attempts")?,
            lost: decode_lost(item)?,
            folded: item.opt_int("folded")?.map(Version),
            operation: item.opt_text("operation")?.map(str::to_owned),
            refusal,
            warnings: decode_texts(item, "warnings")?,
            sync: decode_sync(item)?,
            synced_ms: item.opt_int("synced_ms")?,
            received_ms: item.int("received_ms")?,
            updated_ms: item.int("updated_ms")?,
            revision: item.text("revision")?.to_owned(),
        })
    }
}

fn decode_status(item: &Item) -> Result<Status, DecodeError> {
    let version = || item.int("version").map(Version);
    Ok(match item.text("status")? {
        "received" => Status::Received,
        "judged" => Status::Judged,
        "claimed" => Status::Claimed { version: version()?, attempt: item.int("attempt")? },
        "published" => Status::Published { version: version()? },
        "committed" => Status::Committed { version: version()? },
        "rejected" => Status::Rejected,
        "superseded" => Status::Superseded,
        "lost" => Status::Lost { version: version()?, attempt: item.int("attempt")? },
        "undecided" => Status::Undecided,
        "expired" => Status::Expired,
        "already_visible" => Status::AlreadyVisible { version: version()? },
        other => {
            return Err(DecodeError::Invalid { field: "status".into(), message: format!("unknown status {other}") });
        }
    })
}

fn decode_sync(item: &Item) -> Result<SyncState, DecodeError> {
    let text = item.opt_text("sync_text")?.unwrap_or_default().to_owned();
    Ok(match item.opt_text("sync")? {
        None => SyncState::None,
        Some("pending") => SyncState::Pending,
        Some("failed") => SyncState::Failed(text),
        Some("queued") => SyncState::Queued(text),
        Some("done") => SyncState::Done(text),
        Some(other) => {
            return Err(DecodeError::Invalid { field: "sync".into(), message: format!("unknown state {other}") });
        }
    })
}

fn decode_lost(item: &Item) -> Result<Vec<Attempt>, DecodeError> {
    let wrong = || DecodeError::WrongType { field: "lost".to_owned(), expected: "a list of attempts" };
    match item.get("lost") {
        None => Ok(Vec::new()),
        Some(Value::List(values)) => values
            .iter()
            .map(|value| match value {
                Value::Map(map) => {
                    Ok(Attempt { version: Version(map.int("version")?), sha256: map.text("sha256")?.to_owned() })
                }
                _ => Err(wrong()),
            })
            .collect(),
        Some(_) => Err(wrong()),
    }
}

fn decode_texts(item: &Item, field: &str) -> Result<Vec<String>, DecodeError> {
    let wrong = || DecodeError::WrongType { field: field.to_owned(), expected: "a list of texts" };
    match item.get(field) {
        None => Ok(Vec::new()),
        Some(Value::List(values)) => values
            .iter()
            .map(|value| match value {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(wrong()),
            })
            .collect(),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: Version = Version(3);

    fn every_status() -> Vec<Status> {
        vec![
            Status::Received,
            Status::Judged,
            Status::Claimed { version: V, attempt: 1 },
            Status::Published { version: V },
            Status::Committed { version: V },
            Status::Rejected,
            Status::Superseded,
            Status::Lost { version: V, attempt: 1 },
            Status::Undecided,
            Status::Expired,
            Status::AlreadyVisible { version: Version(3) },
        ]
    }

    #[test]
    fn a_final_verdict_never_changes_and_a_claim_is_never_refused() {
        for from in every_status() {
            for to in every_status() {
                assert!(!(from.is_final() && from.may_become(to)), "{from:?} to {to:?}");
            }
        }
        let claimed = Status::Claimed { version: V, attempt: 1 };
        assert!(!claimed.may_become(Status::Rejected));
        assert!(!claimed.may_become(Status::Published { version: Version(4) }));
        assert!(!claimed.may_become(Status::Lost { version: V, attempt: 2 }));
        assert!(claimed.may_become(Status::Lost { version: V, attempt: 1 }));
        assert!(!Status::Received.may_become(claimed), "nothing is claimed unjudged");
        assert!(!Status::Judged.may_become(Status::Committed { version: V }), "the log is looked at first");
    }

    #[test]
    fn a_proposal_comes_back_as_it_was() {
        let refusal = super::super::verdict::Refusal::invalid("X", "text").file("a").won_by(Version(2), Some("WRITE"));
        for status in every_status() {
            for sync in [
                SyncState::None,
                SyncState::Pending,
                SyncState::Failed("why".into()),
                SyncState::Queued("q".into()),
                SyncState::Done("2 new".into()),
            ] {
                let staged = ("k".into(), ETag("e".into()));
                let id = ProposalId(uuid::Uuid::from_u128(5));
                let proposal = Proposal {
                    read_version: Version(2),
                    status,
                    attempts: 1,
                    lost: vec![Attempt { version: Version(1), sha256: "s".into() }],
                    folded: Some(Version(2)),
                    operation: Some("WRITE".into()),
                    refusal: (status == Status::Rejected).then(|| refusal.clone()),
                    warnings: vec!["w".into()],
                    synced_ms: matches!(sync, SyncState::Done(_)).then_some(8),
                    sync,
                    updated_ms: 7,
                    revision: "r".into(),
                    ..Proposal::received(&Location::new("b", "t"), Generation(1), id, staged, 6)
                };
                assert_eq!(Proposal::decode(&proposal.encode().unwrap()).unwrap(), proposal);
            }
        }
    }
}
