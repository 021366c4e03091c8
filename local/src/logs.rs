//! Logs of the laptop: readable, on standard error, quiet unless asked.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// RUST_LOG decides; without it warnings only, and none of the embedded servers' chatter.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
