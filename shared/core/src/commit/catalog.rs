//! What the commit path asks of the product's own catalog: where a table lies, and where the partitions of its commits are registered.

use async_trait::async_trait;

use super::error::CommitError;
use super::partition_values::TouchedPartition;
use super::sync::{PartitionSink, SyncError, SyncReport};
use super::wiring::TableDirectory;
use crate::catalog::locations::tables_at;
use crate::catalog::tables::get_table;
use crate::catalog::{CatalogError, TableRef};
use crate::location::Location;
use crate::partition::{NewPartition, register};
use crate::ports::{App, Ports};

/// The catalog in the same deployment.
#[derive(Clone, Debug)]
pub struct OwnCatalog {
    ports: Ports,
}

impl OwnCatalog {
    pub fn new(app: &App) -> Self {
        Self { ports: app.ports.clone() }
    }
}

#[async_trait]
impl TableDirectory for OwnCatalog {
    async fn location(&self, database: &str, table: &str) -> Result<Option<Location>, CommitError> {
        let found = get_table(&self.ports, database, table).await;
        match found {
            Ok((_, definition)) => definition
                .location()
                .map_err(|error| CommitError::Catalog(format!("table {database}.{table}: {error}"))),
            Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => Ok(None),
            Err(CatalogError::Store(error)) => Err(error.into()),
            Err(error) => Err(CommitError::Catalog(error.to_string())),
        }
    }
}

/// For each of the table's partition keys its place in Delta's list. Names differ in case at most: the catalog folds them.
fn plan_order(table: &TableRef, partition_columns: &[String]) -> Result<Vec<usize>, SyncError> {
    let place = |name: &str| partition_columns.iter().position(|column| column.to_lowercase() == name.to_lowercase());
    let order: Option<Vec<usize>> = table.keys.iter().map(|key| place(&key.name)).collect();
    order.filter(|order| order.len() == partition_columns.len()).ok_or_else(|| {
        let keys: Vec<&str> = table.keys.iter().map(|key| key.name.as_str()).collect();
        SyncError(format!(
            "{}.{} has the partition keys [{}] in the catalog and the partition columns [{}] in Delta: correct the \
             catalog's table, then send the event again",
            table.database,
            table.name,
            keys.join(", "),
            partition_columns.join(", "),
        ))
    })
}

#[async_trait]
impl PartitionSink for OwnCatalog {
    /// Every table of the catalog at this very location gets the partitions.
    async fn register(
        &self,
        root: &Location,
        partition_columns: &[String],
        partitions: &[TouchedPartition],
    ) -> Result<SyncReport, SyncError> {
        let failed = |error: CatalogError| SyncError(error.to_string());
        let tables = tables_at(self.ports.items.as_ref(), self.ports.clock.as_ref(), root).await.map_err(failed)?;
        if tables.is_empty() {
            return Ok(SyncReport::UnknownTable);
        }
        let (mut created, mut existing) = (0_u64, 0_u64);
        // Delta's unpartitioned tables touch one partition without values; the catalog has none for them.
        let partitioned = !partition_columns.is_empty();
        for table in tables.iter().map(|located| &located.table).filter(|_| partitioned) {
            let order = plan_order(table, partition_columns)?;
            let new = partitions.iter().map(|partition| NewPartition {
                values: order.iter().filter_map(|place| partition.values.get(*place).cloned()).collect(),
                location: Some(partition.location.as_ref().unwrap_or(root).to_string()),
                ..NewPartition::default()
            });
            let registered = register(&self.ports, table, new.collect()).await.map_err(failed)?;
            created += u64::try_from(registered.created).unwrap_or(u64::MAX);
            existing += u64::try_from(registered.existing).unwrap_or(u64::MAX);
        }
        Ok(SyncReport::Registered { created, existing })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::create_database;
    use crate::catalog::tables::{create_table, find_table};
    use crate::partition::get;
    use crate::ports::Settings;
    use crate::store::memory::MemoryWorld;

    fn members(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
        value.as_object().cloned().unwrap()
    }

    async fn world_with_table(keys: serde_json::Value) -> (MemoryWorld, OwnCatalog, Location) {
        let world = MemoryWorld::new(1_700_000_000_000);
        create_database(&world.ports, members(json!({"Name": "lake"}))).await.unwrap();
        let input = json!({
            "Name": "orders",
            "PartitionKeys": keys,
            "StorageDescriptor": {"Location": "s3a://b/wh/orders/", "Columns": [{"Name": "id", "Type": "bigint"}]},
        });
        create_table(&world.ports, "lake", members(input)).await.unwrap();
        let app = App::new(world.ports.clone(), Settings::default());
        (world, OwnCatalog::new(&app), Location::new("b", "wh/orders"))
    }

    fn touched(values: &[&str]) -> TouchedPartition {
        TouchedPartition { values: values.iter().map(|value| (*value).to_owned()).collect(), location: None }
    }

    #[tokio::test]
    async fn values_follow_the_order_of_the_catalogs_keys() {
        let keys = json!([{"Name": "region", "Type": "string"}, {"Name": "dt", "Type": "date"}]);
        let (world, catalog, root) = world_with_table(keys).await;
        let columns = ["Dt".to_owned(), "region".to_owned()];
        let partitions = [touched(&["2026-01-01", "eu"])];
        let first = catalog.register(&root, &columns, &partitions).await.unwrap();
        assert_eq!(first, SyncReport::Registered { created: 1, existing: 0 });
        let again = catalog.register(&root, &columns, &partitions).await.unwrap();
        assert_eq!(again, SyncReport::Registered { created: 0, existing: 1 });
        let table = find_table(world.items.as_ref(), world.clock.as_ref(), "lake", "orders").await.unwrap();
        let values = ["eu".to_owned(), "2026-01-01".to_owned()];
        let partition = get(&world.ports, &table, &values).await.unwrap();
        assert_eq!(partition.location(), Some("s3://b/wh/orders"));
    }

    #[tokio::test]
    async fn other_keys_are_named_and_a_root_nobody_knows_is_fine() {
        let (_world, catalog, root) = world_with_table(json!([{"Name": "dt", "Type": "date"}])).await;
        let columns = ["dt".to_owned(), "region".to_owned()];
        let error = catalog.register(&root, &columns, &[touched(&["2026-01-01", "eu"])]).await.unwrap_err();
        assert!(error.0.contains("[dt] in the catalog") && error.0.contains("[dt, region] in Delta"), "{error}");
        let elsewhere = Location::new("b", "wh/orders_v2");
        assert_eq!(catalog.register(&elsewhere, &columns, &[]).await.unwrap(), SyncReport::UnknownTable);
        assert_eq!(catalog.location("Lake", "Orders").await.unwrap(), Some(root));
        assert_eq!(catalog.location("lake", "nosuch").await.unwrap(), None);
    }
}
