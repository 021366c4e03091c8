//! Proposals that are refused for what they are, whatever the table says.

use crate::commit::candidate::Candidate;
use crate::commit::content::Content;
use crate::commit::head::Age;
use crate::commit::judge;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::commit::verdict::{Exception, Refusal};
use crate::commit::view::{self, View};

/// Refuses what was, or may have been, made for a table that stood here before. What is dated in the second in which the
/// table was written anew must say that it is meant for this one, or create it.
pub(super) fn made_for_another_table(view: &View, content: &Content) -> Option<Refusal> {
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
pub(in crate::commit) fn reused(stored: &Proposal) -> Proposal {
    let text = format!("the id {} was used for other content before (now {})", stored.id, stored.status.name());
    let refusal = Refusal::new(
        Exception::ProposalReusedException,
        "PROPOSAL_REUSED",
        text,
        &format!("give every proposal an id of its own; the verdict under {} is the first one's", stored.id),
    );
    Proposal { status: Status::Rejected, refusal: Some(refusal), sync: SyncState::None, ..stored.clone() }
}

/// The verdict where the staged object is gone before there was one.
pub(super) fn staged_gone() -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "STAGED_OBJECT_GONE",
        "the staged commit was deleted before it could be judged",
        "stage it under a new id, and leave it where it is until there is a verdict",
    )
}
