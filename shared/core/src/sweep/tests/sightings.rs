//! Two sightings, ages of uploads in parts and of whole operations, commits that are slow.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::testkit::*;

const ID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

#[tokio::test]
async fn a_scheduled_run_deletes_what_one_a_day_before_has_seen() {
    let lake = Lake::new();
    let mut table = with_orphan(&lake).await.0;
    let late = table.data("late.parquet").await;
    lake.days(4);
    // A dry run is no sighting.
    lake.sweep_with("t", json!({"mode": "dry_run", "sightings": 2})).await;
    let first = lake.scheduled().await;
    assert_eq!(counts(&first).get("seen_once"), Some(&2));
    assert_eq!(first.totals.deleted.count, 0);
    table.commit(&[(1, 0, late.clone())]).await;
    table.data("new.parquet").await;
    // A run that is asked for in between looks the same way when it is told to.
    lake.world.clock.advance_ms(DAY_MS - 1);
    let asked = lake.sweep_with("t", json!({"mode": "ordinary", "sightings": 2})).await;
    assert_eq!((counts(&asked).get("seen_once"), asked.totals.deleted.count), (Some(&1), 0));
    lake.world.clock.advance_ms(1);
    let second = lake.scheduled().await;
    assert_eq!(second.totals.deleted.count, 1, "{second:?}");
    assert!(lake.keys().contains(&late) && !lake.keys().contains("wh/t/data/orphan.parquet"));
    // What was too young then has not been seen as an orphan yet.
    lake.days(4);
    let third = lake.scheduled().await;
    assert_eq!((counts(&third).get("seen_once"), third.totals.deleted.count), (Some(&1), 0));
}

#[tokio::test]
async fn a_file_uploaded_anew_is_seen_for_the_first_time_again() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    lake.days(4);
    lake.scheduled().await;
    lake.put("wh/t/data/orphan.parquet", "orphan.parquet").await;
    lake.days(4);
    let record = lake.scheduled().await;
    assert_eq!((counts(&record).get("seen_once"), record.totals.deleted.count), (Some(&1), 0));
    lake.days(1);
    assert_eq!(lake.scheduled().await.totals.deleted.count, 1);
}

#[tokio::test]
async fn one_sighting_can_be_set_on_the_optimizer() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    lake.configure(json!({"sightings": 1})).await.unwrap();
    lake.days(4);
    assert_eq!(lake.scheduled().await.totals.deleted.count, 1);
}

#[tokio::test]
async fn sightings_that_cannot_be_read_only_cost_a_day() {
    let lake = Lake::new();
    with_orphan(&lake).await;
    lake.days(4);
    lake.scheduled().await;
    let at = lake.app.settings.reports.object("id-t/sightings.bin");
    let objects = lake.world.objects.as_ref();
    crate::store::Objects::put(objects, &at, "LWSIGHT1 damaged".into(), &Default::default()).await.unwrap();
    lake.days(1);
    assert_eq!(lake.scheduled().await.totals.deleted.count, 0);
    lake.days(1);
    assert_eq!(lake.scheduled().await.totals.deleted.count, 1);
}

#[tokio::test]
async fn the_first_files_of_a_long_job_are_as_young_as_its_last() {
    let lake = Lake::new();
    let table = with_orphan(&lake).await.0;
    let first = table.data(&format!("00000-1-{ID}-00001.parquet")).await;
    lake.days(4);
    let last = table.data(&format!("00000-1-{ID}-00900.parquet")).await;
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, ["wh/t/data/orphan.parquet".to_owned()].into());
    assert_eq!(counts(&record).get("family_too_young"), Some(&1));
    lake.days(4);
    assert_eq!(lake.gone().await.1, [first, last].into());
}

#[tokio::test]
async fn a_table_with_slow_commits_is_given_more_time() {
    let lake = Lake::new();
    let mut table = with_orphan(&lake).await.0;
    let slow = table.data("slow.parquet").await;
    lake.days(5);
    table.commit_dated(&[(1, 0, slow)]).await;
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, BTreeSet::new(), "{record:?}");
    assert_eq!((record.facts.usual_delay_ms, record.facts.retention_ms), (Some(5 * DAY_MS), Some(15 * DAY_MS / 2)));
    lake.days(3);
    assert_eq!(lake.gone().await.1.len(), 1);
}

#[tokio::test]
async fn dates_ahead_of_the_clock_are_no_delays() {
    let lake = Lake::new();
    let mut table = with_orphan(&lake).await.0;
    let file = table.data("file.parquet").await;
    lake.world.clock.advance_ms(DAY_MS * 100);
    table.commit_dated(&[(1, 0, file)]).await;
    lake.world.clock.advance_ms(-DAY_MS * 96);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.facts.usual_delay_ms, gone.len()), (None, 1), "{record:?}");
}
