//! What a batch reads before it is needed, many objects at a time: staged commits, whether they were proposed before, and
//! the footers of the files that they add. The proposals of a table are carried out one after the other, so each waits for what those before it read.
//!
//! Nothing depends on it: what is not here, or could not be read, is read when it is needed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt};

use super::content::{self, Content};
use super::context::Context;
use super::keys::{self, ProposalId};
use super::lookup::Lookup;
use super::run::Staged;
use crate::delta::footer::{Footer, read_footer};
use crate::location::Location;
use crate::store::{Consistency, Key, ObjectKey, ObjectMeta, get_every};

/// Requests at the same time.
const CONCURRENT: usize = 16;
/// Files of one commit; one with more is held up by its own files, whatever is read before.
const COMMIT_FILES_MAX: usize = 8;
/// Footers of one batch in memory, about.
const FOOTERS_MAX_BYTES: usize = 32 * 1024 * 1024;
/// How long a file that was looked at counts as seen. The looks at a proposal's files are taken while the version before it
/// is published, right before its own claim.
const LOOK_MS: i64 = 2_000;

/// What was read for the proposals of one table in a batch.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    waiting: Vec<Staged>,
    /// The order of turns.
    order: Vec<Staged>,
    /// Files of the proposal whose turn is next, as they were a moment ago.
    looks: HashMap<ObjectKey, ObjectMeta>,
    looked_ms: i64,
    contents: HashMap<Staged, Arc<Content>>,
    /// Whether the batch's proposals were known before any of them was judged. Where that is not so any more, the claim (or
    /// whatever else is written) is refused, since it demands that a new proposal is new; then it is looked up again.
    lookups: HashMap<ProposalId, Option<Lookup>>,
    footers: HashMap<ObjectKey, Arc<Footer>>,
    /// The head under which the footers were read (`View::unbroken_since`); absent before that.
    footers_under: Option<String>,
    /// For the proposal whose turn it is, so that its files were looked at a moment ago.
    just_read: bool,
}

impl Ahead {
    /// `waiting` in the order of their turns, so that one that came twice stands beside itself.
    pub fn of(mut waiting: Vec<Staged>) -> Ahead {
        waiting.dedup();
        Ahead { order: waiting.clone(), waiting, ..Ahead::default() }
    }

    /// Reads the staged commits of the batch, apart from `own`.
    pub async fn read_staged(&mut self, ctx: Context<'_>, own: &Staged) {
        let waiting: Vec<Staged> =
            std::mem::take(&mut self.waiting).into_iter().filter(|staged| staged != own).collect();
        if waiting.is_empty() {
            return;
        }
        let ids: Vec<ProposalId> = waiting.iter().map(|staged| ProposalId(staged.key.id)).collect();
        let reads: Vec<_> = waiting
            .into_iter()
            .map(|staged| async move { (content::read_small(ctx, &staged).await, staged) }.boxed())
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
        let contents = &mut self.contents;
        let read_contents = async {
            while let Some((found, staged)) = reads.next().await {
                if let Ok(Some(content)) = found {
                    contents.insert(staged, Arc::new(content));
                }
            }
        };
        let ((), lookups) = futures::join!(read_contents, look_up(ctx, &own.key.root, &ids));
        self.lookups = lookups;
    }

    /// What was known of a proposal, for the first look at it.
    pub fn take_lookup(&mut self, id: ProposalId) -> Option<Option<Lookup>> {
        self.lookups.remove(&id)
    }

    pub fn take_content(&mut self, staged: &Staged) -> Option<Arc<Content>> {
        self.contents.remove(staged)
    }

    /// Reads the footers of the files that the batch's commits add, and those of `own`, unless that was done under this head.
    pub async fn read_footers(&mut self, ctx: Context<'_>, own: &Content, under: &str) {
        self.just_read = false;
        if self.contents.is_empty() || self.footers_under.as_deref() == Some(under) {
            return;
        }
        self.just_read = true;
        self.footers.clear();
        self.footers_under = Some(under.to_owned());
        let contents = self.contents.values().map(|content| &**content).chain([own]);
        let reads: Vec<_> = contents
            .flat_map(files)
            .map(|(key, size_bytes)| {
                async move { (read_footer(&*ctx.ports().objects, &key, size_bytes).await, key) }.boxed()
            })
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
        let mut bytes = 0;
        while let Some((found, key)) = reads.next().await {
            let Ok(footer) = found else { continue };
            bytes += footer.metadata.memory_size();
            if bytes > FOOTERS_MAX_BYTES {
                return;
            }
            self.footers.insert(key, Arc::new(footer));
        }
    }

    /// Looks at the files of the next proposal whose footers were read ahead: they have to be there at its claim, too. To be
    /// done beside the publication of the one before.
    pub async fn look_at_next(&mut self, ctx: Context<'_>) {
        self.looks.clear();
        let Some(next) = self.order.iter().find_map(|staged| self.contents.get(staged)) else { return };
        self.looked_ms = ctx.now_ms();
        let known = files(next).into_iter().map(|(key, _)| key).filter(|key| self.footers.contains_key(key));
        let looks: Vec<_> =
            known.map(|key| async move { (ctx.ports().objects.head(&key).await, key) }.boxed()).collect();
        let mut looks = stream::iter(looks).buffer_unordered(CONCURRENT);
        while let Some((found, key)) = looks.next().await {
            if let Ok(meta) = found {
                self.looks.insert(key, meta);
            }
        }
    }

    /// What was read under this head.
    pub fn seen<'a>(&'a self, ctx: Context<'_>, under: &str) -> Seen<'a> {
        let footers = (self.footers_under.as_deref() == Some(under)).then_some(&self.footers);
        let looks = (ctx.now_ms().saturating_sub(self.looked_ms) <= LOOK_MS).then_some(&self.looks);
        Seen { footers, looks, just_now: self.just_read }
    }
}

/// Footers that hold for a proposal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    footers: Option<&'a HashMap<ObjectKey, Arc<Footer>>>,
    looks: Option<&'a HashMap<ObjectKey, ObjectMeta>>,
    /// They were read right before; others are as good as remembered ones.
    pub just_now: bool,
}

impl Seen<'_> {
    /// The footer of a file that has this size.
    pub fn footer(&self, key: &ObjectKey, size_bytes: u64) -> Option<&Arc<Footer>> {
        self.footers?.get(key).filter(|footer| footer.size_bytes == size_bytes)
    }

    /// The file as it was a moment ago.
    pub fn look(&self, key: &ObjectKey) -> Option<&ObjectMeta> {
        self.looks?.get(key)
    }
}

/// Nothing where it could not be read.
async fn look_up(ctx: Context<'_>, root: &Location, ids: &[ProposalId]) -> HashMap<ProposalId, Option<Lookup>> {
    let wanted: Vec<Key> = ids.iter().map(|id| keys::lookup(root, *id)).collect();
    let ports = ctx.ports();
    let Ok(found) = get_every(&*ports.items, &*ports.clock, &wanted, Consistency::Strong).await else {
        return HashMap::new();
    };
    let known = ids.iter().zip(&wanted).filter_map(|(id, key)| match found.get(key) {
        None => Some((*id, None)),
        Some(item) => Lookup::decode(item).ok().map(|lookup| (*id, Some(lookup))),
    });
    known.collect()
}

fn files(content: &Content) -> Vec<(ObjectKey, u64)> {
    let Ok(candidate) = &content.candidate else { return Vec::new() };
    if candidate.actions.adds.len() > COMMIT_FILES_MAX {
        return Vec::new();
    }
    let sizes = candidate.actions.adds.iter().map(|add| u64::try_from(add.size).unwrap_or(0));
    candidate.add_keys.iter().cloned().zip(sizes).collect()
}
