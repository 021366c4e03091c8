//! Leases: what writers announce before they write, so that no sweep takes it for left over.

use lakewarden_core::ports::App;
use lakewarden_core::sweep::leases;
use serde_json::{Map, Value, json};

use super::{RestAnswer, RestError, RestRequest};

/// `{"prefixes": [..], "keys": [..], "ttl_seconds": n, "holder": text}`; 201 with the lease and the keys that are missing.
pub async fn grant(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table) = (request.path("database"), request.path("table"));
    Ok(RestAnswer::new(201, leases::grant(app, database, table, &Value::Object(input)).await?))
}

/// Leases of the table, those that have run out and still protect included.
pub async fn list(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table) = (request.path("database"), request.path("table"));
    Ok(RestAnswer::ok(leases::list(app, database, table, request.query("next_token")).await?))
}

/// Heartbeat: `{"ttl_seconds": n}` from now on.
pub async fn renew(app: &App, request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    let (database, table, lease) = (request.path("database"), request.path("table"), request.path("lease"));
    Ok(RestAnswer::ok(leases::renew(app, database, table, lease, &Value::Object(input)).await?))
}

/// Gives a lease back; 204.
pub async fn release(app: &App, request: RestRequest, _input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    leases::release(app, request.path("database"), request.path("table"), request.path("lease")).await?;
    Ok(RestAnswer::new(204, json!({})))
}
