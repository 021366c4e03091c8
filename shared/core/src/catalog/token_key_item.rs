//! Item: the keys that sign page tokens. `catalog`, pk `settings`, sk `page-token-keys`.

use super::page_token::TokenKeys;
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

pub(super) fn key() -> Key {
    Key::new(Table::Catalog, "settings", "page-token-keys")
}

pub(super) fn encode(keys: &TokenKeys) -> Item {
    let list = keys.0.iter().map(|key| Value::Bytes(key.clone())).collect();
    Item::from([("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)), ("keys".to_owned(), Value::List(list))])
}

pub(super) fn decode(item: &Item) -> Result<TokenKeys, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let invalid = || DecodeError::WrongType { field: "keys".to_owned(), expected: "a list of bytes" };
    let Some(Value::List(list)) = item.get("keys") else { return Err(invalid()) };
    let keys: Option<Vec<Vec<u8>>> = list
        .iter()
        .map(|value| match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        })
        .collect();
    keys.filter(|keys| !keys.is_empty()).map(TokenKeys).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back() {
        let keys = TokenKeys(vec![vec![1; 32], vec![2; 32]]);
        assert_eq!(decode(&encode(&keys)).unwrap(), keys);
        assert!(decode(&encode(&TokenKeys(Vec::new()))).is_err());
    }
}
