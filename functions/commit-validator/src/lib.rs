//! Lambda: judges Delta commits that were staged on S3, looks at what others put into the logs, and does what is due from
//! time to time. The laptop calls [`handle`] with the same events.

pub mod event;

use std::collections::{BTreeMap, HashMap};

use lakewarden_core::commit::audit::{Audited, LogFile, Logged, audit};
use lakewarden_core::commit::context::Context;
use lakewarden_core::commit::door::{Arrival, give_up, go_on_later, judge_batch, redelivery};
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::housekeeping::{self, keep_house};
use lakewarden_core::commit::managed::publish_pending;
use lakewarden_core::commit::run::{Outcome, Staged};
use lakewarden_core::commit::sync::{self, SyncError};
use lakewarden_core::commit::{table_list, wiring};
use lakewarden_core::delta::Version;
use lakewarden_core::location::Location;
use lakewarden_core::ports::{App, Deadline};
use lakewarden_core::store::{ObjectError, ObjectKey, PutCondition, QueueName, StoreError};
use serde_json::{Value, json};
use thiserror::Error;

use event::{Event, Message, Record};

/// Before a version of a log is looked at again.
const LOOK_AGAIN_MS: u64 = 5_000;

/// An event could not be handled completely; the platform brings it again. Verdicts that were found are kept, and given
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandlerError {
    #[error("{count} of the event's commits have no verdict yet; the first: {first}")]
    NoVerdict { count: usize, first: String },
    #[error("the housekeeping of the tables could not be queued: {0}")]
    Tick(#[from] StoreError),
}

/// Judges every staged commit of an event. Answers `{"verdicts": […]}`, and for a batch of a queue
/// `{"batchItemFailures": […]}`: the messages that should come again, because a store was not available or the catalog
/// did not take the partitions; and those that cannot be read, which end as dead letters where somebody sees them. What
/// was only slow goes on with a message of its own. The other messages of the batch go on; records that are not ours are
/// never among the failures. The schedule's event answers `{"queued": n}`.
pub async fn handle(app: &App, event: Value, deadline: Deadline) -> Result<Value, HandlerError> {
    let sink = wiring::partition_sink(app);
    let ctx = Context::new(app, deadline, &*sink);
    match event::read(&event) {
        Event::Direct(records) => direct(ctx, &records).await,
        Event::Queue(messages) => {
            let failures: Vec<Value> =
                queue(ctx, &messages).await.into_iter().map(|id| json!({"itemIdentifier": id})).collect();
            Ok(json!({"batchItemFailures": failures}))
        }
        Event::Tick => tick(app).await,
    }
}

/// One message for each table, so that each has an invocation's time of its own.
async fn tick(app: &App) -> Result<Value, HandlerError> {
    let roots = table_list::every(&*app.ports.items).await?;
    for root in &roots {
        app.ports.queue.send(QueueName::LogWork, housekeeping::message(root), 0).await?;
    }
    Ok(json!({"queued": roots.len()}))
}

/// Ids of the messages that should come again.
async fn queue(ctx: Context<'_>, messages: &[Message]) -> Vec<String> {
    let mut troubles: HashMap<Record, String> = HashMap::new();
    let records: Vec<Record> = messages.iter().flat_map(|message| message.records.clone()).collect();
    // What others put into the logs is looked at while commits wait for S3.
    let (judged, seen_to) = tokio::join!(judge(ctx, &records), see_to(ctx, &records));
    for judged in judged {
        let trouble = match judged.outcome {
            Err(error) if error.is_slowness() => {
                go_on_later(ctx, &judged.arrival, &error).await.err().map(|error| error.to_string())
            }
            outcome => trouble_of(&outcome),
        };
        if let Some(trouble) = trouble {
            troubles.insert(Record::Staged(judged.arrival), trouble);
        }
    }
    for (record, error) in seen_to {
        tracing::warn!(?record, %error, "a record comes again");
        troubles.insert(record, error.to_string());
    }
    let mut again = Vec::new();
    for message in messages {
        let failed = message
            .records
            .iter()
            .filter(|record| matches!(record, Record::Malformed { .. }) || troubles.contains_key(*record));
        let failed: Vec<&Record> = failed.collect();
        if failed.is_empty() {
            continue;
        }
        again.push(message.id.clone());
        for record in failed.into_iter().filter(|_| message.is_last_delivery) {
            if let (Record::Staged(arrival), Some(trouble)) = (record, troubles.get(record))
                && let Err(error) = give_up(ctx, arrival, trouble).await
            {
                tracing::error!(proposal = %arrival.staged.key.id, %error, "a dead letter could not be noted on its proposal");
            }
        }
    }
    again
}

/// What is no staged commit; answers what failed.
async fn see_to(ctx: Context<'_>, records: &[Record]) -> Vec<(Record, CommitError)> {
    let mut failures = Vec::new();
    let mut logged = Vec::new();
    for record in records {
        match record {
            Record::Logged(one) => logged.push(one.clone()),
            Record::Housekeeping(root) => match keep_house(ctx, root).await {
                Ok(report) => tracing::info!(%root, ?report, "housekeeping"),
                // The schedule brings it again.
                Err(error) if error.is_slowness() => tracing::info!(%root, %error, "housekeeping was not finished"),
                Err(error) => failures.push((record.clone(), error)),
            },
            Record::Follow(root) => {
                if let Err(error) = let_follow(ctx, root, None).await {
                    failures.push((record.clone(), error));
                }
            }
            Record::Publish(root) => match publish_pending(ctx, root, None).await {
                Ok(versions) => tracing::info!(%root, versions = versions.len(), "published what was ratified"),
                // The hourly housekeeping does it.
                Err(error) if error.is_slowness() => {
                    tracing::info!(%root, %error, "not all that was ratified is published")
                }
                Err(error) => failures.push((record.clone(), error)),
            },
            Record::Misspelled { at, staged } => {
                if let Err(error) = put_right(ctx, at, staged).await {
                    failures.push((record.clone(), error));
                }
            }
            Record::Staged(_) | Record::Ignored | Record::Malformed { .. } => {}
        }
    }
    let mut news: BTreeMap<Location, &Logged> = BTreeMap::new();
    for (one, outcome) in logged.iter().zip(audit(ctx, &logged).await) {
        match outcome {
            // There was too little time, or others were at work: a message of its own goes on with it.
            Err(error) if error.is_slowness() => {
                let body = redelivery(&one.key(), one.etag.as_ref(), 0);
                if let Err(error) = ctx.ports().queue.send(QueueName::LogWork, body, LOOK_AGAIN_MS).await {
                    failures.push((Record::Logged(one.clone()), error.into()));
                }
            }
            Err(error) => failures.push((Record::Logged(one.clone()), error)),
            // The catalog was told when they were committed.
            Ok(Audited::AsRecorded | Audited::ChecksumDeleted) => {}
            Ok(_) if one.file == LogFile::Checksum => {}
            Ok(_) => {
                let latest = news.entry(one.root.clone()).or_insert(one);
                if latest.version < one.version {
                    *latest = one;
                }
            }
        }
    }
    for (root, latest) in news {
        if let Err(error) = let_follow(ctx, &root, Some(latest.version)).await {
            failures.push((Record::Logged(latest.clone()), error));
        }
    }
    failures
}

/// Copies what was staged under a misspelled id to where that id has its place; the copy has an event of its own. What lies there
/// already stays: it came first.
async fn put_right(ctx: Context<'_>, at: &ObjectKey, staged: &Staged) -> Result<(), CommitError> {
    let to = staged.key.key();
    tracing::info!(from = %at, %to, "a staged commit is copied to the lower-case spelling of its id");
    match ctx.ports().objects.copy(at, &to, &PutCondition::Absent).await {
        Ok(_) | Err(ObjectError::PreconditionFailed(_) | ObjectError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lets the catalog follow a log. What there was no time for goes on with a message that was sent.
async fn let_follow(ctx: Context<'_>, root: &Location, told: Option<Version>) -> Result<(), CommitError> {
    match sync::look_after(ctx, root, told).await {
        Ok(report) => {
            tracing::info!(%root, ?report, "the catalog follows");
            Ok(())
        }
        Err(SyncError::Slow(_)) => Ok(()),
        Err(SyncError::Failed(error)) => Err(CommitError::Follow(error)),
    }
}

async fn direct(ctx: Context<'_>, records: &[Record]) -> Result<Value, HandlerError> {
    let mut verdicts: Vec<Value> = records
        .iter()
        .filter_map(|record| match record {
            Record::Malformed { reason } => Some(json!({"status": "malformed", "message": reason})),
            _ => None,
        })
        .collect();
    let judged = judge(ctx, records).await;
    let mut troubles: Vec<String> = judged.iter().filter_map(|judged| trouble_of(&judged.outcome)).collect();
    troubles.extend(see_to(ctx, records).await.into_iter().map(|(_, error)| error.to_string()));
    if let Some(first) = troubles.first() {
        return Err(HandlerError::NoVerdict { count: troubles.len(), first: first.clone() });
    }
    verdicts.extend(judged.into_iter().filter_map(|judged| answer_of(&judged.arrival.staged, judged.outcome)));
    Ok(json!({"verdicts": verdicts}))
}

/// What became of one staged object.
struct Judged {
    arrival: Arrival,
    outcome: Result<Outcome, CommitError>,
}

async fn judge(ctx: Context<'_>, records: &[Record]) -> Vec<Judged> {
    let mut arrivals = Vec::new();
    for record in records {
        match record {
            Record::Staged(arrival) => arrivals.push(arrival.clone()),
            Record::Malformed { reason } => tracing::warn!(reason, "a record cannot be read"),
            Record::Misspelled { .. }
            | Record::Logged(_)
            | Record::Housekeeping(_)
            | Record::Follow(_)
            | Record::Publish(_)
            | Record::Ignored => {}
        }
    }
    if arrivals.is_empty() {
        return Vec::new();
    }
    judge_batch(ctx, arrivals).await.into_iter().map(|(arrival, outcome)| Judged { arrival, outcome }).collect()
}

/// Why the message of a staged object should come again.
fn trouble_of(outcome: &Result<Outcome, CommitError>) -> Option<String> {
    match outcome {
        Ok(Outcome::Verdict(verdict)) => {
            sync::is_due(&verdict.proposal).then(|| "the catalog has not taken the partitions".to_owned())
        }
        Ok(Outcome::NotJudged { .. }) => None,
        Err(error) => Some(error.to_string()),
    }
}

fn answer_of(staged: &Staged, outcome: Result<Outcome, CommitError>) -> Option<Value> {
    match outcome {
        Ok(Outcome::Verdict(verdict)) => Some(verdict.to_json()),
        Ok(Outcome::NotJudged { reason }) => Some(json!({
            "proposal_id": staged.key.id.to_string(),
            "location": staged.key.root.to_string(),
            "status": "not_judged",
            "message": reason,
        })),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use lakewarden_core::commit::keys::ProposalId;
    use lakewarden_core::commit::{alarm, proposals};
    use lakewarden_core::delta::log::{StagedKey, commit_key};
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

    fn queued(id: &str, receives: u32, body: &Value) -> Value {
        json!({"messageId": id, "eventSource": "aws:sqs", "body": body.to_string(),
            "attributes": {"ApproximateReceiveCount": receives.to_string()}})
    }

    #[tokio::test]
    async fn an_id_in_upper_case_is_put_right() {
        let (world, app) = world().await;
        let right = StagedKey { root: root(), version: Version(1), id: Uuid::from_u128(0xabc) }.key();
        let (folder, name) = right.key.rsplit_once('/').unwrap();
        let wrong = ObjectKey::new("lake", format!("{folder}/{}.json", name.trim_end_matches(".json").to_uppercase()));
        put(&world, &wrong, "{\"txn\":{\"appId\":\"a\",\"version\":1}}\n".to_owned()).await;
        let record = |key: &str| {
            json!({"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": "lake"}, "object": {"key": key}}}]})
        };
        for _ in 0..2 {
            let answer = handle(&app, record(&wrong.key), deadline(&app)).await.unwrap();
            assert_eq!(answer, json!({"verdicts": []}));
        }
        // The copy's own event.
        let answer = handle(&app, record(&right.key), deadline(&app)).await.unwrap();
        assert_eq!(answer["verdicts"][0]["status"], "committed");
    }

    #[tokio::test]
    async fn what_was_only_slow_goes_on_with_a_message_of_its_own() {
        let (world, app) = world().await;
        let body = json!({"Records": [stage(&world, 1, 1).await]});
        let event = json!({"Records": [queued("slow", 1, &body)]});
        let answer = handle(&app, event, Deadline::in_ms(&*app.ports.clock, 2_000)).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
        let message: Value = serde_json::from_str(&world.queue.take(QueueName::Commits).unwrap()).unwrap();
        assert_eq!(message["detail"]["continuations"], 1);
        let answer = handle(&app, json!({"Records": [queued("again", 1, &message)]}), deadline(&app)).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
        assert_eq!(handle(&app, body, deadline(&app)).await.unwrap()["verdicts"][0]["status"], "committed");
        assert_eq!(world.queue.take(QueueName::Commits), None);
    }

    #[tokio::test]
    async fn a_message_on_its_last_delivery_leaves_a_note() {
        let (world, app) = world().await;
        let body = json!({"Records": [stage(&world, 1, 1).await]});
        let id = ProposalId(Uuid::from_u128(1));
        for (receives, expected) in [(4, 0), (5, 1)] {
            world.faults.inject("list", 0, Fault::Before(StoreErrorKind::AccessDenied));
            let answer =
                handle(&app, json!({"Records": [queued("m", receives, &body)]}), deadline(&app)).await.unwrap();
            assert_eq!(
                answer,
                json!({"batchItemFailures": [{"itemIdentifier": "m"}]}),
                "it is a dead letter all the same"
            );
            assert_eq!(proposals::by_id(&*world.items, id).await.unwrap().len(), expected);
        }
        let noted = proposals::by_id(&*world.items, id).await.unwrap();
        assert_eq!(noted[0].status.name(), "undecided");
        let answer = handle(&app, json!({"Records": [queued("m", 1, &body)]}), deadline(&app)).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
        assert_eq!(proposals::by_id(&*world.items, id).await.unwrap()[0].status.name(), "committed");
    }

    #[tokio::test]
    async fn the_schedule_brings_the_housekeeping_of_every_table() {
        let (world, app) = world().await;
        let tick = json!({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}});
        assert_eq!(handle(&app, tick.clone(), deadline(&app)).await.unwrap(), json!({"queued": 0}));
        let staged = stage(&world, 1, 1).await;
        handle(&app, json!({"Records": [staged]}), deadline(&app)).await.unwrap();
        let lost = stage(&world, 2, 2).await;
        world.clock.advance_ms(3_600_000);
        assert_eq!(handle(&app, tick, deadline(&app)).await.unwrap(), json!({"queued": 1}));
        let message: Value = serde_json::from_str(&world.queue.take(QueueName::LogWork).unwrap()).unwrap();
        assert_eq!(message["location"], "s3://lake/wh/t");
        let answer = handle(&app, json!({"Records": [queued("h", 1, &message)]}), deadline(&app)).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
        let again = world.queue.take(QueueName::Commits).unwrap();
        assert!(again.contains(lost["s3"]["object"]["key"].as_str().unwrap()), "{again}");
    }

    #[tokio::test]
    async fn versions_of_other_writers_are_looked_at() {
        let (world, app) = world().await;
        handle(&app, json!({"Records": [stage(&world, 1, 1).await]}), deadline(&app)).await.unwrap();
        let at = commit_key(&root(), Version(1));
        let event = json!({"Records": [{"eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "lake"}, "object": {"key": at.key, "eTag": "other"}}}]});
        handle(&app, event.clone(), deadline(&app)).await.unwrap();
        let alarms = async || alarm::of_table(&*world.items, &root(), 10, None).await.unwrap().alarms.len();
        assert_eq!(alarms().await, 0, "what is there is what was published");
        put(&world, &at, "{}\n".to_owned()).await;
        handle(&app, event, deadline(&app)).await.unwrap();
        assert_eq!(alarms().await, 1);
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
