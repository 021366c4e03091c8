//! The HTTP gateway: what API Gateway is on AWS. Every request becomes an event, is handed to the same handler that
//! Lambda runs, and the answer goes back; with API Gateway's limits (6 MB each way, 30 seconds).
//!
//! It listens on loopback only, since it checks no signatures, and refuses what a web page of another origin sends.

mod admin;
mod envelope;

use std::net::SocketAddr;
use std::sync::Arc;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lakewarden_core::limits;
use lakewarden_core::ports::Deadline;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::system::Shared;

/// API Gateway itself takes bodies up to 10 MB; what does not fit the function's event is refused after that.
const BODY_MAX_BYTES: usize = 10 * 1024 * 1024;

/// Serves until `shutdown`; requests under way are finished.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, shutdown: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .nest("/local", admin::router())
        .fallback(forward)
        .layer(axum::middleware::from_fn(refuse_foreign_origins))
        .with_state(shared);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

/// A web page must not be able to use the laptop's lake: its requests carry an Origin, and a name that resolves to
/// loopback carries a foreign Host.
async fn refuse_foreign_origins(request: Request, next: axum::middleware::Next) -> Response {
    let foreign = ["origin", "host"]
        .iter()
        .any(|name| request.headers().get(*name).is_some_and(|value| !value.to_str().is_ok_and(is_loopback_authority)));
    if foreign {
        return message(StatusCode::FORBIDDEN, "The local gateway answers requests to and from this machine only.");
    }
    next.run(request).await
}

fn is_loopback_authority(text: &str) -> bool {
    let authority = text.split_once("://").map_or(text, |(_, authority)| authority);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.eq_ignore_ascii_case("localhost")
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn message(status: StatusCode, text: &str) -> Response {
    (status, axum::Json(json!({ "message": text }))).into_response()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    CatalogApi,
    CommitApi,
}

/// The routes of `template.yaml`: commits go to commit-api, the rest to catalog-api.
fn function_for(path: &str) -> Function {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        ["v1", "commits", ..] | ["v1", "databases", _, "tables", _, "commits", ..] => Function::CommitApi,
        ["api", "2.1", "unity-catalog", ..] => Function::CommitApi,
        _ => Function::CatalogApi,
    }
}

async fn forward(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX_BYTES).await else {
        return message(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    };
    let context = envelope::EnvelopeContext {
        account_id: shared.app.settings.account_id.clone(),
        domain_name: parts.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("localhost").to_owned(),
        request_id: shared.app.ports.ids.uuid().to_string(),
        now_ms: shared.app.ports.clock.now_ms(),
        source_ip: peer.ip(),
    };
    let event = envelope::event(&parts, &body, &context);
    if event.to_string().len() > limits::GATEWAY_PAYLOAD_MAX_BYTES {
        return message(StatusCode::PAYLOAD_TOO_LARGE, "Request Too Long");
    }
    let request = match envelope::typed(event) {
        Ok(request) => request,
        Err(error) => {
            tracing::error!(request_id = context.request_id, %error, "the gateway could not build the event");
            return message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
        }
    };
    let started_ms = context.now_ms;
    let path = parts.uri.path().to_owned();
    let response = invoke(shared.clone(), function_for(&path), request, &context.request_id).await;
    tracing::debug!(
        method = %parts.method,
        path,
        status = response.status().as_u16(),
        duration_ms = shared.app.ports.clock.now_ms() - started_ms,
        "gateway"
    );
    response
}

async fn invoke(
    shared: Arc<Shared>,
    function: Function,
    request: ApiGatewayV2httpRequest,
    request_id: &str,
) -> Response {
    let timeout_ms = limits::GATEWAY_TIMEOUT_MS;
    let deadline = Deadline::in_ms(shared.app.ports.clock.as_ref(), i64::try_from(timeout_ms).unwrap_or(i64::MAX));
    // A task of its own: like a function on Lambda it goes on when the client, or the gateway, has given up.
    let work = tokio::spawn(async move {
        match function {
            Function::CatalogApi => catalog_api::handle(&shared.app, request, deadline).await,
            Function::CommitApi => commit_api::handle(&shared.app, request, deadline).await,
        }
    });
    match tokio::time::timeout(std::time::Duration::from_millis(timeout_ms), work).await {
        Ok(Ok(answer)) => deliver(answer, request_id),
        Ok(Err(error)) => {
            tracing::error!(request_id, %error, "a handler ended without an answer");
            message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
        Err(_) => {
            tracing::warn!(request_id, timeout_ms, "a handler took longer than API Gateway waits");
            message(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")
        }
    }
}

fn deliver(answer: ApiGatewayV2httpResponse, request_id: &str) -> Response {
    match envelope::response(answer) {
        Ok(response) if response.body().len() <= limits::GATEWAY_PAYLOAD_MAX_BYTES => response.map(Body::from),
        Ok(response) => {
            tracing::error!(request_id, size_bytes = response.body().len(), "an answer is larger than Lambda allows");
            message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
        Err(error) => {
            tracing::error!(request_id, %error, "an answer could not be passed on");
            message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_go_to_commit_api_and_the_rest_to_catalog_api() {
        for (path, function) in [
            ("/", Function::CatalogApi),
            ("/v1/databases", Function::CatalogApi),
            ("/v1/databases/d/tables/commits", Function::CatalogApi),
            ("/v1/databases/commits/tables/t/sweeps", Function::CatalogApi),
            ("/v1/databases/d/tables/t/commits", Function::CommitApi),
            ("/v1/databases/d/tables/t/commits/x", Function::CommitApi),
            ("/v1/commits", Function::CommitApi),
            ("/v1/commits/abc", Function::CommitApi),
            ("/v1/commitsx", Function::CatalogApi),
            ("/api/2.1/unity-catalog/tables/unity%2Ed%2Et", Function::CommitApi),
        ] {
            assert_eq!(function_for(path), function, "{path}");
        }
    }

    #[test]
    fn only_this_machine_is_answered() {
        for good in ["127.0.0.1:8700", "localhost:1", "http://localhost:3000", "[::1]:80", "LOCALHOST"] {
            assert!(is_loopback_authority(good), "{good}");
        }
        for bad in ["evil.example", "http://evil.example:8700", "null", "10.0.0.1:8700", "localhost.evil.example"] {
            assert!(!is_loopback_authority(bad), "{bad}");
        }
    }
}
