//! Lambda: synchronous commits and verdicts behind API Gateway. The laptop calls [`handle`] with the same events.

mod answer;
mod at_version;
mod commands;
mod rebuild;
mod request;
mod unity;
mod uploads;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use aws_lambda_events::http::Method;
use lakewarden_core::commit::unity::BASE;
use lakewarden_core::ports::{App, Deadline};

use answer::Answer;
use request::Call;

const ROUTES: &str = "POST /v1/commits, GET /v1/commits?location=, GET /v1/commits/{proposal_id}, \
    GET /v1/commits/alarms?location=, POST /v1/commits/uploads, \
    POST and GET /v1/databases/{database}/tables/{table}/commits, \
    GET /v1/databases/{database}/tables/{table}/commits/{proposal_id}, \
    GET /v1/databases/{database}/tables/{table}/commits/alarms, \
    POST and GET /v1/databases/{database}/tables/{table}/commits/rebuild, \
    POST /v1/databases/{database}/tables/{table}/commits/uploads, and Unity Catalog's below /api/2.1/unity-catalog";

/// Answers one request. Never fails: trouble is an answer too.
pub async fn handle(app: &App, request: ApiGatewayV2httpRequest, deadline: Deadline) -> ApiGatewayV2httpResponse {
    let answer = match Call::read(&request) {
        Ok(call) => route(app, &call, deadline).await,
        Err(answer) => answer,
    };
    if answer.status >= 500 {
        tracing::error!(status = answer.status, body = %answer.body, "a request failed");
    }
    answer.into_response()
}

async fn route(app: &App, call: &Call, deadline: Deadline) -> Answer {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    if let ["v1", "databases", database, "tables", table, "commits", "rebuild"] = segments.as_slice() {
        return rebuild::answer(app, call, (database, table), deadline).await;
    }
    if let Some(rest) = segments.strip_prefix(BASE.as_slice()) {
        return unity::answer(app, call, rest, deadline).await;
    }
    let (root, rest) = match segments.as_slice() {
        ["v1", "commits", rest @ ..] => (None, rest),
        ["v1", "databases", database, "tables", table, "commits", rest @ ..] => {
            match commands::locate(app, database, table).await {
                Ok(root) => (Some(root), rest),
                Err(answer) => return answer,
            }
        }
        _ => return unknown(call),
    };
    match (&call.method, rest) {
        (&Method::POST, []) => commands::propose(app, call, root, deadline).await,
        (&Method::GET, []) => commands::list(app, call, root).await,
        (&Method::GET, ["alarms"]) => commands::alarms(app, call, root).await,
        (&Method::POST, ["uploads"]) => uploads::offer(app, call, root).await,
        (&Method::GET, [id]) => commands::get(app, call, root, id).await,
        _ => unknown(call),
    }
}

fn unknown(call: &Call) -> Answer {
    let text = format!("{} {} does not exist", call.method, call.path);
    Answer::error(404, "UnknownRoute", text, &format!("there are: {ROUTES}"))
}

#[cfg(test)]
mod tests;
