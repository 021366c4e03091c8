//! Through the wire, with the AWS SDK, as clients do.

mod durability;
mod listings;
mod multiparts;
mod objects;
mod refusals;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials as Keys, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use lakewarden_core::store::memory::ManualClock;
use lakewarden_core::store::{Ids, RandomIds};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::server::serve_with_drain;
use super::{Credentials, Store};

pub(super) const BUCKET: &str = "lake";
/// 2026-01-02T03:04:05.678Z
pub(super) const NOW_MS: i64 = 1_767_323_045_678;
pub(super) const NOW_S: i64 = 1_767_323_045;

/// Generous, so that a busy machine fails no test.
const DRAIN: Duration = Duration::from_secs(30);

/// A running server; stopped with `stop`, or with its runtime.
pub(super) struct Server {
    pub store: Store,
    pub clock: Arc<ManualClock>,
    pub address: SocketAddr,
    pub client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = Store::ephemeral(clock.clone()).unwrap();
        let server = Self::serve(store, clock).await;
        server.client.create_bucket().bucket(BUCKET).send().await.unwrap();
        server
    }

    pub async fn serve(store: Store, clock: Arc<ManualClock>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let credentials = Credentials { access_key: "test".into(), secret_key: "testsecret".into() };
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve_with_drain(listener, store.clone(), credentials, shutdown, DRAIN));
        Self { store, clock, address, client: client(address, "test", "testsecret"), stop, task }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    pub async fn put(&self, key: &str, body: impl Into<Vec<u8>>) -> String {
        let put = self.client.put_object().bucket(BUCKET).key(key).body(ByteStream::from(body.into()));
        put.send().await.unwrap().e_tag.unwrap()
    }

    pub async fn get(&self, key: &str) -> Result<Vec<u8>, String> {
        let got = self.client.get_object().bucket(BUCKET).key(key).send().await.map_err(|error| code(&error))?;
        Ok(got.body.collect().await.unwrap().to_vec())
    }
}

pub(super) fn client(address: SocketAddr, access_key: &str, secret_key: &str) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(format!("http://{address}"))
        .credentials_provider(Keys::new(access_key, secret_key, None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(DRAIN).build())
        .force_path_style(true)
        .build();
    Client::from_conf(config)
}

/// `412 PreconditionFailed`; HEAD has no body and so no code.
pub(super) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>) -> String {
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    format!("{status} {}", error.code().unwrap_or("-"))
}

pub(super) async fn refused<T, E: ProvideErrorMetadata>(
    sent: impl Future<Output = Result<T, SdkError<E, aws_sdk_s3::config::http::HttpResponse>>>,
) -> String {
    match sent.await {
        Ok(_) => "accepted".to_owned(),
        Err(error) => code(&error),
    }
}

/// A folder that goes away at the end of a test.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self(std::env::temp_dir().join(format!("lakewarden-test-{}", RandomIds.uuid().simple())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
