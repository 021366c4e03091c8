//! One Parquet file of a checkpoint, row group by row group.

use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::schema::types::Type;

use super::columns::Column;
use super::pages::{ColumnPages, Portions, Source, Window, span};
use super::rows::{FIELDS, ParsedColumn, Pass, Row};
use super::{CheckpointError, Interest, Sink};
use crate::delta::actions::PARSED;
use crate::delta::footer::{FooterError, read_footer_and_tail};
use crate::store::{ObjectKey, ReadObjects};

/// Reads a file and gives its rows to the sink.
pub(super) async fn read(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
    size_bytes: u64,
    portions: Portions,
    sink: &mut dyn Sink,
) -> Result<(), CheckpointError> {
    let read = read_footer_and_tail(objects, at, size_bytes, portions.first_bytes).await;
    let (footer, tail) = read.map_err(footer_error)?;
    let source = Source { objects, at, etag: &footer.etag, portions };
    let tail = Window { start: size_bytes.saturating_sub(u64::try_from(tail.len()).unwrap_or(0)), bytes: tail };
    let schema = footer.metadata.file_metadata().schema_descr().root_schema_ptr();
    for group in footer.metadata.row_groups() {
        match sink.interest() {
            Interest::All => {
                read_group(source, group, &schema, (Pass::Whole, &tail), sink).await?;
            }
            Interest::Some => {
                if read_group(source, group, &schema, (Pass::Paths, &tail), sink).await? {
                    read_group(source, group, &schema, (Pass::Files, &tail), sink).await?;
                }
            }
            Interest::None => {
                read_group(source, group, &schema, (Pass::Others, &tail), sink).await?;
            }
            Interest::Outline => {
                read_group(source, group, &schema, (Pass::Outline, &tail), sink).await?;
            }
            Interest::Parsed => {
                read_group(source, group, &schema, (Pass::Parsed, &tail), sink).await?;
            }
        }
    }
    Ok(())
}

fn footer_error(error: FooterError) -> CheckpointError {
    match error {
        FooterError::Store(error) => CheckpointError::Store(error),
        FooterError::Missing => CheckpointError::damaged("listed or named, but gone when it was read"),
        other => CheckpointError::damaged(other),
    }
}

/// True if the sink wants files of this row group.
async fn read_group(
    source: Source<'_>,
    group: &RowGroupMetaData,
    schema: &Arc<Type>,
    (pass, tail): (Pass, &Window),
    sink: &mut dyn Sink,
) -> Result<bool, CheckpointError> {
    let (mut row, chunks) = open(source, group, schema, pass, tail).await?;
    let (mut done, mut has_wanted) = (0_i64, false);
    if chunks == 0 {
        return Ok(false);
    }
    loop {
        let mut batch = usize::MAX;
        let mut is_behind = false;
        for column in row.columns.iter_mut().flatten() {
            let available = column.fill(source).await?;
            is_behind |= available == 0;
            batch = batch.min(available);
        }
        if is_behind {
            break;
        }
        for _ in 0..batch {
            row.columns.iter_mut().flatten().for_each(Column::advance);
            has_wanted |= sink.row(&row, pass)?;
        }
        done = done.saturating_add(i64::try_from(batch).unwrap_or(i64::MAX));
    }
    if done != group.num_rows() {
        let text = format!("a row group says that it has {} rows, and has {done}", group.num_rows());
        return Err(CheckpointError::damaged(text));
    }
    Ok(has_wanted)
}

/// The columns of a pass, and how many there are.
async fn open(
    source: Source<'_>,
    group: &RowGroupMetaData,
    schema: &Arc<Type>,
    pass: Pass,
    tail: &Window,
) -> Result<(Row, usize), CheckpointError> {
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let mut chosen = choose(group.columns(), pass);
    let parsed = if pass == Pass::Parsed { choose_parsed(group.columns(), &mut chosen) } else { Vec::new() };
    let window = together(source, &chosen, tail).await?;
    let count = chosen.iter().map(Vec::len).sum();
    let mut columns = Vec::with_capacity(chosen.len());
    for chunks in chosen {
        let mut of_field = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let pages = ColumnPages::new(chunk.clone(), rows, window.clone());
            of_field.push(Column::new(chunk.column_descr_ptr(), schema, pages));
        }
        columns.push(of_field);
    }
    Ok((Row { columns, parsed }, count))
}

/// The column chunks of each field.
fn choose(chunks: &[ColumnChunkMetaData], pass: Pass) -> Vec<Vec<&ColumnChunkMetaData>> {
    FIELDS
        .iter()
        .map(|(field, path)| {
            let is_of = |chunk: &&ColumnChunkMetaData| {
                let found = chunk.column_path().string();
                found == *path || found.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
            };
            if field.is_in(pass) { chunks.iter().filter(is_of).collect() } else { Vec::new() }
        })
        .collect()
}

/// Adds the column chunks of parsed statistics and partition values. Of lists none is known, and none is read.
fn choose_parsed<'a>(
    chunks: &'a [ColumnChunkMetaData],
    chosen: &mut Vec<Vec<&'a ColumnChunkMetaData>>,
) -> Vec<ParsedColumn> {
    let mut parsed = Vec::new();
    for chunk in chunks {
        let [kind, path @ ..] = chunk.column_path().parts() else { continue };
        if kind != "add" || !path.first().is_some_and(|name| PARSED.contains(&name.as_str())) {
            continue;
        }
        let is_read = chunk.column_descr().max_rep_level() == 0;
        parsed.push(ParsedColumn { path: path.to_vec(), place: is_read.then_some(chosen.len()) });
        if is_read {
            chosen.push(vec![chunk]);
        }
    }
    parsed
}

/// One request for all columns where they lie close together; none where they are in memory already.
async fn together(
    source: Source<'_>,
    chosen: &[Vec<&ColumnChunkMetaData>],
    tail: &Window,
) -> Result<Window, CheckpointError> {
    let spans = chosen.iter().flatten().map(|chunk| span(chunk));
    let (start, end) = spans.fold((u64::MAX, 0_u64), |(start, end), (from, length)| {
        (start.min(from), end.max(from.saturating_add(length)))
    });
    if start >= end {
        return Ok(Window { start: 0, bytes: Bytes::new() });
    }
    if tail.holds(start, end) {
        return Ok(tail.clone());
    }
    if end.saturating_sub(start) <= source.portions.together_bytes {
        source.fetch(start, end).await
    } else {
        Ok(Window::default())
    }
}
