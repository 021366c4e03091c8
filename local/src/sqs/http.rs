use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use lakewarden_core::store::{Ids, RandomIds};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::LocalQueues;
use super::operations::{Context, run};
use super::protocol::SqsError;

/// How long requests under way may take to end after the shutdown signal. Receivers that wait for messages
/// are told at once.
pub const DRAIN_MS: u64 = 2_000;
/// A full batch, base64 and JSON escapes included.
const REQUEST_MAX_BYTES: usize = 4 * 1024 * 1024;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

#[derive(Debug)]
struct Service {
    queues: LocalQueues,
    account_id: String,
    region: String,
    /// Used where a request has no Host.
    address: String,
    stopping: watch::Receiver<()>,
}

/// Serves the SQS JSON protocol on `listener` until `shutdown` resolves, then gives requests under way [`DRAIN_MS`].
///
/// Queue URLs are `http://<host of the request>/<account_id>/<queue>`. Signatures are not checked, so listen on loopback.
/// The older query protocol (SDKs before 2023) is refused by name.
pub async fn serve(
    listener: TcpListener,
    queues: LocalQueues,
    account_id: String,
    region: String,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let address = listener.local_addr()?.to_string();
    let (stop, stopping) = watch::channel(());
    let service = Arc::new(Service { queues, account_id, region, address, stopping: stopping.clone() });
    let router = Router::new()
        .route("/", post(answer))
        .fallback(post(answer))
        .layer(DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .with_state(service);
    let mut server =
        std::pin::pin!(axum::serve(listener, router).with_graceful_shutdown(stopped(stopping)).into_future());
    tokio::select! {
        served = &mut server => return served,
        () = shutdown => {}
    }
    stop.send_replace(());
    match tokio::time::timeout(Duration::from_millis(DRAIN_MS), server).await {
        Ok(served) => served,
        Err(_) => {
            tracing::warn!(drain_ms = DRAIN_MS, "requests to the local SQS were cut off");
            Ok(())
        }
    }
}

async fn stopped(mut stopping: watch::Receiver<()>) {
    // The sender going away is a signal as well.
    let _ = stopping.changed().await;
}

async fn answer(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or(&service.address);
    let context = Context {
        queues: &service.queues,
        endpoint: format!("http://{host}"),
        account_id: &service.account_id,
        region: &service.region,
    };
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let result = match target.strip_prefix("AmazonSQS.") {
        Some("ReceiveMessage") => tokio::select! {
            // A message that was already taken comes back when its visibility timeout has passed.
            () = stopped(service.stopping.clone()) => Err(SqsError::stopping()),
            result = run(&context, "ReceiveMessage", &body) => result,
        },
        Some(operation) => run(&context, operation, &body).await,
        None => Err(SqsError::unsupported(
            "the local SQS speaks the JSON protocol: send X-Amz-Target: AmazonSQS.<operation> (SDKs since late 2023 do)",
        )),
    };
    match result {
        Ok(value) => response(StatusCode::OK, &value),
        Err(error) => {
            if !error.is_sender_fault() {
                tracing::error!(operation = target, error = %error.message, "the local SQS could not answer");
            }
            error_response(&error)
        }
    }
}

fn response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    if let Ok(id) = HeaderValue::from_str(&RandomIds.uuid().to_string()) {
        response.headers_mut().insert("x-amzn-requestid", id);
    }
    response
}

fn error_response(error: &SqsError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = response(status, &error.body());
    let fault = if error.is_sender_fault() { "Sender" } else { "Receiver" };
    if let Ok(value) = HeaderValue::from_str(&format!("{};{fault}", error.query_code)) {
        response.headers_mut().insert("x-amzn-query-error", value);
    }
    response
}
