use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::error::ConditionalCheckFailedException;
use aws_sdk_dynamodb::types::{
    DeleteRequest, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, WriteRequest,
};
use lakewarden_core::limits;
use lakewarden_core::store::{Condition, Item, Items, Key, StoreError, TransactError, Write, WriteError, rules};

use super::attributes::{Sdk, decode_old, encode_item, encode_key, take_key};
use super::expressions::encode_condition;
use super::reads::unbuilt;
use super::{Axis, DynamoItems};
use crate::errors::store_error;
use crate::retries::RefusedOnly;

#[async_trait]
impl Items for DynamoItems {
    async fn put(&self, key: &Key, item: Item, condition: Condition) -> Result<(), WriteError> {
        let operation = format!("put {}", key.table.as_str());
        rules::check_put(key, &item, &condition, &operation)?;
        let table = self.tables.name(key.table);
        let expression = encode_condition(key.table, &condition);
        let mut retries = Builder::new();
        if expression.text.is_some() {
            retries = retries.retry_classifier(RefusedOnly::<PutItemError>::new());
        }
        self.usage.count(|usage| usage.puts += 1);
        let answer = self
            .client
            .put_item()
            .table_name(&table)
            .set_item(Some(encode_item(key, &item)))
            .set_condition_expression(expression.text)
            .set_expression_attribute_names(expression.names)
            .set_expression_attribute_values(expression.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .customize()
            .config_override(retries)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(answer.consumed_capacity(), Axis::Write);
                Ok(())
            }
            Err(SdkError::ServiceError(failure)) if failure.err().is_conditional_check_failed_exception() => {
                let PutItemError::ConditionalCheckFailedException(failed) = failure.into_err() else {
                    return Err(WriteError::ConditionFailed { old: None });
                };
                Err(self.condition_failed(key, Some(&item), failed, &operation))
            }
            Err(error) => Err(store_error(&operation, &table, &error).into()),
        }
    }

    async fn delete(&self, key: &Key, condition: Condition) -> Result<(), WriteError> {
        let operation = format!("delete {}", key.table.as_str());
        rules::check_key(key, &operation)?;
        rules::check_condition(key.table, &condition, &operation)?;
        let table = self.tables.name(key.table);
        let expression = encode_condition(key.table, &condition);
        let mut retries = Builder::new();
        if expression.text.is_some() {
            retries = retries.retry_classifier(RefusedOnly::<DeleteItemError>::new());
        }
        self.usage.count(|usage| usage.deletes += 1);
        let answer = self
            .client
            .delete_item()
            .table_name(&table)
            .set_key(Some(encode_key::<Sdk>(key)))
            .set_condition_expression(expression.text)
            .set_expression_attribute_names(expression.names)
            .set_expression_attribute_values(expression.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .customize()
            .config_override(retries)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(answer.consumed_capacity(), Axis::Write);
                Ok(())
            }
            Err(SdkError::ServiceError(failure)) if failure.err().is_conditional_check_failed_exception() => {
                let DeleteItemError::ConditionalCheckFailedException(failed) = failure.into_err() else {
                    return Err(WriteError::ConditionFailed { old: None });
                };
                Err(self.condition_failed(key, None, failed, &operation))
            }
            Err(error) => Err(store_error(&operation, &table, &error).into()),
        }
    }

    async fn batch_delete(&self, keys: &[Key]) -> Result<Vec<Key>, StoreError> {
        let operation = format!("batch_delete {}", keys.first().map_or("", |key| key.table.as_str()));
        rules::check_keys(&keys.iter().collect::<Vec<_>>(), limits::BATCH_WRITE_MAX_KEYS, &operation)?;
        let mut requests: HashMap<String, Vec<WriteRequest>> = HashMap::new();
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(encode_key::<Sdk>(key))).build();
            let delete = delete.map_err(|error| unbuilt(&operation, &error))?;
            let request = WriteRequest::builder().delete_request(delete).build();
            requests.entry(self.tables.name(key.table)).or_default().push(request);
        }
        let names = requests.keys().cloned().collect::<Vec<_>>().join(", ");
        self.usage.count(|usage| usage.batch_deletes += 1);
        let answer = self
            .client
            .batch_write_item()
            .set_request_items(Some(requests))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(|error| store_error(&operation, &names, &error))?;
        self.charge(answer.consumed_capacity(), Axis::Write);
        let mut left = Vec::new();
        for (name, requests) in answer.unprocessed_items.unwrap_or_default() {
            let table = self.known(&name, &operation)?;
            for delete in requests.into_iter().filter_map(|request| request.delete_request) {
                let mut attributes = delete.key;
                left.push(take_key::<Sdk>(&operation, table, &mut attributes)?);
            }
        }
        Ok(left)
    }

    async fn transact(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        self.carry_out(writes, token).await
    }
}

impl DynamoItems {
    fn condition_failed(
        &self,
        key: &Key,
        new: Option<&Item>,
        failed: ConditionalCheckFailedException,
        operation: &str,
    ) -> WriteError {
        match decode_old(operation, key.table, failed.item) {
            Ok(old) => {
                self.usage.count(|usage| usage.write_units += rules::write_units(key, old.as_ref(), new));
                WriteError::ConditionFailed { old }
            }
            Err(error) => error.into(),
        }
    }
}
