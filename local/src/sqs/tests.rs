use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lakewarden_core::store::memory::ManualClock;
use lakewarden_core::store::{Ids, Queue, QueueName, RandomIds, StoreErrorKind, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;

const NOW_MS: i64 = 1_767_323_045_678;

struct Fixture {
    queues: LocalQueues,
    clock: Arc<ManualClock>,
}

fn settings() -> QueueSettings {
    QueueSettings { visibility_timeout_ms: 1_000, max_receives: Some(2), delay_ms: 0 }
}

fn fixture() -> Fixture {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let queues =
        LocalQueues::memory(clock.clone(), &[("commits", settings()), ("sweeps", Default::default())]).unwrap();
    Fixture { queues, clock }
}

fn body(text: &str) -> Outgoing {
    Outgoing { body: text.to_owned(), ..Default::default() }
}

impl Fixture {
    async fn send(&self, text: &str) {
        self.queues.send("commits", body(text)).await.unwrap();
    }

    async fn receive(&self) -> Vec<Received> {
        self.queues.receive("commits", &ReceiveOptions { max: 10, ..Default::default() }).await.unwrap()
    }
}

#[tokio::test]
async fn a_message_is_hidden_until_deleted_or_due_again() {
    let f = fixture();
    f.send("a").await;
    let first = f.receive().await;
    assert_eq!((first[0].body.as_str(), first[0].receives, first[0].sent_ms), ("a", 1, NOW_MS));
    assert!(f.receive().await.is_empty());
    assert_eq!(f.queues.counts("commits").await.unwrap(), QueueCounts { in_flight: 1, ..Default::default() });
    f.clock.advance_ms(1_000);
    let second = f.receive().await;
    assert_eq!((second[0].receives, second[0].first_received_ms), (2, NOW_MS));
    assert!(!f.queues.delete("commits", &first[0].receipt).await.unwrap(), "delivered again since");
    assert!(f.queues.delete("commits", &second[0].receipt).await.unwrap());
    assert!(!f.queues.delete("commits", &second[0].receipt).await.unwrap());
    assert_eq!(f.queues.counts("commits").await.unwrap(), QueueCounts::default());
}

#[tokio::test]
async fn many_are_sent_and_deleted_at_once() {
    let f = fixture();
    let to = |queue, text: &str| (queue, body(text));
    let all = vec![to(QueueName::Commits, "a"), to(QueueName::Sweeps, "s"), to(QueueName::Commits, "b")];
    f.queues.send_all(all).await.unwrap();
    f.queues.flush().await.unwrap();
    // All or none.
    let spoilt = vec![to(QueueName::Commits, "c"), to(QueueName::CatalogWork, "no such queue here")];
    assert!(matches!(f.queues.send_all(spoilt).await, Err(QueueFailure::NoSuchQueue(_))));
    let received = f.receive().await;
    assert_eq!(received.iter().map(|one| one.body.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let receipts: Vec<Receipt> = received.into_iter().map(|one| one.receipt).collect();
    assert_eq!(f.queues.delete_all("commits", receipts.clone()).await.unwrap(), 2);
    assert_eq!(f.queues.delete_all("commits", receipts).await.unwrap(), 0);
    assert_eq!(f.queues.counts("sweeps").await.unwrap().visible, 1);
}

#[tokio::test]
async fn delays_and_visibility_can_be_chosen() {
    let f = fixture();
    f.queues.send("commits", Outgoing { delay_ms: Some(500), ..body("late") }).await.unwrap();
    assert!(f.receive().await.is_empty());
    assert_eq!(f.queues.counts("commits").await.unwrap(), QueueCounts { delayed: 1, ..Default::default() });
    f.clock.advance_ms(500);
    let options = ReceiveOptions { max: 1, visibility_timeout_ms: Some(50), wait_ms: 0 };
    let received = f.queues.receive("commits", &options).await.unwrap();
    f.queues.change_visibility("commits", &received[0].receipt, 5_000).await.unwrap();
    f.clock.advance_ms(4_999);
    assert!(f.receive().await.is_empty());
    f.queues.change_visibility("commits", &received[0].receipt, 0).await.unwrap();
    let stale = f.queues.change_visibility("commits", &received[0].receipt, 1).await;
    assert!(matches!(stale, Err(QueueFailure::NotInFlight)));
    assert_eq!(f.receive().await.len(), 1);
}

#[tokio::test]
async fn what_fails_too_often_becomes_a_dead_letter_and_can_come_back() {
    let f = fixture();
    f.send("poison").await;
    f.send("silent").await;
    for reason in ["first", "second"] {
        let received = f.receive().await;
        assert_eq!(received.len(), 2);
        f.queues.fail("commits", &received[0].receipt, reason, 1_000).await.unwrap();
        f.clock.advance_ms(1_000);
    }
    assert_eq!(f.queues.counts("commits").await.unwrap(), QueueCounts { dead: 2, ..Default::default() });
    let dead = f.queues.dead_letters("commits", None, 10).await.unwrap();
    let told: Vec<_> = dead.iter().map(|one| (one.body.as_str(), one.receives, one.last_error.as_deref())).collect();
    assert_eq!(told, [("poison", 2, Some("second")), ("silent", 2, None)]);
    assert_eq!((dead[0].first_received_ms, dead[0].last_received_ms), (Some(NOW_MS), Some(NOW_MS + 1_000)));
    assert_eq!((dead[0].dead_ms, dead[1].dead_ms), (NOW_MS + 1_000, NOW_MS + 2_000));
    assert_eq!(f.queues.dead_letters("commits", Some(dead[0].id), 10).await.unwrap(), dead[1..]);
    assert!(f.receive().await.is_empty());
    assert_eq!(f.queues.redrive("commits", DeadLetters::One(dead[0].id)).await.unwrap(), 1);
    let back = f.receive().await;
    assert_eq!((back[0].body.as_str(), back[0].receives), ("poison", 1));
    assert_eq!(f.queues.redrive("commits", DeadLetters::All).await.unwrap(), 1);
    assert_eq!(f.queues.redrive("commits", DeadLetters::All).await.unwrap(), 0);
    assert_eq!(f.queues.discard_dead_letters("commits", DeadLetters::All).await.unwrap(), 0);
}

#[tokio::test]
async fn what_a_queue_does_not_take_is_refused() {
    let f = fixture();
    let send = async |message| f.queues.send("commits", message).await.unwrap_err();
    assert!(matches!(send(body("")).await, QueueFailure::InvalidContents));
    assert!(matches!(send(body("\u{1}")).await, QueueFailure::InvalidContents));
    assert!(matches!(send(body(&"x".repeat(MESSAGE_MAX_BYTES + 1))).await, QueueFailure::TooLarge { .. }));
    let late = Outgoing { delay_ms: Some(DELAY_MAX_MS + 1), ..body("x") };
    assert!(matches!(send(late).await, QueueFailure::TooLong { .. }));
    f.send(&"x".repeat(MESSAGE_MAX_BYTES)).await;
    assert!(matches!(f.queues.send("nobody", body("x")).await, Err(QueueFailure::NoSuchQueue(_))));
}

#[tokio::test]
async fn the_port_rounds_delays_up_to_seconds() {
    let f = fixture();
    let port: &dyn Queue = &f.queues;
    port.send(QueueName::Commits, "now".into(), 0).await.unwrap();
    port.send(QueueName::Commits, "later".into(), 1_001).await.unwrap();
    assert_eq!(f.receive().await.len(), 1);
    f.clock.advance_ms(1_999);
    assert!(f.receive().await.iter().all(|message| message.body == "now"));
    f.clock.advance_ms(1);
    assert!(f.receive().await.iter().any(|message| message.body == "later"));
    let missing = port.send(QueueName::CatalogWork, "x".into(), 0).await.unwrap_err();
    assert_eq!((missing.kind, missing.operation.as_str()), (StoreErrorKind::Missing, "send catalog-work"));
    let large = port.send(QueueName::Commits, "x".repeat(MESSAGE_MAX_BYTES + 1), 0).await.unwrap_err();
    assert_eq!(large.kind, StoreErrorKind::TooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receiver_is_woken() {
    let queues = LocalQueues::memory(Arc::new(SystemClock), &[("commits", settings())]).unwrap();
    let options = ReceiveOptions { wait_ms: 20_000, ..Default::default() };
    let waiter = queues.clone();
    let waiting = tokio::spawn(async move { waiter.receive("commits", &options).await.unwrap() });
    queues.send("commits", body("sent")).await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert_eq!(woken[0].body, "sent");
    queues.send("commits", Outgoing { delay_ms: Some(100), ..body("due") }).await.unwrap();
    let options = ReceiveOptions { wait_ms: 20_000, ..Default::default() };
    let due = tokio::time::timeout(Duration::from_secs(10), queues.receive("commits", &options)).await.unwrap();
    assert_eq!(due.unwrap()[0].body, "due");
    let options = ReceiveOptions { wait_ms: 30, ..Default::default() };
    assert!(queues.receive("commits", &options).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_to_one_receiver_at_a_time() {
    let f = Arc::new(fixture());
    for n in 0..50 {
        f.send(&n.to_string()).await;
    }
    let mut receivers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let f = f.clone();
        receivers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let received =
                    f.queues.receive("commits", &ReceiveOptions { max: 3, ..Default::default() }).await.unwrap();
                if received.is_empty() {
                    return mine;
                }
                mine.extend(received.into_iter().map(|message| message.body.parse::<u32>().unwrap()));
            }
        });
    }
    let mut all = receivers.join_all().await.concat();
    all.sort_unstable();
    assert_eq!(all, (0..50).collect::<Vec<_>>());
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("lakewarden-test-{}", RandomIds.uuid().simple())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn messages_and_dead_letters_survive_a_restart() {
    let folder = Folder::new();
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let one = QueueSettings { max_receives: Some(1), ..settings() };
    let queues = LocalQueues::open(&folder.0, clock.clone(), &[("commits", one)]).unwrap();
    for text in ["dead", "flying", "waiting"] {
        queues.send("commits", body(text)).await.unwrap();
    }
    let received = queues.receive("commits", &ReceiveOptions { max: 2, ..Default::default() }).await.unwrap();
    queues.fail("commits", &received[0].receipt, "broken", 0).await.unwrap();
    let busy = LocalQueues::open(&folder.0, clock.clone(), &[]).unwrap_err();
    assert!(busy.to_string().contains("in use by another process"), "{busy}");
    drop(queues);
    let queues = LocalQueues::open(&folder.0, clock.clone(), &[]).unwrap();
    assert_eq!(queues.settings("commits").await.unwrap().max_receives, Some(1));
    assert_eq!(queues.counts("commits").await.unwrap(), QueueCounts { visible: 1, in_flight: 1, delayed: 0, dead: 1 });
    assert_eq!(queues.dead_letters("commits", None, 9).await.unwrap()[0].last_error.as_deref(), Some("broken"));
    assert!(queues.delete("commits", &received[1].receipt).await.unwrap());
    drop(queues);
    let database = rusqlite::Connection::open(folder.0.join("queues.sqlite")).unwrap();
    database.execute("UPDATE meta SET value = '2'", []).unwrap();
    let newer = LocalQueues::open(&folder.0, clock.clone(), &[]).unwrap_err();
    assert!(matches!(newer, OpenError::SchemaVersion { .. }), "{newer}");
    database.execute("DROP TABLE meta", []).unwrap();
    assert!(matches!(LocalQueues::open(&folder.0, clock, &[]).unwrap_err(), OpenError::Foreign { .. }));
}

struct Wire {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Wire {
    async fn start(queues: LocalQueues) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, queues, "123456789012".into(), "eu-west-1".into(), shutdown));
        Self { address, stop, task }
    }

    async fn raw(&self, target: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: {target}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// The status and the body of an answer.
    async fn call(&self, operation: &str, input: Value) -> (u16, Value) {
        let answer = self.raw(&format!("AmazonSQS.{operation}"), &input.to_string()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}/123456789012/commits", self.address)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_protocol_sends_receives_and_deletes() {
    let f = fixture();
    let wire = Wire::start(f.queues.clone()).await;
    let url = wire.url();
    let (_, listed) = wire.call("ListQueues", json!({ "QueueNamePrefix": "c" })).await;
    assert_eq!(listed, json!({ "QueueUrls": [url] }));
    assert_eq!(wire.call("GetQueueUrl", json!({ "QueueName": "commits" })).await, (200, json!({ "QueueUrl": url })));
    let attributes = json!({ "kind": { "DataType": "String", "StringValue": "test" } });
    let send =
        json!({ "QueueUrl": url, "MessageBody": "This is a test", "MessageAttributes": attributes, "Unknown": 1 });
    let (status, sent) = wire.call("SendMessage", send).await;
    assert_eq!((status, &sent["MD5OfMessageBody"]), (200, &json!("ce114e4501d2f4e2dcea3e17b546f339")));
    let receive =
        json!({ "QueueUrl": url, "MessageAttributeNames": ["All"], "AttributeNames": ["All"], "WaitTimeSeconds": 1 });
    let (_, received) = wire.call("ReceiveMessage", receive.clone()).await;
    let message = &received["Messages"][0];
    assert_eq!(message["MD5OfBody"], sent["MD5OfMessageBody"]);
    assert_eq!(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
    assert_eq!(message["MessageAttributes"], attributes);
    assert_eq!(message["Attributes"]["ApproximateReceiveCount"], "1");
    assert_eq!(message["Attributes"]["SentTimestamp"], NOW_MS.to_string());
    let asked = json!({ "QueueUrl": url, "AttributeNames": ["All"] });
    let (_, queue) = wire.call("GetQueueAttributes", asked).await;
    assert_eq!(queue["Attributes"]["ApproximateNumberOfMessagesNotVisible"], "1");
    assert_eq!(queue["Attributes"]["QueueArn"], "arn:aws:sqs:eu-west-1:123456789012:commits");
    let handle = message["ReceiptHandle"].clone();
    let hide = json!({ "QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0 });
    assert_eq!(wire.call("ChangeMessageVisibility", hide).await, (200, json!({})));
    let (_, again) = wire.call("ReceiveMessage", receive.clone()).await;
    let delete = json!({ "QueueUrl": url, "ReceiptHandle": again["Messages"][0]["ReceiptHandle"] });
    assert_eq!(wire.call("DeleteMessage", delete).await, (200, json!({})));
    assert_eq!(wire.call("ReceiveMessage", json!({ "QueueUrl": url })).await, (200, json!({})));
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_answer_for_each_entry() {
    let wire = Wire::start(fixture().queues).await;
    let url = wire.url();
    let send = |entries: Value| wire.call("SendMessageBatch", json!({ "QueueUrl": url, "Entries": entries }));
    let entries = json!([{ "Id": "a", "MessageBody": "1" }, { "Id": "b", "MessageBody": "\u{1}" }]);
    let (_, sent) = send(entries).await;
    assert_eq!(sent["Successful"][0]["Id"], "a");
    assert_eq!((&sent["Failed"][0]["Id"], &sent["Failed"][0]["Code"]), (&json!("b"), &json!("InvalidMessageContents")));
    for (entries, kind) in [
        (json!([]), "EmptyBatchRequest"),
        (json!([{ "Id": "a", "MessageBody": "1" }, { "Id": "a", "MessageBody": "1" }]), "BatchEntryIdsNotDistinct"),
        ((0..11).map(|n| json!({ "Id": n.to_string(), "MessageBody": "1" })).collect(), "TooManyEntriesInBatchRequest"),
        (json!([{ "Id": "a", "MessageBody": "x".repeat(MESSAGE_MAX_BYTES + 1) }]), "BatchRequestTooLong"),
    ] {
        assert_eq!(send(entries).await.1["__type"], format!("com.amazonaws.sqs#{kind}"));
    }
    let (_, received) = wire.call("ReceiveMessage", json!({ "QueueUrl": url, "MaxNumberOfMessages": 10 })).await;
    let handle = &received["Messages"][0]["ReceiptHandle"];
    let delete = json!({ "QueueUrl": url, "Entries": [{ "Id": "x", "ReceiptHandle": handle }] });
    assert_eq!(wire.call("DeleteMessageBatch", delete).await, (200, json!({ "Successful": [{ "Id": "x" }] })));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_those_that_sdks_read() {
    let wire = Wire::start(fixture().queues).await;
    let url = wire.url();
    let cases = [
        ("SendMessage", json!({ "QueueUrl": "http://x/1/no", "MessageBody": "x" }), "QueueDoesNotExist"),
        ("GetQueueUrl", json!({ "QueueName": "no" }), "QueueDoesNotExist"),
        ("SendMessage", json!({ "QueueUrl": url, "MessageBody": "x", "DelaySeconds": 901 }), "InvalidParameterValue"),
        ("SendMessage", json!({ "QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g" }), "UnsupportedOperation"),
        ("ReceiveMessage", json!({ "QueueUrl": url, "MaxNumberOfMessages": 11 }), "InvalidParameterValue"),
        ("GetQueueAttributes", json!({ "QueueUrl": url, "AttributeNames": ["Nope"] }), "InvalidAttributeName"),
        ("CreateQueue", json!({ "QueueName": "new" }), "UnsupportedOperation"),
        ("SendMessage", json!({ "MessageBody": "x" }), "SerializationException"),
    ];
    for (operation, input, kind) in cases {
        let (status, answer) = wire.call(operation, input).await;
        assert_eq!(status, 400);
        assert!(answer["__type"].as_str().unwrap().ends_with(&format!("#{kind}")), "{operation}: {answer}");
    }
    let hide = json!({ "QueueUrl": url, "ReceiptHandle": "none", "VisibilityTimeout": 1 });
    let raw = wire.raw("AmazonSQS.ChangeMessageVisibility", &hide.to_string()).await;
    assert!(raw.contains("x-amzn-query-error: AWS.SimpleQueueService.MessageNotInflight;Sender"), "{raw}");
    assert!(wire.raw("", "Action=SendMessage").await.contains("speaks the JSON protocol"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receiver_does_not_hold_up_the_end() {
    let wire = Wire::start(fixture().queues).await;
    let mut socket = TcpStream::connect(wire.address).await.unwrap();
    let body = json!({ "QueueUrl": wire.url(), "WaitTimeSeconds": 20 }).to_string();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n";
    socket.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    wire.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), wire.task).await.unwrap().unwrap().unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[test]
fn attributes_are_hashed_and_chosen_as_sqs_does() {
    let attribute = |data_type: &str, text: &str| MessageAttribute {
        data_type: data_type.into(),
        string_value: Some(text.into()),
        binary_value: None,
    };
    let binary =
        MessageAttribute { data_type: "Binary.gz".into(), string_value: None, binary_value: Some("AQI=".into()) };
    let attributes = MessageAttributes(
        [
            ("b.1".to_owned(), attribute("Number", "1")),
            ("a".to_owned(), attribute("String", "x")),
            ("c".to_owned(), binary),
        ]
        .into(),
    );
    attributes.check().unwrap();
    let timestamp = MessageAttributes([("timestamp".to_owned(), attribute("Number", "1493147359900"))].into());
    assert_eq!(timestamp.md5().as_deref(), Some("235c5c510d26fb653d073faed50ae77c"));
    let named = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        attributes.named(&names).0.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(named(&["b.*", "c"]), ["b.1", "c"]);
    assert_eq!(named(&["All"]), ["a", "b.1", "c"]);
    assert_eq!(named(&[".*"]), ["a", "b.1", "c"]);
    assert!(named(&[]).is_empty());
    let wrong = MessageAttributes([("a".to_owned(), attribute("Date", "x"))].into());
    assert!(wrong.check().is_err());
    let empty = MessageAttributes([("a".to_owned(), attribute("String", ""))].into());
    assert!(empty.check().is_err());
}
