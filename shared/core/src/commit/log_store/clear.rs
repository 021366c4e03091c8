//! Another table stands at the place: entries of the one before are taken away.

use super::super::context::Context;
use super::super::error::CommitError;
use super::super::head::{Age, Head, LogStore};
use super::{Completion, Entry, since, take_away};
use crate::delta::Version;
use crate::store::ObjectError;

/// Clears what the generations before left in `delta_log`, once, before the first claim of the new one. Entries of the
/// new table that are complete may go as well: their files exist, and time takes them away anyhow.
pub async fn clear_old(ctx: Context<'_>, head: &Head) -> Result<(), CommitError> {
    let is_new = head.version == Version::NONE && head.generation.0 > 0 && head.log_store == LogStore::Shared;
    if !is_new {
        return Ok(());
    }
    for entry in since(ctx, &head.root, Version(0)).await?.entries {
        if entry.completion == Completion::Complete || is_older(ctx, head, &entry).await? {
            tracing::info!(root = %head.root, version = entry.version.0, "an entry of the table before is taken away");
            take_away(ctx, &entry).await?;
        }
    }
    Ok(())
}

/// Whether the bytes of an incomplete entry are gone, or older than the table.
pub(super) async fn is_older(ctx: Context<'_>, head: &Head, entry: &Entry) -> Result<bool, CommitError> {
    let Some(at) = entry.temp_key(&head.root) else { return Ok(false) };
    match ctx.ports().objects.head(&at).await {
        Ok(meta) => Ok(head.age_of(meta.last_modified_ms) == Age::Before),
        Err(ObjectError::NotFound(_)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
