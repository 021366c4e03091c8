mod cases;
mod hostile;
mod plans;
pub(crate) mod random;

use super::*;
use crate::partition::{KeyType, encode_key};

fn columns(keys: &[(&str, &str)]) -> Vec<KeyColumn> {
    keys.iter().map(|(name, key)| KeyColumn { name: (*name).to_owned(), type_name: (*key).to_owned() }).collect()
}

fn types(keys: &[KeyColumn]) -> Vec<KeyType> {
    keys.iter().map(|key| KeyType::of(&key.type_name)).collect()
}

/// The key of a row in a layout of this order.
fn key_of(types: &[KeyType], order: &[usize], values: &[String]) -> Vec<u8> {
    let types: Vec<KeyType> = order.iter().map(|at| types[*at]).collect();
    encode_key(&types, &order.iter().map(|at| values[*at].clone()).collect::<Vec<_>>())
}

fn row(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}
