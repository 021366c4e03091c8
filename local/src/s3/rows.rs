use rusqlite::{Connection, OptionalExtension, Row, params};
use s3s::s3_error;

use super::Failure;
use super::bodies::{StagedBody, StoredBody};
use super::conditions::WriteCondition;
use super::headers::{Attributes, Tags};
use super::outbox::EventName;
use super::store::Change;

/// An object without its body.
#[derive(Clone, Debug)]
pub(super) struct ObjectRow {
    pub size_bytes: u64,
    /// Without quotes.
    pub etag: String,
    pub modified_ms: i64,
    pub attributes: Attributes,
    pub tags: Tags,
    pub blob: i64,
    /// `null` in a bucket that keeps no versions.
    pub version: String,
    /// Grows with the versions of a key.
    pub place: i64,
}

/// An object to write.
#[derive(Debug)]
pub(super) struct NewObject {
    pub bucket: String,
    pub key: String,
    pub size_bytes: u64,
    pub etag: String,
    pub attributes: Attributes,
    pub tags: Tags,
    pub body: StagedBody,
    pub condition: WriteCondition,
    pub event: EventName,
}

pub(super) fn need_bucket(connection: &Connection, bucket: &str) -> Result<(), Failure> {
    if connection.prepare_cached("SELECT 1 FROM bucket WHERE name = ?")?.exists([bucket])? {
        return Ok(());
    }
    Err(s3_error!(NoSuchBucket, "The specified bucket does not exist: {bucket}").into())
}

pub(super) fn find_object(connection: &Connection, bucket: &str, key: &str) -> Result<Option<ObjectRow>, Failure> {
    let found = connection
        .prepare_cached(
            "SELECT size_bytes, etag, modified_ms, attributes, tags, blob, version, place FROM object
             WHERE bucket = ? AND key = ?",
        )?
        .query_row(params![bucket, key.as_bytes()], read_object)
        .optional()?;
    found.map(decoded).transpose()
}

/// An object as it is stored: attributes and tags are texts.
pub(super) type StoredObject = (ObjectRow, String, String);

pub(super) fn read_object(row: &Row<'_>) -> rusqlite::Result<StoredObject> {
    Ok((
        ObjectRow {
            size_bytes: read_u64(row, 0)?,
            etag: row.get(1)?,
            modified_ms: row.get(2)?,
            attributes: Attributes::default(),
            tags: Tags::default(),
            blob: row.get(5)?,
            version: row.get(6)?,
            place: row.get(7)?,
        },
        row.get(3)?,
        row.get(4)?,
    ))
}

pub(super) fn decoded((mut object, attributes, tags): StoredObject) -> Result<ObjectRow, Failure> {
    object.attributes = serde_json::from_str(&attributes)?;
    object.tags = serde_json::from_str(&tags)?;
    Ok(object)
}

pub(super) fn need_object(connection: &Connection, bucket: &str, key: &str) -> Result<ObjectRow, Failure> {
    need_bucket(connection, bucket)?;
    find_object(connection, bucket, key)?
        .ok_or_else(|| s3_error!(NoSuchKey, "The specified key does not exist.").into())
}

pub(super) fn load_body(connection: &Connection, blob: i64) -> Result<StoredBody, Failure> {
    let body = connection.prepare_cached("SELECT data, file FROM blob WHERE id = ?")?.query_row([blob], |row| {
        Ok(match row.get::<_, Option<String>>(1)? {
            Some(file) => StoredBody::File(file),
            None => StoredBody::Inline(row.get::<_, Option<Vec<u8>>>(0)?.unwrap_or_default().into()),
        })
    })?;
    Ok(body)
}

/// SQLite keeps signed numbers; ours are sizes and never negative.
pub(super) fn read_u64(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|value| u64::try_from(value).unwrap_or(0))
}

pub(super) fn stored_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Change<'_> {
    pub fn add_body(&mut self, body: StagedBody) -> Result<i64, Failure> {
        let mut insert = self.tx.prepare_cached("INSERT INTO blob(data, file) VALUES(?, ?)")?;
        Ok(match body {
            StagedBody::Inline(bytes) => insert.insert(params![&bytes[..], None::<String>])?,
            StagedBody::File(file) => {
                let id = insert.insert(params![None::<Vec<u8>>, file.name()])?;
                drop(insert);
                self.keep_file(file);
                id
            }
        })
    }

    pub fn drop_body(&mut self, blob: i64) -> Result<(), Failure> {
        let file: Option<Option<String>> = self
            .tx
            .prepare_cached("DELETE FROM blob WHERE id = ? RETURNING file")?
            .query_row([blob], |row| row.get(0))
            .optional()?;
        if let Some(name) = file.flatten() {
            self.drop_file(name);
        }
        Ok(())
    }

    /// Checks the condition, writes the object in place of the old one, or before it where versions are kept, and appends
    /// the event. Answers the version, if the bucket has any.
    pub fn put_object(&mut self, new: NewObject) -> Result<Option<String>, Failure> {
        need_bucket(&self.tx, &new.bucket)?;
        let current = find_object(&self.tx, &new.bucket, &new.key)?;
        new.condition.check(current.as_ref())?;
        let next = self.make_way(&new.bucket, &new.key, current)?;
        let blob = self.add_body(new.body)?;
        self.tx
            .prepare_cached(
                "INSERT INTO object(bucket, key, size_bytes, etag, modified_ms, attributes, tags, blob, version, place)
                 VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                 ON CONFLICT(bucket, key) DO UPDATE SET size_bytes = excluded.size_bytes, etag = excluded.etag,
                   modified_ms = excluded.modified_ms, attributes = excluded.attributes, tags = excluded.tags,
                   blob = excluded.blob, version = excluded.version, place = excluded.place",
            )?
            .execute(params![
                new.bucket,
                new.key.as_bytes(),
                stored_size(new.size_bytes),
                new.etag,
                self.now_ms,
                serde_json::to_string(&new.attributes)?,
                serde_json::to_string(&new.tags)?,
                blob,
                next.version,
                next.place
            ])?;
        self.append_event(new.event, &new.bucket, &new.key, Some((new.size_bytes, &new.etag)))?;
        Ok(next.is_versioned.then_some(next.version))
    }

    /// Removes an object if it is there, and appends the event. In a bucket with versions it is hidden behind a delete
    /// marker, whose version is answered.
    pub fn delete_object(
        &mut self,
        bucket: &str,
        key: &str,
        current: Option<ObjectRow>,
    ) -> Result<Option<String>, Failure> {
        let was_there = current.is_some();
        let next = self.make_way(bucket, key, current)?;
        if was_there {
            self.tx
                .prepare_cached("DELETE FROM object WHERE bucket = ? AND key = ?")?
                .execute(params![bucket, key.as_bytes()])?;
        }
        if next.is_versioned {
            self.add_marker(bucket, key, &next)?;
            self.append_event(EventName::RemovedDeleteMarkerCreated, bucket, key, None)?;
            return Ok(Some(next.version));
        }
        if was_there {
            self.append_event(EventName::RemovedDelete, bucket, key, None)?;
        }
        Ok(None)
    }
}
