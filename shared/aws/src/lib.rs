//! Lakewarden's ports on AWS: DynamoDB, S3 and SQS behind the traits of `lakewarden_core::store`, settings from the
//! environment, and logs.
//!
//! A function calls [`init_logs`] and [`AppCell::from_env`] and hands the [`lakewarden_core::ports::App`] to its handler.
//! The laptop and the tests build the same thing from [`Connection`], [`Clients`] and [`AwsParts`], with clocks, ids and
//! queues of their own.
//!
//! Every adapter is built for a *failed condition that means what it says*: a conditional write is never sent a second
//! time behind the caller's back unless the service refused the first one outright (see [`DynamoItems`],
//! [`S3Objects`]).

mod app;
mod deadline;
mod dynamodb;
mod errors;
mod logs;
mod retries;
mod s3;
mod settings;
mod sqs;
mod usage;

pub use app::{AppCell, AwsParts, Clients, Connection, account_from_arn, app};
pub use deadline::deadline;
pub use dynamodb::{
    Attributes, DynamoItems, Expression, Form, Taken, create_tables, decode_item, encode_key, encode_range, take_key,
};
pub use logs::init_logs;
pub use s3::S3Objects;
pub use settings::{AwsSettings, QueueUrls, SettingsError, TableNames};
pub use sqs::SqsQueue;
