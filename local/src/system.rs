//! The whole system in one process: embedded servers, gateway, event delivery, scheduler.
//!
//! The handlers are the ones Lambda runs, on the real AWS SDK clients; only the endpoints and the clock are local. Items are
//! read from the embedded tables themselves ([`dynamodb::DirectItems`]), unless another DynamoDB is named.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lakewarden_aws::{AwsParts, Clients, Connection, QueueUrls, SqsQueue, TableNames};
use lakewarden_core::location::Location;
use lakewarden_core::ports::{App, Settings, UndoSettings, UnitySettings};
use lakewarden_core::predicate::Mode;
use lakewarden_core::store::{Clock, QueueName, RandomIds, SystemClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeArgs;
use crate::clock::{ClockError, LocalClock};
use crate::deliver::Delivery;
use crate::exclusive::{ExclusiveLock, LockError};
use crate::schedule::Schedule;
use crate::sqs::{LocalQueues, QueueSettings};
use crate::{deliver, dynamodb, gateway, guard, s3, schedule, sqs};

/// The key pair that the embedded S3 accepts. No secret: the server listens on loopback only.
pub const ACCESS_KEY: &str = "lakewarden";
pub const SECRET_KEY: &str = "lakewarden-local";
pub const REGION: &str = "us-east-1";
/// The table Delta's DynamoDB log store writes to; its writers know it under this name, without our prefix.
pub const DELTA_LOG_TABLE: &str = "delta_log";
/// Buckets that exist from the start.
pub const BUCKETS: [&str; 2] = ["lake", "lakewarden-reports"];
/// How long the ends of running requests are waited for at shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// It did not start; one line says why and what to do.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the folder {path} cannot be used: {source}; name another one with --data-dir, or use --ephemeral")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Lock(#[from] LockError),
    #[error("port {port} for the {service} is taken: end what uses it, or choose another with {flag} (0: any)")]
    PortTaken { service: &'static str, port: u16, flag: &'static str },
    #[error("port {port} for the {service} cannot be opened: {source}; choose another with {flag}")]
    Port { service: &'static str, port: u16, flag: &'static str, source: std::io::Error },
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error("the embedded S3 did not start: {0}")]
    S3(String),
    #[error("the guarded S3 did not start: {0}")]
    GuardedS3(#[from] lakewarden_gateway::SetupError),
    #[error("the embedded DynamoDB did not start: {0}")]
    DynamoDb(String),
    #[error("the embedded queues did not start: {0}")]
    Sqs(String),
    #[error("the tables or buckets could not be created: {0}")]
    Create(String),
    #[error("the endpoints could not be written to {path}: {source}")]
    EndpointsFile { path: PathBuf, source: std::io::Error },
}

/// Where everything answers.
#[derive(Clone, Debug)]
pub struct Endpoints {
    pub gateway: String,
    pub s3: String,
    /// The same S3 behind the gateway for unmodified writers.
    pub guarded_s3: String,
    pub dynamodb: String,
    pub sqs: String,
}

impl Endpoints {
    /// What `--endpoints-file` and `GET /local/endpoints` say.
    pub fn to_json(&self) -> Value {
        json!({
            "gateway": self.gateway,
            "s3": self.s3,
            "guarded_s3": self.guarded_s3,
            "dynamodb": self.dynamodb,
            "sqs": self.sqs,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "region": REGION,
            "delta_log_table": DELTA_LOG_TABLE,
        })
    }

    /// Address of a queue, as the functions' settings want it.
    pub fn queue_url(&self, queue: QueueName, account_id: &str) -> String {
        format!("{}/{account_id}/{}", self.sqs, queue.as_str())
    }
}

/// What gateway, delivery and scheduler share.
pub struct Shared {
    pub app: App,
    pub clock: Arc<LocalClock>,
    pub objects: s3::Store,
    pub queues: LocalQueues,
    pub delivery: Delivery,
    pub schedule: Schedule,
    pub endpoints: Endpoints,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// A running system. Call [`System::stop`]; dropping it leaves the tasks to the runtime's end.
#[derive(Debug)]
pub struct System {
    pub shared: Arc<Shared>,
    pub data_dir: PathBuf,
    shutdown: CancellationToken,
    servers: CancellationToken,
    tasks: JoinSet<()>,
    server_tasks: JoinSet<()>,
    dynamodb: Option<dynamodb::Running>,
    _lock: ExclusiveLock,
    _ephemeral: Option<TempDir>,
}

/// The ports, opened before anything else so that a taken one is told at once.
struct Listeners {
    gateway: TcpListener,
    s3: TcpListener,
    guarded_s3: TcpListener,
    dynamodb: TcpListener,
    sqs: TcpListener,
}

impl Listeners {
    async fn open(args: &ServeArgs) -> Result<Self, StartError> {
        Ok(Self {
            gateway: listen("gateway", args.gateway_port, "--gateway-port").await?,
            s3: listen("embedded S3", args.s3_port, "--s3-port").await?,
            guarded_s3: listen("guarded S3", args.guarded_s3_port(), "--guarded-s3-port").await?,
            dynamodb: listen("embedded DynamoDB", args.dynamodb_port, "--dynamodb-port").await?,
            sqs: listen("embedded queues", args.sqs_port, "--sqs-port").await?,
        })
    }

    fn endpoints(&self) -> std::io::Result<Endpoints> {
        let url = |listener: &TcpListener| listener.local_addr().map(|address| format!("http://{address}"));
        Ok(Endpoints {
            gateway: url(&self.gateway)?,
            s3: url(&self.s3)?,
            guarded_s3: url(&self.guarded_s3)?,
            dynamodb: url(&self.dynamodb)?,
            sqs: url(&self.sqs)?,
        })
    }
}

pub(crate) async fn listen(service: &'static str, port: u16, flag: &'static str) -> Result<TcpListener, StartError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => StartError::PortTaken { service, port, flag },
        _ => StartError::Port { service, port, flag, source },
    })
}

fn open_folder(args: &ServeArgs) -> Result<(PathBuf, Option<TempDir>), StartError> {
    if args.ephemeral {
        let folder = TempDir::with_prefix("lakewarden-")
            .map_err(|source| StartError::Folder { path: std::env::temp_dir(), source })?;
        return Ok((folder.path().to_owned(), Some(folder)));
    }
    let usable = |path: &Path| -> std::io::Result<()> {
        std::fs::create_dir_all(path)?;
        let probe = path.join("writable");
        std::fs::write(&probe, b"")?;
        std::fs::remove_file(probe)
    };
    let folder = args.data_folder();
    usable(&folder).map_err(|source| StartError::Folder { path: folder.clone(), source })?;
    Ok((folder, None))
}

impl System {
    /// Starts everything and returns once it answers.
    pub async fn start(args: &ServeArgs) -> Result<Self, StartError> {
        let (data_dir, ephemeral) = open_folder(args)?;
        let lock = ExclusiveLock::take(&data_dir, "lakewarden.lock")?;
        let clock = Arc::new(LocalClock::open(data_dir.join("clock"))?);
        let listeners = Listeners::open(args).await?;
        let endpoints =
            listeners.endpoints().map_err(|source| StartError::Folder { path: data_dir.clone(), source })?;

        let servers = CancellationToken::new();
        let mut server_tasks = JoinSet::new();
        let objects = s3::Store::open(&data_dir.join("s3"), clock.clone() as Arc<dyn Clock>)
            .map_err(|error| StartError::S3(error.to_string()))?;
        let credentials = s3::Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
        server_tasks.spawn(s3::serve(listeners.s3, objects.clone(), credentials, servers.clone().cancelled_owned()));
        let queues = open_queues(&data_dir).await?;
        let sqs_server = sqs::serve(
            listeners.sqs,
            queues.clone(),
            args.account_id.clone(),
            REGION.to_owned(),
            servers.clone().cancelled_owned(),
        );
        server_tasks.spawn(async move {
            if let Err(error) = sqs_server.await {
                tracing::error!(%error, "the embedded queues ended");
            }
        });
        let dynamodb = start_dynamodb(&data_dir, listeners.dynamodb, &servers)?;

        let app = build_app(args, &endpoints, clock.clone(), &dynamodb).await?;
        let shared = Arc::new(Shared {
            app,
            clock,
            objects,
            queues,
            delivery: Delivery::default(),
            schedule: Schedule::default(),
            endpoints,
        });
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        deliver::spawn(&mut tasks, &shared, &shutdown);
        tasks.spawn(schedule::run(shared.clone(), shutdown.clone()));
        let (gateway_shared, gateway_shutdown) = (shared.clone(), shutdown.clone());
        tasks.spawn(async move {
            if let Err(error) = gateway::serve(listeners.gateway, gateway_shared, gateway_shutdown).await {
                tracing::error!(%error, "the gateway ended");
            }
        });
        let guarded = guard::embedded(&shared)?;
        tasks.spawn(lakewarden_gateway::serve(listeners.guarded_s3, guarded, shutdown.clone().cancelled_owned()));
        if let Some(path) = &args.endpoints_file {
            write_endpoints(path, &shared.endpoints.to_json())?;
        }
        Ok(Self {
            shared,
            data_dir,
            shutdown,
            servers,
            tasks,
            server_tasks,
            dynamodb: Some(dynamodb),
            _lock: lock,
            _ephemeral: ephemeral,
        })
    }

    /// Ends it: first what makes requests, then the servers. Work that does not end in time is cut off; the queues
    /// deliver it again at the next start.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        if tokio::time::timeout(STOP_TIMEOUT, join_every(&mut self.tasks)).await.is_err() {
            tracing::warn!("some work did not end in time; it goes on at the next start");
            self.tasks.shutdown().await;
        }
        self.servers.cancel();
        if tokio::time::timeout(STOP_TIMEOUT, join_every(&mut self.server_tasks)).await.is_err() {
            self.server_tasks.shutdown().await;
        }
        if let Some(dynamodb) = self.dynamodb.take()
            && let Err(error) = dynamodb.join().await
        {
            tracing::error!(%error, "the embedded DynamoDB did not end well");
        }
    }
}

async fn join_every(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a task of the local system failed");
        }
    }
}

fn start_dynamodb(
    data_dir: &Path,
    listener: TcpListener,
    shutdown: &CancellationToken,
) -> Result<dynamodb::Running, StartError> {
    let failed = |error: String| StartError::DynamoDb(error);
    let storage = dynamodb::Storage::File(data_dir.join("dynamodb").join("dynamodb.sqlite"));
    let listener = listener.into_std().map_err(|error| failed(error.to_string()))?;
    dynamodb::start(storage, listener, shutdown.clone().cancelled_owned()).map_err(|error| failed(error.to_string()))
}

/// Messages wait in machine time: moving the clock must not make a handler's message appear a second time.
async fn open_queues(data_dir: &Path) -> Result<LocalQueues, StartError> {
    let failed = |error: String| StartError::Sqs(error);
    let settings: Vec<(&str, QueueSettings)> =
        QueueName::ALL.into_iter().map(|queue| (queue.as_str(), deliver::queue_settings(queue))).collect();
    let queues = LocalQueues::open(&data_dir.join("sqs"), Arc::new(SystemClock), &settings)
        .map_err(|error| failed(error.to_string()))?;
    // Nobody else receives from these queues, so what was under way when the last process ended is under way no more.
    queues.release_in_flight().await.map_err(|error| failed(error.to_string()))?;
    Ok(queues)
}

async fn build_app(
    args: &ServeArgs,
    endpoints: &Endpoints,
    clock: Arc<LocalClock>,
    dynamodb: &dynamodb::Running,
) -> Result<App, StartError> {
    let create = |error: String| StartError::Create(error);
    let clients = Clients::connect(&Connection {
        region: REGION.to_owned(),
        access_key_id: ACCESS_KEY.to_owned(),
        secret_access_key: SECRET_KEY.to_owned(),
        dynamodb_url: args.functions_dynamodb_url.clone().or_else(|| Some(endpoints.dynamodb.clone())),
        s3_url: args.functions_s3_url.clone().or_else(|| Some(endpoints.s3.clone())),
        sqs_url: Some(endpoints.sqs.clone()),
    });
    let tables = TableNames::new("lakewarden-").with_delta_log(DELTA_LOG_TABLE);
    lakewarden_aws::create_tables(&clients.dynamodb, &tables, clock.as_ref())
        .await
        .map_err(|error| create(error.to_string()))?;
    for bucket in BUCKETS {
        create_bucket(&clients.s3, bucket).await.map_err(create)?;
    }
    let url = |queue| Some(endpoints.queue_url(queue, &args.account_id));
    let urls = QueueUrls {
        commits: url(QueueName::Commits),
        log_work: url(QueueName::LogWork),
        sweeps: url(QueueName::Sweeps),
        catalog_work: url(QueueName::CatalogWork),
    };
    let settings = Settings {
        account_id: args.account_id.clone(),
        region: REGION.to_owned(),
        reports: Location::new("lakewarden-reports", "sweeps"),
        verdict_retention_ms: i64::from(args.verdict_retention_hours) * 60 * 60 * 1000,
        dropped_grace_ms: i64::from(args.dropped_grace_hours) * 60 * 60 * 1000,
        history_retention_ms: i64::from(args.history_retention_hours) * 60 * 60 * 1000,
        undo: UndoSettings { hours: i64::from(args.undo_hours), ..UndoSettings::default() },
        partition_moves: args.partition_moves.into(),
        default_partition: if args.strict_default_partition { Mode::Strict } else { Mode::Lenient },
        max_partitions_per_table: args.max_partitions_per_table,
        unity: UnitySettings { storage: Some(Location::new("lake", "unity")), ..UnitySettings::default() },
        ..Settings::default()
    };
    let parts = AwsParts {
        dynamodb: clients.dynamodb,
        s3: clients.s3,
        tables: tables.clone(),
        queue: Arc::new(SqsQueue::new(clients.sqs, urls)),
        clock,
        ids: Arc::new(RandomIds),
    };
    let mut app = lakewarden_aws::app(parts, settings);
    if args.functions_dynamodb_url.is_none() {
        app.ports.items = Arc::new(dynamodb.tables().items(tables, app.ports.items.clone()));
    }
    Ok(app)
}

async fn create_bucket(client: &aws_sdk_s3::Client, bucket: &str) -> Result<(), String> {
    match client.create_bucket().bucket(bucket).send().await {
        Ok(_) => Ok(()),
        Err(error) => match error.into_service_error() {
            error if error.is_bucket_already_owned_by_you() => Ok(()),
            error => Err(format!("bucket {bucket}: {error:?}")),
        },
    }
}

/// Written beside and renamed, so that a reader never sees half of it.
pub(crate) fn write_endpoints(path: &Path, endpoints: &Value) -> Result<(), StartError> {
    let scratch = path.with_extension("new");
    std::fs::write(&scratch, format!("{endpoints:#}\n"))
        .and_then(|()| std::fs::rename(&scratch, path))
        .map_err(|source| StartError::EndpointsFile { path: path.to_owned(), source })
}
