//! Every kind of metadata file removed, torn, emptied, renamed or doubled: nothing but the orphan ever goes, and where a
//! file is missing that says what is needed, nothing goes and the run says why.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::json;

use super::super::testkit::*;
use crate::delta::snapshot;
use crate::delta::testkit::{TABLE_ID, add_line, append_info, creation_of, remove_line};
use crate::store::{GetOptions, Objects, ReadObjects};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Removed,
    /// The second half is missing.
    Torn,
    Emptied,
    Renamed,
    Doubled,
    /// The bytes of another file of the table.
    Swapped,
}

const ALL: [Harm; 6] = [Harm::Removed, Harm::Torn, Harm::Emptied, Harm::Renamed, Harm::Doubled, Harm::Swapped];

/// What a run says of a harmed table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Nothing that it needs: the orphan goes.
    Nothing,
    /// It stops with this.
    Stops(&'static str),
    /// Either: the file is nobody's proof, and may be one's doubt.
    Either,
}

const MISSING: Says = Says::Stops("metadata_incomplete");
const BROKEN: Says = Says::Stops("metadata_unreadable");

async fn harm(lake: &Lake, key: &str, what: Harm) {
    let bytes = lake.world.objects.get(&at(key), &GetOptions::default()).await.unwrap().bytes;
    let (folder, name) = key.rsplit_once('/').unwrap();
    let beside = format!("{folder}/copy-{name}");
    match what {
        Harm::Removed => lake.world.objects.delete(&at(key), None).await.unwrap(),
        Harm::Torn => lake.put(key, bytes.slice(..bytes.len() / 2)).await,
        Harm::Emptied => lake.put(key, Bytes::new()).await,
        Harm::Renamed => {
            lake.put(&beside, bytes).await;
            lake.world.objects.delete(&at(key), None).await.unwrap();
        }
        Harm::Doubled => lake.put(&beside, bytes).await,
        Harm::Swapped => lake.put(key, "PAR1 or whatever this is\nPAR1").await,
    }
}

/// Harms a file, lets time pass, and sweeps: what was there and is gone must be the orphan, or what was harmed.
async fn check(lake: &Lake, key: &str, orphan: &str, what: Harm, expected: Says) {
    let before = lake.keys();
    harm(lake, key, what).await;
    let harmed = lake.keys();
    lake.days(9);
    let (record, gone) = lake.gone().await;
    let said = format!("{key} {what:?}: {:?} {:?} {gone:?}", record.reason, record.error);
    let lost: BTreeSet<&String> = gone.intersection(&before).filter(|one| **one != orphan && **one != key).collect();
    assert!(lost.is_empty(), "{said}");
    match (expected, record.reason.as_deref()) {
        (Says::Nothing | Says::Either, None) => assert!(gone.contains(orphan), "{said}"),
        (Says::Stops(reason), Some(found)) if reason == found => {
            assert!(gone.is_empty() && lake.keys().is_superset(&harmed), "{said}");
            assert!(record.error.is_some_and(
                |error| error.contains(key.rsplit('/').next().unwrap_or(key)) || key.contains("_delta_log")
            ));
        }
        (Says::Either, Some(_)) => assert!(gone.is_empty(), "{said}"),
        _ => panic!("{said}"),
    }
}

#[tokio::test]
async fn iceberg_metadata() {
    // In order of the harms above.
    let needed = [MISSING, BROKEN, BROKEN, MISSING, Says::Nothing, BROKEN];
    let unread = [Says::Either; 6];
    let kinds: [(&str, [Says; 6]); 7] = [
        ("wh/t/metadata/00002-u.metadata.json", needed),
        ("wh/t/metadata/snap-20.avro", needed),
        ("wh/t/metadata/snap-10.avro", needed),
        ("wh/t/metadata/c1-m0.avro", needed),
        ("wh/t/metadata/c2-m0.avro", needed),
        ("wh/t/metadata/00001-u.metadata.json", unread),
        ("wh/t/metadata/p.stats", unread),
    ];
    for (key, expected) in kinds {
        for (what, expected) in ALL.into_iter().zip(expected) {
            let lake = Lake::new();
            let mut table = Iceberg::create(&lake, "t", 2).await;
            lake.optimize("t", json!({})).await;
            advance(&lake.world.clock, 1);
            table.append(&["a.parquet", "b.parquet"]).await;
            let deletes = table.data("deletes.parquet").await;
            table.prepare(&[(1, 1, deletes)]).await;
            lake.put("wh/t/metadata/p.stats", "PFA1").await;
            table.metadata["statistics"] =
                json!([{"snapshot-id": 10, "statistics-path": Iceberg::uri("wh/t/metadata/p.stats")}]);
            table.write_metadata().await;
            table.point();
            let orphan = table.data("orphan.parquet").await;
            assert!(lake.keys().contains(key), "{key}: {:?}", lake.keys());
            check(&lake, key, &orphan, what, expected).await;
        }
    }
}

#[tokio::test]
async fn delta_metadata() {
    const LOG: &str = "wh/t/_delta_log/";
    let commit = |version: i64| format!("{LOG}{version:020}.json");
    let needed = [MISSING, BROKEN, Says::Either, MISSING, Says::Nothing, BROKEN];
    let unread = [Says::Either; 6];
    let kinds: [(String, [Says; 6]); 4] = [
        (commit(2), needed),
        (format!("{LOG}{:020}.checkpoint.parquet", 1), [MISSING, BROKEN, BROKEN, MISSING, Says::Nothing, BROKEN]),
        (format!("{LOG}_last_checkpoint"), unread),
        (format!("{LOG}{:020}.crc", 3), unread),
    ];
    for (key, expected) in kinds {
        for (what, expected) in ALL.into_iter().zip(expected) {
            let lake = Lake::new();
            let kit = lake.delta("t", "wh/t", &creation_of(TABLE_ID, &[], json!({}))).await;
            lake.optimize("t", json!({})).await;
            advance(&lake.world.clock, 1);
            for name in ["a.parquet", "b.parquet", "c.parquet", "orphan.parquet"] {
                lake.put(&format!("wh/t/{name}"), "x").await;
            }
            kit.log(1, &[append_info(), add_line("a.parquet", 1)]).await;
            let state =
                snapshot::load(lake.world.objects.as_ref(), &kit.root, Some(crate::delta::Version(1))).await.unwrap();
            kit.checkpoint(&state).await;
            kit.delete_log(0).await;
            kit.delete_log(1).await;
            kit.log(2, &[append_info(), add_line("b.parquet", 1)]).await;
            let long_ago_ms = lake.world.ports.clock.now_ms() + 5 * DAY_MS;
            kit.log(3, &[add_line("c.parquet", 1), remove_line("a.parquet", long_ago_ms)]).await;
            lake.put(&format!("{LOG}_last_checkpoint"), json!({"version": 1, "size": 3}).to_string()).await;
            lake.put(&format!("{LOG}{:020}.crc", 3), json!({"numFiles": 2}).to_string()).await;
            check(&lake, &key, "wh/t/orphan.parquet", what, expected).await;
        }
    }
}
