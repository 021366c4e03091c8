//! What earlier runs saw. A file that looks like an orphan is deleted when a later run sees it again, unchanged: a commit
//! that came late in between has saved it.
//!
//! One object per table beside its reports, 16 bytes per file: 12 of a hash of key, ETag, size and date, 4 for the number of
//! a pair of times, which are those of runs: few.

use std::collections::HashMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::SweepError;
use crate::location::Location;
use crate::store::{ByteRange, ETag, GetOptions, Listed, ObjectError, ObjectKey, Objects, PutOptions, ReadObjects};

const MAGIC: &[u8] = b"LWSIGHT2";
const ENTRY_BYTES: usize = 16;
const TIMES_BYTES: usize = 16;
/// Files of one object; what is beyond is seen for the first time again.
const ENTRIES_MAX: usize = 1_000_000;
/// Pairs of times: those of runs.
const TIMES_MAX: usize = 100_000;
const OBJECT_MAX_BYTES: u64 = (MAGIC.len() + 4 + ENTRY_BYTES * ENTRIES_MAX + TIMES_BYTES * TIMES_MAX) as u64;

/// First bytes of a hash: enough that no two files of a table share them.
type FileHash = (u64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    file: FileHash,
    /// Number of its pair of times.
    times: u32,
}

/// When a file was first seen, and since when it has been a candidate (0: it was none yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Times {
    first_seen_ms: i64,
    candidate_since_ms: i64,
}

/// Files that were seen, by what identifies an upload as far as a listing shows it.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    entries: Vec<Entry>,
    times: Vec<Times>,
    numbers: HashMap<Times, u32>,
}

/// The same files with the same times, however these are numbered.
impl PartialEq for Sightings {
    fn eq(&self, other: &Self) -> bool {
        let told = |seen: &Self, entry: &Entry| (entry.file, seen.times_of(entry));
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(one, two)| told(self, one) == told(other, two))
    }
}

impl Eq for Sightings {}

/// Whether an ETag is that of an upload in parts.
pub fn is_multipart(etag: &ETag) -> bool {
    let text = etag.0.trim_matches('"');
    text.split_once('-').is_some_and(|(hash, parts)| {
        hash.len() == 32
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !parts.is_empty()
            && parts.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn file_hash(at: &ObjectKey, object: &Listed) -> FileHash {
    let mut digest = Sha256::new();
    for part in [at.bucket.as_bytes(), at.key.as_bytes(), object.etag.0.as_bytes()] {
        digest.update(part);
        digest.update(b"\0");
    }
    digest.update(object.size_bytes.to_be_bytes());
    digest.update(object.last_modified_ms.to_be_bytes());
    let hash = digest.finalize();
    let rest = hash.get(8..).and_then(<[u8]>::first_chunk::<4>);
    (
        hash.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes)),
        rest.map_or(0, |bytes| u32::from_be_bytes(*bytes)),
    )
}

impl Sightings {
    /// Notes a file. Answers look-ups only after [`Sightings::sealed`].
    pub fn see(
        &mut self,
        at: &ObjectKey,
        object: &Listed,
        first_seen_ms: Option<i64>,
        candidate_since_ms: Option<i64>,
    ) {
        let Some(first_seen_ms) = first_seen_ms.or(candidate_since_ms) else { return };
        let times = Times { first_seen_ms, candidate_since_ms: candidate_since_ms.unwrap_or(0) };
        if self.entries.len() < ENTRIES_MAX
            && let Some(times) = self.number_of(times)
        {
            self.entries.push(Entry { file: file_hash(at, object), times });
        }
    }

    fn number_of(&mut self, times: Times) -> Option<u32> {
        if let Some(number) = self.numbers.get(&times) {
            return Some(*number);
        }
        let number = u32::try_from(self.times.len()).ok().filter(|_| self.times.len() < TIMES_MAX)?;
        self.times.push(times);
        self.numbers.insert(times, number);
        Some(number)
    }

    fn times_of(&self, entry: &Entry) -> Option<Times> {
        self.times.get(usize::try_from(entry.times).ok()?).copied()
    }

    /// In order, ready for look-ups.
    pub fn sealed(mut self) -> Self {
        self.entries.sort_unstable();
        self.entries.shrink_to_fit();
        self
    }

    fn find(&self, at: &ObjectKey, object: &Listed) -> Option<Times> {
        if self.entries.is_empty() {
            return None;
        }
        let file = file_hash(at, object);
        let index = self.entries.binary_search_by_key(&file, |entry| entry.file).ok()?;
        self.times_of(self.entries.get(index)?)
    }

    pub fn first_seen_ms(&self, at: &ObjectKey, object: &Listed) -> Option<i64> {
        self.find(at, object).map(|times| times.first_seen_ms)
    }

    pub fn candidate_since_ms(&self, at: &ObjectKey, object: &Listed) -> Option<i64> {
        self.find(at, object).map(|times| times.candidate_since_ms).filter(|since_ms| *since_ms > 0)
    }

    pub fn encode(&self) -> Bytes {
        let room = MAGIC.len() + 4 + TIMES_BYTES * self.times.len() + ENTRY_BYTES * self.entries.len();
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(MAGIC);
        bytes.extend(u32::try_from(self.times.len()).unwrap_or(u32::MAX).to_be_bytes());
        for times in &self.times {
            bytes.extend(times.first_seen_ms.to_be_bytes());
            bytes.extend(times.candidate_since_ms.to_be_bytes());
        }
        for entry in &self.entries {
            bytes.extend(entry.file.0.to_be_bytes());
            bytes.extend(entry.file.1.to_be_bytes());
            bytes.extend(entry.times.to_be_bytes());
        }
        bytes.into()
    }

    /// `None` for anything that was not written by [`Sightings::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_be_bytes(*count)).ok().filter(|count| *count <= TIMES_MAX)?;
        let (times, rest) = rest.split_at_checked(count.checked_mul(TIMES_BYTES)?)?;
        let (entries, rest) = rest.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let mut found = Self { entries: Vec::with_capacity(entries.len()), ..Self::default() };
        for pair in times.as_chunks::<TIMES_BYTES>().0 {
            let (first, since) = pair.split_first_chunk::<8>()?;
            let times = Times {
                first_seen_ms: i64::from_be_bytes(*first),
                candidate_since_ms: i64::from_be_bytes(since.try_into().ok()?),
            };
            found.number_of(times)?;
        }
        for entry in entries {
            let (high, rest) = entry.split_first_chunk::<8>()?;
            let (low, times) = rest.split_first_chunk::<4>()?;
            let entry = Entry {
                file: (u64::from_be_bytes(*high), u32::from_be_bytes(*low)),
                times: u32::from_be_bytes(times.try_into().ok()?),
            };
            found.times_of(&entry)?;
            found.entries.push(entry);
        }
        Some(found.sealed())
    }

    fn key(reports: &Location, table_id: &str) -> ObjectKey {
        reports.object(&format!("{table_id}/sightings.bin"))
    }

    /// What the last run left. None that can be read is no harm: everything is seen for the first time again.
    pub async fn load(objects: &dyn ReadObjects, reports: &Location, table_id: &str) -> Result<Self, SweepError> {
        let range = Some(ByteRange::From { start: 0, length: OBJECT_MAX_BYTES });
        match objects.get(&Self::key(reports, table_id), &GetOptions { range, if_match: None }).await {
            Ok(object) => Ok(Self::decode(&object.bytes).unwrap_or_default()),
            Err(ObjectError::NotFound(_) | ObjectError::InvalidRange(_)) => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces what the last run left; only the run that has the table's lock does.
    pub async fn store(&self, objects: &dyn Objects, reports: &Location, table_id: &str) -> Result<(), SweepError> {
        objects.put(&Self::key(reports, table_id), self.encode(), &PutOptions::default()).await?;
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(key: &str, etag: &str) -> (ObjectKey, Listed) {
        let object = Listed { key: key.into(), etag: ETag(etag.into()), size_bytes: 5, last_modified_ms: 7 };
        (ObjectKey::new("b", key), object)
    }

    #[test]
    fn what_was_seen_is_found_again_and_nothing_else() {
        let mut seen = Sightings::default();
        let (one, as_listed) = file("one", "e");
        let (two, two_listed) = file("two", "e");
        seen.see(&one, &as_listed, Some(10), Some(20));
        seen.see(&two, &two_listed, Some(30), None);
        let seen = Sightings::decode(&seen.sealed().encode()).unwrap();
        assert_eq!(seen.candidate_since_ms(&one, &as_listed), Some(20));
        assert_eq!(
            (seen.first_seen_ms(&two, &two_listed), seen.candidate_since_ms(&two, &two_listed)),
            (Some(30), None)
        );
        for other in [file("one", "f"), file("three", "e")] {
            assert_eq!(seen.first_seen_ms(&other.0, &other.1), None);
        }
        let later = Listed { last_modified_ms: 8, ..as_listed };
        assert_eq!(seen.first_seen_ms(&one, &later), None, "uploaded anew");
        for damaged in [&b"LWSIGHT2x"[..], b"LWSIGHT2\0\0\0\x01", b"LWSIGHT1", b"", b"{}"] {
            assert_eq!(Sightings::decode(damaged), None);
        }
    }

    #[test]
    fn uploads_in_parts_are_known_by_their_etag() {
        let hash = "0123456789abcdef0123456789ABCDEF";
        for (etag, expected) in [
            (format!("{hash}-12"), true),
            (format!("\"{hash}-1\""), true),
            (hash.to_owned(), false),
            (format!("{hash}-"), false),
            (format!("{hash}-x"), false),
            ("80a083e8-7026-4e79-81be-64bd76c43a11".to_owned(), false),
        ] {
            assert_eq!(is_multipart(&ETag(etag.clone())), expected, "{etag}");
        }
    }
}
