//! The audit door: commits that others wrote straight into a log are judged after the fact. They are visible already, so
//! nothing is prevented: what the judge would have said is recorded as a proposal of the status `already_visible`, what
//! breaks a rule raises an alarm, and the head follows.

use super::ahead::Ahead;
use super::alarm::{self, Alarm, AlarmKind};
use super::candidate::Candidate;
use super::claim;
use super::context::{CLAIM_MS, Context, Transacted};
use super::error::CommitError;
use super::files::{self, FileError};
use super::fold::fold;
use super::head::{self, Head};
use super::judge::{Admission, Judgement};
use super::keys::{self, Generation, ProposalId, content_hash};
use super::proposal::{Proposal, Status};
use super::restored::{self, Found};
use super::table_list::ListedTable;
use super::vectors::check_vectors;
use super::verdict::Refusal;
use super::version_record::{Blindness, VersionRecord};
use super::view::{self, View, ViewError};
use crate::catalog::locations::tables_at;
use crate::delta::log::commit_key;
use crate::delta::{Version, features};
use crate::location::Location;
use crate::store::{Condition, Consistency, Object, Write, get_every};

/// Versions that the head follows in one go.
const FOLLOWED_MAX: i64 = 64;

/// Whether commits of a table are judged that nobody proposed: where anything was ever proposed, and where the catalog
/// knows the table.
pub(super) async fn is_watched(ctx: Context<'_>, head: &Head) -> Result<bool, CommitError> {
    if !head.revision.is_empty() {
        return Ok(true);
    }
    let ports = ctx.ports();
    let tables = tables_at(&*ports.items, &*ports.clock, &head.root).await;
    Ok(!tables.map_err(|error| CommitError::Catalog(error.to_string()))?.is_empty())
}

/// The id of what is recorded of another writer's version: always the same for the same content.
pub fn audit_id(root: &Location, generation: Generation, version: Version, sha256: &str) -> ProposalId {
    let text = format!("already visible#{}#{}#{sha256}#{root}", generation.0, version.0);
    let digest = content_hash(text.as_bytes());
    let number = digest.get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok()).unwrap_or_default();
    ProposalId(uuid::Builder::from_custom_bytes(number.to_be_bytes()).into_uuid())
}

/// What the judge would have said.
struct Judged {
    refusal: Option<Refusal>,
    warnings: Vec<String>,
    candidate: Option<Candidate>,
}

/// Judges a version that another writer put, and records the verdict with what the version holds. Answers the proposal as it
/// is stored; `None` where the table's own catalog judges, or nothing of the table can be read.
pub(super) async fn judge_visible(
    ctx: Context<'_>,
    head: &Head,
    version: Version,
    object: &Object,
) -> Result<Option<Proposal>, CommitError> {
    ctx.check_time("judging what is visible already", CLAIM_MS)?;
    let judged = match view::as_of(ctx, head, version.previous()).await {
        Ok(mut view) => match judge(ctx, &mut view, version, object).await? {
            Some(judged) => judged,
            None => return Ok(None),
        },
        Err(ViewError::Refused(refusal)) => Judged { refusal: Some(refusal), warnings: Vec::new(), candidate: None },
        Err(ViewError::Failed(error)) => return Err(error),
    };
    let proposal = proposal_of(ctx, head, version, object, judged);
    if let Some(refusal) = &proposal.refusal {
        let text = format!("version {version} would have been refused: {:?}: {}", refusal.exception, refusal.message);
        let alarm = Alarm::new(AlarmKind::VisibleViolation, version, &object.meta.etag.0, &text, ctx.now_ms());
        // First, so that a run that ends here raises it again.
        alarm::raise(ctx, &head.root, head.generation, alarm.about(proposal.id)).await?;
    }
    tracing::info!(root = %head.root, version = version.0, proposal = %proposal.id,
        audited = proposal.refusal.as_ref().map_or("sound", |_| "violation"), "a commit was visible before it was judged");
    record(ctx, head, version, object, proposal).await.map(Some)
}

async fn judge(
    ctx: Context<'_>,
    view: &mut View,
    version: Version,
    object: &Object,
) -> Result<Option<Judged>, CommitError> {
    let refused = |refusal| Ok(Some(Judged { refusal: Some(refusal), warnings: Vec::new(), candidate: None }));
    let candidate = match Candidate::parse(&view.root, version, object.bytes.clone()) {
        Ok(candidate) => candidate,
        Err(refusal) => return refused(refusal),
    };
    let protocol = candidate.actions.protocol.as_ref().or(view.state.as_ref().map(|state| &state.protocol));
    if protocol.is_some_and(features::is_catalog_managed) {
        return Ok(None);
    }
    let judgement = match fold(ctx, view, &candidate, &mut None).await {
        Ok(judgement) => judgement,
        Err(ViewError::Refused(refusal)) => Judgement::Refuse(refusal),
        Err(ViewError::Failed(error)) => return Err(error),
    };
    let (refusal, warnings) = match judgement {
        Judgement::Refuse(refusal) | Judgement::Supersede(refusal) => (Some(refusal), Vec::new()),
        Judgement::Landed { version: first } => {
            let text = format!("the same commit (by content or txnId) is version {first} already");
            (Some(Refusal::invalid("ALREADY_APPLIED", text)), Vec::new())
        }
        Judgement::NeedsFiles(_) | Judgement::NeedsRows(_) => (None, Vec::new()),
        Judgement::Admit(admission) => match prove_or_restore(ctx, &view.root, &candidate, &admission).await {
            Ok(warnings) => (None, warnings),
            Err(FileError::Refused(refusal)) => (Some(refusal), Vec::new()),
            Err(FileError::Failed(error)) => return Err(error),
        },
    };
    // It is visible whatever is wrong with it: readers need its files.
    let (refusal, warnings) = match refusal {
        Some(refusal) => match restored::look_for(ctx, &view.root, &candidate).await? {
            Found::Back(returned) => (Some(refusal), [warnings, returned].concat()),
            Found::NothingMissing => (Some(refusal), warnings),
            Found::Trouble(text) => (Some(refusal), [warnings, vec![text]].concat()),
        },
        None => (None, warnings),
    };
    Ok(Some(Judged { refusal, warnings, candidate: Some(candidate) }))
}

/// Looks at the files once more when some that were missing have come back from where a sweep put them.
async fn prove_or_restore(
    ctx: Context<'_>,
    root: &Location,
    candidate: &Candidate,
    admission: &Admission,
) -> Result<Vec<String>, FileError> {
    let refused = match prove(ctx, root, candidate, admission).await {
        Ok(warnings) => return Ok(warnings),
        Err(error) => error,
    };
    let mut warnings = restored::bring_back(ctx, root, candidate, refused).await?;
    warnings.extend(prove(ctx, root, candidate, admission).await?);
    Ok(warnings)
}

async fn prove(
    ctx: Context<'_>,
    root: &Location,
    candidate: &Candidate,
    admission: &Admission,
) -> Result<Vec<String>, FileError> {
    let nothing = Ahead::default();
    let checked = files::check_files(ctx, candidate, admission, nothing.seen(ctx, "")).await?;
    check_vectors(ctx, root, candidate, &admission.known).await?;
    let mut warnings: Vec<String> = admission.warnings.iter().cloned().chain(checked.warnings).collect();
    if !admission.rebase.is_empty() {
        warnings
            .push("as a proposal it would have been published with changes (row ids, domains or properties)".into());
    }
    Ok(warnings)
}

fn proposal_of(ctx: Context<'_>, head: &Head, version: Version, object: &Object, judged: Judged) -> Proposal {
    let id = audit_id(&head.root, head.generation, version, &content_hash(&object.bytes));
    let log = (commit_key(&head.root, version).key, object.meta.etag.clone());
    let candidate = judged.candidate.as_ref();
    let mut warnings = judged.warnings;
    warnings.insert(
        0,
        format!("version {version} was put into the log by its writer: it was visible before it was judged"),
    );
    Proposal {
        read_version: candidate.map_or(version.previous(), |candidate| candidate.read_version),
        status: Status::AlreadyVisible { version },
        operation: candidate.and_then(|candidate| candidate.operation()).map(super::verdict::clip),
        refusal: judged.refusal,
        warnings,
        ..Proposal::received(&head.root, head.generation, id, log, ctx.now_ms())
    }
}

/// The verdict and the version's record, in one transaction. Somebody may have been faster: their verdict is the same.
async fn record(
    ctx: Context<'_>,
    head: &Head,
    version: Version,
    object: &Object,
    proposal: Proposal,
) -> Result<Proposal, CommitError> {
    let stored = Proposal { revision: ctx.new_revision(), ..proposal.clone() };
    let record = VersionRecord {
        version,
        proposal: None,
        sha256: Some(content_hash(&object.bytes)),
        etag: Some(object.meta.etag.clone()),
        operation: proposal.operation.clone(),
        blindness: Blindness::Reading,
        committed_ms: object.meta.last_modified_ms,
    };
    let mut writes = vec![proposal.write(&stored)?];
    if let Write::Put { key, item, .. } = record.write(&head.root, head.generation) {
        writes.push(Write::Put { key, item, condition: Condition::Absent });
    }
    writes.extend(claim::index_writes(&proposal, head));
    match ctx.transact(&writes).await? {
        Transacted::Done => Ok(stored),
        Transacted::Refused(_) => match ctx.ports().items.get(&proposal.key(), Consistency::Strong).await? {
            Some(item) => Ok(Proposal::decode(&item)?),
            None => Ok(proposal),
        },
    }
}

/// Moves a head to the last of the versions that were judged, without a gap, so that the next commit need not read them.
/// Only saves work: a head that stays behind catches up with the next commit.
pub(super) async fn follow(ctx: Context<'_>, root: &Location) -> Result<Option<Version>, CommitError> {
    let head = head::load(&*ctx.ports().items, root).await?.unwrap_or_else(|| Head::fresh(root));
    if head.claim.is_some() || head.managed.is_some() || head.active_fence(ctx.now_ms()).is_some() {
        return Ok(None);
    }
    let Some(to) = last_judged(ctx, &head).await? else { return Ok(None) };
    let view = match view::as_of(ctx, &head, to).await {
        Ok(view) => view,
        Err(ViewError::Refused(_)) => return Ok(None),
        Err(ViewError::Failed(error)) => return Err(error),
    };
    if view.latest != to {
        return Ok(None);
    }
    let next = Head {
        revision: ctx.new_revision(),
        generation: head.generation,
        fence: head.fence.clone(),
        lease: head.lease,
        log_store: head.log_store,
        ..view.settled_head()
    };
    let mut writes = vec![Write::Put { key: keys::head(root), item: next.encode()?, condition: head.unchanged() }];
    if head.revision.is_empty() {
        writes.push(ListedTable::write(root));
    }
    if ctx.transact(&writes).await? != Transacted::Done {
        return Ok(None);
    }
    // What is remembered of the table is of the head before: a claim upon it would be made in vain.
    drop(ctx.app.warm.take(root));
    Ok(Some(to))
}

/// The last version behind the head's up to which each has a record.
async fn last_judged(ctx: Context<'_>, head: &Head) -> Result<Option<Version>, CommitError> {
    let first = head.version.next();
    let versions: Vec<Version> = (first.0..first.0.saturating_add(FOLLOWED_MAX)).map(Version).collect();
    let wanted: Vec<_> = versions.iter().map(|version| keys::version(&head.root, head.generation, *version)).collect();
    let found = get_every(&*ctx.ports().items, &*ctx.ports().clock, &wanted, Consistency::Strong).await?;
    if head.version == Version::NONE {
        // A table that nobody proposed to: its first version need not be the first that was seen.
        return Ok(versions
            .iter()
            .zip(&wanted)
            .filter(|(_, key)| found.contains_key(key))
            .map(|(version, _)| *version)
            .next_back());
    }
    Ok(versions.iter().zip(&wanted).take_while(|(_, key)| found.contains_key(key)).map(|(version, _)| *version).last())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_same_content_has_the_same_id() {
        let root = Location::new("b", "t");
        let id = audit_id(&root, Generation(0), Version(3), "abc");
        assert_eq!(id, audit_id(&root, Generation(0), Version(3), "abc"));
        for other in [
            audit_id(&root, Generation(1), Version(3), "abc"),
            audit_id(&root, Generation(0), Version(4), "abc"),
            audit_id(&root, Generation(0), Version(3), "abd"),
            audit_id(&Location::new("b", "u"), Generation(0), Version(3), "abc"),
        ] {
            assert_ne!(id, other);
        }
        assert_eq!(Uuid::try_parse(&id.to_string()), Ok(id.0));
    }
}
