//! Before a table with a log store is judged: entries that others left incomplete are finished as their own writers
//! would (copied, never moved), and what cannot be finished is named.

use super::super::alarm::{self, Alarm, AlarmKind};
use super::super::context::Context;
use super::super::error::CommitError;
use super::super::head::{self, Age, LogStore};
use super::super::publish;
use super::super::verdict::{Exception, Refusal};
use super::super::view::{View, ViewError};
use super::{Completion, Entry, OddItem, Seen, clear_old, complete, newest, of_table, rescue, since, take_away};
use crate::delta::log::commit_key;
use crate::delta::{Strictness, Version, parse_commit};
use crate::store::{GetOptions, Object, ObjectError};

/// What a look at the log store found.
#[derive(Clone, Debug, PartialEq)]
pub enum Inspection {
    /// Nothing is in the way.
    Fine,
    /// The log moved on: read the table again.
    Moved,
    /// No commit of the table can be made.
    Refused(Refusal),
}

/// When entries of a table that is not shared are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Where the table is new, or others wrote to it.
    IfNews,
    /// A claim met one.
    Always,
}

/// Looks at the entries that matter to a table as it was just read; notes on its head if the table turns out to be
/// shared. Asks nothing of a table that is not shared and that nobody else wrote to.
pub async fn inspect(ctx: Context<'_>, view: &mut View, look: Look) -> Result<Inspection, ViewError> {
    let metadata = view.state.as_ref().map(|state| &state.metadata);
    let mut log_store = of_table(&view.head, metadata);
    let is_news = view.head.revision.is_empty() || view.head.version < view.latest;
    if log_store == LogStore::Off && look == Look::IfNews && !is_news {
        return Ok(Inspection::Fine);
    }
    clear_old(ctx, &view.head).await?;
    let seen = if view.head.version == Version::NONE {
        newest(ctx, &view.root).await?
    } else {
        since(ctx, &view.root, view.head.version).await?
    };
    let Seen { entries, odd } = seen;
    let is_foreign = !odd.is_empty() || entries.iter().any(|entry| !entry.is_ours());
    if is_foreign && log_store == LogStore::Off {
        tracing::info!(root = %view.root, "the table is shared with writers of a log store");
        log_store = LogStore::Shared;
    }
    if log_store == LogStore::Shared {
        view.head.log_store = LogStore::Shared;
    }
    for entry in &entries {
        match settle(ctx, view, entry).await? {
            Inspection::Fine => {}
            other => return Ok(other),
        }
    }
    for item in &odd {
        match settle_odd(ctx, view, item).await? {
            Inspection::Fine => {}
            other => return Ok(other),
        }
    }
    Ok(Inspection::Fine)
}

/// An item that is no entry is never touched. Of a version that is in the log it holds nobody up.
async fn settle_odd(ctx: Context<'_>, view: &View, item: &OddItem) -> Result<Inspection, ViewError> {
    if item.version <= view.latest {
        rescue::notice_odd(ctx, &view.head, std::slice::from_ref(item)).await?;
        return Ok(Inspection::Fine);
    }
    if is_in_log(ctx, view, item.version).await? {
        return Ok(Inspection::Moved);
    }
    let alarm = rescue::odd_alarm(ctx, item);
    let kind = alarm.kind;
    let refusal = Refusal::new(Exception::DamagedLogException, kind.name(), alarm.text.clone(), kind.advice());
    alarm::raise(ctx, &view.root, view.head.generation, alarm).await?;
    Ok(Inspection::Refused(refusal))
}

async fn is_in_log(ctx: Context<'_>, view: &View, version: Version) -> Result<bool, CommitError> {
    match ctx.ports().objects.head(&commit_key(&view.root, version)).await {
        Ok(_) => Ok(true),
        Err(ObjectError::NotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn settle(ctx: Context<'_>, view: &mut View, entry: &Entry) -> Result<Inspection, ViewError> {
    if entry.version <= view.latest {
        // Old delta-rs writers are stuck on an incomplete entry whose file exists.
        if entry.completion == Completion::Incomplete {
            complete(ctx, entry).await?;
        }
        if !entry.is_ours() {
            let winners = view.winners(ctx, entry.version, entry.version).await?;
            if let Some(published) = winners.first() {
                rescue::check(ctx, &view.head, entry, &published.bytes).await?;
            }
        }
        return Ok(Inspection::Fine);
    }
    if is_in_log(ctx, view, entry.version).await? {
        return Ok(Inspection::Moved);
    }
    if entry.is_ours() {
        return ours(ctx, view, entry).await;
    }
    foreign(ctx, view, entry).await
}

/// An entry of ours without its version: a claim under way, or what is left of one.
async fn ours(ctx: Context<'_>, view: &View, entry: &Entry) -> Result<Inspection, ViewError> {
    let now = head::load(&*ctx.ports().items, &view.root).await?;
    if now.is_some_and(|now| now.revision != view.head.revision) {
        return Ok(Inspection::Moved);
    }
    take_away(ctx, entry).await?;
    Ok(Inspection::Fine)
}

async fn foreign(ctx: Context<'_>, view: &View, entry: &Entry) -> Result<Inspection, ViewError> {
    let bytes = match temp_object(ctx, view, entry).await? {
        // Dated in the very second, it is finished as its own writers would finish it.
        Some(object) if view.head.age_of(object.meta.last_modified_ms) != Age::Before => Some(object.bytes),
        Some(_) => return stale(ctx, view, entry).await,
        None => None,
    };
    let says_written = entry.completion == Completion::Complete;
    // Without a log there is nothing that a later version could follow.
    let is_rootless = view.latest == Version::NONE && (says_written || entry.version > Version(0));
    match bytes {
        _ if is_rootless => stale(ctx, view, entry).await,
        None if says_written => stale(ctx, view, entry).await,
        _ if entry.version > view.latest.next() => {
            let text = format!(
                "delta_log has an entry for version {}, and the log ends at version {}",
                entry.version, view.latest
            );
            refused(ctx, view, entry, AlarmKind::LogStoreAhead, text).await
        }
        None => {
            let text = format!(
                "version {} was begun by another writer, and its bytes ({}) are gone",
                entry.version, entry.temp_path
            );
            refused(ctx, view, entry, AlarmKind::LogStoreBytesMissing, text).await
        }
        Some(bytes) if parse_commit(&bytes, Strictness::Log).is_err() => {
            let text = format!(
                "version {} was begun by another writer, and its bytes ({}) are no commit",
                entry.version, entry.temp_path
            );
            refused(ctx, view, entry, AlarmKind::LogStoreBytesUnreadable, text).await
        }
        Some(bytes) => {
            tracing::info!(root = %view.root, version = entry.version.0, "finishing the commit of another writer");
            publish::put_version(ctx, &view.root, entry.version, &bytes, None).await?;
            complete(ctx, entry).await?;
            Ok(Inspection::Moved)
        }
    }
}

async fn temp_object(ctx: Context<'_>, view: &View, entry: &Entry) -> Result<Option<Object>, CommitError> {
    let Some(at) = entry.temp_key(&view.root) else { return Ok(None) };
    match ctx.ports().objects.get(&at, &GetOptions::default()).await {
        Ok(object) => Ok(Some(object)),
        Err(ObjectError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The entry speaks of something that is not there any more.
async fn stale(ctx: Context<'_>, view: &View, entry: &Entry) -> Result<Inspection, ViewError> {
    let text = format!("delta_log had an entry for version {}, of which there is nothing", entry.version);
    raise(ctx, view, entry, AlarmKind::LogStoreStale, &text).await?;
    take_away(ctx, entry).await?;
    Ok(Inspection::Fine)
}

async fn refused(
    ctx: Context<'_>,
    view: &View,
    entry: &Entry,
    kind: AlarmKind,
    text: String,
) -> Result<Inspection, ViewError> {
    raise(ctx, view, entry, kind, &text).await?;
    let refusal = Refusal::new(Exception::DamagedLogException, kind.name(), text, kind.advice());
    Ok(Inspection::Refused(refusal))
}

async fn raise(ctx: Context<'_>, view: &View, entry: &Entry, kind: AlarmKind, text: &str) -> Result<(), CommitError> {
    let alarm = Alarm::new(kind, entry.version, &entry.temp_path, text, ctx.now_ms());
    alarm::raise(ctx, &view.root, view.head.generation, alarm).await
}
