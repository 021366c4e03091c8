//! Delivery of events: S3's outbox -> EventBridge event -> queue -> handler.
//!
//! At least once, like on AWS: an event leaves the outbox only after the queue has it on disk, a message leaves the queue only
//! after its handler succeeded. Failed messages come back with growing pauses and end, after several tries, as dead
//! letters that are kept and listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lakewarden_core::commit::door::RECEIVES_MAX;
use lakewarden_core::ports::Deadline;
use lakewarden_core::store::{Clock, QueueName};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::s3::{Event, EventId};
use crate::sqs::{LocalQueues, Outgoing, QueueFailure, QueueSettings, Receipt, ReceiveOptions, Received};
use crate::system::Shared;

/// Events handed on in one go.
const OUTBOX_BATCH: usize = 100;
/// Messages of one invocation, as the template's event source says.
const MESSAGE_BATCH: usize = 10;
/// How long an empty queue is waited on before the loop looks around.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// First and longest pause after a failure.
const BACK_OFF_FIRST_MS: u64 = 1_000;
const BACK_OFF_MOST_MS: u64 = 60_000;

/// Whether events flow, and how much is in the air.
#[derive(Debug, Default)]
pub struct Delivery {
    paused: AtomicBool,
    changed: Notify,
    in_flight: AtomicUsize,
}

impl Delivery {
    /// Holds events and messages of commits and logs back (they are kept) until [`Delivery::resume`].
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Until paused or resumed, or for a short while.
    async fn wait_for_change(&self) {
        tokio::select! {
            () = self.changed.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }

    /// Batches that handlers are at work on.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }
}

/// Starts the dispatcher of S3's events and one consumer for each queue.
pub fn spawn(tasks: &mut JoinSet<()>, shared: &Arc<Shared>, shutdown: &CancellationToken) {
    let (handed_on, to_acknowledge) = watch::channel(HandedOn::default());
    tasks.spawn(dispatch_events(shared.clone(), handed_on, shutdown.clone()));
    tasks.spawn(acknowledge_events(shared.clone(), to_acknowledge, shutdown.clone()));
    for queue in QueueName::ALL {
        tasks.spawn(consume(shared.clone(), queue, shutdown.clone()));
    }
}

/// How far events were handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HandedOn {
    through: EventId,
    /// Messages that were made of them.
    messages: u64,
}

async fn dispatch_events(shared: Arc<Shared>, handed_on: watch::Sender<HandedOn>, shutdown: CancellationToken) {
    let mut last = EventId::default();
    let mut failures = 0;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.objects.wait_for_event(last) => {}
        }
        if shared.delivery.is_paused() {
            shared.delivery.wait_for_change().await;
            continue;
        }
        match dispatch_batch(&shared, last, &handed_on).await {
            Ok(next) => {
                last = next;
                failures = 0;
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, failures, "S3 events could not be handed on; trying again");
                let pause = Duration::from_millis(back_off_ms(failures));
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

/// Hands one batch on; the event behind which the next one begins.
async fn dispatch_batch(
    shared: &Shared,
    after: EventId,
    handed_on: &watch::Sender<HandedOn>,
) -> Result<EventId, String> {
    // Read before polling: where nothing is left to hand on, everything up to here has been.
    let newest = shared.objects.newest_event_id();
    let events = shared.objects.poll_events(after, OUTBOX_BATCH).await.map_err(|error| error.to_string())?;
    let mut messages = Vec::new();
    for event in &events {
        let Some(queue) = queue_of(&event.name, &event.key) else { continue };
        let body = eventbridge_event(shared, event).to_string();
        messages.push((queue, Outgoing { body, ..Outgoing::default() }));
    }
    let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
    shared.queues.send_all(messages).await.map_err(|error| error.to_string())?;
    let Some(last) = events.last().map(|event| event.id) else { return Ok(newest.max(after)) };
    handed_on.send_modify(|handed| {
        *handed = HandedOn { through: last, messages: handed.messages.saturating_add(count) };
    });
    Ok(last)
}

/// Takes out of the outbox what was handed on, once its messages are on disk. Beside the dispatcher: a staged commit is
/// judged while its event waits for the disk. An event that this comes too late for is handed on once more after a restart.
async fn acknowledge_events(shared: Arc<Shared>, mut handed: watch::Receiver<HandedOn>, shutdown: CancellationToken) {
    let mut done = HandedOn::default();
    let mut failures = 0;
    loop {
        let is_last = tokio::select! {
            () = shutdown.cancelled() => true,
            changed = handed.changed() => changed.is_err(),
        };
        let next = *handed.borrow_and_update();
        if next != done {
            match acknowledge(&shared, done, next).await {
                Ok(()) => (done, failures) = (next, 0),
                Err(error) => {
                    failures += 1;
                    tracing::warn!(error, failures, "S3 events could not be acknowledged; trying again");
                    handed.mark_changed();
                    tokio::time::sleep(Duration::from_millis(back_off_ms(failures))).await;
                }
            }
        }
        if is_last {
            return;
        }
    }
}

async fn acknowledge(shared: &Shared, done: HandedOn, next: HandedOn) -> Result<(), String> {
    if next.messages != done.messages {
        shared.queues.flush().await.map_err(|error| error.to_string())?;
    }
    shared.objects.acknowledge_events_through(next.through).await.map_err(|error| error.to_string())
}

/// Where an event goes: the rules of `template.yaml` with their patterns of keys.
const RULES: [(QueueName, &str, &str); 3] = [
    (QueueName::Commits, "_delta_log/_staged_commits/", ".json"),
    (QueueName::LogWork, "_delta_log/0", ".json"),
    (QueueName::LogWork, "_delta_log/0", ".crc"),
];

/// The queue of the first rule that an event fits: `*/<middle>*<end>`, and `<middle>*<end>` for a table at the root of a bucket.
fn queue_of(name: &str, key: &str) -> Option<QueueName> {
    let key = format!("/{key}");
    let fits = |(_, middle, end): &&(QueueName, &str, &str)| {
        key.strip_suffix(end).is_some_and(|before| before.contains(&format!("/{middle}")))
    };
    RULES.iter().filter(|_| name.starts_with("ObjectCreated:")).find(fits).map(|(queue, _, _)| *queue)
}

/// What EventBridge delivers for an S3 event. Unlike in S3's own notifications the key is not encoded.
fn eventbridge_event(shared: &Shared, event: &Event) -> Value {
    let settings = &shared.app.settings;
    let reason = match event.name.as_str() {
        "ObjectCreated:Copy" => "CopyObject",
        "ObjectCreated:CompleteMultipartUpload" => "CompleteMultipartUpload",
        _ => "PutObject",
    };
    json!({
        "version": "0",
        "id": shared.app.ports.ids.uuid().to_string(),
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": settings.account_id,
        "time": rfc3339(event.time_ms),
        "region": settings.region,
        "resources": [format!("arn:aws:s3:::{}", event.bucket)],
        "detail": {
            "version": "0",
            "bucket": {"name": event.bucket},
            "object": {
                "key": event.key,
                "size": event.size_bytes,
                "etag": event.etag,
                "sequencer": event.sequencer,
            },
            "request-id": event.sequencer,
            "requester": settings.account_id,
            "source-ip-address": "127.0.0.1",
            "reason": reason,
        },
    })
}

/// `2026-11-30T00:23:15Z`, whole seconds.
pub(crate) fn rfc3339(ms: i64) -> String {
    time::OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000))
        .ok()
        .and_then(|moment| moment.format(&time::format_description::well_known::Rfc3339).ok())
        .unwrap_or_else(|| format!("{ms} ms since 1970"))
}

/// Time that a function has, as in `template.yaml`.
fn function_timeout_ms(queue: QueueName) -> u64 {
    match queue {
        QueueName::Commits | QueueName::LogWork => 60_000,
        QueueName::Sweeps => 900_000,
        QueueName::CatalogWork => 300_000,
    }
}

/// Settings of a queue on the laptop.
pub fn queue_settings(queue: QueueName) -> QueueSettings {
    QueueSettings {
        visibility_timeout_ms: function_timeout_ms(queue) + 30_000,
        max_receives: Some(RECEIVES_MAX),
        delay_ms: 0,
    }
}

async fn consume(shared: Arc<Shared>, queue: QueueName, shutdown: CancellationToken) {
    let wait_ms = u64::try_from(POLL_INTERVAL.as_millis()).unwrap_or(500);
    let options = ReceiveOptions { max: MESSAGE_BATCH, visibility_timeout_ms: None, wait_ms };
    while !shutdown.is_cancelled() {
        if matches!(queue, QueueName::Commits | QueueName::LogWork) && shared.delivery.is_paused() {
            shared.delivery.wait_for_change().await;
            continue;
        }
        let received = tokio::select! {
            () = shutdown.cancelled() => return,
            received = shared.queues.receive(queue.as_str(), &options) => received,
        };
        match received {
            Ok(batch) if batch.is_empty() => {}
            Ok(batch) => {
                shared.delivery.in_flight.fetch_add(1, Ordering::SeqCst);
                handle_batch(&shared, queue, batch).await;
                shared.delivery.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
            Err(error) => {
                tracing::warn!(queue = queue.as_str(), %error, "a queue could not be read; trying again");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// One invocation: succeeded messages are deleted, failed ones come back later.
async fn handle_batch(shared: &Arc<Shared>, queue: QueueName, batch: Vec<Received>) {
    let event = sqs_event(queue, &batch, &shared.app.settings.region, &shared.app.settings.account_id);
    let answer = invoke(shared, queue, event).await;
    let failed = match &answer {
        Ok(answer) => failed_ids(answer),
        Err(_) => batch.iter().map(|message| message.message_id.clone()).collect(),
    };
    let reason = match &answer {
        Ok(_) => "the handler reported the message as failed".to_owned(),
        Err(error) => error.clone(),
    };
    let (failed, done): (Vec<Received>, Vec<Received>) =
        batch.into_iter().partition(|message| failed.contains(&message.message_id));
    for message in &failed {
        tracing::warn!(
            queue = queue.as_str(),
            message_id = message.message_id,
            receives = message.receives,
            reason,
            "a message failed; it comes back, or becomes a dead letter"
        );
        if let Err(error) = put_back(&shared.queues, queue, message, &reason).await {
            // Not lost: it becomes visible again when its visibility timeout ends.
            tracing::warn!(queue = queue.as_str(), message_id = message.message_id, %error, "a message was not settled");
        }
    }
    let receipts: Vec<Receipt> = done.into_iter().map(|message| message.receipt).collect();
    if !receipts.is_empty()
        && let Err(error) = shared.queues.delete_all(queue.as_str(), receipts).await
    {
        // They come again and are found done.
        tracing::warn!(queue = queue.as_str(), %error, "messages were not deleted");
    }
}

async fn put_back(
    queues: &LocalQueues,
    queue: QueueName,
    message: &Received,
    reason: &str,
) -> Result<(), QueueFailure> {
    queues.fail(queue.as_str(), &message.receipt, reason, back_off_ms(message.receives)).await
}

fn back_off_ms(failures: u32) -> u64 {
    BACK_OFF_FIRST_MS.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACK_OFF_MOST_MS)
}

/// Runs in a task of its own, so that a defect in a handler fails its batch and nothing else.
async fn invoke(shared: &Arc<Shared>, queue: QueueName, event: Value) -> Result<Value, String> {
    let shared = shared.clone();
    let timeout_ms = i64::try_from(function_timeout_ms(queue)).unwrap_or(i64::MAX);
    let work = tokio::spawn(async move {
        let deadline = Deadline::in_ms(shared.clock.as_ref() as &dyn Clock, timeout_ms);
        let app = &shared.app;
        match queue {
            QueueName::Commits | QueueName::LogWork => {
                commit_validator::handle(app, event, deadline).await.map_err(|e| e.to_string())
            }
            QueueName::Sweeps => orphan_sweeper::handle(app, event, deadline).await.map_err(|e| e.to_string()),
            QueueName::CatalogWork => catalog_worker::handle(app, event, deadline).await.map_err(|e| e.to_string()),
        }
    });
    work.await.unwrap_or_else(|error| Err(format!("the handler ended without an answer: {error}")))
}

fn failed_ids(answer: &Value) -> Vec<String> {
    let failures = answer.get("batchItemFailures").and_then(Value::as_array);
    failures
        .into_iter()
        .flatten()
        .filter_map(|failure| failure.get("itemIdentifier").and_then(Value::as_str).map(str::to_owned))
        .collect()
}

/// The event that Lambda's poller makes of a batch.
fn sqs_event(queue: QueueName, batch: &[Received], region: &str, account_id: &str) -> Value {
    let records: Vec<Value> = batch
        .iter()
        .map(|message| {
            json!({
                "messageId": message.message_id,
                "receiptHandle": message.receipt.0,
                "body": message.body,
                "attributes": {
                    "ApproximateReceiveCount": message.receives.to_string(),
                    "SentTimestamp": message.sent_ms.to_string(),
                    "SenderId": account_id,
                    "ApproximateFirstReceiveTimestamp": message.first_received_ms.to_string(),
                },
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": format!("arn:aws:sqs:{region}:{account_id}:{}", queue.as_str()),
                "awsRegion": region,
            })
        })
        .collect();
    json!({ "Records": records })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_eventbridge_does() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_795_998_195_999, "2026-11-30T00:23:15Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
        }
    }

    #[test]
    fn staged_commits_and_what_is_put_into_logs_go_to_queues_of_their_own() {
        let staged = "t/_delta_log/_staged_commits/00000000000000000001.80a083e8-7026-4e79-81be-64bd76c43a11.json";
        for (name, key, expected) in [
            ("ObjectCreated:Put", staged, Some(QueueName::Commits)),
            ("ObjectCreated:CompleteMultipartUpload", staged, Some(QueueName::Commits)),
            ("ObjectRemoved:Delete", staged, None),
            ("ObjectCreated:Put", "t/_delta_log/00000000000000000001.json", Some(QueueName::LogWork)),
            ("ObjectCreated:Copy", "t/_delta_log/00000000000000000001.crc", Some(QueueName::LogWork)),
            ("ObjectCreated:Put", "t/_delta_log/00000000000000000001.checkpoint.parquet", None),
            ("ObjectCreated:Put", "t/_delta_log/_last_checkpoint", None),
            ("ObjectCreated:Put", "t/_delta_log/.tmp/00000000000000000001.json", None),
            ("ObjectCreated:Put", "t/part-0.json", None),
            ("ObjectCreated:Put", "_delta_log/00000000000000000001.json", Some(QueueName::LogWork)),
            ("ObjectCreated:Put", "not_delta_log/00000000000000000001.json", None),
        ] {
            assert_eq!(queue_of(name, key), expected, "{name} {key}");
        }
    }

    #[test]
    fn the_rules_are_those_of_the_template() {
        let template = include_str!("../../template.yaml");
        for (queue, middle, end) in RULES {
            let target = match queue {
                QueueName::Commits => "CommitsQueue",
                _ => "LogWorkQueue",
            };
            for before in ["*/", ""] {
                let pattern = format!("wildcard: '{before}{middle}*{end}'");
                let rule = template.split("AWS::Events::Rule").find(|rule| rule.contains(&pattern));
                assert!(rule.is_some_and(|rule| rule.contains(&format!("Arn: !GetAtt {target}.Arn"))), "{pattern}");
            }
        }
        let patterns = template.matches("wildcard: '").count();
        assert_eq!(patterns, 2 * RULES.len(), "no more patterns there than here");
    }

    #[test]
    fn pauses_grow_and_end_growing() {
        assert_eq!([1, 2, 3, 7, 50].map(back_off_ms), [1_000, 2_000, 4_000, 60_000, 60_000]);
    }

    #[test]
    fn only_what_the_handler_names_has_failed() {
        let answer = json!({"batchItemFailures": [{"itemIdentifier": "b"}, {"other": 1}]});
        assert_eq!(failed_ids(&answer), ["b"]);
        assert!(failed_ids(&json!({"verdicts": []})).is_empty());
    }
}
