//! Work that is broken off, done by several at once, or begun anew; and what it costs.

use super::*;
use crate::commit::keys::ProposalId;
use crate::commit::version_record::{Blindness, VersionRecord};

/// 130 partitions come, then all change and half of them go: several transactions for each version.
async fn many(scene: &Scene) {
    scene.kit.log(0, &scene.kit.creation()).await;
    let values: Vec<String> = (0..130).map(|number| format!("{number:03}")).collect();
    let first: Vec<Json> = values.iter().map(|value| add(&format!("p={value}/a"), Some(value), 1)).collect();
    scene.kit.log(1, &first).await;
    let second: Vec<Json> = values
        .iter()
        .enumerate()
        .map(|(at, value)| match at % 2 {
            0 => remove_line(&format!("p={value}/a"), 1),
            _ => add(&format!("p={value}/b"), Some(value), 2),
        })
        .collect();
    scene.kit.log(2, &second).await;
}

#[tokio::test]
async fn a_crash_between_any_two_calls_is_made_good() {
    let scene = Scene::with_table().await;
    many(&scene).await;
    scene.follow(0).await;
    let faults = &scene.kit.world.faults;
    let mut crashes = 0;
    // Each run gets one call further than the one before got, and dies.
    for after in 0..400 {
        faults.crash_after(3 + after % 23);
        let outcome = scene.try_follow(2).await;
        faults.revive();
        match outcome {
            Ok(_) if scene.cursor("t").await.unwrap().version == Version(2) => break,
            _ => crashes += 1,
        }
    }
    assert!(crashes > 10, "{crashes}");
    scene.follow(2).await;
    assert_eq!(scene.numbers().await, scene.logged(2).await);
    let table = scene.table("t").await.table_id;
    for version in 0..=2 {
        let key = follow::synced_key(&table, Generation(0), Version(version));
        let item = scene.app.ports.items.get(&key, crate::store::Consistency::Strong).await.unwrap().unwrap();
        let at_ms = follow::decode_synced(&item).unwrap();
        assert_eq!(scene.numbers_of("t", View::AsOf { at_ms }).await, scene.logged(version).await, "{version}");
    }
    let (_, definition) = get_table(&scene.app.ports, "lake", "t").await.unwrap();
    assert!(definition.parameter("delta.lastUpdateVersion").is_some());
}

#[tokio::test]
async fn workers_at_once_do_everything_once() {
    let scene = Scene::with_table().await;
    many(&scene).await;
    let runs = (0..4).map(|at| scene.try_follow(1 + at % 2));
    let outcomes = futures::future::join_all(runs).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(scene.numbers().await, scene.logged(2).await);
    let sum: u64 = outcomes
        .into_iter()
        .map(|one| match one.unwrap() {
            SyncReport::Followed(counts) => counts.created + counts.changed + counts.removed,
            _ => 0,
        })
        .sum();
    assert!(sum <= 260, "{sum}: something was done twice");
}

#[tokio::test]
async fn a_rebuild_goes_on_where_time_ran_out() {
    let scene = Scene::with_table().await;
    many(&scene).await;
    scene.follow(2).await;
    // Damage: one goes, one is made up, one says something wrong.
    let (ports, settings, table) = (&scene.app.ports, &scene.app.settings, scene.table("t").await);
    partition::delete(ports, settings, &table, &one("001"), None).await.unwrap();
    let made_up = partition::PartitionInput { values: one("zzz"), ..Default::default() };
    partition::create(ports, settings, &table, made_up).await.unwrap();
    let wrong =
        partition::PartitionInput { rest: members(json!({"Parameters": {"numFiles": "9"}})), ..Default::default() };
    partition::update(ports, settings, &table, PartitionUpdate { values: one("003"), input: wrong }, None)
        .await
        .unwrap();
    let deadline = Deadline::in_ms(&*scene.kit.world.clock, 60_000);
    let asked = follow::request(&scene.app, deadline, "lake", "t", Others::Stay).await.unwrap();
    assert_eq!(asked.to_json()["status"], "rebuilding");
    assert!(matches!(scene.follow_as(told(0, 2, Source::Head), 1_000).await, Err(SyncError::Slow(_))));
    let message = scene.kit.world.queue.take(crate::store::QueueName::LogWork).unwrap();
    assert_eq!(message, follow::message(&scene.kit.root));
    assert_eq!(scene.follow(2).await, Counts { created: 1, changed: 1, removed: 0 });
    let mut expected = scene.logged(2).await;
    expected.insert(one("zzz"), (-1, None, -1));
    assert_eq!(scene.numbers().await, expected, "what others made stays");
    follow::request(&scene.app, deadline, "Lake", "T", Others::Go).await.unwrap();
    assert_eq!(scene.follow(2).await, Counts { created: 0, changed: 0, removed: 1 });
    assert_eq!(scene.numbers().await, scene.logged(2).await);
    let told = follow::progress_of(&scene.app, "lake", "t").await.unwrap().to_json();
    assert_eq!((&told["status"], &told["version"], &told["sync"]), (&json!("following"), &json!(2), &json!("on")));
    assert!(matches!(follow::progress_of(&scene.app, "lake", "no").await, Err(follow::RequestError::NoTable(_))));
}

#[tokio::test]
async fn a_long_gap_or_a_log_that_was_cleaned_up_is_made_good_from_the_whole_log() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    for version in 1..=4 {
        scene.kit.log(version, &[add(&format!("p={version}/f"), Some(&version.to_string()), 1)]).await;
    }
    let at = snapshot::load(&*scene.kit.world.objects, &scene.kit.root, Some(Version(3))).await.unwrap();
    scene.kit.checkpoint(&at).await;
    for version in 0..=2 {
        scene.kit.delete_log(version).await;
    }
    scene.follow(4).await;
    assert_eq!(scene.numbers().await, scene.logged(4).await);
    assert_eq!(scene.cursor("t").await.unwrap().version, Version(4));
}

/// As if a version had been proposed here.
async fn judged_here(scene: &Scene, version: i64) {
    let record = VersionRecord {
        version: Version(version),
        proposal: Some(ProposalId(uuid::Uuid::from_u128(7))),
        sha256: None,
        etag: None,
        operation: None,
        blindness: Blindness::Reading,
        committed_ms: 0,
    };
    let write = record.write(&scene.kit.root, Generation(0));
    scene.app.ports.items.transact(&[write], "judged here").await.unwrap();
}

#[tokio::test]
async fn a_file_that_another_writer_adds_again_is_counted_once() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 1)]).await;
    scene.follow(1).await;
    // As new data, which it is not.
    scene.kit.log(2, &[add("p=x/a", Some("x"), 1)]).await;
    scene.follow(2).await;
    assert_eq!(scene.numbers().await, scene.logged(2).await);
    scene.kit.log(3, &[remove_line("p=x/a", 1)]).await;
    scene.follow(3).await;
    assert_eq!(scene.numbers().await, Numbers::new(), "and goes with its one remove");
}

#[tokio::test]
async fn a_rebuild_without_a_log_is_refused_or_ends() {
    let scene = Scene::with_table().await;
    let deadline = || Deadline::in_ms(&*scene.kit.world.clock, 60_000);
    let refused = follow::request(&scene.app, deadline(), "lake", "t", Others::Stay).await.unwrap_err();
    assert!(refused.to_string().contains("no Delta log"), "{refused}");
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 1)]).await;
    scene.follow(1).await;
    follow::request(&scene.app, deadline(), "lake", "t", Others::Go).await.unwrap();
    // Gone before the worker comes.
    for version in 0..=1 {
        scene.kit.delete_log(version).await;
    }
    let before = scene.numbers().await;
    for source in [Source::Head, Source::Event] {
        scene.follow_as(told(0, 1, source), 60_000).await.unwrap();
    }
    let progress = follow::progress_of(&scene.app, "lake", "t").await.unwrap().to_json();
    assert_eq!(progress["status"], "following");
    assert_eq!(scene.numbers().await, before, "partitions stay as they are");
}

/// Batch gets, gets, queries, transactions and puts that a version takes which makes (or changes) `k` partitions.
async fn cost_of(k: usize, change: bool) -> [usize; 5] {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    let lines = |file: &str| -> Vec<Json> {
        let info = json!({"commitInfo": {"timestamp": 1}});
        let files = (0..k).map(|at| add(&format!("p={at}/{file}"), Some(&at.to_string()), 1));
        [info].into_iter().chain(files).collect()
    };
    // Its descriptor is known from here on.
    scene.kit.log(1, &[add("p=first/a", Some("first"), 1)]).await;
    scene.follow(1).await;
    scene.kit.log(2, &lines("a")).await;
    scene.kit.log(3, &lines("b")).await;
    scene.follow(1 + i64::from(change)).await;
    judged_here(&scene, 2 + i64::from(change)).await;
    scene.kit.world.faults.forget_calls();
    let counts = scene.follow(2 + i64::from(change)).await;
    let done = if change { counts.changed } else { counts.created };
    assert_eq!(done, u64::try_from(k).unwrap());
    let calls = scene.kit.world.faults.calls();
    let count = |name: &str| calls.iter().filter(|call| call.split(' ').next() == Some(name)).count();
    assert_eq!(calls.iter().filter(|call| call.contains("s3://")).count(), 1, "{calls:?}");
    // The log file is one of the gets.
    [count("batch_get"), count("get") - 1, count("query"), count("transact"), count("put")]
}

#[tokio::test]
async fn what_a_version_costs() {
    // Heads; then for each 30 partitions their numbers and they themselves; then the head once more, to say the version.
    for (k, change, chunks) in
        [(0, false, 0), (1, false, 1), (10, false, 1), (30, true, 1), (31, true, 2), (100, true, 4)]
    {
        let transactions = usize::max(chunks, 1) + 1;
        // Definition, cursor, definition, and the version's record where it adds files. With each transaction the estimate of the table's size may be written.
        let [batch_gets, gets, queries, transacts, puts] = cost_of(k, change).await;
        assert_eq!(
            (batch_gets, gets, queries, transacts, puts),
            (2 + 2 * chunks, 3 + usize::from(k > 0), 1, transactions, 0),
            "{k} {change}"
        );
    }
}
