//! `POST /` of the AWS JSON 1.1 protocol.

use serde_json::Value;

use super::handlers::partitions::get_partitions;
use super::operations::{Operation, find, served};
use super::validate::check_input;
use super::{GlueException, GlueExceptionName};
use crate::ports::App;
use crate::sweep::optimizer::OWN_RULES;

/// Prefix of `X-Amz-Target`.
const TARGET_PREFIX: &str = "AWSGlue.";
/// The revision that a caller read and still expects, on operations that change one partition.
pub const IF_REVISION_HEADER: &str = "x-lakewarden-if-revision";
/// The revision of the one partition that an answer shows.
pub const REVISION_HEADER: &str = "x-lakewarden-revision";
/// Member under which a handler finds the expected revision. No client can send it: unknown members are dropped.
pub(super) const EXPECTED_REVISION: &str = "LakewardenExpectedRevision";
/// Member that makes GetPartitions say how it found its answer. No client can send it either.
pub(super) const EXPLAIN: &str = "LakewardenExplain";
/// Operations that take an expected revision.
const TAKE_REVISION: [&str; 2] = ["UpdatePartition", "DeletePartition"];
/// Batches that take one in each entry (under [`EXPECTED_REVISION`]), with the member that has the entries.
const TAKE_REVISIONS: [(&str, &str); 2] =
    [("BatchUpdatePartition", "Entries"), ("BatchDeletePartition", "PartitionsToDelete")];

/// Content type of answers.
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// An answer, ready for any HTTP front.
#[derive(Clone, Debug)]
pub struct WireAnswer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The failure that the answer reports, for the log.
    pub failure: Option<GlueException>,
}

impl WireAnswer {
    /// Either answer of an operation.
    pub fn new(outcome: Result<Value, GlueException>, request_id: &str) -> Self {
        let mut headers = vec![("content-type", CONTENT_TYPE.to_owned()), ("x-amzn-requestid", request_id.to_owned())];
        match outcome {
            Ok(output) => {
                if let Some(revision) = output.pointer("/Partition/Revision").and_then(Value::as_str) {
                    headers.push((REVISION_HEADER, revision.to_owned()));
                }
                // Not by its Display, which writes through a formatter.
                let body = serde_json::to_string(&output).unwrap_or_else(|_| output.to_string());
                Self { status: 200, headers, body, failure: None }
            }
            Err(failure) => {
                headers.push(("x-amzn-errortype", failure.name.as_str().to_owned()));
                let (status, body) = (failure.name.glue_status(), failure.body().to_string());
                Self { status, headers, body, failure: Some(failure) }
            }
        }
    }
}

/// Answers one request. `target` is the header `X-Amz-Target`; `body` is decoded already; `expected_revision` is the
/// header [`IF_REVISION_HEADER`].
pub async fn answer(
    app: &App,
    target: Option<&str>,
    body: &[u8],
    expected_revision: Option<&str>,
    request_id: &str,
) -> WireAnswer {
    let outcome = match read(target, body) {
        Ok((operation, input)) => match check_no_own_rules(&input) {
            Ok(()) => call_if(app, operation, input, expected_revision).await,
            Err(refusal) => Err(refusal),
        },
        Err(refusal) => Err(refusal),
    };
    WireAnswer::new(outcome, request_id)
}

fn read<'a>(target: Option<&'a str>, body: &[u8]) -> Result<(&'a str, Value), GlueException> {
    let unknown = |text: String| GlueException::new(GlueExceptionName::UnknownOperation, text);
    let target = target.ok_or_else(|| {
        unknown(format!(
            "The header X-Amz-Target is missing. It should be {TARGET_PREFIX}<operation>; served: {}.",
            served()
        ))
    })?;
    let operation = target.strip_prefix(TARGET_PREFIX).filter(|name| find(name).is_some()).ok_or_else(|| {
        let target: String = target.chars().take(128).collect();
        unknown(format!("`{target}` is not served. Served, with {TARGET_PREFIX} before the name: {}.", served()))
    })?;
    let malformed = |text: String| GlueException::new(GlueExceptionName::Serialization, text);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok((operation, Value::Object(serde_json::Map::new())));
    }
    let input: Value =
        serde_json::from_slice(body).map_err(|error| malformed(format!("The body is not JSON: {error}")))?;
    if !input.is_object() {
        return Err(malformed("The body should be a JSON object.".to_owned()));
    }
    Ok((operation, input))
}

/// Where the rules of an optimizer are that the service's model does not have.
const RULES: &str = "/TableOptimizerConfiguration/orphanFileDeletionConfiguration/icebergConfiguration";

/// What the model does not know is dropped in silence, and the default in its place may be the shorter retention.
fn check_no_own_rules(input: &Value) -> Result<(), GlueException> {
    match OWN_RULES.into_iter().find(|rule| input.pointer(RULES).is_some_and(|rules| rules.get(rule).is_some())) {
        None => Ok(()),
        Some(rule) => Err(GlueException::invalid_input(format!(
            "{rule} is no member of the service's icebergConfiguration: it is taken on REST, below \
             /v1/databases/{{database}}/tables/{{table}}/optimizers."
        ))),
    }
}

/// Calls an operation by name: model constraints, then its handler. The way in for other fronts (REST), which may give an
/// optimizer rules that the model does not have.
pub async fn call(app: &App, operation: &str, input: Value) -> Result<Value, GlueException> {
    let rules = input.pointer(RULES).cloned();
    let (found, checked) = check(operation, input)?;
    check_catalog(app, &checked)?;
    let mut checked = Value::Object(checked);
    if let (Some(Value::Object(rules)), Some(Value::Object(kept))) = (rules, checked.pointer_mut(RULES)) {
        kept.extend(rules.into_iter().filter(|(rule, _)| OWN_RULES.contains(&rule.as_str())));
    }
    (found.handler)(app, checked).await
}

/// The same with the revision that the caller read and still expects.
///
/// # Errors
/// `InvalidInputException` for an operation that has no use for one: it would be ignored in silence.
pub async fn call_if(
    app: &App,
    operation: &str,
    input: Value,
    expected_revision: Option<&str>,
) -> Result<Value, GlueException> {
    let (found, mut checked) = check(operation, input)?;
    if let Some(revision) = expected_revision {
        if !TAKE_REVISION.contains(&operation) {
            let takers = TAKE_REVISION.join(" and ");
            let text = format!("{IF_REVISION_HEADER} goes with {takers} only, not with {operation}.");
            return Err(GlueException::invalid_input(text));
        }
        checked.insert(EXPECTED_REVISION.to_owned(), revision.into());
    }
    check_catalog(app, &checked)?;
    (found.handler)(app, Value::Object(checked)).await
}

/// The same for a batch, with the revision that the caller expects of each entry, in the order of the entries.
///
/// # Errors
/// `InvalidInputException` if one is given for an operation that has no use for it.
pub async fn call_each_if(
    app: &App,
    operation: &str,
    input: Value,
    expected_revisions: &[Option<String>],
) -> Result<Value, GlueException> {
    let (found, mut checked) = check(operation, input)?;
    if expected_revisions.iter().any(Option::is_some) {
        let taker = TAKE_REVISIONS.iter().find(|(name, _)| *name == operation);
        let (_, member) = taker.ok_or_else(|| {
            let text = format!("Expected revisions of entries do not go with {operation}.");
            GlueException::invalid_input(text)
        })?;
        let entries = checked.get_mut(*member).and_then(Value::as_array_mut).map(Vec::as_mut_slice);
        for (entry, revision) in entries.unwrap_or_default().iter_mut().zip(expected_revisions) {
            if let (Some(entry), Some(revision)) = (entry.as_object_mut(), revision) {
                entry.insert(EXPECTED_REVISION.to_owned(), revision.as_str().into());
            }
        }
    }
    check_catalog(app, &checked)?;
    (found.handler)(app, Value::Object(checked)).await
}

/// The operation, and its input as the model has it.
fn check(operation: &str, input: Value) -> Result<(&'static Operation, serde_json::Map<String, Value>), GlueException> {
    let found = find(operation).ok_or_else(|| {
        let text = format!("`{operation}` is not served. Served: {}.", served());
        GlueException::new(GlueExceptionName::UnknownOperation, text)
    })?;
    let Value::Object(members) = &input else {
        let text = "The input should be a JSON object.";
        return Err(GlueException::new(GlueExceptionName::Serialization, text));
    };
    Ok((found, check_input(operation, members)?))
}

/// GetPartitions with a member `Explain` beside its answer: the way, its ranges and probes, the filter where rows were
/// judged by it, requests and items read.
pub async fn explain_partitions(app: &App, input: Value) -> Result<Value, GlueException> {
    let (_, mut checked) = check("GetPartitions", input)?;
    check_catalog(app, &checked)?;
    checked.insert(EXPLAIN.to_owned(), true.into());
    get_partitions(app, Value::Object(checked)).await
}

/// There is one catalog, the account's own; absent means it.
fn check_catalog(app: &App, input: &serde_json::Map<String, Value>) -> Result<(), GlueException> {
    match input.get("CatalogId").and_then(Value::as_str) {
        Some(other) if other != app.settings.account_id => {
            Err(GlueException::not_found(format!("Catalog {other} not found.")))
        }
        _ => Ok(()),
    }
}
