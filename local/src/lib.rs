//! Lakewarden on a laptop: embedded DynamoDB, S3 and queues, the HTTP gateway, event delivery, the scheduler.

pub mod cli;
pub mod client;
pub mod clock;
pub mod deliver;
pub mod demo;
pub mod discover;
pub mod dynamodb;
pub mod exclusive;
pub mod gateway;
pub mod guard;
pub mod import;
pub mod logs;
pub mod progress;
pub mod rebuild;
pub mod register;
pub mod s3;
pub mod schedule;
pub mod signed;
pub mod sqs;
pub mod sweep;
pub mod system;
