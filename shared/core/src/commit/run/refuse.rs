//! How a run ends without a version, and what it keeps of a proposal that goes on later.

use super::{Run, Staged, Step};
use crate::commit::ahead::Ahead;
use crate::commit::claim;
use crate::commit::content;
use crate::commit::context::{Context, Transacted};
use crate::commit::error::CommitError;
use crate::commit::fold;
use crate::commit::head::{self, Head};
use crate::commit::keys::ProposalId;
use crate::commit::log_state;
use crate::commit::log_store::Look;
use crate::commit::proposal::{Proposal, Status};
use crate::commit::verdict::Refusal;
use crate::commit::view;

impl Run<'_> {
    pub(super) async fn refuse(
        &self,
        head: &Head,
        proposal: &Proposal,
        refusal: Refusal,
        status: Status,
    ) -> Result<Step, CommitError> {
        let stored = claim::refuse(self.ctx, head, proposal, refusal, status).await?;
        Ok(stored.map_or(Step::Again, |stored| Step::Done(Box::new(stored))))
    }

    /// The log cannot be read: refuse, without a view.
    pub(super) async fn refuse_unread(&mut self, refusal: Refusal) -> Result<Step, CommitError> {
        let root = &self.staged.key.root;
        let lookup = view::load_lookup(self.ctx, root, self.id).await?;
        let head = head::load(&*self.ctx.ports().items, root).await?;
        let head = head.unwrap_or_else(|| Head::fresh(root));
        log_state::alarm_of(self.ctx, &head, &refusal).await?;
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
    pub(super) async fn store(&self, head: &Head, proposal: &Proposal) -> Result<Option<Proposal>, CommitError> {
        let (updated_ms, revision) = (self.ctx.now_ms(), self.ctx.new_revision());
        let next = Proposal { updated_ms, revision, ..proposal.clone() };
        let mut writes = vec![proposal.write(&next)?];
        writes.extend(claim::index_writes(proposal, head));
        Ok((self.ctx.transact(&writes).await? == Transacted::Done).then_some(next))
    }

    /// Catalog-managed tables: the event is recorded, nothing else.
    pub(super) async fn record_ignored(&self, head: &Head, mut proposal: Proposal) -> Result<Step, CommitError> {
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
}

/// Ends a proposal that was broken off for want of time too often, with a named reason.
pub(in crate::commit) async fn refuse_too_slow(
    ctx: Context<'_>,
    staged: &Staged,
    error: &CommitError,
) -> Result<(), CommitError> {
    let mut ahead = Ahead::default();
    let id = ProposalId(staged.key.id);
    let mut run = Run {
        ctx,
        staged,
        id,
        ahead: &mut ahead,
        content: None,
        proved: None,
        returned: Vec::new(),
        fence_waited_ms: 0,
        look: Look::IfNews,
        given: String::new(),
    };
    run.refuse_unread(fold::too_slow(error)).await.map(|_| ())
}
