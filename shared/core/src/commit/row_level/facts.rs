//! What the judge needs to know of rows, and reading it: vectors, and whether rows of a file satisfy a condition.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt};
use uuid::Uuid;

use super::scan;
use crate::commit::candidate::Candidate;
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::table_facts::TableFacts;
use crate::delta::deletion_vector::{self, RowSet, VectorError};
use crate::delta::{AddFile, DeletionVector};
use crate::store::ObjectKey;

/// Vectors read at the same time; each may take much memory.
const CONCURRENT_VECTORS: usize = 4;
/// Payload of all vectors of one judgement.
const VECTORS_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// What must be read before the judge can go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowNeeds {
    /// By [`vector_key`].
    pub vectors: BTreeMap<String, DeletionVector>,
    /// Files of winners: does a row of them satisfy what the candidate read?
    pub files: BTreeMap<ObjectKey, AddFile>,
    /// Rows that winners took away: does one of them satisfy what the candidate read?
    pub losses: BTreeMap<LossKey, Loss>,
}

/// A file, and between which of its states rows were lost.
pub type LossKey = (ObjectKey, String);

/// Rows of a file that a winner took away.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// The file, as the log names it.
    pub add: AddFile,
    pub rows: Lost,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    These(RowSet),
    /// The file is gone: all but those that were deleted before.
    AllBut(RowSet),
}

impl Lost {
    pub fn contains(&self, row: u64) -> bool {
        match self {
            Lost::These(rows) => rows.contains(row),
            Lost::AllBut(rows) => !rows.contains(row),
        }
    }

    #[must_use]
    pub fn union(&self, other: &Lost) -> Lost {
        match (self, other) {
            (Lost::These(one), Lost::These(other)) => Lost::These(one.union(other)),
            (Lost::AllBut(kept), Lost::These(lost)) | (Lost::These(lost), Lost::AllBut(kept)) => {
                Lost::AllBut(kept.difference(lost))
            }
            (Lost::AllBut(one), Lost::AllBut(other)) => Lost::AllBut(one.intersection(other)),
        }
    }
}

impl RowNeeds {
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty() && self.files.is_empty() && self.losses.is_empty()
    }
}

/// Whether some row of a file satisfies a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    No,
    /// The first one that may, and its values.
    Row(u64, String),
    /// Reading would take more than is allowed.
    TooMuch(String),
    /// It cannot be told, so there may be one.
    Unknown(String),
}

/// What was read, and what the judge is given beside: no clock and no random names in a pure decision.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFacts {
    pub vectors: BTreeMap<String, Result<RowSet, VectorError>>,
    pub matches: BTreeMap<ObjectKey, Match>,
    pub losses: BTreeMap<LossKey, Match>,
    /// More vectors were asked for than are read.
    pub too_much: bool,
    /// Name of the file that this attempt writes its vectors into.
    pub new_file: Uuid,
    pub now_ms: i64,
}

impl RowFacts {
    pub fn new(new_file: Uuid, now_ms: i64) -> RowFacts {
        let (vectors, matches, losses) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        RowFacts { vectors, matches, losses, too_much: false, new_file, now_ms }
    }
}

/// What a vector is known by: descriptors that differ in anything are told apart.
pub fn vector_key(vector: &DeletionVector) -> String {
    format!("{} {} {}", vector.id(), vector.size_in_bytes, vector.cardinality)
}

/// Reads what is needed into `facts`: one ranged GET for each vector that is not inline; for each file its footer and the
/// columns that the condition names.
pub async fn load(
    ctx: Context<'_>,
    table: TableFacts<'_>,
    candidate: &Candidate,
    needs: RowNeeds,
    facts: &mut RowFacts,
) -> Result<(), CommitError> {
    let total = needs.vectors.values().map(|vector| u64::try_from(vector.size_in_bytes).unwrap_or(0)).sum::<u64>();
    if total > VECTORS_MAX_BYTES {
        facts.too_much = true;
        return Ok(());
    }
    let reads: Vec<_> = needs.vectors.into_iter().map(|(key, vector)| read(ctx, table, key, vector).boxed()).collect();
    let found: Vec<_> = futures::stream::iter(reads).buffered(CONCURRENT_VECTORS).try_collect().await?;
    facts.vectors.extend(found);
    if !needs.files.is_empty() {
        facts.matches.extend(scan::matches(ctx, table, candidate, &needs.files).await?);
    }
    if !needs.losses.is_empty() {
        facts.losses.extend(scan::losses(ctx, table, candidate, &needs.losses).await?);
    }
    Ok(())
}

/// One vector; a fault of the store is no property of the vector.
async fn read(
    ctx: Context<'_>,
    table: TableFacts<'_>,
    key: String,
    vector: DeletionVector,
) -> Result<(String, Result<RowSet, VectorError>), CommitError> {
    ctx.check_time("reading deletion vectors", 0)?;
    match deletion_vector::read(&*ctx.ports().objects, table.root, &vector).await {
        Err(VectorError::Store(error)) if error.is_retryable() => Err(error.into()),
        found => Ok((key, found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_several_winners_are_one_set() {
        let set = |rows: &[u64]| -> RowSet { rows.iter().copied().collect() };
        let all = [
            Lost::These(set(&[0, 2])),
            Lost::These(set(&[2, 3])),
            Lost::AllBut(set(&[0, 1, 3])),
            Lost::AllBut(set(&[1, 4])),
        ];
        for one in &all {
            for other in &all {
                let union = one.union(other);
                for row in 0..7 {
                    assert_eq!(
                        union.contains(row),
                        one.contains(row) || other.contains(row),
                        "{one:?} {other:?} {row}"
                    );
                }
            }
        }
    }
}
