//! Partition indexes on the wire, and what the worker makes of them.

use serde_json::{Value, json};

use super::{Wire, in_table, table_input};
use crate::catalog::purge::{LONGEST_FUNCTION_MS, LONGEST_WRITER_MS, Outcome, SETTLED_MS};
use crate::catalog::tables::find_table;
use crate::catalog::{CatalogWork, IndexState, TableRef};
use crate::partition::PartitionInput;
use crate::store::{ItemUsage, QueueName, ReadItems};

const KEYS: [(&str, &str); 3] = [("year", "int"), ("region", "string"), ("day", "date")];

impl Wire {
    pub(super) async fn head(&self) -> TableRef {
        find_table(&*self.world.items, &*self.world.clock, "d", "t").await.unwrap()
    }

    pub(super) async fn create_index(&self, name: &str, keys: &[&str]) {
        self.ok("CreatePartitionIndex", in_table(json!({ "PartitionIndex": index(name, keys) }))).await;
    }

    /// Works until no index is being created.
    pub(super) async fn until_active(&self) {
        while self.head().await.indexes.iter().any(|index| index.state == IndexState::Creating) {
            self.work_once().await;
            self.world.clock.advance_ms(LONGEST_WRITER_MS + SETTLED_MS);
        }
    }

    async fn refused(&self, name: &str, keys: &[&str]) -> (String, String) {
        self.fails("CreatePartitionIndex", in_table(json!({ "PartitionIndex": index(name, keys) }))).await
    }

    /// Name and status of every index that is shown.
    async fn indexes(&self) -> Vec<(String, String)> {
        let answer = self.ok("GetPartitionIndexes", in_table(json!({}))).await;
        let text = |index: &Value, name: &str| index[name].as_str().unwrap().to_owned();
        let list = answer["PartitionIndexDescriptorList"].as_array().unwrap();
        list.iter().map(|index| (text(index, "IndexName"), text(index, "IndexStatus"))).collect()
    }

    /// Partition keys of everything stored about partitions, as `<epoch>#<kind>`.
    pub(super) fn kinds(&self) -> Vec<String> {
        let parts = |pk: String| pk.split('#').skip(1).take(2).collect::<Vec<_>>().join("#");
        let all = self.world.items.dump().into_keys().filter(|key| key.table == crate::store::Table::Partitions);
        all.map(|key| parts(key.pk)).collect()
    }

    pub(super) fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|found| *found == kind).count()
    }

    pub(super) fn open_work(&self) -> usize {
        self.world.items.dump().keys().filter(|key| key.pk == "work").count()
    }

    /// Carries out the oldest message, without moving the clock.
    pub(super) async fn work_once(&self) -> Option<Outcome> {
        let message = self.world.queue.take(QueueName::CatalogWork)?;
        Some(self.work(&message).await)
    }
}

pub(super) fn index(name: &str, keys: &[&str]) -> Value {
    json!({ "IndexName": name, "Keys": keys })
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect()
}

async fn with_rows(count: usize) -> Wire {
    let wire = Wire::with_table(&KEYS).await;
    for n in 0..count {
        wire.create(&[&n.to_string(), "eu", &format!("2024-01-{:02}", 1 + n % 28)]).await;
    }
    wire
}

#[tokio::test]
async fn an_index_is_created_filled_and_deleted() {
    let wire = with_rows(20).await;
    wire.create_index("By_Day", &["DAY", "region"]).await;
    assert_eq!(wire.indexes().await, pairs(&[("by_day", "CREATING")]));
    wire.create(&["100", "us", "2025-01-01"]).await;
    assert_eq!(wire.count("1#i1"), 1, "writes keep entries from now on");
    // Requests that began before it may still write, and it does not say that it is there before it is.
    for wait_ms in [0, LONGEST_WRITER_MS + SETTLED_MS - 1] {
        wire.world.clock.advance_ms(wait_ms);
        assert_eq!(wire.work_once().await, Some(Outcome::Continued));
        assert_eq!(wire.indexes().await, pairs(&[("by_day", "CREATING")]));
    }
    wire.world.clock.advance_ms(1);
    assert_eq!(wire.work_once().await, Some(Outcome::Done));
    assert_eq!(wire.indexes().await, pairs(&[("by_day", "ACTIVE")]));
    assert_eq!((wire.count("1#i1"), wire.count("1#p")), (21, 21));
    assert!(wire.head().await.indexes[0].is_complete);
    assert_eq!((wire.open_work(), wire.world.queue.len(QueueName::CatalogWork)), (0, 0));
    let shown = wire.ok("GetPartitionIndexes", in_table(json!({}))).await;
    let keys = json!([{ "Name": "day", "Type": "date" }, { "Name": "region", "Type": "string" }]);
    assert_eq!(shown["PartitionIndexDescriptorList"][0]["Keys"], keys);

    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["100", "us", "2025-01-01"] }))).await;
    assert_eq!(wire.count("1#i1"), 20);
    wire.ok("DeletePartitionIndex", in_table(json!({ "IndexName": "BY_DAY" }))).await;
    assert_eq!(wire.indexes().await, pairs(&[("by_day", "DELETING")]));
    assert_eq!(wire.work_once().await, Some(Outcome::Continued));
    assert_eq!(wire.indexes().await, [], "gone for callers");
    assert_eq!(wire.count("1#i1"), 20, "requests that read the head before still use it");
    wire.create_index("by_day", &["day", "region"]).await;
    assert_eq!(wire.head().await.indexes[1].number, 2, "another one");
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    wire.work_off().await;
    assert_eq!((wire.count("1#i1"), wire.count("1#i2"), wire.open_work()), (0, 20, 0));
    let head = wire.head().await;
    assert_eq!(head.indexes.len(), 1);
    assert!(head.indexes[0].is_complete && head.indexes[0].state == IndexState::Active);
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_the_recorded_words() {
    let wire = with_rows(0).await;
    let (invalid, exists) = ("InvalidInputException".to_owned(), "AlreadyExistsException".to_owned());
    let (missing, limit) = ("EntityNotFoundException".to_owned(), "ResourceNumberLimitExceededException".to_owned());
    let wrong = "IndexKeys not a part of PartitionColumns. Verify the indexKeys : [Month]".to_owned();
    assert_eq!(wire.refused("a", &["year", "Month"]).await, (invalid.clone(), wrong));
    assert_eq!(wire.refused("a", &["year", "YEAR"]).await.0, invalid);
    let delete = |name: &str| in_table(json!({ "IndexName": name }));
    let unknown = |name: &str| (missing.clone(), format!("Index with the given indexName : {name} does not exist."));
    assert_eq!(wire.fails("DeletePartitionIndex", delete("a")).await, unknown("a"));

    wire.create_index("a", &["year"]).await;
    let busy = "Index a is in CREATING state. Only 1 index can be created or deleted simultaneously per table.";
    assert_eq!(wire.refused("b", &["day"]).await, (limit.clone(), busy.to_owned()));
    assert_eq!(wire.fails("DeletePartitionIndex", delete("a")).await, unknown("a"), "not while it is being created");
    for (name, keys) in [("b", &["day"][..]), ("c", &["day", "year"])] {
        wire.until_active().await;
        wire.create_index(name, keys).await;
    }
    wire.until_active().await;
    let full = (limit.clone(), "Partition index limit exceeded. Maximum: 3".to_owned());
    assert_eq!(wire.refused("a", &["year"]).await, full, "before what else is wrong with it");
    wire.ok("DeletePartitionIndex", delete("c")).await;
    let busy = "Index c is in DELETING state. Only 1 index can be created or deleted simultaneously per table.";
    assert_eq!(wire.refused("d", &["region"]).await, (limit.clone(), busy.to_owned()));
    assert_eq!(wire.fails("DeletePartitionIndex", delete("a")).await, (limit, busy.to_owned()));
    assert_eq!(wire.fails("DeletePartitionIndex", delete("c")).await, unknown("c"));
    while wire.indexes().await.len() > 2 {
        wire.work_once().await;
    }
    let same = |what: &str, name: &str| format!("Partition Index {name} already exists with the same {what}.");
    assert_eq!(wire.refused("A", &["region"]).await, (exists.clone(), same("name", "A")));
    assert_eq!(wire.refused("d", &["Day"]).await, (exists, same("keys", "b")));
    wire.create_index("d", &["year", "day"]).await;
    assert_eq!(wire.fails("GetPartitionIndexes", in_table(json!({ "NextToken": "x" }))).await.0, invalid);
}

#[tokio::test]
async fn a_table_can_be_created_with_indexes() {
    let wire = Wire::new();
    wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": "d" } })).await;
    let create = |indexes: Value| json!({ "DatabaseName": "d", "TableInput": table_input("t", &KEYS), "PartitionIndexes": indexes });
    let four =
        json!([index("a", &["year"]), index("b", &["day"]), index("c", &["region"]), index("e", &["day", "year"])]);
    assert_eq!(wire.fails("CreateTable", create(four)).await.0, "ResourceNumberLimitExceededException");
    let twice = json!([index("a", &["year"]), index("A", &["day"])]);
    assert_eq!(wire.fails("CreateTable", create(twice)).await.0, "AlreadyExistsException");
    assert_eq!(wire.fails("CreateTable", create(json!([index("a", &["no"])]))).await.0, "InvalidInputException");
    let table = json!({ "DatabaseName": "d", "Name": "t" });
    assert_eq!(wire.fails("GetTable", table).await.0, "EntityNotFoundException");
    wire.ok("CreateTable", create(json!([index("b", &["day"]), index("A", &["year", "region"])]))).await;
    assert_eq!(wire.indexes().await, pairs(&[("a", "ACTIVE"), ("b", "ACTIVE")]), "by name");
    assert!(wire.head().await.indexes.iter().all(|index| index.is_complete), "nobody knows the table without them");
    wire.create(&["2024", "eu", "2024-01-01"]).await;
    assert_eq!((wire.count("1#i1"), wire.count("1#i2"), wire.open_work()), (1, 1, 0));
}

#[tokio::test]
async fn what_a_late_writer_adds_gets_its_entry() {
    let wire = with_rows(3).await;
    let before = wire.head().await;
    wire.create_index("a", &["day"]).await;
    let create = |table: TableRef, year: &'static str| {
        let values = vec![year.to_owned(), "eu".to_owned(), "2024-02-02".to_owned()];
        let (ports, settings) = (wire.app.ports.clone(), wire.app.settings.clone());
        let input = PartitionInput { values, ..Default::default() };
        async move { crate::partition::create(&ports, &settings, &table, input).await.unwrap() }
    };
    wire.work_once().await;
    create(before.clone(), "2000").await;
    assert_eq!((wire.count("1#p"), wire.count("1#i1")), (4, 0));
    wire.world.clock.advance_ms(LONGEST_WRITER_MS + SETTLED_MS);
    assert_eq!(wire.work_once().await, Some(Outcome::Done));
    assert_eq!(wire.count("1#i1"), 4);

    let before = wire.head().await;
    wire.ok("DeletePartitionIndex", in_table(json!({ "IndexName": "a" }))).await;
    wire.work_once().await;
    create(before, "2001").await;
    assert_eq!(wire.count("1#i1"), 5);
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    wire.work_off().await;
    assert_eq!((wire.count("1#i1"), wire.head().await.indexes.len()), (0, 0));
}

#[tokio::test]
async fn a_dropped_table_leaves_nothing_of_its_indexes_and_history() {
    let wire = with_rows(5).await;
    wire.create_index("a", &["day"]).await;
    wire.until_active().await;
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["1", "eu", "2024-01-02"] }))).await;
    wire.ok("DeletePartitionIndex", in_table(json!({ "IndexName": "a" }))).await;
    let update = table_input("t", &[("year", "string")]);
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": update })).await;
    wire.create(&["new"]).await;
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    assert_eq!(wire.kinds().len(), 10);
    let lost: Vec<String> = std::iter::from_fn(|| wire.world.queue.take(QueueName::CatalogWork)).collect();
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    // Whatever the order: the work on the table ends, for it is gone, and the tombstone has the rest.
    for message in &lost {
        wire.work(message).await;
    }
    wire.work_off().await;
    assert_eq!(wire.kinds(), Vec::<String>::new());
    assert_eq!(wire.open_work(), 0);
    for message in &lost {
        assert_eq!(wire.work(message).await, Outcome::NothingToDo);
    }
}

fn requests(usage: ItemUsage) -> [u64; 6] {
    [usage.batch_gets, usage.gets, usage.queries, usage.puts, usage.deletes, usage.transactions]
}

#[tokio::test]
async fn indexes_cost_what_they_should() {
    let wire = with_rows(40).await;
    let usage = || wire.world.items.item_usage();
    let before = usage();
    wire.create_index("a", &["day"]).await;
    let cost = usage().since(&before);
    assert_eq!(requests(cost), [1, 0, 0, 0, 0, 1], "heads; head and record of the work");
    assert_eq!((cost.read_half_units, cost.write_units), (4, 4));

    let before = usage();
    wire.work_once().await;
    let cost = usage().since(&before);
    assert_eq!(requests(cost), [1, 1, 0, 2, 0, 0], "the record, claimed and left for later; heads");
    assert_eq!(cost.write_units, 2);

    wire.world.clock.advance_ms(LONGEST_WRITER_MS + SETTLED_MS);
    let before = usage();
    assert_eq!(wire.work_once().await, Some(Outcome::Done));
    let cost = usage().since(&before);
    // The record, claimed and removed; heads before and after the pass and for the change of state; a query for each shard,
    // the entries of those that have rows in one batch get each, and a transaction for each that is missing.
    let shards = 16;
    let filled = filled_shards(&wire);
    assert_eq!(requests(cost), [3 + filled, 1, shards, 2, 1, 40]);
    assert_eq!(cost.write_units, 3 + 40 * 4);

    let before = usage();
    wire.create(&["100", "eu", "2024-01-01"]).await;
    assert_eq!(requests(usage().since(&before)), [1, 0, 0, 0, 0, 1], "the partition and its entry");
    let work = CatalogWork::SettleTable(wire.head().await.table_id).to_message();
    let before = usage();
    assert_eq!(wire.work(&work).await, Outcome::NothingToDo);
    assert_eq!(requests(usage().since(&before)), [0, 1, 0, 0, 0, 0], "a message delivered again");
}

/// Shards that hold partitions.
fn filled_shards(wire: &Wire) -> u64 {
    let all = wire.world.items.dump().into_keys().filter(|key| key.pk.contains("#p#"));
    u64::try_from(all.map(|key| key.pk).collect::<std::collections::BTreeSet<_>>().len()).unwrap()
}

/// The message that asks for the work is lost, and the schedule finds the record hours later: nobody can know the table without
/// the index any more.
#[tokio::test]
async fn what_is_found_late_is_not_waited_for() {
    let wire = with_rows(3).await;
    wire.create_index("a", &["day"]).await;
    let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
    wire.world.clock.advance_ms(3_600_000);
    assert_eq!(wire.work(&message).await, Outcome::Done);
    assert_eq!(wire.indexes().await, pairs(&[("a", "ACTIVE")]));
    assert_eq!(wire.count("1#i1"), 3);
}

#[tokio::test]
async fn an_index_is_no_longer_active_while_its_entries_are_written_anew() {
    let wire = with_rows(3).await;
    wire.create_index("a", &["day"]).await;
    wire.until_active().await;
    wire.change_keys(&[("year", "int"), ("region", "string"), ("day", "string")]).await;
    assert_eq!(wire.indexes().await, pairs(&[("a", "CREATING")]));
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    wire.work_once().await;
    assert_eq!(wire.indexes().await, pairs(&[("a", "ACTIVE")]));
    assert_eq!((wire.count("1#i1"), wire.count("2#i1")), (0, 3));
    wire.change_keys(&[("year", "int"), ("region", "string"), ("day", "int")]).await;
    wire.ok("DeletePartitionIndex", in_table(json!({ "IndexName": "a" }))).await;
}
