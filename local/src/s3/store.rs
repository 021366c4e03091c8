use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lakewarden_core::store::{Clock, Ids, RandomIds};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::watch;

use super::bodies::{BodyFolder, StagedFile};
use super::outbox;
use super::{Failure, OpenError, schema};
use crate::exclusive::ExclusiveLock;

const DATABASE_FILE: &str = "s3.sqlite";
const BODY_FOLDER: &str = "bodies";
const LOCK_FILE: &str = "lock";
const READERS: usize = 2;
/// Nobody else writes to the file; this only covers checkpoints of our own connections.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// A crash of the machine.
    Synced,
    /// Nothing: the folder goes away with the store.
    Ephemeral,
}

impl Durability {
    fn synchronous(self) -> &'static str {
        match self {
            Durability::Synced => "FULL",
            Durability::Ephemeral => "OFF",
        }
    }
}

/// A data folder: buckets, objects, uploads and events. Cheap to clone; the folder is released with the last clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

// Dropped in this order: connections first, then the lock, then a temporary folder.
struct Inner {
    writer: Mutex<Connection>,
    readers: Vec<Mutex<Connection>>,
    next_reader: AtomicUsize,
    bodies: BodyFolder,
    clock: Arc<dyn Clock>,
    newest_event: watch::Sender<i64>,
    /// SQLite's setting for changes that are on disk when they are answered.
    synchronous: &'static str,
    _lock: ExclusiveLock,
    _temporary: Option<TemporaryFolder>,
}

/// One change under way: everything done through it happens, or nothing of it.
pub(super) struct Change<'connection> {
    pub tx: Transaction<'connection>,
    /// The moment of the change. Taken while holding the only writer, so it follows the order of changes.
    pub now_ms: i64,
    born: Vec<StagedFile>,
    dead: Vec<String>,
    event: Option<i64>,
}

impl Change<'_> {
    /// A body file that belongs to a row once the change is committed.
    pub fn keep_file(&mut self, file: StagedFile) {
        self.born.push(file);
    }

    /// A body file that no row names any more once the change is committed.
    pub fn drop_file(&mut self, name: String) {
        self.dead.push(name);
    }

    pub fn note_event(&mut self, id: i64) {
        self.event = Some(id);
    }
}

impl Store {
    /// Opens or creates a data folder. Blocks; call it before serving.
    ///
    /// `clock` gives every LastModified and every event its time. Files that no row names (left by a crash between
    /// writing a body and committing) are removed.
    pub fn open(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_with(folder, clock, Durability::Synced, None)
    }

    /// A store in a temporary folder of its own, removed with the last clone. For tests and `--ephemeral`.
    pub fn ephemeral(clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let folder = std::env::temp_dir().join(format!("lakewarden-s3-{}", RandomIds.uuid().simple()));
        let temporary = TemporaryFolder(folder.clone());
        Self::open_with(&folder, clock, Durability::Ephemeral, Some(temporary))
    }

    fn open_with(
        folder: &Path,
        clock: Arc<dyn Clock>,
        durability: Durability,
        temporary: Option<TemporaryFolder>,
    ) -> Result<Self, OpenError> {
        let lock = ExclusiveLock::take(folder, LOCK_FILE)?;
        let path = folder.join(DATABASE_FILE);
        let database = |source| OpenError::Database { path: path.clone(), source };
        let mut writer = connect(&path, durability).map_err(database)?;
        schema::prepare(&mut writer, &path)?;
        let body_path = folder.join(BODY_FOLDER);
        fs::create_dir_all(&body_path).map_err(|source| OpenError::File { path: body_path.clone(), source })?;
        remove_leftovers(&writer, &path, &body_path)?;
        let readers = (0..READERS)
            .map(|_| connect(&path, durability).map(Mutex::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(database)?;
        let newest = outbox::newest_id(&writer).map_err(database)?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer: Mutex::new(writer),
                readers,
                next_reader: AtomicUsize::new(0),
                bodies: BodyFolder::new(body_path, durability),
                clock,
                newest_event: watch::Sender::new(newest),
                synchronous: durability.synchronous(),
                _lock: lock,
                _temporary: temporary,
            }),
        })
    }

    pub(super) fn bodies(&self) -> &BodyFolder {
        &self.inner.bodies
    }

    pub(super) fn newest_event(&self) -> watch::Receiver<i64> {
        self.inner.newest_event.subscribe()
    }

    /// Reads within one transaction, so that several queries see the same state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            let turn = inner.next_reader.fetch_add(1, Ordering::Relaxed) % READERS;
            let connection = held(inner.readers.get(turn).unwrap_or(&inner.writer));
            let snapshot = connection.unchecked_transaction()?;
            query(&snapshot)
        })
        .await?
    }

    /// One `BEGIN IMMEDIATE` transaction. Runs to its end even if the caller stops waiting.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.write(change, inner.synchronous)).await?
    }

    /// The same, and it reaches the disk with the next change that waits for it. For what may be forgotten with the machine.
    pub(super) async fn write_lazily<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let inner = Arc::clone(&self.inner);
        let synchronous = if inner.synchronous == "FULL" { "NORMAL" } else { inner.synchronous };
        tokio::task::spawn_blocking(move || inner.write(change, synchronous)).await?
    }
}

impl Inner {
    fn write<T>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Failure>,
        synchronous: &str,
    ) -> Result<T, Failure> {
        let (result, dead) = {
            let mut writer = held(&self.writer);
            writer.pragma_update(None, "synchronous", synchronous)?;
            let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let now_ms = self.clock.now_ms();
            let mut under_way = Change { tx, now_ms, born: Vec::new(), dead: Vec::new(), event: None };
            let result = change(&mut under_way)?;
            let Change { tx, born, dead, event, .. } = under_way;
            // From here on the files may belong to rows, even if the commit reports trouble; the next start removes
            // those that do not.
            born.into_iter().for_each(StagedFile::keep);
            tx.commit()?;
            if let Some(id) = event {
                self.newest_event.send_replace(id);
            }
            (result, dead)
        };
        dead.iter().for_each(|name| self.bodies.remove(name));
        Ok(result)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("bodies", &self.inner.bodies).finish_non_exhaustive()
    }
}

/// A panic while holding a connection leaves no transaction behind (it is rolled back when dropped), so the connection
/// is as good as before.
fn held(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", durability.synchronous())?;
    connection.pragma_update(None, "cache_size", -16_000)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn remove_leftovers(connection: &Connection, database: &Path, folder: &Path) -> Result<(), OpenError> {
    let known: HashSet<String> = connection
        .prepare("SELECT file FROM blob WHERE file IS NOT NULL")
        .and_then(|mut files| files.query_map([], |row| row.get(0))?.collect())
        .map_err(|source| OpenError::Database { path: database.to_path_buf(), source })?;
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |source| OpenError::File { path, source }
    };
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        if !known.contains(&*entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(at(&entry.path()))?;
        }
    }
    Ok(())
}

struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the temporary folder stays behind");
        }
    }
}
