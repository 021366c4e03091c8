use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::RUNS_IN_LAMBDA;

/// Libraries whose finer messages hold requests, signatures or credentials.
const RESERVED: &[&str] = &["aws_", "h2", "hyper", "hyper_util", "rustls", "s3s", "lambda_runtime", "dynoxide"];

/// Starts logging to standard error: JSON lines in Lambda, readable text elsewhere.
///
/// `RUST_LOG` sets what is shown (default `info`). Libraries that handle requests and credentials never log below
/// `info`, whatever `RUST_LOG` says, so that no secret gets into a log. A second call changes nothing.
pub fn init_logs() {
    let wanted = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let harmless = filter_fn(|about| {
        let reserved = RESERVED.iter().any(|prefix| about.target().starts_with(prefix));
        !reserved || *about.level() <= tracing::Level::INFO
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = if std::env::var_os(RUNS_IN_LAMBDA).is_some() {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    let started = tracing_subscriber::registry().with(layer.with_filter(wanted.and(harmless))).try_init();
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
