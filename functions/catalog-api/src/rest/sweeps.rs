//! Sweeps of a table: start one, look at runs, read a report.

use lakewarden_core::glue::GlueException;
use lakewarden_core::ports::App;
use lakewarden_core::sweep::rest;

use super::{RestAnswer, RestRequest};

/// `{"mode": "dry_run" | "ordinary"}`; 202 with the queued run.
pub async fn start(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    request.allow_query(&[])?;
    let body = serde_json::from_slice(&request.body).map_err(|error| {
        GlueException::invalid_input(format!("The body should be JSON like {{\"mode\": \"dry_run\"}}: {error}."))
    })?;
    let run = rest::start(app, request.path("database"), request.path("table"), &body).await?;
    Ok(RestAnswer::accepted(run))
}

/// Runs of the table, newest first.
pub async fn list(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    request.allow_query(&["next_token"])?;
    let token = request.query("next_token");
    Ok(RestAnswer::ok(rest::list(app, request.path("database"), request.path("table"), token).await?))
}

/// One run.
pub async fn get(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    request.allow_query(&[])?;
    Ok(RestAnswer::ok(rest::get(app, request.path("database"), request.path("table"), request.path("run")).await?))
}

/// One page of a run's report.
pub async fn report(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    request.allow_query(&["next_token"])?;
    let (database, table, run) = (request.path("database"), request.path("table"), request.path("run"));
    Ok(RestAnswer::ok(rest::report(app, database, table, run, request.query("next_token")).await?))
}
