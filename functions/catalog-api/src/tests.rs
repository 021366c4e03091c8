use aws_lambda_events::encodings::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lakewarden_core::ports::Settings;
use lakewarden_core::store::StoreErrorKind;
use lakewarden_core::store::memory::{Fault, MemoryWorld};
use serde_json::{Value, json};

use super::*;

mod rest;

struct Front {
    world: MemoryWorld,
    app: App,
}

/// A clock at which waiting never ends.
struct EndlessWaits;

#[async_trait::async_trait]
impl lakewarden_core::store::Clock for EndlessWaits {
    fn now_ms(&self) -> i64 {
        0
    }

    async fn sleep_ms(&self, _ms: u64) {
        std::future::pending().await
    }
}

struct Answer {
    status: i64,
    headers: http::HeaderMap,
    body: Value,
}

impl Front {
    fn new() -> Self {
        let world = MemoryWorld::new(1_700_000_000_000);
        let app = App::new(world.ports.clone(), Settings::default());
        Self { world, app }
    }

    async fn handle(&self, event: Value) -> Answer {
        let request: ApiGatewayV2httpRequest = serde_json::from_value(event).unwrap();
        let deadline = Deadline::in_ms(self.app.ports.clock.as_ref(), 30_000);
        let response = handle(&self.app, request, deadline).await;
        let Some(Body::Text(text)) = response.body else { panic!("a text") };
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        Answer { status: response.status_code, headers: response.headers, body }
    }

    /// A REST request: `GET /v1/…?…`, headers, and a body unless it is null.
    async fn rest(&self, request: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        let (method, address) = request.split_once(' ').unwrap();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let mut event = event(method, path, query);
        for (name, value) in headers {
            event["headers"][*name] = json!(value);
        }
        if !body.is_null() {
            event["body"] = json!(body.to_string());
        }
        self.handle(event).await
    }

    async fn glue(&self, operation: &str, input: Value) -> Answer {
        let mut event = event("POST", "/", "");
        event["headers"]["x-amz-target"] = json!(format!("AWSGlue.{operation}"));
        event["body"] = json!(STANDARD.encode(input.to_string()));
        event["isBase64Encoded"] = json!(true);
        self.handle(event).await
    }

    async fn get(&self, path: &str, query: &str) -> Answer {
        self.handle(event("GET", path, query)).await
    }

    async fn with_data() -> Self {
        let front = Self::new();
        let table = json!({ "Name": "a/b c", "PartitionKeys": [{ "Name": "n", "Type": "int" }] });
        for (operation, input) in [
            ("CreateDatabase", json!({ "DatabaseInput": { "Name": "Sales" } })),
            ("CreateTable", json!({ "DatabaseName": "sales", "TableInput": table })),
            (
                "BatchCreatePartition",
                json!({ "DatabaseName": "sales", "TableName": "a/b c",
                    "PartitionInputList": [{ "Values": ["1"] }, { "Values": ["2"] }, { "Values": ["10"] }] }),
            ),
        ] {
            assert_eq!(front.glue(operation, input).await.status, 200);
        }
        front
    }
}

fn event(method: &str, path: &str, query: &str) -> Value {
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query,
        "headers": { "content-type": "application/x-amz-json-1.1" },
        "requestContext": {
            "accountId": "123456789012", "apiId": "x", "requestId": "request-1", "stage": "$default", "timeEpoch": 0,
            "http": { "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "t" },
        },
        "isBase64Encoded": false,
    })
}

#[tokio::test]
async fn the_services_protocol_over_base64() {
    let front = Front::with_data().await;
    let answer = front.glue("GetPartitions", json!({ "DatabaseName": "sales", "TableName": "a/b c" })).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["Partitions"].as_array().unwrap().len(), 3);
    assert_eq!(answer.headers["content-type"], "application/x-amz-json-1.1");
    assert_eq!(answer.headers["x-amzn-requestid"], "request-1");
    let answer = front.glue("GetTable", json!({ "DatabaseName": "sales", "Name": "nope" })).await;
    assert_eq!((answer.status, &answer.body["__type"]), (400, &json!("EntityNotFoundException")));
    assert_eq!(answer.headers["x-amzn-errortype"], "EntityNotFoundException");
}

#[tokio::test]
async fn a_listing_explains_itself_on_request() {
    let front = Front::with_data().await;
    let path = "/v1/databases/sales/tables/a%2Fb%20c/partitions";
    let plain = front.get(path, "expression=n%20%3E%201").await.body;
    assert_eq!((plain["Partitions"].as_array().unwrap().len(), plain.get("Explain")), (2, None));
    let answer = front.get(path, "expression=n%20%3E%201&explain=true").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["Partitions"], plain["Partitions"]);
    let explain = &answer.body["Explain"];
    assert_eq!(
        (&explain["Way"], &explain["Index"], &explain["Residual"]),
        (&json!("ranges"), &Value::Null, &Value::Null)
    );
    assert_eq!((&explain["Shards"], &explain["Queries"], &explain["ItemsRead"]), (&json!(16), &json!(16), &json!(2)));
    assert_eq!(explain["Ranges"].as_array().unwrap().len(), 1);
    assert_eq!(explain["Probes"], json!([]), "no unreadable value was ever written");
    let judged = front.get(path, "expression=n%20not%20in%20(1)%20or%20n%20is%20null&explain").await.body;
    assert_eq!(judged["Explain"]["Way"], "ranges");
    assert_eq!(front.get(path, "explain=maybe").await.status, 422);
    // Nobody asks for it on the service's protocol.
    let input = json!({ "DatabaseName": "sales", "TableName": "a/b c", "LakewardenExplain": true });
    assert!(front.glue("GetPartitions", input).await.body.get("Explain").is_none());
}

#[tokio::test]
async fn plain_bodies_and_wrong_base64() {
    let front = Front::new();
    let mut plain = event("POST", "/", "");
    plain["headers"]["X-Amz-Target"] = json!("AWSGlue.GetDatabases");
    plain["body"] = json!("{}");
    assert_eq!(front.handle(plain.clone()).await.body, json!({ "DatabaseList": [] }));
    plain["isBase64Encoded"] = json!(true);
    let answer = front.handle(plain).await;
    assert_eq!((answer.status, &answer.body["__type"]), (400, &json!("SerializationException")));
    let no_target = front.handle(event("POST", "", "")).await;
    assert_eq!((no_target.status, &no_target.body["__type"]), (400, &json!("UnknownOperationException")));
}

#[tokio::test]
async fn rest_for_people() {
    let front = Front::with_data().await;
    let databases = front.get("/v1/databases", "").await;
    assert_eq!((databases.status, &databases.body["DatabaseList"][0]["Name"]), (200, &json!("sales")));
    assert_eq!(databases.headers["content-type"], "application/json");
    assert_eq!(front.get("/v1/databases/SALES", "").await.body["Database"]["Name"], "sales");
    assert_eq!(front.get("/v1/databases/sales/tables/", "expression=a*").await.body["TableList"][0]["Name"], "a/b c");
    let table = front.get("/v1/databases/sales/tables/a%2Fb%20c", "").await;
    assert_eq!(table.body["Table"]["Name"], "a/b c");
    let page = front.get("/v1/databases/sales/tables/a%2Fb%20c/partitions", "max_results=2").await;
    assert_eq!(page.body["Partitions"][1]["Values"], json!(["2"]));
    let token = page.body["NextToken"].as_str().unwrap();
    let query = format!("next_token={token}&exclude_column_schema=true");
    let page = front.get("/v1/databases/sales/tables/a%2Fb%20c/partitions", &query).await;
    assert_eq!(page.body["Partitions"][0]["Values"], json!(["10"]));
}

#[tokio::test]
async fn rest_reads_the_past() {
    let front = Front::with_data().await;
    let table = "/v1/databases/sales/tables/a%2Fb%20c";
    let partitions = format!("{table}/partitions");
    for (query, status) in [
        ("query_as_of_time=1", 422),
        ("query_as_of_time=99999999999.5", 200),
        ("query_as_of_time=yesterday", 422),
        ("transaction_id=6f1d6a7e-6b8b-4a0f-8f6b-0f6f1d6a7e6b", 404),
        ("transaction_id=x&query_as_of_time=1", 422),
    ] {
        for path in [table, &partitions] {
            let answer = front.get(path, query).await;
            assert_eq!(answer.status, status, "{path} {query} {}", answer.body);
        }
    }
}

#[tokio::test]
async fn rest_errors_have_names_and_statuses() {
    let front = Front::with_data().await;
    let partitions = "/v1/databases/sales/tables/a%2Fb%20c/partitions";
    for (path, query, status, name) in [
        ("/v1/databases/nope", "", 404, "EntityNotFoundException"),
        ("/v1/databases/sales/tables/nope", "", 404, "EntityNotFoundException"),
        (partitions, "max_results=0", 422, "ValidationException"),
        (partitions, "max_results=x", 422, "InvalidInputException"),
        (partitions, "maxresults=1", 422, "InvalidInputException"),
        (partitions, "next_token=x", 422, "InvalidInputException"),
        (partitions, "expression=n%3Dx", 422, "InvalidInputException"),
        (partitions, "a=1&a=2", 422, "InvalidInputException"),
        ("/v1/databases/%FF", "", 422, "InvalidInputException"),
        ("/v1/databases/sales/views", "", 404, "UnknownOperationException"),
        ("/v2", "", 404, "UnknownOperationException"),
        ("/", "", 404, "UnknownOperationException"),
        ("//", "", 404, "UnknownOperationException"),
        ("", "", 404, "UnknownOperationException"),
        ("/v1/databases//tables", "", 422, "ValidationException"),
    ] {
        let answer = front.get(path, query).await;
        assert_eq!((answer.status, answer.body["__type"].as_str()), (status, Some(name)), "{path} {query}");
    }
    let unknown = front.handle(event("GET", "/v1/databases/sales/views", "")).await;
    assert_eq!(unknown.status, 404);
    let text = unknown.body["Message"].as_str().unwrap();
    assert!(
        text.contains("GET /v1/databases/{database}/tables/{table}/partitions") && text.contains("POST /"),
        "{text}"
    );
}

#[tokio::test]
async fn names_that_cannot_exist_are_not_found_on_every_way_in() {
    let front = Front::with_data().await;
    for name in ["x".repeat(256), "x".repeat(5000), "%F0%9F%98%80".repeat(300)] {
        for path in [format!("{name}/tables/t/sweeps"), format!("sales/tables/{name}/sweeps/r/report")] {
            let answer = front.get(&format!("/v1/databases/{path}"), "").await;
            assert_eq!((answer.status, &answer.body["__type"]), (404, &json!("EntityNotFoundException")), "{path}");
        }
        let entry = json!({ "catalogId": front.app.settings.account_id, "databaseName": name, "tableName": "t",
            "type": "orphan_file_deletion" });
        let answer = front.glue("BatchGetTableOptimizer", json!({ "Entries": [entry] })).await;
        let code = &answer.body["Failures"][0]["error"]["ErrorCode"];
        assert_eq!((answer.status, code), (200, &json!("EntityNotFoundException")));
    }
}

#[tokio::test]
async fn a_named_stage_is_not_part_of_the_path() {
    let front = Front::with_data().await;
    for (stage, path, status) in [
        ("prod", "/prod/v1/databases", 200),
        ("prod", "/production/v1/databases", 404),
        ("v1", "/v1/v1/databases", 200),
        ("$default", "/v1/databases", 200),
    ] {
        let mut event = event("GET", path, "");
        event["requestContext"]["stage"] = json!(stage);
        assert_eq!(front.handle(event).await.status, status, "{stage} {path}");
    }
    let mut event = event("POST", "/prod", "");
    event["requestContext"]["stage"] = json!("prod");
    event["headers"]["x-amz-target"] = json!("AWSGlue.GetDatabases");
    assert_eq!(front.handle(event).await.status, 200);
}

#[tokio::test]
async fn failures_of_ours_are_500_and_say_nothing_of_the_inside() {
    let front = Front::with_data().await;
    front.world.faults.inject("get catalog", 0, Fault::Before(StoreErrorKind::AccessDenied));
    let answer = front.get("/v1/databases/sales", "").await;
    assert_eq!((answer.status, &answer.body["__type"]), (500, &json!("InternalServiceException")));
    assert!(!answer.body.to_string().contains("catalog"), "{}", answer.body);
    front.world.faults.inject("get catalog", 0, Fault::Before(StoreErrorKind::Throttled));
    assert_eq!(front.get("/v1/databases/sales", "").await.status, 429);
}

#[tokio::test]
async fn a_request_without_time_is_ended_by_name() {
    let front = Front::with_data().await;
    // A busy store: the operation waits before it asks again, for ever.
    front.world.faults.inject("put partitions", 0, Fault::Before(StoreErrorKind::Throttled));
    let input = json!({ "DatabaseName": "sales", "TableName": "a/b c", "PartitionInput": { "Values": ["3"] } });
    let mut event = event("POST", "/", "");
    event["headers"]["x-amz-target"] = json!("AWSGlue.CreatePartition");
    event["body"] = json!(input.to_string());
    let mut app = front.app.clone();
    app.ports.clock = std::sync::Arc::new(EndlessWaits);
    let response = handle(&app, serde_json::from_value(event).unwrap(), Deadline(1)).await;
    let Some(Body::Text(text)) = response.body else { panic!("a text") };
    assert_eq!(response.status_code, 400);
    assert!(text.contains("OperationTimeoutException"), "{text}");
}
