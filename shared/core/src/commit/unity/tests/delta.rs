//! The Delta API, with requests in the shape of its specification.

use super::*;

const TABLES: &str = "delta/v1/catalogs/unity/schemas/d/tables";
const TABLE: &str = "delta/v1/catalogs/unity/schemas/d/tables/T";
const OTHER: &str = "00000000000000000001.1e0f5c1c-98a5-44ff-a1f0-0f3a5b1c2d3e.json";

fn protocol() -> Value {
    let features = ["catalogManaged", "vacuumProtocolCheck"];
    json!({"min-reader-version": 3, "min-writer-version": 7, "reader-features": features,
        "writer-features": ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"]})
}

fn new_table(id: &str, location: &str) -> Value {
    let columns = json!({"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": true, "metadata": {"comment": "key"}},
        {"name": "tags", "nullable": true, "metadata": {}, "type":
            {"type": "array", "element-type": "string", "contains-null": true}}]});
    json!({"name": "T", "location": location, "table-type": "MANAGED", "columns": columns, "partition-columns": [],
        "protocol": protocol(), "last-commit-timestamp-ms": 10,
        "properties": {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": id}})
}

fn add_commit(name: &str, size: usize) -> Value {
    json!({"action": "add-commit", "commit": {"version": 1, "timestamp": 11, "file-name": name, "file-size": size,
        "file-modification-timestamp": 12}})
}

fn update(id: &str, etag: Option<&str>, updates: &[Value]) -> Value {
    let mut requirements = vec![json!({"type": "assert-table-uuid", "uuid": id})];
    requirements.extend(etag.map(|etag| json!({"type": "assert-etag", "etag": etag})));
    json!({"requirements": requirements, "updates": updates})
}

impl Client {
    /// A managed table, created by this API; its id and location.
    async fn delta_table(&self) -> (String, String) {
        self.ok("POST", "schemas", json!({"name": "d", "catalog_name": "unity"})).await;
        let place = self.ok("POST", "delta/v1/catalogs/unity/schemas/d/staging-tables", json!({"name": "T"})).await;
        let [id, location] = ["table-id", "location"].map(|name| place[name].as_str().unwrap().to_owned());
        self.version_0(&location, &id).await;
        self.ok("POST", TABLES, new_table(&id, &location)).await;
        (id, location)
    }

    /// Stages a commit that sets nothing but its own time, or what `more` says as well.
    async fn stage(&self, location: &str, name: &str, more: &[Value]) -> usize {
        let info = json!({"commitInfo": {"operation": "WRITE", "isBlindAppend": true, "inCommitTimestamp": 11, "txnId": name}});
        let lines: Vec<Value> = std::iter::once(info).chain(more.iter().cloned()).collect();
        self.put(location, &format!("_staged_commits/{name}"), &lines).await
    }

    async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.call(method, path, body).await;
        let error = &answer["error"];
        assert_eq!(error["code"], json!(status), "{answer}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
        (status, error["type"].as_str().unwrap().to_owned())
    }
}

fn is(status: u16, kind: &str) -> (u16, String) {
    (status, kind.to_owned())
}

#[tokio::test]
async fn a_table_is_created_loaded_and_committed_to() {
    let client = Client::new();
    let (id, location) = client.delta_table().await;
    assert_eq!(location, format!("s3://lake/unity/d/{id}"));
    let loaded = client.ok("GET", TABLE, Value::Null).await;
    let metadata = &loaded["metadata"];
    assert_eq!((&metadata["table-uuid"], &metadata["table-type"]), (&json!(id), &json!("MANAGED")));
    assert_eq!((&metadata["location"], &loaded["latest-table-version"]), (&json!(location), &json!(0)));
    assert_eq!(metadata["columns"]["fields"][0]["name"], "id", "as the log has it");
    let properties = &metadata["properties"];
    assert_eq!(properties["delta.enableInCommitTimestamps"], "true");
    assert_eq!(properties["delta.feature.catalogManaged"], "supported");
    let etag = metadata["etag"].as_str().unwrap();
    let size = client.stage(&location, NAME, &[]).await;
    let committed = client.ok("POST", TABLE, update(&id, Some(etag), &[add_commit(NAME, size)])).await;
    let expected =
        json!({"version": 1, "timestamp": 11, "file-name": NAME, "file-size": size, "file-modification-timestamp": 12});
    assert_eq!((&committed["commits"], &committed["latest-table-version"]), (&json!([expected]), &json!(1)));
    let newer = committed["metadata"]["etag"].as_str().unwrap();
    assert_ne!(newer, etag);
    // Sent again it changes nothing, whatever it required.
    let again = client.ok("POST", TABLE, update(&id, Some(etag), &[add_commit(NAME, size)])).await;
    assert_eq!(again, committed);
    // Another commit of the same version, seen at the old one, or at none.
    let size = client.stage(&location, OTHER, &[]).await;
    let late = update(&id, Some(etag), &[add_commit(OTHER, size)]);
    assert_eq!(client.refused("POST", TABLE, late).await, is(409, "UpdateRequirementConflictException"));
    let late = update(&id, None, &[add_commit(OTHER, size)]);
    assert_eq!(client.refused("POST", TABLE, late).await, is(409, "CommitVersionConflictException"));
    // The client published it, and says so.
    let published = [json!({"action": "set-latest-backfilled-version", "latest-published-version": 1})];
    let after = client.ok("POST", TABLE, update(&id, Some(newer), &published)).await;
    assert_eq!((&after["commits"], &after["latest-table-version"]), (&json!([]), &json!(1)));
    assert!(client.world.objects.keys("lake").iter().any(|key| key.ends_with("_delta_log/00000000000000000001.json")));
    for (method, status) in [("HEAD", 204), ("DELETE", 204), ("HEAD", 404), ("GET", 404)] {
        assert_eq!(client.call(method, TABLE, Value::Null).await.0, status, "{method}");
    }
}

#[tokio::test]
async fn what_is_said_of_a_commit_is_what_it_does() {
    let client = Client::new();
    let (id, location) = client.delta_table().await;
    let configuration = json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": id, "owner": "us"});
    let mut metadata = crate::delta::testkit::creation_of("m", &[], configuration)[1].clone();
    metadata["metaData"]["description"] = json!("ours");
    let schema: Value = serde_json::from_str(metadata["metaData"]["schemaString"].as_str().unwrap()).unwrap();
    let size = client.stage(&location, NAME, &[metadata]).await;
    for said in [
        json!({"action": "set-properties", "updates": {"owner": "them"}}),
        json!({"action": "remove-properties", "removals": ["owner"]}),
        json!({"action": "set-columns", "columns": {"type": "struct", "fields": []}}),
        json!({"action": "set-table-comment", "comment": "theirs"}),
        json!({"action": "set-partition-columns", "partition-columns": ["id"]}),
        json!({"action": "set-protocol", "protocol": protocol()}),
        json!({"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 3}}}),
        json!({"action": "remove-domain-metadata", "domains": ["delta.clustering"]}),
    ] {
        let asked = update(&id, None, &[add_commit(NAME, size), said.clone()]);
        assert_eq!(client.refused("POST", TABLE, asked).await, is(400, "InvalidParameterValueException"), "{said}");
        let alone = update(&id, None, &[said]);
        assert_eq!(client.refused("POST", TABLE, alone).await, is(400, "InvalidParameterValueException"));
    }
    let said = [
        add_commit(NAME, size),
        json!({"action": "set-properties", "updates": {"owner": "us"}}),
        json!({"action": "remove-properties", "removals": ["other"]}),
        json!({"action": "set-columns", "columns": schema}),
        json!({"action": "set-table-comment", "comment": "ours"}),
        json!({"action": "set-partition-columns", "partition-columns": []}),
    ];
    let loaded = client.ok("POST", TABLE, update(&id, None, &said)).await;
    assert_eq!(loaded["metadata"]["properties"]["owner"], "us");
}

#[tokio::test]
async fn trouble_has_the_types_of_the_specification() {
    let client = Client::new();
    let (id, location) = client.delta_table().await;
    client
        .ok(
            "POST",
            "tables",
            json!({"catalog_name": "unity", "schema_name": "d", "name": "e", "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": "s3://lake/e"}),
        )
        .await;
    let external = client.ok("GET", &format!("{TABLES}/e"), Value::Null).await;
    assert_eq!((&external["metadata"]["table-type"], &external["commits"]), (&json!("EXTERNAL"), &json!([])));
    assert_eq!(external.get("latest-table-version"), None, "it has no log yet");
    let published =
        |version: i64| json!({"action": "set-latest-backfilled-version", "latest-published-version": version});
    let managed = |change: fn(&mut Value)| {
        let mut new = new_table(&id, &location);
        new["name"] = json!("U");
        change(&mut new);
        new
    };
    let staging = "delta/v1/catalogs/unity/schemas/d/staging-tables";
    for (method, path, body, expected) in [
        ("GET", "delta/v1/catalogs/other/schemas/d/tables/T", Value::Null, is(404, "NoSuchCatalogException")),
        ("GET", "delta/v1/catalogs/unity/schemas/none/tables/T", Value::Null, is(404, "NoSuchSchemaException")),
        ("GET", "delta/v1/catalogs/unity/schemas/d/tables/none", Value::Null, is(404, "NoSuchTableException")),
        ("POST", staging, json!({"name": "t"}), is(409, "AlreadyExistsException")),
        ("POST", staging, json!({}), is(400, "BadRequestException")),
        ("POST", TABLES, new_table(&id, &location), is(409, "AlreadyExistsException")),
        (
            "POST",
            TABLES,
            managed(|new| new["location"] = json!("s3://lake/x")),
            is(400, "InvalidParameterValueException"),
        ),
        ("POST", TABLES, managed(|new| new["properties"] = json!({})), is(400, "InvalidParameterValueException")),
        (
            "POST",
            TABLES,
            managed(|new| new["protocol"] = json!({"min-reader-version": 1, "min-writer-version": 2})),
            is(400, "InvalidParameterValueException"),
        ),
        ("POST", TABLES, managed(|new| new["columns"] = json!("long")), is(400, "InvalidParameterValueException")),
        ("POST", TABLE, json!({"requirements": [], "updates": [published(0)]}), is(400, "BadRequestException")),
        ("POST", TABLE, update(&id, None, &[]), is(400, "BadRequestException")),
        ("POST", TABLE, update(&id, None, &[published(0), published(0)]), is(400, "BadRequestException")),
        ("POST", TABLE, update(&id, None, &[json!({"action": "set-owner"})]), is(400, "BadRequestException")),
        ("POST", TABLE, update(&id, None, &[published(7)]), is(400, "InvalidParameterValueException")),
        (
            "POST",
            TABLE,
            update(&uuid::Uuid::nil().to_string(), None, &[published(0)]),
            is(409, "UpdateRequirementConflictException"),
        ),
        ("POST", TABLE, update(&id, None, &[add_commit("x.json", 1)]), is(400, "InvalidParameterValueException")),
        ("POST", TABLE, update(&id, None, &[add_commit(OTHER, 1)]), is(400, "InvalidParameterValueException")),
        (
            "POST",
            TABLE,
            update(
                &id,
                None,
                &[json!({"action": "update-metadata-snapshot-version", "last-commit-version": 0,
                "last-commit-timestamp-ms": 1})],
            ),
            is(400, "InvalidParameterValueException"),
        ),
        ("POST", &format!("{TABLE}/metrics"), json!({"table-id": "x"}), is(400, "InvalidParameterValueException")),
        ("GET", &format!("{TABLE}/credentials"), Value::Null, is(400, "BadRequestException")),
        ("GET", &format!("{TABLES}/none/credentials?operation=READ"), Value::Null, is(404, "NoSuchTableException")),
        ("GET", &format!("delta/v1/staging-tables/{OTHER}/credentials"), Value::Null, is(404, "NotFoundException")),
        ("GET", "delta/v1/temporary-path-credentials?operation=READ", Value::Null, is(400, "BadRequestException")),
        ("POST", &format!("{TABLE}/rename"), json!({"new-name": "b"}), is(501, "NotImplementedException")),
        ("GET", "delta/v1/config?catalog=other&protocol-versions=1.0", Value::Null, is(404, "NoSuchCatalogException")),
        (
            "GET",
            "delta/v1/config?catalog=unity&protocol-versions=2.0",
            Value::Null,
            is(400, "InvalidParameterValueException"),
        ),
        ("GET", "delta/v1/config?catalog=unity", Value::Null, is(400, "BadRequestException")),
    ] {
        assert_eq!(client.refused(method, path, body.clone()).await, expected, "{method} {path} {body}");
    }
    assert_eq!(client.call("POST", &format!("{TABLE}/metrics"), json!({"table-id": id})).await, (204, Value::Null));
    let config = client.ok("GET", "delta/v1/config?catalog=unity&protocol-versions=1.3,2.0", Value::Null).await;
    assert_eq!(config["protocol-version"], "1.0");
    let endpoints = config["endpoints"].as_array().unwrap();
    assert!(endpoints.contains(&json!("POST /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}")), "{config}");
    assert_eq!(endpoints.len(), 10);
    for operation in ["READ", "READ_WRITE"] {
        let answer = client.ok("GET", &format!("{TABLE}/credentials?operation={operation}"), Value::Null).await;
        assert_eq!(answer, json!({"storage-credentials": []}));
    }
}

#[tokio::test]
async fn an_open_outcome_and_too_many_unpublished_commits_are_told_apart() {
    let client = Client::new();
    let (id, location) = client.delta_table().await;
    let size = client.stage(&location, NAME, &[]).await;
    client.world.faults.inject("list", 0, Fault::Before(StoreErrorKind::Unavailable));
    let asked = update(&id, None, &[add_commit(NAME, size)]);
    assert_eq!(client.refused("POST", TABLE, asked.clone()).await, is(500, "CommitStateUnknownException"));
    client.ok("POST", TABLE, asked).await;
    for version in 2..=11_i64 {
        let name = format!("{version:020}.{}.json", uuid::Uuid::from_u128(version as u128));
        let info = json!({"commitInfo": {"operation": "WRITE", "isBlindAppend": true, "inCommitTimestamp": 10 + version, "txnId": name}});
        let size = client.put(&location, &format!("_staged_commits/{name}"), &[info]).await;
        let add = json!({"action": "add-commit", "commit": {"version": version, "timestamp": 10 + version, "file-name": name,
            "file-size": size, "file-modification-timestamp": 12}});
        if version <= 10 {
            client.ok("POST", TABLE, update(&id, None, &[add])).await;
        } else {
            let expected = is(429, "ResourceExhaustedException");
            assert_eq!(client.refused("POST", TABLE, update(&id, None, &[add])).await, expected);
        }
    }
    let loaded = client.ok("GET", TABLE, Value::Null).await;
    let versions: Vec<i64> =
        loaded["commits"].as_array().unwrap().iter().map(|one| one["version"].as_i64().unwrap()).collect();
    assert_eq!(versions, (1..=10).rev().collect::<Vec<_>>(), "newest first");
}
