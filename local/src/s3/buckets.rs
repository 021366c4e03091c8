use rusqlite::{OptionalExtension, params};
use s3s::dto::*;
use s3s::{S3Request, S3Response, s3_error};

use super::headers::{owner, refuse, wire_time};
use super::rows::need_bucket;
use super::{Failure, Store};

const LIST_BUCKETS_MAX: i32 = 10_000;

pub(super) async fn create_bucket(
    store: &Store,
    request: S3Request<CreateBucketInput>,
) -> Result<S3Response<CreateBucketOutput>, Failure> {
    let input = request.input;
    refuse(
        "CreateBucket",
        &[
            ("object lock", input.object_lock_enabled_for_bucket.unwrap_or(false)),
            ("an ACL other than private", input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private")),
        ],
    )?;
    let bucket = input.bucket.clone();
    let location = input
        .create_bucket_configuration
        .and_then(|configuration| configuration.location_constraint)
        .map(|location| location.as_str().to_owned())
        .filter(|location| !location.is_empty());
    store
        .write(move |change| {
            let created = change.tx.execute(
                "INSERT OR IGNORE INTO bucket(name, created_ms, location) VALUES(?, ?, ?)",
                params![bucket, change.now_ms, location],
            )?;
            if created == 0 {
                return Err(s3_error!(BucketAlreadyOwnedByYou, "You already own the bucket {bucket}").into());
            }
            Ok(())
        })
        .await?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) }))
}

pub(super) async fn head_bucket(
    store: &Store,
    request: S3Request<HeadBucketInput>,
) -> Result<S3Response<HeadBucketOutput>, Failure> {
    let location = location_of(store, request.input.bucket).await?;
    let region = location.unwrap_or_else(|| "us-east-1".to_owned());
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(region), ..Default::default() }))
}

pub(super) async fn get_bucket_location(
    store: &Store,
    request: S3Request<GetBucketLocationInput>,
) -> Result<S3Response<GetBucketLocationOutput>, Failure> {
    let location = location_of(store, request.input.bucket).await?;
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint: location.map(BucketLocationConstraint::from) }))
}

async fn location_of(store: &Store, bucket: String) -> Result<Option<String>, Failure> {
    store
        .read(move |connection| {
            let found: Option<Option<String>> = connection
                .query_row("SELECT location FROM bucket WHERE name = ?", [&bucket], |row| row.get(0))
                .optional()?;
            found.ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist: {bucket}").into())
        })
        .await
}

pub(super) async fn list_buckets(
    store: &Store,
    request: S3Request<ListBucketsInput>,
) -> Result<S3Response<ListBucketsOutput>, Failure> {
    let input = request.input;
    let max = input.max_buckets.unwrap_or(LIST_BUCKETS_MAX).clamp(1, LIST_BUCKETS_MAX);
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.unwrap_or_default();
    let (buckets, truncated) = store
        .read(move |connection| {
            let mut query = connection.prepare(
                "SELECT name, created_ms FROM bucket WHERE name > ?1 AND substr(name, 1, length(?2)) = ?2
                 ORDER BY name LIMIT ?3",
            )?;
            let rows = query.query_map(params![after, prefix, max.saturating_add(1)], |row| {
                let creation_date = Some(wire_time(row.get(1)?));
                Ok(Bucket { name: Some(row.get(0)?), creation_date, ..Default::default() })
            })?;
            let mut buckets = rows.collect::<Result<Vec<_>, _>>()?;
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            let truncated = buckets.len() > max;
            buckets.truncate(max);
            Ok((buckets, truncated))
        })
        .await?;
    let continuation_token = buckets.last().and_then(|bucket| bucket.name.clone()).filter(|_| truncated);
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token,
        owner: Some(owner()),
        prefix: input.prefix,
    }))
}

/// Refused while it has objects, versions or delete markers. Uploads under way are given up with it.
pub(super) async fn delete_bucket(
    store: &Store,
    request: S3Request<DeleteBucketInput>,
) -> Result<S3Response<DeleteBucketOutput>, Failure> {
    let bucket = request.input.bucket;
    store
        .write(move |change| {
            need_bucket(&change.tx, &bucket)?;
            let sql =
                "SELECT 1 FROM object WHERE bucket = ?1 UNION ALL SELECT 1 FROM version WHERE bucket = ?1 LIMIT 1";
            if change.tx.prepare(sql)?.exists([&bucket])? {
                return Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty").into());
            }
            let uploads = change
                .tx
                .prepare("SELECT id FROM upload WHERE bucket = ?")?
                .query_map([&bucket], |row| row.get::<_, String>(0))?
                .collect::<Result<Vec<_>, _>>()?;
            for upload in uploads {
                change.drop_upload(&upload)?;
            }
            change.tx.execute("DELETE FROM bucket WHERE name = ?", [&bucket])?;
            Ok(())
        })
        .await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}
