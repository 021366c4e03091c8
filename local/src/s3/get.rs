use std::io::{ErrorKind, SeekFrom};
use std::ops::Range as Span;

use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, s3_error};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::bodies::StoredBody;
use super::checksums::set_checksums;
use super::conditions::ReadCondition;
use super::headers::{refuse, set_attributes, wire_etag, wire_size, wire_time};
use super::rows::{ObjectRow, load_body};
use super::versions::{answered_version, need_version};
use super::{Failure, Store};

const READ_BUFFER_BYTES: usize = 128 * 1024;
/// How often a reader follows an object that is being overwritten while its file is opened.
const REOPEN_MAX: usize = 20;

/// An object and the stream of (a range of) its body, both of the same version.
pub(super) struct OpenBody {
    pub row: ObjectRow,
    pub body: StreamingBlob,
    pub span: Span<u64>,
}

/// Opens the body of an object. `choose` checks the conditions and says which bytes.
///
/// A file stays readable once it is open, even if the object is replaced; if it is replaced between looking up the row
/// and opening the file, the new version is looked up.
pub(super) async fn open_body(
    store: &Store,
    bucket: &str,
    key: &str,
    version: Option<&str>,
    choose: impl Fn(&ObjectRow) -> Result<Span<u64>, Failure>,
) -> Result<OpenBody, Failure> {
    let mut missing_blob = None;
    for _ in 0..REOPEN_MAX {
        let (bucket, key, version) = (bucket.to_owned(), key.to_owned(), version.map(str::to_owned));
        let (row, body) = store
            .read(move |connection| {
                let row = need_version(connection, &bucket, &key, version.as_deref())?;
                let body = load_body(connection, row.blob)?;
                Ok((row, body))
            })
            .await?;
        let span = choose(&row)?;
        let name = match body {
            StoredBody::Inline(bytes) => {
                let within = usize::try_from(span.start).unwrap_or(usize::MAX).min(bytes.len())
                    ..usize::try_from(span.end).unwrap_or(usize::MAX).min(bytes.len());
                let chunk = Ok::<_, std::io::Error>(bytes.slice(within));
                let body = StreamingBlob::wrap(futures::stream::iter([chunk]));
                return Ok(OpenBody { row, body, span });
            }
            StoredBody::File(name) => name,
        };
        let path = store.bodies().path_of(&name);
        match tokio::fs::File::open(&path).await {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(span.start)).await.map_err(Failure::file(&path))?;
                let bytes = file.take(span.end.saturating_sub(span.start));
                let body = StreamingBlob::wrap(ReaderStream::with_capacity(bytes, READ_BUFFER_BYTES));
                return Ok(OpenBody { row, body, span });
            }
            Err(error) if error.kind() == ErrorKind::NotFound && missing_blob != Some(row.blob) => {
                missing_blob = Some(row.blob);
            }
            Err(source) => return Err(Failure::File { path, source }),
        }
    }
    Err(s3_error!(SlowDown, "The object is being overwritten all the time; please try again").into())
}

/// The bytes asked for. Empty objects have no satisfiable range.
fn span_of(row: &ObjectRow, range: Option<Range>, part_number: Option<i32>) -> Result<Span<u64>, S3Error> {
    match (range, part_number) {
        (None, None) => Ok(0..row.size_bytes),
        (Some(_), Some(_)) => {
            Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"))
        }
        (Some(Range::Suffix { length }), None) => {
            if length == 0 || row.size_bytes == 0 {
                return Err(s3_error!(InvalidRange));
            }
            Ok(row.size_bytes.saturating_sub(length)..row.size_bytes)
        }
        (Some(range), None) => range.check(row.size_bytes).map_err(|_| s3_error!(InvalidRange)),
        (None, Some(number)) => part_span(row, number),
    }
}

fn part_span(row: &ObjectRow, number: i32) -> Result<Span<u64>, S3Error> {
    let sizes = &row.attributes.part_sizes;
    if sizes.is_empty() && number == 1 {
        return Ok(0..row.size_bytes);
    }
    let before = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let found = before.and_then(|before| Some((sizes.get(..before)?, sizes.get(before)?)));
    let Some((before, size)) = found else {
        return Err(s3_error!(InvalidPart, "The requested partnumber is not satisfiable"));
    };
    let start: u64 = before.iter().sum();
    Ok(start..start.saturating_add(*size))
}

fn content_range(span: &Span<u64>, size_bytes: u64) -> Option<String> {
    (!span.is_empty()).then(|| format!("bytes {}-{}/{size_bytes}", span.start, span.end.saturating_sub(1)))
}

fn parts_count(row: &ObjectRow, part_number: Option<i32>) -> Option<i32> {
    let count = i32::try_from(row.attributes.part_sizes.len()).unwrap_or(i32::MAX);
    part_number.map(|_| count).filter(|count| *count > 0)
}

pub(super) async fn get_object(
    store: &Store,
    request: S3Request<GetObjectInput>,
) -> Result<S3Response<GetObjectOutput>, Failure> {
    let input = request.input;
    refuse("GetObject", &[("a customer key", input.sse_customer_algorithm.is_some())])?;
    let condition = ReadCondition {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    let OpenBody { row, body, span } =
        open_body(store, &input.bucket, &input.key, input.version_id.as_deref(), |row| {
            condition.check(row)?;
            Ok(span_of(row, input.range, input.part_number)?)
        })
        .await?;
    let is_part = input.range.is_some() || input.part_number.is_some();
    let mut output = GetObjectOutput {
        body: Some(body),
        content_length: Some(wire_size(span.end.saturating_sub(span.start))),
        content_range: content_range(&span, row.size_bytes).filter(|_| is_part),
        accept_ranges: Some("bytes".to_owned()),
        e_tag: Some(wire_etag(&row.etag)),
        last_modified: Some(wire_time(row.modified_ms)),
        version_id: answered_version(&row),
        parts_count: parts_count(&row, input.part_number),
        tag_count: i32::try_from(row.tags.len()).ok().filter(|count| *count > 0),
        ..Default::default()
    };
    let is_whole = span == (0..row.size_bytes);
    if is_whole && input.checksum_mode.is_some() && !row.attributes.checksums.is_empty() {
        set_checksums!(output, row.attributes.checksums);
        output.checksum_type = Some(row.attributes.checksum_scope.to_wire());
    }
    set_attributes!(output, row.attributes);
    output.content_type = input.response_content_type.or(output.content_type);
    output.content_encoding = input.response_content_encoding.or(output.content_encoding);
    output.content_disposition = input.response_content_disposition.or(output.content_disposition);
    output.content_language = input.response_content_language.or(output.content_language);
    output.cache_control = input.response_cache_control.or(output.cache_control);
    output.expires = input.response_expires.or(output.expires);
    Ok(S3Response::new(output))
}

pub(super) async fn head_object(
    store: &Store,
    request: S3Request<HeadObjectInput>,
) -> Result<S3Response<HeadObjectOutput>, Failure> {
    let input = request.input;
    refuse("HeadObject", &[("a customer key", input.sse_customer_algorithm.is_some())])?;
    let version = input.version_id;
    let row =
        store.read(move |connection| need_version(connection, &input.bucket, &input.key, version.as_deref())).await?;
    ReadCondition {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    }
    .check(&row)?;
    let span = span_of(&row, input.range, input.part_number)?;
    let is_part = input.range.is_some() || input.part_number.is_some();
    let mut output = HeadObjectOutput {
        content_length: Some(wire_size(span.end.saturating_sub(span.start))),
        content_range: content_range(&span, row.size_bytes).filter(|_| is_part),
        accept_ranges: Some("bytes".to_owned()),
        e_tag: Some(wire_etag(&row.etag)),
        last_modified: Some(wire_time(row.modified_ms)),
        version_id: answered_version(&row),
        parts_count: parts_count(&row, input.part_number),
        ..Default::default()
    };
    let is_whole = span == (0..row.size_bytes);
    if is_whole && input.checksum_mode.is_some() && !row.attributes.checksums.is_empty() {
        set_checksums!(output, row.attributes.checksums);
        output.checksum_type = Some(row.attributes.checksum_scope.to_wire());
    }
    set_attributes!(output, row.attributes);
    Ok(S3Response::new(output))
}
