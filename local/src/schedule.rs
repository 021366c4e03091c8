//! The scheduler: what EventBridge's schedules are on AWS. By the local clock it runs the sweep planner and the catalog
//! worker, which takes up what lost messages left behind, once an hour; at once when that clock was moved past the hour.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use lakewarden_core::ports::Deadline;
use lakewarden_core::store::Clock;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::deliver::rfc3339;
use crate::system::Shared;

/// As in `template.yaml`.
const PLANNER_INTERVAL_MS: i64 = 3_600_000;
const WORKER_INTERVAL_MS: i64 = 3_600_000;
const COMMITS_INTERVAL_MS: i64 = 3_600_000;
const TICK: Duration = Duration::from_millis(500);
const TIMEOUT_MS: i64 = 300_000;

/// When the planner, the worker and the housekeeping of commits run next.
#[derive(Debug, Default)]
pub struct Schedule {
    planner_ms: AtomicI64,
    worker_ms: AtomicI64,
    commits_ms: AtomicI64,
    at_work: AtomicUsize,
    moved: Notify,
    running: Mutex<()>,
}

impl Schedule {
    /// Looks at the clock now instead of at the next tick.
    pub fn look_again(&self) {
        self.moved.notify_one();
    }

    /// Whether one of them is due, or at work.
    pub fn is_busy(&self, now_ms: i64) -> bool {
        // In this order: whoever begins is at work before it is not due any more.
        let due = [&self.planner_ms, &self.worker_ms, &self.commits_ms];
        due.iter().any(|due_ms| due_ms.load(Ordering::SeqCst) <= now_ms) || self.at_work.load(Ordering::SeqCst) > 0
    }

    fn begin(&self) -> AtWork<'_> {
        self.at_work.fetch_add(1, Ordering::SeqCst);
        AtWork(&self.at_work)
    }
}

struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs until `shutdown`. The first runs are at the start: what is due is found from what is stored, so a restart
/// neither forgets nor repeats anything.
pub async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        let now_ms = shared.clock.now_ms();
        if shared.schedule.planner_ms.load(Ordering::SeqCst) <= now_ms
            && let Err(error) = run_planner(&shared).await
        {
            tracing::error!(error, "the sweep planner failed; it runs again in an hour");
        }
        if shared.schedule.worker_ms.load(Ordering::SeqCst) <= now_ms
            && let Err(error) = run_worker(&shared).await
        {
            tracing::error!(error, "the catalog worker failed; it runs again in an hour");
        }
        if shared.schedule.commits_ms.load(Ordering::SeqCst) <= now_ms
            && let Err(error) = run_commits(&shared).await
        {
            tracing::error!(error, "the housekeeping of commits failed; it runs again in an hour");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.schedule.moved.notified() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// What EventBridge sends to a schedule's target.
fn scheduled_event(shared: &Shared, rule: &str) -> Value {
    let settings = &shared.app.settings;
    json!({
        "version": "0",
        "id": shared.app.ports.ids.uuid().to_string(),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": settings.account_id,
        "time": rfc3339(shared.clock.now_ms()),
        "region": settings.region,
        "resources": [format!("arn:aws:events:{}:{}:rule/{rule}", settings.region, settings.account_id)],
        "detail": {},
    })
}

/// Runs the planner once; its answer.
pub async fn run_planner(shared: &Arc<Shared>) -> Result<Value, String> {
    let _one_at_a_time = shared.schedule.running.lock().await;
    let _at_work = shared.schedule.begin();
    let next_ms = shared.clock.now_ms().saturating_add(PLANNER_INTERVAL_MS);
    shared.schedule.planner_ms.store(next_ms, Ordering::SeqCst);
    let event = scheduled_event(shared, "sweep-planner");
    let shared = shared.clone();
    let work = tokio::spawn(async move {
        let deadline = Deadline::in_ms(shared.clock.as_ref() as &dyn Clock, TIMEOUT_MS);
        sweep_planner::handle(&shared.app, event, deadline).await.map_err(|error| error.to_string())
    });
    work.await.unwrap_or_else(|error| Err(format!("the planner ended without an answer: {error}")))
}

async fn run_worker(shared: &Arc<Shared>) -> Result<Value, String> {
    let _at_work = shared.schedule.begin();
    let next_ms = shared.clock.now_ms().saturating_add(WORKER_INTERVAL_MS);
    shared.schedule.worker_ms.store(next_ms, Ordering::SeqCst);
    let event = scheduled_event(shared, "catalog-worker");
    let shared = shared.clone();
    let work = tokio::spawn(async move {
        let deadline = Deadline::in_ms(shared.clock.as_ref() as &dyn Clock, TIMEOUT_MS);
        catalog_worker::handle(&shared.app, event, deadline).await.map_err(|error| error.to_string())
    });
    work.await.unwrap_or_else(|error| Err(format!("the worker ended without an answer: {error}")))
}

async fn run_commits(shared: &Arc<Shared>) -> Result<Value, String> {
    let _at_work = shared.schedule.begin();
    let next_ms = shared.clock.now_ms().saturating_add(COMMITS_INTERVAL_MS);
    shared.schedule.commits_ms.store(next_ms, Ordering::SeqCst);
    let event = scheduled_event(shared, "commit-validator");
    let shared = shared.clone();
    let work = tokio::spawn(async move {
        let deadline = Deadline::in_ms(shared.clock.as_ref() as &dyn Clock, TIMEOUT_MS);
        commit_validator::handle(&shared.app, event, deadline).await.map_err(|error| error.to_string())
    });
    work.await.unwrap_or_else(|error| Err(format!("the housekeeping ended without an answer: {error}")))
}
