//! Lambda: background work of the catalog. Takes an SQS batch of work messages, or a scheduled event, which takes up
//! what lost messages left behind.

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use lakewarden_core::catalog::purge::{self, Outcome};
use lakewarden_core::catalog::{CatalogError, CatalogWork};
use lakewarden_core::ports::{App, Deadline};
use lakewarden_core::store::QueueName;
use serde_json::{Value, json};
use thiserror::Error;

/// The event as a whole could not be handled; the platform delivers it again.
#[derive(Debug, Error)]
pub enum HandlerError {
    #[error("the event is neither an SQS batch nor a scheduled event")]
    UnknownEvent,
    #[error("the SQS batch cannot be read: {0}")]
    Batch(#[from] serde_json::Error),
    #[error("work that is left over cannot be listed: {0}")]
    List(#[source] CatalogError),
    #[error("work that is left over cannot be queued: {0}")]
    Queue(#[source] lakewarden_core::store::StoreError),
}

/// One message could not be carried out.
#[derive(Debug, Error)]
enum WorkError {
    #[error("{0}")]
    Message(String),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Handles one event. An SQS batch answers `{"batchItemFailures": [...]}`: messages not named there are done. A scheduled
/// event answers `{"queued": n}`.
pub async fn handle(app: &App, event: Value, deadline: Deadline) -> Result<Value, HandlerError> {
    if event.get("Records").is_some() {
        return Ok(serde_json::to_value(handle_batch(app, serde_json::from_value(event)?, deadline).await)?);
    }
    if event.get("source").and_then(Value::as_str) == Some("aws.events") {
        return queue_what_is_left(app).await;
    }
    Err(HandlerError::UnknownEvent)
}

async fn handle_batch(app: &App, batch: SqsEvent, deadline: Deadline) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for record in batch.records {
        let message_id = record.message_id.unwrap_or_default();
        match carry_out(app, record.body.as_deref().unwrap_or_default(), deadline).await {
            Ok(outcome) => tracing::info!(message_id, ?outcome, "work done"),
            Err(error) => {
                tracing::error!(message_id, %error, "work failed; the queue delivers it again or keeps it as a dead letter");
                response.add_failure(message_id);
            }
        }
    }
    response
}

async fn carry_out(app: &App, body: &str, deadline: Deadline) -> Result<Outcome, WorkError> {
    let work = CatalogWork::parse(body).map_err(WorkError::Message)?;
    Ok(purge::carry_out(&app.ports, &work, deadline).await?)
}

/// Every tombstone becomes a message, so that each piece of work has an invocation's time of its own.
async fn queue_what_is_left(app: &App) -> Result<Value, HandlerError> {
    let work =
        purge::list_work(app.ports.items.as_ref(), app.ports.clock.as_ref()).await.map_err(HandlerError::List)?;
    for one in &work {
        app.ports.queue.send(QueueName::CatalogWork, one.to_message(), 0).await.map_err(HandlerError::Queue)?;
    }
    Ok(json!({ "queued": work.len() }))
}

#[cfg(test)]
mod tests;
