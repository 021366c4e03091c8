//! The directory on the product's own catalog.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::directory::is_elsewhere;
use super::{DirectoryError, TableDirectory, TableEntry};
use crate::catalog::locations::{tables_containing, tables_within};
use crate::catalog::tables::{find_table, get_table, list_tables, read_definition};
use crate::catalog::{CatalogError, TableDefinition, list_databases};
use crate::location::Location;
use crate::partition::{self, ColumnSchema, Listing, Partition};
use crate::ports::{App, Ports};

/// Databases or tables of one request.
const AT_ONCE: usize = 100;
/// Partitions of one page.
const PARTITIONS_AT_ONCE: usize = 1000;

/// Reads tables and the location index, always strongly.
#[derive(Clone, Debug)]
pub struct CatalogDirectory {
    ports: Ports,
}

impl CatalogDirectory {
    pub fn new(app: &App) -> Self {
        Self { ports: app.ports.clone() }
    }
}

impl From<CatalogError> for DirectoryError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Store(error) => DirectoryError::Store(error),
            other => DirectoryError::Unreadable(other.to_string()),
        }
    }
}

impl CatalogDirectory {
    async fn tables_of(&self, database: &str, entries: &mut Vec<TableEntry>) -> Result<(), DirectoryError> {
        let mut after = None;
        loop {
            let page = match list_tables(&self.ports, database, None, after, AT_ONCE).await {
                Ok(page) => page,
                // Dropped this very moment.
                Err(CatalogError::DatabaseNotFound(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            for (table, definition) in page.tables {
                entries.push(TableEntry {
                    id: table.table_id.as_str().to_owned(),
                    // One that lies on no S3 has no files here.
                    location: definition.location().ok().flatten(),
                    parameters: parameters(&definition),
                    database: table.database,
                    name: table.name,
                });
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

/// Where a partition lies; what is no S3 location has no files here.
fn places_of(partition: Partition) -> Vec<Location> {
    let mut uris: Vec<String> = partition.location().map(str::to_owned).into_iter().collect();
    let members = partition.into_members();
    let more = members.get("StorageDescriptor").and_then(|descriptor| descriptor.get("AdditionalLocations"));
    let more = more.and_then(serde_json::Value::as_array).into_iter().flatten();
    uris.extend(more.filter_map(|uri| uri.as_str().map(str::to_owned)));
    uris.iter().filter_map(|uri| Location::parse(uri).ok()).collect()
}

fn parameters(definition: &TableDefinition) -> BTreeMap<String, String> {
    definition.parameters().into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[async_trait]
impl TableDirectory for CatalogDirectory {
    async fn table(&self, database: &str, table: &str) -> Result<Option<TableEntry>, DirectoryError> {
        let found = get_table(&self.ports, database, table).await;
        let (table, definition) = match found {
            Ok(found) => found,
            Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let location = definition.location().map_err(|error| DirectoryError::Unreadable(error.to_string()))?;
        Ok(Some(TableEntry {
            id: table.table_id.as_str().to_owned(),
            database: table.database,
            name: table.name,
            location,
            parameters: parameters(&definition),
        }))
    }

    /// Parameters are read of the tables at `scope` and around it only: what lies inside is kept without looking at it.
    async fn tables_around(&self, scope: &Location) -> Result<Vec<TableEntry>, DirectoryError> {
        let (items, clock) = (self.ports.items.as_ref(), self.ports.clock.as_ref());
        let mut located = tables_within(items, clock, scope).await?;
        located.extend(tables_containing(items, clock, scope).await?);
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for one in located {
            let id = one.table.table_id.as_str().to_owned();
            if !seen.insert((id.clone(), one.location.clone())) {
                continue;
            }
            let parameters = if one.location.contains(scope) {
                // None: dropped this very moment.
                let Some(definition) = read_definition(&self.ports, &one.table.table_id).await? else { continue };
                parameters(&definition)
            } else {
                BTreeMap::new()
            };
            let (database, name) = (one.table.database, one.table.name);
            entries.push(TableEntry { id, database, name, location: Some(one.location), parameters });
        }
        Ok(entries)
    }

    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError> {
        let mut entries = Vec::new();
        let mut after = None;
        loop {
            let (databases, next) = list_databases(&self.ports, after, AT_ONCE).await?;
            for database in databases {
                self.tables_of(&database.name, &mut entries).await?;
            }
            after = next;
            if after.is_none() {
                return Ok(entries);
            }
        }
    }

    /// Reads every partition of the table: nothing lists them by place.
    async fn partitions_elsewhere(
        &self,
        entry: &TableEntry,
        scope: &Location,
    ) -> Result<Vec<Location>, DirectoryError> {
        let table = match find_table(self.ports.items.as_ref(), self.ports.clock.as_ref(), &entry.database, &entry.name)
            .await
        {
            Ok(table) if table.table_id.as_str() == entry.id => table,
            Ok(_) | Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut found = BTreeSet::new();
        if table.keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut listing = Listing { columns: ColumnSchema::Exclude, ..Listing::of_all(PARTITIONS_AT_ONCE) };
        loop {
            let page = partition::list(&self.ports, &table, &listing).await?;
            let places = page.partitions.into_iter().flat_map(|(_, partition)| places_of(partition));
            found.extend(places.filter(|place| is_elsewhere(entry, place, scope)));
            listing.indexes = page.indexes;
            match page.next {
                Some(next) => listing.start = next,
                None => return Ok(found.into_iter().collect()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::create_database;
    use crate::catalog::tables::{create_table, drop_table};
    use crate::ports::Settings;
    use crate::store::memory::MemoryWorld;
    use crate::sweep::TableFormat;

    #[tokio::test]
    async fn tables_of_the_catalog() {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = App::new(world.ports.clone(), Settings::default());
        let object = |json: serde_json::Value| json.as_object().unwrap().clone();
        create_database(&app.ports, object(json!({"Name": "Db"}))).await.unwrap();
        for (name, location) in [("outer", "s3://b/wh"), ("T", "s3a://b/wh/t/"), ("inner", "s3://b/wh/t/x")] {
            let input = json!({"Name": name, "StorageDescriptor": {"Location": location}, "Parameters":
                {"table_type": "ICEBERG", "metadata_location": "s3://b/wh/t/metadata/v1.metadata.json"}});
            create_table(&app.ports, "db", object(input)).await.unwrap();
        }
        let directory = CatalogDirectory::new(&app);
        let table = directory.table("db", "t").await.unwrap().unwrap();
        assert_eq!(table.location, Some(Location::new("b", "wh/t")));
        assert!(matches!(table.format(), Ok(TableFormat::Iceberg { .. })));
        assert_eq!(directory.table("db", "none").await.unwrap(), None);
        assert_eq!(directory.table("none", "t").await.unwrap(), None);
        let around = directory.tables_around(&Location::new("b", "wh/t")).await.unwrap();
        let mut names: Vec<_> = around.iter().map(|entry| (entry.name.as_str(), entry.parameters.len())).collect();
        names.sort_unstable();
        assert_eq!(names, [("inner", 0), ("outer", 2), ("t", 2)]);
        let mut all: Vec<String> = directory.tables().await.unwrap().into_iter().map(|entry| entry.name).collect();
        all.sort();
        assert_eq!(all, ["inner", "outer", "t"]);
        let input = json!({"Name": "hive", "StorageDescriptor": {"Location": "s3://b/hive"},
            "PartitionKeys": [{"Name": "day", "Type": "string"}]});
        let hive = create_table(&app.ports, "db", object(input)).await.unwrap();
        for (day, place) in [("1", "s3a://b/wh/t/data/day=1/"), ("2", "s3://b/hive/day=2"), ("3", "s3://b/wh/t2")] {
            let input = object(json!({"Values": [day], "StorageDescriptor": {"Location": place}}));
            let input = partition::PartitionInput::from_json(input);
            partition::create(&app.ports, &app.settings, &hive, input).await.unwrap();
        }
        let hive = directory.table("db", "hive").await.unwrap().unwrap();
        let here = directory.partitions_elsewhere(&hive, &Location::new("b", "wh/t")).await.unwrap();
        assert_eq!(here, [Location::new("b", "wh/t/data/day=1")]);
        drop_table(&app.ports, "db", "inner").await.unwrap();
        assert_eq!(directory.tables_around(&Location::new("b", "wh/t")).await.unwrap().len(), 2);
    }
}
