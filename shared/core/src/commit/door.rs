//! Where proposals come in: batches of staged objects, in an order that lets each be judged against the one before.

use serde_json::json;

use super::context::Context;
use super::error::CommitError;
use super::run::{Outcome, Staged, Views, run};
use crate::store::{ETag, ObjectKey};

/// A staged object and when its event says it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub staged: Staged,
    /// ISO 8601 as the event has it; orders arrivals within a batch.
    pub event_time: String,
}

/// Judges a batch: by table, proposed version, event time and id. Tables are loaded once for all their proposals.
/// Answers in the order of judging; one failure does not end the batch.
pub async fn judge_batch(ctx: Context<'_>, mut arrivals: Vec<Arrival>) -> Vec<(Arrival, Result<Outcome, CommitError>)> {
    arrivals.sort_by(|a, b| {
        let key = |one: &Arrival| {
            (one.staged.key.root.clone(), one.staged.key.version, one.event_time.clone(), one.staged.key.id)
        };
        key(a).cmp(&key(b))
    });
    let mut views = Views::new();
    let mut outcomes = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        let outcome = run(ctx, &mut views, &arrival.staged).await;
        if let Err(error) = &outcome {
            tracing::warn!(root = %arrival.staged.key.root, proposal = %arrival.staged.key.id, error = %error, "no verdict");
        }
        outcomes.push((arrival, outcome));
    }
    outcomes
}

/// Judges one staged object.
pub async fn judge_one(ctx: Context<'_>, staged: &Staged) -> Result<Outcome, CommitError> {
    run(ctx, &mut Views::new(), staged).await
}

/// A message of the commits queue for a staged object, in EventBridge's shape.
pub fn redelivery(at: &ObjectKey, etag: &ETag) -> String {
    json!({
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": at.bucket}, "object": {"key": at.key, "etag": etag.0}, "reason": "redelivery"},
    })
    .to_string()
}
