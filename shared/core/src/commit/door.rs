//! Where proposals come in: batches of staged objects, in an order that lets each be judged against the one before, and
//! what becomes of those that could not be judged to the end.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::channel::mpsc;
use serde_json::json;

use super::ahead::Ahead;
use super::claim;
use super::context::{CLAIM_MS, Context, LeaseEnd, MARGIN_MS, Transacted};
use super::error::CommitError;
use super::head::{self, Head};
use super::keys::{self, Generation, ProposalId};
use super::proposal::{Proposal, Status};
use super::run::{self, Outcome, Staged, Views, run, tell};
use super::verdict::{Exception, Refusal};
use super::view;
use crate::limits::MESSAGE_MAX_DELAY_MS;
use crate::ports::Deadline;
use crate::store::{Consistency, ETag, ObjectKey, QueueName};

/// Deliveries of a message before it becomes a dead letter, as the queue is set up.
pub const RECEIVES_MAX: u32 = 5;
/// Times that judging a proposal may be broken off for want of time.
pub const CONTINUATIONS_MAX: u32 = 12;
/// Least time that a table of a batch gets, however many there are.
const SLICE_MIN_MS: i64 = 8_000;
/// What a proposal needs to be begun at all.
const BEGIN_MS: i64 = CLAIM_MS + MARGIN_MS;
const WAITING: &str = "the turn of this commit in its batch";
/// Between two looks at a table that another worker has.
const LEASE_POLL_MS: u64 = 100;
const DEFER_MS: u64 = 1_000;
/// Tries to store that a proposal was received.
const NOTE_TRIES: u32 = 3;

/// A staged object and when its event says it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    pub staged: Staged,
    /// ISO 8601 as the event has it; orders arrivals within a batch.
    pub event_time: String,
    /// How often judging it was broken off for want of time.
    pub continuations: u32,
}

impl Arrival {
    pub fn new(staged: Staged, event_time: String) -> Arrival {
        Arrival { staged, event_time, continuations: 0 }
    }
}

/// Judges a batch: by table, proposed version, event time and id. Tables are loaded once for all their proposals, and
/// each gets its share of the time, so that a hot one does not keep the others from being judged.
/// Answers in the order of judging; one failure does not end the batch.
pub async fn judge_batch(ctx: Context<'_>, mut arrivals: Vec<Arrival>) -> Vec<(Arrival, Result<Outcome, CommitError>)> {
    arrivals.sort_by(|a, b| {
        let key = |one: &Arrival| {
            (one.staged.key.root.clone(), one.staged.key.version, one.event_time.clone(), one.staged.key.id)
        };
        key(a).cmp(&key(b))
    });
    let mut tables: VecDeque<&[Arrival]> = arrivals.chunk_by(|a, b| a.staged.key.root == b.staged.key.root).collect();
    let mut outcomes = Vec::with_capacity(arrivals.len());
    // Only what nothing stood before was given all the time there is.
    let mut is_first = true;
    while let Some(of_table) = tables.pop_front() {
        let clock = &*ctx.ports().clock;
        let left_ms = ctx.deadline.left_ms(clock);
        let count = i64::try_from(tables.len() + 1).unwrap_or(i64::MAX);
        let slice = Deadline::in_ms(clock, (left_ms / count).max(SLICE_MIN_MS)).min(ctx.deadline);
        judge_table(Context { deadline: slice, ..ctx }, of_table, is_first, &mut outcomes).await;
        is_first = false;
    }
    outcomes
}

async fn judge_table(
    ctx: Context<'_>,
    arrivals: &[Arrival],
    is_first: bool,
    outcomes: &mut Vec<(Arrival, Result<Outcome, CommitError>)>,
) {
    let (decided, mut to_tell) = mpsc::unbounded();
    let judging = async move {
        let mut views = Views::new();
        let mut ahead = Ahead::of(arrivals.iter().map(|arrival| arrival.staged.clone()).collect());
        let mut blocked = None;
        for (place, arrival) in arrivals.iter().enumerate() {
            let left_ms = ctx.deadline.left_ms(&*ctx.ports().clock);
            let lease_end = if place + 1 < arrivals.len() { LeaseEnd::Keep } else { LeaseEnd::Release };
            let outcome = match &blocked {
                Some(error) => Err(CommitError::clone(error)),
                None if left_ms < BEGIN_MS && !(is_first && place == 0) => {
                    Err(CommitError::OutOfTime { step: WAITING, left_ms })
                }
                None => run(Context { lease_end, ..ctx }, &mut views, &mut ahead, &arrival.staged).await,
            };
            // The same waits for all of the table.
            if let Err(error @ CommitError::Leased { .. }) = &outcome {
                blocked = Some(error.clone());
            }
            // The other end is there until this one is gone.
            let _ = decided.unbounded_send((arrival, outcome));
        }
        for view in views.values_mut() {
            claim::release(ctx, &mut view.head).await;
            ctx.app.warm.put(view);
        }
    };
    // The next commit does not wait for the catalog to follow the one before.
    let telling = async {
        while let Some((arrival, outcome)) = to_tell.next().await {
            let outcome = match outcome {
                Ok(decided) => tell(ctx, decided).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome {
                let staged = &arrival.staged.key;
                tracing::warn!(root = %staged.root, proposal = %staged.id, error = %error, "no verdict");
            }
            outcomes.push((arrival.clone(), outcome));
        }
    };
    futures::join!(judging, telling);
}

/// Judges one staged object, for a caller that waits: a table that another worker has is waited for.
pub async fn judge_one(ctx: Context<'_>, staged: &Staged) -> Result<Outcome, CommitError> {
    loop {
        match run(ctx, &mut Views::new(), &mut Ahead::default(), staged).await {
            Err(CommitError::Leased { .. }) if ctx.check_time("waiting for another worker", CLAIM_MS).is_ok() => {
                ctx.ports().clock.sleep_ms(LEASE_POLL_MS).await;
            }
            other => return tell(ctx, other?).await,
        }
    }
}

/// Sends a message that goes on with a proposal for which there was too little time, or that others were at work on; its
/// present message is done then. A proposal that was broken off too often gets its verdict instead.
pub async fn go_on_later(ctx: Context<'_>, arrival: &Arrival, error: &CommitError) -> Result<(), CommitError> {
    let mut continuations = arrival.continuations;
    if matches!(error, CommitError::OutOfTime { step, .. } if *step != WAITING)
        || matches!(error, CommitError::Contended { .. })
    {
        continuations = continuations.saturating_add(1);
    }
    if continuations > CONTINUATIONS_MAX {
        return run::refuse_too_slow(ctx, &arrival.staged, error).await;
    }
    let delay_ms = match error {
        CommitError::Leased { .. } | CommitError::OutOfTime { .. } => DEFER_MS,
        _ => DEFER_MS.saturating_mul(1 << continuations.min(6)),
    };
    let body = redelivery(&arrival.staged.key.key(), arrival.staged.etag.as_ref(), continuations);
    ctx.ports().queue.send(QueueName::Commits, body, delay_ms.min(MESSAGE_MAX_DELAY_MS)).await?;
    Ok(())
}

/// Leaves a staged commit to the queue, for a caller that does not wait (any longer): from here on its verdict can be
/// asked for by its id, and a message sees to it that there will be one. Answers the proposal as it is stored.
pub async fn leave_to_queue(
    ctx: Context<'_>,
    staged: &Staged,
    error: Option<&CommitError>,
) -> Result<Proposal, CommitError> {
    let proposal = noted(ctx, staged).await?;
    if proposal.status.is_final() {
        return Ok(proposal);
    }
    match error {
        Some(error) => go_on_later(ctx, &Arrival::new(staged.clone(), String::new()), error).await?,
        None => {
            let body = redelivery(&staged.key.key(), staged.etag.as_ref(), 0);
            ctx.ports().queue.send(QueueName::Commits, body, 0).await?;
        }
    }
    Ok(proposal)
}

/// The proposal of a staged object as it is stored, after it was stored as received where it was not yet.
async fn noted(ctx: Context<'_>, staged: &Staged) -> Result<Proposal, CommitError> {
    let (root, id) = (&staged.key.root, ProposalId(staged.key.id));
    let items = &*ctx.ports().items;
    for attempt in 0..NOTE_TRIES {
        let head = head::load(items, root).await?.unwrap_or_else(|| Head::fresh(root));
        let lookup = view::load_lookup(ctx, root, id).await?;
        let generation = lookup.as_ref().map_or(head.generation, |lookup| lookup.generation);
        if let Some(item) = items.get(&keys::proposal(root, generation, id), Consistency::Strong).await? {
            return Ok(Proposal::decode(&item)?);
        }
        let new = unread(ctx, &Arrival::new(staged.clone(), String::new()), generation);
        let next = Proposal { revision: ctx.new_revision(), ..new.clone() };
        let mut writes = vec![new.write(&next)?];
        writes.extend(claim::index_writes(&new, &head));
        if ctx.transact(&writes).await? == Transacted::Done {
            return Ok(next);
        }
        ctx.back_off(attempt).await;
    }
    Err(CommitError::Contended { attempts: NOTE_TRIES })
}

/// Notes on a proposal that its message becomes a dead letter: readable, judged again once the letter is sent again, and
/// still protecting its files.
pub async fn give_up(ctx: Context<'_>, arrival: &Arrival, error: &str) -> Result<(), CommitError> {
    let (root, id) = (&arrival.staged.key.root, ProposalId(arrival.staged.key.id));
    let items = &*ctx.ports().items;
    let head = head::load(items, root).await?.unwrap_or_else(|| Head::fresh(root));
    let lookup = view::load_lookup(ctx, root, id).await?;
    let generation = lookup.as_ref().map_or(head.generation, |lookup| lookup.generation);
    let proposal = match items.get(&keys::proposal(root, generation, id), Consistency::Strong).await? {
        Some(item) => Proposal::decode(&item)?,
        None => unread(ctx, arrival, generation),
    };
    // A claim is finished by whoever comes next.
    if !proposal.status.may_become(Status::Undecided) {
        return Ok(());
    }
    let refusal = Refusal::new(
        Exception::ConcurrentWriteException,
        "UNDECIDED",
        format!("no verdict was found, however often it was tried; at last: {error}"),
        "nothing is lost: once the trouble is over, send the dead letter of the commit again",
    );
    let (updated_ms, revision) = (ctx.now_ms(), ctx.new_revision());
    let mut next = Proposal { refusal: Some(refusal), updated_ms, revision, ..proposal.clone() };
    next.advance(Status::Undecided)?;
    let mut writes = vec![proposal.write(&next)?];
    writes.extend(claim::index_writes(&proposal, &head));
    match ctx.transact(&writes).await? {
        // Refused: somebody got on with it in the meantime.
        Transacted::Done | Transacted::Refused(_) => Ok(()),
    }
}

fn unread(ctx: Context<'_>, arrival: &Arrival, generation: Generation) -> Proposal {
    let key = &arrival.staged.key;
    let etag = arrival.staged.etag.clone().unwrap_or(ETag(String::new()));
    let staged = (key.key().key, etag);
    Proposal {
        read_version: key.version.previous(),
        ..Proposal::received(&key.root, generation, ProposalId(key.id), staged, ctx.now_ms())
    }
}

/// A message of the commits queue for a staged object, in EventBridge's shape. `continuations`: how often judging it was
/// broken off for want of time.
pub fn redelivery(at: &ObjectKey, etag: Option<&ETag>, continuations: u32) -> String {
    let mut object = json!({"key": at.key});
    if let (Some(etag), Some(members)) = (etag, object.as_object_mut()) {
        members.insert("etag".into(), etag.0.as_str().into());
    }
    json!({
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {
            "bucket": {"name": at.bucket},
            "object": object,
            "reason": "redelivery",
            "continuations": continuations,
        },
    })
    .to_string()
}
