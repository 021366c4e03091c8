use std::collections::BTreeMap;

use thiserror::Error;

/// An attribute value. Numbers are integers: the product stores no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Int(i64),
    Bytes(Vec<u8>),
    Bool(bool),
    Null,
    List(Vec<Value>),
    Map(Item),
}

/// Attributes by name, without the key attributes.
pub type Item = BTreeMap<String, Value>;

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}
impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}
impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}
impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(bytes)
    }
}

/// A stored item does not have the layout that this version reads.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("item lacks the attribute `{0}`")]
    Missing(String),
    #[error("attribute `{field}` should be {expected}")]
    WrongType { field: String, expected: &'static str },
    #[error(
        "item has layout {found} and this version reads layout {expected}: data written by another version is not converted before the first release; start with an empty data directory"
    )]
    Layout { found: i64, expected: i64 },
    #[error("attribute `{field}`: {message}")]
    Invalid { field: String, message: String },
}

/// Typed reading of an item's attributes.
pub trait Fields {
    fn text(&self, field: &str) -> Result<&str, DecodeError>;
    fn int(&self, field: &str) -> Result<i64, DecodeError>;
    fn bytes(&self, field: &str) -> Result<&[u8], DecodeError>;
    fn flag(&self, field: &str) -> Result<bool, DecodeError>;
    fn opt_text(&self, field: &str) -> Result<Option<&str>, DecodeError>;
    fn opt_int(&self, field: &str) -> Result<Option<i64>, DecodeError>;
    /// Refuses an item whose `schema_version` is not `expected`.
    fn check_layout(&self, expected: i64) -> Result<(), DecodeError>;
}

fn wrong<T>(field: &str, expected: &'static str) -> Result<T, DecodeError> {
    Err(DecodeError::WrongType { field: field.to_owned(), expected })
}

impl Fields for Item {
    fn text(&self, field: &str) -> Result<&str, DecodeError> {
        self.opt_text(field)?.ok_or_else(|| DecodeError::Missing(field.to_owned()))
    }

    fn int(&self, field: &str) -> Result<i64, DecodeError> {
        self.opt_int(field)?.ok_or_else(|| DecodeError::Missing(field.to_owned()))
    }

    fn bytes(&self, field: &str) -> Result<&[u8], DecodeError> {
        match self.get(field) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(_) => wrong(field, "bytes"),
            None => Err(DecodeError::Missing(field.to_owned())),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, DecodeError> {
        match self.get(field) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => wrong(field, "a flag"),
            None => Err(DecodeError::Missing(field.to_owned())),
        }
    }

    fn opt_text(&self, field: &str) -> Result<Option<&str>, DecodeError> {
        match self.get(field) {
            Some(Value::Text(text)) => Ok(Some(text)),
            None | Some(Value::Null) => Ok(None),
            Some(_) => wrong(field, "text"),
        }
    }

    fn opt_int(&self, field: &str) -> Result<Option<i64>, DecodeError> {
        match self.get(field) {
            Some(Value::Int(number)) => Ok(Some(*number)),
            None | Some(Value::Null) => Ok(None),
            Some(_) => wrong(field, "a number"),
        }
    }

    fn check_layout(&self, expected: i64) -> Result<(), DecodeError> {
        let found = self.opt_int("schema_version")?.unwrap_or(0);
        if found == expected { Ok(()) } else { Err(DecodeError::Layout { found, expected }) }
    }
}
