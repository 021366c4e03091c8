//! Lambda: judges Delta commits that were staged on S3. The laptop calls [`handle`] with the same events.

pub mod event;

use std::collections::HashSet;

use lakewarden_core::commit::context::Context;
use lakewarden_core::commit::door::{Arrival, judge_batch};
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::run::{Outcome, Staged};
use lakewarden_core::commit::{sync, wiring};
use lakewarden_core::ports::{App, Deadline};
use serde_json::{Value, json};
use thiserror::Error;

use event::{Event, Record};

/// A directly invoked event could not be judged completely; the platform invokes it again. Verdicts that were found
/// are kept, and given again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandlerError {
    #[error("{count} of the event's commits have no verdict yet; the first: {first}")]
    NoVerdict { count: usize, first: String },
}

/// Judges every staged commit of an event. Answers `{"verdicts": […]}`, and for a batch of a queue
/// `{"batchItemFailures": […]}`: the messages that should come again, because a store was not available, time ran out,
/// or the catalog did not take the partitions; and those that cannot be read, which end as dead letters where somebody
/// sees them. The other messages of the batch go on. Records that are not ours are never among them.
pub async fn handle(app: &App, event: Value, deadline: Deadline) -> Result<Value, HandlerError> {
    match event::read(&event) {
        Event::Direct(records) => direct(app, &records, deadline).await,
        Event::Queue(messages) => {
            let records: Vec<Record> = messages.iter().flat_map(|message| message.records.clone()).collect();
            let outcomes = judge(app, &records, deadline).await;
            let again: HashSet<&Staged> =
                outcomes.iter().filter(|judged| judged.trouble.is_some()).map(|judged| &judged.staged).collect();
            let failures: Vec<Value> = messages
                .iter()
                .filter(|message| {
                    message.records.iter().any(|record| match record {
                        Record::Staged(arrival) => again.contains(&arrival.staged),
                        Record::Malformed { .. } => true,
                        Record::Ignored => false,
                    })
                })
                .map(|message| json!({"itemIdentifier": message.id}))
                .collect();
            Ok(json!({"batchItemFailures": failures}))
        }
    }
}

async fn direct(app: &App, records: &[Record], deadline: Deadline) -> Result<Value, HandlerError> {
    let mut verdicts: Vec<Value> = records
        .iter()
        .filter_map(|record| match record {
            Record::Malformed { reason } => Some(json!({"status": "malformed", "message": reason})),
            _ => None,
        })
        .collect();
    let outcomes = judge(app, records, deadline).await;
    let troubles: Vec<&String> = outcomes.iter().filter_map(|judged| judged.trouble.as_ref()).collect();
    if let Some(first) = troubles.first() {
        return Err(HandlerError::NoVerdict { count: troubles.len(), first: (*first).clone() });
    }
    verdicts.extend(outcomes.into_iter().filter_map(|judged| judged.answer));
    Ok(json!({"verdicts": verdicts}))
}

/// What became of one staged object.
struct Judged {
    staged: Staged,
    answer: Option<Value>,
    /// Why its message should come again.
    trouble: Option<String>,
}

async fn judge(app: &App, records: &[Record], deadline: Deadline) -> Vec<Judged> {
    let mut arrivals = Vec::new();
    for record in records {
        match record {
            Record::Staged(arrival) => arrivals.push(arrival.clone()),
            Record::Ignored => {}
            Record::Malformed { reason } => tracing::warn!(reason, "a record cannot be read"),
        }
    }
    if arrivals.is_empty() {
        return Vec::new();
    }
    let sink = wiring::partition_sink(app);
    let ctx = Context { app, deadline, sink: &*sink };
    judge_batch(ctx, arrivals).await.into_iter().map(|(arrival, outcome)| judged(arrival, outcome)).collect()
}

fn judged(arrival: Arrival, outcome: Result<Outcome, CommitError>) -> Judged {
    let staged = arrival.staged;
    match outcome {
        Ok(Outcome::Verdict(verdict)) => {
            let trouble =
                sync::is_due(&verdict.proposal).then(|| "the catalog has not taken the partitions".to_owned());
            Judged { staged, answer: Some(verdict.to_json()), trouble }
        }
        Ok(Outcome::NotJudged { reason }) => {
            let answer = json!({"proposal_id": staged.key.id.to_string(), "location": staged.key.root.to_string(),
                "status": "not_judged", "message": reason});
            Judged { staged, answer: Some(answer), trouble: None }
        }
        Err(error) => Judged { staged, answer: None, trouble: Some(error.to_string()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use lakewarden_core::delta::Version;
    use lakewarden_core::delta::log::{StagedKey, commit_key};
    use lakewarden_core::location::Location;
    use lakewarden_core::ports::Settings;
    use lakewarden_core::store::memory::{Fault, MemoryWorld};
    use lakewarden_core::store::{Objects, PutOptions, StoreErrorKind};
    use uuid::Uuid;

    const SCHEMA: &str =
        r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;

    async fn world() -> (MemoryWorld, App) {
        let world = MemoryWorld::new(1_767_225_600_000);
        let app = App::new(world.ports.clone(), Settings::default());
        let creation = format!(
            "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"m\",\"schemaString\":\"{SCHEMA}\",\"partitionColumns\":[],\"configuration\":{{}}}}}}\n"
        );
        put(&world, &commit_key(&root(), Version(0)), creation).await;
        (world, app)
    }

    fn root() -> Location {
        Location::new("lake", "wh/t")
    }

    async fn put(world: &MemoryWorld, at: &lakewarden_core::store::ObjectKey, text: String) {
        world.objects.put(at, Bytes::from(text), &PutOptions::default()).await.unwrap();
    }

    /// Stages a transaction without files, and answers the S3 record that S3 would send.
    async fn stage(world: &MemoryWorld, version: i64, id: u128) -> Value {
        let key = StagedKey { root: root(), version: Version(version), id: Uuid::from_u128(id) };
        put(world, &key.key(), format!("{{\"txn\":{{\"appId\":\"app-{id}\",\"version\":1}}}}\n")).await;
        json!({"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventTime": format!("2026-01-01T00:00:0{id}Z"),
            "s3": {"bucket": {"name": "lake"}, "object": {"key": key.key().key}}})
    }

    fn deadline(app: &App) -> Deadline {
        Deadline::in_ms(&*app.ports.clock, 60_000)
    }

    #[tokio::test]
    async fn a_direct_event_is_answered_with_its_verdicts() {
        let (world, app) = world().await;
        // Reordered: the second proposal comes first, with rubbish around it.
        let records = [stage(&world, 2, 2).await, json!({"eventName": "ObjectCreated:Put"}), stage(&world, 1, 1).await];
        let answer = handle(&app, json!({"Records": records}), deadline(&app)).await.unwrap();
        let statuses: Vec<&str> =
            answer["verdicts"].as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["malformed", "committed", "committed"]);
        assert_eq!(answer["verdicts"][2]["version"], 2);
    }

    #[tokio::test]
    async fn faults_and_what_cannot_be_read_come_again() {
        let (world, app) = world().await;
        let message =
            |id: &str, body: Value| json!({"messageId": id, "eventSource": "aws:sqs", "body": body.to_string()});
        let good = json!({"Records": [stage(&world, 1, 1).await]});
        let refused = stage(&world, 9, 2).await;
        let event = json!({"Records": [
            message("good", good.clone()),
            message("refused", json!({"Records": [refused]})),
            message("rubbish", json!({"x": 1})),
            message("test", json!({"Event": "s3:TestEvent"})),
        ]});
        world.faults.inject("list", 0, Fault::Before(StoreErrorKind::Unavailable));
        let answer = handle(&app, event, deadline(&app)).await.unwrap();
        let failures = json!([{"itemIdentifier": "good"}, {"itemIdentifier": "rubbish"}]);
        assert_eq!(answer, json!({"batchItemFailures": failures}));
        let again = json!({"Records": [message("good", good)]});
        assert_eq!(handle(&app, again, deadline(&app)).await.unwrap(), json!({"batchItemFailures": []}));
    }

    #[tokio::test]
    async fn a_direct_event_with_a_fault_fails_and_is_whole_the_next_time() {
        let (world, app) = world().await;
        let event = json!({"Records": [stage(&world, 1, 1).await, stage(&world, 1, 2).await]});
        world.faults.inject("list", 0, Fault::Before(StoreErrorKind::Unavailable));
        let error = handle(&app, event.clone(), deadline(&app)).await.unwrap_err();
        assert!(matches!(error, HandlerError::NoVerdict { count: 1, .. }), "{error}");
        let answer = handle(&app, event, deadline(&app)).await.unwrap();
        assert_eq!(answer["verdicts"].as_array().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn events_of_other_objects_ask_nothing_of_the_stores() {
        let (world, app) = world().await;
        world.faults.forget_calls();
        let record =
            json!({"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "lake"}, "object": {"key": "x"}}});
        let answer = handle(&app, json!({"Records": [record]}), deadline(&app)).await.unwrap();
        assert_eq!(answer, json!({"verdicts": []}));
        assert!(world.faults.calls().is_empty());
    }
}
