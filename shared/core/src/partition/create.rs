//! Creating partitions.

use serde_json::{Map, Value as Json};

use super::attempts::{self, New};
use super::batch::{apply_groups, plan_groups, succeeded};
use super::change::Next;
use super::descriptor::{Descriptor, Shared, store_parts};
use super::estimate::{Limit, count_batch, count_later};
use super::history_item::Retention;
use super::irregular::Irregular;
use super::item;
use super::places::note_places;
use crate::catalog::{BODY_MAX_BYTES, CatalogError, PartitionId, Revision, TableRef, escaped_len, note_irregular};
use crate::ports::{Ports, Settings};
use crate::store::Item;

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

/// What a partition should say, ready to be written.
pub(super) struct Prepared {
    pub(super) descriptor: Descriptor,
    /// Its item but for what says which partition it is.
    pub(super) template: Item,
}

pub(super) fn prepare(values: &[String], input: PartitionInput) -> Result<Prepared, CatalogError> {
    let descriptor = Descriptor::split(input.storage_descriptor.unwrap_or_default());
    let mut body = input.rest;
    // The partition's own parameters and its descriptor's have one name on the wire.
    if let Some(parameters) = body.remove("Parameters") {
        body.insert("PartitionParameters".to_owned(), parameters);
    }
    body.extend(descriptor.own.clone());
    check_total(values, &body, &descriptor)?;
    let hash = |shared: &Option<Shared>| shared.as_ref().map(|shared| shared.hash);
    let template = item::template(values, hash(&descriptor.columns), hash(&descriptor.format), &body)?;
    Ok(Prepared { descriptor, template })
}

/// Its parts are stored apart, but one answer has to hold them all.
fn check_total(values: &[String], body: &Map<String, Json>, descriptor: &Descriptor) -> Result<(), CatalogError> {
    let text = |part: Result<String, serde_json::Error>| part.map_err(|error| CatalogError::Broken(error.to_string()));
    let own = text(serde_json::to_string(body))?.len() + values.iter().map(String::len).sum::<usize>();
    let shared: usize =
        [&descriptor.columns, &descriptor.format].into_iter().flatten().map(|part| part.size_bytes).sum();
    // Escaping makes six bytes of one at most, so the usual partition is not looked at twice.
    if own.saturating_mul(6).saturating_add(shared) <= BODY_MAX_BYTES {
        return Ok(());
    }
    let spelled = escaped_len(&text(serde_json::to_string(body))?) + escaped_len(&text(serde_json::to_string(values))?);
    let size_bytes = spelled.saturating_add(shared);
    if size_bytes <= BODY_MAX_BYTES {
        return Ok(());
    }
    let what = "This partition with its columns".to_owned();
    Err(CatalogError::TooLarge { what, size_bytes, max_bytes: BODY_MAX_BYTES })
}

/// A partition that can be created.
struct Planned {
    values: Vec<String>,
    prepared: Prepared,
}

fn plan_create(table: &TableRef, mut input: PartitionInput) -> Result<Planned, CatalogError> {
    if input.values.is_empty() || input.values.len() != table.keys.len() {
        return Err(CatalogError::ValuesMismatch);
    }
    let values = std::mem::take(&mut input.values);
    Ok(Planned { prepared: prepare(&values, input)?, values })
}

async fn write(ports: &Ports, table: &TableRef, planned: &Planned, retention: Retention) -> Result<(), CatalogError> {
    let key = item::key(table, &planned.values);
    let mut template = planned.prepared.template.clone();
    note_places(ports, table, &planned.prepared.descriptor).await?;
    item::make_room(ports, &table.table_id, &key, &mut template).await?;
    let now_ms = ports.clock.now_ms();
    let revision = Revision::fresh(ports.ids.as_ref());
    let partition_id = PartitionId::from_text(revision.as_str());
    let item = item::stamp(&template, &partition_id, &revision, now_ms, now_ms);
    let next = Next { item, key, values: &planned.values };
    let new = New { next, partition_id: &partition_id };
    attempts::create(ports, table, &new, retention).await
}

/// Creates a partition: one conditional put, after one for each shared part of its descriptor that is new to this
/// process, and one for each of its locations outside the table's. On a table with indexes, or whose keys have changed a while ago, one transaction instead of the put. Values
/// are not checked against the key types.
///
/// # Errors
/// [`CatalogError::PartitionExists`]; [`CatalogError::ValuesMismatch`] when there is not one value per partition key;
/// [`CatalogError::LimitExceeded`] when the table has about as many partitions as the settings allow.
pub async fn create(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    input: PartitionInput,
) -> Result<(), CatalogError> {
    let rules = Rules::of(settings);
    let planned = plan_create(table, input)?;
    rules.check(ports, table, &planned).await?;
    store_parts(ports, planned.prepared.descriptor.parts(&table.table_id)).await?;
    write(ports, table, &planned, rules.retention).await?;
    count_later(ports, table, 1);
    Ok(())
}

/// Creates many partitions, each for itself; one answer per input, in order. Of several with the same values the first
/// goes first.
pub async fn create_many(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    inputs: Vec<PartitionInput>,
) -> Vec<Result<(), CatalogError>> {
    create_every(ports, Rules::of(settings), table, inputs).await
}

/// What a deployment says of new partitions.
#[derive(Clone, Copy, Debug)]
struct Rules {
    retention: Retention,
    limit: Limit,
}

impl Rules {
    fn of(settings: &Settings) -> Self {
        Self {
            retention: Retention::of_ms(settings.history_retention_ms),
            limit: Limit(settings.max_partitions_per_table),
        }
    }

    /// Refuses a partition too many. One that exists is another matter, and comes first.
    async fn check(&self, ports: &Ports, table: &TableRef, planned: &Planned) -> Result<(), CatalogError> {
        if !self.limit.is_reached(table) {
            return Ok(());
        }
        match attempts::find(ports, table, &planned.values).await? {
            Some(_) => Err(CatalogError::PartitionExists),
            None => Err(self.limit.refusal()),
        }
    }
}

async fn create_every(
    ports: &Ports,
    rules: Rules,
    table: &TableRef,
    inputs: Vec<PartitionInput>,
) -> Vec<Result<(), CatalogError>> {
    let mut planned = Vec::with_capacity(inputs.len());
    for input in inputs {
        planned.push(match plan_create(table, input) {
            Ok(plan) => ready(ports, rules, table, plan).await,
            Err(error) => Err(error),
        });
    }
    let names =
        |plan: &Result<Planned, CatalogError>| plan.as_ref().map(|plan| plan.values.clone()).unwrap_or_default();
    let names: Vec<Vec<String>> = planned.iter().map(names).collect();
    let groups = plan_groups(&names.iter().map(|values| vec![values.as_slice()]).collect::<Vec<_>>());
    // Once for all; if that fails, each finds out for itself.
    let kinds = planned.iter().flatten().map(|plan| Irregular::of(&table.epoch_types, &plan.values));
    let kinds = kinds.fold(Irregular::NONE, Irregular::union);
    let noted = note_irregular(ports, table, kinds).await.is_ok();
    let with_note = TableRef { irregular: table.irregular.union(kinds), ..table.clone() };
    let (planned, table) = (&planned, if noted { &with_note } else { table });
    let answers = apply_groups(planned.len(), groups, |at, _| async move {
        match planned.get(at) {
            Some(Ok(planned)) => write(ports, table, planned, rules.retention).await,
            Some(Err(error)) => Err(error.clone()),
            None => Ok(()),
        }
    })
    .await;
    count_batch(ports, rules.limit, table, succeeded(&answers)).await;
    answers
}

/// All descriptors first: most batches share one. One that cannot be stored fails its own entries.
async fn ready(ports: &Ports, rules: Rules, table: &TableRef, plan: Planned) -> Result<Planned, CatalogError> {
    rules.check(ports, table, &plan).await?;
    store_parts(ports, plan.prepared.descriptor.parts(&table.table_id)).await?;
    Ok(plan)
}
