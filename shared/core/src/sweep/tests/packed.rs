//! Manifests are read once: later runs read only new ones, and find the same.

use serde_json::{Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::delta::snapshot;
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, append_info, creation_of, remove_line};
use crate::store::{Clock, ObjectUsage, Objects, ReadObjects};
use crate::sweep::items::{RunRecord, RunState};

const COMMITS: usize = 220;

async fn table(lake: &Lake) -> Iceberg {
    let mut table = Iceberg::create(lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for commit in 0..COMMITS {
        table.append(&[&format!("live-{commit:03}.parquet")]).await;
    }
    table.data("orphan.parquet").await;
    lake.days(4);
    table
}

async fn counted(lake: &Lake, mode: Mode) -> (RunRecord, ObjectUsage) {
    let before = lake.world.objects.object_usage();
    let record = lake.sweep("t", mode).await;
    assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
    (record, lake.world.objects.object_usage().since(&before))
}

#[tokio::test]
async fn a_second_run_reads_only_what_is_new() {
    let lake = Lake::new();
    let mut table = table(&lake).await;
    let (first, usage) = counted(&lake, Mode::DryRun).await;
    assert!(usage.gets > 2 * COMMITS as u64, "{usage:?}");
    let (second, usage) = counted(&lake, Mode::DryRun).await;
    // The table's metadata, what is known of its manifests, and what earlier runs have seen.
    assert_eq!(usage.gets, 3);
    assert_eq!(lake.decisions(&first).await, lake.decisions(&second).await);
    assert_eq!(first.facts, second.facts);
    table.append(&["new.parquet"]).await;
    let (third, usage) = counted(&lake, Mode::DryRun).await;
    // And the new list with its manifest.
    assert_eq!(usage.gets, 5);
    assert_eq!(counts(&third)["referenced"], counts(&second)["referenced"] + 4);
    let (real, _) = counted(&lake, Mode::Ordinary).await;
    assert_eq!(real.totals.deleted.count, 1);
}

#[tokio::test]
async fn what_expired_is_not_kept_by_what_is_remembered_of_it() {
    let lake = Lake::new();
    let mut table = table(&lake).await;
    counted(&lake, Mode::DryRun).await;
    table.expire(3).await;
    let (record, usage) = counted(&lake, Mode::Ordinary).await;
    assert!(usage.gets < 10, "{usage:?}");
    let keys = lake.keys();
    for commit in 0..COMMITS {
        let key = format!("wh/t/data/live-{commit:03}.parquet");
        assert_eq!(keys.contains(&key), commit >= 3, "{key}: {:?}", record.totals);
    }
}

#[tokio::test]
async fn what_is_remembered_counts_only_if_it_is_whole() {
    let lake = Lake::new();
    table(&lake).await;
    let (first, _) = counted(&lake, Mode::DryRun).await;
    let at = lake.app.settings.reports.object("id-t/manifests.bin");
    let good = lake.world.objects.get(&at, &Default::default()).await.unwrap().bytes;
    for damage in 0..3 {
        let mut bytes = good.to_vec();
        match damage {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes[good.len() / 3] ^= 4,
            _ => bytes.clear(),
        }
        lake.world.objects.put(&at, bytes.into(), &Default::default()).await.unwrap();
        let (again, usage) = counted(&lake, Mode::DryRun).await;
        assert!(usage.gets > 2 * COMMITS as u64, "{damage}: {usage:?}");
        assert_eq!(lake.decisions(&first).await, lake.decisions(&again).await);
    }
}

/// A manifest that is not the one that was read: another length than its list says now.
#[tokio::test]
async fn a_manifest_of_another_length_is_read_again() {
    let lake = Lake::new();
    let mut table = table(&lake).await;
    counted(&lake, Mode::DryRun).await;
    let orphan = "wh/t/data/orphan.parquet".to_owned();
    table.rewrite_first_manifest(&[(1, 0, "wh/t/data/live-000.parquet".to_owned()), (1, 0, orphan.clone())]).await;
    let (record, _) = counted(&lake, Mode::Ordinary).await;
    assert!(lake.keys().contains(&orphan), "{:?}", record.totals);
}

/// What a run does when a list or manifest that an earlier one has read is not there as it was: it refuses.
#[tokio::test]
async fn what_is_missing_or_torn_since_it_was_read_is_refused() {
    let cases = [
        ("c1-m0.avro", false, RefusalReason::MetadataIncomplete),
        ("snap-10.avro", false, RefusalReason::MetadataIncomplete),
        ("c1-m0.avro", true, RefusalReason::MetadataUnreadable),
        ("snap-10.avro", true, RefusalReason::MetadataUnreadable),
    ];
    for (name, is_torn, reason) in cases {
        let lake = Lake::new();
        let (mut table, _) = with_orphan(&lake).await;
        table.append(&["more.parquet"]).await;
        lake.days(4);
        counted(&lake, Mode::DryRun).await;
        let at = at(&format!("wh/t/metadata/{name}"));
        let bytes = lake.world.objects.get(&at, &Default::default()).await.unwrap().bytes;
        lake.world.objects.delete(&at, None).await.unwrap();
        if is_torn {
            lake.put(&at.key, bytes.slice(..bytes.len() / 2)).await;
        }
        let before = lake.keys();
        for _ in 0..2 {
            let record = lake.sweep("t", Mode::Ordinary).await;
            assert_eq!(record.state, RunState::Failed, "{name} {is_torn}: {:?}", record.totals);
            assert_eq!(record.reason.as_deref(), Some(reason.as_str()), "{name}: {:?}", record.error);
            assert_eq!((record.totals.deleted.count, lake.keys()), (0, before.clone()), "{name}");
        }
        // Whole again, it is read again, and the run ends.
        lake.put(&at.key, bytes).await;
        let (record, _) = counted(&lake, Mode::Ordinary).await;
        assert_eq!(record.totals.deleted.count, 1, "{name}");
        for live in ["live", "more"] {
            assert!(lake.keys().contains(&format!("wh/t/data/{live}.parquet")), "{name}");
        }
    }
}

/// Another manifest of the same length and as many entries in the place of one that was read.
#[tokio::test]
async fn a_manifest_that_was_written_anew_in_place_is_read_again() {
    let lake = Lake::new();
    let mut table = table(&lake).await;
    let mut names = Vec::new();
    for number in 100..140 {
        names.push(table.data(&format!("anew-{number}.parquet")).await);
    }
    // The fuse must not be what saves them.
    lake.days(4);
    counted(&lake, Mode::DryRun).await;
    let old = manifest(&[(1, 0, "wh/t/data/live-007.parquet".to_owned())]);
    let anew = names.iter().map(|key| (key, manifest(&[(1, 0, key.clone())])));
    let (key, bytes) = anew.into_iter().find(|(_, bytes)| bytes.len() == old.len()).unwrap();
    lake.put("wh/t/metadata/c8-m0.avro", bytes).await;
    let (record, usage) = counted(&lake, Mode::DryRun).await;
    assert_eq!(lake.decisions(&record).await[key].1, "referenced");
    assert!(usage.gets < 10, "{usage:?}");
    // And it is known as it is now.
    let (record, usage) = counted(&lake, Mode::DryRun).await;
    assert_eq!(usage.gets, 3);
    assert_eq!(lake.decisions(&record).await[key].1, "referenced");
    table.append(&["last.parquet"]).await;
    let (record, usage) = counted(&lake, Mode::Ordinary).await;
    assert!(lake.keys().contains(key), "{usage:?} {:?}", record.totals);
}

/// A Delta table of many commits, ten of which came after its checkpoint.
async fn delta_table(lake: &Lake, configuration: Value) -> TableKit {
    let kit = lake.delta("t", "wh/t", &creation_of(TABLE_ID, &["_p"], configuration)).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    for version in 1..=COMMITS as i64 {
        let mut lines = vec![append_info()];
        for name in [format!("live-{version:03}.parquet"), format!("_p=a%20b/odd-{version:03}.parquet")] {
            lake.put(&format!("wh/t/{}", name.replace("%20", " ")), "data").await;
            lines.push(add_line(&name, 4));
        }
        kit.log(version, &lines).await;
        if version == COMMITS as i64 - 10 {
            let state = snapshot::load(lake.world.objects.as_ref(), &kit.root, None).await.unwrap();
            kit.checkpoint(&state).await;
        }
    }
    lake.put("wh/t/orphan.parquet", "x").await;
    lake.days(9);
    kit
}

async fn append(lake: &Lake, kit: &TableKit, version: i64, lines: &[Value]) {
    kit.log(version, &[&[append_info()], lines].concat()).await;
    lake.days(1);
}

#[tokio::test]
async fn a_second_run_over_a_delta_log_reads_only_new_commits() {
    let lake = Lake::new();
    let kit = delta_table(&lake, json!({})).await;
    let (first, usage) = counted(&lake, Mode::DryRun).await;
    assert!(usage.gets >= 16, "{usage:?}");
    // What is known of the log and of earlier runs, and what writers have counted, which is not there.
    let (second, usage) = counted(&lake, Mode::DryRun).await;
    assert_eq!(usage.gets, 4);
    assert_eq!(lake.decisions(&first).await, lake.decisions(&second).await);
    assert_eq!(first.facts, second.facts);
    assert_eq!(counts(&second)["orphan"], 1);
    // Three commits: one adds a file, one removes one, one gives it back.
    let last = COMMITS as i64;
    let now_ms = || lake.world.clock.now_ms();
    append(&lake, &kit, last + 1, &[add_line("orphan.parquet", 1)]).await;
    append(
        &lake,
        &kit,
        last + 2,
        &[remove_line("live-001.parquet", now_ms()), remove_line("live-002.parquet", now_ms())],
    )
    .await;
    append(&lake, &kit, last + 3, &[add_line("live-002.parquet", 4)]).await;
    let (third, usage) = counted(&lake, Mode::DryRun).await;
    assert_eq!(usage.gets, 4 + 3);
    assert_eq!(counts(&third).get("orphan"), None);
    // The tombstone counts for seven days more, by what is remembered of it.
    lake.days(9);
    let (fourth, usage) = counted(&lake, Mode::Ordinary).await;
    assert_eq!((usage.gets, fourth.totals.deleted.count), (4, 1));
    let keys = lake.keys();
    for version in 1..=COMMITS {
        for key in [format!("wh/t/live-{version:03}.parquet"), format!("wh/t/_p=a b/odd-{version:03}.parquet")] {
            assert_eq!(keys.contains(&key), key != "wh/t/live-001.parquet", "{key}");
        }
    }
}

/// What is remembered is what would be found, whatever has happened to the log since; where it cannot be gone on from,
/// everything is read.
#[tokio::test]
async fn what_is_remembered_of_a_log_counts_only_while_the_log_is_the_same() {
    type Change = fn(&Lake, TableKit) -> futures::future::BoxFuture<'_, ()>;
    let changes: [(&str, Change, bool); 6] = [
        ("nothing", |_, _| Box::pin(async {}), true),
        (
            "a torn memory",
            |lake, _| {
                Box::pin(async move {
                    let at = lake.app.settings.reports.object("id-t/log.bin");
                    let bytes = lake.world.objects.get(&at, &Default::default()).await.unwrap().bytes;
                    let torn = bytes.slice(..bytes.len() - 9);
                    lake.world.objects.put(&at, torn, &Default::default()).await.unwrap();
                })
            },
            false,
        ),
        (
            "another commit in the place of the last one",
            |lake, kit| {
                Box::pin(async move {
                    let lines = [append_info(), add_line("orphan.parquet", 1)];
                    kit.log(COMMITS as i64, &lines).await;
                    lake.days(1);
                })
            },
            false,
        ),
        (
            "a checkpoint, and the log before it cleaned up",
            |lake, kit| {
                Box::pin(async move {
                    kit.log(COMMITS as i64 + 1, &[append_info(), add_line("orphan.parquet", 1)]).await;
                    let state = snapshot::load(lake.world.objects.as_ref(), &kit.root, None).await.unwrap();
                    kit.checkpoint(&state).await;
                    for version in 0..=COMMITS as i64 {
                        kit.delete_log(version).await;
                    }
                })
            },
            false,
        ),
        (
            "a longer retention",
            |lake, kit| {
                Box::pin(async move {
                    let settings = json!({"delta.deletedFileRetentionDuration": "interval 300 days"});
                    let lines = creation_of(TABLE_ID, &["_p"], settings);
                    let metadata = lines.into_iter().find(|line| line.get("metaData").is_some()).unwrap();
                    kit.log(COMMITS as i64 + 1, &[metadata]).await;
                    lake.days(1);
                })
            },
            false,
        ),
        (
            "a checksum that counts otherwise",
            |lake, _| {
                Box::pin(async move {
                    let name = format!("wh/t/_delta_log/{:020}.crc", COMMITS);
                    lake.put(&name, json!({"numFiles": 2 * COMMITS, "tableSizeBytes": 8 * COMMITS}).to_string()).await;
                })
            },
            true,
        ),
    ];
    for (name, change, goes_on) in changes {
        let mut found = Vec::new();
        for remembers in [true, false] {
            let lake = Lake::new();
            let kit = delta_table(&lake, json!({})).await;
            if remembers {
                counted(&lake, Mode::DryRun).await;
            }
            if remembers || name != "a torn memory" {
                change(&lake, kit.clone()).await;
            }
            let (record, usage) = counted(&lake, Mode::DryRun).await;
            if remembers {
                assert_eq!(usage.gets <= 5, goes_on, "{name}: {usage:?}");
            }
            found.push((lake.decisions(&record).await, record.pointer.clone(), record.facts.retention_ms));
        }
        assert!(found[0] == found[1], "{name}: {:?}", found[0].1);
    }
}

/// Files of the change feed are in no state: what commits say of them is remembered as well.
#[tokio::test]
async fn change_files_of_commits_that_are_remembered_stay() {
    let lake = Lake::new();
    let kit = lake.delta("t", "wh/t", &creation_of(TABLE_ID, &[], json!({"delta.enableChangeDataFeed": "true"}))).await;
    lake.optimize("t", json!({"orphanFileRetentionPeriodInDays": 1})).await;
    advance(&lake.world.clock, 1);
    for name in ["named", "unnamed"] {
        lake.put(&format!("wh/t/_change_data/{name}.parquet"), "x").await;
    }
    lake.days(9);
    let cdc =
        json!({"cdc": {"path": "_change_data/named.parquet", "size": 1, "partitionValues": {}, "dataChange": false}});
    kit.log(1, &[append_info(), cdc]).await;
    counted(&lake, Mode::DryRun).await;
    let (record, usage) = counted(&lake, Mode::Ordinary).await;
    assert_eq!((usage.gets, record.totals.deleted.count), (4, 1));
    assert!(lake.keys().contains("wh/t/_change_data/named.parquet"));
    lake.days(9);
    assert_eq!(counted(&lake, Mode::Ordinary).await.0.totals.deleted.count, 1);
}

/// Metadata files that the current one does not name any more are opened once.
#[tokio::test]
async fn old_metadata_files_are_opened_once() {
    let lake = Lake::new();
    let mut table = table(&lake).await;
    for number in 0..30 {
        let mut stale = table.metadata.clone();
        stale["last-updated-ms"] = (START_MS - 5 - number).into();
        lake.put(&format!("wh/t/metadata/{number:05}-old.metadata.json"), stale.to_string()).await;
    }
    let (first, _) = counted(&lake, Mode::DryRun).await;
    let (second, usage) = counted(&lake, Mode::DryRun).await;
    assert_eq!(usage.gets, 3);
    assert_eq!(lake.decisions(&first).await, lake.decisions(&second).await);
    // Another one in its place is another one: it may be a commit under way.
    let mut newer = table.metadata.clone();
    newer["last-updated-ms"] = (lake.world.clock.now_ms() + 5).into();
    lake.put("wh/t/metadata/00007-old.metadata.json", newer.to_string()).await;
    let (third, usage) = counted(&lake, Mode::DryRun).await;
    assert!((4..=6).contains(&usage.gets), "{usage:?}");
    assert_eq!(lake.decisions(&third).await["wh/t/metadata/00007-old.metadata.json"].0, "keep");
    table.append(&["new.parquet"]).await;
    let (_, usage) = counted(&lake, Mode::DryRun).await;
    assert!(usage.gets <= 7, "{usage:?}");
}

/// What a clone removed it can still be asked for: its source keeps the file in every run, also in those that believe that
/// the clone's log says nothing new.
#[tokio::test]
async fn what_a_clone_removed_stays_in_its_source() {
    let lake = Lake::new();
    lake.delta("t", "wh/t", &creation_of(TABLE_ID, &[], json!({}))).await;
    lake.optimize("t", json!({})).await;
    let settings = json!({"delta.deletedFileRetentionDuration": "interval 60 days"});
    let clone = lake.delta("u", "wh/u", &creation_of("22222222-2222-4222-8222-222222222222", &[], settings)).await;
    advance(&lake.world.clock, 1);
    for name in ["shared", "orphan"] {
        lake.put(&format!("wh/t/{name}.parquet"), "data").await;
    }
    let (uri, now_ms) = ("s3://lake/wh/t/shared.parquet", lake.world.clock.now_ms());
    clone.log(1, &[append_info(), add_line(uri, 4)]).await;
    clone.log(2, &[append_info(), remove_line(uri, now_ms)]).await;
    lake.days(20);
    let (record, _) = counted(&lake, Mode::Ordinary).await;
    assert_eq!(record.totals.deleted.count, 1);
    for _ in 0..2 {
        lake.days(10);
        assert_eq!(counted(&lake, Mode::Ordinary).await.0.totals.deleted.count, 0);
    }
    assert!(lake.keys().contains("wh/t/shared.parquet"));
    lake.days(30);
    assert_eq!(counted(&lake, Mode::Ordinary).await.0.totals.deleted.count, 1, "the clone's own retention is over");
}
