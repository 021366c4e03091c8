//! Versions: what buckets keep of objects that are overwritten or deleted.
//!
//! The newest version of a key, unless it is a delete marker, is its row in `object`, as in a bucket without versions.
//! Everything else is in `version`, ordered by `place`, which grows with every write to a bucket that has (or had)
//! versions. Ids begin with the place in hexadecimal, so that a listing goes on behind an id that is gone by now.

use rusqlite::{Connection, OptionalExtension, params};
use s3s::dto::*;
use s3s::{S3Request, S3Response, s3_error};

use super::delete::Removed;
use super::headers::{KeyEncoding, owner, refuse, wire_etag, wire_size, wire_time};
use super::outbox::EventName;
use super::rows::{ObjectRow, decoded, find_object, need_bucket, need_object, read_object, read_u64};
use super::store::Change;
use super::{Failure, Store};
use lakewarden_core::store::{Ids, RandomIds};

const NULL: &str = "null";
const ENABLED: &str = "Enabled";
const PAGE_MAX: i32 = 1000;

/// What the next version of a key is called.
#[derive(Debug)]
pub(super) struct Next {
    pub version: String,
    pub place: i64,
    /// Whether the bucket has versions, or had them.
    pub is_versioned: bool,
}

fn status_of(connection: &Connection, bucket: &str) -> Result<Option<String>, Failure> {
    let found: Option<Option<String>> = connection
        .prepare_cached("SELECT versioning FROM bucket WHERE name = ?")?
        .query_row([bucket], |row| row.get(0))
        .optional()?;
    found.ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist: {bucket}").into())
}

pub(super) async fn get_bucket_versioning(
    store: &Store,
    request: S3Request<GetBucketVersioningInput>,
) -> Result<S3Response<GetBucketVersioningOutput>, Failure> {
    let status = store.read(move |connection| status_of(connection, &request.input.bucket)).await?;
    let status = status.map(BucketVersioningStatus::from);
    Ok(S3Response::new(GetBucketVersioningOutput { status, ..Default::default() }))
}

pub(super) async fn put_bucket_versioning(
    store: &Store,
    request: S3Request<PutBucketVersioningInput>,
) -> Result<S3Response<PutBucketVersioningOutput>, Failure> {
    let input = request.input;
    let configuration = input.versioning_configuration;
    let has_mfa = input.mfa.is_some() || configuration.mfa_delete.is_some_and(|state| state.as_str() != "Disabled");
    refuse("PutBucketVersioning", &[("multi-factor authentication", has_mfa)])?;
    let status = configuration.status.map(|status| status.as_str().to_owned());
    let Some(status) = status.filter(|status| [ENABLED, "Suspended"].contains(&status.as_str())) else {
        return Err(s3_error!(MalformedXML, "The Status is Enabled or Suspended").into());
    };
    store
        .write(move |change| {
            need_bucket(&change.tx, &input.bucket)?;
            change.tx.execute("UPDATE bucket SET versioning = ? WHERE name = ?", params![status, input.bucket])?;
            Ok(())
        })
        .await?;
    Ok(S3Response::new(PutBucketVersioningOutput::default()))
}

/// Buckets without versions answer none.
pub(super) fn answered_version(row: &ObjectRow) -> Option<String> {
    (row.place > 0).then(|| row.version.clone())
}

/// An object, or one of its versions. A delete marker cannot be read.
pub(super) fn need_version(
    connection: &Connection,
    bucket: &str,
    key: &str,
    version: Option<&str>,
) -> Result<ObjectRow, Failure> {
    let Some(version) = version else { return need_object(connection, bucket, key) };
    need_bucket(connection, bucket)?;
    if let Some(row) = find_object(connection, bucket, key)?.filter(|row| row.version == version) {
        return Ok(row);
    }
    match find_hidden(connection, bucket, key, version)? {
        Some(Hidden::Object(row)) => Ok(*row),
        Some(Hidden::Marker { .. }) => {
            Err(s3_error!(MethodNotAllowed, "The specified method is not allowed against this resource.").into())
        }
        None => Err(s3_error!(NoSuchVersion, "The specified version does not exist.").into()),
    }
}

enum Hidden {
    Object(Box<ObjectRow>),
    Marker { place: i64 },
}

impl Hidden {
    fn place(&self) -> i64 {
        match self {
            Hidden::Object(row) => row.place,
            Hidden::Marker { place } => *place,
        }
    }
}

fn find_hidden(connection: &Connection, bucket: &str, key: &str, version: &str) -> Result<Option<Hidden>, Failure> {
    let place: Option<i64> = connection
        .prepare_cached("SELECT place FROM version WHERE bucket = ? AND key = ? AND version = ?")?
        .query_row(params![bucket, key.as_bytes(), version], |row| row.get(0))
        .optional()?;
    place.map_or(Ok(None), |place| hidden_at(connection, bucket, key, place).map(Some))
}

fn hidden_at(connection: &Connection, bucket: &str, key: &str, place: i64) -> Result<Hidden, Failure> {
    let sql = "SELECT size_bytes, etag, modified_ms, attributes, tags, coalesce(blob, 0), version, place, is_marker
               FROM version WHERE bucket = ? AND key = ? AND place = ?";
    let (stored, is_marker) = connection
        .prepare_cached(sql)?
        .query_row(params![bucket, key.as_bytes(), place], |row| Ok((read_object(row)?, row.get::<_, bool>(8)?)))?;
    if is_marker { Ok(Hidden::Marker { place }) } else { Ok(Hidden::Object(Box::new(decoded(stored)?))) }
}

impl Change<'_> {
    /// Puts the newest version of a key aside, or away where it is not to be kept, and says what the next one is called.
    pub fn make_way(&mut self, bucket: &str, key: &str, current: Option<ObjectRow>) -> Result<Next, Failure> {
        let Some(status) = status_of(&self.tx, bucket)? else {
            if let Some(old) = current {
                self.drop_body(old.blob)?;
            }
            return Ok(Next { version: NULL.to_owned(), place: 0, is_versioned: false });
        };
        let is_kept = status == ENABLED;
        if !is_kept && let Some(Hidden::Object(old)) = find_hidden(&self.tx, bucket, key, NULL)? {
            self.drop_body(old.blob)?;
        }
        if !is_kept {
            let sql = "DELETE FROM version WHERE bucket = ? AND key = ? AND version = 'null'";
            self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes()])?;
        }
        match current {
            Some(old) if is_kept || old.version != NULL => self.put_aside(bucket, key, &old)?,
            Some(old) => self.drop_body(old.blob)?,
            None => {}
        }
        let place = self.next_place()?;
        let version = match is_kept {
            true => format!("{place:016x}{:.16}", RandomIds.uuid().simple().to_string()),
            false => NULL.to_owned(),
        };
        Ok(Next { version, place, is_versioned: true })
    }

    fn next_place(&mut self) -> Result<i64, Failure> {
        let sql = "INSERT INTO meta VALUES('version_place', '1')
                   ON CONFLICT(name) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)
                   RETURNING CAST(value AS INTEGER)";
        Ok(self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    fn put_aside(&mut self, bucket: &str, key: &str, old: &ObjectRow) -> Result<(), Failure> {
        let sql =
            "INSERT INTO version(bucket, key, place, version, is_marker, size_bytes, etag, modified_ms, attributes,
                     tags, blob)
                   SELECT bucket, key, place, version, 0, size_bytes, etag, modified_ms, attributes, tags, blob
                   FROM object WHERE bucket = ? AND key = ? AND version = ?";
        self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes(), old.version])?;
        Ok(())
    }

    pub fn add_marker(&mut self, bucket: &str, key: &str, next: &Next) -> Result<(), Failure> {
        let sql =
            "INSERT INTO version(bucket, key, place, version, is_marker, size_bytes, etag, modified_ms, attributes,
                     tags, blob) VALUES(?, ?, ?, ?, 1, 0, '', ?, '{}', '{}', NULL)";
        let values = params![bucket, key.as_bytes(), next.place, next.version, self.now_ms];
        self.tx.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Removes a version for good; what is the newest then is found by reads. What is not there is removed already.
    pub fn delete_version(&mut self, bucket: &str, key: &str, version: &str) -> Result<Removed, Failure> {
        let answer = |is_marker: bool| Removed { version: Some(version.to_owned()), is_marker };
        let current = find_object(&self.tx, bucket, key)?;
        let is_current = current.as_ref().is_some_and(|row| row.version == version);
        let removed = match current {
            Some(row) if is_current => {
                self.drop_body(row.blob)?;
                let sql = "DELETE FROM object WHERE bucket = ? AND key = ?";
                self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes()])?;
                answer(false)
            }
            ref current => {
                let Some(hidden) = find_hidden(&self.tx, bucket, key, version)? else { return Ok(answer(false)) };
                let sql = "DELETE FROM version WHERE bucket = ? AND key = ? AND place = ?";
                self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes(), hidden.place()])?;
                let is_marker = matches!(hidden, Hidden::Marker { .. });
                if let Hidden::Object(row) = hidden {
                    self.drop_body(row.blob)?;
                }
                self.append_event(EventName::RemovedDelete, bucket, key, None)?;
                if current.is_some() {
                    return Ok(answer(is_marker));
                }
                answer(is_marker)
            }
        };
        if is_current {
            self.append_event(EventName::RemovedDelete, bucket, key, None)?;
        }
        self.bring_forward(bucket, key)?;
        Ok(removed)
    }

    /// The newest of the versions that are left, if it is an object, is the object now.
    fn bring_forward(&mut self, bucket: &str, key: &str) -> Result<(), Failure> {
        let newest: Option<(i64, bool)> = self
            .tx
            .prepare_cached(
                "SELECT place, is_marker FROM version WHERE bucket = ? AND key = ? ORDER BY place DESC LIMIT 1",
            )?
            .query_row(params![bucket, key.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((place, false)) = newest else { return Ok(()) };
        let sql =
            "INSERT INTO object(bucket, key, size_bytes, etag, modified_ms, attributes, tags, blob, version, place)
                   SELECT bucket, key, size_bytes, etag, modified_ms, attributes, tags, blob, version, place
                   FROM version WHERE bucket = ? AND key = ? AND place = ?";
        self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes(), place])?;
        let sql = "DELETE FROM version WHERE bucket = ? AND key = ? AND place = ?";
        self.tx.prepare_cached(sql)?.execute(params![bucket, key.as_bytes(), place])?;
        Ok(())
    }
}

/// A row of a listing.
#[derive(Debug)]
struct Entry {
    key: String,
    version: String,
    is_marker: bool,
    is_latest: bool,
    size_bytes: u64,
    etag: String,
    modified_ms: i64,
}

/// Behind this: a key, and of the key itself what is older than the place.
#[derive(Debug)]
struct Behind {
    key: Vec<u8>,
    place: i64,
}

fn scan(connection: &Connection, bucket: &str, prefix: &str, behind: &Behind, max: i64) -> Result<Vec<Entry>, Failure> {
    let sql = "SELECT key, version, is_marker, is_latest, size_bytes, etag, modified_ms FROM (
          SELECT key, version, 0 AS is_marker, 1 AS is_latest, size_bytes, etag, modified_ms, place FROM object
          WHERE bucket = ?1 AND key >= ?2 AND (key > ?2 OR place < ?3) AND substr(key, 1, length(?4)) = ?4
        UNION ALL
          SELECT v.key, v.version, v.is_marker,
            NOT EXISTS(SELECT 1 FROM object o WHERE o.bucket = v.bucket AND o.key = v.key)
              AND v.place = (SELECT max(place) FROM version w WHERE w.bucket = v.bucket AND w.key = v.key),
            v.size_bytes, v.etag, v.modified_ms, v.place FROM version v
          WHERE v.bucket = ?1 AND v.key >= ?2 AND (v.key > ?2 OR v.place < ?3) AND substr(v.key, 1, length(?4)) = ?4
      ) ORDER BY key, is_latest DESC, place DESC LIMIT ?5";
    let mut query = connection.prepare_cached(sql)?;
    let rows = query.query_map(params![bucket, behind.key, behind.place, prefix.as_bytes(), max], |row| {
        Ok(Entry {
            key: String::from_utf8_lossy(&row.get::<_, Vec<u8>>(0)?).into_owned(),
            version: row.get(1)?,
            is_marker: row.get(2)?,
            is_latest: row.get(3)?,
            size_bytes: read_u64(row, 4)?,
            etag: row.get(5)?,
            modified_ms: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Where a page begins. Ids say their place themselves; the version `null` is looked up.
fn behind(connection: &Connection, input: &ListObjectVersionsInput) -> Result<Behind, Failure> {
    let prefix = input.prefix.clone().unwrap_or_default();
    let Some(key) = input.key_marker.clone().filter(|key| !key.is_empty()) else {
        return Ok(Behind { key: prefix.into_bytes(), place: i64::MAX });
    };
    if key.as_bytes() < prefix.as_bytes() {
        return Ok(Behind { key: prefix.into_bytes(), place: i64::MAX });
    }
    let place = match input.version_id_marker.as_deref().filter(|id| !id.is_empty()) {
        None => i64::MIN,
        Some(NULL) => {
            let current = find_object(connection, &input.bucket, &key)?.filter(|row| row.version == NULL);
            let hidden = find_hidden(connection, &input.bucket, &key, NULL)?;
            current.map(|row| row.place).or(hidden.map(|hidden| hidden.place())).unwrap_or(i64::MIN)
        }
        Some(id) => {
            let place = id.get(..16).and_then(|place| i64::from_str_radix(place, 16).ok());
            place.ok_or_else(|| s3_error!(InvalidArgument, "Invalid version id specified"))?
        }
    };
    Ok(Behind { key: key.into_bytes(), place })
}

pub(super) async fn list_object_versions(
    store: &Store,
    request: S3Request<ListObjectVersionsInput>,
) -> Result<S3Response<ListObjectVersionsOutput>, Failure> {
    let input = request.input;
    let has_delimiter = input.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty());
    refuse("ListObjectVersions", &[("a delimiter", has_delimiter)])?;
    let encoding = KeyEncoding::of(input.encoding_type.as_ref())?;
    let max_keys = input.max_keys.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
    let asked = input.clone();
    let mut entries = store
        .read(move |connection| {
            need_bucket(connection, &asked.bucket)?;
            let behind = behind(connection, &asked)?;
            let prefix = asked.prefix.unwrap_or_default();
            // One more than asked for tells whether there is more.
            scan(connection, &asked.bucket, &prefix, &behind, i64::from(max_keys).saturating_add(1))
        })
        .await?;
    let max = usize::try_from(max_keys).unwrap_or(0);
    let truncated = entries.len() > max && max > 0;
    entries.truncate(max);
    let last = entries.last().filter(|_| truncated);
    let mut output = ListObjectVersionsOutput {
        name: Some(input.bucket),
        max_keys: Some(max_keys),
        is_truncated: Some(truncated),
        next_key_marker: last.map(|entry| encoding.encode(entry.key.clone())),
        next_version_id_marker: last.map(|entry| entry.version.clone()),
        prefix: Some(encoding.encode(input.prefix.unwrap_or_default())),
        key_marker: Some(encoding.encode(input.key_marker.unwrap_or_default())),
        version_id_marker: input.version_id_marker,
        encoding_type: input.encoding_type,
        ..Default::default()
    };
    let (mut versions, mut markers) = (Vec::new(), Vec::new());
    for entry in entries {
        let (key, last_modified) = (Some(encoding.encode(entry.key)), Some(wire_time(entry.modified_ms)));
        let (version_id, is_latest) = (Some(entry.version), Some(entry.is_latest));
        if entry.is_marker {
            markers.push(DeleteMarkerEntry { key, version_id, is_latest, last_modified, owner: Some(owner()) });
            continue;
        }
        versions.push(ObjectVersion {
            key,
            version_id,
            is_latest,
            last_modified,
            e_tag: Some(wire_etag(&entry.etag)),
            size: Some(wire_size(entry.size_bytes)),
            storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
            owner: Some(owner()),
            ..Default::default()
        });
    }
    output.versions = (!versions.is_empty()).then_some(versions);
    output.delete_markers = (!markers.is_empty()).then_some(markers);
    Ok(S3Response::new(output))
}
