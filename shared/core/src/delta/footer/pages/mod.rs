//! The values of one column chunk, for questions that statistics leave open.
//!
//! Pages come from strangers and are decoded where a panic ends the process, so nothing here trusts them: headers are
//! looked through before anything is allocated (`header`), what they announce bounds what is unpacked (`codec`), and
//! every length, level and index is looked up where it may be missing (`values`).

pub(in crate::delta) mod bits;
mod codec;
mod header;
mod values;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use thiserror::Error;

use self::bits::Runs;
use self::codec::unpack;
use self::header::{DataPage, Encoding, Header, Levels, read_header};
use self::values::{Dictionary, Values};
use super::kind::Kind;
use super::value::Datum;

/// At the beginning of every file.
const MAGIC_BYTES: u64 = 4;
/// One page, decompressed.
const PAGE_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Texts of one chunk, as often as rows have them.
const TEXTS_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Values cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PagesError {
    #[error("its compression ({0}) is not read here")]
    Codec(String),
    #[error("its pages cannot be read: {0}")]
    Damaged(String),
    #[error("its values take more memory than there is for them")]
    TooMuch,
}

type Result<T> = std::result::Result<T, PagesError>;

fn damaged(text: impl Into<String>) -> PagesError {
    PagesError::Damaged(text.into())
}

/// Start and length of a column chunk in its file; nothing where the footer says what cannot be.
pub fn chunk_range(chunk: &ColumnChunkMetaData, file_bytes: u64) -> Option<(u64, u64)> {
    let data = u64::try_from(chunk.data_page_offset()).ok()?;
    let start = match chunk.dictionary_page_offset() {
        // Some writers say zero where there is none.
        Some(offset) if offset > 0 => u64::try_from(offset).ok()?,
        _ => data,
    };
    let length = u64::try_from(chunk.compressed_size()).ok()?;
    (start.checked_add(length)? <= file_bytes).then_some((start, length))
}

/// Why the column chunks that a footer announces cannot be in its file: one lies outside of the data, or all together
/// are more than there is.
pub fn misplaced_chunk(metadata: &ParquetMetaData, data_end: u64) -> Option<String> {
    let mut sum = MAGIC_BYTES;
    for (index, group) in metadata.row_groups().iter().enumerate().filter(|(_, group)| group.num_rows() > 0) {
        for chunk in group.columns() {
            let column = chunk.column_path().string();
            if chunk.file_path().is_some() {
                return Some(format!("the column `{column}` of row group {index} is in another file"));
            }
            let range = chunk_range(chunk, data_end);
            let Some((_, length)) = range.filter(|(start, length)| *length == 0 || *start >= MAGIC_BYTES) else {
                return Some(format!("the column `{column}` of row group {index} lies outside of the file's data"));
            };
            if indexes_of(chunk).into_iter().any(|end| end.is_none_or(|end| end > data_end)) {
                return Some(format!("the index of column `{column}` of row group {index} lies outside of the file"));
            }
            sum = sum.saturating_add(length);
        }
    }
    (sum > data_end).then(|| "its columns have more bytes than the file has before its footer".to_owned())
}

/// Where the indexes and the Bloom filter of a chunk end, as far as it has such; nothing for what cannot be.
fn indexes_of(chunk: &ColumnChunkMetaData) -> Vec<Option<u64>> {
    let places = [
        (chunk.column_index_offset(), chunk.column_index_length()),
        (chunk.offset_index_offset(), chunk.offset_index_length()),
        (chunk.bloom_filter_offset(), chunk.bloom_filter_length()),
    ];
    let ends = places.into_iter().filter_map(|(start, length)| Some((start?, length.unwrap_or(0))));
    ends.map(|(start, length)| u64::try_from(start).ok()?.checked_add(u64::try_from(length).ok()?)).collect()
}

/// Reads a leaf's chunk from its `bytes` entry by entry: definition levels, and the values where there are some. As
/// [`Kind::Null`] only levels are read. The chunk must have exactly `rows` rows.
pub fn read_leaf(
    bytes: &Bytes,
    chunk: &ColumnChunkMetaData,
    kind: &Kind,
    rows: u64,
    out: &mut dyn FnMut(i16, Option<Datum>),
) -> Result<()> {
    let mut pages = LeafPages::new(bytes.clone(), chunk, kind, rows);
    while pages.next_page(u64::MAX, out)? {}
    Ok(())
}

/// A leaf's chunk, to be read page by page: for several columns side by side, of which no more than that is held.
pub struct LeafPages<'a> {
    bytes: Bytes,
    at: usize,
    chunk: &'a ColumnChunkMetaData,
    leaf: Leaf<'a>,
    /// As the footer says.
    rows: u64,
}

impl std::fmt::Debug for LeafPages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafPages").field("at", &self.at).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'a> LeafPages<'a> {
    pub fn new(bytes: Bytes, chunk: &'a ColumnChunkMetaData, kind: &'a Kind, rows: u64) -> LeafPages<'a> {
        let column = chunk.column_descr();
        let leaf = Leaf {
            kind,
            physical: column.physical_type(),
            width: usize::try_from(column.type_length()).unwrap_or(0),
            max_definition: column.max_def_level(),
            max_repetition: column.max_rep_level(),
            // A flat column has an entry for each row; the footer says how many others have.
            entries_left: match column.max_rep_level() {
                0 => rows,
                _ => u64::try_from(chunk.num_values()).unwrap_or(0),
            },
            rows: 0,
            texts_left: TEXTS_MAX_BYTES,
            dictionary: None,
        };
        LeafPages { bytes, at: 0, chunk, leaf, rows }
    }

    /// Reads the entries of the next page that has some; false at the end, where the chunk turned out to have exactly the
    /// rows that it should. A page of more than `most` entries is too much.
    pub fn next_page(&mut self, most: u64, out: &mut dyn FnMut(i16, Option<Datum>)) -> Result<bool> {
        while self.leaf.entries_left > 0 && self.at < self.bytes.len() {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let (header, after) = read_header(rest)?;
            let (packed, after) =
                after.split_at_checked(header.packed_bytes).ok_or_else(|| damaged("a page is cut off"))?;
            self.at = self.bytes.len().saturating_sub(after.len());
            if header.plain_bytes > PAGE_MAX_BYTES {
                return Err(damaged(format!("a page of more than {PAGE_MAX_BYTES} bytes")));
            }
            let entries = match &header.content {
                header::Content::Data(page) => u64::try_from(page.entries).unwrap_or(u64::MAX),
                _ => 0,
            };
            if entries > most {
                return Err(PagesError::TooMuch);
            }
            self.leaf.page(&header, packed, self.chunk, out)?;
            if entries > 0 {
                return Ok(true);
            }
        }
        if self.leaf.rows != self.rows || self.leaf.entries_left > 0 {
            return Err(damaged("it does not have the rows that the footer says"));
        }
        Ok(false)
    }
}

struct Leaf<'a> {
    kind: &'a Kind,
    physical: Physical,
    /// Of values of fixed length.
    width: usize,
    max_definition: i16,
    max_repetition: i16,
    entries_left: u64,
    rows: u64,
    texts_left: usize,
    dictionary: Option<Dictionary>,
}

impl Leaf<'_> {
    fn page(
        &mut self,
        header: &Header,
        packed: &[u8],
        chunk: &ColumnChunkMetaData,
        out: &mut dyn FnMut(i16, Option<Datum>),
    ) -> Result<()> {
        let codec = chunk.compression();
        match &header.content {
            header::Content::Other => Ok(()),
            header::Content::Dictionary { count, .. } if *self.kind != Kind::Null => {
                if self.dictionary.is_some() {
                    return Err(damaged("two dictionaries"));
                }
                let plain = unpack(codec, packed, header.plain_bytes)?;
                let values = Values::plain(&plain, *count, self.physical, self.width)?;
                self.dictionary = Some(Dictionary::read(values, *count, self.kind)?);
                Ok(())
            }
            header::Content::Dictionary { .. } => Ok(()),
            header::Content::Data(page) => {
                let (levels, plain) = match page.levels {
                    Levels::Within => (&[][..], unpack(codec, packed, header.plain_bytes)?),
                    Levels::Before { repetition_bytes, definition_bytes, is_packed } => {
                        let length = repetition_bytes.saturating_add(definition_bytes);
                        let (levels, values) =
                            packed.split_at_checked(length).ok_or_else(|| damaged("levels are cut off"))?;
                        let plain_bytes =
                            header.plain_bytes.checked_sub(length).ok_or_else(|| damaged("levels are cut off"))?;
                        let plain = match is_packed {
                            true => unpack(codec, values, plain_bytes)?,
                            false => values.to_vec().into(),
                        };
                        (levels, plain)
                    }
                };
                self.data_page(page, levels, &plain, out)
            }
        }
    }

    fn data_page(
        &mut self,
        page: &DataPage,
        levels: &[u8],
        plain: &[u8],
        out: &mut dyn FnMut(i16, Option<Datum>),
    ) -> Result<()> {
        let entries = u64::try_from(page.entries).unwrap_or(u64::MAX);
        self.entries_left =
            self.entries_left.checked_sub(entries).ok_or_else(|| damaged("more entries than the footer says"))?;
        let (repetitions, definitions, values) = match page.levels {
            Levels::Within => {
                let mut rest = plain;
                let repetitions = self.within(self.max_repetition, page.repetition_encoding, &mut rest)?;
                let definitions = self.within(self.max_definition, page.definition_encoding, &mut rest)?;
                (repetitions, definitions, rest)
            }
            Levels::Before { repetition_bytes, .. } => {
                let split = levels.split_at_checked(repetition_bytes);
                let (repetitions, definitions) = split.ok_or_else(|| damaged("levels are cut off"))?;
                (repetitions, definitions, plain)
            }
        };
        self.count_rows(repetitions, page.entries)?;
        let present = match self.max_definition {
            0 => page.entries,
            max => Runs::of_levels(definitions, max).count(page.entries, max, max).ok_or_else(cut_off)?,
        };
        let mut values = match *self.kind {
            // Only the levels are asked for.
            Kind::Null => None,
            _ => Some(Values::new(page.encoding, values, present, (self.physical, self.width), &self.dictionary)?),
        };
        let mut definitions = Runs::of_levels(definitions, self.max_definition);
        for _ in 0..page.entries {
            let level = match self.max_definition {
                0 => 0,
                _ => definitions.next().and_then(|level| i16::try_from(level).ok()).ok_or_else(cut_off)?,
            };
            let value = match &mut values {
                Some(values) if level >= self.max_definition => Some(values.next(self.kind)?),
                _ => None,
            };
            if let Some(Datum::Text(text)) = &value {
                self.texts_left = self.texts_left.checked_sub(text.len()).ok_or(PagesError::TooMuch)?;
            } else if let Some(Datum::Bytes(bytes)) = &value {
                self.texts_left = self.texts_left.checked_sub(bytes.len()).ok_or(PagesError::TooMuch)?;
            }
            out(level, value);
        }
        Ok(())
    }

    /// Levels with their length before them, at the start of a page's values.
    fn within<'p>(&self, max: i16, encoding: Encoding, rest: &mut &'p [u8]) -> Result<&'p [u8]> {
        if max == 0 {
            return Ok(&[]);
        }
        if encoding != Encoding::Rle {
            return Err(damaged("levels in an encoding that no writer has used for long"));
        }
        let (levels, after) = bits::framed(rest).ok_or_else(cut_off)?;
        *rest = after;
        Ok(levels)
    }

    fn count_rows(&mut self, repetitions: &[u8], entries: usize) -> Result<()> {
        let rows = match self.max_repetition {
            0 => entries,
            max => Runs::of_levels(repetitions, max).count(entries, 0, max).ok_or_else(cut_off)?,
        };
        self.rows = self.rows.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn cut_off() -> PagesError {
    damaged("a page has fewer values or levels than it says")
}

#[cfg(test)]
mod tests;
