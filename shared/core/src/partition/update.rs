//! Replacing what partitions say, and moving them to other values.

use super::attempts::change;
use super::batch::{Knowledge, Known, Turn, apply_groups, plan_groups};
use super::change::{Next, plan_change};
use super::create::{PartitionInput, Prepared, prepare};
use super::descriptor::store_parts;
use super::history_item::Retention;
use super::item::{self, Current};
use super::places::note_places;
use crate::catalog::{CatalogError, Revision, TableRef, note_retention};
use crate::ports::{PartitionMoves, Ports, Settings};
use crate::store::{Item, Write};

/// A partition by its values, and what it should say from now on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionUpdate {
    pub values: Vec<String>,
    /// Without values, they stay. With others, the partition moves.
    pub input: PartitionInput,
}

/// An update that makes sense.
struct Planned {
    values: Vec<String>,
    /// The values afterwards.
    target: Vec<String>,
    prepared: Prepared,
}

fn plan_update(table: &TableRef, settings: &Settings, update: PartitionUpdate) -> Result<Planned, CatalogError> {
    let PartitionUpdate { values, mut input } = update;
    let given = std::mem::take(&mut input.values);
    let target = if given.is_empty() { values.clone() } else { given };
    if target != values {
        if target.len() != table.keys.len() {
            return Err(CatalogError::ValuesMismatch);
        }
        if settings.partition_moves == PartitionMoves::Refuse {
            let text = "The Values of a partition cannot be changed: create another partition and delete this one.";
            return Err(CatalogError::Invalid(text.to_owned()));
        }
    }
    Ok(Planned { prepared: prepare(&target, input)?, values, target })
}

/// The partition after its update. Identity and creation time stay, so its statistics stay with it.
fn plan_writes(
    ports: &Ports,
    table: &TableRef,
    planned: &Planned,
    template: &Item,
    old: &Current,
    retention: Retention,
) -> Vec<Write> {
    let valid_from_ms = ports.clock.now_ms().max(old.valid_from_ms.saturating_add(1));
    let revision = Revision::fresh(ports.ids.as_ref());
    let item = item::stamp(template, &old.partition_id, &revision, old.created_ms, valid_from_ms);
    let stays = planned.target == planned.values;
    let key = if stays { old.key.clone() } else { item::key(table, &planned.target) };
    plan_change(table, Some(old), Some(&Next { item, key, values: &planned.target }), valid_from_ms, retention)
}

async fn apply(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    planned: &Planned,
    knowledge: Knowledge,
    expected: Option<&Revision>,
) -> Result<(), CatalogError> {
    let known = knowledge.into_known()?;
    store_parts(ports, planned.prepared.descriptor.parts(&table.table_id)).await?;
    note_retention(ports, table, settings.history_retention_ms).await?;
    note_places(ports, table, &planned.prepared.descriptor).await?;
    let retention = Retention::of_ms(settings.history_retention_ms);
    let mut template = planned.prepared.template.clone();
    item::make_room(ports, &table.table_id, &item::key(table, &planned.target), &mut template).await?;
    let plan = |old: &Current| plan_writes(ports, table, planned, &template, old, retention);
    change(ports, table, &planned.values, known, expected, plan).await.map(|_| ())
}

/// Replaces what a partition says: one strong get and one transaction, after a conditional put for each shared part of
/// its descriptor that is new to this process. What it said before goes into the history.
///
/// With other values in the input it moves: at once, with its statistics, and never over another partition.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`]; [`CatalogError::PartitionChanged`] if it has not the expected revision;
/// [`CatalogError::PartitionExists`] where it should move to; [`CatalogError::ValuesMismatch`] when there is not one new
/// value per partition key; [`CatalogError::Invalid`] for a move where the settings refuse it.
pub async fn update(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    update: PartitionUpdate,
    expected: Option<&Revision>,
) -> Result<(), CatalogError> {
    let planned = plan_update(table, settings, update)?;
    apply(ports, settings, table, &planned, Knowledge::Unknown, expected).await
}

/// Updates many partitions, each for itself and only while it has the revision beside it, if there is one; one answer per
/// entry, in order. Entries that name a partition in common, to update it or as the target of a move, take effect in order.
pub async fn update_many(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    updates: Vec<(PartitionUpdate, Option<Revision>)>,
) -> Vec<Result<(), CatalogError>> {
    let (updates, expected): (Vec<PartitionUpdate>, Vec<Option<Revision>>) = updates.into_iter().unzip();
    let planned: Vec<Result<Planned, CatalogError>> =
        updates.into_iter().map(|update| plan_update(table, settings, update)).collect();
    let groups = plan_groups(&planned.iter().map(touched).collect::<Vec<_>>());
    let wanted = planned.iter().flatten().map(|planned| planned.values.as_slice());
    let known = match Known::read(ports, table, wanted).await {
        Ok(known) => known,
        Err(error) => return planned.into_iter().map(|planned| planned.and(Err(error.clone()))).collect(),
    };
    let (planned, known, expected) = (&planned, &known, &expected);
    apply_groups(planned.len(), groups, |at, turn: Turn| async move {
        match planned.get(at) {
            Some(Ok(planned)) => {
                let knowledge = known.of(table, &planned.values, turn);
                let expected = expected.get(at).and_then(Option::as_ref);
                apply(ports, settings, table, planned, knowledge, expected).await
            }
            Some(Err(error)) => Err(error.clone()),
            None => Ok(()),
        }
    })
    .await
}

fn touched(planned: &Result<Planned, CatalogError>) -> Vec<&[String]> {
    match planned {
        Ok(planned) => vec![planned.values.as_slice(), planned.target.as_slice()],
        Err(_) => Vec::new(),
    }
}
