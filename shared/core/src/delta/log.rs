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
/// What the names of deltalake's copies begin with, in the log itself (`_commit_<uuid>.json.tmp`), and the name of the folder
/// in which commits lie that another catalog has ratified, before they are published ([`RATIFIED_DIR`]).
pub const LOOSE_COMMITS: &str = "_commit";
/// Folder of commits of tables whose catalog coordinates commits: `<20 digits>.<uuid>.json`.
pub const RATIFIED_DIR: &str = "_commits";

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
    /// `<v>.checkpoint.<part>.<parts>.parquet`: one of several files that hold it together.
    MultiPartCheckpoint {
        version: Version,
        part: u32,
        parts: u32,
    },
    /// `<v>.checkpoint.<uuid>.json|parquet`: names the files that hold the whole state, or holds it itself.
    V2Checkpoint {
        version: Version,
        id: Uuid,
        format: MainFile,
    },
    /// `<from>.<to>.compacted.json`: what the commits `from..=to` do together.
    Compacted {
        from: Version,
        to: Version,
    },
    /// Checksums and whatever is not ours.
    Other,
}

/// Format of a V2 checkpoint's main file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MainFile {
    Json,
    Parquet,
}

impl MainFile {
    fn extension(self) -> &'static str {
        match self {
            MainFile::Json => "json",
            MainFile::Parquet => "parquet",
        }
    }
}

impl LogName {
    pub fn parse(name: &str) -> LogName {
        let Some((version, rest)) = name.split_once('.') else { return LogName::Other };
        let Some(version) = Version::parse(version) else { return LogName::Other };
        match rest.split('.').collect::<Vec<_>>().as_slice() {
            ["json"] => LogName::Commit(version),
            ["checkpoint", "parquet"] => LogName::ClassicCheckpoint(version),
            ["checkpoint", part, parts, "parquet"] => match (number(part), number(parts)) {
                (Some(part), Some(parts)) if (1..=parts).contains(&part) => {
                    LogName::MultiPartCheckpoint { version, part, parts }
                }
                _ => LogName::Other,
            },
            ["checkpoint", id, "parquet"] => v2_checkpoint(version, id, MainFile::Parquet),
            ["checkpoint", id, "json"] => v2_checkpoint(version, id, MainFile::Json),
            [to, "compacted", "json"] => match Version::parse(to) {
                Some(to) if version <= to => LogName::Compacted { from: version, to },
                _ => LogName::Other,
            },
            _ => LogName::Other,
        }
    }

    /// The version that it is (a part of) a checkpoint of.
    pub fn checkpoint(self) -> Option<Version> {
        match self {
            LogName::ClassicCheckpoint(version)
            | LogName::MultiPartCheckpoint { version, .. }
            | LogName::V2Checkpoint { version, .. } => Some(version),
            LogName::Commit(_) | LogName::Compacted { .. } | LogName::Other => None,
        }
    }

    /// Whether it is (a part of) a checkpoint of a later version.
    pub fn is_checkpoint_after(self, version: Version) -> bool {
        self.checkpoint().is_some_and(|found| found > version)
    }

    /// The version whose state it tells by itself or with those before it: that of a commit or of a checkpoint.
    fn state_at(self) -> Option<Version> {
        match self {
            LogName::Commit(version) => Some(version),
            other => other.checkpoint(),
        }
    }

    /// The version that it is (the last one that it tells of); `None` where it is not ours.
    pub fn version(self) -> Option<Version> {
        match self {
            LogName::Commit(version)
            | LogName::ClassicCheckpoint(version)
            | LogName::MultiPartCheckpoint { version, .. }
            | LogName::V2Checkpoint { version, .. }
            | LogName::Compacted { to: version, .. } => Some(version),
            LogName::Other => None,
        }
    }

    /// The version that its name begins with: listings are in that order. `None` where it is not ours.
    pub fn starts_at(self) -> Option<Version> {
        match self {
            LogName::Compacted { from, .. } => Some(from),
            other => other.version(),
        }
    }

    /// The name as it stands in the log; `None` where it is not ours.
    pub fn text(self) -> Option<String> {
        Some(match self {
            LogName::Commit(version) => format!("{:020}.json", version.0),
            LogName::ClassicCheckpoint(version) => format!("{:020}.checkpoint.parquet", version.0),
            LogName::MultiPartCheckpoint { version, part, parts } => {
                format!("{:020}.checkpoint.{part:010}.{parts:010}.parquet", version.0)
            }
            LogName::V2Checkpoint { version, id, format } => {
                format!("{:020}.checkpoint.{id}.{}", version.0, format.extension())
            }
            LogName::Compacted { from, to } => format!("{:020}.{:020}.compacted.json", from.0, to.0),
            LogName::Other => return None,
        })
    }
}

/// Reads exactly ten digits.
fn number(digits: &str) -> Option<u32> {
    if digits.len() != 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Only ids in their usual spelling, so that the name can be told from what was read of it.
fn v2_checkpoint(version: Version, id: &str, format: MainFile) -> LogName {
    match Uuid::try_parse(id).ok().filter(|uuid| uuid.to_string() == id) {
        Some(id) => LogName::V2Checkpoint { version, id, format },
        None => LogName::Other,
    }
}

/// Key of an object of the log.
pub fn log_key(root: &Location, name: &str) -> ObjectKey {
    root.object(&format!("{LOG_DIR}/{name}"))
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

    /// Reads a key whose id is spelled otherwise (upper case, as some tools print UUIDs); `None` where it is spelled right.
    /// What lies there is not judged under that name: one id has one place.
    pub fn parse_misspelled(at: &ObjectKey) -> Option<StagedKey> {
        let (folder, name) = at.key.rsplit_once('/')?;
        let right = ObjectKey::new(at.bucket.clone(), format!("{folder}/{}", name.to_ascii_lowercase()));
        StagedKey::parse(&right).filter(|_| right != *at)
    }

    pub fn key(&self) -> ObjectKey {
        self.root.object(&format!("{LOG_DIR}/{STAGED_DIR}/{:020}.{}.json", self.version.0, self.id))
    }
}

/// Key of a proposal's bytes where they differ from what was staged; `nonce` tells attempts apart.
pub fn temp_key(root: &Location, version: Version, id: Uuid, nonce: &str) -> ObjectKey {
    root.object(&format!("{LOG_DIR}/{TEMP_DIR}/{:020}.{id}.{nonce}.json", version.0))
}

/// What an object in the folders of proposals, or of their copies, stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagedName {
    Proposal(StagedKey),
    /// A copy that the server wrote of a proposal's bytes.
    Copy,
    /// The bytes that Delta's DynamoDB log store has for a version: its entry there may be all that makes it a commit.
    LogStore(Version),
    /// What another catalog may have ratified for a version: until that is published, this is the commit.
    Ratified(Version),
    /// Nobody is told of it. Somebody may have meant it for a commit all the same.
    Odd,
}

impl StagedName {
    /// Of a key where proposals and copies lie, whatever is there.
    pub fn of(at: &ObjectKey) -> StagedName {
        if let Some(key) = StagedKey::parse(at) {
            return StagedName::Proposal(key);
        }
        let mut folders = at.key.rsplit('/');
        let name = folders.next().unwrap_or_default();
        let folder = folders.next();
        let parts: Vec<&str> = name.split('.').collect();
        let is_id = |text: &str| Uuid::try_parse(text).is_ok();
        if folder == Some(RATIFIED_DIR)
            && let [version, id, "json"] = parts.as_slice()
            && is_id(id)
        {
            return Version::parse(version).map_or(StagedName::Odd, StagedName::Ratified);
        }
        if folder != Some(TEMP_DIR) {
            return StagedName::Odd;
        }
        match parts.as_slice() {
            [version, proposal, nonce, "json"]
                if Version::parse(version).is_some() && is_id(proposal) && is_id(nonce) =>
            {
                StagedName::Copy
            }
            [version, "json", id] if is_id(id) => Version::parse(version).map_or(StagedName::Odd, StagedName::LogStore),
            _ => StagedName::Odd,
        }
    }
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

    /// The highest version that the log tells of: commits that a checkpoint stands for may have been cleaned up.
    pub fn latest(&self) -> Version {
        self.entries.iter().filter_map(|entry| entry.name.state_at()).max().unwrap_or(Version::NONE)
    }

    /// The highest version with a commit file.
    pub fn latest_commit(&self) -> Version {
        self.commits().map(|(version, _)| version).max().unwrap_or(Version::NONE)
    }

    /// What tells whether a version is still the one that was read: the ETag of its commit, else that of its checkpoint.
    pub fn mark(&self, version: Version) -> Option<&ETag> {
        let is_of = |entry: &&LogEntry| entry.name.state_at() == Some(version);
        let commit = self.commit(version);
        commit.or_else(|| self.entries.iter().find(is_of)).map(|entry| &entry.etag)
    }
}

/// Lists the log from commit `from` on (from the beginning when `None`). The prefix is `_delta_log/0`, since a listing
/// of the whole folder would run through `_staged_commits/` and other folders as well.
pub async fn list_log(
    objects: &dyn ReadObjects,
    root: &Location,
    from: Option<Version>,
) -> Result<LogListing, ObjectError> {
    let (folder, mut request) = request_from(root, from);
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

/// The first page of the log, and whether that is all of it.
pub async fn list_log_page(objects: &dyn ReadObjects, root: &Location) -> Result<(LogListing, bool), ObjectError> {
    let (folder, request) = request_from(root, None);
    let page = objects.list(&request).await?;
    let entries = page.objects.into_iter().filter_map(|object| entry(&folder, object)).collect();
    Ok((LogListing { entries }, !page.truncated))
}

fn request_from(root: &Location, from: Option<Version>) -> (String, ListRequest) {
    let folder = root.object(&format!("{LOG_DIR}/")).key;
    let request = ListRequest {
        bucket: root.bucket.clone(),
        prefix: format!("{folder}0"),
        start_after: from.filter(|version| version.0 > 0).map(|version| format!("{folder}{:020}.", version.0)),
        max_keys: LIST_PAGE_MAX_KEYS,
    };
    (folder, request)
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
        let id = Uuid::from_u128(0x80a0_83e8_7026_4e79_81be_64bd_76c4_3a11);
        let v2 = |format| LogName::V2Checkpoint { version: seven, id, format };
        for (name, expected) in [
            ("00000000000000000007.json", LogName::Commit(seven)),
            ("00000000000000000007.checkpoint.parquet", LogName::ClassicCheckpoint(seven)),
            (
                "00000000000000000007.checkpoint.0000000001.0000000002.parquet",
                LogName::MultiPartCheckpoint { version: seven, part: 1, parts: 2 },
            ),
            ("00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", v2(MainFile::Json)),
            ("00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", v2(MainFile::Parquet)),
            ("00000000000000000007.checkpoint.80A083E8-7026-4e79-81be-64bd76c43a11.parquet", LogName::Other),
            ("00000000000000000007.checkpoint.0000000003.0000000002.parquet", LogName::Other),
            ("00000000000000000007.checkpoint.1.2.parquet", LogName::Other),
            ("00000000000000000007.crc", LogName::Other),
            (
                "00000000000000000001.00000000000000000007.compacted.json",
                LogName::Compacted { from: Version(1), to: seven },
            ),
            ("00000000000000000008.00000000000000000007.compacted.json", LogName::Other),
            ("7.json", LogName::Other),
            ("0000000000000000007x.json", LogName::Other),
            ("00000000000000000007.json.tmp", LogName::Other),
        ] {
            assert_eq!(LogName::parse(name), expected, "{name}");
            assert!(expected == LogName::Other || expected.text().as_deref() == Some(name), "{name}");
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
