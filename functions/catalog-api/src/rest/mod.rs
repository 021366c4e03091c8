//! REST on `/v1`, for people and curl. Bodies have the shapes of the service's protocol; errors have its names, with
//! proper HTTP statuses.
//!
//! One table of routes. To serve another: write its handler, add a line to [`ROUTES`].

mod catalog;
mod request;
mod sweeps;

use std::future::Future;
use std::pin::Pin;

use http::Method;
use lakewarden_core::glue::{GlueException, GlueExceptionName};
use lakewarden_core::ports::App;
use serde_json::Value;

pub use request::RestRequest;

/// An answer of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RestAnswer {
    pub status: u16,
    pub body: Value,
}

impl RestAnswer {
    pub fn ok(body: Value) -> Self {
        Self { status: 200, body }
    }

    /// Taken on; it goes on after the answer.
    pub fn accepted(body: Value) -> Self {
        Self { status: 202, body }
    }
}

/// What a handler gives back.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<RestAnswer, GlueException>> + Send + 'a>>;
/// `async fn(&App, RestRequest) -> Result<RestAnswer, GlueException>`, boxed by `route!`.
pub type Handler = for<'a> fn(&'a App, RestRequest) -> Answering<'a>;

/// A method, a path with `{parameters}`, and what answers it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub handler: Handler,
}

/// `route!("GET", "/v1/…/{name}", handler)` with
/// `async fn handler(&App, RestRequest) -> Result<RestAnswer, GlueException>`.
macro_rules! route {
    ($method:literal, $path:literal, $handler:path) => {{
        fn boxed(app: &App, request: RestRequest) -> Answering<'_> {
            Box::pin($handler(app, request))
        }
        Route { method: $method, path: $path, handler: boxed }
    }};
}

/// Everything that is served.
pub static ROUTES: &[Route] = &[
    route!("GET", "/v1/databases", catalog::list_databases),
    route!("GET", "/v1/databases/{database}", catalog::get_database),
    route!("GET", "/v1/databases/{database}/tables", catalog::list_tables),
    route!("GET", "/v1/databases/{database}/tables/{table}", catalog::get_table),
    route!("GET", "/v1/databases/{database}/tables/{table}/partitions", catalog::list_partitions),
    route!("POST", "/v1/databases/{database}/tables/{table}/sweeps", sweeps::start),
    route!("GET", "/v1/databases/{database}/tables/{table}/sweeps", sweeps::list),
    route!("GET", "/v1/databases/{database}/tables/{table}/sweeps/{run}", sweeps::get),
    route!("GET", "/v1/databases/{database}/tables/{table}/sweeps/{run}/report", sweeps::report),
];

/// Answers a request to `path` (percent-encoded) with the route that fits.
///
/// # Errors
/// What the route refuses; `UnknownOperationException`, which lists the routes, when none fits.
pub async fn dispatch(
    app: &App,
    method: &Method,
    path: &str,
    query: &str,
    body: Vec<u8>,
) -> Result<RestAnswer, GlueException> {
    let segments = request::decode_path(path)?;
    for route in ROUTES.iter().filter(|route| route.method == method.as_str()) {
        if let Some(parameters) = request::match_path(route.path, &segments) {
            let request = RestRequest::new(parameters, query, body)?;
            return (route.handler)(app, request).await;
        }
    }
    let served: Vec<String> = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let text = format!("No such route. Served: POST / (the service's JSON protocol), {}.", served.join(", "));
    Err(GlueException::new(GlueExceptionName::UnknownOperation, text))
}
