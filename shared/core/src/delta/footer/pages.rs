//! The values of one column chunk, for questions that statistics leave open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use thiserror::Error;

use super::guard::check_pages;
use super::kind::Kind;
use super::value::{Datum, Raw};

/// One page, decompressed.
const PAGE_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Levels read in one go.
const BATCH_ROWS: usize = 16 * 1024;

/// Values cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PagesError {
    #[error("its compression ({0}) is not read here")]
    Codec(String),
    #[error("its pages cannot be read: {0}")]
    Damaged(String),
}

/// Start and length of a column chunk in its file; nothing where the footer says what cannot be.
pub fn chunk_range(chunk: &ColumnChunkMetaData, file_bytes: u64) -> Option<(u64, u64)> {
    let data = u64::try_from(chunk.data_page_offset()).ok()?;
    let start = match chunk.dictionary_page_offset() {
        Some(offset) => u64::try_from(offset).ok()?,
        None => data,
    };
    let length = u64::try_from(chunk.compressed_size()).ok()?;
    (start.checked_add(length)? <= file_bytes).then_some((start, length))
}

/// Reads a leaf's chunk from its `bytes`, which begin at `start` in the file, entry by entry: definition levels, and the
/// values where there are some. As [`Kind::Null`] only levels are read. `rows` bounds what is read.
pub fn read_leaf(
    bytes: Bytes,
    start: u64,
    chunk: &ColumnChunkMetaData,
    kind: &Kind,
    rows: u64,
    out: &mut dyn FnMut(i16, Option<Datum>),
) -> Result<(), PagesError> {
    let damaged = |text: String| PagesError::Damaged(text);
    check_pages(&bytes, PAGE_MAX_BYTES).map_err(|error| damaged(error.to_string()))?;
    let rows = usize::try_from(rows).map_err(|_| damaged("too many rows".to_owned()))?;
    // Damaged pages are errors to the decoder, but for those that nobody thought of.
    let read = catch_unwind(AssertUnwindSafe(|| read_pages(bytes, start, chunk, kind, rows, out)));
    match read {
        Ok(Ok(())) => Ok(()),
        Ok(Err(ParquetError::NYI(text))) => Err(PagesError::Codec(text)),
        Ok(Err(error)) => Err(damaged(error.to_string())),
        Err(_) => Err(damaged("the decoder gave up".to_owned())),
    }
}

fn read_pages(
    bytes: Bytes,
    start: u64,
    chunk: &ColumnChunkMetaData,
    kind: &Kind,
    rows: usize,
    out: &mut dyn FnMut(i16, Option<Datum>),
) -> ParquetResult<()> {
    let descriptor = chunk.column_descr_ptr();
    let pages = SerializedPageReader::new(Arc::new(Slice { start, bytes }), chunk, rows, None)?;
    let at = (kind, descriptor.max_def_level(), rows);
    match get_column_reader(descriptor, Box::new(pages)) {
        ColumnReader::BoolColumnReader(reader) => entries(reader, at, |value| Raw::Flag(*value), out),
        ColumnReader::Int32ColumnReader(reader) => entries(reader, at, |value| Raw::Int32(*value), out),
        ColumnReader::Int64ColumnReader(reader) => entries(reader, at, |value| Raw::Int64(*value), out),
        ColumnReader::Int96ColumnReader(reader) => entries(reader, at, |value| Raw::Int96(value), out),
        ColumnReader::FloatColumnReader(reader) => entries(reader, at, |value| Raw::Float(*value), out),
        ColumnReader::DoubleColumnReader(reader) => entries(reader, at, |value| Raw::Double(*value), out),
        ColumnReader::ByteArrayColumnReader(reader) => entries(reader, at, |value| Raw::Bytes(value.data()), out),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => {
            entries(reader, at, |value| Raw::Bytes(value.data()), out)
        }
    }
}

fn entries<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    (kind, max_definition_level, rows): (&Kind, i16, usize),
    raw: impl for<'a> Fn(&'a T::T) -> Raw<'a>,
    out: &mut dyn FnMut(i16, Option<Datum>),
) -> ParquetResult<()> {
    let mut left = rows;
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    while left > 0 {
        values.clear();
        definitions.clear();
        repetitions.clear();
        let wanted = left.min(BATCH_ROWS);
        let (records, _, levels) =
            reader.read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut values)?;
        if records == 0 {
            return Err(ParquetError::General("fewer rows than the footer says".to_owned()));
        }
        left = left.saturating_sub(records);
        let mut found = values.iter();
        for index in 0..levels {
            // A required column has no levels.
            let level = definitions.get(index).copied().unwrap_or(max_definition_level);
            let value = match level >= max_definition_level {
                // Only the levels are asked for.
                true if *kind == Kind::Null => None,
                true => {
                    let value = found.next().and_then(|value| Datum::decode(kind, raw(value)));
                    Some(value.ok_or_else(|| ParquetError::General("a value that is none of its type".to_owned()))?)
                }
                false => None,
            };
            out(level, value);
        }
    }
    Ok(())
}

/// A part of a file.
struct Slice {
    start: u64,
    bytes: Bytes,
}

impl Slice {
    fn from(&self, at: u64) -> ParquetResult<Bytes> {
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        match skip.filter(|skip| *skip <= self.bytes.len()) {
            Some(skip) => Ok(self.bytes.slice(skip..)),
            None => Err(ParquetError::EOF("outside of the column chunk".to_owned())),
        }
    }
}

impl Length for Slice {
    fn len(&self) -> u64 {
        self.start.saturating_add(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX))
    }
}

impl ChunkReader for Slice {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let rest = self.from(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF("outside of the column chunk".to_owned()));
        }
        Ok(rest.slice(..length))
    }
}
