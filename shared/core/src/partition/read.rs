//! Reading partitions by their values.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value as Json};

use super::attempts::find;
use super::descriptor::{ColumnSchema, Loaded, Part, PartId, assemble, load_parts};
use super::item::{self, PartitionItem};
use crate::catalog::{CatalogError, Revision, TableId, TableRef};
use crate::limits::BATCH_GET_MAX_KEYS;
use crate::ports::Ports;
use crate::store::{Consistency, Item, Key, get_every};

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

/// Reads the shared parts that these items name and puts all together.
pub(super) async fn complete(
    ports: &Ports,
    table: &TableId,
    items: Vec<PartitionItem>,
    schema: ColumnSchema,
) -> Result<Vec<Partition>, CatalogError> {
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
    let stored = item::decode(&found.item)?;
    let mut partitions = complete(ports, &table.table_id, vec![stored], ColumnSchema::Include).await?;
    partitions.pop().ok_or(CatalogError::PartitionNotFound)
}

/// Those of the wanted partitions that exist, each once, in the order they were asked for.
pub async fn get_many(ports: &Ports, table: &TableRef, wanted: &[Vec<String>]) -> Result<Vec<Partition>, CatalogError> {
    let mut seen = HashSet::new();
    let keys: Vec<Key> =
        wanted.iter().filter(|values| seen.insert(*values)).map(|values| item::key(table, values)).collect();
    let batches: Vec<Vec<Key>> = keys.chunks(BATCH_GET_MAX_KEYS).map(<[Key]>::to_vec).collect();
    let reads = batches.into_iter().map(|batch| async move {
        get_every(ports.items.as_ref(), ports.clock.as_ref(), &batch, Consistency::Strong).await
    });
    let found: Vec<BTreeMap<Key, Item>> = futures::stream::iter(reads).buffered(BATCHES_AT_ONCE).try_collect().await?;
    let mut found: BTreeMap<Key, Item> = found.into_iter().flatten().collect();
    let mut stored = Vec::with_capacity(found.len());
    for key in &keys {
        if let Some(item) = found.remove(key) {
            stored.push(item::decode(&item)?);
        }
    }
    complete(ports, &table.table_id, stored, ColumnSchema::Include).await
}
