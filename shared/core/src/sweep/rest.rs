//! What the REST side of the catalog offers on sweeps: start a run, look at runs, read a report.

use serde_json::{Map, Value, json};

use super::items::{OptimizerItem, RunRecord, Tally};
use super::optimizer::{decode_token, encode_token, run_shape, runs_page, timestamp};
use super::report::{Kind, part_key};
use super::{Mode, SweepError, TableDirectory, TableEntry, plan};
use crate::glue::GlueException;
use crate::ports::App;
use crate::store::{GetOptions, ObjectError};

const RUNS_PAGE_MAX: usize = 100;

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
pub async fn start(
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
pub async fn get(
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
    let run = RunRecord::load(app.ports.items.as_ref(), &entry.id, run_id).await?;
    run.ok_or_else(|| GlueException::not_found(format!("Table {} has no run {run_id}.", entry.name)))
}

/// Runs of a table since its optimizer was created, dry runs included, newest first: `{"runs": […], "nextToken": …}`.
pub async fn list(
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
        answer.insert("nextToken".to_owned(), encode_token(&next).into());
    }
    Ok(Value::Object(answer))
}

/// One part of a run's report: `{"lines": […], "nextToken": …}`. First what was decided on each object, then what became
/// of the orphans.
pub async fn report(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    run_id: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    let bad_token = || GlueException::invalid_input("nextToken is not one that an earlier answer gave.");
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
        answer.insert("nextToken".to_owned(), index.saturating_add(1).to_string().into());
    }
    Ok(Value::Object(answer))
}

fn tally(tally: &Tally) -> Value {
    json!({ "count": tally.count, "sizeBytes": tally.size_bytes })
}

/// A run: the service's shape and what it has no member for.
fn describe(run: &RunRecord) -> Value {
    let mut shape = match run_shape(run) {
        Value::Object(shape) => shape,
        _ => Map::new(),
    };
    let tallies = |tallies: &std::collections::BTreeMap<String, Tally>| -> Value {
        Value::Object(tallies.iter().map(|(name, one)| (name.clone(), tally(one))).collect())
    };
    let more = [
        ("runId", Value::from(run.run_id.as_str())),
        ("databaseName", run.database.as_str().into()),
        ("tableName", run.table.as_str().into()),
        ("mode", run.mode.as_str().into()),
        ("state", run.state.as_str().into()),
        ("createTimestamp", timestamp(run.created_ms)),
        ("attempts", run.attempts.into()),
        ("reason", run.reason.as_deref().map_or(Value::Null, Value::from)),
        ("pointer", run.pointer.as_deref().map_or(Value::Null, Value::from)),
        ("byReason", tallies(&run.totals.by_reason)),
        ("deleted", tally(&run.totals.deleted)),
        ("spared", tallies(&run.totals.spared)),
    ];
    shape.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(shape)
}
