//! Lambda: synchronous commits and verdicts behind API Gateway. The laptop calls [`handle`] with the same events.

mod answer;
mod at_version;
mod commands;
mod rebuild;
mod request;
mod routes;
mod unity;
mod uploads;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lakewarden_core::commit::unity::routes::{find, methods_of};
use lakewarden_core::commit::unity::{BASE, methods_at};
use lakewarden_core::ports::{App, Deadline};

use answer::Answer;
use request::Call;
use routes::{OF_TABLE, ROUTES, Target};

/// Answers one request. Never fails: trouble is an answer too.
pub async fn handle(app: &App, request: ApiGatewayV2httpRequest, deadline: Deadline) -> ApiGatewayV2httpResponse {
    let answer = match Call::read(&request) {
        Ok(call) => route(app, &call, deadline).await,
        Err(answer) => answer,
    };
    // What is not served at all is no failure.
    if answer.status >= 500 && answer.status != 501 {
        tracing::error!(status = answer.status, body = %answer.body, "a request failed");
    }
    answer.into_response()
}

async fn route(app: &App, call: &Call, deadline: Deadline) -> Answer {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    let below = segments.strip_prefix(BASE.as_slice());
    let methods = below.map_or_else(|| methods_of(ROUTES, &segments), methods_at);
    if !methods.is_empty() && !methods.contains(&call.method.as_str()) {
        return other_method(call, &methods);
    }
    if let Some(rest) = below {
        return unity::answer(app, call, rest, deadline).await;
    }
    let Some((target, names)) = find(ROUTES, call.method.as_str(), &segments) else { return unknown(call) };
    let table = match names.as_slice() {
        [database, table, ..] if segments.get(1) == Some(&OF_TABLE) => Some((*database, *table)),
        _ => None,
    };
    if let (Target::Rebuild, Some(table)) = (target, table) {
        return rebuild::answer(app, call, table, deadline).await;
    }
    let root = match table {
        Some((database, table)) => match commands::locate(app, database, table).await {
            Ok(root) => Some(root),
            Err(answer) => return answer,
        },
        None => None,
    };
    match (target, names.last()) {
        (Target::Propose, _) => commands::propose(app, call, root, deadline).await,
        (Target::List, _) => commands::list(app, call, root).await,
        (Target::Alarms, _) => commands::alarms(app, call, root).await,
        (Target::OfferUpload, _) => uploads::offer(app, call, root).await,
        (Target::Get, Some(id)) => commands::get(app, call, root, id).await,
        (Target::Get | Target::Rebuild, _) => unknown(call),
    }
}

fn other_method(call: &Call, methods: &[&str]) -> Answer {
    let mut methods = methods.to_vec();
    methods.sort_unstable();
    methods.dedup();
    let allow = methods.join(", ");
    let text = format!("{} has no {}", call.path, call.method);
    let answer = Answer::error(405, "MethodNotAllowed", text, &format!("there are: {allow}"));
    Answer { allow: Some(allow.into()), ..answer }
}

fn unknown(call: &Call) -> Answer {
    let text = format!("{} {} does not exist", call.method, call.path);
    let all: Vec<String> = ROUTES.iter().map(|route| format!("{} {}", route.method.name(), route.path)).collect();
    let advice = format!("there are: {}, and Unity Catalog's below /{}", all.join(", "), BASE.join("/"));
    Answer::error(404, "UnknownRoute", text, &advice)
}

#[cfg(test)]
mod tests;
