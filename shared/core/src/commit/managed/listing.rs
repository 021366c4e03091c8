//! Which commits are ratified, and not published yet.

use futures::{FutureExt, StreamExt};

use super::state::{Managed, Ratified};
use crate::commit::error::CommitError;
use crate::commit::head::{self, Head};
use crate::commit::keys::{self, content_hash};
use crate::commit::version_record::VersionRecord;
use crate::delta::log::{StagedKey, list_log};
use crate::delta::{Strictness, Version, parse_commit};
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{Consistency, GetOptions, ObjectError, get_every};

/// Published versions of one answer.
const PUBLISHED_MAX: i64 = 100;
/// Staged files that are read at once.
const CONCURRENT: usize = 16;

/// What a client must add to the log that it sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpublished {
    /// Ascending.
    pub commits: Vec<Ratified>,
    /// The table's version.
    pub latest: Version,
}

/// The unpublished commits of a range of versions (both ends included), and the table's version. Before the first commit
/// call the log tells the version.
///
/// Where the range has an end, the client asks for these versions and not for what is new: then published ones are among
/// the answer, too, as long as their staged files are there, the first hundred at most. (Sail asks for every version so,
/// and would else look for its staged file by itself, among those that were refused.)
pub async fn unpublished(
    ports: &Ports,
    root: &Location,
    from: Version,
    to: Option<Version>,
) -> Result<Unpublished, CommitError> {
    let head = head::load(&*ports.items, root).await?;
    let Some((head, managed)) = head.and_then(|head| Some((head.clone(), head.managed?))) else {
        let latest = list_log(&*ports.objects, root, None).await?.latest();
        return Ok(Unpublished { commits: Vec::new(), latest });
    };
    let mut commits = match to {
        Some(to) => published(ports, &head, &managed, from, to).await?,
        None => Vec::new(),
    };
    let is_asked = |one: &Ratified| one.version >= from && to.is_none_or(|to| one.version <= to);
    commits.extend(managed.ratified.into_iter().filter(is_asked));
    Ok(Unpublished { commits, latest: head.version })
}

async fn published(
    ports: &Ports,
    head: &Head,
    managed: &Managed,
    from: Version,
    to: Version,
) -> Result<Vec<Ratified>, CommitError> {
    let first = from.0.max(0);
    let last = to.0.min(managed.published.0).min(first.saturating_add(PUBLISHED_MAX - 1));
    let wanted: Vec<_> =
        (first..=last).map(|version| keys::version(&head.root, head.generation, Version(version))).collect();
    let mut records = Vec::new();
    for item in get_every(&*ports.items, &*ports.clock, &wanted, Consistency::Strong).await?.values() {
        records.push(VersionRecord::decode(item)?);
    }
    records.sort_by_key(|record| record.version);
    let reads: Vec<_> = records.iter().map(|record| staged_file(ports, &head.root, record).boxed()).collect();
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT);
    let mut found = Vec::new();
    while let Some(read) = reads.next().await {
        found.extend(read?);
    }
    Ok(found)
}

/// The staged file that a version was ratified from; none where it is gone, or was another catalog's.
async fn staged_file(ports: &Ports, root: &Location, record: &VersionRecord) -> Result<Option<Ratified>, CommitError> {
    let (Some(id), Some(sha256)) = (record.proposal, &record.sha256) else { return Ok(None) };
    let at = StagedKey { root: root.clone(), version: record.version, id: id.0 }.key();
    let object = match ports.objects.get(&at, &GetOptions::default()).await {
        Ok(object) if content_hash(&object.bytes) == *sha256 => object,
        Ok(_) | Err(ObjectError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let info = parse_commit(&object.bytes, Strictness::Log).ok().and_then(|actions| actions.commit_info);
    Ok(Some(Ratified {
        version: record.version,
        id,
        etag: object.meta.etag,
        sha256: sha256.clone(),
        size_bytes: object.meta.size_bytes,
        modified_ms: object.meta.last_modified_ms,
        timestamp_ms: info.and_then(|info| info.number("inCommitTimestamp")).unwrap_or(record.committed_ms),
    }))
}
