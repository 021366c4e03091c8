//! What the REST side of the catalog offers on sweeps: start a run, look at runs, read a report.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::items::{Cancellation, OptimizerItem, RestoreAsk, RunOptions, RunRecord, RunState, Tally, is_run_id};
use super::optimizer::{decode_token, encode_token, load_by_name, runs_page};
use super::page::PAGE_NAME;
use super::report::{Part, part_key, run_folder};
use super::run::explain_key;
use super::{CatalogDirectory, Mode, SweepError, TableDirectory, TableEntry, plan};
use crate::glue::GlueException;
use crate::limits::OBJECT_KEY_MAX_BYTES;
use crate::location::split_uri;
use crate::ports::{App, Deadline};
use crate::store::{GetOptions, ObjectError};

const RUNS_PAGE_MAX: usize = 100;
/// A dry run that is older than this says too little about what would be deleted now.
const DRY_RUN_MAX_AGE_MS: i64 = 7 * 86_400_000;
const WORDS_MAX_LETTERS: usize = 1000;

/// [`start_in`] on the product's own catalog.
pub async fn start(app: &App, database: &str, table: &str, body: &Value) -> Result<Value, GlueException> {
    start_in(app, &CatalogDirectory::new(app), database, table, body).await
}

/// [`restore_in`] on the product's own catalog.
pub async fn restore(app: &App, database: &str, table: &str, body: &Value) -> Result<Value, GlueException> {
    restore_in(app, &CatalogDirectory::new(app), database, table, body).await
}

/// [`explain_in`] on the product's own catalog.
pub async fn explain(
    app: &App,
    database: &str,
    table: &str,
    body: &Value,
    deadline: Deadline,
) -> Result<Value, GlueException> {
    explain_in(app, &CatalogDirectory::new(app), database, table, body, deadline).await
}

/// [`get_in`] on the product's own catalog.
pub async fn get(app: &App, database: &str, table: &str, run_id: &str) -> Result<Value, GlueException> {
    get_in(app, &CatalogDirectory::new(app), database, table, run_id).await
}

/// [`cancel_in`] on the product's own catalog.
pub async fn cancel(app: &App, database: &str, table: &str, run_id: &str) -> Result<Value, GlueException> {
    cancel_in(app, &CatalogDirectory::new(app), database, table, run_id).await
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

fn no_optimizer(table: &str) -> GlueException {
    GlueException::not_found(format!(
        "Table {table} has no optimizer of type orphan_file_deletion, and its creation date is what protects older \
         files: create one first."
    ))
}

/// Starts a run: `{"mode": "dry_run" | "ordinary"}`. To be answered with 202; the run is `queued`. Also:
///
/// - `sightings`: 1 or 2, how often an orphan must have been seen (by default what the optimizer says, 2 if nothing);
/// - `backfill`: files from before the optimizer's creation may go, too;
/// - `accept_share`: they go however many they are.
///
/// A run that deletes under one of the last two needs `after_dry_run` (the id of a completed dry run of the same scope,
/// with the same `backfill` and `sightings`, not older than a week), `asked_by` and `why`, which are kept in its record.
pub async fn start_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    let mode = match body.get("mode").and_then(Value::as_str).and_then(Mode::parse) {
        Some(mode @ (Mode::DryRun | Mode::Ordinary)) => mode,
        _ => return Err(GlueException::invalid_input("mode is `dry_run` or `ordinary`.")),
    };
    let options = parse_options(body)?;
    let entry = load_by_name(directory, database, table).await?;
    if mode != Mode::DryRun && (options.backfill || options.accept_share) {
        check_audited(app, &entry, &options).await?;
    }
    let started = plan::start_run(app, &entry.id, mode, &options).await?;
    started.map(|run| describe(app, &run)).ok_or_else(|| no_optimizer(table))
}

pub(super) fn parse_options(body: &Value) -> Result<RunOptions, GlueException> {
    let bad = |message: &str| GlueException::invalid_input(message);
    let flag = |member: &str| match body.get(member) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(bad(&format!("{member} is true or false."))),
    };
    let words = |member: &str| match body.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(words)) if words.chars().count() <= WORDS_MAX_LETTERS => {
            Ok(Some(words.trim().to_owned()).filter(|words| !words.is_empty()))
        }
        Some(_) => Err(bad(&format!("{member} is a text of up to {WORDS_MAX_LETTERS} letters."))),
    };
    Ok(RunOptions {
        backfill: flag("backfill")?,
        accept_share: flag("accept_share")?,
        dropped: false,
        sightings: match body.get("sightings").filter(|value| !value.is_null()).map(Value::as_u64) {
            None => None,
            Some(Some(1)) => Some(1),
            Some(Some(2)) => Some(2),
            Some(_) => return Err(bad("sightings is 1 or 2.")),
        },
        after_dry_run: words("after_dry_run")?,
        asked_by: words("asked_by")?,
        why: words("why")?,
        restore: None,
    })
}

/// Brings back what runs took away: `{"run": …}`, `{"prefix": …}` or `{"key": …}` (keys or S3 URIs), or several of them,
/// which all must hold. Also `asked_by` and `why`. To be answered with 202: it is a run itself, with the mode `restore`,
/// and its report says what became of each file.
pub async fn restore_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    let entry = load_by_name(directory, database, table).await?;
    let ask = parse_restore(app, &entry, body).await?;
    let options = RunOptions { restore: Some(ask), ..parse_options(body)? };
    let run = match plan::start_run(app, &entry.id, Mode::Restore, &options).await? {
        Some(run) => run,
        None => plan::start_bare(app, &entry, Mode::Restore, &options).await?,
    };
    Ok(describe(app, &run))
}

/// What is to come back: by run, prefix or key. A run that a table still knows must have deleted, and ended.
pub(super) async fn parse_restore(app: &App, entry: &TableEntry, body: &Value) -> Result<RestoreAsk, GlueException> {
    let place = |member: &str| match body.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => key_of(entry, member, text).map(Some),
        Some(_) => Err(GlueException::invalid_input(format!("{member} is a text."))),
    };
    let run = match body.get("run") {
        None | Some(Value::Null) => None,
        Some(Value::String(run)) => Some(run.clone()),
        Some(_) => return Err(GlueException::invalid_input("run is the id of a run.")),
    };
    let ask = RestoreAsk { run, prefix: place("prefix")?, key: place("key")? };
    if ask == RestoreAsk::default() {
        return Err(GlueException::invalid_input("Say what is to come back: run, prefix or key."));
    }
    if let Some(run_id) = &ask.run {
        let run = load_run(app, entry, run_id).await?;
        if !run.mode.deletes() || !run.state.is_final() {
            let message = format!(
                "Run {run_id} is {} and {}: only a run that deleted, and has ended, can be undone.",
                run.mode.as_str(),
                run.state.as_str()
            );
            return Err(GlueException::invalid_input(message));
        }
    }
    Ok(ask)
}

/// A key as it is, or that of an S3 URI in the table's bucket.
fn key_of(entry: &TableEntry, member: &str, text: &str) -> Result<String, GlueException> {
    let bad = |message: String| Err(GlueException::invalid_input(message));
    let key = match text.split_once("://") {
        Some(("s3" | "s3a" | "s3n", rest)) => {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            match &entry.location {
                Some(table) if table.bucket == bucket => key,
                _ => return bad(format!("{member} lies in another bucket than the table.")),
            }
        }
        _ => text,
    };
    if key.is_empty() || key.len() > OBJECT_KEY_MAX_BYTES {
        return bad(format!("{member} is a key (or the beginning of one) of 1 to {OBJECT_KEY_MAX_BYTES} bytes."));
    }
    Ok(key.to_owned())
}

/// What lifts a guard comes after a look at what it would do, and with a name under it.
pub(super) async fn check_audited(app: &App, entry: &TableEntry, options: &RunOptions) -> Result<(), GlueException> {
    let bad = |message: String| GlueException::invalid_input(message);
    let (Some(dry_run), Some(_), Some(_)) = (&options.after_dry_run, &options.asked_by, &options.why) else {
        let message = "A run with backfill or accept_share needs after_dry_run (look at its report first), asked_by \
                       and why.";
        return Err(bad(message.to_owned()));
    };
    let run = load_run(app, entry, dry_run).await?;
    let is_same = (run.options.backfill, run.options.sightings) == (options.backfill, options.sightings);
    if run.mode != Mode::DryRun || run.state != RunState::Completed || !is_same {
        return Err(bad(format!("Run {dry_run} is no completed dry run with the same backfill and sightings.")));
    }
    let ended_ms = run.ended_ms.unwrap_or_default();
    if ended_ms < app.ports.clock.now_ms().saturating_sub(DRY_RUN_MAX_AGE_MS) {
        return Err(bad(format!("Dry run {dry_run} is more than a week old: look again.")));
    }
    Ok(())
}

/// What a run would decide on one key now, and why: `{"key": key or S3 URI}`, with the options of [`start_in`].
pub async fn explain_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    body: &Value,
    deadline: Deadline,
) -> Result<Value, GlueException> {
    let key = body.get("key").and_then(Value::as_str).filter(|key| !key.is_empty());
    let bad = |message: &str| GlueException::invalid_input(message);
    let key = key.ok_or_else(|| bad("key is the key of an object, or its S3 URI."))?;
    let path = match split_uri(key) {
        Ok((_, path)) => path,
        Err(_) if is_uri(key) => return Err(bad("key is no S3 URI that names an object.")),
        Err(_) => key,
    };
    if path.is_empty() {
        return Err(bad("key names a bucket, not an object in it."));
    }
    if path.len() > OBJECT_KEY_MAX_BYTES {
        let message = format!("key has {} bytes; keys of S3 have at most {OBJECT_KEY_MAX_BYTES}.", path.len());
        return Err(bad(&message));
    }
    let options = parse_options(body)?;
    let entry = load_by_name(directory, database, table).await?;
    Ok(explain_key(app, directory, entry, key, &options, deadline).await?)
}

/// Whether a text is meant for the URI of an object.
fn is_uri(key: &str) -> bool {
    let scheme = key.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| matches!(scheme.as_str(), "s3" | "s3a" | "s3n"))
}

/// Asks for the end of a run; answers the run, which ends as `failed` with the reason `cancelled` at its next step.
pub async fn cancel_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    run_id: &str,
) -> Result<Value, GlueException> {
    let entry = load_by_name(directory, database, table).await?;
    cancel_of(app, &entry, run_id).await
}

pub(super) async fn cancel_of(app: &App, entry: &TableEntry, run_id: &str) -> Result<Value, GlueException> {
    let run = load_run(app, entry, run_id).await?;
    if run.state.is_final() {
        return Err(GlueException::invalid_input(format!("Run {run_id} has ended: it is {}.", run.state.as_str())));
    }
    let asked_ms = app.ports.clock.now_ms();
    let cancellation = Cancellation { table_id: entry.id.clone(), run_id: run.run_id.clone(), asked_ms };
    cancellation.ask(app.ports.items.as_ref()).await?;
    Ok(describe(app, &run))
}

/// A run by its id.
pub async fn get_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    run_id: &str,
) -> Result<Value, GlueException> {
    let entry = load_by_name(directory, database, table).await?;
    Ok(describe(app, &load_run(app, &entry, run_id).await?))
}

pub(super) async fn load_run(app: &App, entry: &TableEntry, run_id: &str) -> Result<RunRecord, GlueException> {
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
    let entry = load_by_name(directory, database, table).await?;
    let optimizer = OptimizerItem::load(app.ports.items.as_ref(), &entry.id).await?;
    let optimizer = optimizer.ok_or_else(|| no_optimizer(table))?;
    let after = token.map(decode_token).transpose()?;
    let (runs, next) = runs_page(app, &optimizer, RUNS_PAGE_MAX, after).await?;
    let mut answer = Map::new();
    answer.insert("runs".to_owned(), runs.iter().map(|run| describe(app, run)).collect());
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
    let entry = load_by_name(directory, database, table).await?;
    report_of(app, &entry, run_id, token).await
}

pub(super) async fn report_of(
    app: &App,
    entry: &TableEntry,
    run_id: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    let bad_token = || GlueException::invalid_input("next_token is not one that an earlier answer gave.");
    let index = token.map_or(Ok(0), |token| token.parse::<i64>().map_err(|_| bad_token()))?;
    let run = load_run(app, entry, run_id).await?;
    let judged = run.report.judged.total();
    let total = judged.saturating_add(run.report.outcomes);
    if total == 0 && index == 0 {
        return Ok(json!({ "lines": [] }));
    }
    if index < 0 || index >= total {
        return Err(bad_token());
    }
    let part = match run.report.judged.find(index) {
        Some((attempt, number)) => Part::Judged { attempt, number },
        None => Part::Outcomes { number: index.saturating_sub(judged) },
    };
    let at = part_key(&app.settings.reports, &run, part);
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
pub(super) fn describe(app: &App, run: &RunRecord) -> Value {
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
        "options": json!(run.options),
        "scope": run.facts.scope,
        "gate_ms": run.facts.gate_ms,
        "retention_ms": run.facts.retention_ms,
        "usual_delay_ms": run.facts.usual_delay_ms,
        "listed": run.facts.listed,
        "progress": run.facts.live,
        "page": run.state.is_final().then(|| run_folder(&app.settings.reports, run).object(PAGE_NAME).to_string()),
        "findings": run.facts.findings,
        "undo": run.facts.undo,
        "restored": run.facts.restored.as_ref().map(tally),
        "expired": run.facts.expired.as_ref().map(tally),
    })
}
