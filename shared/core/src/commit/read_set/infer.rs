//! What an operation read, from the parameters that engines record of it.
//!
//! | operation | `predicate` | read |
//! |---|---|---|
//! | DELETE, UPDATE | text, or a JSON list of texts | the rows that satisfy one of them; all without one |
//! | WRITE in another mode than append | text | the rows that satisfy it; all without one |
//! | MERGE | text beside `mergePredicate` | the rows that satisfy it, unless there are clauses for what the source lacks |
//! | without files: an append, [`READ_NO_ROWS`] | | nothing, unless the metaData has rules for rows that the table does not have |
//! | anything else, with files or without | | the whole table |
//!
//! A statement about the table that adds a rule (a constraint, an invariant, a generated column, NOT NULL) read the rows that
//! must satisfy it. Its metaData has all rules, whatever it changes: only beside the table's can it be told ([`RowRules`]).
//!
//! Of a MERGE only a `predicate` that names no table counts: in one that does, or that has Spark's attribute ids, a column
//! may be the source's.

use super::predicate::{Origin, Predicate, ReadPredicate};
use super::{Reads, RowRules, spark, text as sql};
use crate::delta::{Actions, CommitInfo};

/// Longer predicates are unknown.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// Statements that say nothing of rows, and work that found nothing to do. Where they have files they count as unknown.
pub const READ_NO_ROWS: [&str; 23] = [
    "ADD COLUMN",
    "ADD COLUMNS",
    "ADD FEATURE",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "CLUSTER BY",
    "COMPUTE STATS",
    "DROP COLUMNS",
    "DROP CONSTRAINT",
    "OPTIMIZE",
    "RENAME COLUMN",
    "REORG",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPDATE COLUMN METADATA",
    "UPDATE FIELD METADATA",
    "UPDATE SCHEMA",
    "UPDATE TABLE METADATA",
    "UPGRADE PROTOCOL",
    "ROW TRACKING BACKFILL",
    "ROW TRACKING UNBACKFILL",
    "VACUUM END",
    "VACUUM START",
];

/// What a commit without a declaration read that is neither a blind append nor a rearrangement.
pub fn reads_of(actions: &Actions) -> Reads {
    let Some(info) = &actions.commit_info else { return Reads::WholeTable };
    match info.text("operation") {
        Some("DELETE" | "UPDATE") => alternatives(info),
        Some("WRITE") if replaces_rows(info) => alternatives(info),
        Some("MERGE") => merge(info).map_or(Reads::WholeTable, |predicate| rows(vec![predicate])),
        Some(operation) if reads_no_rows(operation, info, actions) => match &actions.metadata {
            None => rows(Vec::new()),
            Some(metadata) => RowRules::parse(metadata).map_or(Reads::WholeTable, Reads::Rules),
        },
        _ => Reads::WholeTable,
    }
}

fn reads_no_rows(operation: &str, info: &CommitInfo, actions: &Actions) -> bool {
    if !(actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty()) {
        return false;
    }
    let is_append = |mode: &str| info.parameter(mode).is_none_or(|mode| mode.eq_ignore_ascii_case("append"));
    match operation {
        "WRITE" => info.parameter("mode").is_some() && is_append("mode") && info.parameter("predicate").is_none(),
        "STREAMING UPDATE" => is_append("outputMode"),
        _ => READ_NO_ROWS.contains(&operation),
    }
}

/// An append has no predicate of its own: if it read the table, nobody tells what.
fn replaces_rows(info: &CommitInfo) -> bool {
    let is_append = info.parameter("mode").is_none_or(|mode| mode.eq_ignore_ascii_case("append"));
    !is_append && info.parameter("predicate").is_some()
}

fn rows(predicates: Vec<ReadPredicate>) -> Reads {
    Reads::Some { predicates, files: Vec::new() }
}

/// Whether several texts of a list hold together or one by one, engines do not tell; so each counts.
fn alternatives(info: &CommitInfo) -> Reads {
    let Some(text) = info.parameter("predicate") else { return Reads::WholeTable };
    let one = |predicate| rows(vec![ReadPredicate { predicate, origin: Origin::Sql }]);
    if text.len() > TEXT_MAX_BYTES {
        return one(Predicate::Unknown);
    }
    match serde_json::from_str::<Vec<String>>(&text) {
        Ok(texts) if texts.is_empty() => one(Predicate::Always),
        Ok(texts) => rows(texts.iter().map(|text| parse(text, info)).collect()),
        Err(_) if text.trim().is_empty() => one(Predicate::Always),
        Err(_) => rows(vec![parse(&text, info)]),
    }
}

/// One text of some engine.
fn parse(text: &str, info: &CommitInfo) -> ReadPredicate {
    if spark::has_attribute_ids(text) {
        return ReadPredicate { predicate: spark::parse(text), origin: Origin::UnquotedSql };
    }
    let engine = info.text("engineInfo").unwrap_or_default().to_ascii_lowercase();
    let dialect = match engine {
        engine if engine.starts_with("delta-rs") => sql::Dialect::DataFusion,
        engine if engine.contains("spark") || engine.starts_with("sail") || engine.starts_with("databricks") => {
            sql::Dialect::Spark
        }
        _ => sql::Dialect::Unknown,
    };
    let origin = if dialect == sql::Dialect::DataFusion { Origin::Sql } else { Origin::UnquotedSql };
    ReadPredicate { predicate: sql::parse(text, dialect), origin }
}

/// Whether a MERGE may change rows that its source does not have: what it says of the rows that it looked up is then not
/// all that it read.
pub fn changes_what_the_source_lacks(actions: &Actions) -> bool {
    let clauses = actions.commit_info.as_ref().filter(|info| info.text("operation") == Some("MERGE"));
    let clauses = clauses.and_then(|info| info.parameter("notMatchedBySourcePredicates"));
    clauses.is_some_and(|clauses| !matches!(clauses.trim(), "" | "[]"))
}

/// The condition on the target alone, where the engine wrote one out.
fn merge(info: &CommitInfo) -> Option<ReadPredicate> {
    info.parameter("mergePredicate")?;
    let clauses = info.parameter("notMatchedBySourcePredicates")?;
    let text = info.parameter("predicate").filter(|text| text.len() <= TEXT_MAX_BYTES)?;
    if clauses.trim() != "[]" || spark::has_attribute_ids(&text) {
        return None;
    }
    let parsed = parse(&text, info);
    (!names_a_table(&parsed.predicate)).then_some(parsed)
}

fn names_a_table(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Always | Predicate::Unknown => false,
        Predicate::And(parts) | Predicate::Or(parts) => parts.iter().any(names_a_table),
        Predicate::Not(part) => names_a_table(part),
        Predicate::Compare(_, column, _) | Predicate::In(column, _) | Predicate::IsNull(column) => {
            column.may_be_qualified && column.path.len() > 1
        }
    }
}
