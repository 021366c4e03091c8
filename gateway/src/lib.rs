//! An S3 proxy beside writers that know nothing of Lakewarden.
//!
//! Everything passes through, signed anew with the gateway's own credentials, bodies streaming both ways. The one thing
//! that does not is creating `<table>/_delta_log/<20 digits>.json`: the body becomes a proposal *at exactly that version*
//! on the synchronous commit call, and the writer is answered as S3 would answer: 200, or 412 where another commit has
//! the version, so that the writer's own check for conflicts runs. A commit that breaks a rule is answered with 403, a
//! verdict that cannot be had with 503; nothing is ever written in the service's stead.
//!
//! | module | does |
//! |---|---|
//! | `accept`, `patience` | connections of clients, until the end, and how long they are waited for |
//! | `front` | their signatures, which way a request goes |
//! | `names` | which keys are log files, in whatever spelling, and where that is guarded |
//! | `request`, `chunked`, `digests` | requests and their bodies |
//! | `upstream`, `connections`, `sign` | passing on |
//! | `create`, `commits` | creating a log file, and the commit service |
//! | `delete`, `xml` | deletions, one by one and in batches |
//! | `cleanup`, `same`, `published`, `turns` | which log files and checkpoints may go, or be overwritten, and one after the other |
//! | `told` | what people are told |
//!
//! s3s checks the clients' signatures and writes errors. What passes does not go through typed operations (as `s3s-aws`
//! would have it): these drop what they do not know, and the SDK behind them adds what the client did not send.

mod accept;
mod chunked;
mod cleanup;
mod commits;
mod connections;
mod create;
mod delete;
mod digests;
mod front;
mod names;
mod patience;
mod published;
mod request;
mod same;
mod sign;
mod told;
mod turns;
mod upstream;
mod xml;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aws_credential_types::provider::SharedCredentialsProvider;
use http::Response;
use hyper::body::Incoming;
use lakewarden_core::location::LocationError;
use lakewarden_core::store::{Clock, Ids, ObjectKey, RandomIds, ReadObjects};
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result};
use thiserror::Error;

use cleanup::Cleanup;
use commits::Commits;
use connections::Connections;
use create::Acknowledged;
use names::{Named, Scope};
use request::Request;
use sign::Signer;
use turns::Turns;
use upstream::{Upstream, UpstreamError};

pub use accept::serve_s3;
pub use connections::{Address, AddressError};
pub use front::{Clients, serve};

/// Who the gateway is for a service.
#[derive(Clone, Debug)]
pub struct Access {
    pub credentials: SharedCredentialsProvider,
    pub region: String,
}

/// What a gateway needs.
pub struct Settings {
    /// S3 itself, `https://s3.eu-west-1.amazonaws.com`. Buckets are named in the path.
    pub s3_url: String,
    pub s3_access: Access,
    /// The same S3, for the gateway's own questions.
    pub objects: Arc<dyn ReadObjects>,
    /// The commit service, `https://….execute-api.eu-west-1.amazonaws.com`.
    pub commits_url: String,
    /// None where calls are not signed (a laptop).
    pub commits_access: Option<Access>,
    pub clients: Clients,
    /// Folders whose tables are guarded, `s3://bucket/prefix`; none means all.
    pub guarded: Vec<String>,
    /// Folders whose tables are not.
    pub passed: Vec<String>,
    /// Machine time: signatures and patience.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("s3_url", &self.s3_url)
            .field("commits_url", &self.commits_url)
            .finish_non_exhaustive()
    }
}

/// A gateway cannot be set up so.
#[derive(Debug, Error)]
pub enum SetupError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("a guarded or passed place cannot be read: {0}")]
    Place(#[from] LocationError),
}

/// A gateway; [`serve`] lets it answer.
pub struct Gateway {
    clients: Clients,
    scope: Scope,
    upstream: Upstream,
    commits: Commits,
    objects: Arc<dyn ReadObjects>,
    acknowledged: Acknowledged,
    cleanup: Cleanup,
    turns: Turns,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("upstream", &self.upstream)
            .field("commits", &self.commits)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Makes no request.
    pub fn new(settings: Settings) -> Result<Gateway, SetupError> {
        let (s3, service) = (Address::parse(&settings.s3_url)?, Address::parse(&settings.commits_url)?);
        let connections = Connections::to(&[&s3, &service])?;
        let signer =
            |access: Access, service| Signer { credentials: access.credentials, region: access.region, service };
        Ok(Gateway {
            clients: settings.clients,
            scope: Scope::new(&settings.guarded, &settings.passed)?,
            upstream: Upstream {
                address: s3,
                connections: connections.clone(),
                signer: signer(settings.s3_access, "s3"),
                clock: settings.clock.clone(),
                via: upstream::via(RandomIds.uuid()),
                has_looped: AtomicBool::new(false),
            },
            commits: Commits {
                address: service,
                connections,
                signer: settings.commits_access.map(|access| signer(access, "execute-api")),
                clock: settings.clock,
            },
            objects: settings.objects,
            acknowledged: Acknowledged::default(),
            cleanup: Cleanup::default(),
            turns: Turns::default(),
        })
    }

    /// What a key names, where that is guarded.
    fn names(&self, at: &ObjectKey) -> Named {
        match names::classify(at) {
            Named::Other => Named::Other,
            _ if !self.scope.guards(at) => Named::Other,
            named => named,
        }
    }
}

fn lookalike(at: &ObjectKey) -> String {
    format!(
        "Lakewarden refuses to change {at}: some reader could take it for a file of a Delta log, and it is none as it is \
         spelled. Log files are named <table>/_delta_log/<20 digits>.json, checkpoints <20 digits>.checkpoint.parquet"
    )
}

async fn passed_on(gateway: &Gateway, request: Request) -> S3Result<S3Response<Body>> {
    gateway.upstream.forward(request).await.map(as_response).map_err(bad_upstream)
}

fn as_response(response: Response<Incoming>) -> S3Response<Body> {
    let (parts, body) = response.into_parts();
    S3Response { status: Some(parts.status), ..S3Response::with_headers(Body::from(body), parts.headers) }
}

fn bad_upstream(error: UpstreamError) -> S3Error {
    if let UpstreamError::Body(broken) = error {
        return broken.into();
    }
    tracing::warn!(%error, "not passed on");
    S3Error::with_message(S3ErrorCode::ServiceUnavailable, format!("Lakewarden's gateway: {error}"))
}

/// An error with what is behind it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
