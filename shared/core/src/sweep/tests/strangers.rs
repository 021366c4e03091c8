//! Tables that no catalog has told of: what they name in ours stays.

use std::sync::Arc;

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::delta::testkit::{TableKit, add_line, creation_of};
use crate::location::Location;
use crate::ports::Deadline;
use crate::sweep::items::RunState;

const ORPHAN: &str = "wh/t/data/orphan.parquet";

/// A Delta table at a place, which names the orphan.
async fn clone_at(lake: &Lake, prefix: &str) -> TableKit {
    let kit = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, prefix) };
    let mut lines = creation_of("clone", &[], json!({}));
    lines.push(add_line(&format!("s3a://lake/{ORPHAN}"), 1));
    kit.log(0, &lines).await;
    kit
}

/// An Iceberg table at a place, which names the orphan, and which the catalog does not know.
async fn copy_at(lake: &Lake, prefix: &str) -> Iceberg {
    let mut table = Iceberg::create_at(lake, "copy", prefix, 2).await;
    table.commit(&[(1, 0, ORPHAN.to_owned())]).await;
    lake.directory.remove("db", "copy");
    table
}

fn with_more_places(lake: &Lake, places: &[&str]) {
    let places = json!(places).to_string();
    lake.register("hive", "hive", &[("classification", "parquet"), ("StorageDescriptor.AdditionalLocations", &places)]);
}

async fn is_kept(lake: &Lake, what: &str) {
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{what}: {:?}", record.error);
    assert!(
        lake.report("t", &record.run_id)
            .await
            .iter()
            .any(|line| line["key"] == ORPHAN && line["reason"] == "referenced"),
        "{what}"
    );
    assert!(record.facts.findings.iter().any(|finding| finding.contains("does not know")), "{what}: {record:?}");
}

async fn is_refused(lake: &Lake, what: &str) {
    let (record, gone) = lake.gone().await;
    let reason = RefusalReason::OtherTableUnreadable.as_str();
    assert_eq!((record.reason.as_deref(), gone.len()), (Some(reason), 0), "{what}: {record:?}");
    assert!(record.error.is_some_and(|error| error.contains("does not know")), "{what}");
}

#[tokio::test]
async fn a_table_found_in_the_listing_keeps_what_it_names() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    clone_at(&lake, "wh/t/clones/c").await;
    is_kept(&lake, "Delta").await;
    // Not to be followed.
    let kit = clone_at(&lake, "wh/t/clones/c").await;
    kit.log(1, &[json!({"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}})]).await;
    is_refused(&lake, "a version to come").await;

    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let mut table = copy_at(&lake, "wh/t/copies/c").await;
    is_kept(&lake, "Iceberg").await;
    // Torn: nobody reads a state by it, and the one before counts.
    lake.put("wh/t/copies/c/metadata/00009-u.metadata.json", "{").await;
    is_kept(&lake, "Iceberg, torn").await;
    // A newer state that is whole, and no longer names it: which is the current one is not known.
    table.metadata["snapshots"] = json!([]);
    (table.metadata["current-snapshot-id"], table.metadata["refs"]) = (json!(-1), json!({}));
    table.version = 10;
    table.write_metadata().await;
    is_kept(&lake, "Iceberg, newer").await;
    // Of the newest state something is missing.
    table.metadata["snapshots"] =
        json!([{"snapshot-id": 1, "manifest-list": "s3://lake/wh/t/copies/c/metadata/no.avro"}]);
    table.version = 11;
    lake.days(1);
    table.write_metadata().await;
    is_refused(&lake, "Iceberg, incomplete").await;
}

#[tokio::test]
async fn a_table_at_a_place_that_an_entry_names_beside_its_location_keeps_what_it_names() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    with_more_places(&lake, &["s3://lake/hive/more", "s3://lake/dev/c/"]);
    lake.put("hive/more/x.parquet", "x").await;
    let kit = clone_at(&lake, "dev/c").await;
    is_kept(&lake, "Delta").await;
    lake.put("dev/c/_delta_log/00000000000000000000.json", "{").await;
    is_refused(&lake, "torn").await;
    // Registered, it is read as what it is, and once.
    clone_at(&lake, "dev/c").await;
    lake.register("c", "dev/c", &DELTA);
    let (record, gone) = lake.gone().await;
    assert_eq!((gone.len(), record.facts.findings.len()), (0, 0), "{record:?}");
    lake.directory.remove("db", "c");
    kit.delete_log(0).await;
    assert_eq!(lake.gone().await.1.len(), 1, "there is nothing any more");

    let lake = Lake::new();
    with_old_orphan(&lake).await;
    copy_at(&lake, "dev/i").await;
    with_more_places(&lake, &["s3a://lake/dev/i"]);
    is_kept(&lake, "Iceberg").await;
    with_more_places(&lake, &[]);
    assert_eq!(lake.gone().await.1.len(), 1);
}

#[tokio::test]
async fn slices_go_on_with_tables_that_were_found() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    clone_at(&lake, "wh/t/clones/c").await;
    copy_at(&lake, "wh/t/copies/c").await;
    lake.put("wh/t/data/second.parquet", "x").await;
    lake.days(4);
    let mut app = lake.app.clone();
    let (objects, clock) = (lake.world.objects.clone(), lake.world.clock.clone());
    app.ports.objects = Arc::new(Slow { objects, clock, step_ms: 1_500, head_ms: 1_500 });
    let request = lake.start("t", Mode::Ordinary).await;
    for slices in 0..100 {
        let deadline = Deadline::in_ms(lake.world.clock.as_ref(), 60_000);
        match sweep(&app, lake.directory.as_ref(), &request, deadline).await.unwrap() {
            RunOutcome::Postponed(Interruption::TimeLimit) => {}
            RunOutcome::Finished(record) => {
                assert_eq!((record.state, record.totals.deleted.count), (RunState::Completed, 1), "{:?}", record.error);
                assert!(slices > 0 && lake.keys().contains(ORPHAN), "{slices}");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("no end");
}

#[tokio::test]
async fn tables_of_the_catalog_are_not_called_unknown() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let inside = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/t/inside") };
    inside.log(0, &creation_of("inside", &[], json!({}))).await;
    lake.register("inside", "wh/t/inside", &DELTA);
    let mut other = Iceberg::create_at(&lake, "u", "wh/t/u", 2).await;
    other.append(&["x.parquet"]).await;
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((gone.len(), record.facts.findings.clone()), (1, vec![]), "{record:?}");
    lake.directory.remove("db", "u");
    let (record, _) = lake.gone().await;
    assert!(record.facts.findings.iter().any(|finding| finding.contains("wh/t/u")), "{record:?}");
}

#[tokio::test]
async fn markers_of_folders_that_others_use_stay() {
    let lake = Lake::new();
    let table = with_orphan(&lake).await.0;
    lake.configure(json!({"sweepFolderMarkers": true})).await.unwrap();
    lake.register("inside", "wh/t/others/inside", &[("classification", "parquet")]);
    clone_at(&lake, "wh/t/clones/c").await;
    let theirs = [
        "wh/t/others_$folder$",
        "wh/t/others/",
        "wh/t/others/inside_$folder$",
        "wh/t/others/inside/",
        "wh/t/clones_$folder$",
        "wh/t/clones/c_$folder$",
        "wh/t/clones/c/",
    ];
    let ours = ["wh/t/data_$folder$", "wh/t/empty/", "wh/t/other_$folder$"];
    for key in theirs.iter().chain(&ours) {
        lake.put(key, "").await;
    }
    table.lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, ours.map(str::to_owned).into(), "{:?}", record.error);
}
