//! Unity Catalog's calls (base `/api/2.1/unity-catalog`), as clients of catalog-managed Delta tables make them.
//!
//! The one catalog is a deployment's own: its schemas are the databases of the Glue-compatible catalog, its tables their
//! tables. A table that was created here has a UUID, which its commit calls name (`table_item` finds the table by it).
//! `commits` has the commit calls, `tables` and `schemas` what clients ask before, `columns` the types.

mod columns;
mod commits;
mod error;
mod names;
mod schemas;
mod table_item;
mod tables;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::context::Context;
pub use error::UnityError;

/// What comes before every path.
pub const BASE: [&str; 3] = ["api", "2.1", "unity-catalog"];
const ROUTES: &str = "catalogs, schemas, staging-tables, tables, delta/preview/commits";

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

/// Status and JSON body of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Answers a call. Never fails: trouble is an answer too.
pub async fn handle(ctx: Context<'_>, request: Request<'_>) -> Answer {
    match route(ctx, request).await {
        Ok(body) => Answer { status: 200, body },
        Err(error) => {
            tracing::info!(status = error.status, code = error.code, message = error.message, "a Unity Catalog call");
            error.answer()
        }
    }
}

async fn route(ctx: Context<'_>, request: Request<'_>) -> Result<Value, UnityError> {
    match (request.method, request.segments) {
        ("GET", ["catalogs"]) => Ok(json!({"catalogs": [catalog(ctx)]})),
        ("GET", ["catalogs", name]) => {
            names::check_catalog(ctx, name)?;
            Ok(catalog(ctx))
        }
        ("GET", ["schemas"]) => schemas::list(ctx, request).await,
        ("POST", ["schemas"]) => schemas::create(ctx, request.body()?).await,
        ("GET", ["schemas", full_name]) => schemas::get(ctx, full_name).await,
        ("DELETE", ["schemas", full_name]) => schemas::delete(ctx, full_name, request.query("force")).await,
        ("POST", ["staging-tables"]) => tables::stage(ctx, request.body()?).await,
        ("GET", ["tables"]) => tables::list(ctx, request).await,
        ("POST", ["tables"]) => tables::create(ctx, request.body()?).await,
        ("GET", ["tables", full_name]) => tables::get(ctx, full_name).await,
        ("DELETE", ["tables", full_name]) => tables::delete(ctx, full_name).await,
        ("POST", ["delta", "preview", "commits"]) => commits::commit(ctx, request.body()?).await,
        ("GET", ["delta", "preview", "commits"]) => commits::list(ctx, request).await,
        (_, ["temporary-table-credentials" | "temporary-path-credentials", ..]) => {
            Err(UnityError::unimplemented("no credentials are given out: clients read and write S3 with their own"))
        }
        (method, segments) => {
            Err(UnityError::not_found(format!("{method} {} is not served; there are: {ROUTES}", segments.join("/"))))
        }
    }
}

fn catalog(ctx: Context<'_>) -> Value {
    let settings = &ctx.app.settings;
    json!({"name": settings.unity.catalog, "id": settings.account_id, "comment": "databases of this catalog"})
}
