use std::collections::BTreeSet;

use serde_json::json;

use crate::location::Location;
use crate::store::{
    Condition, DecodeError, Fields, Item, Items, Key, Query, ReadItems, SortRange, StoreError, Table, Value, WriteError,
};
use crate::sweep::SweepError;

const LAYOUT: i64 = 1;
const PLACES: &str = "sweep-places";
/// Folders of one item; a table with more may have files anywhere.
pub const PLACES_MAX: usize = 400;

/// Where a table has files outside its location, as of a state that a sweep has read. It tells later sweeps of other
/// tables whether they have to read that table as well.
///
/// Item: pk `sweep-places`, sk `<table id>`; `pointer`, `declared`, `elsewhere` (absent: anywhere).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePlaces {
    pub table_id: String,
    /// The state: a metadata file, or a version with the ETag of its commit.
    pub pointer: String,
    /// Where the table says, or once said, that it writes.
    pub declared: BTreeSet<Location>,
    /// Folders outside its location where it had files at that state; `None`: too many to tell.
    pub elsewhere: Option<BTreeSet<Location>>,
    /// Whether kept versions of its entry, and older metadata files, were looked through for places.
    pub has_past: bool,
    /// How far its partitions are noted by place.
    pub partitions: PartitionsNoted,
}

/// How far partitions that lie outside their table's location are in the index of locations. Those that are written now
/// are noted when they are; earlier ones are found by looking through all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionsNoted {
    #[default]
    No,
    /// Looked through at that moment, for the first time. A writer of an earlier version may have been at work still.
    Once {
        first_ms: i64,
    },
    Yes,
}

fn encode_folders(folders: &BTreeSet<Location>) -> Value {
    let pair = |folder: &Location| Value::from(json!([folder.bucket, folder.prefix]).to_string());
    Value::List(folders.iter().map(pair).collect())
}

fn decode_folders(item: &Item, field: &str) -> Result<BTreeSet<Location>, DecodeError> {
    let wrong = || DecodeError::WrongType { field: field.to_owned(), expected: "a list of pairs" };
    let Some(Value::List(list)) = item.get(field) else { return Err(wrong()) };
    let folder = |value: &Value| {
        let Value::Text(text) = value else { return Err(wrong()) };
        let (bucket, prefix): (String, String) = serde_json::from_str(text).map_err(|_| wrong())?;
        Ok(Location { bucket, prefix })
    };
    list.iter().map(folder).collect()
}

impl TablePlaces {
    /// Of a table whose files are not known yet.
    pub fn unread(table_id: &str) -> Self {
        Self {
            table_id: table_id.to_owned(),
            pointer: String::new(),
            declared: BTreeSet::new(),
            elsewhere: Some(BTreeSet::new()),
            has_past: false,
            partitions: PartitionsNoted::No,
        }
    }

    fn key(table_id: &str) -> Key {
        Key::new(Table::Catalog, PLACES, table_id)
    }

    /// What is known of all tables. Strongly consistent.
    pub async fn load_all(items: &dyn ReadItems) -> Result<Vec<Self>, SweepError> {
        let mut query = Query::new(Table::Catalog, PLACES, SortRange::All);
        let mut found = Vec::new();
        loop {
            let page = items.query(&query).await?;
            for (key, item) in &page.items {
                let table_id = String::from_utf8_lossy(key.sk.as_bytes()).into_owned();
                found.push(Self::decode(&table_id, item)?);
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                return Ok(found);
            }
        }
    }

    /// The last one to look wins: each saw the table as it was.
    pub async fn save(&self, items: &dyn Items) -> Result<(), StoreError> {
        match items.put(&Self::key(&self.table_id), self.encode(), Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    /// The table is gone.
    pub async fn forget(&self, items: &dyn Items) -> Result<(), StoreError> {
        match items.delete(&Self::key(&self.table_id), Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    /// Whether the table may have files inside a location, or writes there.
    pub fn reaches(&self, within: &Location) -> bool {
        let touches = |folder: &Location| within.may_contain(folder) || folder.may_contain(within);
        self.elsewhere.as_ref().is_none_or(|folders| folders.iter().any(touches))
            || self.declared.iter().any(|folder| within.may_contain(folder))
    }

    pub fn encode(&self) -> Item {
        let mut item = Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("pointer".to_owned(), self.pointer.as_str().into()),
            ("declared".to_owned(), encode_folders(&self.declared)),
            ("has_past".to_owned(), Value::Bool(self.has_past)),
        ]);
        match self.partitions {
            PartitionsNoted::No => {}
            PartitionsNoted::Once { first_ms } => _ = item.insert("partitions_first_ms".to_owned(), first_ms.into()),
            PartitionsNoted::Yes => _ = item.insert("partitions_noted".to_owned(), Value::Bool(true)),
        }
        if let Some(elsewhere) = &self.elsewhere {
            item.insert("elsewhere".to_owned(), encode_folders(elsewhere));
        }
        item
    }

    pub fn decode(table_id: &str, item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        let elsewhere = item.get("elsewhere").map(|_| decode_folders(item, "elsewhere")).transpose()?;
        Ok(Self {
            table_id: table_id.to_owned(),
            pointer: item.text("pointer")?.to_owned(),
            declared: decode_folders(item, "declared")?,
            elsewhere,
            has_past: matches!(item.get("has_past"), Some(Value::Bool(true))),
            partitions: match (item.get("partitions_noted"), item.opt_int("partitions_first_ms")?) {
                (Some(Value::Bool(true)), _) => PartitionsNoted::Yes,
                (_, Some(first_ms)) => PartitionsNoted::Once { first_ms },
                (_, None) => PartitionsNoted::No,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_reach() {
        let places = TablePlaces {
            table_id: "id".into(),
            pointer: "p".into(),
            declared: BTreeSet::from([Location::new("b", "shared")]),
            elsewhere: Some(BTreeSet::from([Location::new("b", "wh/t/data"), Location::new("b", "x")])),
            has_past: true,
            partitions: PartitionsNoted::Yes,
        };
        assert_eq!(TablePlaces::decode("id", &places.encode()).unwrap(), places);
        for partitions in [PartitionsNoted::No, PartitionsNoted::Once { first_ms: 7 }] {
            let places = TablePlaces { partitions, has_past: false, ..places.clone() };
            assert_eq!(TablePlaces::decode("id", &places.encode()).unwrap(), places);
        }
        let mut older = places.encode();
        older.retain(|name, _| !["has_past", "partitions_noted"].contains(&name.as_str()));
        let read = TablePlaces::decode("id", &older).unwrap();
        assert_eq!((read.has_past, read.partitions), (false, PartitionsNoted::No));
        for (within, expected) in [("wh/t", true), ("wh/t/data/day=1", true), ("wh/t2", false), ("shared", true)] {
            assert_eq!(places.reaches(&Location::new("b", within)), expected, "{within}");
        }
        let anywhere = TablePlaces { elsewhere: None, ..places };
        assert_eq!(TablePlaces::decode("id", &anywhere.encode()).unwrap(), anywhere);
        assert!(anywhere.reaches(&Location::new("other", "wh")));
    }
}
