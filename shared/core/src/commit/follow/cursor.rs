//! Items: how far a catalog table follows its log, and when each version was there as a whole.
//!
//! | item | pk (table `partitions`) | sk |
//! |---|---|---|
//! | cursor | `<table id>#f` | `c` |
//! | version that was synced | `<table id>#f` | `v`, 8 bytes generation, 8 bytes version (big endian) |
//! | numbers of a partition | `<table id>#f#<shard>` | SHA-256 of its values |
//!
//! Every write of the follower is one transaction with the cursor, conditional on the revision that was read. So of two
//! workers one goes on, and a crash leaves either all or nothing of a step.

use crate::catalog::TableId;
use crate::commit::keys::Generation;
use crate::delta::Version;
use crate::store::{Condition, DecodeError, Fields, Item, Key, Table, Value, Write};

const SCHEMA_VERSION: i64 = 1;
const CURSOR: &[u8] = b"c";

fn place(table: &TableId) -> String {
    format!("{table}#f")
}

pub(super) fn shard_place(table: &TableId, shard: u16) -> String {
    format!("{table}#f#{shard}")
}

/// Partition keys under which everything is that following a log left of a table.
pub(crate) fn places_of(table: &TableId, shards: u16) -> impl Iterator<Item = (Table, String)> + use<> {
    let all = (0..shards).map(|shard| shard_place(table, shard)).chain([place(table)]).collect::<Vec<_>>();
    all.into_iter().map(|pk| (Table::Partitions, pk))
}

pub fn key(table: &TableId) -> Key {
    Key::new(Table::Partitions, place(table), CURSOR.to_vec())
}

pub fn synced_key(table: &TableId, generation: Generation, version: Version) -> Key {
    let mut sort = b"v".to_vec();
    sort.extend(u64::try_from(generation.0).unwrap_or(0).to_be_bytes());
    sort.extend(u64::try_from(version.0).unwrap_or(0).to_be_bytes());
    Key::new(Table::Partitions, place(table), sort)
}

/// A partition column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// As partition values name it.
    pub physical: String,
    /// A moment: its values have two spellings.
    pub is_timestamp: bool,
}

/// Whether partitions that the log does not have stay, if somebody else made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    Stay,
    Go,
}

/// A table's partitions are being made from the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// [`Version::NONE`] until it was looked up.
    pub version: Version,
    pub others: Others,
    /// The last partition that was written; `None` before the first.
    pub after: Option<Vec<String>>,
    pub started_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub generation: Generation,
    pub metadata_id: Option<String>,
    /// The partitions are those of this version, but for `progress`.
    pub version: Version,
    /// SHA-256 of `<version>.json`: whether the log is still the one that was followed.
    pub sha256: Option<String>,
    pub columns: Vec<Column>,
    /// The partition keys of the catalog's table when it was followed, in their order.
    pub keys: Vec<String>,
    /// The last partition that the version after `version` has changed already.
    pub progress: Option<Vec<String>>,
    /// The latest moment that anything was written for; those of later versions are later.
    pub last_ms: i64,
    pub rebuild: Option<Rebuild>,
    /// When the last rebuild was through.
    pub rebuilt_ms: Option<i64>,
    pub updated_ms: i64,
    /// Empty until it is stored.
    pub revision: String,
}

impl Cursor {
    pub fn fresh() -> Cursor {
        Cursor {
            generation: Generation::default(),
            metadata_id: None,
            version: Version::NONE,
            sha256: None,
            columns: Vec::new(),
            keys: Vec::new(),
            progress: None,
            last_ms: 0,
            rebuild: None,
            rebuilt_ms: None,
            updated_ms: 0,
            revision: String::new(),
        }
    }

    /// What a write of the cursor demands: the revision that was read, or that there is none.
    fn unchanged(&self) -> Condition {
        if self.revision.is_empty() { Condition::Absent } else { Condition::equals("revision", self.revision.as_str()) }
    }

    /// Stores `next` in place of `self`.
    pub fn write(&self, table: &TableId, next: &Cursor) -> Write {
        Write::Put { key: key(table), item: next.encode(), condition: self.unchanged() }
    }

    pub fn encode(&self) -> Item {
        let texts = |texts: &[String]| Value::List(texts.iter().map(|text| text.as_str().into()).collect());
        let mut item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("generation".into(), Value::Int(self.generation.0)),
            ("version".into(), Value::Int(self.version.0)),
            ("keys".into(), texts(&self.keys)),
            ("columns".into(), Value::List(self.columns.iter().map(encode_column).collect())),
            ("last_ms".into(), Value::Int(self.last_ms)),
            ("updated_ms".into(), Value::Int(self.updated_ms)),
            ("revision".into(), self.revision.as_str().into()),
        ]);
        for (field, text) in [("metadata_id", &self.metadata_id), ("sha256", &self.sha256)] {
            if let Some(text) = text {
                item.insert(field.into(), text.as_str().into());
            }
        }
        if let Some(progress) = &self.progress {
            item.insert("progress".into(), texts(progress));
        }
        if let Some(rebuilt_ms) = self.rebuilt_ms {
            item.insert("rebuilt_ms".into(), Value::Int(rebuilt_ms));
        }
        if let Some(rebuild) = &self.rebuild {
            let mut map = Item::from([
                ("version".into(), Value::Int(rebuild.version.0)),
                ("others_go".into(), Value::Bool(rebuild.others == Others::Go)),
                ("started_ms".into(), Value::Int(rebuild.started_ms)),
            ]);
            if let Some(after) = &rebuild.after {
                map.insert("after".into(), texts(after));
            }
            item.insert("rebuild".into(), Value::Map(map));
        }
        item
    }

    pub fn decode(item: &Item) -> Result<Cursor, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        let rebuild = match item.get("rebuild") {
            Some(Value::Map(map)) => Some(Rebuild {
                version: Version(map.int("version")?),
                others: if map.flag("others_go")? { Others::Go } else { Others::Stay },
                after: texts_of(map, "after")?,
                started_ms: map.int("started_ms")?,
            }),
            _ => None,
        };
        let columns = match item.get("columns") {
            Some(Value::List(columns)) => columns.iter().map(decode_column).collect::<Result<_, _>>()?,
            _ => return Err(wrong("columns")),
        };
        Ok(Cursor {
            generation: Generation(item.int("generation")?),
            metadata_id: item.opt_text("metadata_id")?.map(str::to_owned),
            version: Version(item.int("version")?),
            sha256: item.opt_text("sha256")?.map(str::to_owned),
            columns,
            keys: texts_of(item, "keys")?.unwrap_or_default(),
            progress: texts_of(item, "progress")?,
            last_ms: item.int("last_ms")?,
            rebuild,
            rebuilt_ms: item.opt_int("rebuilt_ms")?,
            updated_ms: item.int("updated_ms")?,
            revision: item.text("revision")?.to_owned(),
        })
    }
}

fn wrong(field: &str) -> DecodeError {
    DecodeError::WrongType { field: field.to_owned(), expected: "list of text" }
}

pub(super) fn texts_of(item: &Item, field: &str) -> Result<Option<Vec<String>>, DecodeError> {
    match item.get(field) {
        None => Ok(None),
        Some(Value::List(values)) => values
            .iter()
            .map(|value| match value {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(wrong(field)),
            })
            .collect::<Result<_, _>>()
            .map(Some),
        Some(_) => Err(wrong(field)),
    }
}

fn encode_column(column: &Column) -> Value {
    Value::Map(Item::from([
        ("name".into(), column.name.as_str().into()),
        ("physical".into(), column.physical.as_str().into()),
        ("timestamp".into(), Value::Bool(column.is_timestamp)),
    ]))
}

fn decode_column(value: &Value) -> Result<Column, DecodeError> {
    let Value::Map(map) = value else { return Err(wrong("columns")) };
    Ok(Column {
        name: map.text("name")?.to_owned(),
        physical: map.text("physical")?.to_owned(),
        is_timestamp: map.flag("timestamp")?,
    })
}

/// A version whose partitions are all in the catalog: reads of the table as this version left it are reads of this moment.
/// Kept as long as the partitions' history is.
pub fn write_synced(
    table: &TableId,
    generation: Generation,
    version: Version,
    synced_ms: i64,
    kept_for_ms: i64,
) -> Write {
    let expires_ms = synced_ms.saturating_add(kept_for_ms.max(0));
    let item = Item::from([
        ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
        ("synced_ms".into(), Value::Int(synced_ms)),
        ("ttl".into(), Value::Int(expires_ms.div_euclid(1000).saturating_add(1))),
    ]);
    Write::Put { key: synced_key(table, generation, version), item, condition: Condition::Always }
}

pub fn decode_synced(item: &Item) -> Result<i64, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    item.int("synced_ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let full = Cursor {
            generation: Generation(2),
            metadata_id: Some("m".into()),
            version: Version(7),
            sha256: Some("s".into()),
            columns: vec![Column { name: "Day".into(), physical: "col-1".into(), is_timestamp: true }],
            keys: vec!["day".into()],
            progress: Some(vec!["2026".into()]),
            last_ms: 5,
            rebuild: Some(Rebuild {
                version: Version(9),
                others: Others::Go,
                after: Some(vec![String::new()]),
                started_ms: 4,
            }),
            rebuilt_ms: Some(3),
            updated_ms: 6,
            revision: "r".into(),
        };
        for cursor in [full, Cursor::fresh()] {
            assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
        }
        let Write::Put { item, .. } = write_synced(&TableId::from_text("t"), Generation(1), Version(2), 5_999, 1_000)
        else {
            panic!()
        };
        assert_eq!(decode_synced(&item).unwrap(), 5_999);
        assert_eq!(item.int("ttl").unwrap(), 7);
    }
}
