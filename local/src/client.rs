//! A small HTTP client for the CLI and the demo, which talk to the gateway like everybody else.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use thiserror::Error;

/// The gateway did not do what was asked.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error("no Lakewarden answers at {url} ({cause}); start it with `cargo run`, or name its address with --gateway")]
    Unreachable { url: String, cause: String },
    #[error("{url} answered {status}: {body}")]
    Refused { url: String, status: u16, body: String },
    #[error("{url} answered something that is no JSON: {cause}")]
    NotJson { url: String, cause: String },
}

/// An answer with any status.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Talks JSON to one gateway.
#[derive(Clone, Debug)]
pub struct GatewayClient {
    base: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl GatewayClient {
    pub fn new(base: &str) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { base: base.trim_end_matches('/').to_owned(), http }
    }

    /// One request; whatever the status, its JSON body comes back.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, ClientError> {
        let url = format!("{}{path}", self.base);
        let unreachable = |cause: String| ClientError::Unreachable { url: url.clone(), cause };
        let mut request = Request::builder().method(method).uri(&url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = request.body(Full::new(bytes)).map_err(|error| unreachable(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| unreachable(error.to_string()))?.to_bytes();
        let not_json = |cause: serde_json::Error| ClientError::NotJson { url: url.clone(), cause: cause.to_string() };
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).map_err(not_json)? };
        Ok(Answer { status, body })
    }

    /// A request that must succeed.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let answer = self.send(method, path, &[("content-type", "application/json")], body).await?;
        self.expect_success(path, answer)
    }

    /// A Glue operation that must succeed.
    pub async fn glue(&self, operation: &str, input: &Value) -> Result<Value, ClientError> {
        let target = format!("AWSGlue.{operation}");
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target.as_str())];
        let answer = self.send(Method::POST, "/", &headers, Some(input)).await?;
        self.expect_success(operation, answer)
    }

    fn expect_success(&self, path: &str, answer: Answer) -> Result<Value, ClientError> {
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let url = format!("{} {path}", self.base);
        Err(ClientError::Refused { url, status: answer.status, body: answer.body.to_string() })
    }
}
