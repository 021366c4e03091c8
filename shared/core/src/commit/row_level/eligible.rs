//! Which statements are judged by rows.

use serde_json::Value;

use crate::commit::candidate::Candidate;
use crate::commit::read_set::{BoundReads, Reads};
use crate::commit::table_facts::TableFacts;
use crate::delta::CommitInfo;

/// The table's property: `partitioned` lets the rules hold for partitioned tables as well, `off` for none.
pub const ROW_LEVEL_PROPERTY: &str = "lakewarden.rowLevelConcurrency";

/// What may be assumed of a statement that is judged by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// It changed every row that it matched, as far as it says, so that disjoint vectors are disjoint statements. Of the
    /// rows that winners took that is asked of the rows themselves.
    pub wrote_what_it_matched: bool,
    /// Rows that it did not match, or matched and left alone, mattered to it as well (MERGE: what is not there is inserted).
    pub minds_losses: bool,
}

/// Whether the rules hold for the candidate, or why not: on tables with deletion vectors, for DELETE, UPDATE, MERGE and
/// what declares that it wrote what it matched, where the condition is understood as a function of the row's own plain
/// columns.
pub fn eligible(candidate: &Candidate, table: TableFacts<'_>, reads: &BoundReads) -> Result<Statement, &'static str> {
    if !table.has_deletion_vectors {
        return Err("the table has no deletion vectors");
    }
    match table.metadata.property(ROW_LEVEL_PROPERTY) {
        Some(value) if value.eq_ignore_ascii_case("off") => return Err("the table has row-level concurrency off"),
        Some(value) if value.eq_ignore_ascii_case("partitioned") => {}
        _ if !table.metadata.partition_columns.is_empty() => return Err("the table is partitioned"),
        _ => {}
    }
    let actions = &candidate.actions;
    if actions.protocol.is_some() || actions.metadata.is_some() {
        return Err("the commit changes the table");
    }
    if candidate.is_rearrangement() {
        return Err("the commit only moves rows");
    }
    match &candidate.reads {
        Reads::Some { predicates, .. } if !predicates.is_empty() && !reads.is_whole_table() => {}
        _ => return Err("the commit read the whole table"),
    }
    if !reads.is_by_row() {
        return Err("the condition is no plain function of the row's own columns");
    }
    let operation = candidate.operation().unwrap_or_default().to_ascii_uppercase();
    let declared = candidate.matched_equals_written;
    let info = actions.commit_info.as_ref();
    match operation.as_str() {
        "DELETE" | "UPDATE" => {
            let wrote_what_it_matched = declared.unwrap_or(true);
            Ok(Statement { wrote_what_it_matched, minds_losses: !wrote_what_it_matched })
        }
        "MERGE" => {
            let wrote_what_it_matched = declared.unwrap_or_else(|| info.is_some_and(writes_all_matches));
            let inserts = info.is_none_or(may_insert);
            Ok(Statement { wrote_what_it_matched, minds_losses: inserts || !wrote_what_it_matched })
        }
        _ if declared == Some(true) && !actions.removes.is_empty() => {
            Ok(Statement { wrote_what_it_matched: true, minds_losses: false })
        }
        _ => Err("the operation is none that is judged by rows"),
    }
}

/// The clauses of a MERGE, as engines record them: a JSON list of objects, as text.
fn clauses(info: &CommitInfo, name: &str) -> Option<Vec<Value>> {
    serde_json::from_str(&info.parameter(name)?).ok()
}

/// Whether some clause takes every matched row.
fn writes_all_matches(info: &CommitInfo) -> bool {
    let takes_all = |clause: &Value| clause.is_object() && clause.get("predicate").is_none_or(Value::is_null);
    clauses(info, "matchedPredicates").is_some_and(|found| found.iter().any(takes_all))
}

/// Whether absence of rows may have led to an insert, or to a change of rows that the source does not have.
fn may_insert(info: &CommitInfo) -> bool {
    ["notMatchedPredicates", "notMatchedBySourcePredicates"]
        .iter()
        .any(|name| clauses(info, name).is_none_or(|found| !found.is_empty()))
}
