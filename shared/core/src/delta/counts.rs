//! What writers have counted beside the log: `<version>.crc` and `_last_checkpoint`. Neither is part of the log, both may be
//! missing, torn, or left over from something else; where they speak of what was read they should agree with it.

use serde::Deserialize;

use super::actions::{Protocol, Strictness, parse_commit};
use super::log::{Version, commit_key, log_key};
use super::snapshot::{CheckpointCounts, ReadError, SnapshotError, read_bounded};
use crate::location::Location;
use crate::store::{ObjectKey, ReadObjects};

/// Names the last checkpoint.
const HINT: &str = "_last_checkpoint";
const HINT_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Checksums may list all files; larger ones are not read.
const CHECKSUM_MAX_BYTES: u64 = 32 * 1024 * 1024;
const V2_CHECKPOINT: &str = "v2Checkpoint";

/// What `_last_checkpoint` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCheckpoint {
    pub version: Version,
    /// Actions of all kinds.
    size: Option<u64>,
    adds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawHint {
    version: i64,
    size: Option<u64>,
    num_of_add_files: Option<u64>,
}

/// What a checksum file says of its version, as far as it is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checksum {
    table_size_bytes: Option<i64>,
    num_files: Option<u64>,
    txn_id: Option<String>,
    in_commit_timestamp_opt: Option<i64>,
}

async fn read_bytes(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    limit_bytes: u64,
) -> Result<Option<bytes::Bytes>, SnapshotError> {
    match read_bounded(objects, at, limit_bytes).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(ReadError::Other(SnapshotError::Store(error))) => Err(error.into()),
        // Nobody needs it.
        Err(_) => Ok(None),
    }
}

/// The hint at the last checkpoint, if there is one that can be read. It may be stale.
pub async fn read_last_checkpoint(
    objects: &dyn ReadObjects,
    root: &Location,
) -> Result<Option<LastCheckpoint>, SnapshotError> {
    let bytes = read_bytes(objects, &log_key(root, HINT), HINT_MAX_BYTES).await?;
    let raw: Option<RawHint> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let hint = raw.filter(|raw| raw.version >= 0);
    Ok(hint.map(|raw| LastCheckpoint { version: Version(raw.version), size: raw.size, adds: raw.num_of_add_files }))
}

/// The checksum of a version, if there is one that can be read.
pub async fn read_checksum(
    objects: &dyn ReadObjects,
    root: &Location,
    version: Version,
) -> Result<Option<Checksum>, SnapshotError> {
    let at = log_key(root, &format!("{:020}.crc", version.0));
    let bytes = read_bytes(objects, &at, CHECKSUM_MAX_BYTES).await?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

impl LastCheckpoint {
    /// What it says that is not so, in words. `latest` is the newest version of a listing that was made after it was read.
    pub fn contradiction(
        &self,
        latest: Version,
        protocol: &Protocol,
        read: Option<&CheckpointCounts>,
    ) -> Option<String> {
        if self.version > latest {
            return Some(format!("{HINT} names version {}, and the log ends at {latest}", self.version));
        }
        let read = read.filter(|read| read.version == self.version)?;
        if let Some(adds) = self.adds.filter(|adds| *adds != read.adds) {
            let version = self.version;
            return Some(format!(
                "the checkpoint of version {version} has {} files, and {HINT} counts {adds}",
                read.adds
            ));
        }
        // Whether actions that only name other files of the checkpoint count is not agreed on.
        let features = [&protocol.reader_features, &protocol.writer_features];
        let has_sidecars = features.into_iter().flatten().flatten().any(|feature| feature == V2_CHECKPOINT);
        let size = self.size.filter(|size| !has_sidecars && *size > read.actions)?;
        let version = self.version;
        Some(format!("the checkpoint of version {version} has {} actions, and {HINT} counts {size}", read.actions))
    }
}

impl Checksum {
    /// What it says of the version that is not so, in words; unknown bytes contradict nothing.
    pub fn contradiction(&self, version: Version, files: u64, bytes: Option<i64>) -> Option<String> {
        if let Some(counted) = self.num_files.filter(|counted| *counted != files) {
            return Some(format!("version {version} has {files} files, and its checksum file counts {counted}"));
        }
        let bytes = bytes?;
        let counted = self.table_size_bytes.filter(|counted| *counted != bytes)?;
        Some(format!("the files of version {version} have {bytes} bytes, and its checksum file counts {counted}"))
    }

    /// Whether it was written for another commit of this version, which was not made: its writer's version became another
    /// one.
    pub async fn is_of_another_commit(
        &self,
        objects: &dyn ReadObjects,
        root: &Location,
        version: Version,
    ) -> Result<bool, SnapshotError> {
        if self.txn_id.is_none() && self.in_commit_timestamp_opt.is_none() {
            return Ok(false);
        }
        let bytes = read_bytes(objects, &commit_key(root, version), super::actions::COMMIT_MAX_BYTES).await?;
        let actions = bytes.and_then(|bytes| parse_commit(&bytes, Strictness::Log).ok());
        let Some(actions) = actions else { return Ok(false) };
        let info = actions.commit_info.as_ref();
        let txn_id = info.and_then(|info| info.text("txnId"));
        let stamp_ms = info.and_then(|info| info.number("inCommitTimestamp"));
        let is_other_txn = self.txn_id.as_deref().is_some_and(|said| txn_id.is_some_and(|found| found != said));
        let is_other_stamp =
            self.in_commit_timestamp_opt.is_some_and(|said| stamp_ms.is_some_and(|found| found != said));
        Ok(is_other_txn || is_other_stamp)
    }
}
