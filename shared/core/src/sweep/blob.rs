//! Objects that hold what a run knows while it waits for its next worker: a head in JSON and numbers in columns.
//!
//! `LWBLOB01`, length of the head (4 bytes), the head, then each column: its length (8 bytes) and its numbers (8 bytes
//! each, little-endian), and last a hash of everything before it (8 bytes). What was cut off or damaged is not read.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"LWBLOB01";

/// First bytes of SHA-256: the same in every build, and two different texts hardly ever share one.
pub fn hash64(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Writes a blob.
pub fn encode_blob(head: &impl Serialize, columns: &[&[u64]]) -> Result<Bytes, serde_json::Error> {
    let head = serde_json::to_vec(head)?;
    let numbers: usize = columns.iter().map(|column| column.len()).sum();
    let mut bytes = Vec::with_capacity(32 + head.len() + 8 * (numbers + columns.len()));
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&head);
    for column in columns {
        bytes.extend_from_slice(&(column.len() as u64).to_le_bytes());
        for number in *column {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    let seal = hash64(&[&bytes]);
    bytes.extend_from_slice(&seal.to_le_bytes());
    Ok(bytes.into())
}

/// A column of a blob, as it was read or as it will be written.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'n> {
    Read(&'n [[u8; 8]]),
    Held(&'n [u64]),
}

impl<'n> Numbers<'n> {
    pub fn iter(self) -> impl Iterator<Item = u64> + 'n {
        let (read, held): (&[[u8; 8]], &[u64]) = match self {
            Numbers::Read(bytes) => (bytes, &[]),
            Numbers::Held(numbers) => (&[], numbers),
        };
        read.iter().map(|bytes| u64::from_le_bytes(*bytes)).chain(held.iter().copied())
    }
}

/// Looks into a blob without copying its numbers; `None` for anything that [`encode_blob`] did not write whole.
pub fn open_blob<T: DeserializeOwned, const COLUMNS: usize>(bytes: &[u8]) -> Option<(T, [Numbers<'_>; COLUMNS])> {
    let (body, seal) = bytes.split_last_chunk::<8>()?;
    if hash64(&[body]) != u64::from_le_bytes(*seal) {
        return None;
    }
    let (length, rest) = body.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    let (head, mut rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let mut found = [Numbers::Held(&[]); COLUMNS];
    for column in &mut found {
        let (length, behind) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?.checked_mul(8)?;
        let (numbers, behind) = behind.split_at_checked(length)?;
        *column = Numbers::Read(numbers.as_chunks::<8>().0);
        rest = behind;
    }
    if rest.is_empty() { Some((serde_json::from_slice(head).ok()?, found)) } else { None }
}

/// Reads a blob with so many columns.
pub fn decode_blob<T: DeserializeOwned, const COLUMNS: usize>(bytes: &[u8]) -> Option<(T, [Vec<u64>; COLUMNS])> {
    let (head, columns) = open_blob::<T, COLUMNS>(bytes)?;
    Some((head, columns.map(|column| column.iter().collect())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_and_nothing_else(
            head in "[ -~é]{0,40}",
            one in prop::collection::vec(any::<u64>(), 0..50),
            two in prop::collection::vec(any::<u64>(), 0..5),
            at in any::<prop::sample::Index>(),
        ) {
            let bytes = encode_blob(&head, &[&one, &two]).unwrap();
            let (found, columns) = decode_blob::<String, 2>(&bytes).unwrap();
            prop_assert_eq!((&found, &columns), (&head, &[one, two]));
            prop_assert!(decode_blob::<String, 1>(&bytes).is_none());
            prop_assert!(decode_blob::<String, 3>(&bytes).is_none());
            let at = at.index(bytes.len());
            prop_assert!(decode_blob::<String, 2>(&bytes[..at]).is_none());
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            prop_assert!(decode_blob::<String, 2>(&damaged).is_none());
        }
    }
}
