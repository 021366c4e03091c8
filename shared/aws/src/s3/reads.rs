use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{EncodingType, Object as ListedObject};
use bytes::Bytes;
use lakewarden_core::limits;
use lakewarden_core::store::{
    ByteRange, GetOptions, ListPage, ListRequest, Listed, Object, ObjectError, ObjectKey, ObjectMeta, ObjectUsage,
    ReadObjects, StoreError, StoreErrorKind, check_object_key,
};

use super::keys::decode_listed;
use super::{S3Objects, object_error, quoted, unquoted};
use crate::errors::{chain, store_error};

#[async_trait]
impl ReadObjects for S3Objects {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        let operation = format!("get {at}");
        check_object_key(at, &operation)?;
        if options.range.is_some_and(ByteRange::is_empty) {
            return Err(ObjectError::InvalidRange(at.clone()));
        }
        self.usage.count(|usage| usage.gets += 1);
        let answer = self
            .client
            .get_object()
            .bucket(&at.bucket)
            .key(&at.key)
            .set_range(options.range.map(encode_range))
            .set_if_match(options.if_match.as_ref().map(quoted))
            .send()
            .await
            .map_err(|error| object_error(&operation, at, &error))?;
        let length = answer.content_length();
        let total = match (options.range, answer.content_range()) {
            (None, _) => length,
            (Some(_), range) => range.and_then(total_bytes),
        };
        let etag = answer.e_tag().map(unquoted);
        let meta = meta(&operation, etag, total, answer.last_modified(), answer.metadata())?;
        let bytes = answer.body.collect().await.map_err(|error| unreadable(&operation, chain(&error)))?.into_bytes();
        let received = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        if length.is_some_and(|length| length != received) {
            let message = format!("{received} bytes arrived where {length:?} were announced");
            return Err(unreadable(&operation, message).into());
        }
        self.usage.count(|usage| usage.bytes_read += size(&bytes));
        Ok(Object { meta, bytes })
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        let operation = format!("head {at}");
        check_object_key(at, &operation)?;
        self.usage.count(|usage| usage.heads += 1);
        let answer = self
            .client
            .head_object()
            .bucket(&at.bucket)
            .key(&at.key)
            .send()
            .await
            .map_err(|error| object_error(&operation, at, &error))?;
        let etag = answer.e_tag().map(unquoted);
        Ok(meta(&operation, etag, answer.content_length(), answer.last_modified(), answer.metadata())?)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        let operation = format!("list s3://{}/{}", request.bucket, request.prefix);
        let most = request.max_keys.clamp(1, limits::LIST_PAGE_MAX_KEYS);
        let start_after = request.start_after.clone().filter(|after| !after.is_empty());
        self.usage.count(|usage| usage.lists += 1);
        let answer = self
            .client
            .list_objects_v2()
            .bucket(&request.bucket)
            .prefix(&request.prefix)
            .set_start_after(start_after)
            .max_keys(i32::try_from(most).unwrap_or(i32::MAX))
            .encoding_type(EncodingType::Url)
            .send()
            .await
            .map_err(|error| store_error(&operation, &format!("s3://{}", request.bucket), &error))?;
        let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
        let mut page = ListPage { objects: Vec::new(), truncated: answer.is_truncated().unwrap_or(false) };
        for object in answer.contents() {
            page.objects.push(decode_entry(&operation, object, is_encoded)?);
        }
        if page.truncated && page.objects.is_empty() {
            return Err(unreadable(&operation, "a page without keys says that more follow".to_owned()).into());
        }
        Ok(page)
    }

    fn object_usage(&self) -> ObjectUsage {
        self.usage.read()
    }
}

/// An answer that cannot be used; the request may be made again.
pub(super) fn unreadable(operation: &str, message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation, message)
}

pub(super) fn size(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// No object is larger; offsets above it are no numbers to some servers.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();

/// The `Range` header; ends are inclusive there.
fn encode_range(range: ByteRange) -> String {
    match range {
        ByteRange::From { start, length } => {
            let (start, end) = (start.min(OFFSET_MAX), start.saturating_add(length.saturating_sub(1)));
            format!("bytes={start}-{}", end.min(OFFSET_MAX))
        }
        ByteRange::Suffix { length } => format!("bytes=-{}", length.min(OFFSET_MAX)),
    }
}

/// The whole object's size from `bytes 0-9/100`.
fn total_bytes(content_range: &str) -> Option<i64> {
    content_range.rsplit_once('/')?.1.parse().ok()
}

/// Milliseconds, cut to whole seconds: listings of S3 have fractions, its headers do not.
pub(super) fn whole_seconds_ms(moment: &DateTime) -> i64 {
    moment.secs().saturating_mul(1000)
}

fn meta(
    operation: &str,
    etag: Option<lakewarden_core::store::ETag>,
    size_bytes: Option<i64>,
    last_modified: Option<&DateTime>,
    metadata: Option<&HashMap<String, String>>,
) -> Result<ObjectMeta, StoreError> {
    let size_bytes = size_bytes.and_then(|size| u64::try_from(size).ok());
    match (etag, size_bytes, last_modified) {
        (Some(etag), Some(size_bytes), Some(moment)) => Ok(ObjectMeta {
            etag,
            size_bytes,
            last_modified_ms: whole_seconds_ms(moment),
            metadata: metadata.map_or_else(BTreeMap::new, |found| {
                found.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
            }),
        }),
        _ => Err(unreadable(operation, "the answer lacks ETag, size or Last-Modified".to_owned())),
    }
}

fn decode_entry(operation: &str, object: &ListedObject, is_encoded: bool) -> Result<Listed, StoreError> {
    let key = object.key().and_then(|key| if is_encoded { decode_listed(key) } else { Some(key.to_owned()) });
    let size_bytes = object.size().and_then(|size| u64::try_from(size).ok());
    match (key, object.e_tag(), size_bytes, object.last_modified()) {
        (Some(key), Some(etag), Some(size_bytes), Some(moment)) => {
            Ok(Listed { key, etag: unquoted(etag), size_bytes, last_modified_ms: whole_seconds_ms(moment) })
        }
        _ => {
            let message = format!("the entry {:?} lacks ETag, size or Last-Modified, or is no UTF-8", object.key());
            Err(unreadable(operation, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_inclusive_on_the_wire() {
        assert_eq!(encode_range(ByteRange::From { start: 0, length: 1 }), "bytes=0-0");
        assert_eq!(encode_range(ByteRange::From { start: 5, length: u64::MAX }), format!("bytes=5-{}", i64::MAX));
        assert_eq!(encode_range(ByteRange::Suffix { length: 8 }), "bytes=-8");
        assert_eq!(total_bytes("bytes 0-9/100"), Some(100));
        assert_eq!(total_bytes("bytes 0-9/*"), None);
    }

    #[test]
    fn moments_are_whole_seconds() {
        assert_eq!(whole_seconds_ms(&DateTime::from_millis(1_999)), 1_000);
        assert_eq!(whole_seconds_ms(&DateTime::from_millis(-1)), -1_000);
    }
}
