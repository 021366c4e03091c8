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
            "SELECT size_bytes, etag, modified_ms, attributes, tags, blob FROM object WHERE bucket = ? AND key = ?",
        )?
        .query_row(params![bucket, key.as_bytes()], |row| {
            Ok((
                ObjectRow {
                    size_bytes: read_u64(row, 0)?,
                    etag: row.get(1)?,
                    modified_ms: row.get(2)?,
                    attributes: Attributes::default(),
                    tags: Tags::default(),
                    blob: row.get(5)?,
                },
                row.get::<_, String>(3)?,
                row.get::<_, String>(4)?,
            ))
        })
        .optional()?;
    let Some((mut object, attributes, tags)) = found else { return Ok(None) };
    object.attributes = serde_json::from_str(&attributes)?;
    object.tags = serde_json::from_str(&tags)?;
    Ok(Some(object))
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

    /// Checks the condition, writes the object in place of the old one and appends the event.
    pub fn put_object(&mut self, new: NewObject) -> Result<(), Failure> {
        need_bucket(&self.tx, &new.bucket)?;
        let current = find_object(&self.tx, &new.bucket, &new.key)?;
        new.condition.check(current.as_ref())?;
        if let Some(old) = current {
            self.drop_body(old.blob)?;
        }
        let blob = self.add_body(new.body)?;
        self.tx
            .prepare_cached(
                "INSERT INTO object(bucket, key, size_bytes, etag, modified_ms, attributes, tags, blob)
                 VALUES(?, ?, ?, ?, ?, ?, ?, ?)
                 ON CONFLICT(bucket, key) DO UPDATE SET size_bytes = excluded.size_bytes, etag = excluded.etag,
                   modified_ms = excluded.modified_ms, attributes = excluded.attributes, tags = excluded.tags,
                   blob = excluded.blob",
            )?
            .execute(params![
                new.bucket,
                new.key.as_bytes(),
                stored_size(new.size_bytes),
                new.etag,
                self.now_ms,
                serde_json::to_string(&new.attributes)?,
                serde_json::to_string(&new.tags)?,
                blob
            ])?;
        self.append_event(new.event, &new.bucket, &new.key, Some((new.size_bytes, &new.etag)))
    }

    /// Removes an object if it is there, and appends the event.
    pub fn delete_object(&mut self, bucket: &str, key: &str, current: Option<ObjectRow>) -> Result<(), Failure> {
        let Some(old) = current else { return Ok(()) };
        self.drop_body(old.blob)?;
        self.tx
            .prepare_cached("DELETE FROM object WHERE bucket = ? AND key = ?")?
            .execute(params![bucket, key.as_bytes()])?;
        self.append_event(EventName::RemovedDelete, bucket, key, None)
    }
}
