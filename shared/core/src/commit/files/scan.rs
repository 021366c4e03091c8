//! Reading columns of a file to decide what its statistics leave open: only those that are asked about, and bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::file::metadata::RowGroupMetaData;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::partition::Unsaid;
use super::refusals::{changed, missing};
use super::values::Source;
use super::{FileError, FileJudge};
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::sql::{Expr, truth_of};
use crate::commit::verdict::RowRange;
use crate::delta::footer::{Datum, Footer, Kind, LeafPages, PagesError, chunk_range};
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey};

/// Bytes read of all columns of one commit.
const READ_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Values looked at in one commit.
const VALUES_MAX: u64 = 50_000_000;
/// Values that are held at the same time: those of one page of each column.
const HELD_VALUES_MAX: u64 = 2_500_000;
/// One column chunk, as it is stored and unpacked.
const CHUNK_MAX_BYTES: u64 = 64 * 1024 * 1024;
const CHUNK_MAX_PLAIN_BYTES: i64 = 256 * 1024 * 1024;

/// What one commit may still read, and a lock that keeps one row group in memory at a time.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    values: AtomicU64,
    one: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            bytes: AtomicU64::new(READ_MAX_BYTES),
            values: AtomicU64::new(VALUES_MAX),
            one: Arc::new(Semaphore::new(1)),
        }
    }
}

/// A field whose nulls are told by the definition levels of a leaf below it.
pub(super) struct NotNull {
    pub leaf: usize,
    /// Level at which all parents are there.
    pub parents: i16,
    /// Level at which the field is there, too.
    pub level: i16,
    pub groups: Vec<usize>,
}

/// A bound condition, the columns of its slots, and the row groups in question.
pub(super) struct RowRule {
    pub expr: Expr,
    pub sources: Vec<Source>,
    pub groups: Vec<usize>,
}

/// Rows that break a rule: one, or those of a row group of which one does.
pub(super) struct Broken {
    /// Where, and the values.
    pub text: String,
    pub rows: Option<RowRange>,
}

/// The rows of a row group within their file.
pub(super) fn rows_of_group(footer: &Footer, group: usize) -> Option<RowRange> {
    let count = |group: &RowGroupMetaData| u64::try_from(group.num_rows()).ok();
    let groups = footer.metadata.row_groups();
    let first = groups.get(..group)?.iter().try_fold(0_u64, |sum, group| sum.checked_add(count(group)?))?;
    let last = first.checked_add(count(groups.get(group)?)?.checked_sub(1)?)?;
    Some(RowRange { first, last })
}

fn row_of_group(footer: &Footer, group: usize, row: u64) -> Option<RowRange> {
    let row = rows_of_group(footer, group)?.first.checked_add(row)?;
    Some(RowRange { first: row, last: row })
}

/// No decision.
pub(super) enum Undecided {
    Failed(FileError),
    /// It would take more than one commit may read.
    TooMuch(String),
    Because(String),
}

impl From<CommitError> for Undecided {
    fn from(error: CommitError) -> Self {
        Undecided::Failed(error.into())
    }
}

fn because(text: impl Into<String>) -> Undecided {
    Undecided::Because(text.into())
}

impl FileJudge<'_> {
    /// A place where the field is null although its parents are there.
    pub(super) async fn scan_not_null(
        &self,
        key: &ObjectKey,
        footer: &Footer,
        question: &NotNull,
    ) -> Result<Option<Broken>, Undecided> {
        let _one = self.budget.one.acquire().await.map_err(|_| because("nothing is read any more"))?;
        for group in &question.groups {
            let mut entry = 0_u64;
            let mut found = None;
            // Values are not looked at, so that any leaf will do.
            self.read(key, footer, *group, question.leaf, &Kind::Null, &mut |level, _| {
                if (question.parents..question.level).contains(&level) && found.is_none() {
                    found = Some(entry);
                }
                entry += 1;
            })
            .await?;
            if let Some(entry) = found {
                // Entries of a leaf inside of an array or a map are not rows.
                let is_flat = footer.metadata.file_metadata().schema_descr().columns();
                let is_flat = is_flat.get(question.leaf).is_some_and(|column| column.max_rep_level() == 0);
                let rows = if is_flat { row_of_group(footer, *group, entry) } else { rows_of_group(footer, *group) };
                return Ok(Some(Broken { text: format!("row group {group}, entry {entry}"), rows }));
            }
        }
        Ok(None)
    }

    /// The first row of another partition.
    pub(super) async fn scan_partition(
        &self,
        key: &ObjectKey,
        footer: &Footer,
        question: &Unsaid,
    ) -> Result<Option<Broken>, Undecided> {
        let _one = self.budget.one.acquire().await.map_err(|_| because("nothing is read any more"))?;
        for group in 0..footer.metadata.row_groups().len() {
            let (mut row, mut found) = (0_u64, None);
            self.read(key, footer, group, question.leaf, &question.kind, &mut |_, value| {
                if found.is_none() && !question.is_same(value.as_ref()) {
                    found = Some((row, value));
                }
                row += 1;
            })
            .await?;
            if let Some((row, value)) = found {
                let value = value.map_or("null".to_owned(), |value| value.to_string());
                let text = format!("row {row} of row group {group}: {value}");
                return Ok(Some(Broken { text, rows: row_of_group(footer, group, row) }));
            }
        }
        Ok(None)
    }

    /// The first row in which the condition is not true, with the values that it looks at.
    pub(super) async fn scan_rule(
        &self,
        key: &ObjectKey,
        footer: &Footer,
        rule: &RowRule,
    ) -> Result<Option<Broken>, Undecided> {
        let _one = self.budget.one.acquire().await.map_err(|_| because("nothing is read any more"))?;
        for group in &rule.groups {
            let leaves = rule.sources.iter().filter_map(|source| match source {
                Source::Leaf { leaf, kind } => Some((*leaf, kind)),
                Source::Constant(_) => None,
            });
            let reads = ColumnReads { ctx: self.ctx, budget: &self.budget };
            let mut joined = reads.joined(key, footer, *group, leaves).await?;
            while let Some((row, read)) = joined.next_row()? {
                let mut read = read.into_iter();
                let values: Vec<Option<Datum>> = rule
                    .sources
                    .iter()
                    .map(|source| match source {
                        Source::Constant(value) => value.clone(),
                        Source::Leaf { .. } => read.next().flatten(),
                    })
                    .collect();
                if truth_of(&rule.expr, &values).map_err(because)? != Some(true) {
                    let shown = values.iter().map(|value| value.as_ref().map_or("null".to_owned(), Datum::to_string));
                    let shown: Vec<String> = shown.collect();
                    let rows = row_of_group(footer, *group, row);
                    let text = format!("row {row} of row group {group}: {}", shown.join("; "));
                    return Ok(Some(Broken { text, rows }));
                }
                if joined.has_no_columns() {
                    // All rows are alike.
                    break;
                }
            }
        }
        Ok(None)
    }

    async fn read(
        &self,
        key: &ObjectKey,
        footer: &Footer,
        group: usize,
        leaf: usize,
        kind: &Kind,
        out: &mut (dyn FnMut(i16, Option<Datum>) + Send),
    ) -> Result<(), Undecided> {
        ColumnReads { ctx: self.ctx, budget: &self.budget }.read(key, footer, group, leaf, kind, out).await
    }
}

/// Its number within the row group, and its values.
type NumberedRow = (u64, Vec<Option<Datum>>);

/// Flat columns of one row group side by side, row by row; of each, one page is held.
pub(super) struct Joined<'a> {
    ctx: Context<'a>,
    group: usize,
    columns: Vec<(LeafPages<'a>, VecDeque<Option<Datum>>)>,
    row: u64,
    rows: u64,
}

impl Joined<'_> {
    pub fn has_no_columns(&self) -> bool {
        self.columns.is_empty()
    }

    /// The next row: its number within the group, and its values in the order of the columns.
    pub fn next_row(&mut self) -> Result<Option<NumberedRow>, Undecided> {
        if self.row >= self.rows {
            return Ok(None);
        }
        let most = HELD_VALUES_MAX / u64::try_from(self.columns.len().max(1)).unwrap_or(u64::MAX);
        let mut values = Vec::with_capacity(self.columns.len());
        for (pages, held) in &mut self.columns {
            if held.is_empty() {
                self.ctx.check_time("reading columns", 0)?;
                let read = pages.next_page(most, &mut |_, value| held.push_back(value));
                read.map_err(|error| match error {
                    PagesError::TooMuch => Undecided::TooMuch(format!(
                        "row group {} has pages of more than {HELD_VALUES_MAX} values in the columns in question, or too long texts",
                        self.group
                    )),
                    other => unread(other),
                })?;
            }
            let value = held.pop_front().ok_or_else(|| because("the columns of the file differ in length"))?;
            values.push(value);
        }
        self.row += 1;
        Ok(Some((self.row - 1, values)))
    }
}

fn unread(error: PagesError) -> Undecided {
    match error {
        PagesError::Codec(text) => because(format!("its compression is not read here ({text})")),
        PagesError::TooMuch => Undecided::TooMuch(error.to_string()),
        PagesError::Damaged(text) => because(format!("its pages cannot be read ({text})")),
    }
}

/// Reads of column chunks, as far as the budget goes.
#[derive(Clone, Copy)]
pub(super) struct ColumnReads<'a> {
    pub ctx: Context<'a>,
    pub budget: &'a Budget,
}

impl ColumnReads<'_> {
    /// Waits until nobody else holds a row group in memory.
    pub async fn alone(&self) -> Result<SemaphorePermit<'_>, Undecided> {
        self.budget.one.acquire().await.map_err(|_| because("nothing is read any more"))
    }

    /// Fetches flat leaves of one row group, to be read side by side.
    pub async fn joined<'f>(
        &self,
        key: &ObjectKey,
        footer: &'f Footer,
        group: usize,
        leaves: impl Iterator<Item = (usize, &'f Kind)>,
    ) -> Result<Joined<'f>, Undecided>
    where
        Self: 'f,
    {
        let mut columns = Vec::new();
        for (leaf, kind) in leaves {
            let schema = footer.metadata.file_metadata().schema_descr().columns();
            if schema.get(leaf).is_none_or(|column| column.max_rep_level() > 0) {
                return Err(because("a column in question has lists of values"));
            }
            columns.push((self.open(key, footer, group, leaf, kind).await?, VecDeque::new()));
        }
        let rows = footer.metadata.row_groups().get(group).map_or(0, |group| group.num_rows());
        Ok(Joined { ctx: self.ctx, group, columns, row: 0, rows: u64::try_from(rows).unwrap_or(0) })
    }

    pub async fn read(
        &self,
        key: &ObjectKey,
        footer: &Footer,
        group: usize,
        leaf: usize,
        kind: &Kind,
        out: &mut (dyn FnMut(i16, Option<Datum>) + Send),
    ) -> Result<(), Undecided> {
        let mut pages = self.open(key, footer, group, leaf, kind).await?;
        while pages.next_page(u64::MAX, out).map_err(unread)? {}
        Ok(())
    }

    async fn open<'f>(
        &self,
        key: &ObjectKey,
        footer: &'f Footer,
        group: usize,
        leaf: usize,
        kind: &'f Kind,
    ) -> Result<LeafPages<'f>, Undecided> {
        self.ctx.check_time("reading columns", 0)?;
        let found = footer.metadata.row_groups().get(group);
        let Some((group, chunk)) = found.and_then(|found| Some((found, found.columns().get(leaf)?))) else {
            return Err(because("the file has no such column"));
        };
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let entries = u64::try_from(chunk.num_values()).unwrap_or(u64::MAX).max(rows);
        let Some((start, length)) = chunk_range(chunk, footer.size_bytes) else {
            return Err(because("the footer says that the column lies outside of the file"));
        };
        let is_small = length <= CHUNK_MAX_BYTES && chunk.uncompressed_size() <= CHUNK_MAX_PLAIN_BYTES;
        if !is_small || !take(&self.budget.bytes, length) || !take(&self.budget.values, entries) {
            return Err(Undecided::TooMuch("too much would have to be read".to_owned()));
        }
        Ok(LeafPages::new(self.fetch(key, footer, start, length).await?, chunk, kind, rows))
    }

    async fn fetch(&self, key: &ObjectKey, footer: &Footer, start: u64, length: u64) -> Result<Bytes, Undecided> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let range = Some(ByteRange::From { start, length });
        let options = GetOptions { range, if_match: Some(footer.etag.clone()) };
        match self.ctx.ports().objects.get(key, &options).await {
            Ok(object) => Ok(object.bytes),
            Err(ObjectError::NotFound(_)) => Err(Undecided::Failed(missing(&key.key).into())),
            Err(ObjectError::PreconditionFailed(_)) => Err(Undecided::Failed(changed(&key.key).into())),
            Err(error) => Err(CommitError::from(error).into()),
        }
    }
}

/// Takes from what is left, if there is enough.
fn take(left: &AtomicU64, wanted: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(wanted)).is_ok()
}
