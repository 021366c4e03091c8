use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::OpenError;

/// Version of the layout of the data folder: tables, meaning of columns, naming of body files.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Keys are blobs so that their order is byte order, whatever the collation.
const TABLES: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE bucket(name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, location TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE blob(id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB, file TEXT) STRICT;
CREATE TABLE object(
  bucket TEXT NOT NULL, key BLOB NOT NULL, size_bytes INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL,
  attributes TEXT NOT NULL, tags TEXT NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY(bucket, key)) STRICT, WITHOUT ROWID;
CREATE TABLE upload(
  id TEXT PRIMARY KEY, bucket TEXT NOT NULL, key BLOB NOT NULL, attributes TEXT NOT NULL, tags TEXT NOT NULL,
  algorithm TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX upload_by_key ON upload(bucket, key, id);
CREATE TABLE part(
  upload TEXT NOT NULL, number INTEGER NOT NULL, size_bytes INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, checksums TEXT NOT NULL, blob INTEGER NOT NULL,
  PRIMARY KEY(upload, number)) STRICT, WITHOUT ROWID;
CREATE TABLE event(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, bucket TEXT NOT NULL, key BLOB NOT NULL,
  size_bytes INTEGER, etag TEXT, time_ms INTEGER NOT NULL) STRICT;
";

/// Creates the tables in a new file, or checks that an old one has the layout this program knows.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let database = |source| OpenError::Database { path: path.to_path_buf(), source };
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(database)?;
    if tables == 0 {
        let tx = connection.transaction().map_err(database)?;
        tx.execute_batch(TABLES).map_err(database)?;
        tx.execute("INSERT INTO meta VALUES('schema_version', ?)", [SCHEMA_VERSION.to_string()]).map_err(database)?;
        return tx.commit().map_err(database);
    }
    let has_meta = connection
        .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'")
        .and_then(|mut found| found.exists([]))
        .map_err(database)?;
    if !has_meta {
        return Err(OpenError::Foreign { path: path.to_path_buf() });
    }
    let found: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE name = 'schema_version'", [], |row| row.get(0))
        .optional()
        .map_err(database)?;
    match found {
        Some(found) if found == SCHEMA_VERSION.to_string() => Ok(()),
        Some(found) => Err(OpenError::SchemaVersion { path: path.to_path_buf(), found, known: SCHEMA_VERSION }),
        None => Err(OpenError::Foreign { path: path.to_path_buf() }),
    }
}
