//! Manifests are read once: later runs read only new ones, and find the same.

use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::{ObjectUsage, Objects, ReadObjects};
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
