//! Tables and partitions that appear in the catalog while a sweep is at work: what is there once its creation has been
//! answered keeps its files.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::catalog::tables::{Archive, create_table, update_table};
use crate::catalog::{CatalogError, create_database};
use crate::location::Location;
use crate::partition::{self, PartitionInput};
use crate::ports::App;

const ORPHAN: &str = "wh/t/data/orphan.parquet";

/// The tables of the test kit, and those of the catalog.
struct Both {
    hooked: Arc<Hooked>,
    catalog: CatalogDirectory,
}

#[async_trait]
impl TableDirectory for Both {
    async fn table(&self, database: &str, table: &str) -> Result<Option<TableEntry>, DirectoryError> {
        match self.hooked.table(database, table).await? {
            None => self.catalog.table(database, table).await,
            found => Ok(found),
        }
    }

    async fn tables_around(&self, scope: &Location) -> Result<Vec<TableEntry>, DirectoryError> {
        let mut all = self.hooked.tables_around(scope).await?;
        all.extend(self.catalog.tables_around(scope).await?);
        Ok(all)
    }

    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError> {
        let mut all = self.hooked.tables().await?;
        all.extend(self.catalog.tables().await?);
        Ok(all)
    }

    async fn uses_around(&self, scope: &Location) -> Result<Vec<TableUse>, DirectoryError> {
        self.hooked.uses_around(scope).await?;
        self.catalog.uses_around(scope).await
    }

    async fn index_partitions(&self, entry: &TableEntry) -> Result<bool, DirectoryError> {
        self.hooked.index_partitions(entry).await?;
        self.catalog.index_partitions(entry).await
    }

    async fn past(&self, entry: &TableEntry) -> Result<Past, DirectoryError> {
        self.hooked.past(entry).await?;
        self.catalog.past(entry).await
    }
}

fn object(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

fn table(name: &str, place: &str) -> Map<String, Value> {
    object(json!({"Name": name, "StorageDescriptor": {"Location": format!("s3://{BUCKET}/{place}")},
        "PartitionKeys": [{"Name": "day", "Type": "string"}]}))
}

/// Ways to get to the place of the orphan.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Created(&'static str),
    Moved,
    Partition,
    MovedPartition,
}

async fn arrive(app: &App, how: Arrival) -> Result<(), CatalogError> {
    let ports = &app.ports;
    let partition = |place: &str| {
        let location = format!("s3://{BUCKET}/{place}");
        PartitionInput::from_json(object(json!({"Values": ["1"], "StorageDescriptor": {"Location": location}})))
    };
    let hive = || async {
        crate::catalog::tables::find_table(ports.items.as_ref(), ports.clock.as_ref(), "cat", "hive").await.unwrap()
    };
    match how {
        Arrival::Created(place) => create_table(ports, "cat", table("new", place)).await.map(|_| ()),
        Arrival::Moved => update_table(ports, "cat", table("hive", "wh/t/data"), None, Archive::Keep).await.map(|_| ()),
        Arrival::Partition => partition::create(ports, &app.settings, &hive().await, partition("wh/t/data")).await,
        Arrival::MovedPartition => {
            let input = partition("wh/t/data");
            let update = partition::PartitionUpdate { values: vec!["0".to_owned()], input };
            partition::update(ports, &app.settings, &hive().await, update, None).await
        }
    }
}

/// A lake with an orphan, and a table `hive` elsewhere that has a partition at home.
async fn scene() -> Lake {
    let lake = Lake::new();
    with_old_orphan(&lake).await;
    create_database(&lake.app.ports, object(json!({"Name": "cat"}))).await.unwrap();
    let hive = create_table(&lake.app.ports, "cat", table("hive", "hive")).await.unwrap();
    let input = object(json!({"Values": ["0"], "StorageDescriptor": {"Location": format!("s3://{BUCKET}/hive/0")}}));
    partition::create(&lake.app.ports, &lake.app.settings, &hive, PartitionInput::from_json(input)).await.unwrap();
    lake
}

#[tokio::test]
async fn whoever_is_answered_keeps_the_files_that_were_there_then() {
    for how in [
        Arrival::Created("wh/t/data"),
        Arrival::Created("wh/t"),
        Arrival::Created("wh"),
        Arrival::Moved,
        Arrival::Partition,
        Arrival::MovedPartition,
    ] {
        let (mut kept, mut waited) = (0, 0);
        for calls in 0.. {
            let lake = scene().await;
            let request = lake.start("t", Mode::Ordinary).await;
            let answered: Arc<Mutex<Option<(bool, bool)>>> = Arc::default();
            let (inner, noted) = (lake.clone(), answered.clone());
            let action = move || -> BoxFuture<'static, ()> {
                Box::pin(async move {
                    let answer = arrive(&inner.app, how).await;
                    assert!(matches!(answer, Ok(()) | Err(CatalogError::NotReady(_))), "{answer:?}");
                    *noted.lock().unwrap() = Some((answer.is_ok(), inner.keys().contains(ORPHAN)));
                })
            };
            let hook = Hook::new(calls, Box::new(action));
            let (directory, objects) = (lake.directory.clone(), lake.world.objects.clone());
            let hooked = Arc::new(Hooked { hook: hook.clone(), directory, objects });
            let both = Both { hooked: hooked.clone(), catalog: CatalogDirectory::new(&lake.app) };
            let mut app = lake.app.clone();
            app.ports.objects = Arc::new(UpToTheLast(hooked));
            sweep(&app, &both, &request, lake.deadline()).await.unwrap();
            let Some((is_there, had_file)) = *answered.lock().unwrap() else { break };
            if !is_there {
                waited += 1;
                // Nothing was written, or nothing but a warning; after the batch it goes on.
                arrive(&lake.app, how).await.unwrap();
                continue;
            }
            if had_file {
                kept += 1;
                assert!(lake.keys().contains(ORPHAN), "{how:?} was answered before call {calls}");
                // A run from the start knows as well.
                let _ = sweep(&lake.app, &both, &request, lake.deadline()).await.unwrap();
                assert!(lake.keys().contains(ORPHAN), "{how:?} before call {calls}, run again");
            }
        }
        assert!(kept > 10 && waited >= 2, "{how:?}: {kept} kept, {waited} had to wait");
    }
}

#[tokio::test]
async fn places_elsewhere_in_the_bucket_do_not_wait() {
    let mut answered = 0;
    for calls in 0.. {
        let lake = scene().await;
        let request = lake.start("t", Mode::Ordinary).await;
        let inner = lake.clone();
        let action = move || -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let before_ms = inner.world.ports.clock.now_ms();
                arrive(&inner.app, Arrival::Created("far/away")).await.unwrap();
                assert!(inner.world.ports.clock.now_ms() - before_ms < 1_000);
            })
        };
        let hook = Hook::new(calls, Box::new(action));
        lake.run_hooked(&request, &hook).await;
        if !hook.has_fired() {
            break;
        }
        answered += 1;
    }
    assert!(answered > 10, "{answered}");
}
