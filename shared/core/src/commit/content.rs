//! What was staged, read once.

use bytes::Bytes;

use super::candidate::Candidate;
use super::context::Context;
use super::error::CommitError;
use super::keys::{Generation, ProposalId};
use super::proposal::Proposal;
use super::run::Staged;
use super::verdict::Refusal;
use crate::store::{ByteRange, ETag, GetOptions, ObjectError, ObjectMeta};

/// Largest staged object that is judged.
pub const STAGED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// What is read before its turn.
const SMALL_BYTES: u64 = 256 * 1024;
/// What is kept of an operation's name.
const OPERATION_MAX_CHARS: usize = 200;

/// A staged object and what it says.
#[derive(Debug)]
pub(super) struct Content {
    pub etag: ETag,
    pub bytes: Bytes,
    pub last_modified_ms: i64,
    pub candidate: Result<Candidate, Refusal>,
}

/// One GET, on the condition that the object is the one of the event.
pub(super) async fn read(ctx: Context<'_>, staged: &Staged) -> Result<Content, CommitError> {
    let (meta, bytes) = fetch(ctx, staged, STAGED_MAX_BYTES).await?;
    Ok(parse(staged, meta, bytes))
}

/// The same of an object of ordinary size; `None` for a larger one.
pub(super) async fn read_small(ctx: Context<'_>, staged: &Staged) -> Result<Option<Content>, CommitError> {
    let (meta, bytes) = fetch(ctx, staged, SMALL_BYTES).await?;
    Ok((meta.size_bytes <= SMALL_BYTES).then(|| parse(staged, meta, bytes)))
}

async fn fetch(ctx: Context<'_>, staged: &Staged, most_bytes: u64) -> Result<(ObjectMeta, Bytes), CommitError> {
    let at = staged.key.key();
    let range = Some(ByteRange::From { start: 0, length: most_bytes });
    let options = GetOptions { range, if_match: staged.etag.clone() };
    match ctx.ports().objects.get(&at, &options).await {
        Ok(object) => Ok((object.meta, object.bytes)),
        // An empty object has no first byte.
        Err(ObjectError::InvalidRange(_)) => Ok((ctx.ports().objects.head(&at).await?, Bytes::new())),
        Err(ObjectError::NotFound(at)) => Err(CommitError::StagedMissing(at)),
        Err(ObjectError::PreconditionFailed(at)) => Err(CommitError::StagedChanged(at)),
        Err(error) => Err(error.into()),
    }
}

fn parse(staged: &Staged, meta: ObjectMeta, bytes: Bytes) -> Content {
    let candidate = if meta.size_bytes > STAGED_MAX_BYTES {
        let text = format!("the staged commit has {} bytes; at most {STAGED_MAX_BYTES} are judged", meta.size_bytes);
        Err(Refusal::invalid("TOO_LARGE", text))
    } else {
        Candidate::parse(&staged.key.root, staged.key.version, bytes.clone())
    };
    Content { etag: meta.etag, bytes, last_modified_ms: meta.last_modified_ms, candidate }
}

/// The proposal that these bytes are, as it is stored, or new.
pub(super) fn proposal(
    ctx: Context<'_>,
    staged: &Staged,
    generation: Generation,
    content: &Content,
    stored: Option<Proposal>,
) -> Proposal {
    let new = new_proposal(ctx, staged, generation, content);
    match stored {
        None => new,
        // It may have been given up before its object could be read.
        Some(stored) => Proposal {
            staged_etag: new.staged_etag,
            read_version: new.read_version,
            operation: new.operation,
            warnings: new.warnings,
            ..stored
        },
    }
}

/// The proposal that these bytes are, not stored yet.
pub(super) fn new_proposal(ctx: Context<'_>, staged: &Staged, generation: Generation, content: &Content) -> Proposal {
    let candidate = content.candidate.as_ref().ok();
    let operation = candidate.and_then(|candidate| candidate.operation());
    let object = (staged.key.key().key, content.etag.clone());
    Proposal {
        read_version: candidate.map_or(staged.key.version.previous(), |candidate| candidate.read_version),
        operation: operation.map(|name| name.chars().take(OPERATION_MAX_CHARS).collect()),
        warnings: candidate.map_or_else(Vec::new, |candidate| candidate.warnings.clone()),
        ..Proposal::received(&staged.key.root, generation, ProposalId(staged.key.id), object, ctx.now_ms())
    }
}
