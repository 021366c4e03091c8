use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{Faults, lock};
use crate::limits;
use crate::store::Clock;
use crate::store::objects::{
    ByteRange, Deleted, Doomed, ETag, GetOptions, ListPage, ListRequest, Listed, Object, ObjectError, ObjectKey,
    ObjectMeta, ObjectUsage, Objects, PresignedPut, PutCondition, PutOptions, ReadObjects, check_delete_batch,
    check_object_key,
};

#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    meta: ObjectMeta,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<ObjectKey, Stored>,
    usage: ObjectUsage,
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

    fn store(&self, state: &mut State, at: &ObjectKey, bytes: Bytes, metadata: BTreeMap<String, String>) -> ETag {
        let digest = hex::encode(Sha256::digest(&bytes));
        let etag = ETag(digest.chars().take(32).collect());
        let meta = ObjectMeta {
            etag: etag.clone(),
            size_bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            last_modified_ms: self.clock.now_ms().div_euclid(1000) * 1000,
            metadata,
        };
        state.objects.insert(at.clone(), Stored { bytes, meta });
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

    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        let operation = format!("delete {at}");
        let lost = self.faults.enter(&operation)?;
        check_object_key(at, &operation)?;
        let mut state = lock(&self.state);
        state.usage.deletes += 1;
        if let Some(etag) = if_match {
            check_condition(&state, at, &PutCondition::Matches(etag.clone()))?;
        }
        state.objects.remove(at);
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
            if matches {
                state.objects.remove(&at);
            }
            results.push(if matches { Deleted::Gone } else { Deleted::Changed });
        }
        lost.map_or(Ok(results), |error| Err(error.into()))
    }
}
