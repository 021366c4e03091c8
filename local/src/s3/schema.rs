use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::OpenError;

/// Version of the layout of the data folder: tables, meaning of columns, naming of body files.
pub(super) const SCHEMA_VERSION: u32 = 2;

/// Keys are blobs so that their order is byte order, whatever the collation.
const TABLES: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE bucket(name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, location TEXT, versioning TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE blob(id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB, file TEXT) STRICT;
CREATE TABLE object(
  bucket TEXT NOT NULL, key BLOB NOT NULL, size_bytes INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL,
  attributes TEXT NOT NULL, tags TEXT NOT NULL, blob INTEGER NOT NULL, version TEXT NOT NULL DEFAULT 'null',
  place INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(bucket, key)) STRICT, WITHOUT ROWID;
CREATE TABLE version(
  bucket TEXT NOT NULL, key BLOB NOT NULL, place INTEGER NOT NULL, version TEXT NOT NULL, is_marker INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL,
  tags TEXT NOT NULL, blob INTEGER, PRIMARY KEY(bucket, key, place)) STRICT, WITHOUT ROWID;
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

/// From layout 1, which knew no versions.
const FROM_1: &str = "
ALTER TABLE bucket ADD COLUMN versioning TEXT;
ALTER TABLE object ADD COLUMN version TEXT NOT NULL DEFAULT 'null';
ALTER TABLE object ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
CREATE TABLE version(
  bucket TEXT NOT NULL, key BLOB NOT NULL, place INTEGER NOT NULL, version TEXT NOT NULL, is_marker INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL,
  tags TEXT NOT NULL, blob INTEGER, PRIMARY KEY(bucket, key, place)) STRICT, WITHOUT ROWID;
UPDATE meta SET value = '2' WHERE name = 'schema_version';
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
        Some(found) if found == "1" => {
            let tx = connection.transaction().map_err(database)?;
            tx.execute_batch(FROM_1).map_err(database)?;
            tx.commit().map_err(database)
        }
        Some(found) => Err(OpenError::SchemaVersion { path: path.to_path_buf(), found, known: SCHEMA_VERSION }),
        None => Err(OpenError::Foreign { path: path.to_path_buf() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout before versions, made of this one: what was added is taken away again.
    fn of_layout_1() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection, Path::new("m")).unwrap();
        let back = "DROP TABLE version; ALTER TABLE bucket DROP COLUMN versioning;
                    ALTER TABLE object DROP COLUMN version; ALTER TABLE object DROP COLUMN place;
                    UPDATE meta SET value = '1' WHERE name = 'schema_version';
                    INSERT INTO bucket VALUES('b', 1, NULL); INSERT INTO blob VALUES(1, x'00', NULL);
                    INSERT INTO object VALUES('b', x'6b', 1, 'e', 5, '{}', '{}', 1);";
        connection.execute_batch(back).unwrap();
        connection
    }

    #[test]
    fn a_folder_from_before_versions_becomes_one_that_can_keep_them() {
        let mut old = of_layout_1();
        prepare(&mut old, Path::new("m")).unwrap();
        prepare(&mut old, Path::new("m")).unwrap();
        let shape = |connection: &Connection| -> Vec<(String, String)> {
            let sql = "SELECT m.name, c.name || ' ' || c.type || c.\"notnull\" || coalesce(c.dflt_value, '')
                       FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1, 2";
            let mut rows = connection.prepare(sql).unwrap();
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
        };
        let mut new = Connection::open_in_memory().unwrap();
        prepare(&mut new, Path::new("m")).unwrap();
        assert_eq!(shape(&old), shape(&new));
        let version: String = old.query_row("SELECT version FROM object", [], |row| row.get(0)).unwrap();
        assert_eq!(version, "null");
    }
}
