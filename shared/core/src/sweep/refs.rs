//! The set of files that must stay, as 64-bit hashes: two different names with one hash only ever keep a file.

use std::collections::{BTreeSet, HashSet};

use super::blob::hash64;
use super::ranges::KeySample;
use crate::location::{Location, plain};
use crate::store::ObjectKey;

/// Folders of a table's files that are remembered as evidence; files in further ones are reported and kept.
const FOLDERS_MAX: usize = 200_000;
/// Folders outside its own that are remembered of a table; one with more counts as having files anywhere.
const ELSEWHERE_MAX: usize = 100;

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
    /// What is sealed takes no more room than its numbers.
    fn seal(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        if self.sorted.is_empty() {
            self.sorted = fresh;
        } else {
            self.sorted.reserve_exact(fresh.len());
            self.sorted.append(&mut fresh);
        }
        self.sorted.sort_unstable();
        self.sorted.dedup();
        self.sorted.shrink_to_fit();
    }

    fn contains(&self, hash: u64) -> bool {
        self.sorted.binary_search(&hash).is_ok() || self.fresh.contains(&hash)
    }
}

/// What is kept of another table's references: those inside one location, and in which folders outside the table's own
/// the others lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lens {
    /// The bucket of the location that is swept, and the [`plain`] form of its prefix; `None`: everything is kept.
    within: Option<(String, Vec<u8>)>,
    /// Where the other table lies itself.
    home: Vec<Location>,
    elsewhere: BTreeSet<Location>,
    is_anywhere: bool,
}

impl Lens {
    pub fn new(within: &Location, home: Vec<Location>) -> Self {
        let within = Some((within.bucket.clone(), plain(&within.key_prefix())));
        Self { within, ..Self::recording(home) }
    }

    /// Keeps everything, and tells where it lies.
    pub fn recording(home: Vec<Location>) -> Self {
        Self { within: None, home, elsewhere: BTreeSet::new(), is_anywhere: false }
    }

    /// Folders outside its own where the table has files; `None`: too many to remember.
    pub fn elsewhere(&self) -> Option<&BTreeSet<Location>> {
        (!self.is_anywhere).then_some(&self.elsewhere)
    }

    /// What was seen so far through a recording lens, to go on with.
    pub fn seen(&self) -> (Vec<Location>, bool) {
        (self.elsewhere.iter().cloned().collect(), self.is_anywhere)
    }

    /// A recording lens that has seen this already.
    pub fn having_seen(home: Vec<Location>, elsewhere: Vec<Location>, is_anywhere: bool) -> Self {
        Self { elsewhere: elsewhere.into_iter().collect(), is_anywhere, ..Self::recording(home) }
    }

    fn note(&mut self, folder: Location) {
        if self.elsewhere.len() < ELSEWHERE_MAX || self.elsewhere.contains(&folder) {
            self.elsewhere.insert(folder);
        } else {
            self.is_anywhere = true;
        }
    }

    fn admits(&mut self, at: &ObjectKey) -> bool {
        if !self.home.iter().any(|home| home.relative(at).is_some()) {
            let folder = at.key.rsplit_once('/').map_or("", |(folder, _)| folder);
            self.note(Location { bucket: at.bucket.clone(), prefix: folder.trim_matches('/').to_owned() });
        }
        self.within.as_ref().is_none_or(|(bucket, prefix)| at.bucket == *bucket && plain(&at.key).starts_with(prefix))
    }
}

/// The hashes under which one object is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHashes {
    pub exact: u64,
    /// `None`: its name has no other spelling than itself among those that are looked up by the exact hash.
    pub loose: Option<u64>,
    /// Of what some readers of URIs take for the name.
    pub cut: Option<u64>,
    pub folder: Option<u64>,
}

impl NameHashes {
    /// Of an object that one of a bucket is held against.
    pub fn of(at: &ObjectKey, bucket: Option<&str>) -> Self {
        let cut = at.key.split_once(['?', '#']).map(|(cut, _)| loose_hash(cut));
        let plain = plain(&at.key);
        // Other spellings of a plain name are looked for by the name itself.
        let is_found = bucket == Some(at.bucket.as_str()) && plain == at.key.as_bytes();
        let loose = (!is_found).then(|| hash64(&[&plain]));
        Self { exact: exact_hash(at), loose, cut, folder: folder_hash(at) }
    }
}

/// What a manifest names, in hashes: of the table's own content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'p> {
    pub exact: &'p [u64],
    pub loose: &'p [u64],
    pub folders: &'p [u64],
    /// Files that `added_by` added, a snapshot that was made lately.
    pub added: &'p [u64],
    pub added_by: Option<i64>,
    /// Bucket and prefix of folders outside the table's own location.
    pub elsewhere: &'p [(String, String)],
    pub is_anywhere: bool,
    pub sample: &'p [(u64, String)],
}

/// Everything that some table needs: eight bytes per file, and eight more for one in another bucket, or whose name is not
/// [`plain`]. While files are added the vectors may have twice the room.
#[derive(Debug, Default)]
pub struct References {
    /// Of the objects that are looked up.
    bucket: Option<String>,
    exact: Hashes,
    pending: Hashes,
    loose: Hashes,
    /// Folders in which content of the table lies.
    folders: HashSet<u64>,
    sample: KeySample,
    lens: Option<Lens>,
}

impl References {
    /// For objects of one bucket.
    pub fn of(bucket: &str) -> Self {
        Self { bucket: Some(bucket.to_owned()), ..Self::default() }
    }

    /// Until [`References::lower`], only what is seen through the lens is added.
    pub fn raise(&mut self, lens: Lens) {
        self.lens = Some(lens);
    }

    pub fn lower(&mut self) -> Option<Lens> {
        self.lens.take()
    }

    /// Whether a file would be added; a lens notes where it lies.
    pub fn is_seen(&mut self, at: &ObjectKey) -> bool {
        self.lens.as_mut().is_none_or(|lens| lens.admits(at))
    }

    pub fn add(&mut self, at: &ObjectKey) {
        if self.is_seen(at) {
            let hashes = NameHashes::of(at, self.bucket.as_deref());
            self.exact.fresh.push(hashes.exact);
            self.loose.fresh.extend([hashes.loose, hashes.cut].into_iter().flatten());
        }
    }

    /// A file of data, deletes or vectors: what lies beside it was written by the same hands.
    pub fn add_content(&mut self, at: &ObjectKey) -> NameHashes {
        let hashes = NameHashes::of(at, self.bucket.as_deref());
        if self.lens.as_ref().is_none_or(|lens| lens.within.is_none()) {
            if let Some(folder) = hashes.folder.filter(|_| self.folders.len() < FOLDERS_MAX) {
                self.folders.insert(folder);
            }
            self.sample.note(hashes.exact, &at.key);
        }
        if self.is_seen(at) {
            self.exact.fresh.push(hashes.exact);
            self.loose.fresh.extend([hashes.loose, hashes.cut].into_iter().flatten());
        }
        hashes
    }

    /// Adds what a manifest of the table's own is known to name.
    pub fn add_packed(&mut self, packed: &Packed<'_>) {
        self.exact.fresh.extend_from_slice(packed.exact);
        self.loose.fresh.extend_from_slice(packed.loose);
        for folder in packed.folders {
            if self.folders.len() < FOLDERS_MAX {
                self.folders.insert(*folder);
            }
        }
        if let Some(lens) = &mut self.lens {
            for (bucket, prefix) in packed.elsewhere {
                lens.note(Location { bucket: bucket.clone(), prefix: prefix.clone() });
            }
            lens.is_anywhere |= packed.is_anywhere;
        }
        self.sample.note_some(packed.exact.len() as u64, packed.sample);
    }

    /// Adds what is known by its hashes, of the table's own.
    pub fn add_hashed(&mut self, exact: &[u64], loose: &[u64]) {
        self.exact.fresh.extend_from_slice(exact);
        self.loose.fresh.extend_from_slice(loose);
    }

    /// Adds so many keys of the table's own content, of which some are known.
    pub fn add_sample(&mut self, count: u64, sample: &KeySample) {
        self.sample.note_sample(count, sample);
    }

    /// Keys of the table's own content.
    pub fn sample(&self) -> &KeySample {
        &self.sample
    }

    /// Whether content of the table lies in the same folder.
    pub fn is_beside_content(&self, at: &ObjectKey) -> bool {
        folder_hash(at).is_some_and(|folder| self.folders.contains(&folder))
    }

    pub fn add_pending(&mut self, at: &ObjectKey) {
        if self.is_seen(at) {
            let hashes = NameHashes::of(at, self.bucket.as_deref());
            self.pending.fresh.push(hashes.exact);
            self.loose.fresh.extend([hashes.loose, hashes.cut].into_iter().flatten());
        }
    }

    /// What is held, to be stored: objects by their names, pending ones, loose names, folders. Sealed before.
    pub fn columns(&self) -> ([&[u64]; 3], Vec<u64>) {
        let folders = self.folders.iter().copied().collect();
        ([&self.exact.sorted, &self.pending.sorted, &self.loose.sorted], folders)
    }

    pub fn from_columns(bucket: &str, [exact, pending, loose, folders]: [Vec<u64>; 4], sample: KeySample) -> Self {
        let hashes = |fresh| Hashes { sorted: Vec::new(), fresh };
        let mut references = Self {
            bucket: Some(bucket.to_owned()),
            exact: hashes(exact),
            pending: hashes(pending),
            loose: hashes(loose),
            folders: folders.into_iter().collect(),
            sample,
            lens: None,
        };
        references.seal();
        references
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
        } else if self.is_another_spelling(at) {
            Held::SpelledDifferently
        } else {
            Held::No
        }
    }

    fn is_another_spelling(&self, at: &ObjectKey) -> bool {
        let plain = plain(&at.key);
        let named = hash64(&[at.bucket.as_bytes(), b"\0", &plain]);
        let is_named = plain != at.key.as_bytes() && (self.exact.contains(named) || self.pending.contains(named));
        is_named || self.loose.contains(hash64(&[&plain]))
    }
}

/// The hash by which an object is known.
pub(super) fn exact_hash(at: &ObjectKey) -> u64 {
    hash64(&[at.bucket.as_bytes(), b"\0", at.key.as_bytes()])
}

/// Of the folder of an object; none in the root of a bucket.
fn folder_hash(at: &ObjectKey) -> Option<u64> {
    let (folder, _) = at.key.rsplit_once('/')?;
    Some(hash64(&[at.bucket.as_bytes(), b"\0", folder.as_bytes(), b"/"]))
}

/// Whatever the bucket: access points, copies of a table.
fn loose_hash(key: &str) -> u64 {
    hash64(&[&plain(key)])
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

    /// What takes the room of a large table: one number for a file with a usual name.
    #[test]
    fn usual_names_take_eight_bytes_and_odd_ones_sixteen() {
        let mut references = References::of("b");
        for number in 0..1000 {
            references.add_content(&key(&format!("t/data/day=1/{number:05}-0-u.parquet")));
        }
        references.add_pending(&key("t/data/pending.parquet"));
        references.seal();
        let lengths = |references: &References| references.columns().0.map(<[u64]>::len);
        assert_eq!(lengths(&references), [1000, 1, 0]);
        assert_eq!(references.exact.sorted.capacity(), 1000);
        assert_eq!(references.held(&key("t/data//day=1/00007-0-u.parquet")), Held::SpelledDifferently);
        assert_eq!(references.held(&key("t/data/day%3D1/00007-0-u.parquet")), Held::SpelledDifferently);
        assert_eq!(references.held(&key("t//data/pending.parquet")), Held::SpelledDifferently);
        for odd in ["t/data/p=a%2Fb/x.parquet", "t//x.parquet", "t/a+b.parquet"] {
            references.add(&key(odd));
        }
        references.add(&ObjectKey::new("copy", "t/y.parquet"));
        references.seal();
        assert_eq!(lengths(&references), [1004, 1, 4]);
        assert_eq!(references.held(&key("t/y.parquet")), Held::SpelledDifferently);
        assert_eq!(references.held(&key("t/x.parquet")), Held::SpelledDifferently);
    }

    #[test]
    fn through_a_lens_only_what_lies_inside_is_kept_and_where_the_rest_lies() {
        let mut references = References::default();
        references.raise(Lens::new(&Location::new("b", "wh/t"), vec![Location::new("b", "wh/clone")]));
        for named in ["wh/t/data/x", "wh//t/y", "wh/t2/z", "wh/clone/data/a"] {
            references.add_content(&key(named));
        }
        references.add_pending(&ObjectKey::new("other", "wh/t/w"));
        let lens = references.lower().unwrap();
        let elsewhere: Vec<String> = lens.elsewhere().unwrap().iter().map(Location::to_string).collect();
        assert_eq!(elsewhere, ["s3://b/wh//t", "s3://b/wh/t/data", "s3://b/wh/t2", "s3://other/wh/t"]);
        references.seal();
        assert_eq!(references.held(&key("wh/t/data/x")), Held::Referenced);
        assert_eq!(references.held(&key("wh/t/y")), Held::SpelledDifferently);
        for not_kept in [key("wh/t2/z"), key("wh/clone/data/a"), ObjectKey::new("other", "wh/t/w")] {
            assert_eq!(references.held(&not_kept), Held::No, "{not_kept}");
        }
        references.add_content(&key("wh/t/day=1/x"));
        assert!(references.is_beside_content(&key("wh/t/day=1/y")));
        assert!(!references.is_beside_content(&key("wh/t/data/y")) && !references.is_beside_content(&key("y")));
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
        fn whatever_was_added_is_held(
            names in prop::collection::vec("[ -~é/%+#]{1,12}", 1..30),
            seal in any::<bool>(),
            is_bound in any::<bool>(),
        ) {
            let mut references = if is_bound { References::of("b") } else { References::default() };
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
