//! Whether a page holds what its header claims, as far as the Parquet crate takes it for granted: where a text, a level or
//! an index of a dictionary would lie outside, it panics.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

use crate::delta::footer::bits::{Runs, framed};

/// Looks pages of one column over, in their order.
pub(super) struct Sound {
    physical: Physical,
    /// Bytes of a value of a type that says its length.
    length: Option<usize>,
    max_rep: i16,
    max_def: i16,
    /// Entries of the column's dictionary.
    dictionary: usize,
}

impl Sound {
    pub fn new(column: &ColumnDescPtr) -> Sound {
        Sound {
            physical: column.physical_type(),
            length: usize::try_from(column.type_length()).ok().filter(|length| *length > 0),
            max_rep: column.max_rep_level(),
            max_def: column.max_def_level(),
            dictionary: 0,
        }
    }

    /// `None`: the page must not be decoded.
    pub fn check(&mut self, page: &Page) -> Option<()> {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.dictionary = size(*num_values)?;
                self.plain(buf, self.dictionary)
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                let (mut rest, count) = (buf.as_ref(), size(*num_values)?);
                if self.max_rep > 0 {
                    let levels = framed_levels(&mut rest, *rep_level_encoding)?;
                    full(levels, count, self.max_rep)?;
                }
                let mut present = count;
                if self.max_def > 0 {
                    let levels = framed_levels(&mut rest, *def_level_encoding)?;
                    present = full(levels, count, self.max_def)?;
                }
                self.values(rest, *encoding, present)
            }
            Page::DataPageV2 { buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let count = size(*num_values)?;
                let (reps, rest) = buf.split_at_checked(size(*rep_levels_byte_len)?)?;
                let (defs, rest) = rest.split_at_checked(size(*def_levels_byte_len)?)?;
                if self.max_rep > 0 {
                    full(reps, count, self.max_rep)?;
                }
                let mut present = count;
                if self.max_def > 0 {
                    present = full(defs, count, self.max_def)?;
                }
                self.values(rest, *encoding, present)
            }
        }
    }

    fn values(&self, bytes: &[u8], encoding: Encoding, count: usize) -> Option<()> {
        match encoding {
            Encoding::PLAIN => self.plain(bytes, count),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                if count == 0 && bytes.is_empty() {
                    return None;
                }
                let (width, rest) = bytes.split_first()?;
                let mut indices = Runs::new(rest, *width).ok()?;
                let is_there = |index: u32| size(index).is_some_and(|index| index < self.dictionary);
                (0..count).all(|_| indices.next().is_some_and(is_there)).then_some(())
            }
            // Booleans: framed like levels.
            Encoding::RLE if self.physical == Physical::BOOLEAN => {
                let mut rest = bytes;
                full(framed_levels(&mut rest, Encoding::RLE)?, count, 1).map(|_| ())
            }
            // These look after themselves.
            _ if matches!(
                self.physical,
                Physical::BOOLEAN | Physical::INT32 | Physical::INT64 | Physical::BYTE_ARRAY
            ) =>
            {
                Some(())
            }
            _ => None,
        }
    }

    fn plain(&self, bytes: &[u8], count: usize) -> Option<()> {
        let width = match self.physical {
            Physical::BOOLEAN => return (bytes.len() >= count.div_ceil(8)).then_some(()),
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => self.length?,
            Physical::BYTE_ARRAY => {
                let mut rest = bytes;
                for _ in 0..count {
                    let (length, after) = rest.split_first_chunk::<4>()?;
                    rest = after.get(size(u32::from_le_bytes(*length))?..)?;
                }
                return Some(());
            }
        };
        (bytes.len() >= count.checked_mul(width)?).then_some(())
    }
}

fn size(number: u32) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Levels with their length before them; the old encoding without one is read by nobody any more.
fn framed_levels<'a>(rest: &mut &'a [u8], encoding: Encoding) -> Option<&'a [u8]> {
    if encoding != Encoding::RLE {
        return None;
    }
    let (levels, after) = framed(rest)?;
    *rest = after;
    Some(levels)
}

/// How many of the first `count` levels are `max`; `None` if there are fewer, or one is larger.
fn full(levels: &[u8], count: usize, max: i16) -> Option<usize> {
    Runs::of_levels(levels, max).count(count, max, max)
}
