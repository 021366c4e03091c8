//! First look at a table's whole location, also when only a folder of it is swept: signs of tables that the catalog does
//! not know, and metadata files. No decision falls here, since the end of a listing may protect what came at its
//! beginning, and what lies above or beside the scope what is in it.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::SweepError;
use super::blob::hash64;
use super::flink::TempManifest;
use super::refs::exact_hash;
use crate::iceberg::is_metadata_name;
use crate::limits::{LIST_PAGE_MAX_KEYS, OBJECT_KEY_MAX_BYTES};
use crate::location::Location;
use crate::store::{
    ETag, ListPage, ListRequest, Listed, ObjectError, ObjectKey, ReadObjects, StoreErrorKind, list_every,
};

/// Folders whose presence below a prefix makes that prefix the root of a table.
const ROOT_SIGNS: [(&str, Sign); 2] = [("_delta_log", Sign::DeltaLog), (".hoodie", Sign::Hoodie)];

/// Pages whose ends are remembered; of more, every second one.
const PAGES_MAX: usize = 1024;

/// What stands for a table root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    DeltaLog,
    Hoodie,
    /// An Iceberg metadata file lies in this folder (not in the root).
    IcebergMetadata,
}

/// A metadata file that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataFile {
    pub at: ObjectKey,
    pub last_modified_ms: i64,
    /// [`state_hash`] of the object, as it was listed.
    pub state: u64,
}

impl MetadataFile {
    pub fn of(bucket: &str, object: &Listed) -> Self {
        Self {
            at: ObjectKey::new(bucket, object.key.clone()),
            last_modified_ms: object.last_modified_ms,
            state: state_hash(&object.etag, object.size_bytes),
        }
    }
}

/// What was seen on the way through a table's location.
#[derive(Debug, Default)]
pub struct Survey {
    /// Roots (of log folders) or metadata folders, without trailing slash.
    pub signs: BTreeSet<(Sign, String)>,
    pub metadata_files: Vec<MetadataFile>,
    /// Manifests of Flink's checkpoints.
    pub temp_manifests: Vec<MetadataFile>,
    /// Avro files that nothing references and that are not old, wherever they lie: among them the manifests of commits
    /// that are being made, or made again after they had lost.
    pub attempts: Vec<MetadataFile>,
    /// Files from this moment on are young.
    pub young_since_ms: i64,
    /// Last keys of pages, to share out the next listing by.
    pub pages: Vec<String>,
    /// Lists and manifests that were taken for what an earlier run had read, and that were not seen to be the same
    /// objects still: hashes of their keys, and of the objects that were read.
    pub unconfirmed: HashMap<u64, u64>,
}

/// Only what is so named is looked for in listings.
pub fn has_avro_name(at: &str) -> bool {
    at.ends_with(".avro")
}

/// A hash of one state of an object: another one has another tag or another size.
pub fn state_hash(etag: &ETag, size_bytes: u64) -> u64 {
    hash64(&[etag.0.as_bytes(), b"/", &size_bytes.to_le_bytes()])
}

/// A request for the pages below `folder`.
pub fn list_request(folder: &Location) -> ListRequest {
    ListRequest {
        bucket: folder.bucket.clone(),
        prefix: folder.key_prefix(),
        start_after: None,
        max_keys: LIST_PAGE_MAX_KEYS,
    }
}

impl Survey {
    pub fn note(&mut self, bucket: &str, object: &Listed) {
        self.note_signs(object);
        self.confirm(bucket, object);
        let name = object.key.rsplit('/').next().unwrap_or_default();
        if is_metadata_name(name) {
            self.metadata_files.push(MetadataFile::of(bucket, object));
        } else if TempManifest::parse(name).is_some() {
            self.temp_manifests.push(MetadataFile::of(bucket, object));
        }
    }

    /// Takes a list or manifest off the unconfirmed ones if it is what was read.
    fn confirm(&mut self, bucket: &str, object: &Listed) {
        if self.unconfirmed.is_empty() || !has_avro_name(&object.key) {
            return;
        }
        let hash = exact_hash(&ObjectKey::new(bucket, object.key.clone()));
        if self.unconfirmed.get(&hash) == Some(&state_hash(&object.etag, object.size_bytes)) {
            self.unconfirmed.remove(&hash);
        }
    }

    /// What is unconfirmed still.
    pub fn doubted(&self) -> HashSet<u64> {
        self.unconfirmed.keys().copied().collect()
    }

    /// Notes a file that nothing references and that is not old.
    pub fn note_unreferenced(&mut self, bucket: &str, object: &Listed) {
        if has_avro_name(&object.key) {
            self.attempts.push(MetadataFile::of(bucket, object));
        }
    }

    /// Notes where a page ended.
    pub fn note_page(&mut self, objects: &[Listed]) {
        if self.pages.len() >= PAGES_MAX {
            let mut index = 0_usize;
            self.pages.retain(|_| {
                index = index.wrapping_add(1);
                index.is_multiple_of(2)
            });
        }
        self.pages.extend(objects.last().map(|object| object.key.clone()));
    }

    /// Notes an unreferenced file that came while the survey was under way, or after it; whether it has to be opened and
    /// was not known.
    pub fn note_late(&mut self, bucket: &str, object: &Listed) -> bool {
        let name = object.key.rsplit('/').next().unwrap_or_default();
        let is_temporary = TempManifest::parse(name).is_some();
        let mut lists = Vec::new();
        if is_metadata_name(name) {
            lists.push(&mut self.metadata_files);
        } else if is_temporary {
            lists.push(&mut self.temp_manifests);
        }
        if name.ends_with(".avro") {
            lists.push(&mut self.attempts);
        }
        let mut is_new = false;
        if lists.is_empty() {
            return is_new;
        }
        let late = MetadataFile::of(bucket, object);
        for list in lists {
            if !list.contains(&late) {
                list.push(late.clone());
                is_new = true;
            }
        }
        is_new
    }

    /// Signs only, for objects that are listed once more.
    pub fn note_signs(&mut self, object: &Listed) {
        for (folder, sign) in ROOT_SIGNS {
            if let Some(root) = root_before(&object.key, folder) {
                self.signs.insert((sign, root.to_owned()));
            }
        }
        let (folder, name) = object.key.rsplit_once('/').unwrap_or(("", &object.key));
        if is_metadata_name(name) {
            self.signs.insert((Sign::IcebergMetadata, folder.to_owned()));
        }
    }

    /// Looks for tables whose root lies above `table`: it may be one of their folders. `known` are the locations of the
    /// catalog's tables there. Three requests for each folder above.
    pub async fn look_above(
        &mut self,
        objects: &dyn ReadObjects,
        table: &Location,
        known: &[Location],
    ) -> Result<(), SweepError> {
        let ends = table.prefix.match_indices('/').map(|(end, _)| end);
        let folders = ends.filter_map(|end| table.prefix.get(..end)).chain([""]);
        for folder in folders.filter(|folder| *folder != table.prefix) {
            let above = Location { bucket: table.bucket.clone(), prefix: folder.to_owned() };
            if known.contains(&above) {
                continue;
            }
            for (name, sign) in ROOT_SIGNS {
                if !first_page(objects, &above, name, 1).await?.is_empty() {
                    self.signs.insert((sign, folder.to_owned()));
                }
            }
            let prefix = format!("{}metadata/", above.key_prefix());
            for object in first_page(objects, &above, "metadata", LIST_PAGE_MAX_KEYS).await? {
                let name = object.key.strip_prefix(&prefix).unwrap_or_default();
                if is_metadata_name(name) && !name.contains('/') {
                    self.signs.insert((Sign::IcebergMetadata, prefix.trim_end_matches('/').to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Signs that neither the table itself leaves nor those that share its place, each with the root that it stands for.
    pub fn foreign_signs(&self, ours: &OwnSigns) -> Vec<ForeignSign> {
        let mut found = Vec::new();
        for (sign, folder) in &self.signs {
            let (own, root) = match sign {
                Sign::DeltaLog => (ours.delta_roots.contains(folder), folder.as_str()),
                Sign::Hoodie => (ours.hoodie_roots.contains(folder), folder.as_str()),
                Sign::IcebergMetadata => (ours.metadata_folders.contains(folder), root_of_metadata(folder)),
            };
            if !own {
                found.push(ForeignSign { sign: *sign, folder: folder.clone(), root: root.to_owned() });
            }
        }
        found
    }
}

/// A sign of a table that is not the one that is swept. Folders without trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSign {
    pub sign: Sign,
    /// As in [`Survey::signs`].
    pub folder: String,
    /// Where the table lies.
    pub root: String,
}

/// Which signs a table leaves itself. Folders without trailing slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSigns {
    pub delta_roots: BTreeSet<String>,
    pub hoodie_roots: BTreeSet<String>,
    pub metadata_folders: BTreeSet<String>,
}

impl OwnSigns {
    /// Adds those of a table that shares the place.
    pub fn extend(&mut self, other: OwnSigns) {
        self.delta_roots.extend(other.delta_roots);
        self.hoodie_roots.extend(other.hoodie_roots);
        self.metadata_folders.extend(other.metadata_folders);
    }
}

pub(super) async fn first_page(
    objects: &dyn ReadObjects,
    above: &Location,
    folder: &str,
    max_keys: usize,
) -> Result<Vec<Listed>, SweepError> {
    let prefix = format!("{}{folder}/", above.key_prefix());
    let request = ListRequest { bucket: above.bucket.clone(), prefix, start_after: None, max_keys };
    Ok(list_if_there(objects, &request).await?.map(|page| page.objects).unwrap_or_default())
}

/// A page, or `None` where no object can be: there is no such bucket, or no key is as long as the prefix.
pub(super) async fn list_if_there(
    objects: &dyn ReadObjects,
    request: &ListRequest,
) -> Result<Option<ListPage>, ObjectError> {
    if request.prefix.len() > OBJECT_KEY_MAX_BYTES {
        return Ok(None);
    }
    match objects.list(request).await {
        Ok(page) => Ok(Some(page)),
        Err(ObjectError::Store(error)) if error.kind == StoreErrorKind::Missing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Everything below a folder; nothing where no object can be.
pub(super) async fn list_below(objects: &dyn ReadObjects, folder: &Location) -> Result<Vec<Listed>, ObjectError> {
    let prefix = folder.key_prefix();
    if prefix.len() > OBJECT_KEY_MAX_BYTES {
        return Ok(Vec::new());
    }
    match list_every(objects, &folder.bucket, &prefix).await {
        Err(ObjectError::Store(error)) if error.kind == StoreErrorKind::Missing => Ok(Vec::new()),
        other => other,
    }
}

/// Prefixes of tables that nobody told us about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignRoots(BTreeSet<String>);

impl ForeignRoots {
    pub fn of(signs: &[ForeignSign]) -> Self {
        Self(signs.iter().map(|one| one.root.clone()).collect())
    }

    pub fn covers(&self, key: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let ends = key.match_indices('/').filter_map(|(end, _)| key.get(..end));
        std::iter::once("").chain(ends).any(|folder| self.0.contains(folder))
    }

    /// Whether a root lies at a folder or inside it.
    pub fn lies_in(&self, folder: &str) -> bool {
        let below = format!("{folder}/");
        self.0.contains(folder) || self.0.range(below.clone()..).next().is_some_and(|root| root.starts_with(&below))
    }
}

/// What stands before the first folder of that name.
fn root_before<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    let mut start = 0;
    while let Some(length) = key.get(start..)?.find('/') {
        if key.get(start..start + length) == Some(folder) {
            return Some(key.get(..start)?.trim_end_matches('/'));
        }
        start += length + 1;
    }
    None
}

/// `x/metadata` belongs to a table at `x`; other folders count as the table's place themselves.
fn root_of_metadata(folder: &str) -> &str {
    match folder.strip_suffix("metadata") {
        Some("") => "",
        Some(root) if root.ends_with('/') => root.trim_end_matches('/'),
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(keys: &[&str]) -> Survey {
        let mut survey = Survey::default();
        for key in keys {
            let listed = Listed { key: (*key).to_owned(), etag: ETag("e".into()), size_bytes: 1, last_modified_ms: 1 };
            survey.note("b", &listed);
        }
        survey
    }

    fn roots(survey: &Survey, ours: &OwnSigns) -> ForeignRoots {
        ForeignRoots::of(&survey.foreign_signs(ours))
    }

    #[test]
    fn roots_of_other_tables_are_recognised() {
        let survey = survey(&[
            "t/metadata/v1.metadata.json",
            "t/data/x/metadata/00000-u.metadata.json",
            "t/sub/_delta_log/00000000000000000000.json",
            "t/hudi/p/.hoodie/hoodie.properties",
            "t/odd/v2.metadata.json",
            "t/_delta_log_not/x",
            "t/x_delta_log/y",
        ]);
        let ours = OwnSigns { metadata_folders: BTreeSet::from(["t/metadata".to_owned()]), ..OwnSigns::default() };
        let foreign = roots(&survey, &ours);
        assert_eq!(foreign.0.iter().collect::<Vec<_>>(), ["t/data/x", "t/hudi/p", "t/odd", "t/sub"]);
        for (folder, is_there) in [("t", true), ("t/data", true), ("t/sub", true), ("t/su", false), ("t/sub/x", false)]
        {
            assert_eq!(foreign.lies_in(folder), is_there, "{folder}");
        }
        for key in ["t/sub/a.parquet", "t/data/x/y/z", "t/odd/v2.metadata.json"] {
            assert!(foreign.covers(key), "{key}");
        }
        for key in ["t/sub2/a.parquet", "t/data/y", "t/metadata/v1.metadata.json", "t/sub"] {
            assert!(!foreign.covers(key), "{key}");
        }
        assert_eq!(survey.metadata_files.len(), 3);
    }

    #[test]
    fn a_log_at_the_root_is_a_delta_tables_own() {
        let survey = survey(&["t/_delta_log/0.json", "t/metadata/v1.metadata.json"]);
        let delta = OwnSigns { delta_roots: BTreeSet::from(["t".to_owned()]), ..OwnSigns::default() };
        assert_eq!(roots(&survey, &delta).0.iter().collect::<Vec<_>>(), ["t"]);
        let at_bucket_root = super::Survey { signs: [(Sign::DeltaLog, String::new())].into(), ..Default::default() };
        assert!(roots(&at_bucket_root, &OwnSigns::default()).covers("any"));
    }
}
