//! The directory on the product's own catalog.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::directory::{INPUT_FORMAT, MORE_PLACES};
use super::source::DECLARED_PATHS;
use super::{DirectoryError, Past, TableDirectory, TableEntry, TableUse};
use crate::catalog::locations::{Used, tables_containing, tables_within, uses_around};
use crate::catalog::tables::{find_table, get_table, list_tables, read_definition};
use crate::catalog::versions::past_definitions;
use crate::catalog::{CatalogError, TableDefinition, TableRef, list_databases};
use crate::location::{Location, split_uri};
use crate::partition::{self, ColumnSchema, Listing};
use crate::ports::{App, Ports};
use crate::store::ObjectKey;

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
    /// The table of an entry, if it is still the same one.
    async fn find(&self, entry: &TableEntry) -> Result<Option<TableRef>, DirectoryError> {
        let (items, clock) = (self.ports.items.as_ref(), self.ports.clock.as_ref());
        match find_table(items, clock, &entry.database, &entry.name).await {
            Ok(table) => Ok(Some(table).filter(|table| table.table_id.as_str() == entry.id)),
            Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

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
    let own = definition.parameters().into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let format = definition.storage_descriptor().and_then(|descriptor| descriptor.get("InputFormat")?.as_str());
    let more = definition.storage_descriptor().and_then(|descriptor| descriptor.get("AdditionalLocations"));
    let more = more.filter(|places| places.as_array().is_some_and(|places| !places.is_empty()));
    own.chain(format.map(|format| (INPUT_FORMAT.to_owned(), format.to_owned())))
        .chain(more.map(|places| (MORE_PLACES.to_owned(), places.to_string())))
        .collect()
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
            let parameters = if one.location.may_contain(scope) {
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

    async fn uses_around(&self, scope: &Location) -> Result<Vec<TableUse>, DirectoryError> {
        let found = uses_around(self.ports.items.as_ref(), self.ports.clock.as_ref(), scope).await?;
        let used = |used: Used| TableUse {
            table_id: used.table.table_id.as_str().to_owned(),
            location: used.location,
            what: used.what,
        };
        Ok(found.into_iter().map(used).collect())
    }

    async fn index_partitions(&self, entry: &TableEntry) -> Result<bool, DirectoryError> {
        let Some(table) = self.find(entry).await?.filter(|table| !table.keys.is_empty()) else { return Ok(false) };
        let mut listing = Listing { columns: ColumnSchema::Exclude, ..Listing::of_all(PARTITIONS_AT_ONCE) };
        loop {
            let page = partition::list(&self.ports, &table, &listing).await?;
            for (_, found) in page.partitions {
                partition::note_places_of(&self.ports, &table, found).await?;
            }
            listing.indexes = page.indexes;
            match page.next {
                Some(next) => listing.start = next,
                None => return Ok(true),
            }
        }
    }

    async fn past(&self, entry: &TableEntry) -> Result<Past, DirectoryError> {
        let Some(table) = self.find(entry).await? else { return Ok(Past::default()) };
        let mut past = Past::default();
        for definition in past_definitions(&self.ports, &table).await? {
            past.locations.extend(definition.location().ok().flatten());
            let parameters = parameters(&definition);
            past.data_paths.extend(
                DECLARED_PATHS
                    .iter()
                    .filter_map(|name| parameters.get(*name))
                    .filter_map(|uri| Location::parse(uri).ok()),
            );
            if let Some(Ok((bucket, key))) = parameters.get("metadata_location").map(|uri| split_uri(uri)) {
                past.pointers.push(ObjectKey::new(bucket, key));
            }
        }
        Ok(past)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::create_database;
    use crate::catalog::locations::Use;

    use crate::catalog::tables::{Archive, create_table, drop_table, update_table};
    use crate::ports::Settings;
    use crate::store::memory::MemoryWorld;
    use crate::store::{Condition, Key};
    use crate::sweep::TableFormat;

    fn object(json: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
        json.as_object().unwrap().clone()
    }

    async fn catalog() -> (MemoryWorld, App) {
        let world = MemoryWorld::new(1_790_000_000_000);
        let app = App::new(world.ports.clone(), Settings::default());
        create_database(&app.ports, object(json!({"Name": "Db"}))).await.unwrap();
        for (name, location) in [("outer", "s3://b/wh"), ("T", "s3a://b/wh/t/"), ("inner", "s3://b/wh/t/x")] {
            let input = json!({"Name": name, "StorageDescriptor": {"Location": location}, "Parameters":
                {"table_type": "ICEBERG", "metadata_location": "s3://b/wh/t/metadata/v1.metadata.json"}});
            create_table(&app.ports, "db", object(input)).await.unwrap();
        }
        (world, app)
    }

    #[tokio::test]
    async fn tables_of_the_catalog() {
        let (_, app) = catalog().await;
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

    #[tokio::test]
    async fn places_that_tables_use_without_lying_there() {
        let (world, app) = catalog().await;
        let directory = CatalogDirectory::new(&app);
        let input = json!({"Name": "hive", "StorageDescriptor": {"Location": "s3://b/hive"},
            "PartitionKeys": [{"Name": "day", "Type": "string"}]});
        let hive = create_table(&app.ports, "db", object(input)).await.unwrap();
        for (day, place) in [("1", "s3a://b/wh/t/data/day=1/"), ("2", "s3://b/hive/day=2"), ("3", "s3://b/wh/t2")] {
            let input = object(json!({"Values": [day], "StorageDescriptor": {"Location": place}}));
            let input = partition::PartitionInput::from_json(input);
            partition::create(&app.ports, &app.settings, &hive, input).await.unwrap();
        }
        let wh_t = Location::new("b", "wh/t");
        let here = directory.uses_around(&wh_t).await.unwrap();
        let places: Vec<String> = here.iter().map(|used| used.location.to_string()).collect();
        assert_eq!(places, ["s3://b/wh/t/data/day=1"]);
        // One that a writer of an earlier version did not note is found by looking through all of them.
        let noted: Vec<Key> =
            world.items.dump().into_keys().filter(|key| key.pk.starts_with("location-uses#")).collect();
        assert_eq!(noted.len(), 2, "nothing of the partition at home: {noted:?}");
        for key in noted {
            app.ports.items.delete(&key, Condition::Always).await.unwrap();
        }
        assert!(directory.uses_around(&wh_t).await.unwrap().is_empty());
        let entry = directory.table("db", "hive").await.unwrap().unwrap();
        assert!(directory.index_partitions(&entry).await.unwrap());
        assert_eq!(directory.uses_around(&wh_t).await.unwrap(), here);
        // It moves into the other's folder and out again: the partition that stayed at home lies outside now.
        for place in ["s3://b/wh/t/hive", "s3://b/far"] {
            let input = json!({"Name": "hive", "StorageDescriptor": {"Location": place},
                "PartitionKeys": [{"Name": "day", "Type": "string"}]});
            update_table(&app.ports, "db", object(input), None, Archive::Keep).await.unwrap();
        }
        let here = directory.uses_around(&wh_t).await.unwrap();
        let past: Vec<_> = here.iter().filter(|used| used.what == Use::Past).map(|used| &used.location).collect();
        assert_eq!(past, [&Location::new("b", "wh/t/hive")]);
        assert_eq!(directory.uses_around(&Location::new("b", "hive/day=2")).await.unwrap().len(), 1);
        let entry = directory.table("db", "hive").await.unwrap().unwrap();
        let past = directory.past(&entry).await.unwrap();
        let expected = ["hive", "wh/t/hive"].map(|place| Location::new("b", place));
        assert_eq!(past.locations, expected.into());
        let iceberg = directory.table("db", "t").await.unwrap().unwrap();
        let parameters = json!({"table_type": "ICEBERG", "write.data.path": "s3://b/files",
            "metadata_location": "s3://b/wh/t/metadata/v2.metadata.json"});
        let input = json!({"Name": "t", "StorageDescriptor": {"Location": "s3://b/wh/t"}, "Parameters": parameters});
        for _ in 0..2 {
            update_table(&app.ports, "db", object(input.clone()), None, Archive::Keep).await.unwrap();
        }
        let past = directory.past(&iceberg).await.unwrap();
        assert_eq!((past.pointers.len(), past.data_paths), (2, [Location::new("b", "files")].into()));
        drop_table(&app.ports, "db", "hive").await.unwrap();
        assert!(directory.uses_around(&wh_t).await.unwrap().is_empty(), "of a table that is gone");
    }

    #[tokio::test]
    async fn places_that_a_descriptor_names_beside_its_location() {
        let (world, app) = catalog().await;
        let directory = CatalogDirectory::new(&app);
        // What Spark writes of a table at a path of its own.
        let input = json!({"Name": "spark", "StorageDescriptor": {"Location": "s3://b/wh/spark-__PLACEHOLDER__",
            "SerdeInfo": {"Parameters": {"path": "s3a://b/wh/t/clone"}}},
            "Parameters": {"spark.sql.sources.provider": "delta"}});
        create_table(&app.ports, "db", object(input)).await.unwrap();
        let spark = directory.table("db", "spark").await.unwrap().unwrap();
        assert_eq!(spark.location, Some(Location::new("b", "wh/t/clone")));
        let around = directory.tables_around(&Location::new("b", "wh/t")).await.unwrap();
        assert!(around.iter().any(|entry| entry.name == "spark"));
        let more = |places: serde_json::Value| {
            object(
                json!({"Name": "hive", "StorageDescriptor": {"Location": "s3://b/hive", "InputFormat": "x.SymlinkTextInputFormat",
                "AdditionalLocations": places}}),
            )
        };
        create_table(&app.ports, "db", more(json!(["s3://b/wh/t/more", "s3://b/hive/in", "s3://c/x"]))).await.unwrap();
        assert!(directory.table("db", "hive").await.unwrap().unwrap().lists_files());
        let uses = async |place: &str| {
            let found = directory.uses_around(&Location::new("b", place)).await.unwrap();
            found.into_iter().map(|used| (used.location.to_string(), used.what)).collect::<Vec<_>>()
        };
        assert_eq!(uses("wh/t").await, [("s3://b/wh/t/more".to_owned(), Use::Additional)]);
        assert!(uses("hive/in").await.is_empty());
        update_table(&app.ports, "db", more(json!(["s3a://b/wh//t/other"])), None, Archive::Keep).await.unwrap();
        let places: Vec<String> = uses("wh/t").await.into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, ["s3://b/wh/t/more", "s3://b/wh//t/other"]);
        let many: Vec<String> = (0..50).map(|number| format!("s3://b/far/{number}")).collect();
        assert!(update_table(&app.ports, "db", more(json!(many)), None, Archive::Keep).await.is_err());
        // With the table go its notes, but for those that a request under way may still need.
        drop_table(&app.ports, "db", "hive").await.unwrap();
        let dropped = world.items.dump().into_keys().find(|key| key.pk == "dropped").unwrap();
        let id = String::from_utf8(dropped.sk.as_bytes().to_vec()).unwrap();
        let id = crate::catalog::TableId::from_text(id.trim_start_matches("table#"));
        let work = crate::catalog::CatalogWork::PurgeTable(id);
        for _ in 0..2 {
            let deadline = crate::ports::Deadline::in_ms(world.clock.as_ref(), 600_000);
            crate::catalog::purge::carry_out(&app.ports, &work, deadline).await.unwrap();
            world.clock.advance_ms(crate::catalog::purge::LONGEST_FUNCTION_MS + 1);
        }
        let left: Vec<Key> = world.items.dump().into_keys().filter(|key| key.pk.contains("uses")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
