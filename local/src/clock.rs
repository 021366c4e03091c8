//! The laptop's clock: the machine's, plus an offset that can only grow.
//!
//! It stands behind every port and behind the embedded S3's LastModified, so that days of retention pass in a second
//! with every guard on. The functions on Lambda have no such clock.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lakewarden_core::store::{Clock, SystemClock};
use thiserror::Error;

/// The clock was not moved.
#[derive(Debug, Error)]
pub enum ClockError {
    #[error("`{0}` is no length of time: write a number and a unit, like 90s, 30m, 12h or 4d (3660d at most)")]
    BadDuration(String),
    #[error("the clock would stand behind the year 9999, which S3 and the clients' times do not go beyond")]
    TooFar,
    #[error("the clock's offset could not be saved to {path}: {source}")]
    Save { path: PathBuf, source: std::io::Error },
    #[error("the clock's offset in {path} cannot be read: {message}; delete the file to start from the machine's time")]
    Load { path: PathBuf, message: String },
}

/// Machine time plus an offset kept in the data directory.
#[derive(Debug)]
pub struct LocalClock {
    offset_ms: AtomicI64,
    file: PathBuf,
    /// Moves come one after the other: none is lost.
    moving: Mutex<()>,
}

/// The first moment that is too far, in ms since 1970.
const END_MS: i64 = 253_402_300_800_000;

impl LocalClock {
    /// Reads the offset from `file`, 0 if there is none.
    pub fn open(file: PathBuf) -> Result<Self, ClockError> {
        let offset_ms = match std::fs::read_to_string(&file) {
            Ok(text) => text
                .trim()
                .parse()
                .map_err(|error| ClockError::Load { path: file.clone(), message: format!("{error}") })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(ClockError::Load { path: file, message: error.to_string() }),
        };
        Ok(Self { offset_ms: AtomicI64::new(offset_ms), file, moving: Mutex::new(()) })
    }

    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::SeqCst)
    }

    /// Moves the clock forward for good. Saved before it takes effect, so that a restart never goes back in time.
    pub fn advance(&self, by: Duration) -> Result<i64, ClockError> {
        let _one_at_a_time = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        if self.now_ms().saturating_add(by_ms) >= END_MS {
            return Err(ClockError::TooFar);
        }
        let offset_ms = self.offset_ms().saturating_add(by_ms);
        save(&self.file, offset_ms).map_err(|source| ClockError::Save { path: self.file.clone(), source })?;
        self.offset_ms.store(offset_ms, Ordering::SeqCst);
        Ok(offset_ms)
    }
}

/// On disk when it returns, and never half of it.
fn save(path: &Path, offset_ms: i64) -> std::io::Result<()> {
    let scratch = path.with_extension("new");
    let mut file = File::create(&scratch)?;
    writeln!(file, "{offset_ms}")?;
    file.sync_all()?;
    std::fs::rename(&scratch, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[async_trait]
impl Clock for LocalClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms().saturating_add(self.offset_ms())
    }

    async fn sleep_ms(&self, ms: u64) {
        SystemClock.sleep_ms(ms).await;
    }
}

/// Reads `90s`, `30m`, `12h`, `4d`; at most 3,660 days.
pub fn parse_duration(text: &str) -> Result<Duration, ClockError> {
    let bad = || ClockError::BadDuration(text.to_owned());
    let trimmed = text.trim();
    let unit_seconds = match trimmed.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => return Err(bad()),
    };
    let number: u64 = trimmed.get(..trimmed.len() - 1).ok_or_else(bad)?.trim().parse().map_err(|_| bad())?;
    let seconds = number.checked_mul(unit_seconds).filter(|seconds| *seconds <= 3_660 * 86_400).ok_or_else(bad)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_survives_a_restart() {
        let folder = std::env::temp_dir().join(format!("lakewarden-clock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("clock");
        let clock = LocalClock::open(file.clone()).unwrap();
        clock.advance(parse_duration("4d").unwrap()).unwrap();
        assert_eq!(LocalClock::open(file.clone()).unwrap().offset_ms(), 4 * 86_400_000);
        std::fs::write(&file, "soon").unwrap();
        assert!(matches!(LocalClock::open(file), Err(ClockError::Load { .. })));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_move_is_lost_and_the_year_9999_is_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clock");
        let clock = LocalClock::open(file.clone()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| clock.advance(Duration::from_secs(60)).unwrap());
            }
        });
        assert_eq!(clock.offset_ms(), 16 * 60_000);
        let far = Duration::from_secs(8_000 * 366 * 86_400);
        assert!(matches!(clock.advance(far), Err(ClockError::TooFar)));
        assert_eq!(LocalClock::open(file).unwrap().offset_ms(), 16 * 60_000);
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1_800), ("12h", 43_200), (" 4d ", 345_600), ("0s", 0)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for text in ["", "d", "4", "-1d", "1.5h", "4 weeks", "99999999999d", "4ä"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
