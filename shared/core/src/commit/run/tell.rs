//! After a verdict: the catalog is told of what was committed, where that is still due. It is apart from judging, so that
//! the next commit of a batch does not wait for it.

use super::{Outcome, Run, Views};
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::commit::sync;
use crate::commit::verdict::Verdict;

/// What a run came to.
#[derive(Debug)]
pub(in crate::commit) enum Decided {
    Proposal {
        proposal: Box<Proposal>,
        owes: Owes,
    },
    /// See [`Outcome::NotJudged`].
    NotJudged {
        reason: String,
    },
}

/// What a decided proposal owes the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commit) enum Owes {
    Nothing,
    /// Its tables follow.
    News,
    /// Another table stands at the place by now: there is nothing to follow any more.
    End,
}

impl Run<'_> {
    pub(super) fn decided(&self, views: &Views, proposal: Proposal) -> Decided {
        let owes = self.owes(views, &proposal);
        Decided::Proposal { proposal: Box::new(proposal), owes }
    }

    fn owes(&self, views: &Views, proposal: &Proposal) -> Owes {
        let is_new = proposal.sync == SyncState::None && proposal.revision != self.given;
        if !(sync::is_due(proposal) || is_new) || !matches!(proposal.status, Status::Committed { .. }) {
            return Owes::Nothing;
        }
        match views.get(&proposal.root) {
            // The catalog follows with the publication.
            Some(view) if view.head.managed.is_some() => Owes::Nothing,
            Some(view) if view.head.generation != proposal.generation => Owes::End,
            _ => Owes::News,
        }
    }
}

/// Tells the catalog, and answers what came out with the proposal as it is stored then.
pub(in crate::commit) async fn tell(ctx: Context<'_>, decided: Decided) -> Result<Outcome, CommitError> {
    let (proposal, owes) = match decided {
        Decided::Proposal { proposal, owes } => (*proposal, owes),
        Decided::NotJudged { reason } => return Ok(Outcome::NotJudged { reason }),
    };
    let proposal = match owes {
        Owes::Nothing => proposal,
        Owes::News => sync::sync(ctx, proposal).await?,
        Owes::End => {
            let text = "the table was replaced before the catalog took the partitions";
            sync::settle(ctx, proposal, SyncState::Done(text.into()), None).await?
        }
    };
    Ok(Outcome::Verdict(Box::new(Verdict { proposal })))
}
