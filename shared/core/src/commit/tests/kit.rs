use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;

use crate::commit::context::Context;
use crate::commit::door::{Arrival, judge_batch, judge_one};
use crate::commit::error::CommitError;
use crate::commit::follow::{Counts, Target};
use crate::commit::proposal::Status;
use crate::commit::run::{Outcome, Staged};
use crate::commit::sync::{PartitionSink, SyncError, SyncReport};
use crate::commit::verdict::Verdict;
use crate::delta::log::StagedKey;
use crate::delta::testkit::{TableKit, creation_of};
use crate::location::Location;
use crate::ports::{App, Deadline, Settings};
use crate::store::{ETag, ObjectKey, ReadObjects};

/// Remembers what it was told, and can be made to fail.
#[derive(Debug, Default)]
pub struct Recorder {
    pub told: Mutex<Vec<(Location, Target)>>,
    pub fails: Mutex<bool>,
}

#[async_trait]
impl PartitionSink for Recorder {
    async fn follow(&self, _: Context<'_>, root: &Location, target: Target) -> Result<SyncReport, SyncError> {
        if *self.fails.lock().unwrap() {
            return Err(SyncError::Failed("the catalog is away".into()));
        }
        self.told.lock().unwrap().push((root.clone(), target));
        Ok(SyncReport::Followed(Counts { created: 2, ..Counts::default() }))
    }
}

#[derive(Clone)]
pub struct Kit {
    pub table: TableKit,
    pub app: App,
    pub sink: Arc<Recorder>,
}

impl Kit {
    /// No table yet.
    pub async fn empty() -> Kit {
        let table = TableKit::new().await;
        let app = App::new(table.world.ports.clone(), Settings::default());
        Kit { table, app, sink: Arc::default() }
    }

    /// Another process on the same world: it remembers nothing.
    pub fn cold(&self) -> Kit {
        let app = App::new(self.app.ports.clone(), self.app.settings.clone());
        Kit { app, ..self.clone() }
    }

    /// A table at version 0, unpartitioned, with the given properties.
    pub async fn unpartitioned(configuration: Value) -> Kit {
        let kit = Kit::empty().await;
        kit.table.log(0, &creation_of(crate::delta::testkit::TABLE_ID, &[], configuration)).await;
        kit
    }

    /// The same, with deletion vectors.
    pub async fn with_vectors(mut configuration: Value) -> Kit {
        let kit = Kit::empty().await;
        configuration["delta.enableDeletionVectors"] = Value::from("true");
        let mut creation = creation_of(crate::delta::testkit::TABLE_ID, &[], configuration);
        creation[0] = super::judging::protocol(&["deletionVectors", "appendOnly", "invariants"]);
        kit.table.log(0, &creation).await;
        kit
    }

    /// A table at version 0, partitioned by `p`.
    pub async fn partitioned() -> Kit {
        let kit = Kit::empty().await;
        kit.table.log(0, &kit.table.creation()).await;
        kit
    }

    pub fn ctx(&self) -> Context<'_> {
        self.ctx_for(60_000)
    }

    pub fn ctx_for(&self, ms: i64) -> Context<'_> {
        Context::new(&self.app, Deadline::in_ms(&*self.table.world.clock, ms), &*self.sink)
    }

    /// Stages and judges.
    pub async fn propose(&self, version: i64, id: u128, lines: &[Value]) -> Verdict {
        let staged = self.stage(version, id, lines).await;
        self.judge(&staged).await
    }

    pub async fn stage(&self, version: i64, id: u128, lines: &[Value]) -> Staged {
        let (key, etag) = self.table.stage(version, id, lines).await;
        Staged { key, etag: Some(etag) }
    }

    pub async fn judge(&self, staged: &Staged) -> Verdict {
        verdict(judge_one(self.ctx(), staged).await)
    }

    pub async fn judge_all(&self, staged: Vec<Staged>) -> Vec<(StagedKey, Result<Outcome, CommitError>)> {
        let arrivals = staged.into_iter().map(|staged| Arrival::new(staged, String::new())).collect();
        let outcomes = judge_batch(self.ctx(), arrivals).await;
        outcomes.into_iter().map(|(arrival, outcome)| (arrival.staged.key, outcome)).collect()
    }

    /// A data file of an unpartitioned table and its add action.
    pub async fn file(&self, name: &str) -> Value {
        let mut add = self.table.data(name, None, 3).await;
        add["add"]["partitionValues"] = serde_json::json!({});
        add
    }

    /// Every object below the table, with its ETag.
    pub async fn objects(&self) -> Vec<(String, ETag)> {
        let mut all = Vec::new();
        for key in self.table.world.objects.keys("lake") {
            let meta = self.table.world.objects.head(&ObjectKey::new("lake", key.clone())).await.unwrap();
            all.push((key, meta.etag));
        }
        all
    }

    /// Versions in the log, ascending.
    pub fn versions(&self) -> Vec<i64> {
        let prefix = "wh/t/_delta_log/";
        let keys = self.table.world.objects.keys("lake");
        keys.iter()
            .filter_map(|key| key.strip_prefix(prefix)?.strip_suffix(".json").filter(|name| name.len() == 20))
            .map(|name| name.parse().unwrap())
            .collect()
    }
}

pub fn verdict(outcome: Result<Outcome, CommitError>) -> Verdict {
    match outcome.unwrap() {
        Outcome::Verdict(verdict) => *verdict,
        Outcome::NotJudged { reason } => panic!("not judged: {reason}"),
    }
}

/// `committed 3`, or `rejected ConcurrentAppendException WHOLE_TABLE_READ`.
pub fn short(verdict: &Verdict) -> String {
    match (verdict.committed_version(), verdict.refusal()) {
        (Some(version), _) => format!("committed {version}"),
        (None, Some(refusal)) if verdict.status() == Status::Superseded => {
            format!("{} {}", verdict.status().name(), refusal.reason)
        }
        (None, Some(refusal)) => {
            format!("{} {:?} {}", verdict.status().name(), refusal.exception, refusal.reason)
        }
        _ => verdict.status().name().to_owned(),
    }
}
