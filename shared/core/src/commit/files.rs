//! The files of a candidate: footers before the claim, existence again at claim time where it is not proved.

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, TryStreamExt};

use super::ahead::Seen;
use super::candidate::Candidate;
use super::context::Context;
use super::error::CommitError;
use super::judge::Admission;
use super::sanity::row_count;
use super::verdict::{Exception, Refusal, clip};
use crate::delta::AddFile;
use crate::delta::features::row_tracking_columns;
use crate::delta::footer::{FooterError, SchemaProblem, check_footer, read_footer};
use crate::store::{ObjectError, ObjectKey};

/// Files looked at at the same time.
const CONCURRENT_FILES: usize = 16;
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

/// Reads the footer of every added file and compares it with the commit and the schema; looks whether change-feed
/// files exist. One ranged GET for each added file (two for large footers) whose footer was not `seen`, one HEAD for each
/// change-feed file.
pub(super) async fn check_files(
    ctx: Context<'_>,
    candidate: &Candidate,
    admission: &Admission,
    seen: Seen<'_>,
) -> Result<Vec<String>, FileError> {
    let files = candidate.actions.adds.iter().zip(&candidate.add_keys);
    let checks = files.map(|(add, key)| check_added(ctx, add, key, admission, seen).boxed()).collect();
    let mut warnings: Vec<String> = some_at_a_time(checks).await?.into_iter().flatten().collect();
    check_cdc(ctx, candidate).await?;
    warnings.truncate(WARNINGS_MAX);
    Ok(warnings)
}

/// Looks again whether every file that the candidate adds is there: one HEAD for each. Done when the head was read
/// anew after the footers, since only then a sweep can have deleted in between (a fence changes the head's revision).
pub async fn check_existence(ctx: Context<'_>, candidate: &Candidate) -> Result<(), FileError> {
    let files = candidate.actions.adds.iter().zip(&candidate.add_keys);
    some_at_a_time(files.map(|(add, key)| check_there(ctx, &add.path, key, add.size).boxed()).collect()).await?;
    check_cdc(ctx, candidate).await
}

/// Boxed, since the compiler cannot see through closures that the whole is `Send`.
async fn some_at_a_time<T>(checks: Vec<BoxFuture<'_, Result<T, FileError>>>) -> Result<Vec<T>, FileError> {
    futures::stream::iter(checks).buffered(CONCURRENT_FILES).try_collect().await
}

async fn check_cdc(ctx: Context<'_>, candidate: &Candidate) -> Result<(), FileError> {
    let files = candidate.actions.cdc.iter().zip(&candidate.cdc_keys);
    some_at_a_time(files.map(|(cdc, key)| check_there(ctx, &cdc.path, key, cdc.size).boxed()).collect()).await?;
    Ok(())
}

async fn check_there(ctx: Context<'_>, path: &str, key: &ObjectKey, size: i64) -> Result<(), FileError> {
    ctx.check_time("looking at data files", 0)?;
    match ctx.ports().objects.head(key).await {
        Ok(meta) if i64::try_from(meta.size_bytes) == Ok(size) => Ok(()),
        Ok(meta) => Err(wrong_size(path, size, meta.size_bytes).into()),
        Err(ObjectError::NotFound(_)) => Err(missing(path).into()),
        Err(error) => Err(CommitError::from(error).into()),
    }
}

async fn check_added(
    ctx: Context<'_>,
    add: &AddFile,
    key: &ObjectKey,
    admission: &Admission,
    seen: Seen<'_>,
) -> Result<Vec<String>, FileError> {
    ctx.check_time("reading data files", 0)?;
    let size = u64::try_from(add.size).unwrap_or(0);
    let read;
    let footer = match seen.footer(key, size) {
        Some(footer) => footer,
        None => {
            read = match read_footer(&*ctx.ports().objects, key, size).await {
                Ok(footer) => footer,
                Err(FooterError::Store(error)) => return Err(CommitError::from(error).into()),
                Err(error) => return Err(footer_refusal(&add.path, &error).into()),
            };
            &read
        }
    };
    let found_rows = footer.metadata.file_metadata().num_rows();
    if let Some(rows) = row_count(add)?.filter(|rows| i64::try_from(*rows) != Ok(found_rows)) {
        let text = format!("stats.numRecords is {rows}, the file has {found_rows} rows");
        return Err(Refusal::new(
            Exception::InvalidCommitException,
            "ROW_COUNT",
            text,
            "write the file's real statistics",
        )
        .class("LAKEWARDEN_ROW_COUNT_MISMATCH")
        .file(&add.path)
        .into());
    }
    let mut extras = row_tracking_columns(&admission.metadata);
    if admission.metadata.is_on("delta.enableChangeDataFeed") {
        extras.push("_change_type");
    }
    let columns = &admission.metadata.partition_columns;
    let check = check_footer(&footer.metadata, &admission.schema, columns, &extras);
    match check.problems.split_first() {
        Some((first, more)) => Err(schema_refusal(&add.path, first, more).into()),
        None => Ok(check.warnings.into_iter().map(|warning| clip(&format!("{}: {warning}", add.path))).collect()),
    }
}

fn schema_refusal(path: &str, problem: &SchemaProblem, more: &[SchemaProblem]) -> Refusal {
    let mut refusal =
        Refusal::new(Exception::SchemaMismatchException, "SCHEMA", problem.message.clone(), problem.advice)
            .class(problem.class)
            .file(path)
            .column(&problem.column);
    refusal.place.expected = problem.expected.as_deref().map(clip);
    refusal.place.found = problem.found.as_deref().map(clip);
    refusal.more = more.iter().map(|problem| clip(&format!("{}: {}", problem.class, problem.message))).collect();
    refusal
}

fn footer_refusal(path: &str, error: &FooterError) -> Refusal {
    match error {
        FooterError::Missing => missing(path),
        FooterError::Size { expected_bytes, found_bytes } => {
            wrong_size(path, i64::try_from(*expected_bytes).unwrap_or(i64::MAX), *found_bytes)
        }
        other => Refusal::new(
            Exception::InvalidCommitException,
            "NOT_PARQUET",
            other.to_string(),
            "data files must be plain, complete Parquet files",
        )
        .class("LAKEWARDEN_UNREADABLE_FILE")
        .file(path),
    }
}

fn missing(path: &str) -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "FILE_MISSING",
        "the commit names a file that does not exist",
        "upload the data files before the commit is proposed",
    )
    .class("DELTA_FILE_NOT_FOUND_DETAILED")
    .file(path)
}

fn wrong_size(path: &str, expected: i64, found: u64) -> Refusal {
    let text = format!("the commit says that the file has {expected} bytes, the object has {found}");
    Refusal::new(Exception::InvalidCommitException, "FILE_SIZE", text, "name the object's real size")
        .class("LAKEWARDEN_FILE_SIZE_MISMATCH")
        .file(path)
}
