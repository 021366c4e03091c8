use thiserror::Error;

use crate::glue::{GlueException, GlueExceptionName};
use crate::partition::KeyType;

/// Texts of callers and of stored values are cut to so many characters in messages.
const SHOWN_MAX_CHARS: usize = 200;

/// Why an expression is refused. Texts begin as the service's do; positions count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PredicateError {
    /// Not in the grammar.
    #[error("Unsupported expression '{shown}' (at character {position}: {reason})")]
    Unsupported {
        /// The expression, or the part of it that is not supported.
        shown: String,
        position: usize,
        reason: String,
    },
    /// The service's whole text: it names no key, and clients and their test suites compare all of it. Which name it
    /// was, and where, is [`PredicateError::hint`].
    #[error("Invalid partition expression!")]
    UnknownKey { name: String, position: usize, keys: Vec<String> },
    #[error(
        "Unknown type : '{type_name}' (of partition key {key}, at character {position}; filters read string, char, \
         varchar, date, timestamp, decimal, tinyint, smallint, int and bigint)"
    )]
    UnknownType { type_name: String, key: String, position: usize },
    #[error("{} (literal for partition key {key}, at character {position})", cannot_read(*.key_type, .text))]
    Literal { text: String, key: String, key_type: KeyType, position: usize },
    #[error(
        "{} data type doesn't support operation 'LIKE' (partition key {key}, at character {position})",
        kind_of(*.key_type)
    )]
    NoLike { key: String, key_type: KeyType, position: usize },
    #[error(
        "1 validation error detected: Value at 'expression' failed to satisfy constraint: Member must have length less \
         than or equal to {max} (it has {length} characters)"
    )]
    TooLong { length: usize, max: usize },
}

impl PredicateError {
    /// What the text must not say, for a member beside it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { name, position, keys } => {
                Some(format!("At character {position}: {name} is no partition key; {}", keys_are(keys)))
            }
            _ => None,
        }
    }
}

/// The answer for a row hangs on a stored value that its key's type cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} (stored value of partition key {key})", cannot_read(*.key_type, .text))]
pub struct StoredValueError {
    /// The value, cut if it is long.
    pub text: String,
    pub key: String,
    pub key_type: KeyType,
}

fn keys_are(keys: &[String]) -> String {
    if keys.is_empty() { "the table has none.".to_owned() } else { format!("these are: {}", keys.join(", ")) }
}

fn kind_of(key_type: KeyType) -> &'static str {
    match key_type {
        KeyType::Integer => "Integral",
        KeyType::Decimal => "Decimal",
        KeyType::Date => "Date",
        KeyType::Timestamp => "Timestamp",
        KeyType::Text | KeyType::Other => "This",
    }
}

fn cannot_read(key_type: KeyType, text: &str) -> String {
    match key_type {
        KeyType::Integer => format!("For input string: \"{text}\" is not an integer."),
        KeyType::Decimal => format!("{text} is not a decimal."),
        KeyType::Date => format!("{text} is not a date."),
        KeyType::Timestamp => {
            format!("Timestamp format must be yyyy-mm-dd hh:mm:ss[.fffffffff] {text} is not a timestamp.")
        }
        KeyType::Text | KeyType::Other => format!("{text} cannot be read."),
    }
}

/// Text of callers as it goes into a message.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX_CHARS) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
    }
}

impl From<PredicateError> for GlueException {
    fn from(error: PredicateError) -> Self {
        let name = match error {
            PredicateError::TooLong { .. } => GlueExceptionName::Validation,
            _ => GlueExceptionName::InvalidInput,
        };
        Self { hint: error.hint(), ..Self::new(name, error.to_string()) }
    }
}

impl From<StoredValueError> for GlueException {
    fn from(error: StoredValueError) -> Self {
        Self::new(GlueExceptionName::InvalidState, error.to_string())
    }
}
