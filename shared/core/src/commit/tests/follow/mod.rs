//! The catalog follows the log.

mod going_on;
mod history;
mod shown;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::catalog::tables::{create_table, drop_table, find_table, get_table};
use crate::catalog::{TableRef, create_database};
use crate::commit::catalog::OwnCatalog;
use crate::commit::context::Context;
use crate::commit::follow::{self, Counts, Cursor, Others, Source, Target};
use crate::commit::keys::Generation;
use crate::commit::sync::{SyncError, SyncReport};
use crate::delta::testkit::{TABLE_ID, TableKit, creation_of, remove_line};
use crate::delta::{Version, snapshot};
use crate::location::Location;
use crate::partition::{self, Listing, PartitionUpdate, View};
use crate::ports::{App, Deadline, Settings};

type Numbers = BTreeMap<Vec<String>, (i64, Option<i64>, i64)>;

struct Scene {
    kit: TableKit,
    app: App,
}

fn members(value: Json) -> Map<String, Json> {
    value.as_object().cloned().unwrap()
}

impl Scene {
    /// A database `lake` and no table.
    async fn new() -> Scene {
        let kit = TableKit::new().await;
        create_database(&kit.world.ports, members(json!({"Name": "lake"}))).await.unwrap();
        let app = App::new(kit.world.ports.clone(), Settings::default());
        Scene { kit, app }
    }

    /// With a table `t` of the catalog at the root, keyed by `p`.
    async fn with_table() -> Scene {
        let scene = Scene::new().await;
        scene.register("t", json!([{"Name": "p", "Type": "string"}]), json!({})).await;
        scene
    }

    async fn register(&self, name: &str, keys: Json, parameters: Json) {
        let input = json!({"Name": name, "PartitionKeys": keys, "Parameters": parameters,
            "StorageDescriptor": {"Location": self.kit.root.to_string(), "InputFormat": "f",
                "Columns": [{"Name": "id", "Type": "bigint"}]}});
        create_table(&self.app.ports, "lake", members(input)).await.unwrap();
    }

    async fn table(&self, name: &str) -> TableRef {
        let ports = &self.app.ports;
        find_table(ports.items.as_ref(), ports.clock.as_ref(), "lake", name).await.unwrap()
    }

    async fn follow_as(&self, target: Target, ms: i64) -> Result<SyncReport, SyncError> {
        let sink = OwnCatalog::new(&self.app);
        let deadline = Deadline::in_ms(&*self.kit.world.clock, ms);
        follow::follow(Context::new(&self.app, deadline, &sink), &self.kit.root, target).await
    }

    async fn try_follow(&self, version: i64) -> Result<SyncReport, SyncError> {
        self.follow_as(told(0, version, Source::Head), 600_000).await
    }

    async fn follow(&self, version: i64) -> Counts {
        match self.try_follow(version).await.unwrap() {
            SyncReport::Followed(counts) => counts,
            other => panic!("{other:?}"),
        }
    }

    async fn cursor(&self, name: &str) -> Option<Cursor> {
        follow::load(&self.app.ports, &self.table(name).await.table_id).await.unwrap()
    }

    /// What the catalog says of the partitions of a table: values, files, rows and bytes.
    async fn numbers_of(&self, name: &str, view: View) -> Numbers {
        let table = self.table(name).await;
        let listing = Listing { view, ..Listing::of_all(10_000) };
        let page = partition::list(&self.app.ports, &table, &listing).await.unwrap();
        let number = |parameters: &Json, name: &str| parameters.get(name).and_then(Json::as_str)?.parse().ok();
        page.partitions
            .into_iter()
            .map(|(_, partition)| {
                let (values, members) = (partition.values().to_vec(), partition.into_members());
                let says = |name: &str| number(&members["Parameters"], name);
                (values, (says("numFiles").unwrap_or(-1), says("numRows"), says("totalSize").unwrap_or(-1)))
            })
            .collect()
    }

    async fn numbers(&self) -> Numbers {
        self.numbers_of("t", View::Latest).await
    }

    /// What the log says of them, at a version.
    async fn logged(&self, version: i64) -> Numbers {
        let found = snapshot::load(&*self.kit.world.objects, &self.kit.root, Some(Version(version))).await.unwrap();
        let mut numbers = Numbers::new();
        for add in found.live.values() {
            let value = add.partition_values.get("p").cloned().flatten().filter(|value| !value.is_empty());
            let value = value.unwrap_or_else(|| "__HIVE_DEFAULT_PARTITION__".to_owned());
            let stats = add.stats.as_deref().map(|stats| serde_json::from_str::<Json>(stats).unwrap());
            let hidden = add.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
            let rows = stats.and_then(|stats| stats["numRecords"].as_i64());
            // A vector that hides more rows than there are is no statement about them.
            let rows = rows.filter(|rows| *rows >= hidden).map(|rows| rows - hidden);
            let sum = numbers.entry(vec![value]).or_insert((0, Some(0), 0));
            *sum = (sum.0 + 1, sum.1.zip(rows).map(|(sum, rows)| sum + rows), sum.2 + add.size);
        }
        numbers
    }

    async fn location_of(&self, value: &str) -> String {
        let table = self.table("t").await;
        let found = partition::get(&self.app.ports, &table, &[value.to_owned()]).await.unwrap();
        found.location().unwrap().to_owned()
    }
}

fn told(generation: i64, version: i64, source: Source) -> Target {
    Target { generation: Generation(generation), version: Version(version), source }
}

fn add(path: &str, p: Option<&str>, rows: i64) -> Json {
    json!({"add": {"path": path, "partitionValues": {"p": p}, "size": 100 + rows, "modificationTime": 1,
        "dataChange": true, "stats": json!({"numRecords": rows}).to_string()}})
}

fn with_vector(mut action: Json, kind: &str, id: &str, cardinality: i64) -> Json {
    action[kind]["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": format!("ab{id:0>20}"), "offset": 1, "sizeInBytes": 4, "cardinality": cardinality});
    action
}

fn one(value: &str) -> Vec<String> {
    vec![value.to_owned()]
}

#[tokio::test]
async fn partitions_come_with_their_numbers_change_and_go() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    let first = [
        add("p=x/a", Some("x"), 3),
        add("p=x/b", Some("x"), 4),
        add("p=a%2520b/c", Some("a b"), 1),
        add("p=__HIVE_DEFAULT_PARTITION__/d", None, 2),
    ];
    scene.kit.log(1, &first).await;
    assert_eq!(scene.follow(1).await, Counts { created: 3, changed: 0, removed: 0 });
    let expected = Numbers::from([
        (one("x"), (2, Some(7), 207)),
        (one("a b"), (1, Some(1), 101)),
        (one("__HIVE_DEFAULT_PARTITION__"), (1, Some(2), 102)),
    ]);
    assert_eq!(scene.numbers().await, expected);
    assert_eq!(scene.location_of("x").await, "s3://lake/wh/t/p=x");
    assert_eq!(scene.location_of("a b").await, "s3://lake/wh/t/p=a%20b");
    // A vector hides two rows of one file; another file has no statistics and lies elsewhere.
    let mut plain = add("elsewhere/e", Some("a b"), 9);
    plain["add"].as_object_mut().unwrap().remove("stats");
    let second = [
        remove_line("p=x/b", 1),
        with_vector(add("p=x/b", Some("x"), 4), "add", "v", 2),
        plain,
        remove_line("p=__HIVE_DEFAULT_PARTITION__/d", 1),
        remove_line("p=x/never", 1),
    ];
    scene.kit.log(2, &second).await;
    assert_eq!(scene.follow(2).await, Counts { created: 0, changed: 2, removed: 1 });
    let expected = Numbers::from([(one("x"), (2, Some(5), 207)), (one("a b"), (2, None, 210))]);
    assert_eq!(scene.numbers().await, expected);
    assert_eq!(scene.location_of("a b").await, "s3://lake/wh/t");
    scene.kit.log(3, &[with_vector(remove_line("p=x/b", 1), "remove", "v", 2), remove_line("p=x/a", 1)]).await;
    assert_eq!(scene.follow(3).await, Counts { created: 0, changed: 0, removed: 1 });
    assert_eq!(scene.numbers().await, scene.logged(3).await);
    // Once is enough, and late news are no news.
    for version in [3, 1, 2] {
        assert_eq!(scene.follow(version).await, Counts::default());
    }
}

#[tokio::test]
async fn the_catalogs_table_says_schema_and_version() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    let (table, definition) = get_table(&scene.app.ports, "lake", "t").await.unwrap();
    assert_eq!(definition.parameter("delta.lastUpdateVersion"), Some("0"));
    let columns = json!([{"Name": "id", "Type": "bigint"}, {"Name": "name", "Type": "string"}, {"Name": "price", "Type": "double"}]);
    assert_eq!(definition.storage_descriptor().unwrap()["Columns"], columns);
    assert_eq!(table.version, 1, "another schema is another version");
    scene.kit.log(1, &[json!({"commitInfo": {"timestamp": 77}}), add("p=x/a", Some("x"), 1)]).await;
    scene.follow(1).await;
    let (table, definition) = get_table(&scene.app.ports, "lake", "t").await.unwrap();
    assert_eq!(definition.parameter("delta.lastUpdateVersion"), Some("1"));
    assert_eq!(definition.parameter("delta.lastCommitTimestamp"), Some("77"));
    assert_eq!(table.version, 1, "whoever updates on condition of the version is not disturbed");
    let mut wider = creation_of(TABLE_ID, &["p"], json!({}));
    let schema = wider[1]["metaData"]["schemaString"].as_str().unwrap().replace("\"price\"", "\"cost\"");
    wider[1]["metaData"]["schemaString"] = json!(schema);
    scene.kit.log(2, &wider[1..2]).await;
    scene.follow(2).await;
    let (table, definition) = get_table(&scene.app.ports, "lake", "t").await.unwrap();
    assert_eq!(definition.storage_descriptor().unwrap()["Columns"][2]["Name"], "cost");
    assert_eq!(table.version, 2);
}

#[tokio::test]
async fn a_gap_is_caught_up_in_order_and_each_version_can_be_read() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    for version in 1..=9_i64 {
        let mut lines = vec![add(&format!("p={version}/f"), Some(&version.to_string()), version)];
        if version > 2 {
            lines.push(remove_line(&format!("p={}/f", version - 2), 1));
        }
        scene.kit.log(version, &lines).await;
    }
    // The last news first.
    assert_eq!(scene.follow(9).await, Counts { created: 9, changed: 0, removed: 7 });
    let table = scene.table("t").await.table_id;
    for version in 0..=9 {
        let key = follow::synced_key(&table, Generation(0), Version(version));
        let item = scene.app.ports.items.get(&key, crate::store::Consistency::Strong).await.unwrap().unwrap();
        let at_ms = follow::decode_synced(&item).unwrap();
        assert_eq!(scene.numbers_of("t", View::AsOf { at_ms }).await, scene.logged(version).await, "{version}");
    }
}

#[tokio::test]
async fn what_people_do_to_partitions_does_not_spoil_the_numbers() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 3), add("p=y/a", Some("y"), 3)]).await;
    scene.follow(1).await;
    let (ports, settings, table) = (&scene.app.ports, &scene.app.settings, scene.table("t").await);
    partition::delete(ports, settings, &table, &one("x"), None).await.unwrap();
    let input = partition::PartitionInput {
        rest: members(json!({"Parameters": {"mine": "1"}})),
        storage_descriptor: Some(members(json!({"Location": "s3://lake/mine"}))),
        ..Default::default()
    };
    partition::update(ports, settings, &table, PartitionUpdate { values: one("y"), input }, None).await.unwrap();
    scene.kit.log(2, &[add("p=x/b", Some("x"), 1), add("p=y/b", Some("y"), 1)]).await;
    scene.follow(2).await;
    assert_eq!(scene.numbers().await, scene.logged(2).await);
    assert_eq!(scene.location_of("y").await, "s3://lake/mine");
    let found = partition::get(ports, &table, &one("y")).await.unwrap().into_members();
    assert_eq!(found["Parameters"]["mine"], "1");
}

#[tokio::test]
async fn each_table_at_the_place_follows_for_itself() {
    let scene = Scene::with_table().await;
    scene.register("off", json!([{"Name": "p", "Type": "string"}]), json!({"lakewarden.partitionSync": "OFF"})).await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 3)]).await;
    scene.follow(1).await;
    // Later, without keys: they become Delta's, and the partitions come from the whole log.
    scene.register("late", json!([]), json!({})).await;
    scene.kit.log(2, &[add("p=y/a", Some("y"), 3)]).await;
    scene.follow(2).await;
    for name in ["t", "late"] {
        assert_eq!(scene.numbers_of(name, View::Latest).await, scene.logged(2).await, "{name}");
    }
    assert_eq!(scene.table("late").await.keys[0].name, "p");
    assert_eq!(scene.numbers_of("off", View::Latest).await, Numbers::new());
    assert!(scene.cursor("off").await.is_none());
    // Dropped, and created again under its name: it begins anew.
    drop_table(&scene.app.ports, "lake", "late").await.unwrap();
    scene.register("late", json!([{"Name": "p", "Type": "string"}]), json!({})).await;
    scene.kit.log(3, &[remove_line("p=x/a", 1)]).await;
    scene.follow(3).await;
    assert_eq!(scene.numbers_of("late", View::Latest).await, scene.logged(3).await);
    for name in ["t", "late", "off"] {
        drop_table(&scene.app.ports, "lake", name).await.unwrap();
    }
    assert_eq!(scene.try_follow(3).await.unwrap(), SyncReport::UnknownTable);
}

#[tokio::test]
async fn a_table_without_partitions_follows_too() {
    let scene = Scene::new().await;
    scene.register("t", json!([]), json!({})).await;
    scene.kit.log(0, &creation_of(TABLE_ID, &[], json!({}))).await;
    let mut file = add("f", None, 3);
    file["add"]["partitionValues"] = json!({});
    scene.kit.log(1, &[file]).await;
    assert_eq!(scene.follow(1).await, Counts::default());
    let (_, definition) = get_table(&scene.app.ports, "lake", "t").await.unwrap();
    assert_eq!(definition.parameter("delta.lastUpdateVersion"), Some("1"));
    assert_eq!(scene.numbers().await, Numbers::new());
}

#[tokio::test]
async fn another_table_at_the_place_replaces_all() {
    for (generation, source) in [(1, Source::Head), (0, Source::Event)] {
        let scene = Scene::with_table().await;
        scene.kit.log(0, &scene.kit.creation()).await;
        scene.kit.log(1, &[add("p=x/a", Some("x"), 3), add("p=y/a", Some("y"), 3)]).await;
        scene.follow(1).await;
        scene.kit.delete_log(1).await;
        let mut anew = creation_of("22222222-1111-4111-8111-111111111111", &["p"], json!({}));
        anew.extend([add("p=y/z", Some("y"), 1), add("p=z/z", Some("z"), 1)]);
        scene.kit.log(0, &anew).await;
        let report = scene.follow_as(told(generation, 0, source), 600_000).await.unwrap();
        assert_eq!(report, SyncReport::Followed(Counts { created: 1, changed: 1, removed: 1 }), "{source:?}");
        assert_eq!(scene.numbers().await, scene.logged(0).await);
        // Events of the table that is gone come late.
        for version in [0, 1] {
            scene.follow_as(told(generation, version, Source::Event), 600_000).await.ok();
            assert_eq!(scene.numbers().await, scene.logged(0).await);
        }
        scene.kit.log(1, &[remove_line("p=z/z", 1)]).await;
        scene.follow_as(told(generation, 1, source), 600_000).await.unwrap();
        assert_eq!(scene.numbers().await, scene.logged(1).await);
    }
}

#[tokio::test]
async fn other_partition_columns_replace_all() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.log(1, &[add("p=x/a", Some("x"), 3)]).await;
    scene.follow(1).await;
    let mut other = creation_of(TABLE_ID, &["q"], json!({}));
    other.remove(0);
    let mut file = add("q=n/a", None, 1);
    file["add"]["partitionValues"] = json!({"q": "n"});
    other.extend([remove_line("p=x/a", 1), file]);
    scene.kit.log(2, &other).await;
    scene.follow(2).await;
    let table = scene.table("t").await;
    assert_eq!(table.keys[0].name, "q");
    assert_eq!(scene.numbers().await, Numbers::from([(one("n"), (1, Some(1), 101))]));
}

#[tokio::test]
async fn mapped_names_moments_and_orders_of_keys() {
    let scene = Scene::new().await;
    scene.register("t", json!([{"Name": "q", "Type": "timestamp"}, {"Name": "p", "Type": "int"}]), json!({})).await;
    let column = |name: &str, kind: &str, id: i64| {
        json!({"name": name, "type": kind, "nullable": true,
        "metadata": {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")}})
    };
    let schema = json!({"type": "struct", "fields": [column("id", "long", 1), column("P", "integer", 2), column("Q", "timestamp", 3)]});
    let mut lines = creation_of(
        TABLE_ID,
        &["P", "Q"],
        json!({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}),
    );
    lines[1]["metaData"]["schemaString"] = json!(schema.to_string());
    for (name, moment) in
        [("a", "2026-01-02 03:04:05"), ("b", "2026-01-02T03:04:05.000000Z"), ("c", "2026-01-02 03:04:05.5")]
    {
        let mut file = add(&format!("xY/{name}"), None, 1);
        file["add"]["partitionValues"] = json!({"col-2": "7", "col-3": moment});
        lines.push(file);
    }
    scene.kit.log(0, &lines).await;
    assert_eq!(scene.follow(0).await.created, 2);
    let values = |moment: &str| vec![moment.to_owned(), "7".to_owned()];
    let expected = Numbers::from([
        (values("2026-01-02 03:04:05"), (2, Some(2), 202)),
        (values("2026-01-02 03:04:05.5"), (1, Some(1), 101)),
    ]);
    assert_eq!(scene.numbers().await, expected);
}

#[tokio::test]
async fn a_version_that_is_not_published_yet_is_waited_for() {
    let scene = Scene::with_table().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.follow(0).await;
    assert_eq!(scene.try_follow(1).await.unwrap(), SyncReport::Waiting);
    scene.kit.log(1, &[add("p=x/a", Some("x"), 1)]).await;
    scene.follow_as(told(0, 1, Source::Event), 600_000).await.unwrap();
    assert_eq!(scene.numbers().await, scene.logged(1).await);
}

#[tokio::test]
async fn a_root_nobody_knows_costs_one_look() {
    let scene = Scene::new().await;
    scene.kit.log(0, &scene.kit.creation()).await;
    scene.kit.world.faults.forget_calls();
    assert_eq!(scene.try_follow(0).await.unwrap(), SyncReport::UnknownTable);
    assert_eq!(scene.kit.world.faults.calls().len(), 1);
    let elsewhere = Location::new("lake", "wh/t2");
    assert_ne!(elsewhere, scene.kit.root);
}
