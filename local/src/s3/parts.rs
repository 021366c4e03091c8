use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, s3_error};

use super::bodies::Staged;
use super::checksums::{Checksums, Expected, given_checksums, hasher, set_checksums};
use super::conditions::ReadCondition;
use super::get::open_body;
use super::headers::{owner, refuse, wire_etag, wire_size, wire_time};
use super::multipart::{UploadRow, need_upload};
use super::put::source_of;
use super::rows::{read_u64, stored_size};
use super::{Failure, Store};

const PART_NUMBER_MAX: i32 = 10_000;
const LIST_MAX: i32 = 1000;

#[derive(Clone, Debug)]
pub(super) struct PartRow {
    pub number: i32,
    pub size_bytes: u64,
    /// MD5 in hexadecimal.
    pub etag: String,
    pub modified_ms: i64,
    pub checksums: Checksums,
    pub blob: i64,
}

pub(super) fn parts_of(connection: &Connection, upload: &str) -> Result<BTreeMap<i32, PartRow>, Failure> {
    let mut query = connection.prepare_cached(
        "SELECT number, size_bytes, etag, modified_ms, checksums, blob FROM part WHERE upload = ? ORDER BY number",
    )?;
    let mut rows = query.query([upload])?;
    let mut parts = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let number = row.get(0)?;
        let part = PartRow {
            number,
            size_bytes: read_u64(row, 1)?,
            etag: row.get(2)?,
            modified_ms: row.get(3)?,
            checksums: serde_json::from_str(&row.get::<_, String>(4)?)?,
            blob: row.get(5)?,
        };
        parts.insert(number, part);
    }
    Ok(parts)
}

fn check_number(number: i32) -> Result<(), S3Error> {
    if (1..=PART_NUMBER_MAX).contains(&number) {
        return Ok(());
    }
    Err(s3_error!(InvalidArgument, "Part number must be an integer between 1 and {PART_NUMBER_MAX}, inclusive"))
}

/// Where a part goes.
#[derive(Debug)]
struct Place {
    upload: String,
    bucket: String,
    key: String,
    number: i32,
}

/// Stores a part, in place of an earlier one with its number; returns its time.
async fn write_part(store: &Store, place: Place, staged: Staged, etag: String) -> Result<i64, Failure> {
    store
        .write(move |change| {
            let Place { upload, bucket, key, number } = place;
            need_upload(&change.tx, &upload, &bucket, &key)?;
            let old: Option<i64> = change
                .tx
                .prepare_cached("SELECT blob FROM part WHERE upload = ? AND number = ?")?
                .query_row(params![upload, number], |row| row.get(0))
                .optional()?;
            if let Some(blob) = old {
                change.drop_body(blob)?;
            }
            let checksums = serde_json::to_string(&staged.checksums)?;
            let blob = change.add_body(staged.body)?;
            change
                .tx
                .prepare_cached(
                    "INSERT OR REPLACE INTO part(upload, number, size_bytes, etag, modified_ms, checksums, blob)
                     VALUES(?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    upload,
                    number,
                    stored_size(staged.size_bytes),
                    etag,
                    change.now_ms,
                    checksums,
                    blob
                ])?;
            Ok(change.now_ms)
        })
        .await
}

async fn find_upload(store: &Store, upload: &str, bucket: &str, key: &str) -> Result<UploadRow, Failure> {
    let (upload, bucket, key) = (upload.to_owned(), bucket.to_owned(), key.to_owned());
    store.read(move |connection| need_upload(connection, &upload, &bucket, &key)).await
}

pub(super) async fn upload_part(
    store: &Store,
    request: S3Request<UploadPartInput>,
) -> Result<S3Response<UploadPartOutput>, Failure> {
    let mut input = request.input;
    check_number(input.part_number)?;
    refuse("UploadPart", &[("a customer key", input.sse_customer_algorithm.is_some())])?;
    find_upload(store, &input.upload_id, &input.bucket, &input.key).await?;
    let expected = Expected::of_request(
        given_checksums!(input),
        input.checksum_algorithm.as_ref(),
        input.content_md5,
        &request.headers,
    )?;
    let staged = store.bodies().stage(input.body, expected.hasher()).await?;
    expected.check(request.trailing_headers, &staged.checksums, &staged.md5)?;
    let etag = hex::encode(staged.md5);
    let mut output = UploadPartOutput { e_tag: Some(wire_etag(&etag)), ..Default::default() };
    set_checksums!(output, staged.checksums);
    let place = Place { upload: input.upload_id, bucket: input.bucket, key: input.key, number: input.part_number };
    write_part(store, place, staged, etag).await?;
    Ok(S3Response::new(output))
}

pub(super) async fn upload_part_copy(
    store: &Store,
    request: S3Request<UploadPartCopyInput>,
) -> Result<S3Response<UploadPartCopyOutput>, Failure> {
    let input = request.input;
    check_number(input.part_number)?;
    refuse(
        "UploadPartCopy",
        &[(
            "a customer key",
            input.sse_customer_algorithm.is_some() || input.copy_source_sse_customer_algorithm.is_some(),
        )],
    )?;
    let upload = find_upload(store, &input.upload_id, &input.bucket, &input.key).await?;
    let (from_bucket, from_key) = source_of(&input.copy_source)?;
    let range = input
        .copy_source_range
        .as_deref()
        .map(Range::parse)
        .transpose()
        .map_err(|_| s3_error!(InvalidArgument, "x-amz-copy-source-range must be of the form bytes=first-last"))?;
    let condition = ReadCondition {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    let source = open_body(store, from_bucket, from_key, None, |row| {
        condition.check_source(row)?;
        match range {
            None => Ok(0..row.size_bytes),
            Some(range) => Ok(range.check(row.size_bytes).map_err(|_| s3_error!(InvalidRange))?),
        }
    })
    .await?;
    let staged = store.bodies().stage(Some(source.body), hasher(upload.algorithm)).await?;
    let etag = hex::encode(staged.md5);
    let mut result = CopyPartResult { e_tag: Some(wire_etag(&etag)), ..Default::default() };
    set_checksums!(result, staged.checksums);
    let place = Place { upload: input.upload_id, bucket: input.bucket, key: input.key, number: input.part_number };
    let modified_ms = write_part(store, place, staged, etag).await?;
    result.last_modified = Some(wire_time(modified_ms));
    Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() }))
}

pub(super) async fn list_parts(
    store: &Store,
    request: S3Request<ListPartsInput>,
) -> Result<S3Response<ListPartsOutput>, Failure> {
    let input = request.input;
    let max = input.max_parts.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
    let after = input.part_number_marker.unwrap_or(0);
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let (upload, parts) = store
        .read(move |connection| {
            let upload = need_upload(connection, &id, &bucket, &key)?;
            Ok((upload, parts_of(connection, &id)?))
        })
        .await?;
    let mut behind = parts.into_values().filter(|part| part.number > after);
    let page: Vec<PartRow> = behind.by_ref().take(usize::try_from(max).unwrap_or(0)).collect();
    let truncated = behind.next().is_some();
    let next = page.last().map(|part| part.number).filter(|_| truncated);
    let parts = page.into_iter().map(part_to_wire).collect();
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(after),
        next_part_number_marker: next,
        max_parts: Some(max),
        is_truncated: Some(truncated),
        parts: Some(parts),
        owner: Some(owner()),
        checksum_algorithm: upload.algorithm.map(|algorithm| algorithm.to_wire()),
        checksum_type: upload.algorithm.map(|_| upload.attributes.checksum_scope.to_wire()),
        ..Default::default()
    }))
}

fn part_to_wire(row: PartRow) -> Part {
    let mut part = Part {
        part_number: Some(row.number),
        size: Some(wire_size(row.size_bytes)),
        e_tag: Some(wire_etag(&row.etag)),
        last_modified: Some(wire_time(row.modified_ms)),
        ..Default::default()
    };
    set_checksums!(part, row.checksums);
    part
}
