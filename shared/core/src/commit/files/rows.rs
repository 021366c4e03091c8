//! Whether a file has a row that a commit may have read: the columns of its predicates, and nothing else, are read.

use super::FileError;
use super::scan::{Budget, ColumnReads, Undecided};
use crate::commit::context::Context;
use crate::commit::error::CommitError;
use crate::commit::read_set::{BoundReads, Domain, ReadColumn, physical_name};
use crate::commit::table_facts::TableFacts;
use crate::delta::AddFile;
use crate::delta::footer::{
    Datum, FileField, Footer, FooterError, Kind, Node, cache_of, facts_of_group, file_fields, find, read_footer,
};
use crate::delta::schema::{DataType, MappingMode};
use crate::store::ObjectKey;
use std::sync::Arc;

/// A file, and what was read of its table.
#[derive(Clone, Copy, Debug)]
pub struct RowQuestion<'a> {
    pub table: TableFacts<'a>,
    pub reads: &'a BoundReads,
    pub add: &'a AddFile,
    pub key: &'a ObjectKey,
}

/// What a look at the rows of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRow {
    /// No row can have been read.
    None,
    /// A row, by its number in the file, that may have been read. What of a predicate is not understood may be true.
    Some { row: u64, values: String },
    /// One commit may not read so much.
    OverBudget(String),
    /// The rows cannot be looked at.
    Unknown(String),
}

/// Looks for the first row, but for those that `is_deleted` knows by their numbers in the file, that may have been read.
///
/// Costs one read of the footer (none if it is remembered: files never change) and one of each column chunk that
/// statistics of row groups leave open.
pub async fn find_row(
    ctx: Context<'_>,
    budget: &Budget,
    question: RowQuestion<'_>,
    is_deleted: &(dyn Fn(u64) -> bool + Sync),
) -> Result<FoundRow, CommitError> {
    if question.reads.is_whole_table() {
        let text = "every row was read".to_owned();
        return Ok(FoundRow::Some { row: 0, values: text });
    }
    let footer = match footer_of(ctx, question).await {
        Ok(footer) => footer,
        Err(FooterError::Store(error)) => return Err(error.into()),
        Err(error) => return Ok(FoundRow::Unknown(error.to_string())),
    };
    let cells = match cells_of(question, &file_fields(&footer.metadata)) {
        Ok(cells) => cells,
        Err(text) => return Ok(FoundRow::Unknown(text)),
    };
    let search = Search { reads: ColumnReads { ctx, budget }, question, footer: &footer, cells: &cells, is_deleted };
    match search.run().await {
        Ok(found) => Ok(found),
        Err(Undecided::Failed(FileError::Failed(error))) => Err(error),
        Err(Undecided::Failed(FileError::Refused(refusal))) => Ok(FoundRow::Unknown(refusal.message.clone())),
        Err(Undecided::TooMuch(text)) => Ok(FoundRow::OverBudget(text)),
        Err(Undecided::Because(text)) => Ok(FoundRow::Unknown(text)),
    }
}

async fn footer_of(ctx: Context<'_>, question: RowQuestion<'_>) -> Result<Arc<Footer>, FooterError> {
    let cache = cache_of(&ctx.ports().objects);
    // Its columns are read under its ETag, so that one which is out of date is found out.
    let size = u64::try_from(question.add.size).unwrap_or(0);
    if let Some(known) = cache.get(question.key).filter(|footer| footer.size_bytes == size) {
        return Ok(known);
    }
    let footer = Arc::new(read_footer(&*ctx.ports().objects, question.key, size).await?);
    cache.put(question.key, &footer);
    Ok(footer)
}

/// Where the values of a slot come from.
enum Cell<'a> {
    /// The same in every row.
    Fixed(Domain),
    Leaf {
        leaf: usize,
        kind: Kind,
        column: &'a ReadColumn,
    },
}

fn cells_of<'a>(question: RowQuestion<'a>, fields: &[FileField]) -> Result<Vec<Cell<'a>>, String> {
    question.reads.columns().iter().map(|column| cell_of(column, question, fields)).collect()
}

fn cell_of<'a>(column: &'a ReadColumn, question: RowQuestion<'a>, fields: &[FileField]) -> Result<Cell<'a>, String> {
    let metadata = question.table.metadata;
    let mode = MappingMode::of(metadata).ok_or("the column mapping is not known")?;
    let unknown = || format!("the column `{}` is not found in the file", column.path.join("."));
    let (mut expected, mut found) = (question.table.schema.fields.as_slice(), Some(fields));
    for (index, name) in column.path.iter().enumerate() {
        let field = expected.iter().find(|field| field.name == *name).ok_or_else(unknown)?;
        if index == 0 && metadata.partition_columns.contains(name) {
            let values = Some(&question.add.partition_values);
            return Ok(Cell::Fixed(Domain::of_partition(values, physical_name(metadata, field), &column.kind)));
        }
        let file = found.and_then(|found| find(found, field, mode));
        if index + 1 == column.path.len() {
            return match file.map(|file| &file.node) {
                None | Some(Node::Leaf { kind: Kind::Null, .. }) => Ok(Cell::Fixed(Domain::of_row(None, &column.kind))),
                Some(Node::Leaf { leaf, kind }) => Ok(Cell::Leaf { leaf: *leaf, kind: kind.clone(), column }),
                Some(_) => Err(unknown()),
            };
        }
        let DataType::Struct(inner) = &field.data_type else { return Err(unknown()) };
        expected = inner;
        found = match file.map(|file| &file.node) {
            Some(Node::Struct(group)) => Some(group),
            _ => None,
        };
    }
    Err(unknown())
}

struct Search<'a> {
    reads: ColumnReads<'a>,
    question: RowQuestion<'a>,
    footer: &'a Footer,
    cells: &'a [Cell<'a>],
    is_deleted: &'a (dyn Fn(u64) -> bool + Sync),
}

impl Search<'_> {
    async fn run(&self) -> Result<FoundRow, Undecided> {
        let mut first = 0_u64;
        for (index, group) in self.footer.metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            let all: Vec<Domain> = self
                .cells
                .iter()
                .map(|cell| match cell {
                    Cell::Fixed(domain) => domain.clone(),
                    Cell::Leaf { leaf, kind, column } => {
                        Domain::of_facts(&facts_of_group(group, *leaf, kind), &column.kind)
                    }
                })
                .collect();
            let end = first.saturating_add(rows);
            if self.question.reads.may_match(&all)
                && (first..end).any(|row| !(self.is_deleted)(row))
                && let Some(found) = self.group(index, first).await?
            {
                return Ok(found);
            }
            first = end;
        }
        Ok(FoundRow::None)
    }

    async fn group(&self, group: usize, first: u64) -> Result<Option<FoundRow>, Undecided> {
        let _alone = self.reads.alone().await?;
        let leaves = self.cells.iter().filter_map(|cell| match cell {
            Cell::Leaf { leaf, kind, .. } => Some((*leaf, kind)),
            Cell::Fixed(_) => None,
        });
        let mut joined = self.reads.joined(self.question.key, self.footer, group, leaves).await?;
        while let Some((row, read)) = joined.next_row()? {
            let number = first.saturating_add(row);
            if (self.is_deleted)(number) {
                continue;
            }
            let mut read = read.into_iter();
            let values: Vec<Option<Datum>> = self
                .cells
                .iter()
                .map(|cell| match cell {
                    Cell::Fixed(_) => None,
                    Cell::Leaf { .. } => read.next().flatten(),
                })
                .collect();
            let slots: Vec<Domain> = self
                .cells
                .iter()
                .zip(&values)
                .map(|(cell, value)| match cell {
                    Cell::Fixed(domain) => domain.clone(),
                    Cell::Leaf { column, .. } => Domain::of_row(value.as_ref(), &column.kind),
                })
                .collect();
            if self.question.reads.may_match(&slots) {
                let shown = self.cells.iter().zip(&values).filter_map(|(cell, value)| match cell {
                    Cell::Fixed(_) => None,
                    Cell::Leaf { column, .. } => {
                        let value = value.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
                        Some(format!("{}={value}", column.path.join(".")))
                    }
                });
                let values = crate::commit::verdict::clip(&shown.collect::<Vec<_>>().join("; "));
                return Ok(Some(FoundRow::Some { row: number, values }));
            }
            if joined.has_no_columns() {
                // All rows are alike.
                break;
            }
        }
        Ok(None)
    }
}
