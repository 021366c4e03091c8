//! Tables elsewhere that need files here, places inside ours that are theirs, and tables that nobody told us about.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::delta::testkit::{TableKit, add_line, creation_of, remove_line};
use crate::location::Location;
use crate::store::ReadObjects;
use crate::sweep::items::{RunState, TablePlaces};

#[tokio::test]
async fn a_shallow_clone_keeps_the_files_of_its_source() {
    let lake = Lake::new();
    let source = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/t") };
    source.log(0, &creation_of("source", &[], json!({}))).await;
    lake.register("t", "wh/t", &DELTA);
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for name in ["live.parquet", "cloned.parquet", "removed.parquet"] {
        lake.put(&format!("wh/t/{name}"), "x").await;
    }
    source.log(1, &["live.parquet", "cloned.parquet", "removed.parquet"].map(|name| add_line(name, 1))).await;
    let clone = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "dev/c") };
    let mut lines = creation_of("clone", &[], json!({}));
    lines.push(add_line("s3a://lake/wh/t/cloned.parquet", 1));
    clone.log(0, &lines).await;
    let now_ms = lake.world.ports.clock.now_ms();
    source.log(2, &["cloned.parquet", "removed.parquet"].map(|name| remove_line(name, now_ms))).await;
    lake.register("c", "dev/c", &DELTA);
    lake.days(10);
    assert_eq!(lake.gone().await.1, ["wh/t/removed.parquet".to_owned()].into());
    // What it reaches is known now; torn, it stops the run.
    lake.put("dev/c/_delta_log/00000000000000000000.json", "{").await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.reason.as_deref(), gone.len()), (Some("other_table_unreadable"), 0), "{:?}", record.error);
    lake.directory.remove("db", "c");
    assert_eq!(lake.gone().await.1, ["wh/t/cloned.parquet".to_owned()].into());
}

#[tokio::test]
async fn files_that_another_table_has_added_stay() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    // Snapshots of a table are made so, and must not be cleaned themselves.
    other.metadata["properties"] = json!({"gc.enabled": "false"});
    other.commit(&[(1, 0, orphan.clone())]).await;
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{:?}", record.error);
    assert_eq!(counts(&record).get("referenced"), Some(&6));
    lake.directory.remove("db", "u");
    assert_eq!(lake.gone().await.1, [orphan].into());
}

#[tokio::test]
async fn tables_that_reach_nothing_here_are_read_once() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.append(&["x.parquet"]).await;
    let reads = async |lake: &Lake| {
        let before = lake.world.objects.object_usage();
        lake.sweep("t", Mode::DryRun).await;
        lake.world.objects.object_usage().since(&before).gets
    };
    let first = reads(&lake).await;
    let second = reads(&lake).await;
    // Its metadata file, list and manifest, and the metadata file before; the swept table's list, manifest and metadata
    // file before.
    assert_eq!(first - second, 7);
    other.append(&["y.parquet"]).await;
    assert_eq!(reads(&lake).await - second, 5);
    let places = TablePlaces::load_all(lake.world.items.as_ref()).await.unwrap();
    assert_eq!(places.len(), 2);
}

#[tokio::test]
async fn places_that_another_table_writes_to_or_once_wrote_to_are_its_own() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let theirs = "wh/t/data/theirs/new.parquet".to_owned();
    lake.put(&theirs, "x").await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.metadata["properties"] = json!({"write.data.path": "s3://lake/wh/t/data/theirs"});
    other.append(&["x.parquet"]).await;
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((counts(&record).get("other_table_prefix"), gone), (Some(&1), [orphan].into()));
    other.metadata["properties"] = json!({});
    other.append(&["y.parquet"]).await;
    assert_eq!(lake.gone().await.1, BTreeSet::new());
}

#[tokio::test]
async fn partitions_that_lie_inside_ours_are_their_tables_own() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    lake.put("wh/t/data/day=1/of-hive.parquet", "x").await;
    lake.register("hive", "hive", &[("classification", "parquet")]);
    lake.directory.put_partition("id-hive", Location::new(BUCKET, "wh/t/data/day=1"));
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((counts(&record).get("other_table_prefix"), gone), (Some(&1), [orphan].into()));
    lake.directory.put_partition("id-hive", Location::new(BUCKET, "wh"));
    let (record, _) = lake.gone().await;
    assert_eq!(record.reason.as_deref(), Some("shared_location"));
}

#[tokio::test]
async fn a_table_elsewhere_without_any_metadata_is_named() {
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let gone = [("table_type", "ICEBERG"), ("metadata_location", "s3://lake/dev/none.metadata.json")];
    lake.register("u", "dev/u", &gone);
    lake.register("v", "dev/v", &[("table_type", "ICEBERG")]);
    lake.register("w", "dev/w", &DELTA);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, [orphan].into(), "{record:?}");
    assert_eq!(record.facts.findings.len(), 3, "{:?}", record.facts.findings);
}

#[tokio::test]
async fn a_table_elsewhere_that_cannot_be_read_stops_the_run() {
    let unread = |lake: &Lake, parameters: &[(&str, &str)]| {
        let pointer = ("metadata_location", "s3://lake/dev/u/metadata/v1.metadata.json");
        let mut all = vec![("table_type", "ICEBERG"), pointer];
        all.extend_from_slice(parameters);
        lake.register("u", "dev/u", &all);
    };
    // Never read, so it may need any file here: torn, of a version to come, or with its metadata in another store.
    for metadata in ["{", r#"{"format-version": 4}"#] {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        lake.put("dev/u/metadata/v1.metadata.json", metadata).await;
        unread(&lake, &[]);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.reason.as_deref(), gone.len()), (Some("other_table_unreadable"), 0), "{metadata}");
        assert!(record.error.as_ref().is_some_and(|error| error.contains("lakewarden.files.at_location_only")));
        // Its owner says that it stays at home.
        unread(&lake, &[("lakewarden.files.at_location_only", "true")]);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.facts.findings.len(), gone), (1, [orphan].into()), "{metadata}");
    }
    for parameters in [
        vec![("table_type", "ICEBERG"), ("metadata_location", "hdfs://nn/u/v1.metadata.json")],
        vec![("table_type", "ICEBERG"), ("spark.sql.sources.provider", "delta"), ("metadata_location", "s3://lake/x")],
    ] {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        lake.register("u", "dev/u", &parameters);
        assert_eq!(lake.gone().await.0.reason.as_deref(), Some("other_table_unreadable"), "{parameters:?}");
    }
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    lake.put("dev/w/_delta_log/00000000000000000000.json", "{").await;
    lake.register("w", "dev/w", &DELTA);
    assert_eq!(lake.gone().await.0.reason.as_deref(), Some("other_table_unreadable"));
    // What was read and has not changed since is known, though it could not be read again.
    let lake = Lake::new();
    let (_, orphan) = with_old_orphan(&lake).await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.append(&["x.parquet"]).await;
    lake.sweep("t", Mode::DryRun).await;
    lake.put(&other.metadata_key(), "{").await;
    assert_eq!(lake.gone().await.1, [orphan].into());
}

#[tokio::test]
async fn places_of_the_past_are_known_at_the_first_sweep() {
    // By an older metadata file, by a kept version's metadata file that no log names any more, by its parameters, and by
    // where the table lay.
    for way in 0..4 {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        let theirs = "wh/t/data/theirs/new.parquet".to_owned();
        lake.put(&theirs, "x").await;
        let place = Location::new(BUCKET, "wh/t/data/theirs");
        let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
        let first = at(&other.metadata_key());
        if way < 2 {
            other.metadata["properties"] = json!({"write.data.path": place.to_string()});
            other.write_metadata().await;
            other.metadata["properties"] = json!({});
        }
        let past = match way {
            0 => Past::default(),
            1 => Past { pointers: vec![first], ..Past::default() },
            2 => Past { data_paths: [place].into(), ..Past::default() },
            _ => Past { locations: [place].into(), ..Past::default() },
        };
        lake.directory.put_past("id-u", past);
        other.append(&["x.parquet"]).await;
        if way == 1 {
            other.metadata["metadata-log"] = json!([]);
            other.write_metadata().await;
        }
        lake.days(4);
        let (record, gone) = lake.gone().await;
        assert_eq!(counts(&record).get("other_table_prefix"), Some(&1), "{way}: {record:?}");
        assert_eq!(gone, [orphan].into(), "{way}");
        // Of a plain table only its entry tells.
        lake.directory.remove("db", "u");
        lake.register("hive", "hive", &[("classification", "parquet")]);
        let locations = [Location::new(BUCKET, "wh/t/data/theirs")].into();
        lake.directory.put_past("id-hive", Past { locations, ..Past::default() });
        let (record, gone) = lake.gone().await;
        assert_eq!((counts(&record).get("other_table_prefix"), gone.len()), (Some(&1), 0), "{way}");
    }
}

#[tokio::test]
async fn a_path_that_was_set_and_taken_back_between_two_sweeps_is_seen() {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.append(&["x.parquet"]).await;
    lake.sweep("t", Mode::DryRun).await;
    lake.put("wh/t/data/theirs/new.parquet", "x").await;
    other.metadata["properties"] = json!({"write.data.path": "s3://lake/wh/t/data/theirs"});
    other.append(&["y.parquet"]).await;
    other.metadata["properties"] = json!({});
    other.append(&["z.parquet"]).await;
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((counts(&record).get("other_table_prefix"), gone.len()), (Some(&1), 1), "{record:?}");
}

#[tokio::test]
async fn a_partition_that_is_added_meanwhile_keeps_what_lies_there_up_to_the_last_look() {
    let (mut kept, mut lost) = (0, 0);
    for calls in 0.. {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        lake.register("hive", "hive", &[("classification", "parquet")]);
        let request = lake.start("t", Mode::Ordinary).await;
        let directory = lake.directory.clone();
        let appear = move || -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move { directory.put_partition("id-hive", Location::new(BUCKET, "wh/t/data")) })
        };
        let hook = Hook::new(calls, Box::new(appear));
        let outcome = lake.run_hooked(&request, &hook).await;
        if !hook.has_fired() {
            break;
        }
        if lake.keys().contains(&orphan) {
            kept += 1;
            // Whether the run saw it itself or has to begin anew.
            assert!(matches!(outcome, RunOutcome::Finished(_) | RunOutcome::Postponed(Interruption::Changed(_))));
            lake.run(&request).await.unwrap();
            assert!(lake.keys().contains(&orphan));
        } else {
            lost += 1;
            assert!(!hook.was_called_since("uses_around"), "added before call {calls}");
        }
    }
    assert!(kept > 20 && lost <= 2, "{kept} {lost}");
}

#[tokio::test]
async fn a_clone_that_appears_while_the_run_judges_is_seen_before_it_deletes() {
    let mut kept = 0;
    for calls in 0.. {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        let request = lake.start("t", Mode::Ordinary).await;
        let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
        lake.directory.remove("db", "u");
        let added = orphan.clone();
        let appear = move || -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move { other.commit(&[(1, 0, added)]).await })
        };
        let hook = Hook::new(calls, Box::new(appear));
        lake.run_hooked(&request, &hook).await;
        if !hook.has_fired() {
            break;
        }
        kept += i32::from(lake.keys().contains(&orphan));
    }
    assert!(kept > 15, "{kept}");
}

#[tokio::test]
async fn an_unknown_table_above_keeps_everything_and_is_reported() {
    for sign in ["wh/_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", "wh/metadata/v1.metadata.json"]
    {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        lake.put(sign, "{}").await;
        let (record, gone) = lake.gone().await;
        assert_eq!((counts(&record).get("foreign_root_found"), gone.len()), (Some(&1), 0), "{sign}");
        assert!(record.facts.findings.iter().any(|finding| finding.contains("does not know")), "{sign}");
    }
    // Not a sign: deeper, or of a table that the catalog knows.
    for sign in ["wh/metadata/metadata/v1.metadata.json", "wh/_delta_log2/0.json"] {
        let lake = Lake::new();
        with_old_orphan(&lake).await;
        lake.put(sign, "{}").await;
        assert_eq!(lake.gone().await.1.len(), 1, "{sign}");
    }
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    let outer = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh") };
    outer.log(0, &creation_of("outer", &[], json!({}))).await;
    lake.register("outer", "wh", &DELTA);
    lake.days(8);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 1), "{record:?}");
}

#[tokio::test]
async fn one_place_in_two_formats_is_the_union_of_both() {
    let lake = Lake::new();
    let (mut table, orphan) = with_old_orphan(&lake).await;
    let of_delta = table.data("delta.parquet").await;
    let delta = TableKit { world: lake.world.clone(), root: Location::new(BUCKET, "wh/t") };
    let mut lines = creation_of("both", &[], json!({}));
    lines.push(add_line("data/delta.parquet", 1));
    delta.log(0, &lines).await;
    lake.register("both", "wh/t", &DELTA);
    lake.days(8);
    let (record, gone) = lake.gone().await;
    assert_eq!(gone, [orphan].into(), "{record:?}");
    assert!(lake.keys().contains(&of_delta));
    table.append(&["more.parquet"]).await;
}

#[tokio::test]
async fn all_that_another_table_ever_removed_counts_where_it_is_not_known_how_long() {
    for (setting, is_kept) in [("interval 1 month", true), ("interval 2 days", false)] {
        let lake = Lake::new();
        let (_, orphan) = with_old_orphan(&lake).await;
        let mut lines = creation_of("u", &[], json!({"delta.deletedFileRetentionDuration": setting}));
        lines.push(add_line(&format!("s3://{BUCKET}/{orphan}"), 1));
        let kit = lake.delta("u", "dev/u", &lines).await;
        kit.log(1, &[remove_line(&format!("s3://{BUCKET}/{orphan}"), START_MS)]).await;
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone.is_empty()), (RunState::Completed, is_kept), "{setting}: {:?}", record.error);
    }
}
