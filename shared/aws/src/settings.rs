//! Settings from the environment.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `LAKEWARDEN_TABLE_PREFIX` | `lakewarden-` | put before `catalog`, `partitions`, `commits` and `delta_log` |
//! | `LAKEWARDEN_DELTA_LOG_TABLE` | `<prefix>delta_log` | whole name of the table shared with Delta's DynamoDB log store |
//! | `LAKEWARDEN_REPORTS` | `s3://lakewarden-reports/sweeps` | folder for the reports of sweeps, outside every table |
//! | `LAKEWARDEN_BODIES` | `bodies` in the bucket of the reports | folder for definitions too large for an item, outside every table |
//! | `LAKEWARDEN_DEFAULT_ISOLATION` | `WriteSerializable` | for tables that do not say `delta.isolationLevel`; or `Serializable` |
//! | `LAKEWARDEN_IDENTITY_WRITERS` | `one-at-a-time` | tables with identity columns have no concurrent commits; `high-water-mark`: they have, and a winner that only moved the columns' marks is no conflict |
//! | `LAKEWARDEN_HISTORY_RETENTION_HOURS` | `168` | how long changed and deleted partitions stay readable as of a moment before; `0` keeps none |
//! | `LAKEWARDEN_VERDICT_RETENTION_HOURS` | `720` | how long verdicts on commits stay readable, and staged commits are kept; at least `24` |
//! | `LAKEWARDEN_DROPPED_GRACE_HOURS` | `168` | how long the files of a dropped table stay whatever is asked for; at least `24` |
//! | `LAKEWARDEN_PARTITION_MOVES` | `allow` | UpdatePartition with other Values moves the partition; `refuse`: it is InvalidInputException |
//! | `LAKEWARDEN_MAX_PARTITIONS_PER_TABLE` | `20000000` | compared with an approximate count |
//! | `LAKEWARDEN_STRICT_DEFAULT_PARTITION` | `false` | filters read `__HIVE_DEFAULT_PARTITION__` on typed keys as NULL; `true`: as a value that cannot be read, an error |
//! | `LAKEWARDEN_UNITY_CATALOG` | `unity` | name under which Unity Catalog's clients see the catalog |
//! | `LAKEWARDEN_UNITY_STORAGE` | none | folder for managed tables of schemas without a location of their own |
//! | `LAKEWARDEN_COMMITS_QUEUE_URL` | none | SQS queue of staged commits |
//! | `LAKEWARDEN_LOG_WORK_QUEUE_URL` | none | SQS queue of what others put into logs, and of their housekeeping |
//! | `LAKEWARDEN_SWEEPS_QUEUE_URL` | none | SQS queue of tables to sweep; without one the planner sweeps them itself |
//! | `LAKEWARDEN_CATALOG_WORK_QUEUE_URL` | none | SQS queue of the catalog's background work |
//! | `LAKEWARDEN_SWEEPS_UNDO_HOURS` | `168` | how long what sweeps delete can come back in buckets that keep no versions, where the optimizer does not say; `0`: not at all |
//! | `LAKEWARDEN_SWEEPS_QUARANTINE_FOLDER` | `lakewarden-quarantine` | folder in each bucket that it is moved to until then, outside every table |
//! | `LAKEWARDEN_ACCOUNT_ID` | from the function's ARN, else `000000000000` | twelve digits, the default CatalogId |
//!
//! The AWS SDK reads its own: `AWS_REGION`, credentials, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB`,
//! `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL_SQS`. With an endpoint for S3, buckets are addressed by path. `RUST_LOG`
//! sets what is logged. A variable that is set but empty counts as not set.

use lakewarden_core::location::Location;
use lakewarden_core::ports::{
    IdentityWriters, IsolationLevel, PartitionMoves, Settings, SweepDispatch, UndoSettings, UnitySettings,
};
use lakewarden_core::predicate::Mode;
use lakewarden_core::store::{QueueName, Table};
use thiserror::Error;

pub(crate) const RUNS_IN_LAMBDA: &str = "AWS_LAMBDA_FUNCTION_NAME";
const TABLE_PREFIX: &str = "LAKEWARDEN_TABLE_PREFIX";
const DELTA_LOG_TABLE: &str = "LAKEWARDEN_DELTA_LOG_TABLE";
const REPORTS: &str = "LAKEWARDEN_REPORTS";
const BODIES: &str = "LAKEWARDEN_BODIES";
const DEFAULT_ISOLATION: &str = "LAKEWARDEN_DEFAULT_ISOLATION";
const IDENTITY_WRITERS: &str = "LAKEWARDEN_IDENTITY_WRITERS";
const HISTORY_RETENTION: &str = "LAKEWARDEN_HISTORY_RETENTION_HOURS";
const VERDICT_RETENTION: &str = "LAKEWARDEN_VERDICT_RETENTION_HOURS";
const DROPPED_GRACE: &str = "LAKEWARDEN_DROPPED_GRACE_HOURS";
const PARTITION_MOVES: &str = "LAKEWARDEN_PARTITION_MOVES";
const MAX_PARTITIONS: &str = "LAKEWARDEN_MAX_PARTITIONS_PER_TABLE";
const STRICT_DEFAULT_PARTITION: &str = "LAKEWARDEN_STRICT_DEFAULT_PARTITION";
const UNITY_CATALOG: &str = "LAKEWARDEN_UNITY_CATALOG";
const UNITY_STORAGE: &str = "LAKEWARDEN_UNITY_STORAGE";
const UNDO_HOURS: &str = "LAKEWARDEN_SWEEPS_UNDO_HOURS";
const QUARANTINE_FOLDER: &str = "LAKEWARDEN_SWEEPS_QUARANTINE_FOLDER";
const ACCOUNT_ID: &str = "LAKEWARDEN_ACCOUNT_ID";
const DEFAULT_TABLE_PREFIX: &str = "lakewarden-";

/// A setting cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error("{variable} is `{value}`; allowed is {allowed}")]
    Invalid { variable: &'static str, value: String, allowed: String },
    #[error("{variable} is not set; it should be {allowed}")]
    Missing { variable: &'static str, allowed: &'static str },
}

/// Names of the four tables in a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableNames {
    prefix: String,
    delta_log: String,
}

impl TableNames {
    /// Tables named `<prefix><table>`. The prefix may be empty.
    pub fn new(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let delta_log = format!("{prefix}{}", Table::DeltaLog.as_str());
        Self { prefix, delta_log }
    }

    /// Uses a table of this whole name for version claims.
    pub fn with_delta_log(mut self, name: impl Into<String>) -> Self {
        self.delta_log = name.into();
        self
    }

    pub fn name(&self, table: Table) -> String {
        if table == Table::DeltaLog { self.delta_log.clone() } else { format!("{}{}", self.prefix, table.as_str()) }
    }
}

impl Default for TableNames {
    fn default() -> Self {
        Self::new(DEFAULT_TABLE_PREFIX)
    }
}

/// URLs of the queues that a function sends to; one that it never sends to needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUrls {
    pub commits: Option<String>,
    pub log_work: Option<String>,
    pub sweeps: Option<String>,
    pub catalog_work: Option<String>,
}

impl QueueUrls {
    pub fn get(&self, queue: QueueName) -> Option<&str> {
        match queue {
            QueueName::Commits => self.commits.as_deref(),
            QueueName::LogWork => self.log_work.as_deref(),
            QueueName::Sweeps => self.sweeps.as_deref(),
            QueueName::CatalogWork => self.catalog_work.as_deref(),
        }
    }

    /// The environment variable of a queue.
    pub fn variable(queue: QueueName) -> &'static str {
        match queue {
            QueueName::Commits => "LAKEWARDEN_COMMITS_QUEUE_URL",
            QueueName::LogWork => "LAKEWARDEN_LOG_WORK_QUEUE_URL",
            QueueName::Sweeps => "LAKEWARDEN_SWEEPS_QUEUE_URL",
            QueueName::CatalogWork => "LAKEWARDEN_CATALOG_WORK_QUEUE_URL",
        }
    }
}

/// Where the account id in the settings comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountSource {
    /// It was given and stays.
    Given,
    /// Nobody said; a function takes it from its ARN.
    Default,
}

/// All settings of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsSettings {
    pub tables: TableNames,
    pub queues: QueueUrls,
    pub core: Settings,
    pub account: AccountSource,
}

impl AwsSettings {
    /// Reads the environment of the process (see the table above). The region is left at its default.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads settings from any source of variables.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let defaults = Settings::default();
        let account_id = get(ACCOUNT_ID).map(account_id).transpose()?;
        let account = if account_id.is_some() { AccountSource::Given } else { AccountSource::Default };
        let url = |queue| {
            let variable = QueueUrls::variable(queue);
            get(variable).map(|value| queue_url(variable, value)).transpose()
        };
        let reports = get(REPORTS).map_or(Ok(defaults.reports), |value| folder(REPORTS, value))?;
        let bodies =
            get(BODIES).map_or_else(|| Ok(Settings::bodies_beside(&reports)), |value| folder(BODIES, value))?;
        Ok(Self {
            tables: table_names(get(TABLE_PREFIX), get(DELTA_LOG_TABLE))?,
            queues: QueueUrls {
                commits: url(QueueName::Commits)?,
                log_work: url(QueueName::LogWork)?,
                sweeps: url(QueueName::Sweeps)?,
                catalog_work: url(QueueName::CatalogWork)?,
            },
            core: Settings {
                account_id: account_id.unwrap_or(defaults.account_id),
                region: defaults.region,
                default_isolation: get(DEFAULT_ISOLATION).map_or(Ok(defaults.default_isolation), isolation)?,
                identity_writers: get(IDENTITY_WRITERS).map_or(Ok(defaults.identity_writers), identity_writers)?,
                reports,
                bodies,
                history_retention_ms: get(HISTORY_RETENTION).map_or(Ok(defaults.history_retention_ms), hours_in_ms)?,
                verdict_retention_ms: get(VERDICT_RETENTION)
                    .map_or(Ok(defaults.verdict_retention_ms), |value| a_day_or_more(VERDICT_RETENTION, value))?,
                dropped_grace_ms: get(DROPPED_GRACE)
                    .map_or(Ok(defaults.dropped_grace_ms), |value| a_day_or_more(DROPPED_GRACE, value))?,
                partition_moves: get(PARTITION_MOVES).map_or(Ok(defaults.partition_moves), partition_moves)?,
                max_partitions_per_table: get(MAX_PARTITIONS)
                    .map_or(Ok(defaults.max_partitions_per_table), max_partitions)?,
                default_partition: get(STRICT_DEFAULT_PARTITION)
                    .map_or(Ok(defaults.default_partition), default_partition)?,
                sweep_dispatch: match url(QueueName::Sweeps)? {
                    Some(_) => SweepDispatch::Queue,
                    None => SweepDispatch::Inline,
                },
                undo: UndoSettings {
                    hours: get(UNDO_HOURS).map_or(Ok(defaults.undo.hours), undo_hours)?,
                    folder: get(QUARANTINE_FOLDER).map_or(Ok(defaults.undo.folder), quarantine_folder)?,
                },
                unity: UnitySettings {
                    catalog: get(UNITY_CATALOG).map_or(Ok(defaults.unity.catalog), unity_catalog)?,
                    storage: get(UNITY_STORAGE).map(|value| folder(UNITY_STORAGE, value)).transpose()?,
                },
            },
            account,
        })
    }
}

fn invalid<T>(variable: &'static str, value: String, allowed: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError::Invalid { variable, value, allowed: allowed.into() })
}

pub(crate) fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn account_id(value: String) -> Result<String, SettingsError> {
    if is_account_id(&value) { Ok(value) } else { invalid(ACCOUNT_ID, value, "a number of twelve digits") }
}

/// DynamoDB: 3 to 255 of these characters.
fn is_table_name(name: &str) -> bool {
    (3..=255).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn table_names(prefix: Option<String>, delta_log: Option<String>) -> Result<TableNames, SettingsError> {
    let names = TableNames::new(prefix.unwrap_or_else(|| DEFAULT_TABLE_PREFIX.to_owned()));
    if !Table::ALL.iter().all(|table| is_table_name(&names.name(*table))) {
        let allowed = "letters, digits, `_`, `-` and `.`, at most 240 characters";
        return invalid(TABLE_PREFIX, names.prefix, allowed);
    }
    match delta_log {
        None => Ok(names),
        Some(name) if is_table_name(&name) => Ok(names.with_delta_log(name)),
        Some(name) => {
            invalid(DELTA_LOG_TABLE, name, "the name of a DynamoDB table: 3 to 255 letters, digits, `_`, `-`, `.`")
        }
    }
}

fn isolation(value: String) -> Result<IsolationLevel, SettingsError> {
    match value.as_str() {
        "WriteSerializable" => Ok(IsolationLevel::WriteSerializable),
        "Serializable" => Ok(IsolationLevel::Serializable),
        _ => invalid(DEFAULT_ISOLATION, value, "WriteSerializable or Serializable"),
    }
}

fn identity_writers(value: String) -> Result<IdentityWriters, SettingsError> {
    match value.as_str() {
        "one-at-a-time" => Ok(IdentityWriters::OneAtATime),
        "high-water-mark" => Ok(IdentityWriters::HighWaterMark),
        _ => invalid(IDENTITY_WRITERS, value, "one-at-a-time or high-water-mark"),
    }
}

fn folder(variable: &'static str, value: String) -> Result<Location, SettingsError> {
    match Location::parse(&value) {
        Ok(location) => Ok(location),
        Err(error) => invalid(variable, value, format!("a folder such as s3://bucket/path ({error})")),
    }
}

fn unity_catalog(value: String) -> Result<String, SettingsError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if value.len() <= 255 && value.chars().all(is_plain) {
        return Ok(value);
    }
    invalid(UNITY_CATALOG, value, "letters, digits, `_` and `-`, at most 255")
}

fn undo_hours(value: String) -> Result<i64, SettingsError> {
    match value.parse::<u32>() {
        Ok(hours) if hours <= 876_000 => Ok(i64::from(hours)),
        _ => invalid(UNDO_HOURS, value, "a number of hours up to 876000, 0 to delete for good"),
    }
}

/// Short, since keys of the files go behind it, and without anything that a URL or a policy would read otherwise.
fn quarantine_folder(value: String) -> Result<String, SettingsError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-/.".contains(c);
    let parts = value.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if value.len() <= 200 && value.chars().all(is_plain) && parts {
        return Ok(value);
    }
    invalid(
        QUARANTINE_FOLDER,
        value,
        "a folder such as lakewarden-quarantine: letters, digits, `_`, `-`, `.` and single `/` between",
    )
}

fn hours_in_ms(value: String) -> Result<i64, SettingsError> {
    match value.parse::<u32>() {
        Ok(hours) => Ok(i64::from(hours) * 60 * 60 * 1000),
        Err(_) => invalid(HISTORY_RETENTION, value, "a number of hours, 0 to keep no history"),
    }
}

fn a_day_or_more(name: &'static str, value: String) -> Result<i64, SettingsError> {
    match value.parse::<u32>() {
        Ok(hours) if hours >= 24 => Ok(i64::from(hours) * 60 * 60 * 1000),
        _ => invalid(name, value, "a number of hours, at least 24"),
    }
}

fn partition_moves(value: String) -> Result<PartitionMoves, SettingsError> {
    match value.as_str() {
        "allow" => Ok(PartitionMoves::Allow),
        "refuse" => Ok(PartitionMoves::Refuse),
        _ => invalid(PARTITION_MOVES, value, "allow or refuse"),
    }
}

fn default_partition(value: String) -> Result<Mode, SettingsError> {
    match value.as_str() {
        "false" => Ok(Mode::Lenient),
        "true" => Ok(Mode::Strict),
        _ => invalid(STRICT_DEFAULT_PARTITION, value, "true or false"),
    }
}

fn max_partitions(value: String) -> Result<u64, SettingsError> {
    match value.parse() {
        Ok(most) if most > 0 => Ok(most),
        _ => invalid(MAX_PARTITIONS, value, "a number of partitions, at least 1"),
    }
}

fn queue_url(variable: &'static str, value: String) -> Result<String, SettingsError> {
    let has_scheme = value.starts_with("https://") || value.starts_with("http://");
    if has_scheme && value.ends_with(".fifo") {
        return invalid(variable, value, "the URL of a standard queue; this one is first-in-first-out");
    }
    if has_scheme { Ok(value) } else { invalid(variable, value, "the URL of an SQS queue, https://sqs.…") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<AwsSettings, SettingsError> {
        AwsSettings::read(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn everything_has_a_default() {
        let settings = read(&[("LAKEWARDEN_REPORTS", "")]).unwrap();
        let inline = Settings { sweep_dispatch: SweepDispatch::Inline, ..Settings::default() };
        assert_eq!(settings.core, inline, "without a queue");
        assert_eq!(settings.account, AccountSource::Default);
        assert_eq!(settings.queues, QueueUrls::default());
        let names: Vec<String> = Table::ALL.iter().map(|table| settings.tables.name(*table)).collect();
        let expected = ["lakewarden-catalog", "lakewarden-partitions", "lakewarden-commits", "lakewarden-delta_log"];
        assert_eq!(names, expected);
    }

    #[test]
    fn every_variable_is_read() {
        let settings = read(&[
            (TABLE_PREFIX, "prod."),
            (DELTA_LOG_TABLE, "delta_log"),
            (REPORTS, "s3://ops/reports/"),
            (DEFAULT_ISOLATION, "Serializable"),
            (IDENTITY_WRITERS, "high-water-mark"),
            (HISTORY_RETENTION, "0"),
            (VERDICT_RETENTION, "24"),
            (DROPPED_GRACE, "48"),
            (PARTITION_MOVES, "refuse"),
            (MAX_PARTITIONS, "5"),
            (STRICT_DEFAULT_PARTITION, "true"),
            (UNITY_CATALOG, "main"),
            (UNITY_STORAGE, "s3://lake/managed"),
            (ACCOUNT_ID, "123456789012"),
            ("LAKEWARDEN_COMMITS_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/1/c"),
            ("LAKEWARDEN_LOG_WORK_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/1/l"),
            ("LAKEWARDEN_SWEEPS_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/1/s"),
            ("LAKEWARDEN_CATALOG_WORK_QUEUE_URL", "http://localhost:9324/1/w"),
        ])
        .unwrap();
        assert_eq!(settings.tables.name(Table::Commits), "prod.commits");
        assert_eq!(settings.tables.name(Table::DeltaLog), "delta_log");
        assert_eq!(settings.core.reports, Location::new("ops", "reports"));
        assert_eq!(settings.core.bodies, Location::new("ops", "bodies"));
        let apart = read(&[(REPORTS, "s3://ops/reports/"), (BODIES, "s3://own/large")]).unwrap();
        assert_eq!(apart.core.bodies, Location::new("own", "large"));
        assert_eq!(settings.core.default_isolation, IsolationLevel::Serializable);
        assert_eq!(settings.core.sweep_dispatch, SweepDispatch::Queue);
        assert_eq!(settings.core.identity_writers, IdentityWriters::HighWaterMark);
        let partitions = (settings.core.history_retention_ms, settings.core.max_partitions_per_table);
        assert_eq!((partitions, settings.core.partition_moves), ((0, 5), PartitionMoves::Refuse));
        let unity = UnitySettings { catalog: "main".into(), storage: Some(Location::new("lake", "managed")) };
        assert_eq!(settings.core.unity, unity);
        assert_eq!((settings.core.verdict_retention_ms, settings.core.dropped_grace_ms), (86_400_000, 172_800_000));
        assert_eq!(settings.core.default_partition, Mode::Strict);
        assert_eq!((settings.core.account_id.as_str(), settings.account), ("123456789012", AccountSource::Given));
        assert_eq!(settings.queues.get(QueueName::Commits), Some("https://sqs.eu-west-1.amazonaws.com/1/c"));
        assert_eq!(settings.queues.get(QueueName::LogWork), Some("https://sqs.eu-west-1.amazonaws.com/1/l"));
        assert_eq!(settings.queues.get(QueueName::Sweeps), Some("https://sqs.eu-west-1.amazonaws.com/1/s"));
        assert_eq!(settings.queues.get(QueueName::CatalogWork), Some("http://localhost:9324/1/w"));
    }

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        let cases = [
            (TABLE_PREFIX, "a b", "letters, digits"),
            (DELTA_LOG_TABLE, "x", "3 to 255"),
            (REPORTS, "/tmp", "s3://bucket/path"),
            (BODIES, "bodies", "s3://bucket/path"),
            (IDENTITY_WRITERS, "yes", "one-at-a-time or high-water-mark"),
            (DEFAULT_ISOLATION, "snapshot", "WriteSerializable or Serializable"),
            (HISTORY_RETENTION, "1.5", "number of hours"),
            (VERDICT_RETENTION, "23", "at least 24"),
            (DROPPED_GRACE, "0", "at least 24"),
            (PARTITION_MOVES, "yes", "allow or refuse"),
            (STRICT_DEFAULT_PARTITION, "yes", "true or false"),
            (MAX_PARTITIONS, "0", "at least 1"),
            (UNITY_CATALOG, "a.b", "letters, digits"),
            (UNITY_STORAGE, "managed", "s3://bucket/path"),
            (ACCOUNT_ID, "12", "twelve digits"),
            ("LAKEWARDEN_SWEEPS_QUEUE_URL", "sweeps", "https://sqs"),
            ("LAKEWARDEN_COMMITS_QUEUE_URL", "https://sqs/1/c.fifo", "standard queue"),
        ];
        for (variable, value, allowed) in cases {
            let message = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{variable} is `{value}`")), "{message}");
            assert!(message.contains(allowed), "{message}");
        }
    }
}
