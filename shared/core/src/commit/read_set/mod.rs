//! What a commit read: declared as `commitInfo.readSet`, or inferred from what its operation says; and which files it may
//! have read rows of.
//!
//! Inference only ever widens. `declared` and `infer` give predicates, `bind` finds their columns in a table, and
//! `domain` is what the action of a file says of a column. A file is excluded if no outcome of the predicate for its
//! rows can be TRUE.

mod bind;
mod declared;
mod domain;
mod infer;
mod predicate;
mod rules;
mod spark;
mod text;

#[cfg(test)]
mod tests;

pub use bind::{ReadColumn, physical_name};
pub use declared::{DeclaredFile, DeclaredReadSet, declared};
pub use domain::{Domain, Stats, bound};
pub use predicate::{Column, Literal, Origin, Predicate, ReadPredicate, Zone};
pub use rules::RowRules;

use super::table_facts::{FileValues, TableFacts};
use crate::delta::Actions;

/// What a commit read of its table, as far as we know; never less than it did.
#[derive(Clone, Debug, PartialEq)]
pub enum Reads {
    /// A blind append.
    Nothing,
    WholeTable,
    /// A statement about the table: every row if the rules that its metaData has for rows go beyond those of the table, else
    /// none.
    Rules(RowRules),
    /// The rows that satisfy one of the predicates, and these files (paths as in the log).
    Some {
        predicates: Vec<ReadPredicate>,
        files: Vec<DeclaredFile>,
    },
}

impl Reads {
    /// Why a file may hold rows that were read, as a reason code; none: it surely holds none. Files that were read by
    /// name are not looked at.
    pub fn touches(&self, table: TableFacts<'_>, file: FileValues<'_>) -> Option<&'static str> {
        self.bind(table).touches(file)
    }

    /// [`Reads::touches`] for many files of one table.
    pub fn bind(&self, table: TableFacts<'_>) -> BoundReads {
        let mut columns = Vec::new();
        let predicates = match self {
            Reads::Nothing | Reads::WholeTable | Reads::Rules(_) => Vec::new(),
            Reads::Some { predicates, .. } => {
                predicates.iter().map(|predicate| bind::bind(predicate, table, &mut columns)).collect()
            }
        };
        let whole_table = match self {
            Reads::WholeTable => true,
            Reads::Rules(rules) => rules.go_beyond(&RowRules::of(table.metadata, table.schema)),
            Reads::Nothing | Reads::Some { .. } => false,
        };
        BoundReads { whole_table, predicates, columns }
    }
}

/// What was read of a table, ready to be asked about its files.
#[derive(Debug)]
pub struct BoundReads {
    whole_table: bool,
    predicates: Vec<bind::Bound>,
    columns: Vec<ReadColumn>,
}

impl BoundReads {
    /// See [`Reads::touches`].
    pub fn touches(&self, file: FileValues<'_>) -> Option<&'static str> {
        if self.whole_table {
            return Some("WHOLE_TABLE_READ");
        }
        let found = self.predicates.iter().find(|predicate| predicate.outcomes(file).truth)?;
        Some(match found {
            predicate if predicate.is_always => "EMPTY_READ_PREDICATES",
            predicate if predicate.has_partition_column => "WITH_PARTITION_HINT",
            predicate if predicate.has_column => "WITHOUT_HINT",
            _ => "PREDICATES_NEED_REWRITE",
        })
    }

    /// Whether rows can be asked one by one whether they were read: every predicate is understood in all its parts and
    /// looks at plain columns of the row alone.
    pub fn is_by_row(&self) -> bool {
        !self.whole_table && self.predicates.iter().all(bind::Bound::is_by_row)
    }

    /// The columns that rows must be looked at for; their order is that of the slots of a row.
    pub fn columns(&self) -> &[ReadColumn] {
        &self.columns
    }

    /// Whether one of some rows may have been read: each column has one of the values in its slot. Of a single row
    /// ([`Domain::of_row`]) it is so exactly if the predicate is true of it, as far as predicate and row are understood.
    pub fn may_match(&self, slots: &[Domain]) -> bool {
        self.whole_table || self.predicates.iter().any(|predicate| predicate.outcomes_within(slots).truth)
    }

    /// Whether every file counts as read, whatever its values are.
    pub fn is_whole_table(&self) -> bool {
        self.whole_table
            || self
                .predicates
                .iter()
                .any(|predicate| !predicate.has_column && predicate.outcomes(FileValues::default()).truth)
    }
}

/// Whether the actions are those of a commit that read nothing: the flag counts only where the actions agree.
pub fn is_blind_append(actions: &Actions, declared: Option<&DeclaredReadSet>) -> bool {
    let only_adds = !actions.adds.is_empty()
        && actions.removes.is_empty()
        && actions.cdc.is_empty()
        && actions.adds.iter().all(|add| add.data_change);
    if !only_adds {
        return false;
    }
    if let Some(set) = declared {
        return !set.whole_table && set.predicates.is_empty() && set.files.is_empty();
    }
    let Some(info) = &actions.commit_info else { return false };
    if let Some(flag) = info.flag("isBlindAppend") {
        return flag;
    }
    let appends = match info.text("operation") {
        Some("WRITE") => info.parameter("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("append")),
        Some("STREAMING UPDATE") => info.parameter("outputMode").is_none_or(|mode| mode.eq_ignore_ascii_case("append")),
        _ => false,
    };
    appends && info.parameter("predicate").is_none()
}

/// Whether no file action changes data: compaction and the like read only what they rewrite.
pub fn is_rearrangement(actions: &Actions) -> bool {
    let has_files = !(actions.adds.is_empty() && actions.removes.is_empty());
    has_files
        && actions.cdc.is_empty()
        && actions.adds.iter().all(|add| !add.data_change)
        && actions.removes.iter().all(|remove| !remove.data_change)
}

/// What the commit read. What it removes counts as read beside that.
pub fn reads_of(actions: &Actions, declared: Option<&DeclaredReadSet>) -> Reads {
    if is_blind_append(actions, declared) {
        return Reads::Nothing;
    }
    match declared {
        Some(set) if set.whole_table || infer::changes_what_the_source_lacks(actions) => Reads::WholeTable,
        Some(set) => Reads::Some { predicates: set.predicates.clone(), files: set.files.clone() },
        None if is_rearrangement(actions) => Reads::Some { predicates: Vec::new(), files: Vec::new() },
        None => infer::reads_of(actions),
    }
}
