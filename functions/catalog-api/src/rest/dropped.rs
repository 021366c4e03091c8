//! Dropped tables: list them, remove what they left, or forget them.

use lakewarden_core::ports::App;
use lakewarden_core::sweep::dropped;
use serde_json::{Map, Value, json};

use super::{RestAnswer, RestError, RestRequest};

const TABLE: &str = "dropped_table";

/// Tables that were dropped and whose files may be there still.
pub async fn list(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::ok(dropped::list(app, request.query("next_token")).await?))
}

/// Its files stay, and it is listed no longer.
pub async fn forget(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    dropped::forget(app, request.path(TABLE)).await?;
    Ok(RestAnswer::new(204, json!({})))
}

/// `{"mode": "dry_run" | "ordinary"}`; 202 with the queued run.
pub async fn start(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::accepted(dropped::start(app, request.path(TABLE), &Value::Object(input)).await?))
}

/// One run.
pub async fn get(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::ok(dropped::get(app, request.path(TABLE), request.path("run")).await?))
}

/// Asks a run to end; 202 with the run as it is until then.
pub async fn cancel(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::accepted(dropped::cancel(app, request.path(TABLE), request.path("run")).await?))
}

/// One page of a run's report.
pub async fn report(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let token = request.query("next_token");
    Ok(RestAnswer::ok(dropped::report(app, request.path(TABLE), request.path("run"), token).await?))
}
