//! Winners that deleted rows of files which the candidate deletes rows of, or merely looked at.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::moves::Inputs;
use super::winner::Added;
use super::{Check, Conflict};
use crate::commit::candidate::Candidate;
use crate::commit::facts::AtRead;
use crate::commit::row_level::edits::{Deleted, Merge};
use crate::commit::row_level::merge::{Meeting, SAMPLE_MAX, SameRows, meet, new_rows};
use crate::commit::row_level::{Loss, Lost, Match, RowFacts, vector_key};
use crate::commit::table_facts::FileValues;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::deletion_vector::{RowSet, VectorError};
use crate::delta::{AddFile, DeletionVector, RemoveFile};
use crate::store::ObjectKey;

/// A vector, as far as it was read.
pub(super) enum Rows<'a> {
    Known(Cow<'a, RowSet>),
    /// It was asked for.
    NotLoaded,
    Unreadable(&'a VectorError),
}

/// Whether a winner's files can be checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Yes,
    /// Vectors are missing; the next look decides.
    NotYet,
}

/// What becomes of one file that both sides changed.
enum Met {
    Apart(RowSet),
    /// Unless the candidate read what the winner deleted: the next look decides.
    PerhapsApart(RowSet),
    SameRows(SameRows),
    NotYet,
    /// File-level rules decide; and why rows cannot.
    ByFile(ByFile),
}

/// Why rows do not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByFile {
    pub text: String,
    /// They could, if so much were read.
    pub is_over_budget: bool,
}

impl From<String> for ByFile {
    fn from(text: String) -> Self {
        ByFile { text, is_over_budget: false }
    }
}

/// Whether the candidate read rows that a winner took away.
enum Unread {
    Yes,
    /// It was asked for.
    NotLoaded,
    No(ByFile),
}

fn id_of(vector: &Option<DeletionVector>) -> Option<String> {
    vector.as_ref().map(DeletionVector::id)
}

impl<'a> Check<'a> {
    pub(super) fn row_facts(&self) -> Option<&'a RowFacts> {
        self.inputs.rows
    }

    /// The candidate's actions that give the file another vector.
    pub(super) fn pair(&self, key: &ObjectKey) -> Option<(&'a RemoveFile, &'a AddFile)> {
        let (removed, added) = *self.pairs.get(key)?;
        let actions = &self.inputs.candidate.actions;
        Some((actions.removes.get(removed)?, actions.adds.get(added)?))
    }

    pub(super) fn rows_of(&mut self, vector: &Option<DeletionVector>) -> Rows<'a> {
        let Some(vector) = vector else { return Rows::Known(Cow::Owned(RowSet::new())) };
        let key = vector_key(vector);
        match self.row_facts().and_then(|facts| facts.vectors.get(&key)) {
            Some(Ok(rows)) => Rows::Known(Cow::Borrowed(rows)),
            Some(Err(error)) => Rows::Unreadable(error),
            None => {
                self.folded.rows.needs.vectors.insert(key, vector.clone());
                Rows::NotLoaded
            }
        }
    }

    /// Merges what the winner deleted into the files that the candidate deletes rows of.
    pub(super) fn merge_rows(&mut self) -> Result<Ready, Conflict> {
        let winner = self.winner;
        self.take_refreshed();
        let Ok(statement) = self.statement else { return Ok(Ready::Yes) };
        if !statement.wrote_what_it_matched {
            return Ok(Ready::Yes);
        }
        let (mut ready, mut same) = (Ready::Yes, Vec::new());
        for (key, remove) in &winner.removes {
            let Some((own_remove, own_add)) = self.pair(key) else { continue };
            let Some(added) = winner.replaced(key) else { continue };
            match self.meet(key, (own_remove, own_add), (*remove, added))? {
                Met::Apart(rows) => self.take(key, added, Deleted::Rows(rows)),
                Met::PerhapsApart(rows) => {
                    ready = Ready::NotYet;
                    self.take(key, added, Deleted::Rows(rows));
                }
                Met::NotYet => {
                    ready = Ready::NotYet;
                    self.take(key, added, Deleted::NotLoaded);
                }
                Met::SameRows(rows) => same.push(rows),
                Met::ByFile(why) => {
                    self.why_by_file.insert(key.clone(), why);
                }
            }
        }
        match same.first() {
            None => Ok(ready),
            Some(_) => Err(self.same_rows(same).into()),
        }
    }

    /// The file is live as the winner left it.
    fn take(&mut self, key: &ObjectKey, added: &Added<'_>, deleted: Deleted) {
        let line = self.winner.line(added);
        self.folded.rows.merges.insert(key.clone(), Merge { add: added.add.clone(), line, deleted });
        self.merged.insert(key.clone());
    }

    fn meet(
        &mut self,
        key: &ObjectKey,
        (own_remove, own_add): (&RemoveFile, &AddFile),
        (remove, added): (&RemoveFile, &Added<'_>),
    ) -> Result<Met, Conflict> {
        let (live, so_far) = match self.folded.rows.merges.get(key) {
            Some(merge) => (merge.add.deletion_vector.clone(), Some(merge.deleted.clone())),
            None => (own_remove.deletion_vector.clone(), None),
        };
        if id_of(&live) != id_of(&remove.deletion_vector) {
            return Ok(by_file("the winner found the file under another deletion vector"));
        }
        let vectors = [
            self.rows_of(&own_remove.deletion_vector),
            self.rows_of(&own_add.deletion_vector),
            self.rows_of(&remove.deletion_vector),
            self.rows_of(&added.add.deletion_vector),
        ];
        let [Rows::Known(base), Rows::Known(current), Rows::Known(found), Rows::Known(won)] = vectors else {
            for (at, vector) in vectors.iter().enumerate() {
                match vector {
                    Rows::Unreadable(error) if at == 1 => return Err(unreadable(error, own_add).into()),
                    Rows::Unreadable(error) => {
                        let text = format!("a deletion vector of {} cannot be read: {error}", added.add.path);
                        return Ok(by_file(&text));
                    }
                    _ => {}
                }
            }
            return Ok(Met::NotYet);
        };
        let Some(own) = new_rows(&base, &current) else {
            return Ok(by_file("the commit takes deleted rows back"));
        };
        let so_far = match so_far {
            Some(Deleted::Rows(rows)) => rows,
            Some(Deleted::NotLoaded) => return Ok(Met::NotYet),
            Some(Deleted::AsProposed) | None => current.into_owned(),
        };
        let merged = match meet(&own, &so_far, &found, &won) {
            Meeting::Apart(rows) => rows,
            Meeting::SameRows(count, sample) => {
                return Ok(Met::SameRows(SameRows { file: added.add.path.clone(), count, sample }));
            }
            Meeting::Shrinks => return Ok(by_file("the winner took deleted rows back")),
        };
        let state = vector_states(remove, Some(added.add));
        Ok(match self.is_unread(key, added.add, state, Lost::These(won.difference(&found))) {
            Unread::Yes => Met::Apart(merged),
            Unread::NotLoaded => Met::PerhapsApart(merged),
            Unread::No(why) => Met::ByFile(why),
        })
    }

    /// Whether none of the rows that the winner took away satisfies what the candidate read. Whatever a writer says of
    /// itself, that is asked of the rows: one that it read and did not write makes what it wrote out of date. Bounds beside a
    /// vector need not hold for rows that are deleted by now. `state` tells losses of one file apart.
    fn is_unread(&mut self, key: &ObjectKey, add: &AddFile, state: String, rows: Lost) -> Unread {
        let at = (key.clone(), state);
        let Some(found) = self.row_facts().and_then(|facts| facts.losses.get(&at)) else {
            self.folded.rows.needs.losses.insert(at, Loss { add: add.clone(), rows });
            return Unread::NotLoaded;
        };
        let (path, version) = (&add.path, self.version());
        let text = match found {
            Match::No => return Unread::Yes,
            Match::Row(row, values) => {
                format!("version {version} took row {row} ({values}) of {path}, which this commit may have read")
            }
            Match::TooMuch(why) => {
                format!("version {version} took rows of {path}, which this commit may have read: {why}")
            }
            Match::Unknown(why) => {
                format!("the rows that version {version} took of {path} cannot be told: {why}")
            }
        };
        Unread::No(ByFile { text, is_over_budget: matches!(found, Match::TooMuch(_)) })
    }

    /// Where the winner brought new images of the rows, the candidate should have read those; else the rows are gone.
    fn same_rows(&self, same: Vec<SameRows>) -> Refusal {
        let count: u64 = same.iter().map(|rows| rows.count).sum();
        let brings_images = self.winner.adds.iter().any(|file| self.winner.brings_rows(file));
        let exception =
            if brings_images { Exception::ConcurrentAppendException } else { Exception::ConcurrentDeleteReadException };
        let rows = if count == 1 { "row" } else { "rows" };
        let text = format!("version {} changed {count} {rows} that this commit changes too", self.version());
        let mut refusal = self.refusal(exception, "ROW_LEVEL_CHANGES", text);
        if let Some(first) = same.first() {
            refusal = refusal.file(&first.file);
        }
        refusal.same_rows = same.into_iter().take(SAMPLE_MAX).collect();
        refusal
    }

    /// A file that is added once more as it was has other statistics or tags: the candidate's entry takes them over.
    fn take_refreshed(&mut self) {
        let winner = self.winner;
        for added in winner.adds.iter().filter(|added| !winner.removes.contains_key(&added.key.at)) {
            let key = &added.key.at;
            let Some((own_remove, _)) = self.pair(key) else { continue };
            let (live, deleted) = match self.folded.rows.merges.get(key) {
                Some(merge) => (id_of(&merge.add.deletion_vector), merge.deleted.clone()),
                None => (id_of(&own_remove.deletion_vector), Deleted::AsProposed),
            };
            if live == added.key.dv_id && !self.folded.rows.undone.is_own(key) {
                let line = winner.line(added);
                self.folded.rows.merges.insert(key.clone(), Merge { add: added.add.clone(), line, deleted });
            }
        }
    }

    /// Whether the candidate, judged by rows, does not mind that the winner took rows of a file that it changed nothing of:
    /// it read none of them. Until vectors and rows are read the answer is yes, and they are asked for.
    pub(super) fn does_not_mind(&mut self, key: &ObjectKey, remove: &RemoveFile) -> bool {
        let candidate = self.inputs.candidate;
        let Ok(statement) = self.statement else { return false };
        if statement.minds_losses || candidate.removed.contains(key) || candidate.added.contains(key) {
            return false;
        }
        if !self.only_scanned(key) {
            return false;
        }
        // As bounds tell it, of the rows that were there before.
        if self.was_read(key, remove).is_none() {
            return true;
        }
        let winner = self.winner;
        let found = match winner.replaced(key) {
            Some(added) => self.lost_rows(remove, added.add).map(|rows| (added.add.clone(), rows)),
            None if winner.has_doubles || (!remove.data_change && self.winner_clusters()) => Err(None),
            None => self.lost_file(key, remove),
        };
        let unread = match found {
            Ok((add, rows)) => {
                let state = vector_states(remove, winner.replaced(key).map(|added| added.add));
                self.is_unread(key, &add, state, rows)
            }
            Err(None) => return false,
            Err(Some(unread)) => unread,
        };
        match unread {
            Unread::Yes | Unread::NotLoaded => true,
            Unread::No(why) => {
                self.why_by_file.insert(key.clone(), why);
                false
            }
        }
    }

    /// The rows that a winner deleted; nothing where it took some back.
    fn lost_rows(&mut self, remove: &RemoveFile, added: &AddFile) -> Result<Lost, Option<Unread>> {
        match (self.rows_of(&remove.deletion_vector), self.rows_of(&added.deletion_vector)) {
            (Rows::Known(base), Rows::Known(won)) => new_rows(&base, &won).map(Lost::These).ok_or(None),
            (Rows::Unreadable(error), _) | (_, Rows::Unreadable(error)) => {
                let text = format!("a deletion vector of {} cannot be read: {error}", added.path);
                Err(Some(Unread::No(text.into())))
            }
            _ => Err(Some(Unread::NotLoaded)),
        }
    }

    /// The rows of a file that a winner removed, and the file as it was.
    fn lost_file(&mut self, key: &ObjectKey, remove: &RemoveFile) -> Result<(AddFile, Lost), Option<Unread>> {
        let add = match self.inputs_of(&[(key, remove)], self.earlier) {
            Inputs::Known(found) => found.into_iter().next().map(|(_, add)| add).ok_or(None)?,
            Inputs::NotLoaded => return Err(Some(Unread::NotLoaded)),
            Inputs::Unknown => return Err(None),
        };
        match self.rows_of(&remove.deletion_vector) {
            Rows::Known(gone) => Ok((add, Lost::AllBut(gone.into_owned()))),
            Rows::Unreadable(error) => {
                let text = format!("the deletion vector of {} cannot be read: {error}", add.path);
                Err(Some(Unread::No(text.into())))
            }
            Rows::NotLoaded => Err(Some(Unread::NotLoaded)),
        }
    }

    /// Files that the writer names may have been read for more than its condition, unless the condition explains it.
    fn only_scanned(&mut self, key: &ObjectKey) -> bool {
        let candidate = self.inputs.candidate;
        if !candidate.read_files.contains(key) {
            return true;
        }
        let Some(files) = self.inputs.files.filter(|files| files.knows(key)) else {
            self.folded.needs_files.insert(key.clone());
            return true;
        };
        match files.at_read(key) {
            AtRead::Live(adds) => adds.iter().any(|add| {
                let values = FileValues { partition_values: Some(&add.partition_values), stats: add.stats.as_deref() };
                self.may_have_read(values).is_some()
            }),
            AtRead::Absent | AtRead::Unknown => false,
        }
    }
}

fn by_file(text: &str) -> Met {
    Met::ByFile(text.to_owned().into())
}

/// The vectors before and after, or that the file is gone.
fn vector_states(remove: &RemoveFile, added: Option<&AddFile>) -> String {
    let of = |vector: &Option<DeletionVector>| vector.as_ref().map_or_else(|| "none".to_owned(), vector_key);
    let after = added.map_or_else(|| "gone".to_owned(), |add| of(&add.deletion_vector));
    format!("{} / {after}", of(&remove.deletion_vector))
}

/// The candidate's own vector is not what it says.
fn unreadable(error: &VectorError, add: &AddFile) -> Refusal {
    Refusal::invalid(error.reason(), error.to_string()).class(error.class()).file(&add.path)
}

/// Places of removes and adds of one file in a candidate that changes data.
pub(super) fn pairs_of(candidate: &Candidate) -> BTreeMap<ObjectKey, (usize, usize)> {
    let changes = candidate.actions.removes.iter().any(|remove| remove.data_change);
    if !changes {
        return BTreeMap::new();
    }
    let removes: BTreeMap<&ObjectKey, usize> =
        candidate.remove_keys.iter().enumerate().map(|(at, key)| (key, at)).collect();
    let adds = candidate.add_keys.iter().enumerate();
    adds.filter_map(|(at, key)| Some((key.clone(), (*removes.get(key)?, at)))).collect()
}

/// Keys that a check has settled.
pub(super) type Keys = BTreeSet<ObjectKey>;
