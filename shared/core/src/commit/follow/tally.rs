//! What a partition holds: live files, their rows and bytes. And what a commit changes of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::cursor::{Column, shard_place, texts_of};
use crate::catalog::TableRef;
use crate::commit::partition_values::{HIVE_DEFAULT_PARTITION, folder_of};
use crate::delta::snapshot::{FileKey, key_of_add, key_of_remove};
use crate::delta::{Actions, AddFile, PathError};
use crate::location::Location;
use crate::partition::{hash_of_values, shard_of};
use crate::store::{Condition, DecodeError, Fields, Item, Key, ObjectKey, Table, Value, Write};

const SCHEMA_VERSION: i64 = 1;

/// Numbers of live files. As a change, what is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub files: i64,
    /// Without those that deletion vectors hide, of the files that tell.
    pub rows: i64,
    /// Files whose statistics do not tell how many rows they have.
    pub without_rows: i64,
    pub bytes: i64,
}

impl Tally {
    fn of(add: &AddFile) -> Tally {
        let rows = rows_of(add);
        Tally { files: 1, rows: rows.unwrap_or(0), without_rows: i64::from(rows.is_none()), bytes: add.size }
    }

    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            files: self.files.saturating_add(other.files),
            rows: self.rows.saturating_add(other.rows),
            without_rows: self.without_rows.saturating_add(other.without_rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Tally) -> Tally {
        let less = Tally {
            files: other.files.saturating_neg(),
            rows: other.rows.saturating_neg(),
            without_rows: other.without_rows.saturating_neg(),
            bytes: other.bytes.saturating_neg(),
        };
        self.plus(less)
    }

    /// As parameters of a partition, by the names that Hive gives them. The number of rows only where all files tell.
    pub fn parameters(&self) -> Map<String, Json> {
        let rows = if self.without_rows == 0 { Json::String(self.rows.to_string()) } else { Json::Null };
        Map::from_iter([
            ("numFiles".to_owned(), Json::String(self.files.to_string())),
            ("numRows".to_owned(), rows),
            ("totalSize".to_owned(), Json::String(self.bytes.to_string())),
        ])
    }
}

fn rows_of(add: &AddFile) -> Option<i64> {
    let stats: Json = serde_json::from_str(add.stats.as_deref()?).ok()?;
    let hidden = add.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
    stats.get("numRecords")?.as_i64().filter(|rows| *rows >= hidden).map(|rows| rows - hidden)
}

/// A partition's change, or all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub tally: Tally,
    /// The folder of the files that were added: `None` where they do not lie in a Hive-style folder of their own.
    pub folder: Option<Location>,
    pub has_added: bool,
}

impl Part {
    fn add(&mut self, add: &AddFile, folder: Option<Location>) {
        self.tally = self.tally.plus(Tally::of(add));
        self.folder = if self.has_added && self.folder != folder { None } else { folder };
        self.has_added = true;
    }
}

/// Partitions by their values, in the order of the catalog's keys.
pub type Parts = BTreeMap<Vec<String>, Part>;

/// How a file's partition values become those of the catalog.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    pub root: &'a Location,
    /// In Delta's order, as folders name them.
    pub columns: &'a [Column],
    /// For each key of the catalog its place among the columns.
    pub order: &'a [usize],
}

impl Layout<'_> {
    fn values_of(&self, add: &AddFile) -> Vec<String> {
        let value = |place: &usize| {
            let column = self.columns.get(*place);
            let text =
                column.and_then(|column| Some((column, add.partition_values.get(&column.physical)?.as_deref()?)));
            match text.filter(|(_, text)| !text.is_empty()) {
                Some((column, text)) if column.is_timestamp => moment(text),
                Some((_, text)) => text.to_owned(),
                None => HIVE_DEFAULT_PARTITION.to_owned(),
            }
        };
        self.order.iter().map(value).collect()
    }

    fn folder_of(&self, add: &AddFile, at: &ObjectKey) -> Option<Location> {
        let names: Vec<String> = self.columns.iter().map(|column| column.physical.clone()).collect();
        let values: Vec<Option<&str>> = self
            .columns
            .iter()
            .map(|column| add.partition_values.get(&column.physical)?.as_deref().filter(|text| !text.is_empty()))
            .collect();
        folder_of(self.root, &names, &values, at)
    }

    /// All partitions of a table.
    pub fn all<'f>(&self, live: impl Iterator<Item = (&'f FileKey, &'f AddFile)>) -> Parts {
        let mut parts = Parts::new();
        for (key, add) in live {
            parts.entry(self.values_of(add)).or_default().add(add, self.folder_of(add, &key.at));
        }
        parts
    }

    /// What a commit changes. `before` has the live files before it among those that it names.
    ///
    /// # Errors
    /// A path that is none.
    pub fn changes(&self, actions: &Actions, before: &BTreeMap<FileKey, AddFile>) -> Result<Parts, PathError> {
        let (mut parts, mut live) = (Parts::new(), before.clone());
        let take = |parts: &mut Parts, gone: Option<AddFile>| {
            if let Some(gone) = gone {
                let part = parts.entry(self.values_of(&gone)).or_default();
                part.tally = part.tally.minus(Tally::of(&gone));
            }
        };
        for remove in &actions.removes {
            let gone = live.remove(&key_of_remove(self.root, remove)?);
            take(&mut parts, gone);
        }
        for add in &actions.adds {
            let key = key_of_add(self.root, add)?;
            // Named again without a remove: what is said of it is replaced.
            let replaced = live.insert(key.clone(), add.clone());
            take(&mut parts, replaced);
            parts.entry(self.values_of(add)).or_default().add(add, self.folder_of(add, &key.at));
        }
        parts.retain(|_, part| part.tally != Tally::default() || part.has_added);
        Ok(parts)
    }
}

/// Whether a commit only adds what it says is new data: then nothing of what was there before matters, if it is so.
pub fn only_adds_new(actions: &Actions) -> bool {
    actions.removes.is_empty() && actions.adds.iter().all(|add| add.data_change)
}

/// The files whose state before a commit decides what it changes.
pub fn asked_of(root: &Location, actions: &Actions) -> Result<BTreeSet<ObjectKey>, PathError> {
    let removes = actions.removes.iter().map(|remove| Ok(key_of_remove(root, remove)?.at));
    removes.chain(actions.adds.iter().map(|add| Ok(key_of_add(root, add)?.at))).collect()
}

/// One spelling of a moment: with a blank, without a zone (they are UTC), without zeros at the end of a fraction.
fn moment(text: &str) -> String {
    let plain = text.strip_suffix('Z').unwrap_or(text);
    let plain = match plain.get(10..11) {
        Some("T") => format!("{} {}", plain.get(..10).unwrap_or_default(), plain.get(11..).unwrap_or_default()),
        _ => plain.to_owned(),
    };
    match plain.split_once('.') {
        Some((seconds, fraction)) if fraction.bytes().all(|digit| digit.is_ascii_digit()) => {
            let fraction = fraction.trim_end_matches('0');
            if fraction.is_empty() { seconds.to_owned() } else { format!("{seconds}.{fraction}") }
        }
        _ => plain,
    }
}

/// Item: numbers of a partition, and where the follower said that it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub values: Vec<String>,
    pub tally: Tally,
    pub location: String,
}

impl Kept {
    pub fn key_of(table: &TableRef, values: &[String]) -> Key {
        let pk = shard_place(&table.table_id, shard_of(values, table.shards));
        Key::new(Table::Partitions, pk, hash_of_values(values).to_vec())
    }

    pub fn write(&self, table: &TableRef) -> Write {
        let texts = self.values.iter().map(|value| value.as_str().into()).collect();
        let item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("of".into(), Value::List(texts)),
            ("files".into(), Value::Int(self.tally.files)),
            ("rows".into(), Value::Int(self.tally.rows)),
            ("without_rows".into(), Value::Int(self.tally.without_rows)),
            ("bytes".into(), Value::Int(self.tally.bytes)),
            ("location".into(), self.location.as_str().into()),
        ]);
        Write::Put { key: Kept::key_of(table, &self.values), item, condition: Condition::Always }
    }

    pub fn forget(table: &TableRef, values: &[String]) -> Write {
        Write::Delete { key: Kept::key_of(table, values), condition: Condition::Always }
    }

    pub fn decode(item: &Item) -> Result<Kept, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(Kept {
            values: texts_of(item, "of")?.unwrap_or_default(),
            tally: Tally {
                files: item.int("files")?,
                rows: item.int("rows")?,
                without_rows: item.int("without_rows")?,
                bytes: item.int("bytes")?,
            },
            location: item.text("location")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_one_spelling() {
        for (text, expected) in [
            ("2026-01-02 03:04:05", "2026-01-02 03:04:05"),
            ("2026-01-02 03:04:05.000000", "2026-01-02 03:04:05"),
            ("2026-01-02T03:04:05.120000Z", "2026-01-02 03:04:05.12"),
            ("2026-01-02", "2026-01-02"),
            ("2026-01-02 03:04:05.x0", "2026-01-02 03:04:05.x0"),
            ("", ""),
        ] {
            assert_eq!(moment(text), expected, "{text}");
        }
    }
}
