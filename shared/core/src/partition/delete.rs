//! Deleting partitions.

use super::attempts::change;
use super::batch::{Knowledge, Known, apply_groups, plan_groups, succeeded};
use super::change::plan_change;
use super::estimate::{Limit, count_batch, count_later};
use super::history_item::Retention;
use super::item::Current;
use super::statistics::forget_statistics;
use super::statistics_item::StatisticsOwner;
use crate::catalog::{CatalogError, Revision, TableRef, note_retention};
use crate::ports::{Ports, Settings};

/// Deletes the partition with these values; their number need not fit the table's keys, which may have changed. One
/// strong get and one transaction: what it said goes into the history.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`]; [`CatalogError::PartitionChanged`] if it has not the expected revision.
pub async fn delete(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    values: &[String],
    expected: Option<&Revision>,
) -> Result<(), CatalogError> {
    apply(ports, settings, table, values, Knowledge::Unknown, expected).await?;
    count_later(ports, table, -1);
    Ok(())
}

async fn apply(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    values: &[String],
    knowledge: Knowledge,
    expected: Option<&Revision>,
) -> Result<(), CatalogError> {
    let known = knowledge.into_known()?;
    note_retention(ports, table, settings.history_retention_ms).await?;
    let retention = Retention::of_ms(settings.history_retention_ms);
    let plan = |old: &Current| {
        let deleted_ms = ports.clock.now_ms().max(old.valid_from_ms.saturating_add(1));
        plan_change(table, Some(old), None, deleted_ms, retention)
    };
    let deleted = change(ports, table, values, known, expected, plan).await?;
    forget_statistics(ports, table, &StatisticsOwner::Partition(deleted.partition_id)).await;
    Ok(())
}

/// Deletes many partitions, each for itself and only while it has the revision beside it, if there is one; one answer per
/// entry, in order. Of several entries with the same values the first goes first.
pub async fn delete_many(
    ports: &Ports,
    settings: &Settings,
    table: &TableRef,
    entries: Vec<(Vec<String>, Option<Revision>)>,
) -> Vec<Result<(), CatalogError>> {
    let (entries, expected): (Vec<Vec<String>>, Vec<Option<Revision>>) = entries.into_iter().unzip();
    let groups = plan_groups(&entries.iter().map(|values| vec![values.as_slice()]).collect::<Vec<_>>());
    let known = match Known::read(ports, table, entries.iter().map(Vec::as_slice)).await {
        Ok(known) => known,
        Err(error) => return entries.iter().map(|_| Err(error.clone())).collect(),
    };
    let (entries, known, expected) = (&entries, &known, &expected);
    let answers = apply_groups(entries.len(), groups, |at, turn| async move {
        let values = entries.get(at).map(Vec::as_slice).unwrap_or_default();
        let expected = expected.get(at).and_then(Option::as_ref);
        apply(ports, settings, table, values, known.of(table, values, turn), expected).await
    })
    .await;
    let limit = Limit(settings.max_partitions_per_table);
    count_batch(ports, limit, table, -succeeded(&answers)).await;
    answers
}
