//! The deletion vectors that a candidate adds: each is read and compared with all that is claimed of it.

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt};

use super::candidate::Candidate;
use super::context::Context;
use super::error::CommitError;
use super::files::FileError;
use super::sanity::row_count;
use super::verdict::{Exception, Refusal};
use crate::delta::AddFile;
use crate::delta::deletion_vector::{self, VectorError};
use crate::location::Location;

/// Vectors looked at at the same time; each may take much memory.
const CONCURRENT_VECTORS: usize = 4;

/// Reads every vector of the candidate's adds: nothing for inline ones, one ranged GET for each of the others.
pub async fn check_vectors(ctx: Context<'_>, root: &Location, candidate: &Candidate) -> Result<(), FileError> {
    let adds = candidate.actions.adds.iter().filter(|add| add.deletion_vector.is_some());
    let checks: Vec<_> = adds.map(|add| check_vector(ctx, root, add).boxed()).collect();
    futures::stream::iter(checks).buffered(CONCURRENT_VECTORS).try_collect().await
}

async fn check_vector(ctx: Context<'_>, root: &Location, add: &AddFile) -> Result<(), FileError> {
    let Some(vector) = &add.deletion_vector else { return Ok(()) };
    ctx.check_time("reading deletion vectors", 0)?;
    match deletion_vector::check(&*ctx.ports().objects, root, vector, row_count(add)?).await {
        Ok(_) => Ok(()),
        Err(VectorError::Store(error)) => Err(CommitError::from(error).into()),
        Err(error) => Err(Refusal::new(
            Exception::InvalidCommitException,
            error.reason(),
            error.to_string(),
            "write the vector before the commit is proposed, and describe it as it is",
        )
        .class(error.class())
        .file(&add.path)
        .into()),
    }
}
