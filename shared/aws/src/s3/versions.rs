//! Versions of objects and delete markers.

use aws_sdk_s3::types::{BucketVersioningStatus, EncodingType};
use lakewarden_core::limits;
use lakewarden_core::store::{
    ListedVersion, ObjectError, ObjectKey, StoreError, VersionId, VersionMark, VersionPage, VersionRequest,
    VersionState, Versioning, check_object_key,
};

use super::keys::decode_listed;
use super::reads::{unreadable, whole_seconds_ms};
use super::{S3Objects, object_error, unquoted};
use crate::errors::store_error;

impl S3Objects {
    pub(super) async fn versioning_of(&self, bucket: &str) -> Result<Versioning, ObjectError> {
        let operation = format!("versioning s3://{bucket}");
        self.usage.count(|usage| usage.versionings += 1);
        let answer = self.client.get_bucket_versioning().bucket(bucket).send().await;
        let answer = answer.map_err(|error| store_error(&operation, &format!("s3://{bucket}"), &error))?;
        match answer.status() {
            None => Ok(Versioning::Off),
            Some(BucketVersioningStatus::Enabled) => Ok(Versioning::Enabled),
            Some(BucketVersioningStatus::Suspended) => Ok(Versioning::Suspended),
            Some(other) => Err(unreadable(&operation, format!("versioning is `{other}`")).into()),
        }
    }

    /// The answer has versions and delete markers apart, each in order: they are put together again.
    pub(super) async fn list_page_of_versions(&self, request: &VersionRequest) -> Result<VersionPage, ObjectError> {
        let operation = format!("list_versions s3://{}/{}", request.bucket, request.prefix);
        let most = request.max_keys.clamp(1, limits::LIST_PAGE_MAX_KEYS);
        let after = request.after.as_ref();
        self.usage.count(|usage| usage.version_lists += 1);
        let answer = self
            .client
            .list_object_versions()
            .bucket(&request.bucket)
            .prefix(&request.prefix)
            .set_key_marker(after.map(|mark| mark.key.clone()))
            .set_version_id_marker(after.and_then(|mark| mark.id.as_ref()).map(|id| id.0.clone()))
            .max_keys(i32::try_from(most).unwrap_or(i32::MAX))
            .encoding_type(EncodingType::Url)
            .send()
            .await
            .map_err(|error| store_error(&operation, &format!("s3://{}", request.bucket), &error))?;
        let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
        let key_of =
            |key: Option<&str>| key.and_then(|key| if is_encoded { decode_listed(key) } else { Some(key.into()) });
        let lacks = || unreadable(&operation, "an entry lacks key, version, date, ETag or size".to_owned());
        let mut versions = Vec::new();
        for one in answer.versions() {
            let size_bytes = one.size().and_then(|size| u64::try_from(size).ok());
            let found = (key_of(one.key()), one.version_id(), one.last_modified(), one.e_tag(), size_bytes);
            let (Some(key), Some(id), Some(moment), Some(etag), Some(size_bytes)) = found else {
                return Err(lacks().into());
            };
            versions.push(ListedVersion {
                key,
                id: VersionId(id.to_owned()),
                is_latest: one.is_latest().unwrap_or(false),
                last_modified_ms: whole_seconds_ms(moment),
                state: VersionState::Object { etag: unquoted(etag), size_bytes },
            });
        }
        let mut markers = Vec::new();
        for one in answer.delete_markers() {
            let found = (key_of(one.key()), one.version_id(), one.last_modified());
            let (Some(key), Some(id), Some(moment)) = found else { return Err(lacks().into()) };
            markers.push(ListedVersion {
                key,
                id: VersionId(id.to_owned()),
                is_latest: one.is_latest().unwrap_or(false),
                last_modified_ms: whole_seconds_ms(moment),
                state: VersionState::DeleteMarker,
            });
        }
        let next = match answer.is_truncated().unwrap_or(false) {
            false => None,
            true => {
                let key = key_of(answer.next_key_marker()).ok_or_else(|| no_marker(&operation))?;
                Some(VersionMark { key, id: answer.next_version_id_marker().map(|id| VersionId(id.to_owned())) })
            }
        };
        Ok(VersionPage { versions: merged(versions, markers), next })
    }

    pub(super) async fn remove_version(&self, at: &ObjectKey, id: &VersionId) -> Result<(), ObjectError> {
        let operation = format!("delete_version {at}");
        check_object_key(at, &operation)?;
        self.usage.count(|usage| usage.version_deletes += 1);
        let request = self.client.delete_object().bucket(&at.bucket).key(&at.key).version_id(&id.0);
        match request.send().await.map_err(|error| object_error(&operation, at, &error)) {
            Ok(_) | Err(ObjectError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn no_marker(operation: &str) -> StoreError {
    unreadable(operation, "a page says that more follow, and not where".to_owned())
}

/// By key; of one key the newest first. Dates have seconds only, so of equal ones the latest wins, and then the marker:
/// what it hides was there before it.
fn merged(versions: Vec<ListedVersion>, markers: Vec<ListedVersion>) -> Vec<ListedVersion> {
    let mut all = Vec::with_capacity(versions.len() + markers.len());
    let (mut versions, mut markers) = (versions.into_iter().peekable(), markers.into_iter().peekable());
    loop {
        let is_marker_next = match (versions.peek(), markers.peek()) {
            (None, None) => return all,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(version), Some(marker)) => {
                let rank = |one: &ListedVersion| (one.is_latest, one.last_modified_ms);
                marker.key < version.key || (marker.key == version.key && rank(marker) >= rank(version))
            }
        };
        all.extend(if is_marker_next { markers.next() } else { versions.next() });
    }
}

#[cfg(test)]
mod tests {
    use lakewarden_core::store::ETag;

    use super::*;

    #[test]
    fn versions_and_markers_come_in_one_order() {
        let one = |key: &str, id: &str, at_ms: i64, is_latest: bool, is_marker: bool| ListedVersion {
            key: key.to_owned(),
            id: VersionId(id.to_owned()),
            is_latest,
            last_modified_ms: at_ms,
            state: match is_marker {
                true => VersionState::DeleteMarker,
                false => VersionState::Object { etag: ETag("e".to_owned()), size_bytes: 1 },
            },
        };
        let versions = vec![
            one("a", "3", 9_000, true, false),
            one("a", "1", 5_000, false, false),
            one("c", "6", 1_000, true, false),
        ];
        let markers = vec![one("a", "2", 9_000, false, true), one("b", "5", 7_000, true, true)];
        let ids: Vec<String> = merged(versions, markers).into_iter().map(|one| one.id.0).collect();
        assert_eq!(ids, ["3", "2", "1", "5", "6"]);
    }
}
