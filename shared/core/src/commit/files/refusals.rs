//! What is said of files that refuse a commit.

use parquet::file::metadata::ParquetMetaData;

use crate::commit::verdict::{Exception, Refusal, clip};
use crate::delta::footer::{Footer, FooterError, SchemaProblem, misplaced_chunk};

pub(super) fn schema_refusal(path: &str, problem: &SchemaProblem, more: &[SchemaProblem]) -> Refusal {
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

pub(super) fn footer_refusal(path: &str, error: &FooterError) -> Refusal {
    match error {
        FooterError::Missing => missing(path),
        FooterError::Size { expected_bytes, found_bytes } => {
            wrong_size(path, i64::try_from(*expected_bytes).unwrap_or(i64::MAX), *found_bytes)
        }
        FooterError::Changed => changed(path),
        other => Refusal::new(
            Exception::InvalidCommitException,
            match other {
                FooterError::Encrypted => "ENCRYPTED_FILE",
                FooterError::Codec(_) => "UNKNOWN_CODEC",
                FooterError::Bomb(_) | FooterError::TooLarge(_) => "FOOTER_TOO_LARGE",
                _ => "NOT_PARQUET",
            },
            other.to_string(),
            "data files must be plain, complete Parquet files",
        )
        .class("DELTA_FAILED_READ_FILE_FOOTER")
        .file(path),
    }
}

pub(super) fn missing(path: &str) -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "FILE_MISSING",
        "the commit names a file that does not exist",
        "upload the data files before the commit is proposed",
    )
    .class("DELTA_FILE_NOT_FOUND_DETAILED")
    .file(path)
}

pub(super) fn changed(path: &str) -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "FILE_CHANGED",
        "the file was replaced while the commit was judged",
        "write every data file once, under a name of its own",
    )
    .class("LAKEWARDEN_FILE_CHANGED")
    .file(path)
}

pub(super) fn wrong_size(path: &str, expected: i64, found: u64) -> Refusal {
    let text = format!("the commit says that the file has {expected} bytes, the object has {found}");
    Refusal::new(Exception::InvalidCommitException, "FILE_SIZE", text, "name the object's real size")
        .class("LAKEWARDEN_FILE_SIZE_MISMATCH")
        .file(path)
}

pub(super) fn row_count_differs(path: &str, said: u64, found: i64) -> Refusal {
    let text = format!("stats.numRecords is {said}, the file has {found} rows");
    let mut refusal =
        Refusal::new(Exception::InvalidCommitException, "ROW_COUNT", text, "write the file's real statistics")
            .class("LAKEWARDEN_ROW_COUNT_MISMATCH")
            .file(path);
    (refusal.place.expected, refusal.place.found) = (Some(found.to_string()), Some(said.to_string()));
    refusal
}

/// A footer whose row groups do not have the rows that it says.
pub(super) fn group_rows_differ(metadata: &ParquetMetaData) -> Option<Refusal> {
    let rows = metadata.file_metadata().num_rows();
    let sum = metadata.row_groups().iter().try_fold(0_i64, |sum, group| {
        let rows = group.num_rows();
        if rows < 0 { None } else { sum.checked_add(rows) }
    });
    (sum != Some(rows)).then(|| {
        let text = format!("the file says that it has {rows} rows, its row groups have {}", sum.unwrap_or(-1));
        incomplete(text)
    })
}

/// A footer whose data is not there.
pub(super) fn data_missing(footer: &Footer) -> Option<Refusal> {
    misplaced_chunk(&footer.metadata, footer.data_end)
        .map(|text| incomplete(format!("not a whole Parquet file: {text}")))
}

fn incomplete(text: String) -> Refusal {
    Refusal::new(
        Exception::InvalidCommitException,
        "NOT_PARQUET",
        text,
        "data files must be plain, complete Parquet files",
    )
    .class("DELTA_FAILED_READ_FILE_FOOTER")
}
