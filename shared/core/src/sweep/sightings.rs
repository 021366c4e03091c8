//! What earlier runs saw. A file that looks like an orphan is deleted when a later run sees it again, unchanged: a commit
//! that came late in between has saved it.
//!
//! One object per table beside its reports, 32 bytes per file: 16 of a hash of key, ETag, size and date, 8 when it was
//! first seen, 8 since when it has been a candidate (0: it was none yet).

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::SweepError;
use crate::location::Location;
use crate::store::{ByteRange, ETag, GetOptions, Listed, ObjectError, ObjectKey, Objects, PutOptions, ReadObjects};

const MAGIC: &[u8] = b"LWSIGHT1";
const ENTRY_BYTES: usize = 32;
/// Files of one object; what is beyond is seen for the first time again.
const ENTRIES_MAX: usize = 1_000_000;
const OBJECT_MAX_BYTES: u64 = (MAGIC.len() + ENTRY_BYTES * ENTRIES_MAX) as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    file: u128,
    first_seen_ms: i64,
    /// 0: not yet.
    candidate_since_ms: i64,
}

/// Files that were seen, by what identifies an upload as far as a listing shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings(Vec<Entry>);

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

fn file_hash(at: &ObjectKey, object: &Listed) -> u128 {
    let mut digest = Sha256::new();
    for part in [at.bucket.as_bytes(), at.key.as_bytes(), object.etag.0.as_bytes()] {
        digest.update(part);
        digest.update(b"\0");
    }
    digest.update(object.size_bytes.to_be_bytes());
    digest.update(object.last_modified_ms.to_be_bytes());
    digest.finalize().first_chunk::<16>().map_or(0, |bytes| u128::from_be_bytes(*bytes))
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
        if self.0.len() < ENTRIES_MAX {
            let file = file_hash(at, object);
            self.0.push(Entry { file, first_seen_ms, candidate_since_ms: candidate_since_ms.unwrap_or(0) });
        }
    }

    /// In order, ready for look-ups.
    pub fn sealed(mut self) -> Self {
        self.0.sort_unstable();
        self
    }

    fn find(&self, at: &ObjectKey, object: &Listed) -> Option<&Entry> {
        if self.0.is_empty() {
            return None;
        }
        let file = file_hash(at, object);
        let index = self.0.binary_search_by_key(&file, |entry| entry.file).ok()?;
        self.0.get(index)
    }

    pub fn first_seen_ms(&self, at: &ObjectKey, object: &Listed) -> Option<i64> {
        self.find(at, object).map(|entry| entry.first_seen_ms)
    }

    pub fn candidate_since_ms(&self, at: &ObjectKey, object: &Listed) -> Option<i64> {
        self.find(at, object).map(|entry| entry.candidate_since_ms).filter(|since_ms| *since_ms > 0)
    }

    pub fn encode(&self) -> Bytes {
        let mut bytes = MAGIC.to_vec();
        for entry in &self.0 {
            bytes.extend(entry.file.to_be_bytes());
            bytes.extend(entry.first_seen_ms.to_be_bytes());
            bytes.extend(entry.candidate_since_ms.to_be_bytes());
        }
        bytes.into()
    }

    /// `None` for anything that was not written by [`Sightings::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (entries, rest) = bytes.strip_prefix(MAGIC)?.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let (file, times) = entry.split_first_chunk::<16>()?;
            let (first, since) = times.split_first_chunk::<8>()?;
            found.push(Entry {
                file: u128::from_be_bytes(*file),
                first_seen_ms: i64::from_be_bytes(*first),
                candidate_since_ms: i64::from_be_bytes(since.try_into().ok()?),
            });
        }
        Some(Self(found).sealed())
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
        self.0.is_empty()
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
        for damaged in [&b"LWSIGHT1x"[..], b"", b"{}"] {
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
