use crate::store::{Condition, Consistency, DecodeError, Fields, Item, Items, Key, Table, WriteError};
use crate::sweep::{Interruption, SweepError};

const LAYOUT: i64 = 1;
/// A worker that renews less often than this has died.
pub const LEASE_MS: i64 = 120_000;
/// No delete is sent with less than this left.
pub const LEASE_MARGIN_MS: i64 = 30_000;

/// One run per table at a time. The epoch grows with every holder and is never reset, so that a worker which slept
/// through its lease finds out by its next renewal.
///
/// Item: pk `sweep#<table id>`, sk `lease`; `epoch`, `expires_at_ms`, `run_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub table_id: String,
    pub epoch: i64,
    pub expires_at_ms: i64,
    pub run_id: String,
}

impl Lease {
    pub fn partition(table_id: &str) -> String {
        format!("sweep#{table_id}")
    }

    fn key(table_id: &str) -> Key {
        Key::new(Table::Catalog, Self::partition(table_id), "lease")
    }

    fn encode(&self) -> Item {
        Item::from([
            ("schema_version".to_owned(), LAYOUT.into()),
            ("epoch".to_owned(), self.epoch.into()),
            ("expires_at_ms".to_owned(), self.expires_at_ms.into()),
            ("run_id".to_owned(), self.run_id.as_str().into()),
        ])
    }

    fn decode(table_id: &str, item: &Item) -> Result<Self, DecodeError> {
        item.check_layout(LAYOUT)?;
        Ok(Self {
            table_id: table_id.to_owned(),
            epoch: item.int("epoch")?,
            expires_at_ms: item.int("expires_at_ms")?,
            run_id: item.text("run_id")?.to_owned(),
        })
    }

    /// Takes the lease if it is free or has run out.
    pub async fn acquire(items: &dyn Items, table_id: &str, run_id: &str, now_ms: i64) -> Result<Self, SweepError> {
        let key = Self::key(table_id);
        let old = items.get(&key, Consistency::Strong).await?;
        let old = old.map(|item| Self::decode(table_id, &item)).transpose()?;
        if let Some(old) = &old
            && old.expires_at_ms > now_ms
        {
            return Err(Interruption::LeaseHeld { until_ms: old.expires_at_ms }.into());
        }
        let lease = Self {
            table_id: table_id.to_owned(),
            epoch: old.as_ref().map_or(1, |old| old.epoch.saturating_add(1)),
            expires_at_ms: now_ms.saturating_add(LEASE_MS),
            run_id: run_id.to_owned(),
        };
        let still_free = Condition::AbsentOrAtMost { field: "expires_at_ms", value: now_ms };
        let condition = match &old {
            None => Condition::All(vec![Condition::Absent, still_free]),
            Some(old) => Condition::All(vec![Condition::equals("epoch", old.epoch), still_free]),
        };
        match items.put(&key, lease.encode(), condition).await {
            Ok(()) => Ok(lease),
            Err(WriteError::ConditionFailed { .. }) => {
                Err(Interruption::LeaseHeld { until_ms: lease.expires_at_ms }.into())
            }
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    /// Extends the lease, or finds out that somebody else has it.
    pub async fn renew(&mut self, items: &dyn Items, now_ms: i64) -> Result<(), SweepError> {
        let renewed = Self { expires_at_ms: now_ms.saturating_add(LEASE_MS), ..self.clone() };
        let mine = Condition::equals("epoch", self.epoch);
        items.put(&Self::key(&self.table_id), renewed.encode(), mine).await?;
        *self = renewed;
        Ok(())
    }

    /// Gives the lease back; the item stays, so that the epoch goes on growing.
    pub async fn release(&self, items: &dyn Items) -> Result<(), SweepError> {
        let free = Self { expires_at_ms: 0, ..self.clone() };
        let mine = Condition::equals("epoch", self.epoch);
        match items.put(&Self::key(&self.table_id), free.encode(), mine).await {
            // Taken over already: nothing to give back.
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    /// Whether there is time for one more request under this lease.
    pub fn has_margin(&self, now_ms: i64) -> bool {
        self.expires_at_ms.saturating_sub(now_ms) >= LEASE_MARGIN_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;

    #[tokio::test]
    async fn one_holder_at_a_time_and_epochs_grow() {
        let items = MemoryWorld::new(0).items;
        let mut first = Lease::acquire(items.as_ref(), "t", "r1", 1000).await.unwrap();
        assert_eq!(Lease::decode("t", &first.encode()).unwrap(), first);
        let held = Lease::acquire(items.as_ref(), "t", "r2", 1000 + LEASE_MS - 1).await.unwrap_err();
        assert_eq!(held, Interruption::LeaseHeld { until_ms: 1000 + LEASE_MS }.into());
        first.renew(items.as_ref(), 2000).await.unwrap();
        let second = Lease::acquire(items.as_ref(), "t", "r2", 2000 + LEASE_MS).await.unwrap();
        assert_eq!(second.epoch, 2);
        assert_eq!(first.renew(items.as_ref(), 3000).await, Err(Interruption::LeaseLost.into()));
        first.release(items.as_ref()).await.unwrap();
        assert!(Lease::acquire(items.as_ref(), "t", "r3", 3000).await.is_err());
        second.release(items.as_ref()).await.unwrap();
        assert_eq!(Lease::acquire(items.as_ref(), "t", "r3", 3000).await.unwrap().epoch, 3);
    }
}
