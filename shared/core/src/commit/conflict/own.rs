//! The candidate itself among the winners.

use crate::commit::candidate::Candidate;
use crate::commit::isolation::ROW_TRACKING_DOMAIN;
use crate::commit::keys::content_hash;
use crate::commit::row_level::edits::{TAG_ACTIONS, TAG_PROPOSAL, actions_hash};
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{Actions, Version};

/// The version that the candidate became already: an earlier attempt of the same content, or of the same transaction, may
/// have landed anywhere since it was read. A transaction id alone proves nothing: under one id with other actions, the
/// candidate's own rows are nowhere yet.
pub fn landed<'a>(
    candidate: &Candidate,
    winners: impl IntoIterator<Item = &'a LoggedCommit>,
) -> Result<Option<Version>, Refusal> {
    for winner in winners {
        if winner.bytes.len() == candidate.bytes.len() && content_hash(&winner.bytes) == candidate.sha256 {
            return Ok(Some(winner.version));
        }
        // Published with other rows than it was proposed with.
        if tag_of(winner, TAG_PROPOSAL) == Some(&candidate.sha256) {
            return Ok(Some(winner.version));
        }
        let txn_id = winner.actions.commit_info.as_ref().and_then(|info| info.text("txnId"));
        if candidate.txn_id().is_none() || candidate.txn_id() != txn_id {
            continue;
        }
        let is_same = match tag_of(winner, TAG_ACTIONS) {
            Some(actions) => actions == actions_hash(&candidate.bytes),
            None => as_proposed(&candidate.actions).same_but_for_info(&as_proposed(&winner.actions)),
        };
        if is_same {
            return Ok(Some(winner.version));
        }
        return Err(Refusal::new(
            Exception::ConcurrentTransactionException,
            "TXN_ID_REUSED",
            format!("version {} has the same txnId and does something else", winner.version),
            "give every transaction a txnId of its own",
        )
        .won_by(winner.version, winner.actions.operation()));
    }
    Ok(None)
}

/// What we said in a commit that we published with changes.
fn tag_of<'a>(winner: &'a LoggedCommit, tag: &str) -> Option<&'a str> {
    winner.actions.commit_info.as_ref()?.0.get("tags")?.get(tag)?.as_str()
}

/// The actions without what depends on the version that they became, and on the time at which they were written down.
pub(in crate::commit) fn as_proposed(actions: &Actions) -> Actions {
    let mut actions = actions.clone();
    for add in &mut actions.adds {
        (add.base_row_id, add.default_row_commit_version, add.modification_time) = (None, None, 0);
    }
    for remove in &mut actions.removes {
        (remove.base_row_id, remove.default_row_commit_version, remove.deletion_timestamp) = (None, None, None);
    }
    actions.domains.retain(|domain| domain.domain != ROW_TRACKING_DOMAIN);
    if let Some(metadata) = &mut actions.metadata {
        metadata.configuration.retain(|name, _| !name.starts_with("delta.inCommitTimestampEnablement"));
    }
    actions
}
