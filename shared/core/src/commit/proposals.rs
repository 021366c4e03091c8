//! Reading proposals: by id, by table in the order of arrival, and those that are open (for the sweeper).

use std::collections::{BTreeMap, BTreeSet};

use super::content::STAGED_MAX_BYTES;
use super::error::CommitError;
use super::head::{self, Head};
use super::keys::{self, Generation, ProposalId, TIME_PREFIX};
use super::lookup::Lookup;
use super::proposal::{Proposal, Status};
use super::time_list::TimeEntry;
use crate::delta::log::{LOG_DIR, LOOSE_COMMITS, STAGED_DIR, StagedKey, StagedName, TEMP_DIR};
use crate::delta::path::{Reach, resolve};
use crate::delta::{Strictness, parse_commit};
use crate::location::Location;
use crate::store::{
    ByteRange, Clock, Consistency, Direction, ETag, GetOptions, Key, ObjectError, ObjectKey, Query, ReadItems,
    ReadObjects, Sort, SortRange, Table, get_every, list_every,
};

/// A staged commit without a verdict is given up after this time, or the retention if that is longer.
pub const ABANDONED_MS: i64 = 14 * 86_400_000;

/// An object that was staged, or that lies where staged ones do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedObject {
    pub at: ObjectKey,
    pub etag: ETag,
    pub size_bytes: u64,
    pub last_modified_ms: i64,
    pub name: StagedName,
}

/// Everything in the folders of staged commits and of their copies, however it is named, what another catalog has ratified,
/// and the copies that deltalake makes for its own DynamoDB log store. Three listings.
pub async fn staged_objects(objects: &dyn ReadObjects, root: &Location) -> Result<Vec<StagedObject>, CommitError> {
    let mut found = Vec::new();
    // Where most commits are staged comes last: what is staged after that look is seen by nobody.
    for place in [LOOSE_COMMITS.to_owned(), format!("{TEMP_DIR}/"), format!("{STAGED_DIR}/")] {
        let prefix = root.object(&format!("{LOG_DIR}/{place}")).key;
        for object in list_every(objects, &root.bucket, &prefix).await? {
            let at = ObjectKey::new(root.bucket.clone(), object.key);
            let name = StagedName::of(&at);
            let (etag, size_bytes) = (object.etag, object.size_bytes);
            found.push(StagedObject { at, etag, size_bytes, last_modified_ms: object.last_modified_ms, name });
        }
    }
    Ok(found)
}

/// Entries of one page of a listing.
pub const LIST_MAX: usize = 100;

/// All proposals with an id: one, unless several tables used the same id. Strongly consistent.
pub async fn by_id(items: &dyn ReadItems, id: ProposalId) -> Result<Vec<Proposal>, CommitError> {
    let page = items.query(&Query::new(Table::Commits, keys::lookup_pk(id), SortRange::All)).await?;
    let mut found = Vec::new();
    for (_, item) in page.items {
        let lookup = Lookup::decode(&item)?;
        let key = keys::proposal(&lookup.root, lookup.generation, id);
        if let Some(item) = items.get(&key, Consistency::Strong).await? {
            found.push(Proposal::decode(&item)?);
        }
    }
    Ok(found)
}

/// A page of a table's proposals, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProposalPage {
    pub proposals: Vec<Proposal>,
    /// Continue with this; absent at the end.
    pub next: Option<String>,
}

/// Whether a text has the form of [`ProposalPage::next`]: `<15 digits, ms>#<uuid>`.
pub fn is_next(text: &str) -> bool {
    text.split_once('#').is_some_and(|(received_ms, id)| {
        received_ms.len() == 15
            && received_ms.bytes().all(|byte| byte.is_ascii_digit())
            && uuid::Uuid::try_parse(id).is_ok()
    })
}

/// A table's proposals of the current generation, newest first. `after` is the `next` of the page before.
pub async fn of_table(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    root: &Location,
    limit: usize,
    after: Option<&str>,
) -> Result<ProposalPage, CommitError> {
    let generation = head::load(items, root).await?.map_or(Generation::default(), |head| head.generation);
    let mut query = Query::new(Table::Commits, keys::table_pk(root, generation), SortRange::Prefix(TIME_PREFIX.into()));
    query.direction = Direction::Descending;
    query.limit = Some(limit.clamp(1, LIST_MAX));
    query.start_after = after.map(|after| Sort::Text(format!("{TIME_PREFIX}{after}")));
    let page = items.query(&query).await?;
    let mut ids = Vec::new();
    for (_, item) in &page.items {
        ids.push(TimeEntry::decode(item)?.id);
    }
    let wanted: Vec<Key> = ids.iter().map(|id| keys::proposal(root, generation, *id)).collect();
    let mut found = get_every(items, clock, &wanted, Consistency::Strong).await?;
    let mut proposals = Vec::new();
    for key in wanted {
        if let Some(item) = found.remove(&key) {
            proposals.push(Proposal::decode(&item)?);
        }
    }
    let next = page.next.and_then(|sort| match sort {
        Sort::Text(text) => text.strip_prefix(TIME_PREFIX).map(str::to_owned),
        Sort::Bytes(_) => None,
    });
    Ok(ProposalPage { proposals, next })
}

/// The files that a proposal names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedFiles {
    /// Objects of its adds, removes and change-feed files.
    Known(BTreeSet<ObjectKey>),
    /// Its bytes cannot be read: it may name any file of the table.
    Unknown { reason: String },
}

/// A proposal without a final verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenProposal {
    pub id: ProposalId,
    /// `None`: staged, but not recorded yet.
    pub status: Option<Status>,
    /// The object that holds its actions.
    pub bytes_at: ObjectKey,
    pub files: NamedFiles,
}

/// Every proposal of a table that may still be committed: staged objects without a final verdict, whether their event
/// arrived or not, and the claim on the head. Strongly consistent; one listing, one GET for each.
pub async fn open(
    items: &dyn ReadItems,
    objects: &dyn ReadObjects,
    clock: &dyn Clock,
    root: &Location,
) -> Result<Vec<OpenProposal>, CommitError> {
    let head = head::load(items, root).await?;
    let listed = staged_objects(objects, root).await?;
    let staged: Vec<StagedKey> = listed
        .into_iter()
        .filter_map(|object| match object.name {
            StagedName::Proposal(key) => Some(key),
            _ => None,
        })
        .collect();
    let ids: Vec<ProposalId> = staged.iter().map(|key| ProposalId(key.id)).collect();
    let stored = find(items, clock, root, head.as_ref(), &ids).await?;
    let mut open = Vec::new();
    for key in staged {
        let id = ProposalId(key.id);
        let at = key.key();
        // A final verdict speaks of the object that it was given for.
        let proposal = stored.get(&id).filter(|proposal| proposal.staged_key == at.key);
        // Of what a catalog ratified, the staged object is the commit until it is published.
        let is_in_log = || !head.as_ref().is_some_and(|head| head.is_unpublished(id));
        if proposal.is_some_and(|proposal| proposal.status.is_final()) && is_in_log() {
            continue;
        }
        let files = named_files(objects, root, &at).await?;
        open.push(OpenProposal { id, status: proposal.map(|proposal| proposal.status), bytes_at: at, files });
    }
    if let Some(claim) = head.and_then(|head| head.claim) {
        let at = ObjectKey::new(root.bucket.clone(), claim.bytes_key.clone());
        if !open.iter().any(|one| one.bytes_at == at) {
            let files = named_files(objects, root, &at).await?;
            let status = Some(Status::Claimed { version: claim.version, attempt: claim.attempt });
            open.push(OpenProposal { id: claim.proposal, status, bytes_at: at, files });
        }
    }
    Ok(open)
}

/// The stored proposals among these ids of a table. Strongly consistent; two batch gets.
pub async fn find(
    items: &dyn ReadItems,
    clock: &dyn Clock,
    root: &Location,
    head: Option<&Head>,
    ids: &[ProposalId],
) -> Result<BTreeMap<ProposalId, Proposal>, CommitError> {
    // The look-up knows the generation that a proposal was recorded under.
    let lookups: Vec<Key> = ids.iter().map(|id| keys::lookup(root, *id)).collect();
    let generation = head.map_or(Generation::default(), |head| head.generation);
    let mut wanted = Vec::new();
    for item in get_every(items, clock, &lookups, Consistency::Strong).await?.values() {
        let lookup = Lookup::decode(item)?;
        wanted.push(keys::proposal(root, lookup.generation.min(generation), lookup.id));
    }
    let mut found = BTreeMap::new();
    for item in get_every(items, clock, &wanted, Consistency::Strong).await?.values() {
        let proposal = Proposal::decode(item)?;
        found.insert(proposal.id, proposal);
    }
    Ok(found)
}

async fn named_files(objects: &dyn ReadObjects, root: &Location, at: &ObjectKey) -> Result<NamedFiles, CommitError> {
    let unknown = |reason: String| Ok(NamedFiles::Unknown { reason });
    let range = Some(ByteRange::From { start: 0, length: STAGED_MAX_BYTES });
    let object = match objects.get(at, &GetOptions { range, if_match: None }).await {
        Ok(object) => object,
        Err(ObjectError::NotFound(_)) => return unknown("its bytes are gone".into()),
        Err(ObjectError::InvalidRange(_)) => return Ok(NamedFiles::Known(BTreeSet::new())),
        Err(error) => return Err(error.into()),
    };
    if object.meta.size_bytes > STAGED_MAX_BYTES {
        return unknown(format!("it has {} bytes", object.meta.size_bytes));
    }
    let actions = match parse_commit(&object.bytes, Strictness::Log) {
        Ok(actions) => actions,
        Err(error) => return unknown(error.to_string()),
    };
    if actions.adds.iter().any(|add| add.deletion_vector.is_some()) {
        return unknown("it names deletion vectors".into());
    }
    let adds = actions.adds.iter().map(|add| &add.path);
    let removes = actions.removes.iter().map(|remove| &remove.path);
    let cdc = actions.cdc.iter().map(|cdc| &cdc.path);
    let mut files = BTreeSet::new();
    for path in adds.chain(removes).chain(cdc) {
        match resolve(root, path, Reach::Anywhere) {
            Ok(key) => drop(files.insert(key)),
            Err(error) => return unknown(error.to_string()),
        }
    }
    Ok(NamedFiles::Known(files))
}
