//! What the REST side of the catalog offers on sweeps: start a run, look at runs, read a report.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::items::{OptimizerItem, RunRecord, Tally, is_run_id};
use super::optimizer::{decode_token, encode_token, runs_page};
use super::report::{Kind, part_key};
use super::{CatalogDirectory, Mode, SweepError, TableDirectory, TableEntry, plan};
use crate::glue::GlueException;
use crate::ports::App;
use crate::store::{GetOptions, ObjectError};

const RUNS_PAGE_MAX: usize = 100;

/// [`start_in`] on the product's own catalog.
pub async fn start(app: &App, database: &str, table: &str, body: &Value) -> Result<Value, GlueException> {
    start_in(app, &CatalogDirectory::new(app), database, table, body).await
}

/// [`get_in`] on the product's own catalog.
pub async fn get(app: &App, database: &str, table: &str, run_id: &str) -> Result<Value, GlueException> {
    get_in(app, &CatalogDirectory::new(app), database, table, run_id).await
}

/// [`list_in`] on the product's own catalog.
pub async fn list(app: &App, database: &str, table: &str, token: Option<&str>) -> Result<Value, GlueException> {
    list_in(app, &CatalogDirectory::new(app), database, table, token).await
}

/// [`report_in`] on the product's own catalog.
pub async fn report(
    app: &App,
    database: &str,
    table: &str,
    run_id: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    report_in(app, &CatalogDirectory::new(app), database, table, run_id, token).await
}

async fn load_table(directory: &dyn TableDirectory, database: &str, table: &str) -> Result<TableEntry, GlueException> {
    let found = directory.table(&database.to_lowercase(), &table.to_lowercase()).await;
    let found = found.map_err(|error| GlueException::from(SweepError::from(error)))?;
    found.ok_or_else(|| GlueException::not_found(format!("Table {table} not found.")))
}

fn no_optimizer(table: &str) -> GlueException {
    GlueException::not_found(format!(
        "Table {table} has no optimizer of type orphan_file_deletion, and its creation date is what protects older \
         files: create one first."
    ))
}

/// Starts a run: `{"mode": "dry_run" | "ordinary"}`. To be answered with 202; the run is `queued`.
pub async fn start_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    let mode = match body.get("mode").and_then(Value::as_str).and_then(Mode::parse) {
        Some(mode) if mode != Mode::Scheduled => mode,
        _ => return Err(GlueException::invalid_input("mode is `dry_run` or `ordinary`.")),
    };
    let entry = load_table(directory, database, table).await?;
    let started = plan::start_run(app, &entry.id, mode).await?;
    started.map(|run| describe(&run)).ok_or_else(|| no_optimizer(table))
}

/// A run by its id.
pub async fn get_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    run_id: &str,
) -> Result<Value, GlueException> {
    let entry = load_table(directory, database, table).await?;
    Ok(describe(&load_run(app, &entry, run_id).await?))
}

async fn load_run(app: &App, entry: &TableEntry, run_id: &str) -> Result<RunRecord, GlueException> {
    let run = match is_run_id(run_id) {
        true => RunRecord::load(app.ports.items.as_ref(), &entry.id, run_id).await?,
        false => None,
    };
    run.ok_or_else(|| GlueException::not_found(format!("Table {} has no run {run_id}.", entry.name)))
}

/// Runs of a table since its optimizer was created, dry runs included, newest first: `{"runs": […], "next_token": …}`.
pub async fn list_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    let entry = load_table(directory, database, table).await?;
    let optimizer = OptimizerItem::load(app.ports.items.as_ref(), &entry.id).await?;
    let optimizer = optimizer.ok_or_else(|| no_optimizer(table))?;
    let after = token.map(decode_token).transpose()?;
    let (runs, next) = runs_page(app, &optimizer, RUNS_PAGE_MAX, after).await?;
    let mut answer = Map::new();
    answer.insert("runs".to_owned(), runs.iter().map(describe).collect());
    if let Some(next) = next {
        answer.insert("next_token".to_owned(), encode_token(&next).into());
    }
    Ok(Value::Object(answer))
}

/// One part of a run's report: `{"lines": […], "next_token": …}`. First what was decided on each object, then what became
/// of the orphans.
pub async fn report_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    run_id: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    let bad_token = || GlueException::invalid_input("next_token is not one that an earlier answer gave.");
    let index = token.map_or(Ok(0), |token| token.parse::<i64>().map_err(|_| bad_token()))?;
    let entry = load_table(directory, database, table).await?;
    let run = load_run(app, &entry, run_id).await?;
    let total = run.report.judged.saturating_add(run.report.outcomes);
    if total == 0 && index == 0 {
        return Ok(json!({ "lines": [] }));
    }
    if index < 0 || index >= total {
        return Err(bad_token());
    }
    let (kind, part) = if index < run.report.judged {
        (Kind::Judged, index)
    } else {
        (Kind::Outcomes, index.saturating_sub(run.report.judged))
    };
    let at = part_key(&app.settings.reports, &run, kind, part);
    let object = match app.ports.objects.get(&at, &GetOptions::default()).await {
        Ok(object) => object,
        Err(ObjectError::NotFound(_)) => {
            return Err(GlueException::not_found(format!("The report of run {run_id} is not there any more.")));
        }
        Err(error) => return Err(SweepError::from(error).into()),
    };
    let lines: Result<Vec<Value>, _> =
        object.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(serde_json::from_slice).collect();
    let lines = lines.map_err(|error| GlueException::internal(format!("{at}: {error}")))?;
    let mut answer = Map::new();
    answer.insert("lines".to_owned(), Value::Array(lines));
    if index.saturating_add(1) < total {
        answer.insert("next_token".to_owned(), index.saturating_add(1).to_string().into());
    }
    Ok(Value::Object(answer))
}

fn tally(tally: &Tally) -> Value {
    json!({ "count": tally.count, "size_bytes": tally.size_bytes })
}

fn tallies(tallies: &BTreeMap<String, Tally>) -> Value {
    Value::Object(tallies.iter().map(|(name, one)| (name.clone(), tally(one))).collect())
}

/// A run. Times are milliseconds since the epoch; what is not known (yet) is null.
fn describe(run: &RunRecord) -> Value {
    json!({
        "run_id": run.run_id,
        "database": run.database,
        "table": run.table,
        "mode": run.mode.as_str(),
        "state": run.state.as_str(),
        "created_ms": run.created_ms,
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "attempts": run.attempts,
        "reason": run.reason,
        "error": run.error,
        "pointer": run.pointer,
        "by_reason": tallies(&run.totals.by_reason),
        "deleted": tally(&run.totals.deleted),
        "spared": tallies(&run.totals.spared),
    })
}
