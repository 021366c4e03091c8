//! The commit call of a catalog: a staged file becomes the next version as it is, or is refused.

use bytes::Bytes;

use super::overlay::logged;
use super::state::{Managed, Ratified};
use super::{UNPUBLISHED_MAX, publish, refusals};
use crate::commit::ahead::Ahead;
use crate::commit::candidate::Candidate;
use crate::commit::claim;
use crate::commit::content::{self, Content};
use crate::commit::context::{CLAIM_MS, Context, Transacted};
use crate::commit::error::CommitError;
use crate::commit::files::{self, FileError};
use crate::commit::fold::fold;
use crate::commit::head::{self, Claim, Head, LogStore};
use crate::commit::judge::{Admission, Judgement};
use crate::commit::keys::{self, ProposalId, content_hash};
use crate::commit::log_state;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::commit::publish::{Published, look};
use crate::commit::restored;
use crate::commit::run::{self, Staged};
use crate::commit::sync;
use crate::commit::vectors::check_vectors;
use crate::commit::verdict::Refusal;
use crate::commit::version_record::VersionRecord;
use crate::commit::view::{self, View, ViewError};
use crate::delta::log::{StagedKey, commit_key};
use crate::delta::{CommitInfo, Version, features};
use crate::location::Location;
use crate::store::{Consistency, ETag, QueueName, Write};

/// Times that a call is begun again because the table or the proposal moved.
const ATTEMPTS_MAX: u32 = 16;
/// Between two looks at a table that a sweep has fenced off.
const FENCE_POLL_MS: u64 = 500;
/// Properties by which a table's log names the catalog's table.
const TABLE_ID_PROPERTIES: [&str; 2] = ["io.unitycatalog.tableId", "ucTableId"];

/// A commit call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub root: Location,
    /// Under which the catalog knows the table.
    pub table_id: String,
    pub version: Version,
    /// Of the staged file's name.
    pub id: ProposalId,
    pub size_bytes: u64,
    pub modified_ms: i64,
    /// The in-commit timestamp, as the call says it.
    pub timestamp_ms: i64,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Ratification {
    /// It is in the table, by this call or an earlier one.
    Ratified(Box<Proposal>),
    /// Refused for good: the same file is never taken.
    Refused(Box<Proposal>),
    /// The call contradicts the staged file or the table; nothing is recorded.
    Invalid(String),
    /// So many commits are not published yet.
    TooMany(usize),
    /// The table cannot be read: nothing is decided on the commit.
    Unreadable(Refusal),
}

enum Step {
    Done(Ratification),
    /// The table or the proposal moved: look again.
    Again,
}

/// Carries a commit call out. The same call again has the same answer.
pub async fn ratify(ctx: Context<'_>, asked: &Asked) -> Result<Ratification, CommitError> {
    for attempt in 0..ATTEMPTS_MAX {
        ctx.check_time("ratifying a commit", CLAIM_MS)?;
        match Call::new(ctx, asked).attempt().await? {
            Step::Done(done) => return Ok(done),
            Step::Again => ctx.back_off(attempt).await,
        }
    }
    Err(CommitError::Contended { attempts: ATTEMPTS_MAX })
}

struct Call<'a> {
    ctx: Context<'a>,
    asked: &'a Asked,
    staged: Staged,
}

impl<'a> Call<'a> {
    fn new(ctx: Context<'a>, asked: &'a Asked) -> Call<'a> {
        let key = StagedKey { root: asked.root.clone(), version: asked.version, id: asked.id.0 };
        Call { ctx, asked, staged: Staged { key, etag: None } }
    }

    async fn attempt(&self) -> Result<Step, CommitError> {
        let asked = self.asked;
        let (mut view, lookup) = match view::load(self.ctx, &asked.root, asked.id).await {
            Ok(loaded) => loaded,
            Err(ViewError::Failed(error)) => return Err(error),
            Err(ViewError::Refused(refusal)) => {
                if let Some(head) = head::load(&*self.ctx.ports().items, &asked.root).await? {
                    log_state::alarm_of(self.ctx, &head, &refusal).await?;
                }
                return Ok(Step::Done(Ratification::Unreadable(refusal)));
            }
        };
        let head = match self.managed_head(&view) {
            Ok(head) => head,
            Err(text) => return Ok(Step::Done(Ratification::Invalid(text))),
        };
        let mut stored = None;
        if let Some(lookup) = lookup.filter(|lookup| lookup.generation == head.generation) {
            let key = keys::proposal(&lookup.root, lookup.generation, asked.id);
            let item = self.ctx.ports().items.get(&key, Consistency::Strong).await?;
            stored = item.map(|item| Proposal::decode(&item)).transpose()?;
        }
        if let Some(known) = stored.as_ref().and_then(|stored| self.known(stored)) {
            return Ok(Step::Done(known));
        }
        let content = match content::read(self.ctx, &self.staged).await {
            Ok(content) => content,
            Err(CommitError::StagedMissing(at)) => {
                return Ok(Step::Done(Ratification::Invalid(format!("there is no staged file at {at}"))));
            }
            Err(error) => return Err(error),
        };
        let size = u64::try_from(content.bytes.len()).unwrap_or(u64::MAX);
        if size != asked.size_bytes && content.candidate.is_ok() {
            let text = format!("file_size is {}, and the staged file has {size} bytes", asked.size_bytes);
            return Ok(Step::Done(Ratification::Invalid(text)));
        }
        let proposal = content::proposal(self.ctx, &self.staged, head.generation, &content, stored);
        self.decide(&mut view, head, proposal, &content).await
    }

    /// The head as a catalog-managed table has it. The first commit call finds a table that its client has created.
    fn managed_head(&self, view: &View) -> Result<Head, String> {
        let table_id = &self.asked.table_id;
        if let Some(managed) = &view.head.managed {
            if managed.table_id != *table_id {
                return Err(format!("the table at {} has the id {}", view.root, managed.table_id));
            }
            return Ok(view.head.clone());
        }
        let Some(state) = &view.state else {
            return Err(format!("there is no table at {}: its client writes version 0 itself", view.root));
        };
        if !features::is_catalog_managed(&state.protocol) {
            return Err("the table is not catalog-managed: commit to its log, or by POST /v1/commits".to_owned());
        }
        let named = TABLE_ID_PROPERTIES.iter().find_map(|name| state.metadata.property(name));
        if let Some(named) = named.filter(|named| named != table_id) {
            return Err(format!("the table's log says that it has the id {named}"));
        }
        let managed = Managed { table_id: table_id.clone(), published: view.latest, ratified: Vec::new() };
        Ok(Head { managed: Some(managed), ..view.settled_head() })
    }

    /// By its id the catalog's table is known in the log: a commit may not give it another, or take it away.
    fn check_table_id(&self, view: &View, candidate: &Candidate) -> Result<(), Refusal> {
        let Some(new) = &candidate.actions.metadata else { return Ok(()) };
        for name in TABLE_ID_PROPERTIES {
            let before = view.state.as_ref().and_then(|state| state.metadata.property(name));
            let fits = match new.property(name) {
                Some(id) => id == self.asked.table_id,
                None => before.is_none(),
            };
            if !fits {
                return Err(refusals::other_table_id(name, &self.asked.table_id));
            }
        }
        Ok(())
    }

    /// What waits for its publication was committed a moment ago: the same transaction in another file is no new one.
    fn check_txn_id(&self, view: &View, candidate: &Candidate) -> Result<(), Refusal> {
        let txn_id = |info: &Option<CommitInfo>| info.as_ref().and_then(|info| info.text("txnId")).map(str::to_owned);
        let Some(own) = txn_id(&candidate.actions.commit_info) else { return Ok(()) };
        let same = view.held.commits.values().find(|commit| txn_id(&commit.actions.commit_info).as_ref() == Some(&own));
        same.map_or(Ok(()), |commit| Err(refusals::landed(commit.version)))
    }

    /// The answer to a call that was answered for good before.
    fn known(&self, stored: &Proposal) -> Option<Ratification> {
        let is_same = stored.staged_key == self.staged.key.key().key;
        match stored.status {
            Status::Committed { version } if is_same && version == self.asked.version => {
                Some(Ratification::Ratified(Box::new(stored.clone())))
            }
            status if !is_same && status.is_final() => Some(Ratification::Refused(Box::new(run::reused(stored)))),
            status if status.is_final() => Some(Ratification::Refused(Box::new(stored.clone()))),
            _ => None,
        }
    }

    async fn decide(
        &self,
        view: &mut View,
        head: Head,
        proposal: Proposal,
        content: &Content,
    ) -> Result<Step, CommitError> {
        let candidate = match &content.candidate {
            Ok(candidate) => candidate,
            Err(refusal) => return self.refuse(view, &proposal, refusal.clone(), Status::Rejected).await,
        };
        let next = head.version.next();
        if self.asked.version != next {
            let refusal = self.why_not_next(view, candidate, head.version).await?;
            return self.refuse(view, &proposal, refusal, Status::Rejected).await;
        }
        let unpublished = head.managed.as_ref().map_or(0, |managed| managed.ratified.len());
        if unpublished >= UNPUBLISHED_MAX {
            // Nobody publishes: then we do, and the next try finds room.
            self.ask_to_publish(0).await;
            return Ok(Step::Done(Ratification::TooMany(unpublished)));
        }
        if let Err(refusal) = check_commit_info(candidate).and_then(|()| self.check_txn_id(view, candidate)) {
            return self.refuse(view, &proposal, refusal, Status::Rejected).await;
        }
        let stamp_ms = in_commit_timestamp_ms(candidate).unwrap_or_default();
        if stamp_ms != self.asked.timestamp_ms {
            let text = format!(
                "timestamp is {}, and the staged file's inCommitTimestamp is {stamp_ms}",
                self.asked.timestamp_ms
            );
            return Ok(Step::Done(Ratification::Invalid(text)));
        }
        let mut folded = None;
        let judgement = match fold(self.ctx, view, candidate, &mut folded).await {
            Ok(judgement) => judgement,
            Err(ViewError::Refused(refusal)) => return self.refuse(view, &proposal, refusal, Status::Rejected).await,
            Err(ViewError::Failed(error)) => return Err(error),
        };
        match judgement {
            Judgement::Refuse(refusal) => self.refuse(view, &proposal, refusal, Status::Rejected).await,
            Judgement::Supersede(refusal) => self.refuse(view, &proposal, refusal, Status::Superseded).await,
            Judgement::Landed { version } => {
                self.refuse(view, &proposal, refusals::landed(version), Status::Rejected).await
            }
            Judgement::NeedsFiles(_) | Judgement::NeedsRows(_) => Ok(Step::Again),
            Judgement::Admit(admission) => self.admit(view, head, proposal, content, candidate, &admission).await,
        }
    }

    /// A version that is taken: if the winners are in the way of what the commit does, that is the better answer.
    async fn why_not_next(
        &self,
        view: &mut View,
        candidate: &Candidate,
        latest: Version,
    ) -> Result<Refusal, CommitError> {
        if self.asked.version > latest {
            return Ok(refusals::not_next(self.asked.version, latest));
        }
        match fold(self.ctx, view, candidate, &mut None).await {
            Ok(Judgement::Refuse(refusal)) | Err(ViewError::Refused(refusal)) if refusal.winner.is_some() => {
                Ok(refusal)
            }
            Ok(Judgement::Landed { version }) => Ok(refusals::landed(version)),
            Ok(_) | Err(ViewError::Refused(_)) => Ok(refusals::not_next(self.asked.version, latest)),
            Err(ViewError::Failed(error)) => Err(error),
        }
    }

    async fn refuse(
        &self,
        view: &View,
        proposal: &Proposal,
        refusal: Refusal,
        status: Status,
    ) -> Result<Step, CommitError> {
        let stored = claim::refuse(self.ctx, &view.head, proposal, refusal, status).await?;
        Ok(stored.map_or(Step::Again, |stored| Step::Done(Ratification::Refused(Box::new(stored)))))
    }

    async fn admit(
        &self,
        view: &mut View,
        head: Head,
        mut proposal: Proposal,
        content: &Content,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<Step, CommitError> {
        let stamp_ms = in_commit_timestamp_ms(candidate).unwrap_or_default();
        let checked =
            check_unchanged(candidate, admission, stamp_ms).and_then(|()| self.check_table_id(view, candidate));
        if let Err(refusal) = checked {
            return self.refuse(view, &proposal, refusal, Status::Rejected).await;
        }
        if let Some(fence) = view.head.active_fence(self.ctx.now_ms()) {
            self.ctx
                .check_time("waiting for a sweep", CLAIM_MS)
                .map_err(|_| CommitError::Fenced { run: fence.run.clone() })?;
            self.ctx.ports().clock.sleep_ms(FENCE_POLL_MS).await;
            return Ok(Step::Again);
        }
        match self.prove_files(&view.root, candidate, admission).await {
            Ok(warnings) => proposal.warnings = admission.warnings.iter().cloned().chain(warnings).collect(),
            Err(FileError::Refused(refusal)) => {
                return self.refuse(view, &proposal, refusal, Status::Rejected).await;
            }
            Err(FileError::Failed(error)) => return Err(error),
        }
        let sha256 = content_hash(&content.bytes);
        let in_log = look(self.ctx, &commit_key(&view.root, admission.version), &sha256).await?;
        if matches!(in_log, Some(Published::Foreign)) {
            // Ratified and published by another call since the head was read: then there is nothing strange in it.
            let now = head::load(&*self.ctx.ports().items, &view.root).await?;
            if now.is_some_and(|now| now.revision != view.head.revision) {
                return Ok(Step::Again);
            }
            publish::raise_foreign(self.ctx, &view.head, admission.version, None).await?;
            return Ok(Step::Done(Ratification::Unreadable(refusals::unratified(admission.version))));
        }
        let ratified = Ratified {
            version: admission.version,
            id: proposal.id,
            etag: content.etag.clone(),
            sha256,
            size_bytes: self.asked.size_bytes,
            modified_ms: self.asked.modified_ms,
            timestamp_ms: stamp_ms,
        };
        match self.record(view, head, &proposal, ratified, content.bytes.clone()).await? {
            Some(stored) => {
                self.ask_to_publish(publish::GRACE_MS).await;
                Ok(Step::Done(Ratification::Ratified(Box::new(stored))))
            }
            None => Ok(Step::Again),
        }
    }

    async fn prove_files(
        &self,
        root: &Location,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<Vec<String>, FileError> {
        let refused = match self.look_at_files(root, candidate, admission).await {
            Ok(warnings) => return Ok(warnings),
            Err(error) => error,
        };
        let mut warnings = restored::bring_back(self.ctx, root, candidate, refused).await?;
        warnings.extend(self.look_at_files(root, candidate, admission).await?);
        Ok(warnings)
    }

    async fn look_at_files(
        &self,
        root: &Location,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<Vec<String>, FileError> {
        let nothing = Ahead::default();
        let checked = files::check_files(self.ctx, candidate, admission, nothing.seen(self.ctx, "")).await?;
        check_vectors(self.ctx, root, candidate, &admission.known).await?;
        Ok(checked.warnings)
    }

    /// The ratification: one transaction moves the head forward with the commit, its proposal and the version's record.
    async fn record(
        &self,
        view: &View,
        head: Head,
        proposal: &Proposal,
        ratified: Ratified,
        bytes: Bytes,
    ) -> Result<Option<Proposal>, CommitError> {
        let version = ratified.version;
        let commit = logged(&view.root, version, bytes, ratified.timestamp_ms)?;
        let mut state = view.state.clone();
        if let Some(state) = &mut state {
            // Paths were resolved when the commit was parsed.
            if state.apply(&view.root, &commit).is_err() {
                return Ok(None);
            }
            state.spill(self.ctx.ports(), &view.root).await?;
        }
        let claim = as_claim(proposal, &ratified, self.ctx.now_ms());
        let mut judged = proposal.clone();
        if judged.status != Status::Judged {
            judged.advance(Status::Judged)?;
        }
        judged.refusal = None;
        let mut next = claim::committed(self.ctx, &judged, &claim, &commit, state.as_ref())?;
        if sync::is_due(&next) {
            next.sync = SyncState::Queued("the catalog follows what is published".into());
        }
        let record = VersionRecord {
            version,
            proposal: Some(proposal.id),
            sha256: Some(ratified.sha256.clone()),
            etag: None,
            operation: commit.actions.operation().map(crate::commit::verdict::clip),
            blindness: claim::blindness(&commit),
            committed_ms: next.updated_ms,
        };
        let mut managed = head.managed.clone();
        if let Some(managed) = &mut managed {
            managed.ratified.push(ratified);
        }
        let metadata_id = state.as_ref().map(|state| state.metadata.id.clone()).or_else(|| head.metadata_id.clone());
        let next_head =
            Head { version, state, metadata_id, managed, fence: None, revision: self.ctx.new_revision(), ..head };
        let mut writes = vec![
            Write::Put { key: keys::head(&view.root), item: next_head.encode()?, condition: view.head.unchanged() },
            proposal.write(&next)?,
            record.write(&view.root, next_head.generation),
        ];
        writes.extend(claim::index_writes(proposal, &view.head));
        Ok((self.ctx.transact(&writes).await? == Transacted::Done).then_some(next))
    }

    /// A message that is lost is made up for by the hourly housekeeping.
    async fn ask_to_publish(&self, delay_ms: u64) {
        let body = publish::message(&self.asked.root);
        if let Err(error) = self.ctx.ports().queue.send(QueueName::Commits, body, delay_ms).await {
            tracing::warn!(root = %self.asked.root, %error, "no message to publish what was ratified");
        }
    }
}

/// The parts of a claim that the record of a commit is made from.
fn as_claim(proposal: &Proposal, ratified: &Ratified, now_ms: i64) -> Claim {
    Claim {
        version: ratified.version,
        proposal: proposal.id,
        attempt: proposal.attempts,
        bytes_key: proposal.staged_key.clone(),
        bytes_etag: ETag(ratified.etag.0.clone()),
        sha256: ratified.sha256.clone(),
        claimed_ms: now_ms,
        log_store: LogStore::Off,
    }
}

fn in_commit_timestamp_ms(candidate: &Candidate) -> Option<i64> {
    candidate.actions.commit_info.as_ref()?.number("inCommitTimestamp")
}

/// What the protocol demands of every commit of a catalog-managed table.
fn check_commit_info(candidate: &Candidate) -> Result<(), Refusal> {
    let first = candidate.bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let is_first = first
        .and_then(|line| serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line).ok())
        .is_some_and(|action| action.contains_key("commitInfo"));
    if !is_first {
        return Err(refusals::commit_info_first());
    }
    if in_commit_timestamp_ms(candidate).is_none() {
        return Err(refusals::timestamp("the commit has no commitInfo.inCommitTimestamp"));
    }
    candidate.txn_id().map(drop).ok_or_else(refusals::txn_id_missing)
}

/// The commit must fit as it is: nothing in it is changed.
fn check_unchanged(candidate: &Candidate, admission: &Admission, stamp_ms: i64) -> Result<(), Refusal> {
    let stays = candidate.actions.protocol.as_ref().is_none_or(features::is_catalog_managed);
    let Some(after_ms) = admission.timestamp_after_ms.filter(|_| stays) else {
        return Err(refusals::left_the_catalog());
    };
    if stamp_ms <= after_ms {
        let text =
            format!("inCommitTimestamp is {stamp_ms}; it must be later than that of the version before, {after_ms}");
        return Err(refusals::timestamp(text));
    }
    if admission.rebase.is_empty() { Ok(()) } else { Err(refusals::needs_changes(&admission.rebase)) }
}
