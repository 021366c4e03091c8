use rusqlite::params;
use s3s::dto::*;
use s3s::{S3Request, S3Response, s3_error};

use super::headers::{Tags, check_tags, refuse_version};
use super::rows::need_object;
use super::{Failure, Store};

pub(super) async fn get_object_tagging(
    store: &Store,
    request: S3Request<GetObjectTaggingInput>,
) -> Result<S3Response<GetObjectTaggingOutput>, Failure> {
    let input = request.input;
    refuse_version(input.version_id.as_deref())?;
    let row = store.read(move |connection| need_object(connection, &input.bucket, &input.key)).await?;
    let tag_set = row.tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect();
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: None }))
}

pub(super) async fn put_object_tagging(
    store: &Store,
    request: S3Request<PutObjectTaggingInput>,
) -> Result<S3Response<PutObjectTaggingOutput>, Failure> {
    let input = request.input;
    refuse_version(input.version_id.as_deref())?;
    let tags = input
        .tagging
        .tag_set
        .into_iter()
        .map(|tag| match (tag.key, tag.value) {
            (Some(key), value) => Ok((key, value.unwrap_or_default())),
            (None, _) => Err(s3_error!(MalformedXML, "A tag has no key")),
        })
        .collect::<Result<Tags, _>>()?;
    check_tags(&tags)?;
    set_tags(store, input.bucket, input.key, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

pub(super) async fn delete_object_tagging(
    store: &Store,
    request: S3Request<DeleteObjectTaggingInput>,
) -> Result<S3Response<DeleteObjectTaggingOutput>, Failure> {
    let input = request.input;
    refuse_version(input.version_id.as_deref())?;
    set_tags(store, input.bucket, input.key, Tags::new()).await?;
    Ok(S3Response::with_status(DeleteObjectTaggingOutput::default(), http::StatusCode::NO_CONTENT))
}

/// Tags are no part of the object: neither LastModified nor ETag changes.
async fn set_tags(store: &Store, bucket: String, key: String, tags: Tags) -> Result<(), Failure> {
    store
        .write(move |change| {
            need_object(&change.tx, &bucket, &key)?;
            change.tx.execute(
                "UPDATE object SET tags = ? WHERE bucket = ? AND key = ?",
                params![serde_json::to_string(&tags)?, bucket, key.as_bytes()],
            )?;
            Ok(())
        })
        .await
}
