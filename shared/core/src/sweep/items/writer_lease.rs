use serde_json::json;

use crate::store::{
    Condition, Consistency, DecodeError, Fields, Item, Items, Key, ObjectKey, Query, ReadItems, SortRange, Table,
    Value, WriteError,
};
use crate::sweep::SweepError;

const LAYOUT: i64 = 1;

/// What a writer has announced before it writes: beginnings of keys, or single keys. While it lasts, and one retention longer, no
/// sweep of the table touches anything there.
///
/// Item: pk `writer-leases#<table id>`, sk the lease's id; prefixes and keys as lists of `bucket` and `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterLease {
    pub table_id: String,
    pub lease_id: String,
    /// Who asked, as told.
    pub holder: Option<String>,
    /// Whatever begins like this.
    pub prefixes: Vec<ObjectKey>,
    pub keys: Vec<ObjectKey>,
    pub granted_ms: i64,
    pub expires_at_ms: i64,
    /// Unique to each write.
    pub revision: String,
}

impl WriterLease {
    pub fn partition(table_id: &str) -> String {
        format!("writer-leases#{table_id}")
    }

    pub fn key(table_id: &str, lease_id: &str) -> Key {
        Key::new(Table::Catalog, Self::partition(table_id), lease_id)
    }

    pub fn unchanged(&self) -> Condition {
        Condition::equals("revision", self.revision.as_str())
    }

    /// Strongly consistent.
    pub async fn load(items: &dyn ReadItems, table_id: &str, lease_id: &str) -> Result<Option<Self>, SweepError> {
        let item = items.get(&Self::key(table_id, lease_id), Consistency::Strong).await?;
        Ok(item.map(|item| Self::decode(table_id, lease_id, &item)).transpose()?)
    }

    /// Every lease of a table, those that have run out included. Strongly consistent.
    pub async fn load_all(items: &dyn ReadItems, table_id: &str) -> Result<Vec<Self>, SweepError> {
        let mut query = Query::new(Table::Catalog, Self::partition(table_id), SortRange::All);
        let mut leases = Vec::new();
        loop {
            let page = items.query(&query).await?;
            for (key, item) in &page.items {
                let lease_id = String::from_utf8_lossy(key.sk.as_bytes()).into_owned();
                leases.push(Self::decode(table_id, &lease_id, item)?);
            }
            query.start_after = page.next;
            if query.start_after.is_none() {
                return Ok(leases);
            }
        }
    }

    /// Removes a lease that has run out, unless its holder has just renewed it.
    pub async fn forget(&self, items: &dyn Items) -> Result<(), SweepError> {
        match items.delete(&Self::key(&self.table_id, &self.lease_id), self.unchanged()).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    pub fn encode(&self) -> Item {
        let pair = |bucket: &str, path: &str| Value::from(json!([bucket, path]).to_string());
        let prefixes = self.prefixes.iter().map(|at| pair(&at.bucket, &at.key));
        let keys = self.keys.iter().map(|at| pair(&at.bucket, &at.key));
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("holder".to_owned(), self.holder.as_deref().map_or(Value::Null, Value::from)),
            ("prefixes".to_owned(), Value::List(prefixes.collect())),
            ("keys".to_owned(), Value::List(keys.collect())),
            ("granted_ms".to_owned(), self.granted_ms.into()),
            ("expires_at_ms".to_owned(), self.expires_at_ms.into()),
            ("revision".to_owned(), self.revision.as_str().into()),
        ])
    }

    pub fn decode(table_id: &str, lease_id: &str, item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        let pairs = |field: &str| -> Result<Vec<(String, String)>, DecodeError> {
            let wrong = || DecodeError::WrongType { field: field.to_owned(), expected: "a list of pairs" };
            let Some(Value::List(list)) = item.get(field) else { return Err(wrong()) };
            let pair = |value: &Value| match value {
                Value::Text(text) => serde_json::from_str(text).map_err(|_| wrong()),
                _ => Err(wrong()),
            };
            list.iter().map(pair).collect()
        };
        let key = |(bucket, key): (String, String)| ObjectKey::new(bucket, key);
        Ok(Self {
            table_id: table_id.to_owned(),
            lease_id: lease_id.to_owned(),
            holder: item.opt_text("holder")?.map(str::to_owned),
            prefixes: pairs("prefixes")?.into_iter().map(key).collect(),
            keys: pairs("keys")?.into_iter().map(key).collect(),
            granted_ms: item.int("granted_ms")?,
            expires_at_ms: item.int("expires_at_ms")?,
            revision: item.text("revision")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let full = WriterLease {
            table_id: "id".into(),
            lease_id: "l".into(),
            holder: Some("job 7".into()),
            prefixes: vec![ObjectKey::new("b", "t/data/")],
            keys: vec![ObjectKey::new("b", "t//x \"é\"")],
            granted_ms: 5,
            expires_at_ms: 6,
            revision: "r".into(),
        };
        assert_eq!(WriterLease::decode("id", "l", &full.encode()).unwrap(), full);
        let bare = WriterLease { holder: None, prefixes: vec![], keys: vec![], ..full };
        assert_eq!(WriterLease::decode("id", "l", &bare.encode()).unwrap(), bare);
        let mut damaged = bare.encode();
        damaged.insert("keys".into(), Value::List(vec!["x".into()]));
        assert!(WriterLease::decode("id", "l", &damaged).is_err());
    }
}
