//! After a commit: the catalog is told which partitions have new files. A failure never takes the commit back; it is
//! kept on the proposal and tried again with the proposal's next message.

use async_trait::async_trait;
use thiserror::Error;

use super::candidate::Candidate;
use super::context::Context;
use super::error::CommitError;
use super::partition_values::{TouchedPartition, touched_partitions};
use super::proposal::{Proposal, SyncState};
use crate::delta::Metadata;
use crate::delta::schema::{Schema, physical_names};
use crate::location::Location;
use crate::store::WriteError;

/// What the catalog made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReport {
    /// No table of the catalog lies at this root.
    UnknownTable,
    Registered {
        created: u64,
        existing: u64,
    },
}

/// The catalog did not take the partitions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SyncError(pub String);

/// Where new partitions are registered. Idempotent: a partition that exists is left as it is.
#[async_trait]
pub trait PartitionSink: Send + Sync {
    /// `partition_columns` are the table's, in the order of each partition's values.
    async fn register(
        &self,
        root: &Location,
        partition_columns: &[String],
        partitions: &[TouchedPartition],
    ) -> Result<SyncReport, SyncError>;
}

/// A sink without a catalog behind it, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCatalog;

#[cfg(test)]
#[async_trait]
impl PartitionSink for NoCatalog {
    async fn register(&self, _: &Location, _: &[String], _: &[TouchedPartition]) -> Result<SyncReport, SyncError> {
        Ok(SyncReport::UnknownTable)
    }
}

/// The partitions that a commit adds files to.
pub fn partitions_of(candidate: &Candidate, metadata: &Metadata, root: &Location) -> Vec<TouchedPartition> {
    let files = candidate.add_keys.iter().zip(candidate.actions.adds.iter().map(|add| &add.partition_values));
    // Under column mapping partition values go by physical names.
    let columns = match Schema::parse(&metadata.schema_string) {
        Ok(schema) => physical_names(metadata, &schema),
        Err(_) => metadata.partition_columns.clone(),
    };
    touched_partitions(root, &columns, files)
}

/// Whether a committed proposal still owes the catalog its partitions.
pub fn is_due(proposal: &Proposal) -> bool {
    matches!(proposal.sync, SyncState::Pending | SyncState::Failed(_))
}

/// Tells the catalog, and keeps the outcome on the proposal. Answers the proposal as it is stored then.
pub async fn sync(
    ctx: Context<'_>,
    proposal: Proposal,
    candidate: &Candidate,
    metadata: &Metadata,
) -> Result<Proposal, CommitError> {
    let partitions = partitions_of(candidate, metadata, &proposal.root);
    let outcome = ctx.sink.register(&proposal.root, &metadata.partition_columns, &partitions).await;
    let state = match outcome {
        Ok(SyncReport::UnknownTable) => SyncState::Done("no table of the catalog lies here".into()),
        Ok(SyncReport::Registered { created, existing }) => {
            SyncState::Done(format!("{created} partitions created, {existing} existed"))
        }
        Err(error) => {
            tracing::warn!(proposal = %proposal.id, root = %proposal.root, error = %error, "partitions were not registered");
            SyncState::Failed(error.to_string())
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
