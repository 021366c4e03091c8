//! The S3 gateway for unmodified writers: on its own port of the local system, and as a command beside a writer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_s3::config::Region;
use lakewarden_aws::S3Objects;
use lakewarden_core::store::{Clock, Ids, RandomIds, ReadObjects, SystemClock};
use lakewarden_gateway::{Access, Clients, Gateway, Settings, SetupError, serve};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::S3GatewayArgs;
use crate::register::Catalog;
use crate::signed::{AwsAccess, CallError, is_loopback};
use crate::system::{ACCESS_KEY, REGION, SECRET_KEY, Shared, StartError, listen, write_endpoints};

/// How long a laptop is asked where its S3 is.
const PATIENCE: Duration = Duration::from_secs(15);

fn fixed(access_key: &str, secret_key: &str) -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::new(access_key, secret_key, None, None, "lakewarden"))
}

/// The gateway of the local system, which takes the key pair that the embedded S3 takes.
pub fn embedded(shared: &Shared) -> Result<Arc<Gateway>, SetupError> {
    let settings = Settings {
        s3_url: shared.endpoints.s3.clone(),
        s3_access: Access { credentials: fixed(ACCESS_KEY, SECRET_KEY), region: REGION.to_owned() },
        objects: shared.app.ports.objects.clone(),
        commits_url: shared.endpoints.gateway.clone(),
        commits_access: None,
        clients: Clients::Pair { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() },
        guarded: Vec::new(),
        passed: Vec::new(),
        clock: Arc::new(SystemClock),
    };
    Gateway::new(settings).map(Arc::new)
}

/// The gateway did not start; one line says why and what to do.
#[derive(Debug, Error)]
pub enum GuardError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("no Lakewarden answers: {0}; start one, or name its address with --service")]
    Service(#[from] CallError),
    #[error(
        "no Lakewarden answers: {service} has said nothing for {waited:?}; start one, or name its address with --service"
    )]
    Silent { service: String, waited: Duration },
    #[error(
        "what answers at {0} is no Lakewarden of a laptop, so that it is not known which S3 it writes to; name the address of \
         one with --service, or the S3 with --s3-endpoint"
    )]
    NotLakewarden(String),
    #[error(
        "--service {0} is where this gateway is to listen; name the address of Lakewarden's API, or another --port"
    )]
    OwnPort(String),
    #[error("clients cannot sign with this key pair: {0}")]
    Keys(&'static str),
    #[error("no region is set: name one with --region")]
    NoRegion,
    #[error(
        "there are no credentials to pass requests on with ({0}); set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials(String),
}

/// A gateway that answers. [`Running::stop`] ends it.
#[derive(Debug)]
pub struct Running {
    pub url: String,
    clients: Clients,
    s3_url: String,
    commits_url: String,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "S3 at {}, passed on to {}; commits are judged by {}.\n", self.url, self.s3_url, self.commits_url)?;
        match &self.clients {
            Clients::Pair { access_key, secret_key } => {
                writeln!(f, "  AWS_ENDPOINT_URL_S3={} AWS_ALLOW_HTTP=true \\", self.url)?;
                writeln!(f, "    AWS_ACCESS_KEY_ID={access_key} AWS_SECRET_ACCESS_KEY={secret_key}\n")?;
            }
            Clients::Anybody => writeln!(f, "  AWS_ENDPOINT_URL_S3={} AWS_ALLOW_HTTP=true, with any keys\n", self.url)?,
        }
        write!(f, "Ctrl-C ends it.")
    }
}

impl Running {
    fn to_json(&self) -> Value {
        let mut json = json!({"s3": self.url});
        if let (Clients::Pair { access_key, secret_key }, Some(members)) = (&self.clients, json.as_object_mut()) {
            members.insert("access_key".to_owned(), access_key.as_str().into());
            members.insert("secret_key".to_owned(), secret_key.as_str().into());
        }
        json
    }

    /// Requests under way may end.
    pub async fn stop(self) {
        self.shutdown.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the gateway did not end well");
        }
    }
}

/// What lies behind.
struct Behind {
    s3_url: String,
    access: Access,
    objects: Arc<dyn ReadObjects>,
    commits_access: Option<Access>,
}

/// Starts `lakewarden gateway`.
pub async fn start(args: &S3GatewayArgs) -> Result<Running, GuardError> {
    if names_port(&args.service, args.port) {
        return Err(GuardError::OwnPort(args.service.clone()));
    }
    let clients = clients(args)?;
    let behind = behind(args).await?;
    let listener = listen("S3 gateway", args.port, "--port").await?;
    let gateway = Gateway::new(Settings {
        s3_url: behind.s3_url.clone(),
        s3_access: behind.access,
        objects: behind.objects,
        commits_url: args.service.clone(),
        commits_access: behind.commits_access,
        clients: clients.clone(),
        guarded: args.guard.clone(),
        passed: args.pass.clone(),
        clock: Arc::new(SystemClock) as Arc<dyn Clock>,
    })?;
    let address = listener.local_addr().map_err(|source| StartError::Port {
        service: "S3 gateway",
        port: args.port,
        flag: "--port",
        source,
    })?;
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve(listener, Arc::new(gateway), shutdown.clone().cancelled_owned()));
    let running = Running {
        url: format!("http://{address}"),
        clients,
        s3_url: behind.s3_url,
        commits_url: args.service.clone(),
        shutdown,
        task,
    };
    if let Some(path) = &args.endpoints_file {
        write_endpoints(path, &running.to_json())?;
    }
    Ok(running)
}

/// Whose requests are taken: those of a key pair that is given, or made up.
fn clients(args: &S3GatewayArgs) -> Result<Clients, GuardError> {
    if args.any_signature {
        return Ok(Clients::Anybody);
    }
    let (Some(access_key), Some(secret_key)) = (&args.access_key, &args.secret_key) else {
        let text = || RandomIds.uuid().simple().to_string();
        let access_key: String = text().to_uppercase().chars().take(16).collect();
        return Ok(Clients::Pair {
            access_key: format!("LAKE{access_key}"),
            secret_key: format!("{}{}", text(), text()),
        });
    };
    check_keys(access_key, secret_key).map_err(GuardError::Keys)?;
    Ok(Clients::Pair { access_key: access_key.clone(), secret_key: secret_key.clone() })
}

/// Refuses a pair that nobody means, or that no signature can name. Says nothing of what the secret is.
fn check_keys(access_key: &str, secret_key: &str) -> Result<(), &'static str> {
    if access_key.trim().is_empty() || secret_key.trim().is_empty() {
        return Err("a key of it is blank; set LAKEWARDEN_S3_ACCESS_KEY and LAKEWARDEN_S3_SECRET_KEY (--access-key, \
                    --secret-key), or none of them for a pair that is made up");
    }
    let ends = |key: &str| key.trim().len() != key.len();
    if ends(secret_key) || secret_key.chars().any(char::is_control) {
        return Err("there are blanks or line ends around the secret key, or control characters in it");
    }
    // Signatures name it between these.
    if !access_key.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b',' | b'=')) {
        return Err("the access key has a blank, `/`, `,`, `=` or another character that signatures cannot carry");
    }
    Ok(())
}

/// Whether an address is that of a port of this machine.
fn names_port(address: &str, port: u16) -> bool {
    let uri: Option<http::Uri> = address.parse().ok();
    uri.is_some_and(|uri| is_loopback(address) && port != 0 && uri.port_u16() == Some(port))
}

fn member<'a>(endpoints: &'a Value, name: &str) -> Option<&'a str> {
    endpoints.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Where the S3 of a laptop is, and its keys. Whatever else answers is not guessed about: commits would be judged for one S3
/// and read from another.
async fn ask(catalog: &Catalog, service: &str) -> Result<Value, GuardError> {
    let asked = tokio::time::timeout(PATIENCE, catalog.laptop_endpoints()).await;
    let asked = asked.map_err(|_| GuardError::Silent { service: service.to_owned(), waited: PATIENCE })?;
    let names = ["s3", "access_key", "secret_key", "region"];
    let is_whole = |endpoints: &Value| names.iter().all(|name| member(endpoints, name).is_some());
    asked?.filter(is_whole).ok_or_else(|| GuardError::NotLakewarden(service.to_owned()))
}

async fn behind(args: &S3GatewayArgs) -> Result<Behind, GuardError> {
    let service = AwsAccess::load(args.profile.as_deref(), args.region.as_deref()).await;
    // Not a laptop's, or none that answers now: what is passed on needs no service, and proposals are answered 503.
    let is_laptop = service.signing_unless_loopback(&args.service, "execute-api")?.is_none();
    let laptop = match (&args.s3_endpoint, Catalog::open(&args.service, &service)) {
        (None, Ok(catalog)) if is_laptop => Some(ask(&catalog, &args.service).await?),
        _ => None,
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(profile) = &args.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(region) = &args.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(laptop) = &laptop {
        let text = |name: &str| member(laptop, name).unwrap_or_default().to_owned();
        loader = loader
            .endpoint_url(text("s3"))
            .credentials_provider(fixed(&text("access_key"), &text("secret_key")))
            .region(Region::new(text("region")));
    }
    if let Some(endpoint) = &args.s3_endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    let sdk = loader.load().await;
    let region = sdk.region().map(ToString::to_string).ok_or(GuardError::NoRegion)?;
    let s3_url = match sdk.endpoint_url() {
        Some(url) => url.to_owned(),
        None => {
            std::env::var("AWS_ENDPOINT_URL_S3").ok().filter(|url| !url.is_empty()).unwrap_or_else(|| of_aws(&region))
        }
    };
    let credentials =
        sdk.credentials_provider().ok_or_else(|| GuardError::NoCredentials("none are configured".into()))?;
    let provided = credentials.provide_credentials().await;
    provided.map_err(|error| GuardError::NoCredentials(crate::signed::chain(&error)))?;
    // By path, like what is passed on.
    let config = aws_sdk_s3::config::Builder::from(&sdk).endpoint_url(&s3_url).force_path_style(true).build();
    let access = Access { credentials, region };
    let signs = service.signing_unless_loopback(&args.service, "execute-api")?;
    Ok(Behind {
        s3_url,
        commits_access: signs.map(|signing| Access { credentials: signing.credentials, region: signing.region }),
        objects: Arc::new(S3Objects::new(aws_sdk_s3::Client::from_conf(config))),
        access,
    })
}

fn of_aws(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://s3.{region}.{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_nobody_can_sign_with_are_refused() {
        for (access_key, secret_key, told) in [
            ("MINE", "mine-secret", None),
            ("A.b_c-1+@", "with a / = , blank", None),
            (" ", "secret", Some("blank")),
            ("MINE", " \t", Some("blank")),
            ("\u{a0}", "secret", Some("blank")),
            ("MINE", "secret\n", Some("secret key")),
            ("MINE", " secret", Some("secret key")),
            ("MINE", "se\0cret", Some("secret key")),
            ("MY KEY", "secret", Some("access key")),
            ("MINE/1", "secret", Some("access key")),
            ("MINE,", "secret", Some("access key")),
            ("ü", "secret", Some("access key")),
        ] {
            match (check_keys(access_key, secret_key), told) {
                (Ok(()), None) => {}
                (Err(text), Some(told)) => assert!(text.contains(told), "{access_key:?} {secret_key:?}: {text}"),
                other => panic!("{access_key:?} {secret_key:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn own_ports_are_known_by_any_name_of_this_machine() {
        for (address, port, is_own) in [
            ("http://127.0.0.1:8705", 8705, true),
            ("http://localhost:8705/", 8705, true),
            ("http://[::1]:8705", 8705, true),
            ("http://127.0.0.1:8700", 8705, false),
            ("http://127.0.0.1:8705", 0, false),
            ("https://abc.execute-api.eu-west-1.amazonaws.com:8705", 8705, false),
            ("nonsense", 8705, false),
        ] {
            assert_eq!(names_port(address, port), is_own, "{address} {port}");
        }
    }
}
