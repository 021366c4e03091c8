//! Partitions that follow what something else says of them, such as a table's log: planned here, written by the follower
//! together with what it keeps of how far it is.

use serde_json::{Map, Value as Json};

use super::attempts::find;
use super::batch::{Knowledge, Known, Turn};
use super::change::{Next, plan_change};
use super::create::{PartitionInput, prepare};
use super::descriptor::store_parts;
use super::estimate::{Limit, count_batch};
use super::history_item::Retention;
use super::irregular::note_writes;
use super::item::{self, Current};
use super::statistics::forget_statistics;
use super::statistics_item::StatisticsOwner;
use crate::catalog::{CatalogError, Owner, PartitionId, Revision, TableRef, load_body};
use crate::ports::{Ports, Settings};
use crate::store::Write;

/// Where a partition lies. A location that somebody else gave it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedLocation {
    pub now: String,
    /// What the follower said before, if it did.
    pub before: Option<String>,
}

/// What a partition should be.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// There, with these parameters beside those that it has, in a folder of the table's format.
    Present {
        location: FollowedLocation,
        parameters: Map<String, Json>,
    },
    Gone,
}

/// A partition by its values, in the order of the table's keys, and what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowedPartition {
    pub values: Vec<String>,
    pub target: Target,
}

/// What becomes of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Created,
    Changed,
    Removed(PartitionId),
    /// It is as it should be.
    Nothing,
}

/// One partition's part of a transaction. Every write is conditional on the state that it was planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowPlan {
    pub effect: Effect,
    pub writes: Vec<Write>,
    /// Since when the partition will say so; `changed_ms`, or later where it changed later.
    pub changed_ms: i64,
}

/// Plans many partitions: one batch read of all of them. `descriptor` is the table's, for partitions that appear.
///
/// # Errors
/// A partition that cannot be kept, and the store's.
pub async fn plan_follow(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    descriptor: &Map<String, Json>,
    partitions: &[FollowedPartition],
    changed_ms: i64,
) -> Result<Vec<FollowPlan>, CatalogError> {
    let known = Known::read(ports, table, partitions.iter().map(|one| one.values.as_slice())).await?;
    let retention = Retention::of_ms(settings.history_retention_ms);
    let mut plans = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let old = match known.of(table, &partition.values, Turn::First) {
            Knowledge::Present(old) => Some(*old),
            Knowledge::Absent => None,
            Knowledge::Unknown => find(ports, table, &partition.values).await?,
        };
        plans.push(match (&partition.target, old) {
            (Target::Gone, None) => FollowPlan { effect: Effect::Nothing, writes: Vec::new(), changed_ms },
            (Target::Gone, Some(old)) => {
                let changed_ms = changed_ms.max(old.valid_from_ms.saturating_add(1));
                let writes = plan_change(table, Some(&old), None, changed_ms, retention);
                FollowPlan { effect: Effect::Removed(old.partition_id), writes, changed_ms }
            }
            (Target::Present { location, parameters }, Some(old)) => {
                plan_changed(ports, table, &old, (location, parameters), changed_ms, retention).await?
            }
            (Target::Present { location, parameters }, None) => {
                let says = (location.now.as_str(), parameters);
                plan_created(ports, table, descriptor, &partition.values, says, changed_ms, retention).await?
            }
        });
    }
    // Before the writes: whoever lists looks there for what else to look for.
    let all: Vec<Write> = plans.iter().flat_map(|plan| plan.writes.iter().cloned()).collect();
    note_writes(ports, table, &all).await?;
    Ok(plans)
}

async fn plan_created(
    ports: &Ports,
    table: &TableRef,
    descriptor: &Map<String, Json>,
    values: &[String],
    (location, parameters): (&str, &Map<String, Json>),
    changed_ms: i64,
    retention: Retention,
) -> Result<FollowPlan, CatalogError> {
    let mut descriptor = descriptor.clone();
    descriptor.insert("Location".to_owned(), Json::String(location.to_owned()));
    let mut parameters = parameters.clone();
    // As below.
    parameters.retain(|_, value| !value.is_null());
    let rest = Map::from_iter([("Parameters".to_owned(), Json::Object(parameters))]);
    let input = PartitionInput { values: values.to_vec(), storage_descriptor: Some(descriptor), rest };
    let prepared = prepare(values, input)?;
    store_parts(ports, prepared.descriptor.parts(&table.table_id)).await?;
    let key = item::key(table, values);
    let mut template = prepared.template;
    item::make_room(ports, &table.table_id, &key, &mut template).await?;
    let revision = Revision::fresh(ports.ids.as_ref());
    let partition_id = PartitionId::from_text(revision.as_str());
    let item = item::stamp(&template, &partition_id, &revision, changed_ms, changed_ms);
    let writes = plan_change(table, None, Some(&Next { item, key, values }), changed_ms, retention);
    Ok(FollowPlan { effect: Effect::Created, writes, changed_ms })
}

async fn plan_changed(
    ports: &Ports,
    table: &TableRef,
    old: &Current,
    (location, parameters): (&FollowedLocation, &Map<String, Json>),
    changed_ms: i64,
    retention: Retention,
) -> Result<FollowPlan, CatalogError> {
    let mut loaded = old.item.clone();
    load_body(ports, Owner::Table(&table.table_id), &mut loaded).await?;
    let stored = item::decode(&loaded)?;
    let mut body = stored.body.clone();
    let mut merged = match body.remove("PartitionParameters") {
        Some(Json::Object(merged)) => merged,
        _ => Map::new(),
    };
    merged.extend(parameters.clone());
    // A parameter that is null says that there is nothing to say.
    merged.retain(|_, value| !value.is_null());
    body.insert("PartitionParameters".to_owned(), Json::Object(merged));
    let at = body.get("Location").and_then(Json::as_str);
    if at.is_none() || at == location.before.as_deref() {
        body.insert("Location".to_owned(), Json::String(location.now.clone()));
    }
    if body == stored.body {
        return Ok(FollowPlan { effect: Effect::Nothing, writes: Vec::new(), changed_ms });
    }
    let mut template = item::template(&stored.values, stored.columns, stored.format, &body)?;
    item::make_room(ports, &table.table_id, &old.key, &mut template).await?;
    let changed_ms = changed_ms.max(old.valid_from_ms.saturating_add(1));
    let revision = Revision::fresh(ports.ids.as_ref());
    let item = item::stamp(&template, &old.partition_id, &revision, old.created_ms, changed_ms);
    let next = Next { item, key: old.key.clone(), values: &old.values };
    let writes = plan_change(table, Some(old), Some(&next), changed_ms, retention);
    Ok(FollowPlan { effect: Effect::Changed, writes, changed_ms })
}

/// What is left to do once plans were written: never fails, since nobody depends on it.
pub async fn after_follow(ports: &Ports, table: &TableRef, effects: &[Effect]) {
    let mut change = 0_i64;
    for effect in effects {
        match effect {
            Effect::Created => change += 1,
            Effect::Removed(partition) => {
                change -= 1;
                forget_statistics(ports, table, &StatisticsOwner::Partition(partition.clone())).await;
            }
            Effect::Changed | Effect::Nothing => {}
        }
    }
    if change != 0 {
        count_batch(ports, Limit(u64::MAX), table, change).await;
    }
}
