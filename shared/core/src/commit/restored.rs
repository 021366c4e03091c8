//! Files that a commit names and that a sweep took away: they come back before the commit is judged, or, where it is
//! visible already, as soon as it is noticed. The verdict says so.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::stream::{self, StreamExt};

use super::candidate::Candidate;
use super::context::{CLAIM_MS, Context};
use super::error::CommitError;
use super::files::{CONCURRENT_FILES, FileError};
use super::verdict::clip;
use crate::catalog::locations::tables_at;
use crate::delta::deletion_vector::{Place, locate};
use crate::delta::path::Reach;
use crate::location::Location;
use crate::store::{ObjectError, ObjectKey};
use crate::sweep::recover::{Recovered, recover};
use crate::sweep::undo::Undone;
use crate::sweep::{Interruption, SweepError};

/// Reasons of refusals that only say that something is not there.
const MISSING: [&str; 2] = ["FILE_MISSING", "DELETION_VECTOR_MISSING"];
/// Files that a warning names one by one.
const NAMED_MAX: usize = 20;

/// Looks for the files that a commit was refused for. Answers what came back, to be said in the verdict: the files are to be
/// looked at again. Costs nothing where something else was wrong; otherwise one HEAD for each file of the commit, and what
/// [`recover`] costs.
///
/// Two may judge a commit at once, or a restore run may be at the same files: that a file is there again counts as much as
/// having brought it back.
///
/// # Errors
/// The same refusal, where nothing is back, with what stood in the way; a store that does not answer.
pub(super) async fn bring_back(
    ctx: Context<'_>,
    root: &Location,
    candidate: &Candidate,
    refused: FileError,
) -> Result<Vec<String>, FileError> {
    let FileError::Refused(mut refusal) = refused else { return Err(refused) };
    if !MISSING.contains(&refusal.reason.as_str()) {
        return Err(refusal.into());
    }
    match look_for(ctx, root, candidate).await? {
        Found::Back(warnings) if !warnings.is_empty() => Ok(warnings),
        Found::Back(_) => Err(refusal.into()),
        Found::NothingMissing => {
            let named = refusal.place.file.as_deref().unwrap_or("a file of the commit");
            Ok(vec![clip(&format!("{named} was missing a moment ago and is there again"))])
        }
        Found::Trouble(text) => {
            refusal.message = clip(&format!("{}; {text}", refusal.message));
            Err(refusal.into())
        }
    }
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A warning for each file that is back.
    Back(Vec<String>),
    /// Every file is there.
    NothingMissing,
    /// Why it cannot be told, or not be done.
    Trouble(String),
}

/// Brings back every file of a commit that is missing and that a sweep took away.
pub(super) async fn look_for(ctx: Context<'_>, root: &Location, candidate: &Candidate) -> Result<Found, CommitError> {
    ctx.check_time("looking for files that a sweep took away", CLAIM_MS)?;
    let missing = missing_of(ctx, root, candidate).await?;
    if missing.is_empty() {
        return Ok(Found::NothingMissing);
    }
    let ports = ctx.ports();
    let tables = tables_at(&*ports.items, &*ports.clock, root).await;
    let tables = tables.map_err(|error| CommitError::Catalog(error.to_string()))?;
    let tables: Vec<String> = tables.into_iter().map(|located| located.table.table_id.to_string()).collect();
    let found = match recover(ctx.app, &tables, &missing, ctx.deadline).await {
        Ok(found) => found,
        Err(SweepError::Interrupted(Interruption::TimeLimit)) => {
            let left_ms = ctx.deadline.left_ms(&*ports.clock);
            return Err(CommitError::OutOfTime { step: "restoring files that a sweep took away", left_ms });
        }
        Err(SweepError::Store(error)) if error.is_retryable() => return Err(error.into()),
        Err(error) => return Ok(Found::Trouble(format!("whether a sweep took it away cannot be told: {error}"))),
    };
    let mut warnings = Vec::new();
    let mut trouble = None;
    for Recovered { at, undone, .. } in found {
        match undone {
            Undone::Restored => {
                tracing::info!(%root, key = %at.key, "a file that a sweep had taken away is named by a commit and is back");
                warnings.push(format!("{} had been taken away by a sweep and was restored", at.key));
            }
            Undone::Failed(error) => {
                trouble = Some(format!("a sweep took {} away, and it cannot be restored: {error}", at.key));
            }
            Undone::Exists => warnings.push(format!("{} was missing a moment ago and is there again", at.key)),
            Undone::Gone | Undone::NotRecoverable | Undone::NotFound | Undone::Staged => {}
        }
    }
    let more = warnings.len().saturating_sub(NAMED_MAX);
    warnings.truncate(NAMED_MAX);
    if more > 0 {
        warnings.push(format!("and {more} more files were restored like these"));
    }
    Ok(match trouble {
        Some(text) if warnings.is_empty() => Found::Trouble(text),
        _ => Found::Back(warnings),
    })
}

/// Data files, vectors and change files of the commit that are not there.
async fn missing_of(ctx: Context<'_>, root: &Location, candidate: &Candidate) -> Result<Vec<ObjectKey>, CommitError> {
    let actions = &candidate.actions;
    let vectors = actions.adds.iter().filter_map(|add| add.deletion_vector.as_ref());
    let places = vectors.filter_map(|vector| match locate(root, vector, Reach::Anywhere) {
        Ok(Place::File { at, .. }) => Some(at),
        _ => None,
    });
    let named: BTreeSet<ObjectKey> =
        candidate.add_keys.iter().chain(&candidate.cdc_keys).cloned().chain(places).collect();
    let looks: Vec<_> =
        named.into_iter().map(|at| async move { (ctx.ports().objects.head(&at).await, at) }.boxed()).collect();
    let mut looks = stream::iter(looks).buffered(CONCURRENT_FILES);
    let mut missing = Vec::new();
    while let Some((found, at)) = looks.next().await {
        match found {
            Ok(_) => {}
            Err(ObjectError::NotFound(_)) => missing.push(at),
            Err(ObjectError::Store(error)) => return Err(error.into()),
            // Not to be had at all: whoever judges the file says so.
            Err(_) => {}
        }
    }
    Ok(missing)
}
