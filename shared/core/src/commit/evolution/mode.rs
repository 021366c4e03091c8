//! How a commit means to change the schema, by what it says and does.

use crate::commit::candidate::Candidate;

/// What kind of schema change a commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A write that brings its new columns along (`mergeSchema`), also one that replaces a part (`replaceWhere`).
    Merge,
    /// A write of the whole table anew (`overwriteSchema`, `CREATE OR REPLACE`); that it removes every live file is the
    /// judge's to check.
    Replace,
    /// A statement about the schema, without data.
    Alter {
        /// It says where a column goes.
        is_positioned: bool,
    },
}

/// By the operation; a commit without files can only be a statement about the table.
pub fn mode_of(candidate: &Candidate) -> Mode {
    let actions = &candidate.actions;
    let operation = candidate.operation().unwrap_or_default().to_ascii_uppercase();
    let info = actions.commit_info.as_ref();
    let parameter = |name: &str| info.and_then(|info| info.parameter(name));
    if operation.contains("REPLACE TABLE") {
        return Mode::Replace;
    }
    let overwrites =
        operation == "WRITE" && parameter("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("overwrite"));
    if overwrites && !replaces_part(candidate) {
        return Mode::Replace;
    }
    if actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty() {
        let says_place = ["columns", "column", "position"].iter().filter_map(|name| parameter(name));
        let is_positioned =
            parameter("position").is_some() || says_place.into_iter().any(|text| text.contains("\"position\""));
        return Mode::Alter { is_positioned };
    }
    Mode::Merge
}

/// Whether an overwrite names the part that it replaces.
pub fn replaces_part(candidate: &Candidate) -> bool {
    let info = candidate.actions.commit_info.as_ref();
    let parameter = |name: &str| info.and_then(|info| info.parameter(name));
    let is_said = |text: &String| !matches!(text.trim(), "" | "[]" | "true" | "TRUE");
    let by_partition = parameter("partitionOverwriteMode").is_some_and(|mode| mode.eq_ignore_ascii_case("dynamic"))
        || parameter("isDynamicPartitionOverwrite").is_some_and(|text| text == "true");
    parameter("predicate").as_ref().is_some_and(is_said)
        || parameter("replaceWhere").as_ref().is_some_and(is_said)
        || by_partition
}
