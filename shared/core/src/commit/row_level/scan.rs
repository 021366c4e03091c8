//! Whether a row of a winner's file satisfies what the candidate read, where statistics cannot tell.

use std::collections::BTreeMap;

use super::facts::Match;
use crate::commit::candidate::Candidate;
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::files::{Budget, FoundRow, RowQuestion, find_row};
use crate::commit::table_facts::TableFacts;
use crate::delta::AddFile;
use crate::store::ObjectKey;

/// The answer for each file: its footer is read, and the columns of the condition.
pub(super) async fn matches(
    ctx: Context<'_>,
    table: TableFacts<'_>,
    candidate: &Candidate,
    files: &BTreeMap<ObjectKey, AddFile>,
) -> Result<BTreeMap<ObjectKey, Match>, CommitError> {
    let reads = candidate.reads.bind(table);
    let budget = Budget::default();
    let mut found = BTreeMap::new();
    for (key, add) in files {
        let question = RowQuestion { table, reads: &reads, add, key };
        // Rows that the file came without are taken to be there: that can only refuse more.
        let answer = match find_row(ctx, &budget, question, &|_| false).await? {
            FoundRow::None => Match::No,
            FoundRow::Some { row, values } => Match::Row(row, values),
            FoundRow::OverBudget(text) => Match::TooMuch(text),
            FoundRow::Unknown(text) => Match::Unknown(text),
        };
        found.insert(key.clone(), answer);
    }
    Ok(found)
}
