//! The files that a commit names, against those that the log knows. A file is (path, deletion vector).

use std::collections::BTreeSet;

use super::stats::row_count;
use crate::commit::candidate::Candidate;
use crate::commit::facts::{AtRead, FileFacts};
use crate::commit::path_filter::PathFilter;
use crate::commit::sql::Instant;
use crate::commit::verdict::Refusal;
use crate::delta::{AddFile, DeletionVector, PartitionValues, RemoveFile};
use crate::store::ObjectKey;

/// Files of which must be known whether and how they are live.
pub fn needed_files(candidate: &Candidate, paths: Option<&PathFilter>) -> BTreeSet<ObjectKey> {
    let adds = candidate.actions.adds.iter().zip(&candidate.add_keys);
    let added = adds.filter(|(add, key)| {
        candidate.is_rearrangement()
            || add.deletion_vector.is_some()
            || paths.is_none_or(|paths| paths.may_contain(&key.to_string()))
    });
    candidate.remove_keys.iter().chain(added.map(|(_, key)| key)).cloned().collect()
}

/// Removes name files that were live when the table was read, adds name new ones, or repeat those that are live, or
/// replace their deletion vector; rearrangements keep the number of rows.
///
/// `reconciled`: files that winners changed as well, without conflict. They are as they were read for the candidate.
pub fn check_live_files(
    candidate: &Candidate,
    files: &FileFacts,
    reconciled: &BTreeSet<ObjectKey>,
) -> Result<(), Refusal> {
    let facts = Facts { candidate, files, reconciled };
    for (remove, key) in candidate.actions.removes.iter().zip(&candidate.remove_keys) {
        facts.check_remove(remove, key)?;
    }
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        facts.check_add(add, key)?;
    }
    if candidate.is_rearrangement() { facts.check_rows_kept() } else { Ok(()) }
}

fn id_of(vector: &Option<DeletionVector>) -> Option<String> {
    vector.as_ref().map(DeletionVector::id)
}

fn same_vector(a: &Option<DeletionVector>, b: &Option<DeletionVector>) -> bool {
    id_of(a) == id_of(b)
}

struct Facts<'a> {
    candidate: &'a Candidate,
    files: &'a FileFacts,
    reconciled: &'a BTreeSet<ObjectKey>,
}

impl<'a> Facts<'a> {
    /// The entries of an object at the version that was read; where the log no longer tells, the latest ones.
    fn at_read(&self, key: &ObjectKey) -> Vec<&'a AddFile> {
        match self.files.at_read(key) {
            AtRead::Live(adds) => adds,
            AtRead::Absent => Vec::new(),
            AtRead::Unknown => self.at_latest(key),
        }
    }

    fn at_latest(&self, key: &ObjectKey) -> Vec<&'a AddFile> {
        if self.reconciled.contains(key)
            && let AtRead::Live(adds) = self.files.at_read(key)
        {
            return adds;
        }
        self.files.live(key).into_iter().map(|(_, add)| add).collect()
    }

    fn check_remove(&self, remove: &RemoveFile, key: &ObjectKey) -> Result<(), Refusal> {
        let refuse = |reason: &str, text: String| Err(Refusal::invalid(reason, text).file(&remove.path));
        let at_read = self.at_read(key);
        // A winner that removed it is found by the conflict check; here it only must not pass.
        let at_latest = self.at_latest(key);
        if at_read.is_empty() || at_latest.is_empty() {
            let text = "the file to remove is not in the table".to_owned();
            return refuse("REMOVE_OF_UNKNOWN_FILE", text);
        }
        let same = |add: &&&AddFile| same_vector(&add.deletion_vector, &remove.deletion_vector);
        let (Some(add), Some(_)) = (at_read.iter().find(same), at_latest.iter().find(same)) else {
            let live = at_read.iter().map(|add| id_of(&add.deletion_vector)).next().flatten();
            let shown = |id: Option<String>| {
                id.map_or("without a deletion vector".to_owned(), |id| format!("with the deletion vector {id}"))
            };
            let text = format!(
                "the file is live {}, the remove names it {}; it would remove nothing",
                shown(live),
                shown(id_of(&remove.deletion_vector))
            );
            return refuse("REMOVE_OF_OTHER_VECTOR", text);
        };
        // Readers match removes with adds by their spelling: under another one the file would stay.
        if add.path != remove.path {
            let text = format!("the log names this file `{}`, the remove spells it differently", add.path);
            return refuse("REMOVE_SPELLING", text);
        }
        match remove.partition_values.as_ref().filter(|values| !same_values(values, &add.partition_values)) {
            None => Ok(()),
            Some(values) => {
                let text =
                    format!("the remove gives the partition {values:?}, the file's is {:?}", add.partition_values);
                refuse("REMOVE_PARTITION", text)
            }
        }
    }

    fn check_add(&self, add: &AddFile, key: &ObjectKey) -> Result<(), Refusal> {
        let refuse = |reason: &str, text: &str| {
            Err(Refusal::invalid(reason, text).class("DELTA_DUPLICATE_ACTIONS_FOUND").file(&add.path))
        };
        let is_removed = |live: &AddFile| {
            let removes = self.candidate.actions.removes.iter().zip(&self.candidate.remove_keys);
            let mut same = removes.filter(|(_, removed)| *removed == key);
            same.any(|(remove, _)| same_vector(&remove.deletion_vector, &live.deletion_vector))
        };
        let mut before = self.at_latest(key);
        before.extend(self.at_read(key).into_iter().filter(|_| self.at_latest(key).is_empty()));
        for live in before {
            let is_same = same_vector(&live.deletion_vector, &add.deletion_vector);
            if is_same && add.data_change {
                return refuse("FILE_ALREADY_LIVE", "the file to add is in the table already");
            }
            if !is_same && !is_removed(live) {
                let text = "the file to add is live with another deletion vector, which the commit does not remove: \
                            its rows would be there twice";
                return refuse("ADD_WITHOUT_REMOVE", text);
            }
            if let Some(what) = difference(live, add) {
                let text = format!("the file is in the table already, with another {what}");
                return refuse("FILE_CHANGED", &text);
            }
        }
        Ok(())
    }

    /// Whether an add only repeats a live file, with other statistics, tags or row ids.
    fn is_repeated(&self, add: &AddFile, key: &ObjectKey) -> bool {
        self.at_latest(key).iter().any(|live| same_vector(&live.deletion_vector, &add.deletion_vector))
    }

    fn check_rows_kept(&self) -> Result<(), Refusal> {
        let mut added = Some(0_u64);
        for (add, key) in self.candidate.actions.adds.iter().zip(&self.candidate.add_keys) {
            if !self.is_repeated(add, key) {
                added = sum(added, live_rows(add)?);
            }
        }
        let mut removed = Some(0_u64);
        for (remove, key) in self.candidate.actions.removes.iter().zip(&self.candidate.remove_keys) {
            let found =
                self.at_read(key).into_iter().find(|add| same_vector(&add.deletion_vector, &remove.deletion_vector));
            removed = sum(removed, found.and_then(|add| live_rows(add).ok().flatten()));
        }
        match (added, removed) {
            (Some(added), Some(removed)) if added != removed => {
                let text =
                    format!("the commit says that it changes no data, but adds {added} rows and removes {removed}");
                Err(Refusal::invalid("ROWS_NOT_KEPT", text))
            }
            _ => Ok(()),
        }
    }
}

/// Rows that are not deleted, where statistics tell.
fn live_rows(add: &AddFile) -> Result<Option<u64>, Refusal> {
    let deleted = add.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
    Ok(row_count(add)?.and_then(|rows| rows.checked_sub(u64::try_from(deleted).ok()?)))
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_add(b?)
}

/// What no commit can change of an object.
fn difference(live: &AddFile, add: &AddFile) -> Option<&'static str> {
    if live.path != add.path {
        return Some("spelling of its path");
    }
    if live.size != add.size {
        return Some("size");
    }
    if !same_values(&live.partition_values, &add.partition_values) {
        return Some("partition");
    }
    match (row_count(live), row_count(add)) {
        (Ok(Some(before)), Ok(Some(now))) if before != now => Some("number of rows"),
        _ => None,
    }
}

/// Null is written as an empty text as well, and timestamps have two spellings.
fn same_values(a: &PartitionValues, b: &PartitionValues) -> bool {
    let told = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let same = |a: Option<String>, b: Option<String>| match (a, b) {
        (Some(a), Some(b)) if a != b => match (Instant::parse(&a), Instant::parse(&b)) {
            (Some(a), Some(b)) => a.has_time && b.has_time && a.utc_nanos() == b.utc_nanos(),
            _ => false,
        },
        (a, b) => a.is_some() == b.is_some(),
    };
    a.len() == b.len() && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(told(value), told(other))))
}
