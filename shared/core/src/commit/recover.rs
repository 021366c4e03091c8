//! Finishing what another run began: a claim on the head is published with exactly its recorded bytes, or found lost.

use super::claim::{self, Published};
use super::context::Context;
use super::error::CommitError;
use super::head::{Claim, Head};
use super::keys::{self, content_hash};
use super::proposal::Proposal;
use crate::delta::Version;
use crate::delta::log::{commit_key, list_log};
use crate::store::{Consistency, GetOptions, ObjectError, ObjectKey, QueueName, StoreError, StoreErrorKind};
use bytes::Bytes;

/// Finishes the claim on `head`. Afterwards head and proposals must be read anew.
///
/// It does not matter whether the run that made the claim is still alive: both publish the same bytes, and the
/// condition on the head lets one of them record it.
pub async fn finish(ctx: Context<'_>, head: &Head, claim: &Claim) -> Result<(), CommitError> {
    let proposal = claimed_proposal(ctx, head, claim).await?;
    tracing::info!(root = %head.root, version = %claim.version, proposal = %claim.proposal, "finishing a claim");
    if !is_same_log(ctx, head).await? {
        tracing::warn!(root = %head.root, version = %claim.version, proposal = %claim.proposal,
            "the log under a claim was replaced; the claim is given up");
        return give_up(ctx, head, &proposal, claim).await;
    }
    let published = match durable_bytes(ctx, head, claim).await? {
        Some(bytes) => (claim::publish(ctx, &head.root, claim.version, &bytes, claim).await?, Some(bytes)),
        None => match published_bytes(ctx, head, claim).await? {
            Some(bytes) => bytes,
            // Gone, and not published either: the next proposal takes the version over.
            None => {
                tracing::warn!(root = %head.root, version = %claim.version, proposal = %claim.proposal,
                    "the bytes of a claim are gone; its version is free again");
                return give_up(ctx, head, &proposal, claim).await;
            }
        },
    };
    match published {
        (Published::Ours { etag }, Some(bytes)) => {
            claim::complete(ctx, head, &proposal, claim, &bytes, etag).await?;
            Ok(())
        }
        _ => give_up(ctx, head, &proposal, claim).await,
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
async fn give_up(ctx: Context<'_>, head: &Head, proposal: &Proposal, claim: &Claim) -> Result<(), CommitError> {
    claim::lose(ctx, head, proposal, claim).await?;
    let body = super::door::redelivery(
        &ObjectKey::new(head.root.bucket.clone(), proposal.staged_key.clone()),
        &proposal.staged_etag,
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

/// The recorded bytes, if they are still what was recorded.
async fn durable_bytes(ctx: Context<'_>, head: &Head, claim: &Claim) -> Result<Option<Bytes>, CommitError> {
    let at = ObjectKey::new(head.root.bucket.clone(), claim.bytes_key.clone());
    let options = GetOptions { range: None, if_match: Some(claim.bytes_etag.clone()) };
    match ctx.ports().objects.get(&at, &options).await {
        Ok(object) => Ok(Some(object.bytes).filter(|bytes| content_hash(bytes) == claim.sha256)),
        Err(ObjectError::NotFound(_) | ObjectError::PreconditionFailed(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
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
