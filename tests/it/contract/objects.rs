//! `Objects`: in memory and on S3.

mod keys;
mod listings;
mod reads;
mod requests;
mod versions;
mod writes;

use std::sync::Arc;

use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use bytes::Bytes;
use kit::servers::{self, Server};
use lakewarden_aws::{Clients, S3Objects};
use lakewarden_core::store::memory::{ManualClock, MemoryObjects, MemoryWorld};
use lakewarden_core::store::{
    ETag, GetOptions, ObjectError, ObjectKey, ObjectUsage, Objects, PutCondition, PutOptions, Versioning,
};

pub(crate) const NOW_MS: i64 = 1_700_000_000_999;

/// An object store with the empty buckets `lake` and `pond`, and the server behind it if there is one.
pub(crate) struct Bench {
    pub(crate) objects: Arc<dyn Objects>,
    clock: Arc<ManualClock>,
    versioned: Versioned,
    _server: Option<Server>,
}

/// How a bench's buckets are told to keep versions, which the product itself never does.
enum Versioned {
    Memory(Arc<MemoryObjects>),
    S3(aws_sdk_s3::Client),
}

impl Bench {
    async fn set_versioning(&self, bucket: &str, versioning: Versioning) {
        match &self.versioned {
            Versioned::Memory(objects) => objects.set_versioning(bucket, versioning),
            Versioned::S3(client) => {
                let status = match versioning {
                    Versioning::Enabled => BucketVersioningStatus::Enabled,
                    _ => BucketVersioningStatus::Suspended,
                };
                let configuration = VersioningConfiguration::builder().status(status).build();
                let request = client.put_bucket_versioning().bucket(bucket).versioning_configuration(configuration);
                request.send().await.unwrap();
            }
        }
    }

    async fn put(&self, key: &str, body: &str) -> ETag {
        self.objects.put(&at(key), bytes(body), &PutOptions::default()).await.unwrap()
    }

    async fn body(&self, key: &str) -> Option<String> {
        match self.objects.get(&at(key), &GetOptions::default()).await {
            Ok(object) => Some(String::from_utf8(object.bytes.to_vec()).unwrap()),
            Err(ObjectError::NotFound(missing)) if missing == at(key) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// What `objects` was asked since the last call.
    fn used_since(&self, earlier: &mut ObjectUsage) -> ObjectUsage {
        let now = self.objects.object_usage();
        let used = now.since(earlier);
        *earlier = now;
        used
    }
}

pub(crate) async fn memory() -> Bench {
    let world = MemoryWorld::new(NOW_MS);
    let versioned = Versioned::Memory(world.objects.clone());
    Bench { objects: world.objects, clock: world.clock, versioned, _server: None }
}

pub(crate) async fn s3() -> Bench {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let server = servers::s3(clock.clone());
    let clients = Clients::connect(&servers::connection(None, Some(server.url())));
    for bucket in ["lake", "pond"] {
        clients.s3.create_bucket().bucket(bucket).send().await.unwrap();
    }
    let versioned = Versioned::S3(clients.s3.clone());
    Bench { objects: Arc::new(S3Objects::new(clients.s3)), clock, versioned, _server: Some(server) }
}

fn at(key: &str) -> ObjectKey {
    ObjectKey::new("lake", key)
}

fn bytes(body: &str) -> Bytes {
    Bytes::copy_from_slice(body.as_bytes())
}

fn only_if(condition: PutCondition) -> PutOptions {
    PutOptions { condition, ..PutOptions::default() }
}

fn stale() -> ETag {
    ETag("00000000000000000000000000000000".to_owned())
}
