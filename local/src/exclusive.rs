//! One process per data folder.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A data folder could not be taken.
#[derive(Debug, Error)]
pub enum LockError {
    #[error("cannot create or write {}: {source}; choose another data folder or correct its permissions", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{} is in use by another process; stop it or choose another data folder", path.display())]
    InUse { path: PathBuf },
}

/// Holds a lock file. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct ExclusiveLock {
    _file: File,
}

impl ExclusiveLock {
    /// Creates the folder if need be and takes the lock file `name` in it.
    pub fn take(folder: &Path, name: &str) -> Result<Self, LockError> {
        fs::create_dir_all(folder).map_err(|source| LockError::NotWritable { path: folder.to_path_buf(), source })?;
        let path = folder.join(name);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| LockError::NotWritable { path: path.clone(), source })?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse { path }),
            Err(TryLockError::Error(source)) => Err(LockError::NotWritable { path, source }),
        }
    }
}
