//! Messages of the sweep queue.

use serde_json::{Value, json};

use super::SweepError;
use super::items::is_run_id;

/// What a run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Started by the schedule. Deletes.
    Scheduled,
    /// Asked for by a person. Deletes, under the same guards.
    Ordinary,
    /// Deletes nothing and reports everything.
    DryRun,
    /// Brings back what earlier runs took away, and deletes nothing of the table's.
    Restore,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Scheduled => "scheduled",
            Mode::Ordinary => "ordinary",
            Mode::DryRun => "dry_run",
            Mode::Restore => "restore",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all = [Mode::Scheduled, Mode::Ordinary, Mode::DryRun, Mode::Restore];
        all.into_iter().find(|mode| mode.as_str() == text)
    }

    /// Whether runs of this kind take files away.
    pub fn deletes(self) -> bool {
        matches!(self, Mode::Scheduled | Mode::Ordinary)
    }
}

/// One run of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRequest {
    pub run_id: String,
    /// Absent in messages written by hand: then whatever table has the name now.
    pub table_id: Option<String>,
    pub database: String,
    pub table: String,
    pub mode: Mode,
}

const LAYOUT: u64 = 1;

impl SweepRequest {
    pub fn encode(&self) -> String {
        json!({
            "schema_version": LAYOUT,
            "run_id": self.run_id,
            "table_id": self.table_id,
            "database": self.database,
            "table": self.table,
            "mode": self.mode.as_str(),
        })
        .to_string()
    }

    pub fn decode(body: &str) -> Result<Self, SweepError> {
        let json: Value = serde_json::from_str(body).map_err(|error| SweepError::Message(error.to_string()))?;
        let text = |name: &str| json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let must = |name: &str| {
            text(name).map(str::to_owned).ok_or_else(|| SweepError::Message(format!("it has no `{name}`")))
        };
        if json.get("schema_version").and_then(Value::as_u64) != Some(LAYOUT) {
            return Err(SweepError::Message(format!("its schema_version is not {LAYOUT}")));
        }
        let run_id = must("run_id")?;
        if !is_run_id(&run_id) {
            let message = "its run_id is not 1 to 128 letters, digits, `-`, `_` and `.`".to_owned();
            return Err(SweepError::Message(message));
        }
        let mode = must("mode")?;
        Ok(Self {
            run_id,
            table_id: text("table_id").map(str::to_owned),
            database: must("database")?.to_lowercase(),
            table: must("table")?.to_lowercase(),
            mode: Mode::parse(&mode).ok_or_else(|| {
                SweepError::Message(format!("mode `{mode}` is not scheduled, ordinary, dry_run or restore"))
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let request = SweepRequest {
            run_id: "r".into(),
            table_id: Some("t".into()),
            database: "d".into(),
            table: "x".into(),
            mode: Mode::DryRun,
        };
        assert_eq!(SweepRequest::decode(&request.encode()).unwrap(), request);
        let odd_ids = ["a/b", "a\\u0000b", "é", &"x".repeat(129)]
            .map(|id| request.encode().replace("\"r\"", &format!("\"{id}\"")));
        let others = ["", "{}", r#"{"schema_version":1}"#, &request.encode().replace("dry_run", "rm -rf")];
        for bad in others.into_iter().chain(odd_ids.iter().map(String::as_str)) {
            assert!(matches!(SweepRequest::decode(bad), Err(SweepError::Message(_))), "{bad}");
        }
    }
}
