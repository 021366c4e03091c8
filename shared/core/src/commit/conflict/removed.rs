//! Winners that removed files which the candidate read or removes too.

use super::moves::Undoing;
use super::{Check, Conflict};
use crate::commit::facts::AtRead;
use crate::commit::read_set::{self, Reads};
use crate::commit::table_facts::FileValues;
use crate::commit::verdict::{Exception, Refusal, clip};
use crate::delta::RemoveFile;
use crate::store::ObjectKey;

impl Check<'_> {
    /// By object alone: another deletion vector of a file that was read is a conflict as well, and so is a file that was
    /// only moved.
    pub(super) fn removed_files(&mut self) -> Result<(), Conflict> {
        let winner = self.winner;
        for (key, remove) in &winner.removes {
            if self.folded.dropped.contains(key) || self.merged.contains(key) {
                continue;
            }
            if self.taken_back.contains(key) {
                continue;
            }
            if self.folded.rows.undone.output(key).is_some() {
                if matches!(self.undo(key, remove), Undoing::Done) {
                    continue;
                }
                let text = format!("version {} took up rows that were moved before: {}", self.version(), remove.path);
                let refusal = self.refusal(Exception::ConcurrentDeleteReadException, "SAME_FILE", text);
                return Err(refusal.file(&remove.path).into());
            }
            if self.only_moved(key, remove) || self.does_not_mind(key, remove) {
                continue;
            }
            if matches!(self.undo(key, remove), Undoing::Done) {
                continue;
            }
            let candidate = self.inputs.candidate;
            // Two rearrangements of one file meet in what they remove, not in what they read.
            let moved_twice = candidate.removed.contains(key) && candidate.is_rearrangement() && !remove.data_change;
            if moved_twice {
                self.removed_twice(key, remove)?;
                continue;
            }
            if let Some(reason) = self.was_read(key, remove) {
                let text = format!("version {} removed a file that this commit read: {}", self.version(), remove.path);
                let refusal = self.refusal(Exception::ConcurrentDeleteReadException, reason, text).file(&remove.path);
                self.drop_bin(key, self.explained(key, refusal))?;
                continue;
            }
            if candidate.removed.contains(key) {
                self.removed_twice(key, remove)?;
            }
        }
        Ok(())
    }

    /// On tables with deletion vectors a reader does not mind where rows lie, unless the winner clusters. From now on the
    /// candidate is a reader of the files that they were moved to.
    fn only_moved(&mut self, key: &ObjectKey, remove: &RemoveFile) -> bool {
        let candidate = self.inputs.candidate;
        let touches = candidate.removed.contains(key) || candidate.added.contains(key);
        let moves = read_set::is_rearrangement(&self.winner.commit.actions);
        if touches || !moves || !self.inputs.table.has_deletion_vectors || self.winner_clusters() {
            return false;
        }
        if self.was_read(key, remove).is_some() {
            let outputs = self.winner.adds.iter().map(|file| file.key.at.clone());
            self.folded.moved.extend(outputs);
        }
        true
    }

    /// Says why rows did not decide where both sides changed them.
    fn explained(&self, key: &ObjectKey, mut refusal: Refusal) -> Refusal {
        let why = self.why_by_file.get(key);
        if why.is_some_and(|why| why.is_over_budget) {
            refusal.reason = "ALLOTTED_TIME_EXCEEDED".to_owned();
        }
        let both_changed = self.pair(key).is_some() && self.winner.replaced(key).is_some();
        if why.is_some() || both_changed {
            let text = why.map(|why| why.text.as_str()).or(self.statement.err());
            let unwritten = "rows that the commit matched and did not write may be among them";
            refusal.more.push(clip(&format!("not judged by rows: {}", text.unwrap_or(unwritten))));
        }
        refusal
    }

    fn removed_twice(&mut self, key: &ObjectKey, remove: &RemoveFile) -> Result<(), Conflict> {
        let text = format!("version {} removed a file that this commit removes too: {}", self.version(), remove.path);
        let refusal = self.refusal(Exception::ConcurrentDeleteDeleteException, "SAME_FILE", text);
        self.drop_bin(key, refusal.file(&remove.path))
    }

    /// Why the candidate may have read rows of the file.
    pub(super) fn was_read(&mut self, key: &ObjectKey, remove: &RemoveFile) -> Option<&'static str> {
        let candidate = self.inputs.candidate;
        // Named, removed, or added once more as it was: the candidate looked at exactly this file.
        if candidate.read_files.contains(key) || candidate.added.contains(key) {
            return Some("SAME_FILE");
        }
        if self.folded.moved.contains(key) {
            return Some("SAME_FILE");
        }
        match &candidate.reads {
            Reads::Nothing => return None,
            _ if self.folded.fresh.contains(key) => return None,
            Reads::WholeTable => return Some("WHOLE_TABLE_READ"),
            Reads::Rules(_) if self.reads.is_whole_table() => return Some("WHOLE_TABLE_READ"),
            Reads::Rules(_) | Reads::Some { .. } => {}
        }
        let told = FileValues { partition_values: remove.partition_values.as_ref(), stats: remove.stats.as_deref() };
        let reason = self.may_have_read(told)?;
        self.at_read(key, reason)
    }

    /// The action that removes a file tells less of its rows than the one that added it.
    fn at_read(&mut self, key: &ObjectKey, reason: &'static str) -> Option<&'static str> {
        let Some(files) = self.inputs.files.filter(|files| files.knows(key)) else {
            self.folded.needs_files.insert(key.clone());
            return None;
        };
        match files.at_read(key) {
            AtRead::Unknown => Some(reason),
            AtRead::Absent => None,
            AtRead::Live(adds) => adds.iter().find_map(|add| {
                let values = FileValues { partition_values: Some(&add.partition_values), stats: add.stats.as_deref() };
                self.may_have_read(values)
            }),
        }
    }
}
