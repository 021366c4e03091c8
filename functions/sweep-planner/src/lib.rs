//! Starts the sweeps that are due. Which ones these are is decided in `lakewarden_core::sweep`.

use lakewarden_core::ports::{App, Deadline, SweepDispatch};
use lakewarden_core::sweep::{CatalogDirectory, SweepError, plan_due, work_pending};
use serde_json::{Value, json};
use thiserror::Error;

/// The planner did not get to its end; what is due stays due.
#[derive(Debug, Error)]
pub enum HandlerError {
    #[error("not an event of EventBridge: an object is expected")]
    Event,
    #[error("planning sweeps failed: {0}")]
    Plan(#[from] SweepError),
}

/// Takes an EventBridge event, scheduled or sent by hand; its content does not matter. Answers how many sweeps were
/// started.
pub async fn handle(app: &App, event: Value, deadline: Deadline) -> Result<Value, HandlerError> {
    if !event.is_object() {
        return Err(HandlerError::Event);
    }
    let report = plan_due(app, deadline).await?;
    tracing::info!(
        optimizers = report.optimizers,
        started = report.started,
        sent_again = report.sent_again,
        contended = report.contended,
        is_partial = report.is_partial,
        "sweeps planned"
    );
    let inline = work_pending(app, &CatalogDirectory::new(app), deadline).await?;
    if inline.finished > 0 || inline.waiting > 0 {
        tracing::info!(finished = inline.finished, waiting = inline.waiting, "sweeps without a queue");
    }
    let mut answer = json!({
        "optimizers": report.optimizers,
        "started": report.started,
        "sentAgain": report.sent_again,
        "contended": report.contended,
        "isPartial": report.is_partial,
    });
    if let (SweepDispatch::Inline, Some(members)) = (app.settings.sweep_dispatch, answer.as_object_mut()) {
        members.insert("finishedInline".to_owned(), inline.finished.into());
        members.insert("waiting".to_owned(), inline.waiting.into());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lakewarden_core::location::Location;
    use lakewarden_core::ports::Settings;
    use lakewarden_core::store::QueueName;
    use lakewarden_core::store::StoreErrorKind;
    use lakewarden_core::store::memory::{Fault, MemoryWorld};
    use lakewarden_core::sweep::{MemoryDirectory, Mode, SweepRequest, TableEntry, optimizer};

    use super::*;

    /// The laptop hands the planner to a runtime of several threads.
    #[tokio::test]
    async fn planning_may_move_between_threads() {
        let app = App::new(MemoryWorld::new(0).ports, Settings::default());
        let work = async move { handle(&app, json!({}), Deadline(i64::MAX)).await };
        tokio::spawn(work).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_scheduled_event_starts_what_is_due() {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = App::new(world.ports.clone(), Settings::default());
        let directory = MemoryDirectory::default();
        let mark = ("spark.sql.sources.provider".to_owned(), "delta".to_owned());
        directory.put(TableEntry {
            id: "id".into(),
            database: "db".into(),
            name: "t".into(),
            location: Some(Location::new("lake", "wh/t")),
            parameters: BTreeMap::from([mark]),
        });
        let input = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
            "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {"orphanFileDeletionConfiguration": {}}});
        optimizer::create(&app, &directory, input).await.unwrap();
        let event = json!({"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}});
        let far = Deadline::in_ms(world.clock.as_ref(), 60_000);
        world.faults.inject("query catalog", 0, Fault::Before(StoreErrorKind::Throttled));
        assert!(matches!(handle(&app, event.clone(), far).await, Err(HandlerError::Plan(_))));
        let answer = handle(&app, event.clone(), far).await.unwrap();
        assert_eq!(answer, json!({"optimizers": 1, "started": 1, "sentAgain": 0, "contended": 0, "isPartial": false}));
        let message = world.queue.take(QueueName::Sweeps).unwrap();
        assert_eq!(SweepRequest::decode(&message).unwrap().mode, Mode::Scheduled);
        let again = handle(&app, event, far).await.unwrap();
        assert_eq!(again["started"], 0);
        assert!(matches!(handle(&app, json!("x"), far).await, Err(HandlerError::Event)));
    }
}
