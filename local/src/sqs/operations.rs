use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::message_attributes::md5_of;
use super::protocol::*;
use super::queues::{Outgoing, Receipt, ReceiveOptions, Received};
use super::store::{LocalQueues, QueueRow, need_queue};
use super::{BATCH_MAX, MESSAGE_MAX_BYTES, QueueCounts};

/// SQS shows an opaque id of whoever sent; there is one account here.
const SENDER: &str = "LAKEWARDEN";
const LIST_QUEUES_MAX: i64 = 1000;

/// What an operation needs beside its input.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub queues: &'a LocalQueues,
    /// `http://host:port`
    pub endpoint: String,
    pub account_id: &'a str,
    pub region: &'a str,
}

/// Runs an operation by its name (`SendMessage`).
pub(super) async fn run(context: &Context<'_>, operation: &str, body: &[u8]) -> Result<Value, SqsError> {
    match operation {
        "SendMessage" => context.send_message(parse(body)?).await,
        "SendMessageBatch" => context.send_message_batch(parse(body)?).await,
        "ReceiveMessage" => context.receive_message(parse(body)?).await,
        "DeleteMessage" => context.delete_message(parse(body)?).await,
        "DeleteMessageBatch" => context.delete_message_batch(parse(body)?).await,
        "ChangeMessageVisibility" => context.change_message_visibility(parse(body)?).await,
        "GetQueueUrl" => context.get_queue_url(parse(body)?).await,
        "ListQueues" => context.list_queues(parse(body)?).await,
        "GetQueueAttributes" => context.get_queue_attributes(parse(body)?).await,
        other => Err(SqsError::unsupported(format!("{other} is not supported by the local SQS"))),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(if body.is_empty() { b"{}" } else { body })
        .map_err(|error| SqsError::serialization(format!("the request is not understood: {error}")))
}

/// The last segment of the path.
fn queue_of(url: &str) -> Result<&str, SqsError> {
    match url.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(SqsError::invalid_value("QueueUrl does not name a queue")),
    }
}

/// Seconds within bounds, in milliseconds.
fn seconds(what: &str, given: Option<i64>, max: i64) -> Result<Option<u64>, SqsError> {
    match given {
        None => Ok(None),
        Some(given) if (0..=max).contains(&given) => {
            Ok(u64::try_from(given).ok().map(|given| given.saturating_mul(1000)))
        }
        Some(given) => Err(SqsError::invalid_value(format!("{what} must be between 0 and {max} seconds, not {given}"))),
    }
}

fn outgoing(message: MessageBody) -> Result<Outgoing, SqsError> {
    if message.message_group_id.is_some() || message.message_deduplication_id.is_some() {
        return Err(SqsError::unsupported("message groups and deduplication are not supported by the local SQS"));
    }
    if !message.message_system_attributes.is_empty() {
        return Err(SqsError::unsupported("MessageSystemAttributes are not supported by the local SQS"));
    }
    message.message_attributes.check().map_err(SqsError::invalid_value)?;
    let delay_ms = seconds("DelaySeconds", message.delay_seconds, 900)?;
    Ok(Outgoing { body: message.message_body, attributes: message.message_attributes, delay_ms })
}

fn check_batch<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Result<(), SqsError> {
    let count = ids.len();
    if count == 0 {
        return Err(SqsError::batch(BatchFault::Empty));
    }
    if count > BATCH_MAX {
        return Err(SqsError::batch(BatchFault::TooMany));
    }
    let distinct: BTreeSet<&str> = ids.collect();
    if distinct.len() < count { Err(SqsError::batch(BatchFault::IdsNotDistinct)) } else { Ok(()) }
}

/// The answer of a batch: an entry stands in one of the two lists.
fn batch_answer(successful: Vec<Value>, failed: Vec<FailedEntry>) -> Value {
    let mut answer = json!({ "Successful": successful });
    if let (false, Some(members)) = (failed.is_empty(), answer.as_object_mut()) {
        members.insert("Failed".to_owned(), json!(failed));
    }
    answer
}

impl Context<'_> {
    fn url_of(&self, queue: &str) -> String {
        format!("{}/{}/{queue}", self.endpoint, self.account_id)
    }

    async fn send(&self, queue: &str, id: Option<String>, message: MessageBody) -> Result<Value, SqsError> {
        let message = outgoing(message)?;
        let md5_of_message_body = md5_of(&message.body);
        let md5_of_message_attributes = message.attributes.md5();
        let sent = self.queues.send(queue, message).await?;
        let message_id = sent.message_id;
        Ok(json!(SentMessage { id, message_id, md5_of_message_body, md5_of_message_attributes }))
    }

    async fn send_message(&self, input: SendMessage) -> Result<Value, SqsError> {
        self.send(queue_of(&input.queue_url)?, None, input.message).await
    }

    async fn send_message_batch(&self, input: Batch<SendEntry>) -> Result<Value, SqsError> {
        let queue = queue_of(&input.queue_url)?;
        check_batch(input.entries.iter().map(|entry| entry.id.as_str()))?;
        let size_bytes: usize = input.entries.iter().map(|entry| entry.message.message_body.len()).sum();
        if size_bytes > MESSAGE_MAX_BYTES {
            return Err(SqsError::batch(BatchFault::TooLong));
        }
        self.need(queue).await?;
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in input.entries {
            match self.send(queue, Some(entry.id.clone()), entry.message).await {
                Ok(sent) => successful.push(sent),
                Err(error) => failed.push(FailedEntry::new(entry.id, &error)),
            }
        }
        Ok(batch_answer(successful, failed))
    }

    async fn receive_message(&self, input: ReceiveMessage) -> Result<Value, SqsError> {
        let queue = queue_of(&input.queue_url)?;
        let max = match input.max_number_of_messages {
            None => 1,
            Some(given) => {
                usize::try_from(given).ok().filter(|max| (1..=BATCH_MAX).contains(max)).ok_or_else(|| {
                    SqsError::invalid_value(format!("MaxNumberOfMessages must be between 1 and 10, not {given}"))
                })?
            }
        };
        let options = ReceiveOptions {
            max,
            visibility_timeout_ms: seconds("VisibilityTimeout", input.visibility_timeout, 43_200)?,
            wait_ms: seconds("WaitTimeSeconds", input.wait_time_seconds, 20)?.unwrap_or(0),
        };
        let received = self.queues.receive(queue, &options).await?;
        let mut names = input.attribute_names;
        names.extend(input.message_system_attribute_names);
        let messages: Vec<ReceivedMessage> =
            received.into_iter().map(|one| to_wire(one, &names, &input.message_attribute_names)).collect();
        Ok(if messages.is_empty() { json!({}) } else { json!({ "Messages": messages }) })
    }

    async fn delete_message(&self, input: DeleteMessage) -> Result<Value, SqsError> {
        self.queues.delete(queue_of(&input.queue_url)?, &Receipt(input.receipt_handle)).await?;
        Ok(json!({}))
    }

    async fn delete_message_batch(&self, input: Batch<DeleteEntry>) -> Result<Value, SqsError> {
        let queue = queue_of(&input.queue_url)?;
        check_batch(input.entries.iter().map(|entry| entry.id.as_str()))?;
        self.need(queue).await?;
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in input.entries {
            match self.queues.delete(queue, &Receipt(entry.receipt_handle)).await.map_err(SqsError::from) {
                Ok(_) => successful.push(json!({ "Id": entry.id })),
                Err(error) => failed.push(FailedEntry::new(entry.id, &error)),
            }
        }
        Ok(batch_answer(successful, failed))
    }

    async fn change_message_visibility(&self, input: ChangeMessageVisibility) -> Result<Value, SqsError> {
        let timeout_ms = seconds("VisibilityTimeout", Some(input.visibility_timeout), 43_200)?.unwrap_or(0);
        let receipt = Receipt(input.receipt_handle);
        self.queues.change_visibility(queue_of(&input.queue_url)?, &receipt, timeout_ms).await?;
        Ok(json!({}))
    }

    async fn need(&self, queue: &str) -> Result<QueueRow, SqsError> {
        let name = queue.to_owned();
        Ok(self.queues.transact(move |tx, _| need_queue(tx, &name)).await?)
    }

    async fn get_queue_url(&self, input: GetQueueUrl) -> Result<Value, SqsError> {
        self.need(&input.queue_name).await?;
        Ok(json!({ "QueueUrl": self.url_of(&input.queue_name) }))
    }

    async fn list_queues(&self, input: ListQueues) -> Result<Value, SqsError> {
        if input.max_results.is_some_and(|max| !(1..=LIST_QUEUES_MAX).contains(&max)) || input.next_token.is_some() {
            return Err(SqsError::invalid_value("MaxResults must be between 1 and 1000; there is one page"));
        }
        let names = self.queues.queue_names().await?;
        let urls: Vec<String> = names
            .iter()
            .filter(|name| name.starts_with(&input.queue_name_prefix))
            .map(|name| self.url_of(name))
            .collect();
        Ok(if urls.is_empty() { json!({}) } else { json!({ "QueueUrls": urls }) })
    }

    async fn get_queue_attributes(&self, input: GetQueueAttributes) -> Result<Value, SqsError> {
        let queue = queue_of(&input.queue_url)?;
        let row = self.need(queue).await?;
        let counts = self.queues.counts(queue).await?;
        let arn = format!("arn:aws:sqs:{}:{}:{queue}", self.region, self.account_id);
        let all = queue_attributes(&row, &counts, arn);
        if let Some(unknown) =
            input.attribute_names.iter().find(|name| *name != "All" && !all.contains_key(name.as_str()))
        {
            return Err(SqsError::invalid_attribute_name(unknown));
        }
        let is_asked = |name: &str| input.attribute_names.iter().any(|asked| asked == "All" || asked == name);
        let asked: BTreeMap<_, _> = all.into_iter().filter(|(name, _)| is_asked(name)).collect();
        Ok(if asked.is_empty() { json!({}) } else { json!({ "Attributes": asked }) })
    }
}

fn queue_attributes(row: &QueueRow, counts: &QueueCounts, arn: String) -> BTreeMap<&'static str, String> {
    let created = (row.created_ms / 1000).to_string();
    BTreeMap::from([
        ("ApproximateNumberOfMessages", counts.visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", counts.in_flight.to_string()),
        ("ApproximateNumberOfMessagesDelayed", counts.delayed.to_string()),
        ("VisibilityTimeout", (row.settings.visibility_timeout_ms / 1000).to_string()),
        ("DelaySeconds", (row.settings.delay_ms / 1000).to_string()),
        ("MaximumMessageSize", MESSAGE_MAX_BYTES.to_string()),
        ("ReceiveMessageWaitTimeSeconds", "0".to_owned()),
        ("CreatedTimestamp", created.clone()),
        ("LastModifiedTimestamp", created),
        ("QueueArn", arn),
    ])
}

fn to_wire(received: Received, system_names: &[String], attribute_names: &[String]) -> ReceivedMessage {
    let all = [
        ("SenderId", SENDER.to_owned()),
        ("SentTimestamp", received.sent_ms.to_string()),
        ("ApproximateReceiveCount", received.receives.to_string()),
        ("ApproximateFirstReceiveTimestamp", received.first_received_ms.to_string()),
    ];
    let is_asked = |name: &str| system_names.iter().any(|asked| asked == "All" || asked == name);
    let attributes = received.attributes.named(attribute_names);
    ReceivedMessage {
        message_id: received.message_id,
        receipt_handle: received.receipt.0,
        md5_of_body: md5_of(&received.body),
        body: received.body,
        attributes: all.into_iter().filter(|(name, _)| is_asked(name)).collect(),
        md5_of_message_attributes: attributes.md5(),
        message_attributes: (!attributes.0.is_empty()).then_some(attributes),
    }
}
