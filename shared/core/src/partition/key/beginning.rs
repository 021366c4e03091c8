//! The beginning of a key: its arity and leading values. Two epochs whose leading types are alike order partitions alike
//! by it.

use super::{HASH_BYTES, encode_value, region};
use crate::limits::SORT_KEY_MAX_BYTES;
use crate::partition::KeyType;

/// What is left of a key that is cut; the hash follows.
pub(in crate::partition) const PLAIN_MAX_BYTES: usize = SORT_KEY_MAX_BYTES - HASH_BYTES - 1;

/// How many leading positions are encoded alike in both epochs, and whether all are, so that the whole keys are the same.
/// Positions beyond the types are text.
pub(in crate::partition) fn leading_alike(left: &[KeyType], right: &[KeyType]) -> (usize, bool) {
    let at = |types: &[KeyType], position: usize| match types.get(position) {
        None | Some(KeyType::Other) => KeyType::Text,
        Some(key_type) => *key_type,
    };
    let differing = (0..left.len().max(right.len())).find(|position| at(left, *position) != at(right, *position));
    (differing.unwrap_or(usize::MAX), differing.is_none())
}

/// The beginning of the key of these values with at most so many of them; a prefix of [`super::encode_key`] of all.
pub(in crate::partition) fn encode_beginning(types: &[KeyType], values: &[String], positions: usize) -> Vec<u8> {
    let mut key = vec![u8::try_from(values.len()).unwrap_or(super::ARITY_OPEN_END)];
    for (at, value) in values.iter().enumerate().take(positions) {
        encode_value(types.get(at).copied().unwrap_or(KeyType::Text), value, &mut key);
    }
    key.truncate(PLAIN_MAX_BYTES);
    key
}

/// Length of the longest beginning of an encoded key that ends between two values and has at most so many of them.
pub(in crate::partition) fn beginning_len(types: &[KeyType], key: &[u8], positions: usize) -> usize {
    let plain = key.get(..key.len().min(PLAIN_MAX_BYTES)).unwrap_or_default();
    let Some((arity, mut rest)) = plain.split_first() else { return 0 };
    for at in 0..positions.min(usize::from(*arity)) {
        let length = value_len(types.get(at).copied().unwrap_or(KeyType::Text), rest);
        match length.and_then(|length| rest.get(length..)) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    plain.len() - rest.len()
}

/// Bytes of the first value; none if it is cut.
fn value_len(key_type: KeyType, bytes: &[u8]) -> Option<usize> {
    if matches!(key_type, KeyType::Text | KeyType::Other) {
        return text_len(bytes);
    }
    let (found, rest) = bytes.split_first()?;
    let length = match *found {
        region::NULL => 0,
        region::PARSED => match key_type {
            KeyType::Date => 4,
            KeyType::Timestamp => 12,
            _ => number_len(rest)?,
        },
        _ => text_len(rest)?,
    };
    Some(1 + length)
}

/// Up to the terminator: a NUL that is no escaped one.
fn text_len(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let nul = from + bytes.get(from..)?.iter().position(|byte| *byte == 0)?;
        match bytes.get(nul + 1)? {
            1 => return Some(nul + 2),
            _ => from = nul + 2,
        }
    }
}

/// Sign, exponent, digits by two up to their terminator; zero is one byte.
fn number_len(bytes: &[u8]) -> Option<usize> {
    const EXPONENT_BYTES: usize = 4;
    let terminator = match *bytes.first()? {
        0x80 => return Some(1),
        sign if sign > 0x80 => 0,
        _ => 0xff,
    };
    let digits = bytes.get(1 + EXPONENT_BYTES..)?;
    Some(1 + EXPONENT_BYTES + digits.iter().position(|byte| *byte == terminator)? + 1)
}
