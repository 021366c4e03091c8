//! Schemas: the catalog's databases.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Request, UnityError, names};
use crate::catalog::tables::list_tables;
use crate::catalog::{Database, create_database, drop_database, get_database, list_databases};
use crate::commit::context::Context;
use crate::location::Location;

const PAGE_MAX: usize = 100;

#[derive(Debug, Deserialize)]
pub(super) struct NewSchema {
    name: String,
    catalog_name: String,
    comment: Option<String>,
    storage_root: Option<String>,
    properties: Option<Map<String, Value>>,
}

pub(super) fn page(request: Request<'_>) -> Result<(usize, Option<String>), UnityError> {
    let limit = match request.query("max_results").map(str::parse::<usize>) {
        None | Some(Ok(0)) => PAGE_MAX,
        Some(Ok(limit)) => limit.min(PAGE_MAX),
        Some(Err(_)) => return Err(UnityError::invalid("max_results is a number")),
    };
    Ok((limit, request.query("page_token").map(str::to_owned)))
}

pub(super) async fn list(ctx: Context<'_>, request: Request<'_>) -> Result<Value, UnityError> {
    names::check_catalog(ctx, request.query("catalog_name").unwrap_or_default())?;
    let (limit, after) = page(request)?;
    let (found, next) = list_databases(ctx.ports(), after, limit).await?;
    let schemas: Vec<Value> = found.iter().map(|database| info(ctx, database)).collect();
    Ok(json!({"schemas": schemas, "next_page_token": next}))
}

pub(super) async fn create(ctx: Context<'_>, new: NewSchema) -> Result<Value, UnityError> {
    names::check_catalog(ctx, &new.catalog_name)?;
    names::check_new("schema", &new.name)?;
    let properties = new.properties.unwrap_or_default();
    let location = new.storage_root.or_else(|| properties.get("location")?.as_str().map(str::to_owned));
    let mut input = Map::from_iter([("Name".to_owned(), Value::from(new.name.as_str()))]);
    if let Some(location) = location {
        Location::parse(&location).map_err(|error| UnityError::invalid(error.to_string()))?;
        input.insert("LocationUri".to_owned(), location.into());
    }
    if let Some(comment) = new.comment {
        input.insert("Description".to_owned(), comment.into());
    }
    if !properties.is_empty() {
        input.insert("Parameters".to_owned(), Value::Object(properties));
    }
    create_database(ctx.ports(), input).await?;
    Ok(info(ctx, &get_database(ctx.ports(), &new.name).await?))
}

pub(super) async fn get(ctx: Context<'_>, full_name: &str) -> Result<Value, UnityError> {
    let name = names::schema(ctx, full_name)?;
    Ok(info(ctx, &get_database(ctx.ports(), name).await?))
}

pub(super) async fn delete(ctx: Context<'_>, full_name: &str, force: Option<&str>) -> Result<Value, UnityError> {
    let name = names::schema(ctx, full_name)?;
    if force != Some("true") && !list_tables(ctx.ports(), name, None, None, 1).await?.tables.is_empty() {
        return Err(UnityError::precondition(format!(
            "the schema {full_name} has tables: drop them, or add ?force=true"
        )));
    }
    drop_database(ctx.ports(), name).await?;
    Ok(json!({}))
}

fn info(ctx: Context<'_>, database: &Database) -> Value {
    let catalog = &ctx.app.settings.unity.catalog;
    let mut info = json!({
        "name": database.name,
        "catalog_name": catalog,
        "full_name": format!("{catalog}.{}", database.name),
        "schema_id": super::table_item::as_uuid(database.head.database_id.as_str()),
        "created_at": database.head.created_ms,
        "properties": database.input.get("Parameters").cloned().unwrap_or_else(|| json!({})),
    });
    if let Some(info) = info.as_object_mut() {
        for (member, from) in [("comment", "Description"), ("storage_root", "LocationUri")] {
            if let Some(value) = database.input.get(from) {
                info.insert(member.to_owned(), value.clone());
            }
        }
    }
    info
}
