//! Reading partitions by their values.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Map, Value as Json};

use super::attempts::{find, get_patiently};
use super::descriptor::{ColumnSchema, Loaded, Part, PartId, assemble, load_parts};
use super::item::{self, PartitionItem, current_epoch, key_in, older_epochs};
use crate::catalog::{CatalogError, Owner, Revision, TableId, TableRef, load_bodies};
use crate::limits::{ANSWER_MAX_BYTES, BATCH_GET_MAX_KEYS};
use crate::ports::Ports;
use crate::store::{Item, Key, StoreError};

const BATCHES_AT_ONCE: usize = 4;

/// A partition with everything it says. Shared parts are shared with others.
#[derive(Clone, Debug)]
pub struct Partition {
    pub(super) stored: PartitionItem,
    columns: Option<Arc<Map<String, Json>>>,
    format: Option<Arc<Map<String, Json>>>,
    schema: ColumnSchema,
}

impl Partition {
    pub fn values(&self) -> &[String] {
        &self.stored.values
    }

    pub fn revision(&self) -> &Revision {
        &self.stored.revision
    }

    pub fn created_ms(&self) -> i64 {
        self.stored.created_ms
    }

    pub fn location(&self) -> Option<&str> {
        self.stored.body.get("Location")?.as_str()
    }

    /// `StorageDescriptor` with defaults filled in, `Parameters`, and what else the input said.
    pub fn into_members(self) -> Map<String, Json> {
        let mut body = self.stored.body;
        let parameters = body.remove("PartitionParameters").unwrap_or_else(|| Json::Object(Map::new()));
        let columns = self.columns.as_deref();
        let descriptor = assemble(&mut body, columns, self.format.as_deref(), self.schema);
        body.insert("StorageDescriptor".to_owned(), Json::Object(descriptor));
        body.insert("Parameters".to_owned(), parameters);
        body
    }
}

/// Reads what these items name, bodies on S3 and shared parts of descriptors, and puts all together.
pub(super) async fn complete(
    ports: &Ports,
    table: &TableId,
    mut rows: Vec<Item>,
    schema: ColumnSchema,
) -> Result<Vec<Partition>, CatalogError> {
    let mut loads: Vec<(Owner<'_>, &mut Item)> = Vec::with_capacity(rows.len());
    for row in &mut rows {
        loads.push((Owner::Table(table), row));
    }
    load_bodies(ports, loads).await?;
    let items = rows.iter().map(item::decode).collect::<Result<Vec<PartitionItem>, _>>()?;
    let ids = |item: &PartitionItem| -> [Option<PartId>; 2] {
        let columns = item.columns.filter(|_| schema == ColumnSchema::Include);
        [
            columns.map(|hash| (table.clone(), Part::Columns, hash)),
            item.format.map(|hash| (table.clone(), Part::Format, hash)),
        ]
    };
    let wanted: BTreeSet<PartId> = items.iter().flat_map(|item| ids(item).into_iter().flatten()).collect();
    let loaded = if wanted.is_empty() { Loaded::new() } else { load_parts(ports, wanted).await? };
    let find = |id: Option<PartId>| match id {
        None => Ok(None),
        Some(id) => match loaded.get(&id) {
            Some(content) => Ok(Some(content.clone())),
            None => Err(CatalogError::Broken(format!("table {table} has lost a {:?} descriptor", id.1))),
        },
    };
    let build = |stored: PartitionItem| {
        let [columns, format] = ids(&stored);
        Ok(Partition { columns: find(columns)?, format: find(format)?, stored, schema })
    };
    items.into_iter().map(build).collect()
}

/// The partition with these values: one strong get, and a batch get when its descriptor is new to this process.
///
/// # Errors
/// [`CatalogError::PartitionNotFound`].
pub async fn get(ports: &Ports, table: &TableRef, values: &[String]) -> Result<Partition, CatalogError> {
    let found = find(ports, table, values).await?.ok_or(CatalogError::PartitionNotFound)?;
    let mut partitions = complete(ports, &table.table_id, vec![found.item], ColumnSchema::Include).await?;
    partitions.pop().ok_or(CatalogError::PartitionNotFound)
}

/// What a batch get found.
#[derive(Clone, Debug, Default)]
pub struct FoundPartitions {
    /// Those that exist, each once, in the order they were asked for.
    pub partitions: Vec<Partition>,
    /// Values of those that were not looked at, because the store had no time for them or the others are enough for an
    /// answer; ask again.
    pub unread: Vec<Vec<String>>,
}

/// Those of the wanted partitions that exist, up to about [`ANSWER_MAX_BYTES`] of them. Always gets on: it answers at
/// least one partition if any of them exists and can be read.
///
/// # Errors
/// The store's, if it had time for nothing.
pub async fn get_many(
    ports: &Ports,
    table: &TableRef,
    wanted: &[Vec<String>],
) -> Result<FoundPartitions, CatalogError> {
    let mut seen = HashSet::new();
    let wanted: Vec<&Vec<String>> = wanted.iter().filter(|values| seen.insert(*values)).collect();
    let batches: Vec<Vec<Vec<String>>> =
        wanted.chunks(BATCH_GET_MAX_KEYS).map(|batch| batch.iter().map(|values| (*values).clone()).collect()).collect();
    let reads = batches.into_iter().map(|batch| read_batch(ports, table, batch));
    let mut reads = futures::stream::iter(reads).buffered(BATCHES_AT_ONCE);
    let (mut stored, mut unread, mut trouble) = (Vec::new(), Vec::new(), None);
    let (mut size_bytes, mut looked_at) = (0, 0);
    while let Some(batch) = reads.next().await {
        let batch = batch?;
        trouble = trouble.or(batch.trouble);
        for (values, state) in batch.states {
            looked_at += 1;
            match state {
                State::Absent => {}
                State::Present(item) if size_bytes < ANSWER_MAX_BYTES => {
                    size_bytes += item::size_bytes(&item);
                    stored.push(item);
                }
                State::Present(_) | State::Unread => unread.push(values),
            }
        }
        if size_bytes >= ANSWER_MAX_BYTES {
            break;
        }
    }
    unread.extend(wanted.iter().skip(looked_at).map(|values| (*values).clone()));
    match trouble {
        Some(error) if stored.is_empty() => Err(error.into()),
        _ => {
            let partitions = complete(ports, &table.table_id, stored, ColumnSchema::Include).await?;
            Ok(FoundPartitions { partitions, unread })
        }
    }
}

enum State {
    Present(Item),
    Absent,
    Unread,
}

struct Batch {
    states: Vec<(Vec<String>, State)>,
    /// Why some are unread.
    trouble: Option<StoreError>,
}

/// Those of the wanted partitions that exist, in no particular order; asks until all have been looked at.
///
/// # Errors
/// The store's, if it had no time for some of them.
pub(super) async fn read_every(
    ports: &Ports,
    table: &TableRef,
    wanted: &[Vec<String>],
) -> Result<Vec<(Vec<String>, Item)>, CatalogError> {
    let mut found = Vec::new();
    let mut wanted = wanted.to_vec();
    while !wanted.is_empty() {
        let batch = read_batch(ports, table, std::mem::take(&mut wanted)).await?;
        if let Some(trouble) = batch.trouble {
            return Err(trouble.into());
        }
        for (values, state) in batch.states {
            match state {
                State::Present(item) => found.push((values, item)),
                State::Absent => {}
                State::Unread => wanted.push(values),
            }
        }
    }
    Ok(found)
}

/// Looks for up to [`BATCH_GET_MAX_KEYS`] partitions, first in the current epoch.
async fn read_batch(ports: &Ports, table: &TableRef, wanted: Vec<Vec<String>>) -> Result<Batch, CatalogError> {
    let mut epochs = vec![current_epoch(table)];
    let older: Vec<_> = older_epochs(table).collect();
    if !older.is_empty() {
        // As for a single one: the worker moves partitions to later epochs meanwhile.
        epochs.extend(older.into_iter().rev());
        epochs.push(current_epoch(table));
    }
    let mut states: Vec<(Vec<String>, State)> = wanted.into_iter().map(|values| (values, State::Absent)).collect();
    let mut trouble = None;
    for epoch in epochs {
        let missing = states.iter().filter(|(_, state)| matches!(state, State::Absent));
        let keys: Vec<Key> = missing.map(|(values, _)| key_in(table, epoch, values)).collect();
        let mut read = get_patiently(ports, keys).await?;
        trouble = trouble.or(read.trouble);
        for (values, state) in states.iter_mut().filter(|(_, state)| matches!(state, State::Absent)) {
            let key = key_in(table, epoch, values);
            if let Some(item) = read.found.remove(&key) {
                *state = State::Present(item);
            } else if read.left.contains(&key) {
                *state = State::Unread;
            }
        }
    }
    Ok(Batch { states, trouble })
}
