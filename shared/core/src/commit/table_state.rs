//! What the head remembers of its table, so that an ordinary append need not replay the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::path_filter::PathFilter;
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{DomainMetadata, Metadata, PathError, Protocol, Snapshot, snapshot::key_of_add};
use crate::location::Location;
use crate::store::{DecodeError, Fields, Item, Value};

/// Larger states are not kept in the item; each commit replays the log then.
const STATE_MAX_BYTES: usize = 256 * 1024;
/// What a packed state may unpack to.
const UNPACKED_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Protocol and metadata at a version, a filter of added paths, and the last in-commit timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    pub protocol: Protocol,
    pub metadata: Metadata,
    pub domains: BTreeMap<String, DomainMetadata>,
    /// Absent: liveness of paths needs a replay.
    pub paths: Option<PathFilter>,
    pub in_commit_timestamp_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Packed {
    protocol: Protocol,
    metadata: Metadata,
    #[serde(default)]
    domains: BTreeMap<String, DomainMetadata>,
    in_commit_timestamp_ms: Option<i64>,
}

impl TableState {
    pub fn of_snapshot(snapshot: &Snapshot, in_commit_timestamp_ms: Option<i64>) -> TableState {
        TableState {
            protocol: snapshot.protocol.clone(),
            metadata: snapshot.metadata.clone(),
            domains: snapshot.domains.clone(),
            paths: build_filter(snapshot),
            in_commit_timestamp_ms,
        }
    }

    /// The state after one more commit.
    pub fn apply(&mut self, root: &Location, commit: &LoggedCommit) -> Result<(), PathError> {
        if let Some(protocol) = &commit.actions.protocol {
            self.protocol = protocol.clone();
        }
        if let Some(metadata) = &commit.actions.metadata {
            self.metadata = metadata.clone();
        }
        for domain in &commit.actions.domains {
            if domain.removed {
                self.domains.remove(&domain.domain);
            } else {
                self.domains.insert(domain.domain.clone(), domain.clone());
            }
        }
        self.in_commit_timestamp_ms =
            commit.actions.commit_info.as_ref().and_then(|info| info.number("inCommitTimestamp"));
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

    /// Writes the state into an item; leaves it out where it is too large.
    pub fn encode(&self, item: &mut Item) -> Result<(), DecodeError> {
        let packed = Packed {
            protocol: self.protocol.clone(),
            metadata: self.metadata.clone(),
            domains: self.domains.clone(),
            in_commit_timestamp_ms: self.in_commit_timestamp_ms,
        };
        let text = serde_json::to_vec(&packed).map_err(|error| invalid(&error))?;
        let packed = zstd::bulk::compress(&text, 3).map_err(|error| invalid(&error))?;
        if packed.len() > STATE_MAX_BYTES || text.len() > UNPACKED_MAX_BYTES {
            return Ok(());
        }
        item.insert("state".into(), Value::Bytes(packed));
        if let Some(paths) = &self.paths {
            item.insert("path_filter".into(), Value::Bytes(paths.bits().to_vec()));
            item.insert("path_count".into(), Value::Int(i64::try_from(paths.count()).unwrap_or(i64::MAX)));
        }
        Ok(())
    }

    pub fn decode(item: &Item) -> Result<Option<TableState>, DecodeError> {
        if !item.contains_key("state") {
            return Ok(None);
        }
        let text = zstd::bulk::decompress(item.bytes("state")?, UNPACKED_MAX_BYTES).map_err(|error| invalid(&error))?;
        let packed: Packed = serde_json::from_slice(&text).map_err(|error| invalid(&error))?;
        let paths = match item.opt_int("path_count")? {
            None => None,
            Some(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                Some(PathFilter::from_parts(item.bytes("path_filter")?.to_vec(), count))
            }
        };
        Ok(Some(TableState {
            protocol: packed.protocol,
            metadata: packed.metadata,
            domains: packed.domains,
            paths,
            in_commit_timestamp_ms: packed.in_commit_timestamp_ms,
        }))
    }
}

/// The filter of a snapshot's live files. Tombstones need not be in it: adding such a path again is no double add.
fn build_filter(snapshot: &Snapshot) -> Option<PathFilter> {
    let paths: Vec<String> = snapshot.live.keys().map(|key| key.at.to_string()).collect();
    PathFilter::build(paths.iter().map(String::as_str))
}

fn invalid(error: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::Invalid { field: "state".into(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was() {
        let metadata = Metadata { id: "m".into(), schema_string: "x".repeat(5_000), ..Metadata::default() };
        let state = TableState {
            protocol: Protocol { min_reader_version: 1, min_writer_version: 2, ..Protocol::default() },
            metadata,
            domains: BTreeMap::new(),
            paths: PathFilter::build(["a"].into_iter()),
            in_commit_timestamp_ms: Some(7),
        };
        let mut item = Item::new();
        state.encode(&mut item).unwrap();
        assert_eq!(TableState::decode(&item).unwrap(), Some(state));
        assert_eq!(TableState::decode(&Item::new()).unwrap(), None);
        item.insert("state".into(), Value::Bytes(vec![1, 2, 3]));
        assert!(TableState::decode(&item).is_err());
    }
}
