//! What others put into a log, as S3's events tell it: versions are compared with what was recorded of them, checksums
//! with the version that they speak of.

use std::collections::BTreeMap;

use super::aftermath;
use super::alarm::{self, Alarm, AlarmKind};
use super::context::{Context, Transacted};
use super::error::CommitError;
use super::head::{self, Head};
use super::keys::{self, ProposalId, content_hash};
use super::log_store::{self, Seen};
use super::lookup::Lookup;
use super::managed::watch::watch;
use super::proposal::{Proposal, Status};
use super::version_record::{Blindness, VersionRecord};
use crate::delta::log::{LOG_DIR, STAGED_DIR, StagedKey, commit_key};
use crate::delta::{Strictness, Version, features, parse_commit};
use crate::location::Location;
use crate::store::{
    Condition, Consistency, ETag, GetOptions, Key, Listed, Object, ObjectError, ObjectKey, Table, Write, get_every,
    list_every,
};

/// What an object of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFile {
    /// `<version>.json`
    Commit,
    /// `<version>.crc`
    Checksum,
}

/// A version, or the checksum of one, that somebody put.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Logged {
    pub root: Location,
    pub version: Version,
    pub file: LogFile,
    pub etag: Option<ETag>,
}

impl Logged {
    /// Reads a decoded key; anything but `<root>/_delta_log/<20 digits>.json` and `.crc` is none of these.
    pub fn parse(at: &ObjectKey, etag: Option<ETag>) -> Option<Logged> {
        let (folder, name) = at.key.rsplit_once('/')?;
        let root = folder.strip_suffix(LOG_DIR)?;
        if !(root.is_empty() || root.ends_with('/')) {
            return None;
        }
        let (digits, file) = match name.split_once('.')? {
            (digits, "json") => (digits, LogFile::Commit),
            (digits, "crc") => (digits, LogFile::Checksum),
            _ => return None,
        };
        let found =
            Logged { root: Location::new(at.bucket.clone(), root), version: Version::parse(digits)?, file, etag };
        (found.key() == *at).then_some(found)
    }

    pub fn key(&self) -> ObjectKey {
        match self.file {
            LogFile::Commit => commit_key(&self.root, self.version),
            LogFile::Checksum => self.root.object(&format!("{LOG_DIR}/{:020}.crc", self.version.0)),
        }
    }
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audited {
    /// The table is none that anything is known of.
    Unknown,
    /// As it was recorded, or of a claim under way.
    AsRecorded,
    /// Another writer's version, seen for the first time: what it holds is recorded.
    Noted,
    /// Another writer's version, judged after the fact.
    Judged(ProposalId),
    /// The publication of a commit that a catalog ratified.
    Published(ProposalId),
    /// Not what the version held.
    Alarmed(AlarmKind),
    /// The checksum spoke of another commit and was deleted.
    ChecksumDeleted,
}

/// Compares objects of logs with what is known of them. Each table's head and records are read once.
pub async fn audit(ctx: Context<'_>, logged: &[Logged]) -> Vec<Result<Audited, CommitError>> {
    let mut tables: BTreeMap<&Location, Result<Known, CommitError>> = BTreeMap::new();
    for one in logged {
        if !tables.contains_key(&one.root) {
            let versions = logged.iter().filter(|other| other.root == one.root).map(|other| other.version);
            tables.insert(&one.root, Known::load(ctx, &one.root, versions).await);
        }
    }
    let mut outcomes = Vec::with_capacity(logged.len());
    for one in logged {
        outcomes.push(match tables.get(&one.root) {
            Some(Ok(known)) => known.audit(ctx, one).await,
            Some(Err(error)) => Err(error.clone()),
            None => Ok(Audited::Unknown),
        });
    }
    outcomes
}

/// What is known of a table.
struct Known {
    head: Head,
    records: BTreeMap<Version, VersionRecord>,
    /// Of other writers, for the versions in question.
    log_store: Seen,
}

impl Known {
    async fn load(
        ctx: Context<'_>,
        root: &Location,
        versions: impl Iterator<Item = Version>,
    ) -> Result<Known, CommitError> {
        let ports = ctx.ports();
        let head = head::load(&*ports.items, root).await?.unwrap_or_else(|| Head::fresh(root));
        let mut wanted: Vec<Key> = Vec::new();
        for version in versions {
            wanted.push(keys::version(root, head.generation, version));
            wanted.extend(log_store::spellings(root).iter().map(|path| log_store::key(path, version)));
        }
        let (mut records, mut log_store) = (BTreeMap::new(), Seen::default());
        for (key, item) in get_every(&*ports.items, &*ports.clock, &wanted, Consistency::Strong).await? {
            if key.table == Table::DeltaLog {
                log_store.take(key, item);
            } else {
                let record = VersionRecord::decode(&item)?;
                records.insert(record.version, record);
            }
        }
        log_store.entries.retain(|entry| !entry.is_ours());
        log_store::notice_odd(ctx, &head, &log_store.odd).await?;
        Ok(Known { head, records, log_store })
    }

    async fn audit(&self, ctx: Context<'_>, logged: &Logged) -> Result<Audited, CommitError> {
        let record = self.records.get(&logged.version);
        match logged.file {
            LogFile::Commit => {
                // Whoever put the version: its writer is not the only one that may believe it has it.
                let entries = self.log_store.entries.iter().filter(|entry| entry.version == logged.version);
                log_store::notice(ctx, &self.head, entries).await?;
                audit_commit(ctx, &self.head, record, logged).await
            }
            LogFile::Checksum => audit_checksum(ctx, &self.head, record, logged).await,
        }
    }
}

async fn audit_commit(
    ctx: Context<'_>,
    head: &Head,
    record: Option<&VersionRecord>,
    logged: &Logged,
) -> Result<Audited, CommitError> {
    if head.claim.as_ref().is_some_and(|claim| claim.version == logged.version) {
        return Ok(Audited::AsRecorded);
    }
    if let Some(managed) = head.managed.as_ref().filter(|managed| logged.version > managed.published) {
        return watch(ctx, head, managed, logged).await;
    }
    match record {
        Some(record) if record.etag.is_some() && record.etag == logged.etag => return Ok(Audited::AsRecorded),
        Some(record) => return compare(ctx, head, logged, record).await,
        None => {}
    }
    let is_ratified_elsewhere = head.revision.is_empty() || is_catalog_managed(head);
    if is_ratified_elsewhere && let Some(id) = published(ctx, head, logged).await? {
        return Ok(Audited::Published(id));
    }
    if !aftermath::is_watched(ctx, head).await? {
        return Ok(Audited::Unknown);
    }
    note(ctx, head, logged).await
}

fn is_catalog_managed(head: &Head) -> bool {
    head.state.as_ref().is_some_and(|state| features::is_catalog_managed(&state.protocol))
}

async fn read(ctx: Context<'_>, at: &ObjectKey) -> Result<Option<Object>, CommitError> {
    match ctx.ports().objects.get(at, &GetOptions::default()).await {
        Ok(object) => Ok(Some(object)),
        Err(ObjectError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is there now decides: events come late, and from the table before.
async fn compare(
    ctx: Context<'_>,
    head: &Head,
    logged: &Logged,
    record: &VersionRecord,
) -> Result<Audited, CommitError> {
    let Some(object) = read(ctx, &logged.key()).await? else { return Ok(Audited::AsRecorded) };
    let is_same = match &record.sha256 {
        Some(sha256) => content_hash(&object.bytes) == *sha256,
        None => record.etag.as_ref() == Some(&object.meta.etag),
    };
    if is_same {
        return Ok(Audited::AsRecorded);
    }
    let text = format!(
        "version {} was put again with other content (ETag {}); the log was at version {}",
        logged.version, object.meta.etag.0, head.version
    );
    rewritten(ctx, head, logged, &object, record.proposal, &text).await
}

async fn rewritten(
    ctx: Context<'_>,
    head: &Head,
    logged: &Logged,
    object: &Object,
    proposal: Option<ProposalId>,
    text: &str,
) -> Result<Audited, CommitError> {
    let kind = AlarmKind::VersionRewritten;
    let mut alarm = Alarm::new(kind, logged.version, &object.meta.etag.0, text, ctx.now_ms());
    alarm.proposal = proposal;
    alarm::raise(ctx, &logged.root, head.generation, alarm).await?;
    Ok(Audited::Alarmed(kind))
}

/// Remembers what another writer's version holds, so that a later put can be told from it. A version that was there when
/// the log was last read, and is dated later than everything that was there, has been put again already.
async fn note(ctx: Context<'_>, head: &Head, logged: &Logged) -> Result<Audited, CommitError> {
    let Some(object) = read(ctx, &logged.key()).await? else { return Ok(Audited::AsRecorded) };
    let record = VersionRecord {
        version: logged.version,
        proposal: None,
        sha256: Some(content_hash(&object.bytes)),
        etag: Some(object.meta.etag.clone()),
        operation: None,
        blindness: Blindness::Reading,
        committed_ms: object.meta.last_modified_ms,
    };
    let is_rewritten = head
        .sight
        .is_some_and(|sight| logged.version <= sight.version && object.meta.last_modified_ms > sight.written_ms);
    if is_rewritten {
        let text = format!(
            "version {} was put again (ETag {}): it had been there before, and nobody knows what it held",
            logged.version, object.meta.etag.0
        );
        // First, so that a run that ends here raises it again.
        rewritten(ctx, head, logged, &object, None, &text).await?;
    }
    if !is_rewritten
        && !is_catalog_managed(head)
        && let Some(proposal) = aftermath::judge_visible(ctx, head, logged.version, &object).await?
    {
        aftermath::follow(ctx, &head.root).await?;
        return Ok(Audited::Judged(proposal.id));
    }
    let Write::Put { key, item, .. } = record.write(&head.root, head.generation) else {
        return Ok(Audited::AsRecorded);
    };
    match ctx.ports().items.put(&key, item, Condition::Absent).await {
        Ok(()) | Err(crate::store::WriteError::ConditionFailed { .. }) if is_rewritten => {
            Ok(Audited::Alarmed(AlarmKind::VersionRewritten))
        }
        Ok(()) | Err(crate::store::WriteError::ConditionFailed { .. }) => Ok(Audited::Noted),
        Err(crate::store::WriteError::Store(error)) => Err(error.into()),
    }
}

/// What was staged for a version, whoever staged it.
async fn staged_for(ctx: Context<'_>, logged: &Logged) -> Result<Vec<(StagedKey, Listed)>, CommitError> {
    let folder = format!("{LOG_DIR}/{STAGED_DIR}/{:020}.", logged.version.0);
    let prefix = logged.root.object(&folder).key;
    let listed = list_every(&*ctx.ports().objects, &logged.root.bucket, &prefix).await?;
    let keyed = listed.into_iter().filter_map(|object| {
        let key = StagedKey::parse(&ObjectKey::new(logged.root.bucket.clone(), object.key.clone()))?;
        Some((key, object))
    });
    Ok(keyed.collect())
}

/// A catalog-managed table's version is the copy of what was staged and ratified: `<version>.json` proves it.
async fn published(ctx: Context<'_>, head: &Head, logged: &Logged) -> Result<Option<ProposalId>, CommitError> {
    let staged = staged_for(ctx, logged).await?;
    if staged.is_empty() {
        return Ok(None);
    }
    let Some(object) = read(ctx, &logged.key()).await? else { return Ok(None) };
    let lookups: Vec<_> = staged.iter().map(|(key, _)| keys::lookup(&logged.root, ProposalId(key.id))).collect();
    let found = get_every(&*ctx.ports().items, &*ctx.ports().clock, &lookups, Consistency::Strong).await?;
    for (key, listed) in &staged {
        let Some(item) = found.get(&keys::lookup(&logged.root, ProposalId(key.id))) else { continue };
        if listed.size_bytes != object.meta.size_bytes {
            continue;
        }
        let is_same = read(ctx, &key.key()).await?.is_some_and(|staged| staged.bytes == object.bytes);
        if is_same && record_published(ctx, head, &Lookup::decode(item)?, logged, &object).await? {
            return Ok(Some(ProposalId(key.id)));
        }
    }
    Ok(None)
}

async fn record_published(
    ctx: Context<'_>,
    head: &Head,
    lookup: &Lookup,
    logged: &Logged,
    object: &Object,
) -> Result<bool, CommitError> {
    let key = keys::proposal(&lookup.root, lookup.generation, lookup.id);
    let Some(item) = ctx.ports().items.get(&key, Consistency::Strong).await? else { return Ok(false) };
    let proposal = Proposal::decode(&item)?;
    if proposal.status.is_final() {
        return Ok(proposal.status == Status::Committed { version: logged.version });
    }
    let (updated_ms, revision) = (ctx.now_ms(), ctx.new_revision());
    let mut next = Proposal { updated_ms, revision, ..proposal.clone() };
    let version = logged.version;
    for status in [Status::Judged, Status::Published { version }, Status::Committed { version }] {
        if next.status != status {
            next.advance(status)?;
        }
    }
    let record = VersionRecord {
        version,
        proposal: Some(proposal.id),
        sha256: Some(content_hash(&object.bytes)),
        etag: Some(object.meta.etag.clone()),
        operation: proposal.operation.clone(),
        blindness: Blindness::Reading,
        committed_ms: object.meta.last_modified_ms,
    };
    let writes = [proposal.write(&next)?, record.write(&head.root, head.generation)];
    Ok(ctx.transact(&writes).await? == Transacted::Done)
}

/// A checksum is kept if it can only be that of its version: nobody staged another commit for the version, whose writer
/// might have taken it for made, and nothing in it contradicts the version. Readers do without one, never with a wrong one.
async fn audit_checksum(
    ctx: Context<'_>,
    head: &Head,
    record: Option<&VersionRecord>,
    logged: &Logged,
) -> Result<Audited, CommitError> {
    if head.revision.is_empty() {
        return Ok(Audited::Unknown);
    }
    if is_catalog_managed(head) {
        return Ok(Audited::AsRecorded);
    }
    let Some(checksum) = read(ctx, &logged.key()).await? else { return Ok(Audited::AsRecorded) };
    let is_stale = match read(ctx, &commit_key(&logged.root, logged.version)).await? {
        None => true,
        Some(commit) => {
            let others = staged_for(ctx, logged).await?.into_iter().any(|(key, listed)| {
                let is_it = record.is_some_and(|record| record.proposal == Some(ProposalId(key.id)));
                !(is_it && listed.etag == commit.meta.etag)
            });
            others || contradicts(&checksum.bytes, &commit.bytes)
        }
    };
    if !is_stale {
        return Ok(Audited::AsRecorded);
    }
    tracing::warn!(root = %logged.root, version = logged.version.0, "a checksum of another commit is deleted");
    match ctx.ports().objects.delete(&logged.key(), Some(&checksum.meta.etag)).await {
        // Replaced by another one, which has an event of its own.
        Ok(()) | Err(ObjectError::NotFound(_) | ObjectError::PreconditionFailed(_)) => Ok(Audited::ChecksumDeleted),
        Err(error) => Err(error.into()),
    }
}

/// Whether a checksum says of its commit what the commit does not say of itself.
fn contradicts(checksum: &[u8], commit: &[u8]) -> bool {
    let Ok(checksum) = serde_json::from_slice::<serde_json::Value>(checksum) else { return true };
    let Ok(actions) = parse_commit(commit, Strictness::Log) else { return true };
    let info = actions.commit_info.as_ref();
    let txn_id = info.and_then(|info| info.text("txnId"));
    let stamp_ms = info.and_then(|info| info.number("inCommitTimestamp"));
    let says_txn = checksum.get("txnId").and_then(serde_json::Value::as_str);
    let says_stamp = checksum.get("inCommitTimestampOpt").and_then(serde_json::Value::as_i64);
    (says_txn.is_some() && says_txn != txn_id) || (says_stamp.is_some() && says_stamp != stamp_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_and_their_checksums_are_audited() {
        let parse = |key: &str| Logged::parse(&ObjectKey::new("b", key), None);
        let found = parse("wh/t/_delta_log/00000000000000000007.json").unwrap();
        assert_eq!(
            (found.root.to_string().as_str(), found.version, found.file),
            ("s3://b/wh/t", Version(7), LogFile::Commit)
        );
        assert_eq!(parse("_delta_log/00000000000000000007.crc").unwrap().file, LogFile::Checksum);
        for other in [
            "wh/t/_delta_log/7.json",
            "wh/t/_delta_log/00000000000000000007.checkpoint.parquet",
            "wh/t/_delta_log/_staged_commits/00000000000000000007.json",
            "wh/t/_delta_log/.tmp/00000000000000000007.json",
            "wh/t_delta_log/00000000000000000007.json",
            "wh/t//_delta_log/00000000000000000007.json",
            "00000000000000000007.json",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_checksum_that_names_another_transaction_is_wrong() {
        let commit = br#"{"commitInfo":{"txnId":"t","inCommitTimestamp":5}}"#;
        for (checksum, expected) in [
            (r#"{"txnId":"t","inCommitTimestampOpt":5,"numFiles":1}"#, false),
            (r#"{"numFiles":1}"#, false),
            (r#"{"txnId":"u"}"#, true),
            (r#"{"inCommitTimestampOpt":6}"#, true),
            ("{", true),
        ] {
            assert_eq!(contradicts(checksum.as_bytes(), commit), expected, "{checksum}");
        }
    }
}
