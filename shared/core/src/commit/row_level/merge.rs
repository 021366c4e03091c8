//! Deleted rows of one file, as sets.

use serde::{Deserialize, Serialize};

use crate::delta::deletion_vector::RowSet;

/// Rows of an overlap that a verdict names.
pub const SAMPLE_MAX: usize = 10;

/// Rows of a file that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameRows {
    /// As the log spells it.
    pub file: String,
    pub count: u64,
    /// The first ones, by their position in the file from 0 on.
    pub sample: Vec<u64>,
}

/// What becomes of a file that the candidate and a winner deleted rows of.
#[derive(Clone, Debug, PartialEq)]
pub enum Meeting {
    /// Different rows: these are deleted afterwards.
    Apart(RowSet),
    /// How many, and the first ones.
    SameRows(u64, Vec<u64>),
    /// The winner took deleted rows back.
    Shrinks,
}

/// Rows that a commit deleted of a file that it read with `base` deleted and left with `current`; nothing where it took
/// deleted rows back.
pub fn new_rows(base: &RowSet, current: &RowSet) -> Option<RowSet> {
    base.is_subset(current).then(|| current.difference(base))
}

/// The candidate deleted `own` rows, so far leaving `current` deleted; the winner found `base` and left `won`.
pub fn meet(own: &RowSet, current: &RowSet, base: &RowSet, won: &RowSet) -> Meeting {
    let Some(theirs) = new_rows(base, won) else { return Meeting::Shrinks };
    let common = own.intersection(&theirs);
    if common.is_empty() {
        return Meeting::Apart(current.union(won));
    }
    Meeting::SameRows(common.len(), common.iter().take(SAMPLE_MAX).collect())
}
