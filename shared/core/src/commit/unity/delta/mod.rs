//! The Delta API of Unity Catalog (`/delta/v1`): tables by name, one call for a commit with what it requires, typed errors.
//! A thin layer over what the older calls do: the same tables, the same ids, the same ratification.
//!
//! [`tables`](self::tables) creates and loads, [`update`] carries updates out, [`says`] holds what a client says of its
//! commit against the commit, [`wire`] has the shapes.

mod error;
mod says;
mod tables;
mod update;
mod wire;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::routes::{Method, Route, find};
use super::{Answer, Request};
use crate::commit::context::Context;
use error::DeltaError;

/// The newest protocol of this API that is served.
const PROTOCOL: &str = "1.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Config,
    Stage,
    Create,
    Load,
    Update,
    Delete,
    Exists,
    Metrics,
    /// Of a table, of a table that is about to be created, or of a path.
    TableCredentials,
    StagingCredentials,
    PathCredentials,
}

const fn route(method: Method, path: &'static str, call: Call) -> Route<Call> {
    Route { method, path, call }
}

/// Every route, below [`super::BASE`].
pub(super) const ROUTES: &[Route<Call>] = &[
    route(Method::Get, "/delta/v1/config", Call::Config),
    route(Method::Post, "/delta/v1/catalogs/{catalog}/schemas/{schema}/staging-tables", Call::Stage),
    route(Method::Post, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables", Call::Create),
    route(Method::Get, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}", Call::Load),
    route(Method::Post, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}", Call::Update),
    route(Method::Delete, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}", Call::Delete),
    route(Method::Head, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}", Call::Exists),
    route(Method::Post, "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/metrics", Call::Metrics),
    route(
        Method::Get,
        "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/credentials",
        Call::TableCredentials,
    ),
    route(Method::Get, "/delta/v1/staging-tables/{table_id}/credentials", Call::StagingCredentials),
    route(Method::Get, "/delta/v1/temporary-path-credentials", Call::PathCredentials),
];

/// Answers a call. Never fails: trouble is an answer too.
pub(super) async fn handle(ctx: Context<'_>, request: Request<'_>) -> Answer {
    match answer(ctx, request).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::info!(
                status = error.status,
                kind = error.kind,
                message = error.message,
                "a call of the Delta API"
            );
            error.answer()
        }
    }
}

async fn answer(ctx: Context<'_>, request: Request<'_>) -> Result<Answer, DeltaError> {
    let Some((call, names)) = find(ROUTES, request.method, request.segments) else {
        let text = format!("{} /{} is not served; ask /delta/v1/config", request.method, request.segments.join("/"));
        return Err(DeltaError::not_implemented(text));
    };
    let ok = |body: Value| Answer { status: 200, body };
    let done = Answer { status: 204, body: Value::Null };
    match (call, names.as_slice()) {
        (Call::Config, _) => config(ctx, request).map(ok),
        (Call::StagingCredentials, &[table_id]) => {
            super::tables::place_of(ctx, table_id).await?;
            Ok(ok(no_credentials()))
        }
        (Call::PathCredentials, _) => {
            check_operation(request)?;
            let missing = || DeltaError::bad_request("`location` is missing");
            request.query("location").map(|_| ok(no_credentials())).ok_or_else(missing)
        }
        (Call::Stage, &[catalog, schema]) => tables::stage(ctx, (catalog, schema), body(request)?).await.map(ok),
        (Call::Create, &[catalog, schema]) => tables::create(ctx, (catalog, schema), body(request)?).await.map(ok),
        (_, &[catalog, schema, table]) => {
            let named = tables::find(ctx, [catalog, schema, table]).await?;
            match call {
                Call::Load => tables::load(ctx, &named).await.map(ok),
                Call::Update => update::update(ctx, &named, body(request)?).await.map(ok),
                Call::Delete => tables::delete(ctx, &named).await.map(|()| done),
                Call::TableCredentials => check_operation(request).map(|()| ok(no_credentials())),
                Call::Metrics => tables::take_metrics(&named, &body(request)?).map(|()| done),
                _ => Ok(done),
            }
        }
        _ => Err(DeltaError::not_implemented("this is not served")),
    }
}

/// None are given out: clients read and write S3 with their own. An empty list says so; with an error some would stop
/// before they look for theirs.
fn no_credentials() -> Value {
    json!({"storage-credentials": []})
}

fn check_operation(request: Request<'_>) -> Result<(), DeltaError> {
    match request.query("operation") {
        Some("READ" | "READ_WRITE") => Ok(()),
        _ => Err(DeltaError::bad_request("`operation` is READ or READ_WRITE")),
    }
}

fn body<T: DeserializeOwned>(request: Request<'_>) -> Result<T, DeltaError> {
    serde_json::from_slice(request.body).map_err(|error| DeltaError::bad_request(format!("the body: {error}")))
}

/// What is served. Clients say the highest minor version that they know of each major one, `1.1,2.3`.
fn config(ctx: Context<'_>, request: Request<'_>) -> Result<Value, DeltaError> {
    let catalog = request.query("catalog").ok_or_else(|| DeltaError::bad_request("`catalog` is missing"))?;
    super::names::check_catalog(ctx, catalog).map_err(|error| DeltaError::no_catalog(error.message))?;
    let known = request.query("protocol-versions").ok_or_else(|| {
        DeltaError::bad_request("`protocol-versions` is missing: name the versions that you know, as in 1.0")
    })?;
    let has_ours = known.split(',').any(|one| {
        let (major, minor) = one.trim().split_once('.').unwrap_or((one.trim(), "0"));
        major == "1" && minor.parse::<u32>().is_ok()
    });
    if !has_ours {
        let text = format!("protocol-versions is `{known}`, and {PROTOCOL} is served");
        return Err(DeltaError::invalid(text));
    }
    // As its specification lists them: behind `/delta`.
    let served = ROUTES.iter().filter(|route| route.call != Call::Config);
    let endpoints: Vec<String> = served
        .map(|route| format!("{} {}", route.method.name(), route.path.strip_prefix("/delta").unwrap_or(route.path)))
        .collect();
    Ok(json!({"endpoints": endpoints, "protocol-version": PROTOCOL}))
}
