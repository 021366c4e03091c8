//! What only the laptop has: moving the clock, holding events back, dead letters. Under `/local`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use lakewarden_core::store::{Clock, QueueName};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::{ClockError, parse_duration};
use crate::deliver::rfc3339;
use crate::schedule;
use crate::sqs::DeadLetters;
use crate::system::Shared;

const ROUTES: &str = "GET and POST /local/clock, GET /local/endpoints, GET /local/events, POST /local/events/pause, \
                      POST /local/events/resume, GET /local/dead-letters, POST /local/dead-letters/redrive, \
                      POST /local/schedule/run, GET /local/idle, GET /local/usage";

/// Dead letters listed for each queue, oldest first.
const DEAD_LETTERS_MOST: usize = 1_000;

pub fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/clock", get(show_clock).post(advance_clock))
        .route("/endpoints", get(endpoints))
        .route("/events", get(events))
        .route("/events/pause", post(pause))
        .route("/events/resume", post(resume))
        .route("/dead-letters", get(dead_letters))
        .route("/dead-letters/redrive", post(redrive))
        .route("/schedule/run", post(run_schedule))
        .route("/idle", get(idle))
        .route("/usage", get(usage))
        .fallback(unknown)
}

fn refusal(status: StatusCode, text: impl std::fmt::Display) -> Response {
    (status, Json(json!({ "message": text.to_string() }))).into_response()
}

async fn unknown() -> Response {
    refusal(StatusCode::NOT_FOUND, format!("There is no such local route; there are: {ROUTES}."))
}

fn clock_json(shared: &Shared) -> Json<Value> {
    let now_ms = shared.clock.now_ms();
    Json(json!({ "now": rfc3339(now_ms), "now_ms": now_ms, "offset_ms": shared.clock.offset_ms() }))
}

async fn show_clock(State(shared): State<Arc<Shared>>) -> Json<Value> {
    clock_json(&shared)
}

#[derive(Deserialize)]
struct Advance {
    advance: String,
}

async fn advance_clock(State(shared): State<Arc<Shared>>, body: String) -> Response {
    let Ok(Advance { advance }) = serde_json::from_str(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "The body should look like {\"advance\": \"4d\"}.");
    };
    let by = match parse_duration(&advance) {
        Ok(by) => by,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, error),
    };
    match shared.clock.advance(by) {
        Ok(_) => {}
        Err(error @ ClockError::TooFar) => return refusal(StatusCode::BAD_REQUEST, error),
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
    shared.schedule.look_again();
    clock_json(&shared).into_response()
}

async fn endpoints(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let mut endpoints = shared.endpoints.to_json();
    let account_id = &shared.app.settings.account_id;
    let queues: serde_json::Map<String, Value> = QueueName::ALL
        .into_iter()
        .map(|queue| (queue.as_str().to_owned(), json!(shared.endpoints.queue_url(queue, account_id))))
        .collect();
    if let Some(members) = endpoints.as_object_mut() {
        members.insert("account_id".to_owned(), json!(account_id));
        members.insert("queues".to_owned(), Value::Object(queues));
    }
    Json(endpoints)
}

/// What is under way: events not handed on yet, messages in the queues, batches at work.
async fn in_the_air(shared: &Shared) -> Result<Value, String> {
    let events = shared.objects.count_events().await.map_err(|error| error.to_string())?;
    let mut queues = serde_json::Map::new();
    for queue in QueueName::ALL {
        let counts = shared.queues.counts(queue.as_str()).await.map_err(|error| error.to_string())?;
        let counted = json!({"visible": counts.visible, "in_flight": counts.in_flight, "delayed": counts.delayed});
        queues.insert(queue.as_str().to_owned(), counted);
    }
    Ok(json!({
        "paused": shared.delivery.is_paused(),
        "events": events,
        "messages": queues,
        "batches_at_work": shared.delivery.in_flight(),
    }))
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    match in_the_air(&shared).await {
        Ok(state) => Json(state).into_response(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

async fn pause(State(shared): State<Arc<Shared>>) -> Json<Value> {
    shared.delivery.pause();
    Json(json!({ "paused": true }))
}

async fn resume(State(shared): State<Arc<Shared>>) -> Json<Value> {
    shared.delivery.resume();
    Json(json!({ "paused": false }))
}

async fn dead_letters(State(shared): State<Arc<Shared>>) -> Response {
    let mut letters = Vec::new();
    for queue in QueueName::ALL {
        match shared.queues.dead_letters(queue.as_str(), None, DEAD_LETTERS_MOST).await {
            Ok(dead) => letters.extend(dead.into_iter().map(|letter| {
                json!({
                    "queue": queue.as_str(),
                    "message_id": letter.message_id,
                    "body": letter.body,
                    "receives": letter.receives,
                    "sent": rfc3339(letter.sent_ms),
                    "given_up": rfc3339(letter.dead_ms),
                    "last_error": letter.last_error,
                })
            })),
            Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
    Json(json!({ "dead_letters": letters })).into_response()
}

async fn redrive(State(shared): State<Arc<Shared>>) -> Response {
    let mut redriven = 0;
    for queue in QueueName::ALL {
        match shared.queues.redrive(queue.as_str(), DeadLetters::All).await {
            Ok(count) => redriven += count,
            Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
    Json(json!({ "redriven": redriven })).into_response()
}

async fn run_schedule(State(shared): State<Arc<Shared>>) -> Response {
    match schedule::run_planner(&shared).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// What the functions have asked of the stores since the start: whole numbers that only grow, so two readings give what
/// lies between them.
async fn usage(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let items = shared.app.ports.items.item_usage();
    let objects = shared.app.ports.objects.object_usage();
    Json(json!({
        "items": {
            "gets": items.gets,
            "batch_gets": items.batch_gets,
            "queries": items.queries,
            "puts": items.puts,
            "deletes": items.deletes,
            "batch_deletes": items.batch_deletes,
            "transactions": items.transactions,
            "items_read": items.items_read,
            "read_half_units": items.read_half_units,
            "write_units": items.write_units,
        },
        "objects": {
            "gets": objects.gets,
            "heads": objects.heads,
            "lists": objects.lists,
            "puts": objects.puts,
            "copies": objects.copies,
            "deletes": objects.deletes,
            "batch_deletes": objects.batch_deletes,
            "bytes_read": objects.bytes_read,
            "bytes_written": objects.bytes_written,
        },
    }))
}

/// Idle: no event, no message to handle now (or to try again), no batch at work, no due schedule. Messages that were sent
/// for later do not count: a dropped table is looked after once more a quarter of an hour later. Tests wait for it.
async fn idle(State(shared): State<Arc<Shared>>) -> Response {
    // Looked at before what is in the air, which is where its work goes.
    let is_busy = shared.schedule.is_busy(shared.clock.now_ms());
    match in_the_air(&shared).await {
        Ok(state) => {
            let count = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
            let queues = state.get("messages").and_then(Value::as_object);
            let waiting: u64 = queues
                .into_iter()
                .flatten()
                .map(|(_, queue)| count(queue.get("visible")) + count(queue.get("in_flight")))
                .sum();
            let events = count(state.get("events"));
            let is_busy = is_busy || shared.delivery.in_flight() > 0;
            Json(json!({ "idle": events + waiting == 0 && !is_busy, "state": state })).into_response()
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
