//! What the head remembers of its table, so that an ordinary append need not read the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::CommitError;
use super::path_filter::{Base, Bloom, PathCollector, PathFilter};
use super::spill;
use crate::delta::snapshot::{LoggedCommit, key_of_add};
use crate::delta::{Actions, DomainMetadata, Metadata, PathError, Protocol, Snapshot, features};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{DecodeError, Fields, Item, Value};

/// Protocol and metadata (compressed) that are larger lie on S3.
const DEFINITION_MAX_BYTES: usize = 256 * 1024;
/// What changes with commits (compressed), at most: without it the state is not kept.
const MOVING_MAX_BYTES: usize = 48 * 1024;
/// What packed parts may unpack to.
const UNPACKED_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Applications whose last version is kept.
const APP_IDS_MAX: usize = 1_000;

/// Domain that holds the high-water mark of row ids.
const ROW_TRACKING_DOMAIN: &str = "delta.rowTracking";

/// A table at a version, but for its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Absent: liveness of paths needs a look into the log.
    pub paths: Option<PathFilter>,
    /// Last versions of applications' transactions.
    pub app_ids: AppIds,
    /// Metadata domains that are not removed.
    pub domains: BTreeMap<String, DomainMetadata>,
    /// Of the latest version. Where in-commit timestamps are on and it has none, its writer did not know of them: then the
    /// time of its file, or the timestamp before, whichever is later.
    pub in_commit_timestamp_ms: Option<i64>,
    /// Where protocol and metadata lie on S3, if they do.
    definition_at: Option<String>,
}

/// Applications that wrote to the table, as far as they are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppIds {
    known: BTreeMap<String, i64>,
    /// Whether all applications are known.
    is_complete: bool,
}

/// An application's last version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastVersion {
    Is(i64),
    Never,
    /// There were too many to remember.
    Unknown,
}

impl Default for AppIds {
    fn default() -> Self {
        AppIds { known: BTreeMap::new(), is_complete: true }
    }
}

impl AppIds {
    pub fn last(&self, app_id: &str) -> LastVersion {
        match (self.known.get(app_id), self.is_complete) {
            (Some(version), _) => LastVersion::Is(*version),
            (None, true) => LastVersion::Never,
            (None, false) => LastVersion::Unknown,
        }
    }

    fn set(&mut self, app_id: &str, version: i64) {
        if let Some(known) = self.known.get_mut(app_id) {
            *known = version;
        } else if self.known.len() < APP_IDS_MAX {
            self.known.insert(app_id.to_owned(), version);
        } else {
            self.is_complete = false;
        }
    }
}

/// Changes only with protocol and metadata.
#[derive(Serialize, Deserialize)]
struct Definition {
    protocol: Protocol,
    metadata: Metadata,
}

/// Changes with commits.
#[derive(Serialize, Deserialize)]
struct Moving {
    app_ids: AppIds,
    domains: BTreeMap<String, DomainMetadata>,
    in_commit_timestamp_ms: Option<i64>,
}

impl TableState {
    /// The state of a table that was just created, before its files are counted in.
    pub fn created(protocol: Protocol, metadata: Metadata) -> TableState {
        TableState {
            protocol,
            metadata,
            paths: PathCollector::default().build(),
            app_ids: AppIds::default(),
            domains: BTreeMap::new(),
            in_commit_timestamp_ms: None,
            definition_at: None,
        }
    }

    /// The state that a snapshot of all files tells.
    pub fn of_snapshot(snapshot: &Snapshot, in_commit_timestamp_ms: Option<i64>) -> TableState {
        // Tombstones need not be in the filter: adding such a path again is no double add.
        let mut paths = PathCollector::default();
        snapshot.live.keys().for_each(|key| paths.add(&key.at));
        TableState::of_log(snapshot, paths, in_commit_timestamp_ms)
    }

    /// The state that a snapshot tells, with the paths that were seen while it was made.
    pub fn of_log(snapshot: &Snapshot, paths: PathCollector, in_commit_timestamp_ms: Option<i64>) -> TableState {
        let mut app_ids = AppIds::default();
        snapshot.app_ids.iter().for_each(|(app_id, version)| app_ids.set(app_id, *version));
        TableState {
            paths: paths.build(),
            app_ids,
            domains: snapshot.domains.clone(),
            in_commit_timestamp_ms,
            ..TableState::created(snapshot.protocol.clone(), snapshot.metadata.clone())
        }
    }

    /// The highest row id that was given out, where the table tracks rows; -1 before the first.
    pub fn row_id_high_water_mark(&self) -> Option<i64> {
        let domain = self.domains.get(ROW_TRACKING_DOMAIN)?;
        serde_json::from_str::<serde_json::Value>(&domain.configuration).ok()?.get("rowIdHighWaterMark")?.as_i64()
    }

    /// The state after one more commit.
    pub fn apply(&mut self, root: &Location, commit: &LoggedCommit) -> Result<(), PathError> {
        self.apply_table(&commit.actions);
        let before_ms = self.in_commit_timestamp_ms;
        self.in_commit_timestamp_ms = timestamp_of(commit).or_else(|| {
            let is_on = features::has_in_commit_timestamps_on(&self.metadata);
            is_on.then(|| commit.last_modified_ms.max(before_ms.unwrap_or(i64::MIN)))
        });
        for add in &commit.actions.adds {
            let key = key_of_add(root, add)?;
            if let Some(paths) = &mut self.paths {
                paths.insert(&key.at.to_string());
            }
        }
        if self.paths.as_ref().is_some_and(PathFilter::is_full) {
            self.paths = None;
        }
        Ok(())
    }

    fn apply_table(&mut self, actions: &Actions) {
        if let Some(protocol) = &actions.protocol {
            self.protocol = protocol.clone();
        }
        if let Some(metadata) = &actions.metadata {
            self.metadata = metadata.clone();
        }
        if actions.protocol.is_some() || actions.metadata.is_some() {
            self.definition_at = None;
        }
        actions.txns.iter().for_each(|txn| self.app_ids.set(&txn.app_id, txn.version));
        for domain in &actions.domains {
            if domain.removed {
                self.domains.remove(&domain.domain);
            } else {
                self.domains.insert(domain.domain.clone(), domain.clone());
            }
        }
    }

    /// Bytes in memory, about.
    pub fn weight_bytes(&self) -> usize {
        let filter = self.paths.as_ref().map_or(0, |paths| {
            let base = paths.base().and_then(|base| base.bloom.as_ref()).map_or(0, |bloom| bloom.bits().len());
            base.saturating_add(paths.recent().bits().len())
        });
        let domains: usize = self.domains.values().map(|domain| domain.configuration.len().saturating_add(200)).sum();
        filter
            .saturating_add(domains)
            .saturating_add(self.metadata.schema_string.len())
            .saturating_add(self.app_ids.known.len().saturating_mul(100))
            .saturating_add(4_096)
    }

    fn pack_definition(&self) -> Result<Vec<u8>, DecodeError> {
        pack(&Definition { protocol: self.protocol.clone(), metadata: self.metadata.clone() })
    }

    fn pack_moving(&self) -> Result<Option<Vec<u8>>, DecodeError> {
        let all = Moving {
            app_ids: self.app_ids.clone(),
            domains: self.domains.clone(),
            in_commit_timestamp_ms: self.in_commit_timestamp_ms,
        };
        let packed = pack(&all)?;
        if packed.len() <= MOVING_MAX_BYTES {
            return Ok(Some(packed));
        }
        let app_ids = AppIds { known: BTreeMap::new(), is_complete: false };
        Ok(Some(pack(&Moving { app_ids, ..all })?).filter(|packed| packed.len() <= MOVING_MAX_BYTES))
    }

    /// Puts on S3 what the item has no room for, unless it is there: nothing for small tables.
    pub async fn spill(&mut self, ports: &Ports, root: &Location) -> Result<(), CommitError> {
        if self.definition_at.is_none() {
            let packed = self.pack_definition()?;
            if packed.len() > DEFINITION_MAX_BYTES {
                self.definition_at = Some(spill::store(ports, root, packed.into()).await?);
            }
        }
        if let Some(base) = self.paths.as_mut().and_then(PathFilter::base_mut)
            && base.stored_at.is_none()
            && let Some(bloom) = &base.bloom
        {
            base.stored_at = Some(spill::store(ports, root, Bytes::copy_from_slice(bloom.bits())).await?);
        }
        Ok(())
    }

    /// Writes the state into an item. What is too large and was not [spilled](TableState::spill) is left out.
    pub fn encode(&self, item: &mut Item) -> Result<(), DecodeError> {
        let Some(moving) = self.pack_moving()? else { return Ok(()) };
        match &self.definition_at {
            Some(sha256) => item.insert("state_at".into(), sha256.as_str().into()),
            None => {
                let packed = self.pack_definition()?;
                if packed.len() > DEFINITION_MAX_BYTES {
                    return Ok(());
                }
                item.insert("state".into(), Value::Bytes(packed))
            }
        };
        item.insert("moving".into(), Value::Bytes(moving));
        let Some(paths) = &self.paths else { return Ok(()) };
        let count = |count: usize| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
        if let Some(base) = paths.base() {
            let Some(sha256) = &base.stored_at else { return Ok(()) };
            item.insert("path_base_at".into(), sha256.as_str().into());
            item.insert("path_base_count".into(), count(base.count));
        }
        item.insert("path_filter".into(), Value::Bytes(paths.recent().bits().to_vec()));
        item.insert("path_count".into(), count(paths.recent().count()));
        Ok(())
    }

    /// Reads the state from an item alone: none where a part of it lies on S3, and a filter whose base is not loaded.
    pub fn decode(item: &Item) -> Result<Option<TableState>, DecodeError> {
        if !item.contains_key("state") || !item.contains_key("moving") {
            return Ok(None);
        }
        decode_parts(item, item.bytes("state")?, None).map(Some)
    }

    /// Reads the state from an item and from S3. `None`: there is none, or a part of it is gone.
    pub async fn load(ports: &Ports, root: &Location, item: &Item) -> Result<Option<TableState>, CommitError> {
        if !item.contains_key("moving") {
            return Ok(None);
        }
        let mut state = match item.opt_text("state_at")? {
            None if !item.contains_key("state") => return Ok(None),
            None => decode_parts(item, item.bytes("state")?, None)?,
            Some(sha256) => match spill::load(ports, root, sha256).await? {
                Some(packed) => decode_parts(item, &packed, Some(sha256.to_owned()))?,
                None => return Ok(None),
            },
        };
        if let Some(base) = state.paths.as_mut().and_then(PathFilter::base_mut)
            && let Some(sha256) = &base.stored_at
        {
            match spill::load(ports, root, sha256).await? {
                Some(bits) => base.bloom = Some(Arc::new(Bloom::from_parts(bits.to_vec(), base.count))),
                // Read from the log, which makes it anew.
                None => return Ok(None),
            }
        }
        Ok(Some(state))
    }
}

/// The in-commit timestamp of a version.
pub fn timestamp_of(commit: &LoggedCommit) -> Option<i64> {
    commit.actions.commit_info.as_ref().and_then(|info| info.number("inCommitTimestamp"))
}

fn decode_parts(item: &Item, definition: &[u8], definition_at: Option<String>) -> Result<TableState, DecodeError> {
    let definition: Definition = unpack(definition)?;
    let moving: Moving = unpack(item.bytes("moving")?)?;
    let count = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
    let paths = match item.opt_int("path_count")? {
        None => None,
        Some(recent) => {
            let base = match item.opt_text("path_base_at")? {
                None => None,
                Some(sha256) => Some(Base {
                    bloom: None,
                    count: count(item.int("path_base_count")?),
                    stored_at: Some(sha256.to_owned()),
                }),
            };
            let recent = Bloom::from_parts(item.bytes("path_filter")?.to_vec(), count(recent));
            Some(PathFilter::from_parts(base, recent))
        }
    };
    Ok(TableState {
        protocol: definition.protocol,
        metadata: definition.metadata,
        paths,
        app_ids: moving.app_ids,
        domains: moving.domains,
        in_commit_timestamp_ms: moving.in_commit_timestamp_ms,
        definition_at,
    })
}

fn pack<T: Serialize>(value: &T) -> Result<Vec<u8>, DecodeError> {
    let text = serde_json::to_vec(value).map_err(|error| invalid(&error))?;
    zstd::bulk::compress(&text, 3).map_err(|error| invalid(&error))
}

fn unpack<T: DeserializeOwned>(packed: &[u8]) -> Result<T, DecodeError> {
    let text = zstd::bulk::decompress(packed, UNPACKED_MAX_BYTES).map_err(|error| invalid(&error))?;
    serde_json::from_slice(&text).map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::Invalid { field: "state".into(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;
    use crate::store::{Key, Objects, Table, item_size_bytes};

    fn state(schema: String, paths: usize) -> TableState {
        let metadata = Metadata { id: "m".into(), schema_string: schema, ..Metadata::default() };
        let protocol = Protocol { min_reader_version: 1, min_writer_version: 2, ..Protocol::default() };
        let paths: Vec<String> = (0..paths).map(|path| path.to_string()).collect();
        let mark = DomainMetadata {
            domain: ROW_TRACKING_DOMAIN.into(),
            configuration: "{\"rowIdHighWaterMark\":41}".into(),
            removed: false,
        };
        let mut state = TableState {
            paths: PathFilter::build(paths.iter().map(String::as_str)),
            domains: [(mark.domain.clone(), mark)].into(),
            in_commit_timestamp_ms: Some(7),
            ..TableState::created(protocol, metadata)
        };
        state.app_ids.set("app", 3);
        state
    }

    /// Digits that compression halves at best.
    fn noise(length: usize) -> String {
        let text: String =
            (0..length as u64 / 64 + 1).map(|n| super::super::keys::content_hash(&n.to_be_bytes())).collect();
        text[..length].to_owned()
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        let state = state("x".repeat(5_000), 1);
        let mut item = Item::new();
        state.encode(&mut item).unwrap();
        assert_eq!(TableState::decode(&item).unwrap(), Some(state.clone()));
        assert_eq!(state.row_id_high_water_mark(), Some(41));
        assert_eq!((state.app_ids.last("app"), state.app_ids.last("b")), (LastVersion::Is(3), LastVersion::Never));
        assert_eq!(TableState::decode(&Item::new()).unwrap(), None);
        item.insert("state".into(), Value::Bytes(vec![1, 2, 3]));
        assert!(TableState::decode(&item).is_err());
    }

    #[tokio::test]
    async fn what_is_too_large_for_the_item_lies_beside_it() {
        let world = MemoryWorld::new(0);
        let root = Location::new("lake", "wh/t");
        for (schema, paths, puts) in [(100, 10, 0), (100, 40_000, 1), (900_000, 10, 1), (900_000, 40_000, 2)] {
            let before = world.ports.objects.object_usage();
            let mut state = state(noise(schema), paths);
            let mut item = Item::new();
            state.encode(&mut item).unwrap();
            assert_eq!(item.contains_key("path_filter") && item.contains_key("moving"), puts == 0, "not stored yet");
            state.spill(&world.ports, &root).await.unwrap();
            state.spill(&world.ports, &root).await.unwrap();
            assert_eq!(world.ports.objects.object_usage().since(&before).puts, puts);
            let mut item = Item::new();
            state.encode(&mut item).unwrap();
            let key = Key::new(Table::Commits, "p", "s");
            assert!(item_size_bytes(&key, &item) < 330 * 1024);
            let found = TableState::load(&world.ports, &root, &item).await.unwrap();
            assert_eq!(found, Some(state), "{schema} {paths}");
            assert_eq!(world.ports.objects.object_usage().since(&before).gets, puts);
            // A cache that is lost is no state.
            for key in world.objects.keys("lakewarden-reports") {
                assert!(key.starts_with("bodies/heads/"), "{key}");
                world.objects.delete(&crate::store::ObjectKey::new("lakewarden-reports", key), None).await.unwrap();
            }
            let found = TableState::load(&world.ports, &root, &item).await.unwrap();
            assert_eq!(found.is_some(), puts == 0);
        }
    }

    #[test]
    fn too_many_applications_are_not_all_remembered() {
        let mut state = state(String::new(), 1);
        for app in 0..2_000 {
            state.app_ids.set(&format!("{app:04}"), app);
        }
        assert_eq!(state.app_ids.last("0005"), LastVersion::Is(5));
        assert_eq!(state.app_ids.last("1999"), LastVersion::Unknown);
        state.app_ids.known = (0..1_000).map(|app| (noise(1_000) + &app.to_string(), app)).collect();
        let mut item = Item::new();
        state.domains.clear();
        for domain in 0..100 {
            let domain = DomainMetadata { domain: domain.to_string(), configuration: noise(900), removed: false };
            state.domains.insert(domain.domain.clone(), domain);
        }
        state.encode(&mut item).unwrap();
        assert!(item.contains_key("moving"));
    }

    #[test]
    fn new_metadata_is_stored_anew() {
        let mut state = state(String::new(), 1);
        state.definition_at = Some("x".into());
        let commit = LoggedCommit {
            version: crate::delta::Version(1),
            actions: Actions { metadata: Some(Metadata::default()), ..Actions::default() },
            bytes: Bytes::new(),
            last_modified_ms: 0,
        };
        state.apply(&Location::new("b", "t"), &commit).unwrap();
        assert_eq!(state.definition_at, None);
    }
}
