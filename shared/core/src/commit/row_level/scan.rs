//! Whether a row of a winner's file satisfies what the candidate read, where statistics cannot tell: only the columns of the
//! condition are read, and each row is asked as if it were a file of its own. What may be true counts as true.

use std::collections::BTreeMap;

use super::facts::Match;
use crate::commit::candidate::Candidate;
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::read_set::{BoundReads, ColumnOfReads, Domain};
use crate::commit::table_facts::{FileValues, TableFacts};
use crate::delta::AddFile;
use crate::delta::footer::{
    Datum, Footer, FooterError, Kind, Node, Presence, chunk_range, file_fields, find, read_footer, read_leaf,
};
use crate::delta::schema::MappingMode;
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey};

/// Bytes of columns read in one judgement.
const READ_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Values looked at in one judgement.
const VALUES_MAX: u64 = 10_000_000;
/// Values of one row group that are held at the same time.
const GROUP_VALUES_MAX: u64 = 2_500_000;
/// One column chunk, unpacked.
const CHUNK_MAX_PLAIN_BYTES: i64 = 256 * 1024 * 1024;

/// What may still be read.
struct Budget {
    bytes: u64,
    values: u64,
}

/// Why a file was not read to its end.
enum Stop {
    Failed(CommitError),
    Because(Match),
}

impl From<CommitError> for Stop {
    fn from(error: CommitError) -> Stop {
        Stop::Failed(error)
    }
}

fn unknown(text: impl Into<String>) -> Stop {
    Stop::Because(Match::Unknown(text.into()))
}

/// Where a column of the condition is in a file.
enum Source {
    /// The file does not have it.
    Absent,
    Leaf {
        leaf: usize,
        kind: Kind,
    },
}

/// The answer for each file. One GET for the footer of a file, one for each column and row group.
pub(super) async fn matches(
    ctx: Context<'_>,
    table: TableFacts<'_>,
    candidate: &Candidate,
    files: &BTreeMap<ObjectKey, AddFile>,
) -> Result<BTreeMap<ObjectKey, Match>, CommitError> {
    let reads = candidate.reads.bind(table);
    let mut budget = Budget { bytes: READ_MAX_BYTES, values: VALUES_MAX };
    let mut found = BTreeMap::new();
    for (key, add) in files {
        ctx.check_time("reading rows of files that were added meanwhile", 0)?;
        let answer = match (Scan { ctx, table, reads: &reads, budget: &mut budget, key, add }).run().await {
            Ok(None) => Match::No,
            Ok(Some(row)) => Match::Row(row),
            Err(Stop::Because(answer)) => answer,
            Err(Stop::Failed(error)) => return Err(error),
        };
        found.insert(key.clone(), answer);
    }
    Ok(found)
}

struct Scan<'a> {
    ctx: Context<'a>,
    table: TableFacts<'a>,
    reads: &'a BoundReads,
    budget: &'a mut Budget,
    key: &'a ObjectKey,
    add: &'a AddFile,
}

impl Scan<'_> {
    /// The first row that may satisfy the condition.
    async fn run(&mut self) -> Result<Option<u64>, Stop> {
        let footer = self.footer().await?;
        let columns = self.reads.columns();
        let sources = self.sources(&footer, &columns)?;
        let mut first = 0_u64;
        for (index, group) in footer.metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| unknown("a row group has no number of rows"))?;
            let leaves = sources.iter().filter(|source| matches!(source, Source::Leaf { .. })).count();
            let values = rows.saturating_mul(u64::try_from(leaves).unwrap_or(u64::MAX));
            if values > GROUP_VALUES_MAX {
                return Err(too_much(format!("row group {index} has {values} values in the columns in question")));
            }
            let mut read = Vec::with_capacity(sources.len());
            for source in &sources {
                read.push(match source {
                    Source::Absent => Vec::new(),
                    Source::Leaf { leaf, kind } => self.column(&footer, (index, *leaf), kind, rows).await?,
                });
            }
            let count = usize::try_from(rows).unwrap_or(usize::MAX);
            if let Some(row) = (0..count).find(|row| self.may_hold(&columns, &read, *row)) {
                return Ok(Some(first.saturating_add(u64::try_from(row).unwrap_or(u64::MAX))));
            }
            first = first.saturating_add(rows);
        }
        Ok(None)
    }

    fn may_hold(&self, columns: &[ColumnOfReads<'_>], read: &[Vec<Option<Datum>>], row: usize) -> bool {
        let file = FileValues { partition_values: Some(&self.add.partition_values), stats: None };
        self.reads.may_hold(file, &|path| {
            let at = columns.iter().position(|column| column.path == path)?;
            let value = read.get(at).and_then(|column| column.get(row)).and_then(Option::as_ref);
            Some(Domain::of_value(value, columns.get(at)?.kind))
        })
    }

    async fn footer(&self) -> Result<Footer, Stop> {
        let size = u64::try_from(self.add.size).unwrap_or(0);
        match read_footer(&*self.ctx.ports().objects, self.key, size).await {
            Ok(footer) => Ok(footer),
            Err(FooterError::Store(error)) => Err(CommitError::from(error).into()),
            Err(error) => Err(unknown(error.to_string())),
        }
    }

    fn sources(&self, footer: &Footer, columns: &[ColumnOfReads<'_>]) -> Result<Vec<Source>, Stop> {
        let mode = MappingMode::of(self.table.metadata).unwrap_or_default();
        let fields = file_fields(&footer.metadata);
        columns
            .iter()
            .map(|column| match find(&fields, column.field, mode) {
                None => Ok(Source::Absent),
                Some(found) => match &found.node {
                    Node::Leaf { kind, leaf } if found.presence != Presence::Repeated => {
                        Ok(Source::Leaf { leaf: *leaf, kind: kind.clone() })
                    }
                    _ => Err(unknown(format!("the column `{}` is nested in the file", column.field.name))),
                },
            })
            .collect()
    }

    async fn column(
        &mut self,
        footer: &Footer,
        (group, leaf): (usize, usize),
        kind: &Kind,
        rows: u64,
    ) -> Result<Vec<Option<Datum>>, Stop> {
        self.ctx.check_time("reading rows of files that were added meanwhile", 0)?;
        let chunk = footer.metadata.row_groups().get(group).and_then(|group| group.columns().get(leaf));
        let chunk = chunk.ok_or_else(|| unknown("the file lacks a column that its footer names"))?;
        let (start, length) = chunk_range(chunk, footer.size_bytes)
            .ok_or_else(|| unknown("the footer says that a column lies outside of the file"))?;
        let left = self.budget.bytes.checked_sub(length).zip(self.budget.values.checked_sub(rows));
        let Some((bytes, values)) = left.filter(|_| chunk.uncompressed_size() <= CHUNK_MAX_PLAIN_BYTES) else {
            return Err(too_much(format!("more than {READ_MAX_BYTES} bytes or {VALUES_MAX} values would be read")));
        };
        (self.budget.bytes, self.budget.values) = (bytes, values);
        let range = Some(ByteRange::From { start, length });
        let options = GetOptions { range, if_match: Some(footer.etag.clone()) };
        let bytes = match self.ctx.ports().objects.get(self.key, &options).await {
            Ok(object) => object.bytes,
            Err(ObjectError::Store(error)) => return Err(CommitError::from(error).into()),
            Err(error) => return Err(unknown(error.to_string())),
        };
        let mut found = Vec::with_capacity(usize::try_from(rows).unwrap_or(0));
        read_leaf(bytes, start, chunk, kind, rows, &mut |_, value| found.push(value))
            .map_err(|error| unknown(error.to_string()))?;
        if u64::try_from(found.len()) != Ok(rows) {
            return Err(unknown("a column has another number of values than the file has rows"));
        }
        Ok(found)
    }
}

fn too_much(text: String) -> Stop {
    Stop::Because(Match::TooMuch(text))
}
