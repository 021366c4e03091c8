//! Peace with writers that use Delta's DynamoDB log store: Spark's S3DynamoDBLogStore, delta-rs up to 1.6.0.
//!
//! They hold a version once its item is in `delta_log`, before `<version>.json` exists; writers without a log store hold
//! it once the file exists. So a claim on a shared table puts the item first (in one transaction with head and
//! proposal), then the file, then completes the item. `tempPath` always names a copy of our own with the proposal's id
//! in its name: old delta-rs moves what it names away, and rescue must tell our lost attempts from foreign ones.
//!
//! Off by default. A table is shared if its property [`PROPERTY`] is [`DYNAMODB`], or once an item of somebody else was
//! seen: that is looked for at the first sight of a table, whenever others committed, and by every claim, which is refused
//! where there is an item for its version. It stays shared until another table stands at its place.

mod clear;
mod entry;
mod inspect;
mod rescue;

pub use clear::clear_old;
pub use entry::{
    Completion, Entry, OddItem, absence_checks, claim_writes, complete_writes, file_name, key, spellings, temp_path,
};
pub use inspect::{Inspection, Look, inspect};
pub use rescue::{Overtaken, notice, notice_odd, rescue_all};

use super::context::Context;
use super::error::CommitError;
use super::head::{Head, LogStore};
use crate::delta::{Metadata, Version};
use crate::location::Location;
use crate::store::{Consistency, Direction, Item, Key, Query, Sort, SortRange, Table, Write, WriteError, get_every};

/// Property of a Delta table (`metaData.configuration`).
pub const PROPERTY: &str = "lakewarden.logStore";
pub const DYNAMODB: &str = "dynamodb";
/// Entries that one look reads for each spelling of the path.
const LOOK_MAX: usize = 1_000;

/// Whether claims of the table are shared, as far as head and metadata tell.
pub fn of_table(head: &Head, metadata: Option<&Metadata>) -> LogStore {
    let wanted = metadata.and_then(|metadata| metadata.property(PROPERTY));
    if wanted.is_some_and(|value| value.eq_ignore_ascii_case(DYNAMODB)) { LogStore::Shared } else { head.log_store }
}

/// What stands in `delta_log` for a table.
#[derive(Debug, Default)]
pub struct Seen {
    pub entries: Vec<Entry>,
    pub odd: Vec<OddItem>,
}

impl Seen {
    pub fn take(&mut self, key: Key, item: Item) {
        match Entry::decode(key, item) {
            Some(Ok(entry)) => self.entries.push(entry),
            Some(Err(odd)) => self.odd.push(odd),
            None => {}
        }
    }
}

/// The newest entry under each spelling: what a writer of the log store would look at.
async fn newest(ctx: Context<'_>, root: &Location) -> Result<Seen, CommitError> {
    let range = |_: &str| (SortRange::All, Direction::Descending, 1);
    read(ctx, root, range).await
}

/// Entries of `from` and later versions, under every spelling.
async fn since(ctx: Context<'_>, root: &Location, from: Version) -> Result<Seen, CommitError> {
    let first = Sort::Text(file_name(Version(from.0.max(0))));
    read(ctx, root, |_| (SortRange::AtLeast(first.clone()), Direction::Ascending, LOOK_MAX)).await
}

/// One query for each spelling. Strongly consistent, since the log store's writers rely on what they wrote.
async fn read(
    ctx: Context<'_>,
    root: &Location,
    range: impl Fn(&str) -> (SortRange, Direction, usize),
) -> Result<Seen, CommitError> {
    let mut seen = Seen::default();
    for path in spellings(root) {
        let (range, direction, limit) = range(&path);
        let mut query = Query::new(Table::DeltaLog, path, range);
        (query.direction, query.limit) = (direction, Some(limit));
        let mut read = 0;
        loop {
            let page = ctx.ports().items.query(&query).await?;
            read += page.items.len();
            for (key, item) in page.items {
                seen.take(key, item);
            }
            match page.next {
                Some(next) if read < limit => query.start_after = Some(next),
                _ => break,
            }
        }
    }
    Ok(seen)
}

/// Takes the entries of a claim away whose bytes are nowhere, so that the next proposal can have the version.
pub async fn withdraw_writes(
    ctx: Context<'_>,
    root: &Location,
    version: Version,
    bytes_key: &str,
) -> Result<Vec<Write>, CommitError> {
    let keys: Vec<Key> = spellings(root).iter().map(|path| key(path, version)).collect();
    let found = get_every(&*ctx.ports().items, &*ctx.ports().clock, &keys, Consistency::Strong).await?;
    let ours = temp_path(root, bytes_key);
    let mut seen = Seen::default();
    found.into_iter().for_each(|(key, item)| seen.take(key, item));
    // Ours are none of the odd ones; of these the next look speaks.
    let ours = seen.entries.iter().filter(|entry| entry.temp_path == ours);
    Ok(ours.map(|entry| Write::Delete { key: entry.key.clone(), condition: entry.unchanged() }).collect())
}

/// Marks an entry complete; somebody else may have been faster.
async fn complete(ctx: Context<'_>, entry: &Entry) -> Result<(), CommitError> {
    let put = ctx.ports().items.put(&entry.key, entry.completed(ctx.now_ms()), entry.unchanged()).await;
    unless_changed(put)
}

async fn take_away(ctx: Context<'_>, entry: &Entry) -> Result<(), CommitError> {
    unless_changed(ctx.ports().items.delete(&entry.key, entry.unchanged()).await)
}

fn unless_changed(outcome: Result<(), WriteError>) -> Result<(), CommitError> {
    match outcome {
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(()),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}
