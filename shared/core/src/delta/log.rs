//! Names in `_delta_log/`: commits, checkpoints, staged commits; and the listing of the log.

use std::fmt;

use uuid::Uuid;

use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::store::{ETag, ListRequest, Listed, ObjectError, ObjectKey, ReadObjects};

/// Folder of the log below the table's root.
pub const LOG_DIR: &str = "_delta_log";
/// Folder of proposals below the log.
pub const STAGED_DIR: &str = "_staged_commits";
/// Folder of bytes that the server wrote itself because they differ from what was staged.
pub const TEMP_DIR: &str = ".tmp";

/// Number of a commit. [`Version::NONE`] stands for the log before its first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub i64);

impl Version {
    /// Before the first commit: what the creator of a table has read.
    pub const NONE: Version = Version(-1);

    pub fn next(self) -> Version {
        Version(self.0.saturating_add(1))
    }

    pub fn previous(self) -> Version {
        Version(self.0.saturating_sub(1))
    }

    /// Reads exactly twenty digits that fit into 63 bits.
    pub fn parse(digits: &str) -> Option<Version> {
        if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok().map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a name directly in `_delta_log/` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogName {
    Commit(Version),
    /// `<v>.checkpoint.parquet`: one file that holds the whole state.
    ClassicCheckpoint(Version),
    /// `<v>.checkpoint.<i>.<n>.parquet`
    MultiPartCheckpoint(Version),
    /// `<v>.checkpoint.<uuid>.json|parquet`
    V2Checkpoint(Version),
    /// Checksums, log compactions, and whatever is not ours.
    Other,
}

impl LogName {
    pub fn parse(name: &str) -> LogName {
        let Some((version, rest)) = name.split_once('.') else { return LogName::Other };
        let Some(version) = Version::parse(version) else { return LogName::Other };
        match rest.split('.').collect::<Vec<_>>().as_slice() {
            ["json"] => LogName::Commit(version),
            ["checkpoint", "parquet"] => LogName::ClassicCheckpoint(version),
            ["checkpoint", _, _, "parquet"] => LogName::MultiPartCheckpoint(version),
            ["checkpoint", _, "parquet" | "json"] => LogName::V2Checkpoint(version),
            _ => LogName::Other,
        }
    }
}

/// Key of commit `version`.
pub fn commit_key(root: &Location, version: Version) -> ObjectKey {
    root.object(&format!("{LOG_DIR}/{:020}.json", version.0))
}

/// Key of the classic checkpoint of `version`.
pub fn checkpoint_key(root: &Location, version: Version) -> ObjectKey {
    root.object(&format!("{LOG_DIR}/{:020}.checkpoint.parquet", version.0))
}

/// A key of the form `<root>/_delta_log/_staged_commits/<20 digits>.<uuid>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StagedKey {
    pub root: Location,
    /// The version that the writer proposes.
    pub version: Version,
    pub id: Uuid,
}

impl StagedKey {
    /// Reads a decoded key; anything that is not exactly of this form is none of ours.
    pub fn parse(at: &ObjectKey) -> Option<StagedKey> {
        let marker = format!("{LOG_DIR}/{STAGED_DIR}/");
        let (root, name) = at.key.rsplit_once(marker.as_str())?;
        if !(root.is_empty() || root.ends_with('/')) {
            return None;
        }
        let (version, rest) = name.split_once('.')?;
        let id = rest.strip_suffix(".json")?;
        // Only the hyphenated lower-case form, so that one id has one spelling.
        let parsed = Uuid::try_parse(id).ok().filter(|uuid| uuid.to_string() == id)?;
        let location = Location::new(at.bucket.clone(), root);
        // A prefix that is not canonical (`a//`) would be another object than the one we would read.
        let found = StagedKey { root: location, version: Version::parse(version)?, id: parsed };
        (found.key() == *at).then_some(found)
    }

    pub fn key(&self) -> ObjectKey {
        self.root.object(&format!("{LOG_DIR}/{STAGED_DIR}/{:020}.{}.json", self.version.0, self.id))
    }
}

/// Key of a proposal's bytes where they differ from what was staged; `nonce` tells attempts apart.
pub fn temp_key(root: &Location, version: Version, id: Uuid, nonce: &str) -> ObjectKey {
    root.object(&format!("{LOG_DIR}/{TEMP_DIR}/{:020}.{id}.{nonce}.json", version.0))
}

/// One object of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub name: LogName,
    pub etag: ETag,
    pub size_bytes: u64,
    pub last_modified_ms: i64,
}

/// Part of a log as one listing saw it, in byte order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogListing {
    pub entries: Vec<LogEntry>,
}

impl LogListing {
    /// Versions that have a commit file, ascending.
    pub fn commits(&self) -> impl Iterator<Item = (Version, &LogEntry)> {
        self.entries.iter().filter_map(|entry| match entry.name {
            LogName::Commit(version) => Some((version, entry)),
            _ => None,
        })
    }

    pub fn commit(&self, version: Version) -> Option<&LogEntry> {
        self.commits().find(|(found, _)| *found == version).map(|(_, entry)| entry)
    }

    /// The highest version with a commit file.
    pub fn latest(&self) -> Version {
        self.commits().map(|(version, _)| version).max().unwrap_or(Version::NONE)
    }
}

/// Lists the log from commit `from` on (from the beginning when `None`). The prefix is `_delta_log/0`, since a listing
/// of the whole folder would run through `_staged_commits/` and other folders as well.
pub async fn list_log(
    objects: &dyn ReadObjects,
    root: &Location,
    from: Option<Version>,
) -> Result<LogListing, ObjectError> {
    let folder = root.object(&format!("{LOG_DIR}/")).key;
    let mut request = ListRequest {
        bucket: root.bucket.clone(),
        prefix: format!("{folder}0"),
        start_after: from.filter(|version| version.0 > 0).map(|version| format!("{folder}{:020}.", version.0)),
        max_keys: LIST_PAGE_MAX_KEYS,
    };
    let mut listing = LogListing::default();
    loop {
        let page = objects.list(&request).await?;
        request.start_after = page.objects.last().map(|object| object.key.clone());
        listing.entries.extend(page.objects.into_iter().filter_map(|object| entry(&folder, object)));
        if !page.truncated || request.start_after.is_none() {
            return Ok(listing);
        }
    }
}

fn entry(folder: &str, object: Listed) -> Option<LogEntry> {
    let name = LogName::parse(object.key.strip_prefix(folder)?);
    (name != LogName::Other).then_some(LogEntry {
        name,
        etag: object.etag,
        size_bytes: object.size_bytes,
        last_modified_ms: object.last_modified_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;
    use crate::store::{Objects, PutOptions};

    #[test]
    fn names_of_the_log_are_told_apart() {
        let seven = Version(7);
        for (name, expected) in [
            ("00000000000000000007.json", LogName::Commit(seven)),
            ("00000000000000000007.checkpoint.parquet", LogName::ClassicCheckpoint(seven)),
            ("00000000000000000007.checkpoint.0000000001.0000000002.parquet", LogName::MultiPartCheckpoint(seven)),
            ("00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", LogName::V2Checkpoint(seven)),
            ("00000000000000000007.crc", LogName::Other),
            ("00000000000000000001.00000000000000000007.compacted.json", LogName::Other),
            ("7.json", LogName::Other),
            ("0000000000000000007x.json", LogName::Other),
            ("00000000000000000007.json.tmp", LogName::Other),
        ] {
            assert_eq!(LogName::parse(name), expected, "{name}");
        }
    }

    #[test]
    fn only_exact_staged_keys_are_ours() {
        let id = "80a083e8-7026-4e79-81be-64bd76c43a11";
        let good = ObjectKey::new("b", format!("wh/t/_delta_log/_staged_commits/00000000000000000003.{id}.json"));
        let parsed = StagedKey::parse(&good).unwrap();
        assert_eq!((parsed.root.to_string().as_str(), parsed.version), ("s3://b/wh/t", Version(3)));
        assert_eq!(parsed.key(), good);
        assert!(
            StagedKey::parse(&ObjectKey::new(
                "b",
                format!("_delta_log/_staged_commits/00000000000000000003.{id}.json")
            ))
            .is_some()
        );
        for bad in [
            format!("wh/t/_delta_log/_staged_commits/3.{id}.json"),
            format!("wh/t/_delta_log/_staged_commits/00000000000000000003.{}.json", id.to_uppercase()),
            "wh/t/_delta_log/_staged_commits/00000000000000000003.json".to_owned(),
            format!("wh/t/_delta_log/_staged_commits/x/00000000000000000003.{id}.json"),
            format!("wh/t_delta_log/_staged_commits/00000000000000000003.{id}.json"),
            format!("wh/t//_delta_log/_staged_commits/00000000000000000003.{id}.json"),
            format!("wh/t/_delta_log/_staged_commits/00000000000000000003.{id}.json.tmp"),
            format!("wh/t/_delta_log/_staged_commits/99999999999999999999.{id}.json"),
        ] {
            assert_eq!(StagedKey::parse(&ObjectKey::new("b", bad.clone())), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_listing_sees_the_log_and_nothing_beside_it() {
        let world = MemoryWorld::new(0);
        for key in [
            "t/_delta_log/00000000000000000000.json",
            "t/_delta_log/00000000000000000001.json",
            "t/_delta_log/00000000000000000001.checkpoint.parquet",
            "t/_delta_log/00000000000000000002.json",
            "t/_delta_log/00000000000000000002.crc",
            "t/_delta_log/_staged_commits/00000000000000000003.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            "t/_delta_log/_last_checkpoint",
            "t/_delta_log_v2/00000000000000000009.json",
        ] {
            world
                .objects
                .put(&ObjectKey::new("b", key), bytes::Bytes::from_static(b"x"), &PutOptions::default())
                .await
                .unwrap();
        }
        let root = Location::new("b", "t");
        let all = list_log(&*world.objects, &root, None).await.unwrap();
        assert_eq!(all.latest(), Version(2));
        assert_eq!(all.entries.len(), 4);
        let some = list_log(&*world.objects, &root, Some(Version(2))).await.unwrap();
        assert_eq!(some.commits().map(|(version, _)| version).collect::<Vec<_>>(), [Version(2)]);
        assert_eq!(world.objects.object_usage().lists, 2);
    }
}
