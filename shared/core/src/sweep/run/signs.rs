//! What lies at a table's place, whatever its entry in the catalog says of it.

use super::attempt::Attempt;
use super::knowledge::Knowledge;
use crate::delta::log::LOG_DIR;
use crate::iceberg::is_metadata_name;
use crate::location::{Location, split_uri};
use crate::store::{GetOptions, ListRequest, ObjectError, ObjectKey};
use crate::sweep::refs::{Lens, References};
use crate::sweep::survey::{list_below, list_if_there, list_request};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry, TableFormat};

/// Folder of Iceberg's metadata, unless a table says otherwise.
pub(super) const METADATA_DIR: &str = "metadata";
/// The largest list of files that is read.
const FILE_LIST_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// A place as it is spelled, and as Hadoop's clients read it.
pub(super) fn spellings(place: &Location) -> Vec<Location> {
    let folders: Vec<&str> = place.prefix.split('/').filter(|folder| !folder.is_empty()).collect();
    let single = Location { bucket: place.bucket.clone(), prefix: folders.join("/") };
    if single == *place { vec![single] } else { vec![place.clone(), single] }
}

/// A request for one object of a Delta log.
fn log_request(root: &Location) -> ListRequest {
    let prefix = format!("{}{LOG_DIR}/", root.key_prefix());
    ListRequest { bucket: root.bucket.clone(), prefix, start_after: None, max_keys: 1 }
}

fn unreadable(at: &ObjectKey, why: &str) -> SweepError {
    Refusal::new(RefusalReason::MetadataUnreadable, format!("{at}, which should list files, {why}")).into()
}

impl<'a> Attempt<'a> {
    /// Metadata at a table's place, or beside the file that it points to, that somebody may read; in words. Nobody reads
    /// anything in a bucket that is not there.
    pub(super) async fn metadata_at(&mut self, other: &TableEntry) -> Result<Option<String>, SweepError> {
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let mut folders: Vec<Location> = other.pointer_folder().iter().flat_map(spellings).collect();
        let roots = other.location.as_ref().map(spellings).unwrap_or_default();
        for root in roots {
            let page = list_if_there(objects, &log_request(&root)).await?;
            if page.is_none() {
                let why = "there is no such bucket, or no key is so long";
                self.record.facts.find(format!("{other} lies at {root}, where no object can be: {why}"));
            }
            if page.is_some_and(|page| !page.objects.is_empty()) {
                return Ok(Some(format!("there is a Delta log at {root}")));
            }
            folders
                .push(Location { bucket: root.bucket.clone(), prefix: format!("{}{METADATA_DIR}", root.key_prefix()) });
        }
        for folder in folders {
            let Some(page) = list_if_there(objects, &list_request(&folder)).await? else { continue };
            let prefix = folder.key_prefix();
            let names = page.objects.iter().filter_map(|object| object.key.strip_prefix(&prefix));
            let mut names = names.filter(|name| !name.contains('/'));
            if names.any(|name| is_metadata_name(name) || name.ends_with(".avro")) {
                return Ok(Some(format!("there is Iceberg metadata in {folder}")));
            }
        }
        Ok(None)
    }

    /// A table without a mark of its format may have metadata all the same. Another entry of the same place may have it.
    pub(super) async fn check_unmarked(&mut self, other: &TableEntry) -> Result<(), SweepError> {
        let Some(found) = self.metadata_at(other).await? else { return Ok(()) };
        let Some(place) = &other.location else { return Ok(()) };
        let around = self.directory.tables_around(place).await?;
        let is_same = |home: &Location| home.may_contain(place) && place.may_contain(home);
        let mut others = around.iter().filter(|entry| entry.id != other.id);
        let is_read = others.any(|entry| {
            entry.location.as_ref().is_some_and(is_same)
                && matches!(entry.format(), Ok(TableFormat::Delta | TableFormat::Iceberg { .. }))
        });
        if is_read {
            return Ok(());
        }
        let detail = format!(
            "{found}, and its entry has no mark of the format (table_type = DELTA, or table_type = ICEBERG with \
             metadata_location)"
        );
        Err(Refusal::new(RefusalReason::UnsupportedTable, detail).into())
    }

    /// Adds the files that a table lists in objects of its own, a URI a line.
    pub(super) async fn add_listed(&self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let Some(home) = &other.location else { return Ok(()) };
        known.references.raise(Lens::new(&known.table, Vec::new()));
        let added = self.read_lists(home, &mut known.references).await;
        known.references.lower();
        known.references.seal();
        added
    }

    async fn read_lists(&self, home: &Location, references: &mut References) -> Result<(), SweepError> {
        let objects = self.app.ports.objects.as_ref();
        for object in list_below(objects, home).await? {
            self.check_time()?;
            let at = ObjectKey::new(home.bucket.clone(), object.key);
            if object.size_bytes > FILE_LIST_MAX_BYTES {
                return Err(unreadable(&at, "is too large"));
            }
            let bytes = match objects.get(&at, &GetOptions::default()).await {
                Ok(object) => object.bytes,
                Err(ObjectError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let text = std::str::from_utf8(&bytes).map_err(|_| unreadable(&at, "is no text"))?;
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let (bucket, key) = split_uri(line).map_err(|_| unreadable(&at, "has a line that is no S3 URI"))?;
                references.add(&ObjectKey::new(bucket, key));
            }
        }
        Ok(())
    }
}
