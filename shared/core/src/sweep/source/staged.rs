//! Staged commits of a Delta table: what they name stays until their verdict, and one retention longer. What they leave
//! behind goes after that, unless something else needs it.

use std::collections::HashSet;

use super::vectors::files_of;
use crate::commit::claim::index_writes;
use crate::commit::content::STAGED_MAX_BYTES;
use crate::commit::error::CommitError;
use crate::commit::head::{self, Head};
use crate::commit::keys::ProposalId;
use crate::commit::proposal::{Proposal, Status};
use crate::commit::proposals::{self, ABANDONED_MS, StagedObject};
use crate::delta::log::{StagedKey, StagedName, TEMP_DIR, list_log};
use crate::delta::path::{Reach, resolve};
use crate::delta::{Actions, DeletionVector, Strictness, Version, parse_commit};
use crate::location::{Location, split_uri};
use crate::ports::Ports;
use crate::store::{ByteRange, ETag, GetOptions, ObjectError, ObjectKey, TransactError};
use crate::sweep::SweepError;

/// How far a staged commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No final verdict: it may still be committed.
    Open,
    /// Refused, superseded or expired at that moment.
    Over {
        since_ms: i64,
    },
    Committed {
        version: Version,
        since_ms: i64,
    },
}

/// An object in `_staged_commits`, or the bytes of the claim that the head holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StagedCommit {
    pub(super) at: ObjectKey,
    pub(super) etag: ETag,
    pub(super) standing: Standing,
    /// When anything was last heard of it.
    pub(super) last_heard_ms: i64,
    /// As stored, if it is.
    proposal: Option<Box<Proposal>>,
}

impl StagedCommit {
    /// Nobody has decided on it for so long that nobody will, and no version is claimed for it.
    pub(super) fn is_abandoned(&self, now_ms: i64, retention_ms: i64) -> bool {
        let is_old = self.last_heard_ms < now_ms.saturating_sub(retention_ms.max(ABANDONED_MS));
        let may_end = self.proposal.as_ref().is_none_or(|proposal| proposal.status.may_become(Status::Expired));
        self.standing == Standing::Open && is_old && may_end && StagedKey::parse(&self.at).is_some()
    }

    pub(super) fn is_of_another_catalog(&self) -> bool {
        matches!(StagedName::of(&self.at), StagedName::Ratified(_))
    }

    /// Nobody can decide on it, since it has no id, and it is so old that it is no upload under way, or it lies where
    /// nobody stages commits. What it names stays as long as it is there; that it cannot be read stops no run.
    pub(super) fn is_forgotten(&self, now_ms: i64, retention_ms: i64) -> bool {
        let is_old = self.last_heard_ms < now_ms.saturating_sub(retention_ms.max(ABANDONED_MS));
        let is_aside = || {
            let folder = self.at.key.rsplit('/').nth(1);
            folder == Some(TEMP_DIR) && StagedName::of(&self.at) == StagedName::Odd
        };
        StagedKey::parse(&self.at).is_none() && (is_old || is_aside())
    }
}

/// Versions that the log has: what a log store or another catalog wrote for them is decided on. Asked before anything is read.
async fn decided_by(ports: &Ports, root: &Location, found: &[StagedObject]) -> Result<Version, CommitError> {
    let versions = found.iter().filter_map(|object| match object.name {
        StagedName::LogStore(version) | StagedName::Ratified(version) => Some(version),
        _ => None,
    });
    let Some(first) = versions.min() else { return Ok(Version::NONE) };
    Ok(list_log(ports.objects.as_ref(), root, Some(first)).await?.latest())
}

/// Every staged commit and what became of it, and whatever else may be meant for one. Strongly consistent; three listings.
pub(super) async fn staged_commits(ports: &Ports, root: &Location) -> Result<Vec<StagedCommit>, CommitError> {
    let (items, objects) = (ports.items.as_ref(), ports.objects.as_ref());
    let head = head::load(items, root).await?;
    let found = proposals::staged_objects(objects, root).await?;
    let decided = decided_by(ports, root, &found).await?;
    let (mut listed, mut staged) = (Vec::new(), Vec::new());
    for object in found {
        let StagedObject { at, etag, last_modified_ms, .. } = object;
        match object.name {
            StagedName::Proposal(key) => listed.push((ProposalId(key.id), at, etag, last_modified_ms)),
            // What it is a copy of is staged, or claimed.
            StagedName::Copy => {}
            StagedName::LogStore(version) if version <= decided => {}
            StagedName::LogStore(_) | StagedName::Ratified(_) | StagedName::Odd => {
                // Published, or another one was. Whoever wrote it may try again with the same files.
                let is_over = matches!(object.name, StagedName::Ratified(version) if version <= decided);
                let over = Standing::Over { since_ms: last_modified_ms };
                let (standing, last_heard_ms) = (if is_over { over } else { Standing::Open }, last_modified_ms);
                staged.push(StagedCommit { at, etag, standing, last_heard_ms, proposal: None });
            }
        }
    }
    let ids: Vec<ProposalId> = listed.iter().map(|(id, ..)| *id).collect();
    let mut proposals = proposals::find(items, ports.clock.as_ref(), root, head.as_ref(), &ids).await?;
    for (id, at, etag, last_modified_ms) in listed {
        let proposal = proposals.remove(&id);
        // A verdict speaks of the bytes that it was given for.
        let ours = proposal.as_ref().filter(|proposal| proposal.staged_key == at.key && proposal.staged_etag == etag);
        // Of what a catalog ratified, the staged object is the commit until it is published.
        let is_unpublished = head.as_ref().is_some_and(|head| head.is_unpublished(id));
        let standing = ours.filter(|_| !is_unpublished).map_or(Standing::Open, standing_of);
        let updated_ms = proposal.as_ref().map_or(last_modified_ms, |proposal| proposal.updated_ms);
        let last_heard_ms = updated_ms.max(last_modified_ms);
        staged.push(StagedCommit { at, etag, standing, last_heard_ms, proposal: proposal.map(Box::new) });
    }
    if let Some(claim) = head.and_then(|head| head.claim) {
        let at = ObjectKey::new(root.bucket.clone(), claim.bytes_key);
        staged.retain(|one| one.at != at);
        let (etag, last_heard_ms) = (claim.bytes_etag, i64::MAX);
        staged.push(StagedCommit { at, etag, standing: Standing::Open, last_heard_ms, proposal: None });
    }
    Ok(staged)
}

/// Gives an abandoned commit its final verdict, so that an event which comes after all finds it. Answers whether it has
/// it now; somebody else may have been at it just then.
pub(super) async fn expire(ports: &Ports, root: &Location, one: &StagedCommit) -> Result<bool, SweepError> {
    let Some(key) = StagedKey::parse(&one.at) else { return Ok(false) };
    let head = head::load(ports.items.as_ref(), root).await?.unwrap_or_else(|| Head::fresh(root));
    let proposal = one.proposal.as_deref().cloned().unwrap_or_else(|| Proposal {
        read_version: key.version.previous(),
        ..Proposal::received(
            root,
            head.generation,
            ProposalId(key.id),
            (one.at.key.clone(), one.etag.clone()),
            ports.clock.now_ms(),
        )
    });
    let mut next = Proposal {
        updated_ms: ports.clock.now_ms(),
        revision: ports.ids.uuid().simple().to_string(),
        ..proposal.clone()
    };
    next.warnings.push("nobody decided on it for so long that a sweep gave it up".to_owned());
    next.advance(Status::Expired)?;
    let mut writes = vec![proposal.write(&next)?];
    writes.extend(index_writes(&proposal, &head));
    match ports.items.transact(&writes, &next.revision).await {
        Ok(()) => Ok(true),
        Err(TransactError::Cancelled { .. }) => Ok(false),
        Err(TransactError::Store(error)) => Err(error.into()),
    }
}

fn standing_of(proposal: &Proposal) -> Standing {
    let since_ms = proposal.updated_ms;
    match proposal.status {
        Status::Committed { version } => Standing::Committed { version, since_ms },
        status if status.is_final() => Standing::Over { since_ms },
        _ => Standing::Open,
    }
}

/// What a staged commit names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedFiles {
    Known(HashSet<ObjectKey>),
    /// Its bytes cannot be read: it may name any file of the table.
    Unknown(String),
}

/// Reads a staged commit.
pub(super) async fn named_files(ports: &Ports, root: &Location, at: &ObjectKey) -> Result<NamedFiles, SweepError> {
    let range = Some(ByteRange::From { start: 0, length: STAGED_MAX_BYTES });
    let object = match ports.objects.get(at, &GetOptions { range, if_match: None }).await {
        Ok(object) => object,
        Err(ObjectError::NotFound(_)) => return Ok(NamedFiles::Unknown("its bytes are gone".to_owned())),
        // It is empty.
        Err(ObjectError::InvalidRange(_)) => return Ok(NamedFiles::Known(HashSet::new())),
        Err(error) => return Err(error.into()),
    };
    if object.meta.size_bytes > STAGED_MAX_BYTES {
        return Ok(NamedFiles::Unknown(format!("it has {} bytes", object.meta.size_bytes)));
    }
    let named = match parse_commit(&object.bytes, Strictness::Log) {
        Ok(actions) => files_of_actions(root, &actions),
        Err(error) => Err(error.to_string()),
    };
    Ok(named.map_or_else(NamedFiles::Unknown, NamedFiles::Known))
}

/// Every object that actions name, in every reading of its path.
pub(super) fn files_of_actions(root: &Location, actions: &Actions) -> Result<HashSet<ObjectKey>, String> {
    let mut files = HashSet::new();
    for add in &actions.adds {
        files.extend(files_of_path(root, &add.path, add.deletion_vector.as_ref())?);
    }
    for remove in &actions.removes {
        files.extend(files_of_path(root, &remove.path, remove.deletion_vector.as_ref())?);
    }
    for cdc in &actions.cdc {
        files.extend(files_of_path(root, &cdc.path, None)?);
    }
    Ok(files)
}

/// The object of a path, and that of its vector. A path is decoded exactly once; some old writers did not encode, so the
/// raw reading counts as well.
pub(in crate::sweep) fn files_of_path(
    root: &Location,
    path: &str,
    vector: Option<&DeletionVector>,
) -> Result<Vec<ObjectKey>, String> {
    let decoded = resolve(root, path, Reach::Anywhere).map_err(|error| error.to_string())?;
    let raw = match split_uri(path) {
        Ok((bucket, key)) => ObjectKey::new(bucket, key),
        Err(_) => root.object(path),
    };
    let mut files = vec![decoded];
    if !files.contains(&raw) {
        files.push(raw);
    }
    if let Some(vector) = vector {
        files.extend(files_of(root, vector)?);
    }
    Ok(files)
}
