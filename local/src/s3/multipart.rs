//! Uploads in parts: begin, complete, give up, list. The parts themselves are in `parts`.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use rusqlite::{Connection, OptionalExtension, params};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, s3_error};
use tokio::io::AsyncReadExt;

use super::bodies::{Staged, StoredBody};
use super::checksums::{Algorithm, ChecksumScope, Checksums, composite, given_checksums, hasher, set_checksums};
use super::conditions::WriteCondition;
use super::headers::{
    Attributes, KeyEncoding, Tags, given_attributes, parse_tagging, refuse, refuse_unsupported_write, wire_etag,
    wire_time,
};
use super::outbox::EventName;
use super::parts::{PartRow, parts_of};
use super::rows::{NewObject, load_body, need_bucket};
use super::store::Change;
use super::{Failure, Store};
use lakewarden_core::store::{Ids, RandomIds};

/// S3: every part but the last.
const PART_MIN_BYTES: u64 = 5 * 1024 * 1024;
const LIST_MAX: i32 = 1000;
const COPY_BUFFER_BYTES: usize = 256 * 1024;

/// What an upload was begun with. `attributes.checksums` is empty until it is complete.
#[derive(Clone, Debug)]
pub(super) struct UploadRow {
    pub attributes: Attributes,
    pub tags: Tags,
    pub algorithm: Option<Algorithm>,
}

pub(super) async fn create_multipart_upload(
    store: &Store,
    request: S3Request<CreateMultipartUploadInput>,
) -> Result<S3Response<CreateMultipartUploadOutput>, Failure> {
    let mut input = request.input;
    refuse_unsupported_write!("CreateMultipartUpload", input);
    let algorithm = input.checksum_algorithm.as_ref().map(|given| Algorithm::parse(given.as_str())).transpose()?;
    let scope = match (&input.checksum_type, algorithm) {
        (Some(given), Some(_)) => Some(ChecksumScope::parse(given)?),
        (None, Some(algorithm)) => Some(algorithm.default_scope()),
        (_, None) => None,
    };
    let attributes = Attributes { checksum_scope: scope.unwrap_or_default(), ..given_attributes!(input) };
    let tags = parse_tagging(input.tagging.as_deref())?;
    let (bucket, key) = (input.bucket.clone(), input.key.clone());
    let upload = store
        .write(move |change| {
            need_bucket(&change.tx, &bucket)?;
            // Ids ascend in time, so that listing by id is listing by age.
            let id = format!("{:012x}{}", change.now_ms.max(0), RandomIds.uuid().simple());
            change.tx.execute(
                "INSERT INTO upload(id, bucket, key, attributes, tags, algorithm, created_ms) VALUES(?, ?, ?, ?, ?, ?, ?)",
                params![
                    id,
                    bucket,
                    key.as_bytes(),
                    serde_json::to_string(&attributes)?,
                    serde_json::to_string(&tags)?,
                    serde_json::to_string(&algorithm)?,
                    change.now_ms
                ],
            )?;
            Ok(id)
        })
        .await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload),
        checksum_algorithm: algorithm.map(Algorithm::to_wire),
        checksum_type: scope.map(ChecksumScope::to_wire),
        ..Default::default()
    }))
}

pub(super) fn need_upload(
    connection: &Connection,
    upload: &str,
    bucket: &str,
    key: &str,
) -> Result<UploadRow, Failure> {
    let found: Option<(String, String, String)> = connection
        .prepare_cached("SELECT attributes, tags, algorithm FROM upload WHERE id = ? AND bucket = ? AND key = ?")?
        .query_row(params![upload, bucket, key.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((attributes, tags, algorithm)) = found else { return Err(no_upload().into()) };
    Ok(UploadRow {
        attributes: serde_json::from_str(&attributes)?,
        tags: serde_json::from_str(&tags)?,
        algorithm: serde_json::from_str(&algorithm)?,
    })
}

fn no_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or \
         completed."
    )
}

impl Change<'_> {
    /// Removes an upload with its parts.
    pub fn drop_upload(&mut self, upload: &str) -> Result<(), Failure> {
        self.tx.prepare_cached("DELETE FROM upload WHERE id = ?")?.execute([upload])?;
        let blobs = self
            .tx
            .prepare_cached("DELETE FROM part WHERE upload = ? RETURNING blob")?
            .query_map([upload], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        for blob in blobs {
            self.drop_body(blob)?;
        }
        Ok(())
    }
}

pub(super) async fn abort_multipart_upload(
    store: &Store,
    request: S3Request<AbortMultipartUploadInput>,
) -> Result<S3Response<AbortMultipartUploadOutput>, Failure> {
    let input = request.input;
    store
        .write(move |change| {
            need_upload(&change.tx, &input.upload_id, &input.bucket, &input.key)?;
            change.drop_upload(&input.upload_id)
        })
        .await?;
    Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), http::StatusCode::NO_CONTENT))
}

pub(super) async fn complete_multipart_upload(
    store: &Store,
    request: S3Request<CompleteMultipartUploadInput>,
) -> Result<S3Response<CompleteMultipartUploadOutput>, Failure> {
    let mut input = request.input;
    refuse("CompleteMultipartUpload", &[("a customer key", input.sse_customer_algorithm.is_some())])?;
    let expected = given_checksums!(input);
    let listed = input.multipart_upload.take().and_then(|upload| upload.parts).unwrap_or_default();
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let (upload, stored) = store
        .read(move |connection| {
            let upload = need_upload(connection, &id, &bucket, &key)?;
            let stored = parts_of(connection, &id)?;
            Ok((upload, stored))
        })
        .await?;
    let chosen = plan_completion(listed, &stored, input.mpu_object_size)?;
    let etag = multipart_etag(&chosen)?;
    let is_full = upload.attributes.checksum_scope == ChecksumScope::FullObject;
    let whole = hasher(upload.algorithm.filter(|_| is_full));
    let staged = concatenate(store, &chosen, whole).await?;
    let checksums = checksums_of(&upload, &chosen, &staged)?;
    if is_full && expected.0.iter().any(|(algorithm, value)| checksums.0.get(algorithm).is_some_and(|sum| sum != value))
    {
        return Err(s3_error!(BadDigest, "The checksum you specified did not match that of the whole object").into());
    }
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        e_tag: Some(wire_etag(&etag)),
        ..Default::default()
    };
    if !checksums.is_empty() {
        output.checksum_type = Some(upload.attributes.checksum_scope.to_wire());
    }
    set_checksums!(output, checksums);
    let part_sizes = chosen.iter().map(|part| part.size_bytes).collect();
    let new = NewObject {
        bucket: input.bucket,
        key: input.key,
        size_bytes: staged.size_bytes,
        etag,
        attributes: Attributes { checksums, part_sizes, ..upload.attributes },
        tags: upload.tags,
        body: staged.body,
        condition: WriteCondition { if_match: input.if_match, if_none_match: input.if_none_match },
        event: EventName::CreatedCompleteMultipartUpload,
    };
    output.version_id = finish_upload(store, input.upload_id, chosen, new).await?;
    Ok(S3Response::new(output))
}

/// The parts named in the request, checked against those that were uploaded.
fn plan_completion(
    listed: Vec<CompletedPart>,
    stored: &BTreeMap<i32, PartRow>,
    whole_size: Option<i64>,
) -> Result<Vec<PartRow>, S3Error> {
    if listed.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    let mut chosen: Vec<PartRow> = Vec::new();
    for mut part in listed {
        let number = part.part_number.unwrap_or(0);
        if chosen.last().is_some_and(|before| number <= before.number) {
            return Err(s3_error!(InvalidPartOrder, "The list of parts was not in ascending order"));
        }
        let found = stored.get(&number).filter(|row| part.e_tag.as_ref().is_none_or(|tag| tag.value() == row.etag));
        let Some(row) = found else {
            return Err(s3_error!(InvalidPart, "Part {number} was not uploaded, or its ETag is another"));
        };
        let given = given_checksums!(part);
        let differs = |(algorithm, value): (&Algorithm, &String)| row.checksums.0.get(algorithm) != Some(value);
        if given.0.iter().any(differs) {
            return Err(s3_error!(InvalidPart, "The checksum of part {number} is another"));
        }
        chosen.push(row.clone());
    }
    let (_, before_last) = chosen.split_last().ok_or_else(|| s3_error!(MalformedXML))?;
    if before_last.iter().any(|part| part.size_bytes < PART_MIN_BYTES) {
        return Err(s3_error!(EntityTooSmall, "Every part but the last must have at least 5 MiB"));
    }
    let total: u64 = chosen.iter().map(|part| part.size_bytes).sum();
    if whole_size.is_some_and(|given| u64::try_from(given).ok() != Some(total)) {
        return Err(s3_error!(InvalidRequest, "The parts have {total} bytes together, not x-amz-mp-object-size"));
    }
    Ok(chosen)
}

/// MD5 of the MD5s of the parts, and their number.
fn multipart_etag(parts: &[PartRow]) -> Result<String, S3Error> {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(&hex::decode(&part.etag).map_err(|_| s3_error!(InvalidPart))?);
    }
    Ok(format!("{}-{}", hex::encode(md5.finalize()), parts.len()))
}

async fn concatenate(store: &Store, parts: &[PartRow], whole: ChecksumHasher) -> Result<Staged, Failure> {
    let mut writer = store.bodies().writer(whole);
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    for part in parts {
        let blob = part.blob;
        let body = store.read(move |connection| load_body(connection, blob)).await.map_err(gone)?;
        let name = match body {
            StoredBody::Inline(bytes) => {
                writer.write(&bytes).await?;
                continue;
            }
            StoredBody::File(name) => name,
        };
        let path = store.bodies().path_of(&name);
        let mut file = tokio::fs::File::open(&path).await.map_err(Failure::file(&path)).map_err(gone)?;
        loop {
            let count = file.read(&mut buffer).await.map_err(Failure::file(&path))?;
            if count == 0 {
                break;
            }
            writer.write(buffer.get(..count).unwrap_or_default()).await?;
        }
    }
    writer.finish().await
}

/// A part that vanished while it was read: the upload was aborted or completed by somebody else.
fn gone(failure: Failure) -> Failure {
    match failure {
        Failure::Database(rusqlite::Error::QueryReturnedNoRows) => no_upload().into(),
        Failure::File { source, .. } if source.kind() == ErrorKind::NotFound => no_upload().into(),
        other => other,
    }
}

fn checksums_of(upload: &UploadRow, parts: &[PartRow], staged: &Staged) -> Result<Checksums, Failure> {
    let Some(algorithm) = upload.algorithm else { return Ok(Checksums::default()) };
    if upload.attributes.checksum_scope == ChecksumScope::FullObject {
        return Ok(staged.checksums.clone());
    }
    let sums: Vec<&str> =
        parts.iter().filter_map(|part| part.checksums.0.get(&algorithm).map(String::as_str)).collect();
    if sums.len() < parts.len() {
        return Err(s3_error!(InvalidPart, "A part was uploaded without the checksum the upload was begun with").into());
    }
    composite(algorithm, &sums)
}

/// Puts the object in place of the upload, if the upload still has the parts that were concatenated.
async fn finish_upload(
    store: &Store,
    upload: String,
    chosen: Vec<PartRow>,
    new: NewObject,
) -> Result<Option<String>, Failure> {
    store
        .write(move |change| {
            need_upload(&change.tx, &upload, &new.bucket, &new.key)?;
            let now = parts_of(&change.tx, &upload)?;
            let replaced = chosen.iter().find(|part| now.get(&part.number).map(|row| row.blob) != Some(part.blob));
            if let Some(part) = replaced {
                return Err(s3_error!(InvalidPart, "Part {} was uploaded again meanwhile", part.number).into());
            }
            let version = change.put_object(new)?;
            change.drop_upload(&upload)?;
            Ok(version)
        })
        .await
}

pub(super) async fn list_multipart_uploads(
    store: &Store,
    request: S3Request<ListMultipartUploadsInput>,
) -> Result<S3Response<ListMultipartUploadsOutput>, Failure> {
    let input = request.input;
    refuse("ListMultipartUploads", &[("a delimiter", input.delimiter.as_ref().is_some_and(|text| !text.is_empty()))])?;
    let encoding = KeyEncoding::of(input.encoding_type.as_ref())?;
    let max = input.max_uploads.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
    let (bucket, prefix) = (input.bucket.clone(), input.prefix.clone().unwrap_or_default());
    let after_key = input.key_marker.clone().unwrap_or_default();
    // Without an upload id the marker's key is passed over as a whole; `~` is behind every id.
    let after_id = input.upload_id_marker.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| "~".to_owned());
    let mut found = store
        .read(move |connection| {
            need_bucket(connection, &bucket)?;
            let mut query = connection.prepare_cached(
                "SELECT id, key, created_ms FROM upload
                 WHERE bucket = ?1 AND (key, id) > (?2, ?3) AND substr(key, 1, length(?4)) = ?4
                 ORDER BY key, id LIMIT ?5",
            )?;
            let after = params![bucket, after_key.as_bytes(), after_id, prefix.as_bytes(), max.saturating_add(1)];
            let rows = query.query_map(after, |row| {
                let key = String::from_utf8_lossy(&row.get::<_, Vec<u8>>(1)?).into_owned();
                Ok((row.get::<_, String>(0)?, key, row.get::<_, i64>(2)?))
            })?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await?;
    let page = usize::try_from(max).unwrap_or(usize::MAX);
    let truncated = found.len() > page;
    found.truncate(page);
    let next = found.last().filter(|_| truncated).cloned();
    let uploads = found
        .into_iter()
        .map(|(id, key, created_ms)| MultipartUpload {
            upload_id: Some(id),
            key: Some(encoding.encode(key)),
            initiated: Some(wire_time(created_ms)),
            ..Default::default()
        })
        .collect();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        is_truncated: Some(truncated),
        max_uploads: Some(max),
        key_marker: Some(encoding.encode(input.key_marker.unwrap_or_default())),
        upload_id_marker: input.upload_id_marker,
        next_key_marker: next.as_ref().map(|(_, key, _)| encoding.encode(key.clone())),
        next_upload_id_marker: next.map(|(id, _, _)| id),
        prefix: Some(encoding.encode(input.prefix.unwrap_or_default())),
        encoding_type: input.encoding_type,
        uploads: Some(uploads),
        ..Default::default()
    }))
}
