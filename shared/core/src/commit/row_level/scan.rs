//! Whether a row that a winner brought or took away satisfies what the candidate read, where statistics cannot tell.

use std::collections::BTreeMap;

use super::facts::{Loss, LossKey, Match};
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
        let answer = find_row(ctx, &budget, question, &|_| false).await?;
        found.insert(key.clone(), answer.into());
    }
    Ok(found)
}

/// The answer for each loss. Files never change, so that what several winners took of one is looked for in one reading of
/// it; only where there is such a row, each loss is looked at by itself.
pub(super) async fn losses(
    ctx: Context<'_>,
    table: TableFacts<'_>,
    candidate: &Candidate,
    losses: &BTreeMap<LossKey, Loss>,
) -> Result<BTreeMap<LossKey, Match>, CommitError> {
    let reads = candidate.reads.bind(table);
    let budget = Budget::default();
    let mut by_file: BTreeMap<&ObjectKey, Vec<(&LossKey, &Loss)>> = BTreeMap::new();
    for (at, loss) in losses {
        by_file.entry(&at.0).or_default().push((at, loss));
    }
    let mut found = BTreeMap::new();
    for (key, of_file) in by_file {
        let Some((_, first)) = of_file.first() else { continue };
        let question = RowQuestion { table, reads: &reads, add: &first.add, key };
        let rows = of_file.iter().skip(1).fold(first.rows.clone(), |all, (_, loss)| all.union(&loss.rows));
        let all: Match = find_row(ctx, &budget, question, &|row| !rows.contains(row)).await?.into();
        if of_file.len() == 1 || !matches!(all, Match::Row(..)) {
            found.extend(of_file.iter().map(|(at, _)| ((*at).clone(), all.clone())));
            continue;
        }
        for (at, loss) in of_file {
            let answer = find_row(ctx, &budget, question, &|row| !loss.rows.contains(row)).await?;
            found.insert(at.clone(), answer.into());
        }
    }
    Ok(found)
}

impl From<FoundRow> for Match {
    fn from(found: FoundRow) -> Match {
        match found {
            FoundRow::None => Match::No,
            FoundRow::Some { row, values } => Match::Row(row, values),
            FoundRow::OverBudget(text) => Match::TooMuch(text),
            FoundRow::Unknown(text) => Match::Unknown(text),
        }
    }
}
