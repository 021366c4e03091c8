//! Proposals at exactly one version, as the S3 gateway makes them for writers that put log files themselves.

use bytes::Bytes;
use lakewarden_core::commit::context::Context;
use lakewarden_core::commit::exact;
use lakewarden_core::commit::inline::{self, InlineCommit, InlineError};
use lakewarden_core::commit::keys::ProposalId;
use lakewarden_core::commit::run::Staged;
use lakewarden_core::delta::Version;
use lakewarden_core::location::Location;
use serde_json::json;

use crate::answer::Answer;
use crate::commands::{answer_for, invalid, not_staged, staged_before};
use crate::request::CommitRequest;

/// Judges a commit that becomes version `at`, byte for byte, or is refused.
pub(crate) async fn propose(
    ctx: Context<'_>,
    root: Location,
    at: i64,
    id: Option<ProposalId>,
    request: CommitRequest,
    is_async: bool,
) -> Result<Answer, Answer> {
    let began_ms = ctx.now_ms();
    let staged = stage(ctx, root, Version(at), id, request).await?;
    let mut answer = answer_for(ctx, &staged, is_async).await;
    let is_earlier = |updated_ms: i64| updated_ms < began_ms;
    if let Some(body) = answer.body.as_object_mut()
        && body.get("updated_ms").and_then(serde_json::Value::as_i64).is_some_and(is_earlier)
    {
        // A verdict that was there before says nothing of how things are now.
        body.insert("earlier".to_owned(), json!(true));
    }
    Ok(answer)
}

async fn stage(
    ctx: Context<'_>,
    root: Location,
    at: Version,
    id: Option<ProposalId>,
    request: CommitRequest,
) -> Result<Staged, Answer> {
    if at < Version(0) {
        return Err(invalid(format!("`at_version` is {at}"), "versions begin with 0"));
    }
    if id.is_some_and(|id| !exact::is_exact(id.0)) {
        return Err(invalid(
            "`proposal_id` is none of a proposal at exactly one version",
            "leave it out: it is made from the content",
        ));
    }
    if let Some(key) = &request.staged_key {
        let staged = staged_before(&root, key, id, &request)?;
        if staged.key.version != at || !exact::is_exact(staged.key.id) {
            return Err(invalid(
                format!("{key} is not proposed at exactly version {at}"),
                "upload it under the proposal_id that POST /v1/commits/uploads was given",
            ));
        }
        return Ok(staged);
    }
    let bytes = match (request.content, request.actions) {
        (Some(content), None) if request.read_set.is_none() => Bytes::from(content),
        (None, Some(actions)) => {
            let id = ProposalId(uuid::Uuid::nil());
            let read_set = request.read_set;
            let commit = InlineCommit { root: root.clone(), read_version: at.previous(), id, actions, read_set };
            inline::plan_lines(&commit).map_err(|error| invalid(error.to_string(), "correct the request"))?
        }
        _ => {
            return Err(invalid(
                "give one of `content`, `actions` and `staged_key`",
                "`content` is the commit file as it is, with its read set in commitInfo.readSet",
            ));
        }
    };
    let key = exact::staged_key(&root, at, &bytes, id);
    let id = ProposalId(key.id);
    inline::stage_bytes(ctx, key, bytes).await.map_err(|error: InlineError| not_staged(error, id, &root))
}
