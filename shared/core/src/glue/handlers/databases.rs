//! Database operations.

use serde_json::{Value, json};

use super::super::input::Read;
use super::super::render::{self, Sized};
use super::super::{GlueException, input::Members};
use super::tags::tags_in;
use super::{add_token, members, name_position, page_size};
use crate::catalog::{self, Scope};
use crate::ports::App;

const PAGE_MAX: usize = 100;

fn database_input(input: &mut Members) -> Result<Members, GlueException> {
    let Some(Value::Object(database)) = input.remove("DatabaseInput") else {
        return Err(GlueException::invalid_input("DatabaseInput is required."));
    };
    database.refuse(&["TargetDatabase", "FederatedDatabase"], "databases that point elsewhere cannot be kept")?;
    Ok(database)
}

/// Keeps what `AttributesToGet` asks for; no database has a target.
fn attributes(input: &Members, database: Value) -> Value {
    if input.list("AttributesToGet").is_empty() {
        return database;
    }
    let mut database = members(database);
    database.retain(|name, _| name == "Name");
    Value::Object(database)
}

pub(in crate::glue) async fn create_database(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let database = database_input(&mut input)?;
    catalog::create_tagged_database(&app.ports, database, tags_in(&input, "Tags")).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn update_database(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let database = database_input(&mut input)?;
    catalog::update_database(&app.ports, input.required("Name")?, database).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn get_database(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let database = catalog::get_database(&app.ports, input.required("Name")?).await?;
    Ok(json!({ "Database": render::database(&database, &app.settings.account_id) }))
}

pub(in crate::glue) async fn get_databases(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    // Databases shared by other accounts: there are none.
    if matches!(input.text("ResourceShareType"), Some("FOREIGN" | "FEDERATED")) {
        return Ok(json!({ "DatabaseList": [] }));
    }
    let scope = Scope(&["GetDatabases"]);
    let after = name_position(app, &input, &scope).await?;
    let limit = page_size(&input, PAGE_MAX);
    let (databases, mut next) = catalog::list_databases(&app.ports, after, limit).await?;
    let mut shown = Sized::default();
    let mut last: Option<String> = None;
    for database in &databases {
        if !shown.push(attributes(&input, render::database(database, &app.settings.account_id))) {
            next = last;
            break;
        }
        last = Some(database.name.clone());
    }
    let mut output = Members::new();
    output.insert("DatabaseList".to_owned(), Value::Array(shown.into_entries()));
    add_token(app, &mut output, &scope, next.as_deref().map(str::as_bytes)).await?;
    Ok(Value::Object(output))
}

pub(in crate::glue) async fn delete_database(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    catalog::drop_database(&app.ports, input.required("Name")?).await?;
    Ok(json!({}))
}
