//! What a client says of a commit, beside the commit. The commit is what counts, so the two must agree: a table's metadata
//! is never anything else than what its log says.

use serde_json::Value;

use super::error::DeltaError;
use super::wire::{Update, to_delta};
use crate::commit::content;
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::managed::Asked;
use crate::commit::run::Staged;
use crate::delta::log::StagedKey;
use crate::delta::{Actions, Metadata, Protocol};

/// Compares each of `said` with the staged commit, which is read where there is anything to compare.
pub(super) async fn check(ctx: Context<'_>, asked: &Asked, said: &[&Update]) -> Result<(), DeltaError> {
    if said.is_empty() {
        return Ok(());
    }
    let key = StagedKey { root: asked.root.clone(), version: asked.version, id: asked.id.0 };
    let content = match content::read(ctx, &Staged { key, etag: None }).await {
        Ok(content) => content,
        Err(CommitError::StagedMissing(at)) => {
            return Err(DeltaError::invalid(format!("there is no staged file at {at}")));
        }
        Err(error) => return Err(error.into()),
    };
    // What cannot be read is refused with a verdict.
    let Ok(candidate) = &content.candidate else { return Ok(()) };
    for update in said {
        if !agrees(update, &candidate.actions) {
            let text = format!("{} says something else than the staged commit {}", update.name(), asked.id);
            return Err(DeltaError::invalid(text));
        }
    }
    Ok(())
}

fn agrees(update: &Update, actions: &Actions) -> bool {
    let metadata = actions.metadata.as_ref();
    let property = |name: &str| metadata.and_then(|metadata| metadata.property(name));
    match update {
        Update::SetProperties { updates } => {
            updates.iter().all(|(name, value)| value.as_str().is_some_and(|value| property(name) == Some(value)))
        }
        Update::RemoveProperties { removals } => {
            metadata.is_some() && removals.iter().all(|name| property(name).is_none())
        }
        Update::SetColumns { columns } => {
            metadata.is_some_and(|metadata| schema_of(metadata) == Some(to_delta(columns)))
        }
        Update::SetTableComment { comment } => {
            metadata.is_some_and(|metadata| metadata.description.as_deref().unwrap_or_default() == comment)
        }
        Update::SetPartitionColumns { partition_columns } => {
            metadata.is_some_and(|metadata| metadata.partition_columns == *partition_columns)
        }
        Update::SetProtocol { protocol } => {
            actions.protocol.as_ref().is_some_and(|found| is_same(found, &Protocol::from(protocol.clone())))
        }
        Update::SetDomainMetadata { updates } => updates.iter().all(|(name, value)| {
            let set = actions.domains.iter().find(|domain| domain.domain == *name && !domain.removed);
            set.is_some_and(|domain| holds(&domain.configuration, value))
        }),
        Update::RemoveDomainMetadata { domains } => {
            domains.iter().all(|name| actions.domains.iter().any(|domain| domain.domain == *name && domain.removed))
        }
        Update::AddCommit { .. } | Update::SetLatestBackfilledVersion { .. } | Update::SnapshotVersion { .. } => true,
    }
}

fn schema_of(metadata: &Metadata) -> Option<Value> {
    serde_json::from_str(&metadata.schema_string).ok()
}

/// Whatever the order of the features.
fn is_same(left: &Protocol, right: &Protocol) -> bool {
    let sorted = |features: &Option<Vec<String>>| {
        let mut features = features.clone().unwrap_or_default();
        features.sort();
        features
    };
    let parts = |one: &Protocol| {
        let features = (sorted(&one.reader_features), sorted(&one.writer_features));
        (one.min_reader_version, one.min_writer_version, features)
    };
    parts(left) == parts(right)
}

/// A domain's configuration may have members that this API does not know.
fn holds(configuration: &str, said: &Value) -> bool {
    let Ok(found) = serde_json::from_str::<Value>(configuration) else { return false };
    match said {
        Value::Object(members) => members.iter().all(|(name, value)| found.get(name) == Some(value)),
        other => found == *other,
    }
}
