//! Creating partitions.

use std::collections::HashSet;

use futures::StreamExt;
use serde_json::{Map, Value as Json};

use super::descriptor::{Descriptor, store_parts};
use super::item::{self, PartitionItem};
use crate::catalog::{CatalogError, PartitionId, Refused, Revision, TableRef, put};
use crate::ports::Ports;
use crate::store::Condition;

/// Partitions of one batch that are written at once.
pub(super) const WRITES_AT_ONCE: usize = 32;

/// What a caller says of a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionInput {
    pub values: Vec<String>,
    pub storage_descriptor: Option<Map<String, Json>>,
    /// `Parameters`, `LastAccessTime`, `LastAnalyzedTime`, as they were given.
    pub rest: Map<String, Json>,
}

impl PartitionInput {
    /// Takes a checked `PartitionInput` of the service model.
    pub fn from_json(mut input: Map<String, Json>) -> Self {
        let values = match input.remove("Values") {
            Some(Json::Array(values)) => {
                values.into_iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        };
        let storage_descriptor = match input.remove("StorageDescriptor") {
            Some(Json::Object(descriptor)) => Some(descriptor),
            _ => None,
        };
        Self { values, storage_descriptor, rest: input }
    }
}

/// A partition ready to be written.
struct Prepared {
    values: Vec<String>,
    descriptor: Descriptor,
    body: Map<String, Json>,
}

fn plan_create(table: &TableRef, input: PartitionInput) -> Result<Prepared, CatalogError> {
    if input.values.is_empty() || input.values.len() != table.keys.len() {
        return Err(CatalogError::ValuesMismatch);
    }
    let descriptor = Descriptor::split(input.storage_descriptor.unwrap_or_default());
    let mut body = input.rest;
    // The partition's own parameters and its descriptor's have one name on the wire.
    if let Some(parameters) = body.remove("Parameters") {
        body.insert("PartitionParameters".to_owned(), parameters);
    }
    body.extend(descriptor.own.clone());
    Ok(Prepared { values: input.values, descriptor, body })
}

async fn write(ports: &Ports, table: &TableRef, prepared: Prepared) -> Result<(), CatalogError> {
    let now_ms = ports.clock.now_ms();
    let revision = Revision::fresh(ports.ids.as_ref());
    let partition = PartitionItem {
        partition_id: PartitionId::from_text(revision.as_str()),
        revision,
        created_ms: now_ms,
        valid_from_ms: now_ms,
        columns: prepared.descriptor.columns.map(|shared| shared.hash),
        format: prepared.descriptor.format.map(|shared| shared.hash),
        body: prepared.body,
        values: prepared.values,
    };
    let key = item::key(table, &partition.values);
    match put(ports, &key, &item::encode(&key, &partition)?, &Condition::Absent).await {
        Ok(()) => Ok(()),
        Err(Refused::Condition(_)) => Err(CatalogError::PartitionExists),
        Err(Refused::Store(error)) => Err(error.into()),
    }
}

/// Creates a partition: one conditional put, after one for each shared part of its descriptor that is new to this
/// process. Values are not checked against the key types.
///
/// # Errors
/// [`CatalogError::PartitionExists`]; [`CatalogError::ValuesMismatch`] when there is not one value per partition key.
pub async fn create(ports: &Ports, table: &TableRef, input: PartitionInput) -> Result<(), CatalogError> {
    let prepared = plan_create(table, input)?;
    store_parts(ports, prepared.descriptor.parts(&table.table_id)).await?;
    write(ports, table, prepared).await
}

/// Creates many partitions, each for itself; one answer per input, in order. Of several with the same values the first
/// goes first.
pub async fn create_many(
    ports: &Ports,
    table: &TableRef,
    inputs: Vec<PartitionInput>,
) -> Vec<Result<(), CatalogError>> {
    let count = inputs.len();
    let mut seen = HashSet::new();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for (at, input) in inputs.into_iter().enumerate() {
        if seen.insert(input.values.clone()) { first.push((at, input)) } else { again.push((at, input)) }
    }
    let mut answers: Vec<Option<Result<(), CatalogError>>> = vec![None; count];
    let mut set = |at: usize, answer: Result<(), CatalogError>| {
        if let Some(slot) = answers.get_mut(at) {
            *slot = Some(answer);
        }
    };
    let mut prepared = Vec::with_capacity(first.len());
    for (at, input) in first {
        match plan_create(table, input) {
            Ok(plan) => prepared.push((at, plan)),
            Err(error) => set(at, Err(error)),
        }
    }
    // All descriptors first: most batches share one. One that cannot be stored fails its own entries below.
    let mut writes = Vec::with_capacity(prepared.len());
    for (at, plan) in prepared {
        match store_parts(ports, plan.descriptor.parts(&table.table_id)).await {
            Ok(()) => writes.push(async move { (at, write(ports, table, plan).await) }),
            Err(error) => set(at, Err(error)),
        }
    }
    let mut done = futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    while let Some((at, answer)) = done.next().await {
        set(at, answer);
    }
    for (at, input) in again {
        set(at, create(ports, table, input).await);
    }
    let unanswered = || CatalogError::Broken("a partition of a batch was not answered".to_owned());
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unanswered()))).collect()
}
