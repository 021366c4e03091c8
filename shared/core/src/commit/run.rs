//! One proposal, from its staged object to its verdict.

use std::collections::HashMap;
use std::sync::Arc;

use super::ahead::Ahead;
use super::alarm::{self, Alarm, AlarmKind};
use super::candidate::Candidate;
use super::claim::{self, Claimed, Durable, LostTo};
use super::content::{self, Content};
use super::context::{CLAIM_MS, Context, Transacted};
use super::error::CommitError;
use super::exact;
use super::files::{self, FileError};
use super::fold::{self, fold};
use super::head::{Age, Head, LogStore};
use super::judge::{self, Admission, Judgement};
use super::keys::{self, ProposalId, content_hash};
use super::log_store::{self, Inspection, Look};
use super::lookup::Lookup;
use super::proposal::{Proposal, Status, SyncState};
use super::publish::{self, Published};
use super::rebase;
use super::row_level;
use super::sync;
use super::vectors::check_vectors;
use super::verdict::{Exception, Refusal, Verdict};
use super::view::{self, View, ViewError};
use crate::delta::log::StagedKey;
use crate::delta::{Version, features};
use crate::location::Location;
use crate::store::{Consistency, ETag, ObjectKey};

/// Times a proposal is judged again because the table moved.
const ATTEMPTS_MAX: u32 = 24;
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
pub(super) async fn run(
    ctx: Context<'_>,
    views: &mut Views,
    ahead: &mut Ahead,
    staged: &Staged,
) -> Result<Outcome, CommitError> {
    let content = ahead.take_content(staged);
    let id = ProposalId(staged.key.id);
    let mut run = Run {
        ctx,
        staged,
        id,
        ahead,
        content,
        proved: None,
        fence_waited_ms: 0,
        look: Look::IfNews,
        given: String::new(),
    };
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

struct Run<'a> {
    ctx: Context<'a>,
    staged: &'a Staged,
    id: ProposalId,
    ahead: &'a mut Ahead,
    content: Option<Arc<Content>>,
    /// The head under which all files were seen to exist, once they passed.
    proved: Option<Proof>,
    fence_waited_ms: i64,
    /// Whether the log store is looked at for a reason of this run's own.
    look: Look,
    /// Revision of the proposal that was stored before, if there was one.
    given: String,
}

struct Proof {
    /// `View::unbroken_since`.
    seen_under: String,
    /// Schema and partitioning that the files were compared with.
    admission: Admission,
    checked: files::Checked,
}

impl Run<'_> {
    async fn attempt(&mut self, views: &mut Views, taken: Option<View>) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let is_fresh = taken.is_none();
        let loaded = match taken {
            Some(view) => {
                view::load_lookup(self.ctx, root, self.id).await.map(|lookup| (view, lookup)).map_err(ViewError::from)
            }
            // What was staged does not depend on the table.
            None => {
                let (ctx, id, staged) = (self.ctx, self.id, self.staged);
                let Run { content, ahead, .. } = &mut *self;
                let own = async {
                    if content.is_none() {
                        *content = content::read(ctx, staged).await.ok().map(Arc::new);
                    }
                };
                futures::join!(view::load(ctx, root, id), own, ahead.read_staged(ctx, staged)).0
            }
        };
        let (mut view, lookup) = match loaded {
            Ok(loaded) => loaded,
            Err(ViewError::Failed(error)) => return Err(error),
            Err(ViewError::Refused(refusal)) => return self.refuse_unread(refusal).await,
        };
        let stored = self.stored(lookup.as_ref()).await?;
        if let Some(stored) = &stored {
            self.given.clone_from(&stored.revision);
        }
        let step = match &stored {
            Some(stored) => self.known(&view, stored).await?,
            None => None,
        };
        let step = match step {
            Some(step) => step,
            None => self.decide(&mut view, stored, is_fresh).await?,
        };
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
        // Without an ETag: it was given up before its object could be read.
        let is_same = (etag == stored.staged_etag || stored.staged_etag.0.is_empty())
            && stored.staged_key == self.staged.key.key().key;
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
        match &self.content {
            Some(content) => Ok(content.clone()),
            None => {
                let content = Arc::new(content::read(self.ctx, self.staged).await?);
                self.content = Some(content.clone());
                Ok(content)
            }
        }
    }

    async fn decide(&mut self, view: &mut View, stored: Option<Proposal>, is_fresh: bool) -> Result<Step, CommitError> {
        if let Some(until_ms) = view.head.leased_until_ms(self.ctx.worker, self.ctx.now_ms()) {
            return Err(CommitError::Leased { until_ms });
        }
        self.ahead.read_staged(self.ctx, self.staged).await;
        let stored = stored.filter(|stored| stored.generation == view.head.generation);
        let content = match (self.content().await, &stored) {
            (Err(CommitError::StagedMissing(_)), Some(stored)) => return self.without_object(view, stored).await,
            // A view that was at hand says nothing of earlier deliveries.
            (Err(CommitError::StagedMissing(at)), None) if is_fresh => return self.look_up(view, at).await,
            (content, _) => content?,
        };
        let is_new = stored.is_none();
        let proposal = content::proposal(self.ctx, self.staged, view.head.generation, &content, stored);
        if let Some(refusal) = made_for_another_table(view, &content) {
            return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
        }
        if view.state.as_ref().is_some_and(|state| features::is_catalog_managed(&state.protocol)) {
            return self.record_ignored(&view.head, proposal).await;
        }
        if is_fresh {
            match log_store::inspect(self.ctx, view, self.look).await {
                Ok(Inspection::Fine) => {}
                Ok(Inspection::Moved) => return Ok(Step::Again),
                Ok(Inspection::Refused(refusal)) | Err(ViewError::Refused(refusal)) => {
                    return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
                }
                Err(ViewError::Failed(error)) => return Err(error),
            }
        }
        if !is_new && let Some(version) = self.landed_late(view, &proposal).await? {
            return self.land(&view.head, &proposal, version).await;
        }
        self.judge(view, proposal, &content).await
    }

    /// A claim that was taken for lost, and whose put went through after all.
    async fn landed_late(&self, view: &mut View, proposal: &Proposal) -> Result<Option<Version>, CommitError> {
        let latest = view.latest;
        for attempt in proposal.lost.iter().filter(|attempt| attempt.version <= latest) {
            match view.winners(self.ctx, attempt.version, attempt.version).await {
                Ok(found) if found.iter().any(|commit| content_hash(&commit.bytes) == attempt.sha256) => {
                    return Ok(Some(attempt.version));
                }
                // A version that was cleaned up, or cannot be read, is not this proposal's any more.
                Ok(_) | Err(ViewError::Refused(_)) => {}
                Err(ViewError::Failed(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The staged object was deleted before a verdict: either a claim landed, or there is nothing left to judge.
    async fn without_object(&self, view: &mut View, stored: &Proposal) -> Result<Step, CommitError> {
        if let Some(version) = self.landed_late(view, stored).await? {
            return self.land(&view.head, stored, version).await;
        }
        if view.state.as_ref().is_some_and(|state| features::is_catalog_managed(&state.protocol)) {
            return Ok(Step::Done(Box::new(stored.clone())));
        }
        self.refuse(&view.head, stored, staged_gone(), Status::Rejected).await
    }

    async fn look_up(&mut self, view: &mut View, missing: ObjectKey) -> Result<Step, CommitError> {
        let lookup = view::load_lookup(self.ctx, &view.root, self.id).await?;
        let Some(stored) = self.stored(lookup.as_ref()).await? else {
            return Err(CommitError::StagedMissing(missing));
        };
        match self.known(view, &stored).await? {
            Some(step) => Ok(step),
            None if stored.generation == view.head.generation => self.without_object(view, &stored).await,
            None => Err(CommitError::StagedMissing(missing)),
        }
    }

    async fn land(&self, head: &Head, proposal: &Proposal, version: Version) -> Result<Step, CommitError> {
        Ok(match claim::land(self.ctx, head, proposal, version).await? {
            Some(stored) => Step::Done(Box::new(stored)),
            None => Step::Again,
        })
    }

    async fn judge(&mut self, view: &mut View, proposal: Proposal, content: &Content) -> Result<Step, CommitError> {
        if let Err(refusal) = exact::check_version(&self.staged.key, view.latest) {
            return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
        }
        let candidate = match &content.candidate {
            Ok(candidate) => candidate,
            Err(refusal) => return self.refuse(&view.head, &proposal, refusal.clone(), Status::Rejected).await,
        };
        if let Some(step) = self.prepare_creation(view, &proposal, content, candidate).await? {
            return Ok(step);
        }
        let mut proposal = proposal;
        let known = proposal.folded;
        let judgement = match fold(self.ctx, view, candidate, &mut proposal.folded).await {
            Ok(judgement) => judgement,
            Err(ViewError::Refused(refusal)) => {
                return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
            }
            Err(ViewError::Failed(error)) => {
                if matches!(error, CommitError::OutOfTime { .. }) && proposal.folded != known {
                    self.store(&view.head, &proposal).await?;
                }
                return Err(error);
            }
        };
        match judgement {
            Judgement::Refuse(refusal) => self.refuse(&view.head, &proposal, refusal, Status::Rejected).await,
            Judgement::Supersede(refusal) => self.refuse(&view.head, &proposal, refusal, Status::Superseded).await,
            Judgement::Landed { version } => match exact::check_landed(&self.staged.key, version) {
                Ok(()) => self.land(&view.head, &proposal, version).await,
                Err(refusal) => self.refuse(&view.head, &proposal, refusal, Status::Rejected).await,
            },
            Judgement::Admit(admission) => self.admit(view, proposal, content, candidate, *admission).await,
            Judgement::NeedsFiles(_) | Judgement::NeedsRows(_) => Ok(Step::Again),
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
        self.refuse(&view.head, proposal, refusal, Status::Rejected).await.map(Some)
    }

    async fn admit(
        &mut self,
        view: &mut View,
        mut proposal: Proposal,
        content: &Content,
        candidate: &Candidate,
        admission: Admission,
    ) -> Result<Step, CommitError> {
        if let Err(refusal) = exact::check_unchanged(&self.staged.key, candidate, &admission) {
            return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
        }
        if self.wait_for_fence(view).await? {
            return Ok(Step::Again);
        }
        self.ahead.read_footers(self.ctx, content, &view.unbroken_since).await;
        match self.prove_files(view, candidate, &admission).await {
            Ok(warnings) => {
                proposal.warnings = admission.warnings.iter().chain(warnings).cloned().collect();
            }
            Err(FileError::Refused(refusal)) => {
                return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
            }
            Err(FileError::Failed(error)) => return Err(error),
        }
        match row_level::edits::prepare(self.ctx, &view.root, &admission.publication).await {
            Ok(()) => {}
            Err(FileError::Refused(refusal)) => {
                return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
            }
            Err(FileError::Failed(error)) => return Err(error),
        }
        let log_store = log_store::of_table(&view.head, Some(&admission.metadata));
        let durable = self.durable(&proposal, content, &admission, log_store).await?;
        let head = view.settled_head();
        let claimed = claim::claim(self.ctx, &head, &proposal, admission.version, &durable, log_store).await?;
        let (head, proposal) = match claimed {
            Claimed::Yes { head, proposal } => (head, proposal),
            Claimed::No => return Ok(Step::Again),
            Claimed::LogStoreEntry => {
                self.look = Look::Always;
                return Ok(Step::Again);
            }
        };
        let Some(claim) = head.claim.clone() else { return Ok(Step::Again) };
        match publish::publish(self.ctx, &view.root, &durable.bytes, &claim).await? {
            Published::Ours { etag } => {
                let done = claim::complete(self.ctx, &head, &proposal, &claim, &durable.bytes, etag).await?;
                let Some(completed) = done else { return Ok(Step::Again) };
                let proposal = completed.proposal.clone();
                view.advance(completed);
                Ok(Step::Done(Box::new(proposal)))
            }
            Published::Foreign => {
                claim::lose(self.ctx, &head, &proposal, &claim, LostTo::Others).await?;
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

    /// Footers once; existence again whenever somebody else wrote to the head since the footers were read.
    async fn prove_files(
        &mut self,
        view: &View,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<&[String], FileError> {
        let under = &view.unbroken_since;
        match &mut self.proved {
            Some(proof)
                if proof.admission.schema == admission.schema && proof.admission.metadata == admission.metadata =>
            {
                if proof.seen_under != *under {
                    files::check_existence(self.ctx, candidate, &proof.checked.etags).await?;
                    check_vectors(self.ctx, &view.root, candidate).await?;
                    proof.seen_under.clone_from(under);
                }
            }
            _ => {
                let seen = self.ahead.seen(under);
                let checked = files::check_files(self.ctx, candidate, admission, seen).await?;
                check_vectors(self.ctx, &view.root, candidate).await?;
                self.proved = Some(Proof { seen_under: under.clone(), admission: admission.clone(), checked });
            }
        }
        Ok(self.proved.as_ref().map_or(&[], |proof| proof.checked.warnings.as_slice()))
    }

    /// The bytes to publish: what was staged, or a copy of our own where they have to change, or where writers with a log
    /// store may move what a claim names.
    async fn durable(
        &self,
        proposal: &Proposal,
        content: &Content,
        admission: &Admission,
        log_store: LogStore,
    ) -> Result<Durable, CommitError> {
        let after_ms = admission.timestamp_after_ms.filter(|_| !exact::is_exact(self.staged.key.id));
        let stamp_ms = after_ms.map(|after_ms| self.ctx.now_ms().max(after_ms.saturating_add(1)));
        let bytes = if stamp_ms.is_none() && admission.rebase.is_empty() {
            content.bytes.clone()
        } else {
            rebase::render(&content.bytes, &admission.rebase, stamp_ms)
        };
        if bytes == content.bytes && log_store == LogStore::Off {
            return Ok(Durable {
                at: self.staged.key.key(),
                etag: content.etag.clone(),
                sha256: content_hash(&bytes),
                bytes,
            });
        }
        claim::store_copy(self.ctx, &self.staged.key.root, admission.version, proposal, bytes).await
    }

    async fn refuse(
        &self,
        head: &Head,
        proposal: &Proposal,
        refusal: Refusal,
        status: Status,
    ) -> Result<Step, CommitError> {
        tracing::info!(proposal = %proposal.id, root = %proposal.root, exception = ?refusal.exception,
            reason = refusal.reason, message = refusal.message, "refused");
        Ok(match claim::refuse(self.ctx, head, proposal, refusal, status).await? {
            Some(stored) => Step::Done(Box::new(stored)),
            None => Step::Again,
        })
    }

    /// The log cannot be read: refuse, without a view.
    async fn refuse_unread(&mut self, refusal: Refusal) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let lookup = view::load_lookup(self.ctx, root, self.id).await?;
        let head = super::head::load(&*self.ctx.ports().items, root).await?;
        let head = head.unwrap_or_else(|| Head::fresh(root));
        let kind = [AlarmKind::VersionRewritten, AlarmKind::LogBehindHead].into_iter();
        let reasons = ["LOG_REWRITTEN", "LOG_BEHIND_HEAD"];
        for (kind, _) in kind.zip(reasons).filter(|(_, reason)| *reason == refusal.reason) {
            let alarm = Alarm::new(kind, head.version, "judged", &refusal.message, self.ctx.now_ms());
            alarm::raise(self.ctx, root, head.generation, alarm).await?;
        }
        let proposal = match self.stored(lookup.as_ref()).await? {
            Some(stored) if stored.status.is_final() => return Ok(Step::Done(Box::new(stored))),
            Some(stored) => stored,
            None => {
                let content = self.content().await?;
                content::new_proposal(self.ctx, self.staged, head.generation, &content)
            }
        };
        if head.managed.is_some() {
            return self.record_ignored(&head, proposal).await;
        }
        self.refuse(&head, &proposal, refusal, Status::Rejected).await
    }

    /// Keeps a proposal as far as it is; none if it changed since it was read.
    async fn store(&self, head: &Head, proposal: &Proposal) -> Result<Option<Proposal>, CommitError> {
        let (updated_ms, revision) = (self.ctx.now_ms(), self.ctx.new_revision());
        let next = Proposal { updated_ms, revision, ..proposal.clone() };
        let mut writes = vec![proposal.write(&next)?];
        writes.extend(claim::index_writes(proposal, head));
        Ok((self.ctx.transact(&writes).await? == Transacted::Done).then_some(next))
    }

    /// Catalog-managed tables: the event is recorded, nothing else.
    async fn record_ignored(&self, head: &Head, mut proposal: Proposal) -> Result<Step, CommitError> {
        if !proposal.revision.is_empty() {
            return Ok(Step::Done(Box::new(proposal)));
        }
        let text = "the table is catalog-managed: its catalog judges commits; this one was only recorded";
        proposal.warnings.push(text.into());
        Ok(match self.store(head, &proposal).await? {
            Some(stored) => Step::Done(Box::new(stored)),
            None => Step::Again,
        })
    }

    /// The catalog is told, where that is still due.
    async fn finish(&mut self, views: &Views, proposal: Box<Proposal>) -> Result<Outcome, CommitError> {
        let verdict = |proposal| Ok(Outcome::Verdict(Box::new(Verdict { proposal })));
        let is_new = proposal.sync == SyncState::None && proposal.revision != self.given;
        if !(sync::is_due(&proposal) || is_new) || !matches!(proposal.status, Status::Committed { .. }) {
            return verdict(*proposal);
        }
        let view = views.get(&proposal.root);
        if view.is_some_and(|view| view.head.managed.is_some()) {
            // The catalog follows with the publication.
            return verdict(*proposal);
        }
        if view.is_some_and(|view| view.head.generation != proposal.generation) {
            let text = "the table was replaced before the catalog took the partitions";
            return verdict(sync::settle(self.ctx, *proposal, SyncState::Done(text.into()), None).await?);
        }
        verdict(sync::sync(self.ctx, *proposal).await?)
    }
}

/// Refuses what was, or may have been, made for a table that stood here before. What is dated in the second in which the
/// table was written anew must say that it is meant for this one, or create it.
fn made_for_another_table(view: &View, content: &Content) -> Option<Refusal> {
    let candidate = content.candidate.as_ref().ok();
    let table_id = view.state.as_ref().map(|state| state.metadata.id.as_str());
    let says = candidate.and_then(Candidate::table_id);
    match view.head.age_of(content.last_modified_ms) {
        Age::Before => Some(view::table_replaced()),
        Age::SameSecond if says.is_some() && says == table_id => None,
        // It makes a table of its own, or meets this one as one that exists.
        Age::SameSecond if candidate.is_some_and(judge::is_creation) => None,
        Age::SameSecond => Some(view::perhaps_replaced()),
        Age::Since if candidate.is_some_and(judge::is_creation) => None,
        Age::Since => match candidate.and_then(|candidate| candidate.read_table_id()) {
            Some(read) if table_id.is_some_and(|table_id| table_id != read) => Some(view::table_replaced()),
            _ => None,
        },
    }
}

/// The answer to a proposal whose id was used for other content before; not stored.
pub(super) fn reused(stored: &Proposal) -> Proposal {
    let text = format!("the id {} was used for other content before (now {})", stored.id, stored.status.name());
    let refusal = Refusal::new(
        Exception::ProposalReusedException,
        "PROPOSAL_REUSED",
        text,
        "give every proposal an id of its own; ask for the first one's verdict by its id",
    );
    Proposal { status: Status::Rejected, refusal: Some(refusal), sync: SyncState::None, ..stored.clone() }
}

/// The verdict where the staged object is gone before there was one.
fn staged_gone() -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "STAGED_OBJECT_GONE",
        "the staged commit was deleted before it could be judged",
        "stage it under a new id, and leave it where it is until there is a verdict",
    )
}

/// Ends a proposal that was broken off for want of time too often, with a named reason.
pub(super) async fn refuse_too_slow(ctx: Context<'_>, staged: &Staged, error: &CommitError) -> Result<(), CommitError> {
    let mut ahead = Ahead::default();
    let id = ProposalId(staged.key.id);
    let mut run = Run {
        ctx,
        staged,
        id,
        ahead: &mut ahead,
        content: None,
        proved: None,
        fence_waited_ms: 0,
        look: Look::IfNews,
        given: String::new(),
    };
    run.refuse_unread(fold::too_slow(error)).await.map(|_| ())
}
