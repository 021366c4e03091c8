//! The one catalog there is.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::Read;
use super::members;
use crate::catalog;
use crate::ports::App;

fn shown(app: &App) -> Value {
    let (account, region) = (&app.settings.account_id, &app.settings.region);
    json!({
        "CatalogId": account,
        "Name": account,
        "ResourceArn": format!("arn:aws:glue:{region}:{account}:catalog"),
        "Parameters": {},
        "CreateTableDefaultPermissions": [],
        "CreateDatabaseDefaultPermissions": [],
    })
}

/// Another id than the account's was refused before.
pub(in crate::glue) async fn get_catalog(app: &App, _input: Value) -> Result<Value, GlueException> {
    Ok(json!({ "Catalog": shown(app) }))
}

/// The one catalog, which is the root, unless it is asked to be left out. It has no catalogs below it.
pub(in crate::glue) async fn get_catalogs(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let parent = input.text("ParentCatalogId");
    if let Some(other) = parent.filter(|parent| *parent != app.settings.account_id) {
        return Err(GlueException::not_found(format!("Catalog {other} not found.")));
    }
    let mut is_shown = input.get("IncludeRoot") != Some(&Value::Bool(false));
    if is_shown && let Some(wanted) = input.get("HasDatabases").and_then(Value::as_bool) {
        let (databases, _) = catalog::list_databases(&app.ports, None, 1).await?;
        is_shown = wanted != databases.is_empty();
    }
    let list = if is_shown { vec![shown(app)] } else { Vec::new() };
    Ok(json!({ "CatalogList": list }))
}

/// There was never another catalog to import from.
pub(in crate::glue) async fn get_catalog_import_status(_app: &App, _input: Value) -> Result<Value, GlueException> {
    Ok(json!({ "ImportStatus": { "ImportCompleted": true } }))
}
