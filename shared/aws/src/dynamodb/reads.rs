use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnConsumedCapacity};
use lakewarden_core::limits;
use lakewarden_core::store::rules::{self, QueryStart};
use lakewarden_core::store::{
    BatchGet, Consistency, Direction, Item, ItemUsage, Key, Page, Query, ReadItems, StoreError, StoreErrorKind,
};

use super::attributes::{Sdk, decode_item, encode_key, take_key};
use super::expressions::encode_range;
use super::{Axis, DynamoItems};
use crate::errors::{chain, store_error};

#[async_trait]
impl ReadItems for DynamoItems {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, StoreError> {
        let operation = format!("get {}", key.table.as_str());
        rules::check_key(key, &operation)?;
        let table = self.tables.name(key.table);
        self.usage.count(|usage| usage.gets += 1);
        let answer = self
            .client
            .get_item()
            .table_name(&table)
            .set_key(Some(encode_key::<Sdk>(key)))
            .consistent_read(consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| store_error(&operation, &table, &error))?;
        self.charge(answer.consumed_capacity(), Axis::Read);
        self.usage.count(|usage| usage.items_read += u64::from(answer.item.is_some()));
        let item = answer.item.map(|attributes| decode_item::<Sdk>(&operation, key.table, attributes)).transpose()?;
        Ok(item.map(|(_, item)| item))
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<BatchGet, StoreError> {
        let operation = format!("batch_get {}", keys.first().map_or("", |key| key.table.as_str()));
        rules::check_keys(&keys.iter().collect::<Vec<_>>(), limits::BATCH_GET_MAX_KEYS, &operation)?;
        let requests = self.batch_requests(keys, consistency, &operation)?;
        let names = requests.keys().cloned().collect::<Vec<_>>().join(", ");
        self.usage.count(|usage| usage.batch_gets += 1);
        let answer = self
            .client
            .batch_get_item()
            .set_request_items(Some(requests))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| store_error(&operation, &names, &error))?;
        self.charge(answer.consumed_capacity(), Axis::Read);
        let mut result = BatchGet::default();
        for (name, items) in answer.responses.unwrap_or_default() {
            let table = self.known(&name, &operation)?;
            for attributes in items {
                result.found.push(decode_item::<Sdk>(&operation, table, attributes)?);
            }
        }
        self.usage.count(|usage| usage.items_read += result.found.len() as u64);
        for (name, left) in answer.unprocessed_keys.unwrap_or_default() {
            let table = self.known(&name, &operation)?;
            for mut attributes in left.keys {
                result.unprocessed.push(take_key::<Sdk>(&operation, table, &mut attributes)?);
            }
        }
        Ok(result)
    }

    async fn query(&self, query: &Query) -> Result<Page, StoreError> {
        let operation = format!("query {}", query.table.as_str());
        query.check(&operation)?;
        let start = match query.start() {
            QueryStart::Beginning => None,
            QueryStart::After(after) => {
                Some(encode_key::<Sdk>(&Key::new(query.table, query.pk.clone(), after.clone())))
            }
            QueryStart::End => return Ok(Page::default()),
        };
        let table = self.tables.name(query.table);
        let range = encode_range::<Sdk>(query);
        let limit = query.limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
        self.usage.count(|usage| usage.queries += 1);
        let answer = self
            .client
            .query()
            .table_name(&table)
            .set_key_condition_expression(range.text)
            .set_expression_attribute_names(range.names)
            .set_expression_attribute_values(range.values)
            .scan_index_forward(query.direction == Direction::Ascending)
            .set_limit(limit)
            .set_exclusive_start_key(start)
            .consistent_read(query.consistency == Consistency::Strong)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| store_error(&operation, &table, &error))?;
        self.charge(answer.consumed_capacity(), Axis::Read);
        let mut page = Page::default();
        for attributes in answer.items.unwrap_or_default() {
            page.items.push(decode_item::<Sdk>(&operation, query.table, attributes)?);
        }
        self.usage.count(|usage| usage.items_read += page.items.len() as u64);
        if let Some(mut last) = answer.last_evaluated_key {
            page.next = Some(take_key::<Sdk>(&operation, query.table, &mut last)?.sk);
        }
        Ok(page)
    }

    fn item_usage(&self) -> ItemUsage {
        self.usage.read()
    }
}

impl DynamoItems {
    fn batch_requests(
        &self,
        keys: &[Key],
        consistency: Consistency,
        operation: &str,
    ) -> Result<HashMap<String, KeysAndAttributes>, StoreError> {
        let mut builders = HashMap::new();
        for key in keys {
            let builder = builders.remove(&key.table).unwrap_or_else(KeysAndAttributes::builder);
            builders.insert(key.table, builder.keys(encode_key::<Sdk>(key)));
        }
        let requests = builders.into_iter().map(|(table, builder)| {
            let request = builder.consistent_read(consistency == Consistency::Strong).build();
            let request = request.map_err(|error| unbuilt(operation, &error))?;
            Ok((self.tables.name(table), request))
        });
        requests.collect()
    }

    pub(super) fn known(&self, name: &str, operation: &str) -> Result<lakewarden_core::store::Table, StoreError> {
        self.table_of(name).ok_or_else(|| {
            let message = format!("the answer is about the table `{name}`, which was not asked for");
            StoreError::new(StoreErrorKind::Invalid, operation, message)
        })
    }
}

/// A request that the SDK would not put together.
pub(super) fn unbuilt(operation: &str, error: &(dyn std::error::Error + 'static)) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, operation, chain(error))
}
