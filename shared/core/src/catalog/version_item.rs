//! Items of a table's earlier versions. `catalog`, pk `table#<table id>`, sk `version#<number>`: the definition's item as
//! it was, word for word, so that a body on S3 is shared with it. And how many of them were deleted: sk
//! `versions-deleted`.

use super::{Revision, TableId, table_definition_item};
use crate::store::{DecodeError, Fields, Item, Key, Sort, Table, Value};

const SCHEMA_VERSION: i64 = 1;
const PREFIX: &str = "version#";
/// Digits of a number, so that order of text is order of numbers.
const DIGITS: usize = 20;

fn sort(version: i64) -> String {
    format!("{PREFIX}{version:0DIGITS$}")
}

pub(super) fn key(table: &TableId, version: i64) -> Key {
    Key::new(Table::Catalog, table_definition_item::items_of(table), sort(version))
}

/// Range keys of versions before this one; no item of another kind lies in between.
pub(super) fn before(version: i64) -> (Sort, Sort) {
    (PREFIX.into(), sort(version.saturating_sub(1)).into())
}

/// How many versions of a table were deleted by its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeletedVersions {
    pub(super) count: i64,
    pub(super) revision: Revision,
}

pub(super) fn deleted_key(table: &TableId) -> Key {
    Key::new(Table::Catalog, table_definition_item::items_of(table), "versions-deleted")
}

pub(super) fn encode_deleted(deleted: &DeletedVersions) -> Item {
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("count".to_owned(), Value::Int(deleted.count)),
        ("revision".to_owned(), (&deleted.revision).into()),
    ])
}

pub(super) fn decode_deleted(item: &Item) -> Result<DeletedVersions, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    Ok(DeletedVersions { count: item.int("count")?, revision: Revision::from_text(item.text("revision")?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order_of_their_numbers() {
        let id = TableId::from_text("t");
        let versions = [0, 1, 9, 10, 99_999, 100_000, i64::MAX];
        let keys = versions.map(|version| key(&id, version));
        assert!(keys.is_sorted());
        let (low, high) = before(100_000);
        let inside = |key: &Key| low <= key.sk && key.sk <= high;
        assert_eq!(keys.iter().filter(|key| inside(key)).count(), 5);
        assert!(!inside(&deleted_key(&id)) && !inside(&table_definition_item::key(&id)));
    }

    #[test]
    fn counts_come_back() {
        let deleted = DeletedVersions { count: 7, revision: Revision::from_text("r") };
        assert_eq!(decode_deleted(&encode_deleted(&deleted)).unwrap(), deleted);
    }
}
