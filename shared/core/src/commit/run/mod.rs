//! One proposal, from its staged object to its verdict.

mod admit;
mod refusals;
mod refuse;
mod tell;

use std::collections::HashMap;
use std::sync::Arc;

use super::ahead::Ahead;
use super::candidate::Candidate;
use super::claim;
use super::content::{self, Content};
use super::context::{CLAIM_MS, Context};
use super::error::CommitError;
use super::exact;
use super::fold::fold;
use super::head::Head;
use super::judge::{self, Judgement};
use super::keys::{self, ProposalId, content_hash};
use super::log_store::{self, Inspection, Look};
use super::lookup::Lookup;
use super::proposal::{Proposal, Status};
use super::verdict::{Exception, Refusal, Verdict};
use super::view::{self, View, ViewError};
use crate::delta::log::StagedKey;
use crate::delta::{Version, features};
use crate::location::Location;
use crate::store::{Consistency, ETag, ObjectKey};

use admit::Proof;
pub(super) use refusals::reused;
use refusals::{made_for_another_table, staged_gone};
pub(super) use refuse::refuse_too_slow;
pub(super) use tell::{Decided, tell};

/// Times a proposal is judged again because the table moved.
const ATTEMPTS_MAX: u32 = 24;

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

/// Judges a staged object and carries the verdict out, all but telling the catalog ([`tell`]).
pub(super) async fn run(
    ctx: Context<'_>,
    views: &mut Views,
    ahead: &mut Ahead,
    staged: &Staged,
) -> Result<Decided, CommitError> {
    let content = ahead.take_content(staged);
    let id = ProposalId(staged.key.id);
    let mut run = Run {
        ctx,
        staged,
        id,
        ahead,
        content,
        proved: None,
        returned: Vec::new(),
        fence_waited_ms: 0,
        look: Look::IfNews,
        given: String::new(),
    };
    for _ in 0..ATTEMPTS_MAX {
        ctx.check_time("judging a commit", CLAIM_MS)?;
        // A view is used once and put back only where it is known to be right.
        let taken = views.remove(&staged.key.root);
        match run.attempt(views, taken).await {
            Ok(Step::Done(outcome)) => return Ok(run.decided(views, *outcome)),
            Ok(Step::Again) => {}
            Err(CommitError::StagedMissing(at)) => {
                return Ok(Decided::NotJudged { reason: CommitError::StagedMissing(at).to_string() });
            }
            Err(CommitError::StagedChanged(at)) => {
                return Ok(Decided::NotJudged { reason: CommitError::StagedChanged(at).to_string() });
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
    /// What is to be said of files that a sweep had taken away and that came back.
    returned: Vec<String>,
    fence_waited_ms: i64,
    /// Whether the log store is looked at for a reason of this run's own.
    look: Look,
    /// Revision of the proposal that was stored before, if there was one.
    given: String,
}

impl Run<'_> {
    async fn attempt(&mut self, views: &mut Views, taken: Option<View>) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let is_fresh = taken.is_none();
        let loaded = match taken {
            Some(view) => match self.ahead.take_lookup(self.id) {
                Some(lookup) => Ok((view, lookup)),
                None => view::load_lookup(self.ctx, root, self.id)
                    .await
                    .map(|lookup| (view, lookup))
                    .map_err(ViewError::from),
            },
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
}
