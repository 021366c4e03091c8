//! API Gateway's HTTP event, payload format 2.0.

use aws_lambda_events::encodings::Body;
use aws_lambda_events::event::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lakewarden_core::glue::{GlueException, GlueExceptionName, IF_REVISION_HEADER, WireAnswer};
use lakewarden_core::ports::App;

use crate::rest::{Preconditions, RestAnswer, RestError};

/// What routing needs of a request.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) method: Method,
    /// Without the stage, percent-encoded as it came.
    pub(crate) path: String,
    /// `X-Amz-Target`.
    pub(crate) target: Option<String>,
    /// `x-lakewarden-if-revision`.
    pub(crate) expected_revision: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    pub(crate) request_id: String,
}

impl Envelope {
    pub(crate) fn open(request: &ApiGatewayV2httpRequest, app: &App) -> Self {
        let context = &request.request_context;
        let path = request.raw_path.as_deref().unwrap_or("/");
        // With a named stage the path begins with it.
        let stage = context.stage.as_deref().filter(|stage| !stage.is_empty() && *stage != "$default");
        let inner = stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage));
        let path = inner.filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or(path);
        let header = |name: &str| {
            let value = request.headers.get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let request_id = context.request_id.clone().filter(|id| !id.is_empty());
        Self {
            method: context.http.method.clone(),
            path: path.to_owned(),
            target: header("x-amz-target"),
            expected_revision: header(IF_REVISION_HEADER),
            if_match: header("if-match"),
            if_none_match: header("if-none-match"),
            request_id: request_id.unwrap_or_else(|| app.ports.ids.uuid().to_string()),
        }
    }

    /// A failure in the form of the protocol that was spoken.
    pub(crate) fn refuse(&self, failure: GlueException) -> WireAnswer {
        if self.is_glue() {
            WireAnswer::new(Err(failure), &self.request_id)
        } else {
            self.rest_answer(Err(failure.into()))
        }
    }

    /// What must hold for a REST request to be carried out.
    pub(crate) fn preconditions(&self) -> Result<Preconditions, GlueException> {
        if self.expected_revision.is_some() {
            let text = format!("{IF_REVISION_HEADER} goes with the service's protocol; on REST it is If-Match.");
            return Err(GlueException::invalid_input(text));
        }
        Preconditions::parse(self.if_match.as_deref(), self.if_none_match.as_deref())
    }

    /// An answer of REST: the same names and bodies, proper statuses. HEAD has all of it but the body.
    pub(crate) fn rest_answer(&self, outcome: Result<RestAnswer, RestError>) -> WireAnswer {
        let (status, more, body, failure) = match outcome {
            Ok(RestAnswer { status, headers, body }) => (status, headers, body, None),
            Err(RestError { status, headers, failure }) => {
                let mut headers = headers;
                headers.push(("x-amzn-errortype", failure.name.as_str().to_owned()));
                (status, headers, Some(failure.body()), Some(failure))
            }
        };
        let mut headers = vec![("x-amzn-requestid", self.request_id.clone())];
        if body.is_some() {
            headers.push(("content-type", "application/json".to_owned()));
        }
        headers.extend(more);
        let body = body.filter(|_| self.method != Method::HEAD).map(|body| body.to_string());
        WireAnswer { status, headers, body: body.unwrap_or_default(), failure }
    }
}

/// The body's bytes; the gateway encodes what it does not take for text.
pub(crate) fn body(request: &ApiGatewayV2httpRequest) -> Result<Vec<u8>, GlueException> {
    match &request.body {
        None => Ok(Vec::new()),
        Some(body) if request.is_base64_encoded => STANDARD.decode(body).map_err(|_| {
            GlueException::new(GlueExceptionName::Serialization, "The event says that its body is base64; it is not.")
        }),
        Some(body) => Ok(body.clone().into_bytes()),
    }
}

pub(crate) fn close(answer: WireAnswer) -> ApiGatewayV2httpResponse {
    let mut headers = HeaderMap::new();
    for (name, value) in &answer.headers {
        // A request id that no header can carry is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let mut response = ApiGatewayV2httpResponse::default();
    response.status_code = i64::from(answer.status);
    response.headers = headers;
    response.body = Some(Body::Text(answer.body));
    response
}
