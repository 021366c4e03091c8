//! Unity Catalog's calls (base `/api/2.1/unity-catalog`), as clients of catalog-managed Delta tables make them.
//!
//! The one catalog is a deployment's own: its schemas are the databases of the Glue-compatible catalog, its tables their
//! tables. A table that was created here has a UUID, which its commit calls name (`table_item` finds the table by it).
//! `commits` has the commit calls, `tables` and `schemas` what clients ask before, `credentials` says that there are none,
//! `columns` the types, `delta` the newer
//! Delta API over the same tables.

mod columns;
mod commits;
mod credentials;
mod delta;
mod error;
mod names;
pub mod routes;
mod schemas;
mod table_item;
mod tables;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::context::Context;
pub use error::UnityError;
use routes::{Method, Route, find};

/// What comes before every path.
pub const BASE: [&str; 3] = ["api", "2.1", "unity-catalog"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Catalogs,
    Catalog,
    Schemas,
    NewSchema,
    Schema,
    DropSchema,
    Stage,
    Tables,
    NewTable,
    Table,
    DropTable,
    Commit,
    Commits,
    TableCredentials,
    PathCredentials,
}

const fn route(method: Method, path: &'static str, call: Call) -> Route<Call> {
    Route { method, path, call }
}

/// Every route of the older calls, below [`BASE`]; those of the Delta API are in [`delta`].
const ROUTES: &[Route<Call>] = &[
    route(Method::Get, "/catalogs", Call::Catalogs),
    route(Method::Get, "/catalogs/{name}", Call::Catalog),
    route(Method::Get, "/schemas", Call::Schemas),
    route(Method::Post, "/schemas", Call::NewSchema),
    route(Method::Get, "/schemas/{full_name}", Call::Schema),
    route(Method::Delete, "/schemas/{full_name}", Call::DropSchema),
    route(Method::Post, "/staging-tables", Call::Stage),
    route(Method::Get, "/tables", Call::Tables),
    route(Method::Post, "/tables", Call::NewTable),
    route(Method::Get, "/tables/{full_name}", Call::Table),
    route(Method::Delete, "/tables/{full_name}", Call::DropTable),
    route(Method::Post, "/delta/preview/commits", Call::Commit),
    route(Method::Get, "/delta/preview/commits", Call::Commits),
    route(Method::Post, "/temporary-table-credentials", Call::TableCredentials),
    route(Method::Post, "/temporary-path-credentials", Call::PathCredentials),
];

/// Methods that are served at a path, given by its segments behind [`BASE`].
pub fn methods_at(segments: &[&str]) -> Vec<&'static str> {
    let mut methods = routes::methods_of(ROUTES, segments);
    methods.extend(routes::methods_of(delta::ROUTES, segments));
    methods
}

/// Methods and paths of everything that is served here, below [`BASE`].
pub fn served() -> impl Iterator<Item = (&'static str, &'static str)> {
    let older = ROUTES.iter().map(|route| (route.method.name(), route.path));
    older.chain(delta::ROUTES.iter().map(|route| (route.method.name(), route.path)))
}

/// A request, as the calls need it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Decoded segments of the path, behind [`BASE`].
    pub segments: &'a [&'a str],
    /// Decoded.
    pub query: &'a [(String, String)],
    pub body: &'a [u8],
}

impl Request<'_> {
    fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn body<T: DeserializeOwned>(&self) -> Result<T, UnityError> {
        serde_json::from_slice(self.body).map_err(|error| UnityError::invalid(format!("the body: {error}")))
    }
}

/// Status and JSON body of an answer; null where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Answers a call. Never fails: trouble is an answer too.
pub async fn handle(ctx: Context<'_>, request: Request<'_>) -> Answer {
    if request.segments.starts_with(&["delta", "v1"]) {
        return delta::handle(ctx, request).await;
    }
    match answer(ctx, request).await {
        Ok(body) => Answer { status: 200, body },
        Err(error) => {
            tracing::info!(status = error.status, code = error.code, message = error.message, "a Unity Catalog call");
            error.answer()
        }
    }
}

async fn answer(ctx: Context<'_>, request: Request<'_>) -> Result<Value, UnityError> {
    let Some((call, names)) = find(ROUTES, request.method, request.segments) else {
        let all: Vec<String> = served().map(|(method, path)| format!("{method} {path}")).collect();
        let asked = format!("{} /{}", request.method, request.segments.join("/"));
        return Err(UnityError::not_found(format!("{asked} is not served; there are: {}", all.join(", "))));
    };
    let name = names.first().copied().unwrap_or_default();
    match call {
        Call::Catalogs => Ok(json!({"catalogs": [catalog(ctx)]})),
        Call::Catalog => {
            names::check_catalog(ctx, name)?;
            Ok(catalog(ctx))
        }
        Call::Schemas => schemas::list(ctx, request).await,
        Call::NewSchema => schemas::create(ctx, request.body()?).await,
        Call::Schema => schemas::get(ctx, name).await,
        Call::DropSchema => schemas::delete(ctx, name, request.query("force")).await,
        Call::Stage => tables::stage(ctx, request.body()?).await,
        Call::Tables => tables::list(ctx, request).await,
        Call::NewTable => tables::create(ctx, request.body()?).await,
        Call::Table => tables::get(ctx, name).await,
        Call::DropTable => tables::delete(ctx, name).await,
        Call::Commit => commits::commit(ctx, request.body()?).await,
        Call::Commits => commits::list(ctx, request).await,
        Call::TableCredentials => credentials::of_table(ctx, request.body()?).await,
        Call::PathCredentials => credentials::of_path(ctx, request.body()?),
    }
}

fn catalog(ctx: Context<'_>) -> Value {
    let settings = &ctx.app.settings;
    json!({"name": settings.unity.catalog, "id": settings.account_id, "comment": "databases of this catalog"})
}
