//! The deletion vectors that a candidate adds: each is read and compared with all that is claimed of it, and with the one
//! that it takes the place of: rows that were deleted stay deleted, unless the table is restored.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt};

use super::candidate::Candidate;
use super::context::Context;
use super::error::CommitError;
use super::files::{FileError, Standing};
use super::sanity::row_count;
use super::verdict::{Exception, Refusal};
use crate::delta::deletion_vector::{self, Age, RowSet, VectorError};
use crate::delta::{AddFile, DeletionVector};
use crate::location::Location;
use crate::store::ObjectKey;

/// Vectors looked at at the same time; each may take much memory.
const CONCURRENT_VECTORS: usize = 4;
/// The only operation that takes deleted rows back, and that names vectors which the table had once.
const TAKES_BACK: &str = "RESTORE";

/// Reads every vector of the candidate's adds, and the one that it replaces: nothing for inline ones, one ranged GET for each
/// of the others. `known`: files that the table has; what the candidate adds of these without removing it keeps its vector.
pub async fn check_vectors(
    ctx: Context<'_>,
    root: &Location,
    candidate: &Candidate,
    known: &BTreeMap<ObjectKey, Standing>,
) -> Result<(), FileError> {
    let actions = &candidate.actions;
    let may_shrink = candidate.operation().is_some_and(|name| name.eq_ignore_ascii_case(TAKES_BACK));
    let age_of = |key: &ObjectKey| {
        let is_kept = known.contains_key(key) && !candidate.removed.contains(key);
        if may_shrink || is_kept { Age::Known } else { Age::New }
    };
    let removes = candidate.remove_keys.iter().zip(&actions.removes);
    let replaced: BTreeMap<&ObjectKey, &DeletionVector> = removes
        .filter_map(|(key, remove)| Some((key, remove.deletion_vector.as_ref().filter(|_| !may_shrink)?)))
        .collect();
    let adds = actions.adds.iter().zip(&candidate.add_keys);
    let adds = adds.map(|(add, key)| (add, replaced.get(key).copied(), age_of(key)));
    let adds = adds.filter(|(add, base, _)| add.deletion_vector.is_some() || base.is_some());
    let checks: Vec<_> = adds.map(|(add, base, age)| check_vector(ctx, root, add, base, age).boxed()).collect();
    futures::stream::iter(checks).buffered(CONCURRENT_VECTORS).try_collect().await
}

async fn check_vector(
    ctx: Context<'_>,
    root: &Location,
    add: &AddFile,
    base: Option<&DeletionVector>,
    age: Age,
) -> Result<(), FileError> {
    let objects = &*ctx.ports().objects;
    ctx.check_time("reading deletion vectors", 0)?;
    let rows = match &add.deletion_vector {
        None => RowSet::new(),
        Some(vector) => match deletion_vector::check(objects, root, vector, row_count(add)?, age).await {
            Ok(rows) => rows,
            Err(error) => return Err(refused(error, add, "")),
        },
    };
    let id = add.deletion_vector.as_ref().map(DeletionVector::id);
    let Some(base) = base.filter(|base| Some(base.id()) != id) else { return Ok(()) };
    ctx.check_time("reading deletion vectors", 0)?;
    let gone = match deletion_vector::read(objects, root, base).await {
        Ok(gone) => gone,
        Err(error) => return Err(refused(error, add, "the vector that is replaced: ")),
    };
    let back = gone.difference(&rows);
    let Some(first) = back.iter().next() else { return Ok(()) };
    let text = format!("{} rows that were deleted come back, row {first} the first of them", back.len());
    Err(Refusal::new(
        Exception::InvalidCommitException,
        "DELETION_VECTOR_SHRINKS",
        text,
        "keep what the file's vector deletes, and add to it; only RESTORE takes deleted rows back",
    )
    .file(&add.path)
    .into())
}

fn refused(error: VectorError, add: &AddFile, which: &str) -> FileError {
    match error {
        VectorError::Store(error) => CommitError::from(error).into(),
        error => Refusal::new(
            Exception::InvalidCommitException,
            error.reason(),
            format!("{which}{error}"),
            "write the vector before the commit is proposed, and describe it as it is",
        )
        .class(error.class())
        .file(&add.path)
        .into(),
    }
}
