use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, s3_error};

use super::conditions::check_match;
use super::headers::refuse;
use super::rows::{find_object, need_bucket};
use super::store::Change;
use super::{Failure, Store};

/// S3: objects of one DeleteObjects.
const DELETE_MAX: usize = 1000;

pub(super) async fn delete_object(
    store: &Store,
    request: S3Request<DeleteObjectInput>,
) -> Result<S3Response<DeleteObjectOutput>, Failure> {
    let input = request.input;
    refuse(
        "DeleteObject",
        &[
            ("x-amz-if-match-size", input.if_match_size.is_some()),
            ("x-amz-if-match-last-modified-time", input.if_match_last_modified_time.is_some()),
            ("multi-factor authentication", input.mfa.is_some()),
        ],
    )?;
    let removed = store
        .write(move |change| {
            need_bucket(&change.tx, &input.bucket)?;
            delete_one(change, &input.bucket, &input.key, input.version_id.as_deref(), input.if_match.as_ref())
        })
        .await?;
    let output = DeleteObjectOutput {
        delete_marker: removed.is_marker.then_some(true),
        version_id: removed.version,
        ..Default::default()
    };
    Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
}

/// What a delete made, or removed for good.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub version: Option<String>,
    pub is_marker: bool,
}

fn delete_one(
    change: &mut Change<'_>,
    bucket: &str,
    key: &str,
    version: Option<&str>,
    if_match: Option<&ETagCondition>,
) -> Result<Removed, Failure> {
    if let Some(version) = version {
        refuse("DeleteObject", &[("If-Match on a version", if_match.is_some())])?;
        return change.delete_version(bucket, key, version);
    }
    let current = find_object(&change.tx, bucket, key)?;
    check_match(if_match, current.as_ref())?;
    let version = change.delete_object(bucket, key, current)?;
    Ok(Removed { is_marker: version.is_some(), version })
}

/// Each key has its own answer: one that is refused (its ETag is another, or it is gone) does not hold up the others.
pub(super) async fn delete_objects(
    store: &Store,
    request: S3Request<DeleteObjectsInput>,
) -> Result<S3Response<DeleteObjectsOutput>, Failure> {
    let input = request.input;
    let count = input.delete.objects.len();
    if count == 0 || count > DELETE_MAX {
        return Err(s3_error!(MalformedXML, "DeleteObjects takes 1 to {DELETE_MAX} keys, not {count}").into());
    }
    refuse("DeleteObjects", &[("multi-factor authentication", input.mfa.is_some())])?;
    let is_quiet = input.delete.quiet.unwrap_or(false);
    let (deleted, errors) = store
        .write(move |change| {
            need_bucket(&change.tx, &input.bucket)?;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for object in input.delete.objects {
                match delete_listed(change, &input.bucket, &object) {
                    Ok(removed) => deleted.push(deleted_of(object, removed)),
                    Err(Failure::Refused(refused)) => errors.push(error_of(object.key, &refused)),
                    Err(failure) => return Err(failure),
                }
            }
            Ok((deleted, errors))
        })
        .await?;
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!is_quiet).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..Default::default()
    }))
}

fn delete_listed(change: &mut Change<'_>, bucket: &str, object: &ObjectIdentifier) -> Result<Removed, Failure> {
    refuse(
        "DeleteObjects",
        &[("Size", object.size.is_some()), ("LastModifiedTime", object.last_modified_time.is_some())],
    )?;
    let if_match = object.e_tag.clone().map(ETagCondition::ETag);
    delete_one(change, bucket, &object.key, object.version_id.as_deref(), if_match.as_ref())
}

/// The id of a marker that was made is told apart from that of what was removed.
fn deleted_of(object: ObjectIdentifier, removed: Removed) -> DeletedObject {
    DeletedObject {
        key: Some(object.key),
        delete_marker: removed.is_marker.then_some(true),
        delete_marker_version_id: removed.version.filter(|_| removed.is_marker),
        version_id: object.version_id,
    }
}

fn error_of(key: String, refused: &S3Error) -> Error {
    Error {
        key: Some(key),
        code: Some(refused.code().as_str().to_owned()),
        message: refused.message().map(str::to_owned),
        ..Default::default()
    }
}
