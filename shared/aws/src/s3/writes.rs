use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::config::Builder;
use aws_sdk_s3::operation::copy_object::CopyObjectError;
use aws_sdk_s3::operation::delete_object::DeleteObjectError;
use aws_sdk_s3::operation::delete_objects::DeleteObjectsError;
use aws_sdk_s3::operation::put_object::PutObjectError;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{Delete, DeletedObject, Error as EntryError, ObjectIdentifier};
use bytes::Bytes;
use lakewarden_core::store::{
    Deleted, Doomed, ETag, ObjectError, ObjectKey, Objects, PresignedPut, PutCondition, PutOptions, StoreError,
    StoreErrorKind, VersionId, VersionPage, VersionRequest, Versioning, check_delete_batch, check_object_key,
};

use super::keys::encode_copy_source;
use super::reads::size;
use super::{S3Objects, object_error, quoted, unquoted};
use crate::errors::{chain, kind_of, store_error};
use crate::retries::RefusedOnly;

/// The headers of a condition: If-None-Match, If-Match.
fn encode_condition(condition: &PutCondition) -> (Option<String>, Option<String>) {
    match condition {
        PutCondition::Always => (None, None),
        PutCondition::Absent => (Some("*".to_owned()), None),
        PutCondition::Matches(etag) => (None, Some(quoted(etag))),
    }
}

#[async_trait]
impl Objects for S3Objects {
    /// With a condition the SDK does not repeat the request unless S3 refused it unseen (SlowDown): were it repeated
    /// after a lost answer, the second attempt would meet the object of the first and fail with 412. So:
    ///
    /// - `PreconditionFailed` is about an object that this call did not write. It may still be one that an *earlier*
    ///   call wrote whose outcome was `Unavailable`: compare contents before declaring somebody else the winner.
    /// - `Unavailable` leaves open whether the object is there.
    /// - `ConditionalConflict` (409) and `Throttled` mean that nothing was written by this call.
    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError> {
        let operation = format!("put {at}");
        check_object_key(at, &operation)?;
        let size_bytes = size(&bytes);
        let (if_none_match, if_match) = encode_condition(&options.condition);
        let mut retries = Builder::new();
        if options.condition != PutCondition::Always {
            retries = retries.retry_classifier(RefusedOnly::<PutObjectError>::new());
        }
        let metadata: HashMap<String, String> = options.metadata.clone().into_iter().collect();
        self.usage.count(|usage| usage.puts += 1);
        let answer = self
            .client
            .put_object()
            .bucket(&at.bucket)
            .key(&at.key)
            .body(ByteStream::from(bytes))
            .set_if_none_match(if_none_match)
            .set_if_match(if_match)
            .set_metadata(Some(metadata).filter(|metadata| !metadata.is_empty()))
            .set_content_type(options.content_type.clone())
            .customize()
            .config_override(retries)
            .send()
            .await
            .map_err(|error| object_error(&operation, at, &error))?;
        self.usage.count(|usage| usage.bytes_written += size_bytes);
        answered_etag(answer.e_tag(), &operation)
    }

    /// Conditions are on the destination and behave as in [`S3Objects::put`]. At most 5 GB, S3's limit for one copy.
    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError> {
        let operation = format!("copy {to}");
        check_object_key(from, &operation)?;
        check_object_key(to, &operation)?;
        let (if_none_match, if_match) = encode_condition(condition);
        let mut retries = Builder::new();
        if *condition != PutCondition::Always {
            retries = retries.retry_classifier(RefusedOnly::<CopyObjectError>::new());
        }
        self.usage.count(|usage| usage.copies += 1);
        let answer = self
            .client
            .copy_object()
            .bucket(&to.bucket)
            .key(&to.key)
            .copy_source(encode_copy_source(from))
            .set_if_none_match(if_none_match)
            .set_if_match(if_match)
            .customize()
            .config_override(retries)
            .send()
            .await
            .map_err(|error| match (object_error(&operation, to, &error), condition) {
                (ObjectError::NotFound(_), PutCondition::Always | PutCondition::Absent) => {
                    ObjectError::NotFound(from.clone())
                }
                (other, _) => other,
            })?;
        answered_etag(answer.copy_object_result().and_then(|result| result.e_tag()), &operation)
    }

    /// Not repeated unless S3 refused it unseen: a second attempt would meet the copy of the first. At most 5 GB.
    async fn create_copy(&self, from: &ObjectKey, etag: &ETag, to: &ObjectKey) -> Result<ETag, ObjectError> {
        let operation = format!("create_copy {to}");
        check_object_key(from, &operation)?;
        check_object_key(to, &operation)?;
        self.usage.count(|usage| usage.copies += 1);
        let answer = self
            .client
            .copy_object()
            .bucket(&to.bucket)
            .key(&to.key)
            .copy_source(encode_copy_source(from))
            .copy_source_if_match(quoted(etag))
            .if_none_match("*")
            .customize()
            .config_override(Builder::new().retry_classifier(RefusedOnly::<CopyObjectError>::new()))
            .send()
            .await
            .map_err(|error| match object_error(&operation, to, &error) {
                ObjectError::NotFound(_) => ObjectError::NotFound(from.clone()),
                other => other,
            })?;
        answered_etag(answer.copy_object_result().and_then(|result| result.e_tag()), &operation)
    }

    /// With a condition the SDK does not repeat the request unless S3 refused it unseen: after a lost answer the second
    /// attempt would find the object gone and report `NotFound` for what this very call deleted.
    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        let operation = format!("delete {at}");
        check_object_key(at, &operation)?;
        let mut retries = Builder::new();
        if if_match.is_some() {
            retries = retries.retry_classifier(RefusedOnly::<DeleteObjectError>::new());
        }
        self.usage.count(|usage| usage.deletes += 1);
        self.client
            .delete_object()
            .bucket(&at.bucket)
            .key(&at.key)
            .set_if_match(if_match.map(quoted))
            .customize()
            .config_override(retries)
            .send()
            .await
            .map_err(|error| object_error(&operation, at, &error))?;
        Ok(())
    }

    /// Signed with the function's own credentials: it ends with them, if that is earlier.
    async fn presign_put(&self, at: &ObjectKey, valid_ms: u64) -> Result<PresignedPut, ObjectError> {
        let operation = format!("presign {at}");
        check_object_key(at, &operation)?;
        let unsigned = |text: String| StoreError::new(StoreErrorKind::Invalid, &operation, text);
        let config =
            PresigningConfig::expires_in(Duration::from_millis(valid_ms)).map_err(|error| unsigned(chain(&error)))?;
        let put = self.client.put_object().bucket(&at.bucket).key(&at.key).if_none_match("*");
        let request = put.presigned(config).await.map_err(|error| object_error(&operation, at, &error))?;
        let headers = request.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(PresignedPut { url: request.uri().to_owned(), headers })
    }

    /// Not repeated unless S3 refused it unseen: after a lost answer the second attempt would find the objects gone, and
    /// report what this very call deleted as [`Deleted::Changed`]. So `Unavailable` leaves open which of them are gone.
    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        let operation = format!("delete_batch s3://{bucket}");
        check_delete_batch(bucket, doomed, &operation)?;
        let unbuilt = |error| StoreError::new(StoreErrorKind::Invalid, &operation, chain(&error));
        let objects = doomed.iter().map(|one| {
            let object = ObjectIdentifier::builder().key(&one.key).set_e_tag(one.if_match.as_ref().map(quoted));
            object.build().map_err(unbuilt)
        });
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        let delete = Delete::builder().set_objects(Some(objects)).quiet(false).build().map_err(unbuilt)?;
        self.usage.count(|usage| usage.batch_deletes += 1);
        let answer = self
            .client
            .delete_objects()
            .bucket(bucket)
            .delete(delete)
            .customize()
            .config_override(Builder::new().retry_classifier(RefusedOnly::<DeleteObjectsError>::new()))
            .send()
            .await
            .map_err(|error| store_error(&operation, &format!("s3://{bucket}"), &error))?;
        let mut results: HashMap<&str, Deleted> = HashMap::with_capacity(doomed.len());
        results.extend(answer.deleted().iter().filter_map(|gone| Some((gone.key()?, deleted(gone)))));
        results.extend(answer.errors().iter().filter_map(|entry| Some((entry.key()?, refused(entry, bucket)))));
        let in_order = doomed.iter().map(|one| {
            results.remove(one.key.as_str()).unwrap_or_else(|| {
                let message = "the answer does not mention this key".to_owned();
                Deleted::Failed(StoreError::new(
                    StoreErrorKind::Unavailable,
                    format!("delete s3://{bucket}/{}", one.key),
                    message,
                ))
            })
        });
        Ok(in_order.collect())
    }

    async fn versioning(&self, bucket: &str) -> Result<Versioning, ObjectError> {
        self.versioning_of(bucket).await
    }

    async fn list_versions(&self, request: &VersionRequest) -> Result<VersionPage, ObjectError> {
        self.list_page_of_versions(request).await
    }

    async fn delete_version(&self, at: &ObjectKey, id: &VersionId) -> Result<(), ObjectError> {
        self.remove_version(at, id).await
    }
}

fn deleted(gone: &DeletedObject) -> Deleted {
    match gone.delete_marker_version_id() {
        Some(id) if gone.delete_marker() == Some(true) => Deleted::Marked(VersionId(id.to_owned())),
        _ => Deleted::Gone,
    }
}

/// Why S3 did not delete one object of a batch.
fn refused(entry: &EntryError, bucket: &str) -> Deleted {
    let (code, message) = (entry.code(), entry.message().unwrap_or("no message"));
    if matches!(code, Some("PreconditionFailed" | "NoSuchKey" | "NotFound")) {
        return Deleted::Changed;
    }
    let operation = format!("delete s3://{bucket}/{}", entry.key().unwrap_or_default());
    let message = format!("{}: {message}", code.unwrap_or("no code"));
    Deleted::Failed(StoreError::new(kind_of(code, &message, 0), operation, message))
}

/// S3 always answers an entity tag; without one nothing can be said about what was written.
fn answered_etag(etag: Option<&str>, operation: &str) -> Result<ETag, ObjectError> {
    let missing = || StoreError::new(StoreErrorKind::Unavailable, operation, "the answer has no ETag");
    Ok(etag.map(unquoted).ok_or_else(missing)?)
}
