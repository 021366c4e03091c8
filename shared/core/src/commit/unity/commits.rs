//! The commit calls.

use serde::Deserialize;
use serde_json::{Value, json};

use super::tables::{self, Found};
use super::{Request, UnityError};
use crate::commit::context::Context;
use crate::commit::keys::ProposalId;
use crate::commit::managed::{Asked, Ratification, UNPUBLISHED_MAX, publish_pending, ratify, unpublished};
use crate::commit::verdict::{Refusal, RefusalKind};
use crate::delta::Version;
use crate::delta::log::{LOG_DIR, STAGED_DIR, StagedKey};
use crate::location::Location;

#[derive(Debug, Deserialize)]
pub(super) struct CommitCall {
    table_id: String,
    table_uri: Option<String>,
    commit_info: Option<CommitInfo>,
    latest_backfilled_version: Option<i64>,
    uniform: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitInfo {
    pub(super) version: i64,
    pub(super) timestamp: i64,
    pub(super) file_name: String,
    pub(super) file_size: i64,
    pub(super) file_modification_timestamp: i64,
}

#[derive(Debug, Default, Deserialize)]
struct ListCall {
    table_id: Option<String>,
    table_uri: Option<String>,
    start_version: Option<i64>,
    end_version: Option<i64>,
}

/// A commit, or word of what was published, or both.
pub(super) async fn commit(ctx: Context<'_>, call: CommitCall) -> Result<Value, UnityError> {
    if call.commit_info.is_none() && call.latest_backfilled_version.is_none() {
        return Err(UnityError::invalid("neither commit_info nor latest_backfilled_version is given"));
    }
    if call.uniform.as_ref().is_some_and(|uniform| !uniform.is_null()) {
        return Err(UnityError::unimplemented("`uniform` is not served: Iceberg metadata of Delta tables is not kept"));
    }
    let found = tables::by_id(ctx, &call.table_id).await?;
    check_uri(&found, call.table_uri.as_deref())?;
    if let Some(version) = call.latest_backfilled_version {
        mark_published(ctx, &found, Version(version)).await?;
    }
    if let Some(info) = &call.commit_info {
        let asked = asked(&found, info)?;
        answer(&asked, ratify(ctx, &asked).await?)?;
    }
    Ok(json!({}))
}

/// The call names the table twice; both must be the same one.
fn check_uri(found: &Found, uri: Option<&str>) -> Result<(), UnityError> {
    let Some(uri) = uri else { return Ok(()) };
    let named = Location::parse(uri).map_err(|error| UnityError::invalid(format!("table_uri: {error}")))?;
    if named == found.root {
        return Ok(());
    }
    Err(UnityError::invalid(format!("the table {} lies at {}, not at {uri}", found.id, found.root)))
}

/// What the client says is in the log is looked for there; what is not is put there.
pub(super) async fn mark_published(ctx: Context<'_>, found: &Found, up_to: Version) -> Result<(), UnityError> {
    let known = unpublished(ctx.ports(), &found.root, Version(0), None).await?;
    if up_to > known.latest {
        let text = format!("latest_backfilled_version is {up_to}, and the table is at version {}", known.latest);
        return Err(UnityError::invalid(text));
    }
    if known.commits.iter().any(|one| one.version <= up_to) {
        publish_pending(ctx, &found.root, Some(up_to)).await?;
    }
    Ok(())
}

pub(super) fn asked(found: &Found, info: &CommitInfo) -> Result<Asked, UnityError> {
    let at = found.root.object(&format!("{LOG_DIR}/{STAGED_DIR}/{}", info.file_name));
    let key = StagedKey::parse(&at)
        .filter(|key| key.root == found.root)
        .ok_or_else(|| UnityError::invalid(format!("file_name `{}` is not <20 digits>.<uuid>.json", info.file_name)))?;
    if key.version != Version(info.version) {
        let text = format!("version is {}, and file_name `{}` says another", info.version, info.file_name);
        return Err(UnityError::invalid(text));
    }
    let size_bytes = u64::try_from(info.file_size).ok().filter(|size| *size > 0);
    Ok(Asked {
        root: found.root.clone(),
        table_id: found.id.to_string(),
        version: key.version,
        id: ProposalId(key.id),
        size_bytes: size_bytes.ok_or_else(|| UnityError::invalid("file_size is the size of the staged file"))?,
        modified_ms: info.file_modification_timestamp,
        timestamp_ms: info.timestamp,
    })
}

fn answer(asked: &Asked, ratification: Ratification) -> Result<(), UnityError> {
    match ratification {
        Ratification::Ratified(_) => Ok(()),
        Ratification::Refused(proposal) => Err(match &proposal.refusal {
            Some(refusal) if refusal.exception.kind() == RefusalKind::Invalid => UnityError::invalid(text_of(refusal)),
            Some(refusal) => UnityError::exists(text_of(refusal)),
            None => UnityError::exists(format!("the proposal {} is {}", asked.id, proposal.status.name())),
        }),
        Ratification::Invalid(text) => Err(UnityError::invalid(text)),
        Ratification::TooMany(count) => Err(UnityError::exhausted(format!(
            "{count} commits are not published yet, at most {UNPUBLISHED_MAX} may be: publish them \
             (copy each to _delta_log/<version>.json), or wait a moment until that is done here, and commit again"
        ))),
        Ratification::Unreadable(refusal) => Err(UnityError::precondition(text_of(&refusal))),
    }
}

/// Everything that a client shows is the message.
pub(super) fn text_of(refusal: &Refusal) -> String {
    let winner = refusal.winner.as_ref().map(|winner| format!(" (version {})", winner.version)).unwrap_or_default();
    format!("{:?} [{}]: {}{winner}; {}", refusal.exception, refusal.reason, refusal.message, refusal.advice)
}

/// The commits that are ratified and not in the log yet. Clients send a body with GET; the same is taken from the query.
pub(super) async fn list(ctx: Context<'_>, request: Request<'_>) -> Result<Value, UnityError> {
    let in_body: ListCall = if request.body.is_empty() { ListCall::default() } else { request.body()? };
    let number = |name: &str| {
        let invalid = || UnityError::invalid(format!("{name} is a number"));
        request.query(name).map(|text| text.parse::<i64>().map_err(|_| invalid())).transpose()
    };
    let table_id = in_body.table_id.or_else(|| request.query("table_id").map(str::to_owned));
    let table_id = table_id.ok_or_else(|| UnityError::invalid("table_id is missing"))?;
    let uri = in_body.table_uri.or_else(|| request.query("table_uri").map(str::to_owned));
    let from = in_body.start_version.or(number("start_version")?).unwrap_or(0);
    let to = in_body.end_version.or(number("end_version")?);
    if to.is_some_and(|to| to < from) {
        return Err(UnityError::invalid("end_version is less than start_version"));
    }
    let found = tables::by_id(ctx, &table_id).await?;
    check_uri(&found, uri.as_deref())?;
    let known = unpublished(ctx.ports(), &found.root, Version(from), to.map(Version)).await?;
    let commits = known.commits.iter().map(|one| {
        json!({
            "version": one.version.0,
            "timestamp": one.timestamp_ms,
            "file_name": one.file_name(),
            "file_size": one.size_bytes,
            "file_modification_timestamp": one.modified_ms,
        })
    });
    Ok(json!({"commits": commits.collect::<Vec<_>>(), "latest_table_version": known.latest.0.max(0)}))
}
