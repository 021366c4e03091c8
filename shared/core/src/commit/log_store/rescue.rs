//! A commit that a writer of the log store believes it made, and that a plain conditional put overtook: that writer's
//! copy met an existing file, which it takes for its own. Its bytes are still there, so they are proposed again.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::super::alarm::{self, Alarm, AlarmKind};
use super::super::conflict::as_proposed;
use super::super::context::Context;
use super::super::door::redelivery;
use super::super::error::CommitError;
use super::super::head::{Age, Head, LogStore};
use super::super::keys::{self, ProposalId, content_hash};
use super::{Completion, Entry, OddItem, complete, since};
use crate::delta::log::{StagedKey, commit_key};
use crate::delta::{Actions, Strictness, Version, parse_commit};
use crate::store::{GetOptions, ObjectError, PutCondition, PutOptions, QueueName, Write};

/// A commit that was overtaken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overtaken {
    pub version: Version,
    /// The proposal that was made of it.
    pub proposal: ProposalId,
}

/// Compares what an entry's writer meant with what its version holds; proposes it anew if these are two commits.
pub(super) async fn check(
    ctx: Context<'_>,
    head: &Head,
    entry: &Entry,
    published: &Bytes,
) -> Result<Option<Overtaken>, CommitError> {
    let Some(at) = entry.temp_key(&head.root) else { return Ok(None) };
    let meant = match ctx.ports().objects.get(&at, &GetOptions::default()).await {
        Ok(object) if head.age_of(object.meta.last_modified_ms) != Age::Before => object,
        // Of the table before; or moved to its version by an old delta-rs.
        Ok(_) | Err(ObjectError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let age = head.age_of(meant.meta.last_modified_ms);
    let meant = meant.bytes;
    if meant == *published || is_same_transaction(&meant, published) {
        return Ok(None);
    }
    if age == Age::SameSecond {
        report(ctx, head, entry).await?;
        return Ok(None);
    }
    propose(ctx, head, entry, meant).await.map(Some)
}

/// In the second in which the table was written anew nobody can tell whether the commit was meant for the table before.
async fn report(ctx: Context<'_>, head: &Head, entry: &Entry) -> Result<(), CommitError> {
    let text = format!(
        "another writer's version {} ({}) is not what the log holds; it was written in the second in which the table was \
         written anew and may be of the table before, so it was not proposed again",
        entry.version, entry.temp_path
    );
    let alarm = Alarm::new(AlarmKind::CommitOvertaken, entry.version, &entry.temp_path, &text, ctx.now_ms());
    alarm::raise(ctx, &head.root, head.generation, alarm).await
}

/// Whether both are one commit, written twice. An id alone proves nothing: there are writers that give none, or the same
/// one to everything they do.
fn is_same_transaction(meant: &Bytes, published: &Bytes) -> bool {
    let (Ok(meant), Ok(published)) = (parse_commit(meant, Strictness::Log), parse_commit(published, Strictness::Log))
    else {
        return false;
    };
    let txn_id =
        |actions: &Actions| actions.commit_info.as_ref().and_then(|info| info.text("txnId")).map(str::to_owned);
    let has_id = txn_id(&meant).is_some_and(|id| !id.is_empty());
    has_id && txn_id(&meant) == txn_id(&published) && as_proposed(&meant).same_but_for_info(&as_proposed(&published))
}

/// The same commit is the same proposal, however often it is found.
fn proposal_id(head: &Head, entry: &Entry, sha256: &str) -> Uuid {
    let name = format!("{}#{}#{}#{}#{sha256}", head.root, head.generation.0, entry.version, entry.temp_path);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(Sha256::digest(name)).for_each(|(byte, digest)| *byte = digest);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

async fn propose(ctx: Context<'_>, head: &Head, entry: &Entry, bytes: Bytes) -> Result<Overtaken, CommitError> {
    let id = proposal_id(head, entry, &content_hash(&bytes));
    let at = StagedKey { root: head.root.clone(), version: entry.version, id }.key();
    let options = PutOptions { condition: PutCondition::Absent, ..PutOptions::default() };
    match ctx.ports().objects.put(&at, bytes, &options).await {
        // The bucket's events bring it as well; a message of our own does not depend on them.
        Ok(etag) => ctx.ports().queue.send(QueueName::Commits, redelivery(&at, Some(&etag), 0), 0).await?,
        Err(ObjectError::PreconditionFailed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let text = format!(
        "another writer's version {} ({}) was overtaken by a writer without a log store; it was proposed again as {id}",
        entry.version, entry.temp_path
    );
    let alarm = Alarm::new(AlarmKind::CommitOvertaken, entry.version, &entry.temp_path, &text, ctx.now_ms());
    alarm::raise(ctx, &head.root, head.generation, alarm.about(ProposalId(id))).await?;
    Ok(Overtaken { version: entry.version, proposal: ProposalId(id) })
}

/// Entries of other writers were come upon outside of judging: the table is shared from now on, and what was overtaken is
/// proposed again.
pub async fn notice<'e>(
    ctx: Context<'_>,
    head: &Head,
    entries: impl Iterator<Item = &'e Entry>,
) -> Result<Vec<Overtaken>, CommitError> {
    let mut overtaken = Vec::new();
    for entry in entries.filter(|_| !head.revision.is_empty()) {
        if head.log_store == LogStore::Off {
            let next = Head { log_store: LogStore::Shared, revision: ctx.new_revision(), ..head.clone() };
            let write = Write::Put { key: keys::head(&head.root), item: next.encode()?, condition: head.unchanged() };
            // Refused: the head moved. Whoever looks next finds the entry again.
            ctx.transact(&[write]).await?;
        }
        overtaken.extend(compare(ctx, head, entry).await?);
    }
    Ok(overtaken)
}

async fn compare(ctx: Context<'_>, head: &Head, entry: &Entry) -> Result<Option<Overtaken>, CommitError> {
    let published = match ctx.ports().objects.get(&commit_key(&head.root, entry.version), &GetOptions::default()).await
    {
        Ok(object) => object.bytes,
        Err(ObjectError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let overtaken = check(ctx, head, entry, &published).await?;
    // Old delta-rs writers are stuck on an incomplete entry whose file exists.
    if entry.completion == Completion::Incomplete {
        complete(ctx, entry).await?;
    }
    Ok(overtaken)
}

/// Looks at every entry that is still there, also of versions long judged and of such that nobody judged: a slow writer may
/// take a version that others have gone past, and after that nobody may commit through us.
pub async fn rescue_all(ctx: Context<'_>, head: &Head) -> Result<Vec<Overtaken>, CommitError> {
    let seen = since(ctx, &head.root, Version(0)).await?;
    notice_odd(ctx, head, &seen.odd).await?;
    notice(ctx, head, seen.entries.iter().filter(|entry| !entry.is_ours())).await
}

/// Items that are no entries: somebody has to look at them.
pub async fn notice_odd(ctx: Context<'_>, head: &Head, odd: &[OddItem]) -> Result<(), CommitError> {
    for item in odd {
        alarm::raise(ctx, &head.root, head.generation, odd_alarm(ctx, item)).await?;
    }
    Ok(())
}

pub(super) fn odd_alarm(ctx: Context<'_>, item: &OddItem) -> Alarm {
    let text = format!(
        "delta_log has an item for version {} that cannot be read ({}): tablePath {}",
        item.version, item.trouble, item.key.pk
    );
    Alarm::new(AlarmKind::LogStoreItemUnreadable, item.version, &item.key.pk, &text, ctx.now_ms())
}
