use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{Faults, lock};
use crate::store::{Queue, QueueName, StoreError, check_message};

/// Queues that tests drain by hand.
#[derive(Debug)]
pub struct MemoryQueue {
    messages: Mutex<VecDeque<(QueueName, String)>>,
    faults: Arc<Faults>,
}

impl MemoryQueue {
    pub fn new(faults: Arc<Faults>) -> Self {
        Self { messages: Mutex::default(), faults }
    }

    /// The oldest message of a queue, removed from it.
    pub fn take(&self, queue: QueueName) -> Option<String> {
        let mut messages = lock(&self.messages);
        let index = messages.iter().position(|(name, _)| *name == queue)?;
        messages.remove(index).map(|(_, body)| body)
    }

    pub fn len(&self, queue: QueueName) -> usize {
        lock(&self.messages).iter().filter(|(name, _)| *name == queue).count()
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn send(&self, queue: QueueName, body: String, delay_ms: u64) -> Result<(), StoreError> {
        let operation = format!("send {}", queue.as_str());
        let lost = self.faults.enter(&operation)?;
        check_message(&body, delay_ms, &operation)?;
        lock(&self.messages).push_back((queue, body));
        lost.map_or(Ok(()), Err)
    }
}
