//! Item: a table lies here. `catalog`, pk `location#<bucket>`, sk `<prefix>/` NUL `<table id>`, so that one query reads
//! everything below a folder. Many tables may share a location.
//!
//! Beside them, under pk `location-uses#<bucket>`, sk as before and the kind of use: places outside a table's location
//! where it has partitions, or where it once lay. They are put before what they speak of is written and never taken back
//! while the table lives: one too many only keeps files. Under pk `uses-of#<table id>`, sk `<bucket>`, is noted in which
//! buckets the table has some, so that they go with it.

use sha2::{Digest, Sha256};

use super::TableId;
use crate::location::Location;
use crate::store::{DecodeError, Fields, Item, Key, Sort, SortRange, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// Longer prefixes are cut to this many bytes and followed by their hash.
const PLAIN_PREFIX_MAX_BYTES: usize = 900;

/// A table that said it lies at `location`. Only its head tells whether it is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocationEntry {
    pub(super) location: Location,
    pub(super) database: String,
    pub(super) table: String,
    pub(super) table_id: TableId,
}

/// Why a table concerns a place where it does not lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A partition lies there, or has.
    Partition,
    /// The table has lain there.
    Past,
}

impl Use {
    fn as_str(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Past => "past",
        }
    }
}

pub(super) fn uses_in(bucket: &str) -> String {
    format!("location-uses#{bucket}")
}

pub(super) fn use_key(location: &Location, table: &TableId, what: Use) -> Key {
    let sort = format!("{}{table}\0{}", shared_sort(location), what.as_str());
    Key::new(Table::Catalog, uses_in(&location.bucket), sort)
}

pub(super) fn encode_use(entry: &LocationEntry, what: Use) -> Item {
    let mut item = encode(entry);
    item.insert("use".to_owned(), what.as_str().into());
    item
}

pub(super) fn decode_use(item: &Item) -> Result<(LocationEntry, Use), DecodeError> {
    let text = item.text("use")?;
    let what = [Use::Partition, Use::Past].into_iter().find(|what| what.as_str() == text);
    let message = || format!("`{text}` is not known");
    let what = what.ok_or_else(|| DecodeError::Invalid { field: "use".to_owned(), message: message() })?;
    Ok((decode(item)?, what))
}

/// Notes of the buckets in which a table has uses.
pub(super) fn buckets_of(table: &TableId) -> String {
    format!("uses-of#{table}")
}

pub(super) fn bucket_key(table: &TableId, bucket: &str) -> Key {
    Key::new(Table::Catalog, buckets_of(table), bucket)
}

pub(super) fn encode_bucket(bucket: &str) -> Item {
    Item::from([("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)), ("bucket".to_owned(), bucket.into())])
}

pub(super) fn decode_bucket(item: &Item) -> Result<String, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(item.text("bucket")?.to_owned())
}

pub(super) fn locations_in(bucket: &str) -> String {
    format!("location#{bucket}")
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(PLAIN_PREFIX_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The part of the range key that all tables at this very location share.
fn shared_sort(location: &Location) -> String {
    let prefix = location.key_prefix();
    if prefix.len() <= PLAIN_PREFIX_MAX_BYTES {
        return format!("{prefix}\0");
    }
    let hash = hex::encode(Sha256::digest(prefix.as_bytes()));
    format!("{}\0{hash}\0", cut(&prefix))
}

pub(super) fn key(location: &Location, table: &TableId) -> Key {
    Key::new(Table::Catalog, locations_in(&location.bucket), format!("{}{table}", shared_sort(location)))
}

/// Range keys of the tables at this very location (and perhaps a few others: compare the entry).
pub(super) fn range_at(location: &Location) -> SortRange {
    SortRange::Prefix(Sort::Text(shared_sort(location)))
}

/// Range keys of the tables at this location and below it (and perhaps a few others: compare the entry).
pub(super) fn range_within(location: &Location) -> SortRange {
    let prefix = location.key_prefix();
    if prefix.is_empty() { SortRange::All } else { SortRange::Prefix(Sort::Text(cut(&prefix).to_owned())) }
}

pub(super) fn encode(entry: &LocationEntry) -> Item {
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("bucket".to_owned(), entry.location.bucket.as_str().into()),
        ("prefix".to_owned(), entry.location.prefix.as_str().into()),
        ("database".to_owned(), entry.database.as_str().into()),
        ("table".to_owned(), entry.table.as_str().into()),
        ("table_id".to_owned(), (&entry.table_id).into()),
    ])
}

pub(super) fn decode(item: &Item) -> Result<LocationEntry, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(LocationEntry {
        location: Location { bucket: item.text("bucket")?.to_owned(), prefix: item.text("prefix")?.to_owned() },
        database: item.text("database")?.to_owned(),
        table: item.text("table")?.to_owned(),
        table_id: TableId::from_text(item.text("table_id")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn an_entry_comes_back() {
        let entry = LocationEntry {
            location: Location::new("b", "wh/ü=1/orders"),
            database: "sales".to_owned(),
            table: "orders".to_owned(),
            table_id: TableId::from_text("t1"),
        };
        assert_eq!(decode(&encode(&entry)).unwrap(), entry);
        for what in [Use::Partition, Use::Past] {
            assert_eq!(decode_use(&encode_use(&entry, what)).unwrap(), (entry.clone(), what));
        }
        assert!(decode_use(&encode(&entry)).is_err());
        assert_eq!(decode_bucket(&encode_bucket("b")).unwrap(), "b");
    }

    #[test]
    fn keys_stay_within_the_limit_and_tell_long_prefixes_apart() {
        let id = TableId::from_text("t".repeat(32));
        let mut seen = std::collections::BTreeSet::new();
        for length in [896, 898, 900, 902, 1024, 2050] {
            for tail in ["x", "y", "ü"] {
                let location = Location::new("b", &format!("{}{tail}", "ä".repeat(length / 2)));
                let used = use_key(&location, &id, Use::Partition);
                assert!(
                    used.sk.as_bytes().len() <= limits::SORT_KEY_MAX_BYTES && range_at(&location).contains(&used.sk)
                );
                let key = key(&location, &id);
                assert!(key.sk.as_bytes().len() <= limits::SORT_KEY_MAX_BYTES);
                assert!(range_at(&location).contains(&key.sk));
                assert!(range_within(&location).contains(&key.sk));
                assert!(seen.insert(key.sk), "{length} {tail}");
            }
        }
    }

    #[test]
    fn siblings_are_not_within() {
        let id = TableId::from_text("t1");
        let orders = Location::new("b", "wh/orders");
        assert!(!range_within(&orders).contains(&key(&Location::new("b", "wh/orders_v2"), &id).sk));
        assert!(range_within(&orders).contains(&key(&Location::new("b", "wh/orders/a"), &id).sk));
        assert!(!range_at(&orders).contains(&key(&Location::new("b", "wh/orders/a"), &id).sk));
        assert!(range_within(&Location::new("b", "")).contains(&key(&Location::new("b", ""), &id).sk));
    }
}
