//! The directory on the product's own catalog.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::{DirectoryError, TableDirectory, TableEntry};
use crate::catalog::locations::{tables_containing, tables_within};
use crate::catalog::tables::{get_table, list_tables, read_definition};
use crate::catalog::{CatalogError, TableDefinition, list_databases};
use crate::location::Location;
use crate::ports::{App, Ports};

/// Databases or tables of one request.
const AT_ONCE: usize = 100;

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
        let app = App { ports: world.ports.clone(), settings: Settings::default() };
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
        drop_table(&app.ports, "db", "inner").await.unwrap();
        assert_eq!(directory.tables_around(&Location::new("b", "wh/t")).await.unwrap().len(), 2);
    }
}
