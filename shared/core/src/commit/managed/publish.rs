//! Copying what was ratified into the log. Clients do it right after their commit; what they leave undone is done here,
//! and what they did is recognised by its content.

use serde_json::json;

use super::overlay::{bytes_of, raise_missing};
use super::state::{Managed, Ratified};
use crate::commit::alarm::{self, Alarm, AlarmKind};
use crate::commit::context::{CLAIM_MS, Context, Transacted};
use crate::commit::error::CommitError;
use crate::commit::head::{self, Head};
use crate::commit::keys;
use crate::commit::publish::{Published, put_version};
use crate::commit::sync;
use crate::commit::version_record::{Blindness, VersionRecord};
use crate::delta::Version;
use crate::delta::log::commit_key;
use crate::location::Location;
use crate::store::{Consistency, ETag, Write};

/// How long a client has to publish its commit itself.
pub const GRACE_MS: u64 = 30_000;
/// Tries to record what was published.
const TRIES: u32 = 8;

/// A message of the commits queue: what of the table is ratified is to be published.
pub fn message(root: &Location) -> String {
    json!({"kind": "publish", "location": root.to_string()}).to_string()
}

/// Publishes what is ratified, up to a version, in order; answers which versions are in the log now that were not known to
/// be. Stops before a version whose bytes are gone, or where other bytes stand, and raises an alarm.
pub async fn publish_pending(
    ctx: Context<'_>,
    root: &Location,
    up_to: Option<Version>,
) -> Result<Vec<Version>, CommitError> {
    for attempt in 0..TRIES {
        let Some(head) = head::load(&*ctx.ports().items, root).await? else { return Ok(Vec::new()) };
        let Some(managed) = head.managed.clone() else { return Ok(Vec::new()) };
        let mut done: Vec<(Ratified, ETag)> = Vec::new();
        for ratified in managed.ratified.iter().filter(|one| up_to.is_none_or(|up_to| one.version <= up_to)) {
            match publish_one(ctx, &head, ratified).await? {
                Some(etag) => done.push((ratified.clone(), etag)),
                None => break,
            }
        }
        if done.is_empty() {
            return Ok(Vec::new());
        }
        if record(ctx, &head, managed, &done).await? {
            let last = done.last().map(|(ratified, _)| ratified.version);
            // What is published stands; the next publication has the catalog follow both.
            if let Err(error) = sync::look_after(ctx, root, last).await {
                tracing::warn!(%root, %error, "the catalog does not follow what was published yet");
            }
            return Ok(done.into_iter().map(|(ratified, _)| ratified.version).collect());
        }
        ctx.back_off(attempt).await;
    }
    Err(CommitError::Contended { attempts: TRIES })
}

async fn publish_one(ctx: Context<'_>, head: &Head, ratified: &Ratified) -> Result<Option<ETag>, CommitError> {
    ctx.check_time("publishing what was ratified", CLAIM_MS)?;
    let Some(bytes) = bytes_of(ctx, &head.root, ratified).await? else {
        raise_missing(ctx, head, ratified).await?;
        return Ok(None);
    };
    match put_version(ctx, &head.root, ratified.version, &bytes, Some(ratified.id)).await? {
        Published::Ours { etag } => Ok(Some(etag)),
        Published::Foreign => {
            raise_foreign(ctx, head, ratified.version, Some(ratified)).await?;
            Ok(None)
        }
    }
}

/// Tells that the log holds something that was not ratified.
pub(super) async fn raise_foreign(
    ctx: Context<'_>,
    head: &Head,
    version: Version,
    ratified: Option<&Ratified>,
) -> Result<AlarmKind, CommitError> {
    let etag = ctx.ports().objects.head(&commit_key(&head.root, version)).await.map(|meta| meta.etag.0);
    let mark = etag.unwrap_or_else(|_| "gone".to_owned());
    let (kind, text) = match ratified {
        Some(ratified) => (
            AlarmKind::PublishedOtherwise,
            format!("version {version} was ratified as {}, and the log holds other bytes there", ratified.file_name()),
        ),
        None => (
            AlarmKind::NotRatified,
            format!("version {version} was put into the log; the table is at {}, by its catalog", head.version),
        ),
    };
    let mut alarm = Alarm::new(kind, version, &mark, &text, ctx.now_ms());
    alarm.proposal = ratified.map(|ratified| ratified.id);
    alarm::raise(ctx, &head.root, head.generation, alarm).await?;
    Ok(kind)
}

/// Moves the head's mark; false if somebody else wrote the head.
async fn record(
    ctx: Context<'_>,
    head: &Head,
    managed: Managed,
    done: &[(Ratified, ETag)],
) -> Result<bool, CommitError> {
    let Some((last, etag)) = done.last() else { return Ok(true) };
    let ratified = managed.ratified.into_iter().filter(|one| one.version > last.version).collect();
    let next = Head {
        managed: Some(Managed { published: last.version, ratified, ..managed }),
        log_etag: Some(etag.clone()),
        revision: ctx.new_revision(),
        ..head.clone()
    };
    let mut writes =
        vec![Write::Put { key: keys::head(&head.root), item: next.encode()?, condition: head.unchanged() }];
    for (ratified, etag) in done {
        writes.push(published_record(ctx, head, ratified, etag).await?.write(&head.root, head.generation));
    }
    Ok(ctx.transact(&writes).await? == Transacted::Done)
}

/// The version's record with the ETag that it has in the log.
async fn published_record(
    ctx: Context<'_>,
    head: &Head,
    ratified: &Ratified,
    etag: &ETag,
) -> Result<VersionRecord, CommitError> {
    let key = keys::version(&head.root, head.generation, ratified.version);
    let known = match ctx.ports().items.get(&key, Consistency::Strong).await? {
        Some(item) => VersionRecord::decode(&item)?,
        None => VersionRecord {
            version: ratified.version,
            proposal: Some(ratified.id),
            sha256: Some(ratified.sha256.clone()),
            etag: None,
            operation: None,
            blindness: Blindness::Reading,
            committed_ms: ratified.timestamp_ms,
        },
    };
    Ok(VersionRecord { etag: Some(etag.clone()), ..known })
}
