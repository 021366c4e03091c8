//! Sweeps tables whose messages arrive from the queue. What is decided on files, and why, is in `lakewarden_core::sweep`.

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lakewarden_core::commit::door::RECEIVES_MAX;
use lakewarden_core::limits::MESSAGE_MAX_DELAY_MS;
use lakewarden_core::ports::{App, Deadline, SweepDispatch};
use lakewarden_core::store::QueueName;
use lakewarden_core::sweep::{CatalogDirectory, RunOutcome, SweepError, SweepRequest, TableDirectory, give_up, sweep};
use serde_json::{Value, json};
use thiserror::Error;

/// The event is not one of the queue.
#[derive(Debug, Error)]
pub enum HandlerError {
    #[error("not an event of an SQS queue: {0}")]
    Event(#[from] serde_json::Error),
}

/// Takes an SQS batch; answers which of its messages are to be delivered again: those that failed. A run that stopped in
/// good order (time limit, another worker) goes on with a new message instead: deliveries of one message are counted and
/// far apart, and being slow is no failure.
pub async fn handle(app: &App, event: Value, deadline: Deadline) -> Result<Value, HandlerError> {
    handle_in(app, &CatalogDirectory::new(app), event, deadline).await
}

/// [`handle`] with another catalog.
pub async fn handle_in(
    app: &App,
    directory: &dyn TableDirectory,
    event: Value,
    deadline: Deadline,
) -> Result<Value, HandlerError> {
    let event: SqsEvent = serde_json::from_value(event)?;
    let mut failures = Vec::new();
    for message in event.records {
        let id = message.message_id.clone().unwrap_or_default();
        if let Err(error) = take(app, directory, &message, deadline).await {
            if is_last(&message) && ends(app, directory, &message, &error).await {
                continue;
            }
            tracing::error!(message_id = %id, %error, "sweep failed; the message will be delivered again");
            failures.push(json!({ "itemIdentifier": id }));
        }
    }
    Ok(json!({ "batchItemFailures": failures }))
}

/// Whether this is the last delivery: what fails now becomes a dead letter.
fn is_last(message: &SqsMessage) -> bool {
    let receives = message.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse::<u32>().ok());
    receives.is_some_and(|count| count >= RECEIVES_MAX)
}

/// Ends the run of a message that nobody will work on again; whether it has an end now.
async fn ends(app: &App, directory: &dyn TableDirectory, message: &SqsMessage, error: &SweepError) -> bool {
    let Ok(request) = SweepRequest::decode(message.body.as_deref().unwrap_or_default()) else { return false };
    match give_up(app, directory, &request, error).await {
        Ok(true) => {
            tracing::error!(run_id = %request.run_id, %error, "sweep given up: every delivery of its message failed");
            true
        }
        Ok(false) => false,
        Err(why) => {
            tracing::error!(run_id = %request.run_id, %why, "the end of the sweep could not be written");
            false
        }
    }
}

/// Works on one message; afterwards it may go.
async fn take(
    app: &App,
    directory: &dyn TableDirectory,
    message: &SqsMessage,
    deadline: Deadline,
) -> Result<(), SweepError> {
    let request = SweepRequest::decode(message.body.as_deref().unwrap_or_default())?;
    let (run_id, database, table) = (&request.run_id, &request.database, &request.table);
    match sweep(app, directory, &request, deadline).await? {
        RunOutcome::Finished(run) => tracing::info!(
            %run_id,
            %database,
            %table,
            mode = run.mode.as_str(),
            state = run.state.as_str(),
            deleted_count = run.totals.deleted.count,
            deleted_bytes = run.totals.deleted.size_bytes,
            reason = run.error.as_deref().or(run.reason.as_deref()).unwrap_or_default(),
            "sweep ended"
        ),
        RunOutcome::AlreadyFinished => tracing::info!(%run_id, "sweep had ended before: a message delivered twice"),
        RunOutcome::Dropped(refusal) => tracing::warn!(%run_id, %refusal, "sweep dropped"),
        RunOutcome::Postponed(why) => {
            if app.settings.sweep_dispatch == SweepDispatch::Inline {
                tracing::info!(%run_id, %database, %table, %why, "sweep goes on when it is asked to");
                return Ok(());
            }
            let wait_ms = why.wait_ms(app.ports.clock.now_ms()).min(MESSAGE_MAX_DELAY_MS);
            app.ports.queue.send(QueueName::Sweeps, request.encode(), wait_ms).await?;
            tracing::info!(%run_id, %database, %table, %why, wait_ms, "sweep goes on with a new message");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lakewarden_core::location::Location;
    use lakewarden_core::ports::Settings;
    use lakewarden_core::store::StoreErrorKind;
    use lakewarden_core::store::memory::{Fault, MemoryWorld};
    use lakewarden_core::sweep::{MemoryDirectory, TableEntry, optimizer, rest};

    use super::*;

    fn app(world: &MemoryWorld) -> App {
        App::new(world.ports.clone(), Settings::default())
    }

    fn batch(bodies: &[String]) -> Value {
        let records =
            bodies.iter().enumerate().map(|(index, body)| json!({"messageId": index.to_string(), "body": body}));
        json!({ "Records": records.collect::<Vec<_>>() })
    }

    /// An Iceberg table in the directory that is swept.
    async fn iceberg_table(app: &App, directory: &MemoryDirectory, pointer: &str) {
        let parameters = [("table_type", "ICEBERG"), ("metadata_location", pointer)];
        directory.put(TableEntry {
            id: "id".into(),
            database: "db".into(),
            name: "t".into(),
            location: Some(Location::new("lake", "wh/t")),
            parameters: BTreeMap::from(parameters.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        });
        let input = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
            "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {"orphanFileDeletionConfiguration": {}}});
        optimizer::create(app, directory, input).await.unwrap();
    }

    #[tokio::test]
    async fn good_messages_go_and_bad_ones_stay() {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = app(&world);
        let directory = MemoryDirectory::default();
        let pointer = "s3://lake/wh/t/metadata/none.metadata.json";
        iceberg_table(&app, &directory, pointer).await;
        rest::start_in(&app, &directory, "db", "t", &json!({"mode": "dry_run"})).await.unwrap();
        let good = world.queue.take(QueueName::Sweeps).unwrap();
        let unknown = good.replace("\"t\"", "\"none\"").replace("\"id\"", "null");
        let far = Deadline::in_ms(world.clock.as_ref(), 900_000);
        // Refused for good (its metadata is missing), unreadable, of an unknown table.
        let event = batch(&[good.clone(), "no json".into(), unknown]);
        let answer = handle_in(&app, &directory, event, far).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "1"}]}));
        // Delivered twice.
        let answer = handle_in(&app, &directory, batch(&[good]), far).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
    }

    #[tokio::test]
    async fn a_run_without_time_goes_on_with_a_new_message_and_a_failing_store_brings_the_old_one_back() {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = app(&world);
        let directory = MemoryDirectory::default();
        directory.put(TableEntry {
            id: "id".into(),
            database: "db".into(),
            name: "t".into(),
            location: None,
            parameters: BTreeMap::new(),
        });
        let body = json!({"schema_version": 1, "run_id": "r", "database": "db", "table": "t", "mode": "scheduled"});
        let event = batch(&[body.to_string()]);
        let done = json!({"batchItemFailures": []});
        let back = json!({"batchItemFailures": [{"itemIdentifier": "0"}]});
        let now = Deadline::in_ms(world.clock.as_ref(), 0);
        assert_eq!(handle_in(&app, &directory, event.clone(), now).await.unwrap(), done);
        let next = world.queue.take(QueueName::Sweeps).unwrap();
        assert_eq!(SweepRequest::decode(&next).unwrap(), SweepRequest::decode(&body.to_string()).unwrap());
        world.faults.inject("send sweeps", 0, Fault::Before(StoreErrorKind::Unavailable));
        assert_eq!(handle_in(&app, &directory, event.clone(), now).await.unwrap(), back);
        let far = Deadline::in_ms(world.clock.as_ref(), 900_000);
        world.faults.inject("put catalog", 1, Fault::Before(StoreErrorKind::Throttled));
        assert_eq!(handle_in(&app, &directory, event.clone(), far).await.unwrap(), back);
        // The lease of the failed attempt was given back, or runs out.
        world.clock.advance_ms(900_000);
        assert_eq!(handle_in(&app, &directory, event, far).await.unwrap(), done);
    }

    #[tokio::test]
    async fn the_last_delivery_that_fails_ends_the_run() {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = app(&world);
        let directory = MemoryDirectory::default();
        let pointer = "s3://lake/wh/t/metadata/v1.metadata.json";
        iceberg_table(&app, &directory, pointer).await;
        let run = rest::start_in(&app, &directory, "db", "t", &json!({"mode": "dry_run"})).await.unwrap();
        let body = world.queue.take(QueueName::Sweeps).unwrap();
        let far = Deadline::in_ms(world.clock.as_ref(), 900_000);
        world.faults.fail_all(&format!("get {pointer}"), StoreErrorKind::Throttled);
        let state = async || {
            let run = rest::get_in(&app, &directory, "db", "t", run["run_id"].as_str().unwrap()).await.unwrap();
            (run["state"].clone(), run["reason"].clone())
        };
        for receives in 1..=RECEIVES_MAX {
            let event = json!({"Records": [{"messageId": "0", "body": body,
                "attributes": {"ApproximateReceiveCount": receives.to_string()}}]});
            let answer = handle_in(&app, &directory, event, far).await.unwrap();
            let failures = answer["batchItemFailures"].as_array().unwrap().len();
            if receives < RECEIVES_MAX {
                assert_eq!((failures, state().await), (1, (json!("running"), Value::Null)), "{receives}");
            } else {
                assert_eq!((failures, state().await), (0, (json!("failed"), json!("store_unavailable"))));
            }
        }
    }

    /// Which delivery is the last one is known by the queue's setting.
    #[test]
    fn the_queue_is_deployed_with_as_many_deliveries() {
        let template = include_str!("../../../template.yaml");
        let policy = format!("SweepsDeadLetters.Arn, maxReceiveCount: {RECEIVES_MAX}}}");
        assert!(template.contains(&policy), "{policy}");
    }

    /// The laptop hands sweeps to a runtime of several threads.
    #[tokio::test]
    async fn a_sweep_may_move_between_threads() {
        let world = MemoryWorld::new(0);
        let app = app(&world);
        let work = async move { handle(&app, json!({"Records": []}), Deadline(i64::MAX)).await };
        tokio::spawn(work).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn other_events_are_refused() {
        let world = MemoryWorld::new(0);
        let far = Deadline::in_ms(world.clock.as_ref(), 900_000);
        for event in [json!({}), json!([]), json!({"Records": "x"})] {
            assert!(handle(&app(&world), event, far).await.is_err());
        }
        let empty = handle(&app(&world), json!({"Records": []}), far).await.unwrap();
        assert_eq!(empty, json!({"batchItemFailures": []}));
    }
}
