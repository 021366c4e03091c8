//! From a route to its operation and back: statuses, entity tags, expected revisions.

use lakewarden_core::glue::{self, GlueException, GlueExceptionName};
use lakewarden_core::ports::App;
use serde_json::{Map, Value, json};

use super::conditions::{Expectation, Judgement, Preconditions, etag};
use super::route::{Revisioned, Route, Target};
use super::{RestAnswer, RestError, RestRequest};

/// Member of a batch's entry that says which revision the caller read and still expects.
pub(super) const EXPECTED_REVISION: &str = "ExpectedRevision";

/// What `?explain` gives, on the listing of partitions.
pub(super) const EXPLAIN: &str = "LakewardenExplain";

/// Answers a request with its route.
pub(super) async fn serve(app: &App, route: &Route, request: RestRequest) -> Result<RestAnswer, RestError> {
    let mut input = request.input(route)?;
    check_preconditions(route, &request.preconditions)?;
    let operation = match route.target {
        Target::Own { handler, .. } => return handler(app, request, input).await,
        Target::Glue(operation) => operation,
    };
    // There is one catalog. Operations that have no such member drop it.
    input.entry("CatalogId").or_insert_with(|| app.settings.account_id.as_str().into());
    let conditions = &request.preconditions;
    match route.revisioned {
        Revisioned::No => {
            // Asked for by the query alone: no operation has such a member.
            let explained = input.remove(EXPLAIN).is_some_and(|explain| explain == Value::Bool(true));
            let answering = match explained {
                true => glue::explain_partitions(app, Value::Object(input)).await,
                false => glue::call(app, operation, Value::Object(input)).await,
            };
            let answer = answering.map_err(|failure| refuse(failure, Stated::Nothing))?;
            Ok(RestAnswer::new(route.status, answer))
        }
        Revisioned::Entries(member) => {
            let expected = expected_of_entries(&input, member)?;
            let answer = glue::call_each_if(app, operation, Value::Object(input), &expected).await;
            Ok(RestAnswer::new(route.status, answer.map_err(|failure| refuse(failure, Stated::Nothing))?))
        }
        Revisioned::Partition | Revisioned::Table if route.is_read() => {
            let answer = glue::call(app, operation, Value::Object(input)).await?;
            show(route.revisioned, conditions, answer)
        }
        Revisioned::Partition | Revisioned::Table => change(app, route, operation, conditions, input).await,
    }
}

/// Whether the caller said what it expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stated {
    Nothing,
    Revision,
}

/// A lost race is 412 for a caller that stated what it had read, and 409 for one that did not.
fn refuse(failure: GlueException, stated: Stated) -> RestError {
    let status = match (failure.name, stated) {
        (GlueExceptionName::ConcurrentModification, Stated::Nothing) => 409,
        (name, _) => name.rest_status(),
    };
    RestError { status, headers: Vec::new(), failure }
}

/// Conditions on something that has no revision would be ignored: harmless for a read, not for a write.
fn check_preconditions(route: &Route, conditions: &Preconditions) -> Result<(), GlueException> {
    let has_tag = matches!(route.revisioned, Revisioned::Partition | Revisioned::Table);
    if conditions.is_empty() || route.is_read() || has_tag {
        return Ok(());
    }
    Err(GlueException::invalid_input(match route.revisioned {
        Revisioned::Entries(_) => format!(
            "If-Match and If-None-Match do not go with a batch: state the revision in each entry, as {EXPECTED_REVISION}."
        ),
        _ => format!(
            "If-Match and If-None-Match do not go with {}: they are served for single partitions, and for reading and \
             updating tables.",
            route.target.name()
        ),
    }))
}

fn revision_of(kind: Revisioned, answer: &Value) -> Option<&str> {
    answer.pointer(if kind == Revisioned::Table { "/Table/VersionId" } else { "/Partition/Revision" })?.as_str()
}

fn changed() -> RestError {
    let text = "It is not as If-Match or If-None-Match says: it was changed meanwhile. Read it again.";
    GlueException::new(GlueExceptionName::ConcurrentModification, text).into()
}

/// The answer to a read, with its tag.
fn show(kind: Revisioned, conditions: &Preconditions, answer: Value) -> Result<RestAnswer, RestError> {
    let Some(revision) = revision_of(kind, &answer) else {
        // Only some attributes were asked for.
        return if conditions.is_empty() {
            Ok(RestAnswer::ok(answer))
        } else {
            let text = "If-Match and If-None-Match go with the whole table: leave out `attribute`.";
            Err(GlueException::invalid_input(text).into())
        };
    };
    let mut headers = vec![("etag", etag(revision))];
    if kind == Revisioned::Partition {
        headers.push((glue::REVISION_HEADER, revision.to_owned()));
    }
    match conditions.judge(revision) {
        Judgement::Changed => Err(changed()),
        Judgement::Unchanged => Ok(RestAnswer { status: 304, headers, body: None }),
        Judgement::Holds => Ok(RestAnswer { headers, ..RestAnswer::ok(answer) }),
    }
}

/// A write that happens only while the conditions hold.
async fn change(
    app: &App,
    route: &Route,
    operation: &str,
    conditions: &Preconditions,
    mut input: Map<String, Value>,
) -> Result<RestAnswer, RestError> {
    let expected = match conditions.expectation() {
        Expectation::None => None,
        Expectation::Revision(revision) => Some(revision),
        Expectation::ReadFirst => Some(present(app, route.revisioned, conditions, &input).await?),
    };
    let mut stated = if expected.is_some() { Stated::Revision } else { Stated::Nothing };
    let answer = if route.revisioned == Revisioned::Table {
        match (expected, input.get("VersionId")) {
            (Some(expected), Some(Value::String(version))) if *version != expected => {
                let text = "`VersionId` in the body is not what If-Match says; one of them is enough.";
                return Err(GlueException::invalid_input(text).into());
            }
            (Some(expected), _) => _ = input.insert("VersionId".to_owned(), expected.into()),
            (None, Some(Value::String(_))) => stated = Stated::Revision,
            (None, _) => {}
        }
        glue::call(app, operation, Value::Object(input)).await
    } else {
        glue::call_if(app, operation, Value::Object(input), expected.as_deref()).await
    };
    Ok(RestAnswer::new(route.status, answer.map_err(|failure| refuse(failure, stated))?))
}

/// The present revision, if the conditions hold for it.
async fn present(
    app: &App,
    kind: Revisioned,
    conditions: &Preconditions,
    input: &Map<String, Value>,
) -> Result<String, RestError> {
    let member = |name: &str| input.get(name).cloned().unwrap_or(Value::Null);
    let database = member("DatabaseName");
    let (operation, reading) = if kind == Revisioned::Table {
        ("GetTable", json!({ "DatabaseName": database, "Name": member("Name") }))
    } else {
        let values = input.get("PartitionValueList").or_else(|| input.get("PartitionValues"));
        let table = member("TableName");
        ("GetPartition", json!({ "DatabaseName": database, "TableName": table, "PartitionValues": values }))
    };
    let found = glue::call(app, operation, reading).await?;
    let revision = revision_of(kind, &found).ok_or_else(|| GlueException::internal("an answer without a revision"))?;
    match conditions.judge(revision) {
        Judgement::Holds => Ok(revision.to_owned()),
        Judgement::Changed | Judgement::Unchanged => Err(changed()),
    }
}

/// What each entry of a batch expects.
fn expected_of_entries(input: &Map<String, Value>, member: &str) -> Result<Vec<Option<String>>, GlueException> {
    let Some(Value::Array(entries)) = input.get(member) else { return Ok(Vec::new()) };
    let expected = entries.iter().map(|entry| match entry.get(EXPECTED_REVISION) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(revision)) => Ok(Some(revision.clone())),
        Some(_) => Err(GlueException::invalid_input(format!("{EXPECTED_REVISION} should be a text."))),
    });
    expected.collect()
}
