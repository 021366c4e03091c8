use sha2::{Digest, Sha256};

use crate::store::{Condition, Consistency, DecodeError, Fields, Item, Key, ReadItems, StoreError, Table, Value};
use crate::sweep::Mode;

const LAYOUT: i64 = 1;
const TYPE: &str = "orphan_file_deletion";
/// Optimizers are spread over so many partition keys; the planner reads them all.
pub const OPTIMIZER_SHARDS: u8 = 4;

/// Configuration of an orphan_file_deletion optimizer, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizerConfig {
    pub enabled: bool,
    pub role_arn: Option<String>,
    pub glue_connection: Option<String>,
    pub retention_hours: i64,
    /// As given; the table's location if absent.
    pub location: Option<String>,
    pub run_rate_hours: i64,
    /// Somebody said in so many words that less than a day of retention is wanted.
    pub allow_short_retention: bool,
    /// How often a scheduled run must have seen an orphan: 1 or 2.
    pub sightings: u8,
    /// Time between the two sightings.
    pub quarantine_hours: i64,
    /// Empty objects that stand for folders go when they are old enough.
    pub sweep_folder_markers: bool,
    /// How long what is deleted can come back, where the bucket keeps no versions; 0: not at all. `None`: as the
    /// deployment says.
    pub undo_hours: Option<i64>,
}

/// Of optimizers that say nothing else.
pub const SIGHTINGS_DEFAULT: u8 = 2;
pub const QUARANTINE_DEFAULT_HOURS: i64 = 24;

/// A run whose message may not have been sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRun {
    pub run_id: String,
    pub mode: Mode,
}

/// The orphan_file_deletion optimizer of a table.
///
/// Item: pk `sweep-optimizers#<shard of the table id>`, sk `<table id>#orphan_file_deletion`. `created_at_ms` is the
/// creation gate: it never changes, and a recreated optimizer has a new one. `pending` is an outbox: runs are entered
/// there together with their record and taken out once their message is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizerItem {
    pub table_id: String,
    pub database: String,
    pub table: String,
    pub config: OptimizerConfig,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    /// When the schedule last started a run.
    pub last_planned_ms: Option<i64>,
    pub pending: Vec<PendingRun>,
    /// Unique to each write.
    pub revision: String,
}

fn shard(table_id: &str) -> u8 {
    Sha256::digest(table_id).first().copied().unwrap_or_default() % OPTIMIZER_SHARDS
}

impl OptimizerItem {
    pub fn key(table_id: &str) -> Key {
        Key::new(Table::Catalog, Self::partition(shard(table_id)), format!("{table_id}#{TYPE}"))
    }

    /// Partition key of a shard.
    pub fn partition(shard: u8) -> String {
        format!("sweep-optimizers#{shard}")
    }

    pub async fn load(items: &dyn ReadItems, table_id: &str) -> Result<Option<Self>, OptimizerReadError> {
        let item = items.get(&Self::key(table_id), Consistency::Strong).await?;
        Ok(item.map(|item| Self::decode(&item)).transpose()?)
    }

    pub fn encode(&self) -> Item {
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let pending = |run: &PendingRun| {
            Value::Map(Item::from([
                ("run_id".to_owned(), run.run_id.as_str().into()),
                ("mode".to_owned(), run.mode.as_str().into()),
            ]))
        };
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("table_id".to_owned(), self.table_id.as_str().into()),
            ("database".to_owned(), self.database.as_str().into()),
            ("table".to_owned(), self.table.as_str().into()),
            ("enabled".to_owned(), self.config.enabled.into()),
            ("role_arn".to_owned(), text(&self.config.role_arn)),
            ("glue_connection".to_owned(), text(&self.config.glue_connection)),
            ("retention_hours".to_owned(), self.config.retention_hours.into()),
            ("allow_short_retention".to_owned(), self.config.allow_short_retention.into()),
            ("sightings".to_owned(), i64::from(self.config.sightings).into()),
            ("quarantine_hours".to_owned(), self.config.quarantine_hours.into()),
            ("sweep_folder_markers".to_owned(), self.config.sweep_folder_markers.into()),
            ("undo_hours".to_owned(), self.config.undo_hours.map_or(Value::Null, Value::from)),
            ("location".to_owned(), text(&self.config.location)),
            ("run_rate_hours".to_owned(), self.config.run_rate_hours.into()),
            ("created_at_ms".to_owned(), self.created_at_ms.into()),
            ("updated_at_ms".to_owned(), self.updated_at_ms.into()),
            ("last_planned_ms".to_owned(), self.last_planned_ms.map_or(Value::Null, Value::from)),
            ("pending".to_owned(), Value::List(self.pending.iter().map(pending).collect())),
            ("revision".to_owned(), self.revision.as_str().into()),
        ])
    }

    pub fn decode(item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        let owned = |field: &str| item.text(field).map(str::to_owned);
        let optional = |field: &str| item.opt_text(field).map(|text| text.map(str::to_owned));
        let has = |field: &str| if item.contains_key(field) { item.flag(field) } else { Ok(false) };
        Ok(Self {
            table_id: owned("table_id")?,
            database: owned("database")?,
            table: owned("table")?,
            config: OptimizerConfig {
                enabled: item.flag("enabled")?,
                role_arn: optional("role_arn")?,
                glue_connection: optional("glue_connection")?,
                retention_hours: match item.opt_int("retention_hours")? {
                    Some(hours) => hours,
                    // As an earlier version wrote it.
                    None => item.int("retention_days")?.saturating_mul(24),
                },
                allow_short_retention: has("allow_short_retention")?,
                sightings: if item.opt_int("sightings")? == Some(1) { 1 } else { SIGHTINGS_DEFAULT },
                quarantine_hours: item.opt_int("quarantine_hours")?.unwrap_or(QUARANTINE_DEFAULT_HOURS),
                sweep_folder_markers: has("sweep_folder_markers")?,
                undo_hours: item.opt_int("undo_hours")?,
                location: optional("location")?,
                run_rate_hours: item.int("run_rate_hours")?,
            },
            created_at_ms: item.int("created_at_ms")?,
            updated_at_ms: item.int("updated_at_ms")?,
            last_planned_ms: item.opt_int("last_planned_ms")?,
            pending: decode_pending(item)?,
            revision: owned("revision")?,
        })
    }

    /// The condition that nobody has written since this was read.
    pub fn unchanged(&self) -> Condition {
        Condition::equals("revision", self.revision.as_str())
    }
}

fn decode_pending(item: &Item) -> Result<Vec<PendingRun>, DecodeError> {
    let invalid = |message: &str| DecodeError::Invalid { field: "pending".to_owned(), message: message.to_owned() };
    let Some(Value::List(runs)) = item.get("pending") else { return Err(invalid("not a list")) };
    let decode = |run: &Value| {
        let Value::Map(run) = run else { return Err(invalid("an entry is not a map")) };
        let mode = Mode::parse(run.text("mode")?).ok_or_else(|| invalid("an entry with an unknown mode"))?;
        Ok(PendingRun { run_id: run.text("run_id")?.to_owned(), mode })
    };
    runs.iter().map(decode).collect()
}

/// An optimizer could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptimizerReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl From<OptimizerReadError> for crate::sweep::SweepError {
    fn from(error: OptimizerReadError) -> Self {
        match error {
            OptimizerReadError::Store(error) => error.into(),
            OptimizerReadError::Decode(error) => error.into(),
        }
    }
}

impl From<OptimizerReadError> for crate::glue::GlueException {
    fn from(error: OptimizerReadError) -> Self {
        match error {
            OptimizerReadError::Store(error) => error.into(),
            OptimizerReadError::Decode(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let full = OptimizerItem {
            table_id: "id".into(),
            database: "d".into(),
            table: "t".into(),
            config: OptimizerConfig {
                enabled: true,
                role_arn: Some("arn:aws:iam::000000000000:role/x".into()),
                glue_connection: Some("c".into()),
                retention_hours: 30,
                location: Some("s3://b/t/data".into()),
                run_rate_hours: 24,
                allow_short_retention: true,
                sightings: 1,
                quarantine_hours: 48,
                sweep_folder_markers: true,
                undo_hours: Some(48),
            },
            created_at_ms: 5,
            updated_at_ms: 6,
            last_planned_ms: Some(7),
            pending: vec![PendingRun { run_id: "r".into(), mode: Mode::Ordinary }],
            revision: "x".into(),
        };
        assert_eq!(OptimizerItem::decode(&full.encode()).unwrap(), full);
        let config = OptimizerConfig { role_arn: None, glue_connection: None, location: None, ..full.config.clone() };
        let bare = OptimizerItem { config, last_planned_ms: None, pending: vec![], ..full };
        assert_eq!(OptimizerItem::decode(&bare.encode()).unwrap(), bare);
        let mut earlier = bare.encode();
        for member in [
            "retention_hours",
            "allow_short_retention",
            "sightings",
            "quarantine_hours",
            "sweep_folder_markers",
            "undo_hours",
        ] {
            earlier.remove(member);
        }
        earlier.insert("retention_days".into(), 5.into());
        let config = OptimizerItem::decode(&earlier).unwrap().config;
        assert_eq!((config.retention_hours, config.sightings, config.quarantine_hours), (120, 2, 24));
        let mut other = bare.encode();
        other.insert("schema_version".into(), 2.into());
        assert!(matches!(OptimizerItem::decode(&other), Err(DecodeError::Layout { .. })));
    }
}
