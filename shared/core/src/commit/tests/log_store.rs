//! Writers of Delta's DynamoDB log store beside ours, step by step.

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::kit::{Kit, short, verdict};
use crate::commit::alarm::{self, AlarmKind};
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::door::judge_one;
use crate::commit::head::{self, LogStore};
use crate::commit::housekeeping::keep_house;
use crate::commit::log_store::{key, spellings};
use crate::delta::Version;
use crate::delta::log::commit_key;
use crate::delta::testkit::{append_info, creation_of, text};
use crate::store::memory::Fault;
use crate::store::{
    Condition, Consistency, Fields, Item, Items, ObjectError, ObjectKey, Objects, PutCondition, PutOptions, QueueName,
    ReadItems, ReadObjects, StoreErrorKind,
};

const SHARED: &str = "lakewarden.logStore";

async fn shared_table() -> Kit {
    Kit::unpartitioned(json!({ SHARED: "dynamodb" })).await
}

/// A commit that a writer of the log store is making.
struct Spark<'a> {
    kit: &'a Kit,
    version: i64,
    temp: ObjectKey,
    item: Item,
}

impl Spark<'_> {
    /// Steps 0 to 2: the entry is the commit, as far as Spark is concerned.
    async fn begin<'a>(kit: &'a Kit, version: i64, lines: &[Value]) -> Spark<'a> {
        let name = format!(".tmp/{version:020}.json.{}", Uuid::from_u128(version as u128 + 77));
        let temp = kit.table.root.object(&format!("_delta_log/{name}"));
        kit.table.world.objects.put(&temp, text(lines).into(), &PutOptions::default()).await.unwrap();
        let item = Item::from([("tempPath".to_owned(), name.into()), ("complete".to_owned(), "false".into())]);
        let spark = Spark { kit, version, temp, item };
        spark.put_item("false", Condition::Absent).await;
        spark
    }

    async fn put_item(&self, complete: &str, condition: Condition) {
        let mut item = self.item.clone();
        item.insert("complete".into(), complete.into());
        let at = key(&spellings(&self.kit.table.root)[1], Version(self.version));
        self.kit.table.world.items.put(&at, item, condition).await.unwrap();
    }

    /// Step 3; a file that is there already counts as copied.
    async fn copy(&self) {
        let to = commit_key(&self.kit.table.root, Version(self.version));
        match self.kit.table.world.objects.copy(&self.temp, &to, &PutCondition::Absent).await {
            Ok(_) | Err(ObjectError::PreconditionFailed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn commit(&self) {
        self.copy().await;
        self.put_item("true", Condition::Always).await;
    }
}

/// A commit of another writer, as far as its entry.
pub async fn leave_incomplete(kit: &Kit, version: i64, lines: &[Value]) {
    Spark::begin(kit, version, lines).await;
}

/// That no entry is incomplete.
pub async fn assert_complete(kit: &Kit) {
    for version in kit.versions() {
        let entries = entries(kit, version).await;
        assert!(entries.iter().flatten().all(|complete| complete == "true"), "{version}: {entries:?}");
    }
}

/// `complete` of the entries under both spellings.
async fn entries(kit: &Kit, version: i64) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for path in spellings(&kit.table.root) {
        let item = kit.table.world.items.get(&key(&path, Version(version)), Consistency::Strong).await.unwrap();
        found.push(item.map(|item| item.text("complete").unwrap().to_owned()));
    }
    found
}

fn both(complete: &str) -> Vec<Option<String>> {
    vec![Some(complete.to_owned()); 2]
}

async fn alarms(kit: &Kit) -> Vec<AlarmKind> {
    let page = alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    page.alarms.into_iter().map(|alarm| alarm.kind).collect()
}

async fn append(kit: &Kit, version: i64, id: u128) -> String {
    let lines = [kit.file(&format!("{id}.parquet")).await, append_info()];
    short(&kit.propose(version, id, &lines).await)
}

#[tokio::test]
async fn a_claim_on_a_shared_table_takes_both_entries_and_costs_what_it_must() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    let (items, objects) = (kit.table.world.items.item_usage(), kit.table.world.objects.object_usage());
    assert_eq!(short(&kit.judge(&staged).await), "committed 2");
    let items = kit.table.world.items.item_usage().since(&items);
    let objects = kit.table.world.objects.object_usage().since(&objects);
    // One put more, for the bytes that the entry names; one look at the newest entries under each spelling. The head is warm.
    assert_eq!((objects.gets, objects.lists, objects.puts, objects.heads), (2, 1, 2, 0));
    assert_eq!((items.batch_gets, items.queries, items.transactions), (0, 2, 2));
    assert_eq!((items.gets, items.puts, items.deletes), (0, 0, 0));
    for path in spellings(&kit.table.root) {
        let item = kit.table.world.items.get(&key(&path, Version(2)), Consistency::Strong).await.unwrap().unwrap();
        assert_eq!(item.text("complete").unwrap(), "true");
        assert!(item.int("expireTime").unwrap() > 1_767_225_600 + 86_000);
        let temp = item.text("tempPath").unwrap();
        assert!(temp.starts_with(&format!(".tmp/{:020}.{}.", 2, Uuid::from_u128(2))), "{temp}");
        let copy = kit.table.get(&kit.table.root.object(&format!("_delta_log/{temp}"))).await;
        assert_eq!(copy, kit.table.version(2).await);
    }
}

#[tokio::test]
async fn tables_that_nobody_shares_have_no_entries() {
    let kit = Kit::unpartitioned(json!({})).await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    assert_eq!(entries(&kit, 1).await, [None, None]);
    let queries = kit.table.world.items.item_usage().queries;
    assert_eq!(append(&kit, 2, 2).await, "committed 2");
    assert_eq!(kit.table.world.items.item_usage().queries, queries, "a known table is not asked about");
}

#[tokio::test]
async fn an_entry_of_somebody_else_switches_it_on() {
    for seen_first in [true, false] {
        let kit = Kit::unpartitioned(json!({})).await;
        let mut next = 1;
        if !seen_first {
            assert_eq!(append(&kit, 1, 1).await, "committed 1");
            next = 2;
        }
        let foreign = [kit.file("spark.parquet").await, append_info()];
        Spark::begin(&kit, next, &foreign).await.commit().await;
        assert_eq!(append(&kit, next, 7).await, format!("committed {}", next + 1), "{seen_first}");
        assert_eq!(entries(&kit, next + 1).await, both("true"));
        let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
        assert_eq!(head.log_store, LogStore::Shared);
        assert_eq!(append(&kit, next + 2, 8).await, format!("committed {}", next + 2));
        assert_eq!(entries(&kit, next + 2).await, both("true"), "and it stays on");
    }
}

#[tokio::test]
async fn what_a_writer_left_incomplete_is_finished_and_wins() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let foreign = [kit.file("spark.parquet").await, append_info()];
    let spark = Spark::begin(&kit, 2, &foreign).await;
    assert_eq!(append(&kit, 2, 2).await, "committed 3");
    assert_eq!(kit.table.version(2).await.unwrap(), text(&foreign));
    assert!(kit.table.get(&spark.temp).await.is_some(), "copied, not moved");
    assert_eq!(entries(&kit, 2).await, [None, Some("true".into())]);
    spark.commit().await;
    assert_eq!(kit.versions(), [0, 1, 2, 3]);
    assert_eq!(alarms(&kit).await, []);
}

#[tokio::test]
async fn an_entry_whose_file_exists_is_completed() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let foreign = [kit.file("old.parquet").await, append_info()];
    let spark = Spark::begin(&kit, 2, &foreign).await;
    // An old delta-rs moved the bytes and died.
    spark.copy().await;
    kit.table.world.objects.delete(&spark.temp, None).await.unwrap();
    assert_eq!(append(&kit, 2, 2).await, "committed 3");
    assert_eq!(entries(&kit, 2).await, [None, Some("true".into())]);
    assert_eq!(alarms(&kit).await, []);
}

#[tokio::test]
async fn an_entry_without_bytes_and_file_is_an_alarm_and_never_completed() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let spark = Spark::begin(&kit, 2, &[append_info()]).await;
    kit.table.world.objects.delete(&spark.temp, None).await.unwrap();
    assert_eq!(append(&kit, 2, 2).await, "rejected DamagedLogException LOG_STORE_BYTES_MISSING");
    assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreBytesMissing]);
    assert_eq!(entries(&kit, 2).await, [None, Some("false".into())]);
    let at = key(&spellings(&kit.table.root)[1], Version(2));
    kit.table.world.items.delete(&at, Condition::Present).await.unwrap();
    assert_eq!(append(&kit, 2, 3).await, "committed 2");
}

#[tokio::test]
async fn an_entry_far_ahead_of_the_log_is_an_alarm() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    Spark::begin(&kit, 5, &[append_info()]).await;
    assert_eq!(append(&kit, 2, 2).await, "rejected DamagedLogException LOG_STORE_AHEAD");
    assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreAhead]);
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn an_entry_that_says_written_where_there_is_nothing_is_taken_away() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let spark = Spark::begin(&kit, 2, &[append_info()]).await;
    // Old delta-rs takes missing bytes for moved ones.
    spark.put_item("true", Condition::Always).await;
    kit.table.world.objects.delete(&spark.temp, None).await.unwrap();
    assert_eq!(append(&kit, 2, 2).await, "committed 2");
    assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreStale]);
}

#[tokio::test]
async fn a_commit_that_spark_believes_it_made_is_proposed_again() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let lost = [kit.file("spark.parquet").await, append_info()];
    let spark = Spark::begin(&kit, 2, &lost).await;
    let put = [kit.file("put.parquet").await, append_info()];
    kit.table.log(2, &put).await;
    spark.commit().await;
    assert_eq!(kit.table.version(2).await.unwrap(), text(&put), "Spark's copy met an existing file");
    for id in [2, 3] {
        append(&kit, 2, id).await;
    }
    let page = alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    assert_eq!(page.alarms.len(), 1);
    let (kind, id) = (page.alarms[0].kind, page.alarms[0].proposal.unwrap());
    assert_eq!(kind, AlarmKind::CommitOvertaken);
    let message = kit.table.world.queue.take(QueueName::Commits).unwrap();
    assert!(message.contains(&id.to_string()));
    assert_eq!(kit.table.world.queue.len(QueueName::Commits), 0, "once");
    let name = format!("_delta_log/_staged_commits/{:020}.{id}.json", 2);
    let at = kit.table.root.object(&name);
    assert_eq!(kit.table.get(&at).await.unwrap(), text(&lost));
    let staged = crate::commit::run::Staged { key: crate::delta::log::StagedKey::parse(&at).unwrap(), etag: None };
    assert_eq!(short(&kit.judge(&staged).await), "committed 5");
    assert_eq!(kit.versions(), [0, 1, 2, 3, 4, 5]);
}

/// What becomes of a commit of Spark that a put with the same transaction id overtook, and of what was made of it.
async fn overtaken(meant: &[Value], put: &[Value]) -> (Vec<AlarmKind>, Option<String>) {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    kit.file("spark.parquet").await;
    kit.file("put.parquet").await;
    let spark = Spark::begin(&kit, 2, meant).await;
    kit.table.log(2, put).await;
    spark.commit().await;
    append(&kit, 2, 2).await;
    let page = alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    let id = page.alarms.first().and_then(|alarm| alarm.proposal);
    let kinds = page.alarms.iter().map(|alarm| alarm.kind).collect();
    let Some(id) = id else { return (kinds, None) };
    let at = kit.table.root.object(&format!("_delta_log/_staged_commits/{:020}.{id}.json", 2));
    let staged = crate::commit::run::Staged { key: crate::delta::log::StagedKey::parse(&at).unwrap(), etag: None };
    (kinds, Some(short(&kit.judge(&staged).await)))
}

#[tokio::test]
async fn a_transaction_id_alone_does_not_make_two_commits_one() {
    let kit = shared_table().await;
    let info = |id: Value, engine: &str| {
        let mut info = append_info();
        (info["commitInfo"]["txnId"], info["commitInfo"]["engineInfo"]) = (id, json!(engine));
        info
    };
    let (spark, put) = (kit.file("spark.parquet").await, kit.file("put.parquet").await);
    let alarmed = vec![AlarmKind::CommitOvertaken];
    for (id, then) in [
        (Value::Null, "committed 4"),
        (json!(""), "committed 4"),
        // Told by name: nobody can tell what its writer means by giving one id to two commits.
        (json!("T"), "rejected ConcurrentTransactionException TXN_ID_REUSED"),
    ] {
        let found = overtaken(&[spark.clone(), info(id.clone(), "a")], &[put.clone(), info(id.clone(), "b")]).await;
        assert_eq!(found, (alarmed.clone(), Some(then.to_owned())), "{id}");
    }
    let found = overtaken(&[put.clone(), info(json!("T"), "a")], &[put.clone(), info(json!("T"), "b")]).await;
    assert_eq!(found, (vec![], None), "one commit, written twice");
}

fn odd_items() -> Vec<Item> {
    let temp = ("tempPath".to_owned(), "x".into());
    vec![
        Item::from([temp.clone(), ("complete".to_owned(), crate::store::Value::Bool(false))]),
        Item::from([temp.clone(), ("complete".to_owned(), "maybe".into())]),
        Item::from([temp]),
        Item::from([("complete".to_owned(), "false".into())]),
        Item::from([("complete".to_owned(), "true".into()), ("tempPath".to_owned(), 5.into())]),
    ]
}

#[tokio::test]
async fn an_item_that_is_no_entry_stops_the_table_by_name() {
    for property in [json!({}), json!({ SHARED: "dynamodb" })] {
        for item in odd_items() {
            let kit = Kit::unpartitioned(property.clone()).await;
            assert_eq!(append(&kit, 1, 1).await, "committed 1");
            let at = key(&spellings(&kit.table.root)[1], Version(2));
            kit.table.world.items.put(&at, item.clone(), Condition::Absent).await.unwrap();
            assert_eq!(append(&kit, 2, 2).await, "rejected DamagedLogException LOG_STORE_ITEM_UNREADABLE", "{item:?}");
            assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreItemUnreadable]);
            assert_eq!(kit.table.world.items.get(&at, Consistency::Strong).await.unwrap(), Some(item), "as it was");
            kit.table.world.items.delete(&at, Condition::Present).await.unwrap();
            assert_eq!(append(&kit, 2, 3).await, "committed 2");
        }
    }
}

#[tokio::test]
async fn an_item_that_is_no_entry_holds_nobody_up_where_its_version_is_in_the_log() {
    for item in odd_items() {
        let kit = Kit::unpartitioned(json!({})).await;
        assert_eq!(append(&kit, 1, 1).await, "committed 1");
        let at = key(&spellings(&kit.table.root)[0], Version(2));
        kit.table.log(2, &[kit.file("foreign.parquet").await, append_info()]).await;
        kit.table.world.items.put(&at, item, Condition::Absent).await.unwrap();
        assert_eq!(append(&kit, 2, 2).await, "committed 3");
        assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreItemUnreadable]);
        keep_house(kit.ctx(), &kit.table.root).await.unwrap();
        let mut logged =
            Logged { root: kit.table.root.clone(), version: Version(2), file: LogFile::Commit, etag: None };
        logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
        assert!(matches!(audit(kit.ctx(), &[logged]).await.as_slice(), [Ok(_)]));
        assert_eq!(append(&kit, 4, 3).await, "committed 4");
    }
}

#[tokio::test]
async fn bytes_that_are_no_commit_are_not_published() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let foreign = [kit.file("spark.parquet").await, append_info()];
    let spark = Spark::begin(&kit, 2, &foreign).await;
    let whole = text(&foreign);
    let torn = Bytes::copy_from_slice(&whole.as_bytes()[..whole.len() / 2]);
    kit.table.world.objects.put(&spark.temp, torn, &PutOptions::default()).await.unwrap();
    assert_eq!(append(&kit, 2, 2).await, "rejected DamagedLogException LOG_STORE_BYTES_UNREADABLE");
    assert_eq!(alarms(&kit).await, [AlarmKind::LogStoreBytesUnreadable]);
    assert_eq!((kit.versions(), entries(&kit, 2).await), (vec![0, 1], vec![None, Some("false".into())]));
    kit.table.world.objects.put(&spark.temp, whole.into(), &PutOptions::default()).await.unwrap();
    assert_eq!(append(&kit, 2, 3).await, "committed 3");
    assert_eq!(kit.table.version(2).await.unwrap(), text(&foreign));
}

#[tokio::test]
async fn a_conditional_put_at_our_claims_version_wins_and_ours_is_no_foreign_loss() {
    let kit = shared_table().await;
    let staged = kit.stage(1, 1, &[kit.file("a.parquet").await, append_info()]).await;
    let at = "put s3://lake/wh/t/_delta_log/00000000000000000001.json";
    kit.table.world.faults.inject(at, 0, Fault::Before(StoreErrorKind::Unavailable));
    let foreign = [kit.file("foreign.parquet").await, append_info()];
    let (outcome, ()) = tokio::join!(judge_one(kit.ctx(), &staged), async {
        kit.table.log(1, &foreign).await;
    });
    assert_eq!(short(&verdict(outcome)), "committed 2");
    assert_eq!(entries(&kit, 1).await, both("true"), "nobody copies our bytes to it");
    assert_eq!(entries(&kit, 2).await, both("true"));
    assert_eq!(append(&kit, 3, 2).await, "committed 3");
    assert_eq!(alarms(&kit).await, []);
}

#[tokio::test]
async fn an_entry_that_appears_between_look_and_claim_is_met_by_judging_again() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    let staged = kit.stage(2, 2, &[kit.file("b.parquet").await, append_info()]).await;
    let foreign = [kit.file("spark.parquet").await, append_info()];
    kit.table.world.faults.inject("transact commits", 0, Fault::Before(StoreErrorKind::Unavailable));
    let (outcome, ()) = tokio::join!(judge_one(kit.ctx(), &staged), async {
        Spark::begin(&kit, 2, &foreign).await;
    });
    assert_eq!(short(&verdict(outcome)), "committed 3");
    assert_eq!(kit.table.version(2).await.unwrap(), text(&foreign));
}

/// Claims on a shared table as a run that dies before it publishes.
async fn claim_and_die(kit: &Kit, id: u128) -> (crate::commit::run::Staged, ObjectKey) {
    let staged = kit.stage(1, id, &[kit.file("a.parquet").await, append_info()]).await;
    kit.table.world.faults.inject("put s3://lake/wh/t/_delta_log/0", 0, Fault::Before(StoreErrorKind::AccessDenied));
    assert!(judge_one(kit.ctx(), &staged).await.is_err());
    assert_eq!(entries(kit, 1).await, both("false"));
    let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
    (staged, ObjectKey::new("lake", head.claim.unwrap().bytes_key))
}

#[tokio::test]
async fn a_reader_of_the_log_store_may_finish_our_claim() {
    for moves in [false, true] {
        let kit = shared_table().await;
        let (staged, temp) = claim_and_die(&kit, 1).await;
        kit.table
            .world
            .objects
            .copy(&temp, &commit_key(&kit.table.root, Version(1)), &PutCondition::Absent)
            .await
            .unwrap();
        if moves {
            kit.table.world.objects.delete(&temp, None).await.unwrap();
        }
        assert_eq!(append(&kit, 1, 2).await, "committed 2");
        assert_eq!(short(&kit.judge(&staged).await), "committed 1");
        assert_eq!(entries(&kit, 1).await, both("true"));
    }
}

#[tokio::test]
async fn a_claim_whose_copy_is_gone_is_published_from_what_was_staged_or_withdrawn() {
    for staged_too in [false, true] {
        let kit = shared_table().await;
        let (staged, temp) = claim_and_die(&kit, 1).await;
        kit.table.world.objects.delete(&temp, None).await.unwrap();
        if staged_too {
            kit.table.world.objects.delete(&staged.key.key(), None).await.unwrap();
        }
        let expected = if staged_too { "committed 1" } else { "committed 2" };
        assert_eq!(append(&kit, 1, 2).await, expected);
        assert_eq!(entries(&kit, 1).await, both("true"));
    }
}

#[tokio::test]
async fn entries_of_the_table_before_are_cleared() {
    for creator in ["ours", "deltalake"] {
        let kit = shared_table().await;
        for version in 1..=3 {
            assert_eq!(append(&kit, version, version as u128).await, format!("committed {version}"));
        }
        kit.table.world.clock.advance_ms(5_000);
        for version in 0..=3 {
            kit.table.delete_log(version).await;
        }
        let creation = creation_of("99999999-9999-4999-8999-999999999999", &[], json!({}));
        if creator == "ours" {
            assert_eq!(short(&kit.propose(0, 10, &creation).await), "committed 0");
        } else {
            kit.table.log(0, &creation).await;
        }
        kit.table.world.clock.advance_ms(1_000);
        for version in 1..=4 {
            assert_eq!(append(&kit, version, 20 + version as u128).await, format!("committed {version}"), "{creator}");
        }
        assert_eq!(kit.versions(), [0, 1, 2, 3, 4]);
        assert_eq!(alarms(&kit).await, [], "{creator}");
    }
}

#[tokio::test]
async fn an_object_outside_the_log_is_never_read_as_bytes_of_an_entry() {
    let kit = shared_table().await;
    let item = Item::from([("tempPath".to_owned(), "../secret".into()), ("complete".to_owned(), "false".into())]);
    let at = key(&spellings(&kit.table.root)[0], Version(1));
    kit.table.world.items.put(&at, item, Condition::Absent).await.unwrap();
    let secret = kit.table.root.object("secret");
    kit.table.world.objects.put(&secret, Bytes::from_static(b"{}"), &PutOptions::default()).await.unwrap();
    assert_eq!(append(&kit, 1, 1).await, "rejected DamagedLogException LOG_STORE_BYTES_MISSING");
    assert_eq!(kit.versions(), [0]);
}

#[tokio::test]
async fn a_first_commit_of_spark_that_ours_overtook_is_found_by_the_audit_and_by_the_housekeeping() {
    for by_audit in [true, false] {
        let kit = Kit::unpartitioned(json!({})).await;
        assert_eq!(append(&kit, 1, 1).await, "committed 1");
        // Spark has seen that there is no version 2, and is slow: its entry comes between our claim and our file.
        assert_eq!(append(&kit, 2, 2).await, "committed 2", "nobody knew of Spark");
        let lost = [kit.file("spark.parquet").await, append_info()];
        let spark = Spark::begin(&kit, 2, &lost).await;
        spark.commit().await;
        if by_audit {
            let mut logged =
                Logged { root: kit.table.root.clone(), version: Version(2), file: LogFile::Commit, etag: None };
            logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
            assert_eq!(audit(kit.ctx(), &[logged]).await, [Ok(Audited::AsRecorded)]);
        } else {
            keep_house(kit.ctx(), &kit.table.root).await.unwrap();
        }
        assert_eq!(alarms(&kit).await, [AlarmKind::CommitOvertaken]);
        assert_eq!(kit.table.world.queue.len(QueueName::Commits), 1);
        let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
        assert_eq!(head.log_store, LogStore::Shared);
        assert_eq!(append(&kit, 3, 3).await, "committed 3");
        assert_eq!(entries(&kit, 3).await, both("true"));
    }
}

#[tokio::test]
async fn what_may_be_of_the_table_before_is_reported_and_not_proposed_again() {
    let kit = shared_table().await;
    assert_eq!(append(&kit, 1, 1).await, "committed 1");
    kit.table.world.clock.advance_ms(5_000);
    // Written for the table that is gone, in the second in which another one takes its place.
    let lost = [kit.file("spark.parquet").await, append_info()];
    let spark = Spark::begin(&kit, 2, &lost).await;
    kit.table.delete_log(0).await;
    kit.table.delete_log(1).await;
    kit.table.log(0, &creation_of("99999999-9999-4999-8999-999999999999", &[], json!({}))).await;
    for version in [1, 2] {
        kit.table.log(version, &[kit.file(&format!("new-{version}.parquet")).await, append_info()]).await;
    }
    kit.table.world.clock.advance_ms(1_000);
    assert_eq!(append(&kit, 3, 3).await, "committed 3");
    spark.commit().await;
    keep_house(kit.ctx(), &kit.table.root).await.unwrap();
    assert_eq!(alarms(&kit).await, [AlarmKind::CommitOvertaken]);
    assert_eq!(kit.table.world.queue.len(QueueName::Commits), 0);
    assert_eq!(kit.versions(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn the_first_entry_of_spark_that_stands_before_our_claim_wins() {
    for process in ["warm", "cold"] {
        let kit = Kit::unpartitioned(json!({})).await;
        assert_eq!(append(&kit, 1, 1).await, "committed 1");
        assert_eq!(append(&kit, 2, 2).await, "committed 2");
        let spark = Spark::begin(&kit, 3, &[kit.file("spark.parquet").await, append_info()]).await;
        let kit = if process == "warm" { kit.clone() } else { kit.cold() };
        assert_eq!(append(&kit, 3, 3).await, "committed 4", "{process}");
        assert!(kit.table.version(3).await.unwrap().windows(13).any(|window| window == b"spark.parquet"));
        let head = head::load(&*kit.table.world.items, &kit.table.root).await.unwrap().unwrap();
        assert_eq!(head.log_store, LogStore::Shared);
        assert_eq!(entries(&kit, 4).await, both("true"));
        spark.commit().await;
        assert_complete(&kit).await;
        assert_eq!(alarms(&kit).await, []);
    }
}
