//! Items that are decoded when they are wanted.
//!
//! A listing with a filter reads many items and wants few of them; for the others one list of texts decides. A store that
//! holds items in a form of its own need not decode those any further.

use std::fmt;
use std::sync::Arc;

use super::{Item, Sort, StoreError, Value};

/// A page of a query whose items may not have been decoded yet.
#[derive(Clone, Debug, Default)]
pub struct LatePage {
    pub items: Vec<(Sort, LateItem)>,
    /// As in [`super::Page`].
    pub next: Option<Sort>,
}

/// Items in the form of their store.
pub trait StoredItems: fmt::Debug + Send + Sync {
    /// The texts of the attribute that was skimmed, of one item.
    fn texts(&self, at: usize) -> Vec<&str>;

    /// # Errors
    /// As reading it at once would have had.
    fn item(&self, at: usize) -> Result<Item, StoreError>;
}

/// An item, decoded or not.
#[derive(Clone, Debug)]
pub enum LateItem {
    Decoded(Item),
    /// One of those of a page, whose texts are known.
    Stored {
        page: Arc<dyn StoredItems>,
        at: usize,
    },
}

impl LateItem {
    /// The texts of an attribute that is a list of texts; `field` is the one that was skimmed. None if it is something else.
    pub fn texts(&self, field: &str) -> Option<Vec<&str>> {
        match self {
            Self::Decoded(item) => texts_of(item, field),
            Self::Stored { page, at } => Some(page.texts(*at)),
        }
    }

    /// # Errors
    /// As reading it at once would have had.
    pub fn decode(self) -> Result<Item, StoreError> {
        match self {
            Self::Decoded(item) => Ok(item),
            Self::Stored { page, at } => page.item(at),
        }
    }
}

/// The texts of an attribute that is a list of texts; none if it is not.
pub fn texts_of<'a>(item: &'a Item, field: &str) -> Option<Vec<&'a str>> {
    fn text(value: &Value) -> Option<&str> {
        if let Value::Text(text) = value { Some(text.as_str()) } else { None }
    }
    match item.get(field) {
        Some(Value::List(values)) => values.iter().map(text).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_lists_of_texts_only() {
        let item = |value: Value| LateItem::Decoded(Item::from([("values".to_owned(), value)]));
        let texts = |value: Value| item(value).texts("values").map(|texts| texts.join(","));
        assert_eq!(texts(Value::List(vec!["a".into(), "b".into()])), Some("a,b".to_owned()));
        assert_eq!(texts(Value::List(Vec::new())), Some(String::new()));
        assert_eq!(texts(Value::List(vec!["a".into(), Value::Int(1)])), None);
        assert_eq!(texts("a".into()), None);
        assert!(item("a".into()).texts("other").is_none());
    }
}
