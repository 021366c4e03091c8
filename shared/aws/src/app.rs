use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use lakewarden_core::ports::{App, Ports, Settings};
use lakewarden_core::store::{Clock, Ids, Queue, RandomIds, SystemClock};

use crate::settings::{AccountSource, AwsSettings, SettingsError, TableNames, is_account_id};
use crate::{DynamoItems, S3Objects, SqsQueue};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// One attempt at DynamoDB or SQS; the longest answer is a batch of 16 MB.
const ITEM_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// One attempt at S3 up to the head of the answer, a whole upload included.
const OBJECT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the services are and who calls them, said outright: nothing is read from the environment, from files or from
/// instance metadata. For the laptop and for tests.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    pub region: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    /// `http://host:port`; without one the service of the region.
    pub dynamodb_url: Option<String>,
    pub s3_url: Option<String>,
    pub sqs_url: Option<String>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .field("dynamodb_url", &self.dynamodb_url)
            .field("s3_url", &self.s3_url)
            .field("sqs_url", &self.sqs_url)
            .finish_non_exhaustive()
    }
}

/// How buckets are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BucketStyle {
    /// `https://bucket.s3.region.amazonaws.com/key`
    Host,
    /// `http://host/bucket/key`: needed wherever the endpoint is not Amazon's own.
    Path,
}

/// Clients of the three services, with the product's time limits and the SDK's standard retries (three attempts).
#[derive(Clone, Debug)]
pub struct Clients {
    pub dynamodb: aws_sdk_dynamodb::Client,
    pub s3: aws_sdk_s3::Client,
    pub sqs: aws_sdk_sqs::Client,
}

impl Clients {
    /// Clients for explicit endpoints and credentials. Makes no request.
    pub fn connect(connection: &Connection) -> Self {
        let keys = Credentials::new(
            connection.access_key_id.clone(),
            connection.secret_access_key.clone(),
            None,
            None,
            "lakewarden connection",
        );
        let sdk = |url: &Option<String>| {
            let mut builder = SdkConfig::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(connection.region.clone()))
                .credentials_provider(SharedCredentialsProvider::new(keys.clone()));
            builder.set_endpoint_url(url.clone());
            builder.build()
        };
        let style = if connection.s3_url.is_some() { BucketStyle::Path } else { BucketStyle::Host };
        Self {
            dynamodb: dynamodb_client(&sdk(&connection.dynamodb_url)),
            s3: s3_client(&sdk(&connection.s3_url), style),
            sqs: sqs_client(&sdk(&connection.sqs_url)),
        }
    }

    /// Clients as the environment says; answers the region too.
    async fn from_env() -> Result<(Self, String), SettingsError> {
        let sdk = aws_config::defaults(BehaviorVersion::latest()).load().await;
        let region = sdk
            .region()
            .map(ToString::to_string)
            .ok_or(SettingsError::Missing { variable: "AWS_REGION", allowed: "a region of AWS, such as eu-west-1" })?;
        let has_s3_url = std::env::var("AWS_ENDPOINT_URL_S3").is_ok_and(|url| !url.is_empty());
        let style = if has_s3_url || sdk.endpoint_url().is_some() { BucketStyle::Path } else { BucketStyle::Host };
        let clients = Self { dynamodb: dynamodb_client(&sdk), s3: s3_client(&sdk, style), sqs: sqs_client(&sdk) };
        Ok((clients, region))
    }
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(attempt).build()
}

fn dynamodb_client(sdk: &SdkConfig) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::config::Builder::from(sdk).timeout_config(timeouts(ITEM_ATTEMPT_TIMEOUT));
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

fn s3_client(sdk: &SdkConfig, style: BucketStyle) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::config::Builder::from(sdk)
        .timeout_config(timeouts(OBJECT_ATTEMPT_TIMEOUT))
        .force_path_style(style == BucketStyle::Path);
    aws_sdk_s3::Client::from_conf(config.build())
}

fn sqs_client(sdk: &SdkConfig) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::config::Builder::from(sdk).timeout_config(timeouts(ITEM_ATTEMPT_TIMEOUT));
    aws_sdk_sqs::Client::from_conf(config.build())
}

/// What [`app`] puts together. Take [`SystemClock`], [`RandomIds`] and [`SqsQueue`] where nothing else is wanted.
#[derive(Clone)]
pub struct AwsParts {
    pub dynamodb: aws_sdk_dynamodb::Client,
    pub s3: aws_sdk_s3::Client,
    pub tables: TableNames,
    pub queue: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

impl fmt::Debug for AwsParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsParts").field("tables", &self.tables).finish_non_exhaustive()
    }
}

/// An [`App`] on the AWS adapters. Makes no request.
pub fn app(parts: AwsParts, settings: Settings) -> App {
    let ports = Ports {
        items: Arc::new(DynamoItems::new(parts.dynamodb, parts.tables)),
        objects: Arc::new(S3Objects::new(parts.s3)),
        queue: parts.queue,
        clock: parts.clock,
        ids: parts.ids,
        bodies: settings.bodies.clone(),
    };
    App::new(ports, settings)
}

/// The [`App`] of a function, as its environment says (see [`AwsSettings`]); its account id is completed by the first
/// invocation, since a function learns its own ARN only then. Makes no request to the services.
#[derive(Debug)]
pub struct AppCell {
    base: App,
    account: AccountSource,
    completed: OnceLock<App>,
}

impl AppCell {
    pub async fn from_env() -> Result<Self, SettingsError> {
        let mut settings = AwsSettings::from_env()?;
        let (clients, region) = Clients::from_env().await?;
        settings.core.region = region;
        let parts = AwsParts {
            dynamodb: clients.dynamodb,
            s3: clients.s3,
            tables: settings.tables,
            queue: Arc::new(SqsQueue::new(clients.sqs, settings.queues)),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
        };
        Ok(Self::new(app(parts, settings.core), settings.account))
    }

    fn new(base: App, account: AccountSource) -> Self {
        Self { base, account, completed: OnceLock::new() }
    }

    /// The app for an invocation of the function with this ARN (`event.context.invoked_function_arn`). An account id
    /// that was set stays; one that was not is taken from the first ARN that has one.
    pub fn for_arn(&self, invoked_function_arn: &str) -> &App {
        if self.account == AccountSource::Given {
            return &self.base;
        }
        if let Some(app) = self.completed.get() {
            return app;
        }
        let Some(account_id) = account_from_arn(invoked_function_arn) else { return &self.base };
        self.completed.get_or_init(|| {
            let mut app = self.base.clone();
            app.settings.account_id = account_id;
            app
        })
    }
}

/// The account in an ARN: `arn:aws:lambda:eu-west-1:123456789012:function:x`.
pub fn account_from_arn(arn: &str) -> Option<String> {
    let mut parts = arn.splitn(6, ':');
    let is_arn = parts.next() == Some("arn");
    parts.nth(3).filter(|account| is_arn && is_account_id(account)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use lakewarden_core::store::memory::MemoryWorld;

    use super::*;

    #[test]
    fn an_arn_names_the_account() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:catalog-api:live";
        assert_eq!(account_from_arn(arn).as_deref(), Some("123456789012"));
        assert_eq!(account_from_arn("arn:aws-cn:sqs:cn-north-1:000000000001:q").as_deref(), Some("000000000001"));
        for not_one in ["", "arn:aws:s3:::bucket", "x:aws:lambda:r:123456789012:f", "arn:aws:lambda:r:123:function:f"] {
            assert_eq!(account_from_arn(not_one), None, "{not_one}");
        }
    }

    #[test]
    fn the_first_arn_completes_the_account_unless_it_was_given() {
        let app = App::new(MemoryWorld::new(0).ports, Settings::default());
        let account = |app: &App| app.settings.account_id.clone();
        let cell = AppCell::new(app.clone(), AccountSource::Default);
        assert_eq!(account(cell.for_arn("unknown")), "000000000000");
        assert_eq!(account(cell.for_arn("arn:aws:lambda:r:123456789012:function:f")), "123456789012");
        assert_eq!(account(cell.for_arn("arn:aws:lambda:r:999999999999:function:f")), "123456789012");
        let cell = AppCell::new(app, AccountSource::Given);
        assert_eq!(account(cell.for_arn("arn:aws:lambda:r:123456789012:function:f")), "000000000000");
    }

    #[test]
    fn a_connection_does_not_show_its_secret() {
        let connection = Connection {
            region: "us-east-1".to_owned(),
            access_key_id: "id".to_owned(),
            secret_access_key: "hidden-key".to_owned(),
            dynamodb_url: None,
            s3_url: None,
            sqs_url: None,
        };
        assert!(!format!("{connection:?}").contains("hidden-key"));
    }
}
