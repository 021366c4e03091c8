//! Stores that fail: what may pass is tried again, what stays ends the run with a reason, and no run is left without an end.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::glue::GlueExceptionName;
use crate::location::Location;
use crate::store::{Condition, Item, Items, Key, StoreErrorKind, Table};
use crate::sweep::items::{RunRecord, RunState};

/// A bucket of which nothing is there.
const GONE: &str = "gone";
const LINKS: (&str, &str) = ("StorageDescriptor.InputFormat", "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat");
const AT_HOME: (&str, &str) = ("lakewarden.files.at_location_only", "true");
const ICEBERG: [(&str, &str); 2] =
    [("table_type", "ICEBERG"), ("metadata_location", "s3://gone/x/metadata/v1.metadata.json")];

fn fail_bucket(lake: &Lake, kind: StoreErrorKind) {
    for call in ["get", "head", "list"] {
        lake.world.faults.fail_all(&format!("{call} s3://{GONE}/"), kind);
    }
}

fn put_elsewhere(lake: &Lake, parameters: &[(&str, &str)]) {
    lake.directory.put(TableEntry {
        id: "id-x".into(),
        database: "db".into(),
        name: "x".into(),
        location: Some(Location::new(GONE, "x")),
        parameters: parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    });
}

async fn explained(lake: &Lake, key: &str) -> Result<serde_json::Value, crate::glue::GlueException> {
    let body = json!({"key": key, "sightings": 1});
    rest::explain_in(&lake.app, lake.directory.as_ref(), "db", "t", &body, lake.deadline()).await
}

#[tokio::test]
async fn another_table_in_a_bucket_that_is_missing_forbidden_or_refused() {
    let tables: [&[(&str, &str)]; 4] = [&[("classification", "parquet")], &[LINKS], &ICEBERG, &DELTA];
    let kinds =
        [StoreErrorKind::Missing, StoreErrorKind::AccessDenied, StoreErrorKind::Invalid, StoreErrorKind::TooLarge];
    for (parameters, kind) in tables.into_iter().flat_map(|table| kinds.map(|kind| (table, kind))) {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        put_elsewhere(&lake, parameters);
        fail_bucket(&lake, kind);
        let case = format!("{parameters:?} {kind:?}");
        if kind == StoreErrorKind::Missing {
            // Nothing there could name files here.
            assert_eq!(explained(&lake, &orphan).await.unwrap()["reason"], "orphan", "{case}");
            let (record, gone) = lake.gone().await;
            assert_eq!((record.state, gone), (RunState::Completed, [orphan].into()), "{case}: {:?}", record.error);
            assert!(record.facts.findings.iter().any(|finding| finding.contains("table db.x")), "{case}: {record:?}");
            continue;
        }
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone.len()), (RunState::Failed, 0), "{case}");
        assert_eq!(record.reason.as_deref(), Some("other_table_unreadable"), "{case}: {:?}", record.error);
        assert!(record.error.is_some_and(|error| error.contains("table db.x") && error.contains(GONE)), "{case}");
        let refused = explained(&lake, &orphan).await.unwrap_err();
        assert_eq!(refused.name, GlueExceptionName::InvalidState, "{case}: {refused:?}");
        assert!(refused.message.contains("other_table_unreadable: table db.x"), "{case}: {refused:?}");
        // Its owner's word helps, whatever the format.
        let word: Vec<(&str, &str)> = parameters.iter().copied().chain([AT_HOME]).collect();
        put_elsewhere(&lake, &word);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone), (RunState::Completed, [orphan].into()), "{case}: {:?}", record.error);
    }
}

#[tokio::test]
async fn a_place_longer_than_any_key_holds_nothing() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    lake.register("long", &"k".repeat(1015), &[("classification", "csv")]);
    assert_eq!(lake.gone().await.1, [orphan].into());
}

#[tokio::test]
async fn another_table_whose_store_is_busy_is_asked_again() {
    for kind in [StoreErrorKind::Throttled, StoreErrorKind::Unavailable, StoreErrorKind::Conflict] {
        for parameters in [&[("classification", "parquet")][..], &ICEBERG, &DELTA] {
            let lake = Lake::new();
            with_old_orphan(&lake).await;
            put_elsewhere(&lake, parameters);
            fail_bucket(&lake, kind);
            let request = lake.start("t", Mode::Ordinary).await;
            let error = lake.run(&request).await.unwrap_err();
            assert!(matches!(&error, SweepError::Store(error) if error.kind == kind), "{error}");
            lake.world.faults.mend();
            let RunOutcome::Finished(record) = lake.run(&request).await.unwrap() else { panic!() };
            assert_eq!((record.state, record.totals.deleted.count), (RunState::Completed, 1), "{record:?}");
        }
    }
}

#[tokio::test]
async fn whatever_stays_refused_ends_the_run_with_its_reason() {
    let calls = [
        "get s3://lake/wh/t/metadata/00001-u.metadata.json",
        "get s3://lake/wh/t/metadata/snap-10.avro",
        "get s3://lake/wh/t/metadata/c1-m0.avro",
        "list s3://lake/wh/t/",
        "head s3://lake/wh/t/data",
        "delete_batch s3://lake",
        "get s3://lakewarden-reports",
        "put s3://lakewarden-reports",
    ];
    let kinds = [
        (StoreErrorKind::AccessDenied, "access_denied"),
        (StoreErrorKind::Missing, "bucket_missing"),
        (StoreErrorKind::Invalid, "store_refused"),
        (StoreErrorKind::TooLarge, "store_refused"),
    ];
    for (call, (kind, reason)) in calls.into_iter().flat_map(|call| kinds.map(|kind| (call, kind))) {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let before = lake.keys();
        lake.world.faults.fail_all(call, kind);
        let record = lake.sweep("t", Mode::Ordinary).await;
        let is_metadata = call.starts_with("get s3://lake/") && kind == StoreErrorKind::Missing;
        let reason = if is_metadata { "metadata_incomplete" } else { reason };
        assert_eq!((record.state, record.reason.as_deref()), (RunState::Failed, Some(reason)), "{call}: {record:?}");
        let object = call.split_once(' ').map(|(_, object)| object).unwrap_or_default();
        assert!(record.error.as_ref().is_some_and(|error| error.contains(object)), "{call}: {:?}", record.error);
        assert_eq!(lake.keys(), before, "{call}");
        let target = json!({"CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion"});
        let optimizer = optimizer::get(&lake.app, lake.directory.as_ref(), target).await.unwrap();
        let last = &optimizer["TableOptimizer"]["lastRun"];
        assert_eq!(last["eventType"], "failed", "{call}: {last}");
        assert!(last["error"].as_str().is_some_and(|error| error.starts_with(reason)), "{call}: {last}");
        // Nobody is kept from the table.
        lake.world.faults.mend();
        assert_eq!(lake.sweep("t", Mode::Ordinary).await.totals.deleted.count, 1, "{call}");
    }
}

#[tokio::test]
async fn items_that_cannot_be_read_end_the_run() {
    for (pk, sk, is_begun) in [("sweep#id-t", "lease", false), ("sweep-places", "id-x", true)] {
        let key = Key::new(Table::Catalog, pk, sk);
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        let odd = Item::from([("schema_version".to_owned(), 99.into())]);
        lake.world.items.put(&key, odd, Condition::Always).await.unwrap();
        let record = lake.sweep("t", Mode::Ordinary).await;
        assert_eq!(record.state, RunState::Failed, "{key:?}");
        assert_eq!(record.reason.as_deref(), Some("item_unreadable"), "{key:?}: {record:?}");
        assert_eq!(record.attempts, i64::from(is_begun), "{key:?}");
    }
}

#[tokio::test]
async fn a_run_that_fails_at_every_try_is_given_up() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let request = lake.start("t", Mode::Ordinary).await;
    lake.world.faults.fail_all("get s3://lake/wh/t/metadata/snap-10.avro", StoreErrorKind::Throttled);
    let mut errors = 0;
    let record = loop {
        match lake.run(&request).await {
            Err(SweepError::Store(_)) => errors += 1,
            Ok(RunOutcome::Finished(record)) => break record,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((errors, record.state, record.reason.as_deref()), (19, RunState::Failed, Some("store_unavailable")));
    assert!(record.error.is_some_and(|error| error.contains("snap-10.avro")));
}

#[tokio::test]
async fn the_last_delivery_of_a_message_ends_its_run() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let request = lake.start("t", Mode::Ordinary).await;
    lake.world.faults.fail_all("get s3://lake/wh/t/metadata/snap-10.avro", StoreErrorKind::Unavailable);
    let error = lake.run(&request).await.unwrap_err();
    let directory = lake.directory.as_ref();
    assert_eq!(give_up(&lake.app, directory, &request, &error).await, Ok(true));
    let items = lake.world.items.as_ref();
    let record = RunRecord::load(items, "id-t", &request.run_id).await.unwrap().unwrap();
    assert_eq!((record.state, record.reason.as_deref()), (RunState::Failed, Some("store_unavailable")));
    assert!(record.error.is_some_and(|error| error.contains("snap-10.avro")));
    assert_eq!(lake.run(&request).await, Ok(RunOutcome::AlreadyFinished));
    assert_eq!(give_up(&lake.app, directory, &request, &error).await, Ok(true));
    let unknown = SweepRequest { run_id: "none".into(), ..request };
    assert_eq!(give_up(&lake.app, directory, &unknown, &error).await, Ok(false));
}

#[tokio::test]
async fn the_next_run_ends_one_that_nobody_gets_on_with() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let lost = lake.start("t", Mode::Ordinary).await;
    lake.world.faults.fail_all("get s3://lake/wh/t/metadata/snap-10.avro", StoreErrorKind::Throttled);
    lake.run(&lost).await.unwrap_err();
    let never_begun = lake.start("t", Mode::DryRun).await;
    lake.world.faults.mend();
    let states = async || {
        let mut states = BTreeMap::new();
        for request in [&lost, &never_begun] {
            let record = RunRecord::load(lake.world.items.as_ref(), "id-t", &request.run_id).await.unwrap().unwrap();
            states.insert(request.run_id.clone(), (record.state, record.reason));
        }
        states.into_values().collect::<Vec<_>>()
    };
    // They may be waiting for their turn.
    lake.world.clock.advance_ms(DAY_MS - 1);
    lake.sweep("t", Mode::DryRun).await;
    assert_eq!(states().await, [(RunState::Running, None), (RunState::Queued, None)]);
    lake.world.clock.advance_ms(1);
    lake.scheduled().await;
    let given_up = (RunState::Failed, Some("gave_up".to_owned()));
    assert_eq!(states().await, [given_up.clone(), (RunState::Queued, None)], "a message waits for two weeks");
    lake.days(13);
    lake.scheduled().await;
    assert_eq!(states().await, [given_up.clone(), given_up]);
    assert_eq!(lake.run(&lost).await, Ok(RunOutcome::AlreadyFinished));
}

/// A table whose metadata names everything with two slashes where Hadoop's client has written one.
async fn collapsed(lake: &Lake, name: &str) -> Iceberg {
    let mut table = Iceberg::create_at(lake, name, &format!("wh/{name}"), 2).await;
    let live = table.data("live.parquet").await;
    let doubled = |key: &str| key.replace(&format!("wh/{name}/"), &format!("wh/{name}//"));
    table.prepare(&[(1, 0, doubled(&live))]).await;
    let manifest = manifest(&[(1, 0, doubled(&live))]);
    let manifest_key = doubled(&format!("wh/{name}/metadata/c1-m0.avro"));
    let list = manifest_list(&[(manifest_key, manifest.len(), 1)]);
    lake.put(&format!("wh/{name}/metadata/snap-10.avro"), list).await;
    table.metadata["location"] = json!(format!("s3a://lake/wh/{name}/"));
    table.metadata["snapshots"][0]["manifest-list"] = json!(format!("s3a://lake/wh/{name}//metadata/snap-10.avro"));
    table.write_metadata().await;
    let pointer = format!("s3a://lake/{}", doubled(&table.metadata_key()));
    lake.register(name, &format!("wh/{name}"), &[("table_type", "ICEBERG"), ("metadata_location", &pointer)]);
    table
}

#[tokio::test]
async fn metadata_that_hadoop_wrote_with_fewer_slashes_is_read() {
    let lake = Lake::new();
    let table = collapsed(&lake, "t").await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for round in 0..2 {
        let orphan = table.data(&format!("orphan-{round}.parquet")).await;
        lake.days(4);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone), (RunState::Completed, [orphan].into()), "{:?}", record.error);
        assert!(counts(&record).get("spelled_differently") >= Some(&4), "{record:?}");
    }
    // What is not there in any spelling is missing.
    let at = at("wh/t/metadata/snap-10.avro");
    crate::store::Objects::delete(lake.world.objects.as_ref(), &at, None).await.unwrap();
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.reason.as_deref(), Some("metadata_incomplete"));
}

#[tokio::test]
async fn such_metadata_of_another_table_is_read_too() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let mut other = collapsed(&lake, "u").await;
    assert_eq!(lake.gone().await.1, [orphan].into());
    // Torn, it may need anything.
    other.metadata["snapshots"][0]["manifest-list"] = json!("s3a://lake/wh/u//metadata/none.avro");
    other.version += 1;
    other.write_metadata().await;
    let pointer = format!("s3a://lake/{}", other.metadata_key().replace("wh/u/", "wh/u//"));
    lake.register("u", "wh/u", &[("table_type", "ICEBERG"), ("metadata_location", &pointer)]);
    assert_eq!(lake.sweep("t", Mode::Ordinary).await.reason.as_deref(), Some("other_table_unreadable"));
}

#[tokio::test]
async fn a_place_beside_another_tables_location_that_may_not_be_looked_at() {
    let more = ("StorageDescriptor.AdditionalLocations", r#"["s3://gone/y/"]"#);
    for (kind, is_known) in [(StoreErrorKind::Missing, true), (StoreErrorKind::AccessDenied, false)] {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        lake.register("more", "more", &[("classification", "parquet"), more]);
        fail_bucket(&lake, kind);
        if !is_known {
            let (record, gone) = lake.gone().await;
            assert_eq!((record.reason.as_deref(), gone.len()), (Some("other_table_unreadable"), 0), "{record:?}");
            assert!(record.error.is_some_and(|error| error.contains("table db.more")));
            lake.register("more", "more", &[("classification", "parquet"), more, AT_HOME]);
        }
        assert_eq!(lake.gone().await.1, [orphan].into(), "{kind:?}");
    }
}
