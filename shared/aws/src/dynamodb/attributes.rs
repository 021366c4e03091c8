//! Between the product's values and DynamoDB's attribute values, in whatever form a client has those.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lakewarden_core::store::{Item, Key, Sort, StoreError, StoreErrorKind, Table, Value};

/// Attributes by name.
pub type Attributes<V = AttributeValue> = HashMap<String, V>;

/// A client's form of attribute values.
pub trait Form {
    type Value;

    fn text(text: String) -> Self::Value;
    fn bytes(bytes: Vec<u8>) -> Self::Value;
    fn take(value: Self::Value) -> Taken<Self::Value>;
}

/// What an attribute value holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken<V> {
    Text(String),
    /// In digits.
    Number(String),
    Bytes(Vec<u8>),
    Flag(bool),
    Null,
    List(Vec<V>),
    Map(Attributes<V>),
    /// The product writes no such values: what it is.
    Foreign(&'static str),
}

/// That of the SDK.
#[derive(Debug)]
pub(super) enum Sdk {}

impl Form for Sdk {
    type Value = AttributeValue;

    fn text(text: String) -> AttributeValue {
        AttributeValue::S(text)
    }

    fn bytes(bytes: Vec<u8>) -> AttributeValue {
        AttributeValue::B(Blob::new(bytes))
    }

    fn take(value: AttributeValue) -> Taken<AttributeValue> {
        match value {
            AttributeValue::S(text) => Taken::Text(text),
            AttributeValue::N(number) => Taken::Number(number),
            AttributeValue::B(blob) => Taken::Bytes(blob.into_inner()),
            AttributeValue::Bool(flag) => Taken::Flag(flag),
            AttributeValue::Null(_) => Taken::Null,
            AttributeValue::L(values) => Taken::List(values),
            AttributeValue::M(map) => Taken::Map(map),
            AttributeValue::Ss(_) | AttributeValue::Ns(_) | AttributeValue::Bs(_) => Taken::Foreign("a set"),
            _ => Taken::Foreign("a value of an unknown type"),
        }
    }
}

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

pub(super) fn encode_sort<F: Form>(sort: &Sort) -> F::Value {
    match sort {
        Sort::Text(text) => F::text(text.clone()),
        Sort::Bytes(bytes) => F::bytes(bytes.clone()),
    }
}

pub fn encode_key<F: Form>(key: &Key) -> Attributes<F::Value> {
    HashMap::from([
        (key.table.hash_attribute().to_owned(), F::text(key.pk.clone())),
        (key.table.range_attribute().to_owned(), encode_sort::<F>(&key.sk)),
    ])
}

pub(super) fn encode_item(key: &Key, item: &Item) -> Attributes {
    let mut attributes = encode_map(item);
    attributes.extend(encode_key::<Sdk>(key));
    attributes
}

/// An attribute that the product does not write: only tables that others write to can hold one.
fn foreign(operation: &str, field: &str, found: &str) -> StoreError {
    let message = format!("attribute `{field}` holds {found}, which this version does not read");
    StoreError::new(StoreErrorKind::Invalid, operation, message)
}

fn decode_value<F: Form>(operation: &str, field: &str, value: F::Value) -> Result<Value, StoreError> {
    Ok(match F::take(value) {
        Taken::Text(text) => Value::Text(text),
        Taken::Number(number) => match number.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => return Err(foreign(operation, field, &format!("the number {number}, no 64-bit integer"))),
        },
        Taken::Bytes(bytes) => Value::Bytes(bytes),
        Taken::Flag(flag) => Value::Bool(flag),
        Taken::Null => Value::Null,
        Taken::List(values) => {
            let values = values.into_iter().map(|value| decode_value::<F>(operation, field, value));
            Value::List(values.collect::<Result<_, _>>()?)
        }
        Taken::Map(map) => Value::Map(decode_map::<F>(operation, map)?),
        Taken::Foreign(what) => return Err(foreign(operation, field, what)),
    })
}

fn decode_map<F: Form>(operation: &str, map: Attributes<F::Value>) -> Result<Item, StoreError> {
    map.into_iter()
        .map(|(name, value)| {
            let value = decode_value::<F>(operation, &name, value)?;
            Ok((name, value))
        })
        .collect()
}

/// Splits what DynamoDB stores into key and item.
pub fn decode_item<F: Form>(
    operation: &str,
    table: Table,
    mut attributes: Attributes<F::Value>,
) -> Result<(Key, Item), StoreError> {
    let key = take_key::<F>(operation, table, &mut attributes)?;
    Ok((key, decode_map::<F>(operation, attributes)?))
}

/// What a failed condition found, without its key.
pub(super) fn decode_old(
    operation: &str,
    table: Table,
    attributes: Option<Attributes>,
) -> Result<Option<Item>, StoreError> {
    let Some(attributes) = attributes.filter(|attributes| !attributes.is_empty()) else { return Ok(None) };
    Ok(Some(decode_item::<Sdk>(operation, table, attributes)?.1))
}

/// Takes the key out of an item's attributes.
pub fn take_key<F: Form>(
    operation: &str,
    table: Table,
    attributes: &mut Attributes<F::Value>,
) -> Result<Key, StoreError> {
    let hash = attributes.remove(table.hash_attribute()).map(F::take);
    let range = attributes.remove(table.range_attribute()).map(F::take);
    match (hash, range) {
        (Some(Taken::Text(pk)), Some(Taken::Text(sk))) => Ok(Key::new(table, pk, sk)),
        (Some(Taken::Text(pk)), Some(Taken::Bytes(sk))) => Ok(Key::new(table, pk, sk)),
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
            assert_eq!(decode_item::<Sdk>("get", key.table, attributes).unwrap(), (key, item.clone()));
        }
    }

    #[test]
    fn foreign_attributes_are_a_clear_error() {
        let key = Key::new(Table::DeltaLog, "s3://b/t", "0.json");
        let with = |value| {
            let mut attributes = encode_key::<Sdk>(&key);
            attributes.insert("expireTime".to_owned(), value);
            decode_item::<Sdk>("get delta_log", Table::DeltaLog, attributes).unwrap_err().to_string()
        };
        for number in ["1.5", "1E40", "9223372036854775808", "NaN"] {
            let message = with(AttributeValue::N(number.to_owned()));
            assert!(message.contains("`expireTime`") && message.contains(number), "{message}");
        }
        assert!(with(AttributeValue::Ss(vec!["a".to_owned()])).contains("a set"));
        let message = decode_item::<Sdk>("get", Table::Catalog, encode_key::<Sdk>(&key)).unwrap_err().to_string();
        assert!(message.contains("`pk`"), "{message}");
    }
}
