//! Tables elsewhere whose entries in the catalog say less, or something else, than what lies at their place.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::delta::testkit::{TableKit, add_line, creation_of};
use crate::location::Location;
use crate::sweep::items::RunState;

/// A clone at `dev/c` that needs the orphan of `t`, registered with these parameters at this place.
async fn cloned(lake: &Lake, parameters: &[(&str, &str)], place: &str) -> String {
    let (_, orphan) = with_old_orphan(lake).await;
    let clone = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "dev/c") };
    let mut lines = creation_of("clone", &[], json!({}));
    lines.push(add_line(&format!("s3a://{BUCKET}/{orphan}"), 1));
    clone.log(0, &lines).await;
    lake.directory.put(TableEntry {
        id: "id-c".into(),
        database: "db".into(),
        name: "c".into(),
        location: Some(Location { bucket: BUCKET.into(), prefix: place.into() }),
        parameters: parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    });
    orphan
}

#[tokio::test]
async fn a_log_at_the_place_of_a_table_that_is_not_marked_stops_the_run() {
    let both = [("table_type", "ICEBERG"), ("spark.sql.sources.provider", "delta")];
    let lost = [("table_type", "ICEBERG"), ("metadata_location", "s3://lake/dev/c/metadata/v2.metadata.json")];
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[], "dev/c"),
        (&[("classification", "parquet")], "dev/c"),
        (&[("table_type", "ICEBERG")], "dev/c"),
        (&both, "dev/c"),
        (&lost, "dev/c"),
        (&DELTA, "dev//c"),
    ];
    for (parameters, place) in cases {
        let lake = Lake::new();
        let orphan = cloned(&lake, parameters, place).await;
        let (record, gone) = lake.gone().await;
        assert_eq!(gone.len(), 0, "{parameters:?}");
        assert_eq!(record.reason.as_deref(), Some("other_table_unreadable"), "{parameters:?}: {:?}", record.error);
        // Its owner's word, and another entry that is marked, each let the run go on.
        let mut word: Vec<(&str, &str)> = parameters.to_vec();
        word.push(("lakewarden.files.at_location_only", "true"));
        lake.register("c", place, &word);
        assert_eq!(lake.gone().await.1, [orphan].into(), "{parameters:?}");
    }
    let lake = Lake::new();
    cloned(&lake, &[], "dev/c").await;
    lake.register("marked", "dev/c", &DELTA);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "read by the entry that is marked: {record:?}");
}

#[tokio::test]
async fn iceberg_metadata_at_the_place_of_a_table_without_a_usable_pointer_stops_the_run() {
    let lost = [("table_type", "ICEBERG"), ("metadata_location", "s3://lake/dev/u/metadata/gone.metadata.json")];
    let cases: [&[(&str, &str)]; 3] = [&[], &[("table_type", "ICEBERG")], &lost];
    for parameters in cases {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
        other.commit(&[(1, 0, orphan.clone())]).await;
        lake.register("u", "dev/u", parameters);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.reason.as_deref(), gone.len()), (Some("other_table_unreadable"), 0), "{parameters:?}");
    }
}

#[tokio::test]
async fn a_table_that_lists_its_files_needs_them() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let format = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat";
    lake.register("links", "links", &[("StorageDescriptor.InputFormat", format)]);
    lake.put("links/day=1/manifest", format!("s3a://{BUCKET}/{orphan}\n\ns3://other/x\n")).await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{record:?}");
    lake.put("links/day=2/manifest", "not a uri").await;
    assert_eq!(lake.gone().await.0.reason.as_deref(), Some("other_table_unreadable"));
    lake.directory.remove("db", "links");
    assert_eq!(lake.gone().await.1, [orphan].into());
}

#[tokio::test]
async fn places_in_another_spelling_are_kept() {
    for (place, key) in [
        ("wh/t/data//nested", "wh/t/data/nested/x.parquet"),
        ("wh/t/data/my%20dir", "wh/t/data/my dir/x.parquet"),
        ("wh//t/data/p1", "wh/t/data/p1/x.parquet"),
        ("wh/t/data/p1", "wh/t/data//p1/x.parquet"),
    ] {
        let lake = Lake::new();
        let (_, orphan) = with_orphan(&lake).await;
        lake.put(key, "x").await;
        let location = Location { bucket: BUCKET.into(), prefix: place.into() };
        lake.register("hive", "hive", &[("classification", "parquet")]);
        lake.directory.put_partition("id-hive", location.clone());
        lake.days(4);
        let (_, gone) = lake.gone().await;
        assert_eq!(gone, [orphan].into(), "{place}");
    }
}

#[tokio::test]
async fn waiting_commits_of_other_tables_keep_what_they_name() {
    // A newer state of a table elsewhere, which the catalog does not point to yet.
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.commit(&[(1, 0, "wh/t/data/live.parquet".to_owned())]).await;
    let before = lake.directory.table("db", "u").await.unwrap().unwrap();
    lake.world.clock.advance_ms(1_000);
    other.commit(&[(1, 0, orphan.clone())]).await;
    lake.directory.put(before);
    let (record, gone) = lake.gone().await;
    assert_eq!((counts(&record).get("pending_commit"), gone.len()), (Some(&1), 0), "{record:?}");
}
