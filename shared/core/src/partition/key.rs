//! Key codec: the values of a partition as bytes whose order is the order of the values.
//!
//! ```text
//! arity | enc(v1) … enc(vn) | tie-breaks
//! ```
//!
//! Numbers are ordered numerically, dates chronologically, text by code point. Tie-breaks make the bytes injective on the
//! strings (`1` and `01` are two partitions) and are empty when all values are written canonically. Values that do not
//! parse have a region of their own per position, the Hive default marker another. A key over 1,024 bytes is cut and the
//! hash of all values follows; its order is that of its beginning. The full values are always in the item.

pub(super) mod beginning;
#[cfg(test)]
mod laws;

use sha2::{Digest, Sha256};

use super::KeyType;
use super::instant::{Date, Timestamp};
use super::number::Number;
use crate::limits::SORT_KEY_MAX_BYTES;

/// What Hive writes for a NULL partition value.
pub const HIVE_DEFAULT_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Regions of a typed position: its first byte. Text has none.
pub(crate) mod region {
    pub(crate) const PARSED: u8 = 0x10;
    pub(crate) const NULL: u8 = 0x20;
    pub(crate) const UNPARSABLE: u8 = 0x30;
}

const HASH_BYTES: usize = 32;
/// Last byte of a cut key. A key that fits exactly and ends like this is cut as well, so that no two meet.
const CUT_MARK: u8 = 0x02;
/// What a cut key ends with: before it stands the beginning of what the whole key would be.
pub(crate) const CUT_TAIL_BYTES: usize = HASH_BYTES + 1;
/// Arities from here on share one byte and always carry the hash.
pub(crate) const ARITY_OPEN_END: u8 = u8::MAX;

/// How one value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Canonical,
    /// Another text of the same position has the same bytes.
    Variant,
    /// The Hive default marker on a typed key.
    Marker,
    /// Nothing that its type can read.
    Unreadable,
}

/// How a value of this type was written.
pub(super) fn written(key_type: KeyType, value: &str) -> Written {
    match key_type {
        KeyType::Text | KeyType::Other => Written::Canonical,
        _ => encode_value(key_type, value, &mut Vec::new()),
    }
}

/// The range key of a partition with these values.
///
/// `types` are those of the epoch, by position; positions beyond are text.
pub fn encode_key(types: &[KeyType], values: &[String]) -> Vec<u8> {
    encode_key_within(types, values, SORT_KEY_MAX_BYTES)
}

/// The same in at most `max_bytes`, for keys that have more behind it.
pub(super) fn encode_key_within(types: &[KeyType], values: &[String], max_bytes: usize) -> Vec<u8> {
    let arity = u8::try_from(values.len()).unwrap_or(ARITY_OPEN_END);
    let mut key = vec![arity];
    let mut variants = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let key_type = types.get(at).copied().unwrap_or(KeyType::Text);
        if let Written::Variant = encode_value(key_type, value, &mut key) {
            variants.push((at, value));
        }
    }
    for (at, value) in variants {
        key.push(u8::try_from(at.saturating_add(1)).unwrap_or(u8::MAX));
        encode_text(value.as_bytes(), &mut key);
    }
    let fits = key.len() < max_bytes || (key.len() == max_bytes && key.last() != Some(&CUT_MARK));
    if fits && arity != ARITY_OPEN_END {
        return key;
    }
    key.resize(max_bytes.saturating_sub(HASH_BYTES + 1), 0);
    key.extend_from_slice(&hash_of_values(values));
    key.push(CUT_MARK);
    key
}

/// SHA-256 over the values, each with its length.
pub fn hash_of_values(values: &[String]) -> [u8; HASH_BYTES] {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(u64::try_from(value.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(value.as_bytes());
    }
    hash.finalize().into()
}

/// Which of `shards` holds the partition with these values.
pub fn shard_of(values: &[String], shards: u16) -> u16 {
    let [first, second, ..] = hash_of_values(values);
    u16::from_be_bytes([first, second]) % shards.max(1)
}

/// The bytes of one position, tie-breaks aside: values that are equal by their type have equal bytes.
pub(crate) fn encode_position(key_type: KeyType, value: &str, into: &mut Vec<u8>) {
    encode_value(key_type, value, into);
}

fn encode_value(key_type: KeyType, value: &str, into: &mut Vec<u8>) -> Written {
    match key_type {
        KeyType::Text | KeyType::Other => {
            encode_text(value.as_bytes(), into);
            return Written::Canonical;
        }
        _ if value == HIVE_DEFAULT_PARTITION => {
            into.push(region::NULL);
            return Written::Marker;
        }
        KeyType::Integer | KeyType::Decimal => {
            let read = if key_type == KeyType::Integer { Number::parse_integer } else { Number::parse_decimal };
            if let Some(number) = read(value) {
                into.push(region::PARSED);
                number.encode(into);
                let canonical = number.canonical().as_deref() == Some(value);
                return if canonical { Written::Canonical } else { Written::Variant };
            }
        }
        KeyType::Date => {
            if let Some(date) = Date::parse(value) {
                into.push(region::PARSED);
                date.encode(into);
                return Written::Canonical;
            }
        }
        KeyType::Timestamp => {
            if let Some(timestamp) = Timestamp::parse(value) {
                into.push(region::PARSED);
                timestamp.encode(into);
                let canonical = Timestamp::is_canonical(value);
                return if canonical { Written::Canonical } else { Written::Variant };
            }
        }
    }
    into.push(region::UNPARSABLE);
    encode_text(value.as_bytes(), into);
    Written::Unreadable
}

/// UTF-8 with NUL escaped and a terminator below every escaped byte: order of code points, none a prefix of another.
pub(crate) fn encode_text(text: &[u8], into: &mut Vec<u8>) {
    for byte in text {
        into.push(*byte);
        if *byte == 0 {
            into.push(0xff);
        }
    }
    into.extend_from_slice(&[0, 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(types: &[KeyType], values: &[&str]) -> Vec<u8> {
        encode_key(types, &values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn order_by_type() {
        let cases: [(KeyType, &[&str]); 5] = [
            (
                KeyType::Text,
                &["", "\0", "\0a", "10", "9", "A", "a", "a\0", "a\0b", "a\u{1}", "ab", "é", "\u{ffff}", "😀"],
            ),
            (KeyType::Integer, &["-10", "-9", "0", "1", "9", "10", "123456789012345678901234567890"]),
            (KeyType::Decimal, &["-1.5", "-1.25", "0", "0.05", "0.5", "1", "1.05", "1e3"]),
            (KeyType::Date, &["0001-01-01", "1999-12-31", "2000-01-01", "2000-02-01", "2000-02-02"]),
            (
                KeyType::Timestamp,
                &[
                    "2000-01-01 00:00:00",
                    "2000-01-01 00:00:00.000000001",
                    "2000-01-01 00:00:00.5",
                    "2000-01-01 10:00:00",
                ],
            ),
        ];
        for (key_type, ordered) in cases {
            let keys: Vec<_> = ordered.iter().map(|value| key(&[key_type], &[value])).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{key_type:?} {keys:?}");
        }
    }

    #[test]
    fn null_and_unparsable_values_come_after_the_others_and_only_where_types_are() {
        for key_type in [KeyType::Integer, KeyType::Decimal, KeyType::Date, KeyType::Timestamp] {
            let parsed = match key_type {
                KeyType::Date => "2024-01-01",
                KeyType::Timestamp => "2024-01-01 00:00:00",
                _ => "99999999999999999999",
            };
            let [parsed, null, wrong] = [parsed, HIVE_DEFAULT_PARTITION, "abc"].map(|value| key(&[key_type], &[value]));
            assert!(parsed < null && null < wrong, "{key_type:?}");
        }
        let between = ["Z", HIVE_DEFAULT_PARTITION, "a"].map(|value| key(&[KeyType::Text], &[value]));
        assert!(between.is_sorted());
    }

    #[test]
    fn canonical_values_need_no_tie_break() {
        let types = [KeyType::Integer, KeyType::Date];
        let canonical = key(&types, &["7", "2024-01-01"]);
        assert_eq!(canonical.len(), 1 + (1 + 7) + (1 + 4));
        let variant = key(&types, &["07", "2024-01-01"]);
        assert!(variant.starts_with(&canonical) && variant.len() > canonical.len());
        assert!(variant < key(&types, &["8", "2024-01-01"]));
        let texts = ["1", "01", "001", "+1"].map(|value| key(&types, &[value, "2024-01-01"]));
        assert_eq!(texts.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn keys_at_the_limit() {
        // Arity, text, terminator: three bytes around the value.
        for (length, cut) in [(1020, false), (1021, false), (1022, true), (1024, true)] {
            let value = "x".repeat(length);
            let bytes = key(&[KeyType::Text], &[&value]);
            assert_eq!(bytes.len(), (length + 3).min(SORT_KEY_MAX_BYTES), "{length}");
            assert_eq!(bytes.last() == Some(&CUT_MARK), cut, "{length}");
        }
        let wide = "😀".repeat(1024);
        let other = format!("{}😁", "😀".repeat(1023));
        let (left, right) = (key(&[KeyType::Text], &[&wide]), key(&[KeyType::Text], &[&other]));
        assert_eq!(left.len(), SORT_KEY_MAX_BYTES);
        assert_ne!(left, right);
    }

    #[test]
    fn an_exact_fit_that_looks_cut_is_cut() {
        // Ends in the day of a date: 0x02.
        let types = [KeyType::Text, KeyType::Date];
        let filler = "x".repeat(SORT_KEY_MAX_BYTES - 1 - 2 - 5);
        let looks_cut = key(&types, &[&filler, "2024-01-02"]);
        let does_not = key(&types, &[&filler, "2024-01-03"]);
        assert_eq!((looks_cut.len(), does_not.len()), (SORT_KEY_MAX_BYTES, SORT_KEY_MAX_BYTES));
        assert_eq!(
            does_not[SORT_KEY_MAX_BYTES - 5..],
            [0x07, 0xe8, 1, 3][..].iter().fold(vec![0x10], |mut all, byte| {
                all.push(*byte);
                all
            })
        );
        assert_eq!(
            looks_cut[SORT_KEY_MAX_BYTES - 33..SORT_KEY_MAX_BYTES - 1],
            hash_of_values(&[filler, "2024-01-02".to_owned()])
        );
    }

    #[test]
    fn many_values_are_told_apart() {
        let many = |count: usize| encode_key(&[], &vec!["v".to_owned(); count]);
        let keys: std::collections::BTreeSet<_> = [0, 1, 254, 255, 256, 300].map(many).into_iter().collect();
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn shards_are_stable_and_spread() {
        let mut counts = [0; 16];
        for n in 0..1600 {
            counts[usize::from(shard_of(&[n.to_string()], 16))] += 1;
        }
        assert!(counts.iter().all(|count| (50..200).contains(count)), "{counts:?}");
        assert_eq!(shard_of(&["a".to_owned(), "bc".to_owned()], 16), shard_of(&["a".to_owned(), "bc".to_owned()], 16));
        assert_eq!(shard_of(&[], 0), 0);
    }
}
