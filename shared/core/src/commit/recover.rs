//! Finishing what another run began: a claim on the head is published with exactly its recorded bytes, or found lost.

use super::claim::{self, LostTo};
use super::context::Context;
use super::error::CommitError;
use super::head::{Claim, Head};
use super::keys::{self, content_hash};
use super::proposal::Proposal;
use super::publish::{self, Published};
use crate::delta::Version;
use crate::delta::log::{commit_key, list_log};
use crate::store::{Consistency, GetOptions, ObjectError, ObjectKey, QueueName, StoreError, StoreErrorKind};
use bytes::Bytes;

/// Finishes the claim on `head`. Afterwards head and proposals must be read anew.
///
/// It does not matter whether the run that made the claim is still alive: both publish the same bytes, and the
/// condition on the head lets one of them record it.
pub async fn finish(ctx: Context<'_>, head: &Head, claim: &Claim) -> Result<(), CommitError> {
    // Its worker is at it, most likely.
    if let Some(until_ms) = head.leased_until_ms(ctx.worker, ctx.now_ms()) {
        return Err(CommitError::Leased { until_ms });
    }
    let proposal = claimed_proposal(ctx, head, claim).await?;
    tracing::info!(root = %head.root, version = %claim.version, proposal = %claim.proposal, "finishing a claim");
    if !is_same_log(ctx, head).await? {
        tracing::warn!(root = %head.root, version = %claim.version, proposal = %claim.proposal,
            "the log under a claim was replaced; the claim is given up");
        return give_up(ctx, head, &proposal, claim, LostTo::Nobody).await;
    }
    let published = match durable_bytes(ctx, head, &proposal, claim).await? {
        Some(bytes) => (publish::publish(ctx, &head.root, &bytes, claim).await?, Some(bytes)),
        None => match published_bytes(ctx, head, claim).await? {
            Some(bytes) => bytes,
            // Gone, and not published either: the next proposal takes the version over.
            None => {
                tracing::warn!(root = %head.root, version = %claim.version, proposal = %claim.proposal,
                    "the bytes of a claim are gone; its version is free again");
                return give_up(ctx, head, &proposal, claim, LostTo::Nobody).await;
            }
        },
    };
    match published {
        (Published::Ours { etag }, Some(bytes)) => {
            claim::complete(ctx, head, &proposal, claim, &bytes, etag).await?;
            Ok(())
        }
        _ => give_up(ctx, head, &proposal, claim, LostTo::Others).await,
    }
}

/// Whether the log still holds the commit that the claim was made upon. A table may have been dropped and written anew
/// since: its log must not get a version of the old one.
async fn is_same_log(ctx: Context<'_>, head: &Head) -> Result<bool, CommitError> {
    if head.version == Version::NONE {
        // A creation: the put itself demands that there is no version 0.
        return Ok(true);
    }
    let listing = list_log(&*ctx.ports().objects, &head.root, Some(head.version)).await?;
    let etag = listing.commit(head.version).map(|entry| &entry.etag);
    Ok(etag.is_some() && etag == head.log_etag.as_ref())
}

/// The claim is lost; its proposal gets a new message, since the run that was judging it may be gone.
async fn give_up(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    claim: &Claim,
    to: LostTo,
) -> Result<(), CommitError> {
    claim::lose(ctx, head, proposal, claim, to).await?;
    let body = super::door::redelivery(
        &ObjectKey::new(head.root.bucket.clone(), proposal.staged_key.clone()),
        Some(&proposal.staged_etag),
        0,
    );
    ctx.ports().queue.send(QueueName::Commits, body, 0).await?;
    Ok(())
}

async fn claimed_proposal(ctx: Context<'_>, head: &Head, claim: &Claim) -> Result<Proposal, CommitError> {
    let key = keys::proposal(&head.root, head.generation, claim.proposal);
    match ctx.ports().items.get(&key, Consistency::Strong).await? {
        Some(item) => Ok(Proposal::decode(&item)?),
        None => {
            let text = format!("the head of {} names the proposal {}, which is not stored", head.root, claim.proposal);
            Err(StoreError::new(StoreErrorKind::Invalid, "get commits", text).into())
        }
    }
}

/// The recorded bytes, if they are still what was recorded: where the claim says, or (an old delta-rs moves what a claim
/// names) as they were staged.
async fn durable_bytes(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    claim: &Claim,
) -> Result<Option<Bytes>, CommitError> {
    let places = [(&claim.bytes_key, &claim.bytes_etag), (&proposal.staged_key, &proposal.staged_etag)];
    for (key, etag) in places {
        let at = ObjectKey::new(head.root.bucket.clone(), key.clone());
        let options = GetOptions { range: None, if_match: Some(etag.clone()) };
        match ctx.ports().objects.get(&at, &options).await {
            Ok(object) if content_hash(&object.bytes) == claim.sha256 => return Ok(Some(object.bytes)),
            Ok(_) | Err(ObjectError::NotFound(_) | ObjectError::PreconditionFailed(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if claim.bytes_key == proposal.staged_key {
            break;
        }
    }
    Ok(None)
}

/// Whose bytes stand at the claimed version, where the recorded ones are gone.
async fn published_bytes(
    ctx: Context<'_>,
    head: &Head,
    claim: &Claim,
) -> Result<Option<(Published, Option<Bytes>)>, CommitError> {
    let at = commit_key(&head.root, claim.version);
    match ctx.ports().objects.get(&at, &GetOptions::default()).await {
        Ok(object) if content_hash(&object.bytes) == claim.sha256 => {
            Ok(Some((Published::Ours { etag: object.meta.etag }, Some(object.bytes))))
        }
        Ok(_) => Ok(Some((Published::Foreign, None))),
        Err(ObjectError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
