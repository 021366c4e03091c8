//! What sweeps need to know of the catalog's tables.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use thiserror::Error;

use super::{Refusal, RefusalReason};
use crate::location::{Location, split_uri};
use crate::store::{ObjectKey, StoreError};

/// A table as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Opaque; another one when the table was dropped and created again.
    pub id: String,
    pub database: String,
    pub name: String,
    /// Views have none.
    pub location: Option<Location>,
    pub parameters: BTreeMap<String, String>,
}

/// What kind of table an entry describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableFormat {
    Iceberg {
        /// The current metadata file.
        pointer: ObjectKey,
    },
    Delta,
    /// No sweep can know which files such a table needs.
    Other,
}

impl TableEntry {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    fn says(&self, name: &str, value: &str) -> bool {
        self.parameter(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    /// The table's format by the marks that engines leave in its parameters. An Iceberg table without a usable pointer,
    /// and a table that claims to be both, are refused.
    pub fn format(&self) -> Result<TableFormat, Refusal> {
        let iceberg = self.says("table_type", "iceberg") || self.says("spark.sql.sources.provider", "iceberg");
        let delta = self.says("table_type", "delta")
            || self.says("spark.sql.sources.provider", "delta")
            || self.says("classification", "delta");
        match (iceberg, delta) {
            (true, true) => Err(Refusal::new(
                RefusalReason::UnsupportedTable,
                format!("{self} is marked both as Iceberg and as Delta"),
            )),
            (false, true) => Ok(TableFormat::Delta),
            (false, false) => Ok(TableFormat::Other),
            (true, false) => {
                let uri = self.parameter("metadata_location").unwrap_or_default();
                match split_uri(uri) {
                    Ok((bucket, key)) if !key.is_empty() => {
                        Ok(TableFormat::Iceberg { pointer: ObjectKey::new(bucket, key) })
                    }
                    _ => Err(Refusal::new(
                        RefusalReason::MetadataIncomplete,
                        format!("the metadata_location of {self} is no S3 object: `{uri}`"),
                    )),
                }
            }
        }
    }
}

impl std::fmt::Display for TableEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}.{}", self.database, self.name)
    }
}

/// The catalog did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DirectoryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the catalog's entry cannot be read: {0}")]
    Unreadable(String),
}

/// The catalog, as sweeps see it. Reads are strongly consistent: the pointer of an Iceberg table comes from here.
#[async_trait]
pub trait TableDirectory: Send + Sync {
    /// The table of that name (names in lower case).
    async fn table(&self, database: &str, table: &str) -> Result<Option<TableEntry>, DirectoryError>;

    /// Every table, of all databases, whose location is inside, equal to or containing `scope`.
    async fn tables_around(&self, scope: &Location) -> Result<Vec<TableEntry>, DirectoryError>;

    /// Every table of all databases: any may have files anywhere.
    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError>;

    /// Where partitions of a table lie outside its own location, as far as that is inside `scope` or around it.
    async fn partitions_elsewhere(&self, entry: &TableEntry, scope: &Location)
    -> Result<Vec<Location>, DirectoryError>;
}

/// Which of a table's partitions concern a scope.
pub(super) fn is_elsewhere(entry: &TableEntry, partition: &Location, scope: &Location) -> bool {
    let is_own = entry.location.as_ref().is_some_and(|home| home.contains(partition));
    !is_own && (scope.contains(partition) || partition.contains(scope))
}

/// A directory in memory.
#[derive(Debug, Default)]
pub struct MemoryDirectory {
    entries: Mutex<Vec<TableEntry>>,
    /// Table ids and locations.
    partitions: Mutex<Vec<(String, Location)>>,
}

impl MemoryDirectory {
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<TableEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a table, or replaces the one of the same name.
    pub fn put(&self, entry: TableEntry) {
        let mut tables = self.entries();
        tables.retain(|table| (&table.database, &table.name) != (&entry.database, &entry.name));
        tables.push(entry);
    }

    /// Adds a partition of a table.
    pub fn put_partition(&self, table_id: &str, location: Location) {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        partitions.push((table_id.to_owned(), location));
    }

    pub fn remove(&self, database: &str, table: &str) {
        self.entries().retain(|entry| (entry.database.as_str(), entry.name.as_str()) != (database, table));
    }
}

#[async_trait]
impl TableDirectory for MemoryDirectory {
    async fn table(&self, database: &str, table: &str) -> Result<Option<TableEntry>, DirectoryError> {
        let tables = self.entries();
        Ok(tables.iter().find(|entry| entry.database == database && entry.name == table).cloned())
    }

    async fn tables_around(&self, scope: &Location) -> Result<Vec<TableEntry>, DirectoryError> {
        let near = |location: &Location| location.contains(scope) || scope.contains(location);
        let tables = self.entries();
        Ok(tables.iter().filter(|entry| entry.location.as_ref().is_some_and(near)).cloned().collect())
    }

    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError> {
        Ok(self.entries().clone())
    }

    async fn partitions_elsewhere(
        &self,
        entry: &TableEntry,
        scope: &Location,
    ) -> Result<Vec<Location>, DirectoryError> {
        let partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let of_table = partitions.iter().filter(|(table_id, _)| *table_id == entry.id).map(|(_, location)| location);
        Ok(of_table.filter(|location| is_elsewhere(entry, location, scope)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(parameters: &[(&str, &str)]) -> TableEntry {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TableEntry { id: "1".into(), database: "d".into(), name: "t".into(), location: None, parameters }
    }

    #[test]
    fn formats_by_their_marks() {
        let pointer = ("metadata_location", "s3://b/t/metadata/v1.metadata.json");
        let iceberg = entry(&[("table_type", "ICEBERG"), pointer]).format().unwrap();
        assert_eq!(iceberg, TableFormat::Iceberg { pointer: ObjectKey::new("b", "t/metadata/v1.metadata.json") });
        assert_eq!(entry(&[("spark.sql.sources.provider", "delta")]).format(), Ok(TableFormat::Delta));
        assert_eq!(entry(&[("classification", "parquet"), pointer]).format(), Ok(TableFormat::Other));
        for bad in [vec![("table_type", "ICEBERG")], vec![("table_type", "iceberg"), ("metadata_location", "/x")]] {
            assert_eq!(entry(&bad).format().unwrap_err().reason, RefusalReason::MetadataIncomplete);
        }
        let both = entry(&[("table_type", "ICEBERG"), ("spark.sql.sources.provider", "delta"), pointer]);
        assert_eq!(both.format().unwrap_err().reason, RefusalReason::UnsupportedTable);
    }
}
