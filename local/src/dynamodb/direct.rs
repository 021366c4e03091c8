//! Reading the embedded DynamoDB without its wire.
//!
//! The functions of the laptop run in the same process as the tables. Reads of many items would spend most of their time in
//! two clients' worth of HTTP and JSON, so they go to the crate's own interface instead: the same requests and the same
//! checks, without signing, sending and parsing. Queries of partitions go past the crate to its file ([`super::readers`]).
//! Writes, and everything that others read, stay on the wire.
//! The contract suite holds this to what it holds the adapter on the SDK to.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dynoxide::actions::batch_get_item::{BatchGetItemRequest, KeysAndAttributes};
use dynoxide::actions::get_item::GetItemRequest;
use dynoxide::actions::query::QueryRequest;
use dynoxide::types::{AttributeValue, ConsumedCapacity};
use dynoxide::{Database, DynoxideError};
use lakewarden_aws::{Form, TableNames, Taken, decode_item, encode_key, encode_range, take_key};
use lakewarden_core::limits;
use lakewarden_core::store::rules::{self, QueryStart};
use lakewarden_core::store::{
    BatchGet, Condition, Consistency, Direction, Item, ItemUsage, Items, Key, LateItem, LatePage, Page, Query,
    ReadItems, Sort, StoreError, StoreErrorKind, StoredItems, Table, TransactError, Write, WriteError,
};

use super::readers::{Readers, Rows, read_page};
use super::stored;

/// The tables as long as their server runs, for whoever is in the same process.
#[derive(Clone, Default)]
pub struct Tables(Arc<Mutex<Option<Open>>>);

/// Readers are closed first: the last connection to the file is then one that may tidy up.
#[derive(Clone)]
struct Open {
    readers: Option<Arc<Readers>>,
    database: Database,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tables")
    }
}

impl Tables {
    /// `path`: of their file, if they are in one.
    pub(super) fn of(database: &Database, path: Option<&Path>) -> Self {
        let readers = path.and_then(|path| match Readers::open(path) {
            Ok(readers) => Some(Arc::new(readers)),
            Err(error) => {
                tracing::warn!(%error, "items are read through the embedded DynamoDB, which takes longer");
                None
            }
        });
        Self(Arc::new(Mutex::new(Some(Open { readers, database: database.clone() }))))
    }

    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Items of these tables: read without the wire, written `through` it.
    pub fn items(&self, names: TableNames, through: Arc<dyn Items>) -> DirectItems {
        DirectItems { tables: self.clone(), names, through, usage: Arc::default() }
    }

    fn get(&self) -> Option<Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// [`Items`] that reads from the tables themselves, and writes `through` another.
#[derive(Clone)]
pub struct DirectItems {
    tables: Tables,
    names: TableNames,
    through: Arc<dyn Items>,
    usage: Arc<Mutex<ItemUsage>>,
}

impl fmt::Debug for DirectItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectItems").field("names", &self.names).finish_non_exhaustive()
    }
}

impl DirectItems {
    fn count(&self, change: impl FnOnce(&mut ItemUsage)) {
        change(&mut self.usage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The crate's calls block.
    async fn ask<T: Send + 'static>(
        &self,
        operation: &str,
        request: impl FnOnce(&Database) -> Result<T, DynoxideError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable =
            |why: &str| StoreError::new(StoreErrorKind::Unavailable, operation, format!("the embedded tables {why}"));
        let Open { database, .. } = self.tables.get().ok_or_else(|| unavailable("are closed"))?;
        let answer = tokio::task::spawn_blocking(move || request(&database)).await;
        answer.map_err(|error| unavailable(&error.to_string()))?.map_err(|error| refused(operation, &error))
    }

    /// Reads a page from the file itself and makes something of it. None if that has to be read through the crate.
    async fn read_page<T: Send + 'static>(
        &self,
        query: &Query,
        make: impl FnOnce(Rows) -> Option<T> + Send + 'static,
    ) -> Option<(T, u64)> {
        let readers = self.tables.get()?.readers.filter(|_| Readers::can_read(query))?;
        let (name, query) = (self.names.name(query.table), query.clone());
        let read = readers.read(move |connection| {
            let rows = read_page(connection, &name, &query)?;
            let half_units = rows.read_half_units;
            Ok(make(rows).map(|made| (made, half_units)))
        });
        match read.await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "rows of the embedded DynamoDB were not read directly");
                None
            }
        }
    }

    fn count_page(&self, items: usize, half_units: u64) {
        self.count(|usage| {
            usage.queries += 1;
            usage.items_read += u64::try_from(items).unwrap_or(u64::MAX);
            usage.read_half_units += half_units;
        });
    }

    fn charge(&self, capacity: &ConsumedCapacity) {
        let units = capacity.read_capacity_units.unwrap_or(capacity.capacity_units);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped and rounded just here")]
        let half_units = (units * 2.0).round().clamp(0.0, 1e15) as u64;
        self.count(|usage| usage.read_half_units += half_units);
    }

    fn table_of(&self, name: &str, operation: &str) -> Result<Table, StoreError> {
        Table::ALL.into_iter().find(|table| self.names.name(*table) == name).ok_or_else(|| {
            let message = format!("the answer is about the table `{name}`, which was not asked for");
            StoreError::new(StoreErrorKind::Invalid, operation, message)
        })
    }
}

fn refused(operation: &str, error: &DynoxideError) -> StoreError {
    let kind = match error {
        DynoxideError::ValidationException(_) | DynoxideError::ResourceNotFoundException(_) => StoreErrorKind::Invalid,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, operation, error.to_string())
}

const TOTAL: &str = "TOTAL";

#[async_trait]
impl ReadItems for DirectItems {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError> {
        let operation = format!("get {}", key.table.as_str());
        rules::check_key(key, &operation)?;
        self.count(|usage| usage.gets += 1);
        let request = GetItemRequest {
            table_name: self.names.name(key.table),
            key: encode_key::<Embedded>(key),
            consistent_read: Some(consistency == Consistency::Strong),
            return_consumed_capacity: Some(TOTAL.to_owned()),
            ..GetItemRequest::default()
        };
        let answer = self.ask(&operation, move |tables| tables.get_item(request)).await?;
        answer.consumed_capacity.iter().for_each(|capacity| self.charge(capacity));
        self.count(|usage| usage.items_read += u64::from(answer.item.is_some()));
        let item =
            answer.item.map(|attributes| decode_item::<Embedded>(&operation, key.table, attributes)).transpose()?;
        Ok(item.map(|(_, item)| item))
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError> {
        let operation = format!("batch_get {}", keys.first().map_or("", |key| key.table.as_str()));
        rules::check_keys(&keys.iter().collect::<Vec<_>>(), limits::BATCH_GET_MAX_KEYS, &operation)?;
        let mut request_items: HashMap<String, KeysAndAttributes> = HashMap::new();
        for key in keys {
            let of_table = request_items.entry(self.names.name(key.table)).or_default();
            of_table.consistent_read = Some(consistency == Consistency::Strong);
            of_table.keys.push(encode_key::<Embedded>(key));
        }
        let request = BatchGetItemRequest { request_items, return_consumed_capacity: Some(TOTAL.to_owned()) };
        self.count(|usage| usage.batch_gets += 1);
        let answer = self.ask(&operation, move |tables| tables.batch_get_item(request)).await?;
        answer.consumed_capacity.iter().flatten().for_each(|capacity| self.charge(capacity));
        let mut result = BatchGet::default();
        for (name, items) in answer.responses {
            let table = self.table_of(&name, &operation)?;
            for attributes in items {
                result.found.push(decode_item::<Embedded>(&operation, table, attributes)?);
            }
        }
        self.count(|usage| usage.items_read += u64::try_from(result.found.len()).unwrap_or(u64::MAX));
        if !answer.unprocessed_keys.is_empty() {
            let missing = |key: &&Key| !result.found.iter().any(|(found, _)| found == *key);
            // What is absent is among them, and is found to be so when it is asked for again by itself.
            result.unprocessed = keys.iter().filter(missing).cloned().collect();
        }
        Ok(result)
    }

    async fn query(&self, query: &Query) -> Result<Page, StoreError> {
        let operation = format!("query {}", query.table.as_str());
        query.check(&operation)?;
        let start = match query.start() {
            QueryStart::Beginning => None,
            QueryStart::After(after) => {
                Some(encode_key::<Embedded>(&Key::new(query.table, query.pk.clone(), after.clone())))
            }
            QueryStart::End => return Ok(Page::default()),
        };
        let (table, pk) = (query.table, query.pk.clone());
        if let Some((page, half_units)) = self.read_page(query, move |rows| decode_page(table, &pk, &rows)).await {
            self.count_page(page.items.len(), half_units);
            return Ok(page);
        }
        let range = encode_range::<Embedded>(query);
        let request = QueryRequest {
            table_name: self.names.name(query.table),
            key_condition_expression: range.text,
            expression_attribute_names: range.names,
            expression_attribute_values: range.values,
            exclusive_start_key: start,
            scan_index_forward: query.direction == Direction::Ascending,
            limit: query.limit,
            consistent_read: Some(query.consistency == Consistency::Strong),
            return_consumed_capacity: Some(TOTAL.to_owned()),
            ..QueryRequest::default()
        };
        self.count(|usage| usage.queries += 1);
        let answer = self.ask(&operation, move |tables| tables.query(request)).await?;
        answer.consumed_capacity.iter().for_each(|capacity| self.charge(capacity));
        let mut page = Page::default();
        for attributes in answer.items.unwrap_or_default() {
            page.items.push(decode_item::<Embedded>(&operation, query.table, attributes)?);
        }
        self.count(|usage| usage.items_read += u64::try_from(page.items.len()).unwrap_or(u64::MAX));
        if let Some(mut last) = answer.last_evaluated_key {
            page.next = Some(take_key::<Embedded>(&operation, query.table, &mut last)?.sk);
        }
        Ok(page)
    }

    async fn skim(&self, query: &Query, field: &'static str) -> Result<LatePage, StoreError> {
        let operation = format!("query {}", query.table.as_str());
        query.check(&operation)?;
        if query.start() == QueryStart::End {
            return Ok(LatePage::default());
        }
        let table = query.table;
        let skimmed = self.read_page(query, move |rows| skim_page(operation, table, rows, field)).await;
        if let Some((page, half_units)) = skimmed {
            self.count_page(page.items.len(), half_units);
            return Ok(page);
        }
        let page = self.query(query).await?;
        let items = page.items.into_iter().map(|(key, item)| (key.sk, LateItem::Decoded(item))).collect();
        Ok(LatePage { items, next: page.next })
    }

    /// Of both ways together.
    fn item_usage(&self) -> ItemUsage {
        let own = *self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        self.through.item_usage().plus(&own)
    }
}

#[async_trait]
impl Items for DirectItems {
    async fn put(&self, key: &Key, item: Item, condition: Condition) -> Result<(), WriteError> {
        self.through.put(key, item, condition).await
    }

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError> {
        self.through.delete(key, condition).await
    }

    async fn batch_delete(&self, keys: &[Key]) -> Result<Vec<Key>, StoreError> {
        self.through.batch_delete(keys).await
    }

    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        self.through.transact(writes, token).await
    }
}

fn decode_page(table: Table, pk: &str, rows: &Rows) -> Option<Page> {
    let mut page = Page { items: Vec::with_capacity(rows.rows.len()), next: rows.next.clone() };
    for row in &rows.rows {
        let item = stored::decode(table, rows.json(row)?)?;
        page.items.push((Key::new(table, pk, row.sk.clone()), item));
    }
    Some(page)
}

/// Rows of which the texts of one attribute are known.
#[derive(Debug)]
struct Skimmed {
    operation: String,
    table: Table,
    /// Their JSON, and behind it the texts.
    text: String,
    items: Vec<SkimmedItem>,
    /// Where the texts of all items are, in order.
    texts: Vec<Range<usize>>,
}

#[derive(Debug)]
struct SkimmedItem {
    json: Range<usize>,
    texts: Range<usize>,
}

impl StoredItems for Skimmed {
    fn texts(&self, at: usize) -> Vec<&str> {
        let texts = self.items.get(at).and_then(|item| self.texts.get(item.texts.clone())).unwrap_or_default();
        texts.iter().map(|text| self.text.get(text.clone()).unwrap_or_default()).collect()
    }

    fn item(&self, at: usize) -> Result<Item, StoreError> {
        let json = self.items.get(at).and_then(|item| self.text.get(item.json.clone())).unwrap_or_default();
        if let Some(item) = stored::decode(self.table, json) {
            return Ok(item);
        }
        let invalid = |message: String| StoreError::new(StoreErrorKind::Invalid, self.operation.as_str(), message);
        let attributes = serde_json::from_str::<HashMap<String, AttributeValue>>(json);
        let attributes = attributes.map_err(|error| invalid(format!("what is stored is no item: {error}")))?;
        decode_item::<Embedded>(&self.operation, self.table, attributes).map(|(_, item)| item)
    }
}

/// None if the texts of some item are not found.
fn skim_page(operation: String, table: Table, rows: Rows, field: &str) -> Option<LatePage> {
    let Rows { mut text, rows, next, .. } = rows;
    let (mut keys, mut items) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    let (mut texts, mut found) = (Vec::new(), String::new());
    for row in rows {
        let first = texts.len();
        stored::skim(text.get(row.start..row.end)?, field, |value| {
            let start = text.len() + found.len();
            found.push_str(value);
            texts.push(start..start + value.len());
        })?;
        keys.push(Sort::Bytes(row.sk));
        items.push(SkimmedItem { json: row.start..row.end, texts: first..texts.len() });
    }
    text.push_str(&found);
    let count = items.len();
    let page: Arc<dyn StoredItems> = Arc::new(Skimmed { operation, table, text, items, texts });
    let item = |at| LateItem::Stored { page: page.clone(), at };
    Some(LatePage { items: keys.into_iter().zip((0..count).map(item)).collect(), next })
}

/// The crate's form of values.
#[derive(Debug)]
enum Embedded {}

impl Form for Embedded {
    type Value = AttributeValue;

    fn text(text: String) -> AttributeValue {
        AttributeValue::S(text)
    }

    fn bytes(bytes: Vec<u8>) -> AttributeValue {
        AttributeValue::B(bytes)
    }

    fn take(value: AttributeValue) -> Taken<AttributeValue> {
        match value {
            AttributeValue::S(text) => Taken::Text(text),
            AttributeValue::N(number) => Taken::Number(number),
            AttributeValue::B(bytes) => Taken::Bytes(bytes),
            AttributeValue::BOOL(flag) => Taken::Flag(flag),
            AttributeValue::NULL(_) => Taken::Null,
            AttributeValue::L(values) => Taken::List(values),
            AttributeValue::M(map) => Taken::Map(map),
            AttributeValue::SS(_) | AttributeValue::NS(_) | AttributeValue::BS(_) => Taken::Foreign("a set"),
        }
    }
}
