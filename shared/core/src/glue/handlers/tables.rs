//! Table operations.

use std::collections::HashSet;

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::super::render::{self, Sized};
use super::indexes::new_indexes;
use super::moment::{Asked, check_created};
use super::{add_token, members, name_position, page_size};
use crate::catalog::tables::{self, Archive, NamePattern};
use crate::catalog::{self, CatalogError, Scope, fold};
use crate::ports::App;

const PAGE_MAX: usize = 100;
/// Tables of a batch that are dropped at once.
const DROPS_AT_ONCE: usize = 8;

/// Members of a TableInput that would make it something else than a table of its own.
const FOREIGN_TABLES: [&str; 3] = ["TargetTable", "FederatedTable", "ViewDefinition"];

/// The TableInput with its name, whichever of its two places that was given in.
fn table_input(input: &mut Members) -> Result<Members, GlueException> {
    let Some(Value::Object(table)) = input.remove("TableInput") else {
        return Err(GlueException::invalid_input("TableInput is required."));
    };
    let name = table.required("Name")?;
    if input.text("Name").is_some_and(|outer| fold(outer) != fold(name)) {
        return Err(GlueException::invalid_input("Name and TableInput.Name differ: a table cannot be renamed."));
    }
    table.refuse(&FOREIGN_TABLES, "only tables of this catalog's own can be kept")?;
    Ok(table)
}

/// `OpenTableFormatInput` with nothing but a version marks the table; writing Iceberg metadata is the client's business.
fn mark_iceberg(input: &Members, table: &mut Members) -> Result<(), GlueException> {
    let Some(iceberg) = input.object("OpenTableFormatInput").and_then(|open| open.object("IcebergInput")) else {
        return Ok(());
    };
    iceberg.refuse(&["CreateIcebergTableInput"], "write the Iceberg metadata and name it in Parameters instead")?;
    let parameters = table.entry("Parameters").or_insert_with(|| json!({}));
    if let Value::Object(parameters) = parameters {
        parameters.insert("table_type".to_owned(), json!("ICEBERG"));
    }
    Ok(())
}

pub(in crate::glue) async fn create_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    input.refuse(&["TransactionId"], "transactions of the service cannot be joined")?;
    let indexes = new_indexes(&input)?;
    let mut table = table_input(&mut input)?;
    mark_iceberg(&input, &mut table)?;
    let kept_ms = Some(app.settings.history_retention_ms.max(0));
    tables::create_indexed_table(&app.ports, input.required("DatabaseName")?, table, &indexes, kept_ms).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn get_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let asked = Asked::of(&input)?;
    let (database, name) = (input.required("DatabaseName")?, input.required("Name")?);
    let (mut table, mut definition) = tables::get_table(&app.ports, database, name).await?;
    if let Some(at_ms) = asked.moment(app, &table).await? {
        check_created(&table, at_ms)?;
        (table, definition) = tables::get_version_at(&app.ports, (table, definition), at_ms).await?;
    }
    Ok(json!({ "Table": attributes(&input, render::table(&table, &definition, &app.settings.account_id))? }))
}

/// Keeps what `AttributesToGet` asks for.
fn attributes(input: &Members, table: Value) -> Result<Value, GlueException> {
    let wanted = input.texts("AttributesToGet");
    if wanted.iter().any(|name| name == "LATEST_ICEBERG_METADATA") {
        return Err(GlueException::unsupported(
            "AttributesToGet LATEST_ICEBERG_METADATA is not served yet: read the file that Parameters.metadata_location names.",
        ));
    }
    if wanted.is_empty() || wanted.iter().any(|name| name == "DEFAULT") {
        return Ok(table);
    }
    let mut table = members(table);
    let with_type = wanted.iter().any(|name| name == "TABLE_TYPE");
    table.retain(|name, _| name == "Name" || (name == "TableType" && with_type));
    Ok(Value::Object(table))
}

pub(in crate::glue) async fn get_tables(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    if Asked::of(&input)? != Asked::Latest {
        // Tables that are gone leave nothing behind to list them by.
        let why = "ask for single tables by GetTable, which answers as of a moment";
        input.refuse(&["TransactionId", "QueryAsOfTime"], why)?;
    }
    let database = input.required("DatabaseName")?;
    if input.text("ResourceShareType") == Some("FEDERATED") {
        // Tables of other catalogs: there are none.
        catalog::find_database(app.ports.items.as_ref(), database).await?;
        return Ok(json!({ "TableList": [] }));
    }
    let expression = input.text("Expression").filter(|expression| !expression.trim().is_empty());
    let pattern = expression.map(NamePattern::parse).transpose()?;
    let folded = fold(database);
    let scope = Scope(&["GetTables", &folded, expression.unwrap_or_default()]);
    let after = name_position(app, &input, &scope).await?;
    let limit = page_size(&input, PAGE_MAX);
    let page = tables::list_tables(&app.ports, database, pattern.as_ref(), after, limit).await?;
    let mut next = page.next;
    let mut shown = Sized::default();
    let mut last: Option<String> = None;
    for (table, definition) in &page.tables {
        if !shown.push(attributes(&input, render::table(table, definition, &app.settings.account_id))?) {
            next = last;
            break;
        }
        last = Some(table.name.clone());
    }
    let mut output = Members::new();
    output.insert("TableList".to_owned(), Value::Array(shown.into_entries()));
    add_token(app, &mut output, &scope, next.as_deref().map(str::as_bytes)).await?;
    Ok(Value::Object(output))
}

/// `Force` makes a difference for views of several dialects only, which are not kept.
pub(in crate::glue) async fn update_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    input.refuse(&["TransactionId"], "transactions of the service cannot be joined")?;
    input.refuse(&["UpdateOpenTableFormatInput", "ViewUpdateAction"], "give the whole definition in TableInput")?;
    let table = table_input(&mut input)?;
    let database = input.required("DatabaseName")?;
    let archive = if input.flag("SkipArchive") { Archive::Skip } else { Archive::Keep };
    tables::update_table(&app.ports, database, table, input.text("VersionId"), archive).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn delete_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    input.refuse(&["TransactionId"], "transactions of the service cannot be joined")?;
    tables::drop_table(&app.ports, input.required("DatabaseName")?, input.required("Name")?).await?;
    Ok(json!({}))
}

/// Missing tables are told one by one; a missing database fails all. No `Errors` when there are none.
pub(in crate::glue) async fn batch_delete_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    input.refuse(&["TransactionId"], "transactions of the service cannot be joined")?;
    let database = input.required("DatabaseName")?;
    catalog::find_database(app.ports.items.as_ref(), database).await?;
    let names = input.texts("TablesToDelete");
    let mut seen = HashSet::new();
    let mut drops: Vec<BoxFuture<'_, Result<(), CatalogError>>> = Vec::with_capacity(names.len());
    for name in &names {
        drops.push(if seen.insert(fold(name)) {
            Box::pin(tables::drop_table(&app.ports, database, name))
        } else {
            Box::pin(async { Err(CatalogError::TableNotFound(name.clone())) })
        });
    }
    let answers: Vec<_> = futures::stream::iter(drops).buffered(DROPS_AT_ONCE).collect().await;
    let failed = names.iter().zip(answers).filter_map(|(name, answer)| Some((name, answer.err()?)));
    let errors: Vec<Value> = failed
        .map(|(name, error)| {
            // In batches the service says it without a full stop.
            let text = matches!(error, CatalogError::TableNotFound(_)).then(|| format!("Table {name} not found"));
            json!({ "TableName": name, "ErrorDetail": render::error_detail(error, text) })
        })
        .collect();
    Ok(if errors.is_empty() { json!({}) } else { json!({ "Errors": errors }) })
}
