use s3s::dto::*;
use s3s::{S3Request, S3Response, s3_error};

use super::bodies::Staged;
use super::checksums::{Expected, given_checksums, hasher, set_checksums};
use super::conditions::{ReadCondition, WriteCondition};
use super::get::open_body;
use super::headers::{
    Attributes, given_attributes, parse_tagging, refuse, refuse_unsupported_write, refuse_version, wire_etag, wire_time,
};
use super::outbox::EventName;
use super::rows::{NewObject, ObjectRow};
use super::{Failure, Store};

pub(super) async fn put_object(
    store: &Store,
    request: S3Request<PutObjectInput>,
) -> Result<S3Response<PutObjectOutput>, Failure> {
    let mut input = request.input;
    refuse_unsupported_write!("PutObject", input);
    refuse("PutObject", &[("a write offset", input.write_offset_bytes.is_some())])?;
    let mut attributes = given_attributes!(input);
    let tags = parse_tagging(input.tagging.as_deref())?;
    let expected = Expected::of_request(
        given_checksums!(input),
        input.checksum_algorithm.as_ref(),
        input.content_md5,
        &request.headers,
    )?;
    let staged = store.bodies().stage(input.body, expected.hasher()).await?;
    expected.check(request.trailing_headers, &staged.checksums, &staged.md5)?;
    attributes.checksums = staged.checksums.clone();
    let etag = hex::encode(staged.md5);
    let mut output = PutObjectOutput { e_tag: Some(wire_etag(&etag)), ..Default::default() };
    if !staged.checksums.is_empty() {
        output.checksum_type = Some(attributes.checksum_scope.to_wire());
    }
    set_checksums!(output, staged.checksums);
    let new = NewObject {
        bucket: input.bucket,
        key: input.key,
        size_bytes: staged.size_bytes,
        etag,
        attributes,
        tags,
        body: staged.body,
        condition: WriteCondition { if_match: input.if_match, if_none_match: input.if_none_match },
        event: EventName::CreatedPut,
    };
    output.version_id = store.write(move |change| change.put_object(new)).await?;
    Ok(S3Response::new(output))
}

/// Bucket and key of a copy's source.
pub(super) fn source_of(source: &CopySource) -> Result<(&str, &str), Failure> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => {
            refuse_version(version_id.as_deref())?;
            Ok((bucket, key))
        }
        _ => Err(s3_error!(NotImplemented, "Copying from an access point is not supported by the local S3").into()),
    }
}

/// Copies the bytes too: an object's ETag is the MD5 of its body even if the source came in parts.
pub(super) async fn copy_object(
    store: &Store,
    request: S3Request<CopyObjectInput>,
) -> Result<S3Response<CopyObjectOutput>, Failure> {
    let condition = WriteCondition::of_headers(&request.headers)?;
    let mut input = request.input;
    refuse_unsupported_write!("CopyObject", input);
    refuse(
        "CopyObject",
        &[("a source encrypted with a customer key", input.copy_source_sse_customer_algorithm.is_some())],
    )?;
    let (from_bucket, from_key) = source_of(&input.copy_source)?;
    let replaces = input.metadata_directive.as_ref().is_some_and(|given| given.as_str() == MetadataDirective::REPLACE);
    let replaces_tags =
        input.tagging_directive.as_ref().is_some_and(|given| given.as_str() == TaggingDirective::REPLACE);
    if from_bucket == input.bucket && from_key == input.key && !replaces && !condition.is_given() {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the \
             object's metadata"
        )
        .into());
    }
    let source_condition = ReadCondition {
        if_match: input.copy_source_if_match.take(),
        if_none_match: input.copy_source_if_none_match.take(),
        if_modified_since: input.copy_source_if_modified_since.take(),
        if_unmodified_since: input.copy_source_if_unmodified_since.take(),
    };
    let check = |row: &ObjectRow| Ok(source_condition.check_source(row)?);
    let source = open_body(store, from_bucket, from_key, None, |row| check(row).map(|()| 0..row.size_bytes)).await?;
    let algorithms = match &input.checksum_algorithm {
        Some(asked) => vec![super::checksums::Algorithm::parse(asked.as_str())?],
        None => source.row.attributes.checksums.0.keys().copied().collect(),
    };
    let staged = store.bodies().stage(Some(source.body), hasher(algorithms)).await?;
    let attributes = if replaces { given_attributes!(input) } else { source.row.attributes };
    let tags = if replaces_tags { parse_tagging(input.tagging.as_deref())? } else { source.row.tags };
    let attributes = Attributes {
        checksums: staged.checksums.clone(),
        checksum_scope: Default::default(),
        part_sizes: Vec::new(),
        ..attributes
    };
    write_copy(store, input.bucket, input.key, staged, attributes, tags, condition).await
}

async fn write_copy(
    store: &Store,
    bucket: String,
    key: String,
    staged: Staged,
    attributes: Attributes,
    tags: super::headers::Tags,
    condition: WriteCondition,
) -> Result<S3Response<CopyObjectOutput>, Failure> {
    let etag = hex::encode(staged.md5);
    let mut result = CopyObjectResult { e_tag: Some(wire_etag(&etag)), ..Default::default() };
    set_checksums!(result, staged.checksums);
    let new = NewObject {
        bucket,
        key,
        size_bytes: staged.size_bytes,
        etag,
        attributes,
        tags,
        body: staged.body,
        condition,
        event: EventName::CreatedCopy,
    };
    let (version_id, modified_ms) = store.write(move |change| Ok((change.put_object(new)?, change.now_ms))).await?;
    result.last_modified = Some(wire_time(modified_ms));
    Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), version_id, ..Default::default() }))
}
