//! Changing the partition keys of a table that has partitions.

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, table_input, values_of};
use crate::catalog::purge::{self, LONGEST_FUNCTION_MS, Outcome};
use crate::catalog::tables::find_table;
use crate::catalog::{CatalogWork, IndexState};
use crate::partition::PartitionInput;
use crate::ports::Deadline;
use crate::store::{ItemUsage, QueueName, ReadItems};

impl Wire {
    pub(super) async fn change_keys(&self, keys: &[(&str, &str)]) {
        self.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", keys) })).await;
    }

    async fn delete(&self, values: &[&str]) {
        self.ok("DeletePartition", in_table(json!({ "PartitionValues": values }))).await;
    }

    async fn get(&self, values: &[&str]) -> Value {
        self.ok("GetPartition", in_table(json!({ "PartitionValues": values }))).await["Partition"].clone()
    }

    fn drop_messages(&self) {
        while self.world.queue.take(QueueName::CatalogWork).is_some() {}
    }

    /// Does all that is recorded, as the schedule would find it, with the clock moving on.
    pub(super) async fn settle(&self) {
        for _ in 0..40 {
            self.drop_messages();
            self.world.clock.advance_ms(2 * LONGEST_FUNCTION_MS);
            let (items, clock) = (self.app.ports.items.as_ref(), self.app.ports.clock.as_ref());
            let work = purge::list_work(items, clock).await.unwrap();
            if work.is_empty() {
                return;
            }
            for one in work {
                purge::carry_out(&self.app.ports, &one, self.soon()).await.unwrap();
            }
        }
        panic!("the work does not end");
    }
}

async fn numbers(count: usize) -> Wire {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let inputs: Vec<Value> = (0..count).map(|n| partition_input(&[&n.to_string()])).collect();
    for batch in inputs.chunks(100) {
        wire.ok("BatchCreatePartition", in_table(json!({ "PartitionInputList": batch }))).await;
    }
    wire
}

#[tokio::test]
async fn a_swap_of_keys_works_at_every_moment() {
    // How far the worker has come when the client goes on: not at all, in the middle, or through.
    for progress in [0, 3, 9, 27, 1000] {
        let wire = Wire::with_table(&[("dt", "string"), ("region", "string")]).await;
        for n in 1..7 {
            wire.create(&[&format!("2024-01-0{n}"), "eu"]).await;
        }
        wire.change_keys(&[("dt", "date")]).await;
        wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
        wire.world.faults.crash_after(progress);
        let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
        let work = CatalogWork::parse(&message).unwrap();
        let _ = purge::carry_out(&wire.app.ports, &work, wire.soon()).await;
        wire.world.faults.revive();

        let old: Vec<Vec<String>> = (1..7).map(|n| vec![format!("2024-01-0{n}"), "eu".to_owned()]).collect();
        for page in [1, 2, 100] {
            assert_eq!(wire.list(page).await, old, "{progress} {page}");
        }
        for values in &old {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            assert_eq!(wire.get(&values).await["Values"], json!(values));
            wire.delete(&values).await;
            wire.create(&values[..1]).await;
            assert_eq!(wire.list(100).await.len(), 6);
        }
        let gone = in_table(json!({ "PartitionValues": ["2024-01-01", "eu"] }));
        assert_eq!(wire.fails("GetPartition", gone).await.0, "EntityNotFoundException");
        wire.settle().await;
        assert_eq!(wire.list(100).await, (1..7).map(|n| vec![format!("2024-01-0{n}")]).collect::<Vec<_>>());
        assert!(wire.head().await.older_epochs.is_empty());
    }
}

#[tokio::test]
async fn partitions_move_as_they_are_with_their_history() {
    let wire = numbers(5).await;
    wire.delete(&["4"]).await;
    let update =
        json!({ "PartitionValueList": ["3"], "PartitionInput": { "Values": ["3"], "Parameters": { "x": "y" } } });
    wire.ok("UpdatePartition", in_table(update)).await;
    let before: Vec<Value> = vec![wire.get(&["1"]).await, wire.get(&["3"]).await];
    wire.change_keys(&[("n", "string")]).await;
    assert_eq!((wire.head().await.epoch, wire.open_work()), (2, 1));
    assert_eq!(wire.work_once().await, Some(Outcome::Continued));
    assert_eq!(wire.count("1#p"), 4, "requests that read the earlier head look there and nowhere else");
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    assert_eq!(wire.work_once().await, Some(Outcome::Done));
    let mut kinds = wire.kinds();
    kinds.dedup();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["2#h", "2#p"]);
    assert_eq!((wire.count("2#h"), wire.count("2#p")), (2, 4));
    assert_eq!(vec![wire.get(&["1"]).await, wire.get(&["3"]).await], before, "revision and all");
    assert_eq!((wire.open_work(), wire.head().await.older_epochs.len()), (0, 0));
    assert_eq!(wire.head().await.version, 1, "the worker's changes are no versions");
}

#[tokio::test]
async fn names_alone_open_no_epoch() {
    let wire = numbers(3).await;
    wire.change_keys(&[("m", "bigint")]).await;
    assert_eq!((wire.head().await.epoch, wire.open_work()), (1, 0));
    assert_eq!(wire.list(2).await.len(), 3);
}

#[tokio::test]
async fn a_partition_is_one_in_all_epochs() {
    let wire = numbers(2).await;
    wire.change_keys(&[("n", "string")]).await;
    wire.change_keys(&[("n", "decimal")]).await;
    let again = in_table(json!({ "PartitionInput": partition_input(&["1"]) }));
    assert_eq!(wire.fails("CreatePartition", again).await.0, "AlreadyExistsException");
    wire.delete(&["1"]).await;
    wire.create(&["1"]).await;
    let update =
        json!({ "PartitionValueList": ["0"], "PartitionInput": { "Values": ["0"], "Parameters": { "x": "y" } } });
    wire.ok("UpdatePartition", in_table(update)).await;
    assert_eq!(wire.get(&["0"]).await["Parameters"], json!({ "x": "y" }));
    let moved = json!({ "PartitionValueList": ["0"], "PartitionInput": partition_input(&["5"]) });
    wire.ok("UpdatePartition", in_table(moved)).await;
    assert_eq!(wire.list(1).await, [["1"], ["5"]]);
    wire.settle().await;
    assert_eq!(wire.list(1).await, [["1"], ["5"]]);
    assert_eq!(wire.count("3#p"), 2);
}

#[tokio::test]
async fn keys_that_change_too_often_are_refused_until_the_worker_has_caught_up() {
    let wire = numbers(2).await;
    for n in 0..8 {
        wire.change_keys(&[("n", if n % 2 == 0 { "string" } else { "int" })]).await;
    }
    let update = json!({ "DatabaseName": "d", "TableInput": table_input("t", &[("n", "string")]) });
    assert_eq!(wire.fails("UpdateTable", update.clone()).await.0, "ResourceNotReadyException");
    assert_eq!(wire.list(1).await.len(), 2);
    wire.settle().await;
    wire.ok("UpdateTable", update).await;
}

/// Every partition once and in order, whichever epoch it is in, with pages of every size and segments.
#[tokio::test]
async fn listings_go_across_epochs() {
    let orders: [(&str, &[(&str, &str)]); 3] =
        [("another order", &[("n", "string")]), ("one more key", &[("n", "int"), ("m", "string")]), ("none", &[])];
    for (what, keys) in orders {
        let wire = numbers(130).await;
        wire.change_keys(keys).await;
        let mut expected: Vec<Vec<String>> = (0..130).map(|n| vec![n.to_string()]).collect();
        if what != "one more key" {
            expected.sort();
        }
        if what == "another order" {
            for n in 200..230 {
                wire.create(&[&n.to_string()]).await;
                expected.push(vec![n.to_string()]);
            }
            expected.sort();
        }
        for page in [1, 40, 129, 1000] {
            assert_eq!(wire.list(page).await, expected, "{what} {page}");
        }
        let mut parts = Vec::new();
        for number in 0..3 {
            let segment = json!({ "Segment": { "SegmentNumber": number, "TotalSegments": 3 } });
            parts.extend(values_of(&wire.ok("GetPartitions", in_table(segment)).await["Partitions"]));
        }
        parts.sort();
        expected.sort();
        assert_eq!(parts, expected, "{what}");
    }
}

#[tokio::test]
async fn pages_of_an_earlier_epoch_in_the_same_order_read_what_they_show() {
    let wire = numbers(400).await;
    wire.change_keys(&[("n", "int"), ("m", "string")]).await;
    let cost = |usage: ItemUsage| (usage.queries, usage.read_half_units);
    let before = wire.world.items.item_usage();
    let page = wire.ok("GetPartitions", in_table(json!({ "MaxResults": 16 }))).await;
    let (queries, half_units) = cost(wire.world.items.item_usage().since(&before));
    assert_eq!(page["Partitions"].as_array().unwrap().len(), 16);
    assert!(queries <= 16 + 32 && half_units < 150, "{queries} {half_units}");
}

/// A walk that began before the worker did and ends after it.
#[tokio::test]
async fn a_walk_goes_on_while_the_worker_moves() {
    for keys in [&[("n", "string")][..], &[("n", "int"), ("m", "date")]] {
        let wire = numbers(60).await;
        wire.change_keys(keys).await;
        wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
        let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
        let work = CatalogWork::parse(&message).unwrap();
        let (mut seen, mut token) = (Vec::new(), Value::Null);
        loop {
            let input = in_table(json!({ "MaxResults": 4, "NextToken": token }));
            let page = wire.ok("GetPartitions", input).await;
            seen.extend(values_of(&page["Partitions"]));
            token = page["NextToken"].clone();
            if token.is_null() {
                break;
            }
            wire.world.faults.crash_after(60);
            let _ = purge::carry_out(&wire.app.ports, &work, wire.soon()).await;
            wire.world.faults.revive();
        }
        assert_eq!(wire.count("1#p"), 0, "it overtook the walk");
        let mut all = seen.clone();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), seen.len()), (60, 60));
    }
}

#[tokio::test]
async fn a_crash_between_any_two_calls_loses_nothing() {
    let mut calls = 0;
    loop {
        let wire = Wire::with_table(&[("n", "int"), ("m", "string")]).await;
        for n in 0..3 {
            wire.create(&[&n.to_string(), "x"]).await;
        }
        wire.delete(&["2", "x"]).await;
        wire.create_index("a", &["m"]).await;
        wire.create_index_after_work("b", &["n"]).await;
        wire.ok("DeletePartitionIndex", in_table(json!({ "IndexName": "a" }))).await;
        wire.change_keys(&[("m", "string"), ("n", "int")]).await;
        wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
        let work = CatalogWork::SettleTable(wire.head().await.table_id);
        wire.drop_messages();
        let before = wire.world.faults.calls().len();
        wire.world.faults.crash_after(calls);
        let outcome = purge::carry_out(&wire.app.ports, &work, wire.soon()).await;
        wire.world.faults.revive();
        let made = wire.world.faults.calls().len() - before;
        assert_eq!(wire.list(10).await, [["0", "x"], ["1", "x"]], "after {calls} calls");
        wire.settle().await;
        let mut kinds = wire.kinds();
        kinds.sort();
        assert_eq!(kinds, ["2#h", "2#i2", "2#i2", "2#p", "2#p"], "after {calls} calls");
        let head = wire.head().await;
        assert!(head.older_epochs.is_empty() && wire.open_work() == 0);
        assert!(matches!(head.indexes.as_slice(), [index] if index.is_complete && index.state == IndexState::Active));
        assert_eq!(wire.list(10).await, [["0", "x"], ["1", "x"]]);
        if outcome.is_ok() {
            assert!(made > 20, "the whole run was crashed at every call");
            break;
        }
        calls += 1;
    }
}

impl Wire {
    async fn create_index_after_work(&self, name: &str, keys: &[&str]) {
        self.until_active().await;
        self.create_index(name, keys).await;
        self.until_active().await;
    }
}

#[tokio::test]
async fn work_stops_before_the_time_is_up_and_goes_on_where_it_was() {
    let wire = numbers(30).await;
    wire.change_keys(&[("n", "string")]).await;
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
    let work = CatalogWork::parse(&message).unwrap();
    let over = Deadline::in_ms(wire.app.ports.clock.as_ref(), 100);
    for _ in 0..3 {
        assert_eq!(purge::carry_out(&wire.app.ports, &work, over).await.unwrap(), Outcome::Continued);
        assert_eq!(wire.world.queue.take(QueueName::CatalogWork), Some(message.clone()));
    }
    assert_eq!(wire.count("1#p"), 30);
    // Not while a message is on its way; then the schedule takes it up.
    let listed = || purge::list_work(wire.app.ports.items.as_ref(), wire.app.ports.clock.as_ref());
    assert_eq!(listed().await.unwrap(), []);
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    assert_eq!(listed().await.unwrap(), std::slice::from_ref(&work));
    assert_eq!(wire.work(&message).await, Outcome::Done);
    assert_eq!(wire.work(&message).await, Outcome::NothingToDo, "delivered once more");
    assert_eq!(wire.count("2#p"), 30);
}

#[tokio::test]
async fn of_two_workers_one_goes_on() {
    let wire = numbers(30).await;
    wire.change_keys(&[("n", "string")]).await;
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    let message = wire.world.queue.take(QueueName::CatalogWork).unwrap();
    let work = CatalogWork::parse(&message).unwrap();
    // The second one takes the work over while the first is at it: its claim is what the first one's last write meets.
    wire.change_keys(&[("n", "int")]).await;
    wire.drop_messages();
    let first = purge::carry_out(&wire.app.ports, &work, wire.soon());
    let second = purge::carry_out(&wire.app.ports, &work, wire.soon());
    let (first, second) = tokio::join!(first, second);
    let outcomes = [first.unwrap(), second.unwrap()];
    assert!(outcomes.contains(&Outcome::Continued), "{outcomes:?}");
    wire.settle().await;
    assert_eq!((wire.count("3#p"), wire.list(10).await.len()), (30, 30));
}

/// Requests that read the head before the keys changed.
#[tokio::test]
async fn late_requests_find_and_leave_everything_where_it_belongs() {
    let wire = numbers(3).await;
    let (ports, settings) = (&wire.app.ports, &wire.app.settings);
    let before = find_table(&*wire.world.items, &*wire.world.clock, "d", "t").await.unwrap();
    wire.change_keys(&[("n", "string")]).await;
    wire.work_once().await;
    let of = |value: &str| vec![value.to_owned()];
    crate::partition::get(ports, &before, &of("1")).await.unwrap();
    let late = PartitionInput { values: of("7"), ..Default::default() };
    crate::partition::create(ports, settings, &before, late.clone()).await.unwrap();
    crate::partition::delete(ports, settings, &before, &of("2"), None).await.unwrap();
    assert_eq!(wire.list(1).await, [["0"], ["1"], ["7"]]);
    // Created by both: readers see the one that knows the current keys.
    wire.create(&["8"]).await;
    let double = PartitionInput { values: of("8"), ..Default::default() };
    crate::partition::create(ports, settings, &before, double).await.unwrap();
    let kept = wire.get(&["8"]).await;
    assert_eq!(wire.list(1).await, [["0"], ["1"], ["7"], ["8"]]);
    wire.settle().await;
    assert_eq!(wire.list(1).await, [["0"], ["1"], ["7"], ["8"]]);
    assert_eq!(wire.get(&["8"]).await, kept);
    assert_eq!((wire.count("1#p"), wire.count("2#p")), (0, 4));
}

#[tokio::test]
async fn re_keying_costs_what_it_should() {
    let wire = numbers(50).await;
    wire.change_keys(&[("n", "string")]).await;
    wire.world.clock.advance_ms(LONGEST_FUNCTION_MS);
    let before = wire.world.items.item_usage();
    assert_eq!(wire.work_once().await, Some(Outcome::Done));
    let cost = wire.world.items.item_usage().since(&before);
    // The record, claimed and removed; heads before and after each of two passes, and at the end; in each pass one query
    // for each of 16 shards of partitions and of history; one transaction of two for each partition.
    assert_eq!([cost.batch_gets, cost.gets, cost.queries], [5, 1, 2 * 32]);
    assert_eq!([cost.puts, cost.deletes, cost.transactions], [2, 1, 50]);
    assert_eq!(cost.write_units, 3 + 50 * 4);
}
