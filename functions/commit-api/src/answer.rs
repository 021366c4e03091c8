use aws_lambda_events::apigw::ApiGatewayV2httpResponse;
use aws_lambda_events::encodings::Body;
use aws_lambda_events::http::{HeaderMap, HeaderValue, header};
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::proposal::Status;
use lakewarden_core::commit::verdict::{RefusalKind, Verdict};
use lakewarden_core::store::StoreErrorKind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// Seconds after which to ask again, or to try again what ran out of time or met a fence.
const RETRY_AFTER_S: &str = "2";

/// Status and JSON body of an answer; null where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Where to ask for what there is no answer to yet.
    pub(crate) ask_at: Option<Box<str>>,
    /// Methods that there are, where the one of the call is none of them.
    pub(crate) allow: Option<Box<str>>,
}

impl Answer {
    pub(crate) fn plain(status: u16, body: Value) -> Answer {
        Answer { status, body, ask_at: None, allow: None }
    }

    pub(crate) fn ok(body: Value) -> Answer {
        Answer::plain(200, body)
    }

    pub(crate) fn error(status: u16, error: &str, message: impl Into<String>, advice: &str) -> Answer {
        Answer::plain(status, json!({"error": error, "message": message.into(), "advice": advice}))
    }

    /// The verdict on a proposal that was just made: a refusal is an error of HTTP, too.
    pub(crate) fn verdict(verdict: &Verdict) -> Answer {
        let status = match (verdict.status(), verdict.refusal()) {
            (Status::Rejected, Some(refusal)) if refusal.exception.kind() == RefusalKind::Invalid => 422,
            (Status::Rejected, _) => 409,
            _ => 200,
        };
        Answer::plain(status, verdict.to_json())
    }

    /// The commit is taken on, and judged in the background: where to ask for its verdict.
    pub(crate) fn taken_on(verdict: &Verdict) -> Answer {
        let location = verdict.proposal.root.to_string();
        let location = utf8_percent_encode(&location, NON_ALPHANUMERIC);
        let ask_at = format!("/v1/commits/{}?location={location}", verdict.proposal.id);
        let mut body = verdict.to_json();
        if let Some(body) = body.as_object_mut() {
            body.insert("ask".into(), ask_at.as_str().into());
        }
        Answer { ask_at: Some(ask_at.into()), ..Answer::plain(202, body) }
    }

    /// No verdict: nothing is lost, and `proposal_id` finds the proposal again.
    pub(crate) fn no_verdict(error: &CommitError, proposal_id: Option<&str>) -> Answer {
        let advice = "call again with the same proposal_id; the commit is carried out once";
        let mut answer = if error.is_retryable() {
            let name = match error {
                CommitError::OutOfTime { .. } => "ALLOTTED_TIME_EXCEEDED",
                CommitError::Fenced { .. } => "FencedBySweep",
                CommitError::Contended { .. } => "TooMuchContention",
                CommitError::Leased { .. } => "TableBusy",
                _ => "StoreUnavailable",
            };
            Answer::error(503, name, error.to_string(), advice)
        } else {
            match error {
                CommitError::StagedMissing(_) => {
                    Answer::error(404, "StagedObjectMissing", error.to_string(), "stage the commit first")
                }
                CommitError::StagedChanged(_) => Answer::error(409, "StagedObjectChanged", error.to_string(), advice),
                CommitError::Store(store) if store.kind == StoreErrorKind::Missing => Answer::error(
                    404,
                    "BucketNotFound",
                    error.to_string(),
                    "check the location, and that the service may use the bucket",
                ),
                CommitError::Store(store) if store.kind == StoreErrorKind::AccessDenied => Answer::error(
                    403,
                    "AccessDenied",
                    error.to_string(),
                    "let the service's role read and write the table's bucket",
                ),
                _ => Answer::error(500, "InternalError", error.to_string(), advice),
            }
        };
        if let (Some(id), Some(body)) = (proposal_id, answer.body.as_object_mut()) {
            body.insert("proposal_id".into(), id.into());
        }
        answer
    }

    pub(crate) fn into_response(self) -> ApiGatewayV2httpResponse {
        let mut headers = HeaderMap::new();
        let has_body = !self.body.is_null();
        if has_body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if matches!(self.status, 202 | 429 | 503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        if let Some(Ok(allow)) = self.allow.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::ALLOW, allow);
        }
        if let Some(Ok(ask_at)) = self.ask_at.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::LOCATION, ask_at);
        }
        let mut response = ApiGatewayV2httpResponse::default();
        response.status_code = i64::from(self.status);
        response.headers = headers;
        response.body = has_body.then(|| Body::Text(self.body.to_string()));
        response
    }
}
