use serde_json::{Map, Value as Json};

use crate::store::{Condition, Consistency, DecodeError, Fields, Item, Key, ReadItems, Table};
use crate::sweep::items::OptimizerReadError;

const LAYOUT: i64 = 1;

/// An optimizer that is kept for its owners and that no run comes of: types compaction and retention.
///
/// Item: pk `kept-optimizers#<table id>`, sk the type. The configuration is in the shape of the service model, defaults
/// filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOptimizer {
    pub table_id: String,
    pub kind: String,
    pub configuration: Map<String, Json>,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    /// Unique to each write.
    pub revision: String,
}

impl KeptOptimizer {
    pub fn partition(table_id: &str) -> String {
        format!("kept-optimizers#{table_id}")
    }

    pub fn key(table_id: &str, kind: &str) -> Key {
        Key::new(Table::Catalog, Self::partition(table_id), kind)
    }

    pub async fn load(items: &dyn ReadItems, table_id: &str, kind: &str) -> Result<Option<Self>, OptimizerReadError> {
        let item = items.get(&Self::key(table_id, kind), Consistency::Strong).await?;
        Ok(item.map(|item| Self::decode(table_id, kind, &item)).transpose()?)
    }

    pub fn encode(&self) -> Item {
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("configuration".to_owned(), Json::Object(self.configuration.clone()).to_string().into()),
            ("created_at_ms".to_owned(), self.created_at_ms.into()),
            ("updated_at_ms".to_owned(), self.updated_at_ms.into()),
            ("revision".to_owned(), self.revision.as_str().into()),
        ])
    }

    pub fn decode(table_id: &str, kind: &str, item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        let invalid = |error: serde_json::Error| DecodeError::Invalid {
            field: "configuration".to_owned(),
            message: error.to_string(),
        };
        Ok(Self {
            table_id: table_id.to_owned(),
            kind: kind.to_owned(),
            configuration: serde_json::from_str(item.text("configuration")?).map_err(invalid)?,
            created_at_ms: item.int("created_at_ms")?,
            updated_at_ms: item.int("updated_at_ms")?,
            revision: item.text("revision")?.to_owned(),
        })
    }

    /// The condition that nobody has written since this was read.
    pub fn unchanged(&self) -> Condition {
        Condition::equals("revision", self.revision.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn round_trip() {
        let configuration = json!({ "enabled": true, "compactionConfiguration": {} }).as_object().unwrap().clone();
        let kept = KeptOptimizer {
            table_id: "id".into(),
            kind: "compaction".into(),
            configuration,
            created_at_ms: 5,
            updated_at_ms: 6,
            revision: "x".into(),
        };
        assert_eq!(KeptOptimizer::decode("id", "compaction", &kept.encode()).unwrap(), kept);
        let mut damaged = kept.encode();
        damaged.insert("configuration".into(), "{".into());
        assert!(KeptOptimizer::decode("id", "compaction", &damaged).is_err());
    }
}
