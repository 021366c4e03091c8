//! The embedded DynamoDB: the crate `dynoxide` on a thread and a runtime of its own, since its calls block.
//!
//! It speaks the DynamoDB JSON protocol, streams included. Signatures are not checked, so it listens on loopback only.
//! Items whose time to live has passed are removed about once a minute, by the machine's clock; readers filter on it
//! anyway, as they must against AWS.
//!
//! Durability: SQLite in WAL mode with `synchronous = FULL`, which is what the crate opens with. An acknowledged write
//! survives a crash of the process and of the machine. The crate's `enable_bulk_loading` would give that up, and its
//! `disable_bulk_loading` does not restore it (it sets `NORMAL`); neither is called.

mod direct;
mod readers;
mod stored;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use dynoxide::Database;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

pub use direct::{DirectItems, Tables};

use crate::exclusive::{ExclusiveLock, LockError};

/// How long requests under way may take to end after the shutdown signal.
pub const DRAIN_MS: u64 = 10_000;
const SWEEP_EVERY_MS: u64 = 60_000;
const WORKERS: usize = 2;

/// Where the tables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A SQLite file, created with its folder if need be.
    File(PathBuf),
    /// Gone when the server ends.
    Memory,
}

/// The server did not start; nothing was changed.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot write {}: {source}; correct its permissions or choose another data folder", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("cannot open the tables in {}: {message}", path.display())]
    Open { path: PathBuf, message: String },
    #[error("cannot serve DynamoDB: {0}")]
    Serve(#[from] io::Error),
}

/// The server ended other than by its shutdown signal.
#[derive(Debug, Error)]
pub enum EndError {
    #[error("the local DynamoDB ended: {0}")]
    Server(String),
    #[error("the thread of the local DynamoDB panicked")]
    Panicked,
}

/// A running server. Dropping this does not stop it; the shutdown signal does.
pub struct Running {
    address: SocketAddr,
    thread: JoinHandle<Result<(), EndError>>,
    ended: oneshot::Receiver<()>,
    tables: Tables,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Running {
    pub fn tables(&self) -> Tables {
        self.tables.clone()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the end and joins the thread. The file is closed and its lock released by then.
    pub async fn join(self) -> Result<(), EndError> {
        // An error means that the thread dropped its end, which is an end as well.
        let _ = self.ended.await;
        self.thread.join().map_err(|_| EndError::Panicked)?
    }
}

/// Opens the tables and serves them on `listener` until `shutdown` resolves; requests under way then have up to
/// [`DRAIN_MS`]. Blocks while opening; needs no runtime.
pub fn start(
    storage: Storage,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Running, StartError> {
    start_with_drain(storage, listener, shutdown, Duration::from_millis(DRAIN_MS))
}

fn start_with_drain(
    storage: Storage,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> Result<Running, StartError> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (database, lock) = open(&storage)?;
    let path = if let Storage::File(path) = &storage { Some(path.as_path()) } else { None };
    let tables = Tables::of(&database, path);
    let closing = tables.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("dynamodb-worker")
        .enable_all()
        .build()?;
    let (tell, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("dynamodb".to_owned()).spawn(move || {
        let result = run(&runtime, database, listener, shutdown, drain);
        closing.close();
        // Ends what the drain left over, and with it the last handle to the file.
        runtime.shutdown_timeout(Duration::from_secs(1));
        drop(lock);
        drop(tell);
        result
    })?;
    Ok(Running { address, thread, ended, tables })
}

fn open(storage: &Storage) -> Result<(Database, Option<ExclusiveLock>), StartError> {
    let failed = |path: &Path, error: dynoxide::DynoxideError| StartError::Open {
        path: path.to_path_buf(),
        message: error.to_string(),
    };
    let path = match storage {
        Storage::Memory => {
            return Ok((Database::memory().map_err(|error| failed(Path::new(":memory:"), error))?, None));
        }
        Storage::File(path) => path,
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let lock = ExclusiveLock::take(path.parent().unwrap_or(Path::new(".")), &format!("{name}.lock"))?;
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| StartError::NotWritable { path: path.clone(), source })?;
    let Some(text) = path.to_str() else {
        return Err(StartError::Open { path: path.clone(), message: "the path is not UTF-8".to_owned() });
    };
    let database = Database::new(text).map_err(|error| failed(path, error))?;
    Ok((database, Some(lock)))
}

fn run(
    runtime: &Runtime,
    database: Database,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> Result<(), EndError> {
    runtime.block_on(async move {
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|error| EndError::Server(error.to_string()))?;
        let (stop, stopping) = watch::channel(());
        let stopped = |mut stopping: watch::Receiver<()>| async move {
            let _ = stopping.changed().await;
        };
        let sweeps = tokio::spawn(sweep_regularly(database.clone(), stopping.clone()));
        let mut server = Box::pin(dynoxide::server::serve_with_shutdown(listener, database, stopped(stopping)));
        let served = tokio::select! {
            served = &mut server => served,
            () = shutdown => {
                stop.send_replace(());
                match tokio::time::timeout(drain, server).await {
                    Ok(served) => served,
                    Err(_) => {
                        tracing::warn!(?drain, "requests to the local DynamoDB were cut off");
                        Ok(())
                    }
                }
            }
        };
        sweeps.abort();
        served.map_err(EndError::Server)
    })
}

/// Removes expired items, a page at a time between requests.
async fn sweep_regularly(database: Database, mut stopping: watch::Receiver<()>) {
    loop {
        tokio::select! {
            _ = stopping.changed() => return,
            () = tokio::time::sleep(Duration::from_millis(SWEEP_EVERY_MS)) => {}
        }
        let database = database.clone();
        match tokio::task::spawn_blocking(move || database.sweep_ttl()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(removed)) => tracing::debug!(removed, "expired items removed from the local DynamoDB"),
            // Expired items are only untidy; the next sweep takes them.
            Ok(Err(error)) => tracing::warn!(%error, "expired items could not be removed"),
            Err(error) => tracing::warn!(%error, "expired items could not be removed"),
        }
    }
}
