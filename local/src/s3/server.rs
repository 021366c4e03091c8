use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use lakewarden_gateway::serve_s3;
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::S3ServiceBuilder;
use s3s::{S3Result, s3_error};
use tokio::net::TcpListener;

use super::Store;
use super::service::Service;

/// How long requests under way may take to end after the shutdown signal.
pub const DRAIN_MS: u64 = 10_000;

/// The one key pair the server knows.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

#[async_trait]
impl S3Auth for Credentials {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access_key {
            return Ok(SecretKey::from(self.secret_key.as_str()));
        }
        Err(s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records."))
    }
}

/// Serves S3 on `listener` until `shutdown` resolves, then lets requests under way end, up to [`DRAIN_MS`]; what still
/// runs then is cut off.
///
/// Paths are `/bucket/key` (path style). Requests must be signed (version 4, headers or presigned) with `credentials`;
/// others answer `AccessDenied`, another access key `InvalidAccessKeyId`, a wrong signature `SignatureDoesNotMatch`. Returns when every connection is closed.
pub async fn serve(listener: TcpListener, store: Store, credentials: Credentials, shutdown: impl Future<Output = ()>) {
    serve_with_drain(listener, store, credentials, shutdown, Duration::from_millis(DRAIN_MS)).await;
}

pub(super) async fn serve_with_drain(
    listener: TcpListener,
    store: Store,
    credentials: Credentials,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let mut builder = S3ServiceBuilder::new(Service { store });
    builder.set_auth(credentials);
    let service = builder.build();
    serve_s3(listener, service, "local S3", drain, shutdown).await;
}
