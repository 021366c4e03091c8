//! Optimizers of types compaction and retention: kept and answered, for the tools that manage them. Nothing is compacted
//! and no snapshot expires here, so they have no runs.

use serde_json::{Map, Value, json};

use super::input::{Target, must_not_be_null, number, text};
use super::{COMPACTION, ORPHAN_FILE_DELETION, RETENTION, TRIES, no_optimizer};
use crate::glue::{GlueException, GlueExceptionName};
use crate::ports::App;
use crate::store::{Condition, WriteError};
use crate::sweep::TableEntry;
use crate::sweep::items::KeptOptimizer;

/// Blocks of a configuration, each with the type it belongs to.
const BLOCKS: [(&str, &str); 3] = [
    (COMPACTION, "compactionConfiguration"),
    (RETENTION, "retentionConfiguration"),
    (ORPHAN_FILE_DELETION, "orphanFileDeletionConfiguration"),
];
const COUNT_MAX: i64 = i32::MAX as i64;

fn is_given(configuration: &Map<String, Value>, member: &str) -> bool {
    configuration.get(member).is_some_and(|value| !value.is_null())
}

/// Reads `TableOptimizerConfiguration` and fills in the service's defaults. With `old` (an update) absent parts keep
/// their values.
fn plan_configuration(
    kind: &str,
    input: &Value,
    old: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, GlueException> {
    let given = input
        .get("TableOptimizerConfiguration")
        .and_then(Value::as_object)
        .ok_or_else(|| must_not_be_null("tableOptimizerConfiguration"))?;
    for (owner, block) in BLOCKS {
        if owner != kind && is_given(given, block) {
            let message = format!("{block} does not belong to an optimizer of type {kind}.");
            return Err(GlueException::invalid_input(message));
        }
    }
    let mut configuration = old.cloned().unwrap_or_default();
    for member in ["roleArn", "enabled", "vpcConfiguration"] {
        if is_given(given, member) {
            configuration.insert(member.to_owned(), given.get(member).cloned().unwrap_or_default());
        }
    }
    configuration.entry("enabled").or_insert(json!(true));
    let block = if kind == RETENTION { "retentionConfiguration" } else { "compactionConfiguration" };
    if kind == RETENTION && old.is_none() && !is_given(given, block) {
        return Err(GlueException::invalid_input(format!("An optimizer of type {kind} needs {block}.")));
    }
    if is_given(given, block) || old.is_none() {
        let iceberg = given.get(block).and_then(|block| block.get("icebergConfiguration"));
        let filled = if kind == RETENTION { retention(iceberg)? } else { compaction(iceberg)? };
        configuration.insert(block.to_owned(), json!({ "icebergConfiguration": filled }));
    }
    Ok(configuration)
}

fn compaction(iceberg: Option<&Value>) -> Result<Value, GlueException> {
    Ok(json!({
        "strategy": text(iceberg, "strategy")?.unwrap_or_else(|| "binpack".to_owned()),
        "minInputFiles": number(iceberg, "minInputFiles", 100, 1, COUNT_MAX)?,
        "deleteFileThreshold": number(iceberg, "deleteFileThreshold", 1, 1, COUNT_MAX)?,
    }))
}

fn retention(iceberg: Option<&Value>) -> Result<Value, GlueException> {
    let clean = iceberg.and_then(|block| block.get("cleanExpiredFiles")).and_then(Value::as_bool);
    Ok(json!({
        "snapshotRetentionPeriodInDays": number(iceberg, "snapshotRetentionPeriodInDays", 5, 1, COUNT_MAX)?,
        "numberOfSnapshotsToRetain": number(iceberg, "numberOfSnapshotsToRetain", 1, 1, COUNT_MAX)?,
        "cleanExpiredFiles": clean.unwrap_or(false),
        "runRateInHours": number(iceberg, "runRateInHours", 24, 3, 168)?,
    }))
}

pub(super) async fn create(
    app: &App,
    target: &Target,
    entry: &TableEntry,
    input: &Value,
) -> Result<Value, GlueException> {
    let now_ms = app.ports.clock.now_ms();
    let kept = KeptOptimizer {
        table_id: entry.id.clone(),
        kind: target.kind.clone(),
        configuration: plan_configuration(&target.kind, input, None)?,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
        revision: app.ports.ids.uuid().simple().to_string(),
    };
    match app.ports.items.put(&KeptOptimizer::key(&entry.id, &target.kind), kept.encode(), Condition::Absent).await {
        Ok(()) => Ok(json!({})),
        Err(WriteError::ConditionFailed { .. }) => Err(GlueException::already_exists(format!(
            "Table {} already has an optimizer of type {}.",
            target.table, target.kind
        ))),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

async fn load(app: &App, target: &Target, entry: &TableEntry) -> Result<KeptOptimizer, GlueException> {
    let kept = KeptOptimizer::load(app.ports.items.as_ref(), &entry.id, &target.kind).await?;
    kept.ok_or_else(|| no_optimizer(target))
}

/// The optimizer in the service's shape.
pub(super) async fn describe(app: &App, target: &Target, entry: &TableEntry) -> Result<Value, GlueException> {
    let kept = load(app, target, entry).await?;
    Ok(json!({ "type": kept.kind, "configuration": kept.configuration, "configurationSource": "table" }))
}

pub(super) async fn update(
    app: &App,
    target: &Target,
    entry: &TableEntry,
    input: &Value,
) -> Result<Value, GlueException> {
    for _ in 0..TRIES {
        let old = load(app, target, entry).await?;
        let kept = KeptOptimizer {
            configuration: plan_configuration(&target.kind, input, Some(&old.configuration))?,
            updated_at_ms: app.ports.clock.now_ms(),
            revision: app.ports.ids.uuid().simple().to_string(),
            ..old.clone()
        };
        match app.ports.items.put(&KeptOptimizer::key(&entry.id, &kept.kind), kept.encode(), old.unchanged()).await {
            Ok(()) => return Ok(json!({})),
            Err(WriteError::ConditionFailed { .. }) => {}
            Err(WriteError::Store(error)) => return Err(error.into()),
        }
    }
    let text = "The optimizer is being changed by others: try again.";
    Err(GlueException::new(GlueExceptionName::ConcurrentModification, text))
}

pub(super) async fn delete(app: &App, target: &Target, entry: &TableEntry) -> Result<Value, GlueException> {
    match app.ports.items.delete(&KeptOptimizer::key(&entry.id, &target.kind), Condition::Present).await {
        Ok(()) => Ok(json!({})),
        Err(WriteError::ConditionFailed { .. }) => Err(no_optimizer(target)),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// There are none.
pub(super) async fn list_runs(app: &App, target: &Target, entry: &TableEntry) -> Result<Value, GlueException> {
    load(app, target, entry).await?;
    let mut answer = target.names();
    answer.insert("TableOptimizerRuns".to_owned(), json!([]));
    Ok(Value::Object(answer))
}
