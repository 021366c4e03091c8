//! The set of files that must stay, as 64-bit hashes: two different names with one hash only ever keep a file.

use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};

use crate::store::ObjectKey;

/// How a listed object stands to the reference set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    No,
    Referenced,
    /// Named by a commit that has not been decided.
    Pending,
    /// Only a loose reading of a reference is this object's name.
    SpelledDifferently,
}

/// Hashes in order, with a tail of new ones.
#[derive(Debug, Default)]
struct Hashes {
    sorted: Vec<u64>,
    fresh: Vec<u64>,
}

impl Hashes {
    fn seal(&mut self) {
        if !self.fresh.is_empty() {
            self.sorted.append(&mut self.fresh);
            self.sorted.sort_unstable();
            self.sorted.dedup();
        }
    }

    fn contains(&self, hash: u64) -> bool {
        self.sorted.binary_search(&hash).is_ok() || self.fresh.contains(&hash)
    }
}

/// Everything that some table needs. Sixteen bytes per file.
#[derive(Debug, Default)]
pub struct References {
    exact: Hashes,
    pending: Hashes,
    loose: Hashes,
}

impl References {
    pub fn add(&mut self, at: &ObjectKey) {
        self.exact.fresh.push(exact_hash(at));
        self.add_loose(&at.key);
    }

    pub fn add_pending(&mut self, at: &ObjectKey) {
        self.pending.fresh.push(exact_hash(at));
        self.add_loose(&at.key);
    }

    fn add_loose(&mut self, key: &str) {
        self.loose.fresh.push(loose_hash(key));
        // Some readers of URIs cut them here.
        if let Some((cut, _)) = key.split_once(['?', '#']) {
            self.loose.fresh.push(loose_hash(cut));
        }
    }

    /// Sorts what was added, so that look-ups are quick again.
    pub fn seal(&mut self) {
        self.exact.seal();
        self.pending.seal();
        self.loose.seal();
    }

    pub fn held(&self, at: &ObjectKey) -> Held {
        let exact = exact_hash(at);
        if self.exact.contains(exact) {
            Held::Referenced
        } else if self.pending.contains(exact) {
            Held::Pending
        } else if self.loose.contains(loose_hash(&at.key)) {
            Held::SpelledDifferently
        } else {
            Held::No
        }
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn exact_hash(at: &ObjectKey) -> u64 {
    hash(&[at.bucket.as_bytes(), b"\0", at.key.as_bytes()])
}

/// One hash for all spellings that some tool takes for the same object: the bucket (access points, copies of a table),
/// repeated and leading slashes, percent signs however often encoded, plus signs for blanks.
fn loose_hash(key: &str) -> u64 {
    let mut bytes = key.as_bytes().to_vec();
    for _ in 0..3 {
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded == bytes {
            break;
        }
        bytes = decoded;
    }
    let mut plain = Vec::with_capacity(bytes.len());
    for byte in bytes {
        let byte = if byte == b'+' { b' ' } else { byte };
        if byte != b'/' || plain.last().is_some_and(|last| *last != b'/') {
            plain.push(byte);
        }
    }
    hash(&[&plain])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(key: &str) -> ObjectKey {
        ObjectKey::new("b", key)
    }

    #[test]
    fn loose_spellings_keep_and_only_keep() {
        let named = "t/data/day=a%2Fb/f 1.parquet";
        let mut references = References::default();
        references.add(&key(named));
        references.seal();
        assert_eq!(references.held(&key(named)), Held::Referenced);
        let spellings = [
            "/t/data//day=a%2Fb/f 1.parquet",
            "t/data/day=a%252Fb/f%201.parquet",
            "t/data/day=a/b/f+1.parquet",
            "t/data/day=a%2fb/f%201.parquet",
        ];
        for other in spellings {
            assert_eq!(references.held(&key(other)), Held::SpelledDifferently, "{other}");
        }
        assert_eq!(references.held(&ObjectKey::new("copy", named)), Held::SpelledDifferently);
        for other in ["t/data/day=a%2Fb/F 1.parquet", "t/data/day=a%2Fb/f 2.parquet", "t/data/day=a%2Fb/"] {
            assert_eq!(references.held(&key(other)), Held::No, "{other}");
        }
    }

    #[test]
    fn pending_files_are_told_from_referenced_ones() {
        let mut references = References::default();
        references.add_pending(&key("t/new.parquet"));
        assert_eq!(references.held(&key("t/new.parquet")), Held::Pending);
        references.add(&key("t/new.parquet"));
        references.seal();
        assert_eq!(references.held(&key("t/new.parquet")), Held::Referenced);
        references.add(&key("t/a#b?c"));
        assert_eq!(references.held(&key("t/a")), Held::SpelledDifferently);
    }

    proptest! {
        #[test]
        fn whatever_was_added_is_held(names in prop::collection::vec("[ -~é/%+#]{1,12}", 1..30), seal in any::<bool>()) {
            let mut references = References::default();
            for name in &names {
                references.add(&key(name));
            }
            if seal {
                references.seal();
            }
            for name in &names {
                prop_assert_eq!(references.held(&key(name)), Held::Referenced);
                prop_assert_ne!(references.held(&key(&format!("//{name}"))), Held::No);
            }
        }
    }
}
