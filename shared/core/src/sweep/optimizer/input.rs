//! Reading of requests: model constraints first (`ValidationException`), meaning after.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::{COMPACTION, ORPHAN_FILE_DELETION, RETENTION};
use crate::glue::{GlueException, GlueExceptionName};
use crate::location::Location;
use crate::ports::App;
use crate::sweep::items::{OptimizerConfig, QUARANTINE_DEFAULT_HOURS, SIGHTINGS_DEFAULT};

const TYPES: [&str; 3] = [COMPACTION, RETENTION, ORPHAN_FILE_DELETION];
const DEFAULT_RETENTION_DAYS: i64 = 3;
/// A longer one than this is a slip of the pen, and would overflow.
const RETENTION_DAYS_MAX: i64 = 36_500;
const DEFAULT_RATE_HOURS: i64 = 24;
/// Writers need this long; less must be asked for in so many words.
pub(super) const RETENTION_MIN_HOURS: i64 = 24;

/// Which optimizer a request means; names as the caller spelled them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) catalog: String,
    pub(super) database: String,
    pub(super) table: String,
    pub(super) kind: String,
}

pub(super) fn validation(problems: &[String]) -> GlueException {
    let count = problems.len();
    let plural = if count == 1 { "error" } else { "errors" };
    let message = format!("{count} validation {plural} detected: {}", problems.join("; "));
    GlueException::new(GlueExceptionName::Validation, message)
}

pub(super) fn must_not_be_null(member: &str) -> GlueException {
    validation(&[null_problem(member)])
}

fn null_problem(member: &str) -> String {
    format!("Value null at '{member}' failed to satisfy constraint: Member must not be null")
}

/// A required text of 1 to 255 characters.
fn name(input: &Value, member: &str, path: &str, problems: &mut Vec<String>) -> String {
    let Some(text) = input.get(member).and_then(Value::as_str) else {
        problems.push(null_problem(path));
        return String::new();
    };
    let length = text.chars().count();
    if length == 0 || length > 255 {
        let bound = if length == 0 { "greater than or equal to 1" } else { "less than or equal to 255" };
        problems
            .push(format!("Value '{text}' at '{path}' failed to satisfy constraint: Member must have length {bound}"));
    }
    text.to_owned()
}

fn kind(input: &Value, member: &str, problems: &mut Vec<String>) -> String {
    match input.get(member).and_then(Value::as_str) {
        None => {
            problems.push(null_problem("type"));
            String::new()
        }
        Some(kind) => {
            if !TYPES.contains(&kind) {
                problems.push(format!(
                    "Value '{kind}' at 'type' failed to satisfy constraint: Member must satisfy enum value set: [{}]",
                    TYPES.join(", ")
                ));
            }
            kind.to_owned()
        }
    }
}

impl Target {
    pub(super) fn parse(input: &Value) -> Result<Self, GlueException> {
        let mut problems = Vec::new();
        let target = Self {
            catalog: name(input, "CatalogId", "catalogId", &mut problems),
            database: name(input, "DatabaseName", "databaseName", &mut problems),
            table: name(input, "TableName", "tableName", &mut problems),
            kind: kind(input, "Type", &mut problems),
        };
        if problems.is_empty() { Ok(target) } else { Err(validation(&problems)) }
    }

    /// An entry of a batch, whose members the model spells in lower camel case and calls optional.
    pub(super) fn parse_entry(entry: &Value, account: &str) -> Result<Self, GlueException> {
        let text = |member: &str| entry.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
        let must = |member: &str| {
            text(member)
                .map(str::to_owned)
                .ok_or_else(|| GlueException::invalid_input(format!("The entry has no {member}.")))
        };
        let mut problems = Vec::new();
        let kind = kind(entry, "type", &mut problems);
        if let Some(problem) = problems.first() {
            return Err(GlueException::invalid_input(problem.clone()));
        }
        Ok(Self {
            catalog: text("catalogId").unwrap_or(account).to_owned(),
            database: must("databaseName")?,
            table: must("tableName")?,
            kind,
        })
    }

    pub(super) fn check_catalog(&self, app: &App) -> Result<(), GlueException> {
        if self.catalog == app.settings.account_id {
            Ok(())
        } else {
            Err(GlueException::not_found(format!("Catalog {} not found.", self.catalog)))
        }
    }

    /// Whether its runs are this product's work; the other types are kept only.
    pub(super) fn is_swept(&self) -> bool {
        self.kind == ORPHAN_FILE_DELETION
    }

    /// The three names that answers repeat.
    pub(super) fn names(&self) -> Map<String, Value> {
        let names = [("CatalogId", &self.catalog), ("DatabaseName", &self.database), ("TableName", &self.table)];
        names.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value.clone()))).collect()
    }
}

/// A configuration whose values are in range; what depends on the table is still to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigInput {
    pub(super) config: OptimizerConfig,
    pub(super) scope: Option<Location>,
}

/// Reads `TableOptimizerConfiguration`. With `old` (an update) absent parts keep their values.
pub(super) fn parse_config(input: &Value, old: Option<&OptimizerConfig>) -> Result<ConfigInput, GlueException> {
    let given = input
        .get("TableOptimizerConfiguration")
        .and_then(Value::as_object)
        .ok_or_else(|| must_not_be_null("tableOptimizerConfiguration"))?;
    let has = |member: &str| given.get(member).is_some_and(|value| !value.is_null());
    for other in ["compactionConfiguration", "retentionConfiguration"] {
        if has(other) {
            let message = format!("{other} does not belong to an optimizer of type {ORPHAN_FILE_DELETION}.");
            return Err(GlueException::invalid_input(message));
        }
    }
    let member = "orphanFileDeletionConfiguration";
    if !has(member) && old.is_none() {
        let message = format!("An optimizer of type {ORPHAN_FILE_DELETION} needs {member}.");
        return Err(GlueException::invalid_input(message));
    }
    let iceberg = given.get(member).and_then(|block| block.get("icebergConfiguration"));
    let rules = match old.filter(|_| !has(member)) {
        Some(old) => old.clone(),
        None => parse_rules(iceberg, old)?,
    };
    let scope = rules.location.as_deref().map(Location::parse).transpose();
    let scope = scope.map_err(|error| GlueException::invalid_input(error.to_string()))?;
    let whole = Value::Object(given.clone());
    let enabled = match given.get("enabled") {
        None | Some(Value::Null) => old.is_none_or(|old| old.enabled),
        Some(Value::Bool(enabled)) => *enabled,
        Some(_) => return Err(GlueException::invalid_input("enabled is true or false.")),
    };
    let role_arn = text(Some(&whole), "roleArn")?;
    if let Some(arn) = &role_arn
        && !(20..=2048).contains(&arn.chars().count())
    {
        let problem = "Value at 'tableOptimizerConfiguration.roleArn' failed to satisfy constraint: Member must have \
                       length between 20 and 2048";
        return Err(validation(&[problem.to_owned()]));
    }
    let config = OptimizerConfig {
        enabled,
        role_arn: role_arn.or_else(|| old.and_then(|old| old.role_arn.clone())),
        glue_connection: text(given.get("vpcConfiguration"), "glueConnectionName")?
            .or_else(|| old.and_then(|old| old.glue_connection.clone())),
        ..rules
    };
    Ok(ConfigInput { config, scope })
}

/// What is swept, and when. The service's model has no members for hours, short retentions, sightings and markers: they
/// come by REST. A caller who knows days only does not mean to change them: with `old` they keep their values, and so do
/// hours that read as the same days.
fn parse_rules(iceberg: Option<&Value>, old: Option<&OptimizerConfig>) -> Result<OptimizerConfig, GlueException> {
    let days = number(iceberg, "orphanFileRetentionPeriodInDays", DEFAULT_RETENTION_DAYS, 1, RETENTION_DAYS_MAX)?;
    let same = old.map(|old| old.retention_hours).filter(|hours| in_days(*hours) == days);
    let as_it_was = same.unwrap_or(days * 24);
    let hours = number(iceberg, "orphanFileRetentionPeriodInHours", as_it_was, 1, RETENTION_DAYS_MAX * 24)?;
    let is_said = |member: &str| iceberg.and_then(|block| block.get(member)).is_some_and(|value| !value.is_null());
    let both = ["orphanFileRetentionPeriodInDays", "orphanFileRetentionPeriodInHours"];
    if both.into_iter().all(is_said) && in_days(hours) != days {
        let message = format!(
            "orphanFileRetentionPeriodInDays says {days} days and orphanFileRetentionPeriodInHours {hours} hours, which are \
             {} days (begun ones count): say one of them.",
            in_days(hours)
        );
        return Err(GlueException::invalid_input(message));
    }
    let was = |rule: fn(&OptimizerConfig) -> bool| old.is_some_and(rule);
    // Leave that was given for these hours, not for others.
    let was_allowed = same == Some(hours) && was(|old| old.allow_short_retention);
    let allow_short_retention = flag(iceberg, "allowShortRetention", was_allowed)?;
    if hours < RETENTION_MIN_HOURS && !allow_short_retention {
        let message = format!(
            "orphanFileRetentionPeriodInHours below {RETENTION_MIN_HOURS} deletes files of commits that are only slow: \
             say allowShortRetention if that is meant."
        );
        return Err(GlueException::invalid_input(message));
    }
    let sightings = number(iceberg, "sightings", i64::from(old.map_or(SIGHTINGS_DEFAULT, |old| old.sightings)), 1, 2)?;
    let quarantine_hours = old.map_or(QUARANTINE_DEFAULT_HOURS, |old| old.quarantine_hours);
    Ok(OptimizerConfig {
        enabled: true,
        role_arn: None,
        glue_connection: None,
        retention_hours: hours,
        location: text(iceberg, "location")?,
        run_rate_hours: number(iceberg, "runRateInHours", DEFAULT_RATE_HOURS, 3, 168)?,
        allow_short_retention,
        sightings: if sightings == 1 { 1 } else { 2 },
        quarantine_hours: number(iceberg, "quarantineInHours", quarantine_hours, 1, RETENTION_DAYS_MAX * 24)?,
        sweep_folder_markers: flag(iceberg, "sweepFolderMarkers", was(|old| old.sweep_folder_markers))?,
        undo_hours: match iceberg.and_then(|block| block.get("undoInHours")) {
            None | Some(Value::Null) => old.and_then(|old| old.undo_hours),
            Some(_) => Some(number(iceberg, "undoInHours", 0, 0, RETENTION_DAYS_MAX * 24)?),
        },
    })
}

/// Days that are begun in so many hours: what a caller is told who knows days only.
pub(super) fn in_days(hours: i64) -> i64 {
    hours.saturating_add(23).div_euclid(24)
}

fn flag(block: Option<&Value>, member: &str, default: bool) -> Result<bool, GlueException> {
    match block.and_then(|block| block.get(member)) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(GlueException::invalid_input(format!("{member} is true or false."))),
    }
}

pub(super) fn text(block: Option<&Value>, member: &str) -> Result<Option<String>, GlueException> {
    match block.and_then(|block| block.get(member)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(GlueException::invalid_input(format!("{member} is a text."))),
    }
}

pub(super) fn number(
    block: Option<&Value>,
    member: &str,
    default: i64,
    least: i64,
    most: i64,
) -> Result<i64, GlueException> {
    let value = match block.and_then(|block| block.get(member)) {
        None | Some(Value::Null) => return Ok(default),
        Some(value) => value.as_i64(),
    };
    value
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| GlueException::invalid_input(format!("{member} is a whole number from {least} to {most}.")))
}

/// `MaxResults`, cut to what one answer holds.
pub(super) fn max_results(input: &Value, most: usize) -> Result<usize, GlueException> {
    match input.get("MaxResults") {
        None | Some(Value::Null) => Ok(most),
        Some(value) => match value.as_u64().and_then(|value| usize::try_from(value).ok()) {
            Some(value) if value > 0 => Ok(value.min(most)),
            _ => Err(GlueException::invalid_input("MaxResults is a whole number from 1.")),
        },
    }
}

pub(super) fn next_token(input: &Value) -> Result<Option<String>, GlueException> {
    match input.get("NextToken") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(token)) if token.is_empty() => Ok(None),
        Some(token) => decode_token(token.as_str().unwrap_or_default()).map(Some),
    }
}

/// A token is the run id behind which to go on.
pub(in crate::sweep) fn encode_token(run_id: &str) -> String {
    URL_SAFE_NO_PAD.encode(run_id)
}

pub(in crate::sweep) fn decode_token(token: &str) -> Result<String, GlueException> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.filter(|text| !text.is_empty() && text.len() <= 200 && text.is_ascii())
        .ok_or_else(|| GlueException::invalid_input("NextToken is not one that an earlier answer gave."))
}
