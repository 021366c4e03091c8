use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{Faults, lock};
use crate::limits;
use crate::store::items::{
    BatchGet, CancelReason, Condition, Consistency, Direction, ItemUsage, Items, Key, Page, Query, ReadItems, Sort,
    Table, TransactError, Write, WriteError, check_item_size, item_size_bytes,
};
use crate::store::{Item, StoreError, StoreErrorKind};

/// What is stored, and what was there before the last write (for stale reads).
#[derive(Debug, Default)]
struct Cell {
    now: Option<Item>,
    before: Option<Item>,
}

type Partition = BTreeMap<Sort, Cell>;

#[derive(Debug, Default)]
struct State {
    tables: BTreeMap<(Table, String), Partition>,
    usage: ItemUsage,
    /// Tokens of transactions that went through, with what they did.
    tokens: BTreeMap<String, Vec<Write>>,
}

impl State {
    fn cell(&self, key: &Key) -> Option<&Cell> {
        self.tables.get(&(key.table, key.pk.clone()))?.get(&key.sk)
    }

    fn stored(&self, key: &Key) -> Option<&Item> {
        self.cell(key)?.now.as_ref()
    }

    fn store(&mut self, key: &Key, item: Option<Item>) {
        let partition = self.tables.entry((key.table, key.pk.clone())).or_default();
        let cell = partition.entry(key.sk.clone()).or_default();
        cell.before = std::mem::replace(&mut cell.now, item);
    }
}

/// DynamoDB's behaviour in memory: conditions, cancellation reasons, pages of 1 MB, leftovers of batches.
#[derive(Debug)]
pub struct MemoryItems {
    state: Mutex<State>,
    faults: Arc<Faults>,
}

impl MemoryItems {
    pub fn new(faults: Arc<Faults>) -> Self {
        Self { state: Mutex::default(), faults }
    }

    /// Everything stored, for tests that look inside.
    pub fn dump(&self) -> BTreeMap<Key, Item> {
        let state = lock(&self.state);
        let mut all = BTreeMap::new();
        for ((table, pk), partition) in &state.tables {
            for (sk, cell) in partition {
                if let Some(item) = &cell.now {
                    all.insert(Key::new(*table, pk.clone(), sk.clone()), item.clone());
                }
            }
        }
        all
    }

    fn seen(&self, cell: Option<&Cell>, consistency: Consistency) -> Option<Item> {
        let cell = cell?;
        if consistency == Consistency::Eventual && self.faults.stale_reads() {
            cell.before.clone()
        } else {
            cell.now.clone()
        }
    }
}

fn read_half_units(bytes: usize, consistency: Consistency) -> u64 {
    let blocks = u64::try_from(bytes.max(1).div_ceil(4096)).unwrap_or(u64::MAX);
    if consistency == Consistency::Strong { blocks * 2 } else { blocks }
}

fn write_units(bytes: usize) -> u64 {
    u64::try_from(bytes.max(1).div_ceil(1024)).unwrap_or(u64::MAX)
}

fn write_size_bytes(key: &Key, old: Option<&Item>, new: Option<&Item>) -> usize {
    let size = |item: Option<&Item>| item.map_or(0, |item| item_size_bytes(key, item));
    size(old).max(size(new))
}

fn check_distinct(keys: &[&Key], most: usize, operation: &str) -> Result<(), StoreError> {
    let mut sorted = keys.to_vec();
    sorted.sort();
    sorted.dedup();
    if sorted.len() != keys.len() || keys.is_empty() || keys.len() > most {
        let message = format!("between 1 and {most} distinct keys are needed, {} given", keys.len());
        return Err(StoreError::new(StoreErrorKind::Invalid, operation, message));
    }
    Ok(())
}

#[async_trait]
impl ReadItems for MemoryItems {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError> {
        let lost = self.faults.enter(&format!("get {}", key.table.as_str()))?;
        let mut state = lock(&self.state);
        let item = self.seen(state.cell(key), consistency);
        state.usage.gets += 1;
        let size_bytes = item.as_ref().map_or(0, |item| item_size_bytes(key, item));
        state.usage.read_half_units += read_half_units(size_bytes, consistency);
        lost.map_or(Ok(item), Err)
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError> {
        let table = keys.first().map_or("", |key| key.table.as_str());
        let operation = format!("batch_get {table}");
        let lost = self.faults.enter(&operation)?;
        check_distinct(&keys.iter().collect::<Vec<_>>(), limits::BATCH_GET_MAX_KEYS, &operation)?;
        let mut state = lock(&self.state);
        state.usage.batch_gets += 1;
        let mut answer = BatchGet::default();
        let mut size_bytes = 0;
        for key in keys {
            let item = self.seen(state.cell(key), consistency);
            let item_bytes = item.as_ref().map_or(0, |item| item_size_bytes(key, item));
            if size_bytes + item_bytes > limits::BATCH_GET_MAX_BYTES {
                answer.unprocessed.push(key.clone());
                continue;
            }
            size_bytes += item_bytes;
            state.usage.read_half_units += read_half_units(item_bytes, consistency);
            if let Some(item) = item {
                answer.found.push((key.clone(), item));
            }
        }
        lost.map_or(Ok(answer), Err)
    }

    async fn query(&self, query: &Query) -> Result<Page, StoreError> {
        let lost = self.faults.enter(&format!("query {}", query.table.as_str()))?;
        let mut state = lock(&self.state);
        let mut page = Page::default();
        let mut size_bytes = 0;
        if let Some(partition) = state.tables.get(&(query.table, query.pk.clone())) {
            let mut cells: Vec<(&Sort, &Cell)> = partition.iter().collect();
            if query.direction == Direction::Descending {
                cells.reverse();
            }
            for (sort, cell) in cells {
                let passed = match (&query.start_after, query.direction) {
                    (None, _) => false,
                    (Some(after), Direction::Ascending) => sort <= after,
                    (Some(after), Direction::Descending) => sort >= after,
                };
                if passed || !query.range.contains(sort) {
                    continue;
                }
                let Some(item) = self.seen(Some(cell), query.consistency) else { continue };
                let key = Key::new(query.table, query.pk.clone(), sort.clone());
                size_bytes += item_size_bytes(&key, &item);
                page.items.push((key, item));
                if size_bytes >= limits::QUERY_PAGE_MAX_BYTES || Some(page.items.len()) == query.limit {
                    page.next = Some(sort.clone());
                    break;
                }
            }
        }
        state.usage.queries += 1;
        state.usage.read_half_units += read_half_units(size_bytes, query.consistency);
        lost.map_or(Ok(page), Err)
    }

    fn item_usage(&self) -> ItemUsage {
        lock(&self.state).usage
    }
}

#[async_trait]
impl Items for MemoryItems {
    async fn put(&self, key: &Key, item: Item, condition: Condition) -> Result<(), WriteError> {
        let lost = self.faults.enter(&format!("put {}", key.table.as_str()))?;
        check_item_size(key, &item)?;
        let mut state = lock(&self.state);
        state.usage.puts += 1;
        let old = state.stored(key).cloned();
        state.usage.write_units += write_units(write_size_bytes(key, old.as_ref(), Some(&item)));
        if !condition.holds(old.as_ref()) {
            return Err(WriteError::ConditionFailed { old });
        }
        state.store(key, Some(item));
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError> {
        let lost = self.faults.enter(&format!("delete {}", key.table.as_str()))?;
        let mut state = lock(&self.state);
        state.usage.deletes += 1;
        let old = state.stored(key).cloned();
        state.usage.write_units += write_units(write_size_bytes(key, old.as_ref(), None));
        if !condition.holds(old.as_ref()) {
            return Err(WriteError::ConditionFailed { old });
        }
        state.store(key, None);
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn batch_delete(&self, keys: &[Key]) -> Result<Vec<Key>, StoreError> {
        let table = keys.first().map_or("", |key| key.table.as_str());
        let operation = format!("batch_delete {table}");
        let lost = self.faults.enter(&operation)?;
        check_distinct(&keys.iter().collect::<Vec<_>>(), limits::BATCH_WRITE_MAX_KEYS, &operation)?;
        let mut state = lock(&self.state);
        state.usage.batch_deletes += 1;
        for key in keys {
            let old = state.stored(key).cloned();
            state.usage.write_units += write_units(write_size_bytes(key, old.as_ref(), None));
            state.store(key, None);
        }
        lost.map_or(Ok(Vec::new()), Err)
    }

    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        let table = writes.first().map_or("", |write| write.key().table.as_str());
        let operation = format!("transact {table}");
        let lost = self.faults.enter(&operation)?;
        check_distinct(
            &writes.iter().map(Write::key).collect::<Vec<_>>(),
            limits::TRANSACTION_MAX_ACTIONS,
            &operation,
        )?;
        let mut total_bytes = 0;
        for write in writes {
            if let Write::Put { key, item, .. } = write {
                total_bytes += check_item_size(key, item)?;
            }
        }
        if total_bytes > limits::TRANSACTION_MAX_BYTES {
            let message = format!("transaction of {total_bytes} bytes");
            return Err(StoreError::new(StoreErrorKind::TooLarge, operation, message).into());
        }
        let mut state = lock(&self.state);
        if let Some(done) = state.tokens.get(token) {
            if done.as_slice() == writes {
                return Ok(());
            }
            let message = "the token was used for another transaction";
            return Err(StoreError::new(StoreErrorKind::Invalid, operation, message).into());
        }
        state.usage.transactions += 1;
        let mut reasons = Vec::with_capacity(writes.len());
        for write in writes {
            let (key, condition, new) = match write {
                Write::Put { key, item, condition } => (key, condition, Some(item)),
                Write::Delete { key, condition } | Write::Check { key, condition } => (key, condition, None),
            };
            let old = state.stored(key).cloned();
            state.usage.write_units += 2 * write_units(write_size_bytes(key, old.as_ref(), new));
            reasons.push(if condition.holds(old.as_ref()) {
                CancelReason::None
            } else {
                CancelReason::ConditionFailed { old }
            });
        }
        if reasons.iter().any(|reason| *reason != CancelReason::None) {
            return Err(TransactError::Cancelled { reasons });
        }
        for write in writes {
            match write {
                Write::Put { key, item, .. } => state.store(key, Some(item.clone())),
                Write::Delete { key, .. } => state.store(key, None),
                Write::Check { .. } => {}
            }
        }
        state.tokens.insert(token.to_owned(), writes.to_vec());
        lost.map_or(Ok(()), |error| Err(error.into()))
    }
}
