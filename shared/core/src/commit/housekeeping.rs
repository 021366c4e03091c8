//! What is done for a table from time to time: claims that a crash left behind are finished, commits that nobody told
//! us of are judged, overtaken ones are rescued, a log with a gap is alarmed, and what is old goes: verdicts, staged objects, our own copies.

use std::collections::{BTreeMap, HashSet};

use super::claim;
use super::context::{CLAIM_MS, Context, Transacted};
use super::door::redelivery;
use super::error::CommitError;
use super::head::{self, Head};
use super::keys::{self, Generation, ProposalId, TIME_PREFIX};
use super::lookup::Lookup;
use super::managed::publish_pending;
use super::proposal::{Proposal, Status};
use super::proposals::ABANDONED_MS;
use super::recover;
use super::sync;
use super::time_list::TimeEntry;
use super::{log_state, log_store};
use crate::delta::features;
use crate::delta::log::{LOG_DIR, STAGED_DIR, StagedKey, StagedName, TEMP_DIR, Version};
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::store::{
    Condition, Consistency, ETag, Key, ListRequest, Listed, ObjectError, ObjectKey, Query, QueueName, Sort, SortRange,
    Table, Write, get_every,
};

/// A staged commit without a verdict after this time is sent again: its event, or its message, was lost.
const RESEND_AFTER_MS: i64 = 15 * 60 * 1000;
/// Copies of our own that no claim needs are kept so long.
const COPY_KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// Proposals looked at in one go.
const BATCH: usize = 100;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub resent: u64,
    pub rescued: u64,
    /// Proposals without a verdict whose staged object became too old.
    pub expired: u64,
    /// Verdicts that were forgotten, with their staged objects.
    pub forgotten: u64,
    pub copies_deleted: u64,
    /// Ratified versions of a catalog-managed table that were put into the log.
    pub published: u64,
}

/// Does what is due for one table. What there is no time for is done the next time.
pub async fn keep_house(ctx: Context<'_>, root: &Location) -> Result<Report, CommitError> {
    let mut report = Report::default();
    let Some(mut head) = settled_head(ctx, root).await? else { return Ok(report) };
    if head.managed.is_some() {
        // Where its client did not, and the message that would have was lost.
        report.published = count(publish_pending(ctx, root, None).await?.len());
        head = head::load(&*ctx.ports().items, root).await?.unwrap_or(head);
    }
    // Also where sharing is off: another writer may have begun.
    report.rescued = count(log_store::rescue_all(ctx, &head).await?.len());
    let house = House { ctx, root, head: &head, oldest_ms: ctx.now_ms() - ctx.app.settings.verdict_retention_ms };
    let staged = house.look_at_staged(&mut report).await?;
    for generation in 0..=head.generation.0 {
        house.forget_verdicts(Generation(generation), &staged, &mut report).await?;
    }
    house.delete_copies(&mut report).await?;
    if head.version > Version::NONE {
        log_state::watch(ctx, &head).await?;
    }
    // Where nobody came back after a crash. What goes wrong is told where it is tried again, too.
    if head.version > Version::NONE
        && let Err(error) = sync::look_after(ctx, root, None).await
    {
        tracing::warn!(%root, %error, "the catalog does not follow the log");
    }
    Ok(report)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The head, after what others left on it was finished. A table without a head has open or refused proposals only.
async fn settled_head(ctx: Context<'_>, root: &Location) -> Result<Option<Head>, CommitError> {
    let Some(head) = head::load(&*ctx.ports().items, root).await? else { return Ok(Some(Head::fresh(root))) };
    match &head.claim {
        None => Ok(Some(head)),
        Some(claim) => match recover::finish(ctx, &head, claim).await {
            Ok(()) => head::load(&*ctx.ports().items, root).await.map_err(CommitError::from),
            // Its worker is at it.
            Err(CommitError::Leased { .. }) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

struct House<'a> {
    ctx: Context<'a>,
    root: &'a Location,
    head: &'a Head,
    /// What was decided before this is forgotten.
    oldest_ms: i64,
}

impl House<'_> {
    /// Goes through the staged objects; answers those that remain.
    async fn look_at_staged(&self, report: &mut Report) -> Result<HashSet<ProposalId>, CommitError> {
        let prefix = self.root.object(&format!("{LOG_DIR}/{STAGED_DIR}/")).key;
        let mut request = self.list_request(prefix);
        let mut remaining = HashSet::new();
        loop {
            self.ctx.check_time("looking at staged commits", CLAIM_MS)?;
            let page = self.ctx.ports().objects.list(&request).await?;
            request.start_after = page.objects.last().map(|object| object.key.clone());
            let keyed: Vec<(StagedKey, Listed)> = page
                .objects
                .into_iter()
                .filter_map(|object| {
                    let at = ObjectKey::new(self.root.bucket.clone(), object.key.clone());
                    match StagedName::of(&at) {
                        StagedName::Proposal(key) => Some((key, object)),
                        _ => None,
                    }
                })
                .collect();
            for batch in keyed.chunks(BATCH) {
                let stored = self.stored(batch.iter().map(|(key, _)| ProposalId(key.id))).await?;
                for (key, object) in batch {
                    if !self.look_at(key, object, stored.get(&ProposalId(key.id)), report).await? {
                        remaining.insert(ProposalId(key.id));
                    }
                }
            }
            if !page.truncated || request.start_after.is_none() {
                return Ok(remaining);
            }
        }
    }

    fn list_request(&self, prefix: String) -> ListRequest {
        ListRequest { bucket: self.root.bucket.clone(), prefix, start_after: None, max_keys: LIST_PAGE_MAX_KEYS }
    }

    async fn stored(
        &self,
        ids: impl Iterator<Item = ProposalId>,
    ) -> Result<BTreeMap<ProposalId, Proposal>, CommitError> {
        let ports = self.ctx.ports();
        let lookups: Vec<Key> = ids.map(|id| keys::lookup(self.root, id)).collect();
        let mut wanted = Vec::new();
        for item in get_every(&*ports.items, &*ports.clock, &lookups, Consistency::Strong).await?.values() {
            let lookup = Lookup::decode(item)?;
            wanted.push(keys::proposal(self.root, lookup.generation, lookup.id));
        }
        let mut found = BTreeMap::new();
        for item in get_every(&*ports.items, &*ports.clock, &wanted, Consistency::Strong).await?.values() {
            let proposal = Proposal::decode(item)?;
            found.insert(proposal.id, proposal);
        }
        Ok(found)
    }

    /// One staged object; true if it was deleted.
    async fn look_at(
        &self,
        key: &StagedKey,
        object: &Listed,
        stored: Option<&Proposal>,
        report: &mut Report,
    ) -> Result<bool, CommitError> {
        let is_old = object.last_modified_ms < self.oldest_ms;
        match stored {
            Some(proposal) if proposal.status.is_final() => {
                let is_kept = self.head.managed.is_some() && matches!(proposal.status, Status::Committed { .. });
                let is_due = is_old && !is_kept && proposal.updated_ms < self.oldest_ms && self.may_delete_staged(key);
                Ok(is_due && self.delete(&key.key(), &object.etag).await?)
            }
            // A claim on the head is finished by whoever comes; without one the proposal is about to be judged again.
            Some(proposal) if matches!(proposal.status, Status::Claimed { .. } | Status::Published { .. }) => Ok(false),
            open if self.is_abandoned(object, open) && self.may_delete_staged(key) => {
                self.expire(key, object, open).await?;
                report.expired += 1;
                // What it names stays for a while, as of every refused one; so does what says which files these are.
                Ok(false)
            }
            // Somebody has to send its dead letter again.
            Some(proposal) if proposal.status == Status::Undecided => Ok(false),
            // Seen, and left to the table's catalog.
            Some(proposal) if proposal.status == Status::Received && self.is_catalog_managed() => Ok(false),
            open => {
                let seen_ms = open.map_or(object.last_modified_ms, |proposal| proposal.updated_ms);
                if seen_ms < self.ctx.now_ms() - RESEND_AFTER_MS {
                    let body = redelivery(&key.key(), Some(&object.etag), 0);
                    self.ctx.ports().queue.send(QueueName::Commits, body, 0).await?;
                    report.resent += 1;
                }
                Ok(false)
            }
        }
    }

    /// Nobody has been heard of it for so long that nobody will be: sweeps go by the same time.
    fn is_abandoned(&self, object: &Listed, open: Option<&Proposal>) -> bool {
        let kept_ms = self.ctx.app.settings.verdict_retention_ms.max(ABANDONED_MS);
        let heard_ms =
            open.map_or(object.last_modified_ms, |proposal| proposal.updated_ms.max(object.last_modified_ms));
        heard_ms < self.ctx.now_ms().saturating_sub(kept_ms)
    }

    fn is_catalog_managed(&self) -> bool {
        self.head.state.as_ref().is_some_and(|state| features::is_catalog_managed(&state.protocol))
    }

    /// What is staged for a catalog-managed table may be part of it, unless we ratify its commits and have published that
    /// version. Whether it is one is known once we committed to it.
    ///
    /// Of what we ratified nothing is deleted here: clients read published versions by their staged files, too.
    fn may_delete_staged(&self, key: &StagedKey) -> bool {
        match &self.head.managed {
            Some(managed) => key.version <= managed.published,
            None => self.head.state.is_some() && !self.is_catalog_managed(),
        }
    }

    /// Ends a proposal before its object is deleted, so that nobody claims a version for it any more.
    async fn expire(&self, key: &StagedKey, object: &Listed, open: Option<&Proposal>) -> Result<(), CommitError> {
        let (ctx, id) = (self.ctx, ProposalId(key.id));
        let staged = (key.key().key, object.etag.clone());
        let new = Proposal {
            read_version: key.version.previous(),
            ..Proposal::received(self.root, self.head.generation, id, staged, object.last_modified_ms)
        };
        let proposal = open.cloned().unwrap_or(new);
        let (updated_ms, revision) = (ctx.now_ms(), ctx.new_revision());
        let mut next = Proposal { updated_ms, revision, refusal: None, ..proposal.clone() };
        next.warnings.push("no verdict was found while the staged commit was kept; it was given up for its age".into());
        next.advance(Status::Expired)?;
        let mut writes = vec![proposal.write(&next)?];
        writes.extend(claim::index_writes(&proposal, self.head));
        match ctx.transact(&writes).await? {
            Transacted::Done => Ok(()),
            Transacted::Refused(_) => Err(CommitError::Contended { attempts: 1 }),
        }
    }

    async fn delete(&self, at: &ObjectKey, etag: &ETag) -> Result<bool, CommitError> {
        match self.ctx.ports().objects.delete(at, Some(etag)).await {
            Ok(()) | Err(ObjectError::NotFound(_)) => Ok(true),
            Err(ObjectError::PreconditionFailed(_) | ObjectError::ConditionalConflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets verdicts that are old enough and whose staged object is gone, oldest first.
    async fn forget_verdicts(
        &self,
        generation: Generation,
        staged: &HashSet<ProposalId>,
        report: &mut Report,
    ) -> Result<(), CommitError> {
        let until = Sort::Text(format!("{TIME_PREFIX}{:015}", self.oldest_ms.max(0)));
        let range = SortRange::Between(TIME_PREFIX.into(), until);
        let mut query = Query::new(Table::Commits, keys::table_pk(self.root, generation), range);
        query.limit = Some(BATCH);
        loop {
            self.ctx.check_time("forgetting old verdicts", CLAIM_MS)?;
            let page = self.ctx.ports().items.query(&query).await?;
            let mut entries = Vec::new();
            for (key, item) in &page.items {
                entries.push((key.clone(), TimeEntry::decode(item)?.id));
            }
            let stored = self.stored(entries.iter().map(|(_, id)| *id)).await?;
            for (entry, id) in &entries {
                let old = stored.get(id).filter(|one| one.status.is_final() && one.updated_ms < self.oldest_ms);
                if let Some(proposal) = old.filter(|proposal| !staged.contains(&proposal.id)) {
                    report.forgotten += u64::from(self.forget(entry, proposal).await?);
                }
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn forget(&self, entry: &Key, proposal: &Proposal) -> Result<bool, CommitError> {
        let lookup = keys::lookup(self.root, proposal.id);
        let writes = [
            Write::Delete { key: proposal.key(), condition: proposal.unchanged() },
            Write::Delete { key: entry.clone(), condition: Condition::Always },
            Write::Delete { key: lookup, condition: Condition::Always },
        ];
        Ok(self.ctx.transact(&writes).await? == Transacted::Done)
    }

    /// Copies that the server wrote and that no claim needs any more. Those of other writers are theirs.
    async fn delete_copies(&self, report: &mut Report) -> Result<(), CommitError> {
        let prefix = self.root.object(&format!("{LOG_DIR}/{TEMP_DIR}/")).key;
        let mut request = self.list_request(prefix);
        let before_ms = self.ctx.now_ms() - COPY_KEPT_MS;
        loop {
            self.ctx.check_time("deleting copies", 0)?;
            let page = self.ctx.ports().objects.list(&request).await?;
            request.start_after = page.objects.last().map(|object| object.key.clone());
            for object in &page.objects {
                let is_claimed = self.head.claim.as_ref().is_some_and(|claim| claim.bytes_key == object.key);
                let at = ObjectKey::new(self.root.bucket.clone(), object.key.clone());
                if StagedName::of(&at) == StagedName::Copy && object.last_modified_ms < before_ms && !is_claimed {
                    report.copies_deleted += u64::from(self.delete(&at, &object.etag).await?);
                }
            }
            if !page.truncated || request.start_after.is_none() {
                return Ok(());
            }
        }
    }
}

/// A message of the queue for work on logs that asks for [`keep_house`].
pub fn message(root: &Location) -> String {
    serde_json::json!({"schema_version": 1, "kind": "housekeeping", "location": root.to_string()}).to_string()
}
