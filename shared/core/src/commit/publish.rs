//! Putting `<version>.json`, by whatever run comes to it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::context::Context;
use super::error::CommitError;
use super::head::Claim;
use super::keys::{ProposalId, content_hash};
use crate::delta::Version;
use crate::delta::log::commit_key;
use crate::location::Location;
use crate::store::{ETag, GetOptions, ObjectError, ObjectKey, PutCondition, PutOptions};

/// Tries of one put that failed without a clear answer.
const TRIES: u32 = 5;
/// Metadata of what we publish: the proposal.
pub const PROPOSAL_MARK: &str = "lakewarden-proposal";

/// What became of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// `<version>.json` holds exactly our bytes.
    Ours { etag: ETag },
    /// Somebody else's bytes are there.
    Foreign,
}

/// Publishes a claim.
pub async fn publish(
    ctx: Context<'_>,
    root: &Location,
    bytes: &Bytes,
    claim: &Claim,
) -> Result<Published, CommitError> {
    put_version(ctx, root, claim.version, bytes, Some(claim.proposal)).await
}

/// Puts `<version>.json` unless it is there. A refusal is compared by content before it counts as a loss: it may be
/// our own first try, or another run that finished the same claim.
pub async fn put_version(
    ctx: Context<'_>,
    root: &Location,
    version: Version,
    bytes: &Bytes,
    proposal: Option<ProposalId>,
) -> Result<Published, CommitError> {
    let at = commit_key(root, version);
    let mark = proposal.map(|id| (PROPOSAL_MARK.to_owned(), id.to_string()));
    let options = PutOptions {
        condition: PutCondition::Absent,
        metadata: BTreeMap::from_iter(mark),
        content_type: Some("application/json".to_owned()),
    };
    let sha256 = content_hash(bytes);
    let mut last = CommitError::Contended { attempts: TRIES };
    for attempt in 0..TRIES {
        if attempt > 0 {
            ctx.back_off(attempt).await;
        }
        // No put is begun, or waited for, that could wake up after the platform gave us up.
        ctx.check_time("publishing", 0)?;
        let put = ctx.ports().objects.put(&at, bytes.clone(), &options);
        match ctx.before_deadline("publishing", put).await? {
            Ok(etag) => return Ok(Published::Ours { etag }),
            Err(ObjectError::PreconditionFailed(_)) => {
                if let Some(found) = look(ctx, &at, &sha256).await? {
                    return Ok(found);
                }
            }
            Err(error) => {
                let error = CommitError::from(error);
                if !error.is_retryable() {
                    return Err(error);
                }
                last = error;
            }
        }
    }
    Err(last)
}

/// Whose bytes a version holds; `None` where there is no such version.
pub async fn look(ctx: Context<'_>, at: &ObjectKey, sha256: &str) -> Result<Option<Published>, CommitError> {
    match ctx.ports().objects.get(at, &GetOptions::default()).await {
        Ok(object) if content_hash(&object.bytes) == sha256 => Ok(Some(Published::Ours { etag: object.meta.etag })),
        Ok(_) => Ok(Some(Published::Foreign)),
        Err(ObjectError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
