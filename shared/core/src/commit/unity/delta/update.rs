//! Updates of a table: all of them or none.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::DeltaError;
use super::says;
use super::tables::{Named, etag, load, look};
use super::wire::{Requirement, Update, UpdateTable, WireCommit};
use crate::commit::context::Context;
use crate::commit::keys;
use crate::commit::managed::{Asked, Ratification, UNPUBLISHED_MAX, ratify};
use crate::commit::proposal::{Proposal, Status};
use crate::commit::sync;
use crate::commit::unity::commits::{self, CommitInfo};
use crate::commit::verdict::{Refusal, RefusalKind};
use crate::commit::view;
use crate::delta::Version;
use crate::store::Consistency;

/// What a request asks for, each at most once.
struct Wanted<'a> {
    commit: Option<&'a WireCommit>,
    published: Option<Version>,
    /// Of a table whose commits are not ratified here: what its writer put into the log.
    logged: Option<Version>,
    /// What the client says of the metadata that its commit leaves.
    said: Vec<&'a Update>,
}

pub(super) async fn update(ctx: Context<'_>, named: &Named, request: UpdateTable) -> Result<Value, DeltaError> {
    check_shape(&request)?;
    check_uuid(named, &request.requirements)?;
    let wanted = wanted(&request.updates)?;
    let asked = wanted.commit.map(|commit| asked(named, commit)).transpose()?;
    // The same call again changes nothing, whatever it requires.
    if let Some(asked) = &asked
        && is_ratified(ctx, asked).await?
    {
        return load(ctx, named).await;
    }
    check_etag(ctx, named, &request.requirements).await?;
    if let Some(asked) = &asked {
        says::check(ctx, asked, &wanted.said).await?;
        match ratify(ctx, asked).await {
            Ok(ratification) => answer(asked, ratification)?,
            Err(error) if error.is_retryable() => {
                let text = format!("{error}; the same call again is carried out once, and tells");
                return Err(DeltaError::unknown(text));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(version) = wanted.published {
        commits::mark_published(ctx, &named.found()?, version).await?;
    }
    if let Some(version) = wanted.logged {
        follow(ctx, named, version).await?;
    }
    load(ctx, named).await
}

fn check_shape(request: &UpdateTable) -> Result<(), DeltaError> {
    if request.updates.is_empty() {
        return Err(DeltaError::bad_request("`updates` is empty"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = request.updates.iter().map(Update::name).find(|name| !seen.insert(*name)) {
        return Err(DeltaError::bad_request(format!("{twice} is there twice")));
    }
    let kinds = |wanted: fn(&Requirement) -> bool| request.requirements.iter().filter(|one| wanted(one)).count();
    let uuids = kinds(|one| matches!(one, Requirement::AssertTableUuid { .. }));
    let etags = kinds(|one| matches!(one, Requirement::AssertEtag { .. }));
    if uuids != 1 || etags > 1 {
        return Err(DeltaError::bad_request("`requirements` has assert-table-uuid once, and assert-etag at most once"));
    }
    Ok(())
}

fn check_uuid(named: &Named, requirements: &[Requirement]) -> Result<(), DeltaError> {
    for requirement in requirements {
        if let Requirement::AssertTableUuid { uuid } = requirement
            && !uuid.eq_ignore_ascii_case(&named.uuid)
        {
            let text = format!("assert-table-uuid: the table has the id {}, not {uuid}", named.uuid);
            return Err(DeltaError::requirement(text));
        }
    }
    Ok(())
}

async fn check_etag(ctx: Context<'_>, named: &Named, requirements: &[Requirement]) -> Result<(), DeltaError> {
    for requirement in requirements {
        let Requirement::AssertEtag { etag: wanted } = requirement else { continue };
        let found = etag(named, look(ctx, named).await?.latest);
        if *wanted != found {
            let text = format!("assert-etag: the table is at {found}, not at {wanted}; load it and try again");
            return Err(DeltaError::requirement(text));
        }
    }
    Ok(())
}

fn wanted(updates: &[Update]) -> Result<Wanted<'_>, DeltaError> {
    let mut wanted = Wanted { commit: None, published: None, logged: None, said: Vec::new() };
    for update in updates {
        match update {
            Update::AddCommit { uniform: Some(uniform), .. } if !uniform.is_null() => {
                let text = "`uniform` is not served: Iceberg metadata of Delta tables is not kept";
                return Err(DeltaError::not_implemented(text));
            }
            Update::AddCommit { commit, .. } => wanted.commit = Some(commit),
            Update::SetLatestBackfilledVersion { latest_published_version } => {
                wanted.published = Some(Version(*latest_published_version));
            }
            Update::SnapshotVersion { last_commit_version } => {
                wanted.logged = Some(Version(*last_commit_version));
            }
            other => wanted.said.push(other),
        }
    }
    if let Some(alone) = wanted.said.first().filter(|_| wanted.commit.is_none() && wanted.logged.is_none()) {
        return Err(DeltaError::invalid(format!(
            "{} without a commit: a table's properties, columns and protocol are what its log says, so they change with \
             a commit that changes them (add-commit)",
            alone.name()
        )));
    }
    Ok(wanted)
}

fn asked(named: &Named, commit: &WireCommit) -> Result<Asked, DeltaError> {
    let info = CommitInfo {
        version: commit.version,
        timestamp: commit.timestamp,
        file_name: commit.file_name.clone(),
        file_size: commit.file_size,
        file_modification_timestamp: commit.file_modification_timestamp,
    };
    Ok(commits::asked(&named.found()?, &info)?)
}

/// Whether this very commit is part of the table.
async fn is_ratified(ctx: Context<'_>, asked: &Asked) -> Result<bool, DeltaError> {
    let Some(lookup) = view::load_lookup(ctx, &asked.root, asked.id).await? else { return Ok(false) };
    let key = keys::proposal(&lookup.root, lookup.generation, asked.id);
    let failed = |error: crate::store::StoreError| DeltaError::from(crate::commit::error::CommitError::from(error));
    let Some(item) = ctx.ports().items.get(&key, Consistency::Strong).await.map_err(failed)? else { return Ok(false) };
    let proposal = Proposal::decode(&item).map_err(crate::commit::error::CommitError::from)?;
    Ok(proposal.status == Status::Committed { version: asked.version })
}

fn answer(asked: &Asked, ratification: Ratification) -> Result<(), DeltaError> {
    match ratification {
        Ratification::Ratified(_) => Ok(()),
        Ratification::Refused(proposal) => Err(match &proposal.refusal {
            Some(refusal) if refusal.exception.kind() == RefusalKind::Invalid => DeltaError::invalid(text_of(refusal)),
            Some(refusal) => DeltaError::version_conflict(text_of(refusal)),
            None => DeltaError::version_conflict(format!("the proposal {} is {}", asked.id, proposal.status.name())),
        }),
        Ratification::Invalid(text) => Err(DeltaError::invalid(text)),
        Ratification::TooMany(count) => Err(DeltaError::exhausted(format!(
            "{count} commits are not published yet, at most {UNPUBLISHED_MAX} may be: publish them and say so \
             (set-latest-backfilled-version), or wait a moment until that is done here"
        ))),
        Ratification::Unreadable(refusal) => Err(DeltaError::invalid(text_of(&refusal))),
    }
}

fn text_of(refusal: &Refusal) -> String {
    commits::text_of(refusal)
}

/// The writer of an external table tells what it put into the log: the catalog follows the log itself.
async fn follow(ctx: Context<'_>, named: &Named, version: Version) -> Result<(), DeltaError> {
    if named.is_managed() {
        return Err(DeltaError::invalid("update-metadata-snapshot-version is for external tables"));
    }
    match sync::look_after(ctx, &named.root, Some(version)).await {
        // It goes on with a message of its own.
        Ok(_) | Err(sync::SyncError::Slow(_)) => Ok(()),
        Err(sync::SyncError::Failed(error)) => {
            Err(DeltaError::invalid(format!("the catalog does not follow: {error}")))
        }
    }
}
