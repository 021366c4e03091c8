//! Handlers of operations: checked input to typed call, typed answer to output.

pub(super) mod catalogs;
pub(super) mod databases;
pub(super) mod functions;
pub(super) mod indexes;
mod moment;
pub(super) mod partitions;
pub(super) mod search;
pub(super) mod statistics;
pub(super) mod tables;
pub(super) mod tags;
pub(super) mod versions;

use serde_json::{Map, Value};

use super::input::{Members, Read};
use crate::catalog::{self, CatalogError, Scope};
use crate::ports::App;

fn members(input: Value) -> Members {
    match input {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// How many entries a page may have.
fn page_size(input: &Members, default: usize) -> usize {
    input.number("MaxResults").and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

/// Where a listing continues, from its `NextToken`; empty means the beginning.
async fn position(app: &App, input: &Members, scope: &Scope<'_>) -> Result<Option<Vec<u8>>, CatalogError> {
    match input.text("NextToken") {
        None | Some("") => Ok(None),
        Some(token) => catalog::redeem(&app.ports, scope, token).await.map(Some),
    }
}

/// The same for listings in order of names.
async fn name_position(app: &App, input: &Members, scope: &Scope<'_>) -> Result<Option<String>, CatalogError> {
    let after = position(app, input, scope).await?;
    after.map(|bytes| String::from_utf8(bytes).map_err(|_| CatalogError::ForeignToken)).transpose()
}

/// Adds `NextToken` to an answer that is not the last page.
async fn add_token(
    app: &App,
    output: &mut Members,
    scope: &Scope<'_>,
    next: Option<&[u8]>,
) -> Result<(), CatalogError> {
    if let Some(after) = next {
        output.insert("NextToken".to_owned(), catalog::issue(&app.ports, scope, after).await?.into());
    }
    Ok(())
}
