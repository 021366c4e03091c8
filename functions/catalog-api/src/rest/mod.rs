//! REST on `/v1`, for people and curl. Bodies have the shapes of the service's protocol; errors have its names, with
//! proper HTTP statuses.
//!
//! One table of routes ([`ROUTES`]); each names an operation of the service and says which members path and query give.
//! The operation itself is the one that answers `POST /`.

mod call;
mod conditions;
mod dropped;
mod leases;
#[cfg(test)]
mod openapi;
mod request;
mod route;
mod routes;
mod specs;
mod sweeps;

use http::Method;
use lakewarden_core::glue::{GlueException, GlueExceptionName};
use lakewarden_core::ports::{App, Deadline};
use serde_json::Value;

pub use conditions::Preconditions;
pub use request::RestRequest;
pub use route::{Kind, Query, Revisioned, Route, Target};
pub use routes::ROUTES;

/// An answer of a route. Without a body for 204 and 304.
#[derive(Clone, Debug, PartialEq)]
pub struct RestAnswer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Option<Value>,
}

impl RestAnswer {
    pub fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Some(body).filter(|_| status != 204) }
    }

    pub fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    /// Taken on; it goes on after the answer.
    pub fn accepted(body: Value) -> Self {
        Self::new(202, body)
    }
}

/// A refusal with its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestError {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub failure: GlueException,
}

impl From<GlueException> for RestError {
    fn from(failure: GlueException) -> Self {
        Self { status: failure.name.rest_status(), headers: Vec::new(), failure }
    }
}

/// Answers a request to `path` (percent-encoded) with the route that fits. HEAD is GET; whoever sends the answer leaves
/// its body out. What is wrong with the conditions matters only where there is a route.
///
/// # Errors
/// What the route refuses; `UnknownOperationException`, which lists the routes, when none fits.
pub async fn dispatch(
    app: &App,
    method: &Method,
    path: &str,
    query: &str,
    preconditions: Result<Preconditions, GlueException>,
    body: Vec<u8>,
    deadline: Deadline,
) -> Result<RestAnswer, RestError> {
    let segments = request::decode_path(path)?;
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(parameters) = request::match_path(route.path, &segments) else { continue };
        if route.method == method {
            return call::serve(app, route, RestRequest::new(parameters, query, preconditions?, body, deadline)?).await;
        }
        others.push(route.method);
    }
    Err(if others.is_empty() { no_route() } else { other_methods(&others) })
}

fn no_route() -> RestError {
    let served: Vec<String> = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let text = format!("No such route. Served: POST / (the service's JSON protocol), {}.", served.join(", "));
    GlueException::new(GlueExceptionName::UnknownOperation, text).into()
}

fn other_methods(methods: &[&str]) -> RestError {
    let mut allowed = methods.to_vec();
    if methods.contains(&"GET") {
        allowed.push("HEAD");
    }
    let allowed = allowed.join(", ");
    let text = format!("This address is not served with that method; it is with {allowed}.");
    RestError {
        status: 405,
        headers: vec![("allow", allowed)],
        failure: GlueException::new(GlueExceptionName::UnknownOperation, text),
    }
}
