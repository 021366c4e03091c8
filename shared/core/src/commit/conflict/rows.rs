//! Winners that deleted rows of files which the candidate deletes rows of, or merely looked at.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::winner::Added;
use super::{Check, Conflict};
use crate::commit::candidate::Candidate;
use crate::commit::facts::AtRead;
use crate::commit::row_level::edits::{Deleted, Merge};
use crate::commit::row_level::merge::{Meeting, SAMPLE_MAX, SameRows, meet, new_rows};
use crate::commit::row_level::{RowFacts, vector_key};
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
    SameRows(SameRows),
    NotYet,
    /// File-level rules decide; and why rows cannot.
    ByFile(Option<String>),
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
                Met::NotYet => {
                    ready = Ready::NotYet;
                    self.take(key, added, Deleted::NotLoaded);
                }
                Met::SameRows(rows) => same.push(rows),
                Met::ByFile(why) => self.why_by_file = why.or(self.why_by_file.take()),
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
            return Ok(Met::ByFile(Some("the winner found the file under another deletion vector".to_owned())));
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
                        return Ok(Met::ByFile(Some(text)));
                    }
                    _ => {}
                }
            }
            return Ok(Met::NotYet);
        };
        let Some(own) = new_rows(&base, &current) else {
            return Ok(Met::ByFile(Some("the commit takes deleted rows back".to_owned())));
        };
        let so_far = match so_far {
            Some(Deleted::Rows(rows)) => rows,
            Some(Deleted::NotLoaded) => return Ok(Met::NotYet),
            Some(Deleted::AsProposed) | None => current.into_owned(),
        };
        Ok(match meet(&own, &so_far, &found, &won) {
            Meeting::Apart(rows) => Met::Apart(rows),
            Meeting::SameRows(count, sample) => Met::SameRows(SameRows { file: added.add.path.clone(), count, sample }),
            Meeting::Shrinks => Met::ByFile(Some("the winner took deleted rows back".to_owned())),
        })
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
            if live == added.key.dv_id && !self.folded.rows.undone.own.contains(key) {
                let line = winner.line(added);
                self.folded.rows.merges.insert(key.clone(), Merge { add: added.add.clone(), line, deleted });
            }
        }
    }

    /// Whether the candidate, judged by rows, does not mind that the winner took rows of a file that it changed nothing of:
    /// it matched none of them. Until vectors are read the answer is yes, and they are asked for.
    pub(super) fn does_not_mind(&mut self, key: &ObjectKey, remove: &RemoveFile) -> bool {
        let candidate = self.inputs.candidate;
        let Ok(statement) = self.statement else { return false };
        if statement.minds_losses || candidate.removed.contains(key) || candidate.added.contains(key) {
            return false;
        }
        if !self.only_scanned(key) {
            return false;
        }
        let winner = self.winner;
        let Some(added) = winner.replaced(key) else {
            return !winner.has_doubles && (remove.data_change || !self.winner_clusters());
        };
        // It only ever got more rows where there was no vector before.
        if remove.deletion_vector.is_none() {
            return true;
        }
        match (self.rows_of(&remove.deletion_vector), self.rows_of(&added.add.deletion_vector)) {
            (Rows::Known(base), Rows::Known(won)) => base.is_subset(&won),
            (Rows::Unreadable(_), _) | (_, Rows::Unreadable(_)) => false,
            _ => true,
        }
    }

    /// Files that the writer names may have been read for more than its condition, unless the condition explains it.
    fn only_scanned(&mut self, key: &ObjectKey) -> bool {
        let candidate = self.inputs.candidate;
        if !candidate.read_files.contains(key) || candidate.matched_equals_written == Some(true) {
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
