use lakewarden_core::commit::alarm;
use lakewarden_core::commit::context::Context;
use lakewarden_core::commit::door::{judge_one, leave_to_queue};
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::follow;
use lakewarden_core::commit::inline::{self, InlineCommit, InlineError};
use lakewarden_core::commit::keys::ProposalId;
use lakewarden_core::commit::proposals;
use lakewarden_core::commit::run::{Outcome, Staged};
use lakewarden_core::commit::verdict::Verdict;
use lakewarden_core::commit::wiring;
use lakewarden_core::delta::Version;
use lakewarden_core::delta::log::StagedKey;
use lakewarden_core::limits::OBJECT_KEY_MAX_BYTES;
use lakewarden_core::location::{Location, split_uri};
use lakewarden_core::ports::{App, Deadline};
use lakewarden_core::store::ObjectKey;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::answer::Answer;
use crate::request::{Call, CommitRequest};
use crate::{at_version, uploads};

pub(crate) fn invalid(message: impl Into<String>, advice: &str) -> Answer {
    Answer::error(422, "InvalidRequest", message, advice)
}

/// S3: the longest name of a bucket, counting the old ones.
const BUCKET_MAX_BYTES: usize = 255;

fn parse_location(text: &str) -> Result<Location, Answer> {
    let root = Location::parse(text)
        .map_err(|error| invalid(error.to_string(), "give the table's root as s3://bucket/path"))?;
    check_root(root)
}

/// Refuses a root below which no commit could be staged, since S3 would not take its key.
fn check_root(root: Location) -> Result<Location, Answer> {
    let staged = StagedKey { root: root.clone(), version: Version(0), id: Uuid::nil() }.key();
    let over = |what: &str, max: usize| {
        invalid(format!("the location's {what} more than {max} bytes"), "S3 has no such object: correct the location")
    };
    if root.bucket.len() > BUCKET_MAX_BYTES {
        return Err(over("bucket has", BUCKET_MAX_BYTES));
    }
    if staged.key.len() > OBJECT_KEY_MAX_BYTES {
        return Err(over("staged commits would have keys of", OBJECT_KEY_MAX_BYTES));
    }
    Ok(root)
}

pub(crate) fn parse_id(text: &str) -> Result<ProposalId, Answer> {
    Uuid::try_parse(text)
        .map(ProposalId)
        .map_err(|_| invalid(format!("`{text}` is not a proposal id"), "proposal ids are UUIDs"))
}

/// The location of a table of the catalog.
pub(crate) async fn locate(app: &App, database: &str, table: &str) -> Result<Location, Answer> {
    match wiring::table_directory(app).location(database, table).await {
        Ok(Some(root)) => check_root(root),
        Ok(None) => Err(Answer::error(
            404,
            "TableNotFound",
            format!("the catalog has no table {database}.{table} with a location"),
            "create it in the catalog, or use POST /v1/commits with its location",
        )),
        Err(error) => Err(Answer::no_verdict(&error, None)),
    }
}

/// Judges a commit that comes with the call, or that was staged before. `root` is the table that the route names.
pub(crate) async fn propose(app: &App, call: &Call, root: Option<Location>, deadline: Deadline) -> Answer {
    match try_propose(app, call, root, deadline).await {
        Ok(answer) | Err(answer) => answer,
    }
}

/// The table that a call is about: named by the route, or in the body.
pub(crate) fn root_of(by_route: Option<Location>, in_body: Option<&str>) -> Result<Location, Answer> {
    match (by_route, in_body) {
        (Some(_), Some(_)) => Err(invalid("the table is named by the route and by `location`", "leave location out")),
        (Some(root), None) => Ok(root),
        (None, Some(text)) => parse_location(text),
        (None, None) => Err(invalid("`location` is missing", "give the table's root as s3://bucket/path")),
    }
}

async fn try_propose(app: &App, call: &Call, root: Option<Location>, deadline: Deadline) -> Result<Answer, Answer> {
    if call.is_too_large() {
        return Err(uploads::too_large(app, call, root).await);
    }
    let request = call.commit_request()?;
    let root = root_of(root, request.location.as_deref())?;
    let id = request.proposal_id.as_deref().map(parse_id).transpose()?;
    let sink = wiring::partition_sink(app);
    let ctx = Context::new(app, deadline, &*sink);
    if let Some(at) = request.at_version {
        return at_version::propose(ctx, root, at, id, request, call.is_async).await;
    }
    if request.content.is_some() {
        return Err(invalid(
            "`content` goes with `at_version`",
            "give its lines as `actions`, or say at which version",
        ));
    }
    let staged = match (&request.staged_key, request.actions.is_some()) {
        (Some(key), false) => staged_before(&root, key, id, &request)?,
        (None, true) => stage_now(ctx, root, id, request).await?,
        _ => return Err(invalid("give either `actions` or `staged_key`", "actions come with the call, or lie on S3")),
    };
    Ok(answer_for(ctx, &staged, call.is_async).await)
}

/// The verdict on what was staged, or where to ask for it.
pub(crate) async fn answer_for(ctx: Context<'_>, staged: &Staged, is_async: bool) -> Answer {
    if is_async {
        return leave(ctx, staged, None).await;
    }
    match judge_one(ctx, staged).await {
        Ok(Outcome::Verdict(verdict)) if !verdict.is_final() => not_judged(&verdict),
        Ok(Outcome::Verdict(verdict)) => Answer::verdict(&verdict),
        Ok(Outcome::NotJudged { reason }) => {
            Answer::error(404, "StagedObjectMissing", reason, "stage the commit first, or send its actions")
        }
        Err(error) if error.is_slowness() => leave(ctx, staged, Some(&error)).await,
        Err(error) => Answer::no_verdict(&error, Some(&staged.key.id.to_string())),
    }
}

/// Long work goes on in the background. What was staged is judged with its event, too; the message of our own also brings
/// back what that event was too early for.
async fn leave(ctx: Context<'_>, staged: &Staged, error: Option<&CommitError>) -> Answer {
    match leave_to_queue(ctx, staged, error).await {
        Ok(proposal) if proposal.status.is_final() => Answer::verdict(&Verdict { proposal }),
        Ok(proposal) => Answer::taken_on(&Verdict { proposal }),
        Err(error) => Answer::no_verdict(&error, Some(&staged.key.id.to_string())),
    }
}

/// Only catalog-managed tables leave a proposal without a verdict: their catalog judges.
fn not_judged(verdict: &Verdict) -> Answer {
    let refusal = lakewarden_core::commit::judge::catalog_managed();
    let mut answer = Answer::error(422, "UnsupportedTableException", refusal.message.clone(), &refusal.advice);
    if let Some(body) = answer.body.as_object_mut() {
        body.insert("reason".into(), refusal.reason.as_str().into());
        body.insert("proposal_id".into(), verdict.proposal.id.to_string().into());
    }
    answer
}

pub(crate) fn staged_before(
    root: &Location,
    key: &str,
    id: Option<ProposalId>,
    request: &CommitRequest,
) -> Result<Staged, Answer> {
    if request.read_set.is_some() {
        return Err(invalid("a staged commit holds its read set itself", "put it into commitInfo.readSet"));
    }
    let at = match split_uri(key) {
        Ok((bucket, key)) => ObjectKey::new(bucket, key),
        Err(_) => root.object(key),
    };
    let key = StagedKey::parse(&at).filter(|found| found.root == *root).ok_or_else(|| {
        let text = format!("{at} is not a staged commit of {root}");
        invalid(text, "name <table>/_delta_log/_staged_commits/<20 digits>.<uuid in lower case>.json, whole or relative to the table")
    })?;
    if id.is_some_and(|id| id.0 != key.id) {
        return Err(invalid("`proposal_id` differs from the id in `staged_key`", "leave proposal_id out"));
    }
    if request.read_version.is_some_and(|read| Version(read).next() != key.version) {
        let text = format!("`read_version` differs from the staged name, which proposes version {}", key.version);
        return Err(invalid(text, "leave read_version out"));
    }
    Ok(Staged { key, etag: None })
}

async fn stage_now(
    ctx: Context<'_>,
    root: Location,
    id: Option<ProposalId>,
    request: CommitRequest,
) -> Result<Staged, Answer> {
    let Some(read_version) = request.read_version else {
        return Err(invalid("`read_version` is missing", "give the version that the commit read; -1 creates a table"));
    };
    let commit = InlineCommit {
        root,
        read_version: Version(read_version),
        id: id.unwrap_or_else(|| ProposalId(ctx.app.ports.ids.uuid())),
        actions: request.actions.unwrap_or_default(),
        read_set: request.read_set,
    };
    inline::stage(ctx, &commit).await.map_err(|error| not_staged(error, commit.id, &commit.root))
}

pub(crate) fn not_staged(error: InlineError, id: ProposalId, root: &Location) -> Answer {
    match error {
        InlineError::Failed(error) => Answer::no_verdict(&error, Some(&id.to_string())),
        InlineError::Reused(id) => reused(id, root, &error.to_string()),
        other => invalid(other.to_string(), "correct the request"),
    }
}

/// The verdict on content that came under a used id: it is not stored, since the id is the first one's.
fn reused(id: ProposalId, root: &Location, message: &str) -> Answer {
    let advice = format!("give every proposal an id of its own; ask for the first one's verdict: GET /v1/commits/{id}");
    let name = "ProposalReusedException";
    let mut answer = Answer::error(409, name, message, &advice);
    let verdict = json!({"proposal_id": id.to_string(), "location": root.to_string(), "status": "rejected", "final": true,
        "exception": name, "reason": "PROPOSAL_REUSED"});
    if let (Some(body), Some(verdict)) = (answer.body.as_object_mut(), verdict.as_object()) {
        body.extend(verdict.clone());
    }
    answer
}

/// One proposal by its id.
pub(crate) async fn get(app: &App, call: &Call, root: Option<Location>, id: &str) -> Answer {
    match try_get(app, call, root, id).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn try_get(app: &App, call: &Call, root: Option<Location>, id: &str) -> Result<Answer, Answer> {
    let id = parse_id(id)?;
    let root = match root {
        Some(root) => Some(root),
        None => call.query("location").map(parse_location).transpose()?,
    };
    let mut found = proposals::by_id(&*app.ports.items, id).await.map_err(|error| Answer::no_verdict(&error, None))?;
    found.retain(|proposal| root.as_ref().is_none_or(|root| *root == proposal.root));
    if found.len() > 1 {
        let roots: Vec<String> = found.iter().map(|proposal| proposal.root.to_string()).collect();
        let text = format!("several tables have a proposal {id}: {}", roots.join(", "));
        return Err(Answer::error(409, "AmbiguousId", text, "add ?location="));
    }
    match found.pop() {
        Some(proposal) => {
            let root = proposal.root.clone();
            let mut shown = [proposal];
            let looked = follow::look_up(&app.ports, &root, &mut shown).await;
            looked.map_err(|error| Answer::no_verdict(&error, None))?;
            let [proposal] = shown;
            Ok(Answer::ok(Verdict { proposal }.to_json()))
        }
        None => Err(Answer::error(
            404,
            "ProposalNotFound",
            format!("there is no proposal {id}"),
            "a commit that was just staged appears once its event was handled",
        )),
    }
}

/// A table's proposals, newest first.
pub(crate) async fn list(app: &App, call: &Call, root: Option<Location>) -> Answer {
    match try_list(app, call, root).await {
        Ok(answer) | Err(answer) => answer,
    }
}

/// What a listing asks for.
struct Listing {
    root: Location,
    limit: usize,
    next: Option<String>,
}

fn listing(call: &Call, root: Option<Location>, most: usize, is_next: fn(&str) -> bool) -> Result<Listing, Answer> {
    let root = match (root, call.query("location")) {
        (Some(root), _) => root,
        (None, Some(text)) => parse_location(text)?,
        (None, None) => return Err(invalid("`location` is missing", "add ?location=s3://bucket/path")),
    };
    let limit = match call.query("limit") {
        None => most,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=most).contains(limit))
            .ok_or_else(|| invalid(format!("limit `{text}`"), &format!("limit is 1 to {most}")))?,
    };
    let next = call.query("next").filter(|next| !next.is_empty()).map(|next| next.replace('~', "#"));
    if next.as_deref().is_some_and(|next| !is_next(next)) {
        return Err(invalid("`next` is not one that an answer gave", "start again without it"));
    }
    Ok(Listing { root, limit, next })
}

/// A `next` can be pasted behind `&next=` as it is: a `#` would end the URL.
fn next_in_urls(next: Option<String>) -> Option<String> {
    next.map(|next| next.replace('#', "~"))
}

async fn try_list(app: &App, call: &Call, root: Option<Location>) -> Result<Answer, Answer> {
    let asked = listing(call, root, proposals::LIST_MAX, proposals::is_next)?;
    let ports = &app.ports;
    let failed = |error: CommitError| Answer::no_verdict(&error, None);
    let mut page = proposals::of_table(&*ports.items, &*ports.clock, &asked.root, asked.limit, asked.next.as_deref())
        .await
        .map_err(failed)?;
    follow::look_up(ports, &asked.root, &mut page.proposals).await.map_err(failed)?;
    let commits: Vec<Value> = page.proposals.into_iter().map(|proposal| Verdict { proposal }.to_json()).collect();
    Ok(Answer::ok(json!({"commits": commits, "next": next_in_urls(page.next)})))
}

/// What others did to a table's log that somebody should look at, latest version first.
pub(crate) async fn alarms(app: &App, call: &Call, root: Option<Location>) -> Answer {
    match try_alarms(app, call, root).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn try_alarms(app: &App, call: &Call, root: Option<Location>) -> Result<Answer, Answer> {
    let asked = listing(call, root, alarm::LIST_MAX, alarm::is_next)?;
    let page = alarm::of_table(&*app.ports.items, &asked.root, asked.limit, asked.next.as_deref())
        .await
        .map_err(|error| Answer::no_verdict(&error, None))?;
    let alarms: Vec<Value> = page.alarms.iter().map(alarm::Alarm::to_json).collect();
    Ok(Answer::ok(json!({"alarms": alarms, "next": next_in_urls(page.next)})))
}
