//! Reading the rows of the embedded DynamoDB's file beside it.
//!
//! The crate keeps items as rows of a SQLite file in WAL mode, commits a write before it answers it, and reads with a lock
//! on its only connection. So other connections that only read see every write that was answered, and neither wait for
//! the crate nor hold it up. They take what the crate does for each item from 17 microseconds to about two: the text of a
//! row goes to whoever wants it, decoded once or not at all.
//!
//! How rows are laid out is the crate's own affair. It is known for one version of its layout, which is checked when the
//! file is opened; with any other there are no readers, and everything is read through the crate. The same goes for each
//! read that fails here. The contract suite holds both ways to the same answers and the same units.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lakewarden_core::store::rules::{self, QueryStart};
use lakewarden_core::store::{Query, Sort, SortRange};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

/// Of the crate's layout, as it notes it in the file.
const KNOWN_LAYOUT: &str = "11";
/// A page of a query ends before the item with which it would be larger.
const PAGE_MAX_BYTES: usize = 1 << 20;
/// Readers at work at once, at most.
const AT_ONCE_MAX: usize = 8;
/// SQLite's own limit. Pages that are mapped need not be copied to be read.
const MAPPED_MAX_BYTES: i64 = 0x7fff_0000;
const STATEMENTS: usize = 32;
/// A write is being moved into the file, which takes milliseconds.
const BUSY_MS: u64 = 5_000;

/// Connections to the file.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    turns: Arc<Semaphore>,
}

/// Rows of one page.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Their JSON, one behind the other.
    pub text: String,
    pub rows: Vec<Row>,
    pub next: Option<Sort>,
    pub read_half_units: u64,
}

#[derive(Debug)]
pub(super) struct Row {
    pub sk: Vec<u8>,
    /// Where its JSON is in the text.
    pub start: usize,
    pub end: usize,
}

impl Rows {
    pub(super) fn json(&self, row: &Row) -> Option<&str> {
        self.text.get(row.start..row.end)
    }
}

/// Why something was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("the layout of the file is {0}")]
    Layout(String),
    #[error("a row without a binary sort key")]
    Foreign,
    #[error("the readers are gone")]
    Gone,
}

impl Readers {
    /// # Errors
    /// If the file cannot be read, or has another layout.
    pub(super) fn open(path: &Path) -> Result<Self, Unread> {
        let connection = connect(path)?;
        let layout = "SELECT value FROM _config WHERE key = 'schema_version'";
        let layout: String = connection.query_row(layout, [], |row| row.get(0))?;
        if layout != KNOWN_LAYOUT {
            return Err(Unread::Layout(layout));
        }
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, AT_ONCE_MAX);
        let turns = Arc::new(Semaphore::new(at_once));
        Ok(Self { path: path.to_path_buf(), idle: Mutex::new(vec![connection]), turns })
    }

    /// Whether it reads what this query asks for: of tables with binary sort keys, upwards.
    pub(super) fn can_read(query: &Query) -> bool {
        query.table.has_binary_range() && query.direction == lakewarden_core::store::Direction::Ascending
    }

    /// Does something with a connection, on a thread where it may block.
    pub(super) async fn read<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, Unread> + Send + 'static,
    ) -> Result<T, Unread> {
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| Unread::Gone)?;
        let answer = tokio::task::spawn_blocking(move || {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = idle.map_or_else(|| connect(&self.path), Ok)?;
            let answer = work(&connection)?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(turn);
            Ok(answer)
        });
        answer.await.map_err(|_| Unread::Gone)?
    }
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    connection.pragma_update(None, "mmap_size", MAPPED_MAX_BYTES)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Keys as they are stored: in hexadecimal behind the letter of their type, so that their order is that of the bytes.
fn stored(sk: &[u8]) -> String {
    format!("B:{}", hex::encode(sk))
}

/// Behind all binary keys, and behind all that begin with some digits.
const BEHIND_ALL: &str = "B;";
const BEHIND_DIGITS: char = 'g';

/// Where a query begins and ends, with the comparisons for that.
struct Bounds {
    low: (&'static str, String),
    high: (&'static str, String),
}

impl Bounds {
    fn of(query: &Query, after: Option<&Sort>) -> Self {
        let all = || ("<", BEHIND_ALL.to_owned());
        let (low, high) = match &query.range {
            SortRange::All => (stored(&[]), all()),
            SortRange::AtLeast(low) => (stored(low.as_bytes()), all()),
            SortRange::AtMost(high) => (stored(&[]), ("<=", stored(high.as_bytes()))),
            SortRange::Between(low, high) => (stored(low.as_bytes()), ("<=", stored(high.as_bytes()))),
            SortRange::Prefix(prefix) => {
                let low = stored(prefix.as_bytes());
                let high = format!("{low}{BEHIND_DIGITS}");
                (low, ("<", high))
            }
        };
        let low = after.map_or((">=", low), |after| (">", stored(after.as_bytes())));
        Self { low, high }
    }
}

/// Reads a page as DynamoDB would answer it. The query was checked.
pub(super) fn read_page(connection: &Connection, table: &str, query: &Query) -> Result<Rows, Unread> {
    let after = match query.start() {
        QueryStart::Beginning => None,
        QueryStart::After(after) => Some(after),
        QueryStart::End => return Ok(Rows::default()),
    };
    let Bounds { low, high } = Bounds::of(query, after);
    let sql = format!(
        "SELECT sk, item_json, item_size FROM \"{}\" WHERE pk = ?1 AND sk {} ?2 AND sk {} ?3 ORDER BY sk ASC LIMIT ?4",
        table.replace('"', "\"\""),
        low.0,
        high.0,
    );
    let limit = query.limit.unwrap_or(usize::MAX);
    let limit_stated = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query((format!("S:{}", query.pk), low.1, high.1, limit_stated))?;
    let mut page = Rows::default();
    let (mut size_bytes, mut is_cut) = (0_usize, false);
    while let Some(row) = found.next()? {
        let item_bytes = usize::try_from(row.get_ref(2)?.as_i64().map_err(|_| Unread::Foreign)?).unwrap_or(usize::MAX);
        if !page.rows.is_empty() && size_bytes.saturating_add(item_bytes) > PAGE_MAX_BYTES {
            is_cut = true;
            break;
        }
        size_bytes = size_bytes.saturating_add(item_bytes);
        let (ValueRef::Text(sk), Ok(json)) = (row.get_ref(0)?, row.get_ref(1)?.as_str()) else {
            return Err(Unread::Foreign);
        };
        let digits = sk.strip_prefix(b"B:").ok_or(Unread::Foreign)?;
        let sk = hex::decode(digits).map_err(|_| Unread::Foreign)?;
        let start = page.text.len();
        page.text.push_str(json);
        page.rows.push(Row { sk, start, end: page.text.len() });
    }
    if is_cut || page.rows.len() >= limit {
        page.next = page.rows.last().map(|row| Sort::Bytes(row.sk.clone()));
    }
    page.read_half_units = rules::read_half_units(size_bytes, query.consistency);
    Ok(page)
}
