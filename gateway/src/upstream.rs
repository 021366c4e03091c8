//! Passing requests on: signed anew, otherwise as they came, bodies streaming both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, DATE, EXPECT, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use lakewarden_core::store::Clock;
use s3s::Body;
use thiserror::Error;

use crate::chunked::{self, Chunks};
use crate::connections::{Address, Connections};
use crate::patience::Broken;
use crate::request::{Framing, Request};
use crate::sign::{self, SignError, Signed, Signer};

const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const AMZ_TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
const UNSIGNED_TRAILERS: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// Of one connection, not of what goes over it.
const HOP_BY_HOP: [HeaderName; 8] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, EXPECT];
const MORE_HOP_BY_HOP: [&str; 2] = ["keep-alive", "proxy-connection"];
/// Says who the client is, which is not who asks S3.
const CLIENTS_OWN: [&str; 5] =
    ["x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "x-amz-region-set", "x-amz-s3session-token"];

/// A request could not be passed on, or was not answered.
#[derive(Debug, Error)]
pub enum UpstreamError {
    #[error("S3 at {address} does not answer: {cause}")]
    Unreachable { address: Box<Address>, cause: String },
    /// Not S3's fault.
    #[error("{0}")]
    Body(Broken),
    #[error("requests to S3 cannot be signed: {0}")]
    Sign(#[from] SignError),
    #[error("the request cannot be passed on: {0}")]
    Malformed(String),
}

/// S3 itself.
pub struct Upstream {
    pub address: Address,
    pub connections: Connections,
    pub signer: Signer,
    pub clock: Arc<dyn Clock>,
    /// What [`Upstream::forward`] adds to `Via`: no other gateway has it.
    pub via: HeaderValue,
    /// Whether something that was passed on, or asked, came back.
    pub has_looped: AtomicBool,
}

/// The name of one gateway in the header `Via`, by which it knows a request that comes back to it.
pub fn via(id: uuid::Uuid) -> HeaderValue {
    HeaderValue::from_str(&format!("1.1 lakewarden-{}", id.simple()))
        .unwrap_or(HeaderValue::from_static("1.1 lakewarden"))
}

fn came_from(headers: &HeaderMap, via: &HeaderValue) -> bool {
    headers.get_all(VIA).iter().any(|found| found == via)
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Whether a request was passed on by this very gateway before. That it ever happened is kept in mind: it is why the
    /// gateway's own questions to S3 fail.
    pub fn sent(&self, headers: &HeaderMap) -> bool {
        let is_own = came_from(headers, &self.via);
        if is_own {
            self.has_looped.store(true, Ordering::Relaxed);
        }
        is_own
    }

    pub fn has_looped(&self) -> bool {
        self.has_looped.load(Ordering::Relaxed)
    }

    /// S3's answer, whatever it is; its body arrives as it is read.
    pub async fn forward(&self, request: Request) -> Result<Response<Incoming>, UpstreamError> {
        let has_body = request.length().is_some_and(|length| length > 0)
            || request.headers.contains_key(TRANSFER_ENCODING)
            || !matches!(request.method, Method::GET | Method::HEAD);
        let head = self.head(&request).await?;
        let fate = request.fate.clone();
        let body = framed(request);
        let sent = if has_body {
            self.connections.send(assemble(&head, body)?).await
        } else {
            // A connection that was kept may have been closed by the other side.
            match self.connections.send(assemble(&head, Body::empty())?).await {
                Err(error) if !error.is_connect() => self.connections.send(assemble(&head, Body::empty())?).await,
                other => other,
            }
        };
        let unreachable =
            |error| UpstreamError::Unreachable { address: Box::new(self.address.clone()), cause: crate::chain(&error) };
        let mut response = sent.map_err(|error| match fate.broken() {
            Some(broken) => UpstreamError::Body(broken.clone()),
            None => unreachable(error),
        })?;
        remove_hop_by_hop(response.headers_mut());
        Ok(response)
    }

    async fn head(&self, request: &Request) -> Result<Head, UpstreamError> {
        let malformed = |error: http::Error| UpstreamError::Malformed(error.to_string());
        let mut headers = request.headers.clone();
        remove_hop_by_hop(&mut headers);
        for name in CLIENTS_OWN {
            headers.remove(name);
        }
        for name in [HOST, AUTHORIZATION, DATE] {
            headers.remove(name);
        }
        let payload = match request.framing() {
            Framing::Plain => request.payload(),
            Framing::Unsigned => UNSIGNED_TRAILERS.to_owned(),
            Framing::Signed { has_trailers: true } => {
                // In other chunks, so that the length of the whole is another one.
                headers.remove(CONTENT_LENGTH);
                UNSIGNED_TRAILERS.to_owned()
            }
            Framing::Signed { has_trailers: false } => {
                become_plain(&mut headers);
                sign::UNSIGNED.to_owned()
            }
        };
        let path = self.address.path(&sign::encode_path(&request.path));
        let uri = self.address.uri(&path, &sign::encode_query(&request.query)).map_err(malformed)?;
        let signed = Signed {
            method: &request.method,
            path: &path,
            query: &request.query,
            host: self.address.host(),
            payload: &payload,
        };
        self.signer.sign(&mut headers, signed, self.clock.now_ms()).await?;
        headers.append(VIA, self.via.clone());
        Ok(Head { method: request.method.clone(), uri, headers })
    }
}

struct Head {
    method: Method,
    uri: http::Uri,
    headers: HeaderMap,
}

fn assemble(head: &Head, body: Body) -> Result<http::Request<Body>, UpstreamError> {
    let request = http::Request::builder().method(head.method.clone()).uri(head.uri.clone()).body(body);
    let mut request = request.map_err(|error| UpstreamError::Malformed(error.to_string()))?;
    *request.headers_mut() = head.headers.clone();
    Ok(request)
}

fn framed(mut request: Request) -> Body {
    let body = std::mem::take(&mut request.body);
    let (fate, length) = (request.fate.clone(), request.length());
    let noted = |body: Body| {
        Body::http_body_unsync(BodyExt::map_err(body, move |error| {
            fate.note_frames(&error);
            error
        }))
    };
    match request.framing() {
        Framing::Plain | Framing::Unsigned => body,
        Framing::Signed { has_trailers: true } => noted(chunked::unsigned(Chunks::new(body, request.check.take()))),
        Framing::Signed { has_trailers: false } => {
            noted(chunked::plain(Chunks::new(body, request.check.take()), length))
        }
    }
}

/// Headers of a body that is in chunks become those of its data.
fn become_plain(headers: &mut HeaderMap) {
    headers.remove(AMZ_TRAILER);
    if let Some(length) = headers.remove(DECODED_LENGTH) {
        headers.insert(CONTENT_LENGTH, length);
    }
    let codings: Vec<String> = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.trim().to_owned())
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    headers.remove(CONTENT_ENCODING);
    if let Ok(left) = HeaderValue::from_str(&codings.join(","))
        && !left.is_empty()
    {
        headers.insert(CONTENT_ENCODING, left);
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // What S3 acts upon cannot be hidden from it.
        .filter(|name: &HeaderName| !name.as_str().starts_with("x-amz-") && *name != CONTENT_LENGTH)
        .filter(|name| !name.as_str().starts_with("if-"))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    for name in MORE_HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let mut given = headers(&[
            ("connection", "keep-alive, x-mine, if-none-match, x-amz-meta-a"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("x-mine", "1"),
            ("if-none-match", "*"),
            ("x-amz-meta-a", "b"),
            ("range", "bytes=0-1"),
        ]);
        remove_hop_by_hop(&mut given);
        assert_eq!(given, headers(&[("if-none-match", "*"), ("x-amz-meta-a", "b"), ("range", "bytes=0-1")]));
    }

    #[test]
    fn chunks_are_no_property_of_the_object() {
        for (coding, left) in [("aws-chunked", None), ("aws-chunked,gzip", Some("gzip")), ("gzip", Some("gzip"))] {
            let mut given = HeaderMap::new();
            given.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            given.insert(CONTENT_LENGTH, HeaderValue::from_static("100"));
            given.insert(DECODED_LENGTH, HeaderValue::from_static("10"));
            become_plain(&mut given);
            assert_eq!(given.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap()), left, "{coding}");
            assert_eq!(given[CONTENT_LENGTH], "10");
            assert!(!given.contains_key(DECODED_LENGTH));
        }
    }

    #[test]
    fn a_gateway_knows_itself_and_no_other() {
        let (mine, other) = (via(uuid::Uuid::from_u128(1)), via(uuid::Uuid::from_u128(2)));
        assert_eq!(mine, "1.1 lakewarden-00000000000000000000000000000001");
        let mut given = HeaderMap::new();
        for (added, expected) in [(HeaderValue::from_static("1.1 proxy"), false), (other, false), (mine.clone(), true)]
        {
            given.append(VIA, added);
            assert_eq!(came_from(&given, &mine), expected);
        }
    }
}
