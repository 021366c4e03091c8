//! Tables written by PyIceberg and deltalake, with the libraries' own word on every object.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::iceberg::{ManifestRef, read_manifest};
use crate::sweep::items::RunState;

/// After the fixtures were made.
const MADE_MS: i64 = 1_796_200_000_000;

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sweep/fixtures").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The fixture in a lake, a second after its optimizer was made.
async fn lake_with(name: &str) -> (Lake, Value) {
    let fixture = fixture(&format!("{name}.json"));
    let lake = Lake::new();
    lake.world.clock.advance_ms(MADE_MS - START_MS);
    let prefix = fixture["prefix"].as_str().unwrap().trim_end_matches('/');
    match fixture["pointer"].as_str() {
        Some(pointer) => {
            lake.register("t", prefix, &[("table_type", "ICEBERG"), ("metadata_location", pointer)]);
        }
        None => lake.register("t", prefix, &[("spark.sql.sources.provider", "delta")]),
    }
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for object in fixture["objects"].as_array().unwrap() {
        let bytes = match object["base64"].as_str() {
            Some(text) => STANDARD.decode(text).unwrap(),
            None => vec![0; usize::try_from(object["size_bytes"].as_u64().unwrap()).unwrap()],
        };
        lake.put(object["key"].as_str().unwrap(), bytes).await;
    }
    (lake, fixture)
}

fn keys(fixture: &Value, needed: bool) -> BTreeSet<String> {
    let objects = fixture["objects"].as_array().unwrap().iter();
    let wanted = objects.filter(|object| object["needed"] == needed);
    wanted.map(|object| object["key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn tables_of_pyiceberg_lose_exactly_what_it_does_not_need() {
    for name in ["v1", "v2"] {
        let (lake, fixture) = lake_with(name).await;
        lake.days(4);
        let dry = lake.sweep("t", Mode::DryRun).await;
        for line in lake.report("t", &dry.run_id).await {
            let is_needed = keys(&fixture, true).contains(line["key"].as_str().unwrap());
            assert_eq!(line["decision"], if is_needed { "keep" } else { "delete" }, "{name}: {line}");
        }
        let (record, gone) = lake.gone().await;
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        assert_eq!(gone, keys(&fixture, false), "{name}");
    }
}

#[tokio::test]
async fn any_metadata_file_that_is_gone_or_torn_stops_the_run() {
    let (_, fixture) = lake_with("v2").await;
    let metadata: Vec<String> =
        keys(&fixture, true).into_iter().filter(|key| key.ends_with(".avro") || key.contains("/00009-")).collect();
    assert!(metadata.len() > 10);
    for key in metadata {
        let (lake, _) = lake_with("v2").await;
        let whole = crate::store::ReadObjects::get(lake.world.objects.as_ref(), &at(&key), &Default::default()).await;
        let whole = whole.unwrap().bytes;
        crate::store::Objects::delete(lake.world.objects.as_ref(), &at(&key), None).await.unwrap();
        lake.days(4);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.reason.as_deref(), gone.len()), (Some("metadata_incomplete"), 0), "{key}");
        for length in [0, 3, whole.len() / 2, whole.len() - 1] {
            lake.put(&key, whole.slice(..length)).await;
            let (record, gone) = lake.gone().await;
            assert_eq!((record.reason.as_deref(), gone.len()), (Some("metadata_unreadable"), 0), "{key} {length}");
        }
    }
}

#[tokio::test]
async fn a_table_of_deltalake_keeps_tombstones_and_changes_for_its_retention() {
    let (lake, fixture) = lake_with("delta").await;
    let listed = |name: &str| -> BTreeSet<String> {
        fixture[name].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
    };
    let kept: BTreeSet<String> = listed("tombstones").union(&listed("changes")).cloned().collect();
    let garbage = keys(&fixture, false);
    // The fixture was made two days before its objects were put here: tombstones are older than the files.
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{:?}", record.error);
    assert!(kept.is_subset(&garbage));
    lake.days(4);
    let (record, gone) = lake.gone().await;
    assert_eq!((record.state, gone), (RunState::Completed, garbage), "{:?}", record.error);
}

#[test]
fn codecs_of_pythons_own_libraries() {
    let files = fixture("codecs.json");
    let manifest = ManifestRef::bare(at("m.avro"));
    let read =
        |codec: &str| read_manifest(&STANDARD.decode(files[codec].as_str().unwrap()).unwrap(), &manifest).unwrap();
    let plain = read("plain");
    assert!(!plain.is_empty());
    for codec in ["bzip2", "xz"] {
        assert_eq!(read(codec), plain, "{codec}");
    }
}

/// Every file below a folder, relative.
fn files_below(folder: &Path, under: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder.join(under)).unwrap() {
        let entry = entry.unwrap();
        let relative = format!("{under}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files_below(folder, &format!("{relative}/"), found),
            false => found.push(relative),
        }
    }
}

#[tokio::test]
async fn logs_of_other_writers_with_checkpoints_and_vectors() {
    for name in ["deltalake", "deltalake-v2", "sail"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/delta").join(name);
        let mut files = Vec::new();
        files_below(&folder, "", &mut files);
        files.sort();
        let lake = Lake::new();
        lake.world.clock.advance_ms(MADE_MS - START_MS);
        lake.register("t", "wh/t", &[("spark.sql.sources.provider", "delta")]);
        lake.optimize("t", json!({})).await;
        advance(&lake.world.clock, 1);
        // By the commits alone, which are all there; a vector is known by its folder, since each has one of its own.
        let (mut live, mut all) = (std::collections::BTreeMap::new(), BTreeSet::new());
        for file in &files {
            lake.put(&format!("wh/t/{file}"), std::fs::read(folder.join(file)).unwrap()).await;
            if !(file.starts_with("_delta_log/") && file.ends_with(".json")) {
                continue;
            }
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            lines.sort_by_key(|line| line.get("add").is_some());
            for line in &lines {
                for kind in ["remove", "add"] {
                    let Some(path) = line[kind]["path"].as_str() else { continue };
                    all.insert(path.to_owned());
                    live.remove(path);
                    if kind == "add" {
                        let vector = line[kind]["deletionVector"]["pathOrInlineDv"].as_str().unwrap_or_default();
                        live.insert(path.to_owned(), vector.get(..2).unwrap_or("none").to_owned());
                    }
                }
            }
        }
        all.insert("part-00000-planted-c000.snappy.parquet".to_owned());
        for path in &all {
            lake.put(&format!("wh/t/{path}"), "x").await;
        }
        let vectors: Vec<&String> = files.iter().filter(|file| file.ends_with(".bin")).collect();
        let dead_vectors = vectors.iter().filter(|file| !live.values().any(|folder| file.starts_with(folder.as_str())));
        let dead: BTreeSet<String> = all
            .iter()
            .filter(|path| !live.contains_key(*path))
            .chain(dead_vectors.copied())
            .map(|path| format!("wh/t/{path}"))
            .collect();
        lake.days(4);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone.len()), (RunState::Completed, 0), "{name}: {:?}", record.error);
        lake.days(4);
        let (record, gone) = lake.gone().await;
        assert_eq!((record.state, gone), (RunState::Completed, dead), "{name}: {:?}", record.error);
    }
}

/// Days of scheduled runs, each with a dry run at the same moment: what the dry run says of every key is what the
/// scheduled run decides, and that is what it deletes.
async fn check_announced(lake: &Lake, days: i64, name: &str) -> usize {
    let mut deleted = 0;
    for day in 0..days {
        lake.days(1);
        advance(&lake.world.clock, 1);
        let dry = lake.sweep_with("t", json!({"mode": "dry_run"})).await;
        let announced = lake.decisions(&dry).await;
        let before = lake.keys();
        let real = lake.scheduled().await;
        assert_eq!(lake.decisions(&real).await, announced, "{name} on day {day}");
        assert_eq!(
            (real.state, real.reason.is_some(), &real.totals.by_reason),
            (dry.state, false, &dry.totals.by_reason)
        );
        let after = lake.keys();
        let gone: BTreeSet<&String> = before.difference(&after).collect();
        let doomed = announced.iter().filter(|(_, (decision, _))| decision == "delete").map(|(key, _)| key);
        assert_eq!(gone, doomed.collect(), "{name} on day {day}");
        for (key, said) in announced.iter().step_by(5) {
            if after.contains(key) {
                let body = json!({ "key": key });
                let found = rest::explain_in(&lake.app, lake.directory.as_ref(), "db", "t", &body, lake.deadline())
                    .await
                    .unwrap();
                assert_eq!((&found["decision"], &found["reason"]), (&json!(said.0), &json!(said.1)), "{name} {key}");
            }
        }
        deleted += gone.len();
    }
    deleted
}

#[tokio::test]
async fn a_scheduled_run_does_what_a_dry_run_at_the_same_moment_says_of_every_key() {
    for name in ["v1", "v2", "delta"] {
        let (lake, fixture) = lake_with(name).await;
        let deleted = check_announced(&lake, 10, name).await;
        assert_eq!(deleted, keys(&fixture, false).len(), "{name}");
    }
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 3).await;
    lake.optimize("t", json!({"quarantineInHours": 48})).await;
    advance(&lake.world.clock, 1);
    for number in 0..6 {
        table.append(&[&format!("live-{number}.parquet")]).await;
        table.data(&format!("orphan-{number}.parquet")).await;
        lake.put(&format!("wh/t/data/day={number}/"), "").await;
        lake.put(&format!("wh/t/data/note-{number}.txt"), "x").await;
        check_announced(&lake, 2, "while it is written").await;
    }
    table.clone().prepare(&[(1, 0, "wh/t/data/orphan-5.parquet".to_owned())]).await;
    check_announced(&lake, 8, "with a commit under way").await;
    assert!(lake.keys().contains("wh/t/data/orphan-5.parquet") && !lake.keys().contains("wh/t/data/orphan-4.parquet"));
}
