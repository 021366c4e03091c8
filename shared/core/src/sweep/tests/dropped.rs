//! Files of tables that were dropped from the catalog.

use serde_json::{Map, Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::catalog::create_database;
use crate::catalog::tables::{create_table, drop_table};
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, creation_of};
use crate::glue::GlueException;
use crate::location::Location;
use crate::store::Objects;
use crate::sweep::items::{RunRecord, RunState};

fn object(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

async fn lake() -> Lake {
    let lake = Lake::new();
    create_database(&lake.app.ports, object(json!({"Name": "cat"}))).await.unwrap();
    lake
}

async fn register(lake: &Lake, name: &str, place: &str, parameters: Value) {
    let input = json!({"Name": name, "Owner": "team-a", "Parameters": parameters,
        "StorageDescriptor": {"Location": format!("s3://{BUCKET}/{place}")}});
    create_table(&lake.app.ports, "cat", object(input)).await.unwrap();
}

/// A Delta table with two files and more, dropped; answers its id.
async fn dropped_delta(lake: &Lake) -> String {
    let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/d") };
    kit.log(0, &creation_of(TABLE_ID, &["_p"], json!({}))).await;
    kit.log(1, &[add_line("a.parquet", 1), add_line("sub/b.parquet", 1)]).await;
    for key in ["a.parquet", "sub/b.parquet", "_delta_log/_last_checkpoint", "note.md", "_other/x.parquet"] {
        lake.put(&format!("wh/d/{key}"), "x").await;
    }
    register(lake, "d", "wh/d", json!({"spark.sql.sources.provider": "delta"})).await;
    lake.days(1);
    drop_table(&lake.app.ports, "cat", "d").await.unwrap();
    only(lake).await["table_id"].as_str().unwrap().to_owned()
}

async fn listed(lake: &Lake) -> Vec<Value> {
    dropped::list(&lake.app, None).await.unwrap()["dropped_tables"].as_array().unwrap().clone()
}

async fn only(lake: &Lake) -> Value {
    let found = listed(lake).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

async fn run(lake: &Lake, table_id: &str, body: Value) -> Result<RunRecord, GlueException> {
    dropped::start(&lake.app, table_id, &body).await?;
    let request = SweepRequest::decode(&lake.world.queue.take(crate::store::QueueName::Sweeps).unwrap()).unwrap();
    let directory = CatalogDirectory::new(&lake.app);
    match sweep(&lake.app, &directory, &request, lake.deadline()).await.unwrap() {
        RunOutcome::Finished(record) => Ok(*record),
        other => panic!("{other:?}"),
    }
}

async fn dry(lake: &Lake, table_id: &str) -> RunRecord {
    run(lake, table_id, json!({"mode": "dry_run"})).await.unwrap()
}

/// A run that deletes, after a dry run.
async fn remove(lake: &Lake, table_id: &str) -> Result<RunRecord, GlueException> {
    let seen = dry(lake, table_id).await;
    let body = json!({"mode": "ordinary", "after_dry_run": seen.run_id, "asked_by": "me", "why": "it is over"});
    run(lake, table_id, body).await
}

fn left(lake: &Lake, place: &str) -> Vec<String> {
    let keys = lake.keys().into_iter().filter_map(|key| key.strip_prefix(place).map(str::to_owned));
    keys.collect()
}

#[tokio::test]
async fn what_a_dropped_delta_table_left_goes_after_a_while_and_when_asked_for() {
    let lake = lake().await;
    let id = dropped_delta(&lake).await;
    let shown = only(&lake).await;
    assert_eq!(
        (&shown["database"], &shown["table"], &shown["location"], &shown["format"], &shown["owner"]),
        (&json!("cat"), &json!("d"), &json!("s3://lake/wh/d"), &json!("delta"), &json!("team-a"))
    );
    let days = (shown["removable_from_ms"].as_i64().unwrap() - shown["dropped_ms"].as_i64().unwrap()) / DAY_MS;
    assert_eq!(days, 7);
    // A look is free; a run that deletes has to wait.
    let before = lake.keys();
    lake.days(6);
    let seen = dry(&lake, &id).await;
    assert_eq!((seen.state, counts(&seen).get("orphan"), &seen.reason), (RunState::Completed, Some(&5), &None));
    assert!(remove(&lake, &id).await.unwrap_err().message.contains("24 hours"));
    lake.days(1);
    let bare = dropped::start(&lake.app, &id, &json!({"mode": "ordinary"})).await.unwrap_err();
    assert!(bare.message.contains("after_dry_run"), "{bare}");
    assert_eq!(lake.keys(), before);
    let record = remove(&lake, &id).await.unwrap();
    assert_eq!((record.state, record.totals.deleted.count), (RunState::Completed, 5), "{record:?}");
    // What is not known to be the table's own stays, and so does the table in the list.
    assert_eq!(left(&lake, "wh/d/"), ["_other/x.parquet", "note.md"]);
    assert_eq!(counts(&record).get("no_ownership_evidence"), Some(&1));
    let found = dropped::get(&lake.app, &id, &record.run_id).await.unwrap();
    assert_eq!((&found["state"], &found["options"]["asked_by"]), (&json!("completed"), &json!("me")));
    assert!(
        dropped::report(&lake.app, &id, &record.run_id, None).await.unwrap()["lines"].as_array().unwrap().len() > 4
    );
    only(&lake).await;
    // Its owner says so: it is forgotten, and the run can be looked at still.
    dropped::forget(&lake.app, &id).await.unwrap();
    assert_eq!(listed(&lake).await, Vec::<Value>::new());
    dropped::get(&lake.app, &id, &record.run_id).await.unwrap();
    assert!(dropped::start(&lake.app, &id, &json!({"mode": "dry_run"})).await.is_err());
}

#[tokio::test]
async fn whoever_was_dropped_last_at_a_place_or_in_it_has_the_whole_time() {
    for place in ["wh/d", "wh/d/sub"] {
        let lake = lake().await;
        let id = dropped_delta(&lake).await;
        lake.days(6);
        register(&lake, "later", place, json!({"spark.sql.sources.provider": "delta"})).await;
        drop_table(&lake.app.ports, "cat", "later").await.unwrap();
        lake.days(2);
        let before = lake.keys();
        let refused = remove(&lake, &id).await.unwrap();
        assert_eq!((refused.state, refused.reason.as_deref()), (RunState::Failed, Some("grace_period")), "{refused:?}");
        assert!(refused.error.as_deref().unwrap_or_default().contains("cat.later"), "{refused:?}");
        assert_eq!(lake.keys(), before, "{place}");
        lake.days(5);
        assert_eq!(remove(&lake, &id).await.unwrap().state, RunState::Completed, "{place}");
    }
}

#[tokio::test]
async fn an_iceberg_table_goes_with_its_metadata_and_is_forgotten() {
    let lake = lake().await;
    let mut table = Iceberg::create_at(&lake, "i", "wh/i", 2).await;
    table.append(&["a.parquet"]).await;
    lake.put("wh/i/metadata/version-hint.text", "1").await;
    lake.directory.remove("db", "i");
    let pointer = Iceberg::uri(&table.metadata_key());
    register(&lake, "i", "wh/i", json!({"table_type": "ICEBERG", "metadata_location": pointer})).await;
    drop_table(&lake.app.ports, "cat", "i").await.unwrap();
    let id = only(&lake).await["table_id"].as_str().unwrap().to_owned();
    lake.days(8);
    // Another table's metadata in the same folder: whose files these are, names do not tell.
    let foreign = "wh/i/metadata/00007-x.metadata.json";
    let mut other = table.metadata.clone();
    other["table-uuid"] = json!("another");
    lake.world.clock.advance_ms(-9 * DAY_MS);
    lake.put(foreign, other.to_string()).await;
    lake.world.clock.advance_ms(9 * DAY_MS);
    let refused = dry(&lake, &id).await;
    assert_eq!(refused.reason.as_deref(), Some("foreign_table_uuid"), "{refused:?}");
    crate::store::Objects::delete(lake.world.objects.as_ref(), &at(foreign), None).await.unwrap();
    let record = remove(&lake, &id).await.unwrap();
    assert_eq!((record.state, left(&lake, "wh/i/")), (RunState::Completed, vec![]), "{record:?}");
    assert_eq!(listed(&lake).await, Vec::<Value>::new(), "nothing is left of it");
}

#[tokio::test]
async fn files_that_somebody_else_needs_stay() {
    // A clone elsewhere names one; a table inside has some; a writer has announced some.
    let lake = lake().await;
    let id = dropped_delta(&lake).await;
    let clone = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "dev/c") };
    let mut lines = creation_of("clone", &[], json!({}));
    lines.push(add_line("s3://lake/wh/d/a.parquet", 1));
    clone.log(0, &lines).await;
    register(&lake, "c", "dev/c", json!({"spark.sql.sources.provider": "delta"})).await;
    register(&lake, "inside", "wh/d/sub", json!({"classification": "parquet"})).await;
    lake.days(8);
    let record = remove(&lake, &id).await.unwrap();
    assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
    let kept = ["_other/x.parquet", "a.parquet", "note.md", "sub/b.parquet"];
    assert_eq!(left(&lake, "wh/d/"), kept);
    // Somebody has the place again, at it or around it.
    for place in ["wh/d", "wh"] {
        register(&lake, "again", place, json!({"classification": "parquet"})).await;
        let record = dry(&lake, &id).await;
        assert_eq!(record.reason.as_deref(), Some("shared_location"), "{place}: {:?}", record.error);
        drop_table(&lake.app.ports, "cat", "again").await.unwrap();
    }
    // Or writes there, whatever catalog knows of it.
    lake.put("wh/d/late.parquet", "x").await;
    let record = dry(&lake, &id).await;
    assert!(record.error.as_ref().is_some_and(|error| error.contains("late.parquet")), "{record:?}");
}

#[tokio::test]
async fn a_run_that_was_not_asked_for_in_so_many_words_removes_nothing_of_a_dropped_table() {
    let lake = lake().await;
    let id = dropped_delta(&lake).await;
    lake.days(30);
    let request = SweepRequest {
        run_id: "by-hand".into(),
        table_id: Some(id),
        database: "cat".into(),
        table: "d".into(),
        mode: Mode::Ordinary,
    };
    let before = lake.keys();
    let directory = CatalogDirectory::new(&lake.app);
    let outcome = sweep(&lake.app, &directory, &request, lake.deadline()).await.unwrap();
    let RunOutcome::Finished(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!((record.state, lake.keys()), (RunState::Failed, before));
}

#[tokio::test]
async fn a_lease_outlives_the_second_registration_that_it_was_given_to() {
    let lake = lake().await;
    let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/t") };
    kit.log(0, &creation_of(TABLE_ID, &[], json!({}))).await;
    for name in ["one", "two"] {
        register(&lake, name, "wh/t", json!({"spark.sql.sources.provider": "delta"})).await;
    }
    let directory = CatalogDirectory::new(&lake.app);
    let config = json!({"CatalogId": "000000000000", "DatabaseName": "cat", "TableName": "one",
        "Type": "orphan_file_deletion", "TableOptimizerConfiguration": {"enabled": true,
        "orphanFileDeletionConfiguration": {"icebergConfiguration": {}}}});
    optimizer::create(&lake.app, &directory, config).await.unwrap();
    advance(&lake.world.clock, 1);
    lake.put("wh/t/job/slow.parquet", "x").await;
    lake.put("wh/t/orphan.parquet", "x").await;
    lake.days(8);
    let lease = json!({"prefixes": ["s3://lake/wh/t/job/"], "ttl_seconds": 3600});
    leases::grant_in(&lake.app, &directory, "cat", "two", &lease).await.unwrap();
    drop_table(&lake.app.ports, "cat", "two").await.unwrap();
    let work =
        crate::catalog::purge::list_work(lake.world.items.as_ref(), lake.world.ports.clock.as_ref()).await.unwrap();
    for one in work {
        crate::catalog::purge::carry_out(&lake.app.ports, &one, lake.deadline()).await.unwrap();
    }
    let swept = async || {
        let body = json!({"mode": "ordinary", "sightings": 1});
        rest::start_in(&lake.app, &directory, "cat", "one", &body).await.unwrap();
        let request = SweepRequest::decode(&lake.world.queue.take(crate::store::QueueName::Sweeps).unwrap()).unwrap();
        sweep(&lake.app, &directory, &request, lake.deadline()).await.unwrap();
        left(&lake, "wh/t/")
    };
    assert!(swept().await.contains(&"job/slow.parquet".to_owned()));
    assert!(!left(&lake, "wh/t/").contains(&"orphan.parquet".to_owned()));
    lake.days(9);
    assert!(!swept().await.contains(&"job/slow.parquet".to_owned()), "a retention after its end it is over");
}

/// The worker of the catalog goes over a table that was dropped, whatever else is at work.
async fn purge(lake: &Lake) {
    use crate::catalog::purge::{carry_out, list_work};
    let ports = &lake.app.ports;
    for work in list_work(ports.items.as_ref(), ports.clock.as_ref()).await.unwrap() {
        let deadline = crate::ports::Deadline::in_ms(ports.clock.as_ref(), 600_000);
        carry_out(ports, &work, deadline).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_right_after_the_drop_ends_by_name() {
    use crate::store::QueueName;
    // Whether the table had an optimizer, and where the purge comes.
    for (had, moment) in (0..4).flat_map(|moment| [(false, moment), (true, moment)]) {
        let lake = lake().await;
        let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/d") };
        kit.log(0, &creation_of(TABLE_ID, &[], json!({}))).await;
        register(&lake, "d", "wh/d", json!({"spark.sql.sources.provider": "delta"})).await;
        if had {
            let input = json!({"CatalogId": "000000000000", "DatabaseName": "cat", "TableName": "d",
                "Type": "orphan_file_deletion", "TableOptimizerConfiguration": {"enabled": true,
                    "orphanFileDeletionConfiguration": {"icebergConfiguration": {}}}});
            optimizer::create(&lake.app, &CatalogDirectory::new(&lake.app), input).await.unwrap();
        }
        lake.days(1);
        drop_table(&lake.app.ports, "cat", "d").await.unwrap();
        let id = only(&lake).await["table_id"].as_str().unwrap().to_owned();
        if moment == 0 {
            purge(&lake).await;
        }
        dropped::start(&lake.app, &id, &json!({"mode": "dry_run"})).await.unwrap();
        let request = SweepRequest::decode(&lake.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        if moment == 1 {
            purge(&lake).await;
        }
        let directory = CatalogDirectory::new(&lake.app);
        let hooked = if moment == 2 { Some(lake.clone()) } else { None };
        let outcome = match hooked {
            None => sweep(&lake.app, &directory, &request, lake.deadline()).await.unwrap(),
            Some(inner) => {
                // In the middle of the run.
                let action =
                    move || -> futures::future::BoxFuture<'static, ()> { Box::pin(async move { purge(&inner).await }) };
                let hook = Hook::new(4, Box::new(action));
                let (memory, objects) = (lake.directory.clone(), lake.world.objects.clone());
                let hooked = std::sync::Arc::new(Hooked { hook: hook.clone(), directory: memory, objects });
                let mut app = lake.app.clone();
                app.ports.objects = std::sync::Arc::new(UpToTheLast(hooked));
                let outcome = sweep(&app, &directory, &request, lake.deadline()).await.unwrap();
                assert!(hook.has_fired());
                outcome
            }
        };
        let RunOutcome::Finished(record) = outcome else { panic!("{had} {moment}: {outcome:?}") };
        assert_eq!((record.state, &record.reason), (RunState::Completed, &None), "{had} {moment}: {:?}", record.error);
        // The purge goes on until it finds nothing more, and what the run has said stays.
        for _ in 0..3 {
            lake.world.clock.advance_ms(crate::catalog::purge::LONGEST_FUNCTION_MS);
            purge(&lake).await;
        }
        let found = dropped::get(&lake.app, &id, &request.run_id).await.unwrap();
        assert_eq!(found["state"], json!("completed"), "{had} {moment}");
        let (items, clock) = (lake.app.ports.items.as_ref(), lake.app.ports.clock.as_ref());
        assert_eq!(crate::catalog::purge::list_work(items, clock).await.unwrap().len(), 0, "the purge ends");
    }
}

#[tokio::test]
async fn what_was_in_quarantine_when_the_table_was_dropped_expires_or_comes_back() {
    let mut lake = lake().await;
    lake.app.settings.undo.hours = 24 * 9;
    let id = dropped_delta(&lake).await;
    let place = |key: &str, id: &str| format!("lakewarden-quarantine/wh/d/{key}/{id}/0000000000001-run");
    let (one, two, other) = (place("q.parquet", &id), place("r.parquet", &id), place("q.parquet", "another-table"));
    for key in [&one, &two, &other] {
        lake.put(key, "x").await;
    }
    // By key, by prefix, or by run, though the table and its runs are gone.
    purge(&lake).await;
    let bad = dropped::start(&lake.app, &id, &json!({"mode": "restore"})).await.unwrap_err();
    assert!(bad.message.contains("run, prefix or key"), "{bad}");
    let back = run(&lake, &id, json!({"mode": "restore", "key": "wh/d/r.parquet"})).await.unwrap();
    assert_eq!((back.state, back.facts.restored.map(|tally| tally.count)), (RunState::Completed, Some(1)));
    assert!(lake.keys().contains("wh/d/r.parquet") && !lake.keys().contains(&two));
    lake.world.objects.delete(&at("wh/d/r.parquet"), None).await.unwrap();
    // Not before its time, though everything else goes.
    lake.days(8);
    let removed = remove(&lake, &id).await.unwrap();
    assert_eq!((removed.state, removed.totals.deleted.count), (RunState::Completed, 5), "{:?}", removed.error);
    assert!(lake.keys().contains(&one));
    lake.days(2);
    let seen = dry(&lake, &id).await;
    assert!(lake.keys().contains(&one), "a dry run deletes nothing");
    assert_eq!(counts(&seen).get("quarantine_expired"), Some(&1));
    let removed = remove(&lake, &id).await.unwrap();
    assert_eq!(removed.facts.expired.map(|tally| tally.count), Some(1));
    assert!(!lake.keys().contains(&one) && lake.keys().contains(&other), "only its own");
}
