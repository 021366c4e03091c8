use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lakewarden_core::store::{Clock, Ids, RandomIds};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::watch;

use super::queues::bury_exhausted;
use super::{OpenError, QueueFailure, schema};
use crate::exclusive::ExclusiveLock;

const DATABASE_FILE: &str = "queues.sqlite";
const LOCK_FILE: &str = "queues.lock";
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How a queue treats its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How long a received message stays hidden, unless the receiver says otherwise.
    pub visibility_timeout_ms: u64,
    /// A message received this often without being deleted becomes a dead letter; `None` never.
    pub max_receives: Option<u32>,
    /// How long a new message stays hidden, unless the sender says otherwise.
    pub delay_ms: u64,
}

impl Default for QueueSettings {
    /// As SQS, with dead letters after five receives.
    fn default() -> Self {
        Self { visibility_timeout_ms: 30_000, max_receives: Some(5), delay_ms: 0 }
    }
}

/// How far a transaction has got when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaches {
    Disk,
    System,
}

impl Reaches {
    /// SQLite's setting. In WAL mode what `NORMAL` left behind is written to disk with the next `FULL` commit.
    fn synchronous(self) -> &'static str {
        match self {
            Reaches::Disk => "FULL",
            Reaches::System => "NORMAL",
        }
    }
}

/// How many messages a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub visible: u64,
    /// Received, hidden for now.
    pub in_flight: u64,
    /// Never received, hidden for now.
    pub delayed: u64,
    pub dead: u64,
}

/// Every queue of a data folder. Cheap to clone; the folder is released with the last clone.
#[derive(Clone)]
pub struct LocalQueues {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
    changes: watch::Sender<u64>,
    _lock: Option<ExclusiveLock>,
}

impl LocalQueues {
    /// Opens or creates `queues.sqlite` in a folder. Blocks; call it before serving.
    ///
    /// Queues named here are created, or take on new settings; others keep what they have. `clock` decides what is
    /// visible; give it the machine's time, not one that is moved about.
    pub fn open(folder: &Path, clock: Arc<dyn Clock>, queues: &[(&str, QueueSettings)]) -> Result<Self, OpenError> {
        let lock = ExclusiveLock::take(folder, LOCK_FILE)?;
        let path = folder.join(DATABASE_FILE);
        let opened = Connection::open(&path).and_then(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        });
        Self::prepare(opened, &path, clock, queues, Some(lock))
    }

    /// Queues that are gone with the last clone.
    pub fn memory(clock: Arc<dyn Clock>, queues: &[(&str, QueueSettings)]) -> Result<Self, OpenError> {
        Self::prepare(Connection::open_in_memory(), Path::new(":memory:"), clock, queues, None)
    }

    fn prepare(
        opened: rusqlite::Result<Connection>,
        path: &Path,
        clock: Arc<dyn Clock>,
        queues: &[(&str, QueueSettings)],
        lock: Option<ExclusiveLock>,
    ) -> Result<Self, OpenError> {
        let database = |source| OpenError::Database { path: path.to_path_buf(), source };
        let mut connection = opened.map_err(database)?;
        connection.set_prepared_statement_cache_capacity(32);
        schema::prepare(&mut connection, path)?;
        let now_ms = clock.now_ms();
        let tx = connection.transaction().map_err(database)?;
        for (name, settings) in queues {
            save_queue(&tx, name, settings, now_ms).map_err(database)?;
        }
        tx.commit().map_err(database)?;
        let inner = Inner { connection: Mutex::new(connection), clock, changes: watch::Sender::new(0), _lock: lock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Tells of every change that may have made a message visible.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// One `BEGIN IMMEDIATE` transaction, given the current time. It is on disk when this returns.
    pub(super) async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, QueueFailure> + Send + 'static,
    ) -> Result<T, QueueFailure> {
        self.commit(Reaches::Disk, work).await
    }

    /// The same, and it reaches the disk with the next transaction that waits for it: an end of the process loses nothing,
    /// one of the machine perhaps this. For what is only done again then, as a delivery is.
    pub(super) async fn transact_lazily<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, QueueFailure> + Send + 'static,
    ) -> Result<T, QueueFailure> {
        self.commit(Reaches::System, work).await
    }

    async fn commit<T: Send + 'static>(
        &self,
        reaches: Reaches,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, QueueFailure> + Send + 'static,
    ) -> Result<T, QueueFailure> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            // A panic while holding the connection leaves no transaction behind.
            let mut connection = inner.connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.pragma_update(None, "synchronous", reaches.synchronous())?;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&tx, inner.clock.now_ms())?;
            tx.commit()?;
            Ok(result)
        })
        .await?
    }

    pub(super) fn tell_change(&self) {
        self.inner.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Names in order.
    pub async fn queue_names(&self) -> Result<Vec<String>, QueueFailure> {
        self.transact(|tx, _| {
            let mut query = tx.prepare_cached("SELECT name FROM queue ORDER BY name")?;
            Ok(query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .await
    }

    pub async fn settings(&self, queue: &str) -> Result<QueueSettings, QueueFailure> {
        let queue = queue.to_owned();
        self.transact(move |tx, _| Ok(need_queue(tx, &queue)?.settings)).await
    }

    pub async fn counts(&self, queue: &str) -> Result<QueueCounts, QueueFailure> {
        let queue = queue.to_owned();
        self.transact(move |tx, now_ms| {
            bury_exhausted(tx, &queue, need_queue(tx, &queue)?.settings.max_receives, now_ms)?;
            let mut query = tx.prepare_cached(
                "SELECT coalesce(sum(dead_ms IS NULL AND visible_ms <= ?2), 0),
                        coalesce(sum(dead_ms IS NULL AND visible_ms > ?2 AND receipt IS NOT NULL), 0),
                        coalesce(sum(dead_ms IS NULL AND visible_ms > ?2 AND receipt IS NULL), 0),
                        coalesce(sum(dead_ms IS NOT NULL), 0)
                 FROM message WHERE queue = ?1",
            )?;
            Ok(query.query_row(params![queue, now_ms], |row| {
                let count = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
                Ok(QueueCounts { visible: count(0)?, in_flight: count(1)?, delayed: count(2)?, dead: count(3)? })
            })?)
        })
        .await
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalQueues")
    }
}

/// A queue as stored.
#[derive(Clone, Debug)]
pub(super) struct QueueRow {
    pub settings: QueueSettings,
    pub created_ms: i64,
}

fn save_queue(connection: &Connection, name: &str, settings: &QueueSettings, now_ms: i64) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT INTO queue(name, visibility_timeout_ms, max_receives, delay_ms, created_ms) VALUES(?, ?, ?, ?, ?)
             ON CONFLICT(name) DO UPDATE SET visibility_timeout_ms = excluded.visibility_timeout_ms,
               max_receives = excluded.max_receives, delay_ms = excluded.delay_ms",
            params![
                name,
                stored_ms(settings.visibility_timeout_ms),
                settings.max_receives,
                stored_ms(settings.delay_ms),
                now_ms
            ],
        )
        .map(|_| ())
}

pub(super) fn need_queue(connection: &Connection, name: &str) -> Result<QueueRow, QueueFailure> {
    let mut query = connection
        .prepare_cached("SELECT visibility_timeout_ms, max_receives, delay_ms, created_ms FROM queue WHERE name = ?")?;
    let found = query
        .query_row([name], |row| {
            let ms = |column| row.get::<_, i64>(column).map(|ms| u64::try_from(ms).unwrap_or(0));
            Ok(QueueRow {
                settings: QueueSettings { visibility_timeout_ms: ms(0)?, max_receives: row.get(1)?, delay_ms: ms(2)? },
                created_ms: row.get(3)?,
            })
        })
        .optional()?;
    found.ok_or_else(|| QueueFailure::NoSuchQueue(name.to_owned()))
}

pub(super) fn stored_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

pub(super) fn new_id() -> String {
    RandomIds.uuid().to_string()
}
