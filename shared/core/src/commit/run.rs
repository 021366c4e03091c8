//! One proposal, from its staged object to its verdict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::candidate::Candidate;
use super::claim::{self, Claimed, Durable, Published};
use super::context::{CLAIM_MS, Context};
use super::error::CommitError;
use super::facts::FileFacts;
use super::files::{self, FileError};
use super::judge::{self, Admission, Inputs, Judgement};
use super::keys::{self, Generation, ProposalId};
use super::lookup::Lookup;
use super::proposal::{Proposal, Status, SyncState};
use super::rebase;
use super::sync;
use super::verdict::{Exception, Refusal, Verdict};
use super::view::{self, View, ViewError, WINNERS_MAX};
use crate::delta::log::StagedKey;
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{Version, features};
use crate::location::Location;
use crate::store::{ByteRange, Consistency, ETag, GetOptions, ObjectError};

/// Largest staged object that is judged.
pub const STAGED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Times a proposal is judged again because the table moved.
const ATTEMPTS_MAX: u32 = 24;
/// Times the judge may ask for facts about files.
const FACT_ROUNDS_MAX: u32 = 3;
/// Waiting for a sweep's fence, altogether.
const FENCE_WAIT_MS: i64 = 8_000;
const FENCE_POLL_MS: u64 = 500;

/// A staged object to be judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Staged {
    pub key: StagedKey,
    /// As the event says; `None` judges what is there now.
    pub etag: Option<ETag>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Verdict(Box<Verdict>),
    /// Nothing to judge: the object is gone, or was replaced and has an event of its own.
    NotJudged {
        reason: String,
    },
}

/// Tables that were loaded in this batch.
pub type Views = HashMap<Location, View>;

/// Judges a staged object and carries the verdict out.
pub async fn run(ctx: Context<'_>, views: &mut Views, staged: &Staged) -> Result<Outcome, CommitError> {
    let mut run = Run { ctx, staged, id: ProposalId(staged.key.id), content: None, proved: None, fence_waited_ms: 0 };
    for _ in 0..ATTEMPTS_MAX {
        ctx.check_time("judging a commit", CLAIM_MS)?;
        // A view is used once and put back only where it is known to be right.
        let taken = views.remove(&staged.key.root);
        match run.attempt(views, taken).await {
            Ok(Step::Done(outcome)) => return run.finish(views, outcome).await,
            Ok(Step::Again) => {}
            Err(CommitError::StagedMissing(at)) => {
                return Ok(Outcome::NotJudged { reason: CommitError::StagedMissing(at).to_string() });
            }
            Err(CommitError::StagedChanged(at)) => {
                return Ok(Outcome::NotJudged { reason: CommitError::StagedChanged(at).to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Err(CommitError::Contended { attempts: ATTEMPTS_MAX })
}

enum Step {
    Done(Box<Proposal>),
    /// The table or the proposal moved: look again.
    Again,
}

/// What was staged, read once.
struct Content {
    etag: ETag,
    bytes: Bytes,
    last_modified_ms: i64,
    candidate: Result<Candidate, Refusal>,
}

struct Run<'a> {
    ctx: Context<'a>,
    staged: &'a Staged,
    id: ProposalId,
    content: Option<Arc<Content>>,
    /// The head's revision under which all files were seen to exist, once they passed.
    proved: Option<Proof>,
    fence_waited_ms: i64,
}

struct Proof {
    head_revision: String,
    /// Schema and partitioning that the files were compared with.
    admission: Admission,
    checked: files::Checked,
}

impl Run<'_> {
    async fn attempt(&mut self, views: &mut Views, taken: Option<View>) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let loaded = match taken {
            Some(view) => {
                view::load_lookup(self.ctx, root, self.id).await.map(|lookup| (view, lookup)).map_err(ViewError::from)
            }
            None => view::load(self.ctx, root, self.id).await,
        };
        let (mut view, lookup) = match loaded {
            Ok(loaded) => loaded,
            Err(ViewError::Failed(error)) => return Err(error),
            Err(ViewError::Refused(refusal)) => return self.refuse_unread(refusal).await,
        };
        let stored = self.stored(lookup.as_ref()).await?;
        if let Some(stored) = &stored
            && let Some(step) = self.known(&view, stored).await?
        {
            views.insert(root.clone(), view);
            return Ok(step);
        }
        let content = self.content().await?;
        let proposal = match stored.filter(|stored| stored.generation == view.head.generation) {
            Some(stored) => stored,
            None => self.new_proposal(view.head.generation, &content),
        };
        let step = self.judge(&mut view, proposal, &content).await?;
        if !matches!(step, Step::Again) {
            views.insert(root.clone(), view);
        }
        Ok(step)
    }

    async fn stored(&self, lookup: Option<&Lookup>) -> Result<Option<Proposal>, CommitError> {
        let Some(lookup) = lookup else { return Ok(None) };
        let key = keys::proposal(&lookup.root, lookup.generation, self.id);
        match self.ctx.ports().items.get(&key, Consistency::Strong).await? {
            Some(item) => Ok(Some(Proposal::decode(&item)?)),
            None => Ok(None),
        }
    }

    /// Answers for a proposal that is stored, where nothing is left to judge.
    async fn known(&mut self, view: &View, stored: &Proposal) -> Result<Option<Step>, CommitError> {
        let etag = match &self.staged.etag {
            Some(etag) => etag.clone(),
            None => match self.content().await {
                Ok(content) => content.etag.clone(),
                // The verdict outlives its staged object.
                Err(CommitError::StagedMissing(_)) => stored.staged_etag.clone(),
                Err(error) => return Err(error),
            },
        };
        let is_same = etag == stored.staged_etag && stored.staged_key == self.staged.key.key().key;
        if stored.generation != view.head.generation {
            return Ok(match (is_same, stored.status.is_final()) {
                (false, _) => None,
                (true, true) => Some(Step::Done(Box::new(stored.clone()))),
                (true, false) => {
                    Some(Step::Done(Box::new(view::close_replaced(self.ctx, &stored.key(), stored).await?)))
                }
            });
        }
        if !is_same {
            return Ok(Some(Step::Done(Box::new(reused(stored)))));
        }
        if stored.status.is_final() {
            return Ok(Some(Step::Done(Box::new(stored.clone()))));
        }
        if matches!(stored.status, Status::Claimed { .. }) {
            // The claim was made between the two reads; the next look finishes it.
            return Ok(Some(Step::Again));
        }
        Ok(None)
    }

    async fn content(&mut self) -> Result<Arc<Content>, CommitError> {
        if let Some(content) = &self.content {
            return Ok(content.clone());
        }
        let at = self.staged.key.key();
        let range = Some(ByteRange::From { start: 0, length: STAGED_MAX_BYTES });
        let options = GetOptions { range, if_match: self.staged.etag.clone() };
        let (meta, bytes) = match self.ctx.ports().objects.get(&at, &options).await {
            Ok(object) => (object.meta, object.bytes),
            // An empty object has no first byte.
            Err(ObjectError::InvalidRange(_)) => (self.ctx.ports().objects.head(&at).await?, Bytes::new()),
            Err(ObjectError::NotFound(at)) => return Err(CommitError::StagedMissing(at)),
            Err(ObjectError::PreconditionFailed(at)) => return Err(CommitError::StagedChanged(at)),
            Err(error) => return Err(error.into()),
        };
        let candidate = if meta.size_bytes > STAGED_MAX_BYTES {
            let text =
                format!("the staged commit has {} bytes; at most {STAGED_MAX_BYTES} are judged", meta.size_bytes);
            Err(Refusal::invalid("TOO_LARGE", text))
        } else {
            Candidate::parse(&self.staged.key.root, self.staged.key.version, bytes.clone())
        };
        let content = Arc::new(Content { etag: meta.etag, bytes, last_modified_ms: meta.last_modified_ms, candidate });
        self.content = Some(content.clone());
        Ok(content)
    }

    fn new_proposal(&self, generation: Generation, content: &Content) -> Proposal {
        let candidate = content.candidate.as_ref().ok();
        let now_ms = self.ctx.now_ms();
        Proposal {
            id: self.id,
            root: self.staged.key.root.clone(),
            generation,
            staged_key: self.staged.key.key().key,
            staged_etag: content.etag.clone(),
            read_version: candidate.map_or(self.staged.key.version.previous(), |candidate| candidate.read_version),
            status: Status::Received,
            attempts: 0,
            operation: candidate
                .and_then(|candidate| candidate.operation())
                .map(|name| name.chars().take(200).collect()),
            refusal: None,
            warnings: candidate.map_or_else(Vec::new, |candidate| candidate.warnings.clone()),
            sync: SyncState::None,
            synced_ms: None,
            received_ms: now_ms,
            updated_ms: now_ms,
            revision: String::new(),
        }
    }

    async fn judge(&mut self, view: &mut View, proposal: Proposal, content: &Content) -> Result<Step, CommitError> {
        if content.last_modified_ms < view.head.born_ms {
            return self.refuse(&proposal, view::table_replaced(), Status::Rejected).await;
        }
        if view.state.as_ref().is_some_and(|state| features::is_catalog_managed(&state.protocol)) {
            return self.record_ignored(proposal).await;
        }
        let candidate = match &content.candidate {
            Ok(candidate) => candidate,
            Err(refusal) => return self.refuse(&proposal, refusal.clone(), Status::Rejected).await,
        };
        if let Some(step) = self.prepare_creation(view, &proposal, content, candidate).await? {
            return Ok(step);
        }
        let winners = match self.winners(view, candidate).await {
            Ok(winners) => winners,
            Err(ViewError::Refused(refusal)) => return self.refuse(&proposal, refusal, Status::Rejected).await,
            Err(ViewError::Failed(error)) => return Err(error),
        };
        let mut wanted = BTreeSet::new();
        let mut judgement = self.decide(view, candidate, &winners, None);
        // What is known of some files may show that others matter.
        for _ in 0..FACT_ROUNDS_MAX {
            let Judgement::NeedsFiles(more) = judgement else { break };
            wanted.extend(more);
            match view.files(self.ctx, &wanted, candidate.read_version).await {
                Ok(files) => judgement = self.decide(view, candidate, &winners, Some(&files)),
                Err(ViewError::Refused(refusal)) => return self.refuse(&proposal, refusal, Status::Rejected).await,
                Err(ViewError::Failed(error)) => return Err(error),
            }
        }
        match judgement {
            Judgement::Refuse(refusal) => self.refuse(&proposal, refusal, Status::Rejected).await,
            Judgement::Supersede(refusal) => self.refuse(&proposal, refusal, Status::Superseded).await,
            Judgement::Landed { version } => Ok(match claim::land(self.ctx, &proposal, version).await? {
                Some(stored) => Step::Done(Box::new(stored)),
                None => Step::Again,
            }),
            Judgement::Admit(admission) => self.admit(view, proposal, content, candidate, *admission).await,
            Judgement::NeedsFiles(_) => Ok(Step::Again),
        }
    }

    /// An empty log under a head that has versions: somebody deleted the table. A commit that creates another one
    /// opens a new generation; anything else has no table.
    async fn prepare_creation(
        &self,
        view: &View,
        proposal: &Proposal,
        content: &Content,
        candidate: &Candidate,
    ) -> Result<Option<Step>, CommitError> {
        if view.latest != Version::NONE || view.head.version == Version::NONE {
            return Ok(None);
        }
        let new_id = candidate.actions.metadata.as_ref().map(|metadata| &metadata.id);
        if judge::is_creation(candidate) && new_id != view.head.metadata_id.as_ref() {
            // What was staged before this creation was meant for the table that is gone.
            view::open_generation(self.ctx, &view.head, content.last_modified_ms).await?;
            return Ok(Some(Step::Again));
        }
        let text = format!("the table's log is empty, but version {} was published", view.head.version);
        let refusal = Refusal::new(
            Exception::DamagedLogException,
            "LOG_MISSING",
            text,
            "restore the log, or create the table anew with another metaData id",
        );
        self.refuse(proposal, refusal, Status::Rejected).await.map(Some)
    }

    async fn winners(&self, view: &mut View, candidate: &Candidate) -> Result<Vec<Arc<LoggedCommit>>, ViewError> {
        judge::check_read_version(candidate, view.latest).map_err(ViewError::Refused)?;
        let from = candidate.read_version.next();
        let to = if judge::is_creation(candidate) { view.latest.min(Version(0)) } else { view.latest };
        if to.0 - from.0 >= WINNERS_MAX {
            let text = format!(
                "{} commits won since version {} was read; at most {WINNERS_MAX} are judged",
                to.0 - from.0 + 1,
                candidate.read_version
            );
            return Err(ViewError::Refused(too_old("ALLOTTED_TIME_EXCEEDED", text)));
        }
        match view.winners(self.ctx, from, to).await {
            // The log was cleaned up since the candidate read.
            Err(ViewError::Refused(refusal)) if refusal.reason == "LOG_GAP" => {
                let text = format!(
                    "commits after version {} are gone from the log, so conflicts cannot be ruled out",
                    candidate.read_version
                );
                Err(ViewError::Refused(too_old("READ_VERSION_TOO_OLD", text)))
            }
            other => other,
        }
    }

    fn decide(
        &self,
        view: &View,
        candidate: &Candidate,
        winners: &[Arc<LoggedCommit>],
        files: Option<&FileFacts>,
    ) -> Judgement {
        judge::judge(Inputs {
            root: &view.root,
            candidate,
            latest: view.latest,
            state: view.state.as_ref(),
            winners,
            files,
            default_isolation: self.ctx.app.settings.default_isolation,
            blindness: &std::collections::BTreeMap::new(),
        })
    }

    async fn admit(
        &mut self,
        view: &mut View,
        mut proposal: Proposal,
        content: &Content,
        candidate: &Candidate,
        admission: Admission,
    ) -> Result<Step, CommitError> {
        if self.wait_for_fence(view).await? {
            return Ok(Step::Again);
        }
        match self.prove_files(view, candidate, &admission).await {
            Ok(warnings) => {
                proposal.warnings = admission.warnings.iter().chain(warnings).cloned().collect();
            }
            Err(FileError::Refused(refusal)) => return self.refuse(&proposal, refusal, Status::Rejected).await,
            Err(FileError::Failed(error)) => return Err(error),
        }
        let durable = self.durable(&proposal, content, &admission).await?;
        let head = view.settled_head();
        let claimed = claim::claim(self.ctx, &head, &proposal, admission.version, &durable).await?;
        let Claimed::Yes { head, proposal } = claimed else { return Ok(Step::Again) };
        let Some(claim) = head.claim.clone() else { return Ok(Step::Again) };
        match claim::publish(self.ctx, &view.root, admission.version, &durable.bytes, &claim).await? {
            Published::Ours { etag } => {
                let done = claim::complete(self.ctx, &head, &proposal, &claim, &durable.bytes, etag).await?;
                let Some(completed) = done else { return Ok(Step::Again) };
                let proposal = completed.proposal.clone();
                view.advance(completed);
                Ok(Step::Done(Box::new(proposal)))
            }
            Published::Foreign => {
                claim::lose(self.ctx, &head, &proposal, &claim).await?;
                Ok(Step::Again)
            }
        }
    }

    /// Waits while a sweep holds the fence; true if the table must be read again.
    async fn wait_for_fence(&mut self, view: &View) -> Result<bool, CommitError> {
        let Some(fence) = view.head.active_fence(self.ctx.now_ms()) else { return Ok(false) };
        if self.fence_waited_ms >= FENCE_WAIT_MS {
            return Err(CommitError::Fenced { run: fence.run.clone() });
        }
        self.ctx.check_time("waiting for a sweep", CLAIM_MS)?;
        self.ctx.ports().clock.sleep_ms(FENCE_POLL_MS).await;
        self.fence_waited_ms += i64::try_from(FENCE_POLL_MS).unwrap_or(i64::MAX);
        Ok(true)
    }

    /// Footers once; existence again whenever the head is another one than the footers were read under.
    async fn prove_files(
        &mut self,
        view: &View,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<&[String], FileError> {
        let revision = &view.head.revision;
        match &mut self.proved {
            Some(proof)
                if proof.admission.schema == admission.schema && proof.admission.metadata == admission.metadata =>
            {
                if proof.head_revision != *revision {
                    files::check_existence(self.ctx, candidate, &proof.checked.etags).await?;
                    proof.head_revision.clone_from(revision);
                }
            }
            _ => {
                let checked = files::check_files(self.ctx, candidate, admission).await?;
                let head_revision = revision.clone();
                self.proved = Some(Proof { head_revision, admission: admission.clone(), checked });
            }
        }
        Ok(self.proved.as_ref().map_or(&[], |proof| proof.checked.warnings.as_slice()))
    }

    /// The bytes to publish: what was staged, or a copy of our own where the table demands a new timestamp.
    async fn durable(
        &self,
        proposal: &Proposal,
        content: &Content,
        admission: &Admission,
    ) -> Result<Durable, CommitError> {
        match admission.timestamp_after_ms {
            None if admission.rebase.is_empty() => Ok(Durable {
                bytes: content.bytes.clone(),
                at: self.staged.key.key(),
                etag: content.etag.clone(),
                sha256: keys::content_hash(&content.bytes),
            }),
            after_ms => {
                let stamp_ms = after_ms.map(|after_ms| self.ctx.now_ms().max(after_ms.saturating_add(1)));
                let bytes = rebase::render(&content.bytes, &admission.rebase, stamp_ms);
                claim::store_rewritten(self.ctx, &self.staged.key.root, admission.version, proposal, bytes).await
            }
        }
    }

    async fn refuse(&self, proposal: &Proposal, refusal: Refusal, status: Status) -> Result<Step, CommitError> {
        tracing::info!(proposal = %proposal.id, root = %proposal.root, exception = ?refusal.exception,
            reason = refusal.reason, message = refusal.message, "refused");
        Ok(match claim::refuse(self.ctx, proposal, refusal, status).await? {
            Some(stored) => Step::Done(Box::new(stored)),
            None => Step::Again,
        })
    }

    /// The log cannot be read: refuse, without a view.
    async fn refuse_unread(&mut self, refusal: Refusal) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let lookup = view::load_lookup(self.ctx, root, self.id).await?;
        if let Some(stored) = self.stored(lookup.as_ref()).await? {
            if stored.status.is_final() {
                return Ok(Step::Done(Box::new(stored)));
            }
            return self.refuse(&stored, refusal, Status::Rejected).await;
        }
        let content = self.content().await?;
        let head = super::head::load(&*self.ctx.ports().items, root).await?;
        let head = head.unwrap_or_else(|| super::head::Head::fresh(root));
        let proposal = self.new_proposal(head.generation, &content);
        self.refuse(&proposal, refusal, Status::Rejected).await
    }

    /// Catalog-managed tables: the event is recorded, nothing else.
    async fn record_ignored(&self, proposal: Proposal) -> Result<Step, CommitError> {
        if !proposal.revision.is_empty() {
            return Ok(Step::Done(Box::new(proposal)));
        }
        let mut next = Proposal { revision: self.ctx.new_revision(), ..proposal.clone() };
        next.warnings
            .push("the table is catalog-managed: its catalog judges commits; this one was only recorded".into());
        let mut writes = vec![proposal.write(&next)?];
        writes.extend(claim::index_writes(&proposal));
        match self.ctx.transact(&writes).await? {
            super::context::Transacted::Done => Ok(Step::Done(Box::new(next))),
            super::context::Transacted::Refused(_) => Ok(Step::Again),
        }
    }

    /// The catalog is told, where that is still due.
    async fn finish(&mut self, views: &Views, proposal: Box<Proposal>) -> Result<Outcome, CommitError> {
        let verdict = |proposal| Ok(Outcome::Verdict(Box::new(Verdict { proposal })));
        if !sync::is_due(&proposal) || !matches!(proposal.status, Status::Committed { .. }) {
            return verdict(*proposal);
        }
        let view = views.get(&proposal.root);
        if view.is_some_and(|view| view.head.generation != proposal.generation) {
            let text = "the table was replaced before the catalog took the partitions";
            return verdict(sync::settle(self.ctx, *proposal, SyncState::Done(text.into()), None).await?);
        }
        let state = view.and_then(|view| view.state.as_ref());
        let Some(metadata) = state.map(|state| state.metadata.clone()) else { return verdict(*proposal) };
        let content = match self.content().await {
            Ok(content) => content,
            // Without its bytes nothing can be told any more; the commit stands.
            Err(CommitError::StagedMissing(_)) => return verdict(*proposal),
            Err(error) => return Err(error),
        };
        match &content.candidate {
            Ok(candidate) => verdict(sync::sync(self.ctx, *proposal, candidate, &metadata).await?),
            Err(_) => verdict(*proposal),
        }
    }
}

fn too_old(reason: &str, text: String) -> Refusal {
    Refusal::new(
        Exception::ConcurrentWriteException,
        reason,
        text,
        "read the table again, redo the operation on its new state, and propose it under a new id",
    )
}

/// The answer to a proposal whose id was used for other content before; not stored.
fn reused(stored: &Proposal) -> Proposal {
    let text = format!("the id {} was used for other content before (now {})", stored.id, stored.status.name());
    let refusal = Refusal::new(
        Exception::ProposalReusedException,
        "PROPOSAL_REUSED",
        text,
        "give every proposal an id of its own; ask for the first one's verdict by its id",
    );
    Proposal { status: Status::Rejected, refusal: Some(refusal), sync: SyncState::None, ..stored.clone() }
}
