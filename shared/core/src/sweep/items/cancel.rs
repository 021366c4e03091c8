use crate::store::{Condition, Consistency, Item, Items, Key, ReadItems, StoreError, Table, WriteError};
use crate::sweep::SweepError;
use crate::sweep::items::Lease;

const LAYOUT: i64 = 1;

/// Somebody wants a run to stop. An item of its own, since the run's record belongs to its worker.
///
/// Item: pk `sweep#<table id>`, sk `cancel#<run id>`; `asked_ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    pub table_id: String,
    pub run_id: String,
    pub asked_ms: i64,
}

impl Cancellation {
    fn key(table_id: &str, run_id: &str) -> Key {
        Key::new(Table::Catalog, Lease::partition(table_id), format!("cancel#{run_id}"))
    }

    fn encode(&self) -> Item {
        Item::from([("schema_version".to_owned(), LAYOUT.into()), ("asked_ms".to_owned(), self.asked_ms.into())])
    }

    /// Asking twice changes nothing.
    pub async fn ask(&self, items: &dyn Items) -> Result<(), StoreError> {
        match items.put(&Self::key(&self.table_id, &self.run_id), self.encode(), Condition::Absent).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    pub async fn is_asked(items: &dyn ReadItems, table_id: &str, run_id: &str) -> Result<bool, SweepError> {
        Ok(items.get(&Self::key(table_id, run_id), Consistency::Strong).await?.is_some())
    }

    /// The run has ended.
    pub async fn forget(items: &dyn Items, table_id: &str, run_id: &str) -> Result<(), StoreError> {
        match items.delete(&Self::key(table_id, run_id), Condition::Always).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;

    #[tokio::test]
    async fn asked_for_once_until_the_run_has_ended() {
        let items = MemoryWorld::new(0).items;
        let asked = Cancellation { table_id: "t".into(), run_id: "r".into(), asked_ms: 5 };
        let is_asked = |run: &'static str| {
            let items = items.clone();
            async move { Cancellation::is_asked(items.as_ref(), "t", run).await.unwrap() }
        };
        assert!(!is_asked("r").await);
        asked.ask(items.as_ref()).await.unwrap();
        asked.ask(items.as_ref()).await.unwrap();
        assert!(is_asked("r").await && !is_asked("s").await);
        Cancellation::forget(items.as_ref(), "t", "r").await.unwrap();
        assert!(!is_asked("r").await);
    }
}
