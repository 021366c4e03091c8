use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::{
    Condition, Consistency, DecodeError, Direction, Fields, Ids, Item, Items, Key, Query, ReadItems, SortRange,
    StoreError, Table, Value,
};
use crate::sweep::items::progress::{Live, Progress, Segments};
use crate::sweep::{Mode, Refusal, SweepError, SweepRequest};

const LAYOUT: i64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    Queued,
    /// Also while a run waits for its next attempt.
    Running,
    Completed,
    /// Refused, with the reason in `refusal`.
    Failed,
}

impl RunState {
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Completed => "completed",
            RunState::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [RunState::Queued, RunState::Running, RunState::Completed, RunState::Failed];
        all.into_iter().find(|state| state.as_str() == text)
    }

    /// Nothing happens any more.
    pub fn is_final(self) -> bool {
        matches!(self, RunState::Completed | RunState::Failed)
    }
}

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub count: i64,
    pub size_bytes: i64,
}

impl Tally {
    pub fn add(&mut self, size_bytes: u64) {
        self.count = self.count.saturating_add(1);
        self.size_bytes = self.size_bytes.saturating_add(i64::try_from(size_bytes).unwrap_or(i64::MAX));
    }
}

/// What a run found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Objects of the listing by the name of their reason.
    pub by_reason: BTreeMap<String, Tally>,
    /// Over all attempts. Of a batch whose answer was lost in a crash nothing is counted.
    pub deleted: Tally,
    /// Orphans that were not deleted after all, by outcome, over all attempts.
    pub spared: BTreeMap<String, Tally>,
}

/// Where the report's parts are: judgements by attempt, and outcomes over all attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportParts {
    pub judged: Segments,
    pub outcomes: i64,
}

/// What was asked for beside the mode. Kept in the record, so that it can be looked up who let what be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// Files from before the optimizer may go as well.
    pub backfill: bool,
    /// However large the share of orphans is, they go.
    pub accept_share: bool,
    /// The table was dropped, and its files are to go.
    pub dropped: bool,
    /// How often an orphan must have been seen: 1 or 2. By default 2 for scheduled runs, 1 for others.
    pub sightings: Option<u8>,
    /// The dry run that was looked at before.
    pub after_dry_run: Option<String>,
    pub asked_by: Option<String>,
    pub why: Option<String>,
    /// Of a run that restores: what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreAsk>,
}

/// What is to come back: of all runs, or of one; everything, or what these name. Keys are those of the table's bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoreAsk {
    pub run: Option<String>,
    pub prefix: Option<String>,
    pub key: Option<String>,
}

/// What an attempt judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    pub scope: Option<String>,
    /// Files until then were kept; none in a backfill.
    pub gate_ms: Option<i64>,
    pub retention_ms: Option<i64>,
    /// How long all but one in a thousand files of the newest commits had waited for theirs.
    pub usual_delay_ms: Option<i64>,
    /// Objects under the scope.
    pub listed: u64,
    /// What somebody should look at: unknown tables that were found, tables that could not be read.
    pub findings: Vec<String>,
    /// How far the worker is, as of a moment ago; only while it is at work.
    pub live: Option<Live>,
    /// How what it deleted can come back, by the name of [`crate::sweep::undo::Way`].
    pub undo: Option<String>,
    /// Files that came back, and their bytes.
    pub restored: Option<Tally>,
    /// Files whose time in quarantine was over.
    pub expired: Option<Tally>,
}

impl RunFacts {
    /// Findings of one run.
    const FINDINGS_MAX: usize = 100;

    /// What stays true when a run starts over: what it did already, and what it found in doing so.
    pub fn of_what_was_done(&self) -> Self {
        let (undo, findings) = (self.undo.clone(), self.findings.clone());
        Self { undo, findings, restored: self.restored, expired: self.expired, ..Self::default() }
    }

    pub fn find(&mut self, finding: String) {
        if self.findings.len() < Self::FINDINGS_MAX && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

fn encode_json(value: &impl Serialize) -> Value {
    serde_json::to_string(value).map_or(Value::Null, Value::from)
}

/// Absent in records of an earlier version.
fn decode_json<T: Default + for<'de> Deserialize<'de>>(item: &Item, field: &str) -> Result<T, DecodeError> {
    let Some(text) = item.opt_text(field)? else { return Ok(T::default()) };
    serde_json::from_str(text)
        .map_err(|error| DecodeError::Invalid { field: field.to_owned(), message: error.to_string() })
}

/// The record of a run.
///
/// Item: pk `sweep-runs#<table id>`, sk the run id, which begins with the time of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub table_id: String,
    pub run_id: String,
    pub database: String,
    pub table: String,
    pub mode: Mode,
    pub state: RunState,
    pub created_ms: i64,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    /// Attempts begun.
    pub attempts: i64,
    /// Attempts begun since the run last got further.
    pub idle_attempts: i64,
    /// Attempts that ended without a word: their workers died, or could not write any more.
    pub lost_attempts: i64,
    /// Epoch of the lease of the last attempt.
    pub epoch: i64,
    /// Name of the refusal, and what is worth knowing of a run that is not done.
    pub reason: Option<String>,
    pub error: Option<String>,
    /// The metadata file or version that was judged by.
    pub pointer: Option<String>,
    pub totals: Totals,
    pub report: ReportParts,
    pub options: RunOptions,
    pub facts: RunFacts,
    pub progress: Progress,
    pub revision: String,
}

/// An id that sorts by time: thirteen digits of milliseconds (until the year 2286) and a unique part.
pub fn new_run_id(ids: &dyn Ids, now_ms: i64) -> String {
    format!("{:013}-{}", now_ms.max(0), ids.uuid().simple())
}

/// Whether a text from outside can be a run's id at all; others are not looked up (the store refuses odd keys).
/// Messages written by hand may carry ids of another form than [`new_run_id`]'s.
pub fn is_run_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

impl RunRecord {
    pub fn queued(request: &SweepRequest, table_id: &str, now_ms: i64, revision: String) -> Self {
        Self {
            table_id: table_id.to_owned(),
            run_id: request.run_id.clone(),
            database: request.database.clone(),
            table: request.table.clone(),
            mode: request.mode,
            state: RunState::Queued,
            created_ms: now_ms,
            started_ms: None,
            ended_ms: None,
            attempts: 0,
            idle_attempts: 0,
            lost_attempts: 0,
            epoch: 0,
            reason: None,
            error: None,
            pointer: None,
            totals: Totals::default(),
            report: ReportParts::default(),
            options: RunOptions::default(),
            facts: RunFacts::default(),
            progress: Progress::default(),
            revision,
        }
    }

    /// Ends the run, by this refusal.
    pub fn fail(&mut self, refusal: &Refusal, now_ms: i64) {
        self.state = RunState::Failed;
        self.ended_ms = Some(now_ms);
        self.reason = Some(refusal.reason.as_str().to_owned());
        self.error = Some(refusal.to_string());
    }

    /// When it was created, begun or last seen at work.
    pub fn heard_ms(&self) -> i64 {
        let live_ms = self.facts.live.as_ref().map(|live| live.at_ms);
        [self.started_ms, live_ms].into_iter().flatten().fold(self.created_ms, i64::max)
    }

    pub fn partition(table_id: &str) -> String {
        format!("sweep-runs#{table_id}")
    }

    pub fn key(table_id: &str, run_id: &str) -> Key {
        Key::new(Table::Catalog, Self::partition(table_id), run_id)
    }

    pub async fn load(items: &dyn ReadItems, table_id: &str, run_id: &str) -> Result<Option<Self>, SweepError> {
        let item = items.get(&Self::key(table_id, run_id), Consistency::Strong).await?;
        Ok(item.map(|item| Self::decode(table_id, run_id, &item)).transpose()?)
    }

    /// Every run of a table, the newest first.
    pub async fn load_all(items: &dyn ReadItems, table_id: &str) -> Result<Vec<Self>, SweepError> {
        let mut query = Query {
            direction: Direction::Descending,
            consistency: Consistency::Strong,
            ..Query::new(Table::Catalog, Self::partition(table_id), SortRange::All)
        };
        let mut runs = Vec::new();
        loop {
            let page = items.query(&query).await?;
            for (key, item) in &page.items {
                let run_id = String::from_utf8_lossy(key.sk.as_bytes()).into_owned();
                runs.push(Self::decode(table_id, &run_id, item)?);
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                return Ok(runs);
            }
        }
    }

    /// Writes the record if nobody has since it was read, with a new revision.
    pub async fn save(&mut self, items: &dyn Items, ids: &dyn Ids) -> Result<(), SweepError> {
        let condition = Condition::equals("revision", self.revision.as_str());
        self.revision = ids.uuid().simple().to_string();
        items.put(&Self::key(&self.table_id, &self.run_id), self.encode(), condition).await?;
        Ok(())
    }

    /// Writes a new record; answers whether there was none.
    pub async fn create(&self, items: &dyn Items) -> Result<bool, StoreError> {
        use crate::store::WriteError;
        match items.put(&Self::key(&self.table_id, &self.run_id), self.encode(), Condition::Absent).await {
            Ok(()) => Ok(true),
            Err(WriteError::ConditionFailed { .. }) => Ok(false),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    pub fn encode(&self) -> Item {
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let time = |time: Option<i64>| time.map_or(Value::Null, Value::from);
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("database".to_owned(), self.database.as_str().into()),
            ("table".to_owned(), self.table.as_str().into()),
            ("mode".to_owned(), self.mode.as_str().into()),
            ("state".to_owned(), self.state.as_str().into()),
            ("created_ms".to_owned(), self.created_ms.into()),
            ("started_ms".to_owned(), time(self.started_ms)),
            ("ended_ms".to_owned(), time(self.ended_ms)),
            ("attempts".to_owned(), self.attempts.into()),
            ("idle_attempts".to_owned(), self.idle_attempts.into()),
            ("lost_attempts".to_owned(), self.lost_attempts.into()),
            ("epoch".to_owned(), self.epoch.into()),
            ("reason".to_owned(), text(&self.reason)),
            ("error".to_owned(), text(&self.error)),
            ("pointer".to_owned(), text(&self.pointer)),
            ("by_reason".to_owned(), encode_tallies(&self.totals.by_reason)),
            ("deleted".to_owned(), encode_tally(&self.totals.deleted)),
            ("spared".to_owned(), encode_tallies(&self.totals.spared)),
            ("report_parts".to_owned(), encode_json(&self.report.judged)),
            ("report_outcomes".to_owned(), self.report.outcomes.into()),
            ("options".to_owned(), encode_json(&self.options)),
            ("facts".to_owned(), encode_json(&self.facts)),
            ("progress".to_owned(), encode_json(&self.progress)),
            ("revision".to_owned(), self.revision.as_str().into()),
        ])
    }

    pub fn decode(table_id: &str, run_id: &str, item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        let owned = |field: &str| item.text(field).map(str::to_owned);
        let optional = |field: &str| item.opt_text(field).map(|text| text.map(str::to_owned));
        let unknown =
            |field: &str| DecodeError::Invalid { field: field.to_owned(), message: "unknown value".to_owned() };
        Ok(Self {
            table_id: table_id.to_owned(),
            run_id: run_id.to_owned(),
            database: owned("database")?,
            table: owned("table")?,
            mode: Mode::parse(item.text("mode")?).ok_or_else(|| unknown("mode"))?,
            state: RunState::parse(item.text("state")?).ok_or_else(|| unknown("state"))?,
            created_ms: item.int("created_ms")?,
            started_ms: item.opt_int("started_ms")?,
            ended_ms: item.opt_int("ended_ms")?,
            attempts: item.int("attempts")?,
            idle_attempts: item.int("idle_attempts")?,
            lost_attempts: item.opt_int("lost_attempts")?.unwrap_or_default(),
            epoch: item.int("epoch")?,
            reason: optional("reason")?,
            error: optional("error")?,
            pointer: optional("pointer")?,
            totals: Totals {
                by_reason: decode_tallies(item, "by_reason")?,
                deleted: decode_tally(item.get("deleted"), "deleted")?,
                spared: decode_tallies(item, "spared")?,
            },
            report: ReportParts { judged: decode_judged(item)?, outcomes: item.int("report_outcomes")? },
            options: decode_json(item, "options")?,
            facts: decode_json(item, "facts")?,
            progress: decode_json(item, "progress")?,
            revision: owned("revision")?,
        })
    }
}

/// Records of an earlier version know the parts of one attempt only.
fn decode_judged(item: &Item) -> Result<Segments, DecodeError> {
    match (item.opt_int("report_attempt")?, item.opt_int("report_judged")?) {
        (Some(attempt), Some(parts)) => Ok(Segments::of(attempt, parts)),
        _ => decode_json(item, "report_parts"),
    }
}

fn encode_tally(tally: &Tally) -> Value {
    Value::Map(Item::from([
        ("count".to_owned(), tally.count.into()),
        ("size_bytes".to_owned(), tally.size_bytes.into()),
    ]))
}

fn encode_tallies(tallies: &BTreeMap<String, Tally>) -> Value {
    Value::Map(tallies.iter().map(|(name, tally)| (name.clone(), encode_tally(tally))).collect())
}

fn decode_tally(value: Option<&Value>, field: &str) -> Result<Tally, DecodeError> {
    let Some(Value::Map(tally)) = value else {
        return Err(DecodeError::WrongType { field: field.to_owned(), expected: "a map" });
    };
    Ok(Tally { count: tally.int("count")?, size_bytes: tally.int("size_bytes")? })
}

fn decode_tallies(item: &Item, field: &str) -> Result<BTreeMap<String, Tally>, DecodeError> {
    let Some(Value::Map(tallies)) = item.get(field) else {
        return Err(DecodeError::WrongType { field: field.to_owned(), expected: "a map" });
    };
    tallies.iter().map(|(name, tally)| Ok((name.clone(), decode_tally(Some(tally), field)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SequentialIds;
    use crate::sweep::items::Stage;
    use crate::sweep::ranges::KeyRange;

    #[test]
    fn round_trip() {
        let request = SweepRequest {
            run_id: new_run_id(&SequentialIds::default(), 1_790_000_000_000),
            table_id: None,
            database: "d".into(),
            table: "t".into(),
            mode: Mode::Scheduled,
        };
        let queued = RunRecord::queued(&request, "id", 5, "r".into());
        assert_eq!(RunRecord::decode("id", &queued.run_id, &queued.encode()).unwrap(), queued);
        let mut done = RunRecord {
            state: RunState::Failed,
            started_ms: Some(6),
            ended_ms: Some(7),
            attempts: 2,
            idle_attempts: 1,
            lost_attempts: 1,
            epoch: 3,
            reason: Some("fuse".into()),
            error: Some("too many".into()),
            pointer: Some("s3://b/t/metadata/v1.metadata.json".into()),
            report: ReportParts { judged: Segments::of(2, 1), outcomes: 4 },
            options: RunOptions { backfill: true, sightings: Some(2), why: Some("é".into()), ..RunOptions::default() },
            facts: RunFacts { gate_ms: Some(-5), listed: 7, findings: vec!["x".into()], ..RunFacts::default() },
            progress: Progress {
                stage: Stage::Deleting,
                ranges: vec![KeyRange { after: Some("k é".into()), until: None, is_done: true }],
                lines_done: 3,
                ..Progress::default()
            },
            ..queued
        };
        done.totals.deleted.add(10);
        done.totals.by_reason.entry("orphan".into()).or_default().add(10);
        done.totals.spared.entry("changed".into()).or_default().add(u64::MAX);
        assert_eq!(RunRecord::decode("id", &done.run_id, &done.encode()).unwrap(), done);
        let mut earlier = done.encode();
        earlier.remove("options");
        earlier.remove("facts");
        earlier.remove("progress");
        earlier.remove("report_parts");
        earlier.remove("lost_attempts");
        earlier.insert("report_attempt".into(), 2.into());
        earlier.insert("report_judged".into(), 1.into());
        let found = RunRecord::decode("id", &done.run_id, &earlier).unwrap();
        assert_eq!((found.options, found.facts), (RunOptions::default(), RunFacts::default()));
        assert_eq!((found.progress, found.report), (Progress::default(), done.report));
    }
}
