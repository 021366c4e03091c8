//! One column of a row group, record by record.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::basic::{Repetition, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescPtr, Type};

use super::CheckpointError;
use super::pages::{ColumnPages, Source};
use super::rows::ParsedValue;
use super::sound::Sound;
use crate::delta::footer::{Datum, Kind, Raw, kind_of};

/// Pages that were fetched and are not decoded yet; the decoder's end and ours.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<Page>>>);

impl Queue {
    fn with<T>(&self, action: impl FnOnce(&mut VecDeque<Page>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Iterator for Queue {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Queue {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.with(VecDeque::pop_front))
    }

    /// There may always be more: records are counted by their levels here, not by pages.
    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Ok(Some(PageMetadata { num_rows: None, num_levels: None, is_dict: false }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.with(VecDeque::pop_front);
        Ok(())
    }
}

/// Values that are decoded and not taken yet, by physical type.
enum Values {
    Flags(ColumnReaderImpl<BoolType>, Vec<bool>),
    Ints(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Longs(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Texts(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
    // Of parsed statistics only.
    Singles(ColumnReaderImpl<FloatType>, Vec<f32>),
    Doubles(ColumnReaderImpl<DoubleType>, Vec<f64>),
    Moments(ColumnReaderImpl<Int96Type>, Vec<Int96>),
    Fixed(ColumnReaderImpl<FixedLenByteArrayType>, Vec<FixedLenByteArray>),
}

/// Does the same with the values of whatever type.
macro_rules! each_type {
    ($values:expr, ($reader:pat, $held:ident) => $action:expr) => {
        match $values {
            Values::Flags($reader, $held) => $action,
            Values::Ints($reader, $held) => $action,
            Values::Longs($reader, $held) => $action,
            Values::Texts($reader, $held) => $action,
            Values::Singles($reader, $held) => $action,
            Values::Doubles($reader, $held) => $action,
            Values::Moments($reader, $held) => $action,
            Values::Fixed($reader, $held) => $action,
        }
    };
}

impl Values {
    fn new(column: ColumnDescPtr, queue: Queue) -> Values {
        let pages = Box::new(queue);
        match column.physical_type() {
            Physical::BOOLEAN => Values::Flags(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::INT32 => Values::Ints(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::INT64 => Values::Longs(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::BYTE_ARRAY => Values::Texts(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::FLOAT => Values::Singles(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::DOUBLE => Values::Doubles(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::INT96 => Values::Moments(ColumnReaderImpl::new(column, pages), Vec::new()),
            Physical::FIXED_LEN_BYTE_ARRAY => Values::Fixed(ColumnReaderImpl::new(column, pages), Vec::new()),
        }
    }

    fn decode(&mut self, levels: &mut Levels) -> Result<(), ParquetError> {
        each_type!(self, (reader, values) => decode(reader, values, levels))
    }

    fn forget(&mut self, count: usize) {
        each_type!(self, (_, values) => drop(values.drain(..count.min(values.len()))));
    }

    /// As the file stores it.
    fn raw(&self, index: usize) -> Option<Raw<'_>> {
        Some(match self {
            Values::Flags(_, values) => Raw::Flag(*values.get(index)?),
            Values::Ints(_, values) => Raw::Int32(*values.get(index)?),
            Values::Longs(_, values) => Raw::Int64(*values.get(index)?),
            Values::Texts(_, values) => Raw::Bytes(values.get(index)?.data()),
            Values::Singles(_, values) => Raw::Float(*values.get(index)?),
            Values::Doubles(_, values) => Raw::Double(*values.get(index)?),
            Values::Moments(_, values) => Raw::Int96(values.get(index)?),
            Values::Fixed(_, values) => Raw::Bytes(values.get(index)?.data()),
        })
    }
}

fn decode<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    values: &mut Vec<T::T>,
    levels: &mut Levels,
) -> Result<(), ParquetError> {
    let before = levels.defs.len();
    let (_, found, count) = reader.read_records(usize::MAX, Some(&mut levels.defs), Some(&mut levels.reps), values)?;
    // Columns without levels: all values are there, one for each record.
    if levels.defs.len() == before {
        levels.defs.extend(std::iter::repeat_n(levels.max_def, count.max(found)));
    }
    if levels.reps.len() < levels.defs.len() {
        levels.reps.resize(levels.defs.len(), 0);
    }
    Ok(())
}

/// Definition and repetition levels that are decoded and not taken yet.
#[derive(Default)]
struct Levels {
    defs: Vec<i16>,
    reps: Vec<i16>,
    max_def: i16,
}

/// A column's reader. After [`Column::advance`] it stands on one record.
pub(super) struct Column {
    pages: ColumnPages,
    sound: Sound,
    kind: Kind,
    queue: Queue,
    values: Values,
    levels: Levels,
    /// Definition level at which an entry of the innermost list is there.
    entry_def: i16,
    /// Definition level at which the list itself is there.
    list_def: i16,
    is_finished: bool,
    /// The record that it stands on: levels, then values.
    record: (usize, usize),
    record_values: (usize, usize),
}

impl Column {
    pub fn new(column: ColumnDescPtr, root: &Type, pages: ColumnPages) -> Column {
        let queue = Queue::default();
        let (entry_def, list_def) = levels_of_lists(root, column.path().parts());
        let max_def = column.max_def_level();
        Column {
            pages,
            sound: Sound::new(&column),
            kind: kind_of(column.self_type()),
            values: Values::new(column, queue.clone()),
            queue,
            levels: Levels { max_def, ..Levels::default() },
            entry_def,
            list_def,
            is_finished: false,
            record: (0, 0),
            record_values: (0, 0),
        }
    }

    /// Complete records that are decoded and not taken.
    pub fn available(&self) -> usize {
        let rest = self.levels.reps.get(self.record.1..).unwrap_or_default();
        let begun = rest.iter().filter(|level| **level == 0).count();
        if self.is_finished || self.levels_are_flat() { begun } else { begun.saturating_sub(1) }
    }

    fn levels_are_flat(&self) -> bool {
        self.entry_def == 0
    }

    /// Decodes pages until at least one record is complete, or there are no more.
    pub async fn fill(&mut self, source: Source<'_>) -> Result<usize, CheckpointError> {
        self.compact();
        loop {
            let available = self.available();
            if available > 0 || self.is_finished {
                return Ok(available);
            }
            match self.pages.next_page(source).await? {
                None => self.is_finished = true,
                Some(page) => {
                    let is_data = page.is_data_page();
                    if self.sound.check(&page).is_none() {
                        return Err(CheckpointError::damaged("a page does not hold what its header says"));
                    }
                    self.queue.with(|queue| queue.push_back(page));
                    if is_data {
                        self.values.decode(&mut self.levels).map_err(CheckpointError::damaged)?;
                    }
                }
            }
        }
    }

    fn compact(&mut self) {
        let (levels, values) = (self.record.1, self.record_values.1);
        self.levels.defs.drain(..levels.min(self.levels.defs.len()));
        self.levels.reps.drain(..levels.min(self.levels.reps.len()));
        self.values.forget(values);
        (self.record, self.record_values) = ((0, 0), (0, 0));
    }

    /// Goes to the next record; there must be an available one.
    pub fn advance(&mut self) {
        let start = self.record.1;
        let rest = self.levels.reps.get(start.saturating_add(1)..).unwrap_or_default();
        let more = rest.iter().position(|level| *level == 0).unwrap_or(rest.len());
        let end = start.saturating_add(1).saturating_add(more).min(self.levels.defs.len());
        let defs = self.levels.defs.get(start..end).unwrap_or_default();
        let values = defs.iter().filter(|level| **level == self.levels.max_def).count();
        self.record = (start, end);
        self.record_values = (self.record_values.1, self.record_values.1.saturating_add(values));
    }

    fn defs(&self) -> &[i16] {
        self.levels.defs.get(self.record.0..self.record.1).unwrap_or_default()
    }

    /// Whether the record has a value, of a column outside lists.
    fn is_some(&self) -> bool {
        self.record_values.1 > self.record_values.0
    }

    pub fn text(&self) -> Result<Option<&str>, CheckpointError> {
        if !self.is_some() {
            return Ok(None);
        }
        self.text_at(self.record_values.0).map(Some)
    }

    fn text_at(&self, index: usize) -> Result<&str, CheckpointError> {
        let Values::Texts(_, values) = &self.values else { return Err(CheckpointError::damaged("a text is expected")) };
        let value = values.get(index).ok_or_else(|| CheckpointError::damaged("a value is missing"))?;
        value.as_utf8().map_err(|_| CheckpointError::damaged("a text is not UTF-8"))
    }

    pub fn number(&self) -> Result<Option<i64>, CheckpointError> {
        if !self.is_some() {
            return Ok(None);
        }
        let value = match &self.values {
            Values::Ints(_, values) => values.get(self.record_values.0).map(|value| i64::from(*value)),
            Values::Longs(_, values) => values.get(self.record_values.0).copied(),
            _ => None,
        };
        value.map(Some).ok_or_else(|| CheckpointError::damaged("a number is expected"))
    }

    pub fn flag(&self) -> Result<Option<bool>, CheckpointError> {
        if !self.is_some() {
            return Ok(None);
        }
        match &self.values {
            Values::Flags(_, values) => Ok(values.get(self.record_values.0).copied()),
            _ => Err(CheckpointError::damaged("a boolean is expected")),
        }
    }

    /// The value, whatever its type, of a column outside lists.
    pub fn parsed(&self) -> ParsedValue {
        if !self.is_some() {
            return ParsedValue::Null;
        }
        match self.values.raw(self.record_values.0) {
            Some(Raw::Float(value)) if self.kind == Kind::Float => ParsedValue::Single(value),
            Some(raw) => Datum::decode(&self.kind, raw).map_or(ParsedValue::Unreadable, ParsedValue::Value),
            None => ParsedValue::Unreadable,
        }
    }

    /// The entries of a list, or of one side of a map; `None` where there is no list.
    pub fn entries(&self) -> Result<Option<Vec<Option<&str>>>, CheckpointError> {
        let defs = self.defs();
        if defs.iter().all(|level| *level < self.list_def) {
            return Ok(None);
        }
        let mut next = self.record_values.0;
        let mut entries = Vec::new();
        for level in defs.iter().filter(|level| **level >= self.entry_def) {
            if *level == self.levels.max_def {
                entries.push(Some(self.text_at(next)?));
                next = next.saturating_add(1);
            } else {
                entries.push(None);
            }
        }
        Ok(Some(entries))
    }
}

/// Definition levels of the innermost repeated node of a path and of the list around it; zeros outside lists.
fn levels_of_lists(root: &Type, path: &[String]) -> (i16, i16) {
    let (mut node, mut level) = (root, 0_i16);
    let (mut entry, mut list) = (0, 0);
    for name in path {
        let Some(child) = node.get_fields().iter().find(|field| field.name() == name) else { break };
        match child.get_basic_info().repetition() {
            Repetition::REQUIRED => {}
            Repetition::OPTIONAL => level += 1,
            Repetition::REPEATED => {
                list = level;
                level += 1;
                entry = level;
            }
        }
        if child.is_primitive() {
            break;
        }
        node = child;
    }
    (entry, list)
}
