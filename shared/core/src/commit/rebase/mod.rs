//! What a commit has to change when its version moves, and the bytes with these changes (the protocol's rules for row
//! tracking, in-commit timestamps and metadata domains).
//!
//! [`plan`] decides from the commit, what won, and the state that the commit is added to; [`render`] edits lines: every
//! line that is not edited keeps each byte, every edited one keeps the spelling and the order of what is not changed.

mod plan;
mod render;
#[cfg(test)]
mod render_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use plan::{Plan, high_water_mark, numbers_rows, plan};
pub use render::render;

use serde_json::Value;

use crate::delta::Version;

/// A member of an action: its name, and what it says from now on.
pub type Member = (Cow<'static, str>, Value);

/// Changes that follow from what won since the commit was read. Lines are named by their place among the commit's actions
/// of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebase {
    pub adds: BTreeMap<usize, FileEdit>,
    pub removes: BTreeMap<usize, FileEdit>,
    /// Members of file actions that were merged with those of winners.
    pub changed_adds: BTreeMap<usize, Vec<Member>>,
    pub changed_removes: BTreeMap<usize, Vec<Member>>,
    /// New `configuration` of metadata domains.
    pub domains: BTreeMap<usize, String>,
    /// Members of `commitInfo.tags`; without a `commitInfo` nothing is said.
    pub tags: BTreeMap<String, String>,
    /// The commit's own metaData switches in-commit timestamps on, as this version: two properties say since when.
    pub timestamps_start_at: Option<Version>,
    /// Whole lines, without line ends, that come last.
    pub appended: Vec<String>,
}

/// A change of one file action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEdit {
    Drop,
    Set(RowIds),
}

/// Members of row tracking; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowIds {
    pub base_row_id: Option<i64>,
    pub default_row_commit_version: Option<i64>,
}

impl Rebase {
    /// Whether the commit is published as it was staged, but for a timestamp.
    pub fn is_empty(&self) -> bool {
        *self == Rebase::default()
    }
}
