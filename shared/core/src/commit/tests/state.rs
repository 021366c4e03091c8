//! What is known of a table: remembered, cached in the head, read from the log; what it costs, and that it is right.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kit::{Kit, short, verdict};
use crate::commit::door::judge_one;
use crate::commit::facts::AtRead;
use crate::commit::head::{self, Fence};
use crate::commit::housekeeping::keep_house;
use crate::commit::keys::ProposalId;
use crate::commit::view::{self, View, ViewError};
use crate::delta::log::{checkpoint_key, log_key};
use crate::delta::testkit::{Form, append_info, creation_of, remove_line};
use crate::delta::{AddFile, FileKey, Version, snapshot};
use crate::store::{Items, ObjectKey, Objects, ReadItems, ReadObjects, StoreErrorKind};
use uuid::Uuid;

fn id(number: u128) -> ProposalId {
    ProposalId(Uuid::from_u128(number))
}

async fn view_of(kit: &Kit) -> View {
    view::load(kit.ctx(), &kit.table.root, id(999)).await.unwrap().0
}

fn dv_pair(add: &Value, offset: Option<i64>) -> Value {
    let mut add = add.clone();
    if let Some(offset) = offset {
        add["add"]["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^",
            "offset": offset, "sizeInBytes": 44, "cardinality": 6});
    }
    add
}

fn remove_of(add: &Value) -> Value {
    let mut remove = remove_line(add["add"]["path"].as_str().unwrap(), 7);
    if let Some(vector) = add["add"].get("deletionVector") {
        remove["remove"]["deletionVector"] = vector.clone();
    }
    remove
}

#[tokio::test]
async fn a_remembered_table_costs_no_read_of_the_head() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    for version in 2..5 {
        let staged = kit.stage(version, version as u128, &[kit.file(&format!("{version}")).await, append_info()]).await;
        let (items, objects) = (kit.table.world.items.item_usage(), kit.table.world.objects.object_usage());
        assert_eq!(short(&kit.judge(&staged).await), format!("committed {version}"));
        let items = kit.table.world.items.item_usage().since(&items);
        let objects = kit.table.world.objects.object_usage().since(&objects);
        // S3: the staged object and the footer of its file, one listing, one put.
        assert_eq!((objects.gets, objects.lists, objects.puts, objects.heads), (2, 1, 1, 0));
        // DynamoDB: the claim, and verdict and completion.
        assert_eq!((items.batch_gets, items.gets, items.queries, items.puts, items.transactions), (0, 0, 0, 0, 2));
    }
}

#[tokio::test]
async fn what_is_remembered_is_not_believed() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    // A commit of another process, one of a foreign writer, and a fence that another process put.
    let other = kit.cold();
    assert_eq!(short(&other.propose(2, 2, &[kit.file("b.parquet").await, append_info()]).await), "committed 2");
    let add = kit.file("c.parquet").await;
    assert_eq!(short(&kit.propose(2, 3, &[add.clone(), append_info()]).await), "committed 3");
    kit.table.log(4, &[kit.file("d.parquet").await, append_info()]).await;
    assert_eq!(short(&kit.propose(2, 4, &[kit.file("e.parquet").await, append_info()]).await), "committed 5");
    // The same file again: the filter that is remembered knows it.
    let again = kit.propose(6, 5, &[add, append_info()]).await;
    assert_eq!(short(&again), "rejected InvalidCommitException FILE_ALREADY_LIVE");
    // An event that comes twice, before and after something was committed.
    let staged = kit.stage(6, 6, &[kit.file("f.parquet").await, append_info()]).await;
    for _ in 0..2 {
        assert_eq!(short(&kit.judge(&staged).await), "committed 6");
    }
    assert_eq!(short(&kit.propose(7, 7, &[kit.file("g.parquet").await, append_info()]).await), "committed 7");
    assert_eq!(short(&kit.judge(&staged).await), "committed 6");
    kit.propose(8, 8, &[kit.file("h.parquet").await, append_info()]).await;
    let items = &*kit.table.world.items;
    let now = head::load(items, &kit.table.root).await.unwrap();
    let fence = Fence { run: "run".into(), expires_ms: i64::MAX };
    head::set_fence(items, &*kit.app.ports.ids, &kit.table.root, now.as_ref(), fence, 0).await.unwrap();
    let staged = kit.stage(9, 9, &[kit.file("i.parquet").await, append_info()]).await;
    let outcome = judge_one(kit.ctx(), &staged).await;
    assert!(outcome.is_err(), "{outcome:?}");
    head::clear_fence(items, &*kit.app.ports.ids, &kit.table.root, "run").await.unwrap();
    assert_eq!(short(&verdict(judge_one(kit.ctx(), &staged).await)), "committed 9");
    assert_eq!(kit.versions(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_table_that_was_written_anew_is_not_taken_for_the_old_one() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    for version in 0..2 {
        kit.table.delete_log(version).await;
    }
    let creation = crate::delta::testkit::creation_of("99999999-9999-4999-8999-999999999999", &[], json!({}));
    kit.table.log(0, &creation).await;
    kit.table.log(1, &[append_info()]).await;
    kit.table.world.clock.advance_ms(5_000);
    let verdict = kit.propose(2, 2, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "committed 2");
    assert_eq!(view_of(&kit).await.head.generation.0, 1);
}

#[tokio::test]
async fn facts_tell_what_was_live_then_and_now() {
    let kit = Kit::unpartitioned(json!({})).await;
    let [a, b, c] = [kit.file("a").await, kit.file("b").await, kit.file("c").await];
    kit.table.log(1, &[a.clone(), b.clone(), append_info()]).await;
    let a1 = dv_pair(&a, Some(1));
    kit.table.log(2, &[a1.clone(), remove_of(&a), append_info()]).await;
    let domain = json!({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": false}});
    kit.table.log(3, &[remove_of(&b), c.clone(), domain, append_info()]).await;
    let at = |name: &str| kit.table.root.object(name);
    let wanted: BTreeSet<ObjectKey> = ["a", "b", "c", "nothing"].into_iter().map(at).collect();
    for (read, expected) in [
        (0, ["", "", "", ""]),
        (1, ["a", "b", "", ""]),
        (2, ["a+", "b", "", ""]),
        (3, ["a+", "", "c", ""]),
        (-1, ["", "", "", ""]),
    ] {
        for is_held in [false, true] {
            let mut view = view_of(&kit.cold()).await;
            if !is_held {
                view.held = Default::default();
            }
            let facts = view.files(kit.ctx(), &wanted, Version(read)).await.unwrap();
            let names: Vec<String> = ["a", "b", "c", "nothing"]
                .map(|name| match facts.at_read(&at(name)) {
                    AtRead::Absent => String::new(),
                    AtRead::Live(adds) => {
                        let marks = adds.iter().map(|add| if add.deletion_vector.is_some() { "+" } else { "" });
                        format!("{name}{}", marks.collect::<String>())
                    }
                    AtRead::Unknown => "?".to_owned(),
                })
                .into();
            assert_eq!(names, expected, "{read}");
            let live: Vec<usize> = ["a", "b", "c"].map(|name| facts.live(&at(name)).len()).into();
            assert_eq!(live, [1, 0, 1]);
            assert!(facts.live(&at("a"))[0].0.dv_id.is_some());
            assert!(facts.knows(&at("nothing")) && !facts.knows(&at("other")));
            let domains = facts.table_at_read().unwrap().domains.len();
            assert_eq!(domains, usize::from(read == 3));
        }
    }
    // The log was cleaned up: the version that was read cannot be rebuilt any more.
    let latest = snapshot::load(&*kit.table.world.objects, &kit.table.root, None).await.unwrap();
    kit.table.checkpoint_as(&latest, Form::Classic).await;
    for version in 0..3 {
        kit.table.delete_log(version).await;
    }
    let mut view = view_of(&kit.cold()).await;
    let facts = view.files(kit.ctx(), &wanted, Version(1)).await.unwrap();
    assert_eq!(facts.at_read(&at("a")), AtRead::Unknown);
    assert_eq!((facts.table_at_read(), facts.live(&at("a")).len()), (None, 1));
    let old = kit.propose(2, 77, &[kit.file("z").await, append_info()]).await;
    assert_eq!(short(&old), "rejected ConcurrentWriteException READ_VERSION_TOO_OLD");
}

#[tokio::test]
async fn a_batch_is_judged_against_state_that_was_read_once() {
    let kit = Kit::unpartitioned(json!({"delta.isolationLevel": "WriteSerializable"})).await;
    let files: Vec<Value> = futures::future::join_all((0..6).map(|index| {
        let kit = kit.clone();
        async move { kit.file(&format!("{index}.parquet")).await }
    }))
    .await;
    let mut lines = files.clone();
    lines.push(append_info());
    kit.table.log(1, &lines).await;
    // Each rewrites one file, all having read version 1.
    let mut staged = Vec::new();
    for (index, add) in files.iter().enumerate() {
        let new = kit.file(&format!("new-{index}.parquet")).await;
        let info = json!({"commitInfo": {"operation": "UPDATE", "readSet":
            {"v": 1, "files": [{"path": add["add"]["path"]}]}}});
        staged.push(kit.stage(2, 100 + index as u128, &[remove_of(add), new, info]).await);
    }
    let before = kit.table.world.objects.object_usage();
    let outcomes = kit.judge_all(staged).await;
    let used = kit.table.world.objects.object_usage().since(&before);
    let verdicts: Vec<String> = outcomes.into_iter().map(|(_, outcome)| short(&verdict(outcome))).collect();
    assert_eq!(verdicts, (2..8).map(|version| format!("committed {version}")).collect::<Vec<_>>());
    // The log's two commits once; a staged object, a footer and a put for each.
    assert_eq!((used.gets, used.lists, used.puts), (2 + 6 * 2, 1, 6));
}

#[tokio::test]
async fn a_large_table_is_judged_without_being_held() {
    const FILES: usize = 30_000;
    let kit = Kit::unpartitioned(json!({})).await;
    let objects = &*kit.table.world.objects;
    let mut plain = snapshot::load(objects, &kit.table.root, None).await.unwrap();
    let real = kit.file("real.parquet").await;
    let mut add: AddFile = serde_json::from_value(real["add"].clone()).unwrap();
    plain.live.insert(FileKey { at: kit.table.root.object("real.parquet"), dv_id: None }, add.clone());
    for index in 0..FILES {
        add.path = format!("part-{index:05}.parquet");
        plain.live.insert(FileKey { at: kit.table.root.object(&add.path), dv_id: None }, add.clone());
    }
    kit.table.checkpoint_as(&plain, Form::Grouped(10_000, 2_000)).await;
    let size = objects.head(&checkpoint_key(&kit.table.root, Version(0))).await.unwrap().size_bytes;
    // Read once; the filter goes to S3.
    let first = kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    assert_eq!(short(&first), "committed 1");
    let spilled = kit.table.world.objects.keys("lakewarden-reports");
    assert!(spilled.len() == 1 && spilled[0].starts_with("bodies/heads/"), "{spilled:?}");
    let held = view_of(&kit.cold()).await.held;
    assert!(held.base.is_none());
    // Known from the head now: the staged object, its file's footer, and the filter.
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    let before = objects.object_usage();
    assert_eq!(short(&kit.cold().judge(&staged).await), "committed 2");
    let used = objects.object_usage().since(&before);
    assert_eq!((used.gets, used.lists, used.puts), (3, 1, 1));
    assert!(used.bytes_read < 100_000, "{}", used.bytes_read);
    // A file that is in the table, and a rewrite: only what is asked about is kept.
    let mut twice = kit.file("x").await;
    twice["add"]["path"] = json!("part-12345.parquet");
    let verdict = kit.cold().propose(3, 3, &[twice, append_info()]).await;
    assert_eq!(short(&verdict), "rejected InvalidCommitException FILE_ALREADY_LIVE");
    let mut view = view_of(&kit.cold()).await;
    let before = objects.object_usage();
    let wanted: BTreeSet<ObjectKey> = [kit.table.root.object("real.parquet")].into();
    let facts = view.files(kit.ctx(), &wanted, Version(1)).await.unwrap();
    assert_eq!(facts.live(wanted.first().unwrap()).len(), 1);
    let kept = view.held.base.as_ref().unwrap();
    assert_eq!((kept.live.len(), kept.tombstones.len()), (1, 0));
    assert!(objects.object_usage().since(&before).bytes_read < 2 * size);
    // What was cached on S3 is gone: the log is read, and it is stored again.
    let at = ObjectKey::new("lakewarden-reports", spilled[0].clone());
    objects.delete(&at, None).await.unwrap();
    let verdict = kit.cold().propose(3, 4, &[kit.file("c.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "committed 3");
    assert_eq!(kit.table.world.objects.keys("lakewarden-reports").len(), 1);
}

#[tokio::test]
async fn a_filter_that_is_full_is_made_anew_by_the_next_commit() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let many: Vec<Value> = (0..600)
        .map(|index| json!({"add": {"path": format!("many-{index}"), "partitionValues": {}, "size": 1, "dataChange": true}}))
        .collect();
    kit.table.log(2, &many).await;
    let state = |view: View| view.state.unwrap();
    assert!(state(view_of(&kit.cold()).await).paths.is_none());
    let verdict = kit.cold().propose(3, 3, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&verdict), "committed 3");
    let paths = state(view_of(&kit.cold()).await).paths.unwrap();
    assert!(paths.may_contain("s3://lake/wh/t/many-7") && paths.may_contain("s3://lake/wh/t/b.parquet"));
    assert!(!paths.may_contain("s3://lake/wh/t/c.parquet"));
}

#[tokio::test]
async fn the_head_keeps_applications_and_domains() {
    let kit = Kit::unpartitioned(json!({})).await;
    let lines = |version: i64| {
        vec![
            json!({"txn": {"appId": "app", "version": version}}),
            json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration":
                json!({"rowIdHighWaterMark": version}).to_string(), "removed": false}}),
            append_info(),
        ]
    };
    kit.table.log(1, &lines(5)).await;
    kit.propose(2, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.log(3, &lines(6)).await;
    let state = view_of(&kit.cold()).await.state.unwrap();
    assert_eq!(state.app_ids.last("app"), crate::commit::table_state::LastVersion::Is(6));
    assert_eq!(state.row_id_high_water_mark(), Some(6));
}

#[tokio::test]
async fn a_log_that_cannot_be_listed_fails_the_run_and_nothing_else() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    kit.table.world.faults.inject("list", 0, crate::store::memory::Fault::Before(StoreErrorKind::AccessDenied));
    assert!(matches!(view::load(kit.ctx(), &kit.table.root, id(2)).await, Err(ViewError::Failed(_))));
    assert_eq!(short(&kit.judge(&staged).await), "committed 2");
    assert!(kit.table.get(&log_key(&kit.table.root, "00000000000000000002.json")).await.is_some());
}

#[tokio::test]
async fn a_head_that_is_far_behind_is_caught_up_by_a_checkpoint() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    for version in 2..150 {
        kit.table.log(version, &[json!({"txn": {"appId": "app", "version": version}})]).await;
    }
    let objects = &*kit.table.world.objects;
    let gets_of = |kit: Kit, version: i64| async move {
        let staged = kit.stage(version, version as u128, &[kit.file(&format!("{version}")).await, append_info()]).await;
        let before = objects.object_usage().gets;
        assert_eq!(short(&kit.judge(&staged).await), format!("committed {version}"));
        objects.object_usage().gets - before
    };
    let latest = snapshot::load(objects, &kit.table.root, Some(Version(145))).await.unwrap();
    kit.table.checkpoint_as(&latest, Form::Classic).await;
    // The staged object, its file, the checkpoint, the commits after it.
    assert_eq!(gets_of(kit.clone(), 150).await, 2 + 1 + 4);
    assert_eq!(gets_of(kit.cold(), 151).await, 2);
}

#[tokio::test]
async fn a_log_of_which_a_checkpoint_is_left_goes_on_behind_it() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.log(2, &[json!({"txn": {"appId": "app", "version": 2}})]).await;
    let objects = &*kit.table.world.objects;
    let latest = snapshot::load(objects, &kit.table.root, None).await.unwrap();
    kit.table.checkpoint_as(&latest, Form::Classic).await;
    // What the head knows as the latest commit stays; the one that it does not know is gone.
    kit.table.delete_log(2).await;
    let third = [kit.file("b.parquet").await, append_info()];
    assert_eq!(short(&kit.propose(3, 2, &third).await), "committed 3");
    kit.table.delete_log(3).await;
    let latest = snapshot::load(objects, &kit.table.root, None).await.unwrap();
    assert_eq!(latest.version, Version(2));
    for version in 0..2 {
        kit.table.delete_log(version).await;
    }
    // The head says that version 3 was published: a log that ends before it has lost something.
    let lost = kit.propose(3, 3, &[kit.file("c.parquet").await, append_info()]).await;
    assert_eq!(short(&lost), "rejected DamagedLogException LOG_BEHIND_HEAD");
    // To somebody who sees the table for the first time it is whole.
    let other = Kit::unpartitioned(json!({})).await;
    other.table.log(1, &[other.file("a.parquet").await, append_info()]).await;
    let latest = snapshot::load(&*other.table.world.objects, &other.table.root, None).await.unwrap();
    other.table.checkpoint_as(&latest, Form::Sidecars(crate::delta::log::MainFile::Json, 2)).await;
    for version in 0..2 {
        other.table.delete_log(version).await;
    }
    let creation = other.propose(0, 8, &creation_of("again", &[], json!({}))).await;
    assert_ne!(creation.status().name(), "committed", "the table is there");
    let second = [other.file("b.parquet").await, append_info()];
    assert_eq!(short(&other.propose(2, 9, &second).await), "committed 2");
    let latest = snapshot::load(&*other.table.world.objects, &other.table.root, None).await.unwrap();
    assert_eq!((latest.version, latest.live.len()), (Version(2), 2));
}

/// A version is deleted that the head knows of, by somebody who cleans up too much. With the state at hand a commit needs
/// none of it, and would extend a log that nobody can read any more.
#[tokio::test]
async fn a_log_with_a_gap_behind_a_cached_head_is_not_extended() {
    for gone in [0, 1, 2, 3] {
        for is_warm in [true, false] {
            let kit = Kit::unpartitioned(json!({})).await;
            for version in 1..=4 {
                let lines = [kit.file(&format!("{version}.parquet")).await, append_info()];
                assert_eq!(short(&kit.propose(version, version as u128, &lines).await), format!("committed {version}"));
            }
            let bytes = kit.table.version(gone).await.unwrap();
            kit.table.delete_log(gone).await;
            let next = if is_warm { kit.clone() } else { kit.cold() };
            let lines = [kit.file("next.parquet").await, append_info()];
            let torn = next.propose(5, 50, &lines).await;
            assert_eq!(short(&torn), "rejected DamagedLogException LOG_GAP", "{gone} {is_warm}");
            assert_eq!(alarms(&kit).await, ["LOG_GAP 4 seen 1"], "{gone} {is_warm}");
            // Restored, it goes on.
            kit.table.put(&format!("_delta_log/{gone:020}.json"), &bytes).await;
            assert_eq!(short(&next.propose(5, 51, &lines).await), "committed 5", "{gone} {is_warm}");
        }
    }
}

/// What a checkpoint or a compaction stands for may be cleaned up, and nothing is read for it.
#[tokio::test]
async fn a_log_that_was_cleaned_up_behind_a_cached_head_is_extended() {
    for form in [Form::Classic, Form::Parts(2), Form::Sidecars(crate::delta::log::MainFile::Json, 2)] {
        let kit = Kit::unpartitioned(json!({})).await;
        for version in 1..=4 {
            let lines = [kit.file(&format!("{version}.parquet")).await, append_info()];
            kit.propose(version, version as u128, &lines).await;
        }
        let at = snapshot::load(&*kit.table.world.objects, &kit.table.root, Some(Version(3))).await.unwrap();
        kit.table.checkpoint_as(&at, form).await;
        for version in 0..=3 {
            kit.table.delete_log(version).await;
        }
        let staged = kit.stage(5, 5, &[kit.file("5.parquet").await, append_info()]).await;
        let before = kit.table.world.objects.object_usage();
        assert_eq!(short(&kit.judge(&staged).await), "committed 5", "{form:?}");
        let used = kit.table.world.objects.object_usage().since(&before);
        assert_eq!((used.lists, used.puts), (1, 1), "{form:?}");
        assert!(alarms(&kit).await.is_empty());
    }
}

/// Further back than a listing shows, the hourly look at the log finds it.
#[tokio::test]
async fn a_gap_far_behind_is_alarmed_by_the_housekeeping() {
    let kit = Kit::unpartitioned(json!({})).await;
    for version in 1..=60 {
        kit.table.log(version, &[append_info()]).await;
    }
    let first = [kit.file("a.parquet").await, append_info()];
    assert_eq!(short(&kit.propose(61, 1, &first).await), "committed 61");
    keep_house(kit.ctx(), &kit.table.root).await.unwrap();
    assert!(alarms(&kit).await.is_empty());
    kit.table.delete_log(7).await;
    for seen in 1..=2 {
        keep_house(kit.ctx(), &kit.table.root).await.unwrap();
        assert_eq!(alarms(&kit).await, [format!("LOG_GAP 61 seen {seen}")]);
    }
    // Whoever has to read the log refuses.
    let items = &kit.table.world.items;
    let key = crate::commit::keys::head(&kit.table.root);
    let mut head = head::load(&**items, &kit.table.root).await.unwrap().unwrap();
    head.state = None;
    items.put(&key, head.encode().unwrap(), crate::store::Condition::Always).await.unwrap();
    let torn = kit.cold().propose(62, 2, &[kit.file("b.parquet").await, append_info()]).await;
    assert_eq!(short(&torn), "rejected DamagedLogException LOG_GAP");
}

async fn alarms(kit: &Kit) -> Vec<String> {
    let page = crate::commit::alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    page.alarms.iter().map(|alarm| format!("{} {} seen {}", alarm.kind.name(), alarm.version, alarm.seen)).collect()
}
