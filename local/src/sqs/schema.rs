use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::OpenError;

pub(super) const SCHEMA_VERSION: u32 = 1;

/// Dead letters are messages with `dead_ms`; they keep everything else.
const TABLES: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE queue(
  name TEXT PRIMARY KEY, visibility_timeout_ms INTEGER NOT NULL, max_receives INTEGER, delay_ms INTEGER NOT NULL,
  created_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE message(
  id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, message_id TEXT NOT NULL, body TEXT NOT NULL,
  attributes TEXT NOT NULL, sent_ms INTEGER NOT NULL, visible_ms INTEGER NOT NULL, receives INTEGER NOT NULL,
  first_received_ms INTEGER, last_received_ms INTEGER, receipt TEXT, last_error TEXT, dead_ms INTEGER) STRICT;
CREATE INDEX message_by_visibility ON message(queue, visible_ms, id) WHERE dead_ms IS NULL;
CREATE INDEX message_by_receipt ON message(receipt) WHERE receipt IS NOT NULL;
CREATE INDEX message_dead ON message(queue, id) WHERE dead_ms IS NOT NULL;
";

/// Creates the tables in a new file, or checks that an old one has the layout this program knows.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let database = |source| OpenError::Database { path: path.to_path_buf(), source };
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(database);
    if count("SELECT count(*) FROM sqlite_schema")? == 0 {
        let tx = connection.transaction().map_err(database)?;
        tx.execute_batch(TABLES).map_err(database)?;
        tx.execute("INSERT INTO meta VALUES('schema_version', ?)", [SCHEMA_VERSION.to_string()]).map_err(database)?;
        return tx.commit().map_err(database);
    }
    if count("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'")? == 0 {
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
