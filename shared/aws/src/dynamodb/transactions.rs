use std::borrow::Cow;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, ConditionCheck, Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem,
};
use lakewarden_core::store::{CancelReason, StoreError, StoreErrorKind, TransactError, Write, rules};
use sha2::{Digest, Sha256};

use super::attributes::{Sdk, decode_old, encode_item, encode_key};
use super::expressions::{encode_check, encode_condition};
use super::reads::unbuilt;
use super::{Axis, DynamoItems};
use crate::errors::store_error;

/// DynamoDB's limit for a token is 36 characters; bytes are the narrower reading.
const TOKEN_MAX_BYTES: usize = 36;

impl DynamoItems {
    pub(super) async fn carry_out(&self, writes: &[Write], token: &str) -> Result<(), TransactError> {
        let operation = format!("transact {}", writes.first().map_or("", |write| write.key().table.as_str()));
        rules::check_transaction(writes, token, &operation)?;
        let actions: Result<Vec<_>, _> = writes.iter().map(|write| self.encode_write(write, &operation)).collect();
        let mut names: Vec<String> = writes.iter().map(|write| self.tables.name(write.key().table)).collect();
        names.sort();
        names.dedup();
        self.usage.count(|usage| usage.transactions += 1);
        let answer = self
            .client
            .transact_write_items()
            .set_transact_items(Some(actions?))
            .client_request_token(encode_token(token))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(answer.consumed_capacity(), Axis::Write);
                Ok(())
            }
            Err(SdkError::ServiceError(failure)) if failure.err().is_transaction_canceled_exception() => {
                let TransactWriteItemsError::TransactionCanceledException(cancelled) = failure.into_err() else {
                    return Err(TransactError::Cancelled { reasons: Vec::new() });
                };
                Err(self.cancelled(writes, cancelled.cancellation_reasons.unwrap_or_default(), &operation))
            }
            Err(error) => Err(store_error(&operation, &names.join(", "), &error).into()),
        }
    }

    fn encode_write(&self, write: &Write, operation: &str) -> Result<TransactWriteItem, StoreError> {
        let table = write.key().table;
        let name = self.tables.name(table);
        let old = ReturnValuesOnConditionCheckFailure::AllOld;
        let action = TransactWriteItem::builder();
        let action = match write {
            Write::Put { key, item, condition } => {
                let expression = encode_condition(table, condition);
                let put = Put::builder()
                    .table_name(name)
                    .set_item(Some(encode_item(key, item)))
                    .set_condition_expression(expression.text)
                    .set_expression_attribute_names(expression.names)
                    .set_expression_attribute_values(expression.values)
                    .return_values_on_condition_check_failure(old)
                    .build();
                action.put(put.map_err(|error| unbuilt(operation, &error))?)
            }
            Write::Delete { key, condition } => {
                let expression = encode_condition(table, condition);
                let delete = Delete::builder()
                    .table_name(name)
                    .set_key(Some(encode_key::<Sdk>(key)))
                    .set_condition_expression(expression.text)
                    .set_expression_attribute_names(expression.names)
                    .set_expression_attribute_values(expression.values)
                    .return_values_on_condition_check_failure(old)
                    .build();
                action.delete(delete.map_err(|error| unbuilt(operation, &error))?)
            }
            Write::Check { key, condition } => {
                let expression = encode_check(table, condition);
                let check = ConditionCheck::builder()
                    .table_name(name)
                    .set_key(Some(encode_key::<Sdk>(key)))
                    .set_condition_expression(expression.text)
                    .set_expression_attribute_names(expression.names)
                    .set_expression_attribute_values(expression.values)
                    .return_values_on_condition_check_failure(old)
                    .build();
                action.condition_check(check.map_err(|error| unbuilt(operation, &error))?)
            }
        };
        Ok(action.build())
    }

    fn cancelled(&self, writes: &[Write], reported: Vec<CancellationReason>, operation: &str) -> TransactError {
        let throttled = reported.iter().find(|reason| {
            matches!(reason.code(), Some("ProvisionedThroughputExceeded" | "ThrottlingError" | "RequestLimitExceeded"))
        });
        let judged = |reason: &CancellationReason| {
            matches!(reason.code(), Some("ConditionalCheckFailed" | "TransactionConflict"))
        };
        if let Some(throttled) = throttled.filter(|_| !reported.iter().any(judged)) {
            let message = throttled.message().unwrap_or("the tables are throttled");
            return StoreError::new(StoreErrorKind::Throttled, operation, message).into();
        }
        if reported.len() != writes.len() {
            let message = format!("cancelled with {} reasons for {} actions", reported.len(), writes.len());
            return StoreError::new(StoreErrorKind::Conflict, operation, message).into();
        }
        let reasons = writes.iter().zip(reported).map(|(write, reason)| decode_reason(write, reason, operation));
        match reasons.collect::<Result<Vec<_>, _>>() {
            Ok(reasons) => {
                let units = rules::cancelled_write_units(writes, &reasons);
                self.usage.count(|usage| usage.write_units += units);
                TransactError::Cancelled { reasons }
            }
            Err(error) => error.into(),
        }
    }
}

fn decode_reason(write: &Write, reason: CancellationReason, operation: &str) -> Result<CancelReason, StoreError> {
    Ok(match reason.code() {
        None | Some("None") => CancelReason::None,
        Some("ConditionalCheckFailed") => {
            CancelReason::ConditionFailed { old: decode_old(operation, write.key().table, reason.item)? }
        }
        Some("TransactionConflict") => CancelReason::Conflict,
        Some(code) => CancelReason::Other(format!("{code}: {}", reason.message().unwrap_or("no message"))),
    })
}

/// Tokens above DynamoDB's limit are replaced by their hash.
fn encode_token(token: &str) -> Cow<'_, str> {
    if token.len() <= TOKEN_MAX_BYTES {
        return Cow::Borrowed(token);
    }
    let digest = Sha256::digest(token.as_bytes());
    let hex: String = digest.iter().take(TOKEN_MAX_BYTES / 2).map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tokens_are_hashed_and_stay_apart() {
        let short = "x".repeat(36);
        assert_eq!(encode_token(&short), short);
        let (long, other) = ("x".repeat(37), "x".repeat(38));
        assert_eq!(encode_token(&long).len(), 36);
        assert_eq!(encode_token(&long), encode_token(&long));
        assert_ne!(encode_token(&long), encode_token(&other));
    }
}
