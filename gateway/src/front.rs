//! What clients talk to: connections, signatures, and which way a request goes.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sigv4::sign::v4::generate_signing_key;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use s3s::auth::{S3Auth, SecretKey};
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use tokio::net::TcpListener;

use crate::accept::{PATIENCE, accept};
use crate::chunked::ChunkCheck;
use crate::names::Named;
use crate::patience::{BODY_PATIENCE, Fate, patient};
use crate::request::{Framing, Request, decode_path, decode_query, is_signature};
use crate::sign::PAYLOAD;
use crate::told::{answer, complete};
use crate::{Gateway, create, delete, lookalike, passed_on, published};

/// How long requests under way may take to end after the shutdown signal.
const DRAIN: Duration = Duration::from_secs(10);

/// The machine, as containers see it.
const DOCKER_HOST: &str = "host.docker.internal";

/// Whose requests are taken.
#[derive(Clone)]
pub enum Clients {
    /// Requests must be signed with this key pair.
    Pair { access_key: String, secret_key: String },
    /// Signatures are not looked at. For loopback, where whoever reaches the port may use it.
    Anybody,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clients::Pair { access_key, .. } => {
                f.debug_struct("Pair").field("access_key", access_key).finish_non_exhaustive()
            }
            Clients::Anybody => f.write_str("Anybody"),
        }
    }
}

#[derive(Clone)]
struct Pair {
    access_key: String,
    secret_key: String,
}

#[async_trait]
impl S3Auth for Pair {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access_key {
            return Ok(SecretKey::from(self.secret_key.as_str()));
        }
        Err(s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided is not the gateway's."))
    }
}

/// Every request goes to the route.
struct Nothing;

impl S3 for Nothing {}

/// The body of a request, which the wire layer does not get to see: it would hold signed chunks, and hash what S3 hashes.
#[derive(Clone)]
struct Kept(Arc<Mutex<Option<Incoming>>>);

struct Route {
    gateway: Arc<Gateway>,
}

#[async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut Extensions) -> bool {
        true
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        match (&self.gateway.clients, &request.credentials) {
            (Clients::Anybody, _) | (Clients::Pair { .. }, Some(_)) => Ok(()),
            (Clients::Pair { .. }, None) => Err(s3_error!(AccessDenied, "Sign requests with the gateway's key pair")),
        }
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let answered = match take_apart(&self.gateway.clients, request) {
            Ok(request) => self.answer(request).await.map_err(|error| self.true_cause(error)),
            Err(error) => Err(error),
        };
        // Refusals are ordinary answers, and not for the log of errors.
        answered.or_else(|error| {
            tracing::debug!(%error, "refused");
            let response = answer(error)?;
            let (parts, body) = response.into_parts();
            Ok(S3Response { status: Some(parts.status), ..S3Response::with_headers(body, parts.headers) })
        })
    }
}

fn looped() -> S3Error {
    s3_error!(
        InvalidRequest,
        "What this gateway passes on comes back to it: name the S3 that lies behind it with --s3-endpoint"
    )
}

impl Route {
    /// Where the gateway is its own S3, that is what is wrong, and not that S3 cannot be asked.
    fn true_cause(&self, error: S3Error) -> S3Error {
        let is_unavailable = *error.code() == S3ErrorCode::ServiceUnavailable;
        if is_unavailable && self.gateway.upstream.has_looped() { looped() } else { error }
    }

    async fn answer(&self, request: Request) -> S3Result<S3Response<Body>> {
        let gateway = &self.gateway;
        if request.method == Method::POST && request.asks("delete") && request.object().is_none() {
            return delete::delete_batch(gateway, request).await;
        }
        check_post(&request)?;
        check_rename_source(gateway, &request)?;
        let named = match request.object() {
            Some(at) => gateway.names(&at),
            None => Named::Other,
        };
        let is_reading = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS)
            || (request.method == Method::POST && request.asks_only(&["select", "select-type"]));
        let file = match named {
            _ if is_reading => return passed_on(gateway, request).await,
            Named::Other => return passed_on(gateway, request).await,
            Named::Lookalike => {
                let at = request.object().map(|at| lookalike(&at)).unwrap_or_default();
                return Err(S3Error::with_message(S3ErrorCode::AccessDenied, at));
            }
            Named::Checkpoint(checkpoint) => return published::change(gateway, checkpoint, request).await,
            Named::LogFile(file) => file,
        };
        // What is left of an upload that was begun elsewhere may be taken away.
        if request.method == Method::DELETE && request.asks_only(&["uploadId"]) {
            return passed_on(gateway, request).await;
        }
        match request.method {
            Method::DELETE => delete::delete(gateway, file, request).await,
            Method::PUT if request.brings_all() => create::create(gateway, file, request).await,
            _ => {
                let text = format!(
                    "Lakewarden takes the log file {} by a plain PUT only, as a proposal: no copy, no multipart upload, no \
                     appending, no change of what is published",
                    file.key()
                );
                Err(S3Error::with_message(S3ErrorCode::AccessDenied, text))
            }
        }
    }
}

/// What stores could take for a batch of deletions, or for a form, and that is none as it is spelled.
fn check_post(request: &Request) -> S3Result<()> {
    if request.method != Method::POST {
        return Ok(());
    }
    if request.asks("delete") {
        return Err(s3_error!(MethodNotAllowed, "Batches of deletions are posted to /<bucket>?delete"));
    }
    let asks_nothing = request.query.iter().all(|(name, _)| name == "x-id");
    if asks_nothing && request.object().is_none() {
        return Err(s3_error!(NotImplemented, "The gateway takes no uploads by forms: use PUT"));
    }
    Ok(())
}

/// A rename takes its source away.
fn check_rename_source(gateway: &Gateway, request: &Request) -> S3Result<()> {
    const NAME: &str = "x-amz-rename-source";
    let in_headers = request.headers.get_all(NAME).iter().map(HeaderValue::as_bytes);
    // Presigned addresses may say what is a header otherwise.
    let in_query = request.query.iter().filter(|(name, _)| name.eq_ignore_ascii_case(NAME));
    for source in in_headers.chain(in_query.map(|(_, value)| value.as_bytes())) {
        let source = percent_encoding::percent_decode(source).decode_utf8_lossy();
        let key = source.strip_prefix('/').unwrap_or(&source);
        // With the bucket before it, or without.
        let with_bucket = key.split_once('/').map(|(_, key)| key);
        for key in [Some(key), with_bucket].into_iter().flatten() {
            let at = lakewarden_core::store::ObjectKey::new(request.bucket(), key);
            if gateway.names(&at) != Named::Other {
                let text = format!("Lakewarden lets nobody rename {at}, which belongs to a log");
                return Err(S3Error::with_message(S3ErrorCode::AccessDenied, text));
            }
        }
    }
    Ok(())
}

/// Headers that S3 acts upon must be signed, or whoever holds a presigned address could add some. What only says how the
/// body is sent is excepted.
fn check_signed(headers: &HeaderMap, query: &[(String, String)]) -> S3Result<()> {
    let in_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let in_header = in_header.and_then(|text| member(text, "SignedHeaders"));
    let in_query = query.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-amz-signedheaders"));
    for signed in in_header.into_iter().chain(in_query.map(|(_, value)| value.as_str())) {
        let is_signed = |name: &str| signed.split(';').any(|found| found.eq_ignore_ascii_case(name));
        let mut names = headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
        if let Some(name) = names.find(|name| *name != PAYLOAD.as_str() && !is_signed(name)) {
            let text = format!("There were headers present in the request which were not signed: {name}");
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, text));
        }
    }
    Ok(())
}

/// A member of the header `authorization`.
fn member<'a>(authorization: &'a str, name: &str) -> Option<&'a str> {
    let members = authorization.split([',', ' ']).map(str::trim);
    members.filter_map(|member| member.split_once('=')).find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn take_apart(clients: &Clients, mut request: S3Request<Body>) -> S3Result<Request> {
    let kept = request.extensions.remove::<Kept>();
    let body = kept.and_then(|kept| kept.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    let (body, fate) = match body {
        Some(body) => patient(body, BODY_PATIENCE),
        None => (Body::empty(), Fate::default()),
    };
    let mut query = decode_query(&request.uri)?;
    if matches!(clients, Clients::Pair { .. }) {
        check_signed(&request.headers, &query)?;
    }
    query.retain(|(name, _)| !is_signature(name));
    let check = match clients {
        Clients::Pair { secret_key, .. } => chunk_check(&request.headers, secret_key),
        Clients::Anybody => None,
    };
    let request = Request {
        method: request.method,
        path: decode_path(&request.uri)?,
        query,
        headers: request.headers,
        body,
        fate,
        check,
    };
    let must_be_checked =
        matches!(clients, Clients::Pair { .. }) && matches!(request.framing(), Framing::Signed { .. });
    if must_be_checked && request.check.is_none() {
        let text = "The gateway takes chunks that are signed with AWS4-HMAC-SHA256, by a request whose head is signed so in its \
                    header, and no other ones";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, text));
    }
    Ok(request)
}

/// What chunks are checked with, where they are signed: it begins with the signature of the head.
fn chunk_check(headers: &HeaderMap, secret_key: &str) -> Option<ChunkCheck> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-amz-content-sha256").filter(|payload| payload.starts_with("STREAMING-AWS4-HMAC-SHA256-"))?;
    let authorization = text(AUTHORIZATION.as_str())?;
    let (_, scope) = member(authorization, "Credential")?.split_once('/')?;
    let mut parts = scope.split('/');
    let (_, region, service) = (parts.next()?, parts.next()?, parts.next()?);
    let date = text("x-amz-date")?;
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let moment: OffsetDateTime = PrimitiveDateTime::parse(date, &format).ok()?.assume_utc();
    let key = generate_signing_key(secret_key, moment.into(), region, service);
    let signature = member(authorization, "Signature")?.to_owned();
    Some(ChunkCheck::new(key.as_ref().to_vec(), date.to_owned(), scope.to_owned(), signature))
}

/// Requests whose signatures are not looked at look as if they had none.
fn without_signature(request: &mut http::Request<Incoming>) {
    request.headers_mut().remove(AUTHORIZATION);
    let Some(query) = request.uri().query() else { return };
    let left: Vec<&str> =
        query.split('&').filter(|pair| !is_signature(pair.split('=').next().unwrap_or_default())).collect();
    let path = request.uri().path();
    let target = if left.is_empty() { path.to_owned() } else { format!("{path}?{}", left.join("&")) };
    let mut parts = request.uri().clone().into_parts();
    if let Ok(target) = PathAndQuery::try_from(target) {
        parts.path_and_query = Some(target);
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Forms carry a signature of their own over what they say, which nobody else can make again.
fn is_form(request: &http::Request<Incoming>) -> bool {
    let mut kinds = request.headers().get_all(CONTENT_TYPE).iter().map(|kind| kind.as_bytes().to_ascii_lowercase());
    request.method() == Method::POST && kinds.any(|kind| kind.trim_ascii().starts_with(b"multipart/"))
}

/// Names of the machine that a gateway is asked by. Other ones with dots could have a bucket before them, which would be
/// taken for a part of the path.
fn is_plain_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_matches(['[', ']']);
    name.parse::<std::net::IpAddr>().is_ok() || !name.contains('.') || name.eq_ignore_ascii_case(DOCKER_HOST)
}

fn check_host(request: &http::Request<Incoming>) -> S3Result<()> {
    let named = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or("."));
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    match named.chain(target).find(|host| !is_plain_host(host)) {
        None => Ok(()),
        Some(host) => Err(s3_error!(
            InvalidRequest,
            "The gateway does not take buckets in the name of the host ({host}): address them by path, \
             http://127.0.0.1:<port>/<bucket>/<key>"
        )),
    }
}

/// What is refused before anybody looks at a signature.
fn check_connection(gateway: &Gateway, request: &http::Request<Incoming>) -> S3Result<()> {
    if gateway.upstream.sent(request.headers()) {
        return Err(looped());
    }
    check_host(request)?;
    if is_form(request) {
        return Err(s3_error!(NotImplemented, "The gateway takes no uploads by forms: use PUT"));
    }
    Ok(())
}

async fn serve_one(
    service: S3Service,
    gateway: Arc<Gateway>,
    mut request: http::Request<Incoming>,
) -> Result<HttpResponse, HttpError> {
    if let Err(error) = check_connection(&gateway, &request) {
        return answer(error).map_err(|error| HttpError::new(Box::new(error)));
    }
    if matches!(gateway.clients, Clients::Anybody) {
        without_signature(&mut request);
    }
    let (mut parts, body) = request.into_parts();
    let kept = Kept(Arc::new(Mutex::new(Some(body))));
    parts.extensions.insert(kept.clone());
    let response = service.call(http::Request::from_parts(parts, Body::empty())).await?;
    // The route takes the body first of all: it never got that far.
    let was_seen = kept.0.lock().unwrap_or_else(PoisonError::into_inner).is_none();
    if was_seen { Ok(response) } else { complete(response).await }
}

/// Serves S3 on `listener` until `shutdown` resolves, then lets requests under way end, for ten seconds at most.
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, shutdown: impl Future<Output = ()>) {
    let mut builder = S3ServiceBuilder::new(Nothing);
    builder.set_route(Route { gateway: gateway.clone() });
    if let Clients::Pair { access_key, secret_key } = &gateway.clients {
        builder.set_auth(Pair { access_key: access_key.clone(), secret_key: secret_key.clone() });
    }
    let service = builder.build();
    let serve = service_fn(move |request| serve_one(service.clone(), gateway.clone(), request));
    accept(listener, serve, "gateway", (PATIENCE, DRAIN), shutdown).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_s3_acts_upon_is_signed() {
        let check = |authorization: Option<&str>, signed: Option<&str>, names: &[&'static str]| {
            let mut headers: HeaderMap =
                names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x"))).collect();
            if let Some(signed) = authorization {
                let text = format!("AWS4-HMAC-SHA256 Credential=K/s, SignedHeaders={signed}, Signature=0");
                headers.insert(AUTHORIZATION, text.parse().unwrap());
            }
            let query: Vec<_> =
                signed.map(|signed| ("X-Amz-SignedHeaders".to_owned(), signed.to_owned())).into_iter().collect();
            check_signed(&headers, &query).is_ok()
        };
        assert!(check(Some("host;x-amz-date"), None, &["x-amz-date", "range", "x-amz-content-sha256"]));
        assert!(!check(Some("host;x-amz-date"), None, &["x-amz-date", "x-amz-copy-source"]));
        assert!(check(Some("host;x-amz-copy-source"), None, &["x-amz-copy-source"]));
        assert!(check(None, Some("host"), &["content-type", "x-amzn-trace-id"]));
        assert!(!check(None, Some("host"), &["x-amz-acl"]));
        assert!(check(None, Some("host;x-amz-acl"), &["x-amz-acl"]));
        // What is said twice must hold twice.
        assert!(!check(Some("host;x-amz-acl"), Some("host"), &["x-amz-acl"]));
        assert!(check(None, None, &["x-amz-acl"]), "other signatures cover all of them");
    }

    #[test]
    fn buckets_in_host_names_are_not_taken() {
        for host in [
            "127.0.0.1:8704",
            "127.0.0.1",
            "[::1]:8704",
            "[::1]",
            "localhost:8704",
            "localhost",
            "writer-1",
            "host.docker.internal:80",
        ] {
            assert!(is_plain_host(host), "{host}");
        }
        for host in [
            "lake.localhost:8704",
            "lake.127.0.0.1:8704",
            "lake.s3.amazonaws.com",
            "lake.s3.eu-west-1.amazonaws.com:443",
            "my.lake.localhost",
            "lake.127.0.0.1.nip.io",
            ".",
            "lake.host.docker.internal",
        ] {
            assert!(!is_plain_host(host), "{host}");
        }
    }
}
