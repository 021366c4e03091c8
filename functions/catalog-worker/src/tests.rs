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
        let app = App { ports: world.ports.clone(), settings: Settings::default() };
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
async fn the_optimizer_of_a_dropped_table_goes_with_its_runs() {
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
    let left = |work: &Work| work.world.items.dump().keys().filter(|key| key.pk.starts_with("sweep")).count();
    assert_eq!(left(&work), 2);
    glue::call(&work.app, "DeleteTable", json!({ "DatabaseName": "d", "Name": "swept" })).await.unwrap();
    while let Some(message) = work.next() {
        assert!(failed(&work.handle(batch(&[&message])).await.unwrap()).is_empty());
        work.world.clock.advance_ms(purge::LONGEST_FUNCTION_MS);
    }
    assert_eq!(left(&work), 0);
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

#[tokio::test]
async fn other_events_are_refused() {
    let work = Work::new().await;
    for event in [json!({}), json!([]), json!(null), json!({ "source": "aws.s3" }), json!({ "Records": 7 })] {
        assert!(work.handle(event).await.is_err());
    }
}
