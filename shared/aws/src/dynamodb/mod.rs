//! [`DynamoItems`]: the item ports on DynamoDB.

mod attributes;
mod expressions;
mod reads;
mod tables;
mod transactions;
mod writes;

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::ConsumedCapacity;
use lakewarden_core::store::{ItemUsage, Table};

use crate::settings::TableNames;
use crate::usage::Meter;

pub use attributes::{Attributes, Form, Taken, decode_item, encode_key, take_key};
pub use expressions::{Expression, encode_range};
pub use tables::create_tables;

/// [`lakewarden_core::store::Items`] on DynamoDB. Cheap to clone; clones count together.
///
/// - Reads, transactions (by their token) and unconditional writes are repeated by the SDK after throttling, lost answers
///   and server errors, three attempts in all. A put or delete with a condition is repeated after throttling only:
///   a lost answer is `Unavailable`, and a failed condition is never about the caller's own write.
/// - Requests are counted once per call, whatever the SDK repeats. Units are those that DynamoDB reports; for a failed
///   condition or a cancelled transaction it reports none, and they are counted by its rule
///   (`lakewarden_core::store::rules`).
/// - Requests that DynamoDB would refuse are refused here, uncounted and by the same rules as in memory.
#[derive(Clone, Debug)]
pub struct DynamoItems {
    client: Client,
    tables: TableNames,
    usage: Arc<Meter<ItemUsage>>,
}

impl DynamoItems {
    pub fn new(client: Client, tables: TableNames) -> Self {
        Self { client, tables, usage: Arc::default() }
    }

    /// The table of the product that has this name in the deployment.
    fn table_of(&self, name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| self.tables.name(*table) == name)
    }

    fn charge<'a>(&self, reported: impl IntoIterator<Item = &'a ConsumedCapacity>, axis: Axis) {
        for capacity in reported {
            let (read, write) = match (capacity.read_capacity_units(), capacity.write_capacity_units(), axis) {
                (None, None, Axis::Read) => (capacity.capacity_units(), None),
                (None, None, Axis::Write) => (None, capacity.capacity_units()),
                (read, write, _) => (read, write),
            };
            self.usage.count(|usage| {
                usage.read_half_units += whole(read.unwrap_or(0.0) * 2.0);
                usage.write_units += whole(write.unwrap_or(0.0));
            });
        }
    }
}

/// What capacity is that the service does not call read or write.
#[derive(Clone, Copy)]
enum Axis {
    Read,
    Write,
}

/// Units are whole (or halves, doubled before); what is odd or negative is rounded to the nearest.
fn whole(units: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped and rounded just here")]
    let units = units.round().clamp(0.0, 1e15) as u64;
    units
}
