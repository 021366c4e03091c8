//! Lambda: the Glue-compatible catalog behind API Gateway. `POST /` is the service's JSON protocol; `/v1` is REST for
//! people. The laptop calls [`handle`] with the same events.

mod envelope;
pub mod rest;

use std::time::Duration;

use aws_lambda_events::event::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use http::Method;
use lakewarden_core::catalog::escaped_len;
use lakewarden_core::glue::{self, GlueException, GlueExceptionName, WireAnswer};
use lakewarden_core::limits::GATEWAY_PAYLOAD_MAX_BYTES;
use lakewarden_core::ports::{App, Deadline};

use envelope::Envelope;

/// Time that is kept to write the answer.
const RESERVE_MS: i64 = 500;
/// What the answer's envelope (headers, member names) may take of the platform's limit.
const ENVELOPE_MAX_BYTES: usize = 64 * 1024;

/// Answers one request. Never fails: a failure is an answer, and is logged here, once.
pub async fn handle(app: &App, request: ApiGatewayV2httpRequest, deadline: Deadline) -> ApiGatewayV2httpResponse {
    let envelope = Envelope::open(&request, app);
    let left_ms = deadline.left_ms(app.ports.clock.as_ref());
    let budget_ms = (left_ms - RESERVE_MS).max(left_ms / 2);
    let budget = Duration::from_millis(u64::try_from(budget_ms).unwrap_or(0));
    // Dropping an operation half-way is like a crash between two of its writes, which every operation survives.
    let answer = match tokio::time::timeout(
        budget,
        route(app, &request, &envelope, Deadline::in_ms(app.ports.clock.as_ref(), budget_ms)),
    )
    .await
    {
        Ok(answer) => answer,
        Err(_) => envelope.refuse(GlueException::new(
            GlueExceptionName::OperationTimeout,
            "The time for one request is used up. Whether a write happened is open: read before trying again.",
        )),
    };
    let answer = check_size(&envelope, answer);
    log(&envelope, &answer);
    envelope::close(answer)
}

async fn route(app: &App, request: &ApiGatewayV2httpRequest, envelope: &Envelope, deadline: Deadline) -> WireAnswer {
    let body = match envelope::body(request) {
        Ok(body) => body,
        Err(refusal) => return envelope.refuse(refusal),
    };
    if envelope.is_glue() {
        return glue::answer(
            app,
            envelope.target.as_deref(),
            &body,
            envelope.expected_revision.as_deref(),
            &envelope.request_id,
        )
        .await;
    }
    let query = request.raw_query_string.as_deref().unwrap_or_default();
    let conditions = envelope.preconditions();
    let outcome = rest::dispatch(app, &envelope.method, &envelope.path, query, conditions, body, deadline).await;
    envelope.rest_answer(outcome)
}

/// The platform drops an answer above its limit; better to say so.
fn check_size(envelope: &Envelope, answer: WireAnswer) -> WireAnswer {
    let size_bytes = escaped_len(&answer.body);
    if size_bytes <= GATEWAY_PAYLOAD_MAX_BYTES - ENVELOPE_MAX_BYTES {
        return answer;
    }
    envelope.refuse(GlueException::internal(format!("an answer of {size_bytes} bytes")))
}

fn log(envelope: &Envelope, answer: &WireAnswer) {
    let Some(failure) = &answer.failure else { return };
    let (request_id, exception) = (envelope.request_id.as_str(), failure.name.as_str());
    let (method, path, target) = (envelope.method.as_str(), envelope.path.as_str(), envelope.target.as_deref());
    let cause = failure.cause.as_deref();
    // What is not served is refused by name, on REST with a status of its own: no fault.
    if (answer.status >= 500 && answer.status != 501) || cause.is_some() {
        tracing::error!(
            request_id,
            method,
            path,
            target,
            exception,
            cause,
            message_to_caller = failure.message,
            "request failed"
        );
    } else {
        // The text may repeat what the caller sent: not for the log.
        tracing::info!(request_id, method, path, target, exception, status = answer.status, "request refused");
    }
}

impl Envelope {
    fn is_glue(&self) -> bool {
        self.method == Method::POST && matches!(self.path.as_str(), "" | "/")
    }
}

#[cfg(test)]
mod tests;
