//! The command line.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use lakewarden_core::ports::PartitionMoves;

/// Where a laptop's Lakewarden answers.
const GATEWAY: &str = "http://127.0.0.1:8700";
const S3_PORT: u16 = 8701;
const GUARDED_S3_PORT: u16 = 8704;

/// The version, and what there is to say about the whole.
#[derive(Debug, Parser)]
#[command(
    name = "lakewarden",
    version,
    args_conflicts_with_subcommands = true,
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
        lakewarden dead-letters           events that could not be handled\n  \
        lakewarden import --region eu-west-1 --dry-run   what copying AWS Glue's catalog would create\n  \
        lakewarden discover shop orders   register the partitions that lie on S3\n  \
        lakewarden rebuild shop orders    make a Delta table's partitions anew from its log\n  \
        lakewarden sweep shop orders      which files of a table nothing needs, and why the others stay\n  \
        lakewarden explain shop orders orders/data/x.parquet   the same for one object\n  \
        lakewarden gateway --service https://…   an S3 for unmodified writers, whose commits it has judged\n\n\
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
    /// Folder that keeps everything; created if missing. [default: what LAKEWARDEN_DATA_DIR names, or .lakewarden]
    #[arg(long, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Keep nothing: data lies in a temporary folder that is removed at the end.
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    /// Port of the HTTP gateway: Glue on POST /, REST on /v1. 0 takes any free port.
    #[arg(long, value_name = "PORT", default_value_t = 8700)]
    pub gateway_port: u16,
    /// Port of the embedded S3.
    #[arg(long, value_name = "PORT", default_value_t = S3_PORT)]
    pub s3_port: u16,
    /// Port of the same S3 behind the gateway for unmodified writers, which has their commits judged before they are
    /// visible. 0 takes any free port. [default: 8704; any, if --s3-port is not the default either]
    #[arg(long, value_name = "PORT")]
    pub guarded_s3_port: Option<u16>,
    /// Port of the embedded DynamoDB.
    #[arg(long, value_name = "PORT", default_value_t = 8702)]
    pub dynamodb_port: u16,
    /// Port of the embedded queues (SQS protocol).
    #[arg(long, value_name = "PORT", default_value_t = 8703)]
    pub sqs_port: u16,
    /// Account id: the default CatalogId.
    #[arg(long, value_name = "12 DIGITS", default_value = "000000000000", value_parser = account_id)]
    pub account_id: String,
    /// How long changed and deleted partitions are remembered, in hours; 0 keeps no history.
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    pub history_retention_hours: u32,
    /// How long verdicts on commits can be read, and staged commits are kept, in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 720, value_parser = clap::value_parser!(u32).range(24..))]
    pub verdict_retention_hours: u32,
    /// How long the files of a dropped table stay whatever is asked for, in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 168, value_parser = clap::value_parser!(u32).range(24..))]
    pub dropped_grace_hours: u32,
    /// How long what sweeps delete can come back in buckets that keep no versions, in hours; 0 deletes for good.
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    pub undo_hours: u32,
    /// What UpdatePartition with other Values does: move the partition, or refuse.
    #[arg(long, value_enum, default_value_t)]
    pub partition_moves: Moves,
    /// Filters on typed keys fail on `__HIVE_DEFAULT_PARTITION__` instead of reading it as NULL.
    #[arg(long)]
    pub strict_default_partition: bool,
    /// Partitions of one table, about.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_partitions_per_table: u64,
    /// Where the functions find S3, if something stands before the embedded one. For measuring.
    #[arg(long, value_name = "URL", hide = true)]
    pub functions_s3_url: Option<String>,
    /// The same for DynamoDB.
    #[arg(long, value_name = "URL", hide = true)]
    pub functions_dynamodb_url: Option<String>,
    /// Also write the endpoints and the key pair to this file, as JSON, once everything answers.
    #[arg(long, value_name = "FILE")]
    pub endpoints_file: Option<PathBuf>,
}

/// See `PartitionMoves`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Moves {
    #[default]
    Allow,
    Refuse,
}

impl From<Moves> for PartitionMoves {
    fn from(moves: Moves) -> Self {
        match moves {
            Moves::Allow => Self::Allow,
            Moves::Refuse => Self::Refuse,
        }
    }
}

impl ServeArgs {
    /// See the option.
    pub fn guarded_s3_port(&self) -> u16 {
        self.guarded_s3_port.unwrap_or(if self.s3_port == S3_PORT { GUARDED_S3_PORT } else { 0 })
    }

    /// The folder for the data. An option of its own and not clap's environment, which would make `--ephemeral` conflict
    /// with a variable that is set for good.
    pub fn data_folder(&self) -> PathBuf {
        let named = || std::env::var_os("LAKEWARDEN_DATA_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        self.data_dir.clone().or_else(named).unwrap_or_else(|| PathBuf::from(".lakewarden"))
    }
}

fn account_id(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(text.to_owned())
    } else {
        Err("an account id has twelve digits".to_owned())
    }
}

/// A variable that is set to nothing says nothing.
fn gateway_or_default(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(if text.trim().is_empty() { GATEWAY } else { text }.to_owned())
}

/// Where a running Lakewarden answers.
#[derive(Clone, Debug, Args)]
pub struct GatewayArgs {
    /// Address of the running Lakewarden's gateway.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = GATEWAY,
        env = "LAKEWARDEN_GATEWAY",
        value_parser = gateway_or_default
    )]
    pub gateway: String,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything (the same as giving no command).
    Serve(ServeArgs),
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
    /// Copy databases, tables and partitions from a Glue-compatible catalog into a Lakewarden. What is there already stays
    /// as it is, so it can be repeated; stopped, it goes on where it stood.
    Import(ImportArgs),
    /// Register the partitions whose folders (day=2026-11-01/hour=7/) lie under a table on S3, and report folders that are
    /// none of partitions and partitions without folders.
    Discover(DiscoverArgs),
    /// Make the partitions of a Delta table anew from its log: after damage, or where the table came to the catalog late.
    /// The worker does it, and goes on with it if this command is stopped.
    Rebuild(RebuildArgs),
    /// Look for files of a table that nothing needs, and with --delete remove them: start a run, or follow, list and end
    /// runs.
    Sweep(SweepArgs),
    /// What a sweep would decide on one object now, and why.
    Explain(ExplainArgs),
    /// Serve S3 beside writers that know nothing of Lakewarden: their commits to Delta logs are judged before they are
    /// visible, everything else passes through. For a deployed stack, or a laptop.
    Gateway(S3GatewayArgs),
    /// List the events and messages that were given up after several tries.
    DeadLetters {
        #[command(flatten)]
        at: GatewayArgs,
        /// Put them back into their queues.
        #[arg(long)]
        redrive: bool,
    },
}

/// What to copy, from where.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    /// Endpoint of the catalog to copy from. [default: AWS Glue in the region]
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    /// Region of the catalog to copy from. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
    /// Profile whose credentials are used. [default: AWS_PROFILE; credentials come from the environment, profiles, or the
    /// machine's or container's role]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Id of the catalog to copy from, if it is not the account's own.
    #[arg(long, value_name = "ID")]
    pub catalog_id: Option<String>,
    /// Copy this database; can be given several times. [default: all]
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// Copy this table of the database; can be given several times. [default: all]
    #[arg(long, value_name = "NAME", requires = "database")]
    pub table: Vec<String>,
    /// Change nothing; say what would be created.
    #[arg(long)]
    pub dry_run: bool,
    /// Look at everything again, also at what an earlier run that was stopped had done.
    #[arg(long)]
    pub restart: bool,
    /// File that remembers where a run stands. [default: one for each source and target, under .lakewarden/imports/]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// Which table's partitions to look for.
#[derive(Clone, Debug, Args)]
pub struct DiscoverArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    pub database: String,
    pub table: String,
    /// Change nothing; say what would be registered.
    #[arg(long)]
    pub dry_run: bool,
    /// Endpoint of the S3 that has the table. [default: the laptop's if one answers at the gateway's address, else AWS]
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

/// Between which writers and which Lakewarden.
#[derive(Clone, Debug, Args)]
pub struct S3GatewayArgs {
    /// Port to listen on, at loopback. 0 takes any free port.
    #[arg(long, value_name = "PORT", default_value_t = 8705)]
    pub port: u16,
    /// Address of Lakewarden's API: the stack's output ApiUrl, or the gateway of a laptop. Calls to it are signed unless it is
    /// on loopback.
    #[arg(long, value_name = "URL", default_value = GATEWAY, env = "LAKEWARDEN_GATEWAY", value_parser = gateway_or_default)]
    pub service: String,
    /// Endpoint of S3. [default: the laptop's if --service is one, else AWS in the region]
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// Region of S3 and of the API. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
    /// Profile whose credentials sign what is passed on. [default: AWS_PROFILE; credentials come from the environment,
    /// profiles, or the machine's or container's role]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Guard the tables in this folder, s3://bucket/prefix; can be given several times. [default: all]
    #[arg(long, value_name = "PLACE")]
    pub guard: Vec<String>,
    /// Do not guard the tables in this folder; can be given several times.
    #[arg(long, value_name = "PLACE")]
    pub pass: Vec<String>,
    /// Take requests whatever they are signed with: whoever reaches the port writes with the gateway's credentials.
    #[arg(long, conflicts_with_all = ["access_key", "secret_key"])]
    pub any_signature: bool,
    /// Access key that clients sign with. [default: one that is made up and printed]
    #[arg(long, value_name = "KEY", env = "LAKEWARDEN_S3_ACCESS_KEY", requires = "secret_key", value_parser = NonEmptyStringValueParser::new())]
    pub access_key: Option<String>,
    /// Secret key that clients sign with.
    #[arg(
        long,
        value_name = "KEY",
        env = "LAKEWARDEN_S3_SECRET_KEY",
        hide_env_values = true,
        requires = "access_key",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub secret_key: Option<String>,
    /// Also write the address and the key pair to this file, as JSON, once it answers.
    #[arg(long, value_name = "FILE")]
    pub endpoints_file: Option<PathBuf>,
}

/// Which table's partitions to make anew.
#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    pub database: String,
    pub table: String,
    /// Also remove partitions that somebody made by hand and that the log does not have.
    #[arg(long)]
    pub exact: bool,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

/// Which run.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    #[command(subcommand)]
    pub of: Option<SweepOf>,
    #[command(flatten)]
    pub at: GatewayArgs,
    #[arg(required = true)]
    pub database: Option<String>,
    #[arg(required = true)]
    pub table: Option<String>,
    /// Delete what is found, under every guard. [default: a dry run, which deletes nothing]
    #[arg(long)]
    pub delete: bool,
    /// How often an orphan must have been seen, by this run and earlier ones: 1 or 2. [default: the optimizer's]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub sightings: Option<u8>,
    /// Start the run and do not wait for its end.
    #[arg(long)]
    pub detach: bool,
    /// Follow this run instead of starting one.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["delete", "sightings", "detach"])]
    pub run: Option<String>,
    /// End this run.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["delete", "sightings", "detach", "run"])]
    pub cancel: Option<String>,
    /// List the table's runs, newest first.
    #[arg(long, conflicts_with_all = ["delete", "sightings", "detach", "run", "cancel"])]
    pub list: bool,
    /// Print the run (or runs) as JSON and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SweepOf {
    /// Files of tables that were dropped: list the tables, or remove what one of them left.
    Dropped(DroppedArgs),
    /// Bring back what sweeps of a table took away. What has a key by now is left alone.
    Restore(RestoreArgs),
}

/// What comes back: what all of these say.
#[derive(Clone, Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["run", "prefix", "key"])))]
pub struct RestoreArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    pub database: String,
    pub table: String,
    /// What this run took away.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Files whose keys (or S3 addresses) begin so.
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// One file, by its key or S3 address.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Start it and do not wait for its end.
    #[arg(long)]
    pub detach: bool,
    /// Print the run as JSON and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

/// Which dropped table.
#[derive(Clone, Debug, Args)]
pub struct DroppedArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    /// Its id. [default: list all of them]
    pub table_id: Option<String>,
    /// Delete what an earlier dry run, this one, has shown. [default: a dry run, which deletes nothing]
    #[arg(long, value_name = "RUN", requires_all = ["table_id", "asked_by", "why"])]
    pub delete_after: Option<String>,
    /// Who wants them gone; kept in the run's record.
    #[arg(long, value_name = "NAME", requires = "delete_after")]
    pub asked_by: Option<String>,
    /// Why; kept in the run's record.
    #[arg(long, value_name = "WORDS", requires = "delete_after")]
    pub why: Option<String>,
    /// List it no longer, and leave its files alone.
    #[arg(long, requires = "table_id", conflicts_with = "delete_after")]
    pub forget: bool,
    /// Print the answer as JSON and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

/// Which object.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub at: GatewayArgs,
    pub database: String,
    pub table: String,
    /// Its key, or its S3 address.
    pub key: String,
    /// Print the answer as JSON and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Region. [default: AWS_REGION, or the profile's]
    #[arg(long)]
    pub region: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ClockAction {
    /// Let time pass. It cannot be turned back.
    Advance {
        /// A number and a unit, like 90s, 30m, 12h or 4d; 3660d at most.
        by: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn options_of_the_start_go_with_serve_or_without_a_command_and_nowhere_else() {
        let started = |line: &str| match parse(line).unwrap() {
            Cli { command: Some(Command::Serve(args)), .. } | Cli { command: None, serve: args } => args,
            other => panic!("{other:?}"),
        };
        for line in ["lakewarden", "lakewarden serve"] {
            assert!(started(&format!("{line} --ephemeral")).ephemeral, "{line}");
            assert_eq!(
                started(&format!("{line} --data-dir x --s3-port 0")).data_folder(),
                PathBuf::from("x"),
                "{line}"
            );
            assert!(parse(&format!("{line} --ephemeral --data-dir x")).is_err(), "{line}");
        }
        for line in ["lakewarden --ephemeral demo", "lakewarden --data-dir x clock", "lakewarden --s3-port 1 serve"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_sweep_deletes_only_when_it_is_said() {
        let Some(Command::Sweep(args)) = parse("lakewarden sweep shop orders").unwrap().command else { panic!() };
        assert!(!args.delete && args.sightings.is_none());
        assert!(parse("lakewarden sweep shop orders --delete --sightings 1 --json").is_ok());
        for line in
            ["shop", "shop orders --sightings 3", "shop orders --run r --delete", "shop orders --cancel r --list"]
        {
            assert!(parse(&format!("lakewarden sweep {line}")).is_err(), "{line}");
        }
        assert!(parse("lakewarden explain shop orders").is_err());
    }

    #[test]
    fn dropped_tables_are_swept_by_their_ids() {
        let dropped = |line: &str| match parse(&format!("lakewarden sweep dropped{line}")) {
            Ok(Cli { command: Some(Command::Sweep(SweepArgs { of: Some(SweepOf::Dropped(args)), .. })), .. }) => {
                Some(args)
            }
            _ => None,
        };
        assert!(dropped("").is_some_and(|args| args.table_id.is_none()));
        assert!(dropped(" t1 --json").is_some_and(|args| args.delete_after.is_none() && args.json));
        assert!(dropped(" t1 --delete-after r --asked-by me --why over").is_some());
        for line in
            [" t1 --delete-after r", " --delete-after r --asked-by me --why over", " --forget", " t1 --asked-by me"]
        {
            assert!(dropped(line).is_none(), "{line}");
        }
        assert!(parse("lakewarden sweep").is_err());
    }

    #[test]
    fn a_restore_says_what_comes_back() {
        let line = "lakewarden sweep restore shop orders --run r --prefix data/ --json";
        let Some(Command::Sweep(SweepArgs { of: Some(SweepOf::Restore(args)), .. })) = parse(line).unwrap().command
        else {
            panic!()
        };
        assert_eq!((args.run.as_deref(), args.prefix.as_deref(), args.key), (Some("r"), Some("data/"), None));
        for line in ["restore shop orders", "restore shop --run r"] {
            assert!(parse(&format!("lakewarden sweep {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn a_table_is_of_a_database() {
        assert!(parse("lakewarden import --database a --table b --table c").is_ok());
        assert!(parse("lakewarden import --table b").is_err());
        assert!(parse("lakewarden discover a").is_err());
    }

    #[test]
    fn the_gateway_may_be_named_before_and_behind_an_action() {
        for line in ["clock --gateway http://[::1]:1 advance 4d", "clock advance 4d --gateway http://[::1]:1"] {
            let Some(Command::Clock { at, .. }) = parse(&format!("lakewarden {line}")).unwrap().command else {
                panic!("{line}")
            };
            assert_eq!(at.gateway, "http://[::1]:1");
        }
    }

    #[test]
    fn an_address_that_is_set_to_nothing_is_the_default() {
        let service =
            |given: &str| match Cli::try_parse_from(["lakewarden", "gateway", "--service", given]).unwrap().command {
                Some(Command::Gateway(args)) => args.service,
                other => panic!("{other:?}"),
            };
        assert_eq!((service("").as_str(), service(" ").as_str()), (GATEWAY, GATEWAY));
        assert_eq!(service("http://localhost:1"), "http://localhost:1");
        for (access_key, secret_key, is_good) in [("a", "b", true), ("", "b", false), ("a", "", false), ("", "", false)]
        {
            let given = ["lakewarden", "gateway", "--access-key", access_key, "--secret-key", secret_key];
            assert_eq!(Cli::try_parse_from(given).is_ok(), is_good, "{access_key:?} {secret_key:?}");
        }
    }
}
