//! Files of tables that were dropped from the catalog: which tables those are, and runs that remove what they left.
//!
//! The catalog drops a table and leaves its files alone. They go by an explicit call, after a dry run that was looked at,
//! and not before a grace period has passed in which the table may be created again. Such a run has all the guards of others:
//! what other tables name, what writers have announced, and what lies at the place of a table is kept, and names have to
//! show that a file is the table's own.

use serde_json::{Map, Value, json};

use super::items::{OptimizerConfig, OptimizerItem, QUARANTINE_DEFAULT_HOURS, RunOptions};
use super::optimizer::{decode_token, encode_token};
use super::rest::{cancel_of, check_audited, describe, load_run, parse_options, parse_restore, report_of};
use super::run::forget_dropped;
use super::source::entry_of;
use super::{DirectoryError, Interruption, Mode, SweepError, TableEntry, TableFormat, plan};
use crate::catalog::TableId;
use crate::catalog::dropped::{self, DroppedTable};
use crate::glue::GlueException;
use crate::ports::App;
use crate::store::{Condition, WriteError};

const PAGE_MAX: usize = 100;
/// Files that are younger stay: a writer may have begun before the table was dropped.
const RETENTION_HOURS: i64 = 24;

fn unreadable(error: crate::catalog::CatalogError) -> GlueException {
    SweepError::from(DirectoryError::from(error)).into()
}

async fn load(app: &App, table_id: &str) -> Result<DroppedTable, GlueException> {
    let found = dropped::find(app.ports.items.as_ref(), table_id).await.map_err(unreadable)?;
    found.ok_or_else(|| GlueException::not_found(format!("No dropped table has the id {table_id}.")))
}

/// Of a run of a dropped table only its id matters, also when the table itself is forgotten.
fn entry(table_id: &str) -> TableEntry {
    let parameters = std::collections::BTreeMap::new();
    TableEntry {
        id: table_id.to_owned(),
        database: String::new(),
        name: table_id.to_owned(),
        location: None,
        parameters,
    }
}

fn removable_from_ms(app: &App, table: &DroppedTable) -> i64 {
    table.dropped_ms.saturating_add(app.settings.dropped_grace_ms)
}

fn describe_table(app: &App, table: &DroppedTable) -> Value {
    let format = match entry_of(table).format() {
        Ok(TableFormat::Delta) => "delta",
        Ok(TableFormat::Iceberg { .. }) => "iceberg",
        Ok(TableFormat::Other) => "other",
        Err(_) => "unclear",
    };
    json!({
        "table_id": table.table_id.as_str(),
        "database": table.database,
        "table": table.name,
        "location": table.location.to_string(),
        "format": format,
        "owner": table.owner,
        "dropped_ms": table.dropped_ms,
        "removable_from_ms": removable_from_ms(app, table),
    })
}

/// Dropped tables whose files may be there still, by place: `{"dropped_tables": […], "next_token": …}`.
pub async fn list(app: &App, token: Option<&str>) -> Result<Value, GlueException> {
    let after = match token {
        None => None,
        Some(token) => {
            let table = load(app, &decode_token(token)?).await;
            let gone = |_| GlueException::invalid_input("next_token speaks of a table that was forgotten: begin anew.");
            Some(dropped::position(&table.map_err(gone)?))
        }
    };
    let page = dropped::page(app.ports.items.as_ref(), PAGE_MAX, after.as_deref()).await.map_err(unreadable)?;
    let (tables, has_more) = page;
    let described: Vec<Value> = tables.iter().map(|table| describe_table(app, table)).collect();
    let mut answer = Map::from_iter([("dropped_tables".to_owned(), Value::Array(described))]);
    if let Some(last) = tables.last().filter(|_| has_more) {
        answer.insert("next_token".to_owned(), encode_token(last.table_id.as_str()).into());
    }
    Ok(Value::Object(answer))
}

/// Starts a run over the files of a dropped table: `{"mode": "dry_run" | "ordinary" | "restore"}`. To be answered with 202.
/// One that restores says by `run`, `prefix` or `key` what is to come back of what sweeps took before the drop. One that
/// deletes needs `after_dry_run` (a completed dry run of the same table, not older than a week), `asked_by` and `why`, and is
/// refused before the grace period has passed.
pub async fn start(app: &App, table_id: &str, body: &Value) -> Result<Value, GlueException> {
    let mode = match body.get("mode").and_then(Value::as_str).and_then(Mode::parse) {
        Some(mode) if mode != Mode::Scheduled => mode,
        _ => return Err(GlueException::invalid_input("mode is `dry_run`, `ordinary` or `restore`.")),
    };
    let asked = parse_options(body)?;
    let table = load(app, table_id).await?;
    if mode == Mode::Restore {
        let entry = entry_of(&table);
        let restore = Some(parse_restore(app, &entry, body).await?);
        let options = RunOptions { dropped: true, restore, ..asked };
        return Ok(describe(app, &plan::start_bare(app, &entry, mode, &options).await?));
    }
    // Nothing is younger than the drop, all of it is to go, and one look is enough after the grace period.
    let options = RunOptions { backfill: true, accept_share: true, dropped: true, sightings: Some(1), ..asked };
    if mode != Mode::DryRun {
        let left_ms = removable_from_ms(app, &table).saturating_sub(app.ports.clock.now_ms());
        if left_ms > 0 {
            let hours = left_ms.saturating_add(3_599_999).div_euclid(3_600_000);
            let message = format!(
                "The files of table {} may go in {hours} hours: until then it can be created again.",
                table.name
            );
            return Err(GlueException::invalid_input(message));
        }
        check_audited(app, &entry_of(&table), &options).await?;
    }
    ensure_rules(app, &table).await?;
    let run = plan::start_run(app, table_id, mode, &options).await?;
    let run = run.ok_or(SweepError::from(Interruption::Contended("the rules of the dropped table")))?;
    Ok(describe(app, &run))
}

/// Runs go by the rules of an optimizer. That of a dropped table starts none by itself.
async fn ensure_rules(app: &App, table: &DroppedTable) -> Result<(), GlueException> {
    let items = app.ports.items.as_ref();
    let now_ms = app.ports.clock.now_ms();
    let item = OptimizerItem {
        table_id: table.table_id.as_str().to_owned(),
        database: table.database.clone(),
        table: table.name.clone(),
        config: OptimizerConfig {
            enabled: false,
            role_arn: None,
            glue_connection: None,
            retention_hours: RETENTION_HOURS,
            location: None,
            run_rate_hours: 24,
            allow_short_retention: false,
            sightings: 1,
            quarantine_hours: QUARANTINE_DEFAULT_HOURS,
            sweep_folder_markers: true,
            // Nobody would look after a quarantine of it: the grace period comes before, and a look at a dry run.
            undo_hours: Some(0),
        },
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
        last_planned_ms: None,
        pending: Vec::new(),
        revision: app.ports.ids.uuid().simple().to_string(),
    };
    let key = OptimizerItem::key(table.table_id.as_str());
    let old = match items.put(&key, item.encode(), Condition::Absent).await {
        Ok(()) | Err(WriteError::ConditionFailed { old: None }) => return Ok(()),
        Err(WriteError::ConditionFailed { old: Some(old) }) => OptimizerItem::decode(&old).map_err(SweepError::from)?,
        Err(WriteError::Store(error)) => return Err(error.into()),
    };
    // What the table had is taken away with it: nobody else will start its runs.
    if old.created_at_ms >= table.dropped_ms {
        return Ok(());
    }
    match items.put(&key, item.encode(), old.unchanged()).await {
        Ok(()) => Ok(()),
        Err(WriteError::ConditionFailed { .. }) => {
            Err(SweepError::from(Interruption::Contended("the rules of the dropped table")).into())
        }
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// Forgets a dropped table: its files stay, and nobody lists it any more.
pub async fn forget(app: &App, table_id: &str) -> Result<Value, GlueException> {
    let table = load(app, table_id).await?;
    forget_dropped(app, &table).await?;
    Ok(json!({}))
}

/// A run over the files of a dropped table, also when the table is forgotten.
pub async fn get(app: &App, table_id: &str, run_id: &str) -> Result<Value, GlueException> {
    check_id(table_id)?;
    Ok(describe(app, &load_run(app, &entry(table_id), run_id).await?))
}

/// Asks for the end of such a run.
pub async fn cancel(app: &App, table_id: &str, run_id: &str) -> Result<Value, GlueException> {
    check_id(table_id)?;
    cancel_of(app, &entry(table_id), run_id).await
}

/// One part of such a run's report.
pub async fn report(app: &App, table_id: &str, run_id: &str, token: Option<&str>) -> Result<Value, GlueException> {
    check_id(table_id)?;
    report_of(app, &entry(table_id), run_id, token).await
}

/// Ids are looked up as they are.
fn check_id(table_id: &str) -> Result<(), GlueException> {
    let is_id = super::items::is_run_id(table_id) && TableId::from_text(table_id).as_str() == table_id;
    if is_id { Ok(()) } else { Err(GlueException::not_found("No table has such an id.")) }
}
