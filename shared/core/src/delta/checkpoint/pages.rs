//! The pages of one column of one row group, fetched in windows: memory holds a window and a page, however large the
//! column is.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::CheckpointError;
use crate::store::{ByteRange, ETag, GetOptions, ObjectKey, ReadObjects};

/// How much is fetched at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portions {
    /// From the end of a file at first; small checkpoints are whole then.
    pub first_bytes: u64,
    /// Columns of a row group that lie within this are fetched together.
    pub together_bytes: u64,
    /// Of a larger column.
    pub window_bytes: u64,
}

impl Default for Portions {
    fn default() -> Self {
        Portions { first_bytes: 256 * 1024, together_bytes: 8 * 1024 * 1024, window_bytes: 4 * 1024 * 1024 }
    }
}

/// Longest page that is read, so that a damaged one does not make us fetch the column whole.
const PAGE_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// A file that is read in ranges, and the part of it that is in memory already.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub objects: &'a dyn ReadObjects,
    pub at: &'a ObjectKey,
    pub etag: &'a ETag,
    pub portions: Portions,
}

impl Source<'_> {
    pub async fn fetch(&self, start: u64, end: u64) -> Result<Window, CheckpointError> {
        let range = Some(ByteRange::From { start, length: end.saturating_sub(start) });
        let options = GetOptions { range, if_match: Some(self.etag.clone()) };
        let bytes = self.objects.get(self.at, &options).await?.bytes;
        Ok(Window { start, bytes })
    }
}

/// Bytes of a file from `start` on.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub start: u64,
    pub bytes: Bytes,
}

impl Window {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(u64::try_from(self.bytes.len()).unwrap_or(0))
    }

    pub fn holds(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.end()
    }

    fn slice(&self, start: u64, end: u64) -> Option<Bytes> {
        let from = usize::try_from(start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(end.checked_sub(self.start)?).ok()?;
        (from <= to && to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

/// What a look at a window asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// End of the page that was read.
    page_end: Option<u64>,
    /// End of what would have been needed.
    needed: Option<u64>,
}

/// A window, as the Parquet crate wants to see it.
struct View {
    window: Window,
    asked: Mutex<Asked>,
}

impl View {
    fn note(&self, change: impl FnOnce(&mut Asked)) {
        change(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn asked(&self) -> Asked {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Length for View {
    fn len(&self) -> u64 {
        self.window.end()
    }
}

impl ChunkReader for View {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        match self.window.slice(start, self.window.end()) {
            Some(bytes) => Ok(bytes.reader()),
            None => Err(ParquetError::EOF("outside the window".to_owned())),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        match self.window.slice(start, end) {
            Some(bytes) => {
                self.note(|asked| asked.page_end = Some(end));
                Ok(bytes)
            }
            None => {
                self.note(|asked| asked.needed = Some(end));
                Err(ParquetError::EOF("outside the window".to_owned()))
            }
        }
    }
}

/// Pages of one column chunk, one after the other.
pub(super) struct ColumnPages {
    meta: ColumnChunkMetaData,
    rows: usize,
    next: u64,
    end: u64,
    window: Window,
}

impl ColumnPages {
    /// `window`: what of the file is in memory; it may hold nothing of this column.
    pub fn new(meta: ColumnChunkMetaData, rows: usize, window: Window) -> ColumnPages {
        let (start, length) = span(&meta);
        ColumnPages { meta, rows, next: start, end: start.saturating_add(length), window }
    }

    pub async fn next_page(&mut self, source: Source<'_>) -> Result<Option<Page>, CheckpointError> {
        let mut needed = self.next;
        while self.next < self.end {
            let is_all = self.window.holds(self.next, self.end);
            if !is_all && !self.window.holds(self.next, needed.max(self.next.saturating_add(1))) {
                let length = source.portions.window_bytes.max(needed.saturating_sub(self.next));
                self.window = source.fetch(self.next, self.next.saturating_add(length).min(self.end)).await?;
                needed = self.window.end();
            }
            let is_all = self.window.holds(self.next, self.end);
            let (page, asked) = self.look();
            match page {
                Ok(Some(page)) => {
                    // A page without bytes would never end.
                    let page_end = asked.page_end.filter(|end| *end > self.next);
                    self.next = page_end.ok_or_else(|| CheckpointError::damaged("a page without an end"))?;
                    return Ok(Some(page));
                }
                Ok(None) => self.next = self.end,
                Err(error) if is_all => return Err(CheckpointError::damaged(error)),
                // The page, or its header, goes beyond the window.
                Err(_) => {
                    let held = self.window.end().saturating_sub(self.next);
                    let doubled = self.next.saturating_add(held.saturating_mul(2).max(source.portions.window_bytes));
                    needed = asked.needed.unwrap_or(doubled).max(self.window.end().saturating_add(1)).min(self.end);
                    if needed.saturating_sub(self.next) > PAGE_MAX_BYTES {
                        return Err(CheckpointError::damaged(format!("a page of more than {PAGE_MAX_BYTES} bytes")));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Tries to read the page that begins at `next` from the window.
    fn look(&self) -> (Result<Option<Page>, ParquetError>, Asked) {
        let view = Arc::new(View { window: self.window.clone(), asked: Mutex::default() });
        let page = self.reader(view.clone()).and_then(|mut reader| reader.get_next_page());
        let asked = view.asked();
        (page, asked)
    }

    fn reader(&self, view: Arc<View>) -> Result<SerializedPageReader<View>, ParquetError> {
        let to_i64 = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let rest = self
            .meta
            .clone()
            .into_builder()
            .set_dictionary_page_offset(None)
            .set_data_page_offset(to_i64(self.next))
            .set_total_compressed_size(to_i64(self.end.saturating_sub(self.next)))
            .build()?;
        SerializedPageReader::new(view, &rest, self.rows, None)
    }
}

/// Start and length of a column chunk. (The crate's own panics on negative numbers.)
pub(super) fn span(meta: &ColumnChunkMetaData) -> (u64, u64) {
    let start = meta.dictionary_page_offset().unwrap_or_else(|| meta.data_page_offset());
    (u64::try_from(start).unwrap_or(0), u64::try_from(meta.compressed_size()).unwrap_or(0))
}
