//! What a drop leaves: nothing that can be reached, and after the worker's passes nothing at all.

use serde_json::json;

use super::{Wire, in_table, table_input};
use crate::catalog::purge::{self, LONGEST_FUNCTION_MS, Outcome};
use crate::catalog::{CatalogWork, locations};
use crate::location::Location;
use crate::ports::Deadline;
use crate::store::{Key, QueueName, Table};

impl Wire {
    pub(super) fn soon(&self) -> Deadline {
        Deadline::in_ms(self.app.ports.clock.as_ref(), 60_000)
    }

    pub(super) async fn work(&self, message: &str) -> Outcome {
        purge::carry_out(&self.app.ports, &CatalogWork::parse(message).unwrap(), self.soon()).await.unwrap()
    }

    /// Works until the queue is empty, as late as messages asked for.
    pub(super) async fn work_off(&self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while let Some(message) = self.world.queue.take(QueueName::CatalogWork) {
            let outcome = self.work(&message).await;
            outcomes.push(outcome);
            self.world.clock.advance_ms(LONGEST_FUNCTION_MS);
        }
        outcomes
    }

    /// Everything stored but the key of page tokens.
    /// Where the files of dropped tables are stays known until they are gone, or not wanted.
    fn left(&self) -> Vec<Key> {
        let kept = ["settings", "dropped-tables"];
        self.world.items.dump().into_keys().filter(|key| !kept.contains(&key.pk.as_str())).collect()
    }
}

#[tokio::test]
async fn a_dropped_table_is_gone_and_its_successor_empty() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for n in 0..60 {
        wire.create(&[&n.to_string()]).await;
    }
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "T" })).await;
    assert_eq!(wire.fails("GetPartitions", in_table(json!({}))).await.1, "Table t not found.");
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", &[("n", "int")]) })).await;
    assert!(wire.list(10).await.is_empty());
    wire.create(&["1"]).await;
    // First pass removes, second finds nothing and is late enough.
    assert_eq!(wire.work_off().await, [Outcome::Continued, Outcome::Done]);
    assert_eq!(wire.list(10).await, [["1"]]);
    let partitions = wire.left().into_iter().filter(|key| key.table == Table::Partitions).count();
    assert_eq!(partitions, 1, "the successor's");
    assert!(wire.left().iter().all(|key| key.pk != "dropped"));
}

#[tokio::test]
async fn what_a_late_writer_adds_is_removed_by_the_next_pass() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let table = crate::catalog::tables::find_table(&*wire.world.items, &*wire.world.clock, "d", "t").await.unwrap();
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
    assert_eq!(wire.work(&message).await, Outcome::Continued, "too early to be the last pass");
    // A request that resolved the table before the drop.
    let late = crate::partition::PartitionInput { values: vec!["7".to_owned()], ..Default::default() };
    crate::partition::create(&wire.app.ports, &wire.app.settings, &table, late).await.unwrap();
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    assert_eq!(wire.work_off().await, [Outcome::Continued, Outcome::Done]);
    assert!(wire.left().iter().all(|key| key.table != Table::Partitions));
    assert_eq!(wire.work(&message).await, Outcome::NothingToDo, "delivered once more");
}

#[tokio::test]
async fn a_live_table_is_not_purged() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    let table = crate::catalog::tables::find_table(&*wire.world.items, &*wire.world.clock, "d", "t").await.unwrap();
    for work in [CatalogWork::PurgeTable(table.table_id), CatalogWork::PurgeDatabase(table.database_id)] {
        let error = purge::carry_out(&wire.app.ports, &work, wire.soon()).await.unwrap_err();
        assert!(error.to_string().contains("is live"), "{error}");
    }
    assert_eq!(wire.list(10).await.len(), 1);
}

#[tokio::test]
async fn a_pass_without_time_goes_on_in_a_new_message() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
    let work = CatalogWork::parse(&message).unwrap();
    let over = Deadline::in_ms(wire.app.ports.clock.as_ref(), 100);
    assert_eq!(purge::carry_out(&wire.app.ports, &work, over).await.unwrap(), Outcome::Continued);
    assert_eq!(wire.world.queue.take(QueueName::CatalogWork), Some(message.clone()));
    assert_eq!(wire.work(&message).await, Outcome::Continued);
}

#[tokio::test]
async fn a_dropped_database_takes_everything_with_it() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": table_input("u", &[("n", "int")]) })).await;
    wire.ok("DeleteDatabase", json!({ "Name": "D" })).await;
    assert_eq!(wire.fails("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await.1, "Database d not found.");
    let lake = Location::new("lake", "");
    let located = locations::tables_within(&*wire.world.items, &*wire.world.clock, &lake).await.unwrap();
    assert!(located.is_empty(), "unreachable at once, by place as well");

    // Created again, with a table of the same name, before the worker came.
    wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": "d" } })).await;
    assert_eq!(wire.ok("GetTables", json!({ "DatabaseName": "d" })).await["TableList"], json!([]));
    assert_eq!(wire.fails("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await.1, "Table t not found.");
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", &[("n", "int")]) })).await;
    assert!(wire.list(10).await.is_empty());
    wire.create(&["5"]).await;
    wire.work_off().await;
    assert_eq!(wire.list(10).await, [["5"]]);
    let located = locations::tables_within(&*wire.world.items, &*wire.world.clock, &lake).await.unwrap();
    assert_eq!(located.len(), 1);

    wire.ok("DeleteDatabase", json!({ "Name": "d" })).await;
    wire.work_off().await;
    assert_eq!(wire.left(), []);
}

#[tokio::test]
async fn lost_messages_are_found_by_their_tombstones() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.ok("DeleteDatabase", json!({ "Name": "d" })).await;
    wire.world.queue.take(QueueName::CatalogWork).unwrap();
    for _ in 0..10 {
        for work in purge::list_work(&*wire.world.items, &*wire.world.clock).await.unwrap() {
            purge::carry_out(&wire.app.ports, &work, wire.soon()).await.unwrap();
        }
        while wire.world.queue.take(QueueName::CatalogWork).is_some() {}
        wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    }
    assert_eq!(wire.left(), []);
}

#[tokio::test]
async fn tables_are_found_by_place() {
    let wire = Wire::with_table(&[]).await;
    let at = |name: &str, location: &str| json!({ "DatabaseName": "d", "TableInput": { "Name": name, "StorageDescriptor": { "Location": location } } });
    for (name, location) in [
        ("root", "s3://lake"),
        ("orders", "s3a://lake/wh/orders/"),
        ("orders_v2", "s3://lake/wh/orders_v2"),
        ("nested", "s3://lake/wh/orders/archive"),
        ("twin", "s3://lake/wh/orders"),
        ("other", "s3://pond/wh/orders"),
        ("nowhere", "hdfs://lake/wh/orders"),
    ] {
        wire.world.clock.advance_ms(1);
        wire.ok("CreateTable", at(name, location)).await;
    }
    let (items, clock) = (&*wire.world.items, &*wire.world.clock);
    let names = |located: Vec<locations::Located>| {
        let mut names: Vec<String> = located.into_iter().map(|one| one.table.name).collect();
        names.sort();
        names
    };
    let orders = Location::new("lake", "wh/orders");
    assert_eq!(locations::table_at(items, clock, &orders).await.unwrap().unwrap().name, "orders", "the older twin");
    assert_eq!(names(locations::tables_at(items, clock, &orders).await.unwrap()), ["orders", "twin"]);
    assert_eq!(names(locations::tables_within(items, clock, &orders).await.unwrap()), ["nested", "orders", "twin"]);
    let archive = Location::new("lake", "wh/orders/archive/2024");
    let containing = locations::tables_containing(items, clock, &archive).await.unwrap();
    assert_eq!(names(containing), ["nested", "orders", "root", "twin"]);
    let all = locations::tables_within(items, clock, &Location::new("lake", "")).await.unwrap();
    assert_eq!(names(all), ["nested", "orders", "orders_v2", "root", "t", "twin"]);
    assert_eq!(locations::table_at(items, clock, &Location::new("lake", "wh")).await.unwrap(), None);

    // Moved, then dropped.
    wire.ok("UpdateTable", at("orders", "s3://lake/elsewhere")).await;
    assert_eq!(names(locations::tables_at(items, clock, &orders).await.unwrap()), ["twin"]);
    assert_eq!(
        locations::table_at(items, clock, &Location::new("lake", "elsewhere")).await.unwrap().unwrap().name,
        "orders"
    );
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "twin" })).await;
    assert_eq!(locations::table_at(items, clock, &orders).await.unwrap(), None);
}
