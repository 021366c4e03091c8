use async_trait::async_trait;
use aws_sdk_sqs::Client;
use lakewarden_core::store::{Queue, QueueName, StoreError, StoreErrorKind, check_message};

use crate::errors::store_error;
use crate::settings::QueueUrls;

/// [`Queue`] on SQS. A queue without a URL in the settings answers `Missing` and names the setting.
///
/// The SDK repeats a send whose answer was lost, so a message may arrive twice; delivery is at least once anyway.
#[derive(Clone, Debug)]
pub struct SqsQueue {
    client: Client,
    urls: QueueUrls,
}

impl SqsQueue {
    pub fn new(client: Client, urls: QueueUrls) -> Self {
        Self { client, urls }
    }
}

#[async_trait]
impl Queue for SqsQueue {
    async fn send(&self, queue: QueueName, body: String, delay_ms: u64) -> Result<(), StoreError> {
        let operation = format!("send {}", queue.as_str());
        check_message(&body, delay_ms, &operation)?;
        let url = self.urls.get(queue).ok_or_else(|| {
            let message = format!("the queue has no URL: set {}", QueueUrls::variable(queue));
            StoreError::new(StoreErrorKind::Missing, &operation, message)
        })?;
        let delay_seconds = i32::try_from(delay_ms.div_ceil(1000)).unwrap_or(i32::MAX);
        self.client
            .send_message()
            .queue_url(url)
            .message_body(body)
            .delay_seconds(delay_seconds)
            .send()
            .await
            .map_err(|error| store_error(&operation, url, &error))?;
        Ok(())
    }
}
