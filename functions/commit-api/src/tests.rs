use std::collections::BTreeSet;

use super::*;
use aws_lambda_events::encodings::Body;
use base64::Engine;
use bytes::Bytes;
use lakewarden_core::ports::Settings;
use lakewarden_core::store::memory::{Fault, MemoryWorld};
use lakewarden_core::store::{ObjectKey, Objects, PutOptions, StoreErrorKind};
use serde_json::{Value, json};

const ID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

fn app() -> (MemoryWorld, App) {
    let world = MemoryWorld::new(1_767_225_600_000);
    let app = App::new(world.ports.clone(), Settings::default());
    (world, app)
}

async fn call(app: &App, method: &str, path: &str, body: Option<&Value>) -> (i64, Value) {
    send(app, method, path, body.map(Value::to_string), false).await
}

async fn send(app: &App, method: &str, path: &str, body: Option<String>, base64: bool) -> (i64, Value) {
    let event = event(method, path, body, base64);
    let (status, _, body) = respond(app, event, 28_000).await;
    (status, body)
}

fn event(method: &str, path: &str, body: Option<String>, base64: bool) -> Value {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    json!({"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query, "headers": {},
        "requestContext": {"stage": "$default", "http": {"method": method, "path": path}},
        "body": body, "isBase64Encoded": base64})
}

async fn respond(app: &App, event: Value, time_ms: i64) -> (i64, aws_lambda_events::http::HeaderMap, Value) {
    let request: ApiGatewayV2httpRequest = serde_json::from_value(event).unwrap();
    let response = handle(app, request, Deadline::in_ms(&*app.ports.clock, time_ms)).await;
    let Some(Body::Text(text)) = response.body else { panic!("no body") };
    (response.status_code, response.headers, serde_json::from_str(&text).unwrap())
}

fn creation() -> Value {
    let schema =
        json!({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
    json!({"location": "s3://lake/wh/t", "read_version": -1, "actions": [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(),
            "partitionColumns": [], "configuration": {}}},
        {"commitInfo": {"operation": "CREATE TABLE"}},
    ]})
}

fn transaction(read_version: i64, app_id: &str) -> Value {
    json!({"location": "s3://lake/wh/t", "read_version": read_version,
        "actions": [{"txn": {"appId": app_id, "version": 1}}, {"commitInfo": {"operation": "STREAMING UPDATE"}}]})
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

#[tokio::test]
async fn a_commit_can_be_proposed_and_its_verdict_read() {
    let (_, app) = app();
    let (status, created) = call(&app, "POST", "/v1/commits", Some(&creation())).await;
    assert_eq!((status, &created["status"], &created["version"]), (200, &json!("committed"), &json!(0)));
    let proposed = with(transaction(0, "a"), "proposal_id", json!(ID));
    let (status, first) = call(&app, "POST", "/v1/commits", Some(&proposed)).await;
    assert_eq!((status, &first["version"]), (200, &json!(1)));
    // The same call again is the same commit.
    let (status, again) = call(&app, "POST", "/v1/commits", Some(&proposed)).await;
    assert_eq!((status, &again), (200, &first));
    let (status, read) = call(&app, "GET", &format!("/v1/commits/{ID}"), None).await;
    assert_eq!((status, &read), (200, &first));
    let (status, listed) = call(&app, "GET", "/v1/commits?location=s3%3A%2F%2Flake%2Fwh%2Ft&limit=10", None).await;
    assert_eq!((status, listed["commits"].as_array().unwrap().len()), (200, 2));
}

#[tokio::test]
async fn refusals_have_the_status_of_their_kind() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    let (status, body) = call(&app, "POST", "/v1/commits", Some(&with(creation(), "read_version", json!(-1)))).await;
    // Byte for byte the commit that is in the log: it landed.
    assert_eq!((status, &body["status"]), (200, &json!("committed")));
    let mut other = creation();
    other["actions"][2]["commitInfo"]["engineInfo"] = json!("x");
    let (status, body) = call(&app, "POST", "/v1/commits", Some(&other)).await;
    assert_eq!((status, &body["exception"]), (409, &json!("ProtocolChangedException")));
    call(&app, "POST", "/v1/commits", Some(&transaction(0, "a"))).await;
    let mut same_app = transaction(0, "a");
    same_app["actions"][0]["txn"]["version"] = json!(2);
    let (status, body) = call(&app, "POST", "/v1/commits", Some(&same_app)).await;
    assert_eq!((status, &body["exception"]), (409, &json!("ConcurrentTransactionException")));
    assert_eq!(body["winner"], json!({"version": 1, "operation": "STREAMING UPDATE"}));
    world
        .objects
        .put(&ObjectKey::new("lake", "wh/t/a.parquet"), Bytes::from_static(b"no parquet"), &PutOptions::default())
        .await
        .unwrap();
    let mut file = transaction(1, "b");
    file["actions"][0] = json!({"add": {"path": "a.parquet", "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": true}});
    let (status, body) = call(&app, "POST", "/v1/commits", Some(&file)).await;
    assert_eq!((status, &body["reason"]), (422, &json!("NOT_PARQUET")));
}

#[tokio::test]
async fn an_id_stands_for_one_commit() {
    let (_, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    call(&app, "POST", "/v1/commits", Some(&with(transaction(0, "a"), "proposal_id", json!(ID)))).await;
    for read_version in [0, 1] {
        let other = with(transaction(read_version, "b"), "proposal_id", json!(ID));
        let (status, body) = call(&app, "POST", "/v1/commits", Some(&other)).await;
        assert_eq!(status, 409, "{body}");
        assert!(body.to_string().contains("ProposalReusedException"), "{body}");
        assert!(!body.to_string().contains("{proposal_id}"), "{body}");
    }
}

#[tokio::test]
async fn a_staged_object_can_be_named() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    let name = format!("_delta_log/_staged_commits/00000000000000000001.{ID}.json");
    let at = ObjectKey::new("lake", format!("wh/t/{name}"));
    let body = |key: &str| json!({"location": "s3://lake/wh/t", "staged_key": key});
    let (status, missing) = call(&app, "POST", "/v1/commits", Some(&body(&name))).await;
    assert_eq!((status, &missing["error"]), (404, &json!("StagedObjectMissing")));
    let line = Bytes::from_static(b"{\"txn\":{\"appId\":\"a\",\"version\":1}}\n");
    world.objects.put(&at, line, &PutOptions::default()).await.unwrap();
    for key in [name.as_str(), at.to_string().as_str()] {
        let (status, verdict) = call(&app, "POST", "/v1/commits", Some(&body(key))).await;
        assert_eq!((status, &verdict["version"]), (200, &json!(1)), "{verdict}");
    }
    for (bad, text) in [
        (body("s3://other/wh/t/x"), "not a staged commit"),
        (with(body(&name), "read_set", json!({})), "read set"),
        (with(body(&name), "read_version", json!(7)), "proposes version 1"),
        (with(body(&name), "actions", json!([])), "either"),
        (with(body(&name), "proposal_id", json!("00000000-0000-0000-0000-000000000001")), "differs"),
    ] {
        let (status, answer) = call(&app, "POST", "/v1/commits", Some(&bad)).await;
        assert_eq!(status, 422, "{bad}");
        assert!(answer["message"].as_str().unwrap().contains(text), "{answer}");
    }
}

#[tokio::test]
async fn bad_requests_are_told_what_to_do() {
    let (_, app) = app();
    for (method, path, body, status, error) in [
        ("GET", "/v1/nothing", None, 404, "UnknownRoute"),
        ("PUT", "/v1/commits", None, 405, "MethodNotAllowed"),
        ("PATCH", "/api/2.1/unity-catalog/tables/unity.d.t", None, 405, "MethodNotAllowed"),
        ("DELETE", "/v1/databases/d/tables/t/commits/rebuild", None, 405, "MethodNotAllowed"),
        ("POST", "/v1/commits", Some("{"), 400, "MalformedBody"),
        ("POST", "/v1/commits", Some(r#"{"location":"s3://a","location":"s3://b"}"#), 400, "MalformedBody"),
        ("POST", "/v1/commits", Some("{}"), 422, "InvalidRequest"),
        ("POST", "/v1/commits", Some(r#"{"location":"/tmp/t","actions":[]}"#), 422, "InvalidRequest"),
        ("POST", "/v1/commits", Some(r#"{"location":"s3://lake/t","actions":[]}"#), 422, "InvalidRequest"),
        (
            "POST",
            "/v1/commits",
            Some(r#"{"location":"s3://lake/t","actions":[],"read_version":-2}"#),
            422,
            "InvalidRequest",
        ),
        ("POST", "/v1/commits", Some(r#"["s3://lake/t",null,-1,[],null,null]"#), 400, "MalformedBody"),
        ("POST", "/v1/commits", None, 400, "MalformedBody"),
        ("GET", "/v1/commits?location=s3://lake/t&next=abc", None, 422, "InvalidRequest"),
        ("GET", "/v1/commits", None, 422, "InvalidRequest"),
        ("GET", "/v1/commits?location=s3://lake/t&limit=0", None, 422, "InvalidRequest"),
        ("GET", "/v1/commits/7", None, 422, "InvalidRequest"),
        ("GET", "/v1/commits/80a083e8-7026-4e79-81be-64bd76c43a11", None, 404, "ProposalNotFound"),
        ("GET", "/v1/databases/d/tables/t/commits", None, 404, "TableNotFound"),
        ("GET", "/v1/%ff", None, 400, "MalformedUrl"),
    ] {
        let (found, answer) = send(&app, method, path, body.map(str::to_owned), false).await;
        assert_eq!((found, answer["error"].as_str()), (status, Some(error)), "{method} {path} {body:?}: {answer}");
        assert!(!answer["advice"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_no_key_can_hold_is_the_callers_fault_on_every_way_in() {
    let (_, app) = app();
    // `/_delta_log/_staged_commits/`, twenty digits, a dot, the id, `.json`.
    let longest = 1024 - 28 - 20 - 1 - 36 - 5;
    for (location, taken) in [
        (format!("s3://lake/{}", "x".repeat(longest)), true),
        (format!("s3://lake/{}", "x".repeat(longest + 1)), false),
        (format!("s3://lake/{}", "x".repeat(5000)), false),
        (format!("s3://{}/t", "x".repeat(256)), false),
        (format!("s3://{}/t", "x".repeat(5000)), false),
    ] {
        let (status, answer) =
            call(&app, "POST", "/v1/commits", Some(&with(creation(), "location", json!(location)))).await;
        assert_eq!(status, if taken { 200 } else { 422 }, "{answer}");
        let (status, _) = call(&app, "GET", &format!("/v1/commits?location={location}"), None).await;
        assert_eq!(status, if taken { 200 } else { 422 });
    }
    for (path, status) in [
        (format!("/v1/databases/{}/tables/t/commits", "x".repeat(1025)), 404),
        (format!("/v1/databases/d/tables/{}/commits", "x".repeat(5000)), 404),
        (format!("/v1/commits?location=s3://lake/t&next={}", "x".repeat(5000)), 422),
        (format!("/v1/commits?location=s3://lake/t&next={}%23{ID}", "0".repeat(15)), 200),
        (format!("/v1/commits?location=s3://lake/t&next={}~{ID}", "0".repeat(15)), 200),
        ("/v1/commits?location=s3://lake/t&next=".to_owned(), 200),
    ] {
        assert_eq!(call(&app, "GET", &path, None).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn bodies_may_be_base64_and_have_a_limit() {
    let (_, app) = app();
    let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    let (status, _) = send(&app, "POST", "/v1/commits", Some(encode(creation().to_string())), true).await;
    assert_eq!(status, 200);
    let padding = "x".repeat(request::BODY_MAX_BYTES);
    let (status, answer) = send(&app, "POST", "/v1/commits", Some(encode(padding.clone())), true).await;
    assert_eq!((status, &answer["error"]), (400, &json!("MalformedBody")), "at the limit it is read");
    let (status, answer) = send(&app, "POST", "/v1/commits", Some(encode(padding + "x")), true).await;
    assert_eq!((status, &answer["error"], &answer["upload"]), (413, &json!("BodyTooLarge"), &json!(null)));
    assert!(answer["advice"].as_str().unwrap().contains("_staged_commits"));
    // A body that says for which table it is, a byte below the limit and one above.
    let of_size = |size: usize| {
        let body = with(with(transaction(0, "a"), "proposal_id", json!(ID)), "note", json!("")).to_string();
        let padding = "x".repeat(size - body.len());
        body.replace("\"note\":\"\"", &format!("\"note\":\"{padding}\""))
    };
    let (status, verdict) = send(&app, "POST", "/v1/commits", Some(of_size(request::BODY_MAX_BYTES)), false).await;
    assert_eq!((status, &verdict["version"]), (200, &json!(1)), "{verdict}");
    let (status, answer) = send(&app, "POST", "/v1/commits", Some(of_size(request::BODY_MAX_BYTES + 1)), false).await;
    let key = format!("s3://lake/wh/t/_delta_log/_staged_commits/00000000000000000001.{ID}.json");
    assert_eq!((status, &answer["staged_key"], &answer["proposal_id"]), (413, &json!(key), &json!(ID)), "{answer}");
    assert_eq!(answer["then"]["body"], json!({"staged_key": key, "location": "s3://lake/wh/t"}));
    assert_eq!(
        (&answer["upload"]["method"], answer["upload"]["headers"]["if-none-match"].as_str()),
        (&json!("PUT"), Some("*"))
    );
}

#[tokio::test]
async fn an_address_for_an_upload_can_be_asked_for() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    let ask = json!({"location": "s3://lake/wh/t", "read_version": 0});
    let (status, offered) = call(&app, "POST", "/v1/commits/uploads", Some(&ask)).await;
    assert_eq!(status, 200, "{offered}");
    assert!(offered["upload"]["expires_ms"].as_i64().unwrap() > app.ports.clock.now_ms());
    let key = offered["staged_key"].as_str().unwrap().strip_prefix("s3://lake/").unwrap();
    let line = Bytes::from_static(b"{\"txn\":{\"appId\":\"a\",\"version\":1}}\n");
    world.objects.put(&ObjectKey::new("lake", key), line, &PutOptions::default()).await.unwrap();
    let (status, verdict) = call(&app, "POST", "/v1/commits", Some(&offered["then"]["body"])).await;
    assert_eq!((status, &verdict["version"], &verdict["proposal_id"]), (200, &json!(1), &offered["proposal_id"]));
    for (bad, status) in [
        (json!({"read_version": 0}), 422),
        (json!({"location": "s3://lake/wh/t"}), 422),
        (json!({"location": "s3://lake/wh/t", "read_version": -2}), 422),
        (with(ask.clone(), "proposal_id", json!("7")), 422),
        (json!([1]), 400),
    ] {
        assert_eq!(call(&app, "POST", "/v1/commits/uploads", Some(&bad)).await.0, status, "{bad}");
    }
    world.faults.inject("presign", 0, Fault::Before(StoreErrorKind::Unavailable));
    assert_eq!(call(&app, "POST", "/v1/commits/uploads", Some(&ask)).await.0, 503);
}

#[tokio::test]
async fn long_work_is_taken_on_with_a_place_to_ask() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    let proposed = with(transaction(0, "a"), "proposal_id", json!(ID));
    let in_time = event("POST", "/v1/commits", Some(proposed.to_string()), false);
    let mut unhurried = in_time.clone();
    unhurried["headers"] = json!({"prefer": "wait=5, respond-async"});
    for (event, time_ms) in [(in_time.clone(), 2_000), (in_time.clone(), 2_000), (unhurried, 28_000)] {
        let (status, headers, body) = respond(&app, event, time_ms).await;
        assert_eq!((status, &body["status"], &body["final"]), (202, &json!("received"), &json!(false)), "{body}");
        assert_eq!(headers["location"], body["ask"].as_str().unwrap());
        assert!(headers.contains_key("retry-after"));
        let (status, asked) = call(&app, "GET", body["ask"].as_str().unwrap(), None).await;
        assert_eq!((status, &asked["status"]), (200, &json!("received")));
        let message = world.queue.take(lakewarden_core::store::QueueName::Commits).unwrap();
        assert!(message.contains(ID), "somebody goes on with it: {message}");
    }
    let (status, _, verdict) = respond(&app, in_time.clone(), 28_000).await;
    assert_eq!((status, &verdict["version"]), (200, &json!(1)));
    // Once there is a verdict, there is no time needed for it.
    let mut late = in_time;
    late["headers"] = json!({"prefer": "respond-async"});
    assert_eq!(respond(&app, late, 2_000).await.2["version"], 1);
}

#[tokio::test]
async fn a_call_made_twice_at_once_is_one_commit() {
    let (_, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    let proposed = with(transaction(0, "a"), "proposal_id", json!(ID));
    let calls = (0..4).map(|_| call(&app, "POST", "/v1/commits", Some(&proposed)));
    for (status, verdict) in futures::future::join_all(calls).await {
        assert_eq!((status, &verdict["version"]), (200, &json!(1)), "{verdict}");
    }
    let (_, listed) = call(&app, "GET", "/v1/commits?location=s3://lake/wh/t", None).await;
    assert_eq!(listed["commits"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn trouble_is_answered_so_that_the_call_can_be_repeated() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    world.faults.inject("list", 0, Fault::Before(StoreErrorKind::Unavailable));
    let (status, answer) = call(&app, "POST", "/v1/commits", Some(&transaction(0, "a"))).await;
    assert_eq!((status, &answer["error"]), (503, &json!("StoreUnavailable")));
    let again = with(transaction(0, "a"), "proposal_id", answer["proposal_id"].clone());
    let (status, verdict) = call(&app, "POST", "/v1/commits", Some(&again)).await;
    assert_eq!((status, &verdict["version"]), (200, &json!(1)));
}

#[tokio::test]
async fn a_next_goes_into_a_url_as_it_is() {
    let (_, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    call(&app, "POST", "/v1/commits", Some(&transaction(0, "a"))).await;
    let path = "/v1/commits?location=s3://lake/wh/t&limit=1";
    let (_, first) = call(&app, "GET", path, None).await;
    let next = first["next"].as_str().unwrap();
    assert!(next.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)), "{next}");
    let (status, second) = call(&app, "GET", &format!("{path}&next={next}"), None).await;
    let ids = [&first, &second].map(|page| page["commits"][0]["proposal_id"].as_str().unwrap());
    assert!(status == 200 && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn alarms_of_a_table_are_listed() {
    let (world, app) = app();
    call(&app, "POST", "/v1/commits", Some(&creation())).await;
    call(&app, "POST", "/v1/commits", Some(&transaction(0, "a"))).await;
    let path = "/v1/commits/alarms?location=s3://lake/wh/t";
    assert_eq!(call(&app, "GET", path, None).await, (200, json!({"alarms": [], "next": null})));
    // Somebody writes over the version that we published.
    let at = ObjectKey::new("lake", "wh/t/_delta_log/00000000000000000001.json");
    world.objects.put(&at, Bytes::from_static(b"{}\n"), &PutOptions::default()).await.unwrap();
    let (status, refused) = call(&app, "POST", "/v1/commits", Some(&transaction(1, "b"))).await;
    assert_eq!((status, &refused["reason"]), (422, &json!("LOG_REWRITTEN")));
    let (status, listed) = call(&app, "GET", path, None).await;
    let alarm = &listed["alarms"][0];
    assert_eq!((status, &alarm["kind"], &alarm["version"]), (200, &json!("VERSION_REWRITTEN"), &json!(1)));
    assert_eq!((&alarm["seen"], &listed["next"]), (&json!(1), &json!(null)));
    let (status, _) = call(&app, "GET", &format!("{path}&next=x"), None).await;
    assert_eq!(status, 422);
    let (status, _) = call(&app, "GET", "/v1/commits/alarms", None).await;
    assert_eq!(status, 422);
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let described: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
    let mut operations = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operations.insert(format!("{} {path}", method.to_uppercase())));
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
            let named = operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "path");
            let named: Vec<String> = named.map(|one| format!("{{{}}}", one["name"].as_str().unwrap())).collect();
            let in_path: Vec<&str> = path.split('/').filter(|segment| segment.starts_with('{')).collect();
            assert_eq!(named, in_path, "{path}");
        }
    }
    let own = crate::routes::ROUTES.iter().map(|route| format!("{} {}", route.method.name(), route.path));
    let base = lakewarden_core::commit::unity::BASE.join("/");
    let unity = lakewarden_core::commit::unity::served().map(|(method, path)| format!("{method} /{base}{path}"));
    assert_eq!(operations, own.chain(unity).collect());
    // Whatever is referred to is there.
    let text = described.to_string();
    for (kind, at) in [("schemas", "schemas"), ("responses", "responses"), ("headers", "headers")] {
        let mark = format!("#/components/{kind}/");
        let names = text.split(&mark).skip(1).map(|rest| rest.split('"').next().unwrap());
        for name in names {
            assert!(described[at].get(name).is_some(), "there is no {kind}/{name}");
        }
    }
}

#[tokio::test]
async fn a_commit_can_be_proposed_at_exactly_one_version() {
    let (world, app) = app();
    let lines: Vec<String> = creation()["actions"].as_array().unwrap().iter().map(Value::to_string).collect();
    let content = lines.join(" \n");
    let at =
        |version: i64, content: &str| json!({"location": "s3://lake/wh/t", "at_version": version, "content": content});
    let (status, first) = call(&app, "POST", "/v1/commits", Some(&at(0, &content))).await;
    assert_eq!((status, &first["version"], &first["earlier"]), (200, &json!(0), &Value::Null), "{first}");
    let key = ObjectKey::new("lake", "wh/t/_delta_log/00000000000000000000.json");
    let stored = lakewarden_core::store::ReadObjects::get(&*world.objects, &key, &Default::default()).await.unwrap();
    assert_eq!(stored.bytes, content.as_bytes(), "byte for byte");
    // The same call later is told what was found then.
    world.clock.advance_ms(10);
    let (status, again) = call(&app, "POST", "/v1/commits", Some(&at(0, &content))).await;
    assert_eq!((status, &again["proposal_id"], &again["earlier"]), (200, &first["proposal_id"], &json!(true)));
    let other = content.replace("CREATE TABLE", "CREATE");
    let (status, taken) = call(&app, "POST", "/v1/commits", Some(&at(0, &other))).await;
    assert_eq!((status, &taken["reason"]), (409, &json!("VERSION_TAKEN")));
    let by_actions = json!({"location": "s3://lake/wh/t", "at_version": 1, "actions": transaction(0, "a")["actions"]});
    assert_eq!(call(&app, "POST", "/v1/commits", Some(&by_actions)).await.1["version"], json!(1));
    for (wrong, status) in [
        (with(at(2, "{}"), "proposal_id", json!(ID)), 422),
        (with(at(2, "{}"), "actions", json!([])), 422),
        (at(-1, "{}"), 422),
        (json!({"location": "s3://lake/wh/t", "at_version": 2}), 422),
        (json!({"location": "s3://lake/wh/t", "read_version": 1, "content": "{}"}), 422),
        (
            json!({"location": "s3://lake/wh/t", "at_version": 2,
            "staged_key": format!("_delta_log/_staged_commits/{:020}.{ID}.json", 2)}),
            422,
        ),
        (at(2, "no json"), 422),
    ] {
        let (found, body) = call(&app, "POST", "/v1/commits", Some(&wrong)).await;
        assert_eq!(found, status, "{wrong}: {body}");
    }
}
