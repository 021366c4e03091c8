//! After a commit: the catalog follows the log (see [`super::follow`]). A failure never takes the commit back; it is kept on
//! the proposal and tried again with the proposal's next message.

use async_trait::async_trait;
use thiserror::Error;

use super::context::Context;
use super::error::CommitError;
use super::follow::{self, Counts, Source, Target};
use super::head;
use super::keys::Generation;
use super::proposal::{Proposal, Status, SyncState};
use crate::delta::Version;
use crate::location::Location;
use crate::store::{QueueName, WriteError};

/// What the catalog made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReport {
    /// No table of the catalog lies at this root.
    UnknownTable,
    /// Those that do are not to follow.
    SwitchedOff,
    /// The log does not have the version yet: the event of its log file brings it.
    Waiting,
    Followed(Counts),
}

/// The catalog does not follow, for now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyncError {
    /// Nothing failed: it goes on with a message of its own.
    #[error(transparent)]
    Slow(CommitError),
    #[error("{0}")]
    Failed(String),
}

/// What follows a log. Idempotent: what was followed is not followed again.
#[async_trait]
pub trait PartitionSink: Send + Sync {
    async fn follow(&self, ctx: Context<'_>, root: &Location, target: Target) -> Result<SyncReport, SyncError>;
}

/// A sink without a catalog behind it, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCatalog;

#[cfg(test)]
#[async_trait]
impl PartitionSink for NoCatalog {
    async fn follow(&self, _: Context<'_>, _: &Location, _: Target) -> Result<SyncReport, SyncError> {
        Ok(SyncReport::UnknownTable)
    }
}

/// Whether a committed proposal still owes the catalog something.
pub fn is_due(proposal: &Proposal) -> bool {
    matches!(proposal.sync, SyncState::Pending | SyncState::Failed(_))
}

/// Tells the catalog of a committed proposal, and keeps the outcome on it. Answers the proposal as it is stored then.
pub async fn sync(ctx: Context<'_>, proposal: Proposal) -> Result<Proposal, CommitError> {
    let Status::Committed { version } = proposal.status else { return Ok(proposal) };
    let target = Target { generation: proposal.generation, version, source: Source::Head };
    let outcome = ctx.sink.follow(ctx, &proposal.root, target).await;
    let state = match outcome {
        // Nothing was owed, and nobody asked.
        Ok(SyncReport::UnknownTable | SyncReport::Followed(_)) if proposal.sync == SyncState::None => {
            return Ok(proposal);
        }
        Ok(SyncReport::UnknownTable) => SyncState::Done("no table of the catalog lies here".into()),
        Ok(SyncReport::Waiting) => SyncState::Queued("the version is not published yet".into()),
        Ok(SyncReport::SwitchedOff) => SyncState::Done("the catalog's table is not to follow".into()),
        Ok(SyncReport::Followed(counts)) => SyncState::Done(format!(
            "{} partitions created, {} changed, {} removed",
            counts.created, counts.changed, counts.removed
        )),
        Err(SyncError::Slow(error)) => {
            tracing::info!(proposal = %proposal.id, root = %proposal.root, %error, "the catalog follows later");
            ctx.ports().queue.send(QueueName::LogWork, follow::message(&proposal.root), 0).await?;
            SyncState::Queued("a worker goes on with it".into())
        }
        Err(SyncError::Failed(error)) => {
            tracing::warn!(proposal = %proposal.id, root = %proposal.root, error, "the catalog does not follow");
            SyncState::Failed(error)
        }
    };
    // After the last write of the partitions.
    let synced_ms = matches!(state, SyncState::Done(_)).then(|| ctx.now_ms());
    settle(ctx, proposal, state, synced_ms).await
}

/// Keeps what became of the partitions on the proposal, and since when they are all in the catalog. Answers the proposal
/// as it is stored then.
pub async fn settle(
    ctx: Context<'_>,
    proposal: Proposal,
    state: SyncState,
    synced_ms: Option<i64>,
) -> Result<Proposal, CommitError> {
    let (updated_ms, revision) = (ctx.now_ms(), ctx.new_revision());
    let next = Proposal { sync: state, synced_ms, updated_ms, revision, ..proposal.clone() };
    match ctx.ports().items.put(&proposal.key(), next.encode()?, proposal.unchanged()).await {
        Ok(()) => Ok(next),
        // Another delivery of the same message was faster; both did the same.
        Err(WriteError::ConditionFailed { old: Some(old) }) => Ok(Proposal::decode(&old)?),
        Err(WriteError::ConditionFailed { old: None }) => Ok(next),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// Lets the catalog follow what somebody else told of a table: an event of its log (with the version), or a message.
pub async fn look_after(ctx: Context<'_>, root: &Location, told: Option<Version>) -> Result<SyncReport, SyncError> {
    let failed = |error: CommitError| SyncError::Failed(error.to_string());
    let head = head::load(&*ctx.ports().items, root).await.map_err(|error| failed(error.into()))?;
    let generation = head.as_ref().map_or(Generation::default(), |head| head.generation);
    // Of a catalog-managed table the log holds what is published.
    let known = head.map_or(Version::NONE, |head| head.managed.map_or(head.version, |managed| managed.published));
    let target = match told {
        Some(version) => Target { generation, version: version.max(known), source: Source::Event },
        None => Target { generation, version: known, source: Source::Head },
    };
    match ctx.sink.follow(ctx, root, target).await {
        Err(SyncError::Slow(error)) => {
            tracing::info!(%root, %error, "the catalog follows later");
            let sent = ctx.ports().queue.send(QueueName::LogWork, follow::message(root), 1_000).await;
            sent.map_err(|error| failed(error.into()))?;
            Err(SyncError::Slow(error))
        }
        other => other,
    }
}
