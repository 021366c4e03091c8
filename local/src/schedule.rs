//! The scheduler: what EventBridge's schedule is on AWS. It asks the sweep planner once an hour of the local clock, and
//! at once when that clock was moved past the hour.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lakewarden_core::ports::Deadline;
use lakewarden_core::store::Clock;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::deliver::rfc3339;
use crate::system::Shared;

/// As in `template.yaml`.
const INTERVAL_MS: i64 = 3_600_000;
const TICK: Duration = Duration::from_millis(500);
const PLANNER_TIMEOUT_MS: i64 = 300_000;

/// When the planner runs next.
#[derive(Debug, Default)]
pub struct Schedule {
    next_ms: AtomicI64,
    moved: Notify,
    running: Mutex<()>,
}

impl Schedule {
    /// Looks at the clock now instead of at the next tick.
    pub fn look_again(&self) {
        self.moved.notify_one();
    }

    /// Whether the planner is due but has not run yet.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.next_ms.load(Ordering::SeqCst) <= now_ms
    }
}

/// Runs until `shutdown`. The first run is at the start: what is due is found from the stored runs, so a restart
/// neither forgets nor repeats one.
pub async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    loop {
        let now_ms = shared.clock.now_ms();
        if shared.schedule.is_due(now_ms)
            && let Err(error) = run_planner(&shared).await
        {
            tracing::error!(error, "the sweep planner failed; it runs again in an hour");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.schedule.moved.notified() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// Runs the planner once with the event that EventBridge sends; its answer.
pub async fn run_planner(shared: &Arc<Shared>) -> Result<Value, String> {
    let _one_at_a_time = shared.schedule.running.lock().await;
    let now_ms = shared.clock.now_ms();
    shared.schedule.next_ms.store(now_ms.saturating_add(INTERVAL_MS), Ordering::SeqCst);
    let settings = &shared.app.settings;
    let event = json!({
        "version": "0",
        "id": shared.app.ports.ids.uuid().to_string(),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": settings.account_id,
        "time": rfc3339(now_ms),
        "region": settings.region,
        "resources": [format!("arn:aws:events:{}:{}:rule/sweep-planner", settings.region, settings.account_id)],
        "detail": {},
    });
    let task_shared = shared.clone();
    let work = tokio::spawn(async move {
        let deadline = Deadline::in_ms(task_shared.clock.as_ref() as &dyn Clock, PLANNER_TIMEOUT_MS);
        sweep_planner::handle(&task_shared.app, event, deadline).await.map_err(|error| error.to_string())
    });
    work.await.unwrap_or_else(|error| Err(format!("the planner ended without an answer: {error}")))
}
