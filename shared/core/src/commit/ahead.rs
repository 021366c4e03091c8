//! What a batch reads before it is needed, many objects at a time: staged commits, and the footers of the files that they
//! add. The proposals of a table are carried out one after the other, so each waits for what those before it read.
//!
//! Nothing depends on it: what is not here, or could not be read, is read when it is needed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt};

use super::content::{self, Content};
use super::context::Context;
use super::run::Staged;
use crate::delta::footer::{Footer, read_footer};
use crate::store::ObjectKey;

/// Requests at the same time.
const CONCURRENT: usize = 16;
/// Files of one commit; one with more is held up by its own files, whatever is read before.
const COMMIT_FILES_MAX: usize = 8;
/// Footers of one batch in memory, about.
const FOOTERS_MAX_BYTES: usize = 32 * 1024 * 1024;

/// What was read for the proposals of one table in a batch.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    waiting: Vec<Staged>,
    contents: HashMap<Staged, Arc<Content>>,
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
        Ahead { waiting, ..Ahead::default() }
    }

    /// Reads the staged commits of the batch, apart from `own`.
    pub async fn read_staged(&mut self, ctx: Context<'_>, own: &Staged) {
        let waiting: Vec<Staged> =
            std::mem::take(&mut self.waiting).into_iter().filter(|staged| staged != own).collect();
        let reads: Vec<_> = waiting
            .into_iter()
            .map(|staged| async move { (content::read_small(ctx, &staged).await, staged) }.boxed())
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
        while let Some((found, staged)) = reads.next().await {
            if let Ok(Some(content)) = found {
                self.contents.insert(staged, Arc::new(content));
            }
        }
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

    /// What was read under this head.
    pub fn seen<'a>(&'a self, under: &str) -> Seen<'a> {
        let footers = (self.footers_under.as_deref() == Some(under)).then_some(&self.footers);
        Seen { footers, just_now: self.just_read }
    }
}

/// Footers that hold for a proposal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    footers: Option<&'a HashMap<ObjectKey, Arc<Footer>>>,
    /// They were read right before; others are as good as remembered ones.
    pub just_now: bool,
}

impl Seen<'_> {
    /// The footer of a file that has this size.
    pub fn footer(&self, key: &ObjectKey, size_bytes: u64) -> Option<&Arc<Footer>> {
        self.footers?.get(key).filter(|footer| footer.size_bytes == size_bytes)
    }
}

fn files(content: &Content) -> Vec<(ObjectKey, u64)> {
    let Ok(candidate) = &content.candidate else { return Vec::new() };
    if candidate.actions.adds.len() > COMMIT_FILES_MAX {
        return Vec::new();
    }
    let sizes = candidate.actions.adds.iter().map(|add| u64::try_from(add.size).unwrap_or(0));
    candidate.add_keys.iter().cloned().zip(sizes).collect()
}
