use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

/// Wall clock. Nothing else in the product asks for the time (`clippy.toml` bans it), so that tests and the laptop can
/// move it.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;

    /// Waits in real time, whatever the clock says.
    async fn sleep_ms(&self, ms: u64);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the port")]
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    async fn sleep_ms(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
