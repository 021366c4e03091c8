//! What metadata files say of the state that they are, kept from run to run: they never change, so one that was read once
//! is not read again to see that it is over.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::iceberg::TableMetadata;
use crate::store::{ObjectKey, ObjectMeta};
use crate::sweep::refs::exact_hash;
use crate::sweep::survey::{MetadataFile, state_hash};

/// Metadata files that are remembered; what is beyond is read by every run.
const MARKS_MAX: usize = 5000;

/// What tells one state of a table from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StateMark {
    pub(super) table_uuid: Option<String>,
    pub(super) location: String,
    pub(super) last_updated_ms: i64,
    pub(super) last_sequence_number: i64,
}

impl StateMark {
    pub(super) fn of(metadata: &TableMetadata) -> Self {
        Self {
            table_uuid: metadata.table_uuid.clone(),
            location: metadata.location.clone(),
            last_updated_ms: metadata.last_updated_ms,
            last_sequence_number: metadata.last_sequence_number,
        }
    }
}

/// Hashes of a metadata file's key and of the object that was read, which of the tables it is of, its date and number.
pub(super) type SavedMark = (u64, u64, usize, i64, i64);
/// Uuid and location.
pub(super) type SavedTable = (Option<String>, String);

/// Metadata files that were read, by their keys' hashes: each with the hash of the object that was read.
#[derive(Debug, Default)]
pub(super) struct Marks {
    known: HashMap<u64, (u64, StateMark)>,
    is_changed: bool,
}

impl Marks {
    pub(super) fn restore(&mut self, tables: &[SavedTable], marks: &[SavedMark]) {
        for (key, state, table, last_updated_ms, last_sequence_number) in marks {
            let Some((table_uuid, location)) = tables.get(*table).cloned() else { continue };
            let mark = StateMark {
                table_uuid,
                location,
                last_updated_ms: *last_updated_ms,
                last_sequence_number: *last_sequence_number,
            };
            self.known.entry(*key).or_insert((*state, mark));
        }
    }

    pub(super) fn saved(&self) -> (Vec<SavedTable>, Vec<SavedMark>) {
        let (mut tables, mut marks) = (Vec::<SavedTable>::new(), Vec::new());
        for (key, (state, mark)) in &self.known {
            let table = (mark.table_uuid.clone(), mark.location.clone());
            let index = tables.iter().position(|known| *known == table).unwrap_or(tables.len());
            if index == tables.len() {
                tables.push(table);
            }
            marks.push((*key, *state, index, mark.last_updated_ms, mark.last_sequence_number));
        }
        marks.sort_unstable();
        (tables, marks)
    }

    pub(super) fn learn(&mut self, at: &ObjectKey, read: &ObjectMeta, metadata: &TableMetadata) {
        let (key, state) = (exact_hash(at), state_hash(&read.etag, read.size_bytes));
        let has_room = self.known.len() < MARKS_MAX || self.known.contains_key(&key);
        if has_room && self.known.get(&key).is_none_or(|(before, _)| *before != state) {
            self.known.insert(key, (state, StateMark::of(metadata)));
            self.is_changed = true;
        }
    }

    /// What a listed file says, if it is the object that was read.
    pub(super) fn of(&self, file: &MetadataFile) -> Option<&StateMark> {
        self.known.get(&exact_hash(&file.at)).filter(|(state, _)| *state == file.state).map(|(_, mark)| mark)
    }

    /// Whether there is something to be saved; not again after this.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Forgets files that are not there any more.
    pub(super) fn retain(&mut self, listed: &std::collections::HashSet<u64>) {
        let before = self.known.len();
        self.known.retain(|key, _| listed.contains(key));
        self.is_changed |= self.known.len() != before;
    }
}
