//! User-defined functions.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::super::render::{self, Sized};
use super::{add_token, members, page_size, position};
use crate::catalog::functions::{self, FunctionListing};
use crate::catalog::tables::NamePattern;
use crate::catalog::{CatalogError, Scope, fold};
use crate::ports::App;

const PAGE_MAX: usize = 100;

fn function_input(input: &mut Members) -> Result<Members, GlueException> {
    match input.remove("FunctionInput") {
        Some(Value::Object(function)) => Ok(function),
        _ => Err(GlueException::invalid_input("FunctionInput is required.")),
    }
}

pub(in crate::glue) async fn create_function(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let function = function_input(&mut input)?;
    functions::create_function(&app.ports, input.required("DatabaseName")?, function).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn get_function(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, name) = (input.required("DatabaseName")?, input.required("FunctionName")?);
    let function = functions::get_function(&app.ports, database, name).await?;
    Ok(json!({ "UserDefinedFunction": render::function(function, &app.settings.account_id) }))
}

pub(in crate::glue) async fn update_function(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let function = function_input(&mut input)?;
    let (database, name) = (input.required("DatabaseName")?, input.required("FunctionName")?);
    functions::update_function(&app.ports, database, name, function).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn delete_function(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    functions::drop_function(&app.ports, input.required("DatabaseName")?, input.required("FunctionName")?).await?;
    Ok(json!({}))
}

/// Of one database, or of all.
pub(in crate::glue) async fn get_functions(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, pattern) = (input.text("DatabaseName"), input.required("Pattern")?);
    let function_type = input.text("FunctionType");
    let folded = database.map(fold);
    // An empty name is none of a database.
    let scope =
        Scope(&["GetUserDefinedFunctions", folded.as_deref().unwrap_or(""), pattern, function_type.unwrap_or("")]);
    let after = match position(app, &input, &scope).await? {
        None => None,
        Some(bytes) => Some(serde_json::from_slice(&bytes).map_err(|_| CatalogError::ForeignToken)?),
    };
    let listing = FunctionListing {
        database,
        pattern: NamePattern::parse(pattern)?,
        function_type,
        after,
        limit: page_size(&input, PAGE_MAX),
    };
    let page = functions::list_functions(&app.ports, &listing).await?;
    let mut next = page.next;
    let mut shown = Sized::default();
    let mut last = None;
    for function in page.functions {
        let at = (function.database.clone(), function.name.clone());
        if !shown.push(render::function(function, &app.settings.account_id)) {
            next = last;
            break;
        }
        last = Some(at);
    }
    let mut output = members(json!({ "UserDefinedFunctions": shown.into_entries() }));
    let next = next.map(|(database, name)| json!([database, name]).to_string());
    add_token(app, &mut output, &scope, next.as_deref().map(str::as_bytes)).await?;
    Ok(Value::Object(output))
}
