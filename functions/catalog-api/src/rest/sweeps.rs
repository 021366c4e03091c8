//! Sweeps of a table: start one, look at runs, read a report, ask about one object.

use lakewarden_core::ports::App;
use lakewarden_core::sweep::rest;
use serde_json::{Map, Value};

use super::{RestAnswer, RestError, RestRequest};

/// `{"mode": "dry_run" | "ordinary"}`; 202 with the queued run.
pub async fn start(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table) = (request.path("database"), request.path("table"));
    Ok(RestAnswer::accepted(rest::start(app, database, table, &Value::Object(input)).await?))
}

/// Runs of the table, newest first.
pub async fn list(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let token = request.query("next_token");
    Ok(RestAnswer::ok(rest::list(app, request.path("database"), request.path("table"), token).await?))
}

/// One run.
pub async fn get(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::ok(rest::get(app, request.path("database"), request.path("table"), request.path("run")).await?))
}

/// `{"run", "prefix", "key"}`: brings back what runs took away; 202 with the queued run.
pub async fn restore(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table) = (request.path("database"), request.path("table"));
    Ok(RestAnswer::accepted(rest::restore(app, database, table, &Value::Object(input)).await?))
}

/// Asks a run to end; 202 with the run as it is until then.
pub async fn cancel(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table, run) = (request.path("database"), request.path("table"), request.path("run"));
    Ok(RestAnswer::accepted(rest::cancel(app, database, table, run).await?))
}

/// One page of a run's report.
pub async fn report(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table, run) = (request.path("database"), request.path("table"), request.path("run"));
    Ok(RestAnswer::ok(rest::report(app, database, table, run, request.query("next_token")).await?))
}

/// `{"key": key or S3 URI}`: what a run would decide on that object now, and why.
pub async fn explain(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table) = (request.path("database"), request.path("table"));
    Ok(RestAnswer::ok(rest::explain(app, database, table, &Value::Object(input), request.deadline).await?))
}
