//! Judging a candidate against what won since it was read: part by part, so that neither memory nor time has to hold
//! all winners at once. What was found to be no conflict is not looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidate::Candidate;
use super::context::{CLAIM_MS, Context};
use super::error::CommitError;
use super::facts::FileFacts;
use super::judge::{self, Inputs, Judgement};
use super::row_level::{self, RowFacts, RowNeeds};
use super::table_facts::TableFacts;
use super::verdict::{Exception, Refusal};
use super::view::{View, ViewError, WINNERS_MAX};
use crate::delta::schema::Schema;
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{Version, features};

/// Winners of one part.
const PART: i64 = 64;
/// Times the judge may ask for more, for each winner.
const FACT_ROUNDS_MAX: usize = 8;

/// Decides. `folded` says up to where winners were found to be no conflict before, and is moved on: where time runs out
/// ([`CommitError::OutOfTime`]) it is what the next run goes on from.
pub(super) async fn fold(
    ctx: Context<'_>,
    view: &mut View,
    candidate: &Candidate,
    folded: &mut Option<Version>,
) -> Result<Judgement, ViewError> {
    judge::check_read_version(candidate, view.latest).map_err(ViewError::Refused)?;
    let first = candidate.read_version.next();
    let to = if judge::is_creation(candidate) { view.latest.min(Version(0)) } else { view.latest };
    let count = to.0 - first.0 + 1;
    if count > WINNERS_MAX {
        let text = format!(
            "{count} commits won since version {} was read; at most {WINNERS_MAX} are judged",
            candidate.read_version
        );
        return Err(ViewError::Refused(too_old("ALLOTTED_TIME_EXCEEDED", text)));
    }
    let mut from = folded.filter(|folded| *folded >= first && *folded <= to).map_or(first, Version::next);
    while to.0 - from.0 >= PART {
        ctx.check_time("judging what won since the commit was read", CLAIM_MS)?;
        let end = Version(from.0 + PART - 1);
        match decide(ctx, view, candidate, from, end).await? {
            // What it takes over, later winners are compared with: then all are judged together.
            Judgement::Admit(admission) if admission.carries_over => {
                return decide(ctx, view, candidate, first, to).await;
            }
            Judgement::Admit(_) => {
                *folded = Some(end);
                from = end.next();
            }
            other => return Ok(other),
        }
    }
    let judgement = decide(ctx, view, candidate, from, to).await?;
    match &judgement {
        Judgement::Admit(admission) if !admission.carries_over => *folded = Some(to),
        Judgement::Admit(_) if from > first => return decide(ctx, view, candidate, first, to).await,
        _ => {}
    }
    Ok(judgement)
}

/// The judgement against the winners `from..=to`.
async fn decide(
    ctx: Context<'_>,
    view: &mut View,
    candidate: &Candidate,
    from: Version,
    to: Version,
) -> Result<Judgement, ViewError> {
    let winners = winners(ctx, view, candidate, from, to).await?;
    let mut wanted = BTreeSet::new();
    let (mut files, mut rows) = (None, None);
    let mut judgement = judge_once(ctx, view, candidate, &winners, (None, None));
    // What is known of some files may show that others matter, and each winner may ask for rows anew.
    for _ in 0..winners.len().saturating_add(1).saturating_mul(FACT_ROUNDS_MAX) {
        match judgement {
            Judgement::NeedsFiles(more) => {
                wanted.extend(more);
                files = Some(view.files(ctx, &wanted, candidate.read_version).await?);
            }
            Judgement::NeedsRows(needs) => rows = Some(read_rows(ctx, view, candidate, needs, rows).await?),
            decided => return Ok(decided),
        }
        judgement = judge_once(ctx, view, candidate, &winners, (files.as_ref(), rows.as_ref()));
    }
    Ok(judgement)
}

/// What the judge asked about rows, added to what it knows already.
async fn read_rows(
    ctx: Context<'_>,
    view: &View,
    candidate: &Candidate,
    needs: RowNeeds,
    known: Option<RowFacts>,
) -> Result<RowFacts, ViewError> {
    let mut facts = known.unwrap_or_else(|| RowFacts::new(ctx.app.ports.ids.uuid(), ctx.now_ms()));
    // Without a table nothing is asked.
    let Some(state) = &view.state else { return Ok(facts) };
    let schema = Schema::parse(&state.metadata.schema_string)
        .map_err(|error| ViewError::Refused(super::evolution::bad_schema(&error)))?;
    let table = TableFacts {
        root: &view.root,
        metadata: &state.metadata,
        schema: &schema,
        has_deletion_vectors: features::has_deletion_vectors_on(&state.protocol, &state.metadata),
    };
    row_level::load(ctx, table, candidate, needs, &mut facts).await.map_err(ViewError::Failed)?;
    Ok(facts)
}

async fn winners(
    ctx: Context<'_>,
    view: &mut View,
    candidate: &Candidate,
    from: Version,
    to: Version,
) -> Result<Vec<Arc<LoggedCommit>>, ViewError> {
    match view.winners(ctx, from, to).await {
        // The log was cleaned up since the candidate read.
        Err(ViewError::Refused(refusal)) if refusal.reason == "LOG_GAP" => {
            let text = format!(
                "commits after version {} are gone from the log, so conflicts cannot be ruled out",
                candidate.read_version
            );
            Err(ViewError::Refused(too_old("READ_VERSION_TOO_OLD", text)))
        }
        other => other,
    }
}

fn judge_once(
    ctx: Context<'_>,
    view: &View,
    candidate: &Candidate,
    winners: &[Arc<LoggedCommit>],
    (files, rows): (Option<&FileFacts>, Option<&RowFacts>),
) -> Judgement {
    judge::judge(Inputs {
        root: &view.root,
        candidate,
        latest: view.latest,
        state: view.state.as_ref(),
        winners,
        files,
        rows,
        default_isolation: ctx.app.settings.default_isolation,
        identity_writers: ctx.app.settings.identity_writers,
        // What is stored with a version (`VersionRecord::blindness`) was inferred from the very bytes that are read here, by
        // the same rule: a read for each part of the winners would tell nothing new.
        blindness: &BTreeMap::new(),
    })
}

fn too_old(reason: &str, text: String) -> Refusal {
    Refusal::new(
        Exception::ConcurrentWriteException,
        reason,
        text,
        "read the table again, redo the operation on its new state, and propose it under a new id",
    )
}

/// The verdict on a proposal that was broken off for want of time too often.
pub(super) fn too_slow(error: &CommitError) -> Refusal {
    let text = format!("judging the commit was broken off too often: {error}");
    too_old("ALLOTTED_TIME_EXCEEDED", text)
}
