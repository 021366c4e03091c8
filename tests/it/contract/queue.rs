//! `Queue`: in memory and on SQS (seen on the wire; the embedded queue is the laptop's own).

use kit::fake::FakeService;
use kit::servers;
use lakewarden_aws::{Clients, QueueUrls, SqsQueue};
use lakewarden_core::limits;
use lakewarden_core::store::memory::MemoryWorld;
use lakewarden_core::store::{Queue, QueueName, StoreErrorKind};
use serde_json::{Value as Json, json};

const SENT: &str = r#"{"MessageId":"1","MD5OfMessageBody":"0"}"#;

fn sqs(service: &FakeService, urls: QueueUrls) -> SqsQueue {
    let mut connection = servers::connection(None, None);
    connection.sqs_url = Some(service.url());
    SqsQueue::new(Clients::connect(&connection).sqs, urls)
}

fn urls(service: &FakeService) -> QueueUrls {
    let url = |name: &str| Some(format!("{}/000000000000/{name}", service.url()));
    QueueUrls { commits: url("c"), log_work: url("l"), sweeps: url("s"), catalog_work: url("w") }
}

/// Limits of messages, which both refuse alike.
async fn check_limits(queue: &dyn Queue) {
    let kind = async |bytes: usize, delay_ms: u64| {
        let sent = queue.send(QueueName::Sweeps, "x".repeat(bytes), delay_ms).await;
        sent.err().map(|error| error.kind)
    };
    assert_eq!(kind(limits::MESSAGE_MAX_BYTES, 0).await, None);
    assert_eq!(kind(limits::MESSAGE_MAX_BYTES + 1, 0).await, Some(StoreErrorKind::TooLarge));
    assert_eq!(kind(0, 0).await, Some(StoreErrorKind::Invalid));
    assert_eq!(kind(1, limits::MESSAGE_MAX_DELAY_MS).await, None);
    assert_eq!(kind(1, limits::MESSAGE_MAX_DELAY_MS + 1).await, Some(StoreErrorKind::Invalid));
}

#[tokio::test]
async fn messages_in_memory_keep_to_the_limits_and_their_queue() {
    let world = MemoryWorld::new(0);
    check_limits(world.queue.as_ref()).await;
    world.queue.send(QueueName::Commits, "one".to_owned(), 0).await.unwrap();
    world.queue.send(QueueName::Commits, "two".to_owned(), 0).await.unwrap();
    assert_eq!(world.queue.len(QueueName::Sweeps), 2);
    assert_eq!(world.queue.take(QueueName::Commits).as_deref(), Some("one"));
    assert_eq!(world.queue.take(QueueName::Commits).as_deref(), Some("two"));
    assert_eq!(world.queue.take(QueueName::Commits), None);
}

#[tokio::test]
async fn messages_on_sqs_keep_to_the_limits() {
    let service = FakeService::answering(200, "application/x-amz-json-1.0", "{}");
    check_limits(&sqs(&service, urls(&service))).await;
    assert_eq!(service.seen().len(), 2, "what is refused is not sent");
}

#[tokio::test]
async fn every_queue_has_its_url_and_delays_are_whole_seconds() {
    let service = FakeService::answering(200, "application/x-amz-json-1.0", SENT);
    let queue = sqs(&service, urls(&service));
    let sent = [
        (QueueName::Commits, 0, 0),
        (QueueName::LogWork, 1_000, 1),
        (QueueName::Sweeps, 1, 1),
        (QueueName::CatalogWork, 2_001, 3),
    ];
    for (name, delay_ms, _) in sent {
        // The digest in the answer is not the message's: the SDK may say so, the request was made.
        let _ = queue.send(name, format!("{{\"to\":\"{}\"}}", name.as_str()), delay_ms).await;
    }
    let bodies: Vec<Json> =
        service.seen().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    for ((name, _, delay_seconds), body) in sent.into_iter().zip(&bodies) {
        assert_eq!(body["QueueUrl"], json!(urls(&service).get(name)));
        assert_eq!(body["DelaySeconds"], delay_seconds);
        assert_eq!(body["MessageBody"], format!("{{\"to\":\"{}\"}}", name.as_str()));
    }
}

#[tokio::test]
async fn a_queue_without_url_names_its_setting() {
    let service = FakeService::answering(200, "application/x-amz-json-1.0", SENT);
    let queue = sqs(&service, QueueUrls::default());
    for (name, setting) in [
        (QueueName::Commits, "LAKEWARDEN_COMMITS_QUEUE_URL"),
        (QueueName::LogWork, "LAKEWARDEN_LOG_WORK_QUEUE_URL"),
        (QueueName::Sweeps, "LAKEWARDEN_SWEEPS_QUEUE_URL"),
        (QueueName::CatalogWork, "LAKEWARDEN_CATALOG_WORK_QUEUE_URL"),
    ] {
        let error = queue.send(name, "x".to_owned(), 0).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Missing);
        assert!(error.to_string().contains(setting), "{error}");
    }
    assert_eq!(service.seen().len(), 0);
}

#[tokio::test]
async fn a_queue_that_is_gone_is_missing() {
    let gone = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"gone"}"#;
    let service = FakeService::answering(400, "application/x-amz-json-1.0", gone);
    let error = sqs(&service, urls(&service)).send(QueueName::Sweeps, "x".to_owned(), 0).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Missing);
    assert!(error.to_string().contains("/000000000000/s"), "{error}");
}
