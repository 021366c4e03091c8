use lakewarden_core::glue;
use lakewarden_core::ports::Settings;
use lakewarden_core::store::StoreErrorKind;
use lakewarden_core::store::memory::{Fault, MemoryWorld};
use serde_json::json;

use super::*;

struct Work {
    world: MemoryWorld,
    app: App,
}

impl Work {
    /// A world in which table `d.t` with a partition was dropped.
    async fn new() -> Self {
        let world = MemoryWorld::new(0);
        let app = App::new(world.ports.clone(), Settings::default());
        for (operation, input) in [
            ("CreateDatabase", json!({ "DatabaseInput": { "Name": "d" } })),
            (
                "CreateTable",
                json!({ "DatabaseName": "d", "TableInput": { "Name": "t", "PartitionKeys": [{ "Name": "k" }] } }),
            ),
            (
                "CreatePartition",
                json!({ "DatabaseName": "d", "TableName": "t", "PartitionInput": { "Values": ["1"] } }),
            ),
            ("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })),
        ] {
            glue::call(&app, operation, input).await.unwrap();
        }
        Self { world, app }
    }

    async fn handle(&self, event: Value) -> Result<Value, HandlerError> {
        handle(&self.app, event, Deadline::in_ms(self.app.ports.clock.as_ref(), 60_000)).await
    }

    fn next(&self) -> Option<String> {
        self.world.queue.take(QueueName::CatalogWork)
    }

    fn partitions(&self) -> usize {
        self.world.items.dump().keys().filter(|key| key.table == lakewarden_core::store::Table::Partitions).count()
    }
}

fn batch(bodies: &[&str]) -> Value {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(at, body)| {
            json!({ "messageId": format!("m{at}"), "body": body, "attributes": {}, "messageAttributes": {},
                "eventSource": "aws:sqs", "awsRegion": "eu-west-1" })
        })
        .collect();
    json!({ "Records": records })
}

fn failed(answer: &Value) -> Vec<&str> {
    let failures = answer["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|failure| failure["itemIdentifier"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_dropped_table_is_purged() {
    let work = Work::new().await;
    assert_eq!(work.partitions(), 1);
    let mut rounds = 0;
    while let Some(message) = work.next() {
        let answer = work.handle(batch(&[&message])).await.unwrap();
        assert!(failed(&answer).is_empty());
        work.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
        rounds += 1;
    }
    assert_eq!((work.partitions(), rounds), (0, 2));
}

#[tokio::test]
async fn the_optimizer_of_a_dropped_table_goes_and_its_runs_stay_while_it_is_listed() {
    let work = Work::new().await;
    while work.next().is_some() {}
    let mark = json!({ "spark.sql.sources.provider": "delta" });
    let place = json!({ "Location": "s3://lake/swept" });
    let table = json!({ "Name": "swept", "Parameters": mark, "StorageDescriptor": place });
    let optimizer = json!({ "CatalogId": "000000000000", "DatabaseName": "d", "TableName": "swept",
        "Type": "orphan_file_deletion", "TableOptimizerConfiguration": { "orphanFileDeletionConfiguration": {} } });
    for (operation, input) in
        [("CreateTable", json!({ "DatabaseName": "d", "TableInput": table })), ("CreateTableOptimizer", optimizer)]
    {
        glue::call(&work.app, operation, input).await.unwrap();
    }
    let far = Deadline::in_ms(work.app.ports.clock.as_ref(), 60_000);
    assert_eq!(lakewarden_core::sweep::plan_due(&work.app, far).await.unwrap().started, 1);
    let left = |work: &Work| {
        let dump = work.world.items.dump();
        let kinds = dump
            .keys()
            .filter(|key| key.pk.starts_with("sweep"))
            .map(|key| key.pk.split('#').next().unwrap_or_default().to_owned());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(left(&work).len(), 2, "{:?}", left(&work));
    work.world.clock.advance_ms(1);
    glue::call(&work.app, "DeleteTable", json!({ "DatabaseName": "d", "Name": "swept" })).await.unwrap();
    while let Some(message) = work.next() {
        assert!(failed(&work.handle(batch(&[&message])).await.unwrap()).is_empty());
        work.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
    }
    // What its runs took away can come back as long as somebody may ask for it.
    assert_eq!(left(&work), ["sweep-runs"]);
}

#[tokio::test]
async fn one_bad_message_does_not_stop_the_batch() {
    let work = Work::new().await;
    let good = work.next().unwrap();
    let answer = work.handle(batch(&["nonsense", &good, r#"{"schema_version":1,"kind":"dance"}"#, ""])).await.unwrap();
    assert_eq!(failed(&answer), ["m0", "m2", "m3"]);
    assert_eq!(work.partitions(), 0);
}

#[tokio::test]
async fn a_live_table_and_a_busy_store_are_failures_of_their_message() {
    let work = Work::new().await;
    let good = work.next().unwrap();
    work.world.faults.inject("get catalog", 0, Fault::Before(StoreErrorKind::Throttled));
    assert_eq!(failed(&work.handle(batch(&[&good])).await.unwrap()), ["m0"]);
    let table = json!({ "DatabaseName": "d", "TableInput": { "Name": "live" } });
    glue::call(&work.app, "CreateTable", table).await.unwrap();
    let items = work.app.ports.items.as_ref();
    let live = lakewarden_core::catalog::tables::find_table(items, work.app.ports.clock.as_ref(), "d", "live").await;
    let message = CatalogWork::PurgeTable(live.unwrap().table_id).to_message();
    assert_eq!(failed(&work.handle(batch(&[&message, &good])).await.unwrap()), ["m0"]);
}

#[tokio::test]
async fn the_schedule_takes_up_lost_messages() {
    let work = Work::new().await;
    let lost = work.next().unwrap();
    let event = json!({ "source": "aws.events", "detail-type": "Scheduled Event", "detail": {} });
    assert_eq!(work.handle(event.clone()).await.unwrap(), json!({ "queued": 1 }));
    assert_eq!(work.next(), Some(lost));
    let answer = work.handle(event).await.unwrap();
    assert_eq!(answer, json!({ "queued": 1 }), "until it is done");
}

/// A live table with partitions whose keys change and which gets an index.
async fn with_open_work() -> Work {
    let work = Work::new().await;
    while work.next().is_some() {}
    let keys = |kind: &str| json!({ "Name": "u", "PartitionKeys": [{ "Name": "k", "Type": kind }] });
    let at = |member: &str, value: Value| json!({ "DatabaseName": "d", "TableName": "u", member: value });
    let index = json!({ "IndexName": "by_k", "Keys": ["k"] });
    for (operation, input) in [
        ("CreateTable", json!({ "DatabaseName": "d", "TableInput": keys("int") })),
        ("CreatePartition", at("PartitionInput", json!({ "Values": ["1"] }))),
        ("CreatePartition", at("PartitionInput", json!({ "Values": ["2"] }))),
        ("UpdateTable", json!({ "DatabaseName": "d", "TableInput": keys("string") })),
        ("CreatePartitionIndex", at("PartitionIndex", index)),
    ] {
        glue::call(&work.app, operation, input).await.unwrap();
    }
    work
}

impl Work {
    async fn table(&self) -> lakewarden_core::catalog::TableRef {
        let ports = &self.app.ports;
        lakewarden_core::catalog::tables::find_table(ports.items.as_ref(), ports.clock.as_ref(), "d", "u")
            .await
            .unwrap()
    }

    /// Partition keys of everything stored about the table's partitions, by epoch and kind.
    async fn kinds(&self) -> Vec<String> {
        let id = self.table().await.table_id;
        let keys = self.world.items.dump().into_keys();
        let pks = keys.filter_map(|key| key.pk.strip_prefix(&format!("{id}#")).map(str::to_owned));
        let mut kinds: Vec<String> = pks.map(|pk| pk.split('#').take(2).collect::<Vec<_>>().join("#")).collect();
        kinds.sort();
        kinds
    }

    async fn finish(&self) {
        while let Some(message) = self.next() {
            assert!(failed(&self.handle(batch(&[&message])).await.unwrap()).is_empty());
            self.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
        }
    }

    /// Nothing is left to do, for the queue as for the schedule.
    async fn is_settled(&self) -> bool {
        let table = self.table().await;
        let complete = table.indexes.iter().all(|index| index.is_complete);
        self.world.clock.advance_ms(86_400_000);
        let event = json!({ "source": "aws.events" });
        let done = json!({ "queued": 1 });
        // The tombstone of the other table stays until its own messages are carried out.
        let queued = self.handle(event).await.unwrap();
        while self.next().is_some() {}
        complete && table.older_epochs.is_empty() && queued == done
    }
}

#[tokio::test]
async fn keys_that_changed_and_indexes_are_settled() {
    let work = with_open_work().await;
    assert_eq!(work.kinds().await, ["1#p", "1#p"]);
    work.finish().await;
    assert_eq!(work.kinds().await, ["2#i1", "2#i1", "2#p", "2#p"]);
    assert!(work.is_settled().await);
}

#[tokio::test]
async fn messages_may_come_twice_in_any_order_and_one_batch() {
    let work = with_open_work().await;
    let message = work.next().unwrap();
    for _ in 0..6 {
        let answer = work.handle(batch(&[&message, &message, &message])).await.unwrap();
        assert!(failed(&answer).is_empty());
        work.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
    }
    work.finish().await;
    assert_eq!(work.kinds().await, ["2#i1", "2#i1", "2#p", "2#p"]);
    assert!(work.is_settled().await);
}

#[tokio::test]
async fn the_schedule_settles_what_lost_every_message() {
    let work = with_open_work().await;
    while work.next().is_some() {}
    let event = json!({ "source": "aws.events" });
    assert_eq!(
        work.handle(event.clone()).await.unwrap(),
        json!({ "queued": 1 }),
        "only the tombstone: a message may come"
    );
    for _ in 0..8 {
        while work.next().is_some() {}
        work.world.clock.advance_ms(3_600_000);
        work.handle(event.clone()).await.unwrap();
        let messages: Vec<String> = std::iter::from_fn(|| work.next()).collect();
        for message in messages.iter().filter(|message| message.contains("settle_table")) {
            assert!(failed(&work.handle(batch(&[message])).await.unwrap()).is_empty());
        }
    }
    while work.next().is_some() {}
    assert_eq!(work.kinds().await, ["2#i1", "2#i1", "2#p", "2#p"]);
    assert!(work.is_settled().await);
}

#[tokio::test]
async fn a_failure_comes_back_and_the_next_delivery_goes_on() {
    let work = with_open_work().await;
    work.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
    let message = work.next().unwrap();
    for at in 0..40 {
        work.world.faults.crash_after(at);
        let _ = work.handle(batch(&[&message])).await;
        work.world.faults.revive();
    }
    while work.next().is_some() {}
    assert!(failed(&work.handle(batch(&[&message])).await.unwrap()).is_empty());
    work.finish().await;
    assert_eq!(work.kinds().await, ["2#i1", "2#i1", "2#p", "2#p"]);
    assert!(work.is_settled().await);
}

#[tokio::test]
async fn other_events_are_refused() {
    let work = Work::new().await;
    for event in [json!({}), json!([]), json!(null), json!({ "source": "aws.s3" }), json!({ "Records": 7 })] {
        assert!(work.handle(event).await.is_err());
    }
}
