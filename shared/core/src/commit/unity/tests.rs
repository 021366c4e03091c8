mod delta;

use serde_json::{Value, json};

use super::{Answer, Request, handle};
use crate::commit::context::Context;
use crate::commit::tests::kit::Recorder;
use crate::location::Location;
use crate::ports::{App, Deadline, Settings, UnitySettings};
use crate::store::memory::{Fault, MemoryWorld};
use crate::store::{ObjectKey, Objects, PutOptions, StoreErrorKind};

struct Client {
    world: MemoryWorld,
    app: App,
    sink: Recorder,
}

impl Client {
    fn new() -> Client {
        let world = MemoryWorld::new(1_767_225_600_000);
        let storage = Some(Location::new("lake", "unity"));
        let settings = Settings { unity: UnitySettings { storage, ..UnitySettings::default() }, ..Settings::default() };
        let app = App::new(world.ports.clone(), settings);
        Client { world, app, sink: Recorder::default() }
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<&str> = path.split('/').collect();
        let query: Vec<(String, String)> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let ctx = Context::new(&self.app, Deadline::in_ms(&*self.app.ports.clock, 28_000), &self.sink);
        let request = Request { method, segments: &segments, query: &query, body: &body };
        let Answer { status, body } = handle(ctx, request).await;
        (status, body)
    }

    async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// A managed table at version 0; its id and location.
    async fn table(&self) -> (String, String) {
        self.ok("POST", "schemas", json!({"name": "d", "catalog_name": "unity"})).await;
        let place = json!({"catalog_name": "unity", "schema_name": "d", "name": "T"});
        let staged = self.ok("POST", "staging-tables", place).await;
        let uri = staged["staging_location"].as_str().unwrap().to_owned();
        let columns = json!([{"name": "Id", "type_json": "{\"name\":\"Id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}",
            "type_name": "LONG", "type_text": "bigint", "position": 0, "nullable": true}]);
        let new = json!({"catalog_name": "unity", "schema_name": "d", "name": "T", "table_type": "MANAGED",
            "data_source_format": "DELTA", "columns": columns, "storage_location": uri, "properties": {"a": "b"}});
        self.ok("POST", "tables", new).await;
        (staged["id"].as_str().unwrap().to_owned(), uri)
    }

    async fn put(&self, uri: &str, name: &str, lines: &[Value]) -> usize {
        let root = Location::parse(uri).unwrap();
        let text = crate::delta::testkit::text(lines);
        let size = text.len();
        let at: ObjectKey = root.object(&format!("_delta_log/{name}"));
        self.world.objects.put(&at, text.into(), &PutOptions::default()).await.unwrap();
        size
    }

    async fn version_0(&self, uri: &str, id: &str) {
        let configuration = json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": id});
        let mut lines = crate::delta::testkit::creation_of("m", &[], configuration);
        let features = ["catalogManaged", "vacuumProtocolCheck"];
        lines[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"]}});
        lines[2]["commitInfo"]["inCommitTimestamp"] = json!(10);
        self.put(uri, "00000000000000000000.json", &[lines[2].clone(), lines[0].clone(), lines[1].clone()]).await;
    }
}

fn commit(id: &str, uri: &str, name: &str, size: usize) -> Value {
    json!({"table_id": id, "table_uri": uri, "commit_info": {"version": 1, "timestamp": 11, "file_name": name,
        "file_size": size, "file_modification_timestamp": 12}})
}

const NAME: &str = "00000000000000000001.80a083e8-7026-4e79-81be-64bd76c43a11.json";

#[tokio::test]
async fn a_table_is_staged_created_committed_to_and_dropped() {
    let client = Client::new();
    let (id, uri) = client.table().await;
    assert_eq!(uri, format!("s3://lake/unity/d/{id}"));
    let info = client.ok("GET", "tables/unity.d.T", Value::Null).await;
    assert_eq!(
        (&info["table_id"], &info["table_type"], &info["properties"]),
        (&json!(id), &json!("MANAGED"), &json!({"a": "b"}))
    );
    assert_eq!(info["columns"][0]["name"], "Id", "as its client wrote it");
    let (status, early) = client.call("POST", "delta/preview/commits", commit(&id, &uri, NAME, 9)).await;
    assert_eq!((status, &early["error_code"]), (400, &json!("INVALID_ARGUMENT")), "{early}");
    client.version_0(&uri, &id).await;
    let info =
        json!({"commitInfo": {"operation": "WRITE", "isBlindAppend": true, "inCommitTimestamp": 11, "txnId": "t"}});
    let size = client.put(&uri, &format!("_staged_commits/{NAME}"), &[info]).await;
    for _ in 0..2 {
        assert_eq!(client.ok("POST", "delta/preview/commits", commit(&id, &uri, NAME, size)).await, json!({}));
    }
    // As s3a, too, and by the query.
    let same = commit(&id, &uri.replace("s3://", "s3a://"), NAME, size);
    client.ok("POST", "delta/preview/commits", same).await;
    let listed = client.ok("GET", &format!("delta/preview/commits?table_id={id}&start_version=1"), Value::Null).await;
    let expected =
        json!({"version": 1, "timestamp": 11, "file_name": NAME, "file_size": size, "file_modification_timestamp": 12});
    assert_eq!(listed, json!({"commits": [expected], "latest_table_version": 1}));
    let info = client.ok("GET", "tables/unity.d.t", Value::Null).await;
    assert_eq!(info["columns"][0]["name"], "id", "as the log has it");
    client.ok("DELETE", "tables/unity.d.t", Value::Null).await;
    assert_eq!(client.call("POST", "delta/preview/commits", commit(&id, &uri, NAME, size)).await.0, 404);
    assert_eq!(client.call("GET", &format!("delta/preview/commits?table_id={id}"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn trouble_has_the_status_that_clients_know() {
    let client = Client::new();
    let (id, uri) = client.table().await;
    let place = |schema: &str, name: &str| json!({"catalog_name": "unity", "schema_name": schema, "name": name});
    for (method, path, body, status) in [
        ("GET", "catalogs/other", Value::Null, 404),
        ("GET", "schemas/unity.none", Value::Null, 404),
        ("GET", "schemas?catalog_name=none", Value::Null, 404),
        ("GET", "tables?catalog_name=unity", Value::Null, 400),
        ("GET", "tables/unity.d", Value::Null, 400),
        ("POST", "schemas", json!({"name": "d", "catalog_name": "unity"}), 409),
        ("POST", "schemas", json!({"name": "a.b", "catalog_name": "unity"}), 400),
        ("POST", "schemas", json!({"name": "e", "catalog_name": "other"}), 404),
        ("POST", "staging-tables", place("d", "t"), 409),
        ("POST", "staging-tables", place("d", "a/b"), 400),
        ("POST", "staging-tables", place("none", "t"), 404),
        ("POST", "delta/preview/commits", json!({"table_id": id, "latest_backfilled_version": 7}), 400),
        (
            "POST",
            "delta/preview/commits",
            json!({"table_id": id, "table_uri": "s3://lake/x", "latest_backfilled_version": 0}),
            400,
        ),
        ("POST", "delta/preview/commits", json!({"table_id": id, "uniform": {}, "latest_backfilled_version": 0}), 501),
        ("POST", "delta/preview/commits", json!([1]), 400),
        ("GET", "delta/preview/commits", json!({"table_id": id, "start_version": 2, "end_version": 1}), 400),
        ("DELETE", "schemas/unity.d", Value::Null, 400),
        ("PATCH", "tables/unity.d.t", json!({}), 404),
        ("POST", "temporary-table-credentials", json!({}), 400),
        ("POST", "temporary-table-credentials", json!({"table_id": id, "operation": "OWN"}), 400),
        ("POST", "temporary-path-credentials", json!({"url": "s3://lake/x", "operation": "READ"}), 400),
    ] {
        let (found, answer) = client.call(method, path, body.clone()).await;
        assert_eq!(found, status, "{method} {path} {body}: {answer}");
        assert!(answer["error_code"].is_string() && answer["message"].is_string(), "{answer}");
    }
    client.version_0(&uri, &id).await;
    client.world.faults.inject("list", 0, Fault::Before(StoreErrorKind::Unavailable));
    let size = client.put(&uri, &format!("_staged_commits/{NAME}"), &[json!({"commitInfo": {}})]).await;
    assert_eq!(client.call("POST", "delta/preview/commits", commit(&id, &uri, NAME, size)).await.0, 503);
    // Another deployment has no folder for managed tables.
    let mut bare = Client::new();
    bare.app.settings.unity.storage = None;
    bare.ok("POST", "schemas", json!({"name": "d", "catalog_name": "unity"})).await;
    let (status, answer) = bare.call("POST", "staging-tables", place("d", "t")).await;
    assert_eq!((status, &answer["error_code"]), (400, &json!("FAILED_PRECONDITION")));
}

/// Nothing that is answered is a key.
#[tokio::test]
async fn no_credentials_are_given_out() {
    let client = Client::new();
    client.ok("POST", "schemas", json!({"name": "d", "catalog_name": "unity"})).await;
    let place = json!({"catalog_name": "unity", "schema_name": "d", "name": "t"});
    let staged = client.ok("POST", "staging-tables", place).await;
    let (id, location) = (staged["id"].as_str().unwrap(), staged["staging_location"].as_str().unwrap());
    let other = "80a083e8-7026-4e79-81be-64bd76c43a11";
    for (path, asked, url) in [
        ("temporary-table-credentials", json!({"table_id": id, "operation": "READ_WRITE"}), location),
        ("temporary-table-credentials", json!({"table_id": id, "operation": "READ"}), location),
        ("temporary-table-credentials", json!({"table_id": other, "operation": "READ"}), ""),
        ("temporary-table-credentials", json!({"table_id": "x", "operation": "READ"}), ""),
        ("temporary-path-credentials", json!({"url": "s3://lake/x", "operation": "PATH_READ"}), "s3://lake/x"),
    ] {
        let answer = client.ok("POST", path, asked.clone()).await;
        let names: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["expiration_time", "url"], "{asked}");
        assert_eq!(answer["url"], url, "{asked}");
    }
    for path in [
        format!("delta/v1/staging-tables/{id}/credentials"),
        "delta/v1/temporary-path-credentials?location=s3://lake/x&operation=READ".to_owned(),
    ] {
        assert_eq!(client.ok("GET", &path, Value::Null).await, json!({"storage-credentials": []}), "{path}");
    }
}

#[tokio::test]
async fn lists_have_pages() {
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.ok("POST", "schemas", json!({"name": name, "catalog_name": "unity"})).await;
        let new = json!({"catalog_name": "unity", "schema_name": "a", "name": name, "table_type": "EXTERNAL",
            "data_source_format": "DELTA", "storage_location": format!("s3://lake/x/{name}")});
        client.ok("POST", "tables", new).await;
    }
    for (path, member) in
        [("schemas?catalog_name=unity", "schemas"), ("tables?catalog_name=unity&schema_name=a", "tables")]
    {
        let first = client.ok("GET", &format!("{path}&max_results=2"), Value::Null).await;
        let next = first["next_page_token"].as_str().unwrap();
        let second = client.ok("GET", &format!("{path}&max_results=2&page_token={next}"), Value::Null).await;
        let names =
            |page: &Value| page[member].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
        assert_eq!((names(&first), names(&second)), (vec![json!("a"), json!("b")], vec![json!("c")]));
        assert_eq!(second["next_page_token"], Value::Null);
    }
}
