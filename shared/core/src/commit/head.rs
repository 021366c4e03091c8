//! Item: head of a table. One for each root; says which generation is current, what version is published, which claim
//! is under way, and whether a sweep holds the fence.

use std::cmp::Ordering;

use super::keys::{self, Generation, ProposalId};
use super::managed::Managed;
use super::table_state::TableState;
use crate::delta::Version;
use crate::location::Location;
use crate::store::{
    Condition, Consistency, DecodeError, ETag, Fields, Ids, Item, Items, ReadItems, StoreError, Value, WriteError,
};

pub const SCHEMA_VERSION: i64 = 1;

/// How long a worker has a table to itself, counted anew with each claim. Only saves work: whatever two workers do at
/// the same time is decided by the claim.
pub const LEASE_MS: i64 = 4_000;

/// One invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId(pub uuid::Uuid);

/// Who is at work on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub worker: WorkerId,
    pub until_ms: i64,
}

/// Whether claims are shared with writers that use Delta's DynamoDB log store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStore {
    /// Claims live in the table `commits` alone.
    #[default]
    Off,
    /// Each claim has its items in the table `delta_log` as well.
    Shared,
}

/// A version given to a proposal and not seen published yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub version: Version,
    pub proposal: ProposalId,
    pub attempt: i64,
    /// Key of the durable bytes, in the table's bucket.
    pub bytes_key: String,
    pub bytes_etag: ETag,
    pub sha256: String,
    pub claimed_ms: i64,
    /// Whether it has items in `delta_log`, too.
    pub log_store: LogStore,
}

/// What a listing of the log showed: a version up to `version` that is dated later was written over since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    pub version: Version,
    /// The latest date of those versions.
    pub written_ms: i64,
}

/// When an object was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Before the table was.
    Before,
    /// In the second in which the table took the place of another one: it may belong to either.
    SameSecond,
    Since,
}

/// A sweep is about to delete: claims wait until it is cleared or has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub run: String,
    pub expires_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub root: Location,
    pub generation: Generation,
    /// Highest version known to be published, by us or by others; [`Version::NONE`] before the first.
    pub version: Version,
    /// `metaData.id` of the table; tells a table from another one written at the same root.
    pub metadata_id: Option<String>,
    /// ETag of `<version>.json`: whether the log is still the one we know.
    pub log_etag: Option<ETag>,
    /// When the table of this generation was written, in whole seconds, as S3 dates it; 0 where nobody knows.
    pub born_ms: i64,
    /// What was in the log when it was last read; absent on heads of before.
    pub sight: Option<Sight>,
    /// Changes with every write; never used twice.
    pub revision: String,
    pub claim: Option<Claim>,
    pub fence: Option<Fence>,
    pub lease: Option<Lease>,
    /// Shared once an item of another writer was seen; the table's property may say so as well.
    pub log_store: LogStore,
    /// Of catalog-managed tables: what was ratified.
    pub managed: Option<Managed>,
    pub state: Option<TableState>,
}

impl Head {
    /// The head of a root that has none yet.
    pub fn fresh(root: &Location) -> Head {
        Head {
            root: root.clone(),
            generation: Generation::default(),
            version: Version::NONE,
            metadata_id: None,
            log_etag: None,
            born_ms: 0,
            sight: None,
            revision: String::new(),
            claim: None,
            fence: None,
            lease: None,
            log_store: LogStore::Off,
            managed: None,
            state: None,
        }
    }

    /// Whether a proposal is ratified and its version not in the log yet.
    pub fn is_unpublished(&self, id: ProposalId) -> bool {
        self.managed.as_ref().is_some_and(|managed| managed.is_unpublished(id))
    }

    /// When an object was written, compared with the table of this generation. S3 dates objects in whole seconds.
    pub fn age_of(&self, last_modified_ms: i64) -> Age {
        match last_modified_ms.div_euclid(1_000).cmp(&self.born_ms.div_euclid(1_000)) {
            Ordering::Less => Age::Before,
            // Nothing is known of a table before the first one.
            Ordering::Equal if self.generation.0 > 0 => Age::SameSecond,
            Ordering::Equal | Ordering::Greater => Age::Since,
        }
    }

    /// Until when another worker has the table to itself.
    pub fn leased_until_ms(&self, worker: WorkerId, now_ms: i64) -> Option<i64> {
        self.lease.filter(|lease| lease.worker != worker && lease.until_ms > now_ms).map(|lease| lease.until_ms)
    }

    /// What a write of the head demands: the revision that was read, or that there is none.
    pub fn unchanged(&self) -> Condition {
        if self.revision.is_empty() { Condition::Absent } else { Condition::equals("revision", self.revision.as_str()) }
    }

    /// The fence, if it still holds.
    pub fn active_fence(&self, now_ms: i64) -> Option<&Fence> {
        self.fence.as_ref().filter(|fence| fence.expires_ms > now_ms)
    }

    pub fn encode(&self) -> Result<Item, DecodeError> {
        let mut item = Item::new();
        item.insert("schema_version".into(), Value::Int(SCHEMA_VERSION));
        item.insert("root".into(), self.root.to_string().into());
        item.insert("generation".into(), Value::Int(self.generation.0));
        item.insert("version".into(), Value::Int(self.version.0));
        item.insert("born_ms".into(), Value::Int(self.born_ms));
        item.insert("revision".into(), self.revision.as_str().into());
        if let Some(id) = &self.metadata_id {
            item.insert("metadata_id".into(), id.as_str().into());
        }
        if let Some(etag) = &self.log_etag {
            item.insert("log_etag".into(), etag.0.as_str().into());
        }
        if let Some(sight) = self.sight {
            item.insert("sight_version".into(), Value::Int(sight.version.0));
            item.insert("sight_written_ms".into(), Value::Int(sight.written_ms));
        }
        if let Some(claim) = &self.claim {
            item.insert("claim".into(), Value::Map(encode_claim(claim)));
        }
        if let Some(fence) = &self.fence {
            item.insert("fence_run".into(), fence.run.as_str().into());
            item.insert("fence_expires_ms".into(), Value::Int(fence.expires_ms));
        }
        if let Some(lease) = &self.lease {
            item.insert("lease_worker".into(), lease.worker.0.to_string().into());
            item.insert("lease_until_ms".into(), Value::Int(lease.until_ms));
        }
        if self.log_store == LogStore::Shared {
            item.insert("log_store".into(), Value::Bool(true));
        }
        if let Some(managed) = &self.managed {
            item.insert("managed".into(), managed.encode());
        }
        if let Some(state) = &self.state {
            state.encode(&mut item)?;
        }
        Ok(item)
    }

    pub fn decode(item: &Item) -> Result<Head, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        let fence = match item.opt_text("fence_run")? {
            Some(run) => Some(Fence { run: run.to_owned(), expires_ms: item.int("fence_expires_ms")? }),
            None => None,
        };
        let lease = match item.opt_text("lease_worker")? {
            Some(_) => Some(Lease {
                worker: WorkerId(decode_id(item, "lease_worker")?.0),
                until_ms: item.int("lease_until_ms")?,
            }),
            None => None,
        };
        let claim = match item.get("claim") {
            Some(Value::Map(claim)) => Some(decode_claim(claim)?),
            _ => None,
        };
        let sight = match item.opt_int("sight_version")? {
            Some(version) => Some(Sight { version: Version(version), written_ms: item.int("sight_written_ms")? }),
            None => None,
        };
        Ok(Head {
            root: decode_root(item)?,
            generation: Generation(item.int("generation")?),
            version: Version(item.int("version")?),
            metadata_id: item.opt_text("metadata_id")?.map(str::to_owned),
            log_etag: item.opt_text("log_etag")?.map(|etag| ETag(etag.to_owned())),
            born_ms: item.int("born_ms")?,
            sight,
            revision: item.text("revision")?.to_owned(),
            claim,
            fence,
            lease,
            log_store: decode_log_store(item)?,
            managed: Managed::decode(item)?,
            state: TableState::decode(item)?,
        })
    }
}

pub(super) fn decode_root(item: &Item) -> Result<Location, DecodeError> {
    Location::parse(item.text("root")?)
        .map_err(|error| DecodeError::Invalid { field: "root".into(), message: error.to_string() })
}

pub(super) fn decode_id(item: &Item, field: &str) -> Result<ProposalId, DecodeError> {
    let text = item.text(field)?;
    uuid::Uuid::try_parse(text)
        .map(ProposalId)
        .map_err(|error| DecodeError::Invalid { field: field.into(), message: error.to_string() })
}

fn decode_log_store(item: &Item) -> Result<LogStore, DecodeError> {
    let is_shared = item.contains_key("log_store") && item.flag("log_store")?;
    Ok(if is_shared { LogStore::Shared } else { LogStore::Off })
}

fn encode_claim(claim: &Claim) -> Item {
    let mut item = Item::from([
        ("version".into(), Value::Int(claim.version.0)),
        ("proposal".into(), claim.proposal.to_string().into()),
        ("attempt".into(), Value::Int(claim.attempt)),
        ("bytes_key".into(), claim.bytes_key.as_str().into()),
        ("bytes_etag".into(), claim.bytes_etag.0.as_str().into()),
        ("sha256".into(), claim.sha256.as_str().into()),
        ("claimed_ms".into(), Value::Int(claim.claimed_ms)),
    ]);
    if claim.log_store == LogStore::Shared {
        item.insert("log_store".into(), Value::Bool(true));
    }
    item
}

fn decode_claim(item: &Item) -> Result<Claim, DecodeError> {
    Ok(Claim {
        version: Version(item.int("version")?),
        proposal: decode_id(item, "proposal")?,
        attempt: item.int("attempt")?,
        bytes_key: item.text("bytes_key")?.to_owned(),
        bytes_etag: ETag(item.text("bytes_etag")?.to_owned()),
        sha256: item.text("sha256")?.to_owned(),
        claimed_ms: item.int("claimed_ms")?,
        log_store: decode_log_store(item)?,
    })
}

/// Reads the head of a root, strongly consistent.
pub async fn load(items: &dyn ReadItems, root: &Location) -> Result<Option<Head>, HeadError> {
    match items.get(&keys::head(root), Consistency::Strong).await? {
        Some(item) => Ok(Some(Head::decode(&item)?)),
        None => Ok(None),
    }
}

/// A head could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Somebody wrote the head since it was read: read it again.
    #[error("the head of {0} changed since it was read")]
    Changed(Location),
    /// Another run holds the fence.
    #[error("run {run} holds the fence until {expires_ms}")]
    Fenced { run: String, expires_ms: i64 },
    #[error(transparent)]
    Item(#[from] DecodeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Puts a fence on the head that was read (`None`: there was none, one is made). Claims wait from here on, until the
/// fence is cleared or `expires_ms` (by the Clock port) has passed. Answers the head as it is now.
///
/// A claim that was made before shows as `head.claim`: its files are protected like those of any open proposal.
pub async fn set_fence(
    items: &dyn Items,
    ids: &dyn Ids,
    root: &Location,
    read: Option<&Head>,
    fence: Fence,
    now_ms: i64,
) -> Result<Head, HeadError> {
    let mut head = read.cloned().unwrap_or_else(|| Head::fresh(root));
    if let Some(other) = head.active_fence(now_ms).filter(|other| other.run != fence.run) {
        return Err(HeadError::Fenced { run: other.run.clone(), expires_ms: other.expires_ms });
    }
    let unchanged = head.unchanged();
    head.fence = Some(fence);
    head.revision = ids.uuid().to_string();
    put(items, head, unchanged).await
}

/// Takes `run`'s fence off; a head without it, or with another run's, is left alone.
pub async fn clear_fence(items: &dyn Items, ids: &dyn Ids, root: &Location, run: &str) -> Result<(), HeadError> {
    loop {
        let Some(mut head) = load(items, root).await? else { return Ok(()) };
        if head.fence.as_ref().is_none_or(|fence| fence.run != run) {
            return Ok(());
        }
        let unchanged = head.unchanged();
        head.fence = None;
        head.revision = ids.uuid().to_string();
        match put(items, head, unchanged).await {
            Err(HeadError::Changed(_)) => continue,
            other => return other.map(|_| ()),
        }
    }
}

async fn put(items: &dyn Items, head: Head, unchanged: Condition) -> Result<Head, HeadError> {
    match items.put(&keys::head(&head.root), head.encode()?, unchanged).await {
        Ok(()) => Ok(head),
        Err(WriteError::ConditionFailed { .. }) => Err(HeadError::Changed(head.root)),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

impl From<HeadError> for super::error::CommitError {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Item(error) => error.into(),
            HeadError::Store(error) => error.into(),
            HeadError::Fenced { run, .. } => super::error::CommitError::Fenced { run },
            HeadError::Changed(_) => super::error::CommitError::Contended { attempts: 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;

    fn head() -> Head {
        Head {
            version: Version(4),
            metadata_id: Some("m".into()),
            log_etag: Some(ETag("e".into())),
            born_ms: 5,
            sight: Some(Sight { version: Version(3), written_ms: 4 }),
            revision: "r".into(),
            claim: Some(Claim {
                version: Version(5),
                proposal: ProposalId(uuid::Uuid::from_u128(1)),
                attempt: 2,
                bytes_key: "k".into(),
                bytes_etag: ETag("f".into()),
                sha256: "s".into(),
                claimed_ms: 6,
                log_store: LogStore::Shared,
            }),
            fence: Some(Fence { run: "run".into(), expires_ms: 9 }),
            lease: Some(Lease { worker: WorkerId(uuid::Uuid::from_u128(7)), until_ms: 8 }),
            log_store: LogStore::Shared,
            ..Head::fresh(&Location::new("b", "t"))
        }
    }

    #[test]
    fn a_head_comes_back_as_it_was() {
        for head in [head(), Head::fresh(&Location::new("b", ""))] {
            assert_eq!(Head::decode(&head.encode().unwrap()).unwrap(), head);
        }
        let mut old = head().encode().unwrap();
        old.insert("schema_version".into(), Value::Int(0));
        assert!(matches!(Head::decode(&old), Err(DecodeError::Layout { found: 0, expected: 1 })));
    }

    #[tokio::test]
    async fn a_fence_is_conditional_on_what_was_read() {
        let world = MemoryWorld::new(0);
        let (items, ids, root) = (&*world.items, &*world.ports.ids, Location::new("b", "t"));
        let fence = |run: &str| Fence { run: run.into(), expires_ms: 100 };
        let set = set_fence(items, ids, &root, None, fence("one"), 0).await.unwrap();
        assert_eq!(load(items, &root).await.unwrap(), Some(set.clone()));
        let blind = set_fence(items, ids, &root, None, fence("two"), 0).await;
        assert_eq!(blind, Err(HeadError::Changed(root.clone())));
        let other = set_fence(items, ids, &root, Some(&set), fence("two"), 50).await;
        assert!(matches!(other, Err(HeadError::Fenced { .. })));
        set_fence(items, ids, &root, Some(&set), fence("two"), 100).await.unwrap();
        clear_fence(items, ids, &root, "one").await.unwrap();
        assert!(load(items, &root).await.unwrap().unwrap().fence.is_some());
        clear_fence(items, ids, &root, "two").await.unwrap();
        assert_eq!(load(items, &root).await.unwrap().unwrap().fence, None);
    }
}
