//! Claiming a version, publishing it, recording it. Each step leaves behind what the next run needs to finish it.

use bytes::Bytes;

use super::context::{CLAIM_MS, Context, LeaseEnd, Transacted};
use super::error::CommitError;
use super::head::{self, Claim, Head, LEASE_MS, Lease, LogStore};
use super::keys::content_hash;
use super::log_store;
use super::lookup::Lookup;
use super::proposal::{Attempt, Proposal, Status, SyncState};
use super::table_list::ListedTable;
use super::table_state::TableState;
use super::time_list::TimeEntry;
use super::verdict::Refusal;
use super::version_record::{Blindness, VersionRecord};
use crate::delta::log::{commit_key, temp_key};
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{Strictness, Version, parse_commit};
use crate::location::Location;
use crate::store::{CancelReason, Consistency, ETag, ObjectKey, PutCondition, PutOptions, Write};

/// Tries of one write that failed without a clear answer.
const TRIES: u32 = 5;

/// Bytes that lie on S3 already and will be published exactly as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    pub bytes: Bytes,
    pub at: ObjectKey,
    pub etag: ETag,
    pub sha256: String,
}

/// Makes bytes durable beside the log: rewritten ones, and on tables with a log store all of them, since its writers
/// move or copy what a claim names.
pub async fn store_copy(
    ctx: Context<'_>,
    root: &Location,
    version: Version,
    proposal: &Proposal,
    bytes: Bytes,
) -> Result<Durable, CommitError> {
    // A name of its own for each try: bytes that a claim points at are never overwritten.
    let at = temp_key(root, version, proposal.id.0, &ctx.new_revision());
    let options = PutOptions { condition: PutCondition::Always, ..PutOptions::default() };
    let etag = ctx.ports().objects.put(&at, bytes.clone(), &options).await?;
    Ok(Durable { sha256: content_hash(&bytes), bytes, at, etag })
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Claimed {
    Yes {
        head: Box<Head>,
        proposal: Box<Proposal>,
    },
    /// Head or proposal changed since they were read: read them again.
    No,
    /// A writer of a log store has an entry for the version, and nobody knew of such writers.
    LogStoreEntry,
}

/// One transaction: the head moves forward with the claim, the proposal is claimed, and where the table has a log store
/// its entries are made; where it is not known to have one, there must be none. `head` carries the state at the version before.
pub async fn claim(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    version: Version,
    durable: &Durable,
    log_store: LogStore,
) -> Result<Claimed, CommitError> {
    ctx.check_time("claiming a version", CLAIM_MS)?;
    let now_ms = ctx.now_ms();
    if let Some(fence) = head.active_fence(now_ms) {
        return Err(CommitError::Fenced { run: fence.run.clone() });
    }
    let attempt = proposal.attempts.saturating_add(1);
    let next_head = Head {
        revision: ctx.new_revision(),
        fence: None,
        lease: Some(Lease { worker: ctx.worker, until_ms: now_ms.saturating_add(LEASE_MS) }),
        log_store: if log_store == LogStore::Shared { log_store } else { head.log_store },
        claim: Some(Claim {
            version,
            proposal: proposal.id,
            attempt,
            bytes_key: durable.at.key.clone(),
            bytes_etag: durable.etag.clone(),
            sha256: durable.sha256.clone(),
            claimed_ms: now_ms,
            log_store,
        }),
        ..head.clone()
    };
    let mut next = Proposal { attempts: attempt, updated_ms: now_ms, revision: ctx.new_revision(), ..proposal.clone() };
    if next.status != Status::Judged {
        next.advance(Status::Judged)?;
    }
    next.advance(Status::Claimed { version, attempt })?;
    next.refusal = None;
    let mut writes = vec![write_head(head, &next_head)?, proposal.write(&next)?];
    writes.extend(index_writes(proposal, head));
    let own = writes.len();
    writes.extend(match log_store {
        LogStore::Shared => log_store::claim_writes(&head.root, version, &durable.at.key),
        LogStore::Off => log_store::absence_checks(&head.root, version),
    });
    match ctx.transact(&writes).await? {
        Transacted::Done => Ok(Claimed::Yes { head: Box::new(next_head), proposal: Box::new(next) }),
        Transacted::Refused(reasons) => {
            let failed = |reason: &CancelReason| matches!(reason, CancelReason::ConditionFailed { .. });
            let met_entry = log_store == LogStore::Off && reasons.iter().skip(own).any(failed);
            Ok(if met_entry { Claimed::LogStoreEntry } else { Claimed::No })
        }
    }
}

fn write_head(old: &Head, new: &Head) -> Result<Write, CommitError> {
    Ok(Write::Put { key: super::keys::head(&old.root), item: new.encode()?, condition: old.unchanged() })
}

/// Gives the table back where the last commit of a batch was none that could do it by the way. A lease that stays ends by
/// itself.
pub async fn release(ctx: Context<'_>, head: &mut Head) {
    if head.lease.is_none_or(|lease| lease.worker != ctx.worker) {
        return;
    }
    let next = Head { lease: None, revision: ctx.new_revision(), ..head.clone() };
    let written = match write_head(head, &next) {
        Ok(write) => ctx.transact(&[write]).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(Transacted::Done) => *head = next,
        // Somebody else moved the head, or will.
        Ok(Transacted::Refused(_)) => {}
        Err(error) => tracing::warn!(root = %head.root, %error, "a lease was not given back; it ends in a few seconds"),
    }
}

/// Look-up and list items of a proposal that is stored for the first time, and of a table without a head.
pub fn index_writes(proposal: &Proposal, head: &Head) -> Vec<Write> {
    if !proposal.revision.is_empty() {
        return Vec::new();
    }
    let lookup = Lookup { id: proposal.id, root: proposal.root.clone(), generation: proposal.generation };
    let entry = TimeEntry { id: proposal.id, received_ms: proposal.received_ms };
    let mut writes = vec![lookup.write(), entry.write(&proposal.root, proposal.generation)];
    if head.revision.is_empty() {
        writes.push(ListedTable::write(&proposal.root));
    }
    writes
}

/// A commit that was recorded.
#[derive(Clone, Debug)]
pub struct Completed {
    pub head: Head,
    pub proposal: Proposal,
    pub commit: LoggedCommit,
    pub between: Between,
}

/// Who wrote to the head between a claim and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    Nobody,
    /// A sweep, which set its fence or took it away.
    Others,
}

/// Records a published claim: head settled, proposal committed, version record written. `None`: somebody else did, or
/// the claim was taken over; read everything again.
pub async fn complete(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    claim: &Claim,
    bytes: &Bytes,
    etag: ETag,
) -> Result<Option<Completed>, CommitError> {
    let commit = logged(&head.root, claim.version, bytes.clone(), ctx.now_ms())?;
    let mut head = head.clone();
    let mut proposal = proposal.clone();
    for attempt in 0..TRIES {
        if !stands(&proposal, claim) {
            return Ok(None);
        }
        let next_head = settled(ctx, &head, claim, &commit, &etag);
        let next = committed(ctx, &proposal, claim, &commit, next_head.state.as_ref())?;
        let record = VersionRecord {
            version: claim.version,
            proposal: Some(claim.proposal),
            sha256: Some(claim.sha256.clone()),
            etag: Some(etag.clone()),
            operation: commit.actions.operation().map(super::verdict::clip),
            blindness: blindness(&commit),
            committed_ms: next.updated_ms,
        };
        let mut writes =
            vec![write_head(&head, &next_head)?, proposal.write(&next)?, record.write(&head.root, head.generation)];
        if claim.log_store == LogStore::Shared {
            writes.extend(log_store::complete_writes(&head.root, claim.version, &claim.bytes_key, ctx.now_ms()));
        }
        if ctx.transact(&writes).await? == Transacted::Done {
            let between = if attempt == 0 { Between::Nobody } else { Between::Others };
            return Ok(Some(Completed { head: next_head, proposal: next, commit, between }));
        }
        // A fence changes the head's revision and nothing else: then the claim still stands and is recorded now.
        match still_ours(ctx, &head, &proposal, claim).await? {
            Some((head_now, proposal_now)) => (head, proposal) = (head_now, proposal_now),
            None => return Ok(None),
        }
        ctx.back_off(attempt).await;
    }
    Err(CommitError::Contended { attempts: TRIES })
}

/// Whether the proposal is still where the claim left it. Head and proposal are read one after the other, so that another
/// run may have recorded the claim in between: that is no fault, and nothing is left to do.
fn stands(proposal: &Proposal, claim: &Claim) -> bool {
    proposal.status == Status::Claimed { version: claim.version, attempt: claim.attempt }
}

/// As a winner's is inferred, see `conflict::winner`.
pub(super) fn blindness(commit: &LoggedCommit) -> Blindness {
    let declared = super::read_set::declared(&commit.actions).ok().flatten();
    if super::read_set::is_blind_append(&commit.actions, declared.as_ref()) {
        Blindness::Blind
    } else {
        Blindness::Reading
    }
}

fn logged(root: &Location, version: Version, bytes: Bytes, now_ms: i64) -> Result<LoggedCommit, CommitError> {
    let actions = parse_commit(&bytes, Strictness::Log).map_err(|error| {
        crate::store::StoreError::new(
            crate::store::StoreErrorKind::Invalid,
            format!("read {}", commit_key(root, version)),
            error.to_string(),
        )
    })?;
    Ok(LoggedCommit { version, actions, bytes, last_modified_ms: now_ms })
}

fn settled(ctx: Context<'_>, head: &Head, claim: &Claim, commit: &LoggedCommit, etag: &ETag) -> Head {
    let state = match (&head.state, claim.version == head.version.next()) {
        (Some(state), true) => Some(state.clone()),
        (None, true) if head.version == Version::NONE => first_state(commit),
        _ => None,
    };
    let state = state.and_then(|mut state| state.apply(&head.root, commit).is_ok().then_some(state));
    let metadata_id = state.as_ref().map(|state| state.metadata.id.clone()).or_else(|| head.metadata_id.clone());
    Head {
        version: claim.version,
        claim: None,
        lease: head.lease.filter(|lease| ctx.lease_end == LeaseEnd::Keep || lease.worker != ctx.worker),
        log_etag: Some(etag.clone()),
        metadata_id,
        state,
        revision: ctx.new_revision(),
        ..head.clone()
    }
}

/// The state that a creating commit leaves, before its files are counted in.
fn first_state(commit: &LoggedCommit) -> Option<TableState> {
    Some(TableState::created(commit.actions.protocol.clone()?, commit.actions.metadata.clone()?))
}

/// The proposal as it is once its claim is in the table.
pub(super) fn committed(
    ctx: Context<'_>,
    proposal: &Proposal,
    claim: &Claim,
    commit: &LoggedCommit,
    state: Option<&TableState>,
) -> Result<Proposal, CommitError> {
    // Without a state the partition columns are not known here; the sync finds out.
    let may_have_partitions = state.is_none_or(|state| !state.metadata.partition_columns.is_empty());
    let now_ms = ctx.now_ms();
    let mut next = Proposal { updated_ms: now_ms, revision: ctx.new_revision(), ..proposal.clone() };
    if may_have_partitions && !(commit.actions.adds.is_empty() && commit.actions.removes.is_empty()) {
        next.sync = SyncState::Pending;
    } else {
        next.synced_ms = Some(now_ms);
    }
    next.advance(Status::Published { version: claim.version })?;
    next.advance(Status::Committed { version: claim.version })?;
    Ok(next)
}

/// Head and proposal read anew, if the claim is still the same one.
pub async fn still_ours(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    claim: &Claim,
) -> Result<Option<(Head, Proposal)>, CommitError> {
    let Some(head) = head::load(&*ctx.ports().items, &head.root).await? else { return Ok(None) };
    if head.claim.as_ref() != Some(claim) {
        return Ok(None);
    }
    let item = ctx.ports().items.get(&proposal.key(), Consistency::Strong).await?;
    match item {
        Some(item) => Ok(Some((head, Proposal::decode(&item)?))),
        None => Ok(None),
    }
}

/// Why a claim was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostTo {
    /// Somebody else's bytes are at its version.
    Others,
    /// Its own bytes are gone, or its log is: the version is free again.
    Nobody,
}

/// Gives a claim up; the proposal is judged again. What might still turn up at the version is remembered.
pub async fn lose(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    claim: &Claim,
    to: LostTo,
) -> Result<(), CommitError> {
    let (mut head, mut proposal) = (head.clone(), proposal.clone());
    for attempt in 0..TRIES {
        if !stands(&proposal, claim) {
            return Ok(());
        }
        let next_head = Head { claim: None, revision: ctx.new_revision(), ..head.clone() };
        let mut next = Proposal { updated_ms: ctx.now_ms(), revision: ctx.new_revision(), ..proposal.clone() };
        next.advance(Status::Lost { version: claim.version, attempt: claim.attempt })?;
        next.remember_lost(Attempt { version: claim.version, sha256: claim.sha256.clone() });
        let mut writes = vec![write_head(&head, &next_head)?, proposal.write(&next)?];
        if claim.log_store == LogStore::Shared {
            writes.extend(match to {
                // So that nobody copies our bytes, and nobody waits for them.
                LostTo::Others => log_store::complete_writes(&head.root, claim.version, &claim.bytes_key, ctx.now_ms()),
                LostTo::Nobody => log_store::withdraw_writes(ctx, &head.root, claim.version, &claim.bytes_key).await?,
            });
        }
        if ctx.transact(&writes).await? == Transacted::Done {
            return Ok(());
        }
        match still_ours(ctx, &head, &proposal, claim).await? {
            Some((head_now, proposal_now)) => (head, proposal) = (head_now, proposal_now),
            None => return Ok(()),
        }
        ctx.back_off(attempt).await;
    }
    Err(CommitError::Contended { attempts: TRIES })
}

/// Records that the proposal's content was found in the log: an earlier attempt of it landed.
pub async fn land(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    version: Version,
) -> Result<Option<Proposal>, CommitError> {
    let mut next = Proposal { updated_ms: ctx.now_ms(), revision: ctx.new_revision(), ..proposal.clone() };
    next.warnings.push(format!("an earlier attempt of this commit had become version {version} already"));
    next.sync = SyncState::Pending;
    next.refusal = None;
    if next.status != Status::Judged {
        next.advance(Status::Judged)?;
    }
    next.advance(Status::Published { version })?;
    next.advance(Status::Committed { version })?;
    let mut writes = vec![proposal.write(&next)?];
    writes.extend(index_writes(proposal, head));
    match ctx.transact(&writes).await? {
        Transacted::Done => Ok(Some(next)),
        Transacted::Refused(_) => Ok(None),
    }
}

/// Stores a final refusal. `None`: the proposal changed since it was read; read it again.
pub async fn refuse(
    ctx: Context<'_>,
    head: &Head,
    proposal: &Proposal,
    refusal: Refusal,
    status: Status,
) -> Result<Option<Proposal>, CommitError> {
    tracing::info!(proposal = %proposal.id, root = %proposal.root, exception = ?refusal.exception,
        reason = refusal.reason, message = refusal.message, "refused");
    let mut next =
        Proposal { refusal: Some(refusal), updated_ms: ctx.now_ms(), revision: ctx.new_revision(), ..proposal.clone() };
    if next.status != Status::Judged && next.status.may_become(Status::Judged) {
        next.advance(Status::Judged)?;
    }
    next.advance(status)?;
    let mut writes = vec![proposal.write(&next)?];
    writes.extend(index_writes(proposal, head));
    match ctx.transact(&writes).await? {
        Transacted::Done => Ok(Some(next)),
        Transacted::Refused(_) => Ok(None),
    }
}
