//! The embedded S3: real clients and the AWS SDK talk to it over HTTP, Lakewarden reads its events.
//!
//! Metadata and bodies up to 64 KiB live in one SQLite file, larger bodies in files beside it. Every change is one
//! `BEGIN IMMEDIATE` transaction that checks the precondition, writes the row and appends the event, so that a
//! conditional put has one winner and no change is without its event. Body files are synced before that commit;
//! whatever was acknowledged survives a crash of the process or the machine.
//!
//! | file | does |
//! |---|---|
//! | `store` | folder, connections, transactions |
//! | `schema` | tables and their version |
//! | `bodies` | where bodies are: inline or in files |
//! | `rows` | objects and buckets in SQLite |
//! | `outbox` | events, kept until acknowledged |
//! | `conditions`, `checksums`, `headers` | parts of a request |
//! | `buckets`, `put`, `get`, `delete`, `listing`, `tagging`, `versions`, `multipart`, `parts` | the operations |
//! | `service`, `server` | the list of operations; HTTP |
//!
//! What is not supported is refused with `NotImplemented` and its name: object lock, encryption with keys of
//! the caller or of KMS, storage classes other than STANDARD, public ACLs, website redirects, appending writes.
//! `expected-bucket-owner` and `request-payer` are ignored: there is one account.

mod bodies;
mod buckets;
mod checksums;
mod conditions;
mod delete;
mod failure;
mod get;
mod headers;
mod listing;
mod multipart;
mod outbox;
mod parts;
mod put;
mod rows;
mod schema;
mod server;
mod service;
mod store;
mod tagging;
#[cfg(test)]
mod tests;
mod versions;

pub use failure::{Failure, OpenError};
pub use outbox::{Event, EventId};
pub use server::{Credentials, DRAIN_MS, serve};
pub use store::Store;
