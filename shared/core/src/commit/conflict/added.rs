//! Winners that added files which the candidate should have read, or which it adds too.

use super::rows::Ready;
use super::winner::Added;
use super::{Check, Conflict};
use crate::commit::isolation::Isolation;
use crate::commit::row_level::Match;
use crate::commit::table_facts::FileValues;
use crate::commit::verdict::Exception;

impl Check<'_> {
    /// Files with new rows count, unless partition values or statistics say that none of them was read, also on tables
    /// without partitions. Rearranged rows and other deletion vectors of a file bring nothing that was not there: whether
    /// those were read is asked of what was removed.
    ///
    /// Where rows have to be looked at first, the next look decides, so that what comes after does not refuse before.
    pub(super) fn added_files(&mut self) -> Result<Ready, Conflict> {
        if !self.looks_at_added() {
            return Ok(Ready::Yes);
        }
        let known = self.folded.rows.needs.files.len();
        let winner = self.winner;
        for file in winner.adds.iter().filter(|file| winner.brings_rows(file)) {
            let values =
                FileValues { partition_values: Some(&file.add.partition_values), stats: file.add.stats.as_deref() };
            let Some(reason) = self.may_have_read(values) else { continue };
            let text = format!("version {} added a file that this commit should have read", self.version());
            let (reason, text) = match self.row_that_was_read(file) {
                Some(Match::No) => continue,
                Some(Match::Row(row, values)) => {
                    (reason, format!("{text}: its row {row} ({values}) may be one of those"))
                }
                Some(Match::TooMuch(why)) => ("ALLOTTED_TIME_EXCEEDED", format!("{text}, unless it was read: {why}")),
                Some(Match::Unknown(why)) => (reason, format!("{text}; its rows cannot be told: {why}")),
                None => (reason, text),
            };
            let refusal = self.refusal(Exception::ConcurrentAppendException, reason, text);
            return Err(refusal.file(&file.add.path).into());
        }
        Ok(if self.folded.rows.needs.files.len() > known { Ready::NotYet } else { Ready::Yes })
    }

    /// For a candidate that is judged by rows, a file that only its statistics say may have been read is looked into. Nothing
    /// where files are judged as a whole; until it was looked into it counts as harmless.
    fn row_that_was_read(&mut self, file: &Added<'_>) -> Option<Match> {
        self.statement.ok()?;
        match self.row_facts().and_then(|facts| facts.matches.get(&file.key.at)) {
            Some(found) => Some(found.clone()),
            None => {
                self.folded.rows.needs.files.insert(file.key.at.clone(), file.add.clone());
                Some(Match::No)
            }
        }
    }

    /// Under WriteSerializable the candidate may be ordered before a blind append, unless it changes the metadata.
    fn looks_at_added(&self) -> bool {
        let candidate = self.inputs.candidate;
        let comes_before_appends =
            self.inputs.isolation == Isolation::WriteSerializable && candidate.actions.metadata.is_none();
        if self.inputs.isolation == Isolation::Snapshot || candidate.is_blind() || self.is_about_row_ids() {
            return false;
        }
        !(comes_before_appends && self.winner.is_blind)
    }

    /// One file cannot be added twice. A file whose old entry the candidate removes it does not add, it replaces; and what
    /// a backfill numbered is taken over.
    pub(super) fn added_twice(&self) -> Result<(), Conflict> {
        let candidate = self.inputs.candidate;
        let twice = self.winner.adds.iter().find(|file| {
            candidate.added.contains(&file.key.at)
                && !candidate.removed.contains(&file.key.at)
                && !self.folded.dropped.contains(&file.key.at)
                && !self.folded.backfilled.contains_key(&file.key.at)
        });
        match twice {
            None => Ok(()),
            Some(file) => {
                let text = format!("version {} added the same file", self.version());
                let refusal = self
                    .refusal(Exception::ConcurrentWriteException, "FILE_ALREADY_ADDED", text)
                    .class("DELTA_DUPLICATE_ACTIONS_FOUND")
                    .file(&file.add.path);
                Err(refusal.into())
            }
        }
    }
}
