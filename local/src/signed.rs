//! HTTP with JSON for the tools that talk to services beyond this machine: TLS, AWS signatures, patience.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lakewarden_core::store::{Clock, SystemClock};
use serde_json::{Value, json};
use thiserror::Error;

/// Attempts at a request whose failure may pass.
const ATTEMPTS: u32 = 6;
/// The first pause between attempts; each next one is twice as long.
const FIRST_PAUSE_MS: u64 = 250;

/// A service did not do what was asked.
#[derive(Debug, Error)]
pub enum CallError {
    #[error("{endpoint} cannot be reached: {cause}")]
    Unreachable { endpoint: String, cause: String },
    #[error("{endpoint}: `{operation}` was refused with {status} {name}: {message}")]
    Refused { endpoint: String, operation: String, status: u16, name: String, message: String },
    #[error("{endpoint}: `{operation}` was answered with {status} and something that is no JSON")]
    NotJson { endpoint: String, operation: String, status: u16 },
    #[error("requests to {endpoint} cannot be signed: {cause}")]
    Signing { endpoint: String, cause: String },
    #[error("no TLS connections can be made: {0}")]
    Tls(String),
}

impl CallError {
    /// Whether this is the service's refusal of that name.
    pub fn is(&self, exception: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == exception)
    }

    /// Whether the same request may succeed later.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::NotJson { status, .. } => *status >= 500,
            Self::Refused { status, name, .. } => {
                matches!(status, 429 | 500 | 502 | 503 | 504)
                    || matches!(name.as_str(), "ThrottlingException" | "Throttling" | "OperationTimeoutException")
            }
            Self::Signing { .. } | Self::Tls(_) => false,
        }
    }
}

/// How requests are signed.
#[derive(Clone, Debug)]
pub struct Signing {
    pub credentials: SharedCredentialsProvider,
    pub region: String,
    /// `glue`, `execute-api`, …
    pub service: &'static str,
}

/// Credentials and region of the usual chain: environment, profiles, the machine's or container's role.
#[derive(Clone, Debug)]
pub struct AwsAccess {
    credentials: Option<SharedCredentialsProvider>,
    region: Option<String>,
}

impl AwsAccess {
    pub async fn load(profile: Option<&str>, region: Option<&str>) -> Self {
        let mut loader = aws_config::from_env();
        if let Some(profile) = profile {
            loader = loader.profile_name(profile);
        }
        let config = loader.load().await;
        let region = region.map(str::to_owned).or_else(|| config.region().map(|region| region.as_ref().to_owned()));
        Self { credentials: config.credentials_provider(), region }
    }

    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Signing for an endpoint. On loopback it may do without credentials.
    ///
    /// # Errors
    /// [`CallError::Signing`] if there are no credentials.
    pub async fn signing_for(&self, endpoint: &str, service: &'static str) -> Result<Option<Signing>, CallError> {
        let failed = |cause| CallError::Signing { endpoint: endpoint.to_owned(), cause };
        let Some(credentials) = self.credentials.clone() else {
            return if is_loopback(endpoint) { Ok(None) } else { Err(failed("there are no credentials".to_owned())) };
        };
        match credentials.provide_credentials().await {
            Ok(_) => {}
            Err(_) if is_loopback(endpoint) => return Ok(None),
            Err(error) => return Err(failed(chain(&error))),
        }
        let region = self.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        Ok(Some(Signing { credentials, region, service }))
    }

    /// Signing for a Lakewarden: none for the laptop's, which checks no signatures.
    ///
    /// # Errors
    /// [`CallError::Signing`] if there is nothing to sign with, or no region.
    pub fn signing_unless_loopback(&self, endpoint: &str, service: &'static str) -> Result<Option<Signing>, CallError> {
        if is_loopback(endpoint) {
            return Ok(None);
        }
        let failed = |cause: &str| CallError::Signing { endpoint: endpoint.to_owned(), cause: cause.to_owned() };
        let credentials = self.credentials.clone().ok_or_else(|| failed("there are no credentials"))?;
        let region = self.region.clone().ok_or_else(|| failed("no region is set"))?;
        Ok(Some(Signing { credentials, region, service }))
    }
}

/// Whether an endpoint is on this machine.
pub fn is_loopback(endpoint: &str) -> bool {
    let uri: Option<http::Uri> = endpoint.parse().ok();
    uri.as_ref().and_then(http::Uri::host).is_some_and(|host| {
        host.eq_ignore_ascii_case("localhost")
            || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// One endpoint that speaks JSON.
#[derive(Clone, Debug)]
pub struct JsonEndpoint {
    base: String,
    signing: Option<Signing>,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl JsonEndpoint {
    /// # Errors
    /// [`CallError::Tls`] if the machine has no root certificates.
    pub fn new(base: &str, signing: Option<Signing>) -> Result<Self, CallError> {
        let connector = HttpsConnectorBuilder::new().with_native_roots();
        let connector = connector.map_err(|error| CallError::Tls(error.to_string()))?.https_or_http().enable_http1();
        let http = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { base: base.trim_end_matches('/').to_owned(), signing, http })
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// An operation of Glue's JSON protocol.
    pub async fn glue(&self, operation: &str, input: &Value) -> Result<Value, CallError> {
        let target = format!("AWSGlue.{operation}");
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target.as_str())];
        self.patiently(Method::POST, "/", operation, &headers, Some(input)).await
    }

    /// A REST request.
    pub async fn rest(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        let operation = format!("{method} {path}");
        self.patiently(method, path, &operation, &[("content-type", "application/json")], body).await
    }

    async fn patiently(
        &self,
        method: Method,
        path: &str,
        operation: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut pause_ms = FIRST_PAUSE_MS;
        for _ in 1..ATTEMPTS {
            match self.once(&method, path, operation, headers, &body).await {
                Err(error) if error.may_pass() => {
                    tracing::debug!(%error, pause_ms, "trying again");
                    SystemClock.sleep_ms(pause_ms).await;
                    pause_ms *= 2;
                }
                answered => return answered,
            }
        }
        self.once(&method, path, operation, headers, &body).await
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        operation: &str,
        headers: &[(&str, &str)],
        body: &Bytes,
    ) -> Result<Value, CallError> {
        let unreachable = |cause: String| CallError::Unreachable { endpoint: self.base.clone(), cause };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Full::new(body.clone())).map_err(|error| unreachable(error.to_string()))?;
        if let Some(signing) = &self.signing {
            let failed = |cause| CallError::Signing { endpoint: self.base.clone(), cause };
            apply_signature(&mut request, signing, body).await.map_err(failed)?;
        }
        let response = self.http.request(request).await.map_err(|error| unreachable(chain(&error)))?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| unreachable(chain(&error)))?.to_bytes();
        let answer = if bytes.is_empty() { Ok(json!({})) } else { serde_json::from_slice(&bytes) };
        match answer {
            Ok(answer) if (200..300).contains(&status) => Ok(answer),
            Ok(refusal) => Err(self.refusal(operation, status, &refusal)),
            Err(_) => Err(CallError::NotJson { endpoint: self.base.clone(), operation: operation.to_owned(), status }),
        }
    }

    fn refusal(&self, operation: &str, status: u16, body: &Value) -> CallError {
        let text =
            |names: [&str; 2]| names.iter().find_map(|name| body.get(*name)?.as_str()).unwrap_or_default().to_owned();
        let name = text(["__type", "code"]);
        // `namespace#Name` and `Name:http…` are the same exception.
        let name = name.rsplit('#').next().and_then(|name| name.split(':').next()).unwrap_or_default().to_owned();
        CallError::Refused {
            endpoint: self.base.clone(),
            operation: operation.to_owned(),
            status,
            name,
            message: text(["Message", "message"]),
        }
    }
}

/// An error with what is behind it.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

async fn apply_signature(request: &mut Request<Full<Bytes>>, signing: &Signing, body: &[u8]) -> Result<(), String> {
    let credentials = signing.credentials.provide_credentials().await.map_err(|error| chain(&error))?;
    let identity = credentials.into();
    let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(SystemClock.now_ms()).unwrap_or(0));
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(&signing.region)
        .name(signing.service)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| error.to_string())?
        .into();
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect();
    let (method, uri) = (request.method().clone(), request.uri().to_string());
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let signable = SignableRequest::new(method.as_str(), uri, headers, SignableBody::Bytes(body));
    let signed = sign(signable.map_err(|error| error.to_string())?, &parameters).map_err(|error| error.to_string())?;
    let (instructions, _) = signed.into_parts();
    instructions.apply_to_request_http1x(request);
    Ok(())
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;

    use super::*;

    #[tokio::test]
    async fn requests_are_signed_for_their_service() {
        let credentials =
            SharedCredentialsProvider::new(Credentials::new("KEY", "secret", Some("token".into()), None, "test"));
        let signing = Signing { credentials, region: "eu-west-1".into(), service: "glue" };
        let mut request = Request::post("https://glue.eu-west-1.amazonaws.com/")
            .header("x-amz-target", "AWSGlue.GetDatabases")
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap();
        apply_signature(&mut request, &signing, b"{}").await.unwrap();
        let authorization = request.headers()["authorization"].to_str().unwrap();
        assert!(authorization.contains("/eu-west-1/glue/aws4_request"), "{authorization}");
        assert!(authorization.contains("x-amz-target"), "{authorization}");
        assert_eq!(request.headers()["x-amz-security-token"], "token");
    }

    #[test]
    fn refusals_are_read_in_every_spelling() {
        let endpoint = JsonEndpoint::new("http://127.0.0.1:1/", None).unwrap();
        for (body, name) in [
            (json!({ "__type": "EntityNotFoundException", "Message": "no" }), "EntityNotFoundException"),
            (json!({ "__type": "com.amazon#ThrottlingException:http://x", "message": "no" }), "ThrottlingException"),
            (json!({}), ""),
        ] {
            assert!(endpoint.refusal("GetTable", 400, &body).is(name));
        }
        assert!(endpoint.refusal("GetTable", 400, &json!({ "__type": "ThrottlingException" })).may_pass());
        assert!(!endpoint.refusal("GetTable", 400, &json!({ "__type": "AccessDeniedException" })).may_pass());
        assert!(endpoint.refusal("GetTable", 503, &json!({})).may_pass());
    }
}
