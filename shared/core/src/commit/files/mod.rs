//! The files of a candidate: footers before the claim, existence again at claim time where it is not proved.
//!
//! `refusals` has the words, `known` tells files that the table has already, `partition` compares partition values with what is in the file, `values` asks what must
//! hold of every row, `scan` reads columns where statistics leave that open; `rows` looks for rows that were read.

mod known;
mod partition;
mod refusals;
mod rows;
mod scan;
mod values;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::known::{Standing, known_files};
use self::refusals::{changed, footer_refusal, missing, row_count_differs, schema_refusal, wrong_size};
pub use self::rows::{FoundRow, RowQuestion, find_row};
pub use self::scan::Budget;
use super::ahead::Seen;
use super::candidate::Candidate;
use super::constraints::{self, Policy, Rule};
use super::context::Context;
use super::error::CommitError;
use super::identity;
use super::judge::Admission;
use super::sanity::row_count;
use super::statistics_honesty::check_statistics;
use super::verdict::{Refusal, clip};
use crate::delta::AddFile;
use crate::delta::features::row_tracking_columns;
use crate::delta::footer::{
    FileField, Footer, FooterCache, FooterError, TableColumns, cache_of, check_footer, file_fields, read_as,
    read_footer_of_many,
};
use crate::delta::schema::{MappingMode, physical_names};
use crate::store::{ETag, ObjectError, ObjectKey, ObjectMeta};

/// Files looked at at the same time.
pub const CONCURRENT_FILES: usize = 32;
/// Warnings kept of all files together.
const WARNINGS_MAX: usize = 20;
/// A file refuses the commit, or could not be looked at.
#[derive(Clone, Debug, PartialEq)]
pub enum FileError {
    Refused(Refusal),
    Failed(CommitError),
}

impl From<Refusal> for FileError {
    fn from(refusal: Refusal) -> Self {
        FileError::Refused(refusal)
    }
}

impl From<CommitError> for FileError {
    fn from(error: CommitError) -> Self {
        FileError::Failed(error)
    }
}

/// What was seen of a candidate's files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    pub warnings: Vec<String>,
    /// ETags of the added files, in their order: what was judged.
    pub etags: Vec<ETag>,
}

/// Reads the footer of every added file and compares it with the commit, the schema and the table's constraints; looks
/// whether change-feed files exist. One ranged GET for each added file (two for large footers, one HEAD where the footer
/// is known, or where the table has the file and the commit says nothing new of it), one HEAD for each change-feed file; more only for columns that constraints need and statistics do not tell.
///
/// A footer that was read ahead for another proposal of the batch is a known one, too; those of the proposal whose turn it
/// is cost nothing more when they were read with these.
pub(super) async fn check_files(
    ctx: Context<'_>,
    candidate: &Candidate,
    admission: &Admission,
    seen: Seen<'_>,
) -> Result<Checked, FileError> {
    let judge = FileJudge::new(ctx, admission, seen);
    let mut running = Running::new();
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        let check = match admission.known.get(key) {
            Some(Standing::Unchanged) => check_known(ctx, add, key).boxed(),
            Some(Standing::Restated) => judge.check_restated(add, key).boxed(),
            None => judge.check_added(add, key).boxed(),
        };
        running.begin(check).await?;
    }
    let found = running.finish().await?;
    check_cdc(ctx, candidate).await?;
    let mut checked = Checked::default();
    let mut more = 0;
    for (etag, warnings) in found {
        checked.etags.push(etag);
        let room = WARNINGS_MAX.saturating_sub(checked.warnings.len());
        more += warnings.len().saturating_sub(room);
        checked.warnings.extend(warnings.into_iter().take(room));
    }
    if more > 0 {
        checked.warnings.push(format!("and {more} more like these, of other files"));
    }
    Ok(checked)
}

/// Looks again whether every file that the candidate adds is there, as it was judged: one HEAD for each. Done when the
/// head was read anew after the footers, since only then a sweep can have deleted in between (a fence changes the head's
/// revision).
pub async fn check_existence(ctx: Context<'_>, candidate: &Candidate, etags: &[ETag]) -> Result<(), FileError> {
    let mut running = Running::new();
    for (index, (add, key)) in candidate.actions.adds.iter().zip(&candidate.add_keys).enumerate() {
        running.begin(check_same(ctx, add, key, etags.get(index)).boxed()).await?;
    }
    running.finish().await?;
    check_cdc(ctx, candidate).await
}

/// A bounded number of checks that run at the same time, their results in order. Futures are made one by one, since
/// thousands of them would take memory, and boxed, since the compiler cannot see through closures that all is `Send`.
struct Running<'a, T> {
    checks: FuturesOrdered<BoxFuture<'a, Result<T, FileError>>>,
    done: Vec<T>,
}

impl<'a, T> Running<'a, T> {
    fn new() -> Self {
        Running { checks: FuturesOrdered::new(), done: Vec::new() }
    }

    /// Waits for the oldest check where all places are taken.
    async fn begin(&mut self, check: BoxFuture<'a, Result<T, FileError>>) -> Result<(), FileError> {
        if self.checks.len() >= CONCURRENT_FILES
            && let Some(found) = self.checks.next().await
        {
            self.done.push(found?);
        }
        self.checks.push_back(check);
        Ok(())
    }

    async fn finish(mut self) -> Result<Vec<T>, FileError> {
        while let Some(found) = self.checks.next().await {
            self.done.push(found?);
        }
        Ok(self.done)
    }
}

async fn check_cdc(ctx: Context<'_>, candidate: &Candidate) -> Result<(), FileError> {
    let mut running = Running::new();
    for (cdc, key) in candidate.actions.cdc.iter().zip(&candidate.cdc_keys) {
        running.begin(check_there(ctx, &cdc.path, key, cdc.size).boxed()).await?;
    }
    running.finish().await?;
    Ok(())
}

async fn check_known(ctx: Context<'_>, add: &AddFile, key: &ObjectKey) -> Result<(ETag, Vec<String>), FileError> {
    Ok((check_there(ctx, &add.path, key, add.size).await?.etag, Vec::new()))
}

async fn check_same(ctx: Context<'_>, add: &AddFile, key: &ObjectKey, etag: Option<&ETag>) -> Result<(), FileError> {
    let meta = check_there(ctx, &add.path, key, add.size).await?;
    match etag.filter(|etag| **etag != meta.etag) {
        Some(_) => Err(changed(&add.path).into()),
        None => Ok(()),
    }
}

async fn check_there(ctx: Context<'_>, path: &str, key: &ObjectKey, size: i64) -> Result<ObjectMeta, FileError> {
    ctx.check_time("looking at data files", 0)?;
    match ctx.ports().objects.head(key).await {
        Ok(meta) if i64::try_from(meta.size_bytes) == Ok(size) => Ok(meta),
        Ok(meta) => Err(wrong_size(path, size, meta.size_bytes).into()),
        Err(ObjectError::NotFound(_)) => Err(missing(path).into()),
        Err(error) => Err(CommitError::from(error).into()),
    }
}

/// What all files of a commit are judged by.
struct FileJudge<'a> {
    ctx: Context<'a>,
    admission: &'a Admission,
    seen: Seen<'a>,
    mode: MappingMode,
    partition_columns: Vec<String>,
    row_tracking: Vec<String>,
    has_change_feed: bool,
    rules: Vec<Rule>,
    policy: Policy,
    cache: Arc<FooterCache>,
    /// One footer that needs a second read at a time.
    large: Arc<Semaphore>,
    budget: Budget,
}

impl<'a> FileJudge<'a> {
    fn new(ctx: Context<'a>, admission: &'a Admission, seen: Seen<'a>) -> Self {
        let (metadata, schema) = (&admission.metadata, &admission.schema);
        FileJudge {
            ctx,
            admission,
            seen,
            // Other modes were refused before.
            mode: MappingMode::of(metadata).unwrap_or_default(),
            partition_columns: physical_names(metadata, schema),
            row_tracking: row_tracking_columns(metadata).into_iter().map(str::to_owned).collect(),
            has_change_feed: metadata.is_on("delta.enableChangeDataFeed"),
            rules: constraints::rules_of(metadata, schema),
            policy: constraints::policy_of(metadata),
            cache: cache_of(&ctx.ports().objects),
            large: Arc::new(Semaphore::new(1)),
            budget: Budget::default(),
        }
    }

    fn table(&self) -> TableColumns<'_> {
        TableColumns {
            schema: &self.admission.schema,
            mode: self.mode,
            partition_columns: &self.partition_columns,
            has_change_feed: self.has_change_feed,
            row_tracking: &self.row_tracking,
        }
    }

    /// The footer, read or remembered; a remembered one only if its object is still the same.
    async fn footer(
        &self,
        add: &AddFile,
        key: &ObjectKey,
    ) -> Result<(Arc<Footer>, Option<OwnedSemaphorePermit>), FileError> {
        self.ctx.check_time("reading data files", 0)?;
        let size = u64::try_from(add.size).unwrap_or(0);
        let seen = self.seen.footer(key, size).cloned();
        if let Some(seen) = seen.as_ref().filter(|_| self.seen.just_now) {
            return Ok((seen.clone(), None));
        }
        // Whoever deletes or replaces files need not have told the head.
        if let Some(known) = seen.or_else(|| self.cache.get(key)) {
            let meta = match self.seen.look(key).filter(|meta| i64::try_from(meta.size_bytes) == Ok(add.size)) {
                Some(meta) => meta.clone(),
                None => check_there(self.ctx, &add.path, key, add.size).await?,
            };
            if meta.etag == known.etag {
                return Ok((known, None));
            }
            self.cache.forget(key);
        }
        match read_footer_of_many(&*self.ctx.ports().objects, key, size, &self.large).await {
            Ok((footer, permit)) => {
                let footer = Arc::new(footer);
                self.cache.put(key, &footer);
                Ok((footer, permit))
            }
            Err(FooterError::Store(error)) => Err(CommitError::from(error).into()),
            Err(error) => Err(footer_refusal(&add.path, &error).into()),
        }
    }

    /// The columns of a file as the table reads them.
    fn fields(&self, footer: &Footer) -> Vec<FileField> {
        read_as(file_fields(&footer.metadata), &self.admission.schema.fields, self.mode)
    }

    /// A file that the table has: its rows were judged when they came, what is said of them now is held against them.
    async fn check_restated(&self, add: &AddFile, key: &ObjectKey) -> Result<(ETag, Vec<String>), FileError> {
        let (footer, _large) = self.footer(add, key).await?;
        check_rows(add, &footer)?;
        let metadata = &footer.metadata;
        check_statistics(add, metadata, &self.fields(&footer), &self.admission.schema, self.mode)?;
        Ok((footer.etag.clone(), Vec::new()))
    }

    async fn check_added(&self, add: &AddFile, key: &ObjectKey) -> Result<(ETag, Vec<String>), FileError> {
        // Held until the footer is done with.
        let (footer, _large) = self.footer(add, key).await?;
        let metadata = &footer.metadata;
        check_rows(add, &footer)?;
        let check = check_footer(metadata, self.table());
        if let Some((first, more)) = check.problems.split_first() {
            return Err(schema_refusal(&add.path, first, more).into());
        }
        let fields = self.fields(&footer);
        let mut warnings = check.warnings;
        let unsaid = partition::check_partition_values(add, metadata, &fields, self)?;
        let numbers = &self.admission.numbers;
        warnings.extend(identity::check_file(add, metadata, &fields, &self.admission.schema, self.mode, numbers)?);
        check_statistics(add, metadata, &fields, &self.admission.schema, self.mode)?;
        warnings.extend(values::check_values(self, add, key, &footer, &fields, (&check.unproved, &unsaid)).await?);
        let warnings = warnings.into_iter().map(|warning| clip(&format!("{}: {warning}", add.path))).collect();
        Ok((footer.etag.clone(), warnings))
    }
}

/// The file has the rows that the commit says, and data where its footer says.
fn check_rows(add: &AddFile, footer: &Footer) -> Result<(), FileError> {
    let found_rows = footer.metadata.file_metadata().num_rows();
    if let Some(rows) = row_count(add)?.filter(|rows| i64::try_from(*rows) != Ok(found_rows)) {
        return Err(row_count_differs(&add.path, rows, found_rows).into());
    }
    match refusals::group_rows_differ(&footer.metadata).or_else(|| refusals::data_missing(footer)) {
        Some(damage) => Err(damage.file(&add.path).into()),
        None => Ok(()),
    }
}
