//! Column statistics of partitions and tables. Setting them changes neither the partition nor the table.

use std::collections::{BTreeMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};

use super::attempts::{find, read, remove, remove_many, upsert};
use super::batch::{apply_groups, plan_groups};
use super::statistics_item::{self, StatisticsOwner};
use crate::catalog::{CatalogError, Owner, Revision, TableRef, fold, load_bodies, note_statistics, store_body};
use crate::ports::Ports;
use crate::store::{Consistency, Item, Key, Query, SortRange, Table, get_every};

/// The data member that goes with each `Type`.
const DATA_MEMBERS: [(&str, &str); 7] = [
    ("BOOLEAN", "BooleanColumnStatisticsData"),
    ("DATE", "DateColumnStatisticsData"),
    ("DECIMAL", "DecimalColumnStatisticsData"),
    ("DOUBLE", "DoubleColumnStatisticsData"),
    ("LONG", "LongColumnStatisticsData"),
    ("STRING", "StringColumnStatisticsData"),
    ("BINARY", "BinaryColumnStatisticsData"),
];

/// The owner of a partition's statistics; one strong get.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`].
pub async fn owner_of(ports: &Ports, table: &TableRef, values: &[String]) -> Result<StatisticsOwner, CatalogError> {
    let found = find(ports, table, values).await?.ok_or(CatalogError::PartitionNotFound)?;
    Ok(StatisticsOwner::Partition(found.partition_id))
}

/// Statistics of these columns (in whatever case), each once and in order; none for a column that has none. One batch
/// get, or none for a table that never had statistics.
pub async fn get_statistics(
    ports: &Ports,
    table: &TableRef,
    owner: &StatisticsOwner,
    columns: &[String],
) -> Result<Vec<(String, Option<Map<String, Json>>)>, CatalogError> {
    let mut seen = HashSet::new();
    let wanted: Vec<(&String, Key)> = columns
        .iter()
        .filter(|column| seen.insert(fold(column)))
        .map(|column| (column, statistics_item::key(&table.table_id, table.shards, owner, &fold(column))))
        .collect();
    let mut found = BTreeMap::new();
    if table.has_statistics && !wanted.is_empty() {
        let keys: Vec<Key> = wanted.iter().map(|(_, key)| key.clone()).collect();
        let (items, clock) = (ports.items.as_ref(), ports.clock.as_ref());
        found = read(ports, || get_every(items, clock, &keys, Consistency::Strong)).await?;
        let mut loads: Vec<(Owner<'_>, &mut Item)> = Vec::with_capacity(found.len());
        for item in found.values_mut() {
            loads.push((Owner::Table(&table.table_id), item));
        }
        load_bodies(ports, loads).await?;
    }
    let answer = wanted.into_iter().map(|(column, key)| {
        let statistics = found.get(&key).map(statistics_item::decode).transpose()?;
        Ok((column.clone(), statistics))
    });
    answer.collect()
}

/// Sets statistics of columns (a checked `ColumnStatistics` each), each for itself; one answer per entry, in order. Of
/// several for one column the last one stays. One put per entry; the first of a table ever also write its head.
///
/// # Errors
/// Per entry: [`CatalogError::Invalid`] when its data are not of its `Type`. For all: [`CatalogError::TableNotFound`].
pub async fn put_statistics(
    ports: &Ports,
    table: &TableRef,
    owner: &StatisticsOwner,
    entries: Vec<Map<String, Json>>,
) -> Result<Vec<Result<(), CatalogError>>, CatalogError> {
    if !table.has_statistics && entries.iter().any(|entry| check_entry(entry).is_ok()) {
        // Before the statistics: whoever deletes the partition looks there whether it has any.
        note_statistics(ports, table).await?;
    }
    let names: Vec<[String; 1]> = entries.iter().map(|entry| [column_of(entry)]).collect();
    let groups = plan_groups(&names.iter().map(|name| vec![name.as_slice()]).collect::<Vec<_>>());
    let entries = &entries;
    let answers = apply_groups(entries.len(), groups, |at, _| async move {
        let Some(entry) = entries.get(at) else { return Ok(()) };
        check_entry(entry)?;
        let column = column_of(entry);
        let mut stored = entry.clone();
        stored.insert("ColumnName".to_owned(), Json::String(column.clone()));
        let key = statistics_item::key(&table.table_id, table.shards, owner, &column);
        let mut item = statistics_item::encode(&Revision::fresh(ports.ids.as_ref()), &stored)?;
        store_body(ports, Owner::Table(&table.table_id), &key, &mut item, statistics_item::WHAT).await?;
        Ok(upsert(ports, &key, &item).await?)
    });
    Ok(answers.await)
}

/// Deletes the statistics of a column, if there are any.
pub async fn delete_statistics(
    ports: &Ports,
    table: &TableRef,
    owner: &StatisticsOwner,
    column: &str,
) -> Result<(), CatalogError> {
    if !table.has_statistics {
        return Ok(());
    }
    let key = statistics_item::key(&table.table_id, table.shards, owner, &fold(column));
    Ok(remove(ports, &key).await?)
}

/// Removes all statistics of an owner that is gone. Nobody can reach them any more, so it is no failure of the caller's
/// operation if some stay: they go with the table.
pub(super) async fn forget_statistics(ports: &Ports, table: &TableRef, owner: &StatisticsOwner) {
    if !table.has_statistics {
        return;
    }
    let (pk, prefix) = statistics_item::place_of(&table.table_id, table.shards, owner);
    let mut query = Query::new(Table::Partitions, pk, SortRange::Prefix(prefix.into()));
    loop {
        let page = match read(ports, || ports.items.query(&query)).await {
            Ok(page) => page,
            Err(error) => return tracing::warn!(%error, "statistics of a deleted partition stay until its table goes"),
        };
        let keys: Vec<Key> = page.items.into_iter().map(|(key, _)| key).collect();
        if let Err(error) = remove_many(ports, keys).await {
            return tracing::warn!(%error, "statistics of a deleted partition stay until its table goes");
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return;
        }
    }
}

fn column_of(entry: &Map<String, Json>) -> String {
    fold(entry.get("ColumnName").and_then(Json::as_str).unwrap_or_default())
}

/// What the model cannot say: one data member and no other, the one of the type; and what its types leave open.
fn check_entry(entry: &Map<String, Json>) -> Result<(), CatalogError> {
    let invalid = |text: String| Err(CatalogError::Invalid(text));
    let empty = Map::new();
    let data = entry.get("StatisticsData").and_then(Json::as_object).unwrap_or(&empty);
    let type_name = data.get("Type").and_then(Json::as_str).unwrap_or_default();
    let given: Vec<&str> =
        DATA_MEMBERS.iter().map(|(_, member)| *member).filter(|member| data.contains_key(*member)).collect();
    let wanted = DATA_MEMBERS.iter().find(|(name, _)| *name == type_name).map(|(_, member)| *member);
    let Some(wanted) = wanted.filter(|wanted| given == [*wanted]) else {
        let expected = wanted.unwrap_or("the data member of a known type");
        let given = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
        return invalid(format!(
            "StatisticsData of Type {type_name} must have {expected} and no other; it has {given}."
        ));
    };
    let members = data.get(wanted).and_then(Json::as_object).unwrap_or(&empty);
    if matches!(members.get("AverageLength").and_then(Json::as_str), Some("NaN" | "-Infinity")) {
        return invalid("AverageLength must be at least 0.".to_owned());
    }
    for bound in ["MinimumValue", "MaximumValue"] {
        let unscaled = members.get(bound).and_then(|value| value.get("UnscaledValue")).and_then(Json::as_str);
        if unscaled.is_some_and(|text| STANDARD.decode(text).map_or(true, |bytes| bytes.is_empty())) {
            return invalid(format!("{bound}.UnscaledValue must be a number in two's complement, in base64."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_must_be_those_of_the_type() {
        let check = |data: Json| {
            let entry = json!({ "ColumnName": "a", "StatisticsData": data });
            check_entry(entry.as_object().unwrap()).map_err(|error| error.to_string())
        };
        for (type_name, member) in DATA_MEMBERS {
            assert_eq!(check(json!({ "Type": type_name, member: {} })), Ok(()));
            let other = if type_name == "LONG" { "DateColumnStatisticsData" } else { "LongColumnStatisticsData" };
            for data in [
                json!({ "Type": type_name }),
                json!({ "Type": type_name, other: {} }),
                json!({ "Type": type_name, member: {}, other: {} }),
            ] {
                let error = check(data).unwrap_err();
                assert!(error.contains(member) && error.contains(type_name), "{error}");
            }
        }
        for (average, fine) in [("NaN", false), ("-Infinity", false), ("Infinity", true)] {
            let data = json!({ "Type": "STRING", "StringColumnStatisticsData": { "AverageLength": average } });
            assert_eq!(check(data).is_ok(), fine, "{average}");
        }
        for (text, fine) in [("AQ==", true), ("", false), ("?", false)] {
            let bound = json!({ "MinimumValue": { "UnscaledValue": text, "Scale": 2 } });
            assert_eq!(check(json!({ "Type": "DECIMAL", "DecimalColumnStatisticsData": bound })).is_ok(), fine);
        }
    }
}
