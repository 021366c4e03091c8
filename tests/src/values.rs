//! Short spellings of keys and items.

use lakewarden_core::store::{Item, Key, Value, item_size_bytes};

pub fn item<const N: usize>(attributes: [(&str, Value); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `item` with an attribute `pad` that makes it `size_bytes` large under `key`.
pub fn padded(key: &Key, mut item: Item, size_bytes: usize) -> Item {
    item.insert("pad".to_owned(), Value::from(""));
    let rest = size_bytes.checked_sub(item_size_bytes(key, &item)).expect("the item is larger already");
    item.insert("pad".to_owned(), Value::from("x".repeat(rest)));
    item
}
