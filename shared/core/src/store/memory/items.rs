use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{Faults, lock};
use crate::limits;
use crate::store::items::{
    BatchGet, CancelReason, Condition, Consistency, Direction, ItemUsage, Items, Key, Page, Query, ReadItems, Sort,
    SortRange, Table, TransactError, Write, WriteError, item_size_bytes,
};
use crate::store::rules::{self, QueryStart, read_half_units, write_units};
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
    /// Tokens of transactions that went through, with what they did and what reading it costs. They never expire here.
    tokens: BTreeMap<String, (Vec<Write>, u64)>,
}

impl State {
    fn cell(&self, key: &Key) -> Option<&Cell> {
        self.tables.get(&(key.table, key.pk.clone()))?.get(&key.sk)
    }

    fn stored(&self, key: &Key) -> Option<&Item> {
        self.cell(key)?.now.as_ref()
    }

    fn judge(&self, write: &Write) -> CancelReason {
        let (Write::Put { key, condition, .. } | Write::Delete { key, condition } | Write::Check { key, condition }) =
            write;
        let old = self.stored(key);
        if condition.holds(old) { CancelReason::None } else { CancelReason::ConditionFailed { old: old.cloned() } }
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

    /// Puts items without a request, for tests of large tables.
    #[cfg(test)]
    pub(crate) fn load(&self, items: impl IntoIterator<Item = (Key, Item)>) {
        let mut state = lock(&self.state);
        items.into_iter().for_each(|(key, item)| state.store(&key, Some(item)));
    }

    /// A page and the size of what it read.
    fn read_page(&self, state: &State, query: &Query, after: Option<&Sort>) -> (Page, usize) {
        let mut page = Page::default();
        let mut size_bytes = 0;
        let Some(partition) = state.tables.get(&(query.table, query.pk.clone())) else { return (page, 0) };
        let ascending = query.direction == Direction::Ascending;
        let low = match (after, &query.range) {
            (Some(after), _) if ascending => Bound::Excluded(after),
            (_, SortRange::Prefix(low) | SortRange::AtLeast(low) | SortRange::Between(low, _)) => Bound::Included(low),
            _ => Bound::Unbounded,
        };
        let high = match after {
            Some(after) if !ascending => Bound::Excluded(after),
            _ => Bound::Unbounded,
        };
        let in_order: Box<dyn Iterator<Item = (&Sort, &Cell)>> = match (low, high) {
            // The map refuses to look between ends that are the wrong way round.
            (Bound::Included(low), Bound::Excluded(high)) if low >= high => Box::new(std::iter::empty()),
            ends if ascending => Box::new(partition.range::<Sort, _>(ends)),
            ends => Box::new(partition.range::<Sort, _>(ends).rev()),
        };
        for (sort, cell) in in_order {
            if !query.range.contains(sort) {
                let behind =
                    matches!(&query.range, SortRange::Between(_, high) | SortRange::AtMost(high) if sort > high);
                let other = matches!(&query.range, SortRange::Prefix(_));
                if ascending && (behind || other) && low_reached(&query.range, sort) {
                    break;
                }
                continue;
            }
            let Some(item) = self.seen(Some(cell), query.consistency) else { continue };
            let key = Key::new(query.table, query.pk.clone(), sort.clone());
            let item_bytes = item_size_bytes(&key, &item);
            if size_bytes + item_bytes > limits::QUERY_PAGE_MAX_BYTES && !page.items.is_empty() {
                page.next = page.items.last().map(|(key, _)| key.sk.clone());
                break;
            }
            size_bytes += item_bytes;
            page.items.push((key, item));
            if Some(page.items.len()) == query.limit {
                page.next = Some(sort.clone());
                break;
            }
        }
        (page, size_bytes)
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

/// Whether a sort key lies at or above the lower end of a range, so that what follows it cannot come back into it.
fn low_reached(range: &SortRange, sort: &Sort) -> bool {
    match range {
        SortRange::All | SortRange::AtMost(_) => true,
        SortRange::Prefix(low) | SortRange::AtLeast(low) | SortRange::Between(low, _) => low <= sort,
    }
}

#[async_trait]
impl ReadItems for MemoryItems {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError> {
        let operation = format!("get {}", key.table.as_str());
        let lost = self.faults.enter(&operation)?;
        rules::check_key(key, &operation)?;
        let mut state = lock(&self.state);
        let item = self.seen(state.cell(key), consistency);
        state.usage.gets += 1;
        let size_bytes = item.as_ref().map_or(0, |item| item_size_bytes(key, item));
        state.usage.read_half_units += read_half_units(size_bytes, consistency);
        state.usage.items_read += u64::from(item.is_some());
        lost.map_or(Ok(item), Err)
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError> {
        let table = keys.first().map_or("", |key| key.table.as_str());
        let operation = format!("batch_get {table}");
        let lost = self.faults.enter(&operation)?;
        rules::check_keys(&keys.iter().collect::<Vec<_>>(), limits::BATCH_GET_MAX_KEYS, &operation)?;
        let mut state = lock(&self.state);
        state.usage.batch_gets += 1;
        let mut answer = BatchGet::default();
        let mut size_bytes = 0;
        for key in keys {
            let item = self.seen(state.cell(key), consistency);
            let item_bytes = item.as_ref().map_or(0, |item| item_size_bytes(key, item));
            if !answer.unprocessed.is_empty() || size_bytes + item_bytes > limits::BATCH_GET_MAX_BYTES {
                answer.unprocessed.push(key.clone());
                continue;
            }
            size_bytes += item_bytes;
            state.usage.read_half_units += read_half_units(item_bytes, consistency);
            if let Some(item) = item {
                answer.found.push((key.clone(), item));
            }
        }
        state.usage.items_read += answer.found.len() as u64;
        lost.map_or(Ok(answer), Err)
    }

    async fn query(&self, query: &Query) -> Result<Page, StoreError> {
        let operation = format!("query {}", query.table.as_str());
        let lost = self.faults.enter(&operation)?;
        query.check(&operation)?;
        let after = match query.start() {
            QueryStart::Beginning => None,
            QueryStart::After(after) => Some(after),
            QueryStart::End => return lost.map_or(Ok(Page::default()), Err),
        };
        let mut state = lock(&self.state);
        let (page, size_bytes) = self.read_page(&state, query, after);
        state.usage.queries += 1;
        state.usage.items_read += page.items.len() as u64;
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
        let operation = format!("put {}", key.table.as_str());
        let lost = self.faults.enter(&operation)?;
        rules::check_put(key, &item, &condition, &operation)?;
        let mut state = lock(&self.state);
        state.usage.puts += 1;
        let old = state.stored(key).cloned();
        state.usage.write_units += write_units(key, old.as_ref(), Some(&item));
        if !condition.holds(old.as_ref()) {
            return Err(WriteError::ConditionFailed { old });
        }
        state.store(key, Some(item));
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError> {
        let operation = format!("delete {}", key.table.as_str());
        let lost = self.faults.enter(&operation)?;
        rules::check_key(key, &operation)?;
        rules::check_condition(key.table, &condition, &operation)?;
        let mut state = lock(&self.state);
        state.usage.deletes += 1;
        let old = state.stored(key).cloned();
        state.usage.write_units += write_units(key, old.as_ref(), None);
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
        rules::check_keys(&keys.iter().collect::<Vec<_>>(), limits::BATCH_WRITE_MAX_KEYS, &operation)?;
        let mut state = lock(&self.state);
        state.usage.batch_deletes += 1;
        for key in keys {
            let old = state.stored(key).cloned();
            state.usage.write_units += write_units(key, old.as_ref(), None);
            state.store(key, None);
        }
        lost.map_or(Ok(Vec::new()), Err)
    }

    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        let table = writes.first().map_or("", |write| write.key().table.as_str());
        let operation = format!("transact {table}");
        let lost = self.faults.enter(&operation)?;
        rules::check_transaction(writes, token, &operation)?;
        let mut state = lock(&self.state);
        state.usage.transactions += 1;
        if let Some((done, replay_half_units)) = state.tokens.get(token) {
            if done.as_slice() != writes {
                let message = "the token was used for another transaction";
                return Err(StoreError::new(StoreErrorKind::Invalid, operation, message).into());
            }
            state.usage.read_half_units += *replay_half_units;
            return lost.map_or(Ok(()), |error| Err(error.into()));
        }
        let reasons: Vec<CancelReason> = writes.iter().map(|write| state.judge(write)).collect();
        if reasons.iter().any(|reason| *reason != CancelReason::None) {
            state.usage.write_units += rules::cancelled_write_units(writes, &reasons);
            return Err(TransactError::Cancelled { reasons });
        }
        let mut replay_half_units = 0;
        for write in writes {
            let old = state.stored(write.key()).cloned();
            state.usage.write_units += 2 * write_units(write.key(), old.as_ref(), write.new_item());
            let size_bytes = rules::image_size_bytes(write.key(), old.as_ref(), write.new_item());
            replay_half_units += 2 * read_half_units(size_bytes, Consistency::Strong);
            match write {
                Write::Put { key, item, .. } => state.store(key, Some(item.clone())),
                Write::Delete { key, .. } => state.store(key, None),
                Write::Check { .. } => {}
            }
        }
        state.tokens.insert(token.to_owned(), (writes.to_vec(), replay_half_units));
        lost.map_or(Ok(()), |error| Err(error.into()))
    }
}
