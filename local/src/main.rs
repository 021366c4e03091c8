//! The `lakewarden` command.

use std::process::ExitCode;

use clap::Parser;
use http::Method;
use lakewarden_local::cli::{Cli, ClockAction, Command, GatewayArgs, S3GatewayArgs, ServeArgs};
use lakewarden_local::client::{ClientError, GatewayClient};
use lakewarden_local::system::{ACCESS_KEY, BUCKETS, REGION, SECRET_KEY, System};
use lakewarden_local::{demo, discover, guard, import, logs, rebuild, sweep};
use serde_json::{Value, json};

/// Items of the embedded stores are many small pieces of memory; the system's allocator spends a third of a listing on them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logs::init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("no threads could be started: {error}")),
    };
    let outcome = runtime.block_on(run(cli));
    // Work that was cut off must not hold the end of the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("lakewarden: {message}");
    ExitCode::FAILURE
}

async fn run(cli: Cli) -> Result<(), String> {
    match cli.command {
        None => serve(&cli.serve).await,
        Some(Command::Serve(args)) => serve(&args).await,
        Some(Command::Demo) => demo::run().await.map_err(|error| error.to_string()),
        Some(Command::Env { at }) => env(&at).await.map_err(|error| error.to_string()),
        Some(Command::Clock { at, action }) => clock(&at, action).await.map_err(|error| error.to_string()),
        Some(Command::Import(args)) => import::run(&args).await.map_err(|error| error.to_string()),
        Some(Command::Discover(args)) => discover::run(&args).await.map_err(|error| error.to_string()),
        Some(Command::Rebuild(args)) => rebuild::run(&args).await.map_err(|error| error.to_string()),
        Some(Command::Sweep(args)) => sweep::run(&args).await.map_err(|error| error.to_string()),
        Some(Command::Explain(args)) => sweep::explain(&args).await.map_err(|error| error.to_string()),
        Some(Command::Gateway(args)) => guard(&args).await,
        Some(Command::DeadLetters { at, redrive }) => {
            dead_letters(&at, redrive).await.map_err(|error| error.to_string())
        }
    }
}

async fn serve(args: &ServeArgs) -> Result<(), String> {
    let system = System::start(args).await.map_err(|error| error.to_string())?;
    greet(&system, args);
    end_signal().await.map_err(|error| format!("signals cannot be received: {error}"))?;
    println!("\nEnding; a second Ctrl-C ends at once.");
    tokio::select! {
        () = system.stop() => Ok(()),
        _ = end_signal() => Err("ended at once; what was under way goes on at the next start".to_owned()),
    }
}

async fn guard(args: &S3GatewayArgs) -> Result<(), String> {
    let gateway = guard::start(args).await.map_err(|error| error.to_string())?;
    println!("{gateway}");
    end_signal().await.map_err(|error| format!("signals cannot be received: {error}"))?;
    gateway.stop().await;
    Ok(())
}

/// Ctrl-C, or the termination that service managers send.
async fn end_signal() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed,
        _ = terminate.recv() => Ok(()),
    }
}

fn greet(system: &System, args: &ServeArgs) {
    let endpoints = &system.shared.endpoints;
    let data = if args.ephemeral {
        "data is gone when it ends".to_owned()
    } else {
        format!("data in {}/", system.data_dir.display())
    };
    println!("Lakewarden {}, {data}\n", env!("CARGO_PKG_VERSION"));
    println!("  gateway    {}   Glue's API on POST /, REST on /v1", endpoints.gateway);
    println!("  S3         {}   buckets: {}", endpoints.s3, BUCKETS.join(", "));
    println!("  guarded S3 {}   the same, for unmodified writers: commits are judged first", endpoints.guarded_s3);
    println!("  DynamoDB   {}", endpoints.dynamodb);
    println!("  SQS        {}", endpoints.sqs);
    println!("\nAccount {}, region {REGION}. A first call, for another terminal:\n", args.account_id);
    println!(
        "  AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRET_KEY} AWS_DEFAULT_REGION={REGION} \\\n    \
         aws --endpoint-url {} glue create-database --database-input Name=weather\n",
        endpoints.gateway
    );
    println!("Ctrl-C ends it.");
}

/// Lines for a shell: `eval "$(lakewarden env)"`.
async fn env(at: &GatewayArgs) -> Result<(), ClientError> {
    let endpoints = GatewayClient::new(&at.gateway).call(Method::GET, "/local/endpoints", None).await?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let member = |name: &str| text(endpoints.get(name));
    let queue = |name: &str| text(endpoints.get("queues").and_then(|queues| queues.get(name)));
    for (variable, value) in [
        ("AWS_ACCESS_KEY_ID", member("access_key")),
        ("AWS_SECRET_ACCESS_KEY", member("secret_key")),
        ("AWS_REGION", member("region")),
        ("AWS_DEFAULT_REGION", member("region")),
        ("AWS_ENDPOINT_URL_GLUE", member("gateway")),
        ("AWS_ENDPOINT_URL_S3", member("s3")),
        ("LAKEWARDEN_GUARDED_S3", member("guarded_s3")),
        ("AWS_ENDPOINT_URL_DYNAMODB", member("dynamodb")),
        ("AWS_ENDPOINT_URL_SQS", member("sqs")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("LAKEWARDEN_GATEWAY", member("gateway")),
        ("LAKEWARDEN_ACCOUNT_ID", member("account_id")),
        ("LAKEWARDEN_DELTA_LOG_TABLE", member("delta_log_table")),
        ("LAKEWARDEN_COMMITS_QUEUE_URL", queue("commits")),
        ("LAKEWARDEN_LOG_WORK_QUEUE_URL", queue("log-work")),
        ("LAKEWARDEN_SWEEPS_QUEUE_URL", queue("sweeps")),
        ("LAKEWARDEN_CATALOG_WORK_QUEUE_URL", queue("catalog-work")),
    ] {
        println!("export {variable}='{value}'");
    }
    Ok(())
}

async fn clock(at: &GatewayArgs, action: Option<ClockAction>) -> Result<(), ClientError> {
    let gateway = GatewayClient::new(&at.gateway);
    let clock = match action {
        None => gateway.call(Method::GET, "/local/clock", None).await?,
        Some(ClockAction::Advance { by }) => {
            gateway.call(Method::POST, "/local/clock", Some(&json!({ "advance": by }))).await?
        }
    };
    println!("{}", clock.get("now").and_then(Value::as_str).unwrap_or_default());
    Ok(())
}

async fn dead_letters(at: &GatewayArgs, redrive: bool) -> Result<(), ClientError> {
    let gateway = GatewayClient::new(&at.gateway);
    if redrive {
        let answer = gateway.call(Method::POST, "/local/dead-letters/redrive", None).await?;
        println!("{} put back into their queues", answer.get("redriven").unwrap_or(&Value::Null));
        return Ok(());
    }
    let answer = gateway.call(Method::GET, "/local/dead-letters", None).await?;
    let letters = answer.get("dead_letters").and_then(Value::as_array).cloned().unwrap_or_default();
    for letter in &letters {
        println!("{letter:#}");
    }
    println!("{} dead letters", letters.len());
    Ok(())
}
