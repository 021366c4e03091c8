//! A table that was dropped: it needs nothing, and what lies at its place under the names of its format is its own.

use std::collections::{BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Loaded, Moment, ReferenceSource};
use crate::catalog::dropped::{self, DroppedTable};
use crate::iceberg::{IcebergError, TableMetadata, load_metadata};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::ObjectKey;
use crate::sweep::delays::Delays;
use crate::sweep::guards::{LeftBy, NameRules};
use crate::sweep::refs::References;
use crate::sweep::survey::{OwnSigns, Survey};
use crate::sweep::{
    DirectoryError, Interruption, Refusal, RefusalReason, SweepError, TableDirectory, TableEntry, TableFormat,
};

/// Metadata files of one folder that are opened; with more than these nothing goes.
const METADATA_MAX: usize = 2_000;

/// What the catalog's entry says of a table that was dropped.
pub(in crate::sweep) fn entry_of(dropped: &DroppedTable) -> TableEntry {
    TableEntry {
        id: dropped.table_id.as_str().to_owned(),
        database: dropped.database.clone(),
        name: dropped.name.clone(),
        location: Some(dropped.location.clone()),
        parameters: dropped.parameters.clone(),
    }
}

/// Knows which files a dropped table has left.
pub(in crate::sweep) struct DroppedSource<'a> {
    ports: &'a Ports,
    directory: &'a dyn TableDirectory,
    entry: TableEntry,
    table: DroppedTable,
    left_by: LeftBy,
    metadata_folders: BTreeSet<Location>,
    partition_names: BTreeSet<String>,
    uuid: Option<String>,
    /// Whether the metadata file was read that the catalog pointed to; not known of an earlier slice.
    is_pointed: bool,
}

impl<'a> DroppedSource<'a> {
    pub(in crate::sweep) fn new(
        ports: &'a Ports,
        directory: &'a dyn TableDirectory,
        table: &DroppedTable,
    ) -> Result<Self, Refusal> {
        let entry = entry_of(table);
        // Without a pointer that can be followed, names decide.
        let left_by = match entry.format() {
            Ok(TableFormat::Iceberg { .. }) => LeftBy::Iceberg,
            Err(why) if why.reason == RefusalReason::MetadataIncomplete => LeftBy::Iceberg,
            Err(why) => return Err(why),
            Ok(TableFormat::Delta) => LeftBy::Delta,
            Ok(TableFormat::Other) => LeftBy::Other,
        };
        let root = &table.location;
        let inside = |folder: &str| Location { prefix: format!("{}{folder}", root.key_prefix()), ..root.clone() };
        let mut metadata_folders = BTreeSet::from([inside("metadata")]);
        metadata_folders.extend(entry.pointer_folder().filter(|folder| root.contains(folder) && folder != root));
        Ok(Self {
            ports,
            directory,
            entry,
            table: table.clone(),
            left_by,
            metadata_folders,
            partition_names: BTreeSet::new(),
            uuid: None,
            is_pointed: false,
        })
    }

    /// It is dropped still, and nobody has said that its files are to stay.
    async fn check_dropped(&self) -> Result<(), SweepError> {
        let left = dropped::around(self.ports.items.as_ref(), &self.table.location).await;
        let left = left.map_err(DirectoryError::from)?;
        let is_back = self.directory.table(&self.table.database, &self.table.name).await?;
        if !left.contains(&self.table) || is_back.is_some_and(|entry| entry.id == self.entry.id) {
            return Err(Interruption::Changed("what is known of the dropped table").into());
        }
        Ok(())
    }

    async fn load_pointed(&self) -> Result<Option<TableMetadata>, SweepError> {
        let Ok(TableFormat::Iceberg { pointer }) = self.entry.format() else { return Ok(None) };
        match load_metadata(self.ports.objects.as_ref(), &pointer).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error @ IcebergError::Store(_)) => Err(error.into()),
            // Gone, or nobody can read it: names decide.
            Err(_) => Ok(None),
        }
    }
}

#[async_trait]
impl ReferenceSource for DroppedSource<'_> {
    async fn load(&mut self, _: &mut References, _: i64) -> Result<Loaded, SweepError> {
        self.check_dropped().await?;
        if let Some(metadata) = self.load_pointed().await? {
            metadata.check_gc_enabled()?;
            self.is_pointed = true;
            self.partition_names.extend(metadata.partition_names);
            self.uuid = metadata.table_uuid;
        }
        Ok(Loaded::Whole)
    }

    fn save(&self) -> Value {
        json!({ "uuid": self.uuid, "partition_names": self.partition_names })
    }

    fn restore(&mut self, saved: &Value) -> bool {
        let names = saved.get("partition_names").and_then(Value::as_array);
        let Some(names) = names else { return false };
        self.partition_names = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        self.uuid = saved.get("uuid").and_then(Value::as_str).map(str::to_owned);
        true
    }

    async fn refresh(&mut self, _: Moment, _: &mut References) -> Result<(), SweepError> {
        self.check_dropped().await
    }

    /// Two Iceberg tables in one folder cannot be told apart by names.
    async fn examine(&mut self, survey: &Survey, _: &mut References) -> Result<HashSet<ObjectKey>, SweepError> {
        if self.left_by != LeftBy::Iceberg {
            return Ok(HashSet::new());
        }
        let in_ours = |at: &ObjectKey| {
            let folder = at.key.rsplit_once('/').map_or("", |(folder, _)| folder);
            self.metadata_folders.iter().any(|ours| ours.bucket == at.bucket && ours.prefix == folder)
        };
        let found: Vec<ObjectKey> =
            survey.metadata_files.iter().map(|file| file.at.clone()).filter(|at| in_ours(at)).collect();
        if found.len() > METADATA_MAX {
            let detail = format!("{} metadata files: too many to see whose they are", found.len());
            return Err(Refusal::new(RefusalReason::MetadataUnreadable, detail).into());
        }
        for at in found {
            let metadata = match load_metadata(self.ports.objects.as_ref(), &at).await {
                Ok(metadata) => metadata,
                Err(error @ IcebergError::Store(_)) => return Err(error.into()),
                // Torn or gone: it was nobody's state.
                Err(IcebergError::Unreadable { .. } | IcebergError::Missing { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            // The pointed one, if it is there, has the last word; of what was before it any may have had it.
            if !self.is_pointed {
                metadata.check_gc_enabled()?;
            }
            let Some(uuid) = metadata.table_uuid else {
                if self.entry.format() == Ok(TableFormat::Iceberg { pointer: at.clone() }) {
                    continue;
                }
                let detail =
                    format!("{at} says no table uuid, so whether it belongs to the dropped table is not known");
                return Err(Refusal::new(RefusalReason::ForeignTableUuid, detail).into());
            };
            match &self.uuid {
                Some(ours) if !ours.eq_ignore_ascii_case(&uuid) => {
                    let detail = format!("{at} belongs to table uuid {uuid}, and the dropped table is {ours}");
                    return Err(Refusal::new(RefusalReason::ForeignTableUuid, detail).into());
                }
                Some(_) => {}
                None => self.uuid = Some(uuid),
            }
        }
        Ok(HashSet::new())
    }

    fn pointer(&self) -> String {
        format!("{} (dropped)", self.table.location)
    }

    fn mark(&self) -> String {
        String::new()
    }

    async fn is_still(&self, _: &str) -> Result<bool, SweepError> {
        Ok(false)
    }

    fn declared(&self) -> BTreeSet<Location> {
        BTreeSet::new()
    }

    async fn declared_before(&self, _: Option<&str>, _: &[ObjectKey]) -> Result<BTreeSet<Location>, SweepError> {
        Ok(BTreeSet::new())
    }

    fn take_delays(&mut self) -> Delays {
        Delays::default()
    }

    fn take_believed(&mut self) -> HashMap<u64, u64> {
        HashMap::new()
    }

    fn home(&self) -> Result<Location, Refusal> {
        Ok(self.table.location.clone())
    }

    fn names(&self) -> NameRules {
        NameRules::Dropped {
            root: self.table.location.clone(),
            left_by: self.left_by,
            metadata_folders: self.metadata_folders.iter().cloned().collect(),
            partition_names: self.partition_names.clone(),
        }
    }

    fn own_signs(&self) -> OwnSigns {
        let root = || BTreeSet::from([self.table.location.prefix.clone()]);
        let metadata = || self.metadata_folders.iter().map(|folder| folder.prefix.clone()).collect();
        match self.left_by {
            LeftBy::Delta => OwnSigns { delta_roots: root(), ..OwnSigns::default() },
            LeftBy::Iceberg => OwnSigns { metadata_folders: metadata(), ..OwnSigns::default() },
            LeftBy::Other => OwnSigns::default(),
        }
    }

    fn retention_ms(&self) -> i64 {
        0
    }

    /// Nobody commits to it: whoever did would have written since it was dropped.
    async fn fence(&mut self, _: i64, _: i64) -> Result<(), SweepError> {
        Ok(())
    }

    async fn clear_fence(&mut self) -> Result<(), SweepError> {
        Ok(())
    }
}
