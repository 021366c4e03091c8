//! Hive's layout: a folder for each partition key, named `key=value`, one within the other in the keys' order.

use std::fmt;

use lakewarden_core::partition::{Date, HIVE_DEFAULT_PARTITION, KeyType, Number, Timestamp};

/// A value, in characters.
const VALUE_MAX_CHARS: usize = 1024;

/// A partition key of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionKey {
    pub(super) name: String,
    pub(super) key_type: KeyType,
    pub(super) type_name: String,
}

/// Why a folder is none of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// `_temporary`, `.hive-staging…`: readers do not look into them either.
    Hidden,
    NoPartition {
        key: String,
    },
    OtherKey {
        found: String,
        key: String,
    },
    NoValue,
    /// `%E4` alone: neither one of Hive's escapes nor UTF-8.
    Escape,
    TooLong,
    NotOfType {
        type_name: String,
    },
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => write!(f, "a hidden folder"),
            Self::NoPartition { key } => write!(f, "a folder `{key}=…` should be here"),
            Self::OtherKey { found, key } => write!(f, "names the key `{found}` where `{key}` should be"),
            Self::NoValue => write!(f, "has no value (Hive writes {HIVE_DEFAULT_PARTITION} for one that is missing)"),
            Self::Escape => write!(f, "has an escape that stands for no character"),
            Self::TooLong => write!(f, "has a value of more than {VALUE_MAX_CHARS} characters"),
            Self::NotOfType { type_name } => write!(f, "has a value that is no {type_name}"),
        }
    }
}

/// The value that a folder's name gives a key. Names of keys are compared without case, as the catalog folds them.
pub(super) fn read_folder(key: &PartitionKey, folder: &str) -> Result<String, Foreign> {
    if folder.starts_with(['_', '.']) && !folder.contains('=') {
        return Err(Foreign::Hidden);
    }
    let no_partition = || Foreign::NoPartition { key: key.name.clone() };
    let (name, value) = folder.split_once('=').ok_or_else(no_partition)?;
    let name = unescape(name).ok_or(Foreign::Escape)?;
    if name.to_lowercase() != key.name.to_lowercase() {
        return Err(Foreign::OtherKey { found: name, key: key.name.clone() });
    }
    let value = unescape(value).ok_or(Foreign::Escape)?;
    if value.is_empty() {
        return Err(Foreign::NoValue);
    }
    if value.chars().count() > VALUE_MAX_CHARS {
        return Err(Foreign::TooLong);
    }
    if value != HIVE_DEFAULT_PARTITION && !reads_as(key.key_type, &value) {
        return Err(Foreign::NotOfType { type_name: key.type_name.clone() });
    }
    Ok(value)
}

/// Whether a filter could read the value: one that it cannot makes every filter on the key fail.
fn reads_as(key_type: KeyType, value: &str) -> bool {
    match key_type {
        KeyType::Text | KeyType::Other => true,
        KeyType::Integer => Number::parse_integer(value).is_some(),
        KeyType::Decimal => Number::parse_decimal(value).is_some(),
        KeyType::Date => Date::parse(value).is_some(),
        KeyType::Timestamp => Timestamp::parse(value).is_some(),
    }
}

/// Takes back `%XX` as Hive and Spark write it: for single ASCII characters. Other writers escape the bytes of UTF-8,
/// which can be told apart, since Hive leaves everything beyond ASCII as it is. A `%` that begins no escape is itself.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = match behind {
            [high, low, ..] if *first == b'%' => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high * 16 + low);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, type_name: &str) -> PartitionKey {
        PartitionKey { name: name.into(), key_type: KeyType::of(type_name), type_name: type_name.into() }
    }

    #[test]
    fn every_character_that_hive_escapes_comes_back() {
        // `FileUtils.escapePathName`: control characters, and these.
        let escaped = (1..0x20_u8).chain(*b"\"#%'*/:=?\\{[]^\x7f");
        for byte in escaped {
            let character = char::from(byte);
            for folder in [format!("k=a%{byte:02X}b"), format!("k=a%{byte:02x}b")] {
                assert_eq!(read_folder(&key("k", "string"), &folder), Ok(format!("a{character}b")), "{folder}");
            }
        }
    }

    #[test]
    fn folders_are_read_as_hive_reads_them() {
        let text = key("k", "string");
        for (folder, expected) in [
            ("k=a b+c", Ok("a b+c")),
            ("K=x", Ok("x")),
            ("k=x=y", Ok("x=y")),
            ("k=100%", Ok("100%")),
            ("k=%zz%4", Ok("%zz%4")),
            ("k=%2541", Ok("%41")),
            ("k=ü%C3%BC", Ok("üü")),
            ("k=%FC", Err(Foreign::Escape)),
            ("k=__HIVE_DEFAULT_PARTITION__", Ok("__HIVE_DEFAULT_PARTITION__")),
            ("_k=x", Err(Foreign::OtherKey { found: "_k".into(), key: "k".into() })),
            ("k=", Err(Foreign::NoValue)),
            ("j=x", Err(Foreign::OtherKey { found: "j".into(), key: "k".into() })),
            ("x", Err(Foreign::NoPartition { key: "k".into() })),
            ("", Err(Foreign::NoPartition { key: "k".into() })),
            ("_delta_log", Err(Foreign::Hidden)),
            (".hive-staging_1", Err(Foreign::Hidden)),
        ] {
            assert_eq!(read_folder(&text, folder), expected.map(str::to_owned), "{folder}");
        }
        assert_eq!(read_folder(&text, &format!("k={}", "ü".repeat(1024))), Ok("ü".repeat(1024)));
        assert_eq!(read_folder(&text, &format!("k={}", "x".repeat(1025))), Err(Foreign::TooLong));
        assert_eq!(read_folder(&key("a:b", "string"), "a%3Ab=x"), Ok("x".to_owned()));
        assert_eq!(read_folder(&key("_k", "string"), "_k=x"), Ok("x".to_owned()));
    }

    #[test]
    fn values_must_be_of_the_keys_type() {
        for (type_name, value, fits) in [
            ("int", "007", true),
            ("int", "x", false),
            ("int", "__HIVE_DEFAULT_PARTITION__", true),
            ("date", "2026-02-28", true),
            ("date", "20260228", false),
            ("timestamp", "2026-02-28 10%3A00%3A00", true),
            ("decimal(5,2)", "1.50", true),
            ("decimal(5,2)", "a", false),
            ("double", "x", true),
        ] {
            assert_eq!(read_folder(&key("k", type_name), &format!("k={value}")).is_ok(), fits, "{type_name} {value}");
        }
    }
}
