//! Table optimizers, in the shapes of the Glue API: request members in Pascal case, members
//! of the optimizer structures in lower camel case, metrics in Pascal case again.

mod input;
mod kept;
mod operations;

use serde_json::{Map, Value, json};

use super::items::{OptimizerConfig, OptimizerItem, QUARANTINE_DEFAULT_HOURS, RunRecord, RunState, SIGHTINGS_DEFAULT};
use super::{SweepError, TableDirectory, TableEntry, TableFormat};
use crate::glue::{GlueException, GlueExceptionName};
use crate::location::Location;
use crate::ports::App;
use crate::store::{Condition, Consistency, Direction, Query, SortRange, Table, WriteError};

use input::{ConfigInput, Target, parse_config};
pub(super) use input::{decode_token, encode_token};
pub use operations::{
    batch_get_table_optimizer, create_table_optimizer, delete_table_optimizer, get_table_optimizer,
    list_table_optimizer_runs, update_table_optimizer,
};

/// Kept, without runs.
const COMPACTION: &str = "compaction";
/// Kept, without runs.
const RETENTION: &str = "retention";
/// The type whose runs are this product's work.
pub const ORPHAN_FILE_DELETION: &str = "orphan_file_deletion";
/// Runs of one answer, at most and if not asked otherwise.
const RUNS_PAGE_MAX: usize = 100;
/// Tries at an item that others write as well.
const TRIES: u32 = 4;
/// Newest runs among which the last one that was no dry run is looked for.
const LAST_RUN_LOOK: usize = 25;

impl From<SweepError> for GlueException {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Store(error) => error.into(),
            SweepError::Decode(error) => error.into(),
            SweepError::Interrupted(why) => {
                GlueException::new(GlueExceptionName::ConcurrentModification, format!("Try again: {why}"))
            }
            SweepError::Refused(refusal) => GlueException::new(GlueExceptionName::InvalidState, refusal.to_string()),
            SweepError::Message(message) => GlueException::internal(message),
        }
    }
}

/// CreateTableOptimizer. The moment of creation is the gate: files made until then are never deleted.
pub async fn create(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let target = Target::parse(&input)?;
    if !target.is_swept() {
        target.check_catalog(app)?;
        let entry = load_table(directory, &target).await?;
        check_table(&entry, None)?;
        return kept::create(app, &target, &entry, &input).await;
    }
    let config = parse_config(&input, None)?;
    target.check_catalog(app)?;
    let entry = load_table(directory, &target).await?;
    create_swept(app, &entry, config).await?;
    Ok(json!({}))
}

async fn create_swept(app: &App, entry: &TableEntry, config: ConfigInput) -> Result<(), GlueException> {
    check_table(entry, config.scope.as_ref())?;
    let now_ms = app.ports.clock.now_ms();
    let item = OptimizerItem {
        table_id: entry.id.clone(),
        database: entry.database.clone(),
        table: entry.name.clone(),
        config: config.config,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
        last_planned_ms: None,
        pending: Vec::new(),
        revision: app.ports.ids.uuid().simple().to_string(),
    };
    match app.ports.items.put(&OptimizerItem::key(&entry.id), item.encode(), Condition::Absent).await {
        Ok(()) => Ok(()),
        Err(WriteError::ConditionFailed { .. }) => Err(GlueException::already_exists(format!(
            "Table {} already has an optimizer of type {ORPHAN_FILE_DELETION}.",
            entry.name
        ))),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// Writes a new configuration unless somebody else wrote in between. The creation date stays.
async fn replace(app: &App, old: &OptimizerItem, config: OptimizerConfig) -> Result<bool, GlueException> {
    let item = OptimizerItem {
        config,
        updated_at_ms: app.ports.clock.now_ms(),
        revision: app.ports.ids.uuid().simple().to_string(),
        ..old.clone()
    };
    match app.ports.items.put(&OptimizerItem::key(&item.table_id), item.encode(), old.unchanged()).await {
        Ok(()) => Ok(true),
        Err(WriteError::ConditionFailed { .. }) => Ok(false),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

fn contended() -> GlueException {
    let message = "The optimizer is being changed by others: try again.";
    GlueException::new(GlueExceptionName::ConcurrentModification, message)
}

/// GetTableOptimizer, with the newest run that was no dry run as `lastRun`.
pub async fn get(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let target = Target::parse(&input)?;
    let optimizer = get_one(app, directory, &target).await?;
    let mut answer = target.names();
    answer.insert("TableOptimizer".to_owned(), optimizer);
    Ok(Value::Object(answer))
}

async fn get_one(app: &App, directory: &dyn TableDirectory, target: &Target) -> Result<Value, GlueException> {
    if target.is_swept() {
        let (_, item) = load_both(app, directory, target).await?;
        return describe(app, &item).await;
    }
    target.check_catalog(app)?;
    kept::describe(app, target, &load_table(directory, target).await?).await
}

/// BatchGetTableOptimizer: misses are told one by one.
pub async fn batch_get(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let entries = input.get("Entries").and_then(Value::as_array).ok_or_else(|| input::must_not_be_null("entries"))?;
    let mut found = Vec::new();
    let mut failures = Vec::new();
    for entry in entries {
        match batch_get_one(app, directory, entry).await {
            Ok(optimizer) => found.push(optimizer),
            // A fault of ours is not a property of the entry.
            Err(error) if matches!(error.name, GlueExceptionName::InternalService | GlueExceptionName::Throttling) => {
                return Err(error);
            }
            Err(error) => {
                let mut failure = echo(entry, &["catalogId", "databaseName", "tableName", "type"]);
                let detail = json!({ "ErrorCode": error.name.as_str(), "ErrorMessage": error.message });
                failure.insert("error".to_owned(), detail);
                failures.push(Value::Object(failure));
            }
        }
    }
    Ok(json!({ "TableOptimizers": found, "Failures": failures }))
}

async fn batch_get_one(app: &App, directory: &dyn TableDirectory, entry: &Value) -> Result<Value, GlueException> {
    let target = Target::parse_entry(entry, &app.settings.account_id)?;
    let optimizer = get_one(app, directory, &target).await?;
    let mut answer = echo(entry, &["catalogId", "databaseName", "tableName"]);
    answer.insert("tableOptimizer".to_owned(), optimizer);
    Ok(Value::Object(answer))
}

fn echo(entry: &Value, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| entry.get(*name).map(|value| ((*name).to_owned(), value.clone()))).collect()
}

/// UpdateTableOptimizer. The creation date stays. Without `orphanFileDeletionConfiguration` its settings stay as well,
/// so that `enabled` can be switched alone.
pub async fn update(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let target = Target::parse(&input)?;
    target.check_catalog(app)?;
    if !target.is_swept() {
        return kept::update(app, &target, &load_table(directory, &target).await?, &input).await;
    }
    for _ in 0..TRIES {
        let (entry, old) = load_both(app, directory, &target).await?;
        let config = parse_config(&input, Some(&old.config))?;
        check_table(&entry, config.scope.as_ref())?;
        if replace(app, &old, config.config).await? {
            return Ok(json!({}));
        }
    }
    Err(contended())
}

/// DeleteTableOptimizer. With it goes its creation date: a new optimizer has a new gate.
pub async fn delete(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let target = Target::parse(&input)?;
    target.check_catalog(app)?;
    let entry = load_table(directory, &target).await?;
    if !target.is_swept() {
        return kept::delete(app, &target, &entry).await;
    }
    match app.ports.items.delete(&OptimizerItem::key(&entry.id), Condition::Present).await {
        Ok(()) => Ok(json!({})),
        Err(WriteError::ConditionFailed { .. }) => Err(no_optimizer(&target)),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// ListTableOptimizerRuns, newest first; runs before the optimizer's creation and dry runs are not among them.
pub async fn list_runs(app: &App, directory: &dyn TableDirectory, input: Value) -> Result<Value, GlueException> {
    let target = Target::parse(&input)?;
    let page_max = input::max_results(&input, RUNS_PAGE_MAX)?;
    let after = input::next_token(&input)?;
    if !target.is_swept() {
        target.check_catalog(app)?;
        return kept::list_runs(app, &target, &load_table(directory, &target).await?).await;
    }
    let (_, item) = load_both(app, directory, &target).await?;
    let mut answer = target.names();
    let (runs, next) = runs_page(app, &item, page_max, after).await?;
    let shown: Vec<Value> = runs.iter().filter(|run| run.mode.deletes()).map(run_shape).collect();
    answer.insert("TableOptimizerRuns".to_owned(), Value::Array(shown));
    if let Some(next) = next {
        answer.insert("NextToken".to_owned(), Value::String(encode_token(&next)));
    }
    Ok(Value::Object(answer))
}

/// A page of runs since the optimizer's creation, newest first, and where the next one begins.
pub(super) async fn runs_page(
    app: &App,
    optimizer: &OptimizerItem,
    page_max: usize,
    after: Option<String>,
) -> Result<(Vec<RunRecord>, Option<String>), GlueException> {
    let oldest = format!("{:013}", optimizer.created_at_ms.max(0));
    let query = Query {
        direction: Direction::Descending,
        limit: Some(page_max),
        start_after: after.map(Into::into),
        consistency: Consistency::Strong,
        ..Query::new(Table::Catalog, RunRecord::partition(&optimizer.table_id), SortRange::AtLeast(oldest.into()))
    };
    let page = app.ports.items.query(&query).await?;
    let mut runs = Vec::with_capacity(page.items.len());
    for (key, item) in &page.items {
        let run_id = String::from_utf8_lossy(key.sk.as_bytes()).into_owned();
        runs.push(RunRecord::decode(&optimizer.table_id, &run_id, item)?);
    }
    let next = page.next.map(|sort| String::from_utf8_lossy(sort.as_bytes()).into_owned());
    Ok((runs, next))
}

async fn load_table(directory: &dyn TableDirectory, target: &Target) -> Result<TableEntry, GlueException> {
    load_by_name(directory, &target.database, &target.table).await
}

/// The table of that name, in any case of letters.
pub(super) async fn load_by_name(
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
) -> Result<TableEntry, GlueException> {
    let found = directory.table(&database.to_lowercase(), &table.to_lowercase()).await;
    let found = found.map_err(|error| GlueException::from(SweepError::from(error)))?;
    found.ok_or_else(|| GlueException::not_found(format!("Table {table} not found.")))
}

async fn load_both(
    app: &App,
    directory: &dyn TableDirectory,
    target: &Target,
) -> Result<(TableEntry, OptimizerItem), GlueException> {
    target.check_catalog(app)?;
    let entry = load_table(directory, target).await?;
    let item = OptimizerItem::load(app.ports.items.as_ref(), &entry.id).await?;
    item.map(|item| (entry, item)).ok_or_else(|| no_optimizer(target))
}

fn no_optimizer(target: &Target) -> GlueException {
    GlueException::not_found(format!("Table {} has no optimizer of type {}.", target.table, target.kind))
}

/// The rules that need the table: a format that can be swept, a location inside its own.
fn check_table(entry: &TableEntry, scope: Option<&Location>) -> Result<(), GlueException> {
    let bad = |message: String| Err(GlueException::invalid_input(message));
    match entry.format() {
        Ok(TableFormat::Iceberg { .. } | TableFormat::Delta) => {}
        Ok(TableFormat::Other) => {
            return bad(format!("{entry} is neither an Iceberg nor a Delta table: optimizers are for those"));
        }
        Err(refusal) => return bad(refusal.detail),
    }
    let Some(table) = &entry.location else { return bad(format!("{entry} has no location on S3")) };
    match scope {
        Some(scope) if !table.contains(scope) => bad(format!("location {scope} is not inside the table's {table}")),
        _ => Ok(()),
    }
}

async fn describe(app: &App, item: &OptimizerItem) -> Result<Value, GlueException> {
    let config = &item.config;
    let mut iceberg = Map::new();
    // Hours that make no whole days are rounded up for readers who know days only.
    let days = input::in_days(config.retention_hours);
    iceberg.insert("orphanFileRetentionPeriodInDays".to_owned(), days.into());
    insert_extra_rules(config, &mut iceberg);
    if let Some(location) = &config.location {
        iceberg.insert("location".to_owned(), location.as_str().into());
    }
    iceberg.insert("runRateInHours".to_owned(), config.run_rate_hours.into());
    let mut configuration = Map::new();
    if let Some(role_arn) = &config.role_arn {
        configuration.insert("roleArn".to_owned(), role_arn.as_str().into());
    }
    configuration.insert("enabled".to_owned(), config.enabled.into());
    if let Some(connection) = &config.glue_connection {
        configuration.insert("vpcConfiguration".to_owned(), json!({ "glueConnectionName": connection }));
    }
    let block = json!({ "icebergConfiguration": iceberg });
    configuration.insert("orphanFileDeletionConfiguration".to_owned(), block);
    let mut optimizer = Map::new();
    optimizer.insert("type".to_owned(), ORPHAN_FILE_DELETION.into());
    optimizer.insert("configuration".to_owned(), Value::Object(configuration));
    let (runs, _) = runs_page(app, item, LAST_RUN_LOOK, None).await?;
    // Ids of runs that were asked for by hand need not sort by time.
    if let Some(last) = runs.iter().filter(|run| run.mode.deletes()).max_by_key(|run| run.created_ms) {
        optimizer.insert("lastRun".to_owned(), run_shape(last));
    }
    optimizer.insert("configurationSource".to_owned(), "table".into());
    Ok(Value::Object(optimizer))
}

/// Members of an optimizer's rules that the service's model does not have: REST takes them.
pub const OWN_RULES: [&str; 6] = [
    "orphanFileRetentionPeriodInHours",
    "allowShortRetention",
    "sightings",
    "quarantineInHours",
    "sweepFolderMarkers",
    "undoInHours",
];

/// Members that the service's model does not have, where they say something else than it would.
fn insert_extra_rules(config: &OptimizerConfig, iceberg: &mut Map<String, Value>) {
    let extra = [
        ("orphanFileRetentionPeriodInHours", config.retention_hours % 24 != 0, json!(config.retention_hours)),
        ("allowShortRetention", config.allow_short_retention, json!(true)),
        ("sightings", config.sightings != SIGHTINGS_DEFAULT, json!(config.sightings)),
        ("quarantineInHours", config.quarantine_hours != QUARANTINE_DEFAULT_HOURS, json!(config.quarantine_hours)),
        ("sweepFolderMarkers", config.sweep_folder_markers, json!(true)),
        ("undoInHours", config.undo_hours.is_some(), json!(config.undo_hours)),
    ];
    let said = extra.into_iter().filter(|(_, is_said, _)| *is_said);
    iceberg.extend(said.map(|(member, _, value)| (member.to_owned(), value)));
}

/// Epoch seconds, to the millisecond.
pub(super) fn timestamp(ms: i64) -> Value {
    json!(ms as f64 / 1000.0)
}

/// A run in the service's shape.
fn run_shape(run: &RunRecord) -> Value {
    let event_type = match run.state {
        RunState::Queued => "starting",
        RunState::Running => "in_progress",
        RunState::Completed => "completed",
        RunState::Failed => "failed",
    };
    let mut shape = Map::new();
    shape.insert("eventType".to_owned(), event_type.into());
    shape.insert("startTimestamp".to_owned(), timestamp(run.started_ms.unwrap_or(run.created_ms)));
    if let Some(ended_ms) = run.ended_ms {
        shape.insert("endTimestamp".to_owned(), timestamp(ended_ms));
    }
    if let Some(error) = &run.error {
        shape.insert("error".to_owned(), error.as_str().into());
    }
    let duration_ms = run.ended_ms.zip(run.started_ms).map_or(0, |(ended, started)| ended.saturating_sub(started));
    let metrics = json!({
        "NumberOfOrphanFilesDeleted": run.totals.deleted.count,
        "DpuHours": 0.0,
        "NumberOfDpus": 0,
        "JobDurationInHour": duration_ms as f64 / 3_600_000.0,
    });
    shape.insert("orphanFileDeletionMetrics".to_owned(), json!({ "IcebergMetrics": metrics }));
    Value::Object(shape)
}
