//! Between the product's values and DynamoDB's attribute values.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lakewarden_core::store::{Item, Key, Sort, StoreError, StoreErrorKind, Table, Value};

pub(super) type Attributes = HashMap<String, AttributeValue>;

pub(super) fn encode_value(value: &Value) -> AttributeValue {
    match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Int(number) => AttributeValue::N(number.to_string()),
        Value::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Null => AttributeValue::Null(true),
        Value::List(values) => AttributeValue::L(values.iter().map(encode_value).collect()),
        Value::Map(map) => AttributeValue::M(encode_map(map)),
    }
}

fn encode_map(map: &Item) -> Attributes {
    map.iter().map(|(name, value)| (name.clone(), encode_value(value))).collect()
}

pub(super) fn encode_sort(sort: &Sort) -> AttributeValue {
    match sort {
        Sort::Text(text) => AttributeValue::S(text.clone()),
        Sort::Bytes(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
    }
}

pub(super) fn encode_key(key: &Key) -> Attributes {
    HashMap::from([
        (key.table.hash_attribute().to_owned(), AttributeValue::S(key.pk.clone())),
        (key.table.range_attribute().to_owned(), encode_sort(&key.sk)),
    ])
}

pub(super) fn encode_item(key: &Key, item: &Item) -> Attributes {
    let mut attributes = encode_map(item);
    attributes.extend(encode_key(key));
    attributes
}

/// An attribute that the product does not write: only tables that others write to can hold one.
fn foreign(operation: &str, field: &str, found: &str) -> StoreError {
    let message = format!("attribute `{field}` holds {found}, which this version does not read");
    StoreError::new(StoreErrorKind::Invalid, operation, message)
}

fn decode_value(operation: &str, field: &str, value: AttributeValue) -> Result<Value, StoreError> {
    Ok(match value {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(number) => match number.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => return Err(foreign(operation, field, &format!("the number {number}, no 64-bit integer"))),
        },
        AttributeValue::B(blob) => Value::Bytes(blob.into_inner()),
        AttributeValue::Bool(flag) => Value::Bool(flag),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(values) => {
            let values = values.into_iter().map(|value| decode_value(operation, field, value));
            Value::List(values.collect::<Result<_, _>>()?)
        }
        AttributeValue::M(map) => Value::Map(decode_map(operation, map)?),
        AttributeValue::Ss(_) | AttributeValue::Ns(_) | AttributeValue::Bs(_) => {
            return Err(foreign(operation, field, "a set"));
        }
        _ => return Err(foreign(operation, field, "a value of an unknown type")),
    })
}

fn decode_map(operation: &str, map: Attributes) -> Result<Item, StoreError> {
    map.into_iter()
        .map(|(name, value)| {
            let value = decode_value(operation, &name, value)?;
            Ok((name, value))
        })
        .collect()
}

/// Splits what DynamoDB stores into key and item.
pub(super) fn decode_item(
    operation: &str,
    table: Table,
    mut attributes: Attributes,
) -> Result<(Key, Item), StoreError> {
    let key = take_key(operation, table, &mut attributes)?;
    Ok((key, decode_map(operation, attributes)?))
}

/// What a failed condition found, without its key.
pub(super) fn decode_old(
    operation: &str,
    table: Table,
    attributes: Option<Attributes>,
) -> Result<Option<Item>, StoreError> {
    let Some(attributes) = attributes.filter(|attributes| !attributes.is_empty()) else { return Ok(None) };
    Ok(Some(decode_item(operation, table, attributes)?.1))
}

pub(super) fn take_key(operation: &str, table: Table, attributes: &mut Attributes) -> Result<Key, StoreError> {
    let hash = attributes.remove(table.hash_attribute());
    let range = attributes.remove(table.range_attribute());
    match (hash, range) {
        (Some(AttributeValue::S(pk)), Some(AttributeValue::S(sk))) => Ok(Key::new(table, pk, sk)),
        (Some(AttributeValue::S(pk)), Some(AttributeValue::B(sk))) => Ok(Key::new(table, pk, sk.into_inner())),
        _ => {
            let (hash, range) = (table.hash_attribute(), table.range_attribute());
            let message =
                format!("an item without the key attributes `{hash}` and `{range}`: the table is another one");
            Err(StoreError::new(StoreErrorKind::Invalid, operation, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_survive_and_keys_are_kept_apart() {
        let nested = Item::from([("k".to_owned(), Value::List(vec![Value::Int(i64::MIN), Value::Null]))]);
        let item = Item::from([
            ("text".to_owned(), Value::from("")),
            ("number".to_owned(), Value::from(i64::MAX)),
            ("bytes".to_owned(), Value::from(vec![0u8, 255])),
            ("flag".to_owned(), Value::from(true)),
            ("nested".to_owned(), Value::Map(nested)),
        ]);
        for key in [
            Key::new(Table::Catalog, "p", "s"),
            Key::new(Table::Partitions, "p", vec![0u8, 1]),
            Key::new(Table::DeltaLog, "s3://b/t", "00000000000000000001.json"),
        ] {
            let attributes = encode_item(&key, &item);
            assert_eq!(attributes.len(), item.len() + 2);
            assert_eq!(decode_item("get", key.table, attributes).unwrap(), (key, item.clone()));
        }
    }

    #[test]
    fn foreign_attributes_are_a_clear_error() {
        let key = Key::new(Table::DeltaLog, "s3://b/t", "0.json");
        let with = |value| {
            let mut attributes = encode_key(&key);
            attributes.insert("expireTime".to_owned(), value);
            decode_item("get delta_log", Table::DeltaLog, attributes).unwrap_err().to_string()
        };
        for number in ["1.5", "1E40", "9223372036854775808", "NaN"] {
            let message = with(AttributeValue::N(number.to_owned()));
            assert!(message.contains("`expireTime`") && message.contains(number), "{message}");
        }
        assert!(with(AttributeValue::Ss(vec!["a".to_owned()])).contains("a set"));
        let message = decode_item("get", Table::Catalog, encode_key(&key)).unwrap_err().to_string();
        assert!(message.contains("`pk`"), "{message}");
    }
}
