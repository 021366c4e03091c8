//! Winners and candidates that give files row ids, or take them away, without touching a row.

use serde_json::Value;

use super::{Check, Conflict};
use crate::commit::rebase::RowIds;
use crate::commit::verdict::Exception;
use crate::delta::Actions;
use crate::delta::json::{JsonError, only_member, set_path};
use crate::delta::snapshot::LoggedCommit;

#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Backfill,
    Unbackfill,
    SomethingElse,
}

fn about(operation: Option<&str>) -> About {
    match operation.map(str::to_ascii_uppercase).as_deref() {
        Some("ROW TRACKING BACKFILL") => About::Backfill,
        Some("ROW TRACKING UNBACKFILL") => About::Unbackfill,
        _ => About::SomethingElse,
    }
}

/// Names alone are not believed: a commit that touches data is none of these.
fn about_by_actions(actions: &Actions) -> About {
    if actions.removes.is_empty() && actions.cdc.is_empty() && actions.adds.iter().all(|add| !add.data_change) {
        about(actions.operation())
    } else {
        About::SomethingElse
    }
}

impl Check<'_> {
    /// Whether one side only changes row ids.
    pub(super) fn is_about_row_ids(&self) -> bool {
        self.candidate_is() != About::SomethingElse || self.winner_is() != About::SomethingElse
    }

    fn candidate_is(&self) -> About {
        about_by_actions(&self.inputs.candidate.actions)
    }

    fn winner_is(&self) -> About {
        about_by_actions(&self.winner.commit.actions)
    }

    /// Ids that a winning backfill gave are taken over; a candidate that (un)backfills leaves alone what a winner touched,
    /// and an unbackfill strips what winners numbered.
    pub(super) fn backfills(&mut self) -> Result<(), Conflict> {
        match (self.candidate_is(), self.winner_is()) {
            (About::Unbackfill, About::Backfill) => {
                let text = format!("version {} numbers the rows whose ids this commit takes away", self.version());
                return self.refuse(Exception::ConcurrentWriteException, "ROW_TRACKING_BACKFILL", text);
            }
            (About::SomethingElse, About::Backfill) => self.take_ids(),
            (About::SomethingElse, _) => {}
            (About::Backfill, _) => self.drop_touched(),
            (About::Unbackfill, _) => {
                self.drop_touched();
                self.strip_ids().map_err(|error| self.unreadable(&error))?;
            }
        }
        Ok(())
    }

    fn unreadable(&self, error: &JsonError) -> Conflict {
        let text = format!("version {} cannot be read again: {error}", self.version());
        self.refusal(Exception::DamagedLogException, "UNREADABLE_LOG", text).into()
    }

    fn take_ids(&mut self) {
        let candidate = self.inputs.candidate;
        for file in &self.winner.adds {
            if candidate.added.contains(&file.key.at) || candidate.removed.contains(&file.key.at) {
                let ids = RowIds {
                    base_row_id: file.add.base_row_id,
                    default_row_commit_version: file.add.default_row_commit_version,
                };
                self.folded.backfilled.insert(file.key.at.clone(), ids);
            }
        }
    }

    fn drop_touched(&mut self) {
        let touched = self.winner.adds.iter().map(|file| &file.key.at).chain(self.winner.removes.keys());
        for key in touched.filter(|key| self.inputs.candidate.added.contains(*key)) {
            self.folded.dropped.insert(key.clone());
        }
    }

    fn strip_ids(&mut self) -> Result<(), JsonError> {
        let commit = self.winner.commit;
        for key in self.winner.removes.keys() {
            self.folded.stripped.retain(|file, _| file.at != *key);
        }
        let lines = lines_of_adds(commit);
        for file in self.winner.adds.iter().filter(|file| file.add.base_row_id.is_some()) {
            let Some(line) = lines.get(file.index) else { continue };
            let line = set_path(line, &["add", "baseRowId"], &Value::Null)?;
            let line = set_path(&line, &["add", "defaultRowCommitVersion"], &Value::Null)?;
            let line = set_path(&line, &["add", "dataChange"], &Value::Bool(false))?;
            self.folded.stripped.insert(file.key.clone(), line);
        }
        Ok(())
    }
}

/// The add lines of a commit, in their order.
fn lines_of_adds(commit: &LoggedCommit) -> Vec<&str> {
    let text = std::str::from_utf8(&commit.bytes).unwrap_or_default();
    text.lines().filter(|line| only_member(line).as_deref() == Some("add")).collect()
}
