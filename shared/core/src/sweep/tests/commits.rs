//! Iceberg commits through the catalog while a sweep is at work: a file that is there when a commit that names it is
//! answered stays.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::super::testkit::*;
use super::super::*;
use crate::catalog::tables::{Archive, create_table, update_table};
use crate::catalog::{CatalogError, create_database};
use crate::store::ReadItems;

const ORPHAN: &str = "wh/t/data/orphan.parquet";

fn object(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

fn input(table: &Iceberg) -> Map<String, Value> {
    object(json!({"Name": table.name, "StorageDescriptor": {"Location": format!("s3://{BUCKET}/{}", table.prefix)},
        "Parameters": {"table_type": "ICEBERG", "metadata_location": Iceberg::uri(&table.metadata_key())}}))
}

/// The table `db.t` in the catalog, with an optimizer, a live file and an old orphan; and `db.u` elsewhere, which has a
/// file here.
struct Scene {
    lake: Lake,
    swept: Iceberg,
    other: Iceberg,
    directory: CatalogDirectory,
}

async fn scene() -> Scene {
    let lake = Lake::new();
    create_database(&lake.app.ports, object(json!({"Name": "db"}))).await.unwrap();
    let directory = CatalogDirectory::new(&lake.app);
    let mut swept = Iceberg::create(&lake, "t", 2).await;
    create_table(&lake.app.ports, "db", input(&swept)).await.unwrap();
    let optimizer = json!({
        "CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion",
        "TableOptimizerConfiguration": {"enabled": true,
            "orphanFileDeletionConfiguration": {"icebergConfiguration": {}}}
    });
    optimizer::create(&lake.app, &directory, optimizer).await.unwrap();
    advance(&lake.world.clock, 1);
    let live = swept.append(&["live.parquet"]).await;
    update(&lake, &swept).await.unwrap();
    let mut other = Iceberg::create_at(&lake, "u", "dev/u", 2).await;
    other.commit(&[(1, 0, live[0].clone())]).await;
    create_table(&lake.app.ports, "db", input(&other)).await.unwrap();
    swept.data("orphan.parquet").await;
    lake.days(4);
    Scene { lake, swept, other, directory }
}

async fn update(lake: &Lake, table: &Iceberg) -> Result<(), CatalogError> {
    update_table(&lake.app.ports, "db", input(table), None, Archive::Keep).await.map(|_| ())
}

impl Scene {
    async fn start(&self) -> SweepRequest {
        let body = json!({"mode": "ordinary", "sightings": 1});
        rest::start_in(&self.lake.app, &self.directory, "db", "t", &body).await.unwrap();
        SweepRequest::decode(&self.lake.world.queue.take(crate::store::QueueName::Sweeps).unwrap()).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Itself,
    Other,
}

#[tokio::test]
async fn a_commit_that_is_answered_keeps_the_files_that_were_there_then() {
    for who in [Who::Itself, Who::Other] {
        let (mut kept, mut waited, mut went) = (0, 0, 0);
        for calls in 0.. {
            let scene = scene().await;
            let request = scene.start().await;
            let answered: Arc<Mutex<Option<(bool, bool)>>> = Arc::default();
            let (lake, noted) = (scene.lake.clone(), answered.clone());
            let mut table = match who {
                Who::Itself => scene.swept.clone(),
                Who::Other => scene.other.clone(),
            };
            let action = move || -> BoxFuture<'static, ()> {
                Box::pin(async move {
                    table.prepare(&[(1, 0, ORPHAN.to_owned())]).await;
                    let answer = update(&lake, &table).await;
                    assert!(matches!(answer, Ok(()) | Err(CatalogError::Contended(_))), "{answer:?}");
                    *noted.lock().unwrap() = Some((answer.is_ok(), lake.keys().contains(ORPHAN)));
                })
            };
            let hook = Hook::new(calls, Box::new(action));
            let (lake, objects) = (&scene.lake, scene.lake.world.objects.clone());
            let hooked = Arc::new(Hooked { hook: hook.clone(), directory: lake.directory.clone(), objects });
            let mut app = lake.app.clone();
            app.ports.objects = Arc::new(UpToTheLast(hooked));
            sweep(&app, &scene.directory, &request, lake.deadline()).await.unwrap();
            let Some((is_answered, had_file)) = *answered.lock().unwrap() else {
                assert!(!lake.keys().contains(ORPHAN));
                break;
            };
            match (is_answered, had_file) {
                (false, _) => waited += 1,
                (true, true) => {
                    kept += 1;
                    assert!(lake.keys().contains(ORPHAN), "{who:?} was answered before call {calls}");
                    let _ = sweep(&lake.app, &scene.directory, &request, lake.deadline()).await.unwrap();
                    assert!(lake.keys().contains(ORPHAN), "{who:?} before call {calls}, run again");
                }
                // What it names was gone before: the file was older than the retention.
                (true, false) => went += 1,
            }
        }
        assert!(kept > 10 && waited >= 2, "{who:?}: {kept} kept, {waited} waited, {went} late");
    }
}

/// A batch that ends while a commit waits lets it through; so does a fence that a dead worker has left.
#[tokio::test]
async fn a_commit_waits_for_the_end_of_a_batch() {
    let mut scene = scene().await;
    let (world, lake) = (scene.lake.world.clone(), scene.lake.clone());
    let table_id = crate::catalog::tables::find_table(world.items.as_ref(), world.clock.as_ref(), "db", "t")
        .await
        .unwrap()
        .table_id;
    let fence = |lasts_ms: i64| items::LeaseFence {
        table_id: table_id.as_str().to_owned(),
        expires_at_ms: world.ports.clock.now_ms() + lasts_ms,
        run_id: "run".to_owned(),
    };
    let now_ms = || world.ports.clock.now_ms();
    for (lasts_ms, is_answered) in [(3_000, true), (60_000, false)] {
        let fence = fence(lasts_ms);
        fence.put(world.items.as_ref(), now_ms()).await.unwrap();
        scene.swept.prepare(&[]).await;
        let before_ms = now_ms();
        assert_eq!(update(&lake, &scene.swept).await.is_ok(), is_answered, "{lasts_ms}");
        let waited_ms = now_ms() - before_ms;
        assert!(waited_ms >= lasts_ms.min(10_000) && waited_ms < 13_000, "{waited_ms}");
        fence.clear(world.items.as_ref()).await.unwrap();
    }
    // Another change of the table does not wait.
    fence(60_000).put(world.items.as_ref(), now_ms()).await.unwrap();
    scene.swept.version -= 1;
    let mut same = input(&scene.swept);
    same.insert("Description".to_owned(), json!("text"));
    let before = world.items.item_usage();
    update_table(&lake.app.ports, "db", same, None, Archive::Keep).await.unwrap();
    let usual = world.items.item_usage().since(&before);
    fence(0).clear(world.items.as_ref()).await.unwrap();
    // Without a batch, a commit reads no more than any update: what it checks is part of the transaction.
    scene.swept.version += 1;
    let before = world.items.item_usage();
    update(&lake, &scene.swept).await.unwrap();
    let usage = world.items.item_usage().since(&before);
    assert_eq!((usage.gets, usage.puts, usage.transactions), (1, 0, 1));
    // And costs what a check in a transaction does.
    assert_eq!((usual.gets, usual.puts, usual.transactions), (1, 0, 1));
    assert_eq!(usage.write_units, usual.write_units + 2);
}
