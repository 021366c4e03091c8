//! `docs/openapi.yaml`, made from the table of routes and the service model, so that it cannot say anything else; and of
//! commits from commit-api's `openapi.json`, which a test there holds against that function's routes.
//!
//! The test fails when the file is not what it should be; this writes it anew:
//!
//! ```sh
//! LAKEWARDEN_WRITE_OPENAPI=1 cargo test -p catalog-api openapi
//! ```

mod examples;
mod schemas;
mod yaml;

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::call::EXPECTED_REVISION;
use super::route::{Kind, Query, Revisioned, Route};
use super::{ROUTES, Target};
use schemas::Schemas;

const ABOUT: &str = "\
The catalog's REST interface: the operations of the AWS Glue Data Catalog under addresses. An `operationId` is the name of \
the operation; its body is the operation's input without what path and query say already, and its answer is the \
operation's output. The account's own catalog is meant unless a body names another `CatalogId`.

Names in a path are percent-encoded, `/` as `%2F`. (API Gateway decodes a path once before it passes it on: there a `/`, `%` \
or `?` in a name is encoded twice, `%252F`.) The values of a partition are query parameters, one `value` for each partition \
key in the keys' order: `?value=2026&value=eu%2Fwest`.

Errors have the names of the service in `__type`; a repeated query parameter that is no list, an unknown one, and a body \
where there should be none are refused with 422. HEAD is served wherever GET is.

Commits (`/v1/commits`, `/v1/databases/{database}/tables/{table}/commits`) have errors of their own: `error`, `message` and \
`advice`, or a verdict. So do Unity Catalog's calls below `/api/2.1/unity-catalog`, which on AWS are an API of their own with \
bearer tokens. What is behind them: functions/commit-api/README.md and docs/doors.md.
";

/// Paths and schemas of commit-api.
const COMMITS: &str = include_str!("../../../../commit-api/src/openapi.json");

/// Statuses of errors, with what they mean.
const ERRORS: [(u16, &str); 10] = [
    (400, "The body cannot be read."),
    (403, "Not allowed."),
    (404, "Something that the address or the body names does not exist."),
    (409, "It exists already, is not in a state for this, or others were changing it."),
    (412, "If-Match, If-None-Match or VersionId does not fit what is there."),
    (422, "Something in the request is not as it should be; the message says what."),
    (429, "The store is busy: try again."),
    (500, "A fault of the service; the request id finds it in the log."),
    (501, "The service has this, Lakewarden not yet."),
    (504, "The time for one request was used up; whether a write happened is open."),
];

/// The whole document.
fn document() -> Value {
    let mut schemas = Schemas::load();
    let mut paths = Map::new();
    let mut ids = HashSet::new();
    for route in ROUTES {
        let operation = operation(route, &mut schemas, &mut ids);
        let at = paths.entry(route.path.to_owned()).or_insert_with(|| json!({}));
        at.as_object_mut().unwrap().insert(route.method.to_lowercase(), operation);
    }
    let mut responses: Map<String, Value> =
        ERRORS.iter().map(|(status, meaning)| (format!("Error{status}"), error_response(meaning))).collect();
    responses.extend(gateway_responses());
    let mut all: Map<String, Value> = schemas.used().clone().into_iter().collect();
    let commits: Map<String, Value> = serde_json::from_str(COMMITS).unwrap();
    let members = |name: &str| commits[name].as_object().unwrap().clone();
    for (whole, part) in [(&mut all, members("schemas")), (&mut responses, members("responses"))] {
        for (name, value) in part {
            assert!(whole.insert(name.clone(), value).is_none(), "both functions have a {name}");
        }
    }
    for (path, operations) in members("paths") {
        assert!(!paths.contains_key(path.as_str()), "both functions answer {path}");
        paths.insert(path, operations);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Lakewarden", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" } },
        "servers": [{ "url": "http://127.0.0.1:8700", "description": "on a laptop" }],
        "paths": paths,
        "components": { "headers": members("headers"), "responses": responses, "schemas": all },
    })
}

fn error_response(meaning: &str) -> Value {
    json!({ "description": meaning, "headers": { "x-amzn-errortype": { "schema": { "type": "string" } } },
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } } })
}

/// What API Gateway, and the laptop's gateway after it, answers by itself.
fn gateway_responses() -> [(String, Value); 3] {
    let message = json!({ "type": "object", "properties": { "message": { "type": "string" } } });
    [
        (413, "The request is larger than a function can be sent: 6 MB as an event."),
        (414, "The address is longer than the gateway takes (10 KB on AWS)."),
        (431, "The headers are longer than the gateway takes (10 KB on AWS)."),
    ]
    .map(|(status, meaning)| {
        let mut response = json!({ "description": meaning });
        if status == 413 {
            response["content"] = json!({ "application/json": { "schema": message } });
        }
        (format!("Error{status}"), response)
    })
}

fn operation(route: &Route, schemas: &mut Schemas, ids: &mut HashSet<String>) -> Value {
    let name = route.target.name();
    let id = if ids.insert(name.to_owned()) { name.to_owned() } else { format!("{name}OfDatabase") };
    let mut described = json!({ "operationId": id, "summary": words(name), "tags": [tag(route)] });
    let members = described.as_object_mut().unwrap();
    if let Some(note) = note(name) {
        members.insert("description".to_owned(), note.into());
    }
    let parameters = parameters(route, schemas);
    if !parameters.is_empty() {
        members.insert("parameters".to_owned(), parameters.into());
    }
    if route.takes_body() {
        let schema = body(route, schemas);
        let required = schema.get("required").is_some();
        let mut content = json!({ "schema": schema });
        if let Some(example) = examples::body(name) {
            content["example"] = example;
        }
        let body = json!({ "required": required, "content": { "application/json": content } });
        members.insert("requestBody".to_owned(), body);
    }
    members.insert("responses".to_owned(), responses(route, schemas));
    described
}

/// `GetPartitions` as `Get partitions`.
fn words(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
            text.push(c.to_ascii_lowercase());
        } else {
            text.push(c);
        }
    }
    text
}

fn tag(route: &Route) -> &'static str {
    let name = route.target.name();
    let has = |part: &str| name.contains(part);
    match () {
        () if has("Statistics") => "Column statistics",
        () if has("PartitionIndex") => "Partition indexes",
        () if has("Partition") => "Partitions",
        () if has("Optimizer") || has("Sweep") || has("Lease") || has("DroppedTable") => "Optimizers and sweeps",
        () if has("Function") => "Functions",
        () if has("Version") => "Table versions",
        () if has("Table") => "Tables",
        () if has("Database") => "Databases",
        () if has("Tag") || has("Resource") => "Tags",
        () => "Catalog",
    }
}

fn note(name: &str) -> Option<&'static str> {
    Some(match name {
        "GetPartitionSpecs" => {
            "Partitions grouped: those under the table's location that share a storage descriptor (their locations aside) \
             make one spec, which has the descriptor once; all others come in one list. Grouping is by page."
        }
        "UpdatePartition" => "`Values` in the body other than those of the address move the partition.",
        "DeletePartitionIndex" => "The index is not used from now on; its entries go in the background.",
        "StartSweep" => {
            "A dry run reports what a scheduled run would do now, and deletes nothing. A run that deletes with `backfill` or \
             `accept_share` needs `after_dry_run`, `asked_by` and `why`, which stay in its record."
        }
        "ListDroppedTables" => {
            "Tables that were dropped from the catalog and whose files may be there still. They go by `StartDroppedTableSweep`, \
             from `removable_from_ms` on."
        }
        "ForgetDroppedTable" => "Its files stay, and it is listed no longer.",
        "StartDroppedTableSweep" => {
            "A dry run reports what would go of a dropped table's files. A run that deletes needs `after_dry_run`, `asked_by` and \
             `why`, and is refused before the grace period has passed, while another table lies at the place or around it, and \
             if anything was written there since the drop. One with the mode `restore` brings back what sweeps took from the table \
             before, by `run`, `prefix` or `key`, as `RestoreSweep` does."
        }
        "CancelSweep" | "CancelDroppedTableSweep" => {
            "The run ends at its next step as `failed` with the reason `cancelled`; what it has deleted by then is gone."
        }
        "RestoreSweep" => {
            "Brings back what runs took away: of one run, below a prefix, or one key. It is a run of its own with the mode \
             `restore`, whose report says of each file `restored`, `exists` (something has the key, and was left alone), \
             `gone`, `not_recoverable` or `failed`."
        }
        "ExplainSweep" => {
            "What a scheduled run would decide on one object now, and why. Reads the whole table to tell."
        }
        "GrantLease" => {
            "What a writer is about to write, inside the table's location: at least one prefix or key. No sweep touches it \
             until the lease has run out and one retention more has passed. `missing` names keys that are not there (yet, or \
             any more)."
        }
        "RenewLease" => "Heartbeat: the lease lasts `ttl_seconds` from now on.",
        "ReleaseLease" => "What was announced is committed, or not wanted.",
        _ => return None,
    })
}

fn parameters(route: &Route, schemas: &mut Schemas) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| {
            let schema = json!({ "type": "string", "minLength": 1 });
            json!({ "name": name, "in": "path", "required": true, "schema": schema, "example": examples::path(name) })
        })
        .collect();
    for query in route.query {
        let required = schemas.is_required(route.target.name(), query.member);
        let mut parameter = json!({ "name": query.name, "in": "query", "required": required,
            "schema": query_schema(route, query, schemas) });
        let members = parameter.as_object_mut().unwrap();
        if let Some(example) = examples::query(query.name) {
            let is_list = query.kind == Kind::Texts && !example.is_array();
            members.insert("example".to_owned(), if is_list { json!([example]) } else { example });
        }
        if query.kind == Kind::Texts {
            members.insert("style".to_owned(), "form".into());
            members.insert("explode".to_owned(), true.into());
        }
        parameters.push(parameter);
    }
    if matches!(route.revisioned, Revisioned::Partition | Revisioned::Table) {
        for name in ["If-Match", "If-None-Match"] {
            let text = "`*`, or entity tags in double quotes, separated by commas.";
            parameters
                .push(json!({ "name": name, "in": "header", "description": text, "schema": { "type": "string" } }));
        }
    }
    parameters
}

fn query_schema(route: &Route, query: &Query, schemas: &mut Schemas) -> Value {
    let operation = match route.target.name() {
        "GetPartitionSpecs" => "GetPartitions",
        "ListSweeps" | "GetSweepReport" | "ListLeases" | "ListDroppedTables" | "GetDroppedTableSweepReport" => {
            "GetDatabases"
        }
        name => name,
    };
    match query.kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Seconds => json!({ "type": "number", "description": "Seconds since 1970." }),
        Kind::Text | Kind::Texts | Kind::Number => schemas.inline_member(operation, query.member),
    }
}

fn body(route: &Route, schemas: &mut Schemas) -> Value {
    if let Target::Own { .. } = route.target {
        return own_input(route.target.name());
    }
    let given: BTreeSet<&str> =
        route.members.iter().map(|(_, member)| *member).chain(route.query.iter().map(|query| query.member)).collect();
    let mut schema = schemas.input(route.target.name(), &given);
    if let Revisioned::Entries(member) = route.revisioned {
        let entries = schemas.list_with(route.target.name(), member, EXPECTED_REVISION);
        schema["properties"][member] = entries;
    }
    schema
}

/// Bodies of what the service does not have.
fn own_input(name: &str) -> Value {
    let text = json!({ "type": "string" });
    let words = json!({ "type": "string", "maxLength": 1000 });
    let named = json!({ "type": "string", "minLength": 1 });
    let flag = json!({ "type": "boolean" });
    let sightings = json!({ "type": "integer", "minimum": 1, "maximum": 2,
        "description": "How often an orphan must have been seen." });
    let seconds = json!({ "type": "integer", "minimum": 60, "maximum": 604_800, "default": 900 });
    let uris = |most: u64| json!({ "type": "array", "maxItems": most, "items": { "type": "string" } });
    match name {
        "RestoreSweep" => json!({ "type": "object", "properties": {
            "run": { "type": "string", "minLength": 1, "maxLength": 128, "description": "Id of a run that deleted." },
            "prefix": { "type": "string", "minLength": 1, "description": "How the files' keys begin, or their S3 URIs." },
            "key": { "type": "string", "minLength": 1, "description": "Key of a file, or its S3 URI." },
            "asked_by": words, "why": words } }),
        "ExplainSweep" => json!({ "type": "object", "required": ["key"], "properties": {
            "key": { "type": "string", "minLength": 1, "description": "Key of an object, or its S3 URI." },
            "sightings": sightings, "backfill": flag } }),
        "GrantLease" => json!({ "type": "object", "properties": { "prefixes": uris(50), "keys": uris(200),
            "ttl_seconds": seconds, "holder": { "type": "string", "maxLength": 255 } } }),
        "RenewLease" => json!({ "type": "object", "properties": { "ttl_seconds": seconds } }),
        "StartDroppedTableSweep" => json!({ "type": "object", "required": ["mode"], "properties": {
            "mode": { "type": "string", "enum": ["dry_run", "ordinary", "restore"] }, "after_dry_run": text,
            "asked_by": words, "why": words, "run": named, "prefix": named, "key": named } }),
        _ => json!({ "type": "object", "required": ["mode"], "properties": {
            "mode": { "type": "string", "enum": ["dry_run", "ordinary"] }, "sightings": sightings, "backfill": flag,
            "accept_share": flag, "after_dry_run": text, "asked_by": words, "why": words } }),
    }
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    let tagged = matches!(route.revisioned, Revisioned::Partition | Revisioned::Table) && route.is_read();
    let mut success = json!({ "description": if route.status == 202 { "Taken on." } else { "Done." } });
    let members = success.as_object_mut().unwrap();
    if tagged {
        let text = "The partition's revision, or the table's version (absent where `attribute` leaves it out).";
        members
            .insert("headers".to_owned(), json!({ "ETag": { "description": text, "schema": { "type": "string" } } }));
    }
    if route.status != 204 {
        let schema = schemas.output(route.target.name());
        members.insert("content".to_owned(), json!({ "application/json": { "schema": schema } }));
    }
    responses.insert(route.status.to_string(), success);
    if tagged {
        responses.insert("304".to_owned(), json!({ "description": "If-None-Match names what is there." }));
    }
    let of_gateway = [414, 431].into_iter().chain(route.takes_body().then_some(413));
    for status in ERRORS.into_iter().map(|(status, _)| status).chain(of_gateway) {
        responses.insert(status.to_string(), json!({ "$ref": format!("#/components/responses/Error{status}") }));
    }
    Value::Object(responses)
}

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.yaml"))
}

#[test]
fn openapi_says_what_is_served() {
    let header = "# Written by a test from the table of routes and the service model; see functions/catalog-api/src/rest/openapi.\n";
    let text = format!("{header}{}", yaml::write(&document()));
    if std::env::var_os("LAKEWARDEN_WRITE_OPENAPI").is_some() {
        std::fs::write(file(), text).unwrap();
        return;
    }
    let found = std::fs::read_to_string(file()).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).position(|(found, wanted)| found != wanted);
    assert!(
        found == text,
        "docs/openapi.yaml is not what is served (line {}). Write it anew: \
         LAKEWARDEN_WRITE_OPENAPI=1 cargo test -p catalog-api openapi",
        differs.unwrap_or_else(|| found.lines().count().min(text.lines().count())) + 1
    );
}

#[test]
fn every_route_is_there_once_and_can_be_told_from_the_others() {
    for (at, route) in ROUTES.iter().enumerate() {
        let segments: Vec<String> =
            route.path.split('/').skip(1).map(|segment| segment.replace(['{', '}'], "")).collect();
        let fitting = ROUTES.iter().filter(|other| {
            other.method == route.method && super::request::match_path(other.path, &segments).is_some()
        });
        assert_eq!(fitting.count(), 1, "{at}: {} {}", route.method, route.path);
        for (parameter, _) in route.members {
            assert!(route.path.contains(&format!("{{{parameter}}}")), "{} has no {parameter}", route.path);
        }
    }
}

#[test]
fn every_operation_has_a_route_and_every_member_a_place() {
    let schemas = Schemas::load();
    let served: BTreeSet<&str> =
        lakewarden_core::glue::operations::OPERATIONS.iter().map(|operation| operation.name).collect();
    let glue = |route: &&Route| matches!(route.target, Target::Glue(_));
    let routed: BTreeSet<&str> = ROUTES.iter().filter(glue).map(|route| route.target.name()).collect();
    assert_eq!(served, routed);
    // The catalog is the account's own, and nobody reads the audit's members.
    let elsewhere = ["CatalogId", "AuditContext", "QuerySessionContext"];
    for route in ROUTES.iter().filter(glue).filter(|route| !route.takes_body()) {
        for member in schemas.members(route.target.name()) {
            let in_path = route.members.iter().any(|(_, given)| *given == member);
            let in_query = route.query.iter().any(|query| query.member.split('.').next() == Some(member.as_str()));
            let all_databases = route.path == "/v1/functions" && member == "DatabaseName";
            assert!(
                in_path || in_query || all_databases || elsewhere.contains(&member.as_str()),
                "{} {} cannot say {member}",
                route.method,
                route.path
            );
        }
    }
}
