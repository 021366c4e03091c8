use crate::store::{Condition, Consistency, Item, Items, Key, ReadItems, StoreError, Table, Value, Write, WriteError};
use crate::sweep::{Interruption, SweepError};

const LAYOUT: i64 = 1;

/// A batch is about to be deleted: until this is cleared or has run out, no writer's lease is granted, so that every
/// lease is either seen by the run or granted after the batch, to a writer that then looks whether its files are there. Nor
/// is an Iceberg commit taken that updates the table's pointer in the catalog.
///
/// Item: pk `sweep#<table id>`, sk `fence`; `expires_at_ms`, `run_id`. Runs of tables that share a place fence each other's
/// leases, so it is the run that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFence {
    pub table_id: String,
    pub expires_at_ms: i64,
    pub run_id: String,
}

impl LeaseFence {
    fn key(table_id: &str) -> Key {
        Key::new(Table::Catalog, super::Lease::partition(table_id), "fence")
    }

    fn encode(&self) -> Item {
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("expires_at_ms".to_owned(), self.expires_at_ms.into()),
            ("run_id".to_owned(), self.run_id.as_str().into()),
        ])
    }

    /// Puts the fence, unless another run has one here: that one runs out by itself.
    pub async fn put(&self, items: &dyn Items, now_ms: i64) -> Result<(), SweepError> {
        let condition = Condition::AbsentOrAtMost { field: "expires_at_ms", value: now_ms };
        match items.put(&Self::key(&self.table_id), self.encode(), condition).await {
            Ok(()) => Ok(()),
            Err(WriteError::ConditionFailed { old: Some(old) })
                if old.get("run_id") == Some(&self.run_id.as_str().into()) =>
            {
                // Left over from our last batch: it lasts long enough, or is put anew once it has run out.
                Ok(())
            }
            Err(WriteError::ConditionFailed { .. }) => Err(Interruption::Contended("the leases of the table").into()),
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    /// Takes the fence away if it is this run's.
    pub async fn clear(&self, items: &dyn Items) -> Result<(), SweepError> {
        match items.delete(&Self::key(&self.table_id), Condition::equals("run_id", self.run_id.as_str())).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    /// Until when a table's fence holds, if it has one. One strong get.
    pub async fn expires_at_ms(items: &dyn ReadItems, table_id: &str) -> Result<Option<i64>, StoreError> {
        let item = items.get(&Self::key(table_id), Consistency::Strong).await?;
        Ok(item.and_then(|item| match item.get("expires_at_ms") {
            Some(Value::Int(expires_at_ms)) => Some(*expires_at_ms),
            // Whatever it is, it is no fence that anybody has put.
            _ => None,
        }))
    }

    /// The part of a transaction that demands that there is none.
    pub fn none(table_id: &str, now_ms: i64) -> Write {
        let condition = Condition::AbsentOrAtMost { field: "expires_at_ms", value: now_ms };
        Write::Check { key: Self::key(table_id), condition }
    }
}
