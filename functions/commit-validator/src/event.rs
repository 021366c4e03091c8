//! The events that bring staged commits and other changes of logs: S3 notifications, EventBridge events, and SQS batches
//! of either; and the schedule's, which brings housekeeping.

use lakewarden_core::commit::audit::Logged;
use lakewarden_core::commit::door::{Arrival, RECEIVES_MAX};
use lakewarden_core::commit::run::Staged;
use lakewarden_core::delta::log::StagedKey;
use lakewarden_core::location::Location;
use lakewarden_core::store::{ETag, ObjectKey};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What one record asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    Staged(Arrival),
    /// Staged under an id that is not in lower case: it belongs where that id has its place.
    Misspelled {
        at: ObjectKey,
        staged: Staged,
    },
    /// A version of a log, or a checksum of one, was put.
    Logged(Logged),
    /// What is due from time to time for a table.
    Housekeeping(Location),
    /// The catalog's tables at a location are to follow the log.
    Follow(Location),
    /// What a catalog ratified of a table is to be published.
    Publish(Location),
    /// Not ours: another key, a deletion, a test.
    Ignored,
    Malformed {
        reason: String,
    },
}

/// One message of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub records: Vec<Record>,
    /// If this delivery fails, the message becomes a dead letter.
    pub is_last_delivery: bool,
}

/// An invocation's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Queue(Vec<Message>),
    Direct(Vec<Record>),
    /// The schedule's tick.
    Tick,
}

/// Reads any of the shapes. Nothing in it is trusted to be there.
pub fn read(event: &Value) -> Event {
    let records = event.get("Records").and_then(Value::as_array);
    if event.get("detail-type").and_then(Value::as_str) == Some("Scheduled Event") {
        return Event::Tick;
    }
    match records {
        Some(records) if records.iter().any(is_queued) => Event::Queue(records.iter().map(message).collect()),
        _ => Event::Direct(notification(event)),
    }
}

fn is_queued(record: &Value) -> bool {
    record.get("eventSource").and_then(Value::as_str) == Some("aws:sqs")
}

fn message(record: &Value) -> Message {
    let id = record.get("messageId").and_then(Value::as_str).unwrap_or_default().to_owned();
    let body = record.get("body").and_then(Value::as_str).unwrap_or_default();
    let records = match serde_json::from_str::<Value>(body) {
        Ok(body) => notification(&body),
        Err(error) => vec![malformed(format!("the message's body is not JSON: {error}"))],
    };
    let receives = record.pointer("/attributes/ApproximateReceiveCount").and_then(Value::as_str);
    let is_last_delivery =
        receives.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count >= RECEIVES_MAX);
    Message { id, records, is_last_delivery }
}

/// An S3 notification or an EventBridge event.
fn notification(event: &Value) -> Vec<Record> {
    if event.get("Event").and_then(Value::as_str) == Some("s3:TestEvent") {
        return vec![Record::Ignored];
    }
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        return records.iter().map(s3_record).collect();
    }
    let of_table: Option<fn(Location) -> Record> = match event.get("kind").and_then(Value::as_str) {
        Some("housekeeping") => Some(Record::Housekeeping),
        Some("follow") => Some(Record::Follow),
        Some("publish") => Some(Record::Publish),
        _ => None,
    };
    if let Some(of_table) = of_table {
        let location = event.get("location").and_then(Value::as_str).unwrap_or_default();
        return vec![match Location::parse(location) {
            Ok(root) => of_table(root),
            Err(error) => malformed(error.to_string()),
        }];
    }
    if event.get("detail").is_some() {
        return vec![bridge_record(event)];
    }
    vec![malformed("neither an S3 notification nor an EventBridge event".to_owned())]
}

fn malformed(reason: String) -> Record {
    Record::Malformed { reason }
}

/// Keys are form-encoded here: `+` is a blank, the rest is percent-encoded.
fn s3_record(record: &Value) -> Record {
    let name = record.get("eventName").and_then(Value::as_str).unwrap_or_default();
    if !name.trim_start_matches("s3:").starts_with("ObjectCreated:") {
        return Record::Ignored;
    }
    let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str);
    let (Some(bucket), Some(key)) = (text("/s3/bucket/name"), text("/s3/object/key")) else {
        return malformed("the record names no bucket or no key".to_owned());
    };
    let Ok(key) = percent_decode_str(&key.replace('+', " ")).decode_utf8().map(String::from) else {
        return malformed(format!("the key `{key}` does not decode to UTF-8"));
    };
    let time = text("/eventTime").unwrap_or_default();
    arrival(ObjectKey::new(bucket, key), text("/s3/object/eTag"), time, 0)
}

/// Keys are literal here.
fn bridge_record(event: &Value) -> Record {
    if event.get("detail-type").and_then(Value::as_str) != Some("Object Created") {
        return Record::Ignored;
    }
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let (Some(bucket), Some(key)) = (text("/detail/bucket/name"), text("/detail/object/key")) else {
        return malformed("the event names no bucket or no key".to_owned());
    };
    let continuations = event.pointer("/detail/continuations").and_then(Value::as_u64);
    let continuations = u32::try_from(continuations.unwrap_or_default()).unwrap_or(u32::MAX);
    let time = text("/time").unwrap_or_default();
    arrival(ObjectKey::new(bucket, key), text("/detail/object/etag"), time, continuations)
}

fn arrival(at: ObjectKey, etag: Option<&str>, time: &str, continuations: u32) -> Record {
    let etag = etag.map(|etag| ETag(etag.trim_matches('"').to_owned())).filter(|etag| !etag.0.is_empty());
    match StagedKey::parse(&at) {
        Some(key) => {
            let arrival = Arrival::new(Staged { key, etag }, time.to_owned());
            Record::Staged(Arrival { continuations, ..arrival })
        }
        None => match StagedKey::parse_misspelled(&at) {
            Some(key) => Record::Misspelled { at, staged: Staged { key, etag } },
            None => Logged::parse(&at, etag).map_or(Record::Ignored, Record::Logged),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str =
        "wh/a b%+/_delta_log/_staged_commits/00000000000000000003.80a083e8-7026-4e79-81be-64bd76c43a11.json";

    fn s3(name: &str, key: &str) -> Value {
        json!({"eventSource": "aws:s3", "eventName": name, "eventTime": "2026-01-01T00:00:00.000Z",
            "s3": {"bucket": {"name": "lake"}, "object": {"key": key, "size": 1, "eTag": "abc"}}})
    }

    fn bridge(kind: &str, key: &str) -> Value {
        json!({"source": "aws.s3", "detail-type": kind, "time": "2026-01-01T00:00:00Z",
            "detail": {"bucket": {"name": "lake"}, "object": {"key": key, "etag": "abc"}}})
    }

    fn keys(records: &[Record]) -> Vec<String> {
        records
            .iter()
            .map(|record| match record {
                Record::Staged(arrival) => arrival.staged.key.key().key,
                Record::Misspelled { staged, .. } => format!("misspelled {}", staged.key.id),
                Record::Logged(logged) => format!("logged {}", logged.version),
                Record::Housekeeping(root) => format!("housekeeping {root}"),
                Record::Follow(root) => format!("follow {root}"),
                Record::Publish(root) => format!("publish {root}"),
                Record::Ignored => "ignored".to_owned(),
                Record::Malformed { .. } => "malformed".to_owned(),
            })
            .collect()
    }

    #[test]
    fn keys_are_decoded_exactly_once_where_they_are_encoded() {
        let encoded = KEY.replace('%', "%25").replace('+', "%2B").replace(' ', "+");
        let Event::Direct(records) = read(&json!({"Records": [s3("ObjectCreated:Put", &encoded)]})) else { panic!() };
        assert_eq!(keys(&records), [KEY]);
        let Event::Direct(records) = read(&bridge("Object Created", KEY)) else { panic!() };
        assert_eq!(keys(&records), [KEY]);
        let Record::Staged(arrival) = &records[0] else { panic!() };
        assert_eq!(arrival.staged.etag, Some(ETag("abc".into())));
    }

    #[test]
    fn what_is_not_ours_is_ignored_and_rubbish_is_named() {
        let plain = KEY.replace("a b%+", "t");
        for (event, expected) in [
            (json!({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}), "ignored"),
            (json!({"Records": [s3("ObjectRemoved:Delete", &plain)]}), "ignored"),
            (json!({"Records": [s3("ObjectCreated:Put", "wh/t/_delta_log/00000000000000000001.json")]}), "logged 1"),
            (json!({"Records": [s3("ObjectCreated:Put", "wh/t/_delta_log/00000000000000000001.crc")]}), "logged 1"),
            (json!({"Records": [s3("ObjectCreated:Put", "wh/t/_delta_log/_last_checkpoint")]}), "ignored"),
            (json!({"schema_version": 1, "kind": "housekeeping", "location": "s3://b/t"}), "housekeeping s3://b/t"),
            (json!({"schema_version": 1, "kind": "housekeeping", "location": "/t"}), "malformed"),
            (json!({"schema_version": 1, "kind": "follow", "location": "s3://b/t"}), "follow s3://b/t"),
            (json!({"Records": [s3("ObjectCreated:Put", "%ff")]}), "malformed"),
            (json!({"Records": [{"eventName": "ObjectCreated:Put"}]}), "malformed"),
            (
                json!({"Records": [s3("ObjectCreated:Put", &plain.to_uppercase().replace("T/_DELTA_LOG/_STAGED_COMMITS", "t/_delta_log/_staged_commits").replace(".JSON", ".json").replace("WH", "wh"))]}),
                "misspelled 80a083e8-7026-4e79-81be-64bd76c43a11",
            ),
            (bridge("Object Deleted", &plain), "ignored"),
            (json!({"detail-type": "Object Created", "detail": {}}), "malformed"),
            (json!({}), "malformed"),
            (json!([1]), "malformed"),
        ] {
            let Event::Direct(records) = read(&event) else { panic!("{event}") };
            assert_eq!(keys(&records), [expected], "{event}");
        }
    }

    #[test]
    fn a_queue_carries_both_shapes() {
        let body = |inner: Value| inner.to_string();
        let plain = KEY.replace("a b%+", "t");
        let event = json!({"Records": [
            {"messageId": "1", "eventSource": "aws:sqs", "body": body(json!({"Records": [s3("ObjectCreated:Put", &plain), s3("ObjectCreated:Put", "x")]}))},
            {"messageId": "2", "eventSource": "aws:sqs", "body": body(bridge("Object Created", &plain))},
            {"messageId": "3", "eventSource": "aws:sqs", "body": "no json"},
        ]});
        let Event::Queue(messages) = read(&event) else { panic!() };
        let found: Vec<Vec<String>> = messages.iter().map(|message| keys(&message.records)).collect();
        assert_eq!(found, [vec![plain.clone(), "ignored".to_owned()], vec![plain], vec!["malformed".to_owned()]]);
    }
}
