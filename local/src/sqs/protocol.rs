//! The SQS JSON protocol: shapes of requests and answers, and errors as the SDKs read them.
//!
//! Source: the service model of SQS (protocol awsJson1.0). Members we do not know are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::QueueFailure;
use super::message_attributes::MessageAttributes;

/// An error with its name in the JSON protocol and the older name that SDKs still read from a header.
#[derive(Debug)]
pub(super) struct SqsError {
    pub status: u16,
    /// Shape name, with its namespace.
    pub kind: String,
    /// `x-amzn-query-error`, without the fault.
    pub query_code: &'static str,
    pub message: String,
}

impl SqsError {
    fn sender(name: &str, query_code: &'static str, message: impl Into<String>) -> Self {
        Self { status: 400, kind: format!("com.amazonaws.sqs#{name}"), query_code, message: message.into() }
    }

    pub fn invalid_value(message: impl Into<String>) -> Self {
        Self::sender("InvalidParameterValue", "InvalidParameterValue", message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::sender("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", message)
    }

    pub fn no_queue(name: &str) -> Self {
        Self::sender(
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue",
            format!("The specified queue does not exist: {name}"),
        )
    }

    pub fn invalid_attribute_name(name: &str) -> Self {
        Self::sender("InvalidAttributeName", "InvalidAttributeName", format!("Unknown attribute {name}."))
    }

    pub fn batch(fault: BatchFault) -> Self {
        let (name, query_code, message) = match fault {
            BatchFault::Empty => (
                "EmptyBatchRequest",
                "AWS.SimpleQueueService.EmptyBatchRequest",
                "There should be at least one entry in the request.",
            ),
            BatchFault::TooMany => (
                "TooManyEntriesInBatchRequest",
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
                "Maximum number of entries per request are 10.",
            ),
            BatchFault::IdsNotDistinct => (
                "BatchEntryIdsNotDistinct",
                "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
                "Two or more batch entries in the request have the same Id.",
            ),
            BatchFault::TooLong => (
                "BatchRequestTooLong",
                "AWS.SimpleQueueService.BatchRequestTooLong",
                "Batch requests cannot be longer than 262144 bytes.",
            ),
        };
        Self::sender(name, query_code, message)
    }

    /// The server is stopping; SDKs try again.
    pub fn stopping() -> Self {
        Self {
            status: 503,
            kind: "com.amazonaws.sqs#ServiceUnavailable".to_owned(),
            query_code: "ServiceUnavailable",
            message: "the local SQS is stopping".to_owned(),
        }
    }

    pub fn serialization(message: impl Into<String>) -> Self {
        Self {
            status: 400,
            kind: "com.amazon.coral.service#SerializationException".to_owned(),
            query_code: "MalformedInput",
            message: message.into(),
        }
    }

    pub fn is_sender_fault(&self) -> bool {
        self.status < 500
    }

    /// The name without its namespace.
    pub fn code(&self) -> &str {
        self.kind.rsplit('#').next().unwrap_or_default()
    }

    pub fn body(&self) -> Value {
        json!({ "__type": self.kind, "message": self.message })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchFault {
    Empty,
    TooMany,
    IdsNotDistinct,
    TooLong,
}

impl From<QueueFailure> for SqsError {
    fn from(failure: QueueFailure) -> Self {
        let message = failure.to_string();
        match failure {
            QueueFailure::NoSuchQueue(name) => SqsError::no_queue(&name),
            QueueFailure::TooLarge { .. } | QueueFailure::TooLong { .. } => SqsError::invalid_value(message),
            QueueFailure::InvalidContents => {
                SqsError::sender("InvalidMessageContents", "InvalidMessageContents", message)
            }
            QueueFailure::NotInFlight => {
                SqsError::sender("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", message)
            }
            QueueFailure::Database(_) | QueueFailure::Stored(_) | QueueFailure::Worker(_) => SqsError {
                status: 500,
                kind: "com.amazonaws.sqs#InternalError".to_owned(),
                query_code: "InternalFailure",
                message,
            },
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SendMessage {
    pub queue_url: String,
    #[serde(flatten)]
    pub message: MessageBody,
}

/// What SendMessage and an entry of SendMessageBatch have in common.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MessageBody {
    pub message_body: String,
    pub delay_seconds: Option<i64>,
    #[serde(default)]
    pub message_attributes: MessageAttributes,
    #[serde(default)]
    pub message_system_attributes: BTreeMap<String, Value>,
    pub message_group_id: Option<String>,
    pub message_deduplication_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Batch<E> {
    pub queue_url: String,
    pub entries: Vec<E>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SendEntry {
    pub id: String,
    #[serde(flatten)]
    pub message: MessageBody,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeleteEntry {
    pub id: String,
    pub receipt_handle: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceiveMessage {
    pub queue_url: String,
    pub max_number_of_messages: Option<i64>,
    pub visibility_timeout: Option<i64>,
    pub wait_time_seconds: Option<i64>,
    #[serde(default)]
    pub attribute_names: Vec<String>,
    #[serde(default)]
    pub message_system_attribute_names: Vec<String>,
    #[serde(default)]
    pub message_attribute_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeleteMessage {
    pub queue_url: String,
    pub receipt_handle: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChangeMessageVisibility {
    pub queue_url: String,
    pub receipt_handle: String,
    pub visibility_timeout: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueUrl {
    pub queue_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListQueues {
    #[serde(default)]
    pub queue_name_prefix: String,
    pub max_results: Option<i64>,
    pub next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueAttributes {
    pub queue_url: String,
    #[serde(default)]
    pub attribute_names: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SentMessage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub message_id: String,
    #[serde(rename = "MD5OfMessageBody")]
    pub md5_of_message_body: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceivedMessage {
    pub message_id: String,
    pub receipt_handle: String,
    pub body: String,
    #[serde(rename = "MD5OfBody")]
    pub md5_of_body: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_attributes: Option<MessageAttributes>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FailedEntry {
    pub id: String,
    pub sender_fault: bool,
    pub code: String,
    pub message: String,
}

impl FailedEntry {
    pub fn new(id: String, error: &SqsError) -> Self {
        Self {
            id,
            sender_fault: error.is_sender_fault(),
            code: error.code().to_owned(),
            message: error.message.clone(),
        }
    }
}
