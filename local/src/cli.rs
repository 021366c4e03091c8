//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The version, and what there is to say about the whole.
#[derive(Debug, Parser)]
#[command(
    name = "lakewarden",
    version,
    about = "Lakewarden on a laptop: a keeper for data-lake tables, with everything it needs in one process.",
    long_about = "Lakewarden on a laptop: a keeper for data-lake tables, with everything it needs in one process.\n\n\
        Without a command it starts an S3 and a DynamoDB that speak the real protocols, the queues, the HTTP gateway \
        (Glue's Partition API on POST /, REST on /v1), the delivery of S3 events to the commit validator, and the \
        scheduler of the sweeps. It listens on loopback only, keeps its data under .lakewarden/, and prints the \
        endpoints and a first AWS CLI call. Ctrl-C ends it; the next start goes on where it stopped.",
    after_help = "EXAMPLES:\n  \
        lakewarden                        start everything, data under .lakewarden/\n  \
        lakewarden --ephemeral            the same with data that is gone afterwards\n  \
        lakewarden demo                   real data through all three paths, in its own process\n  \
        lakewarden clock advance 4d       let four days pass in a running Lakewarden\n  \
        lakewarden dead-letters           events that could not be handled\n\n\
        RUST_LOG sets what is logged (for example RUST_LOG=debug)."
)]
pub struct Cli {
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How to start.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Folder that keeps everything; created if missing.
    #[arg(long, value_name = "FOLDER", default_value = ".lakewarden", env = "LAKEWARDEN_DATA_DIR")]
    pub data_dir: PathBuf,
    /// Keep nothing: data lies in a temporary folder that is removed at the end.
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    /// Port of the HTTP gateway: Glue on POST /, REST on /v1. 0 takes any free port.
    #[arg(long, value_name = "PORT", default_value_t = 8700)]
    pub gateway_port: u16,
    /// Port of the embedded S3.
    #[arg(long, value_name = "PORT", default_value_t = 8701)]
    pub s3_port: u16,
    /// Port of the embedded DynamoDB.
    #[arg(long, value_name = "PORT", default_value_t = 8702)]
    pub dynamodb_port: u16,
    /// Port of the embedded queues (SQS protocol).
    #[arg(long, value_name = "PORT", default_value_t = 8703)]
    pub sqs_port: u16,
    /// Account id: the default CatalogId.
    #[arg(long, value_name = "12 DIGITS", default_value = "000000000000", value_parser = account_id)]
    pub account_id: String,
    /// Also write the endpoints and the key pair to this file, as JSON, once everything answers.
    #[arg(long, value_name = "FILE")]
    pub endpoints_file: Option<PathBuf>,
}

fn account_id(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(text.to_owned())
    } else {
        Err("an account id has twelve digits".to_owned())
    }
}

/// Where a running Lakewarden answers.
#[derive(Clone, Debug, Args)]
pub struct GatewayArgs {
    /// Address of the running Lakewarden's gateway.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8700", env = "LAKEWARDEN_GATEWAY")]
    pub gateway: String,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything (the same as giving no command).
    Serve,
    /// Take a small real data set through all three paths, in a process and folder of its own, and say what happened.
    Demo,
    /// Print the settings that let other programs use a running Lakewarden: eval "$(lakewarden env)".
    Env {
        #[command(flatten)]
        at: GatewayArgs,
    },
    /// Show or move the clock of a running Lakewarden. It stands behind retention, schedules and LastModified.
    Clock {
        #[command(flatten)]
        at: GatewayArgs,
        #[command(subcommand)]
        action: Option<ClockAction>,
    },
    /// List the events and messages that were given up after several tries.
    DeadLetters {
        #[command(flatten)]
        at: GatewayArgs,
        /// Put them back into their queues.
        #[arg(long)]
        redrive: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Let time pass: 90s, 30m, 12h or 4d. It cannot be turned back.
    Advance { by: String },
}
