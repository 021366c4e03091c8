use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{Faults, lock};
use crate::limits;
use crate::store::Clock;
use crate::store::objects::{
    ByteRange, Deleted, Doomed, ETag, GetOptions, ListPage, ListRequest, Listed, ListedVersion, Object, ObjectError,
    ObjectKey, ObjectMeta, ObjectUsage, Objects, PresignedPut, PutCondition, PutOptions, ReadObjects, VersionId,
    VersionMark, VersionPage, VersionRequest, VersionState, Versioning, check_delete_batch, check_object_key,
};

#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    meta: ObjectMeta,
    version: VersionId,
}

/// A version that reads without an id do not find.
#[derive(Clone, Debug)]
enum Hidden {
    Object(Stored),
    Marker { id: VersionId, at_ms: i64 },
}

impl Hidden {
    fn id(&self) -> &VersionId {
        match self {
            Hidden::Object(stored) => &stored.version,
            Hidden::Marker { id, .. } => id,
        }
    }

    fn listed(&self, key: &str, is_latest: bool) -> ListedVersion {
        match self {
            Hidden::Object(stored) => stored.listed(key, is_latest),
            Hidden::Marker { id, at_ms } => ListedVersion {
                key: key.to_owned(),
                id: id.clone(),
                is_latest,
                last_modified_ms: *at_ms,
                state: VersionState::DeleteMarker,
            },
        }
    }
}

impl Stored {
    fn listed(&self, key: &str, is_latest: bool) -> ListedVersion {
        ListedVersion {
            key: key.to_owned(),
            id: self.version.clone(),
            is_latest,
            last_modified_ms: self.meta.last_modified_ms,
            state: VersionState::Object { etag: self.meta.etag.clone(), size_bytes: self.meta.size_bytes },
        }
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<ObjectKey, Stored>,
    /// Older versions and delete markers, the newest last.
    hidden: BTreeMap<ObjectKey, Vec<Hidden>>,
    versioning: BTreeMap<String, Versioning>,
    versions_made: u64,
    usage: ObjectUsage,
}

/// What buckets without versions call theirs.
fn null() -> VersionId {
    VersionId("null".to_owned())
}

impl State {
    fn versioning_of(&self, bucket: &str) -> Versioning {
        self.versioning.get(bucket).copied().unwrap_or(Versioning::Off)
    }

    fn next_version(&mut self, bucket: &str) -> VersionId {
        if self.versioning_of(bucket) != Versioning::Enabled {
            return null();
        }
        self.versions_made += 1;
        VersionId(format!("v{:08}", self.versions_made))
    }

    /// Makes way for another newest version.
    fn displace(&mut self, at: &ObjectKey) {
        let is_kept = self.versioning_of(&at.bucket) == Versioning::Enabled;
        if !is_kept && let Some(hidden) = self.hidden.get_mut(at) {
            hidden.retain(|one| *one.id() != null());
        }
        if let Some(stored) = self.objects.remove(at)
            && (is_kept || stored.version != null())
        {
            self.hidden.entry(at.clone()).or_default().push(Hidden::Object(stored));
        }
    }

    /// A delete without a version id.
    fn remove(&mut self, at: &ObjectKey, now_ms: i64) -> Option<VersionId> {
        if self.versioning_of(&at.bucket) == Versioning::Off {
            self.objects.remove(at);
            return None;
        }
        self.displace(at);
        let id = self.next_version(&at.bucket);
        self.hidden.entry(at.clone()).or_default().push(Hidden::Marker { id: id.clone(), at_ms: now_ms });
        Some(id)
    }

    fn remove_version(&mut self, at: &ObjectKey, id: &VersionId) {
        if self.objects.get(at).is_some_and(|stored| stored.version == *id) {
            self.objects.remove(at);
        } else if let Some(hidden) = self.hidden.get_mut(at) {
            hidden.retain(|one| one.id() != id);
        }
        let Some(hidden) = self.hidden.get_mut(at) else { return };
        if !self.objects.contains_key(at)
            && let Some(Hidden::Object(_)) = hidden.last()
            && let Some(Hidden::Object(stored)) = hidden.pop()
        {
            self.objects.insert(at.clone(), stored);
        }
    }

    /// Every version of a key, the newest first.
    fn versions_of(&self, at: &ObjectKey) -> Vec<ListedVersion> {
        let current = self.objects.get(at);
        let mut versions: Vec<ListedVersion> = current.map(|stored| stored.listed(&at.key, true)).into_iter().collect();
        for one in self.hidden.get(at).into_iter().flatten().rev() {
            versions.push(one.listed(&at.key, versions.is_empty()));
        }
        versions
    }
}

/// S3's behaviour in memory: strong consistency, byte order, conditional writes and deletes. Every bucket exists.
pub struct MemoryObjects {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    faults: Arc<Faults>,
}

impl std::fmt::Debug for MemoryObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryObjects")
    }
}

impl MemoryObjects {
    pub fn new(clock: Arc<dyn Clock>, faults: Arc<Faults>) -> Self {
        Self { state: Mutex::default(), clock, faults }
    }

    /// Keys of everything stored in a bucket, for tests that look inside.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        lock(&self.state).objects.keys().filter(|at| at.bucket == bucket).map(|at| at.key.clone()).collect()
    }

    /// Buckets keep no versions until this says so.
    pub fn set_versioning(&self, bucket: &str, versioning: Versioning) {
        lock(&self.state).versioning.insert(bucket.to_owned(), versioning);
    }

    /// Gives an object the tag of one that was uploaded in parts; what is copied from it has another.
    pub fn mark_as_parts(&self, at: &ObjectKey) -> Option<ETag> {
        let mut state = lock(&self.state);
        let stored = state.objects.get_mut(at)?;
        stored.meta.etag = ETag(format!("{}-2", stored.meta.etag.0));
        Some(stored.meta.etag.clone())
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms().div_euclid(1000) * 1000
    }

    fn store(&self, state: &mut State, at: &ObjectKey, bytes: Bytes, metadata: BTreeMap<String, String>) -> ETag {
        let digest = hex::encode(Sha256::digest(&bytes));
        let etag = ETag(digest.chars().take(32).collect());
        let meta = ObjectMeta {
            etag: etag.clone(),
            size_bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            last_modified_ms: self.now_ms(),
            metadata,
        };
        state.displace(at);
        let version = state.next_version(&at.bucket);
        state.objects.insert(at.clone(), Stored { bytes, meta, version });
        etag
    }
}

fn check_condition(state: &State, at: &ObjectKey, condition: &PutCondition) -> Result<(), ObjectError> {
    match (condition, state.objects.get(at)) {
        (PutCondition::Always, _) | (PutCondition::Absent, None) => Ok(()),
        (PutCondition::Absent, Some(_)) => Err(ObjectError::PreconditionFailed(at.clone())),
        (PutCondition::Matches(_), None) => Err(ObjectError::NotFound(at.clone())),
        (PutCondition::Matches(etag), Some(stored)) if stored.meta.etag == *etag => Ok(()),
        (PutCondition::Matches(_), Some(_)) => Err(ObjectError::PreconditionFailed(at.clone())),
    }
}

/// Names of metadata are header names: S3 answers them in lower case.
fn lower_case(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
}

fn cut(bytes: &Bytes, range: ByteRange, at: &ObjectKey) -> Result<Bytes, ObjectError> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let (start, end) = match range {
        ByteRange::From { start, length } => (start, start.saturating_add(length).min(size)),
        ByteRange::Suffix { length } => (size.saturating_sub(length), size),
    };
    if start >= size || start >= end {
        return Err(ObjectError::InvalidRange(at.clone()));
    }
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(bytes.slice(index(start)..index(end)))
}

#[async_trait]
impl ReadObjects for MemoryObjects {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        let operation = format!("get {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        if options.range.is_some_and(ByteRange::is_empty) {
            return Err(ObjectError::InvalidRange(at.clone()));
        }
        let mut state = lock(&self.state);
        state.usage.gets += 1;
        let stored = state.objects.get(at).cloned().ok_or_else(|| ObjectError::NotFound(at.clone()))?;
        if options.if_match.as_ref().is_some_and(|etag| *etag != stored.meta.etag) {
            return Err(ObjectError::PreconditionFailed(at.clone()));
        }
        let bytes = match options.range {
            None => stored.bytes,
            Some(range) => cut(&stored.bytes, range, at)?,
        };
        state.usage.bytes_read += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        lost.map_or(Ok(Object { meta: stored.meta, bytes }), |error| Err(error.into()))
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        let operation = format!("head {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let mut state = lock(&self.state);
        state.usage.heads += 1;
        let stored = state.objects.get(at).ok_or_else(|| ObjectError::NotFound(at.clone()))?;
        lost.map_or(Ok(stored.meta.clone()), |error| Err(error.into()))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        let lost = self.faults.enter(&format!("list s3://{}/{}", request.bucket, request.prefix))?;
        let mut state = lock(&self.state);
        state.usage.lists += 1;
        let most = request.max_keys.clamp(1, limits::LIST_PAGE_MAX_KEYS);
        let from = match &request.start_after {
            Some(after) if *after >= request.prefix => {
                Bound::Excluded(ObjectKey::new(request.bucket.clone(), after.clone()))
            }
            _ => Bound::Included(ObjectKey::new(request.bucket.clone(), request.prefix.clone())),
        };
        let mut page = ListPage::default();
        for (at, stored) in state.objects.range((from, Bound::Unbounded)) {
            if at.bucket != request.bucket || !at.key.starts_with(&request.prefix) {
                break;
            }
            if page.objects.len() == most {
                page.truncated = true;
                break;
            }
            page.objects.push(Listed {
                key: at.key.clone(),
                etag: stored.meta.etag.clone(),
                size_bytes: stored.meta.size_bytes,
                last_modified_ms: stored.meta.last_modified_ms,
            });
        }
        lost.map_or(Ok(page), |error| Err(error.into()))
    }

    fn object_usage(&self) -> ObjectUsage {
        lock(&self.state).usage
    }
}

#[async_trait]
impl Objects for MemoryObjects {
    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError> {
        let operation = format!("put {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let mut state = lock(&self.state);
        state.usage.puts += 1;
        check_condition(&state, at, &options.condition)?;
        state.usage.bytes_written += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let etag = self.store(&mut state, at, bytes, lower_case(&options.metadata));
        lost.map_or(Ok(etag), |error| Err(error.into()))
    }

    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError> {
        let operation = format!("copy {to}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(from, &operation)?;
        check_object_key(to, &operation)?;
        let mut state = lock(&self.state);
        state.usage.copies += 1;
        let missing = if matches!(condition, PutCondition::Matches(_)) { to } else { from };
        let stored = state.objects.get(from).cloned().ok_or_else(|| ObjectError::NotFound(missing.clone()))?;
        check_condition(&state, to, condition)?;
        let etag = self.store(&mut state, to, stored.bytes, stored.meta.metadata);
        lost.map_or(Ok(etag), |error| Err(error.into()))
    }

    async fn create_copy(&self, from: &ObjectKey, etag: &ETag, to: &ObjectKey) -> Result<ETag, ObjectError> {
        let operation = format!("create_copy {to}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(from, &operation)?;
        check_object_key(to, &operation)?;
        let mut state = lock(&self.state);
        state.usage.copies += 1;
        let stored = state.objects.get(from).cloned().ok_or_else(|| ObjectError::NotFound(from.clone()))?;
        if stored.meta.etag != *etag || state.objects.contains_key(to) {
            return Err(ObjectError::PreconditionFailed(to.clone()));
        }
        let etag = self.store(&mut state, to, stored.bytes, stored.meta.metadata);
        lost.map_or(Ok(etag), |error| Err(error.into()))
    }

    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        let operation = format!("delete {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let mut state = lock(&self.state);
        state.usage.deletes += 1;
        if let Some(etag) = if_match {
            check_condition(&state, at, &PutCondition::Matches(etag.clone()))?;
        }
        state.remove(at, self.now_ms());
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn presign_put(&self, at: &ObjectKey, valid_ms: u64) -> Result<PresignedPut, ObjectError> {
        let operation = format!("presign {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let url = format!("memory://{}/{}?valid_ms={valid_ms}", at.bucket, at.key);
        let headers = vec![("if-none-match".to_owned(), "*".to_owned())];
        lost.map_or(Ok(PresignedPut { url, headers }), |error| Err(error.into()))
    }

    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        let operation = format!("delete_batch s3://{bucket}");
        let lost = self.faults.enter(&operation)?;
        check_delete_batch(bucket, doomed, &operation)?;
        let mut state = lock(&self.state);
        state.usage.batch_deletes += 1;
        let mut results = Vec::with_capacity(doomed.len());
        for one in doomed {
            let at = ObjectKey::new(bucket, one.key.clone());
            let matches = one
                .if_match
                .as_ref()
                .is_none_or(|etag| state.objects.get(&at).is_some_and(|stored| stored.meta.etag == *etag));
            results.push(match matches.then(|| state.remove(&at, self.now_ms())) {
                None => Deleted::Changed,
                Some(None) => Deleted::Gone,
                Some(Some(marker)) => Deleted::Marked(marker),
            });
        }
        lost.map_or(Ok(results), |error| Err(error.into()))
    }

    async fn versioning(&self, bucket: &str) -> Result<Versioning, ObjectError> {
        let lost = self.faults.enter(&format!("versioning s3://{bucket}"))?;
        let mut state = lock(&self.state);
        state.usage.versionings += 1;
        let found = state.versioning_of(bucket);
        lost.map_or(Ok(found), |error| Err(error.into()))
    }

    async fn list_versions(&self, request: &VersionRequest) -> Result<VersionPage, ObjectError> {
        let lost = self.faults.enter(&format!("list_versions s3://{}/{}", request.bucket, request.prefix))?;
        let mut state = lock(&self.state);
        state.usage.version_lists += 1;
        let most = request.max_keys.clamp(1, limits::LIST_PAGE_MAX_KEYS);
        let keys: BTreeSet<&ObjectKey> = state.objects.keys().chain(state.hidden.keys()).collect();
        let wanted = |at: &&&ObjectKey| at.bucket == request.bucket && at.key.starts_with(&request.prefix);
        let mut page = VersionPage::default();
        for at in keys.iter().filter(wanted) {
            let mut versions = state.versions_of(at);
            match &request.after {
                Some(mark) if at.key < mark.key || (at.key == mark.key && mark.id.is_none()) => continue,
                Some(mark) if at.key == mark.key => {
                    let done = versions.iter().position(|one| Some(&one.id) == mark.id.as_ref());
                    versions.drain(..done.map_or(versions.len(), |at| at + 1));
                }
                _ => {}
            }
            for version in versions {
                if page.versions.len() == most {
                    let last = page.versions.last();
                    page.next = last.map(|one| VersionMark { key: one.key.clone(), id: Some(one.id.clone()) });
                    return lost.map_or(Ok(page), |error| Err(error.into()));
                }
                page.versions.push(version);
            }
        }
        lost.map_or(Ok(page), |error| Err(error.into()))
    }

    async fn delete_version(&self, at: &ObjectKey, id: &VersionId) -> Result<(), ObjectError> {
        let operation = format!("delete_version {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let mut state = lock(&self.state);
        state.usage.version_deletes += 1;
        state.remove_version(at, id);
        lost.map_or(Ok(()), |error| Err(error.into()))
    }
}
