//! The schedule: who is due, and that no run gets lost on the way into the queue.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::QueueName;
use crate::sweep::plan::PlanReport;

async fn two_tables(lake: &Lake) {
    for name in ["daily", "weekly"] {
        Iceberg::create(lake, name, 2).await;
    }
    lake.optimize("daily", json!({})).await;
    lake.optimize("weekly", json!({"runRateInHours": 168})).await;
}

fn messages(lake: &Lake) -> Vec<SweepRequest> {
    std::iter::from_fn(|| lake.world.queue.take(QueueName::Sweeps))
        .map(|body| SweepRequest::decode(&body).unwrap())
        .collect()
}

#[tokio::test]
async fn due_tables_get_one_message_each() {
    let lake = Lake::new();
    two_tables(&lake).await;
    let report = plan_due(&lake.app, lake.deadline()).await.unwrap();
    assert_eq!(report, PlanReport { optimizers: 2, started: 2, ..PlanReport::default() });
    let first = messages(&lake);
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|message| message.mode == Mode::Scheduled));
    // Again at once: nobody is due.
    let usage = lake.world.ports.items.item_usage();
    let report = plan_due(&lake.app, lake.deadline()).await.unwrap();
    assert_eq!((report.started, messages(&lake).len()), (0, 0));
    let usage = lake.world.ports.items.item_usage().since(&usage);
    assert_eq!((usage.queries, usage.gets, usage.puts, usage.transactions), (4, 0, 0, 0));
    lake.days(1);
    plan_due(&lake.app, lake.deadline()).await.unwrap();
    let second = messages(&lake);
    assert_eq!(second.iter().map(|message| message.table.as_str()).collect::<Vec<_>>(), ["daily"]);
    for message in first.iter().chain(&second) {
        assert!(matches!(lake.run(message).await.unwrap(), RunOutcome::Finished(_)));
    }
}

#[tokio::test]
async fn starting_a_run_costs_one_look_at_earlier_runs_one_transaction_one_message_and_one_put() {
    let lake = Lake::new();
    Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    let usage = lake.world.ports.items.item_usage();
    plan_due(&lake.app, lake.deadline()).await.unwrap();
    let usage = lake.world.ports.items.item_usage().since(&usage);
    assert_eq!((usage.queries, usage.gets, usage.puts, usage.transactions), (5, 1, 1, 1));
    assert_eq!(messages(&lake).len(), 1);
}

#[tokio::test]
async fn disabled_optimizers_rest() {
    let lake = Lake::new();
    Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    let update = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t",
        "Type": "orphan_file_deletion", "TableOptimizerConfiguration": {"enabled": false}});
    optimizer::update(&lake.app, lake.directory.as_ref(), update).await.unwrap();
    assert_eq!(plan_due(&lake.app, lake.deadline()).await.unwrap().started, 0);
}

#[tokio::test]
async fn a_planner_that_crashes_loses_no_run_and_starts_none_twice() {
    for calls in 0..20 {
        let lake = Lake::new();
        two_tables(&lake).await;
        lake.world.faults.crash_after(calls);
        let _ = plan_due(&lake.app, lake.deadline()).await;
        lake.world.faults.revive();
        plan_due(&lake.app, lake.deadline()).await.unwrap();
        let mut runs: Vec<String> = messages(&lake).into_iter().map(|message| message.run_id).collect();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), 2, "after {calls} calls");
    }
}

#[tokio::test]
async fn two_planners_at_once_start_each_run_once() {
    let lake = Lake::new();
    two_tables(&lake).await;
    let (one, other) = tokio::join!(plan_due(&lake.app, lake.deadline()), plan_due(&lake.app, lake.deadline()));
    assert_eq!(one.unwrap().started + other.unwrap().started, 2);
}

#[tokio::test]
async fn the_time_limit_leaves_the_rest_due() {
    let lake = Lake::new();
    two_tables(&lake).await;
    let now = crate::ports::Deadline::in_ms(lake.world.clock.as_ref(), 1000);
    let report = plan_due(&lake.app, now).await.unwrap();
    assert!(report.is_partial && report.started == 0);
    assert_eq!(plan_due(&lake.app, lake.deadline()).await.unwrap().started, 2);
}

#[tokio::test]
async fn an_optimizer_that_cannot_be_read_keeps_nobody_else_from_being_swept() {
    use crate::store::{Condition, Item, Items};
    let lake = Lake::new();
    two_tables(&lake).await;
    for table in ["a", "b", "c", "d", "e", "f"] {
        let key = items::OptimizerItem::key(table);
        lake.world
            .items
            .put(&key, Item::from([("schema_version".to_owned(), 9.into())]), Condition::Always)
            .await
            .unwrap();
    }
    assert!(matches!(plan_due(&lake.app, lake.deadline()).await, Err(SweepError::Decode(_))));
    assert_eq!(messages(&lake).len(), 2);
}

#[tokio::test]
async fn without_a_queue_the_planner_sweeps_itself_and_goes_on_the_next_time() {
    let mut lake = Lake::new();
    lake.app.settings.sweep_dispatch = crate::ports::SweepDispatch::Inline;
    let (_, orphan) = with_orphan(&lake).await;
    let pending = || async {
        items::OptimizerItem::load(lake.world.items.as_ref(), "id-t").await.unwrap().unwrap().pending.len()
    };
    async fn pass(lake: &Lake, left_ms: i64) -> plan::InlineReport {
        let deadline = crate::ports::Deadline::in_ms(lake.world.clock.as_ref(), left_ms);
        plan_due(&lake.app, deadline).await.unwrap();
        work_pending(&lake.app, lake.directory.as_ref(), deadline).await.unwrap()
    }
    // No time for a slice: it waits.
    let report = pass(&lake, 30_000).await;
    assert_eq!((report.finished, report.waiting, pending().await), (0, 1, 1));
    let report = pass(&lake, 900_000).await;
    assert_eq!((report.finished, report.waiting, pending().await), (1, 0, 0));
    for _ in 0..5 {
        lake.days(1);
        assert_eq!(pass(&lake, 900_000).await.finished, 1);
    }
    assert!(!lake.keys().contains(&orphan));
    assert_eq!(lake.world.queue.take(crate::store::QueueName::Sweeps), None, "nothing was sent");
    // Asked for over REST, it waits for the next pass as well.
    rest::start_in(&lake.app, lake.directory.as_ref(), "db", "t", &json!({"mode": "dry_run"})).await.unwrap();
    assert_eq!((pending().await, pass(&lake, 900_000).await.finished, pending().await), (1, 1, 0));
}
