//! An Iceberg table that no catalog has told of. Nobody knows which of its metadata files is the current one, so what any
//! of the newest names counts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{DECLARED_PATHS, Loaded, Moment, ReferenceSource};
use crate::iceberg::{Counted, IcebergError, Named, Reachable, is_metadata_name, load_metadata};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{ETag, Listed, ObjectKey, list_every};
use crate::sweep::delays::Delays;
use crate::sweep::guards::NameRules;
use crate::sweep::refs::References;
use crate::sweep::survey::{OwnSigns, Survey};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry};

/// Metadata files that are read, newest first: twice as many as a table keeps unless it is told otherwise.
const METADATA_MAX: usize = 200;

/// References of an Iceberg table of which only the folder of its metadata is known.
pub(super) struct UnregisteredIceberg<'a> {
    ports: &'a Ports,
    folder: Location,
    reachable: Reachable,
    /// Metadata files that were read, or tell nothing, each as the object that it was.
    seen: BTreeMap<ObjectKey, ETag>,
    /// Whether one of them describes a table.
    is_table: bool,
    newest: Option<ObjectKey>,
    declared: BTreeSet<Location>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    seen: Vec<(String, String, String)>,
    walked: Vec<(String, String)>,
    counted: Vec<(String, String, Counted)>,
}

impl<'a> UnregisteredIceberg<'a> {
    pub(super) fn new(ports: &'a Ports, entry: &TableEntry) -> Result<Self, Refusal> {
        let folder = entry.location.clone();
        let folder = folder.ok_or_else(|| Refusal::new(RefusalReason::UnsupportedTable, "it has no place"))?;
        let (reachable, seen, declared) = (Reachable::default(), BTreeMap::new(), BTreeSet::new());
        Ok(Self { ports, folder, reachable, seen, is_table: false, newest: None, declared })
    }

    /// Metadata files of the folder, newest first.
    async fn list(&self) -> Result<Vec<Listed>, SweepError> {
        let prefix = self.folder.key_prefix();
        let mut found = list_every(self.ports.objects.as_ref(), &self.folder.bucket, &prefix).await?;
        found.retain(|object| {
            object.key.strip_prefix(&prefix).is_some_and(|name| !name.contains('/') && is_metadata_name(name))
        });
        found.sort_by(|one, other| {
            other.last_modified_ms.cmp(&one.last_modified_ms).then_with(|| other.key.cmp(&one.key))
        });
        found.truncate(METADATA_MAX);
        Ok(found)
    }

    /// Reads metadata files that were not read yet. The newest state that anybody can read has to be whole; of older ones
    /// much may be gone, and rightly so.
    async fn add_new(&mut self, references: &mut References) -> Result<(), SweepError> {
        let found = self.list().await?;
        self.newest = found.first().map(|object| ObjectKey::new(self.folder.bucket.clone(), object.key.clone()));
        let mut is_newest = true;
        for object in found {
            let at = ObjectKey::new(self.folder.bucket.clone(), object.key);
            if self.seen.get(&at) == Some(&object.etag) {
                continue;
            }
            match self.add_one(&at, references).await {
                Ok(IsTable::Yes) => (self.is_table, is_newest) = (true, false),
                Ok(IsTable::No) => {}
                Err(SweepError::Refused(_)) if self.is_table && !is_newest => {}
                Err(error) => return Err(error),
            }
            self.seen.insert(at, object.etag);
        }
        references.seal();
        if !self.is_table {
            let detail = format!("no metadata file in {} describes a table", self.folder);
            return Err(Refusal::new(RefusalReason::TableUnknown, detail).into());
        }
        Ok(())
    }

    async fn add_one(&mut self, at: &ObjectKey, references: &mut References) -> Result<IsTable, SweepError> {
        let metadata = match load_metadata(self.ports.objects.as_ref(), at).await {
            // Torn, gone since, of a view, or something else of that name: nobody reads a table by it.
            Err(IcebergError::Unreadable { .. } | IcebergError::Missing { .. }) => return Ok(IsTable::No),
            read => read?,
        };
        let said = DECLARED_PATHS.iter().filter_map(|name| metadata.properties.get(*name));
        self.declared.extend(said.filter_map(|uri| Location::parse(uri).ok()));
        let mut sink = |named: Named<'_>| references.add(named.at());
        self.reachable.walk(self.ports.objects.as_ref(), at, &metadata, &mut sink).await?;
        Ok(IsTable::Yes)
    }
}

/// Whether a file describes a table.
enum IsTable {
    Yes,
    No,
}

#[async_trait]
impl ReferenceSource for UnregisteredIceberg<'_> {
    async fn load(&mut self, references: &mut References, _: i64) -> Result<Loaded, SweepError> {
        self.add_new(references).await.map(|()| Loaded::Whole)
    }

    fn save(&self) -> Value {
        let pair = |at: ObjectKey| (at.bucket, at.key);
        json!(Saved {
            seen: self.seen.iter().map(|(at, etag)| (at.bucket.clone(), at.key.clone(), etag.0.clone())).collect(),
            walked: self.reachable.walked().into_iter().map(pair).collect(),
            counted: self.reachable.counted().into_iter().map(|(at, counted)| (at.bucket, at.key, counted)).collect(),
        })
    }

    fn restore(&mut self, saved: &Value) -> bool {
        let Ok(saved) = Saved::deserialize(saved) else { return false };
        let seen = saved.seen.into_iter().map(|(bucket, key, etag)| (ObjectKey { bucket, key }, ETag(etag)));
        (self.seen, self.is_table) = (seen.collect(), true);
        self.reachable = Reachable::having_walked(
            saved.walked.into_iter().map(|(bucket, key)| ObjectKey { bucket, key }),
            saved.counted.into_iter().map(|(bucket, key, counted)| (ObjectKey { bucket, key }, counted)),
        );
        true
    }

    async fn refresh(&mut self, _: Moment, references: &mut References) -> Result<(), SweepError> {
        self.add_new(references).await
    }

    /// Whatever lies at its place is kept.
    async fn examine(&mut self, _: &Survey, _: &mut References) -> Result<HashSet<ObjectKey>, SweepError> {
        Ok(HashSet::new())
    }

    fn pointer(&self) -> String {
        self.newest.as_ref().map_or_else(|| self.folder.to_string(), ToString::to_string)
    }

    fn mark(&self) -> String {
        String::new()
    }

    async fn is_still(&self, _: &str) -> Result<bool, SweepError> {
        Ok(false)
    }

    fn declared(&self) -> BTreeSet<Location> {
        self.declared.clone()
    }

    async fn declared_before(&self, _: Option<&str>, _: &[ObjectKey]) -> Result<BTreeSet<Location>, SweepError> {
        Ok(BTreeSet::new())
    }

    fn take_delays(&mut self) -> Delays {
        Delays::default()
    }

    fn home(&self) -> Result<Location, Refusal> {
        Ok(self.folder.clone())
    }

    fn names(&self) -> NameRules {
        NameRules::nothing()
    }

    fn own_signs(&self) -> OwnSigns {
        OwnSigns::default()
    }

    fn retention_ms(&self) -> i64 {
        0
    }

    /// Nobody asks this product before a commit to it.
    async fn fence(&mut self, _: i64, _: i64) -> Result<(), SweepError> {
        Ok(())
    }

    async fn clear_fence(&mut self) -> Result<(), SweepError> {
        Ok(())
    }
}
