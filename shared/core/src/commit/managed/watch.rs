//! Versions that turn up in the log of a catalog-managed table: copies of what was ratified, or something to be told of.

use super::publish::{publish_pending, raise_foreign};
use super::state::Managed;
use crate::commit::audit::{Audited, Logged};
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::head::{self, Head};
use crate::commit::keys::content_hash;
use crate::store::{GetOptions, ObjectError};

/// Looks at a version behind the last one that was known to be published.
pub(in crate::commit) async fn watch(
    ctx: Context<'_>,
    head: &Head,
    managed: &Managed,
    logged: &Logged,
) -> Result<Audited, CommitError> {
    let object = match ctx.ports().objects.get(&logged.key(), &GetOptions::default()).await {
        Ok(object) => object,
        Err(ObjectError::NotFound(_)) => return Ok(Audited::AsRecorded),
        Err(error) => return Err(error.into()),
    };
    let ratified = managed.ratified.iter().find(|one| one.version == logged.version);
    match ratified {
        Some(ratified) if content_hash(&object.bytes) == ratified.sha256 => {
            publish_pending(ctx, &head.root, Some(ratified.version)).await?;
            Ok(Audited::Published(ratified.id))
        }
        other => {
            // Ratified and published since the head was read: then the next look knows it.
            let now = head::load(&*ctx.ports().items, &head.root).await?;
            if now.is_some_and(|now| now.revision != head.revision) {
                return Err(CommitError::Contended { attempts: 1 });
            }
            Ok(Audited::Alarmed(raise_foreign(ctx, head, logged.version, other).await?))
        }
    }
}
