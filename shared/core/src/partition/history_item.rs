//! Item: what a partition said until it was changed, moved or deleted. `partitions`, pk `<table id>#<epoch>#h#<shard>` of
//! the shard that the partition was in, sk its encoded values (cut like all keys, so that the rest fits), 8 bytes of
//! `valid_from_ms` (big endian), 8 bytes of the revision's hash.
//!
//! The revision keeps two images apart that began in one millisecond: a partition that was deleted and created again
//! knows nothing of its predecessor. Readers compare `values`: the encoding of some values is the beginning of others'.
//! DynamoDB removes an item some time after its `ttl` (seconds), so readers filter those that have expired themselves.

use sha2::{Digest, Sha256};

use super::item::{Current, Epoch, Kind, place};
use super::key::{CUT_TAIL_BYTES, encode_key_within, shard_of};
use crate::catalog::{TableId, TableRef};
use crate::limits::SORT_KEY_MAX_BYTES;
use crate::store::{DecodeError, Fields, Item, Key, Sort, SortRange, Table, Value};

const SUFFIX_BYTES: usize = 16;
const VALID_TO: &str = "valid_to_ms";
const EXPIRES: &str = "ttl";

/// How long the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    Nothing,
    ForMs(i64),
}

impl Retention {
    /// Zero and less keep nothing.
    pub fn of_ms(ms: i64) -> Self {
        if ms > 0 { Self::ForMs(ms) } else { Self::Nothing }
    }
}

/// Partition keys under which the history of one epoch is.
pub(crate) fn places_of(table: &TableId, epoch: u32, shards: u16) -> impl Iterator<Item = (Table, String)> + use<> {
    let table = table.clone();
    (0..shards).map(move |shard| (Table::Partitions, place(&table, epoch, Kind::History, shard)))
}

/// What the range keys of all images of the partition with these values begin with.
pub(super) fn prefix(epoch: Epoch<'_>, values: &[String]) -> Vec<u8> {
    encode_key_within(epoch.types, values, SORT_KEY_MAX_BYTES - SUFFIX_BYTES)
}

/// Partition key of the item store under which all images of the partition with these values are.
pub(super) fn place_of(table: &TableRef, epoch: Epoch<'_>, values: &[String]) -> String {
    place(&table.table_id, epoch.number, Kind::History, shard_of(values, table.shards))
}

/// Where the image of this revision of a partition is kept.
pub(super) fn key(table: &TableRef, epoch: Epoch<'_>, values: &[String], valid_from_ms: i64, revision: &str) -> Key {
    let mut sort = prefix(epoch, values);
    sort.extend_from_slice(&u64::try_from(valid_from_ms).unwrap_or(0).to_be_bytes());
    sort.extend(Sha256::digest(revision.as_bytes()).iter().take(SUFFIX_BYTES / 2));
    Key::new(Table::Partitions, place_of(table, epoch, values), sort)
}

/// The image that a change leaves behind.
pub(super) fn encode(old: &Current, valid_to_ms: i64, kept_for_ms: i64) -> Item {
    let mut item = old.item.clone();
    item.insert(VALID_TO.to_owned(), Value::Int(valid_to_ms));
    let expires_ms = valid_to_ms.saturating_add(kept_for_ms);
    item.insert(EXPIRES.to_owned(), Value::Int(expires_ms.div_euclid(1000).saturating_add(1)));
    item
}

/// The time of which an image speaks, in order of its beginning, and until when it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lifetime {
    pub(super) valid_from_ms: i64,
    /// Not included.
    pub(super) valid_to_ms: i64,
    /// From when on it is as good as gone.
    pub(super) expires_s: i64,
}

pub(super) fn lifetime_of(item: &Item) -> Result<Lifetime, DecodeError> {
    Ok(Lifetime {
        valid_from_ms: item.int("valid_from_ms")?,
        valid_to_ms: item.int(VALID_TO)?,
        expires_s: item.int(EXPIRES)?,
    })
}

/// First and last range key that images of the partition with these values have if they began at `at_ms` or before; none
/// for a moment before all time.
pub(super) fn images_until(epoch: Epoch<'_>, values: &[String], at_ms: i64) -> Option<(Vec<u8>, Vec<u8>)> {
    let first = prefix(epoch, values);
    let mut last = first.clone();
    last.extend_from_slice(&u64::try_from(at_ms).ok()?.to_be_bytes());
    last.extend([u8::MAX; SUFFIX_BYTES / 2]);
    Some((first, last))
}

/// So many bytes at the beginning of an image's range key are the beginning of the partition's own; the key of one that is
/// shorter is there as a whole.
pub(super) const ALIKE_BYTES: usize = SORT_KEY_MAX_BYTES - SUFFIX_BYTES - CUT_TAIL_BYTES;

/// The beginning of the key of the partition that an image's range key belongs to: of up to [`ALIKE_BYTES`].
pub(super) fn beginning_of(image: &[u8]) -> &[u8] {
    let length = image.len().saturating_sub(SUFFIX_BYTES).min(ALIKE_BYTES);
    image.get(..length).unwrap_or_default()
}

/// Range keys of all images of partitions whose keys are from `low` to `high`, both included, and of some more: those of
/// partitions whose keys begin as one of the two.
pub(super) fn images_between(low: &[u8], high: Option<&[u8]>) -> SortRange {
    let beginning = |key: &[u8]| key.get(..key.len().min(ALIKE_BYTES)).unwrap_or_default().to_vec();
    let low = Sort::Bytes(beginning(low));
    let Some(high) = high else { return SortRange::AtLeast(low) };
    let mut high = beginning(high);
    high.resize(SORT_KEY_MAX_BYTES, u8::MAX);
    SortRange::Between(low, Sort::Bytes(high))
}
