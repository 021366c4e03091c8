//! Deletes under pressure: smaller batches, waits, and keys that fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;

use super::super::testkit::*;
use super::super::*;
use crate::store::memory::MemoryObjects;
use crate::store::*;
use crate::sweep::items::{RunRecord, RunState};

const ORPHANS: usize = 600;

/// A store that throttles large batches, and whose keys fail for a while.
struct Strict {
    objects: Arc<MemoryObjects>,
    /// Batches of more keys are throttled as a whole.
    most_keys: usize,
    /// How often a key fails before it goes, and how.
    failing: Mutex<HashMap<String, (u32, StoreErrorKind)>>,
    batches: Mutex<Vec<usize>>,
}

impl Strict {
    fn fate_of(&self, key: &str) -> Option<Deleted> {
        let mut failing = self.failing.lock().unwrap();
        let (left, kind) = failing.get_mut(key).filter(|(left, _)| *left > 0)?;
        *left -= 1;
        Some(Deleted::Failed(StoreError::new(*kind, "delete_batch", "not now")))
    }
}

#[async_trait]
impl Watch for Strict {
    fn objects(&self) -> &MemoryObjects {
        &self.objects
    }

    async fn batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        self.batches.lock().unwrap().push(doomed.len());
        if doomed.len() > self.most_keys {
            return Err(StoreError::new(StoreErrorKind::Throttled, "delete_batch", "SlowDown").into());
        }
        let mut fates = Vec::new();
        for one in doomed {
            let fate = self.fate_of(&one.key);
            fates.push(match fate {
                Some(fate) => fate,
                None => self.objects.delete_batch(bucket, std::slice::from_ref(one)).await?.remove(0),
            });
        }
        Ok(fates)
    }
}

async fn lake() -> Lake {
    table().await.0
}

async fn table() -> (Lake, Iceberg) {
    let lake = Lake::new();
    let mut table = Iceberg::create(&lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    let live: Vec<String> = (0..1500).map(|number| format!("live-{number:05}.parquet")).collect();
    table.append(&live.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for number in 0..ORPHANS {
        table.data(&format!("orphan-{number:05}.parquet")).await;
    }
    lake.days(4);
    (lake, table)
}

async fn swept(lake: &Lake, most_keys: usize, failing: &[(&str, u32, StoreErrorKind)]) -> (RunRecord, Vec<usize>) {
    let failing = failing.iter().map(|(key, times, kind)| ((*key).to_owned(), (*times, *kind))).collect();
    let strict = Arc::new(Strict {
        objects: lake.world.objects.clone(),
        most_keys,
        failing: Mutex::new(failing),
        batches: Mutex::default(),
    });
    let mut app = lake.app.clone();
    app.ports.objects = strict.clone();
    let request = lake.start("t", Mode::Ordinary).await;
    let outcome = sweep(&app, lake.directory.as_ref(), &request, lake.deadline()).await.unwrap();
    let RunOutcome::Finished(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
    let batches = strict.batches.lock().unwrap().clone();
    (*record, batches)
}

fn left(lake: &Lake) -> usize {
    lake.keys().iter().filter(|key| key.contains("orphan")).count()
}

#[tokio::test]
async fn one_request_per_batch_as_long_as_nobody_objects() {
    let lake = lake().await;
    let before_ms = lake.world.ports.clock.now_ms();
    let (record, batches) = swept(&lake, 1000, &[]).await;
    assert_eq!((record.totals.deleted.count, left(&lake)), (ORPHANS as i64, 0));
    assert_eq!(batches, [250, 250, 100]);
    // 2,500 keys a second: no more.
    assert!(lake.world.ports.clock.now_ms() - before_ms >= 200);
}

#[tokio::test]
async fn throttled_batches_shrink_and_grow_again_and_everything_goes() {
    let lake = lake().await;
    let (record, batches) = swept(&lake, 60, &[]).await;
    assert_eq!((record.totals.deleted.count, left(&lake)), (ORPHANS as i64, 0));
    assert!(record.totals.spared.is_empty(), "{:?}", record.totals.spared);
    assert_eq!(batches[..4], [250, 125, 62, 31]);
    let asked: usize = batches.iter().filter(|keys| **keys <= 60).sum();
    assert_eq!(asked, ORPHANS, "nothing was sent twice but what was throttled");
    assert!(batches.iter().filter(|keys| **keys > 60).count() < 12, "{batches:?}");
}

#[tokio::test]
async fn keys_that_fail_are_tried_again_and_in_the_end_reported() {
    let lake = lake().await;
    let key = |number: usize| format!("wh/t/data/orphan-{number:05}.parquet");
    let (shaky, broken, forbidden) = (key(3), key(4), key(300));
    let failing = [
        (shaky.as_str(), 2, StoreErrorKind::Unavailable),
        (broken.as_str(), u32::MAX, StoreErrorKind::Throttled),
        (forbidden.as_str(), u32::MAX, StoreErrorKind::AccessDenied),
    ];
    let (record, _) = swept(&lake, 1000, &failing).await;
    assert_eq!(record.totals.deleted.count, ORPHANS as i64 - 2);
    assert_eq!(record.totals.spared.get("failed").map(|tally| tally.count), Some(2));
    assert_eq!(left(&lake), 2);
    let lines = lake.report("t", &record.run_id).await;
    let failed: Vec<_> = lines.iter().filter(|line| line["outcome"] == "failed").collect();
    let keys: Vec<&str> = failed.iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&broken.as_str()) && keys.contains(&forbidden.as_str()));
    assert!(failed.iter().all(|line| line["error"].as_str().unwrap().contains("not now")));
    // The next run takes what is left.
    let (again, _) = swept(&lake, 1000, &[]).await;
    assert_eq!((again.totals.deleted.count, left(&lake)), (2, 0));
}

/// While a throttled batch waits, a commit may need what it names: everything is proved again before it is sent again.
#[tokio::test]
async fn a_commit_during_a_wait_saves_its_files() {
    let (lake, mut table) = table().await;
    let strict = Arc::new(Strict {
        objects: lake.world.objects.clone(),
        most_keys: 200,
        failing: Mutex::default(),
        batches: Mutex::default(),
    });
    let saved: Vec<String> = (0..50).map(|number| format!("wh/t/data/orphan-{number:05}.parquet")).collect();
    let entries: Vec<(i32, i32, String)> = saved.iter().map(|key| (1, 0, key.clone())).collect();
    let clock = Arc::new(Waking {
        clock: lake.world.clock.clone(),
        batches: strict.clone(),
        action: Mutex::new(Some(Box::pin(async move { table.commit(&entries).await }))),
    });
    let mut app = lake.app.clone();
    app.ports.objects = strict;
    app.ports.clock = clock;
    let request = lake.start("t", Mode::Ordinary).await;
    let outcome = sweep(&app, lake.directory.as_ref(), &request, lake.deadline()).await.unwrap();
    let RunOutcome::Finished(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.totals.spared.get("referenced").map(|tally| tally.count), Some(50));
    let keys = lake.keys();
    assert!(saved.iter().all(|key| keys.contains(key)));
    assert_eq!(left(&lake), 50);
}

/// A clock that does something in the first wait after a request was throttled.
struct Waking {
    clock: Arc<crate::store::memory::ManualClock>,
    batches: Arc<Strict>,
    action: Mutex<Option<futures::future::BoxFuture<'static, ()>>>,
}

#[async_trait]
impl Clock for Waking {
    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    async fn sleep_ms(&self, ms: u64) {
        let is_throttled = !self.batches.batches.lock().unwrap().is_empty();
        let action = if is_throttled { self.action.lock().unwrap().take() } else { None };
        if let Some(action) = action {
            action.await;
        }
        self.clock.sleep_ms(ms).await;
    }
}
