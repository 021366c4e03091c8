//! An app on the embedded servers.

use std::sync::Arc;

use lakewarden_aws::{AwsParts, Clients, app};
use lakewarden_core::ports::{App, Settings};
use lakewarden_core::store::RandomIds;
use lakewarden_core::store::memory::{Faults, ManualClock, MemoryQueue};

use crate::servers::{self, Server};

/// The AWS adapters on embedded servers: DynamoDB with the four tables, S3 with some buckets. Time is the test's, also
/// behind S3's LastModified; queues are drained by hand. The servers end when this is dropped.
#[derive(Debug)]
pub struct EmbeddedWorld {
    pub app: App,
    pub clients: Clients,
    pub queue: Arc<MemoryQueue>,
    pub clock: Arc<ManualClock>,
    pub dynamodb: Server,
    pub s3: Server,
}

impl EmbeddedWorld {
    pub async fn start(now_ms: i64, buckets: &[&str]) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let (dynamodb, s3) = (servers::dynamodb(), servers::s3(clock.clone()));
        let clients = Clients::connect(&servers::connection(Some(dynamodb.url()), Some(s3.url())));
        for bucket in buckets {
            clients.s3.create_bucket().bucket(*bucket).send().await.unwrap();
        }
        let queue = Arc::new(MemoryQueue::new(Arc::new(Faults::default())));
        let parts = AwsParts {
            dynamodb: clients.dynamodb.clone(),
            s3: clients.s3.clone(),
            tables: servers::tables(&clients).await,
            queue: queue.clone(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
        };
        Self { app: app(parts, Settings::default()), clients, queue, clock, dynamodb, s3 }
    }
}
