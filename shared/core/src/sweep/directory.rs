//! What sweeps need to know of the catalog's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use thiserror::Error;

use super::{Refusal, RefusalReason};
use crate::catalog::locations::Use;
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

/// Parameter by which the owner of a table says that all its files lie at its location. It matters where a sweep of
/// another table cannot read this one.
pub const STAYS_AT_HOME: &str = "lakewarden.files.at_location_only";

/// Name under which the descriptor's `AdditionalLocations` stand among a table's parameters, as JSON.
pub(super) const MORE_PLACES: &str = "StorageDescriptor.AdditionalLocations";

/// What the ids of tables begin with that no catalog has told of.
const UNREGISTERED: &str = "unregistered#";

/// Name under which the descriptor's `InputFormat` stands among a table's parameters.
pub(super) const INPUT_FORMAT: &str = "StorageDescriptor.InputFormat";

/// What shows that a table lies at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unregistered {
    /// Its log lies below.
    Delta,
    /// Its metadata files lie in it.
    IcebergMetadata,
}

impl Unregistered {
    fn as_str(self) -> &'static str {
        match self {
            Unregistered::Delta => "delta",
            Unregistered::IcebergMetadata => "iceberg",
        }
    }
}

impl TableEntry {
    /// A table that no catalog has told of, found at a place.
    pub(super) fn unregistered(what: Unregistered, place: &Location) -> Self {
        Self {
            id: format!("{UNREGISTERED}{}#{}/{}", what.as_str(), place.bucket, place.prefix),
            database: String::new(),
            name: place.to_string(),
            location: Some(place.clone()),
            parameters: BTreeMap::new(),
        }
    }

    /// The table of an id that [`TableEntry::unregistered`] gave.
    pub(super) fn of_unregistered_id(id: &str) -> Option<Self> {
        let (what, place) = id.strip_prefix(UNREGISTERED)?.split_once('#')?;
        let (bucket, prefix) = place.split_once('/')?;
        let place = Location { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        let known = [Unregistered::Delta, Unregistered::IcebergMetadata];
        known.into_iter().find(|one| one.as_str() == what).map(|what| Self::unregistered(what, &place))
    }

    /// What shows that there is such a table, if no catalog has told of it.
    pub(super) fn found_as(&self) -> Option<Unregistered> {
        let (what, _) = self.id.strip_prefix(UNREGISTERED)?.split_once('#')?;
        let known = [Unregistered::Delta, Unregistered::IcebergMetadata];
        known.into_iter().find(|one| one.as_str() == what)
    }

    /// Places that the entry names beside its location.
    pub(super) fn more_places(&self) -> Vec<Location> {
        let named: Option<Vec<String>> =
            self.parameter(MORE_PLACES).and_then(|places| serde_json::from_str(places).ok());
        named.unwrap_or_default().iter().filter_map(|uri| Location::parse(uri).ok()).collect()
    }

    /// Whether its objects are lists of the files that it reads.
    pub(super) fn lists_files(&self) -> bool {
        self.parameter(INPUT_FORMAT).is_some_and(|format| format.ends_with("SymlinkTextInputFormat"))
    }

    pub(super) fn stays_at_home(&self) -> bool {
        self.says(STAYS_AT_HOME, "true")
    }

    /// Whether an Iceberg table names a metadata file, wherever that may be.
    pub(super) fn has_pointer(&self) -> bool {
        self.parameter("metadata_location").is_some_and(|uri| !uri.is_empty())
    }

    /// The folder of the metadata file that an Iceberg table names.
    pub(super) fn pointer_folder(&self) -> Option<Location> {
        let (bucket, key) = split_uri(self.parameter("metadata_location")?).ok()?;
        let (folder, _) = key.rsplit_once('/')?;
        Some(Location::new(bucket, folder))
    }

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
        match self.found_as() {
            Some(_) => write!(f, "the table at {}, which the catalog does not know,", self.name),
            None => write!(f, "table {}.{}", self.database, self.name),
        }
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

    /// What tables use inside `scope`, at it and around it although they do not lie there.
    async fn uses_around(&self, scope: &Location) -> Result<Vec<TableUse>, DirectoryError>;

    /// Looks through the partitions of a table for places outside its location that were not noted when they were
    /// written, and notes them, for [`TableDirectory::uses_around`] to answer. Whether the table can have partitions.
    async fn index_partitions(&self, entry: &TableEntry) -> Result<bool, DirectoryError>;

    /// What the table's kept versions said before the current one.
    async fn past(&self, entry: &TableEntry) -> Result<Past, DirectoryError>;
}

/// A place that a table uses although it does not lie there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableUse {
    pub table_id: String,
    pub location: Location,
    pub what: Use,
}

/// What earlier versions of a table's entry tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Where it lay.
    pub locations: BTreeSet<Location>,
    /// Its metadata files, newest first.
    pub pointers: Vec<ObjectKey>,
    /// What its parameters said of data paths.
    pub data_paths: BTreeSet<Location>,
}

/// A directory in memory.
#[derive(Debug, Default)]
pub struct MemoryDirectory {
    entries: Mutex<Vec<TableEntry>>,
    uses: Mutex<Vec<TableUse>>,
    past: Mutex<BTreeMap<String, Past>>,
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
        self.put_use(TableUse { table_id: table_id.to_owned(), location, what: Use::Partition });
    }

    pub fn put_use(&self, used: TableUse) {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).push(used);
    }

    /// Says what earlier versions of a table told.
    pub fn put_past(&self, table_id: &str, past: Past) {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).insert(table_id.to_owned(), past);
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
        let near = |location: &Location| location.may_contain(scope) || scope.may_contain(location);
        let tables = self.entries();
        Ok(tables.iter().filter(|entry| entry.location.as_ref().is_some_and(near)).cloned().collect())
    }

    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError> {
        Ok(self.entries().clone())
    }

    async fn uses_around(&self, scope: &Location) -> Result<Vec<TableUse>, DirectoryError> {
        let there: BTreeSet<String> = self.entries().iter().map(|entry| entry.id.clone()).collect();
        let near = |location: &Location| location.may_contain(scope) || scope.may_contain(location);
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(uses.iter().filter(|used| there.contains(&used.table_id) && near(&used.location)).cloned().collect())
    }

    async fn index_partitions(&self, _: &TableEntry) -> Result<bool, DirectoryError> {
        Ok(false)
    }

    async fn past(&self, entry: &TableEntry) -> Result<Past, DirectoryError> {
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(past.get(&entry.id).cloned().unwrap_or_default())
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
    fn tables_that_were_found_are_known_by_their_ids() {
        for what in [Unregistered::Delta, Unregistered::IcebergMetadata] {
            for prefix in ["", "wh/a#b/c", "x//y"] {
                let place = Location { bucket: "b".into(), prefix: prefix.into() };
                let entry = TableEntry::unregistered(what, &place);
                assert_eq!(TableEntry::of_unregistered_id(&entry.id), Some(entry.clone()));
                assert_eq!(entry.found_as(), Some(what));
            }
        }
        assert_eq!(TableEntry::of_unregistered_id("id-t"), None);
        assert_eq!(entry(&[]).found_as(), None);
        let more = entry(&[(MORE_PLACES, r#"["s3://b/x/", "hdfs://nn/y", "s3a://c"]"#)]).more_places();
        assert_eq!(more.iter().map(ToString::to_string).collect::<Vec<_>>(), ["s3://b/x", "s3://c"]);
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
