use async_trait::async_trait;
use thiserror::Error;

use super::{Clock, Item, LateItem, LatePage, StoreError, StoreErrorKind, Value};
use crate::limits;

/// The four tables of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Catalog,
    Partitions,
    Commits,
    /// Version claims in the layout of Delta's S3DynamoDBLogStore, shared with its writers.
    DeltaLog,
}

impl Table {
    pub const ALL: [Table; 4] = [Table::Catalog, Table::Partitions, Table::Commits, Table::DeltaLog];

    /// Name without the deployment's prefix.
    pub fn as_str(self) -> &'static str {
        match self {
            Table::Catalog => "catalog",
            Table::Partitions => "partitions",
            Table::Commits => "commits",
            Table::DeltaLog => "delta_log",
        }
    }

    /// Name of the hash key attribute; always text.
    pub fn hash_attribute(self) -> &'static str {
        if self == Table::DeltaLog { "tablePath" } else { "pk" }
    }

    /// Name of the range key attribute.
    pub fn range_attribute(self) -> &'static str {
        if self == Table::DeltaLog { "fileName" } else { "sk" }
    }

    /// Whether the range key is binary (else text).
    pub fn has_binary_range(self) -> bool {
        self == Table::Partitions
    }
}

/// A range key. Order is byte order, for text as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    Text(String),
    Bytes(Vec<u8>),
}

impl Sort {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Sort::Text(text) => text.as_bytes(),
            Sort::Bytes(bytes) => bytes,
        }
    }
}

impl From<&str> for Sort {
    fn from(text: &str) -> Self {
        Sort::Text(text.to_owned())
    }
}
impl From<String> for Sort {
    fn from(text: String) -> Self {
        Sort::Text(text)
    }
}
impl From<Vec<u8>> for Sort {
    fn from(bytes: Vec<u8>) -> Self {
        Sort::Bytes(bytes)
    }
}

/// Where an item is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub table: Table,
    pub pk: String,
    pub sk: Sort,
}

impl Key {
    pub fn new(table: Table, pk: impl Into<String>, sk: impl Into<Sort>) -> Self {
        Self { table, pk: pk.into(), sk: sk.into() }
    }
}

/// Every read states it. The embedded server cannot tell the difference, the in-memory port can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    Strong,
    Eventual,
}

/// What must hold for a write to happen. A closed set, so that every store can be tested on all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// No item with this key.
    Absent,
    /// Some item with this key.
    Present,
    /// The item is there and its attribute has this value.
    Equals {
        field: &'static str,
        value: Value,
    },
    /// No item with this key, or its attribute (a number) is at most `value`: leases that have run out.
    AbsentOrAtMost {
        field: &'static str,
        value: i64,
    },
    All(Vec<Condition>),
}

impl Condition {
    pub fn equals(field: &'static str, value: impl Into<Value>) -> Self {
        Condition::Equals { field, value: value.into() }
    }

    /// Whether the condition holds for what is stored now.
    pub fn holds(&self, stored: Option<&Item>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => stored.is_none(),
            Condition::Present => stored.is_some(),
            Condition::Equals { field, value } => stored.and_then(|item| item.get(*field)) == Some(value),
            Condition::AbsentOrAtMost { field, value } => match stored {
                None => true,
                Some(item) => matches!(item.get(*field), Some(Value::Int(found)) if found <= value),
            },
            Condition::All(conditions) => conditions.iter().all(|condition| condition.holds(stored)),
        }
    }
}

/// One action of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put {
        key: Key,
        item: Item,
        condition: Condition,
    },
    Delete {
        key: Key,
        condition: Condition,
    },
    /// Nothing is written; the transaction is refused unless the condition holds.
    Check {
        key: Key,
        condition: Condition,
    },
}

impl Write {
    pub fn key(&self) -> &Key {
        match self {
            Write::Put { key, .. } | Write::Delete { key, .. } | Write::Check { key, .. } => key,
        }
    }

    /// What the action leaves behind, if it puts something.
    pub fn new_item(&self) -> Option<&Item> {
        if let Write::Put { item, .. } = self { Some(item) } else { None }
    }
}

/// A single write failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The condition did not hold; what was there comes along, so that the loser knows why without a second read.
    #[error("the condition did not hold")]
    ConditionFailed { old: Option<Item> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why one action of a cancelled transaction did not go through; in the order of the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// This action was fine.
    None,
    ConditionFailed {
        old: Option<Item>,
    },
    /// Another transaction was at work on this item: try again.
    Conflict,
    Other(String),
}

/// A transaction failed; nothing of it was written, unless the error is `Store` of kind `Unavailable`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransactError {
    #[error("the transaction was cancelled: {reasons:?}")]
    Cancelled { reasons: Vec<CancelReason> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which range keys a query reads. What DynamoDB can express and nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortRange {
    All,
    Prefix(Sort),
    /// Both ends included.
    Between(Sort, Sort),
    AtLeast(Sort),
    AtMost(Sort),
}

impl SortRange {
    pub fn contains(&self, sort: &Sort) -> bool {
        match self {
            SortRange::All => true,
            SortRange::Prefix(prefix) => sort.as_bytes().starts_with(prefix.as_bytes()),
            SortRange::Between(low, high) => low <= sort && sort <= high,
            SortRange::AtLeast(low) => low <= sort,
            SortRange::AtMost(high) => sort <= high,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

/// One page of one partition key, in order of the range key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub table: Table,
    pub pk: String,
    pub range: SortRange,
    pub direction: Direction,
    /// At most so many items; a page also ends at 1 MB of items read.
    pub limit: Option<usize>,
    /// Continue behind this range key (which need not exist any more).
    pub start_after: Option<Sort>,
    pub consistency: Consistency,
}

impl Query {
    /// The whole partition, ascending, strongly consistent.
    pub fn new(table: Table, pk: impl Into<String>, range: SortRange) -> Self {
        Self {
            table,
            pk: pk.into(),
            range,
            direction: Direction::Ascending,
            limit: None,
            start_after: None,
            consistency: Consistency::Strong,
        }
    }
}

/// A page of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<(Key, Item)>,
    /// Where to continue; absent only at the end. May be there although nothing follows.
    pub next: Option<Sort>,
}

/// An answer to a batch get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchGet {
    /// Found items, in no particular order.
    pub found: Vec<(Key, Item)>,
    /// Keys that were not looked at; ask again.
    pub unprocessed: Vec<Key>,
}

/// What the item store has been asked so far. Integers, so that tests can pin them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemUsage {
    pub gets: u64,
    pub batch_gets: u64,
    pub queries: u64,
    pub puts: u64,
    pub deletes: u64,
    pub batch_deletes: u64,
    pub transactions: u64,
    /// Items that gets, batch gets and queries answered with.
    pub items_read: u64,
    /// Read capacity in half units (an eventually consistent read of up to 4 KB is one).
    pub read_half_units: u64,
    /// Write capacity. What a failed condition or a cancelled transaction costs is not reported by DynamoDB; it is
    /// counted by its rule from the items that are known.
    pub write_units: u64,
}

impl ItemUsage {
    pub fn plus(&self, other: &ItemUsage) -> ItemUsage {
        ItemUsage {
            gets: self.gets + other.gets,
            batch_gets: self.batch_gets + other.batch_gets,
            queries: self.queries + other.queries,
            puts: self.puts + other.puts,
            deletes: self.deletes + other.deletes,
            batch_deletes: self.batch_deletes + other.batch_deletes,
            transactions: self.transactions + other.transactions,
            items_read: self.items_read + other.items_read,
            read_half_units: self.read_half_units + other.read_half_units,
            write_units: self.write_units + other.write_units,
        }
    }

    pub fn since(&self, earlier: &ItemUsage) -> ItemUsage {
        ItemUsage {
            gets: self.gets - earlier.gets,
            batch_gets: self.batch_gets - earlier.batch_gets,
            queries: self.queries - earlier.queries,
            puts: self.puts - earlier.puts,
            deletes: self.deletes - earlier.deletes,
            batch_deletes: self.batch_deletes - earlier.batch_deletes,
            transactions: self.transactions - earlier.transactions,
            items_read: self.items_read - earlier.items_read,
            read_half_units: self.read_half_units - earlier.read_half_units,
            write_units: self.write_units - earlier.write_units,
        }
    }
}

/// Reading items. A function that only reads is given nothing else.
#[async_trait]
pub trait ReadItems: Send + Sync {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError>;

    /// Up to [`limits::BATCH_GET_MAX_KEYS`] distinct keys, of any tables.
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError>;

    async fn query(&self, query: &Query) -> Result<Page, StoreError>;

    /// The same for those who look at one attribute of most items, a list of texts, and at nothing else of them. It costs
    /// and answers the same; an item that cannot be decoded is an error once somebody wants it.
    async fn skim(&self, query: &Query, _field: &'static str) -> Result<LatePage, StoreError> {
        let page = self.query(query).await?;
        let items = page.items.into_iter().map(|(key, item)| (key.sk, LateItem::Decoded(item))).collect();
        Ok(LatePage { items, next: page.next })
    }

    fn item_usage(&self) -> ItemUsage;
}

/// Reading and writing items.
#[async_trait]
pub trait Items: ReadItems {
    async fn put(&self, key: &Key, item: Item, condition: Condition) -> Result<(), WriteError>;

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError>;

    /// Unconditional; up to [`limits::BATCH_WRITE_MAX_KEYS`] distinct keys; answers the keys not deleted yet.
    async fn batch_delete(&self, keys: &[Key]) -> Result<Vec<Key>, StoreError>;

    /// All or nothing; 1 to [`limits::TRANSACTION_MAX_ACTIONS`] actions on distinct keys. The same token within ten
    /// minutes, with the same actions, is carried out once.
    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError>;
}

/// Size of an item as DynamoDB counts it: names and values, in bytes.
pub fn item_size_bytes(key: &Key, item: &Item) -> usize {
    let attributes: usize = item.iter().map(|(name, value)| name.len() + value_size_bytes(value)).sum();
    key.table.hash_attribute().len()
        + key.pk.len()
        + key.table.range_attribute().len()
        + key.sk.as_bytes().len()
        + attributes
}

fn value_size_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        // Two significant digits a byte, one byte more, one for the sign; trailing zeros are not stored.
        Value::Int(number) => {
            let digits = number.unsigned_abs().to_string();
            digits.trim_end_matches('0').len().div_ceil(2) + 1 + usize::from(*number < 0)
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::Bool(_) | Value::Null => 1,
        Value::List(values) => 3 + values.iter().map(|value| 1 + value_size_bytes(value)).sum::<usize>(),
        Value::Map(map) => 3 + map.iter().map(|(name, value)| 1 + name.len() + value_size_bytes(value)).sum::<usize>(),
    }
}

/// Refuses an item above DynamoDB's limit.
pub fn check_item_size(key: &Key, item: &Item) -> Result<usize, StoreError> {
    let size_bytes = item_size_bytes(key, item);
    if size_bytes > limits::ITEM_MAX_BYTES {
        return Err(StoreError::new(
            StoreErrorKind::TooLarge,
            format!("put {}", key.table.as_str()),
            format!("item of {size_bytes} bytes; at most {} are allowed", limits::ITEM_MAX_BYTES),
        ));
    }
    Ok(size_bytes)
}

/// Reads all of `keys` (any number; duplicates once), asking again for what was left over, with back-off.
pub async fn get_every(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    keys: &[Key],
    consistency: Consistency,
) -> Result<std::collections::BTreeMap<Key, Item>, StoreError> {
    let mut wanted: Vec<Key> = keys.to_vec();
    wanted.sort();
    wanted.dedup();
    let mut found = std::collections::BTreeMap::new();
    let mut wait_ms = 20;
    while !wanted.is_empty() {
        let batch: Vec<Key> = wanted.drain(..wanted.len().min(limits::BATCH_GET_MAX_KEYS)).collect();
        let answer = items.batch_get(&batch, consistency).await?;
        let progress = !answer.found.is_empty() || answer.unprocessed.len() < batch.len();
        found.extend(answer.found);
        wanted.extend(answer.unprocessed);
        if progress {
            wait_ms = 20;
        } else if wait_ms > 10_000 {
            return Err(StoreError::new(StoreErrorKind::Throttled, "batch get", "no progress after several attempts"));
        } else {
            clock.sleep_ms(wait_ms).await;
            wait_ms *= 2;
        }
    }
    Ok(found)
}
