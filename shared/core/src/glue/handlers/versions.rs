//! Operations on versions of tables.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::Read;
use super::super::render::{self, Sized};
use super::{add_token, members, page_size, position};
use crate::catalog::tables;
use crate::catalog::{CatalogError, Scope, TableDefinition, TableRef, fold};
use crate::ports::App;

const PAGE_MAX: usize = 100;

fn shown(app: &App, table: &TableRef, definition: &TableDefinition) -> Value {
    json!({
        "Table": render::table(table, definition, &app.settings.account_id),
        "VersionId": definition.version.to_string(),
    })
}

pub(in crate::glue) async fn get_table_version(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, name) = (input.required("DatabaseName")?, input.required("TableName")?);
    let (table, definition) = tables::get_version(&app.ports, database, name, input.text("VersionId")).await?;
    Ok(json!({ "TableVersion": shown(app, &table, &definition) }))
}

/// The current one first, then the kept ones, newest first.
pub(in crate::glue) async fn get_table_versions(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, name) = (input.required("DatabaseName")?, input.required("TableName")?);
    let (folded_database, folded_name) = (fold(database), fold(name));
    let scope = Scope(&["GetTableVersions", &folded_database, &folded_name]);
    let before = match position(app, &input, &scope).await? {
        None => None,
        Some(bytes) => {
            let bytes: [u8; 8] = bytes.try_into().map_err(|_| CatalogError::ForeignToken)?;
            Some(i64::from_be_bytes(bytes))
        }
    };
    let limit = page_size(&input, PAGE_MAX);
    let page = tables::list_versions(&app.ports, database, name, before, limit).await?;
    let mut next = page.next;
    let mut entries = Sized::default();
    let mut last = None;
    for definition in &page.versions {
        if !entries.push(shown(app, &page.table, definition)) {
            next = last;
            break;
        }
        last = Some(definition.version);
    }
    let mut output = members(json!({ "TableVersions": entries.into_entries() }));
    let next = next.map(i64::to_be_bytes);
    add_token(app, &mut output, &scope, next.as_ref().map(<[u8; 8]>::as_slice)).await?;
    Ok(Value::Object(output))
}

async fn delete(app: &App, database: &str, table: &str, entries: &[String]) -> Result<Vec<Value>, GlueException> {
    let answers = tables::delete_versions(&app.ports, database, table, entries).await?;
    let failed = entries.iter().zip(answers).filter_map(|(version, answer)| Some((version, answer.err()?)));
    Ok(failed
        .map(|(version, error)| {
            json!({ "TableName": table, "VersionId": version, "ErrorDetail": render::error_detail(error, None) })
        })
        .collect())
}

pub(in crate::glue) async fn delete_table_version(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, table) = (input.required("DatabaseName")?, input.required("TableName")?);
    let version = [input.required("VersionId")?.to_owned()];
    let answers = tables::delete_versions(&app.ports, database, table, &version).await?;
    answers.into_iter().collect::<Result<(), CatalogError>>()?;
    Ok(json!({}))
}

/// No `Errors` when there are none.
pub(in crate::glue) async fn batch_delete_table_version(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, table) = (input.required("DatabaseName")?, input.required("TableName")?);
    let errors = delete(app, database, table, &input.texts("VersionIds")).await?;
    Ok(if errors.is_empty() { json!({}) } else { json!({ "Errors": errors }) })
}
