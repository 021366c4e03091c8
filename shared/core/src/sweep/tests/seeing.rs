//! Runs can be watched, looked back on, and ended.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::ports::Deadline;
use crate::store::ReadObjects;
use crate::sweep::items::RunState;

async fn lake() -> Lake {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let live: Vec<String> = (0..1500).map(|number| format!("live-{number:05}.parquet")).collect();
    table.append(&live.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for number in 0..600 {
        table.data(&format!("p=<{}>/orphan-{number:05}.parquet", number % 3)).await;
    }
    lake.days(4);
    lake
}

async fn shown(lake: &Lake, run_id: &str) -> serde_json::Value {
    rest::get_in(&lake.app, lake.directory.as_ref(), "db", "t", run_id).await.unwrap()
}

async fn cancel(lake: &Lake, run_id: &str) -> Result<serde_json::Value, crate::glue::GlueException> {
    rest::cancel_in(&lake.app, lake.directory.as_ref(), "db", "t", run_id).await
}

fn left(lake: &Lake) -> usize {
    lake.keys().iter().filter(|key| key.contains("orphan")).count()
}

#[tokio::test]
async fn a_run_that_is_not_wanted_any_more_ends_before_it_deletes() {
    let lake = lake().await;
    let request = lake.start("t", Mode::Ordinary).await;
    assert_eq!(cancel(&lake, &request.run_id).await.unwrap()["state"], "queued");
    let RunOutcome::Finished(record) = lake.run(&request).await.unwrap() else { panic!() };
    assert_eq!((record.state, record.reason.as_deref()), (RunState::Failed, Some("cancelled")));
    assert_eq!(left(&lake), 600);
    assert!(cancel(&lake, &request.run_id).await.unwrap_err().message.contains("has ended"));
    assert!(cancel(&lake, "none").await.is_err());
    // It says nothing about the next one.
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.totals.deleted.count, 600);
}

/// Asked for right before the n-th look of the worker: it ends within a batch, and says what it has deleted.
#[tokio::test]
async fn a_run_can_be_ended_at_any_moment() {
    let mut partial = 0;
    for calls in (0..).step_by(100) {
        let lake = lake().await;
        let request = lake.start("t", Mode::Ordinary).await;
        let (asking, run_id) = (lake.clone(), request.run_id.clone());
        let hook = Hook::new(
            calls,
            Box::new(move || {
                Box::pin(async move {
                    cancel(&asking, &run_id).await.unwrap();
                })
            }),
        );
        let RunOutcome::Finished(record) = lake.run_hooked(&request, &hook).await else { panic!() };
        let deleted = usize::try_from(record.totals.deleted.count).unwrap();
        assert_eq!(left(&lake), 600 - deleted, "after {calls} calls");
        if !hook.has_fired() {
            assert_eq!((record.state, deleted), (RunState::Completed, 600));
            break;
        }
        if record.state == RunState::Failed {
            assert_eq!(record.reason.as_deref(), Some("cancelled"));
            partial += usize::from(deleted > 0);
        }
    }
    assert!(partial > 0, "none ended between two batches");
}

#[tokio::test]
async fn a_worker_says_how_far_it_is() {
    let lake = lake().await;
    let request = lake.start("t", Mode::Ordinary).await;
    let mut app = lake.app.clone();
    let (objects, clock) = (lake.world.objects.clone(), lake.world.clock.clone());
    app.ports.objects = std::sync::Arc::new(Slow { objects, clock, step_ms: 1_000, head_ms: 250 });
    let mut stages = Vec::new();
    for _ in 0..100 {
        let deadline = Deadline::in_ms(lake.world.clock.as_ref(), 90_000);
        let outcome = sweep(&app, lake.directory.as_ref(), &request, deadline).await.unwrap();
        let run = shown(&lake, &request.run_id).await;
        if matches!(outcome, RunOutcome::Finished(_)) {
            assert_eq!((&run["progress"], &run["state"]), (&json!(null), &json!("completed")));
            break;
        }
        let live = &run["progress"];
        if live.is_object() {
            stages.push(live["stage"].as_str().unwrap().to_owned());
            assert!(live["total"].is_null() || live["done"].as_u64() <= live["total"].as_u64(), "{live}");
        }
    }
    assert!(stages.contains(&"deleting".to_owned()), "{stages:?}");
    assert!(
        stages.is_sorted_by_key(|stage| ["loading", "surveying", "judging", "deleting"]
            .iter()
            .position(|one| one == stage))
    );
}

#[tokio::test]
async fn the_page_of_a_run_shows_reasons_and_folders_and_loads_nothing() {
    let lake = lake().await;
    let record = lake.sweep("t", Mode::Ordinary).await;
    let run = shown(&lake, &record.run_id).await;
    let uri = run["page"].as_str().unwrap();
    let (bucket, key) = crate::location::split_uri(uri).unwrap();
    let page = lake.world.objects.get(&crate::store::ObjectKey::new(bucket, key), &Default::default()).await.unwrap();
    let page = String::from_utf8(page.bytes.to_vec()).unwrap();
    for part in ["db.t", "referenced", "orphan", "data/p=&lt;0&gt;/", ">600<", "deleted", "s3://lake/wh/t"] {
        assert!(page.contains(part), "{part}");
    }
    for never in ["http:", "https:", "src=", "href=", "<script", "p=<0>"] {
        assert!(!page.contains(never), "{never}");
    }
    // Refused runs have one as well, which says why.
    lake.directory.remove("db", "t");
    let request = SweepRequest {
        run_id: "gone".into(),
        table_id: Some("id-t".into()),
        database: "db".into(),
        table: "t".into(),
        mode: Mode::DryRun,
    };
    let RunOutcome::Finished(refused) = lake.run(&request).await.unwrap() else { panic!() };
    let at = report::run_folder(&lake.app.settings.reports, &refused).object("report.html");
    let page = lake.world.objects.get(&at, &Default::default()).await.unwrap();
    assert!(String::from_utf8_lossy(&page.bytes).contains("table_unknown"));
}
