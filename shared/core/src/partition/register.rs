//! Registering the partitions that a commit wrote to.

use serde_json::{Map, Value as Json};

use super::batch::WRITES_AT_ONCE;
use super::create::{PartitionInput, Rules, create_every};
use crate::catalog::tables::read_definition;
use crate::catalog::{CatalogError, TableRef};
use crate::ports::Ports;

/// A partition that should be in the catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPartition {
    /// In the order of the table's partition keys.
    pub values: Vec<String>,
    /// Folder of the partition, as a URI.
    pub location: Option<String>,
    pub parameters: Map<String, Json>,
}

/// What [`register`] found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    pub created: usize,
    /// Were there already and are left exactly as they are.
    pub existing: usize,
}

/// Makes sure that these partitions exist. Idempotent: one that exists is left as it is, whatever it says, since its
/// owner may have changed it. A new one takes the table's StorageDescriptor with its own location.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if the table is gone; the first partition that could not be written. Those written
/// before stay: call again.
pub async fn register(ports: &Ports, table: &TableRef, new: Vec<NewPartition>) -> Result<Registered, CatalogError> {
    let definition = read_definition(ports, &table.table_id).await?;
    let definition = definition.ok_or_else(|| CatalogError::TableNotFound(table.name.clone()))?;
    let descriptor = definition.storage_descriptor().cloned().unwrap_or_default();
    let inputs: Vec<PartitionInput> = new
        .into_iter()
        .map(|partition| {
            let mut descriptor = descriptor.clone();
            descriptor.remove("Location");
            if let Some(location) = partition.location {
                descriptor.insert("Location".to_owned(), Json::String(location));
            }
            let rest = Map::from_iter([("Parameters".to_owned(), Json::Object(partition.parameters))]);
            PartitionInput { values: partition.values, storage_descriptor: Some(descriptor), rest }
        })
        .collect();
    let mut registered = Registered::default();
    for batch in inputs.chunks(WRITES_AT_ONCE * 4) {
        for answer in create_every(ports, Rules::without_limit(), table, batch.to_vec()).await {
            match answer {
                Ok(()) => registered.created += 1,
                Err(CatalogError::PartitionExists) => registered.existing += 1,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(registered)
}
