//! Lambda: synchronous commits and verdicts behind API Gateway. The laptop calls [`handle`] with the same events.

mod answer;
mod commands;
mod request;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use aws_lambda_events::http::Method;
use lakewarden_core::ports::{App, Deadline};

use answer::Answer;
use request::Call;

const ROUTES: &str = "POST /v1/commits, GET /v1/commits?location=, GET /v1/commits/{proposal_id}, \
    GET /v1/commits/alarms?location=, POST and GET /v1/databases/{database}/tables/{table}/commits, \
    GET /v1/databases/{database}/tables/{table}/commits/alarms";

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
    match (&call.method, segments.as_slice()) {
        (&Method::POST, ["v1", "commits"]) => commands::propose(app, call, None, deadline).await,
        (&Method::GET, ["v1", "commits"]) => commands::list(app, call, None).await,
        (&Method::GET, ["v1", "commits", "alarms"]) => commands::alarms(app, call, None).await,
        (&Method::GET, ["v1", "commits", id]) => commands::get(app, call, id).await,
        (&Method::POST, ["v1", "databases", database, "tables", table, "commits"]) => {
            match commands::locate(app, database, table).await {
                Ok(root) => commands::propose(app, call, Some(root), deadline).await,
                Err(answer) => answer,
            }
        }
        (&Method::GET, ["v1", "databases", database, "tables", table, "commits"]) => {
            match commands::locate(app, database, table).await {
                Ok(root) => commands::list(app, call, Some(root)).await,
                Err(answer) => answer,
            }
        }
        (&Method::GET, ["v1", "databases", database, "tables", table, "commits", "alarms"]) => {
            match commands::locate(app, database, table).await {
                Ok(root) => commands::alarms(app, call, Some(root)).await,
                Err(answer) => answer,
            }
        }
        _ => Answer::error(
            404,
            "UnknownRoute",
            format!("{} {} does not exist", call.method, call.path),
            &format!("there are: {ROUTES}"),
        ),
    }
}

#[cfg(test)]
mod tests;
